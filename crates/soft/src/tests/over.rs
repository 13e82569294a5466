//! Lives that are over are folded, so that nothing grows with the starts of nodes; and nothing is lost by it.

use super::*;

fn lines(world: &World, n: u64) -> usize {
    let space = world.space(n);
    space.context.lines().max(space.floor.lines())
}

/// A start of a node, from what is on its disk.
fn again(world: &mut World, n: u64, boot: u64) {
    world.dies(n);
    world.born(n, boot);
}

#[test]
fn a_thousand_starts_of_a_node_leave_a_line() {
    let mut world = World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() });
    let mut sum = 0;
    for boot in 2..=1_001 {
        again(&mut world, 3, boot);
        // It counts when it serves.
        for _ in 0..20 {
            world.pass(20);
            if world.nodes[&3].spaces[&7].is_settled() {
                break;
            }
        }
        world.add(3, "n", 1);
        sum += 1;
        world.pass(20);
    }
    assert!((1..=3).all(|n| lines(&world, n) > 500), "that many lives have counted");
    world.pass(60_000);
    for n in 1..=3 {
        assert!(lines(&world, n) <= 6, "node {n}: {}", lines(&world, n));
        assert_eq!(world.number(n, "n"), sum, "node {n}");
    }
    world.are_equal();
    assert!((1..=3).all(|n| world.figure(n, "soft.transfers") == 0), "nobody has compared anything");
    // All end, and have it from their disks.
    world.pass(3_000);
    world.all_end(2_000);
    world.pass(5_000);
    world.add(2, "n", 1);
    world.pass(30_000);
    for n in 1..=3 {
        assert!(lines(&world, n) <= 6, "node {n}: {}", lines(&world, n));
        assert_eq!(world.number(n, "n"), sum + 1, "node {n}");
    }
}

#[test]
fn nothing_is_folded_while_a_member_is_away_and_what_it_has_stays() {
    let mut world = World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() });
    world.set(1, "old", "v", End::Never);
    world.pass(3_000);
    let mut boots = 1;
    (1..=2).for_each(|n| world.cut_off(n, false));
    world.set(2, "far", "at", End::Never);
    for _ in 0..5 {
        boots += 1;
        again(&mut world, 3, boots);
        // It waits for the others in vain.
        world.pass(11_000);
        world.set(3, "k", &boots.to_string(), End::Never);
        world.pass(40_000);
    }
    assert!(lines(&world, 3) >= 5, "two are away");
    world.heal();
    world.pass(60_000);
    world.are_equal();
    assert!((1..=3).all(|n| lines(&world, n) <= 6));
    for n in 1..=3 {
        assert_eq!(world.get(n, "far").as_deref(), Some("at"), "node {n}");
        assert_eq!(world.get(n, "k"), Some(boots.to_string()), "node {n}");
    }
}

/// What an older checkpoint lacks of lives that are folded elsewhere comes by comparison, and what was removed stays so.
#[test]
fn who_falls_back_behind_a_fold_compares() {
    let mut world = World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() });
    world.set(3, "gone", "v", End::Never);
    world.add(3, "n", 5);
    world.pass(3_000);
    let older = world.disks[&2].clone();
    world.set(3, "kept", "v", End::Never);
    world.add(3, "n", 7);
    world.ask(1, Action::Remove { keys: vec![bytes("gone")] });
    world.pass(3_000);
    again(&mut world, 3, 2);
    world.pass(40_000);
    assert!(world.space(1).context.is_over(Life { node: NodeId(3), boot: Boot(1) }), "it is folded");
    world.dies(2);
    world.disks.insert(2, older);
    world.born(2, 2);
    world.pass(30_000);
    world.are_equal();
    assert_eq!(world.number(2, "n"), 12);
    assert_eq!((world.get(2, "gone"), world.get(2, "kept").as_deref()), (None, Some("v")));
    assert!(world.figure(2, "soft.transfers") > 0);
}

/// Planted: a life is folded while another has more of it.
#[test]
fn what_is_folded_before_all_have_it_is_lost() {
    let lost = |planted: bool| {
        let mut world = World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() });
        world.set(3, "a", "v", End::Never);
        world.pass(3_000);
        world.cut_off(1, true);
        world.set(3, "b", "v", End::Never);
        world.pass(1_000);
        again(&mut world, 3, 2);
        // The first one has not heard of that, and knows the new life.
        world.cut.clear();
        world.cut_off(1, false);
        if planted {
            let held = world.nodes.get_mut(&1).unwrap().spaces.get_mut(&7).unwrap();
            held.space.fold(NodeId(3), Boot(2));
        }
        world.pass(20_000);
        world.heal();
        world.pass(40_000);
        world.get(1, "b").is_none()
    };
    assert!(lost(true), "the test sees it");
    assert!(!lost(false));
}
