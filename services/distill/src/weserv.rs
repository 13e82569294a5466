//! URLs as weserv (images.weserv.nl) has them: `/?url=SOURCE&w=300&h=200&fit=cover`. They have no signature. What is not offered is named
//! in the error.

use percent_encoding::percent_decode_str;

use crate::image::{Crop, Gravity, Mode, Trim};
use crate::imgproxy::{Asked, Read, Wrong, background, format, number, side, wrong};

const OFFERED: &str = "url, w, h, dpr, fit (inside, cover, fill, contain), we, a, cx, cy, cw, ch, trim, bg, cbg, blur, sharp, ro, filt \
     (greyscale), q, output (jpg, png, webp), n (1)";
/// What weserv takes, where nothing is said.
const QUALITY: u8 = 80;
const DPR_MAX: f32 = 8.0;

/// Whether a query is one.
pub fn is_one(path: &str, query: Option<&str>) -> bool {
    path == "/" && query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("url=")))
}

/// # Errors
/// It asks for what is not offered.
pub fn read(query: &str) -> Read<Asked> {
    let mut asked = Asked::default();
    asked.edit.resize.enlarge = true;
    asked.edit.quality = Some(QUALITY);
    let (mut dpr, mut gravity, mut is_contained) = (1.0, Gravity::default(), false);
    let mut part = [None; 4];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            percent_decode_str(value).decode_utf8().map_err(|_| Wrong::Unreadable(format!("{name} is no text")))?;
        let not = |needed: &str| Wrong::Unreadable(format!("{name}={value} is not offered: it is {needed}"));
        let length = || side(&value).ok_or_else(|| not("a length from 0 to 16383"));
        let edit = &mut asked.edit;
        match name {
            "url" => asked.source = source(&value),
            "w" => edit.resize.width = length()?,
            "h" => edit.resize.height = length()?,
            "cx" => part[0] = Some(length()?),
            "cy" => part[1] = Some(length()?),
            "cw" => part[2] = Some(length()?),
            "ch" => part[3] = Some(length()?),
            "dpr" => {
                dpr = number(&value, DPR_MAX).filter(|dpr| *dpr > 0.0).ok_or_else(|| not("a number up to 8"))?;
                edit.has_dpr = true;
            }
            "fit" => {
                is_contained = value == "contain";
                edit.resize.mode = match &*value {
                    "inside" | "contain" => Mode::Fit,
                    "cover" => Mode::Fill,
                    "fill" => Mode::Force,
                    _ => return Err(not("inside, cover, fill or contain")),
                };
            }
            "we" => edit.resize.enlarge = false,
            "a" => gravity = alignment(&value).ok_or_else(|| not("center, top, right, bottom, left, two of them with -, entropy, attention, or focal-x-y of hundredths"))?,
            "trim" => {
                let threshold = number(&value, 254.0).ok_or_else(|| not("a number from 0 to 254"))?;
                edit.trim = Some(Trim { threshold, colour: None, is_even: (false, false) });
            }
            "bg" | "cbg" => {
                let colour = background(&[value.trim_start_matches('#')]).flatten();
                edit.background = Some(colour.ok_or_else(|| not("a colour, ffffff"))?);
            }
            "blur" => edit.blur = number(if value.is_empty() { "1" } else { &value }, 100.0).ok_or_else(|| not("a deviation up to 100"))?,
            "sharp" => edit.sharpen = number(if value.is_empty() { "1" } else { &value }, 100.0).ok_or_else(|| not("a deviation up to 100"))?,
            "ro" => edit.rotate = value.parse().ok().filter(|turn| [0, 90, 180, 270].contains(turn)).ok_or_else(|| not("0, 90, 180 or 270"))?,
            "filt" if value == "greyscale" => edit.grey = true,
            "filt" => return Err(not("greyscale")),
            "q" => {
                let quality = value.parse().ok().filter(|quality| (1..=100).contains(quality));
                edit.quality = Some(quality.ok_or_else(|| not("a quality from 1 to 100"))?);
            }
            "output" => edit.format = Some(format(&value)?),
            "n" if value == "1" => (),
            "n" => return Err(not("1: what moves goes on moving where it may become WebP")),
            other => return wrong(format!("{other:?} is not offered; offered are: {OFFERED}")),
        }
    }
    if asked.source.is_empty() {
        return wrong("url is empty".into());
    }
    let edit = &mut asked.edit;
    edit.gravity = gravity;
    edit.resize.extend = is_contained && edit.resize.width > 0 && edit.resize.height > 0;
    if edit.resize.width == 0 || edit.resize.height == 0 {
        edit.resize.mode = if edit.resize.mode == Mode::Force { Mode::Force } else { Mode::Fit };
    }
    if let [_, _, Some(width), Some(height)] = part {
        let gravity = Gravity::At(part[0].unwrap_or(0), part[1].unwrap_or(0));
        edit.crop = Some(Crop { width, height, gravity });
    } else if part.iter().any(Option::is_some) {
        return wrong("cw and ch say how large the part is that begins at cx and cy".into());
    }
    let times = |length: u32| ((length as f32 * dpr).round() as u32).min(crate::limits::SIDE_MAX);
    (edit.resize.width, edit.resize.height) = (times(edit.resize.width), times(edit.resize.height));
    Ok(asked)
}

/// Without a scheme it is http, `ssl:` before it is https.
fn source(text: &str) -> String {
    match text.strip_prefix("ssl:") {
        Some(rest) => format!("https://{}", rest.trim_start_matches("//")),
        None if text.contains("://") || text.is_empty() => text.to_owned(),
        None => format!("http://{}", text.trim_start_matches("//")),
    }
}

fn alignment(text: &str) -> Option<Gravity> {
    if matches!(text, "entropy" | "attention") {
        return Some(Gravity::Smart);
    }
    if let Some((x, y)) = text.strip_prefix("focal-").and_then(|at| at.split_once('-')) {
        let share = |text: &str| text.parse::<u8>().ok().filter(|share| *share <= 100);
        return Some(Gravity::Towards(share(x)?, share(y)?));
    }
    let (mut x, mut y) = (50, 50);
    for word in text.split('-') {
        match word {
            "center" | "c" => (),
            "top" | "t" => y = 0,
            "bottom" | "b" => y = 100,
            "left" | "l" => x = 0,
            "right" | "r" => x = 100,
            _ => return None,
        }
    }
    Some(Gravity::Towards(x, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Edit, Format, Resize};

    fn edit(query: &str) -> Edit {
        let asked = read(&format!("url=origin://photos/a.jpg&{query}")).unwrap();
        assert_eq!(asked.source, "origin://photos/a.jpg");
        asked.edit
    }

    #[test]
    fn each_parameter_has_its_meaning() {
        let resize = Resize { mode: Mode::Fit, width: 300, height: 200, enlarge: true, extend: false };
        let usual = Edit { quality: Some(QUALITY), ..Edit::default() };
        let sized = Edit { resize, ..usual.clone() };
        for (query, expected) in [
            ("w=300&h=200", sized.clone()),
            ("w=150&h=100&dpr=2", Edit { has_dpr: true, ..sized.clone() }),
            ("w=300&h=200&we", Edit { resize: Resize { enlarge: false, ..resize }, ..usual.clone() }),
            (
                "w=300&h=200&fit=cover&a=top-right",
                Edit {
                    resize: Resize { mode: Mode::Fill, ..resize },
                    gravity: Gravity::Towards(100, 0),
                    ..usual.clone()
                },
            ),
            (
                "w=300&h=200&fit=cover&a=attention",
                Edit { resize: Resize { mode: Mode::Fill, ..resize }, gravity: Gravity::Smart, ..usual.clone() },
            ),
            ("w=300&fit=cover", Edit { resize: Resize { height: 0, ..resize }, ..usual.clone() }),
            (
                "w=300&h=200&fit=contain&cbg=%23ff0000",
                Edit { resize: Resize { extend: true, ..resize }, background: Some([255, 0, 0]), ..usual.clone() },
            ),
            ("w=300&h=200&fit=fill", Edit { resize: Resize { mode: Mode::Force, ..resize }, ..usual.clone() }),
            (
                "w=300&h=200&cx=1&cy=2&cw=30&ch=40",
                Edit { crop: Some(Crop { width: 30, height: 40, gravity: Gravity::At(1, 2) }), ..sized.clone() },
            ),
            (
                "w=300&h=200&q=30&output=webp&filt=greyscale&blur=2&sharp&ro=90",
                Edit {
                    quality: Some(30),
                    format: Some(Format::Webp),
                    grey: true,
                    blur: 2.0,
                    sharpen: 1.0,
                    rotate: 90,
                    ..sized.clone()
                },
            ),
        ] {
            assert_eq!(edit(query), expected, "{query}");
        }
        for (url, expected) in [
            ("example.org/a.jpg", "http://example.org/a.jpg"),
            ("ssl:example.org", "https://example.org"),
            ("https%3A%2F%2Fa.org%2Fb%3Fc", "https://a.org/b?c"),
        ] {
            assert_eq!(read(&format!("url={url}")).unwrap().source, expected);
        }
        assert!(
            is_one("/", Some("w=1&url=x"))
                && !is_one("/", Some("w=1"))
                && !is_one("/a", Some("url=x"))
                && !is_one("/", None)
        );
    }

    #[test]
    fn what_is_not_offered_is_named() {
        for (query, named) in [
            ("tint=red", "\"tint\" is not offered; offered are: url, w"),
            ("fit=outside", "fit=outside is not offered: it is inside"),
            ("filt=sepia", "filt=sepia is not offered: it is greyscale"),
            ("output=avif", "\"avif\" is not offered"),
            ("n=-1", "n=-1 is not offered"),
            ("w=-1", "w=-1"),
            ("w=99999", "w=99999"),
            ("q=0", "q=0"),
            ("a=up", "a=up"),
            ("cw=5", "cw and ch say"),
            ("url=", "url is empty"),
            ("w=%ff", "w is no text"),
        ] {
            let Err(Wrong::Unreadable(why)) = read(&format!("url=a&{query}")) else { panic!("{query}") };
            assert!(why.contains(named), "{query}: {why}");
        }
        let mut seed = 5_u64;
        for _ in 0..5000 {
            let text: String = (0..10)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    ["url=", "&", "w", "=", "%", "a-", "focal-", "9", "é", "trim", "bg", "#"]
                        [(seed >> 33) as usize % 12]
                })
                .collect();
            let _ = read(&text);
        }
    }
}
