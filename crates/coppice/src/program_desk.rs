//! Answers for the [programs](crate::program) of this node, and asks other nodes for theirs by their tunnels: all live ones keep a
//! program before any becomes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edge::api::program::{Kept, Runs};
use host::{Dialer, Port};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use node::view::NodeView;
use node::{Node, View};
use tokio::sync::Semaphore;

use crate::operate::now_ms;
use crate::peers::{self, Answered, Question, others};
use crate::program::{Choice, Programs, Says};

/// Name under which a node's programs are reached by a tunnel. No service can have it.
pub const PROGRAM_TARGET: &str = "coppice:program";
/// A program from one node to another, written, and asked what it is.
const KEEP_WITHIN: Duration = Duration::from_secs(120);
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Programs on their way in from other nodes at once. Each may take 256 MiB of memory.
const IN_MAX: usize = 1;
/// From this level on programs know of upgrades.
const UPGRADES_LEVEL: u32 = 9;
/// In place of a SHA-256: the program before.
pub const BEFORE: &str = "before";

pub struct ProgramDesk {
    programs: Programs,
    /// What runs now; empty: the installed one.
    now: String,
    dialer: Dialer,
    port: Port<Node>,
    coming: Semaphore,
}

impl ProgramDesk {
    pub fn new(programs: Programs, dialer: Dialer, port: Port<Node>) -> Arc<Self> {
        let now = programs.running();
        Arc::new(Self { programs, now, dialer, port, coming: Semaphore::new(IN_MAX) })
    }

    /// Says that the program stays up, when it is one of the cluster again. Ends then.
    pub async fn follow(self: Arc<Self>) {
        let mut views = self.port.watch();
        let is_back = |view: &Arc<View>| {
            view.root.leader.is_some() && view.nodes.iter().any(|node| node.name == view.me && node.brick.settled)
        };
        if views.wait_for(is_back).await.is_ok() {
            let kept = self.on_disk(Programs::proved).await;
            kept.unwrap_or_else(|error| tracing::error!(error, "that a program stays up is not kept"));
        }
    }

    /// All live nodes keep a program, or the first that cannot is named.
    pub async fn spread(&self, digest: String, bytes: Bytes, token: &str) -> Result<Kept, String> {
        let view = self.port.view();
        let says = self.keep(digest.clone(), bytes.clone()).await.map_err(|why| format!("{}: {why}", view.me))?;
        let Some(level) = says.level else {
            return Err(
                "programs that do not say their level know of no upgrades, and nobody could go back from this one: \
                 put it in the place of the installed one by hand"
                    .to_owned(),
            );
        };
        if level < view.root.level {
            let agreed = view.root.level;
            return Err(format!(
                "this cluster agreed on level {agreed}, and the program has level {level}: nodes would not start with it"
            ));
        }
        let mut nodes = vec![view.me.clone()];
        for node in others(&view) {
            let kept = self.ask(node, "PUT", &format!("/{digest}"), bytes.clone(), token).await;
            kept.map_err(|why| format!("{} does not keep it: {why}", node.name))?;
            nodes.push(node.name.clone());
        }
        nodes.sort();
        Ok(Kept { version: says.version, level, nodes })
    }

    /// What a node runs, after it was told what is next, if something is.
    pub async fn of(&self, name: &str, to: Option<String>, token: &str) -> Result<Runs, String> {
        let view = self.port.view();
        if name == view.me {
            return self.own(to).await;
        }
        let node = others(&view).find(|node| node.name == name);
        let node = node.ok_or_else(|| format!("no live node is named {name:?}"))?;
        let (method, path) = to.map_or(("GET", "/".to_owned()), |to| ("POST", format!("/{to}")));
        let answer = self.ask(node, method, &path, Bytes::new(), token).await;
        let answer = answer.map_err(|why| format!("{name} does not say what it runs: {why}"))?;
        serde_json::from_slice(&answer).map_err(|e| format!("{name} answers nonsense: {e}"))
    }

    async fn own(&self, to: Option<String>) -> Result<Runs, String> {
        let choice = match to {
            None => self.on_disk(|programs| Ok(programs.choice())).await?,
            Some(to) => {
                let choose = move |programs: &Programs| programs.switch((to != BEFORE).then_some(&to), now_ms());
                self.on_disk(choose).await?
            }
        };
        let Choice { runs: next, before, at_ms, failed, .. } = choice;
        Ok(Runs { now: self.now.clone(), next, before, at_ms, failed })
    }

    async fn keep(&self, digest: String, bytes: Bytes) -> Result<Says, String> {
        if hex(&ring::digest::digest(&ring::digest::SHA256, &bytes)) != digest {
            return Err("the program did not come whole: its SHA-256 is another one".to_owned());
        }
        self.on_disk(move |programs| programs.keep(&digest, &bytes)).await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Programs) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let programs = self.programs.clone();
        tokio::task::spawn_blocking(move || act(&programs)).await.unwrap_or_else(|e| Err(e.to_string()))
    }

    async fn ask(&self, node: &NodeView, method: &str, path: &str, body: Bytes, token: &str) -> Result<Bytes, String> {
        if node.level < UPGRADES_LEVEL {
            return Err(format!(
                "it takes part with level {}, and below {UPGRADES_LEVEL} nodes know of no upgrades: put the new program in its place \
                 there, and restart it",
                node.level
            ));
        }
        let question = Question {
            target: PROGRAM_TARGET,
            method,
            path,
            body,
            token: Some(token),
            within: KEEP_WITHIN,
            bytes_max: ANSWER_BYTES_MAX,
        };
        peers::ask(&self.dialer, node, question).await
    }

    /// Another node asks.
    pub async fn serve(self: Arc<Self>, stream: host::OwnStream) {
        peers::serve(stream, KEEP_WITHIN, "a program", |request| self.answer(request)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answered {
        let wrong = |why: String| (StatusCode::BAD_REQUEST, why);
        // A program runs as the node does: to be a node is not enough for that.
        if !edge::api::is_operators(request.headers(), &self.port.view()) {
            return Err((StatusCode::UNAUTHORIZED, "the operator's token is needed".to_owned()));
        }
        let name = request.uri().path().trim_start_matches('/').to_owned();
        let json = |runs: &Runs| Bytes::from(serde_json::to_vec(runs).expect("it is plain data"));
        match *request.method() {
            Method::GET => self.own(None).await.map(|runs| json(&runs)).map_err(wrong),
            Method::POST => self.own(Some(name)).await.map(|runs| json(&runs)).map_err(wrong),
            Method::PUT => {
                let full = |_| (StatusCode::SERVICE_UNAVAILABLE, "another program is on its way".to_owned());
                let _place = self.coming.try_acquire().map_err(full)?;
                let body = Limited::new(request.into_body(), host::limits::CODE_BYTES_MAX as usize).collect().await;
                let bytes = body.map_err(|e| wrong(e.to_string()))?.to_bytes();
                self.keep(name, bytes).await.map(|_| Bytes::new()).map_err(wrong)
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "programs are read, written and chosen".to_owned())),
        }
    }
}

fn hex(hash: &ring::digest::Digest) -> String {
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
