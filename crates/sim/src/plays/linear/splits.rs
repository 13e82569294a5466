//! A namespace gets as many shards as are declared: one split after the other begins, and each that has begun ends. A split that hangs
//! costs no answer, as its parent serves on, so no other promise would show it.

use base::{Span, Time};

use crate::promises::Broken;

const PROMISE: &str = "a namespace gets as many shards as are declared";

/// A split begins within so long when all groups are as they should be: reports of it are up to a second old, and the next look is a
/// moment later.
const BEGINS_WITHIN: Span = Span::secs(6);
/// One that has begun ends within so long where nothing disturbs it: until then its groups are not whole.
const ENDS_WITHIN: Span = Span::secs(12);

/// How much may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Can {
    /// Faults strike, or members are being replaced.
    Nothing,
    /// Groups are not whole: a split may be under way.
    End,
    /// Groups are whole: the next split may begin.
    Begin,
}

#[derive(Default)]
pub struct Splits {
    made: u64,
    /// Since when the next could have begun.
    whole_since: Time,
    /// Since when one under way could have ended.
    calm_since: Time,
}

impl Splits {
    pub fn check(&mut self, now: Time, can: Can, made: u64, declared: u64) -> Result<(), Broken> {
        if can == Can::Nothing || made >= declared || made != self.made {
            *self = Self { made, whole_since: now, calm_since: now };
        }
        if can == Can::End {
            self.whole_since = now;
        }
        let why = if now.since(self.whole_since) > BEGINS_WITHIN {
            format!("all was well since {:?}", self.whole_since)
        } else if now.since(self.calm_since) > ENDS_WITHIN && can == Can::End {
            format!("groups are not whole, and nothing disturbed them since {:?}", self.calm_since)
        } else {
            return Ok(());
        };
        let what = format!("{} of {} shards are there; {why}", made + 1, declared + 1);
        Err(Broken { promise: PROMISE, at: now, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every second; when it is broken, in seconds.
    fn broken(can: impl Fn(u64) -> Can, made: impl Fn(u64) -> u64) -> Option<u64> {
        let mut splits = Splits::default();
        (0..60).find(|second| splits.check(Time::ZERO + Span::secs(*second), can(*second), made(*second), 3).is_err())
    }

    #[test]
    fn a_split_that_does_not_begin_or_does_not_end_is_seen() {
        assert_eq!(broken(|_| Can::Begin, |_| 2), Some(7), "it does not begin");
        assert_eq!(broken(|second| if second < 3 { Can::Begin } else { Can::End }, |_| 2), Some(13), "it does not end");
    }

    #[test]
    fn what_is_disturbed_goes_on_or_is_done_breaks_nothing() {
        assert_eq!(broken(|_| Can::Nothing, |_| 0), None);
        assert_eq!(broken(|_| Can::End, |_| 3), None);
        assert_eq!(broken(|second| if second % 9 == 0 { Can::Nothing } else { Can::End }, |_| 0), None);
        assert_eq!(broken(|_| Can::Begin, |second| second / 5), None);
    }
}
