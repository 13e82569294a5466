//! Changes of a namespace as server-sent events: the frame of such streams, whatever the class (`watch.rs`, `soft_watch.rs`,
//! `objects_watch.rs`). The client holds the place (`id:` of the last event, or `after`), the node only the question under way: so a
//! client may go on at any node. One that takes nothing for long is told so and let go.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::{Priority, Span};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use host::crowd;
use serde::Deserialize;
use serde_json::{Value, json};
use state::Class;
use tokio::time::{Instant, sleep};

use super::limits::*;
use super::places::{Who, held};
use super::values::passed_on;
use super::versions::Versions;
use super::{Api, Problem};

/// Where somebody watches.
pub trait Place: Send + 'static {
    /// The next events, and whether there are more.
    fn next(&mut self, api: &Api) -> impl Future<Output = (Vec<Event>, bool)> + Send;
}

/// Room for one more who watches.
pub type Room = crowd::Place<Who>;

/// The answer that tells these first, and then what the place has to tell, as it is taken.
pub fn tell<P: Place>(api: &Api, room: Room, first: Vec<Event>, place: Option<P>) -> Response {
    let later = stream::unfold((api.clone(), place, Instant::now()), |(api, place, told)| async move {
        let mut place = place?;
        // This runs when all that was told before has been taken.
        if told.elapsed() > WATCHER_STALL_MAX {
            let why = format!("for more than {} s nothing was taken", WATCHER_STALL_MAX.as_secs());
            return Some((vec![last_word("slow", &why, None)], (api, None, told)));
        }
        let (events, goes_on) = place.next(&api).await;
        Some((events, (api, goes_on.then_some(place), Instant::now())))
    });
    let all = stream::iter([first]).chain(later).flat_map(stream::iter).map(Ok::<Event, Infallible>);
    sse(held(all, room))
}

pub fn sse(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)).into_response();
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Behind what it is to be told: as the id of the last event says, by which clients come back, else as was `said`.
pub fn after<T>(
    headers: &HeaderMap,
    said: Option<T>,
    read: impl FnOnce(&str) -> Option<T>,
    wrong: &str,
) -> Result<Option<T>, Problem> {
    match headers.get("last-event-id") {
        None => Ok(said),
        Some(id) => id.to_str().ok().and_then(read).map(Some).ok_or_else(|| Problem::wrong(wrong)),
    }
}

pub const COMPACTED: &str = "compacted";

/// The event behind which nothing follows.
pub fn last_word(kind: &str, error: &str, version: Option<&Versions>) -> Event {
    let mut body = json!({"error": error, "type": kind});
    if let Some(version) = version {
        body["version"] = json!(version);
    }
    Event::default().event("error").data(body.to_string())
}

pub fn was_removed() -> Event {
    last_word("ended", "the namespace was removed", None)
}

/// What is watched by a cursor, which is bytes that only nodes understand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The beginning of the keys, or owners, that are watched.
    #[serde(default)]
    prefix: Bytes,
    /// A cursor. Without one: from now on. An empty one: what there is, then what changes.
    after: Option<String>,
}

/// Where somebody watches who has a cursor.
pub struct ByCursor<A> {
    pub ns: Arc<str>,
    pub prefix: Bytes,
    pub priority: Priority,
    pub cursor: Option<Bytes>,
    pub asks: A,
}

pub enum Told {
    /// The last one says how far one is.
    Events(Vec<Event>),
    /// All is to be read anew, and watched behind this cursor.
    Lost(String),
}

/// How a class is asked what has changed.
pub trait Asks: Sized + Send + 'static {
    const CLASS: Class;
    /// So long a question waits for something to tell.
    const HOLD: Span;
    /// What says that a cursor is none.
    const NO_CURSOR: &'static str;

    fn ask(place: &mut ByCursor<Self>, api: &Api, hold: Span) -> impl Future<Output = Result<Told, Problem>> + Send;
}

const NO_ID: &str = "after= and Last-Event-ID take the id of an event of this stream, a cursor";

/// `cursor` says how far one is, `error` is the last one; the others are the class's.
pub async fn by_cursor<A: Asks>(
    api: &Api,
    ns: String,
    watch: Watch,
    headers: &HeaderMap,
    asks: A,
) -> Result<Response, Problem> {
    let after = after(headers, watch.after, |id| Some(id.to_owned()), NO_ID)?;
    let cursor = after.map(|text| URL_SAFE_NO_PAD.decode(text)).transpose().map_err(|_| Problem::wrong(NO_ID))?;
    let priority = passed_on(headers)?.0.map_or(Priority::NORMAL, Priority::of_ten);
    let mut place = ByCursor { ns: ns.into(), prefix: watch.prefix, priority, cursor: cursor.map(Bytes::from), asks };
    let room = api.watchers.take(Who::Namespace(Arc::clone(&place.ns)))?;
    let anew = |why: &str| Problem { kind: Some(COMPACTED), ..Problem::new(StatusCode::GONE, why) };
    match A::ask(&mut place, api, Span::ZERO).await {
        Ok(Told::Events(first)) => Ok(tell(api, room, first, Some(place))),
        Ok(Told::Lost(cursor)) => Err(anew(&lost(&cursor))),
        // As of a place that is not known any more: it is to begin anew.
        Err(problem) if problem.error == A::NO_CURSOR => Err(anew(A::NO_CURSOR)),
        Err(problem) => Err(problem),
    }
}

impl<A: Asks> Place for ByCursor<A> {
    async fn next(&mut self, api: &Api) -> (Vec<Event>, bool) {
        loop {
            match A::ask(self, api, A::HOLD).await {
                Ok(Told::Events(events)) => return (events, true),
                Ok(Told::Lost(cursor)) => {
                    let body = json!({"error": lost(&cursor), "type": COMPACTED, "cursor": cursor});
                    return (vec![Event::default().event("error").data(body.to_string())], false);
                }
                // Nothing is lost meanwhile: the cursor is kept here.
                Err(Problem { retry_after: Some(_), .. }) => sleep(WATCH_AGAIN.into()).await,
                Err(problem) => return (vec![last_word("ended", &problem.error, None)], false),
            }
            if api.view().class_of(&self.ns) != A::CLASS {
                return (vec![was_removed()], false);
            }
        }
    }
}

impl<A> ByCursor<A> {
    /// All up to here is told: the cursor as text.
    pub fn is_at(&mut self, cursor: Bytes) -> String {
        let text = URL_SAFE_NO_PAD.encode(&cursor);
        self.cursor = Some(cursor);
        text
    }
}

/// Says how far one is. `more` is what a class says besides.
pub fn how_far(cursor: &str, is_more: bool, more: Option<(&str, Value)>) -> Event {
    let mut body = json!({"cursor": cursor});
    if is_more {
        body["more"] = true.into();
    }
    if let Some((name, value)) = more {
        body[name] = value;
    }
    Event::default().event("cursor").id(cursor).data(body.to_string())
}

fn lost(cursor: &str) -> String {
    format!("compacted: deletions since then are not remembered any more: read again, and watch after cursor {cursor}")
}
