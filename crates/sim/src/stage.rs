//! What every play of a run finds on its stage: the world, what is seen of nodes, questions under way, and how much may be asked of
//! the cluster at this moment.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, NodeId, Outcome, Rng, Span, Time};
use node::{Answer, Ask};

use crate::faults::Faults;
use crate::history::{History, Line};
use crate::pace::{self, Round};
use crate::plays::Act;
use crate::promises::answers::Answers;
use crate::promises::{Broken, SERVED_WITHIN};
use crate::shipped::Cluster;
use crate::world::World;
use seen::Seen;

pub mod seen;

const SERVED: &str = "any one node may be killed: no operation through a live node fails";

/// A node answers clients this long after its start: it has to find the others first.
const WARM_UP: Span = Span::secs(5);
/// Without word of its own a restarted brick is taken as filled after such a time without faults of the network: state
/// waits 10 s for members that are missing.
pub const FILLED_AFTER: Span = Span::secs(15);
/// A client that finds no node to ask tries again after so long.
const NOBODY: Span = Span::millis(300);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Faults,
    Calm,
}

/// A question under way.
pub struct Flight {
    /// Whose it is, as [`crate::plays::Name::token`] counts all clients.
    pub client: u64,
    pub node: usize,
    pub start: Time,
    /// Every operation had to succeed when it began.
    pub must: bool,
    pub what: Asked,
}

pub enum Asked {
    Play(Act),
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

/// Words of an operation for the history and for counts: which operation on which key, and with what.
pub struct OpWords<'a> {
    pub op: &'static str,
    pub key: &'a str,
    pub arg: String,
}

impl OpWords<'_> {
    /// An operation on no key, with nothing to say of it.
    pub fn bare(op: &'static str) -> OpWords<'static> {
        OpWords { op, key: "", arg: String::new() }
    }
}

pub struct Stage {
    pub seed: u64,
    pub world: World<Cluster>,
    pub rng: Rng,
    pub faults: Faults,
    /// What class `linear` acknowledges is not forced yet: a majority must not lose its power at once.
    pub memory: bool,
    pub history: History,
    pub flights: BTreeMap<AskId, Flight>,
    pub seen: Vec<Seen>,
    pub phase: Phase,
    pub phase_since: Time,
    pub round: Round,
    pub quiet_since: Time,
    /// When all groups were last seen to have all their members.
    pub whole_at: Time,
    /// When a machine last came back as a new node.
    pub emptied: BTreeMap<usize, Time>,
    /// A peer has lied, and gone: it was a node of the cluster.
    pub has_lied: bool,
    /// When a machine last came back from a loss of power.
    pub power_lost: Option<Time>,
    /// Writes of class `session` that began by then are not promised any more: too many bricks have failed since.
    pub void_before: Time,
    pub answers: Answers,
    pub ops: BTreeMap<String, u64>,
}

impl Stage {
    pub fn new(seed: u64, world: World<Cluster>, rng: Rng, faults: Faults, memory: bool, history: History) -> Self {
        Self {
            seed,
            rng,
            faults,
            memory,
            history,
            flights: BTreeMap::new(),
            seen: (0..world.machines()).map(|_| Seen::default()).collect(),
            world,
            phase: Phase::Calm,
            phase_since: Time::ZERO,
            round: pace::BUSY,
            quiet_since: Time::ZERO,
            whole_at: Time::ZERO,
            emptied: BTreeMap::new(),
            has_lied: false,
            power_lost: None,
            void_before: Time::ZERO,
            answers: Answers::default(),
            ops: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Nodes that answer clients by now.
    pub fn warm(&self) -> Vec<usize> {
        let now = self.now();
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        (0..self.world.machines()).filter(warm).collect()
    }

    /// A client that finds no node to ask tries again.
    pub fn nobody(&mut self, client: u64) {
        self.world.alarm(NOBODY, client);
    }

    /// Asks a node that runs.
    pub fn send(&mut self, client: u64, node: usize, budget: Span, ask: Ask, must: bool, what: Asked) {
        let now = self.now();
        let id = self.world.ask(node, budget, ask).expect("the node was seen to run");
        self.answers.asked(id, node, now, budget, self.world.is_hung(node));
        self.flights.insert(id, Flight { client, node, start: now, must, what });
    }

    /// Counts an operation that has ended, or whose node died over it, and keeps its line.
    pub fn close<T>(
        &mut self,
        flight: &Flight,
        words: &OpWords<'_>,
        outcome: Option<&Outcome<T>>,
        shown: impl Fn(&T) -> String,
    ) {
        let outcome = outcome.map_or_else(|| "died".into(), |outcome| text(outcome, shown));
        let now = self.now();
        self.world.trace.mix(outcome.as_bytes());
        let word = outcome.split(' ').next().unwrap_or_default();
        *self.ops.entry(format!("{} {word}", words.op)).or_default() += 1;
        let (process, start, node) = (flight.client, flight.start.0, flight.node);
        let OpWords { op, key, arg } = words;
        self.history.keep(&Line { process, op, key, arg, outcome: &outcome, start, end: now.0, node });
    }

    /// The client asks its next after about so long, as busy as this round is.
    pub fn goes_on(&mut self, client: u64, busy: Span) {
        let pause = self.pause(busy);
        self.world.alarm(pause, client);
    }

    /// What a client's pause is in this round.
    fn pause(&self, busy: Span) -> Span {
        let pause = busy.times(self.round.think);
        let Some(left) = self.round.lull else { return pause };
        let until = self.phase_since + Span(self.round.length.0.saturating_sub(left.0));
        // Then they come back one after the other.
        pause.max(until.since(self.now()) + busy)
    }

    pub fn calm_for(&self) -> Option<Span> {
        (self.phase == Phase::Calm).then(|| self.now().since(self.phase_since))
    }

    pub fn groups_are_whole(&self) -> bool {
        let whole: u64 = self.seen.iter().map(|seen| seen.groups_whole).sum();
        self.seen.iter().all(|seen| seen.members >= 3 && whole >= seen.shards)
    }

    /// Whether an operation through a node that is up must succeed now: after faults have ended, and also while only
    /// one node at a time is killed.
    pub fn must_serve(&self) -> bool {
        match self.phase {
            Phase::Calm => self.calm_for().is_some_and(|calm| calm > SERVED_WITHIN),
            Phase::Faults => self.faults.is_gentle() && self.world.machines() >= 3,
        }
    }

    pub fn all_agree(&self) -> bool {
        self.seen.iter().all(|seen| seen.level == base::LEVEL)
    }

    /// While any one node may be killed, what is asked of a live one is done, unless its play excuses it.
    pub fn must_be_done<T>(
        &self,
        flight: &Flight,
        outcome: &Outcome<T>,
        excused: bool,
        asked: impl Fn() -> String,
    ) -> Result<(), Broken> {
        if !flight.must || !self.must_serve() || matches!(outcome, Outcome::Done(_)) || excused {
            return Ok(());
        }
        let why = text(outcome, |_| String::new());
        let what = format!("{} through node {} since {:?}: {why}", asked(), flight.node, flight.start);
        Err(Broken { promise: SERVED, at: self.now(), what })
    }

    /// Tells that a node answered something else than it was asked.
    pub fn another_kind(&self, answer: &impl std::fmt::Debug) -> Broken {
        let what = format!("an answer of another kind: {answer:?}");
        Broken { promise: "an answer is to its question", at: self.now(), what }
    }

    /// Counts something that is no operation.
    pub fn count(&mut self, what: &str) {
        *self.ops.entry(what.into()).or_default() += 1;
    }

    /// All nodes as they are known now.
    pub fn alive(&self) -> BTreeSet<NodeId> {
        (0..self.seen.len()).map(|node| self.world.id(node)).collect()
    }
}

/// `ok`, `refused` or `unknown`, and what.
pub fn text<T>(outcome: &Outcome<T>, done: impl Fn(&T) -> String) -> String {
    match outcome {
        Outcome::Done(reply) => format!("ok {}", done(reply)),
        Outcome::Refused(refused) => format!("refused {refused}"),
        Outcome::Unknown(unknown) => format!("unknown {unknown}"),
    }
}

/// What came of a client's operation; nothing if its node died over it.
pub type Heard = Option<Answer>;
