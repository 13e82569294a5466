//! The way to the cluster: connections that stay open to the own node's API, and to another node if that one cannot be
//! reached. An operation has one deadline over all tries. What may be done twice (reads) is tried on the next node when no
//! answer comes. A write has an id where its class knows ids (`linear`), and is then asked again until somebody knows what
//! came of it; another one that may have reached a node is not, and ends as unknown.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base::{Because, Refused, Span, Unknown};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::limits::*;
use crate::{Given, StartError};

/// The nodes of a cluster as a program reaches them. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    targets: Vec<Target>,
    room: Semaphore,
}

struct Target {
    addr: SocketAddr,
    host: HeaderValue,
    /// Not longer than [`IDLE_MAX`]; newest last.
    idle: Mutex<Vec<(SendRequest<Parts>, Instant)>>,
    /// It did not answer: others come first until then.
    away_until: Mutex<Option<Instant>>,
}

/// One request of the API.
pub(crate) struct Call {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Parts,
    /// It changes nothing, or the same however often it is done.
    pub repeats: bool,
    /// It has an id: however often it is asked, it happens once.
    pub once: bool,
    /// What one node refuses for now another one may do.
    pub elsewhere: bool,
    /// Then nobody waits for it any more.
    pub until: Option<Instant>,
    /// All tries together may take so long.
    pub most: Duration,
}

/// The bytes of a request, in parts that are not joined. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Bytes>,
    len: u64,
}

impl Parts {
    pub fn of(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let len = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts, len }
    }

    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = self.parts.pop_front();
        self.len -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

/// What is left of a request's time, milliseconds.
pub(crate) const DEADLINE: HeaderName = HeaderName::from_static("coppice-deadline-ms");

/// What a write is called, so that it happens once.
const ONCE: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An operation that did not end well, before anybody says what for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    Refused(Refused),
    Unknown(Unknown),
}

/// Why one try came to nothing.
enum Miss {
    /// The request did not leave this program.
    NotSent(String),
    NoAnswer(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl Call {
    pub fn new(method: Method, path: String, token: &str) -> Self {
        let mut headers = HeaderMap::new();
        if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {token}")) {
            headers.insert(header::AUTHORIZATION, bearer);
        }
        let repeats = method == Method::GET;
        let (body, most) = (Parts::default(), OPERATION_TIME_MAX);
        Self { method, path, headers, body, repeats, once: false, elsewhere: false, until: None, most }
    }

    /// A write that happens once, however often and wherever it is asked.
    pub fn once(mut self) -> Self {
        let id = uuid::Uuid::now_v7().to_string();
        self.headers.insert(ONCE, HeaderValue::from_str(&id).expect("a UUID is plain text"));
        self.once = true;
        self
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self, Failed> {
        let wrong = |_| Failed::Refused(Refused::wrong(format!("{value:?} cannot stand in {name}")));
        self.headers.insert(name.clone(), HeaderValue::from_str(value).map_err(wrong)?);
        Ok(self)
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Parts::of([body.into()]);
        self
    }
}

impl Node {
    /// To the nodes at these addresses; the first one is used as long as it answers.
    pub fn at(apis: impl IntoIterator<Item = SocketAddr>) -> Result<Self, StartError> {
        let target = |addr: SocketAddr| Target {
            addr,
            host: HeaderValue::from_str(&addr.to_string()).expect("an address is plain text"),
            idle: Mutex::default(),
            away_until: Mutex::default(),
        };
        let targets: Vec<Target> = apis.into_iter().map(target).collect();
        if targets.is_empty() {
            return Err(StartError("COPPICE_NODE_API is not set: run this under Coppice, or name a node's API".into()));
        }
        Ok(Self(Arc::new(Inner { targets, room: Semaphore::new(UNDER_WAY_MAX) })))
    }

    pub fn of(given: &Given) -> Result<Self, StartError> {
        Self::at(given.apis.iter().copied())
    }

    /// The first of its nodes alone: what is asked of it is no other node's matter.
    pub(crate) fn own(&self) -> Self {
        let own = self.0.targets.first().map(|target| target.addr);
        Self::at(own).unwrap_or_else(|_| self.clone())
    }

    /// One operation: an answer of a node, whatever it says but overload and its own failures.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Failed> {
        let busy = |why: &str| Failed::Refused(Refused::busy(why, RETRY_AFTER));
        let Ok(_place) = self.0.room.try_acquire() else {
            return Err(busy("too many operations are under way in this program"));
        };
        let end = Instant::now() + call.most;
        let end = call.until.map_or(end, |until| until.min(end));
        if end <= Instant::now() {
            return Err(busy("the request's time is over"));
        }
        let (mut why, mut in_doubt) = (String::new(), false);
        loop {
            let order = self.order();
            for (at, target) in order.iter().enumerate() {
                let others = at + 1 < order.len();
                // Half of what is left, where another node may be asked after this one.
                let now = Instant::now();
                let until = if others && (call.repeats || call.once) { now + (end - now) / 2 } else { end };
                match target.exchange(call, until).await {
                    Ok(answer) => match judged(call, answer) {
                        Err(Failed::Unknown(unknown)) if call.once => (why, in_doubt) = (unknown.why, true),
                        Err(Failed::Refused(Refused { retry_after: Some(_), .. })) if call.elsewhere && others => (),
                        // That is of this try; an earlier one may have happened.
                        Err(Failed::Refused(refused)) if in_doubt => why = refused.why,
                        judged => return judged,
                    },
                    Err(Miss::NoAnswer(miss)) if !call.repeats && !call.once => {
                        target.is_away();
                        return Err(Failed::Unknown(Unknown { why: format!("{}: {miss}", target.addr) }));
                    }
                    Err(miss) => {
                        target.is_away();
                        in_doubt |= call.once && matches!(miss, Miss::NoAnswer(_));
                        let (Miss::NotSent(miss) | Miss::NoAnswer(miss)) = miss;
                        why = format!("{}: {miss}", target.addr);
                    }
                }
                if Instant::now() >= end {
                    break;
                }
            }
            // Only what is in doubt is worth another look: all else has been refused by everybody.
            if !in_doubt || Instant::now() + ASK_AGAIN >= end {
                break;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        if in_doubt { Err(Failed::Unknown(Unknown { why })) } else { Err(busy(&why)) }
    }

    /// Opens a stream at the first node that gives one. It has a connection of its own. Err: with what the last one said.
    pub(crate) async fn stream(&self, call: &Call) -> Result<Incoming, Option<Answer>> {
        let mut said = None;
        for target in self.order() {
            let until = Instant::now() + OPERATION_TIME_MAX / 2;
            let Ok(mut sender) = target.fresh(until).await else {
                target.is_away();
                continue;
            };
            let Ok(request) = target.request(call) else { return Err(None) };
            match timeout_at(until, sender.send_request(request)).await {
                Ok(Ok(answer)) if answer.status() == StatusCode::OK => return Ok(answer.into_body()),
                Ok(Ok(answer)) => {
                    tracing::warn!(status = %answer.status(), path = call.path, "a stream was refused");
                    let (head, body) = answer.into_parts();
                    let body = timeout_at(until, whole(body)).await.ok().and_then(Result::ok).unwrap_or_default();
                    said = Some(Answer { status: head.status, headers: head.headers, body });
                }
                Ok(Err(_)) | Err(_) => target.is_away(),
            }
        }
        Err(said)
    }

    /// The first node first, unless it is away; nodes that are away last.
    fn order(&self) -> Vec<&Target> {
        let now = Instant::now();
        let (here, away): (Vec<&Target>, Vec<&Target>) =
            self.0.targets.iter().partition(|target| lock(&target.away_until).is_none_or(|until| until <= now));
        here.into_iter().chain(away).collect()
    }
}

/// The words for an answer of type `full`, by which they are known again.
pub(crate) const FULL: &str = "no node has room for it";

/// What an answer means for every operation alike; the rest is the operation's own.
fn judged(call: &Call, answer: Answer) -> Result<Answer, Failed> {
    let retry = || answer.retry_after();
    match answer.status.as_u16() {
        503 if answer.kind().as_deref() == Some("full") => {
            Err(Failed::Refused(Refused::busy(FULL, retry()).because(Because::Room)))
        }
        503 | 429 => Err(Failed::Refused(Refused::busy(answer.error(), retry()))),
        // The namespace has all that it may: nothing happened, and nothing will before something is removed.
        507 => Err(Failed::Refused(Refused::wrong(answer.error()))),
        // The answer to a read is a read's: nothing can have happened.
        500..600 if call.repeats => Err(Failed::Refused(Refused::busy(answer.error(), retry()))),
        500..600 => Err(Failed::Unknown(Unknown { why: answer.error() })),
        401 | 403 | 405 | 408 | 411..=411 | 413..=431 => Err(Failed::Refused(Refused::wrong(answer.error()))),
        _ => Ok(answer),
    }
}

impl Answer {
    /// What the node says for people.
    pub fn error(&self) -> String {
        self.told("error").unwrap_or_else(|| format!("HTTP {}", self.status.as_u16()))
    }

    /// What it says for programs: `cookie-forged`.
    pub fn kind(&self) -> Option<String> {
        self.told("type")
    }

    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Of the `ETag`, without its quotes.
    pub fn version(&self) -> Option<&str> {
        self.header(&header::ETAG)?.strip_prefix('"')?.strip_suffix('"')
    }

    /// An answer that this operation has no use for.
    pub fn unexpected(&self) -> Failed {
        if self.status.is_client_error() {
            return Failed::Refused(Refused::wrong(self.error()));
        }
        Failed::Unknown(Unknown { why: format!("the node answered HTTP {} and nothing more", self.status.as_u16()) })
    }

    fn told(&self, name: &str) -> Option<String> {
        let value: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(value.get(name)?.as_str()?.to_owned())
    }

    fn retry_after(&self) -> Span {
        let value: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        value.and_then(|value| value.get("retry_after_ms")?.as_u64()).map_or(RETRY_AFTER, Span::millis)
    }
}

impl Target {
    async fn exchange(&self, call: &Call, until: Instant) -> Result<Answer, Miss> {
        let late = |_| Miss::NoAnswer("no answer in time".into());
        let mut sender = self.sender(until).await?;
        let sent = loop {
            let request = self.request(call)?;
            match timeout_at(until, sender.try_send_request(request)).await.map_err(late)? {
                Ok(answer) => break answer,
                Err(mut error) => match error.take_message() {
                    // The node closed a connection that had nothing to do: the request never left.
                    Some(_) => sender = self.fresh(until).await?,
                    None => return Err(Miss::NoAnswer(error.into_error().to_string())),
                },
            }
        };
        let (head, body) = sent.into_parts();
        let body = timeout_at(until, whole(body)).await.map_err(late)?.map_err(Miss::NoAnswer)?;
        *lock(&self.away_until) = None;
        self.keep(sender);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    fn request(&self, call: &Call) -> Result<Request<Parts>, Miss> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .body(call.body.clone())
            .map_err(|error| Miss::NotSent(format!("{:?} is no path: {error}", call.path)))?;
        *request.headers_mut() = call.headers.clone();
        // Who asks a service names its host.
        request.headers_mut().entry(header::HOST).or_insert_with(|| self.host.clone());
        if let Some(until) = call.until {
            let left = u64::try_from((until - Instant::now()).as_millis()).unwrap_or(u64::MAX);
            request.headers_mut().insert(DEADLINE, left.max(1).into());
        }
        Ok(request)
    }

    /// A connection that can be used: a kept one, or a new one.
    async fn sender(&self, until: Instant) -> Result<SendRequest<Parts>, Miss> {
        loop {
            let Some((sender, since)) = lock(&self.idle).pop() else { return self.fresh(until).await };
            if since.elapsed() < IDLE_TIME_MAX && sender.is_ready() {
                return Ok(sender);
            }
        }
    }

    async fn fresh(&self, until: Instant) -> Result<SendRequest<Parts>, Miss> {
        let not_sent = |why: String| Miss::NotSent(format!("cannot connect: {why}"));
        let until = until.min(Instant::now() + CONNECT_TIME_MAX);
        let stream = timeout_at(until, TcpStream::connect(self.addr)).await;
        let stream = stream.map_err(|_| not_sent("no answer in time".into()))?.map_err(|e| not_sent(e.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| not_sent(e.to_string()))?;
        // Ends with the sender, or with the node; either is told where it matters.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn keep(&self, sender: SendRequest<Parts>) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push((sender, Instant::now()));
        }
    }

    fn is_away(&self) {
        lock(&self.idle).clear();
        *lock(&self.away_until) = Some(Instant::now() + AWAY);
    }
}

async fn whole(body: Incoming) -> Result<Bytes, String> {
    Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(|body| body.to_bytes()).map_err(|error| error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key or name as a part of a path.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    let one = |b: u8| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(one).collect()
}
