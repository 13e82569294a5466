//! Strangers who open connections without end and say nothing, at the ports that are not for them: nobody else notices.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::resp::Resp;
use e2e::{Shared, Up, http, program};

static UP: Shared = Shared::beside(|| Up::bare(2));

/// So many connections a second at most, a thousand of which are kept; how many there were.
fn strangers(at: SocketAddr, per_second: u32, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let (mut open, mut count, begun) = (VecDeque::new(), 0, Instant::now());
        while !stop.load(Relaxed) {
            if f64::from(count) > begun.elapsed().as_secs_f64() * f64::from(per_second) {
                std::thread::yield_now();
                continue;
            }
            open.extend(TcpStream::connect_timeout(&at, Duration::from_secs(5)));
            count += 1;
            if open.len() > 1000 {
                open.pop_front();
            }
        }
        count
    })
}

/// Requests that need a new connection each, and what nodes, clients of namespaces and operators ask meanwhile.
#[test]
fn silent_strangers_at_the_inner_ports_fail_no_request_of_others() {
    let up = UP.take();
    let run = program::service_program("once.py");
    let file = format!(
        "[namespace.carts]\nclass = \"session\"\n[service.once]\nrun = [\"python3\", {run:?}]\nclones = 1\nhttp = {{ path = \"/\" }}\n"
    );
    up.apply("once.toml", &file).good();
    up.settle(Duration::from_secs(40), 0);
    let token = up.token("carts");
    let stop = Arc::default();
    // One of the two nodes has the clone: each is asked, and each is flooded.
    let floods: Vec<_> = [1, 2]
        .iter()
        .flat_map(|node| [up.at(*node).peer, up.at(*node).api, up.at(*node).resp])
        .map(|at| strangers(at, 1000, &stop))
        .collect();
    let (begun, mut asked) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(6) {
        for node in [1, 2] {
            let at = up.at(node);
            let reply = http::get(at.http, "/").unwrap();
            assert_eq!(reply.status, 200, "request {asked} at n{node}: {}", reply.text());
            for path in ["/livez", "/readyz", "/v1/status"] {
                let reply = http::get(at.api, path).unwrap();
                assert_eq!(reply.status, 200, "{path} at n{node}, {asked}: {}", reply.text());
            }
            let mut resp = Resp::open(at.resp, "carts", &token).unwrap();
            resp.ask(&["SET", "a", "1"]).unwrap();
            asked += 1;
        }
    }
    stop.store(true, Relaxed);
    let came: u32 = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
    println!("{asked} rounds beside {came} strangers");
    assert!(asked > 3 && came > 2000, "{asked} rounds beside {came} strangers say nothing");
}
