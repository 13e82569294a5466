//! Clones that are well by their probes, or have none, and do badly to those who ask: they are found by that, and restarted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::procs::{Proc, Signal};
use e2e::{Shared, Up, http, wait_for};
use serde_json::Value;

static BARE: Shared = Shared::beside(|| Up::bare(3));

/// The service's clones, and where a clone's mood is.
fn moody(up: &Up, name: &str, more: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/moody.py");
    let moods = up.dir.join(format!("mood-of-{name}-"));
    let text = format!(
        "[service.{name}]\nrun = [\"python3\", {program:?}]\nclones = 3\nhttp = {{ path = \"/{name}\" }}\n\
         env = {{ MOODS = {moods:?} }}\n{more}"
    );
    up.apply(&format!("{name}.toml"), &text).good();
    up.settle(Duration::from_secs(40), 0);
    moods
}

fn clone(up: &Up, name: &str) -> Result<Value, String> {
    let view = up.status(1)?;
    let mut all =
        view["services"].as_array().into_iter().flatten().flat_map(|s| s["clones"].as_array().into_iter().flatten());
    all.find(|clone| clone["name"] == name).cloned().ok_or_else(|| format!("no {name}"))
}

/// Users who ask at all nodes until told to stop; how many were failed or not answered within 2 s.
fn users(up: &Up, path: &'static str, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let user = |node: u8| {
        let (at, stop) = (up.at(node).http, Arc::clone(stop));
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                // They give up after two seconds.
                let _ = http::request(at, "GET", path, &[("Coppice-Deadline-Ms", "2000")], b"");
                std::thread::sleep(Duration::from_millis(30));
            }
        })
    };
    [1, 1, 2, 2, 3, 3].map(user).into()
}

fn is_restarted(up: &Up, name: &str, pid: u64, why: &str) -> Duration {
    let began = Instant::now();
    wait_for("it is restarted", Duration::from_secs(40), || {
        let now = clone(up, name)?;
        let is_new = now["pid"].as_u64().is_some_and(|now| now != pid) && now["state"] == "serving";
        if is_new { Ok(()) } else { Err(now.to_string()) }
    });
    let took = began.elapsed();
    wait_for("people are told why", Duration::from_secs(10), || {
        // A clone's own node tells of its end.
        let events = |node| Ok(up.status(node)?["events"].as_array().cloned().unwrap_or_default());
        let all: Vec<Vec<Value>> = (1..4).map(events).collect::<Result<_, String>>()?;
        let all: Vec<Value> = all.into_iter().flatten().filter(|e| e["who"] == name).collect();
        let says =
            |kind: &str| all.iter().any(|e| e["kind"] == kind && e["text"].as_str().is_some_and(|t| t.contains(why)));
        if says("warning") && says("clone-died") { Ok(()) } else { Err(format!("{all:?}")) }
    });
    took
}

#[test]
fn a_stopped_clone_without_a_probe_is_restarted_while_the_others_are_well() {
    let up = BARE.take();
    moody(&up, "mute", "");
    let pid = clone(&up, "mute/1").unwrap()["pid"].as_u64().unwrap();
    let stop = Arc::default();
    let users = users(&up, "/mute", &stop);
    std::thread::sleep(Duration::from_secs(2));
    Proc::of(pid as u32).unwrap().signal(Signal::STOP);
    let took = is_restarted(&up, "mute/1", pid, "answered none of");
    e2e::say(&format!("a stopped clone was restarted after {} ms", took.as_millis()));
    stop.store(true, Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(clone(&up, "mute/0").unwrap()["restarts"], 0);
    assert_eq!(clone(&up, "mute/2").unwrap()["restarts"], 0);
    up.apply("mute.toml", "").good();
}

#[test]
fn a_clone_that_fails_users_and_not_its_probe_is_restarted_and_not_if_all_do() {
    let up = BARE.take();
    let moods = moody(&up, "moody", "health = \"/health\"\n");
    let mood = |number: u32| format!("{}{number}", moods.display());
    let pid = |number: u32| clone(&up, &format!("moody/{number}")).unwrap()["pid"].as_u64().unwrap();
    let before = [pid(0), pid(1), pid(2)];
    let stop = Arc::default();
    let users = users(&up, "/moody", &stop);
    std::thread::sleep(Duration::from_secs(1));
    // All of them: that is no clone's fault.
    (0..3).for_each(|number| fs::write(mood(number), "").unwrap());
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!([pid(0), pid(1), pid(2)], before);
    (1..3).for_each(|number| fs::remove_file(mood(number)).unwrap());
    let took = is_restarted(&up, "moody/0", before[0], "in a row");
    e2e::say(&format!("a failing clone was restarted after {} ms", took.as_millis()));
    fs::remove_file(mood(0)).unwrap();
    stop.store(true, Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!([pid(1), pid(2)], before[1..]);
    up.apply("moody.toml", "").good();
}

#[test]
fn the_clone_that_is_slow_is_named_and_what_it_uses() {
    let up = BARE.take();
    let moods = moody(&up, "thick", "health = \"/health\"\n");
    fs::write(format!("{}1", moods.display()), "slow").unwrap();
    let stop = Arc::default();
    let users = users(&up, "/thick", &stop);
    wait_for("it is named", Duration::from_secs(60), || {
        let page = up.coppice(&["status"]).good();
        // On a full machine it is named before, as it has answered nothing yet.
        let is_told = |line: &&str| line.contains("slow: thick/1 on n") && line.contains("half of its answers take");
        let line = page.lines().find(is_told);
        line.map(str::to_owned).ok_or(page)
    });
    let (all, _) = wait_for("all nodes show what each takes and uses", Duration::from_secs(60), || {
        let all: Vec<Value> = (0..3).map(|n| clone(&up, &format!("thick/{n}"))).collect::<Result<_, _>>()?;
        let us = |of: &Value, what: &str| of["asked"][what].as_u64().unwrap_or(0);
        let is_slow = us(&all[1], "p50_us") >= 300_000 && us(&all[1], "p99_us") >= us(&all[1], "p50_us");
        let others = [&all[0], &all[2]].iter().all(|of| (1..200_000).contains(&us(of, "p50_us")));
        let uses = |of: &Value| of["resident_bytes"].as_u64().is_some_and(|bytes| bytes >= 4 << 20);
        let works = all[1]["cpu_millis"].as_u64().is_some_and(|cpu| cpu >= 20);
        if is_slow && others && works && all.iter().all(uses) { Ok(all) } else { Err(format!("{all:?}")) }
    });
    // Of its process its own node knows to the hundredth of a second; what doors saw each node tells of its own.
    let figure = |node: u8, name: &str, more: &str| {
        let text = http::get(up.at(node).api, "/metrics").unwrap().text();
        let line = format!("{name}{{service=\"thick\",clone=\"thick/1\"{more}}} ");
        text.lines().find_map(|has| has.strip_prefix(&line)?.parse::<f64>().ok())
    };
    let node = all[1]["node"].as_str().unwrap()[1..].parse().unwrap();
    assert!(figure(node, "coppice_clone_cpu_seconds_total", "").is_some_and(|s| s > 0.01));
    assert!(figure(node, "coppice_clone_resident_memory_bytes", "").is_some_and(|bytes| bytes > 4e6));
    let name = "coppice_clone_request_duration_seconds";
    let seen: f64 = (1..=3).filter_map(|node| figure(node, &format!("{name}_count"), "")).sum();
    let quick: f64 = (1..=3).filter_map(|node| figure(node, &format!("{name}_bucket"), ",le=\"0.25\"")).sum();
    assert!(seen > quick, "{seen} answers, {quick} within 250 ms");
    let top = up.coppice(&["top", "--count", "1"]).good();
    assert!(top.contains("thick/1 on n"), "{top}");
    stop.store(true, Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    up.apply("thick.toml", "").good();
}
