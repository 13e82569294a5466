//! How old what a node knows may be.

use super::*;
use crate::machine::kind;

/// What a reader gets who takes what is so old: the value and its age, or nothing.
fn read(world: &mut World, n: u64, most_ms: u64) -> Option<(Option<String>, u64)> {
    world.asks += 1;
    let id = world.asks;
    let at = vec![(bytes("flag"), Bytes::new())];
    let read = Op::of(Arc::from(FLOOR), Action::Read { kind: Kind::Register, at });
    let op = Op { stale: Some(Span::millis(most_ms)), ..read };
    world.give(n, Input::Ask { id: AskId(id), budget: BUDGET, op });
    match world.answers.remove(&id).expect("it waits for nobody") {
        Outcome::Done(Reply::Aged { age, of }) => {
            let Reply::Values(values) = *of else { panic!("{of:?}") };
            Some((values[0].as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap()), age.as_millis()))
        }
        Outcome::Refused(refused) if refused.retry_after.is_some() => None,
        other => panic!("{other:?}"),
    }
}

/// Nodes that pass nothing to each other.
fn alone(nodes: u64) -> World {
    let mut world = World::new(nodes);
    (1..=nodes).for_each(|n| world.declare(n, STALE_LEVEL));
    world
}

/// Time passes, and these kinds of frames are lost.
fn pass_without(world: &mut World, ms: u64, lost: &[u16]) {
    for _ in 0..ms / 10 {
        world.advance(10);
        world.wake();
        while !world.air.is_empty() {
            let air = std::mem::take(&mut world.air);
            air.into_iter().filter(|(_, _, frame)| !lost.contains(&frame.kind)).for_each(|one| world.arrives(one));
            world.wake();
        }
    }
}

#[test]
fn who_hears_all_others_knows_what_is_some_rounds_old_at_most() {
    let mut world = alone(3);
    world.set(1, "flag", "on", End::Never);
    for round in 0..50 {
        world.pass(70);
        let (value, age) = read(&mut world, 2, 500).expect("two peers are asked in turn, each tenth of a second one");
        assert_eq!(value.as_deref(), Some("on"));
        assert!(age <= 500, "{round}: {age}");
        assert_eq!(world.figure(2, "soft.age_seconds"), 0);
    }
    pass_without(&mut world, 5_000, &[kind::DIGEST, kind::PUSH, kind::RELAY]);
    assert!((4..=6).contains(&world.figure(2, "soft.age_seconds")), "it hears of no updates");
    // Alone nobody can know more.
    let mut world = alone(1);
    world.pass(5_000);
    assert_eq!(read(&mut world, 1, 0), Some((None, 0)));
}

#[test]
fn who_is_cut_off_knows_ever_older_things_until_the_others_are_dead_to_it() {
    let mut world = alone(3);
    world.set(3, "flag", "on", End::Never);
    world.pass(500);
    world.cut_off(3, false);
    world.pass(1_000);
    assert_eq!((read(&mut world, 1, 900), read(&mut world, 3, 900)), (None, None));
    let (value, age) = read(&mut world, 1, 2_000).unwrap();
    assert!(value.as_deref() == Some("on") && (1_000..1_600).contains(&age), "{value:?} {age}");
    assert_eq!(world.get(1, "flag").as_deref(), Some("on"), "who says nothing gets what there is");
    // What another life knows is nobody's any more.
    world.others(3, |_| Input::Death { peer: NodeId(3) });
    assert!(read(&mut world, 1, 500).is_some());
    world.heal();
    world.pass(1_000);
    assert!(read(&mut world, 3, 500).is_some());
}

#[test]
fn what_was_said_counts_when_it_is_here_and_not_when_it_was_heard() {
    let mut world = alone(3);
    world.pass(500);
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("flag"), bytes("on"))], end: End::Never });
    // Others hear that there is something, and do not get it.
    let lost = [kind::PUSH, kind::RELAY, kind::CELLS];
    pass_without(&mut world, 1_000, &lost);
    world.answers.remove(&id);
    assert_eq!(read(&mut world, 2, 900), None);
    assert!(matches!(read(&mut world, 2, 2_000), Some((None, 1_000..))), "what was there before has that age");
    world.pass(1_000);
    assert!(matches!(read(&mut world, 2, 500), Some((Some(_), ..=500))));
    // The same while there is always something new.
    for n in 0..200 {
        world.ask(1, Action::Set { pairs: vec![(bytes("flag"), bytes(&n.to_string()))], end: End::Never });
        pass_without(&mut world, 10, &lost);
    }
    world.answers.clear();
    assert_eq!(read(&mut world, 2, 1_900), None, "the first of them is not here");
    world.pass(1_000);
    assert!(matches!(read(&mut world, 2, 500), Some((Some(value), ..=500)) if value == "199"));
}
