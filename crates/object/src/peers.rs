//! The other nodes: who is declared, who lives, how much each has to do.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, NodeId, Span, Time};

use crate::alone::Alone;
use crate::limits::{REPAIR_AFTER, REPAIR_PART};

#[derive(Default)]
pub(crate) struct Peers {
    all: BTreeMap<NodeId, Peer>,
    /// Nodes that were let in and not removed; empty until that is known.
    declared: BTreeSet<NodeId>,
    /// About to end, drained, or slow: no new copies go there.
    pub aside: BTreeSet<NodeId>,
    /// About to leave for good, each with whether that is by force: their copies do not count.
    pub leaving: BTreeMap<NodeId, bool>,
    alone: Alone,
}

struct Peer {
    live: bool,
    boot: Boot,
    /// Since when the node lives, or is away.
    since: Time,
    /// Away for so long that its copies are made elsewhere.
    is_long_away: bool,
    pending: u64,
    full: bool,
}

impl Peers {
    pub fn declared(&mut self, me: NodeId, now: Time, nodes: BTreeSet<NodeId>) {
        self.declared = nodes;
        for node in self.declared.iter().filter(|node| **node != me) {
            self.all.entry(*node).or_insert_with(|| Peer::away(now));
        }
        self.all.retain(|node, peer| peer.live || self.declared.contains(node));
    }

    /// True if its former life was thought to last.
    pub fn birth(&mut self, now: Time, peer: NodeId, boot: Boot) -> bool {
        let known = self.all.entry(peer).or_insert_with(|| Peer::away(now));
        let is_another = known.live && known.boot != boot;
        if !known.live || is_another {
            *known = Peer { live: true, boot, since: now, is_long_away: false, pending: 0, full: false };
        }
        is_another
    }

    /// True if it lived.
    pub fn death(&mut self, now: Time, peer: NodeId) -> bool {
        let Some(known) = self.all.get_mut(&peer).filter(|known| known.live) else { return false };
        (known.live, known.since) = (false, now);
        true
    }

    pub fn hear(&mut self, from: NodeId, pending: u64, full: bool) {
        if let Some(peer) = self.all.get_mut(&from) {
            (peer.pending, peer.full) = (pending, full);
        }
        if self.declared.contains(&from) {
            self.alone.hear();
        }
    }

    /// Whether this node is still one of the cluster's, for all that it can know: it may answer for what it alone has. Of two nodes
    /// none is gone without a word, however long it is away.
    pub fn is_in(&self, now: Time) -> bool {
        self.declared.len() <= 2 || self.alone.is_in(now)
    }

    /// Marks those that have been away for long now, where they are waited for so long. True if there are new ones.
    pub fn mark_long_away(&mut self, now: Time, away_for: Span) -> bool {
        let lives = self.live().next().is_some();
        self.alone.look(now, lives, away_for);
        let after = REPAIR_AFTER.min(Span(away_for.0 / REPAIR_PART));
        let is_new = |peer: &&mut Peer| !peer.live && !peer.is_long_away && now.since(peer.since) >= after;
        self.all.values_mut().filter(is_new).map(|peer| peer.is_long_away = true).count() > 0
    }

    pub fn live(&self) -> impl Iterator<Item = NodeId> {
        self.all.iter().filter(|(_, peer)| peer.live).map(|(node, _)| *node)
    }

    pub fn is_live(&self, node: NodeId) -> bool {
        self.all.get(&node).is_some_and(|peer| peer.live)
    }

    /// Since when the node lives, or is away.
    pub fn since(&self, node: NodeId) -> Time {
        self.all.get(&node).map_or(Time::ZERO, |peer| peer.since)
    }

    pub fn leaves(&self, node: NodeId) -> bool {
        self.leaving.contains_key(&node)
    }

    pub fn is_long_away(&self, node: NodeId) -> bool {
        self.all.get(&node).is_some_and(|peer| peer.is_long_away)
    }

    pub fn is_declared(&self, node: NodeId) -> bool {
        self.declared.is_empty() || self.declared.contains(&node)
    }

    /// Nodes that may have objects; none while that is not known.
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.declared
    }

    pub fn pending(&self, node: NodeId) -> u64 {
        self.all.get(&node).map_or(0, |peer| peer.pending)
    }

    pub fn is_full(&self, node: NodeId) -> bool {
        self.all.get(&node).is_some_and(|peer| peer.full)
    }
}

impl Peer {
    fn away(now: Time) -> Self {
        Self { live: false, boot: Boot(0), since: now, is_long_away: false, pending: 0, full: false }
    }
}
