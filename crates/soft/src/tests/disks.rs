//! What is there again after all have ended at once, and until when a removal is remembered.

use super::*;

#[test]
fn what_was_in_the_last_checkpoint_is_there_after_all_have_ended_at_once() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::Never);
    world.set(2, "gone", "v", End::Never);
    world.set(2, "ends", "v", End::After(Span::secs(60)));
    world.add(3, "n", 5);
    world.pass(11_000);
    world.done(1, Action::Remove { keys: vec![bytes("gone")] });
    world.add(1, "n", 2);
    // What has changed is appended to what there was.
    world.pass(11_000);
    world.add(2, "n", 100);
    world.all_end(2);
    world.now.wall_ms += 10_000;
    world.pass(3_000);
    for n in 1..=3 {
        assert_eq!(world.get(n, "k").as_deref(), Some("v"));
        assert_eq!(world.get(n, "gone"), None, "it was removed");
        assert_eq!(world.get(n, "n").as_deref(), Some("7"), "the last is not in a checkpoint");
    }
    // A new life counts in a slot of its own, and an end is where it was, whether or not anybody ran.
    world.add(2, "n", 1);
    world.pass(1_000);
    assert_eq!(world.get(1, "n").as_deref(), Some("8"));
    let Reply::Left(Some(Some(left))) = world.done(1, Action::Left { key: bytes("ends") }) else { panic!() };
    assert!((15_000..=35_000).contains(&left.as_millis()), "{left:?}");
    world.check();
    world.are_equal();
    // No namespace, no checkpoint.
    let off = Spec { checkpoint_ms: 0, ..Spec::default() };
    world.spec = off;
    (1..=3).for_each(|n| world.declare(n, LEVEL));
    assert!(world.disks.values().all(BTreeMap::is_empty));
    world.all_end(3);
    world.pass(3_000);
    assert_eq!(world.get(1, "k"), None);
}

#[test]
fn a_torn_checkpoint_is_the_one_before() {
    let mut world = World::of(1, Spec { checkpoint_ms: 1_000, ..Spec::default() });
    let large = "v".repeat(200_000);
    let keys: Vec<String> = (0..4).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| world.set(1, key, "old", End::Never));
    world.pass(1_500);
    let before = world.disks[&1].values().next().unwrap().len();
    keys.iter().for_each(|key| world.set(1, key, &large, End::Never));
    world.pass(1_500);
    let log = world.disks.get_mut(&1).unwrap().values_mut().next().unwrap();
    assert!(log.len() > before + 1, "it takes several records");
    log.pop();
    world.all_end(2);
    world.pass(3_000);
    assert!(keys.iter().all(|key| world.get(1, key).as_deref() == Some("old")));
    // What is written behind the torn end is read again.
    world.set(1, "k0", "new", End::Never);
    world.pass(1_500);
    world.all_end(3);
    world.pass(3_000);
    assert_eq!(world.get(1, "k0").as_deref(), Some("new"));
    assert_eq!(world.get(1, "k1").as_deref(), Some("old"));
}

#[test]
fn a_removal_is_remembered_until_all_have_it_in_their_checkpoints() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::Never);
    world.done(1, Action::Remove { keys: vec![bytes("k")] });
    world.pass(5_000);
    assert!((1..=3).all(|n| world.space(n).index.len() == 2), "no checkpoint has it");
    world.pass(15_000);
    assert!((1..=3).all(|n| world.space(n).index.is_empty()));
}

#[test]
fn a_checkpoint_of_much_is_written_in_parts_and_is_of_one_moment() {
    let mut world = World::of(1, Spec { checkpoint_ms: 1_000, ..Spec::default() });
    world.set(1, "k", "v", End::Never);
    world.pass(3_000);
    let pairs = (0..5_000).map(|n| (bytes(&format!("f{n}")), Some(bytes("v")))).collect();
    world.done(1, Action::Put { kind: Kind::Field, key: bytes("h"), pairs });
    // While it is written everything changes again.
    let (mut parts, mut before) = (0, 0);
    for n in 0..1_500 {
        world.advance(1);
        world.wake();
        let records: usize = world.disks[&1].values().map(Vec::len).sum();
        parts += usize::from(records > before);
        before = records;
        let pairs = vec![(bytes(&format!("f{}", n % 5_000)), Some(bytes(&n.to_string())))];
        world.ask(1, Action::Put { kind: Kind::Field, key: bytes("h"), pairs });
        world.add(1, "n", 1);
    }
    assert!(parts >= 5_000 / KEEP_CELLS, "{parts} parts");
    world.answers.clear();
    world.pass(3_000);
    let all = |world: &mut World| world.done(1, Action::All { kind: Kind::Field, key: bytes("h") });
    let (was, sum) = (all(&mut world), world.get(1, "n"));
    world.all_end(2);
    world.pass(3_000);
    assert!(matches!(&was, Reply::Pairs(pairs) if pairs.len() == 5_000));
    assert_eq!((all(&mut world), world.get(1, "n")), (was, sum));
    world.check();
}
