//! Changes from a cursor on, at any node.

use super::*;

/// A map that is kept by asking for changes.
#[derive(Default)]
struct Reader {
    cursor: Option<Bytes>,
    has: BTreeMap<(Bytes, Kind, Bytes), Option<Bytes>>,
    resets: usize,
    told: usize,
}

impl Reader {
    /// From the very beginning.
    fn new() -> Self {
        Self { cursor: Some(Bytes::new()), ..Self::default() }
    }

    fn take(&mut self, Changes { is_reset, changes, cursor, is_more }: Changes) -> bool {
        if is_reset {
            self.has.clear();
            self.resets += 1;
        }
        self.told += changes.len();
        for Change { key, kind, element, value, .. } in changes {
            match value {
                Some(value) => drop(self.has.insert((key, kind, element), value)),
                None => drop(self.has.remove(&(key, kind, element))),
            }
        }
        self.cursor = Some(cursor);
        is_more
    }

    /// All that a node has to tell at once.
    fn reads(&mut self, world: &mut World, n: u64) {
        while self.take(world.watch(n, self.cursor.clone(), "", Span::ZERO)) {}
    }
}

impl World {
    fn ask_watch(&mut self, n: u64, after: Option<Bytes>, prefix: &str, hold: Span) -> u64 {
        self.ask(n, Action::Watch(Watch { prefix: bytes(prefix), after, hold, ends: false }))
    }

    /// Everything, also ends.
    fn ask_watch_ends(&mut self, n: u64, after: Option<Bytes>) -> u64 {
        self.ask(n, Action::Watch(Watch { prefix: Bytes::new(), after, hold: Span::ZERO, ends: true }))
    }

    fn changes(&mut self, id: u64) -> Option<Changes> {
        match self.answers.remove(&id)? {
            Outcome::Done(Reply::Changes(changes)) => Some(changes),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn watch(&mut self, n: u64, after: Option<Bytes>, prefix: &str, hold: Span) -> Changes {
        let id = self.ask_watch(n, after, prefix, hold);
        self.settle();
        self.changes(id).expect("it is answered at once")
    }

    /// What a reader of everything is to have.
    fn all(&self, n: u64) -> BTreeMap<(Bytes, Kind, Bytes), Option<Bytes>> {
        let there = self.space(n).cells.iter().filter(|(at, cell)| at.kind != Kind::End && cell.is_there());
        there.map(|(at, cell)| ((at.key.clone(), at.kind, at.element.clone()), crate::run::value(cell))).collect()
    }
}

fn change(key: &str, kind: Kind, element: &str, value: Option<Option<&str>>, why: Why) -> Change {
    let value = value.map(|value| value.map(bytes));
    let (did, is_last) = (Did::Put, value.is_none());
    Change { key: bytes(key), kind, element: bytes(element), value, why: Some(why), lost: Vec::new(), did, is_last }
}

#[test]
fn a_question_waits_until_something_changes_and_tells_it_as_it_is() {
    let mut world = World::new(2);
    world.set(1, "old", "v", End::Never);
    let begins = world.watch(1, None, "", Span::ZERO);
    assert!(begins.changes.is_empty() && !begins.is_reset, "from now on");
    let id = world.ask_watch(1, Some(begins.cursor.clone()), "f", WATCH_HOLD);
    world.settle();
    assert!(!world.answers.contains_key(&id));
    assert_eq!(world.figure(1, "soft.watchers"), 1);
    world.set(2, "other", "v", End::Never);
    world.pass(50);
    assert!(!world.answers.contains_key(&id), "it is none of those that are asked for");
    world.set(2, "flag", "on", End::After(Span::secs(60)));
    world.settle();
    let told = world.changes(id).unwrap();
    assert_eq!(told.changes, [change("flag", Kind::Register, "", Some(Some("on")), Why::Remote)]);
    world.put_members(1, "f", &["ann"]);
    world.done(2, Action::Remove { keys: vec![bytes("flag")] });
    let told = world.watch(1, Some(told.cursor), "f", WATCH_HOLD);
    let expected = [
        change("f", Kind::Member, "ann", Some(None), Why::Local),
        Change { did: Did::Deleted, ..change("flag", Kind::Register, "", None, Why::Remote) },
    ];
    assert_eq!(told.changes, expected);
    // At the end of its time it says how far one is.
    let id = world.ask_watch(1, Some(told.cursor), "f", WATCH_HOLD);
    world.pass(400);
    assert!(!world.answers.contains_key(&id));
    world.pass(200);
    let told = world.changes(id).unwrap();
    assert!(told.changes.is_empty() && !told.cursor.is_empty());
    assert_eq!(world.figure(1, "soft.watchers"), 0);
}

#[test]
fn a_cursor_goes_on_at_any_node_for_the_price_of_the_difference() {
    let mut world = World::new(3);
    for n in 0..300 {
        world.set(1, &format!("k{n}"), "v", End::Never);
    }
    let mut reader = Reader::new();
    reader.reads(&mut world, 1);
    assert_eq!(reader.has, world.all(1));
    let before = reader.told;
    world.set(2, "k7", "w", End::Never);
    world.pass(500);
    reader.reads(&mut world, 3);
    assert_eq!((reader.has == world.all(2), reader.told - before), (true, 1));
}

#[test]
fn a_change_says_why_it_came() {
    let mut world = World::new(3);
    let mut cursors: Vec<Bytes> = (1..=3).map(|n| world.watch(n, None, "", Span::ZERO).cursor).collect();
    let mut whys = |world: &mut World, n: u64| -> Vec<(Bytes, Option<Why>)> {
        let cursor = &mut cursors[n as usize - 1];
        let told = world.watch(n, Some(cursor.clone()), "", Span::ZERO);
        *cursor = told.cursor;
        told.changes.into_iter().map(|change| (change.key, change.why)).collect()
    };
    world.cut_off(3, false);
    world.set(1, "a", "v", End::After(Span::millis(1_500)));
    assert_eq!(whys(&mut world, 1), [(bytes("a"), Some(Why::Local))]);
    assert_eq!(whys(&mut world, 2), [(bytes("a"), Some(Why::Remote))]);
    world.heal();
    world.pass(1_000);
    assert_eq!(whys(&mut world, 3), [(bytes("a"), Some(Why::Repair))], "it did not come as it was made");
    world.pass(1_000);
    for n in 1..=3 {
        assert_eq!(whys(&mut world, n), [(bytes("a"), Some(Why::Ended))], "{n}");
    }
    // A removal on purpose is none of that, and of several the last one counts.
    world.set(2, "b", "v", End::Never);
    world.pass(10);
    world.done(1, Action::Remove { keys: vec![bytes("b")] });
    assert_eq!(whys(&mut world, 1), [(bytes("b"), Some(Why::Remote))], "of two that left nothing: the later life's");
    world.set(2, "c", "v", End::Never);
    world.set(1, "c", "w", End::Never);
    assert_eq!(whys(&mut world, 1), [(bytes("c"), Some(Why::Local))]);
    // What is there is not told as something that changed.
    let all = world.watch(1, Some(Bytes::new()), "", Span::ZERO);
    assert!(all.changes.iter().all(|change| change.why.is_some()), "it is remembered still how all came to be");
    // All that is remembered of it goes with what the index forgets.
    world.pass(60_000);
    assert_eq!(world.space(3).whys.count(), 0);
    let mut reset = world.watch(1, Some(Bytes::new()), "", Span::ZERO);
    assert!(reset.is_reset && reset.changes.pop().is_some_and(|change| change.why.is_none()));
}

#[test]
fn who_writes_without_having_seen_another_learns_what_lost() {
    let mut world = World::new(2);
    world.cut_off(1, false);
    let set = |value: &str| Action::Set { pairs: vec![(bytes("k"), bytes(value))], end: End::Never };
    let begins: Vec<Bytes> = (1..=2).map(|n| world.watch(n, None, "", Span::ZERO).cursor).collect();
    world.ask(1, set("older"));
    world.advance(10);
    world.ask(2, set("newer"));
    world.heal();
    world.pass(500);
    for n in [1, 2] {
        let told = world.watch(n, Some(begins[n as usize - 1].clone()), "", Span::ZERO);
        let [change] = &told.changes[..] else { panic!("{:?}", told.changes) };
        assert_eq!(
            (change.value.clone(), change.lost.clone()),
            (Some(Some(bytes("newer"))), vec![Some(bytes("older"))])
        );
        assert_eq!(world.figure(n, "soft.conflicts"), 1, "{n}");
    }
    // Who writes next has seen both.
    let begins = world.watch(1, None, "", Span::ZERO).cursor;
    world.answers.clear();
    world.set(2, "k", "last", End::Never);
    let told = world.watch(1, Some(begins), "", Span::ZERO);
    assert_eq!(told.changes, [change("k", Kind::Register, "", Some(Some("last")), Why::Remote)]);
    // So many are told, and none that is long.
    let mut world = World::new(12);
    (1..=12).for_each(|n| world.cut_off(n, false));
    for n in 1..=12 {
        let value = if n == 11 { "x".repeat(LOST_BYTES_MAX + 1) } else { format!("{n}") };
        world.ask(n, set(&value));
        world.advance(10);
    }
    world.heal();
    world.pass(3_000);
    let told = world.watch(5, Some(Bytes::new()), "", Span::ZERO);
    let [change] = &told.changes[..] else { panic!("{:?}", told.changes) };
    let expected: Vec<Option<Bytes>> =
        (3..=11).rev().take(LOST_MAX).map(|n| (n != 11).then(|| bytes(&n.to_string()))).collect();
    assert_eq!((change.value.clone(), &change.lost), (Some(Some(bytes("12"))), &expected));
}

#[test]
fn what_the_index_has_forgotten_is_told_anew_in_pages() {
    let spec = Spec { checkpoint_ms: 0, ..Spec::default() };
    let mut world = World::of(2, spec);
    let large = "x".repeat(4_000);
    for n in 0..200 {
        world.set(1, &format!("k{n}"), &large, End::Never);
    }
    let mut late = Reader::new();
    late.cursor = Some(world.watch(1, None, "", Span::ZERO).cursor);
    world.done(2, Action::Remove { keys: vec![bytes("k5")] });
    world.pass(5_000);
    assert_eq!(world.space(2).index.len(), 0, "nobody watches here");
    assert_ne!(world.space(1).index.len(), 0, "who is cut off for a moment finds what it lacks");
    // Here it is gone. What is written while all is told is told, too.
    let first = world.watch(2, late.cursor.clone(), "", Span::ZERO);
    assert!(first.is_reset && first.is_more, "{} in a page", first.changes.len());
    late.take(first);
    world.set(1, "k0", "new", End::Never);
    world.done(2, Action::Remove { keys: (0..150).map(|n| bytes(&format!("k{n}"))).skip(1).collect() });
    world.pass(100);
    late.reads(&mut world, 2);
    assert_eq!((late.has == world.all(1), late.resets), (true, 1));
    // Pages go on elsewhere, too.
    let mut other = Reader::new();
    other.take(world.watch(2, Some(Bytes::new()), "", Span::ZERO));
    other.reads(&mut world, 1);
    assert_eq!(other.has, world.all(1));
}

#[test]
fn what_another_node_has_told_before_it_came_here_is_told_again() {
    let mut world = World::new(2);
    let begins = world.watch(1, None, "", Span::ZERO).cursor;
    world.cut_off(1, false);
    let (a, b) = (bytes("a"), bytes("b"));
    let set = |value: Bytes| Action::Set { pairs: vec![(bytes("k"), value)], end: End::Never };
    world.ask(2, set(b.clone()));
    world.advance(10);
    world.ask(1, set(a.clone()));
    let mut reader = Reader { cursor: Some(begins), ..Reader::default() };
    reader.reads(&mut world, 1);
    // The other node has another one, which is older, and tells it.
    reader.reads(&mut world, 2);
    let at = (bytes("k"), Kind::Register, Bytes::new());
    assert_eq!(reader.has[&at], Some(b));
    world.heal();
    world.pass(500);
    reader.reads(&mut world, 2);
    assert_eq!(reader.has[&at], Some(a));
}

#[test]
fn a_cursor_that_no_node_gave_is_refused() {
    let mut world = World::new(1);
    let other = wire::Cursor { space: 8, ..wire::Cursor::default() };
    let at = wire::At { key: vec![0; NAME_BYTES_MAX + 1].into(), kind: 1, element: Bytes::new() };
    let none = wire::Cursor { space: 7, at: Some(at), ..wire::Cursor::default() };
    let torn = prost::Message::encode_to_vec(&none)[..9].to_vec();
    for cursor in [prost::Message::encode_to_vec(&other), prost::Message::encode_to_vec(&none), torn] {
        let id = world.ask_watch(1, Some(cursor.into()), "", WATCH_HOLD);
        assert!(matches!(world.answers.remove(&id), Some(Outcome::Refused(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is written where, and at whatever node it asks next: at the end a reader has what the nodes have.
    #[test]
    fn a_reader_has_what_the_nodes_have(
        steps in prop::collection::vec((1..4u64, 0..10u8, 0..5u8, 0..3u8), 1..60),
    ) {
        let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
        let mut reader = Reader::new();
        for (n, what, key, element) in steps {
            let (key, element) = (bytes(&format!("k{key}")), bytes(&format!("e{element}")));
            let pairs = vec![(element.clone(), Some(bytes("v")))];
            match what {
                0 | 1 => drop(world.ask(n, Action::Set { pairs: vec![(key, element)], end: End::Never })),
                2 => drop(world.ask(n, Action::Put { kind: Kind::Field, key, pairs })),
                3 => drop(world.ask(n, Action::Add { kind: Kind::Field, key, element, by: 3 })),
                4 => drop(world.ask(n, Action::Remove { keys: vec![key] })),
                5 => world.cut_off(n, false),
                6 => world.heal(),
                7 => world.pass(1_200),
                _ => reader.reads(&mut world, n),
            }
        }
        world.heal();
        world.pass(2_000);
        world.are_equal();
        reader.reads(&mut world, 2);
        prop_assert_eq!(&reader.has, &world.all(1));
        reader.reads(&mut world, 3);
        prop_assert_eq!(&reader.has, &world.all(1));
    }
}

/// What was done is told with what changed, as far as cells tell it.
#[test]
fn a_change_says_what_was_done_to_its_element() {
    let mut world = World::new(2);
    let mut cursor = world.watch(1, None, "", Span::ZERO).cursor;
    let mut told = |world: &mut World| {
        world.settle();
        let id = world.ask_watch_ends(1, Some(cursor.clone()));
        world.settle();
        let told = world.changes(id).expect("it is answered at once");
        cursor = told.cursor;
        told.changes.iter().map(|of| (of.kind, of.value.is_some(), of.did, of.is_last)).collect::<Vec<_>>()
    };
    let field = |by| Action::Add { kind: Kind::Field, key: bytes("h"), element: bytes("f"), by };
    for by in [2, -5] {
        world.done(2, field(by));
        assert_eq!(told(&mut world), [(Kind::Field, true, Did::Counted, false)]);
    }
    let pairs = vec![(bytes("f"), Some(bytes("5")))];
    world.done(1, Action::Put { kind: Kind::Field, key: bytes("h"), pairs });
    assert_eq!(told(&mut world), [(Kind::Field, true, Did::Put, false)], "it was put since");
    world.done(1, field(1));
    assert_eq!(told(&mut world), [(Kind::Field, true, Did::Counted, false)]);
    world.done(2, Action::End { key: bytes("h"), end: Some(Span::secs(50)) });
    assert_eq!(told(&mut world), [(Kind::End, true, Did::Put, false)]);
    world.done(2, Action::End { key: bytes("h"), end: None });
    assert_eq!(told(&mut world), [(Kind::End, false, Did::Put, false)]);
    world.done(2, Action::Remove { keys: vec![bytes("h")] });
    assert_eq!(told(&mut world), [(Kind::Field, false, Did::Deleted, true)]);
    world.done(2, field(1));
    told(&mut world);
    world.done(1, Action::Take { kind: Kind::Field, key: bytes("h"), elements: vec![bytes("f")] });
    assert_eq!(told(&mut world), [(Kind::Field, false, Did::Put, true)], "it alone was taken");
    let list = |what| Action::List { key: bytes("l"), what };
    let push = |side, of: &[&str]| {
        list(List::Push { side, values: of.iter().map(|of| bytes(of)).collect(), only_there: false })
    };
    // As each of two nodes pushes to either end, and the list is empty in between.
    for n in [1, 2, 1] {
        for side in [Side::Left, Side::Right, Side::Left] {
            world.done(n, push(side, &["a", "b"]));
            assert_eq!(told(&mut world), [(Kind::Item, true, Did::Pushed(side), false); 2]);
        }
        world.done(n, list(List::Trim { first: 4, last: 5 }));
        assert_eq!(told(&mut world), [(Kind::Item, false, Did::Trimmed, false); 4]);
        world.done(n, push(Side::Left, &["c"]));
        assert_eq!(told(&mut world), [(Kind::Item, true, Did::Pushed(Side::Left), false)]);
        world.done(3 - n, list(List::Set { index: 1, value: bytes("x") }));
        assert_eq!(told(&mut world), [(Kind::Item, true, Did::Replaced, false)]);
        world.done(n, list(List::Insert { side: Side::Left, pivot: bytes("x"), value: bytes("y") }));
        assert_eq!(told(&mut world), [(Kind::Item, true, Did::Inserted, false)]);
        world.done(n, list(List::Trim { first: 9, last: 9 }));
        let last = told(&mut world);
        assert!(last.len() == 4 && last.iter().all(|(.., did, is_last)| *is_last && *did == Did::Trimmed), "{last:?}");
    }
}
