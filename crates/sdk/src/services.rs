//! Other services of the cluster, by their names: where they are the node's catalogue tells, and they are asked at the edge of the own
//! node, or of another one if that cannot be reached. Each question has a time of its own, and what it is for is passed on.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Refused, Unknown};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::limits::{CATALOG_KEPT, CATALOG_WITHIN};
use crate::node::{Call, Failed};
use crate::{Given, Node, OnBehalf};

/// How other services are asked. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Services(Arc<Inner>);

struct Inner {
    node: Node,
    /// The own node: its doors come first.
    me: String,
    token: String,
    known: Mutex<Known>,
    /// One looks at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// None: nothing is known yet.
    at: Option<Instant>,
    doors: Vec<SocketAddr>,
    edge: Option<Node>,
    /// By service: the host that it wants to be asked for, if it is not any.
    hosts: BTreeMap<String, Option<HeaderValue>>,
}

/// What a service answered, whatever it was but 429 and 5xx.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is no answer. Asked was what changes nothing, so it may be asked again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// No service of this name is declared, or it is not reached over HTTP.
    NoService(String),
    /// Its time was over.
    Late(Duration),
    /// It, or the edge for it, said no; or it failed.
    Refused(Refused),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoService(name) => write!(f, "there is no service {name:?} that is reached over HTTP"),
            Self::Late(within) => write!(f, "not there within {} ms", within.as_millis()),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

#[derive(Deserialize)]
struct Catalog {
    services: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    at: Vec<String>,
    doors: Vec<AtDoor>,
}

#[derive(Deserialize)]
struct AtDoor {
    node: String,
    door: String,
    at: SocketAddr,
}

impl Services {
    pub(crate) fn new(node: Node, given: &Given) -> Self {
        let (me, token) = (given.node.clone(), given.token_of_service.clone().unwrap_or_default());
        Self(Arc::new(Inner { node, me, token, known: Mutex::default(), looking: tokio::sync::Mutex::default() }))
    }

    /// Asks a service for what lies at a path (as the outside would write it, with the service's own prefix), for so long at most.
    /// `behalf` is what it is asked for: then it matters as much, and nobody waits for it longer than for that.
    ///
    /// # Errors
    /// There is no answer, or none that is of use.
    pub async fn get(
        &self,
        service: &str,
        path: &str,
        within: Duration,
        behalf: &OnBehalf,
    ) -> Result<Reply, CallError> {
        let within = behalf.left().map_or(within, |left| left.min(within));
        let until = Instant::now() + within;
        let late = |_| CallError::Late(within);
        let (edge, host) = tokio::time::timeout_at(until, self.find(service)).await.map_err(late)??;
        let mut call = Call { repeats: false, until: Some(until), ..Call::new(Method::GET, path.to_owned(), "") };
        call.headers = behalf.fields();
        call.headers.extend(host.map(|host| (header::HOST, host)));
        match tokio::time::timeout_at(until, edge.call(&call)).await.map_err(late)? {
            Ok(answer) => Ok(Reply { status: answer.status, headers: answer.headers, body: answer.body }),
            Err(_) if Instant::now() >= until => Err(CallError::Late(within)),
            Err(Failed::Refused(refused)) => Err(CallError::Refused(refused)),
            Err(Failed::Unknown(Unknown { why })) => {
                Err(CallError::Refused(Refused::busy(why, crate::limits::RETRY_AFTER)))
            }
        }
    }

    /// The edge that is asked, and the host. What is known is used while it is looked at anew.
    async fn find(&self, service: &str) -> Result<(Node, Option<HeaderValue>), CallError> {
        if let Some((found, is_fresh)) = self.known(service) {
            if !is_fresh && self.0.looking.try_lock().is_ok() {
                let this = self.clone();
                tokio::spawn(async move { this.look().await });
            }
            return Ok(found);
        }
        self.look().await.map_err(|why| CallError::Refused(Refused::busy(why, crate::limits::RETRY_AFTER)))?;
        self.known(service).map(|(found, _)| found).ok_or_else(|| CallError::NoService(service.to_owned()))
    }

    fn known(&self, service: &str) -> Option<((Node, Option<HeaderValue>), bool)> {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = known.at.is_some_and(|at| at.elapsed() < CATALOG_KEPT);
        Some(((known.edge.clone()?, known.hosts.get(service)?.clone()), is_fresh))
    }

    /// Reads the catalogue, unless somebody else has just done so.
    async fn look(&self) -> Result<(), String> {
        let asked = Instant::now();
        let _alone = self.0.looking.lock().await;
        let is_later = |known: &Known| known.at.is_some_and(|at| at >= asked);
        if is_later(&self.0.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let until = Some(Instant::now() + CATALOG_WITHIN);
        let call = Call { until, ..Call::new(Method::GET, "/v1/catalog".into(), &self.0.token) };
        let answer = self.0.node.call(&call).await.map_err(|failed| failed.to_string())?;
        let catalog: Catalog =
            serde_json::from_slice(&answer.body).map_err(|e| format!("the node's catalogue is none: {e}"))?;
        let (doors, hosts) = read(&catalog, &self.0.me);
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.edge.is_none() || known.doors != doors {
            known.edge = Node::at(doors.iter().copied()).ok();
            known.doors = doors;
        }
        (known.hosts, known.at) = (hosts, Some(Instant::now()));
        Ok(())
    }
}

/// The doors for HTTP of all nodes, the own one first, and the host of each service that is reached by them.
fn read(catalog: &Catalog, me: &str) -> (Vec<SocketAddr>, BTreeMap<String, Option<HeaderValue>>) {
    let is_http = |entry: &&Entry| entry.doors.iter().any(|door| door.door == "http");
    let web: Vec<&Entry> = catalog.services.iter().filter(is_http).collect();
    let mut doors: Vec<&AtDoor> =
        web.iter().flat_map(|entry| &entry.doors).filter(|door| door.door == "http").collect();
    doors.sort_by_key(|door| (door.node != me, &door.node, door.at));
    doors.dedup_by_key(|door| door.at);
    let host = |entry: &Entry| {
        let at = entry.at.iter().find_map(|at| at.split_once('/'))?.0;
        // One below a wildcard has to be named by whoever knows which.
        HeaderValue::from_str(at).ok().filter(|_| !at.contains('*'))
    };
    let hosts = web.iter().map(|entry| (entry.name.clone(), host(entry))).collect();
    (doors.into_iter().map(|door| door.at).collect(), hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_of_the_own_node_come_first_and_hosts_are_known_where_they_are_one() {
        let catalog = serde_json::from_value(serde_json::json!({"services": [
            {"name": "shop", "at": ["shop.example/cart"], "openapi": null, "doors": [
                {"node": "n1", "door": "http", "at": "127.0.0.1:80"}, {"node": "n2", "door": "http", "at": "127.0.0.2:80"},
                {"node": "n2", "door": "https", "at": "127.0.0.2:443"}]},
            {"name": "any", "at": ["*/"], "doors": [{"node": "n2", "door": "http", "at": "127.0.0.2:80"}]},
            {"name": "mail", "at": ["tcp 25"], "doors": [{"node": "n1", "door": "tcp", "at": "127.0.0.1:25"}]},
        ]}));
        let (doors, hosts) = read(&catalog.unwrap(), "n2");
        assert_eq!(doors.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.2:80", "127.0.0.1:80"]);
        assert_eq!(hosts.len(), 2);
        assert_eq!(
            (hosts["shop"].clone(), hosts["any"].clone()),
            (Some(HeaderValue::from_static("shop.example")), None)
        );
    }
}
