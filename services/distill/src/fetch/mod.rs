//! The one client for URLs that strangers name. A URL of the world leads to public addresses only: each address that its name has is
//! checked (`addr.rs`), the connection goes to a checked address and not to the name again, and each redirect is checked anew. The
//! cluster's own addresses are refused whatever they are. Only origins that the operator declared may be private, by their names.
//!
//! Nothing is unpacked here: packed answers are asked not to come, and refused. Bytes, time and redirects are bounded.

mod addr;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub use addr::is_public;
pub use url::{Source, Url};

use crate::limits::*;

/// Why nothing was fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchError {
    BadUrl(String),
    /// It leads where it may not.
    Refused(String),
    /// No such name, no connection, or what came was no answer.
    Unreachable(String),
    TooLate,
    TooLarge,
    /// The origin's own word.
    Status(StatusCode),
    /// The request came from here.
    Loop,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl(why) => write!(f, "the source cannot be fetched: {why}"),
            Self::Refused(why) => write!(f, "the source is not fetched: {why}"),
            Self::Unreachable(why) => write!(f, "the source cannot be reached: {why}"),
            Self::TooLate => f.write_str("the source did not answer in time"),
            Self::TooLarge => write!(f, "the source has more than {FETCH_BYTES_MAX} bytes"),
            Self::Status(status) => write!(f, "the source answered {status}"),
            Self::Loop => f.write_str("this request went round in a circle"),
        }
    }
}

impl std::error::Error for FetchError {}

/// A file, whole.
#[derive(Clone, Debug)]
pub struct Whole {
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
/// Addresses of a name; the system's in earnest.
pub type Resolve = Arc<dyn Fn(String, u16) -> Resolved + Send + Sync>;

pub struct Fetch {
    /// By name: where it is, in the order in which it is tried.
    origins: BTreeMap<String, Vec<Url>>,
    /// Addresses of the cluster.
    own: BTreeSet<IpAddr>,
    /// How requests from here are known again.
    name: String,
    tls: TlsConnector,
    room: Semaphore,
    resolve: Resolve,
}

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Fetch {
    pub fn new(origins: BTreeMap<String, Vec<Url>>, own: BTreeSet<IpAddr>, name: &str) -> Self {
        let system: Resolve = Arc::new(|host, port| {
            Box::pin(async move { tokio::net::lookup_host((host.as_str(), port)).await.map(Iterator::collect) })
        });
        Self {
            origins,
            own,
            name: name.to_owned(),
            tls: system_tls(),
            room: Semaphore::new(FETCHES_AT_ONCE),
            resolve: system,
        }
    }

    /// With addresses of names, and whom it trusts, as a test says.
    #[cfg(test)]
    pub fn for_tests(
        origins: BTreeMap<String, Vec<Url>>,
        tls: ClientConfig,
        at: impl Fn(&str) -> Vec<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        let resolve: Resolve = Arc::new(move |host, _| {
            let found = at(&host);
            Box::pin(async move { Ok(found) })
        });
        let tls = TlsConnector::from(Arc::new(tls));
        Self { tls, resolve, ..Self::new(origins, BTreeSet::new(), "distill") }
    }

    pub fn origin(&self, name: &str) -> Option<&Url> {
        self.origins.get(name).and_then(|at| at.first())
    }

    /// A source with all that it depends on: other services may have other origins under the same name.
    pub fn name_of(&self, source: &Source) -> String {
        match source {
            Source::Origin { name, path } => format!("{:?} {path}", self.origins.get(name)),
            Source::Outside(url) | Source::Shown(url) => format!("{url:?}"),
        }
    }

    /// Whether a request with these headers was sent from here.
    pub fn is_loop(&self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(header::VIA).into_iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).any(|hop| hop.split_whitespace().nth(1) == Some(self.name.as_str()))
    }

    /// A file by GET, for a request with these headers: origins that are declared see its cookies and its authorization, others
    /// nothing of them.
    ///
    /// # Errors
    /// It was not had, whole, with 200.
    pub async fn whole(&self, source: &Source, asked: &HeaderMap) -> Result<Whole, FetchError> {
        if self.is_loop(asked) {
            return Err(FetchError::Loop);
        }
        let fetched = async {
            let _place = self.room.acquire().await.map_err(|_| FetchError::TooLate)?;
            self.followed(source, asked).await
        };
        timeout(FETCH_TIME_MAX, fetched).await.unwrap_or(Err(FetchError::TooLate))
    }

    async fn followed(&self, source: &Source, asked: &HeaderMap) -> Result<Whole, FetchError> {
        let request = |url: &Url, is_shown: bool| {
            let mut headers = HeaderMap::new();
            // A site may show a picture to some only.
            for name in [header::COOKIE, header::AUTHORIZATION].into_iter().filter(|_| is_shown) {
                if let Some(shown) = asked.get(&name) {
                    headers.insert(name, shown.clone());
                }
            }
            headers.insert(header::ACCEPT, HeaderValue::from_static("image/*,*/*;q=0.5"));
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.insert(header::USER_AGENT, HeaderValue::from_static("coppice-distill"));
            self.via(asked, &mut headers);
            assembled(Method::GET, url, headers, Empty::<Bytes>::new())
        };
        let (mut url, mut answer) = match source {
            Source::Outside(url) => (url.clone(), self.outside(url, request(url, false)?).await?),
            Source::Shown(url) => (url.clone(), self.outside(url, request(url, true)?).await?),
            Source::Origin { name, path } => {
                let mut last = FetchError::Refused(format!("there is no origin {name:?}"));
                let mut found = None;
                for base in self.origins.get(name).into_iter().flatten() {
                    let url = below(base, path);
                    match self.declared(&url, request(&url, true)?).await {
                        // Another address may do better.
                        Ok(answer) if is_gateway_error(answer.status()) => last = FetchError::Status(answer.status()),
                        Ok(answer) => {
                            found = Some((url, answer));
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                found.ok_or(last)?
            }
        };
        let mut redirects = 0;
        while answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION) {
            redirects += 1;
            if redirects > REDIRECTS_MAX {
                return Err(FetchError::Refused(format!("more than {REDIRECTS_MAX} redirects")));
            }
            let to = answer.headers()[header::LOCATION]
                .to_str()
                .map_err(|_| FetchError::BadUrl("its redirect is no text".into()))?;
            let to = url.follow(to)?;
            // Within a declared origin it stays one; whatever leads elsewhere is of the world.
            let is_own = matches!(source, Source::Origin { name, .. } if self.origins.get(name).is_some_and(|at| {
                at.iter().any(|base| (base.is_tls, &base.host, base.port) == (to.is_tls, &to.host, to.port) && is_below(base, &to.path))
            }));
            answer = if is_own {
                self.declared(&to, request(&to, true)?).await?
            } else {
                self.outside(&to, request(&to, false)?).await?
            };
            url = to;
        }
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let (head, body) = answer.into_parts();
        if is_packed(&head.headers) {
            return Err(FetchError::Refused("its answer is packed, which it was asked not to be".into()));
        }
        if body.size_hint().lower() > FETCH_BYTES_MAX as u64 {
            return Err(FetchError::TooLarge);
        }
        let collected = Limited::new(body, FETCH_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                FetchError::TooLarge
            } else {
                FetchError::Unreachable(format!("its answer broke off: {error}"))
            }
        })?;
        Ok(Whole { headers: head.headers, bytes: collected.to_bytes() })
    }

    /// Passes a request on to a declared origin; its answer is the origin's, whatever it is. Tried at the next address only if
    /// nothing can have come of it at the one before.
    ///
    /// # Errors
    /// It could not be asked.
    pub async fn pass(
        &self,
        name: &str,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, FetchError> {
        if self.is_loop(headers) {
            return Err(FetchError::Loop);
        }
        let is_safe = method.is_safe();
        let mut last = FetchError::Refused(format!("there is no origin {name:?}"));
        for base in self.origins.get(name).into_iter().flatten() {
            let url = below(base, path);
            let request = assembled(method.clone(), &url, self.passed_on(headers), Full::new(body.clone()))?;
            let stream = match self.open(&url, true).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match exchange(stream, request).await {
                Ok(answer) if is_safe && is_gateway_error(answer.status()) => {
                    last = FetchError::Status(answer.status())
                }
                Ok(answer) => return Ok(answer),
                Err(error) if is_safe => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Passes a request on to whom its reader names, by the proxy; its answer is his, whatever it is. A declared origin is asked as one,
    /// wherever it is.
    ///
    /// # Errors
    /// It could not be asked, or may not be.
    pub async fn pass_outside(
        &self,
        url: &Url,
        method: Method,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, FetchError> {
        if self.is_loop(headers) {
            return Err(FetchError::Loop);
        }
        let request = assembled(method, url, self.passed_on(headers), Full::new(body))?;
        let is_declared = self.origin_of(url).is_some();
        if !is_declared && !PORTS.contains(&url.port) {
            return Err(FetchError::Refused(format!("port {} is not one of the web's", url.port)));
        }
        exchange(self.open(url, is_declared).await?, request).await
    }

    /// A connection to where a reader's browser speaks TLS itself: to port 443 of a public address, or to a declared origin.
    ///
    /// # Errors
    /// It cannot be had, or may not be.
    pub async fn tunnel(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, FetchError> {
        let is_declared = self.origins.values().flatten().any(|at| at.is_tls && (&*at.host, at.port) == (host, port));
        if !is_declared && port != TUNNEL_PORT {
            return Err(FetchError::Refused(format!("tunnels lead to port {TUNNEL_PORT}, and not to {port}")));
        }
        self.open(&Url { is_tls: false, host: host.to_owned(), port, path: "/".into() }, is_declared).await
    }

    /// What a reader asks for by the proxy: of a declared origin, if it is one's.
    pub fn source_of(&self, url: Url) -> Source {
        match self.origin_of(&url) {
            Some((name, base)) => {
                let path = url.path[base.path.trim_end_matches('/').len()..].to_owned();
                Source::Origin { name: name.clone(), path }
            }
            None => Source::Shown(url),
        }
    }

    fn origin_of(&self, url: &Url) -> Option<(&String, &Url)> {
        let is_it = |base: &&Url| {
            (base.is_tls, &base.host, base.port) == (url.is_tls, &url.host, url.port) && is_below(base, &url.path)
        };
        self.origins.iter().find_map(|(name, at)| Some((name, at.iter().find(is_it)?)))
    }

    fn passed_on(&self, headers: &HeaderMap) -> HeaderMap {
        let mut sent = without_hops(headers);
        sent.remove(header::HOST);
        // What the edge said to this clone is for it alone.
        let own: Vec<_> = sent.keys().filter(|name| name.as_str().starts_with("coppice-")).cloned().collect();
        for name in own {
            sent.remove(name);
        }
        sent.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.via(headers, &mut sent);
        sent
    }

    fn via(&self, asked: &HeaderMap, to: &mut HeaderMap) {
        to.remove(header::VIA);
        for hop in asked.get_all(header::VIA) {
            to.append(header::VIA, hop.clone());
        }
        if let Ok(own) = HeaderValue::try_from(format!("1.1 {}", self.name)) {
            to.append(header::VIA, own);
        }
    }

    async fn outside(&self, url: &Url, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, FetchError> {
        if !PORTS.contains(&url.port) {
            return Err(FetchError::Refused(format!("port {} is not one of the web's", url.port)));
        }
        exchange(self.open(url, false).await?, request).await
    }

    async fn declared(&self, url: &Url, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, FetchError> {
        exchange(self.open(url, true).await?, request).await
    }

    /// A connection to where a URL leads. The name is looked up once: what was checked is what is connected to.
    async fn open(&self, url: &Url, is_declared: bool) -> Result<Box<dyn Stream>, FetchError> {
        let unreachable = |why: String| FetchError::Unreachable(format!("{}: {why}", url.authority()));
        let found = match url.host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, url.port)],
            Err(_) => match timeout(CONNECT_TIME_MAX, (self.resolve)(url.host.clone(), url.port)).await {
                Ok(found) => found.map_err(|e| unreachable(e.to_string()))?,
                Err(_) => return Err(FetchError::TooLate),
            },
        };
        if !is_declared {
            let refused = found.iter().find(|at| !is_public(at.ip()) || self.own.contains(&at.ip().to_canonical()));
            if let Some(at) = refused {
                return Err(FetchError::Refused(format!("{} is at {}, which is not public", url.host, at.ip())));
            }
        }
        let mut last = unreachable("its name has no address".into());
        for at in found.iter().take(ADDRESSES_MAX) {
            match timeout(CONNECT_TIME_MAX, TcpStream::connect(at)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    if !url.is_tls {
                        return Ok(Box::new(stream));
                    }
                    let name = ServerName::try_from(url.host.clone()).map_err(|e| unreachable(e.to_string()))?;
                    return match timeout(CONNECT_TIME_MAX, self.tls.connect(name, stream)).await {
                        Ok(Ok(stream)) => Ok(Box::new(stream)),
                        Ok(Err(error)) => Err(unreachable(error.to_string())),
                        Err(_) => Err(FetchError::TooLate),
                    };
                }
                Ok(Err(error)) => last = unreachable(error.to_string()),
                Err(_) => last = FetchError::TooLate,
            }
        }
        Err(last)
    }
}

/// Answers with which a proxy says that what is behind it could not be had.
fn is_gateway_error(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn below(base: &Url, path: &str) -> Url {
    Url { path: format!("{}{path}", base.path.trim_end_matches('/')), ..base.clone() }
}

fn is_below(base: &Url, path: &str) -> bool {
    let base = base.path.trim_end_matches('/');
    path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'))
}

pub fn is_packed(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|packed| !packed.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Headers without those that are of one connection.
pub fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    const HOPS: [&str; 8] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_hop = HOPS.contains(&name.as_str()) || named.iter().any(|hop| hop == name.as_str());
        if !is_hop && name != header::CONTENT_LENGTH {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

fn assembled<B>(method: Method, url: &Url, mut headers: HeaderMap, body: B) -> Result<Request<B>, FetchError> {
    let host = HeaderValue::try_from(url.authority()).map_err(|_| FetchError::BadUrl("its host is no text".into()))?;
    headers.insert(header::HOST, host);
    let mut request =
        Request::builder().method(method).uri(&url.path).body(body).map_err(|e| FetchError::BadUrl(e.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn exchange<B>(stream: Box<dyn Stream>, request: Request<B>) -> Result<Response<Incoming>, FetchError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let unreachable = |e: hyper::Error| FetchError::Unreachable(format!("what it says is no answer: {e}"));
    let mut http = hyper::client::conn::http1::Builder::new();
    http.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    // It ends with the answer's body, or when nobody reads that any more.
    tokio::spawn(connection);
    match timeout(ANSWER_TIME_MAX, sender.send_request(request)).await {
        Ok(answer) => answer.map_err(unreachable),
        Err(_) => Err(FetchError::TooLate),
    }
}

/// Trusts whom the system trusts. Without any roots nothing by TLS is fetched, and says so.
fn system_tls() -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        tracing::warn!("the system has no root certificates: nothing is fetched by https");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("ring has them").with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each connection with the next of these, and remembers what it was asked.
    async fn origin(answers: Vec<String>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                heard.lock().unwrap().push(String::from_utf8(head).unwrap());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (at, asked)
    }

    fn of(at: SocketAddr, names: &'static [(&'static str, &'static str)]) -> Fetch {
        let base = Url::parse(&format!("http://{at}/base/")).unwrap();
        let mut fetch =
            Fetch::new([("photos".to_owned(), vec![base])].into(), ["93.184.216.1".parse().unwrap()].into(), "distill");
        fetch.resolve = Arc::new(move |host, port| {
            let found: Vec<SocketAddr> = names
                .iter()
                .filter(|(name, _)| *name == host)
                .map(|(_, ip)| SocketAddr::new(ip.parse().unwrap(), port))
                .collect();
            Box::pin(async move { Ok(found) })
        });
        fetch
    }

    async fn ended(fetch: &Fetch, source: &str) -> Result<Whole, FetchError> {
        fetch.whole(&Source::parse(source)?, &HeaderMap::new()).await
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

    #[tokio::test]
    async fn what_leads_inside_is_refused_before_any_connection() {
        let names = &[
            ("inside.org", "10.0.0.7"),
            ("mixed.org", "8.8.8.8"),
            ("mixed.org", "127.0.0.1"),
            ("own.org", "93.184.216.1"),
            ("mapped.org", "::ffff:93.184.216.1"),
            ("nat.org", "64:ff9b::7f00:1"),
        ];
        let (at, asked) = origin(vec![OK.into()]).await;
        let fetch = of(at, names);
        let inside = format!("http://{at}/");
        for url in [
            inside.as_str(),
            "http://inside.org/",
            "http://mixed.org/",
            "http://own.org/",
            "http://mapped.org/",
            "http://nat.org/",
            "http://[::1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://8.8.8.8:22/",
            "https://8.8.8.8:8443/",
            "origin://other/x",
        ] {
            assert!(matches!(ended(&fetch, url).await, Err(FetchError::Refused(_))), "{url}");
        }
        assert!(asked.lock().unwrap().is_empty());
        assert_eq!(&ended(&fetch, "origin://photos/a?b").await.unwrap().bytes[..], b"hi");
        let asked = asked.lock().unwrap()[0].to_ascii_lowercase();
        assert!(
            asked.starts_with("get /base/a?b http/1.1\r\n") && asked.contains(&format!("host: {at}\r\n")),
            "{asked}"
        );
        assert!(asked.contains("via: 1.1 distill\r\n") && asked.contains("accept-encoding: identity\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn each_redirect_is_checked_anew_and_there_are_only_so_many() {
        let to = |location: &str| {
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        };
        let (at, _) = origin(vec![to("/base/next"), OK.into()]).await;
        assert_eq!(&ended(&of(at, &[]), "origin://photos/a").await.unwrap().bytes[..], b"hi");
        // Out of what was declared, though on the same host.
        for location in ["/other", "http://169.254.169.254/", "http://[::1]/", "http://inside.org/"] {
            let (at, asked) = origin(vec![to(location), OK.into()]).await;
            let refused = ended(&of(at, &[("inside.org", "192.168.0.1")]), "origin://photos/a").await;
            assert!(matches!(refused, Err(FetchError::Refused(_))), "{location}: {refused:?}");
            assert_eq!(asked.lock().unwrap().len(), 1);
        }
        let (at, asked) = origin(vec![to("/base/round"); 10]).await;
        assert!(matches!(ended(&of(at, &[]), "origin://photos/a").await, Err(FetchError::Refused(_))));
        assert_eq!(asked.lock().unwrap().len(), 1 + usize::from(REDIRECTS_MAX));
    }

    #[tokio::test]
    async fn what_is_packed_broken_endless_or_our_own_is_not_taken() {
        let answer = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\nConnection: close\r\n\r\nhi");
        let cases = [
            (answer("Content-Encoding: gzip\r\nContent-Length: 2"), "packed"),
            (answer("Content-Length: 5"), "broke off"),
            (answer("Content-Length: 99999999999"), "more than"),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(), "404"),
            ("nonsense\r\n\r\n".to_owned(), "no answer"),
        ];
        for (answer, why) in cases {
            let (at, _) = origin(vec![answer]).await;
            let error = ended(&of(at, &[]), "origin://photos/a").await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let (at, asked) = origin(vec![OK.into()]).await;
        let came = HeaderMap::from_iter([(header::VIA, HeaderValue::from_static("1.1 other, 1.1 distill"))]);
        let source = Source::parse("origin://photos/a").unwrap();
        assert_eq!(of(at, &[]).whole(&source, &came).await.unwrap_err(), FetchError::Loop);
        assert!(asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_origin_is_asked_at_its_next_address_when_one_is_gone() {
        let (at, asked) = origin(vec![OK.into(), OK.into()]).await;
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let bases = [gone, at].map(|at| Url::parse(&format!("http://{at}/")).unwrap()).to_vec();
        let fetch = Fetch::new([("photos".to_owned(), bases)].into(), BTreeSet::new(), "distill");
        assert_eq!(&ended(&fetch, "origin://photos/a").await.unwrap().bytes[..], b"hi");
        let headers = HeaderMap::from_iter([
            (header::CONNECTION, HeaderValue::from_static("x-hop")),
            ("x-hop".parse().unwrap(), HeaderValue::from_static("1")),
            ("coppice-ticket".parse().unwrap(), HeaderValue::from_static("1")),
        ]);
        let answer = fetch.pass("photos", Method::POST, "/form", &headers, Bytes::from("x")).await.unwrap();
        assert_eq!(answer.status(), 200);
        let asked = asked.lock().unwrap();
        assert!(
            asked[1].starts_with("POST /form") && !asked[1].contains("x-hop") && !asked[1].contains("coppice-"),
            "{}",
            asked[1]
        );
    }
}
