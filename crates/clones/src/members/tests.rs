//! Stories of a few nodes whose frames the test may lose, double and hold back.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, NodeId, Now, Outcome, Span, Time};
use bytes::Bytes;
use proptest::prelude::*;

use super::limits::*;
use super::*;
use crate::CloneState::{Draining, Serving, Starting};

const SHOP: &str = "shop";

struct World {
    now: Now,
    nodes: BTreeMap<NodeId, Members>,
    lives: Vec<Member>,
    said: BTreeMap<NodeId, Said>,
    /// On their way: from, to, head, body.
    air: Vec<(NodeId, NodeId, Bytes, Bytes)>,
    answers: BTreeMap<u64, Outcome<Reply>>,
    asks: u64,
}

fn node(n: u64) -> NodeId {
    NodeId(n)
}

impl World {
    fn new(nodes: u64) -> Self {
        let mut world = Self {
            now: Now { mono: Time(1_000_000), wall_ms: 5 },
            nodes: (1..=nodes).map(|n| (node(n), Members::new(node(n), Boot(1)))).collect(),
            lives: Vec::new(),
            said: BTreeMap::new(),
            air: Vec::new(),
            answers: BTreeMap::new(),
            asks: 0,
        };
        world.told();
        world
    }

    /// A member begins, and everybody hears of it.
    fn born(&mut self, on: u64, life: &str) {
        self.lives.push(Member { life: life.into(), node: node(on), state: Serving });
        self.told();
    }

    fn set(&mut self, life: &str, state: CloneState) {
        self.lives.iter_mut().find(|m| m.life == life).unwrap().state = state;
        self.told();
    }

    fn dies(&mut self, life: &str) {
        self.lives.retain(|m| m.life != life);
        self.told();
    }

    fn node_dies(&mut self, n: u64) {
        self.nodes.remove(&node(n));
        self.said.remove(&node(n));
        self.lives.retain(|m| m.node != node(n));
        self.told();
    }

    /// Beacons have come everywhere.
    fn told(&mut self) {
        let mut before = None;
        while before != Some(self.said.clone()) {
            before = Some(self.said.clone());
            for n in self.nodes.keys().copied().collect::<Vec<_>>() {
                let mut said = self.said.clone();
                said.remove(&n);
                let live = self.nodes.keys().copied().collect();
                let members = [(SHOP.to_owned(), self.lives.clone())].into();
                self.give(n, Input::Scene(Scene { live, members, said }));
            }
        }
    }

    fn give(&mut self, to: NodeId, input: Input) {
        let mut out = Vec::new();
        self.nodes.get_mut(&to).unwrap().handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Send { to: other, head, body } => self.air.push((to, other, head, body)),
                Output::Answer { id, outcome } => drop(self.answers.insert(id.0, outcome)),
                Output::Bad { .. } => (),
                Output::Say(said) => drop(self.said.insert(to, Said::decode(&said.encode()).unwrap())),
            }
        }
    }

    fn ask(&mut self, at: u64, op: Op) -> u64 {
        self.asks += 1;
        self.give(node(at), Input::Ask { id: AskId(self.asks), budget: Span::secs(2), op });
        self.asks
    }

    fn arrive(&mut self, at: u64, life: &str, phase: u64, at_least: u32) -> u64 {
        let (service, life, barrier) = (SHOP.into(), life.into(), "ready".into());
        let ask = self.ask(at, Op::Arrive { service, life, barrier, phase, at_least });
        self.told();
        ask
    }

    fn tell(&mut self, at: u64, text: &str) -> u64 {
        let (from, body) = (format!("n{at}"), Bytes::copy_from_slice(text.as_bytes()));
        self.ask(at, Op::Tell { service: SHOP.into(), from, body })
    }

    /// What came to a node since then.
    fn heard(&mut self, at: u64, after: u64) -> Vec<String> {
        let ask = self.ask(at, Op::Listen { service: SHOP.into(), after: Some(after) });
        match self.answers.remove(&ask) {
            Some(Outcome::Done(Reply::News { messages, .. })) => {
                messages.iter().map(|m| String::from_utf8(m.body.to_vec()).unwrap()).collect()
            }
            None => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Delivers what is in the air, except what is lost.
    fn deliver(&mut self, lost: impl Fn(NodeId, NodeId) -> bool) {
        while !self.air.is_empty() {
            for (from, to, head, body) in std::mem::take(&mut self.air) {
                if self.nodes.contains_key(&to) && !lost(from, to) {
                    self.give(to, Input::Frame { from, head, body });
                }
            }
        }
    }

    fn wait(&mut self, span: Span) {
        self.now.mono = self.now.mono + span;
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.give(n, Input::Wake);
        }
    }

    fn passed(&self, ask: u64) -> Option<u32> {
        match self.answers.get(&ask)? {
            Outcome::Done(Reply::Arrived { passed: true, there, .. }) => Some(*there),
            _ => None,
        }
    }

    fn leaders(&self) -> BTreeSet<Option<&str>> {
        self.nodes.values().map(|n| n.leader(SHOP)).collect()
    }
}

#[test]
fn the_oldest_member_leads_until_it_goes_and_all_nodes_agree() {
    let mut world = World::new(3);
    assert_eq!(world.leaders(), [None].into());
    world.born(2, "m");
    world.born(1, "a");
    world.born(3, "z");
    assert_eq!(world.leaders(), [Some("m")].into(), "who comes later does not take over, whatever its name or node");
    world.set("m", Draining);
    assert_eq!(world.leaders(), [Some("a")].into(), "who is on its way out hands over before it is gone");
    world.dies("m");
    world.born(2, "m2");
    assert_eq!(world.leaders(), [Some("a")].into(), "who is started anew is young");
    world.node_dies(1);
    assert_eq!(world.leaders(), [Some("z")].into());
    world.set("z", Starting);
    assert_eq!(world.leaders(), [Some("m2")].into(), "who does not serve yet does not lead");
}

#[test]
fn a_barrier_is_passed_when_all_have_reached_it() {
    let mut world = World::new(3);
    for (on, life) in [(1, "a"), (2, "b"), (3, "c")] {
        world.born(on, life);
    }
    world.set("c", Starting);
    let a = world.arrive(1, "a", 1, 0);
    // Any node may be told, not just the own one.
    let b = world.arrive(3, "b", 1, 0);
    assert_eq!((world.passed(a), world.passed(b)), (None, None), "one that starts is waited for");
    let c = world.arrive(3, "c", 1, 0);
    assert_eq!((world.passed(a), world.passed(b), world.passed(c)), (Some(3), Some(3), Some(3)));
    let a = world.arrive(1, "a", 2, 0);
    assert_eq!(world.passed(a), None, "the next phase is another one");
    let again = world.arrive(2, "b", 1, 0);
    assert_eq!(world.passed(again), Some(3), "what is passed stays so");
}

#[test]
fn a_death_completes_a_barrier() {
    let mut world = World::new(3);
    for (on, life) in [(1, "a"), (2, "b"), (3, "c"), (3, "d")] {
        world.born(on, life);
    }
    let a = world.arrive(1, "a", 1, 0);
    let b = world.arrive(2, "b", 1, 0);
    world.dies("d");
    assert_eq!(world.passed(a), None);
    world.node_dies(3);
    assert_eq!((world.passed(a), world.passed(b)), (Some(2), Some(2)));
    world.born(1, "late");
    let late = world.arrive(1, "late", 1, 0);
    assert_eq!(world.passed(late), Some(3), "who is born later passes where the others have been");
    world.born(2, "old");
    world.set("old", Draining);
    let a = world.arrive(1, "a", 2, 0);
    world.arrive(1, "late", 2, 0);
    world.arrive(2, "b", 2, 0);
    assert_eq!(world.passed(a), Some(3), "who is on its way out is not waited for");
}

#[test]
fn a_barrier_waits_for_as_many_as_it_was_told() {
    let mut world = World::new(2);
    world.born(1, "a");
    let a = world.arrive(1, "a", 1, 2);
    assert_eq!(world.passed(a), None);
    world.wait(Span::secs(2));
    let late = Reply::Arrived { passed: false, there: 1, missing: vec![] };
    assert_eq!(world.answers[&a], Outcome::Done(late));
    let a = world.arrive(1, "a", 1, 2);
    world.born(2, "b");
    assert_eq!(world.passed(a), None);
    world.arrive(2, "b", 1, 2);
    assert_eq!(world.passed(a), Some(2));
}

#[test]
fn who_is_missing_is_said_when_the_time_is_over() {
    let mut world = World::new(2);
    world.born(1, "a");
    world.born(2, "b");
    let a = world.arrive(1, "a", 1, 0);
    world.wait(Span::secs(2));
    let missing = Reply::Arrived { passed: false, there: 1, missing: vec!["b".into()] };
    assert_eq!(world.answers[&a], Outcome::Done(missing));
    let stranger = world.arrive(1, "x", 1, 0);
    assert!(matches!(&world.answers[&stranger], Outcome::Refused(r) if r.retry_after.is_some()));
}

#[test]
fn a_broadcast_comes_to_every_node_once_whatever_is_lost() {
    let mut world = World::new(3);
    let ask = world.tell(1, "hello");
    assert_eq!(world.heard(1, 0), ["hello"], "the own node has it at once");
    world.deliver(|_, to| to == node(3));
    assert!(!world.answers.contains_key(&ask));
    world.wait(TELL_AGAIN);
    // Now the confirmation is lost: it is sent again, and not delivered again.
    world.deliver(|from, _| from == node(3));
    assert!(!world.answers.contains_key(&ask));
    world.wait(TELL_AGAIN);
    world.deliver(|_, _| false);
    assert_eq!(world.answers[&ask], Outcome::Done(Reply::Told { nodes: 3 }));
    for at in 1..=3 {
        assert_eq!(world.heard(at, 0), ["hello"]);
    }
}

#[test]
fn a_broadcast_does_not_wait_for_the_dead_and_not_for_ever() {
    let mut world = World::new(3);
    let ask = world.tell(1, "one");
    world.deliver(|_, to| to == node(3));
    world.node_dies(3);
    assert_eq!(world.answers[&ask], Outcome::Done(Reply::Told { nodes: 2 }));
    let ask = world.tell(1, "two");
    world.air.clear();
    world.wait(Span::secs(2));
    assert!(matches!(&world.answers[&ask], Outcome::Unknown(u) if u.why.contains("1 nodes have it")));
}

#[test]
fn readers_wait_for_messages_and_learn_what_they_missed() {
    let mut world = World::new(1);
    let listen = |after| Op::Listen { service: SHOP.into(), after };
    let start = world.ask(1, listen(None));
    assert_eq!(world.answers[&start], Outcome::Done(Reply::News { messages: vec![], at: 0, missed: 0 }));
    let waits = world.ask(1, listen(Some(0)));
    assert!(!world.answers.contains_key(&waits));
    world.tell(1, "now");
    assert!(
        matches!(&world.answers[&waits], Outcome::Done(Reply::News { messages, at: 1, missed: 0 }) if messages.len() == 1)
    );
    for n in 0..2 * KEPT_MAX {
        world.tell(1, &n.to_string());
    }
    let late = world.ask(1, listen(Some(1)));
    let Outcome::Done(Reply::News { messages, at, missed }) = &world.answers[&late] else { panic!() };
    assert_eq!((messages.len(), *missed), (NEWS_MAX, KEPT_MAX as u64), "the oldest were dropped, and that is said");
    assert_eq!(*at, messages.last().unwrap().at);
    let quiet = world.ask(1, listen(Some(2 * KEPT_MAX as u64 + 1)));
    world.wait(Span::secs(2));
    let nothing = Reply::News { messages: vec![], at: 2 * KEPT_MAX as u64 + 1, missed: 0 };
    assert_eq!(world.answers[&quiet], Outcome::Done(nothing));
}

#[test]
fn everything_has_a_bound() {
    let mut world = World::new(1);
    world.born(1, "a");
    let big =
        world.ask(1, Op::Tell { service: SHOP.into(), from: "x".into(), body: vec![0; MESSAGE_BYTES_MAX + 1].into() });
    assert!(matches!(&world.answers[&big], Outcome::Refused(r) if r.retry_after.is_none()));
    let other = world.ask(1, Op::Listen { service: "nosuch".into(), after: None });
    assert!(matches!(&world.answers[&other], Outcome::Refused(r) if r.why.contains("nosuch")));
    for n in 0.. {
        let barrier = format!("{n:064}");
        let ask = world.ask(1, Op::Arrive { service: SHOP.into(), life: "a".into(), barrier, phase: 1, at_least: 9 });
        if let Some(outcome) = world.answers.get(&ask) {
            let room = matches!(outcome, Outcome::Refused(r) if r.why.contains("no room"));
            assert!(room && (500..WAITS_MAX).contains(&n), "{n}: {outcome:?}");
            break;
        }
    }
    assert!(world.said[&node(1)].encode().len() <= SAID_BYTES_MAX);
    world.wait(Span::secs(2));
    for n in 0..=WAITS_MAX {
        let ask = world.ask(1, Op::Listen { service: SHOP.into(), after: Some(0) });
        assert_eq!(world.answers.contains_key(&ask), n == WAITS_MAX, "{n}");
    }
    world.dies("a");
    assert_eq!(world.said[&node(1)], Said::default(), "nothing is kept of who is gone");
}

proptest! {
    #[test]
    fn heads_of_any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        super::wire::holds(&bytes);
        let _ = Said::decode(&bytes);
    }

    /// Frames in any order, some lost, some twice: everybody hears each message once.
    #[test]
    fn no_message_is_told_twice(fates in proptest::collection::vec(0u8..4, 60)) {
        let mut world = World::new(3);
        for n in 0..6 {
            world.tell(n % 3 + 1, &n.to_string());
        }
        let mut fates = fates.into_iter();
        for _ in 0..8 {
            let mut air = std::mem::take(&mut world.air);
            while !air.is_empty() {
                let fate = fates.next().unwrap_or(1);
                let (from, to, head, body) = air.swap_remove(usize::from(fate) % air.len());
                for _ in 0..fate.min(2) {
                    world.give(to, Input::Frame { from, head: head.clone(), body: body.clone() });
                }
            }
            world.wait(TELL_AGAIN);
        }
        for at in 1..=3 {
            let heard = world.heard(at, 0);
            let once: BTreeSet<&String> = heard.iter().collect();
            prop_assert_eq!(once.len(), heard.len());
            prop_assert!(heard.len() >= 2, "its own at least");
        }
    }
}
