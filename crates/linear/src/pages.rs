//! A sorted list in pages. A copy is a pointer for each page, and a change under a copy copies one page: snapshots of a long list
//! cost little. How the pages were cut shows in nothing that it gives.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Items of a page: a change under a copy copies 25 KB.
pub const PAGE_ITEMS_MAX: usize = 512;
/// A page with fewer is put together with the next one, if both have room in one page ...
const PAGE_ITEMS_FEW: usize = PAGE_ITEMS_MAX / 4;
/// ... that is not full then.
const PAGE_ITEMS_JOINED: usize = PAGE_ITEMS_MAX * 3 / 4;

const _: () = assert!(PAGE_ITEMS_FEW < PAGE_ITEMS_JOINED && PAGE_ITEMS_JOINED < PAGE_ITEMS_MAX);

/// What is in a list: it has a place there.
pub trait Listed: Clone + PartialEq {
    type Key: Ord + Copy;

    fn key(&self) -> Self::Key;

    /// Pages can be passed over in which all have an older one.
    fn change(&self) -> u64 {
        0
    }
}

#[derive(Clone, Debug)]
pub struct Pages<T: Listed> {
    /// By a key that is not above those in the page, and above all in the page before.
    pages: BTreeMap<T::Key, Arc<Page<T>>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Page<T> {
    /// Invariant: in order of their keys, no two with one, and never none.
    items: Vec<T>,
    /// No item has a newer change.
    newest: u64,
}

impl<T: Listed> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T: Listed> PartialEq for Pages<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.all().eq(other.all())
    }
}

impl<T: Listed> Pages<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, key: T::Key) -> Option<&T> {
        let (_, page) = self.pages.range(..=key).next_back()?;
        page.find(key).ok().map(|at| &page.items[at])
    }

    /// Puts it into its place. No other may have its key.
    pub fn insert(&mut self, item: T) {
        let key = item.key();
        self.len += 1;
        let Some(at) = self.page_for(key) else {
            self.pages.insert(key, Arc::new(Page::of(vec![item])));
            return;
        };
        let page = Arc::make_mut(self.pages.get_mut(&at).expect("it was just found"));
        let place = page.find(key).expect_err("whoever inserts has looked for it");
        page.newest = page.newest.max(item.change());
        page.items.insert(place, item);
        if page.items.len() > PAGE_ITEMS_MAX {
            // Those that come in order leave full pages behind.
            let is_last = place + 1 == page.items.len();
            let upper = page.items.split_off(if is_last { place } else { PAGE_ITEMS_MAX / 2 });
            self.pages.insert(upper[0].key(), Arc::new(Page::of(upper)));
        }
    }

    /// The page that a key belongs into. One below all others goes into the first, which is known by it from then on.
    fn page_for(&mut self, key: T::Key) -> Option<T::Key> {
        if let Some((at, _)) = self.pages.range(..=key).next_back() {
            return Some(*at);
        }
        let (_, first) = self.pages.pop_first()?;
        self.pages.insert(key, first);
        Some(key)
    }

    /// Changes an item, not its key. False if there is none.
    pub fn update(&mut self, key: T::Key, change: impl FnOnce(&mut T)) -> bool {
        let Some((_, page)) = self.pages.range_mut(..=key).next_back() else { return false };
        let Ok(at) = page.find(key) else { return false };
        let page = Arc::make_mut(page);
        change(&mut page.items[at]);
        page.newest = page.newest.max(page.items[at].change());
        true
    }

    pub fn remove(&mut self, key: T::Key) -> Option<T> {
        let (at, page) = self.pages.range_mut(..=key).next_back()?;
        let (at, place) = (*at, page.find(key).ok()?);
        let page = Arc::make_mut(page);
        let old = page.items.remove(place);
        let left = page.items.len();
        self.len -= 1;
        if left == 0 {
            self.pages.remove(&at);
        } else if left < PAGE_ITEMS_FEW {
            self.join(at);
        }
        Some(old)
    }

    /// Puts a page together with the next one, if there is room.
    fn join(&mut self, at: T::Key) {
        let mut pages = self.pages.range(at..);
        let (Some((_, page)), Some((next, other))) = (pages.next(), pages.next()) else { return };
        if page.items.len() + other.items.len() > PAGE_ITEMS_JOINED {
            return;
        }
        let other = self.pages.remove(&{ *next }).expect("it was just found");
        let page = Arc::make_mut(self.pages.get_mut(&at).expect("it was just found"));
        page.items.extend_from_slice(&other.items);
        page.newest = page.newest.max(other.newest);
    }

    /// Those with keys in a range, in order.
    pub fn range(&self, keys: RangeInclusive<T::Key>) -> impl Iterator<Item = &T> {
        self.newer(keys, None)
    }

    /// Of those in a range the ones with a change after this one; all with none.
    pub fn newer(&self, keys: RangeInclusive<T::Key>, since: Option<u64>) -> impl Iterator<Item = &T> {
        let (from, to) = keys.into_inner();
        let first = self.pages.range(..=from).next_back().map_or(from, |(at, _)| *at);
        let pages = self.pages.range(first..).take_while(move |(at, _)| **at <= to).map(|(_, page)| page);
        let pages = pages.filter(move |page| since.is_none_or(|since| page.newest > since));
        let items = pages.flat_map(move |page| &page.items[page.items.partition_point(|item| item.key() < from)..]);
        items
            .take_while(move |item| item.key() <= to)
            .filter(move |item| since.is_none_or(|since| item.change() > since))
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.pages.values().flat_map(|page| &page.items)
    }
}

impl<T: Listed> Page<T> {
    fn of(items: Vec<T>) -> Self {
        let newest = items.iter().map(T::change).max().unwrap_or_default();
        Self { items, newest }
    }

    fn find(&self, key: T::Key) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.key().cmp(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Debug)]
    struct One(u32, u64);

    impl Listed for One {
        type Key = u32;

        fn key(&self) -> u32 {
            self.0
        }

        fn change(&self) -> u64 {
            self.1
        }
    }

    /// As a map of the standard library does it; copies stay as they were.
    #[test]
    fn pages_do_what_a_map_does_and_copies_stay() {
        let mut rng = base::Rng::new(11);
        let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
        let mut copy = (pages.clone(), map.clone());
        for step in 1..40_000_u64 {
            let key = rng.below(3_000) as u32;
            // First mostly more, then mostly less, and so on.
            let grows = rng.below(10) < if step / 8_000 % 2 == 0 { 8 } else { 2 };
            match map.get(&key) {
                None if grows => {
                    map.insert(key, step);
                    pages.insert(One(key, step));
                }
                Some(_) if grows => {
                    map.insert(key, step);
                    assert!(pages.update(key, |one| one.1 = step));
                }
                known => {
                    assert_eq!(pages.remove(key).map(|one| one.1), known.copied());
                    map.remove(&key);
                    assert!(!pages.update(key, |one| one.1 = step));
                }
            }
            assert_eq!((pages.len(), pages.get(key).map(|one| one.1)), (map.len(), map.get(&key).copied()));
            if step % 500 == 0 {
                let is = |pages: &Pages<One>, map: &BTreeMap<u32, u64>| {
                    assert!(pages.all().map(|one| (one.0, one.1)).eq(map.iter().map(|(key, at)| (*key, *at))));
                };
                is(&pages, &map);
                is(&copy.0, &copy.1);
                copy = (pages.clone(), map.clone());
                let (from, to, since) = (rng.below(3_000) as u32, rng.below(3_000) as u32, rng.below(step));
                let expect = |since| map.iter().filter(move |(key, at)| from <= **key && **key <= to && **at > since);
                assert!(pages.range(from..=to).map(|one| one.0).eq(expect(0).map(|(key, _)| *key)));
                assert!(pages.newer(from..=to, Some(since)).map(|one| one.0).eq(expect(since).map(|(key, _)| *key)));
                let other = map.iter().rev().fold(Pages::default(), |mut other, (key, at)| {
                    other.insert(One(*key, *at));
                    other
                });
                assert!(other == pages, "however it came about");
                let sizes = pages.pages.values().map(|page| page.items.len());
                assert!(sizes.clone().all(|size| (1..=PAGE_ITEMS_MAX).contains(&size)));
                assert!(sizes.count() <= 2 + 4 * map.len() / PAGE_ITEMS_FEW, "there are not many small ones");
            }
        }
    }

    #[test]
    fn a_change_under_a_copy_copies_one_page() {
        let mut pages = Pages::default();
        (0..10_000).for_each(|key| pages.insert(One(key, 0)));
        assert_eq!(pages.pages.len(), 10_000_usize.div_ceil(PAGE_ITEMS_MAX), "those that come in order fill pages");
        let copy = pages.clone();
        pages.update(5_000, |one| one.1 = 1);
        let shared = copy.pages.iter().filter(|(at, page)| Arc::ptr_eq(page, &pages.pages[at])).count();
        assert_eq!(shared + 1, pages.pages.len());
    }
}
