//! How many requests may be under way at something whose speed nobody has declared. The limit learns it from what comes
//! back: while answers take not much longer than without a queue, it grows if it is in the way; when they do, all that
//! a larger limit would bring is waiting, and it shrinks. What a request takes without a queue is what it took while
//! the limit was not in the way; while it always is, a short test with fewer under way tells (as BBR does for networks).

use base::{Span, Time};

use crate::histogram::top_of;
use crate::limits::*;

#[derive(Clone, Debug)]
pub struct Limit {
    bounds: Bounds,
    size: f64,
    /// Mean time of a request without a queue ([`Seen::mean`]); zero until known.
    base: Span,
    learned_at: Time,
    probe: Probe,
    probe_at: Time,
    /// The last mean over [`Limit::target`].
    queue: f64,
    /// While it shrinks.
    shrinks_from: Option<Before>,
    /// Somebody is refused for others who are to notice nothing.
    is_strict: bool,
    /// Most requests that were under way lately without a queue; forgotten slowly ([`PROVEN_KEEPS`]).
    proven: f64,
    /// Nobody else lets anything in.
    is_alone: bool,
}

/// The limit and what was seen at it, just before it shrank.
#[derive(Clone, Copy, Debug)]
struct Before {
    size: f64,
    under_way: u32,
    mean: Span,
}

/// Bounds within which one limit moves.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub first: u32,
    pub min: u32,
    pub max: u32,
    /// Time that an answer may take, percent of its time without a queue; [`Bounds::slack`] is added to it.
    pub tolerance_percent: u64,
    /// Time that an answer may take beyond that, whatever its kind: so little is nobody's pain.
    pub slack: Span,
}

/// What happened since the last look. `Default` is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub done: u64,
    /// Sum over all that was done of [`log_us`] of its time, or of the time of most of it ([`most_log`]).
    pub took_log: u64,
    /// Ended because there was too much of them: timed out, or refused further down.
    pub overloads: u64,
    /// Most that were under way at one moment.
    pub under_way_max: u32,
    /// Requests that found no room.
    pub no_room: u64,
    /// What other doors to the same clones say.
    pub elsewhere: Elsewhere,
}

/// What the other doors to the same say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elsewhere {
    /// Most that are under way there. In a test: if they test at the same time.
    pub under_way: u32,
    /// What they say that is under way there.
    pub told: u32,
    /// Requests find no room there.
    pub is_full: bool,
    /// What is kept free for what matters more there, if that leaves nothing here in a test.
    pub kept: u32,
    /// What all needs that matters as much as what comes here, while something is under way there that is to make room first.
    pub needed: u32,
}

/// The logarithm of a time. Its unit is a 1024th of a doubling.
pub fn log_us(took: Span) -> u64 {
    (took.0.saturating_add(1) as f64).log2().mul_add(LOG_UNIT, 0.5) as u64
}

const LOG_UNIT: f64 = 1024.0;

/// [`Seen::took_log`] of what a histogram counted, by its middle half alone. A queue is felt by all that come to it; a few requests that
/// take a second among many of 25 ms say nothing of one, and where one answer in eight is such a one even the geometric mean takes them for it.
pub fn most_log(counts: &[u64]) -> u64 {
    let all: u64 = counts.iter().sum();
    let (from, to) = (all as f64 / 4.0, all as f64 * 3.0 / 4.0);
    let (mut seen, mut sum) = (0.0_f64, 0.0);
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let until = seen + *count as f64;
        let inside = until.min(to) - seen.max(from);
        if inside > 0.0 {
            sum += inside * log_us(Span(top_of(bucket))) as f64;
        }
        seen = until;
    }
    // As if all had taken so long.
    (sum * 2.0).round() as u64
}

impl Seen {
    /// The geometric mean of what was done: all that waits takes longer, and moves it; but one request of a second among twenty of
    /// 5 ms moves it by a third, where it would make the arithmetic mean elevenfold and pass for a queue.
    fn mean(&self) -> Span {
        let log = self.took_log as f64 / self.done.max(1) as f64 / LOG_UNIT;
        Span((log.exp2() - 1.0).round() as u64)
    }

    pub fn add(&mut self, more: &Seen) {
        self.done += more.done;
        self.took_log += more.took_log;
        self.overloads += more.overloads;
        self.under_way_max = self.under_way_max.max(more.under_way_max);
        self.no_room += more.no_room;
        self.elsewhere = more.elsewhere;
    }

    /// At all doors.
    fn under_way_all(&self) -> u32 {
        self.under_way_max.saturating_add(self.elsewhere.under_way)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    Not,
    /// What was under way ends.
    Drains,
    Measures,
}

impl Limit {
    pub fn new(bounds: Bounds) -> Self {
        assert!(bounds.min <= bounds.first && bounds.first <= bounds.max, "the first limit lies within its bounds");
        Self {
            bounds,
            size: f64::from(bounds.first),
            base: Span::ZERO,
            learned_at: Time::ZERO,
            probe: Probe::Not,
            probe_at: Time::ZERO,
            queue: 0.0,
            shrinks_from: None,
            is_strict: false,
            proven: 0.0,
            is_alone: false,
        }
    }

    /// The limit: requests that may be under way.
    pub fn size(&self) -> u32 {
        self.size as u32
    }

    /// The limit for requests that can be told to come again: lower than [`Self::size`] while it tests.
    pub fn size_now(&self) -> u32 {
        match self.probe {
            Probe::Not => self.size(),
            Probe::Drains | Probe::Measures => (self.likely() / PROBE_PART).max(1),
        }
    }

    /// What a request takes without a queue, as far as known.
    pub fn base(&self) -> Span {
        self.base
    }

    /// A mean above this is a queue.
    pub fn target(&self) -> Span {
        let part = if self.is_strict { STRICT_PART } else { 1 };
        let tolerance = self.bounds.tolerance_percent.saturating_sub(100) / part;
        Span(self.base.0 * (100 + tolerance) / 100) + Span(self.bounds.slack.0 / part)
    }

    /// A limit that was in nobody's way for long may be far too large: this it would be, as far as is known, if it were in the way. What is
    /// not to be in the way of something else keeps to that.
    pub fn likely(&self) -> u32 {
        if !self.is_alone {
            // What others have under way is known too late for this.
            return self.size();
        }
        let first = f64::from(self.bounds.first) / PROVEN_FIRST;
        self.size().min((self.proven * PROVEN_TIMES).max(first) as u32)
    }

    /// Whether some are refused so that others notice nothing: then answers may take only a part as much longer.
    pub fn set_strict(&mut self, is_strict: bool) {
        self.is_strict = is_strict;
    }

    /// Whether it is known that nobody else lets anything in. With several doors the limit is more than what is under way, by what they keep
    /// for each other, and swings with that.
    pub fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// How long requests took last, over how long they may: above 1 they wait.
    pub fn queue(&self) -> f64 {
        self.queue
    }

    /// Fewer are let in, to see what one takes without a queue.
    pub fn is_tested(&self) -> bool {
        self.probe != Probe::Not
    }

    /// Somebody else found out so much of the same. All who say so to each other come to agree.
    pub fn agree(&mut self, size: f64) {
        self.size = ((self.size + size) / 2.0).clamp(f64::from(self.bounds.min), f64::from(self.bounds.max));
    }

    /// What matters more has to wait elsewhere, so that answers take so much longer than they may.
    pub fn yield_to(&mut self, queue: f64) {
        self.shrink(1.0 / queue.max(1.0));
    }

    /// Nothing got through here to learn from: somebody else learned this of the same.
    pub fn follow(&mut self, base: Span, queue: f64) {
        self.base = self.base.min(base);
        if queue <= 1.0 {
            self.grow();
        }
    }

    /// Its bounds follow the size of what it limits.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.size = self.size.clamp(f64::from(bounds.min), f64::from(bounds.max));
    }

    /// Is there enough to learn from? Then call [`Limit::learn`] with it, and begin a new interval.
    pub fn is_due(&self, now: Time, seen: &Seen) -> bool {
        let passed = now.since(self.learned_at);
        // What drains is not learned from.
        let is_drained = self.probe == Probe::Drains && passed >= self.base.times(2);
        let enough = is_drained || seen.done + seen.overloads >= LEARN_SAMPLES_MIN;
        passed >= LEARN_EVERY && (enough || passed >= LEARN_AFTER_AT_MOST)
    }

    pub fn learn(&mut self, now: Time, seen: &Seen) {
        self.learned_at = now;
        let under_way_max = seen.under_way_all();
        let was_full = seen.no_room > 0 || under_way_max >= self.size();
        match self.probe {
            Probe::Drains => {
                self.probe = Probe::Measures;
                return;
            }
            Probe::Measures => {
                self.probe = Probe::Not;
                self.measured(now, seen);
                return;
            }
            Probe::Not => (),
        }
        if seen.done == 0 {
            if seen.overloads > 0 {
                self.shrink(SHRINK_MIN);
            }
            return;
        }
        let mean = seen.mean();
        let is_used = was_full || seen.elsewhere.is_full || under_way_max.saturating_mul(2) >= self.size();
        let is_least = self.size <= f64::from(self.bounds.min);
        if self.base == Span::ZERO || mean < self.base {
            self.base = mean;
        } else if !is_used || (is_least && mean > self.target()) {
            // The limit has no part in it, or can do no more about it: this is how long requests take now. Slowly, as one interval
            // may be chance.
            self.base = Span(self.base.0 + (mean.0 - self.base.0).div_ceil(4));
        }
        let queue = mean.0 as f64 / self.target().0.max(1) as f64;
        self.queue += (queue - self.queue) / QUEUE_OVER;
        if queue <= 1.0 {
            self.proven = f64::from(under_way_max).max(self.proven * PROVEN_KEEPS);
        }
        if seen.overloads * 10 > seen.done {
            self.shrink(SHRINK_MIN);
        } else if queue > 1.0 && is_used {
            self.ease(under_way_max, mean, queue, seen.elsewhere.needed);
        } else {
            self.shrinks_from = None;
            if was_full {
                // Where answers take nearly as long as they may the next whole step would be too far.
                self.grow_by(if self.is_strict { (1.0 - queue) * STEPS_NEAR } else { 1.0 });
            }
        }
        if was_full && now >= self.probe_at && seen.elsewhere.kept.saturating_mul(PROBE_PART) < self.size() {
            self.probe = Probe::Drains;
        }
    }

    /// Answers take longer than they may: with less under way they should not.
    fn ease(&mut self, under_way: u32, mean: Span, queue: f64, needed: u32) {
        let from = *self.shrinks_from.get_or_insert(Before { size: self.size, under_way, mean });
        let is_halved = under_way.saturating_mul(2) <= from.under_way;
        if is_halved && mean.0 * 4 > from.mean.0 * 3 {
            // A queue would have become shorter by as much. What is slow is something else: all of the machine, as a rule.
            self.size = from.size;
            self.base = self.base.max(mean);
            self.shrinks_from = None;
            return;
        }
        if is_halved {
            self.shrinks_from = Some(Before { size: self.size, under_way, mean });
        }
        // Not at once to far below what is under way: if the limit was not in the way, nothing has shown yet what less would bring.
        let least = f64::from(needed).max(f64::from(under_way) / queue).min(self.size);
        self.shrink(1.0 / queue);
        self.size = self.size.max(least);
    }

    /// A test has ended.
    fn measured(&mut self, now: Time, seen: &Seen) {
        self.probe_at = now + PROBE_EVERY;
        // Who must not be refused may have kept it full: then it was no test.
        if seen.done == 0 || seen.under_way_all().saturating_mul(2) > self.likely() {
            return;
        }
        let mean = seen.mean();
        if mean.0 * 10 < self.base.0 * 9 {
            self.probe_at = now + PROBE_AGAIN;
        }
        // Doors test at times of their own. While others are full answers take longer than they need to, by as much as is allowed: else
        // each would learn of the queue that all make, let in more for it, and so without end.
        let is_empty = seen.under_way_max.saturating_add(seen.elsewhere.told).saturating_mul(2) <= self.size();
        let allowed = self.target().0 as f64 / self.base.0.max(1) as f64;
        let least = if is_empty { mean } else { Span((mean.0 as f64 / allowed.max(1.0)) as u64) };
        self.base = self.base.clamp(least, mean);
    }

    fn grow(&mut self) {
        self.grow_by(1.0);
    }

    /// Grows by `part` of the square root of its size.
    fn grow_by(&mut self, part: f64) {
        let step = self.size.sqrt() * part.clamp(STEP_MIN, 1.0);
        self.size = (self.size + step).min(f64::from(self.bounds.max));
    }

    fn shrink(&mut self, part: f64) {
        self.size = (self.size * part.max(SHRINK_MIN)).max(f64::from(self.bounds.min));
    }
}

/// About so many intervals make up what others are told of the queue: one may be chance.
const QUEUE_OVER: f64 = 4.0;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;
    use crate::histogram::Histogram;

    const BOUNDS: Bounds = Bounds { first: 256, min: 2, max: 4096, tolerance_percent: 150, slack: Span::millis(1) };

    /// A server of `workers` that each take `service`, loaded with `offered` requests a second for some time, in steps of
    /// one interval. More than it can do waits in it, up to the limit. Gives the done share of its capacity, and the
    /// mean time in it, over the last second.
    fn run(limit: &mut Limit, now: &mut Time, workers: u64, service: Span, offered: f64, time: Span) -> (f64, Span) {
        let capacity = workers as f64 / service.as_secs_f64();
        let (mut shares, mut means) = (Vec::new(), Vec::new());
        for _ in 0..time.0 / LEARN_EVERY.0 {
            let room = f64::from(limit.size_now());
            // By Little's law.
            let rate = offered.min(capacity).min(room / service.as_secs_f64());
            let under_way = if offered > rate { room } else { rate * service.as_secs_f64() };
            let took = Span((under_way / rate * 1e6) as u64).max(service);
            let done = (rate * LEARN_EVERY.as_secs_f64()) as u64;
            let no_room = ((offered - rate) * LEARN_EVERY.as_secs_f64()) as u64;
            let (took_log, under_way_max) = (log_us(took) * done, under_way as u32);
            let seen = Seen { done, took_log, under_way_max, no_room, ..Seen::default() };
            *now = *now + LEARN_EVERY;
            if limit.is_due(*now, &seen) {
                limit.learn(*now, &seen);
            }
            shares.push(rate / capacity);
            means.push(took.0);
        }
        let (shares, means) = (&shares[shares.len().saturating_sub(10)..], &means[means.len().saturating_sub(10)..]);
        (shares.iter().sum::<f64>() / shares.len() as f64, Span(means.iter().sum::<u64>() / means.len() as u64))
    }

    #[test]
    fn the_limit_is_found_whether_load_was_there_from_the_start_or_not() {
        for (workers, service) in [(4, 10), (64, 20), (1, 5), (500, 50)] {
            let service = Span::millis(service);
            let offered = 5.0 * workers as f64 / service.as_secs_f64();
            for quiet in [0.2, 5.0] {
                let (mut limit, mut now) = (Limit::new(BOUNDS), Time(1_000_000));
                run(&mut limit, &mut now, workers, service, offered * quiet / 5.0, Span::secs(3));
                run(&mut limit, &mut now, workers, service, offered, Span::secs(12));
                let (share, took) = run(&mut limit, &mut now, workers, service, offered, Span::secs(3));
                assert!(share > 0.9, "{workers} x {service:?}: {share} of capacity with {}", limit.size());
                let most = service.times(2) + Span::millis(2);
                assert!(took < most, "{workers} x {service:?}: {took:?} with {}", limit.size());
            }
        }
    }

    #[test]
    fn where_more_would_only_wait_the_limit_hardly_swings() {
        for (workers, service) in [(20, 25), (200, 25), (64, 20)] {
            let (mut limit, mut now) = (Limit::new(Bounds { first: 64, ..BOUNDS }), Time(1_000_000));
            limit.set_strict(true);
            limit.set_alone(true);
            let service = Span::millis(service);
            let offered = 5.0 * workers as f64 / service.as_secs_f64();
            run(&mut limit, &mut now, workers, service, offered, Span::secs(10));
            let (mut least, mut most) = (u32::MAX, 0);
            for _ in 0..200 {
                run(&mut limit, &mut now, workers, service, offered, LEARN_EVERY);
                (least, most) = (least.min(limit.size()), most.max(limit.size()));
            }
            assert!(f64::from(most) < f64::from(least) * 1.15 + 1.0, "{workers} x {service:?}: {least} to {most}");
            let wanted = workers as f64 * limit.target().0 as f64 / service.0 as f64;
            assert!((f64::from(least) / wanted - 1.0).abs() < 0.2, "{least} to {most} where {wanted} just do");
        }
    }

    #[test]
    fn a_server_that_became_slower_for_good_gets_its_limit_and_so_does_a_faster_one() {
        let (mut limit, mut now) = (Limit::new(BOUNDS), Time(1_000_000));
        run(&mut limit, &mut now, 10, Span::millis(5), 10_000.0, Span::secs(10));
        let (share, _) = run(&mut limit, &mut now, 10, Span::millis(50), 10_000.0, Span::secs(8));
        assert!(share > 0.9, "slower: {share} with {}", limit.size());
        let (share, took) = run(&mut limit, &mut now, 10, Span::millis(5), 10_000.0, Span::secs(20));
        assert!(share > 0.9 && took < Span::millis(12), "faster: {share}, {took:?} with {}", limit.size());
    }

    #[test]
    fn a_machine_that_is_slow_whatever_is_let_in_keeps_its_limit() {
        let bounds = Bounds { first: 64, tolerance_percent: 125, slack: Span::millis(4), ..BOUNDS };
        let (mut limit, mut now) = (Limit::new(bounds), Time(1_000_000));
        run(&mut limit, &mut now, 1000, Span(400), 200_000.0, Span::secs(3));
        // Everything takes 12 ms, and no queue is part of it.
        for _ in 0..100 {
            run(&mut limit, &mut now, 1000, Span::millis(12), 20_000.0, LEARN_EVERY);
            assert!(limit.size() >= 32, "{}", limit.size());
        }
        assert!(limit.size() >= 64, "{}", limit.size());
    }

    /// Short requests and some that take a second, in a server that has room for all, but stalls for a while now and then: which part
    /// of them is refused in the seconds between.
    fn refused_beside_long_ones(seed: u64, first: u32, a_second: (f64, f64), stall: u64) -> f64 {
        let bounds = Bounds { first, tolerance_percent: 125, slack: Span::millis(4), ..BOUNDS };
        let (mut limit, mut rng, mut took) = (Limit::new(bounds), Rng::new(seed), Histogram::default());
        let (mut seen, mut at_work, mut came, mut refused) = (Seen::default(), Vec::new(), 0, 0);
        for now in 1..40_000u64 {
            for (since, _) in at_work.extract_if(.., |work: &mut (u64, u64)| work.1 <= now) {
                seen.done += 1;
                took.note(Span::millis(now - since));
            }
            let since_stall = now % 10_000;
            for (rate, takes) in [(a_second.0, 5), (a_second.1, 1_000)] {
                if !rng.chance(rate / 1000.0) {
                    continue;
                }
                came += u64::from(since_stall > 3_000);
                if at_work.len() < limit.size_now() as usize {
                    at_work.push((now, now.max(now - since_stall + stall) + takes));
                } else {
                    seen.no_room += 1;
                    refused += u64::from(since_stall > 3_000);
                }
            }
            seen.under_way_max = seen.under_way_max.max(at_work.len() as u32);
            if limit.is_due(Time(now * 1000), &seen) {
                limit.learn(Time(now * 1000), &Seen { took_log: most_log(took.counts()), ..seen });
                took.clear();
                seen = Seen { under_way_max: at_work.len() as u32, ..Seen::default() };
            }
        }
        refused as f64 / f64::from(came as u32)
    }

    #[test]
    fn few_long_requests_among_many_short_ones_are_no_queue() {
        let loads = [(64, (90.0, 3.0)), (64, (260.0, 8.0)), (64, (1000.0, 30.0)), (4, (50.0, 3.0))];
        for (first, a_second) in loads {
            // Who begins with next to nothing has to find his way up while the long ones have it.
            let most = if first == 64 { 0.02 } else { 0.05 };
            for stall in [200, 500, 1500] {
                let of = |seed| refused_beside_long_ones(seed, first, a_second, stall);
                let refused = (0..8).map(of).sum::<f64>() / 8.0;
                assert!(
                    refused < most,
                    "{a_second:?} a second, at first {first}, stalls of {stall} ms: {refused} refused"
                );
            }
        }
    }

    #[test]
    fn the_middle_half_is_what_counts() {
        let mut took = Histogram::default();
        assert_eq!(most_log(took.counts()), 0);
        (0..6).for_each(|_| took.note(Span::millis(25)));
        (0..2).for_each(|_| took.note(Span::secs(1)));
        let seen = Seen { done: 8, took_log: most_log(took.counts()), ..Seen::default() };
        assert!((25_000..27_000).contains(&seen.mean().0), "{:?}", seen.mean());
        (0..8).for_each(|_| took.note(Span::millis(100)));
        let seen = Seen { done: 16, took_log: most_log(took.counts()), ..Seen::default() };
        assert!((65_000..76_000).contains(&seen.mean().0), "half of them waited: {:?}", seen.mean());
    }

    #[test]
    fn doors_that_are_full_elsewhere_do_not_shrink_a_limit_that_is_not_in_the_way_below_what_is_under_way() {
        let mut limit = Limit::new(BOUNDS);
        let seen =
            |ms| Seen { done: 10, took_log: 10 * log_us(Span::millis(ms)), under_way_max: 10, ..Seen::default() };
        limit.learn(Time(100_000), &seen(25));
        let elsewhere = Elsewhere { is_full: true, ..Elsewhere::default() };
        for n in 2..50 {
            limit.learn(Time(n * 100_000), &Seen { elsewhere, ..seen(50) });
            assert!(limit.size() >= 5, "{} after {n}", limit.size());
        }
    }

    #[test]
    fn what_is_not_in_the_way_stays_and_what_ends_in_timeouts_shrinks_within_its_bounds() {
        let mut limit = Limit::new(BOUNDS);
        let quiet = Seen { done: 10, took_log: 10 * log_us(Span::millis(1)), under_way_max: 3, ..Seen::default() };
        let slow = Seen { took_log: 10 * log_us(Span::secs(1)), ..quiet };
        for n in 1..50 {
            limit.learn(Time(n * 100_000), if n % 2 == 0 { &slow } else { &quiet });
        }
        assert_eq!(limit.size(), 256, "few and slow requests are not too many");
        let lost = Seen { overloads: 10, under_way_max: 256, ..Seen::default() };
        (50..100).for_each(|n| limit.learn(Time(n * 100_000), &lost));
        assert_eq!(limit.size(), 2);
    }

    #[test]
    fn little_news_is_waited_for() {
        let limit = Limit::new(BOUNDS);
        let few = Seen { done: 3, ..Seen::default() };
        assert!(!limit.is_due(Time(100_000), &few) && limit.is_due(Time(1_000_000), &few));
        let many = Seen { done: 8, ..few };
        assert!(!limit.is_due(Time(99_999), &many) && limit.is_due(Time(100_000), &many));
    }
}
