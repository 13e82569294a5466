//! Libraries of functions in Lua (`FUNCTION LOAD`): what stands above their code, what they register, how they are written down, and
//! the bytes of `FUNCTION DUMP`, which are Redis' own.

use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};

use super::limits::{DUMP_BYTES_MAX, LIBRARY_NAMES_MAX};

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
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
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
    let name = name.ok_or("ERR Library name was not given")?;
    if !is_name(&name) {
        let why = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
        return Err(why.into());
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Engine '{engine}' not found"));
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
/// Newer formats of Redis write libraries the same.
const VERSION_MAX: u16 = 15;

pub fn dump(codes: &[Bytes]) -> Bytes {
    let mut out = Vec::new();
    for code in codes {
        out.push(OPCODE);
        match code.len() {
            len @ 0..64 => out.push(len as u8),
            len @ 64..0x4000 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
            len => {
                out.push(0x80);
                out.extend((len as u32).to_be_bytes());
            }
        }
        out.extend_from_slice(code);
    }
    out.extend(VERSION.to_le_bytes());
    out.extend(crc64(&out).to_le_bytes());
    out.into()
}

/// The codes of a dump. None: it is none, or damaged.
pub fn undump(dump: &Bytes) -> Option<Vec<Bytes>> {
    let at = dump.len().checked_sub(10)?;
    let (mut body, version, crc) =
        (dump.slice(..at), dump.slice(at..at + 2).get_u16_le(), dump.slice(at + 2..).get_u64_le());
    if version > VERSION_MAX || (crc != 0 && crc != crc64(&dump[..at + 2])) {
        return None;
    }
    let (mut codes, mut bytes) = (Vec::new(), 0);
    while body.has_remaining() {
        if body.get_u8() != OPCODE {
            return None;
        }
        let code = text(&mut body)?;
        bytes += code.len();
        if bytes > DUMP_BYTES_MAX {
            return None;
        }
        codes.push(code);
    }
    Some(codes)
}

fn text(from: &mut Bytes) -> Option<Bytes> {
    let first = from.try_get_u8().ok()?;
    if first == 0xc3 {
        let (packed, len) = (length(from)?, length(from)?);
        let packed = (packed <= from.len()).then(|| from.split_to(packed))?;
        return lzf(&packed, len).map(Bytes::from);
    }
    let len = length_of(first, from)?;
    (len <= from.len()).then(|| from.split_to(len))
}

fn length(from: &mut Bytes) -> Option<usize> {
    let first = from.try_get_u8().ok()?;
    length_of(first, from)
}

fn length_of(first: u8, from: &mut Bytes) -> Option<usize> {
    match (first >> 6, first) {
        (0, _) => Some(usize::from(first)),
        (1, _) => Some(usize::from(first & 0x3f) << 8 | usize::from(from.try_get_u8().ok()?)),
        (2, 0x80) => Some(from.try_get_u32().ok()? as usize),
        (2, 0x81) => usize::try_from(from.try_get_u64().ok()?).ok(),
        _ => None,
    }
}

/// LibLZF, which Redis packs texts with.
fn lzf(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > DUMP_BYTES_MAX {
        return None;
    }
    let mut out: Vec<u8> = Vec::with_capacity(len);
    while let Some((first, rest)) = packed.split_first() {
        packed = rest;
        if *first < 32 {
            let (plain, rest) = packed.split_at_checked(usize::from(*first) + 1)?;
            out.extend_from_slice(plain);
            packed = rest;
        } else {
            let mut count = usize::from(first >> 5);
            if count == 7 {
                let (more, rest) = packed.split_first()?;
                (count, packed) = (count + usize::from(*more), rest);
            }
            let (low, rest) = packed.split_first()?;
            packed = rest;
            let back = (usize::from(first & 0x1f) << 8 | usize::from(*low)) + 1;
            let from = out.len().checked_sub(back)?;
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// As Redis computes it (Jones).
fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ REFLECTED } else { crc >> 1 })
    })
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
        // Check value of this CRC, as in Redis' own source.
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
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

    #[test]
    fn packed_texts_are_unpacked_and_rubbish_is_none() {
        assert_eq!(lzf(&[0, b'a', 0xe0, 1, 0], 11), Some(vec![b'a'; 11]));
        assert_eq!(lzf(&[1, b'a', b'b', 0x20, 1], 5), Some(b"ababa".to_vec()));
        for (bad, len) in [(&[5, b'a'][..], 6), (&[0x20, 0], 3), (&[0xe0], 9), (&[0, b'a', 0xe0, 1, 0], 10)] {
            assert_eq!(lzf(bad, len), None, "{bad:?}");
        }
    }
}
