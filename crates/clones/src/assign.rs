//! Assignments: which node runs which clone. Written by the manager at the root group's leader, spread as a beacon, and
//! obeyed by every node's group. Soft state: the newest wins, and a lost one is rebuilt from what runs.

use std::collections::BTreeMap;

use base::{Boot, NodeId};

use crate::{CloneId, Ill};

/// Orders assignments by age: term, seq, the leader and its life.
pub type Version = (u64, u64, NodeId, Boot);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignments {
    /// Counts up with each new leader.
    pub term: u64,
    /// Counts up with each change of one leader.
    pub seq: u64,
    /// The leader that wrote it; decides between two that took the same term at once.
    pub by: NodeId,
    /// And its life: one that was killed may take a term again that it has forgotten, and must not be taken for itself.
    pub boot: Boot,
    pub of: BTreeMap<CloneId, NodeId>,
    /// Clones that are moving: the node they leave. It keeps its clone until the new one serves.
    pub leaving: BTreeMap<CloneId, NodeId>,
    /// Clones that are to run a version that is being rolled out, and which.
    pub fresh: BTreeMap<CloneId, u32>,
    /// Clones that are to be restarted for how they behave.
    pub ill: BTreeMap<CloneId, Ill>,
    /// How long clones of a service take from the decision to start them until they serve, milliseconds, as far as that was
    /// learned: a leader's successor sizes by it.
    pub starts: BTreeMap<String, u32>,
    /// How often a node for overflow was needed.
    pub recruited: u64,
}

impl Assignments {
    /// The newest is obeyed.
    pub fn version(&self) -> Version {
        (self.term, self.seq, self.by, self.boot)
    }

    pub fn is_newer_than(&self, other: &Assignments) -> bool {
        self.version() > other.version()
    }

    /// Whether this node is to run the clone, as its place or as the one it is about to leave.
    pub fn has(&self, id: &CloneId, node: NodeId) -> bool {
        self.of.get(id) == Some(&node) || self.leaving.get(id) == Some(&node)
    }

    /// The clones that a node is to run, in order.
    pub fn at(&self, node: NodeId) -> impl Iterator<Item = &CloneId> {
        self.of.keys().filter(move |id| self.has(id, node))
    }
}
