//! Class `object` through the real program: put at one node, read and deleted at another, while nodes are killed.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::sse::Sse;
use e2e::{Up, wait_for};

const FILE: &str = "[namespace.mail]\nclass = \"object\"\n";
const SOON: Duration = Duration::from_secs(30);

struct Mail<'a> {
    up: &'a Up,
    bearer: String,
}

impl Mail<'_> {
    fn ask(&self, node: u8, method: &str, id: u32, body: &str) -> Result<Reply, String> {
        let path = format!("/v1/ns/mail/objects/ann%40example.org/{id:032x}");
        self.at(node, method, &path, body)
    }

    fn at(&self, node: u8, method: &str, path: &str, body: &str) -> Result<Reply, String> {
        let headers = [("Authorization", self.bearer.as_str())];
        http::request(self.up.at(node).api, method, path, &headers, body.as_bytes()).map_err(|e| e.to_string())
    }

    /// What a node answers as soon as it does not ask to come back later.
    fn answer(&self, node: u8, method: &str, id: u32, body: &str) -> Reply {
        let what = format!("n{node} answers {method} {id}");
        let (reply, _) = wait_for(&what, SOON, || match self.ask(node, method, id, body)? {
            reply if matches!(reply.status, 503 | 504) => Err(reply.text()),
            reply => Ok(reply),
        });
        reply
    }

    fn is(&self, node: u8, id: u32, status: u16, body: &str) {
        let reply = self.answer(node, "GET", id, "");
        assert_eq!(
            (reply.status, status != 200 || reply.text() == body),
            (status, true),
            "{id} at n{node}: {}",
            reply.text()
        );
    }
}

/// What somebody who watches was told: which objects are there, and how far that is.
#[derive(Default)]
struct Follower {
    told: BTreeMap<u32, bool>,
    cursor: String,
}

impl Follower {
    fn hear(&mut self, from: &mut Sse, is_enough: impl Fn(&BTreeMap<u32, bool>) -> bool) {
        let id = |text: &str| u32::from_str_radix(&text[24..], 16).unwrap();
        loop {
            let event = from.next().unwrap();
            match &*event.name {
                "cursor" => {
                    self.cursor = event.id.clone().unwrap();
                    if is_enough(&self.told) {
                        return;
                    }
                }
                // A deletion is final, and may be told before what it deletes.
                name => {
                    let is_there = self.told.entry(id(event.data["id"].as_str().unwrap())).or_insert(true);
                    *is_there &= name == "put";
                    assert!(matches!(name, "put" | "remove"), "{event:?}");
                }
            }
        }
    }
}

#[test]
fn an_acknowledged_object_outlives_kills_and_a_deleted_one_does_not_come_back() {
    let _turn = e2e::beside();
    let mut up = Up::start(3, &["--no-demo"]);
    wait_for("all nodes agree on the class", SOON, || {
        let said = up.apply("mail.toml", FILE);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    let bearer = format!("Bearer {}", up.token("mail"));
    let mail = Mail { up: &up, bearer: bearer.clone() };
    assert!(up.coppice(&["ns", "show", "mail"]).good().contains("counted as thin"));

    let put = mail.answer(1, "PUT", 1, "hello");
    assert_eq!((put.status, put.header("coppice-copies")), (204, Some("2")), "{}", put.text());
    for node in 1..=3 {
        mail.is(node, 1, 200, "hello");
        mail.is(node, 2, 404, "");
    }
    assert_eq!(mail.answer(2, "PUT", 1, "hello").header("etag"), put.header("etag"), "the same again");
    assert_eq!(mail.answer(3, "PUT", 1, "other").status, 409);
    // One in pieces.
    let large: String = (0..300_000).map(|n| format!("{n:9} ")).collect();
    assert_eq!(mail.answer(3, "PUT", 3, &large).status, 204);
    for node in 1..=3 {
        mail.is(node, 3, 200, &large);
    }
    assert_eq!(mail.at(1, "PUT", "/v1/ns/mail/keys/a", "x").unwrap().status, 400);
    let token = up.token("mail");
    let watch = |node: u8, path: &str, after: Option<&str>| {
        let path = format!("/v1/ns/mail/watch?prefix=ann{path}");
        wait_for("changes are told", SOON, || Sse::open(up.at(node).api, &path, &token, after)).0
    };
    let mut follower = Follower::default();
    let mut all = watch(2, "&after=", None);
    follower.hear(&mut all, |told| told.len() == 2);
    assert_eq!(follower.told, [(1, true), (3, true)].into());
    assert_eq!(mail.answer(2, "DELETE", 1, "").status, 204);
    follower.hear(&mut all, |told| !told[&1]);
    for node in 1..=3 {
        mail.is(node, 1, 410, "");
    }

    // Each node is killed once, while others put and delete.
    let mut told: BTreeMap<u32, bool> = BTreeMap::new();
    let mut next = 10;
    for victim in 1..=3 {
        let mail = Mail { up: &up, bearer: bearer.clone() };
        let others: Vec<u8> = (1..=3).filter(|node| *node != victim).collect();
        let act = |from: u32, told: &mut BTreeMap<u32, bool>| {
            for id in from..from + 12 {
                let node = others[id as usize % 2];
                assert_eq!(mail.answer(node, "PUT", id, &format!("body {id}")).status, 204);
                told.insert(id, true);
                if id % 4 == 0 {
                    assert_eq!(mail.answer(node, "DELETE", id - 1, "").status, 204);
                    told.insert(id - 1, false);
                }
            }
        };
        act(next, &mut told);
        Proc::of(up.node_pid(victim)).unwrap().signal(Signal::KILL);
        act(next + 12, &mut told);
        next += 24;
        up.event("restarted", SOON);
        up.settle(SOON, 0);
    }
    let up = up.kill_all_and_start();
    up.settle(SOON, 0);
    let mail = Mail { up: &up, bearer };
    for node in 1..=3 {
        for (id, is_there) in &told {
            mail.is(node, *id, if *is_there { 200 } else { 410 }, &format!("body {id}"));
        }
    }
    for node in 1..=3 {
        mail.is(node, 3, 200, &large);
    }
    assert_eq!(mail.answer(1, "DELETE", 3, "").status, 204);
    let (page, _) = wait_for("all nodes say what they have", SOON, || {
        let page = mail.at(2, "GET", "/v1/ns/mail/objects/ann%40example.org", "")?.json()?;
        if page["complete"] == true { Ok(page) } else { Err(page.to_string()) }
    });
    let ids: Vec<u32> = page["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| u32::from_str_radix(&one["id"].as_str().unwrap()[24..], 16).unwrap())
        .collect();
    // Who saw the beginning knows all that came, although each node has another life.
    let token = up.token("mail");
    let after = Some(follower.cursor.as_str());
    let mut rest = Sse::open(up.at(3).api, "/v1/ns/mail/watch?prefix=ann", &token, after).unwrap();
    told.extend([(1, false), (3, false)]);
    follower.hear(&mut rest, |seen| *seen == told);
    let expected: Vec<u32> = told.iter().filter(|(_, is_there)| **is_there).map(|(id, _)| *id).collect();
    assert_eq!(ids, expected);
}
