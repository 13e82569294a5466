//! What a proxy does to header fields: takes out those that were meant for one hop (RFC 9110 7.6.1) and says from whom
//! a request comes. What a client says about that is not believed unless configured, in no spelling.

use std::net::IpAddr;
use std::sync::OnceLock;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::session::remove_ours;
use crate::downlink::Socket;
use crate::fields::AnyFields;
use crate::share;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// How many fields a request has more when it leaves: four of these, and three that `admit` tells.
pub const FIELDS_ADDED: usize = 7;

/// Fields for one hop, whether Connection lists them or not.
const ONE_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// What programs believe about where a request came from, what it asks for and by which method, besides what we set
/// ourselves. `Proxy` becomes HTTP_PROXY in CGI-like programs (httpoxy). Who is behind a network that sets some of
/// these names them (`--trusted-header`).
pub const BELIEVED: [&str; 31] = [
    "forwarded",
    "x-forwarded",
    "x-forwarded-for",
    "x-forwarded-by",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-forwarded-prefix",
    "x-forwarded-path",
    "x-forwarded-user",
    "x-url-scheme",
    "front-end-https",
    "x-original-url",
    "x-rewrite-url",
    "x-original-host",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-cluster-client-ip",
    "fastly-client-ip",
    "x-envoy-external-address",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "proxy",
];

/// Fields that frame a message, or are for one hop, in the spelling that CGI-like programs take for the same. We do
/// not, and would pass them on.
const UNDERSCORED: [&str; 7] = [
    "transfer_encoding",
    "content_length",
    "keep_alive",
    "proxy_connection",
    "proxy_authenticate",
    "proxy_authorization",
    "http2_settings",
];

/// Bit N: one of these has N bytes. Most names of a request have not, and need no other look.
const LENGTHS: u64 = {
    let (mut bits, mut i) = (0, 0);
    while i < BELIEVED.len() {
        bits |= 1 << BELIEVED[i].len();
        i += 1;
    }
    i = 0;
    while i < UNDERSCORED.len() {
        bits |= 1 << UNDERSCORED[i].len();
        i += 1;
    }
    bits
};

/// Values that are the same for all requests of a connection.
#[derive(Debug)]
pub struct Peer {
    pub ip: IpAddr,
    /// The port it came to.
    pub port: u16,
    pub is_https: bool,
    /// The client's number, by which it is told apart from others where a number is needed.
    pub share: u64,
    /// How fast its line is can be asked of the kernel; none: it comes through a proxy, whose line that would be.
    pub line: Option<Socket>,
    address: HeaderValue,
    /// `for=192.0.2.1;proto=http`, as Forwarded wants it.
    forwarded: String,
    /// The first request's Host, and Forwarded as it is for that one: mostly the only one of a connection.
    first: OnceLock<(HeaderValue, HeaderValue)>,
}

impl Peer {
    pub fn new(ip: IpAddr, port: u16, is_https: bool) -> Self {
        let ip = ip.to_canonical();
        let node = if ip.is_ipv6() { format!("\"[{ip}]\"") } else { ip.to_string() };
        let proto = if is_https { "https" } else { "http" };
        Self {
            ip,
            port,
            is_https,
            share: share::hash(ip),
            line: None,
            address: HeaderValue::from_str(&ip.to_string()).expect("an address is plain ASCII"),
            forwarded: format!("for={node};proto={proto}"),
            first: OnceLock::new(),
        }
    }

    /// The value of Forwarded for a request to this host.
    fn forwarded(&self, host: Option<&HeaderValue>) -> Option<HeaderValue> {
        let Some((host, text)) = host.and_then(|host| Some((host, host.to_str().ok()?))) else {
            return HeaderValue::try_from(self.forwarded.as_str()).ok();
        };
        let made = || HeaderValue::try_from(format!("{};host=\"{text}\"", self.forwarded)).ok();
        match self.first.get() {
            Some((first, forwarded)) if first == host => Some(forwarded.clone()),
            Some(_) => made(),
            None => {
                let forwarded = made()?;
                // Another request of the connection may have been faster.
                // A copy: it stays for as long as the connection, and would hold all of its head.
                let host = HeaderValue::from_bytes(host.as_bytes()).ok()?;
                let _ = self.first.set((host, forwarded.clone()));
                Some(forwarded)
            }
        }
    }
}

/// Takes out what was for one hop. Transfer-Encoding stays: whoever writes the head has its own. Whether it said that
/// trailers are welcome.
pub fn strip_one_hop(headers: &mut impl AnyFields) -> bool {
    let mut takes_trailers = false;
    if headers.has(&header::CONNECTION) {
        let listed: Vec<HeaderName> = listed(headers, &header::CONNECTION)
            // Of what most say no name has to be made: the one is no field, the other is taken out below.
            .filter(|name| !name.eq_ignore_ascii_case(b"keep-alive") && !name.eq_ignore_ascii_case(b"close"))
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            // These frame and route the message; a client may not have them taken out on the way.
            .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
            .collect();
        for name in listed {
            takes_trailers |= name == header::TE && lists(headers, &header::TE, b"trailers");
            headers.take(&name);
        }
    }
    // First a look: comparing the few names that there are is cheaper than looking each of ours up.
    if headers.names().any(|name| ONE_HOP.contains(name)) {
        takes_trailers |= lists(headers, &header::TE, b"trailers");
        for name in &ONE_HOP {
            headers.take(name);
        }
    }
    takes_trailers
}

/// What trailers may not say (RFC 9110 6.5.1): where a message ends, where it goes, what it is.
const NO_TRAILERS: [HeaderName; 9] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::HOST,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::CACHE_CONTROL,
    header::SET_COOKIE,
    header::AUTHORIZATION,
];

/// Takes out of trailers what only heads may say, and what is for one hop or ours.
pub fn strip_for_trailers(trailers: &mut HeaderMap) {
    strip_one_hop(trailers);
    for name in &NO_TRAILERS {
        trailers.remove(name);
    }
    remove_ours(trailers);
}

/// What a field lists, whose parts have no commas of their own.
pub fn listed<'a>(headers: &'a impl AnyFields, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.all(name).flat_map(|value| value.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii))
}

pub fn lists(headers: &impl AnyFields, name: &HeaderName, what: &[u8]) -> bool {
    listed(headers, name).any(|part| part.eq_ignore_ascii_case(what))
}

/// Says from whom a request comes. With `trust`, what the client says is kept and added to; else only the `trusted`
/// fields are.
pub fn set_forwarded(headers: &mut impl AnyFields, peer: &Peer, trust: bool, trusted: &[HeaderName]) {
    if !trust {
        headers.take_if(|name| is_one_of(name.as_str(), &BELIEVED) && !trusted.contains(name));
    }
    headers.take_if(|name| is_underscored(name.as_str()));
    headers.reserve(FIELDS_ADDED);
    let host = headers.first(&header::HOST).cloned();
    if let Some(forwarded) = peer.forwarded(host.as_ref()) {
        headers.add(header::FORWARDED, forwarded);
    }
    headers.add(FORWARDED_FOR, peer.address.clone());
    if !headers.has(&FORWARDED_PROTO) {
        headers.add(FORWARDED_PROTO, HeaderValue::from_static(if peer.is_https { "https" } else { "http" }));
    }
    if let Some(host) = host
        && !headers.has(&FORWARDED_HOST)
    {
        headers.add(FORWARDED_HOST, host);
    }
}

/// Whether a proxy that is trusted says that something else is asked for than what the request names.
pub fn is_rewriting(headers: &HeaderMap) -> bool {
    const REWRITING: [&str; 9] = [
        "x-original-url",
        "x-rewrite-url",
        "x-original-host",
        "x-forwarded-prefix",
        "x-forwarded-path",
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x-forwarded-server",
    ];
    headers.keys().any(|name| is_one_of(name.as_str(), &REWRITING))
}

fn may_be_one(name: &str) -> bool {
    name.len() < 64 && LENGTHS & (1 << name.len()) != 0
}

/// Programs behind CGI or WSGI read x_real_ip and x-real-ip as one.
fn is_one_of(name: &str, all: &[&str]) -> bool {
    let same = |(k, n): (u8, u8)| k == n || (k == b'-' && n == b'_');
    may_be_one(name) && all.iter().any(|known| known.len() == name.len() && known.bytes().zip(name.bytes()).all(same))
}

fn is_underscored(name: &str) -> bool {
    // With a dash at each place it is the field itself, which has been looked at.
    let is = |(u, n): (u8, u8)| u == n || (u == b'_' && n == b'-');
    may_be_one(name)
        && name.contains('_')
        && UNDERSCORED.iter().any(|u| u.len() == name.len() && u.bytes().zip(name.bytes()).all(is))
}

/// The protocol a client asks to change to, if it does so properly. HTTP/2 in the clear is not offered: it would be a
/// way past this proxy.
pub fn wanted_upgrade(headers: &impl AnyFields) -> Option<HeaderValue> {
    let wanted = headers.first(&header::UPGRADE)?;
    let is_http2 = wanted.as_bytes().to_ascii_lowercase().windows(3).any(|part| part == b"h2c");
    (lists(headers, &header::CONNECTION, b"upgrade") && !is_http2).then(|| wanted.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn fields_for_one_hop_are_taken_out_and_what_connection_lists() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Mine,host"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "close"),
            ("host", "a"),
            ("accept", "*/*"),
        ]);
        headers.append(header::CONNECTION, HeaderValue::from_static("x-other"));
        headers.insert("x-other", HeaderValue::from_static("2"));
        assert!(strip_one_hop(&mut headers), "it takes trailers");
        assert_eq!(names(&headers), ["accept", "host"]);
    }

    #[test]
    fn what_a_client_says_about_its_origin_is_replaced_in_any_spelling() {
        let mut headers = map(&[
            ("host", "shop:8080"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-forwarded_host", "evil"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("proxy", "http://evil"),
        ]);
        set_forwarded(&mut headers, &Peer::new("192.0.2.1".parse().unwrap(), 80, false), false, &[]);
        assert_eq!(names(&headers), ["forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-host"], "shop:8080");
        assert_eq!(headers["forwarded"], "for=192.0.2.1;proto=http;host=\"shop:8080\"");
    }

    #[test]
    fn nothing_that_programs_believe_comes_from_a_client_unless_it_is_trusted() {
        let peer = Peer::new("192.0.2.1".parse().unwrap(), 80, false);
        for believed in BELIEVED {
            for name in [believed.to_owned(), believed.replace('-', "_"), believed.replacen('-', "_", 1)] {
                let name = HeaderName::try_from(name).unwrap();
                let mut headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("evil"))]);
                set_forwarded(&mut headers, &peer, false, &[]);
                let said: Vec<_> = headers.get_all(&name).iter().filter(|value| *value == "evil").collect();
                assert!(said.is_empty(), "{name}");
            }
            let name = HeaderName::from_static(believed);
            let mut headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("cdn"))]);
            set_forwarded(&mut headers, &peer, false, std::slice::from_ref(&name));
            assert_eq!(headers.get_all(&name).iter().next().unwrap(), "cdn", "{name} is trusted");
        }
    }

    #[test]
    fn no_field_frames_a_message_in_another_spelling() {
        let spelt = ["transfer_encoding", "content_length", "keep_alive", "proxy_connection", "proxy_authorization"];
        let mut headers: HeaderMap =
            spelt.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("chunked"))).collect();
        headers.insert("content_type", HeaderValue::from_static("kept"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
        set_forwarded(&mut headers, &Peer::new("192.0.2.1".parse().unwrap(), 80, false), true, &[]);
        let left = names(&headers);
        assert_eq!(left, ["content-length", "content_type", "forwarded", "x-forwarded-for", "x-forwarded-proto"]);
    }

    #[test]
    fn each_request_of_a_connection_is_told_its_own_host() {
        let peer = Peer::new("192.0.2.1".parse().unwrap(), 80, false);
        for host in ["a", "b", "a", "b:80"] {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            set_forwarded(&mut headers, &peer, false, &[]);
            assert_eq!(headers["forwarded"], format!("for=192.0.2.1;proto=http;host=\"{host}\""));
        }
        let mut headers = HeaderMap::new();
        set_forwarded(&mut headers, &peer, false, &[]);
        assert_eq!(headers["forwarded"], "for=192.0.2.1;proto=http");
    }

    #[test]
    fn a_trusted_client_is_added_to() {
        let mut headers = map(&[("host", "a"), ("x-forwarded-for", "6.6.6.6"), ("x-forwarded-proto", "https")]);
        set_forwarded(&mut headers, &Peer::new("::1".parse().unwrap(), 443, true), true, &[]);
        let all: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(all, ["6.6.6.6", "::1"]);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["forwarded"], "for=\"[::1]\";proto=https;host=\"a\"");
    }

    #[test]
    fn an_upgrade_must_be_listed_and_is_never_http2() {
        assert!(wanted_upgrade(&map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")])).is_some());
        assert!(wanted_upgrade(&map(&[("upgrade", "websocket")])).is_none());
        assert!(wanted_upgrade(&map(&[("connection", "upgrade"), ("upgrade", "H2C")])).is_none());
        assert!(wanted_upgrade(&map(&[("connection", "upgrade")])).is_none());
    }
}
