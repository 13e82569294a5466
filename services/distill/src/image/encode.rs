//! Pixels into files. WebP is written without loss only, so photographs become JPEG; pictures that shine through, or whose
//! original was drawn, become WebP where that is accepted, else PNG.

use image_webp::WebPEncoder;
use jpeg_encoder::{ColorType, Encoder};

use super::edit::flatten;
use super::{Bad, Edit, Format, Picture};

/// # Errors
/// The picture has a size that the format cannot have.
pub fn encode(picture: &Picture, from: Format, edit: &Edit) -> Result<(Format, Vec<u8>), Bad> {
    let lossless = if edit.accepts_webp { Format::Webp } else { Format::Png };
    match edit.format {
        Some(format) => as_(picture, format, edit),
        None if picture.is_clear() => as_(picture, lossless, edit),
        None if matches!(from, Format::Png | Format::Gif) => {
            // Drawn or a photograph: the bytes tell.
            let (drawn, photograph) = (as_(picture, lossless, edit)?, as_(picture, Format::Jpeg, edit)?);
            Ok(if drawn.1.len() <= photograph.1.len() { drawn } else { photograph })
        }
        None => as_(picture, Format::Jpeg, edit),
    }
}

fn as_(picture: &Picture, format: Format, edit: &Edit) -> Result<(Format, Vec<u8>), Bad> {
    let bytes = match format {
        Format::Jpeg if edit.grey => grey_jpeg(picture, edit.quality(), edit.background),
        Format::Jpeg => coloured_jpeg(picture, edit.quality(), edit.background),
        Format::Webp => as_webp(picture),
        Format::Png | Format::Gif => as_png(picture),
    }?;
    Ok((if format == Format::Gif { Format::Png } else { format }, bytes))
}

fn cannot(why: impl std::fmt::Display) -> Bad {
    Bad::Broken(why.to_string())
}

fn sides(picture: &Picture) -> Result<(u16, u16), Bad> {
    let side = |n: u32| u16::try_from(n).map_err(|_| Bad::TooLarge(format!("{n} pixels in a row")));
    Ok((side(picture.width)?, side(picture.height)?))
}

pub fn jpeg(picture: &Picture, quality: u8) -> Result<Vec<u8>, Bad> {
    coloured_jpeg(picture, quality, None)
}

fn coloured_jpeg(picture: &Picture, quality: u8, behind: Option<[u8; 3]>) -> Result<Vec<u8>, Bad> {
    let flat;
    let picture = if picture.is_clear() {
        flat = over(picture, behind);
        &flat
    } else {
        picture
    };
    let (width, height) = sides(picture)?;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_optimized_huffman_tables(true);
    encoder.encode(&picture.rgba, width, height, ColorType::Rgba).map_err(cannot)?;
    Ok(bytes)
}

fn grey_jpeg(picture: &Picture, quality: u8, behind: Option<[u8; 3]>) -> Result<Vec<u8>, Bad> {
    let (width, height) = sides(picture)?;
    let flat = over(picture, behind);
    let luma: Vec<u8> = flat.rgba.iter().step_by(4).copied().collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_optimized_huffman_tables(true);
    encoder.encode(&luma, width, height, ColorType::Luma).map_err(cannot)?;
    Ok(bytes)
}

fn over(picture: &Picture, behind: Option<[u8; 3]>) -> Picture {
    let mut flat = picture.clone();
    flatten(&mut flat, behind.unwrap_or([255; 3]));
    flat
}

/// Without alpha where nothing shines through: fewer bytes.
fn lean(picture: &Picture) -> (bool, Vec<u8>) {
    if picture.is_clear() {
        return (true, picture.rgba.clone());
    }
    (false, picture.rgba.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect())
}

pub fn as_webp(picture: &Picture) -> Result<Vec<u8>, Bad> {
    let (is_clear, pixels) = lean(picture);
    let colour = if is_clear { image_webp::ColorType::Rgba8 } else { image_webp::ColorType::Rgb8 };
    let mut bytes = Vec::new();
    WebPEncoder::new(&mut bytes).encode(&pixels, picture.width, picture.height, colour).map_err(cannot)?;
    Ok(bytes)
}

pub fn as_png(picture: &Picture) -> Result<Vec<u8>, Bad> {
    let (is_clear, pixels) = lean(picture);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, picture.width, picture.height);
    encoder.set_color(if is_clear { png::ColorType::Rgba } else { png::ColorType::Rgb });
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().map_err(cannot)?.write_image_data(&pixels).map_err(cannot)?;
    Ok(bytes)
}
