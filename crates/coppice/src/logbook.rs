//! What clones have printed, on all nodes: each node has the files of its own clones (`host::logs`); here they are asked by their
//! tunnels, and their lines become one list in order of time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use edge::api::logs::{Gathered, Wanted};
use futures_util::future::join_all;
use host::logs::{LogPart, LogWish};
use host::{Dialer, Port};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use node::view::{NodeState, NodeView};
use node::{Node, View};
use tokio::sync::Semaphore;

use crate::peers::{self, Answered, Question, others};

/// Name under which a node's logs are reached by a tunnel. No service can have it.
pub const LOGS_TARGET: &str = "coppice:logs";
/// One node's answer: it reads some MiB of files. One that hangs is named and left out.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The lines, and what JSON adds to them: control characters become six times as long.
const ANSWER_BYTES_MAX: usize = 8 * host::limits::LOG_ANSWER_BYTES_MAX;
/// A question of another node.
const WISH_BYTES_MAX: usize = 4 << 10;
/// Looks into this node's files at once, for itself and for others.
const LOOKS_MAX: usize = 4;

pub struct Logbook {
    dir: PathBuf,
    dialer: Dialer,
    port: Port<Node>,
    looks: Arc<Semaphore>,
}

impl Logbook {
    /// `dir` has the files of this node's clones.
    pub fn new(dir: PathBuf, dialer: Dialer, port: Port<Node>) -> Arc<Self> {
        Arc::new(Self { dir, dialer, port, looks: Arc::new(Semaphore::new(LOOKS_MAX)) })
    }

    /// Lines of all nodes that answer, in order of time.
    pub async fn gather(&self, wanted: Wanted) -> Result<Gathered, String> {
        let at_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let view = self.port.view();
        let asked = join_all(others(&view).map(|node| async {
            let part = self.ask(node, &wanted.of(&node.name)).await;
            (node.name.clone(), part)
        }));
        let (own, asked) = tokio::join!(self.look(wanted.of(&view.me)), asked);
        let mut parts = vec![(view.me.clone(), own?)];
        let mut silent = absent(&view);
        for (name, part) in asked {
            match part {
                Ok(part) => parts.push((name, part)),
                Err(error) => {
                    tracing::debug!(node = %name, error, "a node did not tell its logs");
                    silent.push(name);
                }
            }
        }
        let service = &wanted.service;
        if parts.iter().all(|(_, part)| part.lines.is_empty()) {
            if service != host::access::NODE_LOG && !view.services.iter().any(|s| s.name == *service) {
                return Err(unknown(&view, service));
            }
            let its = view.routes.services.iter().find(|s| s.name == *service);
            if wanted.access && its.is_none_or(|s| s.access_log.is_off()) {
                return Err(format!(
                    "service {service:?} has no access log; declare access_log = \"common\" (or \"json\") in [service.{service}]"
                ));
            }
        }
        Ok(wanted.gathered(at_us, parts, silent))
    }

    /// Lines of this node alone.
    pub async fn look(&self, wish: LogWish) -> Result<LogPart, String> {
        let looks = Arc::clone(&self.looks).acquire_owned();
        let busy = |_| "this node is busy with other looks into its logs: ask again".to_owned();
        let looks = tokio::time::timeout(ANSWER_WITHIN, looks).await.map_err(busy)?.map_err(|e| e.to_string())?;
        let dir = self.dir.clone();
        let look = tokio::task::spawn_blocking(move || {
            let _looks = looks;
            host::logs::find(&dir, &wish).map_err(|e| format!("{}: {e}", dir.display()))
        });
        match tokio::time::timeout(ANSWER_WITHIN, look).await {
            Ok(looked) => looked.unwrap_or_else(|e| Err(e.to_string())),
            Err(_) => Err("this node's disk does not answer".into()),
        }
    }

    async fn ask(&self, node: &NodeView, wish: &LogWish) -> Result<LogPart, String> {
        let question = Question {
            target: LOGS_TARGET,
            method: "POST",
            path: "/",
            body: serde_json::to_vec(wish).map_err(|e| e.to_string())?.into(),
            token: None,
            within: ANSWER_WITHIN,
            bytes_max: ANSWER_BYTES_MAX,
        };
        let body = peers::ask(&self.dialer, node, question).await?;
        serde_json::from_slice(&body).map_err(|e| e.to_string())
    }

    /// Another node asks.
    pub async fn serve(self: Arc<Self>, stream: host::OwnStream) {
        peers::serve(stream, ANSWER_WITHIN, "logs", |request| self.answer(request)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answered {
        let wrong = |e: String| (StatusCode::BAD_REQUEST, e);
        let body = Limited::new(request.into_body(), WISH_BYTES_MAX).collect().await;
        let body = body.map_err(|e| wrong(e.to_string()))?.to_bytes();
        let wish: LogWish = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
        let part = self.look(wish).await.map_err(|why| (StatusCode::INTERNAL_SERVER_ERROR, why))?;
        let json = serde_json::to_vec(&part).map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        Ok(Bytes::from(json))
    }
}

/// Nodes that are not asked, as they are not live.
fn absent(view: &View) -> Vec<String> {
    view.nodes.iter().filter(|node| node.state != NodeState::Live).map(|node| node.name.clone()).collect()
}

fn unknown(view: &View, service: &str) -> String {
    let names: Vec<&str> = view.services.iter().map(|service| &*service.name).collect();
    if names.is_empty() {
        return format!("there is no service {service:?}; none is declared");
    }
    format!("there is no service {service:?}; there are: {}", names.join(", "))
}
