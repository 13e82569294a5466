//! Objects of an owner over HTTP, in namespaces of class `object`: put, read and deleted by their ids, and listed.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Deserialize;
use serde_json::json;
use state::class::Version;
use state::object::limits::{LIST_MAX, OBJECT_BYTES_MAX};
use state::object::{Action, Id, List, Listed, Op, Reply};

use super::address::{Path, Query};
use super::class::only_object;
use super::declare::whole;
use super::limits::OBJECT_BUDGET;
use super::linear::plain;
use super::problem::{done, odd};
use super::values::for_request;
use super::{Api, Problem, guard};

/// On how many disks it is.
const COPIES: HeaderName = HeaderName::from_static("coppice-copies");

type Done = Result<Response, Problem>;
type Named = Path<(String, String, String)>;

/// 204 when it is on as many disks as are declared, or on fewer if no more nodes live: `Coppice-Copies` says on how many.
pub async fn put(State(api): State<Api>, Path((ns, owner, id)): Named, headers: HeaderMap, body: Body) -> Done {
    may(&api, &ns, &headers)?;
    let action = Action::Put { id: id_of(&id)?, body: whole(body, OBJECT_BYTES_MAX).await? };
    match operate(&api, ns, owner, action, &headers).await? {
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

/// 200 with the bytes, 304 if the client has this version, 404 if no node has it, 410 if it was deleted.
pub async fn get(State(api): State<Api>, Path((ns, owner, id)): Named, headers: HeaderMap) -> Done {
    may(&api, &ns, &headers)?;
    match operate(&api, ns, owner, Action::Get { id: id_of(&id)? }, &headers).await? {
        Reply::Object { version, body } => {
            let tag = tag(version);
            let same = headers.get(header::IF_NONE_MATCH).is_some_and(|has| has.as_bytes() == tag.as_bytes());
            let response = if same { StatusCode::NOT_MODIFIED.into_response() } else { body.into_response() };
            let mut response = plain(response);
            response.headers_mut().insert(header::ETAG, tag);
            Ok(response)
        }
        Reply::Absent => Err(absent()),
        Reply::Gone => Err(gone()),
        other => Err(odd(&other)),
    }
}

/// 204 when the deletion is on as many disks as a put would be, 404 if no node has the object.
pub async fn remove(State(api): State<Api>, Path((ns, owner, id)): Named, headers: HeaderMap) -> Done {
    may(&api, &ns, &headers)?;
    match operate(&api, ns, owner, Action::Delete { id: id_of(&id)? }, &headers).await? {
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
    let List { objects, after, missing } =
        match operate(&api, ns, owner, Action::List { after, limit: limit as usize }, &headers).await? {
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

async fn operate(api: &Api, ns: String, owner: String, action: Action, headers: &HeaderMap) -> Result<Reply, Problem> {
    let (priority, budget) = for_request(headers, OBJECT_BUDGET)?;
    let op = Op { namespace: ns.into(), owner: Bytes::from(owner), action, priority };
    match api.backend.ask(Ask::Object(op), budget).await? {
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
