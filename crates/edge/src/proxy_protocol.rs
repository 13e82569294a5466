//! The PROXY protocol, versions 1 and 2: a line or a few bytes before everything else by which a balancer says whose
//! connection it passes on. Read strictly and to the byte, as what follows belongs to somebody else; believed only on
//! ports that were declared to stand behind such a balancer, and there it must come.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clones::spec::ProxyVersion;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Begins version 2, and nothing else that anybody speaks.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Type of the extension that names the door at which a client came: the first that the specification leaves to everybody (2.2.7).
const DOOR: u8 = 0xe0;
/// Longest line of version 1, with its end: the specification's own figure.
const LINE_BYTES_MAX: usize = 107;
/// Longest addresses and extensions of version 2: those in use (TLS details, ids) have some hundred bytes.
const REST_BYTES_MAX: usize = 4 << 10;
/// The balancer sends it at once, before anything of the client's.
const WITHIN: Duration = Duration::from_secs(5);

/// Reads what must stand at the begin of a connection. `None`: the balancer speaks for itself (a health check).
///
/// # Errors
/// It did not come in time, or something else did.
pub async fn receive(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no PROXY header came in time");
    tokio::time::timeout(WITHIN, read(stream)).await.map_err(late)?
}

async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let wrong = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    // Both versions are longer than this.
    let mut first = [0; SIGNATURE.len()];
    stream.read_exact(&mut first).await?;
    if first == SIGNATURE {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length > REST_BYTES_MAX {
            return Err(wrong("the PROXY header is too long"));
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await?;
        return parse_v2(head[0], head[1], &rest).map_err(wrong);
    }
    let mut line = first.to_vec();
    if !line.starts_with(b"PROXY ") {
        return Err(wrong("the connection does not begin with a PROXY header"));
    }
    let mut ahead = [0; LINE_BYTES_MAX];
    while !line.ends_with(b"\n") {
        // Looked at first, so that nothing after the line is taken.
        let seen = stream.peek(&mut ahead[..LINE_BYTES_MAX - line.len()]).await?;
        if seen == 0 {
            return Err(wrong("the PROXY header does not end"));
        }
        let end = ahead[..seen].iter().position(|b| *b == b'\n').map_or(seen, |at| at + 1);
        stream.read_exact(&mut ahead[..end]).await?;
        line.extend_from_slice(&ahead[..end]);
    }
    parse_v1(&line).map_err(wrong)
}

type Parsed = Result<Option<SocketAddr>, &'static str>;

/// `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n`
fn parse_v1(line: &[u8]) -> Parsed {
    let text = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok());
    let mut words = text.ok_or("the PROXY line is not text that ends in CR LF")?.split(' ');
    let (Some("PROXY"), Some(family)) = (words.next(), words.next()) else { return Err("this is no PROXY line") };
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let [from, to, from_port, to_port] = <[&str; 4]>::try_from(words.collect::<Vec<_>>())
        .map_err(|_| "the PROXY line has not two addresses and two ports")?;
    let ip = |word: &str| -> Result<IpAddr, &'static str> {
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| "the PROXY line has a wrong IPv4 address"),
            "TCP6" => word.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| "the PROXY line has a wrong IPv6 address"),
            _ => Err("the PROXY line is not for TCP4, TCP6 or UNKNOWN"),
        }
    };
    let port = |word: &str| -> Result<u16, &'static str> {
        let is_plain = word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
        word.parse().ok().filter(|_| is_plain).ok_or("the PROXY line has a wrong port")
    };
    let (_, _) = (ip(to)?, port(to_port)?);
    Ok(Some(SocketAddr::new(ip(from)?, port(from_port)?)))
}

/// Version and command, family and transport, then addresses and extensions.
fn parse_v2(version: u8, family: u8, rest: &[u8]) -> Parsed {
    match version {
        // LOCAL: what follows means nothing.
        0x20 => return Ok(None),
        0x21 => (),
        _ => return Err("the PROXY header is not of version 2, or has an unknown command"),
    }
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    match family {
        0x11 if rest.len() >= 12 => {
            let ip: [u8; 4] = rest[..4].try_into().expect("four bytes");
            Ok(Some(SocketAddr::from((ip, port(8)))))
        }
        0x21 if rest.len() >= 36 => {
            let ip: [u8; 16] = rest[..16].try_into().expect("sixteen bytes");
            Ok(Some(SocketAddr::from((ip, port(32)))))
        }
        0x11 | 0x21 => Err("the PROXY header is too short for its addresses"),
        // Unix sockets and datagrams: no address that means anything here.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => Ok(None),
        _ => Err("the PROXY header has an unknown family"),
    }
}

/// What is sent to a clone before a client's bytes. The name of the door goes in version 2, in an extension of our own.
pub fn header(version: ProxyVersion, from: SocketAddr, to: SocketAddr, door: Option<&str>) -> Vec<u8> {
    let (from, to) = (canonical(from), canonical(to));
    // A client by IPv4 may come to a listener of IPv6; then both are written as IPv6.
    let is_v4 = from.is_ipv4() && to.is_ipv4();
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match version {
        ProxyVersion::V1 if is_v4 => {
            format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port()).into_bytes()
        }
        ProxyVersion::V1 => {
            format!("PROXY TCP6 {} {} {} {}\r\n", v6(from.ip()), v6(to.ip()), from.port(), to.port()).into_bytes()
        }
        ProxyVersion::V2 => {
            let mut bytes = SIGNATURE.to_vec();
            bytes.push(0x21);
            let ips = [from.ip(), to.ip()];
            let ips: Vec<u8> = if is_v4 {
                ips.iter().flat_map(|ip| v6(*ip).to_ipv4_mapped().map(|ip| ip.octets()).unwrap_or_default()).collect()
            } else {
                ips.iter().flat_map(|ip| v6(*ip).octets()).collect()
            };
            bytes.push(if is_v4 { 0x11 } else { 0x21 });
            let door = door.map_or(Vec::new(), |door| {
                let length = u16::try_from(door.len()).expect("a door's name has 63 bytes at most");
                [&[DOOR][..], &length.to_be_bytes(), door.as_bytes()].concat()
            });
            bytes.extend((ips.len() as u16 + 4 + door.len() as u16).to_be_bytes());
            bytes.extend(ips);
            bytes.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
            bytes.extend(door);
            bytes
        }
    }
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What `receive` makes of these bytes, and what is left for who comes after it.
    async fn received(bytes: &[u8]) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let from = receive(&mut stream).await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        (from, rest)
    }

    #[tokio::test]
    async fn what_is_sent_is_what_is_read_and_nothing_after_it_is_taken() {
        let pairs =
            [("192.0.2.1:56324", "198.51.100.1:443"), ("[2001:db8::1]:1", "[::1]:65535"), ("192.0.2.1:1", "[::1]:2")];
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (from, to) in pairs {
                let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
                let mut bytes = header(version, from, to, None);
                bytes.extend(b"GET / HTTP/1.1\r\n");
                let (read, rest) = received(&bytes).await;
                assert_eq!(read.unwrap().map(canonical), Some(from), "{version:?}");
                assert_eq!(rest, b"GET / HTTP/1.1\r\n");
            }
        }
        let known = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
        assert_eq!(header(ProxyVersion::V1, pairs[0].0.parse().unwrap(), pairs[0].1.parse().unwrap(), None), known);
        let (read, rest) = received(b"PROXY UNKNOWN whatever this is\r\nx").await;
        assert_eq!((read.unwrap(), rest), (None, b"x".to_vec()));
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 3], b"abc", b"x"].concat();
        let (read, rest) = received(&local).await;
        assert_eq!((read.unwrap(), rest), (None, b"x".to_vec()));
    }

    #[test]
    fn the_name_of_a_door_stands_behind_the_addresses_in_an_extension() {
        let (from, to) = ("192.0.2.1:56324".parse().unwrap(), "198.51.100.1:25".parse().unwrap());
        let known = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\0\x19\xe0\0\x04smtp";
        assert_eq!(header(ProxyVersion::V2, from, to, Some("smtp")), known);
        let without = header(ProxyVersion::V2, from, to, None);
        assert_eq!((without[15], &without[16..]), (12, &known[16..28]));
        // Version 1 has no place for it.
        assert!(header(ProxyVersion::V1, from, to, Some("smtp")).ends_with(b"56324 25\r\n"));
    }

    #[tokio::test]
    async fn everything_else_is_refused() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(200));
        for bytes in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 056324 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 +5 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 70000 443\r\n",
            b"PROXY TCP4 192.0.2.1  198.51.100.1 5 443\r\n",
            b"PROXY TCP4 ::1 ::1 5 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 5 443\r\n",
            long.as_bytes(),
            &[&SIGNATURE[..], &[0x11, 0x11, 0, 12], &[0; 12]].concat(),
            &[&SIGNATURE[..], &[0x21, 0x11, 0, 8], &[0; 8]].concat(),
            &[&SIGNATURE[..], &[0x21, 0x44, 0, 0]].concat(),
            &[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff], &[0; 64]].concat(),
        ] {
            assert!(received(bytes).await.0.is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic_and_sound_headers_read_back(
            bytes in prop::collection::vec(any::<u8>(), 0..64), version: u8, family: u8,
            from: ([u8; 4], u16), to: ([u8; 16], u16),
        ) {
            let _ = parse_v1(&bytes);
            let _ = parse_v1(&[b"PROXY TCP4 ", &bytes[..], b"\r\n"].concat());
            let _ = parse_v2(version, family, &bytes);
            let (from, to) = (SocketAddr::from(from), SocketAddr::from(to));
            for (from, to) in [(from, to), (to, from), (from, from), (to, to)] {
                let read = parse_v1(&header(ProxyVersion::V1, from, to, None)).unwrap();
                prop_assert_eq!(read.map(canonical), Some(canonical(from)));
                let bytes = header(ProxyVersion::V2, from, to, Some("smtp"));
                let read = parse_v2(bytes[12], bytes[13], &bytes[16..]).unwrap();
                prop_assert_eq!(read.map(canonical), Some(canonical(from)));
                prop_assert_eq!(usize::from(bytes[15]), bytes.len() - 16);
            }
        }
    }
}
