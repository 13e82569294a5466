//! Whole cells carry what updates did that nobody asked for. Whoever takes a cell has then seen those, too: or two nodes that have
//! seen the same have different things for good, once the maker of such an update has died.

use super::*;
use crate::machine::kind;

impl World {
    /// Of what is on its way from one to another, this kind arrives; the rest stays.
    fn passes(&mut self, from: u64, to: u64, kinds: &[u16]) -> usize {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.air)
            .into_iter()
            .partition(|(f, t, frame)| (*f, *t) == (from, to) && kinds.contains(&frame.kind));
        self.air = later;
        let count = now.len();
        now.into_iter().for_each(|one| self.arrives(one));
        count
    }

    fn lose(&mut self, which: impl Fn(u64, u64, &Frame) -> bool) {
        self.air.retain(|(from, to, frame)| !which(*from, *to, frame));
    }
}

#[test]
fn who_is_sent_a_cell_has_seen_what_made_it() {
    let mut world = World::new(3);
    world.set(1, "k", "a", End::Never);
    world.pass(1_000);
    // This comes to 3 alone, and is of the tick before.
    world.ask(1, Action::Set { pairs: vec![(bytes("k"), bytes("b"))], end: End::Never });
    world.wake();
    assert_eq!(world.passes(1, 3, &[kind::PUSH]), 1);
    world.air.clear();
    let mut told = 0;
    for _ in 0..20 {
        world.advance(50);
        world.wake();
        world.lose(|from, to, frame| (from, to) != (1, 2) || frame.kind != kind::DIGEST);
        told = world.passes(1, 2, &[kind::DIGEST]);
        if told > 0 {
            break;
        }
    }
    assert!(told > 0, "1 compares with 2 now and then");
    // Now a removal, whose own message is lost; what 2 has asked for is made after it.
    world.ask(1, Action::Remove { keys: vec![bytes("k")] });
    world.lose(|from, _, _| from == 1);
    assert_eq!(world.passes(2, 1, &[kind::HAVE]), 1);
    assert_eq!(world.passes(1, 2, &[kind::CELLS]), 1);
    world.air.clear();
    world.dies(1);
    world.pass(3_000);
    world.check();
    world.are_equal();
}

#[test]
fn who_is_sent_everything_has_seen_what_was_removed_meanwhile() {
    let mut world = World::of(3, Spec { checkpoint_ms: 1_000, ..Spec::default() });
    let value = "v".repeat(50_000);
    let keys = ["a", "b", "c", "d", "e", "f"];
    keys.iter().for_each(|key| world.set(1, key, &value, End::Never));
    // Long enough that how it came to be is forgotten.
    world.pass(6_000);
    assert!(world.space(1).floor.ranges().next().is_some());
    world.dies(3);
    world.disks.remove(&3);
    world.born(3, 2);
    let pages = |world: &World| world.air.iter().find(|(_, to, f)| *to == 3 && f.kind == kind::PAGE).map(|one| one.0);
    let mut server = None;
    for _ in 0..200 {
        world.advance(10);
        world.wake();
        let air = std::mem::take(&mut world.air);
        air.into_iter().filter(|(.., frame)| frame.kind != kind::PAGE).for_each(|one| world.arrives(one));
        server = pages(&world);
        if server.is_some() {
            break;
        }
    }
    let server = server.expect("3 is sent all");
    world.lose(|from, _, frame| from != server || frame.kind != kind::PAGE);
    world.passes(server, 3, &[kind::PAGE]);
    world.ask(server, Action::Remove { keys: keys.iter().map(|key| bytes(key)).collect() });
    world.lose(|_, _, frame| frame.kind != kind::PAGE_ASK);
    for _ in 0..10 {
        world.passes(3, server, &[kind::PAGE_ASK]);
        world.lose(|_, _, frame| frame.kind != kind::PAGE);
        world.passes(server, 3, &[kind::PAGE]);
        world.lose(|_, _, frame| frame.kind != kind::PAGE_ASK);
    }
    assert_eq!(world.space(3).keys(), 2, "what the first page had is all that is left of it");
    world.air.clear();
    world.dies(server);
    world.pass(3_000);
    world.check();
    world.are_equal();
}

#[test]
fn a_hundred_idle_namespaces_cost_little_and_what_was_lost_in_one_is_found() {
    let mut world = World::new(3);
    for n in 1..=3 {
        let secret = || CookieSecret::new(1, [0; 32]);
        let told = |id: u32| (format!("s{id}"), Told { id, spec: Spec::default(), secret: secret() });
        let spaces = (1..=100).map(told).collect();
        let (records, nodes, numbers) = Default::default();
        let declared = Declared { version: 2, level: COMPARE_LEVEL, spaces, records, unread: 0, nodes, numbers };
        world.give(n, Input::Declared(declared));
    }
    world.pass(13_000);
    let sent = world.bytes_of(5_000) / 3 / 5;
    assert!(sent < 10 << 10, "{sent} bytes a second and node");
    let set = Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never };
    world.give(1, Input::Ask { id: AskId(900), budget: BUDGET, op: Op::of(Arc::from("s57"), set) });
    world.wake();
    world.air.clear();
    world.pass(3_000);
    let has = |n: u64| world.nodes[&n].spaces[&57].space.keys() == 1;
    assert!(has(2) && has(3));
}
