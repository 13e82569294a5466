//! Clone groups as programs meet them: births, deaths and leaders as a stream, words to all, barriers, while clones and nodes
//! are killed. Over plain HTTP, and by examples/chorus on the SDK.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::{Shared, Up, program, wait_for};
use serde_json::Value;

static CHORUS: Shared = Shared::beside(chorus);

const BACK_WITHIN: Duration = Duration::from_secs(40);
const SOON: Duration = Duration::from_secs(20);

fn chorus() -> Up {
    let program = program::example("chorus");
    let up = Up::bare(3);
    let declaration = std::fs::read_to_string(program::repository().join("examples/chorus/coppice.toml")).unwrap();
    let declaration = declaration.replace("target/release/chorus", &program.display().to_string());
    up.apply("chorus.toml", &declaration).good();
    up.settle(BACK_WITHIN, 1);
    up
}

fn token(up: &Up) -> String {
    let admin = std::fs::read_to_string(up.dir.join("n1/admin.token")).unwrap();
    let bearer = format!("Bearer {}", admin.trim());
    let path = "/v1/services/chorus/token";
    let reply = http::request(up.at(1).api, "GET", path, &[("Authorization", &bearer)], b"").unwrap();
    reply.json().unwrap()["token"].as_str().unwrap().to_owned()
}

fn members(at: SocketAddr) -> Result<Value, String> {
    http::get(at, "/v1/services/chorus/members").map_err(|e| e.to_string())?.json()
}

/// Lives that serve, with their processes.
fn serving(at: SocketAddr) -> Result<Vec<(String, u32)>, String> {
    let all = members(at)?["members"].as_array().cloned().ok_or("no list")?;
    let serves = all.iter().filter(|m| m["state"] == "serving");
    Ok(serves.map(|m| (m["life"].as_str().unwrap().to_owned(), m["pid"].as_u64().unwrap() as u32)).collect())
}

/// Events of a stream, as they come: name, data, id.
fn follow(at: SocketAddr, path: &str, headers: &[(&str, &str)]) -> mpsc::Receiver<(String, Value, String)> {
    let mut stream = TcpStream::connect(at).unwrap();
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n");
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let (tell, events) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut name, mut id) = (String::new(), String::new());
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(is) = line.strip_prefix("event: ") {
                name = is.to_owned();
            } else if let Some(is) = line.strip_prefix("id: ") {
                id = is.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).unwrap();
                if tell.send((name.clone(), data, id.clone())).is_err() {
                    return;
                }
            }
        }
    });
    events
}

/// Reads events until one is as wanted.
#[track_caller]
fn until(
    events: &mpsc::Receiver<(String, Value, String)>,
    what: &str,
    is: impl Fn(&str, &Value) -> bool,
) -> (String, Value, String) {
    let mut passed = Vec::new();
    loop {
        match events.recv_timeout(SOON) {
            Ok(event) if is(&event.0, &event.1) => return event,
            Ok(event) => passed.push(event),
            Err(_) => panic!("no {what}, only {passed:?}"),
        }
    }
}

fn shown(at: SocketAddr) -> Result<Value, String> {
    http::get(at, "/").map_err(|e| e.to_string())?.json()
}

/// Every clone, asked at its own port, has heard this so many times.
#[track_caller]
fn all_heard(up: &Up, word: &str) {
    wait_for(&format!("all clones have heard {word:?}"), SOON, || {
        let view = up.status(1)?;
        for clone in view["services"][0]["clones"].as_array().ok_or("no clones")? {
            let node = clone["node"].as_str().unwrap().trim_start_matches('n').parse().unwrap();
            let at = SocketAddr::new(up.at(node).api.ip(), clone["port"].as_u64().unwrap() as u16);
            let words = shown(at)?["words"].clone();
            let times = words.as_array().unwrap().iter().filter(|w| w.as_str().unwrap().ends_with(word)).count();
            if times != 1 {
                return Err(format!("{} heard it {times} times: {words}", clone["name"]));
            }
        }
        Ok(())
    });
}

#[test]
fn births_deaths_and_the_next_leader_are_told_to_whoever_watches() {
    let up = CHORUS.take();
    let at = up.at(2).api;
    let events = follow(at, "/v1/services/chorus/members?watch", &[]);
    let (name, now, _) = events.recv_timeout(SOON).unwrap();
    assert_eq!(name, "members", "first what is so now");
    let (leader, _) = wait_for("all three say who leads", SOON, || {
        let all: Vec<Value> = (1..=3).map(|n| members(up.at(n).api)).collect::<Result<_, _>>()?;
        let leader = all[0]["leader"].clone();
        if leader.is_string() && all.iter().all(|m| m["leader"] == leader) {
            Ok(leader)
        } else {
            Err(format!("{all:?}"))
        }
    });
    let life = leader.as_str().unwrap().to_owned();
    let pid = serving(at).unwrap().iter().find(|(l, _)| *l == life).unwrap().1;
    Proc::of(pid).unwrap().signal(Signal::KILL);
    let is = |life: &str| {
        let life = life.to_owned();
        move |name: &str, data: &Value, want: &str| name == want && data["life"] == life.as_str()
    };
    let same = is(&life);
    until(&events, "death of the leader", |name, data| same(name, data, "death"));
    let (_, next, _) = until(&events, "another leader", |name, data| name == "leader" && data["life"].is_string());
    assert_ne!(next["life"], life.as_str());
    assert!(now["members"].to_string().contains(next["life"].as_str().unwrap()), "one that was there before: {next}");
    let clone = life_clone(&now, &life);
    let (_, born, _) = until(&events, "birth", |name, data| name == "birth" && data["clone"] == clone.as_str());
    assert_ne!(born["life"], life.as_str(), "the same clone, another life");
    until(&events, "it serves", |name, data| {
        name == "state" && data["life"] == born["life"] && data["state"] == "serving"
    });
    let after = members(at).unwrap();
    assert_eq!(after["leader"], next["life"], "who comes back does not take over");
    up.settle(BACK_WITHIN, 1);
}

fn life_clone(members: &Value, life: &str) -> String {
    let all = members["members"].as_array().unwrap();
    all.iter().find(|m| m["life"] == life).unwrap()["clone"].as_str().unwrap().to_owned()
}

#[test]
fn a_word_comes_to_every_clone_and_needs_the_token() {
    let up = CHORUS.take();
    let (token, at) = (token(&up), up.at(1).api);
    let path = "/v1/services/chorus/broadcast";
    let say = |token: &str, word: &str| -> Reply {
        let bearer = format!("Bearer {token}");
        http::request(at, "POST", path, &[("Authorization", &bearer), ("Coppice-Member", "me")], word.as_bytes())
            .unwrap()
    };
    assert_eq!(say("guess", "no").status, 401);
    assert_eq!(say(&token, &"x".repeat(20_000)).status, 413);
    let bearer = format!("Bearer {token}");
    let streams: Vec<_> =
        (1..=3).map(|n| follow(up.at(n).api, "/v1/services/chorus/messages", &[("Authorization", &bearer)])).collect();
    let mut last = String::new();
    for events in &streams {
        last = until(events, "listening", |name, _| name == "listening").2;
    }
    assert_eq!(say(&token, "good morning").json().unwrap()["nodes"], 3);
    for events in &streams {
        let (_, data, _) = until(events, "word", |name, _| name == "message");
        assert_eq!((&data["from"], &data["text"]), (&Value::from("me"), &Value::from("good morning")));
    }
    all_heard(&up, "me: good morning");
    // By the SDK, through any edge.
    assert_eq!(http::request(up.at(2).http, "POST", "/say", &[], b"by the sdk").unwrap().text(), "3\n");
    all_heard(&up, ": by the sdk");
    // Who was away goes on where it was; with a number of another node it is told that it missed something.
    let again = [("Authorization", bearer.as_str()), ("Last-Event-ID", last.as_str())];
    let events = follow(up.at(3).api, "/v1/services/chorus/messages", &again);
    until(&events, "the word again", |name, data| name == "message" && data["text"] == "good morning");
    let events = follow(up.at(1).api, "/v1/services/chorus/messages", &again);
    until(&events, "missed", |name, _| name == "missed");
}

#[test]
fn a_barrier_is_passed_when_those_that_it_waited_for_die() {
    let mut up = CHORUS.take();
    let token = token(&up);
    all_heard(&up, "(all are here)");
    let all = serving(up.at(1).api).unwrap();
    assert_eq!(all.len(), 3);
    let victim = all.iter().find(|(life, _)| life.starts_with("n3.")).expect("one is on each node").0.clone();
    let apis: Vec<SocketAddr> = (1..=3).map(|node| up.at(node).api).collect();
    let arrive = |life: &str, node: usize, wait_ms: u32| {
        let path = format!("/v1/services/chorus/barrier/over?wait_ms={wait_ms}");
        let headers = [("Authorization", format!("Bearer {token}")), ("Coppice-Member", life.to_owned())];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        http::request(apis[node - 1], "POST", &path, &headers, b"").unwrap()
    };
    let others: Vec<&String> = all.iter().map(|(life, _)| life).filter(|life| **life != victim).collect();
    let early = arrive(others[0], 1, 100);
    assert_eq!(early.status, 202, "{}", early.text());
    assert!(early.text().contains(&victim) && early.text().contains(others[1].as_str()), "{}", early.text());
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| arrive(others[0], 2, 14_000));
        let second = scope.spawn(|| arrive(others[1], 1, 14_000));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!first.is_finished() && !second.is_finished(), "two of three are not all");
        Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text(), second.text());
    up.event("restarted", BACK_WITHIN);
    up.settle(BACK_WITHIN, 1);
    // By the SDK: each clone asked at its own port.
    let view = up.status(1).unwrap();
    let clones = view["services"][0]["clones"].as_array().unwrap().clone();
    let met: Vec<Reply> = std::thread::scope(|scope| {
        let one = |clone: &Value| {
            let node: usize = clone["node"].as_str().unwrap().trim_start_matches('n').parse().unwrap();
            let at = SocketAddr::new(apis[node - 1].ip(), clone["port"].as_u64().unwrap() as u16);
            scope.spawn(move || http::request(at, "POST", "/meet/1", &[], b"").unwrap())
        };
        clones.iter().map(one).collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(met.iter().all(|reply| reply.status == 200 && reply.text() == "3\n"), "{met:?}");
}
