//! Who is let in, and that it stays so: links are asked when they come up and again with each new declaration,
//! membership knows nobody else, and the view tells the host, which asks for tunnels. A node that was removed is told
//! so by those whom it knows, and ends; it believes more than half of them, two at least, and nobody less: it gives up
//! all that it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Effect, Frame, NodeId, Note, Now, kind};
use bytes::Bytes;
use cluster::admission::{Gone, Word};
use cluster::{Admission, Card, membership, root};

use crate::declared::kind as record;
use crate::departure::{Departure, Leaving};

use crate::facts;
use crate::former::{self, Former};
use crate::level;
use crate::limits::{ADMISSION_WAIT, REFUSED_LINES, STRICT_AFTER, WAITING_MAX};
use crate::node::{Node, Out};

/// What is declared of nodes; none is strict.
pub(crate) fn declared(now: &root::Declared) -> Admission {
    let named = now.of_kind(record::NODE).filter_map(|(name, id)| Some((facts::decode(id)?, name.to_owned())));
    let gone = now.of_kind(record::FORMER).filter_map(|(key, former)| {
        let former: Former = facts::decode(former)?;
        let id = former::former_of(key)?;
        Some((id, former.gone(id)))
    });
    Admission { named: named.collect(), gone: gone.collect(), strict: false }
}

impl Node {
    /// A link is up, to somebody with a certificate of this cluster.
    pub(crate) fn linked(&mut self, now: Now, card: Card, out: &mut Out) {
        let (peer, name) = (card.id, card.name.clone());
        self.waiting.remove(&peer);
        match self.admission.of(&card) {
            Word::Gone(why) => self.turn_out(now, peer, &name, why, out),
            Word::Misnamed => {
                let text =
                    format!("{peer} calls itself {name:?}, which is not the name it was admitted under; hung up");
                self.refuse(now, peer, text, out);
                out.push(Effect::Hangup { peer });
            }
            Word::Unheard if self.admission.strict && self.waiting.len() >= WAITING_MAX => {
                out.push(Effect::Hangup { peer });
            }
            // It may have joined a moment ago.
            Word::Unheard if self.admission.strict => {
                self.waiting.insert(peer, (card, now.mono));
            }
            Word::In | Word::Unheard if level::lacks(card.level, self.agreed()).is_some() => self.turn_away(&card, out),
            Word::In | Word::Unheard => {
                self.turned_away.remove(&peer);
                self.membership_in(now, membership::Input::Linked { card: Box::new(card) }, out);
                self.tell_links(now, out);
            }
        }
    }

    /// Nothing of it is heard, and it hears why.
    fn turn_out(&mut self, now: Now, peer: NodeId, name: &str, why: Gone, out: &mut Out) {
        let text = match why {
            Gone::Removed => {
                out.push(Effect::Send { to: peer, frame: Frame::new(kind::REMOVED, Bytes::new()) });
                format!("{name} ({peer}) was removed from this cluster; hung up")
            }
            Gone::Away => {
                out.push(Effect::Send { to: peer, frame: Frame::new(kind::ANEW, Bytes::new()) });
                format!("{name} ({peer}) was away for too long, and is to enter this cluster anew; hung up")
            }
            Gone::Anew => format!("{peer} entered this cluster anew and is not to come back as who it was; hung up"),
        };
        self.refuse(now, peer, text, out);
        // What was sent has a moment to arrive.
        self.turned_away.insert(peer);
    }

    /// Says so, but not each time that it knocks.
    fn refuse(&mut self, now: Now, peer: NodeId, text: String, out: &mut Out) {
        self.refused.retain(|_, at| now.mono.since(*at) < REFUSED_LINES);
        if self.refused.len() < WAITING_MAX && !self.refused.contains_key(&peer) {
            self.refused.insert(peer, now.mono);
            out.push(Effect::Note(Note::warn(text)));
        }
    }

    /// What is declared has changed, or how sure this node is of it.
    pub(crate) fn admit_anew(&mut self, now: Now, out: &mut Out) {
        let strict = self.follows_since.is_some_and(|since| now.mono.since(since) >= STRICT_AFTER);
        let version = self.root.declared().version;
        if std::mem::replace(&mut self.admission_of, (version, strict)) == (version, strict) {
            return;
        }
        let mut new = declared(self.root.declared());
        // A declaration that does not name this node is from before it joined.
        new.strict = strict && new.named.contains_key(&self.me());
        if self.welcomes {
            let away: Vec<NodeId> = new.gone.extract_if(.., |_, gone| *gone == Gone::Away).map(|(id, _)| id).collect();
            new.named.extend(away.into_iter().filter_map(|id| Some((id, self.former(id)?.name))));
        }
        if new == *self.admission {
            return;
        }
        let old = std::mem::replace(&mut self.admission, Arc::new(new));
        self.stale = true;
        let me = self.me();
        let known = self.membership.known().map(|(card, _)| card.clone());
        let known: Vec<Card> = known.filter(|card| card.id != me && old.lets_in(card)).collect();
        for card in &known {
            match self.admission.of(card) {
                Word::Gone(why) => self.turn_out(now, card.id, &card.name, why, out),
                Word::In => (),
                Word::Misnamed => out.push(Effect::Hangup { peer: card.id }),
                Word::Unheard if self.admission.strict => {
                    let (peer, name) = (card.id, &card.name);
                    let text = format!("{name} ({peer}) was never admitted, as far as is declared; hung up");
                    out.push(Effect::Note(Note::warn(text)));
                    out.push(Effect::Hangup { peer });
                }
                Word::Unheard => (),
            }
        }
        self.membership_in(now, membership::Input::Admission { now: Arc::clone(&self.admission) }, out);
        self.tell_parting(now, out);
        for (card, _) in std::mem::take(&mut self.waiting).into_values() {
            self.linked(now, card, out);
        }
        if self.admission.is_removed(self.me()) {
            self.end_removed(now, "the declaration does not name it any more", out);
        }
    }

    /// At each tick: how sure this node is of what it knows, and who waited in vain.
    pub(crate) fn keep_admission(&mut self, now: Now, out: &mut Out) {
        self.follows_since = self.root.follows().then(|| self.follows_since.unwrap_or(now.mono));
        self.admit_anew(now, out);
        let late: BTreeMap<NodeId, _> =
            self.waiting.extract_if(.., |_, (_, since)| now.mono.since(*since) >= ADMISSION_WAIT).collect();
        for (peer, (card, _)) in late {
            let text =
                format!("{peer}, which calls itself {:?}, is not one of this cluster's nodes; hung up", card.name);
            self.refuse(now, peer, text, out);
            out.push(Effect::Hangup { peer });
        }
    }

    /// A node says that this one was removed.
    pub(crate) fn told_removed(&mut self, now: Now, from: NodeId, out: &mut Out) {
        let others = self.admission.named.keys().filter(|id| **id != self.me()).count();
        if self.admission.named.contains_key(&from) && self.told_removed.insert(from) {
            let (said, name) = (self.told_removed.len(), self.name_of(from));
            out.push(Effect::Note(Note::warn(format!("{name} says that this node was removed ({said} of {others})"))));
        }
        // One alone may lie, also where there are but two.
        if self.told_removed.len() * 2 > others && self.told_removed.len() > 1 {
            self.end_removed(now, "more than half of the nodes that it knows say so", out);
        }
    }

    /// Ends this node, which has no part in anything any more: its doors close first.
    fn end_removed(&mut self, now: Now, why: &str, out: &mut Out) {
        if self.removed {
            return;
        }
        (self.removed, self.routes_stale) = (true, true);
        out.push(Effect::Note(Note::error(format!("this node was removed from the cluster: {why}"))));
        let name = self.card.name.clone();
        self.happened(now, "leaving", &name, "was removed; closes its doors");
        self.departure = Some(Departure::ready(Leaving::Remove, now.mono));
    }
}
