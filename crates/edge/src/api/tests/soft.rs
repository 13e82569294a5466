//! What requests on values of class `soft` become, and how what comes of them reads.

use state::soft::{Action, Change, Changes, Did, End, FULL, Kind, List, Op, Reply as Got, Side, Watch, Why};

use super::*;

/// A node that has a namespace `carts` of class `soft`, and its router.
fn soft_toy(answers: Vec<Outcome<Got>>) -> (Arc<Toy>, Router) {
    let (toy, router) = toy(answers.into_iter().rev().map(Answer::Soft).collect());
    toy.declare("carts", NamespaceSpec::new_soft());
    (toy, router)
}

fn soft_outcome(
    answer: Outcome<Got>,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, Option<Action>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (toy, router) = soft_toy(vec![answer]);
        let response = call(&router, request(line, &[&[CARTS], headers].concat(), body)).await;
        let status = response.status().as_u16();
        let action = toy.asked.lock().unwrap().pop().map(|asked| match asked {
            Ask::Soft(op) => op.action,
            other => panic!("{other:?}"),
        });
        (status, text(response).await, action)
    })
}

fn soft(reply: Got, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, Option<Action>) {
    soft_outcome(Outcome::Done(reply), line, headers, body)
}

#[test]
fn a_register_is_put_read_and_removed() {
    let ends = ("coppice-ends-ms", "500");
    let pairs = vec![(Bytes::from("a/b"), Bytes::from("on"))];
    let (status, _, action) = soft(Got::Done, "PUT /v1/ns/carts/keys/a/b", &[ends], "on");
    assert_eq!((status, action), (204, Some(Action::Set { pairs, end: End::After(Span::millis(500)) })));
    let there = Got::Values(vec![Some("on".into())]);
    let (status, text, action) = soft(there, "GET /v1/ns/carts/keys/a/b", &[], "");
    let at = vec![(Bytes::from("a/b"), Bytes::new())];
    assert_eq!((status, &*text, action), (200, "on", Some(Action::Read { kind: Kind::Register, at })));
    assert_eq!(soft(Got::Values(vec![None]), "GET /v1/ns/carts/keys/a", &[], "").0, 404);
    assert_eq!(soft(Got::WrongKind, "GET /v1/ns/carts/keys/a", &[], "").0, 409);
    assert_eq!(soft(Got::Int(1), "DELETE /v1/ns/carts/keys/a", &[], "").0, 204);
    assert_eq!(soft(Got::Int(0), "DELETE /v1/ns/carts/keys/a", &[], "").0, 404);
    let full = Outcome::Refused(
        Refused::wrong(format!("{FULL}: it has 7 bytes, which is its size_max")).because(base::Because::Quota),
    );
    assert_eq!(soft_outcome(full, "PUT /v1/ns/carts/keys/a", &[], "v").0, 507);
    let unknown = Outcome::Unknown(Unknown { why: "nobody acknowledged it".into() });
    assert_eq!(soft_outcome(unknown, "PUT /v1/ns/carts/keys/a", &[], "v").0, 504);
}

#[test]
fn functions_are_called_by_name() {
    let key = || Bytes::from("k");
    let value = |text: &'static str| Some(Bytes::from(text));
    let read = |kind, elements: &[&'static str]| {
        let at = elements.iter().map(|element| (key(), Bytes::from(*element))).collect();
        Action::Read { kind, at }
    };
    let list = |what| Action::List { key: key(), what };
    let fields = vec![(Bytes::from("f"), value("1")), (Bytes::from("g"), value("2"))];
    let elements = vec![Bytes::from("f")];
    for (function, args, action, reply, result) in [
        (
            "number.add",
            r#"["-3"]"#,
            Action::Add { kind: Kind::Register, key: key(), element: Bytes::new(), by: -3 },
            Got::Int(4),
            "4",
        ),
        (
            "hash.set",
            r#"["f", "1", "g", "2"]"#,
            Action::Put { kind: Kind::Field, key: key(), pairs: fields.clone() },
            Got::Int(2),
            "2",
        ),
        ("hash.get", r#"["f"]"#, read(Kind::Field, &["f"]), Got::Values(vec![value("1")]), r#""1""#),
        ("hash.get", r#"["f"]"#, read(Kind::Field, &["f"]), Got::Values(vec![None]), "null"),
        ("hash.get-many", r#"["f"]"#, read(Kind::Field, &["f"]), Got::Values(vec![None]), "[null]"),
        (
            "hash.add",
            r#"["f", "2"]"#,
            Action::Add { kind: Kind::Field, key: key(), element: "f".into(), by: 2 },
            Got::Int(3),
            "3",
        ),
        (
            "hash.remove",
            r#"["f"]"#,
            Action::Take { kind: Kind::Field, key: key(), elements: elements.clone() },
            Got::Int(1),
            "1",
        ),
        ("hash.all", "[]", Action::All { kind: Kind::Field, key: key() }, Got::Pairs(fields), r#"["f","1","g","2"]"#),
        (
            "set.add",
            r#"["f", {"base64": "/w=="}]"#,
            Action::Put { kind: Kind::Member, key: key(), pairs: vec![("f".into(), None), (vec![255].into(), None)] },
            Got::Int(2),
            "2",
        ),
        ("set.remove", r#"["f"]"#, Action::Take { kind: Kind::Member, key: key(), elements }, Got::Int(0), "0"),
        ("set.has", r#"["f"]"#, read(Kind::Member, &["f"]), Got::Values(vec![value("")]), "1"),
        ("set.has", r#"["f"]"#, read(Kind::Member, &["f"]), Got::Values(vec![None]), "0"),
        (
            "set.members",
            "[]",
            Action::All { kind: Kind::Member, key: key() },
            Got::Pairs(vec![("f".into(), None), (vec![255].into(), None)]),
            r#"["f",{"base64":"/w=="}]"#,
        ),
        (
            "list.push-left",
            r#"["a", "b"]"#,
            list(List::Push { side: Side::Left, values: vec!["a".into(), "b".into()], only_there: false }),
            Got::Int(2),
            "2",
        ),
        (
            "list.push-right",
            r#"["a"]"#,
            list(List::Push { side: Side::Right, values: vec!["a".into()], only_there: false }),
            Got::Int(3),
            "3",
        ),
        (
            "list.range",
            r#"["0", "-1"]"#,
            list(List::Range { first: 0, last: -1 }),
            Got::Values(vec![value("b"), value("a")]),
            r#"["b","a"]"#,
        ),
        ("list.length", "[]", list(List::Length), Got::Int(2), "2"),
        ("list.set", r#"["1", "x"]"#, list(List::Set { index: 1, value: "x".into() }), Got::Done, "null"),
        ("list.remove", r#"["0", "x"]"#, list(List::Remove { count: 0, value: "x".into() }), Got::Int(1), "1"),
        ("list.trim", r#"["0", "9"]"#, list(List::Trim { first: 0, last: 9 }), Got::Done, "null"),
        (
            "list.insert",
            r#"["after", "a", "b"]"#,
            list(List::Insert { side: Side::Right, pivot: "a".into(), value: "b".into() }),
            Got::Int(-1),
            "-1",
        ),
        ("expire", r#"["70"]"#, Action::End { key: key(), end: Some(Span::millis(70)) }, Got::Int(1), "1"),
        ("persist", "[]", Action::End { key: key(), end: None }, Got::Int(0), "0"),
        ("ends", "[]", Action::Left { key: key() }, Got::Left(Some(Some(Span::millis(7)))), "7"),
        ("ends", "[]", Action::Left { key: key() }, Got::Left(None), "null"),
        ("type", "[]", Action::Kind { key: key() }, Got::Kind(Some(Kind::Field)), r#""hash""#),
    ] {
        let body = format!(r#"{{"function": "{function}", "args": {args}}}"#);
        let (status, text, asked) = soft(reply, "POST /v1/ns/carts/apply/k", &[], &body);
        assert_eq!((status, text), (200, format!(r#"{{"result":{result}}}"#)), "{body}");
        assert_eq!(asked, Some(action), "{body}");
    }
    for (body, says) in [
        (r#"{"function": "nosuch"}"#, "there are: number.add"),
        (r#"{"function": "hash.set", "args": ["f"]}"#, "hash.set takes: field value ..."),
        (r#"{"function": "number.add", "args": ["x"]}"#, "number.add takes: NUMBER"),
        (r#"{"function": "set.add"}"#, "set.add takes: member ..."),
        (r#"{"function": "list.insert", "args": ["beside", "a", "b"]}"#, "list.insert takes: before|after"),
        (r#"{"function": "expire", "args": ["0"]}"#, "expire takes: MS"),
        ("[]", "the body must be"),
    ] {
        let (status, text, asked) = soft(Got::Int(0), "POST /v1/ns/carts/apply/k", &[], body);
        assert!(status == 400 && asked.is_none() && text.contains(says), "{body}: {status} {text}");
    }
}

#[test]
fn keys_come_in_pages() {
    let keys = vec![(Bytes::from("a1"), Kind::Member), (Bytes::from("b"), Kind::Register)];
    let page = |cursor| Got::Page { cursor, keys: keys.clone() };
    let (status, text, action) = soft(page(18), "GET /v1/ns/carts/keys?prefix=a&limit=7&after=9", &[], "");
    let expected = serde_json::json!({"keys": [{"key": "a1", "type": "set"}], "after": "18"});
    assert_eq!((status, serde_json::from_str::<serde_json::Value>(&text).unwrap()), (200, expected));
    assert_eq!(action, Some(Action::Scan { cursor: 9, count: 7 }));
    assert!(!soft(page(0), "GET /v1/ns/carts/keys", &[], "").1.contains("after"), "it was the last one");
    for query in ["limit=0", "limit=10001", "after=x", "reverse=true"] {
        let (status, text, action) = soft(page(0), &format!("GET /v1/ns/carts/keys?{query}"), &[], "");
        assert!(status == 400 && action.is_none(), "{query}: {text}");
    }
}

#[test]
fn what_only_other_classes_offer_is_refused() {
    for (line, headers, says) in [
        ("PUT /v1/ns/carts/keys/a", &[("coppice-lease-ms", "5")][..], "in class soft Coppice-Ends-Ms says when"),
        ("PUT /v1/ns/carts/keys/a", &[("if-none-match", "*")], "belongs in class linear"),
        ("DELETE /v1/ns/carts/keys/a", &[("if-match", "\"7\"")], "have no versions"),
        ("PUT /v1/ns/carts/keys/a", &[("idempotency-key", "x")], "has no memory"),
        ("PUT /v1/ns/carts/keys/a", &[("coppice-ends-ms", "0")], "must be a positive number"),
        ("POST /v1/ns/carts/touch/a", &[], "is of class soft, and class session alone"),
        ("POST /v1/ns/carts/mget", &[], "is of class soft, and class linear alone"),
        ("GET /v1/ns/carts/watch?after=%20", &[], "a cursor"),
        ("GET /v1/ns/carts/watch?key=a", &[], "unknown field"),
    ] {
        let (status, text, action) = soft(Got::Done, line, headers, "v");
        assert!(status == 400 && action.is_none() && text.contains(says), "{line}: {text}");
    }
    let (status, _, _) = soft(Got::Done, "PUT /v1/ns/mail/keys/a", &[], "v");
    assert_eq!(status, 401, "a token of another namespace");
}

#[test]
fn who_comes_with_a_foreign_cursor_is_to_begin_anew() {
    let refused = Outcome::Refused(Refused::wrong(state::soft::NO_CURSOR));
    let (status, text, _) = soft_outcome(refused, "GET /v1/ns/carts/watch?after=AQ", &[], "");
    assert!(status == 410 && text.contains(r#""type":"compacted""#), "{status} {text}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_changes_and_how_far_one_is() {
    let put = |key: &str, kind, element: &str, value: Option<&[u8]>| {
        let value = Some(value.map(Bytes::copy_from_slice));
        let (key, element) = (key.to_owned().into(), element.to_owned().into());
        Change { key, kind, element, value, why: None, lost: Vec::new(), did: Did::Put, is_last: false }
    };
    let first = Changes {
        is_reset: true,
        changes: vec![
            put("flag", Kind::Register, "", Some(b"on")),
            put("online", Kind::Member, "ann", None),
            put("seen", Kind::Score, "ann", Some(&1.5f64.to_be_bytes())),
        ],
        cursor: Bytes::from_static(b"\x01"),
        is_more: true,
    };
    let gone = Change { value: None, why: Some(Why::Ended), ..put("online", Kind::Member, "ann", None) };
    let (score, long) = (Some(Bytes::copy_from_slice(&2f64.to_be_bytes())), None);
    let won = put("seen", Kind::Score, "ann", Some(&3f64.to_be_bytes()));
    let won = Change { why: Some(Why::Repair), lost: vec![score, long], ..won };
    let second = Changes { changes: vec![gone, won], cursor: Bytes::from_static(b"\x02"), ..Changes::default() };
    let busy = Outcome::Refused(Refused::busy("a moment", Span::millis(5)));
    let over = Outcome::Refused(Refused::wrong("the namespace was taken out of the declaration"));
    let (toy, router) =
        soft_toy(vec![Outcome::Done(Got::Changes(first)), busy, Outcome::Done(Got::Changes(second)), over]);
    let response = call(&router, request("GET /v1/ns/carts/watch?prefix=f%2F&after=_w", &[CARTS], "")).await;
    let text = text(response).await;
    let expected = [
        r#"event: reset|data: {}"#,
        r#"event: put|data: {"key":"flag","type":"string","value":"on"}"#,
        r#"event: put|data: {"element":"ann","key":"online","type":"set"}"#,
        r#"event: put|data: {"element":"ann","key":"seen","type":"zset","value":"1.5"}"#,
        r#"event: cursor|id: AQ|data: {"cursor":"AQ","more":true}"#,
        r#"event: remove|data: {"element":"ann","key":"online","type":"set","why":"ended"}"#,
        r#"event: put|data: {"element":"ann","key":"seen","lost":["2",null],"type":"zset","value":"3","why":"repair"}"#,
        r#"event: cursor|id: Ag|data: {"cursor":"Ag"}"#,
        r#"event: error|data: {"error":"the namespace was taken out of the declaration","type":"ended"}"#,
    ];
    let told: Vec<String> = text.split("\n\n").filter(|e| !e.is_empty()).map(|e| e.replace('\n', "|")).collect();
    assert_eq!(told, expected);
    let asked = toy.asked.lock().unwrap();
    let watches: Vec<&Watch> = asked
        .iter()
        .map(|ask| match ask {
            Ask::Soft(op) => match &op.action {
                Action::Watch(watch) => watch,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((&*watches[0].prefix, watches[0].after.as_deref()), (&b"f/"[..], Some(&b"\xff"[..])));
    assert_eq!((watches[0].hold, watches[1].hold), (Span::ZERO, state::soft::limits::WATCH_HOLD));
    let after: Vec<_> = watches[1..].iter().map(|watch| watch.after.as_deref()).collect();
    assert_eq!(after, [Some(&b"\x01"[..]), Some(b"\x01"), Some(b"\x02")], "a refused question is asked again");
}

#[test]
fn what_is_held_is_let_go_when_the_answer_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (toy, router) = soft_toy(vec![Outcome::Done(Got::Int(1)), Outcome::Done(Got::Int(1))]);
        let ask = |body: &str| request("POST /v1/ns/carts/hold/online", &[CARTS], body);
        for wrong in ["{}", r#"{"members": []}"#, r#"{"members": ["a"], "fields": {"b": "c"}}"#, r#"{"keys": 1}"#] {
            assert_eq!(call(&router, ask(wrong)).await.status(), 400, "{wrong}");
        }
        let answer = call(&router, ask(r#"{"fields": {"ann": "phone"}}"#)).await;
        assert_eq!(answer.status(), 200);
        let actions = || -> Vec<Action> {
            let asked = toy.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
            asked.into_iter().map(|ask| if let Ask::Soft(op) = ask { op.action } else { panic!("{ask:?}") }).collect()
        };
        let held = actions();
        let [Action::Hold { kind: Kind::Field, pairs, holder, .. }] = &held[..] else { panic!("{held:?}") };
        assert_eq!(pairs, &[("ann".into(), Some("phone".into()))]);
        drop(answer);
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(actions(), [Action::LetGo { holder: *holder }]);
    });
}

#[test]
fn a_read_says_how_old_it_may_be() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let of = |reply| Outcome::Done(Got::Aged { age: Span::millis(90), of: Box::new(reply) });
        let old = Outcome::Refused(Refused::busy("what this node knows may be 900 ms old", Span::millis(20)));
        let (toy, router) = soft_toy(vec![
            of(Got::Values(vec![Some("on".into())])),
            of(Got::Values(vec![None])),
            of(Got::Pairs(vec![("ann".into(), None)])),
            of(Got::Page { cursor: 0, keys: Vec::new() }),
            of(Got::WrongKind),
            old,
        ]);
        let members = r#"{"function": "set.members"}"#;
        for (line, body, status, age) in [
            ("GET /v1/ns/carts/keys/a?stale=200ms", "", 200, Some("90")),
            ("GET /v1/ns/carts/keys/a?stale=200ms", "", 404, Some("90")),
            ("POST /v1/ns/carts/apply/s?stale=200ms", members, 200, Some("90")),
            ("GET /v1/ns/carts/keys?stale=200ms", "", 200, Some("90")),
            ("GET /v1/ns/carts/keys/s?stale=200ms", "", 409, None),
            ("GET /v1/ns/carts/keys/a?stale=200ms", "", 503, None),
        ] {
            let response = call(&router, request(line, &[CARTS], body)).await;
            assert_eq!(response.status().as_u16(), status, "{line}");
            let told = response.headers().get("coppice-age-ms").map(|age| age.to_str().unwrap());
            assert_eq!(told, age, "{line}");
            let asked = toy.asked.lock().unwrap().pop();
            assert!(matches!(asked, Some(Ask::Soft(Op { stale: Some(stale), .. })) if stale == Span::millis(200)));
        }
        let add = r#"{"function": "number.add", "args": ["1"]}"#;
        for (line, body, says) in [
            ("POST /v1/ns/carts/apply/n?stale=200ms", add, "stale is for what reads"),
            ("GET /v1/ns/carts/keys/a?stale=soon", "", "stale: "),
            ("GET /v1/ns/carts/keys/a?nosuch=1", "", "nosuch"),
        ] {
            let response = call(&router, request(line, &[CARTS], body)).await;
            let (status, text) = (response.status().as_u16(), text(response).await);
            assert!(status == 400 && text.contains(says), "{line}: {status} {text}");
            assert!(toy.asked.lock().unwrap().is_empty(), "{line}");
        }
    });
}
