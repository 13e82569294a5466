//! Clones that say something before they are asked: what they say is nobody's answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{Door, NoNode, Toy, clone, ok, routes, soon};
use base::NodeId;
use edge::http::Config;
use edge::http::limits::CLONE_WAIT;
use edge::pool::{Dial, Duplex};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

/// Reaches clones like [`crate::common::Plain`], and this one not before what it says has come.
struct Hears(SocketAddr);
impl Dial for Hears {
    fn dial(&self, _: NodeId, peer: SocketAddr, _: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
        let hears = self.0 == peer;
        Box::pin(async move {
            let stream = TcpStream::connect(peer).await?;
            if hears {
                stream.readable().await?;
            }
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// Greets, and keeps what it is sent then.
async fn greeter(says: &'static [u8]) -> Toy {
    Toy::start(move |toy, mut stream, _| async move {
        stream.write_all(says).await?;
        toy.read_request(&mut stream).await.map(drop)
    })
    .await
}

async fn door(greeter: &Toy, others: &[SocketAddr]) -> Door {
    let clones = [&[greeter.addr], others].concat();
    let clones = clones.iter().enumerate().map(|(i, addr)| clone(i, *addr, false)).collect();
    Door::over(routes(clones, None), Config::default(), Arc::new(NoNode), Arc::new(Hears(greeter.addr))).await
}

#[tokio::test]
async fn a_clone_that_speaks_first_gets_no_request_and_its_client_hears_502_at_once() {
    for says in [&b"220 mail ESMTP\r\n"[..], b"\0\x01\xff", ok("wrong").as_bytes().to_vec().leak()] {
        let toy = greeter(says).await;
        let door = door(&toy, &[]).await;
        for request in [GET, POST] {
            let began = Instant::now();
            let answer = door.ask(request).await;
            assert_eq!(answer.status, 502, "{answer:?}");
            assert!(answer.body.contains("spoke before it was asked") && answer.body.contains("not carried out"));
            assert!(began.elapsed() < CLONE_WAIT, "waiting does not make it an HTTP server");
        }
        assert_eq!(toy.seen(), [""; 0]);
        assert_eq!(toy.connections(), 2, "each of its connections is given up");
    }
}

/// gRPC servers say SETTINGS at once, servers of TLS say an alert to what they do not understand.
#[tokio::test]
async fn a_program_of_another_protocol_is_told_from_one_that_is_ill() {
    let alert: &[u8] = b"\x15\x03\x01\0\x02\x02\x46";
    let tls = Toy::start(move |toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(alert).await
    })
    .await;
    let late = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await
    })
    .await;
    let early = greeter(b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0").await;
    for (door, says) in [
        (door(&early, &[]).await, "HTTP/2"),
        (Door::to(&[late.addr]).await, "HTTP/2"),
        (Door::to(&[tls.addr]).await, "TLS"),
    ] {
        let answer = door.ask(POST).await;
        assert_eq!(answer.status, 502);
        let body = &answer.body;
        assert!(body.contains(says) && body.contains("not carried out") && body.contains("`tcp`"), "{body}");
    }
}

#[tokio::test]
async fn while_another_clone_is_well_nobody_notices_one_that_speaks_first() {
    let (bad, good) = (greeter(b"220 mail ESMTP\r\n").await, Toy::steady("well").await);
    let door = door(&bad, &[good.addr]).await;
    for _ in 0..20 {
        for request in [GET, POST] {
            assert_eq!(door.ask(request).await.body, "well");
        }
    }
    assert_eq!(bad.seen(), [""; 0]);
    assert!(bad.connections() > 0);
}

/// When the greeting is late the clone has the request already.
#[tokio::test]
async fn an_answer_that_is_garbage_is_502_and_its_line_is_not_used_again() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"220 mail ESMTP\r\n").await?;
        toy.read_request(&mut stream).await.map(drop)
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    for n in 1..=3 {
        let answer = door.ask(POST).await;
        assert_eq!(answer.status, 502);
        assert!(answer.body.contains("unknown"), "{}", answer.body);
        assert_eq!((toy.connections(), toy.seen().len()), (n, n));
    }
}

#[tokio::test]
async fn what_comes_on_an_idle_line_is_not_the_answer_to_the_next_request() {
    let (go, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (may, tell) = (Arc::clone(&go), Arc::clone(&said));
    let toy = Toy::start(move |toy, mut stream, number| {
        let (may, tell) = (Arc::clone(&may), Arc::clone(&tell));
        async move {
            toy.read_request(&mut stream).await?;
            stream.write_all(ok("right").as_bytes()).await?;
            if number == 0 {
                may.notified().await;
                stream.write_all(ok("wrong").as_bytes()).await?;
                tell.notify_one();
            }
            // Until the door closes it.
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map(|_| assert!(rest.is_empty(), "{rest:?}"))
        }
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(POST).await;
    assert_eq!(client.answer().await.body, "right");
    go.notify_one();
    soon(said.notified()).await;
    client.send(POST).await;
    assert_eq!(client.answer().await.body, "right");
    assert_eq!((toy.connections(), toy.seen().len()), (2, 2));
}
