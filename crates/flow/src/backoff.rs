//! Waits between tries: doubling, with a ceiling, and jitter so that many do not come back at once.

use base::{Rng, Span};

#[derive(Clone, Debug)]
pub struct Backoff {
    first: Span,
    max: Span,
    tries: u32,
}

impl Backoff {
    pub fn new(first: Span, max: Span) -> Self {
        assert!(first <= max, "the first wait {first:?} is over the longest {max:?}");
        Self { first, max, tries: 0 }
    }

    /// The next wait: between half and all of first x 2^tries, never over the ceiling.
    pub fn next(&mut self, rng: &mut Rng) -> Span {
        let full = self.first.times(1u64.checked_shl(self.tries).unwrap_or(u64::MAX)).min(self.max);
        self.tries = (self.tries + 1).min(63);
        Span(rng.between(full.0 / 2, full.0))
    }

    /// Tells that a try worked: the next wait is short again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_ceiling_and_start_anew_after_success() {
        let mut rng = Rng::new(1);
        let mut backoff = Backoff::new(Span::millis(100), Span::secs(1));
        for full in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next(&mut rng);
            assert!((Span::millis(full / 2)..=Span::millis(full)).contains(&wait), "{wait:?} for {full} ms");
        }
        for _ in 0..100 {
            assert!(backoff.next(&mut rng) <= Span::secs(1));
        }
        backoff.reset();
        assert!(backoff.next(&mut rng) <= Span::millis(100));
    }
}
