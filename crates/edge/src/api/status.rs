//! What the node shows: the view as JSON, once or as a stream of its changes; and whether it lives and is ready.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::Span;
use futures_util::Stream;
use node::{Ask, View};
use tokio::time::{Instant, sleep_until};

use super::limits::*;
use super::{Api, Problem};

pub async fn status(State(api): State<Api>) -> Response {
    // `View` leaves tokens out of its JSON.
    Json(&*api.view()).into_response()
}

/// `event: view`, the whole view each time: at once, then after each change, twice a second at most.
pub async fn events(State(api): State<Api>) -> Result<impl IntoResponse, Problem> {
    let place = Arc::clone(&api.streams)
        .try_acquire_owned()
        .map_err(|_| Problem::busy(format!("{STREAMS_MAX} readers follow already"), Span::secs(5)))?;
    let views = views(api).map_held(place);
    Ok(Sse::new(views).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)))
}

fn views(api: Api) -> impl Stream<Item = Result<Event, Infallible>> {
    let mut changes = api.backend.watch();
    changes.mark_changed();
    let start = (changes, Instant::now());
    futures_util::stream::unfold(start, |(mut changes, next)| async move {
        sleep_until(next).await;
        // Ends when the node does.
        changes.changed().await.ok()?;
        let view: Arc<View> = Arc::clone(&changes.borrow_and_update());
        let event = Event::default().event("view").json_data(&*view).ok()?;
        Some((Ok(event), (changes, Instant::now() + STREAM_EVERY)))
    })
}

/// Keeps something for as long as a stream is read.
trait MapHeld: Stream + Sized {
    fn map_held<H>(self, held: H) -> impl Stream<Item = Self::Item> {
        use futures_util::StreamExt;
        self.map(move |item| {
            let _ = &held;
            item
        })
    }
}

impl<S: Stream> MapHeld for S {}

/// 200 if the node's own thread answers.
pub async fn livez(State(api): State<Api>) -> Response {
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
