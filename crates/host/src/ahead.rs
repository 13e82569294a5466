//! Reads ahead for TLS, which asks for 4 KiB at a time: what has come is read at once, and more with each read while
//! much comes. While nothing comes no room is held, as most tunnels are idle.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::limits::{TUNNEL_READ_BYTES, TUNNEL_READ_BYTES_MAX};

#[derive(Debug)]
pub struct Ahead<S> {
    pub(crate) inner: S,
    came: BytesMut,
    read_bytes: usize,
}

impl<S> Ahead<S> {
    pub(crate) fn of(inner: S) -> Self {
        Self { inner, came: BytesMut::new(), read_bytes: TUNNEL_READ_BYTES }
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.came.reserve(self.read_bytes);
        let polled = pin!(self.inner.read_buf(&mut self.came)).poll(cx);
        if self.came.is_empty() {
            self.came = BytesMut::new();
        }
        let count = ready!(polled)?;
        if count >= self.read_bytes {
            self.read_bytes = TUNNEL_READ_BYTES_MAX.min(2 * self.read_bytes);
        } else if count < self.read_bytes / 4 {
            self.read_bytes = TUNNEL_READ_BYTES.max(self.read_bytes / 2);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.came.is_empty() {
            ready!(self.poll_fill(cx))?;
        }
        let count = self.came.len().min(to.remaining());
        to.put_slice(&self.came[..count]);
        self.came.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// So much has come; each read takes of it what it has room for.
    struct Came {
        bytes: usize,
        reads: Vec<usize>,
    }

    impl AsyncRead for Came {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.bytes == 0 {
                return Poll::Pending;
            }
            let count = self.bytes.min(to.remaining());
            self.bytes -= count;
            self.reads.push(count);
            to.put_slice(&vec![b'x'; count]);
            Poll::Ready(Ok(()))
        }
    }

    /// Takes all that there is, 4 KiB at a time; how much that was.
    fn taken(ahead: &mut Ahead<Came>) -> usize {
        let mut all = 0;
        loop {
            let mut room = [0; 4096];
            let mut to = ReadBuf::new(&mut room);
            match Pin::new(&mut *ahead).poll_read(&mut Context::from_waker(Waker::noop()), &mut to) {
                Poll::Ready(read) => read.unwrap(),
                Poll::Pending => return all,
            }
            all += to.filled().len();
        }
    }

    #[test]
    fn while_much_comes_few_reads_bring_it_and_nothing_is_held_when_none_does() {
        let mut ahead = Ahead::of(Came { bytes: 1 << 20, reads: Vec::new() });
        assert_eq!(taken(&mut ahead), 1 << 20);
        let reads = std::mem::take(&mut ahead.inner.reads);
        assert!(reads[0] == TUNNEL_READ_BYTES && reads.len() <= 18, "{reads:?}");
        assert_eq!(ahead.came.capacity(), 0);
        // A pause does not make it begin anew; who has little to say is read little of.
        ahead.inner.bytes = TUNNEL_READ_BYTES_MAX;
        assert_eq!(taken(&mut ahead), TUNNEL_READ_BYTES_MAX);
        assert_eq!(std::mem::take(&mut ahead.inner.reads), [TUNNEL_READ_BYTES_MAX]);
        for _ in 0..3 {
            ahead.inner.bytes = 100;
            assert_eq!(taken(&mut ahead), 100);
        }
        assert_eq!((ahead.read_bytes, ahead.came.capacity()), (TUNNEL_READ_BYTES, 0));
    }
}
