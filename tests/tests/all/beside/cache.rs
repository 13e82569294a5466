//! A cache over three nodes: what is stored at one is read at the others and purged at once, also when one of them was killed.

use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::{Up, http, wait_for};

const KEYS: usize = 90;

fn key(n: usize) -> String {
    format!("page/{n}")
}

fn ok() -> Result<Word, String> {
    Ok(Word::Simple("OK".into()))
}

/// How many of the keys this node gives a value for.
fn there(conn: &mut Resp) -> usize {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    match conn.ask(&words) {
        Ok(Word::List(values)) => values.iter().filter(|value| **value != Word::Nil).count(),
        other => panic!("{other:?}"),
    }
}

fn store(conn: &mut Resp, n: usize) -> Result<(), String> {
    match conn.ask(&["SET", &key(n), "some text", "TAG", if n.is_multiple_of(2) { "even" } else { "odd" }]) {
        Ok(Word::Simple(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn what_one_node_stores_all_read_and_a_purge_holds_also_when_a_node_is_killed() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    up.apply("pages.toml", "[namespace.pages]\nclass = \"cache\"\nsize_max = \"32MiB\"\n").good();
    let token = up.token("pages");
    let open = |n: u8| Resp::open(up.at(n).resp, "pages", &token).unwrap();
    let mut conns = [open(1), open(2), open(3)];
    // The first leases take a moment.
    wait_for("all can store", Duration::from_secs(20), || {
        (0..KEYS).try_for_each(|n| store(&mut conns[n % 3], n))?;
        match conns.each_mut().map(there) {
            [KEYS, KEYS, KEYS] => Ok(()),
            counts => Err(format!("{counts:?}")),
        }
    });
    assert_eq!(conns[1].ask(&["PURGE", "TAG", "even"]), ok());
    assert_eq!(conns.each_mut().map(there), [KEYS / 2; 3]);
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("content-type", "text/plain")];
    let put = http::request(up.at(2).api, "PUT", "/v1/ns/pages/keys/page/0", &headers, b"by http").unwrap();
    assert_eq!(put.status, 204, "{}", put.text());
    assert_eq!(conns[2].ask(&["GET", "page/0"]), Ok(Word::Bulk("by http".into())));
    let purge = http::request(up.at(3).api, "POST", "/v1/ns/pages/purge?key=page/0", &headers, b"").unwrap();
    assert_eq!((purge.status, conns[0].ask(&["GET", "page/0"])), (204, Ok(Word::Nil)));
    match conns[0].ask(&["SETNX", "lock", "me"]) {
        Ok(Word::Error(why)) => assert!(why.contains("class cache") && why.contains("class linear"), "{why}"),
        other => panic!("{other:?}"),
    }
    let shown = up.coppice(&["ns", "show", "pages"]).good();
    assert!(shown.contains("cache") && shown.contains("32MiB at each node"), "{shown}");

    (0..KEYS).for_each(|n| store(&mut conns[0], n).unwrap());
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
    // What it had is gone, all else is there; a key of its is stored elsewhere as soon as it is known to be dead.
    let left = there(&mut conns[0]);
    assert!((KEYS / 3..KEYS).contains(&left), "{left} of {KEYS} are left");
    wait_for("all can be stored without it", Duration::from_secs(10), || {
        (0..KEYS).try_for_each(|n| store(&mut conns[1], n))?;
        if there(&mut conns[0]) == KEYS { Ok(()) } else { Err("some are missing".to_owned()) }
    });
    assert_eq!(conns[0].ask(&["PURGE", "TAG", "odd"]), ok());
    // It may be back by now, and holds no leases for a moment: misses, and nothing that was purged.
    for conn in &mut conns[..2] {
        let left = there(conn);
        assert!((1..=KEYS / 2).contains(&left), "{left} of {KEYS} are left");
        assert_eq!(conn.ask(&["GET", "page/1"]), Ok(Word::Nil));
    }
    wait_for("it is back, and what was purged is not", Duration::from_secs(30), || {
        let mut back = Resp::open(up.at(3).resp, "pages", &token)?;
        assert!(there(&mut back) <= KEYS / 2);
        match back.ask(&["SET", "page/1", "new"])? {
            Word::Simple(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
