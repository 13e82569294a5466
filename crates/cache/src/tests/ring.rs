//! Entries on the disk end as those in memory do, and are never other ones.

use super::*;

/// Memory for a few of 1,000 bytes each, and a disk for some hundred.
fn small() -> Spec {
    Spec { size_max: 40_000, disk_max: 200_000, ..Spec::default() }
}

fn long(text: &str) -> String {
    format!("{text}{}", ".".repeat(1000))
}

/// Sets k0, k1 and so on: the first ones are on the disk then.
fn fill(bench: &mut Bench, n: usize) {
    for n in 0..n {
        bench.set(1, &format!("k{n}"), &long(&n.to_string()), &[if n % 2 == 0 { "even" } else { "odd" }]);
    }
}

fn there(bench: &mut Bench, n: usize) -> Vec<usize> {
    (0..n)
        .filter(|n| bench.get(1, &format!("k{n}")).map(|got| assert_eq!(got, long(&n.to_string()))).is_some())
        .collect()
}

#[test]
fn what_memory_has_no_room_for_is_on_the_disk_until_that_is_full() {
    let mut bench = Bench::of(1, small());
    fill(&mut bench, 100);
    assert!(bench.figure(1, "cache.bytes") <= 40_000 && bench.figure(1, "cache.disk_bytes") > 12_000);
    // Knowing of them takes memory, too: no more than a quarter of what entries have.
    let left = there(&mut bench, 100);
    let most = bench.figure(1, "cache.entries");
    assert!(left.len() as u64 == most && most > 35 && left.contains(&99), "{left:?} of {most}");
    assert!(bench.figure(1, "cache.disk_hits") > 10);
    fill(&mut bench, 400);
    assert!(bench.figure(1, "cache.disk_bytes") <= 200_000 && bench.disks.len() <= 17, "{}", bench.disks.len());
    // Twice the same: reads do not change what is there.
    assert_eq!(there(&mut bench, 400).len() as u64, bench.figure(1, "cache.entries"));
    // A new life has nothing, and the disk is empty.
    bench.kill(1);
    bench.start(1);
    assert!(bench.disks.is_empty());
    bench.pass(Span::secs(4));
    assert_eq!(there(&mut bench, 400), [0usize; 0]);
    fill(&mut bench, 100);
    assert!(bench.figure(1, "cache.disk_entries") > 10);
}

#[test]
fn writes_removals_ends_and_purges_are_about_the_disk_too() {
    let mut bench = Bench::of(1, small());
    fill(&mut bench, 50);
    let on_disk = |bench: &Bench| bench.figure(1, "cache.disk_entries");
    let all = bench.figure(1, "cache.entries");
    assert!(on_disk(&bench) > 10);
    bench.set(1, "k0", "new", &[]);
    assert_eq!(bench.get(1, "k0").as_deref(), Some("new"));
    let left = there_from(&mut bench, 1, 50);
    assert_eq!(bench.figure(1, "cache.entries"), all.max(left.len() as u64 + 1));
    let gone = left[0];
    assert_eq!(bench.ask(1, &format!("k{gone}"), Act::Remove), Outcome::Done(Reply::Changed(true)));
    assert_eq!(bench.get(1, &format!("k{gone}")), None);
    let ends = left[1];
    let act = Act::End(Some(Span::millis(200)));
    assert_eq!(bench.ask(1, &format!("k{ends}"), act), Outcome::Done(Reply::Changed(true)));
    assert!(bench.get(1, &format!("k{ends}")).is_some());
    bench.pass(Span::millis(300));
    assert_eq!(bench.get(1, &format!("k{ends}")), None);
    bench.purge(1, What::Tag(Bytes::from_static(b"even")));
    assert!(there_from(&mut bench, 1, 50).iter().all(|n| n % 2 == 1));
    bench.purge(1, What::Prefix(Bytes::from_static(b"k1")));
    assert!(there_from(&mut bench, 1, 50).iter().all(|n| *n != 1 && !(10..20).contains(n)));
    bench.purge(1, What::All);
    assert_eq!((there_from(&mut bench, 0, 50), on_disk(&bench), bench.disks.len()), (vec![], 0, 0));
}

fn there_from(bench: &mut Bench, from: usize, to: usize) -> Vec<usize> {
    (from..to).filter(|n| bench.get(1, &format!("k{n}")).is_some()).collect()
}

#[test]
fn a_purge_while_the_disk_is_read_holds_and_a_slow_disk_is_a_miss() {
    let mut bench = Bench::of(1, small());
    fill(&mut bench, 60);
    let reads = bench.reads;
    let first = (0..60).find(|n| bench.get(1, &format!("k{n}")).is_some() && bench.reads > reads).unwrap();
    let key = format!("k{first}");
    bench.are_disks_slow = true;
    let asked = bench.begin(1, &key, Act::Get);
    assert!(!bench.answers.contains_key(&asked), "it waits for the disk");
    bench.purge(1, What::Key(Bytes::from(key.clone())));
    bench.are_disks_slow = false;
    bench.deliver();
    assert_eq!(bench.answers.remove(&asked), Some(Outcome::Done(Reply::Absent)));
    // Another one: nothing is purged, and nothing comes of it.
    bench.are_disks_slow = true;
    let late = (first + 1..60).find(|n| bench.get(1, &format!("k{n}")).is_none());
    assert!(late.is_some() && bench.figure(1, "cache.disk_late") > 0, "{late:?}");
    bench.are_disks_slow = false;
    bench.deliver();
    assert!(bench.get(1, &format!("k{}", late.unwrap())).is_some(), "it is there still");
}

#[test]
fn damaged_bytes_are_a_miss() {
    let mut bench = Bench::of(1, small());
    fill(&mut bench, 60);
    bench.rots = Some(2);
    let all = there(&mut bench, 60);
    assert!(bench.figure(1, "cache.damaged") > 5 && all.len() < 60);
    bench.rots = None;
    assert_eq!(there(&mut bench, 60), all, "what was damaged is gone");
}

#[test]
fn a_node_that_joins_gets_what_the_former_owner_has_on_its_disk() {
    let mut bench = Bench::of(2, small());
    bench.kill(2);
    bench.pass(Span::secs(3));
    bench.voters = 1;
    bench.give(1, Input::Voters([NodeId(1)].into()));
    bench.pass(Span::secs(3));
    fill(&mut bench, 50);
    let before = bench.figure(1, "cache.entries");
    bench.start(2);
    bench.pass(Span::secs(4));
    assert!(there(&mut bench, 50).len() as u64 >= before - 5);
    assert!(bench.figure(2, "cache.taken") > 15);
}
