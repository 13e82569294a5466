//! Channels over three nodes with redis-py: subscribed at one, published at another, and one of them is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::tools::{has, run};
use e2e::{Up, skip};

const WITHIN: Duration = Duration::from_secs(20);
const WANTED: &str = "redis-py is not installed (python3 -m pip install redis)";

/// Has Python this module?
fn imports(module: &str) -> bool {
    has("python3") && run(Command::new("python3").args(["-c", &format!("import {module}")]), WITHIN).is_good()
}

#[test]
fn what_is_published_at_one_node_comes_to_who_listens_at_another() {
    let _turn = e2e::beside();
    if !imports("redis") {
        return skip(WANTED);
    }
    let up = Up::start(3, &["--no-demo"]);
    up.apply("rooms.toml", "[namespace.rooms]\nclass = \"session\"\n").good();
    let urls: Vec<String> = (1..=3).map(|n| format!("redis://rooms:{}@{}", up.token("rooms"), up.at(n).resp)).collect();
    let mut python = Command::new("python3")
        .arg(e2e::program::service_program("channels.py"))
        .args(&urls)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(python.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line == "kill\n" {
        Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
        python.stdin.take().unwrap().write_all(b"done\n").unwrap();
        said.read_to_string(&mut line).unwrap();
    }
    assert!(python.wait().unwrap().success() && line.contains("as they should be"), "{line}");
}

/// Keyspace events and a client's own cache, of classes `linear` and `soft`; and the leader dies.
#[test]
fn who_listens_to_keys_and_who_keeps_them_are_told_of_changes_at_other_nodes() {
    let _turn = e2e::beside();
    if !imports("redis.cache") {
        return skip(WANTED);
    }
    let up = Up::start(3, &["--no-demo"]);
    up.apply("keys.toml", "[namespace.bank]\nclass = \"linear\"\n[namespace.floor]\nclass = \"soft\"\n").good();
    let find = || {
        let status = up.status(1)?;
        let bank = status["namespaces"].as_array().into_iter().flatten().find(|of| of["name"] == "bank").cloned();
        let leader = bank.and_then(|bank| bank["shards"][0]["leader"].as_str().map(str::to_owned));
        leader.and_then(|name| name.strip_prefix('n')?.parse::<u8>().ok()).ok_or("it has no leader".to_owned())
    };
    let (leader, _) = e2e::wait_for("it has a leader", WITHIN, find);
    let others: Vec<u8> = (1..=3).filter(|n| *n != leader).collect();
    let url = |ns: &str, n: u8| format!("redis://{ns}:{}@{}", up.token(ns), up.at(n).resp);
    let of = |ns| others.iter().map(move |n| (ns, *n));
    let mut python = Command::new("python3")
        .arg(e2e::program::service_program("changes.py"))
        .args(of("bank").chain(of("floor")).map(|(ns, n)| url(ns, n)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(python.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line == "kill\n" {
        Proc::of(up.node_pid(leader)).unwrap().signal(Signal::KILL);
        python.stdin.take().unwrap().write_all(b"done\n").unwrap();
        said.read_to_string(&mut line).unwrap();
    }
    assert!(python.wait().unwrap().success() && line.contains("as they should be"), "{line}");
}
