//! Pushes by way of another node. A link that loses packets stands still until TCP has sent them again, some 200 ms for each time; the links
//! to and from a third node mostly do not stand still at that moment. Nothing goes this way where acknowledgements come in time.

use base::{Frame, NodeId, Now};
use bytes::Bytes;
use prost::Message;

use crate::claims;
use crate::limits::RELAY_LEVEL;
use crate::machine::kind;
use crate::repair::fits;
use crate::space::Odd;
use crate::wire::{Push, Relay};
use crate::{Output, Soft};

impl Soft {
    /// Sends what is late at a peer to another one, which hands it on.
    pub(crate) fn push_around(&mut self, now: Now, out: &mut Vec<Output>) {
        let may_relay = self.level >= RELAY_LEVEL && self.live().nth(1).is_some();
        let mut late: Vec<(NodeId, Bytes)> = Vec::new();
        for (to, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.dead.is_none()) {
            peer.window.may_relay(may_relay);
            late.extend(peer.window.relays(now.mono).into_iter().map(|push| (*to, push)));
        }
        for (to, push) in late {
            let others: Vec<NodeId> = self.live().filter(|other| *other != to).collect();
            let by = others[self.rng.below(others.len() as u64) as usize];
            let relay = Relay { of: self.life.node.0, to: to.0, push };
            let frame = Frame::new(kind::RELAY, relay.encode_to_vec());
            if fits(&frame) {
                self.seen.again += 1;
                out.push(Output::Send { to: by, frame });
            }
        }
    }

    /// Hands on what is for another peer, or takes what is for this node. It is handed on once: only what its own maker sends is.
    pub(crate) fn relay(
        &mut self,
        now: Now,
        from: NodeId,
        (relay, head): (Relay, Bytes),
        out: &mut Vec<Output>,
    ) -> Result<(), Odd> {
        let Relay { of, to, push } = relay;
        let (of, to) = (NodeId(of), NodeId(to));
        if to != self.life.node {
            let is_live = self.peers.get(&to).is_some_and(|peer| peer.dead.is_none());
            if of != from {
                return Err(Odd("an update of somebody else's to be handed on"));
            }
            out.extend(is_live.then(|| Output::Send { to, frame: Frame::new(kind::RELAY, head) }));
            return Ok(());
        }
        if !self.peers.contains_key(&of) {
            return Ok(());
        }
        // Who hands it on does not look into it: what is odd about it is not theirs.
        let is_taken = claims::read::<Push>(push).is_ok_and(|push| self.pushed(now, of, push, out).is_ok());
        self.seen.odd += u64::from(!is_taken);
        Ok(())
    }
}
