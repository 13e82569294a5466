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
    /// How nodes for overflow were needed.
    pub overflow: Overflow,
}

/// How nodes for overflow were needed, since the cluster began or lost all that its nodes remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overflow {
    /// How often one was recruited.
    pub times: u64,
    /// For how long at least one had clones, milliseconds; without the present time.
    pub total_ms: u64,
    /// Since when at least one has clones, milliseconds since 1970; none if none has.
    pub since_ms: Option<u64>,
    /// When the last one was released, milliseconds since 1970; 0 if none ever was.
    pub last_ms: u64,
}

impl Overflow {
    /// At least one has clones, or none.
    pub fn is_used(&mut self, wall_ms: u64, now: bool) {
        match self.since_ms {
            None if now => self.since_ms = Some(wall_ms),
            Some(since) if !now => {
                // Clocks of two leaders may differ.
                self.total_ms = self.total_ms.saturating_add(wall_ms.saturating_sub(since));
                (self.since_ms, self.last_ms) = (None, wall_ms);
            }
            _ => (),
        }
    }
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

    /// The clones of a service and their nodes, in order.
    pub fn of_service(&self, service: &str) -> impl Iterator<Item = (&CloneId, &NodeId)> {
        self.of.range(CloneId::new(service, 0)..=CloneId::new(service, u32::MAX))
    }

    /// The clones that a node is to run, in order.
    pub fn at(&self, node: NodeId) -> impl Iterator<Item = &CloneId> {
        self.of.keys().filter(move |id| self.has(id, node))
    }
}
