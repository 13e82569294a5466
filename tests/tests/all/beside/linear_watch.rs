//! Watching a `linear` namespace through the real program: what is told, by which node, and what becomes of it when
//! nodes are killed.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::sse::{Event, Sse};
use e2e::{Shared, Up, http, say, wait_for};
use serde_json::{Value, json};

static UP: Shared = Shared::beside(|| Up::bare(3));

fn bank(up: &Up, n: u8) -> (Resp, String) {
    up.apply("bank.toml", "[namespace.bank]\nclass = \"linear\"\n").good();
    let token = up.token("bank");
    let (resp, _) = wait_for("the bank is open", Duration::from_secs(20), || {
        let mut resp = Resp::open(up.at(n).resp, "bank", &token)?;
        match resp.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(resp),
            other => Err(format!("{other:?}")),
        }
    });
    (resp, token)
}

fn leader(up: &Up) -> u8 {
    let find = || {
        let name = up.status(1)?["namespaces"][0]["shards"][0]["leader"].as_str().map(str::to_owned);
        name.and_then(|name| name.strip_prefix('n')?.parse::<u8>().ok()).ok_or("none".to_owned())
    };
    wait_for("it has a leader", Duration::from_secs(10), find).0
}

#[test]
fn who_watches_hears_each_change_through_any_node_and_may_go_on_at_another() {
    let up = UP.take();
    let (mut resp, token) = bank(&up, 1);
    let mut ask = |words: &[&str]| resp.ask(words).unwrap();
    let mut watches: Vec<Sse> =
        (1..=3).map(|n| Sse::open(up.at(n).api, "/v1/ns/bank/watch?prefix=w:", &token, None).unwrap()).collect();
    let begin: Vec<Event> = watches.iter_mut().map(|watch| watch.next().unwrap()).collect();
    assert!(begin.iter().all(|event| event.name == "version"), "{begin:?}");
    ask(&["SET", "w:a", "1"]);
    ask(&["SET", "other", "no"]);
    ask(&["RPUSH", "w:l", "x"]);
    ask(&["SET", "w:a", "2", "PX", "150"]);
    ask(&["DEL", "w:l"]);
    for watch in &mut watches {
        let told: Vec<Event> = (0..5).map(|_| watch.next().unwrap()).collect();
        let data = |n: usize, of: &str| told[n].data[of].clone();
        let names: Vec<&str> = told.iter().map(|event| &*event.name).collect();
        assert_eq!(names, ["put", "put", "put", "remove", "remove"], "{told:?}");
        assert_eq!((data(0, "key"), data(0, "value"), data(0, "type")), (json!("w:a"), json!("1"), json!("string")));
        assert_eq!((data(1, "key"), data(1, "type"), data(1, "value")), (json!("w:l"), json!("list"), Value::Null));
        assert_eq!((data(2, "value"), data(3, "key"), data(3, "ended")), (json!("2"), json!("w:l"), Value::Null));
        assert_eq!((data(4, "key"), data(4, "ended")), (json!("w:a"), json!(true)));
        let ids: Vec<u64> = told.iter().map(Event::version).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        // From the middle on, at another node.
        let mut again =
            Sse::open(up.at(2).api, "/v1/ns/bank/watch?key=w:a", &token, Some(&ids[1].to_string())).unwrap();
        assert_eq!(again.next().unwrap(), told[2]);
        assert_eq!(again.next().unwrap(), told[4]);
    }
    // Reading and watching meet without a gap: a page of keys says at which version it is.
    let bearer = format!("Bearer {token}");
    let get = |path: &str| http::request(up.at(3).api, "GET", path, &[("Authorization", &bearer)], b"").unwrap();
    ask(&["SET", "w:b", "1"]);
    let page = get("/v1/ns/bank/keys?prefix=w:").json().unwrap();
    let version = page["version"].as_u64().unwrap();
    ask(&["SET", "w:b", "2"]);
    let path = format!("/v1/ns/bank/watch?prefix=w:&after={version}");
    let mut after = Sse::open(up.at(1).api, &path, &token, None).unwrap();
    assert_eq!(after.next().unwrap().data["value"], json!("2"));
    let never = Sse::open(up.at(1).api, "/v1/ns/bank/watch?prefix=&after=999999999", &token, None).err().unwrap();
    assert!(never.contains("410") && never.contains("compacted") && never.contains("read again"), "{never}");
    for (path, why) in [("watch", "key="), ("watch?key=a&prefix=b", "key="), ("watch?prefix=&after=x", "after")] {
        let reply = get(&format!("/v1/ns/bank/{path}"));
        assert!(reply.status == 400 && reply.text().contains(why), "{path}: {} {}", reply.status, reply.text());
    }
    let stranger = Sse::open(up.at(1).api, "/v1/ns/bank/watch?prefix=", "wrong", None).err().unwrap();
    assert!(stranger.contains("401"), "{stranger}");
}

#[test]
fn a_leader_that_is_killed_costs_who_watches_neither_a_gap_nor_a_second_telling() {
    let up = UP.take();
    drop(bank(&up, 1));
    let killed = leader(&up);
    let (mut resp, token) = bank(&up, killed % 3 + 1);
    let watcher_at = up.at((killed + 1) % 3 + 1).api;
    let mut watch = Sse::open(watcher_at, "/v1/ns/bank/watch?prefix=kill:", &token, None).unwrap();
    assert_eq!(watch.next().unwrap().name, "version");
    let last = 1_200;
    let told = std::thread::spawn(move || {
        let mut told: Vec<Event> = Vec::new();
        while told.last().is_none_or(|event| event.data["key"] != json!("kill:end")) {
            let event = watch.next().unwrap();
            if event.name != "version" {
                told.push(event);
            }
        }
        told
    });
    let mut acked = Vec::new();
    for n in 0..last {
        if n == last / 3 {
            kill(up.node_pid(killed), Signal::KILL);
        }
        let key = format!("kill:{n}");
        if resp.ask(&["SET", &key, &n.to_string()]).unwrap() == Word::Simple("OK".to_owned()) {
            acked.push(key);
        }
    }
    wait_for("the end is written", Duration::from_secs(10), || match resp.ask(&["SET", "kill:end", "x"])? {
        Word::Simple(_) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let told = told.join().unwrap();
    let ids: Vec<u64> = told.iter().map(Event::version).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
    let keys: Vec<String> = told.iter().map(|event| event.data["key"].as_str().unwrap().to_owned()).collect();
    let missing: Vec<&String> = acked.iter().filter(|key| !keys.contains(key)).collect();
    assert!(missing.is_empty(), "acknowledged and not told: {missing:?}");
    assert!(acked.len() > last - 10, "{} of {last} were acknowledged", acked.len());
    // A key is written once: told more often, a write happened twice or was told twice.
    let mut once = keys.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), keys.len());
    assert_ne!(leader(&up), 0);
    up.settle(Duration::from_secs(30), 0);
}

#[test]
fn a_client_that_takes_nothing_is_told_why_and_let_go() {
    let up = UP.take();
    let (mut resp, token) = bank(&up, 1);
    let at = up.at(2).api;
    let mut lazy = TcpStream::connect(at).unwrap();
    write!(lazy, "GET /v1/ns/bank/watch?prefix=lazy HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\r\n")
        .unwrap();
    let watchers = |up: &Up| up.status(2).unwrap()["nodes"].clone();
    let before = watchers(&up);
    assert!(before.is_array());
    // More than all buffers between us hold.
    let value = "x".repeat(60_000);
    for n in 0..300 {
        resp.ask(&["SET", &format!("lazy{}", n % 3), &value]).unwrap();
    }
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(32));
    // It reads at last: what was under way, and then why it ends.
    let mut rest = String::new();
    lazy.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::io::Read::read_to_string(&mut lazy, &mut rest).unwrap();
    say(&format!("a client that reads after {:?} got {} bytes", begun.elapsed(), rest.len()));
    let end = &rest[rest.len().saturating_sub(300)..];
    assert!(end.contains("event: error") && end.contains("\"slow\"") && end.contains("nothing was taken"), "{end}");
    assert!(rest.len() < 300 * 60_000, "it did not get all");
}
