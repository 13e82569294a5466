//! Bytes that lie in packs: stories of what is read, moved, lost and mended.

use base::{NodeId, Outcome, Span};
use object::{Action, Reply};

use crate::world::{World, id, put};

/// Three objects or so.
const PACK: u64 = 64;

fn text(n: u8) -> String {
    format!("the {n}. letter of many")
}

/// Puts these and waits until packs have what makes a pack.
fn write(world: &mut World, ids: std::ops::Range<u8>) {
    for n in ids {
        let said = world.ask(1 + u64::from(n) % 2, "mail", "ann", put(n, &text(n)));
        assert!(matches!(said, Outcome::Done(Reply::Stored { .. })), "{n}: {said:?}");
    }
    world.run(Span::secs(3));
}

fn reads(world: &mut World, at: u64, n: u8) -> Outcome<Reply> {
    world.ask(at, "mail", "ann", Action::Get { id: id(n), at: 0 })
}

/// All of these are read right at this node.
fn check(world: &mut World, at: u64, ids: std::ops::Range<u8>) {
    for n in ids {
        match reads(world, at, n) {
            Outcome::Done(Reply::Object { body, .. }) => assert_eq!(body, text(n).into_bytes(), "{n} at {at}"),
            other => panic!("{n} at {at}: {other:?}"),
        }
    }
}

#[test]
fn memory_has_what_is_less_than_a_pack_and_the_disk_the_rest() {
    let mut world = World::with(1, 2, World::packed(PACK));
    write(&mut world, 0..40);
    world.run(Span::secs(20));
    for node in [1, 2] {
        assert_eq!(world.figure(node, "object.objects"), 40);
        assert!(world.figure(node, "object.memory_bytes") < PACK, "less than a pack waits");
        assert!(world.figure(node, "object.disk_bytes") > 40 * 20 - PACK);
        assert_eq!(world.figure(node, "object.disk_bytes"), world.pack_bytes(node));
        assert!(world.records(node) < 160, "its checkpoints have no bytes: {}", world.records(node));
    }
    check(&mut world, 1, 0..40);
    // The power goes everywhere.
    (1..=2).for_each(|node| world.kill(NodeId(node)));
    (1..=2).for_each(|node| world.start(NodeId(node)));
    world.run(Span::secs(1));
    check(&mut world, 2, 0..40);
    assert!(world.figure(1, "object.memory_bytes") < 3 * PACK, "what lies in packs is not read at the start");
}

#[test]
fn what_is_deleted_gives_its_disk_back() {
    let mut world = World::with(2, 2, World::packed(PACK));
    write(&mut world, 0..120);
    let full = world.pack_bytes(1);
    // Two of three: no pack becomes empty by itself.
    for n in (0..120).filter(|n| n % 3 > 0) {
        world.ask(1, "mail", "ann", Action::Delete { id: id(n) });
    }
    world.run(Span::secs(60));
    for node in [1, 2] {
        let live = world.figure(node, "object.objects") * text(99).len() as u64;
        assert!(world.pack_bytes(node) <= 2 * live + 6 * PACK, "{} of {full} bytes for {live}", world.pack_bytes(node));
    }
    for n in (0..120).step_by(3) {
        check(&mut world, 2, n..n + 1);
    }
    for n in (0..120).step_by(3) {
        world.ask(1, "mail", "ann", Action::Delete { id: id(n) });
    }
    world.run(Span::secs(60));
    assert_eq!((world.pack_bytes(1), world.pack_bytes(2)), (0, 0));
}

#[test]
fn bytes_that_rot_in_a_pack_are_read_elsewhere_and_mended() {
    let mut world = World::with(3, 2, World::packed(PACK));
    write(&mut world, 0..20);
    assert!(world.rot_packs(NodeId(1)));
    check(&mut world, 1, 0..20);
    assert!(world.figure(1, "object.damaged") > 0);
    // Those that nobody reads are found, too.
    world.run(Span::secs(120));
    assert_eq!(world.figure(1, "object.damaged"), world.figure(1, "object.mended"));
    world.kill(NodeId(2));
    world.run(Span::secs(1));
    check(&mut world, 1, 0..20);
}

#[test]
fn what_nobody_reads_is_looked_at_in_turn() {
    let mut world = World::with(4, 2, World::packed(PACK));
    write(&mut world, 0..20);
    assert!(world.rot_packs(NodeId(2)));
    world.run(Span::secs(120));
    assert!(world.figure(2, "object.damaged") > 3, "a byte of each pack was changed");
    assert_eq!(world.figure(2, "object.damaged"), world.figure(2, "object.mended"));
}

#[test]
fn packs_that_are_cut_or_gone_are_made_good_by_another_node() {
    for cut in [true, false] {
        let mut world = World::with(5, 2, World::packed(PACK));
        write(&mut world, 0..20);
        world.kill(NodeId(1));
        world.lose_packs(NodeId(1), cut);
        world.start(NodeId(1));
        world.run(Span::secs(60));
        assert!(world.figure(1, "object.damaged") > 3);
        assert_eq!(world.figure(1, "object.damaged"), world.figure(1, "object.mended"));
        world.kill(NodeId(2));
        world.run(Span::secs(1));
        check(&mut world, 1, 0..20);
    }
}

#[test]
fn a_node_of_the_level_before_keeps_all_in_memory_and_moves_it_when_all_know_of_packs() {
    let mut world = World::with(6, 2, World::packed(PACK));
    world.level = 7;
    world.declare_all();
    write(&mut world, 0..40);
    assert_eq!((world.pack_bytes(1), world.figure(1, "object.disk_bytes")), (0, 0));
    // As a program of before left it.
    (1..=2).for_each(|node| world.kill(NodeId(node)));
    world.level = 8;
    (1..=2).for_each(|node| world.start(NodeId(node)));
    world.run(Span::secs(5));
    assert!(world.pack_bytes(1) > 40 * 20 - 64 && world.figure(1, "object.memory_bytes") < PACK);
    (1..=2).for_each(|node| world.kill(NodeId(node)));
    (1..=2).for_each(|node| world.start(NodeId(node)));
    world.run(Span::secs(1));
    check(&mut world, 1, 0..40);
}

#[test]
fn a_node_that_has_nothing_is_pushed_what_lies_in_packs() {
    let mut world = World::with(7, 2, World::packed(PACK));
    write(&mut world, 0..30);
    world.replace(NodeId(2), NodeId(3));
    world.run(Span::secs(700));
    assert_eq!(world.figure(3, "object.objects"), 30);
    world.kill(NodeId(1));
    world.run(Span::secs(1));
    check(&mut world, 3, 0..30);
}
