//! How many requests may be under way to one other: additive growth on answers, halving on timeouts (SSM 3.5).
//! There is no queue behind it. No room means refuse at once, or ask somebody else.

use base::{Span, Time};

#[derive(Clone, Debug)]
pub struct Window {
    size: f64,
    under_way: u32,
    /// Timeouts of one burst count once: requests sent before this moment already paid for it.
    halved_at: Time,
    endless: bool,
}

/// Room at birth: enough for a busy front door to start with, well under what a brick serves in one timeout.
pub const WINDOW_FIRST: f64 = 256.0;
/// Never less: a recovered peer is noticed, and the few requests of a quiet node are not refused as overload because a
/// peer was slow a moment ago. So many cannot hurt a peer that is slow.
pub const WINDOW_MIN: f64 = 16.0;
/// Never more: 4096 values of 8 KiB are 32 MiB on their way to one peer.
pub const WINDOW_MAX: f64 = 4096.0;

const _: () =
    assert!(WINDOW_MIN <= WINDOW_FIRST && WINDOW_FIRST <= WINDOW_MAX, "the first window lies within its bounds");

impl Default for Window {
    fn default() -> Self {
        Self { size: WINDOW_FIRST, under_way: 0, halved_at: Time::ZERO, endless: false }
    }
}

impl Window {
    /// One that never says no; for experiments.
    pub fn endless() -> Self {
        Self { endless: true, ..Self::default() }
    }

    pub fn has_room(&self) -> bool {
        self.endless || f64::from(self.under_way) < self.size
    }

    pub fn size(&self) -> f64 {
        self.size
    }

    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    pub fn sent(&mut self) {
        self.under_way += 1;
    }

    /// An answer came, quick or not: one more per window's worth of quick answers, if at least half of it was in use.
    /// What is not used says nothing of what the other can take (RFC 7661): a window that grew in quiet times protects
    /// nobody. And one that grows until answers are too late finds its end in timeouts only.
    pub fn answered(&mut self, quick: bool) {
        if quick && 2.0 * f64::from(self.under_way) >= self.size {
            self.size = (self.size + 1.0 / self.size).min(WINDOW_MAX);
        }
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// None came in time. Halves once per `rest`, however many requests of one burst are late.
    pub fn timed_out(&mut self, now: Time, rest: Span) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.halved_at == Time::ZERO || now.since(self.halved_at) >= rest {
            self.size = (self.size / 2.0).max(WINDOW_MIN);
            self.halved_at = now;
        }
    }

    /// The request ended for a reason that says nothing about load (its peer died).
    pub fn forgotten(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_answers_and_halves_once_per_burst() {
        let mut window = Window::default();
        for _ in 0..256 {
            window.sent();
        }
        assert!(!window.has_room());
        for _ in 0..256 {
            window.answered(true);
            window.sent();
        }
        assert!(window.size() > 256.9 && window.size() < 257.1, "one more after a window's worth: {}", window.size());
        for _ in 0..256 {
            window.answered(false);
            window.sent();
        }
        assert!(window.size() < 257.1, "slow answers make it no larger: {}", window.size());
        for _ in 0..256 {
            window.answered(true);
        }
        assert!(window.size() < 257.6, "what is not used does not grow: {}", window.size());
        let before = window.size();
        for late in 0..10 {
            window.sent();
            window.timed_out(Time(1_000 + late), Span::millis(60));
        }
        assert_eq!(window.size(), before / 2.0);
        for i in 1..100u64 {
            window.timed_out(Time(i * 1_000_000), Span::millis(60));
        }
        assert_eq!(window.size(), WINDOW_MIN);
        assert!(window.has_room());
    }
}
