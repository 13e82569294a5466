//! What nodes say to each other about a cache. Operations and their answers go in the data lane, with the value in the frame's body,
//! untouched; leases and purges in the control lane. Tags are never used twice; unknown fields are skipped.

use base::{Frame, NodeId, Priority, Span};
use bytes::Bytes;
use class::Number;
use prost::{Message, Oneof};

use super::limits::{TAG_BYTES_MAX, TAGS_MAX};
use super::store::Value;
use super::{Purge, What, op};

/// An operation for the node that has the key, or its answer.
#[derive(Clone, PartialEq, Message)]
pub struct Data {
    /// Chosen by who asks; the answer carries it back.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Life of who asks, also in the answer.
    #[prost(uint64, tag = "2")]
    pub life: u64,
    #[prost(oneof = "Said", tags = "3, 4")]
    pub said: Option<Said>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Said {
    #[prost(message, tag = "3")]
    Ask(AskMessage),
    #[prost(message, tag = "4")]
    Answer(AnswerMessage),
}

#[derive(Clone, PartialEq, Message)]
pub struct AskMessage {
    #[prost(uint32, tag = "1")]
    pub namespace: u32,
    /// 1 get, 2 look, 3 set, 4 set what is there, 5 remove, 6 end after, 7 end never, 8 take over, 9 count, 10 get for who fetches
    /// (level 8; `ttl_ms` is for how long).
    #[prost(uint32, tag = "2")]
    pub verb: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(message, optional, tag = "4")]
    pub value: Option<ValueMessage>,
    #[prost(uint64, tag = "5")]
    pub ttl_ms: u64,
    /// Set only if nothing that is about it was purged since.
    #[prost(message, optional, tag = "6")]
    pub mark: Option<MarkMessage>,
}

/// A moment of the purges of a node's life.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct MarkMessage {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    life: u64,
    #[prost(uint64, tag = "3")]
    number: u64,
}

/// A value without its bytes.
#[derive(Clone, PartialEq, Message)]
pub struct ValueMessage {
    #[prost(bytes = "bytes", tag = "1")]
    kind: Bytes,
    #[prost(fixed32, tag = "2")]
    sum: u32,
    /// How long it is kept from now on; 0: as long as there is room.
    #[prost(uint64, tag = "3")]
    pub ttl_ms: u64,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    tags: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnswerMessage {
    /// 1 found, 2 absent, 3 stored, 4 not stored, 5 changed, 6 moved, 7 without lease, 8 counted, 9 somebody else fetches it.
    #[prost(uint32, tag = "1")]
    pub end: u32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<ValueMessage>,
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// To who takes over: it need not ask again, there was nothing when it came.
    #[prost(bool, tag = "4")]
    pub bare: bool,
    /// With what was found, and that nothing was.
    #[prost(message, optional, tag = "5")]
    pub mark: Option<MarkMessage>,
}

/// Leases and purges.
#[derive(Clone, PartialEq, Message)]
pub struct Control {
    /// Life of the sender.
    #[prost(uint64, tag = "1")]
    pub life: u64,
    #[prost(oneof = "Told", tags = "2, 3, 4, 5, 6, 7")]
    pub told: Option<Told>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Told {
    /// The sender would like to serve.
    #[prost(message, tag = "2")]
    Ask(LeaseAsk),
    #[prost(message, tag = "3")]
    Lease(LeaseMessage),
    /// To who holds a lease: do this.
    #[prost(message, tag = "4")]
    Purge(PurgeMessage),
    /// It is done, as are all before it.
    #[prost(message, tag = "5")]
    Purged(Mark),
    /// To who gives leases: have all do this.
    #[prost(message, tag = "6")]
    Record(PurgeMessage),
    /// They have, or hold no lease any more.
    #[prost(message, tag = "7")]
    Recorded(Mark),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseAsk {
    /// Microseconds of the asker's clock; comes back.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Life of the asked node that the asker has heard of, and its last purge that it has done.
    #[prost(uint64, tag = "2")]
    pub of: u64,
    #[prost(uint64, tag = "3")]
    pub done: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseMessage {
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Life of the asker.
    #[prost(uint64, tag = "2")]
    pub of: u64,
    /// It counts for who has done all purges up to this.
    #[prost(uint64, tag = "3")]
    pub upto: u64,
    /// What was purged before is not known any more: who has not done it all forgets everything.
    #[prost(bool, tag = "4")]
    pub afresh: bool,
    /// For so long the asker seemed to be live without a break, milliseconds.
    #[prost(uint64, tag = "5")]
    pub live_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PurgeMessage {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint32, tag = "2")]
    namespace: u32,
    /// 1 key, 2 prefix, 3 tag, 4 all.
    #[prost(uint32, tag = "3")]
    what: u32,
    #[prost(bytes = "bytes", tag = "4")]
    text: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mark {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Life of who is told.
    #[prost(uint64, tag = "2")]
    pub of: u64,
}

impl ValueMessage {
    /// And the bytes, for the frame's body.
    pub fn of(value: &Value, ttl: Option<Span>) -> (Self, Bytes) {
        let ttl_ms = ttl.map_or(0, millis_up);
        let Value { bytes, kind, sum, ends: _, tags } = value;
        (Self { kind: kind.clone(), sum: *sum, ttl_ms, tags: tags.clone() }, bytes.clone())
    }

    /// None: there are too many tags, or one is too long.
    pub fn take(self, bytes: Bytes) -> Option<Value> {
        let Self { kind, sum, ttl_ms: _, tags } = self;
        let fits = |text: &Bytes| text.len() <= TAG_BYTES_MAX;
        (tags.len() <= TAGS_MAX && tags.iter().chain([&kind]).all(fits)).then_some(Value {
            bytes,
            kind,
            sum,
            ends: None,
            tags,
        })
    }
}

impl MarkMessage {
    pub fn of(mark: op::Mark) -> Self {
        Self { node: mark.node.0, life: mark.life, number: mark.number }
    }

    pub fn take(self) -> op::Mark {
        op::Mark { node: NodeId(self.node), life: self.life, number: self.number }
    }
}

/// Rounded up, so that what has not ended is never taken for endless.
pub fn millis_up(span: Span) -> u64 {
    span.as_micros().div_ceil(1000).max(1)
}

impl PurgeMessage {
    pub fn of(number: u64, purge: &Purge) -> Self {
        let (what, text) = match &purge.what {
            What::Key(key) => (1, key.clone()),
            What::Prefix(prefix) => (2, prefix.clone()),
            What::Tag(tag) => (3, tag.clone()),
            What::All => (4, Bytes::new()),
        };
        Self { number, namespace: purge.namespace, what, text }
    }

    pub fn take(self) -> Option<(u64, Purge)> {
        let Self { number, namespace, what, text } = self;
        if text.len() > base::limits::KEY_BYTES_MAX {
            return None;
        }
        let what = match what {
            1 => What::Key(text),
            2 => What::Prefix(text),
            3 => What::Tag(text),
            4 => What::All,
            _ => return None,
        };
        Some((number, Purge { namespace, what }))
    }
}

pub fn data(number: Number, head: &Data, body: Bytes, budget: Span, priority: Priority) -> Frame {
    let mut frame = Frame::new(number.data(0), head.encode_to_vec());
    frame.budget_ms = u32::try_from(budget.as_millis()).unwrap_or(u32::MAX);
    (frame.priority, frame.body) = (priority, body);
    frame
}

pub fn control(number: Number, life: u64, told: Told) -> Frame {
    Frame::new(number.control(0), Control { life, told: Some(told) }.encode_to_vec())
}
