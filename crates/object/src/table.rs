//! What a node holds: objects and tombstones by key, with who should have each and who is known to have it. It only keeps; what follows
//! from a change is `holder.rs`'s business.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use base::Ticket;
use bytes::Bytes;
use class::Used;

use crate::graves::{Grave, Graves};
use crate::held::{Held, Places};
use crate::lies::{Lies, Place};
use crate::limits::{ENTRY_BYTES, GRAVE_BYTES};
use crate::map::bucket_of;
use crate::names::{Names, Slot};
use crate::order::Order;
use crate::packs::Packs;
use crate::{Id, Key, Stamp};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub held: Held,
    pub body: Lies,
    /// What its pieces are called in the log, while they are there; 0: it is in none.
    pub set: u64,
    /// Ticket of the entry's record: it is safe when the node's log is safe up to here.
    pub ticket: Ticket,
    /// Given by [`Table::insert`]: another one for other bytes.
    pub serial: u64,
}

#[derive(Default)]
pub(crate) struct Table {
    names: Names,
    entries: BTreeMap<Slot, Entry>,
    /// Deletions about which nothing is left to do. None has an entry.
    graves: Graves,
    places: Places,
    /// Objects, without tombstones, by namespace and owner.
    owners: BTreeMap<(u32, Bytes), u64>,
    /// Their owners by bucket ([`bucket_of`]).
    buckets: BTreeMap<u16, BTreeSet<(u32, Bytes)>>,
    /// Owners that had no objects here and have some now, or the other way round, if anybody wants to hear of them.
    pub moved: Option<Vec<(u32, Bytes)>>,
    /// What all of it takes, wherever it lies.
    pub bytes: u64,
    /// Bytes of objects that are in memory, and how many of them are.
    pub here: u64,
    pub here_count: usize,
    /// Deletions, with those that are kept apart.
    pub tombstones: u64,
    /// Entries that were touched since a checkpoint was begun, if one is being made.
    pub changed: Option<BTreeSet<Key>>,
    /// Objects, and the bytes of these and of their owners' names, by namespace. Invariant: none has no object.
    used: BTreeMap<u32, Used>,
    pub packs: Packs,
    /// Entries whose bytes are to go into a pack, oldest first, with their serials. Some may be there no more.
    pub waiting: VecDeque<(Slot, u64)>,
    serials: u64,
    /// While somebody watches: what was taken last stands last.
    order: Order,
    /// All deletions that were forgotten have this serial, or a lower one.
    pub forgotten: u64,
    /// Entries and graves that were looked at: what a turn costs.
    #[cfg(test)]
    pub steps: std::cell::Cell<u64>,
}

/// What is told of something that was taken.
pub(crate) struct Taken {
    pub key: Key,
    pub stamp: Stamp,
    pub ticket: Ticket,
    pub serial: u64,
}

impl Table {
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.at(self.names.slot(key)?)
    }

    pub fn at(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(&slot)
    }

    /// What an entry that is there has.
    pub fn key(&self, slot: Slot) -> Key {
        self.names.key(slot)
    }

    /// To change where it is. What it is changes by [`Table::insert`] alone.
    pub fn held_mut(&mut self, key: &Key) -> Option<(&mut Held, &mut Ticket)> {
        self.touch(key);
        let entry = self.entries.get_mut(&self.names.slot(key)?)?;
        Some((&mut entry.held, &mut entry.ticket))
    }

    /// Where an entry is has changed: it may be where others are.
    pub fn share(&mut self, key: &Key) {
        if let Some(entry) = self.names.slot(key).and_then(|slot| self.entries.get_mut(&slot)) {
            self.places.share(&mut entry.held);
        }
    }

    pub fn insert(&mut self, key: Key, entry: Entry) {
        let had = self.objects_of(key.ns, &key.owner) > 0;
        // Its name is to stay when what is there goes.
        let slot = self.names.take(&key);
        self.take_out(&key);
        let key = self.names.key(slot);
        self.bytes += cost(&key, &entry);
        self.serials += 1;
        let mut entry = Entry { serial: self.serials, ..entry };
        self.places.share(&mut entry.held);
        self.lie(slot, &entry.body);
        if entry.body.here() > 0 {
            self.wait(slot, entry.serial);
        }
        match entry.held.stamp.gone {
            true => self.tombstones += 1,
            false => {
                let owner = (key.ns, key.owner.clone());
                if !self.owners.contains_key(&owner) {
                    self.buckets.entry(bucket_of(key.ns, &key.owner)).or_default().insert(owner.clone());
                }
                *self.owners.entry(owner).or_default() += 1;
                let used = self.used.entry(key.ns).or_default();
                used.keys += 1;
                used.bytes += cost(&key, &entry) - ENTRY_BYTES;
            }
        }
        self.has_moved(&key, had);
        self.order.insert(entry.serial, slot);
        self.entries.insert(slot, entry);
    }

    /// A deletion about which nothing is left to do goes to the others of its kind.
    pub fn bury(&mut self, key: &Key, since: u32) {
        let Some(slot) = self.names.slot(key) else { return };
        let Some(entry) = self.entries.remove(&slot) else { return };
        debug_assert!(entry.held.stamp.gone, "it is a deletion");
        self.bytes -= cost(key, &entry);
        let Entry { mut held, serial, .. } = entry;
        self.places.share(&mut held);
        let Stamp { version, once, .. } = held.stamp;
        self.bury_as(Grave { slot, at: held.at().clone(), version, serial, since, once });
    }

    fn bury_as(&mut self, grave: Grave) {
        self.bytes += GRAVE_BYTES;
        self.graves.insert(grave);
    }

    /// As the log says that it was.
    pub fn restore_grave(&mut self, key: &Key, mut held: Held, since: u32) {
        let slot = self.names.take(key);
        self.take_out(key);
        self.serials += 1;
        self.places.share(&mut held);
        let Stamp { version, once, .. } = held.stamp;
        self.tombstones += 1;
        self.bury_as(Grave { slot, at: held.at().clone(), version, serial: self.serials, since, once });
    }

    /// Somebody asks about it, or there is something to do: it is an entry again. False: it is none of those.
    pub fn exhume(&mut self, key: &Key) -> bool {
        let grave = self.names.slot(key).and_then(|slot| self.graves.remove(slot));
        grave.map(|grave| self.is_exhumed(grave)).is_some()
    }

    fn is_exhumed(&mut self, grave: Grave) -> Key {
        let key = self.names.key(grave.slot);
        // Whoever walks over all may be behind it.
        self.touch(&key);
        self.order.insert(grave.serial, grave.slot);
        let body = Lies::Here(crate::Body::default());
        let entry = Entry { held: grave.held(), body, set: 0, ticket: Ticket(0), serial: grave.serial };
        self.bytes = self.bytes - GRAVE_BYTES + cost(&key, &entry);
        self.entries.insert(grave.slot, entry);
        key
    }

    /// Some of those that lie at these places are entries again ([`Graves::take`]).
    pub fn exhume_some(
        &mut self,
        needs: &BTreeSet<usize>,
        after: Option<Slot>,
        most: usize,
        looks: usize,
    ) -> (Vec<Key>, Option<Slot>) {
        self.count(looks.min(self.graves.len()));
        let (graves, last) = self.graves.take(needs, after, most, looks);
        (graves.into_iter().map(|grave| self.is_exhumed(grave)).collect(), last)
    }

    /// Deletions are not remembered any more: those whose time is over, the oldest if there are more than so many, and what `goes` says,
    /// by namespace. Looks at so many. True: it has come round.
    pub fn forget_some(&mut self, count: usize, most: usize, now_s: u32, goes: impl Fn(u32) -> bool) -> bool {
        self.graves.bound(most, now_s);
        let names = &self.names;
        let swept = self.graves.sweep(count, now_s, |grave| goes(names.ns(grave.slot)));
        self.count(swept.looked);
        for grave in swept.graves {
            // Nobody watches what was removed.
            if !goes(self.names.ns(grave.slot)) {
                self.forgotten = self.forgotten.max(grave.serial);
            }
            self.order.remove(grave.serial);
            self.bytes -= GRAVE_BYTES;
            self.tombstones -= 1;
            self.names.release(grave.slot);
        }
        swept.is_round
    }

    /// What goes is another question than before: none of those that were looked at has been asked it.
    pub fn sweep_anew(&mut self) {
        self.graves.sweep_anew();
    }

    /// Some deletions are to be forgotten.
    pub fn has_old(&self, most: usize, now_s: u32) -> bool {
        self.graves.len() > most || self.graves.has_over(now_s)
    }

    pub fn graves(&self) -> &Graves {
        &self.graves
    }

    pub fn grave(&self, key: &Key) -> Option<&Grave> {
        self.graves.get(self.names.slot(key)?)
    }

    /// Serial number of the entry that was taken last.
    pub fn last_serial(&self) -> u64 {
        self.serials
    }

    /// What was taken behind this one, in order, if that is known already ([`Table::order_on`]).
    pub fn behind_serial(&self, serial: u64) -> impl DoubleEndedIterator<Item = Taken> {
        self.order.behind(serial).filter_map(|(serial, slot)| {
            self.count(1);
            let (stamp, ticket) = match self.entries.get(&slot) {
                Some(entry) => (entry.held.stamp, entry.ticket),
                None => (self.graves.get(slot)?.stamp(), Ticket(0)),
            };
            Some(Taken { key: self.names.key(slot), stamp, ticket, serial })
        })
    }

    /// Somebody watches: has the order made, so many steps of it. True: it is whole.
    pub fn order_on(&mut self, steps: usize) -> bool {
        self.order.begin();
        while let Some((phase, after)) = self.order.wants() {
            let room = steps.saturating_sub(self.order.made_now());
            if room == 0 {
                return false;
            }
            let some: Vec<(u64, Slot)> = match phase {
                false => {
                    let behind =
                        self.entries.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
                    behind.take(room).map(|(slot, entry)| (entry.serial, *slot)).collect()
                }
                true => self.graves.range(after).take(room).map(|grave| (grave.serial, grave.slot)).collect(),
            };
            self.count(some.len());
            self.order.make(&some, some.len() < room);
        }
        true
    }

    /// Nobody watches any more.
    pub fn drop_order(&mut self) {
        self.order.drop();
    }

    /// What it took is given back, some at a time.
    pub fn tend_order(&mut self, steps: usize) {
        self.order.tend(steps);
    }

    pub fn remove(&mut self, key: &Key) {
        let had = self.objects_of(key.ns, &key.owner) > 0;
        self.take_out(key);
        self.has_moved(key, had);
    }

    fn has_moved(&mut self, key: &Key, had: bool) {
        if had != (self.objects_of(key.ns, &key.owner) > 0)
            && let Some(moved) = &mut self.moved
        {
            moved.push((key.ns, key.owner.clone()));
        }
    }

    fn take_out(&mut self, key: &Key) {
        self.touch(key);
        let Some(slot) = self.names.slot(key) else { return };
        if let Some(grave) = self.graves.remove(slot) {
            self.order.remove(grave.serial);
            self.bytes -= GRAVE_BYTES;
            self.tombstones -= 1;
            return self.names.release(slot);
        }
        let Some(entry) = self.entries.remove(&slot) else { return };
        self.order.remove(entry.serial);
        self.bytes -= cost(key, &entry);
        self.lie_no_more(&entry.body);
        self.names.release(slot);
        if entry.held.stamp.gone {
            self.tombstones -= 1;
            return;
        }
        let used = self.used.get_mut(&key.ns).expect("an object is counted");
        used.keys -= 1;
        used.bytes -= cost(key, &entry) - ENTRY_BYTES;
        if used.keys == 0 {
            self.used.remove(&key.ns);
        }
        let owner = (key.ns, key.owner.clone());
        let left = self.owners.get_mut(&owner).expect("an object has an owner");
        *left -= 1;
        if *left == 0 {
            self.owners.remove(&owner);
            let bucket = bucket_of(key.ns, &key.owner);
            let of = self.buckets.get_mut(&bucket).expect("an owner is in its bucket");
            of.remove(&owner);
            if of.is_empty() {
                self.buckets.remove(&bucket);
            }
        }
    }

    fn touch(&mut self, key: &Key) {
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
    }

    fn wait(&mut self, slot: Slot, serial: u64) {
        self.waiting.push_back((slot, serial));
        // What is deleted before there is enough for a pack is not waited for.
        if self.waiting.len() > 1024 + 2 * self.here_count {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|(slot, of)| *of == serial || self.at(*slot).is_some_and(|entry| entry.serial == *of));
            self.waiting = waiting;
        }
    }

    fn lie(&mut self, slot: Slot, body: &Lies) {
        self.here += body.here();
        self.here_count += usize::from(body.here() > 0);
        if let Lies::Packed(place) = body {
            self.packs.add(slot, place);
        }
    }

    fn lie_no_more(&mut self, body: &Lies) {
        self.here -= body.here();
        self.here_count -= usize::from(body.here() > 0);
        if let Lies::Packed(place) = body {
            self.packs.release(place);
        }
    }

    /// From now on its bytes lie there, if they are still those.
    pub fn place(&mut self, slot: Slot, serial: u64, place: Place) -> Option<Key> {
        let entry = self.entries.get_mut(&slot).filter(|entry| entry.serial == serial)?;
        let (new, set) = (Lies::Packed(place), std::mem::take(&mut entry.set));
        debug_assert!(set == 0 || entry.body.is_in_pieces(), "a set is of pieces");
        let old = std::mem::replace(&mut entry.body, new.clone());
        self.lie(slot, &new);
        self.lie_no_more(&old);
        let key = self.names.key(slot);
        self.touch(&key);
        Some(key)
    }

    /// Only where it is has changed, as the log says.
    pub fn hold(&mut self, key: &Key, held: Held) {
        if let Some(entry) = self.names.slot(key).and_then(|slot| self.entries.get_mut(&slot)) {
            entry.held = held;
            self.places.share(&mut entry.held);
        }
    }

    /// All that lies in packs.
    pub fn places(&self) -> impl Iterator<Item = (Key, &Place)> {
        self.entries.iter().filter_map(|(slot, entry)| match &entry.body {
            Lies::Packed(place) => Some((self.names.key(*slot), place)),
            Lies::Here(_) => None,
        })
    }

    /// Entries: objects, and deletions about which something is left to do.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Deletions about which something is left to do.
    pub fn unsettled(&self) -> usize {
        self.tombstones as usize - self.graves.len()
    }

    pub fn objects(&self) -> usize {
        self.len() - self.unsettled()
    }

    /// Entries behind a slot, or all, in order.
    pub fn range(&self, after: Option<Slot>) -> impl Iterator<Item = (Slot, &Entry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range((from, Bound::Unbounded)).map(|(slot, entry)| {
            self.count(1);
            (*slot, entry)
        })
    }

    /// Objects of a namespace that are here.
    pub fn used(&self, ns: u32) -> Used {
        self.used.get(&ns).copied().unwrap_or_default()
    }

    /// Objects of an owner that are here.
    pub fn objects_of(&self, ns: u32, owner: &Bytes) -> u64 {
        self.owners.get(&(ns, owner.clone())).copied().unwrap_or(0)
    }

    /// Owners of a bucket that have objects here, behind one, in order.
    pub fn owners_in(&self, bucket: u16, after: Option<&(u32, Bytes)>) -> impl Iterator<Item = &(u32, Bytes)> {
        let from = after.map_or(Bound::Unbounded, |owner| Bound::Excluded(owner.clone()));
        self.buckets.get(&bucket).into_iter().flat_map(move |of| of.range((from.clone(), Bound::Unbounded)))
    }

    /// All owners that have objects here.
    pub fn owned(&self) -> impl Iterator<Item = &(u32, Bytes)> {
        self.owners.keys()
    }

    /// Owners that have objects here, behind this one, in order.
    pub fn owners_behind<'a>(&'a self, ns: u32, owner: &Bytes) -> impl Iterator<Item = &'a Bytes> {
        let from = Bound::Excluded((ns, owner.clone()));
        self.owners
            .range((from, Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(move |key| key.0 == ns)
            .map(|key| &key.1)
    }

    /// Entries of an owner behind an id, deletions too about which something is left to do, in order.
    pub fn behind(&self, ns: u32, owner: &Bytes, after: Option<Id>) -> impl Iterator<Item = (Id, &Entry)> {
        let of = self.names.number(ns, owner);
        let slot = move |owner| Slot { owner, id: after.unwrap_or_default() };
        let behind = of.map(slot).map(|from| {
            let from = if after.is_some() { Bound::Excluded(from) } else { Bound::Included(from) };
            self.entries.range((from, Bound::Unbounded)).take_while(move |(slot, _)| Some(slot.owner) == of)
        });
        behind.into_iter().flatten().map(|(slot, entry)| (slot.id, entry))
    }

    #[cfg(test)]
    fn count(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests count what a turn looks at")]
    fn count(&self, _: usize) {}
}

fn cost(key: &Key, entry: &Entry) -> u64 {
    ENTRY_BYTES + key.owner.len() as u64 + entry.body.len() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::held::tests::held;

    /// An object of an owner in namespace 1.
    pub(crate) fn put(table: &mut Table, owner: &Bytes, n: u8) {
        let body = Lies::Here(Bytes::from_static(b"x").into());
        let entry = Entry { held: held(&[1], &[1]), body, set: 0, ticket: Ticket(0), serial: 0 };
        table.insert(Key { ns: 1, owner: owner.clone(), id: Id([n; 16]) }, entry);
    }

    #[test]
    fn an_owners_objects_are_counted_and_listed_in_order() {
        let mut table = Table::default();
        let owner = Bytes::from_static(b"ann");
        let key = |n: u8, owner: &Bytes| Key { ns: 1, owner: owner.clone(), id: Id([n; 16]) };
        let entry = |gone| {
            let mut held = held(&[1], &[1]);
            held.stamp.gone = gone;
            let body = Lies::Here(Bytes::from_static(b"x").into());
            Entry { held, body, set: 0, ticket: Ticket(0), serial: 0 }
        };
        for n in [3, 1, 2] {
            table.insert(key(n, &owner), entry(false));
            table.insert(key(n, &Bytes::from_static(b"ann2")), entry(false));
        }
        table.insert(key(2, &owner), entry(true));
        assert_eq!((table.objects_of(1, &owner), table.tombstones, table.len()), (2, 1, 6));
        assert_eq!(table.used(1), Used { keys: 5, bytes: 2 * 4 + 3 * 5 });
        let ids: Vec<u8> = table.behind(1, &owner, Some(Id([1; 16]))).map(|(id, _)| id.0[0]).collect();
        assert_eq!(ids, [2, 3]);
        let all: Vec<Key> = table.range(None).map(|(slot, _)| table.key(slot)).collect();
        all.iter().for_each(|key| table.remove(key));
        assert_eq!((table.bytes, table.tombstones, table.owners.len(), table.used(1)), (0, 0, 0, Used::default()));
        assert!(table.buckets.is_empty());
    }
}
