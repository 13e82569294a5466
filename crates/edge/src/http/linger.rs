//! The end of a client's connection after our last word. To close a socket with unread bytes, or one that gets more,
//! resets the connection, and the client could lose our answer (RFC 9112 9.6). So for a moment what comes is read and
//! thrown away.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::limits::LINGER;
use crate::wait::Wait;

/// Bytes read and thrown away at a time.
const WASTE_BYTES: usize = 4 << 10;

/// From its making on, [`LINGER`] at most.
#[derive(Debug)]
pub struct Linger {
    until: Instant,
    wait: Wait,
}

impl Default for Linger {
    fn default() -> Self {
        Self { until: Instant::now() + LINGER, wait: Wait::default() }
    }
}

impl Linger {
    /// Ready when the client has closed its side too, or has had its time. Never fails: nothing of it matters any more.
    pub fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waste = [0; WASTE_BYTES];
        loop {
            let mut room = ReadBuf::new(&mut waste);
            match Pin::new(&mut *stream).poll_read(cx, &mut room) {
                Poll::Ready(Ok(())) if !room.filled().is_empty() && Instant::now() < self.until => (),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending if self.wait.is_overdue(cx, LINGER) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
