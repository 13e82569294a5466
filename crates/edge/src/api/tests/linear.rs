//! What requests on values of class `linear` become, and how what comes of them reads.

use state::linear::{Over, Ran, Reply, Wrong};

use super::*;

/// A node that has a namespace `carts` of class `linear` and answers so.
fn linear(replies: Vec<Reply>, line: &str, body: &str) -> (u16, Vec<(String, String)>, String, Option<Ask>) {
    linear_asked(vec![replies], request(line, &[CARTS], body))
}

/// The first of the answers comes last.
fn linear_asked(answers: Vec<Vec<Reply>>, request: Request<Body>) -> (u16, Vec<(String, String)>, String, Option<Ask>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let answers = answers.into_iter().map(|replies| Answer::Linear(Outcome::Done(Ran::Done(replies)))).collect();
        let (toy, router) = toy(answers);
        toy.declare("carts", NamespaceSpec::new_linear());
        toy.view.send_modify(|view| Arc::make_mut(view).namespaces = vec![carts(2)]);
        let response = call(&router, request).await;
        let headers =
            response.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_string())).collect();
        let status = response.status().as_u16();
        let asked = toy.asked.lock().unwrap().pop();
        (status, headers, text(response).await, asked)
    })
}

/// With so many shards.
pub(super) fn carts(shards: u64) -> node::view::NamespaceView {
    let shard =
        |nth| serde_json::json!({"name": "", "from": format!("{nth:x}"), "to": format!("{nth:x}"), "members": []});
    let shards: Vec<_> = (0..shards).map(shard).collect();
    serde_json::from_value(
        serde_json::json!({"name": "carts", "class": "linear", "lease_ms": 0, "promise": "", "shards": shards}),
    )
    .unwrap()
}

fn stored(is: i64, old: Reply) -> Vec<Reply> {
    vec![Reply::List(vec![Reply::Int(is), old, Reply::Int(9)])]
}

#[test]
fn a_put_gives_the_old_value_to_who_asks_for_it() {
    let put = "PUT /v1/ns/carts/keys/a?return=old";
    let (status, headers, text, asked) = linear(stored(1, Reply::Bytes("before".into())), put, "new");
    assert_eq!((status, &*text, header(&headers, "etag")), (200, "before", "\"9\""));
    assert_eq!(header(&headers, "content-type"), "application/octet-stream");
    let Some(Ask::Linear(op)) = asked else { panic!("{asked:?}") };
    assert_eq!(op.steps[0].args, ["new", "always", "none", "old"]);
    let (status, _, text, _) = linear(stored(1, Reply::Nil), put, "new");
    assert_eq!((status, &*text), (204, ""), "there was none");
    let (status, _, text, _) = linear(stored(1, Reply::Bytes("".into())), put, "new");
    assert_eq!((status, &*text), (200, ""), "there was an empty one");
    let (status, headers, ..) = linear(stored(0, Reply::Bytes("before".into())), put, "new");
    assert_eq!((status, header(&headers, "etag")), (412, "\"9\""));
    let (_, _, _, asked) = linear(stored(1, Reply::Nil), "PUT /v1/ns/carts/keys/a", "new");
    let Some(Ask::Linear(op)) = asked else { panic!("{asked:?}") };
    assert_eq!(op.steps[0].args.len(), 3, "nobody wants it");
    assert_eq!(linear(Vec::new(), "PUT /v1/ns/carts/keys/a?return=new", "x").0, 400);
    let of_session = ask(None, request(put, &[CARTS], "x"));
    assert_eq!((of_session.0, of_session.2.contains("class linear")), (400, true), "{}", of_session.2);
}

#[test]
fn several_values_are_read_at_once() {
    let look = |value, left| Reply::List(vec![value, Reply::Int(7), Reply::Int(left)]);
    let replies = vec![
        look(Reply::Bytes("one".into()), -1),
        Reply::Nil,
        look(Reply::Bytes(vec![0xff].into()), 50),
        look(Reply::Wrong(Wrong::Type), -1),
        Reply::Int(40),
    ];
    let keys = r#"{"keys": ["a", "b", {"base64": "/w=="}, "list"]}"#;
    let (status, headers, text, asked) = linear(replies, "POST /v1/ns/carts/mget?stale=500ms", keys);
    assert_eq!((status, header(&headers, "coppice-age-ms")), (200, "40"), "{text}");
    let body: serde_json::Value = serde_json::from_str(&text).unwrap();
    let values = &body["values"];
    assert_eq!(values[0], serde_json::json!({"value": "one", "version": 7}));
    assert_eq!(values[1], serde_json::Value::Null);
    assert_eq!(values[2], serde_json::json!({"value": {"base64": "/w=="}, "version": 7, "ends_ms": 50}));
    assert!(values[3]["error"].as_str().unwrap().starts_with("WRONGTYPE"));
    let Some(Ask::Linear(op)) = asked else { panic!("{asked:?}") };
    let functions: Vec<_> = op.steps.iter().map(|step| step.function).collect();
    assert_eq!((functions, op.over), (vec!["look", "look", "look", "look", "age"], Over::Each));
    assert!(op.steps[2].key[..] == [0xff] && op.stale == Some(base::Span::millis(500)));
    for wrong in [r#"{"keys": "a"}"#, "{}", &format!("{{\"keys\": {:?}}}", vec!["k"; 16_384])] {
        assert_eq!(linear(Vec::new(), "POST /v1/ns/carts/mget", wrong).0, 400, "{:.60}", wrong);
    }
}

#[test]
fn what_is_done_for_a_request_matters_as_much_as_it() {
    for (line, body) in LINEAR_ASKS.into_iter().chain([("GET /v1/ns/carts/watch?key=a", "")]) {
        let with = |headers: &[(&str, &str)]| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (toy, router) = toy(Vec::new());
                toy.declare("carts", NamespaceSpec::new_linear());
                let status = call(&router, request(line, &[&[CARTS], headers].concat(), body)).await.status().as_u16();
                (status, toy.asked.lock().unwrap().pop())
            })
        };
        for (headers, priority) in [
            (&[][..], Priority::NORMAL),
            (&[("coppice-priority", "0")], Priority::LOWEST),
            (&[("coppice-priority", "9")], Priority(6)),
        ] {
            let (_, asked) = with(headers);
            let Some(Ask::Linear(op)) = asked else { panic!("{line}: {asked:?}") };
            assert_eq!(op.priority, priority, "{line}");
        }
        for wrong in ["10", "high", "-1"] {
            let (status, asked) = with(&[("coppice-priority", wrong)]);
            assert!(status == 400 && asked.is_none(), "{line} {wrong}: {status} {asked:?}");
        }
    }
}

#[test]
fn who_may_not_wait_sees_changes_nevertheless() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let done = |parts| Answer::Linear(Outcome::Done(Ran::Done(vec![Reply::List(parts)])));
        let put =
            vec![Reply::Int(6), Reply::Bytes("a".into()), Reply::Bytes("string".into()), Reply::Bytes("v".into())];
        let busy = || Answer::Linear(Outcome::Refused(base::Refused::busy("so many wait", base::Span::secs(1))));
        let nothing = || done(vec![Reply::Int(5), Reply::List(vec![])]);
        // The first is answered last.
        let answers =
            vec![done(vec![Reply::Int(6), Reply::List(vec![Reply::List(put)])]), busy(), nothing(), busy(), nothing()];
        let (toy, router) = toy(answers);
        toy.declare("carts", NamespaceSpec::new_linear());
        let mut body = call(&router, request("GET /v1/ns/carts/watch?key=a", &[CARTS], "")).await.into_body();
        let mut seen = String::new();
        while !seen.contains("event: put") {
            let frame = tokio::time::timeout(std::time::Duration::from_secs(10), body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("no change is told: {seen}")).expect("it goes on").unwrap();
            seen += &String::from_utf8_lossy(frame.data_ref().expect("no trailers"));
        }
        let how = |ask: &Ask| if let Ask::Linear(op) = ask { op.steps[0].args[1].clone() } else { panic!("{ask:?}") };
        let how: Vec<_> = toy.asked.lock().unwrap().iter().map(how).collect();
        assert_eq!(how[..5], ["now", "wait", "now", "wait", "now"]);
    });
}

/// What it is asked to do.
fn steps(asked: Option<Ask>) -> Vec<state::linear::Step> {
    let Some(Ask::Linear(op)) = asked else { panic!("{asked:?}") };
    op.steps
}

#[test]
fn keys_are_the_bytes_that_were_encoded() {
    let key = &b"a/\xff\0+ %zz"[..];
    let quoted = "a/%ff%00+%20%zz";
    for (line, body, replies) in [
        ("GET /v1/ns/carts/keys/", "", vec![Reply::Nil, Reply::Int(0)]),
        ("PUT /v1/ns/c%61rts/keys/", "x", stored(1, Reply::Nil)),
        ("DELETE /v1/ns/carts/keys/", "", vec![Reply::Int(1)]),
        ("POST /v1/ns/carts/apply/", r#"{"function": "number.add", "args": ["1"]}"#, vec![Reply::Int(1)]),
    ] {
        let (.., asked) = linear(replies, &format!("{line}{quoted}"), body);
        assert_eq!(steps(asked)[0].key, key, "{line}");
    }
    let (status, _, _, asked) =
        ask(session(state::session::Reply::Absent), request("GET /v1/ns/carts/keys/%fe/", &[CARTS], ""));
    let Some(Ask::Session(op)) = asked else { panic!("{asked:?}") };
    assert_eq!((status, &op.key[..]), (404, &b"\xfe/"[..]), "of a session, too");
}

#[test]
fn pages_go_on_behind_keys_that_are_no_text() {
    let page = || vec![Reply::List(vec![Reply::Bytes(b"\xff"[..].into())]), Reply::Int(1), Reply::Int(0)];
    let (status, _, text, asked) = linear(page(), "GET /v1/ns/carts/keys?prefix=%ff&after=%FF%00+&limit=1", "");
    assert_eq!(steps(asked)[0].args[..2], [&b"\xff"[..], &b"\xff\0 "[..]]);
    assert_eq!((status, &*text), (200, r#"{"after":{"base64":"/w=="},"keys":[{"base64":"/w=="}],"version":1}"#));
    let none = || vec![Reply::List(vec![Reply::Int(7), Reply::List(vec![])])];
    let (.., asked) =
        linear_asked(vec![none(), none()], request("GET /v1/ns/carts/watch?prefix=%fe&after=7.7", &[CARTS], ""));
    assert_eq!(steps(asked)[0].args[2], b"\xfe"[..]);
    let (.., asked) = linear(none(), "GET /v1/ns/carts/watch?key=%fe", "");
    assert_eq!(steps(asked)[0].key, b"\xfe"[..]);
}

#[test]
fn a_page_has_as_many_keys_as_were_asked_for_or_the_bound_is_named() {
    let none = || vec![Reply::List(vec![]), Reply::Int(1), Reply::Int(0)];
    for (limit, expect) in [("0", 400), ("1", 200), ("1000", 200), ("1001", 400), ("100000", 400)] {
        let (status, _, text, asked) = linear(none(), &format!("GET /v1/ns/carts/keys?limit={limit}"), "");
        assert_eq!(status, expect, "{limit}: {text}");
        if expect == 200 {
            assert_eq!(steps(asked)[0].args[2], limit.as_bytes());
        } else {
            assert!(text.contains(&format!("limit must be 1 to 1000 keys, not {limit}")) && asked.is_none(), "{text}");
        }
    }
}

#[test]
fn a_removal_that_may_not_be_tells_which_version_there_is() {
    let remove = |replies| {
        linear_asked(vec![replies], request("DELETE /v1/ns/carts/keys/a", &[CARTS, ("if-match", "\"7\"")], ""))
    };
    let (status, headers, text, asked) = remove(vec![Reply::Int(0), Reply::Int(9)]);
    assert_eq!((status, header(&headers, "etag")), (412, "\"9\""), "{text}");
    assert_eq!(steps(asked).iter().map(|step| step.function).collect::<Vec<_>>(), ["remove", "version"]);
    let (status, headers, text, _) = remove(vec![Reply::Int(0), Reply::Int(0)]);
    assert_eq!((status, header(&headers, "etag"), text.contains("there is no value")), (412, "", true), "{text}");
    assert_eq!(remove(vec![Reply::Int(1), Reply::Int(0)]).0, 204);
    let (status, _, _, asked) = linear(vec![Reply::Int(0)], "DELETE /v1/ns/carts/keys/a", "");
    assert_eq!((status, steps(asked).len()), (404, 1), "nobody wants to know");
}

#[test]
fn a_watch_that_missed_something_says_where_it_may_go_on() {
    let upto = |version| vec![Reply::List(vec![Reply::Int(version), Reply::List(vec![])])];
    let gone = || vec![Reply::List(vec![Reply::Int(40), Reply::Nil, Reply::Int(30)])];
    let watch = |answers, place: &str| {
        let line = format!("GET /v1/ns/carts/watch?{place}");
        let (status, _, text, _) = linear_asked(answers, request(&line, &[CARTS], ""));
        (status, serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    let (status, said) = watch(vec![gone()], "key=a&after=7");
    assert_eq!((status, &said["type"], &said["version"]), (410, &"compacted".into(), &40.into()), "{said}");
    // Of its two shards the second one was compacted: what the first one has is read again, too.
    let (status, said) = watch(vec![gone(), upto(12)], "prefix=&after=11.7");
    assert_eq!((status, &said["type"], &said["version"]), (410, &"compacted".into(), &"12.40".into()), "{said}");
    let (status, said) = watch(vec![upto(12), gone()], "prefix=&after=7.11");
    assert_eq!((status, &said["version"]), (410, &"40.12".into()), "{said}");
    // These are versions of fewer shards, and of more.
    for place in ["7", "1.2.3"] {
        let (status, said) = watch(vec![upto(40), upto(12)], &format!("prefix=&after={place}"));
        assert_eq!((status, &said["type"], &said["version"]), (410, &"compacted".into(), &"12.40".into()), "{said}");
        assert!(said["retry_after_ms"].is_null(), "{said}");
    }
    assert_eq!(watch(vec![], "key=a&after=1.2").0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_behind_a_split_begins_when_this_node_has_heard_of_it() {
    let none = || Answer::Linear(Outcome::Done(Ran::Done(vec![Reply::List(vec![Reply::Int(7), Reply::List(vec![])])])));
    let (toy, router) = toy(vec![none(), none(), none()]);
    toy.declare("carts", NamespaceSpec::new_linear());
    let watch = || call(&router, request("GET /v1/ns/carts/watch?prefix=&after=7.7.7", &[CARTS], ""));
    let unknown = watch().await;
    assert_eq!((unknown.status().as_u16(), unknown.headers().contains_key("retry-after")), (503, true));
    let heard = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        toy.view.send_modify(|view| Arc::make_mut(view).namespaces = vec![carts(3)]);
    };
    let (response, ()) = tokio::join!(watch(), heard);
    assert_eq!(response.status(), 200);
}

#[test]
fn what_is_for_the_other_class_says_what_to_use_instead() {
    let (ends, lease) = (("coppice-ends-ms", "5000"), ("coppice-lease-ms", "5000"));
    for (line, headers, instead) in [
        ("POST /v1/ns/carts/session", &[][..], "/v1/ns/carts/keys/KEY"),
        ("GET /v1/ns/carts/session", &[], "/v1/ns/carts/keys/KEY"),
        ("DELETE /v1/ns/carts/session", &[], "/v1/ns/carts/keys/KEY"),
        ("POST /v1/ns/carts/session/touch", &[], "/v1/ns/carts/keys/KEY"),
        ("POST /v1/ns/carts/touch/a", &[], "expire"),
        ("PUT /v1/ns/carts/keys/a", &[lease], "Coppice-Ends-Ms"),
    ] {
        let (status, _, text, asked) = linear_asked(vec![], request(line, &[&[CARTS], headers].concat(), "{}"));
        assert!(status == 400 && asked.is_none(), "{line}: {status} {text}");
        assert!(text.contains("class session") && text.contains(instead), "{line}: {text}");
    }
    for (line, headers, instead) in [
        ("POST /v1/ns/carts/apply/a", &[][..], "/v1/ns/carts/keys/KEY"),
        ("POST /v1/ns/carts/txn", &[], "/v1/ns/carts/keys/KEY"),
        ("POST /v1/ns/carts/mget", &[], "/v1/ns/carts/keys/KEY"),
        ("GET /v1/ns/carts/keys", &[], "/v1/ns/carts/keys/KEY"),
        ("GET /v1/ns/carts/watch?key=a", &[], "/v1/ns/carts/keys/KEY"),
        ("PUT /v1/ns/carts/keys/a", &[ends], "Coppice-Lease-Ms"),
        ("POST /v1/ns/carts/touch/a", &[ends], "Coppice-Lease-Ms"),
        ("POST /v1/ns/carts/session", &[ends], "Coppice-Lease-Ms"),
    ] {
        let (status, _, text, asked) = ask(None, request(line, &[&[CARTS], headers].concat(), "{}"));
        assert!(status == 400 && asked.is_none(), "{line}: {status} {text}");
        assert!(text.contains("linear") && text.contains(instead), "{line}: {text}");
    }
}

#[test]
fn arguments_that_are_no_text_are_told_what_is() {
    let body = r#"{"function": "lease.claim", "args": [0, 100]}"#;
    let (status, _, text, _) = linear(vec![], "POST /v1/ns/carts/apply/a", body);
    assert_eq!(status, 400);
    assert!(text.contains("numbers too"), "{text}");
}

/// They come from the leader of a group, which is another node.
#[test]
fn an_answer_that_is_none_to_what_was_asked_is_an_error_and_ends_nothing() {
    let list = |parts: &[Reply]| Reply::List(parts.to_vec());
    let odd = [
        vec![],
        vec![Reply::Nil],
        vec![Reply::Int(-1)],
        vec![list(&[])],
        vec![list(&[Reply::Nil, Reply::Nil])],
        vec![list(&[list(&[]), Reply::Int(1), Reply::Bytes("x".into())]), Reply::Nil],
        vec![list(&[Reply::Int(7), list(&[Reply::Int(8)])])],
        vec![list(&[Reply::Int(7), list(&[list(&[Reply::Int(8), Reply::Nil, Reply::Nil, Reply::Nil])])])],
        vec![Reply::Nil, Reply::Nil, Reply::Nil, Reply::Nil],
    ];
    let asked = [
        ("GET /v1/ns/carts/keys/a", ""),
        ("GET /v1/ns/carts/keys/a?stale=1s", ""),
        ("PUT /v1/ns/carts/keys/a", "x"),
        ("DELETE /v1/ns/carts/keys/a", ""),
        ("GET /v1/ns/carts/keys?prefix=", ""),
        ("POST /v1/ns/carts/mget", r#"{"keys": ["a"]}"#),
        ("GET /v1/ns/carts/watch?key=a&after=3", ""),
    ];
    for (line, body) in asked {
        let statuses: Vec<u16> = odd.iter().map(|replies| linear(replies.clone(), line, body).0).collect();
        assert!(
            statuses.contains(&504) || line.starts_with("DELETE") || line.contains("watch"),
            "{line}: {statuses:?}"
        );
        assert!(statuses.iter().all(|status| [200, 204, 404, 412, 504].contains(status)), "{line}: {statuses:?}");
    }
}

#[test]
fn what_is_over_a_quota_has_a_status_of_its_own() {
    let put = "PUT /v1/ns/carts/keys/a";
    let over = vec![Reply::Wrong(state::linear::Wrong::KeysMax)];
    let (status, headers, text, _) = linear(over, put, "new");
    assert!(status == 507 && text.contains(r#""error":"keys_max of this namespace"#), "{status} {text}");
    assert_eq!(header(&headers, "retry-after"), "");
    let problem = |refused| super::super::problem::done::<()>(Outcome::Refused(refused)).unwrap_err();
    let bytes = problem(::class::Bound::Bytes.refused());
    assert_eq!((bytes.status.as_u16(), bytes.retry_after), (507, None));
    assert!(bytes.error.starts_with("bytes_max of this namespace"), "{}", bytes.error);
    let rate = problem(
        base::Refused::busy(format!("{}, so", node::used::OVER_RATE), base::Span::millis(7))
            .because(base::Because::Rate),
    );
    assert_eq!((rate.status.as_u16(), rate.retry_after), (429, Some(base::Span::millis(7))));
}
