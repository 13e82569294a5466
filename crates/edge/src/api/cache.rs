//! Entries of class `cache` over HTTP: by key, as those of the other classes; and purges.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::{NodeId, Span};
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Deserialize;
use state::cache::limits::{FETCH_MAX, VALUE_BYTES_MAX};
use state::cache::{Act, Entry, Mark, Op, Reply, What};

use super::address::{Path, Query};
use super::class::{only_cache, without};
use super::declare::whole;
use super::limits::{FETCH_BUDGET, PURGE_BUDGET};
use super::linear::{ENDS, ONCE};
use super::problem::done;
use super::values::{LEASE, for_request, number};
use super::{Api, Problem, guard};

/// Tags of an entry, with commas between them.
const TAGS: HeaderName = HeaderName::from_static("cache-tag");

/// Who asks fetches what is missing, and is the only one for so long.
const FETCH: HeaderName = HeaderName::from_static("coppice-fetch-ms");
/// The moment at which nothing was found: what is stored with it is so only if nothing about it was purged since.
const MARK: HeaderName = HeaderName::from_static("coppice-mark");

type Done = Result<Response, Problem>;

/// 200 with the value, or 404: there is none, or not any more.
pub async fn get(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    if let Some(ms) = number(headers, &FETCH, 1..=FETCH_MAX.as_millis())? {
        return fetch(api, ns, key, Span::millis(ms), headers).await;
    }
    match operate(api, ns, key, Act::Get, headers).await? {
        Reply::Value { value, kind, tags, ttl_left } => Ok(found(Entry { value, kind, tags, ttl_left })),
        Reply::Absent => Err(absent()),
        other => unreachable!("a get was answered by {other:?}"),
    }
}

/// The same, but who gets 404 is to fetch it: no other one does for that time. Those that ask meanwhile wait until it is there.
async fn fetch(api: &Api, ns: String, key: Bytes, within: Span, headers: &HeaderMap) -> Done {
    match operate_within(api, ns, key, Act::Fetch(within), headers, FETCH_BUDGET).await? {
        Reply::Read { entry: Some(entry), .. } => Ok(found(entry)),
        Reply::Read { entry: None, mark } => {
            let mut response = absent().into_response();
            if let Some(Mark { node, life, number }) = mark
                && let Ok(mark) = HeaderValue::try_from(format!("{}.{life}.{number}", node.0))
            {
                response.headers_mut().insert(MARK, mark);
            }
            Ok(response)
        }
        other => unreachable!("a fetch was answered by {other:?}"),
    }
}

fn found(entry: Entry) -> Response {
    let Entry { value, kind, tags, ttl_left } = entry;
    let octets = HeaderValue::from_static("application/octet-stream");
    let kind = Some(kind).filter(|kind| !kind.is_empty());
    let kind = kind.and_then(|kind| HeaderValue::from_bytes(&kind).ok()).unwrap_or(octets);
    // Whoever stored it said what it is: no browser is to run it with the rights of this address.
    let fixed = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let mut response = (fixed, value).into_response();
    if let Ok(tags) = HeaderValue::from_bytes(&tags.join(&b", "[..]))
        && !tags.is_empty()
    {
        response.headers_mut().insert(TAGS, tags);
    }
    if let Some(left) = ttl_left {
        response.headers_mut().insert(ENDS, HeaderValue::from(left.as_millis().max(1)));
    }
    response
}

/// 204 when it is stored; 412 if `If-Match: *` does not hold, or it may have been purged since `Coppice-Mark`.
pub async fn put(api: &Api, ns: String, key: Bytes, headers: &HeaderMap, body: Body) -> Done {
    without(
        headers,
        &LEASE,
        "for namespaces of class session: in class cache Coppice-Ends-Ms says when an entry ends",
    )?;
    without(headers, &ONCE, "for namespaces of class linear")?;
    without(
        headers,
        &header::IF_NONE_MATCH,
        "not for class cache, which may forget who was first: class linear decides it",
    )?;
    let only_present = match headers.get(header::IF_MATCH) {
        None => false,
        Some(any) if any.as_bytes() == b"*" => true,
        Some(_) => return Err(Problem::wrong("entries of a cache have no versions: If-Match takes only *")),
    };
    let ttl = match headers.get(ENDS) {
        None => None,
        Some(ms) => match ms.to_str().ok().and_then(|ms| ms.parse::<u64>().ok()).filter(|ms| *ms > 0) {
            Some(ms) if ms <= u64::MAX / 1000 => Some(Span::millis(ms)),
            _ => return Err(Problem::wrong("Coppice-Ends-Ms must be a positive number")),
        },
    };
    let kind = headers.get(header::CONTENT_TYPE).map_or(Bytes::new(), |kind| Bytes::copy_from_slice(kind.as_bytes()));
    let tags = headers.get_all(TAGS).iter().flat_map(|tags| tags.as_bytes().split(|byte| *byte == b','));
    let tags = tags.map(|tag| Bytes::copy_from_slice(tag.trim_ascii())).filter(|tag| !tag.is_empty()).collect();
    let mark = match headers.get(MARK) {
        None => None,
        Some(mark) => {
            let wrong = || Problem::wrong("Coppice-Mark must be as it came with the answer 404");
            Some(mark.to_str().ok().and_then(read_mark).ok_or_else(wrong)?)
        }
    };
    let value = whole(body, VALUE_BYTES_MAX).await?;
    match operate(api, ns, key, Act::Set { value, kind, tags, ttl, only_present, mark }, headers).await? {
        Reply::Stored => Ok(StatusCode::NO_CONTENT.into_response()),
        Reply::NotStored if mark.is_some() => {
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "it may have been purged while it was fetched"))
        }
        Reply::NotStored => Err(Problem::new(StatusCode::PRECONDITION_FAILED, "there is no value")),
        other => unreachable!("a put was answered by {other:?}"),
    }
}

/// 204 when it is removed, 404 if there was none.
pub async fn remove(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    for condition in [header::IF_MATCH, header::IF_NONE_MATCH] {
        without(headers, &condition, "not for class cache, whose entries have no versions")?;
    }
    match operate(api, ns, key, Act::Remove, headers).await? {
        Reply::Changed(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Reply::Changed(false) => Err(absent()),
        other => unreachable!("a removal was answered by {other:?}"),
    }
}

/// `?key=`, `?prefix=`, `?tag=` or `?all=true`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Purges {
    key: Option<Bytes>,
    prefix: Option<Bytes>,
    tag: Option<Bytes>,
    all: bool,
}

/// 204 when no request at any node that begins from then on gets what was stored before.
pub async fn purge(
    State(api): State<Api>,
    Path(ns): Path<String>,
    query: Result<Query<Purges>, Problem>,
    headers: HeaderMap,
) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_cache(&api, &ns)?;
    let Query(Purges { key, prefix, tag, all }) = query?;
    let what = match (key, prefix, tag, all) {
        (Some(key), None, None, false) => What::Key(key),
        (None, Some(prefix), None, false) => What::Prefix(prefix),
        (None, None, Some(tag), false) => What::Tag(tag),
        (None, None, None, true) => What::All,
        _ => {
            return Err(Problem::wrong(
                "say what is to be purged, one of: ?key=KEY, ?prefix=PREFIX, ?tag=TAG, ?all=true",
            ));
        }
    };
    match operate(&api, ns, Bytes::new(), Act::Purge(what), &headers).await? {
        Reply::Purged => Ok(StatusCode::NO_CONTENT.into_response()),
        other => unreachable!("a purge was answered by {other:?}"),
    }
}

async fn operate(api: &Api, ns: String, key: Bytes, act: Act, headers: &HeaderMap) -> Result<Reply, Problem> {
    operate_within(api, ns, key, act, headers, PURGE_BUDGET).await
}

async fn operate_within(
    api: &Api,
    ns: String,
    key: Bytes,
    act: Act,
    headers: &HeaderMap,
    most: Span,
) -> Result<Reply, Problem> {
    let (priority, budget) = for_request(headers, most)?;
    let op = Op { priority, ..Op::new(ns.into(), key, act) };
    match api.backend.ask(Ask::Cache(op), budget).await? {
        Answer::Cache(outcome) => done(outcome),
        other => unreachable!("a cache operation was answered by {other:?}"),
    }
}

fn read_mark(text: &str) -> Option<Mark> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let [node, life, number] = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(Mark { node: NodeId(node), life, number })
}

fn absent() -> Problem {
    Problem::not_found("there is no value here, or not any more: a cache may forget")
}
