//! A brick takes as much memory as it says: of a hundred thousand sessions of several sizes, through writes, reads, new leases and
//! ends, what it counts is what the allocator has given, and its bound is one.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::{AskId, Boot, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use class::{Class, Declared, Space};
use peak_alloc::PeakAlloc;
use session::{Action, BrickMap, CookieSecret, Input, Kind, Lease, MAP_RECORD, Op, Output, Reply, Session, Spec, When};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const ENTRIES: usize = 100_000;

/// One node alone: its brick has every value.
struct Node {
    session: Session,
    now: Time,
    asks: u64,
    space: Arc<str>,
    before: usize,
}

impl Node {
    fn new(bytes: u64) -> Self {
        let session = Session::new(NodeId(1), Boot(1), Rng::new(1)).with_brick_bytes(bytes);
        let mut node = Self { session, now: Time(1_000_000), asks: 0, space: "carts".into(), before: 0 };
        let space = Space { id: 1, spec: Spec::default(), secret: CookieSecret::new(1, [7; 32]) };
        let map = BrickMap { epoch: 1, members: vec![NodeId(1)], old: None };
        let (spaces, records) = ([("carts".to_owned(), space)].into(), [(MAP_RECORD.to_owned(), map)].into());
        node.input(Input::Declared(Declared {
            version: 1,
            level: base::LEVEL,
            spaces,
            records,
            unread: 0,
            nodes: std::collections::BTreeSet::new(),
            numbers: Default::default(),
        }));
        node.ask(0, Action::Get).unwrap();
        node.before = ALLOCATOR.current_usage();
        node
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.session.handle(Now { mono: self.now, wall_ms: 1_700_000_000_000 + self.now.0 / 1000 }, input, &mut out);
        out
    }

    /// `None`: it was refused.
    fn ask(&mut self, nth: usize, action: Action) -> Option<Reply> {
        (self.asks, self.now) = (self.asks + 1, self.now + Span::micros(500));
        // As it comes from a connection: a part of what was read with it.
        let key = Bytes::from(format!("{}session:{nth:08}", "x".repeat(1000))).slice(1000..);
        let op = Op::keyed(Arc::clone(&self.space), key, action);
        let out = self.input(Input::Ask { id: AskId(self.asks), budget: Span::secs(1), op });
        match out
            .into_iter()
            .find_map(|output| if let Output::Answer { answer, .. } = output { Some(answer) } else { None })
        {
            Some(Outcome::Done(reply)) => Some(reply),
            Some(Outcome::Refused(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, nth: usize, len: usize, when: When) -> Option<Reply> {
        let value = Bytes::from(vec![7; len]);
        self.ask(nth, Action::Put { value, kind: Kind::Text, lease: Lease::Default, when, want_old: false })
    }

    fn figure(&self, name: &str) -> u64 {
        self.session.shown().find(|(have, _)| have.name == name).unwrap().1
    }

    /// Panics if what it counts is not what there is, within a tenth.
    #[track_caller]
    fn check(&self, what: &str) {
        let (counted, real) = (self.figure("session.bytes"), (ALLOCATOR.current_usage() - self.before) as u64);
        println!("{what}: {} values, counted {counted}, {real} in fact", self.figure("session.entries"));
        assert!(counted.abs_diff(real) * 10 <= real, "{what}: counted {counted}, {real} in fact");
    }
}

#[test]
fn a_brick_counts_what_it_takes_and_keeps_within_its_bound() {
    for len in [0, 10, 100, 700, 4_000] {
        let mut node = Node::new(4 << 30);
        for nth in 0..ENTRIES {
            node.put(nth, len, When::Always).unwrap();
        }
        node.check(&format!("values of {len}"));
        for nth in 0..ENTRIES {
            assert!(matches!(node.ask(nth, Action::Get), Some(Reply::Value { .. })));
        }
        node.check(&format!("values of {len}, read"));
        // Sessions move to later generations, all but a few, which must not hold the room of all.
        node.now = node.now + Span::secs(600);
        for nth in (0..ENTRIES).filter(|nth| nth % 50 > 0) {
            assert_eq!(node.ask(nth, Action::Touch { lease: Lease::Default }), Some(Reply::Touched(true)));
        }
        node.check(&format!("values of {len}, touched"));
        for nth in 0..ENTRIES / 10 {
            node.put(nth, len + 5, When::Present).unwrap();
        }
        node.check(&format!("values of {len}, written under a condition"));
        for nth in 0..ENTRIES * 3 / 4 {
            assert_eq!(node.ask(nth, Action::Remove), Some(Reply::Removed(true)));
        }
        node.check(&format!("values of {len}, most removed"));
        for _ in 0..10_000 {
            node.now = node.now + Span::secs(1);
            node.input(Input::Wake);
        }
        assert_eq!((node.figure("session.entries"), node.figure("session.bytes")), (0, 0));
        let left = ALLOCATOR.current_usage().saturating_sub(node.before);
        assert!(left < 200_000, "{left} bytes are left of nothing");
    }
    let bound = 32 << 20;
    let mut node = Node::new(bound);
    let stored = (0..).find(|nth| node.put(*nth, 100, When::Always).is_none()).unwrap();
    let real = (ALLOCATOR.current_usage() - node.before) as u64;
    println!("{stored} values of 100 in {bound} bytes, {real} in fact");
    assert!(real < bound + bound / 10 && real > bound / 2, "{stored} values took {real} bytes of {bound}");
}
