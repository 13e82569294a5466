//! What `merge = "fields"` does with documents that several requests read, change and write back whole at once. It is
//! three-way: the document that a writer had read, the one it writes, and the present one.
//!
//! A writer must say which document it had read, and clients that know nothing of this only bring documents back. So the
//! document says it itself: when it is read it gets one more field, the **mark**, which holds the fingerprints of its
//! fields at that moment. Frameworks keep fields they do not know, so the mark comes back with the document, through
//! whatever connection, node or process; then it is taken out. Nothing is remembered between a read and a write, so
//! nothing can be forgotten, and no guess is needed about which read a write belongs to.
//!
//! A document without a mark was made anew (a first write, a session that was cleared): it replaces what is there.

use base::checksum::{place_hash, place_hash_pair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use super::doc::{Doc, Form};

/// The field that a document has while it is in a client's hands. Names that begin with an underscore are not the
/// application's in Django, Flask and Rails alike.
pub const MARK: &str = "_coppice";

/// Fingerprints of a document's fields: what a writer had read, or wrote last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Base {
    /// Of the name, and of name and value; 48 bits each, so that two values are taken for one once in 10^14 writes.
    /// Invariant: sorted.
    fields: Vec<(u64, u64)>,
}

/// What a document that comes back carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Of the key it was read under.
    key: u64,
    /// Of this one read: tells readers apart.
    pub reader: u64,
    pub base: Base,
}

impl Base {
    pub fn of(doc: &Doc) -> Self {
        let mut fields: Vec<_> = doc.fields().iter().map(|(name, value)| prints(doc.form, name, value)).collect();
        fields.sort_unstable();
        Self { fields }
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn has(&self, field: (u64, u64)) -> bool {
        self.fields.binary_search(&field).is_ok()
    }

    fn has_name(&self, name: &[u8]) -> bool {
        let name = print(name, 0);
        let at = self.fields.partition_point(|field| field.0 < name);
        self.fields.get(at).is_some_and(|field| field.0 == name)
    }
}

/// `current`, with what a writer who had read `base` changed when it made `new`: fields it added or changed are as it
/// says, fields it took away are gone, all others are as they are.
pub fn merge(base: &Base, new: &Doc, current: &Doc) -> Doc {
    if new.form != current.form {
        // Another serialiser: one of the two does not understand the other's fields.
        return new.clone();
    }
    let (wanted, present) = (new.by_name(), current.by_name());
    let touched = |name: &[u8], value: &[u8]| !base.has(prints(new.form, name, value));
    let mut fields = Vec::with_capacity(current.len() + new.len());
    for (name, value) in current.fields() {
        match wanted.get(&name[..]) {
            Some(new) if touched(name, new) => fields.push((name.clone(), (*new).clone())),
            Some(_) => fields.push((name.clone(), value.clone())),
            None if base.has_name(name) => (),
            None => fields.push((name.clone(), value.clone())),
        }
    }
    let added = new.fields().iter().filter(|(name, value)| !present.contains_key(&name[..]) && touched(name, value));
    fields.extend(added.cloned());
    Doc::of(new.form, fields)
}

/// A document as it is handed out.
pub fn marked(doc: &Doc, key: &[u8], reader: u64) -> Bytes {
    let base = Base::of(doc);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + FIELD_BYTES * base.len());
    bytes.push(MARK_VERSION);
    put(&mut bytes, print(key, 0));
    bytes.extend_from_slice(&reader.to_be_bytes());
    for (name, field) in &base.fields {
        put(&mut bytes, *name);
        put(&mut bytes, *field);
    }
    let mut doc = doc.clone();
    doc.set(doc.text(MARK), doc.text(&URL_SAFE_NO_PAD.encode(bytes)));
    doc.write()
}

/// The mark of a document that came back, which loses it. `None`: it has none. An error: it has one that is not ours.
pub fn take_mark(doc: &mut Doc) -> Option<Result<Mark, NotAMark>> {
    let written = doc.remove(&doc.text(MARK))?;
    let text = Doc::text_of(doc.form, &written);
    Some(text.and_then(|text| Mark::read(&URL_SAFE_NO_PAD.decode(text).ok()?)).ok_or(NotAMark))
}

/// The field [`MARK`] holds something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAMark;

impl std::fmt::Display for NotAMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the field \"{MARK}\" is not as it was read; with merge = \"fields\" it is the namespace's own: \
             write it back unchanged, or leave it out to replace the whole document"
        )
    }
}

impl Mark {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, fields) = bytes.split_at_checked(HEAD_BYTES)?;
        if head[0] != MARK_VERSION || !fields.len().is_multiple_of(FIELD_BYTES) {
            return None;
        }
        let mut fields: Vec<_> = fields.chunks(FIELD_BYTES).map(|f| (get(&f[..6]), get(&f[6..]))).collect();
        fields.sort_unstable();
        Some(Self { key: get(&head[1..7]), reader: get(&head[7..]), base: Base { fields } })
    }

    /// Was the document read under this key? Under another it was copied from there (a new session id after login).
    pub fn is_of(&self, key: &[u8]) -> bool {
        self.key == print(key, 0)
    }
}

fn prints(form: Form, name: &[u8], value: &[u8]) -> (u64, u64) {
    let of_name = print(name, 0);
    (of_name, print(&Doc::compact(form, value), of_name))
}

fn print(bytes: &[u8], salt: u64) -> u64 {
    (if salt == 0 { place_hash(bytes) } else { place_hash_pair(bytes, salt) }) >> 16
}

fn put(bytes: &mut Vec<u8>, print: u64) {
    bytes.extend_from_slice(&print.to_be_bytes()[2..]);
}

fn get(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const MARK_VERSION: u8 = 1;
/// Version, key, reader.
const HEAD_BYTES: usize = 1 + 6 + 8;
/// Fingerprints of name, and of name and value.
const FIELD_BYTES: usize = 6 + 6;
