//! What raft has ready goes to the disk, to other members and to the state; what waits for the disk goes on when it is there.

use base::{Record, Ticket, Time};
use raft::eraftpb as pb;

use super::{Happened, Member};
use crate::raft::limits::{LOG_HELD_BYTES, MEMORY_LOG_BYTES};
use crate::raft::record;
use crate::raft::{Applied, Output, State, wire};

/// What becomes true when the disk has reached a ticket.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// Of raft's `Ready`.
    pub(super) number: u64,
    pub(super) messages: Vec<pb::Message>,
    /// Index of the snapshot among it.
    pub(super) restored: Option<u64>,
}

impl<S: State> Member<S> {
    /// Everything up to this ticket is on the disk.
    pub fn persisted(&mut self, ticket: Ticket, now: Time, out: &mut Vec<Output>) {
        while self.waiting.front().is_some_and(|first| first.ticket <= ticket) {
            let done = self.waiting.pop_front().expect("it has a front");
            self.send(done.messages, now, out);
            self.node.on_persist_ready(done.number);
            if let Some(index) = done.restored {
                self.node.advance_apply_to(index);
            }
        }
    }

    /// A save is on the disk.
    pub fn saved(&mut self, ticket: Ticket, now: Time, out: &mut Vec<Output>) {
        self.saving.take_if(|saving| *saving == ticket);
        if self.installing.take_if(|installing| *installing == ticket).is_some() {
            // It holds all that was appended before it, too.
            self.persisted(ticket, now, out);
            if self.voters() == [self.me] && !self.is_leader() {
                // Nobody else could be elected: no reason to wait.
                self.campaign();
            }
        }
    }

    /// Gives the disk the whole log in its shortest form.
    pub fn save(&mut self, out: &mut Vec<Output>) -> Ticket {
        self.node.mut_store().compact(self.config.log.entries_kept);
        (self.records_on_disk, self.bytes_on_disk) = (0, 0);
        self.draw_length();
        let ticket = self.next_ticket();
        self.saving = Some(ticket);
        out.push(Output::Save { parts: record::whole(self.node.store()), ticket });
        ticket
    }

    /// Keeps everything that led to the present state, on the disk and for other members: it may have to happen again.
    pub fn hold(&mut self, held: bool) {
        self.node.mut_store().held = held;
    }

    /// Has the disk records that a new snapshot would make superfluous?
    pub fn has_log(&self) -> bool {
        self.records_on_disk > 0 && self.saving.is_none() && !self.node.store().held
    }

    /// Does the node's log, which has grown by so much since our last snapshot, have to be kept for us?
    pub fn holds_up(&self, grown: u64) -> bool {
        let (least, most) = LOG_HELD_BYTES;
        self.has_log() && grown > (self.state().bytes() as u64).clamp(least, most)
    }

    /// Carries out what raft has ready, until it has nothing more.
    pub fn pump(&mut self, now: Time, out: &mut Vec<Output>, happened: &mut Vec<Happened<S::Done>>) {
        // First: whoever drives this may want to hold what the entries that come now lead to.
        self.shorten(out);
        while !self.is_beyond && self.node.has_ready() {
            self.one_ready(now, out, happened);
        }
        if self.is_leader() {
            self.led = self.term();
        }
        let is_asked = self.asking.is_none() && !self.is_below_floor() && self.installing.is_none();
        // The group works, and this member holds what it has committed so far.
        if self.in_doubt && is_asked && self.leader().is_some() && self.node.raft.commit_to_current_term() {
            self.in_doubt = false;
        }
    }

    /// A log that has grown long is replaced by a snapshot.
    fn shorten(&mut self, out: &mut Vec<Output>) {
        let bytes_max = self.config.log.bytes_max;
        let (records, bytes) = (self.records_on_disk * 1_000 / self.long_at, self.bytes_on_disk * 1_000 / self.long_at);
        let long = records > self.config.log.records_max || bytes > bytes_max && bytes > self.state().bytes();
        if long && self.saving.is_none() && !self.node.store().held {
            // Only if it helps: entries that are not applied yet stay.
            let stay: usize = self.node.store().after(self.node.store().applied().0).iter().map(|e| e.data.len()).sum();
            if stay * 2 < bytes_max {
                self.save(out);
            }
        }
    }

    fn one_ready(&mut self, now: Time, out: &mut Vec<Output>, happened: &mut Vec<Happened<S::Done>>) {
        let mut ready = self.node.ready();
        // A leader's messages promise nothing about its own disk.
        self.send(ready.take_messages(), now, out);
        for read in ready.take_read_states() {
            if let Ok(number) = <[u8; 8]>::try_from(&read.request_ctx[..]) {
                happened.push(Happened::Readable { number: u64::from_be_bytes(number), index: read.index });
            }
        }
        let (number, must_sync) = (ready.number(), ready.must_sync());
        let (held, committed) = (ready.take_persisted_messages(), ready.take_committed_entries());
        let (entries, hard) = (ready.take_entries(), ready.hs().cloned());
        let snapshot = Some(ready.snapshot()).filter(|snapshot| !snapshot.is_empty()).cloned();

        if let Some(snapshot) = &snapshot {
            let meta = snapshot.get_metadata();
            let (index, state) = self.staged.take().expect("raft is told of a snapshot when its state has come");
            assert_eq!(index, meta.index, "raft took over a snapshot that it was not told of");
            self.node.mut_store().install(state, meta.get_conf_state().clone(), meta.index, meta.term);
            happened.extend([Happened::Restored, Happened::Regrouped]);
        }
        let force = self.must_force(hard.as_ref(), &entries);
        let store = self.node.mut_store();
        if let Some(hard) = &hard {
            store.hard = hard.clone();
        }
        store.append(&entries);
        self.node.advance_append_async(ready);

        let ticket = if snapshot.is_some() {
            let ticket = self.save(out);
            self.installing = Some(ticket);
            Some(ticket)
        } else {
            record::step(hard.as_ref(), &entries).map(|record| self.append(record, force, out))
        };
        let restored = snapshot.map(|snapshot| snapshot.get_metadata().index);
        let ticket = ticket.filter(|_| must_sync);
        self.promise(ticket, Waiting { ticket: Ticket(0), number, messages: held, restored }, now, out);
        self.apply(committed, out, happened);
    }

    /// Entries of a memory group are in the memory of two machines before anybody is told; alone, the disk is all there is.
    /// A vote that were forgotten could be given twice, and a member must know who the others are.
    fn must_force(&self, hard: Option<&pb::HardState>, entries: &[pb::Entry]) -> bool {
        let before = &self.node.store().hard;
        let is_new = |hard: &pb::HardState| (hard.term, hard.vote) != (before.term, before.vote);
        !self.config.memory
            || self.node.store().conf.voters.len() < 2
            || hard.is_some_and(is_new)
            || entries.iter().any(|entry| entry.get_entry_type() != pb::EntryType::EntryNormal)
    }

    fn append(&mut self, record: Record, force: bool, out: &mut Vec<Output>) -> Ticket {
        self.records_on_disk += 1;
        self.bytes_on_disk += record.len();
        let ticket = self.next_ticket();
        out.push(Output::Append { records: vec![record], ticket, force });
        ticket
    }

    /// What holds only once the disk has reached `ticket`; without one, once it has what was given it before.
    fn promise(&mut self, ticket: Option<Ticket>, what: Waiting, now: Time, out: &mut Vec<Output>) {
        let ticket = ticket.or(self.waiting.back().map(|last| last.ticket)).or(self.installing);
        self.waiting.push_back(Waiting { ticket: ticket.unwrap_or(Ticket(0)), ..what });
        if ticket.is_none() || !self.waits() {
            // Nothing waits before it: all of it is true already.
            self.persisted(Ticket(u64::MAX), now, out);
        }
    }

    /// Does it wait for the disk? Always, but for the planted bug.
    fn waits(&self) -> bool {
        #[cfg(test)]
        return !self.hasty;
        #[cfg(not(test))]
        true
    }

    fn apply(&mut self, committed: Vec<pb::Entry>, out: &mut Vec<Output>, happened: &mut Vec<Happened<S::Done>>) {
        let mut done = Vec::new();
        for entry in &committed {
            match entry.get_entry_type() {
                pb::EntryType::EntryNormal if entry.data.is_empty() => (),
                pb::EntryType::EntryNormal => {
                    match self.node.mut_store().state.apply(entry.index, entry.data.clone(), &mut done) {
                        Applied::Yes => (),
                        Applied::Senseless => {
                            out.push(self.note_error(entry, "is nothing that this program knows; skipped"));
                        }
                        Applied::Beyond => {
                            out.push(self.note_error(entry, "needs a newer program than this one"));
                            self.is_beyond = true;
                            return;
                        }
                    }
                    happened.extend(done.drain(..).map(Happened::Applied));
                    happened.push(Happened::Entry);
                }
                pb::EntryType::EntryConfChange | pb::EntryType::EntryConfChangeV2 => {
                    let change = wire::decode_conf_change(entry.data.clone());
                    match change.map(|change| self.node.apply_conf_change(&change)) {
                        Some(Ok(conf)) => {
                            self.node.mut_store().conf = conf;
                            happened.push(Happened::Regrouped);
                        }
                        Some(Err(error)) => out.push(self.note_error(entry, &format!("is a wrong group: {error}"))),
                        None => out.push(self.note_error(entry, "is not a group that this program knows; skipped")),
                    }
                }
            }
            self.node.mut_store().applied_to(entry);
        }
        if let Some(last) = committed.last() {
            self.node.advance_apply_to(last.index);
            let (least, most) = MEMORY_LOG_BYTES;
            let room = self.state().bytes().clamp(least, most);
            let keep = self.config.log.entries_kept;
            self.node.mut_store().forget(room, keep);
        }
    }
}
