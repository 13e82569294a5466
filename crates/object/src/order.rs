//! In which order a node has taken what it has: made when somebody watches, some steps at a time, and given back in the same way.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use crate::names::Slot;

#[derive(Default)]
pub(crate) struct Order {
    by: Option<BTreeMap<u64, Slot>>,
    /// The order is not whole yet: graves are walked over, after the entries, and behind which slot that goes on.
    making: Option<(bool, Option<Slot>)>,
    made_now: usize,
    /// Nobody needs it any more.
    old: Vec<btree_map::IntoIter<u64, Slot>>,
}

impl Order {
    pub fn insert(&mut self, serial: u64, slot: Slot) {
        if let Some(by) = &mut self.by {
            by.insert(serial, slot);
        }
    }

    pub fn remove(&mut self, serial: u64) {
        if let Some(by) = &mut self.by {
            by.remove(&serial);
        }
    }

    pub fn begin(&mut self) {
        self.made_now = 0;
        if self.by.is_none() {
            (self.by, self.making) = (Some(BTreeMap::new()), Some((false, None)));
        }
    }

    /// What is to be walked over next, and behind which slot. None: it is whole.
    pub fn wants(&self) -> Option<(bool, Option<Slot>)> {
        self.making
    }

    /// So much was added since [`Order::begin`] was called last.
    pub fn made_now(&self) -> usize {
        self.made_now
    }

    /// These were next; `is_last`: that was the last of the kind.
    pub fn make(&mut self, some: &[(u64, Slot)], is_last: bool) {
        some.iter().for_each(|(serial, slot)| self.insert(*serial, *slot));
        self.made_now += some.len();
        self.making = match self.making {
            Some((true, _)) if is_last => None,
            Some((false, _)) if is_last => Some((true, None)),
            Some((graves, after)) => Some((graves, some.last().map(|(_, slot)| *slot).or(after))),
            None => None,
        };
    }

    pub fn behind(&self, serial: u64) -> impl DoubleEndedIterator<Item = (u64, Slot)> {
        let behind = (Bound::Excluded(serial), Bound::Unbounded);
        let by = self.by.as_ref().filter(|_| self.making.is_none());
        by.into_iter().flat_map(move |by| by.range(behind)).map(|(serial, slot)| (*serial, *slot))
    }

    pub fn drop(&mut self) {
        self.making = None;
        self.old.extend(self.by.take().map(BTreeMap::into_iter));
    }

    /// Gives some of what nobody needs back.
    pub fn tend(&mut self, steps: usize) {
        if let Some(old) = self.old.last_mut()
            && old.by_ref().take(steps).count() < steps
        {
            self.old.pop();
        }
    }
}
