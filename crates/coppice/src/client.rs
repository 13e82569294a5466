//! A small HTTP client for the commands that talk to a node's API: one request, one answer, a deadline; or a stream,
//! with a deadline for each piece.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use cluster::Door;
use edge::tls::Client;
use futures_util::stream;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::Request;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::TokioIo;
use node::view::{NodeView, View};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Where a node's API is, and the operator's token if the command changes something.
#[derive(Clone, Debug)]
pub struct Api {
    pub at: At,
    pub token: Option<String>,
}

/// How a node's API is reached.
#[derive(Clone, Debug)]
pub enum At {
    Plain(SocketAddr),
    Tls {
        /// Where it is: a name and a port, or an address and one.
        dial: String,
        /// Whom its certificate is for.
        name: String,
        tls: Client,
    },
}

/// `--api`: `ADDRESS:PORT`, or `https://NAME:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ApiUrl {
    Plain(SocketAddr),
    Tls { name: String, port: u16 },
}

impl FromStr for ApiUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no API; write ADDRESS:PORT, or https://NAME:PORT for a door with TLS");
        let bare = text.strip_suffix('/').unwrap_or(text);
        let Some(at) = bare.strip_prefix("https://") else {
            let at = bare.strip_prefix("http://").unwrap_or(bare);
            return at.parse().map(Self::Plain).map_err(|_| wrong());
        };
        let uri: hyper::Uri = bare.parse().map_err(|_| wrong())?;
        let name = uri.host().filter(|host| !host.is_empty() && uri.path() == "/" && !at.contains('@'));
        let name = name.ok_or_else(wrong)?.to_owned();
        let port = match at.strip_prefix(&name).and_then(|rest| rest.strip_prefix(':')) {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => Door::ApiTls.about().port,
        };
        Ok(Self::Tls { name, port })
    }
}

impl ApiUrl {
    /// `ca`: a file with the certificates that are believed, in place of the system's.
    pub fn at(&self, ca: Option<&Path>) -> Result<At, String> {
        match self {
            Self::Plain(addr) => Ok(At::Plain(*addr)),
            Self::Tls { name, port } => {
                let read = |file: &Path| {
                    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
                };
                let tls = Client::new(ca.map(read).transpose()?.as_deref())?;
                Ok(At::Tls { dial: format!("{name}:{port}"), name: name.clone(), tls })
            }
        }
    }
}

impl At {
    /// In the same way the API of another node; none if it has no such door.
    pub fn of(&self, node: &NodeView, view: &View) -> Option<Self> {
        match self {
            Self::Plain(_) => Some(Self::Plain(node.doors.at(Door::Api))),
            Self::Tls { name, tls, .. } => {
                let dial = node.doors.get(Door::ApiTls)?.to_string();
                // By its own certificate a node has its own name; those of files are the same on all.
                let name = if name.eq_ignore_ascii_case(&view.me) { &node.name } else { name };
                Some(Self::Tls { dial, name: name.clone(), tls: tls.clone() })
            }
        }
    }

    fn host(&self) -> String {
        match self {
            Self::Plain(addr) => addr.to_string(),
            Self::Tls { dial, name, .. } => {
                let port = dial.rsplit_once(':').map_or("", |(_, port)| port);
                format!("{name}:{port}")
            }
        }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        match self {
            Self::Plain(addr) => Ok(Box::new(TcpStream::connect(addr).await.map_err(|e| e.to_string())?)),
            Self::Tls { dial, name, tls } => Ok(Box::new(tls.connect(dial, name).await?)),
        }
    }
}

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => one == other,
            (Self::Tls { dial: one, .. }, Self::Tls { dial: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(addr) => addr.fmt(f),
            Self::Tls { dial, .. } => write!(f, "https://{dial}"),
        }
    }
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub struct Reply {
    pub status: u16,
    pub body: Bytes,
}

const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// And for each MiB that is sent.
const LARGE_BODY_TIME: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Between two pieces of a stream, and from its end to the answer: longer than a node asks a group that has no leader.
const PIECE_WITHIN: Duration = Duration::from_secs(60);

/// A good answer that comes in pieces.
pub struct Pieces {
    body: Incoming,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Pieces {
    /// The next one, if there is one.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let piece = timeout(PIECE_WITHIN, self.body.frame()).await;
            match piece.map_err(|_| format!("the node said nothing for {} s", PIECE_WITHIN.as_secs()))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(format!("the node's answer broke off: {error}")),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

impl Api {
    /// Asks for what may be large.
    pub async fn open(&self, path: &str) -> Result<Pieces, String> {
        self.pieces("GET", path, Bytes::new()).await
    }

    async fn pieces(&self, method: &str, path: &str, body: Bytes) -> Result<Pieces, String> {
        let (answer, connection) = timeout(PIECE_WITHIN, self.exchange(method, path, "", Full::new(body)))
            .await
            .unwrap_or_else(|_| Err(self.unreachable("no answer in time")))?;
        let status = answer.status().as_u16();
        if !answer.status().is_success() {
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            connection.abort();
            let body = body.map_err(|e| self.unreachable(&e.to_string()))?.to_bytes();
            return Err(Reply { status, body }.json().err().unwrap_or_else(|| format!("HTTP {status}")));
        }
        Ok(Pieces { body: answer.into_body(), connection })
    }

    /// Asks for what comes in pieces for as long as it lasts.
    pub async fn follow(&self, path: &str, body: String) -> Result<Pieces, String> {
        self.pieces("POST", path, body.into()).await
    }

    /// Sends what may be large: pieces until their sender is gone. Has no deadline: whoever sends sees whether they are
    /// taken.
    pub async fn send(&self, path: &str, pieces: mpsc::Receiver<Bytes>) -> Result<Reply, String> {
        let next = |mut pieces: mpsc::Receiver<Bytes>| async {
            let piece = pieces.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(Frame::data(piece)), pieces))
        };
        let body = StreamBody::new(Box::pin(stream::unfold(pieces, next)));
        let (answer, connection) = self.exchange("POST", path, "", body).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        connection.abort();
        Ok(Reply { status, body: body.map_err(|e| self.unreachable(&e.to_string()))?.to_bytes() })
    }

    fn unreachable(&self, why: &str) -> String {
        format!(
            "cannot reach the node at {}: {why}\n  is it running? start one with `coppice up`, or name another with --api HOST:PORT",
            self.at
        )
    }

    async fn exchange<B>(
        &self,
        method: &str,
        path: &str,
        file: &str,
        body: B,
    ) -> Result<(hyper::Response<Incoming>, JoinHandle<hyper::Result<()>>), String>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let stream = self.at.connect().await.map_err(|e| self.unreachable(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| self.unreachable(&e.to_string()))?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", self.at.host());
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !file.is_empty() {
            request = request.header("x-file", file);
        }
        let request = request.body(body).map_err(|e| format!("the request cannot be sent: {e}"))?;
        let answer = sender.send_request(request).await.map_err(|e| self.unreachable(&e.to_string()))?;
        Ok((answer, connection))
    }

    pub async fn get(&self, path: &str) -> Result<Reply, String> {
        self.request("GET", path, "", Bytes::new()).await
    }

    pub async fn post(&self, path: &str, file: &str, body: impl Into<Bytes>) -> Result<Reply, String> {
        self.request("POST", path, file, body.into()).await
    }

    pub async fn put(&self, path: &str, body: impl Into<Bytes>) -> Result<Reply, String> {
        self.request("PUT", path, "", body.into()).await
    }

    pub async fn delete(&self, path: &str) -> Result<Reply, String> {
        self.request("DELETE", path, "", Bytes::new()).await
    }

    pub async fn request(&self, method: &str, path: &str, file: &str, body: Bytes) -> Result<Reply, String> {
        let megabytes = u32::try_from(body.len() >> 20).unwrap_or(u32::MAX);
        let exchange = async {
            let (answer, connection) = self.exchange(method, path, file, Full::new(body)).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            connection.abort();
            Ok(Reply { status, body: body.map_err(|e| self.unreachable(&e.to_string()))?.to_bytes() })
        };
        let within = ANSWER_WITHIN + LARGE_BODY_TIME * megabytes;
        let late = |_| Err(self.unreachable(&format!("no answer within {within:?}")));
        timeout(within, exchange).await.unwrap_or_else(late)
    }
}

impl Reply {
    /// The JSON of a good answer, or the error the node gave, as one sentence.
    pub fn json(&self) -> Result<serde_json::Value, String> {
        self.good()?;
        serde_json::from_slice(&self.body).map_err(|e| format!("the node's answer is not JSON: {e}"))
    }

    /// The bytes of a good answer.
    pub fn bytes(&self) -> Result<Bytes, String> {
        self.good()?;
        Ok(self.body.clone())
    }

    pub fn text(&self) -> Result<String, String> {
        self.good()?;
        Ok(String::from_utf8_lossy(&self.body).into_owned())
    }

    fn good(&self) -> Result<(), String> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let error = serde_json::from_slice::<serde_json::Value>(&self.body)
            .ok()
            .and_then(|v| v.get("error").and_then(|e| e.as_str()).map(str::to_owned));
        Err(error.unwrap_or_else(|| format!("HTTP {}: {}", self.status, String::from_utf8_lossy(&self.body).trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_an_address_or_a_name_with_tls() {
        let tls = |name: &str, port| Ok(ApiUrl::Tls { name: name.to_owned(), port });
        for (text, expect) in [
            ("127.0.0.1:7070", Ok(ApiUrl::Plain("127.0.0.1:7070".parse().unwrap()))),
            ("http://127.0.0.1:7070/", Ok(ApiUrl::Plain("127.0.0.1:7070".parse().unwrap()))),
            ("https://n1", tls("n1", 7443)),
            ("https://api.example.org:9000/", tls("api.example.org", 9000)),
            ("https://[::1]:9000", tls("[::1]", 9000)),
        ] {
            assert_eq!(text.parse(), expect, "{text}");
        }
        for wrong in [
            "localhost:7070",
            "https://",
            "https://a:b",
            "https://a/v1",
            "https://me@a",
            "ftp://a:1",
            "https://a:70700",
        ] {
            let why = wrong.parse::<ApiUrl>().unwrap_err();
            assert!(why.contains("https://NAME:PORT"), "{wrong}: {why}");
        }
    }
}
