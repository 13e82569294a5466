//! Values as Redis writes them in `DUMP` payloads and RDB files, so that they move between a Redis and here: texts, lists, sets, sorted
//! sets, hashes and streams (`stream.rs`). What is written has the plainest of Redis' encodings, which every Redis since 5 reads; what is read may have any
//! that Redis has written since 2.6.

use bytes::{Buf, Bytes};

use state::linear::stream::Stream;

use super::limits::{DUMP_BYTES_MAX, RESTORED_ITEMS_MAX};

mod stream;

/// Format of what is written here: that of Redis 5.
const VERSION: u16 = 9;
/// ... of hashes whose fields end: that of Redis 7.4.
const VERSION_ENDING: u16 = 12;
/// The newest whose values are read as below; Redis 8 has 12.
const VERSION_MAX: u16 = 15;
/// The latest moment at which a field ends in a Redis.
const MOMENT_MAX: u64 = (1 << 48) - 2;
/// Version and CRC-64.
const FOOTER_BYTES: usize = 10;

/// A whole value. Members are in the order in which they came.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Text(Bytes),
    List(Vec<Bytes>),
    Set(Vec<Bytes>),
    /// Members with their scores.
    Sorted(Vec<(Bytes, f64)>),
    /// Fields with their texts.
    Hash(Vec<(Bytes, Bytes)>),
    /// Of which some end: with Unix milliseconds, or 0.
    HashEnding(Vec<(Bytes, Bytes, u64)>),
    Stream(Box<Stream>),
}

/// Why a payload is none of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// It was cut or changed, or is of a version that is not known.
    Footer,
    /// Its bytes are no value of their type.
    Format,
    /// Its type is one that is not read here.
    Type(u8),
}

mod kind {
    pub const TEXT: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// Scores are texts.
    pub const SORTED_OLD: u8 = 3;
    pub const HASH: u8 = 4;
    pub const SORTED: u8 = 5;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTEGERS: u8 = 11;
    pub const SORTED_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_OF_ZIPLISTS: u8 = 14;
    pub const HASH_LISTPACK: u8 = 16;
    pub const SORTED_LISTPACK: u8 = 17;
    pub const LIST_OF_LISTPACKS: u8 = 18;
    pub const SET_LISTPACK: u8 = 20;
    /// Hashes whose fields end. The first two are of candidates of 7.4: their moments are whole.
    pub const HASH_ENDING_OLD: u8 = 22;
    pub const HASH_ENDING_LISTPACK_OLD: u8 = 23;
    pub const HASH_ENDING: u8 = 24;
    pub const HASH_ENDING_LISTPACK: u8 = 25;
}

/// A payload with its version and checksum behind it.
pub fn sealed(mut body: Vec<u8>, version: u16) -> Bytes {
    body.extend(version.to_le_bytes());
    body.extend(crc64(&body).to_le_bytes());
    body.into()
}

/// What lies before version and checksum, if both are right.
pub fn opened(payload: &Bytes) -> Option<Bytes> {
    let at = payload.len().checked_sub(FOOTER_BYTES)?;
    let (version, crc) = (payload.slice(at..).get_u16_le(), payload.slice(at + 2..).get_u64_le());
    let is_right = version <= VERSION_MAX && (crc == 0 || crc == crc64(&payload[..at + 2]));
    is_right.then(|| payload.slice(..at))
}

/// As `DUMP` answers it.
pub fn dump(value: &Value) -> Bytes {
    let mut out = Vec::new();
    match value {
        Value::Text(text) => {
            out.push(kind::TEXT);
            put_text(&mut out, text);
        }
        Value::List(items) | Value::Set(items) => {
            out.push(if matches!(value, Value::List(_)) { kind::LIST } else { kind::SET });
            put_length(&mut out, items.len());
            items.iter().for_each(|item| put_text(&mut out, item));
        }
        Value::Sorted(members) => {
            out.push(kind::SORTED);
            put_length(&mut out, members.len());
            for (member, score) in members {
                put_text(&mut out, member);
                out.extend(score.to_le_bytes());
            }
        }
        Value::Hash(fields) => {
            out.push(kind::HASH);
            put_length(&mut out, fields.len());
            for (field, text) in fields {
                put_text(&mut out, field);
                put_text(&mut out, text);
            }
        }
        Value::HashEnding(fields) => {
            // The first end, and how much later each is, and one: 0 does not end.
            let first = fields.iter().map(|(_, _, end)| *end).filter(|end| *end != 0).min().unwrap_or(0);
            out.push(kind::HASH_ENDING);
            out.extend(first.to_le_bytes());
            put_length(&mut out, fields.len());
            for (field, text, end) in fields {
                put_number(&mut out, if *end == 0 { 0 } else { end - first + 1 });
                put_text(&mut out, field);
                put_text(&mut out, text);
            }
            return sealed(out, VERSION_ENDING);
        }
        Value::Stream(stream) => {
            stream::put(&mut out, stream);
            return sealed(out, stream::VERSION);
        }
    }
    sealed(out, VERSION)
}

/// As `RESTORE` takes it. A collection has at least one member, as it has in Redis.
pub fn restore(payload: &Bytes) -> Result<Value, Bad> {
    let mut from = opened(payload).ok_or(Bad::Footer)?;
    let kind = from.try_get_u8().map_err(|_| Bad::Format)?;
    let value = match kind {
        kind::TEXT => text(&mut from).map(Value::Text),
        kind::LIST => texts(&mut from, 1).map(Value::List),
        kind::SET => texts(&mut from, 1).map(Value::Set),
        kind::HASH => texts(&mut from, 2).and_then(paired).map(Value::Hash),
        kind::SORTED | kind::SORTED_OLD => sorted(&mut from, kind == kind::SORTED).map(Value::Sorted),
        kind::LIST_ZIPLIST => text(&mut from).and_then(ziplist).map(Value::List),
        kind::SORTED_ZIPLIST => text(&mut from).and_then(ziplist).and_then(scored).map(Value::Sorted),
        kind::HASH_ZIPLIST => text(&mut from).and_then(ziplist).and_then(paired).map(Value::Hash),
        kind::SET_INTEGERS => text(&mut from).and_then(integers).map(Value::Set),
        kind::HASH_LISTPACK => text(&mut from).and_then(listpack).and_then(paired).map(Value::Hash),
        kind::HASH_ENDING_OLD | kind::HASH_ENDING => ending(&mut from, kind).map(Value::HashEnding),
        kind::HASH_ENDING_LISTPACK_OLD | kind::HASH_ENDING_LISTPACK => {
            let is_headed = kind == kind::HASH_ENDING_LISTPACK;
            let is_sound = !is_headed || from.try_get_u64_le().is_ok();
            is_sound.then(|| text(&mut from)).flatten().and_then(listpack).and_then(tripled).map(Value::HashEnding)
        }
        kind::SORTED_LISTPACK => text(&mut from).and_then(listpack).and_then(scored).map(Value::Sorted),
        kind::SET_LISTPACK => text(&mut from).and_then(listpack).map(Value::Set),
        kind::LIST_OF_ZIPLISTS | kind::LIST_OF_LISTPACKS => nodes(&mut from, kind).map(Value::List),
        kind if stream::KINDS.contains(&kind) => {
            stream::read(&mut from, kind).map(|stream| Value::Stream(Box::new(stream)))
        }
        other => return Err(Bad::Type(other)),
    };
    value.filter(|value| !from.has_remaining() && !value.is_empty() && value.is_sound()).ok_or(Bad::Format)
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            // A stream knows its last id and has groups.
            Self::Text(_) | Self::Stream(_) => false,
            Self::List(items) | Self::Set(items) => items.is_empty(),
            Self::Sorted(members) => members.is_empty(),
            Self::Hash(fields) => fields.is_empty(),
            Self::HashEnding(fields) => fields.is_empty(),
        }
    }

    /// Members and fields stand once, and scores are numbers.
    fn is_sound(&self) -> bool {
        fn once<'a>(names: impl ExactSizeIterator<Item = &'a Bytes>) -> bool {
            let count = names.len();
            names.collect::<std::collections::HashSet<_>>().len() == count
        }
        match self {
            Self::Text(_) | Self::List(_) | Self::Stream(_) => true,
            Self::Set(members) => once(members.iter()),
            Self::Hash(fields) => once(fields.iter().map(|(field, _)| field)),
            Self::HashEnding(fields) => {
                once(fields.iter().map(|(field, _, _)| field)) && fields.iter().all(|(_, _, end)| *end <= MOMENT_MAX)
            }
            Self::Sorted(members) => {
                once(members.iter().map(|(member, _)| member)) && members.iter().all(|(_, score)| !score.is_nan())
            }
        }
    }
}

// Lengths and texts.

fn put_length(out: &mut Vec<u8>, len: usize) {
    match len {
        0..64 => out.push(len as u8),
        64..0x4000 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
        _ => {
            out.push(0x80);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

/// A length that may be longer than any text.
fn put_number(out: &mut Vec<u8>, number: u64) {
    match u32::try_from(number) {
        Ok(short) => put_length(out, short as usize),
        Err(_) => {
            out.push(0x81);
            out.extend(number.to_be_bytes());
        }
    }
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len());
    out.extend_from_slice(text);
}

/// A text: as it is, packed, or a number that stands for its digits.
pub fn text(from: &mut Bytes) -> Option<Bytes> {
    let first = from.try_get_u8().ok()?;
    match first {
        0xc0 => from.try_get_i8().ok().map(digits),
        0xc1 => from.try_get_i16_le().ok().map(digits),
        0xc2 => from.try_get_i32_le().ok().map(digits),
        0xc3 => {
            let (packed, len) = (length(from)?, length(from)?);
            let packed = (packed <= from.len()).then(|| from.split_to(packed))?;
            lzf(&packed, len).map(Bytes::from)
        }
        _ => {
            let len = length_of(first, from)?;
            (len <= from.len()).then(|| from.split_to(len))
        }
    }
}

fn digits(number: impl Into<i64>) -> Bytes {
    Bytes::from(number.into().to_string())
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

/// A count, and so many times `each` texts. What is announced reserves nothing: packed texts are bounded together.
fn texts(from: &mut Bytes, each: usize) -> Option<Vec<Bytes>> {
    let count = length(from)?.checked_mul(each).filter(|count| *count <= RESTORED_ITEMS_MAX)?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let one = text(from)?;
        bytes += one.len();
        if bytes > DUMP_BYTES_MAX {
            return None;
        }
        all.push(one);
    }
    Some(all)
}

fn paired(flat: Vec<Bytes>) -> Option<Vec<(Bytes, Bytes)>> {
    let (pairs, rest) = flat.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[field, text]| (field.clone(), text.clone())).collect())
}

/// Fields, values and moments in turn.
fn tripled(flat: Vec<Bytes>) -> Option<Vec<(Bytes, Bytes, u64)>> {
    let (triples, rest) = flat.as_chunks::<3>();
    let end = |text: &Bytes| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let of = |[field, text, at]: &[Bytes; 3]| Some((field.clone(), text.clone(), end(at)?));
    rest.is_empty().then(|| triples.iter().map(of).collect()).flatten()
}

/// The first end, and of each field how much later it ends, and one (0: it does not); before 7.4 was ready, the moments themselves.
fn ending(from: &mut Bytes, kind: u8) -> Option<Vec<(Bytes, Bytes, u64)>> {
    let first = if kind == kind::HASH_ENDING { from.try_get_u64_le().ok()? } else { 1 };
    let count = length(from)?.checked_mul(2).filter(|count| *count <= RESTORED_ITEMS_MAX)? / 2;
    let (mut fields, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let end = match length(from)? as u64 {
            0 => 0,
            later => first.checked_add(later - 1)?,
        };
        let (field, value) = (text(from)?, text(from)?);
        bytes += field.len() + value.len();
        if bytes > DUMP_BYTES_MAX {
            return None;
        }
        fields.push((field, value, end));
    }
    Some(fields)
}

fn scored(flat: Vec<Bytes>) -> Option<Vec<(Bytes, f64)>> {
    let score = |text: Bytes| std::str::from_utf8(&text).ok()?.parse::<f64>().ok();
    paired(flat)?.into_iter().map(|(member, text)| Some((member, score(text)?))).collect()
}

fn sorted(from: &mut Bytes, is_binary: bool) -> Option<Vec<(Bytes, f64)>> {
    let count = length(from)?.checked_mul(2).filter(|count| *count <= RESTORED_ITEMS_MAX)? / 2;
    let (mut members, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let member = text(from)?;
        bytes += member.len();
        if bytes > DUMP_BYTES_MAX {
            return None;
        }
        let score = if is_binary { from.try_get_f64_le().ok()? } else { old_score(from)? };
        members.push((member, score));
    }
    Some(members)
}

/// One byte of length and a text; three lengths say what is no number.
fn old_score(from: &mut Bytes) -> Option<f64> {
    match from.try_get_u8().ok()? {
        253 => Some(f64::NAN),
        254 => Some(f64::INFINITY),
        255 => Some(f64::NEG_INFINITY),
        len => {
            let text = (usize::from(len) <= from.len()).then(|| from.split_to(usize::from(len)))?;
            std::str::from_utf8(&text).ok()?.parse().ok()
        }
    }
}

/// A list in nodes: each a packed list of items, or one large item as it is.
fn nodes(from: &mut Bytes, kind: u8) -> Option<Vec<Bytes>> {
    const PLAIN: usize = 1;
    let count = length(from)?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let container = if kind == kind::LIST_OF_LISTPACKS { length(from)? } else { 0 };
        let node = text(from)?;
        bytes += node.len();
        if bytes > DUMP_BYTES_MAX || items.len() >= RESTORED_ITEMS_MAX {
            return None;
        }
        match (kind, container) {
            (kind::LIST_OF_ZIPLISTS, _) => items.extend(ziplist(node)?),
            (_, PLAIN) => items.push(node),
            _ => items.extend(listpack(node)?),
        }
    }
    Some(items)
}

// Packed collections.

/// Width and count, then numbers in ascending order.
fn integers(mut from: Bytes) -> Option<Vec<Bytes>> {
    let (width, count) = (from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()? as usize);
    let is_whole = matches!(width, 2 | 4 | 8)
        && count <= RESTORED_ITEMS_MAX
        && count.checked_mul(width as usize) == Some(from.len());
    is_whole.then(|| {
        let number = |from: &mut Bytes| from.get_int_le(width as usize);
        (0..count).map(|_| digits(number(&mut from))).collect()
    })
}

/// Bytes, offset of the last entry, count; entries; 255.
fn ziplist(whole: Bytes) -> Option<Vec<Bytes>> {
    let mut from = whole.clone();
    let (bytes, _last, _count) =
        (from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()?, from.try_get_u16_le().ok()?);
    if bytes as usize != whole.len() {
        return None;
    }
    let mut items = Vec::new();
    loop {
        // The length of the entry before.
        match from.try_get_u8().ok()? {
            255 => return (!from.has_remaining()).then_some(items),
            254 => drop(from.try_get_u32_le().ok()?),
            _ => (),
        }
        let first = from.try_get_u8().ok()?;
        let len = match first >> 6 {
            0 => Some(usize::from(first)),
            1 => Some(usize::from(first & 0x3f) << 8 | usize::from(from.try_get_u8().ok()?)),
            2 => Some(from.try_get_u32().ok()? as usize),
            _ => None,
        };
        if items.len() >= RESTORED_ITEMS_MAX {
            return None;
        }
        items.push(match (len, first) {
            (Some(len), _) => (len <= from.len()).then(|| from.split_to(len))?,
            (None, 0xc0) => digits(from.try_get_i16_le().ok()?),
            (None, 0xd0) => digits(from.try_get_i32_le().ok()?),
            (None, 0xe0) => digits(from.try_get_i64_le().ok()?),
            (None, 0xf0) if from.len() >= 3 => digits(from.get_int_le(3)),
            (None, 0xfe) => digits(from.try_get_i8().ok()?),
            (None, 0xf1..=0xfd) => digits(i64::from(first & 0x0f) - 1),
            (None, _) => return None,
        });
    }
}

/// Bytes, count; entries, each with its own length behind it; 255.
fn listpack(whole: Bytes) -> Option<Vec<Bytes>> {
    let mut from = whole.clone();
    let (bytes, _count) = (from.try_get_u32_le().ok()?, from.try_get_u16_le().ok()?);
    if bytes as usize != whole.len() {
        return None;
    }
    let mut items = Vec::new();
    loop {
        let before = from.len();
        let first = from.try_get_u8().ok()?;
        let len = match first {
            255 => return (!from.has_remaining()).then_some(items),
            0x80..0xc0 => Some(usize::from(first & 0x3f)),
            0xe0..0xf0 => Some(usize::from(first & 0x0f) << 8 | usize::from(from.try_get_u8().ok()?)),
            0xf0 => Some(from.try_get_u32_le().ok()? as usize),
            _ => None,
        };
        if items.len() >= RESTORED_ITEMS_MAX {
            return None;
        }
        items.push(match (len, first) {
            (Some(len), _) => (len <= from.len()).then(|| from.split_to(len))?,
            (None, 0..0x80) => digits(i64::from(first)),
            (None, 0xc0..0xe0) => {
                let number = i64::from(first & 0x1f) << 8 | i64::from(from.try_get_u8().ok()?);
                // 13 bits with a sign.
                digits(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            (None, 0xf1) => digits(from.try_get_i16_le().ok()?),
            (None, 0xf2) if from.len() >= 3 => digits(from.get_int_le(3)),
            (None, 0xf3) => digits(from.try_get_i32_le().ok()?),
            (None, 0xf4) => digits(from.try_get_i64_le().ok()?),
            (None, _) => return None,
        });
        // The entry's length, seven bits a byte, for who reads backwards.
        let behind = match before - from.len() {
            0..128 => 1,
            128..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            0x20_0000..0x1000_0000 => 4,
            _ => 5,
        };
        (behind <= from.len()).then(|| from.advance(behind))?;
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
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut crc, mut bit) = (byte as u64, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ REFLECTED } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests;
