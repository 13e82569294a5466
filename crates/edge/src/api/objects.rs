//! Objects of an owner over HTTP, in namespaces of class `object`: put, read and deleted by their ids, and listed.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::checksum::Summing;
use base::{Because, Outcome, Span};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use node::{Answer, Ask};
use serde::Deserialize;
use serde_json::json;
use state::class::Version;
use state::object::limits::{LIST_MAX, OBJECT_BYTES_MAX, PIECE_BYTES};
use state::object::{Action, Cutter, Id, List, Listed, Op, Reply};
use tokio::time::{Instant, timeout_at};

use super::address::{Path, Query};
use super::class::only_object;
use super::coming::Room;
use super::limits::{
    BODY_TIME_MAX, DUMP_AGAIN, OBJECT_BODY_TIME_MAX, OBJECT_BUDGET, OBJECT_PIECE_TIME_MAX, OBJECTS_COMING_MIB,
    OBJECTS_COMING_OF_ONE_MIB, object_budget,
};
use super::linear::plain;
use super::problem::{done, odd};
use super::values::for_request;
use super::{Api, Problem, guard};

/// On how many disks it is.
const COPIES: HeaderName = HeaderName::from_static("coppice-copies");

/// CRC-32C of all of an object, hexadecimal: whoever reads it in ranges checks them together.
const SUM: HeaderName = HeaderName::from_static("coppice-crc32c");

type Done = Result<Response, Problem>;
type Named = Path<(String, String, String)>;

/// 204 when it is on as many disks as are declared, or on fewer if no more nodes live: `Coppice-Copies` says on how many.
pub async fn put(State(api): State<Api>, Path((ns, owner, id)): Named, headers: HeaderMap, body: Body) -> Done {
    may(&api, &ns, &headers)?;
    let id = id_of(&id)?;
    let (body, _room) = received(&api, &ns, &headers, body).await?;
    let budget = object_budget(body.len());
    match operate(&api, &ns, &owner, Action::Put { id, body }, &headers, budget).await? {
        Reply::Stored { version, copies } => Ok(written(version, copies)),
        Reply::Gone => Err(gone()),
        Reply::Conflict { version } => {
            let why = "there is another object with this id, and objects of this namespace are written once";
            let mut response = Problem::new(StatusCode::CONFLICT, why).into_response();
            response.headers_mut().insert(header::ETAG, tag(version));
            Ok(response)
        }
        other => Err(odd(&other)),
    }
}

/// What has come, in pieces, and the room that it takes of what this node has for all that come: it is given to one when its bytes are there.
async fn received(
    api: &Api,
    ns: &str,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(state::object::Body, Vec<Room>), Problem> {
    let too_large = || {
        let why = format!("an object may have {OBJECT_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    let said = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|length| length > OBJECT_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let late = || Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    let until = Instant::now() + OBJECT_BODY_TIME_MAX;
    let (mut cutter, mut room, mut has_room) = (Cutter::default(), Vec::new(), PIECE_BYTES);
    loop {
        let frame = match timeout_at(until.min(Instant::now() + BODY_TIME_MAX), body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(Problem::wrong(format!("the body could not be read: {error}"))),
            Ok(None) => return Ok((cutter.body(), room)),
            Err(_) => return Err(late()),
        };
        let Ok(data) = frame.into_data() else { continue };
        if cutter.len() + data.len() > OBJECT_BYTES_MAX {
            return Err(too_large());
        }
        while cutter.len() + data.len() > has_room {
            room.push(api.coming.take(ns).ok_or_else(|| {
                let why = format!(
                    "large objects of {OBJECTS_COMING_MIB} MiB together are on their way in here already, or \
                     {OBJECTS_COMING_OF_ONE_MIB} MiB of this namespace"
                );
                Problem::busy(why, Span::secs(1))
            })?);
            has_room += PIECE_BYTES;
        }
        cutter.add(data);
    }
}

/// 200 with the bytes, 206 with a range of them, 304 if the client has this version, 404 if no node has it, 410 if it was deleted. A large
/// one is read piece by piece, as its client takes them, each from whatever holder lives.
pub async fn get(State(api): State<Api>, Path((ns, owner, id)): Named, method: Method, headers: HeaderMap) -> Done {
    may(&api, &ns, &headers)?;
    let wanted = if method == Method::HEAD { None } else { range_of(&headers) };
    let at = match wanted {
        // Of the end nothing is known yet.
        Some(Wanted::Last(_)) => u32::MAX,
        _ if method == Method::HEAD => u32::MAX,
        Some(Wanted::From(from, _)) => from,
        None => 0,
    };
    let mut reading = Reading { api, ns, owner, id: id_of(&id)?, headers, is: None, at: 0, end: 0, summing: None };
    let (version, size, sum, body) = reading.piece(at).await?;
    let tag = tag(version);
    let has = |name, tag: &HeaderValue| reading.headers.get(name).is_some_and(|has| has.as_bytes() == tag.as_bytes());
    let is_same = has(header::IF_NONE_MATCH, &tag);
    // A range of what it was when the client saw it; of another one it wants all.
    let wanted = wanted.filter(|_| !reading.headers.contains_key(header::IF_RANGE) || has(header::IF_RANGE, &tag));
    let (from, end) = match wanted {
        None => (0, size),
        Some(Wanted::From(from, to)) => (from, to.map_or(size, |to| to.saturating_add(1).min(size))),
        Some(Wanted::Last(count)) => (size - count.min(size), size),
    };
    let mut response = if is_same {
        StatusCode::NOT_MODIFIED.into_response()
    } else if method == Method::HEAD {
        ([(header::CONTENT_LENGTH, size)], Body::empty()).into_response()
    } else if from >= end && size > 0 {
        let mut problem =
            Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("it has {size} bytes")).into_response();
        problem.headers_mut().insert(header::CONTENT_RANGE, content_range(format!("bytes */{size}")));
        return Ok(problem);
    } else {
        (reading.at, reading.end) = (from, end);
        reading.summing = ((from, end) == (0, size)).then(Summing::default);
        // What was asked for first may not be what is wanted.
        let first = (at == from).then_some(body);
        ([(header::CONTENT_LENGTH, end - from)], reading.body(first)).into_response()
    };
    if wanted.is_some() && !is_same && size > 0 {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = content_range(format!("bytes {from}-{}/{size}", end - 1));
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    let mut response = plain(response);
    let out = response.headers_mut();
    out.insert(header::ETAG, tag);
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(SUM, HeaderValue::from_str(&format!("{sum:08x}")).expect("digits are allowed in a header"));
    Ok(response)
}

/// What a client wants of an object, of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// From one to another, both included.
    From(u32, Option<u32>),
    /// So many at the end.
    Last(u32),
}

/// One range; what is none, or several, is as if it were not there (RFC 9110 14.2).
fn range_of(headers: &HeaderMap) -> Option<Wanted> {
    let text = headers.get(header::RANGE)?.to_str().ok()?;
    let (from, to) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // More than there can be is the end.
        is_number.then(|| text.parse().unwrap_or(u32::MAX))
    };
    match (from, to) {
        ("", last) => number(last).map(Wanted::Last),
        (from, "") => Some(Wanted::From(number(from)?, None)),
        (from, to) => {
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then_some(Wanted::From(from, Some(to)))
        }
    }
}

fn content_range(text: String) -> HeaderValue {
    HeaderValue::from_str(&text).expect("a range is plain text")
}

/// An object on its way to a client.
struct Reading {
    api: Api,
    ns: String,
    owner: String,
    id: Id,
    headers: HeaderMap,
    /// Size and checksum: pieces of another write do not belong to it.
    is: Option<(u32, u32)>,
    at: u32,
    end: u32,
    /// If all of it is read.
    summing: Option<Summing>,
}

impl Reading {
    /// The bytes from there on, as far as one piece goes.
    async fn piece(&mut self, at: u32) -> Result<(Version, u32, u32, Bytes), Problem> {
        let action = Action::Get { id: self.id, at };
        match operate(&self.api, &self.ns, &self.owner, action, &self.headers, OBJECT_BUDGET).await? {
            Reply::Object { version, size, sum, body } => {
                if *self.is.get_or_insert((size, sum)) != (size, sum) {
                    return Err(Problem::busy("it was written anew while it was read", Span::millis(100)));
                }
                Ok((version, size, sum, body))
            }
            Reply::Absent => Err(absent()),
            Reply::Gone => Err(gone()),
            other => Err(odd(&other)),
        }
    }

    /// With the first bytes, if they are here.
    fn body(self, first: Option<Bytes>) -> Body {
        let left = (self.end - self.at) as usize;
        match first {
            // All that is wanted: as most objects are.
            Some(bytes) if bytes.len() >= left => Body::from(bytes.slice(..left)),
            None if left == 0 => Body::empty(),
            first => {
                let next = move |(mut reading, first): (Self, Option<Bytes>)| async move {
                    let bytes = match reading.next(first).await {
                        Ok(None) => return None,
                        Ok(Some(bytes)) => Ok(bytes),
                        // All that can be said now is that it is not whole.
                        Err(problem) => {
                            tracing::warn!(error = problem.error, "an object could not be read to its end");
                            Err(std::io::Error::other(problem.error))
                        }
                    };
                    reading.end = if bytes.is_err() { reading.at } else { reading.end };
                    Some((bytes, (reading, None)))
                };
                Body::from_stream(stream::unfold((self, first), next))
            }
        }
    }

    /// The next bytes. The last ones only if all that went before them were right.
    async fn next(&mut self, first: Option<Bytes>) -> Result<Option<Bytes>, Problem> {
        let left = (self.end - self.at) as usize;
        if left == 0 {
            return Ok(None);
        }
        let until = Instant::now() + OBJECT_PIECE_TIME_MAX;
        let bytes = match first {
            Some(bytes) => bytes,
            None => loop {
                match self.piece(self.at).await {
                    Ok((.., bytes)) => break bytes,
                    // A holder that went may be back, or its copy elsewhere.
                    Err(problem) if problem.retry_after.is_some() && Instant::now() < until => {
                        tokio::time::sleep(DUMP_AGAIN).await;
                    }
                    Err(problem) => return Err(problem),
                }
            },
        };
        if bytes.is_empty() {
            return Err(Problem::busy("a piece of it is missing", Span::millis(500)));
        }
        let bytes = bytes.slice(..bytes.len().min(left));
        self.at += bytes.len() as u32;
        if let (Some(summing), Some((_, sum))) = (&mut self.summing, self.is) {
            summing.add(&bytes);
            if self.at == self.end && summing.sum().0 != sum {
                return Err(Problem::busy("its pieces together have a wrong checksum", Span::millis(500)));
            }
        }
        Ok(Some(bytes))
    }
}

/// 204 when the deletion is on as many disks as a put would be, 404 if no node has the object.
pub async fn remove(State(api): State<Api>, Path((ns, owner, id)): Named, headers: HeaderMap) -> Done {
    may(&api, &ns, &headers)?;
    match operate(&api, &ns, &owner, Action::Delete { id: id_of(&id)? }, &headers, OBJECT_BUDGET).await? {
        Reply::Deleted { version, copies } => Ok(written(version, copies)),
        Reply::Absent => Err(absent()),
        other => Err(odd(&other)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    after: Option<String>,
    limit: Option<u64>,
}

/// Objects in order of their ids: `{"objects": [{"id", "version", "bytes"}], "after": ID, "complete": true}`. Without some nodes
/// `complete` is false, and `missing` says which.
pub async fn list(
    State(api): State<Api>,
    Path((ns, owner)): Path<(String, String)>,
    query: Result<Query<Page>, Problem>,
    headers: HeaderMap,
) -> Done {
    may(&api, &ns, &headers)?;
    let Query(Page { after, limit }) = query?;
    let limit = limit.unwrap_or(LIST_MAX as u64);
    if !(1..=LIST_MAX as u64).contains(&limit) {
        return Err(Problem::wrong(format!("limit must be 1 to {LIST_MAX} objects, not {limit}")));
    }
    let after = after.map(|id| id_of(&id)).transpose()?;
    let action = Action::List { after, limit: limit as usize };
    let List { objects, after, missing } = match operate(&api, &ns, &owner, action, &headers, OBJECT_BUDGET).await? {
        Reply::List(list) => list,
        other => return Err(odd(&other)),
    };
    let one = |Listed { id, version, size }: &Listed| json!({"id": id.to_string(), "version": version.to_string(), "bytes": size});
    let mut page = json!({"objects": objects.iter().map(one).collect::<Vec<_>>(), "complete": missing.is_empty()});
    if let Some(after) = after {
        page["after"] = after.to_string().into();
    }
    if !missing.is_empty() {
        page["missing"] = missing.iter().map(ToString::to_string).collect();
    }
    Ok(Json(page).into_response())
}

fn may(api: &Api, ns: &str, headers: &HeaderMap) -> Result<(), Problem> {
    guard::holder(headers, &api.view(), ns)?;
    only_object(api, ns)
}

async fn operate(
    api: &Api,
    ns: &str,
    owner: &str,
    action: Action,
    headers: &HeaderMap,
    most: Span,
) -> Result<Reply, Problem> {
    let (priority, budget) = for_request(headers, most)?;
    let owner = Bytes::copy_from_slice(owner.as_bytes());
    let op = Op { namespace: ns.into(), owner, action, priority };
    match api.backend.ask(Ask::Object(op), budget).await? {
        Answer::Object(Outcome::Refused(refused)) if refused.because == Because::Room => {
            let after = refused.retry_after.unwrap_or(Span::secs(1));
            Err(Problem { kind: Some("full"), ..Problem::busy(refused.why, after) })
        }
        Answer::Object(outcome) => done(outcome),
        other => unreachable!("an operation on an object was answered by {other:?}"),
    }
}

fn id_of(text: &str) -> Result<Id, Problem> {
    text.parse().map_err(|error| Problem::wrong(format!("{text:?}: {error}")))
}

fn tag(version: Version) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("hexadecimal digits are allowed in a header")
}

fn written(version: Version, copies: u32) -> Response {
    (StatusCode::NO_CONTENT, [(header::ETAG, tag(version)), (COPIES, copies.into())]).into_response()
}

fn absent() -> Problem {
    Problem::not_found("no node has such an object")
}

fn gone() -> Problem {
    Problem { kind: Some("deleted"), ..Problem::new(StatusCode::GONE, "it was deleted") }
}
