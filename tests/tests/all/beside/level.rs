//! Programs of two levels side by side: what the older one does not know waits until all have the newer, and then the older one
//! does not come back. `--level 1` stands for the older program.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use e2e::at::Ports;
use e2e::program::coppice;
use e2e::resp::{Resp, Word};
use e2e::{Yard, http, say, tools, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);
const OUTDATED: Option<i32> = Some(78);
/// The newest level.
const LEVEL: u64 = 16;
const OLDER: &[&str] = &["--level", "1"];
const WHY: &str = "this cluster agreed on level 16, this program has 1: start the newer program";

/// Three nodes, of which the first is older.
fn mixed(older: &[&str]) -> Yard {
    let mut yard = Yard::on(Ports::free(4));
    yard.found_with("home", older);
    for node in [2, 3] {
        let token = yard.token("10m");
        yard.join(node, &token).good();
        yard.run(node);
    }
    wait_for("there are three voters", SOON, || {
        let view = yard.whole(1, &[1, 2, 3], 0)?;
        let voters = view["root"]["voters"].as_array().map_or(0, Vec::len);
        if voters == 3 { Ok(()) } else { Err(format!("{voters} voters")) }
    });
    yard.apply(2, "bank.toml", "[namespace.bank]\nclass = \"linear\"\nshards = 2\n").good();
    yard
}

fn levels(view: &Value) -> (u64, Vec<u64>) {
    let nodes = view["nodes"].as_array().unwrap().iter().map(|node| node["level"].as_u64().unwrap());
    (view["root"]["level"].as_u64().unwrap(), nodes.collect())
}

fn agree(yard: &Yard, level: u64, nodes: &[u8]) -> Duration {
    let all = || {
        nodes.iter().try_for_each(|n| match levels(&yard.status(*n)?) {
            (agreed, _) if agreed == level => Ok(()),
            other => Err(format!("n{n} says {other:?}")),
        })
    };
    wait_for(&format!("they agree on level {level}"), SOON, all).1
}

/// Sets a field by what all programs know, takes it by what only newer ones do, and makes a value of a kind that only these know.
fn take(yard: &Yard, node: u8, token: &str) -> Result<(), String> {
    let mut resp = Resp::open(yard.at(node).resp, "bank", token)?;
    match resp.ask(&["HSET", "hash", "field", "value"])? {
        Word::Int(_) => (),
        other => return Err(format!("HSET: {other:?}")),
    }
    match resp.ask(&["HGETDEL", "hash", "FIELDS", "1", "field"])? {
        Word::List(values) if values == [Word::Bulk("value".into())] => (),
        Word::Error(error) => return Err(error),
        other => return Err(format!("HGETDEL: {other:?}")),
    }
    match resp.ask(&["ZADD", "sorted", "1", "member"])? {
        Word::Int(_) => Ok(()),
        other => Err(format!("ZADD: {other:?}")),
    }
}

#[test]
fn what_is_newer_waits_until_all_nodes_have_it_and_then_none_goes_back() {
    let _turn = e2e::beside();
    let mut yard = mixed(OLDER);
    let token = yard.namespace_token("bank");
    let view = yard.status(3).unwrap();
    assert_eq!(levels(&view), (1, vec![1, LEVEL, LEVEL]), "{view}");
    let page = yard.coppice(2, &["status"]).good();
    assert!(
        page.contains(", level 1\n") && page.contains("level 16 waits for n1, ") && !page.contains("waits for n2"),
        "{page}"
    );

    for node in 1..=3 {
        wait_for("the shards are there", SOON, || match take(&yard, node, &token) {
            Err(why) if why.starts_with("ERR hash.take") && why.contains("until all nodes run the newer program") => {
                Ok(())
            }
            other => Err(format!("n{node}: {other:?}")),
        });
        let mut resp = Resp::open(yard.at(node).resp, "bank", &token).unwrap();
        let left = resp.ask(&["HGET", "hash", "field"]).unwrap();
        assert_eq!(left, Word::Bulk("value".into()), "nothing has happened");
    }
    let (api, bearer) = (yard.at(2).api, format!("Bearer {token}"));
    let body = br#"{"function": "hash.take", "args": ["field"]}"#;
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let reply = http::request(api, "POST", "/v1/ns/bank/apply/hash", &headers, body).unwrap();
    assert_eq!(reply.status, 409, "{}", reply.text());
    assert!(reply.text().contains("until all nodes run the newer program"), "{}", reply.text());

    // Who is away may come back as the older program.
    yard.kill(1);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(agree(&yard, 1, &[2, 3]).as_secs(), 0);
    yard.run(1);
    say(&format!("agreed within {:?} of the newer program's start", agree(&yard, LEVEL, &[1, 2, 3])));
    (1..=3).for_each(|node| {
        wait_for("what is newer works", SOON, || take(&yard, node, &token));
    });
    wait_for("all nodes tell it", SOON, || {
        let events = yard.status(2)?["events"].to_string();
        if events.contains("the cluster agrees on level 16: all nodes have it") { Ok(()) } else { Err(events) }
    });
    let page = yard.coppice(2, &["status"]).good();
    assert!(page.contains(", level 16\n") && !page.contains(" waits for "), "{page}");

    // A member knows by its own log.
    yard.kill(3);
    yard.begin(3, OLDER);
    assert_eq!(yard.ended(3), OUTDATED);
    yard.logs(3, &[WHY]);
    yard.run(3);
    wait_for("it is one of three again", SOON, || yard.whole(2, &[1, 2, 3], 0).map(|_| ()));
    wait_for("what is newer works", SOON, || take(&yard, 3, &token));

    // Who comes is refused, and who was let in before is told by whom it meets.
    let invited = yard.token("10m");
    let refused = yard.join_with(4, "n4", &invited, OLDER).wrong();
    assert!(refused.contains(WHY), "{refused}");
    yard.join(4, &invited).good();
    yard.begin(4, OLDER);
    assert_eq!(yard.ended(4), OUTDATED);
    yard.logs(4, &[WHY]);
    yard.run(4);
    wait_for("they are four", SOON, || yard.whole(4, &[1, 2, 3, 4], 0).map(|_| ()));
    wait_for("what is newer works", SOON, || take(&yard, 4, &token));
}

/// A page of the keys from this cursor on: the next one, and the keys.
fn page(yard: &Yard, node: u8, token: &str, cursor: &str) -> (String, Vec<String>) {
    let ask = || {
        let mut resp = Resp::open(yard.at(node).resp, "bank", token)?;
        let page = resp.ask(&["SCAN", cursor, "COUNT", "2"])?;
        let Word::List(parts) = &page else { return Err(format!("{page:?}")) };
        let [Word::Bulk(next), Word::List(keys)] = &parts[..] else { return Err(format!("{page:?}")) };
        let name = |key: &Word| if let Word::Bulk(key) = key { Ok(key.clone()) } else { Err(format!("{key:?}")) };
        Ok((next.clone(), keys.iter().map(name).collect::<Result<Vec<_>, _>>()?))
    };
    wait_for("a page comes", SOON, ask).0
}

/// All keys from this cursor on.
fn walk(yard: &Yard, node: u8, token: &str, mut cursor: String) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for _ in 0..100 {
        let (next, keys) = page(yard, node, token, &cursor);
        shown.extend(keys);
        cursor = next;
        if cursor == "0" {
            return shown;
        }
    }
    panic!("n{node}: a walk comes to no end")
}

#[test]
fn walks_through_keys_go_on_while_the_last_node_is_upgraded() {
    let _turn = e2e::beside();
    let mut yard = mixed(&["--level", "14"]);
    let token = yard.namespace_token("bank");
    let keys: BTreeSet<String> = (0..40).map(|n| format!("key{n:02}")).collect();
    for key in &keys {
        let set = || match Resp::open(yard.at(2).resp, "bank", &token)?.ask(&["SET", key, "v"])? {
            Word::Simple(_) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        wait_for("a key is set", SOON, set);
    }
    assert_eq!(levels(&yard.status(2).unwrap()).0, 14);
    (1..=3).for_each(|node| assert_eq!(walk(&yard, node, &token, "0".into()), keys, "n{node}"));
    // Two walks begin, of which one goes on at the node that knows its cursor, and one at another.
    let (cursor, first) = page(&yard, 2, &token, "0");
    assert!(cursor != "0" && first.len() == 2, "{cursor} {first:?}");

    yard.kill(1);
    yard.run(1);
    agree(&yard, LEVEL, &[1, 2, 3]);
    let mut shown = walk(&yard, 2, &token, cursor.clone());
    shown.extend(first);
    assert_eq!(shown, keys, "it goes on");
    assert_eq!(walk(&yard, 3, &token, cursor), keys, "it begins anew where nobody knows the cursor");
    (1..=3).for_each(|node| assert_eq!(walk(&yard, node, &token, "0".into()), keys, "n{node}"));
    // From now on any node goes on.
    let (cursor, mut shown) = page(&yard, 1, &token, "0");
    shown.extend(walk(&yard, 3, &token, cursor));
    assert!(shown.len() <= keys.len() + 2 && shown.into_iter().collect::<BTreeSet<_>>() == keys);
}

#[test]
fn a_program_takes_part_with_no_level_that_it_has_not() {
    for level in ["0", "17", "newest"] {
        let mut command = Command::new(coppice());
        let said = tools::run(command.args(["run", "--level", level]), SOON);
        assert_eq!(said.code, Some(2), "the command line is wrong");
        assert!(said.err.contains("this program has level 16; it takes part with 1 to 16"), "{level}: {}", said.err);
    }
}
