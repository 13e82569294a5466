//! What state.md claims of the session class beyond the paper, one test per claim, in virtual time. The paper's own claims
//! are in `claims_3.rs` and `claims_5.rs`.

use crate::world::{
    Clients, Host, Net, World, calm, kills, one_sleeps_one_restarts, op, put, put_action, put_when, rough,
};
use base::{NodeId, Outcome, Span};
use session::{Action, BrickMap, Kind, Lease, Op, Reply, When};

fn check(verdict: &crate::world::Verdict, what: &str) {
    assert!(verdict.reads > 100 && verdict.writes > 100, "{what}: too little happened: {verdict:?}");
    assert!(verdict.stale.is_empty() && verdict.missing.is_empty(), "{what}: {verdict:#?}");
}

#[test]
fn how_many_values_there_are_is_told_at_once_and_nearly_right() {
    let mut world = World::settled(31, 5);
    let count = |world: &mut World, node, space: &str| {
        let op = Op { namespace: space.into(), ..op("", Action::Count) };
        let (before, reply) = (world.now, world.done(node, op));
        assert!(world.now.since(before) < Span::millis(3), "{:?}", world.now.since(before));
        let Reply::Count(count) = reply else { panic!("{reply:?}") };
        count
    };
    let other = |key: String| Op { namespace: "other".into(), ..put(&key, "v") };
    for n in 0..4_000 {
        world.ask(n % 5 + 1, put(&format!("k{n}"), "v"));
        if n % 40 == 0 {
            world.ask(n % 5 + 1, other(format!("k{n}")));
        }
        world.run(Span::micros(200));
    }
    world.run(Span::secs(1));
    assert_eq!((count(&mut world, 1, "carts"), count(&mut world, 2, "other")), (4_000, 100));
    for n in 0..1_000 {
        world.done(n % 5 + 1, op(&format!("k{n}"), Action::Remove));
    }
    world.run(Span::secs(1));
    assert_eq!((count(&mut world, 3, "carts"), count(&mut world, 4, "maps")), (3_000, 0));
    // One is away, and one comes: nearly.
    world.kill(NodeId(5));
    world.run(Span::secs(1));
    assert!((2_850..3_150).contains(&count(&mut world, 1, "carts")));
    world.start(NodeId(5));
    world.settle();
    world.add();
    for _ in 0..40 {
        world.run(Span::millis(50));
        let counted = count(&mut world, 1, "carts");
        // Some have dropped what is another's now, and some have not heard of that yet.
        assert!((2_450..3_550).contains(&counted), "{counted}");
    }
    world.settle();
    assert!((2_990..3_010).contains(&count(&mut world, 6, "carts")));
}

#[test]
fn what_is_written_through_one_node_is_read_through_every_other() {
    for count in 1..=5 {
        let mut world = World::settled(count, count);
        for i in 0..20 {
            let key = format!("k{i}");
            assert!(matches!(world.put(1 + i % count, &key, &key), Reply::Stored { .. }));
            for node in 1..=count {
                assert_eq!(world.value(node, &key), Some(key.clone()));
            }
        }
        assert_eq!(world.value(1, "never"), None);
    }
}

#[test]
fn no_read_is_stale_where_frames_are_lost_doubled_and_overtaken() {
    for seed in 200..204 {
        let verdict = kills(seed, 3, 4, rough());
        check(&verdict, &format!("seed {seed}"));
        let net = Net { delay: (100, 30_000), loss: 0.05, double: 0.05 };
        check(&kills(seed, 5, 4, net), &format!("seed {seed}, worse"));
    }
}

#[test]
fn all_of_three_are_restarted_in_turn_and_everything_is_still_there() {
    let mut world = World::settled(1, 3);
    for i in 0..300 {
        world.put(1 + i % 3, &format!("k{i}"), &format!("v{i}"));
    }
    for round in 0..2 {
        for node in 1..=3 {
            world.kill(NodeId(node));
            world.run(Span::millis(500));
            world.start(NodeId(node));
            world.settle();
            assert!(world.figure(node, "session.entries") >= 300, "round {round}: node {node} was filled");
        }
    }
    for i in 0..300 {
        assert_eq!(world.value(1 + i % 3, &format!("k{i}")), Some(format!("v{i}")));
    }
}

#[test]
fn one_brick_may_sleep_and_another_restart() {
    for seed in 10..15 {
        check(&one_sleeps_one_restarts(seed), &format!("seed {seed}"));
    }
}

#[test]
fn one_brick_alone_never_answers_for_three() {
    let mut world = World::settled(3, 3);
    world.put(1, "k", "old");
    world.partition(&[NodeId(3)]);
    world.run(Span::secs(2));
    world.put(1, "k", "new");
    assert!(matches!(world.call(3, op("k", Action::Get)), Outcome::Refused(_)));
    assert!(matches!(world.call(3, put("k", "x")), Outcome::Refused(_)));
    assert_eq!(world.value(2, "k"), Some("new".into()));
    world.heal();
    world.run(Span::secs(1));
    assert_eq!(world.value(3, "k"), Some("new".into()));
}

#[test]
fn conditions_hold_also_while_one_brick_is_dead() {
    let mut world = World::settled(7, 3);
    for dead in [None, Some(2), Some(3)] {
        if let Some(node) = dead {
            world.kill(NodeId(node));
            world.run(Span::millis(400));
        }
        let key = format!("k{dead:?}");
        let absent = world.done(1, put_when(&key, "x", When::Present));
        assert_eq!(absent, Reply::NotStored { version: None, old: None });
        let Reply::Stored { version, .. } = world.done(1, put_when(&key, "a", When::Absent)) else { panic!("stored") };
        assert_eq!(
            world.done(1, put_when(&key, "b", When::Absent)),
            Reply::NotStored { version: Some(version), old: None }
        );
        let Reply::Stored { version: second, .. } = world.done(1, put_when(&key, "c", When::Version(version))) else {
            panic!("the version was right")
        };
        let stale = world.done(1, put_when(&key, "d", When::Version(version)));
        assert_eq!(stale, Reply::NotStored { version: Some(second), old: None });
        let swap = Action::Put {
            kind: Kind::Text,
            value: "e".into(),
            lease: Lease::Default,
            when: When::Present,
            want_old: true,
        };
        assert!(matches!(world.done(1, op(&key, swap)), Reply::Stored { old: Some(old), .. } if old == "c"));
        assert!(matches!(world.done(1, op(&key, Action::Take)), Reply::Value { value, .. } if value == "e"));
        assert_eq!(world.value(1, &key), None);
        assert_eq!(world.done(1, op(&key, Action::Take)), Reply::Absent);
        assert_eq!(world.done(1, op(&key, Action::Remove)), Reply::Removed(false));
        world.put(1, &key, "f");
        assert_eq!(world.done(1, op(&key, Action::Remove)), Reply::Removed(true));
        assert_eq!(world.value(1, &key), None);
        if let Some(node) = dead {
            world.start(NodeId(node));
            world.settle();
            assert_eq!(world.value(node, &key), None, "a removal reaches who was away");
        }
    }
}

#[test]
fn of_many_who_put_if_absent_at_once_one_wins_and_its_value_stays() {
    for seed in 0..20 {
        let mut world = World::settled(seed, 3);
        let asks: Vec<_> =
            (0..6).map(|i| (i, world.ask(1 + i % 3, put_when("lock", &format!("{i}"), When::Absent)))).collect();
        world.run(Span::secs(3));
        let won: Vec<_> = asks
            .iter()
            .filter(|(_, id)| matches!(world.answers[id].1, Outcome::Done(Reply::Stored { .. })))
            .map(|(i, _)| i.to_string())
            .collect();
        let lost =
            asks.iter().filter(|(_, id)| matches!(world.answers[id].1, Outcome::Done(Reply::NotStored { .. }))).count();
        assert_eq!((won.len(), lost), (1, 5), "seed {seed}: {:?}", world.answers);
        for node in 1..=3 {
            assert_eq!(world.value(node, "lock"), Some(won[0].clone()), "seed {seed}");
        }
    }
}

#[test]
fn many_who_compare_and_swap_lose_no_update() {
    for seed in 0..5 {
        let mut world = World::settled(seed, 3);
        world.put(1, "n", "0");
        let mut done = 0;
        for _ in 0..40 {
            let Reply::Value { value, version, .. } = world.get(1, "n") else { panic!("it is there") };
            let n: u64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
            assert_eq!(n, done, "seed {seed}");
            let text = (n + 1).to_string();
            let asks: Vec<_> =
                (1..=3).map(|node| world.ask(node, put_when("n", &text, When::Version(version)))).collect();
            world.run(Span::secs(2));
            let stored =
                asks.iter().filter(|id| matches!(world.answers[id].1, Outcome::Done(Reply::Stored { .. }))).count();
            assert!(stored <= 1, "seed {seed}: {stored} swapped the same version");
            done += stored as u64;
        }
        assert!(done > 30);
    }
}

/// A conditional write may be undone for a while and is not copied in that time; once acknowledged it is, or a brick would never
/// have filled while some key is written like this again and again.
#[test]
fn a_brick_fills_although_a_key_is_written_under_conditions_all_the_time() {
    let mut world = World::settled(31, 3);
    world.put(1, "hot", "0");
    world.kill(NodeId(3));
    world.run(Span::secs(1));
    world.start(NodeId(3));
    for n in 0..60 {
        let put = put_when("hot", &n.to_string(), When::Present);
        assert!(matches!(world.done(1 + n % 2, put), Reply::Stored { .. }), "write {n}");
        world.run(Span::millis(100));
    }
    let (filled, map) = (world.session(3).filled(), world.session(3).map_seen());
    assert!(filled >= map, "after 6 s it is filled for {filled}, the map is {map}");
}

#[test]
fn a_walk_and_a_count_see_every_key_through_any_node_also_with_one_dead() {
    for count in [1, 3, 5] {
        let mut world = World::settled(8, count);
        for i in 0..200 {
            world.put(1, &format!("k{i}"), "v");
        }
        for i in 0..50 {
            world.done(1, op(&format!("k{i}"), Action::Remove));
        }
        if count >= 3 {
            world.kill(NodeId(count));
            world.run(Span::millis(400));
        }
        for node in world.live() {
            assert_eq!(world.done(node.0, op("", Action::Count)), Reply::Count(150));
            let (mut cursor, mut seen, mut pages) = (0, Vec::new(), 0);
            loop {
                let Reply::Page { cursor: next, keys } = world.done(node.0, op("", Action::Scan { cursor, count: 10 }))
                else {
                    panic!("a page")
                };
                seen.extend(keys.into_iter().map(|(key, _)| key));
                pages += 1;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            let listed = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!((seen.len(), listed), (150, 150));
            assert!(pages >= 5);
        }
    }
}

#[test]
fn nothing_is_lost_while_the_cluster_grows_from_one_to_five_and_shrinks() {
    for seed in 0..4 {
        let mut world = World::settled(seed, 1);
        let mut clients = Clients::new(6, 20);
        clients.work(&mut world, Span::millis(300));
        for node in 2..=5 {
            let host = Host { boot: base::Boot(0), session: None, skew_ms: 0, hung_until: base::Time::ZERO };
            world.nodes.insert(NodeId(node), host);
            world.start(NodeId(node));
            clients.work(&mut world, Span::millis(700));
        }
        world.settle();
        let full = world.map.clone().unwrap();
        assert_eq!(full.members.len(), 5);
        world.kill(NodeId(5));
        clients.work(&mut world, Span::secs(1));
        world.run(Span::secs(60));
        clients.work(&mut world, Span::secs(1));
        world.settle();
        assert_eq!(world.map.clone().unwrap().members.len(), 4, "the dead one left");
        world.kill(NodeId(4));
        clients.work(&mut world, Span::secs(1));
        world.run(Span::secs(60));
        clients.work(&mut world, Span::secs(1));
        world.start(NodeId(5));
        clients.work(&mut world, Span::secs(1));
        clients.finish(&mut world);
        let verdict = clients.judge(&world);
        check(&verdict, &format!("seed {seed}"));
        assert_eq!((verdict.refused, verdict.unknown), (0, 0), "seed {seed}: {verdict:?}");
    }
}

/// One that is about to leave hears of the transition and not of the map after it, as its disk is full, say. Removals are forgotten
/// some time after all bricks have them, and it is none any more: what it still holds must not come back.
#[test]
fn who_stays_a_step_behind_the_map_reads_no_value_that_was_removed_meanwhile() {
    let mut world = World::settled(11, 5);
    world.leads = false;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for key in &keys {
        world.put(1, key, "v");
    }
    let seen = (1..=5).map(|node| (NodeId(node), world.session(node).map_seen())).collect();
    let leaves = world.map.clone().unwrap().without(NodeId(5), &world.live(), &seen).unwrap();
    (1..=5).for_each(|node| world.tell_map(NodeId(node), leaves.clone()));
    let end = world.now + Span::secs(20);
    while (1..=4).any(|node| world.session(node).filled() < leaves.epoch) {
        assert!(world.now < end, "it is not filled");
        world.run(Span::millis(100));
    }
    let left = BrickMap { epoch: leaves.epoch + 1, old: None, ..leaves.clone() };
    (1..=4).for_each(|node| world.tell_map(NodeId(node), left.clone()));
    world.run(Span::secs(1));
    assert_eq!(world.session(5).map_seen(), leaves.epoch);
    for key in &keys {
        assert!(matches!(world.done(1, op(key, Action::Remove)), Reply::Removed(true)), "{key}");
    }
    world.run(Span::secs(60));
    for key in &keys {
        assert_eq!(world.value(5, key), None, "{key}");
    }
    assert_eq!(world.session(5).map_seen(), left.epoch, "who asks under an old map is told the new one");
}

#[test]
fn when_more_bricks_fail_than_promised_nothing_is_answered_while_one_may_know_better() {
    let mut world = World::settled(9, 3);
    world.put(1, "k", "v");
    for node in 1..=3 {
        world.kill(NodeId(node));
    }
    world.run(Span::secs(1));
    world.start(NodeId(1));
    world.start(NodeId(2));
    world.run(Span::secs(1));
    assert!(matches!(world.call(1, op("k", Action::Get)), Outcome::Refused(_)), "the third may yet come");
    world.run(Span::secs(2));
    assert!(matches!(world.call(1, op("k", Action::Get)), Outcome::Refused(_)), "it may only be cut off");
    // Given up after a grace: the cluster goes on with what the two know, which is nothing.
    world.run(Span::secs(12));
    assert!(matches!(world.get(1, "k"), Reply::Lost | Reply::Absent));
    world.put(1, "k", "w");
    assert_eq!(world.value(2, "k"), Some("w".into()));
    world.start(NodeId(3));
    world.settle();
    assert_eq!(world.value(3, "k"), Some("w".into()));
    assert_eq!(world.value(3, "never"), None, "a cold cluster is settled");
}

#[test]
fn a_writer_whose_clock_is_far_ahead_is_refused_and_reported() {
    let mut world = World::settled(10, 3);
    world.put(2, "k", "v");
    world.nodes.get_mut(&NodeId(1)).unwrap().skew_ms = 60_000;
    let outcome = world.call(1, put("k", "ahead"));
    assert!(matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_)), "{outcome:?}");
    assert!(world.notes.iter().any(|note| note.contains("ahead")), "{:?}", world.notes);
    assert!(matches!(world.put(2, "j", "w"), Reply::Stored { .. }), "the others go on");
}

#[test]
fn a_clock_that_jumps_back_stops_no_writes() {
    let mut world = World::settled(11, 3);
    world.put(1, "k", "1");
    for host in world.nodes.values_mut() {
        host.skew_ms = -3_600_000;
    }
    world.put(2, "k", "2");
    world.kill(NodeId(3));
    world.run(Span::millis(500));
    world.start(NodeId(3));
    world.settle();
    for i in 3..6 {
        world.put(i - 2, "k", &i.to_string());
        assert_eq!(world.value(1, "k"), Some(i.to_string()));
    }
}

#[test]
fn what_is_wrong_is_said_clearly() {
    let mut world = World::settled(12, 1);
    let mut why = |asked: Op| match world.call(1, asked) {
        Outcome::Refused(refused) => {
            assert_eq!(refused.retry_after, None);
            refused.why
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(why(put("", "v")), "the key has 0 bytes; 1 to 512 are possible");
    assert_eq!(why(put(&"k".repeat(513), "v")), "the key has 513 bytes; 1 to 512 are possible");
    assert!(why(put("k", &"v".repeat((1 << 20) + 1))).contains("larger ones belong in class file"));
    assert_eq!(why(Op::keyed("no".into(), "k".into(), Action::Get)), "there is no namespace \"no\"");
    assert!(why(op("k", Action::Touch { lease: Lease::For(Span::ZERO) })).contains("lease of zero"));
    assert!(why(Op::cookie("carts".into(), "k".into(), Action::Get, None)).contains("by cookie"));
}

#[test]
fn namespaces_do_not_see_each_other() {
    let mut world = World::settled(13, 3);
    world.put(1, "k", "mine");
    let other = |action| Op::keyed("other".into(), "k".into(), action);
    assert_eq!(world.done(2, other(Action::Get)), Reply::Absent);
    world.done(2, other(put_action("theirs")));
    assert_eq!(world.value(3, "k"), Some("mine".into()));
    assert_eq!(world.done(1, Op::keyed("other".into(), "".into(), Action::Count)), Reply::Count(1));
}

/// `SEEDS=from-to cargo test -p state --test claims -- --ignored many_seeds`: hours of it, when there is time.
#[test]
#[ignore = "long: run by hand with SEEDS=from-to"]
fn many_seeds() {
    let seeds = std::env::var("SEEDS").unwrap_or_else(|_| "1000-1020".into());
    let (from, to) = seeds.split_once('-').expect("SEEDS=from-to");
    for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        for nodes in [3, 5] {
            let verdict = kills(seed, nodes, 3, calm());
            check(&verdict, &format!("seed {seed}, {nodes} nodes, calm"));
            assert_eq!((verdict.refused, verdict.unknown), (0, 0), "seed {seed}, {nodes} nodes: {verdict:?}");
            check(&kills(seed, nodes, 3, rough()), &format!("seed {seed}, {nodes} nodes, rough"));
            let net = Net { delay: (100, 30_000), loss: 0.05, double: 0.05 };
            check(&kills(seed, nodes, 3, net), &format!("seed {seed}, {nodes} nodes, worse"));
        }
        check(&one_sleeps_one_restarts(seed), &format!("seed {seed}, one sleeps"));
    }
}

#[test]
fn seeds_that_once_found_a_bug_stay_found() {
    // A restarted brick's acknowledgement outvoted a settled one that knew a newer version.
    check(&one_sleeps_one_restarts(2103), "seed 2103");
    // A version that was only told of by a brick that died at once hid the acknowledged one.
    let net = Net { delay: (100, 30_000), loss: 0.05, double: 0.05 };
    check(&kills(2006, 5, 3, net), "seed 2006");
}
