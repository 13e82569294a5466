//! What others say of third parties, judged before SWIM hears it. SWIM lets every member say anything of any other: one that lies,
//! or is ill, could give a live node a life number or an incarnation that it can never outbid, and nobody would hear of that
//! node again.
//!
//! So a node's life number is what stood in the hello on its own link (its certificate backs that), and its epoch and
//! incarnation are what it said there itself; whatever somebody else says beyond these is dropped. A word of a death counts
//! only if we have heard nothing ourselves for as long as that takes to notice; else who is said to be dead is told, and
//! refutes it by a new epoch. Of those without a link others' words are all there is: they are believed, and are forgotten
//! as soon as the one they are about speaks for itself.

use base::{Boot, NodeId, Time};
use foca::{Foca, Member, State};

use super::limits::*;
use super::machine::{Membership, config};
use super::who::{FocaRng, Who, Wishes};
use super::wire::{self, Wire};
use super::{Output, Peer};
use crate::Card;

/// What a node has said of itself, on links of its own.
pub(super) struct Met {
    pub card: Card,
    epoch: u32,
    incarnation: u16,
}

impl Met {
    pub fn new(card: Card) -> Self {
        Self { card, epoch: 0, incarnation: 0 }
    }

    /// Does this go beyond all that it has said itself?
    fn is_below(&self, who: &Who, incarnation: u16) -> bool {
        (who.card.boot, who.epoch, incarnation) > (self.card.boot, self.epoch, self.incarnation)
    }
}

/// Of a life like this one: SWIM settles what is older.
fn life(who: &Who) -> (Boot, u32) {
    (who.card.boot, who.epoch)
}

impl Membership {
    /// A message of a peer without what it cannot know; none if it is not to be heard.
    pub(super) fn judged(&mut self, now: Time, from: NodeId, data: &[u8], out: &mut Vec<Output>) -> Option<Vec<u8>> {
        let Some(message) = wire::Whole::decode(data).filter(|message| message.header.src.card.id == from) else {
            self.rejected(from, "is not what a member says of itself", out);
            return None;
        };
        let (src, incarnation) = (&message.header.src, message.header.src_incarnation);
        if self.believes {
            return Some(data.to_vec());
        }
        let Some(met) = self.met.get_mut(&from).filter(|met| *src.card == met.card) else {
            // Of another life of it, or not who its hello said.
            self.frames_rejected += 1;
            return None;
        };
        (met.epoch, met.incarnation) = (met.epoch, met.incarnation).max((src.epoch, incarnation));
        let said = (met.card.boot, met.epoch, met.incarnation);
        let is_beyond = |peer: &Peer| (peer.who.card.boot, peer.who.epoch, peer.incarnation) > said;
        if self.peers.get(&from).is_some_and(is_beyond) {
            self.forget(now, from, out);
            out.push(Output::Refuted { what: format!("others had {from} in a life that it has not had") });
        }
        let mut kept = Vec::new();
        let mut all_kept = true;
        for member in &message.members {
            let keep = self.is_credible(now, from, member, out);
            all_kept &= keep;
            if keep {
                kept.push(member.clone());
            }
        }
        if all_kept { Some(data.to_vec()) } else { Some(message.with(&kept)) }
    }

    fn is_credible(&mut self, now: Time, from: NodeId, member: &Member<Who>, out: &mut Vec<Output>) -> bool {
        let (who, state) = (member.id(), member.state());
        let id = who.card.id;
        if id == from {
            // Of itself it may say what it likes.
            return self.met.get(&id).is_some_and(|met| !met.is_below(who, member.incarnation()));
        }
        if id == self.me.id {
            let is_so = life(who) <= life(self.foca.identity());
            if !is_so {
                let what =
                    format!("{from} has this node in {}, epoch {}, which it has not had", who.card.boot, who.epoch);
                out.push(Output::Refuted { what });
            }
            return is_so;
        }
        let Some(peer) = self.peers.get(&id) else {
            // Nobody is brought in by hearsay but those that may be here.
            let named = &self.admission.named;
            return named.is_empty() || named.contains_key(&id);
        };
        let speaks = peer.linked.is_some() && !peer.quiet && now < peer.heard + SILENCE + ANSWER;
        let Some(met) = self.met.get(&id).filter(|_| speaks) else { return true };
        if met.is_below(who, member.incarnation()) {
            // It was restarted, or somebody lies. Its link will tell.
            self.ask(now, id, out);
            return false;
        }
        if state != State::Down || life(who) < life(&peer.who) {
            return true;
        }
        let news = Member::new(peer.who.clone(), peer.incarnation, State::Down);
        let (who, head) = (peer.who.clone(), wire::tell(self.foca.identity(), &peer.who, &news));
        let peer = self.peers.get_mut(&id).expect("it was just there");
        if now >= peer.notice_at {
            peer.notice_at = now + NOTICE;
            out.push(Output::Send { to: id, head });
            out.push(Output::Refuted { what: format!("{from} has {} dead, which speaks", who.card.name) });
        }
        false
    }

    /// Forgets what SWIM has of a member, as if nobody had ever spoken of it.
    pub(super) fn forget(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let list: Vec<Member<Who>> =
            self.foca.iter_membership_state().filter(|m| m.id().card.id != id).cloned().collect();
        let who = self.foca.identity().clone();
        self.foca = Foca::new(who, config(), FocaRng(self.rng.fork()), Wire);
        // They were the other list's.
        self.timers.clear();
        let mut wishes = Wishes::default();
        self.foca.apply_many(list.into_iter(), false, &mut wishes).expect("members fit into a Vec");
        self.grant(now, wishes, out);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.suspicion = None;
        }
    }
}
