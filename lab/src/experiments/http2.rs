//! HTTP/2 over TLS: the same origin (nginx with one worker, a 1 KiB file) behind our edge, and behind nginx and HAProxy.
//! Each connection has 100 requests under way at all times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::Plan;
use crate::closed::{self, Caller, Shape};
use crate::cluster::{Cluster, free_port};
use crate::h2::{self, Sender};
use crate::origin::Origin;
use crate::peers::{scratch, wait_until};
use crate::proxies::{self, Size};
use crate::report::{Figure, Report, median};

const STREAMS: usize = 100;
const CONNECTIONS: usize = 4;
const BODY: usize = 1024;

/// Connections of one run, each opened by the first of its streams.
type Opened = Arc<Vec<Mutex<Option<Sender>>>>;

/// One stream at a time of a connection that it shares.
struct Stream(Sender);

impl Caller for Stream {
    async fn call(&mut self, _: u64) -> Result<bool, String> {
        let (status, body) = h2::get(&mut self.0, "/1k").await?;
        Ok(status == 200 && body.len() == BODY && body.iter().all(|byte| *byte == b'x'))
    }
}

/// What was seen of one side.
#[derive(Default)]
struct Seen {
    rates: Vec<f64>,
    p99_us: Vec<f64>,
    cpu_us: Vec<f64>,
    failed: u64,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("http2");
    let connections = plan.connections.first().copied().unwrap_or(CONNECTIONS);
    let tls = scratch("http2-tls");
    std::fs::create_dir_all(&tls).map_err(|e| format!("cannot make {}: {e}", tls.display()))?;
    let certificate = h2::certificate(&tls)?;
    let connector = h2::connector(&certificate)?;
    let https = free_port(1)?;
    let (folder, port) = (tls.display().to_string(), https.to_string());
    let cluster = Cluster::with_options(1, &["--tls-dir", &folder, "--https-port", &port])?;
    let files = Origin::new("http2-origin")?;
    files.put("1k", &[b'x'; BODY])?;
    cluster.apply(&files.service("clones = 1", "")?)?;
    let door = cluster.doors("http").first().copied().ok_or("no edge")?;
    wait_until(
        "the origin serves",
        || matches!(crate::load::http_get(door, "/1k", None), Ok(body) if body.len() == BODY),
    )?;
    let origin = cluster.first_clone("origin")?;
    // The clone's own time is in that of its node, so it is in that of the others.
    let mut sides: Vec<(&str, SocketAddr, Vec<i32>)> =
        vec![("coppice", SocketAddr::new(door.ip(), https), vec![cluster.pid(0).ok_or("no pid")?])];
    let (mut programs, size) = (Vec::new(), Size { workers: 2, connections: 512 });
    for (name, start) in proxies::ALL_TLS {
        if !proxies::is_installed(name) {
            report.notes.push(format!("{name} is not installed (package {name}), so it was not run"));
            continue;
        }
        let (program, addr) = start(origin.addr, size, [&tls.join("lab.crt"), &tls.join("lab.key")])?;
        sides.push((name, addr, vec![program.pid(), origin.pid]));
        programs.push(program);
    }
    let mut seen: Vec<Seen> = sides.iter().map(|_| Seen::default()).collect();
    let mut csv = "side,round,per_second,p99_us,processor_us,failed\n".to_owned();
    let shape = Shape { clients: connections * STREAMS, length: Duration::from_secs(plan.seconds), each: 1 };
    for round in 0..plan.rounds {
        for ((name, addr, pids), seen) in sides.iter().zip(&mut seen) {
            let opened: Opened = Arc::new((0..connections).map(|_| Mutex::default()).collect());
            let (addr, connector) = (*addr, connector.clone());
            let open = move |index: usize| {
                let (opened, connector) = (Arc::clone(&opened), connector.clone());
                async move {
                    let mut of = opened[index / STREAMS].lock().await;
                    if let Some(sender) = of.as_ref().filter(|sender| !sender.is_closed()) {
                        return Ok(Stream(sender.clone()));
                    }
                    let sender = h2::open(addr, &connector).await?;
                    *of = Some(sender.clone());
                    Ok(Stream(sender))
                }
            };
            let ran = closed::run(&shape, pids, open)?;
            let failed = ran.out.failed + ran.out.wrong;
            if let Some(why) = ran.out.first_failure.filter(|_| failed > 0) {
                report.notes.push(format!("{name}: {why}"));
            }
            let (rate, p99_us) = (ran.out.per_second, ran.out.p99_us);
            csv += &format!("{name},{round},{rate:.0},{p99_us:.0},{:.1},{failed}\n", ran.cpu_us);
            seen.rates.push(rate);
            seen.p99_us.push(p99_us);
            seen.cpu_us.push(ran.cpu_us);
            seen.failed += failed;
        }
    }
    let ours = seen.remove(0);
    for ((name, ..), theirs) in sides[1..].iter().zip(seen) {
        let mut add = |what: &str, unit: &str, our: f64, their: f64| {
            report.figures.push(Figure::new(what, unit, our, name, Some(their)));
        };
        add("good answers", "1/s", median(ours.rates.clone()), median(theirs.rates));
        add("p99", "us", median(ours.p99_us.clone()), median(theirs.p99_us));
        add("processor time of an answer, with the origin's", "us", median(ours.cpu_us.clone()), median(theirs.cpu_us));
        add("failed or wrong", "requests", ours.failed as f64, theirs.failed as f64);
    }
    if sides.len() == 1 {
        report.figures.push(Figure::new("good answers", "1/s", median(ours.rates), "", None));
    }
    report.notes.push(format!(
        "one node; {connections} connections of {STREAMS} streams, 1 KiB; the origin (nginx, 1 worker) is the same process for all"
    ));
    report.write(&plan.out, "http2.csv", &csv)?;
    let _ = std::fs::remove_dir_all(&tls);
    Ok(report)
}
