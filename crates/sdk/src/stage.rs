//! Stages of a service ([`flow::Stage`]): a bounded queue before something that can do only so much at a time, with a limit
//! that finds out by itself how much that is. What would wait for too long is refused at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use base::{Span, Time};
use flow::stage::{End, Shape, Shown};
use http::HeaderValue;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::{STAGE, STAGE_WAIT_MAX};
use crate::pressure::{PRESSURE, Watch, overloaded};

/// Something that can do only so much at a time, and finds out how much: a database, a model, the service itself
/// ([`Service::staged`](crate::Service::staged)). Cheap to clone; all clones are the same stage.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # async fn look_up() -> Vec<u8> { vec![1] }
/// let database = sdk::Stage::new();
/// match database.run(look_up()).await {
///     Ok(rows) => println!("{} rows", rows.len()),
///     Err(sdk::Overloaded) => println!("answer 503: nothing was begun"),
/// }
/// assert_eq!(database.show().started, 1);
/// # }
/// ```
#[derive(Clone)]
pub struct Stage(Arc<Inner>);

struct Inner {
    began: Instant,
    stage: Mutex<flow::Stage<oneshot::Sender<Turn>>>,
}

/// There is too much to do: what was asked for was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overloaded;

impl std::fmt::Display for Overloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is too much to do; nothing was begun")
    }
}

impl std::error::Error for Overloaded {}

/// A place in the stage, until it is dropped.
pub struct Turn {
    of: Stage,
    since: Time,
    end: End,
    has_ended: bool,
}

impl Turn {
    /// It is done, and what it took shows what the stage can do. A turn that is just dropped says nothing.
    pub fn done(mut self) {
        self.end = End::Done;
    }

    /// Whatever is behind the stage said that it has too much to do.
    pub fn overloaded(mut self) {
        self.end = End::Overload;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let now = self.of.now();
        self.of.lock().ended(now, self.since, self.end);
        self.of.let_in();
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    pub fn new() -> Self {
        Self::of(STAGE)
    }

    /// Of another shape, for who knows better.
    pub fn of(shape: Shape) -> Self {
        Self(Arc::new(Inner { began: Instant::now(), stage: Mutex::new(flow::Stage::new(shape)) }))
    }

    /// Does something as soon as there is room for it.
    ///
    /// # Errors
    /// There is none, and none is to be expected soon. It was not begun.
    pub async fn run<T>(&self, does: impl Future<Output = T>) -> Result<T, Overloaded> {
        let turn = self.enter().await?;
        let done = does.await;
        turn.done();
        Ok(done)
    }

    /// The same, for who says by itself when it is done and how it ended.
    ///
    /// # Errors
    /// As [`Stage::run`].
    pub async fn enter(&self) -> Result<Turn, Overloaded> {
        self.let_in();
        let (send, receive) = oneshot::channel();
        let now = self.now();
        {
            let mut stage = self.lock();
            if !stage.has_place() {
                stage.refused();
                return Err(Overloaded);
            }
            if stage.enter(now, now, send).is_some() {
                drop(stage);
                return Ok(self.turn(now));
            }
        }
        match timeout(STAGE_WAIT_MAX, receive).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => {
                self.lock().refused();
                Err(Overloaded)
            }
        }
    }

    /// What waits has done so for too long, and only little more may.
    pub fn is_overloaded(&self) -> bool {
        self.lock().is_overloaded()
    }

    /// What it has done; waits and service times are of the time since the last look.
    pub fn show(&self) -> Shown {
        self.lock().show()
    }

    /// Lets in who waits, as far as there is room.
    fn let_in(&self) {
        loop {
            let now = self.now();
            let next = {
                let mut stage = self.lock();
                stage.new_batch(now);
                stage.next(now)
            };
            let Some((_, waiter)) = next else { return };
            if let Err(mut turn) = waiter.send(self.turn(now)) {
                // He has left. It ends here, as its end elsewhere would come back to this.
                turn.has_ended = true;
                self.lock().ended(now, now, End::Gone);
            }
        }
    }

    fn turn(&self, since: Time) -> Turn {
        Turn { of: self.clone(), since, end: End::Gone, has_ended: false }
    }

    fn now(&self) -> Time {
        Time(0) + Span::from(self.0.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, flow::Stage<oneshot::Sender<Turn>>> {
        self.0.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries a request through the service's own stage; who is refused hears so, and so does the edge.
pub(crate) async fn carry(stage: Stage, watch: Option<Arc<Watch>>, request: Request, next: Next) -> Response {
    let entered = stage.enter().await;
    let mut response = match entered {
        Ok(turn) => {
            let response = next.run(request).await;
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                turn.overloaded()
            } else {
                turn.done()
            }
            response
        }
        Err(Overloaded) => {
            let mut response = Response::new(Body::from("more comes than this program can do; nothing was done\n"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    };
    let is_up = stage.is_overloaded();
    if is_up && !response.headers().contains_key(PRESSURE) {
        let (name, value) = overloaded();
        response.headers_mut().insert(name, value);
    }
    if let Some(watch) = watch {
        watch.stage_is(is_up);
    }
    response
}
