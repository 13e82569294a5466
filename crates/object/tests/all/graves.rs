//! Deletions that all nodes have: they are remembered apart from objects, and make no node refuse a put.

use std::collections::BTreeMap;

use base::{NodeId, Outcome, Span};
use object::{Action, Id, Reply, Settings};

use crate::world::{World, id, put};

fn nth(n: u32) -> Id {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    Id(id)
}

fn put_nth(n: u32) -> Action {
    Action::Put { id: nth(n), body: object::Body::from(bytes::Bytes::from(format!("text {n}"))) }
}

fn is_stored(outcome: &Outcome<Reply>) -> bool {
    matches!(outcome, Outcome::Done(Reply::Stored { .. }))
}

/// Puts and deletes so many at the nodes in turn.
fn churn(world: &mut World, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let (at, owner) = (1 + u64::from(n) % 3, format!("owner {}", n % 5));
        let stored = world.ask(at, "mail", &owner, put_nth(n));
        assert!(is_stored(&stored), "{n}: {stored:?}");
        let deleted = world.ask(at % 3 + 1, "mail", &owner, Action::Delete { id: nth(n) });
        assert!(matches!(deleted, Outcome::Done(Reply::Deleted { .. })), "{n}: {deleted:?}");
    }
}

fn again(world: &mut World, n: u32) -> Outcome<Reply> {
    world.ask(1, "mail", &format!("owner {}", n % 5), put_nth(n))
}

#[test]
fn more_is_deleted_than_objects_have_room_and_puts_go_on() {
    let settings = Settings { entries_max: 20, unsettled_max: 20, ..World::packed(30) };
    let mut world = World::with(31, 3, settings);
    churn(&mut world, 0..200);
    world.run(Span::secs(2));
    for node in 1..=3 {
        assert_eq!((world.figure(node, "object.tombstones"), world.figure(node, "object.open")), (200, 0));
    }
    // Each is remembered, and is after all nodes have lost what was not on their disks.
    for _ in 0..2 {
        for n in [0, 77, 199] {
            assert_eq!(again(&mut world, n), Outcome::Done(Reply::Gone), "{n}");
            let got = world.ask(2, "mail", &format!("owner {}", n % 5), Action::Get { id: nth(n), at: 0 });
            assert_eq!(got, Outcome::Done(Reply::Gone));
        }
        world.run(Span::secs(2));
        for node in 1..=3 {
            world.kill(NodeId(node));
        }
        world.run(Span::secs(1));
        for node in 1..=3 {
            world.start(NodeId(node));
        }
        world.run(Span::secs(5));
    }
    // Objects have their bound all the same.
    let full = (1000..1100).map(|n| world.ask(1, "mail", "bob", put_nth(n))).find(|outcome| !is_stored(outcome));
    assert!(matches!(full, Some(Outcome::Refused(_))), "{full:?}");
}

#[test]
fn with_more_than_are_remembered_the_oldest_are_forgotten_and_the_youngest_never() {
    let mut world = World::with(32, 3, Settings { graves_max: 60, ..World::packed(30) });
    churn(&mut world, 0..100);
    world.run(Span::secs(10));
    assert_eq!(world.figure(1, "object.tombstones"), 100, "a frame may be under way that would bring one back");
    world.run(Span::secs(150));
    churn(&mut world, 100..110);
    world.run(Span::secs(10));
    for node in 1..=3 {
        let left = world.figure(node, "object.tombstones");
        // Those of one second go together.
        assert!((10..=60).contains(&left), "{left}");
    }
    for n in [105, 109] {
        assert_eq!(again(&mut world, n), Outcome::Done(Reply::Gone), "{n}");
    }
    assert!(is_stored(&again(&mut world, 0)), "as late as that it is a new one");
    // It is one like any other: deleted once more it is gone.
    let deleted = world.ask(2, "mail", "owner 0", Action::Delete { id: nth(0) });
    assert!(matches!(deleted, Outcome::Done(Reply::Deleted { .. })), "{deleted:?}");
    assert_eq!(again(&mut world, 0), Outcome::Done(Reply::Gone));
}

#[test]
fn one_that_a_node_lacks_is_kept_as_long_as_that_is_away_whatever_the_bounds() {
    let mut world = World::with(33, 3, Settings { graves_max: 5, ..World::packed(30) });
    assert!(is_stored(&world.ask(1, "mail", "ann", put(1, "hello"))));
    let holders: Vec<u64> = world.objects().into_iter().filter(|(_, n)| *n > 0).map(|(node, _)| node).collect();
    let away = NodeId(holders[0]);
    let here = (1..=3).find(|n| NodeId(*n) != away).unwrap();
    world.kill(away);
    world.run(Span::secs(1));
    let deleted = world.ask(here, "mail", "ann", Action::Delete { id: id(1) });
    assert!(matches!(deleted, Outcome::Done(Reply::Deleted { .. })), "{deleted:?}");
    // Longer than deletions are remembered that all have.
    for node in 1..=3 {
        world.skew.insert(NodeId(node), 20 * 86_400_000);
    }
    world.run(Span::secs(200));
    world.start(away);
    world.run(Span::secs(10));
    for node in 1..=3 {
        assert_eq!(
            world.ask(node, "mail", "ann", Action::Get { id: id(1), at: 0 }),
            Outcome::Done(Reply::Gone),
            "{node}"
        );
    }
}

#[test]
fn a_node_that_joins_gets_deletions_that_all_others_had_long_before() {
    let mut world = World::with(34, 3, World::packed(30));
    churn(&mut world, 0..50);
    world.run(Span::secs(30));
    world.members.insert(NodeId(4));
    world.start(NodeId(4));
    world.declare_all();
    world.run(Span::secs(60));
    for node in 1..=4 {
        assert_eq!((world.figure(node, "object.tombstones"), world.figure(node, "object.open")), (50, 0), "{node}");
        assert_eq!(world.figure(node, "object.thin"), 0, "{node}");
    }
    // Without the others it knows.
    for node in 1..=3 {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    let got = world.ask(4, "mail", "owner 2", Action::Get { id: nth(7), at: 0 });
    assert_eq!(got, Outcome::Done(Reply::Gone));
}

#[test]
fn checkpoints_have_them_in_batches_and_before_all_nodes_run_this_version_one_by_one() {
    let records = |level: u32| {
        let mut world = World::with(35, 3, World::packed(30));
        world.level = level;
        world.declare_all();
        churn(&mut world, 0..60);
        world.run(Span::secs(30));
        // What is put and deleted now has the log grow until a checkpoint replaces it.
        churn(&mut world, 60..70);
        world.run(Span::secs(5));
        for node in 1..=3 {
            world.kill(NodeId(node));
        }
        let records: BTreeMap<u64, usize> = (1..=3).map(|node| (node, world.records(node))).collect();
        for node in 1..=3 {
            world.start(NodeId(node));
        }
        world.run(Span::secs(5));
        for n in [3, 59, 69] {
            assert_eq!(again(&mut world, n), Outcome::Done(Reply::Gone), "level {level}: {n}");
        }
        records
    };
    // One of each deletion at least, or less than that.
    let (before, now) = (records(13), records(base::LEVEL));
    assert!(before.values().all(|count| *count >= 70) && now.values().all(|count| *count < 70), "{now:?} {before:?}");
}
