//! Clones that answer, but badly: what connects and then fails request after request is found by nothing but its answers.
//! Such a clone is left alone for a while, longer each time that it still fails after that. If half of a service's clones
//! are so, it is not the clones: all are used again (the panic threshold), or the few that are left would fall, too.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::limits::{OUTLIER_AFTER, OUTLIER_FIRST, OUTLIER_MAX};

#[derive(Debug, Default)]
pub struct Outlier {
    /// In a row.
    failures: AtomicU32,
    /// How often it was left alone since it last answered well.
    times: AtomicU32,
    /// Milliseconds of the pool's clock.
    until_ms: AtomicU64,
}

impl Outlier {
    /// An answer was good, or was none. True if the clone is left alone from now on.
    pub fn answered(&self, failed: bool, now_ms: u64) -> bool {
        if !failed {
            // Written only if it changes something: this is on the way of every request.
            if self.failures.load(Relaxed) > 0 {
                self.failures.store(0, Relaxed);
                self.times.store(0, Relaxed);
            }
            return false;
        }
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        // Once it was left alone the first failure is enough.
        let is_bad = failures >= OUTLIER_AFTER || self.times.load(Relaxed) > 0;
        if !is_bad || self.is(now_ms) {
            return false;
        }
        let times = self.times.fetch_add(1, Relaxed);
        let span = (OUTLIER_FIRST.as_millis() as u64) << times.min(16);
        self.until_ms.store(now_ms + span.min(OUTLIER_MAX.as_millis() as u64), Relaxed);
        true
    }

    pub fn is(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) > now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_make_one_and_each_time_it_takes_longer() {
        let clone = Outlier::default();
        for _ in 0..3 {
            (1..OUTLIER_AFTER).for_each(|_| assert!(!clone.answered(true, 0)));
            assert!(!clone.answered(false, 0), "one good answer in between");
        }
        (1..OUTLIER_AFTER).for_each(|_| assert!(!clone.answered(true, 0)));
        assert!(clone.answered(true, 0));
        let first = OUTLIER_FIRST.as_millis() as u64;
        assert!(clone.is(first - 1) && !clone.is(first));
        assert!(!clone.answered(true, first - 1), "an answer that was under way");
        assert!(clone.answered(true, first) && clone.is(3 * first - 1) && !clone.is(3 * first));
        let mut now = 3 * first;
        for _ in 0..20 {
            assert!(clone.answered(true, now));
            now += OUTLIER_MAX.as_millis() as u64;
            assert!(!clone.is(now));
        }
        assert!(!clone.answered(false, now) && !clone.answered(true, now), "it is forgiven");
    }
}
