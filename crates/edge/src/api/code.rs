//! Folders that are deployed: kept by name of their content, then made versions of services. The operator's token is needed;
//! nodes that fetch from each other have it.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use node::Ask;
use node::deploy::Wish;
use serde::Deserialize;

use super::address::{Path, Query};
use super::declare::{change, entropy, whole};
use super::limits::{CODE_BYTES_MAX, DECLARATION_BYTES_MAX, UPLOADS_MAX};
use super::{Api, Problem, guard};

/// An archive takes seconds.
const RETRY_AFTER: Span = Span::secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// It came from another node: it is not passed on.
    #[serde(default)]
    copy: bool,
}

/// Body: an archive with this SHA-256. Answer: `{"copies": n}`, on so many nodes it is.
pub async fn put(
    State(api): State<Api>,
    Path(digest): Path<String>,
    Query(Spread { copy }): Query<Spread>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let room = if copy { &api.copies } else { &api.uploads };
    let full = |_| Problem::busy(format!("{UPLOADS_MAX} archives are on their way to this node already"), RETRY_AFTER);
    let _place = room.try_acquire().map_err(full)?;
    let bytes = whole(body, CODE_BYTES_MAX).await?;
    let copies = api.backend.keep_code(digest, bytes, !copy).await.map_err(Problem::wrong)?;
    Ok(Json(serde_json::json!({"copies": copies})).into_response())
}

/// The archive, or 404.
pub async fn get(State(api): State<Api>, Path(digest): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let none = || Problem::not_found("this node does not have it");
    let bytes = api.backend.code(digest).await.ok_or_else(none)?;
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// Body: `{"service", "declaration", "code", "files", "bytes"}`. Answer as for `apply`.
pub async fn deploy(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, DECLARATION_BYTES_MAX).await?;
    let wish: Wish =
        serde_json::from_slice(&body).map_err(|e| Problem::wrong(format!("the body is no wish to deploy: {e}")))?;
    change(&api, Ask::Deploy { wish, entropy: entropy()? }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct To {
    to: Option<u32>,
}

/// Answer as for `apply`.
pub async fn rollback(
    State(api): State<Api>,
    Path(service): Path<String>,
    Query(To { to }): Query<To>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    change(&api, Ask::Rollback { service, to }).await
}
