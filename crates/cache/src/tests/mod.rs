//! Several nodes and the frames between them, on a clock that the tests move.

mod cluster;
mod purges;
mod ring;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{AskId, Boot, Frame, GroupId, NodeId, Now, Outcome, PackSaid, PackWant, Span, Time};
use bytes::Bytes;
use class::{Class as _, CookieSecret, Declared, Space};

use crate::{Act, Cache, Input, LEVEL_FETCH, Mark, Near, Op, Output, Reply, Spec, What};

/// Nodes 1 to n; all of them vote.
struct Bench {
    now: Time,
    nodes: BTreeMap<u64, Cache>,
    boots: BTreeMap<u64, u64>,
    voters: u64,
    /// On their way.
    frames: VecDeque<(u64, u64, Frame)>,
    /// Take nothing for now; what comes for them waits.
    hung: BTreeSet<u64>,
    /// Nothing passes between these two.
    cut: BTreeSet<(u64, u64)>,
    asks: u64,
    answers: BTreeMap<u64, Outcome<Reply>>,
    /// What is known beside each node's machine.
    near: BTreeMap<u64, Near>,
    /// When each was given.
    answered: BTreeMap<u64, Time>,
    spec: Spec,
    frames_sent: u64,
    /// Packs on each node's disk, and what disks have to say.
    disks: BTreeMap<(u64, u64), Vec<u8>>,
    said: VecDeque<(u64, GroupId, PackSaid)>,
    group: Option<GroupId>,
    /// Disks say nothing for now.
    are_disks_slow: bool,
    /// Each so many reads give bytes of which one is another.
    rots: Option<u64>,
    reads: u64,
}

impl Bench {
    fn new(n: u64) -> Self {
        Self::of(n, Spec::default())
    }

    fn of(n: u64, spec: Spec) -> Self {
        let mut bench = Self {
            now: Time(1_000_000),
            nodes: BTreeMap::new(),
            boots: BTreeMap::new(),
            voters: n,
            frames: VecDeque::new(),
            hung: BTreeSet::new(),
            cut: BTreeSet::new(),
            asks: 0,
            answers: BTreeMap::new(),
            near: BTreeMap::new(),
            answered: BTreeMap::new(),
            spec,
            frames_sent: 0,
            disks: BTreeMap::new(),
            said: VecDeque::new(),
            group: None,
            are_disks_slow: false,
            rots: None,
            reads: 0,
        };
        (1..=n).for_each(|node| bench.start(node));
        bench.pass(Span::secs(4));
        bench
    }

    /// A new life of this node, which all that live hear of.
    fn start(&mut self, node: u64) {
        let boot = self.boots.entry(node).or_insert(0);
        *boot += 1;
        let near = Near::default();
        let mut cache = Cache::new(NodeId(node), Boot(*boot), near.clone());
        let boot = *boot;
        self.near.insert(node, near);
        let space = Space { id: 7, spec: self.spec.clone(), secret: CookieSecret::new(7, [1; 32]) };
        let spaces = BTreeMap::from([("pages".to_owned(), space)]);
        let declared = Declared {
            version: 1,
            level: LEVEL_FETCH,
            spaces,
            records: BTreeMap::new(),
            unread: 0,
            nodes: Default::default(),
            numbers: Default::default(),
        };
        let mut out = Vec::new();
        let there =
            self.disks.iter().filter(|((of, _), _)| *of == node).map(|((_, n), bytes)| (*n, bytes.len() as u64));
        let there = self.group.map(|group| (group, there.collect())).into_iter().collect();
        cache.handle(self.at(), Input::Packs(there), &mut out);
        cache.handle(self.at(), Input::Declared(declared), &mut out);
        cache.handle(self.at(), Input::Voters((1..=self.voters).map(NodeId).collect()), &mut out);
        self.nodes.insert(node, cache);
        self.take(node, out);
        let others: Vec<u64> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            self.give(other, Input::Birth { peer: NodeId(node), boot: Boot(boot) });
            self.give(node, Input::Birth { peer: NodeId(other), boot: Boot(self.boots[&other]) });
        }
    }

    /// A segment is written or read at once, and said with what is next delivered.
    fn disk(&mut self, node: u64, group: GroupId, want: PackWant) {
        self.group = Some(group);
        match want {
            PackWant::Write { pack, parts, .. } => {
                assert!(self.disks.insert((node, pack), parts.concat()).is_none(), "{pack} is written twice");
                self.said.push_back((node, group, PackSaid::Written { pack }));
            }
            PackWant::Read { number, pack, from, len } => {
                self.reads += 1;
                let rots = self.rots.is_some_and(|each| self.reads.is_multiple_of(each));
                let bytes = self.disks.get(&(node, pack)).map(|bytes| {
                    let mut bytes = bytes[from as usize..][..len as usize].to_vec();
                    if rots {
                        *bytes.last_mut().unwrap() ^= 1;
                    }
                    Bytes::from(bytes)
                });
                self.said.push_back((node, group, PackSaid::Read { number, bytes }));
            }
            PackWant::Drop { pack } => assert!(self.disks.remove(&(node, pack)).is_some(), "there is no {pack}"),
        }
    }

    fn kill(&mut self, node: u64) {
        self.said.retain(|(of, ..)| *of != node);
        self.nodes.remove(&node);
        self.hung.remove(&node);
        self.frames.retain(|(_, to, _)| *to != node);
        self.held_dead(node);
    }

    /// The others think that it is dead.
    fn held_dead(&mut self, node: u64) {
        let others: Vec<u64> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        others.into_iter().for_each(|other| self.give(other, Input::Death { peer: NodeId(node) }));
    }

    fn held_live(&mut self, node: u64) {
        let others: Vec<u64> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        let boot = Boot(self.boots[&node]);
        others.into_iter().for_each(|other| self.give(other, Input::Birth { peer: NodeId(node), boot }));
    }

    fn at(&self) -> Now {
        Now { mono: self.now, wall_ms: self.now.0 / 1000 }
    }

    fn give(&mut self, node: u64, input: Input) {
        let now = self.at();
        let Some(cache) = self.nodes.get_mut(&node) else { return };
        let mut out = Vec::new();
        cache.handle(now, input, &mut out);
        self.take(node, out);
    }

    fn take(&mut self, node: u64, out: Vec<Output>) {
        for want in out {
            match want {
                Output::Send { to, frame } => {
                    self.frames_sent += 1;
                    self.frames.push_back((node, to.0, frame));
                }
                Output::Answer { id, answer } => {
                    self.answered.insert(id.0, self.now);
                    assert!(self.answers.insert(id.0, answer).is_none(), "{id} was answered twice");
                }
                Output::Pack { group, want } => self.disk(node, group, want),
                Output::Bad { from, why } => panic!("node {node} says of {from}: {why}"),
                _ => (),
            }
        }
    }

    fn is_cut(&self, a: u64, b: u64) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Delivers what is on its way, but to who is hung.
    fn deliver(&mut self) {
        self.deliver_frames();
        let mut waits = VecDeque::new();
        while !self.are_disks_slow
            && let Some((node, group, said)) = self.said.pop_front()
        {
            if self.hung.contains(&node) {
                waits.push_back((node, group, said));
                continue;
            }
            self.give(node, Input::Pack { group, said });
            self.deliver_frames();
        }
        self.said.extend(waits);
    }

    fn deliver_frames(&mut self) {
        let mut waits = VecDeque::new();
        while let Some((from, to, frame)) = self.frames.pop_front() {
            if self.is_cut(from, to) {
                continue;
            }
            if self.hung.contains(&to) {
                waits.push_back((from, to, frame));
                continue;
            }
            self.give(to, Input::Frame { from: NodeId(from), frame });
        }
        self.frames = waits;
    }

    fn step(&mut self) {
        self.deliver();
        self.now = self.now + Span::millis(5);
        let due = |(node, cache): (&u64, &Cache)| {
            (!self.hung.contains(node) && cache.wake_at().is_some_and(|at| at <= self.now)).then_some(*node)
        };
        let due: Vec<u64> = self.nodes.iter().filter_map(due).collect();
        due.into_iter().for_each(|node| self.give(node, Input::Wake));
        self.deliver();
    }

    fn pass(&mut self, time: Span) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    fn begin(&mut self, node: u64, key: &str, act: Act) -> u64 {
        self.asks += 1;
        let id = self.asks;
        let key = Bytes::copy_from_slice(key.as_bytes());
        let op = Op::new("pages".into(), key, act);
        self.give(node, Input::Ask { id: AskId(id), budget: Span::secs(3), op });
        id
    }

    /// Asks, and lets time pass until it is answered.
    fn ask(&mut self, node: u64, key: &str, act: Act) -> Outcome<Reply> {
        let id = self.begin(node, key, act);
        self.deliver();
        while !self.answers.contains_key(&id) {
            self.step();
        }
        self.answers.remove(&id).unwrap()
    }

    fn get(&mut self, node: u64, key: &str) -> Option<String> {
        match self.ask(node, key, Act::Get) {
            Outcome::Done(Reply::Value { value, .. }) => Some(String::from_utf8(value.to_vec()).unwrap()),
            Outcome::Done(Reply::Absent) => None,
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, node: u64, key: &str, value: &str, tags: &[&str]) {
        assert_eq!(self.ask(node, key, put(value, tags)), Outcome::Done(Reply::Stored));
    }

    fn purge(&mut self, node: u64, what: What) -> Outcome<Reply> {
        self.ask(node, "", Act::Purge(what))
    }

    fn figure(&self, node: u64, name: &str) -> u64 {
        self.nodes[&node].shown().find(|(figure, _)| figure.name == name).unwrap().1
    }
}

fn put(value: &str, tags: &[&str]) -> Act {
    let tags = tags.iter().map(|tag| Bytes::copy_from_slice(tag.as_bytes())).collect();
    let value = Bytes::copy_from_slice(value.as_bytes());
    Act::Set { value, kind: Bytes::new(), tags, ttl: None, only_present: false, mark: None }
}
