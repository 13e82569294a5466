//! Which clone runs where: a pure function of what is declared, who lives, and how it is now. Nothing moves without a
//! reason. The reasons are a dead node, one that drains, and for balance a node that has two clones of a service more than
//! another. Who moves from a live node stays there until the new one serves: for balance one clone at a time in the whole
//! cluster, from nodes that drain some at once.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;

use crate::limits::MOVES_AT_ONCE;
use crate::{Assignments, CloneId, CloneState, NodeLoad, ServiceSpec};

/// How a node that is not among the live ones is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// The leader is new and may not have heard of it yet: nothing is moved.
    Doubted,
    /// The node is dead: its clones are moved.
    Believed,
}

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub services: BTreeMap<String, ServiceSpec>,
    pub live: Vec<NodeLoad>,
    pub absence: Absence,
    /// Nodes that this node itself saw alive and then die: no doubt about those.
    pub dead: BTreeSet<NodeId>,
    /// Services of which nothing is moved for balance now.
    pub resting: BTreeSet<String>,
    /// Clones that are not to run.
    pub off: BTreeSet<CloneId>,
    /// Versions that are being rolled out, by service, and whether each is judged.
    pub next: BTreeMap<String, (u32, bool)>,
    /// How many clones each service is to have that has a range; without, as many as it has, within its range.
    pub sizes: BTreeMap<String, u32>,
    /// Nodes whose machines are as busy as they can be.
    pub busy: BTreeSet<NodeId>,
}

/// The next assignments after `current`, with its version: the caller counts it up if they differ. Clones whose node
/// lives stay, those without a node go where the fewest of their service (then of all, then the least load) are; nodes for
/// overflow come last.
/// With nobody alive nothing changes.
pub fn plan(cluster: &Cluster, current: &Assignments) -> Assignments {
    if cluster.live.is_empty() {
        return current.clone();
    }
    let (term, seq, by, boot) = current.version();
    let mut next = Assignments { term, seq, by, boot, overflow: current.overflow, ..Assignments::default() };
    let mut homeless = Vec::new();
    for (service, spec) in &cluster.services {
        for number in 0..cluster.size(service, spec, current) {
            let id = CloneId::new(service.as_str(), number);
            if cluster.off.contains(&id) {
                continue;
            }
            match cluster.stays(current, &id) {
                Stays::At { node, leaving } => {
                    next.leaving.extend(leaving.map(|from| (id.clone(), from)));
                    next.of.insert(id, node);
                }
                Stays::Nowhere => homeless.push(id),
                Stays::NotKnown => (),
            }
        }
    }
    // After all that stay, so that they find their places by what is really there.
    let mut counts = Counts::of(cluster, &next);
    for id in homeless {
        let node = counts.best_for(cluster, &id.service);
        counts.put(&id.service, node);
        next.of.insert(id, node);
    }
    let is_rolled_out =
        |id: &CloneId, version: u32| cluster.next.get(&id.service).is_some_and(|next| next.0 == version);
    let fresh = current.fresh.iter().filter(|(id, version)| next.of.contains_key(*id) && is_rolled_out(id, **version));
    next.fresh = fresh.map(|(id, version)| (id.clone(), *version)).collect();
    if cluster.absence == Absence::Believed {
        cluster.drain(&mut counts, &mut next);
        if next.leaving.is_empty() {
            cluster.balance(&counts, &mut next);
        }
    }
    next
}

enum Stays {
    At {
        node: NodeId,
        leaving: Option<NodeId>,
    },
    Nowhere,
    /// The clone may run somewhere: wait for the beacons.
    NotKnown,
}

impl Cluster {
    /// How many clones a service is to have.
    pub(crate) fn size(&self, service: &str, spec: &ServiceSpec, current: &Assignments) -> u32 {
        let has = || current.of_service(service).count() as u32;
        spec.standing().clamp(self.sizes.get(service).copied().unwrap_or_else(has))
    }

    /// Where a clone stays, if it does.
    fn stays(&self, current: &Assignments, id: &CloneId) -> Stays {
        let may_live = |node: &NodeId| self.absence == Absence::Doubted && !self.dead.contains(node);
        let lives = |node: &NodeId| self.node(*node).is_some() || may_live(node);
        let from = current.leaving.get(id).copied();
        if let Some(node) = current.of.get(id).copied() {
            let leaving = from.filter(lives);
            match leaving {
                // The move is over: the new one serves.
                Some(_) if self.serves(node, id) => return Stays::At { node, leaving: None },
                // Its new node died; the old one still has it.
                Some(from) if !lives(&node) => return Stays::At { node: from, leaving: None },
                Some(_) | None if lives(&node) => return Stays::At { node, leaving },
                Some(_) | None => (),
            }
        }
        // Nobody has placed it, or its place is gone. It may run all the same, placed by a leader whose word was lost.
        let running = |node: &&NodeLoad| node.clones.get(id).is_some_and(|state| *state != CloneState::Draining);
        match self.live.iter().filter(running).min_by_key(|node| (!self.serves(node.id, id), node.id)) {
            Some(node) => Stays::At { node: node.id, leaving: None },
            None if self.absence == Absence::Doubted && self.live.iter().any(|node| !node.reported) => Stays::NotKnown,
            None => Stays::Nowhere,
        }
    }

    /// Nodes that may be given clones: those that do not drain, or all if all do.
    fn open(&self) -> impl Iterator<Item = &NodeLoad> + Clone {
        let all_drain = self.live.iter().all(|node| node.drains);
        self.live.iter().filter(move |node| all_drain || !node.drains)
    }

    /// Starts moves away from nodes that drain. What does not serve there has nothing to stay for.
    fn drain(&self, counts: &mut Counts, next: &mut Assignments) {
        if self.live.iter().all(|node| node.drains) {
            return;
        }
        let drains = |node: &NodeId| self.node(*node).is_some_and(|node| node.drains);
        // A move that failed is tried again: an operator waits for it.
        let must_go = |(id, at): &(&CloneId, &NodeId)| drains(at) && !next.leaving.contains_key(id);
        let room = MOVES_AT_ONCE.saturating_sub(next.leaving.len());
        let going: Vec<(CloneId, NodeId)> =
            next.of.iter().filter(must_go).take(room).map(|(id, at)| (id.clone(), *at)).collect();
        for (id, from) in going {
            let to = counts.best_for(self, &id.service);
            counts.put(&id.service, to);
            next.of.insert(id.clone(), to);
            if self.serves(from, &id) {
                next.leaving.insert(id, from);
            }
        }
    }

    /// Starts one move if some service is uneven and well.
    fn balance(&self, counts: &Counts, next: &mut Assignments) {
        // An overflow node gives back what has room elsewhere, and takes nothing for balance.
        let home = || self.open().filter(|node| counts.rank(self, node.id) == Rank::Home);
        let has_guests = |node: &NodeLoad| node.overflow && node.reported && counts.total(node.id) > 0;
        let lends = home().next().is_some() && self.open().any(has_guests);
        let even = |service: &String| {
            let at = home().map(|node| counts.of_service(service, node.id));
            at.clone().max().unwrap_or(0) < at.min().unwrap_or(0) + 2
        };
        for service in self.services.keys() {
            let its: Vec<&CloneId> = next.of_service(service).map(|(id, _)| id).collect();
            let well = its.iter().all(|id| self.serves(next.of[*id], id));
            if !well || self.resting.contains(service) {
                continue;
            }
            let is_guest = |id: &&&CloneId| self.node(next.of[**id]).is_some_and(|node| node.overflow && node.reported);
            let guest = its.iter().filter(is_guest).max_by_key(|id| id.number).filter(|_| lends);
            let fullest = |id: &&&CloneId| (counts.key(self, service, next.of[**id]), id.number);
            let goes = match guest {
                Some(guest) => Some(guest),
                None if even(service) => None,
                None => its.iter().filter(|id| !is_guest(id)).max_by_key(fullest),
            };
            let Some(id) = goes.map(|id| (*id).clone()) else { continue };
            let to = counts.best_for(self, service);
            if let Some(from) = next.of.insert(id.clone(), to) {
                next.leaving.insert(id, from);
            }
            return;
        }
    }

    fn node(&self, id: NodeId) -> Option<&NodeLoad> {
        self.live.iter().find(|node| node.id == id)
    }

    /// How many clones of a service serve, where they are or where they come from.
    pub(crate) fn serving(&self, service: &str, current: &Assignments) -> u32 {
        let serve = current.of_service(service).filter(|(id, at)| {
            self.serves(**at, id) || current.leaving.get(*id).is_some_and(|from| self.serves(*from, id))
        });
        serve.count() as u32
    }

    pub(crate) fn serves(&self, node: NodeId, id: &CloneId) -> bool {
        self.node(node).is_some_and(|node| node.clones.get(id) == Some(&CloneState::Serving))
    }
}

/// Where clones go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// An ordinary node that has room.
    Home,
    /// One for overflow.
    Overflow,
    /// One that is full.
    Full,
}

/// How many clones each node has, of each service and in all.
#[derive(Default)]
struct Counts {
    of_service: BTreeMap<(String, NodeId), u32>,
    total: BTreeMap<NodeId, u32>,
}

impl Counts {
    fn of(cluster: &Cluster, assignments: &Assignments) -> Self {
        let mut counts = Self::default();
        for (id, node) in &assignments.of {
            if cluster.node(*node).is_some() {
                counts.put(&id.service, *node);
            }
        }
        counts
    }

    fn put(&mut self, service: &str, node: NodeId) {
        *self.of_service.entry((service.to_owned(), node)).or_default() += 1;
        *self.total.entry(node).or_default() += 1;
    }

    fn of_service(&self, service: &str, node: NodeId) -> u32 {
        self.of_service.get(&(service.to_owned(), node)).copied().unwrap_or(0)
    }

    fn total(&self, node: NodeId) -> u32 {
        self.total.get(&node).copied().unwrap_or(0)
    }

    fn rank(&self, cluster: &Cluster, id: NodeId) -> Rank {
        let Some(node) = cluster.node(id) else { return Rank::Full };
        match (self.total(id) >= node.room || cluster.busy.contains(&id), node.overflow) {
            (true, _) => Rank::Full,
            (false, true) => Rank::Overflow,
            (false, false) => Rank::Home,
        }
    }

    /// How full a node is for a service: the smaller the better.
    fn key(&self, cluster: &Cluster, service: &str, node: NodeId) -> (u32, u32, u16, NodeId) {
        let load = cluster.node(node).map_or(0, |node| node.load);
        (self.of_service(service, node), self.total(node), load, node)
    }

    fn best_for(&self, cluster: &Cluster, service: &str) -> NodeId {
        let nodes = cluster.open().map(|node| node.id);
        // Of full ones those for overflow come last, too.
        let overflow = |id: NodeId| cluster.node(id).is_some_and(|node| node.overflow);
        let key = |node: &NodeId| (self.rank(cluster, *node), overflow(*node), self.key(cluster, service, *node));
        nodes.min_by_key(key).expect("somebody lives")
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
