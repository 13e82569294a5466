//! The calm pace: promises are judged at it as at the busy one, of less that happens in more time.

use base::Span;
use sim::history::History;
use sim::pace::Pace;
use sim::plays::{Bug, linear, session};
use sim::scene::{self, Plan, Report};
use sim::shipped::Bug as Node;

fn run(pace: Pace, seed: u64, minutes: u64, bug: Option<Bug>) -> Report {
    let length = Span::secs(60 * minutes);
    scene::run(Plan {
        seed,
        length,
        nodes: 3,
        pace,
        bug,
        lies: false,
        only: None,
        history: History::default(),
        loud: false,
    })
}

fn sum(counts: &std::collections::BTreeMap<String, u64>, of: &str) -> u64 {
    counts.iter().filter(|(name, _)| name.ends_with(of)).map(|(_, count)| count).sum()
}

/// The promise that a bug breaks at the calm pace, in one of some seeds.
fn caught(bug: Bug) -> Option<&'static str> {
    (1..5).find_map(|seed| run(Pace::Calm, seed, 60, Some(bug)).broken.map(|broken| broken.promise))
}

#[test]
fn an_hour_at_the_calm_pace_keeps_all_promises_and_sees_less_than_one_at_the_busy_pace() {
    let calm = run(Pace::Calm, 21, 100, None);
    assert_eq!((calm.broken.as_ref(), calm.ran), (None, Span::secs(6_000)), "{}", calm.last);
    let busy = run(Pace::Busy, 21, 4, None);
    let (faults, judged) = (sum(&calm.faults, ""), sum(&calm.ops, " judged"));
    assert!(faults > 20 && faults < 5 * sum(&busy.faults, ""), "{:?}", calm.faults);
    assert!(judged > 1_000 && judged < 5 * sum(&busy.ops, " judged"), "{:?}", calm.ops);
    assert!(calm.events < 15 * busy.events, "{} events, and {} in 4 minutes", calm.events, busy.events);
}

#[test]
fn one_seed_gives_one_run_and_another_than_at_the_busy_pace() {
    let hash = |pace| run(pace, 22, 10, None).hash;
    assert_eq!(hash(Pace::Calm), hash(Pace::Calm));
    assert_ne!(hash(Pace::Calm), hash(Pace::Busy));
}

#[test]
fn bugs_are_caught_at_the_calm_pace_too() {
    assert_eq!(caught(Bug::Session(session::bugs::Bug::Stale)), Some("never a stale read"));
    let cookie = "the last acknowledged write is readable by its cookie while fewer than 2 of its bricks failed";
    assert_eq!(caught(Bug::Modes(session::modes::bugs::Bug::CookieForgets)), Some(cookie));
    let field = "an acknowledged field stays, whatever others write into the same document";
    assert_eq!(caught(Bug::Modes(session::modes::bugs::Bug::Unmerged)), Some(field));
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::Torn)), Some("a transaction is seen whole or not at all"));
    assert_eq!(caught(Bug::Node(Node::Twins)), Some("no clone runs twice for long, and every one runs"));
    assert_eq!(caught(Bug::Node(Node::Mute)), Some("no operation without an answer past its budget"));
}
