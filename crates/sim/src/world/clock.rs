//! A machine's two clocks. Its monotonic one starts anywhere and runs a little fast or slow; its wall clock is a little
//! wrong and may jump. World time itself is never shown to a node.

use base::{Now, Rng, Span, Time};

/// Quartz is good to about 100 parts per million; twice that is a bad machine.
pub const DRIFT_PPM_MAX: u64 = 200;
/// Machines with a time service agree within this; what is worse is a fault ([`Clock::jump`]).
pub const WALL_SKEW_MS_MAX: u64 = 200;
/// Wall clock at world time zero: 2026-01-01T00:00:00Z.
pub const WALL_EPOCH_MS: u64 = 1_767_225_600_000;

#[derive(Clone, Debug)]
pub struct Clock {
    started: Time,
    mono_first: Time,
    drift_ppm: i64,
    wall_off_ms: i64,
}

impl Clock {
    pub fn new(rng: &mut Rng) -> Self {
        let drift_ppm = rng.below(2 * DRIFT_PPM_MAX + 1) as i64 - DRIFT_PPM_MAX as i64;
        let wall_off_ms = rng.below(2 * WALL_SKEW_MS_MAX + 1) as i64 - WALL_SKEW_MS_MAX as i64;
        Self { started: Time::ZERO, mono_first: Time::ZERO, drift_ppm, wall_off_ms }
    }

    /// A process starts: its monotonic clock begins anywhere in its first hour.
    pub fn boot(&mut self, at: Time, rng: &mut Rng) {
        self.started = at;
        self.mono_first = Time(rng.between(1, Span::secs(3600).0));
    }

    pub fn now(&self, at: Time) -> Now {
        let wall = WALL_EPOCH_MS + at.0 / 1000;
        Now { mono: self.mono(at), wall_ms: wall.saturating_add_signed(self.wall_off_ms) }
    }

    fn mono(&self, at: Time) -> Time {
        let ran = at.since(self.started).0 as i64;
        self.mono_first + Span((ran + ran * self.drift_ppm / 1_000_000) as u64)
    }

    /// The first moment of the world at which the monotonic clock shows `mono` or more.
    pub fn when(&self, mono: Time) -> Time {
        let wait = mono.since(self.mono_first).0;
        if wait > Span::secs(1_000_000_000).0 {
            return Time::NEVER;
        }
        let wait = wait as i64;
        let mut at = Time((self.started.0 as i64 + wait - wait * self.drift_ppm / 1_000_000).max(0) as u64);
        while self.mono(at) < mono {
            at = at + Span(1 + mono.since(self.mono(at)).0 / 2);
        }
        at
    }

    /// The monotonic one stood still for so long, up to now; the wall clock was set right at once.
    pub fn stood(&mut self, span: Span) {
        self.started = self.started + span;
    }

    /// The wall clock is set forward or back.
    pub fn jump(&mut self, by_ms: i64) {
        self.wall_off_ms += by_ms;
    }

    /// The time service put the wall clock right.
    pub fn correct(&mut self) {
        self.wall_off_ms = self.wall_off_ms.clamp(-(WALL_SKEW_MS_MAX as i64), WALL_SKEW_MS_MAX as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_early_and_late_by_at_most_a_few_microseconds() {
        let mut rng = Rng::new(9);
        for _ in 0..1000 {
            let mut clock = Clock::new(&mut rng);
            clock.boot(Time(rng.below(1 << 40)), &mut rng);
            let mono = clock.mono_first + Span(rng.below(1 << 36));
            let at = clock.when(mono);
            assert!(clock.mono(at) >= mono);
            assert!(clock.mono(at).since(mono) <= Span(20), "{:?} for {mono:?}", clock.mono(at));
        }
    }

    #[test]
    fn a_clock_that_stood_still_goes_on_where_it_was() {
        let mut clock = Clock::new(&mut Rng::new(1));
        clock.boot(Time(1_000_000), &mut Rng::new(2));
        let before = clock.now(Time(5_000_000));
        clock.stood(Span::secs(7));
        let after = clock.now(Time(12_000_000));
        assert_eq!((after.mono, after.wall_ms), (before.mono, before.wall_ms + 7_000));
    }

    #[test]
    fn a_jump_moves_the_wall_clock_alone() {
        let mut clock = Clock::new(&mut Rng::new(1));
        let before = clock.now(Time(5_000_000));
        clock.jump(-3000);
        let after = clock.now(Time(5_000_000));
        assert_eq!(after.mono, before.mono);
        assert_eq!(after.wall_ms + 3000, before.wall_ms);
        assert_eq!(clock.when(Time::NEVER), Time::NEVER);
    }
}
