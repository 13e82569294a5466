//! Watermarks: a picture that is laid over another one.

use std::fmt;

use bytes::Bytes;
use ring::digest;

use super::edit::{scaled, shrunk_to};
use super::{Bad, Picture, decode};
use crate::limits::MARK_PIXELS_MAX;

/// A file, shown by its checksum: it stands in keys.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    pub bytes: Bytes,
    sum: String,
}

impl File {
    pub fn new(bytes: Bytes) -> Self {
        let sum = digest::digest(&digest::SHA256, &bytes);
        Self { sum: sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(), bytes }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sum)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Watermark {
    /// From 0, which is nothing, to 1.
    pub opacity: f32,
    pub place: Place,
    /// Pixels from that place, towards the middle; from the middle, to the right and down.
    pub offset: (i32, i32),
    /// Of the picture's width and height, within which it is as large as goes; 0: its own size.
    pub scale: f32,
    /// Where it is had; None: as the service says.
    pub source: Option<String>,
    /// What was had.
    pub file: Option<File>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Hundredths of the room that is left.
    Towards(u8, u8),
    /// Over and over, beginning at the top left.
    Everywhere,
}

impl Watermark {
    /// The picture that is laid over one of this size.
    ///
    /// # Errors
    /// Its file is none that is read.
    pub fn prepared(&self, width: u32, height: u32) -> Result<Option<Picture>, Bad> {
        let Some(file) = &self.file else { return Ok(None) };
        let (across, down) = decode::measure(&file.bytes)?;
        if u64::from(across) * u64::from(down) > MARK_PIXELS_MAX {
            return Err(Bad::TooLarge(format!("the watermark has {across} by {down} pixels")));
        }
        let mark = decode::decode(&file.bytes)?;
        let share = |side: u32| ((side as f32 * self.scale).round() as u32).clamp(1, side);
        let within = if self.scale > 0.0 { (share(width), share(height)) } else { (width, height) };
        let is_grown = self.scale > 0.0;
        let size = shrunk_to((mark.width, mark.height), within, is_grown);
        scaled(mark, size.0, size.1).map(Some)
    }

    pub fn lay(&self, over: &Picture, picture: &mut Picture) {
        match self.place {
            Place::Towards(x, y) => {
                let along = |whole: u32, part: u32, share: u8, offset: i32| {
                    let begins = i64::from(whole.saturating_sub(part)) * i64::from(share.min(100)) / 100;
                    begins + if share > 50 { -i64::from(offset) } else { i64::from(offset) }
                };
                let left = along(picture.width, over.width, x, self.offset.0);
                let top = along(picture.height, over.height, y, self.offset.1);
                self.at(over, picture, left, top);
            }
            Place::Everywhere => {
                for top in (0..picture.height).step_by(over.height as usize) {
                    for left in (0..picture.width).step_by(over.width as usize) {
                        self.at(over, picture, left.into(), top.into());
                    }
                }
            }
        }
    }

    /// What is outside of the picture is not seen.
    fn at(&self, over: &Picture, picture: &mut Picture, left: i64, top: i64) {
        let opacity = (self.opacity.clamp(0.0, 1.0) * 255.0).round() as u32;
        for y in 0..i64::from(over.height) {
            let row = top + y;
            if row < 0 || row >= i64::from(picture.height) {
                continue;
            }
            for x in 0..i64::from(over.width) {
                let column = left + x;
                if column < 0 || column >= i64::from(picture.width) {
                    continue;
                }
                let from = ((y * i64::from(over.width) + x) * 4) as usize;
                let to = ((row * i64::from(picture.width) + column) * 4) as usize;
                blend(&mut picture.rgba[to..to + 4], &over.rgba[from..from + 4], opacity);
            }
        }
    }
}

/// One pixel over another one.
fn blend(under: &mut [u8], over: &[u8], opacity: u32) {
    let above = u32::from(over[3]) * opacity / 255;
    let below = u32::from(under[3]) * (255 - above) / 255;
    let all = above + below;
    if all == 0 {
        return;
    }
    for channel in 0..3 {
        under[channel] = ((u32::from(over[channel]) * above + u32::from(under[channel]) * below + all / 2) / all) as u8;
    }
    under[3] = all.min(255) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Edit, encode::as_png};

    fn mark(place: Place, offset: (i32, i32), scale: f32, opacity: f32) -> Watermark {
        let red = as_png(&Picture::filled(4, 2, [255, 0, 0, 255]).unwrap()).unwrap();
        Watermark { opacity, place, offset, scale, source: None, file: Some(File::new(red.into())) }
    }

    /// Left, top, right and bottom of what is red.
    fn red(mark: Watermark, size: (u32, u32)) -> Option<(u32, u32, u32, u32)> {
        let picture = Picture::filled(size.0, size.1, [0, 0, 255, 255]).unwrap();
        let edit = Edit { watermark: Some(mark), ..Edit::default() };
        let picture = edit.apply(picture).unwrap();
        let mut found: Option<(u32, u32, u32, u32)> = None;
        for (nth, _) in picture.rgba.chunks_exact(4).enumerate().filter(|(_, pixel)| pixel[0] > 100) {
            let (x, y) = (nth as u32 % size.0, nth as u32 / size.0);
            let (l, t, r, b) = found.unwrap_or((x, y, x, y));
            found = Some((l.min(x), t.min(y), r.max(x), b.max(y)));
        }
        found
    }

    #[test]
    fn it_lies_where_it_is_said_and_is_as_large() {
        let at = Place::Towards;
        for (mark, expected) in [
            (mark(at(0, 0), (0, 0), 0.0, 1.0), Some((0, 0, 3, 1))),
            (mark(at(100, 100), (0, 0), 0.0, 1.0), Some((16, 8, 19, 9))),
            (mark(at(100, 100), (2, 3), 0.0, 1.0), Some((14, 5, 17, 6))),
            (mark(at(50, 50), (0, 0), 0.0, 1.0), Some((8, 4, 11, 5))),
            (mark(at(0, 0), (0, 0), 1.0, 1.0), Some((0, 0, 19, 9))),
            (mark(at(0, 0), (-2, -1), 0.0, 1.0), Some((0, 0, 1, 0))),
            (mark(at(0, 0), (900, i32::MIN), 0.0, 1.0), None),
            (mark(Place::Everywhere, (0, 0), 0.0, 1.0), Some((0, 0, 19, 9))),
            (mark(at(0, 0), (0, 0), 0.0, 0.1), None),
        ] {
            assert_eq!(red(mark.clone(), (20, 10)), expected, "{mark:?}");
        }
        assert_eq!(red(mark(at(0, 0), (0, 0), 0.0, 1.0), (2, 2)), Some((0, 0, 1, 0)), "a larger one is made to fit");
    }

    #[test]
    fn half_of_it_shows_what_is_behind() {
        let edit = Edit { watermark: Some(mark(Place::Everywhere, (0, 0), 0.0, 0.5)), ..Edit::default() };
        let picture = edit.apply(Picture::filled(4, 4, [0, 0, 255, 255]).unwrap()).unwrap();
        assert!((126..=129).contains(&picture.rgba[0]) && (126..=129).contains(&picture.rgba[2]));
        let clear = edit.apply(Picture::filled(4, 4, [9, 9, 9, 0]).unwrap()).unwrap();
        assert_eq!((clear.rgba[0], clear.rgba[2]), (255, 0), "nothing is behind it");
        let broken = Watermark {
            file: Some(File::new(Bytes::from_static(b"none"))),
            ..mark(Place::Everywhere, (0, 0), 0.0, 1.0)
        };
        let edit = Edit { watermark: Some(broken), ..Edit::default() };
        assert_eq!(edit.apply(Picture::filled(4, 4, [0; 4]).unwrap()), Err(Bad::Unknown));
    }
}
