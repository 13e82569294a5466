//! What the edge keeps of a service's answers: hits of 10 KB beside Varnish and nginx, second by second in turn. And a
//! purge by tag on three nodes while one of them hangs: how long it takes, and that nobody gets what was before.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::closed::Ran;
use crate::cluster::{Cluster, send};
use crate::load::{Outcome, http, http_get};
use crate::origin::Origin;
use crate::peers::{Program, wait_until, wrk};
use crate::procs::used_us;
use crate::proxies::{self, Size, Start};
use crate::report::{Figure, Report, median};
use crate::sides::{OURS, Sides};

/// In this order.
pub const PARTS: [&str; 2] = ["hits", "purge"];
const CONNECTIONS: [usize; 2] = [64, 512];
const BYTES: usize = 10_000;
const PAGE: &str = "/page";
const DECLARED: &str = "[namespace.pages]\nclass = \"cache\"\n";
const SERVICE: &str = "clones = 1\ncache = { namespace = \"pages\" }";
/// What the origin says of the page.
const WORDS: &str = "add_header Cache-Control max-age=3600; add_header Cache-Tag page;";
/// Purges of one round.
const PURGES: u64 = 3;
/// How long all nodes are asked after a purge.
const LOOK: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("cache");
    let mut sides = Sides::default();
    let (peers, missing): (Vec<_>, Vec<_>) =
        proxies::CACHES.iter().partition(|(_, program, _)| proxies::is_installed(program));
    for (name, program, _) in &missing {
        report.notes.push(format!("{name} was not run, as {program} is not installed (package varnish or nginx)"));
    }
    let mut purges = Vec::new();
    for round in 0..plan.rounds {
        if plan.has("hits") {
            hits(plan, round, &peers, &mut sides)?;
        }
        if plan.has("purge") {
            purges.extend(purge(&mut report)?);
        }
    }
    sides.tell(&mut report, &plan.out)?;
    if !purges.is_empty() {
        let took: Vec<f64> = purges.iter().map(|purge| purge.seconds).collect();
        let worst = took.iter().copied().fold(0.0, f64::max);
        let sum = |of: fn(&Purged) -> u64| purges.iter().map(of).sum::<u64>() as f64;
        let alone = |what: &str, unit: &str, value| Figure::new(what, unit, value, "none", None);
        report.figures.extend([
            alone("purge by tag, one of three nodes hung", "s", median(took)),
            alone("purge by tag, one of three nodes hung, worst", "s", worst),
            alone("stale answers after it", "answers", sum(|purge| purge.stale)),
            alone("answers after it that failed", "answers", sum(|purge| purge.failed)),
            alone("answers after it", "answers", sum(|purge| purge.answers)),
        ]);
    }
    Ok(report)
}

/// The page in this version: all of its bytes say which.
fn page(version: u64) -> Vec<u8> {
    let mark = format!("{version:08}\n");
    mark.as_bytes().iter().copied().cycle().take(BYTES).collect()
}

struct Scene {
    cluster: Cluster,
    files: Origin,
    origin: SocketAddr,
}

fn scene(nodes: u8) -> Result<Scene, String> {
    let cluster = Cluster::start(nodes, false)?;
    let files = Origin::new("cache-origin")?;
    files.put("page", &page(0))?;
    cluster.apply(&format!("{DECLARED}{}", files.service(SERVICE, WORDS)?))?;
    let is_hit = |door: &SocketAddr| said(*door).is_ok_and(|said| said.is_hit);
    wait_until("every node gives the page from its cache", || cluster.doors("http").iter().all(is_hit))?;
    let origin = cluster.clone_addr("origin")?;
    Ok(Scene { cluster, files, origin })
}

struct Said {
    is_hit: bool,
    body: String,
}

fn said(door: SocketAddr) -> Result<Said, String> {
    let request = format!("GET {PAGE} HTTP/1.1\r\nHost: {door}\r\nConnection: close\r\n\r\n");
    read(http(door, &request, PATIENCE)?)
}

fn read((status, head, body): (u16, String, String)) -> Result<Said, String> {
    if status != 200 || body.len() != BYTES {
        return Err(format!("HTTP {status} with {} bytes", body.len()));
    }
    Ok(Said { is_hit: head.to_ascii_lowercase().contains("cache-status: coppice; hit"), body })
}

fn hits(plan: &Plan, round: usize, peers: &[(&str, &str, Start)], sides: &mut Sides) -> Result<(), String> {
    let connections = if plan.connections.is_empty() { CONNECTIONS.to_vec() } else { plan.connections.clone() };
    let most = connections.iter().max().copied().and_then(|most| u32::try_from(most).ok()).unwrap_or(u32::MAX);
    let scene = scene(1)?;
    let mut all = vec![(OURS, scene.cluster.doors("http")[0], scene.cluster.pids())];
    let mut programs: Vec<Program> = Vec::new();
    for (name, _, start) in peers {
        let (program, addr) = start(scene.origin, Size { workers: 2, connections: most })?;
        all.push((name, addr, vec![program.pid()]));
        programs.push(program);
    }
    for count in connections {
        let what = format!("hits of 10 KB, {count} connections");
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        for second in 0..=plan.seconds {
            for nth in 0..all.len() {
                // Not always the same one after the same one.
                let (name, addr, pids) = &all[(nth + second as usize) % all.len()];
                let before = used_us(pids);
                let found = wrk(&format!("http://{addr}{PAGE}"), count, 1, true)?;
                let cpu_us = (used_us(pids) - before) / found.requests.max(1) as f64;
                if second == 0 {
                    // The first one warms up.
                    continue;
                }
                let out = Outcome {
                    per_second: found.good_per_second(),
                    done: found.requests,
                    p99_us: found.p99_us,
                    failed: found.errors,
                    ..Outcome::default()
                };
                sides.add(&what, name, round, Ran { out, cpu_us });
            }
        }
    }
    // Who had it kept does not know of the new one.
    scene.files.put("page", &page(1))?;
    for (name, addr, _) in &all {
        if http_get(*addr, PAGE, None)?.as_bytes() != page(0) {
            return Err(format!("{name} did not give the page from its cache"));
        }
    }
    Ok(())
}

struct Purged {
    seconds: f64,
    stale: u64,
    failed: u64,
    answers: u64,
}

fn purge(report: &mut Report) -> Result<Vec<Purged>, String> {
    let scene = scene(3)?;
    let token = scene.cluster.namespace_token("pages")?;
    // Not the first, which is asked to purge, and not where the clone is: its end would be another experiment.
    let status = scene.cluster.status()?;
    let all = status["services"].as_array().into_iter().flatten();
    let home =
        all.filter(|of| of["name"] == "origin").find_map(|of| of["clones"][0]["node"].as_str().map(str::to_owned));
    let home = home.ok_or_else(|| format!("no clone of the origin in {}", status["services"]))?;
    let victim = if home == "n3" { 1 } else { 2 };
    let purger = if home == "n1" || victim == 1 { 0 } else { 1 };
    let mut purges = Vec::new();
    for version in 1..=PURGES {
        purges.push(one_purge(&scene, &token, victim, purger, version, report)?);
    }
    Ok(purges)
}

fn one_purge(
    scene: &Scene,
    token: &str,
    victim: usize,
    purger: usize,
    version: u64,
    report: &mut Report,
) -> Result<Purged, String> {
    let doors = scene.cluster.doors("http");
    let is_hit = |door: &SocketAddr| said(*door).is_ok_and(|said| said.is_hit);
    wait_until("every node gives the page from its cache", || doors.iter().all(is_hit))?;
    let pid = scene.cluster.pid(victim).ok_or("no pid")?;
    send(pid, rustix::process::Signal::STOP)?;
    let held = Held(pid);
    scene.files.put("page", &page(version))?;
    let api = scene.cluster.doors("api")[purger];
    let request = format!(
        "POST /v1/ns/pages/purge?tag=page HTTP/1.1\r\nHost: {api}\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let begun = Instant::now();
    let (status, _, body) = http(api, &request, PATIENCE)?;
    let seconds = begun.elapsed().as_secs_f64();
    if status != 204 {
        return Err(format!("the purge was answered {status}: {body}"));
    }
    // All that is asked from here on began after the purge.
    let asked = ask_early(doors[victim])?;
    let (stop, expected) =
        (Arc::new(AtomicBool::new(false)), Arc::new(String::from_utf8_lossy(&page(version)).into_owned()));
    let askers: Vec<_> = doors
        .iter()
        .enumerate()
        .map(|(node, door)| {
            let (stop, expected, door) = (Arc::clone(&stop), Arc::clone(&expected), *door);
            std::thread::spawn(move || {
                let mut purged = Purged { seconds: 0.0, stale: 0, failed: 0, answers: 0 };
                let mut why = None;
                while !stop.load(Ordering::SeqCst) {
                    tally(said(door), &expected, &mut purged, &mut why);
                    std::thread::sleep(Duration::from_millis(2));
                }
                (node, purged, why)
            })
        })
        .collect();
    std::thread::sleep(LOOK);
    drop(held);
    let mut all = Purged { seconds, stale: 0, failed: 0, answers: 0 };
    let mut why = None;
    tally(answer(asked), &expected, &mut all, &mut why);
    std::thread::sleep(LOOK);
    stop.store(true, Ordering::SeqCst);
    for asker in askers {
        let (node, purged, failed) = asker.join().map_err(|_| "a client panicked")?;
        all.stale += purged.stale;
        all.failed += purged.failed;
        all.answers += purged.answers;
        if let Some(failed) = failed {
            report.notes.push(format!("through n{} after a purge: {failed}", node + 1));
        }
    }
    Ok(all)
}

fn tally(said: Result<Said, String>, expected: &str, purged: &mut Purged, why: &mut Option<String>) {
    match said {
        Ok(said) => {
            purged.answers += 1;
            if said.body != expected {
                purged.stale += 1;
                why.get_or_insert_with(|| format!("stale: {:?}", &said.body[..8]));
            }
        }
        Err(failed) => {
            purged.failed += 1;
            why.get_or_insert(failed);
        }
    }
}

/// Asks a node that hangs: the kernel takes the request for it.
fn ask_early(door: SocketAddr) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect_timeout(&door, PATIENCE).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let request = format!("GET {PAGE} HTTP/1.1\r\nHost: {door}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    Ok(stream)
}

fn answer(mut stream: TcpStream) -> Result<Said, String> {
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|e| e.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer, but {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or("no status")?;
    read((status, head.to_owned(), body.to_owned()))
}

/// A stopped process goes on, whatever happens.
struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = send(self.0, rustix::process::Signal::CONT);
    }
}
