//! The brick's memory: an index from key to expiry generation, and one table per generation (SSM 3.3). What a lease
//! ends is found by time alone, never by search; freeing is cut into slices so that no call takes long.
//! It knows neither peers nor placement.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use base::Time;
use base::checksum::Checksum;
use bytes::Bytes;
use class::Used;
use class::limits::KEY_BYTES;

use super::brick::Standing;
use super::counted::Counted;
use super::limits::{COPY_BELOW, GENERATION, HANDLE_BYTES, SHARDS};
use super::map::{Placement, key_hash};
use super::{Kind, Version};

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

    /// Memory that lies behind it.
    fn bytes(&self) -> u64 {
        let before = match &self.before {
            Some(before) => size_of::<Option<Entry>>() as u64 + before.as_ref().as_ref().map_or(0, Entry::bytes),
            None => 0,
        };
        let bricks = self.bricks.as_ref().map_or(0, |_| size_of::<Placement>() as u64);
        self.value.as_ref().map_or(0, |value| handle_bytes(value.bytes.len())) + before + bricks
    }

    /// The generation in which it is filed: that of its next change by time alone.
    fn slot(&self) -> u64 {
        slot_of(if self.value.is_some() { self.lease_end } else { self.keep_end })
    }
}

fn slot_of(end: Time) -> u64 {
    end.0.div_ceil(GENERATION.0)
}

/// Memory behind a handle to so many bytes of its own, once there was a second handle.
fn handle_bytes(len: usize) -> u64 {
    if len == 0 { 0 } else { len as u64 + HANDLE_BYTES }
}

/// What a value counts for its namespace.
pub(super) fn used_by(key: &Key, len: usize) -> Used {
    Used { bytes: (key.bytes.len() + len) as u64 + KEY_BYTES, keys: 1 }
}

pub(super) struct Table {
    /// Invariant: names the generation that holds the key's entry, for every key of every generation.
    index: Vec<Counted<Key, u64>>,
    /// Invariant: none is empty.
    generations: BTreeMap<u64, Counted<Key, Entry>>,
    /// Invariant: what both of these and all that is behind them take, beside the empty index.
    bytes: u64,
    len: u64,
    /// Entries with a value, and the bytes of their keys and values, by namespace. Invariant: none has no key.
    used: BTreeMap<u32, Used>,
}

impl Table {
    pub fn new() -> Self {
        let index = (0..SHARDS).map(|_| Counted::default()).collect();
        Self { index, generations: BTreeMap::new(), bytes: 0, len: 0, used: BTreeMap::new() }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        let slot = self.index[key.shard()].map().get(key)?;
        self.generations.get(slot)?.map().get(key)
    }

    /// The key as it is kept here, which pins no memory but its own.
    pub fn kept_key(&self, key: &Key) -> Option<&Key> {
        self.index[key.shard()].map().get_key_value(key).map(|(key, _)| key)
    }

    /// Values of a namespace and their bytes, those among them that ended a moment ago.
    pub fn used(&self, namespace: u32) -> Used {
        self.used.get(&namespace).copied().unwrap_or_default()
    }

    /// So much more memory a value takes that ends then, beside that of what it replaces.
    pub fn growth(&self, key: &Key, len: usize, end: Time) -> u64 {
        let index = &self.index[key.shard()];
        let (slot, had) = (slot_of(end), index.map().get(key));
        let of_key = if had.is_some() { 0 } else { index.growth() + handle_bytes(key.bytes.len()) };
        let generation = self.generations.get(&slot);
        let of_entry = match had {
            Some(had) if *had == slot => 0,
            _ => generation.map_or_else(|| Counted::<Key, Entry>::default().growth(), Counted::growth),
        };
        handle_bytes(len) + of_key + of_entry
    }

    /// Files an entry; what was there is freed at once and handed back.
    pub fn put(&mut self, key: &Key, entry: Entry) -> Option<Entry> {
        let slot = entry.slot();
        let shard = &mut self.index[key.shard()];
        let (key, old_slot) = match shard.map().get_key_value(key) {
            Some((have, slot)) => (have.clone(), Some(*slot)),
            None => (Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key }, None),
        };
        let mut old = None;
        match old_slot {
            Some(old_slot) if old_slot != slot => {
                *shard.get_mut(&key).expect("just seen") = slot;
                old = self.unfile(old_slot, &key);
            }
            Some(_) => (),
            None => {
                let before = shard.bytes();
                shard.insert(key.clone(), slot);
                self.bytes += shard.bytes() - before + handle_bytes(key.bytes.len());
            }
        }
        self.counts(&key, &entry);
        let generation = self.generations.entry(slot).or_default();
        let before = generation.bytes();
        // Another handle to the same bytes.
        let its = key.clone();
        let replaced = generation.insert(key, entry);
        self.bytes += generation.bytes() - before;
        if let Some(replaced) = &replaced {
            self.counts_no_more(&its, replaced);
        }
        old.or(replaced)
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let slot = self.unindex(key)?;
        self.unfile(slot, key)
    }

    fn counts(&mut self, key: &Key, entry: &Entry) {
        self.bytes += entry.bytes();
        self.len += 1;
        if let Some(value) = &entry.value {
            let used = self.used.entry(key.namespace).or_default();
            *used = *used + used_by(key, value.bytes.len());
        }
    }

    fn counts_no_more(&mut self, key: &Key, entry: &Entry) {
        self.bytes -= entry.bytes();
        self.len -= 1;
        if let Some(value) = &entry.value
            && let Some(used) = self.used.get_mut(&key.namespace)
        {
            used.bytes -= used_by(key, value.bytes.len()).bytes;
            used.keys -= 1;
            if used.keys == 0 {
                self.used.remove(&key.namespace);
            }
        }
    }

    /// Takes a key out of the index.
    fn unindex(&mut self, key: &Key) -> Option<u64> {
        let shard = &mut self.index[key.shard()];
        let before = shard.bytes();
        let slot = shard.remove(key)?;
        self.bytes -= before - shard.bytes() + handle_bytes(key.bytes.len());
        Some(slot)
    }

    fn unfile(&mut self, slot: u64, key: &Key) -> Option<Entry> {
        let generation = self.generations.get_mut(&slot)?;
        let before = generation.bytes();
        let old = generation.remove(key);
        self.bytes -= before - generation.bytes();
        if generation.map().is_empty() {
            self.generations.remove(&slot);
        }
        if let Some(old) = &old {
            self.counts_no_more(key, old);
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
            let before = first.get().bytes();
            let ended = first.get_mut().take_some(left);
            self.bytes -= before - first.get().bytes();
            if first.get().map().is_empty() {
                first.remove();
            }
            left -= ended.len();
            for (key, mut entry) in ended {
                self.counts_no_more(&key, &entry);
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
            .map()
            .iter()
            .filter_map(|(key, slot)| Some((key, self.generations.get(slot)?.map().get(key)?)))
            .collect();
        keys.sort_unstable_by(|(a, _), (b, _)| (a.namespace, &a.bytes).cmp(&(b.namespace, &b.bytes)));
        keys
    }

    pub fn shard_is_empty(&self, shard: usize) -> bool {
        self.index[shard].map().is_empty()
    }

    /// Flips a bit of a stored value, as failing memory would. False if there is no such value.
    pub fn flip_bit(&mut self, key: &Key) -> bool {
        let Some(slot) = self.index[key.shard()].map().get(key) else { return false };
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
        let bytes = 100 * (20 + KEY_BYTES) + 10 + 2 * 90;
        assert_eq!((table.len(), table.used(1), table.used(2)), (100, Used { bytes, keys: 100 }, Used::default()));
        for i in 0..50 {
            assert!(table.remove(&key(&i.to_string())).is_some());
        }
        while table.expire(Time(10_000_000_000), 7) {}
        assert_eq!((table.len(), table.bytes()), (0, 0));
        assert!(table.generations.is_empty() && table.index.iter().all(|shard| shard.map().is_empty()));
        assert!(table.used.is_empty());
    }

    #[test]
    fn the_index_gives_its_memory_back() {
        let mut table = Table::new();
        for i in 0..100_000 {
            table.put(&key(&i.to_string()), entry(0, 10, 10));
        }
        let slots = |table: &Table| table.index.iter().map(|shard| shard.map().capacity()).sum::<usize>();
        assert!(slots(&table) >= 100_000);
        while table.expire(Time(20_000_000), 1000) {}
        assert_eq!((slots(&table), table.bytes()), (0, 0), "slots for nothing");
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
