//! Who was away until nobody remembered what it lacks: whole states are compared, what differs is sent, and nothing is lost on either side.

use super::*;
use crate::machine::kind;

/// Longer than anybody who is dead is waited for.
const AWAY_MS: u64 = 600_000;

impl World {
    /// What is done to a node while nobody answers it.
    fn alone(&mut self, n: u64, action: Action) {
        let id = self.ask(n, action);
        assert!(matches!(self.answers.remove(&id), Some(Outcome::Done(_))), "it is alone");
    }

    fn set_alone(&mut self, n: u64, key: &str, value: &str) {
        self.alone(n, Action::Set { pairs: vec![(bytes(key), bytes(value))], end: End::Never });
    }

    /// Both forget how they came to what they have.
    fn forget(&mut self) {
        self.advance(AWAY_MS);
        self.pass(3_000);
    }

    /// As [`World::pass`]; the bytes that were sent, of all frames.
    pub(super) fn bytes_of(&mut self, ms: u64) -> usize {
        let mut sent = 0;
        for _ in 0..ms / 10 {
            self.advance(10);
            self.wake();
            while !self.air.is_empty() {
                let air = std::mem::take(&mut self.air);
                sent += air.iter().map(|(.., frame)| frame.wire_len()).sum::<usize>();
                air.into_iter().for_each(|one| self.arrives(one));
                self.wake();
            }
        }
        sent
    }
}

#[test]
fn who_was_away_past_collection_gets_what_differs_and_gives_what_others_lack() {
    const KEYS: u64 = 10_000;
    let spec = Spec { checkpoint_ms: 0, ..Spec::default() };
    let mut world = World::of(2, spec.clone());
    let value = "v".repeat(100);
    for n in 0..KEYS {
        world.ask(1, Action::Set { pairs: vec![(bytes(&format!("k{n}")), bytes(&value))], end: End::Never });
        if n % 500 == 0 {
            world.settle();
        }
    }
    world.ask(1, Action::Add { kind: Kind::Register, key: bytes("n"), element: Bytes::new(), by: 5 });
    world.settle();
    world.answers.clear();
    world.cut_off(2, true);
    let changed = KEYS / 100;
    (0..changed).for_each(|n| world.set_alone(1, &format!("k{}", n * 37), "new"));
    (0..50).for_each(|n| world.alone(1, Action::Remove { keys: vec![bytes(&format!("k{}", 3 + n * 111))] }));
    world.set_alone(2, "k1", "theirs");
    world.set_alone(2, "only here", "v");
    world.alone(2, Action::Remove { keys: vec![bytes("k2")] });
    for n in [1, 2] {
        world.alone(n, Action::Add { kind: Kind::Register, key: bytes("n"), element: Bytes::new(), by: 10 });
    }
    world.forget();
    assert!((1..=2).all(|n| world.space(n).index.is_empty()), "nobody remembers");
    world.heal();
    let sent = world.bytes_of(3_000);
    world.check();
    world.are_equal();
    for (key, value) in
        [("k1", Some("theirs")), ("only here", Some("v")), ("k2", None), ("k37", Some("new")), ("k3", None)]
    {
        assert_eq!(world.get(1, key).as_deref(), value, "{key}");
    }
    assert_eq!(world.get(2, "n").as_deref(), Some("25"));
    assert_eq!((world.figure(1, "soft.transfers"), world.figure(2, "soft.transfers")), (1, 1), "each lacked something");
    // Beside it: the same for one that has nothing.
    let mut all = World::of(1, spec);
    std::mem::swap(all.nodes.get_mut(&1).unwrap(), world.nodes.get_mut(&1).unwrap());
    all.now = world.now;
    all.give(1, Input::Death { peer: NodeId(2) });
    all.forget();
    all.born(2, 9);
    let whole = all.bytes_of(5_000);
    all.are_equal();
    assert_eq!(all.figure(2, "soft.differed"), 0);
    assert!(whole > KEYS as usize * 120, "{whole} for everything");
    // Both sides compare: each of these is a transfer of what differs.
    assert!(sent < whole / 20, "{sent} of {whole} bytes for 1 % on each side");
}

#[test]
fn who_is_of_an_older_level_gets_pages() {
    let mut world = World::of(2, Spec { checkpoint_ms: 0, ..Spec::default() });
    (1..=2).for_each(|n| world.declare(n, STALE_LEVEL));
    world.set(1, "k", "v", End::Never);
    world.cut_off(2, true);
    world.set_alone(1, "k", "new");
    world.set_alone(2, "other", "v");
    world.forget();
    world.heal();
    world.pass(2_000);
    let told = |n| (world.figure(n, "soft.transfers"), world.figure(n, "soft.differed"));
    assert_eq!((told(1), told(2)), ((1, 0), (1, 0)), "of what differs nothing is asked");
    world.are_equal();
    assert_eq!((world.get(2, "k").as_deref(), world.get(1, "other").as_deref()), (Some("new"), Some("v")));
}

#[test]
fn what_is_written_and_removed_while_it_is_compared_is_as_it_is_everywhere() {
    for salt in 0..8 {
        let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
        (1..=3).for_each(|n| world.nodes.get_mut(&n).unwrap().stretch_cells = 8);
        (0..60).for_each(|n| world.set(1, &format!("k{n}"), "v", End::Never));
        world.cut_off(3, true);
        (0..6).for_each(|n| world.set(1, &format!("k{}", n * 9), "new", End::Never));
        world.set_alone(3, "k59", "theirs");
        world.forget();
        world.heal();
        let mut rng = Rng::new(salt);
        for n in 0..40 {
            // What 1 does to what it is just asked for comes to 3 by nothing else; then it is gone.
            world.advance(3);
            world.wake();
            let action = match rng.below(3) {
                0 => Action::Remove { keys: vec![bytes(&format!("k{}", rng.below(60)))] },
                1 => Action::Set {
                    pairs: vec![(bytes(&format!("k{}", rng.below(60))), bytes(&n.to_string()))],
                    end: End::Never,
                },
                _ => {
                    Action::Add { kind: Kind::Field, key: bytes("h"), element: bytes(&rng.below(3).to_string()), by: 1 }
                }
            };
            world.ask(1, action);
            world.wake();
            let pushes = [kind::PUSH, kind::RELAY, kind::CELLS];
            world.air.retain(|(_, to, frame)| !pushes.contains(&frame.kind) || *to == 2 && n % 2 == 0);
            let air = std::mem::take(&mut world.air);
            air.into_iter().for_each(|one| world.arrives(one));
        }
        world.answers.clear();
        world.air.clear();
        world.dies(1);
        world.pass(4_000);
        world.check();
        world.are_equal();
        assert_eq!(world.get(2, "k59").as_deref().map(|_| ()), world.get(3, "k59").as_deref().map(|_| ()));
    }
}

/// What is the same on both sides may be so by an update that only the peer knows. Who had what it did and not the update itself would
/// differ for good from one that heard of neither, if the peer died.
#[test]
fn a_removal_during_a_comparison_is_told_where_nothing_differs() {
    let mut world = World::of(3, Spec { checkpoint_ms: 0, ..Spec::default() });
    (1..=3).for_each(|n| world.nodes.get_mut(&n).unwrap().stretch_cells = 8);
    (0..60).for_each(|n| world.set(1, &format!("k{n}"), "v", End::Never));
    world.cut_off(3, true);
    // In one of the last stretches, so that it is compared long after the transfer has begun.
    let at = |n: u32| Address::first(bytes(&format!("new{n}")));
    let last = (0..200).max_by_key(|n| at(*n)).unwrap();
    let key = format!("new{last}");
    world.set(1, &key, "v", End::Never);
    world.forget();
    world.heal();
    world.cut.extend([(2, 3), (3, 2)]);
    let mut removed = false;
    for _ in 0..400 {
        world.advance(3);
        world.wake();
        let has_begun =
            |node: &Soft| node.spaces[&7].transfer.as_ref().is_some_and(|transfer| transfer.start.is_some());
        if !removed && has_begun(&world.nodes[&3]) {
            removed = true;
            world.ask(1, Action::Remove { keys: vec![bytes(&key)] });
            world.wake();
        }
        // The update comes to others by nothing but the comparison.
        world.air.retain(|(from, _, frame)| {
            let lost = [kind::PUSH, kind::RELAY, kind::CELLS, kind::HAVE];
            !removed || *from != 1 || !lost.contains(&frame.kind)
        });
        let air = std::mem::take(&mut world.air);
        air.into_iter().for_each(|one| world.arrives(one));
    }
    assert!(removed && world.figure(3, "soft.transfers") == 1);
    world.answers.clear();
    world.air.clear();
    world.dies(1);
    world.cut.clear();
    world.pass(4_000);
    world.check();
    world.are_equal();
    assert_eq!((world.get(2, &key), world.get(3, &key)), (None, None), "3 knows why it is not there, and says so");
    assert_eq!((world.figure(2, "soft.mended"), world.figure(3, "soft.mended")), (0, 0));
}

#[derive(Clone, Debug)]
enum Does {
    Set(u8),
    Remove(u8),
    Count(u8, i64),
    Add(u8),
    Take(u8),
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        (0..40u8).prop_map(Does::Set),
        (0..40u8).prop_map(Does::Remove),
        (0..8u8, -5..9i64).prop_map(|(key, by)| Does::Count(key, by)),
        (0..40u8).prop_map(Does::Add),
        (0..40u8).prop_map(Does::Take),
    ]
}

impl Does {
    fn action(&self, salt: usize) -> Action {
        let member = |n: u8| (bytes("set"), bytes(&n.to_string()));
        match *self {
            Does::Set(key) => {
                Action::Set { pairs: vec![(bytes(&format!("k{key}")), bytes(&salt.to_string()))], end: End::Never }
            }
            Does::Remove(key) => Action::Remove { keys: vec![bytes(&format!("k{key}"))] },
            Does::Count(key, by) => {
                Action::Add { kind: Kind::Field, key: bytes("map"), element: bytes(&key.to_string()), by }
            }
            Does::Add(n) => Action::Put { kind: Kind::Member, key: member(n).0, pairs: vec![(member(n).1, None)] },
            Does::Take(n) => Action::Take { kind: Kind::Member, key: member(n).0, elements: vec![member(n).1] },
        }
    }
}

/// What readers see of each cell.
fn seen(world: &World, n: u64) -> BTreeMap<Address, Option<Bytes>> {
    let there = world.space(n).cells.iter().filter(|(_, cell)| cell.is_there());
    there.map(|(at, cell)| (at.clone(), crate::run::value(cell))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever both sides did, and whatever is lost on its way: it is what it would be if they had told each other at once.
    #[test]
    fn a_comparison_comes_to_what_repair_would_have_come_to(
        before in prop::collection::vec(does(), 0..80),
        mine in prop::collection::vec(does(), 0..40),
        theirs in prop::collection::vec(does(), 0..40),
        meanwhile in prop::collection::vec(does(), 0..10),
        (stretch, salt, loss) in (1..30usize, any::<u64>(), 0..6u64),
    ) {
        let run = |forgets: bool| {
            let mut world = World::of(2, Spec { checkpoint_ms: 0, copies: 1, ..Spec::default() });
            world.nodes.values_mut().for_each(|node| node.stretch_cells = stretch);
            before.iter().enumerate().for_each(|(nth, does)| _ = world.ask(1, does.action(nth)));
            world.settle();
            world.cut_off(2, true);
            for (n, all) in [(1, &mine), (2, &theirs)] {
                for (nth, does) in all.iter().enumerate() {
                    world.advance(1);
                    world.ask(n, does.action(1_000 * n as usize + nth));
                }
            }
            match forgets {
                true => world.forget(),
                false => world.pass(100),
            }
            world.heal();
            let mut rng = Rng::new(salt);
            for (nth, does) in meanwhile.iter().enumerate() {
                world.ask(1, does.action(5_000 + nth));
                for _ in 0..10 {
                    world.advance(10);
                    world.wake();
                    let mut air = std::mem::take(&mut world.air);
                    rng.shuffle(&mut air);
                    air.into_iter().filter(|_| rng.below(10) >= loss).for_each(|one| world.arrives(one));
                }
            }
            world.pass(3_000);
            world.check();
            world.are_equal();
            world
        };
        let (compared, repaired) = (run(true), run(false));
        let lacked = mine.len() + theirs.len() > 0 && compared.figure(1, "soft.transfers") + compared.figure(2, "soft.transfers") > 0;
        prop_assert!(lacked || compared.figure(2, "soft.transfers") == 0);
        // Whose counter was not seen by whom is the same in both, as nobody heard of the other before.
        prop_assume!(meanwhile.is_empty());
        prop_assert_eq!(seen(&compared, 1), seen(&repaired, 2));
    }
}
