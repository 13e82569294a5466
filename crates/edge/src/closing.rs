//! When this node's doors close, as it restarts or leaves. Requests and answers end by themselves, long connections do not
//! (`crate::pace`). So from the moment when the node is asked to go they end one after the other, while its clones move and
//! its doors are still open; only then nobody is let in any more. Whoever was told to go and came back to this very node, or
//! came since, has its turn after that, in [`LAST_TIME`]: it waits in the kernel's queue for the next program, and so does
//! everybody else meanwhile.
//!
//! A connection of HTTP/1.1 that is kept from one request to the next cannot be ended without a word: its client may be sending
//! the next one just now, and would lose it. So before the doors close each answer says that it is the last (`Connection:
//! close`), and only what nobody used for a while is closed. And the moment is one in which nobody who came since is in the middle of a
//! long answer, if there is such a moment: who connects when the doors have closed waits for the end of all. HTTP/2 needs none of that: its goodbye (GOAWAY) says what was heard.

use std::sync::Arc;
use std::time::Duration;

use node::View;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::{GOODBYE_TIME, LEAVE_PART};
use crate::meter::Meter;

/// Long connections have as long as those to a leaving clone of the service that gives most (`stop.drain`), but no longer
/// than this: another node could die while this one waits with its restart.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Those that came meanwhile have so long, ...
pub const LAST_TIME: Duration = Duration::from_secs(1);
/// ... and no longer than this for each where all can go at any time: who connects waits for them.
const LAST_EACH: Duration = Duration::from_millis(2);
/// Kept connections are closed when nobody sent a request in so long. A pool in use gives out all that it has in this time, as
/// none comes back to it; what is left is hardly used at the very moment when it is closed. Without such connections there is no wait.
pub const QUIET_TIME: Duration = Duration::from_secs(3);
/// An answer is long for which somebody who connects to a restarting node would wait for more than half of what that takes anyway.
const LONG_TIME: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Ends when nobody more is to be let in. Each door asks for itself.
pub async fn closes(mut view: watch::Receiver<Arc<View>>, meter: Arc<Meter>) {
    let stays = &meter.stays;
    loop {
        let (leaves, closing, time) = {
            let view = view.borrow_and_update();
            let leaves = || view.nodes.iter().any(|node| node.name == view.me && node.leaving.is_some());
            let time = view.routes.services.iter().map(|service| Duration::from(service.drain)).max();
            (view.closing.is_some() || leaves(), view.closing.is_some(), time.unwrap_or_default())
        };
        if leaves {
            stays.leave_first(time.min(TIME_MAX) * LEAVE_PART.0 / LEAVE_PART.1);
        } else {
            stays.stay();
        }
        if closing {
            break;
        }
        if view.changed().await.is_err() {
            // The node is gone, which is not for its doors to act upon.
            std::future::pending().await
        }
    }
    meter.http.part();
    let quiet_at = Instant::now() + QUIET_TIME;
    let is_busy = || meter.http.kept() > 0 || meter.http.newcomers.has_older(Instant::now().into_std(), LONG_TIME);
    while !stays.have_left(GOODBYE_TIME) || is_busy() && Instant::now() < quiet_at {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stays.leave(last_time(stays.framed()));
}

/// For so many that can go at any time; none: some cannot.
fn last_time(framed: Option<usize>) -> Duration {
    let each = |count: usize| LAST_EACH.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    framed.map_or(LAST_TIME, each).min(LAST_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_does_not_wait_a_second_for_a_few_that_can_go_at_any_time() {
        assert_eq!([Some(0), Some(20)].map(last_time), [Duration::ZERO, Duration::from_millis(40)]);
        assert_eq!([Some(10_000), None].map(last_time), [LAST_TIME; 2]);
    }
}
