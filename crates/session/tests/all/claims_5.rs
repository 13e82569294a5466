//! What section 5 of the paper (SSM) claims from its experiments, one test per claim, in virtual time: correctness,
//! performance, throughput and availability (5.1), self-tuning (5.2), self-protection (5.3), and faults that are survived
//! (5.4 to 5.8). What needs real machines is measured by `lab`. docs/design/session.md lists the tests.

use crate::world::{Clients, Verdict, World, by_cookie, op, put, put_action};
use base::{NodeId, Outcome, Priority, Span};
use class::Class;
use session::{Action, Op, Reply};

fn no_failure(clients: &mut Clients, world: &mut World, what: &str) -> Verdict {
    clients.finish(world);
    let verdict = clients.judge(world);
    assert!(verdict.reads > 100 && verdict.writes > 100, "{what}: too little happened: {verdict:?}");
    assert!(verdict.stale.is_empty() && verdict.missing.is_empty(), "{what}: {verdict:#?}");
    assert_eq!((verdict.refused, verdict.unknown), (0, 0), "{what}: {verdict:?}");
    verdict
}

/// How long operations took that began within these moments.
fn slowest(clients: &Clients, world: &World, from: base::Time, to: base::Time) -> (usize, Span) {
    let within = clients.history.iter().filter(|op| (from..to).contains(&op.start));
    let took: Vec<Span> = within.filter_map(|op| Some(world.answers.get(&op.id)?.0.since(op.start))).collect();
    (took.len(), took.into_iter().max().unwrap_or_default())
}

/// SSM 5.1, correctness and availability, figure 4: four bricks, one is killed and is back ten seconds later. Every
/// request is done, within the time given, before, during and after.
#[test]
fn a_brick_that_dies_and_comes_back_fails_no_request_and_loses_nothing() {
    let mut world = World::settled(1, 4);
    let mut clients = Clients::new(10, 40);
    let stubs = [1, 2, 3];
    clients.work_through(&mut world, &stubs, Span::secs(5));
    world.kill(NodeId(4));
    clients.work_through(&mut world, &stubs, Span::secs(10));
    world.start(NodeId(4));
    clients.work_through(&mut world, &stubs, Span::secs(5));
    no_failure(&mut clients, &mut world, "figure 4");
}

/// SSM 5.1, correctness: WQ - 1 bricks may be gone at one moment.
#[test]
fn no_single_brick_is_the_only_one_with_a_value() {
    for victim in 1..=4 {
        let mut world = World::settled(2, 4);
        for i in 0..100 {
            world.put(1 + i % 4, &format!("k{i}"), &format!("v{i}"));
        }
        world.kill(NodeId(victim));
        for i in 0..100 {
            let through = world.live()[i % 3].0;
            assert_eq!(world.value(through, &format!("k{i}")), Some(format!("v{i}")));
        }
    }
}

/// SSM 5.1, performance: with W > WQ and R > 1 no request depends on one brick, so neither does its time.
#[test]
fn no_request_waits_for_a_brick_that_died() {
    let mut world = World::settled(3, 4);
    let mut clients = Clients::new(6, 40);
    let stubs = [1, 2, 3];
    clients.work_through(&mut world, &stubs, Span::secs(1));
    let killed = world.now;
    world.kill(NodeId(4));
    clients.work_through(&mut world, &stubs, Span::secs(2));
    let (before, usual) = slowest(&clients, &world, base::Time::ZERO, killed);
    let (during, worst) = slowest(&clients, &world, killed, world.now);
    no_failure(&mut clients, &mut world, "no waiting");
    assert!(before > 100 && during > 100);
    assert!(
        usual < Span::millis(5) && worst < Span::millis(65),
        "usually {usual:?}, {worst:?} while a death was unknown"
    );
}

/// SSM 5.1, throughput: a dead brick's load is shared by all others; there are no buddies.
#[test]
fn the_load_of_a_dead_brick_is_spread_over_all_others() {
    let mut world = World::settled(4, 6);
    let mut clients = Clients::new(8, 300);
    let mut share = |world: &mut World, nodes: std::ops::RangeInclusive<u64>| -> Vec<u64> {
        let count = |world: &mut World| {
            nodes.clone().map(|node| world.figure(node, "session.brick_operations")).collect::<Vec<_>>()
        };
        let before = count(world);
        clients.work_through(world, &[1, 2, 3, 4, 5], Span::secs(4));
        count(world).iter().zip(before).map(|(after, before)| after - before).collect()
    };
    share(&mut world, 1..=6);
    world.kill(NodeId(6));
    world.run(Span::millis(500));
    // By key the dead one keeps its place for a minute; then its share is placed anew.
    world.run(Span::secs(70));
    world.settle();
    let done = share(&mut world, 1..=5);
    let mean = done.iter().sum::<u64>() / 5;
    assert!(done.iter().all(|n| n.abs_diff(mean) * 4 <= mean), "operations of each brick: {done:?}");
    no_failure(&mut clients, &mut world, "spread");
}

/// SSM 5.1, throughput: a new or revived brick never takes any away.
#[test]
fn a_new_brick_and_a_revived_one_slow_nobody() {
    let mut world = World::settled(5, 3);
    let mut clients = Clients::new(8, 60);
    let stubs = [1, 2, 3];
    let mut done_in = |world: &mut World, span: Span| {
        let before = clients.history.len();
        clients.work_through(world, &stubs, span);
        clients.history.len() - before
    };
    let usual = done_in(&mut world, Span::secs(3));
    world.add();
    let growing = done_in(&mut world, Span::secs(3));
    world.kill(NodeId(4));
    world.run(Span::secs(1));
    world.start(NodeId(4));
    let reviving = done_in(&mut world, Span::secs(3));
    for during in [growing, reviving] {
        assert!(during * 10 >= usual * 9, "{during} operations in the time of {usual}");
    }
    no_failure(&mut clients, &mut world, "new and revived");
}

/// Asks for puts at a steady rate through one stub: how many were done, were refused within a millisecond, and ended
/// otherwise.
fn offered(world: &mut World, per_second: u64, seconds: u64) -> (u64, u64, u64) {
    let mut asks = Vec::new();
    for i in 0..per_second * seconds {
        asks.push((world.now, world.ask(1, by_cookie(&format!("k{i}"), put_action("v"), None))));
        world.run(Span::micros(1_000_000 / per_second));
    }
    world.run(Span::secs(3));
    let (mut done, mut refused, mut other) = (0, 0, 0);
    for (start, id) in asks {
        match &world.answers[&id] {
            (_, Outcome::Done(_)) => done += 1,
            (end, Outcome::Refused(_)) if end.since(start) <= Span::millis(1) => refused += 1,
            _ => other += 1,
        }
    }
    (done / seconds, refused / seconds, other / seconds)
}

/// Seven bricks of which the six that a stub asks over the network take 2 ms for a request: some 1000 writes a second.
fn slow_bricks(seed: u64) -> World {
    let mut world = World::settled(seed, 7);
    world.service = (2..=7).map(|node| (NodeId(node), Span::millis(2))).collect();
    world
}

/// SSM 5.2, figures 5 to 7: the stub finds by itself what the bricks can do; what is more is refused, not made to wait.
/// SSM 5.3, figures 8 and 9: overload does not make goodput collapse, and refusals come at once.
#[test]
fn overload_is_refused_at_once_and_goodput_does_not_collapse() {
    let peak = offered(&mut slow_bricks(6), 900, 4).0;
    assert!(peak > 700, "{peak} a second when there is no overload");
    for times in [2, 3] {
        let (done, refused, other) = offered(&mut slow_bricks(6), 1200 * times, 4);
        assert!(
            done * 10 >= peak * 8,
            "{times} times the load: {done} of {peak} done, {refused} refused, {other} other"
        );
        assert!(refused > 0, "{times} times: {done} done, {refused} refused at once, {other} otherwise");
    }
}

/// SSM 5.3: bricks throw away what has timed out, and do only work that is still of use.
#[test]
fn a_brick_with_a_long_queue_skips_what_nobody_waits_for() {
    let mut world = slow_bricks(7);
    offered(&mut world, 4000, 2);
    let dropped: u64 = (2..=7).map(|node| world.figure(node, "session.late_dropped")).sum();
    assert!(dropped > 0, "nothing was late under four times the load");
}

/// SSM 5.4, 5.5, figure 10: a memory fault that crashes a brick is a restart like any other. Six bricks.
#[test]
fn a_brick_that_crashes_at_any_moment_of_the_load_is_tolerated() {
    let mut world = World::settled(8, 6);
    let mut clients = Clients::new(8, 40);
    for round in 0..5 {
        world.kill(NodeId(6));
        world.restart_in(NodeId(6), Span::millis(100 + 300 * round));
        clients.work_through(&mut world, &[1, 2, 3, 4, 5], Span::secs(2));
        world.settle();
    }
    no_failure(&mut clients, &mut world, "figure 10");
}

/// SSM 5.6, figure 11: a bit flips in a value that was just written and is about to be read. It is noticed, not returned,
/// repaired from another brick, and counted.
#[test]
fn a_flipped_bit_is_never_returned_and_is_repaired() {
    for node in 1..=3 {
        let mut world = World::settled(9, 3);
        world.put(1, "k", "whole");
        world.run(Span::millis(10));
        assert!(world.session(node).flip_bit(Some(b"k"), 0));
        assert_eq!(world.value(node, "k"), Some("whole".into()));
        assert_eq!(world.figure(node, "session.damaged"), 1);
        world.run(Span::millis(10));
        for other in (1..=3).filter(|other| *other != node) {
            world.kill(NodeId(other));
        }
        // The repaired copy is there: alone it is refused, as two are needed, but with one empty brick it is found.
        let copies = world.figure(node, "session.entries");
        assert_eq!((copies, world.figure(node, "session.starts_anew")), (1, 0));
    }
}

/// SSM 5.6, in what stands beside the value: a version that became newer at one brick does not win against what is written
/// later, whichever bricks are asked, and does not come back through a repair or a fill.
#[test]
fn a_flipped_bit_beside_a_value_brings_no_older_one_back() {
    for node in 1..=3 {
        for read_first in [false, true] {
            let mut world = World::settled(14, 3);
            world.put(1, "k", "before");
            world.run(Span::millis(10));
            assert!(world.session(node).flip_version(b"k"));
            if read_first {
                assert_eq!(world.value(node, "k"), Some("before".into()));
            }
            world.put(node % 3 + 1, "k", "after");
            for through in (1..=3).cycle().take(12) {
                assert_eq!(world.value(through, "k"), Some("after".into()), "node {node}, through {through}");
            }
            world.run(Span::secs(2));
            assert_eq!(world.figure(node, "session.damaged"), 1, "node {node}");
            world.kill(NodeId(node % 3 + 1));
            world.run(Span::secs(1));
            assert_eq!(world.value(node, "k"), Some("after".into()));
        }
    }
}

/// SSM 5.6, by cookie: a good copy goes back to where the damaged one was.
#[test]
fn a_flipped_bit_behind_a_cookie_is_repaired_too() {
    let mut world = World::settled(10, 3);
    let Reply::Stored { cookie: Some(text), .. } = world.done(1, by_cookie("u", put_action("whole"), None)) else {
        panic!("a cookie")
    };
    world.run(Span::millis(10));
    for node in 1..=3 {
        assert!(world.session(node).flip_bit(None, 0));
        for through in (1..=3).cycle().take(30) {
            let read = world.done(through, by_cookie("u", Action::Get, Some(&text)));
            assert!(matches!(&read, Reply::Value { value, .. } if value == "whole"), "{read:?}");
            world.run(Span::millis(10));
        }
    }
    let copies: u64 = (1..=3).map(|node| world.figure(node, "session.entries")).sum();
    assert_eq!(copies, 3);
}

/// SSM 5.6: the brick restarts when its checksums fail: here when three do within a minute. Meanwhile, and while it is
/// filled anew by the others, every request is served.
#[test]
fn a_brick_whose_memory_fails_starts_anew_and_nobody_notices() {
    let mut world = World::settled(11, 3);
    for i in 0..200 {
        world.put(1 + i % 3, &format!("k{i}"), &format!("v{i}"));
    }
    // Two far apart are chance.
    for i in 0..2 {
        assert!(world.session(2).flip_bit(Some(format!("k{i}").as_bytes()), 0));
        assert_eq!(world.value(2, &format!("k{i}")), Some(format!("v{i}")));
        world.run(Span::secs(61));
    }
    assert_eq!(world.figure(2, "session.starts_anew"), 0);
    let mut clients = Clients::new(6, 20);
    clients.work(&mut world, Span::millis(200));
    for i in 0..3 {
        assert!(world.session(2).flip_bit(Some(format!("k{i}").as_bytes()), 0));
        assert_eq!(world.value(2, &format!("k{i}")), Some(format!("v{i}")));
    }
    assert_eq!(world.figure(2, "session.starts_anew"), 1, "{:?}", world.notes);
    assert!(world.notes.iter().any(|note| note.contains("starts anew")), "{:?}", world.notes);
    clients.work(&mut world, Span::millis(500));
    world.settle();
    assert!(world.figure(2, "session.entries") >= 200, "filled anew");
    no_failure(&mut clients, &mut world, "starts anew");
    for i in 0..200 {
        assert_eq!(world.value(2, &format!("k{i}")), Some(format!("v{i}")));
    }
}

/// SSM 5.6, while another brick is away: its restart would be the second loss at once, so the brick waits; each damaged value is found by itself meanwhile.
#[test]
fn a_failing_brick_does_not_start_anew_while_another_is_away() {
    let mut world = World::settled(12, 3);
    for i in 0..20 {
        world.put(1, &format!("k{i}"), "v");
    }
    world.kill(NodeId(3));
    world.run(Span::secs(1));
    for i in 0..4 {
        assert!(world.session(2).flip_bit(Some(format!("k{i}").as_bytes()), 0));
        assert_eq!(world.value(1, &format!("k{i}")), Some("v".into()));
        assert_eq!(world.value(2, &format!("k{i}")), Some("v".into()));
    }
    assert!(world.figure(2, "session.damaged") >= 3);
    assert_eq!(world.figure(2, "session.starts_anew"), 0);
    world.start(NodeId(3));
    world.settle();
    // An answer of the third says that it is filled.
    world.put(2, "k7", "w");
    world.run(Span::secs(1));
    assert_eq!(world.figure(2, "session.starts_anew"), 1, "now it may");
}

/// SSM 5.7, figure 12: one brick of six loses 70 % of what it sends, then is killed and comes back. Every request through
/// the others is done, and data is there at all times.
#[test]
fn a_brick_that_loses_most_of_what_it_sends_is_tolerated() {
    let mut world = World::settled(13, 6);
    let mut clients = Clients::new(8, 40);
    let stubs = [1, 2, 3, 4, 5];
    world.loses.insert(NodeId(6), 0.7);
    clients.work_through(&mut world, &stubs, Span::secs(10));
    world.kill(NodeId(6));
    clients.work_through(&mut world, &stubs, Span::secs(5));
    world.loses.clear();
    world.start(NodeId(6));
    clients.work_through(&mut world, &stubs, Span::secs(5));
    no_failure(&mut clients, &mut world, "figure 12");
}

/// SSM 5.8, figure 13: one brick of six takes a millisecond more for each request. Every request is served.
#[test]
fn a_brick_that_is_slow_with_each_request_is_tolerated() {
    let mut world = World::settled(14, 6);
    let mut clients = Clients::new(8, 40);
    world.service.insert(NodeId(6), Span::millis(1));
    let start = world.now;
    clients.work_through(&mut world, &[1, 2, 3, 4, 5], Span::secs(10));
    let (_, worst) = slowest(&clients, &world, start, world.now);
    assert!(worst < Span::millis(70), "{worst:?}");
    no_failure(&mut clients, &mut world, "figure 13");
}

/// SSM 5.1, availability, seen from the memory of one brick: when it is full, new sessions are refused and say so; those
/// that are there go on being read and written.
#[test]
fn a_full_brick_refuses_new_sessions_and_serves_the_ones_it_has() {
    let mut world = World::new(15, 3).brick_bytes(200_000);
    for node in 1..=3 {
        world.kill(NodeId(node));
        world.start(NodeId(node));
    }
    world.settle();
    let value = "v".repeat(1000);
    let mut stored = Vec::new();
    let why = loop {
        let key = format!("k{}", stored.len());
        match world.call(1, put(&key, &value)) {
            Outcome::Done(_) => stored.push(key),
            Outcome::Refused(refused) => break refused,
            // One brick had room, two had not.
            Outcome::Unknown(_) => stored.push(String::new()),
        }
    };
    assert!(why.why.starts_with(session::FULL) && why.why.contains("--brick-memory"), "{why:?}");
    assert!(why.retry_after.is_some());
    assert!(stored.len() > 100, "{} stored", stored.len());
    let stubs = world.session(1).stubs();
    assert!(stubs.iter().all(|stub| stub.full > 0 && stub.no_room + stub.turned_away == 0), "{stubs:?}");
    for key in stored.iter().filter(|key| !key.is_empty()) {
        assert_eq!(world.value(2, key).as_deref(), Some(&*value));
        assert!(matches!(world.put(3, key, &value), Reply::Stored { .. }), "{key} is written as before");
    }
    for key in stored.iter().filter(|key| !key.is_empty()).take(20) {
        assert_eq!(world.done(1, op(key, Action::Remove)), Reply::Removed(true));
    }
    assert!(matches!(world.put(1, "new", &value), Reply::Stored { .. }), "there is room again");
}

/// SSM 7 has it as future work that in overload some are shed before others: what matters less is refused first, and what
/// matters more does not notice.
#[test]
fn of_what_is_too_much_for_a_brick_stubs_refuse_first_what_matters_less() {
    let mut world = World::settled(21, 3);
    // Each takes two thousand requests a second; more than four are asked for.
    world.service = [2, 3].map(|node| (NodeId(node), Span::micros(500))).into();
    let mut asked = Vec::new();
    for ms in 0..3_000 {
        for n in 0..4 {
            let write = Op { priority: Priority::LOWEST, ..put(&format!("low{n}-{ms}"), "v") };
            asked.push((false, world.now, world.ask(1, write)));
        }
        if ms % 2 == 0 {
            asked.push((true, world.now, world.ask(1, put(&format!("normal-{ms}"), "v"))));
        }
        world.run(Span::millis(1));
    }
    world.run(Span::secs(3));
    let outcomes = |normal: bool| {
        asked.iter().filter(move |(is, ..)| *is == normal).map(|(_, at, id)| {
            let (end, outcome) = &world.answers[id];
            (end.since(*at), outcome)
        })
    };
    let share = |normal| {
        let done = outcomes(normal).filter(|(_, outcome)| matches!(outcome, Outcome::Done(_))).count();
        done as f64 / outcomes(normal).count() as f64
    };
    assert!(share(true) > 0.99, "of what matters {} was done", share(true));
    let mut took: Vec<Span> = outcomes(true).map(|(took, _)| took).collect();
    took.sort_unstable();
    assert!(took[took.len() * 9 / 10] < Span::millis(30), "{:?}", took[took.len() * 9 / 10]);
    // What is left over is used.
    assert!((0.1..0.65).contains(&share(false)), "of the rest {} was done", share(false));
    let at_once =
        outcomes(false).filter(|(took, outcome)| matches!(outcome, Outcome::Refused(_)) && took.0 == 0).count();
    assert!(at_once > asked.len() / 3, "{at_once} of {} were refused at once", asked.len());
    // Whoever looks sees for which brick's sake: each write that was refused is one for a brick at least.
    let stubs = world.session(1).stubs();
    assert!(stubs.iter().map(|stub| stub.turned_away).sum::<u64>() >= at_once as u64, "{at_once}, {stubs:?}");
    assert!(stubs.iter().all(|stub| stub.turned_away > 0 && stub.full == 0), "{stubs:?}");
    let stages = world.session(2).stages(base::Time::ZERO);
    assert!(stages.iter().any(|(name, shown)| *name == "session-brick" && shown.overloads > 0));
}

/// SSM 3.4: a brick need not do what nobody waits for any more. What is left of the asker's time travels with each request.
#[test]
fn a_brick_is_told_of_the_time_that_is_left_and_of_how_much_it_matters() {
    use session::{Input, Output};
    let mut world = World::settled(22, 3);
    let now = base::Now { mono: world.now, wall_ms: world.wall_ms() };
    for (budget, priority, told) in [(Span::millis(7), Priority(6), 7), (Span::secs(2), Priority::LOWEST, 60)] {
        let (mut out, op) = (Vec::new(), Op { priority, ..put("k", "v") });
        world.session(1).handle(now, Input::Ask { id: base::AskId(1 << 40), budget, op }, &mut out);
        let frames: Vec<_> =
            out.iter().filter_map(|o| if let Output::Send { frame, .. } = o { Some(frame) } else { None }).collect();
        assert_eq!(frames.len(), 2);
        assert!(frames.iter().all(|frame| (frame.budget_ms, frame.priority) == (told, priority)), "{frames:?}");
    }
}
