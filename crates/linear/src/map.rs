//! An ordered map whose copy is cheap: leaves of some dozens of entries, shared with copies and copied when changed. A
//! snapshot of a million keys takes as long as copying twenty thousand pointers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::order::KeyOrder;
use super::value::Entry;

/// Entries of a leaf. A change under a snapshot copies one leaf; fewer would make more of them to copy with each snapshot.
const LEAF_MAX: usize = 64;
/// Of one that is filled in order: there is room for what is put between them later.
const LEAF_FILLED: usize = LEAF_MAX * 3 / 4;

pub type Leaf = Vec<(Bytes, Entry)>;

/// Invariant: a leaf's keys are sorted, not below its own key in `leaves`, and below the next leaf's.
#[derive(Clone, Default)]
pub struct Map {
    leaves: BTreeMap<Bytes, Arc<Leaf>>,
    len: usize,
    /// The order for who walks through the keys by cursors that are numbers, if anybody does.
    order: RefCell<Option<KeyOrder>>,
}

impl Map {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        let (_, leaf) = self.leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        leaf.binary_search_by(|(k, _)| k[..].cmp(key)).ok().map(|at| &leaf[at].1)
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let (_, leaf) = self.leaves.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = leaf.binary_search_by(|(k, _)| k[..].cmp(key)).ok()?;
        Some(&mut Arc::make_mut(leaf)[at].1)
    }

    pub fn insert(&mut self, key: Bytes, entry: Entry) -> Option<Entry> {
        if self.leaves.is_empty() {
            self.leaves.insert(Bytes::new(), Arc::default());
        }
        let below = self.leaves.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(&key[..]))).next_back();
        let (_, leaf) = below.expect("the first leaf's key is below any");
        let leaf = Arc::make_mut(leaf);
        match leaf.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => return Some(std::mem::replace(&mut leaf[at].1, entry)),
            Err(at) => {
                if let Some(order) = self.order.get_mut() {
                    order.insert(&key);
                }
                leaf.insert(at, (key, entry));
            }
        }
        self.len += 1;
        if leaf.len() > LEAF_MAX {
            let upper = leaf.split_off(LEAF_MAX / 2);
            self.leaves.insert(upper[0].0.clone(), Arc::new(upper));
        }
        None
    }

    /// Inserts; quickly, if the key is above all that are there, as when entries come in order.
    pub fn append(&mut self, key: Bytes, entry: Entry) {
        let Some(mut last) = self.leaves.last_entry() else { return drop(self.insert(key, entry)) };
        let leaf = last.get_mut();
        if leaf.last().is_none_or(|(below, _)| *below >= key) {
            return drop(self.insert(key, entry));
        }
        self.len += 1;
        if let Some(order) = self.order.get_mut() {
            order.insert(&key);
        }
        if leaf.len() < LEAF_FILLED {
            return Arc::make_mut(leaf).push((key, entry));
        }
        let mut leaf = Leaf::with_capacity(LEAF_FILLED);
        let first = key.clone();
        leaf.push((key, entry));
        self.leaves.insert(first, Arc::new(leaf));
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let (first, leaf) = self.leaves.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = leaf.binary_search_by(|(k, _)| k[..].cmp(key)).ok()?;
        let (key, entry) = Arc::make_mut(leaf).remove(at);
        self.len -= 1;
        if let Some(order) = self.order.get_mut() {
            order.remove(&key);
        }
        if leaf.is_empty() && !first.is_empty() {
            let first = first.clone();
            self.leaves.remove(&first);
        }
        Some(entry)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes entries out, those whose keys `goes` wants, into a map of their own.
    pub fn part(&mut self, goes: impl Fn(&[u8]) -> bool) -> Self {
        let (mut stay, mut gone) = (Self::default(), Self::default());
        for (_, leaf) in std::mem::take(&mut self.leaves) {
            for (key, entry) in Arc::unwrap_or_clone(leaf) {
                let to = if goes(&key) { &mut gone } else { &mut stay };
                to.append(key, entry);
            }
        }
        *self = stay;
        gone
    }

    /// Entries in order, from the first key that is not below `from`.
    pub fn from<'a>(&'a self, from: &'a [u8]) -> impl Iterator<Item = &'a (Bytes, Entry)> {
        // The leaf that may hold `from` begins at or before it.
        let first = self.leaves.range::<[u8], _>((Bound::Unbounded, Bound::Included(from))).next_back();
        let after = self.leaves.range::<[u8], _>((Bound::Excluded(from), Bound::Unbounded));
        first.into_iter().chain(after).flat_map(|(_, leaf)| leaf.iter()).skip_while(move |(key, _)| key[..] < *from)
    }

    /// Entries backwards, from the last key below `end`; without an end, from the last.
    pub fn back_from<'a>(&'a self, end: Option<&'a [u8]>) -> impl Iterator<Item = &'a (Bytes, Entry)> {
        let bound = end.map_or(Bound::Unbounded, Bound::Excluded);
        let leaves = self.leaves.range::<[u8], _>((Bound::Unbounded, bound)).rev();
        let is_past = move |(key, _): &&(Bytes, Entry)| end.is_some_and(|end| key[..] >= *end);
        leaves.flat_map(|(_, leaf)| leaf.iter().rev()).skip_while(is_past)
    }

    /// Shows entries in the order of their places (`order.rs`), from this one on, until it is enough. False, and nothing is shown: the
    /// order is not made yet, but so many keys further than it was.
    pub fn walk(&self, from: u64, grow: usize, mut show: impl FnMut(u64, &Bytes, &Entry) -> bool) -> bool {
        let mut order = self.order.borrow_mut();
        let order = order.get_or_insert_default();
        order.grow(self, grow);
        if order.is_whole() {
            let entry = |(place, key): &(u64, Bytes)| self.get(key).is_none_or(|entry| show(*place, key, entry));
            let _ = order.from(from).all(entry);
        }
        order.is_whole()
    }

    /// Nobody walks through the keys any more.
    pub fn forget_order(&mut self) {
        *self.order.get_mut() = None;
    }

    /// The key at this place in their order.
    pub fn nth(&self, mut at: usize) -> Option<&Bytes> {
        for leaf in self.leaves.values() {
            match leaf.get(at) {
                Some((key, _)) => return Some(key),
                None => at -= leaf.len(),
            }
        }
        None
    }

    /// Some of the keys, from all over: at least so many, where there are many more.
    pub fn sample(&self, count: usize) -> impl Iterator<Item = &Bytes> {
        // Few leaves hold few entries: then all of them are looked at.
        let (few, step) = (self.leaves.len() <= count, (self.leaves.len() / count).max(1));
        let keys =
            self.leaves.values().step_by(step).flat_map(move |leaf| leaf.iter().take(if few { LEAF_MAX } else { 1 }));
        keys.map(|(key, _)| key)
    }

    /// All leaves, shared.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.leaves.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::*;
    use base::Rng;

    fn entry(n: u64) -> Entry {
        Entry { value: Value::Text(Bytes::new()), version: n, end: 0, size: 0 }
    }

    #[test]
    fn what_comes_in_order_is_appended_and_what_does_not_is_there_too() {
        let (mut map, mut twin) = (Map::default(), BTreeMap::new());
        // In order, with two that are not.
        let keys = (0..1_000).map(|n| format!("{n:04}")).chain(["0100".into(), "00505".into(), "1000".into()]);
        for (n, key) in keys.enumerate() {
            map.append(Bytes::from(key.clone()), entry(n as u64));
            twin.insert(Bytes::from(key), entry(n as u64));
        }
        assert_eq!(map.len(), twin.len());
        assert!(map.from(b"").map(|(key, entry)| (key, entry)).eq(&twin));
        assert!(map.leaves.len() <= 1_001 / LEAF_FILLED + 2, "{} leaves", map.leaves.len());
    }

    /// The dumb twin is a `BTreeMap`.
    #[test]
    fn it_does_what_an_ordered_map_does_and_copies_stay_as_they_were() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut map, mut twin) = (Map::default(), BTreeMap::new());
            let mut kept: Option<(Map, BTreeMap<Bytes, Entry>)> = None;
            for n in 0..3_000 {
                let key = Bytes::from(format!("{}", rng.below(700)));
                if rng.chance(0.6) {
                    assert_eq!(map.insert(key.clone(), entry(n)), twin.insert(key, entry(n)));
                } else {
                    assert_eq!(map.remove(&key), twin.remove(&key));
                }
                if n == 1_500 {
                    kept = Some((map.clone(), twin.clone()));
                }
                if n == 2_000 {
                    let goes = |key: &[u8]| key[key.len() - 1].is_multiple_of(2);
                    let gone = map.part(goes);
                    let theirs: Vec<_> = twin.extract_if(.., |key, _| goes(key)).collect();
                    assert_eq!(gone.from(b"").cloned().collect::<Vec<_>>(), theirs);
                    assert_eq!(gone.len(), theirs.len());
                }
            }
            for (map, twin) in [(&map, &twin), (&kept.as_ref().unwrap().0, &kept.as_ref().unwrap().1)] {
                assert_eq!(map.len(), twin.len());
                for from in ["", "3", "35", "999", "~"].map(str::as_bytes) {
                    let ours: Vec<_> = map.from(from).map(|(key, entry)| (key, entry)).collect();
                    let theirs: Vec<_> = twin.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).collect();
                    assert_eq!(ours, theirs);
                    let ours: Vec<_> = map.back_from(Some(from)).map(|(key, entry)| (key, entry)).collect();
                    let theirs = twin.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(from)));
                    assert_eq!(ours, theirs.rev().collect::<Vec<_>>());
                }
                assert_eq!(map.back_from(None).count(), twin.len());
                let nth: Vec<_> = (0..=twin.len()).map_while(|at| map.nth(at)).collect();
                assert_eq!(nth, twin.keys().collect::<Vec<_>>());
                assert!(twin.iter().all(|(key, entry)| map.get(key) == Some(entry)));
            }
        }
    }
}
