//! What section 3 of the paper (SSM) claims of its design, one test per claim, in virtual time. docs/design/session.md
//! lists them.

use crate::world::{Clients, Verdict, World, by_cookie, calm, kills, of, op, put, put_action};
use base::{NodeId, Outcome, Rng, Span};
use session::odds::loss;
use session::{Action, CookieError, Kind, Lease, Reply, When};

fn check(verdict: &Verdict, what: &str) {
    assert!(verdict.reads > 100 && verdict.writes > 100, "{what}: too little happened: {verdict:?}");
    assert!(verdict.stale.is_empty() && verdict.missing.is_empty(), "{what}: {verdict:#?}");
}

fn cookie(reply: Reply) -> String {
    match reply {
        Reply::Stored { cookie: Some(cookie), .. } => cookie,
        other => panic!("{other:?}"),
    }
}

/// SSM 3.1: "send to many bricks, wait for few to reply": W = 3 are asked, WQ = 2 answers end a write, one a read.
#[test]
fn a_write_asks_three_and_waits_for_two_and_a_cookie_read_waits_for_one() {
    let mut world = World::settled(1, 6);
    world.hang(NodeId(6), Span::secs(1));
    let mut named = 0;
    for i in 0..40 {
        let (key, start) = (format!("u{i}"), world.now);
        let text = cookie(world.done(1, by_cookie(&key, put_action("v"), None)));
        assert!(world.now.since(start) < Span::millis(5), "a write waited for the brick that hangs");
        let start = world.now;
        assert!(matches!(world.done(2, by_cookie(&key, Action::Get, Some(&text))), Reply::Value { .. }));
        named += u32::from(world.now.since(start) > Span::millis(5));
    }
    assert_eq!(named, 0, "a cookie names bricks that answered, and these answer reads");
    world.run(Span::secs(2));
    let copies: u64 = (1..=6).map(|node| world.figure(node, "session.entries")).sum();
    assert!((80..=120).contains(&copies), "{copies} copies of 40 values: two at least, three at most");
}

/// SSM 3.1: on a read, the value returned is the one most recently written.
#[test]
fn a_read_returns_what_was_written_last_through_whatever_node() {
    let mut world = World::settled(2, 5);
    let mut text = cookie(world.done(1, by_cookie("u", put_action("0"), None)));
    for i in 1..60u64 {
        let value = i.to_string();
        text = cookie(world.done(1 + i % 5, by_cookie("u", put_action(&value), Some(&text))));
        let read = world.done(1 + (i + 1) % 5, by_cookie("u", Action::Get, Some(&text)));
        assert!(matches!(read, Reply::Value { value: read, .. } if read == value));
        world.put(1 + i % 5, "k", &value);
        assert_eq!(world.value(1 + (i + 3) % 5, "k"), Some(value));
    }
}

/// SSM 3.1: WQ - 1 bricks may fail at once before anything can be lost.
#[test]
fn any_one_of_three_is_killed_at_any_time_and_no_operation_fails() {
    for seed in 0..6 {
        let verdict = kills(seed, 3, 6, calm());
        check(&verdict, &format!("seed {seed}"));
        assert_eq!((verdict.refused, verdict.unknown), (0, 0), "seed {seed}: {verdict:?}");
    }
}

/// SSM 3.1, with more bricks than copies.
#[test]
fn any_one_of_five_is_killed_at_any_time_and_no_operation_fails() {
    for seed in 100..103 {
        let verdict = kills(seed, 5, 6, calm());
        check(&verdict, &format!("seed {seed}"));
        assert_eq!((verdict.refused, verdict.unknown), (0, 0), "seed {seed}: {verdict:?}");
    }
}

/// SSM 3.2: waiting for WQ of W avoids coupling: a degraded brick does not slow a request. (A read by key asks another one as well
/// after some milliseconds.)
#[test]
fn a_hung_brick_slows_nobody_for_more_than_a_moment() {
    let mut world = World::settled(4, 3);
    world.put(1, "k", "v");
    world.hang(NodeId(3), Span::secs(5));
    let mut slow = 0;
    for i in 0..200 {
        let start = world.now;
        world.put(1 + i % 2, "k", &format!("{i}"));
        assert!(world.now.since(start) < Span::millis(5), "a write waited for the hung brick");
        let start = world.now;
        assert_eq!(world.value(1 + i % 2, "k"), Some(i.to_string()));
        slow += u32::from(world.now.since(start) > Span::millis(5));
        assert!(world.now.since(start) < Span::millis(15), "a read waited for the hung brick");
    }
    assert!(slow <= 4, "{slow} of 200 reads waited for the hung brick");
}

/// The same, where nobody writes: nothing but reads finds out who is slow, and each time that it answers again.
#[test]
fn a_brick_that_hangs_again_and_again_slows_no_read_where_nothing_is_written() {
    let mut world = World::settled(4, 3);
    world.put(1, "k", "v");
    world.run(Span::secs(1));
    let (mut slow, mut reads) = (0, 0);
    for _ in 0..20 {
        world.hang(NodeId(3), Span::millis(300));
        let end = world.now + Span::millis(400);
        while world.now < end {
            let start = world.now;
            assert_eq!(world.value(1 + reads % 2, "k").as_deref(), Some("v"));
            reads += 1;
            slow += u64::from(world.now.since(start) > Span::millis(3));
            assert!(world.now.since(start) < Span::millis(15), "a read waited for the hung brick");
        }
    }
    assert!(reads > 1000 && slow * 20 < reads, "{slow} of {reads} reads were slow");
    assert_eq!(world.figure(1, "session.timeouts"), 0, "nobody was waited for that long");
}

/// SSM 3.2: where WQ bricks do not answer, the caller is told so; it never waits for ever. SSM 3.1: t is the stub's own
/// wait for a brick, and may be set: here per namespace.
#[test]
fn a_brick_is_waited_for_as_long_as_the_namespace_says() {
    let mut world = World::settled(3, 3);
    for (namespace, timeout) in [("hasty", 10), ("carts", 60), ("patient", 500)] {
        world.run(Span::secs(5));
        world.done(1, of(namespace, "k", put_action("v")));
        // Both others are asked by a read at once: the one that hangs is given up after the timeout, and not before.
        let timeouts = world.figure(1, "session.timeouts");
        world.hang(NodeId(2), Span::secs(3));
        world.hang(NodeId(3), Span::secs(3));
        let start = world.now;
        let outcome = world.call(1, of(namespace, "k", put_action("w")));
        assert!(matches!(outcome, Outcome::Unknown(_)), "{namespace}: {outcome:?}");
        assert!(world.now.since(start) <= Span::millis(2100), "{namespace}: the budget is 2 s");
        let late = world.figure(1, "session.timeouts") - timeouts;
        // A leg is asked up to 40 times in one round.
        let most = 2 * (2000 / timeout).min(41);
        assert!(late >= 2 * (2000 / timeout).min(40) - 2 && late <= most, "{namespace}: {late} of {most} timeouts");
    }
}

/// SSM 3.2: legs of several lengths at once end each in its own time.
#[test]
fn timeouts_of_different_namespaces_do_not_wait_for_each_other() {
    let mut world = World::settled(4, 3);
    world.run(Span::secs(5));
    world.hang(NodeId(2), Span::secs(2));
    world.hang(NodeId(3), Span::millis(30));
    // Reads need a second brick: the first asked may hang; with 10 ms the other is asked long before 60 and 500 ms.
    let asks: Vec<_> = (0..60)
        .map(|i| (i, ["patient", "carts", "hasty"][i % 3]))
        .map(|(i, namespace)| (namespace, world.ask(1, of(namespace, &format!("k{i}"), Action::Get)), world.now))
        .collect();
    world.run(Span::secs(3));
    for (namespace, id, start) in asks {
        let (end, outcome) = &world.answers[&id];
        assert!(matches!(outcome, Outcome::Done(Reply::Absent)), "{namespace}: {outcome:?}");
        let most = match namespace {
            "hasty" => 60,
            "carts" => 130,
            _ => 1010,
        };
        assert!(end.since(start) <= Span::millis(most), "{namespace} took {:?}", end.since(start));
    }
}

/// SSM 3.2: a cookie that was changed, and one whose lease has ended, are refused, each with its own error.
#[test]
fn a_corrupt_and_an_expired_cookie_are_refused() {
    let mut world = World::settled(5, 3);
    let text = cookie(world.done(1, by_cookie("u", put_action("v"), None)));
    let mut forged = text.clone().into_bytes();
    forged[50] = if forged[50] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(world.done(1, by_cookie("u", Action::Get, Some(&forged))), Reply::BadCookie(CookieError::Forged));
    world.run(Span::secs(1801));
    assert_eq!(world.done(1, by_cookie("u", Action::Get, Some(&text))), Reply::BadCookie(CookieError::Expired));
}

/// SSM 3.2: a value whose checksum is wrong is never returned. On its way: it is as if it had not come.
#[test]
fn a_value_damaged_on_its_way_is_neither_stored_nor_returned() {
    let mut world = World::settled(6, 3);
    world.flips = 0.3;
    for i in 0..200 {
        let key = format!("k{i}");
        world.done(1 + i % 3, put(&key, &key));
        assert_eq!(world.value(1 + (i + 1) % 3, &key), Some(key));
    }
    let refused: u64 = (1..=3).map(|node| world.figure(node, "session.damaged_frames")).sum();
    assert!(refused > 50, "{refused} frames were damaged");
    world.flips = 0.0;
    world.run(Span::secs(1));
    let at_rest: u64 = (1..=3).map(|node| world.figure(node, "session.damaged")).sum();
    for i in 0..200 {
        assert_eq!(world.value(1 + i % 3, &format!("k{i}")), Some(format!("k{i}")));
    }
    assert_eq!(at_rest, 0, "nothing damaged was stored");
}

/// SSM 3.3: a value is gone when its lease has ended, and its memory comes back.
#[test]
fn values_end_with_their_lease() {
    let mut world = World::settled(6, 3);
    let action =
        |lease| Action::Put { kind: Kind::Text, value: "v".into(), lease, when: When::Always, want_old: false };
    world.done(1, op("short", action(Lease::For(Span::secs(2)))));
    world.done(1, op("long", action(Lease::Default)));
    world.run(Span::millis(1900));
    assert_eq!(world.value(2, "short"), Some("v".into()));
    assert_eq!(world.done(2, op("short", Action::Touch { lease: Lease::For(Span::secs(2)) })), Reply::Touched(true));
    world.run(Span::millis(1900));
    let reply = world.done(3, op("short", Action::GetTouch { lease: Lease::For(Span::secs(4)) }));
    assert!(matches!(reply, Reply::Value { lease_left, .. } if lease_left == Span::secs(4)), "{reply:?}");
    // Keep: a new value, the old end.
    world.run(Span::secs(3));
    world.done(
        1,
        op(
            "short",
            Action::Put {
                kind: Kind::Text,
                value: "w".into(),
                lease: Lease::Keep,
                when: When::Always,
                want_old: false,
            },
        ),
    );
    assert_eq!(world.value(2, "short"), Some("w".into()));
    world.run(Span::secs(2));
    for node in 1..=3 {
        assert_eq!(world.value(node, "short"), None);
        assert_eq!(world.value(node, "long"), Some("v".into()));
    }
    assert_eq!(world.done(1, op("short", Action::Touch { lease: Lease::Default })), Reply::Touched(false));
    world.run(Span::secs(1810));
    assert_eq!(world.value(1, "long"), None);
    world.run(Span::secs(4000));
    for node in 1..=3 {
        assert_eq!((world.figure(node, "session.entries"), world.figure(node, "session.bytes")), (0, 0));
    }
}

/// SSM 3.3, where a lease is shorter than that of what it replaced: a value hides what it replaced for good, also at a
/// brick that never heard of it. Where all bricks have it, nothing is kept for that.
#[test]
fn what_a_short_lease_replaced_does_not_come_back_when_it_ends() {
    let mut world = World::settled(6, 3);
    let lease = Lease::For(Span::secs(2));
    let short = || Action::Put { kind: Kind::Text, value: "new".into(), lease, when: When::Always, want_old: false };
    world.done(1, op("everywhere", short()));
    world.hang(NodeId(1), Span::millis(500));
    for i in 0..20 {
        world.put(2, &format!("k{i}"), "old");
    }
    world.run(Span::secs(1));
    world.hang(NodeId(3), Span::millis(500));
    for i in 0..20 {
        world.done(1, op(&format!("k{i}"), short()));
    }
    world.run(Span::secs(60));
    assert_eq!(world.figure(1, "session.entries"), 20, "versions that a brick missed, and no other");
    for i in 0..60 {
        assert_eq!(world.value(1 + i % 3, &format!("k{}", i / 3)), None);
    }
}

/// SSM 3.4: the window grows by one per window of answers while it is in use, halves on a timeout, and bounds what is
/// under way.
#[test]
fn the_window_of_a_brick_grows_with_answers_and_halves_on_timeouts() {
    let mut world = World::settled(7, 3);
    let stub = |world: &mut World| world.session(1).stubs().into_iter().find(|stub| stub.brick == NodeId(2)).unwrap();
    let before = stub(&mut world);
    for i in 0..600 {
        world.put(1, &format!("k{i}"), "v");
    }
    assert_eq!(stub(&mut world).window, before.window, "what is not used does not grow");
    for round in 0..5 {
        for i in 0..250 {
            world.ask(1, put(&format!("k{round}/{i}"), "v"));
        }
        world.run(Span::millis(20));
    }
    let grown = stub(&mut world);
    assert!(grown.window > before.window + 1.5 && grown.window < before.window + 3.0, "{before:?} {grown:?}");
    world.hang(NodeId(2), Span::millis(500));
    for i in 0..1000 {
        world.ask(1, put(&format!("j{i}"), "v"));
        let now = stub(&mut world);
        assert!(f64::from(now.under_way) <= now.window.ceil(), "{now:?}");
    }
    world.run(Span::millis(100));
    let halved = stub(&mut world);
    assert!(halved.window <= grown.window / 2.0 + 1.0, "{grown:?} {halved:?}");
    assert!(halved.timeouts > 200 && halved.no_room > 500 && halved.slow, "{halved:?}");
    world.run(Span::secs(1));
    world.put(1, "k", "v");
    world.run(Span::millis(10));
    assert!(!stub(&mut world).slow, "an answer, and it is trusted again");
}

/// SSM 3.4: where too few bricks have room the stub says so at once, and keeps nothing in a queue.
#[test]
fn overload_is_refused_at_once() {
    let mut world = World::settled(4, 3);
    world.hang(NodeId(2), Span::secs(60));
    world.hang(NodeId(3), Span::secs(60));
    let asks: Vec<_> = (0..400).map(|i| world.ask(1, put(&format!("k{i}"), "v"))).collect();
    let refused = asks.iter().filter(|id| matches!(world.answers.get(id), Some((_, Outcome::Refused(_))))).count();
    assert!(refused >= 100, "{refused} refused at once");
    world.run(Span::secs(3));
    let unknown = asks.iter().filter(|id| matches!(world.answers[id].1, Outcome::Unknown(_))).count();
    assert_eq!(refused + unknown, 400, "the rest may have happened");
    let before = world.now;
    let id = world.ask(1, put("late", "v"));
    world.run(Span::secs(3));
    assert!(
        matches!(world.answers[&id].1, Outcome::Refused(_) | Outcome::Unknown(_)),
        "{:?} {before:?}",
        world.answers[&id]
    );
}

/// SSM 3.4: a brick drops, when it takes it up, what its stub has given up already.
#[test]
fn a_request_that_lay_too_long_in_a_queue_is_not_executed() {
    let mut world = World::settled(4, 3);
    for i in 0..50 {
        world.put(1, &format!("k{i}"), "v");
    }
    world.hang(NodeId(2), Span::millis(400));
    for i in 0..50 {
        world.ask(1, put(&format!("k{i}"), "w"));
    }
    world.run(Span::millis(500));
    assert!(world.figure(2, "session.late_dropped") >= 50);
    world.run(Span::secs(1));
    assert_eq!(world.value(2, "k7"), Some("w".into()));
}

/// SSM 3.4: with fewer live bricks than are needed there is nothing to wait for: refused at once, except by a node that
/// has just started and is still meeting the others.
#[test]
fn with_too_few_live_bricks_the_refusal_comes_at_once() {
    let mut world = World::settled(8, 3);
    world.put(1, "k", "v");
    world.run(Span::secs(5));
    world.kill(NodeId(2));
    world.kill(NodeId(3));
    world.run(Span::millis(400));
    for asked in [put("k", "w"), op("k", Action::Get), op("k", Action::Remove), op("k", Action::Take)] {
        let start = world.now;
        let outcome = world.call(1, asked);
        assert!(matches!(&outcome, Outcome::Refused(refused) if refused.retry_after.is_some()), "{outcome:?}");
        assert!(world.now.since(start) < Span::millis(1), "it took {:?}", world.now.since(start));
    }
}

/// SSM 3.5: a restart is all that recovery of a stub or a brick takes; a cookie that its client kept is good afterwards.
#[test]
fn a_restarted_node_serves_old_cookies_and_new_writes_at_once() {
    let mut world = World::settled(9, 3);
    let texts: Vec<_> =
        (0..20).map(|i| cookie(world.done(1, by_cookie(&format!("u{i}"), put_action("v"), None)))).collect();
    world.kill(NodeId(1));
    world.run(Span::millis(500));
    world.start(NodeId(1));
    for (i, text) in texts.iter().enumerate() {
        let read = world.done(1, by_cookie(&format!("u{i}"), Action::Get, Some(text)));
        assert!(matches!(read, Reply::Value { .. }), "{read:?}");
    }
    cookie(world.done(1, by_cookie("new", put_action("v"), None)));
    assert!(matches!(world.put(1, "k", "v"), Reply::Stored { .. }));
}

/// SSM 3.5: a new brick is no one's reader at first, is written to at once, and comes to carry an equal share.
#[test]
fn a_new_brick_carries_an_equal_share_within_seconds() {
    let mut world = World::settled(10, 3);
    let mut clients = Clients::new(8, 60);
    clients.work(&mut world, Span::secs(2));
    world.add();
    clients.work(&mut world, Span::secs(4));
    let before: Vec<u64> = (1..=4).map(|node| world.figure(node, "session.brick_operations")).collect();
    clients.work(&mut world, Span::secs(6));
    let done: Vec<u64> =
        (1..=4).map(|node| world.figure(node, "session.brick_operations") - before[node as usize - 1]).collect();
    let mean = done.iter().sum::<u64>() / 4;
    assert!(done.iter().all(|n| n.abs_diff(mean) * 4 <= mean), "operations of each brick: {done:?}");
    clients.finish(&mut world);
    let verdict = clients.judge(&world);
    check(&verdict, "a new brick");
    assert_eq!((verdict.refused, verdict.unknown), (0, 0), "{verdict:?}");
}

/// SSM 3.6: a brick may be restarted on mere suspicion, over and over: nothing is lost, nobody notices.
#[test]
fn restarting_one_brick_after_the_other_without_any_reason_costs_nothing() {
    let mut world = World::settled(11, 3);
    let mut clients = Clients::new(6, 20);
    for round in 0..6 {
        let node = NodeId(1 + round % 3);
        world.kill(node);
        world.restart_in(node, Span::millis(100));
        clients.work(&mut world, Span::millis(600));
        world.settle();
    }
    clients.finish(&mut world);
    let verdict = clients.judge(&world);
    check(&verdict, "prophylactic restarts");
    assert_eq!((verdict.refused, verdict.unknown), (0, 0), "{verdict:?}");
}

/// SSM 3.7, table 2: the ratio of MTTF to write interval that each number of nines takes.
#[test]
fn the_nines_of_table_2_come_out() {
    let table = [(1, 3.0, 2.0), (2, 12.7, 6.5), (3, 43.3, 16.2), (4, 140.0, 37.2), (5, 446.8, 82.4)];
    for (nines, two, three) in table {
        let wanted = 10f64.powi(-nines);
        for (wq, rho) in [(2, two), (3, three)] {
            let at = loss(wq, rho);
            // The paper rounds the ratios.
            assert!((0.85..1.06).contains(&(at / wanted)), "{nines} nines, WQ {wq}, ratio {rho}: {at:e}");
        }
    }
}

/// SSM 3.7, equations 1 and 2, against bricks that die and a session that is written at random.
#[test]
fn the_odds_are_those_of_bricks_that_die_at_random() {
    let mut rng = Rng::new(12);
    let mut after = |rate: f64| -((rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64).ln() / rate;
    for (wq, rho) in [(1, 2.0), (2, 3.0), (2, 10.0), (3, 4.0)] {
        let rounds = 200_000;
        let lost = (0..rounds).filter(|_| {
            let write = after(rho);
            (0..wq).all(|_| after(1.0) < write)
        });
        let (seen, said) = (lost.count() as f64 / f64::from(rounds), loss(wq, rho));
        assert!((seen / said - 1.0).abs() < 0.05, "WQ {wq}, ratio {rho}: {seen} seen, {said} said");
    }
}
