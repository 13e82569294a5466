//! What is too large, and what would take too long: repeated arguments, many of them, answers beyond one value.

use base::{LEVEL, Outcome, Priority, kind};

use super::level::Lone;
use super::priority::stalled;
use super::together::Door;
use super::*;
use crate::limits::{ANSWER_BYTES_MAX, CALLS_BYTES_MAX, COMMAND_BYTES_MAX, HOLD_MAX, QUEUE_BYTES_MAX, STEPS_MAX};
use crate::op::Op;

fn read(space: &Space, step: Step) -> Reply {
    match space.read(&[], &[step]) {
        Ran::Done(mut replies) => replies.remove(0),
        Ran::Unmet => panic!("there is no condition"),
    }
}

fn repeated(key: &str, function: &'static str, arg: &str, times: usize) -> Step {
    Step::new(Bytes::copy_from_slice(key.as_bytes()), function, vec![Bytes::copy_from_slice(arg.as_bytes()); times])
}

#[test]
fn one_answer_is_no_larger_than_one_value_may_be() {
    let mut space = Space::default();
    let large = "x".repeat(6 << 20);
    run(&mut space, 1, 1, step("h", "hash.set", &["f", &large]));
    run(&mut space, 1, 2, step("s", "set.add", &[&large]));
    let long = Reply::Wrong(Wrong::LongAnswer);
    assert_eq!(read(&space, repeated("h", "hash.get-many", "f", 3)), long);
    assert_eq!(read(&space, step("h", "hash.random", &["7", "3", "again"])), long);
    assert_eq!(read(&space, step("s", "set.random", &["7", "3", "again"])), long);
    assert!(matches!(read(&space, repeated("h", "hash.get-many", "f", 2)), Reply::List(list) if list.len() == 2));
    // What is written is answered likewise: it is kept for who asks again, and stands in snapshots.
    let both = vec![repeated("h", "hash.get-many", "f", 16_000), step("h", "exists", &[])];
    let done = apply(&mut space, 2, vec![command(3, both)]).remove(0);
    assert_eq!(done, Verdict::Ran(Ran::Done(vec![long, Reply::Int(1)])));
}

#[test]
fn all_of_a_value_of_many_small_items_fits() {
    let mut space = Space::default();
    let args: Vec<String> =
        (0..740_000).flat_map(|n| [format!("{:03x}", n & 0xFFF) + &(n >> 12).to_string(), String::new()]).collect();
    for (n, some) in args.chunks(20_000).enumerate() {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        assert_eq!(run(&mut space, 1, n as u64, step("h", "hash.set", &some)), Reply::Int(10_000));
    }
    let all = read(&space, step("h", "hash.all", &[]));
    assert!(all.bytes() > ANSWER_BYTES_MAX, "as it is taken for: {}", all.bytes());
    let Reply::List(items) = &all else { panic!("a hash") };
    assert_eq!(items.len(), 2 * 740_000);
    let answer = Answer::Ran(Ran::Done(vec![all.clone()]), 1);
    let head = wire::encode_call(&Call::Answer { group: GroupId(7), id: id(1), answer });
    assert!(head.len() < base::limits::FRAME_BYTES_MAX, "it goes in a frame: {}", head.len());
}

#[test]
fn a_field_that_is_named_twice_is_taken_once() {
    let mut space = Space::default();
    run(&mut space, 1, 1, step("h", "hash.set", &["f", "1", "g", "2"]));
    let taken = run(&mut space, 1, 2, step("h", "hash.take", &["f", "f", "none", "f"]));
    assert_eq!(taken, Reply::List(vec![Reply::Bytes("1".into()), Reply::Nil, Reply::Nil, Reply::Nil]));
    assert_eq!(read(&space, step("h", "hash.length", &[])), Reply::Int(1));
}

/// The set `s` of 50,000 numbers.
fn with_large_set() -> Space {
    let mut space = Space::default();
    let members = (0..50_000).map(|n: u32| n.to_string().into()).collect();
    assert_eq!(run(&mut space, 1, 1, Step::new("s".into(), "set.add", members)), Reply::Int(50_000));
    space
}

/// Else it takes hours, or all memory.
#[test]
fn sources_that_are_named_again_are_no_more_work() {
    let mut space = with_large_set();
    run(&mut space, 1, 2, step("t", "put", &[&"x".repeat(1 << 20), "always", "none"]));
    let mut seq = 2;
    let mut store = |function, from: &str, last: Option<&str>| {
        seq += 1;
        let mut step = repeated("d", function, from, 16_000);
        step.args.extend(last.map(|last| Bytes::copy_from_slice(last.as_bytes())));
        run(&mut space, 1, seq, step)
    };
    assert_eq!(store("set.store-union", "s", None), Reply::Int(50_000));
    assert_eq!(store("set.store-inter", "s", None), Reply::Int(50_000));
    assert_eq!(store("set.store-diff", "s", None), Reply::Int(0), "also of itself");
    assert_eq!(store("text.bit-op", "t", Some("or")), Reply::Int(1 << 20));
    assert_eq!(store("text.bit-op", "t", Some("xor")), Reply::Int(1 << 20));
    assert_eq!(read(&space, step("d", "text.bits", &[])), Reply::Int(0), "an even number of times");
}

/// Else it takes minutes.
#[test]
fn many_small_sets_beside_a_large_one_are_little_work() {
    let mut space = with_large_set();
    let keys: Vec<String> = (0..8_000).map(|n| format!("k{n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        run(&mut space, 1, 2 + n as u64, step(key, "set.add", &["7", key]));
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(read(&space, step("s", "set.inter", &keys)), Reply::List(vec![Reply::Bytes("7".into())]));
    assert!(matches!(read(&space, step("s", "set.diff", &keys)), Reply::List(left) if left.len() == 49_999));
}

/// Steps that have few bytes of arguments, and many bytes in a frame.
fn padded(value: usize) -> Vec<Step> {
    let put = |n: usize, value: &str| step(&format!("{n:0>512}"), "put", &[value, "always", "none"]);
    let first = put(0, &"x".repeat(value));
    std::iter::once(first).chain((1..STEPS_MAX).map(|n| put(n, ""))).collect()
}

#[test]
fn what_does_not_fit_into_a_frame_is_refused_before_it_is_anywhere() {
    let mut door = Door::new();
    let op = |steps| Op::of("bank".into(), steps);
    door.ask_op(1_000, op(padded(COMMAND_BYTES_MAX - (64 << 10))));
    let [(1, Outcome::Refused(refused))] = &door.ended[..] else { panic!("{:?}", door.ended) };
    assert!(refused.to_string().contains("over the limit"), "{refused}");
    let empty = repeated("s", "set.add", "", 16_000);
    door.ask_op(1_000, op(vec![empty; 1_024]));
    assert!(matches!(door.ended[1..], [(2, Outcome::Refused(_))]));
    assert!(door.sent.is_empty());
    // The largest that goes is a frame, be it a call or an entry.
    let steps = padded(COMMAND_BYTES_MAX - 700 * STEPS_MAX);
    door.ask_op(1_000, op(steps.clone()));
    let [command] = &door.sent[..] else { panic!("it goes: {:?}", door.ended.len()) };
    let bytes = wire::encode_batch(&Batch { commands: vec![command.clone()], ..Batch::default() }).len();
    assert!(bytes < COMMAND_BYTES_MAX, "{bytes}");
}

#[test]
fn a_leader_takes_no_entry_that_would_not_reach_its_members() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    let mut ask = |steps| {
        let command = Command { id: CommandId { node: NodeId(4), ..id(1) }, ..command(0, steps) };
        let head = wire::encode_call(&Call::Do { group: Lone::ID, reads: false, stale: None, sole: false, command });
        lone.handle(Input::Frame { from: NodeId(4), frame: Frame::new(kind::LINEAR_CALL, head) });
        lone.told.pop()
    };
    assert!(matches!(ask(padded(COMMAND_BYTES_MAX - (8 << 10))), Some((_, Answer::Refused(Wrong::TooLarge)))));
    assert!(matches!(ask(vec![step("k", "put", &["v", "always", "none"])]), Some((_, Answer::Ran(..)))));
}

#[test]
fn what_waits_for_answers_at_a_node_is_bounded_in_bytes_too() {
    let mut door = Door::new();
    let args = [Bytes::from(vec![b'x'; 16 << 20]), "always".into(), "none".into()];
    let put = || Op::of("bank".into(), vec![Step::new("k".into(), "put", args.to_vec())]);
    let mut begun = 0;
    while door.ended.is_empty() {
        door.ask_op(1_000, put());
        door.sent.clear();
        begun += 1;
        assert!(begun * (16 << 20) <= CALLS_BYTES_MAX + (16 << 20), "there is no end");
    }
    assert_eq!(begun, 17);
    assert!(matches!(&door.ended[..], [(17, Outcome::Refused(refused))] if refused.retry_after.is_some()));
    door.ask_op(1_000, Op::of("bank".into(), vec![step("k", "number.add", &["1"])]));
    assert_eq!(door.ended.len(), 1, "something small goes");
    door.now.mono = door.now.mono + Span::secs(2);
    door.handle(Input::Wake);
    assert_eq!(door.ended.len(), 18, "all are over");
    door.ask_op(1_000, put());
    assert_eq!(door.ended.len(), 18, "and there is room again");
}

#[test]
fn what_waits_at_a_leader_is_bounded_in_bytes_too() {
    let mut lone = stalled();
    let half = QUEUE_BYTES_MAX / 8;
    for seq in 11..18 {
        assert_eq!(call(&mut lone, seq, 4, half), []);
    }
    assert_eq!(call(&mut lone, 18, 4, half), [(18, Answer::Busy)]);
    assert_eq!(call(&mut lone, 19, 4, 100), [], "something small goes");
    assert_eq!(call(&mut lone, 21, 3, 100), []);
    assert_eq!(call(&mut lone, 22, 4, half), [(22, Answer::Busy)], "and nobody gives way in vain");
    assert_eq!(call(&mut lone, 23, 3, half), [(23, Answer::Busy)], "of as little something small may go");
    // What matters more takes the room of as many as it needs.
    let gone = call(&mut lone, 20, 5, 2 * half);
    assert_eq!(gone.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [21, 19, 17, 16], "{gone:?}");
}

#[test]
fn what_waits_for_a_hold_to_end_is_bounded_in_bytes_too() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    assert!(matches!(calls(&mut lone, 10, 4, step("k", "hold", &["token"]))[..], [(10, Answer::Ran(..))]));
    for seq in 11..19 {
        assert_eq!(call(&mut lone, seq, 4, QUEUE_BYTES_MAX / 8 - 1_000), [], "it waits");
    }
    assert_eq!(call(&mut lone, 19, 4, QUEUE_BYTES_MAX / 8), [(19, Answer::Busy)]);
    lone.wait(HOLD_MAX);
    lone.handle(Input::Wake);
    assert_eq!(std::mem::take(&mut lone.told).len(), 8, "all are done");
    assert_eq!(call(&mut lone, 20, 4, QUEUE_BYTES_MAX / 8).len(), 1, "and there is room again");
}

/// Node 4 asks for it. What it and others are told at once.
fn calls(lone: &mut Lone, seq: u64, priority: u8, step: Step) -> Vec<(u64, Answer)> {
    let command = Command { id: CommandId { node: NodeId(4), ..id(seq) }, ..command(0, vec![step]) };
    let head = wire::encode_call(&Call::Do { group: Lone::ID, reads: false, stale: None, sole: true, command });
    let frame = Frame { priority: Priority(priority), ..Frame::new(kind::LINEAR_CALL, head) };
    lone.handle(Input::Frame { from: NodeId(4), frame });
    std::mem::take(&mut lone.told)
}

/// A put of so many bytes.
fn call(lone: &mut Lone, seq: u64, priority: u8, bytes: usize) -> Vec<(u64, Answer)> {
    let args = vec![vec![b'x'; bytes].into(), "always".into(), "none".into()];
    calls(lone, seq, priority, Step::new("k".into(), "put", args))
}
