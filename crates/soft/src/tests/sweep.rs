//! Removals of more than a turn takes.

use super::*;

const MANY: usize = 5_000;

fn fill(world: &mut World, n: u64, key: &str, members: usize) {
    let pairs = (0..members).map(|m| (bytes(&format!("m{m}")), None)).collect();
    assert_eq!(world.done(n, Action::Put { kind: Kind::Member, key: bytes(key), pairs }), Reply::Int(members as i64));
}

/// The most updates that one turn of a node made.
fn most_in_a_turn(world: &mut World, n: u64, ms: u64) -> u64 {
    let mut most = 0;
    for _ in 0..ms {
        world.advance(1);
        let before = world.space(n).seq();
        world.give(n, Input::Wake);
        most = most.max(world.space(n).seq() - before);
        world.settle();
    }
    most
}

#[test]
fn a_large_key_is_removed_in_parts_and_what_is_written_meanwhile_stays() {
    let mut world = World::new(3);
    fill(&mut world, 1, "s", MANY);
    world.set(1, "small", "v", End::Never);
    world.set(2, "other", "v", End::Never);
    world.pass(500);
    let keys = vec![bytes("small"), bytes("s"), bytes("none"), bytes("s")];
    let id = world.ask(1, Action::Remove { keys });
    world.settle();
    assert!(!world.answers.contains_key(&id) && world.members(2, "s").len() > 1_000, "it takes some turns");
    // One is new, the other was there, and is written by another node again.
    world.put_members(1, "s", &["new"]);
    world.put_members(2, "s", &["m7"]);
    let most = most_in_a_turn(&mut world, 1, 200);
    assert!((1..=SWEEP_CELLS as u64).contains(&most), "{most} in one turn");
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Int(2))));
    world.pass(500);
    for n in 1..=3 {
        assert_eq!(world.members(n, "s"), ["m7", "new"], "{n}");
        assert_eq!((world.get(n, "small"), world.get(n, "other").as_deref()), (None, Some("v")));
    }
    world.check();
    world.are_equal();
}

#[test]
fn all_of_a_namespace_is_removed_at_every_node_and_nothing_is_left() {
    let mut world = World::of(2, Spec { checkpoint_ms: 0, ..Spec::default() });
    fill(&mut world, 1, "s", MANY);
    world.set(2, "k", "v", End::After(Span::secs(60)));
    world.add(1, "n", 5);
    world.cut_off(2, false);
    let id = world.ask(1, Action::Clear);
    // It was not seen here.
    world.ask(2, Action::Add { kind: Kind::Register, key: bytes("n"), element: Bytes::new(), by: 2 });
    most_in_a_turn(&mut world, 1, 300);
    world.heal();
    world.pass(3_000);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done))));
    world.answers.clear();
    world.check();
    world.are_equal();
    assert_eq!((world.get(1, "n").as_deref(), world.get(2, "k")), (Some("2"), None));
    assert_eq!(world.done(2, Action::Count), Reply::Int(1));
    assert!(world.figure(1, "soft.index") == 0 && world.figure(1, "soft.entries") == 1, "removals are forgotten");
    // Of what is not there nothing is removed, and another write is answered all the same.
    let first = world.ask(1, Action::Clear);
    most_in_a_turn(&mut world, 1, 10);
    let second = world.ask(1, Action::Clear);
    assert_eq!(world.add(1, "n", 1), Reply::Int(1));
    most_in_a_turn(&mut world, 1, 10);
    let done = Some(Outcome::Done(Reply::Done));
    assert_eq!((world.answers.remove(&first), world.answers.remove(&second)), (done.clone(), done));
}

#[test]
fn a_large_key_whose_time_has_come_goes_in_parts_and_is_not_seen_again() {
    let mut world = World::new(2);
    fill(&mut world, 1, "s", MANY);
    world.done(1, Action::End { key: bytes("s"), end: Some(Span::millis(300)) });
    world.advance(310);
    for _ in 0..100 {
        world.advance(1);
        assert!((1..=2).all(|n| world.members(n, "s").is_empty()));
    }
    world.pass(2_000);
    assert_eq!((world.figure(2, "soft.keys"), world.figure(1, "soft.keys")), (0, 0));
    world.are_equal();
}

#[test]
fn who_waits_too_long_for_a_large_removal_is_told_that_it_goes_on() {
    let mut world = World::new(2);
    fill(&mut world, 1, "s", 400 * SWEEP_CELLS);
    world.pass(500);
    world.cut_off(2, false);
    let id = world.ask(1, Action::Remove { keys: vec![bytes("s")] });
    most_in_a_turn(&mut world, 1, 600);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Unknown(_))));
    world.heal();
    world.pass(10_000);
    assert!(world.members(2, "s").is_empty());
    world.are_equal();
}
