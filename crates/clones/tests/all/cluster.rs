//! Several nodes' groups and managers together, in virtual time from a seed: beacons come late, nodes are killed and come
//! back, the net parts, processes die. Membership, election and processes are simple models; what decides is what ships.
//! The promises: no clone runs twice for long, and when the trouble ends every clone serves once, evenly spread.

use std::collections::{BTreeMap, BTreeSet};

use base::{Exit, NodeId, Now, ProcId, Rng, Signal, Span, Time};
use bytes::Bytes;
use clones::{Assignments, CloneId, CloneState, Group, Manager, NodeClones, NodeLoad, ServiceSpec, group, manager};

const TICK: Span = Span::millis(20);
/// A move takes at most 30 s, and its losers then leave the routes and drain; a killed node is known dead after 1 s.
const TWICE_MAX: Span = Span::secs(45);

struct Node {
    group: Group,
    manager: Manager,
    procs: BTreeMap<ProcId, Proc>,
    /// What this node has heard of each node (itself included): clones and assignments, as bytes.
    heard: BTreeMap<NodeId, (Option<Bytes>, Option<Bytes>)>,
    leads: bool,
    told_at: Time,
}

struct Proc {
    id: String,
    up_at: Time,
    spawned: bool,
    probe: bool,
    dies_at: Option<Time>,
}

#[derive(Clone)]
enum Beacon {
    Clones(Bytes),
    Assignments(Option<Bytes>),
}

struct World {
    rng: Rng,
    now: Now,
    nodes: BTreeMap<NodeId, Node>,
    /// On their way: when, to, from, what.
    air: Vec<(Time, NodeId, NodeId, Beacon)>,
    /// Nodes on the far side of a cut.
    cut: BTreeSet<NodeId>,
    /// Since when the living, the cut and the leader are as they are: others learn of it a moment later.
    quiet_since: Time,
    services: BTreeMap<String, ServiceSpec>,
    twice_since: BTreeMap<CloneId, Time>,
    /// A planted bug: this node's group hears only the first assignments.
    deaf: Option<NodeId>,
    faults: bool,
}

impl World {
    fn new(seed: u64, nodes: u64, services: &[(&str, u32)]) -> Self {
        let spec = |clones| ServiceSpec {
            clones: u32::into(clones),
            health: Some("/".into()),
            stop: clones::Stop { drain: Span::secs(1), ..Default::default() },
            ..ServiceSpec::new(["app"])
        };
        let mut world = Self {
            rng: Rng::new(seed),
            now: Now { mono: Time(1_000_000), wall_ms: 0 },
            nodes: BTreeMap::new(),
            air: Vec::new(),
            cut: BTreeSet::new(),
            quiet_since: Time::ZERO,
            services: services.iter().map(|(name, clones)| (name.to_string(), spec(*clones))).collect(),
            twice_since: BTreeMap::new(),
            deaf: None,
            faults: true,
        };
        for id in 1..=nodes {
            world.boot(NodeId(id));
        }
        world
    }

    fn boot(&mut self, id: NodeId) {
        let group = Group::new(id, base::Boot(1), format!("n{}", id.0), "http://127.0.0.1:7070", self.rng.fork());
        let (procs, heard) = (BTreeMap::new(), BTreeMap::new());
        let manager = Manager::new(id, base::Boot(1));
        self.nodes.insert(id, Node { group, manager, procs, heard, leads: false, told_at: Time::ZERO });
        let services =
            group::Input::Declared(group::Declared { services: self.services.clone(), ..Default::default() });
        self.give_group(id, services);
        self.publish_clones(id);
        // The gossip brings a newcomer what the others hold.
        for from in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.resend(from, id);
        }
        self.quiet_since = self.now.mono;
    }

    fn kill(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        self.air.retain(|(_, to, from, _)| *to != id && *from != id);
        for node in self.nodes.values_mut() {
            // As the beacons have it: a new boot's facts replace these, a death alone does not.
            if let Some(heard) = node.heard.get_mut(&id) {
                heard.0 = None;
            }
        }
        self.quiet_since = self.now.mono;
    }

    fn reach(&self, a: NodeId, b: NodeId) -> bool {
        self.cut.contains(&a) == self.cut.contains(&b)
    }

    fn resend(&mut self, from: NodeId, to: NodeId) {
        let Some((clones, assignments)) = self.nodes[&from].heard.get(&from).cloned() else { return };
        if let Some(clones) = clones {
            self.send(from, to, Beacon::Clones(clones));
        }
        self.send(from, to, Beacon::Assignments(assignments));
    }

    fn send(&mut self, from: NodeId, to: NodeId, beacon: Beacon) {
        if self.reach(from, to) && from != to {
            let delay = Span::millis(self.rng.below(if self.faults { 250 } else { 20 }));
            self.air.push((self.now.mono + delay, to, from, beacon));
        }
    }

    fn spread(&mut self, from: NodeId, beacon: Beacon) {
        for to in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.send(from, to, beacon.clone());
        }
        self.heard(from, from, beacon);
    }

    fn publish_clones(&mut self, id: NodeId) {
        let bytes = self.nodes[&id].group.node_clones().encode();
        self.spread(id, Beacon::Clones(bytes));
    }

    fn heard(&mut self, to: NodeId, from: NodeId, beacon: Beacon) {
        let Some(node) = self.nodes.get_mut(&to) else { return };
        let slot = node.heard.entry(from).or_default();
        match beacon {
            Beacon::Clones(bytes) => slot.0 = Some(bytes),
            Beacon::Assignments(bytes) => {
                slot.1 = bytes.clone();
                let Some(read) = bytes.map(|bytes| Assignments::decode(&bytes).unwrap()) else { return };
                if from != to {
                    self.give_manager(to, manager::Input::Seen(read.clone()));
                }
                self.give_group(to, group::Input::Assigned(read));
            }
        }
    }

    fn give_group(&mut self, id: NodeId, input: group::Input) {
        let node = self.nodes.get_mut(&id).unwrap();
        let knows = node.group.assigned().term > 0;
        if self.deaf == Some(id) && knows && matches!(input, group::Input::Assigned(_)) {
            return;
        }
        let mut out = Vec::new();
        node.group.handle(self.now, input, &mut out);
        for output in out {
            self.act(id, output);
        }
    }

    fn act(&mut self, id: NodeId, output: group::Output) {
        let now = self.now.mono;
        let lives_short = self.faults && self.rng.chance(0.3);
        let node = self.nodes.get_mut(&id).unwrap();
        match output {
            group::Output::Spawn { proc, spec } => {
                let up_at = now + Span::millis(self.rng.between(50, 1500));
                let dies_at = lives_short.then(|| now + Span::millis(self.rng.below(20_000)));
                node.procs.insert(proc, Proc { id: spec.name, up_at, spawned: false, probe: false, dies_at });
            }
            group::Output::Signal { proc, signal } => {
                if let Some(proc) = node.procs.get_mut(&proc) {
                    let wait = if signal == Signal::Kill { 20 } else { self.rng.below(2000) };
                    proc.dies_at = Some(proc.dies_at.unwrap_or(Time::NEVER).min(now + Span::millis(wait)));
                }
            }
            group::Output::Probe { proc, .. } => {
                if let Some(proc) = node.procs.get_mut(&proc) {
                    proc.probe = true;
                }
            }
            group::Output::Changed => self.publish_clones(id),
            group::Output::Happened(_) => (),
        }
    }

    fn give_manager(&mut self, id: NodeId, input: manager::Input) {
        let mut out = Vec::new();
        self.nodes.get_mut(&id).unwrap().manager.handle(self.now, input, &mut out);
        for output in out {
            match output {
                manager::Output::Assign(assignments) => {
                    self.spread(id, Beacon::Assignments(Some(assignments.encode())));
                }
                manager::Output::Withdraw => self.spread(id, Beacon::Assignments(None)),
                manager::Output::Happened(_) | manager::Output::Verdict { .. } => (),
            }
        }
    }

    /// One tick of a node's processes.
    fn processes(&mut self, id: NodeId) {
        let now = self.now.mono;
        let mut inputs = Vec::new();
        let node = self.nodes.get_mut(&id).unwrap();
        node.procs.retain(|proc, p| {
            let proc = *proc;
            if p.dies_at.is_some_and(|at| at <= now) {
                inputs.push(group::Input::Exited { proc, exit: Exit::Code(1) });
                return false;
            }
            if !std::mem::replace(&mut p.spawned, true) {
                inputs.push(group::Input::Spawned { proc, pid: proc.0 as u32, port: 4000 });
            }
            if std::mem::take(&mut p.probe) {
                let result = if now >= p.up_at { Ok(()) } else { Err("refused".into()) };
                inputs.push(group::Input::Probed { proc, result });
            }
            true
        });
        for input in inputs {
            self.give_group(id, input);
        }
    }

    /// The side with most nodes has a leader once things have been quiet for a while; the other one's leader gives up.
    fn leader(&self) -> Option<NodeId> {
        let (far, near): (Vec<NodeId>, Vec<NodeId>) = self.nodes.keys().partition(|id| self.cut.contains(id));
        let side = if far.len() > near.len() { far } else { near };
        side.first().copied().filter(|_| self.now.mono.since(self.quiet_since) > Span::millis(1200))
    }

    fn tell_manager(&mut self, id: NodeId) {
        let leads = self.leader() == Some(id);
        // A leader that lost its side does not know it for a second.
        let doubt = self.now.mono.since(self.quiet_since) < Span::secs(1);
        let node = &self.nodes[&id];
        if node.leads != leads && (leads || !doubt) {
            self.nodes.get_mut(&id).unwrap().leads = leads;
            self.give_manager(id, manager::Input::Leads(leads));
        }
        let node = &self.nodes[&id];
        if self.now.mono.since(node.told_at) < Span::millis(100) {
            return;
        }
        let live = self.nodes.keys().filter(|other| self.reach(id, **other)).map(|other| {
            let says = node.heard.get(other).and_then(|heard| heard.0.as_ref());
            let says = says.map(|bytes| NodeClones::decode(bytes).unwrap());
            NodeLoad::new(*other, format!("n{}", other.0), 0, says.as_ref())
        });
        let (live, off) = (live.collect(), BTreeSet::new());
        let input = manager::Input::Cluster {
            services: self.services.clone(),
            live,
            dead: BTreeSet::new(),
            off,
            next: BTreeMap::new(),
        };
        self.nodes.get_mut(&id).unwrap().told_at = self.now.mono;
        self.give_manager(id, input);
    }

    fn tick(&mut self) {
        self.now.mono = self.now.mono + TICK;
        self.now.wall_ms += TICK.as_millis();
        let now = self.now.mono;
        let (due, rest) = std::mem::take(&mut self.air).into_iter().partition(|(at, ..)| *at <= now);
        self.air = rest;
        for (_, to, from, beacon) in due {
            if self.reach(to, from) {
                self.heard(to, from, beacon);
            }
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.processes(id);
            if self.nodes[&id].group.wake_at().is_some_and(|at| at <= now) {
                self.give_group(id, group::Input::Wake);
            }
            if self.nodes[&id].manager.wake_at().is_some_and(|at| at <= now) {
                self.give_manager(id, manager::Input::Wake);
            }
            self.tell_manager(id);
        }
        // The once a second repair of the gossip: a random pair.
        if self.rng.chance(0.1 * self.nodes.len() as f64) {
            let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
            let (from, to) = (*self.rng.pick(&ids).unwrap(), *self.rng.pick(&ids).unwrap());
            self.resend(from, to);
        }
    }

    fn fault(&mut self, all: u64) {
        let id = NodeId(self.rng.between(1, all));
        match self.rng.below(4) {
            0 if self.nodes.contains_key(&id) && self.nodes.len() > 1 => self.kill(id),
            0 | 1 if !self.nodes.contains_key(&id) => self.boot(id),
            2 if self.cut.is_empty() => {
                self.cut = (1..=all).map(NodeId).filter(|_| self.rng.chance(0.4)).collect();
                self.quiet_since = self.now.mono;
            }
            3 => self.heal(),
            _ => (),
        }
    }

    fn heal(&mut self) {
        if std::mem::take(&mut self.cut).is_empty() {
            return;
        }
        self.quiet_since = self.now.mono;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for from in &ids {
            for to in &ids {
                self.resend(*from, *to);
            }
        }
    }

    /// Promise 1. In a parted net both sides run what they can; it counts from the moment the net is whole.
    fn check_twice(&mut self) -> Result<(), String> {
        let mut count: BTreeMap<CloneId, u32> = BTreeMap::new();
        for node in self.nodes.values().filter(|_| self.cut.is_empty()) {
            for clone in node.group.clones() {
                let runs = matches!(clone.state, CloneState::Starting | CloneState::Serving);
                *count.entry(clone.id).or_default() += u32::from(runs);
            }
        }
        self.twice_since.retain(|id, _| count.get(id).is_some_and(|n| *n > 1));
        for (id, _) in count.iter().filter(|(_, n)| **n > 1) {
            let since = *self.twice_since.entry(id.clone()).or_insert(self.now.mono);
            if self.now.mono.since(since) > TWICE_MAX {
                return Err(format!("{id} runs twice since {since:?}"));
            }
        }
        Ok(())
    }

    /// Promise 2.
    fn check_rest(&self) -> Result<(), String> {
        let mut at: BTreeMap<CloneId, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in &self.nodes {
            for clone in node.group.clones() {
                if clone.state != CloneState::Serving {
                    return Err(format!("{} at {id} is {:?}", clone.id, clone.state));
                }
                at.entry(clone.id).or_default().push(*id);
            }
            let names: BTreeSet<&str> = node.procs.values().map(|proc| proc.id.as_str()).collect();
            if names.len() != node.procs.len() || node.procs.len() != node.group.clones().len() {
                return Err(format!("{id} runs {names:?} in {} processes", node.procs.len()));
            }
        }
        for (name, spec) in &self.services {
            let mut counts: BTreeMap<NodeId, u32> = self.nodes.keys().map(|id| (*id, 0)).collect();
            for number in 0..spec.clones.max {
                match at.remove(&CloneId::new(name, number)).as_deref() {
                    Some([node]) => *counts.get_mut(node).unwrap() += 1,
                    other => return Err(format!("{name}/{number} runs at {other:?}")),
                }
            }
            if counts.values().max().unwrap() - counts.values().min().unwrap() > 1 {
                return Err(format!("{name} is not spread evenly: {counts:?}"));
            }
        }
        if at.is_empty() { Ok(()) } else { Err(format!("nobody wants {at:?}")) }
    }

    fn run(&mut self, span: Span, faults: Option<u64>) -> Result<(), String> {
        let end = self.now.mono + span;
        while self.now.mono < end {
            if let Some(all) = faults.filter(|_| self.rng.chance(0.006)) {
                self.fault(all);
            }
            self.tick();
            self.check_twice()?;
        }
        Ok(())
    }

    /// No more trouble: all nodes are back and processes stop dying by themselves.
    fn calm(&mut self, all: u64) {
        self.faults = false;
        self.heal();
        for id in (1..=all).map(NodeId) {
            if !self.nodes.contains_key(&id) {
                self.boot(id);
            }
        }
        for proc in self.nodes.values_mut().flat_map(|node| node.procs.values_mut()) {
            proc.dies_at = proc.dies_at.map(|at| at.min(self.now.mono + Span::secs(1)));
        }
    }
}

/// Two minutes of trouble, two of peace.
fn story(seed: u64, nodes: u64, deaf: Option<NodeId>) -> Result<(), String> {
    let mut world = World::new(seed, nodes, &[("api", 2), ("shop", 5)]);
    world.deaf = deaf;
    world.run(Span::secs(120), Some(nodes))?;
    world.calm(nodes);
    world.run(Span::secs(120), None)?;
    world.check_rest()
}

#[test]
fn a_quiet_cluster_starts_everything_within_three_seconds() {
    for seed in 0..5 {
        let mut world = World::new(seed, 3, &[("api", 2), ("shop", 5)]);
        world.faults = false;
        world.run(Span::secs(1 + 1 + 3), None).unwrap();
        world.check_rest().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_killed_nodes_clones_serve_elsewhere_soon_and_none_of_the_others_is_disturbed() {
    for victim in 1..=3 {
        let mut world = World::new(victim, 3, &[("shop", 3)]);
        world.faults = false;
        world.run(Span::secs(6), None).unwrap();
        let before: BTreeMap<NodeId, Vec<ProcId>> =
            world.nodes.iter().map(|(id, node)| (*id, node.procs.keys().copied().collect())).collect();
        world.kill(NodeId(victim));
        // Election, the new leader's doubt, the slowest start.
        world.run(Span::millis(1300 + 2100 + 2000), None).unwrap();
        world.check_rest().unwrap();
        for (id, node) in &world.nodes {
            assert!(before[id].iter().all(|proc| node.procs.contains_key(proc)), "{id} lost a clone that was well");
        }
        world.boot(NodeId(victim));
        world.run(Span::secs(15), None).unwrap();
        world.check_rest().unwrap();
        assert_eq!(world.nodes[&NodeId(victim)].procs.len(), 1, "it has work again");
    }
}

#[test]
fn after_kills_partitions_and_deaths_every_clone_serves_once_and_none_ran_twice_for_long() {
    for seed in 0..24 {
        let nodes = 2 + seed % 4;
        story(seed, nodes, None).unwrap_or_else(|why| panic!("seed {seed}, {nodes} nodes: {why}"));
    }
}

#[test]
fn the_promises_catch_a_node_that_does_not_obey() {
    let caught = (0..6).filter(|seed| story(*seed, 3, Some(NodeId(2))).is_err()).count();
    assert!(caught >= 5, "a deaf group was noticed in {caught} of 6 stories");
}
