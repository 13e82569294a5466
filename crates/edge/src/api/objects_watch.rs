//! Changes of an `object` namespace as server-sent events, from a cursor on. The client holds the cursor (`id:` of the last event, or
//! `after`), the node only the question under way: so a client may go on at any node. One that takes nothing for long is told so and let
//! go. Each node that has an object tells of it, so what a stream has told lately is not told there again.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use base::{Priority, Span};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use node::{Answer, Ask};
use serde::Deserialize;
use serde_json::json;
use state::Class;
use state::object::limits::WATCH_HOLD;
use state::object::{Action, Change, Changes, NO_CURSOR, Op, Reply};
use tokio::time::{Instant, sleep};

use super::limits::*;
use super::linear::shown_bytes;
use super::places::{Who, held};
use super::problem::{done, odd};
use super::values::passed_on;
use super::watch::{last_word, sse};
use super::{Api, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Of owners that begin so.
    #[serde(default)]
    prefix: Bytes,
    /// A cursor. Without one: from now on. An empty one: what there is, then what changes.
    after: Option<String>,
}

/// Where somebody watches.
struct Place {
    ns: Arc<str>,
    prefix: Bytes,
    priority: Priority,
    cursor: Option<Bytes>,
    /// Of this stream, by chance.
    by: u64,
    lately: Lately,
}

/// The changes that were told last.
#[derive(Default)]
struct Lately {
    order: VecDeque<Change>,
    told: HashSet<(Bytes, [u8; 16], state::class::Version, bool)>,
}

impl Lately {
    /// False: it was told already.
    fn is_new(&mut self, change: &Change) -> bool {
        let name = |of: &Change| (of.owner.clone(), of.id.0, of.version, of.size.is_some());
        if !self.told.insert(name(change)) {
            return false;
        }
        self.order.push_back(change.clone());
        if self.order.len() > OBJECTS_TOLD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&name(&oldest));
        }
        true
    }
}

/// `put` and `remove` are changes, `cursor` says how far one is, `error` is the last one.
pub async fn watch(api: &Api, ns: String, watch: Watch, headers: &HeaderMap) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        None => watch.after,
        Some(id) => Some(id.to_str().map_err(|_| no_cursor())?.to_owned()),
    };
    let cursor = match after.map(|text| URL_SAFE_NO_PAD.decode(text)) {
        None => None,
        Some(Ok(cursor)) => Some(Bytes::from(cursor)),
        Some(Err(_)) => return Err(no_cursor()),
    };
    let priority = passed_on(headers)?.0.map_or(Priority::NORMAL, Priority::of_ten);
    let (prefix, by) = (watch.prefix, RandomState::new().hash_one(0));
    let mut place = Place { ns: ns.into(), prefix, priority, cursor, by, lately: Lately::default() };
    let room = api.watchers.take(Who::Namespace(Arc::clone(&place.ns)))?;
    let first = match place.ask(api, Span::ZERO).await {
        Ok(Told::Events(events)) => events,
        Ok(Told::Lost(cursor)) => return Err(Problem { kind: Some(COMPACTED), ..gone(&lost(&cursor)) }),
        // As of a place that is not known any more: it is to begin anew.
        Err(problem) if problem.error == NO_CURSOR => return Err(Problem { kind: Some(COMPACTED), ..gone(NO_CURSOR) }),
        Err(problem) => return Err(problem),
    };
    let later = stream::unfold((api.clone(), Some(place), Instant::now()), |(api, place, told)| async move {
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
    Ok(sse(held(all, room)))
}

enum Told {
    Events(Vec<Event>),
    /// All is to be read anew, and watched behind this cursor.
    Lost(String),
}

impl Place {
    /// Events of the next answer; the last one says how far one is.
    async fn ask(&mut self, api: &Api, hold: Span) -> Result<Told, Problem> {
        let action = Action::Watch { after: self.cursor.clone(), hold, by: self.by };
        let (namespace, owner) = (Arc::clone(&self.ns), self.prefix.clone());
        let op = Op { namespace, owner, action, priority: self.priority };
        let changes = match api.backend.ask(Ask::Object(op), WATCH_HOLD + OBJECT_BUDGET).await? {
            Answer::Object(outcome) => match done(outcome)? {
                Reply::Changes(changes) => changes,
                other => return Err(odd(&other)),
            },
            other => unreachable!("an operation on an object was answered by {other:?}"),
        };
        let Changes { changes, cursor, is_more, is_lost, missing } = changes;
        let text = URL_SAFE_NO_PAD.encode(&cursor);
        self.cursor = Some(cursor);
        if is_lost {
            return Ok(Told::Lost(text));
        }
        let mut how_far = json!({"cursor": text});
        if is_more {
            how_far["more"] = true.into();
        }
        if !missing.is_empty() {
            how_far["missing"] = missing.iter().map(ToString::to_string).collect();
        }
        let how_far = Event::default().event("cursor").id(&text).data(how_far.to_string());
        let new = changes.iter().filter(|change| self.lately.is_new(change)).map(event);
        Ok(Told::Events(new.chain([how_far]).collect()))
    }

    /// The next events, and whether there are more.
    async fn next(&mut self, api: &Api) -> (Vec<Event>, bool) {
        loop {
            match self.ask(api, WATCH_HOLD).await {
                Ok(Told::Events(events)) => return (events, true),
                Ok(Told::Lost(cursor)) => {
                    let body = json!({"error": lost(&cursor), "type": COMPACTED, "cursor": cursor});
                    return (vec![Event::default().event("error").data(body.to_string())], false);
                }
                // Nothing is lost meanwhile: the cursor is kept here.
                Err(Problem { retry_after: Some(_), .. }) => sleep(WATCH_AGAIN.into()).await,
                Err(problem) => return (vec![last_word("ended", &problem.error, None)], false),
            }
            if api.view().class_of(&self.ns) != Class::Object {
                return (vec![last_word("ended", "the namespace was removed", None)], false);
            }
        }
    }
}

const COMPACTED: &str = "compacted";

fn event(change: &Change) -> Event {
    let Change { owner, id, version, size } = change;
    let mut body = json!({"owner": shown_bytes(owner), "id": id.to_string(), "version": version.to_string()});
    let name = match size {
        None => "remove",
        Some(size) => {
            body["bytes"] = (*size).into();
            "put"
        }
    };
    Event::default().event(name).data(body.to_string())
}

fn lost(cursor: &str) -> String {
    format!("compacted: deletions since then are not remembered any more: read again, and watch after cursor {cursor}")
}

fn gone(why: &str) -> Problem {
    Problem::new(StatusCode::GONE, why)
}

fn no_cursor() -> Problem {
    Problem::wrong("after= and Last-Event-ID take the id of an event of this stream, a cursor")
}
