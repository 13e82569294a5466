//! Statements over HTTP: what is asked of the node, and what its answers become.

use state::linear::functions::sql::{BATCH, QUERY, WEIGHED};
use state::linear::{Ran, Reply};
use state::sql::{Failure, Kind};

use super::*;

const BOOKS: (&str, &str) = ("authorization", "Bearer sesame");
const LINE: &str = "POST /v1/ns/books/sql";

fn of(reply: Reply) -> Option<Answer> {
    Some(Answer::Linear(Outcome::Done(Ran::Done(vec![reply]))))
}

fn failed(kind: Kind) -> Option<Answer> {
    let failure = Failure { kind, statement: Some(2), why: "it is so".into() };
    of(Reply::List(vec![Reply::Nil, Reply::Bytes(serde_json::to_vec(&failure).unwrap().into())]))
}

#[test]
fn a_batch_and_a_query_are_steps_with_time_and_chance() {
    let done = || of(Reply::List(vec![Reply::Bytes(Bytes::from_static(b"{\"results\":[]}"))]));
    let body = r#"{"batch": [["insert into t values (?1)", [1.5]]]}"#;
    let (status, headers, text, asked) = ask(done(), request(LINE, &[BOOKS], body));
    assert_eq!((status, header(&headers, "content-type"), &*text), (200, "application/json", "{\"results\":[]}"));
    let Some(Ask::Linear(op)) = asked else { panic!("{asked:?}") };
    let [step] = &op.steps[..] else { panic!("{op:?}") };
    assert_eq!((&*op.namespace, step.function), ("books", BATCH));
    let [wall_ms, seed, most, json, how] = &step.args[..] else { panic!("{step:?}") };
    assert_eq!(how, WEIGHED, "all nodes know of it");
    assert_eq!((&most[..], &json[..]), (&b"1234567"[..], &br#"[["insert into t values (?1)",[1.5]]]"#[..]));
    let number = |text: &Bytes| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap();
    assert!(number(wall_ms) > 1_700_000_000_000 && number(seed) >= 0);
    let first = op.said;
    let Some(Ask::Linear(again)) = ask(done(), request(LINE, &[BOOKS], body)).3 else { panic!("none") };
    assert_eq!(again.said, first, "by this its id is known to be for the same");
    assert_ne!(again.steps[0].args[1], *seed);
    let query = ask(done(), request(LINE, &[BOOKS], r#"{"query": "select 1"}"#)).3;
    assert!(matches!(&query, Some(Ask::Linear(op)) if op.steps[0].function == QUERY), "{query:?}");
}

#[test]
fn each_end_has_its_status() {
    for (kind, status) in [
        (Kind::Bad, 400),
        (Kind::Unmet, 409),
        (Kind::Constraint, 409),
        (Kind::Large, 413),
        (Kind::Sql, 422),
        (Kind::Refused, 422),
        (Kind::Budget, 422),
        (Kind::Full, 507),
    ] {
        let (is, _, text, _) = ask(failed(kind), request(LINE, &[BOOKS], r#"{"batch": ["select 1"]}"#));
        assert!(
            is == status && text.contains("statement 2: it is so") && text.contains("\"statement\":2"),
            "{is} {text}"
        );
    }
    for (body, says) in [
        ("", "the body must be"),
        ("{}", "one of both"),
        (r#"{"batch": [], "query": "select 1"}"#, "one of both"),
        (r#"{"batch": ["select 1"], "more": 1}"#, "more"),
        (r#"{"batch": []}"#, "0 statements"),
        (r#"{"batch": ["select 1", 7]}"#, "statement 1: write"),
        (r#"{"query": {"sql": "select 1", "must": 1}}"#, "in a batch"),
    ] {
        let (status, _, text, asked) = ask(None, request(LINE, &[BOOKS], body));
        assert!(status == 400 && text.contains(says) && asked.is_none(), "{body}: {status} {text}");
    }
    let id = ("idempotency-key", "01890a5d-ac96-774b-bcce-b302099a8057");
    assert_eq!(ask(None, request(LINE, &[BOOKS, id], r#"{"query": "select 1"}"#)).0, 400);
    assert_eq!(ask(None, request(LINE, &[], r#"{"query": "select 1"}"#)).0, 401);
    let other = ask(None, request("POST /v1/ns/carts/sql", &[CARTS], r#"{"query": "select 1"}"#));
    assert!(other.0 == 400 && other.2.contains("class sql alone"), "{other:?}");
    let keys = ask(None, request("GET /v1/ns/books/keys/a", &[BOOKS], ""));
    assert!(keys.0 == 400 && keys.2.contains("/v1/ns/books/sql"), "{keys:?}");
}
