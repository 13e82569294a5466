//! What is under way at the API's door, for a node that restarts: it ends when these have had their answers, or a moment later.
//! Streams, which last, do not count, nor who keeps a connection and says nothing.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

use crate::meter::Meter;
use crate::under_way::Busy;

/// Who has connected and says nothing for so long is not about to.
const FRESH_TIME: Duration = Duration::from_secs(1);

/// Of one connection.
pub struct Asks {
    meter: Arc<Meter>,
    /// Until its first request.
    fresh: Mutex<Option<Busy>>,
}

impl Asks {
    pub fn new(meter: Arc<Meter>) -> Self {
        let fresh = Mutex::new(Some(meter.api.begins()));
        Self { meter, fresh }
    }

    fn is_fresh_no_more(&self) {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub fn begins(&self) -> Busy {
        let busy = self.meter.api.begins();
        self.is_fresh_no_more();
        busy
    }

    /// The same answer; it counts until it has been given. It is the last one of its connection if the doors are about to close.
    pub fn answers(&self, mut response: Response<Body>, busy: Busy) -> Response<Body> {
        if self.meter.http.parts() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if response.body().size_hint().exact().is_none() {
            return response;
        }
        response.map(|body| Body::new(Given { body, _busy: busy }))
    }

    /// The connection, whose client may have nothing to say.
    pub async fn beside<T>(&self, talk: impl Future<Output = T>) -> T {
        let mut talk = std::pin::pin!(talk);
        match tokio::time::timeout(FRESH_TIME, &mut talk).await {
            Ok(ended) => ended,
            Err(_) => {
                self.is_fresh_no_more();
                talk.await
            }
        }
    }
}

struct Given {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Given {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_count_until_they_are_answered_and_streams_do_not() {
        let meter = Arc::new(Meter::default());
        let none = || meter.api.is_empty();
        let asks = Asks::new(Arc::clone(&meter));
        assert!(!none(), "who has just connected may be about to ask");
        let busy = asks.begins();
        let answer = asks.answers(Response::new(Body::from("x")), busy);
        assert!(!none() && !answer.headers().contains_key(header::CONNECTION));
        drop(answer);
        assert!(none());

        let lasts = asks.answers(
            Response::new(Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>())),
            asks.begins(),
        );
        assert!(none());
        drop(lasts);

        let silent = Asks::new(Arc::clone(&meter));
        let waits = tokio::time::timeout(FRESH_TIME * 2, silent.beside(std::future::pending::<()>()));
        assert!(waits.await.is_err() && none());
        meter.http.part();
        let last = asks.answers(Response::new(Body::empty()), asks.begins());
        assert_eq!(last.headers()[header::CONNECTION], "close");
    }
}
