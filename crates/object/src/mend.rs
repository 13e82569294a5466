//! Copies whose bytes are not what their checksum says: found when the log is read at the start, whenever one is read, and by a look at each
//! in turn.
//! Such a copy is given to nobody and counts for nobody who would drop its own. The others are told that this node wants it once more
//! (a turn, as if it had been given up), and push it; what comes takes its place.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{NodeId, Priority, Ticket};
use bytes::Bytes;

use crate::holder::Come;
use crate::lies::Lies;
use crate::limits::{MEND_ENTRIES, MEND_LOOKS};
use crate::table::Entry;
use crate::wire::{PutMessage, What};
use crate::{Call, Key, Object, Output, give_up};

/// Bad copies of this node, each with whether the others were told.
#[derive(Default)]
pub(crate) struct Mending {
    of: BTreeMap<Key, bool>,
    /// Where the last look at them ended.
    after: Option<Key>,
    /// Found at the start, and nobody was told yet.
    found: u64,
}

impl Mending {
    pub fn is_bad(&self, key: &Key) -> bool {
        self.of.contains_key(key)
    }

    pub fn forget(&mut self, key: &Key) {
        self.of.remove(key);
    }
}

impl Object {
    /// What the disk has kept of it has a wrong checksum.
    pub(crate) fn was_kept_badly(&mut self, key: &Key) {
        self.mending.of.insert(key.clone(), false);
        self.mending.found += 1;
        self.figures.damaged += 1;
    }

    /// A copy that was looked at is bad.
    pub(crate) fn is_damaged(&mut self, call: &mut Call, key: &Key) {
        self.mending.of.insert(key.clone(), false);
        self.figures.damaged += 1;
        let text = format!(
            "the copy of object {} here has a wrong checksum; another one is read, and takes its place",
            key.id
        );
        call.out.push(Output::Warn { text });
    }

    /// Tells those that have sound copies.
    pub(crate) fn mend(&mut self, call: &mut Call) {
        if std::mem::take(&mut self.mending.found) > 0 {
            let text = format!(
                "{} copies of objects on this node's disk have wrong checksums; other nodes' take their place",
                self.mending.of.len()
            );
            call.out.push(Output::Warn { text });
        }
        if self.mending.of.is_empty() || self.level < give_up::LEVEL {
            return;
        }
        let has_others = |key: &Key| {
            let Some(entry) = self.table.get(key) else { return false };
            let mut others = entry.held.has.iter().filter(|node| **node != self.me && !entry.held.is_spare(**node));
            others.any(|node| self.peers.is_live(*node))
        };
        let from = self.mending.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut keys, mut looked) = (Vec::new(), 0);
        for (key, is_told) in self.mending.of.range((from, Bound::Unbounded)) {
            if looked == MEND_LOOKS || keys.len() == MEND_ENTRIES {
                break;
            }
            looked += 1;
            self.mending.after = Some(key.clone());
            if !is_told && has_others(key) {
                keys.push(key.clone());
            }
        }
        if looked < MEND_LOOKS && keys.len() < MEND_ENTRIES {
            self.mending.after = None;
        }
        for key in keys {
            self.mending.of.insert(key.clone(), true);
            self.want_again(call, &key);
        }
    }

    fn want_again(&mut self, call: &mut Call, key: &Key) {
        let me = self.me;
        let Some((held, _)) = self.table.held_mut(key) else { return };
        // Whatever was known of this node is of before; it is no spare one.
        let may = held.turn_over(me, me) && (!held.is_spare(me) || held.turn_over(me, me));
        if !may {
            return;
        }
        let mut held = held.clone();
        self.append(call, key, false, false);
        held.has.remove(&me);
        let done = PutMessage { key: Some(key.into()), held: Some((&held).into()), push: false, stage: 0 };
        self.table.share(key);
        let to: Vec<NodeId> = held.homes.iter().copied().filter(|to| *to != me && self.peers.is_live(*to)).collect();
        for to in to {
            self.send(call, to, 0, Priority::LOWEST, What::Done(done.clone()), Bytes::new());
        }
    }

    /// Takes the bytes of a write that came once more in place of bad ones, if there are such.
    pub(crate) fn is_mended(&mut self, call: &mut Call, key: &Key, come: Come) -> Option<Ticket> {
        let body = come.body.filter(|_| self.mending.is_bad(key))?;
        let entry = Entry { body: Lies::Here(body), set: come.set, ..self.table.get(key)?.clone() };
        self.table.insert(key.clone(), entry);
        self.mending.forget(key);
        let ticket = self.append(call, key, true, true);
        if let Some((_, of)) = self.table.held_mut(key) {
            *of = ticket;
        }
        self.merge(call, key, &come.held);
        self.recheck(call.now, key);
        self.figures.mended += 1;
        self.table.get(key).map(|entry| entry.ticket)
    }
}
