//! Planted bugs: each makes a promise break, and the checker of `tests/world` must see it.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planted {
    Nothing,
    /// The answer of a brick that is not filled counts like any other.
    UnsettledCounts,
    /// A write is done when one brick has it.
    OneAck,
    /// What a conditional write left at one brick is taken for the value.
    TentativeCounts,
}

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::Nothing) };
}

pub(super) fn planted(bug: Planted) -> bool {
    PLANTED.get() == bug
}

#[path = "../../tests/world/mod.rs"]
mod world;

use base::NodeId;
use bytes::Bytes;

use super::table::Key;
use super::{Action, Reply};
use world::{Net, Verdict, World, kills, one_sleeps_one_restarts, op};

/// Broken promises of one scene over some seeds.
fn broken(bug: Planted, scene: impl Fn(u64) -> Verdict) -> usize {
    PLANTED.set(bug);
    let broken = (0..12).map(scene).map(|verdict| verdict.stale.len() + verdict.missing.len()).sum();
    PLANTED.set(Planted::Nothing);
    broken
}

fn lossy(seed: u64) -> Verdict {
    kills(seed, 3, 1, Net { delay: (100, 400), loss: 0.2, double: 0.0 })
}

#[test]
fn a_brick_that_counts_before_it_is_filled_is_caught() {
    assert!(broken(Planted::UnsettledCounts, one_sleeps_one_restarts) > 0);
}

#[test]
fn a_write_that_waits_for_one_brick_only_is_caught() {
    assert!(broken(Planted::OneAck, lossy) > 0);
}

#[test]
fn the_same_scenes_break_nothing_without_a_bug() {
    assert_eq!((broken(Planted::Nothing, one_sleeps_one_restarts), broken(Planted::Nothing, lossy)), (0, 0));
}

#[test]
fn a_damaged_value_is_never_returned_and_is_repaired_from_another_brick() {
    let mut world = World::settled(5, 3);
    world.put(1, "k", "whole");
    world.run(base::Span::millis(100));
    let key = Key::new(1, Bytes::from_static(b"k"));
    world.session(2).brick.corrupt(&key);
    assert_eq!(world.value(2, "k"), Some("whole".into()));
    assert_eq!(world.figure(2, "session.damaged"), 1);
    world.run(base::Span::millis(100));
    assert!(world.session(2).brick.version(&key).is_some(), "it was repaired");
    // Two of three damaged: still the third.
    world.session(1).brick.corrupt(&key);
    world.session(3).brick.corrupt(&key);
    for node in 1..=3 {
        assert_eq!(world.value(node, "k"), Some("whole".into()));
    }
    assert!(matches!(world.done(1, op("k", Action::Remove)), Reply::Removed(true)));
    assert_eq!(world.live(), [NodeId(1), NodeId(2), NodeId(3)]);
}
