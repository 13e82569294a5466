//! Copies that are too many: a home came back whose copies were made elsewhere, or one was silent and was replaced. The first of the
//! holders says whose is to go (`Held::turns`); who is to go asks the others whether they have it and know that it goes, and drops its copy
//! when as many have said so as are declared. Who has said so counts on that copy no more. A spare home is told of deletions as any home.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::{NodeId, Priority, Time};
use bytes::Bytes;

use crate::held::Held;
use crate::limits::{GIVE_UP_ENTRIES, GIVE_UP_FOR};
use crate::table::Entry;
use crate::wire::{PutMessage, What};
use crate::{Bug, Call, Key, Object, Stamp};

/// The level from which copies are given up: an older program would count them.
pub const LEVEL: u32 = 6;

#[derive(Default)]
pub(crate) struct Giving {
    /// Copies of this node that are to go.
    mine: BTreeSet<Key>,
    /// Entries of which there are too many copies, or of whose spare homes somebody has to be told.
    surplus: BTreeSet<Key>,
    /// Questions that are under way, by their ids.
    asked: BTreeMap<u64, Question>,
    /// Where the last look at copies of this node ended.
    after: Option<Key>,
}

/// Whether others have what this node is to drop.
struct Question {
    key: Key,
    stamp: Stamp,
    /// Turn of this node's copy when it asked.
    turn: u32,
    /// All homes that it knows: they are to know them, too.
    homes: BTreeSet<NodeId>,
    at: Time,
    /// They have it on their disks, count on their own copies, and know that this one goes.
    have: BTreeSet<NodeId>,
}

impl Giving {
    pub fn is_asked(&self, id: u64) -> bool {
        self.asked.contains_key(&id)
    }

    pub fn set(&mut self, key: &Key, is_mine: bool, is_surplus: bool) {
        if is_mine {
            self.mine.insert(key.clone());
        } else {
            self.mine.remove(key);
        }
        if is_surplus {
            self.surplus.insert(key.clone());
        }
    }

    pub fn forget(&mut self, key: &Key) {
        self.mine.remove(key);
        self.surplus.remove(key);
    }

    /// Some that are to go, behind those of the last time.
    fn some_mine(&mut self) -> Vec<Key> {
        let from = self.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let room = GIVE_UP_ENTRIES.saturating_sub(self.asked.len());
        let under_way: BTreeSet<&Key> = self.asked.values().map(|question| &question.key).collect();
        let some: Vec<Key> = self.mine.range((from, Bound::Unbounded)).take(room).cloned().collect();
        let is_full = some.len() == room;
        let last = some.last().cloned().filter(|_| is_full);
        let some = some.into_iter().filter(|key| !under_way.contains(key)).collect();
        self.after = last;
        some
    }
}

impl Object {
    /// Whether this node is the first of those that have it, live and count. One whose copy is given up is first only
    /// if there is no other.
    pub(crate) fn is_first_holder(&self, held: &Held) -> bool {
        let (me, is_spare) = (self.me, held.is_spare(self.me));
        let is_before = |node: &NodeId| *node != me && (is_spare || *node < me);
        !held.has.iter().any(|node| is_before(node) && self.peers.is_live(*node) && !held.is_spare(*node))
    }

    /// A spare home whose copy is wanted again: this node itself rather than any other.
    pub(crate) fn taken_back(&self, entry: &Entry) -> Option<NodeId> {
        let held = &entry.held;
        if held.is_spare(self.me) {
            return Some(self.me);
        }
        let may = |node: &NodeId| {
            held.is_spare(*node) && self.is_node(*node) && self.peers.is_live(*node) && !self.peers.is_full(*node)
        };
        held.homes.iter().copied().find(|node| may(node) && !self.peers.leaves(*node))
    }

    /// Whose copy is to go, if there are too many and this node is the first of those that have it: whoever came last.
    pub(crate) fn too_many(&self, key: &Key, entry: &Entry) -> Option<NodeId> {
        let held = &entry.held;
        let may = self.level >= LEVEL && !held.stamp.gone && !held.is_spare(self.me);
        if !may || !self.is_first_holder(held) || self.peers.leaves(self.me) {
            return None;
        }
        let counts = |node: &NodeId| {
            self.is_node(*node) && self.peers.is_live(*node) && !self.peers.leaves(*node) && !held.is_spare(*node)
        };
        let others: Vec<NodeId> = held.has.iter().copied().filter(|node| *node != self.me && counts(node)).collect();
        let last = |node: &NodeId| (self.peers.aside.contains(node), self.peers.since(*node), *node);
        (others.len() + 1 > self.wanted(key)).then(|| others.iter().copied().max_by_key(last)).flatten()
    }

    /// A home's copy is given up, or wanted again: all homes that live are told.
    pub(crate) fn turn_over(&mut self, call: &mut Call, key: &Key, node: NodeId) {
        let me = self.me;
        let Some((held, _)) = self.table.held_mut(key) else { return };
        if held.turn_over(me, node) {
            self.append(call, key, false, false);
            self.recheck(call.now, key);
            self.tell_homes(call, key);
        }
    }

    fn tell_homes(&mut self, call: &mut Call, key: &Key) {
        let Some(entry) = self.table.get(key) else { return };
        let held = entry.held.clone();
        let done = PutMessage { key: Some(key.into()), held: Some((&held).into()), push: false, stage: 0 };
        for to in held.homes.iter().copied().filter(|to| *to != self.me && self.peers.is_live(*to)).collect::<Vec<_>>()
        {
            self.send(call, to, 0, Priority::LOWEST, What::Done(done.clone()), Bytes::new());
        }
    }

    /// A node lives again: it may not have heard of what it is to give up.
    pub(crate) fn tell_spare(&mut self, peer: NodeId, key: &Key) {
        let is_its = |entry: &Entry| entry.held.is_spare(peer) && self.is_first_holder(&entry.held);
        if self.table.get(key).is_some_and(is_its) {
            self.giving.surplus.insert(key.clone());
        }
    }

    pub(crate) fn give_up(&mut self, call: &mut Call) {
        for _ in 0..GIVE_UP_ENTRIES {
            let Some(key) = self.giving.surplus.pop_first() else { break };
            let Some(entry) = self.table.get(&key) else { continue };
            match self.too_many(&key, entry).filter(|_| !self.open.has(&key)) {
                Some(node) => self.turn_over(call, &key, node),
                None => self.tell_homes(call, &key),
            }
        }
        self.giving.asked.retain(|_, question| call.now.since(question.at) < GIVE_UP_FOR);
        for key in self.giving.some_mine() {
            self.ask_before_drop(call, key);
        }
    }

    fn ask_before_drop(&mut self, call: &mut Call, key: Key) {
        let Some(entry) = self.table.get(&key) else { return };
        let held = entry.held.clone();
        let may = |node: &NodeId| *node != self.me && self.peers.is_live(*node) && !held.is_spare(*node);
        let to: Vec<NodeId> = held.homes.iter().copied().filter(may).collect();
        if (to.len() < self.wanted(&key) && !self.has_bug(Bug::Rash)) || self.open.has(&key) {
            return;
        }
        let id = self.ops.next_id();
        let (stamp, turn) = (held.stamp, held.turn(self.me));
        let (homes, have) = (held.homes.clone(), BTreeSet::new());
        let question = Question { key: key.clone(), stamp, turn, homes, at: call.now, have };
        self.giving.asked.insert(id, question);
        let done = PutMessage { key: Some((&key).into()), held: Some((&held).into()), push: false, stage: 0 };
        for node in to {
            // Whoever answers is to know what it answers to.
            self.send(call, node, 0, Priority::LOWEST, What::Done(done.clone()), Bytes::new());
            self.send(call, node, id, Priority::LOWEST, What::Look((&key).into()), Bytes::new());
        }
    }

    /// An answer to that. `held`: what it has, on its disk.
    pub(crate) fn holds_it(&mut self, call: &mut Call, from: NodeId, id: u64, held: Option<Held>) {
        let me = self.me;
        let Some(question) = self.giving.asked.get_mut(&id) else { return };
        let counts = |held: &Held| {
            let knows = held.turn(me) == question.turn && held.homes.is_superset(&question.homes);
            held.stamp.is_same(&question.stamp) && knows && !held.is_spare(from)
        };
        if !held.is_some_and(|held| counts(&held)) {
            return;
        }
        question.have.insert(from);
        let (key, stamp, turn, have) = (question.key.clone(), question.stamp, question.turn, question.have.len());
        if have < self.wanted(&key) && !self.has_bug(Bug::Rash) {
            return;
        }
        let Some(Question { homes, .. }) = self.giving.asked.remove(&id) else { return };
        // What has come meanwhile stands against it.
        let is_so = |entry: &&Entry| {
            let held = &entry.held;
            held.stamp.is_same(&stamp) && held.turn(me) == turn && held.homes == homes && !self.open.has(&key)
        };
        let Some(entry) = self.table.get(&key).filter(is_so).filter(|entry| self.log.is_safe(entry.ticket)) else {
            return;
        };
        let held = entry.held.clone();
        self.table.remove(&key);
        self.open.forget(&key);
        self.giving.forget(&key);
        self.append_drop(call, &key, held);
        self.figures.given_up += 1;
    }
}
