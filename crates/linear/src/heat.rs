//! Which keys a member's commands are for most. A Space-Saving sketch (Metwally, Agrawal and El Abbadi 2005): with so
//! many slots, a key that gets more than one in [`SLOTS`] of all commands is in it for sure, and what is counted too much
//! is known. It begins anew every few seconds, so it shows what is, not what was.

use base::Time;
use base::checksum::place_hash;
use bytes::Bytes;

use super::limits::{HEAT_SPAN, HOT_MIN, HOT_SHOWN};

/// Keys that are counted at a time.
const SLOTS: usize = 32;
/// Of a long key so many bytes are shown.
pub const KEY_SHOWN_BYTES: usize = 64;

#[derive(Default)]
pub struct Heat {
    began: Time,
    /// Of each slot: the hash of its key, and how many commands were for it. Apart, as each key is looked for among all.
    hashes: Vec<u64>,
    counts: Vec<u64>,
    slots: Vec<Slot>,
    /// What the last span showed, the hottest first.
    shown: Vec<Hot>,
}

struct Slot {
    key: Vec<u8>,
    /// How many of them may have been for keys that had the slot before.
    over: u64,
}

/// A key that gets many commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hot {
    pub hash: u64,
    /// Its first bytes.
    pub key: Bytes,
    /// Commands a second, at least.
    pub rate: u64,
}

/// A hot key as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    /// Its first bytes.
    pub key: Bytes,
    /// Commands a second, at least.
    pub rate: u64,
    /// Commands that wait for their turn, or for a change of it.
    pub waiters: u64,
}

impl Heat {
    pub fn count(&mut self, now: Time, key: &[u8]) {
        self.turn(now);
        let hash = place_hash(key);
        if let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            self.counts[at] += 1;
            return;
        }
        // A copy: the key may lie in a frame of megabytes.
        let shown = &key[..key.len().min(KEY_SHOWN_BYTES)];
        if self.slots.len() < SLOTS {
            self.hashes.push(hash);
            self.counts.push(1);
            return self.slots.push(Slot { key: shown.to_vec(), over: 0 });
        }
        let least = self.counts.iter().copied().min().unwrap_or(0);
        let at = self.counts.iter().position(|count| *count == least).unwrap_or(0);
        (self.hashes[at], self.counts[at]) = (hash, least + 1);
        let slot = &mut self.slots[at];
        slot.over = least;
        slot.key.clear();
        slot.key.extend_from_slice(shown);
    }

    /// Ends the span if it is over.
    fn turn(&mut self, now: Time) {
        let span = now.since(self.began);
        if span < HEAT_SPAN {
            return;
        }
        let mut shown: Vec<Hot> = Vec::new();
        // Nobody came for a while: it is not known how the commands lie in that time.
        if span < HEAT_SPAN.times(2) {
            let counted = self.hashes.iter().zip(&self.counts).zip(self.slots.drain(..));
            shown.extend(counted.map(|((hash, count), Slot { key, over })| {
                let rate = (count - over) * 1_000_000 / span.0.max(1);
                Hot { rate, hash: *hash, key: key.into() }
            }));
            shown.retain(|hot| hot.rate >= HOT_MIN);
            shown.sort_by(|a, b| b.rate.cmp(&a.rate).then_with(|| a.key.cmp(&b.key)));
            shown.truncate(HOT_SHOWN);
        }
        self.slots.clear();
        self.hashes.clear();
        self.counts.clear();
        (self.began, self.shown) = (now, shown);
    }

    /// The keys that are hot now, the hottest first.
    pub fn hot(&self, now: Time) -> &[Hot] {
        if now.since(self.began) < HEAT_SPAN.times(2) { &self.shown } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, Span};

    use super::*;

    fn names(heat: &Heat, now: Time) -> Vec<&[u8]> {
        heat.hot(now).iter().map(|hot| hot.key.as_ref()).collect()
    }

    #[test]
    fn two_hot_keys_are_found_among_very_many_others() {
        let (mut heat, mut rng, mut now) = (Heat::default(), Rng::new(1), Time(5_000_000));
        heat.count(now, b"x");
        for nth in 0..200_000u64 {
            now = now + Span::micros(20);
            match rng.below(10) {
                0 | 1 => heat.count(now, b"hottest"),
                2 => heat.count(now, b"hot"),
                _ => heat.count(now, format!("key-{}", nth * 31 % 50_000).as_bytes()),
            }
        }
        assert_eq!(names(&heat, now), [&b"hottest"[..], b"hot"]);
        // 50,000 commands a second: a fifth and a tenth of them, and never more.
        let rates: Vec<u64> = heat.hot(now).iter().map(|hot| hot.rate).collect();
        assert!((8_000..=10_300).contains(&rates[0]) && (3_000..=5_200).contains(&rates[1]), "{rates:?}");
        assert!(heat.slots.len() <= SLOTS);
    }

    #[test]
    fn what_was_hot_is_not_shown_when_it_has_cooled() {
        let (mut heat, mut now) = (Heat::default(), Time(5_000_000));
        for _ in 0..5_000 {
            now = now + Span::millis(1);
            heat.count(now, b"hot");
        }
        assert_eq!(names(&heat, now), [b"hot"]);
        assert!(names(&heat, now + HEAT_SPAN.times(2)).is_empty(), "nothing came since");
        for _ in 0..100 {
            now = now + Span::millis(100);
            heat.count(now, b"hot");
        }
        assert!(names(&heat, now).is_empty(), "ten a second are not hot");
    }

    #[test]
    fn of_a_long_key_only_its_beginning_is_kept() {
        let (mut heat, mut now) = (Heat::default(), Time(5_000_000));
        for _ in 0..5_000 {
            now = now + Span::millis(1);
            heat.count(now, &[b'k'; 60_000]);
        }
        assert_eq!(heat.hot(now)[0].key.len(), KEY_SHOWN_BYTES);
    }
}
