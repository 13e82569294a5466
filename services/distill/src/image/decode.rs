//! Files into pixels. The header is read first: what is too large is refused before anything is laid out for it.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions as GifOptions, MemoryLimit};
use image_webp::WebPDecoder;
use png::{ColorType, Limits, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::colour::in_srgb;
use super::orient::{self, orientation};
use super::{Bad, Edit, Format, Picture};
use crate::limits::{DECODE_BYTES_MAX, FRAMES_MAX, JPEG_SCANS_MAX, PIXELS_MAX, PNG_BYTES_MAX, SIDE_MAX};

/// The picture of a file, or the first one of those that move, upright and in sRGB.
///
/// # Errors
/// It is no picture, a broken one, or larger than any that is decoded.
pub fn decode(bytes: &[u8]) -> Result<Picture, Bad> {
    match Format::of(bytes).ok_or(Bad::Unknown)? {
        Format::Jpeg => jpeg(bytes, None),
        Format::Png => png(bytes),
        Format::Gif => gif(bytes),
        Format::Webp => webp(bytes),
        Format::Avif | Format::Svg => Err(Bad::Unknown),
    }
}

/// The picture for who wants this of it: with fewer pixels than the file has, if those are enough.
///
/// # Errors
/// As [`decode`].
pub fn decode_for(bytes: &[u8], edit: &Edit) -> Result<Picture, Bad> {
    match Format::of(bytes) {
        Some(Format::Jpeg) => jpeg(bytes, Some(edit)),
        _ => decode(bytes),
    }
}

/// Width and height, by the header alone.
///
/// # Errors
/// As [`decode`].
pub fn measure(bytes: &[u8]) -> Result<(u32, u32), Bad> {
    let (width, height) = match Format::of(bytes).ok_or(Bad::Unknown)? {
        Format::Jpeg => {
            let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
            decoder.decode_headers().map_err(broken)?;
            decoder
                .info()
                .map(|info| (u32::from(info.width), u32::from(info.height)))
                .ok_or_else(|| broken("it has no header"))?
        }
        Format::Png => {
            let side = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes);
            side(16).zip(side(20)).ok_or_else(|| broken("it has no header"))?
        }
        Format::Gif => {
            let side = |at: usize| {
                bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes).map(u32::from)
            };
            side(6).zip(side(8)).ok_or_else(|| broken("it has no header"))?
        }
        Format::Webp => WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?.dimensions(),
        Format::Avif | Format::Svg => return Err(Bad::Unknown),
    };
    check(width, height, 1)?;
    Ok((width, height))
}

pub fn broken(why: impl std::fmt::Display) -> Bad {
    Bad::Broken(why.to_string())
}

fn whole(width: u32, height: u32, rgba: Vec<u8>) -> Result<Picture, Bad> {
    Picture::new(width, height, rgba).ok_or_else(|| broken("it has not as many pixels as it says"))
}

pub fn check(width: u32, height: u32, frames: u32) -> Result<(), Bad> {
    if width == 0 || height == 0 {
        return Err(broken("it has no pixels"));
    }
    if u64::from(width) * u64::from(height) > PIXELS_MAX || width.max(height) > SIDE_MAX {
        return Err(Bad::TooLarge(format!("{width} by {height} pixels")));
    }
    if frames > FRAMES_MAX {
        return Err(Bad::TooLarge(format!("more than {FRAMES_MAX} frames")));
    }
    Ok(())
}

fn jpeg(bytes: &[u8], edit: Option<&Edit>) -> Result<Picture, Bad> {
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::default().set_max_width(side).set_max_height(side);
    let options = options.jpeg_set_max_scans(JPEG_SCANS_MAX).jpeg_set_out_colorspace(ColorSpace::RGBA);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(broken)?;
    let info = decoder.info().ok_or_else(|| broken("it has no header"))?;
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    check(width, height, 1)?;
    let out = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => ColorSpace::Luma,
        Some(ColorSpace::CMYK | ColorSpace::YCCK) => ColorSpace::RGB,
        _ => ColorSpace::RGBA,
    };
    let orientation = decoder.exif().map_or(1, |exif| orientation(exif));
    #[cfg(feature = "turbo")]
    if out == ColorSpace::RGBA {
        // Where it is cut or turned first, how much of it is wanted is not known yet.
        let is_whole =
            |edit: &&Edit| edit.crop.is_none() && edit.trim.is_none() && edit.rotate == 0 && orientation == 1;
        let wanted = edit.filter(is_whole).map_or((width, height), |edit| edit.wanted((width, height)));
        let profile = decoder.icc_profile();
        let (width, height, pixels) = super::turbo::decode(bytes, (width, height), wanted)?;
        return Ok(orient::upright(in_srgb(whole(width, height, pixels)?, profile.as_deref()), orientation));
    }
    // Else all of it is decoded, whatever is wanted.
    let _ = edit;
    decoder.set_options(options.jpeg_set_out_colorspace(out));
    let pixels = decoder.decode().map_err(broken)?;
    let rgba = match out {
        ColorSpace::Luma => pixels.iter().flat_map(|&grey| [grey, grey, grey, 255]).collect(),
        ColorSpace::RGB => with_alpha(&pixels),
        _ => pixels,
    };
    // Of others the colours are not what the profile speaks of: they have become RGB on the way.
    let profile = if out == ColorSpace::RGBA { decoder.icc_profile() } else { None };
    let picture = in_srgb(whole(width, height, rgba)?, profile.as_deref());
    Ok(orient::upright(picture, orientation))
}

fn with_alpha(rgb: &[u8]) -> Vec<u8> {
    rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect()
}

fn png(bytes: &[u8]) -> Result<Picture, Bad> {
    let limits = Limits { bytes: PNG_BYTES_MAX };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let head = decoder.read_header_info().map_err(broken)?;
    check(head.width, head.height, 1)?;
    let mut reader = decoder.read_info().map_err(broken)?;
    let info = reader.info();
    let (width, height) = (info.width, info.height);
    let is_coloured = !matches!(info.color_type, ColorType::Grayscale | ColorType::GrayscaleAlpha);
    check(width, height, info.animation_control.map_or(1, |animation| animation.num_frames))?;
    let orientation = info.exif_metadata.as_ref().map_or(1, |exif| orientation(exif));
    let profile = info.icc_profile.as_ref().filter(|_| is_coloured).map(|profile| profile.to_vec());
    let size = reader.output_buffer_size().filter(|size| *size <= DECODE_BYTES_MAX);
    let mut pixels = vec![0; size.ok_or_else(|| Bad::TooLarge("its pixels do not fit".into()))?];
    let frame = reader.next_frame(&mut pixels).map_err(broken)?;
    pixels.truncate(frame.buffer_size());
    if (frame.width, frame.height) != (width, height) {
        return Err(broken("its first frame is only a part of it"));
    }
    let rgba = match frame.color_type {
        ColorType::Rgba => pixels,
        ColorType::Rgb => with_alpha(&pixels),
        ColorType::Grayscale => pixels.iter().flat_map(|&grey| [grey, grey, grey, 255]).collect(),
        ColorType::GrayscaleAlpha => pixels.chunks_exact(2).flat_map(|p| [p[0], p[0], p[0], p[1]]).collect(),
        ColorType::Indexed => return Err(broken("its colours were not looked up")),
    };
    Ok(orient::upright(in_srgb(whole(width, height, rgba)?, profile.as_deref()), orientation))
}

/// What the frames of a GIF say of themselves.
pub struct GifHead {
    pub width: u32,
    pub height: u32,
    pub frames: u32,
    /// Of all frames, each as large as the screen or larger.
    pub pixels: u64,
}

/// # Errors
/// It is none, or more than is decoded.
pub fn gif_head(bytes: &[u8]) -> Result<GifHead, Bad> {
    let mut options = GifOptions::new();
    options.skip_frame_decoding(true);
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(broken)?;
    let (width, height) = (u32::from(decoder.width()), u32::from(decoder.height()));
    check(width, height, 1)?;
    let screen = u64::from(width) * u64::from(height);
    let (mut frames, mut pixels) = (0, 0);
    // What is broken after the first frame is of no matter.
    while frames <= FRAMES_MAX
        && let Ok(Some(frame)) = decoder.next_frame_info()
    {
        frames += 1;
        pixels += screen.max(u64::from(frame.width) * u64::from(frame.height));
    }
    check(width, height, frames)?;
    Ok(GifHead { width, height, frames, pixels })
}

fn gif(bytes: &[u8]) -> Result<Picture, Bad> {
    let GifHead { width, height, .. } = gif_head(bytes)?;
    let mut options = GifOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    if let Some(most) = std::num::NonZeroU64::new(DECODE_BYTES_MAX as u64) {
        options.set_memory_limit(MemoryLimit::Bytes(most));
    }
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(broken)?;
    let frame = decoder.read_next_frame().map_err(broken)?.ok_or_else(|| broken("it has no frame"))?;
    let (across, down) = (usize::from(frame.width), usize::from(frame.height));
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (screen_across, screen_down) = (width as usize, height as usize);
    if frame.buffer.len() != across * down * 4 {
        return Err(broken("its first frame is not whole"));
    }
    if (left, top, across, down) == (0, 0, screen_across, screen_down) {
        return whole(width, height, frame.buffer.to_vec());
    }
    let mut rgba = vec![0; screen_across * screen_down * 4];
    let shown = across.min(screen_across.saturating_sub(left)) * 4;
    for row in 0..down.min(screen_down.saturating_sub(top)) {
        let (from, to) = (row * across * 4, ((top + row) * screen_across + left) * 4);
        if shown > 0 {
            rgba[to..to + shown].copy_from_slice(&frame.buffer[from..from + shown]);
        }
    }
    whole(width, height, rgba)
}

fn webp(bytes: &[u8]) -> Result<Picture, Bad> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    let (width, height) = decoder.dimensions();
    check(width, height, decoder.num_frames())?;
    decoder.set_memory_limit(DECODE_BYTES_MAX);
    let profile = decoder.icc_profile().ok().flatten();
    let orientation = decoder.exif_metadata().ok().flatten().map_or(1, |exif| orientation(&exif));
    let size = decoder.output_buffer_size().filter(|size| *size <= DECODE_BYTES_MAX);
    let mut pixels = vec![0; size.ok_or_else(|| Bad::TooLarge("its pixels do not fit".into()))?];
    decoder.read_image(&mut pixels).map_err(broken)?;
    let rgba = if decoder.has_alpha() { pixels } else { with_alpha(&pixels) };
    let picture = in_srgb(whole(width, height, rgba)?, profile.as_deref());
    Ok(orient::upright(picture, orientation))
}
