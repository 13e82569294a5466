//! What the doors of this node see of each service's clones, counted for the manager: a few relaxed adds for a request.
//! Taken a few times a second, and empty again after that but for what is under way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clones::demand::{CloneDemand, Demand, GroupDemand};
use flow::histogram::{COARSE, coarse_of};

use crate::answers::Times;

/// About so many answers make up a clone's mean.
const MEAN_OVER: u64 = 8;

/// All services and clones that the doors know, by name.
#[derive(Debug)]
pub struct Demands {
    groups: Mutex<BTreeMap<String, Arc<GroupCount>>>,
    /// By name, version and address: while a clone is replaced there are two of one name, and each life has its own.
    clones: Mutex<BTreeMap<(String, u32, SocketAddr), Arc<CloneCount>>>,
    /// By name: what is counted of a clone through all its lives, for `/metrics`.
    evers: Mutex<BTreeMap<String, Arc<Ever>>>,
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

/// Of one clone since this node started, or since its doors knew it again.
#[derive(Debug, Default)]
pub struct Ever {
    pub took: Times,
    pub failed: AtomicU64,
    pub in_flight: AtomicU64,
}

#[derive(Debug)]
pub struct CloneCount {
    done: AtomicU64,
    failed: AtomicU64,
    busy_us: AtomicU64,
    overloads: AtomicU64,
    in_flight: AtomicU64,
    /// What its last answers took on average; 0: none came.
    mean_us: AtomicU64,
    conduct: Conduct,
    /// By [`coarse_of`] what answers took.
    took: [AtomicU32; COARSE],
    ever: Arc<Ever>,
}

/// How it behaves towards those who ask it.
#[derive(Debug, Default)]
struct Conduct {
    /// When it last answered anything; or, if it owed nothing then, when it was asked again. By [`clock_ms`], as all here.
    mute_since_ms: AtomicU64,
    /// Requests that nobody waits for any more, though it had its time for each.
    unanswered: AtomicU64,
    /// In a row.
    failures: AtomicU64,
    failing_since_ms: AtomicU64,
    /// What its slowest answer took, of those since it was turned, and of those between the turns before.
    slowest_ms: AtomicU64,
    slowest_before_ms: AtomicU64,
    turned_ms: AtomicU64,
}

/// A request that ended without an answer counts as unanswered if it waited for so long: else its client was in a hurry.
const WAITED_MIN: Duration = Duration::from_secs(1);
/// What the slowest answer took is remembered for so long, at least.
const SLOWEST_KEPT: Duration = Duration::from_secs(300);

/// Milliseconds since this program first asked.
fn clock_ms(at: Instant) -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    at.saturating_duration_since(*BEGAN).as_millis() as u64
}

impl Conduct {
    /// It was asked, and had nothing else to do if `alone`.
    fn asked(&self, at: Instant, alone: bool) {
        if alone && self.unanswered.load(Relaxed) == 0 {
            self.mute_since_ms.store(clock_ms(at), Relaxed);
        }
    }

    fn answered(&self, at: Instant, took_ms: u64, failed: bool) {
        self.mute_since_ms.store(clock_ms(at), Relaxed);
        // Mostly nothing of this changes, and nothing is written.
        if self.unanswered.load(Relaxed) > 0 {
            self.unanswered.store(0, Relaxed);
        }
        if took_ms > self.slowest_ms.load(Relaxed) {
            self.slowest_ms.fetch_max(took_ms, Relaxed);
        }
        if !failed && self.failures.load(Relaxed) > 0 {
            self.failures.store(0, Relaxed);
        }
        if failed {
            self.failed(at);
        }
    }

    fn failed(&self, at: Instant) {
        if self.failures.fetch_add(1, Relaxed) == 0 {
            self.failing_since_ms.store(clock_ms(at), Relaxed);
        }
    }

    fn slowest_ms(&self, now_ms: u64) -> u64 {
        if now_ms.saturating_sub(self.turned_ms.load(Relaxed)) > SLOWEST_KEPT.as_millis() as u64 {
            self.turned_ms.store(now_ms, Relaxed);
            self.slowest_before_ms.store(self.slowest_ms.swap(0, Relaxed), Relaxed);
        }
        self.slowest_ms.load(Relaxed).max(self.slowest_before_ms.load(Relaxed))
    }
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
    has_ended: bool,
    /// Several clones were asked: whether another one has answered.
    race: Option<Arc<AtomicBool>>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.clone.in_flight.fetch_sub(1, Relaxed);
        self.clone.ever.in_flight.fetch_sub(1, Relaxed);
        // Nobody let it have its time.
        if !self.has_ended && self.race.as_ref().is_some_and(|race| race.load(Relaxed)) {
            return self.clone.outrun(self.began.elapsed());
        }
        if !self.has_ended && self.began.elapsed() >= WAITED_MIN {
            self.clone.conduct.unanswered.fetch_add(1, Relaxed);
        }
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
    fn of(ever: Arc<Ever>) -> Self {
        Self {
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
            overloads: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            mean_us: AtomicU64::new(0),
            conduct: Conduct::default(),
            took: [const { AtomicU32::new(0) }; COARSE],
            ever,
        }
    }

    pub fn begin(self: &Arc<Self>) -> Try {
        self.begin_at(Instant::now())
    }

    /// The same, of a moment that is known.
    pub fn begin_at(self: &Arc<Self>, began: Instant) -> Try {
        let before = self.in_flight.fetch_add(1, Relaxed);
        self.ever.in_flight.fetch_add(1, Relaxed);
        self.conduct.asked(began, before == 0);
        Try { clone: Arc::clone(self), began, has_ended: false, race: None }
    }

    /// It said with an answer that it has too much to do.
    pub fn overloaded(&self) {
        self.overloads.fetch_add(1, Relaxed);
    }

    /// What its last answers took on average, microseconds, if there were any.
    pub fn mean_us(&self) -> Option<u64> {
        Some(self.mean_us.load(Relaxed)).filter(|mean| *mean > 0)
    }

    /// It had not answered after so long, when another had: what it takes is longer, and nobody will know by how much.
    fn outrun(&self, after: Duration) {
        let guess = u64::try_from(after.as_micros()).unwrap_or(u64::MAX).saturating_mul(2);
        if guess > self.mean_us.load(Relaxed) {
            self.took(guess);
        }
    }

    fn took(&self, micros: u64) {
        // Two at once may lose one of them: it is a mean.
        let mean = self.mean_us.load(Relaxed);
        let next = if mean == 0 { micros } else { mean - mean / MEAN_OVER + micros / MEAN_OVER };
        self.mean_us.store(next.max(1), Relaxed);
    }
}

impl Try {
    /// Of several: `race` becomes true before those are dropped that another one was faster than.
    pub fn in_race(mut self, race: &Arc<AtomicBool>) -> Self {
        self.race = Some(Arc::clone(race));
        self
    }

    /// It began then, and is ended by that: of connections nobody knows before what will be a request.
    pub fn began(mut self, at: Instant) -> Self {
        self.began = at;
        self
    }

    /// Its answer began, or it will never answer.
    pub fn ended(self, failed: bool) {
        self.ended_at(failed, Instant::now());
    }

    /// It gave no sign in all the time that it had.
    pub fn silent(self) {
        let at = Instant::now();
        self.count(true, at);
        self.clone.conduct.failed(at);
    }

    /// The same, of a moment that is known.
    pub fn ended_at(mut self, failed: bool, at: Instant) {
        self.has_ended = true;
        let micros = self.count(failed, at);
        self.clone.conduct.answered(at, micros / 1000, failed);
    }

    /// What it took, microseconds.
    fn count(&self, failed: bool, at: Instant) -> u64 {
        let micros = u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX);
        self.clone.done.fetch_add(1, Relaxed);
        self.clone.busy_us.fetch_add(micros, Relaxed);
        self.clone.took(micros);
        self.clone.took[coarse_of(micros)].fetch_add(1, Relaxed);
        self.clone.ever.took.note(Duration::from_micros(micros));
        if failed {
            self.clone.failed.fetch_add(1, Relaxed);
            self.clone.ever.failed.fetch_add(1, Relaxed);
        }
        micros
    }
}

impl Default for Demands {
    fn default() -> Self {
        let taken_at = Mutex::new(Instant::now());
        Self {
            groups: Mutex::default(),
            clones: Mutex::default(),
            evers: Mutex::default(),
            taken_at,
            left_alone: AtomicU64::new(0),
        }
    }
}

impl Demands {
    pub fn group(&self, service: &str) -> Arc<GroupCount> {
        known(&self.groups, service.to_owned())
    }

    pub fn clone_count(&self, clone: &str, version: u32, addr: SocketAddr) -> Arc<CloneCount> {
        let mut all = self.clones.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(CloneCount::of(known(&self.evers, clone.to_owned())));
        Arc::clone(all.entry((clone.to_owned(), version, addr)).or_insert_with(new))
    }

    /// Each clone that the doors know, by name, the first so many.
    pub fn evers(&self, at_most: usize) -> Vec<(String, Arc<Ever>)> {
        let all = self.evers.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().take(at_most).map(|(name, ever)| (name.clone(), Arc::clone(ever))).collect()
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
            groups.insert(name.clone(), GroupDemand { arrived, refused, in_flight, ..GroupDemand::default() });
        }
        known.retain(|_, count| Arc::strong_count(count) > 1);
        let now_ms = clock_ms(Instant::now());
        let since = |at: &AtomicU64| u32::try_from(now_ms.saturating_sub(at.load(Relaxed))).unwrap_or(u32::MAX);
        let mut known = self.clones.lock().unwrap_or_else(PoisonError::into_inner);
        for ((name, version, _), count) in &*known {
            let Some((service, number)) = name.rsplit_once('/') else { continue };
            let (Some(group), Ok(number)) = (groups.get_mut(service), number.parse()) else { continue };
            let conduct = &count.conduct;
            let slowest = u32::try_from(conduct.slowest_ms(now_ms)).unwrap_or(u32::MAX);
            group.slowest_ms = group.slowest_ms.max(slowest);
            let owes = count.in_flight.load(Relaxed) + conduct.unanswered.load(Relaxed);
            let failing = conduct.failures.load(Relaxed);
            let seen = CloneDemand {
                number,
                done: count.done.swap(0, Relaxed),
                failed: count.failed.swap(0, Relaxed),
                busy_us: count.busy_us.swap(0, Relaxed),
                in_flight: count.in_flight.load(Relaxed),
                version: *version,
                overloads: count.overloads.swap(0, Relaxed),
                owes,
                mute_ms: if owes > 0 { since(&conduct.mute_since_ms) } else { 0 },
                failing,
                failing_ms: if failing > 0 { since(&conduct.failing_since_ms) } else { 0 },
            };
            if seen.done > 0 {
                let took = group.took.entry(number).or_default();
                let counts = count.took.iter().enumerate().filter(|(_, count)| count.load(Relaxed) > 0);
                counts.for_each(|(bucket, count)| took.add(bucket, count.swap(0, Relaxed)));
            }
            if seen.done > 0 || seen.owes > 0 || seen.failing > 0 {
                group.clones.push(seen);
            }
        }
        known.retain(|_, count| Arc::strong_count(count) > 1);
        let mut evers = self.evers.lock().unwrap_or_else(PoisonError::into_inner);
        evers.retain(|_, ever| Arc::strong_count(ever) > 1);
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

    const ADDR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn who_answers_nothing_and_who_fails_is_told() {
        let demands = Demands::default();
        let (_group, clone) = (demands.group("shop"), demands.clone_count("shop/2", 0, ADDR));
        let told = || demands.take().groups["shop"].clone();
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        let begun = |ms| {
            let mut one = clone.begin();
            one.began = ago(ms);
            one
        };
        // A request that did not wait long says nothing, one that did stays owed, and so does one that had all its time.
        drop(begun(100));
        assert!(told().clones.is_empty());
        drop(begun(2000));
        begun(2000).silent();
        let _held = clone.begin();
        std::thread::sleep(Duration::from_millis(20));
        let seen = told().clones[0];
        assert_eq!((seen.owes, seen.failing, seen.done, seen.failed), (3, 1, 1, 1));
        assert!((20..10_000).contains(&seen.mute_ms), "{seen:?}");
        // Any answer shows that it lives; a good one that it is well.
        begun(3000).ended(true);
        let seen = told();
        assert_eq!((seen.clones[0].owes, seen.clones[0].failing, seen.slowest_ms / 1000), (1, 2, 3));
        assert!(seen.clones[0].failing_ms >= 20 && seen.clones[0].mute_ms < 20, "{seen:?}");
        begun(5).ended(false);
        assert_eq!((told().clones[0].failing, told().slowest_ms / 1000), (0, 3));
        // Another life is another clone.
        drop(begun(2000));
        let next = demands.clone_count("shop/2", 0, SocketAddr::new(ADDR.ip(), 2));
        next.begin().ended(false);
        assert_eq!(told().clones.iter().map(|clone| clone.owes).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn what_was_seen_is_taken_once_and_what_is_under_way_stays() {
        let demands = Demands::default();
        let (group, clone) = (demands.group("shop"), demands.clone_count("shop/2", 7, ADDR));
        let visit = group.enter();
        let _waits = group.enter();
        clone.begin().ended(true);
        clone.begin().ended(false);
        drop(clone.begin());
        let held = clone.begin();
        let seen = demands.take().groups["shop"].clone();
        assert_eq!((seen.arrived, seen.in_flight), (2, 2));
        let two = seen.clones[0];
        assert_eq!((two.number, two.version, two.done, two.failed, two.in_flight), (2, 7, 2, 1, 1));
        assert_eq!(seen.took[&2].flat().chunks(2).map(|pair| pair[1]).sum::<u32>(), 2);
        let evers = demands.evers(9);
        let (name, ever) = &evers[0];
        let (took, of) = (ever.took.within().last().unwrap(), |count: &AtomicU64| count.load(Relaxed));
        assert_eq!((&**name, took, of(&ever.failed), of(&ever.in_flight)), ("shop/2", (None, 2), 1, 1));
        drop((visit, held));
        let seen = demands.take().groups["shop"].clone();
        assert_eq!((seen.arrived, seen.in_flight, seen.clones.len(), seen.took.len()), (0, 1, 0, 0));
        let ever = || demands.evers(9)[0].1.took.within().last().unwrap().1;
        assert_eq!((ever(), demands.evers(0).len()), (2, 0), "that is counted on");
        // Its next life goes on counting, and what no door knows is forgotten.
        let next = demands.clone_count("shop/2", 8, SocketAddr::new(ADDR.ip(), 2));
        drop((clone, demands.take()));
        next.begin().ended(false);
        assert_eq!(ever(), 3);
        drop((evers, next));
        demands.take();
        assert!(demands.evers(9).is_empty());
    }

    #[test]
    fn a_service_that_no_door_knows_any_more_is_forgotten() {
        let demands = Demands::default();
        drop((demands.group("old"), demands.clone_count("old/0", 0, ADDR)));
        demands.take();
        assert_eq!(demands.take().groups.len(), 0);
    }
}
