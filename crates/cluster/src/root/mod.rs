//! The root group: what operators declared, agreed on by a majority and kept on disk (raft-rs, wrapped once, here).
//!
//! ```text
//!   Propose ──► machine ──(leads?)──► replica ──► Append ──► disk ──► Appended ──► messages, commit
//!                  └──(else)── Call ──► leader                                        │
//!   Proposed ◄── machine ◄── Answer / own copy ◄── state (declared.rs) ◄── apply ◄────┘
//! ```
//! - Every live node is in the group: three are voters, the rest learners, so each has the whole declaration at hand and
//!   reads it without asking anybody. Losing the majority stops changes, nothing else.
//! - `machine.rs` turns inputs into outputs: proposals, their retries and their three ends. `replica.rs` is the only file
//!   that drives raft; `store.rs` is raft's log in memory, `record.rs` the same on disk, `wire.rs` the same between nodes.
//!   `declared.rs` is what a committed change does. `group.rs` decides who should vote.
//! - A change is one log entry: all of it or nothing. It carries an id, the id's verdict is part of the state, so a
//!   proposal sent twice happens once, also over a change of leaders or a snapshot.
//! - A message that promises something (a vote, an acknowledgement) leaves only after `Appended`.
//! - Commit index and entries that came together reach the disk together, as one record. So a node that restarts never
//!   takes an old entry for a committed one, and knows every membership change but perhaps the last one in its log: it
//!   cannot elect itself by a group that is long gone.
//!
//! Groups are odd: one voter until two more nodes are caught up, then three at once by joint consensus. A group of two would
//! stop at the loss of either.

mod declared;
mod group;
pub mod limits;
mod machine;
mod record;
mod replica;
mod store;
mod wire;

pub use declared::{Change, Conflict, Declared};
pub use machine::{Input, Output, Root, StartError};
#[doc(hidden)]
pub use wire::holds as wire_holds;

#[cfg(test)]
mod tests;
