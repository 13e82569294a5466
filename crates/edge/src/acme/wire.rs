//! One request to a directory and its answer: HTTP/1.1 over TLS, a connection each, bounded in time and size. Whoever answers is believed
//! if his certificate is signed by the system's roots, or by those that are declared for him.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;

use super::{ANSWER_BYTES_MAX, ANSWER_WITHIN, Failed, SAID_CHARS_MAX};
use crate::tls::Client;

pub struct Wire(Client);

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Wire {
    /// # Errors
    /// What is declared is no certificate, or the system has no roots.
    pub fn new(ca: Option<&str>) -> Result<Self, Failed> {
        Client::new(ca).map(Self).map_err(Failed::new)
    }

    pub async fn get(&self, url: &str) -> Result<Reply, Failed> {
        self.ask(Method::GET, url, String::new()).await
    }

    pub async fn head(&self, url: &str) -> Result<Reply, Failed> {
        self.ask(Method::HEAD, url, String::new()).await
    }

    /// A signed one.
    pub async fn post(&self, url: &str, body: String) -> Result<Reply, Failed> {
        self.ask(Method::POST, url, body).await
    }

    async fn ask(&self, method: Method, url: &str, body: String) -> Result<Reply, Failed> {
        let asked = tokio::time::timeout(ANSWER_WITHIN, self.exchange(method, url, body)).await;
        asked.unwrap_or_else(|_| Err(Failed::new(format!("{} did not answer within {ANSWER_WITHIN:?}", host_of(url)))))
    }

    async fn exchange(&self, method: Method, url: &str, body: String) -> Result<Reply, Failed> {
        let uri: Uri = url.parse().map_err(|_| Failed::new(format!("{:?} is no URL", shortened(url))))?;
        let (Some("https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(Failed::new(format!("{:?} does not begin with https://", shortened(url))));
        };
        let (at, bare) = (host_of(url), host.trim_matches(['[', ']']));
        let failed = |e: &dyn std::fmt::Display| Failed::new(format!("cannot reach {at}: {e}"));
        let stream = self.0.connect((bare, uri.port_u16().unwrap_or(443)), bare).await.map_err(|e| failed(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
        let connection = Ended(tokio::spawn(connection));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, uri.authority().map_or(host, |at| at.as_str()));
        request = request.header(header::USER_AGENT, concat!("coppice/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/jose+json");
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(&e))?;
        let (head, body) = sender.send_request(request).await.map_err(|e| failed(&e))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| Failed::new(format!("{at} gave no whole answer: {e}")))?.to_bytes();
        drop(connection);
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

/// Ends with who waits for it.
struct Ended(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// When to come again: in seconds, or at a moment.
    pub fn after(&self) -> Option<Duration> {
        let said = self.header("retry-after")?.trim();
        let at = || httpdate::parse_http_date(said).ok()?.duration_since(SystemTime::now()).ok();
        said.parse().ok().map(Duration::from_secs).or_else(at)
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self, what: &str, url: &str) -> Result<T, Failed> {
        let nonsense = |e| Failed::new(format!("{} answers nonsense where {what} should be: {e}", host_of(url)));
        serde_json::from_slice(&self.body).map_err(nonsense)
    }

    /// What is wrong, as the directory says it (RFC 7807), or as its status does.
    pub fn problem(&self, doing: &str, url: &str) -> Failed {
        let said = serde_json::from_slice::<Problem>(&self.body).ok().filter(|said| !said.is_empty());
        let at = host_of(url);
        let why = match said {
            Some(said) => format!("{at} refused {doing}: {}", said.text()),
            None => format!("{at} refused {doing} with status {}", self.status.as_u16()),
        };
        Failed { why, after: self.after() }
    }
}

/// What a directory says of an error.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: String,
    detail: String,
    subproblems: Vec<Problem>,
}

impl Problem {
    fn is_empty(&self) -> bool {
        self.kind.is_empty() && self.detail.is_empty()
    }

    pub fn is(&self, kind: &str) -> bool {
        self.kind.strip_prefix("urn:ietf:params:acme:error:") == Some(kind)
    }

    pub fn text(&self) -> String {
        let kind = self.kind.rsplit(':').next().unwrap_or_default();
        let own = [shortened(&self.detail), shortened(self.subproblems.first().map_or("", |first| &first.detail))];
        let own: Vec<&str> = own.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        format!("{} ({})", own.join("; "), shortened(kind))
    }
}

/// Text of somebody else's, in one line.
fn shortened(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS_MAX).collect()
}

/// Of a URL, for people.
pub fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    shortened(rest.split(['/', '?', '#']).next().unwrap_or_default())
}
