//! This node's member of one group: what waits to be put into the log, what waits to be read, when it ticks.
//!
//! - **Writes** go together, as one entry: all that the node has heard when its turn ends, and all that come while entries are under
//!   way. What matters most goes first (`queue.rs`); what matters least is turned away while waits are too long (`turned.rs`).
//! - **Reads** go by read-index: all that have come by then share one round of heartbeats, and look when the state has
//!   applied what was committed when they were asked.
//! - **Holds** let the writes of a key wait for somebody who has read it and computes what to write (`holds.rs`).
//! - **Dumps** read a shard page by page as it was at one moment (`dumps.rs`).
//! - **Sleep**: when every member holds everything and membership says that all live, nobody ticks. Any frame, command,
//!   birth or death of a member wakes it.

mod clock;
mod dumps;
mod holds;
mod pieces;
mod placed;
mod queue;
mod reads;
mod scripts;
mod turned;

use std::collections::{BTreeSet, VecDeque};

use base::checksum::place_hash;
use base::{GroupId, NodeId, Now, Rng, Span, Ticket, Time};
use bytes::Bytes;
use class::Bounds;
use cluster::raft::limits::TICK;
use cluster::raft::{self, Config, Happened, LogBounds, Member};

use self::clock::Clock;
use self::dumps::Dumps;
use self::holds::Holds;
use self::pieces::Writing;
pub use self::queue::Mark;
use self::queue::Queue;
use self::scripts::Scripts;
use self::turned::Turned;
use super::freshness::Freshness;
use super::functions;
use super::heat::{Heat, Hot, HotKey, KEY_SHOWN_BYTES};
use super::limits::*;
use super::op::Wrong;
use super::place::Placed;
use super::queue::Kind;
use super::report::QueueShown;
use super::space::{CommandId, Space, Verdict};
use super::value::Value;
use super::watchers::{Read, Watchers};
use super::wire::{self, Answer, Batch, Command};

/// What this node knows of all nodes.
#[derive(Default)]
pub struct Nodes {
    pub live: BTreeSet<NodeId>,
    /// Those that lead nothing that another one can lead: they are about to end, or drained.
    pub aside: BTreeSet<NodeId>,
}

impl Nodes {
    pub fn may_lead(&self, id: NodeId) -> bool {
        self.live.contains(&id) && !self.aside.contains(&id)
    }
}

/// Whether a node has heard all that has come by now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Goes,
    Ends,
}

/// What came of a step: an answer for the node that a command is of.
pub struct Answered {
    pub id: CommandId,
    pub answer: Answer,
}

/// A command of some node.
pub struct Asked {
    pub reads: bool,
    /// It may look at a state that is so old.
    pub stale: Option<Span>,
    /// If it waits for something to happen: so long.
    pub until: Time,
    pub mark: Mark,
    /// What the cluster has agreed on, as far as this node knows.
    pub level: u32,
    pub command: Command,
}

pub struct Group {
    pub id: GroupId,
    pub placed: Placed,
    pub member: Member<Space>,
    /// Of this program.
    level: u32,
    rng: Rng,
    /// None while it sleeps.
    next_tick: Option<Time>,
    /// Ticks since something last happened.
    quiet_ticks: u32,
    /// Stand for election then, if nobody leads.
    campaign_at: Option<Time>,
    /// How often more, soon after each other: who led before a split leads the new group, whose others may not be there yet.
    eager: u32,
    /// Commands to be put into the log.
    queue: Queue<Command>,
    turned: Turned,
    holds: Holds,
    scripts: Scripts,
    writing: Writing,
    /// What the cluster has agreed on, as was last heard with a command.
    agreed: u32,
    /// Ids of those in `queue`, held up, or in the log and not applied: each is put there once. Not leading: of those that we put there.
    known: BTreeSet<CommandId>,
    /// Ids of each entry of ours that is not applied.
    flying: VecDeque<Vec<CommandId>>,
    /// Up to this clock an entry of ours is to move the group's, as keys end, and is not applied.
    ending: Option<u64>,
    /// The term in which we lead, if we do.
    leads: Option<u64>,
    /// Where our log ended when we began to: once that is applied, we know of all that is in it.
    led_from: u64,
    /// As leader we have put a split into the log, after so many others.
    splitting: Option<u32>,
    /// What a split took out of our space, until it is known what becomes of it.
    born: Option<(GroupId, Space)>,
    /// What it may hold, its part of what is declared for its namespace: goes with each entry, so that all replicas keep to the same.
    pub bounds: Bounds,
    /// The disk still has the log from before a split.
    pub to_save: bool,
    reads: Queue<Read>,
    /// Reads of the round that is under way, by its number.
    round: Option<(u64, Vec<Read>)>,
    rounds: u64,
    /// Reads that may look once the state has applied this index.
    ready: Vec<(u64, Vec<Read>)>,
    watchers: Watchers,
    dumps: Dumps,
    heat: Heat,
    freshness: Freshness,
    pub clock: Clock,
    /// This node is not wanted in the group: when it next asks whether the group still has it.
    pub leaves_at: Option<Time>,
    /// When the lead may next be handed to the member that should have it, and how often that was tried.
    hand_over: (Time, u32),
    /// Bytes that the node's log had when the group last made a snapshot.
    pub log_at_save: u64,
}

fn config(id: GroupId, memory: bool, log: LogBounds) -> Config {
    Config {
        group: id,
        control: base::kind::LINEAR_CONTROL,
        data: base::kind::LINEAR_DATA,
        log,
        memory,
        uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
    }
}

impl Group {
    /// By what the disk has kept of it. With nothing: as one of its founders, if `placed` says so or it begins with `first`, which
    /// a split has made; else as one that waits for a leader. `rebooted`: what was not forced may be missing there.
    /// `level`: of this program.
    #[expect(clippy::too_many_arguments, reason = "each is one thing that a group begins with")]
    pub fn start(
        id: GroupId,
        placed: Placed,
        (me, level): (NodeId, u32),
        first: Option<Space>,
        (log, bounds): (Vec<Bytes>, LogBounds),
        rebooted: bool,
        now: Time,
        mut rng: Rng,
        out: &mut Vec<raft::Output>,
    ) -> Result<Self, String> {
        let config = config(id, placed.memory, bounds);
        let founds = log.is_empty() && (first.is_some() || placed.founders.contains(&me));
        let mut member = if founds {
            Member::found(config, me, &placed.members, first.unwrap_or_default(), rng.fork(), out)
        } else {
            Member::load(config, me, log, rebooted, rng.fork())
                .map_err(|raft::LogError { record, why }| format!("record {record} of {id}'s log {why}"))?
        }?;
        member.state_mut().held_by(level);
        let clock = Clock::new(member.state().clock(), now);
        // The first founder stands at once, so that groups that are founded together have different leaders.
        let campaign_at = (founds && placed.members.first() == Some(&me)).then_some(now + CAMPAIGN_WITHIN);
        Ok(Self {
            id,
            placed,
            member,
            level,
            next_tick: Some(now + Span(rng.below(TICK.0))),
            rng,
            quiet_ticks: 0,
            campaign_at,
            eager: 0,
            queue: Queue::default(),
            turned: Turned::default(),
            holds: Holds::default(),
            scripts: Scripts::default(),
            writing: Writing::default(),
            agreed: 1,
            known: BTreeSet::new(),
            flying: VecDeque::new(),
            ending: None,
            leads: None,
            led_from: 0,
            splitting: None,
            born: None,
            bounds: Bounds::default(),
            to_save: false,
            reads: Queue::default(),
            round: None,
            rounds: 0,
            ready: Vec::new(),
            watchers: Watchers::default(),
            dumps: Dumps::default(),
            heat: Heat::default(),
            freshness: Freshness::default(),
            clock,
            leaves_at: None,
            hand_over: (now + HAND_OVER_AFTER, 0),
            log_at_save: 0,
        })
    }

    pub fn is_asleep(&self) -> bool {
        self.next_tick.is_none()
    }

    /// When the leader writes its clock, if it writes nothing else: an end has come, or keys are to end and it is long since it did.
    fn clock_due(&self) -> Option<Time> {
        let space = self.member.state();
        let end = space.next_end().filter(|_| self.leads.is_some() && self.ending.is_none())?;
        Some(self.clock.when(end.min(space.clock() + CLOCK_WRITTEN.as_millis())))
    }

    /// There is something to do: it stays awake for a while.
    pub fn rouse(&mut self, now: Time) {
        self.quiet_ticks = 0;
        self.next_tick.get_or_insert(now + TICK);
    }

    pub fn wake_at(&self) -> Time {
        let campaign_at = self.campaign_at.filter(|_| !self.member.is_installing());
        let (watchers, holds, dumps) = (self.watchers.wake_at(), self.holds.wake_at(), self.dumps.wake_at());
        let clock_due = self.clock_due().filter(|_| !self.scripts.is_lent());
        [self.next_tick, campaign_at, clock_due, watchers, holds, dumps, self.scripts.wake_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Time::NEVER)
    }

    pub fn wake(&mut self, now: Time, nodes: &Nodes, out: &mut Vec<raft::Output>) {
        self.end_holds(now);
        self.dumps.end_late(now);
        if self.next_tick.is_some_and(|at| at <= now) {
            self.next_tick = Some(now + TICK);
            let placed = &self.placed.members;
            self.member.tick(now, |id| !placed.contains(id) && !nodes.live.contains(id), out);
            self.hand_over(now, nodes);
            self.quiet_ticks += 1;
            if self.quiet_ticks >= AWAKE_TICKS && self.may_sleep(nodes) {
                self.member.say_sleep(out);
                self.next_tick = None;
            }
        }
        if self.campaign_at.is_some_and(|at| at <= now) && !self.member.is_installing() {
            self.campaign_at = None;
            if self.member.leader().is_none() && self.member.voters().contains(&self.me()) {
                self.member.campaign();
                self.eager = self.eager.saturating_sub(1);
                self.campaign_at = (self.eager > 0).then_some(now + CAMPAIGN_WITHIN);
            }
        }
    }

    fn me(&self) -> NodeId {
        self.member.me()
    }

    fn may_sleep(&self, nodes: &Nodes) -> bool {
        let is_idle = self.queue.is_empty()
            && self.holds.len() == 0
            && !self.scripts.is_lent()
            && !self.writing.is_writing()
            && self.flying.is_empty()
            && self.reads.is_empty()
            && self.round.is_none();
        let voters = self.member.voters();
        is_idle
            && self.member.may_sleep()
            && self.is_as_wanted()
            && (self.heir(nodes).is_none() || self.hand_over.1 >= HAND_OVER_TRIES)
            && voters.iter().chain(&self.member.learners()).all(|id| nodes.live.contains(id))
    }

    /// A frame of a member. Err: it claims what cannot be.
    pub fn frame(
        &mut self,
        now: Time,
        from: NodeId,
        head: Bytes,
        body: Bytes,
        out: &mut Vec<raft::Output>,
    ) -> Result<(), String> {
        if let Some((term, commit)) = Member::<Space>::sleep_word(&head) {
            if self.member.sleeps_at(from, term, commit) {
                self.next_tick = None;
            }
            return Ok(());
        }
        // Beats and their answers alone keep nobody awake.
        self.next_tick.get_or_insert(now + TICK);
        let placed = self.placed.members.contains(&from);
        self.member.step(now, from, placed, head, body, out)
    }

    /// Has this node a part in it, or should it have one?
    pub fn has(&self, id: NodeId) -> bool {
        self.placed.members.contains(&id) || self.member.has(id)
    }

    pub fn appended(&mut self, now: Time, ticket: Ticket, out: &mut Vec<raft::Output>) {
        self.member.persisted(ticket, now, out);
    }

    pub fn saved(&mut self, now: Time, ticket: Ticket, out: &mut Vec<raft::Output>) {
        self.member.saved(ticket, now, out);
    }

    pub fn birth(&mut self, now: Time) {
        self.try_hand_over_again(now);
        self.rouse(now);
    }

    pub fn death(&mut self, now: Time, peer: NodeId) {
        self.rouse(now);
        self.member.unreachable(peer);
        if self.member.leader() == Some(peer) {
            self.member.leader_died(peer);
            self.campaign_at = Some(now + Span(self.rng.below(CAMPAIGN_WITHIN.0)));
        }
    }

    /// A command for the leader. Its answer comes at once, or when it is applied or read. With `stale` any member that is
    /// not older answers.
    pub fn command(&mut self, now: Time, asked: Asked, done: &mut Vec<Answered>) {
        let Asked { reads, stale, until, mark, level, command } = asked;
        self.agreed = level;
        let id = command.id;
        let here = self.member.state().has(&command);
        let bound = stale.filter(|_| reads && here);
        if let Some(age) = bound.and_then(|bound| self.age(now).filter(|age| *age <= bound)) {
            keys(&command).for_each(|key| self.heat.count(now, key));
            let ran = self.read(now, age, &command);
            return done.push(Answered { id, answer: Answer::Ran(ran, 0) });
        }
        if !self.member.is_leader() {
            let leader = self.member.leader();
            return done.push(Answered { id, answer: Answer::Elsewhere { leader } });
        }
        if command.splits > self.member.state().splits() {
            // It has yet to hear what its node knows.
            return done.push(Answered { id, answer: Answer::Busy });
        }
        self.rouse(now);
        keys(&command).for_each(|key| self.heat.count(now, key));
        if reads {
            return self.admit_read(now, mark, Read { command, until }, done);
        }
        let needs = functions::level(&command.steps);
        match self.member.state().verdict(&command) {
            Some(verdict) => done.push(Answered { id, answer: answer(verdict, 0) }),
            None if self.known.contains(&id) => (),
            None if !here => done.push(Answered { id, answer: Answer::Moved }),
            // It would not fit into a frame to the other members, and nothing behind it would go.
            None if command.bytes() > COMMAND_BYTES_MAX => {
                done.push(Answered { id, answer: Answer::Refused(Wrong::TooLarge) });
            }
            None if needs.is_none() => done.push(Answered { id, answer: Answer::Refused(Wrong::Unknown) }),
            // Its node knows that all have this level, we are about to hear it. Not refused: a leader before us may have taken it.
            None if needs > Some(level) => done.push(Answered { id, answer: Answer::Busy }),
            None => self.admit(now, mark, command, done),
        }
    }

    /// Carries out what raft has ready and moves everything on that can move. True: commands are to go, and wait for the end of the
    /// turn, so that they go together.
    pub fn settle(
        &mut self,
        now: Now,
        turn: Turn,
        nodes: &Nodes,
        out: &mut Vec<raft::Output>,
        done: &mut Vec<Answered>,
    ) -> bool {
        loop {
            let mut happened = Vec::new();
            let is_splitting = self.is_splitting();
            let is_ordered = self.splitting == Some(self.member.state().splits());
            self.member.hold(is_splitting || is_ordered);
            self.born.take_if(|_| !is_splitting);
            let is_unheard = self.known.is_empty();
            self.member.state_mut().hush(is_unheard);
            self.member.pump(now.mono, out, &mut happened);
            if self.member.is_beyond() {
                return false;
            }
            for what in happened {
                self.happened(what, now.mono, done);
            }
            self.follow_lead(now.mono, done);
            self.answer_reads(now.mono, done);
            self.tell_watchers(now.mono, done);
            while self.flying.pop_front_if(|ids| !ids.iter().any(|id| self.known.contains(id))).is_some() {}
            if self.leads.is_none() {
                return false;
            }
            if turn == Turn::Goes && self.has_to_go() {
                return true;
            }
            if !(self.propose(now.mono, nodes, done) | self.start_round() | self.regroup(nodes)) {
                return false;
            }
        }
    }

    /// Commands wait here, and nothing that is under way holds them up.
    fn has_to_go(&self) -> bool {
        (!self.queue.is_empty() && self.may_propose()) || (!self.reads.is_empty() && self.round.is_none())
    }

    /// While an entry is under way the next one waits until it is as large: many small ones would cost much more.
    fn may_propose(&self) -> bool {
        if self.scripts.is_lent() {
            return false;
        }
        let is_large = self.flying.back().is_none_or(|last| last.len() <= self.queue.len());
        is_large && self.flying.len() < BATCHES_FLYING_MAX
    }

    fn happened(&mut self, what: Happened<(CommandId, Verdict)>, now: Time, done: &mut Vec<Answered>) {
        match what {
            Happened::Applied((id, verdict)) => {
                if self.known.remove(&id) {
                    done.push(Answered { id, answer: answer(verdict, self.member.applied()) });
                }
            }
            Happened::Readable { number, index } => {
                if let Some((_, reads)) = self.round.take_if(|(round, _)| *round <= number) {
                    self.ready.push((index, reads));
                }
            }
            Happened::Entry => {
                let clock = self.member.state().clock();
                self.clock.applied(clock, self.leads.is_some(), now);
                self.ending.take_if(|ending| *ending <= clock);
                if let Some(born) = self.member.state_mut().take_born() {
                    (self.born, self.to_save) = (Some(born), true);
                    self.member.hold(true);
                    // What they wait for may come elsewhere now.
                    for read in self.watchers.drain() {
                        self.look(now, read, done);
                    }
                }
            }
            Happened::Restored => {
                self.member.state_mut().held_by(self.level);
                self.clock.applied(self.member.state().clock(), false, now);
                self.born = None;
            }
            Happened::Regrouped => (),
        }
    }

    /// Lead won or lost: what waited for the old one is sent elsewhere.
    fn follow_lead(&mut self, now: Time, done: &mut Vec<Answered>) {
        let leads = self.member.is_leader().then(|| self.member.term());
        if leads == self.leads {
            return;
        }
        (self.leads, self.led_from) = (leads, self.member.end().1);
        self.drop_holds();
        self.dumps.clear();
        let mut lent: Vec<CommandId> = self.scripts.drain().map(|command| command.id).collect();
        lent.extend(self.writing.end());
        let answer = Answer::Elsewhere { leader: self.member.leader().filter(|_| leads.is_none()) };
        // Those in the log may still happen. If we see that, we tell who waits for it, before it asks again.
        self.flying.clear();
        match leads {
            Some(_) => self.known.clear(),
            None => {
                // From here on it follows, and a new leader that is behind does not put it back.
                self.clock = Clock::new(self.clock.now(now), now);
                self.queue.iter().map(|command| &command.id).chain(&lent).for_each(|id| {
                    self.known.remove(id);
                });
            }
        }
        self.ending = None;
        self.splitting = None;
        let reads = self.ready.drain(..).flat_map(|(_, reads)| reads);
        let reads = reads.chain(self.round.take().into_iter().flat_map(|(_, reads)| reads)).chain(self.reads.drain());
        let reads = reads.chain(self.watchers.drain()).map(|read| read.command.id);
        let all = reads.chain(lent).chain(self.queue.drain().map(|command| command.id));
        done.extend(all.map(|id| Answered { id, answer: answer.clone() }));
    }

    fn propose(&mut self, now: Time, nodes: &Nodes, done: &mut Vec<Answered>) -> bool {
        self.end_late(now, done);
        self.end_loan(now, done);
        if self.scripts.is_lent() {
            return false;
        }
        let clock = self.clock.now(now);
        let is_due = self.clock_due().is_some_and(|at| at <= now);
        let split = self.split(&nodes.live);
        let scripts_wait = self.scripts_wait();
        // Scripts wait for all that is in the log.
        let went = !scripts_wait && split.is_none() && self.write_pieces(now);
        if (self.queue.is_empty() && !is_due && split.is_none()) || !self.may_propose() {
            return went;
        }
        if scripts_wait && split.is_none() {
            self.lend(now, self.agreed, done);
            // What is lent goes out with this turn.
            return false;
        }
        let (marks, commands) = if scripts_wait { Default::default() } else { self.next_batch() };
        if commands.is_empty() && !is_due && split.is_none() {
            // What waits goes in pieces.
            return went;
        }
        let bounds = if commands.is_empty() { Bounds::default() } else { self.bounds };
        let batch = Batch { clock, commands, split, bounds, drops_pieces: self.drops_pieces(), ..Batch::default() };
        if !self.member.propose(wire::encode_batch(&batch)) {
            self.queue.give_back(marks, batch.commands);
            return went;
        }
        self.quiet_ticks = 0;
        if is_due {
            // It may have been asleep: somebody has to send again what gets lost.
            self.rouse(now);
            self.ending = Some(clock);
        }
        self.splitting = split.map_or(self.splitting, |split| Some(split.after));
        let ids: Vec<CommandId> = batch.commands.iter().map(|command| command.id).collect();
        if !ids.is_empty() {
            self.flying.push_back(ids);
        }
        true
    }

    /// How many wait here for a change.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Keys that get many commands here, and how many commands for each wait for their turn or for a change of it.
    pub fn hot(&self, now: Time) -> impl Iterator<Item = HotKey> {
        let seen = |hot: &Hot| HotKey { key: hot.key.clone(), rate: hot.rate, waiters: self.waiters(hot.hash) };
        self.heat.hot(now).iter().map(seen)
    }

    /// Its queues, as they are at this moment.
    pub fn queues(&self, now: Time) -> impl Iterator<Item = QueueShown> {
        let (space, clock) = (self.member.state(), self.clock.now(now));
        space.queues().filter_map(move |key| {
            let Value::Queue(queue) = &space.get(key)?.value else { return None };
            let len = |kind| queue.len_of(kind) as u64;
            Some(QueueShown {
                name: key[..key.len().min(KEY_SHOWN_BYTES)].escape_ascii().to_string(),
                is_hidden: false,
                waiting: len(Kind::Waiting),
                later: len(Kind::Later),
                held: len(Kind::Held),
                dead: len(Kind::Dead),
                oldest_ms: queue.oldest().map_or(0, |since| clock.saturating_sub(since)),
            })
        })
    }

    fn waiters(&self, hash: u64) -> u64 {
        let round = self.round.iter().flat_map(|(_, reads)| reads);
        let ready = self.ready.iter().flat_map(|(_, reads)| reads);
        let reads = self.reads.iter().chain(round).chain(ready).map(|read| &read.command);
        let all = self.queue.iter().chain(self.holds.parked()).chain(reads).chain(self.watchers.commands());
        all.filter(|command| keys(command).any(|key| place_hash(key) == hash)).count() as u64
    }
}

/// The keys that a command is for.
fn keys(command: &Command) -> impl Iterator<Item = &Bytes> {
    command.steps.iter().flat_map(|step| functions::find(step.function).into_iter().flat_map(|f| f.keys(step)))
}

fn answer(verdict: Verdict, index: u64) -> Answer {
    match verdict {
        Verdict::Ran(ran) => Answer::Ran(ran, index),
        Verdict::Forgotten => Answer::Forgotten,
        Verdict::Moved => Answer::Moved,
        Verdict::Refused(wrong) => Answer::Refused(wrong),
    }
}
