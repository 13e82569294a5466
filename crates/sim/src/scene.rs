//! One run: a cluster of shipped nodes under load and faults, judged by every promise.
//!
//! Time goes in rounds: faults strike for a while, then all end, and after a calm in which the cluster must have come
//! back by itself the next round draws other faults. Load never stops.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, LEVEL, NodeId, Rng, Span, Time};
use node::Ask;
use state::linear::Ran;
use state::session::limits::{DEAD_LEAVES_AFTER, MEMBERS_MIN};
use uuid::Uuid;

use crate::faults::{self, Faults, May};
use crate::history::History;
use crate::linear_load::{self, LinearLoad};
use crate::load::{self, Drawn, Has, Load};
use crate::modes_load::{self, ModesLoad};
use crate::object_load::{self, ObjectLoad};
use crate::pace::{self, Pace, Round};
use crate::promises::answers::Answers;
use crate::promises::clones::Clones;
use crate::promises::declared::Declared;
use crate::promises::linear::Linear;
use crate::promises::modes::Modes;
use crate::promises::object::Objects;
use crate::promises::session::Sessions;
use crate::promises::soft::Soft;
use crate::promises::splits::{Can, Splits};
use crate::promises::sql::Sql;
use crate::promises::{Broken, CLONES_LIED_WITHIN, CLONES_WITHIN, MEMBERSHIP_WITHIN, SERVED_WITHIN, membership};
use crate::shipped::{Bug, Cluster, FILE, Shipped, TOKEN};
use crate::soft_load::{self, SoftLoad};
use crate::sql_load::{self, SqlLoad};
use crate::world::{Happened, World};
use seen::Seen;

mod asks;
mod judge;
mod objects;
mod seen;
mod softly;
mod tables;

const LIED: &str = "no word of a peer to which nothing belongs ends a process";
const CALM: &str = "no machine wakes without end";

/// A node answers clients this long after its start: it has to find the others first.
const WARM_UP: Span = Span::secs(5);
/// Without word of its own a restarted brick is taken as filled after such a time without faults of the network: state
/// waits 10 s for members that are missing.
const FILLED_AFTER: Span = Span::secs(15);
/// A node whose disk went for ever stays a brick of its keys so long (60 s), and the change takes a while.
const REPLACED_AFTER: Span = Span::secs(90);
/// So long a group in memory may wait for a member whose disk went for ever while another lost its power: until the cluster
/// gives that one up (30 s from when the root group has a leader), and 10 s more.
const GIVEN_UP_AFTER: Span = Span::secs(120);
/// The same when the root group may have had no leader before faults ended.
const GIVEN_UP_IN_CALM: Span = Span::secs(50);
/// A brick that restarted waits 10 s for the fill of one that is cut off; a moment less, as it may see it dead earlier.
const CUT_OFF_COUNTS: Span = Span::secs(8);
/// A little before bricks that are dead for so long leave the map.
const DROPPED_AFTER: Span = Span(DEAD_LEAVES_AFTER.0 - Span::secs(5).0);
/// What a brick notes that forgets all it has, while its node lives.
const STARTS_ANEW: &str = "this brick starts anew";
/// Between two tries to enter anew.
const ANEW_AFTER: Span = Span::millis(500);
/// Operators wait for so long.
const APPLY_BUDGET: Span = Span::secs(5);
/// A client that has given a write an id asks so often in all.
const TRIES_MAX: u32 = 6;
/// Clients of class `linear` count from here.
const LINEAR: u64 = 1 << 32;
/// Clients with cookies and with documents count from here.
const MODES: u64 = 1 << 33;
/// Clients of class `soft` count from here.
const SOFT: u64 = 1 << 34;
/// Clients of class `sql` count from here.
const SQL: u64 = 1 << 35;
/// Clients of class `object` count from here.
const OBJECT: u64 = 1 << 36;
const TICK: u64 = 1 << 60;
/// Tells the generator of rounds from that of all else.
const ROUNDS: u64 = 0x726f_756e_6473;
const PHASE: u64 = 2 << 60;
const OPERATOR: u64 = 3 << 60;
/// Nodes that have to enter anew ask from here on.
const ANEW: u64 = 1 << 40;
/// In the place of nodes that have left new ones begin from here on.
const LEFT: u64 = 1 << 41;
/// So many machines or more: then one may be asked to leave for good. With fewer bricks it would be refused.
const LEAVES_OF: usize = 4;
/// How often the operator asks that, instead of something else.
const LEAVES: f64 = 0.3;
const _: () = assert!(PHASE & faults::ALARM_BIT == 0 && OPERATOR & faults::ALARM_BIT == 0, "alarms are told apart");

/// A class that clients use alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Only {
    Soft,
    Object,
}

/// What to run.
pub struct Plan {
    pub seed: u64,
    /// Virtual time.
    pub length: Span,
    pub nodes: usize,
    pub pace: Pace,
    pub bug: Option<Bug>,
    /// A peer lies in every round of faults, and nothing else happens.
    pub lies: bool,
    /// Clients use this class alone: so much more of it in the same time.
    pub only: Option<Only>,
    pub history: History,
    /// Print faults as they strike.
    pub loud: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub ran: Span,
    pub hash: u64,
    pub events: u64,
    pub faults: BTreeMap<String, u64>,
    pub ops: BTreeMap<String, u64>,
    pub broken: Option<Broken>,
    /// The last events, if something broke.
    pub last: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Faults,
    Calm,
}

/// A question under way.
struct Flight {
    client: u64,
    node: usize,
    start: Time,
    /// Every operation had to succeed when it began.
    must: bool,
    what: Asked,
}

enum Asked {
    Session(Drawn),
    Linear(Linearly),
    Modes(modes_load::Act),
    Soft(soft_load::Act),
    Sql(sql_load::Act),
    Object(object_load::Act),
    /// All that a node has of class `soft`: its number, and the how manieth question.
    Look(usize, usize),
    /// Something that is there as long as this life of the node, which began then.
    Hold(usize, Time),
    Apply(u64),
    /// For a node whose disk is not to be trusted.
    Anew(usize),
    /// A node is drained, or put back.
    Switch,
    /// A node is asked to leave for good.
    Leave,
    /// A machine has lost its disk, and with it who it was: that is removed.
    Former(usize),
    /// ... and it comes in as who it is now.
    Comes(usize, NodeId),
}

/// An operation of class `linear`, perhaps asked several times.
struct Linearly {
    act: linear_load::Act,
    budget: Span,
    /// The id that its client has given it.
    once: Option<Uuid>,
    /// When it was asked first, and how often.
    begun: Time,
    tries: u32,
    /// It may have happened when it was asked before ...
    in_doubt: bool,
    /// ... or its client knows what came of it, and asks again nevertheless.
    told: Option<Ran>,
}

pub struct Scene {
    seed: u64,
    world: World<Cluster>,
    rng: Rng,
    faults: Faults,
    load: Load,
    /// What class `linear` acknowledges is not forced yet: a majority must not lose its power at once.
    memory: bool,
    /// A machine that still runs an older program: what is newer is refused.
    older: Option<usize>,
    linear_load: LinearLoad,
    /// What clients of it ask next, in place of something new.
    again: BTreeMap<u64, Linearly>,
    linear: Linear,
    /// Likewise of the namespace with many shards.
    wide: Linear,
    /// Of that namespace.
    splits: Splits,
    modes_load: ModesLoad,
    modes: Modes,
    soft_load: SoftLoad,
    soft: Soft,
    sql_load: SqlLoad,
    sql: Sql,
    object_load: ObjectLoad,
    objects: Objects,
    /// Machines whose nodes have left for good, with what they had, and come back as others.
    left: BTreeSet<usize>,
    looks: softly::Looks,
    /// Clients use the other classes.
    others: bool,
    history: History,
    flights: BTreeMap<AskId, Flight>,
    seen: Vec<Seen>,
    phase: Phase,
    phase_since: Time,
    pace: Pace,
    /// Draws rounds of that pace.
    rounds: Rng,
    round: Round,
    quiet_since: Time,
    /// When all groups were last seen to have all their members.
    whole_at: Time,
    /// When a machine last came back as a new node.
    emptied: BTreeMap<usize, Time>,
    /// As whom machines were admitted last.
    admitted: Vec<NodeId>,
    /// A peer has lied, and gone: it was a node of the cluster.
    has_lied: bool,
    /// Cut off for so long that the others may do without them.
    dropped: BTreeSet<usize>,
    /// When a machine last came back from a loss of power.
    power_lost: Option<Time>,
    answers: Answers,
    sessions: Sessions,
    clones: Clones,
    declared: Declared,
    ops: BTreeMap<String, u64>,
    /// Requests that stubs did not send for their priority.
    turned_away: u64,
}

/// Runs a plan to its end, or until a promise breaks.
pub fn run(plan: Plan) -> Report {
    let (seed, length) = (plan.seed, plan.length);
    let mut scene = Scene::new(plan);
    let broken = scene.run(Time::ZERO + length).err();
    let faults = scene.faults.counts().iter().map(|(kind, count)| (format!("{kind:?}"), *count)).collect();
    scene.ops.insert("linear judged".into(), scene.linear.judged);
    scene.ops.insert("shards judged".into(), scene.wide.judged);
    scene.ops.insert("shards made by splits".into(), scene.seen.iter().map(|seen| seen.splits).max().unwrap_or(0));
    scene.ops.insert("cookies and fields judged".into(), scene.modes.judged);
    scene.ops.insert("soft judged".into(), scene.soft.judged);
    scene.ops.insert("sql judged".into(), scene.sql.judged);
    scene.ops.insert("object judged".into(), scene.objects.judged);
    scene.ops.insert("reads judged".into(), scene.sessions.judged);
    scene.ops.insert("reads excused".into(), scene.sessions.excused);
    scene.ops.insert("requests turned away for their priority".into(), scene.turned_away);
    Report {
        seed,
        ran: scene.world.now().since(Time::ZERO),
        hash: scene.world.trace.hash(),
        events: scene.world.trace.events(),
        faults,
        ops: std::mem::take(&mut scene.ops),
        last: if broken.is_some() { scene.world.trace.last(60, 80) } else { String::new() },
        broken,
    }
}

impl Scene {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        // Every second seed.
        let memory = plan.seed.is_multiple_of(2);
        let is_soft = match plan.bug {
            Some(bug) => bug.is_of_soft(),
            None => plan.only.map_or_else(|| soft_load::is_in(plan.seed), |only| only == Only::Soft),
        };
        // An older program does not know it.
        let is_sql = match plan.bug {
            Some(bug) => bug.is_of_sql(),
            None => plan.only.is_none() && sql_load::is_in(plan.seed),
        };
        let is_object = match plan.bug {
            Some(bug) => bug.is_of_object(),
            None => plan.only.map_or_else(|| object_load::is_in(plan.seed), |only| only == Only::Object),
        };
        let has = Has { soft: is_soft, sql: is_sql, object: is_object };
        let others = plan.only.is_none();
        let mut cluster = Cluster::new(load::declaration(0, memory, has, &mut rng.fork()), plan.bug);
        if is_object {
            cluster.settings = object_load::settings();
        }
        // A planted bug drops the ends of logs: of those that have one.
        if plan.bug.is_none() {
            cluster.linear_log = load::linear_log(plan.seed);
        }
        if plan.seed.is_multiple_of(3) && plan.bug.is_none() {
            cluster.older = Some((plan.seed / 3) as usize % plan.nodes);
        }
        let lies = match (plan.lies, plan.bug) {
            (true, _) => 1.0,
            (false, None) => faults::LYING,
            (false, Some(_)) => 0.0,
        };
        cluster.lies = lies > 0.0;
        let older = cluster.older;
        let mut world = World::new(rng.u64(), plan.nodes, cluster);
        world.trace.loud = plan.loud;
        let seeds = (0..plan.nodes.min(3)).map(|node| world.peer_addr(node)).collect();
        world.factory_mut().seeds = seeds;
        world.factory_mut().ids = (0..plan.nodes).map(|node| world.id(node)).collect();
        let admitted = world.factory_mut().ids.clone();
        let mut scene = Self {
            seed: plan.seed,
            faults: Faults::new(rng.fork(), lies),
            load: Load::new(memory, has, rng.fork()),
            memory,
            older,
            linear_load: LinearLoad::new(rng.fork()),
            again: BTreeMap::new(),
            linear: Linear::default(),
            wide: Linear::wide(),
            splits: Splits::default(),
            modes_load: ModesLoad::new(rng.fork()),
            modes: Modes::of(plan.nodes),
            soft_load: SoftLoad::new(plan.seed, is_soft),
            soft: Soft::of(plan.nodes),
            sql_load: SqlLoad::new(plan.seed, is_sql),
            sql: Sql::default(),
            object_load: ObjectLoad::new(plan.seed, is_object),
            objects: Objects::default(),
            left: BTreeSet::new(),
            looks: softly::Looks::default(),
            others,
            seen: (0..plan.nodes).map(|_| Seen::default()).collect(),
            rng,
            world,
            history: plan.history,
            flights: BTreeMap::new(),
            phase: Phase::Calm,
            phase_since: Time::ZERO,
            pace: plan.pace,
            round: pace::BUSY,
            rounds: Rng::new(plan.seed ^ ROUNDS),
            quiet_since: Time::ZERO,
            whole_at: Time::ZERO,
            emptied: BTreeMap::new(),
            admitted,
            has_lied: false,
            dropped: BTreeSet::new(),
            power_lost: None,
            answers: Answers::default(),
            sessions: Sessions::of(plan.nodes),
            clones: Clones::default(),
            declared: Declared::default(),
            ops: BTreeMap::new(),
            turned_away: 0,
        };
        scene.begin();
        scene
    }

    fn begin(&mut self) {
        (0..self.world.machines()).for_each(|node| self.world.start(node));
        self.world.alarm(Span::secs(1), TICK);
        self.world.alarm(Span::secs(25), PHASE);
        self.world.alarm(Span::secs(3), OPERATOR);
        for client in 0..self.soft_load.clients() {
            self.world.alarm(Span::secs(6), SOFT + client as u64);
        }
        for client in 0..self.sql_load.clients() {
            self.world.alarm(Span::secs(7), SQL + client as u64);
        }
        for client in 0..self.object_load.clients() {
            self.world.alarm(Span::secs(8), OBJECT + client as u64);
        }
        if !self.others {
            return;
        }
        for client in 0..self.load.clients() {
            self.world.alarm(Span::secs(3), client as u64);
        }
        for client in 0..self.linear_load.clients() {
            self.world.alarm(Span::secs(5), LINEAR + client as u64);
        }
        for client in 0..self.modes_load.clients() {
            self.world.alarm(Span::secs(4), MODES + client as u64);
        }
    }

    fn run(&mut self, until: Time) -> Result<(), Broken> {
        while let Some(happened) = self.world.next(until) {
            self.heard(happened)?;
        }
        Ok(())
    }

    fn heard(&mut self, happened: Happened<Shipped>) -> Result<(), Broken> {
        let now = self.world.now();
        match happened {
            Happened::Answered { id, answer, .. } => {
                self.answers.answered(id, now)?;
                let flight = self.flights.remove(&id).expect("what was asked flies until it is answered");
                return self.judge(flight, answer);
            }
            Happened::Published { node, view } => {
                let before = self.seen[node].turned_away;
                self.seen[node].take(&view, now);
                self.turned_away += self.seen[node].turned_away.saturating_sub(before);
                if view.closing.is_some() {
                    self.left(node);
                }
            }
            Happened::Noted { node, note } if note.text.contains(STARTS_ANEW) => self.modes.failed(node, now),
            Happened::Noted { .. } => (),
            Happened::Distrusted { node } | Happened::Outdated { node } if self.faults.is_lying() => {
                let what = format!("node {node} has ended");
                return Err(Broken { promise: LIED, at: now, what });
            }
            Happened::Distrusted { node } => {
                self.objects.lost_disk(node, now);
                *self.ops.entry("disk distrusted".into()).or_default() += 1;
                self.world.alarm(ANEW_AFTER, ANEW + node as u64);
            }
            // Whoever watches over it has the newer program by now.
            Happened::Outdated { node } => self.world.alarm(Span::secs(1), LEFT + node as u64),
            Happened::Started { node } => {
                if now > Time::ZERO {
                    self.older.take_if(|older| *older == node);
                }
                self.seen[node] = Seen { since: now, ..Seen::default() };
                let is_new = self.world.boot(node) == Boot(1) && now > Time::ZERO;
                if (is_new && !self.left.remove(&node)) || self.faults.forgets(node) {
                    self.objects.lost_disk(node, now);
                }
                if self.world.boot(node) == Boot(1) && now > Time::ZERO {
                    self.emptied.insert(node, now);
                } else if self.world.is_rebooted(node) {
                    self.power_lost = Some(now);
                }
            }
            Happened::Resumed { node, stood } => self.answers.resumed(node, now, stood),
            Happened::Died { node } => {
                self.sessions.died(node, now);
                self.modes.failed(node, now);
                self.soft.died(node);
                for id in self.answers.died(node) {
                    let flight = self.flights.remove(&id).expect("what was asked flies until its node dies");
                    self.died(flight)?;
                }
            }
            Happened::Spins { node, wakes } => {
                let what = format!("node {node} asked for {wakes} wakes within a second");
                return Err(Broken { promise: CALM, at: now, what });
            }
            Happened::Alarm(token) if token & faults::ALARM_BIT != 0 => {
                let unpowered = (0..self.world.machines()).any(|node| self.world.is_rebooted(node));
                let may = May {
                    empty: self.may_empty(),
                    kill_gently: self.all_well() && self.groups_are_whole(),
                    lose_power: !(self.memory && unpowered),
                };
                self.faults.alarm(&mut self.world, token, may);
            }
            Happened::Alarm(TICK) => {
                self.world.alarm(Span::secs(1), TICK);
                return self.tick();
            }
            Happened::Alarm(PHASE) => self.turn(),
            Happened::Alarm(OPERATOR) => self.operate(),
            Happened::Alarm(node) if node >= LEFT => {
                let node = (node - LEFT) as usize;
                if !self.world.is_running(node) {
                    self.world.start(node);
                }
            }
            Happened::Alarm(node) if node >= ANEW => self.ask_anew((node - ANEW) as usize),
            Happened::Alarm(client) if client >= OBJECT => self.ask_object((client - OBJECT) as usize),
            Happened::Alarm(client) if client >= SQL => self.ask_sql((client - SQL) as usize),
            Happened::Alarm(client) if client >= SOFT => self.ask_soft((client - SOFT) as usize),
            Happened::Alarm(client) if client >= MODES => self.ask_mode((client - MODES) as usize),
            Happened::Alarm(client) if client >= LINEAR => self.ask_linear((client - LINEAR) as usize),
            Happened::Alarm(client) => self.ask(client as usize),
        }
        Ok(())
    }

    /// From faults to calm, and back.
    fn turn(&mut self) {
        let (phase, length) = match self.phase {
            Phase::Calm => (Phase::Faults, Span::millis(self.rng.between(15_000, 60_000))),
            Phase::Faults => (Phase::Calm, Span::millis(self.rng.between(22_000, 30_000))),
        };
        self.round = match phase {
            Phase::Faults => self.pace.faults(length, &mut self.rounds),
            Phase::Calm => self.pace.calm(length, &mut self.rounds),
        };
        self.world.alarm(self.round.length, PHASE);
        (self.phase, self.phase_since) = (phase, self.world.now());
        self.clones.excuse();
        self.soft_turn();
        match phase {
            Phase::Calm => {
                self.world.trace.remark(self.world.now(), "all faults end".into());
                self.faults.end_all(&mut self.world);
                // Whoever is about to leave dies over it, and is back.
                for node in (0..self.seen.len()).filter(|node| self.seen[*node].leaving) {
                    *self.ops.entry("leaves broken off".into()).or_default() += 1;
                    self.world.kill(node);
                    self.world.start(node);
                }
            }
            Phase::Faults => {
                self.faults.draw();
                self.faults.slow_down(self.round.gap, self.round.lasts);
                let text = format!("faults: {:?}, gentle: {}", self.faults.allowed(), self.faults.is_gentle());
                self.world.trace.remark(self.world.now(), text);
                self.faults.begin(&mut self.world);
                self.has_lied |= self.faults.is_lying();
            }
        }
    }

    /// A node's process ends as it has left for good. A new one comes in its place, with nothing on its disk.
    fn left(&mut self, node: usize) {
        *self.ops.entry("nodes left".into()).or_default() += 1;
        self.world.kill(node);
        self.world.empty_disk(node);
        self.left.insert(node);
        self.faults.renamed(node);
        self.seen[node].leaving = false;
        let after = Span::millis(self.rng.between(200, 8_000));
        self.world.alarm(after, LEFT + node as u64);
    }

    /// What a host does whose disk is not to be trusted: it asks some other node.
    fn ask_anew(&mut self, node: usize) {
        let asked = self.flights.values().any(|flight| matches!(flight.what, Asked::Anew(other) if other == node));
        if !self.world.is_distrusted(node) || asked {
            return;
        }
        let others: Vec<usize> = (0..self.world.machines()).filter(|n| self.world.is_running(*n)).collect();
        let Some(&other) = self.rng.pick(&others) else { return self.world.alarm(ANEW_AFTER, ANEW + node as u64) };
        let (now, former) = (self.world.now(), self.world.id(node));
        let wish = NodeId((self.rng.u64() >> 16).max(1));
        let ask = Ask::Renew { former, name: format!("n{}", node + 1), why: "the simulator".into(), wish };
        let id = self.world.ask(other, APPLY_BUDGET, ask).expect("it was seen to run");
        self.answers.asked(id, other, now, APPLY_BUDGET, self.world.is_hung(other));
        let flight = Flight { client: 0, node: other, start: now, must: false, what: Asked::Anew(node) };
        self.flights.insert(id, flight);
    }

    /// What a client's pause is in this round.
    fn pause(&self, busy: Span) -> Span {
        let pause = busy.times(self.round.think);
        let Some(left) = self.round.lull else { return pause };
        let until = self.phase_since + Span(self.round.length.0.saturating_sub(left.0));
        // Then they come back one after the other.
        pause.max(until.since(self.world.now()) + busy)
    }

    fn calm_for(&self) -> Option<Span> {
        (self.phase == Phase::Calm).then(|| self.world.now().since(self.phase_since))
    }

    /// Nothing is wrong and nothing was wrong lately: one node may be killed without anybody noticing.
    fn all_well(&self) -> bool {
        let now = self.world.now();
        let up = |node: usize| self.world.is_running(node) && now.since(self.seen[node].since) > FILLED_AFTER;
        (0..self.world.machines()).all(up)
            && self.world.machines() >= 3
            && self.sessions.failed().is_empty()
            && self.seen.iter().all(|seen| seen.bricks_dead == 0)
            && now.since(self.quiet_since) > FILLED_AFTER
    }

    fn groups_are_whole(&self) -> bool {
        let whole: u64 = self.seen.iter().map(|seen| seen.groups_whole).sum();
        self.seen.iter().all(|seen| seen.members >= 3 && whole >= seen.shards)
    }

    /// As many shards are made as are declared, one after the other.
    fn judge_splits(&mut self) -> Result<(), Broken> {
        let now = self.world.now();
        let shown = |seen: &Seen| (seen.splits, seen.mark.map_or(0, |mark| load::wide_shards(mark) - 1));
        let (made, declared) = self.seen.iter().map(shown).max().unwrap_or_default();
        let calm = self.calm_for().is_some_and(|calm| calm > SERVED_WITHIN);
        let disk_lost = self.waits_for_memory() || self.emptied.values().any(|at| now.since(*at) <= GIVEN_UP_AFTER);
        let can = match self.groups_are_whole() {
            true if calm => Can::Begin,
            false if calm && !disk_lost => Can::End,
            _ => Can::Nothing,
        };
        self.splits.check(now, can, made, declared)
    }

    /// Two of a group in memory failed in a row: one's disk went for ever, and then another's power (by now, anybody's).
    fn waits_for_memory(&self) -> bool {
        let now = self.world.now();
        // Groups that were whole since have no member any more that is gone.
        let not_whole_since = |at: Time| self.whole_at < at + FILLED_AFTER;
        let calm_began = self.calm_for().is_some_and(|calm| calm <= GIVEN_UP_IN_CALM);
        let waits = |at: Time| now.since(at) <= GIVEN_UP_AFTER || (calm_began && not_whole_since(at));
        let since = self.emptied.values().filter(|at| waits(**at)).min();
        let lost_power = since.is_some_and(|at| self.power_lost.is_some_and(|lost| lost + FILLED_AFTER > *at));
        self.memory && lost_power && !self.groups_are_whole()
    }

    /// A disk may go for ever when three voters live: the other two carry on and choose a new one.
    fn may_empty(&self) -> bool {
        // Of each group the other two members carry on, too.
        self.all_well() && self.groups_are_whole() && self.seen.iter().all(|seen| seen.voters >= 3)
    }

    /// Whether an operation through a node that is up must succeed now: after faults have ended, and also while only
    /// one node at a time is killed.
    fn must_serve(&self) -> bool {
        match self.phase {
            Phase::Calm => self.calm_for().is_some_and(|calm| calm > SERVED_WITHIN),
            Phase::Faults => self.faults.is_gentle() && self.world.machines() >= 3,
        }
    }

    fn all_agree(&self) -> bool {
        self.seen.iter().all(|seen| seen.level == base::LEVEL)
    }

    fn tick(&mut self) -> Result<(), Broken> {
        let now = self.world.now();
        if !self.world.is_quiet() {
            self.quiet_since = now;
        }
        if self.groups_are_whole() {
            self.whole_at = now;
        }
        self.admit();
        for node in 0..self.seen.len() {
            let seen = &self.seen[node];
            let up = self.world.is_running(node);
            let long = now.since(seen.since.max(self.quiet_since)) > FILLED_AFTER;
            // The brick that it was is not back.
            let replaced = self.emptied.get(&node).is_none_or(|at| now.since(*at) > REPLACED_AFTER);
            if up && replaced && seen.filled.unwrap_or(long) {
                self.sessions.filled(node);
            }
        }
        for seen in &mut self.seen {
            seen.met.extend(seen.live.iter().flatten().map(|node| (*node, now)));
        }
        self.count_cut_off();
        self.count_dropped();
        self.tick_soft();
        self.judge_splits()?;
        self.answers.check(now, |node| self.world.is_hung(node))?;
        let Some(calm) = self.calm_for() else { return Ok(()) };
        if calm > MEMBERSHIP_WITHIN {
            let alive: BTreeSet<NodeId> = (0..self.seen.len()).map(|node| self.world.id(node)).collect();
            membership::check(now, &alive, self.seen.iter().enumerate().map(|(n, seen)| (n, seen.live.as_ref())))?;
        }
        if calm > SERVED_WITHIN {
            let shown: Vec<_> = self.seen.iter().enumerate().map(|(n, seen)| (n, seen.version, seen.mark)).collect();
            // An apply under way shows at one node before another.
            if !self.flights.values().any(|flight| matches!(flight.what, Asked::Apply(_))) {
                self.declared.check(now, &shown)?;
            }
            // Who a machine was that came back as another node is waited for, for minutes.
            let is_waited_for = !self.emptied.is_empty() || self.has_lied;
            if self.older.is_none() && !is_waited_for && !self.all_agree() {
                let what = format!("{:?}", self.seen.iter().map(|seen| seen.level).collect::<Vec<_>>());
                return Err(Broken { promise: "nodes that all have a level agree on it", at: now, what });
            }
        }
        // From the moment when faults end; the checker itself waits.
        let wanted: Vec<String> = self.seen[0]
            .wanted
            .iter()
            .flat_map(|(name, clones)| (0..*clones).map(move |number| format!("{name}/{number}")))
            .collect();
        let children = (0..self.seen.len()).flat_map(|node| {
            self.world.children(node).map(move |(_, child)| (node, child.spec.env["COPPICE_CLONE"].clone()))
        });
        let running: Vec<(usize, String)> = children.collect();
        let drained = |node: usize| self.seen[0].drained.contains(&format!("n{}", node + 1));
        let all_drain = (0..self.seen.len()).all(drained);
        let misplaced: Vec<_> = running.iter().filter(|(node, _)| drained(*node) && !all_drain).cloned().collect();
        // First, as what stays where it was drained runs twice, too.
        self.clones.check_drained(now, misplaced.into_iter())?;
        let within = if self.has_lied && self.faults.is_lying() { CLONES_LIED_WITHIN } else { CLONES_WITHIN };
        self.clones.check(now, within, wanted.into_iter(), running.into_iter())
    }

    /// A restarted brick waits for the fill of one that it cannot reach for a while, and then goes on without: what only
    /// that one holds has failed with it.
    fn count_cut_off(&mut self) {
        let now = self.world.now();
        let unfilled: Vec<usize> = self.sessions.failed().keys().copied().collect();
        for empty in unfilled {
            for node in 0..self.seen.len() {
                // By the links, or by membership: links that come and go, and clones' hangs, may keep two from meeting.
                let seen = &self.seen[empty];
                let met = seen.met.get(&self.world.id(node)).copied().unwrap_or_default().max(seen.since);
                let waited = self.world.is_running(empty) && now.since(seen.since) > CUT_OFF_COUNTS;
                let is_cut = self.world.cut_for(empty, node) > CUT_OFF_COUNTS || now.since(met) > CUT_OFF_COUNTS;
                if waited && node != empty && is_cut {
                    self.sessions.died(node, now);
                }
            }
        }
    }

    /// What is cut off from most for a minute leaves the brick map where that can shrink, and what it has was lost to the others.
    fn count_dropped(&mut self) {
        let (now, all) = (self.world.now(), self.world.machines());
        for node in (0..all).filter(|_| all > MEMBERS_MIN) {
            let is_cut = |other: &usize| self.world.cut_for(node, *other) > DROPPED_AFTER;
            if 2 * (0..all).filter(is_cut).count() < all - 1 {
                self.dropped.remove(&node);
            } else if self.dropped.insert(node) {
                self.sessions.died(node, now);
                self.modes.failed(node, now);
            }
        }
    }

    /// The operator's next apply. During a calm there is none: what runs must be what is declared by then.
    fn operate(&mut self) {
        let calm = self.calm_for().is_some() && self.world.now() > Time::ZERO + Span::secs(25);
        let nodes: Vec<usize> = (0..self.world.machines()).filter(|n| self.world.is_running(*n)).collect();
        if calm || nodes.is_empty() {
            return self.world.alarm(Span::secs(2), OPERATOR);
        }
        let machines = self.world.machines();
        let may_leave = self.phase == Phase::Faults && machines >= LEAVES_OF && !self.faults.is_gentle();
        if may_leave && self.rng.chance(LEAVES) {
            let name = format!("n{}", 1 + self.rng.below(machines as u64));
            let ask = Ask::Leave { name, how: node::Leaving::Remove, force: false };
            let asked = *self.rng.pick(&nodes).expect("some node runs");
            return self.send_operator(asked, ask, Asked::Leave);
        }
        if let Some((which, off, n)) = self.load.switch(self.world.machines(), nodes.len()) {
            let ask = Ask::Switch { target: clones::off::Target::Node(format!("n{}", which + 1)), off };
            return self.send_operator(nodes[n], ask, Asked::Switch);
        }
        let (text, mark, n) = self.load.declare(nodes.len());
        let mut entropy = [0; 32];
        entropy[..8].copy_from_slice(&self.rng.u64().to_le_bytes());
        let ask = Ask::Apply { file: FILE.into(), text, dry_run: false, entropy };
        self.send_operator(nodes[n], ask, Asked::Apply(mark));
    }

    /// Lets machines in that nobody has heard of: their disks were lost, or they take the place of one that has left.
    fn admit(&mut self) {
        for node in 0..self.world.machines() {
            let id = self.world.id(node);
            let asked = |what: &Asked| matches!(what, Asked::Former(of) | Asked::Comes(of, _) if *of == node);
            if self.admitted[node] == id || self.flights.values().any(|flight| asked(&flight.what)) {
                continue;
            }
            let others = (0..self.world.machines()).filter(|n| *n != node && self.world.is_running(*n));
            let others: Vec<usize> = others.collect();
            let Some(&other) = self.rng.pick(&others) else { continue };
            let ask = Ask::Remove { name: format!("n{}", node + 1), force: true };
            self.send_operator(other, ask, Asked::Former(node));
        }
    }

    /// Its former name is nobody's any more.
    fn comes(&mut self, node: usize, asked: usize) {
        let id = self.world.id(node);
        if self.world.is_running(asked) && self.admitted[node] != id {
            let level = if self.older == Some(node) { LEVEL - 1 } else { LEVEL };
            let ask = Ask::Admit { secret_hash: TOKEN, name: format!("n{}", node + 1), level, wish: id };
            self.send_operator(asked, ask, Asked::Comes(node, id));
        }
    }
}

/// A node that panics broke everything; its seed must not be lost with it.
impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}SEED {} panicked at {:?}", self.world.trace.last(60, 30), self.seed, self.world.now());
        }
    }
}
