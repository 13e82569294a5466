//! So many a second, for one who asks: what is over it is refused at once, with the time when it would not be. After a rest all of a
//! second may come together.

use base::{Span, Time};

/// What one who asks has had. (As GCRA of ATM: one moment says it all.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// When all that was let in will have had its share of time.
    even_at: Time,
}

/// So much of its share may be used ahead.
const AHEAD: Span = Span::secs(1);

impl Rate {
    /// Lets in so many at once, at most those of a second, or says how long to wait.
    ///
    /// # Errors
    /// They are too many now.
    pub fn admit(&mut self, now: Time, per_second: u32, count: u64) -> Result<(), Span> {
        let share = Span(AHEAD.0.saturating_mul(count) / u64::from(per_second.max(1))).min(AHEAD);
        let even_at = self.even_at.max(now) + share;
        let ahead = even_at.since(now);
        if ahead > AHEAD {
            return Err(Span(ahead.0 - AHEAD.0));
        }
        self.even_at = even_at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In ten seconds so many come each 10 ms; those that are let in by then, and in the last second.
    fn let_in(per_second: u32, each_10_ms: u64) -> (u64, u64) {
        let (mut rate, mut counts) = (Rate::default(), [0; 10]);
        for n in 0..1_000u64 {
            let now = Time(5_000_000 + n * 10_000);
            for _ in 0..each_10_ms {
                counts[n as usize / 100] += u64::from(rate.admit(now, per_second, 1).is_ok());
            }
        }
        (counts.iter().sum(), counts[9])
    }

    #[test]
    fn who_asks_for_more_gets_his_rate_and_who_asks_for_less_gets_all() {
        assert_eq!(let_in(1_000, 1), (1_000, 100));
        assert_eq!(let_in(100, 1), (1_000, 100));
        assert_eq!(let_in(100, 10), (1_099, 100), "a second's worth at once, and its rate from then on");
        assert_eq!(let_in(1, 10), (10, 1));
        assert_eq!(let_in(1_000_000, 50), (50_000, 5_000));
    }

    #[test]
    fn who_is_refused_hears_when_to_come_and_is_let_in_then() {
        let (mut rate, now) = (Rate::default(), Time(1_000_000));
        assert_eq!(rate.admit(now, 10, 10), Ok(()));
        assert_eq!(rate.admit(now, 10, 1), Err(Span::millis(100)));
        assert_eq!(rate.admit(now, 10, 3), Err(Span::millis(300)));
        assert_eq!(rate.admit(now + Span::millis(99), 10, 1), Err(Span::millis(1)));
        assert_eq!(rate.admit(now + Span::millis(100), 10, 1), Ok(()), "those that were refused cost nothing");
        // More than a second's worth is never let in as it is: it counts as that.
        assert_eq!(rate.admit(now + Span::secs(2), 10, 1_000), Ok(()));
        assert_eq!(rate.admit(now + Span::secs(2), 10, 1), Err(Span::millis(100)));
    }
}
