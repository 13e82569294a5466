//! Values of class `linear`: every operation is atomic, and what was acknowledged is on a majority's disks. Values are JSON of
//! `T`; versions are numbers that only grow. Each write has an id, so that it happens once although it is asked again when its
//! node dies or restarts before it answers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use base::{Outcome, Refused, Rng, Unknown};
use bytes::Bytes;
use flow::Backoff;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::limits::*;
use crate::node::{Answer, Call, Failed, quoted};
use crate::on_behalf::During;
use crate::{Happened, Node};

mod ledger;
mod many;
mod queue;
mod watch;

pub use ledger::{
    Added, Copied, Folder, FolderChanges, FolderEnd, ItemPage, Ledger, LedgerInfo, LedgerItem, Marked, Marking,
    NewItem, NoNumbers, Numbered, Numbers, Removed,
};
pub use many::Transaction;
pub use queue::{Depth, Failed as JobFailed, Put, Queue, Taken, Times, Works};
pub use watch::{Watch, Watched};

/// When a key is to end, milliseconds from now.
const ENDS: HeaderName = HeaderName::from_static("coppice-ends-ms");
/// How old at most what was read is, milliseconds.
const AGE: HeaderName = HeaderName::from_static("coppice-age-ms");

/// The values of one namespace. Cheap to clone.
pub struct Linear<T> {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    /// What reads see may be so old.
    stale: Option<Duration>,
    during: Option<During>,
    value: PhantomData<fn() -> T>,
}

/// A value as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored<T> {
    pub value: T,
    /// For [`Linear::cas`].
    pub version: u64,
    /// When it will end by itself, if it will.
    pub ends_in: Option<Duration>,
    /// How old at most it is, where that was allowed ([`Linear::stale`]).
    pub age: Option<Duration>,
}

/// Why an operation did not end well. A read is never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinearError {
    /// The value has another version than was asked for, or there is none. Nothing changed.
    Conflict(Option<u64>),
    Refused(Refused),
    Unknown(Unknown),
}

/// A function that runs at the replicas, by name, and its arguments: `Function::new("list.append").arg("bread")`. A name
/// that does not exist is refused with the list of those that do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    name: String,
    args: Vec<String>,
}

/// A page of keys in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub keys: Vec<String>,
    /// Where to go on, if there may be more.
    pub after: Option<String>,
    /// The keys are those of this version: for [`Linear::watch`].
    pub version: String,
}

/// A lock that ends by itself. Its token is higher than that of anybody who held it before: hand it to whatever the lock
/// guards, and let that refuse lower ones. A holder that was paused past its end, or whose machine was suspended (its
/// `Instant` stands still
/// then), does no harm so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub key: String,
    pub token: u64,
    /// It may be somebody else's from then on. Counted from before it was asked for, so never too late.
    pub until: std::time::Instant,
}

impl<T> Linear<T> {
    /// Those of a namespace whose token one has. Clones of a service use [`crate::Service::linear`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), stale: None, during: None, value: PhantomData }
    }

    /// The same namespace with values of another type.
    pub fn of<U>(&self) -> Linear<U> {
        Linear {
            node: self.node.clone(),
            namespace: self.namespace.clone(),
            token: self.token.clone(),
            stale: self.stale,
            during: self.during.clone(),
            value: PhantomData,
        }
    }

    /// The same values, of which reads may see a state that is so old: then any node's own copy may answer, also while the
    /// group has no leader. Writes are as ever.
    pub fn stale(&self, bound: Duration) -> Self {
        Self { stale: Some(bound), ..self.clone() }
    }

    /// For what is done for one request: it matters as much as the request does (in overload who matters less is refused first),
    /// and is over when nobody waits for the answer any more. `headers` are the request's, as the edge passed them on.
    ///
    /// ```
    /// # use sdk::{Linear, LinearError, axum::http::HeaderMap};
    /// # async fn pay(bank: &Linear<i64>, headers: &HeaderMap) -> Result<(), LinearError> {
    /// let left = bank.during(headers).add("alice", -30).await?;
    /// # Ok(()) }
    /// ```
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// The ledger under a key: folders of numbered items.
    pub fn ledger(&self, key: &str) -> Ledger {
        Ledger::new(self.of(), key)
    }

    /// Runs a function on a key at one moment. Gives what it gives, as JSON.
    pub async fn apply(&self, key: &str, function: Function) -> Result<Value, LinearError> {
        let body = json!({"function": function.name, "args": function.args}).to_string();
        let answer = self.node.call(&self.on_key(Method::POST, "apply", key).once().body(body)).await?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        body.and_then(|mut body| body.get_mut("result").map(Value::take)).ok_or_else(unreadable)
    }

    /// Keys in order that begin so, a page at a time: those after `after`; 1 to 1,000 of them.
    pub async fn scan(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LinearError> {
        self.page(prefix, after, limit, "").await
    }

    /// The same backwards: those before `before`, from the last one on.
    pub async fn scan_back(&self, prefix: &str, before: Option<&str>, limit: usize) -> Result<Page, LinearError> {
        self.page(prefix, before, limit, "&reverse=true").await
    }

    async fn page(&self, prefix: &str, after: Option<&str>, limit: usize, how: &str) -> Result<Page, LinearError> {
        let after = after.unwrap_or_default();
        let query = format!("keys?prefix={}&after={}&limit={limit}{how}", quoted(prefix), quoted(after));
        let answer = self.node.call(&self.call(Method::GET, &self.may_be_stale(query))).await.map_err(of_read)?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let body: Value = serde_json::from_slice(&answer.body).map_err(|_| unreadable())?;
        let keys = body["keys"].as_array().ok_or_else(unreadable)?;
        let keys = keys.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let version = match &body["version"] {
            Value::String(each) => each.clone(),
            one => one.to_string(),
        };
        Ok(Page { keys, after: body["after"].as_str().map(str::to_owned), version })
    }

    /// Removes a key. False if there was none.
    pub async fn remove(&self, key: &str) -> Result<bool, LinearError> {
        let answer = self.node.call(&self.on_key(Method::DELETE, "keys", key).once()).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(failed(&answer)),
        }
    }

    /// Takes a lease, or prolongs it if `holder` has it. None if somebody else does.
    pub async fn claim(&self, key: &str, holder: &str, time: Duration) -> Result<Option<Lease>, LinearError> {
        let asked = std::time::Instant::now();
        let function = Function::new("lease.claim").arg(holder).arg(time.as_millis());
        let token = self.apply(key, function).await?.as_u64();
        Ok(token.map(|token| Lease { key: key.to_owned(), token, until: asked + time }))
    }

    /// Prolongs a lease. None if it is over, and may be somebody else's.
    pub async fn renew(&self, lease: &Lease, time: Duration) -> Result<Option<Lease>, LinearError> {
        let asked = std::time::Instant::now();
        let function = Function::new("lease.renew").arg(lease.token).arg(time.as_millis());
        let holds = self.apply(&lease.key, function).await?.as_u64() == Some(1);
        Ok(holds.then(|| Lease { until: asked + time, ..lease.clone() }))
    }

    /// Gives a lease back. False if it was over.
    pub async fn release(&self, lease: &Lease) -> Result<bool, LinearError> {
        let function = Function::new("lease.release").arg(lease.token);
        Ok(self.apply(&lease.key, function).await?.as_u64() == Some(1))
    }

    /// The path of a read with what it may see.
    fn may_be_stale(&self, path: String) -> String {
        let Some(bound) = self.stale else { return path };
        format!("{path}{}stale={}ms", if path.contains('?') { '&' } else { '?' }, bound.as_millis())
    }

    fn call(&self, method: Method, rest: &str) -> Call {
        let call = Call::new(method, format!("/v1/ns/{}/{rest}", quoted(&self.namespace)), &self.token);
        if let Some(during) = &self.during { during.call(call) } else { call }
    }

    fn on_key(&self, method: Method, what: &str, key: &str) -> Call {
        self.call(method, &format!("{what}/{}", quoted(key)))
    }
}

impl<T: Serialize + DeserializeOwned> Linear<T> {
    /// The value under a key, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Stored<T>>, LinearError> {
        let call = self.call(Method::GET, &self.may_be_stale(format!("keys/{}", quoted(key))));
        let answer = self.node.call(&call).await.map_err(of_read)?;
        match answer.status {
            StatusCode::OK => (),
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(of_read(answer.unexpected()).into()),
        }
        let value = serde_json::from_slice(&answer.body).map_err(|e| other_type(&e))?;
        let version = version(&answer).ok_or_else(unreadable)?;
        Ok(Some(Stored { value, version, ends_in: millis(&answer, &ENDS), age: millis(&answer, &AGE) }))
    }

    /// Stores a value, whatever is there. Gives its version.
    pub async fn put(&self, key: &str, value: &T) -> Result<u64, LinearError> {
        self.write(self.on_key(Method::PUT, "keys", key), value).await
    }

    /// Stores a value, and gives the one that was there.
    pub async fn swap(&self, key: &str, value: &T) -> Result<Option<T>, LinearError> {
        let call = self.call(Method::PUT, &format!("keys/{}?return=old", quoted(key)));
        let answer = self.node.call(&call.once().body(json_of(value)?)).await?;
        match answer.status {
            StatusCode::OK => serde_json::from_slice(&answer.body).map(Some).map_err(|e| was_other_type(&e)),
            StatusCode::NO_CONTENT => Ok(None),
            _ => Err(failed(&answer)),
        }
    }

    /// Stores a value that ends by itself.
    pub async fn put_for(&self, key: &str, value: &T, time: Duration) -> Result<u64, LinearError> {
        let call = self.on_key(Method::PUT, "keys", key).header(ENDS, &time.as_millis().to_string())?;
        self.write(call, value).await
    }

    /// Stores a value if the present one has this version; `None` if there is to be none yet.
    pub async fn cas(&self, key: &str, version: Option<u64>, value: &T) -> Result<u64, LinearError> {
        let call = self.on_key(Method::PUT, "keys", key);
        let call = match version {
            None => call.header(header::IF_NONE_MATCH, "*")?,
            Some(version) => call.header(header::IF_MATCH, &format!("\"{version}\""))?,
        };
        self.write(call, value).await
    }

    /// Reads a value, or begins with the default one; changes it; and writes it, anew as often as somebody else wrote in
    /// between. `change` may run several times. Gives what was written. Where a function does it ([`Linear::apply`]),
    /// that is quicker.
    pub async fn update<R>(&self, key: &str, mut change: impl FnMut(&mut T) -> R) -> Result<(T, R), LinearError>
    where
        T: Default,
    {
        let mut rng = Rng::new(base::checksum::place_hash(key.as_bytes()) ^ u64::from(std::process::id()));
        let mut wait = Backoff::new(UPDATE_WAIT_FIRST, UPDATE_WAIT_MAX);
        while wait.tries() < UPDATE_TRIES_MAX {
            let (version, mut value) = match self.get(key).await? {
                Some(stored) => (Some(stored.version), stored.value),
                None => (None, T::default()),
            };
            let result = change(&mut value);
            match self.cas(key, version, &value).await {
                Err(LinearError::Conflict(_)) => tokio::time::sleep(wait.next(&mut rng).into()).await,
                written => return written.map(|_| (value, result)),
            }
        }
        let why = format!("{UPDATE_TRIES_MAX} times somebody else wrote {key:?} at the same time");
        Err(LinearError::Refused(Refused::busy(why, UPDATE_WAIT_MAX)))
    }

    async fn write(&self, call: Call, value: &T) -> Result<u64, LinearError> {
        let answer = self.node.call(&call.once().body(json_of(value)?)).await?;
        match version(&answer) {
            Some(version) if answer.status == StatusCode::NO_CONTENT => Ok(version),
            _ => Err(failed(&answer)),
        }
    }
}

impl Linear<i64> {
    /// Adds to a number, which is 0 if there is none, at one moment. Gives the sum.
    pub async fn add(&self, key: &str, n: i64) -> Result<i64, LinearError> {
        self.apply(key, Function::new("number.add").arg(n)).await?.as_i64().ok_or_else(unreadable)
    }
}

fn version(answer: &Answer) -> Option<u64> {
    answer.version()?.parse().ok()
}

fn failed(answer: &Answer) -> LinearError {
    match answer.status {
        StatusCode::PRECONDITION_FAILED => LinearError::Conflict(version(answer)),
        _ => answer.unexpected().into(),
    }
}

fn unreadable() -> LinearError {
    LinearError::Unknown(Unknown { why: "the node's answer is not what docs/api.md says".into() })
}

fn json_of(value: &impl Serialize) -> Result<Bytes, LinearError> {
    let no_json = |e| LinearError::Refused(Refused::wrong(format!("the value cannot be JSON: {e}")));
    Ok(serde_json::to_vec(value).map_err(no_json)?.into())
}

/// It is replaced; who asks does not hear by what it was.
fn was_other_type(error: &serde_json::Error) -> LinearError {
    let why = format!("the value is stored, but what was there is no JSON of this type: {error}");
    LinearError::Unknown(Unknown { why })
}

fn other_type(error: &serde_json::Error) -> LinearError {
    LinearError::Refused(Refused::wrong(format!("what is stored is no JSON of this type: {error}")))
}

fn millis(answer: &Answer, header: &HeaderName) -> Option<Duration> {
    answer.header(header).and_then(|ms| ms.parse().ok()).map(Duration::from_millis)
}

/// Of a read nothing can have happened.
fn of_read(failed: Failed) -> Failed {
    match failed {
        Failed::Unknown(unknown) => Failed::Refused(Refused::busy(unknown.why, RETRY_AFTER)),
        refused => refused,
    }
}

impl Function {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), args: Vec::new() }
    }

    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }
}

impl LinearError {
    pub fn happened(&self) -> Happened {
        match self {
            Self::Conflict(_) | Self::Refused(_) => Happened::No,
            Self::Unknown(_) => Happened::Maybe,
        }
    }

    /// The three ends of any operation, for whoever does not need the reasons.
    pub fn outcome<T>(self) -> Outcome<T> {
        match self {
            Self::Refused(refused) => Outcome::Refused(refused),
            Self::Unknown(unknown) => Outcome::Unknown(unknown),
            Self::Conflict(_) => Outcome::Refused(Refused::wrong(self.to_string())),
        }
    }
}

impl From<Failed> for LinearError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for LinearError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(None) => f.write_str("there is no value of that version"),
            Self::Conflict(Some(version)) => write!(f, "the value has version {version}"),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for LinearError {}

impl<T> Clone for Linear<T> {
    fn clone(&self) -> Self {
        self.of()
    }
}
