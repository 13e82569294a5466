//! One brick of four is killed and started again later (SSM figure 4, there at 30 s and 40 s of about 60): throughput
//! stays, no request fails, nothing is lost. Users go through the other three nodes, as SSM's stubs lived elsewhere.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};
use crate::users::{Crowd, Doors, Running, Seen};

/// Ten users of moderate zeal: the paper's system is not overloaded in this experiment either.
pub const USERS: usize = 10;
pub const PAUSE: Duration = Duration::from_millis(5);
const VICTIM: usize = 3;

pub fn run(plan: &Plan) -> Result<Report, String> {
    // The paper's minute is 12 times the default five seconds.
    let minute = plan.seconds as f64 * 12.0;
    let (killed, back) = (minute / 2.0, minute * 2.0 / 3.0);
    let (mut cluster, running) = users_beside(4, VICTIM)?;
    running.wait_until(killed);
    cluster.hold_restarts(true)?;
    cluster.kill(VICTIM)?;
    running.wait_until(back);
    cluster.hold_restarts(false)?;
    cluster.wait_restarted(VICTIM)?;
    let ready = running.seconds();
    running.wait_until(minute.max(ready + plan.seconds as f64));
    let until = running.seconds();
    let seen = running.end()?;

    let mut report = Report::new("figure4");
    let before = seen.rate(1.0, killed);
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "itself before", peer));
    };
    push("operations before the kill", "1/s", before, None);
    push("operations while it is dead", "1/s", seen.rate(killed, back), Some(before));
    push("operations after its return", "1/s", seen.rate(ready, until - 0.5), Some(before));
    let p999 = seen.quantile(0.999, 1.0, killed);
    push("p99.9 before", "ms", p999, None);
    push("p99.9 in the second after the kill", "ms", seen.quantile(0.999, killed, killed + 1.0), Some(p999));
    push("p99.9 in the second after its return", "ms", seen.quantile(0.999, ready, ready + 1.0), Some(p999));
    push("slowest", "ms", seen.slowest(), None);
    failures(&mut report, &seen);
    plot(plan, &mut report, &seen, until, &[killed, back], "One brick of four killed, and started again (dashed)")?;
    Ok(report)
}

/// A cluster, and users at all its nodes but one.
pub fn users_beside(nodes: u8, not_at: usize) -> Result<(Cluster, Running), String> {
    let (cluster, mut target) = Cluster::with_sessions(nodes, &[])?;
    target.addrs.remove(not_at);
    let doors = Doors::Any { addrs: target.addrs, auth: target.auth };
    let running = Crowd { doors, users: USERS, value_bytes: 8192, pause: PAUSE, unique: false }.start();
    Ok((cluster, running))
}

pub fn failures(report: &mut Report, seen: &Seen) {
    let mut push = |measure: &str, value: f64| {
        report.figures.push(Figure::new(measure, "operations", value, "none", None));
    };
    push("failed requests", seen.failed.len() as f64);
    push("wrong or lost values", (seen.wrong + seen.lost) as f64);
    report.notes.extend(seen.first_failure.iter().map(|why| format!("first failure: {why}")));
}

/// Throughput and the slowest of each second, as CSV and as a plot.
pub fn plot(
    plan: &Plan,
    report: &mut Report,
    seen: &Seen,
    until: f64,
    marks: &[f64],
    title: &str,
) -> Result<(), String> {
    let rates = seen.per_second(until.floor());
    let mut csv = "second,operations,failed_tries,p50_ms,p999_ms,slowest_ms\n".to_owned();
    for (second, operations) in &rates {
        let quantile = |q| seen.quantile(q, *second, second + 1.0);
        let failed = seen.failed.iter().filter(|at| **at >= *second && **at < second + 1.0).count();
        csv += &format!(
            "{second},{operations},{failed},{:.2},{:.2},{:.2}\n",
            quantile(0.5),
            quantile(0.999),
            quantile(1.0)
        );
    }
    let name = report.name.clone();
    report.write(&plan.out, &format!("{name}.csv"), &csv)?;
    let svg =
        lines(title, "seconds", "operations a second", &[Line { name: "operations/s".into(), points: rates }], marks);
    report.write(&plan.out, &format!("{name}.svg"), &svg)
}
