//! What the node shows: the view as JSON, once or as a stream of its changes; and whether it lives and is ready.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::Span;
use futures_util::Stream;
use node::{Ask, View};
use tokio::time::{Instant, sleep_until};

use super::limits::*;
use super::places::{From, Who, held};
use super::shown::Sight;
use super::{Api, Problem, guard};

pub async fn status(State(api): State<Api>, headers: HeaderMap) -> Response {
    // `View` leaves tokens out of its JSON.
    let view = api.view();
    Json(&*Sight::of(&headers, &view).view(&view)).into_response()
}

/// `event: view`, the whole view each time: at once, then after each change, twice a second at most.
pub async fn events(
    State(api): State<Api>,
    From(from): From,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let view = api.view();
    let is_operator = guard::operator(&headers, &view).is_ok();
    let place = api.streams.take(if is_operator { Who::Operator } else { Who::Address(from) })?;
    let views = held(views(api, Sight::of(&headers, &view)), place);
    Ok(Sse::new(views).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)))
}

fn views(api: Api, sight: Sight) -> impl Stream<Item = Result<Event, Infallible>> {
    let mut changes = api.backend.watch();
    changes.mark_changed();
    let start = (changes, Instant::now(), sight);
    futures_util::stream::unfold(start, |(mut changes, next, sight)| async move {
        sleep_until(next).await;
        // Ends when the node does.
        changes.changed().await.ok()?;
        let view: Arc<View> = Arc::clone(&changes.borrow_and_update());
        let event = Event::default().event("view").json_data(&*sight.view(&view)).ok()?;
        Some((Ok(event), (changes, Instant::now() + STREAM_EVERY, sight)))
    })
}

/// 200 if the node's own thread answers, or still makes a state of what it has read from its log.
pub async fn livez(State(api): State<Api>) -> Response {
    if api.view().me.is_empty() {
        return "live: this node starts\n".into_response();
    }
    let asked = api.backend.ask(Ask::Export, LIVE_WITHIN);
    match tokio::time::timeout(LIVE_WITHIN.into(), asked).await {
        Ok(Ok(_)) => "live\n".into_response(),
        Ok(Err(gone)) => Problem::from(gone).into_response(),
        Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node's thread does not answer").into_response(),
    }
}

/// 200 if the node knows the cluster: itself live in it, and what is declared (or who leads, if nothing is yet).
pub async fn readyz(State(api): State<Api>) -> Response {
    match unready(&api.view()) {
        None => "ready\n".into_response(),
        Some(why) => Problem::busy(why, Span::millis(500)).into_response(),
    }
}

pub fn unready(view: &View) -> Option<&'static str> {
    let here = view.nodes.iter().any(|node| node.name == view.me && node.state == node::view::NodeState::Live);
    if !here {
        Some("this node is not in the membership yet")
    } else if view.nodes.iter().any(|node| node.name == view.me && node.leaving.is_some()) {
        Some("this node is about to end")
    } else if view.nodes.iter().any(|node| node.name == view.me && node.drained) {
        Some("this node is drained")
    } else if view.root.leader.is_none() && view.root.version == 0 {
        Some("this node has not heard of the declaration yet")
    } else {
        None
    }
}
