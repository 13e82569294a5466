//! What one writes others read: acknowledgements, cuts, starts, ends; and what is refused.

use super::*;

#[test]
fn what_is_written_at_one_node_is_read_at_all() {
    let mut world = World::new(3);
    world.set(1, "flag", "on", End::Never);
    assert_eq!(world.put_members(2, "online", &["ann", "bob"]), Reply::Int(2));
    assert_eq!(world.add(3, "visits", 5), Reply::Int(5));
    for n in 1..=3 {
        assert_eq!(world.get(n, "flag").as_deref(), Some("on"));
        assert_eq!(world.members(n, "online"), ["ann", "bob"]);
        assert_eq!(world.get(n, "visits").as_deref(), Some("5"));
    }
    world.check();
    world.are_equal();
}

#[test]
fn an_update_is_answered_when_another_node_has_it() {
    let mut world = World::new(3);
    let set = || Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never };
    let id = world.ask(1, set());
    assert!(!world.answers.contains_key(&id), "nobody has it yet");
    // One of the two is enough.
    world.wake();
    world.air.retain(|(_, to, _)| *to == 2);
    world.settle();
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
    // None: it is unknown when its time is over, and spreads all the same.
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("late"), bytes("v"))], end: End::Never });
    world.cut_off(1, false);
    world.pass(600);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Unknown(_))));
    world.heal();
    world.pass(500);
    assert_eq!(world.get(3, "late").as_deref(), Some("v"));
    // Nobody is left: one copy is all there can be.
    let id = world.ask(1, set());
    world.air.clear();
    world.cut_off(1, true);
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
    world.set(1, "k", "alone", End::Never);
    assert!(world.figure(1, "soft.alone") >= 2);
}

#[test]
fn with_one_copy_nobody_is_waited_for() {
    let mut world = World::of(3, Spec { copies: 1, ..Spec::default() });
    let id = world.ask(1, Action::Remove { keys: vec![bytes("k")] });
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Int(0))), "what changes nothing waits for nobody");
    let id = world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never });
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Done)));
}

#[test]
fn what_is_lost_on_its_way_is_repaired() {
    let mut world = World::of(3, Spec { copies: 1, ..Spec::default() });
    world.set(2, "k", "w", End::Never);
    // The newest supersedes one that a node never gets.
    for value in ["z", "y"] {
        world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes(value))], end: End::Never });
        world.wake();
        world.air.clear();
    }
    world.ask(1, Action::Put { kind: Kind::Member, key: bytes("s"), pairs: vec![(bytes("a"), None)] });
    world.wake();
    world.air.retain(|(_, to, _)| *to == 2);
    // Nor when it is sent once more.
    for _ in 0..500 {
        world.advance(1);
        world.wake();
        world.air.retain(|(.., frame)| !matches!(frame.kind, machine::kind::PUSH | machine::kind::RELAY));
        let air = std::mem::take(&mut world.air);
        air.into_iter().for_each(|one| world.arrives(one));
    }
    world.check();
    world.are_equal();
    assert_eq!(world.get(3, "k").as_deref(), Some("y"));
    assert_eq!(world.members(3, "s"), ["a"]);
    assert!(world.figure(3, "soft.repaired") > 0);
}

#[test]
fn both_sides_of_a_cut_keep_what_they_did() {
    let mut world = World::new(3);
    world.put_members(1, "s", &["old", "gone"]);
    world.add(1, "n", 10);
    world.cut_off(3, true);
    world.put_members(3, "s", &["three"]);
    world.add(3, "n", 5);
    world.done(1, Action::Take { kind: Kind::Member, key: bytes("s"), elements: vec![bytes("gone")] });
    world.put_members(1, "s", &["one"]);
    // A reset here takes what was seen here.
    world.set(2, "n", "100", End::Never);
    world.add(2, "n", 1);
    assert_eq!(world.get(3, "n").as_deref(), Some("15"));
    world.heal();
    world.pass(500);
    world.check();
    world.are_equal();
    assert_eq!(world.members(1, "s"), ["old", "one", "three"]);
    assert_eq!(world.get(1, "n").as_deref(), Some("106"), "what was counted meanwhile survives the reset");
}

#[test]
fn a_node_that_starts_gets_all_before_it_serves() {
    // It has nothing of its own.
    let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
    for n in 0..40 {
        world.set(1, &format!("k{n}"), &"v".repeat(20_000), End::Never);
    }
    world.done(1, Action::Remove { keys: vec![bytes("k7")] });
    world.pass(3_000);
    assert_eq!(world.figure(1, "soft.index"), 0, "all have all: nothing is remembered");
    world.dies(3);
    world.set(2, "k8", "new", End::Never);
    world.born(3, 2);
    let id = world.ask(3, Action::Count);
    assert!(!world.answers.contains_key(&id), "its emptiness is not read as truth");
    world.settle();
    world.pass(200);
    assert_eq!(world.answers.remove(&id), Some(Outcome::Done(Reply::Int(39))));
    assert_eq!(world.get(3, "k8").as_deref(), Some("new"));
    assert_eq!(world.get(3, "k7"), None);
    assert_eq!(world.figure(3, "soft.transfers"), 1);
    world.check();
    world.are_equal();
    // What it counted in its former life stays.
    world.add(3, "n", 1);
    world.dies(3);
    world.born(3, 3);
    world.pass(300);
    world.add(3, "n", 1);
    assert_eq!(world.get(1, "n").as_deref(), Some("2"));
}

#[test]
fn who_was_away_for_long_gets_all_and_gives_what_it_alone_has() {
    let mut world = World::new(3);
    world.put_members(1, "s", &["a", "b"]);
    world.cut_off(3, true);
    world.put_members(3, "s", &["three"]);
    world.done(1, Action::Take { kind: Kind::Member, key: bytes("s"), elements: vec![bytes("a")] });
    world.advance(DEAD_COUNTS.as_millis() + 1);
    world.pass(2_000);
    assert_eq!(world.figure(1, "soft.index"), 0, "it is not waited for any longer");
    world.heal();
    world.pass(1_000);
    world.check();
    world.are_equal();
    assert_eq!(world.members(2, "s"), ["b", "three"]);
    assert!(world.figure(3, "soft.transfers") > 0);
}

#[test]
fn keys_end_everywhere_and_a_refresh_is_seen() {
    let mut world = World::new(3);
    world.set(1, "k", "v", End::After(Span::secs(2)));
    world.set(2, "stays", "v", End::After(Span::secs(2)));
    assert_eq!(world.done(3, Action::End { key: bytes("stays"), end: Some(Span::secs(9)) }), Reply::Int(1));
    let left = world.done(2, Action::Left { key: bytes("k") });
    assert_eq!(left, Reply::Left(Some(Some(Span::secs(2)))));
    world.pass(2_100);
    for n in 1..=3 {
        assert_eq!(world.get(n, "k"), None);
        assert_eq!(world.get(n, "stays").as_deref(), Some("v"));
        assert_eq!(world.done(n, Action::Count), Reply::Int(1));
    }
    assert_eq!(world.done(1, Action::End { key: bytes("stays"), end: None }), Reply::Int(1));
    // Who gave the end is dead: another one removes the key.
    world.set(1, "k", "v", End::After(Span::secs(1)));
    world.dies(1);
    world.pass(2_500);
    assert_eq!(world.get(2, "k"), None);
    assert_eq!((world.space(2).keys(), world.space(3).keys()), (1, 1));
    world.pass(10_000);
    assert_eq!(world.get(2, "stays").as_deref(), Some("v"), "it has no end any more");
    // What is written anew has no end of before.
    world.set(2, "k", "v", End::After(Span::secs(1)));
    world.cut_off(3, true);
    world.advance(1_500);
    world.add(3, "k", 2);
    assert_eq!(world.get(3, "k").as_deref(), Some("2"));
    assert_eq!(world.done(3, Action::Left { key: bytes("k") }), Reply::Left(Some(None)));
    world.check();
}

#[test]
fn numbers_and_kinds_are_kept_apart() {
    let mut world = World::new(2);
    world.set(1, "text", "abc", End::Never);
    assert_eq!(world.add(2, "text", 1), Reply::NoNumber);
    world.set(1, "n", &i64::MAX.to_string(), End::Never);
    assert_eq!(world.add(2, "n", 1), Reply::Overflow);
    assert_eq!(world.add(2, "n", -1), Reply::Int(i64::MAX - 1));
    assert_eq!(world.add(2, "zero", 0), Reply::Int(0));
    assert_eq!(world.get(1, "zero").as_deref(), Some("0"));
    assert_eq!(world.put_members(1, "n", &["m"]), Reply::WrongKind);
    world.put_members(1, "s", &["m"]);
    let get = Action::Read { kind: Kind::Register, at: vec![(bytes("s"), Bytes::new())] };
    assert_eq!(world.done(2, get), Reply::WrongKind);
    assert_eq!(world.done(2, Action::Kind { key: bytes("s") }), Reply::Kind(Some(Kind::Member)));
    // SET replaces whatever is there.
    world.set(2, "s", "text", End::Never);
    assert_eq!(world.done(1, Action::Kind { key: bytes("s") }), Reply::Kind(Some(Kind::Register)));
    let mut keys = BTreeSet::new();
    let mut cursor = 0;
    loop {
        let Reply::Page { cursor: next, keys: some } = world.done(1, Action::Scan { cursor, count: 1 }) else {
            panic!()
        };
        keys.extend(some.into_iter().map(|(key, _)| key));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(keys, ["text", "n", "zero", "s"].map(bytes).into());
}

#[test]
fn what_is_too_large_or_too_much_is_refused() {
    let mut world = World::of(1, Spec { size_max: 1_000, ..Spec::default() });
    let refused = |world: &mut World, action| {
        let id = world.ask(1, action);
        match world.answers.remove(&id) {
            Some(Outcome::Refused(refused)) => refused.why,
            other => panic!("{other:?}"),
        }
    };
    let set = |key: Vec<u8>, value: Vec<u8>| Action::Set { pairs: vec![(key.into(), value.into())], end: End::Never };
    assert!(refused(&mut world, set(vec![b'k'; NAME_BYTES_MAX + 1], vec![])).contains("512 bytes"));
    assert!(refused(&mut world, set(vec![b'k'], vec![0; VALUE_BYTES_MAX + 1])).contains("1048576 bytes"));
    world.set(1, "k", &"v".repeat(900), End::Never);
    assert!(refused(&mut world, set(vec![b'l'], vec![])).starts_with(FULL));
    world.done(1, Action::Remove { keys: vec![bytes("k")] });
    world.set(1, "l", "", End::Never);
    let op = Op::of(Arc::from("other"), Action::Count);
    world.give(1, Input::Ask { id: AskId(99), budget: BUDGET, op });
    assert!(matches!(world.answers.remove(&99), Some(Outcome::Refused(_))));
}

#[test]
fn one_operation_may_make_more_than_a_frame_takes() {
    let mut world = World::new(2);
    let value = Bytes::from(vec![b'v'; 900_000]);
    let pairs = (0..24).map(|n| (bytes(&format!("k{n}")), value.clone())).collect();
    let id = world.ask(1, Action::Set { pairs, end: End::Never });
    world.wake();
    let largest = world.air.iter().map(|(.., frame)| frame.wire_len()).max().unwrap();
    assert!(largest < base::limits::FRAME_BYTES_MAX, "{largest}");
    // Its window is smaller: the rest comes by repair.
    world.pass(2_000);
    assert!(world.answers.contains_key(&id));
    assert_eq!(world.done(2, Action::Count), Reply::Int(24));
    world.check();
    world.are_equal();
}

#[test]
fn a_cluster_of_older_programs_has_no_such_namespace() {
    let mut world = World::new(1);
    world.declare(1, LEVEL - 1);
    let id = world.ask(1, Action::Count);
    assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(_))));
}
