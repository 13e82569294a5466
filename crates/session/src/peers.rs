//! What a stub knows of the other nodes: who is live, how many requests they take, who was slow, who is filled; and
//! what a brick knows of how long requests lay about before it saw them.

use base::{Boot, Priority, Span, Time};
use flow::Window;
use flow::floor::Told;

use super::limits::{DOUBT_EVERY, QUICK};
use super::outlier::{Conduct, Opinion};

pub(super) struct Peer {
    pub boot: Boot,
    pub live: bool,
    /// When it came to be live, or not.
    pub since: Time,
    pub window: Window,
    pub floor: Told,
    /// Its last request timed out, or a read asked somebody else as well: others are asked first until it answers something.
    pub slow: bool,
    /// How long it takes to answer, smoothed as TCP smooths round trips (RFC 6298); zero until known.
    pub takes: Span,
    /// Epoch for which its brick said it is filled; 0 in each new life.
    pub filled: u64,
    doubted_at: Option<Time>,
    /// When it was last told that a request of it seems late.
    pub late_told: Option<Time>,
    /// Its hybrid clock as last heard, and when.
    clock: Option<(Time, u64)>,
    pub delay: Delay,
    /// Over all its lives.
    pub counts: Counts,
    /// Acknowledged writes that it has not stored, of which it has not heard; and when the first came, or it was last told.
    pub missed: u64,
    pub missed_told: Option<Time>,
    /// How it does, beside others.
    pub conduct: Conduct,
    /// What its stub thinks of the bricks, and when that was heard.
    pub opinion: Option<(Time, Opinion)>,
}

/// What a stub has gone through with one brick.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Requests that were sent.
    pub sent: u64,
    pub timeouts: u64,
    /// Answers in time, and how long they took together.
    pub answers: u64,
    pub took: Span,
    /// Answers with a value that was damaged.
    pub damaged: u64,
    /// Requests that were not sent because its window was full.
    pub no_room: u64,
    /// Requests that were not sent because it turns away what matters so little.
    pub turned_away: u64,
    /// Writes that it refused as its memory is full.
    pub full: u64,
}

impl Counts {
    /// What has come of that by which peers are compared.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            timeouts: self.timeouts - before.timeouts,
            answers: self.answers - before.answers,
            took: Span(self.took.0 - before.took.0),
            damaged: self.damaged - before.damaged,
            ..Self::default()
        }
    }
}

impl Peer {
    pub fn heard_clock(&mut self, now: Time, clock_ms: u64) {
        self.clock = Some((now, clock_ms));
    }

    /// What its clock must show by now.
    pub fn clock_ms(&self, now: Time) -> Option<u64> {
        self.clock.map(|(at, ms)| ms + now.since(at).as_millis())
    }

    /// What its clock showed when it was last heard. If it was ahead of its node's wall clock, it may have stood still since.
    pub fn clock_heard_ms(&self) -> Option<u64> {
        self.clock.map(|(_, ms)| ms)
    }

    pub fn new(boot: Boot, now: Time) -> Self {
        Self {
            boot,
            live: true,
            since: now,
            window: Window::default(),
            floor: Told::default(),
            slow: false,
            takes: Span::ZERO,
            filled: 0,
            doubted_at: None,
            late_told: None,
            clock: None,
            delay: Delay::default(),
            counts: Counts::default(),
            missed: 0,
            missed_told: None,
            conduct: Conduct::default(),
            opinion: None,
        }
    }

    /// Another life of a peer; or the same, if it was taken for dead by mistake. Then its clock is the same, too, and what it
    /// sent before may still arrive: it must be known for late (seed 727003422327: a write came after it had been taken back).
    pub fn reborn(&self, boot: Boot, now: Time) -> Self {
        let delay = if boot == self.boot { self.delay } else { Delay::default() };
        // It may be filled already by those who met it sooner than this node did, with all but what was written meanwhile.
        let (missed, missed_told) = (self.missed, self.missed_told);
        Self {
            counts: self.counts,
            delay,
            missed,
            missed_told,
            conduct: Conduct::since(self.counts),
            ..Self::new(boot, now)
        }
    }

    /// Nothing else that was known of its life counts for the next one.
    pub fn died(&mut self, now: Time) {
        *self = Self { live: false, ..self.reborn(self.boot, now) };
    }

    pub fn answered(&mut self, took: Span) {
        self.window.answered(took < QUICK);
        self.counts.answers += 1;
        self.counts.took = self.counts.took + took;
        self.takes = if self.takes == Span::ZERO { took } else { Span((7 * self.takes.0 + took.0) / 8) };
    }

    /// It may be asked for what matters so much.
    pub fn is_usable(&self, now: Time, priority: Priority) -> bool {
        self.live && self.window.has_room() && !self.floor.turns_away(now, priority)
    }

    /// How many more requests its window takes; 1 at least, as it is the weight by which it is chosen at random.
    pub fn room(&self) -> u64 {
        (self.window.size() - f64::from(self.window.under_way())).max(1.0) as u64
    }

    /// It was to be asked, and is not usable: why.
    pub fn not_asked(&mut self) {
        if self.window.has_room() {
            self.counts.turned_away += 1;
        } else {
            self.counts.no_room += 1;
        }
    }

    /// Worse is asked later.
    pub fn badness(&self, filled_wanted: u64) -> u8 {
        u8::from(self.slow) * 2 + u8::from(self.filled < filled_wanted)
    }

    /// A request with this timeout was not answered. True if membership should hear of it.
    pub fn timed_out(&mut self, now: Time, timeout: Span) -> bool {
        self.counts.timeouts += 1;
        self.window.timed_out(now, timeout);
        self.slow = true;
        let due = self.doubted_at.is_none_or(|at| now.since(at) >= DOUBT_EVERY);
        if due {
            self.doubted_at = Some(now);
        }
        due
    }
}

/// How much longer than the quickest a request was on its way: clocks of two nodes differ, but they differ by about
/// the same from one minute to the next (as LEDBAT, RFC 6817, measures queues).
#[derive(Clone, Copy, Default)]
pub(super) struct Delay {
    /// Smallest difference of clocks, microseconds, and when it was seen.
    least: Option<(Time, i64)>,
}

impl Delay {
    /// Milliseconds that a request with this stamp waited beyond the quickest of late.
    pub fn waited_ms(&mut self, now: Time, stamp_ms: u64) -> u64 {
        let stamp_us = i64::try_from(stamp_ms).unwrap_or(i64::MAX).saturating_mul(1000);
        let offset = i64::try_from(now.0).unwrap_or(i64::MAX).saturating_sub(stamp_us);
        let drifted = |(at, least): (Time, i64)| least.saturating_add((now.since(at).0 / DRIFT_PART) as i64);
        let least = self.least.map_or(offset, drifted);
        let waited_ms = (offset.saturating_sub(least).max(0) as u64).saturating_add(500) / 1000;
        if offset <= least {
            self.least = Some((now, offset));
            return 0;
        }
        waited_ms
    }
}

/// Two clocks drift apart by this part of time at most: 500 ppm, which no machine's clock reaches. A queue that stands for minutes
/// is forgotten as slowly.
const DRIFT_PART: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_a_mistaken_death_is_late_after_it() {
        let (before, after) = (Time(1_000_000_000), Time(1_005_000_000));
        let mut peer = Peer::new(Boot(1), before);
        assert_eq!(peer.delay.waited_ms(before, 70), 0);
        peer.died(before);
        let mut again = peer.reborn(Boot(1), after);
        // Less what clocks may drift in 5 s.
        assert_eq!(again.delay.waited_ms(after, 80), 4_988);
        // Another life has another clock.
        let mut other = peer.reborn(Boot(2), after);
        assert_eq!(other.delay.waited_ms(after, 80), 0);
    }

    #[test]
    fn waiting_is_told_from_clocks_that_differ_and_drift() {
        let mut delay = Delay::default();
        let ms = |n: u64| Time(n * 1000);
        assert_eq!(delay.waited_ms(ms(1_000_000), 5), 0);
        assert_eq!(delay.waited_ms(ms(1_000_100), 45), 60);
        assert_eq!(delay.waited_ms(ms(1_000_200), 205), 0);
        // What a cut held back for a minute is late, too (seed 371402133431: an old value came after its removal was forgotten).
        let mut delay = Delay::default();
        assert_eq!(delay.waited_ms(ms(1_000_000), 5), 0);
        assert_eq!([10, 20].map(|stamp| delay.waited_ms(ms(1_060_000), stamp)), [59_965, 59_955]);
        assert_eq!(delay.waited_ms(ms(1_060_001), 60_006), 0);
        assert_eq!(delay.waited_ms(ms(1_064_000), 30), 63_973, "and whatever else was held there");
        // A clock that runs slow by 24 ms a minute, or fast, is no queue. (Seed 403421581117: clocks that drift by 400 ppm looked like one.)
        for a_minute in [59_976, 60_024] {
            let mut delay = Delay::default();
            for second in 1..600 {
                assert!(delay.waited_ms(ms(1_000_200 + second * 1000), 205 + second * a_minute / 60) <= 1);
            }
            assert!(delay.waited_ms(ms(1_000_200 + 600_000 + 40), 205 + 600 * a_minute / 60) >= 38);
        }
    }
}
