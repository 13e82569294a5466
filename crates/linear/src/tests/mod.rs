//! What a group agrees on, as entries change it. Groups as a whole are the simulator's (`crates/sim`).

use std::collections::BTreeMap;

use crate::declared;
use base::{Boot, Frame, NodeId, Now, Span, Ticket};
use bytes::Bytes;
use class::Class;
use cluster::raft::{self, LogBounds, State};
use proptest::prelude::*;

use super::op::{Condition, Ran, Reply, Step, Wrong};
use super::space::{CommandId, Space, Verdict};
use super::wire::{self, Answer, Batch, Call, Command};
use super::{Input, Linear, Output, Placed};
use base::GroupId;

const SHORT: LogBounds = LogBounds { records_max: 500, bytes_max: 64 << 10, entries_kept: 16 };

mod bounds;
mod ends;
mod fields;
mod fixtures;
mod level;
mod once;
mod pieces;
mod priority;
mod queues;
mod quota;
mod scripts;
mod split;
mod sql;
mod stale;
mod texts;
mod together;
mod walk;

fn id(seq: u64) -> CommandId {
    CommandId { node: NodeId(1), boot: Boot(1), seq }
}

fn step(key: &str, function: &'static str, args: &[&str]) -> Step {
    let args = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
    Step::new(Bytes::copy_from_slice(key.as_bytes()), function, args)
}

fn command(seq: u64, steps: Vec<Step>) -> Command {
    Command { id: id(seq), floor: 0, conditions: Vec::new(), steps, splits: 0, once: None }
}

/// Applies an entry with these commands.
fn apply(space: &mut Space, clock: u64, commands: Vec<Command>) -> Vec<Verdict> {
    let mut done = Vec::new();
    let data = wire::encode_batch(&Batch { clock, commands, ..Batch::default() });
    assert_eq!(space.apply(1, data.into(), &mut done), raft::Applied::Yes);
    done.into_iter().map(|(_, verdict)| verdict).collect()
}

fn run(space: &mut Space, clock: u64, seq: u64, step: Step) -> Reply {
    match apply(space, clock, vec![command(seq, vec![step])]).remove(0) {
        Verdict::Ran(Ran::Done(mut replies)) => replies.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_that_comes_twice_happens_once_and_gets_its_first_answer() {
    let mut space = Space::default();
    let push = command(5, vec![step("l", "list.push-right", &["a"])]);
    let first = apply(&mut space, 1, vec![push.clone()]);
    assert_eq!(apply(&mut space, 2, vec![push.clone()]), first);
    assert_eq!(run(&mut space, 3, 6, step("l", "list.length", &[])), Reply::Int(1));
    // Its node needs no answers below 6 any more: a copy that was late does nothing.
    let later = Command { floor: 6, ..command(7, vec![step("l", "list.length", &[])]) };
    apply(&mut space, 4, vec![later]);
    assert_eq!(apply(&mut space, 5, vec![push.clone()]), [Verdict::Forgotten]);
    // A later life of the node: nothing of the former one happens.
    let next_life = Command { id: CommandId { boot: Boot(2), ..id(1) }, ..push.clone() };
    assert!(matches!(apply(&mut space, 6, vec![next_life])[..], [Verdict::Ran(_)]));
    let old = Command { id: id(99), ..push };
    assert_eq!(apply(&mut space, 7, vec![old]), [Verdict::Forgotten]);
    let length = space.read(&[], &[step("l", "list.length", &[])]);
    assert_eq!(length, Ran::Done(vec![Reply::Int(2)]), "once in each life");
}

#[test]
fn a_transaction_happens_if_all_conditions_hold() {
    let mut space = Space::default();
    run(&mut space, 1, 1, step("a", "put", &["1", "always", "none"]));
    let version = space.get(b"a").unwrap().version;
    let with = |seq, version| Command {
        conditions: vec![Condition { key: "a".into(), version }, Condition { key: "none".into(), version: 0 }],
        ..command(seq, vec![step("a", "number.add", &["1"]), step("b", "put", &["x", "absent", "none"])])
    };
    assert_eq!(apply(&mut space, 2, vec![with(2, version + 1)]), [Verdict::Ran(Ran::Unmet)]);
    assert!(space.get(b"b").is_none());
    assert!(matches!(apply(&mut space, 3, vec![with(3, version)])[..], [Verdict::Ran(Ran::Done(_))]));
    assert!(space.get(b"b").is_some() && space.get(b"a").unwrap().version > version);
}

#[test]
fn a_key_ends_by_the_clock_of_entries_and_the_clock_never_goes_back() {
    let mut space = Space::default();
    run(&mut space, 1_000, 1, step("a", "put", &["1", "always", "50"]));
    assert_eq!(run(&mut space, 1_049, 2, step("a", "exists", &[])), Reply::Int(1));
    assert_eq!(run(&mut space, 1_050, 3, step("a", "exists", &[])), Reply::Int(0));
    assert_eq!(run(&mut space, 900, 4, step("a", "exists", &[])), Reply::Int(0), "a new leader's clock may be behind");
    assert_eq!((space.clock(), space.len(), space.next_end()), (1_050, 0, None));
    run(&mut space, 1_050, 5, step("b", "put", &["1", "always", "50"]));
    run(&mut space, 1_050, 6, step("b", "put", &["2", "always", "keep"]));
    run(&mut space, 1_050, 7, step("b", "expire", &["none", "any"]));
    assert_eq!(run(&mut space, 9_999, 8, step("b", "get", &[])), Reply::Bytes("2".into()), "its end was taken away");
}

#[test]
fn a_write_sees_the_clock_of_its_entry_whatever_readers_were_told() {
    let mut space = Space::default();
    run(&mut space, 1_000, 1, step("a", "put", &["1", "always", "60000"]));
    let look =
        |seq| command(seq, vec![step("a", "ttl", &[]), step("age", "age", &[]), step("b", "number.add", &["1"])]);
    let mut copy = Space::from_parts(space.parts().0.collect()).unwrap();
    let first = apply(&mut copy, 2_000, vec![look(2)]);
    space.show(9_000, 77);
    assert_eq!(apply(&mut space, 2_000, vec![look(2)]), first, "a replica where somebody has read");
    let Verdict::Ran(Ran::Done(replies)) = &first[0] else { panic!("{first:?}") };
    assert_eq!(replies[0], Reply::Int(59_000));
}

#[test]
fn a_snapshot_in_parts_is_the_space() {
    let mut space = Space::default();
    let large = "x".repeat(50_000);
    for n in 0..300u64 {
        let key = format!("k{n}");
        let step = match n % 8 {
            7 => step(&key, "stream.add", &["5-1", "any", "-", "f", &large, "g", "v"]),
            6 => step(&key, "sorted.add", &["any", "any", "0.5", "m", "-inf", &large, "7", "n"]),
            0 => step(&key, "hash.set", &["f", &large, "g", "2"]),
            1 => step(&key, "list.push-left", &["a", "b", &large]),
            2 => step(&key, "set.add", &["m", "n"]),
            3 => step(&key, "lease.claim", &["me", "70000"]),
            4 => step(&key, "put", &[&large, "always", "60000"]),
            _ => step(&key, "put", &["short", "always", "none"]),
        };
        run(&mut space, n, n + 1, step);
    }
    let parts: Vec<Bytes> = space.parts().0.collect();
    assert!(parts.len() > 10 && parts.iter().all(|part| part.len() < 4 << 20), "{} parts", parts.len());
    let mut other = Space::from_parts(parts.clone()).unwrap();
    assert_eq!(other.parts().0.collect::<Vec<_>>(), parts);
    assert_eq!((other.bytes(), other.len(), other.next_end()), (space.bytes(), space.len(), space.next_end()));
    // It goes on as the first one does, answers to retries included.
    for space in [&mut space, &mut other] {
        assert_eq!(run(space, 500, 3, step("k2", "set.add", &["other"])), Reply::Int(2), "the first answer");
        assert_eq!(
            run(space, 500, 400, step("k2", "set.members", &[])),
            Reply::List(vec![Reply::Bytes("m".into()), Reply::Bytes("n".into()),])
        );
    }
    assert!(Space::from_parts(vec![]).is_none());
}

#[test]
fn a_lease_has_one_holder_and_its_token_grows() {
    let mut space = Space::default();
    let mut seq = 0;
    let mut run = |clock, step| {
        seq += 1;
        run(&mut space, clock, seq, step)
    };
    let Reply::Int(first) = run(1, step("lock", "lease.claim", &["a", "100"])) else { panic!("not claimed") };
    assert_eq!(run(2, step("lock", "lease.claim", &["b", "100"])), Reply::Nil);
    assert_eq!(run(3, step("lock", "lease.claim", &["a", "100"])), Reply::Int(first), "it holds it already");
    assert_eq!(run(50, step("lock", "lease.renew", &[&first.to_string(), "100"])), Reply::Int(1));
    let Reply::Int(second) = run(151, step("lock", "lease.claim", &["b", "100"])) else { panic!("it is over") };
    assert!(second > first);
    assert_eq!(run(152, step("lock", "lease.renew", &[&first.to_string(), "100"])), Reply::Int(0), "a late holder");
    assert_eq!(run(153, step("lock", "lease.release", &[&first.to_string()])), Reply::Int(0));
    assert_eq!(run(154, step("lock", "lease.release", &[&second.to_string()])), Reply::Int(1));
    assert_eq!(run(155, step("lock", "lease.holder", &[])), Reply::Nil);
}

#[test]
fn a_long_history_comes_in_pages_and_its_beginning_goes() {
    let mut space = Space::default();
    let mut seq = 0;
    let mut run = |step| {
        seq += 1;
        run(&mut space, seq, seq, step)
    };
    let changes = |after: i64| step("", "changes.prefix", &[&after.to_string(), "now", "k"]);
    let mut put = |n: i64, size: usize| run(step(&format!("k{n}"), "put", &[&"x".repeat(size), "always", "none"]));
    (1..=600).for_each(|n| drop(put(n, 4_000)));
    let mut page = |after| match run(changes(after)) {
        Reply::List(parts) => <[Reply; 2]>::try_from(parts).unwrap(),
        other => panic!("{other:?}"),
    };
    let (mut after, mut seen, mut pages) = (0, Vec::new(), 0);
    loop {
        let [Reply::Int(upto), Reply::List(changes)] = page(after) else { panic!("no page") };
        for change in &changes {
            let Reply::List(parts) = change else { panic!("{change:?}") };
            seen.push(parts[0].clone());
        }
        pages += 1;
        if upto == after {
            break;
        }
        after = upto;
    }
    assert!(pages > 3, "{pages} pages");
    assert_eq!(seen, (1..=600).map(Reply::Int).collect::<Vec<_>>());
    // A copy of a snapshot knows nothing of before.
    let mut copy = Space::from_parts(space.parts().0.collect()).unwrap();
    let gone = super::functions::find("changes.prefix").unwrap();
    let super::functions::Run::Read(look) = gone.run else { panic!("it only reads") };
    let args = |after: &str| [after, "now", ""].map(|arg| Bytes::from(arg.to_owned()));
    let missed = Ok(Reply::List(vec![Reply::Int(600), Reply::Nil, Reply::Int(600)]));
    assert_eq!(look(&copy, &Bytes::new(), &args("599")), missed);
    self::run(&mut copy, 700, 700, step("k", "put", &["v", "always", "none"]));
    assert!(matches!(look(&copy, &Bytes::new(), &args("600")), Ok(Reply::List(parts)) if parts[0] == Reply::Int(601)));
}

#[test]
fn answers_that_do_not_fit_into_a_frame_say_so() {
    let mut space = Space::default();
    let large = "x".repeat(9 << 20);
    run(&mut space, 1, 1, step("a", "put", &[&large, "always", "none"]));
    let twice = vec![step("a", "get", &[]), step("a", "get", &[])];
    let Ran::Done(replies) = space.read(&[], &twice) else { panic!("no condition") };
    assert!(matches!(&replies[..], [Reply::Bytes(_), Reply::Wrong(Wrong::LongAnswer)]));
    let too_large = "x".repeat((16 << 20) + 1);
    assert_eq!(run(&mut space, 2, 2, step("b", "put", &[&too_large, "always", "none"])), Reply::Wrong(Wrong::TooLarge));
    assert_eq!(run(&mut space, 3, 3, step("a", "text.append", &[&large])), Reply::Wrong(Wrong::TooLarge));
}

#[test]
fn a_call_and_an_answer_have_these_bytes() {
    let command = Command {
        floor: 2,
        conditions: vec![Condition { key: "c".into(), version: 9 }],
        splits: 4,
        ..command(3, vec![step("k", "get", &["x"])])
    };
    let call = Call::Do { group: GroupId(7), reads: true, stale: None, sole: false, command };
    let golden = b"\x08\x07\x10\x01\x1a\x1e\x08\x01\x10\x01\x18\x03\x20\x02\x2a\x05\x0a\x01c\x10\x09\x32\x0b\x0a\x01k\x12\x03get\x1a\x01x\x38\x04";
    assert_eq!(wire::encode_call(&call), &golden[..]);
    assert_eq!(wire::decode_call(Bytes::from_static(golden)), Some(call));
    let stale = Call::Do {
        group: GroupId(7),
        reads: true,
        stale: Some(Span::millis(5)),
        sole: true,
        command: Command { floor: 1, ..self::command(1, vec![]) },
    };
    assert_eq!(wire::decode_call(wire::encode_call(&stale)), Some(stale));
    for answer in [
        Answer::Ran(Ran::Done(vec![Reply::Nil, Reply::Int(-3), Reply::List(vec![Reply::Bytes("b".into())])]), 7),
        Answer::Ran(Ran::Unmet, 0),
        Answer::Forgotten,
        Answer::Elsewhere { leader: Some(NodeId(4)) },
        Answer::Elsewhere { leader: None },
        Answer::Busy,
        Answer::TurnedAway { floor: 0 },
        Answer::TurnedAway { floor: 6 },
        Answer::Moved,
    ] {
        let call = Call::Answer { group: GroupId(7), id: id(3), answer };
        assert_eq!(wire::decode_call(wire::encode_call(&call)), Some(call));
    }
    // A program from before there was this answer takes it for `Busy`, which only lacks the last field.
    let away = Call::Answer { group: GroupId(7), id: id(3), answer: Answer::TurnedAway { floor: 2 } };
    let golden = b"\x08\x07\x1a\x06\x08\x01\x10\x01\x18\x03\x22\x04\x08\x04\x30\x03";
    assert_eq!(wire::encode_call(&away), &golden[..]);
    for call in
        [Call::Leaves { group: GroupId(7), epoch: 3 }, Call::Left { group: GroupId(7), epoch: 3, end: (2, 900) }]
    {
        assert_eq!(wire::decode_call(wire::encode_call(&call)), Some(call));
    }
    for wrong in Wrong::ALL {
        let answer = Answer::Ran(Ran::Done(vec![Reply::Wrong(wrong)]), 0);
        let call = Call::Answer { group: GroupId(7), id: id(3), answer };
        assert_eq!(wire::decode_call(wire::encode_call(&call)), Some(call));
    }
}

#[test]
fn a_group_is_forgotten_only_by_a_declaration_that_must_have_had_it() {
    let forgets = |version| {
        let mut linear = Linear::new(NodeId(1), Boot(2), base::Rng::new(1));
        linear.start([(GroupId(7 << 16), vec![Bytes::from_static(b"kept")])].into(), false);
        let mut out = Vec::new();
        linear.handle(base::Now::default(), declared(version, base::LEVEL, []), &mut out);
        matches!(out[..], [Output::Forget { group: GroupId(458_752) }])
    };
    // A node that restarts shows an older declaration until it knows what of its log is committed.
    assert!(!forgets(0) && !forgets(6));
    assert!(forgets(7) && forgets(8));
}

#[test]
fn a_group_is_kept_while_a_newer_programs_records_cannot_be_read() {
    let mut linear = Linear::new(NodeId(1), Boot(2), base::Rng::new(1));
    linear.start([(GroupId(7 << 16), vec![Bytes::from_static(b"kept")])].into(), false);
    let mut forgotten = |version, unread| {
        let Input::Declared(declared) = declared(version, base::LEVEL, []) else { unreachable!() };
        let mut out = Vec::new();
        linear.handle(base::Now::default(), Input::Declared(class::Declared { unread, ..declared }), &mut out);
        out.iter().any(|output| matches!(output, Output::Forget { .. }))
    };
    assert!(!forgotten(8, 1), "its record may be that one");
    assert!(forgotten(9, 0));
}

/// A group of nodes 1 to 3, in memory, to be founded.
fn placed() -> Placed {
    let members = vec![NodeId(1), NodeId(2), NodeId(3)];
    Placed {
        id: GroupId(7 << 16),
        namespace: "bank".to_owned(),
        from: 0,
        to: u64::MAX,
        founders: members.clone(),
        members,
        epoch: 1,
        memory: true,
        splits: 0,
        split: None,
    }
}

/// A node with a group of nodes 1 to 3, in memory, founded or out of what its disk has kept.
fn with_group(node: u64, kept: &[Bytes], out: &mut Vec<Output>) -> Linear {
    let placed = placed();
    let id = placed.id;
    let mut linear = Linear::new(NodeId(node), Boot(1), base::Rng::new(node)).with_log(SHORT);
    if !kept.is_empty() {
        linear.start([(id, kept.to_vec())].into(), true);
    }
    linear.handle(Now::default(), declared(7, base::LEVEL, [placed]), out);
    linear
}

/// Wakes it until it sends something; that to node 1.
fn next_said(linear: &mut Linear) -> Frame {
    let mut out = Vec::new();
    while sent(&out).is_empty() {
        let mono = linear.wake_at().expect("its group ticks");
        linear.handle(Now { mono, wall_ms: 0 }, Input::Wake, &mut out);
    }
    sent(&out).into_iter().find(|(to, _)| *to == NodeId(1)).expect("it speaks to all").1
}

fn sent(out: &[Output]) -> Vec<(NodeId, Frame)> {
    let sent = |output: &Output| match output {
        Output::Send { to, frame } => Some((*to, frame.clone())),
        _ => None,
    };
    out.iter().filter_map(sent).collect()
}

#[test]
fn who_cannot_write_answers_who_was_rebooted_and_nothing_else() {
    let mut out = Vec::new();
    let mut stands = with_group(3, &[], &mut out);
    let (mut kept, mut saved) = (Vec::new(), Ticket(0));
    for output in out {
        if let Output::Save { parts, ticket, .. } = output {
            (kept, saved) = (parts.0.collect(), ticket);
        }
    }
    let saved = |linear: &mut Linear, out: &mut Vec<Output>| {
        linear.handle(Now::default(), Input::Saved { group: GroupId(7 << 16), ticket: saved }, out);
    };
    saved(&mut stands, &mut Vec::new());
    let vote_wanted = next_said(&mut stands);
    let recall = next_said(&mut with_group(2, &kept, &mut Vec::new()));
    // The disk was full before or after it had the group's first snapshot.
    for is_saved in [false, true] {
        let mut out = Vec::new();
        let mut mute = with_group(1, &[], &mut out);
        if is_saved {
            saved(&mut mute, &mut out);
        }
        mute.handle(Now::default(), Input::DiskFull(true), &mut out);
        out.clear();
        let from = NodeId(3);
        mute.handle(Now::default(), Input::Frame { from, frame: vote_wanted.clone() }, &mut out);
        assert!(out.is_empty(), "{out:?}");
        let from = NodeId(2);
        mute.handle(Now::default(), Input::Frame { from, frame: recall.clone() }, &mut out);
        let answered: Vec<NodeId> = sent(&out).into_iter().map(|(to, _)| to).collect();
        assert_eq!((&answered[..], out.len()), (&[from][..], 1), "{out:?}");
    }
}

#[test]
fn a_member_that_is_not_wanted_goes_when_the_leader_says_so_of_what_it_has() {
    let (id, now) = (GroupId(7 << 16), Now::default());
    let mut linear = with_group(3, &[], &mut Vec::new());
    let placed = Placed { members: vec![NodeId(1), NodeId(2)], founders: vec![], epoch: 2, ..placed() };
    for peer in [NodeId(1), NodeId(2)] {
        linear.handle(now, Input::Birth { peer, boot: Boot(1) }, &mut Vec::new());
    }
    linear.handle(now, declared(8, base::LEVEL, [placed]), &mut Vec::new());
    let mut out = Vec::new();
    linear.handle(Now { mono: base::Time::ZERO + Span::secs(600), wall_ms: 0 }, Input::Tend, &mut out);
    let asked = |output: &Output| match output {
        Output::Send { to, frame } => Some((*to, wire::decode_call(frame.head.clone()).unwrap())),
        _ => None,
    };
    let asked: Vec<_> = out.iter().filter_map(asked).collect();
    let question = Call::Leaves { group: id, epoch: 2 };
    assert_eq!(
        asked,
        [(NodeId(1), question.clone()), (NodeId(2), question)],
        "it asks, however long it takes: {out:?}"
    );
    assert_eq!(linear.groups().collect::<Vec<_>>(), [id], "and keeps what it has");
    let mut told = |epoch, end| {
        let call = wire::encode_call(&Call::Left { group: id, epoch, end });
        let mut out = Vec::new();
        let frame = Frame::new(base::kind::LINEAR_CALL, call);
        linear.handle(now, Input::Frame { from: NodeId(1), frame }, &mut out);
        matches!(out[..], [Output::Forget { .. }])
    };
    assert!(!told(1, (9, 900)), "of an older record");
    assert!(!told(2, (0, 0)), "it has had more since");
    assert!(told(2, (9, 900)));
    assert_eq!(linear.groups().count(), 0);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = wire::decode_call(bytes.clone());
        let mut space = Space::default();
        let _ = space.apply(1, bytes.clone(), &mut Vec::new());
        let _ = Space::from_parts(vec![bytes.clone(), bytes]);
    }
}
