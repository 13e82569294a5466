//! What each reader wants: a profile, which the edge finds by the cookie and gives with each request, so what was acknowledged at one node
//! holds for the next page through any. A page never fails for them: when they cannot be read, those that were seen last hold, or the
//! usual ones. Clusters of before have them in a namespace of class `linear`: there they are looked for if a reader has no profile, or if
//! the service has none at all.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use percent_encoding::percent_decode;
use ring::rand::{SystemRandom, generate};
use sdk::axum::http::{HeaderMap, header};
use sdk::{Linear, Profiles, Wants};
use serde::{Deserialize, Serialize};

use crate::hints;
use crate::image::{Edit, Mode, Resize};
use crate::limits::*;

/// The profile, and where it is kept.
pub const PROFILE: &str = "readers";
pub const PEOPLE: &str = "people";
/// The namespace of clusters of before.
pub const BEFORE: &str = "preferences";
pub const COOKIE: &str = "distill";
/// Widths and qualities that the toolbar offers.
pub const WIDTHS: [u32; 4] = [0, 320, 640, 1024];
pub const QUALITIES: [u8; 4] = [10, 25, 40, 70];

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Preferences {
    pub quality: u8,
    /// Pixels; 0: as wide as it is.
    pub width: u32,
    pub grey: bool,
    pub pictures: bool,
    pub words: Vec<String>,
}

impl Default for Preferences {
    fn default() -> Self {
        Self { quality: 40, width: 0, grey: false, pictures: true, words: Vec::new() }
    }
}

impl Preferences {
    /// A form's fields, and the page to go back to. What is not among what is offered is the usual.
    pub fn from_form(form: &[u8]) -> (Self, String) {
        let (mut wanted, mut back) = (Self { pictures: false, ..Self::default() }, "/".to_owned());
        for pair in form.split(|b| *b == b'&') {
            let (name, value) =
                pair.iter().position(|b| *b == b'=').map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
            let spaced: Vec<u8> = value.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
            let value = percent_decode(&spaced).decode_utf8_lossy().into_owned();
            match name {
                b"quality" => {
                    wanted.quality = value.parse().ok().filter(|q| (1..=100).contains(q)).unwrap_or(wanted.quality)
                }
                b"width" => wanted.width = value.parse().ok().filter(|w| *w <= SIDE_MAX).unwrap_or(0),
                b"grey" => wanted.grey = value == "on",
                b"pictures" => wanted.pictures = value == "on",
                b"words" => wanted.words = words(&value),
                // To a page of this site, and to nobody else's.
                b"back"
                    if value.starts_with('/')
                        && !value.starts_with("//")
                        && value.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') =>
                {
                    back = value;
                }
                _ => (),
            }
        }
        (wanted, back)
    }

    /// As a part of a picture's URL: `q40w640g`.
    pub fn as_part(&self) -> String {
        let width = if self.width > 0 { format!("w{}", self.width) } else { String::new() };
        format!("q{}{width}{}", self.quality, if self.grey { "g" } else { "" })
    }
}

/// What somebody gets who has chosen nothing: as much as the line carries, where that is known (`hints.rs`).
fn usual(headers: &HeaderMap) -> Preferences {
    let usual = Preferences::default();
    let quality = hints::quality(headers).map_or(usual.quality, |of_line| of_line.min(usual.quality));
    Preferences { quality, ..usual }
}

/// What the part of a picture's URL asks for.
pub fn edit_of(part: &str) -> Option<Edit> {
    let (rest, grey) = part.strip_suffix('g').map_or((part, false), |rest| (rest, true));
    let (quality, width) =
        rest.strip_prefix('q')?.split_once('w').map_or((&rest[1..], "0"), |(quality, width)| (quality, width));
    let quality = quality.parse().ok().filter(|q| (1..=100).contains(q))?;
    let width = width.parse().ok().filter(|w| *w <= SIDE_MAX)?;
    let resize = Resize { mode: Mode::Fit, width, ..Resize::default() };
    Some(Edit { quality: Some(quality), resize, grey, ..Edit::default() })
}

fn words(text: &str) -> Vec<String> {
    let plain = |word: &str| {
        word.chars().filter(|c| c.is_alphanumeric() || "-'".contains(*c)).take(WORD_CHARS_MAX).collect::<String>()
    };
    let all = text.split(|c: char| c.is_whitespace() || c == ',').map(plain).filter(|word| !word.is_empty());
    all.take(WORDS_MAX).collect()
}

/// Who asks, by the cookie.
pub fn reader(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let shown =
        lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    shown.filter(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).map(str::to_owned)
}

/// Somebody new, whose name nobody guesses.
pub fn new_reader() -> String {
    let random: [u8; 16] = generate(&SystemRandom::new()).expect("the kernel has random bytes").expose();
    format!("{:032x}", u128::from_be_bytes(random))
}

/// A refusal in words.
pub struct NotKept(pub String);

pub struct Readers {
    profiles: Option<Profiles<Preferences>>,
    /// As it was before there were profiles.
    before: Option<Linear<Preferences>>,
    /// What was seen last, for when they cannot be read.
    last: Mutex<(HashMap<String, Preferences>, VecDeque<String>)>,
}

impl Readers {
    pub fn new(profiles: Option<Profiles<Preferences>>, before: Option<Linear<Preferences>>) -> Self {
        Self { profiles, before, last: Mutex::default() }
    }

    pub async fn of(&self, reader: Option<&str>, during: &HeaderMap) -> Preferences {
        let Some(reader) = reader else { return usual(during) };
        match sdk::profile(during).filter(|_| self.profiles.is_some()) {
            Some(Wants::Known(found)) => {
                self.saw(reader, &found);
                return found;
            }
            Some(Wants::Old(found)) => return found,
            Some(Wants::Unknown) => return self.seen(reader),
            Some(Wants::Nothing) | None => {}
        }
        let Some(before) = &self.before else { return usual(during) };
        let kept = before.during(during);
        match tokio::time::timeout(PREFERENCES_WAIT, kept.get(reader)).await {
            Ok(Ok(found)) => {
                let found = found.map(|stored| stored.value).unwrap_or_default();
                self.saw(reader, &found);
                found
            }
            // A page with the preferences of a moment ago is better than none.
            Ok(Err(_)) | Err(_) => self.seen(reader),
        }
    }

    /// What a reader wants whom no edge has looked up.
    pub async fn look_up(&self, reader: &str) -> Preferences {
        let Some(profiles) = &self.profiles else { return self.of(Some(reader), &HeaderMap::new()).await };
        match tokio::time::timeout(PREFERENCES_WAIT, profiles.get(reader)).await {
            Ok(Ok(found)) => {
                let found = found.map(|profile| profile.value).unwrap_or_default();
                self.saw(reader, &found);
                found
            }
            Ok(Err(_)) | Err(_) => self.seen(reader),
        }
    }

    fn seen(&self, reader: &str) -> Preferences {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.0.get(reader).cloned().unwrap_or_default()
    }

    /// When it returns, any node gives these.
    pub async fn keep(&self, reader: &str, wanted: &Preferences, during: &HeaderMap) -> Result<(), NotKept> {
        let not_kept = |error: &dyn std::fmt::Display| NotKept(error.to_string());
        match (&self.profiles, &self.before) {
            (Some(profiles), _) => {
                profiles.during(during).put(reader, wanted).await.map_err(|error| not_kept(&error))?;
            }
            (None, Some(before)) => {
                let kept = before.during(during).put_for(reader, wanted, PREFERENCES_KEPT).await;
                kept.map_err(|error| not_kept(&error))?;
            }
            (None, None) => return Err(not_kept(&"the service has no namespace for them")),
        }
        self.saw(reader, wanted);
        Ok(())
    }

    fn saw(&self, reader: &str, wanted: &Preferences) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.insert(reader.to_owned(), wanted.clone()).is_none() {
            last.1.push_back(reader.to_owned());
        }
        while last.1.len() > PEOPLE_MAX {
            if let Some(oldest) = last.1.pop_front() {
                last.0.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_chosen_nothing_gets_what_the_line_carries() {
        let readers = Readers::new(None, None);
        for (name, value, quality) in [
            ("downlink", "0.025", 20),
            ("downlink", "10", 40),
            ("ect", "3g", 30),
            ("save-data", "on", 30),
            ("dnt", "1", 40),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            for reader in [None, Some("ann")] {
                assert_eq!(readers.of(reader, &headers).await.quality, quality, "{name}: {value}");
            }
        }
    }

    #[test]
    fn a_form_is_read_and_what_is_not_offered_is_not_taken() {
        let (wanted, back) = Preferences::from_form(
            b"quality=25&width=640&grey=on&pictures=on&words=honey%2C+wax+%3Cb%3E&back=%2Fa%3Fb%3D1",
        );
        let expected = Preferences {
            quality: 25,
            width: 640,
            grey: true,
            pictures: true,
            words: vec!["honey".into(), "wax".into(), "b".into()],
        };
        assert_eq!((wanted, back.as_str()), (expected, "/a?b=1"));
        for bad in ["//evil.org/", "http://evil.org", "/a\r\nX: y", "/\\evil.org", ""] {
            let form = format!(
                "quality=0&width=999999&back={}",
                percent_encoding::utf8_percent_encode(bad, percent_encoding::NON_ALPHANUMERIC)
            );
            let (wanted, back) = Preferences::from_form(form.as_bytes());
            assert_eq!((wanted.quality, wanted.width, wanted.pictures, back.as_str()), (40, 0, false, "/"), "{bad:?}");
        }
        assert_eq!(words(&"x ".repeat(1000)).len(), WORDS_MAX);
        let _ = Preferences::from_form(b"&&=&%&words=%&quality&\xff=\xff");
    }

    #[test]
    fn wishes_are_part_of_a_picture_s_url() {
        for preferences in [
            Preferences::default(),
            Preferences { quality: 10, width: 320, grey: true, ..Preferences::default() },
            Preferences { grey: true, ..Preferences::default() },
        ] {
            let edit = edit_of(&preferences.as_part()).unwrap();
            assert_eq!(
                (edit.quality, edit.resize.width, edit.grey),
                (Some(preferences.quality), preferences.width, preferences.grey)
            );
        }
        for bad in ["", "q", "q0", "q101", "w5", "q40w", "q40w99999", "q40x", "q4é", "g", "qg"] {
            assert_eq!(edit_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn readers_are_known_by_their_cookie() {
        let id = new_reader();
        let shown = |cookie: String| reader(&HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())]));
        assert_eq!(shown(format!("a=b; {COOKIE}={id}")), Some(id.clone()));
        assert_eq!(shown(format!("x{COOKIE}={id}")), None);
        assert_eq!(shown(format!("{COOKIE}=../etc")), None);
    }
}
