//! Which bricks are asked, where there is a choice: at random among the live, by the room in the stub's windows to them, and
//! none whose window is full (SSM 3.4).

use base::{NodeId, Span, Time};

use super::Action;
use super::tests::world::{World, by_cookie, op, put, put_action};

/// The window of node 1 towards this brick, as if requests had timed out twice: a quarter.
fn quartered(world: &mut World, brick: NodeId) {
    let window = &mut world.session(1).peers.get_mut(&brick).unwrap().window;
    let before = window.size();
    for burst in 1..=2 {
        window.sent();
        window.timed_out(Time(burst * 1_000_000), Span::millis(60));
    }
    assert!((window.size() * 4.0 - before).abs() < 0.1);
}

/// As if it answered nothing until its window was full.
fn filled_up(world: &mut World, brick: NodeId) {
    let window = &mut world.session(1).peers.get_mut(&brick).unwrap().window;
    while window.has_room() {
        window.sent();
    }
}

/// What node 1 asked of each other brick while this was done.
fn asked(world: &mut World, work: impl FnOnce(&mut World)) -> Vec<u64> {
    let sent = |world: &mut World| world.session(1).peers.values().map(|peer| peer.counts.sent).collect::<Vec<_>>();
    let before = sent(world);
    work(world);
    sent(world).iter().zip(before).map(|(after, before)| after - before).collect()
}

fn new_sessions(world: &mut World) {
    for i in 0..3_000 {
        world.ask(1, by_cookie(&format!("u{i}"), put_action("v"), None));
        world.run(Span::millis(1));
    }
}

fn reads(world: &mut World) {
    for i in 0..3_000 {
        world.ask(1, op(&format!("k{}", i % 30), Action::Get));
        world.run(Span::millis(1));
    }
}

fn with_keys(seed: u64, nodes: u64) -> World {
    let mut world = World::settled(seed, nodes);
    for i in 0..30 {
        world.ask(1, put(&format!("k{i}"), "v"));
        world.run(Span::millis(2));
    }
    world
}

/// `share` of what the others got, who got about the same each.
fn check(asked: &[u64], share: std::ops::Range<f64>) {
    let (first, others) = asked.split_first().unwrap();
    let mean = others.iter().sum::<u64>() as f64 / others.len() as f64;
    assert!(mean > 300.0 && others.iter().all(|n| (*n as f64 / mean - 1.0).abs() < 0.15), "{asked:?}");
    assert!(share.contains(&(*first as f64 / mean)), "{asked:?}");
}

#[test]
fn new_sessions_go_to_bricks_at_random_by_their_windows() {
    // So many that one draw of three hardly changes the next.
    let mut world = World::settled(31, 13);
    check(&asked(&mut world, new_sessions), 0.85..1.15);
    quartered(&mut world, NodeId(2));
    check(&asked(&mut world, new_sessions), 0.2..0.33);
}

#[test]
fn reads_by_key_go_to_bricks_at_random_by_their_windows() {
    // Its own brick answers by a call; of the two others one is needed.
    let mut world = with_keys(32, 3);
    check(&asked(&mut world, reads), 0.85..1.15);
    quartered(&mut world, NodeId(2));
    check(&asked(&mut world, reads), 0.2..0.33);
}

#[test]
fn a_brick_whose_window_is_full_gets_nothing_and_its_share_is_shown_as_refused() {
    let mut world = with_keys(33, 5);
    filled_up(&mut world, NodeId(2));
    let got = asked(&mut world, |world| {
        new_sessions(world);
        reads(world);
    });
    assert!(got[0] == 0 && got[1..].iter().all(|n| *n > 300), "{got:?}");
    let stubs = world.session(1).stubs();
    assert!(stubs[0].brick == NodeId(2) && stubs[0].no_room >= 3_000, "{stubs:?}");
    assert!(stubs.iter().skip(1).all(|stub| stub.no_room == 0), "{stubs:?}");
    assert!(stubs.iter().all(|stub| stub.turned_away == 0), "{stubs:?}");
}
