//! What the HTTP door refuses, by raw bytes over a socket: the right status, a closed connection, and not one byte of it
//! at the clone. Also what takes too long.

use std::time::Duration;

use crate::common::{Client, Door, Toy, soon};
use edge::http::{Config, limits};
use tokio::io::AsyncWriteExt;

async fn check(door: &Door, toy: &Toy, request: &str, status: u16) {
    let before = toy.seen().len();
    let mut client = door.client().await;
    client.send(request).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, status, "{request:?} got {answer:?}");
    assert_eq!(answer.field("connection").as_deref(), Some("close"), "{request:?}");
    assert!(answer.body.ends_with('\n') && answer.body.len() > 10, "{request:?} got no reason: {answer:?}");
    assert_eq!(client.until_end().await.unwrap(), "", "{request:?}");
    assert_eq!(toy.seen().len(), before, "{request:?} reached the clone");
}

#[tokio::test]
async fn smuggling_shaped_requests_get_400_and_a_closed_connection() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Host: a\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 44\r\n",
        "Host: a\r\nContent-Length: 5\r\nContent-Length: 44\r\n",
        "Host: a\r\nContent-Length: 5, 44\r\n",
        "Host: a\r\nContent-Length: +44\r\n",
        "Host: a\r\nTransfer-Encoding: chunked, identity\r\n",
        "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Host: a\r\nTransfer-Encoding: xchunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Host: a\r\nTransfer-Encoding : chunked\r\n",
        "Host: a\r\nX: y\r\n Transfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: \"chunked\"\r\n",
        "Host: a\r\nTransfer-Encoding: chunked;q=1\r\n",
        "Host: a\r\nTransfer-Encoding: , chunked\r\n",
        "Host: a\r\nTransfer-Encoding:\r\n",
        "Host: a\r\nContent-Length: 4 4\r\n",
        "Host: a\r\nContent-Length: 0x2c\r\n",
        "Host: a\r\nContent-Length : 44\r\n",
        "Host: a\r\nContent-Length: 18446744073709551660\r\n",
        "Host: a\r\nHost : b\r\n",
        "Host: a, b\r\n",
        "Host: a\r\n: y\r\n",
        "Host: a\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nX: y\0z\r\n",
        "Host: a\r\nX: y\rTransfer-Encoding: chunked\r\n",
        "Host: a\r\nHost: b\r\n",
        "",
    ] {
        check(&door, &toy, &format!("POST / HTTP/1.1\r\n{fields}\r\n{smuggled}"), 400).await;
    }
    check(&door, &toy, &format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"), 400).await;
    check(&door, &toy, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400).await;
    check(&door, &toy, "GET / HTTP/1.1\nHost: a\n\n", 400).await;
    check(&door, &toy, "\x16\x03\x01\x02\0\x01", 400).await;
    assert_eq!(toy.connections(), 0);
}

#[tokio::test]
async fn oversized_requests_get_their_own_statuses() {
    let toy = Toy::steady("hi").await;
    let config = Config { body_bytes_max: 1000, ..Config::default() };
    let door = Door::with(vec![crate::common::clone(1, toy.addr, true)], config).await;
    check(&door, &toy, &format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000)), 414).await;
    check(&door, &toy, &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000)), 431).await;
    check(&door, &toy, &format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(101)), 431).await;
    let big = "x".repeat(200_000);
    check(&door, &toy, &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{big}"), 413).await;
    check(&door, &toy, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505).await;
    check(&door, &toy, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501).await;

    let mut client = door.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n").await;
    assert_eq!(client.answer().await.status, 413, "also when it shows on the way");
}

#[tokio::test]
async fn a_head_of_64_kib_passes() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let answer = door.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(65_000))).await;
    assert_eq!(answer.status, 200);
    assert!(toy.seen()[0].len() > 65_000);
}

#[tokio::test]
async fn requests_before_a_bad_one_are_answered_and_those_after_it_are_not() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    let good = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{good}\r\n{good}GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n{good}")).await;
    assert_eq!([client.answer().await.body, client.answer().await.body], ["hi", "hi"]);
    assert_eq!(client.answer().await.status, 400);
    assert_eq!(client.until_end().await.unwrap(), "");
    assert_eq!(toy.seen().len(), 2);
    let answers = door.meter.http.answers.all();
    let of_nobody = answers.iter().find(|(service, _)| service.is_empty()).expect("it is counted");
    assert_eq!(of_nobody.1[3].within().last(), Some((None, 1)), "it was 4xx");
}

#[tokio::test]
async fn a_malformed_chunk_ends_the_request_with_400_and_is_never_passed_on() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\nworld\r\n0\r\n\r\n";
    client.send(request).await;
    assert_eq!(client.answer().await.status, 400);
    assert_eq!(client.until_end().await.unwrap(), "");
    assert!(toy.seen().iter().all(|seen| !seen.contains("world")), "{:?}", toy.seen());
}

#[tokio::test]
async fn trailers_end_at_the_door() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n";
    let answer = door.ask(&format!("{head}5\r\nhello\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n")).await;
    assert_eq!(answer.status, 200);
    assert!(toy.seen()[0].contains("hello") && !toy.seen()[0].contains("6.6.6.6"), "{:?}", toy.seen());
}

#[tokio::test]
async fn more_clients_than_allowed_are_turned_away_with_503() {
    let toy = Toy::steady("hi").await;
    let config = Config { connections_max: 1, ..Config::default() };
    let door = Door::with(vec![crate::common::clone(1, toy.addr, true)], config).await;
    let mut first = door.client().await;
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(first.answer().await.status, 200);
    let mut second = door.client().await;
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.field("retry-after").as_deref()), (503, Some("2")));
    assert_eq!(second.until_end().await.unwrap(), "", "and its length was right");
}

/// Virtual time on real loopback sockets: time jumps only when no task has anything to do.
async fn slow(bytes: &str) -> (Client, Toy) {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.0.write_all(bytes.as_bytes()).await.unwrap();
    (client, toy)
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_to_its_end_gets_408() {
    let (mut client, toy) = slow("GET / HTTP/1.1\r\nHo").await;
    let mut answer = String::new();
    // No helper here: its patience is shorter than what is tested, and time is virtual.
    tokio::io::AsyncReadExt::read_to_string(&mut client.0, &mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    assert!(toy.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_gets_408_by_the_time_of_its_first_byte() {
    let (client, toy) = slow("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let begun = tokio::time::Instant::now();
    let (mut reader, mut writer) = client.0.into_split();
    let drip = tokio::spawn(async move {
        // Each byte is in time by itself.
        while writer.write_all(b"X").await.is_ok() {
            tokio::time::sleep(limits::HEAD_TIME / 4).await;
        }
    });
    let mut answer = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut answer).await.unwrap();
    drip.abort();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(begun.elapsed() < limits::HEAD_TIME * 2, "after {:?}", begun.elapsed());
    assert!(toy.seen().is_empty());
}

/// An upgrade takes the connection only when the clone says so; until then bytes behind it are requests.
#[tokio::test]
async fn what_comes_behind_an_upgrade_that_is_declined_is_a_request_of_its_own() {
    let toy = Toy::steady("no").await;
    let door = Door::to(&[toy.addr]).await;
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let behind = "GET /behind HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n";
    let mut client = door.client().await;
    client.send(format!("{upgrade}{behind}")).await;
    assert_eq!([client.answer().await.body, client.answer().await.body], ["no", "no"]);
    assert_eq!(toy.seen().len(), 2);
    assert!(toy.seen()[1].starts_with("GET /behind") && !toy.seen()[1].contains("6.6.6.6"), "{:?}", toy.seen());

    let mut client = door.client().await;
    client.send([upgrade.as_bytes(), b"\x81\x05hello\r\n\r\n"].concat()).await;
    assert_eq!(client.answer().await.body, "no");
    assert_eq!(client.answer().await.status, 400, "frames of a protocol that nobody agreed to");
    assert_eq!(toy.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_let_go_without_a_word() {
    let (mut client, _toy) = slow("").await;
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut client.0, &mut answer).await.unwrap();
    assert_eq!(answer, "");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_gets_408() {
    let (mut client, toy) = slow("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut client.0, &mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    assert!(toy.seen().iter().all(|seen| !seen.contains("hellohello")));
}

/// What is written after the head, each `every` apart, and the first line of the answer with when it came.
async fn drip(head: &str, part: Vec<u8>, every: Duration, parts: usize) -> (String, Duration) {
    let (client, _toy) = slow(head).await;
    let begun = tokio::time::Instant::now();
    let (mut reader, mut writer) = client.0.into_split();
    let drip = tokio::spawn(async move {
        for _ in 0..parts {
            if writer.write_all(&part).await.is_err() {
                return;
            }
            tokio::time::sleep(every).await;
        }
        std::future::pending().await
    });
    let mut answer = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut answer).await.unwrap();
    drip.abort();
    (String::from_utf8(answer.to_vec()).unwrap(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_gets_408_and_a_slow_one_that_is_fast_enough_an_answer() {
    let every = limits::BODY_IDLE / 4;
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, part) in [(length, &b"X"[..]), (chunked, b"1\r\nX\r\n")] {
        let (answer, took) = drip(head, part.to_vec(), every, 1000).await;
        assert_eq!(answer, "HTTP/1.1 408", "{head}");
        assert!(took >= limits::RATE_GRACE && took < limits::RATE_GRACE * 2, "{head}: after {took:?}");
    }
    // Twice as fast as it must be.
    let part = limits::RATE_MIN as usize * 2 * every.as_secs() as usize;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 20 * part);
    let (answer, took) = drip(&head, vec![b'X'; part], every, 20).await;
    assert!(answer == "HTTP/1.1 200" && took > limits::RATE_GRACE * 4, "{answer} after {took:?}");
}

#[tokio::test]
async fn an_unknown_expectation_gets_417() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let answer = door.ask("POST / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(answer.status, 417);
    soon(async { assert!(toy.seen().is_empty()) }).await;
}
