//! How a clone of a TCP service does with a connection. Nobody knows what is a request there, but every protocol begins in
//! one of two ways: the client says something and the clone answers, or the clone speaks first. So the first byte from the
//! clone is its answer, and what it took is counted from the first one of the client, or else from the connection's
//! begin. A clone that ends a connection before that, when its client has said something or has only just come, has failed it.
//! What comes later is theirs.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::admit::{Asking, First};
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
    first: Arc<First>,
    /// It was let in as one that asks for something, and keeps a place until that time.
    asking: Option<(Asking, Option<Pin<Box<Sleep>>>)>,
}

impl<S> Heard<S> {
    pub fn new(stream: S, pool: Arc<Pool>, upstream: Arc<Upstream>, first: Arc<First>, asking: Option<Asking>) -> Self {
        let opened = Instant::now();
        let asking = asking.map(|asking| {
            let until = Box::pin(tokio::time::sleep(asking.holds));
            (asking, Some(until))
        });
        Self { stream, pool, upstream, opened, asked: None, client_ended: false, is_over: false, first, asking }
    }

    /// The clone has spoken, or ended.
    fn over(&mut self, spoke: bool) {
        self.is_over = true;
        let asked = self.asked.take();
        if spoke {
            self.first.heard(asked.is_some());
        }
        if let Some((asking, _)) = self.asking.take() {
            asking.ended(spoke);
        }
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
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, to) else {
            if let Some((asking, until)) = &mut this.asking
                && until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready())
            {
                *until = None;
                asking.let_go();
            }
            return Poll::Pending;
        };
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
