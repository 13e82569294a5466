//! This node's share of the log: what is appended, who waits for it, and when a checkpoint replaces it.

use std::collections::BTreeMap;

use base::{NodeId, Parts, Ticket};
use bytes::Bytes;

use crate::limits::{SAVE_BYTES_MIN, TOMBSTONE_MS_NEWEST, TOMBSTONE_MS_ONCE};
use crate::table::{Entry, Held};
use crate::wire::{Logged, Verdict};
use crate::{Call, GROUP, Key, Object, Output};

/// Somebody who waits until a write is on the disk.
pub(crate) struct Waiter {
    pub to: NodeId,
    /// Of the question.
    pub id: u64,
    pub key: Key,
    pub verdict: Verdict,
}

#[derive(Default)]
pub(crate) struct Log {
    last: Ticket,
    /// All up to here is on the disk.
    safe: Ticket,
    /// Appended with force, and not safe: bytes, and who waits.
    unforced: BTreeMap<Ticket, (usize, Vec<Waiter>)>,
    unforced_bytes: u64,
    /// Since the last checkpoint.
    appended_bytes: u64,
    /// A checkpoint is under way.
    saving: Option<Ticket>,
    /// The disk has what lies under numbers of namespaces that were removed: the next checkpoint is without it, and comes soon.
    pub has_removed: bool,
    /// The disk takes nothing.
    pub is_full: bool,
}

impl Log {
    pub fn pending(&self) -> u64 {
        self.unforced.len() as u64
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
    }

    fn next(&mut self) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.last
    }
}

impl Object {
    /// Appends an entry as it is now, with its bytes or without. The ticket of a forced one says when it is safe.
    pub(crate) fn append(&mut self, call: &mut Call, key: &Key, with_body: bool, force: bool) -> Ticket {
        let Entry { held, body, .. } = self.table.get(key).expect("what is appended is there");
        let body = (with_body && !held.stamp.gone).then(|| body.clone());
        let logged = Logged { key: key.clone(), held: held.clone(), body, dropped: false };
        self.append_record(call, &logged, force)
    }

    /// Keeps that there is nothing here any more. If that is lost, it is given up once more.
    pub(crate) fn append_drop(&mut self, call: &mut Call, key: &Key, held: Held) {
        self.append_record(call, &Logged { key: key.clone(), held, body: None, dropped: true }, false);
    }

    fn append_record(&mut self, call: &mut Call, logged: &Logged, force: bool) -> Ticket {
        let record = logged.record();
        let (ticket, bytes) = (self.log.next(), record.len());
        self.log.appended_bytes += bytes as u64;
        if force {
            self.log.unforced.insert(ticket, (bytes, Vec::new()));
            self.log.unforced_bytes += bytes as u64;
        }
        call.out.push(Output::Append { group: GROUP, records: vec![record], ticket, force });
        ticket
    }

    pub(crate) fn appended(&mut self, call: &mut Call, ticket: Ticket) {
        // One that was not forced is safe by no force of its own: those before it are.
        self.log.safe = self.log.safe.max(ticket);
        while let Some(first) = self.log.unforced.first_entry().filter(|first| *first.key() <= ticket) {
            let (bytes, waiters) = first.remove();
            self.log.unforced_bytes -= bytes as u64;
            for waiter in waiters {
                self.answer_took(call, waiter);
            }
        }
    }

    /// Replaces the log by what there is, when that makes it much shorter. Deletions that all have, and that are old, are forgotten.
    pub(crate) fn checkpoint(&mut self, call: &mut Call) {
        let enough = SAVE_BYTES_MIN.max(self.table.bytes);
        let is_due = self.log.appended_bytes >= enough || self.log.has_removed;
        if self.log.saving.is_some() || !is_due || self.log.is_full {
            return;
        }
        self.log.has_removed = false;
        self.forget_tombstones(call.wall_ms);
        let entry = |(key, Entry { held, body, .. }): (&Key, &Entry)| {
            let body = (!held.stamp.gone).then(|| body.clone());
            Logged { key: key.clone(), held: held.clone(), body, dropped: false }
        };
        let all: Vec<Logged> = self.table.iter().map(entry).collect();
        let ticket = self.log.next();
        self.log.appended_bytes = 0;
        self.log.saving = Some(ticket);
        let parts = Parts(Box::new(all.into_iter().map(|logged| Bytes::from(logged.record()))));
        call.out.push(Output::Save { group: GROUP, parts, ticket });
    }

    /// A deletion that is not known everywhere is never forgotten: one node could still bring the object back.
    fn forget_tombstones(&mut self, wall_ms: u64) {
        let is_old = |held: &Held| {
            let kept_ms = if held.stamp.once { TOMBSTONE_MS_ONCE } else { TOMBSTONE_MS_NEWEST };
            held.stamp.gone && held.stamp.version.ms.saturating_add(kept_ms) < wall_ms
        };
        let is_over = |key: &Key, held: &Held| is_old(held) && !self.open.has(key);
        let over = self.table.iter().filter(|(key, entry)| is_over(key, &entry.held)).map(|(key, _)| key.clone());
        for key in over.collect::<Vec<_>>() {
            self.table.remove(&key);
        }
    }

    /// What the disk has kept: records in order, each later one instead of what it is about.
    pub(crate) fn restore(&mut self, records: Vec<Bytes>) {
        for record in records {
            let Some(Logged { key, held, body, dropped }) = Logged::read(record) else {
                self.distrust = Some("the log has an object that this program cannot read".into());
                return;
            };
            if dropped {
                self.table.remove(&key);
                continue;
            }
            let body = match (body, held.stamp.gone) {
                // What lies in memory for long must not keep all that was read.
                (Some(body), false) => Bytes::copy_from_slice(&body),
                (_, true) => Bytes::new(),
                // Only its homes changed.
                (None, false) => match self.table.get(&key).filter(|entry| entry.held.stamp.is_same(&held.stamp)) {
                    Some(entry) => entry.body.clone(),
                    None => continue,
                },
            };
            self.table.insert(key, Entry { held, body, ticket: Ticket(0) });
        }
    }
}
