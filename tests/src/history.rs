//! Clients that read and write a few keys of class `linear` through all nodes and note what they were told, and porcupine
//! (`tests/porcupine`), a checker of linearizability that is not ours, which judges what they noted.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::program::repository;
use crate::resp::{Resp, Word};
use crate::{say, skip, tools};

const CLIENTS: usize = 9;
const KEYS: u64 = 6;
const WITHIN: Duration = Duration::from_secs(120);

/// Says so if porcupine cannot be had here.
pub fn can_judge() -> bool {
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

pub struct History {
    stop: Arc<AtomicBool>,
    lines: Arc<Mutex<String>>,
    clients: Vec<JoinHandle<()>>,
}

impl History {
    /// Clients of a namespace, spread over these doors.
    pub fn start(doors: &[SocketAddr], namespace: &str, token: &str) -> History {
        let (stop, lines) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(String::new())));
        let (begun, values) = (Instant::now(), Arc::new(AtomicU64::new(1)));
        let one = |process: usize| {
            let client = Client {
                process,
                door: doors[process % doors.len()],
                namespace: namespace.to_owned(),
                token: token.to_owned(),
                begun,
                values: Arc::clone(&values),
            };
            let (stop, lines) = (Arc::clone(&stop), Arc::clone(&lines));
            std::thread::spawn(move || client.go_on(&stop, &lines))
        };
        let clients = (0..CLIENTS).map(one).collect();
        History { stop, lines, clients }
    }

    /// Ends the clients. Porcupine must find what they noted right, and see that it is wrong once a read is added that
    /// does not find what was written: in files of this folder.
    #[track_caller]
    pub fn judge(self, dir: &Path) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("a client notes errors and does not panic"));
        let text = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let acked = text.lines().filter(|line| line.contains("\"ok\"")).count();
        assert!(acked > 200, "only {acked} operations were answered");
        let said = judge(dir, "history.jsonl", &text).unwrap_or_else(|why| panic!("{why}"));
        say(&format!("porcupine: {}, {} lines", said.trim(), text.lines().count()));
        let lie = serde_json::json!({"process": 99, "op": "get", "key": "history:0", "value": "", "outcome": "ok",
            "start": u64::MAX / 4, "end": u64::MAX / 4 + 1});
        let said = judge(dir, "lie.jsonl", &format!("{text}{lie}\n")).expect_err("a lost write went unseen");
        assert!(said.contains("NOT linearizable"), "{said}");
    }
}

/// An error if porcupine finds the history wrong or cannot tell.
fn judge(dir: &Path, file: &str, history: &str) -> Result<String, String> {
    let path = dir.join(file);
    std::fs::write(&path, history).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut go = Command::new("go");
    go.args(["run", "."]).arg(path).current_dir(repository().join("tests/porcupine"));
    let said = tools::run(&mut go, WITHIN);
    if said.is_good() { Ok(said.out) } else { Err(format!("{}{}", said.out, said.err)) }
}

struct Client {
    process: usize,
    door: SocketAddr,
    namespace: String,
    token: String,
    begun: Instant,
    /// No two writes have the same value.
    values: Arc<AtomicU64>,
}

impl Client {
    fn go_on(&self, stop: &AtomicBool, lines: &Mutex<String>) {
        let (mut conn, mut turn) = (None, self.process as u64);
        while !stop.load(Ordering::Relaxed) {
            let Some(resp) = &mut conn else {
                conn = Resp::open(self.door, &self.namespace, &self.token).ok();
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("history:{}", (turn >> 33) % KEYS);
            let op = ["get", "get", "set", "swap"][(turn >> 40) as usize % 4];
            let new = self.values.fetch_add(1, Ordering::Relaxed).to_string();
            let words = match op {
                "get" => vec!["GET", &key],
                "set" => vec!["SET", &key, &new],
                _ => vec!["SET", &key, &new, "GET"],
            };
            let now = || self.begun.elapsed().as_nanos() as u64;
            let start = now();
            let answer = resp.ask(&words);
            let end = now();
            let (outcome, seen) = match answer {
                Ok(Word::Simple(_)) => ("ok", String::new()),
                Ok(Word::Bulk(text)) => ("ok", text),
                Ok(Word::Nil) => ("ok", String::new()),
                // The door says whether it may have happened.
                Ok(Word::Error(text)) if text.starts_with("BUSY") => ("refused", String::new()),
                Ok(_) => ("unknown", String::new()),
                Err(_) => {
                    conn = None;
                    ("unknown", String::new())
                }
            };
            let (value, old) = if op == "get" { (seen, String::new()) } else { (new, seen) };
            let line = serde_json::json!({"process": self.process, "op": op, "key": key, "value": value, "old": old,
                "outcome": outcome, "start": start, "end": end});
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(lines, "{line}").expect("memory takes it");
            drop(lines);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
