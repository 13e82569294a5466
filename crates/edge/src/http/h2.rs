//! HTTP/2 from clients (RFC 9113). hyper keeps the protocol; here is what protects the cluster from its liberties: how
//! many requests a client may take back, how many bytes may come that move nothing, how long it may leave an answer
//! untaken. Requests go to clones as HTTP/1.1, so what HTTP/1.1 refuses is refused here too.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::body::{Counted, DownBody};
use super::check::{TOO_LARGE_HEAD, Violation, is_host, is_target, is_token};
use super::headers::Peer;
use super::limits::*;
use super::linger::Linger;
use super::passage::{Client, Edge, Understood};
use crate::wait::{Rate, Wait};

/// What is known of one connection's manners.
pub struct Manners {
    began: Instant,
    asked: AtomicU64,
    answered: AtomicU64,
    taken_back: AtomicU64,
    /// Bytes that came, and bytes that may have come by now (without those that time allows).
    came: AtomicU64,
    allowed: AtomicU64,
    enough: Notify,
    /// Bodies of requests that were answered, while what comes of them is thrown away.
    pub thrown_away: AtomicU64,
    /// How often all that there was to write was written.
    flushes: AtomicU64,
    is_asked_to_flush: Notify,
    /// Who waits for that.
    wait_for_flush: Mutex<Vec<Waker>>,
    is_flush_awaited: AtomicBool,
}

impl Manners {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (asked, answered, taken_back, came, allowed) = (zero(), zero(), zero(), zero(), zero());
        Self {
            began: Instant::now(),
            asked,
            answered,
            taken_back,
            came,
            allowed,
            enough: Notify::new(),
            thrown_away: zero(),
            flushes: zero(),
            is_asked_to_flush: Notify::new(),
            wait_for_flush: Mutex::default(),
            is_flush_awaited: AtomicBool::new(false),
        }
    }

    fn flushed(&self) {
        self.flushes.fetch_add(1, SeqCst);
        if self.is_flush_awaited.load(SeqCst) {
            let mut waiting = self.wait_for_flush.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_flush_awaited.store(false, SeqCst);
            waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Ready when it was flushed so often.
    fn poll_flushes(&self, cx: &Context<'_>, at_least: u64) -> Poll<()> {
        let mut waiting = self.wait_for_flush.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_flush_awaited.store(true, SeqCst);
        if self.flushes.load(SeqCst) >= at_least {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waits| waits.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        drop(waiting);
        self.is_asked_to_flush.notify_one();
        Poll::Pending
    }

    /// A request, or a WebSocket, is under way until it has `ended`.
    pub fn begin(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    /// Bytes of a body or a WebSocket came.
    pub fn came(&self, bytes: u64) {
        self.allow(bytes + bytes / 8);
    }

    /// The client has so much to take, which it acknowledges by frames.
    pub fn went(&self, bytes: u64) {
        self.allow(bytes / 8);
    }

    fn allow(&self, bytes: u64) {
        self.allowed.fetch_add(bytes + CONTROL_BYTES_EACH, Relaxed);
    }

    fn asked_and_ended(&self) -> (u64, u64) {
        let ended = self.answered.load(Relaxed) + self.taken_back.load(Relaxed);
        (self.asked.load(Relaxed), ended)
    }

    fn is_flooding(&self) -> bool {
        let by_time = CONTROL_BYTES_MAX + self.began.elapsed().as_secs() * CONTROL_BYTES_PER_SECOND;
        let more = self.came.load(Relaxed).saturating_sub(self.allowed.load(Relaxed) + by_time);
        more > 0 && more > self.untaken()
    }

    /// What may have come of bodies while nobody took it: their windows, and the frames that it came in.
    fn untaken(&self) -> u64 {
        let (asked, ended) = self.asked_and_ended();
        let bodies = asked.saturating_sub(ended) + self.thrown_away.load(Relaxed);
        let bytes = bodies.saturating_mul(STREAM_WINDOW_BYTES.into()).min(CONNECTION_WINDOW_BYTES.into());
        bytes + bytes / 8
    }

    pub fn ended(&self, is_answered: bool) {
        if is_answered {
            self.answered.fetch_add(1, Relaxed);
            return;
        }
        let taken_back = self.taken_back.fetch_add(1, Relaxed) + 1;
        if taken_back >= TAKEN_BACK_MAX && taken_back > self.answered.load(Relaxed) {
            self.enough.notify_one();
        }
    }
}

/// Serves a connection to its end.
pub async fn talk<S>(edge: Arc<Edge>, stream: S, peer: Arc<Peer>, mut closing: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let manners = Arc::new(Manners::new());
    let (of_requests, ip) = (Arc::clone(&manners), peer.ip);
    let service = service_fn(move |request: Request<Incoming>| {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        of_requests.allow(fields.sum::<usize>() as u64 + request.uri().path().len() as u64);
        of_requests.begin();
        let ending = Ending { manners: Arc::clone(&of_requests), is_answered: false };
        let client = Arc::new(Client { peer: Arc::clone(&peer), flags: Arc::default(), open: None });
        let edge = Arc::clone(&edge);
        async move {
            let request = request.map(|incoming| Counted::of_http2(incoming, &client.flags));
            let understood = Understood::of(&edge, &client, request, None);
            let response: Response<DownBody> = understood.answer(&edge, &client).await;
            Ok::<_, Infallible>(response.map(|body| Taken::new(body, ending)))
        }
    });
    let mut builder = http2::Builder::new(Streams(Arc::clone(&manners)));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(H2_HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .enable_connect_protocol()
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME);
    let counting = Counting { stream, manners: Arc::clone(&manners), write_wait: Wait::default(), linger: None };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(counting), service));
    let mut asked_before = None;
    let mut goodbye_at = None;
    loop {
        tokio::select! {
            served = connection.as_mut() => {
                if let Err(error) = served {
                    tracing::debug!(%error, peer = %ip, "client's connection ended");
                }
                return;
            }
            // Changed once: from false to true. Its sender lives as long as the door.
            Ok(()) = closing.changed() => {
                // Who has just connected is about to say something, and many clients give up what they were not asked
                // to send elsewhere but on this connection.
                let is_new = manners.asked.load(Relaxed) == 0;
                goodbye_at = Some(Instant::now() + if is_new { HEAR_OUT } else { Duration::ZERO });
            }
            // What is under way is answered, and so is what the client sends until it has heard of it.
            () = tokio::time::sleep_until(goodbye_at.unwrap_or_else(Instant::now)), if goodbye_at.is_some() => {
                connection.as_mut().graceful_shutdown();
                goodbye_at = None;
            }
            // Somebody waits until all is written: the connection is polled, and writes what there is.
            () = manners.is_asked_to_flush.notified() => (),
            () = manners.enough.notified() => {
                tracing::info!(peer = %ip, "an HTTP/2 client took back most of its requests and was cut off");
                return;
            }
            () = tokio::time::sleep(KEEP_ALIVE) => {
                let (asked, ended) = manners.asked_and_ended();
                if asked == ended && asked_before == Some(asked) {
                    connection.as_mut().graceful_shutdown();
                }
                asked_before = Some(asked);
            }
        }
    }
}

/// Makes a request of HTTP/2 one that HTTP/1.1 would have had: one `Host`, one `Cookie` (RFC 9113 8.2.3, 8.3.1), and
/// for a WebSocket GET instead of CONNECT (RFC 8441). Whether it is one.
pub fn to_http1<B>(request: &mut Request<B>) -> Result<bool, Violation> {
    let bad = |why| Err(Violation { status: 400, why });
    let is_websocket = *request.method() == Method::CONNECT;
    if is_websocket {
        match request.extensions_mut().remove::<Protocol>() {
            Some(protocol) if protocol.as_str() == "websocket" => *request.method_mut() = Method::GET,
            Some(_) => return Err(Violation { status: 501, why: "the only protocol for CONNECT here is websocket" }),
            None => {
                return Err(Violation {
                    status: 501,
                    why: "this is no forward proxy: CONNECT is for WebSockets alone",
                });
            }
        }
    }
    let uri = request.uri();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if target.len() > TARGET_BYTES_MAX {
        return Err(Violation { status: 414, why: "the request line is longer than 8 KiB" });
    }
    if !is_target(target.as_bytes()) {
        return bad("the request's target has characters that are not allowed; they are sent as %XX");
    }
    let authority = uri.authority().map(|authority| authority.as_str().to_owned());
    let headers = request.headers_mut();
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > HEAD_BYTES_MAX {
        return Err(TOO_LARGE_HEAD);
    }
    if headers.len() > FIELDS_MAX {
        return Err(Violation { status: 431, why: "the request has more than 100 header fields" });
    }
    // The library takes quotation marks.
    if !headers.keys().all(|name| is_token(name.as_str().as_bytes())) {
        return bad("the name of a header field has characters that are not allowed");
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (authority, hosts.next(), hosts.next()) {
        (Some(authority), Some(host), None) if !authority.as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
            return bad("the request's target and its Host field name different hosts");
        }
        (_, _, Some(_)) => return bad("the request has more than one Host field"),
        (Some(authority), _, None) => authority,
        (None, Some(host), None) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
        (None, None, None) => return bad("the request does not name a host"),
    };
    if !is_host(host.as_bytes()) {
        return bad("the request's host is not a name or an address");
    }
    headers.insert(header::HOST, HeaderValue::try_from(host).expect("checked just above"));
    if headers.get_all(header::COOKIE).iter().nth(1).is_some() {
        let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
        let cookie = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).expect("made of values");
        headers.insert(header::COOKIE, cookie);
    }
    Ok(is_websocket)
}

/// Counts how a request ended.
struct Ending {
    manners: Arc<Manners>,
    is_answered: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.manners.ended(self.is_answered);
    }
}

/// An answer's body that notes when the client does not take it. If it breaks off, what came of it is with the client
/// before its stream is reset: a reset throws away what h2 has not written.
pub struct Taken {
    body: DownBody,
    ending: Ending,
    /// Whose it is.
    stream: Option<Arc<Stream>>,
    broke: Option<Broke>,
}

struct Broke {
    error: io::Error,
    /// How often the connection is to be flushed first, once h2 has all parts in its hands.
    flushes: Option<u64>,
}

impl Taken {
    fn new(body: DownBody, ending: Ending) -> Self {
        let stream = NOW.with_borrow(Option::clone);
        Self { body, ending, stream, broke: None }
    }

    /// Ready when all that was given is written.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(stream), Some(broke)) = (&self.stream, &mut self.broke) else { return Poll::Ready(()) };
        // Until then it is the client's turn.
        stream.client_has_to_take.store(true, Relaxed);
        stream.waits.register(cx.waker());
        if stream.parts.load(SeqCst) > 0 {
            return Poll::Pending;
        }
        // Two: the first may have begun before the last part, or the head, was there.
        let at_least = *broke.flushes.get_or_insert_with(|| stream.manners.flushes.load(SeqCst) + 2);
        stream.manners.poll_flushes(cx, at_least)
    }
}

impl Body for Taken {
    type Data = Part;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Part>>>> {
        let this = &mut *self;
        if this.broke.is_none() {
            let polled = Pin::new(&mut this.body).poll_frame(cx);
            match polled {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    this.ending.manners.went(bytes as u64);
                    with_stream(|stream| stream.asked_for(bytes));
                    return Poll::Ready(Some(Ok(frame.map_data(|data| Part::new(data, &this.stream)))));
                }
                Poll::Ready(Some(Err(error))) => this.broke = Some(Broke { error, flushes: None }),
                Poll::Ready(None) => {
                    this.ending.is_answered = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    with_stream(|stream| stream.client_has_to_take.store(false, Relaxed));
                    return Poll::Pending;
                }
            }
        }
        ready!(this.poll_written(cx));
        this.ending.is_answered = true;
        Poll::Ready(this.broke.take().map(|broke| Err(broke.error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // hyper does not ask for the end of a body whose length was reached.
        self.ending.is_answered |= self.body.is_end_stream();
    }
}

/// A part of an answer, until h2 has written it.
pub struct Part {
    data: Bytes,
    stream: Option<Arc<Stream>>,
}

impl Part {
    fn new(data: Bytes, stream: &Option<Arc<Stream>>) -> Self {
        if let Some(stream) = stream {
            stream.parts.fetch_add(1, SeqCst);
        }
        Self { data, stream: stream.clone() }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && stream.parts.fetch_sub(1, SeqCst) == 1
        {
            stream.waits.wake();
        }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }
}

/// One stream, as its task sees it.
pub struct Stream {
    manners: Arc<Manners>,
    /// hyper has a part of the answer and asks for no more before the client has taken it.
    client_has_to_take: AtomicBool,
    /// Bytes of that part, and of those before since the task looked.
    given: AtomicUsize,
    taken: AtomicUsize,
    /// Parts of the answer that are not written.
    parts: AtomicUsize,
    /// Who waits until they are.
    waits: AtomicWaker,
}

impl Stream {
    fn new(manners: &Arc<Manners>) -> Self {
        let (client_has_to_take, given, taken) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let (parts, waits) = (AtomicUsize::new(0), AtomicWaker::new());
        Self { manners: Arc::clone(manners), client_has_to_take, given, taken, parts, waits }
    }

    /// hyper asked for a part, and got so much.
    fn asked_for(&self, bytes: usize) {
        self.taken.fetch_add(self.given.swap(bytes, Relaxed), Relaxed);
        self.client_has_to_take.store(true, Relaxed);
    }
}

thread_local! {
    /// The stream that is polled on this thread now.
    static NOW: RefCell<Option<Arc<Stream>>> = const { RefCell::new(None) };
}

fn with_stream(act: impl FnOnce(&Stream)) {
    NOW.with_borrow(|now| {
        if let Some(stream) = now {
            act(stream);
        }
    });
}

/// A part of a request's body came.
pub fn progress(bytes: u64) {
    with_stream(|stream| {
        if bytes > 0 {
            stream.manners.came(bytes);
        }
    });
}

/// The manners of the connection whose stream is polled on this thread now.
pub fn manners() -> Option<Arc<Manners>> {
    NOW.with_borrow(|now| now.as_ref().map(|stream| Arc::clone(&stream.manners)))
}

/// Runs hyper's tasks, one a stream.
#[derive(Clone)]
struct Streams(Arc<Manners>);

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let stream = Arc::new(Stream::new(&self.0));
        tokio::spawn(Running { future: Some(Box::pin(future)), stream, wait: Rate::default() });
    }
}

/// A stream's task. It ends, and with it the stream, when the client takes too little for too long.
struct Running<F> {
    future: Option<Pin<Box<F>>>,
    stream: Arc<Stream>,
    wait: Rate,
}

impl<F: Future<Output = ()>> Future for Running<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Ready(()) };
        let before = NOW.replace(Some(Arc::clone(&this.stream)));
        let polled = future.as_mut().poll(cx);
        NOW.set(before);
        if polled.is_pending() {
            let taken = this.stream.taken.swap(0, Relaxed);
            if taken > 0 {
                this.wait.moved(taken);
            }
            if !this.stream.client_has_to_take.load(Relaxed) {
                this.wait.over();
            } else if this.wait.is_slow(cx, WRITE_IDLE) {
                this.future = None;
                return Poll::Ready(());
            }
        }
        polled
    }
}

/// Counts what comes, ends a connection that floods or takes nothing, and closes so that the client keeps its last
/// answer.
struct Counting<S> {
    stream: S,
    manners: Arc<Manners>,
    write_wait: Wait,
    /// Our side is closed.
    linger: Option<Linger>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counting<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, to);
        if let Poll::Ready(Ok(())) = polled {
            self.manners.came.fetch_add((to.filled().len() - before) as u64, Relaxed);
            if self.manners.is_flooding() {
                return Poll::Ready(Err(io::Error::other("the client floods us with frames that move nothing")));
            }
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Counting<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.write_wait.over();
        } else if self.write_wait.is_overdue(cx, WRITE_IDLE) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.manners.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        // A client that takes its last answer still sends window updates.
        this.linger.get_or_insert_default().poll(&mut this.stream, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a stream lives whose client takes so many bytes each second, while there is always more for it.
    async fn lives(bytes: usize, seconds: u64) -> u64 {
        let manners = Arc::new(Manners::new());
        let stream = Arc::new(Stream::new(&manners));
        let mut turns = tokio::time::interval(Duration::from_secs(1));
        let future = std::future::poll_fn(move |cx| {
            while turns.poll_tick(cx).is_ready() {
                with_stream(|stream| stream.asked_for(bytes));
            }
            Poll::<()>::Pending
        });
        let began = Instant::now();
        let running = Running { future: Some(Box::pin(future)), stream, wait: Rate::default() };
        let _ = tokio::time::timeout(Duration::from_secs(seconds), running).await;
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_goes_on_as_long_as_its_client_takes_enough() {
        let grace = RATE_GRACE.as_secs();
        assert_eq!(lives(10_000, 20 * grace).await, 20 * grace);
        assert!((grace - 1..=grace + 3).contains(&lives(1, 20 * grace).await));
    }
}
