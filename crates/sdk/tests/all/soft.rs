//! Class `soft` by the SDK: what is asked, what becomes of the answers, and a copy in memory that goes on at another node.

use std::net::SocketAddr;
use std::time::Duration;

use sdk::{Happened, Node, Soft, SoftChange, SoftChanged, SoftError, SoftWhy};

use crate::scripted::Does::{Answers, Dies, Hangs};
use crate::scripted::Scripted;

const DONE: crate::scripted::Does = Answers(204, "", "");

fn floor(at: impl IntoIterator<Item = SocketAddr>) -> Soft {
    Soft::new(Node::at(at).unwrap(), "floor", "token")
}

#[tokio::test]
async fn each_operation_is_one_question() {
    let node = Scripted::new(&[
        DONE,
        Answers(200, "", "on"),
        Answers(404, "", "{}"),
        Answers(204, "", ""),
        Answers(404, "", "{}"),
        Answers(200, "", r#"{"result":7}"#),
        Answers(200, "", r#"{"result":1}"#),
        Answers(200, "", r#"{"result":"v"}"#),
        Answers(200, "", r#"{"result":null}"#),
        Answers(200, "", r#"{"result":["f","1","g",{"base64":"/w=="}]}"#),
        Answers(200, "", r#"{"result":0}"#),
        Answers(200, "", r#"{"result":1}"#),
        Answers(200, "", r#"{"result":["ann","bob"]}"#),
        Answers(200, "", r#"{"result":3}"#),
        Answers(200, "", r#"{"result":null}"#),
        Answers(200, "", r#"{"result":["a"]}"#),
    ]);
    let floor = floor([node.at]);
    floor.set("a/b", "on").await.unwrap();
    assert_eq!(floor.get("a/b").await.unwrap().as_deref(), Some(&b"on"[..]));
    assert_eq!(floor.get("x").await, Ok(None));
    assert_eq!((floor.remove("x").await, floor.remove("x").await), (Ok(true), Ok(false)));
    assert_eq!(floor.add("n", -3).await, Ok(7));
    assert_eq!(floor.set_field("h", "f", "1").await, Ok(true));
    assert_eq!(floor.field("h", "f").await.unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(floor.field("h", "g").await, Ok(None));
    let fields = floor.fields("h").await.unwrap();
    assert_eq!(fields, [("f".into(), "1".into()), ("g".into(), vec![255].into())]);
    assert_eq!(floor.insert("s", "ann").await, Ok(false));
    assert_eq!(floor.contains("s", "ann").await, Ok(true));
    assert_eq!(floor.members("s").await.unwrap(), ["ann", "bob"]);
    assert_eq!(floor.push_left("l", vec![255]).await, Ok(3));
    floor.trim("l", 0, 9).await.unwrap();
    assert_eq!(floor.range("l", 0, -1).await.unwrap(), ["a"]);
    let apply = |key: &str, function: &str, args: &str| {
        format!(r#"POST /v1/ns/floor/apply/{key} {{"args":{args},"function":"{function}"}}"#)
    };
    let asked = node.asked();
    assert_eq!(
        asked[..3],
        ["PUT /v1/ns/floor/keys/a%2Fb on", "GET /v1/ns/floor/keys/a%2Fb", "GET /v1/ns/floor/keys/x"]
    );
    let expected = [
        apply("n", "number.add", r#"["-3"]"#),
        apply("h", "hash.set", r#"["f","1"]"#),
        apply("h", "hash.get", r#"["f"]"#),
        apply("h", "hash.get", r#"["g"]"#),
        apply("h", "hash.all", "[]"),
        apply("s", "set.add", r#"["ann"]"#),
        apply("s", "set.has", r#"["ann"]"#),
        apply("s", "set.members", "[]"),
        apply("l", "list.push-left", r#"[{"base64":"/w=="}]"#),
        apply("l", "list.trim", r#"["0","9"]"#),
        apply("l", "list.range", r#"["0","-1"]"#),
    ];
    assert_eq!(asked[5..], expected);
}

#[tokio::test]
async fn a_read_goes_on_at_another_node_and_a_write_is_not_done_twice() {
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[Answers(200, "", r#"{"result":["ann"]}"#)]));
    assert_eq!(floor([dies.at, other.at]).members("s").await.unwrap(), ["ann"]);
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[Answers(200, "", r#"{"result":1}"#)]));
    let error = floor([dies.at, other.at]).add("n", 1).await.unwrap_err();
    assert_eq!((error.happened(), other.asked().len()), (Happened::Maybe, 0));
    let node =
        Scripted::new(&[Answers(409, "", r#"{"error":"of another kind"}"#), Answers(507, "", r#"{"error":"full"}"#)]);
    let floor = floor([node.at]);
    assert_eq!(floor.add("s", 1).await, Err(SoftError::Kind("of another kind".into())));
    assert!(matches!(floor.set("s", "v").await, Err(SoftError::Refused(refused)) if refused.retry_after.is_none()));
}

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn cursor(id: &str, more: &str) -> String {
    format!("event: cursor\nid: {id}\ndata: {{\"cursor\":\"{id}\"{more}}}\n\n")
}

fn stream(events: &[String]) -> crate::scripted::Does {
    Answers(200, "content-type: text/event-stream\r\n", Box::leak(events.concat().into_boxed_str()))
}

/// Waits until it is so.
async fn until(what: impl Fn() -> bool) {
    let waits = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits).await.expect("it never is so");
}

#[tokio::test]
async fn a_replica_is_there_when_all_has_come_and_goes_on_from_its_cursor() {
    let first = stream(&[
        event("put", r#"{"key":"flag","type":"string","value":"on"}"#),
        event("put", r#"{"key":"visits","type":"string","value":"7"}"#),
        event("put", r#"{"key":"cart:7","type":"hash","element":"honey","value":"2"}"#),
        cursor("A", ",\"more\":true"),
        event("put", r#"{"key":"online","type":"set","element":"ann"}"#),
        event("put", r#"{"key":"recent","type":"list","element":{"base64":"gAAB"},"value":"b"}"#),
        event("put", r#"{"key":"recent","type":"list","element":{"base64":"f/8="},"value":"a"}"#),
        event("put", r#"{"key":"seen","type":"zset","element":"ann","value":"1.5"}"#),
        event("put", r#"{"key":"new","type":"nosuch","element":"x","value":"1"}"#),
        cursor("B", ""),
    ]);
    let second = stream(&[
        event("remove", r#"{"key":"flag","type":"string"}"#),
        event("put", r#"{"key":"visits","type":"string","value":"8"}"#),
        event("put", r#"{"key":"online","type":"set","element":"bob"}"#),
        cursor("C", ""),
    ]);
    // It cannot tell what it has forgotten; and is then asked for what comes next, which never does.
    let third = stream(&[
        event("reset", "{}"),
        event("put", r#"{"key":"all","type":"string","value":"anew"}"#),
        cursor("D", ",\"more\":true"),
    ]);
    let fourth = stream(&[event("put", r#"{"key":"rest","type":"string","value":"x"}"#), cursor("E", "")]);
    let node = Scripted::new(&[first, second, Hangs]);
    let replica = floor([node.at]).replica().await;
    assert_eq!(node.asked()[0], "GET /v1/ns/floor/watch?prefix=&after=");
    assert_eq!(replica.get("flag").as_deref().or(Some(b"on")), Some(&b"on"[..]), "it is there, or gone again");
    until(|| replica.number("visits") == Some(8)).await;
    assert_eq!(node.asked()[1], "GET /v1/ns/floor/watch?prefix=&after= last-event-id: B");
    assert_eq!(replica.get("flag"), None);
    assert_eq!(replica.field("cart:7", "honey").as_deref(), Some(&b"2"[..]));
    assert_eq!((replica.fields("cart:7").len(), replica.members("online")), (1, vec!["ann".into(), "bob".into()]));
    assert!(replica.contains("online", "bob") && !replica.contains("online", "eve"));
    assert_eq!((replica.items("recent"), replica.score("seen", "ann")), (vec!["a".into(), "b".into()], Some(1.5)));
    assert_eq!((replica.len(), replica.keys().len()), (5, 5), "what has gone takes nothing, nor what is not known");
    assert!(replica.age() < Duration::from_secs(20));
    let node = Scripted::new(&[third, fourth, Hangs]);
    let replica = floor([node.at]).replica_of("a/").await;
    assert_eq!((replica.get("all").as_deref(), replica.get("rest").as_deref()), (Some(&b"anew"[..]), Some(&b"x"[..])));
    assert_eq!(
        node.asked()[..2],
        ["GET /v1/ns/floor/watch?prefix=a%2F&after=", "GET /v1/ns/floor/watch?prefix=a%2F&after= last-event-id: D"]
    );
}

#[tokio::test]
async fn changes_say_why_and_go_on_at_another_node_after_the_last_cursor() {
    let slow = event("error", r#"{"error":"for more than 30 s nothing was taken","type":"slow"}"#);
    let first = stream(&[
        cursor("A", ""),
        event("put", r#"{"key":"k","type":"string","value":"new","why":"repair","lost":["old",null]}"#),
        event("remove", r#"{"key":"online","type":"set","element":"ann","why":"ended"}"#),
        cursor("B", ""),
        slow,
    ]);
    let second = stream(&[event("reset", "{}"), event("put", r#"{"key":"all","type":"string","value":"v"}"#)]);
    let gone = event("error", r#"{"error":"the namespace was removed","type":"ended"}"#);
    let (one, other) = (Scripted::new(&[first, Dies]), Scripted::new(&[second, stream(&[gone])]));
    let mut changes = floor([one.at, other.at]).changes("f/", None);
    assert_eq!(changes.next().await, SoftChange::UpTo("A".into()));
    let put = SoftChanged {
        key: "k".into(),
        kind: "string".into(),
        element: "".into(),
        value: Some("new".into()),
        why: Some(SoftWhy::Repair),
        lost: vec![Some("old".into()), None],
    };
    assert_eq!(changes.next().await, SoftChange::Put(put.clone()));
    let (value, why, lost) = (None, Some(SoftWhy::Ended), Vec::new());
    let gone = SoftChanged { key: "online".into(), kind: "set".into(), element: "ann".into(), value, why, lost };
    assert_eq!(changes.next().await, SoftChange::Removed(gone));
    assert_eq!(changes.next().await, SoftChange::UpTo("B".into()));
    assert_eq!(changes.next().await, SoftChange::Reset);
    let there = SoftChanged { key: "all".into(), value: Some("v".into()), why: None, lost: Vec::new(), ..put };
    assert_eq!(changes.next().await, SoftChange::Put(there));
    assert_eq!(changes.next().await, SoftChange::Over("the namespace was removed".into()));
    assert_eq!(one.asked()[0], "GET /v1/ns/floor/watch?prefix=f%2F");
    assert_eq!(other.asked()[0], "GET /v1/ns/floor/watch?prefix=f%2F last-event-id: B");

    let node =
        Scripted::new(&[Answers(410, "", r#"{"error":"no cursor","type":"compacted"}"#), stream(&[cursor("C", "")])]);
    let mut changes = floor([node.at]).changes("", Some("X"));
    assert_eq!((changes.next().await, changes.next().await), (SoftChange::Missed, SoftChange::UpTo("C".into())));
    let node = Scripted::new(&[Hangs]);
    let mut changes = floor([node.at]).changes("", Some(""));
    tokio::select! {
        said = changes.next() => panic!("{said:?}"),
        () = until(|| !node.asked().is_empty()) => (),
    }
    assert_eq!(node.asked()[0], "GET /v1/ns/floor/watch?prefix=&after=");
}

#[tokio::test]
async fn while_all_is_told_anew_what_was_there_is_read_and_then_it_is_gone() {
    let old = stream(&[event("put", r#"{"key":"old","type":"string","value":"1"}"#), cursor("A", "")]);
    let gone = Answers(410, "", r#"{"error":"begin anew","type":"compacted"}"#);
    let half = stream(&[event("put", r#"{"key":"new","type":"string","value":"2"}"#), cursor("B", ",\"more\":true")]);
    let rest = stream(&[cursor("C", "")]);
    let node = Scripted::new(&[old, gone, half, rest, Hangs]);
    let replica = floor([node.at]).replica().await;
    until(|| {
        let (old, new) = (replica.get("old").is_some(), replica.get("new").is_some());
        assert!(old != new, "one or the other");
        new
    })
    .await;
    assert_eq!(node.asked()[2], "GET /v1/ns/floor/watch?prefix=&after=", "nobody knows where it was");
}

#[tokio::test]
async fn what_is_held_is_held_again_when_its_node_goes_until_it_is_let_go() {
    let there = || stream(&[event("held", r#"{"new":1}"#)]);
    // Each stream ends at once, as if its node went.
    let (first, second) = (Scripted::new(&[there(), Dies]), Scripted::new(&[there()]));
    let floor = floor([first.at, second.at]);
    let held = floor.hold("online", ["ann"]).await.unwrap();
    until(|| !second.asked().is_empty()).await;
    let asked = r#"POST /v1/ns/floor/hold/online {"members":["ann"]}"#;
    assert_eq!((&*first.asked()[0], &*second.asked()[0]), (asked, asked));
    drop(held);
    let before = second.asked().len();
    // One question may be under way; a holder that goes on would ask each few milliseconds.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(second.asked().len() <= before + 1, "{:?}", second.asked());

    let node = Scripted::new(&[there()]);
    drop(self::floor([node.at]).hold_fields("who", [("ann".to_owned(), "phone")]).await.unwrap());
    assert_eq!(node.asked()[0], r#"POST /v1/ns/floor/hold/who {"fields":{"ann":"phone"}}"#);
    for (status, said) in [
        (409, r#"{"error":"the key has something of another kind"}"#),
        (400, r#"{"error":"what is held needs level 10 of all nodes"}"#),
        (503, r#"{"error":"100000 entries are held at this node already"}"#),
    ] {
        let node = Scripted::new(&[Answers(status, "", said)]);
        let error = self::floor([node.at]).hold("online", ["ann"]).await.unwrap_err();
        assert!(said.contains(&error.to_string()), "{status}: {error}");
        assert_eq!(matches!(&error, SoftError::Kind(_)), status == 409, "{error:?}");
        assert_eq!(matches!(&error, SoftError::Refused(refused) if refused.retry_after.is_some()), status == 503);
    }
}

#[tokio::test]
async fn a_read_that_may_not_be_old_goes_to_a_node_that_knows_enough() {
    let old = || Scripted::new(&[Answers(503, "", r#"{"error":"what this node knows may be 900 ms old"}"#)]);
    let fresh = Scripted::new(&[Answers(200, "", "on"), Answers(200, "", r#"{"result":["ann"]}"#), DONE]);
    let first = old();
    let floor = floor([first.at, fresh.at]).stale(Duration::from_millis(200));
    assert_eq!(floor.get("flag").await.unwrap().as_deref(), Some(&b"on"[..]));
    assert_eq!(floor.members("s").await.unwrap(), ["ann"]);
    assert_eq!(fresh.asked()[0], "GET /v1/ns/floor/keys/flag?stale=200ms");
    assert!(fresh.asked()[1].starts_with("POST /v1/ns/floor/apply/s?stale=200ms {"), "{:?}", fresh.asked());
    // A write has no age, and is not asked of another node.
    let error = floor.set("flag", "off").await.unwrap_err();
    assert_eq!((error.happened(), fresh.asked().len()), (Happened::No, 2));
    assert_eq!(first.asked()[2], "PUT /v1/ns/floor/keys/flag off");
    let error = self::floor([old().at, old().at]).stale(Duration::from_millis(200)).get("flag").await.unwrap_err();
    assert!(error.to_string().contains("900 ms old"), "{error}");
}
