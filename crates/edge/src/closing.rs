//! When this node's doors close, as it restarts or leaves. Requests and answers end by themselves, long connections do not
//! (`crate::pace`). So from the moment when the node is asked to go they end one after the other, while its clones move and
//! its doors are still open; only then nobody is let in any more. Whoever was told to go and came back to this very node, or
//! came since, has its turn after that, in [`LAST_TIME`]: it waits in the kernel's queue for the next program, and so does
//! everybody else meanwhile.
//!
//! A connection of HTTP/1.1 that is kept from one request to the next cannot be ended without a word: its client may be sending
//! the next one just now, and would lose it. So before the doors close each answer says that it is the last (`Connection:
//! close`), and only what nobody used for a while is closed. HTTP/2 needs none of that: its goodbye (GOAWAY) says what was heard.

use std::sync::Arc;
use std::time::Duration;

use node::View;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::http::limits::{GOODBYE_TIME, LEAVE_PART};
use crate::meter::Meter;

/// Long connections have as long as those to a leaving clone of the service that gives most (`stop.drain`), but no longer
/// than this: another node could die while this one waits with its restart.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Those that came meanwhile have so long.
pub const LAST_TIME: Duration = Duration::from_secs(1);
/// Kept connections are closed when nobody sent a request in so long. A pool in use gives out all that it has in this time, as
/// none comes back to it; what is left is hardly used at the very moment when it is closed. Without such connections there is no wait.
pub const QUIET_TIME: Duration = Duration::from_secs(3);
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
    while !stays.have_left(GOODBYE_TIME) || meter.http.kept() > 0 && Instant::now() < quiet_at {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stays.leave(LAST_TIME);
}
