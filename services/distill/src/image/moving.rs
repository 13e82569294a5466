//! Pictures that move: the frames of a GIF or a WebP, each as it is seen, into one WebP that moves. A frame is written where it differs
//! from the one before; no more than two of them are in memory.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions as GifOptions, DisposalMethod, MemoryLimit, Repeat};
use image_webp::{LoopCount, WebPDecoder};

use super::colour::ToSrgb;
use super::decode::{broken, check, gif_head};
use super::edit::{Held, cut};
use super::{Bad, Edit, Format, Picture, encode};
use crate::limits::{DECODE_BYTES_MAX, MOVING_MADE_PIXELS_MAX, MOVING_PIXELS_MAX};

/// A frame and for how many milliseconds it is seen.
type See<'a> = dyn FnMut(Picture, u32) -> Result<(), Bad> + 'a;

/// A GIF that says less than this means "as fast as you like", and is shown so by browsers.
const SHORTEST_MS: u32 = 20;
const USUAL_MS: u32 = 100;

/// None: it does not move, or there is too much of it to be kept moving.
///
/// # Errors
/// It is larger than any that is decoded, or has not even one frame.
pub fn distill(original: &[u8], from: Format, edit: &Edit) -> Result<Option<Vec<u8>>, Bad> {
    let mut film = Film::default();
    let mut held = Held::default();
    let count = match from {
        Format::Gif => gif_head(original)?.frames,
        Format::Webp => frames_of_webp(original)?,
        Format::Jpeg | Format::Png | Format::Avif | Format::Svg => 1,
    };
    if count < 2 {
        return Ok(None);
    }
    let mut is_too_much = false;
    let mut see = |frame: Picture, ms: u32| {
        let made = edit.apply_as(frame, &mut held)?;
        if u64::from(made.width) * u64::from(made.height) * u64::from(count) > MOVING_MADE_PIXELS_MAX {
            is_too_much = true;
            return Err(Bad::TooLarge("it moves too much".into()));
        }
        film.add(made, ms, edit.quality())
    };
    let seen = match from {
        Format::Gif => each_of_gif(original, &mut see),
        _ => each_of_webp(original, &mut see),
    };
    if is_too_much {
        return Ok(None);
    }
    match seen {
        Ok(Some(plays)) => Ok(film.end(plays)),
        Ok(None) => Ok(None),
        Err(bad) => Err(bad),
    }
}

fn frames_of_webp(original: &[u8]) -> Result<u32, Bad> {
    let decoder = WebPDecoder::new(Cursor::new(original)).map_err(broken)?;
    Ok(if decoder.is_animated() { decoder.num_frames() } else { 1 })
}

/// How often it plays, 0 for ever. None: it is too much.
fn each_of_gif(original: &[u8], see: &mut See<'_>) -> Result<Option<u16>, Bad> {
    let head = gif_head(original)?;
    if head.pixels > MOVING_PIXELS_MAX {
        return Ok(None);
    }
    let mut options = GifOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    if let Some(most) = std::num::NonZeroU64::new(DECODE_BYTES_MAX as u64) {
        options.set_memory_limit(MemoryLimit::Bytes(most));
    }
    let mut decoder = options.read_info(Cursor::new(original)).map_err(broken)?;
    let mut shown = Picture::filled(head.width, head.height, [0; 4]).ok_or_else(|| broken("it has no pixels"))?;
    let mut has_any = false;
    loop {
        let frame = match decoder.read_next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            // What was seen until it broke is what there is.
            Err(_) if has_any => break,
            Err(error) => return Err(broken(error)),
        };
        let size = (u32::from(frame.width), u32::from(frame.height));
        let at = (u32::from(frame.left), u32::from(frame.top));
        if frame.buffer.len() as u64 != u64::from(size.0) * u64::from(size.1) * 4 {
            if has_any {
                break;
            }
            return Err(broken("its first frame is not whole"));
        }
        let before = (frame.dispose == DisposalMethod::Previous).then(|| shown.clone());
        over(&mut shown, at, size, |to, from| {
            let pixel = &frame.buffer[from..from + 4];
            if pixel[3] != 0 {
                to.copy_from_slice(pixel);
            }
        });
        let ms = u32::from(frame.delay) * 10;
        see(shown.clone(), if ms < SHORTEST_MS { USUAL_MS } else { ms })?;
        has_any = true;
        match (frame.dispose, before) {
            (DisposalMethod::Background, _) => over(&mut shown, at, size, |to, _| to.fill(0)),
            (_, Some(before)) => shown = before,
            _ => (),
        }
    }
    if !has_any {
        return Err(broken("it has no frame"));
    }
    Ok(Some(match decoder.repeat() {
        Repeat::Infinite => 0,
        Repeat::Finite(again) => again.saturating_add(1),
    }))
}

/// Each pixel of a part, as far as it lies in the picture, with where it is in the part's own bytes.
fn over(picture: &mut Picture, at: (u32, u32), size: (u32, u32), mut put: impl FnMut(&mut [u8], usize)) {
    let (width, left, across) = (picture.width as usize, at.0 as usize, size.0 as usize);
    let shown = across.min(width.saturating_sub(left));
    for row in 0..size.1.min(picture.height.saturating_sub(at.1)) as usize {
        let to = ((at.1 as usize + row) * width + left) * 4;
        for nth in 0..shown {
            put(&mut picture.rgba[to + nth * 4..to + nth * 4 + 4], (row * across + nth) * 4);
        }
    }
}

fn each_of_webp(original: &[u8], see: &mut See<'_>) -> Result<Option<u16>, Bad> {
    let mut decoder = WebPDecoder::new(Cursor::new(original)).map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let frames = decoder.num_frames();
    check(width, height, frames)?;
    if u64::from(width) * u64::from(height) * u64::from(frames) > MOVING_PIXELS_MAX {
        return Ok(None);
    }
    decoder.set_memory_limit(DECODE_BYTES_MAX);
    let profile = decoder.icc_profile().ok().flatten();
    let way = ToSrgb::of(profile.as_deref());
    let size = decoder.output_buffer_size().filter(|size| *size <= DECODE_BYTES_MAX);
    let mut pixels = vec![0; size.ok_or_else(|| Bad::TooLarge("its pixels do not fit".into()))?];
    for nth in 0..frames {
        let ms = match decoder.read_frame(&mut pixels) {
            Ok(ms) => ms,
            Err(_) if nth > 0 => break,
            Err(error) => return Err(broken(error)),
        };
        let rgba = if decoder.has_alpha() {
            pixels.clone()
        } else {
            pixels.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect()
        };
        let frame = Picture::new(width, height, rgba);
        let mut frame = frame.ok_or_else(|| broken("it has not as many pixels as it says"))?;
        if let Some(way) = &way {
            way.apply(&mut frame);
        }
        see(frame, ms)?;
    }
    Ok(Some(match decoder.loop_count() {
        LoopCount::Forever => 0,
        LoopCount::Times(times) => times.get(),
    }))
}

/// A WebP that moves, as it is written (its container: developers.google.com/speed/webp/docs/riff_container).
#[derive(Default)]
struct Film {
    /// What is seen at the end of what was written, and where in `chunks` its duration is.
    last: Option<(Picture, usize)>,
    chunks: Vec<u8>,
    frames: u32,
    is_clear: bool,
}

const MS_MAX: u32 = (1 << 24) - 1;

impl Film {
    fn add(&mut self, frame: Picture, ms: u32, quality: u8) -> Result<(), Bad> {
        let ms = ms.min(MS_MAX);
        self.is_clear |= frame.is_clear();
        let part = match &self.last {
            None => Some((0, 0, frame.width, frame.height)),
            Some((last, _)) if (last.width, last.height) != (frame.width, frame.height) => {
                return Err(broken("its frames are not of one size"));
            }
            Some((last, _)) => changed(last, &frame),
        };
        let Some((left, top, width, height)) = part else {
            // The same once more is seen longer.
            if let Some((_, at)) = self.last {
                let [a, b, c] = [0, 1, 2].map(|nth| u32::from(self.chunks[at + nth]));
                let longer = (a | b << 8 | c << 16).saturating_add(ms).min(MS_MAX);
                self.chunks[at..at + 3].copy_from_slice(&longer.to_le_bytes()[..3]);
            }
            return Ok(());
        };
        let file = encode::lossy_webp(&cut(&frame, (left, top), (width, height)), quality)?;
        let picture = picture_chunks(&file).ok_or_else(|| broken("what was written is no WebP"))?;
        self.chunks.extend_from_slice(b"ANMF");
        self.chunks.extend_from_slice(&(picture.len() as u32 + 16).to_le_bytes());
        for number in [left / 2, top / 2, width - 1, height - 1] {
            self.chunks.extend_from_slice(&number.to_le_bytes()[..3]);
        }
        let at = self.chunks.len();
        self.chunks.extend_from_slice(&ms.to_le_bytes()[..3]);
        // It replaces what is there, and stays.
        self.chunks.push(0b10);
        self.chunks.extend_from_slice(&picture);
        self.frames += 1;
        self.last = Some((frame, at));
        Ok(())
    }

    /// None: nothing in it moves.
    fn end(self, plays: u16) -> Option<Vec<u8>> {
        let (last, _) = self.last.filter(|_| self.frames > 1)?;
        let mut file = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0".to_vec();
        file.extend_from_slice(&[if self.is_clear { 0x12 } else { 0x02 }, 0, 0, 0]);
        for side in [last.width - 1, last.height - 1] {
            file.extend_from_slice(&side.to_le_bytes()[..3]);
        }
        file.extend_from_slice(b"ANIM\x06\0\0\0\0\0\0\0");
        file.extend_from_slice(&plays.to_le_bytes());
        file.extend_from_slice(&self.chunks);
        let bytes = (file.len() as u32 - 8).to_le_bytes();
        file[4..8].copy_from_slice(&bytes);
        Some(file)
    }
}

/// The part in which two pictures of one size differ, beginning at even places, which is all that WebP can say. None: they do not.
fn changed(before: &Picture, after: &Picture) -> Option<(u32, u32, u32, u32)> {
    let width = after.width as usize;
    let (mut left, mut right, mut rows) = (width, 0, None);
    let pairs = before.rgba.chunks_exact(width * 4).zip(after.rgba.chunks_exact(width * 4)).enumerate();
    for (nth, (was, is)) in pairs.filter(|(_, (was, is))| was != is) {
        let differs = |column: &usize| was[column * 4..column * 4 + 4] != is[column * 4..column * 4 + 4];
        let first = (0..width).find(differs).unwrap_or(0);
        let last = (0..width).rev().find(differs).unwrap_or(width - 1);
        (left, right) = (left.min(first), right.max(last));
        rows = Some((rows.map_or(nth, |(top, _)| top), nth));
    }
    let (top, bottom) = rows?;
    let (left, top) = (left & !1, top & !1);
    Some((left as u32, top as u32, (right - left + 1) as u32, (bottom - top + 1) as u32))
}

/// Those chunks of a file that are its picture.
fn picture_chunks(file: &[u8]) -> Option<Vec<u8>> {
    let mut rest = file.get(12..)?;
    let mut kept = Vec::new();
    while rest.len() >= 8 {
        let bytes = u32::from_le_bytes(rest[4..8].try_into().ok()?) as usize;
        let whole = 8 + bytes + bytes % 2;
        let chunk = rest.get(..whole.min(rest.len()))?;
        if matches!(&chunk[..4], b"ALPH" | b"VP8 " | b"VP8L") {
            kept.extend_from_slice(chunk);
        }
        rest = &rest[chunk.len()..];
    }
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Resize;

    /// A blue ground, over which a red square goes to the right; as a GIF with this way to dispose.
    fn gif(frames: u16, dispose: DisposalMethod, repeat: Repeat) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 80, 60, &[0, 0, 255, 255, 0, 0]).unwrap();
        encoder.set_repeat(repeat).unwrap();
        let ground =
            gif::Frame { width: 80, height: 60, delay: 5, buffer: vec![0; 4800].into(), ..gif::Frame::default() };
        encoder.write_frame(&ground).unwrap();
        for nth in 1..frames {
            let (left, buffer) = (nth * 10 % 70, vec![1; 100].into());
            let frame =
                gif::Frame { left, top: 20, width: 10, height: 10, delay: 7, dispose, buffer, ..gif::Frame::default() };
            encoder.write_frame(&frame).unwrap();
        }
        drop(encoder);
        bytes
    }

    /// Each frame's duration, and where it is red in the middle row, by tens of pixels.
    fn film(file: &[u8]) -> (Vec<(u32, String)>, LoopCount, (u32, u32)) {
        let mut decoder = WebPDecoder::new(Cursor::new(file)).unwrap();
        let (width, height) = decoder.dimensions();
        let mut pixels = vec![0; decoder.output_buffer_size().unwrap()];
        let each = if decoder.has_alpha() { 4 } else { 3 };
        let mut frames = Vec::new();
        for _ in 0..decoder.num_frames() {
            let ms = decoder.read_frame(&mut pixels).unwrap();
            let row = height as usize * 25 / 60 * width as usize;
            let red = (0..8).map(|ten| pixels[(row + (ten * 10 + 5) * width as usize / 80) * each] > 128);
            frames.push((ms, red.map(|is| if is { '#' } else { '.' }).collect()));
        }
        (frames, decoder.loop_count(), (width, height))
    }

    fn moved(original: &[u8], edit: &Edit) -> Option<Vec<u8>> {
        distill(original, Format::of(original).unwrap(), edit).unwrap()
    }

    #[test]
    fn what_moves_moves_on_with_its_times() {
        let edit = Edit { quality: Some(80), ..Edit::default() };
        for (dispose, expected) in [
            (DisposalMethod::Keep, ["........", ".#......", ".##....."]),
            (DisposalMethod::Previous, ["........", ".#......", "..#....."]),
        ] {
            let file = moved(&gif(3, dispose, Repeat::Infinite), &edit).unwrap();
            let (frames, plays, size) = film(&file);
            let (times, seen): (Vec<u32>, Vec<String>) = frames.into_iter().unzip();
            assert_eq!(
                (seen, times, plays, size),
                (expected.map(str::to_owned).to_vec(), vec![50, 70, 70], LoopCount::Forever, (80, 60))
            );
        }
        let twice = moved(&gif(2, DisposalMethod::Keep, Repeat::Finite(1)), &edit).unwrap();
        assert_eq!(film(&twice).1, LoopCount::Times(std::num::NonZeroU16::new(2).unwrap()));
        // And a WebP that moves is read as well, and made smaller.
        let half = Edit { resize: Resize { width: 40, ..Resize::default() }, ..edit.clone() };
        let again = moved(&twice, &half).unwrap();
        let (frames, plays, size) = film(&again);
        assert_eq!((frames.len(), frames[1].1.as_str(), plays, size), (2, ".#......", film(&twice).1, (40, 30)));
        // What was cleared behind it shines through.
        let cleared = moved(&gif(3, DisposalMethod::Background, Repeat::Infinite), &edit).unwrap();
        let mut decoder = WebPDecoder::new(Cursor::new(&cleared)).unwrap();
        let mut pixels = vec![0; decoder.output_buffer_size().unwrap()];
        (0..3).for_each(|_| _ = decoder.read_frame(&mut pixels).unwrap());
        assert!(decoder.has_alpha() && pixels[(25 * 80 + 15) * 4 + 3] < 10 && pixels[(25 * 80 + 5) * 4 + 3] > 245);
    }

    #[test]
    fn what_does_not_change_is_one_frame_that_is_seen_longer() {
        let still = |frames| gif(frames, DisposalMethod::Previous, Repeat::Infinite);
        let edit = Edit {
            crop: Some(crate::image::Crop { width: 80, height: 10, gravity: crate::image::Gravity::Towards(0, 0) }),
            ..Edit::default()
        };
        assert_eq!(moved(&still(4), &edit), None, "nothing moves in that part");
        let mut film = Film::default();
        let colour = |r| Picture::filled(10, 10, [r, 0, 0, 255]).unwrap();
        for (r, ms) in [(0, 10), (0, 20), (200, 30), (200, MS_MAX)] {
            film.add(colour(r), ms, 80).unwrap();
        }
        let file = film.end(0).unwrap();
        let mut decoder = WebPDecoder::new(Cursor::new(&file)).unwrap();
        let mut pixels = vec![0; decoder.output_buffer_size().unwrap()];
        let times: Vec<u32> = (0..decoder.num_frames()).map(|_| decoder.read_frame(&mut pixels).unwrap()).collect();
        assert_eq!(times, [30, MS_MAX]);
    }

    #[test]
    fn too_many_frames_are_refused_and_too_many_pixels_do_not_move() {
        let edit = Edit::default();
        let many = gif(201, DisposalMethod::Keep, Repeat::Infinite);
        assert!(matches!(distill(&many, Format::Gif, &edit), Err(Bad::TooLarge(_))));
        // The screen is said to be larger than it is.
        let mut large = gif(40, DisposalMethod::Keep, Repeat::Infinite);
        large[6..10].copy_from_slice(&[0, 16, 0, 16]);
        assert_eq!(distill(&large, Format::Gif, &edit), Ok(None));
        let grown = Edit { resize: Resize { width: 4000, enlarge: true, ..Resize::default() }, ..edit.clone() };
        assert_eq!(distill(&gif(9, DisposalMethod::Keep, Repeat::Infinite), Format::Gif, &grown), Ok(None));
        // A frame of which the head says more than there is, in a file that ends in it.
        let whole = gif(9, DisposalMethod::Keep, Repeat::Infinite);
        let webp = moved(&whole, &edit).unwrap();
        for original in [&whole, &webp] {
            for length in (0..original.len()).step_by(17) {
                if let Some(from) = Format::of(&original[..length]) {
                    let _ = distill(&original[..length], from, &edit);
                }
            }
            let mut seed = 11_u32;
            for _ in 0..60 {
                let mut lying = original.clone();
                for _ in 0..4 {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let at = 12 + (seed >> 8) as usize % (lying.len() - 12);
                    lying[at] = (seed >> 3) as u8;
                }
                let _ = Format::of(&lying).map(|from| distill(&lying, from, &edit));
            }
        }
    }
}
