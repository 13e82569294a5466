//! Objects of class `object`: whole ones (messages, posts, attachments) of an *owner*, on the disks of as many nodes as the
//! namespace declares. Each has an id that the program gives it, so a put or a deletion that nobody answered is asked again,
//! here or at another node, until somebody says what came of it: there is one object, however often it was asked for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::checksum::Summing;
use base::{Outcome, Refused, Unknown};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::Value;

use crate::limits::*;
use crate::node::{Answer, Call, FULL, Failed, Parts, quoted};
use crate::on_behalf::During;
use crate::{Happened, Node, Version};

mod watch;

pub use watch::{ObjectChange, ObjectWatch};

/// On how many disks it is.
const COPIES: HeaderName = HeaderName::from_static("coppice-copies");

/// CRC-32C of all of it, hexadecimal.
const SUM: HeaderName = HeaderName::from_static("coppice-crc32c");

/// The objects of one namespace. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
}

/// The name of an object: 16 bytes, written as 32 hexadecimal digits. Lists are in its order.
///
/// ```
/// let id: sdk::ObjectId = "000102030405060708090a0b0c0d0e0f".parse().unwrap();
/// assert_eq!((id.0[15], id.to_string().as_str()), (15, "000102030405060708090a0b0c0d0e0f"));
/// assert!("letter".parse::<sdk::ObjectId>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId(pub [u8; 16]);

/// Text that is no [`ObjectId`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoObjectId;

/// An object as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub version: Version,
    pub body: Bytes,
}

/// An object that is being read ([`Objects::read`]).
pub struct ObjectReader {
    objects: Objects,
    owner: Arc<str>,
    id: ObjectId,
    version: Version,
    size: u64,
    /// CRC-32C of all of it. None: an older node does not say.
    sum: Option<u32>,
    at: u64,
    first: Option<Bytes>,
    summing: Summing,
}

struct Piece {
    bytes: Bytes,
    /// Of all of the object.
    size: u64,
    sum: Option<u32>,
}

impl ObjectReader {
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Of all of it.
    pub fn bytes(&self) -> u64 {
        self.size
    }

    /// The next bytes; None: that was all, and it was right. Before the last bytes all that went before them is compared with the
    /// checksum of the whole.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        let busy = |why: &str| ObjectError::Refused(Refused::busy(why, RETRY_AFTER));
        if self.at >= self.size {
            return Ok(None);
        }
        let bytes = match self.first.take() {
            Some(bytes) => bytes,
            None => match self.objects.piece(&self.owner, self.id, self.at).await? {
                Some((piece, _)) if (piece.size, piece.sum) == (self.size, self.sum) => piece.bytes,
                Some(_) => return Err(busy("it was written anew while it was read")),
                None => return Err(busy("it was there, and cannot be found")),
            },
        };
        if bytes.is_empty() || self.at + bytes.len() as u64 > self.size {
            return Err(of_read(unreadable()));
        }
        self.summing.add(&bytes);
        self.at += bytes.len() as u64;
        if self.at == self.size && self.sum.is_some_and(|sum| sum != self.summing.sum().0) {
            return Err(busy("its pieces together have a wrong checksum"));
        }
        Ok(Some(bytes))
    }
}

/// What is known of an object without its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectHead {
    pub id: ObjectId,
    pub version: Version,
    pub bytes: u64,
}

/// A write that was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    pub version: Version,
    /// Disks that have it: fewer than are declared if no more nodes live, and completed when others do.
    pub copies: u32,
}

/// Objects of an owner in order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectPage {
    pub objects: Vec<ObjectHead>,
    /// Where to go on, if there may be more.
    pub after: Option<ObjectId>,
    /// Nodes that did not say what they have. With none the page is complete; else objects may be missing in it.
    pub missing: Vec<String>,
}

/// Why an operation did not end well. A read is never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectError {
    /// It was deleted, which is final where objects are written once. Nothing changed.
    Deleted,
    /// There is another object with this id: its version. Nothing changed.
    Conflict(Option<Version>),
    /// The disks of all nodes that could take it are full. Nothing changed.
    Full(Refused),
    Refused(Refused),
    Unknown(Unknown),
}

impl Objects {
    /// Those of a namespace whose token one has. Clones of a service use [`crate::Service::objects`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), during: None }
    }

    /// For what is done for one request: it matters as much as the request does, and is over when nobody waits for the answer
    /// any more. `headers` are the request's, as the edge passed them on.
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// Puts an object under a new id, 64 MiB at most.
    pub async fn put(&self, owner: &str, body: impl Into<Bytes>) -> Result<(ObjectId, Written), ObjectError> {
        let id = ObjectId::fresh();
        Ok((id, self.put_as(owner, id, body).await?))
    }

    /// Puts an object under this id. The same again is done once. `Conflict` if another object has the id, `Deleted` if what had
    /// it was deleted (`writes = "once"`; with `"newest"` it takes their place).
    pub async fn put_as(&self, owner: &str, id: ObjectId, body: impl Into<Bytes>) -> Result<Written, ObjectError> {
        self.put_parts(owner, id, [body.into()]).await
    }

    /// The same of bytes that lie in several parts, which are not joined for it.
    pub async fn put_parts(
        &self,
        owner: &str,
        id: ObjectId,
        parts: impl IntoIterator<Item = Bytes>,
    ) -> Result<Written, ObjectError> {
        let mut call = self.on_object(Method::PUT, owner, id);
        call.body = Parts::of(parts);
        call.once = true;
        call.most += OBJECT_TIME_PER_MIB * (call.body.len() >> 20) as u32;
        written(&self.node.call(&call).await?)
    }

    /// The object with this id, all of it in memory; None if no node has it. An object that was deleted is `Deleted`.
    pub async fn get(&self, owner: &str, id: ObjectId) -> Result<Option<Object>, ObjectError> {
        let Some(mut reader) = self.read(owner, id).await? else { return Ok(None) };
        let version = reader.version().clone();
        let Some(first) = reader.next().await? else { return Ok(Some(Object { version, body: Bytes::new() })) };
        if first.len() as u64 == reader.bytes() {
            return Ok(Some(Object { version, body: first }));
        }
        let mut body = BytesMut::with_capacity(reader.bytes() as usize);
        body.extend_from_slice(&first);
        while let Some(piece) = reader.next().await? {
            body.extend_from_slice(&piece);
        }
        Ok(Some(Object { version, body: body.freeze() }))
    }

    /// The object with this id, to be read piece by piece: what is held in memory is a piece of 1 MiB. Each is asked for anew, so a node
    /// that dies meanwhile is not noticed as long as another one has the object.
    pub async fn read(&self, owner: &str, id: ObjectId) -> Result<Option<ObjectReader>, ObjectError> {
        let Some((piece, version)) = self.piece(owner, id, 0).await? else { return Ok(None) };
        let Piece { bytes, size, sum } = piece;
        if size > OBJECT_BYTES_MAX {
            return Err(of_read(unreadable()));
        }
        let (objects, owner, summing) = (self.clone(), owner.into(), Summing::default());
        Ok(Some(ObjectReader { objects, owner, id, version, size, sum, at: 0, first: Some(bytes), summing }))
    }

    /// From this byte on.
    async fn piece(&self, owner: &str, id: ObjectId, at: u64) -> Result<Option<(Piece, Version)>, ObjectError> {
        let call = self.on_object(Method::GET, owner, id);
        let range = format!("bytes={at}-{}", at + OBJECT_PIECE_BYTES - 1);
        let answer =
            self.node.call(&call.header(header::RANGE, &range)?).await.map_err(|failed| of_read(failed.into()))?;
        let read = match answer.status {
            StatusCode::OK if at == 0 => Some(answer.body.len() as u64),
            StatusCode::PARTIAL_CONTENT => range_at(&answer, at),
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(of_read(failed(&answer))),
        };
        let sum = answer.header(&SUM).and_then(|sum| u32::from_str_radix(sum, 16).ok());
        let read = read.zip(version(&answer));
        let (size, version) = read.ok_or_else(|| of_read(unreadable()))?;
        Ok(Some((Piece { bytes: answer.body, size, sum }, version)))
    }

    /// The same without its bytes.
    pub async fn head(&self, owner: &str, id: ObjectId) -> Result<Option<ObjectHead>, ObjectError> {
        let mut call = self.on_object(Method::HEAD, owner, id);
        call.repeats = true;
        let answer = self.node.call(&call).await.map_err(|failed| of_read(failed.into()))?;
        match answer.status {
            StatusCode::OK => {
                let bytes = answer.header(&header::CONTENT_LENGTH).and_then(|bytes| bytes.parse().ok());
                let head = version(&answer).zip(bytes).map(|(version, bytes)| ObjectHead { id, version, bytes });
                head.map(Some).ok_or_else(|| of_read(unreadable()))
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(of_read(failed(&answer))),
        }
    }

    /// Deletes an object; again, too. None if no node has it.
    pub async fn delete(&self, owner: &str, id: ObjectId) -> Result<Option<Written>, ObjectError> {
        let mut call = self.on_object(Method::DELETE, owner, id);
        call.once = true;
        let answer = self.node.call(&call).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => written(&answer).map(Some),
        }
    }

    /// Objects of an owner behind this id, a page at a time: 1 to 1,000 of them.
    pub async fn list(&self, owner: &str, after: Option<ObjectId>, limit: usize) -> Result<ObjectPage, ObjectError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let path = format!("objects/{}?limit={limit}{after}", quoted(owner));
        let answer = self.node.call(&self.call(Method::GET, &path)).await.map_err(|failed| of_read(failed.into()))?;
        if answer.status != StatusCode::OK {
            return Err(of_read(failed(&answer)));
        }
        page(&answer.body).ok_or_else(|| of_read(unreadable()))
    }

    fn call(&self, method: Method, rest: &str) -> Call {
        let call = Call::new(method, format!("/v1/ns/{}/{rest}", quoted(&self.namespace)), &self.token);
        if let Some(during) = &self.during { during.call(call) } else { call }
    }

    fn on_object(&self, method: Method, owner: &str, id: ObjectId) -> Call {
        self.call(method, &format!("objects/{}/{id}", quoted(owner)))
    }
}

impl ObjectId {
    /// One that nobody else has made. It begins with the time, so an owner's objects are listed about in the order of their making.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7().into_bytes())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ObjectId {
    type Err = NoObjectId;

    fn from_str(text: &str) -> Result<Self, NoObjectId> {
        let is_id = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id).ok_or(NoObjectId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl ObjectPage {
    /// Whether all nodes have said what they have.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl ObjectError {
    pub fn happened(&self) -> Happened {
        match self {
            Self::Deleted | Self::Conflict(_) | Self::Full(_) | Self::Refused(_) => Happened::No,
            Self::Unknown(_) => Happened::Maybe,
        }
    }

    /// The three ends of any operation, for whoever does not need the reasons.
    pub fn outcome<T>(self) -> Outcome<T> {
        match self {
            Self::Full(refused) | Self::Refused(refused) => Outcome::Refused(refused),
            Self::Unknown(unknown) => Outcome::Unknown(unknown),
            Self::Deleted | Self::Conflict(_) => Outcome::Refused(Refused::wrong(self.to_string())),
        }
    }
}

impl From<Failed> for ObjectError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) if refused.why == FULL => Self::Full(refused),
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted => f.write_str("the object was deleted"),
            Self::Conflict(_) => f.write_str("there is another object with this id"),
            Self::Full(refused) | Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl fmt::Display for NoObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of an object is 32 hexadecimal digits")
    }
}

impl std::error::Error for ObjectError {}
impl std::error::Error for NoObjectId {}

fn version(answer: &Answer) -> Option<Version> {
    answer.version().map(|version| Version(version.into()))
}

/// The size of what the answer is a range of, which begins there.
fn range_at(answer: &Answer, at: u64) -> Option<u64> {
    let (range, size) = answer.header(&header::CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to, size): (u64, u64, u64) = (from.parse().ok()?, to.parse().ok()?, size.parse().ok()?);
    (from == at && to >= from && to - from + 1 == answer.body.len() as u64).then_some(size)
}

fn written(answer: &Answer) -> Result<Written, ObjectError> {
    if answer.status != StatusCode::NO_CONTENT {
        return Err(failed(answer));
    }
    let copies = answer.header(&COPIES).and_then(|copies| copies.parse().ok());
    let written = version(answer).zip(copies).map(|(version, copies)| Written { version, copies });
    written.ok_or_else(unreadable)
}

fn page(body: &[u8]) -> Option<ObjectPage> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let id = |value: &Value| value.as_str()?.parse().ok();
    let head = |of: &Value| {
        let version = Version(of["version"].as_str()?.into());
        Some(ObjectHead { id: id(&of["id"])?, version, bytes: of["bytes"].as_u64()? })
    };
    let objects = body["objects"].as_array()?.iter().map(head).collect::<Option<_>>()?;
    let missing = body["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut missing: Vec<String> = missing.collect();
    if missing.is_empty() && body["complete"].as_bool() != Some(true) {
        missing.push("somebody".into());
    }
    let after = match body.get("after") {
        Some(after) => Some(id(after)?),
        None => None,
    };
    Some(ObjectPage { objects, after, missing })
}

fn failed(answer: &Answer) -> ObjectError {
    match answer.status {
        StatusCode::CONFLICT => ObjectError::Conflict(version(answer)),
        StatusCode::GONE => ObjectError::Deleted,
        _ => answer.unexpected().into(),
    }
}

fn unreadable() -> ObjectError {
    ObjectError::Unknown(Unknown { why: "the node's answer is not what docs/api.md says".into() })
}

/// Of a read nothing can have happened.
fn of_read(error: ObjectError) -> ObjectError {
    match error {
        ObjectError::Unknown(unknown) => ObjectError::Refused(Refused::busy(unknown.why, RETRY_AFTER)),
        other => other,
    }
}
