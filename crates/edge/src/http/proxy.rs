//! A client's request: what is taken off and put on, whether it is let in, its session, and its answer. On its way to a clone it
//! is an `errand`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Rng;
use clones::RouteSession;
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
use super::headers::{FORWARDED_PROTO, Fields, Peer, set_forwarded, strip_one_hop, wanted_upgrade};
use super::lasting::Lasting;
use super::limits::{ANSWER_IDLE, ANSWER_TIME, UPGRADED_IDLE};
use super::passed::{self, Deadline, Tickets};
use super::piped::{Piped, Wants};
use super::profile;
use super::refusal::Refusal;
use super::reserved::is_reserved;
use super::session::{Carried, Sessions, remove_from_answer, remove_ours};
use super::upgrade::OfClient;
use super::websocket::{self, Accept};
use super::{Config, h2, upgrade};
use crate::answers;
use crate::cookie;
use crate::meter::{Door, Opened, Pipes};
use crate::pace::{Manner, Stays};
use crate::pool::Pool;
use crate::profiles::Seen;
use crate::table::Place;
use crate::turnstile::Permit;

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

/// A request of which all is known that can be without waiting for anybody; so that the request itself takes no room while it is
/// waited for.
pub struct Understood {
    ready: Result<Box<Ready>, Refusal>,
    is_head: bool,
    began: Instant,
    told: Told,
}

impl Understood {
    pub fn of(edge: &Edge, client: &Client, request: Request<Counted>) -> Self {
        let (began, is_head, mut told) = (Instant::now(), *request.method() == Method::HEAD, Told::default());
        let ready = understand(edge, client, began, request, &mut told);
        Self { ready, is_head, began, told }
    }

    /// Answers it.
    pub async fn answer(self, edge: &Arc<Edge>, client: &Arc<Client>) -> Response<DownBody> {
        let Self { ready, is_head, began, told } = self;
        let outcome = match ready {
            Ok(ready) => carry(edge, client, ready).await,
            Err(refusal) => Err(refusal),
        };
        answered(edge, outcome, is_head, began, told)
    }
}

/// The answer as its client gets it, and it is counted.
fn answered(
    edge: &Edge,
    outcome: Result<(Response<()>, Source), Refusal>,
    is_head: bool,
    began: Instant,
    told: Told,
) -> Response<DownBody> {
    let failed = outcome.as_ref().is_err_and(Refusal::is_ours);
    let took = began.elapsed();
    edge.door.done(took, failed);
    let mut response = match outcome {
        Ok((response, source)) => response.map(|()| DownBody::of(source)),
        Err(refusal) => refusal.response(&mut Rng::new(took.as_nanos() as u64)),
    };
    forbid(is_head, &mut response);
    match &told.place {
        Some(place) => {
            let times = place.doorway.answers.get_or_init(|| edge.door.answers.of(place.service_name()));
            answers::note(times, response.status(), took);
        }
        None => edge.door.answers.note("", response.status(), took),
    }
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
    /// Whose it is; none: nobody's.
    place: Option<Place>,
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

/// What a request is, whom it is for, and what is to be done with it; without waiting for anybody.
fn understand(
    edge: &Edge,
    client: &Client,
    began: Instant,
    mut request: Request<Counted>,
    told: &mut Told,
) -> Result<Box<Ready>, Refusal> {
    // It shows whoever asks what the program was told for itself alone: a ticket, a session.
    if matches!(request.method().as_str(), "TRACE" | "TRACK") {
        return Err(Refusal::Violation(Violation { status: 501, why: "TRACE is not offered" }));
    }
    let expects = takes_leave(client, &mut request)?;
    let accept = opens_websocket(edge, client, &mut request)?;
    if is_reserved(request.uri().path()) {
        return Err(Refusal::Reserved);
    }
    if let Some(token) = request.uri().path().strip_prefix(CHALLENGES)
        && let Some(answer) = edge.sessions.challenge(&request, token)
    {
        return Err(Refusal::Challenge(answer));
    }
    let upgrade = upgrade_of(client, &mut request, accept);
    let (mut parts, mut incoming) = request.into_parts();
    let host = parts.headers.get(header::HOST).cloned().unwrap_or(HeaderValue::from_static(""));
    let takes_trailers = strip_one_hop(&mut parts.headers);
    set_forwarded(&mut parts.headers, &client.peer, edge.config.trust_forwarded, &edge.config.trusted_headers);
    let waits = Deadline::said(&parts.headers);
    let (carried_on, place) = find(edge, client, &mut parts, &host)?;
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
    let is_secure = parts.headers.get(FORWARDED_PROTO).is_some_and(|proto| proto == "https");
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
    let piped = place.as_ref().filter(|place| !place.is_off() && upgrade.is_none()).and_then(|place| {
        let pipeline = (place.doorway.pipeline.clone()?, Wants::default());
        Some(Box::new(Piped::of(pipeline, &mut parts, place.doorway.class, deadline)))
    });
    Ok(Box::new(Ready {
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
        hsts_s: https.hsts_s.filter(|_| is_secure),
        cache,
        profile: piped.as_ref().map(|piped| piped.wants()),
        piped,
    }))
}

/// Over HTTP/2: what the clone must say if a WebSocket is to be opened, and what counts that.
fn opens_websocket(
    edge: &Edge,
    client: &Client,
    request: &mut Request<Counted>,
) -> Result<Option<(Accept, Arc<Opened>)>, Refusal> {
    if request.version() != Version::HTTP_2 || !h2::to_http1(request).map_err(Refusal::Violation)? {
        return Ok(None);
    }
    // A WebSocket is as dear as a connection.
    let (mut one, most) = (edge.door.opened(), edge.config.connections_max);
    let is_known = !edge.config.trust_forwarded && !client.peer.ip.is_loopback();
    if edge.door.connections() > most
        || is_known && !one.is_of(client.peer.ip, most, edge.config.address_connections_max)
    {
        return Err(Refusal::Violation(TOO_MANY));
    }
    Ok(Some((websocket::ask(request.headers_mut()), Arc::new(one))))
}

/// What a client wants to speak instead, if it wants to.
fn upgrade_of(
    client: &Client,
    request: &mut Request<Counted>,
    accept: Option<(Accept, Arc<Opened>)>,
) -> Option<Box<Upgrade>> {
    let (protocol, of_client, accept, open) = match accept {
        Some((accept, open)) => {
            let of_client = OfClient::Http2(hyper::upgrade::on(request));
            (HeaderValue::from_static("websocket"), of_client, Some(accept), open)
        }
        None if request.version() == Version::HTTP_11 && request.body().is_end_stream() => {
            let protocol = wanted_upgrade(request.headers())?;
            let open = client.open.clone()?;
            (protocol, OfClient::Http1(client.flags.awaits_stream()), None, open)
        }
        None => return None,
    };
    Some(Box::new(Upgrade { protocol, of_client, accept, open }))
}

/// Who takes a request, and how much that matters for which it is done. What it says under our names is taken out.
fn find(
    edge: &Edge,
    client: &Client,
    parts: &mut Parts,
    host: &HeaderValue,
) -> Result<(Option<u8>, Option<Place>), Refusal> {
    let table = edge.pool.table();
    let carried_on = passed::class(&parts.headers, table.secret());
    remove_ours(&mut parts.headers);
    let (fields, path) = (Fields(&parts.headers), canonical(parts.uri.path()));
    let asked = Asked {
        port: client.peer.port,
        host: host.to_str().unwrap_or(""),
        path: &path,
        method: parts.method.as_str(),
        client: client.peer.ip,
        headers: &fields,
    };
    if !is_clear(&path, |path| table.routes.find(&Asked { path, ..asked })) {
        return Err(Refusal::Violation(UNCLEAR_PATH));
    }
    Ok((carried_on, table.place(&asked)))
}

/// Brings a request to a clone, or to a cache, and its answer through its pipeline.
async fn carry(
    edge: &Arc<Edge>,
    client: &Arc<Client>,
    mut ready: Box<Ready>,
) -> Result<(Response<()>, Source), Refusal> {
    let (cache, piped, hsts_s) = (ready.cache.take(), ready.piped.take(), ready.hsts_s);
    let mut answer = match cache {
        None => forward(edge, client, ready).await?.down(),
        Some(namespace) => Box::pin(cached::answer(edge, client, namespace, ready)).await?,
    };
    if let Some(piped) = piped {
        answer = Box::pin(piped.pass(edge, answer)).await;
    }
    if let Some(seconds) = hsts_s {
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
    upgrade: Option<Box<Upgrade>>,
    takes_trailers: bool,
    expects: bool,
    /// How much that matters for which it is done.
    carried_on: Option<u8>,
    began: Instant,
    body_max: u64,
    answer_time: Duration,
    idle_time: Duration,
    upgraded_idle: Duration,
    /// Its client is to come by HTTPS alone for so many seconds.
    hsts_s: Option<u64>,
    /// The namespace in which answers are kept.
    cache: Option<Arc<str>>,
    /// What its answer passes,
    piped: Option<Box<Piped>>,
    /// ... which hears what who asks wants, once that is known.
    profile: Option<Wants>,
}

impl Ready {
    /// It wants an answer and nothing else.
    pub fn is_plain(&self) -> bool {
        self.upgrade.is_none() && !self.expects
    }

    /// The same, without a body, for nobody who waits: with all the time that an answer may take.
    pub fn again(&self, client: &Client) -> Box<Ready> {
        let mut parts = Request::new(()).into_parts().0;
        (parts.method, parts.uri, parts.headers) =
            (self.parts.method.clone(), self.parts.uri.clone(), self.parts.headers.clone());
        let began = Instant::now();
        Box::new(Ready {
            parts,
            incoming: Counted::none(&client.flags),
            host: self.host.clone(),
            place: self.place.clone(),
            deadline: Deadline::of(None, began, self.answer_time),
            upgrade: None,
            takes_trailers: false,
            expects: false,
            began,
            cache: None,
            piped: None,
            profile: None,
            ..*self
        })
    }

    /// Says to the clone what its client wants of it besides an answer.
    fn mark(&mut self) {
        let fields = &mut self.parts.headers;
        if let Some(upgrade) = &self.upgrade {
            fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(header::UPGRADE, upgrade.protocol.clone());
        } else if self.takes_trailers {
            fields.insert(header::CONNECTION, HeaderValue::from_static("te"));
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if self.expects {
            fields.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
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

/// A request that was let in.
struct Entered {
    place: Place,
    permit: Permit,
    session: Option<Box<Carried>>,
    /// For its session, or a profile, after it was let in.
    has_waited: bool,
    /// The place is its own, and not that of a service which answers for it.
    is_own: bool,
}

/// Lets a request in, gives it to a clone, and its session to both.
pub async fn forward(edge: &Edge, client: &Client, mut ready: Box<Ready>) -> Result<Forwarded, Refusal> {
    let entered = match ready.place.take() {
        Some(asked) => Some(enter(edge, client, &mut ready, asked).await?),
        None => None,
    };
    ready.mark();
    let (mut errand, asked) = Errand::of(ready, client);
    let gathers = errand.gathers();
    if gathers && Box::pin(errand.gather()).await.is_err() {
        return Err(names_limit(body_broken(client), asked.body_max));
    }
    let (mut permit, mut session, mut is_own) = (None, None, true);
    if let Some(entered) = entered {
        errand.begins = entered.permit.now().filter(|_| !gathers && !entered.has_waited);
        errand.place = Some(entered.place);
        (permit, session, is_own) = (Some(entered.permit), entered.session, entered.is_own);
    }
    let outcome = errand.run(&edge.pool, client).await;
    let mut answer = settle(outcome, permit, errand.place.as_ref(), &asked)?;
    errand.over();
    match session {
        Some(session) => Box::pin(edge.sessions.finish(*session, answer.response.headers_mut())).await?,
        None => remove_from_answer(answer.response.headers_mut()),
    }
    let (response, from) = pass_on(edge, answer, asked)?;
    Ok(Forwarded { response, from, stay: errand.stay.take(), is_own })
}

/// What is still to be known of a request when it is on its way.
pub struct Underway {
    upgrade: Option<Box<Upgrade>>,
    upgraded_idle: Duration,
    takes_trailers: bool,
    body_max: u64,
    began: Instant,
}

impl Errand {
    fn of(ready: Box<Ready>, client: &Client) -> (Self, Underway) {
        let Ready {
            parts,
            incoming,
            host,
            deadline,
            upgrade,
            takes_trailers,
            began,
            body_max,
            answer_time,
            idle_time,
            upgraded_idle,
            ..
        } = *ready;
        // hyper has no way for them in HTTP/2.
        let interim = (parts.version == Version::HTTP_11).then(|| Arc::clone(&client.flags));
        let mut errand = Self::new(parts, host, upgrade.is_some(), incoming, deadline, interim);
        (errand.patience, errand.idle) = (answer_time, idle_time);
        (errand, Underway { upgrade, upgraded_idle, takes_trailers, body_max, began })
    }
}

/// Lets a request in at its place, opens its session, and tells the program of both.
async fn enter(edge: &Edge, client: &Client, ready: &mut Ready, asked: Place) -> Result<Entered, Refusal> {
    let mut session = None;
    // What is done for another request matters as much as that one, wherever it comes in.
    let mut class = ready.carried_on.unwrap_or(asked.doorway.class);
    let raised = asked.doorway.session.as_ref().and_then(|route| Some((route, route.spec.priority?)));
    if let Some((route, raised)) = raised.filter(|(_, raised)| raised.0 > class)
        && cookie::is_shown(&ready.parts.headers, &route.spec.cookie)
    {
        // Whether its session raises it must be known before.
        let carried = open_session(edge, route, ready, raised.0).await?;
        class = if carried.is_there() { raised.0 } else { class };
        session = Some(carried);
    }
    let own = Arc::as_ptr(&asked.doorway).addr();
    let (place, permit) = admit::admit(edge, client, asked, class, ready.deadline).await?;
    let is_own = own == Arc::as_ptr(&place.doorway).addr();
    // Another service may answer for it, and that one's sessions are others.
    let route = place.doorway.session.as_ref();
    if session.as_ref().is_some_and(|session| route.is_none_or(|route| !session.is_of(route))) {
        session = None;
        remove_ours(&mut ready.parts.headers);
    }
    if session.is_none()
        && let Some(route) = route
    {
        session = Some(open_session(edge, route, ready, class).await?);
    }
    if let Some(session) = &mut session {
        session.class = class;
    }
    if let Some(route) = &place.doorway.profile {
        let who = (&mut ready.parts.headers, client.peer.ip, session.as_deref());
        let wants = Box::pin(profile::tell(edge, route, who, class)).await;
        // A pipeline waits for it.
        if let Some(profile) = &ready.profile {
            let _ = profile.set(wants);
        }
    }
    admit::tell(edge, &mut ready.parts.headers, class, &place, permit.began());
    let has_waited = session.is_some() || place.doorway.profile.is_some();
    Ok(Entered { place, permit, session, has_waited, is_own })
}

async fn open_session(
    edge: &Edge,
    route: &Arc<RouteSession>,
    ready: &mut Ready,
    class: u8,
) -> Result<Box<Carried>, Refusal> {
    let begins = edge.sessions.begin(Arc::clone(route), &mut ready.parts.headers, class, ready.answer_time);
    Ok(Box::new(Box::pin(begins).await?))
}

/// Counts how a request went.
fn settle(
    outcome: Result<Answer, Refusal>,
    permit: Option<Permit>,
    place: Option<&Place>,
    asked: &Underway,
) -> Result<Answer, Refusal> {
    let let_in = permit.zip(place);
    match outcome {
        Ok(mut answer) => {
            let end = admit::end_of(&mut answer.response);
            if end == End::Overload {
                answer.upstream.count.overloaded();
            }
            if let Some((permit, place)) = let_in {
                permit.ended_at(end, answer.at);
                place.doorway.part.done(answer.at.saturating_duration_since(asked.began));
            }
            Ok(answer)
        }
        Err(refusal) => {
            if let Some((permit, place)) = let_in {
                permit.ended(if matches!(refusal, Refusal::CloneSilent(_)) { End::Overload } else { End::Gone });
                place.doorway.part.done(asked.began.elapsed());
            }
            Err(names_limit(refusal, asked.body_max))
        }
    }
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
    protocol: HeaderValue,
    of_client: OfClient,
    /// Over HTTP/2: what the clone must say.
    accept: Option<Accept>,
    /// It counts as one.
    open: Arc<Opened>,
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
fn pass_on(edge: &Edge, answer: Answer, asked: Underway) -> Result<(Response<()>, Option<FromClone>), Refusal> {
    let Underway { upgrade, upgraded_idle, takes_trailers, .. } = asked;
    if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upgrade = upgrade.ok_or(Refusal::BadAnswer)?;
        return Ok((changed(edge, answer, *upgrade, upgraded_idle)?, None));
    }
    let Answer { mut response, first, line, upstream, in_flight, at } = answer;
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

/// Both change to another protocol, which goes on without us.
fn changed(edge: &Edge, answer: Answer, upgrade: Upgrade, idle: Duration) -> Result<Response<()>, Refusal> {
    let Answer { mut response, line, in_flight, .. } = answer;
    let Upgrade { of_client, accept, open, .. } = upgrade;
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
        return Ok(response);
    }
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        response.headers_mut().insert(header::UPGRADE, protocol);
    }
    Ok(response)
}
