//! The overload signal of a queue, with hysteresis: up when what leaves it has waited for longer than the target, down
//! when waits have been below half of that for a while. So it tells a standing queue from a burst that is being worked
//! off (CoDel's distinction), and does not flutter.

use base::{Span, Time};

use crate::limits::CALM_FOR;

#[derive(Clone, Debug)]
pub struct Overload {
    target: Span,
    is_up: bool,
    /// The last time that a wait was at half of the target or above.
    last_pain: Time,
    /// How often it has gone up.
    rises: u64,
}

impl Overload {
    pub fn new(target: Span) -> Self {
        Self { target, is_up: false, last_pain: Time::ZERO, rises: 0 }
    }

    /// Somebody has waited for so long, or is waiting still.
    pub fn waited(&mut self, now: Time, wait: Span) {
        if wait > self.target && !self.is_up {
            self.is_up = true;
            self.rises += 1;
        }
        if wait.times(2) >= self.target {
            self.last_pain = now;
        } else if self.is_up && now.since(self.last_pain) >= CALM_FOR {
            self.is_up = false;
        }
    }

    /// While the signal is up: somebody was refused for it, so it is still wanted. Short waits are then its own work.
    pub fn refused(&mut self, now: Time) {
        if self.is_up {
            self.last_pain = now;
        }
    }

    /// Ends overload, as it is known otherwise that there is none any more.
    pub fn over(&mut self) {
        self.is_up = false;
    }

    pub fn set_target(&mut self, target: Span) {
        self.target = target;
    }

    pub fn is_up(&self) -> bool {
        self.is_up
    }

    pub fn rises(&self) -> u64 {
        self.rises
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_up_at_once_and_down_after_a_calm_while() {
        let mut signal = Overload::new(Span::millis(10));
        let at = |signal: &mut Overload, ms: u64, wait: u64| {
            signal.waited(Time(ms * 1000), Span::millis(wait));
            signal.is_up()
        };
        assert!(!at(&mut signal, 1000, 10));
        assert!(at(&mut signal, 1001, 11));
        assert!(at(&mut signal, 1100, 4) && at(&mut signal, 1150, 6), "half of the target is pain still");
        assert!(at(&mut signal, 1300, 1) && at(&mut signal, 1349, 1));
        assert!(!at(&mut signal, 1350, 1));
        assert!(at(&mut signal, 1351, 40));
        assert_eq!(signal.rises(), 2);
        signal.refused(Time(1_500_000));
        signal.waited(Time(1_699_000), Span::ZERO);
        assert!(signal.is_up(), "who is refused is why nobody waits");
        signal.waited(Time(1_700_000), Span::ZERO);
        assert!(!signal.is_up());
        signal.refused(Time(1_800_000));
        assert!(!signal.is_up(), "a full queue alone is no standing one");
    }
}
