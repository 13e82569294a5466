//! Clients of HTTP/2 (curl's, with nghttp2) while all nodes restart under them: told to go elsewhere, none is cut off.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use e2e::tools::{self, Said};
use e2e::{Ports, Up, soon, wait_for};

/// It takes a moment to answer, so that there are always some under way when a node closes its doors.
const SLOW: &str = r#"
[service.slow]
run = ["python3", "-c", "import http.server as h, os, time; H = type('H', (h.BaseHTTPRequestHandler,), dict(protocol_version='HTTP/1.1', do_GET=lambda s: (time.sleep(0.02), s.send_response(200), s.send_header('Content-Length', '0'), s.end_headers()), log_message=lambda *a: None)); h.ThreadingHTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()"]
clones = 3
http = { host = "*" }
"#;
/// Of one run of curl, over one connection as long as that goes.
const ASKED: u64 = 100;

/// Many requests at once over one connection, and a line for each.
fn ask(door: SocketAddr) -> Said {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-k", "--http2", "--parallel", "--parallel-max", "6", "--max-time", "30", "-o", "/dev/null"]);
    curl.args(["-w", "%{exitcode} %{http_version} %{http_code} %{errormsg}\\n"]);
    tools::run(curl.arg(format!("https://{door}/?[1-{ASKED}]")), Duration::from_secs(60))
}

#[test]
fn a_rolling_restart_fails_no_request_of_http_2() {
    let _turn = e2e::beside();
    if !tools::has("openssl") || !tools::has("curl") {
        return e2e::skip("openssl or curl is not installed");
    }
    let tls = std::env::temp_dir().join(format!("coppice-e2e-h2-{}", std::process::id()));
    std::fs::create_dir_all(&tls).unwrap();
    tools::certificate(&tls, "shop.example");
    let port = Ports::free(3).http;
    let up = Up::start(3, &["--no-demo", "--tls-dir", &tls.display().to_string(), "--https-port", &port.to_string()]);
    up.apply("slow.toml", SLOW).good();
    up.settle(Duration::from_secs(60), 1);
    let doors: Vec<_> = (1..=3).map(|n| SocketAddr::new(up.at(n).http.ip(), port)).collect();
    if ask(doors[0]).out.matches("0 2 200").count() as u64 != ASKED {
        return e2e::skip(&format!("curl does not speak HTTP/2: {:?}", ask(doors[0])));
    }
    let (over, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let failed: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = doors
            .iter()
            .map(|door| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    while !over.load(Relaxed) {
                        let said = ask(*door);
                        runs.fetch_add(1, Relaxed);
                        let lines: Vec<_> = said.out.lines().collect();
                        failed.extend(lines.iter().filter(|l| !l.starts_with("0 2 200")).map(|l| (*l).to_owned()));
                        if lines.len() as u64 != ASKED {
                            failed.push(format!("{} of {ASKED} have an end: {}", lines.len(), said.err));
                        }
                    }
                    failed
                })
            })
            .collect();
        let go_on = |more: u64| {
            let until = runs.load(Relaxed) + more;
            soon("clients go on", 60, || runs.load(Relaxed) >= until);
        };
        go_on(3);
        // Not to be left asking for ever if a restart fails.
        let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                wait_for("all may restart", Duration::from_secs(60), || {
                    let said = up.coppice(&["node", "restart", "--rolling"]);
                    if said.is_good() { Ok(()) } else { Err(said.err) }
                });
            }
            go_on(3);
        }));
        over.store(true, Relaxed);
        let failed = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        restarted.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        failed
    });
    let _ = std::fs::remove_dir_all(&tls);
    let asked = runs.load(Relaxed) * ASKED;
    assert!(failed.is_empty(), "{} of {asked} failed: {:#?}", failed.len(), &failed[..failed.len().min(5)]);
    e2e::say(&format!("six restarts: {asked} requests of HTTP/2 through the restarting nodes, 0 failed"));
}
