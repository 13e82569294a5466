//! URLs as thumbor has them: `/SIGNATURE/trim/AxB:CxD/fit-in/WxH/HALIGN/VALIGN/smart/filters:NAME(ARGS):.../SOURCE`, with `unsafe` for who
//! has no key. The signature is checked over the path as it came, before anything of it is read. What is not offered is named in
//! the error.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use percent_encoding::percent_decode_str;
use ring::hmac;

use crate::image::{Crop, Edit, Gravity, Mode, Place, Trim, Watermark};
use crate::imgproxy::{Asked, Read, Wrong, background, format, number, side, wrong};

const FILTERS: &str = "background_color, blur, fill, format, grayscale, no_upscale, quality, rotate, strip_exif, strip_icc, upscale, \
     watermark";
const UNSIGNED: &str = "unsafe";
/// More filters nobody writes by hand.
const FILTERS_MAX: usize = 32;

/// Whether a path has such a form.
pub fn is_one(path: &str, has_keys: bool) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(first, _)| first);
    first.is_some_and(|first| first == UNSIGNED || (has_keys && shown(first).is_some()))
}

/// 20 bytes.
fn shown(signature: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE.decode(signature).or_else(|_| URL_SAFE_NO_PAD.decode(signature)).ok()?;
    (bytes.len() == 20).then_some(bytes)
}

/// Reads a path, without its query. With any key, only what is signed with one of them.
///
/// # Errors
/// It is not signed, or asks for what is not offered.
pub fn read(path: &str, keys: &[hmac::Key]) -> Read<Asked> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (signature, rest) = path.split_once('/').ok_or(Wrong::Forged)?;
    if keys.is_empty() {
        if signature != UNSIGNED {
            return wrong("there is no key here, so URLs begin with /unsafe/".into());
        }
    } else {
        let shown = shown(signature).ok_or(Wrong::Forged)?;
        // All of them are tried, whichever it is.
        if keys.iter().filter(|key| hmac::verify(key, rest.as_bytes(), &shown).is_ok()).count() == 0 {
            return Err(Wrong::Forged);
        }
    }
    let mut asked = Asked::default();
    asked.edit.resize.mode = Mode::Fill;
    asked.edit.resize.enlarge = true;
    let mut rest = rest;
    let mut aligned = (50, 50);
    let mut is_smart = false;
    loop {
        if let Some(filters) = rest.strip_prefix("filters:") {
            rest = filtered(filters, &mut asked.edit, &mut asked.mark)?;
            break;
        }
        let Some((part, after)) = rest.split_once('/') else { break };
        if !apply(part, &mut asked.edit, &mut aligned, &mut is_smart)? {
            break;
        }
        rest = after;
    }
    asked.edit.gravity = if is_smart { Gravity::Smart } else { Gravity::Towards(aligned.0, aligned.1) };
    let fits = asked.edit.resize.mode == Mode::Fit;
    if fits {
        // Only a filter makes what fits larger.
        asked.edit.resize.extend = asked.edit.background.is_some() && asked.edit.resize.extend;
    }
    asked.source = match percent_decode_str(rest).decode_utf8() {
        Ok(source) if source.is_empty() => return wrong("it names no source".into()),
        Ok(source) if source.contains("://") => source.into_owned(),
        Ok(source) => format!("http://{source}"),
        Err(_) => return wrong("its source is no text".into()),
    };
    if let Some(watermark) = &mut asked.edit.watermark {
        watermark.source = asked.mark.take();
    }
    Ok(asked)
}

/// One part before the filters; false: the source begins here.
fn apply(part: &str, edit: &mut Edit, aligned: &mut (u8, u8), is_smart: &mut bool) -> Read<bool> {
    match part {
        "meta" | "debug" | "adaptive-fit-in" | "full-fit-in" | "adaptive-full-fit-in" => {
            return wrong(format!(
                "{part:?} is not offered; offered are: trim, AxB:CxD, fit-in, WxH, left, center, right, top, middle, bottom, smart, filters:"
            ));
        }
        "fit-in" => (edit.resize.mode, edit.resize.enlarge) = (Mode::Fit, false),
        "left" => aligned.0 = 0,
        "center" => aligned.0 = 50,
        "right" => aligned.0 = 100,
        "top" => aligned.1 = 0,
        "middle" => aligned.1 = 50,
        "bottom" => aligned.1 = 100,
        "smart" => *is_smart = true,
        _ if part == "trim" || part.starts_with("trim:") => {
            let mut words = part.split(':').skip(1);
            let (mut threshold, mut where_) = (0.0, "top-left");
            for word in words.by_ref() {
                match number(word, 442.0) {
                    Some(tolerance) => threshold = tolerance,
                    None => where_ = word,
                }
            }
            if where_ != "top-left" {
                return wrong(format!(
                    "{where_:?} in {part:?} is not offered: the border has the colour of the corner at the top left"
                ));
            }
            edit.trim = Some(Trim { threshold, colour: None, is_even: (false, false) });
        }
        _ => match (part.split_once(':').and_then(|(from, to)| Some((pair(from)?, pair(to)?))), part.split_once('x')) {
            (Some(((left, top), (right, bottom))), _) => {
                if right <= left || bottom <= top {
                    return wrong(format!("{part:?} is no part of a picture: left and top come first"));
                }
                let gravity = Gravity::At(left, top);
                edit.crop = Some(Crop { width: right - left, height: bottom - top, gravity });
            }
            (None, Some((width, height))) if is_side(width) && is_side(height) => {
                let length = |text: &str| {
                    match text {
                    "" => Ok(0),
                    text => side(text).ok_or_else(|| Wrong::Unreadable(format!("{text:?} in {part:?} is not offered: it is a length from 0 to 16383; pictures are not flipped, and \"orig\" is no size"))),
                }
                };
                (edit.resize.width, edit.resize.height) = (length(width)?, length(height)?);
            }
            _ => return Ok(false),
        },
    }
    Ok(true)
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (x, y) = text.split_once('x')?;
    Some((side(x)?, side(y)?))
}

/// What stands where a length does, be it offered or not.
fn is_side(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    matches!(text, "orig") || digits.bytes().all(|b| b.is_ascii_digit())
}

/// All filters, and what comes after them.
fn filtered<'a>(mut text: &'a str, edit: &mut Edit, mark: &mut Option<String>) -> Read<&'a str> {
    for _ in 0..FILTERS_MAX {
        let cut = |why: &str| Wrong::Unreadable(format!("the filters cannot be read at {text:?}: {why}"));
        let (name, rest) = text.split_once('(').ok_or_else(|| cut("a filter is NAME(ARGUMENTS)"))?;
        let (args, rest) = rest.split_once(')').ok_or_else(|| cut("its arguments have no end"))?;
        filter(name, args, edit, mark)?;
        match rest.strip_prefix(':') {
            Some(more) => text = more,
            None => return rest.strip_prefix('/').ok_or_else(|| cut("after them comes / and the source")),
        }
    }
    wrong(format!("there are more than {FILTERS_MAX} filters"))
}

fn filter(name: &str, args: &str, edit: &mut Edit, mark: &mut Option<String>) -> Read<()> {
    let parts: Vec<&str> = args.split(',').map(str::trim).collect();
    let not = |needed: &str| Wrong::Unreadable(format!("{name}({args}) is not offered: {needed}"));
    let arg = |nth: usize| parts.get(nth).copied().filter(|arg| !arg.is_empty());
    match name {
        "quality" => {
            let quality = arg(0).and_then(|q| q.parse().ok()).filter(|q| (1..=100).contains(q));
            edit.quality = Some(quality.ok_or_else(|| not("it is a quality from 1 to 100"))?);
        }
        "format" => edit.format = Some(format(arg(0).unwrap_or_default())?),
        "grayscale" => edit.grey = true,
        "blur" => {
            let radius =
                arg(0).and_then(|radius| number(radius, 150.0)).ok_or_else(|| not("it is a radius up to 150"))?;
            // Without a deviation thumbor takes the radius for it.
            edit.blur = arg(1)
                .map_or(Some(radius), |sigma| number(sigma, 150.0))
                .ok_or_else(|| not("its second is a deviation up to 150"))?
                .min(100.0);
        }
        "rotate" => {
            // Against the clock, as thumbor counts.
            let turn =
                arg(0).and_then(|turn| turn.parse::<u16>().ok()).filter(|turn| [0, 90, 180, 270, 360].contains(turn));
            edit.rotate = (360 - turn.ok_or_else(|| not("it is 0, 90, 180, 270"))?) % 360;
        }
        "fill" | "background_color" => {
            let hex = arg(0).unwrap_or_default().trim_start_matches('#');
            let named = [("white", "ffffff"), ("black", "000000")].into_iter().find(|(word, _)| *word == hex);
            let colour = background(&[named.map_or(hex, |(_, hex)| hex)]).flatten();
            edit.background = Some(colour.ok_or_else(|| not("its colour is white, black or ffffff"))?);
            edit.resize.extend |= name == "fill";
        }
        "no_upscale" => edit.resize.enlarge = false,
        "upscale" => edit.resize.enlarge = true,
        "strip_exif" | "strip_icc" => (),
        "watermark" => {
            let url = arg(0).ok_or_else(|| not("its first is a URL"))?;
            let url = percent_decode_str(url).decode_utf8().map_err(|_| not("its URL is no text"))?;
            let (x, offset_x) =
                along(arg(1).unwrap_or("0")).ok_or_else(|| not("places are pixels, center or repeat"))?;
            let (y, offset_y) =
                along(arg(2).unwrap_or("0")).ok_or_else(|| not("places are pixels, center or repeat"))?;
            let clear =
                arg(3).map_or(Some(0.0), |alpha| number(alpha, 100.0)).ok_or_else(|| not("alpha is from 0 to 100"))?;
            let scale = match (arg(4).unwrap_or("none"), arg(5).unwrap_or("none")) {
                ("none", "none") => 0.0,
                (share, "none") | ("none", share) => {
                    number(share, 100.0).ok_or_else(|| not("its size is in percent"))? / 100.0
                }
                _ => return Err(not("its size is one share of width or height")),
            };
            let place = match (x, y) {
                (Some(x), Some(y)) => Place::Towards(x, y),
                (None, None) => Place::Everywhere,
                _ => return Err(not("it repeats both ways or in none")),
            };
            *mark = Some(if url.contains("://") { url.into_owned() } else { format!("http://{url}") });
            let opacity = 1.0 - clear / 100.0;
            edit.watermark =
                Some(Watermark { opacity, place, offset: (offset_x, offset_y), scale, source: None, file: None });
        }
        other => return wrong(format!("the filter {other:?} is not offered; offered are: {FILTERS}")),
    }
    Ok(())
}

/// Hundredths and pixels of a place; no hundredths: over and over.
fn along(text: &str) -> Option<(Option<u8>, i32)> {
    match text {
        "center" => Some((Some(50), 0)),
        "repeat" => Some((None, 0)),
        _ => {
            let pixels: i32 = text.parse().ok().filter(|n: &i32| n.unsigned_abs() <= crate::limits::SIDE_MAX)?;
            Some((Some(if text.starts_with('-') { 100 } else { 0 }), pixels.abs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Format, Resize};

    fn edit(options: &str) -> Edit {
        let asked = read(&format!("/unsafe/{options}/origin://photos/a.jpg"), &[]).unwrap();
        assert_eq!(asked.source, "origin://photos/a.jpg");
        asked.edit
    }

    fn sized(mode: Mode, width: u32, height: u32) -> Edit {
        let resize = Resize { mode, width, height, enlarge: mode == Mode::Fill, extend: false };
        Edit { resize, ..Edit::default() }
    }

    #[test]
    fn each_part_has_its_meaning() {
        let fill = sized(Mode::Fill, 300, 200);
        for (options, expected) in [
            ("300x200", fill.clone()),
            ("300x", Edit { resize: Resize { height: 0, ..fill.resize }, ..Edit::default() }),
            ("fit-in/300x200", sized(Mode::Fit, 300, 200)),
            ("300x200/right/top", Edit { gravity: Gravity::Towards(100, 0), ..fill.clone() }),
            ("300x200/smart", Edit { gravity: Gravity::Smart, ..fill.clone() }),
            (
                "10x20:110x70/300x200",
                Edit { crop: Some(Crop { width: 100, height: 50, gravity: Gravity::At(10, 20) }), ..fill.clone() },
            ),
            (
                "trim:30/300x200",
                Edit { trim: Some(Trim { threshold: 30.0, colour: None, is_even: (false, false) }), ..fill.clone() },
            ),
            (
                "300x200/filters:quality(40):format(webp):grayscale():strip_icc()",
                Edit { quality: Some(40), format: Some(Format::Webp), grey: true, ..fill.clone() },
            ),
            (
                "300x200/filters:no_upscale():blur(7,2):rotate(90)",
                Edit { resize: Resize { enlarge: false, ..fill.resize }, blur: 2.0, rotate: 270, ..Edit::default() },
            ),
            (
                "fit-in/300x200/filters:fill(ff0000)",
                Edit {
                    resize: Resize { extend: true, ..sized(Mode::Fit, 300, 200).resize },
                    background: Some([255, 0, 0]),
                    ..Edit::default()
                },
            ),
            (
                "300x200/filters:watermark(origin://photos/l.png,-10,center,25,20)",
                Edit {
                    watermark: Some(Watermark {
                        opacity: 0.75,
                        place: Place::Towards(100, 50),
                        offset: (10, 0),
                        scale: 0.2,
                        source: Some("origin://photos/l.png".into()),
                        file: None,
                    }),
                    ..fill.clone()
                },
            ),
        ] {
            assert_eq!(edit(options), expected, "{options}");
        }
        let plain = read("/unsafe/example.org/a%20b/300x200/c.jpg", &[]).unwrap();
        assert_eq!(plain.source, "http://example.org/a b/300x200/c.jpg", "a source has such parts of its own");
    }

    #[test]
    fn what_is_not_offered_is_named() {
        for (path, named) in [
            ("meta/300x200/a", "\"meta\" is not offered"),
            ("full-fit-in/1x1/a", "\"full-fit-in\" is not offered"),
            ("-300x200/a", "\"-300\" in \"-300x200\" is not offered"),
            ("origx200/a", "\"orig\" in \"origx200\" is not offered"),
            ("99999x1/a", "\"99999\""),
            ("trim:bottom-right/a", "\"bottom-right\""),
            ("9x9:1x1/a", "is no part of a picture"),
            ("filters:round_corner(20)/a", "the filter \"round_corner\" is not offered; offered are: background_color"),
            ("filters:quality(x)/a", "quality(x) is not offered"),
            ("filters:quality(9/a", "its arguments have no end"),
            ("filters:quality(9)a", "after them comes /"),
            ("filters:format(jxl)/a", "\"jxl\" is not offered"),
            ("filters:watermark()/a", "its first is a URL"),
            ("filters:watermark(a,repeat,0)/a", "it repeats both ways"),
            ("300x200/", "it names no source"),
        ] {
            let Err(Wrong::Unreadable(why)) = read(&format!("/unsafe/{path}"), &[]) else { panic!("{path}") };
            assert!(why.contains(named), "{path}: {why}");
        }
    }

    #[test]
    fn with_a_key_only_what_is_signed_is_read() {
        let key = |text: &[u8]| hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, text);
        // From thumbor's own documentation (security).
        let path = "300x200/smart/path/to/image.jpg";
        let keys = [key(b"other"), key(b"MY_SECURE_KEY")];
        let tag = hmac::sign(&keys[1], path.as_bytes());
        let signed = format!("/{}/{path}", URL_SAFE.encode(tag));
        assert_eq!(read(&signed, &keys).unwrap().source, "http://path/to/image.jpg");
        assert!(is_one(&signed, true) && !is_one(&signed, false) && is_one("/unsafe/x", false));
        for forged in [signed.replace("300", "301"), format!("/unsafe/{path}"), "/x".into(), "//".into()] {
            assert_eq!(read(&forged, &keys), Err(Wrong::Forged), "{forged}");
        }
        let mut seed = 3_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let parts = [
            "filters:",
            "watermark(",
            "fill(",
            ")",
            ":",
            "/",
            "x",
            "9",
            "-",
            "trim",
            "é",
            "%",
            "smart",
            "fit-in",
            ",",
            "#",
            "1x1:2x2",
        ];
        for _ in 0..5000 {
            let path: String = (0..next() % 12).map(|_| parts[next() % parts.len()]).collect();
            let _ = (read(&format!("/unsafe/{path}"), &[]), is_one(&path, true));
        }
    }
}
