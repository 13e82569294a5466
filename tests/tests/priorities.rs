//! Priorities over the doors of several nodes, with real clones that answer one request after the other.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::Up;
use e2e::program::coppice;
use serde_json::Value;

/// So many requests a second, whatever becomes of them.
fn load(at: SocketAddr, path: &str, rate: u32, seconds: u32) -> Child {
    let mut command = Command::new(coppice());
    command.args(["load", &format!("http://{at}{path}"), "-q", "--json"]);
    command.args(["--rate", &rate.to_string(), "--duration", &format!("{seconds}s")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The part of what was due that was served.
fn served(load: Child) -> f64 {
    let out = load.wait_with_output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out)));
    json["statuses"]["200"].as_f64().unwrap_or(0.0) / json["offered"].as_f64().unwrap()
}

#[test]
fn what_matters_more_goes_first_though_it_comes_to_another_node() {
    let _turn = e2e::turn();
    let up = Up::bare(2);
    let program = e2e::program::service_program("slow.py");
    let text = format!(
        "[service.slow]\nrun = [\"python3\", {program:?}]\nclones = 2\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n\
         env = {{ TAKES_MS = \"40\" }}\n\
         [[service.slow.partition]]\nname = \"upper\"\npath = \"/upper\"\npriority = \"critical\"\n\
         [[service.slow.partition]]\nname = \"lower\"\npath = \"/lower\"\npriority = \"low\"\n"
    );
    up.apply("slow.toml", &text).good();
    up.settle(Duration::from_secs(30), 0);
    // Both together are asked for half more than they can do, 50 a second.
    let lower = load(up.at(2).http, "/lower", 40, 13);
    // Until the doors know what clones can do.
    served(load(up.at(1).http, "/upper", 35, 4));
    let upper = served(load(up.at(1).http, "/upper", 35, 8));
    let lower = served(lower);
    e2e::say(&format!("served: {upper:.3} of the upper partition, {lower:.3} of the lower one"));
    assert!(upper > 0.93, "{upper} of the upper partition was served, {lower} of the lower one");
    assert!((0.02..0.7).contains(&lower), "{lower} of the lower one");
}
