//! What a node says of a connection before its first byte: who the client is, and at which door of the service it came. It is the
//! PROXY protocol, version 2, with the door's name in an extension (docs/guide/doors.md). It comes over a port that any program on
//! this machine can reach, so nothing in it is trusted to be whole: it is bounded, has to come soon, and is read or refused.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::limits::{DOOR_BYTES_MAX, PROXY_BYTES_MAX};

/// Begins a header, and nothing else that anybody speaks.
pub(crate) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Types of extensions; all others are passed over.
const DOOR: u8 = 0xe0;
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
/// The bit of `SSL` that says that the client came by TLS.
const BY_TLS: u8 = 1;

/// The TLS that the node ended for a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// `TLSv1.3`, if the node says it.
    pub version: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub peer: SocketAddr,
    /// Empty if the service's only door has no name.
    pub door: String,
    pub tls: Option<Tls>,
}

/// Reads a header to its last byte, and nothing that follows it.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Header> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    if head[..12] != SIGNATURE {
        return Err(wrong("the connection begins neither with a PROXY header of version 2 nor with HTTP"));
    }
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if length > PROXY_BYTES_MAX {
        return Err(wrong("the PROXY header is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    parse(head[12], head[13], &rest).map_err(wrong)
}

fn wrong(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Version and command, family and transport, then addresses and extensions.
fn parse(version: u8, family: u8, rest: &[u8]) -> Result<Header, &'static str> {
    match version {
        0x21 => (),
        0x20 => return Err("the PROXY header is for nobody's connection"),
        _ => return Err("the PROXY header is not of version 2, or has an unknown command"),
    }
    let (peer, mut rest) = match family {
        0x11 => {
            let (at, rest) = rest.split_first_chunk::<12>().ok_or("the PROXY header is too short for its addresses")?;
            let [a, b, c, d, ..] = *at;
            (SocketAddr::from(([a, b, c, d], u16::from_be_bytes([at[8], at[9]]))), rest)
        }
        0x21 => {
            let (at, rest) = rest.split_first_chunk::<36>().ok_or("the PROXY header is too short for its addresses")?;
            let ip: &[u8; 16] = at.first_chunk().ok_or("the PROXY header is too short for its addresses")?;
            (SocketAddr::from((*ip, u16::from_be_bytes([at[32], at[33]]))), rest)
        }
        _ => return Err("the PROXY header is not for TCP"),
    };
    let (mut door, mut tls) = (None, None);
    while !rest.is_empty() {
        let (kind, value) = extension(&mut rest)?;
        match kind {
            DOOR if door.is_some() => return Err("the PROXY header names two doors"),
            DOOR => door = Some(named(value)?),
            SSL => tls = of_tls(value)?,
            _ => (),
        }
    }
    Ok(Header { peer, door: door.unwrap_or_default(), tls })
}

/// Type and value of the next extension.
fn extension<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), &'static str> {
    let cut = "an extension of the PROXY header is cut";
    let ([kind, high, low], more) = rest.split_first_chunk::<3>().ok_or(cut)?;
    let (value, after) = more.split_at_checked(usize::from(u16::from_be_bytes([*high, *low]))).ok_or(cut)?;
    *rest = after;
    Ok((*kind, value))
}

fn named(value: &[u8]) -> Result<String, &'static str> {
    let fits = (1..=DOOR_BYTES_MAX).contains(&value.len())
        && value.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    let name = std::str::from_utf8(value).ok().filter(|_| fits);
    name.map(str::to_owned).ok_or("the PROXY header names a door as no door is called")
}

/// A byte of bits, four of what was verified, then extensions of their own.
fn of_tls(value: &[u8]) -> Result<Option<Tls>, &'static str> {
    let (head, mut rest) = value.split_first_chunk::<5>().ok_or("what the PROXY header says of TLS is cut")?;
    let mut tls = Tls::default();
    while !rest.is_empty() {
        if let (SSL_VERSION, version) = extension(&mut rest)? {
            tls.version = std::str::from_utf8(version).ok().map(str::to_owned);
        }
    }
    Ok((head[0] & BY_TLS != 0).then_some(tls))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 4, 0, 25];

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
    }

    fn header(version: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [&SIGNATURE[..], &[version, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    async fn read_of(bytes: &[u8]) -> (io::Result<Header>, Vec<u8>) {
        let mut rest = bytes;
        (read(&mut rest).await, rest.to_vec())
    }

    #[tokio::test]
    async fn the_client_its_door_and_its_tls_are_read_and_nothing_after_them() {
        // Byte for byte what the edge writes (edge/src/proxy_protocol.rs).
        let edges =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\0\x19\xe0\0\x04smtpEHLO x";
        let (header_of_edge, rest) = read_of(edges).await;
        let peer = "192.0.2.1:56324".parse().unwrap();
        assert_eq!(header_of_edge.unwrap(), Header { peer, door: "smtp".into(), tls: None });
        assert_eq!(rest, b"EHLO x");

        let ssl = [&[1, 0, 0, 0, 0][..], &tlv(SSL_VERSION, b"TLSv1.3"), &tlv(0x23, b"cipher")].concat();
        let v6 = [[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0; 16]].concat();
        let v6 = [v6, vec![0, 1, 0, 2], tlv(4, b"pad"), tlv(SSL, &ssl)].concat();
        let (read, rest) = read_of(&header(0x21, 0x21, &v6)).await;
        let tls = Some(Tls { version: Some("TLSv1.3".into()) });
        assert_eq!(read.unwrap(), Header { peer: "[2001:db8::1]:1".parse().unwrap(), door: String::new(), tls });
        assert!(rest.is_empty());
        let clear = [&V4[..], &tlv(SSL, &[0; 5])].concat();
        assert_eq!(read_of(&header(0x21, 0x11, &clear)).await.0.unwrap().tls, None, "the client did not come by TLS");
    }

    #[tokio::test]
    async fn what_is_cut_too_long_or_something_else_is_refused() {
        let whole = header(0x21, 0x11, &[&V4[..], &tlv(DOOR, b"smtp")].concat());
        for cut in 0..whole.len() {
            assert!(read_of(&whole[..cut]).await.0.is_err(), "cut after {cut}");
        }
        let door = |value: &[u8]| header(0x21, 0x11, &[&V4[..], &tlv(DOOR, value)].concat());
        let mut says_too_much = whole.clone();
        says_too_much[30] += 1;
        for (bytes, says) in [
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec(), "neither"),
            (b"\r\n\r\nEHLO somebody.example\r\n".to_vec(), "neither"),
            (header(0x20, 0x11, &V4), "nobody's"),
            (header(0x11, 0x11, &V4), "version 2"),
            (header(0x22, 0x11, &V4), "version 2"),
            (header(0x21, 0x12, &V4), "not for TCP"),
            (header(0x21, 0x31, &[0; 216]), "not for TCP"),
            (header(0x21, 0x11, &V4[..11]), "too short"),
            (header(0x21, 0x21, &[0; 35]), "too short"),
            (header(0x21, 0x11, &[&V4[..], &[DOOR]].concat()), "is cut"),
            (header(0x21, 0x11, &[&V4[..], &[DOOR, 0, 9], b"smtp"].concat()), "is cut"),
            (header(0x21, 0x11, &[&V4[..], &tlv(SSL, &[1])].concat()), "is cut"),
            (header(0x21, 0x11, &[&V4[..], &tlv(SSL, &[1, 0, 0, 0, 0, 7])].concat()), "is cut"),
            (header(0x21, 0x11, &[&V4[..], &tlv(DOOR, b"a"), &tlv(DOOR, b"b")].concat()), "two doors"),
            (door(b""), "no door"),
            (door(b"SMTP"), "no door"),
            (door(b"a b"), "no door"),
            (door(&[0xff, 0xfe]), "no door"),
            (door(&[b'a'; DOOR_BYTES_MAX + 1]), "no door"),
            (header(0x21, 0x11, &[0; PROXY_BYTES_MAX + 1]), "too long"),
            (says_too_much, "is cut"),
        ] {
            let why = read_of(&bytes).await.0.unwrap_err().to_string();
            assert!(why.contains(says), "{:?}: {why}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        }
        assert!(read_of(&door(&[b'a'; DOOR_BYTES_MAX])).await.0.is_ok());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(version: u8, family in prop::sample::select(vec![0x11u8, 0x21, 0]),
            bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            let _ = parse(version, family, &bytes);
            let _ = parse(0x21, family, &bytes);
            let _ = parse(0x21, 0x11, &[&V4[..], &[DOOR, 0], &bytes[..]].concat());
            let _ = parse(0x21, 0x11, &[&V4[..], &[SSL, 0], &bytes[..]].concat());
        }
    }
}
