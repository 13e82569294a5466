//! The other half of an exchange when one half is over: an answer that breaks off, and one that comes before the request was read.

use std::time::Duration;

use crate::common::secure::{Secure, frame};
use crate::common::*;
use bytes::Bytes;
use edge::http::Config;
use edge::http::limits::REST_BYTES_MAX;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::client::TlsStream;

/// Ends a connection by a reset.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
const UNTIL_END: &str = "HTTP/1.1 200 OK\r\n\r\nhello";
const HEAD_ALONE: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What a clone says before it breaks off, what of it is body, and whether it resets.
const BROKEN_OFF: [(&str, &str, bool); 7] = [
    (CHUNKED, "hello", false),
    (CHUNKED, "hello", true),
    (LENGTH, "hello", false),
    (LENGTH, "hello", true),
    (UNTIL_END, "hello", true),
    (HEAD_ALONE, "", false),
    (HEAD_ALONE, "", true),
];

async fn breaks_off(said: &'static str, resets: bool) -> Toy {
    Toy::start(move |toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(said.as_bytes()).await?;
        if resets {
            reset(stream);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_came_of_an_answer_that_breaks_off_is_passed_on_and_the_connection_ends_unfinished() {
    for (said, body, resets) in BROKEN_OFF {
        let toy = breaks_off(said, resets).await;
        for is_local in [true, false] {
            let door = Door::with(vec![clone(1, toy.addr, is_local)], Config::default()).await;
            let mut client = door.client().await;
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
            let heard = client.until_end().await.unwrap();
            assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{said:?} {resets} {is_local}: {heard:?}");
            let after = heard.split_once("\r\n\r\n").unwrap().1;
            assert!(after.contains(body) && !after.contains("0\r\n\r\n") && after.len() < 100, "{heard:?}");
        }
    }
}

#[tokio::test]
async fn the_same_over_http_2_where_its_stream_is_reset() {
    for (said, body, resets) in BROKEN_OFF {
        let toy = breaks_off(said, resets).await;
        let secure = Secure::to("broken", &[toy.addr], 1000).await;
        let request = Request::post("https://shop.example/").body(Full::from("hi")).unwrap();
        let answer = soon(secure.h2().await.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), 200, "{said:?} {resets}");
        let (mut incoming, mut came) = (answer.into_body(), Vec::new());
        let end = loop {
            match soon(incoming.frame()).await {
                Some(Ok(frame)) => came.extend(frame.into_data().unwrap()),
                end => break end,
            }
        };
        assert_eq!(String::from_utf8(came).unwrap(), body);
        assert!(matches!(end, Some(Err(_))), "{said:?}: it is no whole answer");
    }
}

/// More than sockets, windows and buffers hold, for a client that takes it late.
#[tokio::test]
async fn much_that_came_is_passed_on_however_slowly_it_is_taken() {
    const MUCH: usize = 12 << 20;
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MUCH + 1);
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b'x'; MUCH]).await
    })
    .await;
    let secure = Secure::to("much", &[toy.addr], 1000).await;
    let request = Request::post("https://shop.example/").body(Full::default()).unwrap();
    let mut incoming = soon(secure.h2().await.send_request(request)).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut came = 0;
    while let Some(Ok(frame)) = soon(incoming.frame()).await {
        came += frame.into_data().unwrap().len();
    }
    assert_eq!(came, MUCH, "HTTP/2");

    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    // And it sends what nobody reads, which must not cost it the answer.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n").await;
    client.head().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(client.until_end().await.unwrap().len(), MUCH, "HTTP/1.1");
}

/// Answers when it has read the head; what comes then is for nobody.
async fn hasty() -> Toy {
    Toy::start(|_, mut stream, _| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").await?;
        std::future::pending().await
    })
    .await
}

#[tokio::test]
async fn a_small_rest_of_a_request_that_was_answered_is_read_and_the_connection_kept() {
    let toy = hasty().await;
    let door = Door::to(&[toy.addr]).await;
    // Ours and the clone's.
    for (path, status) in [("/.coppice/x", 404), ("/", 413)] {
        let mut client = door.client().await;
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {REST_BYTES_MAX}\r\n\r\n")).await;
        for _ in 0..3 {
            let answer = client.answer().await;
            assert_eq!((answer.status, answer.field("connection")), (status, None));
            client.send(vec![b'x'; REST_BYTES_MAX as usize]).await;
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {REST_BYTES_MAX}\r\n\r\n")).await;
        }
        client.send(vec![b'x'; REST_BYTES_MAX as usize]).await;
    }
}

#[tokio::test]
async fn with_a_large_rest_or_one_of_unknown_length_an_answer_says_that_the_connection_closes() {
    let toy = hasty().await;
    let door = Door::to(&[toy.addr]).await;
    for (path, status) in [("/.coppice/x", 404), ("/", 413)] {
        for framing in [format!("Content-Length: {}", REST_BYTES_MAX + 1), "Transfer-Encoding: chunked".into()] {
            let mut client = door.client().await;
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
            let answer = client.answer().await;
            assert_eq!((answer.status, answer.field("connection").as_deref()), (status, Some("close")), "{framing}");
            assert_eq!(client.until_end().await.unwrap(), "");
        }
    }
}

/// Kind, flags, stream and content of each frame that comes, until the connection ends.
fn frames(mut from: ReadHalf<TlsStream<TcpStream>>) -> UnboundedReceiver<(u8, u8, u32, Vec<u8>)> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut head = [0; 9];
        while from.read_exact(&mut head).await.is_ok() {
            let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            from.read_exact(&mut content).await.unwrap();
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            let _ = sender.send((head[3], head[4], stream, content));
        }
    });
    receiver
}

/// Sends a body over HTTP/2 as its windows allow: after how many bytes of it the answer ended, the code of a reset, if one came, and how
/// many bytes were sent.
async fn uploads(secure: &Secure, path: &str, bytes: usize) -> (Option<usize>, Option<u32>, usize) {
    // Of the stream, and of the connection.
    let (mut windows, mut sent) = ([65_535i64; 2], 0);
    let (mut ended_at, mut reset) = (None, None);
    let (from, mut to) = tokio::io::split(secure.raw().await);
    let mut come = frames(from);
    // POST https, authority "x".
    let mut head = vec![0x83, 0x87, 0x41, 1, b'x', 0x04, path.len() as u8];
    head.extend(path.as_bytes());
    to.write_all(&frame(1, 4, 1, &head)).await.unwrap();
    while reset.is_none() && (sent < bytes || ended_at.is_none()) {
        let room = windows[0].min(windows[1]).max(0) as usize;
        let step = room.min(bytes - sent).min(16 << 10);
        if step > 0 {
            sent += step;
            windows = windows.map(|window| window - step as i64);
            to.write_all(&frame(0, u8::from(sent == bytes), 1, &vec![b'x'; step])).await.unwrap();
            tokio::task::yield_now().await;
        }
        let next = if step > 0 { come.try_recv().ok() } else { Some(soon(come.recv()).await.unwrap()) };
        let Some((kind, flags, stream, content)) = next else { continue };
        let word = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().unwrap());
        match kind {
            0 | 1 if flags & 1 != 0 => ended_at = Some(sent),
            3 => reset = Some(word(0)),
            // The first window of streams.
            4 if flags == 0 => {
                let at = content.chunks(6).position(|setting| setting[..2] == [0, 4]);
                windows[0] += at.map_or(0, |at| i64::from(word(6 * at + 2)) - 65_535);
                // Only then they are in force.
                to.write_all(&frame(4, 1, 0, &[])).await.unwrap();
            }
            7 => panic!("the connection ends: {content:?}"),
            8 => windows[usize::from(stream == 0)] += i64::from(word(0)),
            _ => (),
        }
    }
    (ended_at, reset, sent)
}

#[tokio::test]
async fn over_http_2_an_early_answer_comes_first_and_the_body_is_read_for_a_moment() {
    let toy = hasty().await;
    let secure = Secure::to("early", &[toy.addr], 100 << 20).await;
    for path in ["/", "/.coppice/x"] {
        let (ended_at, reset, sent) = uploads(&secure, path, 300_000).await;
        assert!(ended_at.is_some(), "{path}: the answer came");
        assert_eq!((reset, sent), (None, 300_000), "{path}: the body was taken");
    }
    let request = Request::post("https://shop.example/").body(Full::from(Bytes::from(vec![b'x'; 300_000]))).unwrap();
    let answer = soon(secure.h2().await.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "big");
}

/// A window full of a body that nobody has taken yet is no flood.
#[tokio::test]
async fn over_http_2_a_body_that_waits_does_not_cost_its_client_the_connection() {
    let secure = Secure::to("waits", &[], 100 << 20).await;
    let (ended_at, reset, sent) = uploads(&secure, "/", 300_000).await;
    assert!(
        ended_at.is_some_and(|at| at >= 256 << 10),
        "{ended_at:?}: all that its window holds came before the answer"
    );
    assert_eq!((reset, sent), (None, 300_000));
}

#[tokio::test]
async fn who_sends_on_over_http_2_after_an_early_answer_is_told_to_stop_without_an_error() {
    let toy = hasty().await;
    let secure = Secure::to("on-and-on", &[toy.addr], 1 << 40).await;
    let (ended_at, reset, _) = uploads(&secure, "/", usize::MAX).await;
    assert!(ended_at.is_some());
    assert_eq!(reset, Some(0));
}

#[tokio::test]
async fn an_answer_does_not_wait_for_those_to_the_requests_behind_it() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        while let Ok(request) = toy.read_request(&mut stream).await {
            if request.starts_with("GET /slow") {
                std::future::pending::<()>().await;
            }
            stream.write_all(ok("quick").as_bytes()).await?;
        }
        Ok(())
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send("GET /quick HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.body, "quick");
}
