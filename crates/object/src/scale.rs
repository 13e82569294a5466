//! What a node costs that has very many objects and deletions: memory for each, and what one turn looks at.

use std::collections::BTreeSet;
use std::process::Command;

use base::{Boot, NodeId, Now, Rng, Span, Ticket, Time};
use bytes::Bytes;
use class::{Class, Declared, Numbers, Version};

use crate::held::{At, Held};
use crate::lies::{Lies, Part, Parts, Place};
use crate::limits::{ENTRY_BYTES, GRAVE_BYTES, GRAVE_LOOKS, ORDER_ENTRIES, SAVE_ENTRIES, WALK_ENTRIES, WATCH_SCAN};
use crate::table::{Entry, Table};
use crate::wire::{Head, WatchMessage, What};
use crate::{Id, Input, Key, Object, Settings, Stamp};

fn stamp(rng: &mut Rng, gone: bool) -> Stamp {
    let version = Version { ms: 1_700_000_000_000 + rng.below(1 << 30), counter: 0, node: NodeId(1) };
    let (sum, size) = if gone { (0, 0) } else { (rng.u64() as u32, 4700) };
    Stamp { version, once: true, gone, sum, size }
}

/// An id as mail has them, of one of the owners.
fn key(rng: &mut Rng, owners: u64) -> Key {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&rng.u64().to_be_bytes());
    id[8..].copy_from_slice(&rng.u64().to_be_bytes());
    let owner = format!("user{}@mail.example", rng.below(owners));
    // Each comes with a name of its own, as from a frame.
    Key { ns: 1, owner: Bytes::from(owner), id: Id(id) }
}

fn held(rng: &mut Rng, gone: bool) -> Held {
    let (first, second) = [(1, 2), (1, 3), (2, 1)][rng.below(3) as usize];
    let homes: BTreeSet<NodeId> = match gone {
        true => (1..=3).map(NodeId).collect(),
        false => [NodeId(first), NodeId(second)].into(),
    };
    Held::new(stamp(rng, gone), At { has: homes.clone(), homes, ..At::default() })
}

/// So many objects that lie in packs, and deletions about which nothing is left to do.
fn fill(table: &mut Table, objects: u64, graves: u64) {
    let mut rng = Rng::new(7);
    for n in 0..objects {
        let held = held(&mut rng, false);
        let parts = Parts::One(Part { len: held.stamp.size, sum: held.stamp.sum });
        let body = Lies::Packed(Place { pack: 1 + n / 3500, from: n % 3500 * 4700, parts });
        let key = key(&mut rng, 10_000);
        table.insert(key, Entry { held, body, set: 0, ticket: Ticket(0), serial: 0 });
    }
    for n in 0..graves {
        let (key, held) = (key(&mut rng, 10_000), held(&mut rng, true));
        table.restore_grave(&key, held, 1_700_000_000 + (n / 20) as u32);
    }
}

/// Memory of this process, bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

const MANY: u64 = 300_000;

#[test]
#[ignore = "it is run by another one, in a process of its own"]
fn in_a_process_of_its_own() {
    let mut table = Table::default();
    fill(&mut table, 1000, 1000);
    for (what, objects, graves) in [("objects", MANY, 0), ("graves", 0, MANY)] {
        let before = memory();
        fill(&mut table, objects, graves);
        println!("{what}: {} bytes each", memory().saturating_sub(before) / MANY);
    }
    assert!(table.len() > 1000);
}

#[test]
fn an_object_and_a_deletion_take_as_much_memory_as_is_counted() {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "scale::in_a_process_of_its_own", "--ignored", "--nocapture"];
    let said = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let each = |what: &str| -> u64 {
        let line = said.lines().find_map(|line| line.split(&format!("{what}: ")).nth(1));
        line.and_then(|line| line.split(' ').next()).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let (object, grave) = (each("objects"), each("graves"));
    println!("an object {object}, a deletion {grave} bytes");
    assert!((100..=ENTRY_BYTES).contains(&object), "{object}");
    assert!((50..=GRAVE_BYTES).contains(&grave), "{grave}");
}

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
