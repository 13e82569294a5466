//! An answer over HTTP/1.1 that breaks off. What came of it is with the client before the connection ends, unfinished (RFC 9112 8):
//! hyper would throw away what it has not written at the first word of an error. So the error is kept back until the guard has written
//! all and closed our side. HTTP/2 has the same for a stream (`h2::Taken`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body::DownBody;
use super::guard::Flags;

pub struct Parting {
    body: DownBody,
    flags: Arc<Flags>,
    broke: Option<io::Error>,
}

impl Parting {
    pub fn new(body: DownBody, flags: Arc<Flags>) -> Self {
        Self { body, flags, broke: None }
    }
}

impl Body for Parting {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.broke.is_none() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Err(error)) => {
                    this.broke = Some(error);
                    this.flags.breaks_off.store(true, Relaxed);
                    // hyper flushes at the end of each of its turns; of this one it may have been before.
                    cx.waker().wake_by_ref();
                }
                other => return Poll::Ready(other),
            }
        }
        // The guard is of the same task, and wakes it.
        if this.flags.has_parted.load(Relaxed) { Poll::Ready(this.broke.take().map(Err)) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
