//! What `/metrics` says, judged by Prometheus' own programs: promtool has nothing to complain of, and a real Prometheus that asks three
//! nodes answers each query of the dashboard, and holds the alerts' rules.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::program::repository;
use e2e::tools::{self, run};
use e2e::{Up, at, http, skip, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
/// What shows nothing while all is well, or without a certificate, and so need not have a value.
const MAY_BE_EMPTY: [&str; 3] = ["5xx", "certificate_ends_seconds", "namespace_bytes"];

struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Texts of `expr` anywhere in a document.
fn expressions(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match value {
            Value::String(text) if key == "expr" => found.push(text.clone()),
            value => expressions(value, found),
        }),
        Value::Array(all) => all.iter().for_each(|value| expressions(value, found)),
        _ => (),
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[test]
fn prometheus_has_nothing_to_complain_of_and_answers_the_dashboards_queries() {
    let _turn = e2e::beside();
    if !tools::has("promtool") || !tools::has("prometheus") {
        return skip("prometheus (the Debian package) is not installed: nobody judges /metrics and the dashboard");
    }
    let up = Up::shop();
    up.apply("ns.toml", "[namespace.kept]\nclass = \"linear\"\n").good();
    let dir = std::env::temp_dir().join(format!("coppice-e2e-prometheus-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let packaging = repository().join("packaging/prometheus");
    std::fs::copy(packaging.join("alerts.yml"), dir.join("alerts.yml")).unwrap();
    let targets: Vec<String> = (1..=3).map(|n| format!("\"{}\"", up.at(n).api)).collect();
    let config = std::fs::read_to_string(packaging.join("prometheus.yml")).unwrap();
    let theirs = "[\"10.0.0.1:7070\", \"10.0.0.2:7070\", \"10.0.0.3:7070\"]";
    assert!(config.contains(theirs), "{config}");
    let config = config
        .replace(theirs, &format!("[{}]", targets.join(", ")))
        .replace("scrape_interval: 10s", "scrape_interval: 1s");
    std::fs::write(dir.join("prometheus.yml"), config).unwrap();
    let said = run(Command::new("promtool").args(["check", "config", "prometheus.yml"]).current_dir(&dir), SOON);
    assert!(said.is_good() && said.out.contains("rules found"), "{said:?}");

    let web = format!("127.0.0.1:{}", at::free_port(1));
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new("prometheus");
    command
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address={web}"));
    command.current_dir(&dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let prometheus = Prometheus(command.spawn().unwrap());
    wait_for("prometheus listens", SOON, || TcpStream::connect(&web).map(drop).map_err(|e| e.to_string()));
    let web = web.parse().unwrap();
    let ask = |path: &str| {
        let reply = http::get(web, path).map_err(|e| e.to_string())?;
        let said: Value = serde_json::from_str(&reply.text()).map_err(|e| format!("{e}: {}", reply.text()))?;
        if said["status"] == "success" { Ok(said["data"].clone()) } else { Err(said.to_string()) }
    };

    // Meanwhile there is something to see.
    for _ in 0..30 {
        assert_eq!(http::get(up.at(1).http, "/").unwrap().status, 200);
    }
    let metrics = dir.join("metrics");
    std::fs::write(&metrics, http::get(up.at(1).api, "/metrics").unwrap().text()).unwrap();
    let said = run(Command::new("sh").args(["-c", "promtool check metrics < metrics"]).current_dir(&dir), SOON);
    assert!(said.is_good() && said.out.is_empty() && said.err.is_empty(), "promtool complains: {said:?}");

    let dashboard = std::fs::read_to_string(packaging.join("dashboard.json")).unwrap();
    let mut queries = Vec::new();
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut queries);
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        let query = query.replace("$__rate_interval", "1m").replace("$job", "coppice");
        wait_for(&query, SOON, || {
            let _ = http::get(up.at(1).http, "/");
            let found = ask(&format!("/api/v1/query?query={}", encoded(&query)))?;
            let is_there = found["result"].as_array().is_some_and(|all| !all.is_empty());
            if is_there || MAY_BE_EMPTY.iter().any(|part| query.contains(part)) {
                Ok(())
            } else {
                Err("nothing".to_owned())
            }
        });
    }
    let rules = ask("/api/v1/rules").unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 10 && rules.iter().all(|rule| rule["lastError"].is_null()), "{rules:?}");
    drop(prometheus);
    let _ = std::fs::remove_dir_all(&dir);
}
