//! Values that are maps, as their fields: JSON objects and MessagePack maps, which are what session serialisers write,
//! and hashes, which the Redis commands of that kind write. Only the outermost level is looked at, and a field stays
//! the bytes it came as: nothing is parsed into numbers or texts, so nothing is rounded or re-ordered on the way.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::Kind;
use super::cookie_ops::is_cookie_key;
use super::limits::FIELDS_MAX;
use super::table::Key;

/// How a map is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Json,
    MessagePack,
    /// Ours: [`HASH_MAGIC`], then name and value of each field, each behind its length (4 bytes, little end first).
    Hash,
}

/// What a hash begins with. The first byte begins no UTF-8 text and no MessagePack. Programs of level 1 knew hashes by it.
pub const HASH_MAGIC: &[u8] = b"\xC1hash\x01";

/// A map's fields in their order, each name once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doc {
    pub form: Form,
    /// Names and values as they are written: JSON names with their quotes.
    fields: Vec<(Bytes, Bytes)>,
}

impl Doc {
    pub fn new(form: Form) -> Self {
        Self { form, fields: Vec::new() }
    }

    /// The fields of a text, or nothing if it is no map (or has more fields than can be merged). The fields are parts
    /// of `value`. A hash is no text: see [`Doc::hash`].
    pub fn parse(value: &Bytes) -> Option<Self> {
        let (form, spans) = if is_map_head(*value.first()?) {
            (Form::MessagePack, message_pack(value)?)
        } else {
            (Form::Json, json(value)?)
        };
        Some(Self::of_spans(form, value, spans))
    }

    /// The fields of a value of kind [`Kind::Hash`]; nothing if it is not written as one.
    pub fn hash(value: &Bytes) -> Option<Self> {
        Some(Self::of_spans(Form::Hash, value, hash(value)?))
    }

    fn of_spans(form: Form, value: &Bytes, spans: Spans) -> Self {
        let part = |(from, to): Span| value.slice(from..to);
        Self { form, fields: once_each(spans.into_iter().map(|(name, value)| (part(name), part(value)))) }
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub fn fields(&self) -> &[(Bytes, Bytes)] {
        &self.fields
    }

    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.fields.iter().find(|(has, _)| has == name).map(|(_, value)| value)
    }

    /// True if the field is new.
    pub fn set(&mut self, name: Bytes, value: Bytes) -> bool {
        match self.fields.iter_mut().find(|(has, _)| *has == name) {
            Some(field) => {
                field.1 = value;
                false
            }
            None => {
                self.fields.push((name, value));
                true
            }
        }
    }

    /// The value it had.
    pub fn remove(&mut self, name: &[u8]) -> Option<Bytes> {
        let at = self.fields.iter().position(|(has, _)| has == name)?;
        Some(self.fields.remove(at).1)
    }

    /// Fields by name, where many are looked for.
    pub(super) fn by_name(&self) -> BTreeMap<&[u8], &Bytes> {
        self.fields.iter().map(|(name, value)| (&name[..], value)).collect()
    }

    pub(super) fn of(form: Form, fields: Vec<(Bytes, Bytes)>) -> Self {
        Self { form, fields }
    }

    pub fn write(&self) -> Bytes {
        let mut out = Vec::with_capacity(16 + self.fields.iter().map(|(n, v)| n.len() + v.len() + 8).sum::<usize>());
        match self.form {
            Form::Json => {
                for (at, (name, value)) in self.fields.iter().enumerate() {
                    out.push(if at == 0 { b'{' } else { b',' });
                    out.extend_from_slice(name);
                    out.push(b':');
                    out.extend_from_slice(value);
                }
                out.extend_from_slice(if self.fields.is_empty() { b"{}" } else { b"}" });
            }
            Form::MessagePack => {
                match self.fields.len() {
                    len @ 0..16 => out.push(0x80 | len as u8),
                    len => {
                        out.push(0xdf);
                        out.extend_from_slice(&(len as u32).to_be_bytes());
                    }
                }
                for (name, value) in &self.fields {
                    out.extend_from_slice(name);
                    out.extend_from_slice(value);
                }
            }
            Form::Hash => {
                out.extend_from_slice(HASH_MAGIC);
                for part in self.fields.iter().flat_map(|(name, value)| [name, value]) {
                    out.extend_from_slice(&(part.len() as u32).to_le_bytes());
                    out.extend_from_slice(part);
                }
            }
        }
        out.into()
    }

    /// A text in this form.
    pub(super) fn text(&self, text: &str) -> Bytes {
        match (self.form, text.len()) {
            // It is for names and base64, which need no escapes.
            (Form::Json, _) => format!("\"{text}\"").into(),
            (Form::MessagePack, len @ 0..32) => [&[0xa0 | len as u8], text.as_bytes()].concat().into(),
            (Form::MessagePack, len) => [&[0xdb][..], &(len as u32).to_be_bytes(), text.as_bytes()].concat().into(),
            (Form::Hash, _) => Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    /// The text that is written so, if it is one without escapes.
    pub(super) fn text_of(form: Form, written: &[u8]) -> Option<&str> {
        let text = match form {
            Form::Json => written.strip_prefix(b"\"")?.strip_suffix(b"\"")?,
            Form::MessagePack => match written.first()? {
                0xa0..=0xbf => &written[1..],
                0xd9 => written.get(2..)?,
                0xda => written.get(3..)?,
                0xdb => written.get(5..)?,
                _ => return None,
            },
            Form::Hash => written,
        };
        std::str::from_utf8(text).ok()
    }

    /// A value as it is compared: JSON without the spaces that mean nothing.
    pub(super) fn compact(form: Form, value: &[u8]) -> Cow<'_, [u8]> {
        if form != Form::Json || !value.iter().any(|byte| is_space(*byte)) {
            return Cow::Borrowed(value);
        }
        let (mut out, mut at) = (Vec::with_capacity(value.len()), 0);
        while at < value.len() {
            let end = if value[at] == b'"' { string_end(value, at).unwrap_or(value.len()) } else { at + 1 };
            if !is_space(value[at]) {
                out.extend_from_slice(&value[at..end]);
            }
            at = end;
        }
        Cow::Owned(out)
    }
}

/// What a value is that came without its kind, from a program from before there were kinds: hashes were known by how they begin.
/// By cookie there never were any.
pub(super) fn kind_of_old(key: &Key, value: &[u8]) -> Kind {
    if !is_cookie_key(key) && hash(value).is_some() { Kind::Hash } else { Kind::Text }
}

/// Of a name that is written twice the last value counts, as with every parser.
fn once_each(fields: impl Iterator<Item = (Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    let mut at = BTreeMap::new();
    let mut once: Vec<(Bytes, Bytes)> = Vec::new();
    for (name, value) in fields {
        match at.get(&name) {
            Some(&at) => once[at] = (name, value),
            None => {
                at.insert(name.clone(), once.len());
                once.push((name, value));
            }
        }
    }
    once
}

type Span = (usize, usize);
type Spans = Vec<(Span, Span)>;

fn hash(value: &[u8]) -> Option<Spans> {
    if !value.starts_with(HASH_MAGIC) {
        return None;
    }
    let mut at = HASH_MAGIC.len();
    let mut part = || {
        let len = u32::from_le_bytes(value.get(at..at + 4)?.try_into().ok()?) as usize;
        let span = (at + 4, (at + 4).checked_add(len)?);
        at = span.1;
        (at <= value.len()).then_some((span, at == value.len()))
    };
    let mut spans = Vec::new();
    let mut over = value.len() == HASH_MAGIC.len();
    while !over {
        if spans.len() == FIELDS_MAX {
            return None;
        }
        let (name, _) = part()?;
        let (value, last) = part()?;
        spans.push((name, value));
        over = last;
    }
    Some(spans)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Finds the fields of a JSON object without checking what is inside of them: what is not looked into comes out as it
/// went in.
fn json(text: &[u8]) -> Option<Spans> {
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        at
    };
    let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    let ends = |at: usize| skip(at) == text.len();
    let mut at = skip(0);
    if !is(at, b'{') {
        return None;
    }
    at = skip(at + 1);
    if is(at, b'}') {
        return ends(at + 1).then(Vec::new);
    }
    let mut spans = Vec::new();
    loop {
        if !is(at, b'"') || spans.len() == FIELDS_MAX {
            return None;
        }
        let name = (at, string_end(text, at)?);
        at = skip(name.1);
        if !is(at, b':') {
            return None;
        }
        at = skip(at + 1);
        let value = (at, json_end(text, at)?);
        spans.push((name, value));
        at = skip(value.1);
        if is(at, b'}') {
            return ends(at + 1).then_some(spans);
        }
        if !is(at, b',') {
            return None;
        }
        at = skip(at + 1);
    }
}

/// Behind the string that begins here.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 1,
            _ => (),
        }
    }
}

/// Behind the value that begins here.
fn json_end(text: &[u8], mut at: usize) -> Option<usize> {
    let (mut depth, from) = (0usize, at);
    loop {
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b'}' | b']' | b',' | b':' if depth == 0 => return None,
            byte if is_space(byte) && depth == 0 => return None,
            _ if depth > 0 => at += 1,
            // A number or a word.
            _ => {
                while text.get(at).is_some_and(|b| !is_space(*b) && !b",:]}[{\"".contains(b)) {
                    at += 1;
                }
                return Some(at);
            }
        }
        if depth == 0 && at > from {
            return Some(at);
        }
    }
}

fn is_map_head(byte: u8) -> bool {
    matches!(byte, 0x80..=0x8f | 0xde | 0xdf)
}

fn message_pack(bytes: &[u8]) -> Option<Spans> {
    let (fields, mut at) = match bytes[0] {
        head @ 0x80..=0x8f => (usize::from(head & 0x0f), 1),
        0xde => (number(bytes, 1, 2)?, 3),
        _ => (number(bytes, 1, 4)?, 5),
    };
    if fields > FIELDS_MAX {
        return None;
    }
    let mut spans = Vec::new();
    for _ in 0..fields {
        let name = (at, item_end(bytes, at)?);
        let value = (name.1, item_end(bytes, name.1)?);
        at = value.1;
        spans.push((name, value));
    }
    (at == bytes.len()).then_some(spans)
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let digits = bytes.get(at..at.checked_add(len)?)?;
    Some(digits.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Behind the MessagePack item that begins here. No recursion: it counts the items that are still to come.
fn item_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut missing = 1usize;
    while missing > 0 {
        missing -= 1;
        let head = *bytes.get(at)?;
        at += 1;
        // Bytes of the length that follows the head, bytes or items for each one it counts, and bytes besides.
        let (len, each, items, more) = match head {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0, 0, 0),
            0x80..=0x8f => (0, 0, 2 * usize::from(head & 0x0f), 0),
            0x90..=0x9f => (0, 0, usize::from(head & 0x0f), 0),
            0xa0..=0xbf => (0, 0, 0, usize::from(head & 0x1f)),
            0xc4 | 0xd9 => (1, 1, 0, 0),
            0xc5 | 0xda => (2, 1, 0, 0),
            0xc6 | 0xdb => (4, 1, 0, 0),
            0xc7 => (1, 1, 0, 1),
            0xc8 => (2, 1, 0, 1),
            0xc9 => (4, 1, 0, 1),
            0xcc | 0xd0 => (0, 0, 0, 1),
            0xcd | 0xd1 | 0xd4 => (0, 0, 0, 2),
            0xd5 => (0, 0, 0, 3),
            0xca | 0xce | 0xd2 => (0, 0, 0, 4),
            0xd6 => (0, 0, 0, 5),
            0xcb | 0xcf | 0xd3 => (0, 0, 0, 8),
            0xd7 => (0, 0, 0, 9),
            0xd8 => (0, 0, 0, 17),
            0xdc => (2, 0, 1, 0),
            0xdd => (4, 0, 1, 0),
            0xde => (2, 0, 2, 0),
            0xdf => (4, 0, 2, 0),
            0xc1 => return None,
        };
        let count = if len > 0 { number(bytes, at, len)? } else { 0 };
        at = at.checked_add(len + more)?.checked_add(count * each)?;
        missing = missing.checked_add(if len > 0 { count.checked_mul(items)? } else { items })?;
        if at > bytes.len() || missing > bytes.len() {
            return None;
        }
    }
    Some(at)
}
