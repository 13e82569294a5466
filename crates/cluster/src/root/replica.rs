//! Drives raft: one member of the group. The only file that knows raft-rs.
//!
//! Raft-rs hands out a `Ready` at a time: entries and votes for the disk, messages, what is committed. We take it into
//! memory at once and give it to the disk; messages that promise it, and raft's own "it is safe", wait for `Appended`.
//! Raft-rs draws election jitter from the thread's generator; we draw it again from ours, so that a seed repeats a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Frame, NodeId, Note, Priority, Rng, Ticket, Time, kind};
use bytes::Bytes;
use raft::eraftpb as pb;
use raft::{Config, ProgressState, RawNode, SnapshotStatus, StateRole};

use super::declared::{Change, ChangeId, State, Verdict};
use super::group::{Scene, Step};
use super::limits::*;
use super::machine::Output;
use super::record;
use super::store::Store;
use super::wire;

/// What came of a step that proposals and the group care about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Happened {
    Applied(ChangeId, Verdict),
    /// A snapshot replaced the state.
    Restored,
    /// The group has other members.
    Regrouped,
}

pub(super) struct Replica {
    node: RawNode<Store>,
    me: NodeId,
    rng: Rng,
    /// What the jitter in force was drawn for.
    drawn_for: (u64, StateRole, u64),
    jitter: usize,
    ticket: u64,
    /// Invariant: by ticket and number. What becomes true when the disk has reached the ticket.
    waiting: VecDeque<Waiting>,
    records_on_disk: usize,
    bytes_on_disk: usize,
    /// Snapshots under way, and when to take them for lost.
    snapshots: BTreeMap<u64, Time>,
    /// A planted bug: promises before the disk has it. Shows that the tests can fail.
    #[cfg(test)]
    pub hasty: bool,
}

struct Waiting {
    ticket: Ticket,
    /// Of raft's `Ready`.
    number: u64,
    messages: Vec<pb::Message>,
    /// Index of the snapshot among it.
    restored: Option<u64>,
}

impl Replica {
    pub fn new(me: NodeId, store: Store, rng: Rng) -> Result<Self, String> {
        let config = Config {
            id: me.0,
            election_tick: ELECTION_TICKS_MIN,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX,
            applied: store.applied().0,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, store, &logger).map_err(|error| error.to_string())?;
        let mut replica = Self {
            node,
            me,
            rng,
            drawn_for: (0, StateRole::Follower, 0),
            jitter: ELECTION_TICKS_MIN,
            ticket: 0,
            waiting: VecDeque::new(),
            records_on_disk: 0,
            bytes_on_disk: 0,
            snapshots: BTreeMap::new(),
            #[cfg(test)]
            hasty: false,
        };
        replica.draw_jitter(true);
        Ok(replica)
    }

    pub fn state(&self) -> &State {
        &self.node.store().state
    }

    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    pub fn leader(&self) -> Option<NodeId> {
        (self.node.raft.leader_id != 0).then_some(NodeId(self.node.raft.leader_id))
    }

    pub fn voters(&self) -> Vec<NodeId> {
        let mut voters: Vec<_> = self.node.store().conf.voters.iter().copied().map(NodeId).collect();
        voters.sort_unstable();
        voters
    }

    /// Between two groups: both must agree to everything.
    pub fn is_joint(&self) -> bool {
        !self.node.store().conf.voters_outgoing.is_empty()
    }

    pub fn tick(&mut self, now: Time) {
        if self.waiting.iter().any(|waiting| waiting.restored.is_some()) {
            // Raft counts a snapshot as applied only when it is on disk; standing for election before that, it would
            // look for entries that the snapshot has replaced, and stop the process.
            return;
        }
        let campaigns = self.node.tick() && !self.is_leader();
        self.draw_jitter(campaigns);
        let lost: Vec<u64> = self.snapshots.iter().filter(|(_, end)| **end <= now).map(|(to, _)| *to).collect();
        for to in lost {
            self.snapshots.remove(&to);
            let progress = self.node.raft.prs().get(to);
            if progress.is_some_and(|p| p.state == ProgressState::Snapshot) {
                self.node.report_snapshot(to, SnapshotStatus::Failure);
            }
        }
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) {
        // Raft answers an error only for groups that changed under it; the next tick tries again.
        let _ = self.node.campaign();
        self.draw_jitter(true);
    }

    /// A message from a member. Err: it claims what cannot be.
    pub fn step(&mut self, from: NodeId, head: Bytes) -> Result<(), String> {
        let message = wire::decode_message(head).ok_or("is not a message of this protocol")?;
        if message.from != from.0 || message.to != self.me.0 {
            return Err(format!("claims to go from {} to {}", NodeId(message.from), NodeId(message.to)));
        }
        // Raft stops the process over these two: a member that forgot what it had promised.
        let last = self.node.raft.raft_log.last_index();
        match message.get_msg_type() {
            pb::MessageType::MsgHeartbeat if message.commit > last => {
                return Err(format!("says that we hold entry {}, our log ends at {last}", message.commit));
            }
            pb::MessageType::MsgAppendResponse if message.index > last && self.is_leader() => {
                return Err(format!("says that it holds entry {}, our log ends at {last}", message.index));
            }
            _ => (),
        }
        // What raft refuses (a stranger's answer, a message of an old term) is no harm and no news.
        let _ = self.node.step(message);
        self.draw_jitter(false);
        Ok(())
    }

    /// Puts a change into the log. False: not done, we do not lead or there is no room.
    pub fn propose(&mut self, id: ChangeId, change: &Change) -> bool {
        self.is_leader() && self.node.propose(Vec::new(), wire::encode_change(id, change)).is_ok()
    }

    pub fn unreachable(&mut self, peer: NodeId) {
        self.node.report_unreachable(peer.0);
        self.snapshots.remove(&peer.0);
        if self.node.raft.prs().get(peer.0).is_some_and(|p| p.state == ProgressState::Snapshot) {
            self.node.report_snapshot(peer.0, SnapshotStatus::Failure);
        }
    }

    /// May the group be changed now?
    pub fn may_regroup(&self) -> bool {
        // In a leader's first moments raft-rs would take the change and put an empty entry in its place.
        self.is_leader() && !self.node.raft.has_pending_conf() && self.node.raft.apply_to_current_term()
    }

    /// The group as the leader sees it, without what membership knows (`live`, `away`).
    pub fn scene(&self) -> Scene {
        let conf = &self.node.store().conf;
        let last = self.node.raft.raft_log.last_index();
        let is_near = |id: &&u64| {
            let progress = self.node.raft.prs().get(**id);
            // What it has on disk counts, not raft's mode of sending: in a quiet group a new one stays on probation.
            progress.is_some_and(|p| p.matched > 0 && p.matched + CAUGHT_UP_ENTRIES >= last)
        };
        let nodes = |ids: &[u64]| -> BTreeSet<NodeId> { ids.iter().copied().map(NodeId).collect() };
        Scene {
            me: self.me,
            voters: nodes(&conf.voters),
            learners: nodes(&conf.learners).union(&nodes(&conf.learners_next)).copied().collect(),
            joint: self.is_joint(),
            caught_up: conf.learners.iter().filter(is_near).copied().map(NodeId).collect(),
            ..Scene::default()
        }
    }

    pub fn regroup(&mut self, step: &Step) {
        let mut change = pb::ConfChangeV2::default();
        match step {
            Step::Learn(id) => change.changes.push(wire::conf_step(pb::ConfChangeType::AddLearnerNode, id.0)),
            Step::Vote { come, go } => {
                for id in come {
                    change.changes.push(wire::conf_step(pb::ConfChangeType::AddNode, id.0));
                }
                for id in go {
                    change.changes.push(wire::conf_step(pb::ConfChangeType::AddLearnerNode, id.0));
                }
            }
            Step::Leave => (),
        }
        // Dropped when there is no room; the next tick plans again.
        let _ = self.node.propose_conf_change(Vec::new(), change);
    }

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

    /// Gives the disk the whole log in its shortest form.
    pub fn rewrite(&mut self, out: &mut Vec<Output>) -> Ticket {
        let records = record::whole(self.node.store());
        self.records_on_disk = records.len();
        self.bytes_on_disk = records.iter().map(Bytes::len).sum();
        let ticket = self.next_ticket();
        out.push(Output::Rewrite { records, ticket });
        ticket
    }

    /// Carries out what raft has ready, until it has nothing more.
    pub fn pump(&mut self, now: Time, out: &mut Vec<Output>, happened: &mut Vec<Happened>) {
        while self.node.has_ready() {
            self.one_ready(now, out, happened);
        }
        let long = self.records_on_disk > LOG_RECORDS_MAX || self.bytes_on_disk > LOG_BYTES_MAX;
        // Only if it helps: entries that are not applied yet stay.
        let stay: usize = self.node.store().after(self.node.store().applied().0).iter().map(|e| e.data.len()).sum();
        if long && stay * 2 < LOG_BYTES_MAX {
            self.node.mut_store().compact(ENTRIES_KEPT);
            self.rewrite(out);
        }
    }

    fn one_ready(&mut self, now: Time, out: &mut Vec<Output>, happened: &mut Vec<Happened>) {
        let mut ready = self.node.ready();
        // A leader's messages promise nothing about its own disk.
        self.send(ready.take_messages(), now, out);
        let (number, must_sync) = (ready.number(), ready.must_sync());
        let (held, committed) = (ready.take_persisted_messages(), ready.take_committed_entries());
        let (entries, hard) = (ready.take_entries(), ready.hs().cloned());
        let snapshot = Some(ready.snapshot()).filter(|snapshot| !snapshot.is_empty()).cloned();

        let store = self.node.mut_store();
        if let Some(snapshot) = &snapshot {
            let meta = snapshot.get_metadata();
            let state = wire::WireState::parse(snapshot.data.clone()).expect("it was parsed when it came in");
            store.install(state, meta.get_conf_state().clone(), meta.index, meta.term);
            happened.extend([Happened::Restored, Happened::Regrouped]);
        }
        if let Some(hard) = &hard {
            store.hard = hard.clone();
        }
        store.append(&entries);
        self.node.advance_append_async(ready);

        let ticket = if snapshot.is_some() {
            Some(self.rewrite(out))
        } else {
            record::step(hard.as_ref(), &entries).map(|record| self.append(record, out))
        };
        let restored = snapshot.map(|snapshot| snapshot.get_metadata().index);
        let ticket = ticket.filter(|_| must_sync);
        self.promise(ticket, Waiting { ticket: Ticket(0), number, messages: held, restored }, now, out);
        self.apply(committed, out, happened);
    }

    fn append(&mut self, record: Bytes, out: &mut Vec<Output>) -> Ticket {
        self.records_on_disk += 1;
        self.bytes_on_disk += record.len();
        let ticket = self.next_ticket();
        out.push(Output::Append { records: vec![record], ticket });
        ticket
    }

    /// What holds only once the disk has reached `ticket`; without one, once it has what was given it before.
    fn promise(&mut self, ticket: Option<Ticket>, what: Waiting, now: Time, out: &mut Vec<Output>) {
        let ticket = ticket.or(self.waiting.back().map(|last| last.ticket));
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

    fn apply(&mut self, committed: Vec<pb::Entry>, out: &mut Vec<Output>, happened: &mut Vec<Happened>) {
        for entry in &committed {
            match entry.get_entry_type() {
                pb::EntryType::EntryNormal if entry.data.is_empty() => (),
                pb::EntryType::EntryNormal => match wire::decode_change(entry.data.clone()) {
                    Some((id, change)) => {
                        let verdict = self.node.mut_store().state.apply(id, change);
                        happened.push(Happened::Applied(id, verdict));
                    }
                    None => out.push(note_error(entry, "is not a change that this program knows; skipped")),
                },
                pb::EntryType::EntryConfChange | pb::EntryType::EntryConfChangeV2 => {
                    let change = wire::decode_conf_change(entry.data.clone());
                    match change.map(|change| self.node.apply_conf_change(&change)) {
                        Some(Ok(conf)) => {
                            self.node.mut_store().conf = conf;
                            happened.push(Happened::Regrouped);
                        }
                        Some(Err(error)) => out.push(note_error(entry, &format!("is a wrong group: {error}"))),
                        None => out.push(note_error(entry, "is not a group that this program knows; skipped")),
                    }
                }
            }
            self.node.mut_store().applied_to(entry);
        }
        if let Some(last) = committed.last() {
            self.node.advance_apply_to(last.index);
        }
    }

    fn send(&mut self, messages: Vec<pb::Message>, now: Time, out: &mut Vec<Output>) {
        for message in messages {
            if message.get_msg_type() == pb::MessageType::MsgSnapshot {
                self.snapshots.insert(message.to, now + SNAPSHOT_WAIT);
            }
            let mut frame = Frame::new(kind::ROOT, wire::encode_message(&message));
            frame.priority = Priority::HIGHEST;
            out.push(Output::Send { to: NodeId(message.to), frame });
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket += 1;
        Ticket(self.ticket)
    }

    /// Raft-rs has drawn jitter of its own when term, role or leader changed, or when an election began.
    fn draw_jitter(&mut self, anew: bool) {
        let raft = &mut self.node.raft;
        let key = (raft.term, raft.state, raft.leader_id);
        if anew || key != self.drawn_for {
            self.drawn_for = key;
            self.jitter = self.rng.between(ELECTION_TICKS_MIN as u64, ELECTION_TICKS_MAX as u64 - 1) as usize;
        }
        raft.set_randomized_election_timeout(self.jitter);
    }
}

fn note_error(entry: &pb::Entry, what: &str) -> Output {
    Output::Note(Note::error(format!("entry {} of the root log {what}", entry.index)))
}
