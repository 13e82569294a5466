//! Keys in the order of places that follow from their bytes alone, for cursors that are numbers (`functions/walk.rs`):
//! any replica, and one that was started again, goes on from the same number. It is made when somebody first walks
//! through the keys, some thousands of them with each page that is asked for, and forgotten when nobody has for a
//! while; it is no part of the state.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::checksum::place_hash;
use bytes::Bytes;

use super::limits::WALK_CURSORS_MAX;
use super::map::Map;

/// Keys of a leaf. A change under a copy copies one leaf.
const LEAF_MAX: usize = 128;
/// Places are 1 to this: behind the last one is the last cursor.
const PLACES: u64 = WALK_CURSORS_MAX - 1;

/// Where a key, or a member of a collection, is in a walk. Several may have one place: they are shown together.
pub fn place_of(name: &[u8]) -> u64 {
    place_hash(name) % PLACES + 1
}

/// A place, and a key that has it.
type Placed = (u64, Bytes);

/// Invariant: those keys of its map that are below `next`, each with its place; all of them without a `next`.
#[derive(Clone)]
pub struct KeyOrder {
    /// By the first of each, or what was: not above it.
    leaves: BTreeMap<Placed, Arc<Vec<Placed>>>,
    next: Option<Bytes>,
}

impl Default for KeyOrder {
    fn default() -> Self {
        Self { leaves: BTreeMap::new(), next: Some(Bytes::new()) }
    }
}

impl KeyOrder {
    pub fn is_whole(&self) -> bool {
        self.next.is_none()
    }

    fn reaches(&self, key: &[u8]) -> bool {
        self.next.as_ref().is_none_or(|next| key < &next[..])
    }

    /// Takes so many more keys of the map in.
    pub fn grow(&mut self, map: &Map, most: usize) {
        let Some(next) = self.next.take() else { return };
        let mut keys = map.from(&next).map(|(key, _)| key);
        for key in keys.by_ref().take(most) {
            self.put(key);
        }
        self.next = keys.next().cloned();
    }

    /// The map has one more.
    pub fn insert(&mut self, key: &Bytes) {
        if self.reaches(key) {
            self.put(key);
        }
    }

    fn put(&mut self, key: &Bytes) {
        let item = (place_of(key), key.clone());
        let Some((_, leaf)) = self.leaves.range_mut(..=&item).next_back() else {
            // One below all others goes into the first, which is known by it from then on.
            let mut first = self.leaves.pop_first().map(|(_, leaf)| leaf).unwrap_or_default();
            Arc::make_mut(&mut first).insert(0, item.clone());
            self.leaves.insert(item.clone(), first);
            return self.cut(&item);
        };
        let leaf = Arc::make_mut(leaf);
        if let Err(at) = leaf.binary_search(&item) {
            leaf.insert(at, item.clone());
        }
        self.cut(&item);
    }

    /// Makes two of the leaf with this, if it is too long.
    fn cut(&mut self, item: &Placed) {
        let Some((_, leaf)) = self.leaves.range_mut(..=item).next_back() else { return };
        if leaf.len() > LEAF_MAX {
            let upper = Arc::make_mut(leaf).split_off(LEAF_MAX / 2);
            self.leaves.insert(upper[0].clone(), Arc::new(upper));
        }
    }

    /// The map has it no more.
    pub fn remove(&mut self, key: &Bytes) {
        if !self.reaches(key) {
            return;
        }
        let item = (place_of(key), key.clone());
        let Some((first, leaf)) = self.leaves.range_mut(..=&item).next_back() else { return };
        let Ok(at) = leaf.binary_search(&item) else { return };
        Arc::make_mut(leaf).remove(at);
        if leaf.is_empty() {
            let first = first.clone();
            self.leaves.remove(&first);
        }
    }

    /// In order, from this place on.
    pub fn from(&self, place: u64) -> impl Iterator<Item = &Placed> {
        let from = (place, Bytes::new());
        // The leaf that may hold it begins at or before it.
        let first = self.leaves.range(..=&from).next_back();
        let after = self.leaves.range((Bound::Excluded(&from), Bound::Unbounded));
        first.into_iter().chain(after).flat_map(|(_, leaf)| leaf.iter()).skip_while(move |(at, _)| *at < place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::{Entry, Value};
    use super::*;
    use base::Rng;
    use std::collections::BTreeSet;

    fn entry() -> Entry {
        Entry { value: Value::Text(Bytes::new()), version: 1, end: 0, size: 0 }
    }

    /// All places of a map, as it walks through them.
    fn walked(map: &Map, from: u64) -> Option<Vec<Placed>> {
        let mut all = Vec::new();
        map.walk(from, 7, |place, key, _| {
            all.push((place, key.clone()));
            true
        })
        .then_some(all)
    }

    #[test]
    fn it_is_made_page_by_page_and_follows_its_map_meanwhile() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut map, mut twin) = (Map::default(), BTreeSet::new());
            let mut was_whole = 0;
            for n in 0..4_000 {
                let key = Bytes::from(format!("{}", rng.below(900)));
                if rng.chance(0.6) {
                    map.insert(key.clone(), entry());
                    twin.insert((place_of(&key), key));
                } else {
                    map.remove(&key);
                    twin.remove(&(place_of(&key), key));
                }
                if n % 20 == 19 {
                    let from = if rng.chance(0.5) { 0 } else { rng.below(PLACES) };
                    if let Some(all) = walked(&map, from) {
                        was_whole += 1;
                        assert!(all.iter().eq(twin.iter().filter(|(place, _)| *place >= from)), "seed {seed}, {n}");
                    }
                }
                if n == 3_000 {
                    let copy = map.clone();
                    let before = walked(&copy, 0);
                    map.insert(Bytes::from_static(b"one more"), entry());
                    assert_eq!(walked(&copy, 0), before, "a copy stays as it was");
                    map.remove(b"one more");
                }
            }
            assert!(was_whole > 50, "seed {seed}: whole {was_whole} times");
            let gone = map.part(|key| key[0] >= b'5');
            for part in [&map, &gone] {
                let all = (0..1_000).find_map(|_| walked(part, 0)).expect("it is made at last");
                assert_eq!(all.len(), part.len());
            }
        }
    }
}
