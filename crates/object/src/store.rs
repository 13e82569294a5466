//! Bytes on their way into packs and out of them. What was put lies in memory, and in the log, until there is enough for a pack; when the
//! pack is forced, and not before, the log says where the bytes lie, and its next checkpoint is without them. A pack whose objects are
//! mostly gone is read, and what is left goes into another one. Whoever wants bytes that are in a pack is answered when the disk has given
//! them: nothing waits for it.

use std::collections::{BTreeMap, VecDeque};

use base::checksum::Checksum;
use base::{NodeId, PackSaid, PackWant, Priority};
use bytes::Bytes;

use crate::lies::{Found, Lies, Part, Parts, Place, parts_of};
use crate::limits::{BEHIND_PACKS, FETCH_BYTES_MAX, FETCHES_WAITING_MAX, PACK_ENTRIES, WATCH_SCAN};
use crate::names::Slot;
use crate::wire::{Here, PieceMessage, PutMessage, What};
use crate::{Call, GROUP, Key, Object, Output, Settings};

/// The level from which bytes lie in packs: an older program would not find them.
pub const LEVEL: u32 = 8;

#[derive(Default)]
pub(crate) struct Store {
    /// The pack that is being written.
    packing: Option<Packing>,
    moving: Moving,
    fetches: BTreeMap<u64, Fetch>,
    waiting: VecDeque<Fetch>,
    /// Bytes that the disk was asked for and has not given.
    fetch_bytes: u64,
    last: u64,
    /// The object that was looked at last without being asked for, and the byte from which it is looked at next.
    checked: Option<(Slot, usize)>,
}

struct Packing {
    pack: u64,
    size: u64,
    /// With the number of the entry, which is another one if it has other bytes.
    of: Vec<(Slot, u64, Place)>,
    /// The packs that all of it was in, if it is moved, and what goes with them.
    from: Vec<u64>,
    gained: u64,
}

/// What is left of some packs, on its way into another one.
#[derive(Default)]
struct Moving {
    /// Packs that were read.
    from: Vec<u64>,
    of: Vec<(Slot, u64, Parts, Bytes)>,
    bytes: u64,
    /// Bytes of those packs that nothing needs.
    gained: u64,
    /// One is being read.
    is_reading: bool,
}

/// Bytes that the disk is asked for.
struct Fetch {
    key: Key,
    /// Serial number of the entry.
    serial: u64,
    /// Where they begin in the object.
    begins: usize,
    pack: u64,
    from: u64,
    part: Part,
    why: Why,
}

pub(crate) enum Why {
    /// A question for this piece.
    Get { to: NodeId, id: u64 },
    /// The object is pushed whole.
    Push { to: NodeId },
    /// The part is one of several of an object that go there in pieces, under this name.
    Ship { to: NodeId, stage: u64, priority: Priority },
    /// Nobody: that it rots is to be known while another copy is sound.
    Check,
    /// What is left of the pack goes into another one.
    Move,
}

impl Object {
    /// The packs that the disk has, as it was found.
    pub(crate) fn packs_are_there(&mut self, call: &mut Call, there: &BTreeMap<u64, u64>) {
        for pack in self.table.packs.are_there(there) {
            call.pack(PackWant::Drop { pack });
        }
        let lacks = |(_, place): &(Key, &Place)| !self.table.packs.has(place);
        let bad: Vec<Key> = self.table.places().filter(lacks).map(|(key, _)| key).collect();
        bad.iter().for_each(|key| self.was_kept_badly(key));
    }

    pub(crate) fn pack_said(&mut self, call: &mut Call, said: PackSaid) {
        match said {
            PackSaid::Written { pack } => self.is_packed(call, pack),
            PackSaid::Read { number, bytes } => self.has_read(call, number, bytes),
        }
    }

    /// At the end of a turn: has a pack written if there is enough for one, and lets those go that are needed no more.
    pub(crate) fn pack_on(&mut self, call: &mut Call) {
        for pack in self.table.packs.settle(self.log.last(), self.log.forced()) {
            call.pack(PackWant::Drop { pack });
        }
        if self.level < LEVEL || self.store.packing.is_some() {
            return;
        }
        if !self.store.moving.is_reading && !self.store.moving.of.is_empty() {
            return self.pack_moved(call);
        }
        // Or so many small ones: they are records of the next checkpoint, each.
        if self.table.here >= self.settings.pack_bytes || self.table.here_count >= 2 * PACK_ENTRIES {
            self.pack_some(call);
        }
    }

    /// What has waited longest.
    fn pack_some(&mut self, call: &mut Call) {
        let (mut parts, mut of, mut size) = (Vec::new(), Vec::new(), 0);
        while let Some((slot, serial)) = self.table.waiting.pop_front() {
            let Some(entry) = self.table.at(slot).filter(|entry| entry.serial == serial) else { continue };
            let Lies::Here(body) = &entry.body else { continue };
            // A bad one is not made to last.
            if body.is_empty() || self.mending.is_bad(&self.table.key(slot)) {
                continue;
            }
            let len = body.len() as u64;
            if size > 0 && (size + len > self.settings.pack_bytes || of.len() >= PACK_ENTRIES) {
                self.table.waiting.push_front((slot, serial));
                break;
            }
            parts.extend(body.pieces().iter().map(|piece| piece.bytes.clone()));
            of.push((slot, serial, Place { pack: 0, from: size, parts: parts_of(body) }));
            size += len;
        }
        self.write_pack(call, parts, Packing { pack: 0, size, of, from: Vec::new(), gained: 0 });
    }

    fn pack_moved(&mut self, call: &mut Call) {
        let Moving { from, of: moved, gained, .. } = std::mem::take(&mut self.store.moving);
        let (mut parts, mut of, mut size) = (Vec::new(), Vec::new(), 0);
        for (slot, serial, of_it, bytes) in moved {
            let begins = size;
            size += bytes.len() as u64;
            parts.push(bytes);
            of.push((slot, serial, Place { pack: 0, from: begins, parts: of_it }));
        }
        self.write_pack(call, parts, Packing { pack: 0, size, of, from, gained });
    }

    fn write_pack(&mut self, call: &mut Call, parts: Vec<Bytes>, mut packing: Packing) {
        if packing.of.is_empty() {
            return;
        }
        let pack = self.table.packs.next();
        packing.pack = pack;
        packing.of.iter_mut().for_each(|(.., place)| place.pack = pack);
        self.store.packing = Some(packing);
        let hurry = self.table.here >= BEHIND_PACKS / 2 * self.settings.pack_bytes;
        call.pack(PackWant::Write { pack, parts, hurry });
    }

    /// Notes that a pack is forced: from now on the log says where those bytes lie.
    fn is_packed(&mut self, call: &mut Call, pack: u64) {
        let Some(Packing { size, of, .. }) = self.store.packing.take_if(|packing| packing.pack == pack) else { return };
        let of: Vec<Key> =
            of.into_iter().filter_map(|(slot, serial, place)| self.table.place(slot, serial, place)).collect();
        self.table.packs.is_written(pack, size);
        self.append_places(call, &of);
        self.say_owed(call);
    }

    /// Reads packs that are mostly empty, as many as one takes what is left of.
    pub(crate) fn move_on(&mut self, call: &mut Call) {
        let Store { moving, packing, .. } = &self.store;
        if self.level < LEVEL || moving.is_reading {
            return;
        }
        let (slack, room) = (self.settings.waste_bytes, self.settings.pack_bytes.saturating_sub(moving.bytes));
        // What is left of these is being written, and they go then.
        let but: Vec<u64> =
            moving.from.iter().chain(packing.iter().flat_map(|packing| &packing.from)).copied().collect();
        let gained = moving.gained + packing.as_ref().map_or(0, |packing| packing.gained);
        let Some((pack, size)) = self.table.packs.worst(slack, gained, room, &but) else { return };
        self.store.moving.is_reading = true;
        self.store.moving.from.push(pack);
        let part = Part { len: size as u32, sum: 0 };
        let key = Key { ns: 0, owner: Bytes::new(), id: crate::Id::default() };
        self.fetch(call, Fetch { key, serial: 0, begins: 0, pack, from: 0, part, why: Why::Move });
    }

    fn has_read_pack(&mut self, call: &mut Call, pack: u64, bytes: Option<Bytes>) {
        self.store.moving.is_reading = false;
        let Some(bytes) = bytes else {
            // Each that is asked for, or pushed, is looked at by itself.
            self.table.packs.is_unreadable(pack);
            return;
        };
        self.store.moving.gained += self.table.packs.size(pack);
        for slot in self.table.packs.slots(pack) {
            let Some(entry) = self.table.at(slot) else { continue };
            let Lies::Packed(place) = &entry.body else { continue };
            if place.pack != pack {
                continue;
            }
            let (from, len) = (place.from as usize, place.len() as usize);
            let mine = bytes.get(from..from + len).unwrap_or_default();
            let mut rest = mine;
            let is_right = place.parts.iter().all(|part| {
                let Some((these, behind)) = rest.split_at_checked(part.len as usize) else { return false };
                rest = behind;
                Checksum(part.sum).matches(these)
            });
            let (serial, parts) = (entry.serial, place.parts.clone());
            if !is_right {
                self.is_damaged(call, &self.table.key(slot));
                continue;
            }
            // All that was read is not kept for what is left of it.
            let mine = Bytes::copy_from_slice(mine);
            self.store.moving.bytes += len as u64;
            self.store.moving.gained = self.store.moving.gained.saturating_sub(len as u64);
            self.store.moving.of.push((slot, serial, parts, mine));
        }
        if self.store.moving.of.is_empty() {
            self.store.moving = Moving::default();
        }
        self.move_on(call);
    }

    /// Gives a piece of an entry to whoever wants it, now or when the disk has given it. False: there is no such piece, or it is bad.
    pub(crate) fn give(&mut self, call: &mut Call, key: &Key, at: usize, why: Why) -> bool {
        if self.mending.is_bad(key) {
            return false;
        }
        let Some(entry) = self.table.get(key) else { return false };
        let serial = entry.serial;
        match entry.body.piece_at(at) {
            None => false,
            Some((begins, Found::Here(piece))) => {
                let is_right = piece.is_right();
                if is_right {
                    let part = Part { len: piece.bytes.len() as u32, sum: piece.sum };
                    self.given(call, key, begins, part, piece.bytes, why);
                } else {
                    self.is_damaged(call, key);
                }
                is_right
            }
            Some((begins, Found::Packed { pack, from, part })) => {
                self.fetch(call, Fetch { key: key.clone(), serial, begins, pack, from, part, why });
                true
            }
        }
    }

    fn fetch(&mut self, call: &mut Call, fetch: Fetch) {
        // Whoever asked for it asks again, or somebody else.
        if self.store.waiting.len() < FETCHES_WAITING_MAX {
            self.store.waiting.push_back(fetch);
        } else if matches!(fetch.why, Why::Move) {
            self.store.moving.is_reading = false;
            self.store.moving.from.pop();
        }
        self.fetch_on(call);
    }

    fn fetch_on(&mut self, call: &mut Call) {
        while self.store.fetch_bytes < FETCH_BYTES_MAX {
            let Some(fetch) = self.store.waiting.pop_front() else { break };
            self.store.last += 1;
            let (number, len) = (self.store.last, fetch.part.len);
            self.store.fetch_bytes += u64::from(len);
            call.pack(PackWant::Read { number, pack: fetch.pack, from: fetch.from, len });
            self.store.fetches.insert(number, fetch);
        }
    }

    fn has_read(&mut self, call: &mut Call, number: u64, bytes: Option<Bytes>) {
        let Some(fetch) = self.store.fetches.remove(&number) else { return };
        self.store.fetch_bytes -= u64::from(fetch.part.len);
        self.fetch_on(call);
        let Fetch { key, serial, begins, pack, from, part, why } = fetch;
        if matches!(why, Why::Move) {
            return self.has_read_pack(call, pack, bytes.filter(|bytes| bytes.len() == part.len as usize));
        }
        let is_right = |bytes: &Bytes| bytes.len() == part.len as usize && Checksum(part.sum).matches(bytes);
        let bytes = bytes.filter(is_right);
        let is_same = self.table.get(&key).is_some_and(|entry| entry.serial == serial);
        match bytes {
            Some(bytes) if is_same && !self.mending.is_bad(&key) => self.given(call, &key, begins, part, bytes, why),
            bytes => {
                let now = self.table.get(&key).and_then(|entry| entry.body.piece_at(begins));
                let is_there_yet = now == Some((begins, Found::Packed { pack, from, part }));
                if bytes.is_none() && is_same && is_there_yet && !self.mending.is_bad(&key) {
                    self.is_damaged(call, &key);
                }
                // It lies elsewhere by now, or something else is here.
                self.give_or_not(call, &key, begins, why);
            }
        }
    }

    fn give_or_not(&mut self, call: &mut Call, key: &Key, at: usize, why: Why) {
        if let Why::Get { to, id } = why {
            self.got(call, to, id, key, at as u32);
        } else {
            self.give(call, key, at, why);
        }
    }

    fn given(&mut self, call: &mut Call, key: &Key, begins: usize, part: Part, bytes: Bytes, why: Why) {
        let Some(entry) = self.table.get(key) else { return };
        match why {
            Why::Get { to, id } => {
                let here = Here {
                    objects: 0,
                    held: Some((&entry.held).into()),
                    safe: false,
                    from: begins as u32,
                    sum: part.sum,
                };
                self.send(call, to, id, Priority::NORMAL, What::Got(here), bytes);
            }
            Why::Push { to } => {
                let put = PutMessage { key: Some(key.into()), held: Some((&entry.held).into()), push: true, stage: 0 };
                self.send(call, to, 0, Priority::LOWEST, What::Put(put), bytes);
            }
            Why::Ship { to, stage, priority } => {
                let message = PieceMessage { stage, from: begins as u32, sum: part.sum };
                self.send(call, to, 0, priority, What::Piece(message), bytes);
            }
            Why::Move | Why::Check => (),
        }
    }

    /// Reads a piece that nobody asks for, in turn, while the disk has nothing else to read.
    pub(crate) fn check_on(&mut self, call: &mut Call) {
        if !self.store.fetches.is_empty() {
            return;
        }
        let from = self.store.checked.take();
        let is_there = |(slot, at): &(Slot, usize)| {
            let body = self.table.at(*slot).map(|entry| &entry.body);
            body.is_some_and(|body| matches!(body, Lies::Packed(_)) && body.piece_at(*at).is_some())
        };
        let (slot, at) = match from.filter(is_there) {
            Some(from) => from,
            None => {
                // What lies in no pack is passed over, so much of it in one turn.
                let mut last = None;
                let mut behind = self.table.range(from.map(|(slot, _)| slot)).take(WATCH_SCAN);
                let found = behind.find(|(slot, entry)| {
                    last = Some(*slot);
                    matches!(entry.body, Lies::Packed(_))
                });
                let Some((slot, _)) = found else {
                    self.store.checked = last.map(|slot| (slot, usize::MAX));
                    return;
                };
                (slot, 0)
            }
        };
        let next = self
            .table
            .at(slot)
            .and_then(|entry| entry.body.piece_at(at))
            .map_or(usize::MAX, |(begins, found)| begins + found.len());
        self.give(call, &self.table.key(slot), at, Why::Check);
        self.store.checked = Some((slot, next));
    }

    /// Where these lie now. With force: the packs they were in before go when it is safe.
    fn append_places(&mut self, call: &mut Call, keys: &[Key]) {
        let records: Vec<_> = keys.iter().filter_map(|key| self.placed(key)).collect();
        if !records.is_empty() {
            self.append_records(call, records, true);
        }
    }
}

impl Store {
    /// So much lies in memory that what comes in pieces had better wait until more of it is in packs.
    pub fn is_behind(&self, here: u64, settings: &Settings) -> bool {
        self.packing.is_some() && here >= BEHIND_PACKS * settings.pack_bytes
    }
}

impl Call<'_> {
    fn pack(&mut self, want: PackWant) {
        self.out.push(Output::Pack { group: GROUP, want });
    }
}
