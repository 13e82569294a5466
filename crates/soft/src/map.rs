//! An ordered map whose copy is cheap: branches of some dozens of leaves, leaves of some dozens of entries, both shared with copies and
//! copied when changed. A checkpoint of a million cells begins with a copy of some hundred pointers; what is made of it is made elsewhere,
//! later.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Entries of a leaf. A change under a copy copies one leaf and one branch; fewer would make more of them to copy with each copy.
const LEAF_MAX: usize = 64;
/// Leaves of a branch.
const BRANCH_MAX: usize = 64;

type Leaf<K, V> = Vec<(K, V)>;
type Branch<K, V> = BTreeMap<K, Arc<Leaf<K, V>>>;

/// Invariant: neither leaves nor branches are empty; keys of a leaf are sorted, not below its own key in its branch, and below the next
/// leaf's; so are those of a branch.
#[derive(Clone, Debug)]
pub struct Map<K, V> {
    branches: BTreeMap<K, Arc<Branch<K, V>>>,
    len: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self { branches: BTreeMap::new(), len: 0 }
    }
}

/// Where this key is to be, of parts that begin at theirs. Where all begin above it the first one begins at it from now on.
fn part_for<K: Ord + Clone, T: Default>(parts: &mut BTreeMap<K, T>, key: &K) -> K {
    if let Some((first, _)) = parts.range(..=key).next_back() {
        return first.clone();
    }
    let part = parts.pop_first().map(|(_, part)| part).unwrap_or_default();
    parts.insert(key.clone(), part);
    key.clone()
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, branch) = self.branches.range(..=key).next_back()?;
        let (_, leaf) = branch.range(..=key).next_back()?;
        leaf.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &leaf[at].1)
    }

    /// What lies there; if there is nothing, what `fresh` makes lies there then.
    pub fn get_or_insert_with(&mut self, key: &K, fresh: impl FnOnce() -> V) -> &mut V {
        let at = part_for(&mut self.branches, key);
        let branch = Arc::make_mut(self.branches.get_mut(&at).expect("it was just seen"));
        let mut leaf_at = part_for(branch, key);
        let leaf = Arc::make_mut(branch.get_mut(&leaf_at).expect("it was just seen"));
        let mut nth = match leaf.binary_search_by(|(k, _)| k.cmp(key)) {
            Ok(nth) => return self.entry(&at, &leaf_at, nth),
            Err(nth) => nth,
        };
        self.len += 1;
        let entry = (key.clone(), fresh());
        if leaf.len() < LEAF_MAX {
            leaf.insert(nth, entry);
            return self.entry(&at, &leaf_at, nth);
        }
        // What comes in order fills leaves; else there are two half ones.
        let half = if nth == LEAF_MAX { nth } else { LEAF_MAX / 2 };
        let mut upper = Vec::with_capacity(LEAF_MAX);
        upper.extend(leaf.drain(half..));
        let is_upper = nth >= half;
        if is_upper {
            nth -= half;
            upper.insert(nth, entry);
        } else {
            leaf.insert(nth, entry);
        }
        let second = upper[0].0.clone();
        branch.insert(second.clone(), Arc::new(upper));
        if is_upper {
            leaf_at = second.clone();
        }
        if branch.len() <= BRANCH_MAX {
            return self.entry(&at, &leaf_at, nth);
        }
        // So do leaves fill branches.
        let is_last = branch.last_key_value().is_some_and(|(last, _)| *last == second);
        let middle = if is_last { second } else { branch.keys().nth(BRANCH_MAX / 2).expect("there are more").clone() };
        let upper = branch.split_off(&middle);
        let at = if leaf_at < middle { at } else { middle.clone() };
        self.branches.insert(middle, Arc::new(upper));
        self.entry(&at, &leaf_at, nth)
    }

    fn entry(&mut self, branch: &K, leaf: &K, nth: usize) -> &mut V {
        let branch = Arc::make_mut(self.branches.get_mut(branch).expect("there is such a branch"));
        &mut Arc::make_mut(branch.get_mut(leaf).expect("there is such a leaf"))[nth].1
    }

    pub fn insert(&mut self, key: K, value: V) {
        let mut value = Some(value);
        let there = self.get_or_insert_with(&key, || value.take().expect("it is made once"));
        if let Some(value) = value {
            *there = value;
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.get(key)?;
        let (at, branch) = self.branches.range_mut(..=key).next_back()?;
        let branch = Arc::make_mut(branch);
        let (leaf_at, leaf) = branch.range_mut(..=key).next_back()?;
        let leaf = Arc::make_mut(leaf);
        let nth = leaf.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        let (_, value) = leaf.remove(nth);
        self.len -= 1;
        if leaf.is_empty() {
            let (at, leaf_at) = (at.clone(), leaf_at.clone());
            branch.remove(&leaf_at);
            if branch.is_empty() {
                self.branches.remove(&at);
            }
        }
        Some(value)
    }

    /// Entries in order of their keys, from either end.
    pub fn range<R>(&self, of: R) -> impl DoubleEndedIterator<Item = (&K, &V)> + use<'_, R, K, V>
    where
        R: RangeBounds<K> + Clone,
    {
        let branches = self.branches.range((begin(&self.branches, &of), of.end_bound()));
        branches.flat_map(move |(_, branch)| {
            let of = of.clone();
            let leaves = branch.range((begin(branch, &of), of.end_bound()));
            leaves.flat_map(move |(_, leaf)| {
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
                leaf[from..to.max(from)].iter().map(|(key, value)| (key, value))
            })
        })
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.range(..)
    }
}

/// The part that may have the first of these begins at or before it.
fn begin<'a, K: Ord, T>(parts: &'a BTreeMap<K, T>, of: &impl RangeBounds<K>) -> Bound<&'a K> {
    let first = match of.start_bound() {
        Bound::Included(key) | Bound::Excluded(key) => parts.range(..=key).next_back(),
        Bound::Unbounded => None,
    };
    first.map_or(Bound::Unbounded, |(first, _)| Bound::Included(first))
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
        for seed in 0..4 {
            let mut rng = Rng::new(seed);
            let (mut map, mut twin) = (Map::default(), BTreeMap::new());
            let mut kept = None;
            for n in 0..30_000u64 {
                // Some come in order.
                let key = if n % 3 == 0 { 5_000 + n / 3 } else { rng.below(7_000) };
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
                if n == 15_000 {
                    kept = Some((map.clone(), twin.clone()));
                }
            }
            let (old, old_twin) = kept.unwrap();
            for (map, twin) in [(&map, &twin), (&old, &old_twin)] {
                assert_eq!((map.len(), map.is_empty()), (twin.len(), twin.is_empty()));
                assert!(map.iter().eq(twin) && map.keys().rev().eq(twin.keys().rev()));
                let leaves = || map.branches.values().flat_map(|branch| branch.values());
                assert!(leaves().all(|leaf| !leaf.is_empty() && leaf.len() <= LEAF_MAX));
                assert!(map.branches.values().all(|branch| !branch.is_empty() && branch.len() <= BRANCH_MAX));
                for from in [0, 3, 64, 3_500, 6_990, 50_000] {
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
    fn what_comes_in_order_fills_leaves_and_branches() {
        let mut map = Map::default();
        (0..640_000).for_each(|n| map.insert(n, ()));
        assert_eq!(map.branches.len(), 10_000usize.div_ceil(BRANCH_MAX));
        (0..640_000).for_each(|n| _ = map.remove(&n));
        assert!(map.is_empty() && map.branches.is_empty());
    }
}
