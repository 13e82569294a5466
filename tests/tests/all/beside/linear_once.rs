//! Writes with ids, asked again at other nodes when theirs dies: each happens once. Through HTTP, the Redis protocol, and
//! functions of a service, and Lua scripts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use e2e::http::{self, Reply};
use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{At, Shared, Up, say, wait_for};
use uuid::Uuid;

static UP: Shared = Shared::beside(|| {
    let up = Up::bare(3);
    up.apply("teller.toml", &declaration()).good();
    up.settle(Duration::from_secs(60), 1);
    up.linear(1, "bank", &up.token("bank"));
    up
});

fn declaration() -> String {
    let program = e2e::program::service_program("teller.py");
    format!(
        "[namespace.bank]\nclass = \"linear\"\nfunctions = \"teller\"\n\n[namespace.carts]\nclass = \"session\"\n\n\
         [service.teller]\nrun = [\"python3\", {program:?}]\nclones = 3\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n"
    )
}

fn id() -> String {
    Uuid::now_v7().to_string()
}

/// A request to the API of a node with an id.
fn ask(at: &At, token: &str, id: &str, method: &str, path: &str, body: &str) -> std::io::Result<Reply> {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Idempotency-Key", id)];
    http::request(at.api, method, path, &headers, body.as_bytes())
}

fn add(function: &str) -> String {
    format!(r#"{{"function":"{function}","args":["1"]}}"#)
}

#[test]
fn what_is_asked_again_at_another_node_gets_its_first_answer() {
    let up = UP.take();
    let token = up.token("bank");
    let http = |n: u8, id: &str, method: &str, path: &str, body: &str| {
        ask(&up.at(n), &token, id, method, &format!("/v1/ns/bank/{path}"), body).unwrap()
    };
    for (name, key) in [("number.add", "built-in"), ("add", "of-service")] {
        let (first, second) = (id(), id());
        let gives =
            |n, id: &str| http(n, id, "POST", &format!("apply/{key}"), &add(name)).json().unwrap()["result"].take();
        assert_eq!((gives(1, &first), gives(2, &first), gives(3, &first)), (1.into(), 1.into(), 1.into()), "{name}");
        assert_eq!((gives(2, &second), gives(1, &first), gives(3, &second)), (2.into(), 1.into(), 2.into()), "{name}");
        let other = http(1, &first, "POST", &format!("apply/{key}"), &add("number.set"));
        assert_eq!(other.status, 400, "{}", other.text());
        let other = http(1, &first, "POST", &format!("apply/{key}"), &add(name).replace("\"1\"", "\"2\""));
        assert!(other.status == 400 && other.text().contains("another operation's"), "{}", other.text());
    }
    // A failed condition is an answer, too.
    let (put, txn) = (id(), id());
    let quoted = format!("\"{put}\"");
    let version = |reply: Reply| (reply.status, reply.header("etag").map(str::to_owned));
    let stored = version(http(1, &quoted, "PUT", "keys/a", "x"));
    assert!(stored.0 == 204 && stored.1.is_some());
    http(2, &id(), "PUT", "keys/a", "y");
    assert_eq!(version(http(3, &put, "PUT", "keys/a", "x")), stored, "quoted or not");
    assert_eq!(
        http::request(up.at(1).api, "GET", "/v1/ns/bank/keys/a", &[("Authorization", &format!("Bearer {token}"))], b"")
            .unwrap()
            .text(),
        "y"
    );
    let body =
        r#"{"if":[{"key":"a","version":0}],"do":[{"key":"a","function":"get"}, {"key":"a","function":"remove"}]}"#;
    assert_eq!((http(1, &txn, "POST", "txn", body).status, http(2, &txn, "POST", "txn", body).status), (412, 412));
    let gone = id();
    assert_eq!(
        (http(1, &gone, "DELETE", "keys/a", "").status, http(2, &gone, "DELETE", "keys/a", "").status),
        (204, 204)
    );
    // What is no such id, or no such class.
    for wrong in ["order-17", "9f1b2c3d-0000-4000-8000-000000000000"] {
        let reply = http(1, wrong, "PUT", "keys/a", "x");
        assert!(reply.status == 400 && reply.text().contains("UUID"), "{}", reply.text());
    }
    let carts = ask(&up.at(1), &up.token("carts"), &id(), "PUT", "/v1/ns/carts/keys/a", "x").unwrap();
    assert!(carts.status == 400 && carts.text().contains("class linear"), "{}", carts.text());
}

#[test]
fn redis_clients_say_once() {
    let up = UP.take();
    let token = up.token("bank");
    let (mut one, mut two) = (up.linear(1, "bank", &token), up.linear(2, "bank", &token));
    one.ask(&["DEL", "list", "n"]).unwrap();
    let (push, count, exec) = (id(), id(), id());
    let int = Word::Int;
    for resp in [&mut one, &mut two] {
        assert_eq!(resp.ask(&["ONCE", &push, "RPUSH", "list", "a", "b"]).unwrap(), int(2));
        assert_eq!(resp.ask(&["once", &count, "incr", "n"]).unwrap(), int(1));
        resp.ask(&["MULTI"]).unwrap();
        assert_eq!(resp.ask(&["RPUSH", "list", "c"]).unwrap(), Word::Simple("QUEUED".into()));
        assert_eq!(resp.ask(&["ONCE", &exec, "EXEC"]).unwrap(), Word::List(vec![int(3)]));
        assert_eq!(resp.ask(&["ONCE", &id(), "FCALL", "number.add", "1", "m", "0"]).unwrap(), int(0));
    }
    assert_eq!(two.ask(&["LLEN", "list"]).unwrap(), int(3));
    // What is drawn, what the clock says and what was watched is not the same the second time.
    one.ask(&["DEL", "set", "w"]).unwrap();
    let members: Vec<String> = (0..500).map(|n| format!("m{n}")).collect();
    let add: Vec<&str> = ["SADD", "set"].into_iter().chain(members.iter().map(String::as_str)).collect();
    assert_eq!(one.ask(&add).unwrap(), int(500));
    let (pop, end, seen, drawn) = (id(), id(), id(), id());
    let mut both = Vec::new();
    for resp in [&mut one, &mut two] {
        let mut got = vec![resp.ask(&["ONCE", &pop, "SPOP", "set"]).unwrap()];
        got.push(resp.ask(&["ONCE", &end, "SET", "w", "x", "GET", "PXAT", "4000000000000"]).unwrap());
        resp.ask(&["WATCH", "w", "set"]).unwrap();
        resp.ask(&["MULTI"]).unwrap();
        resp.ask(&["APPEND", "w", "y"]).unwrap();
        got.push(resp.ask(&["ONCE", &seen, "EXEC"]).unwrap());
        resp.ask(&["MULTI"]).unwrap();
        resp.ask(&["SPOP", "set", "2"]).unwrap();
        got.push(resp.ask(&["ONCE", &drawn, "EXEC"]).unwrap());
        both.push(got);
    }
    assert_eq!(both[0], both[1], "the first answers");
    assert_eq!((two.ask(&["SCARD", "set"]).unwrap(), two.ask(&["STRLEN", "w"]).unwrap()), (int(497), int(2)));
    two.ask(&["MULTI"]).unwrap();
    two.ask(&["SPOP", "set", "3"]).unwrap();
    let other = two.ask(&["ONCE", &drawn, "EXEC"]).unwrap();
    assert!(matches!(&other, Word::Error(why) if why.contains("another operation's")), "{other:?}");
    let mut says = |words: &[&str], expect: &str| {
        let Word::Error(why) = one.ask(words).unwrap() else { panic!("{words:?} was done") };
        assert!(why.contains(expect), "{words:?}: {why}");
    };
    let fresh = id();
    says(&["ONCE", &push, "RPUSH", "list", "x"], "another operation's");
    says(&["ONCE", "7", "INCR", "n"], "no UUID");
    says(&["ONCE", &fresh, "GET", "n"], "does not go with 'GET'");
    says(&["ONCE", &fresh, "NOPE", "n"], "'NOPE' is not offered");
    says(&["ONCE", &fresh, "INCR"], "wrong number of arguments");
    says(&["ONCE", &fresh, "DEL", "n", "o"], "about one key");
    says(&["ONCE", &fresh, "BLPOP", "list", "1"], "does not go with 'BLPOP'");
    one.ask(&["MULTI"]).unwrap();
    let mut says = |words: &[&str], expect: &str| {
        let Word::Error(why) = one.ask(words).unwrap() else { panic!("{words:?} was done") };
        assert!(why.contains(expect), "{words:?}: {why}");
    };
    says(&["ONCE", &fresh, "INCR", "n"], "the id goes with EXEC");
    says(&["EXEC"], "EXECABORT");
}

/// What became of all that was asked.
#[derive(Default)]
struct Told {
    /// Answers by key: each must be there once, and be one of 1 to their number.
    counts: Mutex<BTreeMap<&'static str, Vec<i64>>>,
    again: AtomicU64,
    stop: AtomicBool,
}

/// Adds one to a key, again and again; each with an id, and asked until somebody says what came of it.
fn count(nodes: &[At], token: &str, nth: usize, (key, function): (&'static str, &str), told: &Told) {
    let mut n = nth;
    while !told.stop.load(Relaxed) {
        let id = id();
        let until = Instant::now() + Duration::from_secs(60);
        let answer = loop {
            assert!(Instant::now() < until, "{key}: no answer for a minute");
            let at = &nodes[n % nodes.len()];
            let answer = if nth.is_multiple_of(2) && key != SCRIPTED {
                by_http(at, token, &id, key, function)
            } else {
                by_redis(at, token, &id, key, function)
            };
            match answer {
                Some(answer) => break answer,
                None => {
                    told.again.fetch_add(1, Relaxed);
                    n += 1;
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
        };
        told.counts.lock().unwrap().entry(key).or_default().push(answer);
    }
}

/// The key that scripts count.
const SCRIPTED: &str = "scripted";

fn by_http(at: &At, token: &str, id: &str, key: &str, function: &str) -> Option<i64> {
    let reply = ask(at, token, id, "POST", &format!("/v1/ns/bank/apply/{key}"), &add(function)).ok()?;
    match reply.status {
        200 => Some(reply.json().unwrap()["result"].as_i64().unwrap()),
        503 | 504 => None,
        other => panic!("HTTP {other}: {}", reply.text()),
    }
}

fn by_redis(at: &At, token: &str, id: &str, key: &str, function: &str) -> Option<i64> {
    let mut resp = Resp::open(at.resp, "bank", token).ok()?;
    let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    let command = if key == SCRIPTED { ["EVAL", script] } else { ["FCALL", function] };
    match resp.ask(&[&["ONCE", id], &command[..], &["1", key, "1"]].concat()).ok()? {
        Word::Int(n) => Some(n),
        Word::Error(why) if ["BUSY", "UNKNOWN", "LOADING"].iter().any(|word| why.starts_with(word)) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_lost_or_done_twice_while_nodes_die_and_callers_ask_others() {
    let up = UP.take();
    let token = up.token("bank");
    let nodes: Vec<At> = (1..=3).map(|n| up.at(n)).collect();
    let told = Told::default();
    struct Stops<'a>(&'a Told);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Relaxed);
        }
    }
    let counted = || told.counts.lock().unwrap().values().map(Vec::len).sum::<usize>();
    std::thread::scope(|scope| {
        let _stops = Stops(&told);
        for nth in 0..16 {
            let of = match nth {
                ..8 => ("inner", "number.add"),
                8..12 => ("service", "add"),
                _ => (SCRIPTED, ""),
            };
            let (nodes, token, told) = (&nodes, &token, &told);
            scope.spawn(move || count(nodes, token, nth, of, told));
        }
        for n in [1, 2, 3, 1] {
            let until = counted() + 100;
            wait_for("writes go on", Duration::from_secs(60), || {
                if counted() >= until { Ok(()) } else { Err(format!("{} of {until}", counted())) }
            });
            kill(up.node_pid(n), Signal::KILL);
            up.settle(Duration::from_secs(60), 1);
        }
    });
    for (key, mut answers) in told.counts.into_inner().unwrap() {
        answers.sort_unstable();
        let all: Vec<i64> = (1..=answers.len() as i64).collect();
        assert_eq!(answers, all, "{key}: each counted once, and was told its own count");
        say(&format!("{key}: {} counted", all.len()));
    }
    say(&format!("asked again {} times", told.again.load(Relaxed)));
    assert!(told.again.load(Relaxed) > 0, "nobody had to ask again: this shows nothing");
}
