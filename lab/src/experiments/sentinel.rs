//! A node is killed under load: Redis with Sentinel (three servers, three sentinels) loses its primary, Coppice any one
//! of three nodes. The same users drive both: each write has a key of its own, a failed request is tried again through
//! another door (or at the master that a sentinel names), and at the end every acknowledged write is read back.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::peers::Sentinels;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};
use crate::users::{Crowd, Doors, Seen};

const USERS: usize = 12;
/// Small, since each write is kept until the end.
const VALUE_BYTES: usize = 256;
const PAUSE: Duration = Duration::from_millis(2);
/// `down-after-milliseconds`: a brisk setting and one nearer to the default (30 s, which few keep).
const DOWN_AFTER: [u32; 2] = [1000, 5000];

/// What one kill did.
struct Kill {
    seen: Seen,
    at: f64,
}

impl Kill {
    /// p99.9 in milliseconds of what began, and so far ended, before the kill.
    fn normal(&self) -> f64 {
        self.seen.quantile(0.999, 1.0, self.at - 0.1)
    }
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("sentinel");
    let mut csv = "side,round,failed_tries,failing_s,slowest_ms,acked,lost,p999_before_ms,p999_after_ms\n".to_owned();
    let (mut others, mut victims) = (Vec::new(), Vec::new());
    let mut redis = DOWN_AFTER.map(|_| Vec::new());
    for round in 0..plan.rounds {
        // Users of the other nodes, and users of all of whom a third lose their node.
        others.push(coppice(plan, round % 3, true)?);
        victims.push(coppice(plan, round % 3, false)?);
        for (kills, down_after) in redis.iter_mut().zip(DOWN_AFTER) {
            kills.push(sentinel(plan, down_after)?);
        }
    }
    let [brisk, slow] = &redis;
    let sides = [
        ("coppice, users of other nodes", &others),
        ("coppice, users of all nodes", &victims),
        ("sentinel, down-after 1 s", brisk),
        ("sentinel, down-after 5 s", slow),
    ];
    for (name, kills) in sides {
        for (round, kill) in kills.iter().enumerate() {
            csv += &row(name, round, kill);
        }
    }
    type Pick = fn(&Kill) -> f64;
    let measures: [(&str, &str, Pick); 6] = [
        ("failed tries", "requests", |k| k.seen.failed.len() as f64),
        ("from first to last failed try", "s", |k| k.seen.failing_for()),
        ("longest operation", "ms", |k| k.seen.slowest()),
        ("acknowledged writes lost", "writes", |k| k.seen.lost as f64),
        ("wrong reads", "reads", |k| k.seen.wrong as f64),
        ("p99.9 of the second after the kill over normal", "times", |k| {
            k.seen.quantile_meanwhile(0.999, k.at, k.at + 1.0) / k.normal().max(0.001)
        }),
    ];
    for (users, ours) in [("other nodes", &others), ("all nodes", &victims)] {
        for (measure, unit, pick) in measures {
            let of = |kills: &[Kill]| median(kills.iter().map(pick).collect());
            let name = format!("{measure}, users of {users}");
            report.figures.push(Figure::new(name, unit, of(ours), "sentinel, down-after 1 s", Some(of(brisk))));
        }
    }
    for (measure, unit, pick) in measures {
        let of = |kills: &[Kill]| median(kills.iter().map(pick).collect());
        let figure = Figure::new(
            format!("{measure}, users of all nodes"),
            unit,
            of(&victims),
            "sentinel, down-after 5 s",
            Some(of(slow)),
        );
        report.figures.push(figure);
    }
    report
        .notes
        .push("Redis acknowledges a write before its replicas have it, as sessions usually use it (no WAIT)".into());
    report.notes.extend(sides.iter().filter_map(|(name, kills)| {
        kills.iter().find_map(|k| k.seen.first_failure.as_ref()).map(|why| format!("{name}: first failure: {why}"))
    }));
    report.write(&plan.out, "sentinel.csv", &csv)?;
    let curves: Vec<Line> = sides
        .iter()
        .filter_map(|(name, kills)| kills.first().map(|k| (name, k)))
        .map(|(name, kill)| Line { name: (*name).into(), points: kill.seen.per_second(kill.at + length(plan)) })
        .collect();
    let at = plan.seconds as f64;
    let svg = lines("Killed under load (dashed)", "seconds", "operations begun a second", &curves, &[at]);
    report.write(&plan.out, "sentinel.svg", &svg)?;
    Ok(report)
}

/// How long to watch after the kill: past a failover of the slower setting.
fn length(plan: &Plan) -> f64 {
    plan.seconds as f64 + 7.0
}

fn crowd(doors: Doors) -> Crowd {
    Crowd { doors, users: USERS, value_bytes: VALUE_BYTES, pause: PAUSE, unique: true }
}

fn coppice(plan: &Plan, victim: usize, beside: bool) -> Result<Kill, String> {
    let (cluster, mut target) = Cluster::with_sessions(3, &[])?;
    if beside {
        target.addrs.remove(victim);
    }
    let running = crowd(Doors::Any { addrs: target.addrs, auth: target.auth }).start();
    running.wait_until(plan.seconds as f64);
    let at = running.seconds();
    cluster.kill(victim)?;
    running.wait_until(at + length(plan));
    let seen = running.end()?;
    drop(cluster);
    Ok(Kill { seen, at })
}

fn sentinel(plan: &Plan, down_after: u32) -> Result<Kill, String> {
    let sentinels = Sentinels::start(down_after)?;
    let running = crowd(Doors::Sentinels(sentinels.addrs.clone())).start();
    running.wait_until(plan.seconds as f64);
    let at = running.seconds();
    sentinels.kill_primary()?;
    running.wait_until(at + length(plan));
    let seen = running.end()?;
    Ok(Kill { seen, at })
}

fn row(name: &str, round: usize, kill: &Kill) -> String {
    let seen = &kill.seen;
    format!(
        "\"{name}\",{round},{},{:.3},{:.1},{},{},{:.2},{:.2}\n",
        seen.failed.len(),
        seen.failing_for(),
        seen.slowest(),
        seen.acked,
        seen.lost,
        kill.normal(),
        seen.quantile_meanwhile(0.999, kill.at, kill.at + 1.0)
    )
}
