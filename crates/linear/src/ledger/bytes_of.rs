//! A ledger as bytes: of snapshots and dumps. Lists are of fixed lengths, numbers little end first. What is read is believed only if
//! it is what a ledger can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;

use super::{Folder, Gone, Id, Item, Ledger, MARKS_COUNTED, MARKS_MAX, Place, is_name};
use crate::limits::{LEDGER_FOLDERS_MAX, LEDGER_KEYWORDS_MAX, LEDGER_REMOVED_KEPT, VERSION_LOADED_MAX};

#[derive(Clone, PartialEq, prost::Message)]
struct WireLedger {
    #[prost(uint64, tag = "1")]
    change: u64,
    #[prost(uint32, tag = "2")]
    validity: u32,
    #[prost(uint32, tag = "3")]
    last_folder: u32,
    #[prost(message, repeated, tag = "4")]
    folders: Vec<WireFolder>,
    /// Objects that are gone and not closed, in order: 16 bytes each.
    #[prost(bytes = "bytes", tag = "5")]
    open: Bytes,
    /// Those that are closed, in the order of that: object 16, when 8.
    #[prost(bytes = "bytes", tag = "6")]
    closed: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    keywords: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireFolder {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(bytes = "bytes", tag = "2")]
    name: Bytes,
    #[prost(uint32, tag = "3")]
    validity: u32,
    #[prost(uint64, tag = "4")]
    next: u64,
    #[prost(uint64, tag = "5")]
    changed: u64,
    #[prost(uint64, tag = "6")]
    floor: u64,
    #[prost(bool, tag = "7")]
    is_subscribed: bool,
    #[prost(uint64, tag = "8")]
    marks: u64,
    /// In order of numbers: number 4, object 16, marks 8, change 8, size 4, date 4.
    #[prost(bytes = "bytes", tag = "9")]
    items: Bytes,
    /// In order of changes: change 8, number 4.
    #[prost(bytes = "bytes", tag = "10")]
    removed: Bytes,
}

const ITEM: usize = 44;
const REMOVED: usize = 12;
const OPEN: usize = size_of::<Id>();
const CLOSED: usize = OPEN + 8;

impl Ledger {
    pub fn encode(&self) -> Bytes {
        let (mut open, mut closed) = (BytesMut::new(), BytesMut::with_capacity(self.closed.len() * CLOSED));
        self.open_from([0; 16]).for_each(|object| open.put_slice(&object));
        for object in self.closed.iter() {
            closed.put_slice(object);
            closed.put_u64_le(self.gone.get(*object).and_then(|gone| gone.closed).unwrap_or_default());
        }
        let wire = WireLedger {
            change: self.change,
            validity: self.validity,
            last_folder: self.last_folder,
            folders: self.folders().map(|(id, folder)| self.encode_folder(id, folder)).collect(),
            open: open.freeze(),
            closed: closed.freeze(),
            keywords: self.keywords.clone(),
        };
        wire.encode_to_vec().into()
    }

    fn encode_folder(&self, id: u32, folder: &Folder) -> WireFolder {
        let mut items = BytesMut::with_capacity(folder.count as usize * ITEM);
        for item in self.items(id, 0..=u32::MAX) {
            items.put_u32_le(item.number);
            items.put_slice(&item.object);
            items.put_u64_le(item.marks);
            items.put_u64_le(item.change);
            items.put_u32_le(item.size);
            items.put_u32_le(item.date);
        }
        let mut removed = BytesMut::with_capacity(folder.removed.len() * REMOVED);
        for (change, number) in folder.removed.iter() {
            removed.put_u64_le(*change);
            removed.put_u32_le(*number);
        }
        WireFolder {
            id,
            name: folder.name.clone(),
            validity: folder.validity,
            next: folder.next,
            changed: folder.changed,
            floor: folder.floor,
            is_subscribed: folder.is_subscribed,
            marks: folder.marks,
            items: items.freeze(),
            removed: removed.freeze(),
        }
    }

    /// None, if no ledger is so.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire = WireLedger::decode(bytes).ok()?;
        let mut ledger = Self {
            change: wire.change,
            validity: wire.validity,
            last_folder: wire.last_folder,
            keywords: wire.keywords.iter().map(|name| Bytes::copy_from_slice(name)).collect(),
            ..Self::default()
        };
        let has_odd_name = || !ledger.keywords.iter().all(|name| is_name(name));
        let has_too_many = wire.folders.len() > LEDGER_FOLDERS_MAX || ledger.keywords.len() > LEDGER_KEYWORDS_MAX;
        if wire.change > VERSION_LOADED_MAX || has_too_many || has_odd_name() {
            return None;
        }
        let mut names = BTreeMap::new();
        for folder in wire.folders {
            names.insert(folder.name.clone(), folder.id).is_none().then_some(())?;
            ledger.decode_folder(folder)?;
        }
        ledger.decode_gone(wire.open, wire.closed)?;
        Some(ledger)
    }

    fn decode_folder(&mut self, wire: WireFolder) -> Option<()> {
        let is_next = wire.id > self.folders.last_key_value().map_or(0, |(id, _)| *id) && wire.id <= self.last_folder;
        let is_named = is_name(&wire.name);
        let fits = wire.validity <= self.validity && wire.changed <= self.change && wire.floor <= self.change;
        let removals = wire.removed.len() / REMOVED;
        let whole = wire.items.len().is_multiple_of(ITEM) && wire.removed.len().is_multiple_of(REMOVED);
        let has_numbers = (1..=u64::from(u32::MAX) + 1).contains(&wire.next);
        if !(is_next && is_named && fits && whole && has_numbers && removals <= LEDGER_REMOVED_KEPT) {
            return None;
        }
        let mut folder = Folder {
            name: Bytes::copy_from_slice(&wire.name),
            validity: wire.validity,
            next: wire.next,
            changed: wire.changed,
            floor: wire.floor,
            is_subscribed: wire.is_subscribed,
            marks: wire.marks,
            marked: [0; MARKS_COUNTED],
            count: 0,
            bytes: 0,
            removed: Arc::default(),
        };
        let (mut items, mut last) = (wire.items, 0);
        while items.has_remaining() {
            let item = read_item(wire.id, &mut items);
            let is_own = item.number > last && u64::from(item.number) < wire.next && item.change <= wire.changed;
            let is_once = self.places.get((item.object, wire.id)).is_none();
            if !is_own || !is_once || item.marks >> MARKS_MAX != 0 {
                return None;
            }
            last = item.number;
            (folder.count, folder.bytes) = (folder.count + 1, folder.bytes + u64::from(item.size));
            folder.count_marks(item.marks, 1);
            self.places.insert(Place { object: item.object, folder: wire.id, number: item.number });
            self.items.insert(item);
        }
        let (mut removed, mut last) = (wire.removed, 0);
        while removed.has_remaining() {
            let (change, number) = (removed.get_u64_le(), removed.get_u32_le());
            let is_own = change >= last && change <= wire.changed && u64::from(number) < wire.next;
            if !is_own || self.items.get((wire.id, number)).is_some() {
                return None;
            }
            last = change;
            Arc::make_mut(&mut folder.removed).push_back((change, number));
        }
        self.removals += folder.removed.len();
        self.folders.insert(wire.id, folder);
        Some(())
    }

    fn decode_gone(&mut self, mut open: Bytes, mut closed: Bytes) -> Option<()> {
        if !open.len().is_multiple_of(OPEN) || !closed.len().is_multiple_of(CLOSED) {
            return None;
        }
        let mut gone = Vec::with_capacity(open.len() / OPEN + closed.len() / CLOSED);
        while open.has_remaining() {
            gone.push(Gone { object: read_id(&mut open), closed: None });
        }
        while closed.has_remaining() {
            let object = read_id(&mut closed);
            Arc::make_mut(&mut self.closed).push_back(object);
            gone.push(Gone { object, closed: Some(closed.get_u64_le()) });
        }
        for one in gone {
            if self.gone.get(one.object).is_some() || self.places(one.object).next().is_some() {
                return None;
            }
            self.gone.insert(one);
        }
        Some(())
    }
}

/// There are as many bytes.
fn read_item(folder: u32, from: &mut Bytes) -> Item {
    let (number, object) = (from.get_u32_le(), read_id(from));
    let (marks, change) = (from.get_u64_le(), from.get_u64_le());
    Item { object, marks, change, folder, number, size: from.get_u32_le(), date: from.get_u32_le() }
}

fn read_id(from: &mut Bytes) -> Id {
    let mut id = [0; 16];
    from.copy_to_slice(&mut id);
    id
}
