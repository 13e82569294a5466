//! Objects in pieces: there whole or not at all, whatever happens between two pieces.

use base::{NodeId, Outcome, Span};
use object::{Action, Reply};

use crate::world::{PIECE, World, id, put};

/// Ten pieces: more than are sent ahead.
fn large() -> String {
    (0..10 * PIECE).map(|n| char::from(b'a' + (n % 23) as u8)).collect()
}

fn get() -> Action {
    Action::Get { id: id(1), at: 0 }
}

fn read(world: &mut World, node: u64) -> String {
    match world.ask(node, "mail", "ann", get()) {
        Outcome::Done(Reply::Object { body, .. }) => String::from_utf8(body.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Begins a put at node 1, and stops when some nodes have pieces on their disks. The nodes that have.
fn half_put(world: &mut World) -> (base::AskId, Vec<u64>) {
    let ask = world.begin(1, "mail", "ann", put(1, &large()), Span::secs(20));
    let nodes: Vec<u64> = world.live().iter().map(|node| node.0).collect();
    for _ in 0..100_000 {
        let have: Vec<u64> = nodes.iter().copied().filter(|node| world.records(*node) > 2).collect();
        assert!(!world.answers.contains_key(&ask), "it was over before anybody looked");
        if have.len() >= 2 {
            return (ask, have);
        }
        world.run(Span::micros(50));
    }
    panic!("no pieces came");
}

fn ended(world: &mut World, ask: base::AskId) -> Outcome<Reply> {
    for _ in 0..20_000 {
        if let Some((_, answer)) = world.answers.remove(&ask) {
            return answer;
        }
        world.run(Span::millis(1));
    }
    panic!("{ask} was never answered");
}

fn all_at_rest(world: &mut World) {
    world.run(Span::secs(40));
    for node in world.live() {
        assert_eq!(world.figure(node.0, "object.open"), 0, "{node}");
    }
}

#[test]
fn when_the_power_fails_between_two_pieces_there_is_nothing_and_what_is_left_goes() {
    let mut world = World::new(21, 3);
    let (_, have) = half_put(&mut world);
    for node in 1..=3 {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in 1..=3 {
        world.start(NodeId(node));
    }
    assert!(have.iter().all(|node| world.records(*node) > 2), "the disks have the pieces yet");
    world.run(Span::secs(5));
    assert_eq!(world.ask(2, "mail", "ann", get()), Outcome::Done(Reply::Absent));
    for node in 1..=3 {
        assert_eq!((world.records(node), world.figure(node, "object.bytes")), (0, 0), "of {node}");
    }
    assert!(matches!(world.ask(2, "mail", "ann", put(1, &large())), Outcome::Done(Reply::Stored { copies: 2, .. })));
    for node in 1..=3 {
        assert_eq!(read(&mut world, node), large());
    }
}

#[test]
fn who_dies_or_falls_silent_between_two_pieces_is_replaced() {
    for (seed, dies) in [(22, true), (23, false)] {
        let mut world = World::new(seed, 4);
        let (ask, have) = half_put(&mut world);
        let node = have.into_iter().find(|node| *node != 1).unwrap();
        match dies {
            true => world.kill(NodeId(node)),
            false => world.nodes.get_mut(&NodeId(node)).unwrap().hung_until = world.now + Span::secs(8),
        }
        let outcome = ended(&mut world, ask);
        assert!(matches!(outcome, Outcome::Done(Reply::Stored { copies: 2, .. })), "{outcome:?}");
        assert!(world.figure(1, "object.replaced") > 0);
        world.run(Span::secs(10));
        for reader in (1..=4).filter(|reader| !dies || *reader != node) {
            assert_eq!(read(&mut world, reader), large());
        }
        if dies {
            world.start(NodeId(node));
        }
        all_at_rest(&mut world);
    }
}

#[test]
fn what_whoever_asked_leaves_half_done_goes_when_it_dies() {
    let mut world = World::new(24, 3);
    let (_, have) = half_put(&mut world);
    world.kill(NodeId(1));
    world.run(Span::secs(1));
    for node in have.into_iter().filter(|node| *node != 1) {
        assert_eq!(world.figure(node, "object.bytes"), 0, "of {node}");
    }
    world.start(NodeId(1));
    world.run(Span::secs(5));
    assert_eq!(world.ask(3, "mail", "ann", get()), Outcome::Done(Reply::Absent));
}

#[test]
fn what_is_deleted_while_it_is_put_once_more_stays_deleted() {
    let mut world = World::new(25, 3);
    assert!(matches!(world.ask(1, "mail", "ann", put(1, &large())), Outcome::Done(Reply::Stored { .. })));
    let ask = world.begin(2, "mail", "ann", put(1, &large()), Span::secs(20));
    world.run(Span::millis(2));
    assert!(!world.answers.contains_key(&ask), "its pieces are under way");
    let deleted = world.ask(3, "mail", "ann", Action::Delete { id: id(1) });
    assert!(matches!(deleted, Outcome::Done(Reply::Deleted { .. })), "{deleted:?}");
    assert_eq!(ended(&mut world, ask), Outcome::Done(Reply::Gone));
    for node in 1..=3 {
        assert_eq!(world.ask(node, "mail", "ann", get()), Outcome::Done(Reply::Gone));
        assert!(world.figure(node, "object.bytes") < 2 * 256 + 10, "its bytes are gone from {node}");
    }
    all_at_rest(&mut world);
}

#[test]
fn a_checkpoint_between_two_pieces_keeps_them_and_their_object() {
    let mut world = World::new(26, 3);
    assert!(matches!(world.ask(1, "notes", "bob", put(2, "x")), Outcome::Done(Reply::Stored { .. })));
    let (ask, _) = half_put(&mut world);
    // What goes with a namespace has the next checkpoint come at once.
    world.declare_anew("notes", true);
    for node in 1..=3 {
        world.input(NodeId(node), object::Input::Tend);
    }
    let outcome = ended(&mut world, ask);
    assert!(matches!(outcome, Outcome::Done(Reply::Stored { copies: 2, .. })), "{outcome:?}");
    world.run(Span::secs(5));
    for node in 1..=3 {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in 1..=3 {
        world.start(NodeId(node));
    }
    world.run(Span::secs(1));
    for node in 1..=3 {
        assert_eq!(read(&mut world, node), large());
    }
}

#[test]
fn copies_of_a_large_object_are_made_elsewhere_and_go_where_there_are_too_many() {
    let mut world = World::new(27, 3);
    assert!(matches!(world.ask(1, "mail", "ann", put(1, &large())), Outcome::Done(Reply::Stored { copies: 2, .. })));
    let (away, _) = world.objects().into_iter().find(|(node, count)| *node != 1 && *count == 1).unwrap();
    world.kill(NodeId(away));
    world.run(Span::secs(700));
    assert_eq!(world.objects().values().sum::<u64>(), 2, "another one has it");
    world.start(NodeId(away));
    world.run(Span::secs(60));
    assert_eq!(world.objects().values().sum::<u64>(), 2, "and that one gave it up, or another one did");
    for node in 1..=3 {
        assert_eq!(read(&mut world, node), large());
    }
}

#[test]
fn what_is_lost_on_the_way_is_sent_again() {
    for seed in 31..36 {
        let mut world = World::new(seed, 3);
        (world.loss, world.double, world.slow) = (0.2, 0.1, 5_000);
        let ask = world.begin(1, "mail", "ann", put(1, &large()), Span::secs(20));
        let outcome = ended(&mut world, ask);
        // On one disk, where all others seemed away; the other copy is made after.
        assert!(matches!(outcome, Outcome::Done(Reply::Stored { .. })), "{seed}: {outcome:?}");
        (world.loss, world.double) = (0.0, 0.0);
        all_at_rest(&mut world);
        for node in 1..=3 {
            assert_eq!(read(&mut world, node), large());
        }
    }
}

#[test]
fn while_an_older_node_may_be_there_only_small_objects_are_taken() {
    let mut world = World::new(28, 2);
    world.level = object::PIECES_LEVEL - 1;
    world.declare_all();
    let outcome = world.ask(1, "mail", "ann", put(1, &large()));
    assert!(matches!(&outcome, Outcome::Refused(refused) if refused.why.contains("all nodes")), "{outcome:?}");
    assert!(matches!(world.ask(1, "mail", "ann", put(1, "small")), Outcome::Done(Reply::Stored { .. })));
}

#[test]
fn a_copy_that_rotted_on_its_disk_is_given_to_nobody_and_another_one_takes_its_place() {
    for (seed, text) in [(29, large()), (30, "small".to_owned())] {
        let mut world = World::new(seed, 3);
        assert!(matches!(world.ask(1, "mail", "ann", put(1, &text)), Outcome::Done(Reply::Stored { copies: 2, .. })));
        world.run(Span::secs(1));
        let holders: Vec<u64> =
            world.objects().into_iter().filter(|(_, count)| *count == 1).map(|(node, _)| node).collect();
        let (rotten, other) = (holders[0], holders[1]);
        world.kill(NodeId(rotten));
        world.run(Span::secs(1));
        world.rot(NodeId(rotten), &text);
        world.start(NodeId(rotten));
        world.run(Span::millis(100));
        assert_eq!(world.figure(rotten, "object.damaged"), 1);
        for node in 1..=3 {
            assert_eq!(read(&mut world, node), text, "at {node}");
        }
        world.run(Span::secs(30));
        assert_eq!((world.figure(rotten, "object.mended"), world.figure(other, "object.open")), (1, 0));
        // Its copy is as good as any.
        world.kill(NodeId(other));
        world.run(Span::secs(1));
        assert_eq!(read(&mut world, rotten), text);
        // On its disk, too.
        world.kill(NodeId(rotten));
        world.run(Span::secs(1));
        world.start(NodeId(rotten));
        world.run(Span::secs(1));
        assert_eq!(read(&mut world, rotten), text);
        assert_eq!(world.figure(rotten, "object.damaged"), 0);
    }
}
