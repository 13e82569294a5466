//! A client's request: what is taken off and put on, whether it is let in, its session, and its answer. On its way to a clone it
//! is an `errand`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Rng;
use clones::partition::Asked;
use clones::path::{canonical, is_clear};
use flow::stage::End;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;

use super::access::Record;
use super::admit;
use super::body::{Counted, DownBody, FromClone, Source};
use super::cached::{self, Cached};
use super::check::{TOO_LARGE, TOO_MANY, UNCLEAR_PATH, Violation};
use super::drop_files::DropFiles;
use super::errand::{Answer, Errand};
use super::flags::Flags;
use super::headers::{Fields, Peer, set_forwarded, strip_one_hop, wanted_upgrade};
use super::lasting::Lasting;
use super::limits::{ANSWER_IDLE, ANSWER_TIME, UPGRADED_IDLE};
use super::passed::{self, Deadline, Tickets};
use super::piped::{Piped, Wants};
use super::profile;
use super::refusal::Refusal;
use super::reserved::is_reserved;
use super::session::{Sessions, remove_from_answer, remove_ours};
use super::upgrade::OfClient;
use super::websocket::{self, Accept};
use super::{Config, h2, upgrade};
use crate::cookie;
use crate::meter::{Door, Opened, Pipes};
use crate::pace::{Manner, Stays};
use crate::pool::Pool;
use crate::profiles::Seen;
use crate::table::Place;

/// Where a directory looks whether a host is ours (RFC 8555 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// What all requests of this door share.
pub struct Edge {
    pub pool: Arc<Pool>,
    pub door: Arc<Door>,
    /// All that may last.
    pub stays: Arc<Stays>,
    pub config: Config,
    pub sessions: Sessions,
    /// What this node has seen last of some people.
    pub profiles: Seen,
    pub cached: Arc<Cached>,
    /// What pipelines did.
    pub pipes: Arc<Pipes>,
    pub files: DropFiles,
    pub tickets: Tickets,
}

/// What all requests of one connection share (of HTTP/2, only the peer: each stream has flags of its own).
pub struct Client {
    pub peer: Arc<Peer>,
    pub flags: Arc<Flags>,
    /// It counts as open, also when it speaks something else by now; of HTTP/1.1.
    pub open: Option<Arc<Opened>>,
}

impl Client {
    /// The same one, as somebody who is not there: for what is asked beside a request.
    pub fn alone(&self) -> Client {
        Client { peer: Arc::clone(&self.peer), flags: Arc::default(), open: None }
    }
}

/// Answers one request.
pub async fn answer(edge: &Arc<Edge>, client: &Arc<Client>, request: Request<Counted>) -> Response<DownBody> {
    let began = Instant::now();
    let is_head = *request.method() == Method::HEAD;
    let mut told = Told::default();
    let outcome = carry(edge, client, began, request, &mut told).await;
    let failed = outcome.as_ref().is_err_and(Refusal::is_ours);
    let took = began.elapsed();
    edge.door.done(took, failed);
    let mut response = match outcome {
        Ok((response, source)) => response.map(|()| DownBody::of(source)),
        Err(refusal) => refusal.response(&mut Rng::new(began.elapsed().as_nanos() as u64)),
    };
    forbid(is_head, &mut response);
    edge.door.answers.note(told.service(), response.status(), took);
    if let Some(mut record) = told.record {
        let clone = response.body().clone_name().map(str::to_owned);
        record.answered(&mut response, clone.as_deref());
        response.body_mut().recorded(record);
    }
    response
}

/// What is to be told of a request, found on its way.
#[derive(Default)]
struct Told {
    record: Option<Box<Record>>,
    place: Option<Place>,
}

impl Told {
    /// Whose it is; empty: nobody's.
    fn service(&self) -> &str {
        self.place.as_ref().map_or("", Place::service_name)
    }
}

/// The answer to what is no request. It is counted as one.
pub fn refuse(edge: &Edge, violation: Violation) -> Response<DownBody> {
    edge.door.done(Duration::ZERO, false);
    let response = Refusal::Violation(violation).response(&mut Rng::new(0));
    edge.door.answers.note("", response.status(), Duration::ZERO);
    response
}

/// Takes out what an answer may not say to such a request (RFC 9110 6.4.1, 8.6, 9.3.2), whoever made it, in whichever HTTP.
fn forbid(is_head: bool, response: &mut Response<DownBody>) {
    let status = response.status();
    if is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        let bytes = response.body_mut().keep_back();
        if bytes > 0 && is_head {
            response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(bytes.into());
        }
    }
    if status == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

async fn carry(
    edge: &Arc<Edge>,
    client: &Arc<Client>,
    began: Instant,
    mut request: Request<Counted>,
    told: &mut Told,
) -> Result<(Response<()>, Source), Refusal> {
    // It shows whoever asks what the program was told for itself alone: a ticket, a session.
    if matches!(request.method().as_str(), "TRACE" | "TRACK") {
        return Err(Refusal::Violation(Violation { status: 501, why: "TRACE is not offered" }));
    }
    let expects = takes_leave(client, &mut request)?;
    let (mut accept, mut open) = (None, client.open.clone());
    if request.version() == Version::HTTP_2 && h2::to_http1(&mut request).map_err(Refusal::Violation)? {
        // A WebSocket is as dear as a connection.
        let (mut one, most) = (edge.door.opened(), edge.config.connections_max);
        let is_known = !edge.config.trust_forwarded && !client.peer.ip.is_loopback();
        if edge.door.connections() > most
            || is_known && !one.is_of(client.peer.ip, most, edge.config.address_connections_max)
        {
            return Err(Refusal::Violation(TOO_MANY));
        }
        open = Some(Arc::new(one));
        accept = Some(websocket::ask(request.headers_mut()));
    }
    if is_reserved(request.uri().path()) {
        return Err(Refusal::Reserved);
    }
    if let Some(token) = request.uri().path().strip_prefix(CHALLENGES)
        && let Some(answer) = edge.sessions.challenge(&request, token)
    {
        return Err(Refusal::Challenge(answer));
    }
    let upgrade = match accept {
        Some(_) => Some(HeaderValue::from_static("websocket")),
        None if request.version() == Version::HTTP_11 && request.body().is_end_stream() => {
            wanted_upgrade(request.headers())
        }
        None => None,
    };
    let upgrade = upgrade.zip(open);
    let upgrade = upgrade.map(|(protocol, open)| {
        let of_client = match &accept {
            Some(_) => OfClient::Http2(hyper::upgrade::on(&mut request)),
            None => OfClient::Http1(client.flags.awaits_stream()),
        };
        (protocol, Upgrade { of_client, accept, open, idle: UPGRADED_IDLE })
    });

    let (mut parts, mut incoming) = request.into_parts();
    let host = parts.headers.get(header::HOST).cloned().unwrap_or(HeaderValue::from_static(""));
    let takes_trailers = strip_one_hop(&mut parts.headers);
    set_forwarded(&mut parts.headers, &client.peer, edge.config.trust_forwarded, &edge.config.trusted_headers);
    let waits = Deadline::said(&parts.headers);
    let carried_on = passed::class(&parts.headers, edge.pool.table().secret());
    remove_ours(&mut parts.headers);
    let place = {
        let fields = Fields(&parts.headers);
        let (host, method) = (host.to_str().unwrap_or(""), parts.method.as_str());
        let (port, client) = (client.peer.port, client.peer.ip);
        let (table, path) = (edge.pool.table(), canonical(parts.uri.path()));
        let asked = Asked { port, host, path: &path, method, client, headers: &fields };
        if !is_clear(&path, |path| table.routes.find(&Asked { path, ..asked })) {
            return Err(Refusal::Violation(UNCLEAR_PATH));
        }
        table.place(&asked)
    };
    if let (Some(place), Some(logs)) = (&place, &edge.config.access)
        && !place.doorway.access_log.is_off()
    {
        let log = (logs, place.doorway.access_log, place.service_name());
        told.record = Some(Record::begin(log, &mut parts, &host, client.peer.ip, began));
    }
    told.place.clone_from(&place);
    let doorway = place.as_ref().map(|place| &place.doorway);
    let https = doorway.map(|doorway| doorway.https).unwrap_or_default();
    // As the client sees it: what is before this door may speak TLS with it.
    let is_secure = parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    if !is_secure
        && let Some(secure) = &edge.config.secure
        && https.redirects(|| edge.sessions.comes_by_itself(&host))
        && let Some(moved) = secure.place_of(&host, parts.uri.path_and_query())
    {
        return Err(Refusal::Moved(moved));
    }
    let body_max = doorway.and_then(|doorway| doorway.allows.body_max).unwrap_or(edge.config.body_bytes_max);
    if !incoming.may_have(body_max) {
        return Err(Refusal::TooLarge(body_max));
    }
    let answer_time = doorway.map_or(ANSWER_TIME, |doorway| doorway.answer_time());
    let idle_time = |default| doorway.map_or(default, |doorway| doorway.idle_time(default));
    let (idle_time, upgraded_idle) = (idle_time(ANSWER_IDLE), idle_time(UPGRADED_IDLE));
    let deadline = Deadline::of(waits, began, answer_time);
    let cache = place.as_ref().filter(|place| !place.is_off()).and_then(|place| place.doorway.cache.clone());
    let pipeline = place.as_ref().filter(|place| !place.is_off() && upgrade.is_none());
    let pipeline = pipeline.and_then(|place| Some((place.doorway.pipeline.clone()?, place.doorway.class)));
    let profile = Arc::default();
    let piped =
        pipeline.map(|(pipeline, class)| Piped::of((pipeline, Arc::clone(&profile)), &mut parts, class, deadline));
    let ready = Ready {
        parts,
        incoming,
        host,
        place,
        upgrade,
        takes_trailers,
        expects,
        carried_on,
        deadline,
        began,
        body_max,
        answer_time,
        idle_time,
        upgraded_idle,
        profile,
    };
    let answer = match cache {
        None => forward(edge, client, ready).await?.down(),
        Some(namespace) => Box::pin(cached::answer(edge, client, namespace, ready)).await?,
    };
    let mut answer = match piped {
        None => answer,
        Some(piped) => Box::pin(piped.pass(edge, answer)).await,
    };
    if let Some(seconds) = https.hsts_s.filter(|_| is_secure) {
        let value = HeaderValue::try_from(format!("max-age={seconds}")).expect("digits are allowed in a header");
        answer.0.headers_mut().entry(header::STRICT_TRANSPORT_SECURITY).or_insert(value);
    }
    Ok(answer)
}

/// A request that is understood, and where it goes.
pub struct Ready {
    pub parts: Parts,
    pub incoming: Counted,
    pub host: HeaderValue,
    pub place: Option<Place>,
    pub deadline: Deadline,
    upgrade: Option<(HeaderValue, Upgrade)>,
    takes_trailers: bool,
    expects: bool,
    /// How much that matters for which it is done.
    carried_on: Option<u8>,
    began: Instant,
    body_max: u64,
    answer_time: Duration,
    idle_time: Duration,
    upgraded_idle: Duration,
    /// What who asks wants, once that is known.
    profile: Wants,
}

impl Ready {
    /// It wants an answer and nothing else.
    pub fn is_plain(&self) -> bool {
        self.upgrade.is_none() && !self.expects
    }

    /// The same, without a body, for nobody who waits: with all the time that an answer may take.
    pub fn again(&self, client: &Client) -> Ready {
        let mut parts = Request::new(()).into_parts().0;
        (parts.method, parts.uri, parts.headers) =
            (self.parts.method.clone(), self.parts.uri.clone(), self.parts.headers.clone());
        let began = Instant::now();
        Ready {
            parts,
            incoming: Counted::none(&client.flags),
            host: self.host.clone(),
            place: self.place.clone(),
            deadline: Deadline::of(None, began, self.answer_time),
            upgrade: None,
            takes_trailers: false,
            expects: false,
            began,
            profile: Arc::default(),
            ..*self
        }
    }
}

/// A clone's answer.
pub struct Forwarded {
    pub response: Response<()>,
    /// None: nothing follows.
    pub from: Option<FromClone>,
    /// Brings its client back to the clone.
    pub stay: Option<HeaderValue>,
    /// It is not from a service that answers for the one that has no room.
    pub is_own: bool,
}

impl Forwarded {
    pub fn down(self) -> (Response<()>, Source) {
        let Self { mut response, from, stay, is_own: _ } = self;
        if let Some(stay) = stay {
            response.headers_mut().append(header::SET_COOKIE, stay);
        }
        (response, from.map_or(Source::Nothing, Source::Clone))
    }
}

/// Lets a request in, gives it to a clone, and its session to both.
pub async fn forward(edge: &Edge, client: &Client, ready: Ready) -> Result<Forwarded, Refusal> {
    let Ready {
        mut parts,
        incoming,
        host,
        place,
        mut upgrade,
        takes_trailers,
        expects,
        carried_on,
        deadline,
        began,
        body_max,
        answer_time,
        idle_time,
        upgraded_idle,
        profile,
    } = ready;
    let mut is_own = true;
    let (mut session, mut let_in) = (None, None);
    if let Some(asked) = place.clone() {
        let route = asked.doorway.session.clone();
        let raised = route.as_ref().and_then(|route| route.spec.priority);
        // What is done for another request matters as much as that one, wherever it comes in.
        let mut class = carried_on.unwrap_or(asked.doorway.class);
        if let (Some(raised), Some(route)) = (raised.filter(|raised| raised.0 > class), &route)
            && cookie::is_shown(&parts.headers, &route.spec.cookie)
        {
            // Whether its session raises it must be known before.
            let carried = edge.sessions.begin(Arc::clone(route), &mut parts.headers, raised.0, answer_time).await?;
            class = if carried.is_there() { raised.0 } else { class };
            session = Some(carried);
        }
        let own = Arc::clone(&asked.doorway);
        let (place, permit) = admit::admit(edge, asked, class, client.peer.ip, deadline).await?;
        is_own = Arc::ptr_eq(&own, &place.doorway);
        // Another service may answer for it, and that one's sessions are others.
        let route = place.doorway.session.clone();
        if session.as_ref().is_some_and(|session| route.as_ref().is_none_or(|route| !session.is_of(route))) {
            session = None;
            remove_ours(&mut parts.headers);
        }
        if session.is_none()
            && let Some(route) = route
        {
            session = Some(edge.sessions.begin(route, &mut parts.headers, class, answer_time).await?);
        }
        if let Some(session) = &mut session {
            session.class = class;
        }
        if let Some(route) = &place.doorway.profile {
            let who = (&mut parts.headers, client.peer.ip, session.as_ref());
            // A pipeline waits for it.
            let _ = profile.set(profile::tell(edge, route, who, class).await);
        }
        admit::tell(edge, &mut parts.headers, class, &place);
        let_in = Some((place, permit));
    }
    if let Some((protocol, upgrade)) = &mut upgrade {
        upgrade.idle = upgraded_idle;
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol.clone());
    } else if takes_trailers {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if expects {
        parts.headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
    }
    // hyper has no way for them in HTTP/2.
    let interim = (parts.version == Version::HTTP_11).then(|| Arc::clone(&client.flags));
    let errand = Errand::new(parts, host, upgrade.is_some(), incoming, deadline, interim).await;
    let names = |refusal| names_limit(refusal, body_max);
    let mut errand = errand.map_err(|_| names(body_broken(client)))?;
    (errand.patience, errand.idle) = (answer_time, idle_time);
    errand.place = let_in.as_ref().map(|(place, _)| place.clone());
    let answer = errand.run(&edge.pool, client).await;
    let mut answer = match answer {
        Ok(mut answer) => {
            let end = admit::end_of(&mut answer.response);
            if end == End::Overload {
                answer.upstream.count.overloaded();
            }
            if let Some((place, permit)) = let_in {
                permit.ended_at(end, answer.at);
                place.doorway.part.done(answer.at.saturating_duration_since(began));
            }
            answer
        }
        Err(refusal) => {
            if let Some((place, permit)) = let_in {
                permit.ended(if matches!(refusal, Refusal::CloneSilent(_)) { End::Overload } else { End::Gone });
                place.doorway.part.done(began.elapsed());
            }
            return Err(names(refusal));
        }
    };
    let fields = answer.response.headers_mut();
    match session {
        Some(session) => edge.sessions.finish(session, fields).await?,
        None => remove_from_answer(fields),
    }
    let (response, from) = pass_on(edge, answer, upgrade.map(|(_, client)| client), takes_trailers)?;
    Ok(Forwarded { response, from, stay: errand.stay, is_own })
}

/// Whether the client waits for leave to send its body, which is its program's to give (RFC 9110 10.1.1).
fn takes_leave(client: &Client, request: &mut Request<Counted>) -> Result<bool, Refusal> {
    let Some(expect) = request.headers_mut().remove(header::EXPECT) else { return Ok(false) };
    if !expect.as_bytes().eq_ignore_ascii_case(b"100-continue") {
        return Err(Refusal::Expectation);
    }
    // Of HTTP/2 nobody could pass it on.
    let waits = request.version() == Version::HTTP_11 && !request.body().is_end_stream();
    client.flags.set_owes_continue(waits);
    Ok(waits)
}

/// A client that wants to speak something else.
struct Upgrade {
    of_client: OfClient,
    /// Over HTTP/2: what the clone must say.
    accept: Option<Accept>,
    /// It counts as one.
    open: Arc<Opened>,
    /// It may be so long without a byte.
    idle: Duration,
}

/// The client's body did not come whole, and it is noted why unless the client just left.
pub fn body_broken(client: &Client) -> Refusal {
    let left = Violation { status: 400, why: "the request's body ended early" };
    Refusal::Violation(client.flags.violation().unwrap_or(left))
}

/// What was found out on the way is told with the number that held.
fn names_limit(refusal: Refusal, body_max: u64) -> Refusal {
    match refusal {
        Refusal::Violation(violation) if violation == TOO_LARGE => Refusal::TooLarge(body_max),
        other => other,
    }
}

/// Makes the client's answer of the clone's.
fn pass_on(
    edge: &Edge,
    answer: Answer,
    upgrade: Option<Upgrade>,
    takes_trailers: bool,
) -> Result<(Response<()>, Option<FromClone>), Refusal> {
    let Answer { mut response, first, line, upstream, in_flight, at } = answer;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(Upgrade { of_client, accept, open, idle }) = upgrade else { return Err(Refusal::BadAnswer) };
        let is_http2 = accept.is_some();
        if accept.is_some_and(|accept| !accept.take(response.headers_mut())) {
            return Err(Refusal::BadAnswer);
        }
        let protocol = response.headers_mut().remove(header::UPGRADE);
        let is_websocket = protocol.as_ref().is_some_and(|p| p.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let manner = if is_websocket { Manner::Framed } else { Manner::Quiet };
        let stay = in_flight.stay(&edge.stays, manner);
        let counted = upgrade::Counted { stay, _in_flight: in_flight, _open: open };
        let manners = if is_http2 { h2::manners() } else { None };
        tokio::spawn(upgrade::splice(*line, of_client, counted, manners, is_websocket, idle));
        strip_one_hop(response.headers_mut());
        if is_http2 {
            *response.status_mut() = StatusCode::OK;
            return Ok((response, None));
        }
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            response.headers_mut().insert(header::UPGRADE, protocol);
        }
        return Ok((response, None));
    }
    // It would mean that the WebSocket is open.
    if upgrade.is_some_and(|upgrade| upgrade.accept.is_some()) && response.status().is_success() {
        return Err(Refusal::BadAnswer);
    }
    let headers = response.headers_mut();
    let trailer = takes_trailers.then(|| headers.get_all(header::TRAILER).iter().cloned().collect::<Vec<_>>());
    strip_one_hop(headers);
    for names in trailer.into_iter().flatten() {
        // Those that are named are sent, and no others.
        headers.append(header::TRAILER, names);
    }
    let is_chunked = headers.remove(header::TRANSFER_ENCODING).is_some();
    if is_chunked {
        headers.remove(header::CONTENT_LENGTH);
    }
    let tells_end = is_chunked || line.left().is_some();
    let lasting = Lasting::of(headers, &line, at, &edge.stays);
    let from = FromClone { line: Some(line), first, upstream, in_flight, tells_end, lasting, is_ended: false };
    Ok((response, Some(from)))
}
