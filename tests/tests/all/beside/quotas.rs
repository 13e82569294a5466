//! What a namespace may take of its nodes, as clients of the Redis door and of the API see it.

use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::{Up, http, wait_for};

const WITHIN: Duration = Duration::from_secs(10);

#[test]
fn one_namespaces_clients_are_no_more_than_declared_on_each_node_and_others_come_in() {
    let _turn = e2e::beside();
    let up = Up::start(2, &["--no-demo"]);
    let few = "[namespace.few]\nclass = \"linear\"\nconnections_max = 2\n";
    up.apply("few.toml", &format!("{few}[namespace.free]\nclass = \"session\"\n")).good();
    let token = up.token("few");
    let open = |n| Resp::open(up.at(n).resp, "few", &token);
    let mut inside: Vec<Resp> = [1, 1, 2, 2].iter().map(|n| open(*n).unwrap()).collect();
    for n in [1, 2] {
        let said = open(n).err().expect("the third one is let in");
        assert!(said.contains("max number of clients reached: connections_max = 2"), "{said}");
    }
    // Who is in goes on, and says AUTH again without being one more; others are not concerned.
    assert_eq!(inside[0].ask(&["AUTH", "few", &token]), Ok(Word::Simple("OK".into())));
    assert_eq!(inside[0].ask(&["PING"]), Ok(Word::Simple("PONG".into())));
    let free = up.token("free");
    let others: Vec<Resp> = (0..5).map(|_| Resp::open(up.at(1).resp, "free", &free).unwrap()).collect();
    // Who leaves makes room at its node.
    drop(inside.pop());
    inside.push(wait_for("a client that has left has left a place", WITHIN, || open(2)).0);
    assert!(open(1).is_err());
    // More are let in at once when more are declared.
    up.apply("few.toml", &few.replace("= 2", "= 3")).good();
    inside.push(wait_for("a third client is let in", WITHIN, || open(1)).0);
    assert!(up.coppice(&["ns", "show", "few"]).good().contains("connections_max:   3 Redis clients on each node"));
    drop(others);
}

#[test]
fn what_a_namespace_may_hold_is_kept_to_by_all_nodes_also_after_they_were_killed() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    let declaration = "[namespace.bank]\nclass = \"linear\"\nkeys_max = 5\nbytes_max = \"4KiB\"\n\
                       [namespace.carts]\nclass = \"session\"\nkeys_max = 5\n";
    up.apply("quotas.toml", declaration).good();
    fill(&up, "bank");
    fill(&up, "carts");
    let mut bank = up.linear(2, "bank", &up.token("bank"));
    let large = "x".repeat(5000);
    let said = bank.ask(&["SET", "key0", &large]).unwrap();
    assert!(is_refused(&said, "bytes_max"), "{said:?}");
    assert_eq!(bank.ask(&["DEL", "key0"]), Ok(Word::Int(1)));
    let token = format!("Bearer {}", up.token("bank"));
    let put = |key: &str, value: &[u8]| {
        let path = format!("/v1/ns/bank/keys/{key}");
        http::request(up.at(1).api, "PUT", &path, &[("authorization", token.as_str())], value).unwrap()
    };
    let large = put("key0", large.as_bytes());
    assert!(large.status == 507 && large.text().contains("bytes_max of this namespace"), "{}", large.text());
    assert_eq!(put("key0", b"v").status, 204);
    let more = put("one-more", b"v");
    assert!(more.status == 507 && more.header("retry-after").is_none(), "{}", more.text());
    // People see it, and how it came to be.
    wait_for("an event says it", WITHIN, || {
        let events = up.status(1)?["events"].to_string();
        if events.contains("5 of keys_max = 5: 100 %") { Ok(()) } else { Err(events) }
    });
    let shown = || up.coppice(&["ns", "show", "bank"]).good();
    wait_for("it is shown", WITHIN, || {
        let page = shown();
        if page.contains("5 of 5 keys") && page.contains("100 % where it is fullest") { Ok(()) } else { Err(page) }
    });
    // What lies on disks counts as before.
    let up = up.kill_all_and_start();
    let mut bank = up.linear(3, "bank", &up.token("bank"));
    let said = wait_for("it is there again", WITHIN, || match bank.ask(&["SET", "one-more", "v"])? {
        Word::Error(text) if text.starts_with("OOM") => Ok(text),
        other => Err(format!("{other:?}")),
    });
    assert!(said.0.contains("keys_max of this namespace"), "{said:?}");
    // More is declared, and there is room; and so many a second, and there is none.
    up.apply("quotas.toml", &declaration.replace("keys_max = 5", "keys_max = 6\nrate_max = 5")).good();
    wait_for("a sixth key", WITHIN, || match bank.ask(&["SET", "one-more", "v"])? {
        Word::Simple(_) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let answers: Vec<Word> = (0..20).map(|_| bank.ask(&["GET", "key0"]).unwrap()).collect();
    let over = |word: &&Word| matches!(word, Word::Error(text) if text.starts_with("BUSY rate_max of this namespace"));
    assert!(answers.iter().filter(over).count() >= 10, "{answers:?}");
}

/// Five keys at three nodes; then no sixth one at any, but for one that was removed.
fn fill(up: &Up, namespace: &str) {
    let token = up.token(namespace);
    let mut nodes: Vec<Resp> = (1..=3).map(|n| up.linear(n, namespace, &token)).collect();
    for key in 0..5 {
        wait_for("a key fits", WITHIN, || match nodes[key % 3].ask(&["SET", &format!("key{key}"), "v"])? {
            Word::Simple(_) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    // The one through which the last key came has it for sure.
    nodes.rotate_left(1);
    for node in &mut nodes {
        // Bounds come with the declaration, which nodes hear one after the other.
        wait_for("no sixth key fits", WITHIN, || {
            let said = node.ask(&["SET", "one-more", "v"])?;
            if is_refused(&said, "keys_max") { Ok(()) } else { Err(format!("{namespace}: {said:?}")) }
        });
        assert_eq!(node.ask(&["SET", "key1", "another"]), Ok(Word::Simple("OK".into())));
        assert_eq!(node.ask(&["GET", "key1"]), Ok(Word::Bulk("another".into())));
        assert_eq!(node.ask(&["DEL", "key1"]), Ok(Word::Int(1)));
        assert_eq!(node.ask(&["SET", "key1", "v"]), Ok(Word::Simple("OK".into())));
    }
}

fn is_refused(said: &Word, key: &str) -> bool {
    matches!(said, Word::Error(text) if text.starts_with(&format!("OOM {key} of this namespace is reached")))
}
