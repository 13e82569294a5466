//! Pixels into files: WebP where that is accepted, else JPEG, or PNG for what shines through. Of what was drawn is written, too, what
//! it takes without loss: the fewer bytes tell. What writes WebP with loss is C (libwebp), which sees pixels and no file of a stranger.

use image_webp::WebPEncoder;
use jpeg_encoder::{ColorType, Encoder};

use super::edit::flatten;
use super::{Bad, Edit, Format, Picture};

/// # Errors
/// The picture has a size that the format cannot have.
pub fn encode(picture: &Picture, from: Format, edit: &Edit) -> Result<(Format, Vec<u8>), Bad> {
    let (lossy, lossless) = if edit.accepts_webp { (Format::Webp, Format::Webp) } else { (Format::Jpeg, Format::Png) };
    let is_drawn = matches!(from, Format::Png | Format::Gif | Format::Svg);
    match edit.format {
        Some(Format::Webp) if is_drawn => fewer(as_webp(picture)?, Format::Webp, as_(picture, Format::Webp, edit)?),
        Some(format) => as_(picture, format, edit),
        None if picture.is_clear() && !edit.accepts_webp => as_(picture, Format::Png, edit),
        // Drawn or a photograph: the bytes tell.
        None if is_drawn && lossless == Format::Webp => fewer(as_webp(picture)?, lossless, as_(picture, lossy, edit)?),
        None if is_drawn => fewer(as_png(picture)?, lossless, as_(picture, lossy, edit)?),
        None => as_(picture, lossy, edit),
    }
}

fn fewer(drawn: Vec<u8>, format: Format, photograph: (Format, Vec<u8>)) -> Result<(Format, Vec<u8>), Bad> {
    Ok(if drawn.len() <= photograph.1.len() { (format, drawn) } else { photograph })
}

fn as_(picture: &Picture, format: Format, edit: &Edit) -> Result<(Format, Vec<u8>), Bad> {
    let bytes = match format {
        Format::Jpeg if edit.grey => grey_jpeg(picture, edit.quality(), edit.background),
        Format::Jpeg => coloured_jpeg(picture, edit.quality(), edit.background),
        Format::Webp => lossy_webp(picture, edit.quality()),
        Format::Png | Format::Gif | Format::Svg => as_png(picture),
        Format::Avif => avif(picture, edit.quality()),
    }?;
    Ok((if matches!(format, Format::Gif | Format::Svg) { Format::Png } else { format }, bytes))
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
    sides(picture)?;
    written(picture, quality)
}

#[cfg(feature = "turbo")]
use super::turbo::encode as written;

#[cfg(not(feature = "turbo"))]
fn written(picture: &Picture, quality: u8) -> Result<Vec<u8>, Bad> {
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

pub fn lossy_webp(picture: &Picture, quality: u8) -> Result<Vec<u8>, Bad> {
    let (is_clear, pixels) = lean(picture);
    let layout = if is_clear { webp::PixelLayout::Rgba } else { webp::PixelLayout::Rgb };
    let encoder = webp::Encoder::new(&pixels, layout, picture.width, picture.height);
    let file = encoder.encode_simple(false, f32::from(quality.min(100)));
    file.map(|file| file.to_vec()).map_err(|why| cannot(format!("{why:?}")))
}

/// Without loss.
pub fn as_webp(picture: &Picture) -> Result<Vec<u8>, Bad> {
    let (is_clear, pixels) = lean(picture);
    let colour = if is_clear { image_webp::ColorType::Rgba8 } else { image_webp::ColorType::Rgb8 };
    let mut bytes = Vec::new();
    WebPEncoder::new(&mut bytes).encode(&pixels, picture.width, picture.height, colour).map_err(cannot)?;
    Ok(bytes)
}

/// In Rust alone, without the assembler's part of the encoder, on one thread.
#[cfg(feature = "avif")]
fn avif(picture: &Picture, quality: u8) -> Result<Vec<u8>, Bad> {
    /// Of 1 to 10, the quickest: each step below takes about half as long again.
    const SPEED: u8 = 8;
    let pixels: Vec<ravif::RGBA8> =
        picture.rgba.chunks_exact(4).map(|p| ravif::RGBA8::new(p[0], p[1], p[2], p[3])).collect();
    let sides = (picture.width as usize, picture.height as usize);
    let quality = f32::from(quality.clamp(1, 100));
    let encoder = ravif::Encoder::new().with_quality(quality).with_alpha_quality(quality).with_speed(SPEED);
    let made = encoder.with_num_threads(Some(1)).encode_rgba(ravif::Img::new(&pixels[..], sides.0, sides.1));
    made.map(|made| made.avif_file).map_err(cannot)
}

#[cfg(not(feature = "avif"))]
fn avif(_: &Picture, _: u8) -> Result<Vec<u8>, Bad> {
    Err(cannot("AVIF is written by programs that are built with the feature avif"))
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
