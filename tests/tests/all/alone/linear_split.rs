//! Shards of a `linear` namespace are split while it is written, followed and read, and while a node dies; through the real
//! program.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use e2e::resp::{Resp, Word};
use e2e::sse::Sse;
use e2e::{Yard, say, wait_for};

fn shards(yard: &Yard, node: u8, namespace: &str) -> Result<Vec<(String, String)>, String> {
    let view = yard.status(node)?;
    let of =
        view["namespaces"].as_array().into_iter().flatten().find(|of| of["name"] == namespace).ok_or("no namespace")?;
    let text = |shard: &serde_json::Value, key: &str| shard[key].as_str().unwrap_or_default().to_owned();
    let all = of["shards"].as_array().ok_or("no shards")?;
    let mut all: Vec<_> = all.iter().map(|shard| (text(shard, "from"), text(shard, "leader"))).collect();
    all.sort();
    Ok(all)
}

fn are_led(yard: &Yard, node: u8, namespace: &str, count: usize) -> Result<(), String> {
    let all = shards(yard, node, namespace)?;
    if all.len() == count && all.iter().all(|(_, leader)| !leader.is_empty()) {
        Ok(())
    } else {
        Err(format!("{all:?}"))
    }
}

fn open(yard: &Yard, n: u8, namespace: &str, token: &str) -> Resp {
    let open = || {
        let mut resp = Resp::open(yard.at(n).resp, namespace, token)?;
        match resp.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(resp),
            other => Err(format!("{other:?}")),
        }
    };
    wait_for("it is open", Duration::from_secs(60), open).0
}

fn declared(shards: u32) -> String {
    format!("[namespace.wide]\nclass = \"linear\"\nshards = {shards}\n")
}

/// Counts up keys of its own through one node, each once after the other; how often each, and the longest wait.
struct Counter {
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: thread::JoinHandle<(BTreeMap<String, i64>, Duration)>,
}

impl Counter {
    fn start(mut resp: Resp, name: &'static str) -> Self {
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count) = (Arc::clone(&over), Arc::clone(&done));
        let thread = thread::spawn(move || {
            let (mut counted, mut longest) = (BTreeMap::new(), Duration::ZERO);
            for n in (0..).take_while(|_| !ends.load(Relaxed)) {
                let key = format!("{name}{}", n % 50);
                let expected: &mut i64 = counted.entry(key.clone()).or_default();
                *expected += 1;
                let begun = Instant::now();
                let told = resp.ask(&["INCR", &key]).unwrap();
                assert_eq!(told, Word::Int(*expected), "{key} after {n} writes");
                longest = longest.max(begun.elapsed());
                count.fetch_add(1, Relaxed);
            }
            (counted, longest)
        });
        Self { over, done, thread }
    }

    fn end(self) -> (BTreeMap<String, i64>, Duration) {
        self.over.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn shards_are_split_under_load_and_nothing_is_lost_or_done_twice() {
    let _turn = e2e::alone();
    let mut yard = Yard::cluster(3);
    yard.apply(1, "wide.toml", "[namespace.wide]\nclass = \"linear\"\n").good();
    let token = yard.namespace_token("wide");
    let mut one = open(&yard, 1, "wide", &token);
    wait_for("it has one shard", Duration::from_secs(60), || are_led(&yard, 1, "wide", 1));
    assert_eq!(one.ask(&["MSET", "x", "1", "y", "2", "z", "3"]).unwrap(), Word::Simple("OK".into()), "one shard");

    let counters = [1, 2].map(|n| Counter::start(open(&yard, n, "wide", &token), ["a", "b"][n as usize - 1]));
    // Who follows is told of each change once, through all that happens to the shards.
    let (mut told, follows) = (0, Arc::new(AtomicBool::new(true)));
    let mut watch = Sse::open(yard.at(1).api, "/v1/ns/wide/watch?prefix=s", &token, None).unwrap();
    let going = Arc::clone(&follows);
    let mut writer = open(&yard, 2, "wide", &token);
    let followed = thread::spawn(move || {
        let mut written = 0;
        while going.load(Relaxed) {
            let key = format!("s{}", written % 40);
            assert_eq!(writer.ask(&["SET", &key, &written.to_string()]).unwrap(), Word::Simple("OK".into()));
            written += 1;
            thread::sleep(Duration::from_millis(5));
        }
        written
    });

    let begun = Instant::now();
    yard.apply(1, "wide.toml", &declared(4)).good();
    wait_for("it has four shards", Duration::from_secs(60), || are_led(&yard, 1, "wide", 4));
    let four = begun.elapsed();
    // Another split is ordered, and a node dies.
    yard.apply(1, "wide.toml", &declared(5)).good();
    yard.kill(3);
    let before: u64 = counters.iter().map(|counter| counter.done.load(Relaxed)).sum();
    wait_for("it goes on", Duration::from_secs(20), || {
        let now: u64 = counters.iter().map(|counter| counter.done.load(Relaxed)).sum();
        if now > before + 200 { Ok(()) } else { Err(format!("{now} writes, {before} before")) }
    });
    yard.run(3);
    wait_for("it has five shards", Duration::from_secs(60), || are_led(&yard, 2, "wide", 5));
    let ended: Vec<_> = counters.into_iter().map(Counter::end).collect();
    follows.store(false, Relaxed);
    let written = followed.join().unwrap();
    let mut seen: BTreeMap<String, i64> = BTreeMap::new();
    while told < written {
        let event = watch.next().unwrap();
        match &*event.name {
            "version" => continue,
            "put" => told += 1,
            other => panic!("{other}: {event:?}"),
        }
        let value: i64 = event.data["value"].as_str().unwrap().parse().unwrap();
        let before = seen.insert(event.data["key"].as_str().unwrap().to_owned(), value);
        assert_eq!(before.map_or(value % 40, |before| before + 40), value, "each once and in order: {event:?}");
    }
    let longest = ended.iter().map(|(_, longest)| *longest).max().unwrap();
    say(&format!("four shards after {four:?}; the longest wait of a write, a killed node included: {longest:?}"));

    // All of it is there, once, at any node.
    let mut three = open(&yard, 3, "wide", &token);
    let counted: Vec<(String, i64)> = ended.into_iter().flat_map(|(counted, _)| counted).collect();
    for (key, count) in &counted {
        assert_eq!(three.ask(&["GET", key]).unwrap(), Word::Bulk(count.to_string()), "{key}");
    }
    let all = counted.len() + seen.len() + 3;
    assert_eq!(three.ask(&["DBSIZE"]).unwrap(), Word::Int(all as i64));

    // What lies together is still done together; what does not is refused with what to do; shards do not become fewer.
    assert_eq!(one.ask(&["MSET", "{t}x", "1", "{t}y", "2", "z{t}", "3"]).unwrap(), Word::Simple("OK".into()));
    let refused = one.ask(&["MSET", "x", "1", "y", "2", "z", "3", "q", "4", "r", "5"]).unwrap();
    assert!(matches!(&refused, Word::Error(text) if text.contains("5 shards") && text.contains('{')), "{refused:?}");
    let fewer = yard.apply(1, "wide.toml", &declared(2)).wrong();
    assert!(fewer.contains("wide.toml:3") && fewer.contains("5 shards"), "{fewer}");
    yard.apply(1, "wide.toml", "[namespace.wide]\nclass = \"linear\"\n").good();
}

#[test]
fn a_shard_that_grows_large_is_split_if_its_namespace_says_so() {
    let _turn = e2e::alone();
    let yard = Yard::cluster(3);
    yard.apply(
        1,
        "big.toml",
        "[namespace.big]\nclass = \"linear\"\nshards = \"auto\"\n[namespace.kept]\nclass = \"linear\"\n",
    )
    .good();
    let token = yard.namespace_token("big");
    let mut resp = open(&yard, 1, "big", &token);
    // Over 256 MiB.
    let large = "x".repeat(15 << 20);
    for n in 0..19 {
        let key = format!("key{n}");
        assert_eq!(resp.ask(&["SET", &key, &large]).unwrap(), Word::Simple("OK".into()), "{key}");
    }
    let took = wait_for("it is split", Duration::from_secs(60), || are_led(&yard, 1, "big", 2)).1;
    say(&format!("split {took:?} after the last write"));
    assert_eq!(resp.ask(&["DBSIZE"]).unwrap(), Word::Int(19));
    for n in 0..19 {
        let length = resp.ask(&["STRLEN", &format!("key{n}")]).unwrap();
        assert_eq!(length, Word::Int(15 << 20), "key{n}");
    }
    are_led(&yard, 1, "kept", 1).unwrap();
    let events = yard.coppice(1, &["events"]).good();
    assert!(events.contains("big/0") && events.contains("big/1"), "{events}");
}
