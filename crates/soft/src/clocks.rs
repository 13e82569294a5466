//! Wall clocks choose what is read among writes that did not see each other, and decide nothing else. A node whose clock is a year ahead
//! would win all of these. So digests say what the clock of their sender shows, and who is over a second off the middle one of all live
//! members (of two, the earlier) gives its stamps by that. What has come with a stamp far ahead all the same is taken, as members must
//! become equal; it is read until somebody writes again, and its sender is named.

use base::{NodeId, Note, Now};

use crate::limits::AHEAD_MS_MAX;
use crate::{Output, Soft};

impl Soft {
    /// A peer says what its clock shows.
    pub(crate) fn hears_clock(&mut self, now: Now, from: NodeId, wall_ms: u64) {
        let Some(peer) = self.peers.get_mut(&from).filter(|_| wall_ms > 0) else { return };
        peer.ahead_ms = Some(wall_ms.cast_signed().wrapping_sub(now.wall_ms.cast_signed()));
        let live = self.peers.values().filter(|peer| peer.dead.is_none());
        let mut all: Vec<i64> = live.filter_map(|peer| peer.ahead_ms).chain([0]).collect();
        all.sort_unstable();
        let middle = all[(all.len() - 1) / 2];
        // Less may be what a message takes on its way.
        let off_ms = if middle.unsigned_abs() > AHEAD_MS_MAX { middle } else { 0 };
        self.spaces.values_mut().for_each(|held| held.space.off_ms = off_ms);
    }

    /// Tells people of a peer that sent a time far ahead, once in each of its lives.
    pub(crate) fn names_ahead(&mut self, from: NodeId, space: u32, out: &mut Vec<Output>) {
        let Some(held) = self.spaces.get_mut(&space) else { return };
        let ahead = std::mem::take(&mut held.space.ahead);
        self.seen.ahead += ahead;
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| ahead > 0 && !peer.is_named) else { return };
        peer.is_named = true;
        let name = self.ids.iter().find(|(_, id)| **id == space).map_or("", |(name, _)| name);
        let text = format!(
            "class soft: {from} sends values of namespace {name} with a time that is more than a second ahead: they are read until \
             somebody writes again; set the clocks of all nodes right"
        );
        out.push(Output::Note(Note::warn(text)));
    }
}
