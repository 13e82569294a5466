//! The way of a request: room for all that waits while it is answered, some thousand bytes. It is one future that
//! answers one request after the other, whosever they are, so that none has to be made for each: a thread keeps those
//! that are not in use, and a connection that waits for its next request has none.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::poll_fn;

use super::answer::Asked;
use super::{End, Heard, Talk, exchange};

/// Ways that a thread keeps at most.
const KEPT_MAX: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<Way>> = const { RefCell::new(Vec::new()) };
}

struct Way {
    desk: Arc<Mutex<Desk>>,
    /// Answers what is put on the desk. It has no end.
    clerk: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Where a request is put, and its connection comes back.
#[derive(Default)]
struct Desk {
    begun: Option<(Talk, Asked, Heard)>,
    over: Option<(Talk, io::Result<End>)>,
}

/// Answers one request. The connection comes back, with how the answer left it.
pub fn go(talk: Talk, asked: Asked, heard: Heard) -> impl Future<Output = (Talk, io::Result<End>)> {
    let way = KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(Way::new);
    lock(&way.desk).begun = Some((talk, asked, heard));
    let mut way = Some(way);
    poll_fn(move |cx| {
        let over = way.as_mut().and_then(|way| way.poll(cx));
        let Some(over) = over else { return Poll::Pending };
        if let Some(way) = way.take() {
            way.keep();
        }
        Poll::Ready(over)
    })
}

impl Way {
    fn new() -> Self {
        let desk = Arc::<Mutex<Desk>>::default();
        Self { clerk: Box::pin(answer_all(Arc::clone(&desk))), desk }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Option<(Talk, io::Result<End>)> {
        let _ = self.clerk.as_mut().poll(cx);
        lock(&self.desk).over.take()
    }

    fn keep(self) {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(self);
            }
        });
    }
}

async fn answer_all(desk: Arc<Mutex<Desk>>) {
    loop {
        // Who puts something there asks by itself afterwards: nobody is to be woken.
        let begun = poll_fn(|_| lock(&desk).begun.take().map_or(Poll::Pending, Poll::Ready));
        let (talk, asked, heard) = begun.await;
        let end = exchange(&talk, asked, heard).await;
        lock(&desk).over = Some((talk, end));
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
