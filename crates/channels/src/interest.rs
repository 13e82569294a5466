//! Interest: what clients listen to. `Own` is this node's, with a number for each change, so that a peer is sent what changed behind the
//! number that it has. `Theirs` is what a peer has told.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::*;
use crate::wire::{Entry, Page};
use crate::{Kind, fits};

/// What is told of: a channel, a pattern, or all of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    Channel = 1,
    Shard = 2,
    Pattern = 3,
    /// More than is told one by one.
    All = 4,
}

impl From<Kind> for What {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Channel => Self::Channel,
            Kind::Shard => Self::Shard,
            Kind::Pattern => Self::Pattern,
        }
    }
}

impl What {
    fn of_wire(kind: u32) -> Option<Self> {
        [Self::Channel, Self::Shard, Self::Pattern, Self::All].into_iter().find(|what| *what as u32 == kind)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    namespace: String,
    what: What,
    name: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Clients. 0: it is over, and some peer has not heard so.
    count: u64,
    /// Number of its last change.
    at: u64,
    /// Number of the change with which it began.
    since: u64,
}

/// This node's own.
#[derive(Default)]
pub struct Own {
    entries: BTreeMap<Arc<Key>, Held>,
    /// Invariant: each entry once, by its `at`.
    by_number: BTreeMap<u64, Arc<Key>>,
    /// Entries of a namespace with clients: channels of both kinds, patterns.
    told: BTreeMap<String, [usize; 2]>,
    number: u64,
    /// Nothing is kept of what ended up to this number.
    floor: u64,
}

impl Own {
    pub fn number(&self) -> u64 {
        self.number
    }

    /// One more client. The number that a peer must have to know of it.
    pub fn add(&mut self, namespace: &str, kind: Kind, name: &Bytes) -> u64 {
        let key = self.key(namespace, kind.into(), name.clone());
        if let Some(held) = self.entries.get(&key).filter(|held| held.count > 0) {
            let (count, since) = (held.count + 1, held.since);
            self.put(key, count, since);
            return since;
        }
        let told = self.told.entry(namespace.to_owned()).or_default();
        let (place, most) = place(kind);
        if told[place] < most {
            told[place] += 1;
            let since = self.number + 1;
            self.put(key, 1, since);
            return since;
        }
        let key = self.key(namespace, What::All, Bytes::new());
        let held = self.entries.get(&key).filter(|held| held.count > 0);
        let (count, since) = held.map_or((1, self.number + 1), |held| (held.count + 1, held.since));
        self.put(key, count, since);
        since
    }

    /// One client less. Who is not told of by name is one of `All`: of one name some may be here and some there, and together they
    /// are right.
    pub fn remove(&mut self, namespace: &str, kind: Kind, name: &Bytes) {
        let mut key = self.key(namespace, kind.into(), name.clone());
        let is_there = |own: &Self, key: &Arc<Key>| own.entries.get(key).copied().filter(|held| held.count > 0);
        let mut held = is_there(self, &key);
        if held.is_none() {
            key = self.key(namespace, What::All, Bytes::new());
            held = is_there(self, &key);
        } else if held.is_some_and(|held| held.count == 1)
            && let Some(told) = self.told.get_mut(namespace)
        {
            told[place(kind).0] -= 1;
            if *told == [0, 0] {
                self.told.remove(namespace);
            }
        }
        if let Some(held) = held {
            self.put(key, held.count - 1, held.since);
        }
    }

    fn key(&self, namespace: &str, what: What, name: Bytes) -> Arc<Key> {
        Arc::new(Key { namespace: namespace.to_owned(), what, name })
    }

    fn put(&mut self, key: Arc<Key>, count: u64, since: u64) {
        self.number += 1;
        let at = self.number;
        if let Some(before) = self.entries.insert(Arc::clone(&key), Held { count, at, since }) {
            self.by_number.remove(&before.at);
        }
        self.by_number.insert(at, key);
    }

    /// What changed behind this number, as much as a page holds.
    pub fn page(&self, from: Option<u64>) -> Page {
        let mut page = Page { from, to: self.number, floor: self.floor, last: true, entries: Vec::new() };
        let mut bytes = 0;
        for (at, key) in self.by_number.range(from.map_or(0, |from| from + 1)..) {
            if bytes >= PAGE_BYTES {
                (page.to, page.last) = (at - 1, false);
                break;
            }
            bytes += key.name.len() + key.namespace.len() + 8;
            let (namespace, kind, name) = (key.namespace.clone(), key.what as u32, key.name.clone());
            page.entries.push(Entry { namespace, kind, name, count: self.entries[key].count });
        }
        page
    }

    /// All live peers have it up to this number: what ended until then need not be told any more.
    pub fn all_have(&mut self, number: u64) {
        let ended: Vec<u64> = self
            .by_number
            .range(self.floor + 1..=number.max(self.floor + 1))
            .take_while(|(at, _)| **at <= number)
            .filter(|(_, key)| self.entries[*key].count == 0)
            .map(|(at, _)| *at)
            .collect();
        for at in ended {
            let key = self.by_number.remove(&at).expect("it was just seen there");
            self.entries.remove(&key);
        }
        self.floor = self.floor.max(number);
    }

    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Namespaces in which somebody listens to this channel, by its name or a pattern, or in which it is not known who does not.
    pub fn spaces_with<'a>(&'a self, channel: &'a Bytes) -> impl Iterator<Item = &'a str> {
        let wants = |namespace: &&String| {
            self.count(namespace, Kind::Channel, channel) > 0
                || self.names(namespace, Kind::Pattern).any(|pattern| fits(pattern, channel))
                || self.entries.get(&self.key(namespace, What::All, Bytes::new())).is_some_and(|held| held.count > 0)
        };
        self.told.keys().filter(wants).map(String::as_str)
    }

    pub fn count(&self, namespace: &str, kind: Kind, name: &Bytes) -> u64 {
        self.entries.get(&self.key(namespace, kind.into(), name.clone())).map_or(0, |held| held.count)
    }

    pub fn names<'a>(&'a self, namespace: &'a str, kind: Kind) -> impl Iterator<Item = &'a Bytes> {
        let what = kind.into();
        let from = self.key(namespace, what, Bytes::new());
        let of = self.entries.range(from..).take_while(move |(key, _)| key.namespace == namespace && key.what == what);
        of.filter(|(_, held)| held.count > 0).map(|(key, _)| &key.name)
    }
}

/// Where entries of a kind are counted, and how many of them are told one by one.
fn place(kind: Kind) -> (usize, usize) {
    match kind {
        Kind::Channel | Kind::Shard => (0, CHANNELS_TOLD_MAX),
        Kind::Pattern => (1, PATTERNS_TOLD_MAX),
    }
}

/// A peer's, as it has told.
#[derive(Default)]
pub struct Theirs {
    pub have: Option<u64>,
    /// What ended up to this number is not here, as all was told anew since.
    clean: u64,
    pub is_complete: bool,
    spaces: BTreeMap<String, Space>,
    entries: usize,
}

#[derive(Default)]
struct Space {
    channels: BTreeMap<Bytes, u64>,
    shards: BTreeMap<Bytes, u64>,
    patterns: BTreeMap<Bytes, u64>,
    all: u64,
}

impl Theirs {
    /// No node tells of longer names: its door does not take them.
    pub fn can_be(page: &Page) -> bool {
        page.entries.iter().all(|entry| entry.name.len() <= NAME_BYTES_MAX && entry.namespace.len() <= NAME_BYTES_MAX)
    }

    /// Takes a page if it joins what is here. What is said of no kind that is known is skipped.
    pub fn take(&mut self, page: Page) {
        // What ended meanwhile would stay here for ever.
        let is_clean = self.have.is_some_and(|have| page.floor <= have.max(self.clean));
        if !is_clean {
            *self = Self { clean: page.floor, ..Self::default() };
        }
        if page.from.is_some() && self.have < page.from {
            return;
        }
        if self.have.is_none_or(|have| have < page.to) {
            page.entries.into_iter().for_each(|entry| self.put(entry));
            self.have = Some(page.to);
        }
        // Of one with too much nothing is known for sure.
        self.is_complete = (self.is_complete || page.last) && self.entries <= ENTRIES_MAX;
    }

    fn put(&mut self, Entry { namespace, kind, name, count }: Entry) {
        let Some(what) = What::of_wire(kind) else { return };
        if self.entries > ENTRIES_MAX && count > 0 {
            return;
        }
        let space = self.spaces.entry(namespace.clone()).or_default();
        let before = space.entries();
        let names = match what {
            What::Channel => &mut space.channels,
            What::Shard => &mut space.shards,
            What::Pattern => &mut space.patterns,
            What::All => {
                space.all = count;
                &mut BTreeMap::new()
            }
        };
        if count > 0 {
            names.insert(name, count);
        } else {
            names.remove(&name);
        }
        let after = space.entries();
        self.entries = self.entries + after - before;
        if after == 0 {
            self.spaces.remove(&namespace);
        }
    }

    /// Whether such a message is wanted there, and by how many clients as far as is known.
    pub fn wants(&self, namespace: &str, shard: bool, channel: &Bytes) -> (bool, u64) {
        let Some(space) = self.spaces.get(namespace) else { return (!self.is_complete, 0) };
        let named = if shard { &space.shards } else { &space.channels };
        let mut receivers = named.get(channel).copied().unwrap_or(0);
        if !shard {
            receivers += space.patterns.iter().filter(|(p, _)| fits(p, channel)).map(|(_, count)| count).sum::<u64>();
        }
        (receivers > 0 || space.all > 0 || !self.is_complete, receivers)
    }

    fn named(&self, namespace: &str, kind: Kind) -> Option<&BTreeMap<Bytes, u64>> {
        let space = self.spaces.get(namespace)?;
        Some(match kind {
            Kind::Channel => &space.channels,
            Kind::Shard => &space.shards,
            Kind::Pattern => &space.patterns,
        })
    }

    pub fn count(&self, namespace: &str, kind: Kind, name: &Bytes) -> u64 {
        self.named(namespace, kind).and_then(|names| names.get(name)).copied().unwrap_or(0)
    }

    pub fn names<'a>(&'a self, namespace: &str, kind: Kind) -> impl Iterator<Item = &'a Bytes> {
        self.named(namespace, kind).into_iter().flatten().map(|(name, _)| name)
    }
}

impl Space {
    fn entries(&self) -> usize {
        self.channels.len() + self.shards.len() + self.patterns.len() + usize::from(self.all > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(namespace: &str, what: What, name: &[u8], count: u64) -> Entry {
        Entry { namespace: namespace.into(), kind: what as u32, name: Bytes::copy_from_slice(name), count }
    }

    fn page(entries: Vec<Entry>) -> Page {
        Page { from: None, to: 1, floor: 0, last: true, entries }
    }

    #[test]
    fn whatever_a_peer_tells_counts_for_its_bound_and_ends_with_its_end() {
        let mut theirs = Theirs::default();
        let all = |count| (0..3).map(|n| entry(&format!("n{n}"), What::All, b"", count)).collect::<Vec<_>>();
        theirs.take(page([all(2), vec![entry("n0", What::Channel, b"a", 1)]].concat()));
        assert_eq!((theirs.entries, theirs.spaces.len()), (4, 3));
        assert_eq!(theirs.wants("n2", false, &Bytes::from_static(b"x")), (true, 0));
        theirs.take(Page { from: Some(1), to: 2, ..page(all(0)) });
        assert_eq!((theirs.entries, theirs.spaces.len()), (1, 1));
        assert_eq!(theirs.wants("n2", false, &Bytes::from_static(b"x")), (false, 0));
    }

    #[test]
    fn names_that_no_door_takes_are_no_interest() {
        let longest = vec![b'x'; NAME_BYTES_MAX];
        assert!(Theirs::can_be(&page(vec![entry("n", What::Pattern, &longest, 1)])));
        assert!(!Theirs::can_be(&page(vec![entry("n", What::Pattern, &[&longest[..], b"x"].concat(), 1)])));
        assert!(!Theirs::can_be(&page(vec![entry(&"n".repeat(NAME_BYTES_MAX + 1), What::All, b"", 1)])));
    }
}
