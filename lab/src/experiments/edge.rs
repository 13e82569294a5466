//! HTTP proxying: the same origin (nginx with one worker, a 1 KiB file) behind our edge, and behind nginx and HAProxy as
//! proxies. Second by second in turn, as the machine is not as fast in one second as in another.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Plan;
use crate::cluster::{Cluster, free_port};
use crate::h2;
use crate::origin::Origin;
use crate::peers::{Wrk, scratch, wait_until, wrk};
use crate::plot::{Line, lines};
use crate::procs::used_us;
use crate::proxies::{self, Size, Start};
use crate::report::{Figure, Report, median};

/// Connections that are kept, and connections of one request each; with TLS, so many of both kinds.
const KEPT: [u32; 2] = [64, 512];
const ONCE: u32 = 64;
const TLS: u32 = 64;

/// One way to ask.
struct Way {
    name: String,
    connections: u32,
    is_kept: bool,
    is_tls: bool,
}

/// What one side did in each second of one way.
#[derive(Default)]
struct Seconds {
    /// Good answers: a refusal is quickly given.
    rates: Vec<f64>,
    p99_us: Vec<f64>,
    errors: u64,
    answers: u64,
    /// Processor time of its programs for those.
    used_us: f64,
}

impl Seconds {
    fn add(&mut self, found: &Wrk, used_us: f64) {
        self.rates.push(found.good_per_second());
        self.p99_us.push(found.p99_us);
        self.errors += found.errors;
        self.answers += found.requests;
        self.used_us += used_us;
    }

    fn answer_us(&self) -> f64 {
        self.used_us / self.answers.max(1) as f64
    }
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("edge");
    let (peers, missing): (Vec<_>, Vec<_>) = proxies::ALL.iter().partition(|(name, _)| proxies::is_installed(name));
    for (name, _) in &missing {
        report.notes.push(format!("{name} is not installed (package {name}), so it was not run"));
    }
    let kept = match plan.connections.as_slice() {
        [] => KEPT.to_vec(),
        given => given.iter().map(|count| u32::try_from(*count).unwrap_or(u32::MAX)).collect(),
    };
    let way = |connections, is_kept, is_tls| {
        let name = if is_kept { "connections kept" } else { "connections, one request each" };
        let tls = if is_tls { ", HTTPS" } else { "" };
        Way { name: format!("{connections} {name}{tls}"), connections, is_kept, is_tls }
    };
    let others = [way(ONCE, false, false), way(TLS, true, true), way(TLS, false, true)];
    let ways: Vec<Way> = kept.into_iter().map(|count| way(count, true, false)).chain(others).collect();
    let names: Vec<&str> = ["coppice"].into_iter().chain(peers.iter().map(|(name, _)| *name)).collect();
    // By way, then by side.
    let mut seen: Vec<Vec<Seconds>> = ways.iter().map(|_| names.iter().map(|_| Seconds::default()).collect()).collect();
    let mut csv = "way,side,round,second,per_second,good_per_second,p99_us,errors\n".to_owned();
    for round in 0..plan.rounds {
        let scene = Scene::start(&ways, &peers)?;
        for (way, seen) in ways.iter().zip(&mut seen) {
            for second in 0..=plan.seconds {
                // Not always the same one after the same one.
                for nth in 0..names.len() {
                    let side = (nth + second as usize) % names.len();
                    let (scheme, doors) = if way.is_tls { ("https", &scene.secure) } else { ("http", &scene.doors) };
                    let Door { addr, .. } = doors[side];
                    let before = scene.used_us(&doors[side]);
                    let found = wrk(&format!("{scheme}://{addr}/1k"), way.connections, 1, way.is_kept)?;
                    let used_us = scene.used_us(&doors[side]) - before;
                    if second == 0 {
                        // The first one warms up.
                        continue;
                    }
                    csv += &format!(
                        "{},{},{round},{second},{:.0},{:.0},{:.0},{}\n",
                        way.name,
                        names[side],
                        found.per_second,
                        found.good_per_second(),
                        found.p99_us,
                        found.errors
                    );
                    seen[side].add(&found, used_us);
                }
            }
        }
    }
    let plotted: Vec<Line> = names
        .iter()
        .zip(&seen[0])
        .map(|(name, side)| Line {
            name: (*name).into(),
            points: side.rates.iter().enumerate().map(|(i, v)| (i as f64 + 1.0, *v)).collect(),
        })
        .collect();
    for (way, sides) in ways.iter().zip(seen) {
        figures(&mut report, &way.name, &names, sides);
    }
    report.notes.push(
        "one node; wrk -t1, a second each in turn, medians; the origin (nginx, 1 worker) is the same process for all, \
         its processor time is in nobody's"
            .into(),
    );
    report.write(&plan.out, "edge.csv", &csv)?;
    let title = format!("HTTP proxying, 1 KiB, {}", ways[0].name);
    report.write(&plan.out, "edge.svg", &lines(&title, "second", "requests a second", &plotted, &[]))?;
    Ok(report)
}

fn figures(report: &mut Report, way: &str, names: &[&str], mut sides: Vec<Seconds>) {
    let ours = sides.remove(0);
    let our_us = ours.answer_us();
    let (rate, p99_us) = (median(ours.rates), median(ours.p99_us));
    for (name, theirs) in names[1..].iter().zip(sides) {
        let their_us = theirs.answer_us();
        let (their_rate, their_p99_us) = (median(theirs.rates), median(theirs.p99_us));
        report.figures.push(Figure::new(format!("good answers, {way}"), "1/s", rate, name, Some(their_rate)));
        report.figures.push(Figure::new(format!("p99, {way}"), "us", p99_us, name, Some(their_p99_us)));
        let what = format!("processor time of an answer, {way}");
        report.figures.push(Figure::new(what, "us", our_us, name, Some(their_us)));
        let errors = (ours.errors as f64, Some(theirs.errors as f64));
        report.figures.push(Figure::new(format!("refused or failed, {way}"), "requests", errors.0, name, errors.1));
    }
    if names.len() == 1 {
        report.figures.push(Figure::new(format!("good answers, {way}"), "1/s", rate, "", None));
    }
}

/// The origin, a node in front of it, and all peers.
struct Scene {
    /// Ours first.
    doors: Vec<Door>,
    /// With TLS.
    secure: Vec<Door>,
    /// The process of the origin, which the node has started.
    origin: i32,
    /// Where their certificate is.
    tls: PathBuf,
    _files: Origin,
    _peers: Vec<crate::peers::Program>,
    // Last, as the origin goes with it.
    _cluster: Cluster,
}

/// Where a side is asked, and its process.
struct Door {
    addr: SocketAddr,
    pid: i32,
}

impl Scene {
    fn start(ways: &[Way], peers: &[(&str, Start)]) -> Result<Self, String> {
        let tls = scratch("edge-tls");
        std::fs::create_dir_all(&tls).map_err(|e| format!("cannot make {}: {e}", tls.display()))?;
        h2::certificate(&tls)?;
        let https = free_port(1)?;
        let (folder, port) = (tls.display().to_string(), https.to_string());
        let cluster = Cluster::with_options(1, &["--tls-dir", &folder, "--https-port", &port])?;
        let files = Origin::new("edge-origin")?;
        files.put("1k", &[b'x'; 1024])?;
        cluster.apply(&files.service("clones = 1", "")?)?;
        let door = cluster.doors("http").first().copied().ok_or("no edge")?;
        wait_until(
            "the origin serves",
            || matches!(crate::load::http_get(door, "/1k", None), Ok(body) if body.len() == 1024),
        )?;
        let origin = cluster.first_clone("origin")?;
        let node = cluster.pid(0).ok_or("no pid")?;
        let connections = ways.iter().map(|way| way.connections).max().unwrap_or(0);
        let of_node = |addr| vec![Door { addr, pid: node }];
        let (mut doors, mut secure) = (of_node(door), of_node(SocketAddr::new(door.ip(), https)));
        let mut programs = Vec::new();
        let size = Size { workers: 2, connections };
        let both = [tls.join("lab.crt"), tls.join("lab.key")];
        for (name, start) in peers {
            let (program, addr) = start(origin.addr, size)?;
            doors.push(Door { addr, pid: program.pid() });
            programs.push(program);
            let of_name = proxies::ALL_TLS.iter().find(|(of, _)| of == name);
            let (_, start) = of_name.ok_or_else(|| format!("nobody knows {name} with TLS"))?;
            let (program, addr) = start(origin.addr, size, both.each_ref().map(PathBuf::as_path))?;
            secure.push(Door { addr, pid: program.pid() });
            programs.push(program);
        }
        Ok(Self { doors, secure, origin: origin.pid, tls, _files: files, _peers: programs, _cluster: cluster })
    }
}

impl Scene {
    /// What the programs of a side have used so far.
    fn used_us(&self, door: &Door) -> f64 {
        // Only the node has the origin among what it has started.
        let all = used_us(&[door.pid]);
        if door.pid == self.doors[0].pid { all - used_us(&[self.origin]) } else { all }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.tls);
    }
}
