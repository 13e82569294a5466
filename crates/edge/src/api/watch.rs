//! Changes of a `linear` namespace as server-sent events, from a version on. The client holds the place (`id:` of the last
//! event, or `after`), the node only the question under way: so a client may go on at any node, and a slow one costs
//! nothing. One that takes nothing for long is told so and let go.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::{Outcome, Span};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use node::{Answer, Ask};
use serde::Deserialize;
use serde_json::json;
use state::linear::limits::WATCH_HOLD;
use state::linear::{Op, Ran, Reply};
use tokio::time::{Instant, sleep};

use super::limits::*;
use super::linear::{only_linear, problem, shown};
use super::problem::{asked, done};
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Of one key; else of all with a prefix.
    key: Option<String>,
    prefix: Option<String>,
    /// Of changes with a higher version; without one, of those from now on.
    after: Option<u64>,
}

/// Where somebody watches.
#[derive(Clone)]
struct Place {
    ns: Arc<str>,
    key: Option<Bytes>,
    prefix: Bytes,
    after: Option<u64>,
}

/// What there is after a place.
enum Page {
    Changes {
        upto: u64,
        changes: Vec<Reply>,
    },
    /// Some are gone.
    Missed {
        now: u64,
        oldest: u64,
    },
}

/// `event: version` says how far one is, at first and when nothing happens; `put`, `remove`, `clear` are changes. `error` is
/// the last one.
pub async fn watch(
    State(api): State<Api>,
    Path(ns): Path<String>,
    query: Result<Query<Watch>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::holder(&headers, &api.view(), &ns)?;
    only_linear(&api, &ns)?;
    let watch = asked(query)?;
    if watch.key.is_some() == watch.prefix.is_some() {
        return Err(Problem::wrong("say `key=` for one key, or `prefix=` for many (an empty one for all)"));
    }
    let after = match headers.get("last-event-id") {
        None => watch.after,
        Some(id) => match id.to_str().ok().and_then(|id| id.parse().ok()) {
            Some(id) => Some(id),
            None => return Err(Problem::wrong("Last-Event-ID must be the id of an event of this stream, a number")),
        },
    };
    let held = Arc::clone(&api.watchers)
        .try_acquire_owned()
        .map_err(|_| Problem::busy(format!("{WATCHERS_MAX} clients of this node watch already"), Span::secs(5)))?;
    let mut place = Place {
        ns: ns.into(),
        key: watch.key.map(Bytes::from),
        prefix: watch.prefix.unwrap_or_default().into(),
        after,
    };
    let first = match place.ask(&api, "now").await? {
        Page::Changes { upto, changes } => {
            place.after = Some(upto);
            events(upto, &changes)
        }
        Page::Missed { now, oldest } => {
            let problem = Problem::new(StatusCode::GONE, missed(after, now, oldest));
            return Err(Problem { kind: Some(COMPACTED), ..problem });
        }
    };
    let later = stream::unfold((api, Some(place), Instant::now()), |(api, place, told)| async move {
        let mut place = place?;
        // This runs when all that was told before has been taken.
        if told.elapsed() > WATCHER_STALL_MAX {
            let why = format!("for more than {} s nothing was taken", WATCHER_STALL_MAX.as_secs());
            return Some((vec![last_word("slow", &why, None)], (api, None, told)));
        }
        let (events, place) = match place.next(&api).await {
            Ok(events) => (events, Some(place)),
            Err(event) => (vec![event], None),
        };
        Some((events, (api, place, Instant::now())))
    });
    let all = stream::iter([first]).chain(later).flat_map(stream::iter).map(move |event| {
        let _ = &held;
        Ok::<Event, Infallible>(event)
    });
    Ok(sse(all))
}

fn sse(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)).into_response();
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

impl Place {
    async fn ask(&self, api: &Api, how: &'static str) -> Result<Page, Problem> {
        let after = self.after.map_or("-".to_owned(), |after| after.to_string());
        let args = vec![Bytes::from(after), Bytes::from_static(how.as_bytes())];
        let op = match &self.key {
            Some(key) => Op::one(Arc::clone(&self.ns), key.clone(), "changes", args),
            None => {
                let args = [args, vec![self.prefix.clone()]].concat();
                Op::one(Arc::clone(&self.ns), Bytes::new(), "changes.prefix", args)
            }
        };
        let outcome = match api.backend.ask(Ask::Linear(op), WATCH_HOLD + LINEAR_BUDGET).await? {
            Answer::Linear(Outcome::Unknown(unknown)) => return Err(Problem::busy(unknown.to_string(), WATCH_AGAIN)),
            Answer::Linear(outcome) => outcome,
            other => unreachable!("a linear operation was answered by {other:?}"),
        };
        match done(outcome)? {
            Ran::Done(mut replies) => match replies.pop() {
                Some(Reply::Wrong(wrong)) => Err(problem(wrong)),
                Some(Reply::List(parts)) => match <[Reply; 2]>::try_from(parts) {
                    Ok([Reply::Int(upto), Reply::List(changes)]) => Ok(Page::Changes { upto: upto as u64, changes }),
                    Ok(other) => unreachable!("changes were answered by {other:?}"),
                    Err(parts) => match parts[..] {
                        [Reply::Int(now), Reply::Nil, Reply::Int(oldest)] => {
                            Ok(Page::Missed { now: now as u64, oldest: oldest as u64 })
                        }
                        _ => unreachable!("changes were answered by {parts:?}"),
                    },
                },
                other => unreachable!("changes were answered by {other:?}"),
            },
            Ran::Unmet => unreachable!("there was no condition"),
        }
    }

    /// The next events; or the last one.
    async fn next(&mut self, api: &Api) -> Result<Vec<Event>, Event> {
        loop {
            match self.ask(api, "wait").await {
                Ok(Page::Changes { upto, changes }) => {
                    self.after = Some(upto);
                    return Ok(events(upto, &changes));
                }
                Ok(Page::Missed { now, oldest }) => {
                    return Err(last_word(COMPACTED, &missed(self.after, now, oldest), Some(now)));
                }
                // Nothing is lost meanwhile: the place is kept here.
                Err(Problem { retry_after: Some(_), .. }) => sleep(WATCH_AGAIN.into()).await,
                Err(problem) => return Err(last_word("ended", &problem.error, None)),
            }
            if !api.view().linear.contains(&*self.ns) {
                return Err(last_word("ended", "the namespace was removed", None));
            }
        }
    }
}

const COMPACTED: &str = "compacted";

fn missed(after: Option<u64>, now: u64, oldest: u64) -> String {
    let after = after.unwrap_or_default();
    if after > now {
        return format!("compacted: version {after} has never been: read again, and watch after version {now}");
    }
    format!(
        "compacted: changes after version {after} are not kept any more, the oldest are after {oldest}: read again, and watch after version {now}"
    )
}

fn last_word(kind: &str, error: &str, version: Option<u64>) -> Event {
    let mut body = json!({"error": error, "type": kind});
    if let Some(version) = version {
        body["version"] = version.into();
    }
    Event::default().event("error").data(body.to_string())
}

fn events(upto: u64, changes: &[Reply]) -> Vec<Event> {
    let mut events: Vec<Event> = changes.iter().map(event).collect();
    if events.is_empty() {
        events.push(Event::default().event("version").id(upto.to_string()).data(json!({"version": upto}).to_string()));
    }
    events
}

fn event(change: &Reply) -> Event {
    let Reply::List(parts) = change else { unreachable!("a change was {change:?}") };
    let [Reply::Int(version), key, Reply::Bytes(what), text] = &parts[..] else {
        unreachable!("a change was {parts:?}")
    };
    let (name, body) = match &what[..] {
        b"cleared" => ("clear", json!({"version": version})),
        b"removed" => ("remove", json!({"key": shown(key), "version": version})),
        b"ended" => ("remove", json!({"key": shown(key), "version": version, "ended": true})),
        kind => {
            let mut body = json!({"key": shown(key), "version": version, "type": String::from_utf8_lossy(kind)});
            if let Reply::Bytes(_) = text {
                body["value"] = shown(text);
            }
            ("put", body)
        }
    };
    Event::default().event(name).id(version.to_string()).data(body.to_string())
}
