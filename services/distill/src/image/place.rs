//! Which part of a picture matters: what stands out of an even border, and where most is to be seen.

use fast_image_resize::images::Image;
use fast_image_resize::{PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::Picture;
use crate::limits::SMART_SIDE;

/// What an even border is taken for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trim {
    /// So far a channel may be from the border's colour, 0 to 255.
    pub threshold: f32,
    /// None: the colour of the pixel at the top left.
    pub colour: Option<[u8; 3]>,
    /// As much is cut off at the left as at the right: the smaller of both. And so at top and bottom.
    pub is_even: (bool, bool),
}

/// Left, top, width, height.
pub type Part = (u32, u32, u32, u32);

/// All of a picture but its border. A picture that is nothing but border stays whole.
pub fn within_border(picture: &Picture, trim: Trim) -> Part {
    let whole = (0, 0, picture.width, picture.height);
    let Some(corner) = picture.rgba.first_chunk::<4>() else { return whole };
    let border = trim.colour.map_or(*corner, |[r, g, b]| [r, g, b, 255]);
    let differs = |pixel: &[u8]| {
        // What does not show has no colour.
        !(pixel[3] == 0 && border[3] == 0)
            && pixel.iter().zip(border).any(|(have, is)| f32::from(have.abs_diff(is)) > trim.threshold)
    };
    let width = picture.width as usize;
    let (mut left, mut right, mut rows) = (width, 0, None);
    for (nth, row) in picture.rgba.chunks_exact(width * 4).enumerate() {
        let Some(first) = row.chunks_exact(4).position(differs) else { continue };
        let last = row.chunks_exact(4).rposition(differs).unwrap_or(first);
        (left, right) = (left.min(first), right.max(last));
        rows = Some((rows.map_or(nth, |(top, _)| top), nth));
    }
    let Some((top, bottom)) = rows else { return whole };
    let even = |is: bool, before: u32, last: u32, length: u32| {
        let after = length - 1 - last;
        if is { (before.min(after), length - 2 * before.min(after)) } else { (before, length - before - after) }
    };
    let (left, across) = even(trim.is_even.0, left as u32, right as u32, picture.width);
    let (top, down) = even(trim.is_even.1, top as u32, bottom as u32, picture.height);
    (left, top, across, down)
}

/// Where the part of this size begins that has most to show: edges, and strong colours, and rather in the middle than at
/// a side. Looked for in a small copy.
pub fn most_to_see(picture: &Picture, part: (u32, u32)) -> (u32, u32) {
    let room = (picture.width.saturating_sub(part.0), picture.height.saturating_sub(part.1));
    if room == (0, 0) {
        return (0, 0);
    }
    let Some(small) = thumbnail(picture) else { return (room.0 / 2, room.1 / 2) };
    let (width, height) = (small.width as usize, small.height as usize);
    let by = (f64::from(picture.width) / width as f64, f64::from(picture.height) / height as f64);
    let sums = sums(&small);
    let cells = |length: u32, by: f64, most: usize| ((f64::from(length) / by).round() as usize).clamp(1, most);
    let (across, down) = (cells(part.0, by.0, width), cells(part.1, by.1, height));
    let sum = |x: usize, y: usize| {
        let at = |x: usize, y: usize| sums[y * (width + 1) + x];
        at(x + across, y + down) + at(x, y) - at(x, y + down) - at(x + across, y)
    };
    let off = |at: usize, room: usize| if room == 0 { 0.0 } else { (2.0 * at as f64 / room as f64 - 1.0).abs() };
    let mut best = (0.0, (0, 0));
    for y in 0..=height - down {
        for x in 0..=width - across {
            let centred = 1.0 - 0.06 * (off(x, width - across) + off(y, height - down));
            let score = (sum(x, y) as f64 + 1.0) * centred;
            if score > best.0 {
                best = (score, (x, y));
            }
        }
    }
    let back = |at: usize, cells: usize, room: u32| {
        // By shares of the room, so that both ends can be reached.
        if cells == 0 { room / 2 } else { (f64::from(room) * at as f64 / cells as f64).round() as u32 }
    };
    (back(best.1.0, width - across, room.0).min(room.0), back(best.1.1, height - down, room.1).min(room.1))
}

/// None: it could not be made smaller.
fn thumbnail(picture: &Picture) -> Option<Picture> {
    let longest = picture.width.max(picture.height);
    if longest <= SMART_SIDE {
        return Some(picture.clone());
    }
    let side = |length: u32| (u64::from(length) * u64::from(SMART_SIDE) / u64::from(longest)).max(1) as u32;
    let (width, height) = (side(picture.width), side(picture.height));
    let from = fast_image_resize::images::ImageRef::new(picture.width, picture.height, &picture.rgba, PixelType::U8x4);
    let mut to = Image::new(width, height, PixelType::U8x4);
    let how = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(fast_image_resize::FilterType::Box));
    Resizer::new().resize(&from.ok()?, &mut to, &how.use_alpha(false)).ok()?;
    Picture::new(width, height, to.into_vec())
}

/// What there is to see above and left of each corner of pixels.
fn sums(picture: &Picture) -> Vec<u64> {
    let (width, height) = (picture.width as usize, picture.height as usize);
    let pixel = |x: usize, y: usize| {
        let at = (y * width + x) * 4;
        let [r, g, b, a] = [0, 1, 2, 3].map(|channel| i64::from(picture.rgba[at + channel]));
        ((r * 299 + g * 587 + b * 114) / 1000 * a / 255, (r.max(g).max(b) - r.min(g).min(b)) * a / 255)
    };
    let mut sums = vec![0; (width + 1) * (height + 1)];
    for y in 0..height {
        let mut row = 0;
        for x in 0..width {
            let (light, colour) = pixel(x, y);
            let (right, below) = (pixel((x + 1).min(width - 1), y).0, pixel(x, (y + 1).min(height - 1)).0);
            let (across, down) = ((right - light).abs(), (below - light).abs());
            // Small differences are grain.
            row += ((across + down).saturating_sub(6).max(0) * 4 + colour / 4) as u64;
            sums[(y + 1) * (width + 1) + x + 1] = sums[y * (width + 1) + x + 1] + row;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grey, with a pattern of black and white squares at a place.
    fn with_pattern(width: u32, height: u32, part: Part) -> Picture {
        let mut picture = Picture::filled(width, height, [90, 90, 90, 255]).unwrap();
        for y in part.1..part.1 + part.3 {
            for x in part.0..part.0 + part.2 {
                let at = ((y * width + x) * 4) as usize;
                picture.rgba[at..at + 3].fill(if (x / 8 + y / 8) % 2 == 0 { 0 } else { 255 });
            }
        }
        picture
    }

    #[test]
    fn a_part_lies_where_most_is_to_be_seen() {
        for (at, size) in
            [((600, 40), (1000, 300)), ((0, 0), (1000, 300)), ((40, 800), (200, 1000)), ((100, 60), (200, 120))]
        {
            let picture = with_pattern(size.0, size.1, (at.0, at.1, 80, 60));
            let (x, y) = most_to_see(&picture, (120.min(size.0), 100));
            let holds = x <= at.0 + 4 && x + 124 >= at.0 + 80 && y <= at.1 + 4 && y + 104 >= at.1 + 60;
            assert!(holds && x + 120 <= size.0 && y + 100 <= size.1, "{at:?} in {size:?}: {x} {y}");
        }
        let even = Picture::filled(300, 100, [1, 2, 3, 255]).unwrap();
        let (x, _) = most_to_see(&even, (100, 100));
        assert!((90..=110).contains(&x), "nothing to see anywhere: the middle, not {x}");
        assert_eq!(most_to_see(&even, (300, 100)), (0, 0));
        let line = Picture::filled(4000, 1, [1, 2, 3, 255]).unwrap();
        assert!(most_to_see(&line, (10, 1)).0 <= 3990);
    }

    #[test]
    fn a_border_is_what_differs_by_no_more_than_the_threshold() {
        let trim = Trim { threshold: 10.0, colour: None, is_even: (false, false) };
        let picture = with_pattern(60, 40, (10, 8, 20, 16));
        assert_eq!(within_border(&picture, trim), (10, 8, 20, 16));
        assert_eq!(within_border(&picture, Trim { is_even: (true, true), ..trim }), (10, 8, 40, 24));
        let green = Some([0, 255, 0]);
        assert_eq!(within_border(&picture, Trim { colour: green, ..trim }), (0, 0, 60, 40));
        assert_eq!(within_border(&picture, Trim { threshold: 255.0, ..trim }), (0, 0, 60, 40), "all of it is border");
        let clear = Picture {
            rgba: picture.rgba.chunks(4).flat_map(|p| [p[0], p[1], p[2], if p[0] == 90 { 0 } else { 255 }]).collect(),
            ..picture
        };
        assert_eq!(within_border(&clear, trim), (10, 8, 20, 16));
    }
}
