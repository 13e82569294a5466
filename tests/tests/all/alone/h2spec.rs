//! The HTTPS door of the real program, asked all questions of h2spec: a check of HTTP/2 (RFC 9113) that is not ours.

use std::process::Command;
use std::time::Duration;

use e2e::program::repository;
use e2e::{Ports, Up, say, skip, tools, wait_for};

const WITHIN: Duration = Duration::from_secs(240);

/// h2spec sends requests with and without bodies.
const PLAIN: &str = r#"
[service.plain]
run = ["python3", "-c", "import http.server as h, os; H = type('H', (h.BaseHTTPRequestHandler,), dict(protocol_version='HTTP/1.1', do_GET=lambda s: (s.rfile.read(int(s.headers.get('Content-Length') or 0)), s.send_response(200), s.send_header('Content-Length', '5'), s.end_headers(), s.command == 'HEAD' or s.wfile.write(b'hello')), do_HEAD=lambda s: s.do_GET(), do_POST=lambda s: (s.do_GET(), setattr(s, 'close_connection', True)), log_message=lambda *a: None)); h.ThreadingHTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()"]
clones = 1
http = { host = "*" }
"#;

/// What is answered otherwise than h2spec expects, and why.
const EXCEPTIONS: &[(&str, &str)] = &[];

#[test]
fn h2spec_finds_nothing_that_has_no_reason() {
    let _turn = e2e::alone();
    let folder = repository().join("tests/h2spec");
    let go = |args: &[&str], within| tools::run(Command::new("go").args(args).current_dir(&folder), within);
    if !tools::has("openssl") || !tools::has("go") {
        return skip("openssl or go is not installed");
    }
    if !go(&["mod", "download"], WITHIN).is_good() {
        return skip("h2spec cannot be had from the Go module proxy");
    }
    let tls = std::env::temp_dir().join(format!("coppice-e2e-h2spec-{}", std::process::id()));
    std::fs::create_dir_all(&tls).unwrap();
    tools::certificate(&tls, "shop.example");
    let port = Ports::free(1).http;
    let up = Up::start(1, &["--no-demo", "--tls-dir", &tls.display().to_string(), "--https-port", &port.to_string()]);
    up.apply("plain.toml", PLAIN).good();
    up.settle(Duration::from_secs(60), 1);
    let host = up.at(1).http.ip().to_string();
    let url = format!("https://{host}:{port}/");
    wait_for("the door answers", Duration::from_secs(20), || {
        let said = tools::run(Command::new("curl").args(["-sk", "--max-time", "5", &url]), Duration::from_secs(10));
        if said.out == "hello" { Ok(()) } else { Err(format!("{said:?}")) }
    });
    let said = go(&["run", ".", &host, &port.to_string()], WITHIN);
    let _ = std::fs::remove_dir_all(&tls);
    assert!(said.is_good(), "{said:?}");
    let asked: u32 = said.out.lines().find_map(|line| line.strip_prefix("ASKED ")).unwrap().parse().unwrap();
    assert!(asked >= 140, "only {asked} questions were asked");
    let failed: Vec<&str> = said.out.lines().filter_map(|line| line.strip_prefix("FAILED ")).collect();
    let known = |line: &&&str| EXCEPTIONS.iter().any(|(id, _)| line.starts_with(&format!("{id}:")));
    let (excused, wrong): (Vec<&str>, Vec<&str>) = failed.iter().partition(known);
    say(&format!("h2spec asked {asked} questions; answered otherwise than expected, with reason: {excused:?}"));
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (id, why) in EXCEPTIONS {
        let still = failed.iter().any(|line| line.starts_with(&format!("{id}:")));
        assert!(still, "{id} passes by now and needs no excuse: {why}");
    }
}
