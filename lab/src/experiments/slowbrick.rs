//! One brick is made slow for a while (SSM figure 13: a sleep of 1 ms before each request), and users at the other nodes
//! go on. The sleep comes from outside: the brick's process is stopped for a millisecond, again and again, so the shipped
//! program is measured. What is compared: the users' throughput and latency before and meanwhile.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::figure4::{failures, plot, users_beside};
use crate::Plan;
use crate::cluster::send;
use crate::report::{Figure, Report};

const VICTIM: usize = 3;
const ASLEEP: Duration = Duration::from_millis(1);
/// Enough for a few requests: then it is asleep again.
const AWAKE: Duration = Duration::from_micros(100);

pub fn run(plan: &Plan) -> Result<Report, String> {
    let third = plan.seconds as f64 * 2.0;
    let (cluster, running) = users_beside(4, VICTIM)?;
    let pid = cluster.pid(VICTIM).ok_or("no pid")?;
    running.wait_until(third);
    let from = running.seconds();
    let mut asleep = Duration::ZERO;
    while running.seconds() < 2.0 * third {
        send(pid, Signal::STOP)?;
        let stopped = Instant::now();
        std::thread::sleep(ASLEEP);
        send(pid, Signal::CONT)?;
        asleep += stopped.elapsed();
        std::thread::sleep(AWAKE);
    }
    let to = running.seconds();
    running.wait_until(3.0 * third);
    let until = running.seconds();
    let seen = running.end()?;

    let mut report = Report::new("slowbrick");
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "itself before", peer));
    };
    let before = seen.rate(1.0, from);
    push("share of time that the brick was stopped", "of 1", asleep.as_secs_f64() / (to - from), None);
    push("operations before", "1/s", before, None);
    push("operations meanwhile", "1/s", seen.rate(from, to), Some(before));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let normal = seen.quantile(quantile, 1.0, from);
        push(&format!("{name} meanwhile"), "ms", seen.quantile(quantile, from, to), Some(normal));
    }
    push("slowest", "ms", seen.slowest(), None);
    failures(&mut report, &seen);
    plot(plan, &mut report, &seen, until, &[from, to], "One brick of four slow (between the dashes)")?;
    Ok(report)
}
