//! What is asked of a node that catches up, or knows too little, another one answers.

use super::*;
use crate::machine::kind;

/// Three nodes with something in them; the third starts anew, and nothing of what it lacks comes.
fn starting(level: u64) -> World {
    let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
    world.set(1, "k", "v", End::Never);
    world.add(2, "n", 5);
    world.pass(3_000);
    world.dies(3);
    world.born(3, 2);
    world.declare(3, level as u32);
    world
}

/// Time passes; frames for which it is not so are lost.
fn pass_with(world: &mut World, ms: u64, arrives: impl Fn(u64, u64, u16) -> bool) {
    for _ in 0..ms / 10 {
        world.advance(10);
        world.wake();
        while !world.air.is_empty() {
            let air = std::mem::take(&mut world.air);
            let whole = air.into_iter().filter(|(from, to, frame)| arrives(*from, *to, frame.kind));
            whole.collect::<Vec<_>>().into_iter().for_each(|one| world.arrives(one));
            world.wake();
        }
    }
}

fn nothing_comes(_: u64, to: u64, kind: u16) -> bool {
    to != 3 || ![kind::PAGE, kind::CELLS, kind::PUSH, kind::RELAY, kind::SKETCH].contains(&kind)
}

fn read(key: &str) -> Action {
    Action::Read { kind: Kind::Register, at: vec![(bytes(key), Bytes::new())] }
}

fn values(value: &str) -> Option<Outcome<Reply>> {
    Some(Outcome::Done(Reply::Values(vec![Some(bytes(value))])))
}

#[test]
fn who_catches_up_has_others_do_what_it_is_asked_and_then_knows_of_it() {
    let mut world = starting(COMPARE_LEVEL.into());
    // Asked before anybody was heard of, too.
    let early = world.ask(3, read("k"));
    pass_with(&mut world, 300, nothing_comes);
    assert_eq!(world.answers.remove(&early), values("v"));
    let add = Action::Add { kind: Kind::Register, key: bytes("n"), element: Bytes::new(), by: 2 };
    let (add, get, held) = (
        world.ask(3, add),
        world.ask(3, read("n")),
        world.ask(3, Action::Hold { kind: Kind::Member, key: bytes("s"), pairs: vec![(bytes("a"), None)], holder: 1 }),
    );
    pass_with(&mut world, 200, nothing_comes);
    assert_eq!(world.answers.remove(&add), Some(Outcome::Done(Reply::Int(7))));
    assert!(world.answers.remove(&get).is_some_and(|answer| matches!(answer, Outcome::Done(Reply::Values(_)))));
    assert!(!world.answers.contains_key(&held), "what is held is held here, and waits");
    assert!(!world.nodes[&3].spaces[&7].is_settled() && world.figure(3, "soft.passed") >= 3);
    pass_with(&mut world, 3_000, |_, _, _| true);
    assert!(world.nodes[&3].spaces[&7].is_settled());
    assert_eq!(world.get(3, "n").as_deref(), Some("7"));
    world.check();
    world.are_equal();
}

#[test]
fn a_write_that_was_passed_to_a_node_that_dies_may_have_happened_and_a_read_goes_on() {
    let mut world = starting(COMPARE_LEVEL.into());
    pass_with(&mut world, 300, nothing_comes);
    // Neither question comes to anybody before the one that was asked is dead.
    let early = world.ask(3, read("k"));
    world.wake();
    let asked = |world: &World| world.air.iter().find(|(.., frame)| frame.kind == kind::CALL).map(|(_, to, _)| *to);
    let first = asked(&world).expect("it is passed on");
    world.air.retain(|(_, to, _)| *to != first);
    world.dies(first);
    pass_with(&mut world, 200, nothing_comes);
    assert_eq!(world.answers.remove(&early), values("v"), "another one is asked, as nothing was written");
    let second = 3 - first;
    let add = Action::Add { kind: Kind::Register, key: bytes("n"), element: Bytes::new(), by: 1 };
    let (add, get) = (world.ask(3, add), world.ask(3, read("n")));
    world.wake();
    assert_eq!(asked(&world), Some(second));
    world.dies(second);
    world.wake();
    assert!(matches!(world.answers.remove(&add), Some(Outcome::Unknown(_))));
    assert!(matches!(world.answers.remove(&get), Some(Outcome::Refused(refused)) if refused.retry_after.is_some()));
}

#[test]
fn a_read_for_which_a_node_knows_too_little_is_answered_by_one_that_knows_more() {
    let mut world = World::new(3);
    world.set(1, "flag", "on", End::Never);
    world.pass(500);
    // From 1 nothing comes to 3 any more.
    let deaf = |from: u64, to: u64, _: u16| (from, to) != (1, 3);
    pass_with(&mut world, 1_000, deaf);
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("flag"), bytes("off"))], end: End::Never });
    pass_with(&mut world, 100, deaf);
    world.answers.remove(&id);
    let asks = |world: &mut World, n: u64, most: u64| {
        world.asks += 1;
        let id = world.asks;
        let op = Op { stale: Some(Span::millis(most)), ..Op::of(Arc::from(FLOOR), read("flag")) };
        world.give(n, Input::Ask { id: AskId(id), budget: BUDGET, op });
        id
    };
    let mut done = 0;
    for _ in 0..10 {
        let id = asks(&mut world, 3, 500);
        pass_with(&mut world, 700, deaf);
        match world.answers.remove(&id) {
            Some(Outcome::Done(Reply::Aged { age, of })) => {
                assert_eq!(*of, Reply::Values(vec![Some(bytes("off"))]));
                assert!(age <= Span::millis(500));
                done += 1;
            }
            // 1 was asked, whose answer does not come.
            Some(Outcome::Refused(refused)) => assert!(refused.retry_after.is_some()),
            other => panic!("{other:?}"),
        }
    }
    assert!(done > 0 && world.figure(3, "soft.passed") > 0);
    // Where nobody knows enough it is refused, and not passed round for ever.
    let id = asks(&mut world, 3, 0);
    pass_with(&mut world, 100, |_, _, _| true);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(refused)) if refused.retry_after.is_some()));
}

#[test]
fn before_all_nodes_are_new_it_waits() {
    let mut world = starting(STALE_LEVEL.into());
    let id = world.ask(3, read("k"));
    pass_with(&mut world, 300, nothing_comes);
    assert!(!world.answers.contains_key(&id));
    pass_with(&mut world, 3_000, |_, _, _| true);
    assert!(world.answers.contains_key(&id));
    assert_eq!(world.figure(3, "soft.passed"), 0);
}
