//! Documents whose fields are merged: what is taken for a map is written as the same map, a mark comes back as it was
//! given, and a writer that changed nothing changes nothing.

use bytes::Bytes;
use state::session::doc::Doc;
use state::session::merge::{Base, marked, merge, take_mark};

use crate::memory::bounded;

pub const WORDS: &[&[u8]] = &[
    b"{\"",
    b"\":",
    b",\"",
    b"}",
    b"[",
    b"]",
    b"\\\"",
    b"\"_coppice\":\"AQ",
    b"\xa8_coppice",
    b"\x81\xa1a",
    b"\xde\x00\x01",
    b"\xdf\x00\x00\x00\x01",
    b"\xdf\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff",
    b"\xC1hash\x01",
    b"\x01\x00\x00\x00",
];

pub fn fields(data: &[u8]) -> bool {
    let value = Bytes::copy_from_slice(data);
    if let Some(hash) = bounded(data.len(), 256, || Doc::hash(&value)) {
        assert_eq!(Doc::hash(&hash.write()).as_ref(), Some(&hash), "written as another hash");
        assert_eq!(Doc::parse(&value), None, "a hash is no text");
        return true;
    }
    // A field of two bytes (a small MessagePack item each) has two handles, in the list and in the index.
    let Some(mut doc) = bounded(data.len(), 256, || Doc::parse(&value)) else { return false };
    assert_eq!(Doc::parse(&doc.write()).as_ref(), Some(&doc), "written as another map");
    // Whatever mark the bytes bring, it is ours, refused, or none.
    let _ = take_mark(&mut doc);
    let mut back = Doc::parse(&marked(&doc, b"key", 7)).expect("a map with one field more");
    let mark = take_mark(&mut back).expect("it is marked").expect("by us");
    assert!(mark.is_of(b"key") && mark.reader == 7 && mark.base == Base::of(&doc));
    assert_eq!(back, doc);
    assert_eq!(merge(&mark.base, &back, &doc), doc, "nothing was changed");
    true
}
