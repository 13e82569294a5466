//! Cookie mode, SSM 3.1 and 3.2: the cookie finds the value on any node, whoever dies, and nothing else does.

use std::sync::Arc;

use crate::world::{World, put_action};
use base::{AskId, NodeId, Outcome, Span};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use session::{Action, CookieError, Lease, Op, Reply};

fn by_cookie(action: Action, cookie: Option<&str>) -> Op {
    Op::cookie(Arc::from("carts"), Bytes::from_static(b"user-1"), action, cookie.map(str::to_owned))
}

fn put(world: &mut World, node: u64, value: &str, cookie: Option<&str>) -> String {
    match world.done(node, by_cookie(put_action(value), cookie)) {
        Reply::Stored { cookie: Some(cookie), .. } => cookie,
        other => panic!("{other:?}"),
    }
}

fn value(world: &mut World, node: u64, cookie: &str) -> String {
    match world.done(node, by_cookie(Action::Get, Some(cookie))) {
        Reply::Value { value, .. } => String::from_utf8(value.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Which nodes a cookie names: they stand in clear behind format, key, realm and their count.
fn bricks(cookie: &str) -> Vec<NodeId> {
    let bytes = URL_SAFE_NO_PAD.decode(cookie).unwrap();
    let ids = bytes[7..].chunks(8).take(usize::from(bytes[6]));
    ids.map(|id| NodeId(u64::from_be_bytes(id.try_into().unwrap()))).collect()
}

fn get(cookie: &str) -> Op {
    by_cookie(Action::Get, Some(cookie))
}

fn touch(world: &mut World, node: u64, cookie: &str) -> String {
    match world.done(node, by_cookie(Action::Touch { lease: Lease::Default }, Some(cookie))) {
        Reply::Stored { cookie: Some(cookie), .. } => cookie,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cookie_reads_its_value_through_every_node_and_is_short() {
    for count in 1..=5 {
        let mut world = World::settled(count, count);
        let first = put(&mut world, 1, "one", None);
        assert!(first.len() <= 128);
        for node in 1..=count {
            assert_eq!(value(&mut world, node, &first), "one");
        }
        let second = put(&mut world, count, "two", Some(&first));
        assert_eq!(value(&mut world, 1, &second), "two");
        assert_ne!(first, second);
    }
}

#[test]
fn a_value_survives_any_one_brick_of_its_cookie_also_one_that_restarted_empty() {
    for victim in 1..=3 {
        let mut world = World::settled(victim, 3);
        let cookie = put(&mut world, 1, "cart", None);
        world.kill(NodeId(victim));
        for node in world.live() {
            assert_eq!(value(&mut world, node.0, &cookie), "cart", "at once, before the death is known");
        }
        world.run(Span::millis(500));
        world.start(NodeId(victim));
        for node in 1..=3 {
            assert_eq!(value(&mut world, node, &cookie), "cart");
        }
    }
}

/// Nobody reads or writes it meanwhile: an idle session outlives an upgrade of the whole cluster.
#[test]
fn an_idle_value_survives_that_each_node_restarts_in_turn() {
    for (count, touches) in [(3, false), (3, true), (5, false), (5, true)] {
        let mut world = World::settled(11, count);
        let first = put(&mut world, 1, "one", None);
        let mut cookie = put(&mut world, 2, "two", Some(&first));
        if touches {
            cookie = touch(&mut world, 3, &cookie);
        }
        world.run(Span::secs(1));
        for node in 1..=count {
            world.kill(NodeId(node));
            world.restart_in(NodeId(node), Span::secs(1));
            world.run(Span::secs(2));
            world.settle();
        }
        for node in 1..=count {
            assert_eq!(value(&mut world, node, &cookie), "two");
        }
    }
}

#[test]
fn writes_spread_over_all_live_bricks() {
    let mut world = World::settled(20, 5);
    for i in 0..200 {
        let op = Op::cookie("carts".into(), format!("user-{i}").into(), put_action("v"), None);
        world.done(1 + i % 5, op);
    }
    world.run(Span::millis(100));
    for node in 1..=5 {
        let entries = world.figure(node, "session.entries");
        assert!((80..160).contains(&entries), "node {node} has {entries} of 600 copies");
    }
}

#[test]
fn touching_gives_a_new_cookie_and_removing_ends_it() {
    let mut world = World::settled(21, 3);
    let cookie = put(&mut world, 1, "v", None);
    world.run(Span::secs(1000));
    let touched = touch(&mut world, 2, &cookie);
    world.run(Span::secs(1000));
    assert_eq!(world.done(1, get(&cookie)), Reply::BadCookie(CookieError::Expired));
    assert_eq!(value(&mut world, 3, &touched), "v");
    assert_eq!(world.done(1, by_cookie(Action::Remove, Some(&touched))), Reply::Removed(true));
    let after = world.call(2, by_cookie(Action::Get, Some(&touched)));
    assert!(!matches!(after, Outcome::Done(Reply::Value { .. })), "{after:?}");
}

#[test]
fn an_outdated_cookie_gives_the_newer_value_and_never_the_old_one_again() {
    let mut world = World::settled(22, 3);
    let old = put(&mut world, 1, "old", None);
    let new = put(&mut world, 2, "new", Some(&old));
    world.run(Span::millis(100));
    for node in 1..=3 {
        assert_eq!(value(&mut world, node, &old), "new", "a request that was under way with the older cookie");
    }
    assert_eq!(world.done(3, by_cookie(Action::Remove, Some(&new))), Reply::Removed(true));
    world.run(Span::millis(100));
    for cookie in [&old, &new] {
        assert_eq!(world.done(1, get(cookie)), Reply::Absent, "the session was ended");
    }
}

#[test]
fn a_touch_with_an_outdated_cookie_keeps_what_was_put_meanwhile() {
    for seed in 30..40 {
        let mut world = World::settled(seed, 5);
        let old = put(&mut world, 1, "old", None);
        let new = put(&mut world, 2, "new", Some(&old));
        world.run(Span::millis(100));
        let touched = touch(&mut world, 3, &old);
        world.run(Span::millis(100));
        for node in 1..=5 {
            assert_eq!(value(&mut world, node, &new), "new", "seed {seed}");
        }
        let seen = value(&mut world, 4, &touched);
        assert!(seen == "new" || seen == "old", "{seen}");
    }
}

#[test]
fn a_session_keeps_two_of_its_bricks_and_finds_new_ones_for_those_that_died() {
    let mut world = World::settled(25, 5);
    let mut cookie = put(&mut world, 1, "0", None);
    for round in 1..=10u64 {
        let victim = NodeId(1 + round % 5);
        world.kill(victim);
        world.run(Span::millis(500));
        let at = 1 + (round + 1) % 5;
        assert_eq!(value(&mut world, at, &cookie), (round - 1).to_string(), "round {round}");
        cookie = if round % 2 == 0 {
            put(&mut world, at, &round.to_string(), Some(&cookie))
        } else {
            let touched = touch(&mut world, at, &cookie);
            put(&mut world, at, &round.to_string(), Some(&touched))
        };
        world.start(victim);
        world.run(Span::millis(500));
    }
    assert_eq!(value(&mut world, 1, &cookie), "10");
}

#[test]
fn bad_cookies_are_told_apart_counted_and_reported_now_and_then() {
    let mut world = World::settled(23, 3);
    let cookie = put(&mut world, 1, "v", None);
    let mut forged = cookie.clone().into_bytes();
    forged[60] = if forged[60] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let foreign = Op::cookie("other".into(), "user-1".into(), Action::Get, Some(cookie.clone()));
    // The right cookie with another user's key is worth no more than a changed one.
    let other_key = Op::cookie("carts".into(), "user-2".into(), Action::Get, Some(cookie.clone()));
    let before = world.notes.len();
    for (op, error) in [
        (get(&forged), CookieError::Forged),
        (get(&cookie[..40]), CookieError::Truncated),
        (foreign, CookieError::Foreign),
        (other_key, CookieError::Forged),
    ] {
        assert_eq!(world.done(1, op), Reply::BadCookie(error));
    }
    // A put or a removal with a bad cookie does nothing either.
    let bad = world.done(1, by_cookie(put_action("x"), Some(&forged)));
    assert_eq!(bad, Reply::BadCookie(CookieError::Forged));
    assert_eq!(value(&mut world, 2, &cookie), "v");
    for (name, count) in [("forged", 3), ("truncated", 1), ("foreign", 1), ("expired", 0)] {
        assert_eq!(world.figure(1, &format!("session.cookies_{name}")), count, "{name}");
    }
    assert_eq!(world.notes.len() - before, 1, "one line for all of them: {:?}", world.notes);
    world.run(Span::secs(11));
    world.done(1, get(&forged));
    assert!(world.notes.last().unwrap().contains("5 bad cookies refused"), "{:?}", world.notes);
}

#[test]
fn keys_rotate_while_every_node_serves_every_cookie() {
    let mut world = World::settled(26, 3);
    let old = put(&mut world, 1, "v", None);
    let wall_ms = world.wall_ms();
    world.secret = world.secret.rotated([8; 32], wall_ms, 1_800_000, false).unwrap();
    // Node 1 hears of it at once, node 2 a little later, node 3 is behind until after the lead.
    world.declare(NodeId(1));
    let during = put(&mut world, 1, "v", Some(&old));
    assert_eq!(value(&mut world, 2, &during), "v", "a node that has not heard of the new key");
    world.declare(NodeId(2));
    world.run(Span::secs(6));
    let after = put(&mut world, 1, "v", Some(&during));
    assert_eq!(value(&mut world, 2, &after), "v");
    assert_eq!(value(&mut world, 1, &old), "v", "the old key still opens");
    let Outcome::Refused(refused) = world.call(3, get(&after)) else { panic!("it cannot know the key") };
    assert!(refused.retry_after.is_some() && refused.why.contains("not heard of the key"), "{refused:?}");
    world.declare(NodeId(3));
    assert_eq!(value(&mut world, 3, &after), "v");
    // All at once, for a key that leaked.
    let wall_ms = world.wall_ms();
    world.secret = world.secret.rotated([9; 32], wall_ms, 1_800_000, true).unwrap();
    (1..=3).for_each(|node| world.declare(NodeId(node)));
    for cookie in [&old, &after] {
        assert_eq!(world.done(1, get(cookie)), Reply::BadCookie(CookieError::Expired));
    }
}

#[test]
fn a_value_whose_bricks_are_all_gone_is_lost() {
    let mut world = World::settled(24, 3);
    let cookie = put(&mut world, 1, "v", None);
    for node in 1..=3 {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in 1..=3 {
        world.start(NodeId(node));
    }
    world.settle();
    assert_eq!(world.done(1, by_cookie(Action::Get, Some(&cookie))), Reply::Lost);
}

#[test]
fn a_value_whose_bricks_do_not_answer_in_time_is_not_called_lost() {
    let mut world = World::settled(28, 4);
    [3, 4].into_iter().for_each(|node| world.kill(NodeId(node)));
    world.run(Span::secs(2));
    let cookie = put(&mut world, 1, "v", None);
    assert_eq!(bricks(&cookie), [NodeId(1), NodeId(2)]);
    [3, 4].into_iter().for_each(|node| world.start(NodeId(node)));
    world.settle();
    [1, 2].into_iter().for_each(|node| world.hang(NodeId(node), Span::secs(3)));
    // So many that windows are full when they are asked again.
    let asked: Vec<AskId> = (0..2_000).map(|_| world.ask(4, by_cookie(Action::Get, Some(&cookie)))).collect();
    world.run(Span::secs(4));
    for id in asked {
        assert!(matches!(world.answers[&id].1, Outcome::Refused(_)), "{:?}", world.answers[&id]);
    }
    assert_eq!(value(&mut world, 4, &cookie), "v");
}

/// Those of its bricks that can be asked have restarted, and one is only out of reach, for them as well.
#[test]
fn a_brick_that_is_out_of_reach_is_not_called_dead_while_it_may_have_the_value() {
    let mut world = World::settled(27, 4);
    let (asks, holds) = (3, NodeId(2));
    let (cookie, bricks) = loop {
        let cookie = put(&mut world, 1, "v", None);
        let bricks = bricks(&cookie);
        if bricks.contains(&holds) && !bricks.contains(&NodeId(asks)) {
            break (cookie, bricks);
        }
    };
    world.part(NodeId(asks), holds);
    bricks.iter().filter(|node| **node != holds).for_each(|node| world.part(*node, holds));
    world.run(Span::secs(20));
    let others: Vec<NodeId> = bricks.into_iter().filter(|node| *node != holds).collect();
    others.iter().for_each(|node| world.kill(*node));
    world.run(Span::secs(2));
    others.iter().for_each(|node| world.start(*node));
    world.run(Span::secs(2));
    let get = || by_cookie(Action::Get, Some(&cookie));
    assert!(matches!(world.call(asks, get()), Outcome::Refused(_)));
    world.run(Span::secs(500));
    assert!(matches!(world.call(asks, get()), Outcome::Refused(_)));
    world.heal();
    world.run(Span::secs(2));
    assert_eq!(value(&mut world, asks, &cookie), "v");
}

#[test]
fn what_only_a_brick_had_that_stays_away_is_lost_in_the_end() {
    let mut world = World::settled(30, 5);
    [3, 4, 5].into_iter().for_each(|node| world.kill(NodeId(node)));
    world.run(Span::secs(2));
    let cookie = put(&mut world, 1, "v", None);
    [3, 4, 5].into_iter().for_each(|node| world.start(NodeId(node)));
    world.settle();
    [1, 2].into_iter().for_each(|node| world.kill(NodeId(node)));
    world.run(Span::secs(590));
    assert!(matches!(world.call(3, get(&cookie)), Outcome::Refused(_)), "they may only be cut off");
    world.run(Span::secs(60));
    assert_eq!(world.done(3, get(&cookie)), Reply::Lost);
}

/// Its two bricks live, and all others see them.
#[test]
fn bricks_that_only_one_node_cannot_reach_are_not_gone_whatever_that_node_thinks() {
    let mut world = World::settled(29, 6);
    [5, 6].into_iter().for_each(|node| world.kill(NodeId(node)));
    world.run(Span::secs(2));
    let (cookie, named) = loop {
        let cookie = put(&mut world, 1, "v", None);
        let named = bricks(&cookie);
        if !named.contains(&NodeId(4)) {
            break (cookie, named);
        }
    };
    [5, 6].into_iter().for_each(|node| world.start(NodeId(node)));
    world.settle();
    let (third, two) = named.split_last().unwrap();
    world.kill(*third);
    two.iter().for_each(|node| world.part(NodeId(4), *node));
    world.run(Span::secs(200));
    let Outcome::Refused(refused) = world.call(4, get(&cookie)) else { panic!("most bricks see where it is") };
    assert!(refused.why.contains("no brick of the cookie that is live"), "{refused:?}");
    world.heal();
    world.run(Span::secs(2));
    assert_eq!(value(&mut world, 4, &cookie), "v");
}

/// It may all be there on the other side.
#[test]
fn who_is_cut_off_from_most_bricks_does_not_call_a_value_lost() {
    let mut world = World::settled(25, 3);
    world.partition(&[NodeId(1)]);
    world.run(Span::secs(5));
    let cookie = put(&mut world, 2, "v", None);
    world.heal();
    world.settle();
    world.partition(&[NodeId(1)]);
    world.run(Span::secs(15));
    let Outcome::Refused(refused) = world.call(1, by_cookie(Action::Get, Some(&cookie))) else {
        panic!("node 1 has nothing and sees nobody")
    };
    assert!(refused.why.contains("cut off"), "{refused:?}");
    assert_eq!(value(&mut world, 2, &cookie), "v", "on the other side it is there");
}
