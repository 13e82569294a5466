//! Objects over HTTP: what is asked of the node, and what its answers become.

use state::object::{Action, Change, Changes, Id, List, Listed, Op, Reply};

use super::*;

const MAIL: (&str, &str) = ("authorization", "Bearer post");
const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn of(reply: Reply) -> Option<Answer> {
    Some(Answer::Object(Outcome::Done(reply)))
}

/// A piece of an object.
fn object(of: &'static [u8], range: std::ops::Range<usize>) -> Reply {
    let sum = base::checksum::Checksum::of(of).0;
    Reply::Object { version: VERSION, size: of.len() as u32, sum, body: Bytes::from_static(&of[range]) }
}

/// Status, headers, the text if the answer did not break off, and what the node was asked.
type Told = (u16, Vec<(String, String)>, Option<String>, Vec<Ask>);

/// Asks once of a node that says these things one after the other.
fn ask_all(mut answers: Vec<Answer>, request: Request<Body>) -> Told {
    answers.reverse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(answers);
        let response = call(&router, request).await;
        let headers =
            response.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_string())).collect();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        let text = body.ok().map(|body| String::from_utf8(body.to_bytes().to_vec()).unwrap());
        let asked = std::mem::take(&mut *toy.asked.lock().unwrap());
        (status, headers, text, asked)
    })
}

fn id() -> Id {
    ID.parse().unwrap()
}

#[test]
fn an_object_is_put_read_and_deleted_by_owner_and_id() {
    let line = |method: &str| format!("{method} /v1/ns/mail/objects/ann%40example.org/{ID}");
    let asks = |method: &str, reply: Reply| ask(of(reply), request(&line(method), &[MAIL], "hello"));
    let (status, headers, _, asked) = asks("PUT", Reply::Stored { version: VERSION, copies: 2 });
    assert_eq!((status, header(&headers, "etag"), header(&headers, "coppice-copies")), (204, TAG, "2"));
    let Some(Ask::Object(Op { namespace, owner, action, .. })) = asked else { panic!("{asked:?}") };
    assert_eq!((&*namespace, &owner[..]), ("mail", &b"ann@example.org"[..]));
    assert_eq!(action, Action::Put { id: id(), body: Bytes::from_static(b"hello").into() });
    let (status, headers, text, asked) = asks("GET", object(b"hello", 0..5));
    assert_eq!((status, header(&headers, "etag"), &*text), (200, TAG, "hello"));
    assert_eq!((header(&headers, "content-length"), header(&headers, "coppice-crc32c")), ("5", "9a71bb4c"));
    assert!(matches!(asked, Some(Ask::Object(Op { action: Action::Get { at: 0, .. }, .. }))));
    let (status, headers, text, asked) = asks("HEAD", object(b"hello", 5..5));
    assert_eq!((status, header(&headers, "content-length"), &*text), (200, "5", ""));
    assert!(matches!(asked, Some(Ask::Object(Op { action: Action::Get { at: u32::MAX, .. }, .. }))), "no bytes");
    for (method, reply, expected) in [
        ("PUT", Reply::Gone, 410),
        ("PUT", Reply::Conflict { version: VERSION }, 409),
        ("GET", Reply::Absent, 404),
        ("GET", Reply::Gone, 410),
        ("DELETE", Reply::Deleted { version: VERSION, copies: 3 }, 204),
        ("DELETE", Reply::Absent, 404),
        ("GET", Reply::Stored { version: VERSION, copies: 1 }, 504),
    ] {
        let shown = format!("{method} {reply:?}");
        assert_eq!(asks(method, reply).0, expected, "{shown}");
    }
}

#[test]
fn a_large_object_is_given_piece_by_piece_in_ranges_and_never_whole_if_it_is_not() {
    let line = format!("GET /v1/ns/mail/objects/ann/{ID}");
    let asks = |replies: Vec<Reply>, headers: &[(&str, &str)]| {
        let headers = [&[MAIL], headers].concat();
        ask_all(replies.into_iter().filter_map(of).collect(), request(&line, &headers, ""))
    };
    let pieces = || vec![object(b"0123456789", 0..4), object(b"0123456789", 4..8), object(b"0123456789", 8..10)];
    let (status, headers, text, asked) = asks(pieces(), &[]);
    assert_eq!((status, header(&headers, "content-length"), text.as_deref()), (200, "10", Some("0123456789")));
    let at = |ask: &Ask| match ask {
        Ask::Object(Op { action: Action::Get { at, .. }, .. }) => *at,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked.iter().map(at).collect::<Vec<_>>(), [0, 4, 8]);
    // What does not belong together: the answer breaks off.
    for wrong in [object(b"0123456789", 7..9), object(b"012345678x", 8..10), Reply::Gone] {
        let shown = format!("{wrong:?}");
        let mut replies = pieces();
        replies[2] = wrong;
        let (status, _, text, _) = asks(replies, &[]);
        assert_eq!((status, text), (200, None), "{shown}");
    }
    for (range, replies, status, expected, of) in [
        ("bytes=6-8", vec![object(b"0123456789", 6..8), object(b"0123456789", 8..10)], 206, "678", "bytes 6-8/10"),
        ("bytes=8-", vec![object(b"0123456789", 8..10)], 206, "89", "bytes 8-9/10"),
        ("bytes=-3", vec![object(b"0123456789", 0..0), object(b"0123456789", 7..10)], 206, "789", "bytes 7-9/10"),
        ("bytes=10-", vec![object(b"0123456789", 0..0)], 416, "", "bytes */10"),
        ("bytes=9-8", pieces(), 200, "0123456789", ""),
        ("lines=1-2", pieces(), 200, "0123456789", ""),
        ("bytes=0-1,3-4", pieces(), 200, "0123456789", ""),
    ] {
        let (got, headers, text, _) = asks(replies, &[("range", range)]);
        let text = text.filter(|_| status < 400).unwrap_or_default();
        assert_eq!((got, &*text, header(&headers, "content-range")), (status, expected, of), "{range}");
    }
}

#[test]
fn a_list_says_whether_it_is_complete() {
    let listed = Listed { id: id(), version: VERSION, size: 5 };
    let list = |missing| Reply::List(List { objects: vec![listed], after: Some(id()), missing });
    let line = format!("GET /v1/ns/mail/objects/ann?limit=1&after={ID}");
    let (status, _, text, asked) = ask(of(list(vec![])), request(&line, &[MAIL], ""));
    assert_eq!(status, 200, "{text}");
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    let version = TAG.trim_matches('"');
    let expected = serde_json::json!({
        "objects": [{"id": ID, "version": version, "bytes": 5}], "after": ID, "complete": true
    });
    assert_eq!(page, expected);
    let Some(Ask::Object(op)) = asked else { panic!("{asked:?}") };
    assert_eq!(op.action, Action::List { after: Some(id()), limit: 1 });
    let text = ask(of(list(vec![NodeId(3)])), request(&line, &[MAIL], "")).2;
    assert!(text.contains(r#""complete":false"#) && text.contains(r#""missing":["node-000000000003"]"#), "{text}");
}

#[test]
fn what_cannot_be_is_refused_before_the_node_is_asked() {
    let large = "x".repeat((64 << 20) + 1);
    let wrong_id = "PUT /v1/ns/mail/objects/ann/letter";
    let object = format!("PUT /v1/ns/mail/objects/ann/{ID}");
    let of_carts = format!("GET /v1/ns/carts/objects/ann/{ID}");
    for (line, token, body, expected, says) in [
        (wrong_id, MAIL, "x", 400, "32 hexadecimal digits"),
        (&*object, MAIL, &*large, 413, "67108864 bytes"),
        (&*object, CARTS, "x", 401, "token"),
        (&*of_carts, CARTS, "", 400, "is of class session, and class object alone"),
        ("GET /v1/ns/mail/objects/ann?limit=0", MAIL, "", 400, "1 to 1000"),
        ("GET /v1/ns/mail/keys/a", MAIL, "", 400, "offer this: objects are at"),
        ("PUT /v1/ns/mail/keys/a", MAIL, "x", 400, "offer this: objects are at"),
        ("GET /v1/ns/mail/keys", MAIL, "", 400, "offer this: objects are at"),
        ("POST /v1/ns/mail/session", MAIL, "x", 400, "class session alone offers this: objects are at"),
    ] {
        let (status, _, text, asked) = ask(None, request(line, &[token], body));
        assert_eq!((status, text.contains(says), asked.is_none()), (expected, true, true), "{line}: {status} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_each_change_once_and_how_far_one_is() {
    let change = |n: u8, size| Change { owner: "ann".into(), id: Id([n; 16]), version: VERSION, size };
    let changes = |all: Vec<Change>, cursor: &'static [u8]| Changes {
        changes: all,
        cursor: Bytes::from_static(cursor),
        ..Changes::default()
    };
    let of = |changes| Answer::Object(Outcome::Done(Reply::Changes(changes)));
    let first = Changes { is_more: true, missing: vec![NodeId(3)], ..changes(vec![change(1, Some(5))], b"\x01") };
    // Another node that has it tells of it, too.
    let second = changes(vec![change(1, Some(5)), change(1, None)], b"\x02");
    let busy = Outcome::Refused(Refused::busy("a moment", Span::millis(5)));
    let lost = Changes { is_lost: true, ..changes(Vec::new(), b"\x03") };
    let mut answers = vec![of(first), Answer::Object(busy), of(second), of(lost)];
    answers.reverse();
    let (toy, router) = toy(answers);
    let response = call(&router, request("GET /v1/ns/mail/watch?prefix=an&after=", &[MAIL], "")).await;
    assert_eq!(response.status(), 200);
    let text = text(response).await;
    let id = "01".repeat(16);
    let told: Vec<String> = text.split("\n\n").filter(|e| !e.is_empty()).map(|e| e.replace('\n', "|")).collect();
    let named = format!(r#""id":"{id}","owner":"ann","version":"{VERSION}"}}"#);
    let missing = NodeId(3);
    let expected = [
        format!(r#"event: put|data: {{"bytes":5,{named}"#),
        format!(r#"event: cursor|id: AQ|data: {{"cursor":"AQ","missing":["{missing}"],"more":true}}"#),
        format!(r#"event: remove|data: {{{named}"#),
        r#"event: cursor|id: Ag|data: {"cursor":"Ag"}"#.to_owned(),
        r#"event: error|data: {"cursor":"Aw","error":"compacted: deletions since then are not remembered any more: read again, and watch after cursor Aw","type":"compacted"}"#
            .to_owned(),
    ];
    assert_eq!(told, expected);
    let asked = std::mem::take(&mut *toy.asked.lock().unwrap());
    let watches: Vec<_> = asked
        .iter()
        .map(|ask| match ask {
            Ask::Object(Op { owner, action: Action::Watch { after, hold, by }, .. }) => {
                (&owner[..], after.as_deref(), *hold, *by)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let (by, hold) = (watches[0].3, state::object::limits::WATCH_HOLD);
    let then = |after: &'static [u8], hold| (&b"an"[..], Some(after), hold, by);
    assert_eq!(watches, [then(b"", Span::ZERO), then(b"\x01", hold), then(b"\x01", hold), then(b"\x02", hold)]);
}

#[test]
fn a_watch_that_makes_no_sense_is_refused() {
    let refused = |why: &str| Some(Answer::Object(Outcome::Refused(Refused::wrong(why))));
    let (status, _, text, _) =
        ask(refused(state::object::NO_CURSOR), request("GET /v1/ns/mail/watch?after=AQ", &[MAIL], ""));
    assert!(status == 410 && text.contains(r#""type":"compacted""#), "{status} {text}");
    for (line, says) in [("after=%20", "a cursor"), ("key=a", "unknown field")] {
        let (status, _, text, asked) = ask(None, request(&format!("GET /v1/ns/mail/watch?{line}"), &[MAIL], ""));
        assert!(status == 400 && asked.is_none() && text.contains(says), "{line}: {text}");
    }
    assert_eq!(ask(None, request("GET /v1/ns/mail/watch?prefix=", &[], "")).0, 401);
}
