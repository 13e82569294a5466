//! The sizer against a model of a service: requests come, each clone answers one after the other, edges report late and
//! averages blur. Bursts are absorbed, nothing flaps, and nothing happens without reports.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use base::Rng;

use super::*;

const SIZE: Size = Size { min: 2, max: 64 };
const HURTS: Span = Span::millis(100);
const START: Span = Span::millis(400);

/// How the model's requests come.
#[derive(Clone, Copy)]
enum Load {
    /// So many a second, whatever becomes of them.
    Open(f64),
    /// So many users, each waiting for an answer before the next.
    Closed(usize),
}

struct Model {
    rng: Rng,
    now: Time,
    sizer: Sizer,
    target: u32,
    /// When each clone has done what it has; those that start are in the future.
    clones: Vec<Time>,
    up_at: Vec<Time>,
    load: Load,
    next: Time,
    users: usize,
    /// Ends of requests, and when they began.
    under_way: BinaryHeap<Reverse<(Time, Time)>>,
    service: Span,
    /// So many may be under way for each clone: all others are refused.
    room: usize,
    refused: f64,
    /// Part of the time that is not the clone's: a database that everybody waits for.
    elsewhere: Span,
    varies: bool,
    counts: (f64, f64, f64),
    reports: bool,
    report_at: Time,
    decisions: Vec<(Time, u32)>,
    /// How long requests took, by second of their end: sum and number.
    took: BTreeMap<u64, (f64, u64)>,
}

impl Model {
    fn new(seed: u64, load: Load) -> Self {
        let now = Time(1_000_000);
        Self {
            rng: Rng::new(seed),
            now,
            sizer: Sizer::default(),
            target: SIZE.min,
            clones: vec![now; SIZE.min as usize],
            up_at: vec![now; SIZE.min as usize],
            load,
            next: now,
            users: 0,
            under_way: BinaryHeap::new(),
            service: Span::millis(20),
            room: usize::MAX,
            refused: 0.0,
            elsewhere: Span::ZERO,
            varies: true,
            counts: (0.0, 0.0, 0.0),
            reports: true,
            report_at: now,
            decisions: Vec::new(),
            took: BTreeMap::new(),
        }
    }

    fn serving(&self) -> Vec<usize> {
        (0..self.clones.len()).filter(|i| self.up_at[*i] <= self.now).collect()
    }

    /// One request goes to the less loaded of two clones.
    fn arrive(&mut self) {
        self.counts.0 += 1.0;
        let up = self.serving();
        if self.under_way.len() / up.len() >= self.room {
            self.refused += 1.0;
            return;
        }
        let (a, b) = (*self.rng.pick(&up).unwrap(), *self.rng.pick(&up).unwrap());
        let clone = if self.clones[a] <= self.clones[b] { a } else { b };
        let chance = (self.rng.below(1_000_000) + 1) as f64 / 1e6;
        let own = if self.varies { (self.service.0 as f64 * -chance.ln()) as u64 } else { self.service.0 };
        let end = self.clones[clone].max(self.now) + Span(own);
        self.clones[clone] = end;
        self.under_way.push(Reverse((end + self.elsewhere, self.now)));
    }

    fn run(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.now = self.now + Span::millis(1);
            while let Some(Reverse((end, began))) = self.under_way.peek().copied().filter(|r| r.0.0 <= self.now) {
                self.under_way.pop();
                let took = end.since(began).as_secs_f64();
                (self.counts.1, self.counts.2) = (self.counts.1 + 1.0, self.counts.2 + took);
                let second = self.took.entry(end.0 / 1_000_000).or_default();
                *second = (second.0 + took, second.1 + 1);
                self.users = self.users.saturating_sub(1);
            }
            match self.load {
                Load::Open(rate) => {
                    while self.next <= self.now {
                        self.arrive();
                        let chance = (self.rng.below(1_000_000) + 1) as f64 / 1e6;
                        self.next = self.next + Span((-chance.ln() / rate * 1e6) as u64);
                    }
                }
                Load::Closed(users) => {
                    while self.users < users {
                        self.users += 1;
                        self.arrive();
                    }
                }
            }
            if self.now >= self.report_at {
                self.report_at = self.now + LOAD_EVERY;
                self.report();
            }
        }
    }

    fn report(&mut self) {
        let (arrived, done, took) = std::mem::take(&mut self.counts);
        let per_second = 1.0 / LOAD_EVERY.as_secs_f64();
        let serving = self.serving().len() as u32;
        if self.reports {
            let seen = Seen {
                arrived: arrived * per_second,
                refused: std::mem::take(&mut self.refused) * per_second,
                done: done * per_second,
                in_flight: self.under_way.len() as f64,
                took: if done > 0.0 { took / done } else { 0.0 },
            };
            self.sizer.observe(self.now, serving, seen);
        }
        if let Some(decision) = self.sizer.decide(self.now, SIZE, HURTS, self.target, serving) {
            for _ in self.target..decision.to {
                self.clones.push(self.now + START);
                self.up_at.push(self.now + START);
            }
            // Those that drain finish what they have.
            self.clones.truncate(decision.to as usize);
            self.up_at.truncate(decision.to as usize);
            (0..decision.to.saturating_sub(self.target)).for_each(|_| self.sizer.started(START));
            self.target = decision.to;
            self.decisions.push((self.now, decision.to));
        }
    }

    /// Mean time of requests that ended within the last seconds.
    fn mean(&self, seconds: u64) -> f64 {
        let now = self.now.0 / 1_000_000;
        let (sum, count) = self.took.range(now - seconds..now).fold((0.0, 0), |a, (_, b)| (a.0 + b.0, a.1 + b.1));
        sum / count.max(1) as f64
    }
}

#[test]
fn a_burst_to_four_times_is_absorbed_in_two_seconds_and_nothing_flaps_afterwards() {
    for seed in 0..20 {
        let mut model = Model::new(seed, Load::Open(40.0));
        model.run(Span::secs(60));
        assert!(model.decisions.len() <= 1, "seed {seed}: at ease {:?}", model.decisions);
        let (before, burst) = (model.decisions.len(), model.now);
        model.load = Load::Open(160.0);
        model.run(Span::secs(2) + START + Span::secs(1));
        assert!(model.mean(1) < 0.150, "seed {seed}: {:.3} s after the burst, {:?}", model.mean(1), model.decisions);
        model.run(Span::secs(120));
        let in_burst: Vec<_> =
            model.decisions[before..].iter().map(|(at, to)| (at.since(burst).as_millis(), *to)).collect();
        // Twice up at most, and an estimate that was too high is put right; nothing grows again after that.
        assert!(in_burst.len() <= 4, "seed {seed}: it flaps: {in_burst:?}");
        let down = in_burst.windows(2).position(|w| w[1].1 < w[0].1).unwrap_or(in_burst.len());
        let more = in_burst.windows(2).filter(|w| w[1].1 > w[0].1).count();
        assert!(more <= 1, "seed {seed}: it goes on growing: {in_burst:?}");
        assert!(in_burst[down..].windows(2).all(|w| w[1].1 < w[0].1), "seed {seed}: it flaps: {in_burst:?}");
        assert!(in_burst[0].0 < 1_000 && in_burst.last().unwrap().1 <= 10, "seed {seed}: {in_burst:?}");
        assert!(model.mean(60) < 0.100, "seed {seed}");

        model.load = Load::Open(40.0);
        let ended = model.decisions.len();
        model.run(Span::secs(180));
        let after: Vec<u32> = model.decisions[ended..].iter().map(|d| d.1).collect();
        assert!(after.windows(2).all(|w| w[1] < w[0]), "seed {seed}: it only shrinks: {after:?}");
        assert!(model.target <= 4, "seed {seed}: {} are left", model.target);
        assert!(model.mean(60) < 0.100, "seed {seed}");
    }
}

#[test]
fn what_is_refused_brings_clones_though_nobody_waits_for_long() {
    for seed in 0..10 {
        let mut model = Model::new(seed, Load::Open(40.0));
        // Two that wait behind each that is served: 60 ms, less than hurts.
        model.room = 3;
        model.run(Span::secs(30));
        model.load = Load::Open(400.0);
        model.run(Span::secs(12));
        assert!(model.target >= 8, "seed {seed}: {:?}", model.decisions);
        let before = model.decisions.len();
        model.run(Span::secs(60));
        assert!(model.decisions.len() - before <= 3, "seed {seed}: it flaps: {:?}", model.decisions);
    }
}

#[test]
fn a_burst_that_reports_have_seen_half_of_is_followed_before_the_rest_is_over() {
    let mut sizer = Sizer::default();
    let seen = |arrived: f64, done: f64, in_flight| Seen { arrived, done, in_flight, took: 0.02, ..Seen::default() };
    let mut now = Time(1_000_000);
    let mut next = |sizer: &mut Sizer, new: Seen, target, serving| {
        now = now + LOAD_EVERY;
        sizer.observe(now, serving, new);
        sizer.decide(now, SIZE, HURTS, target, serving).map(|decision| decision.to)
    };
    for _ in 0..40 {
        assert_eq!(next(&mut sizer, seen(60.0, 60.0, 1.2), 2, 2), None);
    }
    let first = next(&mut sizer, seen(200.0, 100.0, 60.0), 2, 2).expect("it grows");
    assert!(first < 12, "{first}");
    let then = next(&mut sizer, seen(600.0, 100.0, 200.0), first, 2).expect("it grows again at once");
    assert!((12..=18).contains(&then), "{first}, {then}");
    assert_eq!(next(&mut sizer, seen(600.0, 100.0, 300.0), then, 2), None, "now it rests");
}

#[test]
fn a_burst_is_followed_too_when_the_first_new_clones_served_before_the_next_reports() {
    let mut sizer = Sizer::default();
    let seen = |arrived: f64, done: f64, in_flight| Seen { arrived, done, in_flight, took: 0.02, ..Seen::default() };
    let mut now = Time(1_000_000);
    let mut next = |sizer: &mut Sizer, new: Seen, target, serving| {
        now = now + LOAD_EVERY;
        sizer.observe(now, serving, new);
        sizer.decide(now, SIZE, HURTS, target, serving).map(|decision| decision.to)
    };
    for _ in 0..40 {
        assert_eq!(next(&mut sizer, seen(60.0, 60.0, 1.2), 2, 2), None);
    }
    let first = next(&mut sizer, seen(200.0, 100.0, 60.0), 2, 2).expect("it grows");
    let then = next(&mut sizer, seen(600.0, 150.0, 200.0), first, first).expect("it grows again at once");
    // The new ones have not shown yet what they do: by that alone it would be all that there may be.
    assert!((12..=24).contains(&then), "{first}, {then}");
    // What waited comes with what is new.
    assert_eq!(next(&mut sizer, seen(1_200.0, 500.0, 300.0), then, then), None, "now it rests");
}

#[test]
fn users_who_wait_for_answers_get_them_in_time_without_flapping() {
    for seed in 0..10 {
        let mut model = Model::new(seed, Load::Closed(2));
        model.run(Span::secs(20));
        model.load = Load::Closed(24);
        model.run(Span::secs(120));
        assert!(model.decisions.len() <= 4, "seed {seed}: {:?}", model.decisions);
        assert!(model.mean(30) < 0.120, "seed {seed}: {:.3} {:?}", model.mean(30), model.decisions);
        assert!(model.target < 24, "seed {seed}: not one clone a user: {}", model.target);
    }
}

#[test]
fn more_clones_are_not_tried_for_ever_where_they_do_not_help() {
    for seed in 0..10 {
        let mut model = Model::new(seed, Load::Open(80.0));
        model.service = Span::millis(10);
        model.run(Span::secs(30));
        model.elsewhere = Span::millis(800);
        model.run(Span::secs(300));
        let grown = model.decisions.iter().map(|d| d.1).max().unwrap_or(SIZE.min);
        assert!(grown <= 16, "seed {seed}: {:?}", model.decisions);
        assert!(model.decisions.len() <= 8, "seed {seed}: {:?}", model.decisions);
    }
}

#[test]
fn without_reports_nothing_changes() {
    let mut model = Model::new(1, Load::Open(40.0));
    model.run(Span::secs(30));
    let before = model.target;
    model.reports = false;
    model.sizer.seen_at = None;
    model.load = Load::Open(400.0);
    model.run(Span::secs(20));
    assert_eq!(model.target, before);
}

#[test]
fn who_starts_slowly_begins_earlier_and_rests_longer() {
    let (mut quick, mut slow) = (Sizer::default(), Sizer::default());
    for _ in 0..40 {
        quick.started(Span::millis(100));
        slow.started(Span::secs(9));
    }
    let (h, d) = (|sizer: &Sizer| sizer.threshold(HURTS).as_millis(), |sizer: &Sizer| sizer.rest().as_millis());
    assert_eq!((h(&quick), h(&slow)), (90, 10));
    assert_eq!((d(&quick), d(&slow)), (1300, 10_199), "a moment less, as it is still learned");
}

#[test]
fn a_range_that_was_declared_anew_holds_at_once() {
    let mut sizer = Sizer::default();
    let now = Time(5_000_000);
    assert_eq!(sizer.decide(now, Size { min: 3, max: 4 }, HURTS, 1, 1).map(|d| d.to), Some(3));
    assert_eq!(sizer.decide(now, Size { min: 3, max: 4 }, HURTS, 9, 9).map(|d| d.to), Some(4));
    assert_eq!(sizer.decide(now, Size { min: 3, max: 4 }, HURTS, 3, 3), None);
}

#[test]
fn a_burst_soon_after_the_first_requests_is_not_taken_for_what_requests_take() {
    let mut sizer = Sizer::default();
    let mut now = Time(1_000_000);
    let mut next = |sizer: &mut Sizer, (arrived, done, in_flight, took), target| {
        now = now + LOAD_EVERY;
        sizer.observe(now, target, Seen { arrived, done, in_flight, took, ..Seen::default() });
        sizer.decide(now, SIZE, HURTS, target, target).map(|decision| decision.to)
    };
    for _ in 0..3 {
        assert_eq!(next(&mut sizer, (24.0, 24.0, 1.0, 0.041), SIZE.min), None);
    }
    // Users who wait for their answers, all at once; a clone does 24 a second.
    let done = 24.0 * f64::from(SIZE.min);
    let grown = (0..40).find_map(|_| next(&mut sizer, (done, done, 32.0, 32.0 / done), SIZE.min));
    assert!(grown.is_some_and(|grown| grown > SIZE.min), "{grown:?} clones");
    assert!(sizer.service_time.is_some_and(|own| own < 0.06), "{:?}", sizer.service_time);
}

#[test]
fn one_user_after_the_other_keeps_no_third_clone_however_answers_fall_into_reports() {
    let mut sizer = Sizer::default();
    let mut now = Time(1_000_000);
    let shrinks = (0..240).any(|n| {
        now = now + LOAD_EVERY;
        // Now and then one more ends within a report.
        let done = if n % 16 == 0 { 28.0 } else { 24.2 };
        sizer.observe(now, 3, Seen { arrived: done, done, in_flight: 1.0, took: 0.041, ..Seen::default() });
        sizer.decide(now, SIZE, HURTS, 3, 3).is_some_and(|decision| decision.to < 3)
    });
    assert!(shrinks);
}
