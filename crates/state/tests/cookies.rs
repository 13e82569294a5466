//! Cookie mode, SSM 3.1 and 3.2: the cookie finds the value on any node, whoever dies, and nothing else does.
#![allow(clippy::unwrap_used)]

mod world;

use std::sync::Arc;

use base::{NodeId, Outcome, Span};
use bytes::Bytes;
use state::session::{Action, Lease, Op, Reply};
use world::{World, put_action};

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

fn refusal(world: &mut World, op: Op) -> String {
    match world.call(1, op) {
        Outcome::Refused(refused) => refused.why,
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
    let Reply::Stored { cookie: Some(touched), .. } =
        world.done(2, by_cookie(Action::Touch { lease: Lease::Default }, Some(&cookie)))
    else {
        panic!("a cookie")
    };
    world.run(Span::secs(1000));
    assert_eq!(refusal(&mut world, by_cookie(Action::Get, Some(&cookie))), "the lease of the cookie has ended");
    assert_eq!(value(&mut world, 3, &touched), "v");
    assert_eq!(world.done(1, by_cookie(Action::Remove, Some(&touched))), Reply::Removed(true));
    let after = world.call(2, by_cookie(Action::Get, Some(&touched)));
    assert!(!matches!(after, Outcome::Done(Reply::Value { .. })), "{after:?}");
}

#[test]
fn an_outdated_cookie_does_not_bring_the_old_value_back() {
    let mut world = World::settled(22, 3);
    let old = put(&mut world, 1, "old", None);
    put(&mut world, 2, "new", Some(&old));
    world.run(Span::millis(100));
    assert_eq!(refusal(&mut world, by_cookie(Action::Get, Some(&old))), "the cookie was superseded by a newer write");
}

#[test]
fn forged_cut_and_foreign_cookies_are_told_apart() {
    let mut world = World::settled(23, 3);
    let cookie = put(&mut world, 1, "v", None);
    let mut forged = cookie.clone().into_bytes();
    forged[60] = if forged[60] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(refusal(&mut world, by_cookie(Action::Get, Some(&forged))), "the cookie was changed");
    assert_eq!(refusal(&mut world, by_cookie(Action::Get, Some(&cookie[..40]))), "the cookie is cut or no cookie");
    let foreign = Op::cookie("other".into(), "user-1".into(), Action::Get, Some(cookie.clone()));
    assert!(refusal(&mut world, foreign).contains("another namespace"));
    // The right cookie with another user's key finds nothing.
    let other_key = Op::cookie("carts".into(), "user-2".into(), Action::Get, Some(cookie));
    assert_eq!(world.done(1, other_key), Reply::Lost);
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
