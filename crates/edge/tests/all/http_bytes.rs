//! Every byte at every place of a request: carried, or refused with words. Our check and the libraries behind it agree.

use crate::common::secure::{Secure, frame};
use crate::common::*;
use bytes::Bytes;
use edge::http::Config;
use tokio::io::AsyncWriteExt;

/// A request with this byte at one place.
fn with(place: &str, byte: u8) -> Vec<u8> {
    let mut head = Vec::new();
    let at = |name: &str| if name == place { vec![byte] } else { Vec::new() };
    for part in [
        &b"GE"[..],
        &at("method"),
        b"T",
        b" ",
        &at("target"),
        b"/pa",
        &at("path"),
        b"th?que",
        &at("query"),
        b"ry HTTP/1.1\r\nHo",
        b"st: shop",
        &at("host"),
        b".example\r\nX-Fi",
        &at("name"),
        b"eld: val",
        &at("value"),
        b"ue\r\nConnection: close\r\n\r\n",
    ] {
        head.extend_from_slice(part);
    }
    head
}

const PLACES: [&str; 7] = ["method", "target", "path", "query", "host", "name", "value"];

#[tokio::test]
async fn over_http_1_every_byte_is_carried_or_refused_with_words() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let _ = read_any(&mut stream).await;
        let _ = toy;
        stream.write_all(ok("carried").as_bytes()).await
    })
    .await;
    let door = Door::with(vec![clone(1, toy.addr, true)], Config::default()).await;
    for place in PLACES {
        let mut carried = Vec::new();
        for byte in 0..=255u8 {
            let mut client = door.client().await;
            client.send(with(place, byte)).await;
            let answer = client.answer().await;
            match answer.status {
                200 => carried.push(byte),
                400 | 501 | 505 => assert!(answer.body.len() > 10, "{place} {byte:#x}: without a word: {answer:?}"),
                other => panic!("{place} {byte:#x}: {other}"),
            }
        }
        // What RFC 9110 and RFC 9112 allow, and what clients send besides.
        let printable = |b: &u8| (b'!'..=b'~').contains(b);
        let expected: Vec<u8> = (0..=255u8)
            .filter(|b| match place {
                "method" | "name" => {
                    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b) || place == "name" && *b == b':'
                }
                "path" | "query" => printable(b),
                // A colon stands before a port, and brackets around an address.
                "host" => b.is_ascii_alphanumeric() || b"-._~".contains(b),
                _ => *b == b'\t' || *b >= b' ' && *b != 0x7f,
            })
            .collect();
        if place != "target" {
            assert_eq!(carried, expected, "{place}: {:?}", String::from_utf8_lossy(&carried));
        }
    }
}

async fn read_any(stream: &mut tokio::net::TcpStream) -> std::io::Result<Vec<u8>> {
    use tokio::io::AsyncReadExt;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

#[tokio::test]
async fn what_readers_differ_in_reaches_the_program_as_it_was_meant() {
    let toy = Toy::steady("carried").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    // Twice on one connection, with a request behind it in the same packet.
    let ask = "POST /a<b>?query=up{job=\"x\"}`^|\\ HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    client.send(format!("{ask}{ask}")).await;
    for nth in 0..2 {
        assert_eq!(client.answer().await.status, 200);
        let seen = toy.seen()[nth].clone();
        assert!(
            seen.starts_with("POST /a%3Cb%3E?query=up{job=%22x%22}%60^|\\ HTTP/1.1\r\n")
                && seen.ends_with("\r\n\r\nhi"),
            "{seen}"
        );
    }
    let whole = door.ask("GET http://a/?x=\"y\" HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(whole.status, 200);
    let strange = door.ask("GET http://a:b:c/ HTTP/1.1\r\nHost: a:b:c\r\n\r\n").await;
    assert!(strange.status == 400 && strange.body.contains("target"), "{strange:?}");
}

/// One request as the literals of HPACK, with this byte at one place.
fn literals(place: &str, byte: u8) -> Vec<u8> {
    let text = |before: &str, name: &str, after: &str| {
        let mut text = before.as_bytes().to_vec();
        if name == place {
            text.push(byte);
        }
        text.extend(after.as_bytes());
        text
    };
    let path = [text("/pa", "path", "th"), text("?que", "query", "ry")].concat();
    let fields: [(Vec<u8>, Vec<u8>); 5] = [
        (b":method".to_vec(), text("GE", "method", "T")),
        (b":scheme".to_vec(), b"https".to_vec()),
        (b":path".to_vec(), path),
        (b":authority".to_vec(), text("shop", "host", ".example")),
        (text("x-fi", "name", "eld"), text("val", "value", "ue")),
    ];
    let mut out = Vec::new();
    for (name, value) in fields {
        out.extend([0, name.len() as u8]);
        out.extend(name);
        out.push(value.len() as u8);
        out.extend(value);
    }
    out
}

/// HTTP/2's library resets a stream whose request it cannot read before we see it; the connection and its other streams go on.
#[tokio::test]
async fn over_http_2_every_byte_is_carried_refused_with_words_or_its_stream_reset() {
    let toy = Toy::start(|_, mut stream, _| async move {
        let _ = read_any(&mut stream).await;
        stream.write_all(ok("carried").as_bytes()).await
    })
    .await;
    let secure = Secure::to("bytes", &[toy.addr], 1000).await;
    for place in PLACES.into_iter().filter(|place| *place != "target") {
        let mut carried = Vec::new();
        for byte in 0..=255u8 {
            let mut stream = secure.raw().await;
            stream.write_all(&frame(1, 5, 1, &literals(place, byte))).await.unwrap();
            let mut said = Bytes::new();
            let status = loop {
                let (kind, flags, payload) = crate::common::secure::next_frame(&mut stream).await.unwrap();
                match kind {
                    // The status is the first field: 200 and 400 have indexes of their own, others are literals.
                    1 => said = payload.into(),
                    0 if flags & 1 != 0 => break said.first().copied(),
                    3 => break None,
                    7 => break None,
                    _ => (),
                }
            };
            if status == Some(0x88) {
                carried.push(byte);
            }
        }
        let expected: Vec<u8> = (0..=255u8)
            .filter(|b| match place {
                "method" => b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b),
                "name" => b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(b),
                "path" => (b'!'..=b'~').contains(b) && !b"<>`".contains(b),
                "query" => (b'!'..=b'~').contains(b) && !b"\"<>".contains(b),
                "host" => b.is_ascii_alphanumeric() || b"-._~".contains(b),
                _ => *b == b'\t' || *b >= b' ' && *b != 0x7f,
            })
            .collect();
        assert_eq!(carried, expected, "{place}: {:?}", String::from_utf8_lossy(&carried));
    }
}
