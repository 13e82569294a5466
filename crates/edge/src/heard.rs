//! How a clone of a TCP service does with a connection. Nobody knows what is a request there, but every protocol begins in
//! one of two ways: the client says something and the clone answers, or the clone speaks first. So the first byte from the
//! clone is its answer, and what it took is counted from the first one of the client, or else from the connection's
//! begin. A clone that ends a connection before that, when its client has said something or has only just come, has failed it.
//! What comes later is theirs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::demand::Try;
use crate::pool::{Pool, Upstream};

/// A clone that ends a silent connection later than this may well have waited for its client.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The connection to a clone, until its first answer is heard.
pub struct Heard<S> {
    stream: S,
    pool: Arc<Pool>,
    upstream: Arc<Upstream>,
    opened: Instant,
    /// The client has said something.
    asked: Option<Try>,
    client_ended: bool,
    is_over: bool,
}

impl<S> Heard<S> {
    pub fn new(stream: S, pool: Arc<Pool>, upstream: Arc<Upstream>) -> Self {
        let opened = Instant::now();
        Self { stream, pool, upstream, opened, asked: None, client_ended: false, is_over: false }
    }

    /// The clone has spoken, or ended.
    fn over(&mut self, spoke: bool) {
        self.is_over = true;
        let asked = self.asked.take();
        let is_clients = self.client_ended || asked.is_none() && self.opened.elapsed() > AT_ONCE;
        if !spoke && is_clients {
            return;
        }
        let asked = asked.unwrap_or_else(|| self.upstream.count.begin().began(self.opened));
        asked.ended(!spoke);
        self.pool.answered(&self.upstream, !spoke);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = to.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, to));
        if !this.is_over {
            this.over(read.is_ok() && to.filled().len() > before);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.is_over && this.asked.is_none() {
            this.asked = Some(this.upstream.count.begin());
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.client_ended = true;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}
