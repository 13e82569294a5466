//! Class `soft`: what nodes say of their collections, what is on a disk of them, how far a reader of changes is, contexts and sketches.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, Frame, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use cluster::raft::LogBounds;
use state::class::{Birth, Class, CookieSecret, Declared, Space};
use state::soft::holds::{self, FRAMES};
use state::soft::{Action, End, Input, Kind, Op, Output, Reply, Soft, Spec, Watch};

use crate::frames::{OUTPUTS_MAX, later, start};
use crate::memory::bounded;

/// Borders of varints, tags of the messages, and numbers that no life gives.
pub const WORDS: &[&[u8]] = &[
    b"\x00\x02\x06\x08\x07",
    b"\x08\x07\x10\x01",
    b"\x1a\x00",
    b"\x12\x04\x08\x02\x10\x01",
    b"\x1a\x02\x01\x05",
    b"\x80\x80\x80\x80\x80\x80\x40",
    b"\xff\xff\xff\xff\xff\xff\x3f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x08\x01\x10\x01\x18\x01",
    b"\x28\x01",
    b"floor",
    b"own",
    b"\x7f",
];

/// A whole cell has 168 bytes in memory, a delta 184, and each may stand in two bytes of a message; vectors double, and the old half is
/// there while the new one is filled; and what was read is read once more.
const MESSAGE_TIMES: usize = 512;
/// The namespace, and what of an input is no frame but a cursor.
const SPACE: u32 = 7;
const CURSOR: u8 = FRAMES.len() as u8;

/// Messages behind two bytes of length and one that says which kind of frame it is. A machine is told them by two peers in turn: it does not
/// grow past its bounds, and does for its own clients what it did before.
pub fn frames(data: &[u8]) -> bool {
    let Some(messages) = parts(data) else { return false };
    let now = start();
    let mut understood = false;
    for (of, bytes) in &messages {
        understood |= bounded(bytes.len(), MESSAGE_TIMES, || match FRAMES.get(usize::from(*of)) {
            Some(kind) => holds::wire(*kind, bytes, now),
            None => holds::cursor(bytes, SPACE),
        });
    }
    let mut node = Node::new();
    for (nth, (of, bytes)) in messages.into_iter().enumerate() {
        match FRAMES.get(usize::from(of)) {
            Some(kind) => {
                let frame = Frame::new(*kind, bytes);
                node.give(Input::Frame { from: NodeId(2 + nth as u64 % 2), frame });
            }
            None => drop(node.ask(Action::Watch(Watch {
                prefix: Bytes::new(),
                after: Some(bytes),
                hold: Span::ZERO,
                ends: true,
            }))),
        }
        node.give(Input::Wake);
    }
    let (key, value) = (Bytes::from_static(b"own"), Bytes::from_static(b"value"));
    let set = node.ask(Action::Set { pairs: vec![(key.clone(), value.clone())], end: End::Never });
    assert_eq!(set, Some(Outcome::Done(Reply::Done)), "a write of its own");
    let read = node.ask(Action::Read { kind: Kind::Register, at: vec![(key, Bytes::new())] });
    assert_eq!(read, Some(Outcome::Done(Reply::Values(vec![Some(value)]))), "what was just written");
    understood
}

/// Records of a checkpoint, each behind two bytes of length, and one that nothing is made of.
pub fn kept(data: &[u8]) -> bool {
    let Some(records) = parts(data) else { return false };
    holds::kept(records.into_iter().map(|(_, bytes)| bytes).collect(), start())
}

/// Two messages with contexts.
pub fn contexts(data: &[u8]) -> bool {
    match parts(data).as_deref() {
        Some([(_, one), (_, other), ..]) => {
            bounded(data.len(), MESSAGE_TIMES, || holds::contexts(one, other));
            holds::contexts(one, other)
        }
        _ => false,
    }
}

/// The first byte says how many symbols; of the rest nine bytes are a number and who has it, or a symbol of nobody.
pub fn sketch(data: &[u8]) -> bool {
    let Some((&length, rest)) = data.split_first() else { return false };
    let (mut mine, mut theirs, mut forged) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for part in rest.as_chunks::<9>().0 {
        let number = part[1..].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        match part[0] % 4 {
            0 => drop(mine.insert(number)),
            1 => drop(theirs.insert(number)),
            2 => drop((mine.insert(number), theirs.insert(number))),
            _ => forged.push((number, number.rotate_left(7), i64::from(part[0] >> 2) - 32)),
        }
    }
    holds::sketch(&mine, &theirs, &forged, usize::from(length) + 1)
}

/// One node with one namespace, which knows two others.
struct Node {
    soft: Soft,
    now: Now,
    asks: u64,
}

impl Node {
    fn new() -> Self {
        let log = LogBounds { records_max: 1, bytes_max: 1, entries_kept: 1 };
        let mut birth = Birth { me: NodeId(1), boot: Boot(1), rng: Rng::new(1), level: base::LEVEL, log };
        let mut node = Self { soft: Soft::born(&mut birth, ()), now: start(), asks: 0 };
        node.give(Input::Wake);
        // What is declared so late is new, so it need not be got from others first.
        node.now = Now { mono: node.now.mono + Span::secs(60), wall_ms: node.now.wall_ms + 60_000 };
        for peer in 2..=3 {
            node.give(Input::Birth { peer: NodeId(peer), boot: Boot(1) });
        }
        let spec = Spec { copies: 1, ..Spec::default() };
        let space = Space { id: SPACE, spec, secret: CookieSecret::new(9, [7; 32]) };
        node.give(Input::Declared(Declared {
            version: 1,
            level: base::LEVEL,
            spaces: BTreeMap::from([("floor".to_owned(), space)]),
            records: BTreeMap::new(),
            unread: 0,
            nodes: Default::default(),
            numbers: Default::default(),
        }));
        node
    }

    fn give(&mut self, input: Input) -> Vec<Output> {
        self.now = later(self.now);
        let mut out = Vec::new();
        self.soft.handle(self.now, input, &mut out);
        assert!(out.len() < OUTPUTS_MAX, "one input made {} outputs", out.len());
        assert!(self.soft.wake_at().is_none_or(|at| at < Time(u64::MAX)), "it sleeps for ever");
        out
    }

    fn ask(&mut self, action: Action) -> Option<Outcome<Reply>> {
        self.asks += 1;
        let id = AskId(self.asks);
        let out = self.give(Input::Ask { id, budget: Span::secs(1), op: Op::of("floor".into(), action) });
        out.into_iter().find_map(|output| match output {
            Output::Answer { id: of, answer } if of == id => Some(answer),
            _ => None,
        })
    }
}

/// Bytes behind two of their length, and one that says what they are.
fn parts(data: &[u8]) -> Option<Vec<(u8, Bytes)>> {
    let mut rest = data;
    let mut messages = Vec::new();
    while let Some((&[high, low, of], tail)) = rest.split_first_chunk::<3>() {
        let (message, tail) = tail.split_at(usize::from(u16::from_be_bytes([high, low])).min(tail.len()));
        messages.push((of % (CURSOR + 1), Bytes::copy_from_slice(message)));
        rest = tail;
    }
    (!messages.is_empty()).then_some(messages)
}
