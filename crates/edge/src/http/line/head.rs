//! Heads of messages to and from clones: a request's written, an answer's read and judged (RFC 9112). Pure: bytes in,
//! bytes out. The reading of lines is `httparse`'s; what a body's end rests on is decided here, and what two readers
//! could understand differently is no answer.

use std::fmt::Display;
use std::io::Write as _;
use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use hyper::ext::ReasonPhrase;

use super::framing::Body;
use crate::fields::AnyFields;
use crate::http::check::{self, Framing};
use crate::http::headers::{lists, strip_one_hop};
use crate::http::limits::{ANSWER_HEAD_BYTES_MAX, FIELDS_MAX};
use crate::http::rooms;
use crate::http::session::remove_ours;

/// What a request lets its answer be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expects {
    /// To HEAD: the fields speak of a body that does not come.
    pub no_body: bool,
    /// The request asks to change to another protocol.
    pub upgrade: bool,
}

/// The next head.
#[derive(Debug)]
pub enum Said {
    /// The clone wants the request's body (100).
    Continue,
    /// Another interim answer, as a client of HTTP/1.1 gets it.
    Interim(Vec<u8>),
    Answer(Head),
}

/// An answer's head as it came.
#[derive(Debug)]
pub struct Head {
    pub response: Response<()>,
    pub body: Body,
    /// The clone takes another request after this one.
    pub keeps: bool,
}

/// The head of a request, with `more` fields at its end, written to `out`, which is empty. What frames the body is
/// written from `framing`, whatever the fields say of it.
pub fn request<const N: usize>(
    mut out: Vec<u8>,
    method: &Method,
    path: &str,
    fields: &impl AnyFields,
    framing: Framing,
    more: [Option<(&str, &dyn Display)>; N],
) -> Vec<u8> {
    out.reserve(128 + method.as_str().len() + path.len() + fields.pairs().size_hint().0 * 48);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let mut says_length = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    for (name, value) in fields.pairs() {
        if *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING {
            says_length = true;
            continue;
        }
        field(&mut out, name.as_str(), value.as_bytes());
    }
    match framing {
        Framing::Chunked => field(&mut out, "transfer-encoding", b"chunked"),
        Framing::Length(0) if !says_length => (),
        Framing::Length(bytes) => shown(&mut out, "content-length", &bytes),
    }
    more.into_iter().flatten().for_each(|(name, value)| shown(&mut out, name, value));
    out.extend_from_slice(b"\r\n");
    out
}

fn shown(out: &mut Vec<u8>, name: &str, value: &dyn Display) {
    write!(out, "{name}: {value}\r\n").expect("memory takes all");
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// What a program speaks that does not speak HTTP/1.1, where its first bytes tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tongue {
    /// HTTP/2: the clone begins with SETTINGS (RFC 9113 3.4), as servers of gRPC do.
    Http2,
    /// TLS: the clone answers plain text with an alert (RFC 8446 6).
    Tls,
}

impl Tongue {
    pub fn of(said: &[u8]) -> Option<Self> {
        match said {
            [_, _, _, 4, 0 | 1, 0, 0, 0, 0, ..] => Some(Self::Http2),
            [21, 3, 0..=4, 0, 2, ..] => Some(Self::Tls),
            _ => None,
        }
    }
}

/// Takes the next head from the front of `input`. None: more is needed.
///
/// # Errors
/// It is no answer, or one whose end could be understood in two ways; here is why.
pub fn next(input: &mut BytesMut, expects: Expects) -> Result<Option<Said>, &'static str> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let len = match config.parse_response_with_uninit_headers(&mut parsed, input, &mut fields) {
        Ok(httparse::Status::Complete(len)) if len <= ANSWER_HEAD_BYTES_MAX => len,
        Ok(httparse::Status::Partial) if input.len() <= ANSWER_HEAD_BYTES_MAX => return Ok(None),
        Ok(_) => return Err("its head is longer than 128 KiB"),
        Err(httparse::Error::TooManyHeaders) => return Err("it has more than 100 header fields"),
        Err(_) => return Err("it is not HTTP/1.1"),
    };
    let code = parsed.code.unwrap_or(0);
    if matches!(code, 100 | 102..=199) {
        let said = if code == 100 { Said::Continue } else { Said::Interim(interim(&parsed)) };
        input.advance(len);
        return Ok(Some(said));
    }
    let status = StatusCode::from_u16(code).map_err(|_| "its status is none")?;
    // A copy, so that fields that live long do not hold a whole read buffer.
    let shared = rooms::head(&input[..len]);
    let base = input.as_ptr().addr();
    let mut response = Response::new(());
    *response.status_mut() = status;
    let map = response.headers_mut();
    *map = rooms::map(parsed.headers.len());
    for field in &*parsed.headers {
        let name = rooms::name(field.name.as_bytes()).map_err(|_| "a field has no proper name")?;
        let at = field.value.as_ptr().addr() - base;
        let value = HeaderValue::from_maybe_shared(shared.slice(at..at + field.value.len()))
            .map_err(|_| "a field's value has control characters")?;
        map.append(name, value);
    }
    let is_new = parsed.version == Some(1);
    let keeps = keeps(map, is_new);
    let body = body_of(map, status, is_new, expects)?;
    if let Some(reason) = parsed.reason
        && status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    input.advance(len);
    let keeps = keeps && body != Body::UntilEnd && status != StatusCode::SWITCHING_PROTOCOLS;
    Ok(Some(Said::Answer(Head { response, body, keeps })))
}

/// An interim answer's bytes, without what is for one hop or speaks of a body, which it has none.
fn interim(parsed: &httparse::Response<'_, '_>) -> Vec<u8> {
    let (code, reason) = (parsed.code.unwrap_or(0), parsed.reason.unwrap_or_default());
    let mut out = format!("HTTP/1.1 {code:03} {reason}\r\n").into_bytes();
    let mut fields = HeaderMap::new();
    for of in &*parsed.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(of.name.as_bytes()), HeaderValue::from_bytes(of.value)) {
            fields.append(name, value);
        }
    }
    strip_one_hop(&mut fields);
    remove_ours(&mut fields);
    for (name, value) in &fields {
        if *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING {
            field(&mut out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Whether the connection stays behind a message with these fields (RFC 9112 9.3).
pub fn keeps(fields: &impl AnyFields, is_new: bool) -> bool {
    if !fields.has(&header::CONNECTION) {
        return is_new;
    }
    let says = |what: &[u8]| lists(fields, &header::CONNECTION, what);
    !says(b"close") && (is_new || says(b"keep-alive"))
}

/// Where the body ends (RFC 9112 6.3).
fn body_of(fields: &mut HeaderMap, status: StatusCode, is_new: bool, expects: Expects) -> Result<Body, &'static str> {
    let length = length(fields)?;
    if status == StatusCode::SWITCHING_PROTOCOLS && !expects.upgrade {
        return Err("it changes to another protocol, and nobody asked for that");
    }
    let has_none =
        matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if expects.no_body || has_none {
        return Ok(Body::Over);
    }
    let mut codings = fields.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(length.map_or(Body::UntilEnd, Body::of_length)),
        (Some(_), _) if !is_new => Err("Transfer-Encoding is not for HTTP/1.0"),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(Body::chunked()),
        _ => Err("the only Transfer-Encoding taken here is chunked, once"),
    }
}

/// What Content-Length says; of several alike, one stays.
fn length(fields: &mut HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut all = fields.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let length = check::length(first.as_bytes().trim_ascii()).ok_or("its Content-Length is not a number")?;
    let (mut more, first) = (false, first.clone());
    for other in all {
        more = true;
        if check::length(other.as_bytes().trim_ascii()) != Some(length) {
            return Err("it has two Content-Length fields that differ");
        }
    }
    if more {
        fields.insert(header::CONTENT_LENGTH, first);
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Expects = Expects { no_body: false, upgrade: false };

    fn read(bytes: &str, expects: Expects) -> Result<Option<(Head, String)>, &'static str> {
        let mut input = BytesMut::from(bytes);
        loop {
            match next(&mut input, expects)? {
                Some(Said::Answer(head)) => return Ok(Some((head, String::from_utf8(input.to_vec()).unwrap()))),
                Some(Said::Continue | Said::Interim(_)) => (),
                None => return Ok(None),
            }
        }
    }

    fn body(bytes: &str) -> Result<Body, &'static str> {
        read(bytes, ANY).map(|head| head.expect("it is whole").0.body)
    }

    #[test]
    fn what_speaks_something_else_is_told_by_its_first_bytes() {
        // As grpc-go and grpc-java begin, an acknowledgement of settings, and an alert of OpenSSL.
        let go = b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0";
        assert_eq!(Tongue::of(go), Some(Tongue::Http2));
        assert_eq!(Tongue::of(b"\0\0\0\x04\x01\0\0\0\0"), Some(Tongue::Http2));
        assert_eq!(Tongue::of(b"\x15\x03\x01\0\x02\x02\x46"), Some(Tongue::Tls));
        for other in [&b"HTTP/1.1 200 OK\r\n\r\n"[..], b"220 smtp\r\n", b"", b"\0\0\x06\x04"] {
            assert_eq!(Tongue::of(other), None);
        }
    }

    #[test]
    fn a_request_says_once_how_its_body_is_framed() {
        let mut fields = HeaderMap::new();
        fields.insert(header::HOST, HeaderValue::from_static("a"));
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("77"));
        fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        let text =
            |method, framing| String::from_utf8(request(Vec::new(), &method, "/x?y", &fields, framing, [])).unwrap();
        assert_eq!(text(Method::GET, Framing::Length(5)), "GET /x?y HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n");
        assert_eq!(
            text(Method::POST, Framing::Chunked),
            "POST /x?y HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        );
    }

    #[test]
    fn a_host_is_added_before_the_end() {
        let more = [Some(("host", &"[::1]:80" as &dyn Display)), None];
        let head = request(Vec::new(), &Method::GET, "/", &HeaderMap::new(), Framing::Length(0), more);
        assert_eq!(head, b"GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n");
    }

    #[test]
    fn a_request_without_a_body_speaks_of_one_only_where_one_is_usual() {
        let has = |method| {
            request(Vec::new(), &method, "/", &HeaderMap::new(), Framing::Length(0), [])
                .ends_with(b"content-length: 0\r\n\r\n")
        };
        assert!(!has(Method::GET) && !has(Method::DELETE));
        assert!(has(Method::POST) && has(Method::PUT) && has(Method::PATCH));
    }

    #[test]
    fn an_answer_is_read_behind_interim_ones_and_what_follows_stays() {
        let bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                     HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok";
        let (head, rest) = read(bytes, ANY).unwrap().unwrap();
        assert_eq!((head.response.status(), rest.as_str()), (StatusCode::OK, "ok"));
        assert_eq!(head.response.headers()["x-a"], "b");
        assert!(!head.response.headers().contains_key("link"));
        assert_eq!(head.response.extensions().get::<ReasonPhrase>().unwrap().as_bytes(), b"Fine");
        assert!(head.keeps && head.body == Body::of_length(2));
        for end in 1..bytes.len() - 2 {
            assert!(read(&bytes[..end], ANY).unwrap().is_none(), "{end}");
        }
    }

    #[test]
    fn interim_answers_are_heard_one_by_one_without_what_is_not_theirs() {
        let mut input = BytesMut::from(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\nKeep-Alive: 5\r\n\
             Connection: x-mine\r\nX-Mine: 1\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        );
        assert!(matches!(next(&mut input, ANY), Ok(Some(Said::Continue))));
        let Ok(Some(Said::Interim(hints))) = next(&mut input, ANY) else { panic!("there are early hints") };
        let hints = String::from_utf8(hints).unwrap();
        assert_eq!(hints, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n");
        assert!(matches!(next(&mut input, ANY), Ok(Some(Said::Answer(_)))));
    }

    #[test]
    fn where_a_body_ends() {
        assert_eq!(body("HTTP/1.1 200 OK\r\n\r\n"), Ok(Body::UntilEnd));
        assert_eq!(body("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Ok(Body::Over));
        assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Body::Over));
        assert_eq!(body("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"), Ok(Body::Over));
        assert_eq!(body("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"), Ok(Body::chunked()));
        let both = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(body(both), Ok(Body::chunked()));
        let head = read("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", Expects { no_body: true, upgrade: false });
        assert_eq!(head.unwrap().unwrap().0.body, Body::Over);
    }

    #[test]
    fn what_could_end_in_two_places_is_no_answer() {
        for bad in [
            "content-length: 1\r\ncontent-length: 2",
            "content-length: 1, 1",
            "content-length: +1",
            "content-length: 99999999999999999999",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: gzip",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "content-length : 1",
            "x: a\0b",
            " folded: 1",
        ] {
            assert!(read(&format!("HTTP/1.1 200 OK\r\n{bad}\r\n\r\n"), ANY).is_err(), "{bad}");
        }
        for bad in ["HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP/1.1 99 X\r\n\r\n", "SSH-2.0-x\r\n"] {
            assert!(read(bad, ANY).is_err(), "{bad}");
        }
        let same = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n";
        let (head, _) = read(same, ANY).unwrap().unwrap();
        assert_eq!(head.response.headers().get_all(header::CONTENT_LENGTH).iter().count(), 1);
    }

    #[test]
    fn a_protocol_changes_only_for_who_asked() {
        let bytes = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nearly";
        assert!(read(bytes, ANY).is_err());
        let (head, rest) = read(bytes, Expects { no_body: false, upgrade: true }).unwrap().unwrap();
        assert!(!head.keeps && head.body == Body::Over && rest == "early");
    }

    #[test]
    fn which_connections_stay() {
        let keeps = |text: &str| read(&format!("{text}content-length: 0\r\n\r\n"), ANY).unwrap().unwrap().0.keeps;
        assert!(keeps("HTTP/1.1 200 OK\r\n"));
        assert!(keeps("HTTP/1.1 200 OK\r\nconnection: x\r\n"));
        assert!(!keeps("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nconnection: x, Close\r\n"));
        assert!(!keeps("HTTP/1.0 200 OK\r\n"));
        assert!(keeps("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n"));
    }

    #[test]
    fn heads_have_an_end() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(ANSWER_HEAD_BYTES_MAX));
        assert!(read(&long, ANY).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(read(&many, ANY).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_get_a_verdict(bytes: Vec<u8>, text in "(HTTP/1\\.[01] [0-9]{3} ?[a-z]*\r\n)?([a-zA-Z-]{1,9}: ?[ -~]{0,9}\r\n){0,5}(\r\n)?.{0,9}") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                for upgrade in [false, true] {
                    let _ = next(&mut BytesMut::from(bytes), Expects { no_body: false, upgrade });
                }
            }
        }
    }
}
