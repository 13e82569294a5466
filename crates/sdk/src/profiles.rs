//! Profiles: what a person wants, as `[profile.NAME]` of the declaration says. The edge finds whose request it is, and gives the profile to
//! the service with it ([`profile`]); [`Profiles`] changes them. What was acknowledged goes with the next request, at any node.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use base::{Refused, Unknown};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Node;
use crate::node::{Call, Failed, quoted};
use crate::on_behalf::During;

/// What the edge said of who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wants<T> {
    /// As it was when the request came.
    Known(T),
    /// It could not be read: as this node has seen it last.
    Old(T),
    /// The person has none, or nothing says who it is.
    Nothing,
    /// It could not be read, and the node has seen none.
    Unknown,
}

impl<T> Wants<T> {
    /// The profile, however old.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Known(value) | Self::Old(value) => Some(value),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

/// The profile that came with a request. None: the service declares no `profile`, or what came is no `T`.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Wishes { grey: bool }
///
/// # fn answer(headers: &sdk::axum::http::HeaderMap) {
/// let grey = sdk::profile::<Wishes>(headers).and_then(|wants| wants.value()).is_some_and(|wishes| wishes.grey);
/// # }
/// ```
pub fn profile<T: DeserializeOwned>(headers: &HeaderMap) -> Option<Wants<T>> {
    let state = headers.get("coppice-profile-state").map(|state| state.as_bytes());
    match (headers.get("coppice-profile")?.as_bytes(), state) {
        (b"-", Some(b"unknown")) => Some(Wants::Unknown),
        (b"-", _) => Some(Wants::Nothing),
        (coded, state) => {
            let value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(coded).ok()?).ok()?;
            Some(if state.is_some() { Wants::Old(value) } else { Wants::Known(value) })
        }
    }
}

/// What the person is called who asks, if anything says so.
pub fn profile_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("coppice-profile-id")?.to_str().ok()
}

/// The profiles of one name. Cheap to clone.
///
/// ```
/// # async fn set(service: sdk::Service, headers: &sdk::axum::http::HeaderMap) -> Result<(), Box<dyn std::error::Error>> {
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Wishes { grey: bool }
///
/// let readers = service.profiles::<Wishes>("readers", "people")?;
/// if let Some(id) = sdk::profile_id(headers) {
///     readers.put(id, &Wishes { grey: true }).await?;
/// }
/// # Ok(()) }
/// ```
pub struct Profiles<T> {
    node: Node,
    name: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Profiles<T> {
    fn clone(&self) -> Self {
        let Self { node, name, token, during, of } = self;
        Self { node: node.clone(), name: Arc::clone(name), token: Arc::clone(token), during: during.clone(), of: *of }
    }
}

/// A profile that is kept.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Profile<T> {
    /// Higher with each change.
    pub version: i64,
    #[serde(rename = "profile")]
    pub value: T,
}

/// Why a profile was not read or changed. Reading is never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileError {
    /// It is not as the schema says: how. Nothing changed.
    Schema(String),
    /// It is another version by now. Nothing changed, unless this was asked again after no answer came.
    Changed,
    Refused(Refused),
    Unknown(Unknown),
}

impl<T: Serialize + DeserializeOwned> Profiles<T> {
    /// Those of a name, with the token of the namespace in which they are. Clones of a service use [`crate::Service::profiles`].
    pub fn new(node: Node, name: &str, token: &str) -> Self {
        Self { node, name: name.into(), token: token.into(), during: None, of: PhantomData }
    }

    /// For what is done for one request: it matters as much as the request does, and is over when nobody waits for the answer
    /// any more. `headers` are the request's, as the edge passed them on.
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    pub async fn get(&self, id: &str) -> Result<Option<Profile<T>>, ProfileError> {
        let answer = self.node.call(&self.call(Method::GET, id)).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => serde_json::from_slice(&answer.body).map(Some).map_err(unreadable),
            _ => Err(answer.unexpected().into()),
        }
    }

    /// Puts it in the place of what is there; its version.
    pub async fn put(&self, id: &str, profile: &T) -> Result<i64, ProfileError> {
        self.write(id, profile, None).await
    }

    /// The same if it is still this version.
    pub async fn put_if(&self, id: &str, profile: &T, version: i64) -> Result<i64, ProfileError> {
        self.write(id, profile, Some(version)).await
    }

    pub async fn remove(&self, id: &str) -> Result<(), ProfileError> {
        let answer = self.node.call(&self.call(Method::DELETE, id)).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(()),
            _ => Err(answer.unexpected().into()),
        }
    }

    async fn write(&self, id: &str, profile: &T, version: Option<i64>) -> Result<i64, ProfileError> {
        let body = serde_json::to_string(profile).map_err(unreadable)?;
        let mut call = self.call(Method::PUT, id).body(body);
        if let Some(version) = version {
            let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("digits are allowed in a header");
            call.headers.insert(header::IF_MATCH, tag);
        }
        let answer = self.node.call(&call).await?;
        match answer.status {
            StatusCode::OK => {
                let kept: Profile<serde::de::IgnoredAny> = serde_json::from_slice(&answer.body).map_err(unreadable)?;
                Ok(kept.version)
            }
            StatusCode::PRECONDITION_FAILED => Err(ProfileError::Changed),
            StatusCode::UNPROCESSABLE_ENTITY => Err(ProfileError::Schema(answer.error())),
            _ => Err(answer.unexpected().into()),
        }
    }

    fn call(&self, method: Method, id: &str) -> Call {
        let path = format!("/v1/profiles/{}/{}", quoted(&self.name), quoted(id));
        // The same twice is the same once.
        let call = Call { repeats: true, ..Call::new(method, path, &self.token) };
        if let Some(during) = &self.during { during.call(call) } else { call }
    }
}

fn unreadable(error: serde_json::Error) -> ProfileError {
    ProfileError::Refused(Refused::wrong(format!("a profile is no JSON of this type: {error}")))
}

impl From<Failed> for ProfileError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(why) => write!(f, "it is not as the schema says: {why}"),
            Self::Changed => f.write_str("it is another version by now"),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_with_a_request_is_read() {
        let headers = |all: &[(&'static str, &str)]| -> HeaderMap {
            all.iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect::<Vec<(http::HeaderName, http::HeaderValue)>>()
                .into_iter()
                .collect()
        };
        let coded = URL_SAFE_NO_PAD.encode("[1,2]");
        let read = |all: &[(&'static str, &str)]| profile::<Vec<u8>>(&headers(all));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("coppice-profile", "-")]), Some(Wants::Nothing));
        assert_eq!(read(&[("coppice-profile", &coded)]), Some(Wants::Known(vec![1, 2])));
        assert_eq!(
            read(&[("coppice-profile", &coded), ("coppice-profile-state", "old")]),
            Some(Wants::Old(vec![1, 2]))
        );
        assert_eq!(read(&[("coppice-profile", "-"), ("coppice-profile-state", "unknown")]), Some(Wants::Unknown));
        assert_eq!(read(&[("coppice-profile", "%")]), None);
        assert_eq!(profile_id(&headers(&[("coppice-profile-id", "ann")])), Some("ann"));
    }
}
