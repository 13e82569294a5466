//! Two partitions of a web server on three nodes, one with one clone, one with two (Ninja figure 2): as load rises, the
//! second carries twice as much, and each degrades by itself. There latency grows with the load; here the edge refuses what
//! would wait, so latency stays and refusals grow.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::lines;
use crate::report::{Figure, Report};
use crate::web::{CSV, Load, STEP, Seen, line, rows};
use crate::worker;

const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
/// Of one clone, requests a second.
const CAPACITY: f64 = AT_ONCE as f64 / 0.025;
/// Load of each partition at the beginning and at the end, over what one clone can do.
const FROM: f64 = 0.1;
const TO: f64 = 2.5;
const KINDS: [&str; 2] = ["/one", "/two"];
/// Of the plot.
const SLOT: f64 = 1.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let cluster = Cluster::start(3, false)?;
    let program = worker::run_line(AT_ONCE, TAKES)?;
    cluster.serve(&format!(
        "[service.work]\n{program}clones = 3\nhealth = \"/health\"\nhttp = {{}}\n\
         [[service.work.partition]]\nname = \"one\"\npath = \"/one\"\nshare = \"33%\"\n\
         [[service.work.partition]]\nname = \"two\"\npath = \"/two\"\nshare = \"67%\"\n"
    ))?;
    let steps = (plan.seconds as f64 * 12.0 / STEP.as_secs_f64()) as usize;
    let rate = |step: usize| CAPACITY * (FROM + (TO - FROM) * step as f64 / steps as f64);
    let load = Load {
        doors: cluster.doors("http"),
        kinds: KINDS.to_vec(),
        apart: false,
        rates: (0..steps).map(|step| vec![rate(step); KINDS.len()]).collect(),
    };
    let length = load.seconds();
    let seen = load.start().wait()?;
    report(plan, &seen, length)
}

fn report(plan: &Plan, seen: &Seen, length: f64) -> Result<Report, String> {
    let mut report = Report::new("ninja2");
    // When each partition was offered so many times what one clone can do.
    let when = |of_one: f64| (of_one - FROM) / (TO - FROM) * length;
    let mut push = |measure: String, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    let window = |kind: usize, from: f64, to: f64| seen.of_kind(kind, when(from), when(to));
    let most = [0, 1].map(|kind| seen.rate(kind, when(2.1), length));
    push("most of two clones, over one clone's".into(), "1/s", most[1], "one clone", Some(most[0]));
    for (kind, clones) in [(0, 1.0), (1, 2.0)] {
        let what = format!("{clones:.0} clone(s)");
        push(format!("most of {what}"), "1/s", most[kind], "clones can do", Some(clones * CAPACITY));
        let calm = window(kind, 0.3, 0.8);
        push(format!("p50 at 0.3 to 0.8, {what}"), "ms", calm.ms(0.5), "", None);
        push(format!("p99 at 0.3 to 0.8, {what}"), "ms", calm.ms(0.99), "", None);
        for (from, to) in [(1.1, 1.8), (2.1, TO)] {
            let tally = window(kind, from, to);
            let of = format!("at {from} to {to}, {what}");
            push(format!("p50 {of}"), "ms", tally.ms(0.5), "itself before", Some(calm.ms(0.5)));
            push(format!("p99 {of}"), "ms", tally.ms(0.99), "itself before", Some(calm.ms(0.99)));
            push(format!("refused {of}"), "of offered", tally.refused as f64 / tally.offered.max(1) as f64, "", None);
        }
        // The paper's "variance": how far seconds at the most differ from each other.
        let seconds = seen.rates("", kind, SLOT, length).points;
        let full: Vec<f64> = seconds.into_iter().filter(|(at, _)| *at >= when(2.1)).map(|(_, rate)| rate).collect();
        push(format!("swings from second to second, {what}"), "of mean", swings(&full), "", None);
    }
    let all = seen.all();
    push("failed (not refused)".into(), "requests", all.failed as f64, "", None);
    push("all requests".into(), "requests", all.offered as f64, "", None);
    report.notes.extend(all.first_failure.map(|why| format!("first failure: {why}")));
    report.notes.push(format!(
        "a clone does {CAPACITY:.0} a second; load of each partition rises from {FROM} to {TO} times that in {length:.0} s"
    ));

    let both: Vec<_> = (0..2).map(|kind| seen.slots(SLOT, length, kind)).collect();
    let names = ["one clone", "two clones"];
    let p50: Vec<_> = names.iter().zip(&both).map(|(name, slots)| line(name, slots, |t| t.ms(0.5))).collect();
    let mut rates: Vec<_> = names.iter().enumerate().map(|(kind, name)| seen.rates(name, kind, SLOT, length)).collect();
    rates.push(line("offered to each", &both[0], |t| t.offered as f64 / SLOT));
    let svg = lines("Two partitions as load rises", "seconds", "answers a second", &rates, &[]);
    report.write(&plan.out, "ninja2-throughput.svg", &svg)?;
    let svg = lines("Two partitions as load rises", "seconds", "p50 of the second, ms", &p50, &[]);
    report.write(&plan.out, "ninja2-latency.svg", &svg)?;
    report.write(&plan.out, "ninja2.csv", &(CSV.to_owned() + &rows(seen, &KINDS, SLOT, length)))?;
    Ok(report)
}

/// Standard deviation over the mean.
fn swings(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt() / mean.max(1e-9)
}

#[cfg(test)]
mod tests {
    #[test]
    fn swings_are_relative() {
        assert_eq!(super::swings(&[10.0, 10.0]), 0.0);
        assert_eq!(super::swings(&[5.0, 15.0]), 0.5);
    }
}
