//! Tombstones about which there is nothing left to do: all nodes have them. A mailbox that is emptied every day has more of these than
//! messages, so they are kept apart, in some tens of bytes each, and never make a node refuse a put: when there are too many the oldest
//! are forgotten before their time. What is asked about one takes it out again (`Table::exhume`), and it is brought back when all is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use class::Version;

use crate::Stamp;
use crate::held::{At, Held};
use crate::limits::{GRAVE_S_LEAST, TOMBSTONE_MS_NEWEST, TOMBSTONE_MS_ONCE};
use crate::names::Slot;

/// Graves that lie side by side in one allocation.
const LEAF: usize = 128;
/// Room for so many is made at a time.
const GROW: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Grave {
    pub slot: Slot,
    pub at: Arc<At>,
    pub version: Version,
    pub serial: u64,
    /// When all was done, by this node's wall clock, in seconds.
    pub since: u32,
    pub once: bool,
}

impl Grave {
    pub fn stamp(&self) -> Stamp {
        Stamp { version: self.version, once: self.once, gone: true, sum: 0, size: 0 }
    }

    pub fn held(&self) -> Held {
        Held::shared(self.stamp(), self.at.clone())
    }
}

/// Sorted by slot, in leaves: a node of a tree for each would be as large again.
#[derive(Default)]
pub(crate) struct Graves {
    /// Under the lowest slot that each had when it was made. Invariant: none is empty.
    leaves: BTreeMap<Slot, Vec<Grave>>,
    len: usize,
    /// How many there are of each second, without `once` and with it.
    ages: [BTreeMap<u32, u32>; 2],
    /// Where they are: how many of each.
    places: BTreeMap<Arc<At>, u64>,
    /// Graves up to this second are forgotten, as there were too many.
    horizon: u32,
    /// Where the last sweep ended.
    swept: Option<Slot>,
}

/// What a sweep did.
#[derive(Default)]
pub(crate) struct Swept {
    pub graves: Vec<Grave>,
    pub looked: usize,
    /// The walk has come round.
    pub is_round: bool,
}

impl Graves {
    pub fn len(&self) -> usize {
        self.len
    }

    fn leaf(&self, slot: Slot) -> Option<Slot> {
        self.leaves.range(..=slot).next_back().or_else(|| self.leaves.first_key_value()).map(|(first, _)| *first)
    }

    pub fn get(&self, slot: Slot) -> Option<&Grave> {
        let leaf = &self.leaves[&self.leaf(slot)?];
        leaf.binary_search_by_key(&slot, |grave| grave.slot).ok().map(|n| &leaf[n])
    }

    /// There is none under its slot.
    pub fn insert(&mut self, grave: Grave) {
        self.len += 1;
        *self.ages[usize::from(grave.once)].entry(grave.since).or_default() += 1;
        *self.places.entry(grave.at.clone()).or_default() += 1;
        let slot = grave.slot;
        let Some(mut first) = self.leaf(slot) else {
            self.leaves.insert(slot, vec![grave]);
            return;
        };
        if slot < first {
            // It is the lowest of all.
            let leaf = self.leaves.remove(&first).expect("it was found");
            self.leaves.insert(slot, leaf);
            first = slot;
        }
        let leaf = self.leaves.get_mut(&first).expect("it was found");
        let at = leaf.partition_point(|other| other.slot < slot);
        if leaf.len() == leaf.capacity() {
            leaf.reserve_exact(GROW);
        }
        leaf.insert(at, grave);
        if leaf.len() > LEAF {
            // What comes in order leaves full ones behind.
            let cut = if at + 1 == leaf.len() { at } else { leaf.len() / 2 };
            let upper = leaf.split_off(cut);
            leaf.shrink_to(leaf.len());
            self.leaves.insert(upper[0].slot, upper);
        }
    }

    pub fn remove(&mut self, slot: Slot) -> Option<Grave> {
        let first = self.leaf(slot)?;
        let leaf = self.leaves.get_mut(&first).expect("it was found");
        let at = leaf.binary_search_by_key(&slot, |grave| grave.slot).ok()?;
        let grave = leaf.remove(at);
        if leaf.is_empty() {
            self.leaves.remove(&first);
        }
        self.is_gone(&grave);
        Some(grave)
    }

    fn is_gone(&mut self, grave: &Grave) {
        self.len -= 1;
        less(&mut self.ages[usize::from(grave.once)], &grave.since);
        less(&mut self.places, &grave.at);
    }

    /// Graves behind a slot, or all, in order.
    pub fn range(&self, after: Option<Slot>) -> impl Iterator<Item = &Grave> {
        let from = after.and_then(|slot| self.leaf(slot)).map_or(Bound::Unbounded, Bound::Included);
        let leaves = self.leaves.range((from, Bound::Unbounded));
        let begins = move |leaf: &&Vec<Grave>| after.is_none_or(|slot| leaf.last().is_none_or(|l| l.slot > slot));
        let skips = move |leaf: &Vec<Grave>| after.map_or(0, |slot| leaf.partition_point(|grave| grave.slot <= slot));
        leaves.map(|(_, leaf)| leaf).filter(begins).flat_map(move |leaf| leaf[skips(leaf)..].iter())
    }

    /// Where some of them are.
    pub fn places(&self) -> impl Iterator<Item = &Arc<At>> {
        self.places.keys()
    }

    /// With more than so many, the oldest are to go.
    pub fn bound(&mut self, most: usize, now_s: u32) {
        let (mut over, mut from) = (self.len.saturating_sub(most), 0);
        while over > 0 {
            let next = self.ages.iter().filter_map(|ages| ages.range(from..).next().map(|(second, _)| *second)).min();
            let Some(second) = next.filter(|second| second.saturating_add(GRAVE_S_LEAST) <= now_s) else { break };
            let count: u32 = self.ages.iter().filter_map(|ages| ages.get(&second)).sum();
            over = over.saturating_sub(count as usize);
            self.horizon = self.horizon.max(second);
            from = second.saturating_add(1);
        }
    }

    /// Some are to go.
    pub fn has_over(&self, now_s: u32) -> bool {
        (0..2).any(|once| self.ages[once].first_key_value().is_some_and(|(s, _)| self.is_over(*s, once == 1, now_s)))
    }

    fn is_over(&self, since: u32, once: bool, now_s: u32) -> bool {
        let kept_s = (if once { TOMBSTONE_MS_ONCE } else { TOMBSTONE_MS_NEWEST }) / 1000;
        since <= self.horizon || u64::from(since) + kept_s < u64::from(now_s)
    }

    /// The next sweep begins at the first one.
    pub fn sweep_anew(&mut self) {
        self.swept = None;
    }

    /// Looks at some, behind those of the last time, and takes out whose time is over, and what `goes` says.
    pub fn sweep(&mut self, count: usize, now_s: u32, goes: impl Fn(&Grave) -> bool) -> Swept {
        let mut swept = Swept::default();
        let mut at = self.swept;
        while swept.looked < count {
            let from = at.map_or(Bound::Unbounded, Bound::Excluded);
            let Some(first) = self.leaves.range((from, Bound::Unbounded)).next().map(|(first, _)| *first) else {
                (at, swept.is_round) = (None, true);
                break;
            };
            let mut leaf = self.leaves.remove(&first).expect("it was found");
            swept.looked += leaf.len();
            let over = |grave: &mut Grave| self.is_over(grave.since, grave.once, now_s) || goes(grave);
            let gone: Vec<Grave> = leaf.extract_if(.., over).collect();
            gone.iter().for_each(|grave| self.is_gone(grave));
            swept.graves.extend(gone);
            at = Some(first);
            // What is left of some becomes one.
            let before = self.leaves.range_mut(..first).next_back().map(|(_, before)| before);
            match before.filter(|before| before.len() + leaf.len() <= LEAF / 4 * 3) {
                Some(before) => {
                    before.reserve_exact(leaf.len());
                    before.append(&mut leaf);
                }
                None if leaf.is_empty() => (),
                None => {
                    leaf.shrink_to(leaf.len() + GROW);
                    self.leaves.insert(first, leaf);
                }
            }
        }
        self.swept = at;
        swept
    }

    /// Takes out some of those that lie at these places, behind a slot: at most so many, and looks at no more than so many. Where it
    /// ended, or none if that was the last.
    pub fn take(
        &mut self,
        needs: &BTreeSet<usize>,
        after: Option<Slot>,
        most: usize,
        looks: usize,
    ) -> (Vec<Grave>, Option<Slot>) {
        let (mut found, mut last, mut looked) = (Vec::new(), after, 0);
        for grave in self.range(after) {
            if looked >= looks || found.len() >= most {
                break;
            }
            looked += 1;
            last = Some(grave.slot);
            if needs.contains(&address(&grave.at)) {
                found.push(grave.slot);
            }
        }
        let is_all = looked < looks && found.len() < most;
        let graves = found.into_iter().filter_map(|slot| self.remove(slot)).collect();
        (graves, last.filter(|_| !is_all))
    }
}

/// What tells one of those that are shared from others.
pub(crate) fn address(at: &Arc<At>) -> usize {
    Arc::as_ptr(at).addr()
}

fn less<K: Ord, N: Copy + PartialEq + std::ops::SubAssign + From<u8>>(of: &mut BTreeMap<K, N>, key: &K) {
    let count = of.get_mut(key).expect("what is there was counted");
    *count -= N::from(1);
    if *count == N::from(0) {
        of.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use base::{NodeId, Rng};

    use super::*;
    use crate::Id;

    fn slot(n: u64) -> Slot {
        let mut id = [0; 16];
        id[8..].copy_from_slice(&n.to_be_bytes());
        Slot { owner: (n % 7) as u32, id: Id(id) }
    }

    fn grave(n: u64, since: u32) -> Grave {
        let version = Version { ms: u64::from(since) * 1000, counter: 0, node: NodeId(1) };
        Grave { slot: slot(n), at: Arc::default(), version, serial: n, since, once: true }
    }

    #[test]
    fn they_are_found_and_walked_over_in_order_as_in_a_plain_map() {
        let (mut graves, mut model, mut rng) = (Graves::default(), BTreeMap::new(), Rng::new(7));
        for n in 0..20_000 {
            // Down, up, and anyhow.
            let of = if n < 2000 {
                9000 - n
            } else if n < 4000 {
                8000 + n
            } else {
                rng.below(12_000)
            };
            if model.remove(&slot(of)).is_some() {
                assert_eq!(graves.remove(slot(of)).map(|grave| grave.serial), Some(of));
            } else {
                assert!(graves.get(slot(of)).is_none());
                graves.insert(grave(of, n as u32));
                model.insert(slot(of), of);
            }
        }
        assert!(graves.len() == model.len() && graves.len() > 1000);
        let all: Vec<u64> = graves.range(None).map(|grave| grave.serial).collect();
        assert_eq!(all, model.values().copied().collect::<Vec<_>>());
        for n in 0..12_000 {
            let behind = model.range((Bound::Excluded(slot(n)), Bound::Unbounded)).next().map(|(_, n)| *n);
            assert_eq!(graves.range(Some(slot(n))).next().map(|grave| grave.serial), behind);
        }
        let room: usize = graves.leaves.values().map(Vec::capacity).sum();
        assert!(room < graves.len() * 3 / 2, "{room} for {}", graves.len());
        // Most go: what is left takes no more room than it needs.
        while !graves.sweep(1000, 0, |grave| grave.serial % 10 > 0).is_round {}
        model.retain(|_, n| *n % 10 == 0);
        assert_eq!(
            graves.range(None).map(|g| g.serial).collect::<Vec<_>>(),
            model.values().copied().collect::<Vec<_>>()
        );
        let room: usize = graves.leaves.values().map(Vec::capacity).sum();
        assert!(room < graves.len() * 2, "{room} for {}", graves.len());
        while !graves.sweep(1000, 0, |_| true).is_round {}
        assert_eq!((graves.len(), graves.leaves.len(), graves.places.len()), (0, 0, 0));
        assert!(graves.ages.iter().all(BTreeMap::is_empty));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_but_none_that_is_new() {
        let mut graves = Graves::default();
        for n in 0..100 {
            graves.insert(grave(n, 1000 + n as u32));
        }
        graves.bound(100, 10_000);
        assert!(!graves.has_over(10_000));
        graves.bound(60, 10_000);
        assert!(graves.has_over(10_000));
        let mut gone: Vec<u64> = graves.sweep(usize::MAX, 10_000, |_| false).graves.iter().map(|g| g.serial).collect();
        gone.sort_unstable();
        assert_eq!(gone, (0..40).collect::<Vec<_>>());
        // A frame that was under way when it was deleted could bring it back.
        graves.bound(0, 1050 + GRAVE_S_LEAST);
        graves.sweep(usize::MAX, 10_000, |_| false);
        assert_eq!(graves.len(), 49);
    }

    #[test]
    fn a_sweep_that_begins_anew_asks_of_all() {
        let mut graves = Graves::default();
        for n in 0..1000 {
            graves.insert(grave(n, 1000));
        }
        assert!(!graves.sweep(300, 1000, |_| false).is_round);
        graves.sweep_anew();
        while !graves.sweep(300, 1000, |_| true).is_round {}
        assert_eq!(graves.len(), 0);
    }

    #[test]
    fn each_is_forgotten_when_its_time_is_over() {
        let mut graves = Graves::default();
        graves.insert(grave(1, 1000));
        graves.insert(Grave { once: false, ..grave(2, 1000) });
        let later = |ms: u64| (ms / 1000) as u32 + 1001;
        assert!(!graves.has_over(later(TOMBSTONE_MS_NEWEST) - 1) && graves.has_over(later(TOMBSTONE_MS_NEWEST)));
        let gone = graves.sweep(10, later(TOMBSTONE_MS_NEWEST), |_| false).graves;
        assert_eq!(gone.iter().map(|grave| grave.serial).collect::<Vec<_>>(), [2]);
        assert!(!graves.has_over(later(TOMBSTONE_MS_ONCE) - 1) && graves.has_over(later(TOMBSTONE_MS_ONCE)));
    }
}
