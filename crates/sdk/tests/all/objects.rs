//! Objects by the SDK: what is asked, what becomes of the answers, and what is asked again.

use std::net::SocketAddr;

use sdk::{Happened, Node, ObjectChange, ObjectError, ObjectId, Objects};

use crate::scripted::Does::{Answers, Dies};
use crate::scripted::Scripted;

const STORED: crate::scripted::Does = Answers(204, "etag: \"8a\"\r\ncoppice-copies: 2\r\n", "");

fn mail(at: impl IntoIterator<Item = SocketAddr>) -> Objects {
    Objects::new(Node::at(at).unwrap(), "mail", "post")
}

fn seven() -> ObjectId {
    ObjectId([7; 16])
}

#[tokio::test]
async fn an_object_is_put_read_and_deleted() {
    let script = [STORED, Answers(200, "etag: \"8a\"\r\n", "hello"), STORED, Answers(404, "", "{}"), STORED];
    let one = Scripted::new(&script);
    let mail = mail([one.at]);
    let written = mail.put_as("ann@example.org", seven(), "hello").await.unwrap();
    assert_eq!((written.version.to_string().as_str(), written.copies), ("8a", 2));
    let read = mail.get("ann@example.org", seven()).await.unwrap().unwrap();
    assert_eq!((read.version, &read.body[..]), (written.version, &b"hello"[..]));
    assert_eq!(mail.delete("ann@example.org", seven()).await.unwrap().unwrap().copies, 2);
    assert_eq!(mail.delete("ann@example.org", seven()).await, Ok(None));
    let (id, _) = mail.put("ann@example.org", "new").await.unwrap();
    let path = format!("/v1/ns/mail/objects/ann%40example.org/{}", "07".repeat(16));
    let at = |method: &str, body: &str| format!("{method} {path} {body}").trim().to_owned();
    let put = format!("PUT /v1/ns/mail/objects/ann%40example.org/{id} new");
    assert_eq!(one.asked(), [at("PUT", "hello"), at("GET", ""), at("DELETE", ""), at("DELETE", ""), put]);
}

#[tokio::test]
async fn a_write_without_an_answer_is_asked_again_as_its_id_is_its_own() {
    let late = Answers(504, "", r#"{"error":"late (it may have happened)"}"#);
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[late.clone(), STORED]));
    mail([dies.at, other.at]).put_as("ann", seven(), "x").await.unwrap();
    assert!(other.asked().len() == 2 && other.asked()[1] == dies.asked()[0], "{:?}", other.asked());
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[STORED]));
    assert!(mail([dies.at, other.at]).delete("ann", seven()).await.unwrap().is_some());
    // Nobody ever knows: it may be there. Of a read nothing can have happened.
    let never = Scripted::new(&[late]);
    let error = mail([never.at]).put("ann", "x").await.unwrap_err();
    assert_eq!((error.happened(), never.asked().len() > 2), (Happened::Maybe, true), "{error}");
    assert!(matches!(mail([never.at]).get("ann", seven()).await, Err(ObjectError::Refused(_))));
}

#[tokio::test]
async fn absent_deleted_conflict_and_refused_are_not_the_same() {
    let one = Scripted::new(&[
        Answers(404, "", "{}"),
        Answers(410, "", r#"{"error":"it was deleted","type":"deleted"}"#),
        Answers(409, "etag: \"9\"\r\n", "{}"),
        Answers(410, "", "{}"),
        Answers(413, "", r#"{"error":"too long"}"#),
        Answers(503, "", r#"{"error":"a node is away that may have it","retry_after_ms":120}"#),
        Answers(200, "", "no version"),
        Answers(503, "", r#"{"error":"no","type":"full","retry_after_ms":1000}"#),
    ]);
    let mail = mail([one.at]);
    assert_eq!(mail.get("ann", seven()).await, Ok(None));
    assert_eq!(mail.get("ann", seven()).await, Err(ObjectError::Deleted));
    let Err(ObjectError::Conflict(Some(version))) = mail.put_as("ann", seven(), "x").await else { panic!() };
    assert_eq!(version.to_string(), "9");
    assert_eq!(mail.put_as("ann", seven(), "x").await, Err(ObjectError::Deleted));
    let Err(ObjectError::Refused(refused)) = mail.put("ann", "x").await else { panic!() };
    assert_eq!((refused.why.as_str(), refused.retry_after), ("too long", None));
    let Err(ObjectError::Refused(refused)) = mail.get("ann", seven()).await else { panic!() };
    assert_eq!(refused.retry_after.map(|after| after.as_millis()), Some(120));
    assert!(matches!(mail.get("ann", seven()).await, Err(ObjectError::Refused(_))), "it says no version");
    assert!(matches!(mail.put("ann", "x").await, Err(ObjectError::Full(_))));
}

#[tokio::test]
async fn a_page_says_where_to_go_on_and_who_is_missing() {
    let id = "07".repeat(16);
    let whole = format!(r#"{{"objects":[{{"id":"{id}","version":"8a","bytes":5}}],"after":"{id}","complete":true}}"#);
    let whole: &'static str = Box::leak(whole.into_boxed_str());
    let one = Scripted::new(&[
        Answers(200, "", whole),
        Answers(200, "", r#"{"objects":[],"complete":false,"missing":["n3"]}"#),
        Answers(200, "", r#"{"objects":[],"complete":false}"#),
        Answers(200, "", r#"{"objects":[{"id":"x"}],"complete":true}"#),
    ]);
    let mail = mail([one.at]);
    let page = mail.list("ann", None, 1).await.unwrap();
    assert_eq!((page.objects[0].id, page.objects[0].bytes, page.after), (seven(), 5, Some(seven())));
    assert!(page.is_complete());
    let page = mail.list("ann", page.after, 1000).await.unwrap();
    assert_eq!((page.missing.as_slice(), page.after, page.is_complete()), (&["n3".to_owned()][..], None, false));
    assert!(!mail.list("ann", None, 1).await.unwrap().is_complete());
    assert!(matches!(mail.list("ann", None, 1).await, Err(ObjectError::Refused(_))), "no page");
    let asked = one.asked();
    assert_eq!(asked[0], "GET /v1/ns/mail/objects/ann?limit=1");
    assert_eq!(asked[1], format!("GET /v1/ns/mail/objects/ann?limit=1000&after={id}"));
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_and_says_what_it_missed() {
    let stream = |events: &'static str| Answers(200, "content-type: text/event-stream\r\n", events);
    const PUT: &str = "event: put\ndata: {\"bytes\":5,\"id\":\"07070707070707070707070707070707\",\"owner\":\"ann\",\"version\":\"8a\"}\n\n\
                       event: cursor\nid: A\ndata: {\"cursor\":\"A\",\"missing\":[\"n3\"]}\n\n";
    const GONE: &str = "event: remove\ndata: {\"id\":\"07070707070707070707070707070707\",\"owner\":\"ann\",\"version\":\"8b\"}\n\n\
                        event: error\ndata: {\"cursor\":\"C\",\"error\":\"compacted: ...\",\"type\":\"compacted\"}\n\n";
    const LAST: &str = "event: error\ndata: {\"error\":\"removed\",\"type\":\"ended\"}\n\n";
    let node = Scripted::new(&[
        stream(PUT),
        stream(GONE),
        Answers(410, "", r#"{"error":"compacted: ...","type":"compacted"}"#),
        stream(LAST),
    ]);
    let mut watch = mail([node.at]).watch("an", Some(""));
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(ObjectChange::Over(_))) {
        seen.push(watch.next().await);
    }
    let (owner, id) = ("ann".to_owned(), seven());
    let [put, up_to, deleted, rest @ ..] = &seen[..] else { panic!("{seen:?}") };
    assert!(matches!(put, ObjectChange::Put { owner: of, id: n, bytes: 5, version } if *of == owner && *n == id
        && version.to_string() == "8a"));
    assert_eq!(*up_to, ObjectChange::UpTo { cursor: "A".into(), missing: vec!["n3".into()] });
    assert!(matches!(deleted, ObjectChange::Deleted { owner: of, id: n, .. } if *of == owner && *n == id));
    assert_eq!(rest, [ObjectChange::Missed, ObjectChange::Missed, ObjectChange::Over("removed".into())]);
    let asks = |place: &str| format!("GET /v1/ns/mail/watch?prefix=an&after={place}");
    let expected = [asks(""), asks(" last-event-id: A"), asks(" last-event-id: C"), asks("")];
    assert_eq!(node.asked(), expected, "nobody knows the place C");
}
