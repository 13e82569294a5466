//! Third copies that were missed. A write is done when two bricks have it, and the third gets it in the same moment; but where that one
//! has no room for it, is slow, or counts as dead here while it is being filled already, it goes without. Who wrote knows that, and
//! tells it: *you lack so many*. It then looks through all other bricks once more, as it does after a restart, and takes what it
//! lacks. No list of keys is kept, so there is no bound to it and nothing is forgotten; one look makes up for any number.

use base::{NodeId, Time};
use bytes::Bytes;

use super::brick::Wrote;
use super::limits::{LACKS_SINCE, LACKS_TOLD_EVERY};
use super::ops::{Leg, LegState, Running};
use super::wire::{LacksMessage, What};
use super::{Call, Session};

impl Session {
    /// A write has been acknowledged, and nobody goes on trying to bring it to the others.
    pub(super) fn note_missed(&mut self, call: &Call, op: &Running) {
        // By cookie only those are asked that are named there. A longer lease is no copy.
        if op.by_cookie || op.write.as_ref().is_none_or(|write| write.extend) {
            return;
        }
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::MissedUntold) {
            return;
        }
        for leg in op.legs.iter().filter(|leg| leg.lacks()) {
            if leg.node == self.me {
                self.fill_lacks(call.now, self.me, 1);
            } else if let Some(peer) = self.peers.get_mut(&leg.node) {
                peer.missed += 1;
                peer.missed_told.get_or_insert(call.now);
                let due = call.now + LACKS_TOLD_EVERY;
                self.tell_missed_at = Some(self.tell_missed_at.map_or(due, |at| at.min(due)));
            }
        }
    }

    /// Tells those that lack something, until they have heard it.
    pub(super) fn tell_missed(&mut self, call: &mut Call) {
        if self.tell_missed_at.is_none_or(|at| at > call.now) {
            return;
        }
        self.tell_missed_at = None;
        let members = self.map.as_ref().map(super::BrickMap::everyone).unwrap_or_default();
        let (hear, mut due) = (self.level >= LACKS_SINCE, Vec::new());
        for (node, peer) in &mut self.peers {
            // What left the map has no copies to keep; others have been filled in its place.
            if !members.contains(node) {
                (peer.missed, peer.missed_told) = (0, None);
            }
            let Some(told) = peer.missed_told.filter(|_| peer.missed > 0) else { continue };
            let mut next = told + LACKS_TOLD_EVERY;
            if next <= call.now {
                next = call.now + LACKS_TOLD_EVERY;
                peer.missed_told = Some(call.now);
                due.extend((peer.live && hear).then_some((*node, peer.missed)));
            }
            self.tell_missed_at = Some(self.tell_missed_at.map_or(next, |at| at.min(next)));
        }
        for (node, writes) in due {
            self.tell(call, node, self.map_seen(), What::Lacks(LacksMessage { writes }), Bytes::new());
        }
    }

    /// It has heard that it lacks so many, and will see to it.
    pub(super) fn heard_missed(&mut self, from: NodeId, writes: u64) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.missed = peer.missed.saturating_sub(writes);
            peer.missed_told = peer.missed_told.filter(|_| peer.missed > 0);
        }
    }

    pub(super) fn tell_missed_wake(&self) -> Option<Time> {
        self.tell_missed_at
    }

    /// Writes of this node that a brick lacks and has not heard of yet, and those that this node's brick lacks.
    pub(super) fn missed(&self) -> u64 {
        self.peers.values().map(|peer| peer.missed).fold(self.fill.lacks(), u64::saturating_add)
    }
}

impl Leg {
    /// It was to store it and has not. Who is full lacks it for good; who knows something newer lacks nothing.
    fn lacks(&self) -> bool {
        match self.state {
            LegState::Idle | LegState::Waiting | LegState::TimedOut | LegState::Dead | LegState::NoRoom => true,
            LegState::Wrote(Wrote::Ahead(_)) => true,
            LegState::Wrote(
                Wrote::Stored { .. } | Wrote::Conflict(_) | Wrote::Full | Wrote::Over(_) | Wrote::Undone,
            ) => false,
            LegState::Answered => false,
        }
    }
}
