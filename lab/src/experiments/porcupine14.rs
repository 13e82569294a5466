//! Porcupine's figure 14 on real processes: eight nodes with as many objects as are asked for, of which one is killed, and later comes
//! back. How long until the others have all of its buckets of owners, and until the last directory is whole again: then a look for an
//! object asks two or three nodes, and not all. Meanwhile objects are put and read as ever, which is counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::closed::runtime;
use crate::keep::Kept;
use crate::load::http_get;
use crate::report::{Figure, Report, median};
use crate::space::token_of;

/// From so many on there are directories.
const NODES: u8 = 8;
/// That each owner has.
const OBJECTS: u64 = 10;
const BYTES: usize = 256;
const CLIENTS: u64 = 64;
/// While a node is away.
const ASKERS: u64 = 4;
const BUCKETS: u64 = 1024;
const LOOKS: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);
/// Objects of a thousand owners are looked at while a node is away.
const ASKED: u64 = 1000;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("porcupine14");
    let owners = plan.users.max(1) as u64;
    let (mut cluster, token) = token_of(NODES, "class = \"object\"\n")?;
    let doors = cluster.doors("api");
    let all: Vec<SocketAddr> = doors.clone();
    fill(&doors, &token, owners)?;
    when_whole(&all, Instant::now())?;
    let victim = usize::from(NODES) - 1;
    let (mut taken, mut whole, mut back, mut failed) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..plan.rounds {
        cluster.hold_restarts(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asker = ask_on(&doors[..victim], &token, owners, &stop);
        let begun = Instant::now();
        cluster.kill(victim)?;
        let (has_all, is_whole) = when_whole(&doors[..victim], begun)?;
        stop.store(true, Ordering::SeqCst);
        failed += asker.join().map_err(|_| "an asker panicked")??;
        taken.push(has_all);
        whole.push(is_whole);
        let begun = Instant::now();
        cluster.hold_restarts(false)?;
        cluster.wait_restarted(victim)?;
        back.push(when_whole(&all, begun)?.1);
    }
    report.notes.push(format!("{} objects of {owners} owners, on two of {NODES} nodes each", owners * OBJECTS));
    let mut tell = |what: &str, unit: &str, value: f64, paper: Option<f64>| {
        report.figures.push(Figure::new(what, unit, value, "Porcupine, 30 nodes", paper));
    };
    tell("killed to the others having all buckets", "s", median(taken), Some(10.0));
    tell("killed to the last directory whole", "s", median(whole), Some(14.0));
    tell("started again to the last directory whole", "s", median(back), Some(14.0));
    tell("gets and puts that failed through live nodes", "operations", failed as f64, None);
    Ok(report)
}

fn head(method: &str, owner: u64, n: u64, addr: SocketAddr, token: &str) -> String {
    format!(
        "{method} /v1/ns/lab/objects/owner-{owner}/{owner:016x}{n:016x} HTTP/1.1\r\nHost: {addr}\r\n\
         Authorization: Bearer {token}\r\n"
    )
}

async fn put(conn: &mut Kept, owner: u64, n: u64, addr: SocketAddr, token: &str) -> Result<(), String> {
    let head = format!("{}Content-Length: {BYTES}\r\n\r\n", head("PUT", owner, n, addr, token));
    let answer = conn.ask(&[head.as_bytes(), &[b'x'; BYTES]].concat()).await?;
    if answer.status == 204 { Ok(()) } else { Err(String::from_utf8_lossy(&answer.body).into_owned()) }
}

fn fill(doors: &[SocketAddr], token: &str, owners: u64) -> Result<(), String> {
    runtime()?.block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let (addr, token) = (doors[client as usize % doors.len()], token.to_owned());
            all.spawn(async move {
                let mut conn = Kept::open(addr).await?;
                for owner in (client..owners).step_by(CLIENTS as usize) {
                    for n in 0..OBJECTS {
                        // One that is refused for a moment is put again.
                        let mut tries = 0;
                        while let Err(why) = put(&mut conn, owner, n, addr, &token).await {
                            tries += 1;
                            if tries > 100 {
                                return Err(why);
                            }
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                }
                Ok::<_, String>(())
            });
        }
        while let Some(done) = all.join_next().await {
            done.map_err(|e| e.to_string())??;
        }
        Ok(())
    })
}

/// Gets what is there and puts what is new through these nodes until it is stopped: how many of these failed.
fn ask_on(
    doors: &[SocketAddr],
    token: &str,
    owners: u64,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<Result<u64, String>> {
    static NEXT: AtomicU64 = AtomicU64::new(OBJECTS);
    let (doors, token, stop) = (doors.to_vec(), token.to_owned(), Arc::clone(stop));
    std::thread::spawn(move || {
        runtime()?.block_on(async {
            let mut all = tokio::task::JoinSet::new();
            for client in 0..ASKERS {
                let (addr, token, stop) = (doors[client as usize % doors.len()], token.clone(), Arc::clone(&stop));
                all.spawn(async move {
                    let (mut conn, mut failed) = (Kept::open(addr).await?, 0);
                    while !stop.load(Ordering::SeqCst) {
                        let n = NEXT.fetch_add(1, Ordering::SeqCst);
                        let owner = n % owners.min(ASKED);
                        let get = format!("{}\r\n", head("GET", owner, n % OBJECTS, addr, &token));
                        let got = conn.ask(get.as_bytes()).await?;
                        let is_right = got.status == 200 && got.body == [b'x'; BYTES];
                        failed +=
                            u64::from(!is_right) + u64::from(put(&mut conn, owner, n, addr, &token).await.is_err());
                    }
                    Ok::<_, String>(failed)
                });
            }
            let mut failed = 0;
            while let Some(done) = all.join_next().await {
                failed += done.map_err(|e| e.to_string())??;
            }
            Ok(failed)
        })
    })
}

/// Seconds until these nodes have all buckets among them, and until they know all of them.
fn when_whole(doors: &[SocketAddr], begun: Instant) -> Result<(f64, f64), String> {
    let mut has_all = None;
    while begun.elapsed() < PATIENCE {
        let (mut buckets, mut partial) = (0, 0);
        for door in doors {
            let figures = http_get(*door, "/metrics", None).unwrap_or_default();
            buckets += figure(&figures, "coppice_object_buckets");
            partial += figure(&figures, "coppice_object_buckets_partial");
        }
        let now = begun.elapsed().as_secs_f64();
        if buckets == BUCKETS {
            let has_all = *has_all.get_or_insert(now);
            if partial == 0 {
                return Ok((has_all, now));
            }
        } else {
            has_all = None;
        }
        std::thread::sleep(LOOKS);
    }
    Err(format!("directories were not whole within {PATIENCE:?}"))
}

fn figure(figures: &str, name: &str) -> u64 {
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_found_by_their_whole_names() {
        let text = "# HELP coppice_object_buckets ...\ncoppice_object_buckets_partial 3\ncoppice_object_buckets 128\n";
        assert_eq!(super::figure(text, "coppice_object_buckets"), 128);
        assert_eq!(super::figure(text, "coppice_object_buckets_partial"), 3);
        assert_eq!(super::figure(text, "coppice_object"), 0);
    }
}
