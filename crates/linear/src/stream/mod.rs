//! A stream: entries in the order of their ids, and groups of consumers that share them. Entries lie packed in blocks, and who
//! has which of them is kept in pages: a copy has a pointer for each block and page, and a change under it copies one of them.
//!
//! - `log.rs`: the entries, how they are trimmed, and how many were ever added. `block.rs`: some of them, packed.
//! - `group.rs`: a group, its consumers, and what was delivered and not acknowledged. `paged.rs`: that, in order.
//! - `wire.rs`: the bytes of a snapshot and of a dump. Blocks are in them as they are: what `~` trims depends on them.
//!
//! Times and new ids come from who asks: replicas see no clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

mod block;
mod group;
mod log;
pub(crate) mod paged;
pub mod wire;

pub use group::{Consumer, Group, Pending};
pub use log::{Entry, Log, Trim, TrimTo};

/// The level from which there are streams (`base/src/level.rs`): no function of an older level makes one.
pub const LEVEL: u32 = 5;

/// Milliseconds, and a number among those of the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Id {
    pub ms: u64,
    pub seq: u64,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Stream {
    pub log: Log,
    groups: BTreeMap<Bytes, Arc<Group>>,
    /// Of all groups.
    group_bytes: usize,
}

impl Id {
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// `MS-SEQ`, or `MS` alone with this number.
    pub fn parse(text: &[u8], missing: u64) -> Option<Id> {
        let number = |text: &[u8]| {
            let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
        };
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Some(Id { ms: number(&text[..at])?, seq: number(&text[at + 1..])? }),
            None => Some(Id { ms: number(text)?, seq: missing }),
        }
    }

    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub fn before(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl Stream {
    /// Bytes that it counts.
    pub fn bytes(&self) -> usize {
        self.log.bytes() + self.group_bytes
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name).map(|group| &**group)
    }

    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Group)> {
        self.groups.iter().map(|(name, group)| (name, &**group))
    }

    /// Puts a group in its place.
    pub fn set_group(&mut self, name: Bytes, group: Group) {
        self.remove_group(&name);
        self.group_bytes += name.len() + group.bytes();
        self.groups.insert(name, Arc::new(group));
    }

    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.groups.remove(name) else { return false };
        self.group_bytes -= name.len() + group.bytes();
        true
    }

    /// Changes a group that there is.
    pub fn change_group<T>(&mut self, name: &[u8], act: impl FnOnce(&Log, &mut Group) -> T) -> Option<T> {
        let group = self.groups.get_mut(name)?;
        let before = group.bytes();
        let group = Arc::make_mut(group);
        let done = act(&self.log, group);
        self.group_bytes = self.group_bytes + group.bytes() - before;
        Some(done)
    }
}

#[cfg(test)]
mod tests;
