//! The root group: what operators declared, agreed on by a majority and kept on disk (`raft/` is the consensus).
//!
//! ```text
//!   Propose ──► machine ──(leads?)──► member ───► Append ──► disk ──► Appended ──► messages, commit
//!                  └──(else)── Call ──► leader                                        │
//!   Proposed ◄── machine ◄── Answer / own copy ◄── state (declared.rs) ◄── apply ◄────┘
//! ```
//! - Every live node is in the group: three are voters, the rest learners, so each has the whole declaration at hand and
//!   reads it without asking anybody. Losing the majority stops changes, nothing else.
//! - `machine.rs` turns inputs into outputs: proposals, their retries and their three ends. `declared.rs` is what a
//!   committed change does, `wire.rs` its bytes. `group.rs` decides who should vote.
//! - A change is one log entry: all of it or nothing. It carries an id, the id's verdict is part of the state, so a
//!   proposal sent twice happens once, also over a change of leaders or a snapshot.
//!
//! Groups are odd: one voter until two more nodes are caught up, then three at once by joint consensus. A group of two would
//! stop at the loss of either.

mod declared;
mod group;
pub mod limits;
mod machine;
mod wire;

pub use declared::{Change, Conflict, Declared};
pub use machine::{Input, Output, Parting, Root, StartError};
#[doc(hidden)]
pub use wire::holds as wire_holds;

#[cfg(test)]
mod tests;
