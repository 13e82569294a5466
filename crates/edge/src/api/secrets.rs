//! Secrets of a service: set, listed by name, removed. The operator's token is needed, and no answer has a value.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use base::process::Private;
use node::limits::SECRET_BYTES_MAX;
use node::{Answer, Ask};

use super::address::Path;
use super::declare::{change, entropy, whole};
use super::limits::CHANGE_BUDGET;
use super::problem::done;
use super::{Api, Problem, guard};

/// `[{"name", "at_ms", "is_file"}]`.
pub async fn list(
    State(api): State<Api>,
    Path(service): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    match api.backend.ask(Ask::Secrets { service }, CHANGE_BUDGET).await? {
        Answer::Secrets(outcome) => Ok(Json(done(outcome)?).into_response()),
        other => unreachable!("a question for secrets was answered by {other:?}"),
    }
}

/// Body: the value, as it is. Answer as for `apply`.
pub async fn set(
    State(api): State<Api>,
    Path((service, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let value = Private(whole(body, SECRET_BYTES_MAX).await?);
    change(&api, Ask::SetSecret { service, name, value, entropy: entropy()? }).await
}

/// Answer as for `apply`.
pub async fn remove(
    State(api): State<Api>,
    Path((service, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    change(&api, Ask::RemoveSecret { service, name }).await
}
