//! A request on its way to some clone: which one, what is sent, what happens when a clone fails. A request that no
//! clone has seen goes to another one, whatever it is. One that a clone may have seen goes again only if it may be
//! repeated (RFC 9110 9.2.2, or the client says so by Idempotency-Key) and we still have it; else its end is unknown.
//!
//! One that changes nothing may be asked of several clones at once (`errand/race.rs`).
//!
//! Most are clients' (`passage`). Some are the node's own ([`ask`]): those may be repeated, and go to a service by its
//! name.

mod race;

use std::fmt::Display;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clones::partition::Asked;
use futures_util::future::poll_fn;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;

use super::body::{FromClone, UpBody};
use super::check::Framing;
use super::claim::Claim;
use super::flags::Flags;
use super::headers::Peer;
use super::limits::{ANSWER_IDLE, ANSWER_TIME, CLONE_WAIT, REPLAY_BYTES_MAX, SENDS_MAX, TRY_AGAIN};
use super::line::{self, Expects, Failed, Line};
use super::passage::{Cleansed, Client, Passage, Roomed, Underway, body_broken};
use super::passed::{DEADLINE, Deadline};
use super::refusal::{Dropped, Refusal};
use super::rooms;
use crate::affinity;
use crate::demand::{Try, Visit};
use crate::fields::{AnyFields as _, Fields};
use crate::pool::{InFlight, Pool, Upstream};
use crate::table::Place;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request on its way to some clone.
pub struct Errand {
    sought: Sought,
    expects: Expects,
    framing: Framing,
    /// What takes it, if that was known when it came.
    pub place: Option<Place>,
    /// Tells a browser to come back to the clone that was chosen, if that is new to it.
    pub stay: Option<HeaderValue>,
    /// Now, if that is known: when it was let in, if it is sent at once.
    pub begins: Option<Instant>,
    /// The visit that this request counts as at its service: one, however often it is sent.
    visit: Option<Visit>,
    /// None only while a clone has it.
    body: Option<UpBody>,
    /// The body of a request that may be sent again.
    again: Option<Bytes>,
    sends: u32,
    tried: Vec<Arc<Upstream>>,
    /// The line that failed last came from the pool: the clone may be well, and only have closed idle connections.
    want_fresh: bool,
    /// One of the clones that were tried does not speak HTTP: it said something on a new line before it was asked.
    one_spoke_first: bool,
    give_up_at: Option<Instant>,
    /// How the last try ended, of those that reached a clone.
    ended: Option<Refusal>,
    /// The service whose clones may take a request of the node's own, wherever it is reached. None: a client's request.
    service: Option<Arc<str>>,
    /// The client waits for leave to send the body.
    asks_leave: bool,
    /// Who passes interim answers on, if anybody can.
    interim: Option<Arc<Flags>>,
    /// How long each clone may take until its answer begins,
    pub patience: Duration,
    /// ... and until when all of them together. The node's own says that by itself.
    deadline: Option<Deadline>,
    /// How long an answer's body may be without a byte.
    pub idle: Duration,
}

/// What it asks for, and how.
struct Sought {
    host: HeaderValue,
    method: Method,
    uri: Uri,
    /// What it is matched by, where that is not how its path is written.
    path: Option<Box<str>>,
    fields: Fields,
}

impl Sought {
    /// As routes are asked.
    fn asked(&self, peer: &Peer) -> Asked<'_> {
        Asked {
            port: peer.port,
            host: self.host.to_str().unwrap_or(""),
            path: self.path.as_deref().unwrap_or(self.uri.path()),
            method: self.method.as_str(),
            client: peer.ip,
            headers: &self.fields,
        }
    }
}

/// A clone's answer, and the line it comes by.
pub struct Answer {
    pub response: Response<()>,
    /// The first part of its body, if that was waited for.
    pub first: Option<Frame<Bytes>>,
    pub line: Box<Line>,
    pub upstream: Arc<Upstream>,
    pub in_flight: InFlight,
    /// When its head was there.
    pub at: Instant,
}

/// How a try came to nothing.
enum Weighed {
    /// The clone has not seen it; here is its body again.
    Unsent(UpBody),
    /// The clone has not seen the request, and spoke before it was asked: if the line was new it does not speak HTTP.
    SpokeFirst(UpBody),
    /// That is the request's end.
    Over(Refusal),
    /// The clone has it, and had its time.
    Silent(Refusal),
    /// The clone may have seen it.
    Ended(Refusal),
}

/// A request of the node's own. Whoever gets it may get it twice.
pub struct Own<'a> {
    pub service: &'a str,
    pub path: &'a str,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// For each clone that is tried, until its answer begins.
    pub patience: Duration,
    pub answer_bytes_max: usize,
    /// Its answer is counted by this, if there is one.
    pub claim: Option<Claim>,
}

/// Asks some clone of a service, on any node, and another one if that one fails. Gives the answer's status and body.
///
/// # Errors
/// No clone gave a whole answer. Some may have seen the request.
pub async fn ask(pool: &Pool, own: Own<'_>) -> Result<(StatusCode, Bytes), Refusal> {
    let (response, body) = ask_whole(pool, own).await?;
    Ok((response.status(), body))
}

/// Asks as [`ask`] does, and gives the answer's whole head.
///
/// # Errors
/// As of [`ask`].
pub async fn ask_whole(pool: &Pool, mut own: Own<'_>) -> Result<(Response<()>, Bytes), Refusal> {
    let (answer_bytes_max, mut claim) = (own.answer_bytes_max, own.claim.take());
    let peer = Arc::new(Peer::new(Ipv4Addr::LOCALHOST.into(), 0, false));
    let client = Client { peer, flags: Arc::default(), open: None };
    let Answer { response, first, line, upstream, in_flight, at: _ } = Errand::own(own).run(pool, &client).await?;
    let mut from =
        FromClone { line: Some(line), first, upstream, in_flight, tells_end: true, lasting: None, is_ended: false };
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| from.poll_frame(cx)).await {
        let frame = frame.map_err(|_| Refusal::CloneEnded)?;
        let part = frame.data_ref().map_or(&[][..], |part| part);
        if whole.len() + part.len() > answer_bytes_max {
            return Err(Refusal::BadAnswer);
        }
        if claim.as_mut().is_some_and(|claim| !claim.cover(whole.len() + part.len())) {
            return Err(Refusal::Dropped(Dropped::default()));
        }
        whole.extend_from_slice(part);
    }
    let whole = whole.freeze();
    let whole = match claim {
        Some(claim) => claim.keep(whole),
        None => whole,
    };
    Ok((response, whole))
}

impl Errand {
    /// A client's, and what is still to be known of it when it is on its way.
    pub fn of(passage: Roomed, client: &Client) -> (Self, Underway) {
        let Passage { mut request, path, terms, deadline, began, .. } = passage.out();
        request.mark();
        let Cleansed { method, uri, version, fields, incoming, host, upgrade, takes_trailers, .. } = request;
        let bytes = if incoming.is_end_stream() { Some(0) } else { incoming.size_hint().exact() };
        let body = if bytes == Some(0) { UpBody::Empty } else { UpBody::Stream(incoming) };
        let framing = bytes.map_or(Framing::Chunked, Framing::Length);
        let mut errand = Self::new((method, uri, fields), framing, body);
        errand.again = (bytes == Some(0) && errand.may_repeat()).then(Bytes::new);
        errand.asks_leave = bytes != Some(0) && errand.sought.fields.has(&header::EXPECT);
        errand.expects.upgrade = upgrade.is_some();
        // hyper has no way for them in HTTP/2.
        errand.interim = (version == Version::HTTP_11).then(|| Arc::clone(&client.flags));
        (errand.sought.host, errand.sought.path, errand.deadline) = (host, path, Some(deadline));
        (errand.patience, errand.idle) = (terms.answer_time, terms.idle_time);
        let (upgraded_idle, body_max) = (terms.upgraded_idle, terms.body_max);
        (errand, Underway { upgrade, upgraded_idle, takes_trailers, body_max, began })
    }

    fn own(own: Own<'_>) -> Self {
        let framing = Framing::Length(own.body.len() as u64);
        let head = (Method::POST, own.path.parse().unwrap_or_default(), own.headers.into());
        let (again, service) = (Some(own.body.clone()), Some(own.service.into()));
        Self { again, service, patience: own.patience, ..Self::new(head, framing, UpBody::Whole(own.body)) }
    }

    fn new((method, uri, fields): (Method, Uri, Fields), framing: Framing, body: UpBody) -> Self {
        Self {
            expects: Expects { no_body: method == Method::HEAD, upgrade: false },
            sought: Sought { host: HeaderValue::from_static(""), method, uri, path: None, fields },
            framing,
            place: None,
            stay: None,
            begins: None,
            visit: None,
            body: Some(body),
            again: None,
            sends: 0,
            tried: Vec::new(),
            want_fresh: false,
            one_spoke_first: false,
            give_up_at: None,
            ended: None,
            service: None,
            asks_leave: false,
            interim: None,
            patience: ANSWER_TIME,
            deadline: None,
            idle: ANSWER_IDLE,
        }
    }

    /// Whether the request has the same effect once or twice.
    fn may_repeat(&self) -> bool {
        let is_idempotent =
            matches!(self.sought.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE);
        is_idempotent || self.sought.fields.has(&IDEMPOTENCY_KEY)
    }

    /// Gives back the room of a request that is answered and will not be sent again.
    pub fn over(&mut self) {
        rooms::give_list(std::mem::replace(&mut self.sought.fields, Fields::List(Vec::new())));
    }

    /// Its body is short, and to be kept, so that it may be sent again.
    pub fn gathers(&self) -> bool {
        let is_short = matches!(self.framing, Framing::Length(bytes) if bytes <= REPLAY_BYTES_MAX);
        let comes = matches!(self.body, Some(UpBody::Stream(_)));
        comes && is_short && !self.asks_leave && self.may_repeat()
    }

    /// Takes the whole body.
    ///
    /// # Errors
    /// It broke off.
    pub async fn gather(&mut self) -> io::Result<()> {
        let Some(UpBody::Stream(incoming)) = self.body.take() else { return Ok(()) };
        let begun = Instant::now();
        let body = incoming.collect().await?.to_bytes();
        // It takes its time to send what it has to say: only then it waits for us.
        self.deadline = self.deadline.map(|deadline| deadline.later(begun.elapsed()));
        (self.body, self.again) = (Some(UpBody::Whole(body.clone())), Some(body));
        Ok(())
    }

    /// The request for this clone, which is told how long somebody waits from `now` on. Its head is written where the
    /// line has room.
    fn request(
        &self,
        line: &mut Line,
        upstream: &Upstream,
        body: UpBody,
        now: Instant,
    ) -> Result<line::Request, Refusal> {
        let path = self.sought.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        // HTTP/1.0 needs none, what we send does.
        let host = (!self.sought.fields.has(&header::HOST)).then_some(upstream.addr);
        let left_ms = match &self.deadline {
            Some(deadline) => Some(deadline.left_ms_at(now).ok_or_else(|| self.late())?),
            None => None,
        };
        let names = (header::HOST, DEADLINE);
        let more = [
            host.as_ref().map(|host| (names.0.as_str(), host as &dyn Display)),
            left_ms.as_ref().map(|ms| (names.1.as_str(), ms as &dyn Display)),
        ];
        let head = line::request(line.room(), &self.sought.method, path, &self.sought.fields, self.framing, more);
        let patience = left_ms.map_or(self.patience, Duration::from_millis);
        let (expects, framing, asks_leave) = (self.expects, self.framing, self.asks_leave);
        let (idle, interim) = (self.idle, self.interim.clone());
        Ok(line::Request { head, expects, framing, body, patience, idle, asks_leave, interim })
    }

    /// Its time is over, and no clone has it: how that ends. One may have had it.
    fn late(&self) -> Refusal {
        self.ended.clone().unwrap_or(Refusal::Late)
    }

    pub async fn run(&mut self, pool: &Pool, client: &Client) -> Result<Answer, Refusal> {
        // In a box: few requests are asked so, and each connection has the room that its largest request may need.
        if let Some(doorway) = self.asks_several()
            && let Some(outcome) = Box::pin(self.race(pool, client, doorway)).await
        {
            return outcome;
        }
        loop {
            let upstream = self.choose(pool, &client.peer).await?;
            let in_flight = upstream.begin();
            let (mut line, is_fresh) = match self.idle_line(&upstream) {
                Some(line) => (line, false),
                None => match Box::pin(self.new_line(pool, &upstream)).await {
                    Some(line) => (line, true),
                    None => continue,
                },
            };
            let body = self.body.take().expect("put back after each failure that goes on");
            let now = self.begins.take().filter(|_| !is_fresh).unwrap_or_else(Instant::now);
            let request = self.request(&mut line, &upstream, body, now)?;
            let attempt = upstream.count.begin_at(now);
            match line.send(request).await {
                Ok(response) => match self.first_part(&mut line).await {
                    Ok(first) => {
                        let failed = response.status().is_server_error();
                        let at = Instant::now();
                        attempt.ended_at(failed, at);
                        pool.answered(&upstream, failed);
                        return Ok(Answer { response, first, line, upstream, in_flight, at });
                    }
                    Err(error) => {
                        attempt.ended(true);
                        pool.answered(&upstream, true);
                        tracing::debug!(clone = %upstream.name, %error, "clone ended while it answered");
                        self.ready_again(Refusal::CloneEnded)?;
                    }
                },
                Err(failed) => match self.weigh(pool, client, &upstream, (attempt, is_fresh), failed) {
                    Weighed::Unsent(body) => self.body = Some(body),
                    Weighed::SpokeFirst(body) => {
                        self.body = Some(body);
                        self.one_spoke_first |= is_fresh;
                    }
                    Weighed::Over(refusal) => return Err(refusal),
                    Weighed::Silent(refusal) if self.service.is_none() => return Err(refusal),
                    Weighed::Silent(refusal) => {
                        self.ready_again(refusal)?;
                        pool.failed(&upstream);
                        self.tried.push(upstream);
                        continue;
                    }
                    Weighed::Ended(refusal) => self.ready_again(refusal)?,
                },
            }
            if is_fresh {
                pool.failed(&upstream);
                self.tried.push(upstream);
            } else {
                self.want_fresh = true;
            }
        }
    }

    /// What a failure means, and it is counted.
    fn weigh(
        &self,
        pool: &Pool,
        client: &Client,
        upstream: &Upstream,
        (attempt, is_fresh): (Try, bool),
        failed: Failed,
    ) -> Weighed {
        let count = |attempt: Try| {
            attempt.ended(true);
            pool.answered(upstream, true);
        };
        match failed {
            Failed::Unsent(body) => Weighed::Unsent(body),
            Failed::SpokeFirst(body) => {
                // On a line that has been idle it is the end of that line, as many servers say why they close one.
                if is_fresh {
                    count(attempt);
                    tracing::debug!(clone = %upstream.name, "clone spoke before it was asked");
                }
                Weighed::SpokeFirst(body)
            }
            // Other clones are of the same program.
            Failed::Speaks(tongue) => {
                count(attempt);
                Weighed::Over(Refusal::Speaks(tongue))
            }
            // One that was given little time need not be sick.
            Failed::TimedOut if self.deadline.is_some_and(|deadline| deadline.is_said) => {
                Weighed::Over(Refusal::LateAnswer)
            }
            Failed::TimedOut => {
                attempt.silent();
                pool.answered(upstream, true);
                Weighed::Silent(Refusal::CloneSilent(self.patience))
            }
            // That is not the clone's fault.
            Failed::Upload => Weighed::Over(body_broken(client)),
            Failed::NoAnswer(why) => {
                count(attempt);
                tracing::debug!(clone = %upstream.name, why, "clone's answer is none");
                Weighed::Ended(Refusal::BadAnswer)
            }
            Failed::Ended(error) => {
                count(attempt);
                tracing::debug!(clone = %upstream.name, %error, "clone ended before it answered");
                Weighed::Ended(Refusal::CloneEnded)
            }
        }
    }

    /// The clone for the next try, waiting a little if there is none.
    async fn choose(&mut self, pool: &Pool, peer: &Peer) -> Result<Arc<Upstream>, Refusal> {
        loop {
            let refusal;
            {
                let table = pool.table();
                let asked = self.sought.asked(peer);
                let found = match &self.service {
                    Some(name) => table.find_service(name),
                    None => table.find(self.place.as_ref(), &asked),
                };
                match found {
                    Some(found) if table.routes.is_off(found) => return Err(Refusal::Off(Dropped::default())),
                    Some(found) => {
                        self.visit.get_or_insert_with(|| table.enter(found));
                        let target = table.target(found, &asked);
                        if let Some(upstream) = pool.choose(&target, &self.tried) {
                            self.stay = affinity::stay(&table.routes, found, &target, &upstream, peer.is_https);
                            return Ok(upstream);
                        }
                        // For the node's own nobody waits until a clone is back: it may ask for less, which was not to
                        // blame.
                        if let Some(ended) = self.ended.take().filter(|_| self.service.is_some()) {
                            return Err(ended);
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
            let left = self.deadline.map_or(TRY_AGAIN, |deadline| deadline.left());
            if left.is_zero() {
                return Err(self.late());
            }
            self.begins = None;
            Box::pin(pool.wait_for_change(left.min(TRY_AGAIN))).await;
            self.tried.clear();
        }
    }

    fn idle_line(&mut self, upstream: &Upstream) -> Option<Box<Line>> {
        let surely = self.again.is_none();
        if std::mem::take(&mut self.want_fresh) { None } else { upstream.idle.take(surely) }
    }

    async fn new_line(&mut self, pool: &Pool, upstream: &Arc<Upstream>) -> Option<Box<Line>> {
        match pool.connect(upstream).await {
            Ok(stream) => Some(Box::new(Line::new(stream))),
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
                self.ended = Some(end);
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
