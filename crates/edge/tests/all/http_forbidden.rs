//! What a status, a method or a version of HTTP forbids a message to say (RFC 9110 6.4.1, 6.5.1, 8.6, 9.3.2, 15; RFC 9112 6, 9; RFC 9113
//! 8.2.2): a table of what clones answer and what clients of HTTP/1.0, 1.1 and 2 get. Where nginx does otherwise, a line says so.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::secure::Secure;
use crate::common::*;

/// Says this to each request but those for `/next`, and ends the connection behind it or not.
async fn says(said: &'static str, ends: bool) -> Toy {
    Toy::start(move |toy, mut stream, _| async move {
        while let Ok(request) = toy.read_request(&mut stream).await {
            let is_next = request.contains(" /next ");
            stream.write_all(if is_next { ok("next") } else { said.to_owned() }.as_bytes()).await?;
            if ends && !is_next {
                return Ok(());
            }
        }
        Ok(())
    })
    .await
}

const NOT_SOUND: &str = "the clone's answer was not sound http; whether the request was carried out is unknown, look before you repeat it\n";

/// An answer in one line, without what is ours to say each time.
fn line(text: &str) -> String {
    let said = text.split("\r\n").map(str::to_lowercase).filter(|part| !part.starts_with("date:"));
    let said = said.collect::<Vec<_>>().join("|");
    said.replace("content-type: text/plain; charset=utf-8|cache-control: no-store", "(ours)")
        .replace(NOT_SOUND, "(not sound)")
}

/// What a client of this version gets, and then for a second request on the same connection, until its end.
async fn over_1(door: &Door, method: &str, path: &str, version: &str) -> String {
    let mut client = door.client().await;
    let keep = if version == "1.0" { "Connection: keep-alive\r\n" } else { "" };
    client.send(format!("{method} {path} HTTP/{version}\r\nHost: a\r\n{keep}\r\n")).await;
    client.send(format!("GET /next HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    let mut all = Vec::new();
    // An answer that breaks off may end by a reset.
    let _ = soon(client.0.read_to_end(&mut all)).await;
    line(&String::from_utf8(all).unwrap())
}

/// The same over HTTP/2. The client's library refuses what is malformed.
async fn over_2(secure: &Secure, method: &str, path: &str) -> String {
    let uri = format!("https://shop.example{path}");
    let request = Request::builder().method(method).uri(uri).body(Full::<Bytes>::default()).unwrap();
    let answer = match soon(secure.h2().await.send_request(request)).await {
        Ok(answer) => answer,
        Err(why) => return format!("no answer: {why:?}"),
    };
    let fields = |map: &http::HeaderMap| {
        map.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap())).collect::<String>()
    };
    let (head, mut body) = answer.into_parts();
    let mut text = format!("{}\r\n{}\r\n", head.status.as_u16(), fields(&head.headers));
    while let Some(frame) = soon(body.frame()).await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => text += std::str::from_utf8(&data).unwrap(),
            Ok(Err(trailers)) => text += &format!("\r\n{}", fields(trailers.trailers_ref().unwrap())),
            Err(_) => {
                text += "(reset)";
                break;
            }
        }
    }
    line(&text)
}

/// Method, what the clone says, whether it then ends the connection, and what clients of 1.0, 1.1 and 2 get.
type Row = (&'static str, &'static str, bool, [&'static str; 3]);

const ROWS: &[Row] = &[
    (
        "GET",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 204 no content|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 204 no content||http/1.1 200 ok|content-length: 4|connection: close||next",
            "204||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 204 no content|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 204 no content||http/1.1 200 ok|content-length: 4|connection: close||next",
            "204||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 204 no content|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 204 no content||http/1.1 200 ok|content-length: 4|connection: close||next",
            "204||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        false,
        [
            "http/1.0 204 no content|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 204 no content||http/1.1 200 ok|content-length: 4|connection: close||next",
            "204||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        false,
        [
            "http/1.0 304 not modified|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 304 not modified||http/1.1 200 ok|content-length: 4|connection: close||next",
            "304|content-length: 5||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 304 not modified|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 304 not modified||http/1.1 200 ok|content-length: 4|connection: close||next",
            "304|content-length: 5||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\nETag: \"a\"\r\n\r\n",
        false,
        [
            "http/1.0 304 not modified|etag: \"a\"|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 304 not modified|etag: \"a\"||http/1.1 200 ok|content-length: 4|connection: close||next",
            "304|etag: \"a\"||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 205 Reset Content\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 205 reset content|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 205 reset content|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "205|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 205 reset content|connection: close||hello",
            "http/1.1 205 reset content|transfer-encoding: chunked||5|hello|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "205||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 205 Reset Content\r\n\r\n",
        true,
        [
            "http/1.0 205 reset content|connection: close||",
            "http/1.1 205 reset content|transfer-encoding: chunked||0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "205||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 204 No Content\r\n\r\n",
        false,
        [
            "http/1.0 204 no content|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 204 no content||http/1.1 200 ok|content-length: 4|connection: close||next",
            "204||",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\n\r\n",
        true,
        [
            "http/1.0 200 ok|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|connection: close||hello",
            "http/1.1 200 ok|transfer-encoding: chunked||5|hello|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        true,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        true,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hel",
            "http/1.1 200 ok|content-length: 5||hel",
            "200|content-length: 5||hel(reset)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        true,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        true,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|connection: close||hello",
            "http/1.1 200 ok|transfer-encoding: chunked||5|hello|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\n\r\nhello",
        true,
        [
            "http/1.0 200 ok|connection: close||hello",
            "http/1.1 200 ok|transfer-encoding: chunked||5|hello|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 102 processing||http/1.1 103 early hints|link: </a>||http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        true,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: X-A, keep-alive\r\nX-A: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2,h2c\r\nTE: trailers\r\nX-B: 2\r\n\r\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|x-b: 2|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5|x-b: 2||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5|x-b: 2||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        true,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 426 upgrade required|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 426 upgrade required|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "426|content-length: 0||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 407 proxy authentication required|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 407 proxy authentication required|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "407|content-length: 0||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 401 unauthorized|www-authenticate: basic|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 401 unauthorized|www-authenticate: basic|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "401|www-authenticate: basic|content-length: 0||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 099 Low\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 000 None\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 600 High\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 600 high|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 600 high|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "600|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 999 Denied\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 999 denied|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 999 denied|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "999|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
        false,
        [
            "http/1.0 200 |content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 |content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        false,
        [
            "http/1.0 200 ok|content-length: 5|connection: keep-alive||hellohttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 200 ok|content-length: 5||hellohttp/1.1 200 ok|content-length: 4|connection: close||next",
            "200|content-length: 5||hello",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        true,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\nContent-Length: 5\r\n\r\nhello",
        true,
        [
            "http/1.0 502 bad gateway|(ours)|connection: keep-alive|content-length: 113||(not sound)http/1.0 200 ok|content-length: 4||next",
            "http/1.1 502 bad gateway|(ours)|content-length: 113||(not sound)http/1.1 200 ok|content-length: 4|connection: close||next",
            "502|(ours)|content-length: 113||(not sound)",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\nConnection: close\r\nHost: b\r\nSet-Cookie: a=b\r\nCoppice-Session: x\r\n\r\n",
        false,
        [
            "http/1.0 200 ok|connection: close||hello",
            "http/1.1 200 ok|transfer-encoding: chunked||5|hello|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "200||hello|x-sum: 9|",
        ],
    ),
    // Redirects go on as they are. nginx does the same, but for a Location with the address of the program, which it makes its own.
    (
        "GET",
        "HTTP/1.1 301 Moved Permanently\r\nLocation: /new?x=1\r\nContent-Length: 5\r\n\r\nmoved",
        false,
        [
            "http/1.0 301 moved permanently|location: /new?x=1|content-length: 5|connection: keep-alive||movedhttp/1.0 200 ok|content-length: 4||next",
            "http/1.1 301 moved permanently|location: /new?x=1|content-length: 5||movedhttp/1.1 200 ok|content-length: 4|connection: close||next",
            "301|location: /new?x=1|content-length: 5||moved",
        ],
    ),
    (
        "HEAD",
        "HTTP/1.1 302 Found\r\nLocation: http://other.example:8080/x\r\nContent-Length: 5\r\n\r\n",
        false,
        [
            "http/1.0 302 found|location: http://other.example:8080/x|content-length: 5|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 302 found|location: http://other.example:8080/x|content-length: 5||http/1.1 200 ok|content-length: 4|connection: close||next",
            "302|location: http://other.example:8080/x|content-length: 5||",
        ],
    ),
    (
        "POST",
        "HTTP/1.1 303 See Other\r\nLocation: //other.example/\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 303 see other|location: //other.example/|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 303 see other|location: //other.example/|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "303|location: //other.example/|content-length: 0||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: ../up\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nmoved\r\n0\r\n\r\n",
        false,
        [
            "http/1.0 307 temporary redirect|location: ../up|connection: close||moved",
            "http/1.1 307 temporary redirect|location: ../up|transfer-encoding: chunked||5|moved|0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "307|location: ../up||moved",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 308 Permanent Redirect\r\nLocation: http://a/\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 308 permanent redirect|location: http://a/|location: http://b/|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 308 permanent redirect|location: http://a/|location: http://b/|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "308|location: http://a/|location: http://b/|content-length: 0||",
        ],
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nLocation: /c\r\nETag: \"x\"\r\n\r\n",
        false,
        [
            "http/1.0 304 not modified|location: /c|etag: \"x\"|connection: keep-alive||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 304 not modified|location: /c|etag: \"x\"||http/1.1 200 ok|content-length: 4|connection: close||next",
            "304|location: /c|etag: \"x\"||",
        ],
    ),
    // nginx (1.22) takes the first head for the answer's, and its client waits.
    (
        "GET",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 301 Moved Permanently\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
        false,
        [
            "http/1.0 301 moved permanently|location: /b|connection: keep-alive|content-length: 0||http/1.0 200 ok|content-length: 4||next",
            "http/1.1 103 early hints|link: </a>||http/1.1 301 moved permanently|location: /b|content-length: 0||http/1.1 200 ok|content-length: 4|connection: close||next",
            "301|location: /b|content-length: 0||",
        ],
    ),
];

#[tokio::test]
async fn what_a_status_a_method_or_a_version_forbids_is_not_passed_on() {
    let mut wrong = Vec::new();
    for (nth, (method, said, ends, expected)) in ROWS.iter().enumerate() {
        let toy = says(said, *ends).await;
        let door = Door::to(&[toy.addr]).await;
        let secure = Secure::to("forbidden", &[toy.addr], 1000).await;
        let got = [
            over_1(&door, method, "/", "1.0").await,
            over_1(&door, method, "/", "1.1").await,
            over_2(&secure, method, "/").await,
        ];
        for (of, got, expected) in
            [("1.0", &got[0], expected[0]), ("1.1", &got[1], expected[1]), ("2", &got[2], expected[2])]
        {
            if got != expected {
                wrong.push(format!("{nth} over {of}: {method} {said:?}\n  {got}\n  {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Answers of our own are held to it, too: over HTTP/2 curl took the text behind an answer to HEAD for a broken stream.
#[tokio::test]
async fn our_own_answers_to_head_have_the_length_of_a_text_that_does_not_come() {
    let toy = Toy::steady("next").await;
    let door = Door::to(&[toy.addr]).await;
    let secure = Secure::to("forbidden-own", &[toy.addr], 1000).await;
    for version in ["1.0", "1.1"] {
        let [whole, head] =
            [over_1(&door, "GET", "/.coppice/x", version).await, over_1(&door, "HEAD", "/.coppice/x", version).await];
        let length =
            |text: &str| text.split('|').find_map(|part| part.strip_prefix("content-length: ")?.parse::<usize>().ok());
        assert!(whole.contains(" 404 ") && length(&whole).is_some_and(|bytes| bytes > 10), "{whole}");
        assert_eq!(length(&whole), length(&head), "{head}");
        assert!(head.len() + length(&head).unwrap() <= whole.len() && head.ends_with("||next"), "{head}");
    }
    let [whole, head] = [over_2(&secure, "GET", "/.coppice/x").await, over_2(&secure, "HEAD", "/.coppice/x").await];
    let (fields, text) = whole.rsplit_once("||").unwrap();
    assert_eq!(head, format!("{fields}||"));
    assert!(fields.contains(&format!("content-length: {}", text.len())), "{whole}");
}

/// Streams that the library resets are asked for again by clients, which never learn why.
#[tokio::test]
async fn over_http_2_a_head_that_is_too_large_is_refused_with_words() {
    let toy = Toy::steady("next").await;
    let secure = Secure::to("forbidden-large", &[toy.addr], 1000).await;
    let request = |bytes: usize| {
        let request = Request::get("https://shop.example/").header("x-big", "x".repeat(bytes));
        request.body(Full::<Bytes>::default()).unwrap()
    };
    for (bytes, status) in [(60_000, 200), (66_000, 431), (120_000, 431)] {
        let answer = soon(secure.h2().await.send_request(request(bytes))).await.unwrap();
        assert_eq!(answer.status(), status, "{bytes}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text.starts_with(b"the request's header fields are larger than 64 KiB"), status == 431, "{text:?}");
    }
}
