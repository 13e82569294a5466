//! A node of a two-clone web server is killed under load (Ninja figure 11): a clone on a third node takes over. There a
//! third clone took over after 6 s and all was well after 20 s. The load is more than the clone that is left can do alone,
//! and comes through the doors of the nodes that live, as there through a pair of switches.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::lines;
use crate::report::{Figure, Report, median};
use crate::watch;
use crate::web::{CSV, Load, STEP, Seen, line, rows};
use crate::worker;

const NODES: u8 = 3;
const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
/// Of two clones, requests a second.
const CAPACITY: f64 = 2.0 * AT_ONCE as f64 / 0.025;
/// Of that: one and a half times what one clone can do.
const OFFERED: f64 = 0.75;
const KINDS: [&str; 1] = ["/page"];
/// Of the plot; recovery is looked for in shorter ones.
const SLOT: f64 = 0.5;
const SHORT: f64 = 0.1;
/// The paper's seconds, until the third clone answered and until all was as before.
const PAPER: [f64; 2] = [6.0, 20.0];

/// What one round found; times are seconds after the kill.
struct Found {
    led: bool,
    takeover: f64,
    recovered: f64,
    before_p99: f64,
    meanwhile_p99: f64,
    slowest: f64,
    refused: u64,
    failed: u64,
    first_failure: Option<String>,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("ninja11");
    let mut csv = format!("round,{CSV}");
    let mut all = Vec::new();
    for round in 0..plan.rounds {
        let (seen, killed, found) = round_of(plan, round)?;
        let until = killed * 2.0;
        csv.extend(rows(&seen, &KINDS, SLOT, until).lines().map(|row| format!("{round},{row}\n")));
        if round == 0 {
            let slots = seen.slots(SLOT, until, 0);
            let curves = [
                seen.rates("answers/s", 0, SLOT, until),
                line("refused/s", &slots, |t| (t.refused + t.failed) as f64 / SLOT),
                line("slowest, ms", &slots, |t| t.ms(1.0)),
            ];
            let title = "A node of a two-clone service is killed (dashed)";
            let svg = lines(title, "seconds", "1/s; ms", &curves, &[killed]);
            report.write(&plan.out, "ninja11.svg", &svg)?;
        }
        all.push(found);
    }
    report.write(&plan.out, "ninja11.csv", &csv)?;
    figures(&mut report, &all);
    Ok(report)
}

fn round_of(plan: &Plan, round: usize) -> Result<(Seen, f64, Found), String> {
    let cluster = Cluster::start(NODES, false)?;
    let program = worker::run_line(AT_ONCE, TAKES)?;
    cluster.serve(&format!("[service.work]\n{program}clones = 2\nhealth = \"/health\"\nhttp = {{}}\n"))?;
    let apis = cluster.doors("api");
    let mut homes = Vec::new();
    // Each has two clones' homes from a moment on; one that serves may still be on its way elsewhere.
    crate::peers::wait_until("two clones serve on two nodes", || {
        let Ok(status) = Cluster::look(apis[0]) else { return false };
        homes = watch::look(&status, "work", 0.0).serving.into_iter().map(|clone| clone.node).collect();
        homes.sort();
        homes.dedup();
        homes.len() == 2
    })?;
    let status = Cluster::look(apis[0])?;
    // In turn one and the other, so that the leader of the root group is among those killed.
    let name = &homes[round % homes.len()];
    let led = status["root"]["leader"] == name.as_str();
    let nodes = cluster.ready["nodes"].as_array().cloned().unwrap_or_default();
    let victim = nodes.iter().position(|node| node["name"] == name.as_str()).ok_or("the clone's node is not known")?;
    let mut doors = cluster.doors("http");
    doors.remove(victim);

    let steps = (plan.seconds as f64 * 4.0 / STEP.as_secs_f64()) as usize;
    let load = Load { doors, kinds: KINDS.to_vec(), rates: vec![vec![OFFERED * CAPACITY]; steps], apart: false };
    let half = load.seconds() / 2.0;
    let running = load.start();
    running.wait_until(half);
    cluster.hold_restarts(true)?;
    let killed = running.seconds();
    cluster.kill(victim)?;
    let seen = running.wait()?;
    cluster.hold_restarts(false)?;

    let before = seen.of_kind(0, half / 2.0, killed);
    let lives: Vec<&str> =
        seen.answers.iter().filter(|a| a.at < killed - 0.5).filter_map(|a| Some(a.by()?.life.as_str())).collect();
    let is_new =
        |a: &&crate::web::Answer| a.at >= killed - 0.5 && a.by().is_some_and(|by| !lives.contains(&by.life.as_str()));
    let takeover = seen.answers.iter().filter(is_new).map(|a| a.at + a.ms / 1e3 - killed).fold(f64::INFINITY, f64::min);
    if takeover.is_infinite() {
        return Err("no new clone answered anything until the end".into());
    }
    // The end of the last moment that was not as before.
    let mut shorts = (0..((half - SHORT) / SHORT) as usize).map(|i| i as f64 * SHORT);
    let is_odd = |from: &f64| {
        let t = seen.of_kind(0, killed + from, killed + from + SHORT);
        t.done < t.offered || t.ms(0.9) > 2.0 * before.ms(0.99)
    };
    let recovered = shorts.rfind(is_odd).map_or(0.0, |from| from + SHORT);
    // From half a second before: what was under way at that moment counts.
    let meanwhile = seen.of_kind(0, killed - 0.5, killed + recovered.max(1.0));
    let after = seen.of_kind(0, killed - 0.5, f64::INFINITY);
    let all = seen.all();
    let found = Found {
        led,
        takeover,
        recovered,
        before_p99: before.ms(0.99),
        meanwhile_p99: meanwhile.ms(0.99),
        slowest: after.ms(1.0),
        refused: all.refused,
        failed: all.failed,
        first_failure: all.first_failure,
    };
    Ok((seen, killed, found))
}

fn figures(report: &mut Report, all: &[Found]) {
    let mut push = |measure: String, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    // Where the leader of the root group dies too, another must be found before anything is decided.
    for (led, who) in [(false, "an ordinary node"), (true, "the root group's leader")] {
        let these: Vec<&Found> = all.iter().filter(|found| found.led == led).collect();
        let middle = |pick: fn(&Found) -> f64| median(these.iter().map(|found| pick(found)).collect());
        push(format!("kills of {who}"), "kills", these.len() as f64, "", None);
        if these.is_empty() {
            continue;
        }
        let first = format!("kill of {who} to first answer of the new clone");
        push(first, "s", middle(|f| f.takeover), "the paper", Some(PAPER[0]));
        push(format!("kill of {who} to all as before"), "s", middle(|f| f.recovered), "the paper", Some(PAPER[1]));
        let before = middle(|f| f.before_p99);
        let meanwhile = middle(|f| f.meanwhile_p99);
        push(format!("p99 until then (1 s at least), {who}"), "ms", meanwhile, "itself before", Some(before));
        push(format!("refused, {who}, each kill"), "requests", middle(|f| f.refused as f64), "", None);
    }
    push("slowest of all".into(), "ms", all.iter().map(|f| f.slowest).fold(0.0, f64::max), "", None);
    push("failed, all".into(), "requests", all.iter().map(|f| f.failed).sum::<u64>() as f64, "", None);
    report.notes.extend(all.iter().enumerate().map(|(round, f)| {
        let who = if f.led { "the leader" } else { "an ordinary node" };
        format!("round {round}, {who}: {:.2} s, {:.1} s, {} refused", f.takeover, f.recovered, f.refused)
    }));
    report.notes.extend(all.iter().filter_map(|f| Some(format!("first failure: {}", f.first_failure.as_ref()?))));
    report.notes.push(format!(
        "offered {:.0} a second, {:.2} times what one clone can do; a clone takes as long to start as this program",
        OFFERED * CAPACITY,
        OFFERED * 2.0
    ));
}
