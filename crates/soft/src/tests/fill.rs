//! Who has nothing gets all: from several at once, at a price for each entry that does not grow, whatever happens
//! meanwhile.

use super::*;
use crate::machine::kind;

/// What a transfer took.
#[derive(Default, Debug)]
struct Took {
    bytes: usize,
    turns: usize,
    /// Most ranges of what was seen here.
    ranges: usize,
    /// Pages, by who sent them.
    pages: BTreeMap<u64, usize>,
}

impl World {
    /// Nodes with so many entries, which nobody remembers the making of.
    fn full(nodes: u64, entries: usize, value: &str, of: impl Fn(usize) -> u64) -> Self {
        let mut world = Self::of(nodes, Spec { checkpoint_ms: 0, size_max: 1 << 30, ..Spec::default() });
        for n in 0..entries {
            let pairs = vec![(bytes(&format!("k{n}")), bytes(value))];
            world.ask(of(n), Action::Set { pairs, end: End::Never });
            if n % 500 == 0 {
                world.settle();
            }
        }
        for _ in 0..100 {
            world.pass(300);
            if (1..=nodes).all(|n| world.space(n).index.is_empty()) {
                break;
            }
        }
        world.answers.clear();
        assert!((1..=nodes).all(|n| world.space(n).index.is_empty()), "nobody remembers");
        world
    }

    /// The last one comes again with nothing; `does` in each turn of the world, until it has all.
    fn fill(&mut self, n: u64, mut does: impl FnMut(&mut Self, usize)) -> Took {
        let mut took = Took::default();
        self.dies(n);
        self.disks.remove(&n);
        self.born(n, 2);
        for nth in 0..20_000 {
            self.advance(1);
            self.wake();
            does(self, nth);
            let air = std::mem::take(&mut self.air);
            took.bytes += air.iter().filter(|(_, to, _)| *to == n).map(|(.., frame)| frame.wire_len()).sum::<usize>();
            for (from, to, frame) in air {
                if to == n && frame.kind == kind::PAGE {
                    *took.pages.entry(from).or_default() += 1;
                }
                took.turns += usize::from(to == n);
                self.arrives((from, to, frame));
            }
            took.ranges = took.ranges.max(self.space(n).context.ranges().count());
            if self.figure(n, "soft.transfers") > 0 && self.nodes[&n].spaces[&7].is_settled() {
                return took;
            }
        }
        panic!("it never has all: {took:?}");
    }
}

/// Updates, now and then one that removes.
fn write(world: &mut World, by: u64, nth: usize, keys: usize) {
    let key = bytes(&format!("k{}", nth * 7_919 % keys));
    world.ask(
        by,
        match nth % 3 {
            0 => Action::Remove { keys: vec![key] },
            _ => Action::Set { pairs: vec![(key, bytes(&nth.to_string()))], end: End::Never },
        },
    );
}

#[test]
fn what_an_entry_costs_a_new_node_does_not_grow_with_their_number() {
    let of = |entries: usize| {
        let mut world = World::full(3, entries, &"v".repeat(100), |n| n as u64 % 2 + 1);
        let took = world.fill(3, |world, nth| write(world, nth as u64 % 2 + 1, nth, entries));
        world.pass(2_000);
        world.check();
        world.are_equal();
        took
    };
    let (few, many) = (of(4_000), of(32_000));
    assert!(few.ranges.max(many.ranges) < 600, "what is seen stays short: {} and {}", few.ranges, many.ranges);
    let each = |took: &Took, entries: usize| took.bytes / entries;
    assert!(each(&many, 32_000) <= each(&few, 4_000) * 11 / 10, "{few:?} {many:?}");
    assert!(each(&many, 32_000) < 250, "{many:?}");
    assert!(many.turns < few.turns * 10, "{few:?} {many:?}");
}

#[test]
fn several_give_what_one_lacks_and_each_gives_it_once() {
    let mut world = World::full(4, 400, &"v".repeat(30_000), |n| n as u64 % 4 + 1);
    let took = world.fill(4, |_, _| ());
    world.check();
    world.are_equal();
    assert_eq!(took.pages.len(), 3, "all others are asked: {took:?}");
    assert!(took.pages.values().all(|pages| *pages >= 5), "{took:?}");
    let whole = 400 * 30_000;
    assert!((whole..whole * 11 / 10).contains(&took.bytes), "{took:?}");
    assert_eq!(world.figure(4, "soft.differed"), 0);
}

#[test]
fn who_was_asked_and_dies_is_replaced_and_nothing_comes_again() {
    let mut world = World::full(3, 400, &"v".repeat(30_000), |n| n as u64 % 2 + 1);
    let took = world.fill(3, |world, nth| {
        if nth == 16 {
            assert!(world.space(3).keys() > 20, "it is under way");
            world.dies(1);
        }
    });
    world.pass(2_000);
    world.check();
    world.are_equal();
    assert_eq!(world.figure(3, "soft.transfers"), 1);
    assert_eq!(world.space(3).keys(), 400);
    assert!(took.bytes < 400 * 30_000 * 12 / 10, "{took:?}");
}

#[test]
fn what_is_removed_meanwhile_stays_removed_whoever_gives_and_dies() {
    for salt in 0..12 {
        let mut world = World::full(3, 120, &"v".repeat(60_000), |n| n as u64 % 2 + 1);
        let mut rng = Rng::new(salt);
        let dies = rng.below(20) as usize;
        world.fill(3, |world, nth| {
            for by in [1, 2] {
                if nth % 2 == 0 && world.nodes.contains_key(&by) {
                    write(world, by, rng.below(1_000) as usize, 120);
                }
            }
            // Updates come to the new one by nothing but pages, and to the other half of the time.
            let lost = [kind::PUSH, kind::RELAY, kind::CELLS];
            world.wake();
            world.air.retain(|(_, to, f)| !lost.contains(&f.kind) || *to != 3 && nth % 4 < 2);
            if nth == dies {
                world.dies(1);
            }
        });
        world.answers.clear();
        world.air.clear();
        if world.nodes.contains_key(&1) {
            world.dies(1);
        }
        world.pass(4_000);
        world.check();
        world.are_equal();
        assert_eq!((world.figure(2, "soft.mended"), world.figure(3, "soft.mended")), (0, 0), "{salt}");
    }
}

/// Who asks waits for what is left of a page: so they are short then.
#[test]
fn pages_are_short_while_clients_ask() {
    let pages = |asks: bool| {
        let mut world = World::full(3, 8_000, &"v".repeat(100), |n| n as u64 % 2 + 1);
        let read = |n: usize| Action::Read { kind: Kind::Register, at: vec![(bytes(&format!("k{n}")), Bytes::new())] };
        let took = world.fill(3, |world, nth| {
            for by in 1..=2 {
                if asks {
                    world.ask(by, read(nth % 8_000));
                }
            }
        });
        world.check();
        world.are_equal();
        (took.pages.values().sum::<usize>(), took.bytes)
    };
    let ((short, much), (long, little)) = (pages(true), pages(false));
    assert!(short > 3 * long && long > 10, "{short} and {long} pages");
    assert!(much < little * 21 / 20, "{much} and {little} bytes");
}

/// All that could tell have gone: what has come is told to others by who has it.
#[test]
fn who_was_left_with_half_of_it_gives_that_to_others() {
    let mut world = World::full(2, 400, &"v".repeat(30_000), |_| 1);
    world.dies(2);
    world.born(2, 2);
    for _ in 0..20 {
        world.advance(1);
        world.wake();
        let air = std::mem::take(&mut world.air);
        air.into_iter().for_each(|one| world.arrives(one));
    }
    world.dies(1);
    let half = world.space(2).keys();
    assert!((20..380).contains(&half), "{half}");
    world.air.clear();
    world.pass(12_000);
    world.born(3, 1);
    world.pass(12_000);
    world.check();
    world.are_equal();
    assert_eq!(world.space(3).keys(), half);
}

/// To be looked at from outside: `time cargo test -p soft --lib many_entries -- --ignored --nocapture`, and by `perf`.
#[test]
#[ignore = "takes a while"]
fn many_entries() {
    const ENTRIES: usize = 200_000;
    let mut world = World::full(3, ENTRIES, &"v".repeat(100), |n| n as u64 % 2 + 1);
    let took = world.fill(3, |world, nth| {
        for n in 0..5 {
            write(world, n % 2 + 1, 5 * nth + n as usize, ENTRIES);
        }
    });
    println!("{ENTRIES}: {took:?}");
}
