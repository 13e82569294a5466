//! The edge cache of a service: its clones' answers, kept in a namespace of class `cache` and given without asking a clone (RFC 9111,
//! RFC 5861, RFC 9211). A hit passes no turnstile and opens no session.
//!
//! - `directives.rs`: what requests and answers say of caching. `rules.rs`: what may be kept, and be given to whom.
//! - `stored.rs`: an answer as one value, its key, and its variants. `partly.rs`: ranges and conditions of clients.
//! - `flights.rs`: one fetch for all who miss the same. `fill.rs`: a body on its way to client and cache.
//!
//! What a request can say that is not in its key never reaches what is kept: the key is scheme, host, path and query as the program
//! sees them; a request with a body, an upgrade, or fields of a trusted proxy that say another address goes past the cache.
//!
//! A purge holds for what is fetched, too: the read that missed gave a mark of the key's node, and what is stored with it is refused
//! if something about it was purged since (`cache/src/marks.rs`). Who waits for another one's fetch looks again when that has ended.

mod directives;
mod fill;
mod flights;
mod partly;
mod rules;
mod stored;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime};

use base::{Outcome, Span};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use http_body::Body as _;
use node::{Answer, Ask};
use ring::rand::{SecureRandom, SystemRandom};
use state::cache::limits::{TAG_BYTES_MAX, TAGS_MAX};
use state::cache::{Act, Mark, Op, Reply};
use tokio::sync::Semaphore;

use super::body::Source;
use super::headers::{FORWARDED_PROTO, is_rewriting};
use super::limits::{
    CACHED_BODY_BYTES_MAX, CACHED_READ_BUDGET, CACHED_REFRESHES_MAX, CACHED_WAIT, CACHED_WRITE_BUDGET,
};
use super::passage::{Client, Edge, Forwarded, Passage, Roomed, forward};
use super::refusal::Refusal;
use super::session::wall_ms;
use crate::ask::Backend;
use crate::cookie;
use crate::meter::{CacheCounts, CacheMeter};
use directives::{Directives, parts};
use fill::Filling;
pub use fill::Reader;
use flights::{End, Flights, Joined, Leader, wait};
use partly::Part;
use rules::{Shows, Use, is_error, keep};
use stored::{KIND, Stored, is_safe, is_small, kept_fields, key, variant, variant_key, vary};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// So often somebody waits for another one's fetch, of which nothing came.
const WAITS_MAX: u32 = 3;

/// What edge caches of a node share.
pub struct Cached {
    backend: Arc<dyn Backend>,
    flights: Arc<Flights>,
    filling: Arc<Filling>,
    refreshes: Arc<Semaphore>,
    meter: Arc<CacheMeter>,
}

impl Cached {
    pub fn new(backend: Arc<dyn Backend>, meter: Arc<CacheMeter>) -> Self {
        let refreshes = Arc::new(Semaphore::new(CACHED_REFRESHES_MAX));
        Self { backend, flights: Arc::default(), filling: Arc::default(), refreshes, meter }
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }
}

type Given = Result<(Response<()>, Source), Refusal>;

/// One request, and where its answers are.
#[derive(Clone)]
struct Case {
    edge: Arc<Edge>,
    client: Arc<Client>,
    namespace: Arc<str>,
    counts: Arc<CacheCounts>,
    key: Bytes,
    method: Method,
    /// As they came, but for what is never passed on.
    headers: HeaderMap,
    says: Directives,
    shows: Shows,
}

/// What the cache has for a request.
struct Looked {
    found: Option<Found>,
    /// Where it is, or is to be.
    key: Bytes,
    /// None: nothing can be kept now.
    mark: Option<Mark>,
    generation: u64,
    /// Why nothing was found, in words of RFC 9211.
    miss: &'static str,
}

struct Found {
    stored: Stored,
    age_ms: u64,
}

/// Answers a request for a service that has an edge cache.
pub async fn answer(edge: &Arc<Edge>, client: &Arc<Client>, namespace: Arc<str>, mut passage: Roomed) -> Given {
    let headers = passage.request.fields.map().clone();
    let place = passage.place.as_ref().expect("whoever has a cache has a place");
    let counts = edge.cached.meter.of(place.service_name());
    let session = place.doorway.session.as_ref();
    let has_session = session.is_some_and(|session| cookie::is_shown(&headers, &session.spec.cookie));
    let key = key_of(&passage, &headers);
    let case = Case {
        edge: Arc::clone(edge),
        client: Arc::clone(client),
        namespace,
        counts,
        key: key.clone().unwrap_or_default(),
        method: passage.request.method.clone(),
        says: Directives::of_request(&headers),
        shows: stored::shows(&headers, has_session),
        headers,
    };
    if !is_safe(&case.method) {
        let forwarded = forward(edge, client, passage).await?;
        if key.is_some() && forwarded.response.status().as_u16() < 400 {
            case.invalidate(&forwarded.response).await;
        }
        return Ok(past(forwarded, "fwd=method"));
    }
    if case.method == Method::OPTIONS {
        return Ok(past(forward(edge, client, passage).await?, "fwd=method"));
    }
    let is_plain = passage.request.incoming.is_end_stream() && passage.request.is_plain();
    let is_conditional =
        [header::IF_MATCH, header::IF_UNMODIFIED_SINCE].iter().any(|name| case.headers.contains_key(name));
    if key.is_none() || !is_plain || is_conditional || case.says.no_store {
        case.counts.passed.fetch_add(1, Relaxed);
        return Ok(past(forward(edge, client, passage).await?, "fwd=bypass"));
    }
    case.get(passage).await
}

/// Whether `Cache-Control` says this word.
pub fn says(fields: &HeaderMap, word: &str) -> bool {
    directives::any_part(fields, &header::CACHE_CONTROL, word.as_bytes())
}

/// None: it is asked for something in a way that is not in a key.
fn key_of(passage: &Passage, headers: &HeaderMap) -> Option<Bytes> {
    let host = passage.request.host.to_str().ok().filter(|host| !host.is_empty())?;
    let one = |name: &HeaderName| {
        let mut all = headers.get_all(name).iter();
        all.next().filter(|_| all.next().is_none())?.to_str().ok()
    };
    let is_https = match one(&FORWARDED_PROTO)? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let is_straight = one(&FORWARDED_HOST)?.eq_ignore_ascii_case(host) && !is_rewriting(headers);
    let target = passage.request.uri.path_and_query().map_or("/", |target| target.as_str());
    is_straight.then(|| key(is_https, host, target))
}

/// An answer that the cache has nothing to do with.
fn past(forwarded: Forwarded, why: &str) -> (Response<()>, Source) {
    let (mut response, source) = forwarded.down();
    tell(response.headers_mut(), why);
    (response, source)
}

/// Says in the answer what the cache did (RFC 9211).
fn tell(fields: &mut HeaderMap, what: &str) {
    let value = HeaderValue::try_from(format!("coppice; {what}")).expect("our own words");
    fields.append(CACHE_STATUS, value);
}

impl Case {
    async fn get(self, passage: Roomed) -> Given {
        let (mut waits, mut leader) = (0, None);
        let looked = loop {
            let looked = self.look().await;
            let mut is_worth_waiting = looked.mark.is_some();
            if let Some(found) = &looked.found {
                if !found.stored.life.is_for(self.shows) {
                    // It is everybody's who shows nothing, and stays.
                    self.counts.passed.fetch_add(1, Relaxed);
                    return Ok(past(forward(&self.edge, &self.client, passage).await?, "fwd=bypass"));
                }
                match found.stored.life.serves(found.age_ms, &self.says) {
                    Use::Fresh => {
                        self.counts.hits.fetch_add(1, Relaxed);
                        return Ok(self.hit(found, if waits > 0 { "fwd=uri-miss; collapsed" } else { "hit" }));
                    }
                    Use::Meanwhile => {
                        self.counts.stale.fetch_add(1, Relaxed);
                        let given = self.hit(found, "hit; detail=stale-while-revalidate");
                        self.refresh(looked, &passage);
                        return Ok(given);
                    }
                    Use::Ask { on_error: true } if self.edge.cached.flights.is_failing(&looked.key) => {
                        self.counts.stale.fetch_add(1, Relaxed);
                        return Ok(self.hit(found, "hit; detail=stale-if-error"));
                    }
                    // One that is asked for each time is no use to who waits.
                    Use::Ask { .. } => is_worth_waiting &= found.stored.life.fresh_ms > 0,
                }
            }
            if self.says.only_if_cached {
                return Ok(not_here());
            }
            let is_part = self.headers.contains_key(header::RANGE) && looked.found.is_none();
            if self.method == Method::HEAD || is_part || looked.mark.is_none() {
                self.counts.misses.fetch_add(1, Relaxed);
                let why = if looked.found.is_some() { "stale" } else { looked.miss };
                return Ok(past(forward(&self.edge, &self.client, passage).await?, &format!("fwd={why}")));
            }
            if !is_worth_waiting || self.shows.anything() || self.says.no_cache || waits >= WAITS_MAX {
                break looked;
            }
            match self.edge.cached.flights.join(&looked.key) {
                Joined::Fetch(first) => {
                    leader = Some(first);
                    break looked;
                }
                Joined::Alone => break looked,
                Joined::Wait(heard) => match wait(heard, CACHED_WAIT.min(passage.deadline.left())).await {
                    Some(End::Look) => waits += 1,
                    Some(End::Alone) | None => break looked,
                },
            }
        };
        self.counts.misses.fetch_add(1, Relaxed);
        self.fetch(passage, looked, leader).await
    }

    /// Asks a clone, and keeps what it says if that may be.
    async fn fetch(&self, mut passage: Roomed, looked: Looked, leader: Option<Leader>) -> Given {
        let fields = passage.request.fields.map();
        for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_RANGE, header::RANGE] {
            fields.remove(name);
        }
        if let Some(Found { stored, .. }) = &looked.found {
            for (of, asks) in
                [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)]
            {
                stored.fields.get(of).into_iter().for_each(|value| _ = fields.insert(&asks, value.clone()));
            }
        }
        let asked_at = Instant::now();
        let forwarded = forward(&self.edge, &self.client, passage).await;
        let failed = match &forwarded {
            Ok(forwarded) => is_error(forwarded.response.status()),
            Err(refusal) => refusal.is_ours() || *refusal == Refusal::Late,
        };
        let status = forwarded.as_ref().map_or(502, |forwarded| forwarded.response.status().as_u16());
        if failed {
            if let Some(found) = &looked.found
                && found.stored.life.serves(found.age_ms, &self.says) == (Use::Ask { on_error: true })
            {
                self.edge.cached.flights.fails(&looked.key);
                end(leader, End::Look);
                self.counts.stale.fetch_add(1, Relaxed);
                return Ok(self.hit(found, &format!("fwd=stale; fwd-status={status}; detail=stale-if-error")));
            }
            // All who wait see for themselves; this passes, so it is not remembered.
            end(leader, End::Look);
            return Ok(past(forwarded?, &format!("fwd={}", looked.why())));
        }
        let forwarded = forwarded?;
        if status == 304
            && let Some(found) = looked.found
        {
            return Ok(self.confirmed(forwarded, found, &looked.key, looked.mark, leader, asked_at).await);
        }
        self.keep(forwarded, looked, leader, asked_at).await
    }

    /// What is stored is still good, says the clone.
    async fn confirmed(
        &self,
        forwarded: Forwarded,
        found: Found,
        at: &Bytes,
        mark: Option<Mark>,
        leader: Option<Leader>,
        asked_at: Instant,
    ) -> (Response<()>, Source) {
        let (response, source) = forwarded.down();
        drop(source);
        let mut stored = found.stored;
        let mut said = response.into_parts().0.headers;
        said.entry(header::DATE).or_insert_with(now_text);
        stored.update(&said);
        let took_s = asked_at.elapsed().as_secs();
        let life = keep(self.shows, stored.status, &stored.fields, wall_ms() / 1000, took_s);
        let mut is_kept = false;
        match life.zip(tags(&stored.fields)) {
            Some((life, tags)) => {
                (stored.life, stored.kept_ms) = (life, life.kept_ms(stored.has_validator()));
                is_kept = self.write(at.clone(), &stored, tags, mark).await;
            }
            None => self.remove(at.clone()).await,
        }
        end(leader, End::Look);
        let age_ms = life.map_or(0, |life| life.age_ms);
        let stores = if is_kept { "; stored" } else { "" };
        let found = Found { stored, age_ms };
        let (mut response, source) = self.hit(&found, &format!("fwd=stale; fwd-status=304{stores}"));
        for cookie in said.get_all(header::SET_COOKIE) {
            response.headers_mut().append(header::SET_COOKIE, cookie.clone());
        }
        (response, source)
    }

    /// A new answer: to the client, and into the cache if it may be kept.
    async fn keep(&self, forwarded: Forwarded, looked: Looked, leader: Option<Leader>, asked_at: Instant) -> Given {
        let why = looked.why();
        let fields = forwarded.response.headers();
        let status = forwarded.response.status();
        let length = fields.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
        let is_whole = forwarded.is_own
            && forwarded.from.as_ref().is_some_and(|from| from.tells_end)
            && length.is_none_or(|length| length <= CACHED_BODY_BYTES_MAX as u64)
            && is_small(fields);
        let took_s = asked_at.elapsed().as_secs();
        let life = keep(self.shows, status, fields, wall_ms() / 1000, took_s).filter(|_| is_whole);
        let Some(((life, vary), tags)) = life.zip(vary(fields)).zip(tags(fields)) else {
            end(leader, End::Alone);
            if looked.found.is_some() {
                self.remove(looked.key).await;
            }
            return Ok(past(forwarded, &format!("fwd={why}")));
        };
        let mut kept = kept_fields(fields);
        kept.entry(header::DATE).or_insert_with(now_text);
        let mut stored = Stored {
            status,
            life,
            kept_ms: 0,
            variant: variant(&vary, &self.headers),
            vary,
            generation: looked.generation,
            fields: kept,
            body: Bytes::new(),
        };
        stored.kept_ms = life.kept_ms(stored.has_validator());
        let Forwarded { mut response, from, stay, is_own: _ } = forwarded;
        let from = from.expect("looked at just above");
        let filling = Arc::clone(&self.edge.cached.filling);
        let (reader, whole) = fill::begin(from, length, CACHED_BODY_BYTES_MAX, filling);
        let case = self.clone();
        let (at, mark) = (looked.key, looked.mark);
        let is_known = status == StatusCode::OK && partly::is_known(&self.headers, &stored.fields);
        tokio::spawn(async move {
            let read_at = Instant::now();
            let Some(body) = whole.await else { return end(leader, End::Alone) };
            // It got older while it came.
            stored.life.age_ms += read_at.elapsed().as_millis() as u64;
            stored.body = body;
            case.write(at, &stored, tags, mark).await;
            end(leader, End::Look);
        });
        tell(response.headers_mut(), &format!("fwd={why}; stored"));
        response.headers_mut().entry(header::DATE).or_insert_with(now_text);
        stay.into_iter().for_each(|stay| _ = response.headers_mut().append(header::SET_COOKIE, stay));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            partly::strip_of_content(response.headers_mut());
            return Ok((response, Source::Nothing));
        }
        Ok((response, Source::Fill(reader)))
    }

    /// Asks for it anew, beside what the client gets.
    fn refresh(&self, looked: Looked, passage: &Passage) {
        let Ok(turn) = Arc::clone(&self.edge.cached.refreshes).try_acquire_owned() else { return };
        let Joined::Fetch(leader) = self.edge.cached.flights.join(&looked.key) else { return };
        let client = Arc::new(self.client.alone());
        let passage = passage.again(&client);
        let mut case = Self { client, ..self.clone() };
        // For nobody in particular.
        case.says = Directives::default();
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(refusal) = case.fetch(passage, looked, Some(leader)).await {
                tracing::debug!(?refusal, "an answer could not be asked for anew");
            }
        });
    }

    /// An answer of what is stored: whole, or what the client wants of it.
    fn hit(&self, found: &Found, what: &str) -> (Response<()>, Source) {
        let Found { stored, age_ms } = found;
        let mut response = Response::new(());
        let length = stored.body.len();
        let part = partly::part(&self.method, &self.headers, stored.status, &stored.fields, length);
        *response.headers_mut() = stored.fields.clone();
        let fields = response.headers_mut();
        fields.insert(header::AGE, HeaderValue::from(age_ms / 1000));
        let ttl = stored.life.fresh_ms as i64 / 1000 - *age_ms as i64 / 1000;
        tell(fields, &format!("{what}; ttl={ttl}"));
        let mut body = stored.body.clone();
        let status = match part {
            Part::All => stored.status,
            Part::None => {
                partly::strip_of_content(fields);
                StatusCode::NOT_MODIFIED
            }
            Part::Of(range) => {
                let of = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                fields.insert(header::CONTENT_RANGE, HeaderValue::try_from(of).expect("numbers"));
                body = body.slice(range);
                StatusCode::PARTIAL_CONTENT
            }
            Part::Nowhere => {
                partly::strip_of_content(fields);
                let of = HeaderValue::try_from(format!("bytes */{length}")).expect("a number");
                fields.insert(header::CONTENT_RANGE, of);
                body = Bytes::new();
                StatusCode::RANGE_NOT_SATISFIABLE
            }
        };
        if self.method == Method::HEAD && status != StatusCode::NOT_MODIFIED {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.status_mut() = status;
        let has_body = self.method != Method::HEAD && status != StatusCode::NOT_MODIFIED;
        (response, if has_body { Source::Bytes(body) } else { Source::Nothing })
    }

    async fn look(&self) -> Looked {
        let (first, mark) = self.read(&self.key).await;
        let Some(first) = first else {
            let (key, generation) = (self.key.clone(), generation());
            return Looked { found: None, key, mark, generation, miss: "uri-miss" };
        };
        let generation = first.stored.generation;
        if first.stored.is_for(&self.headers) {
            let key = self.key.clone();
            return Looked { found: Some(first), key, mark, generation, miss: "uri-miss" };
        }
        let own = variant(&first.stored.vary, &self.headers);
        let key = variant_key(&self.key, generation, &own);
        let (found, mark) = self.read(&key).await;
        let is_it = |found: &Found| found.stored.generation == generation && found.stored.is_for(&self.headers);
        Looked { found: found.filter(is_it), key, mark, generation, miss: "vary-miss" }
    }

    async fn ask(&self, key: Bytes, act: Act, budget: Span) -> Option<Reply> {
        let op = Op::new(Arc::clone(&self.namespace), key, act);
        match self.edge.cached.backend.ask(Ask::Cache(op), budget).await {
            Ok(Answer::Cache(Outcome::Done(reply))) => Some(reply),
            Ok(Answer::Cache(_)) | Err(crate::ask::Gone) => None,
            Ok(other) => unreachable!("a cache operation was answered by {other:?}"),
        }
    }

    async fn read(&self, key: &Bytes) -> (Option<Found>, Option<Mark>) {
        match self.ask(key.clone(), Act::Read, CACHED_READ_BUDGET).await {
            Some(Reply::Read { entry, mark }) => {
                let found = entry.filter(|entry| entry.kind == KIND).and_then(|entry| {
                    let left_ms = entry.ttl_left?.as_millis();
                    let stored = Stored::decode(entry.value)?;
                    Some(Found { age_ms: stored.age_ms(left_ms), stored })
                });
                (found, mark)
            }
            Some(other) => unreachable!("a read was answered by {other:?}"),
            None => (None, None),
        }
    }

    /// Whether it is stored.
    async fn write(&self, key: Bytes, stored: &Stored, tags: Vec<Bytes>, mark: Option<Mark>) -> bool {
        let Some(mark) = mark else { return false };
        let value = stored.encode();
        let bytes = value.len() as u64;
        let (kind, ttl) = (Bytes::from_static(KIND), Some(Span::millis(stored.kept_ms)));
        let act = Act::Set { value, kind, tags, ttl, only_present: false, mark: Some(mark) };
        let is_stored = self.ask(key, act, CACHED_WRITE_BUDGET).await == Some(Reply::Stored);
        if is_stored {
            self.counts.stored.fetch_add(1, Relaxed);
            self.counts.stored_bytes.fetch_add(bytes, Relaxed);
        }
        is_stored
    }

    async fn remove(&self, key: Bytes) {
        self.ask(key, Act::Remove, CACHED_WRITE_BUDGET).await;
    }

    /// What was changed at this address is not kept any more (RFC 9111 4.4).
    async fn invalidate(&self, response: &Response<()>) {
        self.remove(self.key.clone()).await;
        let others = [header::LOCATION, header::CONTENT_LOCATION];
        let others = others.iter().filter_map(|name| response.headers().get(name)?.to_str().ok());
        for other in others.filter_map(|text| self.beside(text)) {
            self.remove(other).await;
        }
    }

    /// The key of another address of the same host.
    fn beside(&self, text: &str) -> Option<Bytes> {
        let own = std::str::from_utf8(&self.key).ok()?;
        let (scheme, rest) = own.split_once("://")?;
        let host = &rest[..rest.find('/')?];
        let uri: Uri = text.parse().ok()?;
        let is_ours = uri.authority().is_none_or(|of| of.as_str().eq_ignore_ascii_case(host))
            && uri.scheme_str().is_none_or(|of| of == scheme);
        let target = uri.path_and_query()?.as_str();
        (is_ours && target.starts_with('/')).then(|| key(scheme == "https", host, target))
    }
}

impl Looked {
    fn why(&self) -> &'static str {
        if self.found.is_some() { "stale" } else { self.miss }
    }
}

fn end(leader: Option<Leader>, how: End) {
    if let Some(leader) = leader {
        leader.end(how);
    }
}

/// Tags of an answer. None: there are more than a cache takes, so it could not be purged by all of them.
fn tags(fields: &HeaderMap) -> Option<Vec<Bytes>> {
    let mut tags: Vec<Bytes> = Vec::new();
    for tag in fields.get_all(CACHE_TAG).iter().flat_map(|value| parts(value.as_bytes())) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(Bytes::copy_from_slice(tag));
        }
    }
    (tags.len() <= TAGS_MAX && tags.iter().all(|tag| tag.len() <= TAG_BYTES_MAX)).then_some(tags)
}

/// The client wants it only if it is here (RFC 9111 5.2.1.7).
fn not_here() -> (Response<()>, Source) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    tell(fields, "detail=only-if-cached");
    (response, Source::Bytes(Bytes::from_static(b"this is not in the cache, and the request wants nothing else\n")))
}

fn generation() -> u64 {
    let mut bytes = [0; 8];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u64::from_be_bytes(bytes),
        Err(_) => wall_ms(),
    }
}

fn now_text() -> HeaderValue {
    HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())).expect("a date is plain ASCII")
}
