//! Walks by cursors that are numbers: what is there from the beginning to the end is shown at least once, though each
//! page comes from another replica, one that was started again among them, and other keys come and go.

use std::collections::BTreeSet;

use base::Rng;
use class::Bounds;

use super::*;
use crate::apart::Apart;
use crate::limits::{WALK_GROWS, WALK_PAGES_MAX};
use crate::machine::Asker;
use crate::order::place_of;
use crate::split::Split;

/// The next cursor, and the rest of a page.
fn page(reply: Reply) -> (u64, Vec<Reply>) {
    let Reply::List(mut page) = reply else { panic!("{reply:?}") };
    let rest = page.split_off(1);
    let Reply::Int(next) = page[0] else { panic!("{page:?}") };
    (next as u64, rest)
}

fn read(space: &Space, key: &str, function: &'static str, args: &[&str]) -> (u64, Vec<Reply>) {
    match space.read(&[], &[step(key, function, args)]) {
        Ran::Done(mut replies) => page(replies.remove(0)),
        Ran::Unmet => panic!("there was no condition"),
    }
}

fn names(items: &[Reply], width: usize) -> impl Iterator<Item = String> {
    items.chunks_exact(width).map(|item| match &item[0] {
        Reply::Bytes(name) => String::from_utf8(name.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    })
}

fn restarted(space: &Space) -> Space {
    Space::from_parts(space.parts().0.collect()).unwrap()
}

fn filled(keys: usize) -> Space {
    let mut space = Space::default();
    for n in 0..keys {
        space.step(&step(&format!("key:{n:06}"), "put", &["v", "always", "none"]), Bounds::default()).unwrap();
    }
    space
}

#[test]
fn every_page_may_come_from_another_replica_and_what_stays_is_shown() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut replicas: Vec<Space> = (0..3).map(|_| Space::default()).collect();
        let mut seq = 0;
        let mut write = |replicas: &mut [Space], clock, key: &str, function, args: &[&str]| {
            seq += 1;
            replicas.iter_mut().for_each(|space| drop(run(space, clock, seq, step(key, function, args))));
        };
        for n in 0..1_500 {
            write(&mut replicas, 1, &format!("stays:{n}"), "put", &["v", "always", "none"]);
        }
        let (mut cursor, mut pages, mut shown) = (0, 0, BTreeSet::new());
        loop {
            pages += 1;
            assert!(pages < 2_000, "seed {seed}: it comes to no end");
            let at = rng.below(3) as usize;
            if rng.chance(0.05) {
                replicas[at] = restarted(&replicas[at]);
            }
            let (next, items) = read(&replicas[at], "", "walk", &[&cursor.to_string(), "10", ""]);
            shown.extend(names(&items, 2));
            cursor = next;
            if cursor == 0 {
                break;
            }
            for _ in 0..5 {
                let name = format!("other:{}", rng.below(400));
                match rng.below(3) {
                    0 => write(&mut replicas, pages, &name, "remove", &[]),
                    1 => write(&mut replicas, pages, &name, "put", &["v", "always", "3"]),
                    _ => write(&mut replicas, pages, &name, "set.add", &["m"]),
                }
            }
        }
        let lost: Vec<_> = (0..1_500).map(|n| format!("stays:{n}")).filter(|key| !shown.contains(key)).collect();
        assert!(lost.is_empty(), "seed {seed}: {} of them are not shown: {lost:?}", lost.len());
    }
}

#[test]
fn an_order_that_is_not_made_yet_costs_a_page_only_so_much_and_a_draft_has_it_at_once() {
    let keys = 2 * WALK_GROWS + 100;
    let space = filled(keys);
    assert_eq!(read(&space, "", "walk", &["0", "10", ""]), (1, Vec::new()));
    let draft = space.draft(0);
    let (next, items) = read(&draft, "", "walk", &["0", "10", ""]);
    assert!(next > 1 && items.len() == 20, "a script asks once");
    assert_eq!(read(&space, "", "walk", &["1", "10", ""]), (1, Vec::new()));
    assert_eq!(read(&space, "", "walk", &["1", "10", ""]), (next, items), "the third has all");
    // Keys of one beginning come in few pages, though few have it.
    let (mut cursor, mut pages, mut found) = (0, 0, Vec::new());
    loop {
        let (next, items) = read(&space, "", "walk", &[&cursor.to_string(), "10", "key:00000"]);
        found.extend(names(&items, 2));
        (cursor, pages) = (next, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    found.sort();
    assert_eq!((found.len(), pages), (10, 3));
    assert_eq!(read(&space, "", "walk", &[&i64::MAX.to_string(), "10", ""]), (0, Vec::new()), "behind all");
}

#[test]
fn an_order_that_nobody_uses_is_forgotten_and_cursors_stay_good() {
    let mut space = filled(WALK_GROWS + 50);
    while read(&space, "", "walk", &["1", "1", ""]).0 == 1 {}
    let (cursor, _) = read(&space, "", "walk", &["0", "10", ""]);
    let second = read(&space, "", "walk", &[&cursor.to_string(), "10", ""]);
    run(&mut space, crate::limits::WALK_KEPT_MS + 5, 1, step("l", "list.length", &[]));
    let again = read(&space, "", "walk", &[&cursor.to_string(), "10", ""]);
    assert_eq!(again, (cursor, Vec::new()), "it is made anew");
    assert_eq!(read(&space, "", "walk", &[&cursor.to_string(), "10", ""]), second);
}

/// Each page is asked of all shards there are then: of one, of the two that it is split into.
#[test]
fn shards_are_walked_through_as_one_and_may_be_split_meanwhile() {
    let mut space = filled(900);
    let mut halves: Vec<Space> = Vec::new();
    let (mut cursor, mut shown, mut pages) = (0_u64, BTreeSet::new(), 0);
    loop {
        if pages == 10 {
            let split = Some(Split { at: 1 << 63, child: GroupId(9), after: 0 });
            let data = wire::encode_batch(&Batch { split, ..Batch::default() });
            assert_eq!(space.apply(1, data.into(), &mut Vec::new()), raft::Applied::Yes);
            halves.push(space.take_born().unwrap().1);
        }
        let asks = step("", "walk", &[&cursor.to_string(), "10", ""]);
        let shards: Vec<&Space> = std::iter::once(&space).chain(&halves).collect();
        let parts = (0..shards.len()).map(|n| ((n as u64, n as u64), vec![0])).collect();
        let mut apart = Apart::new(Asker::Probe(1), vec![asks.clone()], parts);
        let mut ends = shards.iter().enumerate().filter_map(|(nth, shard)| {
            apart.ended(nth, base::Outcome::Done(shard.read(&[], std::slice::from_ref(&asks))))
        });
        let Some(base::Outcome::Done(Ran::Done(mut replies))) = ends.next() else { panic!("it has not ended") };
        let (next, items) = page(replies.remove(0));
        let places: Vec<u64> = names(&items, 2).map(|name| place_of(name.as_bytes())).collect();
        assert!(places.is_sorted() && places.iter().all(|place| *place >= cursor && (next == 0 || *place < next)));
        shown.extend(names(&items, 2));
        (cursor, pages) = (next, pages + 1);
        assert!(pages < 200);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(shown.len(), 900);
}

#[test]
fn items_of_a_collection_are_shown_at_least_once_whoever_answers() {
    for (add, width, function) in
        [("set.add", 1, "set.walk"), ("hash.set", 2, "hash.walk"), ("sorted.add", 2, "sorted.walk")]
    {
        let args = |from: usize, to: usize| -> Vec<String> {
            let item = |n: usize| match add {
                "set.add" => vec![format!("m{n}")],
                "hash.set" => vec![format!("m{n}"), "v".into()],
                _ => vec![n.to_string(), format!("m{n}")],
            };
            let head = if add == "sorted.add" { vec!["any".to_owned(), "any".to_owned()] } else { Vec::new() };
            head.into_iter().chain((from..to).flat_map(item)).collect()
        };
        let given = |from, to| -> Step {
            let args = args(from, to);
            step("c", add, &args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut space = Space::default();
        run(&mut space, 1, 1, given(0, 500));
        let (mut cursor, mut pages, mut shown) = (0_u64, 0, BTreeSet::new());
        loop {
            space = restarted(&space);
            let (next, items) = read(&space, "c", function, &[&cursor.to_string(), "7"]);
            assert!(items.len() <= 16 * width, "{function}: a page of {}", items.len());
            shown.extend(names(&items, width));
            (cursor, pages) = (next, pages + 1);
            if cursor == 0 {
                break;
            }
            // Others come, before and behind.
            run(&mut space, 1, 1 + pages, given(1_000 + 3 * pages as usize, 1_003 + 3 * pages as usize));
        }
        assert!((0..500).all(|n| shown.contains(&format!("m{n}"))), "{function}");
        // A large one is not looked at more often for it.
        run(&mut space, 1, 900, given(2_000, 42_000));
        let (mut cursor, mut pages) = (0_u64, 0);
        while pages == 0 || cursor != 0 {
            (cursor, pages) = (read(&space, "c", function, &[&cursor.to_string(), "10"]).0, pages + 1);
        }
        assert!((2..=WALK_PAGES_MAX + 1).contains(&pages), "{function}: {pages} pages");
        assert_eq!(read(&space, "none", function, &["0", "10"]), (0, Vec::new()));
    }
}

#[test]
fn pages_of_a_collection_that_stays_as_it_is_look_at_what_they_show() {
    let mut space = Space::default();
    let members = |from: usize, to: usize| -> Step {
        let names: Vec<String> = (from..to).map(|n| format!("m{n}")).collect();
        step("c", "set.add", &names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    run(&mut space, 1, 1, members(0, 5_000));
    let key = Bytes::from_static(b"c");
    // Who is asked for the order of other names has it not made again.
    let again = |space: &Space| space.placed(&key, std::iter::empty()).len();
    let (cursor, _) = read(&space, "c", "set.walk", &["0", "10"]);
    assert_eq!(again(&space), 5_000);
    let (_, items) = read(&space, "c", "set.walk", &[&cursor.to_string(), "10"]);
    assert_eq!((items.len(), again(&space)), (5_000usize.div_ceil(WALK_PAGES_MAX), 5_000));
    // A change of another key leaves it, one of this key does not.
    run(&mut space, 1, 2, step("other", "set.add", &["m"]));
    assert_eq!(again(&space), 5_000);
    run(&mut space, 1, 3, step("c", "set.remove", &["m7"]));
    let mut shown = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let (next, items) = read(&space, "c", "set.walk", &[&cursor.to_string(), "10"]);
        shown.extend(names(&items, 1));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(shown.len() == 4_999 && !shown.contains("m7"), "{}", shown.len());
    // Another value under the same name is another one.
    run(&mut space, 1, 4, step("c", "remove", &[]));
    run(&mut space, 1, 5, members(9_000, 9_300));
    let (_, items) = read(&space, "c", "set.walk", &["0", "1000"]);
    assert_eq!(names(&items, 1).count(), 300);
    // It is forgotten with the order of keys.
    run(&mut space, crate::limits::WALK_KEPT_MS + 5, 6, step("l", "list.length", &[]));
    assert_eq!(again(&space), 0);
}
