//! One request on its way: which clone, what is sent, what happens when a clone fails. A request that no clone has seen
//! goes to another one, whatever it is. One that a clone may have seen goes again only if it may be repeated (RFC 9110
//! 9.2.2, or the client says so by Idempotency-Key) and we still have it; else the client hears that the end is unknown.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use base::Rng;
use bytes::Bytes;
use clones::partition::Asked;
use flow::stage::End;
use futures_util::future::poll_fn;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::admit;
use super::body::{Busy, Counted, DownBody, FromClone, UpBody};
use super::check::{Framing, Violation};
use super::drop_files::DropFiles;
use super::guard::{Flags, REFUSED_METHOD};
use super::headers::{Fields, Peer, set_forwarded, strip_one_hop, wanted_upgrade};
use super::limits::{CLONE_WAIT, REPLAY_BYTES_MAX, SENDS_MAX, TRY_AGAIN};
use super::line::{self, Expects, Failed, Line};
use super::refusal::Refusal;
use super::session::{Sessions, remove_ours};
use super::{Config, h2, upgrade};
use crate::affinity;
use crate::cookie;
use crate::demand::Visit;
use crate::meter::Door;
use crate::pool::{InFlight, Place, Pool, Upstream};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What all requests of this door share.
pub struct Edge {
    pub pool: Arc<Pool>,
    pub door: Arc<Door>,
    pub config: Config,
    pub sessions: Sessions,
    pub files: DropFiles,
}

/// What all requests of one connection share (of HTTP/2, only the peer: each stream has flags of its own).
pub struct Client {
    pub peer: Arc<Peer>,
    pub flags: Arc<Flags>,
}

/// A request on its way to some clone.
struct Errand {
    host: HeaderValue,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// As a clone gets it.
    head: Bytes,
    expects: Expects,
    framing: Framing,
    /// What takes it, if that was known when it came.
    place: Option<Place>,
    /// Tells a browser to come back to the clone that was chosen, if that is new to it.
    stay: Option<HeaderValue>,
    /// It counts as one request of its service, however often it is sent.
    visit: Option<Visit>,
    /// None only while a clone has it.
    body: Option<UpBody>,
    /// The body of a request that may be sent again.
    again: Option<Bytes>,
    sends: u32,
    tried: Vec<Arc<Upstream>>,
    /// The line that failed last came from the pool: the clone may be well, and only have closed idle connections.
    want_fresh: bool,
    /// Of the clones that were tried, one does not speak HTTP: it said something on a new line before it was asked.
    one_spoke_first: bool,
    give_up_at: Option<Instant>,
}

/// A clone's answer, and the line it comes by.
struct Answer {
    response: Response<()>,
    /// The first part of its body, if that was waited for.
    first: Option<Frame<Bytes>>,
    line: Box<Line>,
    upstream: Arc<Upstream>,
    in_flight: InFlight,
    /// When its head was there.
    at: Instant,
}

/// Answers one request; never fails, as hyper's only answer to that would be to hang up.
pub async fn answer(
    edge: Arc<Edge>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Result<Response<DownBody>, Infallible> {
    let began = Instant::now();
    let busy = Busy::new(&client.flags);
    let outcome = carry(&edge, &client, began, request).await;
    let failed = outcome.as_ref().is_err_and(Refusal::is_ours);
    edge.door.done(began.elapsed(), failed);
    Ok(match outcome {
        Ok((response, None)) => response.map(|()| DownBody::text(Bytes::new(), busy)),
        Ok((response, Some(from))) => response.map(|()| DownBody::from_clone(from, busy)),
        Err(refusal) => refusal.response(busy, &mut Rng::new(began.elapsed().as_nanos() as u64)),
    })
}

async fn carry(
    edge: &Edge,
    client: &Client,
    began: Instant,
    mut request: Request<Incoming>,
) -> Result<(Response<()>, Option<FromClone>), Refusal> {
    if request.method().as_str() == REFUSED_METHOD {
        let unnamed = Violation { status: 400, why: "this method is not for clients" };
        return Err(Refusal::Violation(client.flags.violation().unwrap_or(unnamed)));
    }
    if let Some(expect) = request.headers_mut().remove(header::EXPECT)
        && !expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Refusal::Expectation);
    }
    if request.version() == Version::HTTP_2 {
        h2::to_http1(&mut request).map_err(Refusal::Violation)?;
    }
    let upgrade = (request.version() == Version::HTTP_11 && request.body().is_end_stream())
        .then(|| wanted_upgrade(request.headers()))
        .flatten()
        .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));

    let (mut parts, incoming) = request.into_parts();
    let host = parts.headers.get(header::HOST).cloned().unwrap_or(HeaderValue::from_static(""));
    strip_one_hop(&mut parts.headers);
    set_forwarded(&mut parts.headers, &client.peer, edge.config.trust_forwarded);
    remove_ours(&mut parts.headers);
    let place = {
        let fields = Fields(&parts.headers);
        let (host, path, method) = (host.to_str().unwrap_or(""), parts.uri.path(), parts.method.as_str());
        let (port, client) = (client.peer.port, client.peer.ip);
        edge.pool.table().place(&Asked { port, host, path, method, client, headers: &fields })
    };
    let (mut session, mut let_in) = (None, None);
    if let Some(asked) = place.clone() {
        let route = asked.doorway.session.clone();
        let raised = route.as_ref().and_then(|route| route.spec.priority);
        let mut class = asked.doorway.class;
        if let (Some(raised), Some(route)) = (raised.filter(|raised| raised.0 > class), &route)
            && cookie::is_shown(&parts.headers, &route.spec.cookie)
        {
            // Whether its session raises it must be known before.
            let carried = edge.sessions.begin(Arc::clone(route), &mut parts.headers, raised.0).await?;
            class = if carried.is_there() { raised.0 } else { class };
            session = Some(carried);
        }
        let (place, permit) = admit::admit(edge, asked, class, client.peer.ip).await?;
        // Another service may answer for it, and that one's sessions are others.
        let route = place.doorway.session.clone();
        if session.as_ref().is_some_and(|session| route.as_ref().is_none_or(|route| !session.is_of(route))) {
            session = None;
            remove_ours(&mut parts.headers);
        }
        if session.is_none()
            && let Some(route) = route
        {
            session = Some(edge.sessions.begin(route, &mut parts.headers, class).await?);
        }
        if let Some(session) = &mut session {
            session.class = class;
        }
        admit::tell(&mut parts.headers, class, &place);
        let_in = Some((place, permit));
    }
    if let Some((protocol, _)) = &upgrade {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol.clone());
    }
    let incoming = Counted::new(incoming, parts.version, &client.flags, edge.config.body_bytes_max);
    let mut errand = Errand::new(parts, host, upgrade.is_some(), incoming).await.map_err(|_| body_broken(client))?;
    errand.place = let_in.as_ref().map(|(place, _)| place.clone());
    let answer = errand.run(edge, client).await;
    let mut answer = match answer {
        Ok(mut answer) => {
            let end = admit::end_of(&mut answer.response);
            if let Some((place, permit)) = let_in {
                permit.ended_at(end, answer.at);
                place.doorway.part.done(answer.at.saturating_duration_since(began));
            }
            answer
        }
        Err(refusal) => {
            if let Some((place, permit)) = let_in {
                permit.ended(if refusal == Refusal::CloneSilent { End::Overload } else { End::Gone });
                place.doorway.part.done(began.elapsed());
            }
            return Err(refusal);
        }
    };
    let fields = answer.response.headers_mut();
    match session {
        Some(session) => edge.sessions.finish(session, fields).await?,
        None => remove_ours(fields),
    }
    let (mut response, from) = pass_on(client, answer, upgrade.map(|(_, client)| client))?;
    if let Some(stay) = errand.stay {
        response.headers_mut().append(header::SET_COOKIE, stay);
    }
    Ok((response, from))
}

/// The client's body did not come whole, and the guard knows why unless the client just left.
fn body_broken(client: &Client) -> Refusal {
    let left = Violation { status: 400, why: "the request's body ended early" };
    Refusal::Violation(client.flags.violation().unwrap_or(left))
}

/// Requests that have the same effect once or twice.
fn may_repeat(method: &Method, headers: &HeaderMap) -> bool {
    let is_idempotent =
        matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE);
    is_idempotent || headers.contains_key(IDEMPOTENCY_KEY)
}

impl Errand {
    async fn new(parts: Parts, host: HeaderValue, upgrade: bool, incoming: Counted) -> io::Result<Self> {
        let Parts { method, uri, headers, .. } = parts;
        let bytes = if incoming.is_end_stream() { Some(0) } else { incoming.size_hint().exact() };
        let framing = bytes.map_or(Framing::Chunked, Framing::Length);
        let (body, again) = match bytes {
            Some(0) => (UpBody::Empty, may_repeat(&method, &headers).then(Bytes::new)),
            Some(bytes) if bytes <= REPLAY_BYTES_MAX && may_repeat(&method, &headers) => {
                let body = incoming.collect().await?.to_bytes();
                (UpBody::Whole(body.clone()), Some(body))
            }
            _ => (UpBody::Stream(incoming), None),
        };
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Ok(Self {
            head: line::request(&method, path, &headers, framing),
            expects: Expects { no_body: method == Method::HEAD, upgrade },
            framing,
            host,
            method,
            uri,
            headers,
            place: None,
            stay: None,
            visit: None,
            body: Some(body),
            again,
            sends: 0,
            tried: Vec::new(),
            want_fresh: false,
            one_spoke_first: false,
            give_up_at: None,
        })
    }

    /// The request for this clone.
    fn request(&mut self, upstream: &Upstream) -> line::Request {
        let mut head = self.head.clone();
        if !self.headers.contains_key(header::HOST) {
            // HTTP/1.0 needs none, what we send does.
            head = line::with_host(&head, &upstream.addr.to_string());
        }
        let body = self.body.take().expect("put back after each failure that goes on");
        line::Request { head, expects: self.expects, framing: self.framing, body }
    }

    async fn run(&mut self, edge: &Edge, client: &Client) -> Result<Answer, Refusal> {
        loop {
            let upstream = self.choose(&edge.pool, &client.peer).await?;
            let in_flight = upstream.begin();
            let Some((mut line, is_fresh)) = self.line_to(&edge.pool, &upstream).await else { continue };
            let request = self.request(&upstream);
            let attempt = upstream.count.begin();
            match line.send(request).await {
                Ok(response) => match self.first_part(&mut line).await {
                    Ok(first) => {
                        let failed = response.status().is_server_error();
                        let at = Instant::now();
                        attempt.ended_at(failed, at);
                        edge.pool.answered(&upstream, failed);
                        return Ok(Answer { response, first, line, upstream, in_flight, at });
                    }
                    Err(error) => {
                        attempt.ended(true);
                        edge.pool.answered(&upstream, true);
                        tracing::debug!(clone = %upstream.name, %error, "clone ended while it answered");
                        self.ready_again(Refusal::CloneEnded)?;
                    }
                },
                Err(Failed::Unsent(body)) => self.body = Some(body),
                Err(Failed::SpokeFirst(body)) => {
                    self.body = Some(body);
                    // On a line that has been idle it is the end of that line, as many servers say why they close one.
                    if is_fresh {
                        attempt.ended(true);
                        edge.pool.answered(&upstream, true);
                        tracing::debug!(clone = %upstream.name, "clone spoke before it was asked");
                        self.one_spoke_first = true;
                    }
                }
                Err(Failed::TimedOut) => {
                    attempt.ended(true);
                    edge.pool.answered(&upstream, true);
                    return Err(Refusal::CloneSilent);
                }
                // That is not the clone's fault.
                Err(Failed::Upload) => return Err(body_broken(client)),
                Err(Failed::NoAnswer(why)) => {
                    attempt.ended(true);
                    edge.pool.answered(&upstream, true);
                    tracing::debug!(clone = %upstream.name, why, "clone's answer is none");
                    self.ready_again(Refusal::BadAnswer)?;
                }
                Err(Failed::Ended(error)) => {
                    attempt.ended(true);
                    edge.pool.answered(&upstream, true);
                    tracing::debug!(clone = %upstream.name, %error, "clone ended before it answered");
                    self.ready_again(Refusal::CloneEnded)?;
                }
            }
            if is_fresh {
                edge.pool.failed(&upstream);
                self.tried.push(upstream);
            } else {
                self.want_fresh = true;
            }
        }
    }

    /// The clone for the next try, waiting a little if there is none.
    async fn choose(&mut self, pool: &Pool, peer: &Peer) -> Result<Arc<Upstream>, Refusal> {
        loop {
            let refusal;
            {
                let table = pool.table();
                let fields = Fields(&self.headers);
                let asked = Asked {
                    port: peer.port,
                    host: self.host.to_str().unwrap_or(""),
                    path: self.uri.path(),
                    method: self.method.as_str(),
                    client: peer.ip,
                    headers: &fields,
                };
                match table.find(self.place.as_ref(), &asked) {
                    Some(found) if table.routes.is_off(found) => return Err(Refusal::Off),
                    Some(found) => {
                        self.visit.get_or_insert_with(|| table.enter(found));
                        let target = table.target(found, &asked);
                        if let Some(upstream) = pool.choose(&target, &self.tried) {
                            self.stay = affinity::stay(&table.routes, found, &target, &upstream, peer.is_https);
                            return Ok(upstream);
                        }
                        if self.one_spoke_first {
                            return Err(Refusal::SpokeFirst);
                        }
                        refusal = Refusal::NoClone;
                    }
                    // A node that has just started may not know of any service yet.
                    None if table.routes.services.is_empty() => refusal = Refusal::NoService,
                    None => return Err(Refusal::NoService),
                }
            }
            let give_up_at = *self.give_up_at.get_or_insert_with(|| Instant::now() + CLONE_WAIT);
            if Instant::now() >= give_up_at {
                return Err(refusal);
            }
            pool.wait_for_change(TRY_AGAIN).await;
            self.tried.clear();
        }
    }

    /// An idle line or a new one; whether it is new.
    async fn line_to(&mut self, pool: &Pool, upstream: &Arc<Upstream>) -> Option<(Box<Line>, bool)> {
        let surely = self.again.is_none();
        if !std::mem::take(&mut self.want_fresh)
            && let Some(line) = upstream.idle.take(surely)
        {
            return Some((line, false));
        }
        match pool.connect(upstream).await {
            Ok(stream) => Some((Box::new(Line::new(stream)), true)),
            Err(error) => {
                tracing::debug!(clone = %upstream.name, %error, "clone not reached");
                pool.failed(upstream);
                self.tried.push(Arc::clone(upstream));
                None
            }
        }
    }

    /// Makes the request ready to be sent once more if it may be; else that is its end.
    fn ready_again(&mut self, end: Refusal) -> Result<(), Refusal> {
        self.sends += 1;
        match &self.again {
            Some(body) if self.sends < SENDS_MAX => {
                self.body = Some(UpBody::Whole(body.clone()));
                Ok(())
            }
            _ => Err(end),
        }
    }

    /// Many programs send the head of an answer and then its body, and may die in between. As long as the client has
    /// seen nothing, a request that may be repeated can be; so with a short body the head waits for its first part.
    async fn first_part(&self, line: &mut Line) -> io::Result<Option<Frame<Bytes>>> {
        let is_short = line.left().is_some_and(|n| n > 0 && n <= REPLAY_BYTES_MAX);
        if !is_short || self.again.is_none() {
            return Ok(None);
        }
        poll_fn(|cx| line.poll_frame(cx)).await.transpose()
    }
}

/// Makes the client's answer of the clone's.
fn pass_on(
    client: &Client,
    answer: Answer,
    upgrade: Option<OnUpgrade>,
) -> Result<(Response<()>, Option<FromClone>), Refusal> {
    let Answer { mut response, first, line, upstream, in_flight, at: _ } = answer;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(of_client) = upgrade else { return Err(Refusal::BadAnswer) };
        client.flags.upgraded.store(true, Relaxed);
        let protocol = response.headers_mut().remove(header::UPGRADE);
        let is_websocket = protocol.as_ref().is_some_and(|p| p.as_bytes().eq_ignore_ascii_case(b"websocket"));
        tokio::spawn(upgrade::splice(*line, of_client, in_flight, is_websocket));
        strip_one_hop(response.headers_mut());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            response.headers_mut().insert(header::UPGRADE, protocol);
        }
        return Ok((response, None));
    }
    let headers = response.headers_mut();
    strip_one_hop(headers);
    if headers.remove(header::TRANSFER_ENCODING).is_some() {
        headers.remove(header::CONTENT_LENGTH);
    }
    let from = FromClone { line: Some(line), first, upstream, _in_flight: in_flight };
    Ok((response, Some(from)))
}
