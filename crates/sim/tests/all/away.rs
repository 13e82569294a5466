//! A node that comes back after eight days. The others have forgotten by then what they kept for it: it is told so and enters anew, so
//! nothing that was deleted comes back with it, and nothing that was acknowledged is lost. Days are minutes here (`away_for`).

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, NodeId, Outcome, Span};
use bytes::Bytes;
use node::{Answer, Ask, View};
use sim::plays;
use sim::shipped::{self, Cluster, Shipped};
use sim::world::{Happened, World};
use state::object::{Action, Body, Id, Op, Reply};

use crate::asking::AsksNodes;

const DECLARED: &str = "[namespace.box]\nclass = \"object\"\n";
/// In place of 7 days.
const AWAY_FOR: Span = Span::secs(140);
const DAY_MS: i64 = 86_400_000;
const BUDGET: Span = Span::secs(5);
const OBJECTS: u8 = 40;
const LAST: usize = 2;

struct Scene {
    nodes: usize,
    world: World<Cluster>,
    views: Vec<Option<View>>,
    answers: BTreeMap<AskId, Answer>,
    distrusted: BTreeSet<usize>,
}

impl AsksNodes for Scene {
    fn world(&mut self) -> &mut World<Cluster> {
        &mut self.world
    }

    fn answers(&mut self) -> &mut BTreeMap<AskId, Answer> {
        &mut self.answers
    }

    fn hear(&mut self, happened: Happened<Shipped>) {
        match happened {
            Happened::Published { node, view } => self.views[node] = Some(view),
            Happened::Answered { id, answer, .. } => drop(self.answers.insert(id, answer)),
            Happened::Distrusted { node } => drop(self.distrusted.insert(node)),
            _ => (),
        }
    }
}

impl Scene {
    fn new(seed: u64, bug: Option<shipped::Bug>) -> Self {
        Self::of(3, seed, bug)
    }

    fn of(nodes: usize, seed: u64, bug: Option<shipped::Bug>) -> Self {
        let mut cluster = Cluster::new(DECLARED.into(), bug.map(plays::Bug::Node));
        cluster.settings.object.away_for = AWAY_FOR;
        let mut world = World::new(seed, nodes, cluster);
        let seeds = (0..nodes).map(|node| world.peer_addr(node)).collect();
        world.factory_mut().seeds = seeds;
        world.factory_mut().ids = (0..nodes).map(|node| world.id(node)).collect();
        (0..nodes).for_each(|node| world.start(node));
        let (views, answers, distrusted) = (vec![None; nodes], BTreeMap::new(), BTreeSet::new());
        let mut scene = Self { nodes, world, views, answers, distrusted };
        scene.run(Span::secs(25));
        scene
    }

    fn object(&mut self, node: usize, action: Action) -> Reply {
        let op = Op { namespace: "box".into(), owner: "anna".into(), action, priority: base::Priority::NORMAL };
        match self.ask(node, BUDGET, Ask::Object(op)) {
            Some(Answer::Object(Outcome::Done(reply))) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, node: usize, n: u8) {
        let reply = self.object(node, Action::Put { id: id(n), body: Body::from(Bytes::from(vec![n; 100])) });
        assert!(matches!(reply, Reply::Stored { copies: 2, .. }), "{n}: {reply:?}");
    }

    /// Which of them are there, asked at a node.
    fn there(&mut self, node: usize) -> BTreeSet<u8> {
        let get = |n: &u8| match self.object(node, Action::Get { id: id(*n), at: 0 }) {
            Reply::Object { body, .. } => {
                assert_eq!(body, vec![*n; 100]);
                true
            }
            Reply::Absent | Reply::Gone => false,
            other => panic!("{n}: {other:?}"),
        };
        (0..2 * OBJECTS).filter(get).collect()
    }

    /// Objects are put; then one node is away, and every second one is deleted, and more come.
    fn part(&mut self) -> BTreeSet<u8> {
        (0..OBJECTS).for_each(|n| self.put(usize::from(n) % 3, n));
        self.run(Span::secs(8));
        self.world.kill(LAST);
        self.run(Span::secs(8));
        for n in (0..OBJECTS).step_by(2) {
            let reply = self.object(usize::from(n / 2) % 2, Action::Delete { id: id(n) });
            assert!(matches!(reply, Reply::Deleted { .. }), "{n}: {reply:?}");
        }
        (OBJECTS..2 * OBJECTS).for_each(|n| self.put(usize::from(n) % 2, n));
        (0..2 * OBJECTS).filter(|n| *n >= OBJECTS || n % 2 == 1).collect()
    }

    /// These are away for longer than others keep what they miss, after all that is deleted is forgotten, and come back. They are told.
    fn come_back_anew(&mut self, nodes: &[usize]) {
        let live = (0..self.nodes).filter(|node| !nodes.contains(node));
        live.for_each(|node| self.world.jump_clock(node, Some(9 * DAY_MS)));
        self.run(Span::secs(10));
        for node in nodes {
            self.world.start(*node);
            self.run(Span::secs(10));
            assert!(self.distrusted.contains(node), "node {node} is told");
            self.enters_anew(*node);
            self.run(Span::secs(20));
        }
    }

    /// Wall clocks of those that live are nine days later: what is remembered for eight days is forgotten.
    fn nine_days(&mut self) {
        (0..LAST).for_each(|node| self.world.jump_clock(node, Some(9 * DAY_MS)));
        self.run(Span::secs(10));
    }

    /// What node 0 counts.
    fn figure(&self, name: &str) -> u64 {
        self.views[0].as_ref().unwrap().figures[name]
    }

    fn tells(&self, kind: &str) -> usize {
        self.views[0].as_ref().unwrap().events.iter().filter(|event| event.kind == kind).count()
    }

    /// As a host does whose disk is not to be trusted.
    fn enters_anew(&mut self, node: usize) {
        for n in 0..100 {
            let wish = NodeId(1_000 * (1 + node as u64) + n);
            let (former, name) = (self.world.id(node), format!("n{}", node + 1));
            let ask = Ask::Renew { former, name, why: "it was away".into(), wish };
            match self.ask(n as usize % LAST, BUDGET, ask) {
                Some(Answer::Admitted(Outcome::Done(admitted))) => {
                    self.world.enter_anew(node, admitted.id);
                    return self.world.start(node);
                }
                _ => self.run(Span::millis(500)),
            }
        }
        panic!("it is not let in");
    }
}

fn id(n: u8) -> Id {
    Id([n + 1; 16])
}

#[test]
fn a_node_back_after_eight_days_enters_anew_with_nothing_and_all_else_is_there() {
    for seed in 1..5 {
        let mut scene = Scene::new(seed, None);
        let kept = scene.part();
        assert!(scene.figure("object.open") > 0, "seed {seed}: deletions are kept for it");
        scene.run(AWAY_FOR + Span::secs(30));
        assert_eq!((scene.figure("object.open"), scene.tells("away")), (0, 2), "seed {seed}: nothing waits for it");
        scene.nine_days();
        assert_eq!(scene.figure("object.tombstones"), 0, "seed {seed}");
        scene.world.start(LAST);
        scene.run(Span::secs(10));
        assert_eq!(scene.distrusted, [LAST].into(), "seed {seed}: it is told");
        scene.enters_anew(LAST);
        scene.run(Span::secs(20));
        for node in 0..3 {
            assert_eq!(scene.there(node), kept, "seed {seed}, at node {node}");
        }
        assert_eq!(scene.tells("anew"), 1, "seed {seed}");
        // It takes part as any other.
        scene.put(LAST, 200);
    }
}

#[test]
fn what_a_node_brings_back_after_eight_days_is_caught_if_it_is_believed() {
    let mut scene = Scene::new(1, Some(shipped::Bug::Welcomes));
    let kept = scene.part();
    scene.run(AWAY_FOR + Span::secs(30));
    scene.nine_days();
    scene.world.start(LAST);
    scene.run(Span::secs(20));
    assert!(scene.distrusted.is_empty());
    let there: Vec<BTreeSet<u8>> = (0..3).map(|node| scene.there(node)).collect();
    assert!(there.iter().any(|there| there.difference(&kept).count() > 0), "what was deleted is back: {there:?}");
}

#[test]
fn no_wall_clock_says_that_a_node_is_away_and_one_that_is_back_in_time_hears_of_all() {
    let mut scene = Scene::new(7, None);
    let kept = scene.part();
    scene.nine_days();
    scene.run(Span(AWAY_FOR.0 / 2));
    assert_eq!(scene.tells("away"), 0);
    let before = scene.world.id(LAST);
    scene.world.start(LAST);
    scene.run(Span::secs(15));
    assert!(scene.distrusted.is_empty() && scene.world.id(LAST) == before);
    assert_eq!(scene.there(LAST), kept);
    // Its time begins anew.
    scene.world.kill(LAST);
    scene.run(Span(AWAY_FOR.0 / 2));
    scene.world.start(LAST);
    scene.run(Span::secs(15));
    assert!(scene.distrusted.is_empty() && scene.there(LAST) == kept);
}

#[test]
fn time_that_a_leader_has_counted_is_not_lost_with_it() {
    let mut scene = Scene::new(9, None);
    scene.part();
    // Both of the others restart in turn, each with half of the time gone; a day of it is one part.
    for node in 0..LAST {
        scene.run(Span(AWAY_FOR.0 / 2));
        scene.world.kill(node);
        scene.run(Span::secs(8));
        scene.world.start(node);
        scene.run(Span::secs(15));
    }
    scene.run(Span::secs(20));
    assert_eq!(scene.tells("away"), 2, "it was said before, and it is gone");
    scene.world.start(LAST);
    scene.run(Span::secs(10));
    assert_eq!(scene.distrusted, [LAST].into());
}

/// Ten seconds of them are half a day.
const ALONE: Span = Span::secs(40);

#[test]
fn two_that_went_one_after_the_other_are_gone_in_their_time_and_nothing_is_lost() {
    for seed in 1..4 {
        let mut scene = Scene::of(5, seed, None);
        (0..OBJECTS).for_each(|n| scene.put(usize::from(n) % 5, n));
        scene.run(Span::secs(8));
        // What both had is at a third node by the time that the second one goes.
        for node in [4, 3] {
            scene.world.kill(node);
            scene.run(ALONE);
        }
        for n in (0..OBJECTS).step_by(2) {
            let reply = scene.object(usize::from(n / 2) % 3, Action::Delete { id: id(n) });
            assert!(matches!(reply, Reply::Deleted { .. }), "{n}: {reply:?}");
        }
        (OBJECTS..2 * OBJECTS).for_each(|n| scene.put(usize::from(n) % 3, n));
        let kept = (0..2 * OBJECTS).filter(|n| *n >= OBJECTS || n % 2 == 1).collect();
        assert!(scene.figure("object.open") > 0, "seed {seed}: deletions are kept for them");
        scene.run(AWAY_FOR + Span::secs(30));
        assert_eq!((scene.figure("object.open"), scene.tells("away")), (0, 4), "seed {seed}: nothing waits for them");
        scene.come_back_anew(&[3, 4]);
        for node in 0..5 {
            assert_eq!(scene.there(node), kept, "seed {seed}, at node {node}");
        }
    }
}

#[test]
fn two_that_went_together_have_all_that_they_alone_have_when_they_are_back_within_a_month() {
    for seed in 1..4 {
        let mut scene = Scene::of(5, seed, None);
        (0..OBJECTS).for_each(|n| scene.put(3 + usize::from(n) % 2, n));
        scene.run(Span::secs(8));
        [3, 4].into_iter().for_each(|node| scene.world.kill(node));
        scene.run(AWAY_FOR.times(2));
        // What is to come is said of both, and that they are waited for.
        assert_eq!(scene.tells("away"), 4, "seed {seed}");
        scene.world.start(3);
        if seed == 1 {
            // The other one is away alone now, and is gone when all that it has is elsewhere.
            scene.run(ALONE);
            assert_eq!(scene.tells("away"), 5);
            scene.come_back_anew(&[4]);
        } else {
            scene.world.start(4);
            scene.run(Span::secs(20));
            assert!(scene.distrusted.is_empty(), "seed {seed}");
        }
        for node in 0..5 {
            assert_eq!(scene.there(node), (0..OBJECTS).collect(), "seed {seed}, at node {node}");
        }
    }
}

#[test]
fn two_that_went_together_are_not_waited_for_without_end() {
    let mut scene = Scene::of(5, 1, None);
    scene.run(Span::secs(8));
    [3, 4].into_iter().for_each(|node| scene.world.kill(node));
    scene.run(Span::secs(8));
    (0..OBJECTS).for_each(|n| scene.put(usize::from(n) % 3, n));
    for n in (0..OBJECTS).step_by(2) {
        let reply = scene.object(usize::from(n / 2) % 3, Action::Delete { id: id(n) });
        assert!(matches!(reply, Reply::Deleted { .. }), "{n}: {reply:?}");
    }
    scene.run(AWAY_FOR.times(4) + Span::secs(60));
    assert_eq!(scene.figure("object.open"), 0, "nothing is kept for them");
    scene.come_back_anew(&[3, 4]);
    let kept: BTreeSet<u8> = (0..OBJECTS).filter(|n| n % 2 == 1).collect();
    for node in 0..5 {
        assert_eq!(scene.there(node), kept, "at node {node}");
    }
}

#[test]
fn who_was_away_for_too_long_answers_for_nothing_that_it_alone_has() {
    for seed in 1..4 {
        let mut scene = Scene::new(seed, None);
        scene.world.kill(LAST);
        scene.run(AWAY_FOR + Span::secs(30));
        scene.world.start(LAST);
        let mut kept = BTreeSet::new();
        for n in 0..OBJECTS {
            let body = Body::from(Bytes::from(vec![n; 100]));
            let action = Action::Put { id: id(n), body };
            let op = Op { namespace: "box".into(), owner: "anna".into(), action, priority: base::Priority::NORMAL };
            let answer = scene.ask(LAST, Span::millis(200), Ask::Object(op));
            if matches!(answer, Some(Answer::Object(Outcome::Done(Reply::Stored { .. })))) {
                kept.insert(n);
            }
        }
        scene.run(Span::secs(10));
        assert_eq!(scene.distrusted, [LAST].into(), "seed {seed}");
        scene.enters_anew(LAST);
        scene.run(Span::secs(20));
        assert!(scene.there(0).is_superset(&kept), "seed {seed}: what was acknowledged is there: {kept:?}");
    }
}
