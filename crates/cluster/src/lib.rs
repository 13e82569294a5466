//! Who is here, what they say, and what was declared.
//!
//! `membership` knows which nodes live (SWIM with suspicion), `beacon` spreads small facts that expire, `root` keeps
//! what an operator declared in one small consensus group; `raft` is the consensus, for it and for others. All are machines: time and one input in, outputs out;
//! frames may be lost, doubled, late or out of order. `card` is what a node says of itself when a link comes up, `doors` the list of its doors, `admission` whether it is one of ours.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admission;
pub mod beacon;
pub mod card;
pub mod doors;
pub mod membership;
pub mod raft;
pub mod root;

#[cfg(test)]
mod fixtures_tests;
#[cfg(test)]
#[path = "../../../tests/fixtures/kept.rs"]
mod kept;

pub use admission::Admission;
pub use beacon::Beacons;
pub use card::Card;
pub use doors::{Door, DoorAddrs};
pub use membership::Membership;
