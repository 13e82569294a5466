//! The numbers of namespaces, which frames and disks have in place of names. None is given twice, as nodes keep what
//! lies under one for a while after its namespace was removed. The last one given is a record of the root group, which
//! only grows: what lies under a number up to it that no namespace has is of one that was removed, and may go.

use bytes::Bytes;
use cluster::root::Declared;

use crate::declared::{json, kind, secrets};
use crate::{facts, level};

/// The one record of its kind that there is by now.
const NAME: &str = "namespace";

/// The level from which the record is kept. An older program would give numbers by what it sees, and again.
pub const LEVEL: u32 = 6;

/// Numbers that are left out where the record begins in a cluster of older programs: those gave the highest one again
/// when its namespace had been removed, and nobody knows how high they once were.
const LEFT_OUT: u32 = 1024;

/// The last number that was given, if that is kept.
pub fn last(now: &Declared) -> Option<u32> {
    facts::decode(now.get(kind::NUMBER, NAME)?)
}

/// The record of a cluster that begins with this level, as a part of a [`cluster::root::Change`].
pub fn founding(level: u32) -> Option<(String, String, Bytes)> {
    (level >= LEVEL).then(|| put(0))
}

fn put(last: u32) -> (String, String, Bytes) {
    (kind::NUMBER.to_owned(), NAME.to_owned(), json(&last))
}

/// Gives the numbers of one change.
pub(crate) struct Giver {
    kept: Option<u32>,
    last: u32,
    keeps: bool,
}

impl Giver {
    pub fn new(now: &Declared) -> Self {
        let (kept, keeps) = (last(now), level::agreed(now) >= LEVEL);
        let highest = secrets(now).values().map(|secret| secret.id).max().unwrap_or(0);
        let last = match kept {
            Some(kept) => kept.max(highest),
            None if keeps => highest.saturating_add(LEFT_OUT),
            None => highest,
        };
        Self { kept, last, keeps }
    }

    pub fn give(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// What the change has to keep, if it is another one.
    pub fn record(&self) -> Option<(String, String, Bytes)> {
        (self.keeps && self.kept != Some(self.last)).then(|| put(self.last))
    }
}
