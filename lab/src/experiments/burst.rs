//! Load jumps to four times what the present clones can do: how long until new ones have absorbed it, and whether the number
//! of clones stays then.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};
use crate::watch::{Watch, Watched};
use crate::web::{CSV, Load, STEP, Seen, line, rows};
use crate::worker;

const NODES: u8 = 3;
const AT_ONCE: usize = 2;
const TAKES: Duration = Duration::from_millis(25);
/// Of the one clone that there is at first, requests a second.
const CAPACITY: f64 = AT_ONCE as f64 / 0.025;
const BEFORE: f64 = 0.5 * CAPACITY;
const BURST: f64 = 4.0 * CAPACITY;
const KINDS: [&str; 1] = ["/page"];
/// Seconds before the burst, and how long the number of clones is watched after it was absorbed.
const CALM: f64 = 10.0;
const WATCHED: f64 = 60.0;
const LENGTH: f64 = CALM + WATCHED + 15.0;
const SLOT: f64 = 0.1;
/// What the paper's workers needed (SNS 4.5), and ours: besides the start of a clone.
const PAPER_S: f64 = 5.0;
const GOAL_S: f64 = 2.0;

struct Found {
    decided: f64,
    /// All clones that were decided first serve.
    served: f64,
    absorbed: f64,
    refused: u64,
    failed: u64,
    slowest: f64,
    most: usize,
    changes: usize,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("burst");
    let (mut csv, mut all) = (format!("round,{CSV}"), Vec::new());
    for round in 0..plan.rounds {
        let cluster = Cluster::start(NODES, false)?;
        let program = worker::run_line(AT_ONCE, TAKES)?;
        cluster.serve(&format!(
            "[service.work]\n{program}clones = {{ min = 1, max = 12 }}\nhealth = \"/health\"\nhttp = {{}}\n"
        ))?;
        let rate = |step: usize| if step as f64 * STEP.as_secs_f64() < CALM { BEFORE } else { BURST };
        let rates = (0..(LENGTH / STEP.as_secs_f64()) as usize).map(|step| vec![rate(step)]).collect();
        let load = Load { doors: cluster.doors("http"), kinds: KINDS.to_vec(), rates, apart: false };
        let running = load.start();
        let watch = Watch::start(cluster.doors("api"), "work", running.begun);
        let seen = running.wait()?;
        let watched = watch.end()?;
        csv.extend(rows(&seen, &KINDS, SLOT, LENGTH).lines().map(|row| format!("{round},{row}\n")));
        if round == 0 {
            draw(plan, &mut report, &seen, &watched)?;
        }
        let scaled = watched.of_kind("scaled").map(|e| format!("round {round}, {:.2} s: {}", e.at - CALM, e.text));
        report.notes.extend(scaled);
        match find(&seen, &watched) {
            Some(found) => all.push(found),
            None => report.notes.push(format!("round {round}: it was never absorbed")),
        }
    }
    if all.is_empty() {
        return Err(format!("the burst was never absorbed: {:?}", report.notes));
    }
    let of = |pick: fn(&Found) -> f64| median(all.iter().map(pick).collect());
    let worst = |pick: fn(&Found) -> f64| all.iter().map(pick).fold(0.0, f64::max);
    let mut push = |measure: &str, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    push("burst to the manager's decision", "s", of(|f| f.decided), "", None);
    push("decision until those clones serve", "s", of(|f| f.served - f.decided), "", None);
    push("burst until absorbed", "s", of(|f| f.absorbed), "the paper", Some(PAPER_S));
    push("the same, worst round", "s", worst(|f| f.absorbed), "the paper", Some(PAPER_S));
    push("without the start of clones", "s", of(|f| f.absorbed - (f.served - f.decided)), "the goal", Some(GOAL_S));
    push("refused", "requests", of(|f| f.refused as f64), "", None);
    push("failed, all rounds", "requests", all.iter().map(|f| f.failed as f64).sum(), "the goal", Some(0.0));
    push("slowest answer", "ms", worst(|f| f.slowest), "", None);
    push("clones at the end of the minute", "clones", of(|f| f.most as f64), "can just do it", Some(4.0));
    push("changes of their number in the minute, worst", "changes", worst(|f| f.changes as f64), "the goal", Some(0.0));
    report.write(&plan.out, "burst.csv", &csv)?;
    Ok(report)
}

/// Times are seconds after the burst began.
fn find(seen: &Seen, watched: &Watched) -> Option<Found> {
    let decided = watched.of_kind("scaled").find(|event| event.at >= CALM)?;
    // "shop   1 -> 5 clones: ..."
    let number = |text: &str| text.split("-> ").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    let first = number(&decided.text)?;
    let served = watched.looks.iter().find(|look| look.at > CALM && look.serving.len() >= first)?.at;
    let usual = 2.0 * seen.of_kind(0, 1.0, CALM).ms(0.99);
    let slots = ((LENGTH - CALM) / SLOT) as usize;
    let is_well = |slot: usize| {
        let from = CALM + slot as f64 * SLOT;
        let tally = seen.of_kind(0, from, from + SLOT);
        tally.offered > 0 && tally.done == tally.offered && tally.ms(1.0) <= usual
    };
    // One good window by chance is not yet it: so is what follows for a second, but for one window.
    let lasts = |slot: &usize| is_well(*slot) && (*slot..*slot + 10).filter(|next| !is_well(*next)).count() <= 1;
    let absorbed = (0..slots.saturating_sub(10)).find(lasts)? as f64 * SLOT;
    let after = |at: f64| at > CALM + absorbed && at <= CALM + absorbed + WATCHED;
    let all = seen.of_kind(0, CALM, LENGTH);
    Some(Found {
        decided: decided.at - CALM,
        served: served - CALM,
        absorbed,
        refused: all.refused,
        failed: all.failed,
        slowest: all.ms(1.0),
        most: watched.looks.iter().rfind(|look| after(look.at)).map_or(0, |look| look.serving.len()),
        changes: watched.of_kind("scaled").filter(|event| after(event.at)).count(),
    })
}

fn draw(plan: &Plan, report: &mut Report, seen: &Seen, watched: &Watched) -> Result<(), String> {
    let slots = seen.slots(SLOT, LENGTH, 0);
    let clones = watched.serving().into_iter().map(|(at, count)| (at, count * CAPACITY)).collect();
    let curves = [
        line("offered/s", &slots, |t| t.offered as f64 / SLOT),
        seen.rates("answers/s", 0, SLOT, LENGTH),
        line("slowest, ms", &slots, |t| t.ms(1.0)),
        Line { name: "what the clones can do, 1/s".into(), points: clones },
    ];
    let svg = lines("Four times what one clone can do (dashed)", "seconds", "1/s; ms", &curves, &[CALM]);
    report.write(&plan.out, "burst.svg", &svg)
}
