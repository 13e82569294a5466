//! A manager and several groups roll a version out together, in virtual time from a seed: what is declared comes to each
//! node in its own time, and so do beacons. Processes are simple models; what decides is what ships. The promises: a version
//! that serves comes to all clones in good time, whatever the one before did; one that does not goes back; and no process
//! is started that nobody wants a moment later.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, Exit, NodeId, Now, ProcId, Rng, Span, Time};
use clones::{Assignments, CloneState, Group, Manager, NodeClones, NodeLoad, ServiceSpec, group, manager};

const TICK: Span = Span::millis(10);
const CODES: [&str; 2] = ["one", "two"];
/// What is stopped sooner need not have been started.
const SHORT: Span = Span::secs(1);

/// What processes of a version do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Serves,
    Dies,
}
use Does::{Dies, Serves};

struct Proc {
    version: u32,
    born: Time,
    up_at: Time,
    dies_at: Time,
    told_to_go: bool,
}

/// What stands, and what is rolled out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Declared {
    stands: u32,
    next: Option<u32>,
    off: bool,
}

enum News {
    Clones(NodeId, NodeClones),
    Assigned(Assignments),
    Declared(Declared),
}

struct World {
    rng: Rng,
    now: Now,
    manager: Manager,
    groups: Vec<Group>,
    procs: BTreeMap<(usize, ProcId), Proc>,
    /// On their way: when, to, what.
    air: Vec<(Time, usize, News)>,
    /// What the leader, which is the first node, has heard of each.
    heard: BTreeMap<NodeId, NodeClones>,
    declared: Declared,
    clones: u32,
    does: [Does; 2],
    /// Why the version was taken back, or that it stays, and when.
    verdict: Option<(Time, Option<String>)>,
    told_at: Time,
    /// Processes of versions that serve which were told to go as soon as they had begun.
    short: Vec<String>,
}

fn id(node: usize) -> NodeId {
    NodeId(node as u64 + 1)
}

impl World {
    fn new(seed: u64, nodes: usize, clones: u32, does: [Does; 2]) -> Self {
        let mut rng = Rng::new(seed);
        let group = |node| Group::new(id(node), Boot(1), format!("n{}", node + 1), "http://127.0.0.1:7070", rng.fork());
        let groups = (0..nodes).map(group).collect();
        let declared = Declared { stands: 1, next: None, off: false };
        let mut world = Self {
            rng,
            now: Now { mono: Time(1_000_000), wall_ms: 0 },
            manager: Manager::new(id(0), Boot(1)),
            groups,
            procs: BTreeMap::new(),
            air: Vec::new(),
            heard: BTreeMap::new(),
            declared,
            clones,
            does,
            verdict: None,
            told_at: Time::ZERO,
            short: Vec::new(),
        };
        for node in 0..nodes {
            let codes = CODES.map(str::to_owned).into();
            world.give_group(node, group::Input::Codes(codes));
            world.publish(node);
        }
        world.declare(declared);
        world.give_manager(manager::Input::Leads(true));
        world
    }

    fn spec(&self, version: u32) -> ServiceSpec {
        let code = CODES[version as usize - 1].to_owned();
        let (clones, health) = (self.clones.into(), Some("/".into()));
        ServiceSpec { version, code: Some(code), clones, health, ..ServiceSpec::new(["app"]) }
    }

    /// The leader knows it at once, the others within a moment.
    fn declare(&mut self, declared: Declared) {
        self.declared = declared;
        for node in 0..self.groups.len() {
            let delay = if node == 0 { 0 } else { self.rng.below(300) };
            self.air.push((self.now.mono + Span::millis(delay), node, News::Declared(declared)));
        }
    }

    fn publish(&mut self, node: usize) {
        // As the wire has it.
        let says = NodeClones::decode(&self.groups[node].node_clones().encode()).unwrap();
        let delay = if node == 0 { 0 } else { self.rng.below(150) };
        self.air.push((self.now.mono + Span::millis(delay), 0, News::Clones(id(node), says)));
    }

    fn give_group(&mut self, node: usize, input: group::Input) {
        let mut out = Vec::new();
        self.groups[node].handle(self.now, input, &mut out);
        for output in out {
            self.act(node, output);
        }
    }

    fn act(&mut self, node: usize, output: group::Output) {
        let now = self.now.mono;
        match output {
            group::Output::Spawn { proc, spec } => {
                let version: u32 = spec.env["COPPICE_VERSION"].parse().unwrap();
                let dies = self.does[version as usize - 1] == Dies;
                let dies_at = if dies { now + Span::millis(self.rng.between(30, 200)) } else { Time::NEVER };
                let up_at = now + Span::millis(self.rng.between(100, 600));
                self.procs.insert((node, proc), Proc { version, born: now, up_at, dies_at, told_to_go: false });
                self.give_group(node, group::Input::Spawned { proc, pid: 1, port: 4000 });
            }
            group::Output::Signal { proc, .. } => {
                let gone_at = now + Span::millis(self.rng.between(10, 100));
                let Some(known) = self.procs.get_mut(&(node, proc)) else { return };
                if now.since(known.born) < SHORT && known.dies_at == Time::NEVER {
                    self.short.push(format!("version {} at n{}, {:?}", known.version, node + 1, now.since(known.born)));
                }
                (known.dies_at, known.told_to_go) = (known.dies_at.min(gone_at), true);
            }
            group::Output::Probe { proc, .. } => {
                let Some(known) = self.procs.get(&(node, proc)) else { return };
                let result = if now >= known.up_at { Ok(()) } else { Err("refused".into()) };
                self.give_group(node, group::Input::Probed { proc, result });
            }
            group::Output::Changed => self.publish(node),
            group::Output::Happened(_) => (),
        }
    }

    fn give_manager(&mut self, input: manager::Input) {
        let mut out = Vec::new();
        self.manager.handle(self.now, input, &mut out);
        for output in out {
            match output {
                manager::Output::Assign(assigned) => {
                    let assigned = Assignments::decode(&assigned.encode()).unwrap();
                    for node in 0..self.groups.len() {
                        let delay = if node == 0 { 0 } else { self.rng.below(150) };
                        let at = self.now.mono + Span::millis(delay);
                        self.air.push((at, node, News::Assigned(assigned.clone())));
                    }
                }
                manager::Output::Verdict { number, take_back, .. } => {
                    let stands = if take_back.is_none() { number } else { self.declared.stands };
                    self.verdict = Some((self.now.mono, take_back));
                    self.declare(Declared { stands, next: None, off: false });
                }
                manager::Output::Withdraw | manager::Output::Happened(_) => (),
            }
        }
    }

    fn tick(&mut self) {
        self.now.mono = self.now.mono + TICK;
        self.now.wall_ms += TICK.as_millis();
        let now = self.now.mono;
        let (due, rest) = std::mem::take(&mut self.air).into_iter().partition(|(at, ..)| *at <= now);
        self.air = rest;
        for (_, to, news) in due {
            match news {
                News::Clones(from, says) => drop(self.heard.insert(from, says)),
                News::Assigned(assigned) => self.give_group(to, group::Input::Assigned(assigned)),
                News::Declared(Declared { stands, next, .. }) => {
                    let named = |version| ("app".to_owned(), self.spec(version));
                    let services = BTreeMap::from([named(stands)]);
                    let next = next.map(named).into_iter().collect();
                    let declared = group::Declared { services, next, ..Default::default() };
                    self.give_group(to, group::Input::Declared(declared));
                }
            }
        }
        let dead: Vec<_> = self.procs.iter().filter(|(_, p)| p.dies_at <= now).map(|(key, _)| *key).collect();
        for (node, proc) in dead {
            self.procs.remove(&(node, proc));
            self.give_group(node, group::Input::Exited { proc, exit: Exit::Code(2) });
        }
        for node in 0..self.groups.len() {
            if self.groups[node].wake_at().is_some_and(|at| at <= now) {
                self.give_group(node, group::Input::Wake);
            }
        }
        if self.manager.wake_at().is_some_and(|at| at <= now) {
            self.give_manager(manager::Input::Wake);
        }
        if now.since(self.told_at) >= Span::millis(50) {
            self.told_at = now;
            let load = |node| NodeLoad::new(id(node), format!("n{}", node + 1), 0, self.heard.get(&id(node)));
            let live = (0..self.groups.len()).map(load).collect();
            let Declared { stands, next, off } = self.declared;
            let services = (!off).then(|| ("app".to_owned(), self.spec(stands))).into_iter().collect();
            let next = next.map(|next| ("app".to_owned(), (next, true))).into_iter().collect();
            let (dead, off) = (BTreeSet::new(), BTreeSet::new());
            self.give_manager(manager::Input::Cluster { services, live, dead, off, next });
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now.mono + span;
        while self.now.mono < end {
            self.tick();
        }
    }

    /// Versions of the clones that serve.
    fn serving(&self) -> Vec<u32> {
        let all = self.groups.iter().flat_map(Group::clones);
        all.filter(|clone| clone.state == CloneState::Serving).map(|clone| clone.version).collect()
    }
}

/// How a version follows another: when the verdict came, why it was taken back if it was, and the world some time later.
fn story(seed: u64, does: [Does; 2], off: bool) -> (Span, Option<String>, World) {
    let (nodes, clones) = (1 + seed as usize % 3, 1 + seed as u32 / 3 % 4);
    let mut world = World::new(seed, nodes, clones, does);
    let so_long = Span::millis(world.rng.between(3000, 40_000));
    world.run(so_long);
    if off {
        world.declare(Declared { off: true, ..world.declared });
        world.run(Span::secs(3));
    }
    world.declare(Declared { next: Some(2), ..world.declared });
    if off {
        world.run(Span::secs(3));
        assert_eq!(world.verdict, None, "seed {seed}: nobody judges what runs nowhere");
        world.declare(Declared { off: false, ..world.declared });
    }
    let began = world.now.mono;
    while world.verdict.is_none() && world.now.mono.since(began) < Span::secs(300) {
        world.tick();
    }
    let (at, why) = world.verdict.clone().unwrap_or_else(|| panic!("seed {seed}: it never ends"));
    world.run(Span::secs(15));
    (at.since(began), why, world)
}

#[test]
fn a_version_that_serves_follows_one_that_dies_within_seconds() {
    for seed in 0..48 {
        let (took, why, world) = story(seed, [Dies, Serves], seed % 2 == 1);
        assert_eq!(why, None, "seed {seed}");
        assert_eq!(world.serving(), vec![2; world.clones as usize], "seed {seed}");
        assert!(took < Span::secs(12), "seed {seed}: {took:?}");
        assert!(world.short.is_empty(), "seed {seed}: {:?}", world.short);
    }
}

#[test]
fn a_version_that_serves_follows_one_that_does_and_nothing_is_started_for_a_moment() {
    for seed in 0..48 {
        let (_, why, world) = story(seed, [Serves, Serves], seed % 4 == 3);
        assert_eq!(why, None, "seed {seed}");
        assert_eq!(world.serving(), vec![2; world.clones as usize], "seed {seed}");
        assert!(world.short.is_empty(), "seed {seed}: {:?}", world.short);
    }
}

#[test]
fn a_version_that_dies_goes_back_whatever_the_one_before_did() {
    for seed in 0..48 {
        let old = if seed % 2 == 0 { Serves } else { Dies };
        let (took, why, world) = story(seed, [old, Dies], seed % 3 == 2);
        assert!(why.as_ref().is_some_and(|why| why.contains(" died ")), "seed {seed}: {why:?}");
        let serve = if old == Serves { world.clones as usize } else { 0 };
        assert_eq!(world.serving(), vec![1; serve], "seed {seed}");
        assert!(took < Span::secs(20), "seed {seed}: {took:?}");
        assert!(world.short.is_empty(), "seed {seed}: {:?}", world.short);
    }
}
