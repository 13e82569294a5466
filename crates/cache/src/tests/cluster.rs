//! Where keys are, and what becomes of them when nodes come and go.

use super::*;
use crate::Mark;

#[test]
fn what_is_set_at_one_node_is_read_changed_and_removed_at_any() {
    let mut bench = Bench::new(3);
    for n in 0..50 {
        bench.set(1 + n % 3, &format!("k{n}"), &format!("v{n}"), &[]);
    }
    for n in 0..50 {
        for node in 1..=3 {
            assert_eq!(bench.get(node, &format!("k{n}")), Some(format!("v{n}")));
        }
    }
    let held: Vec<u64> = (1..=3).map(|node| bench.figure(node, "cache.entries")).collect();
    assert!(held.iter().sum::<u64>() == 50 && held.iter().all(|some| *some > 5), "one node has each: {held:?}");
    assert_eq!(bench.ask(2, "", Act::Count), Outcome::Done(Reply::Count(50)));
    assert_eq!(bench.ask(3, "k7", Act::Remove), Outcome::Done(Reply::Changed(true)));
    assert_eq!(bench.ask(1, "k7", Act::Remove), Outcome::Done(Reply::Changed(false)));
    assert_eq!(bench.get(2, "k7"), None);
    let only_present = |value: &'static [u8]| Act::Set {
        value: Bytes::from_static(value),
        kind: Bytes::new(),
        tags: Vec::new(),
        ttl: None,
        only_present: true,
        mark: None,
    };
    assert_eq!(bench.ask(1, "k7", only_present(b"w")), Outcome::Done(Reply::NotStored));
    assert_eq!(bench.ask(1, "k8", only_present(b"w")), Outcome::Done(Reply::Stored));
    assert_eq!(bench.get(3, "k8"), Some("w".into()));
}

#[test]
fn an_entry_ends_when_it_was_said() {
    let mut bench = Bench::new(3);
    bench.set(1, "a", "1", &[]);
    bench.set(1, "b", "1", &[]);
    for key in ["a", "b"] {
        let end = Act::End(Some(Span::millis(800)));
        assert_eq!(bench.ask(2, key, end), Outcome::Done(Reply::Changed(true)));
    }
    assert_eq!(bench.ask(2, "b", Act::End(None)), Outcome::Done(Reply::Changed(true)));
    bench.pass(Span::millis(300));
    match bench.ask(3, "a", Act::Look) {
        Outcome::Done(Reply::Value { value, ttl_left: Some(left), .. }) => {
            assert!(value.is_empty() && left <= Span::millis(500) && left > Span::millis(400), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
    bench.pass(Span::millis(600));
    assert_eq!((bench.get(3, "a"), bench.get(3, "b")), (None, Some("1".into())));
    let entries: u64 = (1..=3).map(|node| bench.figure(node, "cache.entries")).sum();
    assert_eq!(entries, 1);
}

#[test]
fn a_death_costs_its_share_and_a_join_nothing() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "v", &[]));
    let share = bench.figure(3, "cache.entries");
    bench.kill(3);
    let there = |bench: &mut Bench| keys.iter().filter(|key| bench.get(2, key).is_some()).count() as u64;
    assert_eq!(there(&mut bench), 200 - share);
    keys.iter().for_each(|key| bench.set(1, key, "w", &[]));
    bench.start(3);
    bench.pass(Span::secs(1));
    for key in &keys {
        assert_eq!(bench.get(2, key), Some("w".into()), "{key} is taken over");
    }
    assert_eq!(bench.figure(3, "cache.taken"), share);
    assert_eq!(bench.figure(3, "cache.entries"), share);
    let all: u64 = (1..=3).map(|node| bench.figure(node, "cache.entries")).sum();
    assert_eq!(all, 200, "what was taken over is not there any more");
}

#[test]
fn who_was_held_dead_does_not_show_what_is_older() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "old", &[]));
    bench.hung.insert(3);
    bench.held_dead(3);
    for (n, key) in keys.iter().enumerate() {
        match n % 2 {
            0 => bench.set(1, key, "new", &[]),
            _ => _ = bench.ask(2, key, Act::Remove),
        }
    }
    bench.pass(Span::secs(2));
    bench.hung.remove(&3);
    bench.held_live(3);
    bench.pass(Span::secs(1));
    for node in 1..=3 {
        for (n, key) in keys.iter().enumerate() {
            let expect = (n % 2 == 0).then(|| "new".to_owned());
            assert_eq!(bench.get(node, key), expect, "{key} at {node}");
        }
    }
    assert_eq!(bench.figure(3, "cache.forgotten"), 1);
}

#[test]
fn a_node_that_does_not_answer_makes_misses_and_unknowns_in_time() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "v", &[]));
    bench.hung.insert(3);
    let (mut missed, mut unknown) = (0, 0);
    for key in &keys {
        let begun = bench.now;
        missed += u64::from(bench.get(1, key).is_none());
        unknown += u64::from(matches!(bench.ask(2, key, put("w", &[])), Outcome::Unknown(_)));
        assert!(bench.now.since(begun) <= Span::millis(230), "{key}");
    }
    assert!(missed == unknown && missed > 3, "{missed} {unknown}");
    assert_eq!(bench.figure(1, "cache.unreached"), missed);
}

#[test]
fn who_reaches_no_majority_serves_nothing() {
    let mut bench = Bench::new(3);
    let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| bench.set(1, key, "v", &[]));
    bench.cut = BTreeSet::from([(1, 3), (2, 3)]);
    bench.held_dead(3);
    [1, 2].into_iter().for_each(|peer| bench.give(3, Input::Death { peer: NodeId(peer) }));
    bench.pass(Span::millis(1100));
    assert!(keys.iter().all(|key| bench.get(3, key).is_none()));
    assert!(matches!(bench.ask(3, "k1", put("w", &[])), Outcome::Refused(_)));
    assert!(matches!(bench.purge(3, What::All), Outcome::Unknown(_)));
    assert_eq!(bench.purge(1, What::All), Outcome::Done(Reply::Purged));
    bench.set(2, "k1", "w", &[]);
    assert_eq!(bench.get(1, "k1"), Some("w".into()));
}

#[test]
fn a_cluster_of_one_serves_and_purges_alone() {
    let mut bench = Bench::new(1);
    bench.set(1, "a", "1", &[]);
    assert_eq!(bench.get(1, "a"), Some("1".into()));
    assert_eq!(bench.purge(1, What::All), Outcome::Done(Reply::Purged));
    assert_eq!(bench.get(1, "a"), None);
    assert_eq!(bench.frames_sent, 0);
}

#[test]
fn what_no_door_should_let_through_is_refused() {
    let mut bench = Bench::new(1);
    let long = "k".repeat(513);
    let tags: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    for (key, act, says) in [
        ("", Act::Get, "1 to 512 bytes"),
        (&*long, Act::Get, "1 to 512 bytes"),
        ("a", put(&"v".repeat((4 << 20) + 1), &[]), "at most 4194304 bytes"),
        ("a", put("v", &tags), "at most 16 tags"),
        ("a", put("v", &["t".repeat(129).as_str()]), "at most 128 bytes"),
        ("a", Act::End(Some(Span::secs(401 * 86_400))), "within 400 days"),
    ] {
        match bench.ask(1, key, act) {
            Outcome::Refused(why) => assert!(why.why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// What a node is told that will fetch what is missing.
fn mark(bench: &mut Bench, node: u64, key: &str) -> Option<Mark> {
    match bench.ask(node, key, Act::Read) {
        Outcome::Done(Reply::Read { mark, .. }) => mark,
        other => panic!("{other:?}"),
    }
}

fn fetched(tags: &[&str], mark: Option<Mark>) -> Act {
    match put("fetched", tags) {
        Act::Set { value, kind, tags, ttl, only_present, .. } => {
            Act::Set { value, kind, tags, ttl, only_present, mark }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_fetched_before_a_purge_is_not_stored_after_it() {
    let mut bench = Bench::new(3);
    let news = || What::Tag("news".into());
    for n in 0..12 {
        let (key, other) = (format!("k{n}"), format!("o{n}"));
        let before = [mark(&mut bench, 1, &key), mark(&mut bench, 2, &other)];
        assert!(before[0].is_some() && before[1].is_some());
        assert_eq!(bench.purge(3, news()), Outcome::Done(Reply::Purged));
        assert_eq!(bench.ask(1, &key, fetched(&["news"], before[0])), Outcome::Done(Reply::NotStored), "{key}");
        assert_eq!(bench.get(2, &key), None);
        assert_eq!(bench.ask(2, &other, fetched(&["sport"], before[1])), Outcome::Done(Reply::Stored), "{other}");
        let removed = mark(&mut bench, 1, &key);
        bench.ask(2, &key, Act::Remove);
        assert_eq!(bench.ask(1, &key, fetched(&[], removed)), Outcome::Done(Reply::NotStored), "{key} was removed");
        // Each voter tells of a purge once.
        bench.pass(Span::millis(50));
        let after = mark(&mut bench, 1, &key);
        assert_eq!(bench.ask(1, &key, fetched(&["news"], after)), Outcome::Done(Reply::Stored), "{key}");
    }
}

#[test]
fn a_mark_of_another_node_or_life_stores_nothing() {
    let mut bench = Bench::new(3);
    let given = mark(&mut bench, 1, "k").unwrap();
    for wrong in [
        Mark { node: NodeId(given.node.0 % 3 + 1), ..given },
        Mark { life: given.life + 1, ..given },
        Mark { number: given.number + 1, ..given },
    ] {
        assert_eq!(bench.ask(1, "k", fetched(&[], Some(wrong))), Outcome::Done(Reply::NotStored), "{wrong:?}");
    }
    assert_eq!(bench.ask(1, "k", fetched(&[], Some(given))), Outcome::Done(Reply::Stored));
    match bench.ask(2, "k", Act::Read) {
        Outcome::Done(Reply::Read { entry: Some(entry), mark: Some(_) }) => assert_eq!(&entry.value[..], b"fetched"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_missing_is_fetched_by_one_in_the_whole_cluster() {
    let mut bench = Bench::new(3);
    let within = Act::Fetch(Span::secs(1));
    let missing = |end: Outcome<Reply>| match end {
        Outcome::Done(Reply::Read { entry: None, mark: Some(mark) }) => mark,
        other => panic!("{other:?}"),
    };
    for n in 0..20 {
        let key = format!("k{n}");
        let mark = missing(bench.ask(1 + n % 3, &key, within.clone()));
        let waiting: Vec<u64> = (1..=3).map(|node| bench.begin(node, &key, within.clone())).collect();
        bench.pass(Span::millis(500));
        assert!(waiting.iter().all(|id| !bench.answers.contains_key(id)), "{key}: they wait");
        let Act::Set { value, kind, tags, ttl, only_present, .. } = put("fetched", &[]) else { panic!() };
        let fetched = Act::Set { value, kind, tags, ttl, only_present, mark: Some(mark) };
        assert_eq!(bench.ask(1 + n % 3, &key, fetched), Outcome::Done(Reply::Stored));
        bench.pass(Span::millis(60));
        for id in waiting {
            let end = bench.answers.remove(&id);
            let got =
                matches!(&end, Some(Outcome::Done(Reply::Read { entry: Some(entry), .. })) if entry.value == "fetched");
            assert!(got, "{key}: {end:?}");
        }
    }
    assert_eq!((1..=3).map(|node| bench.figure(node, "cache.waited")).sum::<u64>(), 60);
    // Who fetches does not come back: the next one does it, and one only.
    missing(bench.ask(1, "lost", within.clone()));
    let waiting: Vec<u64> = (1..=3).map(|node| bench.begin(node, "lost", within.clone())).collect();
    bench.pass(Span::millis(1200));
    let ended: Vec<u64> = waiting.into_iter().filter(|id| bench.answers.contains_key(id)).collect();
    assert_eq!(ended.len(), 1);
    missing(bench.answers.remove(&ended[0]).unwrap());
    // Nobody waits for longer than his time.
    bench.pass(Span::secs(2));
    assert_eq!(bench.ask(1, "slow", Act::Fetch(Span::secs(50))), bench.ask(1, "slow", Act::Read));
    let begun = bench.now;
    missing(bench.ask(2, "slow", within.clone()));
    assert!(bench.now.since(begun) > Span::millis(2900), "it waited for its time");
    // With the node at whose door it was, or the one that has the key, what they had to fetch is another one's.
    for victim in [2, 3] {
        let key = format!("of {victim}");
        missing(bench.ask(victim, &key, Act::Fetch(Span::secs(50))));
        bench.kill(victim);
        let begun = bench.now;
        missing(bench.ask(1, &key, within.clone()));
        assert!(bench.now.since(begun) < Span::secs(1));
        bench.start(victim);
        bench.pass(Span::secs(4));
    }
}
