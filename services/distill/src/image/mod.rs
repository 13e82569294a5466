//! Pictures made small: bytes of a file and what is wanted of it in, bytes of a file out. Pure computing, for a thread that may
//! be busy; what is fetched, asked and answered is elsewhere.
//!
//! `decode.rs` reads files, and refuses bombs by their headers, `svg.rs` draws; `orient.rs` turns as EXIF says, `colour.rs` brings
//! colours to sRGB;
//! `edit.rs` changes pixels, with `place.rs`, which finds what matters, and `mark.rs`, watermarks; `encode.rs` writes, and
//! `moving.rs` what moves. No metadata is carried over.

mod colour;
pub mod decode;
mod edit;
mod encode;
mod mark;
mod moving;
mod orient;
mod place;
mod svg;
#[cfg(feature = "turbo")]
mod turbo;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use edit::{Crop, Edit, Gravity, Mode, Resize};
pub use encode::{as_png as png, jpeg};
pub use mark::{File, Place, Watermark};
pub use place::Trim;

use crate::limits::{PIXELS_MAX, SMALL_BYTES};

/// What a picture is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Format {
    Jpeg,
    Png,
    Gif,
    Webp,
    /// Out only.
    Avif,
    /// In only.
    Svg,
}

impl Format {
    /// By the first bytes, whatever name or type came with them.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => svg::is_svg(bytes).then_some(Self::Svg),
        }
    }

    pub fn by_mime(kind: &str) -> Option<Self> {
        [Self::Jpeg, Self::Png, Self::Gif, Self::Webp, Self::Avif].into_iter().find(|format| format.mime() == kind)
    }

    pub fn mime(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Avif => "image/avif",
            Self::Svg => "image/svg+xml",
        }
    }
}

/// Pixels with alpha, row by row, four bytes each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    /// Invariant: `width * height * 4` bytes, and neither is 0.
    pub rgba: Vec<u8>,
}

impl Picture {
    /// None if there are not just as many bytes as pixels ask for, or no pixels, or too many.
    pub fn new(width: u32, height: u32, rgba: Vec<u8>) -> Option<Self> {
        let pixels = u64::from(width) * u64::from(height);
        let is_whole = pixels > 0 && pixels <= PIXELS_MAX && rgba.len() as u64 == pixels * 4;
        is_whole.then_some(Self { width, height, rgba })
    }

    pub fn filled(width: u32, height: u32, colour: [u8; 4]) -> Option<Self> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels > PIXELS_MAX {
            return None;
        }
        Self::new(width, height, colour.repeat(pixels as usize))
    }

    /// Whether something shines through.
    pub fn is_clear(&self) -> bool {
        self.rgba.chunks_exact(4).any(|pixel| pixel[3] != 255)
    }
}

/// Why there is no smaller picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bad {
    /// Not a kind that is read.
    Unknown,
    /// It says of itself that it is more than is ever decoded.
    TooLarge(String),
    /// It is not what it says it is.
    Broken(String),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the file is no JPEG, PNG, GIF or WebP, nor a drawing (SVG) of shapes alone"),
            Self::TooLarge(why) => write!(f, "the picture is too large: {why}"),
            Self::Broken(why) => write!(f, "the picture is broken: {why}"),
        }
    }
}

impl std::error::Error for Bad {}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// A new file.
    New { format: Format, bytes: Vec<u8> },
    /// The original is the best answer there is: it is tiny, or what was made of it is no smaller.
    Unchanged,
}

/// Makes of a file what is wanted. The result is never larger than the original, unless it had to be another kind of file or
/// a larger picture.
///
/// # Errors
/// It cannot be decoded.
pub fn distill(original: &[u8], edit: &Edit) -> Result<Made, Bad> {
    if original.len() < SMALL_BYTES && !edit.must_be_made() {
        return Ok(Made::Unchanged);
    }
    let from = Format::of(original).ok_or(Bad::Unknown)?;
    let has_size = edit.resize.width > 0 || edit.resize.height > 0;
    if from == Format::Svg && !edit.must_be_made() && !has_size {
        // At which size it is shown, only its page knows.
        return Ok(Made::Unchanged);
    }
    let (format, bytes) = match moved(original, from, edit)? {
        Some(bytes) => (Format::Webp, bytes),
        None => {
            // A drawing is sharp at any size.
            let least = edit.resize.width.max(edit.resize.height);
            let picture =
                if from == Format::Svg { svg::draw(original, least) } else { decode::decode_for(original, edit) };
            encode::encode(&edit.apply(picture?)?, from, edit)?
        }
    };
    if bytes.len() >= original.len() && !edit.must_be_made() {
        return Ok(Made::Unchanged);
    }
    Ok(Made::New { format, bytes })
}

/// What moves, where it can go on moving.
fn moved(original: &[u8], from: Format, edit: &Edit) -> Result<Option<Vec<u8>>, Bad> {
    let may_move = edit.format.map_or(edit.accepts_webp, |format| format == Format::Webp);
    if may_move && matches!(from, Format::Gif | Format::Webp) {
        moving::distill(original, from, edit)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::encode::{as_png, as_webp};
    use crate::site::photograph;

    fn size(bytes: &[u8]) -> (u32, u32) {
        let picture = decode::decode(bytes).unwrap();
        (picture.width, picture.height)
    }

    fn made(original: &[u8], edit: &Edit) -> (Format, Vec<u8>) {
        match distill(original, edit).unwrap() {
            Made::New { format, bytes } => (format, bytes),
            Made::Unchanged => panic!("unchanged: {edit:?}"),
        }
    }

    fn samples() -> Vec<Vec<u8>> {
        let picture = photograph(7, 160, 120);
        let clear = Picture {
            rgba: picture.rgba.chunks(4).flat_map(|p| [p[0], p[1], p[2], p[0]]).collect(),
            ..picture.clone()
        };
        vec![jpeg(&picture, 90).unwrap(), as_png(&clear).unwrap(), as_webp(&clear).unwrap(), moving(2)]
    }

    /// Frames of 30 by 20 pixels; the first one is blue, the others are red corners.
    fn moving(frames: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 30, 20, &[0, 0, 255, 255, 0, 0]).unwrap();
        for nth in 0..frames {
            let (width, height) = if nth == 0 { (30, 20) } else { (5, 5) };
            let buffer = vec![u8::from(nth > 0); usize::from(width * height)].into();
            encoder.write_frame(&gif::Frame { width, height, buffer, ..gif::Frame::default() }).unwrap();
        }
        drop(encoder);
        bytes
    }

    #[test]
    fn each_way_to_resize_has_its_size() {
        let original = jpeg(&photograph(1, 400, 200), 95).unwrap();
        let cases = [
            (Mode::Fit, 100, 100, (100, 50)),
            (Mode::Fit, 100, 0, (100, 50)),
            (Mode::Fit, 0, 20, (40, 20)),
            (Mode::Fill, 100, 100, (100, 100)),
            (Mode::FillDown, 600, 600, (200, 200)),
            (Mode::Force, 30, 90, (30, 90)),
            (Mode::Auto, 100, 20, (100, 20)),
            (Mode::Auto, 20, 100, (20, 10)),
            (Mode::Fit, 4000, 4000, (400, 200)),
        ];
        for (mode, width, height, expected) in cases {
            let resize = Resize { mode, width, height, ..Resize::default() };
            let edit = Edit { resize, quality: Some(50), ..Edit::default() };
            assert_eq!(size(&made(&original, &edit).1), expected, "{mode:?} {width}x{height}");
        }
        let larger = Resize { mode: Mode::Fit, width: 800, height: 0, enlarge: true, extend: false };
        assert_eq!(size(&made(&original, &Edit { resize: larger, ..Edit::default() }).1), (800, 400));
        let padded = Resize { mode: Mode::Fit, width: 100, height: 100, enlarge: false, extend: true };
        let edit = Edit { resize: padded, format: Some(Format::Png), background: Some([1, 2, 3]), ..Edit::default() };
        let picture = decode::decode(&made(&original, &edit).1).unwrap();
        assert_eq!((picture.width, picture.height), (100, 100));
        assert_eq!((&picture.rgba[..4], &picture.rgba[39_996..]), (&[1, 2, 3, 255][..], &[1, 2, 3, 255][..]));
    }

    #[test]
    fn a_drawing_is_drawn_for_who_says_how_large_or_as_what() {
        let shapes: String =
            (0..40).map(|at| format!("<rect x=\"{at}\" width=\"9\" height=\"20\" fill=\"#a0{at:02}00\"/>")).collect();
        let original =
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"20\">{shapes}</svg>").into_bytes();
        assert_eq!(distill(&original, &Edit::default()), Ok(Made::Unchanged));
        let (format, bytes) = made(&original, &Edit { format: Some(Format::Png), ..Edit::default() });
        assert_eq!((format, size(&bytes)), (Format::Png, (40, 20)));
        let resize = Resize { width: 400, height: 400, ..Resize::default() };
        let (format, bytes) =
            made(&original, &Edit { resize, accepts_webp: true, format: Some(Format::Webp), ..Edit::default() });
        assert_eq!((format, size(&bytes)), (Format::Webp, (400, 200)));
        let text = String::from_utf8(original).unwrap().replace("</svg>", "<text>a</text></svg>");
        assert_eq!(distill(text.as_bytes(), &Edit { resize, ..Edit::default() }), Err(Bad::Unknown));
    }

    #[test]
    fn a_crop_takes_the_side_that_gravity_names() {
        let mut rgba = [255, 0, 0, 255].repeat(50 * 10);
        for row in rgba.chunks_exact_mut(200) {
            row[100..].copy_from_slice(&[0, 0, 255, 255].repeat(25));
        }
        let original = as_png(&Picture::new(50, 10, rgba).unwrap()).unwrap();
        for (gravity, colour) in
            [(Gravity::Towards(0, 50), [255, 0, 0, 255]), (Gravity::Towards(100, 50), [0, 0, 255, 255])]
        {
            let crop = Some(Crop { width: 10, height: 10, gravity });
            let edit = Edit { crop, format: Some(Format::Png), ..Edit::default() };
            let picture = decode::decode(&made(&original, &edit).1).unwrap();
            assert_eq!((picture.width, picture.height, &picture.rgba[..4]), (10, 10, &colour[..]));
        }
    }

    #[test]
    fn less_quality_is_fewer_bytes_and_grey_is_grey() {
        let original = jpeg(&photograph(2, 320, 240), 90).unwrap();
        let at = |quality| made(&original, &Edit { quality: Some(quality), ..Edit::default() }).1.len();
        assert!(at(60) > at(25) && at(25) > at(5) && at(25) * 2 < original.len(), "{} {} {}", at(60), at(25), at(5));
        let grey =
            decode::decode(&made(&original, &Edit { grey: true, quality: Some(40), ..Edit::default() }).1).unwrap();
        assert!(grey.rgba.chunks(4).all(|p| p[0] == p[1] && p[1] == p[2]));
    }

    #[test]
    fn blur_takes_detail_and_sharpening_gives_it() {
        let detail =
            |p: &Picture| -> u64 { p.rgba.windows(5).step_by(4).map(|w| u64::from(w[0].abs_diff(w[4]))).sum() };
        let original = photograph(3, 100, 80);
        let after = |edit: Edit| detail(&edit.apply(original.clone()).unwrap());
        let plain = detail(&original);
        assert!(after(Edit { blur: 3.0, ..Edit::default() }) < plain);
        assert!(after(Edit { sharpen: 1.0, ..Edit::default() }) > plain);
        // A field of one colour stays as it is, at its edges too.
        let flat = Picture::filled(9, 7, [10, 200, 30, 255]).unwrap();
        let edit = Edit { blur: 2.0, sharpen: 2.0, ..Edit::default() };
        assert_eq!(edit.apply(flat.clone()).unwrap(), flat);
    }

    #[test]
    fn what_is_no_smaller_stays_the_original_unless_it_had_to_be_made() {
        let original = jpeg(&photograph(4, 200, 150), 20).unwrap();
        let best = Edit { quality: Some(100), ..Edit::default() };
        assert_eq!(distill(&original, &best), Ok(Made::Unchanged));
        let png = Edit { format: Some(Format::Png), ..best };
        assert_eq!(made(&original, &png).0, Format::Png);
        // Under 1 KB nothing is worth the while.
        assert_eq!(distill(&moving(2), &Edit::default()), Ok(Made::Unchanged));
    }

    #[test]
    fn formats_are_those_that_were_asked_for_or_are_accepted() {
        let samples = samples();
        for (original, format) in samples.iter().zip([Format::Jpeg, Format::Png, Format::Webp, Format::Gif]) {
            assert_eq!(Format::of(original), Some(format));
        }
        for format in [Format::Jpeg, Format::Png, Format::Webp] {
            for original in &samples {
                let (as_, bytes) = made(original, &Edit { format: Some(format), ..Edit::default() });
                assert_eq!((as_, Format::of(&bytes)), (format, Some(format)));
            }
        }
        // What shines through stays so.
        let smaller = Resize { mode: Mode::Fit, width: 60, height: 0, ..Resize::default() };
        let edit = Edit { resize: smaller, ..Edit::default() };
        assert_eq!(made(&samples[1], &edit).0, Format::Png);
        assert_eq!(made(&samples[1], &Edit { accepts_webp: true, ..edit.clone() }).0, Format::Webp);
        assert_eq!(made(&samples[0], &edit).0, Format::Jpeg);
        assert_eq!(made(&samples[0], &Edit { accepts_webp: true, ..edit }).0, Format::Webp);
    }

    #[test]
    fn webp_with_loss_is_smaller_than_jpeg_and_hardly_worse() {
        let picture = photograph(8, 320, 240);
        let original = jpeg(&picture, 92).unwrap();
        let edit = Edit { quality: Some(60), ..Edit::default() };
        let (_, as_jpeg) = made(&original, &edit);
        let (format, as_webp) = made(&original, &Edit { accepts_webp: true, ..edit });
        assert_eq!(format, Format::Webp);
        assert!(as_webp.len() < as_jpeg.len(), "{} of {}", as_webp.len(), as_jpeg.len());
        let far = |bytes: &[u8]| -> f64 {
            let read = decode::decode(bytes).unwrap();
            let squares = read.rgba.iter().zip(&picture.rgba).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
            (squares.sum::<f64>() / picture.rgba.len() as f64).sqrt()
        };
        assert!(far(&as_webp) < 1.4 * far(&as_jpeg), "{} and {}", far(&as_webp), far(&as_jpeg));
        // What is drawn stays sharp, and is smaller so.
        let mut drawn = Picture::filled(200, 200, [255; 4]).unwrap();
        drawn.rgba.chunks_exact_mut(4).filter(|_| true).enumerate().for_each(|(n, p)| {
            if n % 200 < 70 {
                p[..3].fill(20)
            }
        });
        let original = encode::as_png(&drawn).unwrap();
        let edit = Edit { format: Some(Format::Webp), ..Edit::default() };
        assert_eq!(decode::decode(&made(&original, &edit).1).unwrap(), drawn);
    }

    #[test]
    fn colours_of_a_profile_come_as_srgb() {
        let profile = moxcms::ColorProfile::new_display_p3().encode().unwrap();
        let plain = jpeg(&Picture::filled(64, 64, [200, 100, 50, 255]).unwrap(), 95).unwrap();
        let length = (profile.len() as u16 + 16).to_be_bytes();
        let tagged = [&plain[..2], &[0xff, 0xe2], &length, b"ICC_PROFILE\0\x01\x01", &profile, &plain[2..]].concat();
        let mut info = png::Info::with_size(2, 2);
        info.color_type = png::ColorType::Rgb;
        info.bit_depth = png::BitDepth::Eight;
        info.icc_profile = Some(profile.into());
        let mut drawn = Vec::new();
        let encoder = png::Encoder::with_info(&mut drawn, info).unwrap();
        encoder.write_header().unwrap().write_image_data(&[200, 100, 50].repeat(4)).unwrap();
        let first = |bytes: &[u8]| decode::decode(bytes).unwrap().rgba[..3].to_vec();
        assert!(first(&plain)[0] < 205);
        for (name, bytes) in [("jpeg", tagged), ("png", drawn)] {
            let colour = first(&bytes);
            assert!(colour[0] > 205 && colour[2] < 46, "{name}: {colour:?}");
        }
    }

    #[test]
    fn the_first_frame_of_what_moves_is_taken() {
        assert_eq!(decode::decode(&moving(3)).unwrap(), Picture::filled(30, 20, [0, 0, 255, 255]).unwrap());
    }

    #[test]
    fn orientation_is_applied_and_gone() {
        let plain = jpeg(&photograph(5, 80, 40), 90).unwrap();
        for orientation in 1..=8_u8 {
            let exif = [
                b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(),
                &[orientation, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat();
            let length = (exif.len() as u16 + 2).to_be_bytes();
            let turned = [&plain[..2], &[0xff, 0xe1], &length, &exif, &plain[2..]].concat();
            let expected = if orientation > 4 { (40, 80) } else { (80, 40) };
            assert_eq!(size(&turned), expected, "{orientation}");
            let (_, bytes) = made(&turned, &Edit { quality: Some(30), ..Edit::default() });
            assert_eq!(size(&bytes), expected);
            assert!(!bytes.windows(4).any(|w| w == b"Exif"));
        }
    }

    #[test]
    fn bombs_are_refused_by_their_headers() {
        let mut png = as_png(&Picture::filled(1, 1, [0; 4]).unwrap()).unwrap();
        png[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x40, 0]);
        let mut gif = moving(1);
        gif[6..10].fill(255);
        let many = moving(201);
        let mut tall = jpeg(&photograph(1, 64, 64), 50).unwrap();
        let at = tall.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        tall[at + 5..at + 9].copy_from_slice(&[0x80, 0, 0x80, 0]);
        let webp =
            [b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".as_slice(), &[255, 255, 0, 255, 255, 0], &[0; 8]].concat();
        for (name, bytes) in [("png", png), ("gif", gif), ("frames", many), ("jpeg", tall)] {
            let end = decode::decode(&bytes);
            // A checksum that no longer holds may be found first.
            assert!(matches!(end, Err(Bad::TooLarge(_))) || (name == "png" && end.is_err()), "{name}: {end:?}");
        }
        assert!(decode::decode(&webp).is_err());
    }

    #[test]
    fn nothing_that_comes_makes_it_panic() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let trim = Trim { threshold: 10.0, colour: None, is_even: (false, true) };
        let resize = Resize { mode: Mode::Fill, width: 20, height: 20, ..Resize::default() };
        let edit = Edit { resize, gravity: Gravity::Smart, ..Edit::default() };
        for original in samples() {
            for nth in 0..150 {
                let edit = Edit { accepts_webp: nth % 2 == 0, trim: (nth % 3 == 0).then_some(trim), ..edit.clone() };
                let mut bytes = original.clone();
                for _ in 0..1 + next() % 12 {
                    let at = next() as usize % bytes.len();
                    bytes[at] = next() as u8;
                }
                // Heads are changed oftener than the rest.
                let at = next() as usize % bytes.len().min(64);
                bytes[at] ^= 1 << (next() % 8);
                bytes.truncate(1 + next() as usize % (bytes.len() * 2));
                let _ = distill(&bytes, &edit);
            }
            for length in 0..original.len().min(400) {
                let _ = decode::decode(&original[..length]);
            }
        }
        for _ in 0..300 {
            let noise: Vec<u8> = (0..next() % 300).map(|_| next() as u8).collect();
            assert!(distill(&noise, &Edit { format: Some(Format::Png), ..edit.clone() }).is_err());
        }
    }
}
