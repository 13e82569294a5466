//! A clone's answer on its way to its client and into the cache. A task of its own reads it, so a client that takes it slowly, or
//! leaves, keeps nobody waiting; what turns out too large to be kept goes straight to the client from there on.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use futures_util::future::poll_fn;
use http_body::Frame;

use crate::http::body::FromClone;
use crate::http::limits::CACHED_FILLING_BYTES_MAX;

/// Bytes of all answers that are being read at this node.
#[derive(Default)]
pub struct Filling(AtomicUsize);

/// What was read.
#[derive(Default)]
struct State {
    parts: Vec<Bytes>,
    end: Option<Result<(), io::ErrorKind>>,
    /// The answer from its clone, once it is known to be too large to keep: the client takes the rest of it.
    rest: Option<FromClone>,
    waits: Option<Waker>,
    has_left: bool,
}

type Shared = Arc<Mutex<State>>;

/// The client's end of it.
pub struct Reader {
    shared: Shared,
    taken: usize,
    /// Taken over.
    rest: Option<FromClone>,
    /// Bytes that are still to come, if that is known.
    pub left: Option<u64>,
}

/// Begins to read. The future gives the whole body, or None: it broke off, or has more bytes than so many.
pub fn begin(
    from: FromClone,
    length: Option<u64>,
    bytes_max: usize,
    filling: Arc<Filling>,
) -> (Reader, impl Future<Output = Option<Bytes>> + Send) {
    let shared = Shared::default();
    let reader = Reader { shared: Arc::clone(&shared), taken: 0, rest: None, left: length };
    (reader, read(from, shared, bytes_max, filling))
}

async fn read(mut from: FromClone, shared: Shared, bytes_max: usize, filling: Arc<Filling>) -> Option<Bytes> {
    let mut held = Held { filling, bytes: 0 };
    loop {
        let part = match poll_fn(|cx| from.poll_frame(cx)).await {
            // Cut here, as its clone leaves.
            None if from.is_ended => {
                say(&shared, |state| state.end = Some(Ok(())));
                return None;
            }
            None => break,
            Some(Err(error)) => {
                say(&shared, |state| state.end = Some(Err(error.kind())));
                return None;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(part) => part,
                Err(_) => continue,
            },
        };
        let has_room = held.take(part.len()) && held.bytes <= bytes_max;
        say(&shared, |state| state.parts.push(part));
        if !has_room {
            say(&shared, |state| state.rest = Some(from).filter(|_| !state.has_left));
            return None;
        }
    }
    let parts = {
        let mut state = lock(&shared);
        state.end = Some(Ok(()));
        state.waits.take().inspect(Waker::wake_by_ref);
        state.parts.clone()
    };
    Some(match &parts[..] {
        [] => Bytes::new(),
        [one] => one.clone(),
        parts => {
            let mut whole = BytesMut::with_capacity(held.bytes);
            parts.iter().for_each(|part| whole.extend_from_slice(part));
            whole.freeze()
        }
    })
}

struct Held {
    filling: Arc<Filling>,
    bytes: usize,
}

impl Held {
    fn take(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.filling.0.fetch_add(bytes, Relaxed) + bytes <= CACHED_FILLING_BYTES_MAX
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.filling.0.fetch_sub(self.bytes, Relaxed);
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(shared: &Shared, change: impl FnOnce(&mut State)) {
    let mut state = lock(shared);
    change(&mut state);
    if let Some(waits) = state.waits.take() {
        waits.wake();
    }
}

impl Reader {
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(rest) = &mut self.rest {
            return rest.poll_frame(cx);
        }
        let mut state = lock(&self.shared);
        if let Some(part) = state.parts.get(self.taken) {
            self.taken += 1;
            self.left = self.left.map(|left| left.saturating_sub(part.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(part.clone()))));
        }
        if let Some(rest) = state.rest.take() {
            state.parts = Vec::new();
            drop(state);
            return self.rest.insert(rest).poll_frame(cx);
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(kind)) => Poll::Ready(Some(Err(kind.into()))),
            None => {
                state.waits = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub fn is_over(&self) -> bool {
        if self.rest.is_some() {
            return false;
        }
        let state = lock(&self.shared);
        state.rest.is_none() && state.end == Some(Ok(())) && self.taken == state.parts.len()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.has_left = true;
        state.rest = None;
    }
}
