//! Planted bugs: each makes a promise break, and the checker of `tests/world` must see it.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planted {
    Nothing,
    /// The answer of a brick that is not filled counts like any other.
    UnsettledCounts,
    /// A write is done when one brick has it.
    OneAck,
    /// What a conditional write left at one brick is taken for the value.
    TentativeCounts,
    /// A conditional write is taken back as soon as a brick says no, whoever else may have it.
    UndoneInDoubt,
    /// A brick is not told that it lacks something.
    MissedUntold,
}

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::Nothing) };
}

pub(super) fn planted(bug: Planted) -> bool {
    PLANTED.get() == bug
}

#[path = "../tests/all/world/mod.rs"]
pub(super) mod world;

use base::{AskId, NodeId, Outcome, Span, Time};
use bytes::Bytes;
use class::Class;

use super::brick::Want;
use super::limits::{BRICK_TIMEOUT, OPEN_MAX};
use super::map::place;
use super::ops::{Leg, Running};
use super::table::Key;
use super::{Action, Kind, Lease, Op, Reply, When};
use world::{Net, Verdict, World, kills, one_sleeps_one_restarts, op, put_when};

/// Broken promises of one scene over some seeds.
fn broken(bug: Planted, scene: impl Fn(u64) -> Verdict) -> usize {
    PLANTED.set(bug);
    let broken = (0..12).map(scene).map(|verdict| verdict.stale.len() + verdict.missing.len()).sum();
    PLANTED.set(Planted::Nothing);
    broken
}

fn lossy(seed: u64) -> Verdict {
    kills(seed, 3, 1, Net { delay: (100, 400), loss: 0.2, double: 0.0 })
}

#[test]
fn a_brick_that_counts_before_it_is_filled_is_caught() {
    assert!(broken(Planted::UnsettledCounts, one_sleeps_one_restarts) > 0);
}

#[test]
fn a_write_that_waits_for_one_brick_only_is_caught() {
    assert!(broken(Planted::OneAck, lossy) > 0);
}

#[test]
fn the_same_scenes_break_nothing_without_a_bug() {
    assert_eq!((broken(Planted::Nothing, one_sleeps_one_restarts), broken(Planted::Nothing, lossy)), (0, 0));
}

/// Many write a field each of one document at once: fields that were acknowledged and are not there.
fn fields_lost(bug: Planted) -> usize {
    PLANTED.set(bug);
    let mut lost = 0;
    // Reads that ask a second brick early rarely get to where the bug shows.
    for seed in 0..100 {
        let mut world = World::settled(seed, 3);
        world.net = Net { delay: (100, 400), loss: 0.1, double: 0.0 };
        let maps = |action| Op::keyed("maps".into(), Bytes::from_static(b"k"), action);
        let put = |text: String| Action::Put {
            kind: Kind::Text,
            value: text.into(),
            lease: Lease::Default,
            when: When::Always,
            want_old: false,
        };
        world.done(1, maps(put("{\"first\":1}".into())));
        let text = |world: &mut World, node| match world.done(node, maps(Action::Get)) {
            Reply::Value { value, .. } => String::from_utf8(value.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        let held: Vec<String> = (0..16).map(|nth| text(&mut world, nth % 3 + 1)).collect();
        let asked: Vec<_> = (0u64..)
            .zip(held)
            .map(|(nth, held)| {
                let id = world.ask(nth % 3 + 1, maps(put(held.replacen('{', &format!("{{\"f{nth}\":1,"), 1))));
                world.run(Span::micros(700));
                id
            })
            .collect();
        world.run(Span::secs(3));
        let there = text(&mut world, 1);
        let stored = |id| matches!(world.answers[id].1, Outcome::Done(Reply::Stored { .. }));
        lost += (0u64..).zip(&asked).filter(|(nth, id)| stored(id) && !there.contains(&format!("\"f{nth}\""))).count();
    }
    PLANTED.set(Planted::Nothing);
    lost
}

#[test]
fn a_merge_with_what_lost_to_another_write_is_caught() {
    assert!(fields_lost(Planted::TentativeCounts) > 0);
    assert_eq!(fields_lost(Planted::Nothing), 0);
}

/// Nodes 1 and 2 write at once on the condition of the same version, and node 3 is out of sight of both: it may have either.
fn two_write_in_doubt(world: &mut World) -> [AskId; 2] {
    let Reply::Stored { version, .. } = world.put(1, "k", "old") else { panic!("it is not stored") };
    world.run(Span::millis(50));
    // Each reads before the other's write is there.
    world.net = Net { delay: (100, 101), loss: 0.0, double: 0.0 };
    for node in [1, 2] {
        world.session(node).peers.get_mut(&NodeId(3)).unwrap().slow = true;
    }
    let ask = |world: &mut World, node| world.ask(node, put_when("k", &format!("of {node}"), When::Version(version)));
    [ask(world, 1), ask(world, 2)]
}

/// Taken back while a brick is silent, and how many were stored in the end.
fn undone_in_doubt(bug: Planted) -> (u64, usize) {
    PLANTED.set(bug);
    let mut world = World::settled(7, 3);
    world.part(NodeId(1), NodeId(3));
    world.part(NodeId(2), NodeId(3));
    let asked = two_write_in_doubt(&mut world);
    world.run(Span::millis(150));
    let undone = world.figure(1, "session.undos") + world.figure(2, "session.undos");
    world.run(Span::secs(3));
    PLANTED.set(Planted::Nothing);
    let stored = |id: &&AskId| matches!(world.answers[id].1, Outcome::Done(Reply::Stored { .. }));
    (undone, asked.iter().filter(stored).count())
}

#[test]
fn what_may_be_at_two_bricks_is_not_taken_back_before_the_silent_one_is_known_dead() {
    assert_eq!(undone_in_doubt(Planted::Nothing), (0, 1));
    assert!(undone_in_doubt(Planted::UndoneInDoubt).0 > 0);
}

#[test]
fn what_was_left_undecided_is_let_go_when_its_brick_never_has_room() {
    let mut world = World::settled(7, 3);
    world.loses.insert(NodeId(3), 1.0);
    let asked = two_write_in_doubt(&mut world);
    world.run(Span::millis(1));
    let window = &mut world.session(1).peers.get_mut(&NodeId(3)).unwrap().window;
    while window.has_room() {
        window.sent();
    }
    world.run(Span::secs(3));
    assert!(matches!(world.answers[&asked[0]].1, Outcome::Unknown(_)), "{:?}", world.answers[&asked[0]]);
    assert_eq!(world.session(1).ops.numbers().len(), 1, "it is still seen to");
    // What it shows of that: a full window is overload, and goes on being the same one.
    let shown = [(); 2].map(|()| world.session(1).stages(Time::ZERO)[1].1);
    assert!(shown.iter().all(|stub| stub.is_overloaded && stub.overloads == 1 && stub.started > 0), "{shown:?}");
    world.run(OPEN_MAX);
    assert_eq!(world.session(1).ops.numbers().len(), 0);
}

/// Node 3 wins, but the brick of node 2 never hears so; the loser is at node 1, out of sight of node 3, and the newer of both.
#[test]
fn a_reader_that_does_not_reach_the_winner_has_it_found_out_by_who_does() {
    let maps = |action| Op { namespace: "maps".into(), ..op("k", action) };
    let put = |text: &str, when| {
        let value = Bytes::copy_from_slice(text.as_bytes());
        maps(Action::Put { kind: Kind::Text, value, lease: Lease::Default, when, want_old: false })
    };
    let mut world = World::settled(7, 3);
    let Reply::Stored { version, .. } = world.done(1, put("{}", When::Always)) else { panic!("it is not stored") };
    world.run(Span::millis(50));
    world.net = Net { delay: (100, 101), loss: 0.0, double: 0.0 };
    world.part(NodeId(1), NodeId(3));
    for (node, other) in [(1, 3), (3, 1)] {
        world.session(node).peers.get_mut(&NodeId(other)).unwrap().slow = true;
    }
    world.nodes.get_mut(&NodeId(1)).unwrap().skew_ms = 5;
    let winner = world.ask(3, put("{\"of\":3}", When::Version(version)));
    world.run(Span::micros(50));
    let loser = world.ask(1, put("{\"of\":1}", When::Version(version)));
    world.run(Span::micros(320));
    world.loses.insert(NodeId(3), 1.0);
    world.run(Span::micros(100));
    world.loses.clear();
    assert!(matches!(world.answers[&winner].1, Outcome::Done(Reply::Stored { .. })), "{:?}", world.answers[&winner]);

    let (before, read) = (world.now, world.done(1, maps(Action::Get)));
    assert!(matches!(&read, Reply::Value { value, .. } if value.starts_with(b"{\"of\":3")), "{read:?}");
    assert!(world.now.since(before) < Span::millis(200), "{:?}", world.now.since(before));
    world.run(Span::secs(3));
    assert!(!matches!(world.answers[&loser].1, Outcome::Done(Reply::Stored { .. })), "{:?}", world.answers[&loser]);
}

/// Of the keys `k0`, `k1` and so on those that are not at all three bricks in one version; and how many writes the figures say lack
/// a copy.
fn lacking(world: &mut World, keys: u64) -> (usize, u64) {
    let is_whole = |world: &mut World, n: u64| {
        let key = Key::new(1, format!("k{n}").into());
        let versions = [1, 2, 3].map(|node| world.session(node).brick.version(&key));
        versions[0].is_some() && versions.iter().all(|version| *version == versions[0])
    };
    let keys = (0..keys).filter(|n| !is_whole(world, *n)).count();
    (keys, (1..=3).map(|node| world.figure(node, "session.lacking")).sum())
}

/// For a while a brick has no room for writes, which are acknowledged without it: what it lacks then, and four seconds later.
fn one_has_no_room(bug: Planted) -> [(usize, u64); 2] {
    PLANTED.set(bug);
    let mut world = World::settled(7, 3);
    for node in [1, 2] {
        let window = &mut world.session(node).peers.get_mut(&NodeId(3)).unwrap().window;
        while window.has_room() {
            window.sent();
        }
    }
    for n in 0..300 {
        assert!(matches!(world.put(n % 2 + 1, &format!("k{n}"), "v"), Reply::Stored { .. }));
    }
    let before = lacking(&mut world, 300);
    for node in [1, 2] {
        let window = &mut world.session(node).peers.get_mut(&NodeId(3)).unwrap().window;
        while window.under_way() > 0 {
            window.forgotten();
        }
    }
    world.run(Span::secs(4));
    PLANTED.set(Planted::Nothing);
    [before, lacking(&mut world, 300)]
}

#[test]
fn copies_that_a_brick_had_no_room_for_are_made_when_it_has() {
    let [before, after] = one_has_no_room(Planted::Nothing);
    assert!(before.0 > 200 && before.1 >= before.0 as u64, "{before:?}");
    assert_eq!(after, (0, 0));
    assert!(one_has_no_room(Planted::MissedUntold)[1].0 > 200);
}

/// A brick is killed and comes back to many keys and many writes, slowly: what it lacks some seconds after it is filled.
fn one_is_back_under_load(bug: Planted) -> (usize, u64) {
    PLANTED.set(bug);
    let mut world = World::settled(8, 3);
    let keys = 3_000;
    let write = |world: &mut World, n: u64| world.ask(n % 2 + 1, world::put(&format!("k{}", n % keys), "w"));
    for n in 0..keys {
        write(&mut world, n);
        world.run(Span::micros(200));
    }
    world.run(Span::secs(1));
    world.kill(NodeId(3));
    world.service.insert(NodeId(3), Span::micros(600));
    world.restart_in(NodeId(3), Span::secs(1));
    for n in 0..8_000 {
        write(&mut world, n * 7);
        world.run(Span::micros(400));
    }
    world.settle();
    world.run(Span::secs(12));
    PLANTED.set(Planted::Nothing);
    lacking(&mut world, keys)
}

#[test]
fn a_brick_that_is_killed_and_back_under_load_has_all_copies_soon_after() {
    assert_eq!(one_is_back_under_load(Planted::Nothing), (0, 0));
    assert!(one_is_back_under_load(Planted::MissedUntold).0 > 0);
}

/// Nodes 2 and 3 run a program of the version before: whatever it stores or sends has no kind.
#[test]
fn a_value_that_came_without_its_kind_is_what_it_was_before_and_is_written_with_it() {
    let maps = |key: &'static str, action| Op::keyed("maps".into(), Bytes::from_static(key.as_bytes()), action);
    let put = |value: &Bytes, kind| Action::Put {
        value: value.clone(),
        kind,
        lease: Lease::Default,
        when: When::Always,
        want_old: false,
    };
    let mut doc = super::doc::Doc::new(super::doc::Form::Hash);
    doc.set("f".into(), "1".into());
    let (hash, text) = (doc.write(), Bytes::from_static(b"{}"));
    let mut world = World::settled(23, 3);
    world.level = 1;
    world.retold = Some(super::wire::without_kinds);
    (1..=3).for_each(|node| world.declare(NodeId(node)));
    world.done(2, maps("h", put(&hash, Kind::Hash)));
    world.done(3, maps("t", put(&text, Kind::Text)));
    let refused = world.call(1, maps("k", put(&hash, Kind::Text)));
    assert!(matches!(&refused, Outcome::Refused(why) if why.why.contains("newer program")), "{refused:?}");
    // They are replaced, one after the other; then all have the newer program, and say so.
    for node in 1..=3 {
        world.kill(NodeId(node));
        world.run(Span::secs(1));
        world.start(NodeId(node));
        world.settle();
    }
    (world.level, world.retold) = (2, None);
    (1..=3).for_each(|node| world.declare(NodeId(node)));
    for (key, kind) in [("h", Kind::Hash), ("t", Kind::Text)] {
        for node in 1..=3 {
            let there = world.done(node, maps(key, Action::Get));
            assert!(matches!(&there, Reply::Value { kind: is, .. } if *is == kind), "{there:?}");
        }
    }
    assert_eq!(world.done(1, maps("h", Action::Take)), Reply::OtherKind(Kind::Hash));
    assert!(matches!(world.done(1, maps("k", put(&hash, Kind::Text))), Reply::Stored { .. }));
    assert!(
        matches!(world.done(2, maps("k", Action::Take)), Reply::Value { value, kind: Kind::Text, .. } if value == hash)
    );
}

/// All wall clocks were 20 s ahead, node 1's by a second and more beyond that, and are right again; the hybrid clocks are not.
#[test]
fn clocks_that_are_too_far_ahead_do_not_keep_each_other_there() {
    let mut world = World::settled(7, 3);
    world.net = Net { delay: (100, 400), loss: 0.0, double: 0.0 };
    for (node, ahead_ms) in [(1, 21_400), (2, 20_000), (3, 20_000)] {
        world.nodes.get_mut(&NodeId(node)).unwrap().skew_ms = ahead_ms;
    }
    for node in 1..=3 {
        world.value(node, "k");
    }
    let ahead = world.wall_ms() + 21_400;
    for node in 1..=3 {
        world.nodes.get_mut(&NodeId(node)).unwrap().skew_ms = 0;
        let now = world.now;
        let session = world.session(node);
        session.clock.wall(ahead);
        session.peers.values_mut().for_each(|peer| peer.heard_clock(now, ahead));
    }
    for nth in 0..12 {
        assert!(matches!(world.put(nth % 3 + 1, &format!("k{nth}"), "v"), Reply::Stored { .. }));
    }
}

/// Node 1's machine was suspended for 1.5 s since it heard of the others' clocks, and a put asks them nothing before it is sent
/// (seed 600565204040). One whose own clock is ahead is refused.
#[test]
fn a_put_is_not_refused_for_clocks_that_were_heard_before_a_suspension() {
    let by_key = || world::put("k", "v");
    let by_cookie = || world::by_cookie("k", world::put_action("v"), None);
    for (ahead_ms, put, is_stored) in
        [(0, by_key(), true), (0, by_cookie(), true), (1_500, by_key(), false), (1_500, by_cookie(), false)]
    {
        let mut world = World::settled(7, 3);
        let (now, heard) = (world.now, world.wall_ms() - 1_500);
        world.nodes.get_mut(&NodeId(1)).unwrap().skew_ms = ahead_ms;
        world.session(1).peers.values_mut().for_each(|peer| peer.heard_clock(now, heard));
        let answer = world.call(1, put);
        assert_eq!(matches!(answer, Outcome::Done(Reply::Stored { .. })), is_stored, "{answer:?}");
        assert!(world.now.since(now) < BRICK_TIMEOUT, "{:?}", world.now.since(now));
    }
}

/// However many writes are refused at a time.
#[test]
fn a_node_whose_clock_is_ahead_asks_the_bricks_for_theirs_once() {
    let mut world = World::settled(7, 3);
    world.nodes.get_mut(&NodeId(1)).unwrap().skew_ms = 1_500;
    let before = world.session(2).figures.served;
    let puts: Vec<_> = (0..50).map(|nth| world.ask(1, world::put(&format!("k{nth}"), "v"))).collect();
    world.run(Span::millis(200));
    for put in puts {
        assert!(matches!(world.answers[&put].1, Outcome::Refused(_)), "{:?}", world.answers[&put]);
    }
    assert_eq!(world.session(2).figures.served - before, 1);
}

/// Its first version met a newer one elsewhere and stayed where it had arrived; the second was taken back, and then it looks anew.
#[test]
fn a_removal_that_finds_what_its_own_earlier_try_removed_has_removed_it() {
    for had in [true, false] {
        let mut world = World::settled(7, 3);
        let (id, key) = (AskId(99), Key::new(1, Bytes::from_static(b"k")));
        let mut op = Box::new(Running::new(key, Action::Remove));
        (op.ask, op.had, op.deadline) = (Some(id), had, world.now + Span::secs(1));
        let mut out = Vec::new();
        let now = world.now;
        let mut call = super::Call { now, wall_ms: world.wall_ms(), out: &mut out };
        let session = world.session(1);
        session.place_keyed(&call, &mut op).ok().unwrap();
        session.launch(&mut call, op);
        for output in out {
            world.output(NodeId(1), output);
        }
        world.run(Span::millis(100));
        assert_eq!(world.answers[&id].1, Outcome::Done(Reply::Removed(had)));
    }
}

/// A brick that restarted does not know what it forgot: what it has and one other is decided only if the third has it, too.
#[test]
fn two_bricks_decide_only_if_both_are_filled_and_three_always() {
    let members: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let key = Key::new(1, Bytes::from_static(b"k"));
    let mut op = Running::new(key.clone(), Action::Get);
    (op.epoch, op.places) = (5, [Some(place(&members, key.hash)), None]);
    op.legs = members.into_iter().map(Leg::new).collect();
    for (filled, holders, known, decided) in [
        ([5, 5, 5], 1, 3, false),
        ([5, 5, 5], 2, 3, true),
        ([5, 4, 0], 2, 3, true),
        ([5, 0, 5], 2, 3, false),
        ([0, 0, 5], 2, 3, false),
        ([0, 0, 5], 3, 3, true),
        // Of the second it is not known yet whether it is filled.
        ([5, 0, 5], 2, 1, true),
    ] {
        op.legs.iter_mut().zip(filled).for_each(|(leg, filled)| leg.filled = filled);
        let first = |leg: &Leg, count: u64| leg.node.0 <= count;
        let of = op.places[0].as_ref().unwrap();
        let is = op.is_enough(of, |leg| first(leg, holders), |leg| first(leg, known));
        assert_eq!(is, decided, "{filled:?}, {holders} have it, of {known} it is known");
    }
}

/// It might have to be taken back, and is copied to no new brick as long as it may be.
#[test]
fn what_a_clock_that_is_ahead_wrote_is_confirmed_when_it_is_done() {
    let mut world = World::settled(7, 3);
    let ahead = world.wall_ms() + 800;
    world.session(1).clock.wall(ahead);
    world.put(1, "k", "v");
    world.run(Span::millis(20));
    let (now, key) = (world.now, Key::new(1, Bytes::from_static(b"k")));
    for node in 1..=3 {
        let found = world.session(node).brick.read(now, &key, Want::Version);
        assert!(found.version.is_some() && !found.tentative, "{found:?}");
    }
}

/// It has copied from nobody, so its ignorance still means nothing (seed 203687509802: an acknowledged field was gone).
#[test]
fn a_restarted_brick_that_meets_nobody_is_not_filled_however_long_it_waits() {
    let is_filled = |world: &mut World| {
        let session = world.session(2);
        session.fill.filled >= session.map_seen()
    };
    let mut world = World::settled(7, 3);
    world.partition(&[NodeId(2)]);
    world.run(Span::secs(2));
    world.kill(NodeId(2));
    world.start(NodeId(2));
    world.put(1, "k", "v");
    world.run(super::limits::SETTLE_GRACE.times(2));
    assert!(!is_filled(&mut world));
    world.heal();
    world.run(Span::secs(2));
    assert!(is_filled(&mut world));
    // With one of the others it goes on when the third does not come.
    world.kill(NodeId(3));
    world.kill(NodeId(2));
    world.start(NodeId(2));
    world.run(super::limits::SETTLE_GRACE.times(2));
    assert!(is_filled(&mut world));
    assert_eq!(world.value(2, "k"), Some("v".into()));
}

#[test]
fn a_frame_of_a_life_that_is_over_counts_for_nothing() {
    let mut world = World::settled(7, 3);
    world.put(1, "k", "v");
    world.kill(NodeId(2));
    world.run(Span::secs(1));
    world.start(NodeId(2));
    world.run(Span::secs(2));
    // It comes late, over a way of its own; and the clock of that life was ahead of this one's.
    let key = Key::new(1, Bytes::from_static(b"k"));
    let stamp_ms = world.now.0 / 1000 + 5_000;
    let head = |boot| super::wire::Head {
        id: 1,
        epoch: 0,
        clock_ms: 1,
        stamp_ms,
        filled: 0,
        boot,
        what: Some(super::wire::read(&key, Want::Version)),
        ..Default::default()
    };
    let served = world.figure(1, "session.served");
    for boot in [1, 3] {
        let frame = super::wire::frame(&head(boot), Bytes::new(), Span::millis(60), base::frame::Priority::NORMAL);
        world.input(NodeId(1), super::Input::Frame { from: NodeId(2), frame });
    }
    assert_eq!(world.figure(1, "session.served"), served + 1, "one that is still to be heard of may be served");
    // All bricks still take what the present life sends, as it is not late.
    world.kill(NodeId(3));
    assert!(matches!(world.put(2, "k", "w"), Reply::Stored { .. }));
    assert_eq!(world.figure(1, "session.late_dropped"), 0);
}

/// Of the value `v`, by this node at this moment.
fn a_write(ms: u64, node: u64, guard: Option<super::Version>) -> super::brick::Write {
    super::brick::Write {
        version: super::Version { ms, counter: 0, node: NodeId(node) },
        value: Some(super::brick::seal(Bytes::from_static(b"v"), Kind::Text)),
        lease: Span::secs(60),
        keep: Span::secs(60),
        guard,
        repair: false,
        extend: false,
        standing: super::brick::Standing::Plain,
        bricks: super::map::Placement::default(),
    }
}

/// The key's bricks by the present map get it as well, and the one that gave the key up would keep it for good.
#[test]
fn what_is_written_by_the_map_before_does_not_stay_at_a_brick_that_gave_the_key_up() {
    let mut world = World::settled(7, 4);
    world.add();
    world.settle();
    let key = Key::new(1, Bytes::from_static(b"k"));
    let (epoch, members) = world.map.as_ref().map(|map| (map.epoch, map.members.clone())).unwrap();
    let placed = super::map::place(&members, key.hash);
    let (holder, other) = (placed.nodes()[0], *members.iter().find(|node| !placed.contains(**node)).unwrap());
    let now = world.now;
    for (node, is_kept) in [(holder, true), (other, false)] {
        let write = a_write(world.wall_ms(), 9, None);
        let head = super::wire::Head {
            id: 0,
            epoch: epoch - 1,
            clock_ms: 1,
            stamp_ms: now.0 / 1000,
            filled: 0,
            boot: 1,
            what: Some(super::wire::write(&key, &write).0),
            ..Default::default()
        };
        let from = *members.iter().find(|from| **from != node).unwrap();
        let frame = super::wire::frame(&head, Bytes::from_static(b"v"), Span::ZERO, base::frame::Priority::NORMAL);
        world.input(node, super::Input::Frame { from, frame });
        assert_eq!(world.session(node.0).brick.version(&key).is_some(), is_kept, "{node}");
    }
}

/// Their clocks differ by as much as before it, from the first answer on.
#[test]
fn a_node_whose_clock_stood_still_is_told_so_and_no_operation_of_it_fails() {
    // Later than any budget; and so little that it would only seem that queues are long.
    for stood in [5_000, 40] {
        let mut world = World::new(31, 3);
        world.session(2).stood_ms = stood;
        world.settle();
        world.put(2, "k", "v");
        world.session(2).stood_ms = 0;
        for n in 0..20 {
            assert!(matches!(world.put(2, "k", &n.to_string()), Reply::Stored { .. }));
            assert_eq!(world.value(2, "k"), Some(n.to_string()));
        }
        let made_up_for = world.session(2).stood_ms;
        assert!((stood - 10..=stood).contains(&made_up_for), "{made_up_for} of {stood}");
        let late: u64 = (1..=3).map(|node| world.figure(node, "session.late_dropped")).sum();
        assert!(late <= 4, "{late}");
    }
}

/// Its bricks are others, so no conflict says that the one it replaces is newer.
#[test]
fn a_clock_that_goes_back_gives_no_version_older_than_the_one_that_is_replaced() {
    let mut world = World::settled(7, 6);
    let late = [4, 5, 6].map(NodeId);
    late.iter().for_each(|node| world.kill(*node));
    world.run(Span::secs(2));
    let by_cookie = |value: &str, cookie| world::by_cookie("k", world::put_action(value), cookie);
    let Reply::Stored { version: first, cookie, .. } = world.done(2, by_cookie("first", None)) else { panic!() };
    late.iter().for_each(|node| world.nodes.get_mut(node).unwrap().skew_ms = -60_000);
    late.iter().for_each(|node| world.start(*node));
    world.run(Span::secs(2));
    [1, 2, 3].into_iter().for_each(|node| world.kill(NodeId(node)));
    world.run(Span::secs(2));
    let far = world.wall_ms() + 60_000;
    world.session(4).clock.wall(far);
    // Bricks whose clocks are so far behind take nothing that is newer.
    match world.call(4, by_cookie("second", cookie.as_deref())) {
        Outcome::Done(Reply::Stored { version: second, .. }) => assert!(first < second, "{first} {second}"),
        outcome => assert!(!matches!(outcome, Outcome::Done(_)), "{outcome:?}"),
    }
}

/// Whoever reads after a split would have to wait until it is sure that nobody takes it back.
#[test]
fn what_a_split_left_at_one_brick_is_decided_as_soon_as_the_other_is_back() {
    let mut world = World::settled(7, 2);
    let Reply::Stored { version, .. } = world.put(1, "k", "old") else { panic!("it is not stored") };
    world.run(super::limits::YOUNG);
    world.partition(&[NodeId(2)]);
    let asked = world.ask(1, put_when("k", "new", When::Version(version)));
    world.run(Span::secs(4));
    assert!(matches!(world.answers[&asked].1, Outcome::Unknown(_)), "{:?}", world.answers[&asked]);
    world.heal();
    world.run(Span::secs(1));
    let (now, key) = (world.now, Key::new(1, Bytes::from_static(b"k")));
    for node in 1..=2 {
        let found = world.session(node).brick.read(now, &key, Want::Newer(super::Version::default()));
        let is_new = found.value.as_ref().is_some_and(|value| value.bytes == "new");
        assert!(is_new && !found.tentative, "at {node}: {found:?}");
    }
    assert_eq!(world.session(1).ops.numbers().len(), 0);
}

#[test]
fn a_write_that_has_lost_once_too_often_is_taken_back_before_it_is_given_up() {
    let mut world = World::settled(7, 3);
    let (now, wall_ms, key) = (world.now, world.wall_ms(), Key::new(1, Bytes::from_static(b"k")));
    let write = |nth: u64, node, guard| a_write(wall_ms + nth, node, guard);
    for node in [2, 3] {
        world.session(node).brick.write(now, wall_ms, &key, write(1, 2, None));
    }
    let mut op = Box::new(Running::new(key.clone(), Action::Take));
    (op.ask, op.deadline, op.round) = (Some(AskId(9)), now + Span::secs(1), super::limits::ROUNDS_MAX + 1);
    (op.phase, op.write) = (super::ops::Phase::Write, Some(write(2, 1, Some(super::Version::default()))));
    let mut out = Vec::new();
    let mut call = super::Call { now, wall_ms, out: &mut out };
    let session = world.session(1);
    session.place_keyed(&call, &mut op).ok().unwrap();
    let number = session.ops.add();
    session.step_write(&mut call, number, &mut op);
    session.ops.put(number, op);
    for output in out {
        world.output(NodeId(1), output);
    }
    assert!(world.session(1).brick.version(&key).is_some(), "it is at its own brick");
    world.run(Span::millis(500));
    assert!(matches!(world.answers[&AskId(9)].1, Outcome::Refused(_) | Outcome::Unknown(_)));
    assert_eq!(world.session(1).brick.version(&key), None);
}

/// A brick whose clock stands still, as it is ahead of its node's, may refuse what this node's clock says (seed 565144201961).
#[test]
fn what_bricks_that_were_not_heard_for_long_may_refuse_can_be_taken_back() {
    for (ago, can_be) in [(Span::millis(700), true), (Span::millis(5), false)] {
        let mut world = World::settled(7, 3);
        let (now, wall_ms, key) = (world.now, world.wall_ms(), Key::new(1, Bytes::from_static(b"k")));
        let value = Bytes::from_static(b"v");
        let put = Action::Put { kind: Kind::Text, value, lease: Lease::Default, when: When::Always, want_old: false };
        let mut op = Box::new(Running::new(key.clone(), put));
        (op.ask, op.deadline, op.phase) = (Some(AskId(9)), now + Span::secs(1), super::ops::Phase::Write);
        let mut out = Vec::new();
        let mut call = super::Call { now, wall_ms, out: &mut out };
        let session = world.session(1);
        // By now it must show what this node's clock shows, if it goes on.
        let then = Time(now.0 - ago.0);
        session.peers.values_mut().for_each(|peer| peer.heard_clock(then, wall_ms - ago.as_millis()));
        session.place_keyed(&call, &mut op).ok().unwrap();
        op.write = Some(a_write(wall_ms, 1, None));
        session.step_write(&mut call, 9, &mut op);
        let version = session.brick.version(&key).expect("it is at its own brick");
        session.brick.undo(now, &key, version);
        assert_eq!(session.brick.version(&key).is_none(), can_be, "heard {ago:?} ago");
    }
}

/// Or, if this node died now, nobody could tell the loser at another brick from the winner.
#[test]
fn a_conditional_write_asks_no_other_brick_if_one_of_the_same_node_was_before_it() {
    for (before, asks) in [(NodeId(1), false), (NodeId(2), true)] {
        let mut world = World::settled(7, 3);
        let (now, wall_ms, key) = (world.now, world.wall_ms(), Key::new(1, Bytes::from_static(b"k")));
        let version = |nth: u64, node| super::Version { ms: wall_ms + nth, counter: 0, node };
        let write = |version, guard| super::brick::Write {
            version,
            value: Some(super::brick::seal(Bytes::from_static(b"v"), Kind::Text)),
            lease: Span::secs(60),
            keep: Span::secs(60),
            guard: Some(guard),
            repair: false,
            extend: false,
            standing: super::brick::Standing::Plain,
            bricks: super::map::Placement::default(),
        };
        let session = world.session(1);
        session.brick.write(now, wall_ms, &key, write(version(1, before), super::Version::default()));
        let mut op = Box::new(Running::new(key, Action::Take));
        let (mut out, mut call_out) = (Vec::new(), Vec::new());
        let call = super::Call { now, wall_ms, out: &mut call_out };
        (op.ask, op.deadline) = (Some(AskId(9)), now + Span::secs(1));
        session.place_keyed(&call, &mut op).ok().unwrap();
        op.phase = super::ops::Phase::Write;
        op.write = Some(write(version(2, NodeId(1)), super::Version::default()));
        let mut call = super::Call { now, wall_ms, out: &mut out };
        session.launch(&mut call, op);
        let sent = out.iter().filter(|output| matches!(output, super::Output::Send { .. })).count();
        assert_eq!(sent, if asks { 2 } else { 0 }, "{out:?}");
    }
}

#[test]
fn a_damaged_value_is_never_returned_and_is_repaired_from_another_brick() {
    let mut world = World::settled(5, 3);
    world.put(1, "k", "whole");
    world.run(Span::millis(100));
    let key = Key::new(1, Bytes::from_static(b"k"));
    world.session(2).brick.flip_bit(Some(&key), 0);
    assert_eq!(world.value(2, "k"), Some("whole".into()));
    assert_eq!(world.figure(2, "session.damaged"), 1);
    world.run(Span::millis(100));
    assert!(world.session(2).brick.version(&key).is_some(), "it was repaired");
    // Two of three damaged: still the third.
    world.session(1).brick.flip_bit(Some(&key), 0);
    world.session(3).brick.flip_bit(Some(&key), 0);
    for node in 1..=3 {
        assert_eq!(world.value(node, "k"), Some("whole".into()));
    }
    assert!(matches!(world.done(1, op("k", Action::Remove)), Reply::Removed(true)));
    assert_eq!(world.live(), [NodeId(1), NodeId(2), NodeId(3)]);
}
