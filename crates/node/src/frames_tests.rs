//! What a peer can send to a node machine, and what must not come of it.

use std::collections::BTreeMap;

use base::{Boot, Effect, Event, Frame, Machine, NodeId, Now, Rng, Span, Time, kind};
use bytes::Bytes;
use cluster::root::{Change, Declared};
use cluster::{Card, DoorAddrs};
use state::linear::limits::LOG;

use crate::limits::{BAD_FRAMES_IN_ROW_MAX, EVENTS_MAX, TURNED_AWAY_WAIT};
use crate::node::{Birth, Node, Out};
use crate::{declared, level};

const DECLARATION: &str = "[namespace.carts]\nclass = \"session\"\n\n[namespace.bank]\nclass = \"linear\"\n\n\
    [service.shop]\nrun = [\"true\"]\nclones = 2\n";

/// What a program has that is newer than this one.
const NEWER: u32 = base::LEVEL + 1;

fn card(n: u64, boot: u64) -> Card {
    let doors = DoorAddrs::on([10, 0, 0, n as u8].into());
    let (name, version) = (format!("n{n}"), "0.1.0".into());
    Card { id: NodeId(n), boot: Boot(boot), name, doors, pid: n as u32, version, level: base::LEVEL }
}

struct Bench {
    node: Node,
    now: Time,
    /// What it asked for that ends its process.
    ends: Vec<String>,
    hangups: u32,
    notes: u32,
}

impl Bench {
    /// A node of its own cluster, or one that is to join the cluster of node 2.
    fn new(founds: bool) -> Self {
        let diff = declared::diff(&Declared::default(), "a.toml", DECLARATION, &[7; 32]).unwrap();
        let mut change = Change { expect: None, ..diff.change };
        change.puts.push(level::put(base::LEVEL));
        let birth = Birth {
            cluster: "home".into(),
            card: card(1, 5),
            seeds: vec![card(2, 1).peer()],
            seed: 1,
            settings: state::Settings::default(),
            overflow: false,
            room: 8,
            builtins: &[],
            linear_log: LOG,
            found: founds.then_some(change),
        };
        let mut bench = Self { node: Node::new(birth), now: Time(1_000_000), ends: Vec::new(), hangups: 0, notes: 0 };
        bench.hear(Event::Start { log: BTreeMap::new(), remarks: Vec::new(), rebooted: false });
        bench
    }

    fn hear(&mut self, event: Event<crate::Ask>) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out: Out = Vec::new();
            self.node.handle(Now { mono: self.now, wall_ms: 1_700_000_000_000 + self.now.0 / 1_000 }, event, &mut out);
            for effect in out {
                match effect {
                    Effect::Append { group, ticket, .. } => events.push(Event::Appended { group, ticket }),
                    Effect::Save { group, ticket, .. } => events.push(Event::Saved { group, ticket }),
                    Effect::Distrust { why } | Effect::Outdated { why } => self.ends.push(why),
                    Effect::Hangup { .. } => self.hangups += 1,
                    Effect::Note(_) => self.notes += 1,
                    _ => (),
                }
            }
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Span::millis(20);
            self.hear(Event::Wake);
        }
    }

    fn link(&mut self, n: u64, level: u32) {
        let card = Card { level, ..card(n, 1) };
        self.hear(Event::Linked { peer: card.id, boot: card.boot, card: card.encode() });
    }

    fn send(&mut self, n: u64, kind: u16, head: impl Into<Bytes>) {
        self.hear(Event::Frame { from: NodeId(n), frame: Frame::new(kind, head) });
    }

    fn events(&self, kind: &str) -> Vec<String> {
        self.node.happened.iter().filter(|event| event.kind == kind).map(|event| event.text.clone()).collect()
    }
}

/// One byte more than that it is turned away ended a node.
#[test]
fn no_frame_of_a_peer_ends_a_node_whatever_its_first_bytes_are() {
    for founds in [true, false] {
        let mut bench = Bench::new(founds);
        bench.run(Span::secs(1));
        bench.link(3, base::LEVEL);
        bench.send(3, kind::MEMBERSHIP, &b"\x01\x02"[..]);
        let mut rng = Rng::new(1);
        for kind in 0..40 {
            for byte in 0..=255u8 {
                let noise: Vec<u8> = (0..30).map(|_| rng.u64() as u8).collect();
                let heads = [vec![byte], vec![byte; 2], vec![byte; 9], vec![byte, 0], [&[byte], &noise[..]].concat()];
                let known = [1, 3, 0, 0, 0, 0, 0, 0, 0, byte, 0, 0, 0, 1].to_vec();
                for head in heads.into_iter().chain([known]) {
                    bench.send(3, kind, head.clone());
                    let body = Bytes::from(noise.clone());
                    bench.hear(Event::Frame { from: NodeId(3), frame: Frame { body, ..Frame::new(kind, head) } });
                }
            }
            bench.run(Span::millis(300));
        }
        bench.run(Span::secs(3));
        // A newcomer has nobody but this one to believe, and nothing to lose.
        bench.ends.retain(|why| founds || !why.contains("knows of boot"));
        assert_eq!(bench.ends, Vec::<String>::new(), "founds: {founds}");
        assert!(bench.hangups > 0 && bench.notes < 100, "{} notes", bench.notes);
        assert!(bench.node.happened.len() < EVENTS_MAX / 2, "{:?}", bench.node.happened);
    }
}

#[test]
fn who_sends_nothing_but_bad_frames_is_hung_up_on() {
    let mut bench = Bench::new(true);
    bench.link(3, base::LEVEL);
    let bad = |bench: &mut Bench| bench.send(3, kind::BEACON, &b"\xff"[..]);
    for _ in 1..BAD_FRAMES_IN_ROW_MAX {
        bad(&mut bench);
    }
    assert_eq!(bench.hangups, 0);
    bench.send(3, kind::MEMBERSHIP, &b"\x01\x01"[..]);
    for _ in 1..BAD_FRAMES_IN_ROW_MAX {
        bad(&mut bench);
    }
    assert_eq!(bench.hangups, 0, "they are not in a row");
    let before = bench.notes;
    bad(&mut bench);
    assert_eq!((bench.hangups, bench.node.bad.hung_up), (1, 1));
    assert_eq!(
        bench.events("bad-frames"),
        [format!("sent {BAD_FRAMES_IN_ROW_MAX} bad frames in a row and was hung up on")]
    );
    (0..21_000).for_each(|_| bad(&mut bench));
    assert!(bench.notes <= before + 2, "{} lines", bench.notes - before);
    assert_eq!(bench.node.bad.frames, 21_000 + 2 * u64::from(BAD_FRAMES_IN_ROW_MAX) - 1);
}

#[test]
fn a_newcomer_that_all_turn_away_ends_and_nobody_else() {
    let wait = TURNED_AWAY_WAIT.times(2);
    let told = |bench: &mut Bench, n| bench.send(n, kind::LEVEL, NEWER.to_string());
    let mut newcomer = Bench::new(false);
    newcomer.link(2, NEWER);
    told(&mut newcomer, 2);
    assert!(newcomer.ends.is_empty(), "others may say something else");
    newcomer.run(wait);
    assert_eq!(newcomer.ends[0], level::lacks(base::LEVEL, NEWER).unwrap());

    // Its own program is not newer.
    let mut newcomer = Bench::new(false);
    newcomer.link(2, base::LEVEL);
    told(&mut newcomer, 2);
    newcomer.run(wait);
    assert!(newcomer.ends.is_empty());

    // Nobody has dialled it.
    let mut newcomer = Bench::new(false);
    newcomer.link(3, NEWER);
    told(&mut newcomer, 3);
    newcomer.run(wait);
    assert!(newcomer.ends.is_empty());

    // Another one takes it in.
    let mut newcomer = Bench::new(false);
    newcomer.link(2, NEWER);
    newcomer.link(3, NEWER);
    told(&mut newcomer, 2);
    newcomer.send(3, kind::MEMBERSHIP, &b"\x01\x02"[..]);
    newcomer.run(wait);
    assert!(newcomer.ends.is_empty());

    // It knows what is agreed on.
    let mut member = Bench::new(true);
    member.run(Span::secs(1));
    member.link(2, NEWER);
    told(&mut member, 2);
    member.run(wait);
    assert!(member.ends.is_empty());
}

#[test]
fn a_later_life_of_this_node_is_believed_of_two_or_of_one_that_votes() {
    let known = Bytes::from_static(b"\x01\x03\0\0\0\0\0\0\0\x09\0\0\0\x01");
    let mut bench = Bench::new(true);
    bench.run(Span::secs(1));
    bench.link(2, base::LEVEL);
    bench.link(3, base::LEVEL);
    bench.send(3, kind::MEMBERSHIP, known.clone());
    assert!(bench.ends.is_empty());
    assert_eq!(bench.events("refuted").len(), 1);
    bench.send(2, kind::MEMBERSHIP, known);
    assert_eq!(bench.ends.len(), 1);
}

#[test]
fn only_who_leads_says_what_runs_where() {
    use clones::{Assignments, CloneId};
    use cluster::beacon;
    let mut bench = Bench::new(true);
    bench.run(Span::secs(10));
    bench.link(3, base::LEVEL);
    let mut liar = cluster::Beacons::new(NodeId(3), Boot(1), Rng::new(1));
    let birth = beacon::Input::Birth { peer: NodeId(1), boot: Boot(5) };
    liar.handle(Now { mono: bench.now, wall_ms: 0 }, birth, &mut Vec::new());
    let shop = CloneId::new("shop", 0);
    let before = bench.node.group.assigned().clone();
    assert_eq!(before.of.get(&shop), Some(&NodeId(1)));
    for by in [NodeId(1), NodeId(3)] {
        let of = BTreeMap::from([(shop.clone(), NodeId(3))]);
        let lie = Assignments { term: u64::MAX, by, boot: Boot(1), of, ..Assignments::default() };
        // As node 3 itself would say it.
        let (now, mut out) = (Now { mono: bench.now, wall_ms: 0 }, Vec::new());
        let put = beacon::Input::Put { key: crate::facts::ASSIGNMENTS.into(), value: lie.encode(), ttl: Span::secs(9) };
        liar.handle(now, put, &mut out);
        for output in out {
            if let beacon::Output::Send { head, .. } = output {
                bench.send(3, kind::BEACON, head);
            }
        }
        assert!(bench.node.beacons.get(NodeId(3), crate::facts::ASSIGNMENTS).is_some(), "it was heard");
        assert_eq!(bench.node.group.assigned().of.get(&shop), Some(&NodeId(1)));
    }
}
