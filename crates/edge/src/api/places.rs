//! Who may have how many of the API's places. A connection is a stranger's until a request on it shows a token that opens
//! something. From then on it counts among that token's holder's, where no stranger can push it out. So it is with streams. Who asks
//! whether the node lives has places that nobody else takes: whoever watches over it would kill it otherwise.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use base::Span;
use futures_util::{Stream, StreamExt};
use host::crowd::{Crowd, Gone, Place, network};
use node::View;

use super::limits::*;
use super::{Problem, guard};
use crate::tls::Certs;

/// Whose a place is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    Address(IpAddr),
    Operator,
    Namespace(Arc<str>),
    Service(Arc<str>),
}

/// How many connections there are at most, of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// That have not asked anything,
    pub silent: usize,
    /// ... have asked without a token,
    pub strangers: usize,
    /// ... whether the node lives or is ready,
    pub probes: usize,
    /// ... with one.
    pub known: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { silent: SILENT_MAX, strangers: STRANGERS_MAX, probes: PROBES_MAX, known: CONNECTIONS_MAX }
    }
}

#[derive(Debug)]
pub struct Door {
    silent: Arc<Crowd<Who>>,
    strangers: Arc<Crowd<Who>>,
    probes: Arc<Crowd<Who>>,
    known: Arc<Crowd<Who>>,
    /// Of a door with TLS.
    certs: Option<Arc<Certs>>,
}

/// One connection. Its requests have it with them.
#[derive(Clone, Debug)]
pub struct Visitor(Arc<Visit>);

#[derive(Debug)]
struct Visit {
    door: Arc<Door>,
    from: IpAddr,
    /// The node's own address that it came to.
    to: IpAddr,
    /// It came from this machine.
    is_here: bool,
    gone: Arc<Gone>,
    at: Mutex<(Kind, Place<Who>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Silent,
    Stranger,
    Probe,
    Known,
}

impl Door {
    pub fn new(room: Room, certs: Option<Arc<Certs>>) -> Arc<Self> {
        Arc::new(Self {
            silent: Crowd::of_strangers(room.silent),
            strangers: Crowd::of_strangers(room.strangers),
            probes: Crowd::of_strangers(room.probes),
            known: Crowd::new(room.known),
            certs,
        })
    }

    pub fn enter(self: &Arc<Self>, from: IpAddr, to: IpAddr) -> Visitor {
        let is_here = from.to_canonical().is_loopback() || from == to;
        let (gone, from) = (Arc::<Gone>::default(), network(from));
        let place = self.silent.enter(Who::Address(from), Arc::clone(&gone));
        Visitor(Arc::new(Visit {
            door: Arc::clone(self),
            from,
            to,
            is_here,
            gone,
            at: Mutex::new((Kind::Silent, place)),
        }))
    }
}

impl Visitor {
    pub fn to(&self) -> IpAddr {
        self.0.to.to_canonical()
    }

    /// It came by TLS, and this is a name that its door has a certificate for: no stranger's page can bear it.
    pub fn is_certified(&self, name: &str) -> bool {
        self.0.door.certs.as_ref().is_some_and(|certs| certs.has(name))
    }

    pub fn is_here(&self) -> bool {
        self.0.is_here
    }

    /// Ends when the connection is to make room for another one.
    pub async fn gone(&self) {
        self.0.gone.heard().await;
    }

    /// A request for this path has come.
    pub fn asks(&self, path: &str, headers: &HeaderMap, view: &View) -> Result<(), Problem> {
        let Visit { door, from, gone, at, .. } = &*self.0;
        let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.0 == Kind::Known {
            return Ok(());
        }
        let stranger = || Who::Address(*from);
        *at = match holder(path, headers, view) {
            Some(holder) => {
                let place = door.known.try_enter(holder, Arc::clone(gone)).ok_or_else(|| {
                    Problem::busy("too many connections with this token, as others need some, too", Span::secs(1))
                })?;
                (Kind::Known, place)
            }
            None if is_probe(path) => match at.0 {
                Kind::Probe => return Ok(()),
                _ => (Kind::Probe, door.probes.enter(stranger(), Arc::clone(gone))),
            },
            None if at.0 == Kind::Stranger => return Ok(()),
            None => (Kind::Stranger, door.strangers.enter(stranger(), Arc::clone(gone))),
        };
        Ok(())
    }
}

/// What anybody may ask, always.
pub fn is_probe(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

/// Whose token a request shows, of those that open something at its path.
pub fn holder(path: &str, headers: &HeaderMap, view: &View) -> Option<Who> {
    if guard::operator(headers, view).is_ok() {
        return Some(Who::Operator);
    }
    // Who is to find other services.
    if path == "/v1/catalog" || path.starts_with("/v1/catalog/") {
        return guard::any_clone(headers, view).map(|service| Who::Service(service.into()));
    }
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    match (parts.next()?, parts.next()?) {
        ("ns", name) => guard::holder(headers, view, name).ok().map(|()| Who::Namespace(name.into())),
        ("profiles", name) => {
            let namespace = view.profiles.get(name)?.namespace.as_str();
            guard::holder(headers, view, namespace).ok().map(|()| Who::Namespace(namespace.into()))
        }
        ("services", name) => guard::member(headers, view, name).ok().map(|()| Who::Service(name.into())),
        _ => None,
    }
}

/// Where a request comes from; nowhere, if it comes by no connection.
pub struct From(pub IpAddr);

impl<S: Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(from(&parts.extensions)))
    }
}

pub fn from(extensions: &Extensions) -> IpAddr {
    extensions.get::<Visitor>().map_or(Ipv4Addr::UNSPECIFIED.into(), |visitor| visitor.0.from)
}

/// Streams of one kind: those of strangers, and those of who holds a token.
#[derive(Debug)]
pub struct Streams {
    strangers: Arc<Crowd<Who>>,
    known: Arc<Crowd<Who>>,
}

impl Streams {
    pub fn new(strangers: usize, known: usize) -> Arc<Self> {
        Arc::new(Self { strangers: Crowd::new(strangers), known: Crowd::new(known) })
    }

    /// A place for one more of this one's. A stranger's oldest stream may end for it; who holds a token and has most keeps what it
    /// has.
    pub fn take(&self, who: Who) -> Result<Place<Who>, Problem> {
        if matches!(who, Who::Address(_)) {
            return Ok(self.strangers.enter(who, Arc::default()));
        }
        let taken = self.known.try_enter(who, Arc::default());
        taken.ok_or_else(|| Problem::busy("too many streams with this token, as others need some, too", Span::secs(5)))
    }
}

/// The stream, until its place is somebody else's.
pub fn held<S: Stream>(stream: S, place: Place<Who>) -> impl Stream<Item = S::Item> {
    stream.take_until(place.left())
}
