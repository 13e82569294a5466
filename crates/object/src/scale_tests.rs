//! What a node costs that has very many objects and deletions: what one turn looks at. What they take of memory is in `tests/memory.rs`.

use base::{Boot, NodeId, Now, Rng, Span, Time};
use bytes::Bytes;
use class::{Class, Declared, Numbers};

use crate::filled::fill;
use crate::limits::{GRAVE_LOOKS, ORDER_ENTRIES, SAVE_ENTRIES, WALK_ENTRIES, WATCH_SCAN};
use crate::wire::{Head, WatchMessage, What};
use crate::{Input, Object, Settings};

const MANY: u64 = 300_000;

/// A node with all of that, and what its turns look at.
struct Node {
    object: Object,
    now: Time,
    most: u64,
}

impl Node {
    fn input(&mut self, input: Input) {
        self.object.table.steps.set(0);
        let mut out = Vec::new();
        let now = Now { mono: self.now, wall_ms: 1_700_000_100_000 + self.now.0 / 1000 };
        self.object.handle(now, input, &mut out);
        self.most = self.most.max(self.object.table.steps.get());
    }

    fn run(&mut self, span: Span) {
        let (end, mut tend) = (self.now + span, self.now);
        while self.now < end {
            let wake = self.object.wake_at().unwrap_or(Time::NEVER).max(self.now);
            let is_tend = tend <= wake;
            self.now = if is_tend { tend } else { wake };
            self.input(if is_tend { Input::Tend } else { Input::Wake });
            if is_tend {
                tend = tend + Span::millis(250);
            }
        }
    }

    fn declare(&mut self, nodes: u64) {
        let numbers = Numbers { used: [1].into(), last: 1 };
        let (nodes, level) = ((1..=nodes).map(NodeId).collect(), base::LEVEL);
        let (spaces, records) = (Default::default(), Default::default());
        self.input(Input::Declared(Declared { version: 1, level, spaces, records, unread: 0, nodes, numbers }));
    }
}

#[test]
fn no_turn_looks_at_all_that_a_node_has_whatever_happens() {
    let mut object = Object::new(NodeId(1), Boot(1), Rng::new(1), Settings::default());
    fill(&mut object.table, MANY, MANY / 2);
    let mut node = Node { object, now: Time(1_000_000), most: 0 };
    node.declare(3);
    node.run(Span::secs(8));
    assert!(node.object.walk.is_none(), "it has come to an end");
    for peer in [2, 3] {
        node.input(Input::Birth { peer: NodeId(peer), boot: Boot(1) });
        node.run(Span::millis(300));
        assert!(node.object.walk.is_some(), "it has only begun");
    }
    node.run(Span::secs(8));
    assert!(node.object.walk.is_none());
    // A checkpoint, for whoever watches, and a node that joins and lacks all deletions.
    node.object.log.has_removed = true;
    let watch = WatchMessage { ns: 1, prefix: Bytes::new(), by: 1, after: None, hold_ms: 0 };
    let head = Head { id: 1, pending: 0, full: false, what: Some(What::Watch(watch)) };
    node.input(Input::Frame {
        from: NodeId(2),
        frame: base::Frame::new(crate::DATA, prost::Message::encode_to_vec(&head)),
    });
    node.run(Span::secs(10));
    assert!(node.object.table.order_on(1), "the order is whole");
    node.declare(4);
    node.input(Input::Birth { peer: NodeId(4), boot: Boot(1) });
    node.run(Span::secs(20));
    // Its first ones are on their way there, and no more of them than a few thousand.
    let unsettled = node.object.table.unsettled();
    assert!((1000..=2 * crate::limits::EXHUMED_MAX).contains(&unsettled), "{unsettled}");
    node.input(Input::Leaving([(NodeId(1), false)].into()));
    assert!(node.object.counted_on().is_some(), "it does not know yet");
    node.input(Input::Death { peer: NodeId(2) });
    node.run(Span::secs(700));
    let most = (WALK_ENTRIES + SAVE_ENTRIES + 2 * ORDER_ENTRIES + 2 * GRAVE_LOOKS + WATCH_SCAN) as u64;
    println!("at most {} of {} in a turn", node.most, MANY + MANY / 2);
    assert!(node.most <= most && most < MANY / 2, "{} in a turn", node.most);
}
