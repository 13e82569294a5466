//! Changes of a `soft` namespace as server-sent events, from a cursor on. The client holds the cursor (`id:` of the last event, or
//! `after`), the node only the question under way: so a client may go on at any node, for the price of what differs. One that takes
//! nothing for long is told so and let go.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use base::{Priority, Span};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use state::Class;
use state::soft::limits::WATCH_HOLD;
use state::soft::{Action, Change, Changes, Kind, NO_CURSOR, Op, Reply, Watch as Asks};
use tokio::time::{Instant, sleep};

use super::limits::*;
use super::linear::shown_bytes;
use super::places::{Who, held};
use super::soft::asked;
use super::values::passed_on;
use super::watch::{last_word, sse};
use super::{Api, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Of keys that begin so.
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
}

/// `put` and `remove` are changes, `cursor` says how far one is, `reset` that all is told anew, `error` is the last one.
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
    let mut place = Place { ns: ns.into(), prefix: watch.prefix, priority, cursor };
    let room = api.watchers.take(Who::Namespace(Arc::clone(&place.ns)))?;
    let first = place.ask(api, Span::ZERO).await.map_err(|problem| match problem.error == NO_CURSOR {
        // As of a place that is not known any more: it is to begin anew.
        true => Problem { kind: Some("compacted"), ..Problem::new(StatusCode::GONE, NO_CURSOR) },
        false => problem,
    })?;
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

impl Place {
    /// Events of the next answer; the last one says how far one is.
    async fn ask(&mut self, api: &Api, hold: Span) -> Result<Vec<Event>, Problem> {
        let watch = Asks { prefix: self.prefix.clone(), after: self.cursor.clone(), hold };
        let op = Op { priority: self.priority, ..Op::of(Arc::clone(&self.ns), Action::Watch(watch)) };
        match asked(api, op, WATCH_HOLD + OP_BUDGET).await? {
            Reply::Changes(Changes { is_reset, changes, cursor, is_more }) => {
                let text = URL_SAFE_NO_PAD.encode(&cursor);
                self.cursor = Some(cursor);
                let reset = is_reset.then(|| Event::default().event("reset").data("{}"));
                let mut how_far = json!({"cursor": text});
                if is_more {
                    how_far["more"] = true.into();
                }
                let how_far = Event::default().event("cursor").id(&text).data(how_far.to_string());
                Ok(reset.into_iter().chain(changes.iter().map(event)).chain([how_far]).collect())
            }
            other => unreachable!("a question for changes was answered by {other:?}"),
        }
    }

    /// The next events, and whether there are more.
    async fn next(&mut self, api: &Api) -> (Vec<Event>, bool) {
        loop {
            match self.ask(api, WATCH_HOLD).await {
                Ok(events) => return (events, true),
                // Nothing is lost meanwhile: the cursor is kept here.
                Err(Problem { retry_after: Some(_), .. }) => sleep(WATCH_AGAIN.into()).await,
                Err(problem) => return (vec![last_word("ended", &problem.error, None)], false),
            }
            if api.view().class_of(&self.ns) != Class::Soft {
                return (vec![last_word("ended", "the namespace was removed", None)], false);
            }
        }
    }
}

/// What lies at a place now; texts and numbers have no element.
fn event(change: &Change) -> Event {
    let Change { key, kind, element, value, why, lost } = change;
    let mut body = json!({"key": shown_bytes(key), "type": kind.name()});
    if *kind != Kind::Register {
        body["element"] = shown_bytes(element);
    }
    let name = match value {
        None => "remove",
        Some(value) => {
            if let Some(value) = value {
                body["value"] = shown(*kind, value);
            }
            "put"
        }
    };
    if let Some(why) = why {
        body["why"] = why.name().into();
    }
    if !lost.is_empty() {
        let values = lost.iter().map(|value| value.as_ref().map_or(Value::Null, |value| shown(*kind, value)));
        body["lost"] = values.collect();
    }
    Event::default().event(name).data(body.to_string())
}

/// Scores are eight bytes in a cell.
fn shown(kind: Kind, value: &Bytes) -> Value {
    match (kind, <[u8; 8]>::try_from(&value[..])) {
        (Kind::Score, Ok(bits)) => f64::from_be_bytes(bits).to_string().into(),
        _ => shown_bytes(value),
    }
}

fn no_cursor() -> Problem {
    Problem::wrong("after= and Last-Event-ID take the id of an event of this stream, a cursor")
}
