//! A timeout for streams that cost nothing while bytes flow. There may be many thousand waits a second on one connection,
//! and nearly all end early; so the timer is left alone and looks at its true deadline only when it fires.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

use crate::limits::{RATE_GRACE, RATE_MIN};

/// A timeout that costs nothing while bytes flow: the timer is left alone and looks at its true deadline when it fires.
#[derive(Debug, Default)]
pub struct Wait {
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom it wakes.
    wakes: Option<Waker>,
}

impl Wait {
    /// Bytes came: the next wait begins anew.
    pub fn over(&mut self) {
        self.since = None;
    }

    /// The same; how long this one was.
    fn took(&mut self) -> Duration {
        self.since.take().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Call when pending. True when it has been pending for `limit`.
    pub fn is_overdue(&mut self, cx: &mut Context<'_>, limit: Duration) -> bool {
        let now = Instant::now();
        let due = *self.since.get_or_insert(now) + limit;
        let is_known = self.wakes.as_ref().is_some_and(|known| known.will_wake(cx.waker()));
        // It wakes us in time, and has nothing to say yet: who is asked again and again would pay for that each time.
        if is_known && self.timer.as_ref().is_some_and(|timer| timer.deadline() <= due && timer.deadline() > now) {
            return false;
        }
        if !is_known {
            self.wakes = Some(cx.waker().clone());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        // Whatever else this task has done: it must be heard of in any case, as it is not asked again.
        while pin!(unconstrained(timer.as_mut())).poll(cx).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            timer.as_mut().reset(due);
        }
        false
    }
}

/// A wait for somebody who has to move bytes at some rate on the whole. Only the time counts in which he is waited for.
#[derive(Debug, Default)]
pub struct Rate {
    wait: Wait,
    /// Longer than he may take for what he moved.
    late: Duration,
}

impl Rate {
    /// So much was moved.
    pub fn moved(&mut self, bytes: usize) {
        let waited = self.wait.took();
        if !waited.is_zero() || !self.late.is_zero() {
            let allowed = Duration::from_micros(bytes as u64 * 1_000_000 / RATE_MIN);
            self.late = (self.late + waited).saturating_sub(allowed);
        }
    }

    /// Call when pending. True when nothing was moved for `idle`, or too little for too long.
    pub fn is_slow(&mut self, cx: &mut Context<'_>, idle: Duration) -> bool {
        self.wait.is_overdue(cx, idle.min(RATE_GRACE.saturating_sub(self.late)))
    }

    /// A wait of another kind, whose time does not count.
    pub fn is_overdue(&mut self, cx: &mut Context<'_>, limit: Duration) -> bool {
        self.wait.is_overdue(cx, limit)
    }

    /// What was is over, and forgotten.
    pub fn over(&mut self) {
        self.wait.over();
        self.late = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    async fn overdue(wait: &mut Wait, limit: Duration) -> Duration {
        let began = Instant::now();
        poll_fn(|cx| if wait.is_overdue(cx, limit) { Poll::Ready(()) } else { Poll::Pending }).await;
        began.elapsed()
    }

    async fn pending_once(wait: &mut Wait, limit: Duration) {
        assert!(!poll_fn(|cx| Poll::Ready(wait.is_overdue(cx, limit))).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_from_its_own_begin_whatever_the_timer_was_set_for() {
        let mut wait = Wait::default();
        pending_once(&mut wait, Duration::from_secs(10)).await;
        tokio::time::advance(Duration::from_secs(9)).await;
        wait.over();
        // The timer fires after one second; the wait goes on for its full time.
        assert!(overdue(&mut wait, Duration::from_secs(10)).await >= Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_limit_moves_the_timer_forward() {
        let mut wait = Wait::default();
        pending_once(&mut wait, Duration::from_secs(75)).await;
        wait.over();
        assert!(overdue(&mut wait, Duration::from_secs(10)).await < Duration::from_secs(11));
    }

    /// After how long one is found too slow who moves so much each second.
    async fn found_slow(bytes: usize, seconds: u64) -> Option<Duration> {
        let (mut rate, began) = (Rate::default(), Instant::now());
        for _ in 0..seconds {
            let slow = poll_fn(|cx| if rate.is_slow(cx, RATE_GRACE * 2) { Poll::Ready(()) } else { Poll::Pending });
            if tokio::time::timeout(Duration::from_secs(1), slow).await.is_ok() {
                return Some(began.elapsed());
            }
            rate.moved(bytes);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn who_moves_too_little_on_the_whole_is_slow_and_who_moves_enough_never_is() {
        let grace = RATE_GRACE.as_secs();
        let least = RATE_MIN as usize;
        let drip = found_slow(1, 10 * grace).await.unwrap().as_secs();
        assert!((grace..=grace + 2).contains(&drip), "{drip} s");
        let half = found_slow(least / 2, 10 * grace).await.unwrap().as_secs();
        assert!((2 * grace - 2..=2 * grace + 2).contains(&half), "{half} s");
        assert_eq!(found_slow(least, 10 * grace).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn being_fast_for_long_gives_no_right_to_stand_still_and_a_pause_of_ours_does_not_count() {
        let mut rate = Rate::default();
        for _ in 0..1000 {
            rate.moved(1 << 20);
        }
        // He is not waited for: we are busy.
        tokio::time::advance(RATE_GRACE * 3).await;
        let began = Instant::now();
        poll_fn(|cx| if rate.is_slow(cx, RATE_GRACE * 2) { Poll::Ready(()) } else { Poll::Pending }).await;
        assert!((RATE_GRACE..RATE_GRACE * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
