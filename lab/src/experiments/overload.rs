//! Load beyond what the cluster can do (SSM figures 8 and 9): open-loop arrivals from half of the peak to three times
//! it, with self-protection and without. What counts is goodput: operations done within their deadline.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::load::{self, Target};
use crate::open::{Bin, Shape, load};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};

const CONNECTIONS: usize = 120;
const DEADLINE: Duration = Duration::from_millis(100);
/// Offered load over the peak.
const STEPS: [f64; 6] = [0.5, 0.75, 1.0, 1.5, 2.0, 3.0];
const SIZES: [usize; 2] = [1024, 8192];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("overload");
    let mut csv = "bytes,protection,round,of_peak,offered,good,late,refused,failed,unanswered,wrong,p99_us,refused_p50_us,refused_p99_us,alone_p50_us\n"
        .to_owned();
    for bytes in SIZES {
        let mut curves = Vec::new();
        for (name, environment) in [("protected", &[][..]), ("unprotected", &UNPROTECTED[..])] {
            let (mut good, mut at_step) = (vec![Vec::new(); STEPS.len()], vec![Bin::default(); STEPS.len()]);
            let mut peaks = Vec::new();
            for round in 0..plan.rounds {
                let (cluster, target) = Cluster::with_sessions(3, environment)?;
                cluster.set_apart()?;
                let peak = peak(&target, bytes, plan)?;
                peaks.push(peak);
                for (i, step) in STEPS.iter().enumerate() {
                    let bin = steady(&target, bytes, peak * step, plan)?;
                    csv += &row(bytes, name, round, *step, &bin);
                    good[i].push(per_second(bin.good, plan) / peak);
                    at_step[i].add(&bin);
                }
            }
            let shares: Vec<f64> = good.into_iter().map(median).collect();
            curves
                .push(Line { name: name.into(), points: STEPS.iter().copied().zip(shares.iter().copied()).collect() });
            figures(&mut report, bytes, name, median(peaks), &shares, &at_step);
        }
        let title = format!("Load against goodput, {} KiB values, deadline {} ms", bytes / 1024, DEADLINE.as_millis());
        let svg = lines(&title, "offered load over peak", "goodput over peak", &curves, &[1.0]);
        report.write(&plan.out, &format!("overload-{bytes}.svg"), &svg)?;
    }
    report.notes.push(
        "the three nodes share one processor, the load generator has another; the peak is measured so too".into(),
    );
    report.write(&plan.out, "overload.csv", &csv)?;
    Ok(report)
}

/// See docs/performance.md: for this comparison only.
pub const UNPROTECTED: [(&str, &str); 1] = [("COPPICE_LAB_NO_SHED", "1")];

/// The most that is done within the deadline at any rate.
pub fn peak(target: &Target, bytes: usize, plan: &Plan) -> Result<f64, String> {
    let shape = load::Shape { connections: CONNECTIONS, value_bytes: bytes, length: Duration::from_secs(1) };
    let mut best = load::write_read(target, &shape)?.per_second;
    let mut rate = best;
    // Open-loop clients pipeline, so more goes through than one request at a time shows. A noisy moment ends no search.
    let mut beyond = 0;
    while beyond < 3 {
        let good = per_second(steady(target, bytes, rate, plan)?.good, plan);
        best = best.max(good);
        beyond += usize::from(good < rate * 0.95);
        rate *= 1.15;
    }
    Ok(best)
}

/// One rate for the time of a measured run, after a moment of it that does not count.
fn steady(target: &Target, bytes: usize, rate: f64, plan: &Plan) -> Result<Bin, String> {
    let bin = Duration::from_millis(500);
    let shape = Shape { connections: CONNECTIONS, value_bytes: bytes, deadline: DEADLINE, bin };
    let count = usize::try_from(plan.seconds * 2).map_err(|e| e.to_string())?;
    let bins = load(target, &shape, &vec![rate; count + 1])?;
    let mut all = Bin::default();
    bins.iter().skip(1).for_each(|bin| all.add(bin));
    Ok(all)
}

fn per_second(count: u64, plan: &Plan) -> f64 {
    count as f64 / plan.seconds as f64
}

fn row(bytes: usize, name: &str, round: usize, step: f64, bin: &Bin) -> String {
    let line = format!(
        "{bytes},{name},{round},{step},{},{},{},{},{},{},{},{},{},{},{}\n",
        bin.offered,
        bin.good,
        bin.late,
        bin.refused,
        bin.failed,
        bin.unanswered,
        bin.wrong,
        bin.done_us.value_at_quantile(0.99),
        bin.refused_us.value_at_quantile(0.5),
        bin.refused_us.value_at_quantile(0.99),
        bin.refused_alone_us.value_at_quantile(0.5)
    );
    eprint!("{line}");
    if let Some(why) = &bin.first_failure {
        eprintln!("first failure: {why}");
    }
    line
}

fn figures(report: &mut Report, bytes: usize, name: &str, peak: f64, shares: &[f64], at_step: &[Bin]) {
    let kib = bytes / 1024;
    let mut push = |what: String, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(format!("{what}, {kib} KiB, {name}"), unit, value, "itself at peak", peer));
    };
    push("peak goodput".into(), "1/s", peak, None);
    for ((step, share), bin) in STEPS.iter().zip(shares).zip(at_step) {
        push(format!("goodput at {step}x"), "of peak", *share, Some(1.0));
        push(format!("accepted p99 at {step}x"), "us", bin.done_us.value_at_quantile(0.99) as f64, None);
        if !bin.refused_us.is_empty() {
            push(format!("refused at {step}x"), "of offered", bin.refused as f64 / bin.offered.max(1) as f64, None);
            push(format!("refusal p50 at {step}x"), "us", bin.refused_us.value_at_quantile(0.5) as f64, None);
            let alone = bin.refused_alone_us.value_at_quantile(0.5) as f64;
            push(format!("refusal p50 at {step}x behind no other answer"), "us", alone, None);
            push(format!("refusal p99 at {step}x"), "us", bin.refused_us.value_at_quantile(0.99) as f64, None);
        }
    }
    let sum = |pick: fn(&Bin) -> u64| at_step.iter().map(pick).sum::<u64>() as f64;
    push("wrong".into(), "operations", sum(|bin| bin.wrong), None);
    push("unknown or unanswered".into(), "operations", sum(|bin| bin.failed + bin.unanswered), None);
}
