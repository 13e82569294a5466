//! What released versions have written of this class, in frames, entries and snapshots, is read as it was meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Buf;
use uuid::Uuid;

use super::super::hash::Hash;
use super::super::ledger;
use super::super::once::{Kept, Once};
use super::super::queue::{New, Queue, Repeat};
use super::super::snapshot;
use super::super::sorted::{Scored, Sorted};
use super::super::space::Client;
use super::super::split::Split;
use super::super::stream::{Group, Id, Stream};
use super::super::value::{Entry, Value};
use super::*;
use crate::kept::{Sample, frames};

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn full() -> Command {
    Command {
        floor: 3,
        conditions: vec![Condition { key: text("k"), version: 9 }],
        splits: 1,
        once: Some(Once { id: Uuid::from_u128(7 << 76 | 2 << 62), of: 11 }),
        ..command(4, vec![step("k", "put", &["v", "always", "none", "old"]), step("l", "list.push-right", &["a", ""])])
    }
}

#[test]
fn fixtures_of_entries_are_read() {
    let split = Some(Split { at: 1 << 63, child: GroupId(9), after: 0 });
    let batches = [
        (
            "commands",
            Batch {
                clock: 1_000,
                commands: vec![full(), command(5, vec![step("", "clear", &[])])],
                ..Batch::default()
            },
        ),
        ("split", Batch { clock: 1_001, split, ..Batch::default() }),
    ];
    let samples: Vec<Sample<_>> =
        batches.into_iter().map(|(name, batch)| (name, wire::encode_batch(&batch), batch)).collect();
    frames("linear-entry", &samples, wire::decode_batch);
}

#[test]
fn fixtures_of_calls_are_read() {
    let group = GroupId(8);
    let answer = |answer| Call::Answer { group, id: id(4), answer };
    let replies = vec![
        Reply::Nil,
        Reply::Int(-7),
        Reply::Bytes(text("b")),
        Reply::List(vec![Reply::List(vec![Reply::Int(1)]), Reply::Nil]),
    ];
    // Of level 1; what came later has codes behind these.
    let wrongs = Wrong::ALL[..11].iter().copied().map(Reply::Wrong).collect();
    let calls = [
        ("do", Call::Do { group, reads: false, stale: None, sole: false, command: full() }),
        (
            "read",
            Call::Do { group, reads: true, stale: Some(Span::millis(500)), sole: false, command: command(5, vec![]) },
        ),
        ("ran", answer(Answer::Ran(Ran::Done(replies), 12))),
        ("wrongs", answer(Answer::Ran(Ran::Done(wrongs), 13))),
        ("unmet", answer(Answer::Ran(Ran::Unmet, 14))),
        ("forgotten", answer(Answer::Forgotten)),
        ("elsewhere", answer(Answer::Elsewhere { leader: Some(NodeId(3)) })),
        ("nowhere", answer(Answer::Elsewhere { leader: None })),
        ("busy", answer(Answer::Busy)),
        ("moved", answer(Answer::Moved)),
        ("refused", answer(Answer::Refused(Wrong::OnceReused))),
        ("leaves", Call::Leaves { group, epoch: 6 }),
        ("left", Call::Left { group, epoch: 6, end: (2, 15) }),
    ];
    let samples: Vec<Sample<_>> =
        calls.into_iter().map(|(name, call)| (name, wire::encode_call(&call).to_vec(), call)).collect();
    frames("linear-call", &samples, wire::decode_call);
}

/// All that a snapshot carries.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    numbers: (u64, u64, u32, Option<u64>),
    entries: Vec<(Bytes, Entry)>,
    clients: BTreeMap<NodeId, Client>,
    onces: Vec<(Uuid, Kept, u64)>,
    closed: BTreeMap<u64, u64>,
}

fn seen(space: &Space) -> Seen {
    let (clock, revision, clients) = space.head();
    let onces = space.onces().all().collect();
    Seen {
        numbers: (clock, revision, space.splits(), space.above()),
        entries: space.map().from(b"").cloned().collect(),
        clients: clients.clone(),
        onces,
        closed: space.onces().closed().clone(),
    }
}

fn sample() -> Seen {
    let map = [(text("f"), text("v")), (text("g"), text(""))].into();
    let values = [
        ("hash", Value::Hash(Arc::new(map))),
        ("lease", Value::Lease { holder: text("me"), token: 77 }),
        ("list", Value::List(Arc::new([text("b"), text("a"), text("b")].into()))),
        ("set", Value::Set(Arc::new([text("x"), text("y")].into()))),
        ("text", Value::Text(text("value"))),
    ];
    let entry = |(n, (key, value)): (u64, (&str, Value))| {
        let size = value.bytes();
        (text(key), Entry { value, version: 10 + n, end: n * 5_000, size })
    };
    let answers = BTreeMap::from([(4, Ran::Done(vec![Reply::Int(1), Reply::Wrong(Wrong::Type)])), (6, Ran::Unmet)]);
    let kept = |ran| Kept { of: 11, ran };
    let made = |n: u128| Uuid::from_u128((1_700_000_000_000 << 80) | (7 << 76) | (2 << 62) | n);
    Seen {
        numbers: (1_000, 77, 1, Some(1 << 63)),
        entries: (0..).zip(values).map(entry).collect(),
        clients: BTreeMap::from([(NodeId(3), Client { boot: Boot(2), floor: 4, answers })]),
        onces: vec![(made(1), kept(Some(Ran::Done(vec![Reply::Nil]))), 990), (made(2), kept(None), 990)],
        closed: BTreeMap::from([(5, 7), (9, 10)]),
    }
}

/// With a kind of value that came later.
fn sample_of_sorted_sets() -> Seen {
    let item = |(member, score)| Scored { member: text(member), score };
    let items = [("low", f64::NEG_INFINITY), ("b", 0.1), ("a", 0.1), ("", -2.0), ("high", f64::INFINITY)];
    let value = Value::Sorted(Arc::new(Sorted::of(items.map(item).into()).unwrap()));
    let entry = Entry { size: value.bytes(), value, version: 10, end: 5_000 };
    Seen { entries: vec![(text("sorted"), entry)], ..sample() }
}

fn sample_of_ledgers() -> Seen {
    let value = Value::Ledger(Arc::new(ledger::sample()));
    let entry = Entry { size: value.bytes(), value, version: 10, end: 0 };
    Seen { entries: vec![(text("ledger"), entry)], ..sample() }
}

/// ... and one that came after it.
fn sample_of_streams() -> Seen {
    let (mut stream, id) = (Stream::default(), |ms, seq| Id { ms, seq });
    for (ms, fields) in [(5, ["f", "a"]), (6, ["f", "b"]), (7, ["other", "c"])] {
        stream.log.add(id(ms, 1), &fields.map(text));
    }
    assert!(stream.log.remove(id(6, 1)));
    stream.set_group(text("group"), Group::new(id(5, 1), Some(1)));
    stream.set_group(text("idle"), Group::new(id(7, 1), None));
    stream.change_group(b"group", |_, group| {
        group.see(&text("consumer"), 1_000);
        group.give(id(5, 1), &text("consumer"), 1_000, 2);
        group.acts(b"consumer", 1_000);
    });
    let value = Value::Stream(Arc::new(stream));
    let entry = Entry { size: value.bytes(), value, version: 10, end: 0 };
    Seen { entries: vec![(text("stream"), entry)], ..sample() }
}

/// Fields that end, beside one that does not.
fn sample_of_fields() -> Seen {
    let all = [("f", "v"), ("g", ""), ("h", "w")].map(|(field, value)| (text(field), text(value)));
    let mut hash: Hash = all.into_iter().collect();
    hash.set_end(b"f", 6_000);
    hash.set_end(b"h", 9_000);
    let value = Value::Hash(Arc::new(hash));
    let entry = Entry { size: value.bytes(), value, version: 10, end: 0 };
    Seen { entries: vec![(text("fields"), entry)], ..sample() }
}

/// A job in each state, a key that is remembered, and a repeat that has put one.
fn sample_of_queues() -> Seen {
    let new = |payload, priority, delay| New { payload: text(payload), priority, tries_max: 3, delay };
    let mut queue = Queue::default();
    queue.hear(1_700_000_000_000, 900);
    queue.put(new("dead", 9, 0), 100);
    let ticket = queue.take(5_000).unwrap().0;
    assert!(queue.fail(ticket, None, text("no such address"), true, 200));
    queue.put(new("done", 9, 0), 200);
    let ticket = queue.take(5_000).unwrap().0;
    queue.done(ticket);
    queue.put(new("held", 8, 0), 300);
    queue.take(7_000).unwrap();
    let id = queue.put(new("waits", 5, 0), 400);
    queue.remember(text("once"), id, 9_000, 400);
    queue.put(new("comes later", 0, 6_000), 500);
    let job = New { payload: Bytes::from_static(&[0xff, 0]), priority: 5, tries_max: 5, delay: 0 };
    let repeat = Repeat { text: text("0 7 * * mon-fri"), job, next: 1_700_000_400_000, last: 4 };
    queue.repeat(text("digest"), repeat);
    let value = Value::Queue(Arc::new(queue));
    let entry = Entry { size: value.bytes(), value, version: 10, end: 0 };
    Seen { entries: vec![(text("queue"), entry)], ..sample() }
}

fn space_of(seen: Seen) -> Space {
    let (clock, revision, splits, above) = seen.numbers;
    let mut space = Space::restored(clock, revision, splits, above);
    for (node, client) in seen.clients {
        space.restore_client(node, client.boot, client.floor, client.answers);
    }
    seen.onces.into_iter().for_each(|(id, kept, touched)| space.restore_once(id, kept, touched));
    seen.closed.into_iter().for_each(|(from, upto)| space.restore_closed(from, upto));
    seen.entries.into_iter().for_each(|(key, entry)| space.restore(key, entry));
    space
}

/// The parts of a snapshot, each behind its length.
#[test]
fn fixtures_of_snapshots_are_read() {
    let bytes = |seen| {
        let parts = snapshot::parts(&space_of(seen)).0;
        parts.flat_map(|part| [&(part.len() as u32).to_be_bytes()[..], &part[..]].concat()).collect()
    };
    let samples = [
        ("space", sample()),
        ("sorted", sample_of_sorted_sets()),
        ("ledger", sample_of_ledgers()),
        ("stream", sample_of_streams()),
        ("fields", sample_of_fields()),
        ("queue", sample_of_queues()),
    ];
    let samples = samples.map(|(name, seen)| (name, bytes(seen.clone()), seen));
    frames("linear-snapshot", &samples, |mut bytes| {
        let mut parts = Vec::new();
        while bytes.has_remaining() {
            let len = bytes.get_u32() as usize;
            parts.push(bytes.split_to(len));
        }
        snapshot::read(parts).as_ref().map(seen)
    });
}
