//! This node's share of the log: what is appended, who waits for it, and when a checkpoint replaces it.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Parts, Record, Ticket};
use bytes::Bytes;
use class::Version;

use crate::batch::{self, Batch, Row, RowLies};
use crate::body::Piece;
use crate::held::Held;
use crate::lies::Lies;
use crate::limits::{GRAVE_RECORD_BYTES, RECORD_BYTES, SAVE_PACKS};
use crate::names::Slot;
use crate::table::Entry;
use crate::wire::{Logged, LoggedPiece, Verdict};
use crate::{Body, Call, GROUP, Key, Object, Output, Stamp};

/// Somebody who waits until something is on the disk.
pub(crate) struct Waiter {
    pub to: NodeId,
    /// Number of the question.
    pub id: u64,
    pub waits: Waits,
}

pub(crate) enum Waits {
    Took {
        key: Key,
        verdict: Verdict,
    },
    /// A piece of what is on this stage, which ends there.
    Staged {
        stage: u64,
        upto: usize,
    },
}

#[derive(Default)]
pub(crate) struct Log {
    last: Ticket,
    /// All up to here is on the disk.
    safe: Ticket,
    /// All up to here is forced there: a power cut takes none of it.
    forced: Ticket,
    /// Appended with force, and not safe: bytes, and who waits.
    unforced: BTreeMap<Ticket, (usize, Vec<Waiter>)>,
    unforced_bytes: u64,
    /// What it has on the disk: its last checkpoint, or so, and what was appended since.
    bytes: u64,
    /// A checkpoint is being made,
    making: Option<Making>,
    /// ... or is on its way to the disk.
    saving: Option<Ticket>,
    /// The disk has what lies under numbers of namespaces that were removed: the next checkpoint is without it, and comes soon.
    pub has_removed: bool,
    /// The disk takes nothing.
    pub is_full: bool,
}

/// What a checkpoint has of entries up to a key, without those that have changed meanwhile.
#[derive(Default)]
struct Making {
    records: Vec<Bytes>,
    /// Some that become one record.
    batch: Batch,
    /// Up to there, of deletions that are over, which come after the entries.
    is_at_graves: bool,
    after: Option<Slot>,
}

impl Log {
    pub fn pending(&self) -> u64 {
        self.unforced.len() as u64
    }

    pub fn last(&self) -> Ticket {
        self.last
    }

    /// All up to here is on the disk.
    pub fn safe(&self) -> Ticket {
        self.safe
    }

    pub fn forced(&self) -> Ticket {
        self.forced
    }

    pub fn unforced_bytes(&self) -> u64 {
        self.unforced_bytes
    }

    pub fn is_safe(&self, ticket: Ticket) -> bool {
        ticket <= self.safe
    }

    /// Has somebody wait for what is under way.
    pub fn wait(&mut self, ticket: Ticket, waiter: Waiter) {
        let (_, waiters) = self.unforced.get_mut(&ticket).expect("what is not safe is under way");
        waiters.push(waiter);
    }

    pub fn saved(&mut self, ticket: Ticket) {
        if self.saving == Some(ticket) {
            self.saving = None;
        }
        // What was appended before is replaced.
        self.forced = self.forced.max(ticket);
    }

    fn next(&mut self) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.last
    }
}

impl Object {
    /// Appends an entry as it is now, with its bytes or without. The ticket of a forced one says when it is safe.
    pub(crate) fn append(&mut self, call: &mut Call, key: &Key, with_body: bool, force: bool) -> Ticket {
        let entry = self.table.get(key).expect("what is appended is there");
        let logged = if with_body { logged(key, entry) } else { Logged::without_body(key, &entry.held) };
        self.append_record(call, logged.record(), force)
    }

    /// Keeps that there is nothing here any more. If that is lost, it is given up once more.
    pub(crate) fn append_drop(&mut self, call: &mut Call, key: &Key, held: Held) {
        let logged = Logged { dropped: true, ..Logged::without_body(key, &held) };
        self.append_record(call, logged.record(), false);
    }

    /// The record that says where an entry lies, if it lies in a pack.
    pub(crate) fn placed(&self, key: &Key) -> Option<Record> {
        let logged = logged(key, self.table.get(key)?);
        logged.place.is_some().then(|| logged.record())
    }

    /// Keeps a piece. Until an entry behind it names its set, it is of nothing.
    pub(crate) fn append_piece(&mut self, call: &mut Call, set: u64, from: usize, piece: &Piece, waiter: Waiter) {
        let record = LoggedPiece { set, from, piece: piece.clone() }.record();
        let ticket = self.append_record(call, record, true);
        self.log.wait(ticket, waiter);
    }

    fn append_record(&mut self, call: &mut Call, record: Record, force: bool) -> Ticket {
        self.append_records(call, vec![record], force)
    }

    pub(crate) fn append_records(&mut self, call: &mut Call, records: Vec<Record>, force: bool) -> Ticket {
        let (ticket, bytes) = (self.log.next(), records.iter().map(Record::len).sum::<usize>());
        self.log.bytes += bytes as u64;
        if force {
            self.log.unforced.insert(ticket, (bytes, Vec::new()));
            self.log.unforced_bytes += bytes as u64;
        }
        call.out.push(Output::Append { group: GROUP, records, ticket, force });
        ticket
    }

    pub(crate) fn appended(&mut self, call: &mut Call, ticket: Ticket) {
        // One that was not forced is safe by no force of its own: those before it are.
        self.log.safe = self.log.safe.max(ticket);
        if self.log.unforced.contains_key(&ticket) {
            self.log.forced = self.log.forced.max(ticket);
        }
        while let Some(first) = self.log.unforced.first_entry().filter(|first| *first.key() <= ticket) {
            let (bytes, waiters) = first.remove();
            self.log.unforced_bytes -= bytes as u64;
            for waiter in waiters {
                self.is_safe(call, waiter);
            }
        }
    }

    fn is_safe(&mut self, call: &mut Call, waiter: Waiter) {
        let Waiter { to, id, waits } = waiter;
        match waits {
            Waits::Took { key, verdict } => self.answer_took(call, to, id, key, verdict),
            Waits::Staged { stage, upto } => self.is_staged(call, to, stage, upto),
        }
    }

    /// Replaces the log by what there is, when that makes it much shorter. Deletions that all have, and that are old, are forgotten.
    pub(crate) fn checkpoint(&mut self, call: &mut Call) {
        if self.log.making.is_none() {
            // What is in packs is no part of it but for the place.
            let has = self.checkpoint_bytes();
            let is_due = self.log.bytes >= 2 * has + SAVE_PACKS * self.settings.pack_bytes || self.log.has_removed;
            if self.log.saving.is_some() || !is_due || self.log.is_full {
                return;
            }
            self.log.has_removed = false;
            self.table.changed = Some(BTreeSet::new());
            self.log.making = Some(Making::default());
        }
        if self.make_some() && !self.log.is_full {
            self.save(call);
        }
    }

    /// What a checkpoint has, about.
    fn checkpoint_bytes(&self) -> u64 {
        let (entries, graves) = (self.table.len() as u64, self.table.graves().len() as u64);
        self.table.here + entries * RECORD_BYTES + graves * GRAVE_RECORD_BYTES
    }

    /// A part of the checkpoint: a walk over all entries in one turn would hold up whatever else there is to do. True: it was the last.
    fn make_some(&mut self) -> bool {
        let Some(mut making) = self.log.making.take() else { return false };
        let mut room = self.settings.save_entries;
        if !making.is_at_graves {
            let count = self.make_entries(&mut making, room);
            if count < room {
                (making.is_at_graves, making.after) = (true, None);
            }
            room -= count;
        }
        let is_last = making.is_at_graves && self.make_graves(&mut making, room) < room;
        if is_last {
            making.records.extend(making.batch.end());
        }
        self.log.making = Some(making);
        is_last
    }

    fn make_entries(&mut self, making: &mut Making, room: usize) -> usize {
        let (mut count, mut here) = (0, Vec::new());
        for (slot, entry) in self.table.range(making.after).take(room) {
            count += 1;
            making.after = Some(slot);
            let key = self.table.key(slot);
            let row = match &entry.body {
                Lies::Packed(place) if self.level >= batch::LEVEL => Row::of(&key, &entry.held, place),
                Lies::Packed(_) | Lies::Here(_) => None,
            };
            match row {
                Some(row) => making.records.extend(making.batch.push(row)),
                None if entry.body.here() == 0 => making.records.push(logged(&key, entry).record().into()),
                // It may be in a pack, or gone, when all the others are told.
                None => here.push(key),
            }
        }
        if let Some(changed) = &mut self.table.changed {
            changed.extend(here);
        }
        count
    }

    fn make_graves(&mut self, making: &mut Making, room: usize) -> usize {
        let mut count = 0;
        for grave in self.table.graves().range(making.after).take(room) {
            count += 1;
            making.after = Some(grave.slot);
            let (key, held, lies) = (self.table.key(grave.slot), grave.held(), RowLies::Gone { since: grave.since });
            if self.level >= batch::LEVEL {
                making.records.extend(making.batch.push(Row { key, held, lies }));
            } else {
                making.records.push(Logged::without_body(&key, &held).record().into());
            }
        }
        count
    }

    /// With what has changed since it was begun: of two records about an entry the later one holds.
    fn save(&mut self, call: &mut Call) {
        let (Some(making), Some(changed)) = (self.log.making.take(), self.table.changed.take()) else { return };
        // What is on a stage may be named by a put that comes later.
        let staged = self.stages.iter().map(|stage| (stage.set, stage.pieces.clone(), None));
        let entry = |key: &Key| match self.table.get(key) {
            Some(entry) => {
                let pieces = match &entry.body {
                    Lies::Here(body) if entry.set > 0 => body.pieces().to_vec(),
                    Lies::Here(_) | Lies::Packed(_) => Vec::new(),
                };
                (entry.set, pieces, Some(logged(key, entry)))
            }
            None => {
                let grave = self.table.grave(key).map(|grave| Logged::without_body(key, &grave.held()));
                (0, Vec::new(), Some(grave.unwrap_or_else(|| Logged::nothing(key))))
            }
        };
        let rest: Vec<(u64, Vec<Piece>, Option<Logged>)> = staged.chain(changed.iter().map(entry)).collect();
        let ticket = self.log.next();
        self.log.bytes = self.stages.bytes() + self.checkpoint_bytes();
        self.log.saving = Some(ticket);
        let rest = rest.into_iter().flat_map(|(set, pieces, logged)| {
            let head = logged.into_iter().map(|logged| Bytes::from(logged.record()));
            pieces_of(set, pieces).map(|piece| Bytes::from(piece.record())).chain(head)
        });
        let parts = Parts(Box::new(making.records.into_iter().chain(rest)));
        call.out.push(Output::Save { group: GROUP, parts, ticket });
    }

    fn restore_row(&mut self, row: Row) {
        let place = row.place();
        let Row { key, held, lies } = row;
        match (lies, place) {
            (RowLies::Packed { .. }, Some(place)) => {
                let body = Lies::Packed(place);
                self.table.insert(key, Entry { held, body, set: 0, ticket: Ticket(0), serial: 0 });
            }
            (RowLies::Gone { since }, _) => self.table.restore_grave(&key, held, since),
            (RowLies::Packed { .. }, None) => (),
        }
    }

    /// What the disk has kept: records in order, each later one instead of what it is about.
    pub(crate) fn restore(&mut self, records: Vec<Bytes>) {
        let mut sets: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        self.log.bytes = records.iter().map(|record| record.len() as u64).sum();
        for record in records {
            if let Some(LoggedPiece { set, from, piece }) = LoggedPiece::read(&record) {
                let pieces = sets.entry(set).or_default();
                if from == 0 {
                    pieces.clear();
                }
                // What lies in memory for long must not keep all that was read.
                pieces.push(Piece { bytes: Bytes::copy_from_slice(&piece.bytes), ..piece });
                continue;
            }
            if let Some(rows) = batch::read(&record) {
                rows.into_iter().for_each(|row| self.restore_row(row));
                continue;
            }
            let Some(Logged { key, held, body, set, place, dropped }) = Logged::read(record) else {
                self.distrust = Some("the log has an object that this program cannot read".into());
                return;
            };
            if dropped {
                self.table.remove(&key);
                continue;
            }
            if let Some(place) = place {
                let body = Lies::Packed(place);
                self.table.insert(key, Entry { held, body, set: 0, ticket: Ticket(0), serial: 0 });
                continue;
            }
            let (body, set) = match (body, set, held.stamp.gone) {
                (.., true) => (Body::default(), 0),
                (Some(body), _, false) if body.is_empty() => (Body::default(), 0),
                (Some(body), _, false) => {
                    (Body::of(vec![Piece { bytes: Bytes::copy_from_slice(&body), sum: held.stamp.sum }]), 0)
                }
                (None, 1.., false) => {
                    let body = Body::of(sets.remove(&set).unwrap_or_default());
                    if body.len() != held.stamp.size as usize {
                        self.distrust = Some("the log lacks pieces of an object that it has".into());
                        return;
                    }
                    (body, set)
                }
                // Only its homes changed.
                (None, 0, false) => {
                    if self.table.get(&key).is_some_and(|entry| entry.held.stamp.is_same(&held.stamp)) {
                        self.table.hold(&key, held);
                    }
                    continue;
                }
            };
            self.table.insert(key, Entry { held, body: Lies::Here(body), set, ticket: Ticket(0), serial: 0 });
        }
        let is_bad = |(_, entry): &(Slot, &Entry)| {
            let stamp = entry.held.stamp;
            !stamp.gone && entry.body.is_bad(stamp.sum, stamp.size)
        };
        let bad: Vec<Key> = self.table.range(None).filter(is_bad).map(|(slot, _)| self.table.key(slot)).collect();
        bad.iter().for_each(|key| self.was_kept_badly(key));
        // Pieces of what was never put: the next checkpoint is without them.
        self.log.has_removed |= !sets.is_empty();
    }
}

impl Logged {
    /// There is nothing here.
    fn nothing(key: &Key) -> Self {
        let held = Held::bare(Stamp { version: Version::default(), once: false, gone: false, sum: 0, size: 0 });
        Self { dropped: true, ..Self::without_body(key, &held) }
    }

    fn without_body(key: &Key, held: &Held) -> Self {
        Self { key: key.clone(), held: held.clone(), body: None, set: 0, place: None, dropped: false }
    }
}

/// An entry with its bytes, or with the name of their set, or with their place.
pub(crate) fn logged(key: &Key, entry: &Entry) -> Logged {
    let without = Logged::without_body(key, &entry.held);
    match &entry.body {
        Lies::Packed(place) => Logged { place: Some(place.clone()), ..without },
        Lies::Here(_) if entry.held.stamp.gone || entry.set > 0 => Logged { set: entry.set, ..without },
        Lies::Here(body) => Logged { body: Some(body.whole()), ..without },
    }
}

pub(crate) fn pieces_of(set: u64, pieces: Vec<Piece>) -> impl Iterator<Item = LoggedPiece> {
    let mut from = 0;
    pieces.into_iter().map(move |piece| {
        let begins = from;
        from += piece.bytes.len();
        LoggedPiece { set, from: begins, piece }
    })
}
