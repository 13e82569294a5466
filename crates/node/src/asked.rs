//! What this node's doors saw of each clone in the last moments: requests, failures, and how long answers took. Told with the
//! node's report, so that every node can show which clone of a service is slow. The manager judges by fresher figures.

use std::collections::BTreeMap;

use base::Time;
use clones::{CloneId, Demand};
use serde::{Deserialize, Serialize};

use crate::limits::{ASKED_OVER, ASKED_TOLD_MAX};

/// Of one clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    pub done: u64,
    pub failed: u64,
    /// Until answers began, all together.
    pub busy_us: u64,
}

/// Two spans, one that is being counted and the one before: what is told is of one to two of them.
#[derive(Debug, Default)]
pub struct Asked {
    turned: Time,
    now: BTreeMap<CloneId, Tally>,
    before: BTreeMap<CloneId, Tally>,
}

impl Tally {
    pub fn add(&mut self, more: Tally) {
        self.done = self.done.saturating_add(more.done);
        self.failed = self.failed.saturating_add(more.failed);
        self.busy_us = self.busy_us.saturating_add(more.busy_us);
    }

    /// What an answer took on average.
    pub fn mean_us(self) -> u64 {
        self.busy_us.checked_div(self.done).unwrap_or(0)
    }
}

impl Asked {
    pub fn count(&mut self, now: Time, demand: &Demand) {
        self.turn(now);
        for (service, group) in &demand.groups {
            for seen in &group.clones {
                let tally = Tally { done: seen.done, failed: seen.failed, busy_us: seen.busy_us };
                if tally != Tally::default() {
                    self.now.entry(CloneId::new(service.as_str(), seen.number)).or_default().add(tally);
                }
            }
        }
    }

    /// Of those that were asked most, by name.
    pub fn told(&mut self, now: Time) -> BTreeMap<String, Tally> {
        self.turn(now);
        let mut all = self.before.clone();
        for (id, tally) in &self.now {
            all.entry(id.clone()).or_default().add(*tally);
        }
        let mut all: Vec<(CloneId, Tally)> = all.into_iter().collect();
        all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.done));
        all.into_iter().take(ASKED_TOLD_MAX).map(|(id, tally)| (id.to_string(), tally)).collect()
    }

    fn turn(&mut self, now: Time) {
        if now.since(self.turned) < ASKED_OVER {
            return;
        }
        let is_old = now.since(self.turned) >= ASKED_OVER + ASKED_OVER;
        self.before = std::mem::take(&mut self.now);
        if is_old {
            self.before.clear();
        }
        self.turned = now;
    }
}

#[cfg(test)]
mod tests {
    use base::Span;
    use clones::demand::{CloneDemand, GroupDemand};

    use super::*;

    fn demand(clones: &[(u32, u64, u64)]) -> Demand {
        let seen = |&(number, done, ms): &(u32, u64, u64)| CloneDemand {
            number,
            done,
            failed: done / 10,
            busy_us: done * ms * 1000,
            ..CloneDemand::default()
        };
        let group = GroupDemand { clones: clones.iter().map(seen).collect(), ..GroupDemand::default() };
        Demand { span_ms: 250, groups: [("shop".into(), group)].into() }
    }

    #[test]
    fn the_slow_one_is_seen_and_what_was_long_ago_is_forgotten() {
        let (mut asked, at) = (Asked::default(), |secs| Time::ZERO + Span::secs(100) + Span::secs(secs));
        asked.count(at(0), &demand(&[(0, 10, 20), (1, 10, 1000)]));
        asked.count(at(4), &demand(&[(0, 10, 20), (1, 0, 0), (2, 0, 0)]));
        let told = asked.told(at(4));
        assert_eq!(told.keys().collect::<Vec<_>>(), ["shop/0", "shop/1"]);
        assert_eq!((told["shop/0"].mean_us(), told["shop/1"].mean_us()), (20_000, 1_000_000));
        assert_eq!((told["shop/0"].done, told["shop/0"].failed), (20, 2));
        asked.count(at(6), &demand(&[(0, 10, 40)]));
        assert_eq!(asked.told(at(9))["shop/0"].done, 30);
        assert_eq!(asked.told(at(11)), [("shop/0".into(), Tally { done: 10, failed: 1, busy_us: 400_000 })].into());
        assert!(asked.told(at(60)).is_empty());
        assert_eq!(Tally::default().mean_us(), 0);
    }

    #[test]
    fn no_more_are_told_than_a_report_carries() {
        let mut asked = Asked::default();
        let many: Vec<(u32, u64, u64)> = (0..ASKED_TOLD_MAX as u32 + 9).map(|n| (n, 1 + u64::from(n), 1)).collect();
        asked.count(Time::ZERO, &demand(&many));
        let told = asked.told(Time::ZERO);
        assert_eq!(
            (told.len(), told.contains_key("shop/8"), told.contains_key("shop/9")),
            (ASKED_TOLD_MAX, false, true)
        );
    }
}
