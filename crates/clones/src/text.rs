//! Forms that people write in declarations: lengths of time (`500ms`, `10s`, `5m`, `1h`) and signals (`TERM`), for serde's
//! `with`. Errors say what would be right.

use std::fmt;

use base::{Signal, Span};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

/// Units, longest first, with their length in microseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];

/// `500ms`, `10s`, `5m`, `1h`, `7d`: a whole number and a unit.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let wrong = || format!("{text:?} is not a length of time; write for example \"500ms\", \"10s\", \"5m\" or \"1h\"");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let (_, micros) = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]).ok_or_else(wrong)?;
    number.checked_mul(*micros).map(Span).ok_or_else(wrong)
}

/// The form that [`parse_span`] reads, in the longest unit that loses nothing (below a millisecond is cut off).
pub fn format_span(span: Span) -> String {
    if span.as_millis() == 0 {
        return "0s".to_owned();
    }
    let (unit, micros) = UNITS.iter().find(|(_, micros)| span.0.is_multiple_of(*micros)).unwrap_or(&UNITS[4]);
    format!("{}{unit}", span.0 / micros)
}

const SIGNALS: [(&str, Signal); 7] = [
    ("TERM", Signal::Term),
    ("INT", Signal::Int),
    ("HUP", Signal::Hup),
    ("QUIT", Signal::Quit),
    ("USR1", Signal::Usr1),
    ("USR2", Signal::Usr2),
    ("KILL", Signal::Kill),
];

/// For `#[serde(with = "text::span")]`.
pub mod span {
    use super::*;

    pub fn serialize<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_span(*span))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        from.deserialize_str(Reader)
    }

    struct Reader;

    impl Visitor<'_> for Reader {
        type Value = Span;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a length of time, with its unit and in quotes, like \"10s\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
            parse_span(text).map_err(E::custom)
        }
    }
}

/// The same for one that may be left out.
pub mod some_span {
    use super::*;

    pub fn serialize<S: Serializer>(span: &Option<Span>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::span::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
        super::span::deserialize(from).map(Some)
    }
}

/// Units of sizes, longest first, in bytes.
const BYTE_UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `500KiB`, `10MiB`, `2GiB`: a whole number and a unit; or bytes without one.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write for example \"512KiB\", \"10MiB\" or \"2GiB\"");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let (_, bytes) =
        BYTE_UNITS.iter().chain([&("", 1)]).find(|(unit, _)| *unit == &text[digits..]).ok_or_else(wrong)?;
    number.checked_mul(*bytes).ok_or_else(wrong)
}

/// The form that [`parse_bytes`] reads, in the longest unit that loses nothing.
pub fn format_bytes(bytes: u64) -> String {
    let fits = BYTE_UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// For `#[serde(with = "text::some_bytes")]`: a size, as text or as a number of bytes, that may be left out.
pub mod some_bytes {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => to.serialize_str(&format_bytes(*bytes)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        from.deserialize_any(Reader).map(Some)
    }

    struct Reader;

    impl Visitor<'_> for Reader {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size, with its unit and in quotes, like \"10MiB\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            parse_bytes(text).map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes)
                .map_err(|_| parse_bytes(&bytes.to_string()).expect_err("a sign is no digit"))
                .map_err(E::custom)
        }
    }
}

/// For `#[serde(deserialize_with = "text::run")]`: a program and its arguments.
pub fn run<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Words {
        like: "run = [\"python3\", \"app.py\"]",
        key: "run",
        why: "a program is started without a shell",
    })
}

/// For `#[serde(deserialize_with = "text::methods")]`: of HTTP requests.
pub fn methods<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Words { like: "method = [\"GET\", \"HEAD\"]", key: "method", why: "these are a list" })
}

struct Words {
    like: &'static str,
    key: &'static str,
    /// Of one text in place of a list.
    why: &'static str,
}

impl<'de> Visitor<'de> for Words {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of words, like {}", self.like)
    }

    fn visit_str<E: Error>(self, line: &str) -> Result<Vec<String>, E> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Err(E::custom(format!("{}: write its words, {} = {words:?}", self.why, self.key)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = seq.next_element()? {
            words.push(word);
        }
        Ok(words)
    }
}

/// For `#[serde(with = "text::signal")]`.
pub mod signal {
    use super::*;

    pub fn serialize<S: Serializer>(signal: &Signal, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(SIGNALS.iter().find(|(_, s)| s == signal).expect("every signal is in the list").0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Signal, D::Error> {
        let text = String::deserialize(from)?;
        let name = text.strip_prefix("SIG").unwrap_or(&text);
        SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal).ok_or_else(|| {
            let known: Vec<_> = SIGNALS.iter().map(|(name, _)| *name).collect();
            D::Error::custom(format!("{text:?} is not a signal that can be sent; known are {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_and_write_the_same() {
        for (text, span) in [
            ("500ms", Span::millis(500)),
            ("10s", Span::secs(10)),
            ("5m", Span::secs(300)),
            ("1h", Span::secs(3600)),
            ("7d", Span::secs(604_800)),
            ("0s", Span::ZERO),
            ("1500ms", Span::millis(1500)),
        ] {
            assert_eq!(parse_span(text), Ok(span), "{text}");
            assert_eq!(format_span(span), text);
        }
    }

    #[test]
    fn sizes_read_and_write_the_same() {
        for (text, bytes) in
            [("1", 1), ("1023", 1023), ("1KiB", 1024), ("1500MiB", 1500 << 20), ("2GiB", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!((parse_bytes(text), format_bytes(bytes).as_str()), (Ok(bytes), text));
        }
        assert_eq!((parse_bytes("1024KiB"), format_bytes(0).as_str()), (Ok(1 << 20), "0"));
        for text in ["", "GiB", "2 GiB", "2gib", "2GB", "-1", "1.5GiB", "99999999999999999999", "99999999TiB", "5é"] {
            let error = parse_bytes(text).unwrap_err();
            assert!(error.contains("10MiB") && error.starts_with(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn what_is_not_a_length_of_time_says_what_would_be() {
        for text in ["", "5", "s", "5 s", "-5s", "1.5s", "5y", "99999999999999999999s", "9999999999999999d", "5é"] {
            let error = parse_span(text).unwrap_err();
            assert!(error.contains("10s") && error.starts_with(&format!("{text:?}")), "{error}");
        }
    }
}
