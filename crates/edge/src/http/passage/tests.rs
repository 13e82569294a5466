//! The steps one by one, each by a table: what comes, and what becomes of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::{NodeId, Span};
use bytes::Bytes;
use clones::partition::{Asked, DropHandler, Headers, Partition, Priority};
use clones::path::canonical;
use clones::route::{RouteClone, RouteService, RouteSession, Routes};
use clones::session::SessionCookie;
use clones::spec::{HttpRoute, ServiceSpec};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use node::Ask;

use super::deliver::{Underway, deliver};
use super::session::{close_session, open_session};
use super::*;
use crate::api::{Gone, Minted, logs};
use crate::fields::AnyFields as _;
use crate::http::check::TOO_LARGE;
use crate::http::errand::Answer;
use crate::http::line::Line;
use crate::http::refusal::Dropped;
use crate::pool::{Duplex, Stream};
use crate::tunnels::Tunnels;

/// A node that answers nothing, and clones that cannot be reached.
struct Nobody;

impl Backend for Nobody {
    fn ask(&self, _: Ask, _: Span) -> BoxFuture<'static, Result<node::Answer, Gone>> {
        Box::pin(async { Err(Gone) })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        watch::channel(Arc::default()).1
    }

    fn mint(&self) -> Result<Minted, String> {
        Err("there is no node".into())
    }

    fn keep_code(&self, _: String, _: Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        Box::pin(async { Err("nothing is kept here".into()) })
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<Bytes>> {
        Box::pin(async { None })
    }

    fn logs(&self, _: logs::Wanted) -> BoxFuture<'static, Result<logs::Gathered, String>> {
        Box::pin(async { Err("there are no logs".into()) })
    }
}

impl Dial for Nobody {
    fn dial(&self, _: NodeId, _: SocketAddr, _: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Duplex>>> {
        Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
    }
}

const ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// Of a client that says nothing but what it wants.
const ASKED: Asked<'static> =
    Asked { port: 80, host: "shop.example", path: "/", method: "GET", client: ADDR.ip(), headers: &Silent };

struct Silent;

impl Headers for Silent {
    fn any(&self, _: &str, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }
}

fn service(name: &str, partitions: Vec<Partition>) -> RouteService {
    let mut spec = ServiceSpec::new([name]);
    spec.http = Some(HttpRoute { host: format!("{name}.example"), ..HttpRoute::default() });
    spec.partitions = partitions;
    let clone = RouteClone {
        name: format!("{name}/0"),
        node: NodeId(1),
        local: true,
        addr: ADDR,
        peer: ADDR,
        node_load: 0,
        version: 0,
    };
    RouteService { clones: vec![clone], ..RouteService::new(name, &spec) }
}

fn edge(services: Vec<RouteService>) -> Arc<Edge> {
    let view = View { routes: Arc::new(Routes::new(services)), admin_token: "secret".into(), ..View::default() };
    let view = watch::channel(Arc::new(view)).1;
    Edge::of(view, Arc::new(Nobody), &Meter::default(), Arc::new(Nobody), Config::default())
}

fn client() -> Client {
    let peer = Arc::new(Peer::new("192.0.2.1".parse().unwrap(), 80, false));
    Client { peer, flags: Arc::default(), open: None }
}

/// A request without a body; `fields` are `name: value`, for `shop.example` unless they say another host.
fn request(client: &Client, method: &str, target: &str, fields: &[&str]) -> Request<Counted> {
    let mut request = Request::builder().method(method).uri(target);
    if !fields.iter().any(|field| field.starts_with("host:")) {
        request = request.header("host", "shop.example");
    }
    for (name, value) in fields.iter().filter_map(|field| field.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(Counted::none(&client.flags)).unwrap()
}

/// The same as it is read of HTTP/1, its fields beside it.
fn read(client: &Client, method: &str, target: &str, fields: &[&str]) -> (Request<Counted>, Option<Fields>) {
    let mut request = request(client, method, target, fields);
    let list = request.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    request.headers_mut().clear();
    (request, Some(Fields::List(list)))
}

fn passage(edge: &Edge, client: &Client, target: &str, fields: &[&str]) -> Result<Roomed, Refusal> {
    understand(edge, client, Instant::now(), read(client, "GET", target, fields), &mut Told::default())
}

fn shown(fields: &HeaderMap) -> Vec<String> {
    let mut shown: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    shown.sort_unstable();
    shown
}

#[tokio::test]
async fn what_a_client_may_not_ask_or_say_goes_no_further() {
    let (edge, client) = (edge(Vec::new()), client());
    let from = [
        "forwarded: for=192.0.2.1;proto=http;host=\"shop.example\"",
        "host: shop.example",
        "x-forwarded-for: 192.0.2.1",
        "x-forwarded-host: shop.example",
        "x-forwarded-proto: http",
    ];
    for (method, target, says, expect) in [
        ("GET", "/", &[][..], Ok(&[][..])),
        ("GET", "/", &["accept: a", "connection: x-mine", "x-mine: 1", "te: trailers"], Ok(&["accept: a"][..])),
        ("GET", "/", &["x-real-ip: 6.6.6.6", "coppice-session: x", "coppice_ticket: y", "a_b: c"], Ok(&["a_b: c"])),
        ("TRACE", "/", &[], Err(501)),
        ("GET", "/", &["expect: more"], Err(417)),
        ("GET", "/.coppice/x", &[], Err(404)),
    ] {
        let (of_http1, fields) = read(&client, method, target, says);
        // As it comes over HTTP/2 it has them itself.
        let map = request(&client, method, target, says);
        let as_map = cleanse(&edge, &client, map, None).map(|mut cleansed| shown(cleansed.fields.map()));
        match (cleanse(&edge, &client, of_http1, fields), expect) {
            (Ok(mut cleansed), Ok(left)) => {
                assert!(matches!(cleansed.fields, Fields::List(_)), "nobody asked for a map");
                let mut left: Vec<String> = left.iter().chain(&from).map(|field| (*field).to_owned()).collect();
                left.sort_unstable();
                assert_eq!(shown(cleansed.fields.map()), left, "{says:?}");
                assert_eq!(as_map.ok(), Some(left), "{says:?}");
                assert_eq!(cleansed.takes_trailers, says.contains(&"te: trailers"));
            }
            (Err(refusal), Err(status)) => {
                assert_eq!(refusal.response(&mut base::Rng::new(0)).status().as_u16(), status, "{method} {target}");
            }
            (outcome, _) => panic!("{method} {target} {says:?}: {:?}", outcome.err()),
        }
    }
}

#[tokio::test]
async fn a_request_is_found_once_by_all_spellings_of_its_path_or_refused() {
    let pay = Partition { path: Some("/pay".into()), priority: Priority(8), ..Partition::new("pay") };
    let (edge, client) = (edge(vec![service("shop", vec![pay]), service("other", Vec::new())]), client());
    let rest = Priority::default().0;
    for (target, says, expect) in [
        ("/", &[][..], Some(("shop", rest))),
        ("/pay/1?x=/../y", &[], Some(("shop", 8))),
        ("/%70ay", &[], Some(("shop", 8))),
        ("/pay", &["host: OTHER.example:80"], Some(("other", rest))),
        ("/pay", &["host: nobody.example"], None),
    ] {
        let passage = passage(&edge, &client, target, says).unwrap();
        let found = passage.place.as_ref().map(|place| (place.service_name(), place.doorway.class));
        assert_eq!(found, expect, "{target}");
        let path = passage.request.uri.path();
        assert_eq!(passage.path.as_deref().unwrap_or(path), &*canonical(path));
        assert_eq!(passage.path.is_some(), target.contains('%'), "kept only where it differs");
        assert!(matches!(passage.request.fields, Fields::List(_)), "nobody asked for a map");
    }
    for unclear in ["/x/../pay", "//pay", "/%2Fpay/../pay", "/x\\..\\pay"] {
        let refused = passage(&edge, &client, unclear, &[]).err();
        assert!(matches!(refused, Some(Refusal::Violation(_))), "{unclear}: {refused:?}");
    }
}

fn session(priority: Option<u8>) -> Option<Arc<RouteSession>> {
    let spec = SessionCookie { priority: priority.map(Priority), ..SessionCookie::new("users", "id") };
    Some(Arc::new(RouteSession { spec, path: "/".into(), lease_ms: 1000 }))
}

#[tokio::test]
async fn what_a_request_is_done_for_ranks_it_before_its_partition_and_a_session_only_raises_it() {
    let ticket = |edge: &Edge, class| {
        let secret = Arc::clone(edge.pool.table().secret());
        edge.tickets.of(class, &secret, Duration::from_secs(1), Instant::now()).unwrap()
    };
    let pay = || Partition { path: Some("/pay".into()), priority: Priority(3), ..Partition::new("pay") };
    // Priority of the session, of the ticket that is shown; whether the cookie is. None: the session had to be asked,
    // and could not be.
    for (raises, carried_on, cookie, expect) in [
        (None, None, false, Some(3)),
        (None, None, true, Some(3)),
        (None, Some(9), false, Some(9)),
        (None, Some(0), false, Some(0)),
        (Some(7), None, false, Some(3)),
        (Some(7), None, true, None),
        (Some(7), Some(8), true, Some(8)),
        (Some(3), None, true, Some(3)),
    ] {
        let (edge, client) =
            (edge(vec![RouteService { session: session(raises), ..service("shop", vec![pay()]) }]), client());
        let ticket = carried_on.map(|of| format!("coppice-ticket: {}", ticket(&edge, of).to_str().unwrap()));
        let fields: Vec<&str> = ticket.iter().map(String::as_str).chain(cookie.then_some("cookie: id=x")).collect();
        let mut passage = passage(&edge, &client, "/pay", &fields).unwrap();
        let place = passage.place.clone().unwrap();
        let ranked = rank::rank(&edge, &mut passage, &place).await;
        let case = (raises, carried_on, cookie);
        assert_eq!(ranked.as_ref().ok().map(|(class, _)| *class), expect, "{case:?}");
        assert!(ranked.is_ok_and(|(_, session)| session.is_none()) || expect.is_none(), "{case:?}");
    }
}

#[tokio::test]
async fn who_has_no_room_at_its_place_goes_where_is_said_and_not_further() {
    let handler = |status, service: Option<&str>| DropHandler { status, file: None, service: service.map(Into::into) };
    let dropped = |status| Dropped { status: StatusCode::from_u16(status).unwrap(), page: None };
    for (is_off, drop, left_ms, expect) in [
        (false, None, 1000, Ok("shop")),
        (true, None, 1000, Err(Refusal::Off(dropped(503)))),
        (true, Some(handler(Some(429), None)), 1000, Err(Refusal::Off(dropped(429)))),
        (true, Some(handler(None, Some("other"))), 1000, Ok("other")),
        (true, Some(handler(None, Some("off"))), 1000, Err(Refusal::Off(dropped(503)))),
        (true, Some(handler(None, Some("gone"))), 1000, Err(Refusal::Off(dropped(503)))),
        (true, Some(handler(None, Some("other"))), 0, Err(Refusal::Late)),
    ] {
        let all = Partition { path: Some("/".into()), drop: drop.clone(), ..Partition::new("all") };
        let shop = RouteService { is_off, ..service("shop", vec![all]) };
        let off = RouteService { is_off: true, ..service("off", Vec::new()) };
        let (edge, client) = (edge(vec![shop, service("other", Vec::new()), off]), client());
        let place = passage(&edge, &client, "/", &[]).unwrap().out().place.unwrap();
        let deadline = Deadline { at: Instant::now() + Duration::from_millis(left_ms), is_said: true };
        let part = Arc::clone(&place.doorway);
        let admitted = admit::admit(&edge, &client, place, 5, deadline).await;
        let admitted = admitted.map(|(place, _)| place.service_name().to_owned());
        assert_eq!(admitted, expect.map(str::to_owned), "{is_off} {drop:?}");
        assert_eq!(part.part.refused.load(Relaxed), u64::from(is_off));
    }
}

#[tokio::test]
async fn who_answers_for_another_one_is_kept_when_other_routes_come() {
    let before = edge(vec![service("shop", Vec::new()), service("other", Vec::new())]);
    let after = edge(vec![service("new", Vec::new()), service("other", Vec::new()), service("shop", Vec::new())]);
    let before = before.pool.table();
    let (stands_in, own) = (before.service("other").unwrap(), before.place(&ASKED).unwrap());
    let table = after.pool.table();
    let found = |place: &Place| table.find(Some(place), &ASKED).map(|found| found.service);
    assert_eq!((found(&own), found(&stands_in)), (Some(2), Some(1)));
}

#[tokio::test]
async fn a_session_is_opened_where_the_request_goes_and_only_there() {
    let shop = RouteService { session: session(None), ..service("shop", Vec::new()) };
    let (edge, client) = (edge(vec![shop, service("other", Vec::new())]), client());
    let mut passage = passage(&edge, &client, "/", &["cookie: a=b"]).unwrap();
    let place = passage.place.clone().unwrap();
    let opened = open_session(&edge, &mut passage, &place, 4, None).await.unwrap();
    assert_eq!(opened.as_ref().map(|session| (session.class, session.is_there())), Some((4, false)));
    let told = |passage: &Passage| passage.request.fields.names().any(|name| name == "coppice-session-handle");
    assert!(told(&passage));
    let again = open_session(&edge, &mut passage, &place, 4, opened).await.unwrap();
    let other = edge.pool.table().service("other").unwrap();
    assert!(again.is_some() && open_session(&edge, &mut passage, &other, 4, again).await.unwrap().is_none());
    assert!(!told(&passage), "of one service's session another one hears nothing");
}

#[tokio::test]
async fn an_answer_says_to_clients_nothing_under_our_name_but_what_is_for_them() {
    let edge = edge(Vec::new());
    let mut answer = HeaderMap::new();
    for name in ["coppice-session", "coppice-answer", "etag"] {
        answer.insert(name, HeaderValue::from_static("x"));
    }
    close_session(&edge, None, &mut answer).now_or_never().unwrap().unwrap();
    assert_eq!(shown(&answer), ["coppice-answer: x", "etag: x"]);
}

/// An answer with these fields, of a clone.
fn answer(edge: &Edge, status: u16, fields: &[(&'static str, &'static str)]) -> Answer {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in fields {
        response.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    let table = edge.pool.table();
    let target = table.target(table.find(None, &ASKED).unwrap(), &ASKED);
    let upstream = edge.pool.choose(&target, &[]).unwrap();
    let (line, in_flight) = (
        Box::new(Line::new(Stream::Tunnel(Tunnels::default().hold(NodeId(2), Box::new(tokio::io::empty()))))),
        upstream.begin(),
    );
    Answer { response, first: None, line, upstream, in_flight, at: Instant::now() }
}

fn underway(takes_trailers: bool) -> Underway {
    let upgraded_idle = Duration::from_secs(1);
    Underway { upgrade: None, upgraded_idle, takes_trailers, body_max: 7, began: Instant::now() }
}

#[tokio::test]
async fn how_a_request_went_is_counted_once_where_it_went() {
    // What the clone did, whether the turnstile learns from how long it took, and what is left of the answer or what it
    // ends in.
    let says = |status, fields: &[(&'static str, &'static str)]| Ok((status, fields.to_vec()));
    for (outcome, is_learned, expect) in [
        (says(200, &[]), true, Ok(200)),
        (says(500, &[]), true, Ok(500)),
        (says(429, &[]), true, Ok(429)),
        (says(503, &[]), false, Ok(503)),
        (says(200, &[("coppice-pressure", "0.9")]), true, Ok(200)),
        (says(200, &[("coppice-pressure", "1.0")]), false, Ok(200)),
        (Err(Refusal::CloneEnded), false, Err(Refusal::CloneEnded)),
        (Err(Refusal::Violation(TOO_LARGE)), false, Err(Refusal::TooLarge(7))),
    ] {
        let edge = edge(vec![service("shop", Vec::new())]);
        let place = edge.pool.table().place(&ASKED).unwrap();
        let permit = place.doorway.turnstile.enter_now(5, 0).ok().unwrap();
        let name = format!("{outcome:?}");
        let outcome = outcome.map(|(status, fields)| answer(&edge, status, &fields));
        let settled = settle::settle(outcome, Some(permit), Some(&place), &underway(false));
        let settled = settled.map(|answer| {
            assert!(answer.response.headers().is_empty(), "what is said to the edge goes no further");
            answer.response.status().as_u16()
        });
        assert_eq!(settled, expect, "{name}");
        assert_eq!(place.doorway.part.requests.load(Relaxed), 1, "{name}");
        let shown = place.doorway.turnstile.show();
        assert_eq!((shown.services.below().last().unwrap().1, shown.under_way), (u64::from(is_learned), 0), "{name}");
    }
}

#[tokio::test]
async fn an_answer_loses_what_was_for_one_hop_and_changes_only_what_wants_to_be_changed() {
    let edge = edge(vec![service("shop", Vec::new())]);
    for (status, fields, takes_trailers, expect) in [
        (
            200,
            &[("etag", "x"), ("keep-alive", "5"), ("connection", "x-mine"), ("x-mine", "1")][..],
            false,
            Some(&["etag: x"][..]),
        ),
        (200, &[("trailer", "sum")], false, Some(&[])),
        (200, &[("trailer", "sum"), ("connection", "trailer")], true, Some(&["trailer: sum"])),
        (200, &[("transfer-encoding", "chunked"), ("content-length", "5")], false, Some(&[])),
        (101, &[("upgrade", "websocket")], false, None),
    ] {
        let delivered = deliver(&edge, answer(&edge, status, fields), underway(takes_trailers));
        let left = delivered.map(|(response, _)| shown(response.headers()));
        let expect = expect.map(|fields| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>());
        assert_eq!(left, expect.ok_or(Refusal::BadAnswer), "{status} {fields:?}");
    }
}
