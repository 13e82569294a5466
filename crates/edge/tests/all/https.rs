//! The HTTPS door: what is spoken, what a clone sees of it, and clients of HTTP/2 that misbehave.

use std::sync::Arc;

use crate::common::secure::{Secure, frame, next_frame, preface};
use crate::common::{Toy, field, ok, soon};
use bytes::Bytes;
use edge::http::limits::{self, HEAR_OUT};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://shop.example{path}")).body(Full::default()).unwrap()
}

async fn text(response: Response<hyper::body::Incoming>) -> String {
    String::from_utf8(soon(response.into_body().collect()).await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_client_gets_http_2_if_it_speaks_it_and_the_clone_sees_a_sound_request() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("both", &[toy.addr], 1 << 20).await;
    let mut sender = secure.h2().await;
    let request = Request::get("https://shop.example/a?b=c")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("x-forwarded-proto", "gopher")
        .body(Full::default())
        .unwrap();
    let answer = soon(sender.send_request(request)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_2));
    assert_eq!(text(answer).await, "hello");
    let seen = toy.seen()[0].clone();
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    for (name, value) in [
        ("host", "shop.example"),
        ("cookie", "a=1; b=2"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=127.0.0.1;proto=https;host=\"shop.example\""),
    ] {
        assert_eq!(field(&seen, name).as_deref(), Some(value), "{seen}");
    }
    assert_eq!(seen.matches("cookie:").count(), 1);

    let mut old = secure.stream(&[]).await;
    old.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon(old.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn what_http_1_1_refuses_is_refused_in_http_2() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("refused", &[toy.addr], 1000).await;
    let mut sender = secure.h2().await;
    let get = |path: &str| Request::get(format!("https://shop.example{path}"));
    let long = format!("/{}", "a".repeat(9 << 10));
    let mut many = get("/");
    for i in 0..120 {
        many = many.header(format!("x-{i}"), "1");
    }
    let big = Request::post("https://shop.example/").body(Full::from(vec![b'x'; 2000])).unwrap();
    for (request, status) in [
        (get("/").header("host", "other.example").body(Full::default()).unwrap(), 400),
        (get(&long).body(Full::default()).unwrap(), 414),
        (many.body(Full::default()).unwrap(), 431),
        (Request::connect("shop.example:443").body(Full::default()).unwrap(), 501),
        (big, 413),
        (get("/").body(Full::default()).unwrap(), 200),
    ] {
        let shown = format!("{} {}", request.method(), &request.uri().path()[..1.min(request.uri().path().len())]);
        let answer = soon(sender.send_request(request)).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{shown}");
    }
    assert!(toy.seen().iter().all(|seen| seen.starts_with("GET / ") || seen.starts_with("POST / ")));
}

#[tokio::test]
async fn a_client_that_takes_back_its_requests_is_cut_off_and_the_others_go_on() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let request = toy.read_request(&mut stream).await?;
        if request.starts_with("GET /well") {
            return stream.write_all(ok("well").as_bytes()).await;
        }
        std::future::pending().await
    })
    .await;
    let secure = Secure::to("reset", &[toy.addr], 1000).await;
    // GET https / with authority "x".
    let head = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
    // RST_STREAM(CANCEL); and what the other side must answer with a reset of its own, which some count as nobody's
    // (MadeYouReset, CVE-2025-8671): a window that grows by nothing.
    let (reset, made) = ((3, 8u32), (8, 0u32));
    // Taken back before we look, and taken back when a clone has it already.
    for (is_late, (kind, value)) in [(false, reset), (true, reset), (false, made), (true, made)] {
        let before = toy.seen().len();
        let (mut read, mut write) = tokio::io::split(secure.raw().await);
        let ended = tokio::spawn(async move {
            let mut bytes = vec![0; 4096];
            while matches!(read.read(&mut bytes).await, Ok(n) if n > 0) {}
        });
        for n in 0..5000u32 {
            let mut is_sent = write.write_all(&frame(1, 5, 2 * n + 1, &head)).await.is_ok();
            soon(async {
                while is_late && !ended.is_finished() && toy.seen().len() <= before + n as usize {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            is_sent &= write.write_all(&frame(kind, 0, 2 * n + 1, &value.to_be_bytes())).await.is_ok();
            if !is_sent || ended.is_finished() {
                break;
            }
        }
        soon(ended).await.unwrap();
        let reached = toy.seen().len() - before;
        assert!(reached <= 110, "{reached} reached the clone");
    }
    let request = Request::get("https://shop.example/well").body(Full::default()).unwrap();
    assert_eq!(text(soon(secure.h2().await.send_request(request)).await.unwrap()).await, "well");
}

#[tokio::test]
async fn frames_that_move_nothing_end_the_connection() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("flood", &[toy.addr], 1000).await;
    let ping = frame(6, 0, 0, &[0; 8]);
    let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    // An open request, so that empty data is not an error by itself.
    let head = [0x83, 0x87, 0x84, 0x41, 1, b'x'];
    let empty = frame(0, 0, 1, &[]);
    for (kind, flood) in [("ping", ping), ("settings", settings), ("empty data", empty)] {
        let stream = secure.raw().await;
        let (mut read, mut write) = tokio::io::split(stream);
        let ended = tokio::spawn(async move {
            let mut bytes = vec![0; 4096];
            while matches!(read.read(&mut bytes).await, Ok(n) if n > 0) {}
        });
        let _ = write.write_all(&frame(1, 4, 1, &head)).await;
        let flood = flood.repeat(1000);
        for _ in 0..100 {
            if write.write_all(&flood).await.is_err() {
                break;
            }
        }
        tokio::time::timeout(crate::common::PATIENCE, ended)
            .await
            .unwrap_or_else(|_| panic!("{kind} goes on"))
            .unwrap();
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_bounded() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("continuation", &[toy.addr], 1000).await;
    let (mut read, mut write) = tokio::io::split(secure.raw().await);
    let ended = tokio::spawn(async move {
        let mut bytes = vec![0; 4096];
        while matches!(read.read(&mut bytes).await, Ok(n) if n > 0) {}
    });
    let _ = write.write_all(&frame(1, 0, 1, &[0x82, 0x87, 0x84, 0x41, 1, b'x'])).await;
    // Literal fields that are not indexed, and never END_HEADERS.
    let field = [&[0u8, 3][..], b"x-a", &[100], &[b'a'; 100]].concat().repeat(100);
    for _ in 0..1000 {
        if write.write_all(&frame(9, 0, 1, &field)).await.is_err() {
            break;
        }
    }
    soon(ended).await.unwrap();
    assert_eq!(toy.connections(), 0);
}

/// Ten thousand fields of a byte each, which all mean one of 3.9 KB that was said before (HPACK's table): 39 MB a request.
#[tokio::test]
async fn a_small_head_that_means_a_large_one_is_refused_and_costs_no_memory() {
    const REQUESTS: u32 = 90;
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("hpack", &[toy.addr], 1000).await;
    let mut client = secure.raw().await;
    let pseudo = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
    // A literal that is indexed; the length 3900 does not fit into seven bits.
    let large = [&pseudo[..], &[0x40, 3], b"x-b", &[0x7f, 0xbd, 0x1d], &[b'b'; 3900]].concat();
    let before = resident();
    client.write_all(&frame(1, 5, 1, &large)).await.unwrap();
    // The authority stands at 63 of the table now, the large one at 62.
    let bomb = [&pseudo[..3], &[0xbf], &[0xbe; 10_000][..]].concat();
    let mut refused = 0;
    for n in 1..=REQUESTS {
        if client.write_all(&frame(1, 5, 2 * n + 1, &bomb)).await.is_err() {
            break;
        }
    }
    // 431 (its own literal, or by index), a reset, or the end of the connection.
    while let Ok((kind, _, payload)) = next_frame(&mut client).await {
        let is_431 = kind == 1 && payload.windows(3).any(|bytes| bytes == b"431");
        refused += u32::from(is_431 || kind == 3);
        if refused == REQUESTS || kind == 7 {
            break;
        }
    }
    assert!(toy.seen().len() <= 1, "only the first one is a request that may be asked");
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes of memory for {REQUESTS} small heads");
    let request = Request::get("https://shop.example/").body(Full::default()).unwrap();
    assert_eq!(text(soon(secure.h2().await.send_request(request)).await.unwrap()).await, "hello");
}

/// Of this process, bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A certificate may serve other protocols elsewhere: who means one of those is not let in as a web client (ALPACA).
#[tokio::test]
async fn who_speaks_other_protocols_only_is_not_let_in() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("alpn", &[toy.addr], 1000).await;
    for (speaks, is_let_in) in
        [(&["imap"][..], false), (&["imap", "pop3"], false), (&["imap", "h2"], true), (&[], true)]
    {
        let tcp = soon(TcpStream::connect(secure.door.addr)).await.unwrap();
        let agreed = secure.agree(tcp, speaks).await;
        assert_eq!(agreed.is_ok(), is_let_in, "{speaks:?}: {:?}", agreed.err());
    }
    assert_eq!(toy.connections(), 0);
}

#[tokio::test]
async fn broken_tls_ends_its_own_connection_and_no_other() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("broken", &[toy.addr], 1000).await;
    // A handshake record of a client that offers nothing sensible, one of a length that is not allowed, one that stops.
    let nonsense = [&[0x16, 3, 1, 0, 64][..], &[0xff; 64]].concat();
    let too_long = [&[0x16, 3, 1, 0xff, 0xff][..], &[1; 70_000]].concat();
    let cut = vec![0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    for (what, bytes) in [
        ("plain HTTP", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("nonsense", nonsense),
        ("too long", too_long),
        ("cut", cut),
        ("an alert", vec![0x15, 3, 3, 0, 2, 2, 40]),
        ("nothing", Vec::new()),
    ] {
        let mut stream = soon(TcpStream::connect(secure.door.addr)).await.unwrap();
        // The door may have closed it before all is sent.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut said = Vec::new();
        // A reset ends it as well.
        let _ = tokio::time::timeout(crate::common::PATIENCE, stream.read_to_end(&mut said))
            .await
            .unwrap_or_else(|_| panic!("{what} is not ended"));
        let is_told = said.starts_with(b"HTTP/1.1 400 Bad Request\r\n");
        assert_eq!(is_told, what == "plain HTTP", "{what}: {}", said.escape_ascii());
        assert!(is_told || said.len() < 100, "{what}: {} bytes came back", said.len());
    }
    let request = Request::get("https://shop.example/").body(Full::default()).unwrap();
    assert_eq!(text(soon(secure.h2().await.send_request(request)).await.unwrap()).await, "hello");
    assert_eq!(toy.connections(), 1);
}

#[tokio::test]
async fn when_the_doors_close_what_is_under_way_is_answered_and_then_the_connection_ends() {
    let (asked, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (told, may) = (Arc::clone(&asked), Arc::clone(&go));
    let toy = Toy::start(move |toy, mut stream, _| {
        let (told, may) = (Arc::clone(&told), Arc::clone(&may));
        async move {
            let request = toy.read_request(&mut stream).await?;
            if request.starts_with("GET /late") {
                return stream.write_all(ok("").as_bytes()).await;
            }
            // One begins to answer, the other does not.
            let begins = request.starts_with("GET /half");
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(if begins { head.as_bytes() } else { b"" }).await?;
            told.add_permits(1);
            let _ = may.acquire().await;
            let later = if begins { "5\r\nhello\r\n0\r\n\r\n".to_owned() } else { ok("whole") };
            stream.write_all(later.as_bytes()).await
        }
    })
    .await;
    let secure = Secure::to("close", &[toy.addr], 1000).await;
    let mut sender = secure.h2().await;
    let half = soon(sender.send_request(get("/half"))).await.unwrap();
    let whole = tokio::spawn(sender.send_request(get("/whole")));
    soon(asked.acquire_many(2)).await.unwrap().forget();
    secure.close();
    // The client hears that it is to ask no more here.
    soon(async { while sender.send_request(get("/late")).await.is_ok() {} }).await;
    assert!(!secure.door.meter.http.is_empty() && !whole.is_finished(), "two are under way");
    go.add_permits(2);
    assert_eq!(text(soon(whole).await.unwrap().unwrap()).await, "whole");
    assert_eq!(text(half).await, "hello");
    secure.closed().await;
}

#[tokio::test]
async fn who_has_just_connected_when_the_doors_close_is_heard() {
    let toy = Toy::steady("hello").await;
    let secure = Secure::to("hear", &[toy.addr], 1000).await;
    let mut sender = secure.h2().await;
    secure.close();
    // A client is slow to say what it wants; many do not ask elsewhere by themselves if it was too late.
    tokio::time::sleep(HEAR_OUT / 3).await;
    assert_eq!(text(soon(sender.send_request(get("/"))).await.unwrap()).await, "hello");
    secure.closed().await;
    assert!(soon(sender.ready()).await.is_err() || sender.is_closed());
}

#[tokio::test]
async fn a_client_that_is_slow_to_take_the_last_answer_gets_all_of_it() {
    const BODY: usize = 60_000;
    let (asked, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (told, may) = (Arc::clone(&asked), Arc::clone(&go));
    let toy = Toy::start(move |toy, mut stream, _| {
        let (told, may) = (Arc::clone(&told), Arc::clone(&may));
        async move {
            toy.read_request(&mut stream).await?;
            told.add_permits(1);
            let _ = may.acquire().await;
            stream.write_all(ok(&"x".repeat(BODY)).as_bytes()).await
        }
    })
    .await;
    let secure = Secure::to("linger", &[toy.addr], 1000).await;
    // Most of the answer waits in the door's socket.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let tcp = soon(socket.connect(secure.door.addr)).await.unwrap();
    let mut client = preface(secure.over(tcp, &["h2"]).await).await;
    client.write_all(&frame(1, 5, 1, &[0x82, 0x87, 0x84, 0x41, 1, b'x'])).await.unwrap();
    soon(asked.acquire()).await.unwrap().forget();
    secure.close();
    // GOAWAY comes with a PING; the last GOAWAY when that is answered.
    let mut goodbyes = 0;
    while goodbyes < 2 {
        match next_frame(&mut client).await.unwrap() {
            (6, 0, ping) => client.write_all(&frame(6, 1, 0, &ping)).await.unwrap(),
            (7, ..) => goodbyes += 1,
            _ => (),
        }
    }
    go.add_permits(1);
    // If the door closes its socket now, what the client still says resets it.
    let _ = tokio::time::timeout(HEAR_OUT / 3, secure.closed()).await;
    client.write_all(&frame(8, 0, 0, &1000u32.to_be_bytes())).await.unwrap();
    client.flush().await.unwrap();
    let (mut taken, mut is_over) = (0, false);
    while !is_over {
        let (kind, flags, payload) =
            next_frame(&mut client).await.unwrap_or_else(|e| panic!("{e} after {taken} bytes"));
        if kind == 0 {
            (taken, is_over) = (taken + payload.len(), flags & 1 == 1);
        }
    }
    assert_eq!(taken, BODY);
    drop(client);
    secure.closed().await;
}

/// A byte each so often.
struct Drips(tokio::time::Interval);

impl hyper::body::Body for Drips {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_tick(cx).map(|_| Some(Ok(hyper::body::Frame::data(Bytes::from_static(b"X")))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_gets_408() {
    let toy = Toy::steady("hi").await;
    let secure = Secure::to("drips", &[toy.addr], 1 << 20).await;
    let io = TokioIo::new(secure.stream(&["h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let drips = Drips(tokio::time::interval(limits::BODY_IDLE / 4));
    let request = Request::post("https://shop.example/").header("content-length", "100000").body(drips).unwrap();
    let begun = tokio::time::Instant::now();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 408);
    let took = begun.elapsed();
    assert!(took >= limits::RATE_GRACE && took < limits::RATE_GRACE * 2, "after {took:?}");
}

/// Virtual time on real loopback sockets: time jumps only when no task has anything to do.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_come_to_its_end_is_given_up() {
    let secure = Secure::to("silent", &[], 1000).await;
    let mut stream = TcpStream::connect(secure.door.addr).await.unwrap();
    stream.write_all(&[0x16, 3, 1, 0]).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    assert!(begun.elapsed() < edge::http::limits::HANDSHAKE_TIME * 2, "after {:?}", begun.elapsed());
    assert!(said.is_empty(), "{said:?}");
}
