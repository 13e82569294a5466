//! Who is let in where not everybody can be: requests have a priority, and what the higher ones use is kept free for them. So
//! in overload the lowest is refused first, and at once, and the highest finds room. How many may be under way in all is
//! learned ([`Limit`]); how many each priority uses is measured, by Little's law: arrivals a second times what one takes.
//! Inside of one priority clients are equal: while some are refused, each is let in so often that all together fit
//! ([`fair_share`]). All this holds over all doors to the same clones, as far as they are heard ([`crate::doors`]).
//!
//! This machine looks once in an interval and says what holds until the next; whoever admits requests compares numbers.

use std::ops::Range;

use base::{Span, Time};

use crate::doors::{Door, Others};
use crate::limit::{Bounds, Elsewhere, Limit, Seen};
use crate::limits::LEARN_EVERY;
use crate::overload::Overload;

/// Priorities, 0 (refused first) to 9.
pub const CLASSES: usize = 10;
/// Clients are told apart by this many hashes.
pub const CLIENTS: usize = 256;

#[derive(Clone, Debug)]
pub struct Admission {
    limit: Limit,
    /// Requests of each priority a second, refused ones too.
    rates: [f64; CLASSES],
    looked_at: Time,
    overload: Overload,
    /// Too little to learn from yet.
    seen: Seen,
    /// What this door has under way, smoothed.
    under_way: f64,
    others: Others,
    heard_at: Time,
    /// Requests that found no room since it heard of the others.
    no_room: u64,
    /// Between the last two times.
    is_full: bool,
    /// Requests that were let in, a second.
    let_in: f64,
    /// Looks in a row that saw the queue grow.
    grown: u32,
    trial: Trial,
}

/// What holds until the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rooms {
    /// A request of a priority is let in while fewer than this are under way, of all priorities.
    pub room: [u32; CLASSES],
    /// Requests of each priority that may wait for room. In overload, of the lowest priority that comes at all only as
    /// many may wait as find room soon.
    pub waiting: [u32; CLASSES],
}

/// What came since the last look, besides what [`Seen`] has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    /// Requests of each priority, refused ones too.
    pub arrived: [u64; CLASSES],
    pub let_in: [u64; CLASSES],
    /// How long all of some priority have waited for room at least, of those that found it.
    pub waited: Span,
    /// Requests that were refused.
    pub refused: u64,
    /// What is under way now.
    pub under_way: u32,
}

impl Admission {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            limit: Limit::new(bounds),
            rates: [0.0; CLASSES],
            looked_at: Time::ZERO,
            overload: Overload::new(WAIT_HURTS),
            seen: Seen::default(),
            under_way: 0.0,
            others: Others::default(),
            heard_at: Time::ZERO,
            no_room: 0,
            is_full: false,
            let_in: 0.0,
            grown: 0,
            trial: Trial::default(),
        }
    }

    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    pub fn is_overloaded(&self) -> bool {
        self.overload.is_up()
    }

    /// Some are refused, and are to share what there is. Who is let wait in a trial is not refused for what came
    /// before.
    pub fn is_scarce(&self) -> bool {
        self.overload.is_up() && !self.trial.is_on()
    }

    pub fn overloads(&self) -> u64 {
        self.overload.rises()
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.limit.set_bounds(bounds);
    }

    /// What the other doors to the same clones said last.
    pub fn hear(&mut self, now: Time, others: Others) {
        (self.others, self.heard_at) = (others, now);
        self.is_full = self.no_room > 0;
        if self.is_full
            && let Some(size) = self.others.size(self.present().start)
        {
            self.limit.agree(size);
        }
        if let Some(queue) = self.others.queue_above(self.present().end - 1) {
            self.limit.yield_to(queue);
        }
        self.no_room = 0;
    }

    /// What the other doors are to know of this one.
    pub fn door(&self) -> Door {
        let takes = self.takes();
        let rates = self.rates.map(|rate| if rate * takes >= PRESENT { rate } else { 0.0 });
        let (size, queue) = (self.limit.size().into(), self.limit.queue());
        Door { rates, under_way: self.under_way, size, is_full: self.is_full, takes, queue }
    }

    /// What other doors have under way.
    pub fn elsewhere(&self) -> f64 {
        self.others.under_way(None, 0.0)
    }

    pub fn look(&mut self, now: Time, seen: &Seen, came: &Came) -> Rooms {
        let passed = now.since(self.looked_at).as_secs_f64();
        self.looked_at = now;
        if now.since(self.heard_at) > HEARD_FOR {
            self.others = Others::default();
        }
        self.no_room += seen.no_room;
        self.seen.add(&Seen { elsewhere: self.seen_elsewhere(), ..*seen });
        // Who lets nothing in has no answers to learn from: those of the others tell him.
        let is_shut = seen.no_room > 0 && seen.under_way_max == 0;
        if is_shut && let Some((takes, queue)) = self.others.learned() {
            self.limit.follow(Span((takes * 1e6) as u64), queue);
        }
        let has_higher = self.has_higher();
        let is_alone = self.elsewhere() < PRESENT;
        self.limit.set_alone(is_alone);
        self.limit.set_strict(self.overload.is_up() && has_higher && is_alone);
        if self.limit.is_due(now, &self.seen) {
            self.limit.learn(now, &std::mem::take(&mut self.seen));
        }
        let part = |of: Span| 1.0 - (-passed / of.as_secs_f64()).exp();
        self.under_way += (f64::from(came.under_way) - self.under_way) * part(SMOOTH_IN);
        for (rate, arrived) in self.rates.iter_mut().zip(came.arrived) {
            let now = arrived as f64 / passed.max(1e-3);
            // Up at once, down slowly: room that is kept for nobody costs little, room that is missing is a refusal.
            *rate = if now > *rate { now } else { *rate + (now - *rate) * part(FADES_IN) };
        }
        let all = |counts: &[u64; CLASSES]| counts.iter().sum::<u64>();
        let (arrived, let_in) = (all(&came.arrived), all(&came.let_in));
        // A look that comes late comes after a time in which nothing did.
        let rate = let_in as f64 / LEARN_EVERY.as_secs_f64();
        self.let_in = if rate > self.let_in { rate } else { self.let_in + (rate - self.let_in) * part(FADES_IN) };
        self.grown = if arrived > let_in + let_in / GROWS_PART { self.grown + 1 } else { 0 };
        let stands = !has_higher && self.grown < GROWS_LOOKS;
        self.overload.set_target(if stands { self.patience() } else { self.pain() });
        if came.refused > 0 {
            self.overload.refused(now);
        }
        self.overload.waited(now, came.waited);
        self.try_again(now, has_higher, came);
        self.rooms()
    }

    /// In overload all may wait again for a moment, now and then: clients that ask again at once when they are refused
    /// look like more and more of them, and would for ever, though all find room soon if they wait.
    fn try_again(&mut self, now: Time, has_higher: bool, came: &Came) {
        let trial = &mut self.trial;
        if !self.overload.is_up() {
            if now.since(trial.hot_at) >= TRIAL_FORGOTTEN {
                trial.pause = TRIAL_FIRST;
            }
            (trial.looks, trial.at) = (0, now + trial.pause);
            return;
        }
        trial.hot_at = now;
        let waits_too_long = came.waited > self.patience();
        let trial = &mut self.trial;
        // Of its first look all but nothing was before.
        let fails = trial.looks > 1 && (came.refused > 0 || waits_too_long || self.grown >= GROWS_LOOKS);
        if has_higher || fails {
            if trial.is_on() {
                (trial.looks, trial.at) = (0, now + trial.pause);
            }
        } else if trial.looks > TRIAL_LOOKS {
            trial.looks = 0;
            self.overload.over();
        } else if trial.is_on() {
            trial.looks += 1;
        } else if now >= trial.at {
            (trial.looks, trial.pause) = (1, TRIAL_PAUSE_MAX.min(trial.pause.times(2)));
            self.grown = 0;
        }
    }

    fn seen_elsewhere(&self) -> Elsewhere {
        let (lowest, here) = (self.lowest(), self.present());
        let tested = self.limit.is_tested().then_some(lowest);
        let kept = |from: usize| (from..CLASSES).map(|class| with_swings(self.wanted(class))).sum::<f64>() as u32;
        let yields = self.others.below(here.start, self.takes()) >= 1.0;
        Elsewhere {
            under_way: self.others.under_way(tested, self.takes()) as u32,
            told: self.elsewhere() as u32,
            is_full: self.others.is_full(),
            kept: if here.end - 1 > lowest { 0 } else { kept(lowest + 1) },
            needed: if yields { kept(here.start) } else { 0 },
        }
    }

    /// From the lowest to above the highest priority that comes to this door.
    fn present(&self) -> Range<usize> {
        let takes = self.takes();
        let is_here = |class: &usize| self.rates[*class] * takes >= PRESENT;
        (0..CLASSES).find(is_here).unwrap_or(0)..(0..CLASSES).rfind(is_here).unwrap_or(CLASSES - 1) + 1
    }

    /// The lowest priority that comes at all, at any door.
    fn lowest(&self) -> usize {
        (0..CLASSES).find(|class| self.wanted(*class) >= PRESENT).unwrap_or(0)
    }

    /// Priorities differ, at any door.
    fn has_higher(&self) -> bool {
        (self.lowest() + 1..CLASSES).any(|class| self.wanted(class) >= PRESENT)
    }

    /// What a priority would have under way, at all doors, if all of it were let in and none waited.
    fn wanted(&self, class: usize) -> f64 {
        (self.rates[class] + self.others.rate(class)) * self.takes()
    }

    /// Seconds that a request takes without a queue.
    fn takes(&self) -> f64 {
        self.limit.base().as_secs_f64()
    }

    pub fn rooms(&self) -> Rooms {
        let (mut room, mut waiting) = ([0; CLASSES], [0; CLASSES]);
        let (lowest, is_only) = (self.lowest(), !self.has_higher());
        // What higher priorities want at this door, and what is kept for them for all doors.
        let (mut here, mut kept) = (0.0, 0.0);
        for class in (0..CLASSES).rev() {
            // Of the rest the doors have equal parts. What higher priorities have under way here comes on top of such a part.
            let part = |size: u32| self.others.share(class, f64::from(size) - kept - here, self.takes());
            // A test of the limit costs the lowest alone.
            let size = if class > lowest { self.limit.size() } else { self.limit.size_now() };
            room[class] = (here + part(size)).ceil() as u32;
            if class == lowest && here >= PRESENT {
                room[class] = room[class].min(self.limit.likely());
            }
            // A burst may wait, and for longer where nobody waits who matters more. In overload only those may who will
            // be let in soon, as others are refused for them.
            waiting[class] = if !self.is_scarce() || class > lowest {
                let time = if is_only && !self.is_scarce() { self.patience() } else { self.pain() };
                let burst = self.let_in_within(self.limit.size().into(), time);
                let burst = if is_only { burst.max(self.was_let_in_within(time)) } else { burst };
                burst.max(self.limit.size().max(WAITING_MIN) * WAITING_PARTS)
            } else {
                let soon = Span(self.pain().0 / 2);
                let most = if is_only { self.was_let_in_within(soon) } else { 0 };
                self.let_in_within(part(self.limit.size()), soon).max(most)
            };
            here += self.rates[class] * self.takes();
            kept += with_swings(self.wanted(class));
        }
        Rooms { room, waiting }
    }

    /// A wait above this is overload.
    fn pain(&self) -> Span {
        WAIT_HURTS.max(Span(self.limit.base().0 / 2))
    }

    /// ... unless all matters as much, and as many are let in as come: those who wait are the same again and again
    /// then, and nobody is served sooner for one who is refused.
    fn patience(&self) -> Span {
        self.pain().max(STANDS_FOR)
    }

    /// How many find room in some time, as they did last.
    fn was_let_in_within(&self, time: Span) -> u32 {
        (self.let_in * time.as_secs_f64()).min(WAITING_MAX) as u32
    }

    /// How many find room in some time where so many may be under way: each for as long as an answer may take, at worst.
    fn let_in_within(&self, room: f64, time: Span) -> u32 {
        let turns = time.as_secs_f64() / self.limit.target().as_secs_f64().max(1e-4);
        (room * turns).min(WAITING_MAX) as u32
    }
}

/// Whether all may wait again, in overload.
#[derive(Clone, Debug)]
struct Trial {
    /// Since it began; 0 while there is none.
    looks: u32,
    /// The next one.
    at: Time,
    pause: Span,
    /// The last time that there was overload.
    hot_at: Time,
}

impl Default for Trial {
    fn default() -> Self {
        Self { looks: 0, at: Time::ZERO, pause: TRIAL_FIRST, hot_at: Time::ZERO }
    }
}

impl Trial {
    fn is_on(&self) -> bool {
        self.looks > 0
    }
}

/// How often each client may be let in, so that `total` are: the same for all, but what some do not use is for the others.
/// None if all that came fits, or there is but one.
pub fn fair_share(came: &[u32], total: u64) -> Option<u32> {
    let mut wishes: Vec<u32> = came.iter().copied().filter(|n| *n > 0).collect();
    if wishes.len() < 2 || wishes.iter().map(|n| u64::from(*n)).sum::<u64>() <= total {
        return None;
    }
    wishes.sort_unstable();
    let mut left = total;
    for (at, wish) in wishes.iter().enumerate() {
        let share = left / (wishes.len() - at) as u64;
        if u64::from(*wish) > share {
            return Some((share as u32).max(1));
        }
        left -= u64::from(*wish);
    }
    None
}

/// Random arrivals swing by the root of their number.
fn with_swings(demand: f64) -> f64 {
    if demand >= PRESENT { demand + 2.0 * demand.sqrt() } else { 0.0 }
}

/// A shorter wait is no overload, however quick requests are otherwise: about what people begin to feel. Many connections that each
/// ask again once they are answered wait for each other for less than this; refused, they would ask again at once instead.
const WAIT_HURTS: Span = Span::millis(100);
/// So long may all wait where as many are let in as come: half of what the doors let anybody wait.
const STANDS_FOR: Span = Span::millis(500);
/// The queue grows where, in so many looks in a row, more came than were let in by one in so many.
const GROWS_LOOKS: u32 = 3;
const GROWS_PART: u64 = 10;
/// A trial lasts for so many looks: three see a queue that grows, and one what came before it.
const TRIAL_LOOKS: u32 = 4;
/// The first one comes so soon after overload has begun, each further one after twice as long; as at first if there was
/// none for as long as the last bound.
const TRIAL_FIRST: Span = Span::millis(500);
const TRIAL_PAUSE_MAX: Span = Span::secs(30);
const TRIAL_FORGOTTEN: Span = Span::secs(10);
/// A priority that uses less is not there.
const PRESENT: f64 = 0.01;
/// Demand that is no more is forgotten with this time constant.
const FADES_IN: Span = Span::millis(1500);
/// What is under way is told to others as of about the last so long: as often as they hear it.
const SMOOTH_IN: Span = Span::millis(250);
/// Other doors count for so long after they were heard of: some lost messages do not matter.
const HEARD_FOR: Span = Span::secs(2);
/// More never wait, of one priority: each costs some memory.
const WAITING_MAX: f64 = 16_384.0;
/// At least as many may wait as may be under way, and not fewer than this.
const WAITING_MIN: u32 = 64;
const WAITING_PARTS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::log_us;

    const BOUNDS: Bounds = Bounds { first: 64, min: 4, max: 4096, tolerance_percent: 150, slack: Span::millis(1) };

    /// What became of requests in simulated seconds: of each class (let in, came), and the mean time of what was served.
    struct Ran {
        share: [f64; CLASSES],
        done_of_capacity: f64,
        mean: Span,
    }

    /// `workers` that take `service` each, and a steady offer of each class in requests a second. Who finds no room waits, if he may.
    fn run(admission: &mut Admission, now: &mut Time, offered: [f64; CLASSES], seconds: u64) -> Ran {
        let (workers, service) = (20.0, 0.010);
        let capacity = workers / service;
        let dt = 0.1;
        let (mut let_in, mut done, mut took) = ([0.0; CLASSES], 0.0, Vec::new());
        let mut queues = [0.0; CLASSES];
        for _ in 0..seconds * 10 {
            let rooms = admission.rooms();
            // Each class takes what the room allows above what the higher ones took.
            let (mut rate, mut no_room, mut refused, mut waited) = (0.0, 0.0, 0.0, 0.0_f64);
            let mut in_classes = [0.0; CLASSES];
            for class in (0..CLASSES).rev() {
                let most = (f64::from(rooms.room[class]) / service).min(capacity);
                let wants = offered[class] + queues[class] / dt;
                let in_class = wants.min((most - rate).max(0.0));
                let left = (wants - in_class) * dt;
                queues[class] = left.min(rooms.waiting[class].into());
                no_room += left;
                refused += left - queues[class];
                if in_class > 0.0 {
                    waited = waited.max(queues[class] / in_class);
                }
                let_in[class] += in_class * dt;
                in_classes[class] = in_class;
                rate += in_class;
            }
            let is_full = no_room > 0.0;
            // The lowest class takes what is left.
            let filled = (0..CLASSES).find(|class| offered[*class] > 0.0).map_or(0, |lowest| rooms.room[lowest]);
            let under_way = if is_full && rate >= capacity { f64::from(filled).max(workers) } else { rate * service };
            let mean = (under_way / rate.max(1.0)).max(service);
            let seen = Seen {
                done: (rate * dt) as u64,
                took_log: log_us(Span((mean * 1e6) as u64)) * (rate * dt) as u64,
                under_way_max: under_way as u32,
                no_room: no_room as u64,
                ..Seen::default()
            };
            let arrived = offered.map(|rate| (rate * dt) as u64);
            let let_in = in_classes.map(|rate: f64| (rate * dt) as u64);
            *now = *now + Span::millis(100);
            let (waited, refused) = (Span((waited * 1e6) as u64), refused as u64);
            admission.look(*now, &seen, &Came { arrived, let_in, waited, refused, under_way: under_way as u32 });
            done += rate * dt;
            took.push(mean);
        }
        let seconds = seconds as f64;
        let mut share = [1.0; CLASSES];
        (0..CLASSES).filter(|c| offered[*c] > 0.0).for_each(|c| share[c] = let_in[c] / (offered[c] * seconds));
        let mean = Span((took.iter().sum::<f64>() / took.len() as f64 * 1e6) as u64);
        Ran { share, done_of_capacity: done / (capacity * seconds), mean }
    }

    fn offer(pairs: &[(usize, f64)]) -> [f64; CLASSES] {
        let mut all = [0.0; CLASSES];
        pairs.iter().for_each(|(class, rate)| all[*class] = *rate);
        all
    }

    #[test]
    fn five_times_too_much_leaves_the_top_class_as_it_was_and_goodput_whole() {
        let (mut admission, mut now) = (Admission::new(BOUNDS), Time(1_000_000));
        run(&mut admission, &mut now, offer(&[(9, 200.0), (1, 800.0)]), 5);
        run(&mut admission, &mut now, offer(&[(9, 800.0), (1, 9200.0)]), 10);
        let over = run(&mut admission, &mut now, offer(&[(9, 800.0), (1, 9200.0)]), 10);
        assert!(over.share[9] > 0.999, "the top class got {}", over.share[9]);
        assert!(over.done_of_capacity > 0.95, "{}", over.done_of_capacity);
        assert!(over.mean < Span::millis(17), "{:?}", over.mean);
        assert!(admission.is_overloaded());
        let rooms = admission.rooms();
        assert!(rooms.room[1] < rooms.room[9] && rooms.waiting[1] < rooms.waiting[9], "{rooms:?}");
        run(&mut admission, &mut now, offer(&[(9, 200.0), (1, 800.0)]), 2);
        let after = run(&mut admission, &mut now, offer(&[(9, 200.0), (1, 800.0)]), 5);
        assert!(after.share[1] > 0.999 && !admission.is_overloaded(), "{}", after.share[1]);
    }

    #[test]
    fn the_lowest_of_three_is_refused_first() {
        let (mut admission, mut now) = (Admission::new(BOUNDS), Time(1_000_000));
        let offered = offer(&[(7, 600.0), (5, 600.0), (3, 3000.0)]);
        run(&mut admission, &mut now, offered, 20);
        let ran = run(&mut admission, &mut now, offered, 10);
        assert!(ran.share[7] > 0.999 && ran.share[5] > 0.999, "{:?}", ran.share);
        assert!(ran.share[3] > 0.02 && ran.share[3] < 0.4, "{:?}", ran.share);
    }

    #[test]
    fn one_class_alone_gets_all_there_is_and_waits_little_in_overload() {
        let (mut admission, mut now) = (Admission::new(BOUNDS), Time(1_000_000));
        run(&mut admission, &mut now, offer(&[(5, 10_000.0)]), 20);
        let ran = run(&mut admission, &mut now, offer(&[(5, 10_000.0)]), 5);
        assert!(ran.done_of_capacity > 0.95, "{}", ran.done_of_capacity);
        // 2000 are done a second.
        let waiting = admission.rooms().waiting[5];
        assert!(admission.is_overloaded() && (50..=150).contains(&waiting), "{waiting}");
    }

    #[test]
    fn who_asks_again_once_answered_waits_and_is_not_refused() {
        // 512 connections and 20 that are served at once, in 0.4 ms: what waits, waits for 10 ms.
        let mut admission = Admission::new(Bounds { slack: Span::millis(4), ..BOUNDS });
        let served = Seen { done: 5000, took_log: 5000 * log_us(Span(400)), under_way_max: 20, ..Seen::default() };
        let came = Came { waited: Span::millis(10), ..Came::default() };
        for n in 1..50 {
            admission.look(Time(n * 100_000), &served, &came);
        }
        assert!(!admission.is_overloaded() && admission.rooms().waiting[5] >= 512);
        // A moment of nothing made them wait for longer, and refused some: that passes.
        let mut stall = Came { waited: Span::millis(150), refused: 100, ..came };
        (stall.arrived[5], stall.let_in[5]) = (500, 400);
        for n in 50..53 {
            admission.look(Time(n * 100_000), &served, &stall);
        }
        assert!(admission.is_overloaded());
        for n in 53..70 {
            admission.look(Time(n * 100_000), &served, &came);
        }
        assert!(!admission.is_overloaded());
    }

    #[test]
    fn who_asks_little_gets_all_of_it_and_the_others_the_same() {
        assert_eq!(fair_share(&[10, 1000, 1000, 0], 500), Some(245));
        assert_eq!(fair_share(&[10, 20], 30), None, "all fits");
        assert_eq!(fair_share(&[0, 5000], 10), None, "nobody to be fair to");
        assert_eq!(fair_share(&[7; 100], 50), Some(1), "never nothing at all");
        let came = [3, 900, 50, 410, 12];
        let share = fair_share(&came, 400).unwrap();
        let let_in: u32 = came.iter().map(|n| (*n).min(share)).sum();
        assert!((396..=400).contains(&let_in), "{let_in} with {share}");
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod flood;

#[cfg(test)]
#[path = "admission_closed_tests.rs"]
mod closed;
