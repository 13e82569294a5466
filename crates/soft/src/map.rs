//! An ordered map whose copy is cheap: leaves of some dozens of entries, shared with copies and copied when changed. A checkpoint of
//! a million cells begins with a copy of some twenty thousand pointers; what is made of it is made elsewhere, later.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Entries of a leaf. A change under a copy copies one leaf; fewer would make more of them to copy with each copy.
const LEAF_MAX: usize = 64;

type Leaf<K, V> = Vec<(K, V)>;

/// Invariant: a leaf is not empty; its keys are sorted, not below its own key in `leaves`, and below the next leaf's.
#[derive(Clone, Debug)]
pub struct Map<K, V> {
    leaves: BTreeMap<K, Arc<Leaf<K, V>>>,
    len: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self { leaves: BTreeMap::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, leaf) = self.leaves.range(..=key).next_back()?;
        leaf.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &leaf[at].1)
    }

    /// What lies there; if there is nothing, what `fresh` makes lies there then.
    pub fn get_or_insert_with(&mut self, key: &K, fresh: impl FnOnce() -> V) -> &mut V {
        let first = match self.leaves.range(..=key).next_back() {
            Some((first, _)) => first.clone(),
            // Below all that is there: the first leaf gets another key.
            None => {
                let leaf = self.leaves.pop_first().map(|(_, leaf)| leaf).unwrap_or_default();
                self.leaves.insert(key.clone(), leaf);
                key.clone()
            }
        };
        let leaf = Arc::make_mut(self.leaves.get_mut(&first).expect("it was just seen"));
        let at = match leaf.binary_search_by(|(k, _)| k.cmp(key)) {
            Ok(at) => return &mut self.entry(first, at).1,
            Err(at) => at,
        };
        self.len += 1;
        let mut fresh = Some((key.clone(), fresh()));
        if leaf.len() < LEAF_MAX {
            leaf.insert(at, fresh.take().expect("it was just made"));
            return &mut self.entry(first, at).1;
        }
        // What comes in order fills leaves; else there are two half ones.
        let half = if at == LEAF_MAX { at } else { LEAF_MAX / 2 };
        let mut upper = Vec::with_capacity(LEAF_MAX);
        upper.extend(leaf.drain(half..));
        let is_upper = at >= half;
        let (to, at) = if is_upper { (&mut upper, at - half) } else { (&mut *leaf, at) };
        to.insert(at, fresh.take().expect("it was just made"));
        let second = upper[0].0.clone();
        self.leaves.insert(second.clone(), Arc::new(upper));
        &mut self.entry(if is_upper { second } else { first }, at).1
    }

    fn entry(&mut self, leaf: K, at: usize) -> &mut (K, V) {
        &mut Arc::make_mut(self.leaves.get_mut(&leaf).expect("there is such a leaf"))[at]
    }

    pub fn insert(&mut self, key: K, value: V) {
        let mut value = Some(value);
        let there = self.get_or_insert_with(&key, || value.take().expect("it is made once"));
        if let Some(value) = value {
            *there = value;
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (first, leaf) = self.leaves.range_mut(..=key).next_back()?;
        let at = leaf.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        let leaf = Arc::make_mut(leaf);
        let (_, value) = leaf.remove(at);
        self.len -= 1;
        if leaf.is_empty() {
            let first = first.clone();
            self.leaves.remove(&first);
        } else if leaf.capacity() > 2 * LEAF_MAX {
            leaf.shrink_to(LEAF_MAX);
        }
        Some(value)
    }

    /// Entries in order of their keys, from either end.
    pub fn range<R: RangeBounds<K>>(&self, of: R) -> impl DoubleEndedIterator<Item = (&K, &V)> + use<'_, R, K, V> {
        // The leaf that may have the first of them begins at or before it.
        let from = match of.start_bound() {
            Bound::Included(key) | Bound::Excluded(key) => self.leaves.range(..=key).next_back(),
            Bound::Unbounded => None,
        };
        let from = from.map_or(Bound::Unbounded, |(first, _)| Bound::Included(first));
        let leaves = self.leaves.range((from, of.end_bound()));
        let within = move |(_, leaf): (&'_ K, &'_ Arc<Leaf<K, V>>)| -> (usize, usize) {
            let from = match of.start_bound() {
                Bound::Unbounded => 0,
                Bound::Included(key) => leaf.partition_point(|(k, _)| k < key),
                Bound::Excluded(key) => leaf.partition_point(|(k, _)| k <= key),
            };
            let to = match of.end_bound() {
                Bound::Unbounded => leaf.len(),
                Bound::Included(key) => leaf.partition_point(|(k, _)| k <= key),
                Bound::Excluded(key) => leaf.partition_point(|(k, _)| k < key),
            };
            (from, to.max(from))
        };
        leaves.flat_map(move |(first, leaf)| {
            let (from, to) = within((first, leaf));
            leaf[from..to].iter().map(|(key, value)| (key, value))
        })
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.range(..)
    }
}

#[cfg(test)]
impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// The dumb twin is a `BTreeMap`.
    #[test]
    fn it_does_what_an_ordered_map_does_and_copies_stay_as_they_were() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut map, mut twin) = (Map::default(), BTreeMap::new());
            let mut kept = None;
            for n in 0..3_000u64 {
                // Some come in order.
                let key = if n % 3 == 0 { 500 + n / 3 } else { rng.below(700) };
                match rng.below(10) {
                    0..6 => {
                        map.insert(key, n);
                        twin.insert(key, n);
                    }
                    6 => {
                        *map.get_or_insert_with(&key, || 7) += 1;
                        *twin.entry(key).or_insert(7) += 1;
                    }
                    _ => assert_eq!(map.remove(&key), twin.remove(&key)),
                }
                if n == 1_500 {
                    kept = Some((map.clone(), twin.clone()));
                }
            }
            let (old, old_twin) = kept.unwrap();
            for (map, twin) in [(&map, &twin), (&old, &old_twin)] {
                assert_eq!((map.len(), map.is_empty()), (twin.len(), twin.is_empty()));
                assert!(map.iter().eq(twin) && map.keys().rev().eq(twin.keys().rev()));
                assert!(map.leaves.values().all(|leaf| !leaf.is_empty() && leaf.len() <= LEAF_MAX));
                for from in [0, 3, 64, 350, 699, 5_000] {
                    assert_eq!(map.get(&from), twin.get(&from));
                    assert!(map.range(from..).eq(twin.range(from..)) && map.range(..from).eq(twin.range(..from)));
                    let (of, to) = ((Bound::Excluded(from), Bound::Included(from + 90)), from + 90);
                    assert!(map.range(of).eq(twin.range(of)), "{from}");
                    assert!(map.range(from..to).rev().eq(twin.range(from..to).rev()));
                    assert_eq!(map.range(&from..).next_back(), twin.last_key_value().filter(|(key, _)| **key >= from));
                }
            }
        }
    }

    #[test]
    fn what_comes_in_order_fills_leaves() {
        let mut map = Map::default();
        (0..6_400).for_each(|n| map.insert(n, ()));
        assert_eq!(map.leaves.len(), 100);
        (0..6_400).for_each(|n| _ = map.remove(&n));
        assert!(map.is_empty() && map.leaves.is_empty());
    }
}
