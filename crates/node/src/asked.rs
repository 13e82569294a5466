//! What this node's doors saw of each clone in the last moments: requests, failures, and how long answers took. Told
//! with the node's report, so that every node can show which clone of a service is slow. The manager judges by fresher
//! figures. And what the processes of its own clones use, told when it has changed by something worth telling.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ProcId, ProcUse, Time};
use clones::{CloneId, Demand};
use flow::histogram::Sparse;
use serde::{Deserialize, Serialize};

use crate::limits::{ASKED_OVER, ASKED_TOLD_MAX, TOOK_TOLD_BYTES, USES_TOLD_BYTES};

/// Requests of one clone that doors saw end, and how long they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    pub done: u64,
    pub failed: u64,
    /// Until answers began, all together.
    pub busy_us: u64,
}

/// Requests under way and times of one clone, as they are told beside its [`Tally`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Took {
    /// Requests that it has now.
    #[serde(rename = "n", skip_serializing_if = "is_none")]
    pub under_way: u64,
    /// [`Sparse::flat`] of what its answers took.
    #[serde(rename = "t", skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<u32>,
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// What is counted of a clone in one span.
#[derive(Clone, Debug, Default)]
struct Seen {
    tally: Tally,
    times: Sparse,
}

/// Two spans, one that is being counted and the one before: what is told is of one to two of them.
#[derive(Debug, Default)]
pub struct Asked {
    turned: Time,
    now: BTreeMap<CloneId, Seen>,
    before: BTreeMap<CloneId, Seen>,
    /// As of the last look.
    under_way: BTreeMap<CloneId, u64>,
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
        self.under_way.clear();
        for (service, group) in &demand.groups {
            for (number, took) in &group.took {
                let id = CloneId::new(service.as_str(), *number);
                self.now.entry(id).or_default().times.join(took);
            }
            for seen in &group.clones {
                if seen.in_flight > 0 {
                    // While it is replaced it is two.
                    *self.under_way.entry(CloneId::new(service.as_str(), seen.number)).or_default() += seen.in_flight;
                }
                let tally = Tally { done: seen.done, failed: seen.failed, busy_us: seen.busy_us };
                if tally != Tally::default() {
                    self.now.entry(CloneId::new(service.as_str(), seen.number)).or_default().tally.add(tally);
                }
            }
        }
    }

    /// Tallies of the clones that were asked most, by name, and how long they took as far as there is room.
    pub fn told(&mut self, now: Time) -> (BTreeMap<String, Tally>, BTreeMap<String, Took>) {
        self.turn(now);
        let mut all = self.before.clone();
        for (id, seen) in &self.now {
            let sum = all.entry(id.clone()).or_default();
            sum.tally.add(seen.tally);
            sum.times.join(&seen.times);
        }
        // What has answered nothing lately may have much to answer.
        self.under_way.keys().for_each(|id| _ = all.entry(id.clone()).or_default());
        let under_way = |id: &CloneId| self.under_way.get(id).copied().unwrap_or(0);
        let mut all: Vec<(CloneId, Seen)> = all.into_iter().collect();
        all.sort_by_key(|(id, seen)| std::cmp::Reverse(seen.tally.done.saturating_add(under_way(id))));
        let (mut tallies, mut tooks, mut room) = (BTreeMap::new(), BTreeMap::new(), TOOK_TOLD_BYTES);
        for (id, seen) in all.into_iter().take(ASKED_TOLD_MAX) {
            let (name, took) = (id.to_string(), Took { under_way: under_way(&id), times: seen.times.flat() });
            // Its name and quotes, and up to eight bytes for a number.
            let bytes = name.len() + 24 + took.times.len() * 8;
            if bytes <= room {
                room -= bytes;
                tooks.insert(name.clone(), took);
            }
            if seen.tally != Tally::default() {
                tallies.insert(name, seen.tally);
            }
        }
        (tallies, tooks)
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

/// What a node tells of its clones' processes, by clone: processor time in thousandths of a core, and MiB of memory.
pub type UsesTold = BTreeMap<String, (u32, u32)>;

/// What the processes of this node's clones use.
#[derive(Debug, Default)]
pub struct Uses {
    /// Now, exactly, by clone; while one is replaced, of both its processes.
    pub by_clone: Arc<BTreeMap<String, ProcUse>>,
    now: UsesTold,
    told: UsesTold,
}

impl Uses {
    /// `name`: the clone that a process is, if it is one.
    pub fn seen(&mut self, procs: &BTreeMap<ProcId, ProcUse>, name: impl Fn(ProcId) -> Option<String>) {
        let (mut by_clone, mut told) = (BTreeMap::<String, ProcUse>::new(), UsesTold::new());
        for (proc, used) in procs {
            let Some(name) = name(*proc) else { continue };
            let sum = by_clone.entry(name.clone()).or_default();
            sum.cpu_us = sum.cpu_us.saturating_add(used.cpu_us);
            sum.cpu_millis = sum.cpu_millis.saturating_add(used.cpu_millis);
            sum.resident_bytes = sum.resident_bytes.saturating_add(used.resident_bytes);
            let (cpu, mib) = told.entry(name).or_default();
            *cpu = cpu.saturating_add(used.cpu_millis);
            *mib = mib.saturating_add(u32::try_from(used.resident_bytes >> 20).unwrap_or(u32::MAX));
        }
        // Each with its name and quotes, and up to ten digits for each figure.
        let mut room = USES_TOLD_BYTES;
        told.retain(|name, _| {
            let bytes = name.len() + 24;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        });
        (self.by_clone, self.now) = (Arc::new(by_clone), told);
    }

    /// What to tell all, if it is worth that: who is idle says nothing anew.
    pub fn news(&mut self) -> Option<&UsesTold> {
        let is_same = |told: (u32, u32), now: (u32, u32)| {
            let cpu = told.0.abs_diff(now.0) <= (told.0.max(now.0) / 4).max(20);
            cpu && told.1.abs_diff(now.1) <= told.1.max(now.1) / 8 + 1
        };
        let keys = self.told.len() == self.now.len() && self.now.keys().eq(self.told.keys());
        if keys && self.now.iter().all(|(name, now)| is_same(self.told[name], *now)) {
            return None;
        }
        self.told = self.now.clone();
        Some(&self.told)
    }
}

#[cfg(test)]
mod tests {
    use base::Span;
    use clones::demand::{CloneDemand, GroupDemand};
    use flow::histogram::coarse_of;

    use super::*;

    fn demand(clones: &[(u32, u64, u64)]) -> Demand {
        let seen = |&(number, done, ms): &(u32, u64, u64)| CloneDemand {
            number,
            done,
            failed: done / 10,
            busy_us: done * ms * 1000,
            ..CloneDemand::default()
        };
        let took = |&(number, done, ms): &(u32, u64, u64)| {
            let mut took = Sparse::default();
            took.add(coarse_of(ms * 1000), done as u32);
            (number, took)
        };
        let took = clones.iter().filter(|(_, done, _)| *done > 0).map(took).collect();
        let group = GroupDemand { clones: clones.iter().map(seen).collect(), took, ..GroupDemand::default() };
        Demand { span_ms: 250, groups: [("shop".into(), group)].into() }
    }

    #[test]
    fn the_slow_one_is_seen_and_what_was_long_ago_is_forgotten() {
        let (mut asked, at) = (Asked::default(), |secs| Time::ZERO + Span::secs(100) + Span::secs(secs));
        asked.count(at(0), &demand(&[(0, 10, 20), (1, 10, 1000)]));
        asked.count(at(4), &demand(&[(0, 10, 20), (1, 0, 0), (2, 0, 0)]));
        let (told, tooks) = asked.told(at(4));
        let half = |name: &str| Sparse::of_flat(&tooks[name].times).percentile(50).unwrap() / 1000;
        assert!((20..25).contains(&half("shop/0")) && (1000..1250).contains(&half("shop/1")));
        assert_eq!(told.keys().collect::<Vec<_>>(), ["shop/0", "shop/1"]);
        assert_eq!((told["shop/0"].mean_us(), told["shop/1"].mean_us()), (20_000, 1_000_000));
        assert_eq!((told["shop/0"].done, told["shop/0"].failed), (20, 2));
        asked.count(at(6), &demand(&[(0, 10, 40)]));
        assert_eq!(asked.told(at(9)).0["shop/0"].done, 30);
        assert_eq!(asked.told(at(11)).0, [("shop/0".into(), Tally { done: 10, failed: 1, busy_us: 400_000 })].into());
        assert_eq!(asked.told(at(60)), (BTreeMap::new(), BTreeMap::new()));
        assert_eq!(Tally::default().mean_us(), 0);
    }

    #[test]
    fn no_more_are_told_than_a_report_carries() {
        let mut asked = Asked::default();
        let many: Vec<(u32, u64, u64)> = (0..ASKED_TOLD_MAX as u32 + 9).map(|n| (n, 1 + u64::from(n), 1)).collect();
        asked.count(Time::ZERO, &demand(&many));
        let (told, tooks) = asked.told(Time::ZERO);
        assert!(
            (1..=ASKED_TOLD_MAX).contains(&tooks.len()) && serde_json::to_vec(&tooks).unwrap().len() <= TOOK_TOLD_BYTES
        );
        assert_eq!(
            (told.len(), told.contains_key("shop/8"), told.contains_key("shop/9")),
            (ASKED_TOLD_MAX, false, true)
        );
    }

    #[test]
    fn who_answers_nothing_and_has_much_to_answer_is_seen() {
        let mut asked = Asked::default();
        let hung = CloneDemand { number: 3, in_flight: 7, owes: 7, ..CloneDemand::default() };
        let group = GroupDemand { clones: vec![hung], ..GroupDemand::default() };
        asked.count(Time::ZERO, &Demand { span_ms: 250, groups: [("shop".into(), group)].into() });
        let (tallies, tooks) = asked.told(Time::ZERO);
        assert!(tallies.is_empty(), "an older node would show a clone that answered nothing in no time");
        assert_eq!(tooks["shop/3"], Took { under_way: 7, times: vec![] });
        asked.count(Time::ZERO, &demand(&[]));
        assert!(asked.told(Time::ZERO).1.is_empty());
    }

    #[test]
    fn what_a_process_uses_is_told_when_it_is_another_thing() {
        let mut uses = Uses::default();
        let name = |proc: ProcId| (proc.0 < 10).then(|| format!("shop/{}", proc.0 % 5));
        let mut look = |all: &[(u64, u32, u64)]| {
            let of = |&(proc, cpu_millis, mib): &(u64, u32, u64)| {
                (ProcId(proc), ProcUse { cpu_us: 7_000, cpu_millis, resident_bytes: mib << 20 })
            };
            uses.seen(&all.iter().map(of).collect(), name);
            uses.news().cloned()
        };
        assert_eq!(look(&[]), None, "who has no clones says nothing");
        let told = look(&[(1, 0, 30), (2, 0, 30), (99, 900, 30)]);
        assert_eq!(told, Some([("shop/1".into(), (0, 30)), ("shop/2".into(), (0, 30))].into()));
        // The first works for half of the time; what the other does is not worth a word.
        assert_eq!(look(&[(1, 0, 30), (2, 5, 32)]), None);
        let told = look(&[(1, 500, 30), (2, 5, 32)]);
        assert_eq!(told, Some([("shop/1".into(), (500, 30)), ("shop/2".into(), (5, 32))].into()));
        assert_eq!(look(&[(1, 550, 31), (2, 5, 33)]), None);
        assert_eq!(look(&[(1, 0, 31), (2, 5, 33)]).map(|told| told["shop/1"].0), Some(0));
        assert_eq!(look(&[(1, 0, 31), (2, 5, 64)]).map(|told| told["shop/2"].1), Some(64));
        // Two of one name are one, and who is gone is told to be.
        assert_eq!(look(&[(1, 10, 31), (6, 40, 40)]), Some([("shop/1".into(), (50, 71))].into()));
        let both = ProcUse { cpu_us: 14_000, cpu_millis: 50, resident_bytes: 71 << 20 };
        assert_eq!(uses.by_clone["shop/1"], both);
        uses.seen(&BTreeMap::new(), name);
        assert_eq!(uses.news(), Some(&UsesTold::new()));
        assert_eq!(uses.news(), None);
    }
}
