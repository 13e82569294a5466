//! A map that knows how much memory it has taken, and gives back what it does not need. What lies behind its keys and values is
//! their owner's to count.

use std::hash::Hash;

use super::limits::SHRINK_BELOW;
use base::hash::FixedMap;

pub(super) struct Counted<K, V> {
    map: FixedMap<K, V>,
    /// The most capacity it showed since it last gave some back. (What it shows now may be less, where removed items left marks.)
    capacity: usize,
}

impl<K, V> Default for Counted<K, V> {
    fn default() -> Self {
        Self { map: FixedMap::default(), capacity: 0 }
    }
}

impl<K: Eq + Hash, V> Counted<K, V> {
    /// Memory of the table itself.
    pub fn bytes(&self) -> u64 {
        table_bytes::<(K, V)>(self.capacity)
    }

    /// So much more it takes if one more item comes.
    pub fn growth(&self) -> u64 {
        // Marks of removed items may make it full before its time: with more of them than items it cleans up where it is.
        let is_full = self.map.len() == self.map.capacity() && self.map.len() + 1 > self.capacity / 2;
        if is_full { table_bytes::<(K, V)>(self.capacity + 1) - self.bytes() } else { 0 }
    }

    pub fn map(&self) -> &FixedMap<K, V> {
        &self.map
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.map.insert(key, value);
        self.capacity = self.capacity.max(self.map.capacity());
        before
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let removed = self.map.remove(key);
        self.give_back();
        removed
    }

    /// Takes out up to so many items, whichever.
    pub fn take_some(&mut self, most: usize) -> Vec<(K, V)> {
        let taken = self.map.extract_if(|_, _| true).take(most).collect();
        self.give_back();
        taken
    }

    fn give_back(&mut self) {
        if self.map.is_empty() {
            *self = Self::default();
        } else if self.capacity > SHRINK_BELOW * (self.map.len() + 1) {
            self.map.shrink_to(2 * self.map.len());
            self.capacity = self.map.capacity();
        }
    }
}

/// What a table of the standard library takes that has room for so many items: slots are a power of two, of which seven of eight
/// are used, and each has a byte beside it.
fn table_bytes<Item>(capacity: usize) -> u64 {
    let slots = match capacity {
        0 => return 0,
        1..8 => (capacity + 1).next_power_of_two().max(4),
        _ => (capacity * 8).div_ceil(7).next_power_of_two(),
    };
    (slots * (size_of::<Item>() + 1) + GROUP_BYTES) as u64
}

/// The bytes beside the slots are looked at in groups of so many; the first group stands at the end once more.
const GROUP_BYTES: usize = 16;
