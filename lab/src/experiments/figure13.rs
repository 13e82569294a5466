//! A brick sleeps 1 ms before each request (SSM figure 13): nothing says so, but compared with its peers it is slow. How long
//! until the others find it and it starts anew; the paper took 5 to 10 s. The sleep comes from outside: its process is
//! stopped for a millisecond, again and again, until the brick has started anew, which cured it in the paper.
//!
//! `slowbrick` shows the same fault without an end, and what users notice of it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::onebrick::{Trial, report as common};
use crate::Plan;
use crate::cluster::send;
use crate::report::{Figure, Report};

/// The paper's, and what is tried next where the machine is so busy that a millisecond is lost among its own pauses: a brick
/// is found that takes twice as long as the others.
const ASLEEP: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// Enough for a few requests: then it is asleep again.
const AWAKE: Duration = Duration::from_micros(100);
/// Stubs learn what is usual for a brick for half a minute first (`OUTLIER_LEARNS` in `session/src/limits.rs`).
const LEARNS: f64 = 40.0;
const FOUND_WITHIN: f64 = 40.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("figure13");
    let trial = Trial::start()?;
    trial.running.wait_until(LEARNS);
    let pid = trial.pid()?;
    let anew = trial.last().map_or(0.0, |sight| sight.anew);
    let first = trial.seconds();
    let (mut found, mut fault, mut asleep) = (None, first, ASLEEP[0]);
    for sleep in ASLEEP {
        (fault, asleep) = (trial.seconds(), sleep);
        let (mut looked, mut stopped) = (Instant::now(), Duration::ZERO);
        while found.is_none() && trial.seconds() < fault + FOUND_WITHIN {
            send(pid, Signal::STOP)?;
            let begun = Instant::now();
            std::thread::sleep(sleep);
            send(pid, Signal::CONT)?;
            stopped += begun.elapsed();
            std::thread::sleep(AWAKE);
            if looked.elapsed() > Duration::from_millis(100) {
                looked = Instant::now();
                found = trial.when(fault, |sight| sight.anew > anew);
            }
        }
        report.notes.push(format!(
            "asleep for {} ms again and again: {:.0} % of the time, {}",
            sleep.as_millis(),
            100.0 * stopped.as_secs_f64() / (trial.seconds() - fault),
            found.map_or_else(
                || format!("not found within {FOUND_WITHIN} s"),
                |at| format!("found after {:.1} s", at - fault)
            )
        ));
        if found.is_some() {
            break;
        }
    }
    let over = trial.seconds();
    let whole = found.and_then(|_| trial.wait(30.0, |sight| sight.is_live && sight.is_settled));
    trial.running.wait_until(trial.seconds() + plan.seconds as f64);
    let (seen, until) = trial.end()?;
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "SSM's paper, at most", peer));
    };
    if let Some(found) = found {
        push("the brick sleeps before requests for", "ms", asleep.as_secs_f64() * 1e3, Some(1.0));
        push("until it is found by comparison", "s", found - fault, Some(10.0));
    }
    if let (Some(found), Some(whole)) = (found, whole) {
        push("from then until it is whole", "s", (whole - found).max(0.0), None);
    }
    let title = "One brick of five sleeps before each request (between the dashes), until it is found";
    common(plan, &mut report, (&seen, until), (first, over), &[first, fault, over], title)?;
    Ok(report)
}
