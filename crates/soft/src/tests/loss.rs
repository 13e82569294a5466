//! How soon an update is everywhere though frames are lost, and what it costs to bring two sides together after a cut.

use super::*;
use crate::machine::kind;

/// Frames on their way, by the moment at which they arrive.
struct Air {
    rng: Rng,
    loss: f64,
    under_way: BTreeMap<(Time, u64), (u64, u64, Frame)>,
    sent: u64,
    /// Bytes that were sent, by kind of frame.
    bytes: BTreeMap<u16, usize>,
}

impl Air {
    fn new(loss: f64) -> Self {
        Self { rng: Rng::new(7), loss, under_way: BTreeMap::new(), sent: 0, bytes: BTreeMap::new() }
    }

    /// A millisecond passes; each frame takes one, if it is not lost.
    fn pass(&mut self, world: &mut World) {
        world.advance(1);
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > world.now.mono {
                break;
            }
            world.arrives(entry.remove());
        }
        world.wake();
        for one in std::mem::take(&mut world.air) {
            *self.bytes.entry(one.2.kind).or_default() += one.2.wire_len();
            if !self.rng.chance(self.loss) {
                self.sent += 1;
                self.under_way.insert((world.now.mono + Span::millis(1), self.sent), one);
            }
        }
    }
}

/// Milliseconds until 999 of 1,000 updates are everywhere, fifty a second.
fn everywhere(loss: f64, updates: u64) -> u64 {
    let mut world = World::of(3, Spec { copies: 1, ..Spec::default() });
    let mut air = Air::new(loss);
    let life = Life { node: NodeId(1), boot: Boot(1) };
    let (mut open, mut took): (Vec<(Dot, Time)>, Vec<u64>) = Default::default();
    let mut made = 0;
    for ms in 0.. {
        if ms % 20 == 0 && made < updates {
            made += 1;
            let pairs = vec![(bytes(&format!("k{made}")), bytes(&"v".repeat(100)))];
            world.ask(1, Action::Set { pairs, end: End::Never });
            open.push((Dot { life, seq: made }, world.now.mono));
        }
        air.pass(&mut world);
        open.retain(|(dot, at)| {
            let is_open = (2..=3).any(|n| !world.space(n).context.contains(*dot));
            took.extend((!is_open).then_some(world.now.mono.since(*at).as_millis()));
            is_open
        });
        if made == updates && open.is_empty() {
            break;
        }
        assert!(ms < 100_000, "some never come: {open:?}");
    }
    took.sort_unstable();
    took[took.len() * 999 / 1_000]
}

#[test]
fn what_was_lost_is_everywhere_in_time() {
    for (loss, most) in [(0.1, 300), (0.3, 600)] {
        let took = everywhere(loss, 4_000);
        assert!(took <= most, "{took} ms with {loss} lost");
    }
}

#[test]
fn nothing_is_sent_again_where_nothing_is_lost() {
    let mut world = World::new(3);
    let mut air = Air::new(0.0);
    for nth in 0..2_000 {
        if nth % 2 == 0 {
            world.ask(1 + nth % 3, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::Never });
        }
        air.pass(&mut world);
    }
    assert!((1..=3).all(|n| world.figure(n, "soft.again") == 0));
    assert!((1..=3).all(|n| world.figure(n, "soft.repaired") == 0));
}

/// One link stands still, as TCP does when it has lost a packet.
#[test]
fn what_is_late_on_one_link_comes_by_way_of_another_node() {
    let took = |level: u32| {
        let mut world = World::of(3, Spec { copies: 1, gossip_ms: 2_000, ..Spec::default() });
        (1..=3).for_each(|n| world.declare(n, level));
        let mut air = Air::new(0.0);
        let set = |n: u64| Action::Set { pairs: vec![(bytes(&format!("k{n}")), bytes("v"))], end: End::Never };
        for n in 0..50 {
            world.ask(1, set(n));
            (0..10).for_each(|_| air.pass(&mut world));
        }
        assert_eq!(world.figure(1, "soft.again"), 0, "nothing was late");
        world.cut.insert((1, 3));
        world.ask(1, set(50));
        let of = Dot { life: Life { node: NodeId(1), boot: Boot(1) }, seq: 51 };
        (0..1_000)
            .take_while(|_| {
                air.pass(&mut world);
                !world.space(3).context.contains(of)
            })
            .count()
    };
    let (with, without) = (took(RELAY_LEVEL), took(RELAY_LEVEL - 1));
    assert!(with <= 40, "{with} ms");
    assert!(without > 100, "{without} ms: the test tells the two apart");
}

/// Both sides have changed much while they were apart.
#[test]
fn bytes_after_a_cut_follow_what_was_changed() {
    const CHANGED: usize = 1_000;
    let mut world = World::of(3, Spec { copies: 1, checkpoint_ms: 1_000, ..Spec::default() });
    let name = |n: usize| format!("entry:{n:08}");
    let set = |n: usize, mark: &str| Action::Set {
        pairs: vec![(bytes(&name(n)), bytes(&format!("{:x<100}", format!("{n}:{mark}:"))))],
        end: End::Never,
    };
    for n in 0..4 * CHANGED {
        world.ask(1, set(n, "first"));
        if n % 500 == 0 {
            world.settle();
        }
    }
    world.pass(5_000);
    world.cut_off(3, true);
    for n in 0..CHANGED {
        world.ask(1, set(n, "cut"));
        world.ask(3, set(CHANGED + n, "cut"));
        if n % 100 == 0 {
            world.pass(100);
        }
    }
    world.pass(20_000);
    world.answers.clear();
    world.heal();
    let mut air = Air::new(0.0);
    let mut equal = None;
    for ms in 0..2_000 {
        air.pass(&mut world);
        let is_equal = (2..=3).all(|n| world.space(n).context == world.space(1).context);
        if is_equal {
            equal.get_or_insert(ms);
        }
    }
    world.are_equal();
    let bytes: usize = air.bytes.values().sum();
    let changed = 2 * CHANGED * (100 + name(0).len());
    assert!(equal.is_some_and(|ms| ms < 500), "{equal:?}");
    assert!(bytes * 10 < changed * 27, "{} times: {:?}", bytes as f64 / changed as f64, air.bytes);
    assert!(air.bytes[&kind::CELLS] > changed, "each side has what the other did");
}
