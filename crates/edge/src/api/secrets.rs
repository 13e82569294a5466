//! Secrets of a service: set, listed by name, removed. The operator's token is needed, and no answer has a value that
//! whoever asked did not bring the key for.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base::process::Private;
use node::limits::SECRET_BYTES_MAX;
use node::sealed::KEY_BYTES;
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

/// Body: a key, 64 hexadecimal digits. Answer: all secrets and the cluster's certificates, sealed with it (`node/src/sealed.rs`).
pub async fn sealed(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let text = whole(body, 2 * KEY_BYTES).await?;
    let key = node::sealed::key_of(&text).ok_or_else(|| Problem::wrong("the body is a key: 64 hexadecimal digits"))?;
    match api.backend.ask(Ask::Seal { key, entropy: entropy()? }, CHANGE_BUDGET).await? {
        Answer::Sealed(outcome) => {
            let kind = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
            Ok((kind, done(outcome)?.0).into_response())
        }
        other => unreachable!("what is to be sealed was answered by {other:?}"),
    }
}
