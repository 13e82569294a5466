//! The session workload on one node without replication, against Redis alone.

use std::time::Duration;

use super::session::measure;
use crate::Plan;
use crate::cluster::Cluster;
use crate::load::{Outcome, Shape};
use crate::peers::Redis;
use crate::report::{Figure, Report, median};

const CONNECTIONS: [usize; 2] = [50, 200];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("session1");
    let mut csv = "side,connections,round,per_second,p50_us,p99_us,p999_us,failed,wrong\n".to_owned();
    let wanted = if plan.connections.is_empty() { &CONNECTIONS[..] } else { &plan.connections };
    for &connections in wanted {
        let shape = Shape { connections, value_bytes: 8192, length: Duration::from_secs(plan.seconds) };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            let (cluster, target) = Cluster::with_sessions(1, &[])?;
            ours.push(measure(&target, &shape, "coppice", round, &mut csv)?);
            drop(cluster);
            let redis = Redis::start(0)?;
            theirs.push(measure(&redis.target, &shape, "redis", round, &mut csv)?);
        }
        let mut push = |name: &str, unit: &str, pick: fn(&Outcome) -> f64| {
            let of = |side: &[Outcome]| median(side.iter().map(pick).collect());
            let name = format!("{name}, {connections} connections");
            report.figures.push(Figure::new(name, unit, of(&ours), "redis alone", Some(of(&theirs))));
        };
        push("operations", "1/s", |o| o.per_second);
        push("p99", "us", |o| o.p99_us);
        push("p99.9", "us", |o| o.p999_us);
        push("failed or wrong", "operations", |o| (o.failed + o.wrong) as f64);
    }
    report.write(&plan.out, "session1.csv", &csv)?;
    Ok(report)
}
