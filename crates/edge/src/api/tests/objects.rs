//! Objects over HTTP: what is asked of the node, and what its answers become.

use state::object::{Action, Id, List, Listed, Op, Reply};

use super::*;

const MAIL: (&str, &str) = ("authorization", "Bearer post");
const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn of(reply: Reply) -> Option<Answer> {
    Some(Answer::Object(Outcome::Done(reply)))
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
    assert_eq!(action, Action::Put { id: id(), body: Bytes::from_static(b"hello") });
    let (status, headers, text, _) =
        asks("GET", Reply::Object { version: VERSION, body: Bytes::from_static(b"hello") });
    assert_eq!((status, header(&headers, "etag"), &*text), (200, TAG, "hello"));
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
    let large = "x".repeat((1 << 20) + 1);
    let wrong_id = "PUT /v1/ns/mail/objects/ann/letter";
    let object = format!("PUT /v1/ns/mail/objects/ann/{ID}");
    let of_carts = format!("GET /v1/ns/carts/objects/ann/{ID}");
    for (line, token, body, expected, says) in [
        (wrong_id, MAIL, "x", 400, "32 hexadecimal digits"),
        (&*object, MAIL, &*large, 413, "1048576 bytes"),
        (&*object, CARTS, "x", 401, "token"),
        (&*of_carts, CARTS, "", 400, "is of class session, and class object alone"),
        ("GET /v1/ns/mail/objects/ann?limit=0", MAIL, "", 400, "1 to 1000"),
        ("GET /v1/ns/mail/keys/a", MAIL, "", 400, "no keys"),
        ("PUT /v1/ns/mail/keys/a", MAIL, "x", 400, "no keys"),
        ("GET /v1/ns/mail/keys", MAIL, "", 400, "class linear alone offers this: objects are at"),
        ("POST /v1/ns/mail/session", MAIL, "x", 400, "class session alone offers this: objects are at"),
    ] {
        let (status, _, text, asked) = ask(None, request(line, &[token], body));
        assert_eq!((status, text.contains(says), asked.is_none()), (expected, true, true), "{line}: {status} {text}");
    }
}
