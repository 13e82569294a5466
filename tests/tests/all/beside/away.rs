//! A node that is away for longer than the others keep what it misses, with real folders: it is told so when it is back, sets its
//! folder's log aside and enters anew. What was acknowledged is there, also what it had alone, and what was deleted stays so. A minute
//! stands for a week.

use std::time::Duration;

use e2e::at::Ports;
use e2e::http::{self, Reply};
use e2e::{Yard, wait_for};

const FILE: &str = "[namespace.mail]\nclass = \"object\"\n";
const AWAY_FOR: [&str; 2] = ["--away-for", "1m"];
const SOON: Duration = Duration::from_secs(60);
/// A minute in 168 parts, each agreed on, beside a compiler.
const GONE_WITHIN: Duration = Duration::from_secs(240);
/// Exit status of a node that is to enter anew.
const AGAIN: Option<i32> = Some(75);
const OBJECTS: u32 = 24;
/// Objects that the last node has alone come after the others.
const ALONE: std::ops::Range<u32> = 2 * OBJECTS..2 * OBJECTS + 6;
const LAST: u8 = 3;

struct Mail<'a> {
    yard: &'a Yard,
    bearer: String,
}

impl Mail<'_> {
    /// What a node answers as soon as it does not ask to come back later.
    fn ask(&self, node: u8, method: &str, id: u32, body: &str) -> Reply {
        let path = format!("/v1/ns/mail/objects/ann%40example.org/{id:032x}");
        let headers = [("Authorization", self.bearer.as_str())];
        let look = || match http::request(self.yard.at(node).api, method, &path, &headers, body.as_bytes()) {
            Ok(reply) if matches!(reply.status, 503 | 504) => Err(reply.text()),
            Ok(reply) => Ok(reply),
            Err(e) => Err(e.to_string()),
        };
        wait_for(&format!("n{node} answers {method} {id}"), SOON, look).0
    }

    fn put(&self, node: u8, id: u32) {
        let put = self.ask(node, "PUT", id, &format!("body {id}"));
        assert_eq!((put.status, put.header("coppice-copies")), (204, Some("2")), "{id} at n{node}: {}", put.text());
    }
}

/// The texts of a node's events of a kind about the last node.
fn told(yard: &Yard, node: u8, kind: &str) -> Result<Vec<String>, String> {
    let view = yard.status(node)?;
    let events = view["events"].as_array().cloned().unwrap_or_default();
    let about = events.iter().filter(|event| event["kind"] == kind && event["who"] == format!("n{LAST}"));
    Ok(about.filter_map(|event| event["text"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_node_back_after_longer_than_others_keep_what_it_misses_enters_anew_and_nothing_is_lost_or_comes_back() {
    let _turn = e2e::beside();
    let mut yard = Yard::on(Ports::free(LAST));
    yard.found_with("home", &AWAY_FOR);
    for node in 2..=LAST {
        let token = yard.token("10m");
        yard.join(node, &token).good();
        yard.run_with(node, &AWAY_FOR);
    }
    wait_for("all nodes see each other", SOON, || (1..=LAST).try_for_each(|n| yard.whole(n, &[1, 2, 3], 0).map(drop)));
    wait_for("all nodes agree on the class", SOON, || {
        let said = yard.apply(1, "mail.toml", FILE);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    let bearer = format!("Bearer {}", yard.namespace_token("mail"));
    let mail = Mail { yard: &yard, bearer: bearer.clone() };
    // Of three nodes each has some of them.
    (0..OBJECTS).for_each(|id| mail.put(1 + (id % 3) as u8, id));
    // For a moment it lives alone, and takes what no other node has.
    (1..LAST).for_each(|node| yard.kill(node));
    let mail = Mail { yard: &yard, bearer: bearer.clone() };
    for id in ALONE {
        let put = mail.ask(LAST, "PUT", id, &format!("body {id}"));
        assert_eq!((put.status, put.header("coppice-copies")), (204, Some("1")), "{id}: {}", put.text());
    }
    yard.kill(LAST);
    (1..LAST).for_each(|node| yard.begin(node, &AWAY_FOR));
    wait_for("the others are back", SOON, || {
        (1..LAST).try_for_each(|node| match http::get(yard.at(node).api, "/readyz") {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(reply.text()),
            Err(e) => Err(e.to_string()),
        })
    });
    let mail = Mail { yard: &yard, bearer: bearer.clone() };
    (OBJECTS..2 * OBJECTS).for_each(|id| mail.put(1 + (id % 2) as u8, id));
    for id in (0..OBJECTS).step_by(2) {
        assert_eq!(mail.ask(1 + (id / 2 % 2) as u8, "DELETE", id, "").status, 204, "{id}");
    }
    let is_there = |id: u32| id >= OBJECTS || id % 2 == 1;
    wait_for("it is gone", GONE_WITHIN, || {
        let texts = told(&yard, 1, "away")?;
        let is_gone = texts.iter().any(|text| text.contains("enters anew when it is back"));
        if is_gone { Ok(()) } else { Err(texts.join("; ")) }
    });
    wait_for("nothing is kept for it", SOON, || match yard.status(1)?["figures"]["object.open"].as_u64() {
        Some(0) => Ok(()),
        other => Err(format!("{other:?} writes are open")),
    });

    yard.begin(LAST, &AWAY_FOR);
    assert_eq!(yard.ended(LAST), AGAIN, "it is told, and gives its disk up");
    yard.run_with(LAST, &AWAY_FOR);
    assert!(yard.node_dir(LAST).join("log.distrusted").is_dir(), "what it had is set aside");
    wait_for("it is one of them", SOON, || (1..=LAST).try_for_each(|n| yard.whole(n, &[1, 2, 3], 0).map(drop)));
    let mail = Mail { yard: &yard, bearer };
    for id in (0..2 * OBJECTS).chain(ALONE) {
        for node in 1..=LAST {
            let got = mail.ask(node, "GET", id, "");
            match is_there(id) {
                true => assert_eq!((got.status, got.text()), (200, format!("body {id}")), "{id} at n{node}"),
                false => assert!(matches!(got.status, 404 | 410), "{id} at n{node}: {} {}", got.status, got.text()),
            }
        }
    }
    // It takes part as any other, under its name.
    mail.put(LAST, 1_000);
    assert!(!told(&yard, 1, "anew").unwrap().is_empty());
}
