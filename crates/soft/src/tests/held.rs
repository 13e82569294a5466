//! What is there as long as somebody holds it.

use super::*;

fn hold(world: &mut World, n: u64, member: &str, holder: u64) -> Reply {
    world.done(n, Action::Hold { kind: Kind::Member, key: bytes("online"), pairs: vec![(bytes(member), None)], holder })
}

fn seen(world: &mut World) -> Vec<Vec<String>> {
    let nodes: Vec<u64> = world.nodes.keys().copied().collect();
    nodes.into_iter().map(|n| world.members(n, "online")).collect()
}

#[test]
fn what_somebody_holds_goes_with_him_unless_another_holds_it_too() {
    let mut world = World::new(3);
    assert_eq!(hold(&mut world, 1, "ann", 7), Reply::Int(1));
    assert_eq!(hold(&mut world, 1, "ann", 8), Reply::Int(0));
    assert_eq!(hold(&mut world, 2, "ann", 7), Reply::Int(0));
    assert_eq!(hold(&mut world, 2, "bob", 9), Reply::Int(1));
    world.pass(300);
    assert_eq!(seen(&mut world), [["ann", "bob"]; 3]);
    for (n, holder) in [(1, 7), (1, 7), (2, 7)] {
        world.done(n, Action::LetGo { holder });
        world.pass(300);
        assert_eq!(seen(&mut world), [["ann", "bob"]; 3], "one of node 1 is left");
    }
    world.done(1, Action::LetGo { holder: 8 });
    world.pass(300);
    assert_eq!(seen(&mut world), [["bob"]; 3]);
    world.check();
    world.are_equal();
}

#[test]
fn it_goes_with_its_node_and_comes_back_if_that_was_only_cut_off() {
    let mut world = World::new(3);
    hold(&mut world, 3, "ann", 1);
    hold(&mut world, 2, "bob", 1);
    world.pass(300);
    world.cut_off(3, true);
    world.pass(1_000);
    assert_eq!([world.members(1, "online"), world.members(2, "online")], [["bob"]; 2]);
    assert_eq!(world.members(3, "online"), ["ann"]);
    world.heal();
    world.pass(1_500);
    assert_eq!(seen(&mut world), [["ann", "bob"]; 3]);

    world.dies(3);
    world.pass(1_000);
    assert_eq!(seen(&mut world), [["bob"]; 2]);
    world.born(3, 2);
    world.pass(3_000);
    assert_eq!(seen(&mut world), [["bob"]; 3]);
    world.check();
    world.are_equal();
}

#[test]
fn what_all_nodes_have_kept_of_former_lives_is_gone_when_they_are_back() {
    let mut world = World::of(3, Spec { checkpoint_ms: 1_000, ..Spec::default() });
    hold(&mut world, 1, "ann", 1);
    world.put_members(2, "online", &["eve"]);
    world.pass(3_000);
    world.all_end(2);
    world.pass(5_000);
    assert_eq!(seen(&mut world), [["eve"]; 3]);
}

#[test]
fn what_is_taken_away_on_purpose_does_not_come_back() {
    let mut world = World::new(3);
    hold(&mut world, 1, "ann", 1);
    world.pass(300);
    world.done(2, Action::Take { kind: Kind::Member, key: bytes("online"), elements: vec![bytes("ann")] });
    world.pass(2_000);
    assert_eq!(seen(&mut world), [[""; 0]; 3]);
    world.cut_off(1, true);
    world.pass(500);
    world.heal();
    world.pass(1_500);
    assert_eq!(seen(&mut world), [[""; 0]; 3]);
    // Its holder may hold it again.
    hold(&mut world, 1, "ann", 1);
    world.pass(300);
    assert_eq!(seen(&mut world), [["ann"]; 3]);
    world.done(1, Action::LetGo { holder: 1 });
    world.pass(300);
    assert_eq!(seen(&mut world), [[""; 0]; 3]);
}

#[test]
fn only_fields_and_members_can_be_held_and_nodes_of_before_are_not_told() {
    let mut world = World::new(2);
    let id = world.ask(1, Action::Hold { kind: Kind::Register, key: bytes("k"), pairs: vec![], holder: 1 });
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(_))));
    (1..=2).for_each(|n| world.declare(n, HELD_LEVEL - 1));
    let pairs = vec![(bytes("a"), None)];
    let id = world.ask(1, Action::Hold { kind: Kind::Member, key: bytes("online"), pairs, holder: 1 });
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(_))));
}
