//! Two partitions on two clones, the first of higher priority, in rising load (Ninja figure 12): in overload the second is
//! refused, first in part, then whole, and the first gets all there is. The same load once more without priorities, as in
//! the time before the paper's "1st drop"; and once with each partition at a door of its own: there is no one connection
//! manager here that sees both.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::lines;
use crate::report::{Figure, Report};
use crate::web::{CSV, Load, STEP, Seen, line, rows};
use crate::worker;

const CLONES: f64 = 2.0;
const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
const CAPACITY: f64 = CLONES * AT_ONCE as f64 / 0.025;
/// Load of each partition at the beginning and at the end, over what both clones can do together.
const FROM: f64 = 0.3;
const TO: f64 = 1.2;
const KINDS: [&str; 2] = ["/upper", "/lower"];
const SLOT: f64 = 1.0;
const SIDES: [(&str, &str); 3] =
    [("priorities", "the upper goes first"), ("none", "no priorities"), ("apart", "each at a door of its own")];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("ninja12");
    let mut csv = format!("priorities,{CSV}");
    let steps = (plan.seconds as f64 * 6.0 / STEP.as_secs_f64()) as usize;
    let rate = |step: usize| CAPACITY * (FROM + (TO - FROM) * step as f64 / steps as f64);
    let rates: Vec<Vec<f64>> = (0..steps).map(|step| vec![rate(step); KINDS.len()]).collect();
    let mut sides = Vec::new();
    for (name, title) in SIDES {
        let [upper, lower] = if name == "none" { ["normal"; 2] } else { ["critical", "low"] };
        let cluster = Cluster::start(2, false)?;
        let program = worker::run_line(AT_ONCE, TAKES)?;
        cluster.serve(&format!(
            "[service.work]\n{program}clones = {CLONES}\nhealth = \"/health\"\nhttp = {{}}\n\
             [[service.work.partition]]\nname = \"upper\"\npath = \"/upper\"\npriority = \"{upper}\"\n\
             [[service.work.partition]]\nname = \"lower\"\npath = \"/lower\"\npriority = \"{lower}\"\n"
        ))?;
        let apart = name == "apart";
        let load = Load { doors: cluster.doors("http"), kinds: KINDS.to_vec(), rates: rates.clone(), apart };
        let length = load.seconds();
        let seen = load.start().wait()?;
        let found = rows(&seen, &KINDS, SLOT, length);
        csv.extend(found.lines().map(|row| format!("{name},{row}\n")));
        plot(plan, &mut report, &seen, length, name, title)?;
        sides.push(Side::of(&seen, length));
    }
    let [with, without, apart] = sides.as_slice() else { return Err("three sides were measured".into()) };
    figures(&mut report, with, without, "");
    figures(&mut report, apart, without, ", at doors of their own");
    report.write(&plan.out, "ninja12.csv", &csv)?;
    report.notes.push(format!(
        "two nodes, two clones, {CAPACITY:.0} a second together; load of each partition rises from {FROM} to {TO} times \
         that, so the overload begins at 0.5 and the upper partition alone is too much from 1 on"
    ));
    Ok(report)
}

/// What one run found.
struct Side {
    /// Answers a second of each partition, when both together are what clones can do, when each is, and at the end.
    at: [[f64; 2]; 3],
    p99_ms: [[f64; 2]; 3],
    /// Of what the upper partition was offered until it alone is too much.
    upper_served: f64,
    upper_lost: u64,
    /// Seconds from the beginning of overload to the first second in which so much of the lower one was refused.
    half_after: Option<f64>,
    all_after: Option<f64>,
    failed: u64,
    first_failure: Option<String>,
}

/// Load of each partition over the capacity: the middles of the looks at it.
const LOOKS: [(f64, f64); 3] = [(0.4, 0.49), (0.9, 0.99), (1.1, TO)];

impl Side {
    fn of(seen: &Seen, length: f64) -> Side {
        let when = |load: f64| (load - FROM) / (TO - FROM) * length;
        let window = |(from, to): (f64, f64), kind| seen.of_kind(kind, when(from), when(to));
        let rate = |look: (f64, f64), kind| seen.rate(kind, when(look.0), when(look.1));
        let lower = seen.slots(SLOT, length, 1);
        let after = |refused: f64| {
            let is_so = |t: &crate::web::Tally| t.refused as f64 >= refused * t.offered.max(1) as f64;
            lower.iter().find(|(at, t)| *at >= when(0.5) && is_so(t)).map(|(at, _)| at - when(0.5))
        };
        let upper = seen.of_kind(0, 0.0, when(0.99));
        let all = seen.all();
        Side {
            at: LOOKS.map(|look| [rate(look, 0), rate(look, 1)]),
            p99_ms: LOOKS.map(|look| [0, 1].map(|kind| window(look, kind).ms(0.99))),
            upper_served: upper.done_share(),
            upper_lost: upper.offered - upper.done,
            half_after: after(0.5),
            all_after: after(0.95),
            failed: all.failed,
            first_failure: all.first_failure,
        }
    }
}

fn figures(report: &mut Report, with: &Side, without: &Side, which: &str) {
    let mut push = |measure: String, unit: &str, value: f64, other: Option<f64>| {
        report.figures.push(Figure::new(measure + which, unit, value, "no priorities", other));
    };
    for (i, (from, to)) in LOOKS.iter().enumerate() {
        for (kind, name) in ["upper", "lower"].iter().enumerate() {
            let of = format!("{name}, each offered {from} to {to}");
            push(format!("answers, {of}"), "1/s", with.at[i][kind], Some(without.at[i][kind]));
            push(format!("p99, {of}"), "ms", with.p99_ms[i][kind], Some(without.p99_ms[i][kind]));
        }
    }
    let grown = |side: &Side| side.at[1][0] / side.at[0][0].max(1e-9);
    push("upper at 0.9 to 0.99 over 0.4 to 0.49".into(), "times", grown(with), Some(grown(without)));
    push("upper served while it alone fits".into(), "of offered", with.upper_served, Some(without.upper_served));
    let lost = Some(without.upper_lost as f64);
    push("upper not served while it alone fits".into(), "requests", with.upper_lost as f64, lost);
    push("failed (not refused)".into(), "requests", with.failed as f64, Some(without.failed as f64));
    let afters = [("half", with.half_after, without.half_after), ("95 %", with.all_after, without.all_after)];
    // What never came about has no figure.
    for (what, with, without) in afters {
        if let Some(at) = with {
            push(format!("{what} of lower refused, after overload began"), "s", at, without);
        }
    }
    let missing = afters.iter().filter(|(_, with, _)| with.is_none());
    report.notes.extend(missing.map(|(what, ..)| format!("{what} of the lower partition was never refused{which}")));
    report
        .notes
        .extend(with.first_failure.iter().chain(&without.first_failure).map(|why| format!("first failure: {why}")));
}

fn plot(plan: &Plan, report: &mut Report, seen: &Seen, length: f64, name: &str, title: &str) -> Result<(), String> {
    let slots = seen.slots(SLOT, length, 0);
    let of = |(kind, name): (usize, &&str)| seen.rates(name, kind, SLOT, length);
    let mut curves: Vec<_> = ["upper", "lower"].iter().enumerate().map(of).collect();
    curves.push(line("offered to each", &slots, |t| t.offered as f64 / SLOT));
    let title = format!("Two partitions in overload: {title}");
    let begins = (0.5 - FROM) / (TO - FROM) * length;
    let svg = lines(&title, "seconds (dashed: overload begins)", "answers a second", &curves, &[begins]);
    report.write(&plan.out, &format!("ninja12-{name}.svg"), &svg)
}
