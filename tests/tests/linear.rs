//! The `linear` class through the real program: Redis commands, HTTP, transactions, kills, and the power of all nodes.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Shared, Up, wait_for};

static UP: Shared = Shared::new(|| Up::bare(3));

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
    assert!(matches!(one.ask(&["KEYS", "*"]).unwrap(), Word::Error(text) if text.contains("SCAN")));
    assert_eq!(one.ask(&["SET", "e", "x", "PX", "150"]).unwrap(), ok);
    wait_for("the key has ended", Duration::from_secs(5), || match two.ask(&["EXISTS", "e"])? {
        Word::Int(0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
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
