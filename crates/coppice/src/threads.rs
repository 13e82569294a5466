//! The threads of the edges: as many as the core thread leaves processors. One more would take from it and from clones, and two
//! that share too little work cost more in waking each other than they get done (docs/performance.md).
//!
//! Where it is one, it takes its tasks in turn, however many are ready. A runtime of several has queues of 256 places, and what is
//! over them waits in one that all share, where a thread that has work hardly looks: of 512 busy connections some would wait ten
//! times as long as others.

use std::io;
use std::ops::Deref;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Until it is dropped, and with it all that runs there.
pub struct Threads {
    handle: Handle,
    kept: Kept,
}

enum Kept {
    /// Its end is that of its threads.
    Several {
        _runtime: Runtime,
    },
    One(Option<(oneshot::Sender<()>, JoinHandle<()>)>),
}

const NAME: &str = "coppice-edge";

impl Threads {
    pub fn start() -> Result<Self, String> {
        let count = std::thread::available_parallelism().map_or(1, |all| all.get() - 1);
        Self::of(count).map_err(|e| format!("cannot start: {e}"))
    }

    fn of(count: usize) -> io::Result<Self> {
        if count > 1 {
            let runtime = Builder::new_multi_thread().worker_threads(count).enable_all().thread_name(NAME).build()?;
            return Ok(Self { handle: runtime.handle().clone(), kept: Kept::Several { _runtime: runtime } });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let runs = move || {
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(runs)?;
        Ok(Self { handle, kept: Kept::One(Some((stop, thread))) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Deref for Threads {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Kept::One(one) = &mut self.kept
            && let Some((stop, thread)) = one.take()
        {
            drop(stop);
            // A panic there has been told.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::Poll;

    use super::*;

    /// More than one queue of a runtime of several threads holds.
    const TASKS: usize = 600;
    const TURNS: u64 = 200;

    #[test]
    fn however_many_connections_are_ready_each_has_its_turn() {
        let threads = Threads::of(1).unwrap();
        let turns: Arc<Vec<AtomicU64>> = Arc::new((0..TASKS).map(|_| AtomicU64::new(0)).collect());
        // Always ready, as a connection whose client asks again at once. Gives how many turns each has had at least when it is done.
        let busy = move |task: usize| {
            let turns = Arc::clone(&turns);
            poll_fn(move |cx| {
                if turns[task].fetch_add(1, Relaxed) + 1 == TURNS {
                    return Poll::Ready(turns.iter().map(|turns| turns.load(Relaxed)).min());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        };
        let all = threads.spawn(async move { (0..TASKS).map(|task| tokio::spawn(busy(task))).collect::<Vec<_>>() });
        let least = threads.block_on(async {
            let mut least = TURNS;
            for task in all.await.unwrap() {
                least = least.min(task.await.unwrap().unwrap());
            }
            least
        });
        assert_eq!(least, TURNS - 1, "who is done has had one turn more than others at most");
    }

    #[test]
    fn what_runs_there_ends_with_the_threads() {
        for count in [1, 2] {
            let threads = Threads::of(count).unwrap();
            let (held, is_over) = oneshot::channel::<()>();
            threads.spawn(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
            assert_eq!(threads.block_on(async { 7 }), 7);
            drop(threads);
            let waits = Builder::new_current_thread().build().unwrap();
            assert!(waits.block_on(is_over).is_err());
        }
    }
}
