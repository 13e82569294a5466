//! What a node's log has kept of class `object`: records, each behind its length. A disk may have anything in it; what cannot be read
//! means that the disk is not to be trusted, and what was read a node goes on with.

use std::collections::BTreeMap;

use base::{Boot, NodeId, Now, Rng, Span, Time};
use bytes::Bytes;
use state::class::{Class, Number};
use state::object::{Input, Object, Output, Settings};

use crate::memory::bounded;

pub const WORDS: &[&[u8]] = &[
    b"\x01\x00\x00\x00",
    b"\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00",
    b"\x03\x00\x00\x00",
    b"\x04\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x01",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x08\x01",
];

/// An entry and all that says where it is, for a record of a few bytes; and a row of a batch for each of its bytes.
const TIMES: usize = 2048;

pub fn object(data: &[u8]) -> bool {
    let (mut records, mut rest) = (Vec::new(), data);
    while let [high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        records.push(Bytes::copy_from_slice(&tail[..length]));
        rest = &tail[length..];
    }
    bounded(data.len(), TIMES, || starts(records))
}

/// True if it trusts them, and they say something.
fn starts(records: Vec<Bytes>) -> bool {
    let mut object = Object::new(NodeId(1), Boot(2), Rng::new(1), Settings::default());
    object.start(BTreeMap::from([(Number::OBJECT.group(0), records)]), false);
    let mut is_trusted = true;
    for tick in 1..8 {
        let mono = Time::ZERO + Span::millis(250).times(tick);
        let mut out = Vec::new();
        object.handle(Now { mono, wall_ms: 1_700_000_000_000 + tick }, Input::Tend, &mut out);
        is_trusted &= !out.iter().any(|output| matches!(output, Output::Distrust { .. }));
    }
    let figures: BTreeMap<&str, u64> = Object::FIGURES.iter().map(|figure| figure.name).zip(object.figures()).collect();
    // A count that went below nothing is larger than any.
    assert!(figures.values().all(|value| *value <= 1 << 62), "{figures:?}");
    is_trusted && figures["object.objects"] + figures["object.tombstones"] > 0
}
