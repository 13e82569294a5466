//! Which of the pictures that are kept of an original is nearest to the one that was asked for, when that one cannot be had now.

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::image::{Edit, Format, Resize};

/// A picture that is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// Under which it is kept.
    pub key: String,
    /// What else was wanted of it than size, quality and format.
    pub family: String,
    pub format: Format,
    pub quality: u8,
    pub width: u32,
    pub height: u32,
}

/// What was asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    family: String,
    /// None: whatever can be read.
    format: Option<Format>,
    accepts_webp: bool,
    quality: u8,
    width: u32,
    height: u32,
}

/// A picture of another shape would be pulled out of its own where it is shown.
const SHAPE_MOST: f64 = 0.04;

impl Asked {
    /// Of an original of this size.
    pub fn of(edit: &Edit, original: (u32, u32)) -> Self {
        let (width, height) = edit.wanted(original);
        let (family, quality) = (family(edit), edit.quality());
        Self { family, format: edit.format, accepts_webp: edit.accepts_webp, quality, width, height }
    }

    /// None: it cannot stand in.
    fn distance(&self, variant: &Variant) -> Option<f64> {
        let can_be_read = match self.format {
            Some(format) => variant.format == format,
            None => match variant.format {
                Format::Webp => self.accepts_webp,
                Format::Avif | Format::Svg => false,
                Format::Jpeg | Format::Png | Format::Gif => true,
            },
        };
        let by = |asked: u32, has: u32| (f64::from(asked.max(1)) / f64::from(has.max(1))).ln();
        let (across, down) = (by(self.width, variant.width), by(self.height, variant.height));
        // Of small pictures a pixel is a share of the shape.
        let pixel = 2.0 / f64::from(self.width.min(self.height).min(variant.width).min(variant.height).max(1));
        let is_it = variant.family == self.family && can_be_read && (across - down).abs() <= SHAPE_MOST + pixel;
        let quality = f64::from(self.quality.abs_diff(variant.quality)) / 50.0;
        // Too small is worse than too large, which costs bytes only.
        let size = across.abs().max(down.abs()) * if across > 0.0 { 1.5 } else { 1.0 };
        is_it.then_some(size + quality)
    }

    pub fn nearest(&self, kept: &[Variant]) -> Option<Variant> {
        let all = kept.iter().filter_map(|variant| Some((self.distance(variant)?, variant)));
        all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, variant)| variant.clone())
    }
}

pub fn family(edit: &Edit) -> String {
    let resize = Resize { width: 0, height: 0, ..edit.resize };
    let same = Edit { resize, quality: None, format: None, accepts_webp: false, ..edit.clone() };
    let digest = digest::digest(&digest::SHA256, format!("{same:?}").as_bytes());
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Mode;

    fn edit(width: u32, quality: u8) -> Edit {
        Edit { resize: Resize { width, ..Resize::default() }, quality: Some(quality), ..Edit::default() }
    }

    fn kept(key: &str, edit: &Edit, format: Format) -> Variant {
        let (width, height) = edit.wanted((1000, 500));
        Variant { key: key.into(), family: family(edit), format, quality: edit.quality(), width, height }
    }

    #[test]
    fn size_comes_before_quality_and_what_cannot_be_shown_does_not_come() {
        let all = [
            kept("small", &edit(100, 40), Format::Jpeg),
            kept("middle", &edit(400, 40), Format::Jpeg),
            kept("webp", &edit(500, 40), Format::Webp),
            kept("fine", &edit(500, 90), Format::Jpeg),
            kept("large", &edit(1000, 40), Format::Jpeg),
            kept("grey", &Edit { grey: true, ..edit(500, 40) }, Format::Jpeg),
            kept("blurred", &Edit { blur: 2.0, ..edit(500, 40) }, Format::Jpeg),
        ];
        let nearest = |edit: &Edit| Asked::of(edit, (1000, 500)).nearest(&all).map(|variant| variant.key);
        assert_eq!(nearest(&edit(450, 40)).as_deref(), Some("middle"));
        assert_eq!(nearest(&Edit { accepts_webp: true, ..edit(490, 40) }).as_deref(), Some("webp"));
        assert_eq!(nearest(&edit(490, 95)).as_deref(), Some("fine"));
        assert_eq!(nearest(&edit(0, 40)).as_deref(), Some("large"), "as wide as it is");
        assert_eq!(nearest(&edit(2000, 40)).as_deref(), Some("large"), "no original is made larger");
        assert_eq!(nearest(&Edit { grey: true, ..edit(90, 10) }).as_deref(), Some("grey"));
        assert_eq!(nearest(&Edit { format: Some(Format::Png), ..edit(100, 40) }), None);
        assert_eq!(nearest(&Edit { sharpen: 1.0, ..edit(100, 40) }), None);
        let square = |side, mode| Edit {
            resize: Resize { mode, width: side, height: side, ..Resize::default() },
            ..Edit::default()
        };
        let filled = [kept("square", &square(200, Mode::Fill), Format::Jpeg)];
        assert!(Asked::of(&square(150, Mode::Fill), (1000, 500)).nearest(&filled).is_some());
        let wide = Edit { resize: Resize { width: 300, ..square(150, Mode::Fill).resize }, ..Edit::default() };
        assert_eq!(Asked::of(&wide, (1000, 500)).nearest(&filled), None, "another shape");
        assert_eq!(Asked::of(&edit(100, 40), (1000, 500)).nearest(&[]), None);
    }
}
