//! Values of a namespace over HTTP, for programs that speak no Redis: by key, or by a cookie that a browser keeps. The
//! namespace's token is needed. Versions are entity tags, so conditional requests mean what HTTP says.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use state::session::doc::HASH_MAGIC;
use state::session::{Action, Lease, Op, Reply, Version, When};

use super::declare::{operate, whole};
use super::limits::*;
use super::{Api, Problem, guard};

/// What is left of a value's lease in an answer; the lease to give in a request.
const LEASE: HeaderName = HeaderName::from_static("coppice-lease-ms");

type Done = Result<Response, Problem>;

/// 200 with the value, 304 if the client has this version, 404 if there is none, 410 if it was lost with its bricks.
pub async fn get(State(api): State<Api>, Path((ns, key)): Path<(String, String)>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let reply = operate(&api, Op::keyed(ns.into(), key.into(), Action::Get)).await?;
    value(reply, &headers)
}

/// 204 when it is stored; 412 if `If-Match` or `If-None-Match: *` does not hold.
pub async fn put(
    State(api): State<Api>,
    Path((ns, key)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let value = whole(body, VALUE_BYTES_MAX).await?;
    let action = Action::Put { value, lease: lease(&headers)?, when: when(&headers)?, want_old: false };
    match operate(&api, Op::keyed(ns.into(), key.into(), action)).await? {
        Reply::Stored { version, .. } => Ok((StatusCode::NO_CONTENT, [(header::ETAG, tag(version))]).into_response()),
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        other => unreachable!("a put was answered by {other:?}"),
    }
}

/// 204 when it is removed, 404 if there was none, 412 if `If-Match` does not hold.
pub async fn remove(State(api): State<Api>, Path((ns, key)): Path<(String, String)>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let action = match when(&headers)? {
        When::Always | When::Present => Action::Remove,
        When::Version(version) => Action::RemoveIf { version },
        When::Absent => return Err(Problem::wrong("DELETE takes If-Match, not If-None-Match: there must be a value")),
    };
    removed(operate(&api, Op::keyed(ns.into(), key.into(), action)).await?)
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
    let value = whole(body, VALUE_BYTES_MAX).await?;
    let (id, cookie) = match held(&headers, &ns)? {
        Some((id, cookie)) => (id, Some(cookie)),
        None => (fresh_id()?, None),
    };
    let action = Action::Put { value, lease: lease(&headers)?, when: when(&headers)?, want_old: false };
    match operate(&api, Op::cookie(ns.as_str().into(), id.clone().into(), action, cookie)).await? {
        Reply::Stored { version, cookie: Some(cookie), .. } => {
            let cookie = format!("{id}.{cookie}");
            let set = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Lax", cookie_name(&ns));
            let set = HeaderValue::from_str(&set)
                .map_err(|_| Problem::wrong("the namespace's name does not fit into a cookie"))?;
            let headers = [(header::SET_COOKIE, set), (header::ETAG, tag(version))];
            Ok((headers, Json(Session { cookie, version: version.to_string() })).into_response())
        }
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        other => unreachable!("a put by cookie was answered by {other:?}"),
    }
}

/// The session that the cookie names.
pub async fn cookie_get(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let (id, cookie) = held(&headers, &ns)?.ok_or_else(|| no_cookie(&ns))?;
    let reply = operate(&api, Op::cookie(ns.into(), id.into(), Action::Get, Some(cookie))).await?;
    value(reply, &headers)
}

/// Ends the session that the cookie names.
pub async fn cookie_remove(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    let (id, cookie) = held(&headers, &ns)?.ok_or_else(|| no_cookie(&ns))?;
    removed(operate(&api, Op::cookie(ns.into(), id.into(), Action::Remove, Some(cookie))).await?)
}

fn value(reply: Reply, headers: &HeaderMap) -> Done {
    match reply {
        Reply::Value { value, .. } if value.starts_with(HASH_MAGIC) => {
            let why = "this is a hash, which HSET wrote: HGETALL reads it, by the Redis protocol";
            Err(Problem::new(StatusCode::CONFLICT, why))
        }
        Reply::Value { value, version, lease_left } => {
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
        Reply::Absent => Err(Problem::not_found("there is no value here, or its lease has ended")),
        Reply::Lost => Err(Problem::new(StatusCode::GONE, "lost: the bricks that may have held it are all gone")),
        other => unreachable!("a get was answered by {other:?}"),
    }
}

fn removed(reply: Reply) -> Done {
    match reply {
        Reply::Removed(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Reply::NotStored { version, .. } => Ok(not_stored(version)),
        Reply::Removed(false) => Err(Problem::not_found("there is no value here, or its lease has ended")),
        other => unreachable!("a remove was answered by {other:?}"),
    }
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
    let Some(text) = headers.get(LEASE) else { return Ok(Lease::Default) };
    let ms = text.to_str().ok().and_then(|text| text.parse::<u64>().ok()).filter(|&ms| ms > 0 && ms <= u64::MAX / 1000);
    ms.map(|ms| Lease::For(Span::millis(ms)))
        .ok_or_else(|| Problem::wrong("Coppice-Lease-Ms must be a positive number"))
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

/// Bytes of chance in a session's id: two sessions never get the same.
const ID_BYTES: usize = 16;
/// An id as text.
const ID_TEXT_BYTES: usize = 22;

fn fresh_id() -> Result<String, Problem> {
    let mut id = [0; ID_BYTES];
    let filled = SystemRandom::new().fill(&mut id);
    filled.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(id))
}

/// The session's id and the class's cookie, from what the client holds; none if it holds nothing for this namespace.
fn held(headers: &HeaderMap, ns: &str) -> Result<Option<(String, String)>, Problem> {
    let name = cookie_name(ns);
    let own = headers.get("coppice-cookie").and_then(|value| value.to_str().ok());
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let Some(text) = own.or_else(|| pairs.find(|(key, _)| *key == name).map(|(_, text)| text)) else { return Ok(None) };
    match text.split_once('.') {
        Some((id, cookie)) if id.len() == ID_TEXT_BYTES && URL_SAFE_NO_PAD.decode(id).is_ok() => {
            Ok(Some((id.to_owned(), cookie.to_owned())))
        }
        _ => Err(Problem::wrong("the cookie is not one of ours")),
    }
}

fn no_cookie(ns: &str) -> Problem {
    Problem::wrong(format!("the session's cookie is needed: `Cookie: {}=...` or `Coppice-Cookie`", cookie_name(ns)))
}
