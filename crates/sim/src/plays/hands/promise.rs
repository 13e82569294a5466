//! A service whose oldest job waits too long gets all clones that it may have, and one that has nothing to do as few as it may. Who
//! decides may change, as may who tells of the queue: so only calm time counts, and what was decided stays.

use base::{Outcome, Span, Time};
use state::linear::{Ran, Reply};

use super::{Act, CLONES};
use crate::promises::Broken;

pub const GROWS: &str = "a service whose oldest job waits too long gets all clones that it may have";
pub const SHRINKS: &str = "a service without jobs goes back to as few clones as it may have";
pub const RANGE: &str = "a service has no more clones than it may have, and no fewer";

/// When all has been calm for so long somebody decides, and has heard of the queue.
const SETTLED_AFTER: Span = Span::secs(12);
/// All clones are wanted after so much calm time: two decisions, each with a rest behind it in which clones start.
const GROWN_WITHIN: Span = Span::secs(35);
/// With nothing to do, so much later as few as may be are wanted: two decisions, each after some of those rests.
const SHRUNK_WITHIN: Span = Span::secs(400);

#[derive(Default)]
pub struct Hands {
    /// Since when a job is known to wait, if nobody has begun to take any since.
    waits_since: Option<Time>,
    /// Since when there is known to be no job.
    idle_since: Option<Time>,
    /// Calm time in which there were too few, and when it was looked last.
    too_few: Span,
    looked: Option<Time>,
    pub judged: u64,
}

impl Hands {
    pub fn begin(&mut self, act: &Act) {
        match act {
            Act::Put => self.idle_since = None,
            Act::Take | Act::End(_) => self.waits_since = None,
        }
    }

    pub fn end(&mut self, act: &Act, now: Time, outcome: &Outcome<Ran>) {
        let Outcome::Done(Ran::Done(replies)) = outcome else { return };
        match (act, &replies[..]) {
            (Act::Put, [Reply::List(_)]) => _ = self.waits_since.get_or_insert(now),
            (Act::Take, [Reply::Nil]) => _ = self.idle_since.get_or_insert(now),
            (Act::Take, [Reply::List(given)]) if given.is_empty() => _ = self.idle_since.get_or_insert(now),
            (Act::Take, _) => self.idle_since = None,
            _ => (),
        }
    }

    /// Each second: what nodes say how many clones are wanted.
    pub fn check(&mut self, now: Time, calm: Option<Span>, wanted: &[u32]) -> Result<(), Broken> {
        let broken = |promise, what| Err(Broken { promise, at: now, what });
        let gap = self.looked.replace(now).map_or(Span::ZERO, |looked| now.since(looked));
        let (min, max) = CLONES;
        if let Some(odd) = wanted.iter().find(|wanted| !(min..=max).contains(wanted)) {
            return broken(RANGE, format!("{odd} are wanted of {min} to {max}"));
        }
        let Some(most) = wanted.iter().max().copied() else { return Ok(()) };
        if self.waits_since.is_none() || most == max {
            self.too_few = Span::ZERO;
        }
        let Some(calm) = calm.filter(|calm| *calm > SETTLED_AFTER) else { return Ok(()) };
        self.judged += 1;
        if let Some(since) = self.waits_since.filter(|_| most < max) {
            self.too_few = self.too_few + gap;
            if self.too_few > GROWN_WITHIN {
                return broken(GROWS, format!("{most} of {max} are wanted, and a job waits since {since:?}"));
            }
        }
        match self.idle_since {
            Some(since) if most > min && now.since(since) > SHRUNK_WITHIN && calm > SHRUNK_WITHIN => {
                broken(SHRINKS, format!("{most} are wanted, and there is no job since {since:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::ZERO + Span::secs(second)
    }

    fn done(reply: Reply) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(vec![reply]))
    }

    /// Looks each second, all calm; what is broken, and when.
    fn broken(
        mut hands: Hands,
        calm: impl Fn(u64) -> bool,
        wanted: impl Fn(u64) -> u32,
    ) -> Option<(&'static str, u64)> {
        (1..1_000).find_map(|second| {
            let calm = calm(second).then_some(Span::secs(second));
            let said = hands.check(at(second), calm, &[wanted(second)]);
            said.err().map(|broken| (broken.promise, second))
        })
    }

    fn waits() -> Hands {
        let mut hands = Hands::default();
        hands.begin(&Act::Put);
        hands.end(&Act::Put, at(0), &done(Reply::List(vec![Reply::Int(1), Reply::Int(1)])));
        hands
    }

    fn idle() -> Hands {
        let mut hands = waits();
        hands.begin(&Act::Take);
        hands.end(&Act::Take, at(0), &done(Reply::Nil));
        hands
    }

    #[test]
    fn too_few_and_too_many_are_seen() {
        assert!(matches!(broken(waits(), |_| true, |_| 1), Some((GROWS, 40..60))));
        assert!(matches!(broken(waits(), |_| true, |second| if second < 20 { 1 } else { 2 }), Some((GROWS, _))));
        assert!(matches!(broken(idle(), |_| true, |_| 3), Some((SHRINKS, 400..410))));
        assert!(matches!(broken(idle(), |_| false, |_| 4), Some((RANGE, 1))));
        assert!(matches!(broken(waits(), |_| true, |_| 0), Some((RANGE, 1))));
    }

    #[test]
    fn what_grows_in_time_or_has_no_calm_is_not() {
        assert_eq!(broken(waits(), |_| true, |second| 1 + (second / 20).min(2) as u32), None);
        assert_eq!(broken(waits(), |_| false, |_| 1), None);
        assert_eq!(broken(idle(), |_| true, |second| if second < 300 { 3 } else { 1 }), None);
        assert_eq!(broken(Hands::default(), |_| true, |_| 2), None, "nobody knows what there is");
    }
}
