//! The owner map: looking for something costs the same in any cluster, and says the same as asking all would.

use base::{NodeId, Outcome, Span};
use object::{Action, Reply, Settings};

use crate::world::{World, id, put};

fn get(n: u8) -> Action {
    Action::Get { id: id(n), at: 0 }
}

const ALL: Action = Action::List { after: None, limit: 100 };

/// Ids of a list, if it misses nobody.
fn listed(outcome: &Outcome<Reply>) -> Option<usize> {
    match outcome {
        Outcome::Done(Reply::List(list)) => list.missing.is_empty().then_some(list.objects.len()),
        other => panic!("{other:?}"),
    }
}

fn owner(n: u8) -> String {
    format!("owner{n}")
}

/// Frames for one of each: a put, a get, a list, and a list when many are asked for at once.
fn frames(nodes: u64, directories_from: usize) -> [u64; 4] {
    let mut world = World::with(1, nodes, Settings { directories_from, ..Settings::default() });
    world.run(Span::secs(2));
    let asked = |world: &World| (1..=nodes).map(|node| world.figure(node, "object.asked_all")).sum::<u64>();
    let mut per_op = |count: u8, op: &dyn Fn(&mut World, u8, u64)| {
        let (sent, all) = (world.sent, asked(&world));
        for n in 0..count {
            op(&mut world, n, u64::from(n) * 7 % nodes + 1);
            world.run(Span::millis(50));
        }
        world.run(Span::millis(300));
        if nodes as usize >= directories_from {
            assert_eq!(asked(&world), all, "a directory was there");
        }
        (world.sent - sent) / u64::from(count)
    };
    let puts = per_op(20, &|world, n, at| {
        let said = world.ask(at, "mail", &owner(n), put(n, "x"));
        assert!(matches!(said, Outcome::Done(Reply::Stored { copies: 2, .. })), "{said:?}");
    });
    let gets = per_op(20, &|world, n, at| {
        assert!(matches!(world.ask(at % nodes + 1, "mail", &owner(n), get(n)), Outcome::Done(Reply::Object { .. })));
    });
    let lists = per_op(20, &|world, n, at| {
        assert_eq!(listed(&world.ask(at % nodes + 1, "mail", &owner(n), ALL)), Some(1));
    });
    let at_once = per_op(4, &|world, _, at| {
        (0..100).for_each(|_| _ = world.begin(at, "mail", "owner1", ALL, Span::secs(3)));
    });
    assert!(world.answers.values().all(|(_, answer)| listed(answer) == Some(1)));
    [puts, gets, lists, at_once / 100]
}

#[test]
fn what_a_lookup_costs_does_not_grow_with_the_nodes() {
    let all = usize::MAX;
    let ([few, many], [few_all, many_all]) = ([frames(8, 2), frames(48, 2)], [frames(8, all), frames(48, all)]);
    println!("frames for a put, a get, a list, a list of many at once");
    println!("by directory: {few:?} at 8 nodes, {many:?} at 48; asking all: {few_all:?} at 8, {many_all:?} at 48");
    for (n, what) in ["put", "get"].into_iter().enumerate() {
        assert!(many[n] <= few[n] + 1, "{what}: {few:?} {many:?}");
        assert!(many_all[n] > 4 * many[n], "{what}: {many:?} {many_all:?}");
    }
    // That nobody has anything else is known of all nodes alone: those who ask together ask once, or twice.
    assert!(many[3] <= few[3] + 3 && many_all[3] > 8 * many[3], "{few:?} {many:?} {many_all:?}");
}

/// Figure 6 of Porcupine: whoever crashes and is back before others have seen it knows nothing of what it was told, and others
/// do not know that it does not.
#[test]
fn a_life_that_nobody_has_seen_begin_changes_nothing() {
    for seed in 1..=6 {
        let mut world = World::mapped(seed, 5);
        for n in 1..=30 {
            world.ask(u64::from(n) % 5 + 1, "mail", &owner(n), put(n, "x"));
        }
        world.births_unseen = true;
        let again = NodeId(seed % 5 + 1);
        world.kill(again);
        world.start(again);
        for n in 31..=60 {
            let of = owner(n % 30 + 1);
            assert!(matches!(
                world.ask(u64::from(n) % 5 + 1, "mail", &of, put(n, "x")),
                Outcome::Done(Reply::Stored { .. })
            ));
        }
        for n in 1..=30 {
            for node in 1..=5 {
                let listed = listed(&world.ask(node, "mail", &owner(n), ALL));
                assert!(listed.is_none_or(|count| count == 2), "{node} lists {listed:?} of {n}, and misses nobody");
                assert!(matches!(world.ask(node, "mail", &owner(n), get(n)), Outcome::Done(Reply::Object { .. })));
            }
        }
    }
}

#[test]
fn buckets_go_to_who_comes_and_come_from_who_goes() {
    let mut world = World::mapped(11, 4);
    for n in 1..=60 {
        world.ask(u64::from(n) % 4 + 1, "mail", &owner(n), put(n, "x"));
    }
    let buckets = |world: &World, name| world.live().iter().map(|node| world.figure(node.0, name)).collect::<Vec<_>>();
    let is_rest = |world: &World| {
        assert_eq!(buckets(world, "object.buckets").iter().sum::<u64>(), 1024);
        assert_eq!(buckets(world, "object.buckets_partial").iter().sum::<u64>(), 0);
        assert_eq!(buckets(world, "object.owners_known").iter().sum::<u64>(), 60);
    };
    world.run(Span::secs(2));
    is_rest(&world);
    for at in 0..3 {
        match at {
            0 => world.kill(NodeId(2)),
            1 => {
                world.members.insert(NodeId(9));
                world.start(NodeId(9));
                world.declare_all();
            }
            _ => world.start(NodeId(2)),
        }
        // While they move, and after.
        world.run(Span::millis(21));
        for n in 1..=60 {
            let node = world.live()[usize::from(n) % 3];
            let said = world.ask(node.0, "mail", &owner(n), get(n));
            assert!(matches!(said, Outcome::Done(Reply::Object { .. })), "{said:?}");
            world.run(Span::millis(5));
        }
        world.run(Span::secs(3));
        is_rest(&world);
    }
    // An older program is among them: all are asked.
    world.level = 10;
    world.declare_all();
    assert!(buckets(&world, "object.buckets").iter().all(|count| *count == 0));
    assert!(matches!(world.ask(1, "mail", &owner(1), get(1)), Outcome::Done(Reply::Object { .. })));
}
