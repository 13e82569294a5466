//! Services that grow and shrink by themselves, with real clones that answer one request after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Up, http, wait_for};
use serde_json::Value;

/// Users who each wait for an answer before they ask again.
struct Users {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Users {
    fn start(doors: &[SocketAddr], count: usize) -> Users {
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let user = |at: SocketAddr| {
            let (stop, failed) = (Arc::clone(&stop), Arc::clone(&failed));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = http::get(at, "/");
                    if !reply.as_ref().is_ok_and(|reply| reply.status == 200) {
                        eprintln!("{reply:?}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let threads = (0..count).map(|n| user(doors[n % doors.len()])).collect();
        Users { stop, failed, threads }
    }

    /// How many of their requests failed.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.failed.load(Ordering::Relaxed)
    }
}

fn service(up: &Up) -> Value {
    up.status(1).unwrap()["services"][0].clone()
}

fn decisions(up: &Up, kind: &str) -> Vec<String> {
    let said = up.coppice(&["events", "--json"]).good();
    let events = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == kind).map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_burst_brings_clones_recruits_the_overflow_node_and_its_end_drains_them_without_a_failed_request() {
    let _turn = e2e::alone();
    let up = Up::start(3, &["--no-demo", "--overflow", "1", "--clones-max", "2"]);
    let program = e2e::program::service_program("slow.py");
    let text = format!(
        "[service.slow]\nrun = [\"python3\", {program:?}]\nclones = {{ min = 1, max = 6 }}\nwait = \"60ms\"\n\
         health = \"/health\"\nhttp = {{ host = \"*\" }}\nenv = {{ TAKES_MS = \"40\" }}\n"
    );
    let wrong = up.apply("bad.toml", &text.replace("min = 1", "min = 7")).wrong();
    assert!(wrong.contains("bad.toml:3") && wrong.contains("min 7 is over max 6"), "{wrong}");
    up.apply("slow.toml", &text).good();
    up.settle(Duration::from_secs(30), 0);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).http).collect();
    let few = Users::start(&doors, 1);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(service(&up)["wanted"], 1, "one user is no burst: {:?}", decisions(&up, "scaled"));

    let burst = Instant::now();
    let many = Users::start(&doors, 16);
    let grown = wait_for("five clones serve", Duration::from_secs(60), || {
        let service = service(&up);
        let serving = service["clones"].as_array().unwrap().iter().filter(|c| c["state"] == "serving").count();
        if serving >= 5 { Ok(serving) } else { Err(service.to_string()) }
    });
    e2e::say(&format!("{} clones serve {} ms after the burst began", grown.0, burst.elapsed().as_millis()));
    assert!(decisions(&up, "overflow").iter().any(|text| text.contains("recruited") && text.contains("time 1")));
    let scaled = decisions(&up, "scaled");
    assert!(scaled.iter().all(|text| text.contains("requests wait")), "{scaled:?}");
    assert_eq!(many.end(), 0, "requests failed in the burst");

    wait_for("it shrinks and the overflow node is released", Duration::from_secs(90), || {
        let service = service(&up);
        let guests = service["clones"].as_array().unwrap().iter().filter(|c| c["node"] == "n3").count();
        let wanted = service["wanted"].as_u64().unwrap();
        if wanted <= 2 && guests == 0 { Ok(()) } else { Err(service.to_string()) }
    });
    assert!(decisions(&up, "overflow").iter().any(|text| text.contains("released")));
    let used = up.status(1).unwrap()["overflow"].clone();
    assert!(used["times"] == 1 && used["total_ms"].as_u64() > Some(1_000) && used["since_ms"].is_null(), "{used}");
    let page = up.coppice(&["status"]).good();
    assert!(page.contains("nodes for overflow (n3): recruited once, for "), "{page}");
    assert_eq!(few.end(), 0, "requests failed while clones were drained");
    e2e::say(&format!("{:#?}", decisions(&up, "scaled")));
}
