//! Long connections to a clone that leaves, or through a node that does: upgraded ones (WebSocket), those of TCP services, and
//! answers that last (`http/lasting`).
//! Left alone they would all break at the moment when it is killed, and all their clients would come back at once. So each
//! edge says goodbye to its own one after the other, at an even pace with some chance in it, over the time that there is;
//! first to those that have been silent longest. Other requests and answers are not this file's matter: they end by
//! themselves, or have their time.
//!
//! What a goodbye is on the wire is `http/upgrade`'s; when a node's doors close, `closing`'s.

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

/// The long connections of one clone at this edge, or all of this edge. Lives as long as the clone is known or one of them is
/// open.
#[derive(Debug, Default)]
pub struct Stays(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Not told to go yet.
    here: BTreeMap<u64, Arc<Guest>>,
    entered: u64,
    /// Told to go, and still open.
    going: usize,
    leaves: Option<Leave>,
    /// A task sees them off.
    is_paced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leave {
    within: Duration,
    until: Instant,
    /// Who entered after this one is not meant.
    last: u64,
}

#[derive(Debug)]
struct Guest {
    began: Instant,
    /// Milliseconds since it began.
    active_ms: AtomicU64,
    manner: Manner,
    is_told: AtomicBool,
    told: Notify,
}

/// When one may be told to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// At any time: it can be ended between two messages.
    Framed,
    /// Not while it is busy, before the last part of the time.
    Quiet,
    /// In the last part of the time: it may still come to an end of its own.
    Last,
}

/// One long connection, until dropped.
#[derive(Debug)]
pub struct Stay {
    /// Its clone's, and its door's.
    of: [(Arc<Stays>, u64); 2],
    guest: Arc<Guest>,
}

impl Stay {
    pub fn new(of: [&Arc<Stays>; 2], manner: Manner) -> Self {
        let (began, told) = (Instant::now(), Notify::new());
        let (active_ms, is_told) = (AtomicU64::new(0), AtomicBool::new(false));
        let guest = Arc::new(Guest { began, active_ms, manner, is_told, told });
        Self { of: of.map(|stays| (Arc::clone(stays), stays.enter(&guest))), guest }
    }

    /// A byte came.
    pub fn is_active(&self) {
        self.guest.active_ms.store(self.guest.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Ends when it is this connection's turn to go.
    pub async fn goodbye(&self) {
        self.guest.is_told().await;
    }

    /// The same for who cannot hold on to this one meanwhile.
    pub fn told(&self) -> impl Future<Output = ()> + Send + use<> {
        let guest = Arc::clone(&self.guest);
        async move { guest.is_told().await }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        for (stays, number) in &self.of {
            stays.leaves(*number);
        }
    }
}

impl Guest {
    fn active_at(&self) -> Instant {
        self.began + Duration::from_millis(self.active_ms.load(Relaxed))
    }

    async fn is_told(&self) {
        loop {
            let told = self.told.notified();
            if self.is_told.load(Relaxed) {
                return;
            }
            told.await;
        }
    }

    fn tell(&self) {
        self.is_told.store(true, Relaxed);
        self.told.notify_waiters();
    }
}

impl Stays {
    fn enter(self: &Arc<Self>, guest: &Arc<Guest>) -> u64 {
        let mut inner = self.locked();
        inner.entered += 1;
        let number = inner.entered;
        inner.here.insert(number, Arc::clone(guest));
        // The clone may have left while it was being reached.
        self.pace(&mut inner);
        number
    }

    fn leaves(&self, number: u64) {
        let mut inner = self.locked();
        if inner.here.remove(&number).is_none() {
            inner.going -= 1;
        }
    }

    /// All are to be gone after this time, and who comes meanwhile too.
    pub fn leave(self: &Arc<Self>, within: Duration) {
        self.begin(within, u64::MAX);
    }

    /// Those that are here now are to be gone after this time. Who comes meanwhile may stay until [`leave`](Self::leave).
    pub fn leave_first(self: &Arc<Self>, within: Duration) {
        let last = self.locked().entered;
        self.begin(within, last);
    }

    fn begin(self: &Arc<Self>, within: Duration, last: u64) {
        let mut inner = self.locked();
        // That all leave comes after that some do.
        if inner.leaves.is_none_or(|before| before.last < u64::MAX && last == u64::MAX) {
            inner.leaves = Some(Leave { within, until: Instant::now() + within, last });
        }
        self.pace(&mut inner);
    }

    /// It stays after all, and with it who is still here.
    pub fn stay(&self) {
        self.locked().leaves = None;
    }

    pub fn is_empty(&self) -> bool {
        self.locked().here.is_empty()
    }

    /// How many there are, if each can be told to go at any time.
    pub fn framed(&self) -> Option<usize> {
        let inner = self.locked();
        inner.here.values().all(|guest| guest.manner == Manner::Framed).then_some(inner.here.len())
    }

    /// Those that are to leave have gone, or should have so long ago.
    pub fn have_left(&self, late: Duration) -> bool {
        let inner = self.locked();
        let is_late = inner.leaves.is_some_and(|leave| Instant::now() >= leave.until + late);
        is_late || inner.going == 0 && inner.meant().next().is_none()
    }

    fn pace(self: &Arc<Self>, inner: &mut Inner) {
        if inner.meant().next().is_some() && !inner.is_paced {
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
    /// Those that are to leave.
    fn meant(&self) -> impl Iterator<Item = (&u64, &Arc<Guest>)> {
        let last = self.leaves.map_or(0, |leave| leave.last);
        self.here.range(..=last)
    }

    /// How long until the next turn; none if nobody is left, or all stay.
    fn step(&mut self, chance: f64) -> Option<Duration> {
        let count = self.meant().count();
        let Some(leave) = self.leaves.filter(|_| count > 0) else {
            self.is_paced = false;
            return None;
        };
        let left = leave.until.saturating_duration_since(Instant::now());
        let each = left.div_f64(count as f64).mul_f64(chance);
        Some(each.min(left).max(STEP_MIN))
    }

    /// Says goodbye to those whose turn it is after a step.
    fn turn(&mut self, step: Duration) {
        let (Some(leave), now) = (self.leaves, Instant::now()) else { return };
        let left = leave.until.saturating_duration_since(now);
        let all = self.meant().count();
        let count = match left {
            Duration::ZERO => all,
            left => (all as f64 * step.as_secs_f64() / (left + step).as_secs_f64()) as usize,
        };
        let is_last_part = left * PARTS <= leave.within;
        let may_go = |guest: &Guest| match guest.manner {
            Manner::Framed => true,
            Manner::Quiet => is_last_part || now.duration_since(guest.active_at()) >= BUSY,
            Manner::Last => is_last_part,
        };
        let mut idlest: Vec<(Instant, u64)> =
            self.meant().filter(|(_, guest)| may_go(guest)).map(|(n, guest)| (guest.active_at(), *n)).collect();
        let count = count.max(1).min(idlest.len());
        if count < idlest.len() {
            idlest.select_nth_unstable(count);
        }
        for (_, number) in &idlest[..count] {
            if let Some(guest) = self.here.remove(number) {
                self.going += 1;
                guest.tell();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(4);

    impl Stays {
        fn guest(self: &Arc<Self>, manner: Manner) -> Stay {
            Stay::new([self, &Arc::default()], manner)
        }
    }

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
            let guests = (0..many).map(|_| clone.guest(Manner::Framed)).collect();
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
        let (busy, idle, idler) = (clone.guest(Manner::Quiet), clone.guest(Manner::Quiet), clone.guest(Manner::Quiet));
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
    async fn what_may_end_by_itself_is_told_in_the_last_part_of_the_time_and_then_one_after_the_other() {
        let clone = Arc::new(Stays::default());
        let guests = (0..20).map(|_| clone.guest(Manner::Last)).collect();
        tokio::time::sleep(WITHIN).await;
        clone.leave(WITHIN);
        let at = told(guests).await;
        assert!(at[0] >= 2950 && *at.last().unwrap() <= 4010 && at[10] - at[0] >= 200, "{at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_left_stays_if_the_clone_does_and_who_comes_while_it_leaves_goes_too() {
        let clone = Arc::new(Stays::default());
        let mut guests: Vec<Stay> = (0..10).map(|_| clone.guest(Manner::Framed)).collect();
        clone.leave(WITHIN);
        tokio::time::sleep(Duration::from_secs(2)).await;
        clone.stay();
        tokio::time::sleep(Duration::from_secs(9)).await;
        let left = clone.locked().here.len();
        assert!((3..=7).contains(&left), "{left} are left");
        clone.leave(WITHIN);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(clone.is_empty());
        guests.push(clone.guest(Manner::Framed));
        assert!(told(guests).await.last() <= Some(&10), "its time is over");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_are_here_go_first_and_who_comes_meanwhile_when_all_do() {
        let door = Arc::new(Stays::default());
        let first: Vec<Stay> = (0..40).map(|_| door.guest(Manner::Framed)).collect();
        door.leave_first(WITHIN);
        let later: Vec<Stay> = (0..40).map(|_| door.guest(Manner::Framed)).collect();
        assert!(!door.have_left(Duration::ZERO));
        // Said again, as a view changes all the time.
        door.leave_first(WITHIN * 2);
        let at = told(first).await;
        assert!(*at.last().unwrap() <= 4000 && at[19] >= 1500, "{at:?}");
        assert!(door.have_left(WITHIN) && door.locked().here.len() == 40);
        tokio::time::sleep(WITHIN * 2).await;
        assert_eq!(door.locked().here.len(), 40);
        let began = Instant::now();
        door.leave(WITHIN);
        let at = told(later).await;
        assert!(*at.last().unwrap() <= 4000 && at[19] >= 1500 && began.elapsed() <= WITHIN * 2, "{at:?}");
        assert!(door.have_left(WITHIN));
    }

    #[test]
    fn it_is_known_whether_all_can_go_at_any_time() {
        let door = Arc::new(Stays::default());
        let guests = (0..3).map(|_| door.guest(Manner::Framed)).collect::<Vec<_>>();
        assert_eq!(door.framed(), Some(3));
        let other = door.guest(Manner::Quiet);
        assert_eq!(door.framed(), None);
        drop((other, guests));
        assert_eq!(door.framed(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_told_and_does_not_go_is_waited_for_and_not_for_ever() {
        let door = Arc::new(Stays::default());
        let stay = door.guest(Manner::Framed);
        door.leave_first(WITHIN);
        stay.goodbye().await;
        assert!(!door.have_left(WITHIN));
        tokio::time::sleep(WITHIN * 2).await;
        assert!(door.have_left(WITHIN));
        drop(stay);
        assert_eq!(door.locked().going, 0);
    }
}
