//! Clone groups as their programs see them (Ninja 3.1): who is a member, who leads, messages to all members, barriers.
//!
//! A **member** is one life of a clone: a clone that is started anew is another member, so that each birth has one death.
//! Membership is what the nodes' beacons say: approximate, soon the same everywhere, never waited for.
//!
//! - The **leader** is the serving member that has been there longest. Age is a *rank*, one more than every rank its node had
//!   heard of when the member began, so that clocks do not matter and nobody who comes later takes over.
//! - A **broadcast** goes to all live nodes and is sent again until each has confirmed it; its members read it there, from a
//!   bounded list.
//! - A **barrier** is passed by a member when all members have reached it, or are dead. What somebody has reached is a fact in
//!   the beacon of the node that was told, for as long as that member lives: so whoever comes later passes where the others
//!   have been, and a lost frame costs a second.
//!
//! `machine.rs` decides; `news.rs` keeps messages; `lives.rs` tells others who came and went; `wire.rs` knows bytes. What is promised: docs/guide/sdk.md.

pub mod limits;
pub mod lives;
mod machine;
mod news;
mod said;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, NodeId, Outcome, Span};
use bytes::Bytes;

pub use machine::Members;
pub use news::Message;
pub use said::Said;

use crate::CloneState;

/// One life of a clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name, which no other life has: `n1.7.3`.
    pub life: String,
    pub node: NodeId,
    pub state: CloneState,
}

/// What this node knows of all clones, live nodes only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scene {
    /// This one included.
    pub live: BTreeSet<NodeId>,
    /// By service: all declared ones.
    pub members: BTreeMap<String, Vec<Member>>,
    /// What the other nodes say (their [`Output::Say`]).
    pub said: BTreeMap<NodeId, Said>,
}

#[derive(Debug)]
pub enum Input {
    /// After every change.
    Scene(Scene),
    Ask {
        id: AskId,
        budget: Span,
        op: Op,
    },
    /// A frame of `kind::MEMBERS`.
    Frame {
        from: NodeId,
        head: Bytes,
        body: Bytes,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A member has reached this phase of a barrier (and so all before it). Answered when all have, and at least so many;
    /// or with who has not, when the time is over.
    Arrive { service: String, life: String, barrier: String, phase: u64, at_least: u32 },
    /// A message for all members.
    Tell { service: String, from: String, body: Bytes },
    /// Messages that came to this node after this one; answered at once if there are any, or with none when the time is
    /// over. None: from now on.
    Listen { service: String, after: Option<u64> },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `there` members have reached the barrier, these not; it is passed, or the time was over.
    Arrived { passed: bool, there: u32, missing: Vec<String> },
    /// So many nodes have it.
    Told { nodes: u32 },
    /// `at` is where to go on. `missed` came and are no longer kept.
    News { messages: Vec<Message>, at: u64, missed: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A frame of `kind::MEMBERS`.
    Send {
        to: NodeId,
        head: Bytes,
        body: Bytes,
    },
    Answer {
        id: AskId,
        outcome: Outcome<Reply>,
    },
    /// Say this in the beacon from now on.
    Say(Said),
    /// A frame of this peer is none of this protocol.
    Bad {
        from: NodeId,
    },
}
