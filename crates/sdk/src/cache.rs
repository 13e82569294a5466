//! Copies of what is kept elsewhere, of class `cache`: any of them may be gone at any time, at whichever node it was. What is missing is
//! fetched by one clone in the whole cluster, and the others wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Refused, Unknown};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tokio::time::Instant;

use crate::Node;
use crate::limits::{CACHE_ANSWER_WAIT, CACHE_WAIT_MAX};
use crate::node::{Answer, Call, DEADLINE, Failed, quoted};
use crate::on_behalf::During;

const TAGS: HeaderName = HeaderName::from_static("cache-tag");
const ENDS: HeaderName = HeaderName::from_static("coppice-ends-ms");
const FETCH: HeaderName = HeaderName::from_static("coppice-fetch-ms");
const MARK: HeaderName = HeaderName::from_static("coppice-mark");

/// The entries of one namespace. Cheap to clone.
///
/// ```
/// use std::time::Duration;
///
/// # async fn render() -> Result<Vec<u8>, std::io::Error> { Ok(Vec::new()) }
/// # async fn page(service: sdk::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let pages = service.cache("pages")?;
/// // One clone in the cluster renders it; those that ask meanwhile wait for it.
/// let page = pages.get_or("front", || async { render().await.map(|html| sdk::Entry::new(html).lasting(Duration::from_secs(60))) }).await?;
/// println!("{} bytes", page.value.len());
/// pages.purge(sdk::Purge::Tag("news")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cache {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
}

/// What is stored under a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// At most 4 MiB.
    pub value: Bytes,
    /// Its `Content-Type`; empty: bytes of any kind.
    pub kind: String,
    pub tags: Vec<String>,
    /// How long it is kept from now on; none: as long as there is room, or as the namespace says.
    pub ends: Option<Duration>,
}

/// What is to be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purge<'a> {
    Key(&'a str),
    Prefix(&'a str),
    Tag(&'a str),
    All,
}

/// What [`Cache::fetch`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    Here(Entry),
    /// It is for this clone to fetch, and to [`store`](Cache::store).
    Missing(Missing),
}

/// The moment at which an entry was missing: what is stored with it is so only if nothing about it was purged since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    mark: Option<String>,
}

/// Why an operation did not end well. Reads and [`Cache::store`] are never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheError {
    Refused(Refused),
    /// It may have happened.
    Unknown(Unknown),
}

impl Entry {
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self { value: value.into(), ..Self::default() }
    }

    pub fn kind(self, kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..self }
    }

    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// It ends after so long.
    pub fn lasting(self, time: Duration) -> Self {
        Self { ends: Some(time), ..self }
    }
}

impl Cache {
    /// That of a namespace whose token one has. Clones of a service use [`crate::Service::cache`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), during: None }
    }

    /// For what is done for one request: it matters as much as the request does, and is over when nobody waits for the answer
    /// any more. `headers` are the request's, as the edge passed them on.
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// None: there is none, or not any more.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, CacheError> {
        let answer = self.node.call(&self.keyed(Method::GET, key)).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(entry(answer))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.unexpected().into()),
        }
    }

    /// Stores it, whatever was there.
    pub async fn put(&self, key: &str, entry: &Entry) -> Result<(), CacheError> {
        let answer = self.node.call(&self.storing(key, entry)?).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(answer.unexpected().into()) }
    }

    /// Whether there was one. Asks only the key's node: [`Cache::purge`] is what holds while nodes do not agree on who is live.
    pub async fn remove(&self, key: &str) -> Result<bool, CacheError> {
        let answer = self.node.call(&self.keyed(Method::DELETE, key)).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(answer.unexpected().into()),
        }
    }

    /// When it returns, no request at any node that begins from then on gets what was stored before.
    pub async fn purge(&self, what: Purge<'_>) -> Result<(), CacheError> {
        let what = match what {
            Purge::Key(key) => format!("key={}", quoted(key)),
            Purge::Prefix(prefix) => format!("prefix={}", quoted(prefix)),
            Purge::Tag(tag) => format!("tag={}", quoted(tag)),
            Purge::All => "all=true".to_owned(),
        };
        let path = format!("/v1/ns/{}/purge?{what}", quoted(&self.namespace));
        let answer = self.node.call(&self.call(Method::POST, path)).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(answer.unexpected().into()) }
    }

    /// What is there. If nothing is, it is for this clone to fetch it, and for none other in the cluster for so long (`within`, up
    /// to 60 s); who asks meanwhile, at whichever node, waits up to `wait` until it is there, and then fetches it, too.
    pub async fn fetch(&self, key: &str, within: Duration, wait: Duration) -> Result<Fetched, CacheError> {
        let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).clamp(1, 60_000);
        let mut call = self.keyed(Method::GET, key).header(FETCH, &ms.to_string())?;
        let left = call.until.take().map(|until| until.saturating_duration_since(Instant::now()));
        let wait = left.map_or(wait, |left| left.min(wait)).min(CACHE_WAIT_MAX);
        call = call.header(DEADLINE, &wait.as_millis().max(1).to_string())?;
        // The node's answer has a moment for its way. It is asked once: another one would wait as long.
        (call.most, call.repeats) = (wait + CACHE_ANSWER_WAIT, false);
        let answer = self.node.call(&call).await?;
        match answer.status {
            StatusCode::OK => Ok(Fetched::Here(entry(answer))),
            StatusCode::NOT_FOUND => Ok(Fetched::Missing(Missing { mark: answer.header(&MARK).map(str::to_owned) })),
            _ => Err(answer.unexpected().into()),
        }
    }

    /// Stores what was missing. False: it may have been purged since, or nobody could say when that was, so it is not stored.
    pub async fn store(&self, missing: &Missing, key: &str, entry: &Entry) -> Result<bool, CacheError> {
        let Some(mark) = &missing.mark else { return Ok(false) };
        let call = self.storing(key, entry)?.header(MARK, mark)?;
        match self.node.call(&call).await {
            Ok(answer) if answer.status == StatusCode::NO_CONTENT => Ok(true),
            Ok(answer) if answer.status == StatusCode::PRECONDITION_FAILED => Ok(false),
            Ok(answer) if answer.status.is_client_error() => Err(answer.unexpected().into()),
            // It may be there; whoever asks next sees.
            Ok(_) | Err(Failed::Unknown(_)) => Ok(false),
            Err(failed) => Err(failed.into()),
        }
    }

    /// What is there, or what `make` gives, which is then stored for all clones. A cache that cannot be asked makes nothing fail: then it
    /// is made each time.
    pub async fn get_or<E, F: Future<Output = Result<Entry, E>>>(
        &self,
        key: &str,
        make: impl FnOnce() -> F,
    ) -> Result<Entry, E> {
        let (within, wait) = (Duration::from_secs(10), Duration::from_secs(5));
        let missing = match self.fetch(key, within, wait).await {
            Ok(Fetched::Here(entry)) => return Ok(entry),
            Ok(Fetched::Missing(missing)) => Some(missing),
            Err(_) => None,
        };
        let made = make().await?;
        if let Some(missing) = missing {
            let _ = self.store(&missing, key, &made).await;
        }
        Ok(made)
    }

    fn storing(&self, key: &str, entry: &Entry) -> Result<Call, Failed> {
        let mut call = self.keyed(Method::PUT, key).body(entry.value.clone());
        if !entry.kind.is_empty() {
            call = call.header(header::CONTENT_TYPE, &entry.kind)?;
        }
        if !entry.tags.is_empty() {
            call = call.header(TAGS, &entry.tags.join(", "))?;
        }
        if let Some(ends) = entry.ends {
            call = call.header(ENDS, &ends.as_millis().max(1).to_string())?;
        }
        Ok(call)
    }

    fn keyed(&self, method: Method, key: &str) -> Call {
        self.call(method, format!("/v1/ns/{}/keys/{}", quoted(&self.namespace), quoted(key)))
    }

    fn call(&self, method: Method, path: String) -> Call {
        let call = Call::new(method, path, &self.token);
        if let Some(during) = &self.during { during.call(call) } else { call }
    }
}

fn entry(answer: Answer) -> Entry {
    let tags = answer.header(&TAGS).into_iter().flat_map(|tags| tags.split(',')).map(|tag| tag.trim().to_owned());
    let ends = answer.header(&ENDS).and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let kind = answer.header(&header::CONTENT_TYPE).filter(|kind| *kind != "application/octet-stream");
    let (kind, tags) = (kind.unwrap_or_default().to_owned(), tags.collect());
    Entry { kind, tags, ends, value: answer.body }
}

impl From<Failed> for CacheError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for CacheError {}
