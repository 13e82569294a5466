//! Lines against clones that are played here byte by byte.

use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

use base::NodeId;

use super::*;
use crate::http::limits::ANSWER_TIME;
use crate::tunnels::Tunnels;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A line, and its clone's side, which takes `room` bytes that nobody reads.
fn line(room: usize) -> (Line, DuplexStream) {
    let (ours, clones) = tokio::io::duplex(room);
    (Line::new(Stream::Tunnel(Tunnels::default().hold(NodeId(2), Box::new(ours)))), clones)
}

fn post(body: UpBody, framing: Framing) -> Request {
    let head = request(Vec::new(), &Method::POST, "/once", &HeaderMap::new(), framing, []);
    Request {
        head,
        expects: Expects { no_body: false, upgrade: false },
        framing,
        body,
        patience: ANSWER_TIME,
        idle: ANSWER_IDLE,
        asks_leave: false,
        interim: None,
    }
}

fn whole(body: &'static str) -> Request {
    post(UpBody::Whole(Bytes::from_static(body.as_bytes())), Framing::Length(body.len() as u64))
}

/// A streamed body that a client sends, who then says nothing more.
async fn streamed(body: &'static str) -> Counted {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        client.write_all(format!("POST / HTTP/1.1\r\nhost: a\r\n{body}").as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    Counted::of_http1(crate::http::server::body_on(Box::new(server)).await, &Default::default())
}

async fn rest(line: &mut Line) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| line.poll_frame(cx)).await {
        all.extend_from_slice(&frame?.into_data().unwrap_or_default());
    }
    Ok(all)
}

/// What the clone reads until it has seen `end`.
async fn read_to(clone: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        assert!(clone.read_buf(&mut seen).await.unwrap() > 0, "it ended after {}", String::from_utf8_lossy(&seen));
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn one_line_carries_request_after_request() {
    let (mut line, mut clone) = line(4096);
    for _ in 0..3 {
        clone_answers(&mut line, &mut clone).await;
        assert!(line.is_ready());
    }
}

async fn clone_answers(line: &mut Line, clone: &mut DuplexStream) {
    let (sent, ()) = tokio::join!(line.send(whole("hello")), async {
        let seen = read_to(clone, "hello").await;
        assert_eq!(seen, "POST /once HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello");
        clone.write_all(OK.as_bytes()).await.unwrap();
    });
    assert!(sent.is_ok());
    assert_eq!(line.left(), Some(2));
    assert_eq!(rest(line).await.unwrap(), b"ok");
}

#[tokio::test]
async fn who_speaks_unasked_gets_no_request() {
    let (mut line, mut clone) = line(4096);
    clone_answers(&mut line, &mut clone).await;
    clone.write_all(OK.as_bytes()).await.unwrap();
    // Or the next request would get the answer that nobody asked for.
    let Err(Failed::SpokeFirst(UpBody::Whole(body))) = line.send(whole("hello")).await else { panic!("it was sent") };
    assert!(body == "hello" && !line.is_ready());
}

#[tokio::test]
async fn a_request_for_a_connection_that_just_closed_comes_back_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    drop(listener.accept().await.unwrap());
    // The end is there to be read, but nobody has looked yet: the race between a look and a request.
    stream.readable().await.unwrap();
    let mut line = Line::new(Stream::Local(stream));
    let Err(Failed::Unsent(UpBody::Whole(body))) = line.send(whole("hello")).await else { panic!("it was sent") };
    assert!(body == "hello" && !line.is_ready() && !line.is_surely_open());
}

#[tokio::test]
async fn a_streamed_body_comes_back_whole_from_a_line_that_took_none_of_it() {
    for (body, framing, wanted) in [
        ("content-length: 5\r\n\r\nhello", Framing::Length(5), "hello"),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", Framing::Chunked, "hello"),
        ("transfer-encoding: chunked\r\n\r\n0\r\n\r\n", Framing::Chunked, ""),
    ] {
        let (mut shut, clone) = line(4096);
        // It can be written to no more, and there is nothing to read.
        let (_reading, writing) = tokio::io::split(clone);
        drop((_reading, writing));
        let failed = shut.send(post(UpBody::Stream(streamed(body).await), framing)).await;
        let Err(Failed::Unsent(back)) = failed else { panic!("it was sent") };
        let (mut line, mut clone) = line(4096);
        let (sent, seen) = tokio::join!(line.send(post(back, framing)), async {
            let end = if framing == Framing::Chunked { "0\r\n\r\n" } else { wanted };
            let seen = read_to(&mut clone, end).await;
            clone.write_all(OK.as_bytes()).await.unwrap();
            seen
        });
        assert!(sent.is_ok() && seen.contains(wanted), "{seen}");
        assert_eq!(rest(&mut line).await.unwrap(), b"ok");
        assert!(line.is_ready());
    }
}

#[tokio::test]
async fn the_first_part_of_a_body_goes_out_with_its_head() {
    // Its end does not come.
    let body = streamed("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let (mut line, mut clone) = line(4096);
    let mut first = vec![0; 4096];
    let count = tokio::select! {
        biased;
        _ = line.send(post(UpBody::Stream(body), Framing::Chunked)) => panic!("it waits for the end"),
        count = clone.read(&mut first) => count.unwrap(),
    };
    let first = String::from_utf8_lossy(&first[..count]);
    assert!(first.ends_with("\r\n\r\n5\r\nhello\r\n"), "{first}");
}

#[tokio::test]
async fn a_client_that_breaks_its_body_off_is_not_the_clones_fault() {
    let body = streamed("content-length: 9\r\n\r\nhello").await;
    let frame = async {
        let mut body = body;
        body.frame().await.unwrap().unwrap();
        body
    };
    // It says nine bytes and brings ten.
    let mut body = frame.await;
    body.put_back(Bytes::from_static(b"0123456789"));
    let (mut line, _clone) = line(4096);
    assert!(matches!(line.send(post(UpBody::Stream(body), Framing::Length(9))).await, Err(Failed::Upload)));
    assert!(!line.is_ready());
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_heard_and_ends_the_line() {
    let (mut line, mut clone) = line(64);
    let long = post(UpBody::Whole(Bytes::from(vec![b'x'; 4096])), Framing::Length(4096));
    let (sent, ()) = tokio::join!(line.send(long), async {
        clone.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
    });
    assert_eq!(sent.ok().unwrap().status(), 413);
    assert_eq!(rest(&mut line).await.unwrap(), b"no");
    assert!(!line.is_ready(), "most of the request is not written");
}

#[tokio::test]
async fn an_answer_is_heard_though_the_clone_takes_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut line = Line::new(Stream::Local(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()));
    let (mut clone, _) = listener.accept().await.unwrap();
    let (sent, ()) = tokio::join!(line.send(whole("hello")), async {
        read_to(&mut clone, "hello").await;
        clone.write_all(b"HTTP/1.1 413 Too Large\r\n\r\nno").await.unwrap();
        clone.shutdown().await.unwrap();
    });
    assert_eq!(sent.ok().unwrap().status(), 413);
    assert_eq!(rest(&mut line).await.unwrap(), b"no");
    assert!(!line.is_ready());
}

#[tokio::test]
async fn what_is_no_answer_and_what_breaks_off_are_told_apart() {
    let (mut bad, mut clone) = line(4096);
    clone_says(&mut clone, "SMTP ready\r\n").await;
    let sent = tokio::join!(bad.send(whole("hello")), clone_says(&mut clone, "")).0;
    assert!(matches!(sent, Err(Failed::SpokeFirst(_))));

    let (mut bad, mut clone) = line(4096);
    let (sent, ()) = tokio::join!(bad.send(whole("hello")), async {
        read_to(&mut clone, "hello").await;
        clone_says(&mut clone, "SMTP ready\r\n").await;
    });
    assert!(matches!(sent, Err(Failed::NoAnswer(_))));

    let (mut ends, mut clone) = line(4096);
    let (sent, ()) = tokio::join!(ends.send(whole("hello")), async move {
        read_to(&mut clone, "hello").await;
        clone_says(&mut clone, "HTTP/1.1 200 OK\r\ncontent-").await;
    });
    assert!(matches!(sent, Err(Failed::Ended(_))));

    let (mut half, mut clone) = line(4096);
    let (sent, ()) = tokio::join!(half.send(whole("hello")), async move {
        read_to(&mut clone, "hello").await;
        clone_says(&mut clone, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
    });
    assert!(sent.is_ok());
    assert!(rest(&mut half).await.is_err() && !half.is_ready());
}

async fn clone_says(clone: &mut DuplexStream, text: &str) {
    clone.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clones_time_begins_when_it_has_the_request() {
    let (mut line, mut clone) = line(8);
    let (sent, ()) = tokio::join!(line.send(whole("0123456789012345678901234567890123456789")), async {
        // Slow to take it: ten bytes in half the time that it has.
        let mut seen = [0; 10];
        for _ in 0..8 {
            tokio::time::sleep(ANSWER_TIME / 2).await;
            clone.read_exact(&mut seen).await.unwrap();
        }
        read_to(&mut clone, "9").await;
        clone_says(&mut clone, "HTTP/1.1 204 No Content\r\n\r\n").await;
    });
    assert_eq!(sent.ok().unwrap().status(), 204);
    // And one that never answers is given up.
    let began = tokio::time::Instant::now();
    let sent = tokio::join!(line.send(whole("x")), read_to(&mut clone, "x")).0;
    assert!(matches!(sent, Err(Failed::TimedOut)));
    assert!((ANSWER_TIME..ANSWER_TIME * 2).contains(&began.elapsed()));
}

#[test]
fn what_is_written_is_not_held_any_more() {
    let came = Bytes::from(vec![b'x'; 100]);
    let mut out = Out { data: came.clone(), ..Out::default() };
    out.took(99);
    let Err(came) = came.try_into_mut() else { panic!("a byte is left") };
    out.took(1);
    // Its room takes what comes next.
    assert!(came.try_into_mut().is_ok());
}
