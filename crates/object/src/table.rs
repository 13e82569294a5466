//! What a node holds: objects and tombstones by key, with who should have each and who is known to have it. It only keeps; what follows
//! from a change is `holder.rs`'s business.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use base::{NodeId, Ticket};
use bytes::Bytes;
use class::Used;

use crate::lies::{Lies, Place};
use crate::limits::{ENTRY_BYTES, HOMES_MAX};
use crate::map::bucket_of;
use crate::packs::Packs;
use crate::{Id, Key, Stamp};

/// A write, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub stamp: Stamp,
    /// All nodes that may have the object: they are told of this write until they have it.
    pub homes: BTreeSet<NodeId>,
    /// Those of them whose disks have this write together with at least these homes.
    pub has: BTreeSet<NodeId>,
    /// Homes whose copies were given up (odd), or wanted again (even): each turn is one more, and the highest counts. Others have none.
    pub turns: BTreeMap<NodeId, u32>,
}

/// What a merge has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merged {
    Nothing,
    /// More of the homes have it.
    Has,
    /// There are more homes: this node has to keep that before it says that it has the write.
    Homes,
}

impl Held {
    /// What somebody else says of the same write. `me` has all that is merged, as soon as its disk has.
    pub fn merge(&mut self, me: NodeId, other: &Held) -> Merged {
        // A peer may say that one of them is of a namespace with other rules: then they are the same by its word alone.
        if !(self.stamp.is_same(&other.stamp) && other.stamp.is_same(&self.stamp)) {
            return Merged::Nothing;
        }
        let before = (self.stamp, self.has.len());
        let turned = self.turn_with(me, other);
        // What somebody had at an earlier turn it may have given up since.
        let has: BTreeSet<NodeId> =
            other.has.iter().copied().filter(|node| other.turn(*node) == self.turn(*node)).collect();
        // The same write came through several nodes; all keep the first version.
        self.stamp.version = self.stamp.version.min(other.stamp.version);
        if other.homes == self.homes {
            self.has.extend(&has);
        } else if !other.homes.is_subset(&self.homes) {
            let knows_all = other.homes.is_superset(&self.homes);
            self.homes.extend(&other.homes);
            self.has = if knows_all { has } else { BTreeSet::new() };
            self.has.insert(me);
            return Merged::Homes;
        }
        if !turned && before == (self.stamp, self.has.len()) { Merged::Nothing } else { Merged::Has }
    }

    pub fn turn(&self, node: NodeId) -> u32 {
        self.turns.get(&node).copied().unwrap_or(0)
    }

    /// Its copy of the object is given up: it is told of deletions, and counts for nothing else.
    pub fn is_spare(&self, node: NodeId) -> bool {
        !self.stamp.gone && self.turn(node) % 2 == 1
    }

    /// Takes a home's copy back into what counts, or gives it up. What is known of that node is of before. False: there is no room.
    pub fn turn_over(&mut self, me: NodeId, node: NodeId) -> bool {
        let may = self.turns.len() < HOMES_MAX || self.turns.contains_key(&node);
        if may {
            let turn = self.turns.entry(node).or_default();
            *turn = turn.saturating_add(1);
            if node != me {
                self.has.remove(&node);
            }
        }
        may
    }

    /// True if somebody knows of later turns.
    fn turn_with(&mut self, me: NodeId, other: &Held) -> bool {
        let mut turned = false;
        for (node, turn) in &other.turns {
            let may = self.turns.len() < HOMES_MAX || self.turns.contains_key(node);
            if may && *turn > self.turn(*node) {
                self.turns.insert(*node, *turn);
                if *node != me {
                    self.has.remove(node);
                }
                turned = true;
            }
        }
        turned
    }

    /// More homes. True if there are any new ones; then nobody else is known to know of them.
    pub fn add_homes(&mut self, me: NodeId, homes: impl IntoIterator<Item = NodeId>) -> bool {
        let before = self.homes.len();
        let room = HOMES_MAX.saturating_sub(before);
        let new: Vec<NodeId> = homes.into_iter().filter(|home| !self.homes.contains(home)).take(room).collect();
        self.homes.extend(new);
        let grew = self.homes.len() > before;
        if grew {
            self.has = [me].into();
        }
        grew
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub held: Held,
    pub body: Lies,
    /// What its pieces are called in the log, while they are there; 0: it is in none.
    pub set: u64,
    /// It is safe when the node's log is safe up to here.
    pub ticket: Ticket,
    /// Given by [`Table::insert`]: another one for other bytes.
    pub serial: u64,
}

#[derive(Default)]
pub(crate) struct Table {
    entries: BTreeMap<Key, Entry>,
    /// Objects, without tombstones, by namespace and owner.
    owners: BTreeMap<(u32, Bytes), u64>,
    /// Their owners by bucket ([`bucket_of`]).
    buckets: BTreeMap<u16, BTreeSet<(u32, Bytes)>>,
    /// Owners that had no objects here and have some now, or the other way round, if anybody wants to hear of them.
    pub moved: Option<Vec<(u32, Bytes)>>,
    /// What all of it takes, wherever it lies.
    pub bytes: u64,
    /// Bytes of objects that are in memory.
    pub here: u64,
    pub tombstones: u64,
    /// Entries that were touched since a checkpoint was begun, if one is being made.
    pub changed: Option<BTreeSet<Key>>,
    /// Objects, and the bytes of these and of their owners' names, by namespace. Invariant: none has no object.
    used: BTreeMap<u32, Used>,
    pub packs: Packs,
    /// Entries whose bytes are to go into a pack, oldest first, with their serials. Some may be there no more.
    pub waiting: VecDeque<(Key, u64)>,
    serials: u64,
    /// Entries by their serials, while somebody watches: what was taken last stands last.
    order: Option<BTreeMap<u64, Key>>,
    /// All deletions that were forgotten have this serial, or a lower one.
    pub forgotten: u64,
}

impl Table {
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// To change where it is. What it is changes by [`Table::insert`] alone.
    pub fn held_mut(&mut self, key: &Key) -> Option<(&mut Held, &mut Ticket)> {
        self.touch(key);
        self.entries.get_mut(key).map(|entry| (&mut entry.held, &mut entry.ticket))
    }

    pub fn insert(&mut self, key: Key, entry: Entry) {
        let had = self.objects_of(key.ns, &key.owner) > 0;
        self.take_out(&key);
        self.bytes += cost(&key, &entry);
        self.serials += 1;
        let entry = Entry { serial: self.serials, ..entry };
        self.lie(&key, &entry.body);
        if entry.body.here() > 0 {
            self.wait(key.clone(), entry.serial);
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
        if let Some(order) = &mut self.order {
            order.insert(entry.serial, key.clone());
        }
        self.entries.insert(key, entry);
    }

    /// A deletion is not remembered any more.
    pub fn forget(&mut self, key: &Key) {
        self.forgotten = self.forgotten.max(self.get(key).map_or(0, |entry| entry.serial));
        self.remove(key);
    }

    /// Of what was taken last.
    pub fn last_serial(&self) -> u64 {
        self.serials
    }

    /// Entries that were taken behind this one, in order. The first time all are walked over.
    pub fn behind_serial(&mut self, serial: u64) -> impl DoubleEndedIterator<Item = (&Key, &Entry)> {
        let entries = &self.entries;
        let order = self.order.get_or_insert_with(|| {
            let mut all: Vec<(u64, Key)> = entries.iter().map(|(key, entry)| (entry.serial, key.clone())).collect();
            all.sort_unstable_by_key(|(serial, _)| *serial);
            all.into_iter().collect()
        });
        let behind = order.range((Bound::Excluded(serial), Bound::Unbounded));
        behind.filter_map(|(_, key)| Some((key, entries.get(key)?)))
    }

    /// Nobody watches any more.
    pub fn drop_order(&mut self) {
        self.order = None;
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
        let Some(entry) = self.entries.remove(key) else { return };
        if let Some(order) = &mut self.order {
            order.remove(&entry.serial);
        }
        self.bytes -= cost(key, &entry);
        self.lie_no_more(&entry.body);
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

    fn wait(&mut self, key: Key, serial: u64) {
        self.waiting.push_back((key, serial));
        // What is deleted before there is enough for a pack is not waited for.
        if self.waiting.len() > 1024 + 2 * self.entries.len() {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|(key, of)| *of == serial || self.get(key).is_some_and(|entry| entry.serial == *of));
            self.waiting = waiting;
        }
    }

    fn lie(&mut self, key: &Key, body: &Lies) {
        self.here += body.here();
        if let Lies::Packed(place) = body {
            self.packs.add(key, place);
        }
    }

    fn lie_no_more(&mut self, body: &Lies) {
        self.here -= body.here();
        if let Lies::Packed(place) = body {
            self.packs.release(place);
        }
    }

    /// From now on its bytes lie there, if they are still those.
    pub fn place(&mut self, key: Key, serial: u64, place: Place) -> Option<Key> {
        self.touch(&key);
        let entry = self.entries.get_mut(&key).filter(|entry| entry.serial == serial)?;
        let (new, set) = (Lies::Packed(place), std::mem::take(&mut entry.set));
        debug_assert!(set == 0 || entry.body.is_in_pieces(), "a set is of pieces");
        let old = std::mem::replace(&mut entry.body, new.clone());
        self.lie(&key, &new);
        self.lie_no_more(&old);
        Some(key)
    }

    /// Only where it is has changed, as the log says.
    pub fn hold(&mut self, key: &Key, held: Held) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.held = held;
        }
    }

    /// All that lies in packs.
    pub fn places(&self) -> impl Iterator<Item = (&Key, &Place)> {
        self.entries.iter().filter_map(|(key, entry)| match &entry.body {
            Lies::Packed(place) => Some((key, place)),
            Lies::Here(_) => None,
        })
    }

    /// The first that lies in a pack behind this one.
    pub fn place_behind(&self, key: Option<&Key>) -> Option<&Key> {
        self.range(key).find(|(_, entry)| matches!(entry.body, Lies::Packed(_))).map(|(key, _)| key)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries behind a key, or all, in order.
    pub fn range(&self, after: Option<&Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        self.entries.range((from, Bound::Unbounded))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
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

    /// Owners that have objects here, behind this one, in order.
    pub fn owners_behind<'a>(&'a self, ns: u32, owner: &Bytes) -> impl Iterator<Item = &'a Bytes> {
        let from = Bound::Excluded((ns, owner.clone()));
        self.owners
            .range((from, Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(move |key| key.0 == ns)
            .map(|key| &key.1)
    }

    /// What there is of an owner behind an id, tombstones too, in order.
    pub fn behind<'a>(&'a self, ns: u32, owner: &'a Bytes, after: Option<Id>) -> impl Iterator<Item = (Id, &'a Entry)> {
        let key = |id| Key { ns, owner: owner.clone(), id };
        let from = match after {
            None => Bound::Included(key(Id::default())),
            Some(id) => Bound::Excluded(key(id)),
        };
        let of_owner = move |(key, _): &(&Key, &Entry)| key.ns == ns && key.owner == *owner;
        self.entries.range((from, Bound::Unbounded)).take_while(of_owner).map(|(key, entry)| (key.id, entry))
    }
}

fn cost(key: &Key, entry: &Entry) -> u64 {
    ENTRY_BYTES + key.owner.len() as u64 + entry.body.len() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use class::Version;

    use super::*;

    /// An object of an owner in namespace 1.
    pub(crate) fn put(table: &mut Table, owner: &Bytes, n: u8) {
        let body = Lies::Here(Bytes::from_static(b"x").into());
        let entry = Entry { held: held(&[1], &[1]), body, set: 0, ticket: Ticket(0), serial: 0 };
        table.insert(Key { ns: 1, owner: owner.clone(), id: Id([n; 16]) }, entry);
    }

    fn held(homes: &[u64], has: &[u64]) -> Held {
        let of = |nodes: &[u64]| nodes.iter().map(|n| NodeId(*n)).collect();
        let stamp = Stamp { version: Version::default(), once: true, gone: false, sum: 1, size: 1 };
        Held { stamp, homes: of(homes), has: of(has), turns: BTreeMap::new() }
    }

    #[test]
    fn two_writes_that_a_peer_calls_one_stay_two() {
        let me = NodeId(1);
        let mut mine = held(&[1, 2], &[1]);
        let mut lie = held(&[1, 2, 3], &[3]);
        (lie.stamp.once, lie.stamp.sum) = (false, 7);
        assert!(lie.stamp.is_same(&mine.stamp) && !mine.stamp.is_same(&lie.stamp));
        assert_eq!((mine.merge(me, &lie), mine.homes.len()), (Merged::Nothing, 2));
    }

    #[test]
    fn a_copy_that_was_given_up_counts_only_when_it_is_there_again() {
        let (me, other) = (NodeId(1), NodeId(2));
        let before = held(&[1, 2, 3], &[1, 2, 3]);
        let mut mine = before.clone();
        assert!(mine.turn_over(me, other) && mine.is_spare(other));
        assert_eq!(mine.merge(me, &before), Merged::Nothing, "it had it, a turn ago");
        assert_eq!(mine.has, [1, 3].map(NodeId).into());
        let mut third = before.clone();
        assert_eq!(third.merge(NodeId(3), &mine), Merged::Has);
        assert_eq!((third.is_spare(other), third.has.contains(&other)), (true, false));
        // It is wanted again, and has it again.
        assert!(mine.turn_over(me, other) && !mine.is_spare(other) && !mine.has.contains(&other));
        assert_eq!(mine.merge(me, &third), Merged::Nothing);
        let mut again = mine.clone();
        again.has.insert(other);
        assert_eq!(mine.merge(me, &again), Merged::Has);
        assert!(mine.has.contains(&other));
    }

    #[test]
    fn who_has_a_write_counts_only_with_all_its_homes() {
        for (mine, other, becomes, changed) in [
            ((&[1, 2][..], &[1][..]), (&[1, 2][..], &[2][..]), (&[1, 2][..], &[1, 2][..]), Merged::Has),
            ((&[1, 2], &[1, 2]), (&[1, 2], &[2]), (&[1, 2], &[1, 2]), Merged::Nothing),
            // 2 said that it has it when it knew of fewer homes: that does not count any more.
            ((&[1, 2], &[1, 2]), (&[1, 2, 3], &[3]), (&[1, 2, 3], &[1, 3]), Merged::Homes),
            ((&[1, 2, 3], &[1]), (&[1, 2], &[1, 2]), (&[1, 2, 3], &[1]), Merged::Nothing),
            ((&[1, 2], &[1, 2]), (&[1, 3], &[1, 3]), (&[1, 2, 3], &[1]), Merged::Homes),
        ] {
            let mut merged = held(mine.0, mine.1);
            assert_eq!(merged.merge(NodeId(1), &held(other.0, other.1)), changed, "{mine:?} {other:?}");
            assert_eq!(merged, held(becomes.0, becomes.1), "{mine:?} {other:?}");
        }
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
        let all: Vec<Key> = table.iter().map(|(key, _)| key.clone()).collect();
        all.iter().for_each(|key| table.remove(key));
        assert_eq!((table.bytes, table.tombstones, table.owners.len(), table.used(1)), (0, 0, 0, Used::default()));
        assert!(table.buckets.is_empty());
    }
}
