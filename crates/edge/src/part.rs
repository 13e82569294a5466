//! What a partition's requests, or the rest of a service's, met at a node's doors: counted for whoever looks, and for when one of them
//! is late. Nothing is decided here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use flow::hedge::Hedge;
use flow::histogram::{Powers, bucket_of, percentile};

use crate::turnstile::{Front, buckets};

/// What a partition, or a service's rest, is shown with.
#[derive(Default)]
pub struct Part {
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    /// From a request's coming to the head of its answer, microseconds; made for those that have requests.
    took_us: OnceLock<Box<[AtomicU64]>>,
    sum_us: AtomicU64,
    /// When one of its requests is late; made for those that ask a second clone then.
    hedge: OnceLock<Mutex<Hedge>>,
    pub races: Races,
}

/// Requests that were asked of several clones.
#[derive(Default)]
pub struct Races {
    /// Clones that were asked besides the first.
    pub asked: AtomicU64,
    /// Answers that were not the first one's.
    pub won: AtomicU64,
    /// Clones whose answer was not waited for.
    pub cancelled: AtomicU64,
    /// Clones that were not asked, as there was too much to do, or too many had been.
    pub withheld: AtomicU64,
}

impl Part {
    pub fn done(&self, took: Duration) {
        self.requests.fetch_add(1, Relaxed);
        let histogram = self.took_us.get_or_init(buckets);
        histogram[bucket_of(took.as_micros() as u64)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took.as_micros() as u64, Relaxed);
    }

    pub fn refused(&self) {
        self.requests.fetch_add(1, Relaxed);
        self.refused.fetch_add(1, Relaxed);
    }

    pub fn hedge(&self) -> MutexGuard<'_, Hedge> {
        self.hedge.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn figures(&self, door: Front, service: &str, partition: &str) -> PartFigures {
        let Races { asked, won, cancelled, withheld } = &self.races;
        let counts: Vec<u64> = self.took_us.get().into_iter().flatten().map(|n| n.load(Relaxed)).collect();
        let mut took = Powers::default();
        took.add(&counts, self.sum_us.load(Relaxed));
        PartFigures {
            door,
            service: service.into(),
            partition: partition.into(),
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            p50_us: percentile(&counts, 50),
            p99_us: percentile(&counts, 99),
            took,
            asked_more: asked.load(Relaxed),
            won_by_other: won.load(Relaxed),
            cancelled: cancelled.load(Relaxed),
            withheld: withheld.load(Relaxed),
        }
    }
}

/// What a partition's requests, or connections, met at a node's doors since it started.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PartFigures {
    pub door: Front,
    pub service: String,
    /// Empty for the service's rest.
    pub partition: String,
    pub requests: u64,
    /// For lack of room, or as it was out of use.
    pub refused: u64,
    /// From a request's coming to the head of its answer, microseconds; of a connection to the clone's first byte.
    pub p50_us: u64,
    pub p99_us: u64,
    /// All of them; for `/metrics` alone.
    #[serde(skip)]
    pub took: Powers,
    /// As [`Races`] has them.
    pub asked_more: u64,
    pub won_by_other: u64,
    pub cancelled: u64,
    pub withheld: u64,
}
