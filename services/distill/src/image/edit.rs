//! Changes of pixels: trim, crop, turn, resize, blur, sharpen, grey, pad, watermark. In this order, as imgproxy does them.

use fast_image_resize::images::Image;
use fast_image_resize::{PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::mark::Watermark;
use super::orient::upright;
use super::place::{Part, Trim, most_to_see, within_border};
use super::{Bad, Format, Picture};
use crate::limits::{PIXELS_MAX, QUALITY, SIDE_MAX};

/// How a picture and the size that was asked for are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// As large as goes within it.
    #[default]
    Fit,
    /// As small as covers it; what is over is cut off.
    Fill,
    /// The same, but a small picture keeps its pixels and gets the shape.
    FillDown,
    /// Just this size, whatever becomes of the shape.
    Force,
    /// `Fill` if both are upright or both lie, else `Fit`.
    Auto,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Resize {
    pub mode: Mode,
    /// 0: whatever the other one makes of it.
    pub width: u32,
    pub height: u32,
    /// Whether pixels may become more.
    pub enlarge: bool,
    /// Whether it is padded to the size that was asked for.
    pub extend: bool,
}

/// Which part stays where some is cut off, or where it lies where some is added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gravity {
    /// Hundredths of width and height: 0 0 is top left.
    Towards(u8, u8),
    /// Pixels from the top left.
    At(u32, u32),
    /// Where most is to be seen; the middle, where some is added.
    Smart,
}

impl Default for Gravity {
    fn default() -> Self {
        Self::Towards(50, 50)
    }
}

impl Gravity {
    /// Where a part of this size begins in a picture. What was found in the first frame of one that moves holds for all of them.
    fn finds(self, picture: &Picture, part: (u32, u32), held: &mut Option<(u32, u32)>) -> (u32, u32) {
        match self {
            Self::Smart => *held.get_or_insert_with(|| most_to_see(picture, part)),
            Self::Towards(..) | Self::At(..) => self.begins((picture.width, picture.height), part),
        }
    }

    /// Where a part of this size begins in a whole.
    fn begins(self, whole: (u32, u32), part: (u32, u32)) -> (u32, u32) {
        let (x, y) = match self {
            Self::Towards(x, y) => (x, y),
            Self::At(x, y) => return (x.min(whole.0.saturating_sub(part.0)), y.min(whole.1.saturating_sub(part.1))),
            Self::Smart => return Self::default().begins(whole, part),
        };
        let along = |whole: u32, part: u32, share: u8| {
            let room = u64::from(whole.saturating_sub(part));
            ((room * u64::from(share.min(100)) + 50) / 100) as u32
        };
        (along(whole.0, part.0, x), along(whole.1, part.1, y))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Crop {
    /// 0: all of it.
    pub width: u32,
    pub height: u32,
    pub gravity: Gravity,
}

/// What was found in the first frame of a picture that moves.
#[derive(Default)]
pub struct Held {
    within: Option<Part>,
    crop: Option<(u32, u32)>,
    fill: Option<(u32, u32)>,
    /// None: not looked for yet; Some(None): there is none.
    mark: Option<Option<Picture>>,
}

/// All that is wanted of a picture.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Edit {
    pub trim: Option<Trim>,
    pub crop: Option<Crop>,
    pub resize: Resize,
    pub gravity: Gravity,
    /// Behind what shines through, and in padding. Without it, white where a format has no alpha.
    pub background: Option<[u8; 3]>,
    /// Pixels added at top, right, bottom, left.
    pub padding: [u32; 4],
    /// Clockwise: 0, 90, 180 or 270.
    pub rotate: u16,
    /// Standard deviations in pixels; 0 for none.
    pub blur: f32,
    pub sharpen: f32,
    pub grey: bool,
    pub watermark: Option<Watermark>,
    /// From 1 to 100.
    pub quality: Option<u8>,
    /// None: what suits the picture and is accepted.
    pub format: Option<Format>,
    pub accepts_webp: bool,
    /// Pixels of the screen are in the sizes already.
    pub has_dpr: bool,
}

impl Edit {
    /// Whether an original in its place would be something else, and not only more bytes.
    pub fn must_be_made(&self) -> bool {
        let is_larger = self.resize.enlarge || self.resize.extend || self.padding != [0; 4];
        let is_cut = self.crop.is_some() || self.trim.is_some();
        let is_other = is_cut || self.watermark.is_some() || self.rotate != 0 || self.blur > 0.0 || self.sharpen > 0.0;
        let is_shaped = matches!(self.resize.mode, Mode::Fill | Mode::FillDown | Mode::Force | Mode::Auto)
            && (self.resize.width > 0 || self.resize.height > 0);
        self.format.is_some() || is_larger || is_other || is_shaped || self.background.is_some()
    }

    /// About the size of what is made of a picture of this size.
    pub fn wanted(&self, have: (u32, u32)) -> (u32, u32) {
        let Resize { mode, width, height, enlarge, .. } = self.resize;
        let all = |asked: u32| if asked == 0 { u32::MAX } else { asked };
        match (mode, width, height) {
            (_, 0, 0) => have,
            (Mode::Auto, 1.., 1..) if (width >= height) == (have.0 >= have.1) => (width, height),
            (Mode::Fit | Mode::Auto, ..) | (_, 0, _) | (_, _, 0) => {
                let within = (all(width).min(SIDE_MAX), all(height).min(SIDE_MAX));
                shrunk_to((have.0.max(1), have.1.max(1)), within, enlarge)
            }
            (Mode::Fill | Mode::FillDown | Mode::Force, ..) => (width, height),
        }
    }

    pub fn quality(&self) -> u8 {
        self.quality.unwrap_or(QUALITY).clamp(1, 100)
    }

    /// # Errors
    /// What was asked for has more pixels than any picture may, or the watermark is none.
    pub fn apply(&self, picture: Picture) -> Result<Picture, Bad> {
        self.apply_as(picture, &mut Held::default())
    }

    /// The same, as it was with the frames before.
    ///
    /// # Errors
    /// As [`Edit::apply`].
    pub fn apply_as(&self, mut picture: Picture, held: &mut Held) -> Result<Picture, Bad> {
        if let Some(trim) = self.trim {
            let (left, top, width, height) = *held.within.get_or_insert_with(|| within_border(&picture, trim));
            picture = cut(&picture, (left, top), (width, height));
        }
        if let Some(Crop { width, height, gravity }) = self.crop {
            let some = |asked: u32, whole: u32| if asked == 0 { whole } else { asked.min(whole) };
            let part = (some(width, picture.width), some(height, picture.height));
            let at = gravity.finds(&picture, part, &mut held.crop);
            picture = cut(&picture, at, part);
        }
        picture = upright(
            picture,
            match self.rotate {
                90 => 6,
                180 => 3,
                270 => 8,
                _ => 1,
            },
        );
        picture = self.resized(picture, &mut held.fill)?;
        if let Some(colour) = self.background {
            flatten(&mut picture, colour);
        }
        if self.blur > 0.0 {
            picture = blurred(&picture, self.blur);
        }
        if self.sharpen > 0.0 {
            sharpen(&mut picture, self.sharpen);
        }
        if self.grey {
            make_grey(&mut picture);
        }
        let [top, right, bottom, left] = self.padding;
        let (width, height) = (
            picture.width.saturating_add(left).saturating_add(right),
            picture.height.saturating_add(top).saturating_add(bottom),
        );
        let mut picture = self.laid_on(picture, (width, height), Some((left, top)))?;
        if let Some(watermark) = &self.watermark {
            let mark = match &mut held.mark {
                Some(mark) => mark,
                none => none.insert(watermark.prepared(picture.width, picture.height)?),
            };
            if let Some(mark) = mark {
                watermark.lay(mark, &mut picture);
            }
        }
        Ok(picture)
    }

    fn resized(&self, picture: Picture, held: &mut Option<(u32, u32)>) -> Result<Picture, Bad> {
        let Resize { mode, width, height, enlarge, extend } = self.resize;
        if width == 0 && height == 0 {
            return Ok(picture);
        }
        let (have_w, have_h) = (f64::from(picture.width), f64::from(picture.height));
        let shape = have_w / have_h;
        let want_w = if width == 0 { f64::from(height) * shape } else { f64::from(width) };
        let want_h = if height == 0 { f64::from(width) / shape } else { f64::from(height) };
        let mode = match mode {
            Mode::Auto if (want_w >= want_h) == (have_w >= have_h) => Mode::Fill,
            Mode::Auto => Mode::Fit,
            other => other,
        };
        let (by_w, by_h) = (want_w / have_w, want_h / have_h);
        let most = if enlarge { f64::INFINITY } else { 1.0 };
        let (scale_w, scale_h) = match mode {
            Mode::Fit | Mode::Auto => (by_w.min(by_h).min(most), by_w.min(by_h).min(most)),
            Mode::Fill | Mode::FillDown => (by_w.max(by_h).min(most), by_w.max(by_h).min(most)),
            Mode::Force => (by_w.min(most), by_h.min(most)),
        };
        let side = |length: f64| length.round().clamp(1.0, f64::from(u32::MAX)) as u32;
        let mut picture = scaled(picture, side(have_w * scale_w), side(have_h * scale_h))?;
        let mut asked = (side(want_w), side(want_h));
        if matches!(mode, Mode::Fill | Mode::FillDown) {
            if mode == Mode::FillDown && (picture.width < asked.0 || picture.height < asked.1) {
                // The shape that was asked for, out of the pixels that there are.
                let fits = (f64::from(picture.width) / want_w).min(f64::from(picture.height) / want_h);
                asked = (side(want_w * fits), side(want_h * fits));
            }
            let part = (asked.0.min(picture.width), asked.1.min(picture.height));
            let at = self.gravity.finds(&picture, part, held);
            picture = cut(&picture, at, part);
        }
        if extend { self.laid_on(picture, asked, None) } else { Ok(picture) }
    }

    /// The picture on a ground of this size; without a place, where its gravity is.
    fn laid_on(&self, picture: Picture, size: (u32, u32), at: Option<(u32, u32)>) -> Result<Picture, Bad> {
        let (width, height) = (size.0.max(picture.width), size.1.max(picture.height));
        if (width, height) == (picture.width, picture.height) {
            return Ok(picture);
        }
        bounded(width, height)?;
        let ground = self.background.map_or([0; 4], |[r, g, b]| [r, g, b, 255]);
        let mut whole = Picture::filled(width, height, ground).ok_or_else(|| too_large(width, height))?;
        let (left, top) = at.unwrap_or_else(|| self.gravity.begins((width, height), (picture.width, picture.height)));
        let bytes = picture.width as usize * 4;
        for (row, pixels) in picture.rgba.chunks_exact(bytes).enumerate() {
            let to = ((top as usize + row) * width as usize + left as usize) * 4;
            whole.rgba[to..to + bytes].copy_from_slice(pixels);
        }
        Ok(whole)
    }
}

fn too_large(width: u32, height: u32) -> Bad {
    Bad::TooLarge(format!("{width} by {height} pixels were asked for"))
}

fn bounded(width: u32, height: u32) -> Result<(), Bad> {
    let is_small = u64::from(width) * u64::from(height) <= PIXELS_MAX && width.max(height) <= SIDE_MAX;
    is_small.then_some(()).ok_or_else(|| too_large(width, height))
}

/// The size within another one that has the shape it has; a smaller one stays as it is, unless it is to grow.
pub fn shrunk_to(size: (u32, u32), within: (u32, u32), is_grown: bool) -> (u32, u32) {
    let by = |have: u32, room: u32| f64::from(room) / f64::from(have);
    let scale = by(size.0, within.0).min(by(size.1, within.1));
    let scale = if is_grown { scale } else { scale.min(1.0) };
    let side = |length: u32, room: u32| ((f64::from(length) * scale).round() as u32).clamp(1, room.max(1));
    (side(size.0, within.0), side(size.1, within.1))
}

pub fn scaled(picture: Picture, width: u32, height: u32) -> Result<Picture, Bad> {
    if (width, height) == (picture.width, picture.height) {
        return Ok(picture);
    }
    bounded(width, height)?;
    let is_clear = picture.is_clear();
    let wrong = |e: &dyn std::fmt::Display| Bad::Broken(e.to_string());
    let from =
        Image::from_vec_u8(picture.width, picture.height, picture.rgba, PixelType::U8x4).map_err(|e| wrong(&e))?;
    let mut to = Image::new(width, height, PixelType::U8x4);
    // Lanczos, as libvips and so imgproxy.
    let how = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(fast_image_resize::FilterType::Lanczos3));
    Resizer::new().resize(&from, &mut to, &how.use_alpha(is_clear)).map_err(|e| wrong(&e))?;
    Picture::new(width, height, to.into_vec()).ok_or_else(|| too_large(width, height))
}

/// A part of a picture, which lies within it.
pub fn cut(picture: &Picture, (left, top): (u32, u32), (width, height): (u32, u32)) -> Picture {
    let mut rgba = Vec::with_capacity(width as usize * height as usize * 4);
    let (row_bytes, from, bytes) = (picture.width as usize * 4, left as usize * 4, width as usize * 4);
    for row in picture.rgba.chunks_exact(row_bytes).skip(top as usize).take(height as usize) {
        rgba.extend_from_slice(&row[from..from + bytes]);
    }
    Picture { width, height, rgba }
}

/// Lays it over a colour.
pub fn flatten(picture: &mut Picture, colour: [u8; 3]) {
    for pixel in picture.rgba.chunks_exact_mut(4).filter(|pixel| pixel[3] != 255) {
        let alpha = u32::from(pixel[3]);
        for (channel, behind) in pixel.iter_mut().zip(colour) {
            *channel = ((u32::from(*channel) * alpha + u32::from(behind) * (255 - alpha) + 127) / 255) as u8;
        }
        pixel[3] = 255;
    }
}

fn make_grey(picture: &mut Picture) {
    for pixel in picture.rgba.chunks_exact_mut(4) {
        let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        pixel[..3].fill(((r * 299 + g * 587 + b * 114 + 500) / 1000) as u8);
    }
}

/// Three box filters one after the other, which together are nearly a Gaussian one; each takes the same time whatever its width.
fn blurred(picture: &Picture, sigma: f32) -> Picture {
    let mut out = picture.clone();
    let is_clear = picture.is_clear();
    if is_clear {
        for pixel in out.rgba.chunks_exact_mut(4) {
            let alpha = u32::from(pixel[3]);
            pixel[..3].iter_mut().for_each(|c| *c = ((u32::from(*c) * alpha + 127) / 255) as u8);
        }
    }
    // Three boxes of radius r have the variance of r * (r + 1).
    let radius = (((1.0 + 4.0 * sigma * sigma).sqrt() - 1.0) / 2.0).round().max(1.0) as usize;
    let (width, height) = (picture.width as usize, picture.height as usize);
    let mut line = Vec::new();
    for _ in 0..3 {
        for row in 0..height {
            box_along(&mut out.rgba, &mut line, row * width * 4, 4, width, radius);
        }
        for column in 0..width {
            box_along(&mut out.rgba, &mut line, column * 4, width * 4, height, radius);
        }
    }
    if is_clear {
        for pixel in out.rgba.chunks_exact_mut(4).filter(|pixel| pixel[3] > 0) {
            let alpha = u32::from(pixel[3]);
            pixel[..3].iter_mut().for_each(|c| *c = ((u32::from(*c) * 255 + alpha / 2) / alpha).min(255) as u8);
        }
    }
    out
}

/// One line of pixels, each the mean of those around it; beyond its ends are its ends.
fn box_along(rgba: &mut [u8], line: &mut Vec<[u8; 4]>, begin: usize, step: usize, length: usize, radius: usize) {
    line.clear();
    line.extend((0..length).map(|nth| {
        let at = begin + nth * step;
        [rgba[at], rgba[at + 1], rgba[at + 2], rgba[at + 3]]
    }));
    let at = |nth: isize| line[nth.clamp(0, length as isize - 1) as usize];
    let (radius, count) = (radius as isize, (2 * radius + 1) as u32);
    let mut sum = [0_u32; 4];
    for nth in -radius..=radius {
        sum.iter_mut().zip(at(nth)).for_each(|(sum, c)| *sum += u32::from(c));
    }
    for nth in 0..length as isize {
        let to = begin + nth as usize * step;
        for channel in 0..4 {
            rgba[to + channel] = ((sum[channel] + count / 2) / count) as u8;
            let (comes, goes) = (at(nth + radius + 1)[channel], at(nth - radius)[channel]);
            sum[channel] = sum[channel] + u32::from(comes) - u32::from(goes);
        }
    }
}

/// As much as each pixel differs from those around it, once more.
fn sharpen(picture: &mut Picture, sigma: f32) {
    let soft = blurred(picture, sigma);
    for (pixel, soft) in picture.rgba.chunks_exact_mut(4).zip(soft.rgba.chunks_exact(4)) {
        for (channel, soft) in pixel.iter_mut().zip(soft).take(3) {
            *channel = (2 * i32::from(*channel) - i32::from(*soft)).clamp(0, 255) as u8;
        }
    }
}
