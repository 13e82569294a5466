//! Reading, once it is known who has what: the bytes from the holder with the least to do, from the next one if it is slow or they are
//! damaged; and the pages of a list as one.

use std::collections::{BTreeMap, BTreeSet};

use base::checksum::Checksum;
use base::{NodeId, Outcome, Refused, Span, Time};
use bytes::Bytes;

use crate::asker::{Ended, Goal, Look, Running, Step};
use crate::limits::READ_FOR;
use crate::wire::{Here, KeyMessage, What};
use crate::{Call, Id, List, Listed, Object, Owners, Reply, Stamp};

#[derive(Default)]
pub(crate) struct Read {
    /// Who is waited for.
    asked: Option<(NodeId, Time)>,
    tried: BTreeSet<NodeId>,
}

impl Read {
    pub fn lose(&mut self, peer: NodeId) {
        self.asked.take_if(|(asked, _)| *asked == peer);
    }
}

impl Object {
    pub(crate) fn read_on(&mut self, call: &mut Call, id: u64, op: &mut Running) -> Ended {
        let best = op.best()?.stamp;
        if best.gone {
            return Some(Outcome::Done(Reply::Gone));
        }
        let Goal::Get { at } = op.goal else { return None };
        if at >= best.size && at > 0 {
            let Stamp { version, size, sum, .. } = best;
            return Some(Outcome::Done(Reply::Object { version, size, sum, body: Bytes::new() }));
        }
        let is_waiting = op.is_waiting();
        let Step::Read(read) = &op.step else { return None };
        if let Some((_, since)) = read.asked
            && call.now.since(since) < READ_FOR
        {
            op.wake = since + READ_FOR;
            return None;
        }
        let lives = |node: NodeId| node == self.me || self.peers.is_live(node);
        let may = |node: NodeId, stamp: &Stamp| stamp.is_same(&best) && lives(node) && !read.tried.contains(&node);
        let holders = op.held().filter(|(node, held)| may(*node, &held.stamp)).map(|(node, _)| node);
        let next = holders.min_by_key(|node| (*node != self.me, self.peers.pending(*node)));
        let Step::Read(read) = &mut op.step else { return None };
        let Some(node) = next else {
            // One that is slow may still answer.
            if read.asked.is_some() || is_waiting {
                return None;
            }
            if op.has_unasked() {
                op.wants_rest = true;
                return None;
            }
            let why = "no node that has it could give its bytes";
            return Some(Outcome::Refused(Refused::busy(why, Span::millis(500))));
        };
        read.asked = Some((node, call.now));
        read.tried.insert(node);
        op.wake = call.now + READ_FOR;
        self.send(call, node, id, op.priority, What::Get(KeyMessage { at, ..(&op.key).into() }), Bytes::new());
        None
    }

    pub(crate) fn body(&mut self, call: &mut Call, from: NodeId, id: u64, got: Here, body: Bytes) -> Option<()> {
        let held = match got.held.clone() {
            Some(held) => Some(held.held()?),
            None => None,
        };
        self.with(call, id, |object, op| {
            let Step::Read(read) = &mut op.step else { return None };
            if !read.tried.contains(&from) {
                return None;
            }
            read.lose(from);
            // It has none any more, or never had one as it seemed: the next one is asked.
            let stamp = held?.stamp;
            if stamp.gone {
                return Some(Outcome::Done(Reply::Gone));
            }
            let Goal::Get { at } = op.goal else { return None };
            let is_whole = body.len() == stamp.size as usize;
            let (at, from, sum) = (at as usize, got.from as usize, if is_whole { stamp.sum } else { got.sum });
            // Shorter than it says, and where nobody asked for it: what a holder has that does not know of pieces.
            let has_it = is_whole || (from..from + body.len()).contains(&at);
            if !has_it || !Checksum(sum).matches(&body) {
                object.figures.damaged += 1;
                return None;
            }
            let Stamp { version, size, sum, .. } = stamp;
            let body = body.slice(at.saturating_sub(if is_whole { 0 } else { from }).min(body.len())..);
            Some(Outcome::Done(Reply::Object { version, size, sum, body }))
        });
        Some(())
    }
}

impl Running {
    /// What all nodes that answered have, as one page: nothing behind the end of the shortest page, as others could have more there.
    pub(crate) fn list(&self) -> List {
        let limit = if let Goal::List { limit, .. } = self.goal { limit } else { 0 };
        let mut all: BTreeMap<Id, Stamp> = BTreeMap::new();
        let mut end: Option<Id> = None;
        for look in self.looks.values() {
            let Look::Page { items, more } = look else { continue };
            if let Some((last, _)) = items.last().filter(|_| *more) {
                end = Some(end.map_or(*last, |end| end.min(*last)));
            }
            for (id, held) in items {
                let best = all.entry(*id).or_insert(held.stamp);
                if held.stamp.beats(best) {
                    *best = held.stamp;
                }
            }
        }
        let there = all.iter().filter(|(id, stamp)| !stamp.gone && end.is_none_or(|end| **id <= end));
        let listed = |(id, stamp): (&Id, &Stamp)| Listed { id: *id, version: stamp.version, size: stamp.size };
        let mut objects: Vec<Listed> = there.map(listed).collect();
        if objects.len() > limit {
            objects.truncate(limit);
            end = objects.last().map(|last| last.id);
        }
        List { objects, after: end, missing: self.silent().collect() }
    }

    /// A page of owners.
    pub(crate) fn owners(&self, limit: usize) -> Owners {
        let mut all: BTreeSet<&Bytes> = BTreeSet::new();
        let mut end: Option<&Bytes> = None;
        for look in self.looks.values() {
            let Look::Owners { owners, more } = look else { continue };
            if let Some(last) = owners.last().filter(|_| *more) {
                end = Some(end.map_or(last, |end| end.min(last)));
            }
            all.extend(owners);
        }
        let mut owners: Vec<Bytes> =
            all.into_iter().filter(|owner| end.is_none_or(|end| *owner <= end)).cloned().collect();
        let mut after = end.cloned();
        if owners.len() > limit {
            owners.truncate(limit);
            after = owners.last().cloned();
        }
        Owners { owners, after, missing: self.silent().collect(), copies: self.spec.copies }
    }
}
