//! Keeps the deployed folders of this node: fetches from other nodes what the declaration says every node must have, passes
//! on what came from an operator, and tells the node what is here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::Span;
use bytes::Bytes;
use host::{CodeStore, Dialer, Port};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use node::view::NodeView;
use node::{Ask, Node, View};
use tokio::sync::Semaphore;

use crate::peers::{self, Answered, Question, others};

/// Name under which a node's archives are reached by a tunnel. No service can have it.
pub const CODE_TARGET: &str = "coppice:code";
/// Programs below this level know it not: they are asked by their API, with the operator's token, and so they ask.
pub const CODE_LEVEL: u32 = 2;
pub const API_TARGET: &str = "coppice:api";
/// Archives on their way in from other nodes at once. Each may take 256 MiB of memory.
const COPIES_IN_MAX: usize = 2;
/// One archive from one node.
const FETCH_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at what is missing, if nothing changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Where archives are, by digest.
const CODE_PATH: &str = "/v1/code/";
/// Nodes that an archive is on before its deploy begins, if there are so many.
const COPIES: usize = 2;

pub struct Keeper {
    store: Arc<CodeStore>,
    dialer: Dialer,
    port: Port<Node>,
    copies_in: Semaphore,
}

impl Keeper {
    pub fn new(store: CodeStore, dialer: Dialer, port: Port<Node>) -> Arc<Self> {
        Arc::new(Self { store: Arc::new(store), dialer, port, copies_in: Semaphore::new(COPIES_IN_MAX) })
    }

    /// For ever: has what is declared, and lets go what is not.
    pub async fn follow(self: Arc<Self>) {
        let mut view = self.port.watch();
        let mut told: Option<BTreeSet<String>> = None;
        loop {
            let now = Arc::clone(&view.borrow_and_update());
            let have = self.all().await;
            for digest in now.codes.difference(&have) {
                self.fetch(&now, digest).await;
            }
            let have = self.all().await;
            if told.as_ref() != Some(&have) {
                if self.port.ask(Ask::Codes(have.clone()), Span::secs(1)).await.is_err() {
                    return;
                }
                told = Some(have);
            }
            // A node that has heard of no declaration yet knows nothing of what is needed.
            if now.root.version > 0 {
                let (store, codes) = (Arc::clone(&self.store), Arc::clone(&now.codes));
                let _ = tokio::task::spawn_blocking(move || store.keep_only(&codes)).await;
            }
            let codes = Arc::clone(&now.codes);
            let changed = view.wait_for(move |view| view.codes != codes);
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, changed).await {
                // The node has ended.
                return;
            }
        }
    }

    async fn all(&self) -> BTreeSet<String> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.all()).await.unwrap_or_default()
    }

    /// From the first live node that has it.
    async fn fetch(&self, view: &View, digest: &str) {
        for node in others(view) {
            match self.request(view, node, "GET", &format!("{CODE_PATH}{digest}"), Bytes::new()).await {
                Ok(bytes) => match self.put(digest.to_owned(), bytes).await {
                    Ok(()) => return tracing::info!(digest, from = %node.name, "fetched a version"),
                    Err(error) => tracing::warn!(digest, from = %node.name, error, "a version could not be kept"),
                },
                Err(error) => tracing::debug!(digest, from = %node.name, error, "a version was not to be had"),
            }
        }
    }

    async fn put(&self, digest: String, bytes: Bytes) -> Result<(), String> {
        let store = Arc::clone(&self.store);
        let put = tokio::task::spawn_blocking(move || store.put(&digest, &bytes)).await;
        put.unwrap_or_else(|e| Err(e.to_string()))
    }

    pub async fn read(&self, digest: String) -> Option<Bytes> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.get(&digest).ok()).await.ok()?.map(Bytes::from)
    }

    /// A file of a folder that is here, its first bytes.
    pub async fn file(&self, digest: String, path: String, bytes_max: u64) -> Option<Bytes> {
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || store.file(&digest, path.as_ref(), bytes_max).ok()).await;
        read.ok()?.map(Bytes::from)
    }

    /// Keeps what came, and passes it on until enough nodes have it; how many do.
    pub async fn keep(&self, digest: String, bytes: Bytes, spread: bool) -> Result<usize, String> {
        self.put(digest.clone(), bytes.clone()).await?;
        let mut copies = 1;
        if !spread {
            return Ok(copies);
        }
        let view = self.port.view();
        let mut problem = String::new();
        for node in others(&view) {
            if copies >= COPIES {
                break;
            }
            let path = format!("{CODE_PATH}{digest}?copy=true");
            match self.request(&view, node, "PUT", &path, bytes.clone()).await {
                Ok(_) => copies += 1,
                Err(error) => problem = format!("{}: {error}", node.name),
            }
        }
        let wanted = COPIES.min(1 + others(&view).count());
        if copies < wanted {
            return Err(format!("no other node took a copy, so it could be lost with this one; try again ({problem})"));
        }
        Ok(copies)
    }

    /// Another node asks, as [`Self::request`] does.
    pub async fn serve(self: Arc<Self>, stream: host::OwnStream) {
        peers::serve(stream, FETCH_WITHIN, "an archive", |request| self.answer(request)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answered {
        let none = || (StatusCode::NOT_FOUND, "there is no such archive".to_owned());
        let digest = request.uri().path().strip_prefix(CODE_PATH).ok_or_else(none)?.to_owned();
        match *request.method() {
            Method::GET => self.read(digest).await.ok_or_else(none),
            Method::PUT => {
                let full = |_| (StatusCode::SERVICE_UNAVAILABLE, "other archives are on their way".to_owned());
                let _place = self.copies_in.try_acquire().map_err(full)?;
                let body = Limited::new(request.into_body(), host::limits::CODE_BYTES_MAX as usize).collect().await;
                let bytes = body.map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?.to_bytes();
                let kept = self.keep(digest, bytes, false).await;
                kept.map(|_| Bytes::new()).map_err(|why| (StatusCode::BAD_REQUEST, why))
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "archives are read and written".to_owned())),
        }
    }

    async fn request(
        &self,
        view: &View,
        to: &NodeView,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, String> {
        let is_old = to.level < CODE_LEVEL;
        let question = Question {
            target: if is_old { API_TARGET } else { CODE_TARGET },
            method,
            path,
            body,
            token: is_old.then_some(&*view.admin_token),
            within: FETCH_WITHIN,
            bytes_max: host::limits::CODE_BYTES_MAX as usize,
        };
        peers::ask(&self.dialer, to, question).await
    }
}
