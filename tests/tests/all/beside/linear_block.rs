//! Pops that wait for an item, through the real program: who is served, and what becomes of items whose client has gone.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use e2e::resp::{Resp, Word};
use e2e::{Shared, Up, wait_for};

static UP: Shared = Shared::beside(|| Up::bare(3));

/// A connection through each node.
fn bank(up: &Up) -> (String, Vec<Resp>) {
    up.apply("bank.toml", "[namespace.bank]\nclass = \"linear\"\n").good();
    wait_for("a node shows it", Duration::from_secs(10), || match up.status(1)?["namespaces"].as_array() {
        Some(all) if all.iter().any(|namespace| namespace["name"] == "bank") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let token = up.token("bank");
    let open = |n: u8| {
        let look = || {
            let mut resp = Resp::open(up.at(n).resp, "bank", &token)?;
            match resp.ask(&["DEL", "q", "q1", "q2", "done"])? {
                Word::Int(_) => Ok(resp),
                other => Err(format!("{other:?}")),
            }
        };
        wait_for("the bank is open", Duration::from_secs(20), look).0
    };
    let all = (1..=3).map(open).collect();
    (token, all)
}

fn bulk(text: &str) -> Word {
    Word::Bulk(text.to_owned())
}

#[test]
fn who_waits_gets_an_item_that_comes_through_any_node_in_order_on_one_node() {
    let up = UP.take();
    let (token, mut at) = bank(&up);
    at[0].ask(&["RPUSH", "q", "there"]).unwrap();
    assert_eq!(at[1].ask(&["BLPOP", "q", "0"]).unwrap(), Word::List(vec![bulk("q"), bulk("there")]), "at once");
    let begun = Instant::now();
    assert_eq!(at[1].ask(&["BRPOP", "q", "0.3"]).unwrap(), Word::Nil);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    for wrong in [["BLPOP", "q", "-1"], ["BLPOP", "q", "soon"]] {
        assert!(matches!(at[1].ask(&wrong).unwrap(), Word::Error(text) if text.contains("timeout")), "{wrong:?}");
    }
    // Five wait through one node, one after the other; items come through another.
    let (tell, told) = mpsc::channel();
    let mut waiting = Vec::new();
    for n in 0..5 {
        let mut resp = Resp::open(up.at(2).resp, "bank", &token).unwrap();
        let tell = tell.clone();
        waiting.push(thread::spawn(move || {
            let got = resp.ask(&["BLPOP", "q1", "q2", "4"]).unwrap();
            tell.send((n, got)).unwrap();
        }));
        let blocked = |up: &Up| up.status(2).unwrap()["figures"]["linear.waiting"].as_u64().unwrap_or(0);
        wait_for("it waits", Duration::from_secs(5), || if blocked(&up) > 0 { Ok(()) } else { Err("no".into()) });
        thread::sleep(Duration::from_millis(50));
    }
    for n in 0..5 {
        let key = if n % 2 == 0 { "q1" } else { "q2" };
        assert_eq!(at[2].ask(&["LPUSH", key, &format!("i{n}")]).unwrap(), Word::Int(1), "the one before is taken");
        let (who, got) = told.recv_timeout(Duration::from_secs(4)).unwrap();
        assert_eq!((who, got), (n, Word::List(vec![bulk(key), bulk(&format!("i{n}"))])), "first come, first served");
    }
    waiting.into_iter().for_each(|one| one.join().unwrap());
    // Between two lists nothing is lost.
    let mut mover = Resp::open(up.at(3).resp, "bank", &token).unwrap();
    let moved = thread::spawn(move || mover.ask(&["BLMOVE", "q", "done", "LEFT", "RIGHT", "4"]).unwrap());
    thread::sleep(Duration::from_millis(200));
    at[0].ask(&["RPUSH", "q", "job"]).unwrap();
    assert_eq!(moved.join().unwrap(), bulk("job"));
    assert_eq!(at[1].ask(&["LRANGE", "done", "0", "-1"]).unwrap(), Word::List(vec![bulk("job")]));
}

#[test]
fn nothing_is_taken_for_a_client_that_has_gone() {
    let up = UP.take();
    let (token, mut at) = bank(&up);
    for round in 0..10 {
        let mut gone: Vec<Resp> = (0..3).map(|_| Resp::open(up.at(2).resp, "bank", &token).unwrap()).collect();
        for one in &mut gone {
            // It waits behind its own, too.
            one.tell(&["BLPOP", "q", "0"]).unwrap();
            one.tell(&["BLPOP", "q", "0"]).unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        drop(gone);
        // Often before the node has noticed.
        let item = format!("kept{round}");
        at[0].ask(&["RPUSH", "q", &item]).unwrap();
        wait_for("the item is there", Duration::from_secs(5), || match at[2].ask(&["BLPOP", "q", "1"])? {
            Word::List(got) if got == [bulk("q"), bulk(&item)] => Ok(()),
            other => Err(format!("round {round}: {other:?}")),
        });
    }
    assert_eq!(at[1].ask(&["EXISTS", "q"]).unwrap(), Word::Int(0));
}
