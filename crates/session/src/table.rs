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

    /// Its bytes are those that place it.
    fn is_whole(&self) -> bool {
        self.hash == key_hash(self.namespace, &self.bytes)
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

    /// Of all that it consists of, of which key it is, and of where its bytes lie. Nothing behind a pointer is read: these
    /// bytes have their own.
    fn seal(&self, key: &Key) -> Checksum {
        let Self { version, value, lease_end, keep_end, before, standing, bricks } = self;
        let (tag, guard) = match standing {
            Standing::Plain => (0, Version::default()),
            Standing::Open(guard) => (1, *guard),
            Standing::Confirmed => (2, Version::default()),
        };
        let of_value = value.as_ref().map_or([0; 4], |Value { bytes, kind, sum }| {
            [bytes.as_ptr().addr() as u64, bytes.len() as u64, *kind as u64, u64::from(sum.0) + 1]
        });
        let address = |at: Option<usize>| at.unwrap_or(0) as u64;
        let words = [
            key.hash,
            u64::from(key.namespace) << 32 | tag,
            lease_end.0,
            keep_end.0,
            version.ms,
            version.node.0,
            guard.ms,
            guard.node.0,
            u64::from(version.counter) << 32 | u64::from(guard.counter),
            of_value[0],
            of_value[1],
            of_value[2],
            of_value[3],
            address(before.as_deref().map(|before| std::ptr::from_ref(before).addr())),
            address(bricks.as_deref().map(|bricks| std::ptr::from_ref(bricks).addr())),
        ];
        let mut bytes = [0; 15 * 8];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Checksum::of(&bytes)
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

/// An entry as it lies in memory. What stands beside a value decides as much as the value does: a version that a flipped bit
/// has made newer would win against whatever is written later.
struct Filed {
    entry: Entry,
    seal: Checksum,
}

impl Filed {
    fn new(key: &Key, entry: Entry) -> Self {
        let seal = entry.seal(key);
        Self { entry, seal }
    }

    /// The entry, if it is as it was filed. Until that is known no pointer of it is followed.
    fn whole(&self, key: &Key) -> Option<&Entry> {
        (self.seal == self.entry.seal(key)).then_some(&self.entry)
    }
}

pub(super) struct Table {
    /// Invariant: names the generation that holds the key's entry, for every key of every generation.
    index: Vec<Counted<Key, u64>>,
    /// Invariant: none is empty.
    generations: BTreeMap<u64, Counted<Key, Filed>>,
    /// Invariant: what both of these and all that is behind them take, beside the empty index.
    bytes: u64,
    len: u64,
    /// Entries with a value, and the bytes of their keys and values, by namespace. Invariant: none has no key.
    used: BTreeMap<u32, Used>,
    /// Entries that were not as they had been filed, and were let go.
    damaged: u64,
    /// One was let go a moment ago, and what it had counted is among the sums still.
    is_unsure: bool,
}

impl Table {
    pub fn new() -> Self {
        let index = (0..SHARDS).map(|_| Counted::default()).collect();
        Self {
            index,
            generations: BTreeMap::new(),
            bytes: 0,
            len: 0,
            used: BTreeMap::new(),
            damaged: 0,
            is_unsure: false,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// What is known of a key. Not what is damaged: that is as good as unknown, until it is let go.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.filed(key)?.whole(key)
    }

    /// There is an entry, and it is not as it was filed.
    pub fn is_damaged(&self, key: &Key) -> bool {
        self.filed(key).is_some_and(|filed| filed.whole(key).is_none())
    }

    /// Entries that were damaged and let go so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    fn filed(&self, key: &Key) -> Option<&Filed> {
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
            _ => generation.map_or_else(|| Counted::<Key, Filed>::default().growth(), Counted::growth),
        };
        handle_bytes(len) + of_key + of_entry
    }

    /// Files an entry; what was there is freed at once and handed back.
    pub fn put(&mut self, key: &Key, entry: Entry) -> Option<Entry> {
        let old = self.file(key, entry);
        self.count_anew_if_unsure();
        old
    }

    fn file(&mut self, key: &Key, entry: Entry) -> Option<Entry> {
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
        let filed = Filed::new(&key, entry);
        let replaced = generation.insert(key, filed);
        self.bytes += generation.bytes() - before;
        old.or(replaced.and_then(|replaced| self.let_go(&its, replaced)))
    }

    /// Of an entry that was taken out; none if it was damaged. What a damaged one points to may be anybody's and is left as it
    /// is, and how much it counted is not known any more, so all is counted anew.
    fn let_go(&mut self, key: &Key, filed: Filed) -> Option<Entry> {
        if filed.whole(key).is_some() {
            self.counts_no_more(key, &filed.entry);
            return Some(filed.entry);
        }
        std::mem::forget(filed);
        self.damaged += 1;
        self.is_unsure = true;
        None
    }

    fn count_anew_if_unsure(&mut self) {
        if !std::mem::take(&mut self.is_unsure) {
            return;
        }
        let tables = self.generations.values().map(Counted::bytes).chain(self.index.iter().map(Counted::bytes));
        let keys = self.index.iter().flat_map(|shard| shard.map().keys()).map(|key| handle_bytes(key.bytes.len()));
        (self.bytes, self.len) = (tables.chain(keys).sum(), 0);
        self.used.clear();
        let generations = std::mem::take(&mut self.generations);
        for (key, filed) in generations.values().flat_map(|generation| generation.map()) {
            // Another damaged one counts nothing until it is let go as well.
            if let Some(entry) = filed.whole(key) {
                self.counts(key, entry);
            }
        }
        self.generations = generations;
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let slot = self.unindex(key)?;
        let old = self.unfile(slot, key);
        self.count_anew_if_unsure();
        old
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
        self.let_go(key, old?)
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
                break;
            };
            let before = first.get().bytes();
            let ended = first.get_mut().take_some(left);
            self.bytes -= before - first.get().bytes();
            if first.get().map().is_empty() {
                first.remove();
            }
            left -= ended.len();
            for (key, filed) in ended {
                self.unindex(&key);
                if let Some(mut entry) = self.let_go(&key, filed)
                    && entry.keep_end > now
                {
                    entry.value = None;
                    entry.before = None;
                    self.file(&key, entry);
                }
            }
        }
        self.count_anew_if_unsure();
        self.first_end().is_some_and(|end| end <= now)
    }

    /// Keys of one shard, in order; not what is damaged.
    pub fn shard(&self, shard: usize) -> Vec<(&Key, &Entry)> {
        let mut keys: Vec<_> = self.index[shard]
            .map()
            .iter()
            .filter_map(|(key, slot)| {
                let filed = self.generations.get(slot)?.map().get(key)?;
                // A key whose bytes changed is no other key's.
                Some((key, filed.whole(key).filter(|_| key.is_whole())?))
            })
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
        let filed = self.generations.get_mut(slot).and_then(|generation| generation.get_mut(key));
        let Some(filed) = filed else { return false };
        let Some(value) = filed.entry.value.as_mut() else { return false };
        let mut bytes = value.bytes.to_vec();
        let Some(first) = bytes.first_mut() else { return false };
        *first ^= 1;
        value.bytes = bytes.into();
        // The bytes of a real one would not have moved.
        filed.seal = filed.entry.seal(key);
        true
    }

    /// Flips a bit of what stands beside a stored value: one that makes its version newer. False if there is nothing.
    pub fn flip_version(&mut self, key: &Key) -> bool {
        let Some(slot) = self.index[key.shard()].map().get(key) else { return false };
        let filed = self.generations.get_mut(slot).and_then(|generation| generation.get_mut(key));
        filed.is_some_and(|filed| {
            filed.entry.version.ms |= 1 << 45;
            true
        })
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
        let with_value = table.bytes();
        table.expire(Time(30_000_000), 100);
        assert_eq!(table.get(&key("a")).unwrap().value, None);
        assert!(table.bytes() + 1000 <= with_value);
        table.expire(Time(410_000_000), 100);
        assert_eq!(table.get(&key("a")), None);
    }

    #[test]
    fn a_damaged_entry_is_let_go_unread_and_the_rest_is_counted_anew() {
        let ways: [fn(&mut Entry); 6] = [
            |entry| entry.version.ms |= 1 << 45,
            |entry| entry.lease_end = Time(0),
            |entry| entry.standing = Standing::Confirmed,
            |entry| entry.value.as_mut().unwrap().kind = Kind::Hash,
            |entry| entry.value = None,
            // As if the length had changed: counted as it is now, the sums would be wrong.
            |entry| entry.value.as_mut().unwrap().bytes.truncate(1),
        ];
        let of = |names: std::ops::Range<u32>| {
            let mut table = Table::new();
            names.for_each(|name| drop(table.put(&key(&name.to_string()), entry(100, 20, 20))));
            table
        };
        let sums = |table: &Table| (table.bytes(), table.len(), table.used(1));
        for way in ways {
            for let_go in [true, false] {
                let mut table = of(0..10);
                let damaged = key("9");
                let slot = table.index[damaged.shard()].map()[&damaged];
                way(&mut table.generations.get_mut(&slot).unwrap().get_mut(&damaged).unwrap().entry);
                assert_eq!((table.get(&damaged), table.is_damaged(&damaged)), (None, true));
                assert!(!table.shard(damaged.shard()).iter().any(|(key, _)| **key == damaged));
                if let_go {
                    assert_eq!(table.remove(&damaged), None);
                    assert_eq!(sums(&table), sums(&of(0..9)));
                    continue;
                }
                assert_eq!(table.put(&damaged, entry(100, 20, 20)), None);
                assert_eq!((sums(&table), table.damaged()), (sums(&of(0..10)), 1));
                way(&mut table.generations.get_mut(&slot).unwrap().get_mut(&damaged).unwrap().entry);
                while table.expire(Time(30_000_000), 3) {}
                assert_eq!((sums(&table), table.damaged()), ((0, 0, Used::default()), 2));
            }
        }
    }
}
