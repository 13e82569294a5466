//! What a browser says of its screen and its line, with each request (client hints): how large a picture can be seen, and how much of it
//! the line carries. Widths are rounded, so that few variants are made.

use sdk::axum::http::{HeaderMap, HeaderName};

use crate::image::{Edit, Mode};
use crate::limits::SIDE_MAX;

/// What answers depend on.
pub const VARY: &str = "Accept, Save-Data, Sec-CH-DPR, DPR, Sec-CH-Width, Width, ECT, Downlink";
/// What pages ask browsers to say.
pub const ACCEPT: &str = "Sec-CH-DPR, Sec-CH-Width, ECT, Downlink";

/// Quality for who asks to save data, or has a line that carries little, where no other one is asked for.
const SAVING_QUALITY: u8 = 30;
const SLOW_QUALITY: u8 = 20;
/// Widths are rounded up to so many pixels.
const WIDTH_STEP: u32 = 64;
/// Screens have no more pixels for one of a page.
const DPR_MAX: f32 = 4.0;
/// Lines of less, in Mbit/s as browsers measure it, are slow; of less than that, they save.
const SLOW: f32 = 0.15;
const SAVING: f32 = 0.75;

fn text<'a>(headers: &'a HeaderMap, names: &[&'static str]) -> Option<&'a str> {
    names.iter().find_map(|name| headers.get(HeaderName::from_static(name))?.to_str().ok()).map(str::trim)
}

pub fn apply(edit: &mut Edit, headers: &HeaderMap) {
    if edit.quality.is_none() {
        edit.quality = quality(headers);
    }
    let dpr = text(headers, &["sec-ch-dpr", "dpr"]).and_then(|dpr| dpr.parse::<f32>().ok());
    let dpr = dpr.filter(|dpr| (0.5..=DPR_MAX).contains(dpr)).filter(|_| !edit.has_dpr);
    // From here on it is the same picture, whoever said it.
    edit.has_dpr = false;
    let times = |length: u32, dpr: f32| ((length as f32 * dpr).round() as u32).min(SIDE_MAX);
    let resize = &mut edit.resize;
    if resize.width > 0 || resize.height > 0 {
        if let Some(dpr) = dpr {
            (resize.width, resize.height) = (times(resize.width, dpr), times(resize.height, dpr));
            edit.padding = edit.padding.map(|length| times(length, dpr));
        }
    } else if resize.mode == Mode::Fit {
        // It is in pixels of the screen already.
        let width = text(headers, &["sec-ch-width", "width"]).and_then(|width| width.parse::<u32>().ok());
        resize.width = width
            .filter(|width| (1..=SIDE_MAX).contains(width))
            .map_or(0, |width| width.next_multiple_of(WIDTH_STEP).min(SIDE_MAX));
    }
}

/// The quality that its line carries, for who says something of it, or wants to save.
pub fn quality(headers: &HeaderMap) -> Option<u8> {
    let line = text(headers, &["downlink"]).and_then(|rate| rate.parse::<f32>().ok());
    let is_below = |most: f32| line.is_some_and(|rate| rate < most);
    match text(headers, &["ect"]) {
        Some("slow-2g" | "2g") => Some(SLOW_QUALITY),
        _ if is_below(SLOW) => Some(SLOW_QUALITY),
        Some("3g") => Some(SAVING_QUALITY),
        _ if is_below(SAVING) => Some(SAVING_QUALITY),
        _ => text(headers, &["save-data"]).filter(|word| word.eq_ignore_ascii_case("on")).map(|_| SAVING_QUALITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Resize;

    fn after(edit: Edit, hints: &[(&'static str, &'static str)]) -> (u32, u32, Option<u8>) {
        let mut edit = edit;
        let headers =
            hints.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        apply(&mut edit, &headers);
        (edit.resize.width, edit.resize.height, edit.quality)
    }

    #[test]
    fn a_picture_is_as_large_as_the_screen_and_as_good_as_the_line() {
        let sized = |width| Edit { resize: Resize { width, ..Resize::default() }, ..Edit::default() };
        let dpr2 = ("sec-ch-dpr", "2.0");
        for (edit, hints, expected) in [
            (Edit::default(), &[][..], (0, 0, None)),
            (Edit::default(), &[("width", "1000")], (1024, 0, None)),
            (Edit::default(), &[("sec-ch-width", "1"), dpr2], (64, 0, None)),
            (sized(100), &[("width", "1000"), dpr2], (200, 0, None)),
            (sized(100), &[("dpr", "99")], (100, 0, None)),
            (sized(100), &[("dpr", "nan")], (100, 0, None)),
            (Edit { has_dpr: true, ..sized(100) }, &[dpr2], (100, 0, None)),
            (sized(16_000), &[dpr2], (SIDE_MAX, 0, None)),
            (Edit::default(), &[("width", "99999")], (0, 0, None)),
            (Edit::default(), &[("save-data", "on")], (0, 0, Some(SAVING_QUALITY))),
            (Edit::default(), &[("downlink", "0.05"), ("save-data", "on")], (0, 0, Some(SLOW_QUALITY))),
            (Edit::default(), &[("ect", "3g"), ("downlink", "9")], (0, 0, Some(SAVING_QUALITY))),
            (Edit::default(), &[("ect", "4g"), ("downlink", "10")], (0, 0, None)),
            (Edit { quality: Some(77), ..Edit::default() }, &[("ect", "2g")], (0, 0, Some(77))),
        ] {
            assert_eq!(after(edit, hints), expected, "{hints:?}");
        }
    }
}
