//! Light, steady load while something is killed: shoppers who put things into their carts and look at them, each through
//! one address, and who remember everything that went wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http::Shopper;

/// Between two requests of one shopper: enough of them that a window of a millisecond is met, few enough for two cores.
const PAUSE: Duration = Duration::from_millis(15);

pub struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    shoppers: Vec<JoinHandle<Report>>,
}

#[derive(Default)]
pub struct Report {
    pub requests: u64,
    pub failures: Vec<String>,
    pub slowest: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Adds and looks in turn, and every cart it sees must hold what it was told.
    AddsAndLooks,
    Looks,
}

impl Load {
    /// Two shoppers at each of these addresses.
    pub fn start(at: &[SocketAddr], does: Does) -> Load {
        let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let shopper = |(nth, at): (usize, SocketAddr)| {
            let (stop, requests) = (Arc::clone(&stop), Arc::clone(&requests));
            let tag = format!("load-{nth}-{:?}", Instant::now()).replace(|c: char| !c.is_ascii_alphanumeric(), "");
            std::thread::spawn(move || shop(at, does, Shopper::new(&tag), &stop, &requests))
        };
        let shoppers = at.iter().flat_map(|at| [*at, *at]).enumerate().map(shopper).collect();
        let load = Load { stop, requests, shoppers };
        load.go_on(4 * at.len() as u64);
        load
    }

    /// Waits until so many more requests have ended: load is on, not only meant to be.
    #[track_caller]
    pub fn go_on(&self, requests: u64) {
        let until = self.requests.load(Ordering::Relaxed) + requests;
        crate::soon("requests end", 20, || self.requests.load(Ordering::Relaxed) >= until);
    }

    pub fn end(mut self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Report::default();
        for shopper in self.shoppers.drain(..) {
            let report = shopper.join().expect("a shopper counts failures and does not panic");
            all.requests += report.requests;
            all.failures.extend(report.failures);
            all.slowest = all.slowest.max(report.slowest);
        }
        all
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Report {
    #[track_caller]
    pub fn no_failures(&self, when: &str) {
        let shown = &self.failures[..self.failures.len().min(5)];
        assert!(
            self.failures.is_empty(),
            "{} of {} requests failed {when}, the first: {shown:#?}",
            self.failures.len(),
            self.requests
        );
        crate::say(&format!(
            "{when}: {} requests, 0 failed, the slowest took {} ms",
            self.requests,
            self.slowest.as_millis()
        ));
    }

    /// Nothing failed but what was inside of a clone that ended, or hung, and may not be repeated: its client is told that it
    /// is unknown whether it was carried out. Each shopper can have had one of these; his cart differs from then on.
    #[track_caller]
    pub fn only_unrepeatable(&self, shoppers: usize, when: &str) {
        let told =
            |failure: &&String| failure.starts_with("POST") && failure.contains("502") && failure.contains("unknown");
        let was_told = self.failures.iter().filter(told).count();
        let follows = |failure: &&String| failure.starts_with("cart at") && was_told > 0;
        let others: Vec<_> = self.failures.iter().filter(|f| !told(f) && !follows(f)).collect();
        assert!(others.is_empty() && was_told <= shoppers, "{when}: {:#?}", self.failures);
        crate::say(&format!(
            "{when}: {} requests, {was_told} told that it is unknown whether they were carried out, the slowest took {} ms",
            self.requests,
            self.slowest.as_millis()
        ));
    }
}

fn shop(at: SocketAddr, does: Does, mut me: Shopper, stop: &AtomicBool, requests: &AtomicU64) -> Report {
    let mut report = Report::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let done = match does {
            Does::AddsAndLooks if report.requests % 2 == 0 => me.add(at, "honey"),
            Does::AddsAndLooks => me.check(at),
            Does::Looks => me.look(at).map(|_| ()),
        };
        report.requests += 1;
        report.slowest = report.slowest.max(begun.elapsed());
        if let Err(why) = done {
            report.failures.push(format!("{why} (after {} ms)", begun.elapsed().as_millis()));
        }
        requests.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    report
}
