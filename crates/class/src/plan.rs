//! What a class plans: records of the root group that follow what is declared and who is here. Only the root group's leader asks for
//! plans, and proposes them; a plan that was made on what is not so any more is refused there, and the next look makes another one.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Span};
use bytes::Bytes;

use crate::Class;

/// The record of this name, if it is there.
pub type Lookup<'a> = dyn Fn(&str) -> Option<&'a Bytes> + 'a;

/// The cluster as the root group's leader sees it, for the planner of one class. All classes are shown the same.
pub struct Outlook<'a, C: Class> {
    /// The version of the declaration. What is planned now stands in a later one.
    pub version: u64,
    /// Live nodes, this one among them.
    pub live: &'a [NodeId],
    /// How long nodes have been dead. One that entered anew or was removed does not come back: for ever.
    pub away: &'a BTreeMap<NodeId, Span>,
    /// Nodes that this one has heard of since it started.
    pub seen: &'a BTreeSet<NodeId>,
    /// How long ago this node started: so long at least those have been away that it has never heard of.
    pub watched: Span,
    /// Live nodes that leave for good, each with whether that is by force: without waiting for others to have what it has.
    pub leaving: &'a BTreeMap<NodeId, bool>,
    /// Live nodes whose disks take nothing, or are much slower than those of most, and for how long.
    pub troubled: &'a BTreeMap<NodeId, Span>,
    /// Consensus groups that namespaces of all classes want ([`crate::Spec::groups`]).
    pub groups: &'a BTreeMap<&'a str, Groups>,
    /// A record of the class, as it is kept.
    pub record: Box<Lookup<'a>>,
    /// What the class's part of a node told last. By default, if it has told nothing yet.
    pub report: Box<dyn Fn(NodeId) -> &'a C::Report + 'a>,
    /// What a node tells all others under a key.
    pub facts: &'a dyn Fn(NodeId, &str) -> Option<&'a Bytes>,
}

impl<C: Class> Outlook<'_, C> {
    /// How long nodes have been away, those of `known` among them that this node has never heard of.
    pub fn away(&self, known: impl IntoIterator<Item = NodeId>) -> BTreeMap<NodeId, Span> {
        let is_new = |id: &NodeId| !self.seen.contains(id) && !self.live.contains(id);
        let unseen = known.into_iter().filter(is_new).map(|id| (id, self.watched));
        let mut away: BTreeMap<NodeId, Span> = unseen.collect();
        away.extend(self.away);
        away
    }
}

/// What should become of the records of a class. Nothing of it: all are as they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan<R> {
    /// By name.
    pub puts: BTreeMap<String, R>,
    pub removes: Vec<String>,
    /// What people are told when it is done: the kind of event, whom it is about, and a sentence.
    pub told: Vec<(&'static str, String, String)>,
}

impl<R> Default for Plan<R> {
    fn default() -> Self {
        Self { puts: BTreeMap::new(), removes: Vec::new(), told: Vec::new() }
    }
}

impl<R> Plan<R> {
    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.removes.is_empty() && self.told.is_empty()
    }

    /// With other records.
    pub fn map<T>(self, mut to: impl FnMut(R) -> T) -> Plan<T> {
        let puts = self.puts.into_iter().map(|(name, record)| (name, to(record))).collect();
        Plan { puts, removes: self.removes, told: self.told }
    }
}

/// Consensus groups that a namespace wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// How many. None: one.
    pub shards: Option<u32>,
    /// ... and more when it is large.
    pub grows: bool,
    /// Members of each.
    pub replicas: u32,
    /// What two hold in memory counts as kept.
    pub memory: bool,
}
