//! Which faults strike when, drawn from the seed. Each run allows a random few kinds at a random pace (swarm testing:
//! a run with everything at once hides what two kinds do together). Every fault ends by itself, and `end_all` ends all.
//! It knows the world only, not what runs in it.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, NodeId, Rng, Span, Time};

use crate::liar::Liar;
use crate::world::{Factory, Image, Manners, Weather, World};

/// Alarms of faults have this bit; the rest of the token is their own.
pub const ALARM_BIT: u64 = 1 << 62;
/// Chance that a run allows a kind of fault.
const ALLOWED: f64 = 0.4;
/// Share of the times that are gentle.
const GENTLE: f64 = 0.25;

/// What breaks no promise now, as the driver knows.
#[derive(Clone, Copy, Debug)]
pub struct May {
    /// Lose one node's disk for ever.
    pub empty: bool,
    /// Kill a node without an operation failing: all others are well and hold all that they should.
    pub kill_gently: bool,
    /// Have a machine lose its power.
    pub lose_power: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// SIGKILL and a restart a little later.
    Kill,
    /// As a kill, but no connection is closed and nobody answers for the machine.
    PowerLoss,
    /// All processes at once.
    KillAll,
    /// The disk is swapped for an empty one while the node is down.
    EmptyDisk,
    /// SIGSTOP for a while.
    Hang,
    /// The machine is suspended: as a hang, but its monotonic clock stands still. One in three hangs is such.
    Suspend,
    /// Many short stops, as on a machine with both cores saturated.
    Stutter,
    Loss,
    Delay,
    Duplicate,
    Reorder,
    /// Two groups that cannot talk at all.
    Split,
    /// Nothing gets from one machine to another, but back.
    OneWay,
    /// Two machines cannot talk, a third sees both.
    Partial,
    SlowDisk,
    /// The disk takes nothing for a while.
    FullDisk,
    /// A byte on the disk is wrong when the node starts again.
    DamagedDisk,
    /// The node comes back with its disk as it was some lives ago.
    OlderDisk,
    /// The disk says that it has forced what it has not, and the power fails.
    LyingDisk,
    ClockJump,
    ChildCrash,
    ChildHang,
    /// Programs that are missing, exit at once or do not heed SIGTERM.
    ChildManners,
    /// An admitted peer to which nothing belongs says anything at all (`liar.rs`).
    Lies,
}

const KINDS: [Kind; 20] = [
    Kind::Kill,
    Kind::PowerLoss,
    Kind::KillAll,
    Kind::EmptyDisk,
    Kind::Hang,
    Kind::Stutter,
    Kind::Loss,
    Kind::Delay,
    Kind::Duplicate,
    Kind::Reorder,
    Kind::Split,
    Kind::OneWay,
    Kind::Partial,
    Kind::SlowDisk,
    Kind::FullDisk,
    Kind::DamagedDisk,
    Kind::ClockJump,
    Kind::ChildCrash,
    Kind::ChildHang,
    Kind::ChildManners,
];

/// In some rounds disks forget, one at a time, and nothing else happens: what a node has promised to one who died since
/// nobody can tell it.
const FORGETFUL: f64 = 0.1;
const FORGETFUL_KINDS: [Kind; 4] = [Kind::DamagedDisk, Kind::OlderDisk, Kind::LyingDisk, Kind::EmptyDisk];

/// In some rounds a peer lies, once and for so long, and nothing else happens: what is amiss came of that.
pub const LYING: f64 = 0.1;
const LIES_FOR: Span = Span::secs(10);
/// Tells the generator of lies from that of all else.
const LIES: u64 = 0x6c69_6573;

/// What to do when a fault's time is over.
enum End {
    Start(usize),
    Resume(usize),
    /// Stop it again for so long, so many times more.
    Stutter {
        node: usize,
        left: u32,
        stopped: bool,
    },
    Loss,
    Delay,
    Duplicate,
    Reorder,
    Heal(Vec<(usize, usize)>),
    FastDisk(usize),
    Room(usize),
    /// Put this copy back.
    Older(usize, Box<(NodeId, (Boot, Image))>),
    /// The power fails.
    Lied(usize),
    /// The next lie, or none any more.
    Lie {
        until: Time,
    },
    RightClock(usize),
    GoodManners,
}

pub struct Faults {
    rng: Rng,
    allowed: Vec<Kind>,
    gap: Span,
    /// Each fault lasts so many times longer than it does in a busy world.
    lasts: u64,
    /// Nodes that may be down at once by kills (not by `KillAll`).
    down_max: usize,
    /// Kills alone, one at a time, and only when all is well again: then no operation may fail.
    gentle: bool,
    active: bool,
    ends: BTreeMap<u64, End>,
    tokens: u64,
    counts: BTreeMap<Kind, u64>,
    emptied: bool,
    /// A disk is about to forget.
    forgets: bool,
    /// Machines whose disks forget something in this round, if they come back in it.
    forgetting: BTreeSet<usize>,
    lying: Rng,
    /// Share of the rounds in which a peer lies.
    lies: f64,
    is_lying: bool,
    liar: Option<Liar>,
    /// Machines that came back with an empty disk as nodes that no record names (here nobody joins them by a token): they
    /// cannot prove who they were.
    unnamed: BTreeSet<usize>,
}

impl Faults {
    pub fn new(mut rng: Rng, lies: f64) -> Self {
        let mut faults = Self {
            lying: Rng::new(rng.clone().u64() ^ LIES),
            lies,
            is_lying: false,
            liar: None,
            allowed: Vec::new(),
            gap: Span::ZERO,
            lasts: 1,
            down_max: 1,
            gentle: false,
            active: false,
            ends: BTreeMap::new(),
            tokens: 0,
            counts: BTreeMap::new(),
            emptied: false,
            forgets: false,
            forgetting: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            rng: rng.fork(),
        };
        faults.draw();
        faults
    }

    /// Draws which kinds may strike from now on, and how often.
    pub fn draw(&mut self) {
        let rng = &mut self.rng;
        self.allowed = KINDS.into_iter().filter(|_| rng.chance(ALLOWED)).collect();
        if self.allowed.is_empty() {
            self.allowed.push(Kind::Kill);
        }
        self.gap = Span::millis(*rng.pick(&[300, 1_000, 3_000, 8_000]).expect("it is not empty"));
        self.gentle = rng.chance(GENTLE);
        if self.gentle {
            (self.allowed, self.gap) = (vec![Kind::Kill, Kind::ChildCrash], Span::millis(1_500));
        }
        let forgetful = !self.gentle && rng.chance(FORGETFUL);
        if forgetful {
            (self.allowed, self.gap) = (FORGETFUL_KINDS.to_vec(), Span::secs(2));
        }
        self.is_lying = self.lying.chance(self.lies);
        if self.is_lying {
            (self.allowed, self.gap, self.gentle) = (vec![Kind::Lies], Span::secs(2), false);
        }
        self.down_max = if self.gentle || forgetful || rng.chance(0.8) { 1 } else { 1 + rng.below(3) as usize };
        (self.emptied, self.forgets) = (false, false);
        self.forgetting.clear();
    }

    /// Faults strike further apart, and last longer, until others are drawn.
    pub fn slow_down(&mut self, gap: u64, lasts: u64) {
        (self.gap, self.lasts) = (self.gap.times(gap), lasts);
    }

    pub fn allowed(&self) -> &[Kind] {
        &self.allowed
    }

    pub fn counts(&self) -> &BTreeMap<Kind, u64> {
        &self.counts
    }

    /// Faults strike from now on until [`Faults::end_all`].
    pub fn begin<F: Factory>(&mut self, world: &mut World<F>) {
        self.active = true;
        world.alarm(self.wait(), ALARM_BIT);
    }

    /// No fault is left: all nodes run, all is healed.
    pub fn end_all<F: Factory>(&mut self, world: &mut World<F>) {
        self.active = false;
        self.ends.clear();
        world.end_lies();
        self.liar = None;
        world.heal_all();
        world.set_weather(Weather::CALM);
        world.mend_manners();
        for node in 0..world.machines() {
            world.slow_disk(node, Span::ZERO);
            world.fill_disk(node, false);
            world.lying_disk(node, false);
            world.jump_clock(node, None);
            world.resume(node);
            if !world.is_running(node) {
                world.start(node);
            }
        }
    }

    /// The machine is another node by now, which no record names.
    pub fn renamed(&mut self, node: usize) {
        self.unnamed.insert(node);
    }

    /// In this round a peer lies, or lied.
    pub fn is_lying(&self) -> bool {
        self.is_lying
    }

    /// What this machine's disk had when it was stopped is not all there when it starts, or may not be.
    pub fn forgets(&self, node: usize) -> bool {
        self.forgetting.contains(&node)
    }

    /// Only such faults strike that no operation fails.
    pub fn is_gentle(&self) -> bool {
        self.gentle
    }

    /// An alarm with [`ALARM_BIT`] rang.
    pub fn alarm<F: Factory>(&mut self, world: &mut World<F>, token: u64, may: May) {
        if token != ALARM_BIT {
            if let Some(end) = self.ends.remove(&token) {
                self.end(world, end);
            }
        } else if self.active {
            let kind = *self.rng.pick(&self.allowed).expect("some kind is always allowed");
            self.strike(world, kind, may);
            world.alarm(self.wait(), ALARM_BIT);
        }
    }

    fn wait(&mut self) -> Span {
        Span(self.rng.between(self.gap.0 / 4, self.gap.0 * 2))
    }

    fn millis(&mut self, low: u64, high: u64) -> Span {
        Span::millis(self.rng.between(low, high))
    }

    fn later<F: Factory>(&mut self, world: &mut World<F>, after: Span, end: End) {
        // Short stops are short ones, and lies come thick.
        let after = if matches!(end, End::Stutter { .. } | End::Lie { .. }) { after } else { after.times(self.lasts) };
        self.tokens += 1;
        let token = ALARM_BIT | self.tokens;
        self.ends.insert(token, end);
        world.alarm(after, token);
    }

    /// One fault, now. What cannot strike as things are is left out and not counted.
    pub fn strike<F: Factory>(&mut self, world: &mut World<F>, kind: Kind, may: May) {
        let kind = if kind == Kind::Hang && self.tokens.is_multiple_of(3) { Kind::Suspend } else { kind };
        if self.act(world, kind, may) {
            *self.counts.entry(kind).or_default() += 1;
        }
    }

    fn act<F: Factory>(&mut self, world: &mut World<F>, kind: Kind, may: May) -> bool {
        let machines = world.machines();
        let node = self.rng.below(machines as u64) as usize;
        let down = (0..machines).filter(|&n| !world.is_running(n)).count();
        let runs = world.is_running(node);
        let is_named = !self.unnamed.contains(&node);
        match kind {
            Kind::DamagedDisk | Kind::OlderDisk | Kind::LyingDisk if !is_named => return false,
            Kind::PowerLoss | Kind::LyingDisk if !may.lose_power => return false,
            Kind::Kill | Kind::PowerLoss => {
                if !runs || down >= self.down_max || (self.gentle && !may.kill_gently) {
                    return false;
                }
                if kind == Kind::Kill {
                    world.kill(node)
                } else {
                    world.power_off(node)
                }
                let after = if self.rng.chance(0.7) { self.millis(100, 3_000) } else { self.millis(3_000, 40_000) };
                self.later(world, after, End::Start(node));
            }
            Kind::KillAll => {
                // Rare: it ends all sessions, and then there is little left to check.
                if down > 0 || !self.rng.chance(0.1) {
                    return false;
                }
                for node in 0..machines {
                    world.kill(node);
                    let after = self.millis(200, 3_000);
                    self.later(world, after, End::Start(node));
                }
            }
            Kind::EmptyDisk => {
                if !may.empty || self.emptied || self.forgets || !runs || down > 0 || machines < 3 {
                    return false;
                }
                self.emptied = true;
                self.forgetting.insert(node);
                self.unnamed.insert(node);
                world.kill(node);
                world.empty_disk(node);
                let after = self.millis(200, 5_000);
                self.later(world, after, End::Start(node));
            }
            Kind::DamagedDisk => {
                if !may.empty || self.forgets || !runs || down > 0 || machines < 3 {
                    return false;
                }
                self.forgetting.insert(node);
                world.kill(node);
                world.damage_disk(node);
                let after = self.millis(200, 5_000);
                self.later(world, after, End::Start(node));
            }
            Kind::OlderDisk => {
                if !may.empty || !runs || down > 0 || machines < 3 || self.forgets {
                    return false;
                }
                self.forgets = true;
                self.forgetting.insert(node);
                let older = Box::new((world.id(node), world.image(node)));
                // Sometimes it has a life in between.
                if self.rng.chance(0.3) {
                    world.kill(node);
                    world.start(node);
                }
                let after = self.millis(100, 8_000);
                self.later(world, after, End::Older(node, older));
            }
            Kind::LyingDisk => {
                if !may.empty || !runs || down > 0 || machines < 3 || self.forgets {
                    return false;
                }
                self.forgets = true;
                self.forgetting.insert(node);
                world.lying_disk(node, true);
                let after = self.millis(50, 8_000);
                self.later(world, after, End::Lied(node));
            }
            Kind::FullDisk => {
                world.fill_disk(node, true);
                let after = if self.rng.chance(0.5) { self.millis(50, 2_000) } else { self.millis(2_000, 20_000) };
                self.later(world, after, End::Room(node));
            }
            Kind::Hang | Kind::Suspend => {
                if !runs || world.is_hung(node) {
                    return false;
                }
                let after = if self.rng.chance(0.5) { self.millis(20, 500) } else { self.millis(500, 8_000) };
                if kind == Kind::Suspend {
                    world.suspend(node);
                } else {
                    world.hang(node);
                }
                self.later(world, after, End::Resume(node));
            }
            Kind::Stutter => {
                if !runs || world.is_hung(node) {
                    return false;
                }
                let left = self.rng.between(5, 60) as u32;
                self.later(world, Span::ZERO, End::Stutter { node, left, stopped: false });
            }
            Kind::Loss | Kind::Delay | Kind::Duplicate | Kind::Reorder => self.worsen(world, kind),
            Kind::Split | Kind::OneWay | Kind::Partial => return self.cut(world, kind),
            Kind::SlowDisk => {
                // So slow and for so long that others should take over; or as disks are.
                let is_worn = !self.gentle && self.rng.chance(0.2);
                let (slow, after) = if is_worn {
                    (self.millis(700, 2_000), self.millis(8_000, 30_000))
                } else {
                    (self.millis(5, 400), self.millis(500, 8_000))
                };
                world.slow_disk(node, slow);
                self.later(world, after, End::FastDisk(node));
            }
            Kind::ClockJump => {
                let far = self.rng.chance(0.3);
                let by = self.rng.between(1, if far { 60_000 } else { 900 }) as i64;
                world.jump_clock(node, Some(if self.rng.chance(0.5) { by } else { -by }));
                let after = self.millis(1_000, 10_000);
                self.later(world, after, End::RightClock(node));
            }
            Kind::ChildCrash | Kind::ChildHang => {
                let children: Vec<_> = world.children(node).map(|(proc, _)| proc).collect();
                let Some(&proc) = self.rng.pick(&children) else { return false };
                if kind == Kind::ChildCrash { world.crash_child(node, proc) } else { world.hang_child(node, proc) }
            }
            Kind::Lies => {
                let lives = self.counts.get(&Kind::Lies).copied().unwrap_or(0);
                if self.liar.is_some() {
                    return false;
                }
                let nodes = (0..machines).map(|node| world.id(node)).collect();
                let liar = self.liar.insert(Liar::new(lives, nodes, self.lying.fork()));
                world.let_lie(liar.id, liar.card.boot, liar.card.encode());
                let until = world.now() + LIES_FOR;
                self.later(world, Span::ZERO, End::Lie { until });
            }
            Kind::ChildManners => {
                let rng = &mut self.rng;
                let mut some = |p: f64| if rng.chance(0.5) { p } else { 0.0 };
                let (missing, still_born, stubborn) = (some(0.3), some(0.5), some(0.5));
                world.manners = Manners {
                    start: self.millis(100, 12_000),
                    stop: self.millis(10, 8_000),
                    missing,
                    still_born,
                    stubborn,
                };
                let after = self.millis(500, 10_000);
                self.later(world, after, End::GoodManners);
            }
        }
        true
    }

    /// One lie, to one node; a link first, if it has none.
    fn lie<F: Factory>(&mut self, world: &mut World<F>) {
        let Some(liar) = &mut self.liar else { return };
        let node = self.lying.below(world.machines() as u64) as usize;
        if !world.meet_liar(node) {
            // The one true thing that it says.
            return world.lie(node, liar.leaves(world.id(node)));
        }
        let all = world.overheard();
        let count = all.len() as u64;
        if count > 0 {
            let [one, other] = [(); 2].map(|()| self.lying.below(count) as usize);
            let (one, other) = (all.clone().nth(one).cloned(), world.overheard().nth(other).cloned());
            let lie = one.zip(other).and_then(|(one, other)| liar.lie(node, &one, &other));
            lie.into_iter().for_each(|frame| world.lie(node, frame));
        }
    }

    fn worsen<F: Factory>(&mut self, world: &mut World<F>, kind: Kind) {
        let mut weather = world.weather();
        let share = [0.01, 0.05, 0.2][self.rng.below(3) as usize];
        let end = match kind {
            Kind::Loss => {
                weather.loss = share;
                End::Loss
            }
            Kind::Duplicate => {
                weather.duplicate = share;
                End::Duplicate
            }
            Kind::Reorder => {
                weather.reorder = share;
                End::Reorder
            }
            _ => {
                weather.delay = Span(self.rng.between(150, 20_000));
                weather.jitter = Span(self.rng.between(400, 80_000));
                End::Delay
            }
        };
        world.set_weather(weather);
        let after = self.millis(500, 10_000);
        self.later(world, after, end);
    }

    fn cut<F: Factory>(&mut self, world: &mut World<F>, kind: Kind) -> bool {
        let machines = world.machines();
        if machines < 2 {
            return false;
        }
        let mut order: Vec<usize> = (0..machines).collect();
        self.rng.shuffle(&mut order);
        let pairs = match kind {
            Kind::OneWay => vec![(order[0], order[1])],
            Kind::Partial => vec![(order[0], order[1]), (order[1], order[0])],
            _ => {
                let (left, right) = order.split_at(self.rng.between(1, machines as u64 - 1) as usize);
                left.iter().flat_map(|&a| right.iter().flat_map(move |&b| [(a, b), (b, a)])).collect()
            }
        };
        // A pair that is cut already belongs to another fault, which heals it.
        let pairs: Vec<_> = pairs.into_iter().filter(|&(a, b)| !world.is_cut(a, b)).collect();
        let holds = self.rng.chance(0.5);
        for &(from, to) in &pairs {
            world.cut(from, to, holds);
        }
        let after = if self.rng.chance(0.5) { self.millis(50, 2_000) } else { self.millis(2_000, 20_000) };
        self.later(world, after, End::Heal(pairs));
        true
    }

    fn end<F: Factory>(&mut self, world: &mut World<F>, end: End) {
        let mut weather = world.weather();
        match end {
            End::Start(node) => {
                if !world.is_running(node) {
                    world.start(node);
                }
                return;
            }
            End::Resume(node) => return world.resume(node),
            End::Stutter { node, left, stopped } => {
                if stopped {
                    world.resume(node);
                } else {
                    world.hang(node);
                }
                if stopped && left == 0 {
                    return;
                }
                let after = if stopped { self.millis(1, 100) } else { self.millis(1, 150) };
                let left = if stopped { left } else { left.saturating_sub(1) };
                return self.later(world, after, End::Stutter { node, left, stopped: !stopped });
            }
            End::Heal(pairs) => return pairs.into_iter().for_each(|(from, to)| world.heal(from, to)),
            End::Room(node) => return world.fill_disk(node, false),
            End::Older(node, older) => {
                self.forgets = false;
                let (id, image) = *older;
                // Somebody else by now: what was copied is of nobody.
                if !world.is_running(node) || world.id(node) != id {
                    return;
                }
                world.kill(node);
                world.put_back(node, image);
                return world.start(node);
            }
            End::Lied(node) => {
                self.forgets = false;
                if !world.is_running(node) {
                    return world.lying_disk(node, false);
                }
                world.power_off(node);
                return world.start(node);
            }
            End::Lie { until } if world.now() >= until => return world.end_lies(),
            End::Lie { until } => {
                self.lie(world);
                let after = Span(self.lying.between(1_000, 8_000));
                return self.later(world, after, End::Lie { until });
            }
            End::FastDisk(node) => return world.slow_disk(node, Span::ZERO),
            End::RightClock(node) => return world.jump_clock(node, None),
            End::GoodManners => return world.manners = Manners::GOOD,
            End::Loss => weather.loss = 0.0,
            End::Duplicate => weather.duplicate = 0.0,
            End::Reorder => weather.reorder = 0.0,
            End::Delay => (weather.delay, weather.jitter) = (Weather::CALM.delay, Weather::CALM.jitter),
        }
        world.set_weather(weather);
    }
}
