//! A service that runs at times, while nodes are killed and cut off: never do two of its runs go on at once, later ones have greater
//! numbers, and it goes on when all is well.

use base::{Rng, Span, Time};
use sim::shipped::Cluster;
use sim::world::World;

const DECLARED: &str = "[service.job]\nrun = [\"job\"]\nevery = \"2s\"\nrun_timeout = \"5s\"\nrerun = true\n";
const NODES: usize = 3;
const NAME: &str = "job/1001";

struct Scene {
    world: World<Cluster>,
    /// Number of the last run that began.
    last: u64,
    began: u64,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, NODES, Cluster::new(DECLARED.into(), None));
        let seeds = (0..NODES).map(|node| world.peer_addr(node)).collect();
        world.factory_mut().seeds = seeds;
        world.factory_mut().ids = (0..NODES).map(|node| world.id(node)).collect();
        (0..NODES).for_each(|node| world.start(node));
        Self { world, last: 0, began: 0 }
    }

    fn run(&mut self, span: Span, seed: u64) {
        let end = self.world.now() + span;
        while self.world.next(end).is_some() {
            let at = self.world.now();
            let children = (0..NODES).flat_map(|node| self.world.children(node).map(move |(_, child)| (node, child)));
            let runs: Vec<(usize, u64)> = children
                .filter(|(_, child)| child.spec.name == NAME)
                .map(|(node, child)| (node, child.spec.env["COPPICE_RUN"].parse().unwrap()))
                .collect();
            assert!(runs.len() <= 1, "seed {seed}: at {at:?} two go on at once: {runs:?}");
            if let Some((node, number)) = runs.first().filter(|(_, number)| *number != self.last) {
                assert!(*number > self.last, "seed {seed}: run {number} of node {node} follows {}", self.last);
                (self.last, self.began) = (*number, self.began + 1);
            }
        }
    }
}

fn faults(seed: u64) {
    let (mut scene, mut rng) = (Scene::new(seed), Rng::new(seed));
    scene.run(Span::secs(20), seed);
    assert!(scene.began >= 2, "seed {seed}: {} runs in 20 s", scene.began);
    let until = scene.world.now() + Span::secs(150);
    while scene.world.now() < until {
        let node = rng.below(NODES as u64) as usize;
        match rng.below(4) {
            0 if scene.world.is_running(node) => scene.world.kill(node),
            1 => (0..NODES).filter(|other| *other != node).for_each(|other| {
                let holds = rng.chance(0.5);
                scene.world.cut(node, other, holds);
                scene.world.cut(other, node, holds);
            }),
            2 => scene.world.heal_all(),
            _ => (0..NODES).for_each(|node| {
                if !scene.world.is_running(node) {
                    scene.world.start(node);
                }
            }),
        }
        scene.run(Span::millis(rng.between(500, 12_000)), seed);
    }
    scene.world.heal_all();
    for node in 0..NODES {
        if !scene.world.is_running(node) {
            scene.world.start(node);
        }
    }
    scene.run(Span::secs(40), seed);
    let began = scene.began;
    scene.run(Span::secs(30), seed);
    assert!(scene.began >= began + 2, "seed {seed}: it does not go on at {:?}", scene.world.now());
    assert!(scene.world.now() > Time::ZERO);
}

#[test]
fn runs_go_on_and_never_two_at_once_whatever_is_killed_or_cut_off() {
    for seed in 0..6 {
        faults(seed);
    }
}
