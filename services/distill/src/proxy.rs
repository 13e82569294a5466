//! A person's proxy, as the paper's users had it: browsers are told of it by a PAC file, and sites by http come distilled, as one's own
//! site does. HTTPS passes by tunnels (CONNECT), of which nothing is read. It is for its own users: those of declared addresses, this
//! machine alone unless the operator says otherwise, who show a password where there are some.
//!
//! It comes at a TCP door, so that the node says who each client is; over the clone's own port nobody gets anything of it. Where it
//! leads is `fetch/`'s to say: public addresses, and declared origins.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ring::digest::{SHA256, digest};
use sdk::axum::body::Body;
use sdk::axum::http::request::Parts;
use sdk::axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use sdk::axum::response::{IntoResponse, Response};
use sdk::{Conn, StartError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::fetch::{Stream, Url};
use crate::front::{self, Front, failed, plain};
use crate::limits::*;

/// Whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// `CLIENTS`: this machine, if nothing is said.
    networks: Vec<Network>,
    /// `USERS`: hashes of passwords by name, so that how long a comparison takes says nothing. Empty: addresses are enough.
    users: BTreeMap<String, [u8; 32]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Network {
    at: IpAddr,
    bits: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (at, bits) = text.split_once('/').map_or((text, None), |(at, bits)| (at, Some(bits)));
        let at: IpAddr = at.parse().ok()?;
        let most = if at.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        (bits <= most).then_some(Self { at, bits })
    }

    fn has(&self, ip: IpAddr) -> bool {
        let is_same =
            |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - u32::from(self.bits)).unwrap_or(0) == 0;
        match (self.at, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => is_same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => is_same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl Allowed {
    /// # Errors
    /// What is no network, or no user with a password.
    pub fn of<'a>(
        clients: impl Iterator<Item = &'a str>,
        users: impl Iterator<Item = &'a str>,
    ) -> Result<Self, StartError> {
        let network = |text: &str| {
            Network::parse(text)
                .ok_or_else(|| StartError(format!("CLIENTS has {text:?}; 10.1.0.0/16 is one, and 192.168.1.7")))
        };
        let mut networks = clients.map(network).collect::<Result<Vec<_>, _>>()?;
        if networks.is_empty() {
            networks = vec![
                Network { at: Ipv4Addr::LOCALHOST.into(), bits: 8 },
                Network { at: Ipv6Addr::LOCALHOST.into(), bits: 128 },
            ];
        }
        let user = |text: &str| {
            let (name, password) =
                text.split_once(':').filter(|(name, password)| !name.is_empty() && !password.is_empty())?;
            Some((name.to_owned(), hash(password.as_bytes())))
        };
        // Whoever reads the log need not know it.
        let wrong = || StartError("USERS has one that is no NAME:PASSWORD, several with commas".to_owned());
        let users = users.map(|text| user(text).ok_or_else(wrong)).collect::<Result<_, _>>()?;
        Ok(Self { networks, users })
    }

    fn has(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.networks.iter().any(|network| network.has(ip))
    }

    pub fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Follows from all names and passwords: who changes one ends all passes that were sealed with it.
    pub fn secret(&self) -> [u8; 32] {
        let users =
            self.users.iter().flat_map(|(name, hash)| [format!("{} {name}", name.len()).into_bytes(), hash.to_vec()]);
        hash(&std::iter::once(b"distill's passes".to_vec()).chain(users).collect::<Vec<_>>().concat())
    }

    /// Whose name and password these are, as preferences know him.
    pub fn reader_of(&self, name: &str, password: &str) -> Option<String> {
        (self.users.get(name) == Some(&hash(password.as_bytes()))).then(|| reader(&format!("user {name}")))
    }

    /// Who asks, as preferences know him: by his name, or where there are none by his address. None: he has to say who he is.
    fn reader(&self, ip: IpAddr, headers: &HeaderMap) -> Option<String> {
        if self.users.is_empty() {
            return Some(reader(&format!("address {}", ip.to_canonical())));
        }
        let said = headers.get(header::PROXY_AUTHORIZATION)?.to_str().ok()?;
        let (how, coded) = said.split_once(' ')?;
        let said = String::from_utf8(STANDARD.decode(coded.trim()).ok()?).ok()?;
        let (name, password) = said.split_once(':').filter(|_| how.eq_ignore_ascii_case("basic"))?;
        self.reader_of(name, password)
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// As readers are called that a cookie names.
fn reader(who: &str) -> String {
    hash(format!("proxy {who}").as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub struct Proxy {
    front: Arc<Front>,
    allowed: Allowed,
    room: Arc<Semaphore>,
}

impl Proxy {
    pub fn new(front: Arc<Front>, allowed: Allowed) -> Self {
        Self { front, allowed, room: Arc::new(Semaphore::new(PROXIED_MAX)) }
    }

    /// Serves a client's connection to its end.
    pub async fn serve(self: Arc<Self>, conn: Conn) {
        // Beyond it a browser tries again.
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else { return };
        let place = Arc::new(place);
        let (ip, drain) = (conn.peer.ip(), conn.drain);
        let own = Arc::clone(&place);
        let answer = service_fn(move |request: Request<Incoming>| {
            let (proxy, place) = (Arc::clone(&self), Arc::clone(&own));
            async move { Ok::<_, Infallible>(proxy.answer(ip, request, place).await) }
        });
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new()).header_read_timeout(PROXY_HEAD_TIME);
        let connection = http.serve_connection(TokioIo::new(conn.stream), answer).with_upgrades();
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = drain.told() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of the proxy ended");
        }
    }

    async fn answer(&self, ip: IpAddr, request: Request<Incoming>, place: Arc<OwnedSemaphorePermit>) -> Response {
        if !self.allowed.has(ip) {
            let why = "this proxy is for its own users: the operator names their addresses in CLIENTS";
            return plain(StatusCode::FORBIDDEN, why);
        }
        let is_asked_itself = request.method() != Method::CONNECT && request.uri().authority().is_none();
        if is_asked_itself {
            return itself(request.uri(), request.headers());
        }
        let Some(reader) = self.allowed.reader(ip, request.headers()) else {
            let ask = [(header::PROXY_AUTHENTICATE, "Basic realm=\"distill\", charset=\"UTF-8\"")];
            return (StatusCode::PROXY_AUTHENTICATION_REQUIRED, ask, "who are you?\n").into_response();
        };
        if request.method() == Method::CONNECT {
            return self.tunnel(request, place).await;
        }
        let (mut head, body) = request.into_parts();
        let url = match url_of(&head) {
            Ok(url) => url,
            Err(why) => return plain(StatusCode::BAD_REQUEST, &why),
        };
        // What pages are made of looks at paths.
        let path = url.path.parse::<Uri>();
        let Ok(path) = path else { return plain(StatusCode::BAD_REQUEST, "its path is none") };
        head.uri = path;
        head.headers.remove(header::PROXY_AUTHORIZATION);
        front::proxied(&self.front, url, reader, None, head, Body::new(body)).await
    }

    async fn tunnel(&self, request: Request<Incoming>, place: Arc<OwnedSemaphorePermit>) -> Response {
        let to = request.uri().authority().and_then(|at| Some((at.host().to_owned(), at.port_u16()?)));
        let Some((host, port)) = to else {
            return plain(StatusCode::BAD_REQUEST, "CONNECT names a host and a port: example.org:443");
        };
        if self.front.fetch.is_loop(request.headers()) {
            return plain(StatusCode::LOOP_DETECTED, "this request went round in a circle");
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        let there = match self.front.fetch.tunnel(&host, port).await {
            Ok(there) => there,
            Err(error) => return failed(&error),
        };
        tokio::spawn(async move {
            match hyper::upgrade::on(request).await {
                Ok(here) => joined(TokioIo::new(here), there).await,
                Err(error) => tracing::debug!(%error, "a tunnel was not opened"),
            }
            drop(place);
        });
        StatusCode::OK.into_response()
    }
}

/// Where a request in absolute form leads.
fn url_of(head: &Parts) -> Result<Url, String> {
    if head.uri.scheme_str() != Some("http") {
        return Err("sites by http are asked for so; https comes by CONNECT".into());
    }
    Url::parse(&head.uri.to_string()).map_err(|error| error.to_string())
}

/// What is asked of the proxy itself: how browsers use it.
fn itself(uri: &Uri, headers: &HeaderMap) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
    match uri.path() {
        "/proxy.pac" | "/wpad.dat" if !host.is_empty() && is_plain => {
            let kind =
                [(header::CONTENT_TYPE, "application/x-ns-proxy-autoconfig"), (header::CACHE_CONTROL, "max-age=60")];
            (kind, pac(host)).into_response()
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            &format!("this is a proxy: tell your browser of http://{host}/proxy.pac, or of {host} itself"),
        ),
    }
}

/// Sites by http come by the proxy, and without it when it does not answer; HTTPS, of which it could make nothing smaller, and what has
/// no name outside go straight.
fn pac(host: &str) -> String {
    format!(
        "function FindProxyForURL(url, host) {{\n  if (url.substring(0, 5) != \"http:\" || isPlainHostName(host) || \
         shExpMatch(host, \"127.*\") || shExpMatch(host, \"*.localhost\"))\n    return \"DIRECT\";\n  return \"PROXY {host}; DIRECT\";\n}}\n"
    )
}

/// Both ends get what the other says, until both have ended, or nobody says anything for long.
async fn joined(here: impl AsyncRead + AsyncWrite, there: Box<dyn Stream>) {
    let (from_here, to_here) = tokio::io::split(here);
    let (from_there, to_there) = tokio::io::split(there);
    // One that is over is waited for no longer than the other says something.
    tokio::join!(moved(from_here, to_there), moved(from_there, to_here));
}

async fn moved(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(Ok(count @ 1..)) = timeout(PROXY_IDLE, from.read(&mut bytes)).await {
        match timeout(PROXY_IDLE, to.write_all(&bytes[..count])).await {
            Ok(Ok(())) => (),
            Ok(Err(_)) | Err(_) => return,
        }
    }
    let _ = timeout(PROXY_IDLE, to.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(clients: &str, users: &str) -> Result<Allowed, String> {
        let list = |text: &'static str| text.split(',').filter(|part| !part.is_empty());
        let (clients, users) = (clients.to_owned().leak(), users.to_owned().leak());
        Allowed::of(list(clients), list(users)).map_err(|error| error.0)
    }

    #[test]
    fn it_is_for_this_machine_alone_unless_others_are_named() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            ("", &["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], &["10.0.0.1", "128.0.0.1", "::2", "8.8.8.8"]),
            (
                "10.1.0.0/16,fd00::/8",
                &["10.1.255.255", "fd00::1", "::ffff:10.1.0.1"],
                &["10.2.0.0", "127.0.0.1", "fe00::"],
            ),
            ("192.168.1.7", &["192.168.1.7"], &["192.168.1.6"]),
            ("0.0.0.0/0", &["1.2.3.4"], &["::1"]),
        ];
        for (clients, are, are_not) in cases {
            let allowed = allowed(clients, "").unwrap();
            let has = |ip: &&str| allowed.has(ip.parse().unwrap());
            assert!(are.iter().all(has) && !are_not.iter().any(has), "{clients}: {allowed:?}");
        }
        for clients in ["example.org", "10.0.0.0/33", "10.0.0.0/-1", "::/129"] {
            assert!(allowed(clients, "").unwrap_err().contains(clients));
        }
        for users in ["ann", "ann:", ":secret"] {
            let why = allowed("", users).unwrap_err();
            assert!(why.contains("USERS") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn users_are_known_by_their_password_and_others_by_their_address() {
        let with = |said: &str| HeaderMap::from_iter([(header::PROXY_AUTHORIZATION, said.parse().unwrap())]);
        let basic = |said: &str| with(&format!("Basic {}", STANDARD.encode(said)));
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let all = allowed("", "").unwrap();
        assert_ne!(all.reader(one, &HeaderMap::new()).unwrap(), all.reader(other, &HeaderMap::new()).unwrap());
        let users = allowed("", "ann:sesame,bob:b:c").unwrap();
        let ann = users.reader(one, &basic("ann:sesame")).unwrap();
        assert_eq!(users.reader(other, &basic("ann:sesame")), Some(ann.clone()));
        assert_eq!(
            crate::preferences::reader(&HeaderMap::from_iter([(
                header::COOKIE,
                format!("{}={ann}", crate::preferences::COOKIE).parse().unwrap()
            )])),
            Some(ann)
        );
        assert!(users.reader(one, &basic("bob:b:c")).is_some());
        for said in [
            basic("ann:other"),
            basic("ann"),
            basic(":"),
            basic("eve:sesame"),
            with("Bearer x"),
            with("Basic !"),
            HeaderMap::new(),
        ] {
            assert_eq!(users.reader(one, &said), None, "{said:?}");
        }
    }

    #[test]
    fn it_tells_browsers_how_to_use_it_and_nobody_s_words() {
        let told = |path: &'static str, host: &str| {
            let answer = itself(&path.parse().unwrap(), &HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]));
            answer.status()
        };
        assert_eq!(told("/proxy.pac", "127.0.0.1:3128"), 200);
        assert_eq!(told("/proxy.pac", "x\"; alert(1)"), 404);
        assert_eq!(told("/", "127.0.0.1:3128"), 404);
        assert!(pac("[::1]:3128").contains("return \"PROXY [::1]:3128; DIRECT\";"));
    }
}
