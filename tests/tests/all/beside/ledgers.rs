//! Ledgers through the real program: numbers are given by all nodes at once, while the one that leads is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::resp::Word;
use e2e::{Up, http, wait_for};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

struct Boxes<'a> {
    up: &'a Up,
    bearer: String,
}

impl Boxes<'_> {
    /// Asks until a node does not say that it was too early; all that is asked here may be repeated.
    fn apply(&self, node: u8, function: &str, args: &[&str]) -> Value {
        let body = json!({"function": function, "args": args}).to_string();
        let headers = [("Authorization", self.bearer.as_str())];
        let what = format!("n{node} applies {function}");
        let (reply, _) = wait_for(&what, SOON, || {
            let path = "/v1/ns/boxes/apply/ann";
            let reply = http::request(self.up.at(node).api, "POST", path, &headers, body.as_bytes());
            match reply.map_err(|e| e.to_string())? {
                reply if reply.status == 200 => Ok(reply),
                reply => Err(format!("{}: {}", reply.status, reply.text())),
            }
        });
        reply.json().unwrap()["result"].take()
    }
}

fn id(n: u32) -> String {
    format!("{n:032x}")
}

#[test]
fn numbers_are_given_once_and_in_order_whoever_dies() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    up.apply("boxes.toml", "[namespace.boxes]\nclass = \"linear\"\n").good();
    let token = up.token("boxes");
    let boxes = Boxes { up: &up, bearer: format!("Bearer {token}") };
    let made = boxes.apply(1, "ledger.folder.create", &["INBOX", "1000"]);
    assert_eq!((&made[0], &made[1]), (&json!(1), &json!(1000)));
    boxes.apply(2, "ledger.folder.create", &["Trash", "1000"]);

    let mut given: BTreeMap<u64, u32> = BTreeMap::new();
    let mut most = 0;
    for round in 0..24_u32 {
        if round == 8 {
            Proc::of(up.node_pid(1)).unwrap().signal(Signal::KILL);
        }
        let node = if round < 8 { 1 + round % 3 } else { 2 + round % 2 };
        let objects: Vec<u32> = (round * 4..round * 4 + 6).collect();
        let args: Vec<String> =
            objects.iter().flat_map(|n| [id(*n), "1".into(), "10".into(), round.to_string(), "0".into()]).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = boxes.apply(node as u8, "ledger.add", &args);
        for (object, said) in objects.iter().zip(said.as_array().unwrap()) {
            let number = said[2].as_u64().unwrap();
            assert!(given.insert(number, *object).is_none_or(|known| known == *object), "{number} is {object}'s");
        }
        let next = boxes.apply(node as u8, "ledger.numbers", &["1"])[1].as_u64().unwrap();
        assert!(next > most && given.last_key_value().unwrap().0 < &next, "numbers rise");
        most = next;
    }
    assert_eq!(given.len(), 24 * 4 + 2, "each object has one number");
    let changes = boxes.apply(2, "ledger.numbers", &["1"])[0].as_u64().unwrap();
    boxes.apply(3, "ledger.mark", &["1", "any", "add", "8", "1:10"]);
    boxes.apply(2, "ledger.move", &["1", "2", "11:20"]);
    let removed = boxes.apply(3, "ledger.remove", &["1", "8", "1:4294967295"]);
    assert_eq!((&removed[1], removed[2].as_array().unwrap().len()), (&json!("1:10"), 10));
    assert_eq!(boxes.apply(2, "ledger.add", &[&id(0), "1", "1", "1", "0"]), json!([["gone"]]));
    let seen = boxes.apply(3, "ledger.changes", &["1", &changes.to_string(), "0", "9"]);
    assert_eq!((&seen[1], &seen[2], &seen[3]), (&json!([]), &json!("1:20"), &json!(0)));

    // The Redis door knows what it is, and no command of Redis takes it.
    let mut resp = up.linear(2, "boxes", &token);
    assert_eq!(resp.ask(&["TYPE", "ann"]).unwrap(), Word::Simple("ledger".into()));
    for command in [&["GET", "ann"][..], &["LPUSH", "ann", "x"], &["ZADD", "ann", "1", "x"], &["INCR", "ann"]] {
        let Word::Error(why) = resp.ask(command).unwrap() else { panic!("{command:?}") };
        assert!(why.starts_with("WRONGTYPE"), "{why}");
    }

    // All nodes at once: what is on disk is what was said.
    let info = boxes.apply(2, "ledger.info", &[]);
    let up = up.kill_all_and_start();
    up.settle(SOON, 0);
    let boxes = Boxes { up: &up, bearer: format!("Bearer {token}") };
    assert_eq!(boxes.apply(1, "ledger.info", &[]), info);
    let listed = boxes.apply(3, "ledger.list", &["1", "0", "1000"]);
    let listed = listed[1]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item[0].as_u64().unwrap(), item[1].as_str().unwrap().to_owned()));
    assert!(listed.eq(given.iter().skip(20).map(|(number, object)| (*number, id(*object)))));
}
