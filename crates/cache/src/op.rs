//! What may be asked of the `cache` class, and what it answers: the words that front doors use.

use std::sync::Arc;

use base::{Priority, Span};
use bytes::Bytes;

/// One operation. Ends in `Outcome<Reply>`: done, refused or unknown.
#[derive(Clone, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    /// 1 to 512 bytes. Empty for [`Act::Count`] and [`Act::Purge`].
    pub key: Bytes,
    pub act: Act,
    pub priority: Priority,
}

impl Op {
    pub fn new(namespace: Arc<str>, key: Bytes, act: Act) -> Self {
        Self { namespace, key, act, priority: Priority::NORMAL }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Answer: `Value` or `Absent`. It counts as asked for.
    Get,
    /// The same without the value's bytes, and it does not count.
    Look,
    /// Answer: `Stored`, or `NotStored` if `only_present` and there is none. `ttl`: none is the namespace's own.
    Set { value: Bytes, kind: Bytes, tags: Vec<Bytes>, ttl: Option<Span>, only_present: bool },
    /// Answer: `Changed`, whether there was one.
    Remove,
    /// Another end, or none. Answer: `Changed`, whether there is a value.
    End(Option<Span>),
    /// About how many entries there are. Answer: `Count`.
    Count,
    /// No request that begins after the answer gets what was stored before. Answer: `Purged`.
    Purge(What),
}

/// What a purge is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Key(Bytes),
    /// All keys that begin so.
    Prefix(Bytes),
    /// All entries that were stored with this tag.
    Tag(Bytes),
    All,
}

/// A purge in a namespace, by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    pub namespace: u32,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Value {
        /// Empty for [`Act::Look`].
        value: Bytes,
        kind: Bytes,
        tags: Vec<Bytes>,
        /// None: as long as there is room.
        ttl_left: Option<Span>,
    },
    Absent,
    Stored,
    NotStored,
    Changed(bool),
    Count(u64),
    Purged,
}
