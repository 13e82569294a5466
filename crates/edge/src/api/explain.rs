//! Which service, partition and clone a request would go to, and why each entry before did not take it. Answered from
//! this node's own routes, with the code that routes requests; nothing is sent anywhere.

use std::net::IpAddr;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use clones::RouteService;
use clones::partition::{Affinity, Asked, HashOn};
use clones::path::{UNCLEAR, canonical, is_clear};
use clones::route::{Found, Routes, Step, tcp_asked};
use flow::balance::pick_bounded;
use serde::{Deserialize, Serialize};

use super::declare::whole;
use super::limits::BODY_BYTES_MAX;
use super::{Api, Problem};
use crate::affinity::{prefers, tag};
use crate::pool::{Prefers, place};

/// A request as a person describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    url: String,
    #[serde(default = "get")]
    method: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// The client's address.
    #[serde(default = "loopback")]
    client: IpAddr,
}

fn get() -> String {
    "GET".into()
}

fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

#[derive(Serialize)]
struct Explained {
    /// None: no service takes it (404).
    service: Option<String>,
    /// None: the service's rest.
    partition: Option<String>,
    affinity: String,
    priority: u8,
    /// The priority that it has at least if its cookie opens a session, where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_session: Option<InSession>,
    /// What it gets if there is no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<String>,
    /// Clones that serve it, by name.
    clones: Vec<String>,
    /// Which of them it would go to, or why that cannot be said.
    target: Option<String>,
    why: String,
    /// No service gets it, as the request itself is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<u16>,
    /// What was asked before, in order.
    before: Vec<Before>,
}

#[derive(Serialize)]
struct InSession {
    cookie: String,
    priority: u8,
}

impl Explained {
    /// No service takes it.
    fn nobody(before: Vec<Before>, why: &str) -> Self {
        Self {
            service: None,
            partition: None,
            affinity: Affinity::None.to_string(),
            priority: 0,
            in_session: None,
            drop: None,
            clones: Vec::new(),
            target: None,
            why: why.into(),
            refused: None,
            before,
        }
    }
}

#[derive(Serialize)]
struct Before {
    service: String,
    partition: Option<String>,
    why_not: String,
}

/// Body: `{"url": "...", "method": "GET", "headers": [["name", "value"], ...], "client": "192.0.2.1"}`.
pub async fn explain(State(api): State<Api>, body: Body) -> Result<Response, Problem> {
    let body = whole(body, BODY_BYTES_MAX).await?;
    let wish: Wish = serde_json::from_slice(&body)
        .map_err(|e| Problem::wrong(format!("the body must be {{\"url\": \"http://host/path\"}}: {e}")))?;
    let uri: Uri = wish.url.parse().map_err(|e| Problem::wrong(format!("{:?} is no address: {e}", wish.url)))?;
    let scheme = uri.scheme_str().unwrap_or("http");
    let host =
        uri.host().ok_or_else(|| Problem::wrong(format!("{:?} names no host; write http://HOST/PATH", wish.url)))?;
    let port = match (uri.port_u16(), scheme) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, "tcp") => {
            let why = format!("{:?} names no port from 1 to 65535; write tcp://HOST:PORT", wish.url);
            return Err(Problem::wrong(why));
        }
        (None, other) => return Err(Problem::wrong(format!("{other:?} is not http, https or tcp: name the port"))),
    };
    let view = api.view();
    let headers = &wish.headers[..].to_vec();
    let (path, headers) = (canonical(uri.path()), Given(headers));
    let (method, client) = (&*wish.method, wish.client);
    if scheme == "tcp" {
        let steps = view.routes.explain_tcp(port, client, Some(host));
        let asked = tcp_asked(port, client);
        return Ok(Json(explained(&view.routes, steps, &asked, &view.admin_token)).into_response());
    }
    let asked = Asked { port, host, path: &path, method, client, headers: &headers };
    if !is_clear(&path, |path| view.routes.find(&Asked { path, ..asked })) {
        let nobody = Explained::nobody(Vec::new(), UNCLEAR);
        return Ok(Json(Explained { refused: Some(400), ..nobody }).into_response());
    }
    let steps = view.routes.explain(&asked);
    Ok(Json(explained(&view.routes, steps, &asked, &view.admin_token)).into_response())
}

struct Given<'a>(&'a [(String, String)]);

impl clones::partition::Headers for Given<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.any(name, test)
    }
}

fn explained(routes: &Routes, steps: Vec<Step<'_>>, asked: &Asked<'_>, secret: &str) -> Explained {
    let name = |found: Found| {
        let service = &routes.services[found.service];
        (service.name.clone(), service.partition(found).map(|partition| partition.name.clone()))
    };
    let found = steps.last().filter(|step| step.miss.is_none()).map(|step| step.found);
    let before = steps.iter().filter_map(|step| {
        let (service, partition) = name(step.found);
        Some(Before { service, partition, why_not: step.miss?.to_string() })
    });
    let before = before.collect();
    let Some(found) = found else { return Explained::nobody(before, "no service is routed here") };
    let service = &routes.services[found.service];
    let partition = service.partition(found);
    let names = clones_of(service, found);
    let prefers = prefers(service, found, asked);
    let affinity = partition.map_or_else(Affinity::default, |p| p.affinity.clone());
    let (target, why) = match routes.is_off(found) {
        true => (None, "it is out of use for maintenance (`coppice enable`)".into()),
        false => aim(&affinity, &prefers, &names, secret),
    };
    let drop = partition.and_then(|p| p.drop.as_ref()).map(ToString::to_string);
    let priority = partition.map_or_else(Default::default, |p| p.priority).0;
    let in_session = service.session.as_ref().and_then(|session| {
        let raised = session.spec.priority.filter(|raised| raised.0 > priority)?;
        Some(InSession { cookie: session.spec.cookie.clone(), priority: raised.0 })
    });
    let (service, partition_name) = name(found);
    let affinity = affinity.to_string();
    Explained {
        service: Some(service),
        partition: partition_name,
        affinity,
        priority,
        in_session,
        drop,
        clones: names,
        target,
        why,
        refused: None,
        before,
    }
}

/// Names of the clones that are meant for it.
fn clones_of(service: &RouteService, found: Found) -> Vec<String> {
    let (open, mut own) = service.parted();
    let own = found.partition.and_then(|index| own.get_mut(index)?.take());
    own.unwrap_or(open).into_iter().map(|index| service.clones[index].name.clone()).collect()
}

/// Which clone it would go to, and the reason in words.
fn aim(affinity: &Affinity, prefers: &Prefers, names: &[String], secret: &str) -> (Option<String>, String) {
    if names.is_empty() {
        return (None, "no clone serves it now".into());
    }
    match (affinity, prefers) {
        (Affinity::Hash(on), Prefers::Hash(key)) => {
            let first = pick_bounded(*key, names.len(), |i| (place(&names[i]), 0)).map(|i| names[i].clone());
            (first, format!("its {on} belongs there, as long as that clone has not much more to do than the others"))
        }
        (Affinity::Hash(on @ (HashOn::Header(_) | HashOn::Cookie(_))), _) => {
            (None, format!("it has no {on}, so the least loaded clone"))
        }
        (Affinity::Sticky, Prefers::Tag(shown)) if !shown.is_empty() => {
            let clone = names.iter().find(|name| tag(secret, name).as_bytes() == shown).cloned();
            let why = if clone.is_some() { "its cookie says so" } else { "the clone of its cookie is gone: a new one" };
            (clone, why.into())
        }
        (Affinity::Sticky, _) => (None, "it has no cookie yet: the least loaded clone, and a cookie for it".into()),
        _ => (None, "the least loaded clone (of more than eight: of two), those of the same node first".into()),
    }
}
