//! What the doors of this node see of each service's clones, counted for the manager: a few relaxed adds for a request.
//! Taken a few times a second, and empty again after that but for what is under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clones::demand::{CloneDemand, Demand, GroupDemand};

/// About so many answers make up a clone's mean.
const MEAN_OVER: u64 = 8;

/// All services and clones that the doors know, by name.
#[derive(Debug)]
pub struct Demands {
    groups: Mutex<BTreeMap<String, Arc<GroupCount>>>,
    /// By name and version: while a clone is replaced there are two of one name.
    clones: Mutex<BTreeMap<(String, u32), Arc<CloneCount>>>,
    taken_at: Mutex<Instant>,
    /// How often a clone was left alone for its failures.
    pub left_alone: AtomicU64,
}

#[derive(Debug, Default)]
pub struct GroupCount {
    arrived: AtomicU64,
    refused: AtomicU64,
    in_flight: AtomicU64,
}

#[derive(Debug, Default)]
pub struct CloneCount {
    done: AtomicU64,
    failed: AtomicU64,
    busy_us: AtomicU64,
    in_flight: AtomicU64,
    /// What its last answers took on average; 0: none came.
    mean_us: AtomicU64,
}

/// A request that is here, until dropped.
#[derive(Debug)]
pub struct Visit(Arc<GroupCount>);

/// A request that a clone has, until it is answered. Dropped before, it is not counted: the client left, or the clone never
/// got it.
#[derive(Debug)]
pub struct Try {
    clone: Arc<CloneCount>,
    began: Instant,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.clone.in_flight.fetch_sub(1, Relaxed);
    }
}

impl GroupCount {
    pub fn enter(self: &Arc<Self>) -> Visit {
        self.arrived.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        Visit(Arc::clone(self))
    }

    /// One came for which there was no room.
    pub fn refuse(&self) {
        self.arrived.fetch_add(1, Relaxed);
        self.refused.fetch_add(1, Relaxed);
    }
}

impl CloneCount {
    pub fn begin(self: &Arc<Self>) -> Try {
        self.in_flight.fetch_add(1, Relaxed);
        Try { clone: Arc::clone(self), began: Instant::now() }
    }

    /// What its last answers took on average, microseconds, if there were any.
    pub fn mean_us(&self) -> Option<u64> {
        Some(self.mean_us.load(Relaxed)).filter(|mean| *mean > 0)
    }

    fn took(&self, micros: u64) {
        // Two at once may lose one of them: it is a mean.
        let mean = self.mean_us.load(Relaxed);
        let next = if mean == 0 { micros } else { mean - mean / MEAN_OVER + micros / MEAN_OVER };
        self.mean_us.store(next.max(1), Relaxed);
    }
}

impl Try {
    /// Its answer began, or it will never answer.
    pub fn ended(self, failed: bool) {
        self.ended_at(failed, Instant::now());
    }

    /// The same, of a moment that is known.
    pub fn ended_at(self, failed: bool, at: Instant) {
        let micros = u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX);
        self.clone.done.fetch_add(1, Relaxed);
        self.clone.failed.fetch_add(u64::from(failed), Relaxed);
        self.clone.busy_us.fetch_add(micros, Relaxed);
        self.clone.took(micros);
    }
}

impl Default for Demands {
    fn default() -> Self {
        let taken_at = Mutex::new(Instant::now());
        Self { groups: Mutex::default(), clones: Mutex::default(), taken_at, left_alone: AtomicU64::new(0) }
    }
}

impl Demands {
    pub fn group(&self, service: &str) -> Arc<GroupCount> {
        known(&self.groups, service.to_owned())
    }

    pub fn clone_count(&self, clone: &str, version: u32) -> Arc<CloneCount> {
        known(&self.clones, (clone.to_owned(), version))
    }

    /// What was counted since the last time. What no door knows any more is forgotten.
    pub fn take(&self) -> Demand {
        let mut taken_at = self.taken_at.lock().unwrap_or_else(PoisonError::into_inner);
        let span: Duration = std::mem::replace(&mut *taken_at, Instant::now()).elapsed();
        let mut groups: BTreeMap<String, GroupDemand> = BTreeMap::new();
        let mut known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in &*known {
            let (arrived, refused) = (count.arrived.swap(0, Relaxed), count.refused.swap(0, Relaxed));
            let in_flight = count.in_flight.load(Relaxed);
            groups.insert(name.clone(), GroupDemand { arrived, refused, in_flight, clones: Vec::new() });
        }
        known.retain(|_, count| Arc::strong_count(count) > 1);
        let mut known = self.clones.lock().unwrap_or_else(PoisonError::into_inner);
        for ((name, version), count) in &*known {
            let Some((service, number)) = name.rsplit_once('/') else { continue };
            let (Some(group), Ok(number)) = (groups.get_mut(service), number.parse()) else { continue };
            let seen = CloneDemand {
                number,
                done: count.done.swap(0, Relaxed),
                failed: count.failed.swap(0, Relaxed),
                busy_us: count.busy_us.swap(0, Relaxed),
                in_flight: count.in_flight.load(Relaxed),
                version: *version,
            };
            if seen.done > 0 || seen.in_flight > 0 {
                group.clones.push(seen);
            }
        }
        known.retain(|_, count| Arc::strong_count(count) > 1);
        Demand { span_ms: u32::try_from(span.as_millis()).unwrap_or(u32::MAX), groups }
    }
}

fn known<K: Ord, T: Default>(all: &Mutex<BTreeMap<K, Arc<T>>>, key: K) -> Arc<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(key).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_taken_once_and_what_is_under_way_stays() {
        let demands = Demands::default();
        let (group, clone) = (demands.group("shop"), demands.clone_count("shop/2", 7));
        let visit = group.enter();
        let _waits = group.enter();
        clone.begin().ended(false);
        clone.begin().ended(true);
        drop(clone.begin());
        let held = clone.begin();
        let seen = demands.take().groups["shop"].clone();
        assert_eq!((seen.arrived, seen.in_flight), (2, 2));
        let two = seen.clones[0];
        assert_eq!((two.number, two.version, two.done, two.failed, two.in_flight), (2, 7, 2, 1, 1));
        drop((visit, held));
        let seen = demands.take().groups["shop"].clone();
        assert_eq!((seen.arrived, seen.in_flight, seen.clones.len()), (0, 1, 0));
    }

    #[test]
    fn a_service_that_no_door_knows_any_more_is_forgotten() {
        let demands = Demands::default();
        drop((demands.group("old"), demands.clone_count("old/0", 0)));
        demands.take();
        assert_eq!(demands.take().groups.len(), 0);
    }
}
