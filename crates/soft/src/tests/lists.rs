//! Lists: places beside a plain list; what two nodes push at one moment; what an older node is spared.

use super::*;

fn list(key: &str, what: List) -> Action {
    Action::List { key: bytes(key), what }
}

fn texts(values: &[&str]) -> Vec<Bytes> {
    values.iter().map(|value| bytes(value)).collect()
}

fn pushes(side: Side, values: &[&str]) -> List {
    List::Push { side, values: texts(values), only_there: false }
}

impl World {
    fn list(&mut self, n: u64, what: List) -> Reply {
        self.done(n, list("l", what))
    }

    fn items(&mut self, n: u64) -> Vec<String> {
        match self.list(n, List::Range { first: 0, last: -1 }) {
            Reply::Values(values) => {
                values.into_iter().map(|value| String::from_utf8(value.unwrap().to_vec()).unwrap()).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_pushed_at_one_node_stands_in_order_at_all() {
    let mut world = World::new(2);
    assert_eq!(world.list(1, pushes(Side::Right, &["c", "d"])), Reply::Int(2));
    assert_eq!(world.list(2, pushes(Side::Left, &["b", "a"])), Reply::Int(4));
    assert_eq!(world.items(1), ["a", "b", "c", "d"]);
    let insert = |side, pivot, value| List::Insert { side, pivot: bytes(pivot), value: bytes(value) };
    assert_eq!(world.list(1, insert(Side::Right, "b", "b2")), Reply::Int(5));
    assert_eq!(world.list(2, insert(Side::Left, "b2", "b1")), Reply::Int(6));
    assert_eq!(world.list(1, insert(Side::Left, "a", "0")), Reply::Int(7));
    assert_eq!(world.list(1, insert(Side::Right, "d", "e")), Reply::Int(8));
    assert_eq!(world.list(1, insert(Side::Right, "z", "e")), Reply::Int(-1));
    assert_eq!(world.items(2), ["0", "a", "b", "b1", "b2", "c", "d", "e"]);
    assert_eq!(world.list(1, List::Set { index: -2, value: bytes("D") }), Reply::Done);
    assert_eq!(world.list(2, List::Remove { count: 1, value: bytes("c") }), Reply::Int(1));
    assert_eq!(world.list(1, List::Trim { first: 1, last: -2 }), Reply::Done);
    assert_eq!(world.items(2), ["a", "b", "b1", "b2", "D"]);
    assert_eq!(world.list(2, List::Length), Reply::Int(5));
    assert_eq!(world.list(1, List::Set { index: 5, value: bytes("x") }), Reply::NoIndex);
    assert_eq!(world.done(1, Action::Kind { key: bytes("l") }), Reply::Kind(Some(Kind::Item)));
    // Beside other kinds.
    assert_eq!(world.put_members(1, "l", &["m"]), Reply::WrongKind);
    world.put_members(1, "s", &["m"]);
    assert_eq!(world.done(1, list("s", pushes(Side::Left, &["x"]))), Reply::WrongKind);
    assert_eq!(world.done(1, list("none", List::Set { index: 0, value: bytes("x") })), Reply::NoKey);
    let only = List::Push { side: Side::Left, values: texts(&["x"]), only_there: true };
    assert_eq!(world.done(1, list("none", only)), Reply::Int(0));
    assert_eq!(world.done(2, Action::Remove { keys: vec![bytes("l")] }), Reply::Int(1));
    assert_eq!((world.items(1), world.space(1).keys()), (vec![], 1));
    world.check();
    world.are_equal();
}

#[test]
fn what_two_nodes_push_at_one_moment_does_not_mix() {
    let mut world = World::new(2);
    world.list(1, pushes(Side::Right, &["m"]));
    world.cut_off(1, false);
    for (n, name) in [(1, "a"), (2, "b")] {
        for (side, push) in [(Side::Right, 1), (Side::Left, 2), (Side::Right, 3)] {
            let values: Vec<String> = (1..=3).map(|item| format!("{name}{push}{item}")).collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            world.ask(n, list("l", pushes(side, &values)));
        }
        let insert = List::Insert { side: Side::Right, pivot: bytes("m"), value: bytes(&format!("{name}40")) };
        world.ask(n, list("l", insert));
    }
    world.heal();
    world.pass(500);
    world.are_equal();
    let items = world.items(1);
    assert_eq!((items.len(), world.items(2)), (21, items.clone()));
    for name in ["a", "b"] {
        // Each node's own are in the order that it saw.
        let own: Vec<&str> = items
            .iter()
            .map(String::as_str)
            .filter(|item| !item.starts_with(if name == "a" { "b" } else { "a" }))
            .collect();
        let expected = ["23", "22", "21", "", "40", "11", "12", "13", "31", "32", "33"]
            .map(|item| if item.is_empty() { "m".to_owned() } else { format!("{name}{item}") });
        assert_eq!(own, expected);
        for push in 1..=3 {
            let of = format!("{name}{push}");
            let first = items.iter().position(|item| item.starts_with(&of)).unwrap();
            assert!(items[first..first + 3].iter().all(|item| item.starts_with(&of)), "{of} stays together: {items:?}");
        }
    }
}

#[test]
fn an_item_that_is_replaced_and_removed_at_one_moment_stays() {
    let mut world = World::new(2);
    world.list(1, pushes(Side::Right, &["a", "b", "c"]));
    world.cut_off(1, false);
    world.ask(1, list("l", List::Set { index: 1, value: bytes("B") }));
    world.ask(2, list("l", List::Trim { first: 0, last: 0 }));
    world.heal();
    world.pass(500);
    world.are_equal();
    assert_eq!(world.items(2), ["a", "B"]);
}

#[test]
fn where_no_place_is_left_it_is_said() {
    let mut world = World::new(1);
    world.list(1, pushes(Side::Right, &["a", "z"]));
    // A peer has put an item right behind the first one.
    let now = world.now;
    let space = &mut world.nodes.get_mut(&1).unwrap().spaces.get_mut(&7).unwrap().space;
    let first = space.cells.keys().find(|at| at.kind == Kind::Item).unwrap().clone();
    let behind = Address::new(bytes("l"), Kind::Item, [&first.element[..], &[0]].concat().into());
    space.put(now, &behind, Some((Some(bytes("b")), None)));
    let insert = |pivot, value| List::Insert { side: Side::Right, pivot: bytes(pivot), value: bytes(value) };
    assert_eq!(world.list(1, insert("a", "x")), Reply::NoRoom);
    assert_eq!(world.list(1, insert("b", "x")), Reply::Int(4));
    assert_eq!(world.items(1), ["a", "b", "x", "z"]);
    world.check();
    // Ends that a peer has set to the last that there is.
    let ends = [[255u8; 8], [0; 8]];
    let cells = ends.iter().map(|place| {
        let at = Address::new(bytes("l"), Kind::Item, Bytes::copy_from_slice(place));
        (at, cell::Cell::default())
    });
    for (at, cell) in cells {
        let space = &mut world.nodes.get_mut(&1).unwrap().spaces.get_mut(&7).unwrap().space;
        space.cells.insert(at, cell);
    }
    for side in [Side::Left, Side::Right] {
        assert_eq!(world.list(1, pushes(side, &["x"])), Reply::NoRoom);
    }
}

#[test]
fn nobody_makes_a_list_that_an_older_node_would_not_take() {
    let mut world = World::new(2);
    world.declare(1, LIST_LEVEL - 1);
    let id = world.ask(1, list("l", pushes(Side::Right, &["a"])));
    match world.answers.remove(&id) {
        Some(Outcome::Refused(refused)) => assert!(refused.why.contains("need level 6"), "{}", refused.why),
        other => panic!("{other:?}"),
    }
    world.declare(1, LIST_LEVEL);
    assert_eq!(world.list(1, pushes(Side::Right, &["a"])), Reply::Int(1));
}

#[test]
fn the_bytes_of_a_push_are_these() {
    let mut world = World::new(1);
    let node = world.nodes.get_mut(&1).unwrap();
    let now = world.now;
    let space = &mut node.spaces.get_mut(&7).unwrap().space;
    space.run(now, list("l", pushes(Side::Right, &["a", "b"])));
    let push = wire::Push { space: 7, boot: 1, deltas: std::mem::take(&mut space.out) };
    let text: String = prost::Message::encode_to_vec(&push).iter().map(|byte| format!("{byte:02x}")).collect();
    let place = |n: u8| format!("8000000000000000{:016x}{:016x}{:016x}{n:08x}", 1, 1, 1);
    let delta = |seq: u8, counter: &str, value: &str, sum: &str| {
        let at = format!("0a016c10051a24{}", place(seq - 1));
        let sibling = format!("0a060801100118{seq:02x}10{}{counter}2201{value}28{sum}", WALL);
        let part = format!("0a{:02x}{sibling}", sibling.len() / 2);
        let delta = format!("08{seq:02x}12{:02x}{at}1a{:02x}{part}", at.len() / 2, part.len() / 2);
        format!("1a{:02x}{delta}", delta.len() / 2)
    };
    // Milliseconds 8,000 of the wall clock; the second stamp of that millisecond has a counter.
    const WALL: &str = "c03e";
    let [a, b] = ["a", "b"].map(|value| {
        let mut sum = Vec::new();
        prost::encoding::encode_varint(base::checksum::Checksum::of(value.as_bytes()).0.into(), &mut sum);
        sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    let expected = format!("08071001{}{}", delta(1, "", "61", &a), delta(2, "1801", "62", &b));
    assert_eq!(text, expected);
}

/// One change of a list, by chance.
fn change() -> impl Strategy<Value = List> {
    let value = || (0..6u8).prop_map(|n| bytes(&n.to_string()));
    let side = || prop_oneof![Just(Side::Left), Just(Side::Right)];
    prop_oneof![
        3 => (side(), prop::collection::vec(value(), 1..4), any::<bool>())
            .prop_map(|(side, values, only_there)| List::Push { side, values, only_there }),
        3 => (side(), value(), value()).prop_map(|(side, pivot, value)| List::Insert { side, pivot, value }),
        1 => (-6..6i64, value()).prop_map(|(index, value)| List::Set { index, value }),
        1 => (-3..3i64, value()).prop_map(|(count, value)| List::Remove { count, value }),
        1 => (-6..6i64, -6..9i64).prop_map(|(first, last)| List::Trim { first, last }),
    ]
}

/// The same by a plain list.
fn plainly(items: &mut Vec<Bytes>, what: &List) -> Reply {
    let there = items.len() as i64;
    let place = |n: i64| if n < 0 { n + there } else { n };
    match what {
        List::Push { only_there: true, .. } if items.is_empty() => Reply::Int(0),
        List::Push { side, values, .. } => {
            for value in values {
                items.insert(if *side == Side::Left { 0 } else { items.len() }, value.clone());
            }
            Reply::Int(items.len() as i64)
        }
        List::Insert { .. } if items.is_empty() => Reply::Int(0),
        List::Insert { side, pivot, value } => match items.iter().position(|item| item == pivot) {
            None => Reply::Int(-1),
            Some(at) => {
                items.insert(at + usize::from(*side == Side::Right), value.clone());
                Reply::Int(items.len() as i64)
            }
        },
        List::Set { .. } if items.is_empty() => Reply::NoKey,
        List::Set { index, value } => match usize::try_from(place(*index)).ok().and_then(|at| items.get_mut(at)) {
            Some(item) => {
                *item = value.clone();
                Reply::Done
            }
            None => Reply::NoIndex,
        },
        List::Remove { count, value } => {
            let before = items.len();
            let mut left = if *count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
            if *count < 0 {
                items.reverse();
            }
            items.retain(|item| {
                let goes = item == value && left > 0;
                left -= usize::from(goes);
                !goes
            });
            if *count < 0 {
                items.reverse();
            }
            Reply::Int((before - items.len()) as i64)
        }
        List::Trim { first, last } => {
            let (first, last) = (place(*first).max(0), place(*last));
            let mut at = -1;
            items.retain(|_| {
                at += 1;
                first <= at && at <= last
            });
            Reply::Done
        }
        List::Range { .. } | List::Length => unreachable!("they change nothing"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_list_is_a_list(all in prop::collection::vec(change(), 1..60)) {
        let mut world = World::new(1);
        let mut plain = Vec::new();
        for what in all {
            let expected = plainly(&mut plain, &what);
            prop_assert_eq!(world.list(1, what.clone()), expected, "{:?}", what);
            let items: Vec<Bytes> = world.items(1).into_iter().map(Bytes::from).collect();
            prop_assert_eq!(&items, &plain, "{:?}", what);
        }
        world.check();
    }

    /// Whatever two nodes did without seeing each other: both have the same list, with each other's items.
    #[test]
    fn two_lists_become_one(all in prop::collection::vec((1..3u64, change(), 0..8u8), 1..60)) {
        let mut world = World::new(2);
        for (n, what, then) in all {
            world.ask(n, list("l", what));
            match then {
                0 => world.cut_off(1, false),
                1 => world.heal(),
                2 => world.settle(),
                3 => world.pass(100),
                _ => (),
            }
        }
        world.heal();
        world.pass(1_000);
        world.check();
        world.are_equal();
        let items = world.items(1);
        prop_assert_eq!(items, world.items(2));
    }
}
