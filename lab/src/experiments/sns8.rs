//! Clones of a service come as load rises, and two are killed later (SNS figure 8). A clone does 23 requests a second, as a
//! distiller there; one door, as one front end there. What the manager decides, and how long the queues before and in the
//! clones are.

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
/// Requests a second, each for a quarter of the time but the last, which is the same load after the kills: too much for one
/// clone, for two, and for three.
const RATES: [f64; 4] = [12.0, 36.0, 60.0, 60.0];
const SLOT: f64 = 1.0;
/// What the paper says a new distiller needs to bring the queues down.
const PAPER_S: f64 = 5.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let cluster = Cluster::start(NODES, false)?;
    let program = worker::run_line(1, TAKES)?;
    cluster.serve(&format!(
        "[service.work]\n{program}clones = {{ min = 1, max = 8 }}\nhealth = \"/health\"\nhttp = {{}}\n"
    ))?;
    let quarter = (plan.seconds as f64 * 4.0 / STEP.as_secs_f64()) as usize;
    let rates = RATES.iter().flat_map(|rate| vec![vec![*rate]; quarter]).collect();
    let load = Load { doors: cluster.doors("http")[..1].to_vec(), kinds: KINDS.to_vec(), rates, apart: false };
    let length = load.seconds();
    let killed = length * 0.75;
    let running = load.start();
    let watch = Watch::start(cluster.doors("api"), "work", running.begun);
    running.wait_until(killed);
    let victims = oldest_two(&cluster)?;
    for pid in &victims {
        send(*pid, rustix::process::Signal::KILL)?;
    }
    let seen = running.wait()?;
    let watched = watch.end()?;
    report(plan, &seen, &watched, length, killed)
}

/// Processes of the first two clones, by number: those that came first.
fn oldest_two(cluster: &Cluster) -> Result<Vec<i32>, String> {
    let status = Cluster::look(cluster.doors("api")[0])?;
    let mut serving = crate::watch::look(&status, "work", 0.0).serving;
    serving.sort_by(|a, b| a.name.cmp(&b.name));
    let pids: Vec<i32> = serving.iter().take(2).map(|clone| clone.pid).collect();
    if pids.len() == 2 { Ok(pids) } else { Err(format!("two clones are to be killed, {} serve", pids.len())) }
}

fn report(plan: &Plan, seen: &Seen, watched: &Watched, length: f64, killed: f64) -> Result<Report, String> {
    let mut report = Report::new("sns8");
    let mut push = |measure: String, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    let quarter = length / RATES.len() as f64;
    let calm = seen.of_kind(0, quarter / 2.0, quarter).ms(0.99);
    for (i, rate) in RATES.iter().enumerate() {
        let (from, to) = (i as f64 * quarter, (i + 1) as f64 * quarter);
        let of = if from < killed { format!("at {rate:.0}/s") } else { "after two were killed".into() };
        let looks = watched.looks.iter().filter(|look| look.at >= from && look.at < to);
        let clones: Vec<f64> = looks.map(|look| look.serving.len() as f64).collect();
        push(
            format!("clones at the end, {of}"),
            "clones",
            clones.last().copied().unwrap_or(0.0),
            "can just do it",
            Some((rate / 23.0).ceil()),
        );
        push(format!("fewest clones, {of}"), "clones", clones.iter().copied().fold(f64::INFINITY, f64::min), "", None);
        let changes = watched.of_kind("scaled").filter(|e| e.at >= from && e.at < to).count();
        push(format!("decisions, {of}"), "decisions", changes as f64, "", None);
        let settled = settled_after(seen, from, to, calm);
        push(format!("answers as usual after, {of}"), "s", settled, "the paper", Some(PAPER_S));
        let tally = seen.of_kind(0, from, to);
        push(format!("slowest, {of}"), "ms", tally.ms(1.0), "p99 at 12/s", Some(calm));
        push(format!("longest queue in a clone, {of}"), "requests", longest(seen, from, to), "", None);
        push(format!("refused or failed, {of}"), "requests", (tally.refused + tally.failed) as f64, "", None);
    }
    // The paper's first version oscillated: how unevenly clones are filled when nothing changes any more.
    let (mean, spread) = unevenness(seen, killed - quarter / 2.0, killed);
    push("mean queue in a clone before the kills".into(), "requests", mean, "", None);
    push("fullest over emptiest clone, mean difference".into(), "requests", spread, "", None);
    let all = seen.all();
    push("requests".into(), "requests", all.offered as f64, "", None);
    report.notes.extend(all.first_failure.map(|why| format!("first failure: {why}")));
    report.notes.extend(watched.of_kind("scaled").map(|e| format!("{:.1} s: {}", e.at, e.text)));
    report.notes.extend(watched.of_kind("clone-died").map(|e| format!("{:.1} s: {} died", e.at, e.who)));

    let mut csv = "second,wanted,serving,at_edges\n".to_owned();
    for look in &watched.looks {
        csv += &format!("{:.2},{},{},{}\n", look.at, look.wanted, look.serving.len(), look.at_edges);
    }
    report.write(&plan.out, "sns8-clones.csv", &csv)?;
    report.write(&plan.out, "sns8-queues.csv", &queues_csv(seen, length))?;
    report.write(&plan.out, "sns8.csv", &(CSV.to_owned() + &rows(seen, &KINDS, SLOT, length)))?;
    let mut curves = queues(seen, length);
    curves.push(Line { name: "clones".into(), points: watched.serving() });
    let title = "Queues of clones as load rises, two killed (dashed)";
    let svg = lines(title, "seconds", "requests before a new one; clones", &curves, &[killed]);
    report.write(&plan.out, "sns8.svg", &svg)?;
    Ok(report)
}

/// Seconds after `from` from which on nobody waited for more than one other on average, up to `to`.
fn settled_after(seen: &Seen, from: f64, to: f64, calm_ms: f64) -> f64 {
    const SHORT: f64 = 0.5;
    let slots = (0..((to - from) / SHORT) as usize).map(|i| i as f64 * SHORT);
    let is_odd = |at: &f64| {
        let t = seen.of_kind(0, from + at, from + at + SHORT);
        t.done < t.offered || t.ms(0.5) > calm_ms + TAKES.as_secs_f64() * 1e3
    };
    slots.filter(is_odd).last().map_or(0.0, |at| at + SHORT)
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
