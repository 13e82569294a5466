//! A client's connection: as it is, or with TLS around it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

pub enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Secure(stream) => stream.get_ref().0,
        }
    }

    /// TLS has read something that nobody took yet. Its socket does not tell.
    fn keeps_some(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secure(stream) => !stream.get_ref().1.wants_read(),
        }
    }

    /// The client has ended its side, though what it sent before may not have been read yet.
    pub fn has_left(&self) -> bool {
        let mut now = std::pin::pin!(self.socket().ready(Interest::READABLE));
        let seen = now.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(seen, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Something has come that nobody has read.
    pub fn has_more(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        self.keeps_some() || matches!(self.socket().poll_peek(cx, &mut ReadBuf::new(&mut byte)), Poll::Ready(Ok(1..)))
    }

    /// Ready when a read may give something, so that a connection without news needs no buffer.
    pub fn poll_news(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.keeps_some() { Poll::Ready(Ok(())) } else { self.socket().poll_read_ready(cx) }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Stream::Secure(stream) => match Pin::new(stream).poll_read(cx, buf) {
                // Commands say themselves where they end: who leaves without the goodbye of TLS has left, no more.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Stream::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
