//! Libraries of functions in Lua (`FUNCTION LOAD`): what stands above their code, what they register, how they are written down, and
//! the bytes of `FUNCTION DUMP`, which are Redis' own.

use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};

use super::limits::LIBRARY_NAMES_MAX;
use crate::resp::limits::DUMP_BYTES_MAX;
use crate::resp::rdb;

/// What is known of a library but its code.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    pub name: String,
    pub functions: Vec<Function>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl Function {
    /// It may change nothing.
    pub fn only_reads(&self) -> bool {
        self.flags.iter().any(|flag| flag == "no-writes")
    }
}

impl About {
    /// As it is kept: what is known in one line, and the code.
    pub fn with(&self, code: &[u8]) -> Bytes {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.extend_from_slice(code);
        text.into()
    }

    /// None: nobody wrote this so.
    pub fn of(text: &Bytes) -> Option<(Self, Bytes)> {
        let end = memchr::memchr(b'\n', text)?;
        Some((serde_json::from_slice(&text[..end]).ok()?, text.slice(end + 1..)))
    }
}

/// The name that stands above the code, and the code with an empty line in its place: so lines keep their numbers.
///
/// # Errors
/// As Redis says it.
pub fn header(code: &[u8]) -> Result<(String, Bytes), String> {
    if !code.starts_with(b"#!") {
        return Err("ERR Missing library metadata".into());
    }
    let end = memchr::memchr(b'\n', code).ok_or("ERR Invalid library metadata")?;
    let line = String::from_utf8_lossy(&code[2..end]).into_owned();
    // The engine stands at the beginning, so a blank there is none.
    let (engine, words) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((&line, ""));
    let words = words.split_ascii_whitespace();
    let mut name = None;
    for word in words {
        match word.split_once('=') {
            Some(("name", _)) if name.is_some() => {
                return Err("ERR Invalid metadata value, name argument was given multiple times".into());
            }
            Some(("name", given)) => name = Some(given.trim_matches(['"', '\'']).to_owned()),
            _ => return Err(format!("ERR Invalid metadata value given: {word}")),
        }
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Engine '{engine}' not found"));
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if !is_name(&name) {
        let why = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
        return Err(why.into());
    }
    Ok((name, Bytes::copy_from_slice(&code[end..])))
}

/// Of libraries and functions.
pub fn is_name(name: &str) -> bool {
    (1..=LIBRARY_NAMES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

// FUNCTION DUMP: for each library an opcode and its code as a text of Redis' RDB format; the format's version; CRC-64 of all.

const OPCODE: u8 = 245;
/// Of Redis 7.0.
const VERSION: u16 = 10;

pub fn dump(codes: &[Bytes]) -> Bytes {
    let mut out = Vec::new();
    for code in codes {
        out.push(OPCODE);
        rdb::put_text(&mut out, code);
    }
    rdb::sealed(out, VERSION)
}

/// The codes of a dump. None: it is none, or damaged.
pub fn undump(dump: &Bytes) -> Option<Vec<Bytes>> {
    let mut body = rdb::opened(dump)?;
    let (mut codes, mut bytes) = (Vec::new(), 0);
    while body.has_remaining() {
        if body.get_u8() != OPCODE {
            return None;
        }
        let code = rdb::text(&mut body)?;
        bytes += code.len();
        if bytes > DUMP_BYTES_MAX {
            return None;
        }
        codes.push(code);
    }
    Some(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_above_the_code_are_read_as_redis_reads_them() {
        let code = Bytes::from_static(b"#!lua name=lib\nreturn 1");
        assert_eq!(header(&code), Ok(("lib".into(), "\nreturn 1".into())));
        for (code, why) in [
            ("return 1", "Missing library metadata"),
            ("#!lua name=lib", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua name=a name=b\n", "was given multiple times"),
            ("#!lua foo=b\n", "Invalid metadata value given: foo=b"),
            ("#!lua name=a-b\n", "Library names can only"),
            ("#!bad name=lib\n", "Engine 'bad' not found"),
        ] {
            let wrong = header(code.as_bytes()).unwrap_err();
            assert!(wrong.contains(why), "{code}: {wrong}");
        }
    }

    #[test]
    fn a_dump_is_read_back_and_a_damaged_one_is_none() {
        let codes: Vec<Bytes> = [0, 5, 63, 64, 0x3fff, 0x4000, 70_000].map(|len| vec![b'x'; len].into()).into();
        let whole = dump(&codes);
        assert_eq!(undump(&whole), Some(codes));
        assert_eq!(undump(&dump(&[])), Some(Vec::new()));
        let small = dump(&["#!lua name=a\n".into(), "b".into()]);
        for cut in 0..small.len() {
            assert_eq!(undump(&small.slice(..cut)), None);
            let mut bad = small.to_vec();
            bad[cut] ^= 1;
            assert_eq!(undump(&bad.into()), None, "{cut}");
        }
    }
}
