//! Sessions that the HTTP door carries, against a toy node that says what the test says: when an answer may leave, what
//! a client gets when the node fails, when a session is prolonged. The real node is behind tests/tests/all/beside/sessions.rs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::common::{Answer, Door, Toy, clone, field, soon};
use base::{Outcome, Priority, Refused, Span, Unknown};
use bytes::Bytes;
use clones::route::{RouteService, RouteSession, Routes};
use clones::session::{SameSite, Secure};
use clones::{HttpRoute, ServiceSpec, SessionCookie};
use edge::api::{Backend, Gone, Minted};
use edge::http::Config;
use futures_util::future::BoxFuture;
use node::{Ask, View};
use state::session::{Action, CookieError, Place, Reply, Version};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, watch};

const LEASE_MS: u64 = 100_000;
const ID: &str = "0123456789abcdefghijkl";

/// Answers in turn, and keeps what it was asked.
#[derive(Default)]
struct Node {
    says: Mutex<VecDeque<Outcome<Reply>>>,
    asked: Mutex<Vec<String>>,
    /// How much each of it matters.
    priorities: Mutex<Vec<Priority>>,
    /// Set: the answer to a put waits for it.
    hold: Mutex<Option<Arc<Notify>>>,
}

impl Backend for Node {
    fn ask(&self, ask: Ask, _: Span) -> BoxFuture<'static, Result<node::Answer, Gone>> {
        let Ask::Session(op) = ask else { panic!("{ask:?}") };
        let Place::Cookie(cookie) = op.place else { panic!("by cookie only") };
        let (what, is_put) = match &op.action {
            Action::Put { value, .. } => (format!("put {}", String::from_utf8_lossy(value)), true),
            Action::Get => ("get".into(), false),
            Action::Touch { .. } => ("touch".into(), false),
            Action::Remove => ("remove".into(), false),
            other => panic!("{other:?}"),
        };
        self.priorities.lock().unwrap().push(op.priority);
        let whose = if op.key == ID { "mine" } else { "new" };
        self.asked.lock().unwrap().push(format!("{what} {whose} {}", cookie.unwrap_or_else(|| "-".into())));
        let says = self.says.lock().unwrap().pop_front().expect("the test says enough");
        let hold = self.hold.lock().unwrap().clone().filter(|_| is_put);
        Box::pin(async move {
            if let Some(hold) = hold {
                hold.notified().await;
            }
            Ok(node::Answer::Session(says))
        })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        watch::channel(Arc::default()).1
    }

    fn mint(&self) -> Result<Minted, String> {
        Err("nobody joins".into())
    }

    fn keep_code(&self, _: String, _: bytes::Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        Box::pin(async { Err("nothing is kept here".into()) })
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<bytes::Bytes>> {
        Box::pin(async { None })
    }

    fn logs(&self, _: edge::api::logs::Wanted) -> BoxFuture<'static, Result<edge::api::logs::Gathered, String>> {
        unreachable!()
    }
}

fn found(left_ms: u64) -> Outcome<Reply> {
    let (value, version) = (Bytes::from_static(b"old"), Version::default());
    Outcome::Done(Reply::Value { value, kind: state::session::Kind::Text, version, lease_left: Span::millis(left_ms) })
}

fn stored() -> Outcome<Reply> {
    Outcome::Done(Reply::Stored { version: Version::default(), old: None, cookie: Some("next".into()) })
}

fn busy() -> Outcome<Reply> {
    Outcome::Refused(Refused::busy("full", Span::millis(100)))
}

fn unknown() -> Outcome<Reply> {
    Outcome::Unknown(Unknown { why: "late".into() })
}

struct Case {
    door: Door,
    node: Arc<Node>,
    toy: Toy,
}

impl Case {
    /// A program that answers with these fields.
    async fn new(says: impl IntoIterator<Item = Outcome<Reply>>, fields: &'static str) -> Self {
        Self::with(says, fields, SessionCookie::new("carts", "sid"), Config::default()).await
    }

    async fn with(
        says: impl IntoIterator<Item = Outcome<Reply>>,
        fields: &'static str,
        spec: SessionCookie,
        config: Config,
    ) -> Self {
        let toy = Toy::start(move |toy, mut stream, _| async move {
            while toy.read_request(&mut stream).await.is_ok() {
                let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nhi");
                stream.write_all(answer.as_bytes()).await?;
            }
            Ok(())
        })
        .await;
        Self::before(toy, says, spec, config).await
    }

    async fn before(
        toy: Toy,
        says: impl IntoIterator<Item = Outcome<Reply>>,
        spec: SessionCookie,
        config: Config,
    ) -> Self {
        let mut declared = ServiceSpec::new(["shop"]);
        declared.http = Some(HttpRoute::default());
        let service = RouteService {
            session: Some(Arc::new(RouteSession { spec, path: "/shop".into(), lease_ms: LEASE_MS })),
            clones: vec![clone(1, toy.addr, true)],
            ..RouteService::new("shop", &declared)
        };
        let node = Arc::new(Node { says: Mutex::new(says.into_iter().collect()), ..Node::default() });
        let routes = Arc::new(Routes::new(vec![service]));
        Self { door: Door::before(routes, config, Arc::clone(&node) as _).await, node, toy }
    }

    async fn ask(&self, fields: &str) -> Answer {
        let answer = self.door.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await;
        assert!(self.node.says.lock().unwrap().is_empty(), "the node was asked all that it should");
        answer
    }

    async fn visit(&self) -> Answer {
        self.ask(&format!("Cookie: sid={ID}.now\r\n")).await
    }

    fn asked(&self) -> Vec<String> {
        self.node.asked.lock().unwrap().clone()
    }

    fn total(&self, what: &str) -> u64 {
        self.door.meter.totals()[&format!("http.sessions_{what}_total")]
    }
}

#[tokio::test]
async fn the_value_goes_in_the_new_one_comes_out_and_the_cookie_follows() {
    let case = Case::new([found(LEASE_MS), stored()], "Coppice-Session: bmV3\r\nSet-Cookie: sid=own\r\n").await;
    let answer = case.visit().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hi"));
    let set = answer.field("set-cookie").unwrap();
    assert_eq!(set, format!("sid={ID}.next; Path=/shop; Max-Age=100; HttpOnly; SameSite=Lax"));
    assert_eq!(answer.head.matches("set-cookie").count(), 1, "the program's own cookie of that name is not passed on");
    assert!(answer.field("coppice-session").is_none(), "{answer:?}");
    assert_eq!(answer.field("cache-control").as_deref(), Some("private"));
    assert_eq!(case.asked(), ["get mine now", "put new mine now"]);
    let seen = &case.toy.seen()[0];
    assert_eq!(field(seen, "coppice-session").as_deref(), Some("b2xk"));
    assert!(field(seen, "cookie").is_none() && !seen.contains(ID), "{seen}");
    assert_eq!((case.total("read"), case.total("stored")), (1, 1));
}

#[tokio::test]
async fn a_session_is_read_and_stored_with_the_priority_of_its_request() {
    let spec =
        || SessionCookie { priority: Some(clones::partition::Priority(9)), ..SessionCookie::new("carts", "sid") };
    let lost = Outcome::Done(Reply::Absent);
    for (first, then) in [(found(LEASE_MS), Priority(6)), (lost, Priority::NORMAL)] {
        let case = Case::with([first, stored()], "Coppice-Session: bmV3\r\n", spec(), Config::default()).await;
        assert_eq!(case.visit().await.status, 200);
        // Only when it is read is it known whether there is one that raises the request.
        assert_eq!(*case.node.priorities.lock().unwrap(), [Priority(6), then]);
    }
}

#[tokio::test]
async fn in_overload_who_has_a_session_is_let_in_and_a_newcomer_who_came_before_is_refused() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let toy = Toy::start(move |toy, mut stream, _| {
        let told = Arc::clone(&told);
        async move {
            while toy.read_request(&mut stream).await.is_ok() {
                told.notified().await;
                stream.write_all(crate::common::ok("hi").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    let spec = SessionCookie { priority: Some(clones::partition::Priority(9)), ..SessionCookie::new("carts", "sid") };
    let case = Case::before(toy, [found(LEASE_MS)], spec, Config::default()).await;
    let send = async |fields: &str| {
        let mut client = case.door.client().await;
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await;
        client
    };
    let until = async |what: &dyn Fn() -> bool| {
        let is_so = async {
            while !what() {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        soon(is_so).await;
    };
    let room = edge::http::limits::ADMISSION.first as usize;
    let mut held = Vec::new();
    for _ in 0..room {
        held.push(send("").await);
    }
    until(&|| case.toy.seen().len() == room).await;
    let waiting = || case.door.meter.turnstiles.of("shop", 1).0.show().waiting;
    let mut newcomer = send("").await;
    until(&|| waiting() == 1).await;
    let mut known = send(&format!("Cookie: sid={ID}.now\r\n")).await;
    until(&|| waiting() == 2).await;
    go.notify_one();
    until(&|| case.toy.seen().len() == room + 1).await;
    assert_eq!(field(&case.toy.seen()[room], "coppice-priority").as_deref(), Some("9"));
    assert_eq!(newcomer.answer().await.status, 503);
    go.notify_waiters();
    assert_eq!(known.answer().await.status, 200);
}

#[tokio::test]
async fn an_answer_waits_until_the_session_is_stored() {
    let case = Case::new([found(LEASE_MS), stored()], "Coppice-Session: bmV3\r\n").await;
    let hold = Arc::new(Notify::new());
    *case.node.hold.lock().unwrap() = Some(Arc::clone(&hold));
    let mut answer = Box::pin(case.visit());
    let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut answer).await;
    assert!(early.is_err(), "it left before its session was stored");
    assert_eq!(case.asked().len(), 2);
    hold.notify_one();
    assert_eq!(answer.await.status, 200);
}

#[tokio::test]
async fn a_session_that_was_not_stored_is_told_and_the_answer_held_back() {
    for (outcome, text) in [(busy(), "was not stored"), (unknown(), "unknown")] {
        let case = Case::new([found(LEASE_MS), outcome], "Coppice-Session: bmV3\r\nX-Secret: 1\r\n").await;
        let answer = case.visit().await;
        assert_eq!(answer.status, 503);
        assert!(answer.field("retry-after").is_some() && answer.body.contains(text), "{answer:?}");
        assert!(answer.field("set-cookie").is_none() && answer.field("x-secret").is_none(), "{answer:?}");
        assert_eq!(case.total("failed"), 1);
    }
}

#[tokio::test]
async fn a_session_that_cannot_be_read_is_not_taken_for_none_and_no_program_is_asked() {
    for outcome in [busy(), unknown()] {
        let case = Case::new([outcome], "").await;
        let answer = case.visit().await;
        assert_eq!(answer.status, 503);
        assert!(answer.field("retry-after").is_some() && answer.body.contains("not carried out"), "{answer:?}");
        assert!(case.toy.seen().is_empty() && answer.field("set-cookie").is_none());
    }
}

#[tokio::test]
async fn a_cookie_that_opens_nothing_is_a_new_visitors_and_is_cleared() {
    let ends = CookieError::ALL.map(Reply::BadCookie);
    for reply in ends.into_iter().chain([Reply::Absent, Reply::Lost]) {
        let case = Case::new([Outcome::Done(reply.clone())], "").await;
        let answer = case.visit().await;
        assert_eq!(answer.status, 200);
        assert_eq!(field(&case.toy.seen()[0], "coppice-session").as_deref(), Some("-"));
        let set = answer.field("set-cookie").unwrap();
        assert_eq!(set, "sid=; Path=/shop; Max-Age=0; HttpOnly; SameSite=Lax", "{reply:?}");
        // What is kept now is under an id that the edge made.
        let case = Case::new([Outcome::Done(reply), stored()], "Coppice-Session: bmV3\r\n").await;
        assert!(!case.visit().await.field("set-cookie").unwrap().contains(ID));
        assert_eq!(case.asked()[1], "put new new -");
    }
    // However many there are, a few are tried.
    let many = format!("Cookie: {}\r\n", vec![format!("sid={ID}.x"); 50].join("; "));
    let case = Case::new((0..4).map(|_| Outcome::Done(Reply::Absent)), "").await;
    case.ask(&many).await;
    assert_eq!(case.asked().len(), 4);
}

#[tokio::test]
async fn a_session_that_is_only_read_is_prolonged_now_and_then() {
    let case = Case::new([found(LEASE_MS * 80 / 100)], "").await;
    assert!(case.visit().await.field("set-cookie").is_none(), "it was prolonged a moment ago");
    let case = Case::new([found(LEASE_MS * 70 / 100), stored()], "").await;
    assert!(case.visit().await.field("set-cookie").unwrap().contains(".next;"));
    assert_eq!(case.asked(), ["get mine now", "touch mine now"]);
    assert_eq!((case.total("touched"), case.total("stored")), (1, 0));
    // The session is there all the same.
    for outcome in [busy(), unknown()] {
        let case = Case::new([found(10), outcome], "").await;
        let answer = case.visit().await;
        assert!(answer.status == 200 && answer.field("set-cookie").is_none(), "{answer:?}");
    }
}

#[tokio::test]
async fn a_program_ends_a_session_and_renews_its_id() {
    for fields in ["Coppice-Session: -\r\n", "Coppice-Session:\r\n"] {
        let case = Case::new([found(LEASE_MS), Outcome::Done(Reply::Removed(true))], fields).await;
        assert!(case.visit().await.field("set-cookie").unwrap().contains("Max-Age=0"));
        assert_eq!(case.asked()[1], "remove mine now");
        let case = Case::new([found(LEASE_MS), unknown()], fields).await;
        assert_eq!(case.visit().await.status, 503, "nobody is told that he is logged out when he may not be");
        let case = Case::new([], fields).await;
        assert!(case.ask("").await.field("set-cookie").is_none(), "there was none");
    }
    let fields = "Coppice-Session: bmV3\r\nCoppice-Session-Renew: 1\r\n";
    let case = Case::new([found(LEASE_MS), stored(), Outcome::Done(Reply::Removed(true))], fields).await;
    assert!(!case.visit().await.field("set-cookie").unwrap().contains(ID));
    assert_eq!(case.asked()[1..], ["put new new -", "remove mine now"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_502_and_says_what() {
    for (fields, text) in [
        ("Coppice-Session: !\r\n", "not base64url"),
        ("Coppice-Session: bmV3=\r\n", "not base64url"),
        ("Coppice-Session: bmV3\r\nCoppice-Session: bmV3\r\n", "more than one"),
        ("Coppice-Session: bmV3\r\nCoppice-Session-Handle: x\r\n", "one of them"),
        ("Coppice-Session-Handle: carts.AAAA\r\n", "not of this request"),
        ("Coppice-Session-Renew: 1\r\n", "needs a value"),
    ] {
        let case = Case::new([found(LEASE_MS)], fields).await;
        let answer = case.visit().await;
        assert_eq!(answer.status, 502, "{fields}");
        assert!(answer.body.contains(text) && answer.body.contains("not stored"), "{answer:?}");
    }
    let large: &'static str = format!("Coppice-Session: {}\r\n", "A".repeat(5464)).leak();
    let case = Case::new([found(LEASE_MS)], large).await;
    assert!(case.visit().await.body.contains("4096 bytes"));
    let small = SessionCookie { max_bytes: 2, ..SessionCookie::new("carts", "sid") };
    let case = Case::with([found(LEASE_MS)], "Coppice-Session: bmV3\r\n", small, Config::default()).await;
    assert!(case.visit().await.body.contains("max_bytes"));
}

#[tokio::test]
async fn the_cookie_is_secure_if_the_client_came_so_or_the_operator_says_so() {
    let spec = |secure, same_site| SessionCookie { secure, same_site, ..SessionCookie::new("carts", "sid") };
    let over_tls = "X-Forwarded-Proto: https\r\n";
    for (spec, trust, fields, expect) in [
        (spec(Secure::Auto, SameSite::Lax), true, over_tls, "; HttpOnly; Secure; SameSite=Lax"),
        (spec(Secure::Auto, SameSite::Lax), true, "", "; HttpOnly; SameSite=Lax"),
        // From who is not trusted it means nothing.
        (spec(Secure::Auto, SameSite::Lax), false, over_tls, "; HttpOnly; SameSite=Lax"),
        (spec(Secure::Always, SameSite::Strict), false, "", "; HttpOnly; Secure; SameSite=Strict"),
        (spec(Secure::Auto, SameSite::None), false, "", "; HttpOnly; Secure; SameSite=None"),
        (spec(Secure::Never, SameSite::Lax), true, over_tls, "; HttpOnly; SameSite=Lax"),
    ] {
        let config = Config { trust_forwarded: trust, ..Config::default() };
        let case = Case::with([stored()], "Coppice-Session: bmV3\r\n", spec, config).await;
        let set = case.ask(fields).await.field("set-cookie").unwrap();
        assert!(set.ends_with(expect), "{set} {expect}");
    }
}

#[tokio::test]
async fn what_clients_say_in_our_name_reaches_no_program() {
    let lies = "Coppice-Session: b2xk\r\nCOPPICE_SESSION: b2xk\r\nCoppice-Session-Handle: x\r\n\
                Coppice-Priority: 777\r\ncoppice_priority: 777\r\nCoppice_Deadline-Ms: 777\r\nCoppice_Ticket: 9.777\r\n";
    let case = Case::new([], "").await;
    case.ask(lies).await;
    let seen = &case.toy.seen()[0];
    assert_eq!(seen.to_lowercase().matches("coppice-session").count(), 2, "the two that are ours: {seen}");
    assert!(!seen.contains(": 777") && !seen.contains("9.777") && !seen.to_lowercase().contains("coppice_"), "{seen}");
    assert_eq!(field(seen, "coppice-session").as_deref(), Some("-"));
    // Nor that of a service that keeps its sessions itself.
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    door.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lies}\r\n")).await;
    assert!(!toy.seen()[0].to_lowercase().contains("coppice-session"), "{:?}", toy.seen());
    assert!(!toy.seen()[0].contains(": 777") && !toy.seen()[0].contains("9.777"), "{:?}", toy.seen());
}
