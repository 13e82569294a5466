//! Connections of TCP doors, over the one port of a program that also answers for its health.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sdk::axum::Router;
use sdk::axum::routing::get;
use sdk::tokio::io::{AsyncReadExt, AsyncWriteExt};
use sdk::tokio::net::TcpStream;
use sdk::tokio::sync::oneshot;
use sdk::tokio::task::JoinHandle;
use sdk::tokio::time::timeout;
use sdk::{Conn, Given, Service, StartError, tokio};

const SOON: Duration = Duration::from_secs(10);

struct Program {
    at: SocketAddr,
    stop: oneshot::Sender<()>,
    ends: JoinHandle<Result<(), StartError>>,
    ended: Arc<AtomicUsize>,
}

/// Says who came where, echoes, and says goodbye when it is told to.
async fn talk(mut conn: Conn) {
    let hello = format!("220 {} at {}\n", conn.peer, conn.door);
    conn.stream.write_all(hello.as_bytes()).await.unwrap();
    let mut bytes = [0; 64];
    loop {
        tokio::select! {
            read = conn.stream.read(&mut bytes) => match read {
                Ok(count) if count > 0 && !bytes.starts_with(b"panic") => conn.stream.write_all(&bytes[..count]).await.unwrap(),
                Ok(0) | Err(_) => return,
                Ok(_) => panic!("as it was asked to"),
            },
            () = conn.drain.told() => return conn.stream.write_all(b"421 come again\n").await.unwrap(),
        }
    }
}

async fn program(drain_ms: &str) -> Program {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let vars = [("PORT", &*port.to_string()), ("COPPICE_NODE_API", "127.0.0.1:1"), ("COPPICE_DRAIN_MS", drain_ms)];
    let given = Given::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
    let (service, at) = (Service::of(given).unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
    let (stop, stopped) = oneshot::channel::<()>();
    let ended: Arc<AtomicUsize> = Arc::default();
    let counts = Arc::clone(&ended);
    let handler = move |conn| {
        let counts = Arc::clone(&counts);
        async move {
            talk(conn).await;
            counts.fetch_add(1, SeqCst);
        }
    };
    let app = Router::new().route("/count", get(|| async { "7" }));
    let stop_comes = async move { drop(stopped.await) };
    let ends = tokio::spawn(service.serve_both_until(app, handler, stop_comes));
    let program = Program { at, stop, ends, ended };
    timeout(SOON, async { while TcpStream::connect(at).await.is_err() {} }).await.unwrap();
    program
}

/// What a node says first.
fn header(door: &str) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".to_vec();
    bytes.push(15 + door.len() as u8);
    bytes.extend([192, 0, 2, 1, 127, 0, 0, 1, 0, 7, 0, 25, 0xe0, 0, door.len() as u8]);
    bytes.extend(door.as_bytes());
    bytes
}

impl Program {
    async fn come(&self, first: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(first).await.unwrap();
        stream
    }

    /// All that it says, if it ends soon.
    async fn all(&self, first: &[u8]) -> String {
        rest(self.come(first).await).await
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    // A reset after it has spoken is an end as well.
    let _ = timeout(SOON, stream.read_to_end(&mut all)).await.expect("it ends soon");
    String::from_utf8(all).unwrap()
}

async fn line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.push(timeout(SOON, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn one_port_carries_all_doors_and_what_asks_for_health() {
    let program = program("1000").await;
    for door in ["smtp", "pop3"] {
        // With the client's first words, and to the byte.
        let mut stream = program.come(&[header(door), b"hello\n".to_vec()].concat()).await;
        assert_eq!(line(&mut stream).await, format!("220 192.0.2.1:7 at {door}\n"));
        assert_eq!(line(&mut stream).await, "hello\n");
    }
    for (path, says) in [("/health", "well\n"), ("/count", "7")] {
        let answer =
            program.all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(says), "{answer}");
    }
    // A probe that says nothing, and strangers.
    drop(TcpStream::connect(program.at).await.unwrap());
    for bytes in
        [&b"\r\n\r\nEHLO x.example\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"]
    {
        assert_eq!(program.all(bytes).await, "");
    }
    assert!(program.all(b"EHLO x.example\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    assert_eq!(program.all(&[header("smtp"), b"panic\n".to_vec()].concat()).await, "220 192.0.2.1:7 at smtp\n");
    // Nobody else is harmed by any of them.
    let mut stream = program.come(&header("smtp")).await;
    assert!(line(&mut stream).await.starts_with("220"));
}

#[tokio::test]
async fn when_it_is_to_stop_it_says_goodbye_to_one_after_the_other_and_cuts_nobody() {
    let program = program("1600").await;
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = program.come(&header("smtp")).await;
        assert!(line(&mut stream).await.starts_with("220"));
        open.push(stream);
    }
    let begun = Instant::now();
    program.stop.send(()).unwrap();
    let goodbyes = open.into_iter().map(|stream| {
        tokio::spawn(async move {
            assert_eq!(rest(stream).await, "421 come again\n");
            begun.elapsed()
        })
    });
    let mut at = Vec::new();
    for goodbye in goodbyes.collect::<Vec<_>>() {
        at.push(goodbye.await.unwrap());
    }
    at.sort();
    program.ends.await.unwrap().unwrap();
    assert_eq!(program.ended.load(SeqCst), 20);
    assert!(at[19] < Duration::from_millis(1600), "within its time: {at:?}");
    assert!(at[19] - at[0] > Duration::from_millis(500), "one after the other: {at:?}");
    assert!(TcpStream::connect(program.at).await.is_err(), "nobody is taken any more");
}
