//! Looks at all that a node has, as nodes came or went: some of it in one turn, so that what else there is to do goes on. And deletions
//! about which nothing is left to do: they are kept apart, taken out again when a node came that lacks them, and forgotten in the end.

use std::collections::{BTreeSet, VecDeque};

use base::{NodeId, Time};

use crate::graves::address;
use crate::held::{At, Held};
use crate::lies::Lies;
use crate::limits::{BURY_AT_ONCE, BURY_ENTRIES, EXHUMED_MAX, GRAVE_LOOKS, WALK_EVERY};
use crate::names::Slot;
use crate::{Bug, Call, Key, Object, Output, Stamp};

/// A look at all entries that is under way. It goes round: what happens meanwhile has it go round once more from where it is.
#[derive(Default)]
pub(crate) struct Walk {
    after: Option<Slot>,
    /// Where it ends, when it has begun at the first once more; none: at the last.
    stop: Option<Slot>,
    is_second: bool,
    /// They live since it began: what they lack goes to them at once.
    born: BTreeSet<NodeId>,
    /// Something was there of a namespace that was removed.
    has_removed: bool,
    next: Time,
}

#[derive(Default)]
pub(crate) struct Digging {
    /// Deletions about which there may be nothing left to do.
    settled: VecDeque<Key>,
    /// Graves that lie at these places are to be entries again, behind this one.
    walk: Option<(BTreeSet<usize>, Option<Slot>)>,
    /// They were taken out, and something is left to do yet.
    exhumed: BTreeSet<Key>,
    /// All are to be looked at, as namespaces went maybe.
    sweeps: bool,
    /// How many wait for nodes that are away that it was said.
    has_warned: bool,
}

impl Digging {
    pub fn is_settled(&mut self, key: &Key) {
        self.settled.push_back(key.clone());
    }
}

impl Walk {
    pub fn next(&self) -> Time {
        self.next
    }
}

impl Object {
    /// Nodes came, went for good, or have been away for long.
    pub(crate) fn recheck_all(&mut self, call: &mut Call, born: Option<NodeId>) {
        let walk = self.walk.get_or_insert_default();
        walk.born.extend(born);
        (walk.stop, walk.is_second) = (walk.after, false);
        self.look_at_graves();
        self.walk_on(call);
    }

    /// A part of it.
    pub(crate) fn walk_on(&mut self, call: &mut Call) {
        let Some(mut walk) = self.walk.take() else { return };
        let mut room = self.settings.walk_entries;
        while room > 0 {
            let is_in = |slot: &Slot| !walk.is_second || walk.stop.is_some_and(|stop| *slot <= stop);
            let some = self.table.range(walk.after).map(|(slot, _)| slot).take(room).take_while(is_in);
            let some: Vec<Slot> = some.collect();
            for slot in &some {
                self.visit(call, &self.table.key(*slot), &mut walk);
            }
            let is_end = some.len() < room;
            room -= some.len();
            walk.after = some.last().copied().or(walk.after);
            if is_end && (walk.is_second || walk.stop.is_none()) {
                self.log.has_removed |= walk.has_removed;
                return;
            }
            if is_end {
                (walk.after, walk.is_second) = (None, true);
            }
        }
        walk.next = call.now + WALK_EVERY;
        self.walk = Some(walk);
    }

    fn visit(&mut self, call: &mut Call, key: &Key, walk: &mut Walk) {
        if self.numbers.is_over(key.ns) {
            walk.has_removed = true;
            return self.drop_removed(call, key);
        }
        self.recheck(call.now, key);
        for peer in &walk.born {
            self.push_to(call, *peer, key);
            self.tell_spare(*peer, key);
        }
    }

    /// What lies under the number of a namespace that was removed goes, from the disk with the next checkpoint.
    fn drop_removed(&mut self, call: &mut Call, key: &Key) {
        // The log is not to name a pack that went.
        let packed = self.table.get(key).filter(|entry| matches!(entry.body, Lies::Packed(_)));
        if let Some(held) = packed.map(|entry| entry.held.clone()) {
            self.append_drop(call, key, held);
        }
        self.table.remove(key);
        self.open.forget(key);
        self.giving.forget(key);
        self.mending.forget(key);
    }

    /// Namespaces were removed, maybe.
    pub(crate) fn sweep_graves(&mut self) {
        self.digging.sweeps = true;
        self.table.sweep_anew();
    }

    /// Who lives or is declared is another than before: of deletions that all had, some may not be everywhere.
    pub(crate) fn look_at_graves(&mut self) {
        let places = self.table.graves().places();
        let needs: BTreeSet<usize> = places.filter(|at| self.has_work(at)).map(address).collect();
        self.digging.walk = (!needs.is_empty()).then_some((needs, None));
    }

    /// There is something to do for this node about deletions that lie there.
    fn has_work(&self, at: &std::sync::Arc<At>) -> bool {
        let gone = Stamp { version: class::Version::default(), once: true, gone: true, sum: 0, size: 0 };
        let held = Held::shared(gone, at.clone());
        !self.lacking(&held).is_empty() || !self.strangers(&held).is_empty() && self.is_first_holder(&held)
    }

    /// What is asked, or told, about a deletion that is kept apart finds it as an entry. One of a namespace that was removed stays
    /// where it is, as only graves are swept for those.
    pub(crate) fn exhume(&mut self, call: &Call, key: &Key) {
        if !self.numbers.is_over(key.ns) && self.table.exhume(key) {
            self.recheck(call.now, key);
        }
    }

    /// Deletions about which nothing is left to do are kept apart from now on.
    pub(crate) fn bury(&mut self, call: &Call, most: usize) {
        for _ in 0..most {
            let Some(key) = self.digging.settled.front() else { break };
            // The walk that drops what was removed looks at entries: it is to find this one.
            let is_settled = !self.open.has(key) && !self.open.is_thin(key) && !self.numbers.is_over(key.ns);
            if let Some(entry) = self.table.get(key).filter(|entry| entry.held.stamp.gone && is_settled) {
                if !self.log.is_safe(entry.ticket) {
                    break;
                }
                self.open.forget(key);
                self.digging.exhumed.remove(key);
                match self.has_bug(Bug::Forgets) {
                    true => self.table.remove(key),
                    false => self.table.bury(key, (call.wall_ms / 1000) as u32),
                }
            }
            self.digging.settled.pop_front();
        }
    }

    pub(crate) fn bury_now(&mut self, call: &Call) {
        self.bury(call, BURY_AT_ONCE);
    }

    pub(crate) fn tend_graves(&mut self, call: &mut Call) {
        self.bury(call, BURY_ENTRIES);
        if let Some((needs, after)) = self.digging.walk.take() {
            let table = &self.table;
            self.digging.exhumed.retain(|key| table.get(key).is_some_and(|entry| entry.held.stamp.gone));
            let room = EXHUMED_MAX.saturating_sub(self.digging.exhumed.len());
            let (keys, last) = self.table.exhume_some(&needs, after, room, GRAVE_LOOKS);
            let is_over = room > 0 && last.is_none();
            for key in keys {
                // The others dropped it with its namespace: whoever pushes it is never told that they have it.
                if self.numbers.is_over(key.ns) {
                    self.drop_removed(call, &key);
                    self.log.has_removed = true;
                    continue;
                }
                self.recheck(call.now, &key);
                self.digging.exhumed.insert(key);
            }
            self.digging.walk = (!is_over).then_some((needs, last.or(after)));
        }
        let (most, now_s) = (self.settings.graves_max, (call.wall_ms / 1000) as u32);
        if self.digging.sweeps || self.table.has_old(most, now_s) {
            let numbers = &self.numbers;
            let is_round = self.table.forget_some(GRAVE_LOOKS, most, now_s, |ns| numbers.is_over(ns));
            self.digging.sweeps &= !is_round;
        }
        self.warn_of_unsettled(call);
    }

    fn warn_of_unsettled(&mut self, call: &mut Call) {
        let (count, most) = (self.table.unsettled(), self.settings.unsettled_max);
        if count < most / 2 {
            self.digging.has_warned = false;
        } else if !std::mem::replace(&mut self.digging.has_warned, true) {
            let text = format!(
                "{count} deletions of objects wait for nodes that are away; with {most} of them this node takes no more objects, so bring \
                 those nodes back, or remove them"
            );
            call.out.push(Output::Warn { text });
        }
    }
}
