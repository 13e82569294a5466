//! Queues of class `linear` through the real program: jobs are put at one node and taken at others, while the one that leads is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::Word;
use e2e::{Up, http, wait_for};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

struct Jobs {
    /// Where the nodes' APIs listen.
    apis: [SocketAddr; 3],
    bearer: String,
}

impl Jobs {
    /// One request, answered with 200.
    fn try_ask(&self, node: u8, method: &str, path: &str, body: &Value, once: Option<&str>) -> Result<Value, String> {
        let mut headers = vec![("Authorization", self.bearer.as_str())];
        headers.extend(once.map(|once| ("Idempotency-Key", once)));
        let (path, body) = (format!("/v1/ns/jobs/queues{path}"), body.to_string());
        let body = if method == "GET" { "" } else { &body };
        let reply = http::request(self.apis[usize::from(node) - 1], method, &path, &headers, body.as_bytes());
        match reply.map_err(|e| e.to_string())? {
            reply if reply.status == 200 => reply.json(),
            reply => Err(format!("{}: {}", reply.status, reply.text())),
        }
    }

    /// Asks by one id until there is an answer.
    fn ask(&self, node: u8, method: &str, path: &str, body: Value) -> Value {
        let once = uuid::Uuid::now_v7().to_string();
        let once = (method != "GET").then_some(once.as_str());
        wait_for(&format!("n{node} answers {method} {path}"), SOON, || self.try_ask(node, method, path, &body, once)).0
    }
}

#[test]
fn no_job_is_lost_when_the_leader_is_killed_and_dead_ones_come_again_when_they_are_told_to() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    up.apply("jobs.toml", "[namespace.jobs]\nclass = \"linear\"\n").good();
    let token = up.token("jobs");
    drop(up.linear(1, "jobs", &token));
    let jobs = Jobs { apis: [1, 2, 3].map(|node| up.at(node).api), bearer: format!("Bearer {token}") };

    // Whoever waits is woken at another node, also when a job is due that was put before.
    for delay in [0, 300] {
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let wanted = json!({"wait_ms": 2_500, "hold_ms": 60_000});
                wait_for("a job comes", SOON, || {
                    let taken = jobs.try_ask(2, "POST", "/waits/take", &wanted, None)?;
                    taken["jobs"].get(0).cloned().ok_or("none yet".to_owned())
                })
                .0
            });
            jobs.ask(3, "POST", "/waits/jobs", json!({"payload": "wake", "delay_ms": delay}));
            let job = waits.join().unwrap();
            assert_eq!((&job["payload"], &job["try"]), (&json!("wake"), &json!(1)));
            assert_eq!(jobs.ask(1, "POST", "/waits/done", json!({"tickets": [job["ticket"]]})), json!({"done": 1}));
        });
    }

    // By the Redis door: put at one node, waited for at another.
    let mut resp = up.linear(2, "jobs", &token);
    let (int, bulk) = (Word::Int, |text: &str| Word::Bulk(text.to_owned()));
    assert_eq!(resp.ask(&["FCALL", "queue.take", "1", "bell", "1", "60000"]).unwrap(), Word::Nil);
    assert_eq!(jobs.ask(3, "POST", "/bell/jobs", json!({"payload": "ring", "delay_ms": 200}))["id"], json!(1));
    let taken = resp.ask(&["FCALL", "queue.take", "1", "bell", "1", "60000", "20000"]).unwrap();
    let Word::List(taken) = taken else { panic!("{taken:?}") };
    let [Word::List(job)] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!(job[..3], [bulk("1.1"), bulk("ring"), int(1)]);
    assert_eq!(resp.ask(&["FCALL", "queue.done", "1", "bell", "1.1"]).unwrap(), int(1));
    assert_eq!(resp.ask(&["TYPE", "bell"]).unwrap(), Word::Simple("queue".into()));
    let Word::Error(why) = resp.ask(&["LPOP", "bell"]).unwrap() else { panic!("it is no list") };
    assert!(why.starts_with("WRONGTYPE"), "{why}");
    assert_eq!(resp.ask(&["DEL", "bell"]).unwrap(), int(1));

    let mut put = BTreeMap::new();
    for n in 0..60_u8 {
        let body = json!({"payload": format!("job {n}"), "tries": 1_000, "key": format!("job {n}")});
        let first = jobs.ask(1 + n % 3, "POST", "/works/jobs", body.clone());
        put.insert(first["id"].as_u64().unwrap(), format!("job {n}"));
        if n % 20 == 0 {
            let again = jobs.ask(1 + (n + 1) % 3, "POST", "/works/jobs", body);
            assert_eq!((&again["id"], &again["new"]), (&first["id"], &json!(false)), "its key is remembered");
        }
    }
    let bad = jobs.ask(1, "POST", "/works/jobs", json!({"payload": "bad", "tries": 2, "priority": 9}))["id"].clone();
    assert_eq!(jobs.ask(2, "GET", "/works", Value::Null)["waiting"], json!(61));

    let leader = || {
        let name = up.status(1).ok()?["namespaces"][0]["shards"][0]["leader"].as_str()?.to_owned();
        name.strip_prefix('n')?.parse::<u8>().ok()
    };
    let (killed, _) = wait_for("it has a leader", SOON, || leader().ok_or("none".to_owned()));
    let pid = up.node_pid(killed);
    let others: Vec<u8> = (1..=3).filter(|node| *node != killed).collect();
    let ends = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let workers: Vec<_> = others
            .iter()
            .map(|node| {
                let (jobs, ends) = (&jobs, &ends);
                scope.spawn(move || {
                    let mut done = BTreeSet::new();
                    let wanted = json!({"count": 2, "hold_ms": 3_000, "wait_ms": 500});
                    while !ends.load(Ordering::Relaxed) {
                        // What is lost on its way comes again when its time is over.
                        let Ok(taken) = jobs.try_ask(*node, "POST", "/works/take", &wanted, None) else { continue };
                        for job in taken["jobs"].as_array().unwrap() {
                            if job["payload"] == "bad" {
                                let why = json!({"ticket": job["ticket"], "delay_ms": 10, "why": "no such address"});
                                jobs.ask(*node, "POST", "/works/fail", why);
                            } else {
                                done.insert((job["id"].as_u64().unwrap(), job["payload"].as_str().unwrap().to_owned()));
                                // Somebody else has it, if this is too late.
                                jobs.ask(*node, "POST", "/works/done", json!({"tickets": [job["ticket"]]}));
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        wait_for("some are done", SOON, || {
            let shown = jobs.try_ask(others[0], "GET", "/works", &Value::Null, None)?;
            if shown["done"].as_u64() > Some(10) { Ok(()) } else { Err(shown.to_string()) }
        });
        kill(pid, Signal::KILL);
        wait_for("nothing is left but what is dead", SOON, || {
            let shown = jobs.try_ask(others[0], "GET", "/works", &Value::Null, None)?;
            let left = ["waiting", "later", "held"].iter().filter_map(|name| shown[*name].as_u64()).sum::<u64>();
            if left == 0 { Ok(()) } else { Err(shown.to_string()) }
        });
        ends.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<BTreeMap<u64, String>>()
    });
    assert_eq!(done, put, "each was done, and nothing else");

    let dead = jobs.ask(others[1], "GET", "/works/jobs?state=dead", Value::Null);
    let [dead] = &dead["jobs"].as_array().unwrap()[..] else { panic!("{dead}") };
    assert_eq!((&dead["id"], &dead["tries"], &dead["why"]), (&bad, &json!(2), &json!("no such address")));
    // What people see of it, at any node: names are for who has a token.
    up.settle(SOON, 0);
    let listed = up.coppice(&["queue", "list", "jobs"]).good();
    assert!(listed.lines().any(|line| line.starts_with("jobs/works ") && line.contains(" 60")), "{listed}");
    let shown = up.coppice(&["queue", "show", "jobs/works"]).good();
    assert!(shown.contains("given 2 of 2 times (no such address): bad"), "{shown}");
    wait_for("the status has it", SOON, || {
        let view = up.status(others[0])?;
        let queues = view["namespaces"][0]["queues"].as_array().cloned().unwrap_or_default();
        let is_told = |queue: &Value| queue["name"] == "works" && queue["dead"] == 1;
        if queues.iter().any(is_told) { Ok(()) } else { Err(view["namespaces"].to_string()) }
    });
    let admin = format!("Bearer {}", up.admin_token());
    let figures =
        |headers: &[(&str, &str)]| http::request(up.at(others[0]).api, "GET", "/metrics", headers, b"").unwrap().text();
    let told = r#"coppice_queue_jobs{namespace="jobs",queue="works",state="dead"} 1"#;
    assert!(figures(&[("Authorization", &admin)]).contains(told));
    let hidden = figures(&[]);
    assert!(hidden.contains("coppice_queue_jobs{") && !hidden.contains("queue=\"works\""), "its name is hidden");
    assert_eq!(up.coppice(&["queue", "retry", "jobs/works"]).good().trim(), "1 jobs wait again; 0 are dead");
    let taken = jobs.try_ask(others[1], "POST", "/works/take", &json!({"wait_ms": 2_000}), None).unwrap();
    let again = &taken["jobs"][0];
    assert_eq!((&again["id"], &again["try"]), (&bad, &json!(1)));
    assert_eq!(jobs.ask(others[0], "POST", "/works/done", json!({"tickets": [again["ticket"]]})), json!({"done": 1}));
    let shown = jobs.ask(others[0], "GET", "", Value::Null);
    let names: Vec<_> = shown["queues"].as_array().unwrap().iter().map(|queue| queue["name"].clone()).collect();
    assert_eq!(names, [json!("waits"), json!("works")]);
    assert_eq!((&shown["queues"][1]["done"], &shown["queues"][1]["died"]), (&json!(61), &json!(1)));
}
