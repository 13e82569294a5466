//! What a service says of its answers, connections and bodies holds in place of the doors' own numbers, longer and shorter.

use std::sync::Arc;
use std::time::Duration;

use crate::common::secure::Secure;
use crate::common::{Door, Toy, clone, connect, ok, tcp_door, view};
use base::Span;
use bytes::Bytes;
use clones::spec::{HttpRoute, ServiceSpec, TcpRoute};
use clones::{Partition, RouteService, Routes};
use edge::http::Config;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const HOUR: Span = Span::secs(3600);

/// Routes to this clone of a service that says so much, which is also reached over TCP.
fn routes(toy: &Toy, tcp: u16, say: impl FnOnce(&mut ServiceSpec)) -> Arc<Routes> {
    let mut spec = ServiceSpec::new(["shop"]);
    (spec.http, spec.tcp) = (Some(HttpRoute::default()), vec![TcpRoute::on(tcp)]);
    say(&mut spec);
    assert_eq!(spec.validate(), Ok(()));
    let clones = vec![clone(1, toy.addr, true)];
    Arc::new(Routes::new(vec![RouteService { clones, ..RouteService::new("shop", &spec) }]))
}

async fn door(toy: &Toy, say: impl FnOnce(&mut ServiceSpec)) -> Door {
    Door::at(routes(toy, 1, say), Config { body_bytes_max: 1000, ..Config::default() }).await
}

/// Answers so many seconds after a request, in two parts that are as far from each other.
async fn slow(seconds: u64) -> Toy {
    Toy::start(move |toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stream.write_all(b"lf").await
    })
    .await
}

/// All that comes, however long that takes of a clock that stands still while anything happens.
async fn all_of(door: &Door, request: &str) -> String {
    let mut client = door.client().await;
    client.0.write_all(request.replace("Host", "Connection: close\r\nHost").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = client.0.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_as_long_as_its_service_says() {
    let toy = slow(66).await;
    let long = |spec: &mut ServiceSpec| spec.answer_timeout = Some(Span::secs(300));
    let answer = all_of(&door(&toy, long).await, &get("/")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("half"), "{answer}");
    let given: u64 = crate::common::field(&toy.seen()[0], "coppice-deadline-ms").unwrap().parse().unwrap();
    assert!((290_000..=300_000).contains(&given), "the program is told: {given}");
    let began = Instant::now();
    let short = |spec: &mut ServiceSpec| spec.answer_timeout = Some(Span::secs(2));
    let answer = all_of(&door(&toy, short).await, &get("/")).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("within 2s (answer_timeout"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let answer = all_of(&door(&toy, |_| ()).await, &get("/")).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("within 1m (answer_timeout"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_says_it_for_its_own_requests() {
    let toy = slow(66).await;
    let say = |spec: &mut ServiceSpec| {
        let reports = Partition { path: Some("/reports".into()), ..Partition::new("reports") };
        spec.partitions = vec![Partition { answer_timeout: Some(Span::secs(90)), ..reports }];
        spec.answer_timeout = Some(Span::secs(1));
    };
    let door = door(&toy, say).await;
    assert!(all_of(&door, &get("/reports/1")).await.starts_with("HTTP/1.1 200"));
    assert!(all_of(&door, &get("/")).await.contains("within 1s"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_be_silent_as_long_as_its_service_says() {
    let toy = slow(360).await;
    let say = |idle| move |spec: &mut ServiceSpec| (spec.answer_timeout, spec.idle_timeout) = (Some(HOUR), idle);
    assert!(all_of(&door(&toy, say(Some(Span::secs(400)))).await, &get("/")).await.ends_with("half"));
    for idle in [None, Some(Span::secs(10))] {
        let answer = all_of(&door(&toy, say(idle)).await, &get("/")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nha"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_and_a_tcp_connection_may_be_silent_as_long_as_their_service_says() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first == *b"G" {
            toy.read_request(&mut stream).await?;
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
                .await?;
        }
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    })
    .await;
    for (said, expect) in [(Some(Span::secs(30)), 30), (Some(Span::secs(4 * 3600)), 4 * 3600), (None, 3600)] {
        let mut client = door(&toy, |spec| spec.idle_timeout = said).await.client().await;
        client.0.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n").await.unwrap();
        assert!(client.head().await.starts_with("HTTP/1.1 101"));
        let began = Instant::now();
        let _ = client.0.read_to_end(&mut Vec::new()).await;
        let took = began.elapsed().as_secs();
        assert!((expect..expect + 10).contains(&took), "{said:?}: {took} s");
    }
    let (addr, sender, _meter) = tcp_door(vec![clone(1, toy.addr, true)]).await;
    for (said, expect) in [(Some(Span::secs(30)), 30), (Some(Span::secs(4 * 3600)), 4 * 3600), (None, 2 * 3600)] {
        sender.send_replace(view(routes(&toy, addr.port(), |spec| spec.idle_timeout = said)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut client = connect(addr).await;
        client.write_all(b"x").await.unwrap();
        let began = Instant::now();
        let _ = client.read_to_end(&mut Vec::new()).await;
        let took = began.elapsed().as_secs();
        assert!((expect..expect + 10).contains(&took), "{said:?}: {took} s");
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(path: &str, bytes: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes))
}

fn chunked(path: &str, chunks: usize) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    head + &format!("64\r\n{}\r\n", "x".repeat(100)).repeat(chunks) + "0\r\n\r\n"
}

#[tokio::test]
async fn a_body_may_be_as_long_as_its_service_or_its_partition_says() {
    let toy = Toy::steady("taken").await;
    let say = |spec: &mut ServiceSpec| {
        let part =
            |name: &str, body_max| Partition { path: Some(format!("/{name}")), body_max, ..Partition::new(name) };
        spec.partitions = vec![part("little", Some(150)), part("all", None)];
        // More than the door takes by itself.
        spec.body_max = Some(2000);
    };
    let door = door(&toy, say).await;
    for (path, max) in [("/", 2000), ("/all", 2000), ("/little", 150)] {
        for (bytes, is_taken) in [(max, true), (max + 1, false)] {
            let answer = door.ask(&post(path, bytes)).await;
            assert_eq!(answer.status, if is_taken { 200 } else { 413 }, "{path} {bytes}: {answer:?}");
            let names = format!("larger than {max} (body_max of its service)");
            assert!(is_taken || answer.body.contains(&names), "{answer:?}");
        }
        let answer = door.ask(&chunked(path, max / 100)).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let answer = door.ask(&chunked(path, max / 100 + 1)).await;
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
    }
    // What holds is found anew for each request of a connection.
    let mut client = door.client().await;
    client.send(chunked("/", 15) + &chunked("/little", 1) + &chunked("/", 15) + &chunked("/little", 2)).await;
    for status in [200, 200, 200, 413] {
        assert_eq!(client.answer().await.status, status);
    }
}

#[tokio::test]
async fn over_http2_a_body_may_be_as_long_as_its_service_says() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        while toy.read_request(&mut stream).await.is_ok() {
            stream.write_all(ok("taken").as_bytes()).await?;
        }
        Ok(())
    })
    .await;
    let secure = Secure::to("body-max", &[toy.addr], 1000).await;
    secure.door.view.send_replace(view(routes(&toy, 1, |spec| spec.body_max = Some(2000))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut sender = secure.h2().await;
    for (bytes, status) in [(2000, 200), (2001, 413)] {
        let body = Full::new(Bytes::from(vec![b'x'; bytes]));
        let request = Request::post("https://shop.example/").body(body).unwrap();
        let answer = crate::common::soon(sender.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), status);
        let text = crate::common::soon(answer.into_body().collect()).await.unwrap().to_bytes();
        assert!(status == 200 || String::from_utf8_lossy(&text).contains("body_max"));
    }
}
