//! The shipped node as the world runs it, and, for the tests of the promises, the same node with one planted bug.

use std::net::SocketAddr;

use base::{Boot, Effect, Event, LEVEL, Machine, NodeId, Now, Outcome, ProcId, Rng, Span, Time};
use bytes::Bytes;
use cluster::raft::LogBounds;
use cluster::root::{Change, Declared};
use cluster::{Card, Door, DoorAddrs};
use node::{Answer, Applied, Ask, Node, View};
use state::linear::limits::LOG;

use crate::liar::LIAR;
use crate::plays::{self, Out, Spoils};
use crate::world::{Birth, Factory, Life};

/// A bug to plant that is no class's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some questions are never answered.
    Mute,
    /// Nobody dials once the cluster has formed.
    NeverDials,
    /// Every child is started twice.
    Twins,
    /// Some applies are acknowledged and not done.
    FalseApply,
    /// It wants to be woken all the time.
    Spins,
    /// Who was away for too long is let in as who it was.
    Welcomes,
    /// What a peer says of others is believed, and what it says of this node is not refuted.
    Believes,
}

/// Makes nodes of one cluster: node 0 founds it in its first life, everyone knows the first three.
pub struct Cluster {
    pub seeds: Vec<SocketAddr>,
    /// Of the machines, as they are at first.
    pub ids: Vec<NodeId>,
    /// The first declaration: TOML.
    pub declaration: String,
    pub bug: Option<plays::Bug>,
    pub founded: bool,
    pub linear_log: LogBounds,
    pub settings: state::Settings,
    /// A peer that may come is among those that are declared.
    pub lies: bool,
    /// This machine begins with an older program; from its second life on it has the present one, as all others.
    pub older: Option<usize>,
    /// What that program has: the level before, unless a test is about another.
    pub older_level: u32,
}

impl Cluster {
    pub fn new(declaration: String, bug: Option<plays::Bug>) -> Self {
        Self {
            seeds: Vec::new(),
            ids: Vec::new(),
            declaration,
            bug,
            founded: false,
            linear_log: LOG,
            settings: state::Settings::default(),
            lies: false,
            older: None,
            older_level: LEVEL - 1,
        }
    }

    fn first_records(&self, level: u32) -> Change {
        let nothing = Declared::default();
        let diff =
            node::declared::diff(&nothing, FILE, &self.declaration, &[7; 32]).expect("the first declaration is right");
        let mut change = Change { expect: None, ..diff.change };
        // As if all of them had joined.
        let admitted = |(n, id): (usize, &NodeId)| {
            let id = serde_json::to_vec(id).expect("a number is JSON");
            ("node".into(), format!("n{n}"), Bytes::from(id))
        };
        change.puts.extend((1..).zip(&self.ids).map(admitted));
        if self.lies {
            let id = serde_json::to_vec(&LIAR).expect("a number is JSON");
            change.puts.push(("node".into(), "liar".into(), id.into()));
        }
        // Nothing here is signed, but who enters anew is given the authority.
        let authority = Bytes::from_static(b"{\"cert_pem\":\"\",\"key_pem\":\"\"}");
        change.puts.push(node::level::put(level));
        // With it those come in who have lost all that they were.
        let token = Bytes::from(format!("{{\"expires_wall_ms\":{}}}", u64::MAX));
        change.puts.push(("join".into(), TOKEN.iter().map(|byte| format!("{byte:02x}")).collect(), token));
        change.puts.push(("secret".into(), "ca".into(), authority));
        change
    }
}

/// Hash of the secret of a join token that is good for ever.
pub const TOKEN: [u8; 32] = [7; 32];
/// Name of the file that load applies.
pub const FILE: &str = "sim.toml";

impl Factory for Cluster {
    type Machine = Shipped;

    fn birth(&mut self, life: &Life) -> Birth<Shipped> {
        // The cluster begins with what all have.
        let first = if self.older.is_some() { self.older_level } else { LEVEL };
        let is_older = self.older.take_if(|older| *older == life.index).is_some();
        let card = Card {
            id: life.id,
            boot: life.boot,
            name: format!("n{}", life.index + 1),
            doors: DoorAddrs::on(life.peer.ip()).with(Door::Peer, life.peer),
            // Another one in each life.
            pid: 100 + (life.seed % 30_000) as u32,
            version: "0.1.0".into(),
            level: if is_older { self.older_level } else { LEVEL },
        };
        let founds = life.index == 0 && life.boot == Boot(1) && !self.founded;
        self.founded |= founds;
        let node = Node::new(node::Birth {
            cluster: "sim".into(),
            card: card.clone(),
            seeds: self.seeds.iter().copied().filter(|addr| *addr != life.peer).collect(),
            seed: life.seed,
            settings: self.settings.clone(),
            overflow: false,
            room: 64,
            builtins: &[],
            linear_log: self.linear_log,
            found: founds.then(|| self.first_records(first)),
        });
        let node = if self.bug == Some(plays::Bug::Node(Bug::Believes)) { node.believing() } else { node };
        let node = if self.bug == Some(plays::Bug::Node(Bug::Welcomes)) { node.welcoming() } else { node };
        let planted = self.bug.map(|bug| bug.plant(Rng::new(life.seed ^ 1)));
        Birth { machine: Shipped { node, planted }, card: card.encode() }
    }
}

/// The node. Without a planted bug every event and effect passes as it is.
pub struct Shipped {
    node: Node,
    planted: Option<Box<dyn Spoils>>,
}

impl Machine for Shipped {
    type Ask = Ask;
    type Answer = Answer;
    type View = View;

    fn handle(&mut self, now: Now, event: Event<Ask>, out: &mut Out) {
        let Some(planted) = &mut self.planted else { return self.node.handle(now, event, out) };
        planted.turn(now.mono);
        let Some(event) = planted.event(event, out) else { return };
        let first = out.len();
        self.node.handle(now, event, out);
        let effects: Vec<_> = out.drain(first..).collect();
        effects.into_iter().for_each(|effect| planted.effect(effect, out));
    }

    fn wake_at(&self) -> Option<Time> {
        let spoilt = self.planted.as_ref().and_then(|planted| planted.wake_at());
        spoilt.or_else(|| self.node.wake_at())
    }
}

/// What does it in one life of a node.
pub fn plant(bug: Bug, rng: Rng) -> Box<dyn Spoils> {
    Box::new(Planted { bug, rng, born: None, now: Time::ZERO })
}

struct Planted {
    bug: Bug,
    rng: Rng,
    born: Option<Time>,
    now: Time,
}

impl Spoils for Planted {
    fn turn(&mut self, now: Time) {
        self.now = now;
        self.born.get_or_insert(now);
    }

    fn wake_at(&self) -> Option<Time> {
        (self.bug == Bug::Spins).then_some(self.now)
    }

    fn event(&mut self, event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        match &event {
            Event::Ask { id, ask: Ask::Apply { .. }, .. } if self.bug == Bug::FalseApply && self.rng.chance(0.5) => {
                let applied = Applied { changes: vec!["~ nothing".into()], version: 1_000_000 };
                out.push(Effect::Answer { id: *id, answer: Answer::Applied(Outcome::Done(applied)) });
                None
            }
            _ => Some(event),
        }
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        match (self.bug, effect) {
            (Bug::Mute, Effect::Answer { .. }) if self.rng.chance(0.02) => (),
            (Bug::NeverDials, Effect::Dial { .. })
                if self.now.since(self.born.unwrap_or_default()) > Span::secs(10) => {}
            (Bug::Twins, Effect::Spawn { proc, spec }) => {
                out.push(Effect::Spawn { proc: ProcId(proc.0 | 1 << 40), spec: spec.clone() });
                out.push(Effect::Spawn { proc, spec });
            }
            (_, effect) => out.push(effect),
        }
    }
}
