//! What a cluster tells people, scripts and scrapers of itself: shapes that docs/scripts.md promises, held fast.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::{Shared, Up, http, procs, wait_for};
use serde_json::Value;

static SHOP: Shared = Shared::beside(Up::shop);

const PROMISED_IDLE_BYTES: u64 = 40 << 20;

#[test]
fn status_as_json_has_every_documented_key_and_no_secret() {
    let up = SHOP.take();
    let text = up.coppice(&["status", "--json"]).good();
    let view: Value = serde_json::from_str(&text).expect("one JSON object");
    let docs = std::fs::read_to_string(e2e::program::repository().join("docs/scripts.md")).unwrap();
    let at = |path: &str| view.pointer(path).unwrap_or_else(|| panic!("no {path} in {view}"));
    let shapes: [(&str, &[&str]); 6] = [
        ("", &["cluster", "me", "at_ms", "nodes", "services", "namespaces", "root", "events", "figures"]),
        (
            "/nodes/0",
            &[
                "id",
                "name",
                "state",
                "boot",
                "pid",
                "version",
                "http",
                "resp",
                "api",
                "peer",
                "load",
                "cpu_millis",
                "resident_bytes",
                "since_ms",
                "gauges",
            ],
        ),
        ("/services/0", &["name", "wanted", "at", "leader", "version", "next", "clones"]),
        (
            "/services/0/clones/0",
            &["name", "life", "node", "state", "pid", "port", "restarts", "since_ms", "last_exit", "last_output"],
        ),
        ("/namespaces/0", &["name", "class", "lease_ms", "merge", "timeout_ms", "promise", "odds"]),
        ("/root", &["leader", "voters", "version"]),
    ];
    for (path, keys) in shapes {
        let object = at(path).as_object().unwrap_or_else(|| panic!("{path} is no object"));
        for key in keys {
            assert!(object.contains_key(*key), "no {path}/{key} in {view}");
            assert!(docs.contains(&format!("`{}", key)), "docs/scripts.md does not tell of {path}/{key}");
        }
    }
    for key in ["at_ms", "kind", "who", "text"] {
        assert!(at("/events/0").get(key).is_some(), "{view}");
    }
    for (path, expect) in [
        ("/nodes/0/state", "live"),
        ("/services/0/name", "shop"),
        ("/services/0/clones/0/state", "serving"),
        ("/namespaces/0/class", "session"),
    ] {
        assert_eq!(at(path), expect, "{path}");
    }
    assert_eq!(view["me"], "n1");
    assert_eq!(view["services"][0]["wanted"], 3);
    let admin = std::fs::read_to_string(up.dir.join("n1/admin.token")).unwrap();
    assert!(!text.contains(&up.token("carts")) && !text.contains(admin.trim()), "a token is shown");
}

#[test]
fn status_for_people_names_nodes_services_clones_and_namespaces() {
    let up = SHOP.take();
    let page = up.coppice(&["status"]).good();
    for word in [
        "3 of 3 nodes live",
        "n1",
        "n2",
        "n3",
        "shop/0",
        "shop/1",
        "shop/2",
        "serving",
        "carts",
        "session",
        &up.at(2).http.to_string(),
    ] {
        assert!(page.contains(word), "{word:?} is not in:\n{page}");
    }
    let nowhere = e2e::tools::run(
        std::process::Command::new(e2e::program::coppice()).args(["status", "--api", "127.0.0.1:1"]),
        Duration::from_secs(20),
    );
    assert!(nowhere.wrong().contains("coppice up"), "it says what to do");
}

#[test]
fn all_nodes_show_the_same_cluster() {
    let up = SHOP.take();
    let names = |view: &Value, list: &str| -> BTreeSet<String> {
        view[list].as_array().into_iter().flatten().filter_map(|x| x["name"].as_str().map(str::to_owned)).collect()
    };
    let views: Vec<Value> = (1..=3).map(|n| up.status(n).unwrap()).collect();
    for list in ["nodes", "services", "namespaces"] {
        assert!(!names(&views[0], list).is_empty());
        assert!(views.iter().all(|v| names(v, list) == names(&views[0], list)), "{list}");
    }
}

#[test]
fn metrics_are_prometheus_text_and_count_what_happens() {
    let up = SHOP.take();
    let before = metrics(&up);
    for name in [
        "coppice_info",
        "process_resident_memory_bytes",
        "coppice_node_state",
        "coppice_clones",
        "coppice_root_has_leader",
        "coppice_declaration_version",
    ] {
        assert!(before.iter().any(|(n, _)| n.split('{').next() == Some(name)), "no {name}");
    }
    let live = before
        .iter()
        .filter(|(n, v)| n.starts_with("coppice_node_state{") && n.contains("\"live\"") && *v == 1.0)
        .count();
    assert_eq!(live, 3);
    let total = |of: &[(String, f64)]| {
        of.iter()
            .filter(|(n, _)| n.contains("http") && n.contains("requests") && n.ends_with("_total"))
            .map(|(_, v)| v)
            .sum::<f64>()
    };
    for _ in 0..7 {
        assert_eq!(http::get(up.at(1).http, "/").unwrap().status, 200);
    }
    assert_eq!(total(&metrics(&up)) - total(&before), 7.0);
}

#[test]
fn livez_and_readyz_answer_on_every_node_and_foreign_names_do_not() {
    let up = SHOP.take();
    for node in 1..=3 {
        for path in ["/livez", "/readyz"] {
            let reply = http::get(up.at(node).api, path).unwrap();
            assert_eq!(reply.status, 200, "{path} of n{node}: {}", reply.text());
        }
    }
    let rebound = http::request(up.at(1).api, "GET", "/v1/status", &[("Host", "evil.example")], b"").unwrap();
    assert_eq!(rebound.status, 403, "a name that is not ours: {}", rebound.text());
}

/// Case S12. The two halves of a start, reading and making a state of what was read, take as long as with a log of some hundred MB.
#[test]
fn a_node_that_reads_a_long_log_is_alive_and_says_so_at_its_doors() {
    let _turn = e2e::beside();
    let environment = [("COPPICE_LAB_START_MS", "2500")];
    let (program, options) = (std::process::Command::new(e2e::program::coppice()), vec!["--no-demo".to_owned()]);
    let up = Up::begin_with(program, e2e::at::new_folder(), e2e::at::Ports::free(1), 1, options, &environment);
    let (api, resp) = (up.at(1).api, up.at(1).resp);
    let soon = Duration::from_secs(20);
    wait_for("it says that it is alive", soon, || match http::get(api, "/livez").map_err(|e| e.to_string())? {
        reply if reply.status == 200 && reply.text().starts_with("live: this node starts") => Ok(()),
        reply => panic!("it has started before it was heard: {reply:?}"),
    });
    assert_eq!(http::get(api, "/readyz").unwrap().status, 503);
    wait_for("a Redis client is told to come again", soon, || {
        let mut stream = std::net::TcpStream::connect(resp).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(soon)).map_err(|e| e.to_string())?;
        std::io::Write::write_all(&mut stream, b"PING\r\n").map_err(|e| e.to_string())?;
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stream, &mut said).map_err(|e| e.to_string())?;
        if said.starts_with("-LOADING this node starts") { Ok(()) } else { panic!("{said:?}") }
    });
    wait_for("it is ready", Duration::from_secs(60), || {
        match http::get(api, "/readyz").map_err(|e| e.to_string())? {
            reply if reply.status == 200 => Ok(()),
            reply => Err(reply.text()),
        }
    });
    assert_eq!(http::get(api, "/livez").unwrap().text(), "live\n");
}

#[test]
fn the_monitor_page_has_landmarks_and_needs_nothing_from_elsewhere() {
    let up = SHOP.take();
    let reply = http::get(up.at(2).api, "/").unwrap();
    let page = reply.text();
    assert_eq!(reply.status, 200, "{page}");
    assert!(reply.header("content-type").is_some_and(|t| t.starts_with("text/html")), "{:?}", reply.headers);
    for part in [
        "<html lang=",
        "<title>",
        "<header",
        "<main",
        "<h1",
        "<h2",
        "<th",
        "scope=",
        "aria-live=\"polite\"",
        "n1",
        "n2",
        "n3",
        "shop",
    ] {
        assert!(page.contains(part), "no {part} in:\n{page}");
    }
    let policy = reply.header("content-security-policy").expect("a policy");
    assert!(!policy.contains("unsafe") && policy.contains("'self'"), "{policy}");
    let elsewhere = ["src=\"http", "href=\"http", "src=\"//", "href=\"//", "@import"];
    let own = |piece: &&str| !piece.contains("127.0.0.");
    for link in elsewhere {
        let from: Vec<&str> =
            page.split(link).skip(1).map(|rest| rest.split('"').next().unwrap_or("")).filter(own).collect();
        assert!(from.is_empty(), "{link}{from:?}");
    }
    // What it refers to is there.
    for asset in page.split(['"', '\'']).filter(|piece| piece.starts_with("/assets/")) {
        assert_eq!(http::get(up.at(2).api, asset).unwrap().status, 200, "{asset}");
    }
}

#[test]
fn an_idle_node_takes_little_memory() {
    let up = SHOP.take();
    for node in 1..=3 {
        let bytes = procs::resident(up.node_pid(node));
        e2e::say(&format!("n{node}: {:.1} MB resident ({})", bytes as f64 / 1e6, e2e::program::profile()));
        if e2e::is_release() {
            assert!(bytes < PROMISED_IDLE_BYTES, "n{node} takes {bytes} bytes");
        }
    }
    wait_for("nodes say it themselves", Duration::from_secs(5), || {
        let view = up.status(3)?;
        let all = view["nodes"].as_array().into_iter().flatten().all(|n| n["resident_bytes"].as_u64() > Some(1 << 20));
        if all { Ok(()) } else { Err(view["nodes"].to_string()) }
    });
}

/// Name with labels, and value. Fails on what Prometheus would not read.
fn metrics(up: &Up) -> Vec<(String, f64)> {
    let reply = http::get(up.at(1).api, "/metrics").unwrap();
    assert!(
        reply.header("content-type").is_some_and(|t| t.starts_with("text/plain; version=0.0.4")),
        "{:?}",
        reply.headers
    );
    let (mut samples, mut types, mut seen) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let text = reply.text();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "two types of {name}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
        } else if !line.starts_with('#') && !line.is_empty() {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let bare = name.split('{').next().unwrap();
            let is_name = bare.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
                && !bare.starts_with(|c: char| c.is_ascii_digit());
            // The samples of a histogram have its name and a word more.
            let of = ["_bucket", "_sum", "_count"].iter().find_map(|word| bare.strip_suffix(word));
            let is_part = of.and_then(|of| types.get(of)).is_some_and(|kind| kind == "histogram");
            assert!(is_name && (is_part || types.contains_key(bare)), "{line}");
            assert!(!name.contains('{') || (name.ends_with("\"}") && name.contains("=\"")), "{line}");
            assert!(seen.insert(name.to_owned()), "twice: {name}");
            samples.push((name.to_owned(), value.parse().unwrap_or_else(|e| panic!("{line}: {e}"))));
        }
    }
    samples
}
