//! A hash: fields and their values, and when fields end that do. Ends are by the group's clock, as those of keys: a field whose end is not
//! after the clock is not there for anybody, at every replica at the same entry, and is taken out soon after (`space.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use super::value::ITEM_BYTES;

#[derive(Clone, Default, PartialEq, Debug)]
pub struct Hash {
    fields: BTreeMap<Bytes, Bytes>,
    /// Ends of those that have one, by the group's clock in milliseconds.
    ends: BTreeMap<Bytes, u64>,
    /// Invariant: the same ends, the next one first; each is of a field that is there.
    by_end: BTreeSet<(u64, Bytes)>,
    /// Bytes of all, [`ITEM_BYTES`] for each field, and as many for each end.
    bytes: usize,
}

/// A hash as it is at a moment of the group's clock.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    hash: &'a Hash,
    clock: u64,
}

impl Hash {
    pub fn at(&self, clock: u64) -> Fields<'_> {
        Fields { hash: self, clock }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing in it, not even what has ended.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Has some field an end?
    pub fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// When the next field ends, or has ended that is still in it; 0: none does.
    pub fn next_end(&self) -> u64 {
        self.by_end.first().map_or(0, |(end, _)| *end)
    }

    /// All that is in it has ended.
    pub fn is_over(&self, clock: u64) -> bool {
        self.ends.len() == self.fields.len() && self.by_end.last().is_some_and(|(end, _)| *end <= clock)
    }

    /// All fields with their ends (0: none), those included that have ended.
    pub fn all(&self) -> impl Iterator<Item = (&Bytes, &Bytes, u64)> {
        self.fields.iter().map(|(field, value)| (field, value, self.ends.get(field).copied().unwrap_or(0)))
    }

    fn has_ended(&self, field: &[u8], clock: u64) -> bool {
        !self.ends.is_empty() && self.ends.get(field).is_some_and(|end| *end <= clock)
    }

    /// Sets a field, which does not end then; true if it is new.
    pub fn set(&mut self, field: &Bytes, value: Bytes, clock: u64) -> bool {
        let is_new = self.put(field, value, clock);
        self.forget_end(field);
        is_new
    }

    /// Sets a field, which ends when it did; true if it is new.
    pub fn set_keeping_end(&mut self, field: &Bytes, value: Bytes, clock: u64) -> bool {
        let is_new = self.put(field, value, clock);
        if is_new {
            self.forget_end(field);
        }
        is_new
    }

    fn put(&mut self, field: &Bytes, value: Bytes, clock: u64) -> bool {
        let had_ended = self.has_ended(field, clock);
        self.bytes += value.len();
        match self.fields.insert(field.clone(), value) {
            Some(old) => self.bytes -= old.len(),
            None => {
                self.bytes += field.len() + ITEM_BYTES;
                return true;
            }
        }
        had_ended
    }

    /// Takes a field out; none if it is not there, or has ended.
    pub fn remove(&mut self, field: &[u8], clock: u64) -> Option<Bytes> {
        if self.has_ended(field, clock) {
            return None;
        }
        self.take(field)
    }

    fn take(&mut self, field: &[u8]) -> Option<Bytes> {
        self.forget_end(field);
        let value = self.fields.remove(field)?;
        self.bytes -= field.len() + value.len() + ITEM_BYTES;
        Some(value)
    }

    /// A field that is there ends then; 0: it does not end.
    pub fn set_end(&mut self, field: &[u8], end: u64) {
        self.forget_end(field);
        let Some((field, _)) = self.fields.get_key_value(field).filter(|_| end != 0) else { return };
        self.ends.insert(field.clone(), end);
        self.by_end.insert((end, field.clone()));
        self.bytes += ITEM_BYTES;
    }

    fn forget_end(&mut self, field: &[u8]) {
        if self.ends.is_empty() {
            return;
        }
        if let Some((field, end)) = self.ends.remove_entry(field) {
            self.by_end.remove(&(end, field));
            self.bytes -= ITEM_BYTES;
        }
    }

    /// Takes out fields that have ended, so many at most, the oldest first; how many.
    pub fn drop_ended(&mut self, clock: u64, most: usize) -> usize {
        let mut gone = 0;
        while gone < most
            && let Some((end, field)) = self.by_end.first()
            && *end <= clock
        {
            let field = field.clone();
            self.take(&field);
            gone += 1;
        }
        gone
    }
}

impl FromIterator<(Bytes, Bytes)> for Hash {
    fn from_iter<T: IntoIterator<Item = (Bytes, Bytes)>>(pairs: T) -> Self {
        let fields: BTreeMap<Bytes, Bytes> = pairs.into_iter().collect();
        let bytes = fields.iter().map(|(field, value)| field.len() + value.len() + ITEM_BYTES).sum();
        Self { fields, bytes, ..Self::default() }
    }
}

impl<const N: usize> From<[(Bytes, Bytes); N]> for Hash {
    fn from(pairs: [(Bytes, Bytes); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl<'a> Fields<'a> {
    fn is_there(self, field: &[u8]) -> bool {
        !self.hash.has_ended(field, self.clock)
    }

    pub fn get(self, field: &[u8]) -> Option<&'a Bytes> {
        self.hash.fields.get(field).filter(|_| self.is_there(field))
    }

    pub fn has(self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// When a field that is there ends; 0: it does not.
    pub fn end(self, field: &[u8]) -> Option<u64> {
        self.get(field).map(|_| self.hash.ends.get(field).copied().unwrap_or(0))
    }

    /// With their ends (0: none).
    pub fn with_ends(self) -> impl Iterator<Item = (&'a Bytes, &'a Bytes, u64)> {
        self.hash.all().filter(move |(_, _, end)| *end == 0 || *end > self.clock)
    }

    pub fn len(self) -> usize {
        let ended = self.hash.by_end.iter().take_while(|(end, _)| *end <= self.clock).count();
        self.hash.fields.len() - ended
    }

    pub fn iter(self) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        self.hash.fields.iter().filter(move |(field, _)| self.is_there(field))
    }

    /// From a field on, in order.
    pub fn from(self, from: Bound<&[u8]>) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> + use<'a> {
        let all = self.hash.fields.range::<[u8], _>((from, Bound::Unbounded));
        all.filter(move |(field, _)| self.is_there(field))
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// The dumb twin keeps a list of fields with their ends, and looks through all of it.
    #[test]
    fn what_has_ended_is_not_there_and_the_rest_is_as_in_a_list() {
        type Twin = BTreeMap<Bytes, (Bytes, u64)>;
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut hash, mut twin, mut clock) = (Hash::default(), Twin::new(), 1);
            for n in 0..600 {
                let field = Bytes::from(format!("f{}", rng.below(20)));
                let value = Bytes::from(format!("{n}"));
                twin.retain(|_, (_, end)| *end == 0 || *end > clock);
                let is_there = twin.contains_key(&field);
                match rng.below(7) {
                    0 | 1 => {
                        assert_eq!(hash.set(&field, value.clone(), clock), !is_there);
                        twin.insert(field.clone(), (value, 0));
                    }
                    2 => {
                        assert_eq!(hash.set_keeping_end(&field, value.clone(), clock), !is_there);
                        let end = twin.get(&field).map_or(0, |(_, end)| *end);
                        twin.insert(field.clone(), (value, end));
                    }
                    3 => {
                        let end = rng.below(2) * (clock + 1 + rng.below(30));
                        if let Some((_, old)) = twin.get_mut(&field) {
                            *old = end;
                            hash.set_end(&field, end);
                        }
                    }
                    4 => {
                        assert_eq!(hash.remove(&field, clock), twin.remove(&field).map(|(value, _)| value));
                    }
                    5 => clock += rng.below(6),
                    _ => {
                        let most = rng.below(3) as usize;
                        assert!(hash.drop_ended(clock, most) <= most);
                    }
                }
                twin.retain(|_, (_, end)| *end == 0 || *end > clock);
                let now = hash.at(clock);
                assert_eq!(now.len(), twin.len());
                assert!(now.iter().eq(twin.iter().map(|(field, (value, _))| (field, value))));
                let behind = now.from(Bound::Excluded(&field[..]));
                assert!(behind.map(|(name, _)| name).eq(twin.keys().filter(|name| **name > field)));
                assert_eq!(now.end(&field), twin.get(&field).map(|(_, end)| *end));
                assert_eq!(hash.is_over(clock), !hash.is_empty() && twin.is_empty());
                let bytes = |(field, value, end): (&Bytes, &Bytes, u64)| {
                    field.len() + value.len() + ITEM_BYTES * (1 + usize::from(end != 0))
                };
                assert_eq!(hash.bytes(), hash.all().map(bytes).sum::<usize>());
                let ends = hash.all().map(|(_, _, end)| end).filter(|end| *end != 0);
                assert_eq!(hash.next_end(), ends.min().unwrap_or(0));
            }
            hash.drop_ended(u64::MAX, usize::MAX);
            assert!(!hash.has_ends() && hash.all().count() == twin.values().filter(|(_, end)| *end == 0).count());
        }
    }
}
