//! The catalogue (Tempest 3.3, the registry): which services there are, which of their clones live where, at which doors they are
//! reached, and what they say of themselves. It is the view, told for programs that look for a service; births and deaths as they
//! happen come on channels (docs/guide/catalog.md). A service's description is a file of the folder that was deployed: it is
//! passed on as it is, and nobody here reads it.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use clones::RouteService;
use node::View;
use node::view::{CloneState, NodeState, NodeView, ServiceView};
use serde::Serialize;

use super::address::Path;
use super::limits::OPENAPI_BYTES_MAX;
use super::{Api, Problem};

#[derive(Serialize)]
struct Catalog<'a> {
    services: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    /// 0 if it was never deployed.
    version: u32,
    /// The one that is being rolled out.
    next: Option<u32>,
    /// Hosts and paths, or TCP ports.
    at: &'a [String],
    doors: Vec<AtDoor<'a>>,
    leader: Option<&'a str>,
    clones: Vec<Live<'a>>,
    /// Where its description is, if it has one.
    openapi: Option<String>,
}

/// A door of a live node that leads to it.
#[derive(Serialize)]
struct AtDoor<'a> {
    node: &'a str,
    /// `http`, `https`, `tcp`, or the name of one of its own.
    door: String,
    at: SocketAddr,
}

/// A clone that has a process.
#[derive(Serialize)]
struct Live<'a> {
    clone: &'a str,
    life: &'a str,
    node: &'a str,
    state: CloneState,
    version: u32,
    since_ms: u64,
}

pub async fn all(State(api): State<Api>) -> Response {
    Json(catalog(&api.view())).into_response()
}

fn catalog(view: &View) -> Catalog<'_> {
    let live: Vec<&NodeView> = view.nodes.iter().filter(|node| node.state == NodeState::Live).collect();
    Catalog { services: view.services.iter().map(|service| of(view, &live, service)).collect() }
}

fn of<'a>(view: &'a View, live: &[&'a NodeView], service: &'a ServiceView) -> Entry<'a> {
    let route = view.routes.services.iter().find(|route| route.name == service.name);
    let clones = service.clones.iter().filter(|clone| !clone.life.is_empty()).map(|clone| Live {
        clone: &clone.name,
        life: &clone.life,
        node: &clone.node,
        state: clone.state,
        version: clone.version,
        since_ms: clone.since_ms,
    });
    Entry {
        name: &service.name,
        version: service.version,
        next: service.next,
        at: &service.at,
        doors: route.map_or_else(Vec::new, |route| live.iter().flat_map(|node| doors(route, node)).collect()),
        leader: service.leader.as_deref(),
        clones: clones.collect(),
        openapi: service.openapi.as_ref().map(|_| format!("/v1/catalog/{}/openapi", service.name)),
    }
}

fn doors<'a>(route: &RouteService, node: &'a NodeView) -> Vec<AtDoor<'a>> {
    let at_door = |door: String, at| AtDoor { node: &node.name, door, at };
    let open = node.doors.open().map(|(door, at)| (door.to_string(), at));
    let web: Vec<(String, SocketAddr)> = open.filter(|(door, _)| door == "http" || door == "https").collect();
    let Some(ip) = web.first().map(|(_, at)| at.ip()) else { return Vec::new() };
    let named = |port: u16| route.tcp.iter().find(|door| door.port == port)?.name.clone();
    let tcp = route.tcp_ports().map(|port| at_door(named(port).unwrap_or_else(|| "tcp".into()), (ip, port).into()));
    let tcp: Vec<_> = tcp.collect();
    let web = web.into_iter().filter(|_| route.http.is_some()).map(|(door, at)| at_door(door, at));
    web.chain(tcp).collect()
}

/// What a service says of itself, as it was deployed.
pub async fn openapi(State(api): State<Api>, Path(service): Path<String>) -> Result<Response, Problem> {
    let view = api.view();
    let found = view.services.iter().find(|found| found.name == service);
    let found = found.ok_or_else(|| Problem::not_found(format!("there is no service {service:?}")))?;
    let none = || Problem::not_found(format!("service {service:?} has no openapi = \"FILE\" in its declaration"));
    let path = found.openapi.clone().ok_or_else(none)?;
    let code = found.versions.iter().find(|version| version.number == found.version).and_then(|v| v.code.clone());
    let code = code.ok_or_else(|| Problem::not_found(format!("service {service:?} was not deployed")))?;
    let kind = kind_of(&path);
    let wrong = |why: &str| Problem::not_found(format!("{path:?} of version {} of {service:?} {why}", found.version));
    if !view.codes.contains(&code) {
        return Err(wrong("is of a folder that is not kept any more"));
    }
    let Some(text) = api.backend.code_file(code, path.clone(), OPENAPI_BYTES_MAX + 1).await else {
        // A node that has just come fetches all folders first.
        let why = format!("this node has no {path:?} of version {} of {service:?}", found.version);
        return Err(Problem::busy(why, Span::secs(2)));
    };
    if text.len() as u64 > OPENAPI_BYTES_MAX {
        return Err(wrong(&format!("has more than {} KiB, and is not shown", OPENAPI_BYTES_MAX >> 10)));
    }
    if std::str::from_utf8(&text).is_err() {
        return Err(wrong("is no text"));
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((StatusCode::OK, headers, text).into_response())
}

/// Never what a browser would run.
fn kind_of(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("json") => "application/json",
        Some("yaml" | "yml") => "application/yaml",
        _ => "text/plain; charset=utf-8",
    }
}
