//! Histories of a real cluster under faults, judged by porcupine: a checker of linearizability that is not ours.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::procs::{Signal, kill};
use e2e::program::repository;
use e2e::resp::{Resp, Word};
use e2e::{Up, Yard, http, net, say, skip, tools, wait_for};

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\n";
const CLIENTS: usize = 9;
const KEYS: u64 = 6;
const WITHIN: Duration = Duration::from_secs(120);

/// Runs porcupine; an error if it finds the history wrong or cannot tell.
fn judge(history: &Path) -> Result<String, String> {
    let mut go = Command::new("go");
    go.args(["run", "."]).arg(history).current_dir(repository().join("tests/porcupine"));
    let said = tools::run(&mut go, WITHIN);
    if said.is_good() { Ok(said.out) } else { Err(format!("{}{}", said.out, said.err)) }
}

fn can_judge() -> bool {
    if !tools::has("go") {
        skip("go is not installed, which porcupine needs");
        return false;
    }
    let mut get = Command::new("go");
    get.args(["mod", "download"]).current_dir(repository().join("tests/porcupine"));
    if !tools::run(&mut get, WITHIN).is_good() {
        skip("porcupine cannot be had from the Go module proxy");
        return false;
    }
    true
}

/// Clients that read and write a few keys through all nodes and note what they were told.
struct Clients {
    stop: Arc<AtomicBool>,
    lines: Arc<Mutex<String>>,
    all: Vec<JoinHandle<()>>,
}

fn start(doors: &[SocketAddr], token: &str) -> Clients {
    let (stop, lines) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(String::new())));
    let (begun, values) = (Instant::now(), Arc::new(AtomicU64::new(1)));
    let one = |process: usize| {
        let door = doors[process % doors.len()];
        let (stop, lines, values, token) = (stop.clone(), lines.clone(), values.clone(), token.to_owned());
        std::thread::spawn(move || {
            let (mut conn, mut turn) = (None, process as u64);
            while !stop.load(Ordering::Relaxed) {
                let Some(resp) = &mut conn else {
                    conn = Resp::open(door, "bank", &token).ok();
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = format!("key:{}", (turn >> 33) % KEYS);
                let writes = turn >> 40 & 1 == 0;
                let value = if writes { values.fetch_add(1, Ordering::Relaxed).to_string() } else { String::new() };
                let start = begun.elapsed().as_nanos();
                let answer = if writes { resp.ask(&["SET", &key, &value]) } else { resp.ask(&["GET", &key]) };
                let end = begun.elapsed().as_nanos();
                let (outcome, value) = match answer {
                    Ok(Word::Simple(_)) => ("ok", value),
                    Ok(Word::Bulk(text)) => ("ok", text),
                    Ok(Word::Nil) => ("ok", String::new()),
                    // The door says whether it may have happened.
                    Ok(Word::Error(text)) if text.starts_with("BUSY") => ("refused", value),
                    Ok(_) => ("unknown", value),
                    Err(_) => {
                        conn = None;
                        ("unknown", value)
                    }
                };
                let op = if writes { "set" } else { "get" };
                let line = serde_json::json!({"process": process, "op": op, "key": key, "value": value,
                    "outcome": outcome, "start": start as u64, "end": end as u64});
                writeln!(lines.lock().unwrap(), "{line}").unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    };
    let all = (0..CLIENTS).map(one).collect();
    Clients { stop, lines, all }
}

impl Clients {
    fn end(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.all.into_iter().for_each(|client| client.join().unwrap());
        self.lines.lock().unwrap().clone()
    }
}

fn open(up: &Up) -> String {
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    opened(up.at(1).resp, &token);
    token
}

fn opened(door: SocketAddr, token: &str) {
    wait_for("the bank is open", Duration::from_secs(30), || {
        match Resp::open(door, "bank", token)?.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// Judges what was recorded, and that the checker would have seen a wrong read.
fn check(dir: &Path, text: &str) {
    let acked = text.lines().filter(|line| line.contains("\"ok\"")).count();
    assert!(acked > 200, "only {acked} operations were answered");
    let write = |file: &str, text: &str| {
        let path = dir.join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    let path = write("history.jsonl", text);
    let said = judge(&path).unwrap_or_else(|why| panic!("{why}"));
    say(&format!("porcupine: {}, {} lines", said.trim(), text.lines().count()));
    // A read, after all is done, of a key that was written and is not there.
    let lie = serde_json::json!({"process": 99, "op": "get", "key": "key:0", "value": "", "outcome": "ok",
        "start": u64::MAX / 4, "end": u64::MAX / 4 + 1});
    let path = write("lie.jsonl", &format!("{text}{lie}\n"));
    let said = judge(&path).expect_err("a lost write went unseen");
    assert!(said.contains("NOT linearizable"), "{said}");
}

#[test]
fn histories_under_kills_and_stops_are_linearizable() {
    let _turn = e2e::turn();
    if !can_judge() {
        return;
    }
    let up = Up::bare(3);
    let token = open(&up);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let clients = start(&doors, &token);
    for round in 0u8..8 {
        std::thread::sleep(Duration::from_millis(700));
        let node = round % 3 + 1;
        let Some(pid) = up.node_pid_now(node) else { continue };
        if round % 2 == 0 {
            kill(pid, Signal::KILL);
        } else {
            // Long enough to be taken for dead; then it goes on with what it believed.
            kill(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(3_500));
            kill(pid, Signal::CONT);
        }
        let api = up.at(node).api;
        wait_for("the node is back", Duration::from_secs(30), || match http::get(api, "/readyz") {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(reply.text()),
            Err(e) => Err(e.to_string()),
        });
    }
    let text = clients.end();
    check(&up.dir, &text);
}

#[test]
fn histories_under_slow_and_failing_forces_are_linearizable() {
    let _turn = e2e::turn();
    if !can_judge() {
        return;
    }
    if !tools::has("strace") {
        return skip("strace is not installed");
    }
    let up = Up::bare(3);
    let token = open(&up);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let clients = start(&doors, &token);
    for round in 0u8..6 {
        std::thread::sleep(Duration::from_millis(500));
        let node = round % 3 + 1;
        let Some(pid) = up.node_pid_now(node) else { continue };
        // Half a second for each force; or none succeeds, which ends the node.
        let fault = if round % 2 == 0 { "delay_enter=500000" } else { "error=EIO" };
        let mut strace = Command::new("strace")
            .args([
                "-f",
                "-q",
                "-e",
                "trace=fdatasync",
                "-e",
                &format!("inject=fdatasync:{fault}"),
                "-o",
                "/dev/null",
                "-p",
            ])
            .arg(pid.to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(4));
        if round % 2 == 1 {
            wait_for("the node has ended", Duration::from_secs(30), || {
                if up.node_pid_now(node) == Some(pid) { Err("it runs".into()) } else { Ok(()) }
            });
        }
        // It lets go of the node when it is told to end, not when it is killed.
        kill(strace.id(), Signal::TERM);
        let _ = strace.wait();
        up.settle(Duration::from_secs(60), 0);
    }
    let text = clients.end();
    check(&up.dir, &text);
}

#[test]
fn histories_under_cuts_and_losses_of_the_network_are_linearizable() {
    let _turn = e2e::turn();
    if !can_judge() {
        return;
    }
    match net::enter("histories_under_cuts_and_losses_of_the_network_are_linearizable") {
        Ok(true) => (),
        Ok(false) => return,
        Err(why) => return skip(&why),
    }
    let mut yard = Yard::apart(3);
    yard.apply(1, "bank.toml", FILE).good();
    let token = yard.namespace_token("bank");
    opened(yard.at(2).resp, &token);
    wait_for(
        "the group has three members",
        Duration::from_secs(30),
        || match yard.status(1)?["namespaces"][0]["shards"][0]["members"].as_array().map(Vec::len) {
            Some(3) => Ok(()),
            other => Err(format!("{other:?}: {}", yard.status(1)?["namespaces"])),
        },
    );
    let doors: Vec<_> = (1..=3).map(|n| yard.at(n).resp).collect();
    let clients = start(&doors, &token);
    // So long that the others take who is cut off for dead, and go on without it.
    let cut = Duration::from_secs(4);
    let others = |node: u8| (1..=3).filter(|n| *n != node).collect::<Vec<_>>();
    for round in 0u8..10 {
        let net = yard.net.as_ref().unwrap();
        let node = round % 3 + 1;
        match round % 5 {
            // Cut off, both ways.
            0 => {
                net.deafen(node, &others(node));
                others(node).into_iter().for_each(|other| net.deafen(other, &[node]));
            }
            // It hears nobody, and everybody hears it.
            1 => net.deafen(node, &others(node)),
            // Nobody hears it.
            2 => others(node).into_iter().for_each(|other| net.deafen(other, &[node])),
            // No two hear each other by one of their links only.
            3 => {
                net.deafen(1, &[2]);
                net.deafen(2, &[1]);
            }
            // A third of all is lost, and one is killed meanwhile.
            _ => (1..=3).for_each(|node| net.lose(node, 30)),
        }
        if round % 5 == 4 {
            yard.kill(node);
            std::thread::sleep(cut);
            (1..=3).for_each(|node| yard.net.as_ref().unwrap().mend(node));
            yard.run(node);
        } else {
            std::thread::sleep(cut);
            (1..=3).for_each(|node| net.mend(node));
        }
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let text = clients.end();
    check(&yard.dir, &text);
}
