//! What lives have counted that are over is added up: a counter does not grow with the starts of nodes, and its sum stays what it is.

use super::*;
use crate::tally::{Below, add_up};

fn cell<'a>(world: &'a World, n: u64, key: &str) -> Option<&'a cell::Cell> {
    world.space(n).cells.get(&Address::new(bytes(key), Kind::Register, Bytes::new()))
}

fn slots(world: &World, n: u64, key: &str) -> usize {
    cell(world, n, key).map_or(0, |cell| cell.slots.len())
}

fn again(world: &mut World, n: u64, boot: u64) {
    world.dies(n);
    world.born(n, boot);
    world.pass(400);
}

fn world() -> World {
    World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() })
}

/// Lives of each node, with resets between them: three rounds, so that sums are added to sums.
#[test]
fn a_counter_has_a_slot_for_a_node_whatever_its_starts() {
    let mut world = world();
    let (mut sum, mut boot) = (0, 1);
    for round in 0..3 {
        for nth in 0..12 {
            boot += 1;
            again(&mut world, 1 + nth % 3, boot);
            for n in 1..=3 {
                world.add(n, "n", n as i64);
                world.add(n, "reset", 1);
                sum += n as i64;
            }
            world.pass(50);
            if nth % 5 == 4 {
                world.ask(2, Action::Remove { keys: vec![bytes("reset")] });
                world.pass(50);
            }
        }
        assert!((1..=3).all(|n| slots(&world, n, "n") > 12), "that many lives have counted");
        world.pass(60_000);
        for n in 1..=3 {
            assert!(slots(&world, n, "n") <= 6, "node {n}, round {round}: {:?}", cell(&world, n, "n"));
            assert!(slots(&world, n, "reset") <= 6, "node {n}, round {round}: {}", slots(&world, n, "reset"));
            assert_eq!((world.number(n, "n"), world.number(n, "reset")), (sum, 6), "node {n}");
        }
        world.are_equal();
    }
    assert!((1..=3).all(|n| world.figure(n, "soft.mended") == 0), "nobody takes it for damage: {:?}", world.warnings);
    world.all_end(1_000);
    world.pass(60_000);
    world.are_equal();
    assert!((1..=3).all(|n| world.number(n, "n") == sum && slots(&world, n, "n") <= 6));
    // A reset takes all of it.
    world.ask(3, Action::Remove { keys: vec![bytes("n")] });
    world.pass(100);
    world.add(1, "n", 4);
    world.pass(3_000);
    assert!((1..=3).all(|n| world.number(n, "n") == 4));
}

/// One that has what was before, and comes when all others have added up, and brings what it alone has.
#[test]
fn who_falls_back_behind_a_sum_gets_it_once() {
    let mut world = world();
    world.add(3, "n", 5);
    world.pass(3_000);
    let older = world.disks[&2].clone();
    world.add(3, "n", 7);
    world.add(2, "n", 100);
    world.pass(3_000);
    again(&mut world, 3, 2);
    world.add(3, "n", 1_000);
    world.pass(60_000);
    assert_eq!(slots(&world, 1, "n"), 3, "a sum, and two lives");
    world.dies(2);
    world.disks.insert(2, older);
    world.born(2, 2);
    world.pass(2_000);
    world.add(2, "n", 10_000);
    world.pass(60_000);
    world.are_equal();
    assert!((1..=3).all(|n| world.number(n, "n") == 11_112 && slots(&world, n, "n") <= 5));
}

/// Nothing is added up while a member is away, and a reset that it made takes what it saw.
#[test]
fn nothing_is_added_up_while_a_member_is_away() {
    let mut world = world();
    world.add(3, "n", 5);
    world.pass(3_000);
    world.cut_off(2, true);
    world.add(3, "n", 7);
    world.ask(2, Action::Remove { keys: vec![bytes("n")] });
    for boot in 2..6 {
        again(&mut world, 3, boot);
        // It waits for the one that is away, in vain.
        world.pass(11_000);
        world.add(3, "n", 1);
        world.pass(20_000);
    }
    assert_eq!(slots(&world, 1, "n"), 5);
    world.heal();
    world.pass(60_000);
    world.are_equal();
    assert!((1..=3).all(|n| world.number(n, "n") == 11 && slots(&world, n, "n") <= 2));
}

/// Planted: it is added up at one node while another has counted of those lives what that one has not seen.
#[test]
fn what_is_added_up_before_all_have_it_is_lost() {
    let comes_to = |planted: bool| {
        let mut world = world();
        // The first one alone hears of it, and is not heard of.
        world.cut.extend([(3, 2), (2, 3), (1, 2), (2, 1)]);
        world.add(3, "n", 5);
        world.pass(50);
        world.dies(3);
        world.disks.remove(&3);
        world.cut.clear();
        world.cut_off(1, true);
        world.born(3, 2);
        world.cut_off(1, true);
        world.pass(11_000);
        world.add(3, "n", 7);
        world.pass(100);
        again(&mut world, 3, 3);
        if planted {
            let at = Address::new(bytes("n"), Kind::Register, Bytes::new());
            let space = &mut world.nodes.get_mut(&1).unwrap().spaces.get_mut(&7).unwrap().space;
            space.change(&at, |cell, _| add_up(&mut cell.slots, &Below::from([(NodeId(3), Boot(3))])));
        }
        world.heal();
        world.pass(60_000);
        world.are_equal();
        world.number(1, "n")
    };
    assert_eq!(comes_to(false), 12);
    assert_ne!(comes_to(true), 12, "the test sees it");
}

/// A life that counts on after each reset has one slot.
#[test]
fn a_counter_that_is_reset_often_has_a_slot_for_each_life() {
    let mut world = world();
    for nth in 0..200 {
        world.add(1 + nth % 3, "n", 1 + nth as i64);
        world.pass(10);
        world.done(1 + nth % 2, Action::Remove { keys: vec![bytes("n")] });
        world.pass(10);
    }
    world.add(2, "n", 4);
    world.pass(1_000);
    world.are_equal();
    assert!((1..=3).all(|n| slots(&world, n, "n") == 3 && world.number(n, "n") == 4));
}
