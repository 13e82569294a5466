//! The road of a request at the HTTP door, the same for HTTP/1, HTTP/2 and WebSocket; what differs is where bytes come
//! from and go to. Each step is a function of its own, in the file of its name:
//!
//! 1. `cleanse`: what is no request for a clone is refused; what the client may not say is taken out, what we say is put in.
//! 2. `find`: by its path, whose it is, and what is declared for it. Neither of the two waits for anybody ([`Understood`]), and what they
//!    found is kept however often the request is sent.
//! 3. `rank`: how much it matters.
//! 4. `admit`: it is let in, waits a moment, or goes to another place, or nowhere.
//! 5. `session`: its session is opened where it goes, and what is known of who asks.
//! 6. `errand` (beside this folder): it goes to a clone, and to another one if that one fails.
//! 7. `settle`: how it went is counted.
//! 8. `session`: what its answer says of the session is stored.
//! 9. `deliver`: the answer as its client gets it.
//!
//! Where a service has an edge cache that goes before the third step (`cached`), and a pipeline behind the last one
//! (`piped`).

mod admit;
mod change;
mod cleanse;
mod deliver;
mod find;
mod rank;
mod room;
mod session;
mod settle;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response};
use node::View;
use tokio::sync::watch;

use super::Config;
use super::body::{Counted, DownBody, Source};
use super::cached::{self, Cached};
use super::drop_files::DropFiles;
use super::errand::Errand;
use super::flags::Flags;
use super::headers::Peer;
use super::passed::{Deadline, Tickets};
use super::piped::{Piped, Wants};
use super::refusal::Refusal;
use super::session::Sessions;
use crate::ask::Backend;
use crate::downlink::Downlinks;
use crate::fields::Fields;
use crate::meter::{Door, Meter, Opened, Pipes};
use crate::pace::Stays;
use crate::pool::{Dial, Pool};
use crate::profiles::Seen;
use crate::table::Place;
use crate::turnstile::Permit;
pub use cleanse::Cleansed;
use cleanse::cleanse;
pub use deliver::{Forwarded, Underway};
use find::{Terms, find};
pub use room::Roomed;
use settle::Told;
pub use settle::{body_broken, refuse};

/// What all requests of this door share.
pub struct Edge {
    pub pool: Arc<Pool>,
    pub door: Arc<Door>,
    /// All that may last.
    pub stays: Arc<Stays>,
    pub config: Config,
    pub sessions: Sessions,
    /// What this node has seen last of some people.
    pub profiles: Seen,
    /// How fast the lines of clients are.
    pub downlinks: Downlinks,
    pub cached: Arc<Cached>,
    /// What pipelines did.
    pub pipes: Arc<Pipes>,
    pub files: DropFiles,
    pub tickets: Tickets,
}

impl Edge {
    /// The edge of a node. To be called on a runtime.
    pub fn of(
        view: watch::Receiver<Arc<View>>,
        dial: Arc<dyn Dial>,
        meter: &Meter,
        backend: Arc<dyn Backend>,
        config: Config,
    ) -> Arc<Self> {
        let cached = Arc::new(Cached::new(Arc::clone(&backend), Arc::clone(&meter.caches)));
        let sessions = Sessions { backend, view: view.clone(), meter: Arc::clone(&meter.sessions) };
        Arc::new(Self {
            pool: Pool::start(view, dial, Arc::clone(&meter.turnstiles), Arc::clone(&meter.demands)),
            door: Arc::clone(&meter.http),
            stays: Arc::clone(&meter.stays),
            config,
            sessions,
            profiles: Seen::default(),
            downlinks: Downlinks::default(),
            cached,
            pipes: Arc::clone(&meter.pipes),
            files: DropFiles::default(),
            tickets: Tickets::default(),
        })
    }
}

/// What all requests of one connection share (of HTTP/2, only the peer: each stream has flags of its own).
pub struct Client {
    pub peer: Arc<Peer>,
    pub flags: Arc<Flags>,
    /// The connection of HTTP/1.1 as the door counts it, also when something else is spoken on it by now.
    pub open: Option<Arc<Opened>>,
}

impl Client {
    /// This client as somebody who is not there: for what is asked beside a request.
    pub fn alone(&self) -> Client {
        Client { peer: Arc::clone(&self.peer), flags: Arc::default(), open: None }
    }
}

/// A request on its road: as it is to leave, and what is known of where it goes.
pub struct Passage {
    pub request: Cleansed,
    /// What takes it; none: nothing that is known by now.
    pub place: Option<Place>,
    /// What it is matched by, where that is not how its path is written.
    pub path: Option<Box<str>>,
    pub terms: Terms,
    pub deadline: Deadline,
    pub began: Instant,
    /// The namespace in which answers are kept.
    cache: Option<Arc<str>>,
    /// What its answer passes,
    piped: Option<Box<Piped>>,
    /// ... which hears what who asks wants, once that is known.
    profile: Option<Wants>,
}

/// A request of which all is known that can be without waiting for anybody; so that the request itself takes no room
/// while it is waited for.
pub struct Understood {
    passage: Result<Roomed, Refusal>,
    is_head: bool,
    began: Instant,
    told: Told,
}

impl Understood {
    /// `fields` are the request's, if they are not with it.
    pub fn of(edge: &Edge, client: &Client, request: Request<Counted>, fields: Option<Fields>) -> Self {
        let (began, is_head, mut told) = (Instant::now(), *request.method() == Method::HEAD, Told::default());
        let passage = understand(edge, client, began, (request, fields), &mut told);
        Self { passage, is_head, began, told }
    }

    /// Answers it.
    pub async fn answer(self, edge: &Arc<Edge>, client: &Arc<Client>) -> Response<DownBody> {
        let Self { passage, is_head, began, told } = self;
        let outcome = match passage {
            Ok(passage) => carry(edge, client, passage).await,
            Err(refusal) => Err(refusal),
        };
        settle::answered(edge, outcome, is_head, began, told)
    }
}

/// The steps that wait for nobody.
fn understand(
    edge: &Edge,
    client: &Client,
    began: Instant,
    (request, fields): (Request<Counted>, Option<Fields>),
    told: &mut Told,
) -> Result<Roomed, Refusal> {
    let mut request = cleanse(edge, client, request, fields)?;
    let (place, path) = find(&edge.pool.table(), &client.peer, &request)?;
    told.record = find::recorded(edge, client, place.as_ref(), &mut request, began);
    told.place.clone_from(&place);
    let terms = find::terms(edge, place.as_ref(), &mut request)?;
    if place.as_ref().is_some_and(|place| place.doorway.downlink) {
        edge.downlinks.tell(client.peer.ip, client.peer.line.as_ref(), &mut request.fields);
    }
    let deadline = Deadline::of(request.waits, began, terms.answer_time);
    let used = place.as_ref().filter(|place| !place.is_off());
    let cache = used.and_then(|place| place.doorway.cache.clone());
    let piped = used.filter(|_| request.upgrade.is_none()).and_then(|place| {
        let pipeline = (place.doorway.pipeline.clone()?, Wants::default());
        Some(Box::new(Piped::of(pipeline, &mut request, place.doorway.class, deadline)))
    });
    let profile = piped.as_ref().map(|piped| piped.wants());
    Ok(Roomed::new(Passage { request, place, path, terms, deadline, began, cache, piped, profile }))
}

/// Brings a request to a clone, or to a cache, and its answer through its pipeline.
async fn carry(edge: &Arc<Edge>, client: &Arc<Client>, mut passage: Roomed) -> Result<(Response<()>, Source), Refusal> {
    let (cache, piped, hsts_s) = (passage.cache.take(), passage.piped.take(), passage.terms.hsts_s);
    let mut answer = match cache {
        None => forward(edge, client, passage).await?.down(),
        Some(namespace) => Box::pin(cached::answer(edge, client, namespace, passage)).await?,
    };
    if let Some(piped) = piped {
        answer = Box::pin(piped.pass(edge, answer)).await;
    }
    if let Some(seconds) = hsts_s {
        let value = HeaderValue::try_from(format!("max-age={seconds}")).expect("digits are allowed in a header");
        answer.0.headers_mut().entry(header::STRICT_TRANSPORT_SECURITY).or_insert(value);
    }
    Ok(answer)
}

/// The steps from a request that was found to a clone's answer.
pub async fn forward(edge: &Edge, client: &Client, mut passage: Roomed) -> Result<Forwarded, Refusal> {
    let entered = match passage.place.take() {
        Some(asked) => Some(enter(edge, client, &mut passage, asked).await?),
        None => None,
    };
    let (mut errand, asked) = Errand::of(passage, client);
    let gathers = errand.gathers();
    if gathers && Box::pin(errand.gather()).await.is_err() {
        return Err(settle::names_limit(body_broken(client), asked.body_max));
    }
    let (mut permit, mut session, mut is_own) = (None, None, true);
    if let Some(entered) = entered {
        errand.begins = entered.permit.now().filter(|_| !gathers && !entered.has_waited);
        errand.place = Some(entered.place);
        (permit, session, is_own) = (Some(entered.permit), entered.session, entered.is_own);
    }
    let outcome = errand.run(&edge.pool, client).await;
    let mut answer = settle::settle(outcome, permit, errand.place.as_ref(), &asked)?;
    errand.over();
    session::close_session(edge, session, answer.response.headers_mut()).await?;
    let (response, from) = deliver::deliver(edge, answer, asked)?;
    Ok(Forwarded { response, from, stay: errand.stay.take(), is_own })
}

/// A request that was let in.
struct Entered {
    place: Place,
    permit: Permit,
    session: session::Opened,
    /// For its session, or a profile, after it was let in.
    has_waited: bool,
    /// The place is its own, and not that of a service which answers for it.
    is_own: bool,
}

/// Lets a request in at its place, opens its session, and tells the program of both.
async fn enter(edge: &Edge, client: &Client, passage: &mut Passage, asked: Place) -> Result<Entered, Refusal> {
    let (class, session) = rank::rank(edge, passage, &asked).await?;
    let own = Arc::as_ptr(&asked.doorway).addr();
    let (place, permit) = admit::admit(edge, client, asked, class, passage.deadline).await?;
    let is_own = own == Arc::as_ptr(&place.doorway).addr();
    let session = session::open_session(edge, passage, &place, class, session).await?;
    session::tell_profile(edge, client, passage, &place, class, session.as_deref()).await;
    admit::tell(edge, &mut passage.request.fields, class, &place, permit.began());
    let has_waited = session.is_some() || place.doorway.profile.is_some();
    Ok(Entered { place, permit, session, has_waited, is_own })
}

impl Passage {
    /// This passage once more, without a body, for nobody who waits: with all the time that an answer may take.
    pub fn again(&self, client: &Client) -> Roomed {
        let began = Instant::now();
        Roomed::new(Self {
            request: self.request.again(client),
            place: self.place.clone(),
            path: self.path.clone(),
            terms: self.terms,
            deadline: Deadline::of(None, began, self.terms.answer_time),
            began,
            cache: None,
            piped: None,
            profile: None,
        })
    }
}
