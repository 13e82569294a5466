//! How long services' requests took at a node's HTTP door, by what was answered: counted since the start, for whoever looks. A request
//! costs two relaxed adds: what takes it knows where (`Doorway::answers`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;

/// Tops of the buckets, microseconds: those that Prometheus' own libraries have, and one below.
pub const TOPS_US: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];
/// Of answers, by the first digit of their status.
pub const CODES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Of one service, by the first digit of the status.
pub type ByCode = [Times; CODES.len()];

/// By service; of requests that no service takes, by the empty name.
#[derive(Debug, Default)]
pub struct Answers(RwLock<BTreeMap<Box<str>, Arc<ByCode>>>);

#[derive(Debug, Default)]
pub struct Times {
    /// In each bucket alone; the last: above all tops.
    counts: [AtomicU64; TOPS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Answers {
    /// A request of this service was answered after so long.
    pub fn note(&self, service: &str, status: StatusCode, took: Duration) {
        note(&self.of(service), status, took);
    }

    /// Where those of a service are counted.
    pub fn of(&self, service: &str) -> Arc<ByCode> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = all.get(service) {
            return Arc::clone(times);
        }
        drop(all);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(service.into()).or_default())
    }

    pub fn all(&self) -> Vec<(Box<str>, Arc<ByCode>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, times)| (name.clone(), Arc::clone(times))).collect()
    }
}

/// A request was answered after so long.
pub fn note(of: &ByCode, status: StatusCode, took: Duration) {
    of[usize::from(status.as_u16() / 100).clamp(1, CODES.len()) - 1].note(took);
}

impl Times {
    pub fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[TOPS_US.partition_point(|top| *top < micros)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(micros, Relaxed);
    }

    /// How many took so many microseconds at most (none: any time), the shortest first.
    pub fn within(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let mut all = 0;
        self.counts.iter().enumerate().map(move |(nth, count)| {
            all += count.load(Relaxed);
            (TOPS_US.get(nth).copied(), all)
        })
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_service_and_status_in_the_bucket_that_they_fit_into() {
        let answers = Answers::default();
        for (status, micros) in [(200, 1_000), (204, 1_001), (503, 20_000_000), (503, 7)] {
            answers.note("shop", StatusCode::from_u16(status).unwrap(), Duration::from_micros(micros));
        }
        answers.note("", StatusCode::NOT_FOUND, Duration::from_micros(5));
        let all = answers.all();
        assert_eq!(all.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["", "shop"]);
        let counts = |code: usize| all[1].1[code].within().map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(counts(1)[..3], [1, 2, 2]);
        assert_eq!((counts(4)[0], counts(4)[12], counts(4)[13]), (1, 1, 2));
        assert_eq!((all[1].1[1].sum_us(), all[0].1[3].within().last()), (2_001, Some((None, 1))));
    }
}
