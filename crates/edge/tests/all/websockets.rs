//! WebSockets over TLS, in HTTP/1.1 and in HTTP/2 (RFC 8441): what a clone sees of them, and how they end.

use std::io;
use std::time::Duration;

use crate::common::secure::Secure;
use crate::common::{Toy, field, soon};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use edge::http::Config;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Masked with zeros, 1001; and a server's.
const CLIENT_CLOSES: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];
const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xe9];

fn accept(head: &str) -> String {
    let key = field(head, "sec-websocket-key").unwrap();
    let whole = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, whole.as_bytes()))
}

/// Says yes as RFC 6455 wants it, then each byte back, and ends when the client does or is about to.
async fn echoes(toy: Toy, mut stream: TcpStream, _: usize) -> io::Result<()> {
    let head = toy.read_request(&mut stream).await?;
    if !head.contains("/ws") {
        return stream.write_all(crate::common::ok("no socket").as_bytes()).await;
    }
    let accept = accept(&head);
    let said = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: chat\r\n\r\n"
    );
    stream.write_all(said.as_bytes()).await?;
    let mut bytes = vec![0; 1 << 14];
    loop {
        let count = stream.read(&mut bytes).await?;
        if count == 0 || bytes[..count].ends_with(CLIENT_CLOSES) {
            return Ok(());
        }
        stream.write_all(&bytes[..count]).await?;
    }
}

/// A connection that knows the server's settings.
async fn known(secure: &Secure) -> SendRequest<Full<Bytes>> {
    let mut sender = secure.h2().await;
    let get = Request::get("https://shop.example/").body(Full::default()).unwrap();
    soon(soon(sender.send_request(get)).await.unwrap().into_body().collect()).await.unwrap();
    sender
}

async fn connect(sender: &mut SendRequest<Full<Bytes>>, protocol: Option<&'static str>) -> Response<Incoming> {
    let request = Request::builder().method(Method::CONNECT).uri("https://shop.example/ws?a=b");
    let mut request = request.header("sec-websocket-version", "13").header("origin", "https://shop.example");
    if let Some(protocol) = protocol {
        request = request.extension(Protocol::from_static(protocol));
    } else {
        request = request.uri("shop.example:443");
    }
    soon(sender.send_request(request.body(Full::default()).unwrap())).await.unwrap()
}

async fn opened(sender: &mut SendRequest<Full<Bytes>>) -> TokioIo<Upgraded> {
    let answer = connect(sender, Some("websocket")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
    assert!(answer.headers().get("sec-websocket-accept").is_none() && answer.headers().get("upgrade").is_none());
    TokioIo::new(soon(hyper::upgrade::on(answer)).await.unwrap())
}

/// So many frames of 1000 bytes there and back.
async fn echo(socket: impl AsyncRead + AsyncWrite, frames: usize) {
    let (mut from, mut to) = tokio::io::split(socket);
    let content = (0..1000).map(|i| (i % 251) as u8);
    let sent = [0x82, 126, 3, 232].into_iter().chain(content).collect::<Vec<u8>>().repeat(frames);
    let sends = async {
        for part in sent.chunks(777) {
            to.write_all(part).await.unwrap();
        }
        to.flush().await.unwrap();
    };
    let mut heard = vec![0; sent.len()];
    soon(async { tokio::join!(sends, async { from.read_exact(&mut heard).await.unwrap() }) }).await;
    assert!(heard == sent, "what came back is not what was sent");
}

async fn until_open(secure: &Secure, count: u64) {
    soon(async {
        while secure.door.meter.http.connections() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn over_http_2_a_clone_sees_http_1_and_bytes_flow_until_both_have_ended() {
    let toy = Toy::start(echoes).await;
    let secure = Secure::to("ws2", &[toy.addr], 1 << 20).await;
    let mut sender = known(&secure).await;
    let mut socket = opened(&mut sender).await;
    let head = toy.seen().pop().unwrap();
    assert!(head.starts_with("GET /ws?a=b HTTP/1.1\r\n"), "{head}");
    for (name, value) in [
        ("host", "shop.example"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("origin", "https://shop.example"),
        ("x-forwarded-proto", "https"),
    ] {
        assert_eq!(field(&head, name).as_deref(), Some(value), "{head}");
    }
    // More than a client may send of frames that move nothing.
    echo(&mut socket, 700).await;
    // It counts besides its connection, and others go on beside it.
    assert_eq!(secure.door.meter.http.connections(), 2);
    let mut other = opened(&mut sender).await;
    echo(&mut other, 1).await;
    soon(socket.shutdown()).await.unwrap();
    assert_eq!(soon(socket.read(&mut [0; 9])).await.unwrap(), 0);
    drop((socket, other));
    until_open(&secure, 1).await;
}

#[tokio::test]
async fn over_http_2_a_node_that_ends_says_goodbye_by_a_close_frame() {
    let toy = Toy::start(echoes).await;
    let secure = Secure::to("ws2-goes", &[toy.addr], 1 << 20).await;
    let mut socket = opened(&mut known(&secure).await).await;
    echo(&mut socket, 3).await;
    secure.close();
    let mut heard = [0; 4];
    soon(socket.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, GOING_AWAY);
    soon(socket.write_all(CLIENT_CLOSES)).await.unwrap();
    assert_eq!(soon(socket.read(&mut [0; 9])).await.unwrap(), 0, "nothing follows");
    soon(socket.shutdown()).await.unwrap();
    drop(socket);
    secure.closed().await;
}

#[tokio::test]
async fn over_http_2_what_is_no_web_socket_is_refused() {
    for (said, status) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 502),
    ] {
        let toy = Toy::start(move |toy, mut stream, _| async move {
            while let Ok(head) = toy.read_request(&mut stream).await {
                let said = if head.contains("/ws") { said.to_owned() } else { crate::common::ok("") };
                stream.write_all(said.as_bytes()).await?;
            }
            Ok(())
        })
        .await;
        let secure = Secure::to(&format!("ws2-no-{}", said.len()), &[toy.addr], 1 << 20).await;
        let mut sender = known(&secure).await;
        let answer = connect(&mut sender, Some("websocket")).await;
        assert_eq!(answer.status(), status, "{said}");
        let text = soon(answer.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(text == "no", status == 403, "{text:?}");
        for protocol in [Some("connect-udp"), None] {
            assert_eq!(connect(&mut sender, protocol).await.status(), 501, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn over_http_2_each_counts_as_a_connection() {
    let toy = Toy::start(echoes).await;
    let secure = Secure::with("ws2-many", &[toy.addr], Config { connections_max: 3, ..Config::default() }).await;
    let mut sender = known(&secure).await;
    let both = (opened(&mut sender).await, opened(&mut sender).await);
    assert_eq!(connect(&mut sender, Some("websocket")).await.status(), 503);
    drop(both);
    until_open(&secure, 1).await;
    opened(&mut sender).await;
}

/// A clone that says more than anybody takes.
#[tokio::test]
async fn over_http_2_a_client_that_takes_nothing_fills_no_memory() {
    let (tell, mut told) = tokio::sync::watch::channel(0_usize);
    let toy = Toy::start(move |toy, mut stream, _| {
        let tell = tell.clone();
        async move {
            let head = toy.read_request(&mut stream).await?;
            if !head.contains("/ws") {
                return stream.write_all(crate::common::ok("").as_bytes()).await;
            }
            let said = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\
                 Sec-WebSocket-Protocol: chat\r\n\r\n",
                accept(&head)
            );
            stream.write_all(said.as_bytes()).await?;
            loop {
                let count = stream.write(&[0; 1 << 16]).await?;
                tell.send_modify(|sum| *sum += count);
            }
        }
    })
    .await;
    let secure = Secure::to("ws2-full", &[toy.addr], 1 << 20).await;
    let mut sender = known(&secure).await;
    let _socket = opened(&mut sender).await;
    // Until it stands still for a while.
    while tokio::time::timeout(Duration::from_millis(500), told.changed()).await.is_ok() {
        assert!(*told.borrow() < 64 << 20, "it takes and takes");
    }
    let stuck = *told.borrow();
    assert!((1..32 << 20).contains(&stuck), "{stuck} bytes, most in the kernel and the client's window");
}

#[tokio::test]
async fn over_tls_and_http_1_it_is_as_in_the_clear() {
    let toy = Toy::start(echoes).await;
    let secure = Secure::to("ws1", &[toy.addr], 1 << 20).await;
    let mut socket = secure.stream(&["http/1.1"]).await;
    let ask = "GET /ws HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    soon(socket.write_all(ask.as_bytes())).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(socket.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(field(&head, "sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(field(&toy.seen()[0], "x-forwarded-proto").as_deref(), Some("https"));
    echo(&mut socket, 300).await;
    assert_eq!(secure.door.meter.http.connections(), 1);
    secure.close();
    let mut heard = [0; 4];
    soon(socket.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, GOING_AWAY);
    soon(socket.write_all(CLIENT_CLOSES)).await.unwrap();
    soon(socket.flush()).await.unwrap();
    assert_eq!(soon(socket.read(&mut [0; 9])).await.unwrap(), 0);
    drop(socket);
    secure.closed().await;
}

#[test]
fn the_toy_speaks_as_the_standard_says() {
    let head = "GET / HTTP/1.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(accept(head), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}
