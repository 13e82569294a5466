//! Long connections to a clone that leaves: upgraded ones (WebSocket) and those of TCP services. Left alone they would all
//! break at the moment when the clone is killed, and all their clients would come back at once. So each edge says goodbye
//! to its own one after the other, at an even pace with some chance in it, over the time that the clone has; first to those
//! that have been silent longest. Requests and answers are not this file's matter: they end by themselves, or have their time.
//!
//! What a goodbye is on the wire is `http/upgrade`'s.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between two goodbyes, at least: finer steps cost more than they spread. What falls into one step goes together.
const STEP_MIN: Duration = Duration::from_millis(10);
/// A connection on which nobody can tell one message from the next, and which moved a byte so short a time ago, is probably
/// in the middle of something: it is spared until the last of so many parts of the time.
const BUSY: Duration = Duration::from_millis(500);
const PARTS: u32 = 4;

/// The long connections of one clone at this edge. Lives as long as the clone is known or one of them is open.
#[derive(Debug, Default)]
pub struct Stays(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Not told to go yet.
    here: BTreeMap<u64, Arc<Guest>>,
    entered: u64,
    leaves: Option<Leave>,
    /// A task sees them off.
    is_paced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leave {
    within: Duration,
    until: Instant,
}

#[derive(Debug)]
struct Guest {
    began: Instant,
    /// Milliseconds since it began.
    active_ms: AtomicU64,
    /// It can be ended between two messages.
    is_framed: bool,
    is_told: AtomicBool,
    told: Notify,
}

/// One long connection, until dropped.
#[derive(Debug)]
pub struct Stay {
    of: Arc<Stays>,
    number: u64,
    guest: Arc<Guest>,
}

impl Stay {
    /// A byte came.
    pub fn is_active(&self) {
        self.guest.active_ms.store(self.guest.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Ends when it is this connection's turn to go.
    pub async fn goodbye(&self) {
        loop {
            let told = self.guest.told.notified();
            if self.guest.is_told.load(Relaxed) {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.of.locked().here.remove(&self.number);
    }
}

impl Guest {
    fn active_at(&self) -> Instant {
        self.began + Duration::from_millis(self.active_ms.load(Relaxed))
    }

    fn tell(&self) {
        self.is_told.store(true, Relaxed);
        self.told.notify_waiters();
    }
}

impl Stays {
    /// `is_framed`: one message can be told from the next, so that it may be ended at any time.
    pub fn enter(self: &Arc<Self>, is_framed: bool) -> Stay {
        let (began, told) = (Instant::now(), Notify::new());
        let (active_ms, is_told) = (AtomicU64::new(0), AtomicBool::new(false));
        let guest = Arc::new(Guest { began, active_ms, is_framed, is_told, told });
        let mut inner = self.locked();
        inner.entered += 1;
        let number = inner.entered;
        inner.here.insert(number, Arc::clone(&guest));
        // The clone may have left while it was being reached.
        self.pace(&mut inner);
        Stay { of: Arc::clone(self), number, guest }
    }

    /// The clone leaves: all are to be gone after this time.
    pub fn leave(self: &Arc<Self>, within: Duration) {
        let mut inner = self.locked();
        inner.leaves.get_or_insert_with(|| Leave { within, until: Instant::now() + within });
        self.pace(&mut inner);
    }

    /// The clone stays after all, and with it who is still here.
    pub fn stay(&self) {
        self.locked().leaves = None;
    }

    pub fn is_empty(&self) -> bool {
        self.locked().here.is_empty()
    }

    fn pace(self: &Arc<Self>, inner: &mut Inner) {
        if inner.leaves.is_some() && !inner.here.is_empty() && !inner.is_paced {
            inner.is_paced = true;
            let seed = inner.entered ^ Arc::as_ptr(self) as u64;
            tokio::spawn(see_off(Arc::clone(self), Rng::new(seed)));
        }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn see_off(stays: Arc<Stays>, mut rng: Rng) {
    loop {
        let chance = 0.5 + rng.below(1000) as f64 / 1000.0;
        let Some(step) = stays.locked().step(chance) else { return };
        tokio::time::sleep(step).await;
        stays.locked().turn(step);
    }
}

impl Inner {
    /// How long until the next turn; none if nobody is left, or the clone stays.
    fn step(&mut self, chance: f64) -> Option<Duration> {
        let Some(leave) = self.leaves.filter(|_| !self.here.is_empty()) else {
            self.is_paced = false;
            return None;
        };
        let left = leave.until.saturating_duration_since(Instant::now());
        let each = left.div_f64(self.here.len() as f64).mul_f64(chance);
        Some(each.min(left).max(STEP_MIN))
    }

    /// Says goodbye to those whose turn it is after a step.
    fn turn(&mut self, step: Duration) {
        let (Some(leave), now) = (self.leaves, Instant::now()) else { return };
        let left = leave.until.saturating_duration_since(now);
        let count = match left {
            Duration::ZERO => self.here.len(),
            left => (self.here.len() as f64 * step.as_secs_f64() / (left + step).as_secs_f64()) as usize,
        };
        let is_last_part = left * PARTS <= leave.within;
        let may_go = |guest: &Guest| guest.is_framed || is_last_part || now.duration_since(guest.active_at()) >= BUSY;
        let mut idlest: Vec<(Instant, u64)> =
            self.here.iter().filter(|(_, guest)| may_go(guest)).map(|(n, guest)| (guest.active_at(), *n)).collect();
        let count = count.max(1).min(idlest.len());
        if count < idlest.len() {
            idlest.select_nth_unstable(count);
        }
        for (_, number) in &idlest[..count] {
            if let Some(guest) = self.here.remove(number) {
                guest.tell();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(4);

    /// When each of these is told to go, milliseconds from now.
    async fn told(stays: Vec<Stay>) -> Vec<u128> {
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for stay in stays {
            tasks.spawn(async move {
                stay.goodbye().await;
                began.elapsed().as_millis()
            });
        }
        let mut at = tasks.join_all().await;
        at.sort_unstable();
        at
    }

    #[tokio::test(start_paused = true)]
    async fn goodbyes_are_spread_evenly_over_the_time_whether_few_or_many() {
        for many in [1, 5, 40, 5000] {
            let clone = Arc::new(Stays::default());
            let guests = (0..many).map(|_| clone.enter(true)).collect();
            clone.leave(WITHIN);
            let at = told(guests).await;
            assert!(*at.last().unwrap() <= 4000, "{many}: {at:?}");
            for quarter in 0..4 {
                let count = at.iter().filter(|ms| **ms / 1000 == quarter).count();
                assert!(many < 40 || (many / 6..=many / 3).contains(&count), "{count} of {many} in second {quarter}");
            }
            let longest = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(longest <= (4000 * 3 / many as u128).max(25), "{many}: a pause of {longest} ms");
            assert!(clone.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_were_silent_longest_go_first_and_who_is_busy_goes_last() {
        let clone = Arc::new(Stays::default());
        let (busy, idle, idler) = (clone.enter(false), clone.enter(false), clone.enter(false));
        tokio::time::sleep(Duration::from_secs(5)).await;
        idle.is_active();
        tokio::time::sleep(Duration::from_secs(1)).await;
        clone.leave(WITHIN);
        let began = Instant::now();
        let works = async {
            loop {
                busy.is_active();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ms = |at: Instant| at.elapsed().as_millis();
        let all = async {
            tokio::join!(
                async { (idler.goodbye().await, ms(began)).1 },
                async { (idle.goodbye().await, ms(began)).1 },
                async { (busy.goodbye().await, ms(began)).1 },
            )
        };
        let (first, second, last) = tokio::select! { all = all => all, () = works => unreachable!() };
        // A step is half as long again at most: 2000 ms of 4000, and then three quarters of what is left.
        assert!(first <= 2010 && first < second && second <= 3510, "{first} {second}");
        assert!(last > second && (3000..=4010).contains(&last), "{first} {second} {last}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_left_stays_if_the_clone_does_and_who_comes_while_it_leaves_goes_too() {
        let clone = Arc::new(Stays::default());
        let mut guests: Vec<Stay> = (0..10).map(|_| clone.enter(true)).collect();
        clone.leave(WITHIN);
        tokio::time::sleep(Duration::from_secs(2)).await;
        clone.stay();
        tokio::time::sleep(Duration::from_secs(9)).await;
        let left = clone.locked().here.len();
        assert!((3..=7).contains(&left), "{left} are left");
        clone.leave(WITHIN);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(clone.is_empty());
        guests.push(clone.enter(true));
        assert!(told(guests).await.last() <= Some(&10), "its time is over");
    }
}
