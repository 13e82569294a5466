//! Wall clocks that are a year off.

use super::*;

const YEAR: i64 = 365 * 86_400_000;

/// Written at two nodes that do not hear each other, one after the other; what all read then.
fn wins(world: &mut World, first: (u64, &str), second: (u64, &str)) -> String {
    world.cut_off(first.0, false);
    for (n, value) in [first, second] {
        world.ask(n, Action::Set { pairs: vec![(bytes("k"), bytes(value))], end: End::Never });
        world.advance(1_500);
    }
    world.heal();
    world.pass(2_000);
    world.answers.clear();
    world.are_equal();
    world.get(3, "k").unwrap()
}

#[test]
fn a_clock_that_is_a_year_off_wins_and_loses_nothing() {
    for off in [YEAR, -YEAR] {
        let mut world = World::new(3);
        world.now.wall_ms += 2 * YEAR.unsigned_abs();
        world.clocks.insert(1, off);
        world.pass(1_000);
        assert_eq!(wins(&mut world, (1, "older"), (2, "newer")), "newer", "{off}");
        assert_eq!(wins(&mut world, (2, "older"), (1, "newer")), "newer", "{off}");
        assert_eq!((world.figure(2, "soft.ahead"), world.warnings.len()), (0, 0));
    }
}

#[test]
fn of_two_nodes_the_earlier_clock_counts() {
    let mut world = World::of(2, Spec::default());
    world.clocks.insert(1, YEAR);
    world.pass(1_000);
    world.cut_off(1, false);
    for (n, value) in [(1, "older"), (2, "newer")] {
        world.ask(n, Action::Set { pairs: vec![(bytes("k"), bytes(value))], end: End::Never });
        world.advance(1_500);
    }
    world.heal();
    world.pass(1_000);
    assert_eq!(world.get(1, "k").as_deref(), Some("newer"));
}

/// Alone nobody says that a clock is wrong.
#[test]
fn what_was_written_with_a_time_far_ahead_is_replaced_by_the_next_write_and_is_no_measure() {
    let mut world = World::new(1);
    world.clocks.insert(1, YEAR);
    world.set(1, "k", "ahead", End::Never);
    world.pass(1_000);
    world.clocks.clear();
    for n in [2, 3] {
        world.born(n, 1);
    }
    world.pass(3_000);
    assert!(world.figure(2, "soft.ahead") > 0 && world.warnings.iter().any(|text| text.contains("ahead")));
    world.set(2, "k", "now", End::Never);
    world.pass(500);
    assert_eq!(world.get(1, "k").as_deref(), Some("now"), "it had seen the other");
    // The node with the clock that was wrong gives no stamps of next year any more.
    assert_eq!(wins(&mut world, (1, "older"), (2, "newer")), "newer");
}
