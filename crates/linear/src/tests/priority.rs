//! What matters more goes first and what matters less is turned away: at a leader whose disk is slow, and at the node that asks.

use base::{LEVEL, Outcome, Priority, kind};

use super::level::Lone;
use super::together::Door;
use super::*;
use crate::limits::{CALL_SOON, QUEUE_WAIT};
use crate::op::Op;
use class::Class;

/// Node 4 asks for this.
fn call(lone: &mut Lone, seq: u64, priority: u8, budget_ms: u32, sole: bool) {
    calls(lone, seq, priority, budget_ms, sole);
    lone.end_turn();
}

/// Likewise, in a turn that goes on.
fn calls(lone: &mut Lone, seq: u64, priority: u8, budget_ms: u32, sole: bool) {
    let id = CommandId { node: NodeId(4), ..id(seq) };
    let command = Command { id, ..command(0, vec![step("l", "list.push-right", &[&seq.to_string()])]) };
    let head = wire::encode_call(&Call::Do { group: Lone::ID, reads: false, stale: None, sole, command });
    let frame = Frame { priority: Priority(priority), budget_ms, ..Frame::new(kind::LINEAR_CALL, head) };
    lone.hear(Input::Frame { from: NodeId(4), frame });
}

/// A leader whose disk has taken no entry yet, with as many under way as may be.
pub(super) fn stalled() -> Lone {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.stalled = Some(Vec::new());
    [1, 2].into_iter().for_each(|seq| call(&mut lone, seq, 4, 0, true));
    lone
}

/// The disk has done all of it, and is quick from now on. What is in the list then, in order.
fn goes_on(lone: &mut Lone) -> Vec<u64> {
    while let Some(stalled) = lone.stalled.replace(Vec::new()).filter(|stalled| !stalled.is_empty()) {
        stalled.into_iter().for_each(|ticket| lone.handle(Input::Appended { group: Lone::ID, ticket }));
    }
    lone.stalled = None;
    pushed(lone)
}

fn pushed(lone: &mut Lone) -> Vec<u64> {
    let command = Command {
        id: CommandId { node: NodeId(5), ..id(1) },
        ..command(0, vec![step("l", "list.range", &["0", "-1"])])
    };
    let head = wire::encode_call(&Call::Do { group: Lone::ID, reads: true, stale: None, sole: false, command });
    lone.handle(Input::Frame { from: NodeId(5), frame: Frame::new(kind::LINEAR_CALL, head) });
    let Some((1, Answer::Ran(Ran::Done(replies), _))) = lone.told.pop() else { panic!("{:?}", lone.told) };
    let Reply::List(items) = &replies[0] else { panic!("{replies:?}") };
    let number =
        |item: &Reply| if let Reply::Bytes(text) = item { String::from_utf8_lossy(text).parse().ok() } else { None };
    items.iter().filter_map(number).collect()
}

fn passes(lone: &mut Lone, ms: u64) {
    lone.now.mono = lone.now.mono + Span::millis(ms);
}

/// For so long, one of each of these priorities each 5 ms. Those that were turned away, by priority.
fn crowd(lone: &mut Lone, ms: u64, priorities: &[u8]) -> Vec<(u8, u64)> {
    let (mut turned, first) = (Vec::new(), 1_000 + lone.now.mono.0);
    for n in 0..ms / 5 {
        passes(lone, 5);
        for priority in priorities {
            let seq = first + 10 * n + u64::from(*priority);
            call(lone, seq, *priority, 60_000, true);
            match lone.told.pop() {
                Some((of, Answer::TurnedAway { floor })) if of == seq && *priority < floor => {
                    turned.push((*priority, seq))
                }
                Some(other) => panic!("{other:?}"),
                None => (),
            }
        }
    }
    turned
}

#[test]
fn what_matters_most_goes_into_the_log_first_and_in_order() {
    let mut lone = stalled();
    for (seq, priority) in [(3, 1), (4, 4), (5, 6), (6, 4), (7, 7), (8, 1)] {
        call(&mut lone, seq, priority, 0, true);
    }
    assert!(lone.told.is_empty());
    assert_eq!(goes_on(&mut lone), [1, 2, 7, 5, 4, 6, 3, 8], "and all are done");
}

#[test]
fn what_comes_in_one_turn_goes_as_one_entry_and_the_next_one_when_it_is_as_large() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.stalled = Some(Vec::new());
    let mut seqs = 1..;
    let mut hears = |lone: &mut Lone, count: usize| {
        seqs.by_ref().take(count).for_each(|seq| calls(lone, seq, 4, 0, true));
        lone.end_turn();
        lone.stalled.as_ref().map(Vec::len)
    };
    assert_eq!(hears(&mut lone, 3), Some(1));
    assert_eq!(hears(&mut lone, 2), Some(1), "it is smaller than the one under way");
    assert_eq!(hears(&mut lone, 1), Some(2));
    assert_eq!(hears(&mut lone, 9), Some(2), "two are enough");
    // When the first is done the rest is large enough; what is committed goes to the disk as well.
    let first = lone.stalled.as_mut().unwrap().remove(0);
    lone.handle(Input::Appended { group: Lone::ID, ticket: first });
    assert_eq!(lone.stalled.as_ref().map(Vec::len), Some(1 + 2));
    assert_eq!(goes_on(&mut lone), (1..16).collect::<Vec<u64>>());
    (0..1_000).for_each(|_| lone.wake());
    let asleep = lone.linear.shown().find(|(figure, _)| figure.name == "linear.groups_asleep");
    assert_eq!(asleep.map(|(_, n)| n), Some(1), "nothing is under way any more");
}

#[test]
fn while_a_queue_stands_who_matters_least_is_turned_away_at_once_and_it_never_happens() {
    let mut lone = stalled();
    let turned = crowd(&mut lone, 350, &[1, 4]);
    assert!(turned.len() > 10 && turned.iter().all(|(priority, _)| *priority == 1), "{turned:?}");
    let (_, gone) = turned[0];
    let done = goes_on(&mut lone);
    assert!(!done.contains(&gone));
    // The queue is gone, but its node has told that it did not happen: a late copy changes nothing.
    lone.told.clear();
    call(&mut lone, gone, 1, 0, true);
    assert!(matches!(lone.told.pop(), Some((seq, Answer::TurnedAway { .. })) if seq == gone));
    assert_eq!(pushed(&mut lone), done);
    // Another one of as little is done, and one whose node has asked others too, and so is in doubt.
    call(&mut lone, 9_999, 1, 0, true);
    call(&mut lone, gone, 1, 0, false);
    assert_eq!(pushed(&mut lone)[done.len()..], [9_999, gone]);
}

#[test]
fn who_has_asked_others_is_only_told_to_wait() {
    let mut lone = stalled();
    crowd(&mut lone, 350, &[1, 4]);
    call(&mut lone, 9_999, 1, 0, false);
    assert_eq!(lone.told.pop(), Some((9_999, Answer::Busy)));
}

#[test]
fn where_all_matter_the_same_nobody_is_turned_away() {
    for priority in [0, 4, 6] {
        let mut lone = stalled();
        assert_eq!(crowd(&mut lone, 1_000, &[priority]), []);
        assert_eq!(goes_on(&mut lone).len(), 202, "all are done");
    }
}

#[test]
fn a_burst_is_not_a_queue() {
    let mut lone = stalled();
    assert_eq!(crowd(&mut lone, QUEUE_WAIT.as_millis(), &[1, 4]), []);
    assert_eq!(goes_on(&mut lone).len(), 42);
}

#[test]
fn what_nobody_would_hear_of_in_time_is_not_begun_and_its_node_hears_so() {
    let mut lone = stalled();
    call(&mut lone, 3, 4, 500, true);
    call(&mut lone, 4, 4, 5_000, true);
    call(&mut lone, 5, 4, 500, false);
    passes(&mut lone, 500 - CALL_SOON.as_millis());
    lone.handle(Input::Wake);
    assert_eq!(lone.told, []);
    passes(&mut lone, 1);
    lone.wake();
    assert_eq!(lone.told, [(3, Answer::TurnedAway { floor: 0 })], "each as it comes to be the first");
    lone.told.clear();
    assert_eq!(goes_on(&mut lone)[..3], [1, 2, 4]);
}

fn push(priority: u8, weak: bool) -> Op {
    let step = step("k", "number.add", &["1"]);
    Op { priority: Priority(priority), weak, ..Op::of("bank".into(), vec![step]) }
}

fn is_refused(door: &mut Door, id: u64) -> bool {
    let at = door.ended.iter().position(|(ended, _)| *ended == id);
    matches!(at.map(|at| door.ended.remove(at).1), Some(Outcome::Refused(why)) if why.retry_after.is_some())
}

#[test]
fn a_node_says_no_at_once_for_its_leader_and_asks_again_soon() {
    let mut door = Door::new();
    let first = door.ask_op(1_000, push(3, false));
    assert_eq!(door.priorities, [Priority(3)], "it goes with the frame");
    door.answers(Answer::TurnedAway { floor: 4 });
    assert!(is_refused(&mut door, first));
    let low = door.ask_op(1_000, push(3, false));
    assert!(is_refused(&mut door, low) && door.sent.is_empty());
    door.ask_op(1_000, push(4, false));
    let read = Op { priority: Priority(0), ..Op::of("bank".into(), vec![step("k", "get", &[])]) };
    door.ask_op(1_000, read);
    assert_eq!(door.sent.len(), 2, "what matters more, and reads have a queue of their own");
    door.now.mono = door.now.mono + Span::millis(100);
    door.ask_op(1_000, push(3, false));
    assert_eq!(door.sent.len(), 3);
    let figure = door.linear.shown().find(|(figure, _)| figure.name == "linear.turned_away");
    assert_eq!(figure.map(|(_, n)| n), Some(2));
}

#[test]
fn a_write_that_two_leaders_may_have_is_not_refused_by_the_word_of_one() {
    let mut door = Door::new();
    door.handle(Input::Birth { peer: NodeId(2), boot: Boot(1) });
    door.ask_op(1_000, push(1, false));
    door.handle(Input::Death { peer: NodeId(1) });
    door.sent.remove(0);
    assert_eq!(door.sent.len(), 1, "node 2 is asked");
    door.answers_of(NodeId(2), Answer::TurnedAway { floor: 4 });
    assert!(door.ended.is_empty(), "node 1 may have it in its log");
    door.now.mono = door.now.mono + CALL_SOON;
    door.handle(Input::Wake);
    assert_eq!(door.sent.len(), 1, "it is asked until that is known");
    // Of a read nothing can have happened.
    let read = Op { priority: Priority(1), ..Op::of("bank".into(), vec![step("k", "get", &[])]) };
    door.sent.clear();
    let read = door.ask_op(1_000, read);
    door.answers_of(NodeId(2), Answer::TurnedAway { floor: 4 });
    assert!(is_refused(&mut door, read));
}

#[test]
fn a_write_that_was_asked_of_a_former_life_is_not_refused_by_the_word_of_it() {
    let mut door = Door::new();
    door.ask_op(1_000, push(1, false));
    door.handle(Input::Death { peer: NodeId(1) });
    door.handle(Input::Birth { peer: NodeId(1), boot: Boot(1) });
    door.answers(Answer::TurnedAway { floor: 4 });
    assert!(door.ended.is_empty(), "the new one knows nothing of it, and may have been asked meanwhile");
}

#[test]
fn weak_operations_that_are_done_as_one_matter_as_the_highest_of_them() {
    let mut door = Door::new();
    for priority in [1, 1, 2, 6, 3] {
        door.ask_op(1_000, push(priority, true));
    }
    door.answers(Answer::Ran(Ran::Done(vec![Reply::Int(1)]), 1));
    assert_eq!(door.priorities, [1, 1, 6].map(Priority));
    // Together they are wrong: each goes alone, as it was.
    door.sent.remove(0);
    door.answers(Answer::Ran(Ran::Done(vec![Reply::Wrong(Wrong::Overflow)]), 1));
    assert_eq!(door.priorities[3..], [2, 6, 3].map(Priority));
}
