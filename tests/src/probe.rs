//! Another client, who minds his own business while somebody misbehaves: writes and reads back a value a few hundred times a
//! second on one connection, and remembers how long each took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::resp::{Resp, Word};

/// Between two operations: often enough to meet a stall of 10 ms several times.
const PAUSE: Duration = Duration::from_millis(2);

pub struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>, String>>,
}

/// What the prober saw.
#[derive(Clone, Debug)]
pub struct Seen {
    pub operations: usize,
    pub p50: Duration,
    pub p99: Duration,
    pub slowest: Duration,
}

impl Prober {
    pub fn start(at: SocketAddr, namespace: &str, token: &str) -> Prober {
        let mut client = Resp::open(at, namespace, token).expect("the prober gets in");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut took = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let value = format!("value {}", took.len());
                for (words, expect) in [
                    (vec!["SET", "prober", &value], Word::Simple("OK".into())),
                    (vec!["GET", "prober"], Word::Bulk(value.clone())),
                ] {
                    let begun = Instant::now();
                    let answer = client.ask(&words)?;
                    took.push(begun.elapsed());
                    if answer != expect {
                        return Err(format!("{words:?} was answered with {answer:?}"));
                    }
                }
                std::thread::sleep(PAUSE);
            }
            Ok(took)
        });
        Prober { stop, thread }
    }

    /// # Panics
    /// If one operation failed.
    #[track_caller]
    pub fn seen(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let took = self.thread.join().expect("the prober does not panic");
        let mut took = took.unwrap_or_else(|error| panic!("another client was harmed: {error}"));
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        Seen { operations: took.len(), p50: at(0.5), p99: at(0.99), slowest: at(1.0) }
    }
}
