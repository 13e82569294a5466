//! A few nodes whose frames a test may lose, double and hold back, in a world with one clock.
//!
//! - `stories.rs`, `disks.rs`, `dumps.rs`, `repair.rs`, `lists.rs`, `watch.rs`, `mended.rs`, `stale.rs`: stories. `strangers.rs`: bytes that
//!   nobody made.
//! - `fill.rs`: who has nothing gets all. `loss.rs`: how soon what was lost is there.
//! - `over.rs`: lives that are over. `tally.rs`: what they have counted. `clocks.rs`: clocks that are off.
//! - `pass.rs`: what another node does. `sweep.rs`: removals of much. `compare.rs`: whole states are compared.
//! - `chance.rs`: all of it by chance, beside a dumb model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AskId, Boot, Frame, GroupId, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use class::{Class as _, CookieSecret, Declared, Space as Told};
use proptest::prelude::*;

use crate::context::Context;
use crate::dot::{Dot, Life};
use crate::limits::*;
use crate::space::{Address, Space};
use crate::*;

mod chance;
mod clocks;
mod compare;
mod disks;
mod dumps;
mod fill;
mod held;
mod lists;
mod loss;
mod mended;
mod over;
mod pass;
mod repair;
mod stale;
mod stories;
mod strangers;
mod sweep;
mod tally;
mod watch;

const FLOOR: &str = "floor";
const BUDGET: Span = Span::millis(500);

struct World {
    now: Now,
    nodes: BTreeMap<u64, Soft>,
    boots: BTreeMap<u64, u64>,
    /// On their way: from, to.
    air: Vec<(u64, u64, Frame)>,
    /// Between these nothing goes.
    cut: BTreeSet<(u64, u64)>,
    answers: BTreeMap<u64, Outcome<Reply>>,
    asks: u64,
    /// What nodes have told people.
    warnings: Vec<String>,
    spec: Spec,
    /// Nodes that were let in, whether they live or not.
    let_in: BTreeSet<NodeId>,
    /// How far the wall clocks of some are ahead, milliseconds.
    clocks: BTreeMap<u64, i64>,
    /// What each node has written, by group.
    disks: BTreeMap<u64, BTreeMap<GroupId, Vec<Bytes>>>,
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl World {
    fn new(nodes: u64) -> Self {
        Self::of(nodes, Spec::default())
    }

    fn of(nodes: u64, spec: Spec) -> Self {
        let mut world = Self {
            now: Now { mono: Time(1_000_000), wall_ms: 5_000 },
            nodes: BTreeMap::new(),
            boots: BTreeMap::new(),
            air: Vec::new(),
            cut: BTreeSet::new(),
            answers: BTreeMap::new(),
            asks: 0,
            warnings: Vec::new(),
            spec,
            let_in: (1..=nodes).map(NodeId).collect(),
            clocks: BTreeMap::new(),
            disks: BTreeMap::new(),
        };
        (1..=nodes).for_each(|n| world.born(n, 1));
        world.pass(3_000);
        world
    }

    /// A life begins, and those that are not cut off hear of it.
    fn born(&mut self, n: u64, boot: u64) {
        let others: Vec<(u64, u64)> = self.boots.iter().map(|(n, boot)| (*n, *boot)).collect();
        let mut node = Soft::new(NodeId(n), Boot(boot), Rng::new(n * 1_000 + boot));
        node.start(self.disks.entry(n).or_default().clone(), false);
        self.nodes.insert(n, node);
        self.boots.insert(n, boot);
        for (other, its) in others.into_iter().filter(|(other, _)| *other != n) {
            self.give(n, Input::Birth { peer: NodeId(other), boot: Boot(its) });
            self.give(other, Input::Birth { peer: NodeId(n), boot: Boot(boot) });
        }
        self.declare(n, SLOTS_LEVEL);
    }

    fn declare(&mut self, n: u64, level: u32) {
        let secret = CookieSecret::new(1, [0; 32]);
        let space = Told { id: 7, spec: self.spec.clone(), secret };
        let spaces = BTreeMap::from([(FLOOR.to_owned(), space)]);
        self.give(
            n,
            Input::Declared(Declared {
                version: 1,
                level,
                spaces,
                records: BTreeMap::new(),
                unread: 0,
                nodes: self.let_in.clone(),
                numbers: Default::default(),
            }),
        );
    }

    fn dies(&mut self, n: u64) {
        self.nodes.remove(&n);
        self.boots.remove(&n);
        self.others(n, |_| Input::Death { peer: NodeId(n) });
    }

    fn others(&mut self, n: u64, input: impl Fn(u64) -> Input) {
        for other in self.nodes.keys().copied().filter(|other| *other != n).collect::<Vec<_>>() {
            self.give(other, input(other));
        }
    }

    /// Nothing goes between these; with `deaths` they think each other dead.
    fn cut_off(&mut self, n: u64, deaths: bool) {
        for other in self.boots.keys().copied().filter(|other| *other != n).collect::<Vec<_>>() {
            self.cut.extend([(n, other), (other, n)]);
            if deaths {
                self.give(n, Input::Death { peer: NodeId(other) });
                self.give(other, Input::Death { peer: NodeId(n) });
            }
        }
        self.air.retain(|(from, to, _)| *from != n && *to != n);
    }

    fn heal(&mut self) {
        self.cut.clear();
        let boots = self.boots.clone();
        for (n, boot) in boots {
            self.others(n, |_| Input::Birth { peer: NodeId(n), boot: Boot(boot) });
        }
    }

    fn give(&mut self, n: u64, input: Input) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let mut out = Vec::new();
        let off = self.clocks.get(&n).copied().unwrap_or(0);
        let now = Now { wall_ms: self.now.wall_ms.saturating_add_signed(off), ..self.now };
        node.handle(now, input, &mut out);
        let mut written = Vec::new();
        for output in out {
            match output {
                Output::Send { to, frame } if !self.cut.contains(&(n, to.0)) => self.air.push((n, to.0, frame)),
                Output::Send { .. } => (),
                Output::Answer { id, answer } => {
                    assert!(self.answers.insert(id.0, answer).is_none(), "a question is answered once");
                }
                Output::Append { group, records, ticket, force: false } => {
                    let log = self.disks.entry(n).or_default().entry(group).or_default();
                    log.extend(records.into_iter().map(Bytes::from));
                    written.push(Input::Appended { group, ticket });
                }
                Output::Save { group, parts, ticket } => {
                    self.disks.entry(n).or_default().insert(group, parts.0.collect());
                    written.push(Input::Saved { group, ticket });
                }
                Output::Warn { text } => self.warnings.push(text),
                Output::Note(note) => self.warnings.push(note.text),
                Output::Forget { group } => drop(self.disks.entry(n).or_default().remove(&group)),
                other => panic!("{n} wants {other:?}"),
            }
        }
        written.into_iter().for_each(|input| self.give(n, input));
    }

    /// As `give`, where it is allowed to complain.
    fn give_unheard(&mut self, n: u64, input: Input) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        node.handle(self.now, input, &mut Vec::new());
    }

    /// All nodes end at one moment, and start again from their disks.
    fn all_end(&mut self, boot: u64) {
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        (self.nodes, self.boots, self.air) = Default::default();
        self.cut.clear();
        all.into_iter().for_each(|n| self.born(n, boot));
    }

    fn wake(&mut self) {
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            for _ in 0..20 {
                if self.nodes[&n].wake_at().is_none_or(|at| at > self.now.mono) {
                    break;
                }
                self.give(n, Input::Wake);
            }
            assert!(self.nodes[&n].wake_at().is_none_or(|at| at > self.now.mono), "{n} is never done");
        }
    }

    fn arrives(&mut self, (from, to, frame): (u64, u64, Frame)) {
        if self.nodes.contains_key(&to) && !self.cut.contains(&(from, to)) {
            self.give(to, Input::Frame { from: NodeId(from), frame });
        }
    }

    /// All that is on its way arrives, and what follows from it.
    fn settle(&mut self) {
        self.wake();
        while !self.air.is_empty() {
            let air = std::mem::take(&mut self.air);
            air.into_iter().for_each(|one| self.arrives(one));
            self.wake();
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now = Now { mono: self.now.mono + Span::millis(ms), wall_ms: self.now.wall_ms + ms };
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.advance(10);
            self.settle();
        }
    }

    fn ask(&mut self, n: u64, action: Action) -> u64 {
        self.asks += 1;
        let op = Op::of(Arc::from(FLOOR), action);
        self.give(n, Input::Ask { id: AskId(self.asks), budget: BUDGET, op });
        self.asks
    }

    /// Asked, and answered in time.
    fn done(&mut self, n: u64, action: Action) -> Reply {
        let id = self.ask(n, action);
        self.settle();
        match self.answers.remove(&id) {
            Some(Outcome::Done(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, n: u64, key: &str, value: &str, end: End) {
        assert_eq!(self.done(n, Action::Set { pairs: vec![(bytes(key), bytes(value))], end }), Reply::Done);
    }

    fn get(&mut self, n: u64, key: &str) -> Option<String> {
        let at = vec![(bytes(key), Bytes::new())];
        match self.done(n, Action::Read { kind: Kind::Register, at }) {
            Reply::Values(values) => values[0].as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, n: u64, key: &str, by: i64) -> Reply {
        self.done(n, Action::Add { kind: Kind::Register, key: bytes(key), element: Bytes::new(), by })
    }

    fn number(&mut self, n: u64, key: &str) -> i64 {
        self.get(n, key).map_or(0, |text| text.parse().unwrap())
    }

    fn members(&mut self, n: u64, key: &str) -> Vec<String> {
        match self.done(n, Action::All { kind: Kind::Member, key: bytes(key) }) {
            Reply::Pairs(pairs) => pairs.iter().map(|(m, _)| String::from_utf8(m.to_vec()).unwrap()).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn put_members(&mut self, n: u64, key: &str, members: &[&str]) -> Reply {
        let pairs = members.iter().map(|m| (bytes(m), None)).collect();
        self.done(n, Action::Put { kind: Kind::Member, key: bytes(key), pairs })
    }

    fn space(&self, n: u64) -> &space::Space {
        &self.nodes[&n].spaces[&7].space
    }

    fn figure(&self, n: u64, name: &str) -> u64 {
        self.nodes[&n].shown().find(|(figure, _)| figure.name == name).unwrap().1
    }

    /// Invariants of every node, at any time.
    fn check(&self) {
        for (n, node) in &self.nodes {
            for held in node.spaces.values() {
                let space = &held.space;
                let dots = space.cells.values().flat_map(|cell| cell.dots());
                let comes = |dot| space.coming.as_ref().is_some_and(|start| start.contains(dot));
                let is_seen = |dot| space.context.contains(dot) || comes(dot) || space.is_adopting();
                assert!(dots.into_iter().all(is_seen), "{n}: what is there was seen");
                if held.has_come() {
                    for range in space.context.minus(&space.floor) {
                        let of = Dot { life: range.life, seq: range.first }..=Dot { life: range.life, seq: range.last };
                        let known = space.index.range(of).count() as u64;
                        assert_eq!(known, range.last - range.first + 1, "{n}: each update above the floor is found");
                    }
                }
                assert!(space.cells.values().all(|cell| !cell.is_empty()), "{n}: nothing is kept for nothing");
                let keys: BTreeSet<&Bytes> =
                    space.cells.keys().map(|at| &at.key).filter(|key| space.has(key)).collect();
                assert_eq!(space.keys(), keys.len() as u64, "{n}: keys are counted");
            }
        }
    }

    /// All nodes have the same.
    fn are_equal(&self) {
        let (first, others) = self.nodes.split_first_key_value_();
        for n in others {
            assert_eq!(self.space(n).context, self.space(first).context, "{n} has seen what {first} has");
            let plain = |n: u64| -> BTreeMap<Address, cell::Cell> {
                let mut cells: BTreeMap<_, _> =
                    self.space(n).cells.iter().map(|(at, cell)| (at.clone(), cell.clone())).collect();
                cells.values_mut().flat_map(|cell| &mut cell.siblings).for_each(|s| s.ends = None);
                cells
            };
            let (mut mine, mut theirs) = (plain(n), plain(first));
            // One may have added up what the other has not yet.
            for (at, cell) in &mut mine {
                let Some(other) = theirs.get_mut(at) else { continue };
                other.slots = crate::tally::meet(&mut cell.slots, &other.slots).into_owned();
            }
            assert_eq!(mine, theirs, "{n} has what {first} has");
        }
    }
}

trait First {
    fn split_first_key_value_(&self) -> (u64, Vec<u64>);
}

impl First for BTreeMap<u64, Soft> {
    fn split_first_key_value_(&self) -> (u64, Vec<u64>) {
        let mut all = self.keys().copied();
        (all.next().unwrap(), all.collect())
    }
}
