//! Stories of a few nodes whose frames the test may lose, double and hold back.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, NodeId, Now, Outcome, Span, Time};
use bytes::Bytes;
use proptest::prelude::*;

use crate::limits::*;
use crate::*;

const ROOMS: &str = "rooms";

#[derive(Clone)]
enum Frame {
    Told(Bytes),
    Messages(Bytes),
}

struct World {
    now: Now,
    nodes: BTreeMap<u64, Channels>,
    boots: BTreeMap<u64, u64>,
    /// On their way: from, to.
    air: Vec<(u64, u64, Frame)>,
    answers: BTreeMap<u64, Outcome<Reply>>,
    heard: BTreeMap<u64, Vec<String>>,
    listens: BTreeMap<u64, u64>,
    asks: u64,
}

impl World {
    fn new(nodes: u64) -> Self {
        let mut world = Self {
            now: Now { mono: Time(1_000_000), wall_ms: 5 },
            nodes: BTreeMap::new(),
            boots: BTreeMap::new(),
            air: Vec::new(),
            answers: BTreeMap::new(),
            heard: BTreeMap::new(),
            listens: BTreeMap::new(),
            asks: 0,
        };
        (1..=nodes).for_each(|n| world.born(n, 1));
        world.settle();
        world
    }

    /// A life begins, and all nodes hear of it.
    fn born(&mut self, n: u64, boot: u64) {
        let others: Vec<(u64, u64)> = self.boots.iter().map(|(n, boot)| (*n, *boot)).collect();
        self.nodes.insert(n, Channels::new(Boot(boot)));
        self.boots.insert(n, boot);
        self.give(n, Input::Level(LEVEL));
        for (other, its) in others.into_iter().filter(|(other, _)| *other != n) {
            self.give(n, Input::Birth { peer: NodeId(other), boot: Boot(its) });
            self.give(other, Input::Birth { peer: NodeId(n), boot: Boot(boot) });
        }
        self.listen(n);
    }

    fn dies(&mut self, n: u64) {
        self.nodes.remove(&n);
        self.boots.remove(&n);
        for other in self.boots.keys().copied().collect::<Vec<_>>() {
            self.give(other, Input::Death { peer: NodeId(n) });
        }
    }

    fn listen(&mut self, n: u64) {
        let ask = self.ask(n, Op::Listen);
        self.listens.insert(ask, n);
    }

    fn give(&mut self, to: u64, input: Input) {
        let mut out = Vec::new();
        let Some(node) = self.nodes.get_mut(&to) else { return };
        node.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Tell { to: other, head } => self.air.push((to, other.0, Frame::Told(head))),
                Output::Send { to: other, head } => self.air.push((to, other.0, Frame::Messages(head))),
                Output::Bad { from } => panic!("{from} said what is nothing"),
                Output::Answer { id, outcome } => match (self.listens.remove(&id.0), outcome) {
                    (Some(n), Outcome::Done(Reply::Heard(messages))) => {
                        let text = |m: &Message| String::from_utf8(m.payload.to_vec()).unwrap();
                        self.heard.entry(n).or_default().extend(messages.iter().map(text));
                        self.listen(n);
                    }
                    (_, outcome) => drop(self.answers.insert(id.0, outcome)),
                },
            }
        }
    }

    fn ask(&mut self, at: u64, op: Op) -> u64 {
        self.asks += 1;
        self.give(at, Input::Ask { id: AskId(self.asks), op });
        self.asks
    }

    fn subscribe(&mut self, at: u64, kind: Kind, name: &str) -> u64 {
        let names = vec![Bytes::copy_from_slice(name.as_bytes())];
        self.ask(at, Op::Subscribe { namespace: ROOMS.into(), kind, names })
    }

    fn unsubscribe(&mut self, at: u64, kind: Kind, name: &str) {
        let names = vec![Bytes::copy_from_slice(name.as_bytes())];
        self.ask(at, Op::Unsubscribe { namespace: ROOMS.into(), kind, names });
    }

    fn publish(&mut self, at: u64, channel: &str, text: &str) -> u64 {
        let (channel, payload) = (Bytes::copy_from_slice(channel.as_bytes()), Bytes::copy_from_slice(text.as_bytes()));
        let ask = self.ask(at, Op::Publish(Message { namespace: ROOMS.into(), shard: false, channel, payload }));
        match self.answers.remove(&ask) {
            Some(Outcome::Done(Reply::Published { receivers })) => receivers,
            other => panic!("{other:?}"),
        }
    }

    fn wake(&mut self) {
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes[&n].wake_at().is_some_and(|at| at <= self.now.mono) {
                self.give(n, Input::Wake);
            }
        }
    }

    fn deliver(&mut self, from: u64, to: u64, frame: Frame) {
        self.give(
            to,
            match frame {
                Frame::Told(head) => Input::Told { from: NodeId(from), head },
                Frame::Messages(head) => Input::Messages { from: NodeId(from), head },
            },
        );
    }

    /// All that is to go goes and arrives, at this moment.
    fn settle(&mut self) {
        self.wake();
        while !self.air.is_empty() {
            for (from, to, frame) in std::mem::take(&mut self.air) {
                self.deliver(from, to, frame);
            }
            self.wake();
        }
    }

    fn wait(&mut self, span: Span) {
        self.now.mono = self.now.mono + span;
        self.wake();
    }

    fn heard(&mut self, at: u64) -> Vec<String> {
        self.heard.remove(&at).unwrap_or_default()
    }

    fn is_done(&self, ask: u64) -> bool {
        matches!(self.answers.get(&ask), Some(Outcome::Done(Reply::Done)))
    }

    fn lost(&self, at: u64) -> u64 {
        self.nodes[&at].figures()[2]
    }
}

#[test]
fn a_message_comes_to_who_listens_at_another_node_and_to_nobody_else() {
    let mut world = World::new(3);
    let ask = world.subscribe(1, Kind::Channel, "a");
    world.subscribe(2, Kind::Pattern, "a*");
    assert!(!world.is_done(ask), "nobody knows of it yet");
    world.settle();
    assert!(world.is_done(ask));
    assert_eq!(world.publish(3, "a", "one"), 2);
    assert_eq!(world.publish(3, "ab", "two"), 1);
    assert_eq!(world.publish(3, "b", "three"), 0);
    world.settle();
    assert_eq!((world.heard(1), world.heard(2)), (vec!["one".to_owned()], vec!["one".to_owned(), "two".to_owned()]));
    world.unsubscribe(1, Kind::Channel, "a");
    world.settle();
    assert_eq!(world.publish(3, "a", "four"), 1);
    world.settle();
    assert_eq!(world.heard(1), [""; 0]);
    assert_eq!((world.lost(1), world.lost(2)), (0, 0));
}

#[test]
fn a_subscription_waits_for_live_nodes_and_not_for_ever() {
    let mut world = World::new(3);
    let ask = world.subscribe(1, Kind::Channel, "a");
    world.wake();
    world.air.retain(|(_, to, _)| *to != 3);
    world.settle();
    assert!(!world.is_done(ask), "node 3 does not know");
    world.wait(AGAIN);
    world.settle();
    assert!(world.is_done(ask), "it is told again");
    let ask = world.subscribe(1, Kind::Channel, "b");
    world.wake();
    world.air.clear();
    world.dies(3);
    world.wait(KNOWN_WITHIN);
    assert!(world.is_done(ask), "whoever does not answer is waited for so long");
    assert_eq!(world.nodes[&1].figures()[4], 1, "and that is counted");
}

/// A publisher that has not been told all sends all: else what is published between the reply and the next word would be missed.
#[test]
fn of_a_node_whose_interest_is_not_known_everything_is_sent() {
    let mut world = World::new(2);
    world.subscribe(1, Kind::Channel, "a");
    world.settle();
    world.dies(2);
    world.born(2, 2);
    assert_eq!(world.publish(2, "a", "early"), 0);
    world.settle();
    assert_eq!(world.heard(1), ["early"]);
    assert_eq!(world.publish(2, "a", "late"), 1, "now it is known");
}

#[test]
fn a_node_that_held_another_dead_is_told_all_again() {
    let mut world = World::new(2);
    for name in ["a", "b"] {
        world.subscribe(1, Kind::Channel, name);
    }
    world.settle();
    // Node 2 alone thinks so; node 1 ends a subscription meanwhile.
    world.give(2, Input::Death { peer: NodeId(1) });
    world.unsubscribe(1, Kind::Channel, "b");
    world.give(2, Input::Birth { peer: NodeId(1), boot: Boot(1) });
    world.settle();
    world.wait(ASK_AGAIN);
    world.settle();
    assert_eq!((world.publish(2, "a", "x"), world.publish(2, "b", "y")), (1, 0));
    world.settle();
    assert_eq!(world.heard(1), ["x"]);
}

#[test]
fn what_is_lost_is_counted_and_nothing_comes_twice_or_behind_what_is_later() {
    let mut world = World::new(2);
    world.subscribe(1, Kind::Channel, "a");
    world.settle();
    let mut frames = Vec::new();
    for text in ["1", "2", "3", "4"] {
        world.publish(2, "a", text);
        world.wake();
        frames.append(&mut world.air);
    }
    for at in [0, 2, 1, 2, 3] {
        let (from, to, frame) = frames[at].clone();
        world.deliver(from, to, frame);
    }
    assert_eq!(world.heard(1), ["1", "3", "4"]);
    assert_eq!(world.lost(1), 1);
}

#[test]
fn one_turn_is_one_batch() {
    let mut world = World::new(2);
    world.subscribe(1, Kind::Channel, "a");
    world.settle();
    (0..100).for_each(|n| _ = world.publish(2, "a", &n.to_string()));
    assert!(world.air.is_empty());
    world.wake();
    assert_eq!(world.air.len(), 1);
}

#[test]
fn a_nodes_own_news_go_to_its_clients_that_listen_and_to_nobody_else() {
    let mut world = World::new(2);
    world.subscribe(1, Kind::Channel, "__members__:shop");
    world.subscribe(1, Kind::Shard, "__members__:mail");
    world.subscribe(2, Kind::Pattern, "__members__:*");
    world.settle();
    let news =
        |channel: &'static str, text: &'static str| Input::News { channel: channel.into(), payload: text.into() };
    world.give(1, news("__members__:shop", "born"));
    world.give(1, news("__members__:mail", "of a shard channel"));
    world.settle();
    assert_eq!(world.heard(1), ["born"]);
    assert_eq!(world.heard(2), [""; 0], "each node tells its own");
    world.give(2, news("__members__:mail", "dead"));
    assert_eq!(world.heard(2), ["dead"]);
}

#[test]
fn before_all_nodes_have_it_channels_are_refused() {
    let mut node = Channels::new(Boot(1));
    let mut out = Vec::new();
    node.handle(Now::default(), Input::Level(LEVEL - 1), &mut out);
    let op = Op::Subscribe { namespace: ROOMS.into(), kind: Kind::Channel, names: vec!["a".into()] };
    node.handle(Now::default(), Input::Ask { id: AskId(1), op }, &mut out);
    assert!(matches!(&out[..], [Output::Answer { outcome: Outcome::Refused(no), .. }] if no.why.contains("level 2")));
}

#[test]
fn of_more_than_are_told_one_by_one_all_is_wanted() {
    let mut world = World::new(2);
    let name = |n: usize| Bytes::from(format!("p{n}"));
    let names: Vec<Bytes> = (0..PATTERNS_TOLD_MAX + 2).map(name).collect();
    world.ask(1, Op::Subscribe { namespace: ROOMS.into(), kind: Kind::Pattern, names: names.clone() });
    world.settle();
    world.publish(2, "else", "x");
    world.settle();
    assert_eq!(world.heard(1), ["x"]);
    world.ask(1, Op::Unsubscribe { namespace: ROOMS.into(), kind: Kind::Pattern, names });
    world.settle();
    world.publish(2, "else", "y");
    world.settle();
    assert_eq!(world.heard(1), [""; 0]);
    assert_eq!(world.nodes[&1].figures()[1], 0, "nothing is kept of what ended");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let mut node = Channels::new(Boot(1));
        let mut out = Vec::new();
        node.handle(Now::default(), Input::Birth { peer: NodeId(2), boot: Boot(0) }, &mut out);
        let head = Bytes::from(bytes);
        node.handle(Now::default(), Input::Told { from: NodeId(2), head: head.clone() }, &mut out);
        node.handle(Now::default(), Input::Messages { from: NodeId(2), head }, &mut out);
        node.handle(Now::default(), Input::Wake, &mut out);
    }

    /// Frames in any order, some lost, some twice, and lives that end: who has the reply misses nothing whose frame
    /// arrives; at the end all know who listens.
    #[test]
    fn after_the_reply_nothing_is_missed(steps in prop::collection::vec((0u8..8, 1u64..4, 0usize..4, 0u8..4), 1..80)) {
        let mut world = World::new(3);
        let names = ["a", "b", "c", "d"];
        let mut here: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut asks: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for (what, at, name, fate) in steps {
            match what {
                0 | 1 if here.insert((at, name)) => {
                    asks.insert((at, name), world.subscribe(at, Kind::Channel, names[name]));
                }
                2 if here.remove(&(at, name)) => world.unsubscribe(at, Kind::Channel, names[name]),
                3 if fate == 0 => {
                    here.retain(|(node, _)| *node != at);
                    let boot = world.boots[&at] + 1;
                    world.dies(at);
                    world.born(at, boot);
                }
                4 => world.wait(AGAIN),
                5 => {
                    world.publish(at, names[name], "x");
                    world.wake();
                    let (messages, told) =
                        std::mem::take(&mut world.air).into_iter().partition(|(.., f)| matches!(f, Frame::Messages(_)));
                    world.air = told;
                    let messages: Vec<_> = messages;
                    messages.into_iter().for_each(|(from, to, frame)| world.deliver(from, to, frame));
                    for n in [1, 2, 3] {
                        let has_reply = asks.get(&(n, name)).is_some_and(|ask| world.is_done(*ask));
                        let in_time = world.nodes[&n].figures()[4] == 0;
                        let heard = !world.heard(n).is_empty();
                        if n != at && here.contains(&(n, name)) && has_reply && in_time {
                            prop_assert!(heard, "{n} missed it");
                        }
                    }
                }
                _ => {
                    world.wake();
                    if !world.air.is_empty() {
                        let (from, to, frame) = world.air.swap_remove(name % world.air.len());
                        (0..fate.min(2)).for_each(|_| world.deliver(from, to, frame.clone()));
                    }
                }
            }
        }
        world.air.clear();
        for _ in 0..4 {
            world.wait(ASK_AGAIN);
            world.settle();
        }
        world.heard.clear();
        for (at, name) in [1u64, 2, 3].into_iter().flat_map(|at| (0..4).map(move |name| (at, name))) {
            let wanted: Vec<u64> = here.iter().filter(|(n, of)| *of == name && *n != at).map(|(n, _)| *n).collect();
            prop_assert_eq!(world.publish(at, names[name], "x"), wanted.len() as u64);
            world.settle();
            for other in [1, 2, 3] {
                prop_assert_eq!(world.heard(other).len(), usize::from(wanted.contains(&other)));
            }
        }
    }
}
