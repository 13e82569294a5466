//! The `linear` class through the real program: Redis commands, HTTP, transactions, kills, and the power of all nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Shared, Up, http, wait_for};

static UP: Shared = Shared::beside(|| Up::bare(3));

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\n";

/// A connection through node `n` to a namespace that has a leader.
fn bank(up: &Up, n: u8) -> Resp {
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    let (resp, _) = wait_for("the bank is open", Duration::from_secs(10), || {
        let mut resp = Resp::open(up.at(n).resp, "bank", &token)?;
        match resp.ask(&["PING"])? {
            Word::Simple(_) => match resp.ask(&["DBSIZE"])? {
                Word::Int(_) => Ok(resp),
                other => Err(format!("{other:?}")),
            },
            other => Err(format!("{other:?}")),
        }
    });
    resp
}

#[test]
fn what_one_node_acknowledged_every_node_shows_and_a_transaction_happens_whole_or_not_at_all() {
    let up = UP.take();
    let (mut one, mut two) = (bank(&up, 1), bank(&up, 2));
    let shown = up.coppice(&["ns", "show", "bank"]).good();
    assert!(shown.contains("group:") && shown.contains("led by n"), "{shown}");
    assert!(up.coppice(&["ns", "list"]).good().contains("linear") && up.coppice(&["status"]).good().contains("bank"));
    let int = Word::Int;
    let bulk = |text: &str| Word::Bulk(text.to_owned());
    let ok = Word::Simple("OK".to_owned());
    assert_eq!(one.ask(&["FLUSHDB"]).unwrap(), ok);
    for n in 1..=100 {
        assert_eq!(one.ask(&["INCR", "n"]).unwrap(), int(n));
        assert_eq!(two.ask(&["GET", "n"]).unwrap(), bulk(&n.to_string()), "never older than what was acknowledged");
    }
    assert_eq!(one.ask(&["HSET", "h", "f", "1"]).unwrap(), int(1));
    assert!(matches!(two.ask(&["INCR", "h"]).unwrap(), Word::Error(text) if text.starts_with("WRONGTYPE")));
    // A watched key that changes stops the transaction.
    assert_eq!(one.ask(&["WATCH", "n"]).unwrap(), ok);
    assert_eq!(one.ask(&["MULTI"]).unwrap(), ok);
    assert_eq!(one.ask(&["INCR", "n"]).unwrap(), Word::Simple("QUEUED".to_owned()));
    assert_eq!(two.ask(&["SET", "n", "7"]).unwrap(), ok);
    assert_eq!(one.ask(&["EXEC"]).unwrap(), Word::Nil);
    assert_eq!(two.ask(&["GET", "n"]).unwrap(), bulk("7"));
    assert_eq!(one.ask(&["WATCH", "n"]).unwrap(), ok);
    for words in [&["MULTI"][..], &["INCR", "n"], &["RPUSH", "l", "a", "b"]] {
        one.ask(words).unwrap();
    }
    assert_eq!(one.ask(&["EXEC"]).unwrap(), Word::List(vec![int(8), int(2)]));
    assert_eq!(one.ask(&["SORT", "l", "ALPHA", "DESC"]).unwrap(), Word::List(vec![bulk("b"), bulk("a")]));
    assert_eq!(one.ask(&["SET", "e", "x", "PX", "150"]).unwrap(), ok);
    wait_for("the key has ended", Duration::from_secs(5), || match two.ask(&["EXISTS", "e"])? {
        Word::Int(0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Under writes without a pause; each look is a read that is never old.
#[test]
fn what_is_to_end_ends_in_time_however_much_is_written_beside_it() {
    let up = UP.take();
    let (mut looks, mut writes) = (bank(&up, 1), bank(&up, 2));
    let int = Word::Int;
    for key in ["win", "abs", "lease"] {
        looks.ask(&["DEL", key]).unwrap();
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                writes.ask(&["SET", "other", "1"]).unwrap();
            }
        });
        let begun = Instant::now();
        let at = (unix_ms() + 3_000).to_string();
        assert_eq!(looks.ask(&["SET", "win", "1", "PX", "3000"]).unwrap(), Word::Simple("OK".to_owned()));
        assert_eq!(looks.ask(&["SET", "abs", "1", "PXAT", &at]).unwrap(), Word::Simple("OK".to_owned()));
        assert!(matches!(looks.ask(&["FCALL", "lease.claim", "1", "lease", "me", "3000"]).unwrap(), Word::Int(_)));
        let mut ended: BTreeMap<&str, Duration> = BTreeMap::new();
        while ended.len() < 3 && begun.elapsed() < Duration::from_secs(10) {
            for key in ["win", "abs", "lease"] {
                if looks.ask(&["EXISTS", key]).unwrap() == int(0) {
                    ended.entry(key).or_insert_with(|| begun.elapsed());
                }
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("ended after {ended:?}");
        // Clocks of a node, its wall clock and this test's, agree within a few milliseconds in so short a time.
        let in_time = Duration::from_millis(2_990)..Duration::from_millis(3_500);
        assert!(ended.len() == 3 && ended.values().all(|took| in_time.contains(took)), "{ended:?}");
    });
}

#[test]
fn what_ends_by_a_moment_that_has_passed_is_gone_at_once() {
    let up = UP.take();
    let mut one = bank(&up, 1);
    let (int, ok) = (Word::Int, || Word::Simple("OK".to_owned()));
    let bulk = |text: &str| Word::Bulk(text.to_owned());
    for (words, expect) in [
        (&["EXPIRE", "-1", "NX"][..], 1),
        (&["PEXPIREAT", "1", "NX"], 1),
        (&["EXPIRE", "0"], 1),
        (&["EXPIREAT", "1", "LT"], 1),
        (&["PEXPIRE", "-5", "XX"], 0),
        (&["PEXPIREAT", "1", "GT"], 0),
    ] {
        one.ask(&["DEL", "list"]).unwrap();
        one.ask(&["RPUSH", "list", "old"]).unwrap();
        let words = [&[words[0], "list"], &words[1..]].concat();
        assert_eq!(one.ask(&words).unwrap(), int(expect), "{words:?}");
        assert_eq!(one.ask(&["RPUSH", "list", "new"]).unwrap(), int(2 - expect), "{words:?}");
        assert_eq!(one.ask(&["PTTL", "list"]).unwrap(), int(-1), "{words:?}: it stays");
    }
    for end in [["EXAT", "1"], ["PXAT", "1"]] {
        assert_eq!(one.ask(&["SET", "k", "v", end[0], end[1]]).unwrap(), ok());
        assert_eq!(one.ask(&["GET", "k"]).unwrap(), Word::Nil, "{end:?}");
        assert_eq!(one.ask(&["SET", "k", "v"]).unwrap(), ok());
        assert_eq!(one.ask(&["SET", "k", "w", "GET", end[0], end[1]]).unwrap(), bulk("v"));
        assert_eq!(one.ask(&["EXISTS", "k"]).unwrap(), int(0), "{end:?}");
        assert_eq!(one.ask(&["SET", "k", "v"]).unwrap(), ok());
        assert_eq!(one.ask(&["GETEX", "k", end[0], end[1]]).unwrap(), bulk("v"));
        assert_eq!(one.ask(&["GET", "k"]).unwrap(), Word::Nil, "{end:?}");
    }
    one.ask(&["DEL", "c"]).unwrap();
    for words in [&["MULTI"][..], &["SET", "c", "5", "EXAT", "1"], &["INCR", "c"]] {
        one.ask(words).unwrap();
    }
    assert_eq!(one.ask(&["EXEC"]).unwrap(), Word::List(vec![ok(), int(1)]));
    assert_eq!(one.ask(&["PTTL", "c"]).unwrap(), int(-1), "it stays");
    // A moment is the same one, however long EXEC lets wait.
    let soon = unix_ms() + 300;
    one.ask(&["MULTI"]).unwrap();
    one.ask(&["SET", "m", "v", "PXAT", &soon.to_string()]).unwrap();
    wait_for(
        "the moment has passed",
        Duration::from_secs(5),
        || if unix_ms() > soon { Ok(()) } else { Err("".into()) },
    );
    assert_eq!(one.ask(&["EXEC"]).unwrap(), Word::List(vec![ok()]));
    assert_eq!(one.ask(&["EXISTS", "m"]).unwrap(), int(0));
}

#[test]
fn a_namespace_that_was_just_applied_is_shown_with_its_leaders() {
    let up = UP.take();
    for n in 0..3 {
        up.apply("fresh.toml", &format!("[namespace.fresh{n}]\nclass = \"linear\"\nshards = 4\n")).good();
        let shown = up.coppice(&["ns", "show", &format!("fresh{n}")]).good();
        let led = shown.lines().filter(|line| line.contains(", led by n")).count();
        assert!(led == 4 && !shown.contains("nobody"), "{shown}");
    }
    up.apply("fresh.toml", "").good();
}

#[test]
fn a_hot_key_is_shown_on_every_node_with_who_waits_for_it() {
    let up = UP.take();
    let (mut one, mut waits) = (bank(&up, 1), bank(&up, 2));
    one.ask(&["DEL", "queue"]).unwrap();
    // Waits for as long as the test takes, at a key that gets commands all the time.
    waits.tell(&["BLPOP", "queue", "60"]).unwrap();
    let shows = |n: u8| up.status(n).unwrap()["namespaces"][0]["hot"].clone();
    let look = |one: &mut Resp| {
        // Ten at a time: well over a hundred a second, also in a debug build.
        for _ in 0..10 {
            for key in ["queue", "queue", "cold"] {
                one.tell(&["LLEN", key])?;
            }
        }
        for _ in 0..30 {
            one.hear()?;
        }
        (1..=3).map(shows).collect::<Vec<_>>().into_iter().try_for_each(|hot| match &hot[0] {
            hot if hot["key"] == "queue" && hot["waiters"].as_u64() > Some(0) && hot["rate"].as_u64() >= Some(100) => {
                Ok(())
            }
            other => Err(format!("{other}")),
        })
    };
    wait_for("each node shows the hot key", Duration::from_secs(30), || look(&mut one));
    let shown = up.coppice(&["ns", "show", "bank"]).good();
    assert!(shown.contains("hot key:           queue: "), "{shown}");
    one.ask(&["RPUSH", "queue", "x"]).unwrap();
    assert_eq!(waits.hear().unwrap(), Word::List(vec![Word::Bulk("queue".into()), Word::Bulk("x".into())]));
}

#[test]
fn weak_functions_are_done_together_and_each_counts_once() {
    let up = UP.take();
    let file = "[namespace.weak]\nclass = \"linear\"\nweak = [\"number.add\", \"set.add\"]\n";
    let wrong = file.replace("set.add", "put");
    let refused = up.apply("weak.toml", &wrong).wrong();
    assert!(refused.contains("weak.toml:3: namespace.weak.weak") && refused.contains("those that can"), "{refused}");
    up.apply("weak.toml", file).good();
    let token = up.token("weak");
    let open = |n: u8| up.linear(n, "weak", &token);
    let ok = Word::Simple("OK".to_owned());
    let each = 40;
    std::thread::scope(|scope| {
        for n in (0..48).map(|n| n % 3 + 1) {
            let (mut resp, ok) = (open(n), &ok);
            scope.spawn(move || {
                for turn in 0..each {
                    assert_eq!(resp.ask(&["FCALL", "number.add", "1", "n", "2"]).unwrap(), *ok);
                    let member = format!("{turn}");
                    assert_eq!(resp.ask(&["FCALL", "set.add", "1", "s", &member]).unwrap(), *ok);
                }
            });
        }
    });
    let mut resp = open(2);
    assert_eq!(resp.ask(&["GET", "n"]).unwrap(), Word::Bulk((48 * each * 2).to_string()));
    assert_eq!(resp.ask(&["SCARD", "s"]).unwrap(), Word::Int(each));
    // A command that clients know answers as they know it.
    assert_eq!(resp.ask(&["INCRBY", "n", "1"]).unwrap(), Word::Int(48 * each * 2 + 1));
    let wrong = |resp: &mut Resp, words: &[&str]| match resp.ask(words).unwrap() {
        Word::Error(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(wrong(&mut resp, &["FCALL", "number.add", "1", "s", "1"]).starts_with("WRONGTYPE"));
    assert!(wrong(&mut resp, &["FCALL", "number.add", "1", "n", "one"]).contains("not an integer"));
    wait_for("some are known to have waited for another one", Duration::from_secs(5), || {
        let joined = |n| up.status(n).unwrap()["figures"]["linear.joined"].as_u64().unwrap_or(0);
        if (1..=3).map(joined).sum::<u64>() > 0 { Ok(()) } else { Err("none".to_owned()) }
    });
    let bearer = format!("Bearer {token}");
    let body = br#"{"function":"number.add","args":["1"]}"#;
    let reply =
        http::request(up.at(1).api, "POST", "/v1/ns/weak/apply/n", &[("Authorization", &bearer)], body).unwrap();
    assert_eq!((reply.status, &reply.text()[..]), (200, r#"{"result":null}"#));
    assert!(up.coppice(&["ns", "show", "weak"]).good().contains("weak functions:    number.add, set.add"));
}

#[test]
fn over_http_a_read_may_be_stale_and_says_so_and_a_transaction_holds_or_does_nothing() {
    let up = UP.take();
    drop(bank(&up, 1));
    let bearer = format!("Bearer {}", up.token("bank"));
    let ask = |n: u8, method: &str, path: &str, body: &str| {
        let path = format!("/v1/ns/bank/{path}");
        http::request(up.at(n).api, method, &path, &[("Authorization", &bearer)], body.as_bytes()).unwrap()
    };
    assert_eq!(ask(1, "PUT", "keys/stale", "0").status, 204);
    wait_for("each copy has it", Duration::from_secs(10), || {
        let lacks = (1..=3).find(|n| ask(*n, "GET", "keys/stale?stale=10s", "").status != 200);
        lacks.map_or(Ok(()), |n| Err(format!("n{n} does not")))
    });
    for n in 1..=3 {
        assert_eq!(ask(n, "PUT", "keys/stale", &n.to_string()).status, 204);
        assert_eq!(ask(n, "GET", "keys/stale", "").header("coppice-age-ms"), None, "it is not asked for");
        // The node itself has just written and read: its own copy is as fresh as that, or the leader was asked.
        for node in 1..=3 {
            let reply = ask(node, "GET", "keys/stale?stale=10s", "");
            let age: u64 = reply.header("coppice-age-ms").unwrap().parse().unwrap();
            assert!(reply.status == 200 && age <= 10_000, "{reply:?}");
            assert_eq!(ask(node, "GET", "keys/stale?stale=0ms", "").text(), n.to_string(), "nothing may be old");
        }
    }
    let stale = |n: u8| up.status(n).unwrap()["figures"]["linear.reads_stale"].as_u64().unwrap_or(0);
    wait_for("own copies have answered", Duration::from_secs(10), || {
        (1..=3).for_each(|n| drop(ask(n, "GET", "keys/stale?stale=10s", "")));
        let counts: Vec<u64> = (1..=3).map(stale).collect();
        if counts.iter().all(|count| *count > 0) { Ok(()) } else { Err(format!("{counts:?}")) }
    });
    let page = ask(2, "GET", "keys?prefix=stale&stale=10s", "");
    assert!(page.text().contains("\"stale\"") && page.header("coppice-age-ms").is_some(), "{page:?}");
    assert_eq!(ask(1, "GET", "keys/stale?stale=soon", "").status, 400);
    // Two accounts.
    for key in ["from", "to"] {
        ask(1, "PUT", &format!("keys/{key}"), "100");
    }
    let version = ask(2, "GET", "keys/from", "").header("etag").unwrap().trim_matches('"').to_owned();
    let txn = format!(
        r#"{{"if":[{{"key":"from","version":{version}}},{{"key":"none","version":0}}],
            "do":[{{"key":"from","function":"number.add","args":["-30"]}},{{"key":"to","function":"number.add","args":["30"]}},
                  {{"key":"blob","function":"put","args":[{{"base64":"AP8="}},"always","none"]}}]}}"#
    );
    let done = ask(3, "POST", "txn", &txn).json().unwrap();
    assert_eq!((done["results"][0].as_i64(), done["results"][1].as_i64()), (Some(70), Some(130)), "{done}");
    assert_eq!(ask(1, "GET", "keys/blob", "").body, [0, 255]);
    let again = ask(1, "POST", "txn", &txn);
    assert!(again.status == 412 && again.text().contains("unmet"), "{again:?}");
    assert_eq!(ask(2, "GET", "keys/to", "").text(), "130", "nothing happened");
    let wrong = ask(1, "POST", "txn", r#"{"do":[{"key":"a","function":"nope"}]}"#);
    assert!(wrong.status == 400 && wrong.text().contains("number.add"), "{wrong:?}");
    let document = http::get(up.at(2).api, "/v1/openapi.json").unwrap().json().unwrap();
    assert!(document["paths"]["/v1/ns/{ns}/txn"]["post"].is_object());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_is_killed_and_writes_resume_soon() {
    let up = UP.take();
    drop(bank(&up, 1));
    let leader = |up: &Up| {
        let name = up.status(1).ok()?["namespaces"][0]["shards"][0]["leader"].as_str()?.to_owned();
        name.strip_prefix('n')?.parse::<u8>().ok()
    };
    let (killed, _) = wait_for("it has a leader", Duration::from_secs(10), || leader(&up).ok_or("none".to_owned()));
    let mut resp = bank(&up, killed % 3 + 1);
    let (mut acked, mut gap, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
    for n in 0..1_500 {
        let key = format!("kill:{n}");
        if n == 300 {
            kill(up.node_pid(killed), Signal::KILL);
        }
        if resp.ask(&["SET", &key, &key]).unwrap() == Word::Simple("OK".to_owned()) {
            gap = gap.max(last.elapsed());
            last = Instant::now();
            acked.push(key);
        }
    }
    assert!(acked.len() > 1_490, "{} of 1500 writes were acknowledged", acked.len());
    assert!(gap < Duration::from_secs(3), "no write for {gap:?}");
    for key in &acked {
        assert_eq!(resp.ask(&["GET", key]).unwrap(), Word::Bulk(key.clone()), "acknowledged and lost");
    }
    println!("longest time without a write: {gap:?}");
}

#[test]
fn all_is_there_after_the_power_of_all_nodes_failed() {
    let up = UP.take();
    let mut resp = bank(&up, 1);
    for n in 0..50 {
        assert_eq!(resp.ask(&["SET", &format!("power:{n}"), "on"]).unwrap(), Word::Simple("OK".to_owned()));
    }
    let token = up.token("bank");
    (1..=3).for_each(|n| kill(up.node_pid(n), Signal::KILL));
    let (mut resp, _) = wait_for("the nodes are back", Duration::from_secs(30), || {
        let mut resp = Resp::open(up.at(2).resp, "bank", &token)?;
        match resp.ask(&["GET", "power:0"])? {
            Word::Bulk(_) => Ok(resp),
            other => Err(format!("{other:?}")),
        }
    });
    for n in 0..50 {
        assert_eq!(resp.ask(&["GET", &format!("power:{n}")]).unwrap(), Word::Bulk("on".to_owned()));
    }
}

/// One of one group, one of three.
const TWO: &str = "[namespace.bank]\nclass = \"linear\"\n\n[namespace.broad]\nclass = \"linear\"\nshards = 3\n";

#[test]
fn a_namespace_that_is_emptied_takes_no_other_with_it() {
    let up = UP.take();
    up.apply("bank.toml", TWO).good();
    let (mut bank, mut broad) = (up.linear(1, "bank", &up.token("bank")), up.linear(2, "broad", &up.token("broad")));
    for n in 0..20 {
        for resp in [&mut bank, &mut broad] {
            assert_eq!(resp.ask(&["SET", &format!("flush:{n}"), "x"]).unwrap(), Word::Simple("OK".to_owned()));
        }
    }
    for (emptied, other, command) in [("bank", "broad", "FLUSHDB"), ("broad", "bank", "FLUSHALL")] {
        let mut resps = BTreeMap::from([("bank", &mut bank), ("broad", &mut broad)]);
        resps.get_mut(other).unwrap().ask(&["SET", "stays", "here"]).unwrap();
        let before = resps.get_mut(other).unwrap().ask(&["DBSIZE"]).unwrap();
        assert_eq!(resps.get_mut(emptied).unwrap().ask(&[command]).unwrap(), Word::Simple("OK".to_owned()));
        assert_eq!(resps.get_mut(emptied).unwrap().ask(&["DBSIZE"]).unwrap(), Word::Int(0), "{emptied}");
        assert_eq!(resps.get_mut(other).unwrap().ask(&["DBSIZE"]).unwrap(), before, "{other}");
        assert_eq!(resps.get_mut(other).unwrap().ask(&["GET", "stays"]).unwrap(), Word::Bulk("here".to_owned()));
    }
}

#[test]
fn over_http_a_write_may_ask_for_the_version_that_was_read() {
    let up = UP.take();
    up.apply("bank.toml", TWO).good();
    for name in ["bank", "broad"] {
        let token = up.token(name);
        drop(up.linear(3, name, &token));
        let bearer = format!("Bearer {token}");
        let ask = |n: u8, method: &str, condition: Option<(&str, &str)>, body: &str| {
            let headers: Vec<_> = [("Authorization", &*bearer)].into_iter().chain(condition).collect();
            let path = format!("/v1/ns/{name}/keys/match");
            http::request(up.at(n).api, method, &path, &headers, body.as_bytes()).unwrap()
        };
        let status = |n, method, condition, body| ask(n, method, condition, body).status;
        ask(1, "DELETE", None, "");
        let (any, none) = (("If-Match", "*"), ("If-None-Match", "*"));
        assert_eq!(status(1, "PUT", Some(any), "0"), 412, "there is nothing yet");
        assert_eq!(status(1, "PUT", Some(none), "1"), 204);
        assert_eq!(status(2, "PUT", Some(none), "2"), 412);
        let first = ask(3, "GET", None, "").header("etag").unwrap().to_owned();
        assert_eq!(status(2, "GET", Some(("If-None-Match", &first)), ""), 304);
        assert_eq!(status(2, "PUT", Some(("If-Match", &first)), "3"), 204);
        let late = ask(3, "PUT", Some(("If-Match", &first)), "4");
        let second = ask(1, "GET", None, "");
        assert_eq!((late.status, &*second.text()), (412, "3"), "{name}: a write that was too late did something");
        assert_eq!(late.header("etag"), second.header("etag"), "it says which version there is");
        assert_eq!(status(1, "DELETE", Some(("If-Match", &first)), ""), 412);
        assert_eq!(status(1, "PUT", Some(("If-Match", "3")), "5"), 400, "without quotes it is no version");
        assert_eq!(status(2, "DELETE", Some(("If-Match", second.header("etag").unwrap())), ""), 204);
        assert_eq!(status(3, "GET", None, ""), 404);
    }
}

#[test]
fn over_http_a_put_gives_the_old_value_and_several_values_are_read_at_once() {
    let up = UP.take();
    up.apply("bank.toml", TWO).good();
    for name in ["bank", "broad"] {
        let token = up.token(name);
        drop(up.linear(2, name, &token));
        let bearer = format!("Bearer {token}");
        let ask = |n: u8, method: &str, path: &str, body: &str| {
            let path = format!("/v1/ns/{name}/{path}");
            http::request(up.at(n).api, method, &path, &[("Authorization", &bearer)], body.as_bytes()).unwrap()
        };
        let first = ask(1, "PUT", "keys/old:a?return=old", "one");
        assert_eq!((first.status, &*first.text()), (204, ""), "{name}");
        let second = ask(2, "PUT", "keys/old:a?return=old", "two");
        assert_eq!((second.status, &*second.text()), (200, "one"), "{name}");
        assert_eq!(ask(3, "GET", "keys/old:a", "").header("etag"), second.header("etag"), "the version is the new one");
        assert_eq!(ask(3, "PUT", "keys/old:b", "three").status, 204);
        let body = r#"{"keys": ["old:b", "old:none", "old:a"]}"#;
        for path in ["mget", "mget?stale=5s"] {
            let many = ask(3, "POST", path, body);
            let values = many.json().unwrap()["values"].take();
            assert_eq!((&values[0]["value"], &values[2]["value"]), (&"three".into(), &"two".into()), "{name} {values}");
            assert!(values[1].is_null() && values[2]["version"].as_u64() > Some(0), "{values}");
            assert_eq!(many.header("coppice-age-ms").is_some(), path != "mget", "{name}");
        }
        // What is no text is not taken out of its place unseen.
        let push = r#"{"function": "list.push-left", "args": ["x"]}"#;
        assert_eq!(ask(1, "POST", "apply/old:l", push).status, 200);
        assert_eq!(ask(1, "PUT", "keys/old:l?return=old", "x").status, 409);
    }
}
