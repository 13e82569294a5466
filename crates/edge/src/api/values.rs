//! Values of a namespace over HTTP, for programs that speak no Redis: by key, or by a cookie that a browser keeps. The
//! namespace's token is needed. Versions are entity tags, so conditional requests mean what HTTP says.

use std::ops::RangeInclusive;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::frame::PRIORITY_MAX;
use base::{Priority, Span};
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Serialize;
use state::session::{Action, Kind, Lease, Op, Reply, Version, When};

use super::address::{Keyed, Path, Query};
use super::class::{only_session, without};
use super::declare::whole;
use super::limits::*;
use super::linear::Look;
use super::offers::{Keys, Request};
use super::problem::done;
use super::{Api, Problem, guard, linear, offers};
use crate::cookie::{self, Held, NoChance};
use crate::handle::Handle;
use crate::wall::wall_ms;

/// What is left of a value's lease in an answer; the lease to give in a request.
pub const LEASE: HeaderName = HeaderName::from_static("coppice-lease-ms");
/// How much what is done here matters, and how long somebody waits for it, as the edge says with each request.
const PRIORITY: HeaderName = HeaderName::from_static("coppice-priority");
const DEADLINE: HeaderName = HeaderName::from_static("coppice-deadline-ms");

type Done = Result<Response, Problem>;

/// 200 with the value, 304 if the client has this version, 404 if there is none, 410 if it was lost with its bricks.
pub async fn get(
    State(api): State<Api>,
    Keyed { ns, key }: Keyed,
    query: Result<Query<Look>, Problem>,
    headers: HeaderMap,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let keys = keys(&api, &ns)?;
    let Query(look) = query?;
    if look.stale.is_some() && !keys.reads_stale {
        return Err(Problem::wrong(format!("stale is for namespaces of class {}", with(|keys| keys.reads_stale))));
    }
    (keys.get)(Request { api: &api, ns, headers: &headers }, key, &look).await
}

/// 204 when it is stored; 412 if `If-Match` or `If-None-Match: *` does not hold.
pub async fn put(
    State(api): State<Api>,
    Keyed { ns, key }: Keyed,
    query: Result<Query<linear::Put>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let Query(query) = query?;
    let keys = keys(&api, &ns)?;
    if query.wants_old() && !keys.gives_old {
        return Err(Problem::wrong(format!("return is for namespaces of class {}", with(|keys| keys.gives_old))));
    }
    (keys.put)(Request { api: &api, ns, headers: &headers }, key, query, body).await
}

/// 204 when it is removed, 404 if there was none, 412 if `If-Match` does not hold.
pub async fn remove(State(api): State<Api>, Keyed { ns, key }: Keyed, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let keys = keys(&api, &ns)?;
    (keys.remove)(Request { api: &api, ns, headers: &headers }, key).await
}

/// Keys of a namespace, or how many there are.
pub async fn list(
    State(api): State<Api>,
    Path(ns): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let list = offers::of(&api, &ns, |offer| offer.list)?;
    list(Request { api: &api, ns, headers: &headers }, &query.unwrap_or_default()).await
}

/// `{"function": NAME, "args": [...]}` on a key.
pub async fn apply(
    State(api): State<Api>,
    Keyed { ns, key }: Keyed,
    query: Result<Query<Look>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let Query(look) = query?;
    let apply = offers::of(&api, &ns, |offer| offer.apply)?;
    apply(Request { api: &api, ns, headers: &headers }, key, &look, body).await
}

/// Changes, as a stream of events.
pub async fn watch(
    State(api): State<Api>,
    Path(ns): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let watch = offers::of(&api, &ns, |offer| offer.watch)?;
    watch(Request { api: &api, ns, headers: &headers }, &query.unwrap_or_default()).await
}

/// How the values of a namespace are reached by key.
fn keys(api: &Api, ns: &str) -> Result<&'static Keys, Problem> {
    offers::of(api, ns, |offer| offer.keys.as_ref())
}

/// Names of the classes whose values at keys are so.
fn with(is_so: impl Fn(&Keys) -> bool) -> String {
    offers::together(&offers::names(|offer| offer.keys.as_ref().is_some_and(&is_so)))
}

pub async fn session_get(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    value(keyed(api, ns, key, Action::Get, headers).await?, headers)
}

pub async fn session_put(api: &Api, ns: String, key: Bytes, headers: &HeaderMap, body: Body) -> Done {
    without(headers, &linear::ONCE, "for namespaces of class linear")?;
    let value = whole(body, VALUE_BYTES_MAX).await?;
    let action = Action::Put { kind: Kind::Text, value, lease: lease(headers)?, when: when(headers)?, want_old: false };
    match keyed(api, ns, key, action, headers).await? {
        Reply::Stored { version, .. } => Ok((StatusCode::NO_CONTENT, [(header::ETAG, tag(version))]).into_response()),
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        other => unreachable!("a put was answered by {other:?}"),
    }
}

pub async fn session_remove(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    without(headers, &linear::ONCE, "for namespaces of class linear")?;
    let action = match when(headers)? {
        When::Always | When::Present => Action::Remove,
        When::Version(version) => Action::RemoveIf { version },
        When::Absent => return Err(Problem::wrong("DELETE takes If-Match, not If-None-Match: there must be a value")),
    };
    removed(keyed(api, ns, key, action, headers).await?)
}

/// A new lease for a value that stays as it is: 204, or 404 if there is none.
pub async fn touch(State(api): State<Api>, Keyed { ns, key }: Keyed, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_session(&api, &ns)?;
    let action = Action::Touch { lease: lease(&headers)? };
    match keyed(&api, ns, key, action, &headers).await? {
        Reply::Touched(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Reply::Touched(false) => Err(absent()),
        Reply::Lost => Err(lost()),
        other => unreachable!("a touch was answered by {other:?}"),
    }
}

#[derive(Serialize)]
struct Session {
    /// Give it back in `Cookie: coppice-NAMESPACE=...` or in `Coppice-Cookie`.
    cookie: String,
    version: String,
}

/// Stores a session. Answer: the cookie, as JSON and in `Set-Cookie`.
pub async fn cookie_put(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap, body: Body) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_session(&api, &ns)?;
    let value = whole(body, VALUE_BYTES_MAX).await?;
    let held = match held(&headers, &ns) {
        Some(held) => held,
        None => Held::fresh().map_err(no_chance)?,
    };
    let action =
        Action::Put { kind: Kind::Text, value, lease: lease(&headers)?, when: when(&headers)?, want_old: false };
    sealed(&api, &ns, held, action, &headers).await
}

/// A new lease for the session that the cookie names. Answer: the cookie that knows of it, as for `cookie_put`.
pub async fn cookie_touch(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_session(&api, &ns)?;
    let held = held(&headers, &ns).ok_or_else(|| no_cookie(&ns))?;
    sealed(&api, &ns, held, Action::Touch { lease: lease(&headers)? }, &headers).await
}

/// Does what gives a session a new cookie, and shows that.
async fn sealed(api: &Api, ns: &str, held: Held, action: Action, headers: &HeaderMap) -> Done {
    match operate(api, held.op(ns, action), headers).await? {
        Reply::Stored { version, cookie, .. } => {
            let cookie = Held { cookie, ..held }.text();
            let set = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Lax", cookie_name(ns));
            let set = HeaderValue::from_str(&set)
                .map_err(|_| Problem::wrong("the namespace's name does not fit into a cookie"))?;
            let headers = [(header::SET_COOKIE, set), (header::ETAG, tag(version))];
            Ok((headers, Json(Session { cookie, version: version.to_string() })).into_response())
        }
        Reply::BadCookie(error) => Err(Problem::cookie(error)),
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        Reply::Touched(false) => Err(absent()),
        Reply::Lost => Err(lost()),
        other => unreachable!("a put by cookie was answered by {other:?}"),
    }
}

/// The session that the cookie names.
pub async fn cookie_get(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_session(&api, &ns)?;
    let held = held(&headers, &ns).ok_or_else(|| no_cookie(&ns))?;
    value(operate(&api, held.op(&ns, Action::Get), &headers).await?, &headers)
}

/// Ends the session that the cookie names.
pub async fn cookie_remove(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_session(&api, &ns)?;
    let held = held(&headers, &ns).ok_or_else(|| no_cookie(&ns))?;
    removed(operate(&api, held.op(&ns, Action::Remove), &headers).await?)
}

/// The value of the session that a service's request came with. The handle is all that is needed.
pub async fn handle_get(State(api): State<Api>, Path(handle): Path<String>, headers: HeaderMap) -> Done {
    let (ns, Handle { held, .. }) = handled(&api, &handle)?;
    if held.cookie.is_none() {
        return Err(Problem::not_found("there is no session yet"));
    }
    value(operate(&api, held.op(&ns, Action::Get), &headers).await?, &headers)
}

/// Stores the session of a service's request. Answer: a handle, which the program returns with its answer.
pub async fn handle_put(State(api): State<Api>, Path(handle): Path<String>, headers: HeaderMap, body: Body) -> Done {
    let (ns, handle) = handled(&api, &handle)?;
    let value = whole(body, handle.max_bytes as usize).await?;
    if value.is_empty() {
        return Err(Problem::wrong("an empty value; to end the session answer with `Coppice-Session: -`"));
    }
    let action = Action::Put { kind: Kind::Text, value, lease: Lease::Default, when: When::Always, want_old: false };
    match operate(&api, handle.held.op(&ns, action), &headers).await? {
        Reply::Stored { cookie, .. } => {
            let handle = Handle { held: Held { cookie, ..handle.held }, ..handle };
            let text = handle.seal(&ns, &token(&api, &ns)).map_err(no_chance)?;
            Ok(([(header::CACHE_CONTROL, "no-store")], Json(serde_json::json!({"handle": text}))).into_response())
        }
        Reply::BadCookie(error) => Err(Problem::cookie(error)),
        other => unreachable!("a put by cookie was answered by {other:?}"),
    }
}

async fn keyed(api: &Api, ns: String, key: Bytes, action: Action, headers: &HeaderMap) -> Result<Reply, Problem> {
    operate(api, Op::keyed(ns.into(), key, action), headers).await
}

/// With the priority and within the time that a program passes on of the request that it serves.
async fn operate(api: &Api, op: Op, headers: &HeaderMap) -> Result<Reply, Problem> {
    let (priority, budget) = for_request(headers, OP_BUDGET)?;
    match api.backend.ask(Ask::Session(Op { priority, ..op }), budget).await? {
        Answer::Session(outcome) => done(outcome),
        other => unreachable!("a session operation was answered by {other:?}"),
    }
}

/// How much it matters, 0 to 9, and how long somebody waits for it, as far as that is said.
pub fn passed_on(headers: &HeaderMap) -> Result<(Option<u8>, Option<Span>), Problem> {
    let class = number(headers, &PRIORITY, 0..=u64::from(PRIORITY_MAX))?;
    let left = number(headers, &DEADLINE, 1..=u64::MAX / 1000)?;
    Ok((class.map(|class| class as u8), left.map(Span::millis)))
}

/// How much an operation matters, and its time: `most`, or what is left of the request that it is done for.
pub fn for_request(headers: &HeaderMap, most: Span) -> Result<(Priority, Span), Problem> {
    let (class, left) = passed_on(headers)?;
    Ok((class.map_or(Priority::NORMAL, Priority::of_ten), left.map_or(most, |left| left.min(most))))
}

pub fn number(headers: &HeaderMap, name: &HeaderName, range: RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
    let Some(text) = headers.get(name) else { return Ok(None) };
    let number = text.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|number| range.contains(number));
    let (from, to) = range.into_inner();
    let wrong = || Problem::wrong(format!("{name} must be a number from {from} to {to}"));
    number.map(Some).ok_or_else(wrong)
}

fn handled(api: &Api, text: &str) -> Result<(String, Handle), Problem> {
    let ns = Handle::namespace(text).unwrap_or_default().to_owned();
    let token = token(api, &ns);
    // Without a token anybody could know the key.
    let open = |token: &str| if token.is_empty() { None } else { Handle::open(text, token, wall_ms()) };
    // Its program may have got it before the token was renewed.
    let former = || open(api.view().formers.namespaces.get(&ns)?);
    let handle = open(&token).or_else(former);
    let handle =
        handle.ok_or_else(|| Problem::not_found("this is no handle of a session, or its ten minutes are over"))?;
    Ok((ns, handle))
}

fn token(api: &Api, ns: &str) -> String {
    api.view().tokens.get(ns).cloned().unwrap_or_default()
}

fn value(reply: Reply, headers: &HeaderMap) -> Done {
    match reply {
        Reply::Value { kind: Kind::Hash, .. } => {
            let why = "this is a hash, which HSET wrote: HGETALL reads it, by the Redis protocol";
            Err(Problem::new(StatusCode::CONFLICT, why))
        }
        Reply::Value { value, kind: Kind::Text, version, lease_left } => {
            let tag = tag(version);
            let same = headers.get(header::IF_NONE_MATCH).is_some_and(|has| has.as_bytes() == tag.as_bytes());
            let left = HeaderValue::from(lease_left.as_millis());
            let headers =
                [(header::ETAG, tag), (LEASE, left), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
            if same {
                return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
            }
            let kind =
                [(header::CONTENT_TYPE, "application/octet-stream"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
            Ok((headers, kind, value).into_response())
        }
        Reply::Absent => Err(absent()),
        Reply::BadCookie(error) => Err(Problem::cookie(error)),
        Reply::Lost => Err(lost()),
        other => unreachable!("a get was answered by {other:?}"),
    }
}

fn removed(reply: Reply) -> Done {
    match reply {
        Reply::Removed(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        Reply::Removed(false) => Err(absent()),
        Reply::BadCookie(error) => Err(Problem::cookie(error)),
        other => unreachable!("a remove was answered by {other:?}"),
    }
}

fn absent() -> Problem {
    Problem::not_found("there is no value here, or its lease has ended")
}

fn lost() -> Problem {
    Problem::new(StatusCode::GONE, "lost: the bricks that may have held it are all gone")
}

fn not_stored(version: Option<Version>) -> Response {
    let problem = Problem::new(
        StatusCode::PRECONDITION_FAILED,
        match version {
            Some(version) => format!("the value has version {version}"),
            None => "there is no value".to_owned(),
        },
    );
    let mut response = problem.into_response();
    if let Some(version) = version {
        response.headers_mut().insert(header::ETAG, tag(version));
    }
    response
}

fn tag(version: Version) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("hexadecimal digits are allowed in a header")
}

fn lease(headers: &HeaderMap) -> Result<Lease, Problem> {
    without(headers, &linear::ENDS, "for namespaces of class linear: in class session Coppice-Lease-Ms gives a lease")?;
    let ms = number(headers, &LEASE, 1..=u64::MAX / 1000)?;
    Ok(ms.map_or(Lease::Default, |ms| Lease::For(Span::millis(ms))))
}

fn when(headers: &HeaderMap) -> Result<When, Problem> {
    let wrong = || Problem::wrong("If-Match takes one version in quotes, or *; If-None-Match takes only *");
    match (headers.get(header::IF_MATCH), headers.get(header::IF_NONE_MATCH)) {
        (None, None) => Ok(When::Always),
        (None, Some(any)) if any.as_bytes() == b"*" => Ok(When::Absent),
        (Some(any), None) if any.as_bytes() == b"*" => Ok(When::Present),
        (Some(version), None) => {
            let text = version.to_str().ok().and_then(|t| t.strip_prefix('"')?.strip_suffix('"'));
            text.and_then(|text| text.parse().ok()).map(When::Version).ok_or_else(wrong)
        }
        (_, Some(_)) => Err(wrong()),
    }
}

fn cookie_name(ns: &str) -> String {
    format!("coppice-{ns}")
}

fn no_chance(NoChance: NoChance) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers")
}

/// What the client holds for this namespace, if anything.
fn held(headers: &HeaderMap, ns: &str) -> Option<Held> {
    let own = headers.get("coppice-cookie").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    own.or_else(|| cookie::values(headers, &cookie_name(ns)).into_iter().next()).map(|text| Held::shown(&text))
}

fn no_cookie(ns: &str) -> Problem {
    Problem::wrong(format!("the session's cookie is needed: `Cookie: {}=...` or `Coppice-Cookie`", cookie_name(ns)))
}
