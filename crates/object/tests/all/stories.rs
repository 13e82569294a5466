//! One promise each.

use std::collections::BTreeSet;

use base::{NodeId, Outcome, Span};
use object::{Action, Reply, Settings};

use crate::world::{World, id, put};

fn copies(outcome: Outcome<Reply>) -> u32 {
    match outcome {
        Outcome::Done(Reply::Stored { copies, .. } | Reply::Deleted { copies, .. }) => copies,
        other => panic!("{other:?}"),
    }
}

fn text(outcome: Outcome<Reply>) -> String {
    match outcome {
        Outcome::Done(Reply::Object { body, .. }) => String::from_utf8(body.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn get(n: u8) -> Action {
    Action::Get { id: id(n), at: 0 }
}

fn delete(n: u8) -> Action {
    Action::Delete { id: id(n) }
}

#[test]
fn what_was_put_at_one_node_is_read_at_every_node_and_deleted_at_any() {
    let mut world = World::new(1, 4);
    assert_eq!(copies(world.ask(1, "mail", "ann", put(1, "hello"))), 2);
    assert_eq!(world.objects().values().sum::<u64>(), 2);
    for node in 1..=4 {
        assert_eq!(text(world.ask(node, "mail", "ann", get(1))), "hello");
    }
    assert_eq!(world.ask(2, "mail", "ann", get(2)), Outcome::Done(Reply::Absent));
    assert_eq!(world.ask(2, "mail", "bob", get(1)), Outcome::Done(Reply::Absent), "of another owner");
    assert!(copies(world.ask(3, "mail", "ann", delete(1))) >= 2);
    for node in 1..=4 {
        assert_eq!(world.ask(node, "mail", "ann", get(1)), Outcome::Done(Reply::Gone));
    }
    assert_eq!(world.ask(4, "mail", "ann", put(1, "hello")), Outcome::Done(Reply::Gone), "for good");
    assert_eq!(world.ask(4, "mail", "ann", delete(7)), Outcome::Done(Reply::Absent));
    world.run(Span::secs(20));
    assert_eq!((1..=4).map(|node| world.figure(node, "object.open")).sum::<u64>(), 0, "all have heard of all");
}

#[test]
fn an_object_is_written_once_and_saying_it_again_changes_nothing() {
    let mut world = World::new(2, 3);
    let first = world.ask(1, "mail", "ann", put(1, "hello"));
    assert_eq!(world.ask(2, "mail", "ann", put(1, "hello")), first, "the same version too");
    assert!(matches!(world.ask(3, "mail", "ann", put(1, "other")), Outcome::Done(Reply::Conflict { .. })));
    assert_eq!(text(world.ask(3, "mail", "ann", get(1))), "hello");
}

#[test]
fn with_newest_the_last_write_stays_and_a_deletion_is_one() {
    let mut world = World::new(3, 3);
    for (node, body) in [(1, "one"), (2, "two"), (3, "three")] {
        copies(world.ask(node, "notes", "ann", put(1, body)));
        for reader in 1..=3 {
            assert_eq!(text(world.ask(reader, "notes", "ann", get(1))), body);
        }
    }
    copies(world.ask(1, "notes", "ann", delete(1)));
    assert_eq!(world.ask(2, "notes", "ann", get(1)), Outcome::Done(Reply::Gone));
    copies(world.ask(2, "notes", "ann", put(1, "four")));
    assert_eq!(text(world.ask(3, "notes", "ann", get(1))), "four");
}

#[test]
fn a_put_is_answered_when_two_disks_have_it_and_not_before() {
    let mut world = World::new(4, 2);
    world.nodes.get_mut(&NodeId(2)).unwrap().force = 100_000;
    let ask = world.begin(1, "mail", "ann", put(1, "hello"), Span::secs(3));
    world.run(Span::millis(45));
    assert!(!world.answers.contains_key(&ask));
    world.run(Span::millis(160));
    assert_eq!(copies(world.answers[&ask].1.clone()), 2);
    // All power fails at once.
    for node in [1, 2] {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in [1, 2] {
        world.start(NodeId(node));
    }
    world.run(Span::secs(1));
    assert_eq!(text(world.ask(2, "mail", "ann", get(1))), "hello");
}

#[test]
fn a_candidate_that_is_silent_for_250_ms_is_replaced_and_hears_of_the_deletion_later() {
    let mut world = World::new(5, 3);
    for n in 10..40 {
        copies(world.ask(1, "mail", "ann", put(n, "x")));
    }
    let (silent, _) =
        world.objects().into_iter().max_by_key(|(node, objects)| (*objects, u64::from(*node != 1))).unwrap();
    let asked = (1..=3).find(|node| *node != silent).unwrap();
    world.nodes.get_mut(&NodeId(silent)).unwrap().hung_until = world.now + Span::secs(10);
    // New owners go anywhere, to it too.
    for n in 1..=8 {
        let begun = world.now;
        assert_eq!(copies(world.ask(asked, "mail", &format!("bob{n}"), put(n, "hello"))), 2);
        let took = world.now.since(begun);
        assert!(took < Span::millis(400), "{took:?}");
    }
    assert!(world.figure(asked, "object.replaced") > 0, "it was asked, and another one in its place");
    for n in 1..=8 {
        assert!(copies(world.ask(asked, "mail", &format!("bob{n}"), delete(n))) >= 2);
    }
    world.run(Span::secs(30));
    for node in 1..=3 {
        assert_eq!(world.ask(node, "mail", "bob1", get(1)), Outcome::Done(Reply::Gone));
        assert_eq!(world.figure(node, "object.open"), 0);
    }
    assert_eq!(world.objects().values().sum::<u64>(), 60, "no copy of it is left");
}

#[test]
fn while_one_node_lives_puts_are_taken_and_completed_when_another_one_lives() {
    let mut world = World::new(6, 3);
    for node in [2, 3] {
        world.kill(NodeId(node));
    }
    // It has heard nobody in this life, and nobody is there.
    world.run(Span::secs(6));
    assert_eq!(copies(world.ask(1, "mail", "ann", put(1, "hello"))), 1);
    assert_eq!(world.figure(1, "object.thin"), 1);
    let refused = world.ask(1, "sure", "ann", put(1, "hello"));
    assert!(matches!(refused, Outcome::Refused(_)), "copies_min = 2: {refused:?}");
    world.start(NodeId(2));
    world.run(Span::secs(3));
    assert_eq!((world.figure(1, "object.thin"), world.figure(2, "object.objects")), (0, 1));
    world.kill(NodeId(1));
    world.run(Span::secs(1));
    assert_eq!(text(world.ask(2, "mail", "ann", get(1))), "hello");
}

#[test]
fn absent_is_never_said_while_a_node_is_away_that_may_have_it() {
    let mut world = World::new(7, 3);
    for node in [2, 3] {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(6));
    copies(world.ask(1, "mail", "ann", put(1, "hello")));
    world.kill(NodeId(1));
    for node in [2, 3] {
        world.start(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in [2, 3] {
        let answer = world.ask(node, "mail", "ann", get(1));
        assert!(matches!(&answer, Outcome::Refused(refused) if refused.retry_after.is_some()), "{answer:?}");
    }
    let Outcome::Done(Reply::List(list)) = world.ask(2, "mail", "ann", Action::List { after: None, limit: 10 }) else {
        panic!("a list is always given")
    };
    assert_eq!((list.objects.len(), list.missing), (0, vec![NodeId(1)]));
    // An operator has removed it: it is not waited for.
    world.members.remove(&NodeId(1));
    world.declare_all();
    assert_eq!(world.ask(2, "mail", "ann", get(1)), Outcome::Done(Reply::Absent));
}

/// Cut off from the others, a node takes what it alone has for days, and deletes; they let it go, and it enters anew.
#[test]
fn what_a_node_alone_has_that_enters_anew_is_handed_to_others_and_deletions_hold() {
    for settings in [Settings::default(), World::packed(30)] {
        let mut world = World::with(31, 3, settings);
        for n in 1..=20 {
            copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
        }
        world.run(Span::secs(20));
        world.cut.extend([(NodeId(3), NodeId(1)), (NodeId(3), NodeId(2))]);
        for node in [1, 2] {
            world.input(NodeId(3), object::Input::Death { peer: NodeId(node) });
            world.input(NodeId(node), object::Input::Death { peer: NodeId(3) });
        }
        world.run(Span::secs(60));
        for n in 21..=60 {
            assert_eq!(copies(world.ask(3, "mail", &format!("owner{}", n % 7), put(n, "hello"))), 1, "it is thin");
        }
        // On either side: of what it has alone, and of what the others have, which it deletes, or they do.
        let had: Vec<u8> = (1..=20).filter(|n| has(&mut world, 3, *n)).collect();
        let (here, there) = (had[0], had[1]);
        for (at, n) in [(3, 21), (3, here), (1, there)] {
            copies(world.ask(at, "mail", &format!("owner{}", n % 7), delete(n)));
        }
        // The same letter came to both sides, and was read and deleted at the one.
        copies(world.ask(1, "mail", &format!("owner{}", 22 % 7), put(22, "hello")));
        copies(world.ask(1, "mail", &format!("owner{}", 22 % 7), delete(22)));
        world.members.remove(&NodeId(3));
        world.declare_all();
        world.run(Span::secs(700));
        world.cut.clear();
        world.enters_anew(NodeId(3), NodeId(9));
        world.run(Span::secs(30));
        // None is on one disk alone.
        for gone in [9, 1, 2] {
            world.kill(NodeId(gone));
            world.run(Span::secs(1));
            let at = if gone == 9 { 1 } else { 9 };
            for n in 1..=60 {
                let said = world.ask(at, "mail", &format!("owner{}", n % 7), get(n));
                match [21, 22, here, there].contains(&n) {
                    true => assert_eq!(said, Outcome::Done(Reply::Gone), "{n}"),
                    false => assert_eq!(text(said), "hello", "{n}"),
                }
            }
            world.start(NodeId(gone));
            world.run(Span::secs(2));
        }
        assert!(world.live().iter().all(|node| world.figure(node.0, "object.open") == 0));
        assert!(world.live().iter().all(|node| world.figure(node.0, "object.thin") == 0));
    }
}

/// Whether a node can give an object by itself.
fn has(world: &mut World, node: u64, n: u8) -> bool {
    matches!(world.ask(node, "mail", &format!("owner{}", n % 7), get(n)), Outcome::Done(Reply::Object { .. }))
}

#[test]
fn copies_of_a_node_that_is_away_for_ten_minutes_are_made_elsewhere() {
    let mut world = World::new(8, 3);
    for n in 1..=30 {
        copies(world.ask(1, "mail", &format!("owner{n}"), put(n, "hello")));
    }
    world.kill(NodeId(3));
    world.run(Span::secs(500));
    assert!(world.objects().values().any(|objects| *objects < 30), "not yet");
    world.run(Span::secs(200));
    assert_eq!(world.objects(), [(1, 30), (2, 30)].into());
}

#[test]
fn lists_of_all_nodes_are_one_in_order_and_in_pages() {
    let mut world = World::new(9, 5);
    // Each goes to two of five: the owner has no place yet.
    let mut cut: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
    for n in 1..=60 {
        let at = u64::from(n) % 5 + 1;
        // Who is asked sees nobody's objects but those of two others: they spread.
        cut.clear();
        cut.insert((NodeId(at), NodeId(at % 5 + 1)));
        cut.insert((NodeId(at), NodeId((at + 1) % 5 + 1)));
        world.cut = cut.clone();
        copies(world.ask(at, "mail", "ann", put(n, "x")));
    }
    world.cut.clear();
    assert!(world.objects().values().filter(|objects| **objects > 0).count() > 2);
    for n in (1..=60).step_by(3) {
        copies(world.ask(1, "mail", "ann", delete(n)));
    }
    let (mut after, mut ids) = (None, Vec::new());
    loop {
        let Outcome::Done(Reply::List(list)) = world.ask(2, "mail", "ann", Action::List { after, limit: 7 }) else {
            panic!("a list is always given")
        };
        assert!(list.missing.is_empty() && list.objects.len() <= 7);
        ids.extend(list.objects.iter().map(|listed| listed.id.0[0]));
        after = list.after;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<u8> = (1..=60).filter(|n| n % 3 != 1).collect();
    assert_eq!(ids, expected);
}

#[test]
fn deletions_that_all_know_make_no_list_longer() {
    let mut world = World::new(9, 3);
    for n in 0..40 {
        world.ask(1, "mail", "ann", put(n, "x"));
        world.ask(2, "mail", "ann", delete(n));
    }
    world.ask(1, "mail", "ann", put(40, "last"));
    world.run(Span::secs(20));
    let page = |world: &mut World| match world.ask(3, "mail", "ann", Action::List { after: None, limit: 7 }) {
        Outcome::Done(Reply::List(list)) => list,
        other => panic!("{other:?}"),
    };
    let list = page(&mut world);
    assert_eq!((list.objects.len(), list.after), (1, None), "one page, not six");
    // One that was away has it still, and may be heard: what was deleted meanwhile is said.
    world.kill(NodeId(3));
    world.run(Span::secs(1));
    let gone = copies(world.ask(1, "mail", "ann", delete(40)));
    world.start(NodeId(3));
    let mut list = page(&mut world);
    while !list.missing.is_empty() {
        world.run(Span::millis(5));
        list = page(&mut world);
    }
    assert_eq!((gone, list.objects.len()), (2, 0));
}

#[test]
fn owners_are_told_in_pages_whoever_has_their_objects() {
    let mut world = World::new(11, 5);
    let names: Vec<String> = (1..=40).map(|n| format!("o{n:02}")).collect();
    for (n, name) in names.iter().enumerate() {
        copies(world.ask(n as u64 % 5 + 1, "mail", name, put(1, "x")));
    }
    // One that has nothing left is none.
    copies(world.ask(1, "mail", "o07", delete(1)));
    let (mut after, mut told) = (String::new(), Vec::new());
    loop {
        let Outcome::Done(Reply::Owners(page)) = world.ask(2, "mail", &after, Action::Owners { limit: 7 }) else {
            panic!("owners are always told")
        };
        assert!(page.missing.is_empty() && page.owners.len() <= 7 && page.copies == 2);
        told.extend(page.owners.iter().map(|owner| String::from_utf8(owner.to_vec()).unwrap()));
        let Some(last) = page.after else { break };
        after = String::from_utf8(last.to_vec()).unwrap();
    }
    assert_eq!(told, names.into_iter().filter(|name| name != "o07").collect::<Vec<_>>());
    world.kill(NodeId(3));
    let Outcome::Done(Reply::Owners(page)) = world.ask(2, "mail", "", Action::Owners { limit: 100 }) else {
        panic!("owners are told without it")
    };
    assert_eq!((page.missing, page.owners.len()), (vec![NodeId(3)], 39));
}

#[test]
fn a_clock_that_is_far_ahead_does_not_matter_where_objects_are_written_once() {
    let mut world = World::new(10, 3);
    world.skew.insert(NodeId(1), 3_600_000);
    assert_eq!(copies(world.ask(1, "mail", "ann", put(1, "hello"))), 2);
    copies(world.ask(2, "mail", "ann", delete(1)));
    for node in 1..=3 {
        assert_eq!(world.ask(node, "mail", "ann", get(1)), Outcome::Done(Reply::Gone));
    }
}

#[test]
fn holders_that_never_heard_of_each_other_all_hear_of_the_deletion() {
    let mut world = World::new(11, 4);
    let holders = |world: &World| -> Vec<u64> {
        world.objects().into_iter().filter(|(_, objects)| *objects > 0).map(|(node, _)| node).collect()
    };
    copies(world.ask(1, "mail", "ann", put(1, "hello")));
    let first = holders(&world);
    let others: Vec<u64> = (1..=4).filter(|node| !first.contains(node)).collect();
    first.iter().for_each(|node| world.kill(NodeId(*node)));
    world.run(Span::secs(1));
    assert_eq!(copies(world.ask(others[0], "mail", "ann", put(1, "hello"))), 2, "its client has heard nothing");
    assert_eq!(holders(&world), others);
    others.iter().for_each(|node| world.kill(NodeId(*node)));
    first.iter().for_each(|node| world.start(NodeId(*node)));
    world.run(Span::secs(1));
    copies(world.ask(first[0], "mail", "ann", delete(1)));
    others.iter().for_each(|node| world.start(NodeId(*node)));
    world.run(Span::secs(20));
    assert_eq!(holders(&world), [0_u64; 0]);
    // The same, but all are there: whoever reads it makes them known to each other.
    let mut world = World::new(12, 4);
    copies(world.ask(1, "mail", "ann", put(1, "hello")));
    let first = holders(&world);
    let others: Vec<u64> = (1..=4).filter(|node| !first.contains(node)).collect();
    first.iter().for_each(|node| world.kill(NodeId(*node)));
    world.run(Span::secs(1));
    copies(world.ask(others[0], "mail", "ann", put(1, "hello")));
    first.iter().for_each(|node| world.start(NodeId(*node)));
    world.run(Span::secs(1));
    assert_eq!(text(world.ask(1, "mail", "ann", get(1))), "hello");
    world.run(Span::secs(20));
    assert_eq!((1..=4).map(|node| world.figure(node, "object.open")).sum::<u64>(), 0);
    first.iter().for_each(|node| world.kill(NodeId(*node)));
    world.run(Span::secs(1));
    copies(world.ask(others[0], "mail", "ann", delete(1)));
    first.iter().for_each(|node| world.start(NodeId(*node)));
    world.run(Span::secs(20));
    assert_eq!(holders(&world), [0_u64; 0]);
}

#[test]
fn a_namespace_that_is_declared_anew_begins_empty_and_what_it_had_goes_from_the_disks() {
    for is_seen in [true, false] {
        let mut world = World::new(20, 3);
        for n in 1..=9 {
            copies(world.ask(1, "mail", "ann", put(n, "old")));
            copies(world.ask(1, "notes", "ann", put(n, "stays")));
        }
        copies(world.ask(1, "mail", "ann", delete(9)));
        world.run(Span::secs(20));
        // One does not hear of it, and comes back with all that it has.
        world.kill(NodeId(3));
        world.run(Span::secs(1));
        world.declare_anew("mail", is_seen);
        copies(world.ask(1, "mail", "ann", put(9, "new")));
        world.start(NodeId(3));
        world.run(Span::secs(20));
        for node in 1..=3 {
            assert_eq!(world.ask(node, "mail", "ann", get(1)), Outcome::Done(Reply::Absent), "{node}");
            assert_eq!(text(world.ask(node, "mail", "ann", get(9))), "new", "what was deleted was another object");
            assert_eq!(text(world.ask(node, "notes", "ann", get(1))), "stays");
            let Outcome::Done(Reply::List(list)) =
                world.ask(node, "mail", "ann", Action::List { after: None, limit: 10 })
            else {
                panic!("a list is always given")
            };
            assert_eq!(list.objects.len(), 1);
        }
        assert_eq!(world.objects().values().sum::<u64>(), 20, "two copies of ten");
        assert!((1..=3).map(|node| world.records(node)).sum::<usize>() < 60, "checkpoints are without it");
        // No disk brings it back.
        for node in 1..=3 {
            world.kill(NodeId(node));
        }
        world.run(Span::secs(1));
        (1..=3).for_each(|node| world.start(NodeId(node)));
        assert_eq!(world.objects().values().sum::<u64>(), 20);
    }
}

#[test]
fn what_lies_under_a_number_that_is_not_over_stays() {
    let mut world = World::new(21, 3);
    copies(world.ask(1, "mail", "ann", put(1, "hello")));
    // A node hears an older declaration: this namespace is not in it yet.
    let (number, spec) = world.spaces.remove("sure").unwrap();
    let mail = world.spaces.remove("mail").unwrap();
    world.last = 0;
    world.declare_all();
    world.run(Span::secs(1));
    world.last = number;
    world.spaces.extend([("sure".to_owned(), (number, spec)), ("mail".to_owned(), mail)]);
    world.declare_all();
    assert_eq!(text(world.ask(2, "mail", "ann", get(1))), "hello");
}

#[test]
fn a_node_that_leaves_for_good_ends_when_others_have_all_that_it_has() {
    let mut world = World::new(22, 4);
    for n in 1..=200 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
    }
    copies(world.ask(1, "mail", "owner1", delete(1)));
    let had = world.objects()[&2];
    assert!(had > 40, "{had}");
    world.leave(NodeId(2), false);
    let left = world.counted_on(NodeId(2)).unwrap();
    assert!(left.starts_with("others have yet to take over "), "{left}");
    // Meanwhile it gets none, and what it has is read and deleted.
    for n in 201..=220 {
        copies(world.ask(2, "mail", "new", put(n, "hello")));
    }
    assert_eq!(world.objects()[&2], had);
    copies(world.ask(2, "mail", "owner2", delete(2)));
    let (mut before, mut waited) = (u64::MAX, 0);
    while let Some(why) = world.counted_on(NodeId(2)) {
        world.run(Span::millis(250));
        waited += 1;
        assert!(waited < 100, "{why}");
        let left: u64 = why.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!(left <= before, "it becomes less: {left}, {before}");
        before = left;
    }
    world.leaves(NodeId(2));
    // Each single disk may go now.
    for gone in [1, 3, 4] {
        world.kill(NodeId(gone));
        world.run(Span::millis(500));
        let at = if gone == 1 { 3 } else { 1 };
        for n in 3..=220 {
            let owner = if n > 200 { "new".to_owned() } else { format!("owner{}", n % 7) };
            assert_eq!(text(world.ask(at, "mail", &owner, get(n))), "hello");
        }
        for n in 1..=2 {
            assert_eq!(world.ask(at, "mail", &format!("owner{n}"), get(n)), Outcome::Done(Reply::Gone));
        }
        world.start(NodeId(gone));
        world.run(Span::secs(1));
    }
}

#[test]
fn who_leaves_waits_for_copies_at_nodes_that_live_and_who_stays_after_all_goes_on() {
    let mut world = World::new(23, 3);
    for n in 1..=20 {
        copies(world.ask(1, "mail", "ann", put(n, "hello")));
    }
    world.kill(NodeId(3));
    world.run(Span::secs(1));
    world.leave(NodeId(2), false);
    world.run(Span::secs(60));
    assert!(world.counted_on(NodeId(2)).is_some(), "1 alone would have what it has");
    world.leave(NodeId(2), true);
    world.run(Span::secs(20));
    assert_eq!(world.counted_on(NodeId(2)), None, "by force, what can be done is done");
    for n in 1..=20 {
        assert!(world.objects()[&1] >= 20, "{n}");
    }
    world.leaving.clear();
    world.start(NodeId(3));
    world.declare_all();
    world.run(Span::secs(20));
    for n in 21..=60 {
        copies(world.ask(1, "mail", &format!("owner{n}"), put(n, "hello")));
    }
    assert_eq!(world.counted_on(NodeId(2)), None);
    assert!(world.objects()[&2] > 20, "it takes objects again");
    world.run(Span::secs(20));
    assert_eq!((1..=3).map(|node| world.figure(node, "object.open")).sum::<u64>(), 0);
}

fn read_all(world: &mut World, at: u64, ns: std::ops::RangeInclusive<u8>) {
    for n in ns {
        assert_eq!(text(world.ask(at, "mail", &format!("owner{}", n % 7), get(n))), "hello", "{n}");
    }
}

#[test]
fn what_comes_back_after_its_copies_were_made_elsewhere_is_surplus_and_goes() {
    let mut world = World::new(24, 4);
    for n in 1..=60 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
    }
    world.run(Span::secs(20));
    let sum = |world: &World| world.objects().values().sum::<u64>();
    for (round, away) in [2, 3, 4, 2].into_iter().enumerate() {
        let before = sum(&world);
        assert_eq!(before, 120, "two copies of each, in round {round}");
        world.kill(NodeId(away));
        world.run(Span::secs(660));
        assert_eq!(sum(&world), 120, "they are made elsewhere, or taken back, in round {round}");
        world.start(NodeId(away));
        world.run(Span::secs(30));
    }
    assert!((1..=4).map(|node| world.figure(node, "object.given_up")).sum::<u64>() > 20);
    // A disk does not bring back what it gave up, and no single disk has anything alone.
    for node in 1..=4 {
        world.kill(NodeId(node));
        world.run(Span::secs(1));
        read_all(&mut world, node % 4 + 1, 1..=60);
        world.start(NodeId(node));
        world.run(Span::secs(1));
        assert_eq!(sum(&world), 120);
    }
    assert_eq!((1..=4).map(|node| world.figure(node, "object.open")).sum::<u64>(), 0);
    for n in 1..=60 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), delete(n)));
    }
    assert_eq!(sum(&world), 0);
}

#[test]
fn who_was_silent_and_was_replaced_gives_its_copy_up() {
    let mut world = World::new(25, 3);
    world.nodes.get_mut(&NodeId(2)).unwrap().hung_until = world.now + Span::secs(2);
    for n in 1..=30 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
    }
    assert!(world.figure(1, "object.replaced") > 0);
    world.run(Span::secs(60));
    assert_eq!(world.objects().values().sum::<u64>(), 60);
    for gone in [2, 3] {
        world.kill(NodeId(gone));
        world.run(Span::secs(1));
        read_all(&mut world, 1, 1..=30);
        world.start(NodeId(gone));
        world.run(Span::secs(1));
    }
}

#[test]
fn a_copy_is_given_up_only_when_enough_others_have_said_that_they_have_the_object() {
    let mut world = World::new(26, 3);
    // Who is to give its copies up hears of one of the other two alone.
    world.cut.insert((NodeId(2), NodeId(3)));
    world.nodes.get_mut(&NodeId(3)).unwrap().hung_until = world.now + Span::secs(2);
    for n in 1..=30 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
    }
    world.run(Span::secs(60));
    assert!(world.objects().values().sum::<u64>() > 60);
    assert_eq!((1..=3).map(|node| world.figure(node, "object.given_up")).sum::<u64>(), 0);
    world.cut.clear();
    world.run(Span::secs(30));
    assert_eq!(world.objects().values().sum::<u64>(), 60);
}

#[test]
fn a_node_that_may_leave_may_not_when_another_one_dies_that_has_what_it_has() {
    let mut world = World::new(27, 4);
    for n in 1..=60 {
        copies(world.ask(1, "mail", &format!("owner{}", n % 7), put(n, "hello")));
    }
    world.leave(NodeId(2), false);
    world.run(Span::secs(60));
    assert_eq!(world.counted_on(NodeId(2)), None);
    world.kill(NodeId(3));
    world.run(Span::secs(1));
    assert!(world.counted_on(NodeId(2)).is_some(), "for some objects it is one of two that live");
    world.run(Span::secs(660));
    assert_eq!(world.counted_on(NodeId(2)), None, "its copies were made elsewhere");
}
