//! What section 4 of the paper (SSM), and 5.4 and 5.8, claim of healing: a brick that does worse than its peers is found by
//! comparison and restarts; one test per claim, in virtual time. docs/design/session.md lists the tests.

use crate::world::{World, by_cookie, put, put_action};
use base::{NodeId, Outcome, Span};
use session::{Input, Measure, Opinion, Outlier, Report, limits};

const USUAL: Span = Span(limits::OUTLIER_LEARNS as u64 * 1_500_000);
/// From the fault to the restart, as in the paper "5 to 10 seconds" and those in which opinions are told.
const SOON: Span = Span(limits::OUTLIER_AFTER.0 + 8_000_000);

/// New sessions through these nodes, steadily: of `span`, until one of all bricks starts anew. How many of them failed, and
/// which brick it was.
fn load(world: &mut World, stubs: u64, span: Span) -> (usize, Option<u64>) {
    let (end, mut asked, mut n) = (world.now + span, Vec::new(), 0);
    let mut anew = None;
    let before: Vec<u64> = restarts(world);
    while world.now < end && anew.is_none() {
        n += 1;
        asked.push(world.ask(1 + n % stubs, by_cookie(&format!("u{}", n % 500), put_action("v"), None)));
        world.run(Span::millis(3));
        anew = restarts(world).iter().zip(&before).position(|(now, before)| now > before).map(|at| at as u64 + 1);
    }
    world.run(Span::secs(3));
    let failed = asked.iter().filter(|id| !matches!(world.answers[id].1, Outcome::Done(_))).count();
    (failed, anew)
}

fn restarts(world: &mut World) -> Vec<u64> {
    let all: Vec<u64> = world.nodes.keys().map(|node| node.0).collect();
    let of =
        |node| world.nodes.get(&NodeId(node)).and_then(|host| host.session.as_ref()).map_or(0, |s| s.starts_anew());
    all.into_iter().map(of).collect()
}

/// SSM 4, 5.4, 5.8, figure 13: one brick of six takes a millisecond more for each request. It is found within 5 to 10
/// seconds (and those in which nodes tell each other), and restarts; all requests are served.
#[test]
fn a_brick_that_becomes_slower_than_its_peers_starts_anew_and_nobody_notices() {
    let mut world = World::settled(41, 6);
    assert_eq!(load(&mut world, 5, USUAL), (0, None));
    world.lags.insert(NodeId(6), Span::millis(1));
    let began = world.now;
    let (failed, anew) = load(&mut world, 5, SOON);
    assert_eq!((failed, anew), (0, Some(6)), "{:?}", world.notes);
    assert!(world.now.since(began) > limits::OUTLIER_AFTER, "not for a moment in which it was busy");
    let note = world.notes.iter().find(|note| note.contains("starts anew")).unwrap();
    assert!(note.contains("nodes find that this brick differs from all others: it answers in "), "{note}");
    // The restart has cured it, and it is filled.
    world.lags.clear();
    assert_eq!(load(&mut world, 5, SOON), (0, None));
    assert!(world.figure(6, "session.entries") > 100);
}

/// SSM 4: a network fault is one of the kind; six bricks, one loses a part of what it sends.
#[test]
fn a_brick_that_loses_its_answers_starts_anew() {
    let mut world = World::settled(42, 6);
    // Those without clients know by what nodes tell each other that all are settled.
    assert_eq!(load(&mut world, 2, USUAL), (0, None));
    world.loses.insert(NodeId(3), 0.3);
    let (failed, anew) = load(&mut world, 2, SOON);
    assert_eq!((failed, anew), (0, Some(3)), "{:?}", world.notes);
    assert!(world.notes.iter().any(|note| note.contains("it is late")), "{:?}", world.notes);
}

/// SSM 4: "good behaviour is based on both the past behaviour and the majority behaviour": one that always was slower is not
/// ill, it is further away; and where several become slower it is rather what they share.
#[test]
fn a_brick_that_is_as_it_was_and_two_that_differ_at_once_are_left_alone() {
    let mut world = World::settled(43, 6);
    world.lags.insert(NodeId(6), Span::millis(1));
    assert_eq!(load(&mut world, 5, USUAL + SOON), (0, None), "{:?}", world.notes);

    let mut world = World::settled(48, 8);
    assert_eq!(load(&mut world, 5, USUAL), (0, None));
    world.lags.extend([2, 3].map(|node| (NodeId(node), Span::millis(1))));
    assert_eq!(load(&mut world, 5, SOON), (0, None), "{:?}", world.notes);
}

/// SSM 3.1, 4: restarts must not be the second loss at once: not with too few bricks (W + 1 others), not while one is away.
#[test]
fn no_brick_restarts_where_too_few_others_live() {
    let mut world = World::settled(44, 4);
    assert_eq!(load(&mut world, 3, USUAL), (0, None));
    world.lags.insert(NodeId(4), Span::millis(2));
    assert_eq!(load(&mut world, 3, SOON), (0, None), "{:?}", world.notes);

    let mut world = World::settled(45, 6);
    assert_eq!(load(&mut world, 4, USUAL), (0, None));
    world.lags.insert(NodeId(6), Span::millis(2));
    world.kill(NodeId(5));
    let (failed, anew) = load(&mut world, 4, SOON);
    assert_eq!(anew, None, "{failed} failed, {:?}", world.notes);
}

/// These nodes say so now.
fn say(world: &mut World, who: &[u64], of: u64, compares: bool) -> u64 {
    let outlier = Outlier { brick: NodeId(of), measure: Measure::Took, does: 3_000, others: 400 };
    for from in who.iter().map(|from| NodeId(*from)) {
        let filled = world.session(from.0).filled();
        let opinion = Opinion { compares, filled, outlier: Some(outlier.clone()) };
        world.input(NodeId(of), Input::Told { from, report: Report { opinion, ..Report::default() } });
    }
    world.figure(of, "session.starts_anew")
}

/// Known to all as settled, with answers of all.
fn acquainted(world: &mut World) {
    world.settle();
    for i in 0..40 {
        for node in 1..=6 {
            world.done(node, put(&format!("k{i}"), "v"));
        }
    }
}

/// SSM 4: most have to say so; what one stub alone thinks may be the stub's fault.
#[test]
fn a_brick_starts_anew_only_if_most_say_so_at_one_time() {
    let mut world = World::settled(46, 6);
    acquainted(&mut world);
    // From here on they say nothing by themselves.
    world.told = base::Time(u64::MAX);
    assert_eq!(say(&mut world, &[2], 1, true), 0, "one alone");
    world.run(limits::OUTLIER_SAID_FOR);
    assert_eq!(say(&mut world, &[3], 1, true), 0, "another one, but long after");
    assert_eq!(say(&mut world, &[4, 5, 6], 1, false), 0, "those that cannot tell");
    for from in [4, 5, 6].map(NodeId) {
        let filled = world.session(from.0).filled();
        let opinion = Opinion { compares: true, filled, outlier: None };
        world.input(NodeId(1), Input::Told { from, report: Report { opinion, ..Report::default() } });
    }
    assert_eq!(say(&mut world, &[2, 3], 1, true), 0, "two of five");
    assert_eq!(say(&mut world, &[4], 1, true), 1, "three of five");
}

/// SSM 4: "because restarting a brick will only cure transient failures, if [...] a brick has been restarted more than a
/// threshold number of times [...], it can [...] notify an administrator".
#[test]
fn what_restarts_do_not_cure_is_left_alone_and_said() {
    let mut world = World::settled(47, 6);
    let (mut times, mut waits) = (0, Vec::new());
    let (begin, mut last) = (world.now, world.now);
    while world.now.since(begin) < Span::secs(3 * 3600) {
        acquainted(&mut world);
        let now = say(&mut world, &[2, 3, 4], 1, true);
        if now > times {
            waits.push(world.now.since(last).0 / 1_000_000);
            (times, last) = (now, world.now);
        }
        world.run(Span::secs(60));
    }
    assert_eq!(times, limits::OUTLIER_RESTARTS_MAX as u64);
    assert!(waits[1] >= 600 && waits[2] >= 1200 && waits[2] < 1400, "{waits:?}");
    let said: Vec<_> = world.notes.iter().filter(|note| note.contains("see to its machine")).collect();
    assert_eq!(said.len(), 1, "{:?}", world.notes);
}
