//! Idle WebSockets: what one costs the proxy that carries it, against HAProxy and nginx in front of the same clone. Each has
//! carried a frame both ways before, as most have that are idle.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Plan;
use crate::cluster::Cluster;
use crate::proxies::{self, Size};
use crate::report::{Figure, Report, median};
use crate::worker::{self, WEBSOCKET};

const SOCKETS: usize = 10_000;
/// A proxy has two sockets for each, and some more.
const FILES_BESIDE: u64 = 600;
/// What the first ones cost is no socket's.
const FIRST: usize = 200;
/// Few enough that no edge takes the rush for overload.
const AT_ONCE: usize = 16;
/// A text frame of a client, masked with zeros: "hi".
const FRAME: [u8; 8] = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
/// Buffers are given back.
const REST: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("websockets");
    let sockets = sockets()?;
    let mut csv = "side,round,sockets,bytes_each\n".to_owned();
    let mut ours = Vec::new();
    let mut theirs: Vec<Vec<f64>> = vec![Vec::new(); proxies::ALL.len()];
    for round in 0..plan.rounds {
        let cluster = Cluster::start(1, false)?;
        cluster.serve(&format!(
            "[service.echo]\n{}clones = 1\nhealth = \"/health\"\nhttp = {{}}\n",
            worker::run_line(1, Duration::ZERO)?
        ))?;
        let mut measure = |name: &str, door, pids: &[i32]| {
            let bytes = hold(door, pids, sockets)?;
            csv += &format!("{name},{round},{sockets},{bytes:.0}\n");
            Ok::<f64, String>(bytes)
        };
        let door = cluster.doors("http").first().copied().ok_or("no edge")?;
        ours.push(measure("coppice", door, &[cluster.pid(0).ok_or("no pid")?])?);
        for ((name, start), theirs) in proxies::ALL.iter().zip(&mut theirs) {
            if proxies::is_installed(name) {
                let size = Size { workers: 2, connections: sockets as u32 };
                let (program, addr) = start(cluster.clone_addr("echo")?, size)?;
                theirs.push(measure(name, addr, &family(program.pid())?)?);
            }
        }
    }
    let ours = median(ours);
    for ((name, _), theirs) in proxies::ALL.iter().zip(theirs) {
        if theirs.is_empty() {
            report.notes.push(format!("{name} is not installed (package {name}), so it was not run"));
        }
        let theirs = (!theirs.is_empty()).then(|| median(theirs));
        report.figures.push(Figure::new("resident memory of an idle WebSocket", "bytes", ours, name, theirs));
    }
    report.notes.push(format!(
        "{sockets} WebSockets to one clone, idle for {} s after one frame each way; growth of the proxy's resident set over \
         their number; the kernel's sockets are not in it",
        REST.as_secs()
    ));
    report.write(&plan.out, "websockets.csv", &csv)?;
    Ok(report)
}

/// As many as the limit of open files allows a proxy.
fn sockets() -> Result<usize, String> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).map_err(|e| e.to_string())?;
    let most = limit.maximum.map_or(u64::MAX, |most| most.saturating_sub(FILES_BESIDE) / 2);
    Ok(SOCKETS.min(usize::try_from(most).unwrap_or(usize::MAX)))
}

/// Bytes that these processes grow by for each.
fn hold(door: SocketAddr, pids: &[i32], count: usize) -> Result<f64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let _first = open(door, FIRST).await?;
        let before = resident(pids)?;
        let mut held = open(door, count - FIRST).await?;
        tokio::time::sleep(REST).await;
        let after = resident(pids)?;
        // They are all there still.
        for socket in held.iter_mut().step_by(97) {
            echo(socket).await?;
        }
        Ok((after - before) / held.len() as f64)
    })
}

async fn open(door: SocketAddr, count: usize) -> Result<Vec<TcpStream>, String> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let mut opening = JoinSet::new();
        for _ in 0..AT_ONCE.min(count - all.len()) {
            opening.spawn(tokio::time::timeout(PATIENCE, one(door)));
        }
        while let Some(opened) = opening.join_next().await {
            let opened = opened.map_err(|e| e.to_string())?;
            all.push(opened.map_err(|_| format!("no WebSocket within {PATIENCE:?}, after {}", all.len()))??);
        }
    }
    Ok(all)
}

async fn one(door: SocketAddr) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(door).await.map_err(|e| e.to_string())?;
    let request = format!("GET /echo HTTP/1.1\r\nHost: lab\r\n{WEBSOCKET}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(|e| format!("{e} after {:?}", String::from_utf8_lossy(&head)))?);
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        return Err(format!("not upgraded: {}", String::from_utf8_lossy(&head)));
    }
    echo(&mut stream).await?;
    Ok(stream)
}

async fn echo(stream: &mut TcpStream) -> Result<(), String> {
    stream.write_all(&FRAME).await.map_err(|e| e.to_string())?;
    let mut back = [0; FRAME.len()];
    stream.read_exact(&mut back).await.map_err(|e| e.to_string())?;
    if back == FRAME { Ok(()) } else { Err(format!("{back:?} came back")) }
}

/// A process and its children.
fn family(pid: i32) -> Result<Vec<i32>, String> {
    let mut all = vec![pid];
    for entry in std::fs::read_dir("/proc").map_err(|e| e.to_string())?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may be gone by now.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<i32>().ok());
        if parent == Some(pid) {
            all.push(child);
        }
    }
    Ok(all)
}

fn resident(pids: &[i32]) -> Result<f64, String> {
    pids.iter().map(|pid| super::memory::resident(*pid)).sum()
}
