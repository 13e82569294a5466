//! Stories of a few nodes whose frames the test may lose, double and hold back; and chance, beside a dumb model.

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

mod lists;
mod repair;
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
    spec: Spec,
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
            spec,
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
        self.declare(n, LIST_LEVEL);
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
                nodes: Default::default(),
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
        node.handle(self.now, input, &mut out);
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
                Output::Forget { group } => drop(self.disks.entry(n).or_default().remove(&group)),
                other => panic!("{n} wants {other:?}"),
            }
        }
        written.into_iter().for_each(|input| self.give(n, input));
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
                assert!(dots.into_iter().all(|dot| space.context.contains(dot)), "{n}: what is there was seen");
                if held.transfer.is_none() {
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
                let mut cells = self.space(n).cells.clone();
                cells.values_mut().flat_map(|cell| &mut cell.siblings).for_each(|s| s.ends = None);
                cells
            };
            assert_eq!(plain(n), plain(first), "{n} has what {first} has");
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

#[test]
fn what_is_written_at_one_node_is_read_at_all() {
    let mut world = World::new(3);
    world.set(1, "flag", "on", End::Never);
    assert_eq!(world.put_members(2, "online", &["ann", "bob"]), Reply::Int(2));
    assert_eq!(world.add(3, "visits", 5), Reply::Int(5));
    for n in 1..=3 {
        assert_eq!(world.get(n, "flag").as_deref(), Some("on"));
        assert_eq!(world.members(n, "online"), ["ann", "bob"]);
        assert_eq!(world.get(n, "visits").as_deref(), Some("5"));
    }
    world.check();
    world.are_equal();
}

#[test]
fn an_update_is_answered_when_another_node_has_it() {
    let mut world = World::new(3);
    let set = || Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never };
    let id = world.ask(1, set());
    assert!(!world.answers.contains_key(&id), "nobody has it yet");
    // One of the two is enough.
    world.wake();
    world.air.retain(|(_, to, _)| *to == 2);
    world.settle();
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
    // None: it is unknown when its time is over, and spreads all the same.
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("late"), bytes("v"))], end: End::Never });
    world.cut_off(1, false);
    world.pass(600);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Unknown(_))));
    world.heal();
    world.pass(500);
    assert_eq!(world.get(3, "late").as_deref(), Some("v"));
    // Nobody is left: one copy is all there can be.
    let id = world.ask(1, set());
    world.air.clear();
    world.cut_off(1, true);
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
    world.set(1, "k", "alone", End::Never);
    assert!(world.figure(1, "soft.alone") >= 2);
}

#[test]
fn with_one_copy_nobody_is_waited_for() {
    let mut world = World::of(3, Spec { copies: 1, ..Spec::default() });
    let id = world.ask(1, Action::Remove { keys: vec![bytes("k")] });
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Int(0))), "what changes nothing waits for nobody");
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never });
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
}

#[test]
fn what_is_lost_on_its_way_is_repaired() {
    let mut world = World::of(3, Spec { copies: 1, ..Spec::default() });
    world.set(2, "k", "w", End::Never);
    // The newest supersedes one that a node never gets.
    for value in ["z", "y"] {
        world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes(value))], end: End::Never });
        world.wake();
        world.air.clear();
    }
    world.ask(1, Action::Put { kind: Kind::Member, key: bytes("s"), pairs: vec![(bytes("a"), None)] });
    world.wake();
    world.air.retain(|(_, to, _)| *to == 2);
    world.pass(500);
    world.check();
    world.are_equal();
    assert_eq!(world.get(3, "k").as_deref(), Some("y"));
    assert_eq!(world.members(3, "s"), ["a"]);
    assert!(world.figure(3, "soft.repaired") > 0);
}

#[test]
fn both_sides_of_a_cut_keep_what_they_did() {
    let mut world = World::new(3);
    world.put_members(1, "s", &["old", "gone"]);
    world.add(1, "n", 10);
    world.cut_off(3, true);
    world.put_members(3, "s", &["three"]);
    world.add(3, "n", 5);
    world.done(1, Action::Take { kind: Kind::Member, key: bytes("s"), elements: vec![bytes("gone")] });
    world.put_members(1, "s", &["one"]);
    // A reset here takes what was seen here.
    world.set(2, "n", "100", End::Never);
    world.add(2, "n", 1);
    assert_eq!(world.get(3, "n").as_deref(), Some("15"));
    world.heal();
    world.pass(500);
    world.check();
    world.are_equal();
    assert_eq!(world.members(1, "s"), ["old", "one", "three"]);
    assert_eq!(world.get(1, "n").as_deref(), Some("106"), "what was counted meanwhile survives the reset");
}

#[test]
fn a_node_that_starts_gets_all_before_it_serves() {
    // It has nothing of its own.
    let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
    for n in 0..40 {
        world.set(1, &format!("k{n}"), &"v".repeat(20_000), End::Never);
    }
    world.done(1, Action::Remove { keys: vec![bytes("k7")] });
    world.pass(3_000);
    assert_eq!(world.figure(1, "soft.index"), 0, "all have all: nothing is remembered");
    world.dies(3);
    world.set(2, "k8", "new", End::Never);
    world.born(3, 2);
    let id = world.ask(3, Action::Count);
    assert!(!world.answers.contains_key(&id), "its emptiness is not read as truth");
    world.settle();
    world.pass(200);
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Int(39))));
    assert_eq!(world.get(3, "k8").as_deref(), Some("new"));
    assert_eq!(world.get(3, "k7"), None);
    assert_eq!(world.figure(3, "soft.transfers"), 1);
    world.check();
    world.are_equal();
    // What it counted in its former life stays.
    world.add(3, "n", 1);
    world.dies(3);
    world.born(3, 3);
    world.pass(300);
    world.add(3, "n", 1);
    assert_eq!(world.get(1, "n").as_deref(), Some("2"));
}

#[test]
fn who_was_away_for_long_gets_all_and_gives_what_it_alone_has() {
    let mut world = World::new(3);
    world.put_members(1, "s", &["a", "b"]);
    world.cut_off(3, true);
    world.put_members(3, "s", &["three"]);
    world.done(1, Action::Take { kind: Kind::Member, key: bytes("s"), elements: vec![bytes("a")] });
    world.advance(DEAD_COUNTS.as_millis() + 1);
    world.pass(2_000);
    assert_eq!(world.figure(1, "soft.index"), 0, "it is not waited for any longer");
    world.heal();
    world.pass(1_000);
    world.check();
    world.are_equal();
    assert_eq!(world.members(2, "s"), ["b", "three"]);
    assert!(world.figure(3, "soft.transfers") > 0);
}

#[test]
fn keys_end_everywhere_and_a_refresh_is_seen() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::After(Span::secs(2)));
    world.set(2, "stays", "v", End::After(Span::secs(2)));
    assert_eq!(world.done(3, Action::End { key: bytes("stays"), end: Some(Span::secs(9)) }), Reply::Int(1));
    let left = world.done(2, Action::Left { key: bytes("k") });
    assert_eq!(left, Reply::Left(Some(Some(Span::secs(2)))));
    world.pass(2_100);
    for n in 1..=3 {
        assert_eq!(world.get(n, "k"), None);
        assert_eq!(world.get(n, "stays").as_deref(), Some("v"));
        assert_eq!(world.done(n, Action::Count), Reply::Int(1));
    }
    assert_eq!(world.done(1, Action::End { key: bytes("stays"), end: None }), Reply::Int(1));
    // Who gave the end is dead: another one removes the key.
    world.set(1, "k", "v", End::After(Span::secs(1)));
    world.dies(1);
    world.pass(2_500);
    assert_eq!(world.get(2, "k"), None);
    assert_eq!((world.space(2).keys(), world.space(3).keys()), (1, 1));
    world.pass(10_000);
    assert_eq!(world.get(2, "stays").as_deref(), Some("v"), "it has no end any more");
    // What is written anew has no end of before.
    world.set(2, "k", "v", End::After(Span::secs(1)));
    world.cut_off(3, true);
    world.advance(1_500);
    world.add(3, "k", 2);
    assert_eq!(world.get(3, "k").as_deref(), Some("2"));
    assert_eq!(world.done(3, Action::Left { key: bytes("k") }), Reply::Left(Some(None)));
    world.check();
}

#[test]
fn numbers_and_kinds_are_kept_apart() {
    let mut world = World::new(2);
    world.set(1, "text", "abc", End::Never);
    assert_eq!(world.add(2, "text", 1), Reply::NoNumber);
    world.set(1, "n", &i64::MAX.to_string(), End::Never);
    assert_eq!(world.add(2, "n", 1), Reply::Overflow);
    assert_eq!(world.add(2, "n", -1), Reply::Int(i64::MAX - 1));
    assert_eq!(world.add(2, "zero", 0), Reply::Int(0));
    assert_eq!(world.get(1, "zero").as_deref(), Some("0"));
    assert_eq!(world.put_members(1, "n", &["m"]), Reply::WrongKind);
    world.put_members(1, "s", &["m"]);
    let get = Action::Read { kind: Kind::Register, at: vec![(bytes("s"), Bytes::new())] };
    assert_eq!(world.done(2, get), Reply::WrongKind);
    assert_eq!(world.done(2, Action::Kind { key: bytes("s") }), Reply::Kind(Some(Kind::Member)));
    // SET replaces whatever is there.
    world.set(2, "s", "text", End::Never);
    assert_eq!(world.done(1, Action::Kind { key: bytes("s") }), Reply::Kind(Some(Kind::Register)));
    let mut keys = BTreeSet::new();
    let mut cursor = 0;
    loop {
        let Reply::Page { cursor: next, keys: some } = world.done(1, Action::Scan { cursor, count: 1 }) else {
            panic!()
        };
        keys.extend(some.into_iter().map(|(key, _)| key));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(keys, ["text", "n", "zero", "s"].map(bytes).into());
}

#[test]
fn what_was_in_the_last_checkpoint_is_there_after_all_have_ended_at_once() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::Never);
    world.set(2, "gone", "v", End::Never);
    world.set(2, "ends", "v", End::After(Span::secs(60)));
    world.add(3, "n", 5);
    world.pass(11_000);
    world.done(1, Action::Remove { keys: vec![bytes("gone")] });
    world.add(1, "n", 2);
    // What has changed is appended to what there was.
    world.pass(11_000);
    world.add(2, "n", 100);
    world.all_end(2);
    world.now.wall_ms += 10_000;
    world.pass(3_000);
    for n in 1..=3 {
        assert_eq!(world.get(n, "k").as_deref(), Some("v"));
        assert_eq!(world.get(n, "gone"), None, "it was removed");
        assert_eq!(world.get(n, "n").as_deref(), Some("7"), "the last is not in a checkpoint");
    }
    // A new life counts in a slot of its own, and an end is where it was, whether or not anybody ran.
    world.add(2, "n", 1);
    world.pass(1_000);
    assert_eq!(world.get(1, "n").as_deref(), Some("8"));
    let Reply::Left(Some(Some(left))) = world.done(1, Action::Left { key: bytes("ends") }) else { panic!() };
    assert!((15_000..=35_000).contains(&left.as_millis()), "{left:?}");
    world.check();
    world.are_equal();
    // No namespace, no checkpoint.
    let off = Spec { checkpoint_ms: 0, ..Spec::default() };
    world.spec = off;
    (1..=3).for_each(|n| world.declare(n, LEVEL));
    assert!(world.disks.values().all(BTreeMap::is_empty));
    world.all_end(3);
    world.pass(3_000);
    assert_eq!(world.get(1, "k"), None);
}

#[test]
fn a_torn_checkpoint_is_the_one_before() {
    let mut world = World::of(1, Spec { checkpoint_ms: 1_000, ..Spec::default() });
    let large = "v".repeat(200_000);
    let keys: Vec<String> = (0..4).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| world.set(1, key, "old", End::Never));
    world.pass(1_500);
    let before = world.disks[&1].values().next().unwrap().len();
    keys.iter().for_each(|key| world.set(1, key, &large, End::Never));
    world.pass(1_500);
    let log = world.disks.get_mut(&1).unwrap().values_mut().next().unwrap();
    assert!(log.len() > before + 1, "it takes several records");
    log.pop();
    world.all_end(2);
    world.pass(3_000);
    assert!(keys.iter().all(|key| world.get(1, key).as_deref() == Some("old")));
    // What is written behind the torn end is read again.
    world.set(1, "k0", "new", End::Never);
    world.pass(1_500);
    world.all_end(3);
    world.pass(3_000);
    assert_eq!(world.get(1, "k0").as_deref(), Some("new"));
    assert_eq!(world.get(1, "k1").as_deref(), Some("old"));
}

#[test]
fn a_removal_is_remembered_until_all_have_it_in_their_checkpoints() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::Never);
    world.done(1, Action::Remove { keys: vec![bytes("k")] });
    world.pass(5_000);
    assert!((1..=3).all(|n| world.space(n).index.len() == 2), "no checkpoint has it");
    world.pass(15_000);
    assert!((1..=3).all(|n| world.space(n).index.is_empty()));
}

#[test]
fn what_is_too_large_or_too_much_is_refused() {
    let mut world = World::of(1, Spec { size_max: 1_000, ..Spec::default() });
    let refused = |world: &mut World, action| {
        let id = world.ask(1, action);
        match world.answers.remove(&id) {
            Some(Outcome::Refused(refused)) => refused.why,
            other => panic!("{other:?}"),
        }
    };
    let set = |key: Vec<u8>, value: Vec<u8>| Action::Set { pairs: vec![(key.into(), value.into())], end: End::Never };
    assert!(refused(&mut world, set(vec![b'k'; NAME_BYTES_MAX + 1], vec![])).contains("512 bytes"));
    assert!(refused(&mut world, set(vec![b'k'], vec![0; VALUE_BYTES_MAX + 1])).contains("1048576 bytes"));
    world.set(1, "k", &"v".repeat(900), End::Never);
    assert!(refused(&mut world, set(vec![b'l'], vec![])).starts_with(FULL));
    world.done(1, Action::Remove { keys: vec![bytes("k")] });
    world.set(1, "l", "", End::Never);
    let op = Op::of(Arc::from("other"), Action::Count);
    world.give(1, Input::Ask { id: AskId(99), budget: BUDGET, op });
    assert!(matches!(world.answers.remove(&99), Some(Outcome::Refused(_))));
}

#[test]
fn one_operation_may_make_more_than_a_frame_takes() {
    let mut world = World::new(2);
    let value = Bytes::from(vec![b'v'; 900_000]);
    let pairs = (0..24).map(|n| (bytes(&format!("k{n}")), value.clone())).collect();
    let id = world.ask(1, Action::Set { pairs, end: End::Never });
    world.wake();
    let largest = world.air.iter().map(|(.., frame)| frame.wire_len()).max().unwrap();
    assert!(largest < base::limits::FRAME_BYTES_MAX, "{largest}");
    // Its window is smaller: the rest comes by repair.
    world.pass(2_000);
    assert!(world.answers.contains_key(&id));
    assert_eq!(world.done(2, Action::Count), Reply::Int(24));
    world.check();
    world.are_equal();
}

#[test]
fn a_cluster_of_older_programs_has_no_such_namespace() {
    let mut world = World::new(1);
    world.declare(1, LEVEL - 1);
    let id = world.ask(1, Action::Count);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(_))));
}

proptest! {
    #[test]
    fn no_bytes_of_a_peer_are_believed_that_cannot_be(
        kind in 0..7usize,
        head in prop::collection::vec(any::<u8>(), 0..60),
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let kinds = [
            machine::kind::DIGEST, machine::kind::HAVE, machine::kind::ACK, machine::kind::PAGE_ASK,
            machine::kind::PUSH, machine::kind::CELLS, machine::kind::PAGE,
        ];
        let mut world = World::of(2, Spec { copies: 1, ..Spec::default() });
        let give = |world: &mut World, frame: Frame| {
            let mut out = Vec::new();
            world.nodes.get_mut(&1).unwrap().handle(world.now, Input::Frame { from: NodeId(2), frame }, &mut out);
        };
        give(&mut world, Frame::new(kinds[kind], head));
        // Real frames, damaged.
        world.ask(2, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::After(Span::secs(5)) });
        world.ask(2, Action::Add { kind: Kind::Field, key: bytes("h"), element: bytes("f"), by: 3 });
        world.wake();
        world.dies(2);
        world.air.retain(|(_, to, _)| *to == 1);
        for (_, _, frame) in std::mem::take(&mut world.air) {
            let mut head = frame.head.to_vec();
            changed.iter().for_each(|(at, byte)| if !head.is_empty() { *at.get_mut(&mut head) = *byte });
            give(&mut world, Frame::new(frame.kind, head));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_disk_make_it_panic(
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
        more in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..3),
    ) {
        let mut world = World::of(1, Spec { checkpoint_ms: 1_000, ..Spec::default() });
        for round in 0..3 {
            world.set(1, "k", &round.to_string(), End::After(Span::secs(50)));
            world.add(1, "n", 1);
            world.pass(1_500);
        }
        let mut log = world.disks[&1].values().next().unwrap().clone();
        for (at, within, byte) in changed {
            let record = at.get_mut(&mut log);
            let mut bytes = record.to_vec();
            *within.get_mut(&mut bytes) = byte;
            *record = bytes.into();
        }
        log.extend(more.into_iter().map(Bytes::from));
        let life = Life { node: NodeId(9), boot: Boot(1) };
        let _ = checkpoint::restore(world.now, &mut Space::new(life), log);
    }
}

// Chance beside a model.

#[derive(Clone, Debug)]
enum Step {
    Put {
        at: u64,
        key: u8,
        set: bool,
    },
    Take {
        at: u64,
        key: u8,
        set: bool,
    },
    Count {
        at: u64,
        key: u8,
        by: i64,
    },
    /// Frames arrive out of order, some twice, some never.
    Air {
        salt: u64,
        loss: u8,
    },
    Pass {
        ms: u64,
    },
    Cut {
        at: u64,
        deaths: bool,
    },
    Heal,
    /// All is well for a while; then a node is killed.
    Kill {
        at: u64,
    },
    /// A node is killed at any moment, with what it alone had.
    Die {
        at: u64,
    },
    Reborn,
    /// All end at once, and start from what they have written; of one disk the end is missing.
    AllEnd {
        at: u64,
        missing: u8,
    },
    /// It is written sooner than it would be.
    Keep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Put,
    Remove,
    Count(i64),
}

struct Update {
    dot: Dot,
    at: Address,
    what: What,
    saw: Context,
    ask: u64,
}

struct Run {
    world: World,
    updates: Vec<Update>,
    acknowledged: BTreeSet<u64>,
    dead: Option<u64>,
    boot: u64,
}

const NODES: u64 = 3;

impl Run {
    fn step(&mut self, step: &Step) {
        let world = &mut self.world;
        match *step {
            Step::Put { at, key, set } => {
                let (kind, value) = if set { (Kind::Member, None) } else { (Kind::Field, Some(bytes("7"))) };
                self.update(
                    at,
                    What::Put,
                    Address::new(bytes(if set { "set" } else { "map" }), kind, bytes(&key.to_string())),
                    value,
                );
            }
            Step::Take { at, key, set } => {
                let kind = if set { Kind::Member } else { Kind::Field };
                self.update(
                    at,
                    What::Remove,
                    Address::new(bytes(if set { "set" } else { "map" }), kind, bytes(&key.to_string())),
                    None,
                );
            }
            Step::Count { at, key, by } => {
                self.update(
                    at,
                    What::Count(by),
                    Address::new(bytes("map"), Kind::Field, bytes(&key.to_string())),
                    None,
                );
            }
            Step::Air { salt, loss } => {
                world.wake();
                let mut rng = Rng::new(salt);
                let mut air = std::mem::take(&mut world.air);
                rng.shuffle(&mut air);
                for one in air {
                    match rng.below(10) {
                        n if n < u64::from(loss) => (),
                        9 => {
                            world.arrives(one.clone());
                            world.air.push(one);
                        }
                        8 => world.air.push(one),
                        _ => world.arrives(one),
                    }
                }
            }
            Step::Pass { ms } => {
                world.advance(ms);
                world.wake();
            }
            Step::Cut { at, deaths } => {
                if world.nodes.contains_key(&(at % NODES + 1)) {
                    world.cut_off(at % NODES + 1, deaths);
                }
            }
            Step::Heal => world.heal(),
            Step::Kill { at } if self.dead.is_none() => {
                world.heal();
                world.pass(1_500);
                self.heard();
                self.world.dies(at % NODES + 1);
                self.dead = Some(at % NODES + 1);
            }
            Step::Die { at } if self.dead.is_none() => {
                self.heard();
                self.world.dies(at % NODES + 1);
                self.dead = Some(at % NODES + 1);
                // Two had it, and another may have died not long ago.
                self.acknowledged.clear();
            }
            Step::Kill { .. } | Step::Die { .. } => (),
            Step::Keep => world.pass(1_100),
            Step::AllEnd { at, missing } => {
                self.heard();
                let world = &mut self.world;
                let disk = world.disks.entry(at % NODES + 1).or_default();
                disk.values_mut().for_each(|log| log.truncate(log.len().saturating_sub(missing.into())));
                self.boot += 1;
                world.all_end(self.boot);
                world.pass(3_000);
                // What was not in a checkpoint is not promised any more.
                self.acknowledged.clear();
            }
            Step::Reborn => {
                if let Some(dead) = self.dead.take() {
                    self.boot += 1;
                    world.heal();
                    world.born(dead, self.boot);
                    world.pass(200);
                }
            }
        }
        self.heard();
        self.world.check();
    }

    fn update(&mut self, at: u64, what: What, address: Address, value: Option<Bytes>) {
        let n = at % NODES + 1;
        let Some(node) = self.world.nodes.get(&n) else { return };
        if !node.spaces[&7].is_settled() {
            return;
        }
        let (saw, before, alone) = (self.world.space(n).context.clone(), self.world.space(n).seq(), node.seen.alone);
        let (kind, key, element) = (address.kind, address.key.clone(), address.element.clone());
        let ask = self.world.ask(
            n,
            match what {
                What::Put => Action::Put { kind, key, pairs: vec![(element, value)] },
                What::Remove => Action::Take { kind, key, elements: vec![element] },
                What::Count(by) => Action::Add { kind, key, element, by },
            },
        );
        let space = self.world.space(n);
        if space.seq() > before {
            assert_eq!(space.seq(), before + 1);
            let life = Life { node: NodeId(n), boot: Boot(self.world.boots[&n]) };
            self.updates.push(Update { dot: Dot { life, seq: before + 1 }, at: address, what, saw, ask });
        }
        if self.world.nodes[&n].seen.alone > alone {
            // It is at this node alone, and may end with it.
            self.world.answers.remove(&ask);
        }
    }

    fn heard(&mut self) {
        for (id, answer) in std::mem::take(&mut self.world.answers) {
            if matches!(answer, Outcome::Done(_)) {
                self.acknowledged.insert(id);
            }
        }
    }

    /// All nodes run, and have had a while in peace.
    fn end(&mut self) {
        self.step(&Step::Reborn);
        self.world.heal();
        self.world.pass(3_000);
        self.heard();
        self.world.check();
        self.world.are_equal();
        let (cells, seen) = (&self.world.space(1).cells, &self.world.space(1).context);
        for update in self.updates.iter().filter(|u| self.acknowledged.contains(&u.ask)) {
            assert!(seen.contains(update.dot), "{:?} was acknowledged", update.dot);
        }
        let places: BTreeSet<&Address> = self.updates.iter().map(|update| &update.at).collect();
        for at in places {
            let (puts, sum) = self.model(at, seen);
            let cell = cells.get(at).cloned().unwrap_or_default();
            let dots: Vec<Dot> = cell.siblings.iter().map(|s| s.dot).collect();
            assert_eq!((dots, cell.counted()), (puts, sum), "{at:?}");
            // An update that ended with its life is seen by nobody any more; that it was superseded may be known.
            let is_over = |dot: &Dot| self.world.boots[&dot.life.node.0] != dot.life.boot.0 && !seen.contains(*dot);
            assert!(cell.gone.iter().all(is_over), "all is seen that anybody has: {at:?} {cell:?}");
        }
    }

    /// Live writes, and the sum. Of those that ended with a life before anybody heard of them nothing is to be seen.
    fn model(&self, at: &Address, seen: &Context) -> (Vec<Dot>, i128) {
        let of: Vec<&Update> = self.updates.iter().filter(|u| u.at == *at).collect();
        let is_count = |u: &Update| matches!(u.what, What::Count(_));
        // A slot has all that its life has counted since it last began one.
        let same_slot = |a: &Update, b: &Update| {
            let between = |x: &&&Update| x.dot.life == a.dot.life && a.dot.seq < x.dot.seq && x.dot.seq < b.dot.seq;
            let cuts = of.iter().filter(between).any(|x| !is_count(x));
            is_count(a) && is_count(b) && a.dot.life == b.dot.life && a.dot.seq <= b.dot.seq && !cuts
        };
        let known = |context: &Context, u: &Update| {
            context.contains(u.dot) || of.iter().any(|later| same_slot(u, later) && context.contains(later.dot))
        };
        let removes = |later: &&&Update| !is_count(later) && known(seen, later);
        let lives = |u: &&&Update| known(seen, u) && !of.iter().filter(removes).any(|later| known(&later.saw, u));
        let mut puts: Vec<Dot> = of.iter().filter(|u| u.what == What::Put).filter(lives).map(|u| u.dot).collect();
        puts.sort_unstable();
        let count = |u: &&Update| if let What::Count(by) = u.what { i128::from(by) } else { 0 };
        (puts, of.iter().filter(lives).map(count).sum())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (at, key) = (|| 0..NODES, || 0..2u8);
    prop::collection::vec(
        prop_oneof![
            5 => (at(), key(), any::<bool>()).prop_map(|(at, key, set)| Step::Put { at, key, set }),
            3 => (at(), key(), any::<bool>()).prop_map(|(at, key, set)| Step::Take { at, key, set }),
            4 => (at(), key(), prop_oneof![-5..-1i64, 1..9i64]).prop_map(|(at, key, by)| Step::Count { at, key, by }),
            8 => (any::<u64>(), 0..8u8).prop_map(|(salt, loss)| Step::Air { salt, loss }),
            4 => (1..400u64).prop_map(|ms| Step::Pass { ms }),
            1 => (at(), any::<bool>()).prop_map(|(at, deaths)| Step::Cut { at, deaths }),
            1 => Just(Step::Heal),
            1 => at().prop_map(|at| Step::Kill { at }),
            1 => at().prop_map(|at| Step::Die { at }),
            1 => Just(Step::Reborn),
            1 => Just(Step::Keep),
            1 => (at(), 0..4u8).prop_map(|(at, missing)| Step::AllEnd { at, missing }),
        ],
        1..60,
    )
}

proptest! {
    #[test]
    fn after_any_trouble_all_nodes_have_what_the_model_says(steps in steps()) {
        let world = World::of(NODES, Spec { checkpoint_ms: 1_000, ..Spec::default() });
        let mut run = Run { world, updates: Vec::new(), acknowledged: BTreeSet::new(), dead: None, boot: 1 };
        steps.iter().for_each(|step| run.step(step));
        run.end();
    }
}
