//! The entries of one namespace at one node, within its bytes. What is new stands in a *window* and always gets in. What leaves that
//! gets a place in the main part only if it was asked for more often than what would have to go for it (W-TinyLFU): pictures that
//! are seen once do not push out what everybody looks at. The main part is in two: what was read again since it came is
//! *protected*, the rest is on *trial*.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use bytes::Bytes;

use super::disk::Ring;
use super::limits::{ENDED_EACH_TURN, ENTRY_BYTES, PROTECTED_PERCENT, TAG_BYTES, WINDOW_PERCENT};
use super::sketch::Sketch;
use super::{Purge, What};

/// What is kept under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    pub bytes: Bytes,
    /// What it is, as who stored it says: a media type, or nothing.
    pub kind: Bytes,
    /// Checksum of the bytes.
    pub sum: u32,
    /// It is no value any more from then on.
    pub ends: Option<Time>,
    pub tags: Vec<Bytes>,
}

struct Entry {
    key: Bytes,
    value: Value,
    /// View of who is live in which it was stored here.
    view: u64,
    part: Part,
    /// Neighbours in the list of its part: towards those used last, and towards those used longest ago.
    newer: Option<usize>,
    older: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Window,
    Trial,
    Protected,
}

/// A list of slots, and the bytes of their entries.
#[derive(Clone, Copy, Default)]
struct List {
    newest: Option<usize>,
    oldest: Option<usize>,
    bytes: u64,
}

pub struct Store {
    size_max: u64,
    keys: BTreeMap<Bytes, usize>,
    slots: Vec<Option<Entry>>,
    free: Vec<usize>,
    lists: [List; 3],
    ends: BTreeSet<(Time, usize)>,
    tags: BTreeMap<Bytes, BTreeSet<usize>>,
    sketch: Sketch,
    /// Entries that went from memory for want of room, since it was made.
    pub evicted: u64,
    /// Where they went.
    pub ring: Ring,
}

impl Store {
    pub fn new(size_max: u64, ring: Ring) -> Self {
        Self {
            size_max,
            keys: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            lists: [List::default(); 3],
            ends: BTreeSet::new(),
            tags: BTreeMap::new(),
            sketch: Sketch::new(size_max),
            evicted: 0,
            ring,
        }
    }

    /// Entries in memory and on the disk.
    pub fn len(&self) -> usize {
        self.keys.len() + self.ring.len()
    }

    pub fn bytes(&self) -> u64 {
        self.lists.iter().map(|list| list.bytes).sum()
    }

    pub fn size_max(&self) -> u64 {
        self.size_max
    }

    /// Another bound: what is too much goes at once.
    pub fn resize(&mut self, size_max: u64) {
        self.size_max = size_max;
        self.make_room();
    }

    /// The value of a key, and the view in which it was stored; it counts as asked for.
    pub fn get(&mut self, now: Time, key: &[u8]) -> Option<(&Value, u64)> {
        self.sketch.add(key);
        let slot = self.live(now, key)?;
        self.used(slot);
        let entry = self.slots[slot].as_ref()?;
        Some((&entry.value, entry.view))
    }

    /// The same, and nobody has asked for it.
    pub fn peek(&mut self, now: Time, key: &[u8]) -> Option<(&Value, u64)> {
        let slot = self.live(now, key)?;
        self.slots[slot].as_ref().map(|entry| (&entry.value, entry.view))
    }

    /// Its slot, if it has not ended.
    fn live(&mut self, now: Time, key: &[u8]) -> Option<usize> {
        let slot = *self.keys.get(key)?;
        if self.slots[slot].as_ref()?.value.ends.is_some_and(|ends| ends <= now) {
            self.take_out(slot);
            return None;
        }
        Some(slot)
    }

    /// Stores a value in place of the one that is there. It may be gone again at once, for want of room.
    pub fn insert(&mut self, key: Bytes, value: Value, view: u64) {
        let before = self.keys.get(&key).copied();
        let part = before.and_then(|slot| self.slots[slot].as_ref()).map_or(Part::Window, |entry| entry.part);
        self.ring.remove(&key);
        if let Some(slot) = before {
            self.take_out(slot);
        } else {
            self.sketch.add(&key);
        }
        if cost(&key, &value) > self.size_max {
            self.evicted += 1;
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.keys.insert(key.clone(), slot);
        self.ends.extend(value.ends.map(|ends| (ends, slot)));
        for tag in &value.tags {
            self.tags.entry(tag.clone()).or_default().insert(slot);
        }
        self.slots[slot] = Some(Entry { key, value, view, part, newer: None, older: None });
        self.link(slot);
        self.make_room();
    }

    /// Another end for a value that stays. False: there is none.
    pub fn set_end(&mut self, now: Time, key: &[u8], ends: Option<Time>) -> bool {
        let Some(slot) = self.live(now, key) else { return self.ring.set_end(now, key, ends) };
        let Some(entry) = self.slots[slot].as_mut() else { return false };
        let before = std::mem::replace(&mut entry.value.ends, ends);
        before.map(|before| self.ends.remove(&(before, slot)));
        self.ends.extend(ends.map(|ends| (ends, slot)));
        true
    }

    /// In this view it is known to be the newest still.
    pub fn confirm(&mut self, key: &[u8], view: u64) {
        if let Some(entry) = self.keys.get(key).and_then(|slot| self.slots[*slot].as_mut()) {
            entry.view = view;
        }
    }

    /// An entry of the disk, which was asked for: does it get a place in memory?
    pub fn would_keep(&self, key: &[u8], value: &Value) -> bool {
        let victim = || self.victim(None).and_then(|slot| self.slots[slot].as_ref());
        self.bytes() + cost(key, value) <= self.size_max
            || victim().is_some_and(|entry| self.sketch.count(key) > self.sketch.count(&entry.key))
    }

    /// Counts that it was asked for, and is not in memory.
    pub fn asked(&mut self, key: &[u8]) {
        self.sketch.add(key);
    }

    /// Removes it from memory and gives what it was. On the disk it stays.
    pub fn remove(&mut self, now: Time, key: &[u8]) -> Option<(Value, u64)> {
        let slot = self.live(now, key)?;
        self.take_out(slot).map(|entry| (entry.value, entry.view))
    }

    /// Removes all that a purge is about; how many that were.
    pub fn purge(&mut self, what: &What) -> usize {
        let slots: Vec<usize> = match what {
            What::Key(key) => self.keys.get(key).copied().into_iter().collect(),
            What::Prefix(prefix) => {
                let from = self.keys.range::<Bytes, _>(prefix..);
                from.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, slot)| *slot).collect()
            }
            What::Tag(tag) => self.tags.get(tag).into_iter().flatten().copied().collect(),
            What::All => self.keys.values().copied().collect(),
        };
        slots.iter().for_each(|slot| drop(self.take_out(*slot)));
        slots.len() + self.ring.purge(what)
    }

    /// Removes what has ended, some of it.
    pub fn sweep(&mut self, now: Time) {
        for _ in 0..ENDED_EACH_TURN {
            match self.ends.first() {
                Some((ends, slot)) if *ends <= now => drop(self.take_out(*slot)),
                Some(_) | None => return,
            }
        }
    }

    /// When the next entry ends.
    pub fn first_end(&self) -> Option<Time> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Until all is within the bytes: what leaves the window is compared with what leaves the trial.
    fn make_room(&mut self) {
        let window_max = self.size_max * WINDOW_PERCENT / 100;
        let main_max = self.size_max - window_max;
        while self.bytes() > self.size_max || self.list(Part::Window).bytes > window_max {
            // What is alone in the window is what has just come: it stays there while there is room.
            let window = self.list(Part::Window);
            let candidate = window.oldest.filter(|_| window.bytes > window_max);
            match candidate {
                Some(slot) => {
                    self.relist(slot, Part::Trial);
                    self.judge(slot, main_max);
                }
                None => match self.victim(None) {
                    Some(slot) => self.evict(slot),
                    None => return,
                },
            }
        }
    }

    /// Something came into the main part: while that is too large, either it goes or something that is asked for less.
    fn judge(&mut self, candidate: usize, main_max: u64) {
        while self.list(Part::Trial).bytes + self.list(Part::Protected).bytes > main_max {
            let key = |slot: usize| self.slots[slot].as_ref().map_or(&[][..], |entry| &entry.key);
            match self.victim(Some(candidate)) {
                Some(victim) if self.sketch.count(key(candidate)) > self.sketch.count(key(victim)) => {
                    self.evict(victim)
                }
                Some(_) | None => return self.evict(candidate),
            }
        }
    }

    /// What would go first, other than this.
    fn victim(&self, other: Option<usize>) -> Option<usize> {
        let oldest = |part| {
            let slot = self.list(part).oldest?;
            if Some(slot) == other { self.slots[slot].as_ref()?.newer } else { Some(slot) }
        };
        oldest(Part::Trial).or_else(|| oldest(Part::Protected)).or_else(|| oldest(Part::Window))
    }

    fn evict(&mut self, slot: usize) {
        self.evicted += 1;
        if let Some(Entry { key, value, view, .. }) = self.take_out(slot) {
            self.ring.put(key, value, view);
        }
    }

    /// It was read: it is the newest of its part, and in the main part it is protected.
    fn used(&mut self, slot: usize) {
        let Some(part) = self.slots[slot].as_ref().map(|entry| entry.part) else { return };
        self.relist(slot, if part == Part::Window { Part::Window } else { Part::Protected });
        let most = (self.size_max - self.size_max * WINDOW_PERCENT / 100) * PROTECTED_PERCENT / 100;
        while self.list(Part::Protected).bytes > most {
            match self.list(Part::Protected).oldest {
                Some(oldest) if oldest != slot => self.relist(oldest, Part::Trial),
                Some(_) | None => return,
            }
        }
    }

    fn list(&self, part: Part) -> &List {
        &self.lists[part as usize]
    }

    fn relist(&mut self, slot: usize, part: Part) {
        self.unlink(slot);
        if let Some(entry) = self.slots[slot].as_mut() {
            entry.part = part;
        }
        self.link(slot);
    }

    /// Puts it at the newest end of its part's list.
    fn link(&mut self, slot: usize) {
        let entry = self.slots[slot].as_mut().expect("only what is there is put into a list");
        let list = &mut self.lists[entry.part as usize];
        list.bytes += cost(&entry.key, &entry.value);
        (entry.newer, entry.older) = (None, list.newest);
        match list.newest.replace(slot) {
            Some(next) => self.slots[next].as_mut().expect("lists hold what is there").newer = Some(slot),
            None => list.oldest = Some(slot),
        }
    }

    fn unlink(&mut self, slot: usize) {
        let entry = self.slots[slot].as_mut().expect("only what is there is in a list");
        let (newer, older, part) = (entry.newer.take(), entry.older.take(), entry.part);
        let bytes = cost(&entry.key, &entry.value);
        let list = &mut self.lists[part as usize];
        list.bytes -= bytes;
        match newer {
            Some(newer) => self.slots[newer].as_mut().expect("lists hold what is there").older = older,
            None => list.newest = older,
        }
        match older {
            Some(older) => self.slots[older].as_mut().expect("lists hold what is there").newer = newer,
            None => list.oldest = newer,
        }
    }

    fn take_out(&mut self, slot: usize) -> Option<Entry> {
        self.unlink(slot);
        let entry = self.slots[slot].take()?;
        self.free.push(slot);
        self.keys.remove(&entry.key);
        entry.value.ends.map(|ends| self.ends.remove(&(ends, slot)));
        for tag in &entry.value.tags {
            if let Some(slots) = self.tags.get_mut(tag) {
                slots.remove(&slot);
                if slots.is_empty() {
                    self.tags.remove(tag);
                }
            }
        }
        Some(entry)
    }
}

/// What an entry takes, bytes.
pub fn cost(key: &[u8], value: &Value) -> u64 {
    let tags: u64 = value.tags.iter().map(|tag| tag.len() as u64 + TAG_BYTES).sum();
    (key.len() + value.bytes.len() + value.kind.len()) as u64 + tags + ENTRY_BYTES
}

impl Purge {
    /// Is an entry with this key and these tags one that it is about?
    pub fn covers(&self, namespace: u32, key: &[u8], tags: &[Bytes]) -> bool {
        self.namespace == namespace
            && match &self.what {
                What::Key(one) => one == key,
                What::Prefix(prefix) => key.starts_with(prefix),
                What::Tag(tag) => tags.contains(tag),
                What::All => true,
            }
    }
}
