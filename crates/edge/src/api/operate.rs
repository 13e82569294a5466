//! What an operator does with nodes and parts of services (restart, remove, drain, disable: the operator's token is
//! needed), and what anybody may see of namespaces.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use clones::Size;
use clones::off::Target;
use node::{Answer, Ask, Leaving};
use serde::Deserialize;

use super::address::{Path, Query};
use super::declare::{change, whole};
use super::limits::{BODY_BYTES_MAX, CHANGE_BUDGET};
use super::problem::done;
use super::shown::Sight;
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Force {
    #[serde(default)]
    force: bool,
}

/// `202`: the node will close its doors, end, and be started again by whoever watches over it.
pub async fn restart(
    api: State<Api>,
    Path(name): Path<String>,
    Query(Force { force }): Query<Force>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    ask_leave(api, headers, Ask::Leave { name, how: Leaving::Restart, force }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct How {
    #[serde(default)]
    force: bool,
    /// It hands on nothing: it is shut out.
    #[serde(default)]
    now: bool,
}

/// `202`: the node will hand on what it holds, close its doors, and end; with `now` it is none of the cluster's any more.
pub async fn remove(
    api: State<Api>,
    Path(name): Path<String>,
    Query(How { force, now }): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let how = Leaving::Remove;
    let ask = if now { Ask::Remove { name, force } } else { Ask::Leave { name, how, force } };
    ask_leave(api, headers, ask).await
}

async fn ask_leave(State(api): State<Api>, headers: HeaderMap, ask: Ask) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    match api.backend.ask(ask, CHANGE_BUDGET).await? {
        Answer::Done(outcome) => {
            done(outcome)?;
            Ok((StatusCode::ACCEPTED, Json(serde_json::json!({}))).into_response())
        }
        other => unreachable!("a node's leave was answered by {other:?}"),
    }
}

/// The node gets no clones, and those that it has move elsewhere. Answer as for `apply`.
pub async fn drain(api: State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    switch(api, Target::Node(name), true, headers).await
}

pub async fn undrain(api: State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    switch(api, Target::Node(name), false, headers).await
}

/// `shop`, `shop/2` (a clone) or `shop:search` (a partition). Answer as for `apply`.
pub async fn disable(api: State<Api>, Path(part): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    switch(api, Target::parse(&part).map_err(Problem::wrong)?, true, headers).await
}

pub async fn enable(api: State<Api>, Path(part): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    switch(api, Target::parse(&part).map_err(Problem::wrong)?, false, headers).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scale {
    clones: Size,
}

/// Body: `{"clones": 3}` or `{"clones": {"min": 1, "max": 8}}`. Answer as for `apply`.
pub async fn scale(
    State(api): State<Api>,
    Path(service): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, BODY_BYTES_MAX).await?;
    let Scale { clones } = serde_json::from_slice(&body).map_err(|e| {
        Problem::wrong(format!("the body must be {{\"clones\": 3}} or {{\"clones\": {{\"min\": 1, \"max\": 8}}}}: {e}"))
    })?;
    change(&api, Ask::Scale { service, size: clones }).await
}

/// Ends a service. Answer as for `apply`.
pub async fn remove_service(
    State(api): State<Api>,
    Path(service): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    change(&api, Ask::RemoveService { service }).await
}

async fn switch(State(api): State<Api>, target: Target, off: bool, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    change(&api, Ask::Switch { target, off }).await
}

/// All namespaces: class, lease, timeout, promise, odds.
pub async fn namespaces(State(api): State<Api>, headers: HeaderMap) -> Response {
    let view = api.view();
    Json(Sight::of(&headers, &view).namespaces(&view)).into_response()
}

pub async fn namespace(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let view = api.view();
    let shown = Sight::of(&headers, &view).namespaces(&view);
    let found = shown.iter().find(|namespace| namespace.name == name);
    found.map(|namespace| Json(namespace).into_response()).ok_or_else(|| {
        let names: Vec<&str> = view.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
        Problem::not_found(format!("there is no namespace {name:?}; there are: {}", names.join(", ")))
    })
}
