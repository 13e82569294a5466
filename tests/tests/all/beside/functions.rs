//! Functions that a service's clones know, applied to values of class `linear`: a program in Python, through every door of three
//! nodes, with many writers of one key while a clone and a node are killed. The SDK's side of it is in sdk.rs.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::{At, Shared, Up, say, skip, tools, wait_for};
use serde_json::{Value, json};

static UP: Shared = Shared::beside(|| {
    let up = Up::bare(3);
    up.apply("teller.toml", &declaration("functions = \"teller\"")).good();
    up.settle(Duration::from_secs(60), 1);
    up.linear(1, "bank", &up.token("bank"));
    up
});

fn declaration(functions: &str) -> String {
    let program = e2e::program::service_program("teller.py");
    format!(
        "[namespace.bank]\nclass = \"linear\"\n{functions}\n\n\
         [service.teller]\nrun = [\"python3\", {program:?}]\nclones = 3\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n"
    )
}

/// A client of the bank by node `n`.
struct Bank<'a> {
    up: &'a Up,
    n: u8,
    bearer: String,
    resp: Resp,
}

impl<'a> Bank<'a> {
    fn at(up: &'a Up, n: u8) -> Self {
        let token = up.token("bank");
        Self { up, n, bearer: format!("Bearer {token}"), resp: up.linear(n, "bank", &token) }
    }

    fn http(&self, method: &str, what: &str, body: &str) -> Reply {
        let headers = [("Authorization", self.bearer.as_str())];
        http::request(self.up.at(self.n).api, method, &format!("/v1/ns/bank/{what}"), &headers, body.as_bytes())
            .unwrap()
    }

    fn apply(&self, key: &str, function: &str, args: &[&str]) -> Reply {
        self.http("POST", &format!("apply/{key}"), &json!({"function": function, "args": args}).to_string())
    }

    /// What a function gave.
    #[track_caller]
    fn gives(&self, key: &str, function: &str, args: &[&str]) -> Value {
        self.apply(key, function, args).json().unwrap()["result"].take()
    }

    fn resp(&mut self, words: &[&str]) -> Word {
        self.resp.ask(words).unwrap()
    }
}

fn refusal(reply: &Reply) -> (u16, String, String) {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (reply.status, text("type"), text("error"))
}

#[test]
fn a_function_of_a_service_is_applied_through_every_door_of_every_node() {
    let up = UP.take();
    let shown = up.coppice(&["ns", "show", "bank"]).good();
    assert!(shown.contains("functions:         of service teller"), "{shown}");
    let mut sum = 0;
    for n in 1..=3 {
        let mut bank = Bank::at(&up, n);
        assert_eq!(bank.gives("sum", "add", &["5"]), sum + 5);
        assert_eq!(bank.resp(&["FCALL", "add", "1", "sum", "2"]), Word::Int(sum + 7));
        assert_eq!(bank.gives("sum", "number.add", &["1"]), sum + 8, "those that are built in are still there");
        sum += 8;
        if tools::has("redis-cli") {
            let at = up.at(n).resp;
            let mut cli = Command::new("redis-cli");
            cli.args(["-h", &at.ip().to_string(), "-p", &at.port().to_string(), "--user", "bank", "--no-auth-warning"]);
            cli.args(["--pass", &up.token("bank"), "FCALL", "add", "1", "sum", "1"]);
            sum += 1;
            assert_eq!(tools::run(&mut cli, Duration::from_secs(10)).good().trim(), sum.to_string());
        } else {
            skip("redis-cli is not installed");
        }
    }
    let mut bank = Bank::at(&up, 2);
    // A value that ends, ends as it would have; one that is removed is gone.
    bank.resp(&["SET", "ends", "5", "PX", "60000"]);
    assert_eq!(bank.gives("ends", "add", &["1"]), 6);
    assert!(matches!(bank.resp(&["PTTL", "ends"]), Word::Int(1..=60_000)));
    assert_eq!(bank.gives("ends", "withdraw", &["6"]), 0);
    assert_eq!(bank.resp(&["EXISTS", "ends"]), Word::Int(0));
    // What it gives, in both protocols.
    assert_eq!(bank.gives("t", "twice", &["a", "b"]), json!([["a", "b"], {"of": 2}, null, 1.5]));
    let bulk = |text: &str| Word::Bulk(text.to_owned());
    let list = vec![Word::List(vec![bulk("a")]), bulk("{\"of\":1}"), Word::Nil, bulk("1.5")];
    assert_eq!(bank.resp(&["FCALL", "twice", "1", "t", "a"]), Word::List(list));
}

#[test]
fn what_a_function_cannot_do_is_said_with_its_name_and_changes_nothing() {
    let up = UP.take();
    let mut bank = Bank::at(&up, 1);
    bank.resp(&["SET", "few", "3"]);
    bank.resp(&["RPUSH", "list", "a"]);
    let (status, kind, why) = refusal(&bank.apply("few", "withdraw", &["4"]));
    assert_eq!((status, kind.as_str()), (400, "function"));
    assert_eq!(why, "function \"withdraw\" of service \"teller\": not enough");
    for (words, says) in [
        (&["FCALL", "withdraw", "1", "few", "4"][..], "ERR function \"withdraw\" of service \"teller\": not enough"),
        (&["FCALL", "nope", "1", "few"], "ERR function \"nope\" of service \"teller\": there is none of this name"),
        (
            &["FCALL", "nonsense", "1", "few"],
            "ERR function \"nonsense\" of service \"teller\": what its clone answered",
        ),
        (&["FCALL", "fail", "1", "few"], "its clone answered HTTP 500: it failed"),
        (&["FCALL", "crash", "1", "few"], "BUSY function \"crash\" of service \"teller\": its clone ended"),
        (&["FCALL", "add", "1", "list", "1"], "WRONGTYPE"),
        (&["FCALL", "add", "2", "few", "few"], "ERR a function is applied to one key"),
        (&["FCALL_RO", "add", "1", "few", "1"], "ERR functions of services may write"),
    ] {
        let Word::Error(why) = bank.resp(words) else { panic!("{words:?} gave something") };
        assert!(why.contains(says), "{words:?}: {why}");
    }
    assert_eq!(refusal(&bank.apply("list", "add", &["1"])).0, 409);
    assert_eq!(bank.resp(&["GET", "few"]), Word::Bulk("3".into()));
    // In a transaction stands what replicas can do.
    let txn = bank.http("POST", "txn", r#"{"do":[{"key":"few","function":"add","args":["1"]}]}"#);
    assert!(txn.status == 400 && txn.text().contains("functions of services cannot"), "{}", txn.text());
    bank.resp(&["MULTI"]);
    assert!(matches!(bank.resp(&["FCALL", "add", "1", "few", "1"]), Word::Error(why) if why.contains("inside MULTI")));
    bank.resp(&["DISCARD"]);
    up.settle(Duration::from_secs(60), 1);
    // Nobody to ask.
    up.coppice(&["disable", "teller"]).good();
    let gone = || match refusal(&bank.apply("few", "add", &["0"])) {
        (503, _, why) if why.starts_with("service \"teller\": ") => Ok(()),
        other => Err(format!("{other:?}")),
    };
    wait_for("it is refused with a hint", Duration::from_secs(20), gone);
    assert!(bank.apply("few", "add", &["0"]).header("retry-after").is_some());
    up.coppice(&["enable", "teller"]).good();
    up.settle(Duration::from_secs(60), 1);
    assert_eq!(bank.gives("few", "add", &["0"]), 3);
}

/// Where the clones of the service listen.
fn clones(up: &Up) -> Vec<SocketAddr> {
    let status = up.status(1).unwrap();
    let clones = status["services"][0]["clones"].as_array().unwrap();
    let at = |clone: &Value| {
        let node = (1..=3).map(|n| up.at(n)).find(|at| clone["node"] == at.name.as_str()).unwrap();
        SocketAddr::new(node.peer.ip(), clone["port"].as_u64().unwrap() as u16)
    };
    clones.iter().map(at).collect()
}

#[test]
fn nobody_outside_gets_to_where_nodes_ask() {
    let up = UP.take();
    let door = up.at(1).http;
    let body = r#"{"namespace":"bank","key":"k","calls":[{"function":"add","args":["1"]}]}"#;
    let headers = [("Authorization", "Bearer x"), ("Coppice-Priority", "9"), ("X-Forwarded-For", "127.0.0.1")];
    // Clones come and go after another test's faults: a look at all of them, twice, with nothing of that in between.
    wait_for("no clone was asked", Duration::from_secs(30), || {
        let asked = || -> Result<Vec<(SocketAddr, String)>, String> {
            let answer = |at| http::get(at, "/").map(|reply| (at, reply.text())).map_err(|e| format!("{at}: {e}"));
            clones(&up).into_iter().map(answer).collect()
        };
        let before = asked()?;
        for path in [
            "/.coppice/functions",
            "//.coppice/functions",
            "/x/%2e./.coppice/functions",
            "/%2Ecoppice%2ffunctions",
            "/.coppice",
        ] {
            let reply = http::request(door, "POST", path, &headers, body.as_bytes()).unwrap();
            assert_eq!(reply.status, 404, "{path}: {}", reply.text());
            assert!(reply.text().contains("between nodes and programs"), "{path}: {}", reply.text());
        }
        let after = asked()?;
        if before == after { Ok(()) } else { Err(format!("{before:?} before, {after:?} after")) }
    });
    // Who gets to a clone past the edge lacks its token.
    wait_for("a clone refuses", Duration::from_secs(30), || {
        let at = clones(&up)[0];
        let reply = http::request(at, "POST", "/.coppice/functions", &headers, body.as_bytes());
        let reply = reply.map_err(|e| format!("{at}: {e}"))?;
        assert_eq!(reply.status, 401, "{}", reply.text());
        Ok(())
    });
}

#[test]
fn a_wrong_declaration_is_told_at_its_line() {
    let up = UP.take();
    let wrong = |functions: &str| up.apply("teller.toml", &declaration(functions)).wrong();
    let why = wrong("functions = \"tellers\"");
    assert!(why.contains("teller.toml:3: namespace.bank.functions: there is no service \"tellers\""), "{why}");
    let why = up.apply("x.toml", "[namespace.x]\nclass = \"session\"\nfunctions = \"teller\"\n").wrong();
    assert!(why.contains("x.toml:3: namespace.x.functions: is of class linear"), "{why}");
    // Without one, names that are not built in are wrong.
    up.apply("y.toml", "[namespace.y]\nclass = \"linear\"\n").good();
    let mut resp = up.linear(1, "y", &up.token("y"));
    assert!(
        matches!(resp.ask(&["FCALL", "add", "1", "k", "1"]).unwrap(), Word::Error(why) if why.contains("not found"))
    );
    up.apply("y.toml", "").good();
}

#[test]
fn plain_writers_without_a_pause_leave_a_function_its_turn() {
    let up = UP.take();
    let stop = AtomicBool::new(false);
    let token = up.token("bank");
    let (mut plain, mut calls, mut slowest) = (0, 0, Duration::ZERO);
    std::thread::scope(|scope| {
        let writer = |n| {
            let (mut resp, stop) = (up.linear(n, "bank", &token), &stop);
            move || {
                let mut done = 0;
                while !stop.load(Relaxed) {
                    assert!(matches!(resp.ask(&["INCR", "busy"]).unwrap(), Word::Int(_)));
                    done += 1;
                }
                done
            }
        };
        let writers: Vec<_> = (1..=3).cycle().take(12).map(|n| scope.spawn(writer(n))).collect();
        let mut resp = up.linear(2, "bank", &token);
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let begun = Instant::now();
            let answer = resp.ask(&["FCALL", "add", "1", "busy", "1"]).unwrap();
            assert!(matches!(answer, Word::Int(_)), "{answer:?} after {calls} calls");
            slowest = slowest.max(begun.elapsed());
            calls += 1;
        }
        stop.store(true, Relaxed);
        plain = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    });
    say(&format!("beside {plain} plain writes of the key {calls} calls of a function, the slowest {slowest:?}"));
    assert!(calls >= 8 && plain > calls, "{calls} calls, {plain} plain writes");
    let mut resp = up.linear(1, "bank", &token);
    assert_eq!(resp.ask(&["GET", "busy"]).unwrap(), Word::Bulk((plain + calls).to_string()), "each happened once");
}

/// How many calls were acknowledged, and of how many the end is unknown.
#[derive(Default)]
struct Ends {
    done: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
}

/// Adds one to the hot key again and again, through one node after the other as they fail.
fn write(nodes: &[At], token: &str, nth: usize, stop: &AtomicBool, ends: &Ends) {
    let mut n = nth;
    let bearer = format!("Bearer {token}");
    while !stop.load(Relaxed) {
        let at = &nodes[n % nodes.len()];
        n += 1;
        // One in eight over HTTP, each with a connection of its own.
        if nth.is_multiple_of(8) {
            let body = br#"{"function":"add","args":["1"]}"#;
            let headers = [("Authorization", bearer.as_str())];
            match http::request(at.api, "POST", "/v1/ns/bank/apply/hot", &headers, body).map(|reply| reply.status) {
                Ok(200) => ends.done.fetch_add(1, Relaxed),
                Ok(503) => ends.refused.fetch_add(1, Relaxed),
                Ok(504) => ends.unknown.fetch_add(1, Relaxed),
                Ok(other) => panic!("HTTP {other}"),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => 0,
                Err(_) => ends.unknown.fetch_add(1, Relaxed),
            };
            continue;
        }
        let Ok(mut resp) = Resp::open(at.resp, "bank", token) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        while !stop.load(Relaxed) {
            match resp.ask(&["FCALL", "add", "1", "hot", "1"]) {
                Ok(Word::Int(_)) => ends.done.fetch_add(1, Relaxed),
                Ok(Word::Error(why)) if why.starts_with("UNKNOWN") => ends.unknown.fetch_add(1, Relaxed),
                Ok(Word::Error(why)) if why.starts_with("BUSY") => {
                    std::thread::sleep(Duration::from_millis(20));
                    ends.refused.fetch_add(1, Relaxed)
                }
                Ok(other) => panic!("{other:?}"),
                // The node died: of the last call nobody knows.
                Err(_) => {
                    ends.unknown.fetch_add(1, Relaxed);
                    break;
                }
            };
        }
    }
}

/// So many writers, until `during` is over.
fn writers(up: &Up, count: usize, ends: &Ends, during: impl FnOnce()) {
    let nodes: Vec<At> = (1..=3).map(|n| up.at(n)).collect();
    let (token, stop) = (up.token("bank"), AtomicBool::new(false));
    struct Stops<'a>(&'a AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        // Also if something fails meanwhile: the writers are waited for.
        let _stops = Stops(&stop);
        for nth in 1..=count {
            let (nodes, token, stop) = (&nodes, &token, &stop);
            scope.spawn(move || write(nodes, token, nth, stop, ends));
        }
        during();
    });
}

#[test]
fn many_writers_of_one_key_get_further_than_one_and_no_call_counts_twice() {
    let up = UP.take();
    let (mut bank, ends) = (Bank::at(&up, 1), Ends::default());
    let acked = || ends.done.load(Relaxed);
    bank.resp(&["DEL", "hot"]);
    let rate =
        |count: usize| {
            let (mut done, mut took) = (0, Duration::ZERO);
            writers(&up, count, &ends, || {
                // All are at work.
                let first = acked() + 2 * count as u64;
                wait_for("they begin", Duration::from_secs(30), || {
                    if acked() >= first { Ok(()) } else { Err("no".into()) }
                });
                let (begun, before) = (Instant::now(), acked());
                std::thread::sleep(Duration::from_secs(3));
                (done, took) = (acked() - before, begun.elapsed());
            });
            done as f64 / took.as_secs_f64()
        };
    let (one, many) = (rate(1), rate(64));
    say(&format!("calls a second on one key: {one:.0} by 1 writer, {many:.0} by 64 over three nodes"));
    assert!(many >= one, "{many} a second by 64 writers, {one} by one");
    for n in 1..=3 {
        let figures = http::get(up.at(n).api, "/metrics").unwrap().text();
        let figure = |name: &str| -> f64 {
            let line = figures.lines().find(|line| line.starts_with(&format!("coppice_functions_{name}_total")));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
                .unwrap_or_else(|| panic!("no {name}: {figures}"))
        };
        let (calls, rounds, conflicts) = (figure("calls"), figure("rounds"), figure("conflicts"));
        say(&format!("at n{n}: {calls} calls in {rounds} rounds, {conflicts} of which were in vain"));
        assert!(calls > 1.2 * rounds, "calls go together: {calls} calls in {rounds} rounds");
    }

    writers(&up, 64, &ends, || {
        let goes_on = |what: &str| {
            let until = acked() + 200;
            let so = || if acked() >= until { Ok(()) } else { Err("no".into()) };
            say(&format!("{what}: within {:?}", wait_for(what, Duration::from_secs(60), so).1));
        };
        goes_on("calls are done");
        let pid = up.status(1).unwrap()["services"][0]["clones"][0]["pid"].as_u64().unwrap();
        Proc::of(pid as u32).unwrap().signal(Signal::KILL);
        goes_on("calls are done after a clone was killed");
        Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
        goes_on("calls are done after a node was killed");
        std::thread::sleep(Duration::from_secs(2));
        goes_on("calls are still done");
    });
    up.settle(Duration::from_secs(60), 1);
    let mut bank = Bank::at(&up, 1);
    let Word::Bulk(count) = bank.resp(&["GET", "hot"]) else { panic!("there is no count") };
    let count: u64 = count.parse().unwrap();
    let (done, unknown) = (acked(), ends.unknown.load(Relaxed));
    let refused = ends.refused.load(Relaxed);
    say(&format!("{done} calls acknowledged, {unknown} with an unknown end, {refused} refused; counted: {count}"));
    assert!((done..=done + unknown).contains(&count), "{count} were counted, {done} acknowledged, {unknown} unknown");
}
