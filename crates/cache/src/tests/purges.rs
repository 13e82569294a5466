//! No request that begins after a purge was acknowledged gets what was stored before it.

use base::Rng;

use super::*;

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn keys_prefixes_and_tags_are_purged_at_all_nodes_at_once() {
    let mut bench = Bench::new(3);
    for n in 0..20 {
        bench.set(1, &format!("page/{n}"), "v", if n % 2 == 0 { &["even", "all"] } else { &["all"] });
        bench.set(2, &format!("pic/{n}"), "v", &[]);
    }
    let there = |bench: &mut Bench, prefix: &str| {
        (0..20).filter(|n| bench.get(1 + n % 3, &format!("{prefix}/{n}")).is_some()).count()
    };
    let begun = bench.now;
    assert_eq!(bench.purge(2, What::Key(text("pic/3"))), Outcome::Done(Reply::Purged));
    assert_eq!((there(&mut bench, "page"), there(&mut bench, "pic")), (20, 19));
    assert_eq!(bench.purge(3, What::Tag(text("even"))), Outcome::Done(Reply::Purged));
    assert_eq!((there(&mut bench, "page"), there(&mut bench, "pic")), (10, 19));
    assert_eq!(bench.purge(1, What::Prefix(text("pic/1"))), Outcome::Done(Reply::Purged));
    assert_eq!((there(&mut bench, "page"), there(&mut bench, "pic")), (10, 8));
    assert_eq!(bench.purge(1, What::All), Outcome::Done(Reply::Purged));
    assert_eq!((there(&mut bench, "page"), there(&mut bench, "pic")), (0, 0));
    assert!(bench.now.since(begun) < Span::millis(200), "with all nodes live none waits for a lease to end");
}

#[test]
fn a_hung_node_delays_a_purge_by_its_lease_and_has_done_it_before_it_serves_again() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "old", &["t"]));
    bench.hung.insert(3);
    let begun = bench.now;
    assert_eq!(bench.purge(1, What::Tag(text("t"))), Outcome::Done(Reply::Purged));
    let took = bench.now.since(begun);
    assert!(took > Span::millis(500) && took <= Span::millis(1100), "{took:?}");
    // Reads that have waited for the hung node; they came after the purge.
    let reads: Vec<u64> = keys.iter().map(|key| bench.begin(1, key, Act::Get)).collect();
    // It comes back with a client of its own, before it has heard of anything.
    bench.hung.remove(&3);
    let own: Vec<u64> = keys.iter().map(|key| bench.begin(3, key, Act::Get)).collect();
    bench.pass(Span::millis(500));
    for id in reads.into_iter().chain(own) {
        assert_eq!(bench.answers.remove(&id), Some(Outcome::Done(Reply::Absent)));
    }
    bench.pass(Span::secs(1));
    for node in 1..=3 {
        assert!(keys.iter().all(|key| bench.get(node, key).is_none()));
    }
    assert_eq!(bench.figure(3, "cache.forgotten"), 0, "it was told what it lacked, and kept the rest");
}

#[test]
fn a_node_that_lacks_more_purges_than_are_remembered_forgets_all() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "old", &[]));
    assert!(bench.figure(3, "cache.entries") > 3);
    bench.hung.insert(3);
    bench.purge(1, What::Key(text("k0")));
    let ids: Vec<u64> = (0..1200)
        .map(|n| {
            let id = bench.begin(1 + n % 2, "", Act::Purge(What::Key(text(&format!("other{n}")))));
            bench.deliver();
            if n % 100 == 99 {
                bench.pass(Span::secs(4));
            }
            id
        })
        .collect();
    for id in ids {
        assert_eq!(bench.answers.remove(&id), Some(Outcome::Done(Reply::Purged)));
    }
    bench.frames.clear();
    bench.hung.remove(&3);
    bench.pass(Span::secs(2));
    assert_eq!((bench.figure(3, "cache.entries"), bench.figure(3, "cache.leased")), (0, 1));
}

#[test]
fn as_many_purges_as_there_are_in_a_second_are_done_at_once() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "kept", &[]));
    let (began, mut slowest) = (bench.now, Span::ZERO);
    for n in 0..3_000 {
        let (begun, what) = (bench.now, What::Key(text(&format!("other{n}"))));
        let id = bench.begin(1 + n % 3, "", Act::Purge(what));
        bench.deliver();
        if n % 10 == 9 {
            bench.step();
        }
        while !bench.answers.contains_key(&id) && bench.now.since(begun) < Span::secs(3) {
            bench.step();
        }
        assert_eq!(bench.answers.remove(&id), Some(Outcome::Done(Reply::Purged)), "{n}");
        slowest = slowest.max(bench.answered[&id].since(begun));
    }
    assert!(slowest < Span::millis(50), "{slowest:?}; all took {:?}", bench.now.since(began));
    assert!(keys.iter().all(|key| bench.get(2, key).is_some()), "nobody forgets anything for it");
}

/// What a node has of its own of a key, and the mark with which it could keep another one.
fn here(bench: &mut Bench, node: u64, key: &str) -> (Option<Bytes>, Option<Mark>) {
    match bench.ask(node, key, Act::ReadHere) {
        Outcome::Done(Reply::Read { entry, mark }) => (entry.map(|entry| entry.value), mark),
        other => panic!("{other:?}"),
    }
}

fn keep(bench: &mut Bench, node: u64, key: &str, value: &str, mark: Mark) -> Reply {
    match bench.ask(node, key, Act::KeepHere { value: text(value), ttl: Span::secs(30), mark }) {
        Outcome::Done(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn copies_that_each_node_keeps_for_itself_go_with_a_purge_at_whichever_node() {
    let mut bench = Bench::new(3);
    for key in ["a", "b"] {
        for node in 1..=3 {
            let (none, mark) = here(&mut bench, node, key);
            assert_eq!(none, None, "what others keep is not here");
            assert_eq!(keep(&mut bench, node, key, "old", mark.unwrap()), Reply::Stored);
            assert_eq!(here(&mut bench, node, key).0, Some(text("old")), "whoever owns the key");
        }
    }
    // What was read before a purge is not kept after it.
    let late = here(&mut bench, 2, "a").1.unwrap();
    assert_eq!(bench.purge(1, What::Key(text("a"))), Outcome::Done(Reply::Purged));
    for node in 1..=3 {
        assert_eq!((here(&mut bench, node, "a").0, here(&mut bench, node, "b").0), (None, Some(text("old"))));
    }
    assert_eq!(keep(&mut bench, 2, "a", "old", late), Reply::NotStored);
    let other = here(&mut bench, 3, "a").1.unwrap();
    assert_eq!(keep(&mut bench, 2, "a", "old", other), Reply::NotStored, "it is another node's mark");
    bench.pass(Span::secs(31));
    assert_eq!(here(&mut bench, 3, "b").0, None, "it has ended");
}

#[test]
fn a_node_that_hung_while_something_was_purged_gives_no_copy_of_it() {
    let mut bench = Bench::new(3);
    let mark = here(&mut bench, 3, "a").1.unwrap();
    assert_eq!(keep(&mut bench, 3, "a", "old", mark), Reply::Stored);
    bench.hung.insert(3);
    assert_eq!(bench.purge(1, What::All), Outcome::Done(Reply::Purged));
    bench.hung.remove(&3);
    // Before it has heard of anything.
    let id = bench.begin(3, "a", Act::ReadHere);
    assert_eq!(bench.answers.remove(&id), Some(Outcome::Done(Reply::Read { entry: None, mark: None })));
    assert_eq!(keep(&mut bench, 3, "a", "old", mark), Reply::Stored, "it cannot know, yet");
    bench.pass(Span::secs(2));
    assert_eq!(here(&mut bench, 3, "a").0, None, "and takes it away with the purge that it lacked");
}

/// Nodes die, hang, come back; frames are lost. How many reads got a value, and how often one was given again.
/// With a ring memory has room for a single entry, or two, and some reads of disks are damaged.
fn wild(seed: u64, has_ring: bool) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let spec = if has_ring { Spec { size_max: 6_000, disk_max: 9_000, ..Spec::default() } } else { Spec::default() };
    let mut bench = Bench::of(3, spec);
    bench.rots = has_ring.then_some(9);
    let key = |n: u64| format!("k{n}");
    // With when each began, or by their ids.
    let (mut reads, mut purges, mut sets) = (Vec::new(), Vec::new(), BTreeSet::new());
    // When each acknowledged purge began, and was acknowledged; when a value was known to be stored.
    let (mut purged, mut stored): (Vec<(Time, Time)>, BTreeMap<u64, Time>) = (Vec::new(), BTreeMap::new());
    // Answers that are given again beside the machine, by node, its life and key; and questions whose answers may be.
    let (mut kept, mut asked) = (BTreeMap::new(), BTreeMap::new());
    let (mut hits, mut given) = (0, 0);
    for _ in 0..400 {
        let node = 1 + rng.below(3);
        let is_up = bench.nodes.contains_key(&node) && !bench.hung.contains(&node);
        match rng.below(100) {
            0..=34 if is_up => {
                // Its value is the number of the question.
                let pad = if has_ring { 3_000 } else { 0 };
                let value = format!("{:0pad$}", bench.asks + 1);
                sets.insert(bench.begin(node, &key(rng.below(8)), put(&value, &["t"])));
            }
            35..=59 if is_up => reads.push((bench.begin(node, &key(rng.below(8)), Act::Get), bench.now)),
            60..=84 if is_up => {
                let key = key(rng.below(8));
                let moment = bench.near[&node].moment(key.as_bytes());
                let id = bench.begin(node, &key, Act::Read);
                reads.push((id, bench.now));
                asked.insert(id, ((node, bench.boots[&node], key), moment));
            }
            85..=89 if is_up => {
                let what = if rng.chance(0.5) { What::Tag(text("t")) } else { What::Prefix(text("k")) };
                purges.push((bench.begin(node, "", Act::Purge(what)), bench.now));
            }
            90..=91 if bench.nodes.len() == 3 => bench.kill(node),
            92..=94 => {
                let away = (1..=3).find(|node| !bench.nodes.contains_key(node));
                away.into_iter().for_each(|node| bench.start(node));
            }
            95 if bench.hung.is_empty() && bench.nodes.contains_key(&node) => {
                bench.hung.insert(node);
                if rng.chance(0.5) {
                    bench.held_dead(node);
                }
            }
            96..=97 => {
                for node in std::mem::take(&mut bench.hung) {
                    bench.held_live(node);
                }
            }
            98 if has_ring => bench.are_disks_slow = !bench.are_disks_slow,
            _ => (0..rng.below(3)).for_each(|_| _ = bench.frames.pop_back()),
        }
        if rng.chance(0.5) {
            bench.deliver();
        }
        if rng.chance(0.6) {
            let time = Span::millis(rng.below(400));
            bench.pass(time);
        }
        let answers = std::mem::take(&mut bench.answers);
        for id in sets.iter().filter(|id| answers.get(id) == Some(&Outcome::Done(Reply::Stored))) {
            stored.insert(*id, bench.answered[id]);
        }
        for (id, begun) in &purges {
            if answers.get(id) == Some(&Outcome::Done(Reply::Purged)) {
                purged.push((*begun, bench.answered[id]));
            }
        }
        let mut got = Vec::new();
        for (id, begun) in &reads {
            match answers.get(id) {
                Some(Outcome::Done(Reply::Value { value, .. })) => got.push((value.clone(), *begun)),
                Some(Outcome::Done(Reply::Read { entry: Some(entry), mark: Some(mark) })) => {
                    got.push((entry.value.clone(), *begun));
                    let (place, moment) = asked.remove(id).unwrap();
                    if bench.near[&place.0].is_here(*mark) {
                        kept.insert(place, (entry.value.clone(), moment));
                    }
                }
                _ => (),
            }
        }
        hits += got.len() as u64;
        // Beside a machine that hangs, too.
        kept.retain(|(node, boot, _), _| bench.nodes.contains_key(node) && bench.boots[node] == *boot);
        for ((node, _, key), (value, moment)) in &kept {
            if bench.near[node].holds(bench.now, key.as_bytes(), *moment) {
                given += 1;
                got.push((value.clone(), bench.now));
            }
        }
        for (value, begun) in &got {
            let of: u64 = std::str::from_utf8(value).unwrap().parse().unwrap();
            let is_old = |(from, done): &&(Time, Time)| done < begun && stored.get(&of).is_some_and(|at| at < from);
            if let Some((from, done)) = purged.iter().find(is_old) {
                let at = stored[&of];
                panic!("seed {seed}: stored at {at:?}, purged from {from:?} to {done:?}, read from {begun:?} on");
            }
        }
        reads.retain(|(id, _)| !answers.contains_key(id));
        purges.retain(|(id, _)| !answers.contains_key(id));
    }
    assert!(!has_ring || bench.reads > 0, "seed {seed}: nothing was read from a disk");
    assert!(purged.len() > 3, "seed {seed}: {} purges were done", purged.len());
    (hits, given)
}

#[test]
fn whatever_happens_no_read_after_a_purge_gets_what_was_stored_before_it() {
    let all: Vec<(u64, u64)> = (0..60).map(|seed| wild(seed, false)).collect();
    let (hits, given): (u64, u64) = (all.iter().map(|(hits, _)| hits).sum(), all.iter().map(|(_, given)| given).sum());
    assert!(hits > 500 && given > 500, "they do read: {hits}, {given}");
}

#[test]
fn nor_does_one_that_gets_it_from_a_disk() {
    let all: Vec<(u64, u64)> = (1000..1060).map(|seed| wild(seed, true)).collect();
    let hits: u64 = all.iter().map(|(hits, _)| hits).sum();
    assert!(hits > 300, "they do read: {hits}");
}

#[test]
fn what_is_given_again_beside_the_machine_is_what_it_would_give() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..40).map(|n| format!("key/{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "old", &["t"]));
    let owner = |bench: &mut Bench, key: &str| match bench.ask(2, key, Act::Read) {
        Outcome::Done(Reply::Read { mark: Some(mark), .. }) => mark,
        other => panic!("{other:?}"),
    };
    let key = keys.iter().find(|key| owner(&mut bench, key).node == NodeId(2)).unwrap().clone();
    let other = keys.iter().find(|key| owner(&mut bench, key).node != NodeId(2)).unwrap().clone();
    let near = bench.near[&2].clone();
    let (mark, elsewhere) = (owner(&mut bench, &key), owner(&mut bench, &other));
    assert!(near.is_here(mark) && !near.is_here(elsewhere));
    let holds = |bench: &Bench, moment| near.holds(bench.now, key.as_bytes(), moment);
    let moment = || near.moment(key.as_bytes());
    // Until the leases end, without a word of the machine.
    let before = moment();
    assert!(holds(&bench, before));
    let now = bench.now;
    bench.now = now + Span::secs(1);
    assert!(!holds(&bench, before));
    bench.now = now;
    // Not after anything has happened to it, at whichever node that was asked.
    for act in [put("new", &[]), Act::End(Some(Span::secs(9))), Act::Remove] {
        let before = moment();
        bench.ask(3, &key, act);
        assert!(!holds(&bench, before) && holds(&bench, moment()));
    }
    for what in [What::Key(text(&key)), What::Prefix(text("key")), What::Tag(text("t")), What::All] {
        let before = moment();
        assert_eq!(bench.purge(1, what), Outcome::Done(Reply::Purged));
        assert!(!holds(&bench, before) && holds(&bench, moment()));
    }
    // Nor when the key may be another node's.
    let before = moment();
    bench.kill(3);
    assert!(!holds(&bench, before));
}
