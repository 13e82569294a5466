//! The edge cache of a service, against clones that say what the test says and a toy of class `cache`: what is asked of a clone, and
//! what a client gets. The real class is behind tests/tests/all/beside/edge_cache.rs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{Answer, Door, NoNode, Toy, clone, field, soon};
use base::{NodeId, Outcome, Span};
use bytes::Bytes;
use clones::route::{RouteService, Routes};
use clones::{EdgeCache, HttpRoute, ServiceSpec};
use edge::api::{Backend, Gone, Minted};
use edge::http::Config;
use futures_util::future::BoxFuture;
use node::{Ask, View};
use state::cache::{Act, Entry, Mark, Reply};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, watch};

/// A namespace of class `cache` in which no time passes.
#[derive(Default)]
struct Node {
    entries: Mutex<HashMap<Bytes, Entry>>,
    purges: Mutex<u64>,
    is_hung: AtomicBool,
}

impl Node {
    fn keys(&self) -> Vec<String> {
        let entries = self.entries.lock().unwrap();
        let mut keys: Vec<String> = entries.keys().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect();
        keys.sort();
        keys
    }

    fn purge(&self) {
        *self.purges.lock().unwrap() += 1;
        self.entries.lock().unwrap().clear();
    }

    fn act(&self, key: Bytes, act: Act) -> Outcome<Reply> {
        let mut entries = self.entries.lock().unwrap();
        let number = *self.purges.lock().unwrap();
        if self.is_hung.load(SeqCst) {
            return Outcome::Done(Reply::Read { entry: None, mark: None });
        }
        let now = Mark { node: NodeId(1), life: 1, number };
        Outcome::Done(match act {
            Act::Read => Reply::Read { entry: entries.get(&key).cloned(), mark: Some(now) },
            Act::Set { mark, .. } if mark != Some(now) => Reply::NotStored,
            Act::Set { value, kind, tags, ttl, .. } => {
                entries.insert(key, Entry { value, kind, tags, ttl_left: ttl });
                Reply::Stored
            }
            Act::Remove => Reply::Changed(entries.remove(&key).is_some()),
            other => panic!("{other:?}"),
        })
    }
}

impl Backend for Node {
    fn ask(&self, ask: Ask, budget: Span) -> BoxFuture<'static, Result<node::Answer, Gone>> {
        let Ask::Cache(op) = ask else { return NoNode.ask(ask, budget) };
        assert_eq!(&*op.namespace, "pages");
        let outcome = self.act(op.key, op.act);
        Box::pin(async move { Ok(node::Answer::Cache(outcome)) })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        watch::channel(Arc::default()).1
    }

    fn mint(&self) -> Result<Minted, String> {
        Err("nobody joins".into())
    }

    fn keep_code(&self, _: String, _: Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        Box::pin(async { Err("nothing is kept here".into()) })
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<Bytes>> {
        Box::pin(async { None })
    }

    fn logs(&self, _: edge::api::logs::Wanted) -> BoxFuture<'static, Result<edge::api::logs::Gathered, String>> {
        unreachable!()
    }
}

struct Case {
    door: Door,
    node: Arc<Node>,
    toy: Toy,
}

impl Case {
    /// A clone that answers each request with what `says` makes of its head.
    async fn new(says: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::held(says, None).await
    }

    /// ... when it is let.
    async fn held(says: impl Fn(&str) -> String + Send + Sync + 'static, hold: Option<Arc<Notify>>) -> Self {
        let says = Arc::new(says);
        let toy = Toy::start(move |toy, mut stream, _| {
            let (says, hold) = (Arc::clone(&says), hold.clone());
            async move {
                while let Ok(head) = toy.read_request(&mut stream).await {
                    if let Some(hold) = &hold {
                        hold.notified().await;
                    }
                    let answer = says(&head);
                    if answer.is_empty() {
                        return Ok(());
                    }
                    stream.write_all(answer.as_bytes()).await?;
                }
                Ok(())
            }
        })
        .await;
        let mut declared = ServiceSpec::new(["shop"]);
        declared.http = Some(HttpRoute::default());
        declared.cache = Some(EdgeCache { namespace: "pages".into() });
        let service = RouteService { clones: vec![clone(1, toy.addr, true)], ..RouteService::new("shop", &declared) };
        let node = Arc::new(Node::default());
        let routes = Arc::new(Routes::new(vec![service]));
        Self { door: Door::before(routes, Config::default(), Arc::clone(&node) as _).await, node, toy }
    }

    async fn ask(&self, line: &str, fields: &str) -> Answer {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut client = self.door.client().await;
        client.send(&request).await;
        let head = client.head().await;
        if line.starts_with("HEAD") || head[9..12] == *"304" {
            return Answer { status: head[9..12].parse().unwrap(), head, body: String::new() };
        }
        client.rest(head).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "").await
    }

    /// Asks until something is stored at so many addresses: that happens a moment after the answer.
    async fn stored(&self, count: usize) {
        soon(async {
            while self.node.keys().len() != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn asked(&self) -> usize {
        self.toy.seen().len()
    }

    fn figure(&self, of: impl Fn(&edge::meter::CacheCounts) -> u64) -> u64 {
        of(&self.door.meter.caches.of("shop"))
    }
}

fn says(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn did(answer: &Answer) -> String {
    answer.field("cache-status").unwrap_or_else(|| panic!("{answer:?}"))
}

/// That the cache did this, and says how many seconds are left of so many: a busy machine takes some of them.
#[track_caller]
fn did_with_left(answer: &Answer, expect: &str, seconds: u64) {
    let did = did(answer);
    let (what, left) = did.rsplit_once("; ttl=").unwrap_or_else(|| panic!("{did}"));
    assert_eq!(what, expect);
    let left: u64 = left.parse().unwrap();
    assert!((seconds - 20..=seconds).contains(&left), "{did}");
}

#[tokio::test]
async fn the_second_one_is_answered_without_a_clone_in_whole_in_part_or_with_what_he_has() {
    let case =
        Case::new(|_| says("Cache-Control: max-age=60\r\nETag: \"v1\"\r\nAge: 7\r\nX-Mine: 1\r\n", "0123456789")).await;
    let first = case.get("/page?q=1").await;
    assert_eq!((first.status, &*first.body, &*did(&first)), (200, "0123456789", "coppice; fwd=uri-miss; stored"));
    case.stored(1).await;
    assert_eq!(case.node.keys(), ["http://a/page?q=1"]);
    let hit = case.get("/page?q=1").await;
    assert_eq!((hit.status, &*hit.body), (200, "0123456789"));
    did_with_left(&hit, "coppice; hit", 53);
    assert!((7..27).contains(&hit.field("age").unwrap().parse::<u64>().unwrap()), "{hit:?}");
    assert_eq!(hit.field("x-mine").unwrap(), "1");
    assert!(hit.field("date").is_some());
    let part = case.ask("GET /page?q=1", "Range: bytes=2-4\r\n").await;
    assert_eq!((part.status, &*part.body, part.field("content-range").unwrap()), (206, "234", "bytes 2-4/10".into()));
    let nowhere = case.ask("GET /page?q=1", "Range: bytes=20-\r\n").await;
    assert_eq!((nowhere.status, nowhere.field("content-range").unwrap()), (416, "bytes */10".into()));
    let known = case.ask("GET /page?q=1", "If-None-Match: \"v1\"\r\n").await;
    assert_eq!((known.status, known.field("etag").unwrap()), (304, "\"v1\"".into()));
    let head = case.ask("HEAD /page?q=1", "").await;
    assert_eq!((head.status, head.field("content-length").unwrap()), (200, "10".into()));
    assert!(did(&head).starts_with("coppice; hit"), "{head:?}");
    assert_eq!(case.asked(), 1);
    assert_eq!((case.figure(|c| c.hits.load(SeqCst)), case.figure(|c| c.misses.load(SeqCst))), (5, 1));
    assert_eq!(case.get("/page?q=2").await.status, 200);
    assert_eq!(case.asked(), 2, "it is another address");
}

#[tokio::test]
async fn what_is_one_persons_is_not_kept_and_what_is_kept_has_nothing_of_one() {
    let case = Case::new(|head| match head.split(' ').nth(1).unwrap() {
        "/cookie" => says("Cache-Control: max-age=60\r\nSet-Cookie: id=secret\r\n", "mine"),
        "/public" => says("Cache-Control: public, max-age=60\r\nSet-Cookie: id=secret\r\n", "ours"),
        "/private" => says("Cache-Control: private, max-age=60\r\n", "mine"),
        _ => says("Cache-Control: max-age=60\r\n", "some"),
    })
    .await;
    for path in ["/cookie", "/private"] {
        for _ in 0..2 {
            assert_eq!(did(&case.get(path).await), "coppice; fwd=uri-miss", "{path}");
        }
    }
    let authorized = "Authorization: Basic x\r\n";
    assert_eq!(did(&case.ask("GET /some", authorized).await), "coppice; fwd=uri-miss");
    assert_eq!((case.node.keys().len(), case.asked()), (0, 5));
    assert!(case.get("/public").await.field("set-cookie").is_some(), "who asked for it gets it");
    case.stored(1).await;
    let hit = case.ask("GET /public", authorized).await;
    assert!(did(&hit).starts_with("coppice; hit") && hit.field("set-cookie").is_none(), "{hit:?}");
    case.get("/some").await;
    case.stored(2).await;
    assert_eq!(did(&case.ask("GET /some", authorized).await), "coppice; fwd=bypass");
    assert!(did(&case.get("/some").await).starts_with("coppice; hit"));
}

#[tokio::test]
async fn each_variant_is_kept_for_whom_it_is() {
    let case = Case::new(|head| {
        let language = field(head, "accept-language").unwrap_or_default();
        says("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", &language)
    })
    .await;
    for round in 0..2 {
        for (n, language) in ["de", "en", "fr"].into_iter().enumerate() {
            let answer = case.ask("GET /", &format!("Accept-Language: {language}\r\n")).await;
            assert_eq!(answer.body, language);
            match (round, n) {
                (0, 0) => assert_eq!(did(&answer), "coppice; fwd=uri-miss; stored"),
                (0, _) => assert_eq!(did(&answer), "coppice; fwd=vary-miss; stored", "{language}"),
                _ => did_with_left(&answer, "coppice; hit", 60),
            }
            case.stored(if round == 0 { n + 1 } else { 3 }).await;
        }
    }
    assert_eq!(case.asked(), 3);
}

#[tokio::test]
async fn who_misses_the_same_waits_for_the_one_that_fetches() {
    let hold = Arc::new(Notify::new());
    let case = Case::held(|_| says("Cache-Control: max-age=60\r\n", "page"), Some(Arc::clone(&hold))).await;
    let asks = futures_util::future::join_all((0..50).map(|_| case.get("/")));
    let release = async {
        soon(async {
            while case.asked() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // All the others have come by then, or find it stored.
        hold.notify_one();
    };
    let (answers, ()) = tokio::join!(asks, release);
    assert!(answers.iter().all(|answer| (answer.status, &*answer.body) == (200, "page")));
    assert_eq!(case.asked(), 1);
}

#[tokio::test]
async fn what_is_not_kept_holds_nobody_up() {
    let hold = Arc::new(Notify::new());
    let case = Case::held(|_| says("Cache-Control: no-store\r\n", "page"), Some(Arc::clone(&hold))).await;
    let asks = futures_util::future::join_all((0..10).map(|_| case.get("/")));
    let release = async {
        for n in 1..=10 {
            soon(async {
                while case.asked() < n {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            hold.notify_one();
        }
    };
    let (answers, ()) = tokio::join!(asks, release);
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!((case.asked(), case.node.keys().len()), (10, 0));
}

#[tokio::test]
async fn what_was_purged_while_it_was_fetched_is_not_kept() {
    let hold = Arc::new(Notify::new());
    let case = Case::held(|_| says("Cache-Control: max-age=60\r\n", "old"), Some(Arc::clone(&hold))).await;
    let purge = async {
        soon(async {
            while case.asked() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        case.node.purge();
        hold.notify_one();
    };
    let (answer, ()) = tokio::join!(case.get("/"), purge);
    assert_eq!(answer.body, "old");
    hold.notify_one();
    assert_eq!(did(&case.get("/").await), "coppice; fwd=uri-miss; stored");
    assert_eq!(case.asked(), 2);
}

#[tokio::test]
async fn a_stale_answer_is_confirmed_and_is_given_when_clones_fail_if_it_says_so() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let case = Case::new(move |head| {
        if broken.load(SeqCst) {
            return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".into();
        }
        if field(head, "if-none-match").is_some_and(|tag| tag == "\"v1\"") {
            return "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nX-New: 1\r\n\r\n".into();
        }
        let path = head.split(' ').nth(1).unwrap().to_owned();
        says(
            &format!("Cache-Control: max-age=60{}\r\nAge: 60\r\nETag: \"v1\"\r\n", path.trim_start_matches('/')),
            "page",
        )
    })
    .await;
    case.get("/").await;
    case.stored(1).await;
    let confirmed = case.get("/").await;
    assert_eq!((confirmed.status, &*confirmed.body), (200, "page"));
    did_with_left(&confirmed, "coppice; fwd=stale; fwd-status=304; stored", 60);
    assert_eq!(confirmed.field("x-new").unwrap(), "1");
    did_with_left(&case.get("/").await, "coppice; hit", 60);
    assert_eq!(case.asked(), 2);
    let (lenient, strict) = ("/,stale-if-error=60", "/,stale-if-error=0");
    case.get(lenient).await;
    case.get(strict).await;
    case.stored(3).await;
    is_broken.store(true, SeqCst);
    let stale = case.get(lenient).await;
    assert_eq!((stale.status, &*stale.body), (200, "page"));
    assert_eq!(did(&stale), "coppice; fwd=stale; fwd-status=503; detail=stale-if-error; ttl=0");
    let asked = case.asked();
    assert_eq!(did(&case.get(lenient).await), "coppice; hit; detail=stale-if-error; ttl=0");
    assert_eq!(case.asked(), asked, "for a moment nobody asks again");
    assert_eq!(case.get(strict).await.status, 503);
}

#[tokio::test]
async fn a_stale_answer_is_given_at_once_while_another_is_fetched() {
    let hold = Arc::new(Notify::new());
    let says = |_: &str| says("Cache-Control: max-age=60, stale-while-revalidate=60\r\nAge: 60\r\n", "page");
    let case = Case::held(says, Some(Arc::clone(&hold))).await;
    hold.notify_one();
    case.get("/").await;
    case.stored(1).await;
    for _ in 0..3 {
        assert_eq!(did(&case.get("/").await), "coppice; hit; detail=stale-while-revalidate; ttl=0");
    }
    soon(async {
        while case.asked() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(case.asked(), 2, "it is fetched once, which has not come back yet");
}

#[tokio::test]
async fn a_change_at_an_address_removes_what_was_kept_of_it() {
    let case = Case::new(|head| match head.split(' ').next().unwrap() {
        "POST" => "HTTP/1.1 303 See Other\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n".into(),
        "PUT" => "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".into(),
        _ => says("Cache-Control: max-age=60\r\n", "page"),
    })
    .await;
    case.get("/").await;
    case.get("/other").await;
    case.get("/third").await;
    case.stored(3).await;
    assert_eq!(did(&case.ask("PUT /", "Content-Length: 0\r\n").await), "coppice; fwd=method");
    assert_eq!(case.node.keys().len(), 3, "it has failed");
    case.ask("POST /", "Content-Length: 0\r\n").await;
    assert_eq!(case.node.keys(), ["http://a/third"]);
}

#[tokio::test]
async fn what_is_not_in_the_key_goes_past_and_a_cache_that_cannot_be_asked_is_in_nobodys_way() {
    let case = Case::new(|_| says("Cache-Control: max-age=60\r\n", "page")).await;
    assert_eq!(did(&case.ask("GET /", "Content-Length: 1\r\n\r\nx").await), "coppice; fwd=bypass");
    assert_eq!(did(&case.ask("GET /", "Cache-Control: no-store\r\n").await), "coppice; fwd=bypass");
    assert_eq!(case.ask("GET /", "Cache-Control: only-if-cached\r\n").await.status, 504);
    assert_eq!(case.node.keys().len(), 0);
    case.node.is_hung.store(true, SeqCst);
    let asked = case.asked();
    for _ in 0..2 {
        assert_eq!(did(&case.get("/").await), "coppice; fwd=uri-miss");
    }
    assert_eq!(case.asked(), asked + 2);
}

#[tokio::test]
async fn an_answer_comes_as_it_is_made_and_one_that_is_too_large_comes_whole() {
    let hold = Arc::new(Notify::new());
    let held = Arc::clone(&hold);
    let toy = Toy::start(move |toy, mut stream, _| {
        let held = Arc::clone(&held);
        async move {
            while let Ok(head) = toy.read_request(&mut stream).await {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .await?;
                stream.write_all(b"5\r\nbegin\r\n").await?;
                held.notified().await;
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                let chunks = if head.starts_with("GET /large") { 100 } else { 1 };
                for _ in 0..chunks {
                    stream.write_all(chunk.as_bytes()).await?;
                }
                stream.write_all(b"0\r\n\r\n").await?;
            }
            Ok(())
        }
    })
    .await;
    let mut case = Case::new(|_| String::new()).await;
    let mut declared = ServiceSpec::new(["shop"]);
    declared.http = Some(HttpRoute::default());
    declared.cache = Some(EdgeCache { namespace: "pages".into() });
    let service = RouteService { clones: vec![clone(1, toy.addr, true)], ..RouteService::new("shop", &declared) };
    let routes = Arc::new(Routes::new(vec![service]));
    case.door = Door::before(routes, Config::default(), Arc::clone(&case.node) as _).await;
    for (path, chunks) in [("/small", 1), ("/large", 100)] {
        let mut client = case.door.client().await;
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let head = client.head().await;
        assert_eq!(client.chunk().await, "begin", "before the rest is made");
        hold.notify_one();
        let rest = client.rest(head).await;
        assert_eq!(rest.body.len(), chunks * 0x10000, "{path}");
    }
    case.stored(1).await;
    assert_eq!(case.node.keys(), ["http://a/small"]);
}

#[tokio::test]
async fn an_answer_that_may_have_broken_off_is_not_kept() {
    let case = Case::new(|_| String::new()).await;
    let toy = Toy::start(|toy, mut stream, number| async move {
        toy.read_request(&mut stream).await?;
        let fields = ["Content-Length: 19\r\n", "Transfer-Encoding: chunked\r\n", ""][number];
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(b"4\r\nhalf\r\n").await
    })
    .await;
    let mut declared = ServiceSpec::new(["shop"]);
    declared.http = Some(HttpRoute::default());
    declared.cache = Some(EdgeCache { namespace: "pages".into() });
    let service = RouteService { clones: vec![clone(1, toy.addr, true)], ..RouteService::new("shop", &declared) };
    let routes = Arc::new(Routes::new(vec![service]));
    let door = Door::before(routes, Config::default(), Arc::clone(&case.node) as _).await;
    for n in 0..3 {
        let mut client = door.client().await;
        client.send(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
        // It is broken off for the client, too, or ends as it came.
        let _ = client.until_end().await;
    }
    assert_eq!((toy.connections(), case.node.keys().len()), (3, 0));
}
