//! The shop under load while one node after the other is killed with SIGKILL: shoppers go through nodes that live, and
//! every cart must hold what was put into it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::cluster::Cluster;
use crate::load::http;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};

const SHOPPERS: usize = 12;
const KILL_EVERY: Duration = Duration::from_secs(4);
const WARES: [&str; 3] = ["apple", "honey", "walnut"];

/// One request as a shopper saw it.
struct Seen {
    at: f64,
    millis: f64,
    failed: Option<String>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    /// Bit i: node i is being killed or not yet back; shoppers stay away from it.
    down: AtomicU64,
    stop: AtomicBool,
    wrong_carts: AtomicU64,
    node_down_hits: AtomicU64,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut cluster = Cluster::start(3, true)?;
    let doors = cluster.doors("http");
    let shared = Arc::new(Shared::default());
    let begun = Instant::now();
    let shoppers: Vec<_> = (0..SHOPPERS)
        .map(|i| {
            let (shared, doors) = (Arc::clone(&shared), doors.clone());
            std::thread::spawn(move || shop(i, &doors, &shared, begun))
        })
        .collect();
    let (mut kills, mut back) = (Vec::new(), Vec::new());
    let mut pids: Vec<i32> = (0..3).filter_map(|i| cluster.pid(i)).collect();
    let rounds = (plan.seconds * plan.rounds as u64 * 2 / KILL_EVERY.as_secs()).max(3);
    for round in 0..rounds {
        std::thread::sleep(KILL_EVERY / 2);
        let victim = usize::try_from(round).unwrap_or(0) % 3;
        // Requests in flight through the victim's own edge die with it, by nature: its shoppers leave it first.
        shared.down.fetch_or(1 << victim, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        let killed = Instant::now();
        kills.push(begun.elapsed().as_secs_f64());
        let pid = rustix::process::Pid::from_raw(pids[victim]).ok_or("no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).map_err(|e| e.to_string())?;
        let event = cluster.event("restarted", Duration::from_secs(20))?;
        pids[victim] = i32::try_from(event["pid"].as_i64().unwrap_or(0)).unwrap_or(0);
        let door = cluster.doors("api")[victim];
        crate::peers::wait_until("the node is ready again", || crate::load::http_get(door, "/readyz", None).is_ok())?;
        back.push(killed.elapsed().as_secs_f64());
        shared.down.fetch_and(!(1 << victim), Ordering::SeqCst);
        std::thread::sleep(KILL_EVERY / 2);
    }
    shared.stop.store(true, Ordering::SeqCst);
    for shopper in shoppers {
        shopper.join().map_err(|_| "a shopper panicked")?;
    }
    report(plan, &shared, &kills, &back)
}

/// Adds to a cart and looks at it, through any node that is not being killed, and knows what should be in it.
fn shop(index: usize, doors: &[SocketAddr], shared: &Shared, begun: Instant) {
    let sid = format!("lab-{}-{index}", std::process::id());
    let mut cart = std::collections::BTreeMap::new();
    let mut turn = index;
    while !shared.stop.load(Ordering::SeqCst) {
        turn += 1;
        let door = turn % doors.len();
        if shared.down.load(Ordering::SeqCst) & (1 << door) != 0 {
            continue;
        }
        let ware = WARES[turn % WARES.len()];
        let body = format!("ware={ware}");
        let add = format!(
            "POST /add HTTP/1.1\r\nHost: shop\r\nCookie: sid={sid}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        if request(doors[door], &add, 303, shared, begun).is_some() {
            *cart.entry(ware).or_insert(0u64) += 1;
        } else {
            // Its outcome is unknown: start with a cart that is known.
            return;
        }
        let look = format!("GET /cart.json HTTP/1.1\r\nHost: shop\r\nCookie: sid={sid}\r\nConnection: close\r\n\r\n");
        if let Some(text) = request(doors[door], &look, 200, shared, begun) {
            let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            if cart.iter().any(|(ware, n)| json["cart"][*ware].as_u64() != Some(*n)) {
                shared.wrong_carts.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn request(door: SocketAddr, text: &str, expect: u16, shared: &Shared, begun: Instant) -> Option<String> {
    let at = Instant::now();
    let answer = http(door, text, Duration::from_secs(20));
    let failed = match &answer {
        Ok((status, _, _)) if *status == expect => None,
        Ok((status, _, body)) => Some(format!("HTTP {status}: {}", body.trim())),
        Err(why) => Some(why.clone()),
    };
    let good = failed.is_none();
    if !good {
        shared.node_down_hits.fetch_add(u64::from(shared.down.load(Ordering::SeqCst) != 0), Ordering::SeqCst);
    }
    let seen = Seen { at: begun.elapsed().as_secs_f64(), millis: at.elapsed().as_secs_f64() * 1e3, failed };
    shared.seen.lock().expect("no shopper panics").push(seen);
    answer.ok().filter(|_| good).map(|(_, _, body)| body)
}

fn report(plan: &Plan, shared: &Shared, kills: &[f64], back: &[f64]) -> Result<Report, String> {
    let mut report = Report::new("kills");
    let seen = shared.seen.lock().expect("no shopper panics");
    let failures: Vec<&Seen> = seen.iter().filter(|s| s.failed.is_some()).collect();
    let slowest = seen.iter().map(|s| s.millis).fold(0.0, f64::max);
    let none = |measure: &str, unit: &str, value: f64| Figure::new(measure, unit, value, "none", None);
    report.figures.push(none("nodes killed", "kills", kills.len() as f64));
    report.figures.push(none("requests through live nodes", "requests", seen.len() as f64));
    report.figures.push(none("failed requests", "requests", failures.len() as f64));
    report.figures.push(none("carts that lost something", "carts", shared.wrong_carts.load(Ordering::SeqCst) as f64));
    report.figures.push(none("slowest request", "ms", slowest));
    report.figures.push(none("longest from kill to ready again", "s", back.iter().copied().fold(0.0, f64::max)));
    for failure in failures.iter().take(5) {
        report.notes.push(format!(
            "failed at {:.2} s after {:.0} ms: {}",
            failure.at,
            failure.millis,
            failure.failed.as_deref().unwrap_or_default()
        ));
    }
    let mut csv = "at_s,ms,failed\n".to_owned();
    let seconds = seen.iter().map(|s| s.at as usize).max().unwrap_or(0) + 1;
    let (mut rate, mut worst) = (vec![0.0; seconds], vec![0.0f64; seconds]);
    for s in seen.iter() {
        csv += &format!("{:.3},{:.2},{}\n", s.at, s.millis, u8::from(s.failed.is_some()));
        rate[s.at as usize] += 1.0;
        worst[s.at as usize] = worst[s.at as usize].max(s.millis);
    }
    let points = |values: Vec<f64>| values.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect();
    let svg = lines(
        "The shop while nodes are killed (dashed)",
        "seconds",
        "requests a second; slowest of the second in ms",
        &[
            Line { name: "requests/s".into(), points: points(rate) },
            Line { name: "slowest, ms".into(), points: points(worst) },
        ],
        kills,
    );
    report.write(&plan.out, "kills.csv", &csv)?;
    report.write(&plan.out, "kills.svg", &svg)?;
    Ok(report)
}
