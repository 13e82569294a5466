//! All of the class on one node: its members of groups, the calls of its front doors, and the way between them.
//!
//! A call goes to the group's leader, one hop. It is sent again when nobody answers, when who was asked does not lead, and
//! when that one dies, until its budget is over; it carries an id, so that it happens once however often it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::checksum::place_hash;
use base::limits::KEY_BYTES_MAX;
use base::{AskId, Boot, Frame, GroupId, NodeId, Note, Now, Outcome, Refused, Rng, Span, Ticket, Time, Unknown, kind};
use bytes::Bytes;
use cluster::raft;
use cluster::raft::limits::LOG_HELD_BYTES_MAX;

use super::functions::changes::may_wait;
use super::functions::{self, Run};
use super::group::{Answered, Asked, Group};
use super::heat::HotKey;
use super::limits::*;
use super::op::{Op, Ran};
use super::place::{self, Placed};
use super::space::{CommandId, Space};
use super::wire::{self, Answer, Call, Command};

#[derive(Debug)]
pub enum Input {
    Birth {
        peer: NodeId,
    },
    Death {
        peer: NodeId,
    },
    /// A frame of one of this class's kinds.
    Frame {
        from: NodeId,
        frame: Frame,
    },
    /// Ends in `Answer` with this id, within the budget.
    Ask {
        id: AskId,
        budget: Span,
        op: Op,
    },
    /// All groups that there are, in this version of the declaration.
    Placed {
        version: u64,
        groups: BTreeMap<GroupId, Placed>,
    },
    Appended {
        group: GroupId,
        ticket: Ticket,
    },
    Saved {
        group: GroupId,
        ticket: Ticket,
    },
    /// The disk takes nothing (true), or takes all again.
    DiskFull(bool),
    /// Does this group have a majority now? Ends in `Probed` with this id, within the budget.
    Probe {
        id: u64,
        group: GroupId,
        budget: Span,
    },
    Wake,
}

#[derive(Debug)]
pub enum Output {
    /// Of this node's member of a group.
    Raft {
        group: GroupId,
        output: raft::Output,
    },
    Send {
        to: NodeId,
        frame: Frame,
    },
    Answer {
        id: AskId,
        outcome: Outcome<Ran>,
    },
    /// Of a probe: a majority of the group has answered since it was asked for.
    Probed {
        id: u64,
        answers: bool,
    },
    /// The group is no longer this node's.
    Forget {
        group: GroupId,
    },
    /// Whatever a reboot of the machine has cost this node's members, they have again.
    Recovered,
    Note(Note),
}

pub struct Linear {
    me: NodeId,
    boot: Boot,
    rng: Rng,
    live: BTreeSet<NodeId>,
    /// The disk is full: this node's members take no part, its front doors go on with the others.
    mute: bool,
    placed: BTreeMap<GroupId, Placed>,
    /// Of each namespace, the first hash of each group.
    spaces: BTreeMap<Arc<str>, BTreeMap<u64, GroupId>>,
    groups: BTreeMap<GroupId, Group>,
    /// What the disk has kept of groups that this node has not been told of yet.
    kept: BTreeMap<GroupId, Vec<Bytes>>,
    /// Groups whose log cannot be read. It takes no part in them in this life: with an empty log it would promise what the other
    /// denies.
    unreadable: BTreeSet<GroupId>,
    /// What was not forced may be missing there, and not all has been made up for.
    rebooted: bool,
    /// Groups by the moment when they want to be woken.
    alarms: BTreeSet<(Time, GroupId)>,
    alarm_of: BTreeMap<GroupId, Time>,
    /// Who leads, as last heard.
    leaders: BTreeMap<GroupId, NodeId>,
    calls: BTreeMap<u64, Pending>,
    /// When each call wants to be looked at.
    timers: BTreeSet<(Time, u64)>,
    /// Writes without an end.
    writes: BTreeSet<u64>,
    /// Calls that may wait at a leader.
    waiting: usize,
    next_seq: u64,
    /// Bytes appended to the node's log by all groups since it started.
    logged: u64,
    counts: Counts,
    wants: Vec<raft::Output>,
    done: Vec<Answered>,
}

#[derive(Default)]
struct Counts {
    reads: u64,
    writes: u64,
    refused: u64,
    unknown: u64,
    again: u64,
    /// Reads that a member answered without asking the leader.
    stale: u64,
}

/// Who waits for a call.
#[derive(Clone, Copy)]
enum Asker {
    Door(AskId),
    Probe(u64),
}

struct Pending {
    ask: Asker,
    group: GroupId,
    reads: bool,
    command: Command,
    deadline: Time,
    /// When it is sent again.
    again: Time,
    to: Option<NodeId>,
    /// Somebody may have put it into a log.
    sent: bool,
    tries: u32,
    begun: Time,
    /// It only reads, and what it sees may be so old.
    stale: Option<Span>,
    /// Who leads may let it wait: it is not sent again so soon.
    waits: bool,
}

/// Which group an operation is for, whether it only reads, whether the leader may let it wait.
struct Judged {
    group: GroupId,
    reads: bool,
    waits: bool,
}

impl Linear {
    /// `boot` must be higher at each start of the same node: it makes the ids of commands unique.
    pub fn new(me: NodeId, boot: Boot, rng: Rng) -> Self {
        Self {
            me,
            boot,
            rng,
            live: BTreeSet::from([me]),
            mute: false,
            placed: BTreeMap::new(),
            spaces: BTreeMap::new(),
            groups: BTreeMap::new(),
            kept: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            rebooted: false,
            alarms: BTreeSet::new(),
            alarm_of: BTreeMap::new(),
            leaders: BTreeMap::new(),
            calls: BTreeMap::new(),
            timers: BTreeSet::new(),
            writes: BTreeSet::new(),
            waiting: 0,
            next_seq: 1,
            logged: 0,
            counts: Counts::default(),
            wants: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Comes first: what the disk has kept of all groups but the root group. `rebooted`: of those with
    /// `durability = "memory"` the end may be missing.
    pub fn start(&mut self, kept: BTreeMap<GroupId, Vec<Bytes>>, rebooted: bool) {
        (self.kept, self.rebooted) = (kept, rebooted);
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Birth { peer } => {
                self.live.insert(peer);
                self.each_with(now, peer, out, |group, now| group.birth(now));
            }
            Input::Death { peer } => {
                self.live.remove(&peer);
                self.leaders.retain(|_, leader| *leader != peer);
                self.each_with(now, peer, out, |group, now| group.death(now, peer));
                self.look_again(now.mono, |call| call.to == Some(peer));
            }
            Input::Frame { from, frame } if frame.kind == kind::LINEAR_CALL => self.called(now, from, frame, out),
            Input::Frame { from, frame } => match raft::group_of(&frame.head) {
                // Who was rebooted waits for all, also for who cannot write.
                Some(id) if self.mute && !raft::Member::<Space>::is_recall(&frame.head) => {
                    if raft::Member::<Space>::is_leaders_word(&frame.head) {
                        self.leaders.insert(id, from);
                    }
                }
                Some(id) => self.drive(now, id, out, |group, wants, _| {
                    group.frame(now.mono, from, frame.head, frame.body, wants);
                }),
                None => out.push(Output::Note(Note::error(format!("a frame of {from} is not one of this protocol")))),
            },
            Input::Ask { id, budget, op } => self.ask(now, id, budget, op, out),
            Input::Placed { version, groups } => self.place(now, version, groups, out),
            Input::Appended { group, ticket } => {
                self.drive(now, group, out, |group, wants, _| group.appended(now.mono, ticket, wants));
            }
            Input::Saved { group, ticket } => {
                self.drive(now, group, out, |group, wants, _| group.saved(now.mono, ticket, wants));
            }
            Input::Probe { id, group, budget } => {
                // A read of nothing: its leader answers when a majority says that it still leads.
                let nothing = Op { namespace: "".into(), conditions: Vec::new(), steps: Vec::new(), stale: None };
                let judged = Judged { group, reads: true, waits: false };
                self.call(now, Asker::Probe(id), budget, judged, nothing);
            }
            Input::DiskFull(full) => self.disk_full(now, full, out),
            Input::Wake => self.wake(now, out),
        }
        self.send_due(now, out);
        let is_whole = self.kept.is_empty() && self.unreadable.is_empty();
        if self.rebooted && is_whole && !self.groups.values().any(|group| group.member.in_doubt()) {
            self.rebooted = false;
            out.push(Output::Recovered);
        }
    }

    pub fn wake_at(&self) -> Option<Time> {
        let alarm = self.alarms.first().map(|(at, _)| *at).filter(|_| !self.mute);
        let timer = self.timers.first().map(|(at, _)| *at);
        alarm.into_iter().chain(timer).min()
    }

    /// What cannot be written cannot be promised: the others go on without this node's members, until there is room.
    fn disk_full(&mut self, now: Now, full: bool, out: &mut Vec<Output>) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let live = self.live.clone();
            self.drive(now, id, out, |group, wants, _| {
                if full {
                    group.member.resign(now.mono, &live, wants);
                } else {
                    group.rouse(now.mono);
                }
            });
        }
        self.mute = full;
        if full {
            let me = self.me;
            self.leaders.retain(|_, leader| *leader != me);
            self.look_again(now.mono, |call| call.to == Some(me));
        }
    }

    fn wake(&mut self, now: Now, out: &mut Vec<Output>) {
        while !self.mute
            && let Some((at, id)) = self.alarms.first().copied()
            && at <= now.mono
        {
            self.alarms.remove(&(at, id));
            self.alarm_of.remove(&id);
            if let Some(group) = self.groups.get_mut(&id) {
                group.wake(now.mono, &self.live, &mut self.wants);
                self.settle(now, id, out);
            }
        }
    }

    /// Has a group do something, then lets it settle.
    fn drive(
        &mut self,
        now: Now,
        id: GroupId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Group, &mut Vec<raft::Output>, &mut Vec<Answered>),
    ) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        act(group, &mut self.wants, &mut self.done);
        self.settle(now, id, out);
    }

    fn settle(&mut self, now: Now, id: GroupId, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.settle(now, &self.live, &mut self.wants, &mut self.done);
        for output in self.wants.drain(..) {
            if let raft::Output::Append { records, .. } = &output {
                self.logged += records.iter().map(|record| record.len() as u64).sum::<u64>();
            }
            if matches!(output, raft::Output::Save { .. }) {
                group.log_at_save = self.logged;
            }
            out.push(Output::Raft { group: id, output });
        }
        if let Some(leader) = group.member.leader() {
            self.leaders.insert(id, leader);
        }
        let at = group.wake_at().max(now.mono + WAKE_AGAIN_MIN);
        let before = self.alarm_of.insert(id, at);
        if before != Some(at) {
            before.map(|before| self.alarms.remove(&(before, id)));
            if at < Time::NEVER {
                self.alarms.insert((at, id));
            }
        }
        for Answered { id: command, answer } in std::mem::take(&mut self.done) {
            if command.node == self.me {
                self.answered(now.mono, id, self.me, command, answer, out);
            } else {
                let frame =
                    Frame::new(kind::LINEAR_CALL, wire::encode_call(&Call::Answer { group: id, id: command, answer }));
                out.push(Output::Send { to: command.node, frame });
            }
        }
    }

    fn each_with(&mut self, now: Now, peer: NodeId, out: &mut Vec<Output>, act: impl Fn(&mut Group, Time)) {
        let has = |group: &Group| {
            group.placed.members.contains(&peer)
                || group.member.voters().contains(&peer)
                || group.member.learners().contains(&peer)
        };
        let ids: Vec<GroupId> = self.groups.iter().filter(|(_, group)| has(group)).map(|(id, _)| *id).collect();
        for id in ids {
            self.drive(now, id, out, |group, _, _| act(group, now.mono));
        }
    }

    /// Lets groups follow what is placed: begins those that are this node's, tells the others who is in them.
    fn place(&mut self, now: Now, version: u64, placed: BTreeMap<GroupId, Placed>, out: &mut Vec<Output>) {
        if placed == self.placed && self.kept.is_empty() {
            return;
        }
        self.placed = placed;
        self.spaces.clear();
        for (id, placed) in &self.placed {
            self.spaces.entry(placed.namespace.as_str().into()).or_default().insert(placed.from, *id);
        }
        let known: BTreeSet<GroupId> =
            self.placed.keys().chain(self.groups.keys()).chain(self.kept.keys()).copied().collect();
        for id in known {
            self.follow(now, version, id, out);
        }
        let gone = |call: &Pending| !self.placed.contains_key(&call.group);
        let gone: Vec<u64> = self.calls.iter().filter(|(_, call)| gone(call)).map(|(seq, _)| *seq).collect();
        for seq in gone {
            self.end(seq, |call| fails(call, "its namespace was removed"), out);
        }
    }

    fn follow(&mut self, now: Now, version: u64, id: GroupId, out: &mut Vec<Output>) {
        let placed = self.placed.get(&id).cloned();
        let Some(placed) = placed else {
            if version < place::created_at(id) {
                // This node has not heard of it again since it started: no reason to think that it is gone (rule 10).
                return;
            }
            // Its namespace is not declared any more.
            if self.groups.remove(&id).is_some() | self.kept.remove(&id).is_some() {
                self.alarm_of.remove(&id).map(|at| self.alarms.remove(&(at, id)));
                self.leaders.remove(&id);
                out.push(Output::Forget { group: id });
            }
            return;
        };
        let is_member = placed.members.contains(&self.me);
        if let Some(group) = self.groups.get_mut(&id) {
            if group.placed != placed {
                group.placed = placed;
                group.rouse(now.mono);
                group.unwanted_since = (!is_member).then_some(group.unwanted_since.unwrap_or(now.mono));
                self.settle(now, id, out);
            }
            return;
        }
        let log = self.kept.remove(&id).unwrap_or_default();
        if !is_member && log.is_empty() || self.unreadable.contains(&id) {
            return;
        }
        match Group::start(id, placed, self.me, log, self.rebooted, now.mono, self.rng.fork(), &mut self.wants) {
            Ok(mut group) => {
                group.unwanted_since = (!is_member).then_some(now.mono);
                self.groups.insert(id, group);
                self.settle(now, id, out);
            }
            // Without a believable log it takes no part in this group (rule 10); everything else runs.
            Err(why) => {
                self.unreadable.insert(id);
                let text = format!("{why}; this node takes no part in {id}");
                out.push(Output::Note(Note::error(text)));
            }
        }
    }

    /// Bytes that all groups have written since the node started.
    pub fn logged(&self) -> u64 {
        self.logged
    }

    /// Now and then: lets go of groups that do not want this node, and has quiet groups give back the log.
    pub fn tend(&mut self, now: Now, out: &mut Vec<Output>) {
        let left = |group: &Group| group.unwanted_since.is_some_and(|since| now.mono.since(since) >= LEAVES_AFTER);
        let left: Vec<GroupId> = self.groups.iter().filter(|(_, group)| left(group)).map(|(id, _)| *id).collect();
        for id in left {
            self.groups.remove(&id);
            self.alarm_of.remove(&id).map(|at| self.alarms.remove(&(at, id)));
            out.push(Output::Forget { group: id });
        }
        let logged = self.logged;
        let holds = |group: &Group| group.member.has_log() && logged - group.log_at_save > LOG_HELD_BYTES_MAX;
        // One at a time: there is no hurry, and each costs the disk its size.
        if let Some(id) = self.groups.iter().find(|(_, group)| holds(group)).map(|(id, _)| *id) {
            self.drive(now, id, out, |group, wants, _| {
                group.member.save(wants);
            });
        }
    }

    fn ask(&mut self, now: Now, ask: AskId, budget: Span, op: Op, out: &mut Vec<Output>) {
        let judged = match self.judge(&op) {
            Ok(judged) => judged,
            Err(refused) => {
                self.counts.refused += 1;
                return out.push(Output::Answer { id: ask, outcome: Outcome::Refused(refused) });
            }
        };
        if judged.reads {
            self.counts.reads += 1;
        } else {
            self.counts.writes += 1;
            self.writes.insert(self.next_seq);
        }
        self.call(now, Asker::Door(ask), budget, judged, op);
    }

    fn call(&mut self, now: Now, ask: Asker, budget: Span, judged: Judged, op: Op) {
        let Judged { group, reads, waits } = judged;
        let seq = self.next_seq;
        self.next_seq += 1;
        let id = CommandId { node: self.me, boot: self.boot, seq };
        let command = Command { id, floor: 0, conditions: op.conditions, steps: op.steps };
        let (deadline, again) = (now.mono + budget, now.mono);
        let begun = now.mono;
        let stale = op.stale.filter(|_| reads);
        let call = Pending {
            ask,
            group,
            reads,
            command,
            deadline,
            again,
            to: None,
            sent: false,
            tries: 0,
            begun,
            stale,
            waits,
        };
        self.waiting += usize::from(waits);
        self.calls.insert(seq, call);
        self.timers.insert((again, seq));
    }

    fn judge(&self, op: &Op) -> Result<Judged, Refused> {
        if self.calls.len() >= CALLS_MAX {
            return Err(Refused::busy(format!("{CALLS_MAX} operations of this node wait already"), Span::millis(50)));
        }
        if op.steps.is_empty() || op.steps.len() > STEPS_MAX || op.conditions.len() > STEPS_MAX {
            return Err(Refused::wrong(format!(
                "an operation has 1 to {STEPS_MAX} steps and at most as many conditions"
            )));
        }
        let (mut reads, mut whole, waits) = (true, false, may_wait(&op.steps));
        let mut alone = false;
        let mut keys: Vec<&Bytes> = op.conditions.iter().map(|condition| &condition.key).collect();
        for step in &op.steps {
            let Some(function) = functions::find(step.function) else {
                return Err(Refused::wrong("no function of this name"));
            };
            reads &= matches!(function.run, Run::Read(_));
            whole |= function.whole;
            alone |= function.waits;
            keys.extend(function.keys(step));
        }
        if let Some(key) = keys.iter().find(|key| !(1..=KEY_BYTES_MAX).contains(&key.len())) {
            return Err(Refused::wrong(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one {}", key.len())));
        }
        if alone && (op.steps.len() > 1 || !op.conditions.is_empty()) {
            return Err(Refused::wrong("what may wait is an operation of its own"));
        }
        if waits && self.waiting >= WAITS_MAX {
            return Err(Refused::busy(format!("{WAITS_MAX} operations of this node wait already"), Span::secs(1)));
        }
        let bytes: usize = op.steps.iter().flat_map(|step| &step.args).map(Bytes::len).sum();
        if bytes > COMMAND_BYTES_MAX {
            return Err(Refused::wrong(format!(
                "{bytes} bytes are over the limit of {COMMAND_BYTES_MAX} for an operation"
            )));
        }
        if self.mute && self.is_alone_with(&op.namespace) {
            let why = format!("the disk of this node is full, and no other node has {}", op.namespace);
            return Err(Refused::busy(why, Span::secs(1)));
        }
        let Some(groups) = self.spaces.get(&op.namespace) else {
            return Err(Refused::busy(format!("{} has no groups yet", op.namespace), Span::millis(200)));
        };
        let of = |key: &Bytes| groups.range(..=place_hash(key)).next_back().map(|(_, id)| *id);
        let mut ids: BTreeSet<Option<GroupId>> = keys.into_iter().map(of).collect();
        if whole && groups.len() == 1 {
            ids = groups.values().map(|id| Some(*id)).collect();
        }
        match (ids.len(), ids.first()) {
            (1, Some(Some(id))) if !whole || groups.len() == 1 => Ok(Judged { group: *id, reads, waits }),
            _ => Err(Refused::wrong(format!(
                "{} has {} shards, and an operation on several keys needs them in one: declare shards = 1",
                op.namespace,
                groups.len()
            ))),
        }
    }

    fn is_alone_with(&self, namespace: &str) -> bool {
        let groups = self.placed.values().filter(|placed| placed.namespace == namespace);
        groups.into_iter().any(|placed| placed.members == [self.me])
    }

    /// Sends what is due, ends what is over.
    fn send_due(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((at, seq)) = self.timers.first().copied()
            && at <= now.mono
        {
            self.timers.remove(&(at, seq));
            let Some(call) = self.calls.get_mut(&seq) else { continue };
            if call.deadline <= now.mono {
                self.end(seq, |call| fails(call, "no answer of its group's leader in time"), out);
                continue;
            }
            let to = self.leaders.get(&call.group).copied().filter(|id| self.live.contains(id));
            // Nobody is known: one after the other of those who should know.
            let members = self.placed.get(&call.group).map_or(&[][..], |placed| &placed.members);
            let may = |id: &NodeId| self.live.contains(id) && !(self.mute && *id == self.me);
            let living: Vec<NodeId> = members.iter().copied().filter(may).collect();
            let to = to.or_else(|| living.get(call.tries as usize % living.len().max(1)).copied());
            // A member of our own is asked first if it may answer at all.
            let to = to.map(|to| {
                if call.stale.is_some() && call.tries == 0 && self.groups.contains_key(&call.group) {
                    self.me
                } else {
                    to
                }
            });
            call.tries += 1;
            self.counts.again += u64::from(call.tries > 1);
            let wait = match to {
                Some(_) if call.waits => WATCH_HOLD + CALL_AGAIN,
                Some(_) => CALL_AGAIN,
                None => CALL_SOON,
            };
            (call.to, call.again) = (to, (now.mono + wait).min(call.deadline));
            self.timers.insert((call.again, seq));
            let Some(to) = to else { continue };
            call.command.floor = self.writes.first().copied().unwrap_or(seq).min(seq);
            let (group, reads, stale, command) = (call.group, call.reads, call.stale, call.command.clone());
            call.sent |= !reads;
            let budget = call.deadline.since(now.mono);
            if to == self.me {
                if self.groups.contains_key(&group) && !self.mute {
                    let asked = Asked { reads, stale, until: may_wait_until(now.mono, budget), command };
                    self.drive(now, group, out, |group, _, done| group.command(now.mono, asked, done));
                } else {
                    self.leaders.remove(&group);
                }
                continue;
            }
            let mut frame =
                Frame::new(kind::LINEAR_CALL, wire::encode_call(&Call::Do { group, reads, stale, command }));
            frame.budget_ms = u32::try_from(budget.as_millis().max(1)).unwrap_or(u32::MAX);
            out.push(Output::Send { to, frame });
        }
    }

    fn called(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Vec<Output>) {
        match wire::decode_call(frame.head) {
            Some(Call::Do { group, reads, stale, command }) if command.id.node == from => {
                if self.groups.contains_key(&group) && !self.mute {
                    let until = may_wait_until(now.mono, Span::millis(frame.budget_ms.into()));
                    let asked = Asked { reads, stale, until, command };
                    self.drive(now, group, out, |group, _, done| group.command(now.mono, asked, done));
                } else {
                    let answer =
                        Answer::Elsewhere { leader: self.leaders.get(&group).copied().filter(|id| *id != self.me) };
                    let call = Call::Answer { group, id: command.id, answer };
                    out.push(Output::Send { to: from, frame: Frame::new(kind::LINEAR_CALL, wire::encode_call(&call)) });
                }
            }
            Some(Call::Answer { group, id, answer }) if id.node == self.me => {
                self.answered(now.mono, group, from, id, answer, out);
            }
            Some(Call::Do { .. } | Call::Answer { .. }) | None => {
                out.push(Output::Note(Note::error(format!("a call of {from} is not one of this protocol"))));
            }
        }
    }

    fn answered(
        &mut self,
        now: Time,
        group: GroupId,
        from: NodeId,
        id: CommandId,
        answer: Answer,
        out: &mut Vec<Output>,
    ) {
        if id.boot != self.boot {
            // For a former life of this node.
            return;
        }
        let Some(call) = self.calls.get_mut(&id.seq).filter(|call| call.group == group) else { return };
        match answer {
            Answer::Ran(ran, index) => {
                let (begun, stale) = (call.begun, call.stale.is_some() && index == 0);
                self.counts.stale += u64::from(stale);
                if let Some(member) = self.groups.get_mut(&group) {
                    member.learn(begun, index);
                }
                self.end(id.seq, |_| Outcome::Done(ran), out);
            }
            Answer::Forgotten => self.end(id.seq, |_| unknown("its fate is forgotten, so long ago it was"), out),
            Answer::Elsewhere { leader } => {
                // Only if it was asked last; and a leader that it knows of is worth a try at once.
                if call.to != Some(from) {
                    return;
                }
                let known = leader.filter(|leader| *leader != from && self.live.contains(leader));
                match known {
                    Some(leader) => drop(self.leaders.insert(group, leader)),
                    None => drop(self.leaders.remove(&group)),
                }
                let at = if known.is_some() && call.tries < 4 { now } else { now + CALL_SOON };
                self.look_at(id.seq, at);
            }
            Answer::Busy => self.look_at(id.seq, now + CALL_SOON),
        }
    }

    fn look_again(&mut self, now: Time, which: impl Fn(&Pending) -> bool) {
        let seqs: Vec<u64> = self.calls.iter().filter(|(_, call)| which(call)).map(|(seq, _)| *seq).collect();
        seqs.into_iter().for_each(|seq| self.look_at(seq, now));
    }

    fn look_at(&mut self, seq: u64, at: Time) {
        let Some(call) = self.calls.get_mut(&seq) else { return };
        let at = at.min(call.deadline);
        self.timers.remove(&(call.again, seq));
        call.again = at;
        self.timers.insert((at, seq));
    }

    fn end(&mut self, seq: u64, outcome: impl FnOnce(&Pending) -> Outcome<Ran>, out: &mut Vec<Output>) {
        let Some(call) = self.calls.remove(&seq) else { return };
        self.waiting -= usize::from(call.waits);
        self.timers.remove(&(call.again, seq));
        self.writes.remove(&seq);
        let outcome = outcome(&call);
        let id = match call.ask {
            Asker::Door(id) => id,
            Asker::Probe(id) => {
                let answers = matches!(outcome, Outcome::Done(_));
                return out.push(Output::Probed { id, answers });
            }
        };
        match &outcome {
            Outcome::Done(_) => (),
            Outcome::Refused(_) => self.counts.refused += 1,
            Outcome::Unknown(_) => self.counts.unknown += 1,
        }
        out.push(Output::Answer { id, outcome });
    }

    /// Groups that this node leads and whose members are those that they should have; for the root group's leader.
    pub fn formed(&self) -> BTreeSet<GroupId> {
        let formed = |group: &&Group| group.leads() && !group.placed.founders.is_empty() && group.is_as_wanted();
        self.groups.values().filter(formed).map(|group| group.id).collect()
    }

    /// Who leads each group, as far as this node knows.
    pub fn leader_of(&self, group: GroupId) -> Option<NodeId> {
        self.leaders.get(&group).copied().filter(|id| self.live.contains(id))
    }

    /// Keys that get many commands at this node's members of groups, with their namespaces.
    pub fn hot(&self, now: Time) -> impl Iterator<Item = (&str, HotKey)> {
        self.groups.values().flat_map(move |group| group.hot(now).map(|hot| (group.placed.namespace.as_str(), hot)))
    }

    pub fn figures(&self) -> [(&'static str, u64); 14] {
        let led = || self.groups.values().filter(|group| group.leads());
        // A group is whole if it is as wanted and every member lives and has what it has.
        let is_whole = |group: &&Group| {
            let alive = |id: &NodeId| self.live.contains(id);
            group.is_as_wanted() && group.placed.members.iter().all(alive) && group.placed.founders.is_empty()
        };
        let keys = led().map(|group| group.member.state().len() as u64).sum();
        let bytes = led().map(|group| raft::State::bytes(group.member.state()) as u64).sum();
        [
            ("linear.groups", self.groups.len() as u64),
            ("linear.groups_led", led().count() as u64),
            ("linear.groups_whole", led().filter(is_whole).count() as u64),
            ("linear.groups_asleep", self.groups.values().filter(|group| group.is_asleep()).count() as u64),
            ("linear.keys", keys),
            ("linear.bytes", bytes),
            ("linear.reads", self.counts.reads),
            ("linear.reads_stale", self.counts.stale),
            ("linear.writes", self.counts.writes),
            ("linear.refused", self.counts.refused),
            ("linear.unknown", self.counts.unknown),
            ("linear.sent_again", self.counts.again),
            ("linear.waiting", self.calls.len() as u64),
            ("linear.watchers", led().map(|group| group.watchers() as u64).sum()),
        ]
    }
}

fn unknown(why: &str) -> Outcome<Ran> {
    Outcome::Unknown(Unknown { why: why.into() })
}

/// How long a leader may let a question wait: its asker must have an answer before he gives up.
fn may_wait_until(now: Time, budget: Span) -> Time {
    now + Span(budget.0.saturating_sub(CALL_AGAIN.0)).min(WATCH_HOLD)
}

/// The end of a call without an answer: a write that was sent may have happened.
fn fails(call: &Pending, why: &str) -> Outcome<Ran> {
    if call.sent { unknown(why) } else { Outcome::Refused(Refused::busy(why, Span::millis(200))) }
}
