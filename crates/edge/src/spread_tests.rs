//! A thousand clones on fifty nodes, each an edge too, that hear of each other's load once a second. Half of the edges get
//! three times as much as the other half, more than their own clones can do. Nothing swings, and requests hardly wait
//! longer than if each chooser knew all; with a choice by reports as they are, of all or of two, both fail. What is between two
//! reports is estimated: what the edge sent itself is known, and a report moves shares less than it differs, as others heard it, too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use base::{NodeId, Rng};
use clones::RouteClone;

use super::*;
use crate::demand::Demands;
use crate::pool::InFlight;

const NODES: usize = 50;
const CLONES_EACH: usize = 20;
/// What a clone takes for a request on average, microseconds; it does one after the other.
const SERVICE_US: f64 = 50_000.0;
/// How busy all clones are on average.
const BUSY: f64 = 0.75;
const SECOND: u64 = 1_000_000;
const SECONDS: u64 = 13;
/// The beginning, in which loads are not known yet.
const FIRST: usize = 6;

#[derive(Clone, Copy, PartialEq)]
enum Policy {
    /// What edges do.
    Ours,
    /// Of two random clones the one whose node reported less, as if nothing had changed since: without what the edge has sent there
    /// itself, and without allowing for all that others do upon the same report.
    AsReported,
    /// The clone on the node that reported least, of all.
    LeastReported,
}

/// When something happens, at which edge or clone.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { edge: usize },
    Answered { clone: usize },
    Reports { node: usize },
}

struct Model {
    rng: Rng,
    policy: Policy,
    /// Of each edge: its view of all clones, in its own order, and what it gives away.
    edges: Vec<(Clones, GivenAway)>,
    /// The same by edge and clone.
    upstreams: Vec<Vec<Arc<Upstream>>>,
    /// What each node reported last, per mille.
    reported: Vec<u16>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Requests at each clone, with the moment they came and what counts them at their edge.
    queues: Vec<VecDeque<(u64, InFlight)>>,
    /// Of each node: microseconds that its clones worked since its last report.
    worked: Vec<u64>,
    /// How busy each node was in each second, per mille.
    busy: Vec<Vec<f64>>,
    waits: Vec<u64>,
    /// The most requests that one clone had at a time.
    longest: usize,
}

impl Model {
    fn new(policy: Policy) -> Self {
        let demands = Demands::default();
        let route = |edge: usize, clone: usize| {
            let (node, addr) = (clone / CLONES_EACH, SocketAddr::from(([127, 0, 0, 1], clone as u16 + 1)));
            let (name, local, node_load) = (format!("s/{clone}"), node == edge, 0);
            RouteClone { name, node: NodeId(node as u64 + 1), local, addr, peer: addr, node_load, version: 0 }
        };
        let upstream = |edge, clone| Arc::new(Upstream::new(&route(edge, clone), "", &demands));
        let of = |edge| -> Vec<_> { (0..NODES * CLONES_EACH).map(|clone| upstream(edge, clone)).collect() };
        let upstreams: Vec<Vec<_>> = (0..NODES).map(of).collect();
        let mut model = Self {
            rng: Rng::new(7),
            policy,
            edges: upstreams.iter().map(|all| (Clones::new(all.clone()), GivenAway::default())).collect(),
            upstreams,
            reported: vec![0; NODES],
            events: BinaryHeap::new(),
            queues: (0..NODES * CLONES_EACH).map(|_| VecDeque::new()).collect(),
            worked: vec![0; NODES],
            busy: vec![Vec::new(); NODES],
            waits: Vec::new(),
            longest: 0,
        };
        for node in 0..NODES {
            model.events.push(Reverse((1, Event::Arrives { edge: node })));
            // Each at its own moment of the second.
            model.events.push(Reverse((SECOND * node as u64 / NODES as u64, Event::Reports { node })));
        }
        model
    }

    fn chance(&mut self, mean_us: f64) -> u64 {
        let chance = (self.rng.below(1_000_000) + 1) as f64 / 1e6;
        (-chance.ln() * mean_us) as u64 + 1
    }

    fn run(mut self) -> Self {
        while let Some(Reverse((now, event))) = self.events.pop().filter(|Reverse((at, _))| *at < SECONDS * SECOND) {
            match event {
                Event::Arrives { edge } => {
                    let share = if edge % 2 == 0 { 1.5 } else { 0.5 };
                    let mean = SERVICE_US / (CLONES_EACH as f64 * BUSY * share);
                    let next = now + self.chance(mean);
                    self.events.push(Reverse((next, Event::Arrives { edge })));
                    self.arrive(now, edge);
                }
                Event::Answered { clone } => {
                    let (came, _) = self.queues[clone].pop_front().expect("it was answering");
                    if now > FIRST as u64 * SECOND {
                        self.waits.push(now - came);
                    }
                    if !self.queues[clone].is_empty() {
                        self.begin(now, clone);
                    }
                }
                Event::Reports { node } => {
                    self.events.push(Reverse((now + SECOND, Event::Reports { node })));
                    self.report(now, node);
                }
            }
        }
        self
    }

    fn begin(&mut self, now: u64, clone: usize) {
        let takes = self.chance(SERVICE_US);
        self.worked[clone / CLONES_EACH] += takes;
        self.events.push(Reverse((now + takes, Event::Answered { clone })));
    }

    fn arrive(&mut self, now: u64, edge: usize) {
        let (clones, given_away) = &self.edges[edge];
        let upstream = match self.policy {
            Policy::Ours => {
                let homing = Homing { given_away: given_away.now(), at_once: 64, lasts: false };
                clones.pick(&Prefers::Any, homing, |_| true).expect("there are some")
            }
            Policy::AsReported => {
                let mut any = || self.rng.below((NODES * CLONES_EACH) as u64) as usize;
                let (first, second) = (any(), any());
                let reported = |clone: &usize| self.reported[clone / CLONES_EACH];
                &self.upstreams[edge][if reported(&second) < reported(&first) { second } else { first }]
            }
            Policy::LeastReported => {
                let node = (0..NODES).min_by_key(|node| self.reported[*node]).unwrap_or(0);
                &self.upstreams[edge][node * CLONES_EACH + self.rng.below(CLONES_EACH as u64) as usize]
            }
        };
        let (clone, in_flight) = (usize::from(upstream.addr.port()) - 1, upstream.begin());
        self.queues[clone].push_back((now, in_flight));
        if now > FIRST as u64 * SECOND {
            self.longest = self.longest.max(self.queues[clone].len());
        }
        if self.queues[clone].len() == 1 {
            self.begin(now, clone);
        }
    }

    /// What a node did in the last second is known to all; and each edge looks what it gives away.
    fn report(&mut self, now: u64, node: usize) {
        let all = (CLONES_EACH as u64 * SECOND) as f64;
        let load = (std::mem::take(&mut self.worked[node]) as f64 * 1000.0 / all).min(1000.0);
        self.busy[node].push(load);
        self.reported[node] = load as u16;
        for upstreams in &self.upstreams {
            let its = &upstreams[node * CLONES_EACH..(node + 1) * CLONES_EACH];
            its.iter().for_each(|u| u.node_load.store(load as u16, Relaxed));
        }
        let (clones, given_away) = &self.edges[node];
        given_away.turn(now / 1000, clones);
    }

    /// How much a node's load changes from second to second, on average, per mille.
    fn swing(&self) -> f64 {
        let steps = || self.busy.iter().flat_map(|of| of[FIRST..].windows(2).map(|w| (w[1] - w[0]).abs()));
        steps().sum::<f64>() / steps().count() as f64
    }

    /// How far a node's load is from that of all, on average over the last seconds, per mille.
    fn unevenness(&self) -> f64 {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let nodes: Vec<f64> = self.busy.iter().map(|of| mean(&of[FIRST..])).collect();
        mean(&nodes.iter().map(|load| (load - mean(&nodes)).abs()).collect::<Vec<_>>())
    }

    fn mean_ms(&self) -> f64 {
        self.waits.iter().sum::<u64>() as f64 / self.waits.len() as f64 / 1000.0
    }
}

/// What was found: swing, unevenness, mean milliseconds, the longest queue.
fn figures(policy: Policy, name: &str) -> (f64, f64, f64, usize) {
    let model = Model::new(policy).run();
    let found = (model.swing(), model.unevenness(), model.mean_ms(), model.longest);
    let (swing, uneven, mean, longest) = found;
    println!("{name}: swing {swing:.0}, uneven {uneven:.0}, mean {mean:.0} ms, longest queue {longest}");
    found
}

/// Chance alone moves a node by some 50 from second to second, and requests that anybody gets take 200 ms.
fn is_well((swing, uneven, mean, longest): (f64, f64, f64, usize)) -> bool {
    swing < 100.0 && uneven < 160.0 && mean < 250.0 && longest < 40
}

#[test]
fn a_thousand_clones_share_the_load_and_do_not_swing_though_reports_are_old() {
    CHANCE.with_borrow_mut(|rng| *rng = Rng::new(11));
    let ours = figures(Policy::Ours, "as edges do");
    let as_reported = figures(Policy::AsReported, "the better of two by reports as they are");
    let naive = figures(Policy::LeastReported, "the best by reports as they are");
    assert!(is_well(ours), "{ours:?}");
    for others in [as_reported, naive] {
        assert!(!is_well(others) && others.0 > 150.0 && others.2 > ours.2 * 1.3, "the model sees nothing: {others:?}");
    }
}
