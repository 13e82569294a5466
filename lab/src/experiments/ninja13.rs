//! A web server of three clones on three nodes goes from version 1 to version 2 under load (Ninja figure 13): who answers,
//! over time, and that nothing is dropped. Some requests take a second, so at each change there are such that the old clone
//! has begun and must end.

use std::time::Duration;

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::lines;
use crate::report::{Figure, Report};
use crate::web::{Answer, CSV, Load, STEP, Seen, rows};
use crate::worker;

const CLONES: usize = 3;
const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
const CAPACITY: f64 = CLONES as f64 * AT_ONCE as f64 / 0.025;
/// Two clones of three must be able to do it, as while one changes.
const OFFERED: f64 = 0.5;
const KINDS: [&str; 2] = ["/page", "/long"];
/// Requests a second that take [`worker::LONG`].
const LONG_ONES: f64 = 10.0;
const SLOT: f64 = 0.5;
/// The load ends with the deploy; one that takes longer has failed.
const LENGTH_MAX: f64 = 110.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let cluster = Cluster::start(3, false)?;
    let program = worker::run_line(AT_ONCE, TAKES)?;
    let folder = cluster.folder("work")?;
    let put = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).map_err(|e| format!("cannot write {name}: {e}"))
    };
    put("coppice.toml", &format!("[service.work]\n{program}clones = {CLONES}\nhealth = \"/health\"\nhttp = {{}}\n"))?;
    put("page", "1\n")?;
    cluster.deploy(&folder)?;
    cluster.wait_served()?;

    let steps = (LENGTH_MAX / STEP.as_secs_f64()) as usize;
    let rates = vec![vec![OFFERED * CAPACITY, LONG_ONES]; steps];
    let running = Load { doors: cluster.doors("http"), kinds: KINDS.to_vec(), rates, apart: false }.start();
    let calm = plan.seconds as f64;
    running.wait_until(calm);
    put("page", "2\n")?;
    let began = running.seconds();
    let deployed = cluster.deploy(&folder);
    let ended = running.seconds();
    running.wait_until(ended + calm);
    let until = running.seconds();
    let seen = running.end()?;
    deployed?;
    report(plan, &seen, began, ended, until)
}

fn report(plan: &Plan, seen: &Seen, began: f64, ended: f64, until: f64) -> Result<Report, String> {
    let mut report = Report::new("ninja13");
    let mut push = |measure: &str, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    let answered = |version: u32| move |a: &&Answer| a.by().is_some_and(|by| by.version == version);
    let first_new = seen.answers.iter().filter(answered(2)).map(|a| a.at).fold(f64::INFINITY, f64::min);
    let last_old = seen.answers.iter().filter(answered(1)).map(|a| a.at + a.ms / 1e3).fold(0.0, f64::max);
    if first_new.is_infinite() {
        return Err("version 2 answered nothing".into());
    }
    push("deploy, from the command to its end", "s", ended - began, "", None);
    push("command to the first answer of version 2", "s", first_new - began, "", None);
    push("both versions answer for", "s", (last_old - first_new).max(0.0), "", None);
    let (before, during) = (seen.of_kind(0, 1.0, began), seen.of_kind(0, began, ended));
    push("answers meanwhile", "1/s", seen.rate(0, began, ended), "offered", Some(OFFERED * CAPACITY));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("slowest", 1.0)] {
        push(&format!("{name} meanwhile"), "ms", during.ms(quantile), "itself before", Some(before.ms(quantile)));
    }
    // Begun by version 1 and ended by it after version 2 had begun to answer.
    let straddle = |a: &&Answer| a.kind == 1 && answered(1)(a) && a.at < ended && a.at + a.ms / 1e3 > first_new;
    let outlived = seen.answers.iter().filter(straddle).count();
    push("long requests that version 1 ended beside version 2", "requests", outlived as f64, "", None);
    let after = seen.tally(ended + 0.1, f64::INFINITY, |a| answered(1)(&a)).done;
    push("answers of version 1 to requests after the end", "requests", after as f64, "", None);
    let all = seen.all();
    push("requests", "requests", all.offered as f64, "", None);
    push("refused", "requests", all.refused as f64, "", None);
    push("failed", "requests", all.failed as f64, "", None);
    report.notes.extend(all.first_failure.map(|why| format!("first failure: {why}")));

    let slots = (until / SLOT) as usize;
    let of = |version: u32| {
        let count = |from: f64| seen.tally(from, from + SLOT, |a| a.kind == 0 && answered(version)(&a)).done;
        let points: Vec<_> = (0..slots).map(|i| i as f64 * SLOT).map(|at| (at, count(at) as f64 / SLOT)).collect();
        crate::plot::Line { name: format!("version {version}"), points }
    };
    let curves = [of(1), of(2)];
    let mut csv = "second,version_1_per_s,version_2_per_s\n".to_owned();
    for (one, two) in curves[0].points.iter().zip(&curves[1].points) {
        csv += &format!("{},{},{}\n", one.0, one.1, two.1);
    }
    let title = "Version 2 follows version 1 (dashed: deploy begins, ends)";
    let svg = lines(title, "seconds", "answers a second", &curves, &[began, ended]);
    report.write(&plan.out, "ninja13.svg", &svg)?;
    report.write(&plan.out, "ninja13-versions.csv", &csv)?;
    report.write(&plan.out, "ninja13.csv", &(CSV.to_owned() + &rows(seen, &KINDS, SLOT, until)))?;
    Ok(report)
}
