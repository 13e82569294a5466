//! Values of class `soft`: texts, counters, hashes, sets and lists that every node has. A write is applied at the node that is asked
//! and is at the others a moment later; two nodes that do not hear of each other both go on, and no update is lost by joining.
//! Each answer is what that node knows. What only one may get belongs in class `linear`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Outcome, Refused, Unknown};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde_json::{Value, json};

use crate::limits::RETRY_AFTER;
use crate::node::{Answer, Call, Failed, quoted};
use crate::on_behalf::During;
use crate::{Happened, Node};

mod changes;
mod held;
mod replica;

pub use changes::{Changed as SoftChanged, SoftChange, SoftChanges, Why as SoftWhy};
pub use held::Hold;
pub use replica::Replica;

/// When a key is to end, milliseconds from now.
const ENDS: HeaderName = HeaderName::from_static("coppice-ends-ms");

/// The values of one namespace. Cheap to clone. Keys are texts, values any bytes.
#[derive(Clone)]
pub struct Soft {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
    stale: Option<Duration>,
}

/// Why an operation did not end well. A read is never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SoftError {
    /// The key has something of another kind, or what is there is no number. Nothing changed.
    Kind(String),
    Refused(Refused),
    /// It is applied at one node and will spread, or it never came to a node.
    Unknown(Unknown),
}

impl Soft {
    /// Those of a namespace whose token one has. Clones of a service use [`crate::Service::soft`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), during: None, stale: None }
    }

    /// For what is done for one request: it matters as much as the request does, and is over when nobody waits for the answer
    /// any more. `headers` are the request's, as the edge passed them on.
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// Reads what is so old at most: what any node had acknowledged before is seen. A node that may know less is passed over; where
    /// all may, reads are refused. Nodes hear of each other each `gossip` period, one at a time, so a bound of less than their
    /// number times that is seldom met.
    pub fn stale(&self, bound: Duration) -> Self {
        Self { stale: Some(bound), ..self.clone() }
    }

    /// A map of all that there is in this program's own memory, kept by what changes. It is here when all has come.
    ///
    /// ```
    /// # async fn shop(service: sdk::Service) -> Result<(), Box<dyn std::error::Error>> {
    /// let floor = service.soft("floor")?;
    /// floor.set("flag", "on").await?;
    /// let replica = floor.replica().await;
    /// assert_eq!(replica.get("flag").as_deref(), Some(&b"on"[..]));
    /// # Ok(()) }
    /// ```
    pub async fn replica(&self) -> Replica {
        Replica::of(self, "").await
    }

    /// The same of keys that begin so.
    pub async fn replica_of(&self, prefix: &str) -> Replica {
        Replica::of(self, prefix).await
    }

    // Texts and numbers.

    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, SoftError> {
        let call = self.may_be_stale(self.call(Method::GET, "keys", key));
        let answer = self.node.call(&call).await.map_err(of_read)?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(failed(&answer)),
        }
    }

    pub async fn set(&self, key: &str, value: impl Into<Bytes>) -> Result<(), SoftError> {
        self.store(self.call(Method::PUT, "keys", key).body(value)).await
    }

    /// The key ends by itself.
    pub async fn set_for(&self, key: &str, value: impl Into<Bytes>, ends: Duration) -> Result<(), SoftError> {
        let call = self.call(Method::PUT, "keys", key).body(value);
        self.store(call.header(ENDS, &ends.as_millis().max(1).to_string())?).await
    }

    async fn store(&self, call: Call) -> Result<(), SoftError> {
        let answer = self.node.call(&call).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(failed(&answer)) }
    }

    /// Takes a key away, whatever it has. False: there was none.
    pub async fn remove(&self, key: &str) -> Result<bool, SoftError> {
        let answer = self.node.call(&self.call(Method::DELETE, "keys", key)).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(failed(&answer)),
        }
    }

    /// Adds to a number, which is 0 if there is none. Gives the sum that the node knows of: two nodes may give one number.
    pub async fn add(&self, key: &str, n: i64) -> Result<i64, SoftError> {
        self.write(key, "number.add", vec![n.to_string().into()]).await
    }

    /// The key ends by itself after so long. False: there is no such key.
    pub async fn expire(&self, key: &str, ends: Duration) -> Result<bool, SoftError> {
        let ms = ends.as_millis().max(1).to_string();
        Ok(self.write(key, "expire", vec![ms.into()]).await? == 1)
    }

    // Hashes.

    /// Sets a field. True: it is new.
    pub async fn set_field(&self, key: &str, field: &str, value: impl Into<Bytes>) -> Result<bool, SoftError> {
        Ok(self.write(key, "hash.set", vec![named(field), value.into()]).await? == 1)
    }

    pub async fn field(&self, key: &str, field: &str) -> Result<Option<Bytes>, SoftError> {
        match self.read(key, "hash.get", vec![named(field)]).await? {
            Value::Null => Ok(None),
            value => bytes_of(&value).map(Some).ok_or_else(|| of_read(unreadable())),
        }
    }

    /// All fields with their values, in order.
    pub async fn fields(&self, key: &str) -> Result<Vec<(Bytes, Bytes)>, SoftError> {
        let mut parts = self.list(key, "hash.all", Vec::new()).await?.into_iter();
        Ok(std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect())
    }

    /// Adds to a field, which is 0 if there is none.
    pub async fn add_to_field(&self, key: &str, field: &str, n: i64) -> Result<i64, SoftError> {
        self.write(key, "hash.add", vec![named(field), n.to_string().into()]).await
    }

    /// False: there was no such field.
    pub async fn remove_field(&self, key: &str, field: &str) -> Result<bool, SoftError> {
        Ok(self.write(key, "hash.remove", vec![named(field)]).await? == 1)
    }

    // Sets.

    /// True: it is new, as far as the node knows.
    pub async fn insert(&self, key: &str, member: impl Into<Bytes>) -> Result<bool, SoftError> {
        Ok(self.write(key, "set.add", vec![member.into()]).await? == 1)
    }

    /// False: it was no member.
    pub async fn take_out(&self, key: &str, member: impl Into<Bytes>) -> Result<bool, SoftError> {
        Ok(self.write(key, "set.remove", vec![member.into()]).await? == 1)
    }

    pub async fn contains(&self, key: &str, member: impl Into<Bytes>) -> Result<bool, SoftError> {
        Ok(self.read(key, "set.has", vec![member.into()]).await? == 1)
    }

    /// All members, in order.
    pub async fn members(&self, key: &str) -> Result<Vec<Bytes>, SoftError> {
        self.list(key, "set.members", Vec::new()).await
    }

    // Lists.

    /// Puts an item at the head. Gives the length.
    pub async fn push_left(&self, key: &str, item: impl Into<Bytes>) -> Result<i64, SoftError> {
        self.write(key, "list.push-left", vec![item.into()]).await
    }

    /// Puts an item at the end. Gives the length.
    pub async fn push_right(&self, key: &str, item: impl Into<Bytes>) -> Result<i64, SoftError> {
        self.write(key, "list.push-right", vec![item.into()]).await
    }

    /// Items from one place to another, both with them; negative ones count from the end.
    pub async fn range(&self, key: &str, first: i64, last: i64) -> Result<Vec<Bytes>, SoftError> {
        self.list(key, "list.range", vec![first.to_string().into(), last.to_string().into()]).await
    }

    /// Takes away what is not in this range.
    pub async fn trim(&self, key: &str, first: i64, last: i64) -> Result<(), SoftError> {
        let args = vec![first.to_string().into(), last.to_string().into()];
        self.apply(key, "list.trim", args, false).await.map(drop)
    }

    // How it is asked.

    fn call(&self, method: Method, what: &str, key: &str) -> Call {
        let path = format!("/v1/ns/{}/{what}/{}", quoted(&self.namespace), quoted(key));
        let call = Call::new(method, path, &self.token);
        if let Some(during) = &self.during { during.call(call) } else { call }
    }

    fn may_be_stale(&self, call: Call) -> Call {
        let Some(bound) = self.stale else { return call };
        Call { path: format!("{}?stale={}ms", call.path, bound.as_millis()), elsewhere: true, ..call }
    }

    /// `repeats`: it changes nothing.
    async fn apply(&self, key: &str, function: &str, args: Vec<Bytes>, repeats: bool) -> Result<Value, SoftError> {
        let args: Vec<Value> = args.iter().map(text_of).collect();
        let body = json!({"function": function, "args": args}).to_string();
        let call = Call { repeats, ..self.call(Method::POST, "apply", key).body(body) };
        let call = if repeats { self.may_be_stale(call) } else { call };
        let answer = self.node.call(&call).await?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        body.and_then(|mut body| body.get_mut("result").map(Value::take)).ok_or_else(|| unreadable().into())
    }

    async fn read(&self, key: &str, function: &str, args: Vec<Bytes>) -> Result<Value, SoftError> {
        self.apply(key, function, args, true).await.map_err(|error| match error {
            SoftError::Unknown(unknown) => of_read(Failed::Unknown(unknown)),
            other => other,
        })
    }

    async fn list(&self, key: &str, function: &str, args: Vec<Bytes>) -> Result<Vec<Bytes>, SoftError> {
        let result = self.read(key, function, args).await?;
        let items = result.as_array().and_then(|items| items.iter().map(bytes_of).collect());
        items.ok_or_else(|| of_read(unreadable()))
    }

    async fn write(&self, key: &str, function: &str, args: Vec<Bytes>) -> Result<i64, SoftError> {
        self.apply(key, function, args, false).await?.as_i64().ok_or_else(|| unreadable().into())
    }
}

fn named(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

/// As docs/api.md writes bytes.
fn text_of(bytes: &Bytes) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({"base64": STANDARD.encode(bytes)}),
    }
}

fn bytes_of(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(named(text)),
        other => STANDARD.decode(other["base64"].as_str()?).ok().map(Bytes::from),
    }
}

fn failed(answer: &Answer) -> SoftError {
    match answer.status {
        StatusCode::CONFLICT => SoftError::Kind(answer.error()),
        _ => answer.unexpected().into(),
    }
}

fn unreadable() -> Failed {
    Failed::Unknown(Unknown { why: "the node's answer is not what docs/api.md says".into() })
}

/// Of a read nothing can have happened.
fn of_read(failed: Failed) -> SoftError {
    match failed {
        Failed::Unknown(unknown) => SoftError::Refused(Refused::busy(unknown.why, RETRY_AFTER)),
        Failed::Refused(refused) => SoftError::Refused(refused),
    }
}

impl SoftError {
    pub fn happened(&self) -> Happened {
        match self {
            Self::Kind(_) | Self::Refused(_) => Happened::No,
            Self::Unknown(_) => Happened::Maybe,
        }
    }

    /// The three ends of any operation, for whoever does not need the reasons.
    pub fn outcome<T>(self) -> Outcome<T> {
        match self {
            Self::Kind(why) => Outcome::Refused(Refused::wrong(why)),
            Self::Refused(refused) => Outcome::Refused(refused),
            Self::Unknown(unknown) => Outcome::Unknown(unknown),
        }
    }
}

impl From<Failed> for SoftError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for SoftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(why) => f.write_str(why),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for SoftError {}
