//! What the front doors count: requests, failures and latency of the last second, for the monitor and for load reports.
//! Counting costs a few relaxed atomic adds per request and never waits; whoever asks for gauges pays for the sums.
//! Latency goes into log-linear buckets (16 to a power of two), so a percentile is at most 1/16 too high.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::demand::Demands;

/// Buckets to a power of two.
const STEPS: u64 = 16;
/// Longest latency told apart: 2^36 microseconds, 19 hours. Longer ones count as this.
const BITS_MAX: u32 = 36;
const BUCKETS: usize = ((BITS_MAX - 3) as usize) * STEPS as usize;
/// Gauges are of one second. Asked again sooner than this, the same second is shown: two readers must not halve it.
const ROLL_MIN: Duration = Duration::from_millis(900);

/// All doors of one node.
#[derive(Debug)]
pub struct Meter {
    /// `http.requests`, `http.errors` (5xx of our own making), `http.p50_us`, `http.p99_us`, `http.connections`.
    pub http: Arc<Door>,
    /// `resp.commands`, `resp.errors`, `resp.p50_us`, `resp.p99_us`, `resp.connections`.
    pub resp: Arc<Door>,
    /// `tcp.streams` (connections ended), `tcp.errors` (no clone reached), `tcp.connections`.
    pub tcp: Arc<Door>,
    /// `http.sessions_read_total` and so on.
    pub sessions: Arc<Sessions>,
    /// What the clones of services are asked for: for the manager.
    pub demands: Arc<Demands>,
}

/// Sessions that the HTTP door carried, counted since the start. Bad cookies are counted by the node (`session.cookies_*`).
#[derive(Debug, Default)]
pub struct Sessions {
    /// Given to a program with a request.
    pub read: AtomicU64,
    /// Written because a program returned a value.
    pub stored: AtomicU64,
    /// Prolonged without a new value.
    pub touched: AtomicU64,
    /// Ended by a program.
    pub ended: AtomicU64,
    /// Requests that ended in 503, since the session could not be read or stored.
    pub failed: AtomicU64,
}

/// One front door's counts.
#[derive(Debug)]
pub struct Door {
    name: &'static str,
    /// What one unit of work is called in gauges: `requests`, `commands`.
    unit: &'static str,
    done: AtomicU64,
    errors: AtomicU64,
    connections: AtomicU64,
    latency_us: Box<[AtomicU64]>,
    last: Mutex<Last>,
}

/// Sums at the last roll, and what the second before it looked like.
#[derive(Debug)]
struct Last {
    at: Instant,
    done: u64,
    errors: u64,
    latency_us: Vec<u64>,
    shown: Second,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    done: u64,
    errors: u64,
    p50_us: u64,
    p99_us: u64,
}

/// Holds the count of open connections up until it is dropped.
#[derive(Debug)]
pub struct Opened(Arc<Door>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    pub fn new() -> Self {
        Self {
            http: Arc::new(Door::new("http", "requests")),
            resp: Arc::new(Door::new("resp", "commands")),
            tcp: Arc::new(Door::new("tcp", "streams")),
            sessions: Arc::default(),
            demands: Arc::default(),
        }
    }

    /// Figures of the last second (rates are per second), by name. Meant to be asked once a second.
    pub fn gauges(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for door in [&self.http, &self.resp, &self.tcp] {
            door.gauges(Instant::now(), &mut all);
        }
        all
    }

    /// Counted since the start: `http.requests_total`, `http.errors_total`, and so on.
    pub fn totals(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for door in [&self.http, &self.resp, &self.tcp] {
            all.insert(format!("{}.{}_total", door.name, door.unit), door.done.load(Relaxed));
            all.insert(format!("{}.errors_total", door.name), door.errors.load(Relaxed));
        }
        let Sessions { read, stored, touched, ended, failed } = &*self.sessions;
        for (what, count) in
            [("read", read), ("stored", stored), ("touched", touched), ("ended", ended), ("failed", failed)]
        {
            all.insert(format!("http.sessions_{what}_total"), count.load(Relaxed));
        }
        all
    }
}

impl Door {
    fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            latency_us: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            last: Mutex::new(Last {
                at: Instant::now(),
                done: 0,
                errors: 0,
                latency_us: vec![0; BUCKETS],
                shown: Second::default(),
            }),
        }
    }

    /// One unit of work ended after `took`; `failed` if we could not do what we are there for.
    pub fn done(&self, took: Duration, failed: bool) {
        self.done.fetch_add(1, Relaxed);
        if failed {
            self.errors.fetch_add(1, Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency_us[bucket_of(micros)].fetch_add(1, Relaxed);
    }

    /// A connection is open until the answer is dropped.
    pub fn opened(self: &Arc<Self>) -> Opened {
        self.connections.fetch_add(1, Relaxed);
        Opened(Arc::clone(self))
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    fn gauges(&self, now: Instant, all: &mut BTreeMap<String, u64>) {
        let shown = self.roll(now);
        let mut put = |what: &str, value| all.insert(format!("{}.{what}", self.name), value);
        put(self.unit, shown.done);
        put("errors", shown.errors);
        put("p50_us", shown.p50_us);
        put("p99_us", shown.p99_us);
        put("connections", self.connections.load(Relaxed));
    }

    fn roll(&self, now: Instant) -> Second {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(last.at);
        if passed < ROLL_MIN {
            return last.shown;
        }
        let per_second = |n: u64| (n as f64 / passed.as_secs_f64()).round() as u64;
        let (done, errors) = (self.done.load(Relaxed), self.errors.load(Relaxed));
        let sums: Vec<u64> = self.latency_us.iter().map(|n| n.load(Relaxed)).collect();
        let new: Vec<u64> = sums.iter().zip(&last.latency_us).map(|(now, then)| now - then).collect();
        last.shown = Second {
            done: per_second(done - last.done),
            errors: per_second(errors - last.errors),
            p50_us: percentile(&new, 50),
            p99_us: percentile(&new, 99),
        };
        (last.at, last.done, last.errors, last.latency_us) = (now, done, errors, sums);
        last.shown
    }
}

fn bucket_of(micros: u64) -> usize {
    let micros = micros.min((1 << BITS_MAX) - 1);
    if micros < STEPS {
        return micros as usize;
    }
    // The highest bit says which power of two, the four bits after it which sixteenth of it.
    let bits = micros.ilog2();
    let step = (micros >> (bits - 4)) & (STEPS - 1);
    (((bits - 3) as u64) * STEPS + step) as usize
}

/// Largest latency that falls into a bucket.
fn top_of(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { ((STEPS + step + 1) << (power - 1)) - 1 }
}

fn percentile(counts: &[u64], percent: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let rank = (all * percent).div_ceil(100);
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if *count > 0 && seen >= rank {
            return top_of(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_a_bucket_that_is_at_most_a_sixteenth_too_high() {
        for micros in (0..2_000).chain([4_095, 4_096, 123_456, 1 << 30, (1 << BITS_MAX) - 1]) {
            let top = top_of(bucket_of(micros));
            assert!(top >= micros && top <= micros + micros / 16, "{micros} became {top}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn gauges_show_the_last_second_and_two_readers_see_the_same() {
        let meter = Meter::new();
        let start = Instant::now();
        for micros in 1..=100 {
            meter.http.done(Duration::from_micros(micros * 100), micros == 7);
        }
        let _open = meter.http.opened();
        let mut all = BTreeMap::new();
        meter.http.gauges(start + Duration::from_secs(1), &mut all);
        assert!((99..=100).contains(&all["http.requests"]) && all["http.connections"] == 1, "{all:?}");
        assert_eq!(all["http.errors"], 1);
        assert!((5_000..5_400).contains(&all["http.p50_us"]), "{all:?}");
        assert!((9_900..10_600).contains(&all["http.p99_us"]), "{all:?}");

        let mut again = BTreeMap::new();
        meter.http.gauges(start + Duration::from_millis(1_500), &mut again);
        assert_eq!(all, again, "asked within the second, the same second is shown");
        meter.http.gauges(start + Duration::from_secs(3), &mut again);
        assert_eq!((again["http.requests"], again["http.p99_us"]), (0, 0), "then nothing happened");
        assert_eq!(meter.totals()["http.requests_total"], 100);
    }

    #[test]
    fn a_connection_is_open_until_it_is_dropped() {
        let meter = Meter::new();
        let first = meter.resp.opened();
        let second = meter.resp.opened();
        drop(first);
        assert_eq!(meter.resp.connections(), 1);
        drop(second);
        assert_eq!(meter.resp.connections(), 0);
    }
}
