//! Inputs to outputs: proposals, their way to the leader, their retries and their three ends; who is live, for the group.

use std::collections::{BTreeMap, BTreeSet};

use base::{
    Boot, Frame, GroupId, NodeId, Note, Now, Outcome, Parts, Priority, Record, Refused, Rng, Span, Ticket, Time,
    Unknown, kind,
};
use bytes::Bytes;

use super::declared::{Change, ChangeId, Conflict, Declared, State, Verdict};
use super::group::{self, Scene};
use super::limits::*;
use super::wire::{self, Call};
use crate::raft::limits::TICK;
use crate::raft::{self, Config, LogBounds, Member};

type Happened = raft::Happened<(ChangeId, Verdict)>;

const CONFIG: Config = Config {
    group: GroupId::ROOT,
    control: kind::ROOT,
    data: kind::ROOT,
    log: LogBounds { records_max: LOG_RECORDS_MAX, bytes_max: LOG_BYTES_MAX, entries_kept: ENTRIES_KEPT },
    memory: false,
    uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
};

/// What can happen to the root group's member on a node, after [`Root::start`].
#[derive(Clone, Debug)]
pub enum Input {
    Birth {
        peer: NodeId,
    },
    Death {
        peer: NodeId,
    },
    /// A frame of kind `ROOT` or `ROOT_CALL`.
    Frame {
        from: NodeId,
        kind: u16,
        head: Bytes,
        body: Bytes,
    },
    /// Ends in `Proposed` with this id, within the budget.
    Propose {
        id: u64,
        budget: Span,
        change: Change,
    },
    Appended {
        ticket: Ticket,
    },
    Saved {
        ticket: Ticket,
    },
    /// So many bytes other groups have written into this node's log since it started.
    Logged(u64),
    /// The disk takes nothing (true), or takes all again.
    DiskFull(bool),
    /// Who is about to end, or is not to lead.
    Parting(Parting),
    Wake,
}

/// Nodes that are about to end, or are not to lead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parting {
    /// They lead only if nobody else can.
    pub aside: BTreeSet<NodeId>,
    /// They leave for good, and do not vote as soon as another one does instead. True: also if nobody can.
    pub leaving: BTreeMap<NodeId, bool>,
    /// They were removed: they do not come back, and are members of nothing.
    pub gone: BTreeSet<NodeId>,
}

#[derive(Debug)]
pub enum Output {
    Send {
        to: NodeId,
        frame: Frame,
    },
    /// Append to the root group's log and force it to disk.
    Append {
        records: Vec<Record>,
        ticket: Ticket,
    },
    /// Replace the root group's whole log, atomically.
    Save {
        parts: Parts,
        ticket: Ticket,
    },
    /// The disk has kept less than this node promised.
    Distrust(String),
    /// What [`Root::declared`] shows has changed.
    Changed,
    /// Who leads, as far as this node knows, has changed.
    Leads {
        leader: Option<NodeId>,
    },
    /// `Done(Ok(version))`: applied as this version, and `declared()` of this node shows it unless it lags behind.
    /// `Done(Err(conflict))`: not applied.
    Proposed {
        id: u64,
        outcome: Outcome<Result<u64, Conflict>>,
    },
    /// A frame of this peer is none of this protocol, or claims what cannot be.
    Bad {
        from: NodeId,
        why: String,
    },
    Note(Note),
}

impl From<raft::Output> for Output {
    fn from(output: raft::Output) -> Self {
        match output {
            raft::Output::Send { to, frame } => Self::Send { to, frame },
            raft::Output::Append { records, ticket, force } => {
                assert!(force, "what is declared is always forced");
                Self::Append { records, ticket }
            }
            raft::Output::Save { parts, ticket } => Self::Save { parts, ticket },
            raft::Output::Distrust(why) => Self::Distrust(why),
            raft::Output::Note(note) => Self::Note(note),
        }
    }
}

/// The node must not take part in the group; a person decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// The log that the disk gave us cannot be believed. Records are counted from 0.
    Log { record: usize, why: String },
    /// The records to found a cluster with are wrong.
    Found { why: String },
    /// The log is well-formed, but no member can have written it.
    Senseless { why: String },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log { record, why } => write!(f, "record {record} of the root log {why}"),
            Self::Found { why } => write!(f, "cannot found a cluster: {why}"),
            Self::Senseless { why } => write!(f, "the root log makes no sense: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

/// This node's member of the root group.
pub struct Root {
    me: NodeId,
    boot: Boot,
    rng: Rng,
    /// None until started.
    member: Option<Member<State>>,
    next_tick: Time,
    /// The disk is full: the member takes no part, and who leads is hearsay.
    mute: bool,
    hearsay: Option<NodeId>,
    live: BTreeSet<NodeId>,
    parting: Parting,
    /// Since when those that are not live are away.
    away: BTreeMap<NodeId, Time>,
    pending: BTreeMap<u64, Pending>,
    next_seq: u64,
    /// As leader of this term: proposals that are in the log and not yet applied.
    in_log: (u64, BTreeSet<ChangeId>),
    told: Told,
    nothing: Declared,
    /// What others had written when this group's log was last made a snapshot.
    logged_at_save: u64,
}

/// What outputs have said last.
#[derive(Default)]
struct Told {
    leader: Option<NodeId>,
    version: u64,
    leads: bool,
    voters: Vec<NodeId>,
}

/// A proposal of this node without an end yet.
struct Pending {
    /// The caller's id.
    caller: u64,
    change: Change,
    deadline: Time,
    /// Somebody may have put it into the log.
    sent: bool,
    /// Whom it was last sent to, and when it is sent again.
    to: Option<NodeId>,
    again: Time,
    /// The leader told us its end; we wait until then for our own copy to show it.
    known: Option<(Verdict, Time)>,
}

impl Root {
    /// `boot` must be higher at each start of the same node: it makes the ids of proposals unique.
    pub fn new(me: NodeId, boot: Boot, rng: Rng) -> Self {
        assert!(me.0 != 0, "node id 0 means nobody");
        Self {
            me,
            boot,
            rng,
            member: None,
            next_tick: Time::NEVER,
            mute: false,
            hearsay: None,
            live: BTreeSet::from([me]),
            parting: Parting::default(),
            away: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_seq: 1,
            in_log: (0, BTreeSet::new()),
            told: Told::default(),
            nothing: Declared::default(),
            logged_at_save: 0,
        }
    }

    /// Comes first and once. `log` is what the disk has kept. With an empty log, `found` makes this node the founder of a
    /// cluster, sole voter, with these first records as version 1; without it the node waits until a leader contacts it.
    /// With a log, `found` is ignored. After an error the node is no member: it answers nothing and knows nothing.
    pub fn start(
        &mut self,
        now: Now,
        log: Vec<Bytes>,
        found: Option<Change>,
        out: &mut Vec<Output>,
    ) -> Result<(), StartError> {
        assert!(self.member.is_none(), "started twice");
        let founder = if log.is_empty() { found } else { None };
        let mut wants = Vec::new();
        let member = match founder {
            Some(first) => {
                let state = State::founded(first).map_err(|why| StartError::Found { why })?;
                Member::found(CONFIG, self.me, &[self.me], state, self.rng.fork(), &mut wants)
            }
            None => Member::load(CONFIG, self.me, log, false, self.rng.fork())
                .map_err(|raft::LogError { record, why }| StartError::Log { record, why })?,
        };
        let mut member = member.map_err(|why| StartError::Senseless { why })?;
        if member.voters() == [self.me] {
            // Nobody else could be elected: no reason to wait.
            member.campaign();
        }
        self.member = Some(member);
        out.extend(wants.into_iter().map(Output::from));
        // Not all nodes of a site that gets its power back should count in step.
        self.next_tick = now.mono + Span(self.rng.below(TICK.0));
        self.settle(now.mono, true, out);
        Ok(())
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let now = now.mono;
        let mut plan = false;
        match input {
            Input::Birth { peer } => {
                self.live.insert(peer);
                self.away.remove(&peer);
                plan = true;
            }
            Input::Death { peer } => {
                if self.live.remove(&peer) {
                    self.away.insert(peer, now);
                }
                if let Some(member) = &mut self.member {
                    member.unreachable(peer);
                }
            }
            Input::Frame { from, kind, head, body } => self.frame(now, from, kind, head, body, out),
            Input::Propose { id, budget, change } => self.propose(now, id, budget, change, out),
            Input::Appended { ticket } => {
                self.drive(out, |member, out| member.persisted(ticket, now, out));
            }
            Input::Saved { ticket } => self.drive(out, |member, out| member.saved(ticket, now, out)),
            Input::Logged(bytes) => {
                let grown = bytes.saturating_sub(self.logged_at_save);
                if self.member.as_ref().is_some_and(|member| member.holds_up(grown)) {
                    self.logged_at_save = bytes;
                    self.drive(out, |member, out| {
                        member.save(out);
                    });
                }
            }
            Input::DiskFull(full) => {
                self.mute = full;
                self.hearsay = None;
                if full {
                    let live = self.live.clone();
                    self.drive(out, |member, out| member.resign(now, &live, out));
                }
            }
            Input::Parting(parting) => {
                self.parting = parting;
                plan = true;
            }
            Input::Wake => {
                if self.mute {
                    self.next_tick = self.next_tick.max(now + TICK);
                } else if self.member.is_some() && self.next_tick <= now {
                    // One tick, however late: a process that hung has not waited for anybody meanwhile.
                    self.drive(out, |member, out| member.tick(now, |_| false, out));
                    self.next_tick = now + TICK;
                    plan = true;
                }
            }
        }
        self.settle(now, plan, out);
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.member.as_ref()?;
        let ends = self.pending.values().map(|p| p.known.map_or(p.deadline, |(_, until)| until.min(p.deadline)));
        Some(ends.fold(self.next_tick, Time::min))
    }

    /// What this node knows to be declared; needs nobody else, and may be a moment old.
    pub fn declared(&self) -> &Declared {
        self.member.as_ref().map_or(&self.nothing, |member| &member.state().declared)
    }

    /// Who leads, as far as this node knows; none while nobody that is live does.
    pub fn leader(&self) -> Option<NodeId> {
        let leader = if self.mute { self.hearsay } else { self.member.as_ref()?.leader() };
        leader.filter(|leader| self.live.contains(leader))
    }

    pub fn is_leader(&self) -> bool {
        self.member.as_ref().is_some_and(Member::is_leader)
    }

    /// Who votes, or will as soon as a change of voters that is under way is through (a moment).
    pub fn voters(&self) -> Vec<NodeId> {
        self.member.as_ref().map_or(Vec::new(), Member::voters)
    }

    /// All members, those included that do not vote; a node that is away is one until it is replaced or dropped.
    pub fn members(&self) -> Vec<NodeId> {
        let of = |member: &Member<State>| [member.voters(), member.learners()].concat();
        self.member.as_ref().map_or(Vec::new(), of)
    }

    /// Is this node's vote needed, or may it be?
    pub fn counts_on(&self, id: NodeId) -> bool {
        self.member.as_ref().is_some_and(|member| member.counts_on(id))
    }

    /// It leads, and another one could.
    pub fn leads_for_others(&self) -> bool {
        self.is_leader() && self.voters().iter().any(|id| self.may_lead(*id))
    }

    fn may_lead(&self, other: NodeId) -> bool {
        other != self.me && self.live.contains(&other) && !self.parting.aside.contains(&other)
    }

    /// It hears what the root group agrees on: what it knows to be declared is a moment old at most.
    pub fn follows(&self) -> bool {
        !self.mute && self.leader().is_some()
    }

    /// Has another voter lead. False: none could at once.
    fn hand_over(&mut self) -> bool {
        let has_all = |id: &NodeId| self.member.as_ref().is_some_and(|member| member.has_all(*id));
        let heir = self.voters().into_iter().find(|id| self.may_lead(*id) && has_all(id));
        let Some((heir, member)) = heir.zip(self.member.as_mut()) else { return false };
        member.hand_over(heir);
        true
    }

    /// Has the member do something, and passes on what it wants.
    fn drive(&mut self, out: &mut Vec<Output>, act: impl FnOnce(&mut Member<State>, &mut Vec<raft::Output>)) {
        let Some(member) = &mut self.member else { return };
        let mut wants = Vec::new();
        act(member, &mut wants);
        out.extend(wants.into_iter().map(Output::from));
    }

    fn frame(&mut self, now: Time, from: NodeId, kind: u16, head: Bytes, body: Bytes, out: &mut Vec<Output>) {
        if kind == kind::ROOT && self.mute {
            let has = self.member.as_ref().is_some_and(|member| member.has(from));
            if has && Member::<State>::is_leaders_word(&head) {
                self.hearsay = Some(from);
            }
            return;
        }
        if kind == kind::ROOT {
            let mut result = Ok(());
            self.drive(out, |member, out| result = member.step(now, from, false, head, body, out));
            if let Err(why) = result {
                out.push(Output::Bad { from, why });
            }
            return;
        }
        let Some(member) = &mut self.member else { return };
        match wire::decode_call(head) {
            Some(Call::Propose(id, change)) if id.node == from => {
                let verdict = member.state().verdict(id);
                if verdict.is_some() || !self.put_in_log(id, &change) {
                    out.push(send(from, &Call::Verdict(id, verdict), Span::ZERO));
                }
            }
            Some(Call::Verdict(id, verdict)) if id.node == self.me && id.boot == self.boot => {
                let Some(pending) = self.pending.get_mut(&id.seq) else { return };
                match verdict {
                    Some(verdict) => pending.known = Some((verdict, now + SHOW_WAIT)),
                    // It may know a leader by then, or we do.
                    None => pending.again = pending.again.min(now + TICK),
                }
            }
            // For a former life of this node.
            Some(Call::Verdict(id, _)) if id.node == self.me => (),
            Some(Call::Propose(..) | Call::Verdict(..)) | None => {
                out.push(Output::Bad { from, why: "is no call to the root group, or not its own".to_owned() });
            }
        }
    }

    fn propose(&mut self, now: Time, caller: u64, budget: Span, change: Change, out: &mut Vec<Output>) {
        let refused = if self.member.is_none() {
            Some(Refused::wrong("this node is no member of the root group"))
        } else if let Err(why) = change.check() {
            Some(Refused::wrong(why))
        } else if self.pending.len() >= PENDING_MAX {
            Some(Refused::busy(format!("{PENDING_MAX} changes of this node wait already"), Span::secs(1)))
        } else {
            None
        };
        if let Some(refused) = refused {
            out.push(Output::Proposed { id: caller, outcome: Outcome::Refused(refused) });
            return;
        }
        let deadline = now + budget;
        let pending = Pending { caller, change, deadline, sent: false, to: None, again: now, known: None };
        self.pending.insert(self.next_seq, pending);
        self.next_seq += 1;
    }

    /// As leader: makes sure that it is in the log, once. False: we do not lead, or have no room.
    fn put_in_log(&mut self, id: ChangeId, change: &Change) -> bool {
        let Some(member) = self.member.as_mut().filter(|member| member.is_leader()) else { return false };
        if self.in_log.0 != member.term() {
            self.in_log = (member.term(), BTreeSet::new());
        }
        if self.in_log.1.contains(&id) {
            return true;
        }
        let taken = change.check().is_ok() && member.propose(wire::encode_change(id, change));
        if taken {
            self.in_log.1.insert(id);
        }
        taken
    }

    /// After whatever happened: carries out what raft has ready, moves proposals and group on, says what changed.
    fn settle(&mut self, now: Time, plan: bool, out: &mut Vec<Output>) {
        let mut plan = plan;
        loop {
            if self.member.is_none() {
                return;
            }
            let mut happened = Vec::new();
            self.drive(out, |member, out| member.pump(now, out, &mut happened));
            plan |= happened.contains(&Happened::Regrouped);
            // Before the ends of proposals: who reads after such an end finds the change.
            self.tell(out);
            for what in happened {
                self.happened(what, out);
            }
            let moved = self.send_pending(now, out) | (plan && self.regroup(now));
            plan = false;
            if !moved {
                break;
            }
        }
        self.end_pending(now, out);
        self.tell(out);
    }

    fn happened(&mut self, what: Happened, out: &mut Vec<Output>) {
        match what {
            Happened::Applied((id, verdict)) => {
                self.in_log.1.remove(&id);
                if id.node == self.me && id.boot == self.boot {
                    self.end(id.seq, verdict, out);
                } else if id.node != self.me && self.is_leader() {
                    out.push(send(id.node, &Call::Verdict(id, Some(verdict)), Span::ZERO));
                }
            }
            Happened::Restored => {
                let ids: Vec<_> = self.pending.keys().map(|seq| self.id(*seq)).collect();
                for id in ids {
                    let verdict = self.member.as_ref().and_then(|member| member.state().verdict(id));
                    if let Some(verdict) = verdict {
                        self.end(id.seq, verdict, out);
                    }
                }
            }
            // The root group is read without asking.
            Happened::Regrouped | Happened::Entry | Happened::Readable { .. } => (),
        }
    }

    /// Brings proposals to the leader. True: something was put into our own log.
    fn send_pending(&mut self, now: Time, out: &mut Vec<Output>) -> bool {
        let leader = self.leader();
        let due = |p: &Pending| p.known.is_none() && now < p.deadline && (p.again <= now || p.to != leader);
        let seqs: Vec<_> = self.pending.iter().filter(|(_, p)| due(p)).map(|(seq, _)| *seq).collect();
        let Some(leader) = leader else { return false };
        let mut moved = false;
        for seq in seqs {
            let id = self.id(seq);
            let mut pending = self.pending.remove(&seq).expect("its number was just read");
            (pending.to, pending.again) = (Some(leader), now + CALL_RETRY);
            if leader == self.me {
                let taken = self.put_in_log(id, &pending.change);
                pending.sent |= taken;
                moved |= taken;
            } else {
                pending.sent = true;
                out.push(send(leader, &Call::Propose(id, pending.change.clone()), pending.deadline.since(now)));
            }
            self.pending.insert(seq, pending);
        }
        moved
    }

    fn regroup(&mut self, now: Time) -> bool {
        if self.is_leader() && self.parting.aside.contains(&self.me) && self.hand_over() {
            return true;
        }
        let Some(member) = self.member.as_mut().filter(|member| member.may_regroup()) else { return false };
        let mut scene = Scene {
            me: self.me,
            voters: member.voters().into_iter().collect(),
            learners: member.learners().into_iter().collect(),
            joint: member.is_joint(),
            caught_up: member.caught_up().into_iter().collect(),
            leaving: self.parting.leaving.clone(),
            ..Scene::default()
        };
        for member in scene.voters.iter().chain(&scene.learners).filter(|member| !self.live.contains(member)) {
            // A leader that never saw it counts from now.
            self.away.entry(*member).or_insert(now);
        }
        scene.live = self.live.clone();
        scene.away = self.away.iter().map(|(id, since)| (*id, now.since(*since))).collect();
        let gone = || self.parting.gone.iter().copied();
        scene.live.retain(|id| !self.parting.gone.contains(id));
        // Its vote is nobody's until another one takes it over: a group of two would stop at the loss of either.
        scene.leaving.extend(gone().map(|id| (id, false)));
        scene.away.extend(gone().map(|id| (id, Span(u64::MAX))));
        let Some(step) = group::next(&scene) else { return false };
        member.regroup(&step)
    }

    fn end_pending(&mut self, now: Time, out: &mut Vec<Output>) {
        let is_over = |p: &Pending| p.deadline <= now || p.known.is_some_and(|(_, until)| until <= now);
        let over: Vec<_> = self.pending.iter().filter(|(_, p)| is_over(p)).map(|(seq, _)| *seq).collect();
        for seq in over {
            if let Some((verdict, _)) = self.pending[&seq].known {
                self.end(seq, verdict, out);
                continue;
            }
            let pending = self.pending.remove(&seq).expect("its number was just read");
            let outcome = if pending.sent {
                Outcome::Unknown(Unknown { why: "no answer of the root group's leader in time".into() })
            } else {
                Outcome::Refused(Refused::busy("the root group has no leader that this node knows", Span::secs(1)))
            };
            out.push(Output::Proposed { id: pending.caller, outcome });
        }
    }

    fn end(&mut self, seq: u64, verdict: Verdict, out: &mut Vec<Output>) {
        let Some(pending) = self.pending.remove(&seq) else { return };
        let outcome = match verdict {
            Verdict::Applied(version) => Outcome::Done(Ok(version)),
            Verdict::Conflict(version) => Outcome::Done(Err(Conflict { version })),
            Verdict::TooLarge => Outcome::Refused(Refused::wrong(format!(
                "all that is declared would be over {DECLARED_BYTES_MAX} bytes"
            ))),
            Verdict::Forgotten => Outcome::Unknown(Unknown { why: "its fate is forgotten, so long ago it was".into() }),
        };
        out.push(Output::Proposed { id: pending.caller, outcome });
    }

    fn tell(&mut self, out: &mut Vec<Output>) {
        let now = Told {
            leader: self.leader(),
            version: self.declared().version,
            leads: self.is_leader(),
            voters: self.voters(),
        };
        if now.version != self.told.version {
            out.push(Output::Changed);
        }
        if now.leader != self.told.leader {
            out.push(Output::Leads { leader: now.leader });
        }
        if now.leads != self.told.leads {
            let text = if now.leads { "leads the root group" } else { "no longer leads the root group" };
            out.push(Output::Note(Note::info(text)));
        }
        if now.leads && now.voters != self.told.voters {
            let voters: Vec<_> = now.voters.iter().map(NodeId::to_string).collect();
            out.push(Output::Note(Note::info(format!("voters of the root group: {}", voters.join(" ")))));
        }
        self.told = now;
    }

    fn id(&self, seq: u64) -> ChangeId {
        ChangeId { node: self.me, boot: self.boot, seq }
    }

    #[cfg(test)]
    pub(super) fn has(&self, id: NodeId) -> bool {
        self.member.as_ref().is_some_and(|member| member.has(id))
    }

    /// A change of voters is under way: until it is through, the old voters' majority is needed as well.
    #[cfg(test)]
    pub(super) fn is_joint(&self) -> bool {
        self.member.as_ref().is_some_and(Member::is_joint)
    }

    /// Plants the bug that promises come before the disk has what they promise.
    #[cfg(test)]
    pub(super) fn plant_haste(&mut self) {
        self.member.as_mut().expect("it is started").hasty = true;
    }
}

fn send(to: NodeId, call: &Call, budget: Span) -> Output {
    let mut frame = Frame::new(kind::ROOT_CALL, wire::encode_call(call));
    frame.priority = Priority::HIGHEST;
    frame.budget_ms = u32::try_from(budget.as_millis()).unwrap_or(u32::MAX);
    Output::Send { to, frame }
}
