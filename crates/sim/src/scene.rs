//! One run: a cluster of shipped nodes under load and faults, judged by every promise.
//!
//! Time goes in rounds: faults strike for a while, then all end, and after a calm in which the cluster must have come
//! back by itself the next round draws other faults. Load never stops. What is asked of each class, and what of it is
//! promised, is a play of its own (`plays`); here is what they have in common.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, LEVEL, NodeId, Outcome, Rng, Span, Time};
use node::{Answer, Ask};
use state::session::limits::{DEAD_LEAVES_AFTER, MEMBERS_MIN};

use crate::faults::{self, Faults, May};
use crate::history::History;
use crate::operator::{self, Operator};
use crate::pace::Pace;
use crate::plays::linear;
use crate::plays::{self, Bug, Cast, Mishap, Name, Plays};
use crate::promises::clones::Clones;
use crate::promises::declared::{self, Declared};
use crate::promises::{Broken, CLONES_LIED_WITHIN, CLONES_WITHIN, MEMBERSHIP_WITHIN, SERVED_WITHIN, membership};
use crate::shipped::{Cluster, FILE, Shipped, TOKEN};
use crate::stage::seen::Seen;
use crate::stage::{Asked, FILLED_AFTER, Flight, Heard, OpWords, Phase, Stage};
use crate::world::{Happened, World};

const LIED: &str = "no word of a peer to which nothing belongs ends a process";
const CALM: &str = "no machine wakes without end";

/// A little before bricks that are dead for so long leave the map.
const DROPPED_AFTER: Span = Span(DEAD_LEAVES_AFTER.0 - Span::secs(5).0);
/// What a brick notes that forgets all it has, while its node lives.
const STARTS_ANEW: &str = "this brick starts anew";
/// Between two tries to enter anew.
const ANEW_AFTER: Span = Span::millis(500);
/// Operators wait for so long.
const APPLY_BUDGET: Span = Span::secs(5);
/// Nodes that have to enter anew ask from here on; below are clients.
const ANEW: u64 = plays::TOKENS;
/// In the place of nodes that have left new ones begin from here on.
const LEFT: u64 = 2 * ANEW;
const TICK: u64 = 1 << 60;
/// Tells the generator of rounds from that of all else.
const ROUNDS: u64 = 0x726f_756e_6473;
const PHASE: u64 = 2 << 60;
const OPERATOR: u64 = 3 << 60;
/// So many machines or more: then one may be asked to leave for good. With fewer bricks it would be refused.
const LEAVES_OF: usize = 4;
/// How often the operator asks that, instead of something else.
const LEAVES: f64 = 0.3;
const _: () = assert!(PHASE & faults::ALARM_BIT == 0 && OPERATOR & faults::ALARM_BIT == 0, "alarms are told apart");

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
    /// Clients play this alone: so much more of it in the same time.
    pub only: Option<Name>,
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

pub struct Scene {
    stage: Stage,
    plays: Plays,
    operator: Operator,
    /// A machine that still runs an older program: what is newer is refused.
    older: Option<usize>,
    /// Machines whose nodes have left for good, with what they had, and come back as others.
    left: BTreeSet<usize>,
    /// When a machine came back last whose node had left for good.
    came_back: Time,
    pace: Pace,
    /// Draws rounds of that pace.
    rounds: Rng,
    /// As whom machines were admitted last.
    admitted: Vec<NodeId>,
    /// Cut off for so long that the others may do without them.
    dropped: BTreeSet<usize>,
    clones: Clones,
    declared: Declared,
    /// Requests that stubs did not send for their priority.
    turned_away: u64,
}

/// Runs a plan to its end, or until a promise breaks.
pub fn run(plan: Plan) -> Report {
    let (seed, length) = (plan.seed, plan.length);
    let mut scene = Scene::new(plan);
    let broken = scene.run(Time::ZERO + length).err();
    let stage = &mut scene.stage;
    let faults = stage.faults.counts().iter().map(|(kind, count)| (format!("{kind:?}"), *count)).collect();
    let mut ops = std::mem::take(&mut stage.ops);
    scene.plays.count(stage, &mut ops);
    ops.insert("requests turned away for their priority".into(), scene.turned_away);
    Report {
        seed,
        ran: stage.now().since(Time::ZERO),
        hash: stage.world.trace.hash(),
        events: stage.world.trace.events(),
        faults,
        ops,
        last: if broken.is_some() { stage.world.trace.last(60, 80) } else { String::new() },
        broken,
    }
}

impl Scene {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        // Every second seed.
        let memory = plan.seed.is_multiple_of(2);
        let on = Name::on(&plan);
        let mut cluster = Cluster::new(operator::declaration(0, memory, &on, &mut rng.fork()), plan.bug);
        on.iter().for_each(|name| name.settings(&mut cluster.settings));
        // A planted bug drops the ends of logs: of those that have one.
        if plan.bug.is_none() {
            cluster.linear_log = linear::log(plan.seed);
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
        let faults = Faults::new(rng.fork(), lies);
        let mut cast = Cast { seed: plan.seed, nodes: plan.nodes, rng, operator: Rng::new(plan.seed) };
        let plays = Plays::new(&mut cast, &on);
        let mut scene = Self {
            operator: Operator::new(memory, on, cast.operator),
            stage: Stage::new(plan.seed, world, cast.rng, faults, memory, plan.history),
            plays,
            older,
            left: BTreeSet::new(),
            came_back: Time::ZERO,
            pace: plan.pace,
            rounds: Rng::new(plan.seed ^ ROUNDS),
            admitted,
            dropped: BTreeSet::new(),
            clones: Clones::default(),
            declared: Declared::default(),
            turned_away: 0,
        };
        scene.begin();
        scene
    }

    fn begin(&mut self) {
        let world = &mut self.stage.world;
        (0..world.machines()).for_each(|node| world.start(node));
        world.alarm(Span::secs(1), TICK);
        world.alarm(Span::secs(25), PHASE);
        world.alarm(Span::secs(3), OPERATOR);
        self.plays.begin(&mut self.stage);
    }

    fn run(&mut self, until: Time) -> Result<(), Broken> {
        while let Some(happened) = self.stage.world.next(until) {
            self.heard(happened)?;
        }
        Ok(())
    }

    fn heard(&mut self, happened: Happened<Shipped>) -> Result<(), Broken> {
        let now = self.stage.now();
        match happened {
            Happened::Answered { id, answer, .. } => {
                self.stage.answers.answered(id, now)?;
                let flight = self.stage.flights.remove(&id).expect("what was asked flies until it is answered");
                return self.ended(&flight, Some(answer));
            }
            Happened::Published { node, view } => {
                let before = self.stage.seen[node].turned_away;
                self.stage.seen[node].take(&view, now);
                self.turned_away += self.stage.seen[node].turned_away.saturating_sub(before);
                if view.closing.is_some() {
                    self.left(node);
                }
            }
            Happened::Noted { node, note } if note.text.contains(STARTS_ANEW) => {
                self.plays.excuse(node, Mishap::Anew, &mut self.stage);
            }
            Happened::Noted { .. } => (),
            Happened::Distrusted { node } | Happened::Outdated { node } if self.stage.faults.is_lying() => {
                let what = format!("node {node} has ended");
                return Err(Broken { promise: LIED, at: now, what });
            }
            Happened::Distrusted { node } => {
                self.plays.excuse(node, Mishap::LostDisk, &mut self.stage);
                self.stage.count("disk distrusted");
                self.stage.world.alarm(ANEW_AFTER, ANEW + node as u64);
            }
            // Whoever watches over it has the newer program by now.
            Happened::Outdated { node } => self.stage.world.alarm(Span::secs(1), LEFT + node as u64),
            Happened::Started { node } => {
                if now > Time::ZERO {
                    self.older.take_if(|older| *older == node);
                }
                self.stage.seen[node] = Seen { since: now, ..Seen::default() };
                let is_new = self.stage.world.boot(node) == Boot(1) && now > Time::ZERO;
                let has_left = is_new && self.left.remove(&node);
                if has_left {
                    self.came_back = now;
                }
                if (is_new && !has_left) || self.stage.faults.forgets(node) {
                    self.plays.excuse(node, Mishap::LostDisk, &mut self.stage);
                }
                if self.stage.world.boot(node) == Boot(1) && now > Time::ZERO {
                    self.stage.emptied.insert(node, now);
                } else if self.stage.world.is_rebooted(node) {
                    self.stage.power_lost = Some(now);
                }
            }
            Happened::Resumed { node, stood } => self.stage.answers.resumed(node, now, stood),
            Happened::Died { node } => {
                self.plays.excuse(node, Mishap::Died, &mut self.stage);
                for id in self.stage.answers.died(node) {
                    let flight = self.stage.flights.remove(&id).expect("what was asked flies until its node dies");
                    self.ended(&flight, None)?;
                }
            }
            Happened::Spins { node, wakes } => {
                let what = format!("node {node} asked for {wakes} wakes within a second");
                return Err(Broken { promise: CALM, at: now, what });
            }
            Happened::Alarm(token) if token & faults::ALARM_BIT != 0 => {
                let unpowered = (0..self.stage.world.machines()).any(|node| self.stage.world.is_rebooted(node));
                let may = May {
                    empty: self.may_empty(),
                    kill_gently: self.all_well() && self.stage.groups_are_whole(),
                    lose_power: !(self.stage.memory && unpowered),
                };
                self.stage.faults.alarm(&mut self.stage.world, token, may);
            }
            Happened::Alarm(TICK) => {
                self.stage.world.alarm(Span::secs(1), TICK);
                return self.tick();
            }
            Happened::Alarm(PHASE) => self.turn(),
            Happened::Alarm(OPERATOR) => self.operate(),
            Happened::Alarm(node) if node >= LEFT => {
                let node = (node - LEFT) as usize;
                if !self.stage.world.is_running(node) {
                    self.stage.world.start(node);
                }
            }
            Happened::Alarm(node) if node >= ANEW => self.ask_anew((node - ANEW) as usize),
            Happened::Alarm(client) => self.plays.ask(client, &mut self.stage),
        }
        Ok(())
    }

    /// From faults to calm, and back.
    fn turn(&mut self) {
        let (phase, length) = match self.stage.phase {
            Phase::Calm => (Phase::Faults, Span::millis(self.stage.rng.between(15_000, 60_000))),
            Phase::Faults => (Phase::Calm, Span::millis(self.stage.rng.between(22_000, 30_000))),
        };
        self.stage.round = match phase {
            Phase::Faults => self.pace.faults(length, &mut self.rounds),
            Phase::Calm => self.pace.calm(length, &mut self.rounds),
        };
        self.stage.world.alarm(self.stage.round.length, PHASE);
        (self.stage.phase, self.stage.phase_since) = (phase, self.stage.now());
        self.clones.excuse();
        self.plays.turn();
        match phase {
            Phase::Calm => {
                self.stage.world.trace.remark(self.stage.now(), "all faults end".into());
                self.stage.faults.end_all(&mut self.stage.world);
                // Whoever is about to leave dies over it, and is back.
                let leaving = |node: &usize| self.stage.seen[*node].leaving;
                for node in (0..self.stage.seen.len()).filter(leaving).collect::<Vec<_>>() {
                    self.stage.count("leaves broken off");
                    self.stage.world.kill(node);
                    self.stage.world.start(node);
                }
            }
            Phase::Faults => {
                self.stage.faults.draw();
                self.stage.faults.slow_down(self.stage.round.gap, self.stage.round.lasts);
                let text =
                    format!("faults: {:?}, gentle: {}", self.stage.faults.allowed(), self.stage.faults.is_gentle());
                self.stage.world.trace.remark(self.stage.now(), text);
                self.stage.faults.begin(&mut self.stage.world);
                self.stage.has_lied |= self.stage.faults.is_lying();
            }
        }
    }

    /// A node's process ends as it has left for good. A new one comes in its place, with nothing on its disk.
    fn left(&mut self, node: usize) {
        self.stage.count("nodes left");
        self.stage.world.kill(node);
        self.stage.world.empty_disk(node);
        self.left.insert(node);
        self.stage.faults.renamed(node);
        self.stage.seen[node].leaving = false;
        let after = Span::millis(self.stage.rng.between(200, 8_000));
        self.stage.world.alarm(after, LEFT + node as u64);
    }

    /// What a host does whose disk is not to be trusted: it asks some other node.
    fn ask_anew(&mut self, node: usize) {
        let asked =
            self.stage.flights.values().any(|flight| matches!(flight.what, Asked::Anew(other) if other == node));
        if !self.stage.world.is_distrusted(node) || asked {
            return;
        }
        let others: Vec<usize> = (0..self.stage.world.machines()).filter(|n| self.stage.world.is_running(*n)).collect();
        let Some(&other) = self.stage.rng.pick(&others) else {
            return self.stage.world.alarm(ANEW_AFTER, ANEW + node as u64);
        };
        let former = self.stage.world.id(node);
        let wish = NodeId((self.stage.rng.u64() >> 16).max(1));
        let ask = Ask::Renew { former, name: format!("n{}", node + 1), why: "the simulator".into(), wish };
        self.stage.send(0, other, APPLY_BUDGET, ask, false, Asked::Anew(node));
    }

    /// Nothing is wrong and nothing was wrong lately: one node may be killed without anybody noticing.
    fn all_well(&self) -> bool {
        let now = self.stage.now();
        let up =
            |node: usize| self.stage.world.is_running(node) && now.since(self.stage.seen[node].since) > FILLED_AFTER;
        (0..self.stage.world.machines()).all(up)
            && self.stage.world.machines() >= 3
            && self.plays.are_whole()
            && self.stage.seen.iter().all(|seen| seen.bricks_dead == 0)
            && now.since(self.stage.quiet_since) > FILLED_AFTER
    }

    /// A disk may go for ever when three voters live: the other two carry on and choose a new one.
    fn may_empty(&self) -> bool {
        // Of each group the other two members carry on, too.
        self.all_well() && self.stage.groups_are_whole() && self.stage.seen.iter().all(|seen| seen.voters >= 3)
    }

    fn tick(&mut self) -> Result<(), Broken> {
        let now = self.stage.now();
        if !self.stage.world.is_quiet() {
            self.stage.quiet_since = now;
        }
        if self.stage.groups_are_whole() {
            self.stage.whole_at = now;
        }
        self.admit();
        for seen in &mut self.stage.seen {
            seen.met.extend(seen.live.iter().flatten().map(|node| (*node, now)));
        }
        self.plays.tick(&mut self.stage)?;
        self.count_dropped();
        self.stage.answers.check(now, |node| self.stage.world.is_hung(node))?;
        let Some(calm) = self.stage.calm_for() else { return Ok(()) };
        // Whoever was asked to leave as faults ended leaves in the calm, and comes back as another.
        let changes = !self.left.is_empty() || now.since(self.came_back) <= MEMBERSHIP_WITHIN;
        if calm > MEMBERSHIP_WITHIN && !changes {
            let alive = self.stage.alive();
            membership::check(
                now,
                &alive,
                self.stage.seen.iter().enumerate().map(|(n, seen)| (n, seen.live.as_ref())),
            )?;
        }
        if calm > SERVED_WITHIN && !changes {
            let shown: Vec<_> =
                self.stage.seen.iter().enumerate().map(|(n, seen)| (n, seen.version, seen.mark)).collect();
            // An apply under way shows at one node before another.
            if !self.stage.flights.values().any(|flight| matches!(flight.what, Asked::Apply(_))) {
                self.declared.check(now, &shown)?;
            }
            // Who a machine was that came back as another node is waited for, for minutes.
            let is_waited_for = !self.stage.emptied.is_empty() || self.stage.has_lied;
            if self.older.is_none() && !is_waited_for && !self.stage.all_agree() {
                let what = format!("{:?}", self.stage.seen.iter().map(|seen| seen.level).collect::<Vec<_>>());
                return Err(Broken { promise: "nodes that all have a level agree on it", at: now, what });
            }
        }
        // From the moment when faults end; the checker itself waits.
        let wanted: Vec<String> = self.stage.seen[0]
            .wanted
            .iter()
            .flat_map(|(name, clones)| (0..*clones).map(move |number| format!("{name}/{number}")))
            .collect();
        let children = (0..self.stage.seen.len()).flat_map(|node| {
            self.stage.world.children(node).map(move |(_, child)| (node, child.spec.env["COPPICE_CLONE"].clone()))
        });
        let running: Vec<(usize, String)> = children.collect();
        let drained = |node: usize| self.stage.seen[0].drained.contains(&format!("n{}", node + 1));
        let all_drain = (0..self.stage.seen.len()).all(drained);
        let misplaced: Vec<_> = running.iter().filter(|(node, _)| drained(*node) && !all_drain).cloned().collect();
        // First, as what stays where it was drained runs twice, too.
        self.clones.check_drained(now, misplaced.into_iter())?;
        let within =
            if self.stage.has_lied && self.stage.faults.is_lying() { CLONES_LIED_WITHIN } else { CLONES_WITHIN };
        self.clones.check(now, within, wanted.into_iter(), running.into_iter())
    }

    /// What is cut off from most for a minute leaves the brick map where that can shrink, and what it has was lost to the others.
    fn count_dropped(&mut self) {
        let all = self.stage.world.machines();
        for node in (0..all).filter(|_| all > MEMBERS_MIN) {
            let is_cut = |other: &usize| self.stage.world.cut_for(node, *other) > DROPPED_AFTER;
            if 2 * (0..all).filter(is_cut).count() < all - 1 {
                self.dropped.remove(&node);
            } else if self.dropped.insert(node) {
                self.plays.excuse(node, Mishap::Dropped, &mut self.stage);
            }
        }
    }

    /// What an operator asks of a node.
    fn asks(&mut self, node: usize, ask: Ask, what: Asked) {
        self.stage.send(OPERATOR, node, APPLY_BUDGET, ask, false, what);
    }

    /// What was asked is answered, or its node died over it.
    fn ended(&mut self, flight: &Flight, heard: Heard) -> Result<(), Broken> {
        let now = self.stage.now();
        match (&flight.what, heard) {
            (Asked::Play(act), heard) => self.plays.end(flight, act, heard, &mut self.stage),
            (Asked::Former(node), Some(Answer::Done(outcome))) => {
                self.close(flight, Some(&outcome), |()| String::new());
                // It may have been nobody's before.
                if !matches!(outcome, Outcome::Unknown(_)) {
                    self.comes(*node, flight.node);
                }
                Ok(())
            }
            (Asked::Comes(node, id), Some(Answer::Admitted(outcome))) => {
                self.close(flight, Some(&outcome), |_| String::new());
                if matches!(outcome, Outcome::Done(_)) {
                    self.admitted[*node] = *id;
                }
                Ok(())
            }
            (Asked::Leave, Some(Answer::Done(outcome))) => {
                self.close(flight, Some(&outcome), |()| String::new());
                Ok(())
            }
            (Asked::Switch, Some(Answer::Applied(outcome))) => {
                self.close(flight, Some(&outcome), |applied| applied.version.to_string());
                Ok(())
            }
            (Asked::Apply(mark), Some(Answer::Applied(outcome))) => {
                self.close(flight, Some(&outcome), |applied| applied.version.to_string());
                let ended = match outcome {
                    Outcome::Done(applied) => declared::Ended::Done { version: applied.version },
                    Outcome::Refused(_) => declared::Ended::Refused,
                    Outcome::Unknown(_) => declared::Ended::Unknown,
                };
                self.declared.applied(now, *mark, ended)
            }
            (Asked::Anew(node), Some(Answer::Admitted(outcome))) => {
                self.close(flight, Some(&outcome), |_| String::new());
                if let Outcome::Done(admitted) = outcome {
                    self.stage.world.enter_anew(*node, admitted.id);
                    self.admitted[*node] = admitted.id;
                    self.stage.world.start(*node);
                }
                Ok(())
            }
            (Asked::Apply(mark), None) => {
                self.close(flight, None::<&Outcome<()>>, |()| String::new());
                self.declared.applied(now, *mark, declared::Ended::Unknown)
            }
            // It may have happened.
            (_, None) => {
                self.close(flight, None::<&Outcome<()>>, |()| String::new());
                Ok(())
            }
            (_, Some(answer)) => Err(self.stage.another_kind(&answer)),
        }
    }

    /// Counts what an operator asked, and lets the operator go on.
    fn close<T>(&mut self, flight: &Flight, outcome: Option<&Outcome<T>>, shown: impl Fn(&T) -> String) {
        let words = match &flight.what {
            Asked::Apply(mark) => OpWords { arg: mark.to_string(), ..OpWords::bare("apply") },
            Asked::Anew(_) => OpWords::bare("enter-anew"),
            Asked::Switch => OpWords::bare("switch"),
            Asked::Leave => OpWords::bare("leave"),
            Asked::Former(_) => OpWords::bare("remove"),
            Asked::Comes(..) => OpWords::bare("admit"),
            Asked::Play(_) => unreachable!("a play counts its own"),
        };
        self.stage.close(flight, &words, outcome, shown);
        match flight.what {
            // If it may enter, it is not distrusted any more by then.
            Asked::Anew(node) => self.stage.world.alarm(ANEW_AFTER, ANEW + node as u64),
            // Looked after with each tick.
            Asked::Former(_) | Asked::Comes(..) | Asked::Play(_) => (),
            Asked::Apply(_) | Asked::Switch | Asked::Leave => {
                let pause = self.operator.pause().times(self.stage.round.operator);
                self.stage.world.alarm(pause, OPERATOR);
            }
        }
    }

    /// The operator's next apply. During a calm there is none: what runs must be what is declared by then.
    fn operate(&mut self) {
        let calm = self.stage.calm_for().is_some() && self.stage.now() > Time::ZERO + Span::secs(25);
        let nodes: Vec<usize> = (0..self.stage.world.machines()).filter(|n| self.stage.world.is_running(*n)).collect();
        if calm || nodes.is_empty() {
            return self.stage.world.alarm(Span::secs(2), OPERATOR);
        }
        let machines = self.stage.world.machines();
        let may_leave = self.stage.phase == Phase::Faults && machines >= LEAVES_OF && !self.stage.faults.is_gentle();
        if may_leave && self.stage.rng.chance(LEAVES) {
            let name = format!("n{}", 1 + self.stage.rng.below(machines as u64));
            let ask = Ask::Leave { name, how: node::Leaving::Remove, force: false };
            let asked = *self.stage.rng.pick(&nodes).expect("some node runs");
            return self.asks(asked, ask, Asked::Leave);
        }
        if let Some((which, off, n)) = self.operator.switch(self.stage.world.machines(), nodes.len()) {
            let ask = Ask::Switch { target: clones::off::Target::Node(format!("n{}", which + 1)), off };
            return self.asks(nodes[n], ask, Asked::Switch);
        }
        let (text, mark, n) = self.operator.declare(nodes.len());
        let mut entropy = [0; 32];
        entropy[..8].copy_from_slice(&self.stage.rng.u64().to_le_bytes());
        let ask = Ask::Apply { file: FILE.into(), text, dry_run: false, entropy };
        self.asks(nodes[n], ask, Asked::Apply(mark));
    }

    /// Lets machines in that nobody has heard of: their disks were lost, or they take the place of one that has left.
    fn admit(&mut self) {
        for node in 0..self.stage.world.machines() {
            let id = self.stage.world.id(node);
            let asked = |what: &Asked| matches!(what, Asked::Former(of) | Asked::Comes(of, _) if *of == node);
            if self.admitted[node] == id || self.stage.flights.values().any(|flight| asked(&flight.what)) {
                continue;
            }
            let others = (0..self.stage.world.machines()).filter(|n| *n != node && self.stage.world.is_running(*n));
            let others: Vec<usize> = others.collect();
            let Some(&other) = self.stage.rng.pick(&others) else { continue };
            let ask = Ask::Remove { name: format!("n{}", node + 1), force: true };
            self.asks(other, ask, Asked::Former(node));
        }
    }

    /// Its former name is nobody's any more.
    fn comes(&mut self, node: usize, asked: usize) {
        let id = self.stage.world.id(node);
        if self.stage.world.is_running(asked) && self.admitted[node] != id {
            let level = if self.older == Some(node) { LEVEL - 1 } else { LEVEL };
            let ask = Ask::Admit { secret_hash: TOKEN, name: format!("n{}", node + 1), level, wish: id };
            self.asks(asked, ask, Asked::Comes(node, id));
        }
    }
}

/// A node that panics broke everything; its seed must not be lost with it.
impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}SEED {} panicked at {:?}",
                self.stage.world.trace.last(60, 30),
                self.stage.seed,
                self.stage.now()
            );
        }
    }
}
