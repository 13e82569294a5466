//! Changes of an `object` namespace as server-sent events, from a cursor on (`changes.rs`): `put` and `remove`. Each node that has an object
//! tells of it, so what a stream has told lately is not told there again.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use base::Span;
use bytes::Bytes;
use node::{Answer, Ask};
use serde_json::json;
use state::Class;
use state::object::limits::WATCH_HOLD;
use state::object::{Action, Change, Changes, NO_CURSOR, Op, Reply};

use super::changes::{Asks, ByCursor, Told, Watch, by_cursor, how_far};
use super::limits::*;
use super::linear::shown_bytes;
use super::problem::{done, odd};
use super::{Api, Problem};

struct Objects {
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

pub async fn watch(api: &Api, ns: String, watch: Watch, headers: &HeaderMap) -> Result<Response, Problem> {
    let objects = Objects { by: RandomState::new().hash_one(0), lately: Lately::default() };
    by_cursor(api, ns, watch, headers, objects).await
}

impl Asks for Objects {
    const CLASS: Class = Class::Object;
    const HOLD: Span = WATCH_HOLD;
    const NO_CURSOR: &'static str = NO_CURSOR;

    async fn ask(place: &mut ByCursor<Self>, api: &Api, hold: Span) -> Result<Told, Problem> {
        let action = Action::Watch { after: place.cursor.clone(), hold, by: place.asks.by };
        let (namespace, owner) = (Arc::clone(&place.ns), place.prefix.clone());
        let op = Op { namespace, owner, action, priority: place.priority };
        let changes = match api.backend.ask(Ask::Object(op), WATCH_HOLD + OBJECT_BUDGET).await? {
            Answer::Object(outcome) => match done(outcome)? {
                Reply::Changes(changes) => changes,
                other => return Err(odd(&other)),
            },
            other => unreachable!("an operation on an object was answered by {other:?}"),
        };
        let Changes { changes, cursor, is_more, is_lost, missing } = changes;
        let text = place.is_at(cursor);
        if is_lost {
            return Ok(Told::Lost(text));
        }
        let missing = (!missing.is_empty()).then(|| ("missing", missing.iter().map(ToString::to_string).collect()));
        let how_far = how_far(&text, is_more, missing);
        let new = changes.iter().filter(|change| place.asks.lately.is_new(change)).map(event);
        Ok(Told::Events(new.chain([how_far]).collect()))
    }
}

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
