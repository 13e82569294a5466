//! Stories of facts that spread over a bad network, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::limits::{DIGEST_PERIOD, FIGURES_TO};
use super::*;
use base::{Boot, Now, Rng, Time};

struct Net {
    now: Time,
    queue: BTreeMap<(Time, u64), (NodeId, NodeId, Bytes)>,
    count: u64,
    nodes: BTreeMap<NodeId, Beacons>,
    cut: BTreeSet<(NodeId, NodeId)>,
    loss: f64,
    double: f64,
    delay: (Span, Span),
    rng: Rng,
    changes: Vec<(NodeId, NodeId, String)>,
    refuted: Vec<(NodeId, String)>,
    frames: usize,
    bytes: usize,
}

fn id(n: u64) -> NodeId {
    NodeId(n)
}

fn put(key: &str, value: &'static str, secs: u64) -> Input {
    Input::Put { key: key.into(), value: Bytes::from_static(value.as_bytes()), ttl: Span::secs(secs) }
}

impl Net {
    fn new(n: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = (1..=n).map(|i| (id(i), Beacons::new(id(i), Boot(1), rng.fork()))).collect();
        let delay = (Span::micros(100), Span::millis(2));
        let (queue, cut, changes, refuted) = (BTreeMap::new(), BTreeSet::new(), Vec::new(), Vec::new());
        let (now, loss, double) = (Time(1_000_000), 0.0, 0.0);
        let mut net =
            Self { now, queue, count: 0, nodes, cut, loss, double, delay, rng, changes, refuted, frames: 0, bytes: 0 };
        for (a, b) in (1..=n).flat_map(|a| (1..=n).map(move |b| (a, b))) {
            net.give(a, Input::Birth { peer: id(b), boot: Boot(1) });
        }
        net
    }

    fn give(&mut self, to: u64, input: Input) {
        let (to, mut out) = (id(to), Vec::new());
        let Some(node) = self.nodes.get_mut(&to) else { return };
        node.handle(Now { mono: self.now, wall_ms: 0 }, input, &mut out);
        for output in out {
            match output {
                Output::Changed { origin, key } => self.changes.push((to, origin, key)),
                Output::Send { to: peer, head } => self.send(to, peer, head),
                Output::Refuted { what } => self.refuted.push((to, what)),
                Output::Bad { from } => panic!("{from} sent what {to} cannot read"),
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, head: Bytes) {
        self.frames += 1;
        self.bytes += head.len();
        if self.cut.contains(&(from.min(to), from.max(to))) {
            return;
        }
        let times = if self.rng.chance(self.loss) { 0 } else { 1 + usize::from(self.rng.chance(self.double)) };
        for _ in 0..times {
            self.count += 1;
            let delay = Span(self.rng.between(self.delay.0.0, self.delay.1.0));
            self.queue.insert((self.now + delay, self.count), (from, to, head.clone()));
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let wake = self.nodes.iter().filter_map(|(id, node)| Some((node.wake_at()?.max(self.now), *id))).min();
            let frame = self.queue.first_key_value().map(|((at, _), _)| *at);
            match (wake, frame) {
                (Some((at, id)), frame) if frame.is_none_or(|frame| at < frame) && at <= end => {
                    self.now = at;
                    self.give(id.0, Input::Wake);
                }
                (_, Some(at)) if at <= end => {
                    self.now = at;
                    let (_, (from, to, head)) = self.queue.pop_first().unwrap();
                    self.give(to.0, Input::Frame { from, head });
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// A node has begun its second life, and everybody hears of it.
    fn reborn(&mut self, n: u64) {
        self.reborn_as(n, 2);
    }

    fn reborn_as(&mut self, n: u64, boot: u64) {
        for other in self.nodes.keys().map(|id| id.0).filter(|other| *other != n).collect::<Vec<_>>() {
            self.give(n, Input::Birth { peer: id(other), boot: Boot(1) });
            self.give(other, Input::Birth { peer: id(n), boot: Boot(boot) });
        }
    }

    /// Everybody can hear everybody else, but for those that are cut off from each other.
    fn link_all(&mut self) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for (a, b) in ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b))) {
            let up = a != b && !self.cut.contains(&(a.min(b), a.max(b)));
            self.give(a.0, Input::Linked { peer: b, up });
        }
    }

    /// What each node holds of this origin's fact; gone nodes left out.
    fn all_see(&self, origin: u64, key: &str, value: Option<&str>) -> bool {
        self.nodes.values().all(|node| node.get(id(origin), key).map(|v| &v[..]) == value.map(str::as_bytes))
    }

    fn agree(&self) -> bool {
        let table =
            |node: &Beacons| -> Vec<_> { node.prefix("").map(|(o, k, v)| (o, k.to_owned(), v.clone())).collect() };
        let mut tables = self.nodes.values().map(table);
        let first = tables.next();
        tables.all(|table| Some(table) == first)
    }
}

#[test]
fn a_change_is_with_all_after_one_trip() {
    let mut net = Net::new(5, 1);
    net.give(2, put("load", "7", 10));
    net.run(Span::millis(2));
    assert!(net.all_see(2, "load", Some("7")));
    net.give(2, put("load", "8", 10));
    net.run(Span::millis(2));
    assert!(net.all_see(2, "load", Some("8")));
    net.give(2, Input::Remove { key: "load".into() });
    net.run(Span::millis(2));
    assert!(net.all_see(2, "load", None));
    let changes = net.changes.iter().filter(|c| **c == (id(4), id(2), "load".into())).count();
    assert_eq!(changes, 3);
}

#[test]
fn a_fact_that_is_repeated_stands_and_its_repetition_changes_nothing() {
    let mut net = Net::new(3, 1);
    net.give(1, put("clones", "a b c", 3));
    net.run(Span::millis(10));
    net.changes.clear();
    for _ in 0..300 {
        net.run(Span::millis(100));
        assert!(net.all_see(1, "clones", Some("a b c")));
    }
    net.give(1, put("clones", "a b c", 3));
    assert_eq!(net.changes, vec![]);
}

#[test]
fn what_nobody_repeats_expires_everywhere_and_is_not_kept_alive_by_passing_it_on() {
    let mut net = Net::new(6, 1);
    net.give(1, put("load", "7", 10));
    net.run(Span::secs(4));
    net.nodes.remove(&id(1));
    net.run(Span::secs(6));
    assert!(net.all_see(1, "load", Some("7")), "a death alone erases nothing");
    net.run(Span::millis(4100));
    assert!(net.all_see(1, "load", None));
    assert!((2..=6).all(|n| net.changes.contains(&(id(n), id(1), "load".into()))));
}

#[test]
fn two_that_are_cut_off_hear_of_each_other_by_a_third() {
    for seed in 0..20 {
        let mut net = Net::new(3, seed);
        net.cut.insert((id(1), id(2)));
        net.give(1, put("load", "7", 30));
        net.run(DIGEST_PERIOD.times(5));
        assert!(net.all_see(1, "load", Some("7")), "seed {seed}");
        net.give(1, Input::Remove { key: "load".into() });
        net.run(DIGEST_PERIOD.times(5));
        assert!(net.all_see(1, "load", None), "seed {seed}: a removal spreads as well");
    }
}

#[test]
fn a_new_life_replaces_all_that_the_old_one_said_even_if_it_says_less() {
    let mut net = Net::new(3, 1);
    net.give(1, put("a", "old", 60));
    net.give(1, put("b", "old", 60));
    net.give(1, put("a", "older by number", 60));
    net.run(Span::millis(10));
    net.changes.clear();
    net.nodes.insert(id(1), Beacons::new(id(1), Boot(2), Rng::new(5)));
    net.reborn(1);
    net.run(Span::secs(3));
    assert!(net.nodes.values().all(|node| node.prefix("").count() == 0), "a silent new life");
    net.give(1, put("a", "new", 60));
    net.run(Span::millis(10));
    assert!(net.all_see(1, "a", Some("new")));
    assert_eq!(net.changes.iter().filter(|c| **c == (id(3), id(1), "b".into())).count(), 1);
}

#[test]
fn an_old_lifes_late_frame_is_ignored() {
    let mut net = Net::new(2, 1);
    net.give(1, put("a", "older", 60));
    net.give(1, put("a", "old", 60));
    let late: Vec<Bytes> = net.queue.values().map(|(_, _, head)| head.clone()).collect();
    net.run(Span::millis(10));
    net.nodes.insert(id(1), Beacons::new(id(1), Boot(2), Rng::new(5)));
    net.reborn(1);
    net.give(1, put("a", "new", 60));
    net.run(Span::millis(10));
    late.into_iter().for_each(|head| net.give(2, Input::Frame { from: id(1), head }));
    assert!(net.all_see(1, "a", Some("new")));
}

#[test]
fn all_agree_soon_under_loss_doubling_delay_and_change() {
    for seed in 0..10 {
        let mut net = Net::new(6, seed);
        (net.loss, net.double, net.delay) = (0.3, 0.3, (Span::micros(100), Span::millis(400)));
        for _ in 0..300 {
            let (node, key) = (net.rng.between(1, 6), format!("k{}", net.rng.below(4)));
            let input = match net.rng.below(4) {
                0 => Input::Remove { key },
                n => put(&key, ["", "x", "y", "z"][n as usize], 20),
            };
            net.give(node, input);
            net.run(Span::millis(50));
        }
        net.run(Span::secs(12));
        assert!(net.agree(), "seed {seed}");
        assert_eq!(net.refuted, vec![], "seed {seed}: nobody lies here");
        assert!(net.nodes[&id(1)].prefix("").count() > 0);
        net.loss = 0.0;
        net.run(Span::secs(60));
        let node = &net.nodes[&id(1)];
        assert!(node.origins_are_small(), "seed {seed}: removals are forgotten");
    }
}

#[test]
fn a_quiet_cluster_says_little() {
    let mut net = Net::new(10, 1);
    (1..=10).for_each(|n| net.give(n, put("load", "7", 30)));
    net.run(Span::secs(5));
    net.frames = 0;
    net.run(Span::secs(60));
    // Ten digests a second, some answers, and each fact to nine others every ten seconds.
    assert!(net.frames < 60 * (10 + 10 + 9 + 5), "{} frames in a minute", net.frames);
}

fn lasting(n: u64, seed: u64) -> Net {
    let mut net = Net::new(n, seed);
    (1..=n).for_each(|n| net.give(n, Input::Level(LEVEL_LASTING)));
    net.link_all();
    net
}

fn figure(value: u64, all: bool) -> Input {
    Input::PutFigures { figures: vec![("load".into(), value.to_string().into())], ttl: Span::secs(10), all }
}

#[test]
fn what_a_quiet_node_says_does_not_grow_with_the_cluster() {
    let said = |n: u64| {
        let mut net = lasting(n, 1);
        (1..=n).for_each(|n| net.give(n, put("brick", "a", 10)));
        net.run(Span::secs(5));
        (net.frames, net.bytes) = (0, 0);
        for second in 0..20 {
            (1..=n).for_each(|n| net.give(n, figure(second, false)));
            net.run(Span::secs(1));
        }
        (1..=n).for_each(|at| assert!(net.all_see(at, "brick", Some("a")), "it stands"));
        (net.frames as f64 / n as f64 / 20.0, net.bytes as f64 / n as f64 / 20.0)
    };
    let (few, many) = (said(10), said(60));
    assert!(many.0 < few.0 * 1.2 && many.1 < few.1 * 1.2, "{few:?} frames and bytes a second, then {many:?}");
}

#[test]
fn a_figure_comes_to_all_in_turn_to_who_is_near_at_once_and_to_all_at_once_if_all_should_know() {
    let mut net = lasting(30, 1);
    net.run(Span::secs(1));
    net.give(1, Input::Near(Some(id(30))));
    let know = |net: &Net, value: u64| {
        let value = value.to_string();
        net.nodes.values().filter(|node| node.get(id(1), "load").is_some_and(|is| is[..] == *value.as_bytes())).count()
    };
    for value in 0..9 {
        net.give(1, figure(value, false));
        net.run(Span::millis(10));
        assert_eq!(know(&net, value), 1 + 1 + FIGURES_TO, "{value}: itself, who is near, and some in turn");
        assert_eq!(net.nodes[&id(30)].get(id(1), "load").unwrap()[..], *value.to_string().as_bytes());
    }
    assert!(net.nodes.values().all(|node| node.get(id(1), "load").is_some()), "in four turns");
    net.give(1, figure(77, true));
    net.run(Span::millis(100));
    assert_eq!(know(&net, 77), 30);
}

#[test]
fn what_lasts_ends_with_its_origin_or_where_it_is_not_heard_any_more() {
    let mut net = lasting(4, 1);
    net.give(1, put("load", "7", 10));
    net.run(Span::secs(60));
    assert!(net.all_see(1, "load", Some("7")), "it was said once");
    // Heard of by others alone, who have the same.
    net.give(4, Input::Linked { peer: id(1), up: false });
    net.cut.insert((id(1), id(4)));
    net.run(Span::secs(60));
    assert!(net.all_see(1, "load", Some("7")));
    net.nodes.remove(&id(1));
    (2..=4).for_each(|n| net.give(n, Input::Death { peer: id(1) }));
    // 4 was told for the last time that it stands some seconds ago.
    net.run(Span::secs(6));
    assert!(net.all_see(1, "load", Some("7")), "a death alone erases nothing");
    net.run(Span::secs(5));
    assert!(net.all_see(1, "load", None));
}

#[test]
fn what_was_lost_is_found_by_one_sum_and_who_comes_late_gets_all() {
    let mut net = lasting(12, 3);
    net.run(Span::secs(3));
    net.loss = 1.0;
    net.give(1, put("load", "7", 10));
    net.run(Span::millis(10));
    net.loss = 0.0;
    net.run(Span::secs(8));
    assert!(net.all_see(1, "load", Some("7")));
    net.run(Span::secs(60));
    net.nodes.insert(id(13), Beacons::new(id(13), Boot(1), Rng::new(9)));
    net.reborn_as(13, 1);
    net.run(Span::secs(3));
    assert!(net.all_see(1, "load", Some("7")), "also what was said long ago");
}

#[test]
fn readers_find_facts_by_key_and_by_prefix() {
    let mut net = Net::new(3, 1);
    for n in [3, 1] {
        net.give(n, put("ns/carts", "c", 10));
        net.give(n, put("ns/users", "u", 10));
        net.give(n, put("nt", "t", 10));
    }
    net.run(Span::millis(10));
    let node = &net.nodes[&id(2)];
    assert_eq!(node.with_key("nt").map(|(id, _)| id).collect::<Vec<_>>(), [id(1), id(3)]);
    let found: Vec<_> = node.prefix("ns/").map(|(id, key, _)| (id.0, key)).collect();
    assert_eq!(found, [(1, "ns/carts"), (1, "ns/users"), (3, "ns/carts"), (3, "ns/users")]);
}

#[test]
fn more_facts_than_the_limit_are_not_kept() {
    let mut node = Beacons::new(id(1), Boot(1), Rng::new(1));
    node.handle(Now::default(), Input::Birth { peer: id(2), boot: Boot(1) }, &mut Vec::new());
    let fact = |n: usize| wire::FactWire {
        origin: 2,
        boot: 1,
        key: format!("k{n}"),
        seq: n as u64 + 1,
        value: Some(Bytes::from_static(b"v")),
        ttl_ms: 5000,
        is_figure: false,
    };
    let facts = (0..FACTS_PER_ORIGIN_MAX + 50).map(fact).collect();
    let head = wire::Message { facts, ..Default::default() }.encode();
    node.handle(Now::default(), Input::Frame { from: id(2), head }, &mut Vec::new());
    assert_eq!(node.prefix("k").count(), FACTS_PER_ORIGIN_MAX);
    let big = wire::FactWire { value: Some(vec![0; VALUE_BYTES_MAX + 1].into()), key: "big".into(), ..fact(0) };
    let head = wire::Message { facts: vec![big], ..Default::default() }.encode();
    node.handle(Now::default(), Input::Frame { from: id(2), head }, &mut Vec::new());
    assert_eq!(node.get(id(2), "big"), None);
}

#[test]
fn nobody_else_can_speak_for_this_node() {
    let mut node = Beacons::new(id(1), Boot(1), Rng::new(1));
    let fact = wire::FactWire {
        origin: 1,
        boot: 9,
        key: "k".into(),
        seq: 9,
        value: Some("v".into()),
        ttl_ms: 5000,
        is_figure: false,
    };
    let head = wire::Message { facts: vec![fact], ..Default::default() }.encode();
    node.handle(Now::default(), Input::Frame { from: id(2), head }, &mut Vec::new());
    assert_eq!(node.get(id(1), "k"), None);
}

fn lie(facts: Vec<wire::FactWire>, digest: Vec<wire::Summary>) -> Bytes {
    wire::Message { facts, digest, is_digest: true, ..Default::default() }.encode()
}

fn forged(key: &str, seq: u64, value: Option<&'static str>) -> wire::FactWire {
    let value = value.map(|value| Bytes::from_static(value.as_bytes()));
    wire::FactWire { origin: 3, boot: 1, key: key.into(), seq, value, ttl_ms: 60_000, is_figure: false }
}

/// One frame of 21 bytes made a live node unheard until all nodes restarted at the same moment.
#[test]
fn a_life_that_a_node_has_not_had_is_not_believed() {
    for boot in [2, 1 << 62, u64::MAX] {
        let mut net = Net::new(4, 1);
        net.link_all();
        net.give(3, put("load", "7", 10));
        net.run(Span::secs(1));
        let said = wire::FactWire { boot, ..forged("load", 9, Some("lie")) };
        for to in 1..=3 {
            let head = lie(vec![said.clone()], vec![wire::Summary { origin: 3, boot, sum: 0 }]);
            net.give(to, Input::Frame { from: id(4), head });
            assert!(net.all_see(3, "load", Some("7")), "{boot}");
        }
        net.give(3, put("load", "8", 10));
        net.run(Span::millis(10));
        assert!(net.all_see(3, "load", Some("8")), "{boot}");
        assert!(net.refuted.iter().all(|(by, _)| *by == id(3)) && !net.refuted.is_empty(), "{boot}");
    }
}

#[test]
fn of_whom_one_hears_one_takes_no_hearsay() {
    let mut net = Net::new(4, 1);
    net.link_all();
    net.give(3, put("load", "7", 10));
    net.run(Span::secs(1));
    for seq in [2, 9, u64::MAX - 1, u64::MAX] {
        for to in [1, 2] {
            let facts = vec![forged("load", seq, Some("lie")), forged("leaving", seq, Some("lie"))];
            net.give(to, Input::Frame { from: id(4), head: lie(facts, vec![]) });
            assert!(net.all_see(3, "load", Some("7")) && net.all_see(3, "leaving", None), "{seq}");
        }
    }
    net.changes.clear();
    net.run(Span::secs(30));
    assert_eq!(net.changes, vec![]);
}

#[test]
fn what_was_believed_for_want_of_a_link_ends_when_the_node_is_heard_itself() {
    for (seq, is_figure) in [(9, false), (9, true), (u64::MAX - 1, false), (u64::MAX, true)] {
        let mut net = Net::new(3, 1);
        net.cut.insert((id(1), id(3)));
        net.link_all();
        net.give(3, put("load", "7", 60));
        net.give(3, put("brick", "a", 60));
        net.run(Span::secs(5));
        assert!(net.all_see(3, "load", Some("7")), "by way of 2");
        let facts =
            vec![forged("load", seq, Some("lie")), forged("brick", seq, None), forged("leaving", 1, Some("lie"))];
        let facts = facts.into_iter().map(|fact| wire::FactWire { is_figure, ..fact }).collect();
        net.give(1, Input::Frame { from: id(2), head: lie(facts, vec![]) });
        let seen = |net: &Net, key| net.nodes[&id(1)].get(id(3), key).map(|value| value.to_vec());
        assert_eq!(seen(&net, "load"), Some(b"lie".to_vec()));
        net.cut.clear();
        net.link_all();
        net.run(DIGEST_PERIOD.times(2));
        let all = [seen(&net, "load"), seen(&net, "brick"), seen(&net, "leaving")];
        assert_eq!(all, [Some(b"7".to_vec()), Some(b"a".to_vec()), None], "{seq}");
        net.give(3, put("load", "8", 60));
        net.run(Span::millis(10));
        assert!(net.all_see(3, "load", Some("8")), "{seq}: it has not run out of numbers");
        assert!(net.refuted.iter().any(|(by, _)| *by == id(3)), "{seq}");
    }
}

#[test]
fn nobody_that_membership_does_not_know_takes_room() {
    let mut net = Net::new(2, 1);
    let facts = (100..2_000).map(|origin| wire::FactWire { origin, ..forged("k", 1, Some("v")) }).collect();
    let digest = (100..2_000).map(|origin| wire::Summary { origin, boot: 1, sum: 1 }).collect();
    net.give(1, Input::Frame { from: id(2), head: lie(facts, digest) });
    assert_eq!(net.nodes[&id(1)].prefix("").count(), 0);
    net.nodes.insert(id(3), Beacons::new(id(3), Boot(1), Rng::new(7)));
    net.reborn(3);
    [1, 2].into_iter().for_each(|n| net.give(n, Input::Birth { peer: id(3), boot: Boot(1) }));
    net.give(3, put("load", "7", 10));
    net.run(Span::secs(3));
    assert!(net.all_see(3, "load", Some("7")));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut node = Beacons::new(id(1), Boot(1), Rng::new(1));
        let mut out = Vec::new();
        node.handle(Now::default(), put("load", "7", 10), &mut out);
        node.handle(Now::default(), Input::Frame { from: id(2), head: bytes.into() }, &mut out);
    }

    /// Well-formed messages with any content.
    #[test]
    fn random_messages_never_panic(
        origin in 0..4u64, boot in 0..3u64, seq in 0..5u64, ttl_ms in any::<u32>(), key in "[a-c]", sum in any::<u64>(),
        value in proptest::option::of("[a-c]{0,3}"), is_figure in any::<bool>(), total in any::<Option<u64>>(),
    ) {
        let mut node = Beacons::new(id(1), Boot(1), Rng::new(1));
        let mut out = Vec::new();
        node.handle(Now::default(), put("a", "7", 10), &mut out);
        let message = wire::Message {
            facts: vec![wire::FactWire {
                origin,
                boot,
                key: key.clone(),
                seq,
                value: value.map(Bytes::from),
                ttl_ms,
                is_figure,
            }],
            digest: vec![wire::Summary { origin, boot, sum }],
            is_digest: true,
            have: vec![wire::Have { origin, boot, facts: vec![wire::HaveFact { key: key.clone(), seq }] }],
            want: vec![wire::Want { origin, keys: vec![key] }],
            total,
        };
        node.handle(Now::default(), Input::Frame { from: id(2), head: message.encode() }, &mut out);
        assert_eq!(node.get(id(1), "a").map(|v| &v[..]), Some(&b"7"[..]));
    }
}
