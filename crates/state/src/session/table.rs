//! The brick's memory: an index from key to expiry generation, and one table per generation (SSM 3.3). What a lease
//! ends is found by time alone, never by search; freeing is cut into slices so that no call takes long.
//! It knows neither peers nor placement.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use base::Time;
use base::checksum::Checksum;
use bytes::Bytes;

use super::brick::Standing;
use super::limits::{COPY_BELOW, ENTRY_BYTES, GENERATION, SHARDS, SHRINK_BELOW};
use super::map::{Placement, key_hash};
use super::{Kind, Version};
use crate::hash::FixedMap;

/// A key of a namespace, with the hash that places it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub hash: u64,
    pub namespace: u32,
    pub bytes: Bytes,
}

impl Key {
    pub fn new(namespace: u32, bytes: Bytes) -> Self {
        Self { hash: key_hash(namespace, &bytes), namespace, bytes }
    }

    /// The same on every node, so that a walk over shards means the same everywhere.
    pub fn shard(&self) -> usize {
        (self.hash >> (64 - SHARDS.trailing_zeros())) as usize
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.namespace == other.namespace && self.bytes == other.bytes
    }
}
impl Eq for Key {}
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub bytes: Bytes,
    pub kind: Kind,
    pub sum: Checksum,
}

impl Value {
    /// In memory of its own, unless it is most of what it pins anyway.
    pub fn kept(mut self) -> Self {
        if self.bytes.len() < COPY_BELOW {
            self.bytes = Bytes::copy_from_slice(&self.bytes);
        }
        self
    }

    pub fn is_whole(&self) -> bool {
        self.sum.matches(&self.bytes)
    }
}

/// What is known of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub version: Version,
    /// `None`: removed.
    pub value: Option<Value>,
    /// From then on the value is not there any more.
    pub lease_end: Time,
    /// Until then the version is remembered, so that an older one which another brick missed to overwrite cannot come
    /// back. Invariant: never before `lease_end` where there is a value.
    pub keep_end: Time,
    /// What a conditional write replaced, should it be undone. The inner `None`: there was nothing.
    pub before: Option<Box<Option<Entry>>>,
    pub standing: Standing,
    /// By cookie: who was to have it. One of these that restarted is told by the others.
    pub bricks: Option<Box<Placement>>,
}

impl Entry {
    pub fn is_live(&self, now: Time) -> bool {
        self.value.is_some() && self.lease_end > now
    }

    fn bytes(&self) -> u64 {
        let before = match &self.before {
            Some(before) => before.as_ref().as_ref().map_or(0, Entry::bytes),
            None => 0,
        };
        let bricks = self.bricks.as_ref().map_or(0, |_| size_of::<Placement>() as u64);
        ENTRY_BYTES + self.value.as_ref().map_or(0, |v| v.bytes.len() as u64) + before + bricks
    }

    /// The generation in which it is filed: that of its next change by time alone.
    fn slot(&self) -> u64 {
        let end = if self.value.is_some() { self.lease_end } else { self.keep_end };
        end.0.div_ceil(GENERATION.0)
    }
}

pub(super) struct Table {
    /// Invariant: names the generation that holds the key's entry, for every key of every generation.
    index: Vec<FixedMap<Key, u64>>,
    /// Invariant: none is empty.
    generations: BTreeMap<u64, FixedMap<Key, Entry>>,
    bytes: u64,
    len: u64,
}

impl Table {
    pub fn new() -> Self {
        let index = (0..SHARDS).map(|_| FixedMap::default()).collect();
        Self { index, generations: BTreeMap::new(), bytes: 0, len: 0 }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        let slot = self.index[key.shard()].get(key)?;
        self.generations.get(slot)?.get(key)
    }

    /// Files an entry; what was there is freed at once and handed back.
    pub fn put(&mut self, key: &Key, entry: Entry) -> Option<Entry> {
        let slot = entry.slot();
        let shard = &mut self.index[key.shard()];
        let (key, old_slot) = match shard.get_key_value(key) {
            Some((have, slot)) => (have.clone(), Some(*slot)),
            None => (Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key }, None),
        };
        self.bytes += entry.bytes() + key.bytes.len() as u64;
        self.len += 1;
        if old_slot != Some(slot) {
            shard.insert(key.clone(), slot);
        }
        let mut old = None;
        if let Some(old_slot) = old_slot
            && old_slot != slot
        {
            old = self.unfile(old_slot, &key);
        }
        let key_bytes = key.bytes.len() as u64;
        let replaced = self.generations.entry(slot).or_default().insert(key, entry);
        let old = old.or(replaced);
        if let Some(old) = &old {
            self.bytes -= old.bytes() + key_bytes;
            self.len -= 1;
        }
        old
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let slot = self.unindex(key)?;
        let old = self.unfile(slot, key)?;
        self.bytes -= old.bytes() + key.bytes.len() as u64;
        self.len -= 1;
        Some(old)
    }

    /// Takes a key out of the index; a shard that has become far too large gives memory back.
    fn unindex(&mut self, key: &Key) -> Option<u64> {
        let shard = &mut self.index[key.shard()];
        let slot = shard.remove(key)?;
        if shard.capacity() > SHRINK_BELOW * (shard.len() + 1) {
            shard.shrink_to(2 * shard.len());
        }
        Some(slot)
    }

    fn unfile(&mut self, slot: u64, key: &Key) -> Option<Entry> {
        let generation = self.generations.get_mut(&slot)?;
        let old = generation.remove(key);
        if generation.is_empty() {
            self.generations.remove(&slot);
        }
        old
    }

    /// The moment the oldest generation ends.
    pub fn first_end(&self) -> Option<Time> {
        self.generations.keys().next().map(|slot| Time(slot.saturating_mul(GENERATION.0)))
    }

    /// Frees up to `most` entries of generations that have ended. What must be remembered stays as a mere version.
    /// True if there is more to free.
    pub fn expire(&mut self, now: Time, most: usize) -> bool {
        let mut left = most;
        while left > 0 {
            let Some(mut first) =
                self.generations.first_entry().filter(|g| g.key().saturating_mul(GENERATION.0) <= now.0)
            else {
                return false;
            };
            let ended: Vec<(Key, Entry)> = first.get_mut().extract_if(|_, _| true).take(left).collect();
            if first.get().is_empty() {
                first.remove();
            }
            left -= ended.len();
            for (key, mut entry) in ended {
                self.bytes -= entry.bytes() + key.bytes.len() as u64;
                self.len -= 1;
                self.unindex(&key);
                if entry.keep_end > now {
                    entry.value = None;
                    entry.before = None;
                    self.put(&key, entry);
                }
            }
        }
        self.first_end().is_some_and(|end| end <= now)
    }

    /// Keys of one shard, in order.
    pub fn shard(&self, shard: usize) -> Vec<(&Key, &Entry)> {
        let mut keys: Vec<_> = self.index[shard]
            .iter()
            .filter_map(|(key, slot)| Some((key, self.generations.get(slot)?.get(key)?)))
            .collect();
        keys.sort_unstable_by(|(a, _), (b, _)| (a.namespace, &a.bytes).cmp(&(b.namespace, &b.bytes)));
        keys
    }

    pub fn shard_is_empty(&self, shard: usize) -> bool {
        self.index[shard].is_empty()
    }

    /// Flips a bit of a stored value, as failing memory would. False if there is no such value.
    pub fn flip_bit(&mut self, key: &Key) -> bool {
        let Some(slot) = self.index[key.shard()].get(key) else { return false };
        let entry = self.generations.get_mut(slot).and_then(|generation| generation.get_mut(key));
        let Some(value) = entry.and_then(|entry| entry.value.as_mut()) else { return false };
        let mut bytes = value.bytes.to_vec();
        let Some(first) = bytes.first_mut() else { return false };
        *first ^= 1;
        value.bytes = bytes.into();
        true
    }

    /// The first key with a value, from this shard on.
    pub fn first_valued(&self, shard: usize) -> Option<Key> {
        let valued = |shard: usize| {
            self.shard(shard).into_iter().find(|(_, entry)| entry.value.is_some()).map(|(key, _)| key.clone())
        };
        (shard..SHARDS).chain(0..shard).find_map(valued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(len: usize, lease_end: u64, keep_end: u64) -> Entry {
        let bytes = Bytes::from(vec![1; len]);
        let sum = Checksum::of(&bytes);
        Entry {
            version: Version::default(),
            value: Some(Value { bytes, kind: Kind::Text, sum }),
            lease_end: Time(lease_end * 1_000_000),
            keep_end: Time(keep_end * 1_000_000),
            before: None,
            standing: Standing::Plain,
            bricks: None,
        }
    }

    fn key(name: &str) -> Key {
        Key::new(1, Bytes::copy_from_slice(name.as_bytes()))
    }

    #[test]
    fn bytes_are_counted_to_the_last() {
        let mut table = Table::new();
        for round in 0..3 {
            for i in 0..100 {
                table.put(&key(&i.to_string()), entry(round * 10, 100 + i * round as u64, 100 + i * round as u64));
            }
        }
        assert_eq!(table.len(), 100);
        for i in 0..50 {
            assert!(table.remove(&key(&i.to_string())).is_some());
        }
        while table.expire(Time(10_000_000_000), 7) {}
        assert_eq!((table.len(), table.bytes()), (0, 0));
        assert!(table.generations.is_empty() && table.index.iter().all(FixedMap::is_empty));
    }

    #[test]
    fn the_index_gives_its_memory_back() {
        let mut table = Table::new();
        for i in 0..100_000 {
            table.put(&key(&i.to_string()), entry(0, 10, 10));
        }
        let slots = |table: &Table| table.index.iter().map(FixedMap::capacity).sum::<usize>();
        assert!(slots(&table) >= 100_000);
        while table.expire(Time(20_000_000), 1000) {}
        assert!(slots(&table) <= SHARDS * SHRINK_BELOW, "{} slots for nothing", slots(&table));
    }

    #[test]
    fn an_ended_lease_leaves_the_version_for_as_long_as_it_must_be_kept() {
        let mut table = Table::new();
        table.put(&key("a"), entry(1000, 20, 400));
        assert!(!table.expire(Time(19_000_000), 100));
        assert!(table.get(&key("a")).unwrap().value.is_some());
        table.expire(Time(30_000_000), 100);
        assert_eq!(table.get(&key("a")).unwrap().value, None);
        assert!(table.bytes() < 1000);
        table.expire(Time(410_000_000), 100);
        assert_eq!(table.get(&key("a")), None);
    }
}
