//! What of the view is shown to whom.

use node::view::{CloneState, CloneView, HotKeyView, NamespaceView, QueueView, ServiceView, WorkedView};
use serde_json::{Value, json};

use super::*;

const ALICE: &str = "user:alice@example.com:pin";
const QUEUE: &str = "mails of alice";

fn secrets(view: &mut Arc<View>) {
    let namespace = |name: &str| {
        let mut namespace: NamespaceView =
            serde_json::from_value(json!({"name": name, "class": "linear", "lease_ms": 0, "promise": "p"})).unwrap();
        namespace.hot = vec![HotKeyView { key: ALICE.into(), rate: 476, waiters: 0 }];
        namespace.queues = vec![QueueView { name: QUEUE.into(), dead: 2, ..QueueView::default() }];
        namespace
    };
    let clone = CloneView { last_output: vec!["secret=hunter2".into()], state: CloneState::Backoff, ..clone() };
    let mut service: ServiceView =
        serde_json::from_value(json!({"name": "shop", "wanted": 1, "clones": [], "at": []})).unwrap();
    service.clones = vec![clone];
    let worked = || WorkedView { namespace: "carts".into(), queue: QUEUE.into(), ..WorkedView::default() };
    service.queues = vec![worked()];
    *view = Arc::new(View {
        namespaces: vec![namespace("carts"), namespace("webs")],
        services: vec![service],
        tokens: Arc::new([("carts".to_string(), "secret".to_string()), ("webs".into(), "other".into())].into()),
        ..View::clone(view)
    });
}

fn clone() -> CloneView {
    let clone = json!({"name": "shop/0", "node": "n1", "state": "backoff", "pid": 1, "port": 1, "restarts": 3,
        "since_ms": 5, "last_exit": "signal 9", "last_output": []});
    serde_json::from_value(clone).unwrap()
}

/// The answer's JSON; of a stream of events, of its first one.
async fn shown(router: &Router, line: &str, headers: &[(&str, &str)]) -> Value {
    let mut response = call(router, request(line, headers, "")).await;
    assert_eq!(response.status(), 200, "{line}");
    let bytes = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    serde_json::from_str(text.strip_prefix("event: view\ndata: ").unwrap_or(text).trim()).unwrap()
}

#[tokio::test]
async fn keys_are_for_who_has_the_namespace_and_output_is_for_the_operator() {
    let (toy, router) = toy(vec![]);
    toy.view.send_modify(secrets);
    let webs = ("authorization", "Bearer other");
    let wrong = ("authorization", "Bearer nothing");
    // Who asks, and whether the keys of `carts`, of `webs`, and output are shown.
    for (headers, carts, webs_shown, output) in [
        (&[][..], false, false, false),
        (&[wrong], false, false, false),
        (&[CARTS], true, false, false),
        (&[webs], false, true, false),
        (&[ROOT], true, true, true),
    ] {
        for line in ["GET /v1/status", "GET /v1/events", "GET /v1/ns"] {
            let json = shown(&router, line, headers).await;
            let all = if line == "GET /v1/ns" { &json } else { &json["namespaces"] };
            let keys: Vec<&Value> = all.as_array().unwrap().iter().map(|of| &of["hot"][0]["key"]).collect();
            let is_shown = [*keys[0] == ALICE, *keys[1] == ALICE];
            assert_eq!(is_shown, [carts, webs_shown], "{line} {headers:?}: {json}");
            let queues = all.as_array().unwrap().iter().map(|of| of["queues"][0]["name"] == QUEUE);
            assert_eq!(queues.collect::<Vec<_>>(), [carts, webs_shown], "{line} {headers:?}: {json}");
            assert_eq!(all[0]["queues"][0]["is_hidden"] == true, !carts, "{json}");
            let worked = &json["services"][0]["queues"][0]["queue"];
            assert_eq!(*worked == QUEUE, carts && line != "GET /v1/ns", "{line} {headers:?}: {json}");
            assert_eq!(all[0]["hot"][0]["rate"], 476);
            assert_eq!(json.to_string().contains("hunter2"), output && line != "GET /v1/ns", "{line} {headers:?}");
        }
        let json = shown(&router, "GET /v1/ns/carts", headers).await;
        assert_eq!(json["hot"][0]["key"] == ALICE, carts, "{headers:?}");
    }
}

#[tokio::test]
async fn a_hidden_key_has_a_hash_that_stays_and_says_nothing_without_the_clusters_secret() {
    let (toy, router) = toy(vec![]);
    toy.view.send_modify(secrets);
    let hash = async || {
        let json = shown(&router, "GET /v1/ns", &[]).await;
        [0, 1].map(|of| json[of]["hot"][0]["key"].as_str().unwrap().to_owned())
    };
    let first = hash().await;
    assert!(first.iter().all(|key| key.len() == 8 && key.bytes().all(|b| b.is_ascii_hexdigit())), "{first:?}");
    assert_ne!(first[0], first[1], "of another namespace");
    assert_eq!(hash().await, first);
    toy.view.send_modify(|view| *view = Arc::new(View { admin_token: "another".into(), ..View::clone(view) }));
    assert_ne!(hash().await, first);
}

#[tokio::test]
async fn the_operator_has_dead_jobs_wait_again_by_the_hash_that_stands_for_their_queue() {
    use state::linear::{Ran, Reply};
    let replies = vec![Reply::List(Vec::new()), Reply::List(vec![Reply::Int(2), Reply::Int(0)])];
    let (toy, router) = toy(vec![Answer::Linear(Outcome::Done(Ran::Done(replies)))]);
    toy.declare("carts", NamespaceSpec::new_linear());
    toy.view.send_modify(secrets);
    let json = shown(&router, "GET /v1/ns", &[]).await;
    let hash = json[0]["queues"][0]["name"].as_str().unwrap().to_owned();
    let path = format!("POST /v1/ns/carts/queues/{hash}/retry?hidden=true");
    // Whoever has the namespace's token sees names.
    for (line, headers, status) in [
        (path.clone(), &[CARTS][..], 401),
        (path.clone(), &[], 401),
        (path.replace(&hash, "00000000"), &[ROOT], 404),
        (path.replace("/carts/", "/webs/"), &[ROOT], 404),
        (path.replace("true", "maybe"), &[ROOT], 400),
    ] {
        let answer = call(&router, request(&line, headers, "")).await;
        assert_eq!(answer.status().as_u16(), status, "{line} {headers:?}");
    }
    let answer = call(&router, request(&path, &[ROOT], "")).await;
    assert_eq!((answer.status().as_u16(), text(answer).await), (200, r#"{"dead":0,"retried":2}"#.to_owned()));
    let Some(Ask::Linear(op)) = toy.asked.lock().unwrap().pop() else { panic!("nobody was asked") };
    assert!(op.steps.iter().all(|step| step.key == QUEUE), "{op:?}");
}
