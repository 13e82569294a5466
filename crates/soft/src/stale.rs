//! Staleness: how old what this node knows may be. Every peer says now and then how many updates its life has made; when all of those are
//! here, this node knows all that the peer knew when that was *heard*. No clocks are compared. A peer that is dead does not count.

use std::collections::VecDeque;

use base::{Boot, NodeId, Now, Span, Time};

use crate::Soft;
use crate::context::Context;
use crate::dot::{Dot, Life};
use crate::limits::CLAIMS_MAX;
use crate::machine::Peer;

/// What a peer has said of one namespace.
#[derive(Default)]
pub struct Said {
    /// All that was said by then is here.
    fresh: Option<Time>,
    /// So many updates, and when that was heard: not all of them are here. In the order of both.
    claims: VecDeque<(u64, Time)>,
    /// The most that was ever said.
    most: u64,
}

impl Said {
    fn hear(&mut self, now: Time, updates: u64) {
        // An older one that came late says nothing new.
        if updates < self.most {
            return;
        }
        self.most = updates;
        let has_room = self.claims.len() < CLAIMS_MAX;
        match self.claims.back_mut() {
            // Of the same number the newest counts: nothing was made in between.
            Some((last, at)) if updates == *last => *at = now,
            _ if has_room => self.claims.push_back((updates, now)),
            // Then it looks older than it is, until those before it are here.
            _ => (),
        }
    }

    fn look(&mut self, life: Life, here: &Context) {
        while let Some((updates, at)) = self.claims.front()
            && (*updates == 0 || here.has_all_to(Dot { life, seq: *updates }))
        {
            self.fresh = Some(*at);
            self.claims.pop_front();
        }
    }
}

impl Soft {
    /// A peer says that its life has made so many updates of a namespace.
    pub(crate) fn says(&mut self, now: Now, from: NodeId, boot: Boot, space: u32, updates: u64) {
        let Some(held) = self.spaces.get(&space) else { return };
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.boot == boot) else { return };
        let said = peer.said.entry(space).or_default();
        said.hear(now.mono, updates);
        said.look(Life { node: from, boot }, &held.space.context);
    }

    /// How old what is known of any namespace was at the last turn.
    pub(crate) fn age(&self) -> Span {
        let live = self.peers.values().filter(|peer| peer.dead.is_none());
        let fresh = live.flat_map(|peer| {
            let of = |id| peer.said.get(id).and_then(|said: &Said| said.fresh).unwrap_or(peer.since);
            self.spaces.keys().map(of)
        });
        fresh.min().map_or(Span::ZERO, |oldest| self.turn_at.since(oldest))
    }

    /// Since when, at most, another node may have made an update that is not here.
    pub(crate) fn staleness(&mut self, now: Now, space: u32) -> Span {
        let Some(held) = self.spaces.get(&space) else { return Span::ZERO };
        let of = |(id, peer): (&NodeId, &mut Peer)| {
            let said = peer.said.entry(space).or_default();
            said.look(Life { node: *id, boot: peer.boot }, &held.space.context);
            now.mono.since(said.fresh.unwrap_or(peer.since))
        };
        let live = self.peers.iter_mut().filter(|(_, peer)| peer.dead.is_none());
        live.map(of).max().unwrap_or(Span::ZERO)
    }
}
