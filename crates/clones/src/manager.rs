//! The manager: spreads the clones of all services over the live nodes. It runs at the root group's leader; a new leader
//! goes on from the newest assignments it has seen and from what the nodes' beacons say runs.
//!
//! What should run where is decided by [`plan`], a pure function. The machine around it keeps what a function cannot: terms,
//! the first moments of a leader, and moves that take too long.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Now, Time};

use crate::clone::Happened;
use crate::limits::{MOVE_REST, MOVE_TIME_MAX, SETTLE};
use crate::plan::{Absence, Cluster, plan};
use crate::{Assignments, CloneId, CloneState, NodeClones, ServiceSpec};

/// A live node, as its beacons describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLoad {
    pub id: NodeId,
    /// For messages.
    pub name: String,
    /// 0 (idle) to 1000 (full).
    pub load: u16,
    /// Its beacon is here. Without, `clones` is empty because nothing is known.
    pub reported: bool,
    /// It is to run no clones: it is drained, or about to end.
    pub drains: bool,
    /// Version of the assignments it obeys.
    pub obeys: (u64, u64, NodeId),
    /// What it says it runs; the best state of each clone.
    pub clones: BTreeMap<CloneId, CloneState>,
}

#[derive(Debug)]
pub enum Input {
    /// Whether this node leads the root group. Saying the same again changes nothing.
    Leads(bool),
    /// Assignments in some other node's beacon.
    Seen(Assignments),
    /// What is declared and who lives, this node included: after every change of either, and of what a node says it runs.
    /// A leader needs it; nothing is planned between `Leads(true)` and the first of these, unless one came before.
    Cluster {
        services: BTreeMap<String, ServiceSpec>,
        live: Vec<NodeLoad>,
        /// Clones that are not to run.
        off: BTreeSet<CloneId>,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Put these into our beacon, and give them to our own group.
    Assign(Assignments),
    /// Take our beacon back: another leader's is newer.
    Withdraw,
    Happened(Happened),
}

pub struct Manager {
    me: NodeId,
    /// The newest seen or written.
    current: Assignments,
    /// None until the node has told about it: nothing is planned for a cluster that only seems empty.
    cluster: Option<Cluster>,
    /// Names of all nodes seen alive, for messages about the dead.
    names: BTreeMap<NodeId, String>,
    leading: Option<Leading>,
    /// Our own beacon holds assignments.
    published: bool,
}

/// What a leader keeps. A new one starts without.
struct Leading {
    since: Time,
    /// `current` is in our beacon as it is.
    published: bool,
    /// When each move under way began.
    moves: BTreeMap<CloneId, Time>,
    /// Services in which a move failed: until when nothing is moved for balance.
    resting: BTreeMap<String, Time>,
}

impl NodeLoad {
    /// `says` is the content of the node's beacon, if it is here.
    pub fn new(id: NodeId, name: impl Into<String>, load: u16, says: Option<&NodeClones>) -> Self {
        let rank = |state: CloneState| match state {
            CloneState::Serving => 3,
            CloneState::Starting => 2,
            CloneState::Backoff => 1,
            CloneState::Draining => 0,
        };
        let mut clones: BTreeMap<CloneId, CloneState> = BTreeMap::new();
        for clone in says.iter().flat_map(|says| &says.clones) {
            let best = clones.entry(clone.id.clone()).or_insert(clone.state);
            if rank(clone.state) > rank(*best) {
                *best = clone.state;
            }
        }
        let obeys = says.map_or((0, 0, NodeId(0)), |says| says.obeys);
        Self { id, name: name.into(), load, reported: says.is_some(), drains: false, obeys, clones }
    }
}

impl Manager {
    pub fn new(me: NodeId) -> Self {
        Self {
            me,
            current: Assignments::default(),
            cluster: None,
            names: BTreeMap::new(),
            leading: None,
            published: false,
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Leads(true) if self.leading.is_none() => {
                let (moves, resting) = (BTreeMap::new(), BTreeMap::new());
                self.leading = Some(Leading { since: now.mono, published: false, moves, resting });
                self.outbid(self.current.term);
            }
            Input::Leads(true) => (),
            // What was known of the cluster goes too: by the next time it leads it would be a picture of the past.
            Input::Leads(false) => (self.leading, self.cluster) = (None, None),
            Input::Seen(seen) => self.saw(now.mono, seen, out),
            Input::Cluster { services, live, off } => {
                self.names.extend(live.iter().map(|node| (node.id, node.name.clone())));
                let (absence, resting) = (Absence::Doubted, BTreeSet::new());
                self.cluster = Some(Cluster { services, live, absence, resting, off });
            }
            Input::Wake => (),
        }
        self.lead(now.mono, out);
    }

    /// The next moment this manager wants `Input::Wake`, if any.
    pub fn wake_at(&self) -> Option<Time> {
        let leading = self.leading.as_ref()?;
        // With nothing known of the cluster there is nothing to wake for.
        let cluster = self.cluster.as_ref().filter(|cluster| !cluster.live.is_empty())?;
        let believes = cluster.absence == Absence::Believed;
        let settled = (!believes).then_some(leading.since + SETTLE);
        let moves = leading.moves.values().map(|began| *began + MOVE_TIME_MAX);
        moves.chain(leading.resting.values().copied()).chain(settled).min()
    }

    /// The newest assignments seen or written.
    pub fn assignments(&self) -> &Assignments {
        &self.current
    }

    /// Makes ours the newest again, whoever wrote up to `term`.
    fn outbid(&mut self, term: u64) {
        (self.current.term, self.current.seq, self.current.by) = (term + 1, 0, self.me);
        if let Some(leading) = &mut self.leading {
            leading.published = false;
        }
    }

    fn saw(&mut self, now: Time, seen: Assignments, out: &mut Vec<Output>) {
        if !seen.is_newer_than(&self.current) {
            return;
        }
        let term = seen.term;
        match &self.leading {
            None => {
                self.current = seen;
                if std::mem::take(&mut self.published) {
                    out.push(Output::Withdraw);
                }
            }
            // Our predecessor's last word came late: go on from it. Once settled, it is from a leader of the past.
            Some(leading) => {
                if now < leading.since + SETTLE {
                    self.current = seen;
                }
                self.outbid(term);
            }
        }
    }

    fn lead(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(obeyed) = self.cluster.as_ref().and_then(|c| c.live.iter().map(|node| node.obeys).max()) else {
            return; // Nothing is known of the cluster, or nobody lives.
        };
        // Nodes remember what a leader wrote whose beacon is gone; theirs must not stay newer than ours.
        if self.leading.is_some() && obeyed > self.current.version() {
            self.outbid(obeyed.0);
        }
        let (Some(leading), Some(cluster)) = (&mut self.leading, &mut self.cluster) else { return };
        leading.resting.retain(|_, until| *until > now);
        let mut next = self.current.clone();
        for id in leading.take_back(now, &mut next, &cluster.live) {
            leading.moves.remove(&id);
            leading.resting.insert(id.service.clone(), now + MOVE_REST);
            let text = "did not come up at its new node in time and stays where it was";
            out.push(Output::Happened(Happened::new("warning", &id, text)));
        }
        cluster.absence = if now >= leading.since + SETTLE { Absence::Believed } else { Absence::Doubted };
        cluster.resting = leading.resting.keys().cloned().collect();
        next = plan(cluster, &next);
        leading.moves.retain(|id, _| next.leaving.contains_key(id));
        for id in next.leaving.keys() {
            leading.moves.entry(id.clone()).or_insert(now);
        }
        if next == self.current && leading.published {
            return;
        }
        leading.published = true;
        self.tell_moves(&next, out);
        next.seq += 1;
        self.current = next;
        self.published = true;
        out.push(Output::Assign(self.current.clone()));
    }

    /// An event for each clone that has come to another node.
    fn tell_moves(&self, next: &Assignments, out: &mut Vec<Output>) {
        for (id, to) in &next.of {
            let Some(was_at) = self.current.of.get(id) else { continue };
            let drains = |id: NodeId| {
                self.cluster.as_ref().is_some_and(|c| c.live.iter().any(|node| node.id == id && node.drains))
            };
            let text = match (self.current.leaving.get(id), next.leaving.get(id)) {
                (Some(from), None) if was_at == to => {
                    let why = if drains(*from) { ", which drains" } else { " for balance" };
                    format!("moved to {} from {}{why}", self.name(*to), self.name(*from))
                }
                (None, None) if was_at != to => {
                    let why = if drains(*was_at) { "drains" } else { "is gone" };
                    format!("starts at {}, as {} {why}", self.name(*to), self.name(*was_at))
                }
                _ => continue,
            };
            out.push(Output::Happened(Happened::new("clone-moved", id, text)));
        }
    }

    fn name(&self, node: NodeId) -> String {
        self.names.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }
}

impl Leading {
    /// Takes back the moves that took too long, and returns whose they were.
    fn take_back(&self, now: Time, next: &mut Assignments, live: &[NodeLoad]) -> Vec<CloneId> {
        let late = self.moves.iter().filter(|(_, began)| now >= **began + MOVE_TIME_MAX).map(|(id, _)| id);
        let mut taken = Vec::new();
        for id in late {
            let Some(from) = next.leaving.get(id).filter(|from| live.iter().any(|node| node.id == **from)) else {
                continue;
            };
            next.of.insert(id.clone(), *from);
            next.leaving.remove(id);
            taken.push(id.clone());
        }
        taken
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
