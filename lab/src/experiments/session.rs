//! The session workload: 8 KiB values, a write and a read in turn, two copies before the answer on both sides.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::load::{Outcome, Shape, Target, write_read};
use crate::peers::Redis;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};

/// One figure of a run.
type Pick = fn(&Outcome) -> f64;

const CONNECTIONS: [usize; 3] = [10, 50, 200];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("session");
    let mut csv = "side,connections,round,per_second,p50_us,p99_us,p999_us,failed,wrong\n".to_owned();
    let mut curves = [Vec::new(), Vec::new()];
    let wanted = if plan.connections.is_empty() { &CONNECTIONS[..] } else { &plan.connections };
    for &connections in wanted {
        let shape = Shape { connections, value_bytes: 8192, length: Duration::from_secs(plan.seconds) };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // In turn, round by round, so that a noisy moment hits both.
        for round in 0..plan.rounds {
            let (cluster, target) = Cluster::with_sessions(3, &[])?;
            ours.push(measure(&target, &shape, "coppice", round, &mut csv)?);
            drop(cluster);
            match Redis::start(2) {
                Ok(redis) => theirs.push(measure(&redis.target, &shape, "redis", round, &mut csv)?),
                Err(why) => report.notes.push(why),
            }
        }
        let of = |side: &[Outcome], pick: Pick| (!side.is_empty()).then(|| median(side.iter().map(pick).collect()));
        let measures: [(&str, &str, Pick); 3] =
            [("operations", "1/s", |o| o.per_second), ("p99", "us", |o| o.p99_us), ("p99.9", "us", |o| o.p999_us)];
        for (name, unit, pick) in measures {
            let peer = of(&theirs, pick);
            let figure = Figure::new(
                format!("{name}, {connections} connections"),
                unit,
                of(&ours, pick).unwrap_or(0.0),
                "redis, 2 replicas, WAIT 1 100",
                peer,
            );
            report.figures.push(figure);
        }
        let failed = |side: &[Outcome]| side.iter().map(|o| (o.failed + o.wrong) as f64).sum::<f64>();
        let peer = (!theirs.is_empty()).then(|| failed(&theirs));
        report.figures.push(Figure::new(
            format!("failed or wrong, {connections} connections"),
            "operations",
            failed(&ours),
            "redis",
            peer,
        ));
        for (curve, side) in curves.iter_mut().zip([&ours, &theirs]) {
            if let Some(rate) = of(side, |o| o.per_second) {
                curve.push((connections as f64, rate));
            }
        }
    }
    report.notes.push("Coppice's clients are spread over its three nodes and its peers speak TLS; Redis' all talk to the primary, in the clear".into());
    let [ours, theirs] = curves;
    let svg = lines(
        "Session workload, 8 KiB, two copies before the answer",
        "connections",
        "operations a second",
        &[Line { name: "coppice".into(), points: ours }, Line { name: "redis".into(), points: theirs }],
        &[],
    );
    report.write(&plan.out, "session.csv", &csv)?;
    report.write(&plan.out, "session.svg", &svg)?;
    Ok(report)
}

pub fn measure(target: &Target, shape: &Shape, side: &str, round: usize, csv: &mut String) -> Result<Outcome, String> {
    // Warm up: connections, windows, memory.
    write_read(target, &Shape { length: Duration::from_millis(500), ..shape.clone() })?;
    let o = write_read(target, shape)?;
    if let Some(why) = &o.first_failure {
        eprintln!("{side}: {} failed, first: {why}", o.failed);
    }
    *csv += &format!(
        "{side},{},{round},{:.0},{:.0},{:.0},{:.0},{},{}\n",
        shape.connections, o.per_second, o.p50_us, o.p99_us, o.p999_us, o.failed, o.wrong
    );
    Ok(o)
}
