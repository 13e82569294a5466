//! Colours: from the profile that a file carries to sRGB, which is what is written. The profile comes from a stranger: what it says is
//! used if it can be read, else the file's colours are taken for sRGB, as browsers do.

use std::sync::Arc;

use moxcms::{ColorProfile, DataColorSpace, Layout, Transform8BitExecutor, TransformOptions};

use super::Picture;
use crate::limits::PROFILE_BYTES_MAX;

/// The way from a profile to sRGB.
pub struct ToSrgb(Arc<Transform8BitExecutor>);

impl ToSrgb {
    /// None: there is no profile, or one that says nothing of pixels with three colours.
    pub fn of(profile: Option<&[u8]>) -> Option<Self> {
        let profile = profile.filter(|profile| profile.len() <= PROFILE_BYTES_MAX)?;
        let from = ColorProfile::new_from_slice(profile).ok().filter(|from| from.color_space == DataColorSpace::Rgb)?;
        let to = ColorProfile::new_srgb();
        from.create_transform_8bit(Layout::Rgba, &to, Layout::Rgba, TransformOptions::default()).ok().map(Self)
    }

    pub fn apply(&self, picture: &mut Picture) {
        let mut line = vec![0; picture.width as usize * 4];
        for row in picture.rgba.chunks_exact_mut(line.len()) {
            if self.0.transform(row, &mut line).is_ok() {
                row.copy_from_slice(&line);
            }
        }
    }
}

/// The picture in sRGB.
pub fn in_srgb(mut picture: Picture, profile: Option<&[u8]>) -> Picture {
    if let Some(way) = ToSrgb::of(profile) {
        way.apply(&mut picture);
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_cannot_be_read_changes_nothing() {
        let plain = Picture::filled(3, 2, [200, 100, 50, 9]).unwrap();
        let profile = ColorProfile::new_display_p3().encode().unwrap();
        let changed = in_srgb(plain.clone(), Some(&profile));
        assert!(changed.rgba[0] > 204 && changed.rgba[2] < 46 && changed.rgba[3] == 9, "{:?}", &changed.rgba[..4]);
        for length in 0..profile.len() {
            let _ = ToSrgb::of(Some(&profile[..length]));
        }
        let mut seed = 7_u32;
        for _ in 0..2000 {
            let mut lying = profile.clone();
            for _ in 0..3 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as usize % lying.len();
                lying[at] = (seed >> 3) as u8;
            }
            let _ = in_srgb(plain.clone(), Some(&lying));
        }
        for none in [None, Some(&b""[..]), Some(b"icc"), Some(&vec![0; PROFILE_BYTES_MAX + 1])] {
            assert_eq!(in_srgb(plain.clone(), none), plain);
        }
    }
}
