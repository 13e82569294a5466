//! Drives raft: one member of a group. With `member/` the only files that know raft-rs.
//!
//! Raft-rs hands out a `Ready` at a time: entries and votes for the disk, messages, what is committed. We take it into
//! memory at once and give it to the disk; messages that promise it, and raft's own "it is safe", wait for `Appended`.
//! Raft-rs draws election jitter from the thread's generator; we draw it again from ours, so that a seed repeats a run.

mod doubt;
mod ready;
mod regroup;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::checksum::Checksum;
use base::{Frame, NodeId, Note, Priority, Rng, Ticket, Time};
use bytes::Bytes;
use raft::eraftpb as pb;
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};

use super::limits::*;
use super::recall::{Asking, Promises};
use super::record;
use super::store::Store;
use super::transfer::{Receiving, Sending};
use super::wire::{self, Said};
use super::{Config, LogError, Output, State};
use ready::Waiting;

pub use regroup::Step;

/// What came of a step that the driver cares about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happened<D> {
    /// A part of an entry was applied.
    Applied(D),
    /// All of an entry was.
    Entry,
    /// A snapshot replaced the state.
    Restored,
    /// The group has other members.
    Regrouped,
    /// Reads that were asked for under this number may look at the state once it has applied this index.
    Readable { number: u64, index: u64 },
}

pub struct Member<S: State> {
    config: Config,
    node: RawNode<Store<S>>,
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
    /// Per mille of the bounds after which it is replaced this time.
    long_at: usize,
    /// A snapshot of our own that the disk is at.
    saving: Option<Ticket>,
    /// Snapshots under way to others, and when to take them for lost.
    sending: BTreeMap<NodeId, Sending>,
    receiving: Option<Receiving>,
    /// A state that came whole, for the snapshot at this index that raft has been told of.
    staged: Option<(u64, S)>,
    /// A snapshot taken over and not yet on the disk.
    installing: Option<Ticket>,
    /// What the others have promised us, should they forget.
    promises: Promises,
    /// We came back, and do not know yet what we have promised.
    asking: Option<Asking>,
    /// The machine was rebooted before this life, and entries are not forced at once.
    rebooted: bool,
    /// ... which has not been made up for yet.
    in_doubt: bool,
    /// The last term that we have led in.
    led: u64,
    /// Where the logs of the others end, as they told us (term, index). We vote as if ours ended at the furthest.
    ends: BTreeMap<NodeId, (u64, u64)>,
    /// Heartbeats that said that it holds entries, while its disk has not a word of the group.
    claims: u32,
    /// It has met what its program does not know.
    is_beyond: bool,
    /// A planted bug: promises before the disk has it. Shows that the tests can fail.
    #[cfg(test)]
    pub hasty: bool,
}

impl<S: State> Member<S> {
    /// The first member(s) of a new group: each voter founds it alike, with the same state.
    pub fn found(
        config: Config,
        me: NodeId,
        voters: &[NodeId],
        state: S,
        rng: Rng,
        out: &mut Vec<Output>,
    ) -> Result<Self, String> {
        let mut member = Self::new(config, me, Store::founded(voters, state), rng)?;
        // Nothing may be promised before the disk knows that there is a group.
        let ticket = member.save(out);
        member.installing = Some(ticket);
        Ok(member)
    }

    /// A member by what its disk has kept; with nothing, one that waits until a leader contacts it.
    /// `rebooted`: what was appended without force may be missing at its end.
    pub fn load(
        config: Config,
        me: NodeId,
        log: Vec<Bytes>,
        rebooted: bool,
        rng: Rng,
    ) -> Result<Result<Self, String>, LogError> {
        let has_log = !log.is_empty();
        let (records, bytes) = (log.len(), log.iter().map(Bytes::len).sum::<usize>());
        let store = record::load::<S>(log)?;
        let snapshot = store.state.bytes();
        Ok(Self::new(config, me, store, rng).map(|mut member| {
            let conf = &member.node.store().conf;
            let votes = conf.voters.contains(&me.0) || conf.voters_outgoing.contains(&me.0);
            member.rebooted = rebooted && config.memory && has_log;
            member.in_doubt = member.rebooted;
            if votes || member.rebooted {
                member.asking = Some(Asking::new(member.rebooted)).filter(|_| !member.others().is_empty());
            }
            (member.records_on_disk, member.bytes_on_disk) = (records, bytes.saturating_sub(snapshot));
            member
        }))
    }

    fn new(config: Config, me: NodeId, store: Store<S>, rng: Rng) -> Result<Self, String> {
        assert!(me.0 != 0, "node id 0 means nobody");
        let raft_config = raft::Config {
            id: me.0,
            election_tick: ELECTION_TICKS_MIN,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX,
            applied: store.applied().0,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_uncommitted_size: config.uncommitted_bytes_max,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&raft_config, store, &logger).map_err(|error| error.to_string())?;
        let mut member = Self {
            config,
            node,
            me,
            rng,
            drawn_for: (0, StateRole::Follower, 0),
            jitter: ELECTION_TICKS_MIN,
            ticket: 0,
            waiting: VecDeque::new(),
            records_on_disk: 0,
            bytes_on_disk: 0,
            long_at: 1_000,
            saving: None,
            sending: BTreeMap::new(),
            receiving: None,
            staged: None,
            installing: None,
            promises: Promises::default(),
            asking: None,
            rebooted: false,
            in_doubt: false,
            led: 0,
            ends: BTreeMap::new(),
            claims: 0,
            is_beyond: false,
            #[cfg(test)]
            hasty: false,
        };
        member.draw_jitter(true);
        member.draw_length();
        Ok(member)
    }

    pub fn state(&self) -> &S {
        &self.node.store().state
    }

    /// For what is no part of the state that the group agrees on.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.node.mut_store().state
    }

    pub fn me(&self) -> NodeId {
        self.me
    }

    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// A snapshot that it began with, or took over, is not on its disk yet: until then it hears nobody.
    pub fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// It leads, and a majority has on its disks what the group began with and what this leader found.
    pub fn is_agreed(&self) -> bool {
        self.is_leader() && self.node.raft.commit_to_current_term()
    }

    /// Has it met an entry that its program does not know ([`super::Applied::Beyond`])? Then its state is that before this entry, and it
    /// must take no further part. What its disk has is sound: a newer program goes on from there.
    pub fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    pub fn leader(&self) -> Option<NodeId> {
        (self.node.raft.leader_id != 0).then_some(NodeId(self.node.raft.leader_id))
    }

    /// Index of the last applied entry.
    pub fn applied(&self) -> u64 {
        self.node.store().applied().0
    }

    pub fn voters(&self) -> Vec<NodeId> {
        sorted(&self.node.store().conf.voters)
    }

    /// Those that get a copy and do not vote.
    pub fn learners(&self) -> Vec<NodeId> {
        let conf = &self.node.store().conf;
        let mut all = sorted(&conf.learners);
        all.extend(sorted(&conf.learners_next));
        all.sort_unstable();
        all
    }

    /// Between two groups: both must agree to everything.
    pub fn is_joint(&self) -> bool {
        !self.node.store().conf.voters_outgoing.is_empty()
    }

    /// Does this node know the group at all, or does it wait to be told?
    pub fn knows_group(&self) -> bool {
        !self.node.store().conf.voters.is_empty()
    }

    /// `given_up`: members that are away and not to be members any more. They may not come back, so nobody waits for them.
    pub fn tick(&mut self, now: Time, given_up: impl Fn(&NodeId) -> bool, out: &mut Vec<Output>) {
        if self.installing.is_some() {
            // Raft counts a snapshot as applied only when it is on disk; standing for election before that, it would
            // look for entries that the snapshot has replaced, and stop the process.
            return;
        }
        if self.tick_doubt(given_up, out) || self.is_ahead_of_disk() {
            return;
        }
        self.leave_lead();
        let campaigns = self.node.tick() && !self.is_leader();
        self.draw_jitter(campaigns);
        if !self.is_leader() {
            self.sending.clear();
        }
        let lost = |to: &NodeId, sending: &Sending| {
            let progress = self.node.raft.prs().get(to.0);
            let waits = progress.is_some_and(|p| p.state == ProgressState::Snapshot);
            (!waits, now.since(sending.heard) >= SNAPSHOT_WAIT)
        };
        let judged: Vec<_> = self.sending.iter().map(|(to, sending)| (*to, lost(to, sending))).collect();
        for (to, (over, lost)) in judged {
            if over || lost {
                self.sending.remove(&to);
            }
            if lost && !over {
                self.node.report_snapshot(to.0, SnapshotStatus::Failure);
            }
        }
        let all: Vec<_> = self.sending.keys().copied().collect();
        all.into_iter().for_each(|to| self.send_parts(to, now, out));
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) {
        if self.installing.is_none() && !self.is_ahead_of_disk() && !self.has_no_floor() && !self.is_below_floor() {
            // Raft answers an error only for groups that changed under it; the next tick tries again.
            let _ = self.node.campaign();
            self.draw_jitter(true);
        }
    }

    /// The only voter, that does not lead (it resigned as its disk was full, say) and whose disk does not have its whole log yet. It
    /// would be elected at once, and raft stops the process over that. When the disk has it, it stands.
    fn is_ahead_of_disk(&self) -> bool {
        let raft = &self.node.raft;
        let is_alone = raft.promotable() && raft.prs().is_singleton();
        is_alone && !self.is_leader() && raft.raft_log.persisted < raft.raft_log.last_index()
    }

    /// Membership says that the leader is dead: from now on this member listens to candidates. (Its vote in this term, if
    /// it gave one, stays.)
    pub fn leader_died(&mut self, leader: NodeId) {
        if self.leader() == Some(leader) && !self.is_leader() && leader != self.me {
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
            self.draw_jitter(true);
        }
    }

    /// A frame of this group. Err: it claims what cannot be. While somebody leads the group, of those that can have no vote only
    /// learners' answers are heard: with a term another one could depose who leads, with a log take its place, with a promise
    /// end this process. Who is new, or has been away for long, does not know all that vote, and hears them while it has no leader.
    /// `placed`: is it one that should be a member, whether this one knows that or not?
    pub fn step(
        &mut self,
        now: Time,
        from: NodeId,
        placed: bool,
        head: Bytes,
        body: Bytes,
        out: &mut Vec<Output>,
    ) -> Result<(), String> {
        let (sender, to, said) = wire::decode(head).ok_or("is not a message of this protocol")?;
        if sender != from || to != self.me {
            return Err(format!("claims to go from {sender} to {to}"));
        }
        let term = match &said {
            Said::Raft(message) | Said::Part { offer: message, .. } => message.term,
            Said::Want { .. } | Said::Recall { .. } | Said::Recalled(_) | Said::Sleep { .. } => 0,
        };
        if term > TERM_MAX {
            return Err(format!("is of term {term}, which no group comes to"));
        }
        let is_guest = !placed && !self.may_vote(from);
        let is_led = self.knows_group() && self.leader().is_some_and(|leader| leader != from);
        if is_guest && is_led && !self.may_answer(from, &said) {
            return Ok(());
        }
        // What is not on the disk yet does not matter to who asks: the answer promises nothing.
        if self.installing.is_some() && !matches!(said, Said::Recall { .. }) {
            return Ok(());
        }
        let last = self.node.raft.raft_log.last_index();
        let message = match said {
            Said::Raft(message) => message,
            Said::Part { offer, number, last, sum } => {
                if !Checksum(sum).matches(&body) {
                    return Err(format!("has part {number} of a snapshot with a wrong checksum"));
                }
                return self.part(from, offer, number, last, body, out);
            }
            Said::Want { index, next } => {
                if let Some(sending) = self.sending.get_mut(&from).filter(|s| s.index() == index) {
                    sending.wanted(next, now);
                    self.send_parts(from, now, out);
                }
                return Ok(());
            }
            Said::Recall { last, lost } => {
                self.hear_recall(from, last, lost);
                let said = Said::Recalled(self.recalled(from));
                self.say(from, self.config.control, &said, Bytes::new(), out);
                return Ok(());
            }
            // What it has forgotten ends this process: only those tell it to whom it can have promised anything.
            Said::Recalled(_) if !self.others().contains(&from) => return Ok(()),
            Said::Recalled(said) => {
                self.hear_recalled(from, &said, out);
                return Ok(());
            }
            // For whoever drives this member: `may_sleep` and `sleeps_at` decide.
            Said::Sleep { .. } => return Ok(()),
        };
        // Raft stops the process over these two: a member that forgot what it had promised.
        match message.get_msg_type() {
            pb::MessageType::MsgHeartbeat if message.commit > last && self.rebooted => {
                // It has not heard yet what may be missing here.
                self.recall(from, out);
                return Ok(());
            }
            pb::MessageType::MsgHeartbeat if message.commit > last => {
                // What a leader says we hold is committed and we have said that we hold it: that never goes away.
                let is_leader = match self.knows_group() {
                    true => message.term >= self.term() && self.voters().contains(&from),
                    // A disk that lost all of the group does not know who votes. One beat may be late, from before this
                    // node left the group and came back to it.
                    false => {
                        self.claims += u32::from(placed);
                        self.claims >= CLAIMS_MAX
                    }
                };
                if is_leader {
                    let text = format!("{from} says that it holds entry {}, the disk ends at {last}", message.commit);
                    out.push(self.distrust(&text));
                }
                return Err(format!("says that we hold entry {}, our log ends at {last}", message.commit));
            }
            // Its process ends over it: not for a word of one that cannot lead.
            pb::MessageType::MsgAppend if is_guest && self.contradicts(&message) => return Ok(()),
            pb::MessageType::MsgAppend if message.term >= self.term() && self.contradicts(&message) => {
                let text = format!("{from} leads a group that has other entries than those committed here");
                out.push(self.distrust(&text));
                return Ok(());
            }
            pb::MessageType::MsgAppendResponse if message.index > last && self.is_leader() => {
                return Err(format!("says that it holds entry {}, our log ends at {last}", message.index));
            }
            _ => (),
        }
        let votes =
            [pb::MessageType::MsgRequestVote, pb::MessageType::MsgRequestPreVote, pb::MessageType::MsgTimeoutNow];
        // Told to stand at once, we would stand with our own log; a candidate says what it has.
        let is_candidate = message.get_msg_type() != pb::MessageType::MsgTimeoutNow;
        let is_below = self.is_below_floor() && !(is_candidate && (message.log_term, message.index) >= self.floor());
        if (self.has_no_floor() || is_below) && votes.contains(&message.get_msg_type()) {
            return Ok(());
        }
        if !is_candidate && self.is_ahead_of_disk() {
            return Ok(());
        }
        let log = &self.node.raft.raft_log;
        self.promises.heard(from, &message, |index| log.term(index).ok().filter(|term| *term > 0));
        // What raft refuses (a stranger's answer, a message of an old term) is no harm and no news.
        let _ = self.node.step(message);
        self.draw_jitter(false);
        Ok(())
    }

    /// Has it a vote, as far as this member knows, or will it if what is in its log comes to be?
    fn may_vote(&self, id: NodeId) -> bool {
        self.counts_on(id) || self.others().contains(&id)
    }

    /// Is this what one says that has no vote?
    fn may_answer(&self, id: NodeId, said: &Said) -> bool {
        match said {
            Said::Raft(message) => {
                let kind = message.get_msg_type();
                let answers = [pb::MessageType::MsgAppendResponse, pb::MessageType::MsgHeartbeatResponse];
                // If its leader is a later one, that will say so itself.
                answers.contains(&kind) && message.term <= self.term() && self.has(id)
            }
            Said::Want { .. } => self.has(id),
            // One that has lost all asks what it has promised: the answer promises nothing.
            Said::Recall { .. } => true,
            Said::Part { .. } | Said::Recalled(_) | Said::Sleep { .. } => false,
        }
    }

    /// Does a leader's message deny an entry that is committed here? After a majority of machines lost their power with
    /// entries that this one still has; raft stops the process over it.
    fn contradicts(&self, message: &pb::Message) -> bool {
        let log = &self.node.raft.raft_log;
        let says = message.entries.iter().map(|entry| (entry.index, entry.term));
        std::iter::once((message.index, message.log_term))
            .chain(says)
            .any(|(index, term)| index <= log.committed && log.term(index).is_ok_and(|ours| ours != 0 && ours != term))
    }

    /// A part of a snapshot has come.
    fn part(
        &mut self,
        from: NodeId,
        offer: pb::Message,
        number: u64,
        last: bool,
        bytes: Bytes,
        out: &mut Vec<Output>,
    ) -> Result<(), String> {
        let index = offer.get_snapshot().get_metadata().index;
        if offer.term < self.term() || index <= self.applied() {
            // An old leader's, or one that has nothing for us: raft's own answer to it says so.
            let _ = self.node.step(offer);
            return Ok(());
        }
        let receiving = match &mut self.receiving {
            Some(receiving) if receiving.is_of(&offer) => receiving,
            other => other.insert(Receiving::new(&offer)),
        };
        let next = receiving.take(number, last, bytes);
        let whole = self.receiving.take_if(|receiving| receiving.is_whole);
        self.say(from, self.config.control, &Said::Want { index, next }, Bytes::new(), out);
        if let Some(whole) = whole {
            let state = S::from_parts(whole.into_parts()).ok_or("has a snapshot whose state makes no sense")?;
            self.staged = Some((index, state));
            let _ = self.node.step(offer);
            self.draw_jitter(false);
        }
        Ok(())
    }

    /// As leader: gives the lead up at once, if possible to whoever of these has most of the log.
    pub fn resign(&mut self, now: Time, live: &BTreeSet<NodeId>, out: &mut Vec<Output>) {
        if !self.is_leader() {
            return;
        }
        let matched = |id: &NodeId| self.node.raft.prs().get(id.0).map_or(0, |progress| progress.matched);
        let others = self.voters().into_iter().filter(|id| *id != self.me && live.contains(id));
        if let Some(heir) = others.max_by_key(matched) {
            self.hand_over(heir);
            // Its messages leave only while we lead.
            self.pump(now, out, &mut Vec::new());
        }
        let term = self.term();
        self.node.raft.become_follower(term, raft::INVALID_ID);
        self.draw_jitter(true);
    }

    /// As leader: all members hold all there is, and nothing is under way. As long as all of them live, nobody needs to
    /// tick.
    pub fn may_sleep(&self) -> bool {
        let last = self.node.raft.raft_log.last_index();
        let is_done = self.is_leader()
            && self.is_quiet()
            && self.sending.is_empty()
            && !self.is_joint()
            && !self.node.raft.has_pending_conf()
            && self.node.raft.raft_log.committed == last
            && self.node.store().applied().0 == last
            && self.node.raft.read_only.pending_read_count() == 0;
        let conf = &self.node.store().conf;
        let all = conf.voters.iter().chain(&conf.learners);
        is_done && all.into_iter().all(|id| self.node.raft.prs().get(*id).is_some_and(|p| p.matched == last))
    }

    /// As leader: tells the others that they may stop ticking too.
    pub fn say_sleep(&self, out: &mut Vec<Output>) {
        let said = Said::Sleep { term: self.term(), commit: self.node.raft.raft_log.committed };
        let conf = &self.node.store().conf;
        for id in conf.voters.iter().chain(&conf.learners).filter(|id| **id != self.me.0) {
            self.say(NodeId(*id), self.config.control, &said, Bytes::new(), out);
        }
    }

    /// As follower: may we sleep, if our leader says so of this term and commit index?
    pub fn sleeps_at(&self, from: NodeId, term: u64, commit: u64) -> bool {
        let log = &self.node.raft.raft_log;
        self.leader() == Some(from)
            && self.term() == term
            && self.is_quiet()
            && log.last_index() == commit
            && log.committed == commit
    }

    fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
            && self.asking.is_none()
            && !self.in_doubt
            && self.installing.is_none()
            && self.receiving.is_none()
            && !self.node.has_ready()
    }

    /// Puts data into the log as one entry. False: not done, we do not lead or there is no room.
    pub fn propose(&mut self, data: Vec<u8>) -> bool {
        self.is_leader() && self.node.propose(Vec::new(), data).is_ok()
    }

    /// As leader: asks whether we still lead; `Readable` with this number follows when a majority says so. False: not
    /// now. A leader of a new term first has to see an entry of its own committed.
    pub fn read_index(&mut self, number: u64) -> bool {
        let may = self.is_leader() && self.node.raft.commit_to_current_term();
        if may {
            self.node.read_index(number.to_be_bytes().to_vec());
        }
        may
    }

    pub fn unreachable(&mut self, peer: NodeId) {
        self.node.report_unreachable(peer.0);
    }

    fn send(&mut self, messages: Vec<pb::Message>, now: Time, out: &mut Vec<Output>) {
        for message in messages {
            let to = NodeId(message.to);
            if message.get_msg_type() == pb::MessageType::MsgSnapshot {
                self.offer(to, message, now, out);
                continue;
            }
            let kind = if message.entries.is_empty() { self.config.control } else { self.config.data };
            self.say(to, kind, &Said::Raft(message), Bytes::new(), out);
        }
    }

    /// Raft wants a snapshot brought to a member. One that is under way goes on if our log still meets its end.
    fn offer(&mut self, to: NodeId, offer: pb::Message, now: Time, out: &mut Vec<Output>) {
        let frozen = self.node.store().take_frozen(to.0, offer.get_snapshot().get_metadata().index);
        let first = self.node.raft.raft_log.first_index();
        if self.sending.get(&to).is_none_or(|sending| sending.index() + 1 < first) {
            match frozen {
                Some(parts) => drop(self.sending.insert(to, Sending::new(offer, parts, now))),
                // Two offers in one step: raft asks again when this one is taken for lost.
                None => return self.node.report_snapshot(to.0, SnapshotStatus::Failure),
            }
        }
        self.send_parts(to, now, out);
    }

    fn send_parts(&mut self, to: NodeId, now: Time, out: &mut Vec<Output>) {
        let (group, me, data, term) = (self.config.group, self.me, self.config.data, self.term());
        let Some(sending) = self.sending.get_mut(&to) else { return };
        sending.send(term, now, |said, bytes| {
            let mut frame = Frame::new(data, wire::encode(group, me, to, &said));
            frame.body = bytes;
            out.push(Output::Send { to, frame });
        });
    }

    fn say(&self, to: NodeId, kind: u16, said: &Said, body: Bytes, out: &mut Vec<Output>) {
        let mut frame = Frame::new(kind, wire::encode(self.config.group, self.me, to, said));
        frame.priority = Priority::HIGHEST;
        frame.body = body;
        out.push(Output::Send { to, frame });
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

    /// How long the log becomes this time.
    fn draw_length(&mut self) {
        self.long_at = self.rng.between(750, 1_250) as usize;
    }

    fn distrust(&self, why: &str) -> Output {
        Output::Distrust(format!("its disk is older than what it has promised to {}: {why}", self.config.group))
    }

    fn note_error(&self, entry: &pb::Entry, what: &str) -> Output {
        Output::Note(Note::error(format!("entry {} of {}'s log {what}", entry.index, self.config.group)))
    }
}

fn sorted(ids: &[u64]) -> Vec<NodeId> {
    let mut ids: Vec<_> = ids.iter().copied().map(NodeId).collect();
    ids.sort_unstable();
    ids
}
