//! What a node costs when nothing happens, what one change of the declaration costs, and what one request, by how many nodes there
//! are: bytes and frames that are sent, events that are handled. Of healthy clusters without other load, so that what grows here
//! grows by what exists. Counted in virtual time, so the same everywhere.

use std::collections::BTreeMap;

use base::{Outcome, Span, Time};
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Serialize;
use state::session::{Action, Kind, Lease, Op, When};

use crate::shipped::{Cluster, FILE};
use crate::world::{Happened, World};

/// As many as fit into the world's network.
pub const NODES_MAX: usize = 200;
/// What a cluster takes to form, to fill its bricks and to settle.
const SETTLES: Span = Span::secs(40);
/// Longer than anything that is said again and again takes to be.
const COUNTED: Span = Span::secs(30);
/// In as long a time as is counted: one each three seconds, and fifty each second.
const CHANGES: u64 = 10;
const REQUESTS: u64 = 1_500;
/// Longer than any of these takes.
const BUDGET: Span = Span::secs(2);

const DECLARED: &str = "[namespace.carts]\nclass = \"session\"\n\n[namespace.bank]\nclass = \"linear\"\n";
const CHANGED: &str = "\n[namespace.changed]\nclass = \"session\"\n";

/// Of a cluster of so many nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    pub nodes: usize,
    /// Means of one node and a second in which nothing happens.
    pub bytes: f64,
    /// Of them, by kind of frame (`base/src/frame.rs`).
    pub by_kind: BTreeMap<u16, f64>,
    pub frames: f64,
    pub events: f64,
    /// Of one change of the declaration, at one node in the mean.
    pub change_bytes: f64,
    pub change_events: f64,
    /// Of one request, at all nodes together.
    pub request_bytes: f64,
    pub request_events: f64,
}

/// The measures by name.
type Measure = (&'static str, fn(&Costs) -> f64);
const MEASURES: [Measure; 7] = [
    ("idle, bytes a second and node", |costs| costs.bytes),
    ("idle, frames a second and node", |costs| costs.frames),
    ("idle, events a second and node", |costs| costs.events),
    ("one change, bytes a node", |costs| costs.change_bytes),
    ("one change, events a node", |costs| costs.change_events),
    ("one request, bytes", |costs| costs.request_bytes),
    ("one request, events", |costs| costs.request_events),
];

#[derive(Clone, Copy)]
struct Counted {
    bytes: f64,
    frames: f64,
    events: f64,
}

/// What a cluster of so many nodes costs.
///
/// # Panics
/// With more than [`NODES_MAX`] nodes, or if a healthy cluster refuses what it is asked.
pub fn costs(seed: u64, nodes: usize) -> Costs {
    let mut world = World::new(seed, nodes, Cluster::new(DECLARED.into(), None));
    let seeds = (0..nodes.min(3)).map(|node| world.peer_addr(node)).collect();
    let ids = (0..nodes).map(|node| world.id(node)).collect();
    (world.factory_mut().seeds, world.factory_mut().ids) = (seeds, ids);
    (0..nodes).for_each(|node| world.start(node));
    run(&mut world, Time::ZERO + SETTLES);
    let kinds = world.bytes_by_kind().clone();
    let idle = counted(&mut world, 0, |_, _| ());
    let of_kinds: Vec<(u16, u64)> = world
        .bytes_by_kind()
        .iter()
        .map(|(kind, bytes)| (*kind, bytes - kinds.get(kind).copied().unwrap_or(0)))
        .collect();
    let changed = counted(&mut world, CHANGES, |world, nth| {
        let text = if nth % 2 == 0 { format!("{DECLARED}{CHANGED}") } else { DECLARED.to_owned() };
        let ask = Ask::Apply { file: FILE.into(), text, dry_run: false, entropy: [nth as u8; 32] };
        world.ask(0, BUDGET, ask).expect("all nodes run");
    });
    let asked = counted(&mut world, REQUESTS, |world, nth| {
        let value = Bytes::from_static(b"value");
        let put = Action::Put { value, kind: Kind::Text, lease: Lease::Default, when: When::Always, want_old: false };
        let op = Op::keyed("carts".into(), format!("key-{}", nth % 100).into_bytes().into(), put);
        world.ask((nth as usize) % nodes, BUDGET, Ask::Session(op)).expect("all nodes run");
    });
    let (each, seconds) = (nodes as f64, COUNTED.as_millis() as f64 / 1_000.0);
    let of = |with: f64, without: f64, count: u64| (with - without).max(0.0) / count as f64;
    Costs {
        nodes,
        bytes: idle.bytes / each / seconds,
        by_kind: of_kinds.into_iter().map(|(kind, bytes)| (kind, bytes as f64 / each / seconds)).collect(),
        frames: idle.frames / each / seconds,
        events: idle.events / each / seconds,
        change_bytes: of(changed.bytes, idle.bytes, CHANGES) / each,
        change_events: of(changed.events, idle.events, CHANGES) / each,
        request_bytes: of(asked.bytes, idle.bytes, REQUESTS),
        request_events: of(asked.events, idle.events, REQUESTS),
    }
}

/// Of [`COUNTED`], in which so much is asked, evenly.
fn counted(world: &mut World<Cluster>, count: u64, ask: impl Fn(&mut World<Cluster>, u64)) -> Counted {
    let (begun, before, events) = (world.now(), world.counts(), world.trace.events());
    let mut done = 0;
    for nth in 0..count {
        done += run(world, begun + Span(COUNTED.0 * nth / count));
        ask(world, nth);
    }
    done += run(world, begun + COUNTED);
    assert!(done + 1 >= count, "of {count} that were asked {done} were done");
    Counted {
        bytes: (world.counts().bytes - before.bytes) as f64,
        frames: (world.counts().sent - before.sent) as f64,
        events: (world.trace.events() - events) as f64,
    }
}

/// How many answers came that say "done".
fn run(world: &mut World<Cluster>, until: Time) -> u64 {
    let mut done = 0;
    while let Some(happened) = world.next(until) {
        done += u64::from(matches!(&happened, Happened::Answered { answer, .. } if is_done(answer)));
    }
    done
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Session(Outcome::Done(_)) | Answer::Applied(Outcome::Done(_)))
}

/// How each measure grows from one size to another: `flat`, `linear` or `worse than linear`, by the exponent between them.
pub fn laws(few: &Costs, many: &Costs) -> Vec<(&'static str, &'static str)> {
    let times = (many.nodes as f64 / few.nodes as f64).ln();
    let of = |(name, of): Measure| (name, law(of(few), of(many), times));
    MEASURES.into_iter().map(of).collect()
}

fn law(low: f64, high: f64, times: f64) -> &'static str {
    match (high.max(1.0) / low.max(1.0)).ln() / times {
        grows if grows < 0.25 => "flat",
        grows if grows < 1.25 => "linear",
        _ => "worse than linear",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_does_what_it_is_asked_and_one_change_costs_a_node_the_same_with_twice_as_many() {
        let [few, many] = [4, 8].map(|nodes| costs(1, nodes));
        assert!(few.change_bytes > 0.0 && few.request_events > 0.0 && few.bytes > 0.0, "{few:?}");
        let laws = laws(&few, &many);
        assert_eq!(laws.len(), MEASURES.len());
        // What a node has to do for one change or one request must not grow much with the others.
        let events: Vec<_> =
            laws.iter().filter(|(name, _)| name.starts_with("one") && name.contains("events")).collect();
        assert!(events.len() == 2 && events.iter().all(|(_, law)| *law != "worse than linear"), "{events:?}: {many:?}");
        let of = |low, high| law(low, high, 10f64.ln());
        assert_eq!([of(5.0, 6.0), of(50.0, 500.0), of(5.0, 500.0)], ["flat", "linear", "worse than linear"]);
    }
}
