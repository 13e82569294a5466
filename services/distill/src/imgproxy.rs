//! URLs as imgproxy has them: `/SIGNATURE/OPTIONS/plain/SOURCE@EXTENSION` or with the source in base64. The signature is checked over
//! the path as it came, before anything of it is read. What is not offered is named in the error.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use ring::hmac;

use crate::afterwards;
use crate::image::{Crop, Edit, Format, Gravity, Mode, Place, Trim, Watermark};
use crate::limits::SIDE_MAX;
use crate::settings::Presets;

/// Key and salt.
pub type Pair = (hmac::Key, Vec<u8>);

/// What a URL asks for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Asked {
    pub source: String,
    pub edit: Edit,
    /// The watermark, if it is another than the service's.
    pub mark: Option<String>,
    /// In seconds since 1970.
    pub expires: Option<u64>,
}

/// Why a URL is refused: what is to be said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The signature is not ours, or there is none where there must be one.
    Forged,
    /// It cannot be read.
    Unreadable(String),
}

pub type Read<T> = Result<T, Wrong>;

pub fn wrong<T>(why: String) -> Read<T> {
    Err(Wrong::Unreadable(why))
}

/// Words for the place of a signature where there is none.
const UNSIGNED: [&str; 2] = ["insecure", "unsafe"];
/// Characters of a signature: 32 bytes in base64.
const SIGNATURE_CHARS: usize = 43;
const DPR_MAX: f32 = 8.0;
const SIGMA_MAX: f32 = 100.0;
/// What is shown until the picture is there.
const PLACEHOLDER_SIDE: u32 = 32;
const PLACEHOLDER_QUALITY: u8 = 20;

const OFFERED: &str = "resize (rs), size (s), resizing_type (rt), width (w), height (h), dpr, enlarge (el), extend (ex), gravity (g), \
     crop (c), trim (t), padding (pd), rotate (rot), auto_rotate (ar), background (bg), blur (bl), sharpen (sh), grey, watermark (wm), \
     watermark_url (wmu), placeholder (ph), quality (q), format (f, \
     ext), preset (pr), cachebuster (cb), expires (exp), strip_metadata (sm)";

/// Whether a path has such a form that it is meant for here, and not for a site beside it.
pub fn is_one(path: &str, has_keys: bool) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(first, _)| first);
    let is_signature = |first: &str| first.len() == SIGNATURE_CHARS && URL_SAFE_NO_PAD.decode(first).is_ok();
    first.is_some_and(|first| UNSIGNED.contains(&first) || (has_keys && is_signature(first)))
}

/// Reads a path, without its query. With any key, only what is signed with one of them.
///
/// # Errors
/// It is not signed, or asks for what is not offered.
pub fn read(path: &str, keys: &[Pair], presets: &Presets) -> Read<Asked> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (signature, _) = path.split_once('/').ok_or(Wrong::Forged)?;
    let signed = &path[signature.len()..];
    if keys.is_empty() {
        if !UNSIGNED.contains(&signature) {
            return wrong("there is no key here, so URLs begin with /insecure/".into());
        }
    } else {
        let shown = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Wrong::Forged)?;
        let is_ours =
            |(key, salt): &Pair| hmac::verify(key, &[salt.as_slice(), signed.as_bytes()].concat(), &shown).is_ok();
        // All of them are tried, whichever it is.
        if keys.iter().filter(|pair| is_ours(pair)).count() == 0 {
            return Err(Wrong::Forged);
        }
    }
    let mut asked = Asked::default();
    let mut dpr = 1.0;
    if let Some(options) = presets.get("default") {
        options.iter().try_for_each(|option| apply(option, &mut asked, &mut dpr, presets, false))?;
    }
    let mut parts = signed[1..].split('/');
    let mut first = None;
    for part in parts.by_ref() {
        if part == "plain" || !part.contains(':') {
            first = Some(part);
            break;
        }
        apply(part, &mut asked, &mut dpr, presets, true)?;
    }
    let rest: Vec<&str> = parts.collect();
    let (source, extension) = match first {
        Some("plain") => plain(&rest.join("/"))?,
        Some("enc") => return wrong("encrypted sources are not offered".into()),
        Some(first) => encoded(&format!("{first}{}", rest.concat()))?,
        None => return wrong("it names no source: /plain/URL or the URL in base64 ends it".into()),
    };
    if let Some(extension) = extension {
        asked.edit.format = Some(format(&extension)?);
    }
    if source.is_empty() {
        return wrong("its source is empty".into());
    }
    asked.source = source;
    let mark = asked.mark.take();
    if let Some(watermark) = &mut asked.edit.watermark {
        watermark.source = mark;
    }
    let times = |length: &mut u32| *length = ((*length as f32 * dpr).round() as u32).min(SIDE_MAX);
    times(&mut asked.edit.resize.width);
    times(&mut asked.edit.resize.height);
    asked.edit.padding.iter_mut().for_each(times);
    Ok(asked)
}

fn plain(text: &str) -> Read<(String, Option<String>)> {
    let (source, extension) = match text.rsplit_once('@') {
        Some((source, extension)) => (source, Some(extension.to_owned())),
        None => (text, None),
    };
    match percent_decode_str(source).decode_utf8() {
        Ok(source) => Ok((source.into_owned(), extension.filter(|extension| !extension.is_empty()))),
        Err(_) => wrong("its source is no text".into()),
    }
}

fn encoded(text: &str) -> Read<(String, Option<String>)> {
    let (source, extension) = match text.split_once('.') {
        Some((source, extension)) => (source, Some(extension.to_owned())),
        None => (text, None),
    };
    let bytes = URL_SAFE_NO_PAD.decode(source.trim_end_matches('=')).ok();
    match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(source) => Ok((source, extension)),
        None => wrong(format!("{source:?} is neither an option nor a source in base64")),
    }
}

pub fn format(name: &str) -> Read<Format> {
    match name {
        "jpg" | "jpeg" => Ok(Format::Jpeg),
        "png" => Ok(Format::Png),
        "webp" => Ok(Format::Webp),
        "avif" if afterwards::IS_BUILT => Ok(Format::Avif),
        "avif" => wrong("the format \"avif\" is not offered: this program is built without the feature avif".into()),
        other => wrong(format!("the format {other:?} is not offered; offered are: jpg, png, webp, avif")),
    }
}

/// One option, `name:argument:argument`.
fn apply(option: &str, asked: &mut Asked, dpr: &mut f32, presets: &Presets, may_name_presets: bool) -> Read<()> {
    let mut parts = option.split(':');
    let name = parts.next().unwrap_or_default();
    let args: Vec<&str> = parts.collect();
    let arg = |nth: usize| args.get(nth).copied().filter(|arg| !arg.is_empty());
    let not = |nth: usize, needed: &str| {
        Wrong::Unreadable(format!("{:?} in {option:?} is not {needed}", args.get(nth).unwrap_or(&"")))
    };
    let side =
        |nth: usize| arg(nth).map(|text| side(text).ok_or_else(|| not(nth, "a length from 0 to 16383"))).transpose();
    let flag = |nth: usize| arg(nth).map(|text| flag(text).ok_or_else(|| not(nth, "0 or 1"))).transpose();
    let mode = |nth: usize| {
        arg(nth).map(|text| mode(text).ok_or_else(|| not(nth, "fit, fill, fill-down, force or auto"))).transpose()
    };
    let number = |nth: usize, most: f32| {
        arg(nth)
            .map(|text| number(text, most).ok_or_else(|| not(nth, &format!("a number from 0 to {most}"))))
            .transpose()
    };
    let most = |count: usize| match args.get(count) {
        Some(over) => wrong(format!("{over:?} in {option:?} is one argument more than is offered")),
        None => Ok(()),
    };
    let edit = &mut asked.edit;
    match name {
        "resize" | "rs" | "size" | "s" => {
            let first = usize::from(name.starts_with('r'));
            most(first + 4)?;
            if first == 1 {
                set(&mut edit.resize.mode, mode(0)?);
            }
            set(&mut edit.resize.width, side(first)?);
            set(&mut edit.resize.height, side(first + 1)?);
            set(&mut edit.resize.enlarge, flag(first + 2)?);
            set(&mut edit.resize.extend, flag(first + 3)?);
        }
        "resizing_type" | "rt" => set(&mut edit.resize.mode, mode(0)?),
        "width" | "w" => set(&mut edit.resize.width, side(0)?),
        "height" | "h" => set(&mut edit.resize.height, side(0)?),
        "dpr" => {
            set(dpr, number(0, DPR_MAX)?.filter(|dpr| *dpr > 0.0));
            edit.has_dpr = true;
        }
        "enlarge" | "el" => set(&mut edit.resize.enlarge, flag(0)?),
        "extend" | "ex" => {
            most(1)?;
            set(&mut edit.resize.extend, flag(0)?);
        }
        "gravity" | "g" => edit.gravity = gravity(&args).ok_or_else(|| not(0, GRAVITIES))?,
        "crop" | "c" => {
            let gravity =
                if args.len() > 2 { gravity(&args[2..]).ok_or_else(|| not(2, GRAVITIES))? } else { edit.gravity };
            edit.crop = Some(Crop { width: side(0)?.unwrap_or(0), height: side(1)?.unwrap_or(0), gravity });
        }
        "trim" | "t" => {
            most(4)?;
            let threshold = number(0, 255.0)?;
            let colour = arg(1).map(|hex| background(&[hex]).ok_or_else(|| not(1, "a colour: ffffff"))).transpose()?;
            let is_even = (flag(2)?.unwrap_or(false), flag(3)?.unwrap_or(false));
            edit.trim = threshold.map(|threshold| Trim { threshold, colour: colour.flatten(), is_even });
        }
        "watermark" | "wm" => {
            most(5)?;
            let opacity = number(0, 1.0)?.unwrap_or(0.0);
            let place = arg(1).map_or(Some(Place::Towards(50, 50)), place).ok_or_else(|| not(1, PLACES))?;
            let pixels = |nth: usize| {
                let read = |text: &str| text.parse::<i32>().ok().filter(|n| n.unsigned_abs() <= SIDE_MAX);
                arg(nth).map_or(Some(0), read).ok_or_else(|| not(nth, "pixels from -16383 to 16383"))
            };
            let offset = (pixels(2)?, pixels(3)?);
            let scale = number(4, 1.0)?.unwrap_or(0.0);
            let watermark = Watermark { opacity, place, offset, scale, source: None, file: None };
            edit.watermark = (opacity > 0.0).then_some(watermark);
        }
        "watermark_url" | "wmu" => {
            let bytes = URL_SAFE_NO_PAD.decode(arg(0).unwrap_or_default().trim_end_matches('='));
            let url = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).filter(|url| !url.is_empty());
            asked.mark = Some(url.ok_or_else(|| not(0, "a URL in base64"))?);
        }
        "placeholder" | "ph" => {
            if flag(0)?.unwrap_or(true) {
                edit.resize.width = PLACEHOLDER_SIDE;
                edit.resize.height = PLACEHOLDER_SIDE;
                (edit.blur, edit.quality) = (1.0, Some(PLACEHOLDER_QUALITY));
            }
        }
        "padding" | "pd" => {
            most(4)?;
            // As in CSS: what is missing is as the side across.
            let [top, right, bottom, left] = [side(0)?, side(1)?, side(2)?, side(3)?];
            let top = top.unwrap_or(0);
            let right = right.unwrap_or(top);
            edit.padding = [top, right, bottom.unwrap_or(top), left.unwrap_or(right)];
        }
        "rotate" | "rot" => {
            let turn = arg(0).and_then(|text| text.parse().ok()).filter(|turn| [0, 90, 180, 270].contains(turn));
            edit.rotate = turn.ok_or_else(|| not(0, "0, 90, 180 or 270"))?;
        }
        "background" | "bg" => {
            edit.background = background(&args).ok_or_else(|| not(0, "a colour: 255:255:255 or ffffff"))?
        }
        "blur" | "bl" => set(&mut edit.blur, number(0, SIGMA_MAX)?),
        "sharpen" | "sh" => set(&mut edit.sharpen, number(0, SIGMA_MAX)?),
        "grey" => set(&mut edit.grey, flag(0)?),
        "quality" | "q" => {
            let quality = arg(0).and_then(|text| text.parse::<u8>().ok()).filter(|quality| *quality <= 100);
            let quality = quality.ok_or_else(|| not(0, "a quality from 1 to 100, or 0 for the usual one"))?;
            edit.quality = Some(quality).filter(|quality| *quality > 0);
        }
        "format" | "f" | "ext" => edit.format = Some(format(arg(0).unwrap_or_default())?),
        "expires" | "exp" => {
            asked.expires =
                Some(arg(0).and_then(|text| text.parse().ok()).ok_or_else(|| not(0, "seconds since 1970"))?);
        }
        "preset" | "pr" if may_name_presets => {
            for named in &args {
                let Some(options) = presets.get(*named) else { return wrong(format!("there is no preset {named:?}")) };
                options.iter().try_for_each(|option| apply(option, asked, dpr, presets, false))?;
            }
        }
        "preset" | "pr" => return wrong("a preset names a preset".into()),
        "cachebuster" | "cb" => (),
        "auto_rotate" | "ar" | "strip_metadata" | "sm" => {
            if flag(0)? == Some(false) {
                return wrong(format!("{option:?}: pictures are always turned upright, and metadata is never kept"));
            }
        }
        other => return wrong(format!("the option {other:?} is not offered; offered are: {OFFERED}")),
    }
    Ok(())
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

pub fn side(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| *n <= SIDE_MAX)
}

pub fn number(text: &str, most: f32) -> Option<f32> {
    text.parse().ok().filter(|n: &f32| (0.0..=most).contains(n))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "true" => Some(true),
        "0" | "f" | "false" => Some(false),
        _ => None,
    }
}

fn mode(text: &str) -> Option<Mode> {
    Some(match text {
        "fit" => Mode::Fit,
        "fill" => Mode::Fill,
        "fill-down" => Mode::FillDown,
        "force" => Mode::Force,
        "auto" => Mode::Auto,
        _ => return None,
    })
}

const GRAVITIES: &str = "one of no, so, ea, we, noea, nowe, soea, sowe, ce, sm, or fp:x:y";
const PLACES: &str = "one of no, so, ea, we, noea, nowe, soea, sowe, ce, or re";

fn place(name: &str) -> Option<Place> {
    match (name, gravity(&[name])) {
        ("re", _) => Some(Place::Everywhere),
        (_, Some(Gravity::Towards(x, y))) => Some(Place::Towards(x, y)),
        _ => None,
    }
}

fn gravity(args: &[&str]) -> Option<Gravity> {
    let (x, y) = match *args.first()? {
        "fp" if args.len() == 3 => {
            let share = |text: &str| number(text, 1.0).map(|share| (share * 100.0).round() as u8);
            return Some(Gravity::Towards(share(args[1])?, share(args[2])?));
        }
        "sm" => return (args.len() == 1).then_some(Gravity::Smart),
        "ce" => (50, 50),
        "no" => (50, 0),
        "so" => (50, 100),
        "ea" => (100, 50),
        "we" => (0, 50),
        "noea" => (100, 0),
        "nowe" => (0, 0),
        "soea" => (100, 100),
        "sowe" => (0, 100),
        _ => return None,
    };
    // Offsets are not offered; none is.
    args[1..].iter().all(|offset| matches!(*offset, "" | "0")).then_some(Gravity::Towards(x, y))
}

/// None: not a colour. Some(None): none behind it.
pub fn background(args: &[&str]) -> Option<Option<[u8; 3]>> {
    match args {
        [""] | [] => Some(None),
        [hex] if hex.len() == 6 && hex.is_ascii() => {
            let channel = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).ok();
            Some(Some([channel(0)?, channel(2)?, channel(4)?]))
        }
        [r, g, b] => Some(Some([r.parse().ok()?, g.parse().ok()?, b.parse().ok()?])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Resize;

    fn key(secret: &[u8], salt: &[u8]) -> Pair {
        (hmac::Key::new(hmac::HMAC_SHA256, secret), salt.to_vec())
    }

    fn insecure(path: &str) -> Read<Asked> {
        let presets = Presets::from([
            ("small".into(), vec!["rs:fit:100:0".into(), "q:30".into()]),
            ("loop".into(), vec!["pr:small".into()]),
        ]);
        read(&format!("/insecure/{path}"), &[], &presets)
    }

    fn edit(options: &str) -> Edit {
        insecure(&format!("{options}/plain/origin://photos/a.jpg")).unwrap().edit
    }

    #[test]
    fn each_option_has_its_meaning() {
        let resize = Resize { mode: Mode::Fill, width: 300, height: 200, enlarge: true, extend: true };
        let watermark = Watermark {
            opacity: 0.5,
            place: Place::Towards(100, 100),
            offset: (10, -20),
            scale: 0.25,
            source: Some("origin://p/a".into()),
            file: None,
        };
        let gravity = |x, y| Edit { gravity: Gravity::Towards(x, y), ..Edit::default() };
        let cases = [
            ("rs:fill:300:200:1:1", Edit { resize, ..Edit::default() }),
            (
                "rs:fill:300:200/s::::0",
                Edit { resize: Resize { extend: true, enlarge: true, ..resize }, ..Edit::default() },
            ),
            ("rt:fill/w:300/h:200/el:1/ex:true", Edit { resize, ..Edit::default() }),
            ("resize::300", Edit { resize: Resize { width: 300, ..Resize::default() }, ..Edit::default() }),
            (
                "w:150/dpr:2",
                Edit { resize: Resize { width: 300, ..Resize::default() }, has_dpr: true, ..Edit::default() },
            ),
            ("g:soea", gravity(100, 100)),
            ("g:fp:0.25:0.5", gravity(25, 50)),
            ("g:no:0:0", gravity(50, 0)),
            (
                "c:10:20:we",
                Edit {
                    crop: Some(Crop { width: 10, height: 20, gravity: Gravity::Towards(0, 50) }),
                    ..Edit::default()
                },
            ),
            ("pd:1:2", Edit { padding: [1, 2, 1, 2], ..Edit::default() }),
            ("bg:255:0:7", Edit { background: Some([255, 0, 7]), ..Edit::default() }),
            ("bg:ff0007", Edit { background: Some([255, 0, 7]), ..Edit::default() }),
            (
                "rot:90/bl:1.5/sh:0.5/grey:1",
                Edit { rotate: 90, blur: 1.5, sharpen: 0.5, grey: true, ..Edit::default() },
            ),
            ("q:50/f:png", Edit { quality: Some(50), format: Some(Format::Png), ..Edit::default() }),
            ("q:50/q:0/cb:7/sm:1/ar:1", Edit::default()),
            ("g:sm", Edit { gravity: Gravity::Smart, ..Edit::default() }),
            (
                "t:10.5:ff0000:1",
                Edit {
                    trim: Some(Trim { threshold: 10.5, colour: Some([255, 0, 0]), is_even: (true, false) }),
                    ..Edit::default()
                },
            ),
            ("wmu:b3JpZ2luOi8vcC9h/wm:0.5:soea:10:-20:0.25", Edit { watermark: Some(watermark), ..Edit::default() }),
            ("wm:0.5/wm:0", Edit::default()),
            (
                "pr:small",
                Edit { quality: Some(30), resize: Resize { width: 100, ..Resize::default() }, ..Edit::default() },
            ),
        ];
        for (options, expected) in cases {
            if options.contains("s::::0") {
                assert!(!edit(options).resize.extend, "an argument that is there counts");
                continue;
            }
            assert_eq!(edit(options), expected, "{options}");
        }
        assert_eq!(insecure("exp:1700000000/plain/origin://p/a").unwrap().expires, Some(1_700_000_000));
    }

    #[test]
    fn sources_are_plain_or_in_base64() {
        let url = "https://example.org/a b?c@d.jpg";
        let plain = "plain/https%3A%2F%2Fexample.org%2Fa%20b%3Fc%40d.jpg";
        let base64 = URL_SAFE_NO_PAD.encode(url);
        let (left, right) = base64.split_at(16);
        for (path, format) in [
            (plain.to_owned(), None),
            (format!("{plain}@webp"), Some(Format::Webp)),
            (format!("{plain}@"), None),
            (base64.clone(), None),
            (format!("{left}/{right}.png"), Some(Format::Png)),
            (format!("{base64}==.jpg"), Some(Format::Jpeg)),
        ] {
            let asked = insecure(&format!("q:10/{path}")).unwrap();
            assert_eq!((asked.source.as_str(), asked.edit.format), (url, format), "{path}");
        }
    }

    #[test]
    fn what_is_not_offered_is_named() {
        for (path, named) in [
            ("pixelate:1/plain/a", "\"pixelate\" is not offered"),
            ("g:obj:face/plain/a", "\"obj\" in \"g:obj:face\" is not one of no, so"),
            ("wm:2/plain/a", "is not a number from 0 to 1"),
            ("wm:1:sm/plain/a", "is not one of no, so, ea, we, noea, nowe, soea, sowe, ce, or re"),
            ("wm:1:ce:x/plain/a", "is not pixels"),
            ("wmu:!/plain/a", "is not a URL in base64"),
            ("t:300/plain/a", "is not a number from 0 to 255"),
            ("t:1:red/plain/a", "is not a colour"),
            ("g:no:5:5/plain/a", "is not one of"),
            ("rs:blow:1:1/plain/a", "\"blow\" in \"rs:blow:1:1\" is not fit"),
            ("w:99999/plain/a", "is not a length"),
            ("w:-1/plain/a", "is not a length"),
            ("q:101/plain/a", "is not a quality"),
            ("bl:nan/plain/a", "is not a number"),
            ("rot:45/plain/a", "is not 0, 90"),
            ("ar:0/plain/a", "always turned upright"),
            ("exp:soon/plain/a", "is not seconds"),
            ("pr:none/plain/a", "there is no preset \"none\""),
            ("pr:loop/plain/a", "a preset names a preset"),
            ("plain/a@jxl", "\"jxl\" is not offered"),
            ("enc/AAAA", "encrypted sources are not offered"),
            ("q:1", "it names no source"),
            ("plain/", "its source is empty"),
            ("?!", "neither an option nor a source"),
            ("rs:fit:1:1:0:0:ce/plain/a", "one argument more"),
            ("plain/%ff", "no text"),
        ] {
            let Err(Wrong::Unreadable(why)) = insecure(path) else { panic!("{path}") };
            assert!(why.contains(named), "{path}: {why}");
        }
    }

    #[test]
    fn with_keys_only_what_is_signed_is_read() {
        // From imgproxy's own documentation: key "secret", salt "hello".
        let path = "/oKfUtW34Dvo2BGQehJFR4Nr0_rIjOtdtzJ3QFsUcXH8/rs:fill:300:400:0/g:sm/aHR0cDovL2V4YW1w/bGUuY29tL2ltYWdl/cy9jdXJpb3NpdHku/anBn.png";
        let keys = [key(b"other", b"x"), key(b"secret", b"hello")];
        let none = Presets::new();
        let asked = read(path, &keys, &none).unwrap();
        assert_eq!(
            (asked.source.as_str(), asked.edit.gravity),
            ("http://example.com/images/curiosity.jpg", Gravity::Smart)
        );
        let own = |rest: &str| {
            let tag = hmac::sign(&keys[1].0, &[b"hello".as_slice(), rest.as_bytes()].concat());
            format!("/{}{rest}", URL_SAFE_NO_PAD.encode(tag))
        };
        let signed = own("/q:5/plain/https://a.org/x.jpg");
        assert_eq!(read(&signed, &keys, &none).unwrap().source, "https://a.org/x.jpg");
        assert!(
            is_one(&signed, true)
                && !is_one(&signed, false)
                && is_one("/insecure/x", false)
                && !is_one("/photo/x.jpg", true)
        );
        for forged in [
            signed.replace("q:5", "q:6"),
            signed.replacen("/", "/A", 1),
            "/insecure/q:5/plain/https://a.org/x.jpg".into(),
            "/unsafe/q:5/plain/https://a.org/x.jpg".into(),
            "//q:5/plain/a".into(),
            "/".into(),
        ] {
            assert_eq!(read(&forged, &keys, &none), Err(Wrong::Forged), "{forged}");
        }
        assert!(
            matches!(read("/abc/q:5/plain/a", &[], &none), Err(Wrong::Unreadable(why)) if why.contains("/insecure/"))
        );
    }

    #[test]
    fn nothing_that_comes_makes_it_panic() {
        let mut seed = 7_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let parts = [
            "rs",
            "g",
            "fp",
            ":",
            ":",
            "/",
            "/",
            "plain",
            "0.5",
            "-1",
            "99999999999",
            "é",
            "%",
            "%c3",
            "@",
            ".",
            "bg",
            "12345é",
            "c",
            "q",
            "enc",
            "insecure",
        ];
        for _ in 0..5000 {
            let path: String = (0..next() % 14).map(|_| parts[next() % parts.len()]).collect();
            let _ = (insecure(&path), read(&path, &[key(b"k", b"")], &Presets::new()), is_one(&path, true));
        }
    }
}
