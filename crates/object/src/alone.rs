//! Whether a node can know that it is still one of the cluster's. One that was away for too long is not, and what it has taken by itself
//! is set aside with its disk as soon as it is told. So before it answers for what it alone has, another node has to have spoken to it in
//! this life, or none to be there; and it does not when it was alone for as long as it takes to be gone.

use base::{Span, Time};

use crate::limits::ALONE_AFTER;

#[derive(Default)]
pub(crate) struct Alone {
    /// Since when no other node lives, as far as this one sees.
    since: Option<Time>,
    /// A node of the cluster spoke to it: in this life, and after it was alone for long.
    is_heard: bool,
    /// True when the node was alone for so long that it may be gone.
    was_long: bool,
}

impl Alone {
    /// Four times a second.
    pub fn look(&mut self, now: Time, another_lives: bool, away_for: Span) {
        self.since = (!another_lives).then(|| self.since.unwrap_or(now));
        // Who counts may have begun a moment before.
        let long = Span(away_for.0 / 8 * 7);
        if self.since.is_some_and(|since| now.since(since) >= long) {
            (self.was_long, self.is_heard) = (true, false);
        }
    }

    pub fn hear(&mut self) {
        (self.was_long, self.is_heard) = (false, true);
    }

    pub fn is_in(&self, now: Time) -> bool {
        let is_alone = self.since.is_some_and(|since| now.since(since) >= ALONE_AFTER);
        self.is_heard || is_alone && !self.was_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_heard_nobody_waits_a_moment_and_who_was_alone_for_long_until_it_hears_somebody() {
        let (at, away_for) = (|ms: u64| Time::ZERO + Span::millis(ms), Span::secs(800));
        let mut alone = Alone::default();
        assert!(!alone.is_in(at(0)));
        alone.look(at(0), false, away_for);
        assert!(!alone.is_in(at(4_999)) && alone.is_in(at(5_000)), "others are dead, it seems");
        // One lives that says nothing: that may be to say that this one is gone.
        alone.look(at(6_000), true, away_for);
        assert!(!alone.is_in(at(60_000)));
        alone.hear();
        assert!(alone.is_in(at(60_000)));
        alone.look(at(61_000), false, away_for);
        alone.look(at(760_000), false, away_for);
        assert!(alone.is_in(at(760_000)));
        alone.look(at(761_000), false, away_for);
        assert!(!alone.is_in(at(761_000)));
        alone.look(at(762_000), true, away_for);
        alone.look(at(763_000), false, away_for);
        assert!(!alone.is_in(at(1_000_000)), "nobody has spoken to it since");
        alone.hear();
        assert!(alone.is_in(at(1_000_000)));
    }
}
