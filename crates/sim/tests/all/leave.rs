//! A node that joins and is removed a moment later, over many seeds: nobody refuses that because bricks are still taking the map in,
//! and it is gone soon.

use base::{Outcome, Span, Time};
use node::view::NodeState;
use node::{Answer, Ask, Leaving, View};
use sim::shipped::Cluster;
use sim::world::{Happened, World};

const DECLARED: &str = "[namespace.carts]\nclass = \"session\"\n";
const NODES: usize = 4;
const LAST: usize = NODES - 1;

struct Scene {
    world: World<Cluster>,
    views: Vec<Option<View>>,
    answer: Option<Answer>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, NODES, Cluster::new(DECLARED.into(), None));
        let seeds = (0..LAST).map(|node| world.peer_addr(node)).collect();
        world.factory_mut().seeds = seeds;
        world.factory_mut().ids = (0..NODES).map(|node| world.id(node)).collect();
        (0..LAST).for_each(|node| world.start(node));
        Self { world, views: vec![None; NODES], answer: None }
    }

    fn run(&mut self, span: Span) {
        let end = self.world.now() + span;
        while let Some(happened) = self.world.next(end) {
            match happened {
                Happened::Published { node, view } => self.views[node] = Some(view),
                Happened::Answered { answer, .. } => self.answer = Some(answer),
                _ => (),
            }
        }
    }

    /// How long it takes until this is so.
    fn until(&mut self, seed: u64, what: &str, holds: impl Fn(&mut Self) -> bool) -> Span {
        let begun = self.world.now();
        while !holds(self) {
            assert!(self.world.now().since(begun) < Span::secs(60), "seed {seed}: {what} does not come to be");
            self.run(Span::millis(20));
        }
        self.world.now().since(begun)
    }

    /// What is said to who wants the last node to be removed.
    fn remove(&mut self) -> Outcome<()> {
        let ask = Ask::Leave { name: format!("n{NODES}"), how: Leaving::Remove, force: false };
        self.answer = None;
        self.world.ask(0, Span::secs(5), ask).unwrap();
        self.run(Span::millis(20));
        match self.answer.take() {
            Some(Answer::Done(outcome)) => outcome,
            other => panic!("{other:?}"),
        }
    }
}

fn is_whole(view: &View) -> bool {
    let well = |node: &&node::view::NodeView| node.state == NodeState::Live && node.brick.settled;
    view.nodes.iter().filter(well).count() == LAST
}

/// How long the wish was refused, and how long it took from then on. What was said last before it was taken.
fn join_and_remove(seed: u64, after: Span) -> (Span, Span, String) {
    let mut scene = Scene::new(seed);
    scene.until(seed, "three settled bricks", |scene| {
        scene.views[..LAST].iter().all(|view| view.as_ref().is_some_and(is_whole))
    });
    scene.run(Span::secs(2));
    scene.world.start(LAST);
    let name = format!("n{NODES}");
    let is_known = move |view: &View| view.nodes.iter().any(|n| n.name == name && n.state == NodeState::Live);
    scene.until(seed, "the new node", |scene| scene.views[0].as_ref().is_some_and(&is_known));
    scene.run(after);
    let (begun, mut why): (Time, _) = (scene.world.now(), String::new());
    while let Outcome::Refused(refused) = scene.remove() {
        why = refused.why;
        assert!(scene.world.now().since(begun) < Span::secs(60), "seed {seed}: {why}");
    }
    let refused = scene.world.now().since(begun);
    let left = scene.until(seed, "that it may end", |scene| {
        scene.views[LAST].as_ref().is_some_and(|view| view.closing == Some(Leaving::Remove))
    });
    (refused, left, why)
}

#[test]
fn a_node_that_has_just_joined_is_removed_at_once() {
    for seed in 0..15 {
        for after in [0, 100, 400, 1_000] {
            let (refused, left, why) = join_and_remove(seed, Span::millis(after));
            assert_eq!(why, "", "seed {seed}, after {after} ms: refused for {refused:?}");
            assert!(left < Span::secs(8), "seed {seed}, after {after} ms: it left after {left:?}");
        }
    }
}
