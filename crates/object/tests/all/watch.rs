//! Changes as they come, whoever has what.

use base::{AskId, Outcome, Span};
use bytes::Bytes;
use object::{Action, Change, Changes, NO_CURSOR, Reply};

use crate::world::{World, id, put};

const HOLD: Span = Span::secs(10);

fn watch(after: Option<&Bytes>, hold: Span) -> Action {
    Action::Watch { after: after.cloned(), hold, by: 1 }
}

fn changes(outcome: Outcome<Reply>) -> Changes {
    match outcome {
        Outcome::Done(Reply::Changes(changes)) => changes,
        other => panic!("{other:?}"),
    }
}

/// What is there at once.
fn look(world: &mut World, at: u64, prefix: &str, after: Option<&Bytes>) -> Changes {
    changes(world.ask(at, "mail", prefix, watch(after, Span::ZERO)))
}

/// Owner, number, and the size of what is there.
fn told(changes: &Changes) -> Vec<(&str, u8, Option<u32>)> {
    let one = |change: &Change| (change.id.0[0], change.size);
    let of = |change| -> (&str, u8, Option<u32>) {
        let (n, size) = one(change);
        (std::str::from_utf8(&change.owner).unwrap(), n, size)
    };
    changes.changes.iter().map(of).collect()
}

fn heard(world: &mut World, ask: AskId) -> Option<Changes> {
    world.answers.remove(&ask).map(|(_, outcome)| changes(outcome))
}

#[test]
fn who_watches_is_told_what_changes_from_now_on_whoever_has_it_and_goes_on_at_any_node() {
    let mut world = World::new(1, 4);
    world.ask(1, "mail", "ann", put(1, "before"));
    let now = look(&mut world, 1, "", None);
    assert!(now.changes.is_empty() && !now.is_more && now.missing.is_empty());
    let ask = world.begin(1, "mail", "", watch(Some(&now.cursor), HOLD), Span::secs(12));
    world.run(Span::secs(2));
    assert!(heard(&mut world, ask).is_none(), "nothing has changed");
    // Two of the four have it, and this one may be none of them.
    let at = world.now;
    world.ask(3, "mail", "bob", put(2, "hello"));
    world.ask(2, "notes", "bob", put(3, "of another namespace"));
    world.run(Span::millis(100));
    let (when, outcome) = world.answers.remove(&ask).unwrap();
    assert!(when.since(at) < Span::millis(60), "{:?}", when.since(at));
    let first = changes(outcome);
    assert_eq!(told(&first), [("bob", 2, Some(5))], "once, although two nodes have it");
    world.ask(4, "mail", "bob", Action::Delete { id: id(2) });
    world.ask(4, "mail", "ann", put(4, "x"));
    world.run(Span::secs(1));
    let second = look(&mut world, 2, "", Some(&first.cursor));
    assert_eq!(told(&second), [("bob", 2, None), ("ann", 4, Some(1))], "in the order of their versions");
    let of_ann = look(&mut world, 3, "an", Some(&first.cursor));
    assert_eq!(told(&of_ann), [("ann", 4, Some(1))], "of those that begin so");
    assert!(look(&mut world, 4, "", Some(&second.cursor)).changes.is_empty());
    let all = look(&mut world, 4, "", Some(&Bytes::new()));
    assert_eq!(told(&all), [("ann", 1, Some(6)), ("bob", 2, None), ("ann", 4, Some(1))], "all that there is");
}

#[test]
fn a_question_ends_when_its_time_is_over_and_an_earlier_one_of_the_same_watcher_with_the_next() {
    let mut world = World::new(2, 3);
    let now = look(&mut world, 1, "", None);
    let ask = world.begin(1, "mail", "", watch(Some(&now.cursor), HOLD), Span::secs(12));
    world.run(Span::secs(11));
    let ended = heard(&mut world, ask).unwrap();
    assert!(ended.changes.is_empty() && ended.missing.is_empty());
    world.ask(1, "mail", "ann", put(1, "x"));
    assert_eq!(told(&look(&mut world, 2, "", Some(&ended.cursor))), [("ann", 1, Some(1))]);
}

#[test]
fn what_is_not_on_a_disk_is_not_told() {
    let mut world = World::new(3, 2);
    let now = look(&mut world, 1, "", None);
    world.nodes.values_mut().for_each(|host| host.force = 200_000);
    world.begin(1, "mail", "ann", put(1, "x"), Span::secs(2));
    world.run(Span::millis(80));
    assert!(look(&mut world, 1, "", Some(&now.cursor)).changes.is_empty());
    let late = look(&mut world, 1, "", None);
    world.run(Span::secs(1));
    assert_eq!(told(&look(&mut world, 1, "", Some(&now.cursor))).len(), 1);
    assert_eq!(told(&look(&mut world, 1, "", Some(&late.cursor))).len(), 1, "it came after that place");
}

#[test]
fn a_node_that_is_away_is_named_and_what_it_alone_knows_is_told_when_it_is_back() {
    let mut world = World::new(4, 3);
    world.kill(base::NodeId(3));
    world.run(Span::secs(1));
    let now = look(&mut world, 1, "", None);
    assert_eq!(now.missing, [base::NodeId(3)]);
    let ask = world.begin(1, "mail", "", watch(Some(&now.cursor), HOLD), Span::secs(12));
    world.start(base::NodeId(3));
    world.run(Span::secs(1));
    // Its birth ends the question, so that it is asked, too.
    let then = heard(&mut world, ask).unwrap();
    assert!(then.missing.is_empty() || look(&mut world, 1, "", Some(&then.cursor)).missing.is_empty());
    // Another life of it tells all that it has, as nobody knows where it was.
    world.ask(3, "mail", "ann", put(1, "x"));
    let before = look(&mut world, 3, "", Some(&then.cursor));
    assert_eq!(told(&before), [("ann", 1, Some(1))]);
    for node in 1..=3 {
        world.kill(base::NodeId(node));
        world.start(base::NodeId(node));
    }
    world.run(Span::secs(1));
    assert_eq!(told(&look(&mut world, 1, "", Some(&before.cursor))), [("ann", 1, Some(1))]);
}

#[test]
fn many_changes_come_in_several_answers() {
    let mut world = World::new(5, 3);
    for n in 0..100 {
        for owner in ["a", "b", "c", "d", "e", "f"] {
            world.begin(1 + u64::from(n % 3), "mail", owner, put(n, "x"), Span::secs(2));
        }
        world.run(Span::millis(20));
    }
    world.run(Span::secs(2));
    let (mut cursor, mut seen, mut answers) = (Bytes::new(), std::collections::BTreeSet::new(), 0);
    loop {
        let some = look(&mut world, 2, "", Some(&cursor));
        seen.extend(some.changes.iter().map(|change| (change.owner.clone(), change.id)));
        cursor = some.cursor;
        answers += 1;
        if !some.is_more {
            break;
        }
    }
    assert_eq!((seen.len(), answers > 1), (600, true));
}

#[test]
fn a_cursor_that_says_nothing_is_refused_and_older_programs_are_not_asked() {
    let mut world = World::new(6, 2);
    let refused = |outcome| match outcome {
        Outcome::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    let now = look(&mut world, 1, "", None);
    let why = refused(world.ask(1, "mail", "", watch(Some(&Bytes::from_static(b"\xff")), HOLD)));
    assert_eq!((why.why.as_str(), why.retry_after), (NO_CURSOR, None));
    let why = refused(world.ask(1, "notes", "", watch(Some(&now.cursor), HOLD)));
    assert_eq!(why.why, NO_CURSOR, "it is of another namespace");
    world.level = 11;
    world.declare_all();
    let why = refused(world.ask(1, "mail", "", watch(None, HOLD)));
    assert!(why.retry_after.is_some(), "{why:?}");
}

#[test]
fn who_was_away_for_longer_than_deletions_are_remembered_reads_anew() {
    let mut world = World::new(7, 3);
    let now = look(&mut world, 1, "", None);
    world.skew = (1..=3).map(|node| (base::NodeId(node), 8 * 86_400_000)).collect();
    // As long as nodes live and have forgotten nothing, they know.
    assert!(!look(&mut world, 1, "", Some(&now.cursor)).is_lost);
    world.kill(base::NodeId(2));
    world.start(base::NodeId(2));
    world.run(Span::secs(1));
    world.ask(1, "mail", "ann", put(1, "x"));
    let lost = look(&mut world, 1, "", Some(&now.cursor));
    assert!(lost.is_lost && lost.changes.is_empty());
    let rest = look(&mut world, 1, "", Some(&lost.cursor));
    assert!(!rest.is_lost && rest.changes.len() <= 1);
}
