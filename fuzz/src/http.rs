//! What the HTTP door reads: heads, chunked bodies, forwarded fields. `httparse`, which clones may have as well, is
//! the second reader: a head that passes here must mean the same to it, field by field, or requests could be smuggled.

use base::Rng;
use edge::http::check::{Chunks, Framing, HeadScan, Violation};
use edge::http::headers::{Peer, set_forwarded, strip_one_hop};
use edge::http::limits::{FIELDS_MAX, HEAD_BYTES_MAX};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::memory::bounded;

pub const HEAD_WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b": ",
    b" ",
    b"\t",
    b"GET / HTTP/1.1\r\n",
    b"HTTP/1.0",
    b"Host: a\r\n",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding:",
    b"Connection: close, x-forwarded-for\r\n",
    b"Upgrade: h2c\r\n",
    b"X-Forwarded-For: 1.2.3.4\r\n",
    b"x_real_ip: 1\r\n",
    b"Forwarded: for=1\r\n",
    b"http://a/",
    b"%00",
    b"\0",
    b"\xff",
    b"\r\n\r\n",
];
pub const CHUNK_WORDS: &[&[u8]] = &[
    b"\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"A;x=y\r\n",
    b"ffffffffffffffff\r\n",
    b"T: x\r\n",
    b"\n",
    b"-1",
    b"0x",
];

/// What programs take for the truth about where a request comes from.
const BELIEVED: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "x-client-ip"];

const BODY_BYTES_MAX: u64 = 1000;

pub fn head(bytes: &[u8]) -> bool {
    let whole = bounded(bytes.len(), 0, || HeadScan::default().scan(bytes, BODY_BYTES_MAX));
    // Whatever cuts there are: the verdict is the same, and if it comes early it does not change.
    let mut slow = HeadScan::default();
    let found = (0..=bytes.len()).map(|to| slow.scan(&bytes[..to], BODY_BYTES_MAX)).find(|v| !matches!(v, Ok(None)));
    assert_eq!(found.unwrap_or(Ok(None)), whole, "byte by byte");
    let Ok(Some((end, framing))) = whole else {
        if let Err(Violation { status, .. }) = whole {
            assert!((400..=505).contains(&status), "{status}");
        }
        return false;
    };
    assert!(end <= bytes.len() && end <= HEAD_BYTES_MAX);
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut other = httparse::Request::new(&mut fields);
    assert_eq!(other.parse(&bytes[..end]), Ok(httparse::Status::Complete(end)), "it ends it elsewhere");
    let parts = slow.parts().expect("it is whole");
    assert_eq!(other.method.map(str::as_bytes), Some(&bytes[parts.method]));
    assert_eq!((other.path.map(str::as_bytes), other.version), (Some(&bytes[parts.target]), Some(parts.minor)));
    let ours = slow.fields().iter().map(|field| (&bytes[field.name()], &bytes[field.value()]));
    assert!(ours.eq(other.headers.iter().map(|h| (h.name.as_bytes(), h.value))), "{:?}", other.headers);
    let values = |name: &str| -> Vec<&[u8]> {
        other.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match framing {
        Framing::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1 && codings[0].eq_ignore_ascii_case(b"chunked"));
        }
        Framing::Length(length) => {
            let read = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
            assert!(codings.is_empty() && lengths.iter().all(|l| read(l) == Some(length)), "{lengths:?}");
            assert!(length == 0 || !lengths.is_empty(), "a length that nobody said");
        }
    }
    assert!(values("host").len() <= 1, "two hosts");
    // Bytes behind a head change nothing about it.
    let behind = [&bytes[..end], b"GET /x"].concat();
    assert_eq!(HeadScan::default().scan(&behind, BODY_BYTES_MAX), whole, "with bytes behind it");
    true
}

pub fn chunks(bytes: &[u8]) -> bool {
    let whole = bounded(bytes.len(), 0, || Chunks::default().scan(bytes, BODY_BYTES_MAX));
    let (mut slow, mut used, mut last) = (Chunks::default(), 0, Ok((0, false)));
    for piece in bytes.chunks(1) {
        last = slow.scan(piece, BODY_BYTES_MAX);
        used += last.as_ref().map_or(0, |(n, _)| *n);
        if !matches!(last, Ok((_, false))) {
            break;
        }
    }
    assert_eq!(last.map(|(_, ended)| (used, ended)), whole, "byte by byte");
    let Ok((used, ended)) = whole else { return false };
    assert!(used <= bytes.len() && (ended || used == bytes.len()));
    ended
}

/// Fields as the door hands them on, and what the proxy makes of them.
pub fn forwarded(bytes: &[u8]) -> bool {
    let mut scan = HeadScan::default();
    let Ok(Some(_)) = scan.scan(bytes, BODY_BYTES_MAX) else { return false };
    let mut headers = HeaderMap::new();
    for field in scan.fields() {
        let value = HeaderValue::from_bytes(&bytes[field.value()]).expect("the library would take it");
        headers.append(HeaderName::from_bytes(&bytes[field.name()]).expect("the library would take it"), value);
    }
    let before = headers.clone();
    strip_one_hop(&mut headers);
    for name in ["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "proxy-authorization"] {
        assert!(!headers.contains_key(name), "{name} went on");
    }
    for name in ["host", "content-length"] {
        assert_eq!(headers.get(name), before.get(name), "{name} framed or routed the request");
    }
    let ip = Rng::new(bytes.len() as u64).u64() as u32;
    let peer = Peer::new(std::net::IpAddr::from(ip.to_be_bytes()), 80, false);
    set_forwarded(&mut headers, &peer, false, &[]);
    let address = std::net::Ipv4Addr::from(ip).to_string();
    let all = |name: &str| headers.get_all(name).iter().map(|v| v.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(all("x-forwarded-for"), [address.clone().into_bytes()], "a client was believed");
    assert_eq!(all("x-forwarded-proto"), [b"http"]);
    let said = all("forwarded");
    assert!(said.len() == 1 && said[0].starts_with(format!("for={address};proto=http").as_bytes()));
    assert_eq!(all("x-forwarded-host").first().map(Vec::as_slice), headers.get("host").map(HeaderValue::as_bytes));
    for name in headers.keys().filter(|name| name.as_str().contains('_')) {
        let as_cgi_reads_it = name.as_str().replace('_', "-");
        assert!(!BELIEVED.contains(&as_cgi_reads_it.as_str()), "{name} went on");
    }
    true
}
