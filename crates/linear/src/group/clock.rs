//! The group's clock as one member shows it: a reading, and when it was taken. It runs on by this node's monotonic clock.
//!
//! A leader *is* the clock: it runs on from the last reading that it had when it began to lead, for as long as it leads. It must not begin
//! anew with its own entries: they carry the time at which they were put into the log, and what passes until they are applied would be
//! lost with each of them, so that the more is written the later everything ends. Only an entry of a former leader that was further
//! moves it. Other members follow what they apply, so that their own clocks, which run a little fast or slow, never add up.

use base::{Span, Time};

#[derive(Clone, Copy)]
pub struct Clock {
    /// Milliseconds of the group's clock.
    read: u64,
    at: Time,
}

impl Clock {
    pub fn new(read: u64, at: Time) -> Self {
        Self { read, at }
    }

    pub fn now(self, now: Time) -> u64 {
        self.read.saturating_add(now.since(self.at).as_millis())
    }

    /// When it shows so much.
    pub fn when(self, shown: u64) -> Time {
        self.at + Span::millis(shown.saturating_sub(self.read))
    }

    /// An entry was applied after which the group's clock is there.
    pub fn applied(&mut self, group: u64, leads: bool, now: Time) {
        let is_behind = if leads { group > self.now(now) } else { group > self.read };
        if is_behind {
            *self = Self::new(group, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn a_leaders_clock_loses_nothing_by_its_own_entries() {
        let mut clock = Clock::new(7_000, at(100));
        for n in (100..5_100).step_by(10) {
            let put = clock.now(at(n));
            clock.applied(put, true, at(n + 9));
        }
        assert_eq!(clock.now(at(5_100)), 12_000);
        assert_eq!(clock.when(12_000), at(5_100));
        clock.applied(20_000, true, at(5_100));
        assert_eq!(clock.now(at(5_101)), 20_001, "a leader before it was further");
    }

    #[test]
    fn who_follows_is_behind_by_its_last_entry_and_no_more() {
        let mut clock = Clock::new(0, at(0));
        // A leader's clock that runs slower than ours, by a tenth.
        (1..1_000).for_each(|n| clock.applied(n * 9, false, at(n * 10 + 4)));
        assert_eq!(clock.now(at(9_994)), 999 * 9);
        clock.applied(999 * 9, false, at(9_999));
        assert_eq!(clock.now(at(9_999)), 999 * 9 + 5, "an entry that does not move it says nothing of the time");
    }
}
