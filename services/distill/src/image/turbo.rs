//! JPEG by libjpeg-turbo, with the feature `turbo`: decoded at a half, a quarter or an eighth where no more is wanted, which is most of what
//! it gains. It is C that reads strangers' files; what their headers say has been looked at before (`decode.rs`).

use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, ScalingFactor, Subsamp};

use super::{Bad, Picture};
use crate::limits::JPEG_SCANS_MAX;

fn cannot(why: impl std::fmt::Display) -> Bad {
    Bad::Broken(why.to_string())
}

/// The factor by which a picture may be smaller at once, if so much is wanted of it. Sides are divided without a rest, so its shape stays.
fn scale((width, height): (usize, usize), wanted: (u32, u32)) -> ScalingFactor {
    let fits = |by: &usize| {
        let is_whole = width.is_multiple_of(*by) && height.is_multiple_of(*by);
        is_whole && width / by >= wanted.0 as usize && height / by >= wanted.1 as usize
    };
    [8, 4, 2].into_iter().find(fits).map_or(ScalingFactor::ONE, |by| ScalingFactor::new(1, by))
}

/// Its width, height and pixels with alpha; it has as many as its header said to who read it first.
///
/// # Errors
/// It is broken.
pub fn decode(bytes: &[u8], have: (u32, u32), wanted: (u32, u32)) -> Result<(u32, u32, Vec<u8>), Bad> {
    let mut decoder = Decompressor::new().map_err(cannot)?;
    decoder.set_scan_limit(JPEG_SCANS_MAX as u32).map_err(cannot)?;
    let head = decoder.read_header(bytes).map_err(cannot)?;
    if (head.width, head.height) != (have.0 as usize, have.1 as usize) {
        return Err(cannot("it says two sizes"));
    }
    let scale = scale((head.width, head.height), wanted);
    decoder.set_scaling_factor(scale).map_err(cannot)?;
    let (width, height) = (scale.scale(head.width), scale.scale(head.height));
    let mut pixels = vec![0; width * height * 4];
    let image = Image { pixels: &mut pixels[..], width, pitch: width * 4, height, format: PixelFormat::RGBA };
    decoder.decompress(bytes, image).map_err(cannot)?;
    Ok((width as u32, height as u32, pixels))
}

/// # Errors
/// The picture has a size that no JPEG has.
pub fn encode(picture: &Picture, quality: u8) -> Result<Vec<u8>, Bad> {
    let mut encoder = Compressor::new().map_err(cannot)?;
    encoder.set_quality(i32::from(quality)).map_err(cannot)?;
    encoder.set_subsamp(Subsamp::Sub2x2).map_err(cannot)?;
    encoder.set_optimize(true).map_err(cannot)?;
    let (width, height) = (picture.width as usize, picture.height as usize);
    let image = Image { pixels: &picture.rgba[..], width, pitch: width * 4, height, format: PixelFormat::RGBA };
    encoder.compress_to_vec(image).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Edit, Format, Made, Mode, Resize, decode, distill};
    use crate::site::photograph;

    #[test]
    fn what_it_makes_is_the_same_picture() {
        let picture = photograph(5, 320, 240);
        let file = encode(&picture, 90).unwrap();
        let (width, height, half) = super::decode(&file, (320, 240), (160, 100)).unwrap();
        assert_eq!((width, height), (160, 120));
        // Each pixel is about the mean of four.
        let mean = |x: usize, y: usize, colour: usize| -> i32 {
            let at = |x: usize, y: usize| i32::from(picture.rgba[(y * 320 + x) * 4 + colour]);
            (at(2 * x, 2 * y) + at(2 * x + 1, 2 * y) + at(2 * x, 2 * y + 1) + at(2 * x + 1, 2 * y + 1)) / 4
        };
        let off = |x: usize, y: usize, c: usize| (i32::from(half[(y * 160 + x) * 4 + c]) - mean(x, y, c)).abs();
        let all: i32 = (0..120).flat_map(|y| (0..160).map(move |x| (x, y))).map(|(x, y)| off(x, y, 1)).sum();
        assert!(all / (160 * 120) < 8, "{}", all / (160 * 120));

        let resize = Resize { mode: Mode::Fit, width: 80, height: 60, ..Resize::default() };
        let made = distill(&file, &Edit { resize, format: Some(Format::Jpeg), ..Edit::default() }).unwrap();
        let Made::New { bytes, .. } = made else { panic!("it is smaller") };
        let small = decode::decode(&bytes).unwrap();
        assert_eq!((small.width, small.height), (80, 60));
        for length in 0..file.len().min(2_000) {
            let _ = super::decode(&file[..length], (320, 240), (1, 1));
        }
        assert!(super::decode(&file, (320, 241), (1, 1)).is_err());
    }

    #[test]
    fn it_is_smaller_at_once_where_its_shape_stays_and_enough_is_left() {
        for (have, wanted, by) in [
            ((320, 240), (160, 120), 2),
            ((320, 240), (161, 1), 1),
            ((320, 240), (40, 30), 8),
            ((322, 240), (10, 10), 2),
            ((321, 240), (10, 10), 1),
            ((320, 240), (320, 240), 1),
        ] {
            assert_eq!(scale(have, wanted), ScalingFactor::new(1, by), "{have:?} {wanted:?}");
        }
    }
}
