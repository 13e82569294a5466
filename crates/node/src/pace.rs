//! How fast this node's disk forces what it is given. Who waits for the forces of a slow disk would do better
//! elsewhere: the node hands over what it leads, and its groups go to other nodes if it stays slow.
//!
//! A force is measured from when it is asked for until it has happened, with all that it waits for. The disk is slow
//! when even the quickest force of each of the last spans took long: a moment's burden makes some slow, never all.

use std::collections::BTreeMap;

use base::{GroupId, Span, Ticket, Time};

use crate::limits::{FORCE_SLOW, PACE_SLOW_SPANS, PACE_SPAN, PACE_UNDER_WAY_MAX, SLOW_KEPT};

#[derive(Default)]
pub struct Pace {
    under_way: BTreeMap<(GroupId, Ticket), Time>,
    /// When this span began.
    since: Time,
    /// The quickest force that ended in it.
    quickest: Option<Span>,
    /// Spans in a row that were slow, and that were not.
    slow: u32,
    good: u32,
    /// Since when nothing says how it is.
    silent: Option<Time>,
    /// How long forces take at least, if it is slow.
    verdict: Option<Span>,
}

impl Pace {
    pub fn asked(&mut self, now: Time, group: GroupId, ticket: Ticket) {
        if self.under_way.len() < PACE_UNDER_WAY_MAX {
            self.under_way.insert((group, ticket), now);
        }
    }

    pub fn done(&mut self, now: Time, group: GroupId, ticket: Ticket) {
        if let Some(asked) = self.under_way.remove(&(group, ticket)) {
            let took = now.since(asked);
            self.quickest = Some(self.quickest.map_or(took, |quickest| quickest.min(took)));
        }
    }

    /// Its records may go, and no answer need come.
    pub fn forget(&mut self, group: GroupId) {
        self.under_way.retain(|(of, _), _| *of != group);
    }

    /// To be asked now and then: is it slow, and how long does a force take at least?
    pub fn look(&mut self, now: Time) -> Option<Span> {
        if now.since(self.since) < PACE_SPAN {
            return self.verdict;
        }
        self.since = now;
        let waits = self.under_way.values().min().map(|asked| now.since(*asked));
        // One that has waited for a whole span says as much as one that has ended.
        let seen = self.quickest.take().or(waits.filter(|waited| *waited >= PACE_SPAN));
        match seen {
            Some(took) if took >= FORCE_SLOW => {
                (self.slow, self.good, self.silent) = (self.slow + 1, 0, None);
                if self.slow >= PACE_SLOW_SPANS {
                    self.verdict = Some(took);
                }
            }
            Some(_) => {
                (self.slow, self.good, self.silent) = (0, self.good + 1, None);
                if self.good >= PACE_SLOW_SPANS {
                    self.verdict = None;
                }
            }
            // With nothing to do nobody knows; after long it is given another chance.
            None => {
                let since = *self.silent.get_or_insert(now);
                if now.since(since) >= SLOW_KEPT {
                    (self.slow, self.verdict) = (0, None);
                }
            }
        }
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);

    /// Forces that take so long, one after the other, for some spans.
    fn forces(pace: &mut Pace, now: &mut Time, took: Span, spans: u64) -> Option<Span> {
        let until = *now + Span(PACE_SPAN.0 * spans);
        let mut verdict = None;
        while *now < until {
            pace.asked(*now, GROUP, Ticket(now.0));
            let asked = *now;
            *now = *now + took;
            pace.done(*now, GROUP, Ticket(asked.0));
            verdict = pace.look(*now);
        }
        verdict
    }

    #[test]
    fn a_disk_is_slow_when_each_force_is_and_good_when_one_is_not() {
        let (mut pace, mut now) = (Pace::default(), Time(1_000_000));
        let (slow, good) = (FORCE_SLOW + Span::millis(1), Span::millis(5));
        assert_eq!(forces(&mut pace, &mut now, good, 4), None);
        assert_eq!(forces(&mut pace, &mut now, slow, 4), Some(slow));
        assert_eq!(forces(&mut pace, &mut now, good, 4), None);
        for _ in 0..10 {
            assert_eq!(forces(&mut pace, &mut now, slow, 1), None, "for a moment");
            assert_eq!(forces(&mut pace, &mut now, good, 1), None);
        }
    }

    #[test]
    fn one_that_does_not_end_is_slow_and_one_that_is_forgotten_is_not() {
        let (mut pace, mut now) = (Pace::default(), Time(1_000_000));
        pace.asked(now, GROUP, Ticket(1));
        for _ in 0..4 {
            now = now + PACE_SPAN;
            pace.look(now);
        }
        assert!(pace.look(now).is_some());
        pace.forget(GROUP);
        for _ in 0..(SLOW_KEPT.0 / PACE_SPAN.0 + 1) {
            assert!(pace.look(now).is_some(), "nobody knows better");
            now = now + PACE_SPAN;
        }
        now = now + PACE_SPAN;
        assert_eq!(pace.look(now), None, "it is given another chance");
    }
}
