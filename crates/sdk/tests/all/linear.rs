//! What class `linear` is asked over HTTP, and what programs see of the answers.

use std::time::Duration;

use crate::scripted::Does::{Answers, Dies};
use crate::scripted::{Does, PASSED_ON, Scripted};
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue};
use sdk::{Function, Linear, LinearError, Node, Transaction, Watched};

fn bank(node: &Scripted) -> Linear<i64> {
    Linear::new(Node::at([node.at]).unwrap(), "bank", "secret")
}

#[tokio::test]
async fn a_swap_gives_what_was_there() {
    let node = Scripted::new(&[
        Answers(200, "etag: \"8\"\r\n", "41"),
        Answers(204, "etag: \"9\"\r\n", ""),
        Answers(200, "etag: \"10\"\r\n", "a word"),
    ]);
    assert_eq!(bank(&node).swap("a b", &42).await.unwrap(), Some(41));
    assert_eq!(bank(&node).swap("a b", &43).await.unwrap(), None);
    // It is stored all the same.
    assert!(matches!(bank(&node).swap("a b", &44).await, Err(LinearError::Unknown(_))));
    assert_eq!(
        node.asked()[..2],
        ["PUT /v1/ns/bank/keys/a%20b?return=old 42", "PUT /v1/ns/bank/keys/a%20b?return=old 43"]
    );
    assert_eq!(node.ids().len(), 3, "each has an id");
}

#[tokio::test]
async fn reads_that_may_be_stale_say_so_and_how_old_they_are() {
    let node = Scripted::new(&[
        Answers(200, "etag: \"8\"\r\ncoppice-age-ms: 30\r\n", "41"),
        Answers(200, "coppice-age-ms: 30\r\n", r#"{"keys":["a"],"after":null,"version":"3.4"}"#),
        Answers(200, "", r#"{"keys":["b","a"],"after":"a","version":7}"#),
    ]);
    let (fresh, stale) = (bank(&node), bank(&node).stale(Duration::from_millis(500)));
    let seen = stale.get("a").await.unwrap().unwrap();
    assert_eq!((seen.value, seen.version, seen.age), (41, 8, Some(Duration::from_millis(30))));
    assert_eq!(stale.scan("", None, 10).await.unwrap().version, "3.4");
    let back = fresh.scan_back("", Some("c"), 2).await.unwrap();
    assert_eq!((back.keys, back.after.as_deref(), &*back.version), (vec!["b".into(), "a".into()], Some("a"), "7"));
    assert_eq!(
        node.asked(),
        [
            "GET /v1/ns/bank/keys/a?stale=500ms",
            "GET /v1/ns/bank/keys?prefix=&after=&limit=10&stale=500ms",
            "GET /v1/ns/bank/keys?prefix=&after=c&limit=2&reverse=true"
        ]
    );
}

#[tokio::test]
async fn what_is_done_for_a_request_matters_as_much_and_takes_no_longer() {
    let node = Scripted::new(&[Answers(200, "etag: \"8\"\r\n", "41"), Answers(200, "", r#"{"results":[]}"#)]);
    let headers = [(PASSED_ON[0], "7"), (PASSED_ON[1], "60000")];
    let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let during = bank(&node).during(&HeaderMap::from_iter(headers));
    during.get("a").await.unwrap();
    // Also as values of another type.
    during.of::<String>().transact(&Transaction::new()).await.unwrap();
    bank(&node).transact(&Transaction::new()).await.unwrap();
    let [get, transact, without] = &node.asked()[..] else { panic!("{:?}", node.asked()) };
    for asked in [get, transact] {
        assert!(asked.contains("coppice-priority: 7") && asked.contains("coppice-deadline-ms: "), "{asked}");
    }
    assert!(!without.contains("coppice-"), "{without}");
}

#[tokio::test]
async fn several_values_are_read_at_once_and_again_where_a_node_dies() {
    let values = r#"{"values":[{"value":"1","version":5,"ends_ms":70},null]}"#;
    let (dies, node) = (Scripted::new(&[Dies]), Scripted::new(&[Answers(200, "", values)]));
    let bank: Linear<i64> = Linear::new(Node::at([dies.at, node.at]).unwrap(), "bank", "secret");
    let seen = bank.mget(&["a", "b"]).await.unwrap();
    let first = seen[0].as_ref().unwrap();
    assert_eq!((first.value, first.version, first.ends_in), (1, 5, Some(Duration::from_millis(70))));
    assert_eq!((seen.len(), &seen[1]), (2, &None));
    assert_eq!(node.asked(), [r#"POST /v1/ns/bank/mget {"keys":["a","b"]}"#]);
    let wrong = Scripted::new(&[Answers(200, "", r#"{"values":[{"error":"WRONGTYPE ..."}]}"#)]);
    let Err(LinearError::Refused(why)) = self::bank(&wrong).mget(&["a"]).await else { panic!() };
    assert!(why.why.contains("WRONGTYPE"), "{why:?}");
}

#[tokio::test]
async fn a_transaction_is_one_request_and_unmet_conditions_are_conflicts() {
    let node = Scripted::new(&[
        Answers(200, "", r#"{"results":[-5,{"error":"WRONGTYPE ..."},[1,null,9],1]}"#),
        Answers(412, "", r#"{"error":"a condition does not hold","type":"unmet"}"#),
    ]);
    let pay = Transaction::new()
        .only_if("{t}a", Some(7))
        .only_if("{t}log", None)
        .apply("{t}a", Function::new("number.add").arg(-5))
        .apply("{t}l", Function::new("list.push-left").arg("x"))
        .put("{t}b", &5)
        .remove("{t}c");
    let results = bank(&node).transact(&pay).await.unwrap();
    assert_eq!(results[0], Ok((-5).into()));
    assert_eq!((results[1].as_ref().unwrap_err().as_str(), results[3].as_ref().unwrap()), ("WRONGTYPE ...", &1.into()));
    assert!(matches!(bank(&node).transact(&pay).await, Err(LinearError::Conflict(None))));
    let body = concat!(
        r#"{"do":[{"args":["-5"],"function":"number.add","key":"{t}a"},{"args":["x"],"function":"list.push-left","key":"{t}l"},"#,
        r#"{"args":["5","always","none"],"function":"put","key":"{t}b"},{"args":[],"function":"remove","key":"{t}c"}],"#,
        r#""if":[{"key":"{t}a","version":7},{"key":"{t}log","version":0}]}"#
    );
    assert_eq!(node.asked()[0], format!("POST /v1/ns/bank/txn {body}"));
    assert_eq!(node.ids().len(), 2, "each has an id");
}

fn stream(events: &'static str) -> Does {
    // Its length ends it, as the death of a node does.
    Answers(200, "content-type: text/event-stream\r\n", events)
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_and_says_what_it_missed() {
    let node = Scripted::new(&[
        stream(
            "event: put\nid: 6\ndata: {\"key\":\"a\",\"version\":6,\"type\":\"string\",\"value\":\"1\"}\n\n\
             event: put\nid: 7\ndata: {\"key\":\"l\",\"version\":7,\"type\":\"list\"}\n\n",
        ),
        stream(
            "event: remove\nid: 8\ndata: {\"key\":\"a\",\"version\":8,\"ended\":true}\n\n\
             event: error\ndata: {\"error\":\"compacted: ...\",\"type\":\"compacted\",\"version\":40}\n\n",
        ),
        stream("event: version\nid: 41\ndata: {\"version\":41}\n\n"),
        // No node knows the place any more.
        Answers(410, "", r#"{"error":"compacted: ...","type":"compacted"}"#),
        stream("event: version\nid: 5.6\ndata: {\"version\":\"5.6\"}\n\n"),
        stream(
            "event: clear\nid: 5.7\ndata: {\"version\":7}\n\nevent: error\ndata: {\"error\":\"removed\",\"type\":\"ended\"}\n\n",
        ),
    ]);
    let mut watch = bank(&node).watch("", Some("5"));
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Watched::Over(_))) {
        seen.push(watch.next().await);
    }
    assert_eq!(
        seen,
        [
            Watched::Put { key: "a".into(), version: 6, value: Some(1) },
            Watched::Put { key: "l".into(), version: 7, value: None },
            Watched::Removed { key: "a".into(), version: 8, ended: true },
            Watched::Missed,
            Watched::UpTo("41".into()),
            Watched::Missed,
            Watched::UpTo("5.6".into()),
            Watched::Cleared,
            Watched::Over("removed".into()),
        ]
    );
    let places: Vec<_> = node.asked().iter().map(|asked| asked.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(places, ["5", "7", "40", "41", "/v1/ns/bank/watch?prefix=", "5.6"]);
}
