//! The API over its router, with a toy node behind it that answers what the test says and keeps what it was asked.

use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, Response};
use base::{Boot, NodeId, Outcome, Priority, Refused, Span, Unknown};
use bytes::Bytes;
use flow::Histogram;
use flow::histogram::Powers;
use flow::stage::Shown;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::service::Service;
use node::view::{NodeState, NodeView, StubView};
use node::{Answer, Applied, Ask, JoinTokenView};
use state::NamespaceSpec;
use state::session::{Action, CookieError, Kind, Lease, Op, Place, Reply, Version, When};
use tokio::sync::watch as channel;

use super::*;
use crate::tls::Pem;

#[path = "tests/cache.rs"]
mod of_cache;
#[path = "tests/certificates.rs"]
mod of_certificates;
#[path = "tests/linear.rs"]
mod of_linear;
#[path = "tests/objects.rs"]
mod of_objects;
#[path = "tests/places.rs"]
mod of_places;
#[path = "tests/rights.rs"]
mod of_rights;
#[path = "tests/shown.rs"]
mod of_shown;
#[path = "tests/soft.rs"]
mod of_soft;
#[path = "tests/sql.rs"]
mod of_sql;

pub(super) struct Toy {
    view: channel::Sender<Arc<View>>,
    answers: Mutex<Vec<Answer>>,
    pub(super) asked: Mutex<Vec<Ask>>,
    /// Of the last ask.
    budget: Mutex<Span>,
    certificates: Mutex<Vec<Pem>>,
}

impl Toy {
    pub(super) fn declare(&self, name: &str, spec: NamespaceSpec) {
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            Arc::make_mut(&mut view.specs).insert(name.to_owned(), spec);
        });
    }
}

impl Backend for Toy {
    fn ask(&self, ask: Ask, budget: Span) -> BoxFuture<'static, Result<Answer, Gone>> {
        *self.budget.lock().unwrap() = budget;
        self.asked.lock().unwrap().push(ask);
        let answer = self.answers.lock().unwrap().pop().ok_or(Gone);
        Box::pin(async { answer })
    }

    fn watch(&self) -> channel::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    fn certificates(&self) -> Vec<Pem> {
        self.certificates.lock().unwrap().clone()
    }

    fn mint(&self) -> Result<Minted, String> {
        Ok(Minted { text: "token-text".into(), secret_hash: [7; 32] })
    }

    fn keep_code(&self, _: String, _: bytes::Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        Box::pin(async { Err("nothing is kept here".into()) })
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<bytes::Bytes>> {
        Box::pin(async { None })
    }

    fn logs(&self, _: logs::Wanted) -> BoxFuture<'static, Result<logs::Gathered, String>> {
        Box::pin(async { Err("there is no service".into()) })
    }
}

pub(super) fn node(name: &str) -> NodeView {
    let addr = "127.0.0.1:1".parse().unwrap();
    NodeView {
        id: NodeId(1),
        name: name.into(),
        state: NodeState::Live,
        boot: Boot(1),
        pid: 1,
        version: "0.1.0".into(),
        level: base::LEVEL,
        doors: node::DoorAddrs::of(|_| Some(addr)).unwrap(),
        load: 12,
        cpu_millis: 0,
        resident_bytes: 0,
        since_ms: 0,
        gauges: Arc::new([("http.requests".to_string(), 42), ("net.links".to_string(), 2)].into()),
        brick: Default::default(),
        disk: None,
        slow_force_ms: None,
        certificate_ends_at_ms: None,
        certificate_fails: false,
        sandbox_lacks: Vec::new(),
        overflow: false,
        drained: false,
        leaving: None,
        waits: None,
    }
}

fn stage() -> Shown {
    let (mut waits, mut counted) = (Powers::default(), Histogram::default());
    [30, 100, 100, 20_000_000].into_iter().for_each(|us| counted.note(Span::micros(us)));
    counted.clear_into(&mut waits);
    Shown { refused: 7, waits, ..Shown::default() }
}

fn view() -> View {
    let mail = NamespaceSpec::Object(state::object::Spec::default());
    let books = NamespaceSpec::Sql(state::sql::Spec { size_max: 1_234_567, ..state::sql::Spec::default() });
    View {
        cluster: "demo".into(),
        me: "n1".into(),
        nodes: vec![node("n1"), node("n\"2")],
        root: node::view::RootView { leader: Some("n1".into()), voters: vec![], version: 3, level: base::LEVEL },
        figures: [("session.writes".into(), 5), ("session.bytes".into(), 6)].into(),
        tokens: Arc::new(
            [("carts", "secret"), ("mail", "post"), ("books", "sesame")]
                .map(|(ns, token)| (ns.to_string(), token.to_string()))
                .into(),
        ),
        specs: Arc::new([("mail".to_owned(), mail), ("books".to_owned(), books)].into()),
        admin_token: "root".into(),
        stages: Arc::new([("session-brick", stage())]),
        stubs: vec![StubView {
            brick: "n3".into(),
            window: 64,
            no_room: 8,
            turned_away: 9,
            full: 10,
            ..StubView::default()
        }],
        ..View::default()
    }
}

pub(super) fn toy(answers: Vec<Answer>) -> (Arc<Toy>, Router) {
    let toy = Arc::new(Toy {
        view: channel::Sender::new(Arc::new(view())),
        answers: Mutex::new(answers),
        asked: Mutex::new(vec![]),
        budget: Mutex::default(),
        certificates: Mutex::default(),
    });
    let pages = Router::new().route("/", get(|| async { "the page" }));
    let meter = Arc::new(Meter::new());
    let functions = Functions::new(&meter);
    (toy.clone(), router(toy, meter, functions, pages))
}

/// `PUT /path` with headers, and a body.
pub(super) fn request(line: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:7070");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

pub(super) async fn call(router: &Router, request: Request<Body>) -> Response<Body> {
    TowerToHyperService::new(router.clone()).call(request).await.unwrap()
}

pub(super) async fn text(response: Response<Body>) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned()
}

/// One request to a node that gives this answer: status and body.
fn ask(answer: Option<Answer>, request: Request<Body>) -> (u16, Vec<(String, String)>, String, Option<Ask>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(answer.into_iter().collect());
        let response = call(&router, request).await;
        let headers =
            response.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_string())).collect();
        let (status, text) = (response.status().as_u16(), text(response).await);
        let asked = toy.asked.lock().unwrap().pop();
        (status, headers, text, asked)
    })
}

fn session(reply: Reply) -> Option<Answer> {
    Some(Answer::Session(Outcome::Done(reply)))
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
}

const VERSION: Version = Version { ms: 1, counter: 2, node: NodeId(3) };
const TAG: &str = "\"0000000000000001000000020000000000000003\"";
pub(super) const CARTS: (&str, &str) = ("authorization", "Bearer secret");
const ROOT: (&str, &str) = ("authorization", "bearer root");

#[test]
fn only_our_own_names_and_pages_may_ask() {
    let from = |headers: &[(&str, &str)]| ask(None, request("GET /v1/status", headers, "")).0;
    for host in ["127.0.0.1:7070", "localhost", "LOCALHOST:1", "[::1]:7070", "n1:7070", "192.168.1.9"] {
        assert_eq!(from(&[("host", host)]), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "localhost.evil", ""] {
        assert_eq!(from(&[("host", host)]), 403, "{host}");
    }
    assert_eq!(from(&[("host", "n1"), ("host", "n1")]), 400);
    assert_eq!(from(&[("sec-fetch-site", "same-origin")]), 200);
    assert_eq!(from(&[("sec-fetch-site", "none")]), 200);
    assert_eq!(from(&[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(from(&[("sec-fetch-site", "same-site")]), 403);
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ROOT];
    assert_eq!(from(&link), 200);
    assert_eq!(ask(None, request("POST /v1/apply", &link, "")).0, 403);
    assert_eq!(ask(None, request("GET /", &[("host", "evil.example")], "")).0, 403, "the pages are guarded too");
    // Older browsers say only whose page it is that asks. 401: it may come in, and has no token.
    let change = |origin: &str| ask(None, request("POST /v1/disable/shop", &[("origin", origin)], "")).0;
    for own in ["http://127.0.0.1:7070", "https://127.0.0.1:7070"] {
        assert_eq!(change(own), 401, "{own}");
    }
    for foreign in ["http://evil.example", "null", "http://127.0.0.1:8080", "http://127.0.0.1:70700", "127.0.0.1:7070"]
    {
        assert_eq!(change(foreign), 403, "{foreign}");
    }
    assert_eq!(ask(None, request("GET /", &[], "")).2, "the page");
    assert_eq!(ask(None, request("GET http://evil.example/v1/status", &[], "")).0, 403);
}

#[test]
fn the_view_is_shown_without_its_tokens() {
    let (status, _, text, _) = ask(None, request("GET /v1/status", &[], ""));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &json["cluster"], &json["nodes"][0]["state"]), (200, &"demo".into(), &"live".into()));
    assert!(!text.contains("secret") && !text.contains("root\":\"root"), "{text}");
}

#[test]
fn the_stream_gives_each_view_as_it_comes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(vec![]);
        let response = call(&router, request("GET /v1/events", &[], "")).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let mut next = async || {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            String::from_utf8(frame.to_vec()).unwrap()
        };
        let first = next().await;
        assert!(first.starts_with("event: view\ndata: {\"cluster\":\"demo\""), "{first}");
        let began = tokio::time::Instant::now();
        for cluster in ["a", "b"] {
            toy.view.send_replace(Arc::new(View { cluster: cluster.into(), ..view() }));
        }
        assert!(next().await.contains("\"cluster\":\"b\""), "the newest is sent, not each");
        assert!(began.elapsed() >= limits::STREAM_EVERY);
    });
}

#[test]
fn only_the_operator_may_declare() {
    for line in ["POST /v1/apply", "GET /v1/export", "POST /v1/tokens", "GET /v1/ns/carts/token"] {
        for headers in [&[][..], &[CARTS], &[("authorization", "Bearer ")], &[("authorization", "Basic root")]] {
            let (status, answer, text, asked) = ask(None, request(line, headers, ""));
            assert_eq!((status, header(&answer, "www-authenticate")), (401, "Bearer"), "{line} {headers:?}");
            assert!(asked.is_none() && text.contains("operator's token"), "{text}");
        }
    }
}

#[test]
fn a_declaration_is_applied_and_its_errors_are_told() {
    let done = Applied { changes: vec!["+ service shop".into()], version: 3 };
    let apply =
        |outcome, line| ask(Some(Answer::Applied(outcome)), request(line, &[ROOT, ("x-file", "a.toml")], "x = 1"));
    let (status, _, text, asked) = apply(Outcome::Done(done), "POST /v1/apply?dry_run=true");
    assert_eq!((status, &*text), (200, r#"{"changes":["+ service shop"],"version":3}"#));
    let Some(Ask::Apply { file, text, dry_run: true, entropy }) = asked else { panic!("{asked:?}") };
    assert!(file == "a.toml" && text == "x = 1" && entropy != [0; 32]);

    let (status, _, text, asked) = apply(Outcome::Refused(Refused::wrong("a.toml:1: x")), "POST /v1/apply");
    assert_eq!((status, &*text), (400, r#"{"error":"a.toml:1: x"}"#));
    assert!(matches!(asked, Some(Ask::Apply { dry_run: false, .. })));

    let busy = Refused::busy("no leader", Span::millis(1500));
    let (status, headers, text, _) = apply(Outcome::Refused(busy), "POST /v1/apply");
    assert_eq!((status, header(&headers, "retry-after")), (503, "2"));
    assert_eq!(text, r#"{"error":"no leader","retry_after_ms":1500}"#);

    let (status, _, text, _) = apply(Outcome::Unknown(Unknown { why: "late".into() }), "POST /v1/apply");
    assert_eq!((status, &*text), (504, r#"{"error":"late (it may have happened)"}"#));

    let large = "x".repeat(limits::DECLARATION_BYTES_MAX + 1);
    assert_eq!(ask(None, request("POST /v1/apply", &[ROOT], &large)).0, 413);
    assert_eq!(ask(None, request("POST /v1/apply?dry_run=maybe", &[ROOT], "")).0, 400);
}

#[tokio::test]
async fn a_change_is_answered_when_this_node_shows_it() {
    let applied = Applied { changes: vec!["+ namespace notes".into()], version: 4 };
    let (toy, router) = toy(vec![Answer::Applied(Outcome::Done(applied))]);
    let asked = tokio::spawn(async move { call(&router, request("POST /v1/apply", &[ROOT], "")).await });
    let shown = async {
        while toy.asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(!asked.is_finished(), "the view is of version 3");
        toy.view.send_modify(|view| Arc::make_mut(view).root.version = 4);
        asked.await.unwrap().status()
    };
    assert_eq!(shown.await, 200);
}

#[test]
fn a_join_token_lives_as_long_as_was_asked() {
    let done = || Some(Answer::Done(Outcome::Done(())));
    let (status, _, text, asked) = ask(done(), request("POST /v1/tokens", &[ROOT], r#"{"lifetime_ms": 60000}"#));
    assert!(status == 200 && text.starts_with(r#"{"token":"token-text","expires_at_ms":"#), "{status} {text}");
    let Some(Ask::JoinToken { secret_hash, expires_wall_ms, uses: 1 }) = asked else { panic!("{asked:?}") };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(secret_hash == [7; 32] && (now + 50_000..now + 70_000).contains(&expires_wall_ms));
    assert_eq!(ask(done(), request("POST /v1/tokens", &[ROOT], "")).0, 200);
    for wrong in [r#"{"lifetime_ms": 0}"#, r#"{"lifetime_ms": 99999999999}"#, r#"{"life": 1}"#, r#"{"uses": 0}"#, "x"] {
        assert_eq!(ask(done(), request("POST /v1/tokens", &[ROOT], wrong)).0, 400, "{wrong}");
    }
    let asked = ask(done(), request("POST /v1/tokens", &[ROOT], r#"{"uses": 3}"#)).3;
    assert!(matches!(asked, Some(Ask::JoinToken { uses: 3, .. })), "{asked:?}");
}

#[test]
fn join_tokens_are_shown_and_revoked_by_operators_only() {
    for line in ["GET /v1/tokens", "DELETE /v1/tokens/1f00a2b3"] {
        let (status, _, _, asked) = ask(None, request(line, &[CARTS], ""));
        assert_eq!((status, asked.is_none()), (401, true), "{line}");
    }
    let token = JoinTokenView { name: "1f00a2b3".into(), expires_at_ms: 5, uses_left: Some(2) };
    let (status, _, text, _) = ask(Some(Answer::JoinTokens(vec![token])), request("GET /v1/tokens", &[ROOT], ""));
    assert_eq!((status, &*text), (200, r#"[{"name":"1f00a2b3","expires_at_ms":5,"uses_left":2}]"#));
    let done = Some(Answer::Done(Outcome::Done(())));
    let (status, _, _, asked) = ask(done, request("DELETE /v1/tokens/1f00a2b3", &[ROOT], ""));
    assert!(status == 200 && matches!(&asked, Some(Ask::RevokeToken { name }) if name == "1f00a2b3"), "{asked:?}");
}

#[test]
fn the_operator_may_see_a_namespaces_token() {
    let (status, headers, text, _) = ask(None, request("GET /v1/ns/carts/token", &[ROOT], ""));
    assert_eq!((status, &*text, header(&headers, "cache-control")), (200, r#"{"token":"secret"}"#, "no-store"));
    assert_eq!(ask(None, request("GET /v1/ns/nosuch/token", &[ROOT], "")).0, 404);
}

/// One of each kind of question of class linear.
const LINEAR_ASKS: [(&str, &str); 7] = [
    ("GET /v1/ns/carts/keys/a", ""),
    ("GET /v1/ns/carts/keys", ""),
    ("PUT /v1/ns/carts/keys/a", "x"),
    ("DELETE /v1/ns/carts/keys/a", ""),
    ("POST /v1/ns/carts/apply/a", r#"{"function": "number.add", "args": ["1"]}"#),
    ("POST /v1/ns/carts/txn", r#"{"do": []}"#),
    ("POST /v1/ns/carts/mget", r#"{"keys": ["a"]}"#),
];

#[tokio::test]
async fn an_operation_takes_no_longer_than_the_request_that_it_is_done_for_may() {
    for (headers, budget) in
        [(&[][..], 1_000), (&[("coppice-deadline-ms", "70")][..], 70), (&[("coppice-deadline-ms", "60000")][..], 1_000)]
    {
        let (toy, router) = toy(session(Reply::Absent).into_iter().collect());
        call(&router, request("GET /v1/ns/carts/keys/a", &[&[CARTS], headers].concat(), "")).await;
        assert_eq!(*toy.budget.lock().unwrap(), Span::millis(budget));
    }
    // Class linear has more time, and keeps to the same.
    for (line, body) in LINEAR_ASKS {
        for (headers, budget) in [(&[][..], 4_000), (&[("coppice-deadline-ms", "70")][..], 70)] {
            let (toy, router) = toy(Vec::new());
            toy.declare("carts", NamespaceSpec::new_linear());
            call(&router, request(line, &[&[CARTS], headers].concat(), body)).await;
            assert_eq!(*toy.budget.lock().unwrap(), Span::millis(budget), "{line}");
        }
    }
}

#[test]
fn a_value_is_stored_read_and_removed() {
    let put = |headers: &[(&str, &str)], reply| {
        ask(session(reply), request("PUT /v1/ns/carts/keys/a/b%20c", &[&[CARTS], headers].concat(), "value"))
    };
    let stored = Reply::Stored { version: VERSION, old: None, cookie: None };
    let (status, headers, _, asked) = put(&[("coppice-lease-ms", "5000"), ("if-match", TAG)], stored.clone());
    assert_eq!((status, header(&headers, "etag")), (204, TAG));
    let Some(Ask::Session(op)) = asked else { panic!("{asked:?}") };
    assert_eq!((&*op.namespace, &op.key[..], op.place), ("carts", &b"a/b c"[..], Place::Keyed));
    let lease = Lease::For(Span::millis(5000));
    let when = When::Version(VERSION);
    assert_eq!(op.action, Action::Put { kind: Kind::Text, value: Bytes::from("value"), lease, when, want_old: false });

    for (header, expect) in
        [(("if-none-match", "*"), When::Absent), (("if-match", "*"), When::Present), (("x", "y"), When::Always)]
    {
        let asked = put(&[header], stored.clone()).3;
        assert!(matches!(asked, Some(Ask::Session(Op { action: Action::Put { when, .. }, .. })) if when == expect));
    }
    for wrong in [("if-match", "x"), ("if-none-match", TAG), ("coppice-lease-ms", "0"), ("coppice-lease-ms", "soon")] {
        assert_eq!(put(&[wrong], stored.clone()).0, 400, "{wrong:?}");
    }
    for (edge, brick) in [("0", Priority::LOWEST), ("5", Priority::NORMAL), ("9", Priority(6))] {
        let Some(Ask::Session(op)) =
            put(&[("coppice-priority", edge), ("coppice-deadline-ms", "70")], stored.clone()).3
        else {
            panic!("it was not asked")
        };
        assert_eq!(op.priority, brick);
    }
    for wrong in [("coppice-priority", "10"), ("coppice-priority", "high"), ("coppice-deadline-ms", "0")] {
        assert_eq!(put(&[wrong], stored.clone()).0, 400, "{wrong:?}");
    }
    let (status, headers, ..) = put(&[("if-none-match", "*")], Reply::NotStored { version: Some(VERSION), old: None });
    assert_eq!((status, header(&headers, "etag")), (412, TAG));

    let get = |headers: &[(&str, &str)], reply| {
        ask(session(reply), request("GET /v1/ns/carts/keys/a", &[&[CARTS], headers].concat(), ""))
    };
    let value = Reply::Value { value: "v".into(), kind: Kind::Text, version: VERSION, lease_left: Span::millis(77) };
    let (status, headers, text, _) = get(&[], value.clone());
    assert_eq!((status, &*text, header(&headers, "etag"), header(&headers, "coppice-lease-ms")), (200, "v", TAG, "77"));
    assert_eq!(header(&headers, "x-content-type-options"), "nosniff");
    assert_eq!(get(&[("if-none-match", TAG)], value).0, 304);
    assert_eq!(get(&[], Reply::Absent).0, 404);
    assert_eq!(get(&[], Reply::Lost).0, 410);

    let removal = request("DELETE /v1/ns/carts/keys/a", &[CARTS, ("if-match", TAG)], "");
    let newer = Reply::NotStored { version: Some(VERSION), old: None };
    let (status, headers, body, asked) = ask(session(newer), removal);
    assert!(matches!(asked, Some(Ask::Session(Op { action: Action::RemoveIf { version: VERSION }, .. }))));
    assert_eq!((status, header(&headers, "etag")), (412, TAG));
    assert!(body.contains(TAG.trim_matches('"')), "it names the newer version: {body}");
    let hash = Bytes::from_static(state::session::doc::HASH_MAGIC);
    let fields = Reply::Value { value: hash.clone(), kind: Kind::Hash, version: VERSION, lease_left: Span::secs(1) };
    let (status, _, body, _) = ask(session(fields), request("GET /v1/ns/carts/keys/a", &[CARTS], ""));
    assert!(status == 409 && body.contains("HGETALL"), "{status} {body}");
    let text = Reply::Value { value: hash, kind: Kind::Text, version: VERSION, lease_left: Span::secs(1) };
    assert_eq!(get(&[], text).0, 200, "a client's bytes are no hash");
    let delete = |there| ask(session(Reply::Removed(there)), request("DELETE /v1/ns/carts/keys/a", &[CARTS], ""));
    assert_eq!((delete(true).0, delete(false).0), (204, 404));
    let large = "x".repeat(limits::VALUE_BYTES_MAX + 1);
    assert_eq!(ask(None, request("PUT /v1/ns/carts/keys/a", &[CARTS], &large)).0, 413);
}

#[test]
fn a_node_that_has_not_heard_of_the_declaration_does_not_call_a_token_wrong() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(vec![]);
        for root in [Default::default(), node::view::RootView { leader: None, ..view().root }] {
            toy.view.send_replace(Arc::new(View { root, tokens: Default::default(), ..view() }));
            let answer = call(&router, request("GET /v1/ns/carts/keys/a", &[CARTS], "")).await;
            assert!(answer.status() == 503 && answer.headers().contains_key("retry-after"), "{answer:?}");
        }
        toy.view.send_replace(Arc::new(View { tokens: Default::default(), ..view() }));
        assert_eq!(call(&router, request("GET /v1/ns/carts/keys/a", &[CARTS], "")).await.status(), 401);
    });
}

#[test]
fn values_need_their_own_namespaces_token() {
    for (ns, token) in [("carts", "wrong"), ("carts", ""), ("nosuch", "secret"), ("nosuch", "")] {
        let bearer = format!("Bearer {token}");
        let (status, _, text, asked) =
            ask(None, request(&format!("GET /v1/ns/{ns}/keys/a"), &[("authorization", &bearer)], ""));
        assert_eq!(
            (status, &*text),
            (
                401,
                r#"{"error":"this needs `Authorization: Bearer` with the token of this namespace (`coppice ns token NAME` prints it)"}"#
            )
        );
        assert!(asked.is_none());
    }
}

#[test]
fn a_session_goes_by_the_cookie_that_its_first_write_gave() {
    let stored = Reply::Stored { version: VERSION, old: None, cookie: Some("COOKIE.1".into()) };
    let (status, headers, text, asked) = ask(session(stored), request("POST /v1/ns/carts/session", &[CARTS], "v"));
    let cookie = serde_json::from_str::<serde_json::Value>(&text).unwrap()["cookie"].as_str().unwrap().to_owned();
    assert_eq!(status, 200);
    assert_eq!(header(&headers, "set-cookie"), format!("coppice-carts={cookie}; Path=/; HttpOnly; SameSite=Lax"));
    let Some(Ask::Session(first)) = asked else { panic!("{asked:?}") };
    assert_eq!(first.place, Place::Cookie(None));
    assert_eq!(first.key.len(), 22);

    let value = Reply::Value { value: "v".into(), kind: Kind::Text, version: VERSION, lease_left: Span::millis(77) };
    let held = format!("other=1; coppice-carts={cookie}");
    for held in [("cookie", &*held), ("coppice-cookie", &*cookie)] {
        let (status, _, text, asked) =
            ask(session(value.clone()), request("GET /v1/ns/carts/session", &[CARTS, held], ""));
        assert_eq!((status, &*text), (200, "v"));
        let Some(Ask::Session(op)) = asked else { panic!("{asked:?}") };
        assert_eq!((op.key, op.place), (first.key.clone(), Place::Cookie(Some("COOKIE.1".into()))));
    }
    let get = |held| request("GET /v1/ns/carts/session", &[CARTS, ("cookie", held)], "");
    assert_eq!(ask(None, get("a=b")).0, 400);
    // What it is worth, the node says.
    let (status, _, text, _) = ask(session(Reply::BadCookie(CookieError::Truncated)), get("coppice-carts=rubbish"));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("cookie-truncated"), "{text}");
    let removed = ask(
        session(Reply::Removed(true)),
        request("DELETE /v1/ns/carts/session", &[CARTS, ("coppice-cookie", &cookie)], ""),
    );
    assert_eq!(removed.0, 204);
}

#[test]
fn a_lease_is_begun_anew_by_key_and_by_cookie() {
    let touch =
        |reply| ask(session(reply), request("POST /v1/ns/carts/touch/a/b", &[CARTS, ("coppice-lease-ms", "5000")], ""));
    let (status, _, _, asked) = touch(Reply::Touched(true));
    let Some(Ask::Session(op)) = asked else { panic!("{asked:?}") };
    assert_eq!((status, &op.key[..], op.place), (204, &b"a/b"[..], Place::Keyed));
    assert_eq!(op.action, Action::Touch { lease: Lease::For(Span::secs(5)) });
    assert_eq!((touch(Reply::Touched(false)).0, touch(Reply::Lost).0), (404, 410));
    assert_eq!(ask(None, request("POST /v1/ns/carts/touch/a", &[], "")).0, 401);

    let id = "a".repeat(22);
    let held = format!("{id}.COOKIE.1");
    let line = "POST /v1/ns/carts/session/touch";
    let by_cookie = |reply| ask(session(reply), request(line, &[CARTS, ("coppice-cookie", &held)], ""));
    let (status, headers, text, asked) =
        by_cookie(Reply::Stored { version: VERSION, old: None, cookie: Some("COOKIE.2".into()) });
    let Some(Ask::Session(op)) = asked else { panic!("{asked:?}") };
    assert_eq!((status, op.place), (200, Place::Cookie(Some("COOKIE.1".into()))));
    assert_eq!(op.action, Action::Touch { lease: Lease::Default });
    assert!(text.contains(&format!("{id}.COOKIE.2")) && header(&headers, "set-cookie").contains("COOKIE.2"), "{text}");
    assert_eq!(by_cookie(Reply::Touched(false)).0, 404);
    let (status, _, text, _) = by_cookie(Reply::BadCookie(CookieError::Expired));
    assert!(status == 400 && text.contains("cookie-expired"), "{text}");
}

#[test]
fn probes_tell_live_from_ready() {
    assert_eq!(ask(Some(Answer::Exported(String::new())), request("GET /livez", &[], "")).0, 200);
    assert_eq!(ask(None, request("GET /livez", &[], "")).0, 504, "the node is gone");
    assert_eq!(ask(None, request("GET /readyz", &[], "")).0, 200);
    assert!(super::status::unready(&View::default()).is_some());
    let mut unheard = view();
    unheard.root = Default::default();
    assert_eq!(super::status::unready(&unheard), Some("this node has not heard of the declaration yet"));
}

#[test]
fn figures_are_there_for_prometheus() {
    let (status, _, text, _) = ask(None, request("GET /metrics", &[], ""));
    assert_eq!(status, 200);
    for line in [
        "coppice_info{cluster=\"demo\",node=\"n1\",version=\"0.1.0\"} 1",
        "coppice_http_requests 42",
        "# HELP coppice_http_requests HTTP requests a second at this node's door, over the last second.",
        "# HELP coppice_net_links Connections between this node and others, at this moment.",
        "coppice_session_writes_total 5",
        "coppice_session_bytes 6",
        "coppice_resp_commands_total 0",
        "coppice_node_state{node=\"n\\\"2\",state=\"live\"} 1",
        "coppice_declaration_version 3",
        "coppice_stage_refused_total{stage=\"session-brick\"} 7",
        "# TYPE coppice_stage_wait_seconds histogram",
        "coppice_stage_wait_seconds_bucket{stage=\"session-brick\",le=\"0.000064\"} 1",
        "coppice_stage_wait_seconds_bucket{stage=\"session-brick\",le=\"0.000128\"} 3",
        "coppice_stage_wait_seconds_bucket{stage=\"session-brick\",le=\"+Inf\"} 4",
        "coppice_stage_wait_seconds_sum{stage=\"session-brick\"} 20.00023",
        "coppice_stage_wait_seconds_count{stage=\"session-brick\"} 4",
        "coppice_stage_service_seconds_count{stage=\"session-brick\"} 0",
        "coppice_stub_window{brick=\"n3\"} 64",
        "coppice_stub_no_room_total{brick=\"n3\"} 8",
        "coppice_stub_turned_away_total{brick=\"n3\"} 9",
        "coppice_stub_full_total{brick=\"n3\"} 10",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let mut families: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), all, "a family stands twice");
}

#[test]
fn what_is_not_there_is_said_in_json() {
    let (status, _, text, _) = ask(None, request("GET /nosuch", &[], ""));
    assert_eq!((status, text.starts_with("{\"error\":")), (404, true));
    for (line, methods) in [
        ("DELETE /v1/status", "GET,HEAD"),
        ("POST /v1/ns/carts/keys/a", "GET,HEAD,PUT,DELETE"),
        ("GET /v1/ns/carts/txn", "POST"),
        ("PUT /", "GET,HEAD"),
    ] {
        let (status, headers, text, _) = ask(None, request(line, &[CARTS], ""));
        assert_eq!((status, header(&headers, "allow")), (405, methods), "{line}");
        assert!(text.starts_with("{\"error\":"), "{line}: {text}");
    }
}

#[test]
fn what_cannot_be_read_is_said_in_json() {
    let large = " ".repeat(limits::TRANSACTION_BYTES_MAX + 1);
    for (line, token, body, expect) in [
        ("GET /v1/ns/%ff", CARTS, "", 400),
        ("GET /v1/ns/%ff/keys/a", CARTS, "", 400),
        ("POST /v1/ns/%ff/txn", CARTS, "{}", 400),
        ("GET /v1/services/%ff/members", ROOT, "", 400),
        ("POST /v1/nodes/n%ff/restart", ROOT, "", 400),
        ("POST /v1/disable/%ff", ROOT, "", 400),
        ("GET /v1/session/%ff", ROOT, "", 400),
        ("POST /v1/apply?dry_run=maybe", ROOT, "", 400),
        ("POST /v1/nodes/n1/restart?force=1", ROOT, "", 400),
        ("POST /v1/services/shop/rollback?to=x", ROOT, "", 400),
        ("PUT /v1/code/aa?copy=1", ROOT, "", 400),
        ("POST /v1/ns/carts/rotate?end_sessions=1", ROOT, "", 400),
        ("GET /v1/ns/carts/keys?limit=x", CARTS, "", 400),
        ("POST /v1/apply?dryrun=true", ROOT, "", 400),
        ("POST /v1/nodes/n1/restart?now=true", ROOT, "", 400),
        ("POST /v1/services/shop/rollback?version=1", ROOT, "", 400),
        ("POST /v1/ns/carts/rotate?end=true", ROOT, "", 400),
        ("GET /v1/services/shop/members?wait=1", ROOT, "", 400),
        ("GET /v1/ns/carts/keys?stale=%ff", CARTS, "", 400),
        ("GET /v1/ns/carts/keys?nosuch=1", CARTS, "", 400),
        ("PUT /v1/ns/carts/keys/a?return=new", CARTS, "", 400),
        ("POST /v1/ns/carts/txn", CARTS, "{", 400),
        ("POST /v1/ns/carts/txn", CARTS, &large, 413),
        ("POST /v1/ns/carts/apply/a", CARTS, "[]", 400),
        ("GET /v1/ns/carts/keys/", CARTS, "", 404),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (status, kind, text) = runtime.block_on(async {
            let (toy, router) = toy(vec![]);
            toy.declare("carts", NamespaceSpec::new_linear());
            let response = call(&router, request(line, &[token], body)).await;
            let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
            (response.status().as_u16(), kind, text(response).await)
        });
        assert_eq!((status, &*kind), (expect, "application/json"), "{line}: {text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["error"].as_str().is_some_and(|why| !why.is_empty()), "{line}: {text}");
    }
}

#[test]
fn it_is_served_over_a_socket() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (_toy, router) = toy(vec![]);
        let server = tokio::spawn(serve(listener, router, None, Arc::default(), std::future::pending()));
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ready\n"), "{answer}");
        server.abort();
    });
}

#[test]
fn the_docs_name_every_address() {
    let docs = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md"));
    let code = include_str!("mod.rs");
    let routes: Vec<&str> = code.split(".route(").skip(1).filter_map(|rest| rest.split('"').nth(1)).collect();
    assert!(routes.len() >= 10, "{routes:?}");
    for route in routes {
        assert!(docs.lines().any(|line| line.starts_with("| `") && line.contains(route)), "docs/api.md lacks {route}");
    }
}

/// Paths with their methods, in the code and in docs/openapi.json.
#[test]
fn the_openapi_document_has_every_route_and_no_other() {
    let code = include_str!("mod.rs");
    let mut routes = std::collections::BTreeSet::new();
    for rest in code.split(".route(\"").skip(1) {
        let (path, handlers) = rest.split_once('"').unwrap();
        let handlers = handlers.split('\n').next().unwrap();
        for method in ["get", "put", "post", "delete"].iter().filter(|m| handlers.contains(&format!("{m}("))) {
            routes.insert((path.replace("{*", "{"), method.to_string()));
        }
    }
    let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
    let mut described = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            described.insert((path.clone(), method.clone()));
            for part in path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()) {
                let of = |p: &serde_json::Value| p["$ref"].as_str().map_or(p["name"] == part, |r| r.ends_with(part));
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(parameters.iter().any(of), "{method} {path} does not say what {part} is");
            }
            assert!(
                operation["summary"].is_string() && operation["responses"]["default"].is_object(),
                "{method} {path}"
            );
        }
    }
    assert!(routes.len() > 20, "{routes:?}");
    assert_eq!(routes, described);
    for target in OPENAPI.split("\"$ref\": \"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(target).is_some(), "{target} is nowhere");
    }
    let (status, headers, text, _) = ask(None, request("GET /v1/openapi.json", &[], ""));
    assert_eq!((status, header(&headers, "content-type"), &*text), (200, "application/json", OPENAPI));
}

#[test]
fn nodes_restart_for_operators_only_and_a_refusal_says_why() {
    let (status, _, _, asked) = ask(None, request("POST /v1/nodes/n2/restart", &[CARTS], ""));
    assert_eq!((status, asked.is_none()), (401, true));
    let (status, _, _, asked) =
        ask(Some(Answer::Done(Outcome::Done(()))), request("POST /v1/nodes/n2/restart?force=true", &[ROOT], ""));
    assert_eq!(status, 202);
    assert!(matches!(asked, Some(Ask::Leave { name, how: node::Leaving::Restart, force: true }) if name == "n2"));
    let refused = Outcome::Refused(base::Refused::busy("n3 is leaving", base::Span::secs(1)));
    let (status, _, text, asked) = ask(Some(Answer::Done(refused)), request("POST /v1/nodes/n2/remove", &[ROOT], ""));
    assert_eq!((status, text.contains("n3 is leaving")), (503, true), "{text}");
    assert!(matches!(asked, Some(Ask::Leave { how: node::Leaving::Remove, force: false, .. })));
    let done = Some(Answer::Done(Outcome::Done(())));
    let asked = ask(done, request("POST /v1/nodes/n2/remove?now=true", &[ROOT], "")).3;
    assert!(matches!(asked, Some(Ask::Remove { name, force: false }) if name == "n2"));
}

#[test]
fn a_namespace_that_is_not_there_is_told_apart() {
    assert_eq!(ask(None, request("GET /v1/ns", &[], "")).2, "[]");
    let (status, _, text, _) = ask(None, request("GET /v1/ns/cats", &[], ""));
    assert_eq!((status, text.contains("there is no namespace")), (404, true), "{text}");
}

#[tokio::test]
async fn archives_on_their_way_are_bounded_and_copies_from_other_nodes_do_not_wait_for_them() {
    let (_, router) = toy(vec![]);
    let put = |path: &str, body: Body| {
        let request = request(&format!("PUT {path}"), &[ROOT], "");
        let (parts, _) = request.into_parts();
        let router = router.clone();
        async move { call(&router, Request::from_parts(parts, body)).await.status().as_u16() }
    };
    let endless = || Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let held: Vec<_> = (0..limits::UPLOADS_MAX).map(|_| tokio::spawn(put("/v1/code/aa", endless()))).collect();
    tokio::task::yield_now().await;
    assert_eq!(put("/v1/code/aa", Body::from("x")).await, 503);
    assert_eq!(put("/v1/code/aa?copy=true", Body::from("x")).await, 400, "the toy keeps nothing: it was asked");
    // A client that goes gives its place back.
    held[0].abort();
    tokio::task::yield_now().await;
    assert_eq!(put("/v1/code/aa", Body::from("x")).await, 400);
}
