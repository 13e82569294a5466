//! The one wrapper around the consensus library (raft-rs): a member of one group, whatever the group agrees on.
//! The root group and every group of the `linear` class use it; what they agree on is a [`State`].
//!
//! ```text
//!   propose ──► member ──► Append ──► disk ──► Appended ──► messages, commit ──► State::apply
//!                  └─────── Save ───► disk ──► Saved        (a snapshot, made beside the log)
//! ```
//! - `member.rs` is the only file that drives raft; `store.rs` is raft's log in memory, `record.rs` the same on disk,
//!   `wire.rs` the same between nodes. `transfer.rs` brings a snapshot to a member, part by part.
//! - A message that promises something (a vote, an acknowledgement) leaves only after `Appended`.
//! - In a group that keeps its entries in memory (`Config::memory`) that comes before the force. What it may cost a member
//!   whose machine was rebooted, the others make up for (`recall.rs`). Terms, votes and members are always forced.
//! - Commit index and entries that came together reach the disk together, as one record. So a node that restarts never
//!   takes an old entry for a committed one, and knows every membership change but perhaps the last one in its log: it
//!   cannot elect itself by a group that is long gone.
//! - A snapshot is a copy that shares memory with the state it was taken of; its bytes are made when they are needed,
//!   by the disk's thread or a part at a time for a peer. So taking one holds nobody up.
//! - A member that comes back first asks the others what it had promised (`recall.rs`): a disk may have forgotten.
//! - A member that takes over a snapshot hears nobody until the disk has it: what comes after must not reach the disk
//!   before it.

pub mod limits;
mod member;
pub(crate) mod recall;
pub(crate) mod record;
mod store;
#[cfg(test)]
mod tests;
mod transfer;
pub(crate) mod wire;

use base::{Frame, GroupId, NodeId, Note, Parts, Record, Ticket};
use bytes::Bytes;

pub use member::{Happened, Member, Step};
pub use wire::group_of;

/// What a group agrees on. Every member applies the same entries in the same order, so the same must come of them
/// everywhere: no clock, no chance, no limit that a node could set for itself.
pub trait State: Default {
    /// What became of a part of an entry; told to whoever drives the member.
    type Done;
    /// Applies a committed entry, or changes nothing.
    fn apply(&mut self, index: u64, data: Bytes, done: &mut Vec<Self::Done>) -> Applied;
    /// The whole state as it is now. Taking it is cheap; its bytes are made part by part, elsewhere.
    fn parts(&self) -> Parts;
    /// A state from what [`State::parts`] gave; none if it makes no sense.
    fn from_parts(parts: Vec<Bytes>) -> Option<Self>;
    /// About how many bytes a snapshot has.
    fn bytes(&self) -> usize;
}

/// What became of a committed entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    Yes,
    /// It means nothing; skipped, at every member.
    Senseless,
    /// It means nothing to this program, and something to others: who skipped it would have another state than they. The
    /// member applies nothing from here on.
    Beyond,
}

/// How long a group's log becomes, about: each member draws up to a quarter more or less each time, as members that all wrote their
/// snapshots at once would leave the group without a quick disk.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// It is replaced by a snapshot after so many records or bytes...
    pub records_max: usize,
    /// ... of which the bytes must also be more than the snapshot would have.
    pub bytes_max: usize,
    /// Entries kept in memory behind a snapshot, so that a member that is a little late needs no snapshot.
    pub entries_kept: u64,
}

/// What tells one group from another.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub group: GroupId,
    /// Kind of frames without entries: votes, heartbeats, acknowledgements. They must not stand behind data.
    pub control: u16,
    /// Kind of frames with entries or parts of a snapshot.
    pub data: u16,
    pub log: LogBounds,
    /// An entry counts as kept when it is written, and is forced soon after: what all members but a minority have so may
    /// be lost only when a majority of machines loses its power at once.
    pub memory: bool,
    /// Proposed but not committed bytes at a leader; beyond it refuses.
    pub uncommitted_bytes_max: u64,
}

/// What a member wants done. Disk writes are of its own group.
#[derive(Debug)]
pub enum Output {
    Send {
        to: NodeId,
        frame: Frame,
    },
    Append {
        records: Vec<Record>,
        ticket: Ticket,
        /// It counts only when it is forced.
        force: bool,
    },
    /// Replace all that was appended before by this.
    Save {
        parts: Parts,
        ticket: Ticket,
    },
    /// This member has promised more than its disk has kept.
    Distrust(String),
    Note(Note),
}

/// Why a log cannot be believed. Records are counted from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogError {
    pub record: usize,
    pub why: String,
}
