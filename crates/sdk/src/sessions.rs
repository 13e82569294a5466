//! Values of class `session`: by a cookie that a browser keeps (SSM's own way: the cookie says where the value is, and proves
//! it), or by a key alone. Values are JSON of `T`. The node seals and opens cookies; a program never holds their keys.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use base::{Refused, Rng, Unknown};
use bytes::Bytes;
use flow::Backoff;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits::*;
use crate::node::{Answer, Call, Failed, quoted};
use crate::on_behalf::During;
use crate::{BadCookie, Node, ReadError, WriteError};

/// What is left of a value's lease in an answer; the lease to give in a request.
const LEASE: HeaderName = HeaderName::from_static("coppice-lease-ms");
const COOKIE: HeaderName = HeaderName::from_static("coppice-cookie");
/// In a namespace with `merge = "fields"`: what was read, so that the fields that differ can be found.
const BASE: &str = "_coppice";

/// The sessions of one namespace. Cheap to clone.
pub struct Sessions<T> {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
    value: PhantomData<fn() -> T>,
}

/// Which value a write replaces, as its node names it. Compare for equality, no more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Version(pub(crate) Arc<str>);

/// What a browser holds of a session. Give it back unchanged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cookie(String);

/// A value as it was read. Write it back with [`When::Version`], and nobody's write in between is lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Held<T> {
    pub value: T,
    pub version: Version,
    pub lease_left: Duration,
    /// The namespace's note of what was read, if it merges fields.
    base: Option<Value>,
}

/// A session that was stored: the cookie that finds it from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    pub cookie: Cookie,
    pub version: Version,
}

/// The condition of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    /// There is no value.
    Absent,
    /// There is one.
    Present,
    /// The present value has just this version.
    Version(Version),
}

impl<T> Sessions<T> {
    /// Those of a namespace whose token one has. Clones of a service use [`crate::Service::sessions`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), during: None, value: PhantomData }
    }

    /// For what is done for one request: it matters as much as the request does (in overload who matters less is refused first),
    /// and is over when nobody waits for the answer any more. `headers` are the request's, as the edge passed them on.
    ///
    /// ```
    /// # use sdk::{Node, Sessions, axum::http::HeaderMap};
    /// # async fn page(carts: &Sessions<Vec<String>>, headers: &HeaderMap) -> Result<(), sdk::ReadError> {
    /// let cart = carts.during(headers).get("user-1").await?;
    /// # Ok(()) }
    /// ```
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// The cookie that a browser sent for this namespace, if it did.
    ///
    /// ```
    /// # use sdk::{Node, Sessions, axum::http::{HeaderMap, HeaderValue}};
    /// # let node = Node::at(["127.0.0.1:7070".parse().unwrap()]).unwrap();
    /// let carts: Sessions<Vec<String>> = Sessions::new(node, "carts", "token");
    /// let mut headers = HeaderMap::new();
    /// headers.insert("cookie", HeaderValue::from_static("theme=dark; coppice-carts=abc.def"));
    /// let cookie = carts.cookie_of(&headers).unwrap();
    /// assert_eq!(cookie.as_str(), "abc.def");
    /// assert_eq!(carts.set_cookie(&cookie), "coppice-carts=abc.def; Path=/; HttpOnly; SameSite=Lax");
    /// ```
    pub fn cookie_of(&self, headers: &HeaderMap) -> Option<Cookie> {
        let name = self.cookie_name();
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(is, _)| *is == name).map(|(_, value)| Cookie(value.to_owned()))
    }

    /// The value of `Set-Cookie` with which the browser is given its cookie. Add `; Secure` behind TLS.
    pub fn set_cookie(&self, cookie: &Cookie) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Lax", self.cookie_name(), cookie.0)
    }

    /// The value of `Set-Cookie` that makes the browser forget it.
    pub fn clear_cookie(&self) -> String {
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax", self.cookie_name())
    }

    fn cookie_name(&self) -> String {
        format!("coppice-{}", self.namespace)
    }

    fn call(&self, method: Method, rest: &str) -> Call {
        let call = Call::new(method, format!("/v1/ns/{}/{rest}", quoted(&self.namespace)), &self.token);
        if let Some(during) = &self.during { during.call(call) } else { call }
    }

    fn on_key(&self, method: Method, what: &str, key: &str) -> Call {
        self.call(method, &format!("{what}/{}", quoted(key)))
    }
}

/// By cookie.
impl<T: Serialize + DeserializeOwned> Sessions<T> {
    /// The session that a cookie names. None if it was ended.
    pub async fn open(&self, cookie: &Cookie) -> Result<Option<Held<T>>, ReadError> {
        read(self.node.call(&self.call(Method::GET, "session").header(COOKIE, &cookie.0)?).await?)
    }

    /// A new session.
    pub async fn begin(&self, value: &T) -> Result<Sealed, WriteError> {
        self.seal(self.call(Method::POST, "session").body(json(value, None)?)).await
    }

    /// Stores a session under a new cookie. The older one still opens it, at its newest value.
    pub async fn save(&self, cookie: &Cookie, value: &T, when: When) -> Result<Sealed, WriteError> {
        let call = self.call(Method::POST, "session").header(COOKIE, &cookie.0)?;
        self.seal(condition(call, &when)?.body(json(value, None)?)).await
    }

    /// A new lease for a session that stays as it is; `None` is the namespace's own. Nothing if there is no such session.
    pub async fn prolong(&self, cookie: &Cookie, lease: Option<Duration>) -> Result<Option<Sealed>, WriteError> {
        let call = self.call(Method::POST, "session/touch").header(COOKIE, &cookie.0)?;
        match self.seal(leased(call, lease)?).await {
            Err(WriteError::Conflict(None)) => Ok(None),
            sealed => sealed.map(Some),
        }
    }

    /// Ends a session. False if there was none.
    pub async fn end(&self, cookie: &Cookie) -> Result<bool, WriteError> {
        removed(self.node.call(&self.call(Method::DELETE, "session").header(COOKIE, &cookie.0)?).await?)
    }

    async fn seal(&self, call: Call) -> Result<Sealed, WriteError> {
        let answer = self.node.call(&call).await?;
        if answer.status != StatusCode::OK {
            return Err(not_written(&answer));
        }
        let unreadable = || Unknown { why: "the node's answer to a write is not what docs/api.md says".into() };
        let body: Value = serde_json::from_slice(&answer.body).map_err(|_| WriteError::Unknown(unreadable()))?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        match (text("cookie"), text("version")) {
            (Some(cookie), Some(version)) => {
                Ok(Sealed { cookie: Cookie(cookie.to_owned()), version: Version(version.into()) })
            }
            _ => Err(WriteError::Unknown(unreadable())),
        }
    }
}

/// By key.
impl<T: Serialize + DeserializeOwned> Sessions<T> {
    /// The value under a key, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Held<T>>, ReadError> {
        read(self.node.call(&self.on_key(Method::GET, "keys", key)).await?)
    }

    /// Stores a value under a key, whatever is there.
    pub async fn put(&self, key: &str, value: &T) -> Result<Version, WriteError> {
        self.put_when(key, value, When::Always).await
    }

    /// Stores a value if the condition holds; else [`WriteError::Conflict`] names the present version.
    pub async fn put_when(&self, key: &str, value: &T, when: When) -> Result<Version, WriteError> {
        self.write(key, json(value, None)?, &when).await
    }

    /// Stores a value that was read and changed. Where the namespace merges fields, parallel writes of other fields stay;
    /// elsewhere a write since then is a [`WriteError::Conflict`].
    pub async fn put_back(&self, key: &str, held: &Held<T>) -> Result<Version, WriteError> {
        let when = match held.base {
            Some(_) => When::Present,
            None => When::Version(held.version.clone()),
        };
        self.write(key, json(&held.value, held.base.as_ref())?, &when).await
    }

    /// Reads a value, or begins with the default one; changes it; and writes it, anew as often as somebody else wrote in
    /// between. `change` may run several times. Gives what was written.
    pub async fn update<R>(&self, key: &str, mut change: impl FnMut(&mut T) -> R) -> Result<(T, R), WriteError>
    where
        T: Default,
    {
        let mut rng = Rng::new(base::checksum::place_hash(key.as_bytes()) ^ u64::from(std::process::id()));
        let mut wait = Backoff::new(UPDATE_WAIT_FIRST, UPDATE_WAIT_MAX);
        while wait.tries() < UPDATE_TRIES_MAX {
            let written = match self.get(key).await? {
                Some(mut held) => {
                    let result = change(&mut held.value);
                    self.put_back(key, &held).await.map(|_| (held.value, result))
                }
                None => {
                    let mut value = T::default();
                    let result = change(&mut value);
                    self.put_when(key, &value, When::Absent).await.map(|_| (value, result))
                }
            };
            match written {
                Err(WriteError::Conflict(_)) => tokio::time::sleep(wait.next(&mut rng).into()).await,
                written => return written,
            }
        }
        let why = format!("{UPDATE_TRIES_MAX} times somebody else wrote {key:?} at the same time");
        Err(WriteError::Refused(Refused::busy(why, UPDATE_WAIT_MAX)))
    }

    /// A new lease for a value that stays as it is; `None` is the namespace's own. False if there is no value.
    pub async fn touch(&self, key: &str, lease: Option<Duration>) -> Result<bool, WriteError> {
        removed(self.node.call(&leased(self.on_key(Method::POST, "touch", key), lease)?).await?)
    }

    /// Removes the value under a key. False if there was none.
    pub async fn remove(&self, key: &str) -> Result<bool, WriteError> {
        removed(self.node.call(&self.on_key(Method::DELETE, "keys", key)).await?)
    }

    async fn write(&self, key: &str, body: Bytes, when: &When) -> Result<Version, WriteError> {
        let answer = self.node.call(&condition(self.on_key(Method::PUT, "keys", key), when)?.body(body)).await?;
        match answer.version() {
            Some(version) if answer.status == StatusCode::NO_CONTENT => Ok(Version(version.into())),
            _ => Err(not_written(&answer)),
        }
    }
}

fn read<T: DeserializeOwned>(answer: Answer) -> Result<Option<Held<T>>, ReadError> {
    match answer.status {
        StatusCode::OK => (),
        StatusCode::NOT_FOUND => return Ok(None),
        StatusCode::GONE => return Err(ReadError::Lost),
        _ => {
            let bad = answer.kind().as_deref().and_then(BadCookie::named);
            return Err(bad.map_or_else(|| answer.unexpected().into(), ReadError::Cookie));
        }
    }
    let wrong = |why: String| ReadError::Refused(Refused::wrong(why));
    let is_no_value = |e: serde_json::Error| wrong(format!("what is stored is no JSON of this type: {e}"));
    let mut value: Value = serde_json::from_slice(&answer.body).map_err(is_no_value)?;
    let base = value.as_object_mut().and_then(|fields| fields.remove(BASE));
    let left = answer.header(&LEASE).and_then(|ms| ms.parse().ok()).unwrap_or_default();
    let version = answer.version().ok_or_else(|| wrong("the node gave a value without a version".into()))?.into();
    let value = serde_json::from_value(value).map_err(is_no_value)?;
    Ok(Some(Held { value, version: Version(version), lease_left: Duration::from_millis(left), base }))
}

/// The body of a write.
fn json<T: Serialize>(value: &T, base: Option<&Value>) -> Result<Bytes, Failed> {
    let no_json = |e: serde_json::Error| Failed::Refused(Refused::wrong(format!("the value cannot be JSON: {e}")));
    let Some(base) = base else { return serde_json::to_vec(value).map(Bytes::from).map_err(no_json) };
    let mut value = serde_json::to_value(value).map_err(no_json)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert(BASE.to_owned(), base.clone());
    }
    serde_json::to_vec(&value).map(Bytes::from).map_err(no_json)
}

fn condition(call: Call, when: &When) -> Result<Call, Failed> {
    match when {
        When::Always => Ok(call),
        When::Absent => call.header(header::IF_NONE_MATCH, "*"),
        When::Present => call.header(header::IF_MATCH, "*"),
        When::Version(version) => call.header(header::IF_MATCH, &format!("\"{}\"", version.0)),
    }
}

fn leased(call: Call, lease: Option<Duration>) -> Result<Call, Failed> {
    match lease {
        None => Ok(call),
        Some(lease) => call.header(LEASE, &lease.as_millis().to_string()),
    }
}

fn removed(answer: Answer) -> Result<bool, WriteError> {
    match answer.status {
        StatusCode::NO_CONTENT => Ok(true),
        StatusCode::NOT_FOUND => Ok(false),
        _ => Err(not_written(&answer)),
    }
}

fn not_written(answer: &Answer) -> WriteError {
    match answer.status {
        StatusCode::PRECONDITION_FAILED => {
            WriteError::Conflict(answer.version().map(|version| Version(version.into())))
        }
        StatusCode::NOT_FOUND => WriteError::Conflict(None),
        StatusCode::GONE => WriteError::Lost,
        _ => {
            let bad = answer.kind().as_deref().and_then(BadCookie::named);
            bad.map_or_else(|| answer.unexpected().into(), WriteError::Cookie)
        }
    }
}

impl From<Failed> for ReadError {
    fn from(failed: Failed) -> Self {
        Self::Refused(match failed {
            Failed::Refused(refused) => refused,
            // Of a read nothing can have happened.
            Failed::Unknown(unknown) => Refused::busy(unknown.why, RETRY_AFTER),
        })
    }
}

impl From<Failed> for WriteError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Cookie(bad) => Self::Cookie(bad),
            ReadError::Lost => Self::Lost,
            ReadError::Refused(refused) => Self::Refused(refused),
        }
    }
}

impl Cookie {
    /// What a client showed, whatever it is: the node finds out.
    pub fn shown(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T> Clone for Sessions<T> {
    fn clone(&self) -> Self {
        Self {
            node: self.node.clone(),
            namespace: self.namespace.clone(),
            token: self.token.clone(),
            during: self.during.clone(),
            value: PhantomData,
        }
    }
}
