//! Changes of a `soft` namespace as server-sent events, from a cursor on (`changes.rs`): `put` and `remove`, and `reset` before all is told
//! anew. A client goes on at another node for the price of what differs.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use base::Span;
use bytes::Bytes;
use serde_json::{Value, json};
use state::Class;
use state::soft::limits::WATCH_HOLD;
use state::soft::{Action, Change, Changes, Kind, NO_CURSOR, Op, Reply, Watch as Question};

use super::changes::{Asks, ByCursor, Told, Watch, by_cursor, how_far};
use super::limits::*;
use super::linear::shown_bytes;
use super::soft::asked;
use super::{Api, Problem};

struct Soft;

pub async fn watch(api: &Api, ns: String, watch: Watch, headers: &HeaderMap) -> Result<Response, Problem> {
    by_cursor(api, ns, watch, headers, Soft).await
}

impl Asks for Soft {
    const CLASS: Class = Class::Soft;
    const HOLD: Span = WATCH_HOLD;
    const NO_CURSOR: &'static str = NO_CURSOR;

    async fn ask(place: &mut ByCursor<Self>, api: &Api, hold: Span) -> Result<Told, Problem> {
        let watch = Question { prefix: place.prefix.clone(), after: place.cursor.clone(), hold, ends: false };
        let op = Op { priority: place.priority, ..Op::of(Arc::clone(&place.ns), Action::Watch(watch)) };
        match asked(api, op, WATCH_HOLD + OP_BUDGET).await? {
            Reply::Changes(Changes { is_reset, changes, cursor, is_more }) => {
                let reset = is_reset.then(|| Event::default().event("reset").data("{}"));
                let how_far = how_far(&place.is_at(cursor), is_more, None);
                Ok(Told::Events(reset.into_iter().chain(changes.iter().map(event)).chain([how_far]).collect()))
            }
            other => unreachable!("a question for changes was answered by {other:?}"),
        }
    }
}

/// What lies at a place now; texts and numbers have no element.
fn event(change: &Change) -> Event {
    let Change { key, kind, element, value, why, lost, did: _, is_last: _ } = change;
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
