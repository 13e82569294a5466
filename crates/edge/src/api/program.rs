//! Programs of nodes: another one is put on all of them, and said to be what a node becomes with its next restart. The operator's
//! token is needed. Where they lie, and how a node becomes one, is the program's (`coppice/src/program.rs`).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use base::Span;
use serde::Deserialize;

pub use crate::ask::{Kept, Runs};

use super::address::{Path, Query};
use super::declare::whole;
use super::limits::CODE_BYTES_MAX;
use super::{Api, Problem, guard};

/// A program takes seconds.
const RETRY_AFTER: Span = Span::secs(5);

/// Body: a program with this SHA-256. Answer: [`Kept`].
pub async fn put(
    State(api): State<Api>,
    Path(digest): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Kept>, Problem> {
    let token = guard::operators_token(&headers, &api.view())?;
    let full = |_| Problem::busy("other programs or archives are on their way to this node already", RETRY_AFTER);
    let _place = api.uploads.try_acquire().map_err(full)?;
    let bytes = whole(body, CODE_BYTES_MAX).await?;
    api.backend.keep_program(digest, bytes, token).await.map(Json).map_err(Problem::wrong)
}

/// Answer: [`Runs`].
pub async fn get(State(api): State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Json<Runs>, Problem> {
    let token = guard::operators_token(&headers, &api.view())?;
    api.backend.program(name, None, token).await.map(Json).map_err(Problem::wrong)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choose {
    /// A SHA-256, or `before`. Whether it is there is looked at behind the token.
    #[serde(default)]
    to: String,
}

/// That node becomes this one with its next restart. Answer: [`Runs`].
pub async fn choose(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(Choose { to }): Query<Choose>,
    headers: HeaderMap,
) -> Result<Json<Runs>, Problem> {
    let token = guard::operators_token(&headers, &api.view())?;
    if to.is_empty() {
        return Err(Problem::wrong("say which program: ?to=SHA-256, or ?to=before"));
    }
    api.backend.program(name, Some(to), token).await.map(Json).map_err(Problem::wrong)
}
