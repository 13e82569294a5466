//! The `linear` class: a hash table that keeps what it acknowledged (Ninja's CHT, 3.4). Every operation is atomic and
//! linearizable; an acknowledged write is on a majority's disks, or in a majority's memory and on their disks soon.
//!
//! ```text
//! front door ─► machine (calls) ──one hop──► group's leader ─► queue ─► one entry for all that wait ─► raft ─► space
//!                   ▲                                └──── reads ─► one round of heartbeats for all ─────────► space
//!                   └───────────────── answers, by the id that a command carries ◄──────────────────────────────┘
//! ```
//! - `machine.rs`: this node's calls and groups. `group.rs`: one member of a group (consensus is `cluster/raft`).
//! - `space.rs`: what a group agrees on; `map.rs` its keys, `value.rs` what they hold, `functions/` all that can be done to
//!   them, by name; `snapshot.rs` its copy in parts.
//! - `sorted.rs`: a sorted set's trees; `score.rs`: scores as texts.
//! - `queue/`: jobs of a queue, who has them, and what is due.
//! - `ledger.rs`: a ledger's folders and items, in pages (`pages.rs`).
//! - `script.rs`: what a leader lends to whoever runs scripts; `functions/script.rs`: what asks for one; `texts.rs`: the texts that
//!   a shard keeps for them.
//! - `sorted.rs`: a sorted set's trees; `score.rs`: scores as texts. `stream/`: a stream's entries and groups.
//! - `geo/`: places as scores, and what is near them; `sketch.rs`: about how many there are (HyperLogLog); `partly.rs`: sorts as Redis does.
//! - `freshness.rs`: how old a member's state is at most, for reads that may be stale.
//! - `history.rs`: its last changes; `watchers.rs`: who waits at the leader for the next ones.
//! - `moment.rs`: ends that callers name by the time of day.
//! - `database.rs`: the database of a namespace of class `sql`, which is such a group's whole state.
//! - `dump.rs`: how a namespace is read out, and put back.
//! - `once.rs`: ids that callers give their writes, so that one that is asked again happens once.
//! - `apart.rs`: what is done over several shards; `together.rs`: weak operations, several done as one.
//! - `spec.rs`: the keys of a declaration. `split.rs`: how one group becomes two. `place.rs`: which nodes have which group. `op.rs`: what front doors say; `wire.rs`: bytes.
//! - `report.rs`: what other nodes are told.
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(test)]
#[path = "../../../tests/fixtures/kept.rs"]
mod kept;

mod apart;
mod database;
mod dump;
mod freshness;
pub mod functions;
pub mod geo;
mod group;
mod hash;
mod heat;
mod history;
mod ledger;
pub mod limits;
mod machine;
mod map;
pub mod moment;
pub mod once;
mod op;
mod order;
mod pages;
mod partly;
mod piece;
pub mod place;
mod placed;
mod planner;
pub mod queue;
mod report;
pub mod score;
pub mod script;
mod sketch;
mod snapshot;
pub mod sorted;
mod space;
mod spec;
mod split;
pub mod stream;
pub mod texts;
mod together;
mod value;
mod watchers;
mod wire;

pub use dump::{Dump, LoadDatabase};
pub use heat::HotKey;
pub use machine::{Input, Linear, Output, declared};
pub use op::{Condition, Op, Over, Ran, Reply, Step, Wrong};
pub use place::Placed;
pub use planner::FORMED;
pub use report::{HotShown, QueueShown, Report};
pub use space::Space;
pub use spec::{Durability, Shards, Spec};
pub use split::hash_of;
pub use uuid::Uuid;

#[cfg(test)]
mod tests;
