//! What is said between a request and its answer, and behind the answer: interim answers, leave to send a body, trailers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use edge::http::limits::{CONTINUE_WAIT, REST_BYTES_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";

/// Early hints, and the answer when the test says so.
async fn hints(go_on: &Arc<Semaphore>) -> Toy {
    let go_on = Arc::clone(go_on);
    Toy::start(move |toy, mut stream, _| {
        let go_on = Arc::clone(&go_on);
        async move {
            while toy.read_request(&mut stream).await.is_ok() {
                stream.write_all(HINTS.as_bytes()).await?;
                go_on.acquire().await.unwrap().forget();
                stream.write_all(ok("whole").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn early_hints_come_early_and_to_who_understands_them_alone() {
    let go_on = Arc::new(Semaphore::new(0));
    let toy = hints(&go_on).await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
        assert_eq!(field(&head, "link").as_deref(), Some("</a.css>; rel=preload"));
        go_on.add_permits(1);
        assert_eq!(client.answer().await.body, "whole");
    }
    // Also when the answer is there with them.
    go_on.add_permits(2);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 103 "));
    assert_eq!(client.answer().await.body, "whole");
    let old = door.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert_eq!((old.status, old.body.as_str()), (200, "whole"));
}

/// The beginning of the next request may come with one: what is unread of it is no reason to end the connection behind this answer.
#[tokio::test]
async fn a_large_request_behind_another_one_is_answered_on_the_same_connection() {
    let go_on = Arc::new(Semaphore::new(0));
    let toy = hints(&go_on).await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    let body = "x".repeat(3 * REST_BYTES_MAX as usize);
    let second = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{second}")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 103 "), "the first one is being answered");
    go_on.add_permits(2);
    let first = client.answer().await;
    assert_eq!((first.body.as_str(), first.field("connection")), ("whole", None));
    client.send(body).await;
    assert!(client.head().await.starts_with("HTTP/1.1 103 "));
    assert_eq!(client.answer().await.body, "whole");
}

const ASKS: &str = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// A clone that reads a head, says this, and then a body if it is to have one; then it answers 200 with it.
async fn gives_leave(says: &'static str, reads: bool) -> Toy {
    Toy::start(move |_, mut stream, _| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        assert!(String::from_utf8(head).unwrap().to_lowercase().contains("expect: 100-continue\r\n"));
        stream.write_all(says.as_bytes()).await?;
        let mut body = [0; 5];
        let read = stream.read_exact(&mut body).await;
        assert_eq!(read.is_ok(), reads, "{body:?}");
        stream.write_all(ok(std::str::from_utf8(&body).unwrap()).as_bytes()).await
    })
    .await
}

#[tokio::test]
async fn leave_to_send_a_body_is_the_programs_to_give() {
    let toy = gives_leave("HTTP/1.1 100 Continue\r\n\r\n", true).await;
    let door = Door::to(&[toy.addr]).await;
    let (mut client, began) = (door.client().await, Instant::now());
    client.send(ASKS).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(began.elapsed() < CONTINUE_WAIT, "at once");
    client.send("hello").await;
    assert_eq!(client.answer().await.body, "hello");
}

#[tokio::test]
async fn a_program_that_wants_no_body_answers_and_none_is_asked_for() {
    let toy = gives_leave("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", false).await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(ASKS).await;
    let answer = client.answer().await;
    // Nobody knows whether the body will come.
    assert_eq!((answer.status, answer.field("connection").as_deref()), (401, Some("close")));
    assert_eq!(client.until_end().await.unwrap(), "");
}

#[tokio::test]
async fn a_program_that_knows_of_no_such_question_gets_the_body_after_a_while() {
    let toy = gives_leave("", true).await;
    let door = Door::to(&[toy.addr]).await;
    let (mut client, began) = (door.client().await, Instant::now());
    client.send(ASKS).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(began.elapsed() >= CONTINUE_WAIT - Duration::from_millis(10));
    client.send("hello").await;
    assert_eq!(client.answer().await.body, "hello");
}

#[tokio::test]
async fn trailers_reach_who_asks_for_them() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        while toy.read_request(&mut stream).await.is_ok() {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n")
                .await?;
        }
        Ok(())
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let ask = async |fields: &str| {
        let mut client = door.client().await;
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await;
        let head = client.head().await;
        client.0.shutdown().await.unwrap();
        (head, client.until_end().await.unwrap())
    };
    let (head, rest) = ask("TE: trailers\r\nConnection: TE, close\r\n").await;
    assert_eq!(field(&head, "trailer").as_deref(), Some("X-Sum"));
    assert_eq!(rest.to_lowercase(), "5\r\nhello\r\n0\r\nx-sum: 9\r\n\r\n");
    let seen = toy.seen()[0].to_lowercase();
    assert!(seen.contains("te: trailers\r\n") && seen.contains("connection: te\r\n"), "{seen}");
    let (head, rest) = ask("Connection: close\r\n").await;
    assert_eq!((field(&head, "trailer"), rest.as_str()), (None, "5\r\nhello\r\n0\r\n\r\n"));
    assert!(!toy.seen()[1].to_lowercase().contains("te: trailers"));
}
