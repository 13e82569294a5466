//! What may be asked of the `cache` class, and what it answers: the words that front doors use.

use std::sync::Arc;

use base::limits::KEY_BYTES_MAX;
use base::{NodeId, Priority, Span};
use bytes::Bytes;

use super::limits::{TAG_BYTES_MAX, TAGS_MAX, TTL_MS_MAX, VALUE_BYTES_MAX};

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
    /// [`Act::Get`] for who will fetch it if it is missing. Answer: `Read`.
    Read,
    /// [`Act::Read`] for who is the only one in the cluster to fetch it, if it is missing, for so long. Who asks meanwhile is answered
    /// when it is there; with nothing, when his time is over: then he fetches it, too.
    Fetch(Span),
    /// Answer: `Stored`, or `NotStored` if `only_present` and there is none. `ttl`: none is the namespace's own.
    /// With a `mark`, `NotStored`, too, if it may have been purged since that was given.
    Set { value: Bytes, kind: Bytes, tags: Vec<Bytes>, ttl: Option<Span>, only_present: bool, mark: Option<Mark> },
    /// Answer: `Changed`, whether there was one.
    Remove,
    /// Another end, or none. Answer: `Changed`, whether there is a value.
    End(Option<Span>),
    /// About how many entries there are. Answer: `Count`.
    Count,
    /// No request that begins after the answer gets what was stored before. Answer: `Purged`.
    Purge(What),
    /// What this node itself has kept of something, whichever owns the key: a copy of what is kept elsewhere, under the same leases and
    /// purges. Answer: `Read`; without a mark nothing can be kept now. Such keys are read and kept in no other way.
    ReadHere,
    /// Keeps it here. Answer: `Stored`, or `NotStored` if it may have been purged since the mark was given.
    KeepHere { value: Bytes, ttl: Span, mark: Mark },
}

impl Act {
    /// Whether it is a miss where nobody can tell.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get | Self::Look | Self::Read | Self::Fetch(_))
    }
}

/// A moment at the node that has a key, by its purges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub node: NodeId,
    /// Life of that node.
    pub life: u64,
    pub number: u64,
}

/// What is stored for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub value: Bytes,
    pub kind: Bytes,
    pub tags: Vec<Bytes>,
    /// None: as long as there is room.
    pub ttl_left: Option<Span>,
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
    /// What there is. Without a mark the key's node could not be asked, and what is fetched cannot be stored.
    Read {
        entry: Option<Entry>,
        mark: Option<Mark>,
    },
    Stored,
    NotStored,
    Changed(bool),
    Count(u64),
    Purged,
}

impl Op {
    /// What a door should not have let through.
    ///
    /// # Errors
    /// Why.
    pub(super) fn check(&self) -> Result<(), String> {
        let needs_key = !matches!(self.act, Act::Count | Act::Purge(_));
        if needs_key && !(1..=KEY_BYTES_MAX).contains(&self.key.len()) {
            return Err(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {}", self.key.len()));
        }
        let is_long = |ttl: &Option<Span>| ttl.is_some_and(|ttl| ttl.as_millis() > TTL_MS_MAX);
        match &self.act {
            Act::Set { value, .. } | Act::KeepHere { value, .. } if value.len() > VALUE_BYTES_MAX => {
                Err(format!("a value of class cache has at most {VALUE_BYTES_MAX} bytes, this one has {}", value.len()))
            }
            Act::Set { tags, .. } if tags.len() > TAGS_MAX => Err(format!("an entry has at most {TAGS_MAX} tags")),
            Act::Set { kind, tags, .. } if tags.iter().chain([kind]).any(|text| text.len() > TAG_BYTES_MAX) => {
                Err(format!("tags and types have at most {TAG_BYTES_MAX} bytes"))
            }
            Act::Set { ttl, .. } | Act::End(ttl) if is_long(ttl) => {
                Err("an entry ends within 400 days, or never".to_owned())
            }
            Act::Purge(What::Key(text) | What::Prefix(text)) if text.len() > KEY_BYTES_MAX => {
                Err(format!("keys have at most {KEY_BYTES_MAX} bytes"))
            }
            Act::Purge(What::Tag(tag)) if tag.len() > TAG_BYTES_MAX => {
                Err(format!("tags have at most {TAG_BYTES_MAX} bytes"))
            }
            _ => Ok(()),
        }
    }
}
