//! What is left undone: writes that not all their homes have are *open* at those that have them, and are pushed; entries with too few
//! homes are *thin*, and get another one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::{NodeId, Priority, Time};
use bytes::Bytes;

use crate::held::Held;
use crate::limits::{COPIES, HOMES_MAX, PUSH_AFTER, PUSH_BYTES, PUSH_ENTRIES};
use crate::ship::{Cargo, Cause};
use crate::store::Why;
use crate::table::Entry;
use crate::wire::{PutMessage, Took, What};
use crate::{Bug, Call, Key, Object};

#[derive(Default)]
pub(crate) struct Open {
    /// When each is pushed next; never, while no home that lacks it lives.
    of: BTreeMap<Key, Time>,
    due: BTreeSet<(Time, Key)>,
    thin: BTreeSet<Key>,
    /// While this node leaves for good: what not enough others have.
    left: BTreeSet<Key>,
    /// Where the last look at thin ones ended.
    thin_after: Option<Key>,
}

impl Open {
    pub fn has(&self, key: &Key) -> bool {
        self.of.contains_key(key)
    }

    pub fn is_thin(&self, key: &Key) -> bool {
        self.thin.contains(key)
    }

    pub fn counts(&self) -> (u64, u64) {
        (self.of.len() as u64, self.thin.len() as u64)
    }

    fn close(&mut self, key: &Key) {
        if let Some(at) = self.of.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    /// So much of what is here others have yet to take over, as this node leaves.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    pub fn forget(&mut self, key: &Key) {
        self.thin.remove(key);
        self.left.remove(key);
        self.close(key);
    }

    fn set(&mut self, key: &Key, at: Time) {
        self.close(key);
        self.of.insert(key.clone(), at);
        self.due.insert((at, key.clone()));
    }

    fn next_due(&mut self, now: Time) -> Option<Key> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
    }

    /// Some thin ones, behind those of the last time.
    fn some_thin(&mut self, count: usize) -> Vec<Key> {
        let from = self.thin_after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<Key> = self.thin.range((from, Bound::Unbounded)).take(count).cloned().collect();
        self.thin_after = some.last().filter(|_| some.len() == count).cloned();
        some
    }
}

impl Object {
    /// Homes that do not have a write, as far as this node knows.
    pub(crate) fn lacking(&self, held: &Held) -> Vec<NodeId> {
        let homes = held.homes.iter().copied();
        let lacks = |home: &NodeId| {
            *home != self.me && !held.has.contains(home) && self.is_node(*home) && !held.is_spare(*home)
        };
        // Who leaves, too: it waits until it knows who has what.
        homes.filter(lacks).collect()
    }

    /// Nodes that are no homes of an entry.
    pub(crate) fn strangers(&self, held: &Held) -> Vec<NodeId> {
        let room = HOMES_MAX.saturating_sub(held.homes.len());
        self.peers.nodes().difference(&held.homes).copied().take(room).collect()
    }

    /// This node leaves, and not enough others have it. By force it waits only for what those that live can have.
    fn is_left(&self, key: &Key, entry: &Entry) -> bool {
        let Some(by_force) = self.peers.leaving.get(&self.me) else { return false };
        let stays = |node: &NodeId| {
            *node != self.me && self.is_node(*node) && !self.peers.leaves(*node) && !entry.held.is_spare(*node)
        };
        let may = |node: &NodeId| stays(node) && (!by_force || self.peers.is_live(*node));
        let possible = self.peers.nodes().iter().filter(|node| may(node)).count();
        let has = entry.held.has.iter().filter(|node| stays(node) && self.peers.is_live(**node)).count();
        has < possible.min(self.wanted(key))
    }

    pub(crate) fn wanted(&self, key: &Key) -> usize {
        self.copies.get(&key.ns).copied().unwrap_or(COPIES) as usize
    }

    /// Sees whether an entry is open or thin now.
    pub(crate) fn recheck(&mut self, now: Time, key: &Key) {
        self.table.share(key);
        let Some(entry) = self.table.get(key) else {
            self.giving.forget(key);
            self.mending.forget(key);
            return self.open.forget(key);
        };
        let counts = |home: &&NodeId| {
            self.is_node(**home)
                && !self.peers.is_long_away(**home)
                && !self.peers.leaves(**home)
                && !entry.held.is_spare(**home)
        };
        let homes = entry.held.homes.iter().filter(counts).count();
        let (wanted, is_left) = (self.wanted(key), self.is_left(key, entry));
        let is_open = !self.lacking(&entry.held).is_empty();
        // The first holder pushes; the others see later whether it did.
        let is_first = |node: &&NodeId| **node < self.me && self.peers.is_live(**node) && !entry.held.is_spare(**node);
        let before = entry.held.has.iter().filter(is_first).count();
        // A deletion goes to every node: one that joined later must not take the object of a put that is repeated.
        let is_thin = match entry.held.stamp.gone {
            true => !self.strangers(&entry.held).is_empty(),
            false => homes < wanted,
        };
        let (is_spare, is_surplus) = (entry.held.is_spare(self.me), !is_open && self.too_many(key, entry).is_some());
        self.giving.set(key, is_spare, is_surplus);
        if entry.held.stamp.gone && !is_open && !is_thin {
            self.digging.is_settled(key);
        }
        if is_left {
            self.open.left.insert(key.clone());
        } else {
            self.open.left.remove(key);
        }
        if is_thin {
            self.open.thin.insert(key.clone());
        } else {
            self.open.thin.remove(key);
        }
        match is_open {
            false => self.open.close(key),
            // One that waited for nobody but nodes that are away may have another home now.
            true if self.open.of.get(key).is_some_and(|at| *at < Time::NEVER) => (),
            true => self.open.set(key, now + PUSH_AFTER.times(1 + before as u64)),
        }
    }

    /// A node lives: what it lacks goes to it at once.
    pub(crate) fn push_to(&mut self, call: &Call, peer: NodeId, key: &Key) {
        let lacks = |entry: &Entry| self.lacking(&entry.held).contains(&peer);
        if self.open.has(key) && self.table.get(key).is_some_and(lacks) {
            self.open.set(key, call.now);
        }
    }

    pub(crate) fn tend(&mut self, call: &mut Call) {
        if self.peers.mark_long_away(call.now, self.settings.away_for) {
            self.recheck_all(call, None);
        }
        self.push_due(call);
        self.complete_thin(call);
        self.give_up(call);
        self.mend(call);
        self.move_on(call);
        self.check_on(call);
        self.tend_graves(call);
        self.checkpoint(call);
        self.stages.drop_old(call.now);
        self.tend_directory(call);
        self.tend_watchers(call);
    }

    fn push_due(&mut self, call: &mut Call) {
        let (mut bytes, mut count) = (0, 0);
        while let Some(key) = self.open.next_due(call.now).filter(|_| bytes < PUSH_BYTES && count < PUSH_ENTRIES) {
            let entry = self.table.get(&key).expect("what is open is there");
            let (held, serial) = (entry.held.clone(), entry.serial);
            let (len, in_pieces) = (entry.body.len(), entry.body.is_in_pieces());
            let may = |to: &NodeId| self.peers.is_live(*to) && (held.stamp.gone || !self.peers.is_full(*to));
            let (live, ready): (Vec<NodeId>, Vec<NodeId>) = {
                let lacking = self.lacking(&entry.held);
                let live = lacking.iter().copied().filter(|to| self.peers.is_live(*to)).collect();
                (live, lacking.into_iter().filter(may).collect())
            };
            // A home that is away is pushed to at its birth.
            let again = if live.is_empty() { Time::NEVER } else { call.now + PUSH_AFTER };
            self.open.set(&key, again);
            count += 1;
            // One whose own disk does not have it yet has nothing to push.
            let ticket = self.table.get(&key).map_or_else(Default::default, |entry| entry.ticket);
            if !self.log.is_safe(ticket) || self.mending.is_bad(&key) {
                continue;
            }
            for to in ready {
                if in_pieces {
                    if self.ships.may_push(to, &key) {
                        bytes += len;
                        self.figures.pushes += 1;
                        let cargo = Cargo::Entry(key.clone(), serial);
                        self.ship(call, to, cargo, Cause::Push(key.clone()), Priority::LOWEST);
                    }
                    continue;
                }
                bytes += len;
                self.figures.pushes += 1;
                if len > 0 {
                    self.give(call, &key, 0, Why::Push { to });
                    continue;
                }
                let put = PutMessage { key: Some((&key).into()), held: Some((&held).into()), push: true, stage: 0 };
                self.send(call, to, 0, Priority::LOWEST, What::Put(put), Bytes::new());
            }
        }
    }

    /// What a node did with what was pushed to it.
    pub(crate) fn pushed(&mut self, call: &mut Call, took: Took) -> Option<()> {
        let key = took.key?.key()?;
        if self.has_bug(Bug::Deaf) {
            return Some(());
        }
        if let Some(held) = took.held {
            self.hear_of(call, &key, &held.held()?);
        }
        let is_told = |entry: &&Entry| !self.open.has(&key) && self.log.is_safe(entry.ticket);
        let Some(entry) = self.table.get(&key).filter(is_told) else { return Some(()) };
        // All have it: the others that do need not push it.
        let (held, homes) = ((&entry.held).into(), entry.held.homes.clone());
        let done = PutMessage { key: Some((&key).into()), held: Some(held), push: false, stage: 0 };
        let to: Vec<NodeId> = homes.into_iter().filter(|to| self.peers.is_live(*to)).collect();
        for to in to {
            self.send(call, to, 0, Priority::LOWEST, What::Done(done.clone()), Bytes::new());
        }
        Some(())
    }

    /// Gives thin entries another home, if this node is the first of those that have it, and another one is there.
    fn complete_thin(&mut self, call: &mut Call) {
        if self.has_bug(Bug::Idle) {
            return;
        }
        for key in self.open.some_thin(PUSH_ENTRIES) {
            let Some(entry) = self.table.get(&key) else { continue };
            if !self.is_first_holder(&entry.held) {
                continue;
            }
            if let Some(node) = self.taken_back(entry) {
                self.turn_over(call, &key, node);
                continue;
            }
            let Some(entry) = self.table.get(&key) else { continue };
            let homes = match entry.held.stamp.gone {
                true => self.strangers(&entry.held),
                false => {
                    let may =
                        |node: &NodeId| self.is_node(*node) && !self.peers.is_full(*node) && !self.peers.leaves(*node);
                    let others = self.others(&entry.held.homes).into_iter().filter(may);
                    // One that is aside is better than none.
                    let key = |node: &NodeId| (self.peers.aside.contains(node), self.peers.pending(*node));
                    others.min_by_key(key).into_iter().collect()
                }
            };
            let (held, _) = self.table.held_mut(&key).expect("it was there");
            if held.add_homes(self.me, homes) {
                self.append_homes(call, &key);
                self.recheck(call.now, &key);
                self.open.set(&key, call.now);
            }
        }
    }
}
