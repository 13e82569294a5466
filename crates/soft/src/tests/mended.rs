//! Nodes that have seen the same and have different cells.

use super::*;
use crate::cell::{Cell, Known};
use crate::mend::{self, State};

impl World {
    fn cells_of_space(&mut self, n: u64) -> &mut Space {
        &mut self.nodes.get_mut(&n).unwrap().spaces.get_mut(&7).unwrap().space
    }

    /// A peer says that it has seen all that this node has, and that at one place there is this.
    fn lies(&mut self, to: u64, at: &Address, cell: Cell) {
        let now = self.now;
        let space = self.cells_of_space(to);
        let known = space.context.clone();
        space.take_whole(now, at, &cell, &[], &known).unwrap();
    }

    fn mended(&self) -> Vec<u64> {
        self.nodes.keys().map(|n| self.figure(*n, "soft.mended")).collect()
    }

    /// What the hashes are that are kept is what they are if they are made anew.
    fn hashes_are_right(&self) {
        for n in self.nodes.keys() {
            let mut anew = State::default();
            let space = self.space(*n);
            space.cells.iter().for_each(|(at, cell)| anew.moves(at, 0, mend::hash(at, cell)));
            assert_eq!(anew.whole(), space.state.whole(), "{n}");
        }
    }
}

fn member(key: &str, element: &str) -> Address {
    Address::new(bytes(key), Kind::Member, bytes(element))
}

#[test]
fn what_a_peer_has_taken_away_by_a_lie_comes_back_and_is_told() {
    let mut world = World::new(3);
    for n in 0..300 {
        world.put_members(1, &format!("s{n}"), &["ann", "bob"]);
    }
    world.pass(500);
    world.lies(2, &member("s7", "ann"), Cell::default());
    assert_eq!(
        (world.members(2, "s7"), world.space(2).context == world.space(1).context),
        (vec!["bob".to_owned()], true)
    );
    world.pass(2_000);
    assert_eq!(world.members(2, "s7"), ["ann", "bob"]);
    world.are_equal();
    world.check();
    world.hashes_are_right();
    assert_eq!(world.mended(), [0, 1, 0], "one element, at the one that had lost it");
    assert_eq!(world.warnings.len(), 1);
    assert!(world.warnings[0].contains("1 elements of namespace floor were not what"), "{:?}", world.warnings);
    // And it is what it was: it can be taken away.
    world.done(3, Action::Take { kind: Kind::Member, key: bytes("s7"), elements: vec![bytes("ann")] });
    world.pass(500);
    assert_eq!(world.members(2, "s7"), ["bob"]);
    world.are_equal();
}

#[test]
fn one_update_with_two_values_becomes_one_everywhere() {
    let mut world = World::new(3);
    world.set(1, "k", "first", End::Never);
    world.add(1, "n", 3);
    world.pass(500);
    world.cut_off(2, false);
    world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes("true"))], end: End::Never });
    world.add(3, "n", 4);
    world.settle();
    // It comes to the second node otherwise than it was made.
    let register = |key: &str| Address::new(bytes(key), Kind::Register, Bytes::new());
    let mut cell = world.space(1).cells.get(&register("k")).unwrap().clone();
    cell.siblings[0].value = Some(bytes("forged"));
    cell.siblings[0].sum = base::checksum::Checksum::of(b"forged").0;
    let now = world.now;
    let known = world.space(1).context.clone();
    let covers = known.minus(&world.space(2).context);
    world.cells_of_space(2).take_whole(now, &register("k"), &cell, &covers, &known).unwrap();
    world.heal();
    world.pass(3_000);
    world.are_equal();
    world.hashes_are_right();
    assert_eq!(world.get(1, "k"), world.get(2, "k"));
    // What it was told to have seen, too, is there: nothing that one of them has is lost.
    assert_eq!(world.get(2, "n").as_deref(), Some("7"));
    assert!(world.mended().iter().sum::<u64>() >= 2, "{:?}", world.mended());
}

#[test]
fn nothing_is_mended_by_what_is_older_or_newer() {
    let mut world = World::new(2);
    world.put_members(1, "s", &["ann"]);
    world.pass(500);
    let now = world.now;
    let (boot, space) = (1, 7);
    let whole = |world: &World| wire::Whole {
        at: wire::At::from(&member("s", "ann")),
        cell: wire::ACell::of(world.space(1).cells.get(&member("s", "ann")).unwrap(), now.mono),
        covers: Vec::new(),
    };
    let context = |world: &World, n| wire::ranges(world.space(n).context.ranges());
    let old = wire::Mend { space, boot, context: context(&world, 1), cells: vec![whole(&world)] };
    // It was removed since: that the sender did not know of it.
    world.done(2, Action::Remove { keys: vec![bytes("s")] });
    world.pass(500);
    let mend = |message: &wire::Mend| {
        let frame = Frame::new(machine::kind::MEND, prost::Message::encode_to_vec(message));
        Input::Frame { from: NodeId(1), frame }
    };
    world.give(2, mend(&old));
    assert!(world.members(2, "s").is_empty(), "what was removed stays removed");
    // The sender has seen more.
    world.cut_off(1, false);
    let cell = old.cells.clone();
    world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never });
    let newer = wire::Mend { space, boot, context: context(&world, 1), cells: cell.clone() };
    world.give(2, mend(&newer));
    assert!(world.members(2, "s").is_empty());
    // The sender has what it has not seen.
    let odd = wire::Mend { space, boot, context: Vec::new(), cells: cell };
    let before = world.figure(2, "soft.odd");
    let mut out = Vec::new();
    world.nodes.get_mut(&2).unwrap().handle(now, mend(&odd), &mut out);
    assert!(matches!(out[..], [Output::Bad { from: NodeId(1), .. }]), "{out:?}");
    assert_eq!((world.figure(2, "soft.odd") - before, world.mended()), (1, vec![0, 0]));
}

/// A bit of a value's bytes is another one in memory.
fn flips(world: &mut World, n: u64, at: &Address) {
    let space = world.cells_of_space(n);
    let cell = space.cells.get_or_insert_with(at, || panic!("it is there"));
    let mut value = cell.siblings[0].value.take().unwrap().to_vec();
    value[0] ^= 1;
    cell.siblings[0].value = Some(value.into());
}

#[test]
fn a_value_whose_bits_have_flipped_is_given_to_no_reader_and_is_got_from_another_node() {
    let mut world = World::new(3);
    world.set(1, "k", "7", End::Never);
    world.done(1, Action::Put { kind: Kind::Field, key: bytes("h"), pairs: vec![(bytes("f"), Some(bytes("v")))] });
    world.pass(500);
    let mut cursor = world.watch(2, None, "", Span::ZERO).cursor;
    let (k, f) =
        (Address::new(bytes("k"), Kind::Register, Bytes::new()), Address::new(bytes("h"), Kind::Field, bytes("f")));
    for at in [&k, &f] {
        flips(&mut world, 2, at);
    }
    let read = |key: &str| Action::Read { kind: Kind::Register, at: vec![(bytes(key), Bytes::new())] };
    let asks = [
        read("k"),
        Action::Peek { at: vec![bytes("k")] },
        Action::All { kind: Kind::Field, key: bytes("h") },
        Action::Whole { key: bytes("k") },
        Action::Add { kind: Kind::Register, key: bytes("k"), element: Bytes::new(), by: 1 },
    ];
    for action in asks {
        let id = world.ask(2, action.clone());
        let said = world.answers.remove(&id);
        assert!(
            matches!(&said, Some(Outcome::Refused(refused)) if refused.retry_after.is_some()),
            "{action:?}: {said:?}"
        );
    }
    // Another key is read all the same, and what is damaged is there again in a moment.
    assert_eq!(world.get(2, "other"), None);
    world.pass(300);
    assert_eq!((world.get(2, "k").as_deref(), world.mended()), (Some("7"), vec![0, 2, 0]));
    assert_eq!(world.add(2, "k", 1), Reply::Int(8));
    // Who reads changes is told of it.
    let told = world.watch(2, Some(cursor), "", Span::ZERO);
    cursor = told.cursor;
    let keys: Vec<(Bytes, Option<Why>)> = told.changes.into_iter().map(|change| (change.key, change.why)).collect();
    assert!(keys.contains(&(bytes("h"), Some(Why::Repair))), "{keys:?}");
    assert!(world.watch(2, Some(cursor), "", Span::ZERO).changes.is_empty(), "once");
    // Where nobody else is there is nothing to be got; who writes over it reads that.
    let mut alone = World::new(1);
    alone.set(1, "k", "7", End::Never);
    flips(&mut alone, 1, &k);
    let id = alone.ask(1, read("k"));
    assert!(matches!(alone.answers.remove(&id), Some(Outcome::Refused(_))));
    alone.pass(500);
    alone.set(1, "k", "8", End::Never);
    assert_eq!(alone.get(1, "k").as_deref(), Some("8"));
    alone.pass(500);
    assert!(!alone.space(1).has_damaged());
}

#[test]
fn who_reads_changes_is_told_of_what_was_mended() {
    let mut world = World::new(2);
    world.put_members(1, "s", &["ann", "bob"]);
    world.pass(500);
    let cursor = world.watch(2, None, "s", Span::ZERO).cursor;
    let other = world.watch(1, None, "", Span::ZERO).cursor;
    // One of them has lost a member, and nobody has done that.
    let space = world.cells_of_space(2);
    space.change(&member("s", "ann"), |cell, _| *cell = cell::Cell::default());
    world.pass(2_000);
    assert_eq!(world.members(2, "s"), ["ann", "bob"]);
    let told = world.watch(2, Some(cursor), "s", Span::ZERO);
    let elements: Vec<(Bytes, Option<Why>)> =
        told.changes.into_iter().map(|change| (change.element, change.why)).collect();
    assert_eq!(elements, [(bytes("ann"), Some(Why::Repair))]);
    // A cursor goes on at another node, where nothing was mended, and at this one after it begins anew.
    assert!(world.watch(1, Some(told.cursor.clone()), "", Span::ZERO).changes.is_empty());
    assert!(world.watch(2, Some(other), "", Span::ZERO).changes.is_empty());
    assert!(world.watch(2, Some(told.cursor), "", Span::ZERO).changes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Without damage nothing is mended, whatever is lost and late; and who has the same has the same hash.
    #[test]
    fn what_converges_has_one_hash_and_needs_no_mending(
        steps in prop::collection::vec((1..4u64, 0..10u8, 0..3u8, 0..3u8), 1..80),
    ) {
        let mut world = World::new(3);
        for (n, what, key, element) in steps {
            let (key, element) = (bytes(&format!("k{key}")), bytes(&format!("e{element}")));
            match what {
                0 => drop(world.ask(n, Action::Set { pairs: vec![(key, element)], end: End::Never })),
                1 => drop(world.ask(n, Action::Put { kind: Kind::Member, key, pairs: vec![(element, None)] })),
                2 | 3 => drop(world.ask(n, Action::Add { kind: Kind::Field, key, element, by: 3 })),
                4 => drop(world.ask(n, Action::Take { kind: Kind::Field, key, elements: vec![element] })),
                5 => drop(world.ask(n, Action::Remove { keys: vec![key] })),
                6 => drop(world.air.pop()),
                7 => world.cut_off(n, false),
                8 => world.heal(),
                _ => world.pass(300),
            }
        }
        world.heal();
        world.pass(2_000);
        world.are_equal();
        world.hashes_are_right();
        let hashes: BTreeSet<u64> = world.nodes.keys().map(|n| world.space(*n).state.whole()).collect();
        prop_assert_eq!(hashes.len(), 1);
        prop_assert_eq!(world.mended(), vec![0, 0, 0]);
    }
}

/// A cell of a few siblings and slots, of lives that overlap.
fn cells() -> impl Strategy<Value = Cell> {
    let put = (1..4u64, 1..6u64, 0..3u8);
    prop::collection::vec((put, any::<bool>()), 0..6).prop_map(|puts| {
        let mut cell = Cell::default();
        for ((node, seq, value), counts) in puts {
            let dot = Dot { life: Life { node: NodeId(node), boot: Boot(1) }, seq };
            let mut part = Cell::default();
            if counts {
                part.count(dot, i64::from(value) + 1);
            } else {
                let (value, stamp) = (bytes(&value.to_string()), dot::Stamp { ms: seq, counter: 0 });
                let sum = base::checksum::Checksum::of(&value).0;
                part.siblings.push(cell::Sibling { dot, stamp, value: Some(value), sum, ends: None, held: false });
            }
            cell.mend(&part);
        }
        cell
    })
}

proptest! {
    #[test]
    fn mending_knows_no_order(a in cells(), b in cells(), c in cells()) {
        let both = |a: &Cell, b: &Cell| {
            let mut cell = a.clone();
            cell.mend(b);
            cell
        };
        prop_assert_eq!(both(&a, &b), both(&b, &a));
        prop_assert_eq!(both(&both(&a, &b), &c), both(&a, &both(&b, &c)));
        prop_assert_eq!(both(&a, &a), a.clone());
        // What is mended is a cell that joins go on with.
        let mut joined = both(&a, &b);
        let dot = Dot { life: Life { node: NodeId(9), boot: Boot(1) }, seq: 1 };
        joined.join(&c, &Context::default(), Known::Push { dot, supersedes: &[] });
        prop_assert!(joined.siblings.windows(2).all(|pair| pair[0].dot.life < pair[1].dot.life));
    }
}
