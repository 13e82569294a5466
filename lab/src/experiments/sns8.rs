//! Clones of a service come as load rises, and two are killed later (SNS figure 8). A clone does 23 requests a second, as a
//! distiller there; one door, as one front end there. What the manager decides, and how long the queues in the clones are.
//! Once with a door on a node without clones, as there, and once beside the first clone: a door prefers clones of its node.

use std::time::Duration;

use crate::Plan;
use crate::cluster::{Cluster, send};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};
use crate::watch::{Watch, Watched};
use crate::web::{CSV, Load, STEP, Seen, rows};
use crate::worker;

const NODES: u8 = 4;
/// One request at once: 23 a second (SNS 4.6).
pub const TAKES: Duration = Duration::from_millis(43);
const KINDS: [&str; 1] = ["/distil"];
/// Requests a second: from the first to the second in three quarters of the time, in which two clones are no longer enough,
/// then as many as three can just do, while two are killed.
const FROM: f64 = 8.0;
const TO: f64 = 60.0;
/// Part of the time in which load rises.
const RISE: f64 = 0.75;
const SLOT: f64 = 1.0;
/// What the paper says a new distiller needs to bring the queues down.
const PAPER_S: f64 = 5.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("sns8");
    for beside in [false, true] {
        // The last node is for overflow, so a door without clones, as a front end there; else that of the first clone.
        let cluster = Cluster::with_options(NODES + 1, &["--overflow", "1"])?;
        let program = worker::run_line(1, TAKES)?;
        cluster.serve(&format!(
            "[service.work]\n{program}clones = {{ min = 1, max = 8 }}\nhealth = \"/health\"\nhttp = {{}}\n"
        ))?;
        let door = if beside { home(&cluster)? } else { usize::from(NODES) };
        let steps = (plan.seconds as f64 * 10.0 / STEP.as_secs_f64()) as usize;
        let rates = (0..steps).map(|step| vec![rate(step as f64 / steps as f64)]).collect();
        let doors = vec![cluster.doors("http")[door]];
        let load = Load { doors, kinds: KINDS.to_vec(), rates, apart: false };
        let length = load.seconds();
        let killed = length * RISE;
        let running = load.start();
        let watch = Watch::start(cluster.doors("api"), "work", running.begun);
        running.wait_until(killed);
        for pid in first_two(&cluster)? {
            send(pid, rustix::process::Signal::KILL)?;
        }
        let seen = running.wait()?;
        let watched = watch.end()?;
        tell(plan, &mut report, &Side { beside, seen, watched, length, killed })?;
    }
    Ok(report)
}

/// One run.
struct Side {
    /// Requests come through the door of a node that has a clone.
    beside: bool,
    seen: Seen,
    watched: Watched,
    length: f64,
    killed: f64,
}

/// The node of the first clone.
fn home(cluster: &Cluster) -> Result<usize, String> {
    let status = Cluster::look(cluster.doors("api")[0])?;
    let node = crate::watch::look(&status, "work", 0.0).serving.first().map(|clone| clone.node.clone());
    let nodes = cluster.ready["nodes"].as_array().ok_or("no nodes")?;
    let at = nodes.iter().position(|n| n["name"].as_str() == node.as_deref());
    at.ok_or_else(|| "the first clone's node is not known".to_owned())
}

/// Offered when so much of the time is over.
fn rate(part: f64) -> f64 {
    FROM + (TO - FROM) * (part / RISE).min(1.0)
}

/// Processes of the first two clones, by number: those that came first.
fn first_two(cluster: &Cluster) -> Result<Vec<i32>, String> {
    let status = Cluster::look(cluster.doors("api")[0])?;
    let mut serving = crate::watch::look(&status, "work", 0.0).serving;
    serving.sort_by(|a, b| a.name.cmp(&b.name));
    let pids: Vec<i32> = serving.iter().take(2).map(|clone| clone.pid).collect();
    if pids.len() == 2 { Ok(pids) } else { Err(format!("two clones are to be killed, {} serve", pids.len())) }
}

fn tell(plan: &Plan, report: &mut Report, side: &Side) -> Result<(), String> {
    let Side { beside, seen, watched, length, killed } = side;
    let (length, killed) = (*length, *killed);
    let (name, which) = if *beside { ("beside", ", door beside clones") } else { ("front", ", door alone") };
    let mut push = |measure: String, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure + which, unit, value, peer, other));
    };
    let calm = seen.of_kind(0, 0.0, length / 10.0).ms(0.99);
    // Each decision, and the kills, with what followed until the next of them.
    let mut moments: Vec<(f64, String)> = watched
        .of_kind("scaled")
        .map(|e| (e.at, e.text.split(" clones").next().unwrap_or_default().to_owned()))
        .map(|(at, change)| (at, format!("{change} clones at {:.0}/s", rate(at / length))))
        .collect();
    moments.push((killed, "two were killed".into()));
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends: Vec<f64> = moments.iter().skip(1).map(|moment| moment.0).chain([length]).collect();
    let mut never = Vec::new();
    for ((at, what), end) in moments.iter().zip(ends) {
        // A second before: the queue that a decision is about.
        let near = seen.of_kind(0, at - 1.0, end.min(at + PAPER_S));
        match settled_after(seen, *at, end, calm) {
            Some(after) => push(format!("{what}: as usual after"), "s", after, "the paper", Some(PAPER_S)),
            None => never.push(format!("{name}, {what}: not as usual before what came next")),
        }
        push(format!("{what}: slowest"), "ms", near.ms(1.0), "p99 at first", Some(calm));
        push(format!("{what}: longest queue in a clone"), "requests", longest(seen, at - 1.0, end), "", None);
    }
    let after = watched.looks.iter().filter(|look| look.at >= killed);
    let fewest = after.map(|look| look.serving.len()).min().unwrap_or(0);
    push("fewest clones after the kills".into(), "clones", fewest as f64, "", None);
    let last = watched.looks.iter().rev().find(|look| look.at < length).map_or(0, |look| look.serving.len());
    push("clones at the end".into(), "clones", last as f64, "can just do it", Some((TO / 23.0).ceil()));
    // The paper's first version oscillated: how unevenly clones are filled when nothing changes any more.
    let (mean, spread) = unevenness(seen, killed - length / 8.0, killed);
    push("mean queue in a clone before the kills".into(), "requests", mean, "", None);
    push("fullest over emptiest clone, mean difference".into(), "requests", spread, "", None);
    let all = seen.all();
    push("requests".into(), "requests", all.offered as f64, "", None);
    push("refused or failed".into(), "requests", (all.refused + all.failed) as f64, "", None);
    report.notes.extend(never);
    report.notes.extend(all.first_failure.map(|why| format!("first failure{which}: {why}")));
    report.notes.extend(watched.of_kind("scaled").map(|e| format!("{name}, {:.1} s: {}", e.at, e.text)));
    report.notes.extend(watched.of_kind("clone-died").map(|e| format!("{name}, {:.1} s: {} died", e.at, e.who)));

    let mut csv = "second,wanted,serving,at_edges\n".to_owned();
    for look in &watched.looks {
        csv += &format!("{:.2},{},{},{}\n", look.at, look.wanted, look.serving.len(), look.at_edges);
    }
    report.write(&plan.out, &format!("sns8-{name}-clones.csv"), &csv)?;
    report.write(&plan.out, &format!("sns8-{name}-queues.csv"), &queues_csv(seen, length))?;
    report.write(&plan.out, &format!("sns8-{name}.csv"), &(CSV.to_owned() + &rows(seen, &KINDS, SLOT, length)))?;
    let mut curves = queues(seen, length);
    curves.push(Line { name: "clones".into(), points: watched.serving() });
    let title = "Queues of clones as load rises, two killed (dashed)";
    let svg = lines(title, "seconds", "requests before a new one; clones", &curves, &[killed]);
    report.write(&plan.out, &format!("sns8-{name}.svg"), &svg)
}

/// Seconds after `from` until a whole second begins in which requests waited for less than one other; none if there is no
/// such second up to `to`.
fn settled_after(seen: &Seen, from: f64, to: f64, calm_ms: f64) -> Option<f64> {
    const SHORT: f64 = 0.25;
    let mut starts = (0..((to - from - 1.0).max(0.0) / SHORT) as usize).map(|i| i as f64 * SHORT);
    starts.find(|at| {
        let t = seen.of_kind(0, from + at, from + at + 1.0);
        t.done == t.offered && t.ms(0.5) <= calm_ms + TAKES.as_secs_f64() * 1e3
    })
}

fn names(seen: &Seen) -> Vec<&str> {
    let mut names: Vec<&str> = seen.answers.iter().filter_map(|a| Some(a.by()?.clone.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How many were in this clone when a request came to it, on average; none if none came.
fn ahead(seen: &Seen, name: &str, from: f64, to: f64) -> Option<f64> {
    let here = seen.answers.iter().filter(|a| a.at >= from && a.at < to).filter_map(|a| a.by());
    let ahead: Vec<f64> = here.filter(|by| by.clone == name).map(|by| f64::from(by.ahead)).collect();
    (!ahead.is_empty()).then(|| ahead.iter().sum::<f64>() / ahead.len() as f64)
}

fn longest(seen: &Seen, from: f64, to: f64) -> f64 {
    let here = seen.answers.iter().filter(|a| a.at >= from && a.at < to).filter_map(|a| a.by());
    here.map(|by| f64::from(by.ahead)).fold(0.0, f64::max)
}

/// Of whole seconds: the mean over all clones, and the mean difference between the fullest and the emptiest.
fn unevenness(seen: &Seen, from: f64, to: f64) -> (f64, f64) {
    let (mut means, mut spreads) = (Vec::new(), Vec::new());
    for second in 0..(to - from) as usize {
        let at = from + second as f64;
        let each: Vec<f64> = names(seen).iter().filter_map(|name| ahead(seen, name, at, at + 1.0)).collect();
        if !each.is_empty() {
            means.push(each.iter().sum::<f64>() / each.len() as f64);
            let (least, most) = each.iter().fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
            spreads.push(most - least);
        }
    }
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    (mean(means), mean(spreads))
}

fn queues(seen: &Seen, length: f64) -> Vec<Line> {
    let seconds = || (0..length as usize).map(|second| second as f64);
    let points = |name: &str| seconds().filter_map(|at| Some((at, ahead(seen, name, at, at + SLOT)?))).collect();
    names(seen).iter().map(|name| Line { name: (*name).into(), points: points(name) }).collect()
}

fn queues_csv(seen: &Seen, length: f64) -> String {
    let mut csv = "second,clone,ahead_mean\n".to_owned();
    for line in queues(seen, length) {
        csv.extend(line.points.iter().map(|(at, ahead)| format!("{at},{},{ahead:.2}\n", line.name)));
    }
    csv
}
