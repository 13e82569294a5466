//! Load is raised step by step over time (SSM figures 5, 6 and 7), once without self-protection, where goodput collapses
//! when requests come faster than they can be served, and once with it, where it stays at what the system can do.

use std::time::Duration;

use super::overload::{UNPROTECTED, peak};
use crate::Plan;
use crate::cluster::Cluster;
use crate::open::{Bin, Shape, load};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};

const CONNECTIONS: usize = 120;
const BYTES: usize = 8192;
/// SSM's timeout.
const DEADLINE: Duration = Duration::from_millis(60);
/// Offered load over the peak; each lasts as long as a measured run.
const STEPS: [f64; 5] = [0.5, 0.9, 1.1, 1.5, 2.0];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("figures5to7");
    let mut csv = "protection,second,offered,good,late,refused,failed,unanswered,wrong\n".to_owned();
    let mut curves = Vec::new();
    let mut offered = Vec::new();
    let per_step = usize::try_from(plan.seconds).map_err(|e| e.to_string())?;
    let mut common_peak = None;
    for (name, environment) in [("protected", &[][..]), ("unprotected", &UNPROTECTED[..])] {
        let (cluster, target) = Cluster::with_sessions(3, environment)?;
        cluster.set_apart()?;
        // Both get the same load: over the peak of the shipped program.
        let peak = match common_peak {
            Some(peak) => peak,
            None => *common_peak.insert(peak(&target, BYTES, plan)?),
        };
        let rates: Vec<f64> = STEPS.iter().flat_map(|step| vec![step * peak; per_step]).collect();
        let shape =
            Shape { connections: CONNECTIONS, value_bytes: BYTES, deadline: DEADLINE, bin: Duration::from_secs(1) };
        let bins = load(&target, &shape, &rates)?;
        for (second, b) in bins.iter().enumerate() {
            csv += &format!(
                "{name},{second},{},{},{},{},{},{},{}\n",
                b.offered, b.good, b.late, b.refused, b.failed, b.unanswered, b.wrong
            );
        }
        let points = |pick: fn(&Bin) -> u64| bins.iter().enumerate().map(|(i, b)| (i as f64, pick(b) as f64)).collect();
        curves.push(Line { name: name.into(), points: points(|b| b.good) });
        offered = points(|b| b.offered);
        report.figures.push(Figure::new(format!("peak, {name}"), "1/s", peak, "none", None));
        for (step, bins) in STEPS.iter().zip(bins.chunks(per_step)) {
            let good = bins.iter().map(|b| b.good).sum::<u64>() as f64 / per_step as f64 / peak;
            report.figures.push(Figure::new(format!("goodput at {step}x, {name}"), "of peak", good, "peak", Some(1.0)));
        }
        let wrong = bins.iter().map(|b| b.wrong).sum::<u64>() as f64;
        report.figures.push(Figure::new(format!("wrong, {name}"), "operations", wrong, "none", None));
    }
    curves.push(Line { name: "offered".into(), points: offered });
    let title = format!("Goodput ({} ms) as load is raised, 8 KiB values", DEADLINE.as_millis());
    report.write(&plan.out, "figures5to7.csv", &csv)?;
    report.write(&plan.out, "figures5to7.svg", &lines(&title, "seconds", "requests a second", &curves, &[]))?;
    Ok(report)
}
