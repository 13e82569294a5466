//! Very many services: as many as may be are declared, placed and served; where a node's program is older, it is said what is to be done.

use std::collections::BTreeMap;

use base::{Outcome, Span};
use node::{Answer, Ask};
use sim::shipped::Cluster;
use sim::world::{Happened, World};

const NODES: usize = 4;
const MANY: usize = 2_000;

struct Scene {
    world: World<Cluster>,
    answer: Option<Answer>,
}

impl Scene {
    fn new(seed: u64, older: Option<usize>) -> Self {
        let mut world = World::new(seed, NODES, Cluster::new(String::new(), None));
        let seeds = (0..NODES - 1).map(|node| world.peer_addr(node)).collect();
        let ids = (0..NODES).map(|node| world.id(node)).collect();
        (world.factory_mut().seeds, world.factory_mut().ids, world.factory_mut().older) = (seeds, ids, older);
        world.factory_mut().older_level = clones::LEVEL_PARTS - 1;
        (0..NODES).for_each(|node| world.start(node));
        let mut scene = Self { world, answer: None };
        scene.run(Span::secs(6));
        scene
    }

    fn run(&mut self, span: Span) {
        let end = self.world.now() + span;
        while let Some(happened) = self.world.next(end) {
            if let Happened::Answered { answer, .. } = happened {
                self.answer = Some(answer);
            }
        }
    }

    fn apply(&mut self, services: usize) -> Outcome<()> {
        let service = |n: usize| format!("[service.s{n}]\nrun = [\"true\"]\nclones = 1\n");
        let text = (0..services).map(service).collect();
        self.answer = None;
        let ask = Ask::Apply { file: "many.toml".into(), text, dry_run: false, entropy: [9; 32] };
        self.world.ask(0, Span::secs(5), ask).unwrap();
        for _ in 0..50 {
            self.run(Span::millis(100));
            match self.answer.take() {
                Some(Answer::Applied(Outcome::Done(_))) => return Outcome::Done(()),
                Some(Answer::Applied(Outcome::Refused(why))) => return Outcome::Refused(why),
                Some(other) => panic!("{other:?}"),
                None => (),
            }
        }
        panic!("no answer");
    }

    /// Processes of each service.
    fn runs(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for (_, child) in (0..NODES).flat_map(|node| self.world.children(node)) {
            *runs.entry(child.spec.name.clone()).or_default() += 1;
        }
        runs
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = self.world.now();
        while !holds(self) {
            assert!(
                self.world.now().since(begun) < Span::secs(30),
                "{what} does not come to be: {} run",
                self.runs().len()
            );
            self.run(Span::millis(100));
        }
    }
}

fn all_run_once(scene: &Scene) -> bool {
    let runs = scene.runs();
    runs.len() == MANY && runs.values().all(|processes| *processes == 1)
}

/// Each node has its share of them, and a change of one service tells of that one and its neighbours.
#[test]
fn two_thousand_services_are_placed_and_run_and_what_changes_in_one_is_told_of_few() {
    let mut scene = Scene::new(5, None);
    assert_eq!(scene.apply(MANY), Outcome::Done(()));
    scene.until("that all run", all_run_once);
    for node in 0..NODES {
        let here = scene.world.children(node).count();
        assert!((MANY / NODES - 5..=MANY / NODES + 5).contains(&here), "{here} of them run at node {node}");
    }
    scene.run(Span::secs(1));
    let bytes = |scene: &Scene| scene.world.counts().bytes;
    let (begun, length) = (bytes(&scene), Span::secs(2));
    scene.run(length);
    let idle = bytes(&scene) - begun;
    let proc = scene.world.children(1).next().unwrap().0;
    let begun = bytes(&scene);
    scene.world.crash_child(1, proc);
    scene.run(length);
    assert!(all_run_once(&scene));
    let one = (bytes(&scene) - begun).saturating_sub(idle);
    // All that the nodes have to say of their services is some 200 kB for each peer.
    assert!(one < 100 << 10, "{one} bytes between nodes over one clone that died and came back");
}

#[test]
fn below_the_level_of_parts_more_services_than_one_fact_holds_are_refused_with_what_is_to_be_done() {
    let mut scene = Scene::new(6, Some(3));
    let Outcome::Refused(why) = scene.apply(257) else { panic!("257 services were taken") };
    let told = "257 services need programs of level 9 on all nodes, and this cluster agreed on level 8: upgrade them all first; \
                until then 256 are the most";
    assert!(why.why.contains(told), "{}", why.why);
    assert_eq!(scene.apply(256), Outcome::Done(()));
    scene.until("that 256 run", |scene| scene.runs().len() == 256);
    // The last node has the newer program in its next life.
    scene.world.kill(3);
    scene.world.start(3);
    scene.run(Span::secs(5));
    assert_eq!(scene.apply(300), Outcome::Done(()));
    scene.until("that 300 run", |scene| {
        let runs = scene.runs();
        runs.len() == 300 && runs.values().all(|processes| *processes == 1)
    });
}

/// What a node says of itself goes to a few others a second, however many there are; what is left that grows are signs of life on links.
#[test]
fn what_an_idle_node_says_of_itself_does_not_grow_with_the_cluster() {
    let beacons = |nodes: usize| sim::growth::costs(1, nodes).by_kind[&base::kind::BEACON];
    let (few, many) = (beacons(9), beacons(27));
    assert!(many < 1.3 * few, "{few:.0} bytes a second of a node of 9, {many:.0} of 27");
}
