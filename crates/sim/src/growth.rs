//! What a node costs when nothing happens, by how many there are: bytes and frames that it sends, events that it handles. Of
//! healthy clusters without load, so that what grows here grows by what exists. Counted in virtual time, so the same everywhere.

use std::collections::BTreeMap;

use base::{Span, Time};
use serde::Serialize;

use crate::shipped::Cluster;
use crate::world::World;

/// As many as fit into the world's network.
pub const NODES_MAX: usize = 200;
/// What a cluster takes to form, to fill its bricks and to settle.
const SETTLES: Span = Span::secs(40);
/// Longer than anything that is said again and again takes to be.
const COUNTED: Span = Span::secs(30);

const DECLARED: &str = "[namespace.carts]\nclass = \"session\"\n\n[namespace.bank]\nclass = \"linear\"\n";

/// Means of one node and a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    pub nodes: usize,
    pub bytes: f64,
    /// Of them, by kind of frame (`base/src/frame.rs`).
    pub by_kind: BTreeMap<u16, f64>,
    pub frames: f64,
    pub events: f64,
}

/// An idle cluster of so many nodes.
///
/// # Panics
/// With more than [`NODES_MAX`] nodes.
pub fn idle(seed: u64, nodes: usize) -> Idle {
    let mut world = World::new(seed, nodes, Cluster::new(DECLARED.into(), None));
    let seeds = (0..nodes.min(3)).map(|node| world.peer_addr(node)).collect();
    let ids = (0..nodes).map(|node| world.id(node)).collect();
    (world.factory_mut().seeds, world.factory_mut().ids) = (seeds, ids);
    (0..nodes).for_each(|node| world.start(node));
    run(&mut world, Time::ZERO + SETTLES);
    let (counts, events, kinds) = (world.counts(), world.trace.events(), world.bytes_by_kind().clone());
    run(&mut world, Time::ZERO + SETTLES + COUNTED);
    let mean = |sum: u64| sum as f64 / nodes as f64 / (COUNTED.as_millis() as f64 / 1_000.0);
    let of_kinds = world.bytes_by_kind().iter();
    let of_kinds = of_kinds.map(|(kind, bytes)| (*kind, mean(bytes - kinds.get(kind).copied().unwrap_or(0))));
    Idle {
        nodes,
        bytes: mean(world.counts().bytes - counts.bytes),
        by_kind: of_kinds.collect(),
        frames: mean(world.counts().sent - counts.sent),
        events: mean(world.trace.events() - events),
    }
}

fn run(world: &mut World<Cluster>, until: Time) {
    while world.next(until).is_some() {}
}
