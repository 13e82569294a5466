//! Beacons' messages as bytes. Every frame is one `Message`, of which any part may be empty; fields of a newer version
//! are skipped. Tags are never given twice; the golden test holds them.

use base::{Boot, NodeId, Span};
use bytes::Bytes;
use prost::Message as _;

use super::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Message {
    /// Facts, newest known.
    #[prost(message, repeated, tag = "1")]
    pub facts: Vec<FactWire>,
    /// One line for each origin the sender knows: answer with `have` for what differs. Only if `is_digest`, as an empty
    /// digest is one, too.
    #[prost(message, repeated, tag = "2")]
    pub digest: Vec<Summary>,
    #[prost(bool, tag = "3")]
    pub is_digest: bool,
    /// All that the sender has of these origins: answer with facts it lacks, and want those it has newer.
    #[prost(message, repeated, tag = "4")]
    pub have: Vec<Have>,
    /// Answer with these facts.
    #[prost(message, repeated, tag = "5")]
    pub want: Vec<Want>,
    /// Sum over all that the sender holds, but for figures: answer with a digest if yours is another one.
    #[prost(fixed64, optional, tag = "6")]
    pub total: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FactWire {
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(uint64, tag = "4")]
    pub seq: u64,
    /// None: removed.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub value: Option<Bytes>,
    /// What is left of it.
    #[prost(uint32, tag = "6")]
    pub ttl_ms: u32,
    /// It changes all the time, and is not compared.
    #[prost(bool, tag = "7")]
    pub is_figure: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Summary {
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// Sum over all facts but figures of a hash of key and sequence number.
    #[prost(fixed64, tag = "3")]
    pub sum: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Have {
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(message, repeated, tag = "3")]
    pub facts: Vec<HaveFact>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HaveFact {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(uint64, tag = "2")]
    pub seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Want {
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    #[prost(string, repeated, tag = "2")]
    pub keys: Vec<String>,
}

impl Message {
    pub fn encode(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    pub fn of(bytes: Bytes) -> Option<Message> {
        Message::decode(bytes).ok()
    }
}

/// A fact as it came in, within limits.
pub(super) struct FactIn {
    pub origin: NodeId,
    pub boot: Boot,
    pub key: String,
    pub seq: u64,
    pub value: Option<Bytes>,
    pub ttl: Span,
    pub is_figure: bool,
}

impl FactWire {
    pub fn checked(self) -> Option<FactIn> {
        let fits = self.key.len() <= KEY_BYTES_MAX && self.value.as_ref().is_none_or(|v| v.len() <= VALUE_BYTES_MAX);
        (fits && self.origin != 0).then(|| FactIn {
            origin: NodeId(self.origin),
            boot: Boot(self.boot),
            key: self.key,
            seq: self.seq,
            // The value is kept for long: a copy of its own does not hold the whole frame in memory.
            value: self.value.map(|v| Bytes::copy_from_slice(&v)),
            ttl: Span::millis(u64::from(self.ttl_ms)),
            is_figure: self.is_figure,
        })
    }
}

/// For the fuzz crate: whether these bytes are a message, after asserting that it is what would be sent again.
pub fn holds(bytes: Bytes) -> bool {
    let Some(message) = Message::of(bytes) else { return false };
    assert_eq!(Message::of(message.encode()).as_ref(), Some(&message));
    message.facts.into_iter().filter_map(FactWire::checked).for_each(drop);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message {
            facts: vec![FactWire {
                origin: 1,
                boot: 2,
                key: "load".into(),
                seq: 3,
                value: Some(Bytes::from_static(b"v")),
                ttl_ms: 5000,
                is_figure: false,
            }],
            digest: vec![Summary { origin: 1, boot: 2, sum: 4 }],
            is_digest: true,
            have: vec![Have { origin: 1, boot: 2, facts: vec![HaveFact { key: "k".into(), seq: 3 }] }],
            want: vec![Want { origin: 1, keys: vec!["k".into()] }],
            total: None,
        }
    }

    #[test]
    fn fixtures_are_read() {
        let removal =
            FactWire { origin: 1, boot: 2, key: "gone".into(), seq: 4, value: None, ttl_ms: 1000, is_figure: false };
        let removal = Message { facts: vec![removal], ..Message::default() };
        let samples = [("all", message()), ("removal", removal)];
        let samples = samples.map(|(name, message)| (name, message.encode().to_vec(), message));
        crate::kept::frames("beacon", &samples, Message::of);
    }

    #[test]
    fn a_message_has_these_bytes() {
        let message = message();
        let golden = b"\x0a\x19\x09\x01\0\0\0\0\0\0\0\x10\x02\x1a\x04load\x20\x03\x2a\x01v\x30\x88\x27\
            \x12\x14\x09\x01\0\0\0\0\0\0\0\x10\x02\x19\x04\0\0\0\0\0\0\0\x18\x01\
            \x22\x12\x09\x01\0\0\0\0\0\0\0\x10\x02\x1a\x05\x0a\x01k\x10\x03\
            \x2a\x0c\x09\x01\0\0\0\0\0\0\0\x12\x01k";
        assert_eq!(&message.encode()[..], golden);
        assert_eq!(Message::of(Bytes::from_static(golden)), Some(message));
        let newer = [&golden[..], b"\xa2\x06\x03new"].concat();
        assert!(Message::of(newer.into()).is_some(), "a newer version's field is skipped");
    }
}
