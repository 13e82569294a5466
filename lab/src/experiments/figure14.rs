//! An application whose callers' sessions lie in its own memory, on its disk, or in bricks (SSM figure 14): how many it serves and
//! how soon as callers come, 10 to 160 as there; and what becomes of their calls when its process is killed, and when its whole
//! node is. One clone of the application, five nodes, and so five bricks.

use std::time::Duration;

use crate::Plan;
use crate::callers::{Callers, End, Heard, count, longest_silence, mean_ms};
use crate::cluster::{Cluster, send};
use crate::phone::{self, NAMESPACE, STORES};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};

const NODES: u8 = 5;
/// The paper's callers listen for three seconds; these a tenth of that, to an application that is ten times as quick.
const LISTEN: Duration = Duration::from_millis(300);
const TAKES: Duration = Duration::from_millis(10);
/// With ten milliseconds each it serves 400 a second in memory, and callers ask for 160 / 0.31 s = 516 at most.
const AT_ONCE: usize = 4;
const CALLERS: [usize; 4] = [10, 60, 110, 160];
/// While something is killed: half of what it can do.
const CALLERS_AT_KILLS: usize = 60;

/// What came of one kill.
struct Kill {
    lost: f64,
    failed: f64,
    silence: f64,
}

struct Found {
    served: Vec<f64>,
    mean_ms: Vec<f64>,
    failed: f64,
    kills: [Kill; 2],
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("figure14");
    let mut csv = "store,callers,served_per_second,mean_ms,failed\n".to_owned();
    let mut kills_csv = "store,second,served,lost,failed,slowest_ms\n".to_owned();
    let (mut all, mut curves, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for store in STORES {
        let (found, heard, marks) = of_store(store, plan, &mut csv, &mut report)?;
        let until = heard.last().map_or(0.0, |one| one.at) as usize;
        let mut points = Vec::new();
        for second in 0..until {
            let (from, to) = (second as f64, second as f64 + 1.0);
            let of = |end| count(&heard, from, to, end);
            let slowest =
                heard.iter().filter(|one| one.at >= from && one.at < to).map(|one| one.ms).fold(0.0, f64::max);
            kills_csv +=
                &format!("{store},{second},{},{},{},{slowest:.1}\n", of(End::Next), of(End::Lost), of(End::Failed));
            points.push((from, of(End::Next)));
        }
        times.push(Line { name: store.into(), points });
        let points = CALLERS.iter().zip(&found.mean_ms).map(|(callers, ms)| (*callers as f64, *ms)).collect();
        curves.push(Line { name: store.into(), points });
        if store == "bricks" {
            let title = "Sessions served while the application's process, then its node is killed (dashed)";
            report.write(
                &plan.out,
                "figure14-kills.svg",
                &lines(title, "seconds", "requests a second", &times, &marks),
            )?;
        }
        all.push(found);
    }
    report.write(&plan.out, "figure14.csv", &csv)?;
    report.write(&plan.out, "figure14-kills.csv", &kills_csv)?;
    let title = "Mean response as callers come, by where their sessions lie";
    report.write(&plan.out, "figure14.svg", &lines(title, "callers", "ms", &curves, &[]))?;
    figures(&mut report, &all);
    Ok(report)
}

fn figures(report: &mut Report, all: &[Found]) {
    let [memory, disk, bricks] = all else { return };
    for (name, peer) in [("in memory", memory), ("on disk", disk)] {
        for (at, callers) in CALLERS.iter().enumerate() {
            let mut push = |what: &str, unit: &str, pick: fn(&Found) -> &Vec<f64>| {
                let (ours, theirs) = (pick(bricks)[at], pick(peer)[at]);
                report.figures.push(Figure::new(format!("{callers} callers: {what}"), unit, ours, name, Some(theirs)));
            };
            push("served", "1/s", |found| &found.served);
            push("mean response", "ms", |found| &found.mean_ms);
        }
        let mut push = |what: &str, unit: &str, pick: fn(&Found) -> f64| {
            report.figures.push(Figure::new(what, unit, pick(bricks), name, Some(pick(peer))));
        };
        push("failed without kills", "requests", |found| found.failed);
        push("process killed: sessions lost", "of 60 callers", |found| found.kills[0].lost);
        push("process killed: requests failed", "requests", |found| found.kills[0].failed);
        push("process killed: nobody served for", "s", |found| found.kills[0].silence);
        push("node killed: sessions lost", "of 60 callers", |found| found.kills[1].lost);
        push("node killed: requests failed", "requests", |found| found.kills[1].failed);
        push("node killed: nobody served for", "s", |found| found.kills[1].silence);
    }
    report.notes.push(format!(
        "one clone with {AT_ONCE} places, {} ms of work a request without processor time; callers listen for {} ms; the \"coppice\" column has \
         sessions in bricks",
        TAKES.as_millis(),
        LISTEN.as_millis()
    ));
    report
        .notes
        .push("a disk is a folder of each node's own: a clone that starts at another node has another disk".into());
}

type OfStore = (Found, Vec<Heard>, Vec<f64>);

fn of_store(store: &str, plan: &Plan, csv: &mut String, report: &mut Report) -> Result<OfStore, String> {
    let cluster = Cluster::start(NODES, false)?;
    let disks = cluster.folder("disks")?;
    let program = phone::run_line(store, AT_ONCE, TAKES, &disks)?;
    cluster.serve(&format!(
        "[namespace.{NAMESPACE}]\nclass = \"session\"\nlease = \"10m\"\n\n[service.phone]\n{program}clones = 1\n\
         health = \"/health\"\nhttp = {{}}\nnamespaces = [\"{NAMESPACE}\"]\nsandbox = {{ write = [{:?}] }}\n",
        disks.display().to_string()
    ))?;
    let doors = cluster.doors("http");
    let (mut served, mut means, mut failed) = (Vec::new(), Vec::new(), 0.0);
    for callers in CALLERS {
        let calls = Callers::start(callers, LISTEN, doors.clone());
        let until = plan.seconds as f64;
        calls.wait_until(until);
        let (heard, why) = calls.end()?;
        // The first second is of those who come.
        let from = (until / 4.0).min(1.0);
        served.push(count(&heard, from, until, End::Next) / (until - from));
        means.push(mean_ms(&heard, from, until));
        let bad = count(&heard, 0.0, until, End::Failed) + count(&heard, 0.0, until, End::Lost);
        failed += bad;
        report.notes.extend(why.map(|why| format!("{store}, {callers} callers: first failure: {why}")));
        let (served, mean) = (served.last().unwrap_or(&0.0), means.last().unwrap_or(&0.0));
        *csv += &format!("{store},{callers},{served:.1},{mean:.2},{bad}\n");
    }

    let calls = Callers::start(CALLERS_AT_KILLS, LISTEN, doors);
    let span = plan.seconds as f64;
    calls.wait_until(span / 2.0);
    let (pid, _) = home(&cluster, &[])?;
    let first = calls.seconds();
    send(pid, rustix::process::Signal::KILL)?;
    calls.wait_until(first + span);
    let (_, node) = home(&cluster, &[pid])?;
    // Requests through the edge of a node that dies end with it, by nature: its callers leave it first.
    calls.down.fetch_or(1 << node, std::sync::atomic::Ordering::SeqCst);
    calls.wait_until(calls.seconds() + 2.0 * LISTEN.as_secs_f64());
    cluster.hold_restarts(true)?;
    let second = calls.seconds();
    cluster.kill(node)?;
    calls.wait_until(second + span * 1.5);
    let until = calls.seconds();
    let (heard, why) = calls.end()?;
    cluster.hold_restarts(false)?;
    report.notes.extend(why.map(|why| format!("{store}, kills: first failure: {why}")));
    let kill = |from: f64, to: f64| Kill {
        lost: count(&heard, from, to, End::Lost),
        failed: count(&heard, from, to, End::Failed),
        silence: longest_silence(&heard, from, to),
    };
    // What was under way at that moment counts.
    let kills = [kill(first - 0.1, second - 0.1), kill(second - 0.1, until)];
    Ok((Found { served, mean_ms: means, failed, kills }, heard, vec![first, second]))
}

/// Process and node, counted from 0, of the one clone that serves and is none of these.
fn home(cluster: &Cluster, but: &[i32]) -> Result<(i32, usize), String> {
    let api = cluster.doors("api")[0];
    let mut found = None;
    crate::peers::wait_until("the clone serves", || {
        let Ok(status) = Cluster::look(api) else { return false };
        let services = status["services"].as_array().into_iter().flatten();
        let clones =
            services.filter(|of| of["name"] == "phone").flat_map(|of| of["clones"].as_array().into_iter().flatten());
        let nodes = cluster.ready["nodes"].as_array().cloned().unwrap_or_default();
        found = clones
            .filter_map(|clone| {
                let pid = i32::try_from(clone["pid"].as_i64()?).ok().filter(|pid| *pid > 0 && !but.contains(pid))?;
                Some((pid, nodes.iter().position(|node| node["name"] == clone["node"])?))
            })
            .next();
        found.is_some()
    })?;
    found.ok_or_else(|| "no clone serves".into())
}
