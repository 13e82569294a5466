//! Which way up a picture is, as EXIF says: one number of a small directory, which is read here and nothing else of it.

use super::Picture;

/// The tag of that number.
const ORIENTATION: u16 = 0x0112;
/// More entries no camera writes in the first directory.
const ENTRIES_MAX: u16 = 512;

/// From 1 (upright) to 8; 1 for whatever is not understood.
pub fn orientation(exif: &[u8]) -> u8 {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    found(tiff).filter(|n| (1..=8).contains(n)).map_or(1, |n| n as u8)
}

fn found(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let two = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    };
    let four: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = if is_little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) } as usize;
    let entries = short(directory)?.min(ENTRIES_MAX);
    let mut at = (0..usize::from(entries)).map(|nth| directory + 2 + nth * 12);
    let at = at.find(|at| short(*at) == Some(ORIENTATION))?;
    short(at + 8)
}

/// The picture turned so that its orientation is 1.
pub fn upright(picture: Picture, orientation: u8) -> Picture {
    if !(2..=8).contains(&orientation) {
        return picture;
    }
    let (width, height) = (picture.width as usize, picture.height as usize);
    let is_turned = orientation > 4;
    let (across, down) = if is_turned { (height, width) } else { (width, height) };
    let mut rgba = Vec::with_capacity(picture.rgba.len());
    for y in 0..down {
        for x in 0..across {
            // Where in the stored picture this pixel is.
            let (column, row) = match orientation {
                2 => (width - 1 - x, y),
                3 => (width - 1 - x, height - 1 - y),
                4 => (x, height - 1 - y),
                5 => (y, x),
                6 => (y, height - 1 - x),
                7 => (width - 1 - y, height - 1 - x),
                _ => (width - 1 - y, x),
            };
            let at = (row * width + column) * 4;
            rgba.extend_from_slice(&picture.rgba[at..at + 4]);
        }
    }
    Picture { width: across as u32, height: down as u32, rgba }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte a pixel, to see where each goes: `ab` over `cd`.
    fn shown(orientation: u8) -> String {
        let rgba = b"abcdef".iter().flat_map(|letter| [*letter; 4]).collect();
        let turned = upright(Picture { width: 3, height: 2, rgba }, orientation);
        let letters: Vec<u8> = turned.rgba.iter().step_by(4).copied().collect();
        letters
            .chunks(turned.width as usize)
            .map(|row| String::from_utf8_lossy(row).into_owned())
            .collect::<Vec<_>>()
            .join("/")
    }

    #[test]
    fn each_of_the_eight_is_undone() {
        let all: Vec<String> = (1..=8).map(shown).collect();
        assert_eq!(all, ["abc/def", "cba/fed", "fed/cba", "def/abc", "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"]);
    }

    #[test]
    fn what_is_no_exif_is_upright() {
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
        assert_eq!(orientation(big), 6);
        for wrong in
            [&b""[..], b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", &big[..12], b"XX*\0\0\0\0\0"]
        {
            assert_eq!(orientation(wrong), 1, "{wrong:?}");
        }
    }
}
