//! Profiles (`clones/src/profile.rs`): with each request the service is told who asks, and what that one wants. A
//! change is seen by the next request at any node: copies that nodes keep go before it is acknowledged
//! (`edge/src/profiles.rs`). While a profile cannot be read, what this node has seen last goes with the request, and
//! says so: a page with the wishes of a moment ago is better than none.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clones::profile::Key;
use clones::{ProfileSpec, RouteProfile};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::limits::PROFILE_BUDGET;
use super::passage::Edge;
use super::session::Carried;
use crate::cookie;
use crate::profiles::{keep, kept, read};

/// Base64url of JSON; `-`: there is none.
pub const PROFILE: HeaderName = HeaderName::from_static("coppice-profile");
/// What the person is called.
const ID: HeaderName = HeaderName::from_static("coppice-profile-id");
/// `old`: what was seen last, as it cannot be read; `unknown`: nothing was.
const STATE: HeaderName = HeaderName::from_static("coppice-profile-state");

/// Who asks: none if nothing says so.
fn who(key: Key<'_>, headers: &HeaderMap, client: IpAddr, session: Option<&Carried>) -> Option<String> {
    let id = match key {
        Key::Session => session.filter(|session| session.is_there()).map(|session| session.id().to_owned()),
        Key::Cookie(name) => cookie::values(headers, name).into_iter().find(|id| ProfileSpec::is_id(id)),
        Key::Header(name) => headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned),
        Key::Address => Some(client.to_canonical().to_string()),
    };
    id.filter(|id| ProfileSpec::is_id(id))
}

/// Tells the service. What the person wants is told the pipeline, too.
pub async fn tell(
    edge: &Edge,
    route: &Arc<RouteProfile>,
    (headers, client, session): (&mut HeaderMap, IpAddr, Option<&Carried>),
    class: u8,
) -> Map<String, Value> {
    let none = HeaderValue::from_static("-");
    let id = route.spec.key().and_then(|key| who(key, headers, client, session));
    let Some(id) = id else {
        headers.insert(PROFILE, none);
        return Map::new();
    };
    headers.insert(ID, HeaderValue::try_from(&id).expect("an id is plain ASCII"));
    let (person, counts) = ((&*route.name, &*id), &edge.sessions.meter);
    let (backend, namespace) = (&edge.sessions.backend, &*route.spec.namespace);
    let stored = match kept(&**backend, namespace, person, PROFILE_BUDGET).await {
        (Some(stored), _) => {
            counts.profiles_kept.fetch_add(1, Relaxed);
            stored
        }
        (None, mark) => match read(&**backend, namespace, person, class, PROFILE_BUDGET).await {
            Ok(stored) => {
                counts.profiles_read.fetch_add(1, Relaxed);
                edge.profiles.put(person, stored.clone());
                if let Some(mark) = mark {
                    let person = (route.name.clone(), id.clone());
                    tokio::spawn(keep(Arc::clone(backend), namespace.to_owned(), person, stored.clone(), mark));
                }
                stored
            }
            Err(why) => {
                tracing::debug!(profile = route.name, why, "a profile could not be read");
                let seen = edge.profiles.get(person);
                let (count, state) =
                    if seen.is_some() { (&counts.profiles_old, "old") } else { (&counts.profiles_unknown, "unknown") };
                count.fetch_add(1, Relaxed);
                headers.insert(STATE, HeaderValue::from_static(state));
                seen.flatten()
            }
        },
    };
    let Some(stored) = stored else {
        headers.insert(PROFILE, none);
        return Map::new();
    };
    headers.insert(PROFILE, HeaderValue::try_from(stored.coded()).expect("base64url is plain ASCII"));
    stored.profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_known_by_what_is_declared() {
        let headers = HeaderMap::from_iter([
            (http::header::COOKIE, HeaderValue::from_static("a=b; reader=; reader=ann")),
            (HeaderName::from_static("x-user"), HeaderValue::from_static("bob")),
            (HeaderName::from_static("x-odd"), HeaderValue::from_static("b ob")),
        ]);
        let who = |key| who(key, &headers, "::ffff:10.0.0.7".parse().unwrap(), None);
        assert_eq!(who(Key::Cookie("reader")).as_deref(), Some("ann"));
        assert_eq!(who(Key::Cookie("other")), None);
        assert_eq!(who(Key::Header("X-User")).as_deref(), Some("bob"));
        assert_eq!(who(Key::Header("x-odd")), None);
        assert_eq!(who(Key::Address).as_deref(), Some("10.0.0.7"));
        assert_eq!(who(Key::Session), None);
    }
}
