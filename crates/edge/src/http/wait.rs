//! A timeout for streams that cost nothing while bytes flow. There may be many thousand waits a second on one connection,
//! and nearly all end early; so the timer is left alone and looks at its true deadline only when it fires.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timeout that costs nothing while bytes flow: the timer is left alone and looks at its true deadline when it fires.
#[derive(Debug, Default)]
pub struct Wait {
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    /// Bytes came: the next wait begins anew.
    pub fn over(&mut self) {
        self.since = None;
    }

    /// Call when pending. True when it has been pending for `limit`.
    pub fn is_overdue(&mut self, cx: &mut Context<'_>, limit: Duration) -> bool {
        let due = *self.since.get_or_insert_with(Instant::now) + limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            timer.as_mut().reset(due);
        }
        false
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
}
