//! Who has a place at the API when more come than there is room for: over sockets, as places are connections'.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn door(room: Room, is_private: bool) -> (Arc<Toy>, SocketAddr) {
    let (toy, _) = toy(vec![]);
    toy.view.send_modify(|view| {
        let mut new = View::clone(view);
        new.service_tokens = Arc::new([("shop".to_string(), "clones".to_string())].into());
        new.services = vec![service("shop")];
        *view = Arc::new(new);
    });
    let meter = Arc::new(Meter::new());
    let router = router_with(
        Arc::clone(&toy) as _,
        Arc::clone(&meter),
        Functions::new(&meter),
        Router::new().route("/", get(|| async { "page" })),
        is_private,
    );
    let listener = host::ports::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_with(listener, router, room, None, (Arc::default(), std::future::pending())));
    (toy, addr)
}

fn service(name: &str) -> node::view::ServiceView {
    serde_json::from_value(serde_json::json!({"name": name, "wanted": 1, "clones": [], "at": []})).unwrap()
}

async fn say(addr: SocketAddr, line: &str, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    stream.write_all(format!("{line} HTTP/1.1\r\nHost: {addr}\r\n{token}\r\n").as_bytes()).await.unwrap();
    stream
}

/// The status, or 0 if the connection ended without one.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 12];
    match tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut head))
        .await
        .expect("an answer or an end")
    {
        Ok(_) => std::str::from_utf8(&head[9..]).unwrap().parse().unwrap(),
        Err(_) => 0,
    }
}

async fn ended(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await.expect("it should end");
}

const SMALL: Room = Room { silent: 4, strangers: 4, probes: 2, known: 4 };

#[tokio::test]
async fn whoever_has_not_asked_or_shown_a_token_keeps_nobody_else_out() {
    let (_toy, addr) = door(SMALL, false).await;
    let mut known = say(addr, "GET /v1/export", "wrong").await;
    assert_eq!(status(&mut known).await, 401);
    let mut clone = say(addr, "GET /v1/services/shop/members", "clones").await;
    assert_eq!(status(&mut clone).await, 200);
    let mut all = Vec::new();
    for _ in 0..50 {
        all.push(TcpStream::connect(addr).await.unwrap());
        let mut stranger = say(addr, "GET /v1/ns", "").await;
        assert_eq!(status(&mut stranger).await, 200);
        all.push(stranger);
        for (line, token) in
            [("GET /readyz", ""), ("GET /v1/services/shop/members", "root"), ("GET /v1/ns/carts", "secret")]
        {
            let mut asks = say(addr, line, token).await;
            assert_ne!(status(&mut asks).await, 0, "{line}");
        }
    }
    // The first of the strangers were closed, and the clone's connection was not.
    ended(&mut all[0]).await;
    ended(&mut all[1]).await;
    clone.write_all(format!("GET /livez HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes()).await.unwrap();
    let mut rest = [0; 4096];
    assert!(clone.read(&mut rest).await.unwrap() > 0);
}

#[tokio::test]
async fn who_holds_one_token_cannot_have_all_places() {
    let (_toy, addr) = door(SMALL, false).await;
    let mut all = Vec::new();
    for expect in [404, 404, 404, 404, 503, 503] {
        let mut one = say(addr, "GET /v1/ns/carts", "secret").await;
        assert_eq!(status(&mut one).await, expect);
        all.push(one);
    }
    let mut clone = say(addr, "GET /v1/services/shop/members", "clones").await;
    assert_eq!(status(&mut clone).await, 200);
    ended(&mut all[0]).await;
}

#[tokio::test]
async fn streams_of_strangers_leave_places_for_who_holds_a_token() {
    let (toy, addr) = door(Room::default(), false).await;
    let mut all = Vec::new();
    for _ in 0..limits::STREAMS_MAX + 5 {
        let mut one = say(addr, "GET /v1/services/shop/members?watch", "").await;
        assert_eq!(status(&mut one).await, 200);
        let mut two = say(addr, "GET /v1/events", "").await;
        assert_eq!(status(&mut two).await, 200);
        all.extend([one, two]);
    }
    ended(&mut all[0]).await;
    ended(&mut all[1]).await;
    let news = clones::members::Reply::News { messages: Vec::new(), at: 7, missed: 0 };
    toy.answers.lock().unwrap().push(Answer::Members(Outcome::Done(news)));
    for (line, token) in [
        ("GET /v1/services/shop/members?watch", "clones"),
        ("GET /v1/services/shop/messages", "clones"),
        ("GET /v1/events", "root"),
    ] {
        assert_eq!(status(&mut say(addr, line, token).await).await, 200, "{line}");
    }
}

#[tokio::test]
async fn silent_strangers_without_end_fail_no_request() {
    let (_toy, addr) = door(Room::default(), false).await;
    let flood = tokio::spawn(async move {
        let (mut open, mut count) = (std::collections::VecDeque::new(), 0u32);
        loop {
            if let Ok(stream) = TcpStream::connect(addr).await {
                (open.push_back(stream), count += 1).1
            }
            if open.len() > 1000 {
                open.pop_front();
            }
            if count >= 10_000 {
                return;
            }
        }
    });
    let (begun, mut asked) = (Instant::now(), 0);
    while !flood.is_finished() && begun.elapsed() < Duration::from_secs(30) {
        for (line, token) in [("GET /readyz", ""), ("GET /v1/status", ""), ("GET /v1/services/shop/members", "clones")]
        {
            assert_eq!(
                status(&mut say(addr, line, token).await).await,
                200,
                "{line}, {asked} after {:?}",
                begun.elapsed()
            );
            asked += 1;
        }
    }
    flood.abort();
    assert!(asked > 10, "{asked}");
}

#[tokio::test]
async fn a_private_api_answers_nobody_without_a_token() {
    let (_toy, addr) = door(Room::default(), true).await;
    for (line, token, expect) in [
        ("GET /readyz", "", 200),
        ("GET /v1/status", "", 401),
        ("GET /v1/status", "secret", 401),
        ("GET /v1/status", "root", 200),
        ("GET /metrics", "", 401),
        ("GET /metrics", "root", 200),
        ("GET /v1/openapi.json", "", 401),
        ("GET /", "", 401),
        ("GET /nosuch", "", 401),
        ("GET /v1/services/shop/members", "", 401),
        ("GET /v1/services/shop/members", "clones", 200),
        ("GET /v1/catalog", "", 401),
        ("GET /v1/catalog", "secret", 401),
        ("GET /v1/catalog", "clones", 200),
        ("GET /v1/catalog/shop/openapi", "clones", 404),
        ("POST /v1/route/explain", "", 401),
        ("GET /v1/ns", "secret", 401),
        ("GET /v1/ns/carts", "", 401),
        ("GET /v1/ns/carts", "secret", 404),
        ("GET /v1/session/x", "", 404),
    ] {
        assert_eq!(status(&mut say(addr, line, token).await).await, expect, "{line} {token:?}");
    }
    // A browser asks the person, who says the token as a password.
    let mut page = TcpStream::connect(addr).await.unwrap();
    let basic = format!("GET / HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Basic b3BlcmF0b3I6cm9vdA==\r\n\r\n");
    page.write_all(basic.as_bytes()).await.unwrap();
    assert_eq!(status(&mut page).await, 200);
}

#[tokio::test]
async fn a_host_that_is_an_address_is_the_one_that_it_came_to() {
    let (_toy, addr) = door(Room::default(), false).await;
    for (host, expect) in [
        (addr.to_string(), 200),
        ("127.0.0.1".into(), 200),
        ("localhost".into(), 200),
        ("[::1]:80".into(), 200),
        ("n1".into(), 200),
        ("93.184.216.34".into(), 403),
        ("93.184.216.34:80".into(), 403),
        ("[2001:db8::1]".into(), 403),
        ("0.0.0.0".into(), 403),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(status(&mut stream).await, expect, "{host}");
    }
}
