//! Stories of nodes that come, go, hang and are cut off, in virtual time: a small network of real machines.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::card::tests::card;
use base::{Now, Rng, Span, Time};

mod judge;

/// What is to happen on the network.
enum Next {
    Give {
        to: NodeId,
        life: Boot,
        input: Input,
    },
    /// A dial reaches its address (or not).
    Dial {
        by: NodeId,
        life: Boot,
        addr: SocketAddr,
        peer: Option<NodeId>,
    },
    Wake {
        to: NodeId,
        life: Boot,
    },
    Resume {
        id: NodeId,
        life: Boot,
    },
}

struct Node {
    machine: Membership,
    boot: Boot,
    up: bool,
    /// Stopped: what comes in waits here.
    backlog: Option<Vec<Input>>,
    /// The earliest wake that is on its way.
    wake: Time,
    /// Who is live and in which boot, by what it said.
    sees: BTreeMap<NodeId, Boot>,
}

struct Net {
    now: Time,
    queue: BTreeMap<(Time, u64), Next>,
    count: u64,
    nodes: BTreeMap<NodeId, Node>,
    links: BTreeSet<(NodeId, NodeId)>,
    cut: BTreeSet<(NodeId, NodeId)>,
    loss: f64,
    double: f64,
    delay: (Span, Span),
    rng: Rng,
    log: Vec<(Time, NodeId, Output)>,
    refuted: Vec<(NodeId, String)>,
    /// By whom, of whom.
    bad: Vec<(NodeId, NodeId)>,
}

fn id(n: u64) -> NodeId {
    NodeId(n)
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Net {
    /// Nodes 1 to `n`, all told of node 1, and started at once.
    fn new(n: u64, seed: u64) -> Self {
        let mut net = Self {
            now: Time(1_000_000),
            queue: BTreeMap::new(),
            count: 0,
            nodes: BTreeMap::new(),
            links: BTreeSet::new(),
            cut: BTreeSet::new(),
            loss: 0.0,
            double: 0.0,
            delay: (Span::micros(100), Span::millis(2)),
            rng: Rng::new(seed),
            log: Vec::new(),
            refuted: Vec::new(),
            bad: Vec::new(),
        };
        (1..=n).for_each(|i| net.start(id(i), Boot(1)));
        net
    }

    /// The same, after everybody has met.
    fn met(n: u64, seed: u64) -> Self {
        let mut net = Self::new(n, seed);
        net.run(Span::secs(3));
        net.assert_all_live();
        net.log.clear();
        net
    }

    fn start(&mut self, id: NodeId, boot: Boot) {
        let machine = Membership::new(card(id.0, boot.0), vec![card(1, 0).peer()], self.rng.fork());
        let sees = BTreeMap::new();
        self.nodes.insert(id, Node { machine, boot, up: true, backlog: None, wake: Time::NEVER, sees });
        self.plan_wake(id);
    }

    fn push(&mut self, after: Span, next: Next) {
        self.count += 1;
        self.queue.insert((self.now + after, self.count), next);
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = entry.key().0;
            let next = entry.remove();
            self.step(next);
        }
        self.now = end;
    }

    fn step(&mut self, next: Next) {
        match next {
            Next::Give { to, life, input } => {
                let node = self.nodes.get_mut(&to).unwrap();
                if node.boot != life || !node.up {
                    return;
                }
                if let Some(backlog) = &mut node.backlog {
                    return backlog.push(input);
                }
                // A frame on a link that has ended meanwhile is lost.
                if let Input::Frame { from, .. } = &input
                    && !self.links.contains(&pair(to, *from))
                {
                    return;
                }
                self.give(to, input);
            }
            Next::Wake { to, life } => {
                let node = self.nodes.get_mut(&to).unwrap();
                if node.boot == life && node.up && node.backlog.is_none() {
                    node.wake = Time::NEVER;
                    self.give(to, Input::Wake);
                }
            }
            Next::Dial { by, life, addr, peer } => self.dial(by, life, addr, peer),
            Next::Resume { id, life } => {
                if self.nodes[&id].boot == life && self.nodes[&id].up {
                    self.resume(id);
                }
            }
        }
    }

    fn give(&mut self, to: NodeId, input: Input) {
        let mut out = Vec::new();
        let now = Now { mono: self.now, wall_ms: 0 };
        self.nodes.get_mut(&to).unwrap().machine.handle(now, input, &mut out);
        for output in out {
            self.carry_out(to, output);
        }
        self.check(to);
        self.plan_wake(to);
    }

    fn carry_out(&mut self, of: NodeId, output: Output) {
        let (now, log) = (self.now, &mut self.log);
        let node = self.nodes.get_mut(&of).unwrap();
        match output {
            Output::Send { to, head } => return self.send(of, to, head),
            Output::Dial { addr, peer } => {
                let life = node.boot;
                return self.push(Span::millis(1), Next::Dial { by: of, life, addr, peer });
            }
            Output::Birth { ref card } => {
                let before = node.sees.insert(card.id, card.boot);
                assert_eq!(before, None, "{of} saw {} born while it lived", card.id);
            }
            Output::Death { id, boot } => {
                assert_eq!(node.sees.remove(&id), Some(boot), "{of} saw {id} die, who did not live like that");
            }
            Output::Suspect { id } | Output::Trust { id } => assert!(node.sees.contains_key(&id)),
            Output::Older { why, .. } => panic!("no disk is older here: {why}"),
            Output::Refuted { what } => return self.refuted.push((of, what)),
            Output::Bad { from, .. } => return self.bad.push((of, from)),
        }
        log.push((now, of, output));
    }

    /// What a node says and what it shows must be one.
    fn check(&self, of: NodeId) {
        let node = &self.nodes[&of];
        let mut sees = node.sees.clone();
        sees.insert(of, node.boot);
        assert!(node.machine.live().map(|card| (card.id, card.boot)).eq(sees), "{of} shows other than it said");
    }

    fn plan_wake(&mut self, of: NodeId) {
        let node = self.nodes.get_mut(&of).unwrap();
        let Some(at) = node.machine.wake_at().filter(|at| *at < node.wake) else { return };
        node.wake = at;
        let life = node.boot;
        self.push(at.since(self.now), Next::Wake { to: of, life });
    }

    fn send(&mut self, from: NodeId, to: NodeId, head: Bytes) {
        if !self.links.contains(&pair(from, to)) || self.cut.contains(&pair(from, to)) {
            return;
        }
        let times = if self.rng.chance(self.loss) { 0 } else { 1 + usize::from(self.rng.chance(self.double)) };
        for _ in 0..times {
            let delay = Span(self.rng.between(self.delay.0.0, self.delay.1.0));
            let life = self.nodes[&to].boot;
            self.push(delay, Next::Give { to, life, input: Input::Frame { from, head: head.clone() } });
        }
    }

    fn dial(&mut self, by: NodeId, life: Boot, addr: SocketAddr, peer: Option<NodeId>) {
        let there = self.nodes.iter().find(|(id, _)| card(id.0, 0).peer() == addr).map(|(id, _)| *id);
        let fails = |why, after| (why, Span::millis(after));
        let end = match there {
            Some(to) if self.cut.contains(&pair(by, to)) => fails(LinkEnd::TimedOut, 300),
            Some(to) if !self.nodes[&to].up => fails(LinkEnd::Refused, 1),
            Some(to) if peer.is_some_and(|peer| peer != to) => fails(LinkEnd::Rejected, 2),
            Some(to) if self.nodes[&to].backlog.is_some() => fails(LinkEnd::TimedOut, 1300),
            Some(to) if self.nodes[&by].boot == life && self.nodes[&by].up => {
                if self.links.insert(pair(by, to)) {
                    for (node, other) in [(by, to), (to, by)] {
                        let card = card(other.0, self.nodes[&other].boot.0);
                        let life = self.nodes[&node].boot;
                        self.push(
                            Span::millis(1),
                            Next::Give { to: node, life, input: Input::Linked { card: Box::new(card) } },
                        );
                    }
                }
                return;
            }
            Some(_) => return,
            None => fails(LinkEnd::Refused, 1),
        };
        let input = Input::Unlinked { peer, addr: Some(addr), why: end.0 };
        self.push(end.1, Next::Give { to: by, life, input });
    }

    fn kill(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().up = false;
        self.drop_links(|a, b| a == id || b == id, LinkEnd::Closed);
    }

    fn drop_links(&mut self, which: impl Fn(NodeId, NodeId) -> bool, why: LinkEnd) {
        let gone: Vec<_> = self.links.iter().copied().filter(|(a, b)| which(*a, *b)).collect();
        for (a, b) in gone {
            self.links.remove(&(a, b));
            for (to, peer) in [(a, b), (b, a)] {
                let life = self.nodes[&to].boot;
                let input = Input::Unlinked { peer: Some(peer), addr: None, why };
                self.push(Span::millis(1), Next::Give { to, life, input });
            }
        }
    }

    fn restart(&mut self, id: NodeId) {
        self.kill(id);
        self.start(id, Boot(self.nodes[&id].boot.0 + 1));
    }

    fn hang(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().backlog.get_or_insert_default();
    }

    fn hang_for(&mut self, id: NodeId, span: Span) {
        self.hang(id);
        let life = self.nodes[&id].boot;
        self.push(span, Next::Resume { id, life });
    }

    fn resume(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.wake = Time::NEVER;
        for input in node.backlog.take().unwrap_or_default() {
            self.give(id, input);
        }
        self.give(id, Input::Wake);
    }

    /// Cuts all between the two sides, in silence.
    fn split(&mut self, left: &[u64]) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for a in &ids {
            for b in &ids {
                if left.contains(&a.0) != left.contains(&b.0) {
                    self.cut.insert(pair(*a, *b));
                }
            }
        }
    }

    fn all_live(&self) -> bool {
        let up: BTreeMap<_, _> = self.nodes.iter().filter(|(_, n)| n.up).map(|(id, n)| (*id, n.boot)).collect();
        self.nodes.iter().filter(|(_, node)| node.up).all(|(id, node)| {
            let mut sees = node.sees.clone();
            sees.insert(*id, node.boot);
            sees == up && node.machine.known().all(|(_, standing)| standing != Standing::Suspect)
        })
    }

    fn assert_all_live(&self) {
        let seen: Vec<_> = self.nodes.iter().map(|(id, n)| (id, n.up, n.boot, &n.sees)).collect();
        assert!(self.all_live(), "not all who are up are seen: {seen:?}");
    }

    /// When each node said that `dead` died, counted from `since`.
    fn deaths_of(&self, dead: NodeId, since: Time) -> BTreeMap<NodeId, Span> {
        let is_it = |o: &Output| matches!(o, Output::Death { id, .. } if *id == dead);
        self.log.iter().filter(|(_, _, o)| is_it(o)).map(|(at, by, _)| (*by, at.since(since))).collect()
    }

    fn deaths(&self) -> usize {
        self.log.iter().filter(|(_, _, output)| matches!(output, Output::Death { .. })).count()
    }
}

/// Lets something happen to node 2 of `n`, and expects all others to see its death within these bounds.
fn check_detection(n: u64, seed: u64, fault: impl Fn(&mut Net), earliest: Span, latest: Span) {
    let mut net = Net::met(n, seed);
    let moment = Span(net.rng.below(1_000_000));
    net.run(moment);
    let since = net.now;
    fault(&mut net);
    net.run(Span::secs(5));
    let seen = net.deaths_of(id(2), since);
    assert_eq!(seen.len() as u64, n - 1, "{n} nodes, seed {seed}: seen by {seen:?}");
    assert!(seen.values().all(|span| (earliest..latest).contains(span)), "{n} nodes, seed {seed}: {seen:?}");
    assert_eq!(net.deaths() as u64, n - 1, "{n} nodes, seed {seed}: somebody else was declared dead");
}

#[test]
fn nodes_that_know_one_seed_soon_know_and_link_all() {
    for n in [2, 3, 10, 50] {
        let mut net = Net::new(n, n);
        net.run(Span::millis(if n <= 10 { 500 } else { 2000 }));
        net.assert_all_live();
        net.run(Span::secs(2));
        assert_eq!(net.links.len() as u64, n * (n - 1) / 2, "a link between each two of {n}");
        assert_eq!(net.deaths(), 0);
    }
}

#[test]
fn a_killed_process_is_known_dead_to_all_within_half_a_second() {
    for (n, seeds) in [(2, 20), (3, 20), (5, 10), (20, 2)] {
        for seed in 0..seeds {
            check_detection(n, seed, |net| net.kill(id(2)), Span::ZERO, Span::millis(100));
        }
    }
}

#[test]
fn a_hung_process_is_known_dead_to_all_within_three_seconds_and_not_at_once() {
    for (n, seeds) in [(2, 20), (3, 20), (5, 10), (20, 2)] {
        for seed in 0..seeds {
            check_detection(n, seed, |net| net.hang(id(2)), Span::millis(1400), Span::millis(2700));
        }
    }
}

#[test]
fn a_machine_that_is_gone_without_a_word_is_known_dead_within_three_seconds() {
    for seed in 0..10 {
        let gone = |net: &mut Net| {
            net.split(&[2]);
            net.drop_links(|a, b| a == id(2) || b == id(2), LinkEnd::TimedOut);
            net.nodes.get_mut(&id(2)).unwrap().up = false;
        };
        check_detection(4, seed, gone, Span::millis(1400), Span::secs(3));
    }
}

#[test]
fn a_doubt_makes_a_hung_process_known_sooner() {
    for seed in 0..10 {
        let fault = |net: &mut Net| {
            net.hang(id(2));
            net.run(Span::millis(60));
            net.give(id(1), Input::Doubt { peer: id(2) });
        };
        check_detection(3, seed, fault, Span::millis(1400), Span::millis(2100));
    }
}

#[test]
fn a_doubt_about_a_node_that_answers_changes_nothing() {
    let mut net = Net::met(3, 1);
    for _ in 0..200 {
        net.give(id(1), Input::Doubt { peer: id(2) });
        net.run(Span::millis(20));
    }
    assert_eq!(net.log, vec![]);
}

#[test]
fn a_process_that_hangs_for_a_while_refutes() {
    for seed in 0..20 {
        let mut net = Net::met(3, seed);
        net.hang_for(id(2), Span::millis(1300));
        net.run(Span::secs(10));
        let suspected = net.log.iter().any(|(_, _, output)| matches!(output, Output::Suspect { id: NodeId(2) }));
        assert!(suspected, "seed {seed}: a hang of over a second is seen");
        assert_eq!(net.deaths(), 0, "seed {seed}");
        net.assert_all_live();
    }
}

#[test]
fn a_process_that_was_stopped_for_long_blames_nobody_and_comes_back_in_the_same_boot() {
    for seed in 0..20 {
        let mut net = Net::met(3, seed);
        net.hang_for(id(2), Span::secs(20));
        net.run(Span::secs(21));
        net.assert_all_live();
        assert_eq!(net.deaths(), 2, "seed {seed}: nobody but node 2 was declared dead");
        assert_eq!(net.nodes[&id(1)].sees[&id(2)], Boot(1));
    }
}

#[test]
fn who_was_taken_for_dead_and_came_back_over_the_same_link_is_known_dead_at_once_when_killed() {
    for seed in 0..20 {
        let mut net = Net::met(3, seed);
        net.hang_for(id(2), Span::secs(20));
        net.run(Span::secs(21));
        assert_eq!(net.deaths(), 2, "seed {seed}");
        net.run(Span::secs(5));
        let killed = net.now;
        net.kill(id(2));
        net.run(Span::secs(5));
        let seen = net.deaths_of(id(2), killed);
        assert_eq!(seen.len(), 2, "seed {seed}");
        assert!(seen.values().all(|span| *span < Span::millis(100)), "seed {seed}: {seen:?}");
    }
}

#[test]
fn a_suspicion_that_was_slept_through_is_no_death() {
    for seed in 0..20 {
        let mut net = Net::met(3, seed);
        // Nodes 1 and 2 are stopped just after they began to suspect node 3, which then runs again.
        net.hang(id(3));
        net.run(Span::millis(1200));
        net.hang(id(1));
        net.hang(id(2));
        net.resume(id(3));
        net.run(Span::secs(20));
        for n in [1, 2] {
            // The clock comes first, whatever waits at the door.
            net.nodes.get_mut(&id(n)).unwrap().wake = Time::NEVER;
            let waiting = net.nodes.get_mut(&id(n)).unwrap().backlog.take();
            net.give(id(n), Input::Wake);
            waiting.unwrap().into_iter().for_each(|input| net.give(id(n), input));
        }
        net.run(Span::secs(10));
        assert_eq!(net.deaths_of(id(3), Time::ZERO), BTreeMap::new(), "seed {seed}");
        net.assert_all_live();
    }
}

#[test]
fn whatever_is_heard_of_a_node_keeps_it_alive() {
    let mut net = Net::met(2, 1);
    net.cut.insert((id(1), id(2)));
    for _ in 0..300 {
        net.run(Span::millis(100));
        let now = Now { mono: net.now, wall_ms: 0 };
        net.nodes.get_mut(&id(1)).unwrap().machine.heard(now, id(2));
    }
    assert_eq!(net.nodes[&id(1)].sees.get(&id(2)), Some(&Boot(1)));
    assert_eq!(net.nodes[&id(2)].sees.get(&id(1)), None, "which heard nothing");
}

#[test]
fn a_suspect_is_told_even_after_all_gossip_has_gone_by() {
    for seed in 0..2 {
        let mut net = Net::met(20, seed);
        net.split(&[2]);
        net.run(Span::millis(1500));
        net.cut.clear();
        net.run(Span::secs(10));
        assert_eq!(net.deaths(), 0, "seed {seed}");
        net.assert_all_live();
    }
}

#[test]
fn a_restarted_node_is_a_death_and_a_birth() {
    for seed in 0..20 {
        let mut net = Net::met(3, seed);
        net.restart(id(2));
        net.run(Span::secs(1));
        net.assert_all_live();
        assert_eq!(net.deaths(), 2, "seed {seed}");
        assert_eq!(net.nodes[&id(3)].sees[&id(2)], Boot(2));
        // And when it stayed away for a while, even the seed that all others know.
        net.kill(id(1));
        net.run(Span::secs(60));
        net.restart(id(1));
        net.run(Span::secs(1));
        // It knows no seed but itself: the others find it, as they dial the dead.
        net.run(limits::DIAL_WAIT_MAX);
        net.assert_all_live();
    }
}

#[test]
fn a_partition_heals_by_itself_from_both_sides() {
    for seed in 0..3 {
        for (n, left) in [(2, vec![1]), (5, vec![1, 2]), (5, vec![4]), (12, vec![1, 2, 3, 4, 5, 6])] {
            let mut net = Net::met(n, seed);
            net.split(&left);
            net.run(Span::secs(60));
            let right = n - left.len() as u64;
            let each = net.nodes.iter().map(|(id, node)| (left.contains(&id.0), node.sees.len() as u64 + 1));
            assert!(each.into_iter().all(|(is_left, sees)| sees == if is_left { left.len() as u64 } else { right }));
            net.cut.clear();
            net.run(limits::DIAL_WAIT_MAX + Span::secs(2));
            net.assert_all_live();
            let deaths = net.deaths();
            net.run(Span::secs(30));
            assert_eq!(net.deaths(), deaths, "{n} nodes, seed {seed}: it stays healed");
            net.assert_all_live();
        }
    }
}

#[test]
fn two_that_cannot_reach_each_other_live_on_through_a_third() {
    for seed in 0..10 {
        for in_silence in [true, false] {
            let mut net = Net::met(3, seed);
            net.cut.insert(pair(id(1), id(2)));
            if !in_silence {
                net.drop_links(|a, b| (a, b) == (id(1), id(2)), LinkEnd::TimedOut);
            }
            net.run(Span::secs(120));
            assert_eq!(net.deaths(), 0, "seed {seed}, in silence {in_silence}");
            let suspicions = net.log.iter().filter(|(_, _, o)| matches!(o, Output::Suspect { .. })).count();
            assert!(suspicions < 20, "{suspicions} suspicions in two minutes");
        }
    }
}

#[test]
fn starved_processes_do_not_declare_each_other_dead() {
    for seed in 0..10 {
        let mut net = Net::met(4, seed);
        let since = net.now;
        // All run for a moment now and then, as on a machine with far too much to do.
        while net.now.since(since) < Span::secs(120) {
            for n in 1..=4 {
                if net.nodes[&id(n)].backlog.is_none() && net.rng.chance(0.5) {
                    let span = Span::millis(net.rng.between(50, 700));
                    net.hang_for(id(n), span);
                }
            }
            net.run(Span::millis(20));
        }
        assert_eq!(net.deaths(), 0, "seed {seed}");
    }
}

#[test]
fn a_lossy_slow_network_makes_no_deaths_and_still_finds_them() {
    for seed in 0..4 {
        let mut net = Net::met(5, seed);
        (net.loss, net.double, net.delay) = (0.2, 0.2, (Span::millis(1), Span::millis(150)));
        net.run(Span::secs(120));
        assert_eq!(net.deaths(), 0, "seed {seed}");
        let since = net.now;
        net.hang(id(2));
        net.run(Span::secs(5));
        let seen = net.deaths_of(id(2), since);
        assert_eq!((seen.len(), net.deaths()), (4, 4), "seed {seed}");
        assert!(seen.values().all(|span| *span < Span::millis(4500)), "seed {seed}: {seen:?}");
    }
}

#[test]
fn an_address_that_never_worked_for_us_may_refuse_without_a_death() {
    let mut net = Net::met(3, 1);
    net.cut.insert(pair(id(1), id(2)));
    net.nodes.remove(&id(1));
    // Node 1 starts anew and hears of node 2 from node 3 alone.
    net.start(id(1), Boot(2));
    net.links.retain(|(a, _)| *a != id(1));
    net.give(id(3), Input::Unlinked { peer: Some(id(1)), addr: None, why: LinkEnd::Closed });
    net.run(Span::secs(10));
    assert_eq!(net.nodes[&id(1)].sees.get(&id(2)), Some(&Boot(1)));
    let (deaths, addr) = (net.deaths(), card(2, 1).peer());
    for _ in 0..50 {
        net.give(id(1), Input::Unlinked { peer: Some(id(2)), addr: Some(addr), why: LinkEnd::Refused });
        net.run(Span::millis(200));
    }
    assert_eq!(net.deaths(), deaths);
}

#[test]
fn whoever_is_alone_dials_its_seeds_for_ever_and_seldom() {
    let mut machine = Membership::new(card(2, 1), vec![card(1, 1).peer(), card(2, 1).peer()], Rng::new(1));
    let (mut now, mut dials) = (Time::ZERO, Vec::new());
    for _ in 0..2000 {
        let mut out = Vec::new();
        machine.handle(Now { mono: now, wall_ms: 0 }, Input::Wake, &mut out);
        while let Some(output) = out.pop() {
            assert_eq!(output, Output::Dial { addr: card(1, 1).peer(), peer: None }, "not its own address");
            dials.push(now);
            let why = LinkEnd::TimedOut;
            let input = Input::Unlinked { peer: None, addr: Some(card(1, 1).peer()), why };
            machine.handle(Now { mono: now, wall_ms: 0 }, input, &mut out);
        }
        now = machine.wake_at().unwrap();
    }
    assert_eq!(dials[0], Time::ZERO);
    assert!(dials.len() > 1000);
    assert!(dials.windows(2).skip(10).all(|w| (4..=8).contains(&w[1].since(w[0]).as_millis().div_ceil(1000))));
}

#[test]
fn a_seed_that_belongs_to_nobody_known_joins_two_clusters_that_both_live() {
    let mut net = Net::met(2, 1);
    // Nodes 3 and 4 found each other elsewhere; 4 was told of 3 alone, 3 of node 1, which it could not reach.
    for (a, b) in [(1, 3), (1, 4), (2, 3), (2, 4)] {
        net.cut.insert((id(a), id(b)));
    }
    net.start(id(3), Boot(1));
    net.start(id(4), Boot(1));
    let seeds = vec![card(3, 1).peer()];
    net.nodes.get_mut(&id(4)).unwrap().machine = Membership::new(card(4, 1), seeds, Rng::new(9));
    net.run(Span::secs(30));
    assert_eq!(net.nodes[&id(3)].sees.len(), 1);
    net.cut.clear();
    net.run(limits::SEED_WAIT_QUIET + Span::secs(2));
    net.assert_all_live();
}

#[test]
fn a_frame_that_names_another_sender_than_its_link_is_rejected() {
    let mut net = Net::met(3, 1);
    let who = |n| who::Who { card: std::sync::Arc::new(card(n, 1)), epoch: 0 };
    let news = foca::Member::new(who(3), 0, foca::State::Down);
    let head = wire::tell(&who(3), &who(1), &news);
    net.give(id(1), Input::Frame { from: id(2), head: head.clone() });
    assert_eq!(net.nodes[&id(1)].machine.frames_rejected(), 1);
    net.give(id(1), Input::Frame { from: id(2), head: Bytes::from_static(b"\x02\x00from a later version") });
    assert_eq!(net.nodes[&id(1)].machine.frames_rejected(), 2);
    assert_eq!((&net.log, net.bad), (&vec![], vec![(id(1), id(2))]));
}

#[test]
fn the_dead_are_forgotten_after_an_hour() {
    let mut net = Net::met(3, 1);
    net.kill(id(2));
    net.run(Span::secs(3500));
    assert_eq!(net.nodes[&id(1)].machine.standing(id(2)), Some(Standing::Dead));
    net.run(Span::secs(200));
    assert_eq!(net.nodes[&id(1)].machine.standing(id(2)), None);
}

#[test]
fn whatever_happens_all_agree_once_it_ends() {
    for seed in 0..15 {
        let mut net = Net::met(5, seed);
        (net.loss, net.double, net.delay) = (0.1, 0.1, (Span::micros(100), Span::millis(40)));
        for _ in 0..40 {
            let (a, b) = (id(net.rng.between(1, 5)), id(net.rng.between(1, 5)));
            match net.rng.below(7) {
                0 => net.kill(a),
                1 => net.restart(a),
                2 if net.nodes[&a].up => net.hang_for(a, Span::millis(net.rng.clone().between(100, 8000))),
                3 if a != b => drop(net.cut.insert(pair(a, b))),
                4 => net.split(&[a.0, b.0]),
                5 => net.cut.clear(),
                _ => net.drop_links(|x, y| pair(a, b) == (x, y), LinkEnd::TimedOut),
            }
            let pause = Span::millis(net.rng.between(1, 4000));
            net.run(pause);
        }
        net.cut.clear();
        for n in 1..=5 {
            if !net.nodes[&id(n)].up {
                net.restart(id(n));
            }
        }
        net.run(Span::secs(15));
        (net.loss, net.double) = (0.0, 0.0);
        net.run(Span::secs(5));
        net.assert_all_live();
        net.log.clear();
        net.run(Span::secs(30));
        assert_eq!(net.log, vec![], "seed {seed}: quiet once healed");
        assert_eq!(net.links.len(), 10);
    }
}

proptest! {
    #[test]
    fn random_and_damaged_frames_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut machine = Membership::new(card(1, 1), vec![], Rng::new(1));
        let mut out = Vec::new();
        let now = Now::default();
        machine.handle(now, Input::Linked { card: Box::new(card(2, 1)) }, &mut out);
        let who = |n| who::Who { card: std::sync::Arc::new(card(n, 1)), epoch: 0 };
        let news = foca::Member::new(who(3), 0, foca::State::Suspect);
        let mut damaged = wire::tell(&who(2), &who(1), &news).to_vec();
        for (at, byte) in hits {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        for head in [noise.clone(), [&[1, 0], &noise[..]].concat(), damaged] {
            machine.handle(now, Input::Frame { from: id(2), head: head.into() }, &mut out);
        }
    }
}
