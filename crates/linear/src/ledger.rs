//! A ledger: folders of numbered items, as a mailbox has. An item is an object in a folder, with marks. The ledger says who has which
//! number, and what changed since when:
//!
//! - A folder's numbers rise and are never given twice. None is given below one that was given.
//! - Each call that changes something has one change number, higher than all before it, of all folders together.
//! - An object gets its first item once. When its last item is removed the ledger keeps that it is *gone*, so it does not come back;
//!   that is forgotten only some time after somebody said that all who may have the object know of it ([`Ledger::close`]).
//!
//! Objects' bytes are kept elsewhere. Lists are in pages (`pages.rs`), so a change under a snapshot copies little.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;

use super::limits::{
    LEDGER_FORGET_MS, LEDGER_GONE_KEPT, LEDGER_GONE_MS, LEDGER_NAME_BYTES_MAX, LEDGER_REMOVED_KEPT, LEDGER_SKIP,
};
use super::pages::{Listed, Pages};

mod bytes_of;

/// The level from which there are ledgers (`base/src/level.rs`): no function of an older level makes one.
pub const LEVEL: u32 = 5;

/// What an item counts, with where it is found by its object.
pub const ITEM_BYTES: usize = 64;
/// What an object counts of which all items were removed: with the removal no more than its item did.
const GONE_BYTES: usize = ITEM_BYTES - REMOVED_BYTES;
/// What a removal counts that is kept for who asks for changes.
pub const REMOVED_BYTES: usize = 16;
/// What a folder counts beside its name.
pub const FOLDER_BYTES: usize = 128;

/// Marks that folders count their items of.
pub const MARKS_COUNTED: usize = 8;
/// Marks: the sign is none.
pub const MARKS_MAX: usize = 63;

/// A higher validity is not taken from a caller: there is always a higher one for the next folder.
pub const VALIDITY_ASKED_MAX: u32 = 0xF000_0000;

pub type Id = [u8; 16];
type Range = RangeInclusive<u32>;

#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    pub object: Id,
    pub marks: u64,
    /// When it came or was marked.
    pub change: u64,
    pub folder: u32,
    pub number: u32,
    pub size: u32,
    /// Seconds since 1970, as its writer said.
    pub date: u32,
}

/// Where an object is.
#[derive(Clone, PartialEq, Debug)]
struct Place {
    object: Id,
    folder: u32,
    number: u32,
}

/// An object that was somewhere, and is nowhere.
#[derive(Clone, PartialEq, Debug)]
struct Gone {
    object: Id,
    /// When it was closed, by the group's clock; none while it is open.
    closed: Option<u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Folder {
    pub name: Bytes,
    pub validity: u32,
    /// The next number.
    pub next: u64,
    pub changed: u64,
    /// Removals up to this change may be forgotten.
    pub floor: u64,
    pub is_subscribed: bool,
    /// All that an item ever had.
    pub marks: u64,
    /// Items with each of the first marks.
    pub marked: [u32; MARKS_COUNTED],
    pub count: u32,
    /// Of all sizes.
    pub bytes: u64,
    /// The last removals: change and number, in order of changes.
    removed: Arc<VecDeque<(u64, u32)>>,
}

#[derive(Clone, Default, PartialEq, Debug)]
pub struct Ledger {
    pub change: u64,
    /// The highest validity that was given.
    validity: u32,
    /// The id that was given last to a folder.
    last_folder: u32,
    folders: BTreeMap<u32, Folder>,
    items: Pages<Item>,
    places: Pages<Place>,
    gone: Pages<Gone>,
    /// Those of them that are closed, in the order of that.
    closed: Arc<VecDeque<Id>>,
    /// How many removals all folders keep.
    removals: usize,
    keywords: Vec<Bytes>,
}

/// What is to be added.
#[derive(Clone, Debug)]
pub struct New {
    pub object: Id,
    pub folder: u32,
    pub size: u32,
    pub date: u32,
    pub marks: u64,
}

/// What the ledger knows of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It has an item here.
    Has {
        folder: u32,
        number: u32,
    },
    Gone,
    No,
}

/// What became of what was to be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    New { folder: u32, number: u32 },
    Known(Known),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marking {
    Add,
    Remove,
    Set,
}

/// May a folder or a keyword be called so?
pub fn is_name(name: &[u8]) -> bool {
    (1..=LEDGER_NAME_BYTES_MAX).contains(&name.len()) && std::str::from_utf8(name).is_ok()
}

impl Listed for Item {
    type Key = (u32, u32);

    fn key(&self) -> (u32, u32) {
        (self.folder, self.number)
    }

    fn change(&self) -> u64 {
        self.change
    }
}

impl Listed for Place {
    type Key = (Id, u32);

    fn key(&self) -> (Id, u32) {
        (self.object, self.folder)
    }
}

impl Listed for Gone {
    type Key = Id;

    fn key(&self) -> Id {
        self.object
    }
}

impl Ledger {
    /// Bytes that it counts.
    pub fn bytes(&self) -> usize {
        let folders: usize = self.folders.values().map(|folder| folder.name.len() + FOLDER_BYTES).sum();
        let keywords: usize = self.keywords.iter().map(|name| name.len() + crate::value::ITEM_BYTES).sum();
        let gone = self.gone.len() * GONE_BYTES + self.removals * REMOVED_BYTES;
        self.items.len() * ITEM_BYTES + gone + folders + keywords
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn folders(&self) -> impl ExactSizeIterator<Item = (u32, &Folder)> {
        self.folders.iter().map(|(id, folder)| (*id, folder))
    }

    pub fn folder(&self, id: u32) -> Option<&Folder> {
        self.folders.get(&id)
    }

    pub fn named(&self, name: &[u8]) -> Option<u32> {
        self.folders().find(|(_, folder)| folder.name[..] == *name).map(|(id, _)| id)
    }

    /// The first folder: it stays, and takes what is for one that is not there.
    pub fn first(&self) -> Option<u32> {
        self.folders.first_key_value().map(|(id, _)| *id)
    }

    pub fn is_open(&self, object: Id) -> bool {
        self.gone.get(object).is_some_and(|gone| gone.closed.is_none())
    }

    /// Objects that are gone and not closed.
    pub fn open(&self) -> usize {
        self.gone.len() - self.closed.len()
    }

    /// ... those not below this one, in order.
    pub fn open_from(&self, from: Id) -> impl Iterator<Item = Id> {
        let open = self.gone.range(from..=[u8::MAX; 16]).filter(|gone| gone.closed.is_none());
        open.map(|gone| gone.object)
    }

    pub fn keywords(&self) -> &[Bytes] {
        &self.keywords
    }

    /// Items of a folder with numbers in a range.
    pub fn items(&self, folder: u32, numbers: Range) -> impl Iterator<Item = &Item> {
        let (from, to) = numbers.into_inner();
        self.items.range((folder, from)..=(folder, to))
    }

    /// ... that were added or marked after a change.
    pub fn newer(&self, folder: u32, from: u32, since: u64) -> impl Iterator<Item = &Item> {
        self.items.newer((folder, from)..=(folder, u32::MAX), Some(since))
    }

    /// Numbers that were removed from a folder after a change, which is not below its floor. In no order.
    pub fn removed(&self, folder: u32, since: u64) -> impl Iterator<Item = u32> {
        let removed = self.folders.get(&folder).map(|folder| &folder.removed);
        removed.into_iter().flat_map(move |removed| {
            let at = removed.partition_point(|(change, _)| *change <= since);
            removed.range(at..).map(|(_, number)| *number)
        })
    }

    /// All places of an object.
    pub fn places(&self, object: Id) -> impl Iterator<Item = (u32, u32)> {
        let all = self.places.range((object, 0)..=(object, u32::MAX));
        all.map(|place| (place.folder, place.number))
    }

    /// With `folder` rather there, where it has several items.
    pub fn known(&self, object: Id, folder: u32) -> Known {
        let place = self.places.get((object, folder)).map(|place| (place.folder, place.number));
        match place.or_else(|| self.places(object).next()) {
            Some((folder, number)) => Known::Has { folder, number },
            None if self.gone.get(object).is_some() => Known::Gone,
            None => Known::No,
        }
    }

    /// Makes a folder; its id. No other has its name.
    pub fn create(&mut self, name: Bytes, validity: u32) -> u32 {
        self.change += 1;
        self.last_folder += 1;
        self.validity = validity.max(self.validity.saturating_add(1));
        let (changed, removed) = (self.change, Arc::default());
        let folder = Folder {
            name,
            validity: self.validity,
            next: 1,
            changed,
            floor: 0,
            is_subscribed: true,
            marks: 0,
            marked: [0; MARKS_COUNTED],
            count: 0,
            bytes: 0,
            removed,
        };
        self.folders.insert(self.last_folder, folder);
        self.last_folder
    }

    /// May another folder be made?
    pub fn has_ids(&self) -> bool {
        self.last_folder < u32::MAX && self.validity < u32::MAX
    }

    pub fn rename(&mut self, id: u32, name: Bytes) {
        self.change += 1;
        let folder = self.folders.get_mut(&id).expect("whoever renames has looked for it");
        (folder.name, folder.changed) = (name, self.change);
    }

    pub fn subscribe(&mut self, id: u32, is_subscribed: bool) {
        self.change += 1;
        self.folders.get_mut(&id).expect("whoever subscribes has looked for it").is_subscribed = is_subscribed;
    }

    /// Removes a folder, if it has no more items than this; else so many of its items. Whether it is gone.
    pub fn delete(&mut self, id: u32, items_max: usize) -> bool {
        self.change += 1;
        let numbers: Vec<u32> = self.items(id, 0..=u32::MAX).take(items_max).map(|item| item.number).collect();
        for number in numbers {
            self.take(id, number);
        }
        let is_empty = self.folders.get(&id).is_some_and(|folder| folder.count == 0);
        if is_empty {
            let folder = self.folders.remove(&id).expect("it was just seen");
            self.removals -= folder.removed.len();
        }
        is_empty
    }

    /// Gives numbers to objects that are not known. Folders have as many left.
    pub fn add(&mut self, items: Vec<New>) -> Vec<Added> {
        self.change += 1;
        let add = |new: New| {
            let Some(folder) = self.target(new.folder) else { return Added::Known(Known::No) };
            match self.known(new.object, folder) {
                Known::No => {
                    let New { object, marks, size, date, .. } = new;
                    let number = self.put(Item { object, marks, change: self.change, folder, number: 0, size, date });
                    Added::New { folder, number }
                }
                known => Added::Known(known),
            }
        };
        items.into_iter().map(add).collect()
    }

    /// The folder that what is for this one goes to.
    pub fn target(&self, folder: u32) -> Option<u32> {
        if self.folders.contains_key(&folder) { Some(folder) } else { self.first() }
    }

    /// Changes marks of these items.
    pub fn mark(&mut self, folder: u32, marked: &[(u32, u64)]) {
        self.change += 1;
        let (change, of) = (self.change, self.folders.get_mut(&folder).expect("whoever marks has looked for it"));
        of.changed = change;
        for (number, marks) in marked {
            self.items.update((folder, *number), |item| {
                of.count_marks(item.marks, -1);
                of.count_marks(*marks, 1);
                (item.marks, item.change) = (*marks, change);
            });
        }
    }

    /// Puts items into another folder, too, or in place of this one: the number there for each. An object is once in a folder.
    pub fn carry(&mut self, from: u32, to: u32, numbers: &[u32], moves: bool) -> Vec<(u32, u32)> {
        self.change += 1;
        let mut pairs = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(item) = self.items.get((from, *number)).cloned() else { continue };
            let there = self.places.get((item.object, to)).map(|place| place.number);
            let there = there.unwrap_or_else(|| self.put(Item { folder: to, change: self.change, ..item }));
            pairs.push((*number, there));
            if moves && from != to {
                self.take(from, *number);
            }
        }
        pairs
    }

    /// Removes items; objects that have none any more are gone from then on, and given.
    pub fn remove(&mut self, items: impl IntoIterator<Item = (u32, u32)>) -> Vec<Id> {
        self.change += 1;
        items.into_iter().filter_map(|(folder, number)| self.take(folder, number)).collect()
    }

    /// Objects that are gone are so for good. How many of these were open.
    pub fn close(&mut self, objects: &[Id], clock: u64) -> usize {
        let mut count = 0;
        for object in objects {
            if self.is_open(*object) && self.gone.update(*object, |gone| gone.closed = Some(clock)) {
                Arc::make_mut(&mut self.closed).push_back(*object);
                count += 1;
            }
        }
        while let Some(oldest) = self.closed.front().copied() {
            let closed = self.gone.get(oldest).and_then(|gone| gone.closed).unwrap_or_default();
            let age = clock.saturating_sub(closed);
            let too_many = self.closed.len() > LEDGER_GONE_KEPT;
            if age < if too_many { LEDGER_FORGET_MS } else { LEDGER_GONE_MS } {
                break;
            }
            Arc::make_mut(&mut self.closed).pop_front();
            self.gone.remove(oldest);
        }
        count
    }

    /// Raises all numbers: of what was given after this state none comes again.
    pub fn skip(&mut self) {
        self.change = self.change.saturating_add(LEDGER_SKIP);
        for folder in self.folders.values_mut() {
            folder.next = folder.next.saturating_add(LEDGER_SKIP).min(u64::from(u32::MAX) + 1);
            // What was removed after this state nobody knows.
            (folder.changed, folder.floor, folder.removed) = (self.change, self.change, Arc::default());
        }
        self.removals = 0;
    }

    /// As it is put back from a dump: nothing that was given after that comes again, and what was closed was so just now.
    pub fn loaded(mut self, clock: u64) -> Self {
        self.skip();
        for object in self.closed.iter() {
            self.gone.update(*object, |gone| gone.closed = Some(clock));
        }
        self
    }

    /// Gives a name to the next mark.
    pub fn name(&mut self, keyword: Bytes) {
        self.change += 1;
        self.keywords.push(keyword);
    }

    /// An item under its folder's next number.
    fn put(&mut self, item: Item) -> u32 {
        let folder = self.folders.get_mut(&item.folder).expect("whoever puts has looked for it");
        let number = u32::try_from(folder.next).expect("whoever puts has looked if there are numbers");
        folder.next += 1;
        (folder.count, folder.bytes) = (folder.count + 1, folder.bytes + u64::from(item.size));
        (folder.changed, folder.marks) = (self.change, folder.marks | item.marks);
        folder.count_marks(item.marks, 1);
        self.places.insert(Place { object: item.object, folder: item.folder, number });
        self.items.insert(Item { number, ..item });
        number
    }

    /// Removes an item. Its object, if it was the last one of that: it is gone.
    fn take(&mut self, folder: u32, number: u32) -> Option<Id> {
        let item = self.items.remove((folder, number))?;
        self.places.remove((item.object, folder));
        let of = self.folders.get_mut(&folder).expect("its items are in it");
        (of.count, of.bytes, of.changed) = (of.count - 1, of.bytes - u64::from(item.size), self.change);
        of.count_marks(item.marks, -1);
        let removed = Arc::make_mut(&mut of.removed);
        removed.push_back((self.change, number));
        self.removals += 1;
        if removed.len() > LEDGER_REMOVED_KEPT {
            of.floor = removed.pop_front().map_or(of.floor, |(change, _)| change);
            self.removals -= 1;
        }
        let is_last = self.places(item.object).next().is_none();
        is_last.then(|| {
            self.gone.insert(Gone { object: item.object, closed: None });
            item.object
        })
    }
}

impl Folder {
    /// How many numbers it can give.
    pub fn room(&self) -> u64 {
        (u64::from(u32::MAX) + 1).saturating_sub(self.next)
    }

    fn count_marks(&mut self, marks: u64, more: i32) {
        self.marks |= marks;
        for (at, count) in self.marked.iter_mut().enumerate().filter(|(at, _)| marks >> at & 1 == 1) {
            *count = count.checked_add_signed(more).unwrap_or_else(|| panic!("items with mark {at} are counted"));
        }
    }
}

impl Marking {
    pub fn of(self, now: u64, marks: u64) -> u64 {
        match self {
            Marking::Add => now | marks,
            Marking::Remove => now & !marks,
            Marking::Set => marks,
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::sample;
