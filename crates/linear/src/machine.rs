//! All of the class on one node: its members of groups, the calls of its front doors, and the way between them.
//!
//! A call goes to the group's leader, one hop. It is sent again when nobody answers, when who was asked does not lead,
//! and when that one dies, until its budget is over; it carries an id, so that it happens once however often it is
//! sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Boot, Frame, GroupId, LEVEL, NodeId, Note, Now, Outcome, Priority, Rng, Span, Time, Work, kind};
use bytes::Bytes;
use class::dump::Record;
use class::{Birth, Bounds, Class, Declared, Figure, Number, Numbers, Outlook, Plan, Space as Declaration, Used};
use cluster::raft::{self, LogBounds};
use flow::floor::Told;
use flow::stage::Shown;

use super::apart::Apart;
use super::dump;
use super::group::{Answered, Asked, Group, Nodes, Turn};
use super::heat::HotKey;
use super::limits::*;
use super::op::{Op, Ran};
use super::place::{self, Placed};
use super::planner;
use super::report::{QueueShown, Report};
use super::script::Returned;
use super::space::Space;
use super::spec::Spec;
use super::together::{Together, Waiter};
use super::wire::{self, Call};

mod calls;
mod leaves;
mod splits;

pub use calls::Asker;
use calls::{Judged, Pending, fails};

pub type Input = class::Input<Linear>;
pub type Output = class::Output<Outcome<Ran>>;

pub struct Linear {
    me: NodeId,
    boot: Boot,
    rng: Rng,
    nodes: Nodes,
    /// The disk is full: this node's members take no part, its front doors go on with the others.
    mute: bool,
    /// How far the wall clock is ahead of the monotonic one, milliseconds.
    wall_ahead_ms: u64,
    placed: BTreeMap<GroupId, Placed>,
    /// The records of groups as they are declared, by name.
    records: BTreeMap<String, Placed>,
    /// The version of the declaration that this is of.
    version: u64,
    /// Records of groups that this program cannot read.
    unread: usize,
    /// The level of this program, and what the cluster has agreed on.
    level: u32,
    agreed: u32,
    /// What each namespace may hold, if it may not hold all that there is room for.
    bounds: BTreeMap<String, Bounds>,
    /// Queues by namespace that services say they work on.
    worked_on: BTreeMap<String, BTreeSet<String>>,
    /// Groups that splits make now and that have no record of their own yet, by the group that they come from.
    born: BTreeMap<GroupId, GroupId>,
    /// Groups that are to be split now and are known to have done it, so the upper half is asked of the new group.
    parted: BTreeSet<GroupId>,
    /// First hash of each group, by namespace.
    spaces: BTreeMap<Arc<str>, BTreeMap<u64, GroupId>>,
    groups: BTreeMap<GroupId, Group>,
    /// What the disk has kept of groups that this node has not been told of yet.
    kept: BTreeMap<GroupId, Vec<Bytes>>,
    /// Groups whose log cannot be read, or has what only a newer program knows. It takes no part in them in this life:
    /// with an empty log it would promise what the other denies.
    unreadable: BTreeSet<GroupId>,
    /// What was not forced may be missing there, and not all has been made up for.
    rebooted: bool,
    /// Groups by the moment when they want to be woken.
    alarms: BTreeSet<(Time, GroupId)>,
    alarm_of: BTreeMap<GroupId, Time>,
    /// Who leads, as last heard.
    leaders: BTreeMap<GroupId, NodeId>,
    /// Whom they turn away, by group, of writes (false) and reads.
    told: BTreeMap<(GroupId, bool), Told>,
    calls: BTreeMap<u64, Pending>,
    /// Operations of which each shard has a call of its own.
    apart: BTreeMap<u64, Apart>,
    /// Weak operations, several of which are one call.
    together: Together,
    /// Weak operations among them that are done alone now.
    alone: Vec<(Waiter, Op)>,
    /// When each call wants to be looked at.
    timers: BTreeSet<(Time, u64)>,
    /// Writes without an end.
    writes: BTreeSet<u64>,
    /// Calls that may wait at a leader.
    waiting: usize,
    /// Bytes of the commands of all calls.
    calls_bytes: usize,
    log: LogBounds,
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
    over: u64,
    unknown: u64,
    again: u64,
    /// Operations that leaders have too much to do for.
    turned_away: u64,
    /// Weak operations that were done with another one.
    joined: u64,
    /// Reads that a member answered without asking the leader.
    stale: u64,
}

impl Class for Linear {
    const NAME: &'static str = "linear";
    const NUMBER: Number = Number::LINEAR;
    const RECORDS: &'static str = "group";
    const FIGURES: &'static [Figure] = FIGURES;

    type Settings = ();
    type Spec = Spec;
    type Op = Op;
    type Reply = Ran;
    type Record = Placed;
    type Report = Report;
    type Dump = dump::Dump;

    /// There may be a thousand groups.
    const PLANS_EVERY: Option<Span> = Some(Span::secs(1));
    const ON_DISK: bool = true;
    const IN_GROUPS: bool = true;
    const DUMPED: &'static str =
        "all keys of each shard as they were at one version of it; shards may be of different moments";

    fn born(birth: &mut Birth, (): ()) -> Self {
        Linear::new(birth.me, birth.boot, birth.rng.fork()).with_log(birth.log).with_level(birth.level)
    }

    fn start(&mut self, kept: BTreeMap<GroupId, Vec<Bytes>>, rebooted: bool) -> bool {
        (self.kept, self.rebooted) = (kept, rebooted);
        rebooted
    }

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.turn(now, input, out);
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, op.steps.len() as u64)
    }

    fn wake_at(&self) -> Option<Time> {
        let alarm = self.alarms.first().map(|(at, _)| *at).filter(|_| !self.mute);
        let timer = self.timers.first().map(|(at, _)| *at);
        alarm.into_iter().chain(timer).min()
    }

    fn plan(&self, outlook: &Outlook<'_, Self>) -> Plan<Placed> {
        planner::plan(outlook, &self.records)
    }

    fn report(&mut self, now: Time) -> Report {
        self.told(now)
    }

    fn standing(report: &Report) -> Report {
        report.standing()
    }

    /// What the groups hold that this node leads.
    fn used(&self) -> Vec<(&str, Used, Bounds)> {
        let led = self.groups.values().filter(|group| group.leads());
        led.map(|group| (group.placed.namespace.as_str(), group.member.state().used(), group.bounds)).collect()
    }

    fn copies(&self, _: &Spec, _: usize) -> Option<u64> {
        Some(1)
    }

    fn figures(&self) -> Vec<u64> {
        self.counted()
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(space: Arc<str>, shards: Vec<(u64, u64)>, id: u64) -> dump::Dump {
        dump::Dump::new(space, shards, id)
    }

    fn load(space: &Arc<str>, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
        Ok(dump::load(space, record, wall_ms))
    }

    fn loaded(ran: &Ran) -> Result<(), String> {
        dump::loaded(ran)
    }
}

impl Linear {
    /// Groups' logs become no longer than this.
    pub fn with_log(self, log: LogBounds) -> Self {
        Self { log, ..self }
    }

    /// Has the machine take part as a program of this level would.
    pub fn with_level(self, level: u32) -> Self {
        Self { level, ..self }
    }

    /// `boot` must be higher at each start of the same node: it makes the ids of commands unique.
    pub fn new(me: NodeId, boot: Boot, rng: Rng) -> Self {
        Self {
            me,
            boot,
            rng,
            log: LOG,
            nodes: Nodes { live: BTreeSet::from([me]), ..Nodes::default() },
            mute: false,
            wall_ahead_ms: 0,
            placed: BTreeMap::new(),
            records: BTreeMap::new(),
            version: 0,
            unread: 0,
            level: LEVEL,
            agreed: 1,
            bounds: BTreeMap::new(),
            worked_on: BTreeMap::new(),
            born: BTreeMap::new(),
            parted: BTreeSet::new(),
            spaces: BTreeMap::new(),
            groups: BTreeMap::new(),
            kept: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            rebooted: false,
            alarms: BTreeSet::new(),
            alarm_of: BTreeMap::new(),
            leaders: BTreeMap::new(),
            told: BTreeMap::new(),
            calls: BTreeMap::new(),
            apart: BTreeMap::new(),
            together: Together::default(),
            alone: Vec::new(),
            timers: BTreeSet::new(),
            writes: BTreeSet::new(),
            waiting: 0,
            calls_bytes: 0,
            next_seq: 1,
            logged: 0,
            counts: Counts::default(),
            wants: Vec::new(),
            done: Vec::new(),
        }
    }

    fn turn(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let wall_ahead_ms = now.wall_ms.saturating_sub(now.mono.since(Time::ZERO).as_millis());
        if wall_ahead_ms > std::mem::replace(&mut self.wall_ahead_ms, wall_ahead_ms) + CLOCKS_PART_MS {
            // It was set forward; or the other one stood still.
            self.groups.values_mut().for_each(|group| group.stood(now.mono));
        }
        match input {
            Input::Birth { peer, .. } => {
                self.nodes.live.insert(peer);
                self.doubt(peer);
                self.each_with(now, peer, out, |group, now| group.birth(now));
            }
            Input::Death { peer } => {
                self.nodes.live.remove(&peer);
                self.leaders.retain(|_, leader| *leader != peer);
                self.doubt(peer);
                self.each_with(now, peer, out, |group, now| group.death(now, peer));
                self.look_again(now.mono, |call| call.to == Some(peer));
            }
            Input::Frame { from, frame } if frame.kind == kind::LINEAR_CALL => self.called(now, from, frame, out),
            Input::Frame { from, frame } => match raft::group_of(&frame.head) {
                // Who was rebooted waits for all, also for who cannot write.
                Some(id) if self.mute && !raft::Member::<Space>::is_recall(&frame.head) => {
                    let has = self.groups.get(&id).is_some_and(|group| group.has(from));
                    if has && raft::Member::<Space>::is_leaders_word(&frame.head) {
                        self.leaders.insert(id, from);
                    }
                }
                Some(id) => {
                    let mut result = Ok(());
                    self.drive(now, id, out, |group, wants, _| {
                        result = group.frame(now.mono, from, frame.head, frame.body, wants);
                    });
                    if let Err(why) = result {
                        out.push(Output::Bad { from, why: format!("for {id} {why}") });
                    }
                }
                None => out.push(Output::Bad { from, why: "is of no group".to_owned() }),
            },
            Input::Ask { id, budget, op } => self.ask(now, Asker::Door(id), budget, op, out),
            Input::Declared(Declared { version, level, spaces, records, unread, nodes: _, numbers: _ }) => {
                (self.agreed, self.unread) = (level, unread);
                let bounds = |space: &Declaration<Self>| class::Spec::quota(&space.spec).bounds(level);
                let bounds = spaces.into_iter().map(|(name, space)| (name, bounds(&space)));
                self.bounds = bounds.filter(|(_, bounds)| !bounds.is_none()).collect();
                let groups = records.values().map(|placed| (placed.id, placed.clone())).collect();
                self.records = records;
                self.place(now, version, groups, out);
                for group in self.groups.values_mut() {
                    group.bounds = share(&self.bounds, &group.placed);
                }
            }
            // What its part of other nodes tells is for the planner (`place.rs`).
            Input::Told { .. } => (),
            Input::Appended { group, ticket } => {
                self.drive(now, group, out, |group, wants, _| group.appended(now.mono, ticket, wants));
            }
            Input::Saved { group, ticket } => {
                self.drive(now, group, out, |group, wants, _| group.saved(now.mono, ticket, wants));
            }
            Input::Worked { group, number, work } => {
                if let Ok(returned) = work.0.downcast::<Returned>() {
                    self.drive(now, group, out, |group, _, _| group.returned(now.mono, number, *returned));
                }
            }
            Input::Probe { id, group, budget } => {
                // A read of nothing: its leader answers when a majority says that it still leads.
                let nothing = Op { priority: Priority::HIGHEST, ..Op::of("".into(), Vec::new()) };
                let judged = Judged { group, splits: 0, reads: true, waits: false, bytes: 0 };
                self.call(now, Asker::Probe(id), budget, judged, nothing);
            }
            Input::Aside(aside) => self.aside(now, aside, out),
            // The root group's leader moves its members elsewhere.
            Input::Leaving(_) => (),
            // Its groups have voters of their own.
            Input::Voters(_) => (),
            // It has none.
            Input::Packs(_) | Input::Pack { .. } | Input::DiskRoom { .. } => (),
            Input::DiskFull(full) => self.disk_full(now, full, out),
            Input::Tend => self.tend(now, out),
            Input::Wake => self.wake(now, out),
        }
        for (Waiter { ask, deadline, .. }, op) in std::mem::take(&mut self.alone) {
            self.ask(now, ask, deadline.since(now.mono), op, out);
        }
        self.send_due(now, out);
        let is_whole = self.kept.is_empty() && self.unreadable.is_empty();
        if self.rebooted && is_whole && !self.groups.values().any(|group| group.member.in_doubt()) {
            self.rebooted = false;
            out.push(Output::Recovered);
        }
    }

    /// What cannot be written cannot be promised: the others go on without this node's members, until there is room.
    fn disk_full(&mut self, now: Now, full: bool, out: &mut Vec<Output>) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let live = self.nodes.live.clone();
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
                group.wake(now.mono, &self.nodes, &mut self.wants);
                self.settle(now, Turn::Ends, id, out);
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
        self.settle(now, Turn::Goes, id, out);
    }

    /// Has a group hear a command. What comes of it is seen to when the turn ends, for all that came in it at once.
    fn command(&mut self, now: Now, id: GroupId, asked: Asked, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.command(now.mono, asked, &mut self.done);
        if self.done.is_empty() {
            let at = self.alarm_of.get(&id).map_or(now.mono, |at| now.mono.min(*at));
            self.set_alarm(id, at);
        } else {
            self.settle(now, Turn::Goes, id, out);
        }
    }

    fn set_alarm(&mut self, id: GroupId, at: Time) {
        let before = self.alarm_of.insert(id, at);
        if before != Some(at) {
            before.map(|before| self.alarms.remove(&(before, id)));
            if at < Time::NEVER {
                self.alarms.insert((at, id));
            }
        }
    }

    fn settle(&mut self, now: Now, turn: Turn, id: GroupId, out: &mut Vec<Output>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let to_go = group.settle(now, turn, &self.nodes, &mut self.wants, &mut self.done);
        for output in self.wants.drain(..) {
            if let raft::Output::Append { records, .. } = &output {
                self.logged += records.iter().map(|record| record.len() as u64).sum::<u64>();
            }
            if matches!(output, raft::Output::Save { .. }) {
                group.log_at_save = self.logged;
            }
            out.push(of_raft(id, output));
        }
        if let Some((number, loan)) = group.take_loan() {
            out.push(Output::Work { group: id, number, work: Work(Box::new(loan)) });
        }
        if group.member.is_beyond() {
            return self.leave_to_newer(id, out);
        }
        if let Some(leader) = group.member.leader() {
            self.leaders.insert(id, leader);
        }
        let at = if to_go { now.mono } else { group.wake_at().max(now.mono + WAKE_AGAIN_MIN) };
        self.set_alarm(id, at);
        for Answered { id: command, answer } in std::mem::take(&mut self.done) {
            if command.node == self.me {
                self.answered(now, id, self.me, command, answer, out);
            } else {
                let frame =
                    Frame::new(kind::LINEAR_CALL, wire::encode_call(&Call::Answer { group: id, id: command, answer }));
                out.push(Output::Send { to: command.node, frame });
            }
        }
        self.bear(now, id, out);
    }

    /// A group agreed on something that this program does not know. It takes no further part in it (rule 10): what it
    /// would make of it is not what the others do. Its log stays for the newer program.
    fn leave_to_newer(&mut self, id: GroupId, out: &mut Vec<Output>) {
        self.groups.remove(&id);
        self.alarm_of.remove(&id).map(|at| self.alarms.remove(&(at, id)));
        self.leaders.remove(&id);
        self.unreadable.insert(id);
        self.done.clear();
        let text = format!(
            "{id} has agreed on what only a newer program knows; this node takes no part in it: start the newer program"
        );
        out.push(Output::Note(Note::error(text)));
    }

    fn each_with(&mut self, now: Now, peer: NodeId, out: &mut Vec<Output>, act: impl Fn(&mut Group, Time)) {
        let has = |group: &Group| group.has(peer);
        let ids: Vec<GroupId> = self.groups.iter().filter(|(_, group)| has(group)).map(|(id, _)| *id).collect();
        for id in ids {
            self.drive(now, id, out, |group, _, _| act(group, now.mono));
        }
    }

    /// Lets groups follow what is placed: begins those that are this node's, tells the others who is in them.
    fn place(&mut self, now: Now, version: u64, placed: BTreeMap<GroupId, Placed>, out: &mut Vec<Output>) {
        self.version = version;
        let (placed, born) = splits::with_born(placed);
        if placed == self.placed && self.kept.is_empty() {
            return;
        }
        let splits = |of: &BTreeMap<GroupId, Placed>, id: &GroupId| of.get(id).map(|placed| placed.splits);
        self.parted.retain(|id| born.contains_key(id) && splits(&self.placed, id) == splits(&placed, id));
        (self.placed, self.born) = (placed, born);
        self.route();
        let known: BTreeSet<GroupId> =
            self.placed.keys().chain(self.groups.keys()).chain(self.kept.keys()).copied().collect();
        for id in known {
            self.follow(now, version, id, out);
        }
        self.told.retain(|(group, _), _| self.placed.contains_key(group));
        let gone = |call: &Pending| !self.placed.contains_key(&call.group);
        let gone: Vec<u64> = self.calls.iter().filter(|(_, call)| gone(call)).map(|(seq, _)| *seq).collect();
        for seq in gone {
            self.end(seq, |call| fails(call, "its namespace was removed"), out);
        }
    }

    fn follow(&mut self, now: Now, version: u64, id: GroupId, out: &mut Vec<Output>) {
        let placed = self.placed.get(&id).cloned();
        let Some(placed) = placed else {
            if self.unread > 0 || version < place::created_at(id) {
                // Its record is one that this program cannot read, or this node has not heard of it again since it
                // started: no reason to think that it is gone (rule 10).
                return;
            }
            // Its namespace is not declared any more.
            if self.groups.contains_key(&id) | self.kept.remove(&id).is_some() {
                self.leaders.remove(&id);
                self.forget(id, out);
            }
            return;
        };
        let is_member = placed.members.contains(&self.me);
        if let Some(group) = self.groups.get_mut(&id) {
            if group.placed != placed {
                group.follow(now.mono, placed);
                group.leaves_at = (!is_member).then_some(now.mono);
                self.settle(now, Turn::Goes, id, out);
            }
            return;
        }
        let log = self.kept.remove(&id).unwrap_or_default();
        // A new group begins here when this node's member of the old one has been split.
        let waits = log.is_empty() && (!is_member || self.born.values().any(|born| *born == id));
        if !waits {
            self.begin(now, placed, None, log, out);
        }
    }

    fn begin(&mut self, now: Now, placed: Placed, first: Option<Space>, log: Vec<Bytes>, out: &mut Vec<Output>) {
        let (id, is_member) = (placed.id, placed.members.contains(&self.me));
        if self.unreadable.contains(&id) {
            return;
        }
        let (rng, me) = (self.rng.fork(), (self.me, self.level));
        match Group::start(id, placed, me, first, (log, self.log), self.rebooted, now.mono, rng, &mut self.wants) {
            Ok(mut group) => {
                group.bounds = share(&self.bounds, &group.placed);
                group.leaves_at = (!is_member).then_some(now.mono);
                self.groups.insert(id, group);
                self.settle(now, Turn::Goes, id, out);
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

    /// Now and then: asks to be let go by groups that do not want this node, and has quiet groups give back the log.
    fn tend(&mut self, now: Now, out: &mut Vec<Output>) {
        self.ask_to_leave(now, out);
        let logged = self.logged;
        let split = self.groups.values_mut().find(|group| group.may_save() && group.member.has_log());
        if let Some(group) = split {
            group.to_save = false;
            let id = group.id;
            self.drive(now, id, out, |group, wants, _| {
                group.member.save(wants);
            });
        }
        let holds = |group: &Group| group.member.holds_up(logged - group.log_at_save);
        // One at a time: there is no hurry, and each costs the disk its size.
        if let Some(id) = self.groups.iter().find(|(_, group)| holds(group)).map(|(id, _)| *id) {
            self.drive(now, id, out, |group, wants, _| {
                group.member.save(wants);
            });
        }
    }

    /// Groups that this node leads and whose members are those that they should have; for the root group's leader. A
    /// group that a split has made must also have agreed to something: then a majority has its half on disk.
    pub fn formed(&self) -> BTreeSet<GroupId> {
        let is_founded = |group: &Group| !group.placed.founders.is_empty() && group.is_as_wanted();
        let is_born = |group: &Group| self.born.values().any(|id| *id == group.id) && group.member.is_agreed();
        let formed = |group: &&Group| group.leads() && (is_founded(group) || is_born(group));
        self.groups.values().filter(formed).map(|group| group.id).collect()
    }

    /// Groups that this node leads.
    pub fn led(&self) -> impl Iterator<Item = GroupId> {
        self.groups.values().filter(|group| group.leads()).map(|group| group.id)
    }

    /// Groups that this node leads and that have grown large.
    pub fn large(&self) -> BTreeSet<GroupId> {
        let large = |group: &&Group| group.leads() && group.member.state().is_large(group.placed.middle());
        self.groups.values().filter(large).map(|group| group.id).collect()
    }

    /// How many groups this node leads in which all is as it should be, in this version of the declaration.
    pub fn whole(&self) -> (u64, u64) {
        (self.version, self.groups.values().filter(|group| self.is_whole(group)).count() as u64)
    }

    /// Groups that this node leads and in which not all is as it should be.
    pub fn unwhole(&self) -> impl Iterator<Item = GroupId> {
        self.groups.values().filter(|group| group.leads() && !self.is_whole(group)).map(|group| group.id)
    }

    /// Whether this node leads the group, it is as wanted, and every member lives, votes and has (nearly) all.
    fn is_whole(&self, group: &Group) -> bool {
        let alive = |id: &NodeId| self.nodes.live.contains(id);
        // One that a split makes has no record yet, and does not count.
        let is_splitting = self.born.iter().any(|(parent, child)| [parent, child].contains(&&group.id));
        let is_done = group.placed.founders.is_empty() && !is_splitting;
        let is_done = is_done && group.member.state().splits() == group.placed.splits;
        let is_level = || group.is_asleep() || group.member.is_level();
        group.leads() && group.is_as_wanted() && is_done && group.placed.members.iter().all(alive) && is_level()
    }

    /// Who leads it, as far as this node knows: of a group that it is no member of, what it was told when it last
    /// asked.
    pub fn leader_of(&self, group: GroupId) -> Option<NodeId> {
        self.leaders.get(&group).copied().filter(|id| self.nodes.live.contains(id))
    }

    /// Keys that get many commands at this node's members of groups, with their namespaces.
    pub fn hot(&self, now: Time) -> impl Iterator<Item = (&str, HotKey)> {
        self.groups.values().flat_map(move |group| group.hot(now).map(|hot| (group.placed.namespace.as_str(), hot)))
    }

    /// Which queues services work on, by namespace: those are told of first.
    pub fn work_on(&mut self, queues: BTreeMap<String, BTreeSet<String>>) {
        self.worked_on = queues;
    }

    pub(super) fn is_worked_on(&self, namespace: &str, queue: &str) -> bool {
        self.worked_on.get(namespace).is_some_and(|queues| queues.contains(queue))
    }

    /// Queues of the groups that this node leads, with their namespaces.
    pub(super) fn queues_led(&self, now: Time) -> impl Iterator<Item = (&str, QueueShown)> {
        let led = self.groups.values().filter(|group| group.leads());
        led.flat_map(move |group| group.queues(now).map(|shown| (group.placed.namespace.as_str(), shown)))
    }

    /// Values of [`FIGURES`], in the same order.
    fn counted(&self) -> Vec<u64> {
        let led = || self.groups.values().filter(|group| group.leads());
        let keys = led().map(|group| group.member.state().len() as u64).sum();
        let bytes = led().map(|group| raft::State::bytes(group.member.state()) as u64).sum();
        vec![
            bytes,
            self.groups.len() as u64,
            self.groups.values().filter(|group| group.is_asleep()).count() as u64,
            led().count() as u64,
            self.whole().1,
            self.counts.joined,
            keys,
            self.counts.over,
            self.counts.reads,
            self.counts.stale,
            self.counts.refused,
            self.counts.again,
            self.counts.turned_away,
            self.counts.unknown,
            self.calls.len() as u64,
            led().map(|group| group.watchers() as u64).sum(),
            self.counts.writes,
        ]
    }
}

/// A declaration of these groups, and of nothing else: what tests and measurements of the class alone begin with.
pub fn declared(version: u64, level: u32, groups: impl IntoIterator<Item = Placed>) -> Input {
    let records = groups.into_iter().map(|placed| (placed.id.to_string(), placed)).collect();
    let (spaces, nodes, numbers) = (BTreeMap::new(), BTreeSet::new(), Numbers::default());
    Input::Declared(Declared { version, level, spaces, records, unread: 0, nodes, numbers })
}

/// All figures of the class, in order of their names.
const FIGURES: &[Figure] = &[
    Figure::gauge("linear.bytes", "Bytes of keys and values in the shards that this node leads."),
    Figure::gauge("linear.groups", "This node's members of shards."),
    Figure::gauge("linear.groups_asleep", "This node's members that sleep, as nobody asks them for anything."),
    Figure::gauge("linear.groups_led", "Shards that this node leads."),
    Figure::gauge("linear.groups_whole", "Shards that this node leads and in which every member is there and has all."),
    Figure::counter("linear.joined", "Weak operations that were done together with another one."),
    Figure::gauge("linear.keys", "Keys in the shards that this node leads."),
    Figure::counter(
        "linear.over",
        "Operations that were refused as their namespace has all that is declared for it: bytes_max, keys_max.",
    ),
    Figure::counter("linear.reads", "Reads that were asked for at this node's doors."),
    Figure::counter(
        "linear.reads_stale",
        "Reads that a member answered without asking the leader, as they may be stale.",
    ),
    Figure::counter("linear.refused", "Operations that were refused: nothing was changed."),
    Figure::counter(
        "linear.sent_again",
        "Calls that were sent again, as nobody answered or who was asked does not lead.",
    ),
    Figure::counter("linear.turned_away", "Operations that leaders had too much to do for."),
    Figure::counter("linear.unknown", "Writes of which it is not known whether they happened."),
    Figure::gauge("linear.waiting", "Calls of this node's doors that wait for an answer."),
    Figure::gauge("linear.watchers", "Clients that wait for changes at the shards that this node leads."),
    Figure::counter("linear.writes", "Writes that were asked for at this node's doors."),
];

/// What a group may hold: its part of the hashes is its part of what is declared.
fn share(all: &BTreeMap<String, Bounds>, placed: &Placed) -> Bounds {
    let part = u128::from(placed.to.saturating_sub(placed.from)) + 1;
    all.get(&placed.namespace).map_or_else(Bounds::default, |bounds| bounds.share(part, 1 << 64))
}

fn of_raft(group: GroupId, output: raft::Output) -> Output {
    match output {
        raft::Output::Send { to, frame } => Output::Send { to, frame },
        raft::Output::Append { records, ticket, force } => Output::Append { group, records, ticket, force },
        raft::Output::Save { parts, ticket } => Output::Save { group, parts, ticket },
        raft::Output::Distrust(why) => Output::Distrust { why },
        raft::Output::Note(note) => Output::Note(note),
    }
}
