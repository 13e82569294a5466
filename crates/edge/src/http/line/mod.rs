//! One connection to a clone, with hyper on it. It has no task of its own: whoever uses it drives it, so a request
//! stays on one thread and wakes nobody else. Idle ones wait in a stack, the last used on top; before one is used again
//! it is looked at, since a clone may have closed it.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::poll_fn;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::UpBody;
use super::limits::{ANSWER_IDLE, ANSWER_TIME, HYPER_BUFFER_BYTES, IDLE_MAX, IDLE_TIME};
use super::wait::Wait;
use crate::pool::Stream;

pub struct Line {
    sender: SendRequest<UpBody>,
    /// Hyper's side of the connection. None once it has ended and was asked for what it still held.
    driver: Option<Connection<TokioIo<Stream>, UpBody>>,
    ended: bool,
    /// A second handle of a local socket, to look whether the clone has closed it.
    look: Option<OwnedFd>,
    wait: Wait,
    /// This answer's first bytes were acknowledged at once.
    acknowledged: bool,
}

/// How a request came to nothing on one line.
pub enum Failed {
    /// The clone has not seen it; here it is again.
    Unsent(Box<Request<UpBody>>),
    /// The clone may have seen it.
    Sent(hyper::Error),
    /// The clone has it and says nothing.
    TimedOut,
}

impl Line {
    /// # Errors
    /// Nothing was sent.
    pub async fn open(stream: Stream) -> io::Result<Self> {
        let look = match &stream {
            Stream::Local(stream) => Some(stream.as_fd().try_clone_to_owned()?),
            Stream::Tunnel(_) => None,
        };
        let (sender, driver) = Builder::new()
            .max_buf_size(HYPER_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        Ok(Self { sender, driver: Some(driver), ended: false, look, wait: Wait::default(), acknowledged: false })
    }

    /// Lets hyper read and write. True once the connection has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        // Errors come out of the request or the body that they hit.
        if let Some(driver) = &mut self.driver
            && !self.ended
        {
            self.ended = Pin::new(driver).poll(cx).is_ready();
        }
        self.ended
    }

    /// Whether another request may go here now.
    pub fn is_ready(&mut self) -> bool {
        !self.drive(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }

    /// Asks the system whether the clone has closed its side, which the runtime may not have noticed yet. A tunnel
    /// cannot be asked.
    fn is_surely_open(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let mut byte = [0; 1];
        match &self.look {
            Some(fd) => {
                matches!(recv(fd, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(rustix::io::Errno::AGAIN))
            }
            None => true,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(&mut self, request: Request<UpBody>) -> Result<Response<Incoming>, Failed> {
        self.wait.over();
        self.acknowledged = false;
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            // Only driving brings the answer, so nobody else needs to wake us for it.
            let mut idly = Context::from_waker(Waker::noop());
            let ended = self.drive(cx);
            let mut polled = answer.as_mut().poll(&mut idly);
            if ended && polled.is_pending() {
                // It ended without having taken the request up, and gives it back when it is dropped.
                self.driver = None;
                polled = answer.as_mut().poll(&mut idly);
                assert!(polled.is_ready(), "a request does not outlive its connection");
            }
            if let Poll::Ready(answered) = polled {
                return Poll::Ready(Some(answered));
            }
            if self.wait.is_overdue(cx, ANSWER_TIME) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        match answered {
            Some(Ok(response)) => Ok(response),
            Some(Err(mut error)) => match error.take_message() {
                Some(request) => Err(Failed::Unsent(Box::new(request))),
                None => Err(Failed::Sent(error.into_error())),
            },
            None => Err(Failed::TimedOut),
        }
    }

    /// The next part of an answer's body.
    pub fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut incoming = Pin::new(incoming);
        // Asking tells hyper that we want some, driving brings it, so ask again.
        let mut polled = incoming.as_mut().poll_frame(cx);
        if polled.is_pending() {
            self.drive(cx);
            polled = incoming.poll_frame(cx);
        }
        if polled.is_pending() && !std::mem::replace(&mut self.acknowledged, true) {
            self.acknowledge();
        }
        if polled.is_ready() {
            self.wait.over();
        } else if self.wait.is_overdue(cx, ANSWER_IDLE) {
            return Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the clone's answer stopped coming",
            ))));
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
    }

    /// Many small servers (Python's, for one) write head and body apart, and their system holds the body back until the
    /// head is acknowledged, which ours would put off for 40 ms. Costs a call only when a body did not come at once.
    fn acknowledge(&self) {
        if let Some(fd) = &self.look {
            // It is a wish; without it all is right, only later.
            let _ = rustix::net::sockopt::set_tcp_quickack(fd, true);
        }
    }

    /// After 101: the stream, and what the clone has sent on it already.
    ///
    /// # Errors
    /// The connection ended before the change.
    pub async fn into_upgraded(mut self) -> io::Result<(Stream, Bytes)> {
        let mut driver = self.driver.take().ok_or(io::ErrorKind::NotConnected)?;
        if !self.ended {
            Pin::new(&mut driver).await.map_err(io::Error::other)?;
        }
        let parts = driver.into_parts();
        Ok((parts.io.into_inner(), parts.read_buf))
    }
}

/// Idle lines to one clone.
#[derive(Default)]
pub struct Idle(Mutex<VecDeque<(Instant, Box<Line>)>>);

impl Idle {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, Box<Line>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line used last that is still good. With `surely`, the system is asked as well.
    pub fn take(&self, surely: bool) -> Option<Box<Line>> {
        loop {
            let (_, mut line) = self.lock().pop_back()?;
            // Without it, one that has closed gives the request back unsent.
            if !surely || line.is_surely_open() && line.is_ready() {
                return Some(line);
            }
        }
    }

    pub fn put(&self, line: Box<Line>) {
        let mut lines = self.lock();
        lines.push_back((Instant::now(), line));
        let excess = if lines.len() > IDLE_MAX { lines.pop_front() } else { None };
        drop(lines);
        drop(excess);
    }

    /// Closes those that have been idle for long, or that the clone has closed.
    pub fn sweep(&self) {
        let now = Instant::now();
        let is_good = |at: Instant, line: &Line| now.saturating_duration_since(at) < IDLE_TIME && line.is_surely_open();
        self.lock().retain(|(at, line)| is_good(*at, line));
    }

    pub fn clear(&self) {
        self.lock().clear();
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Local(stream) => Pin::new(stream).poll_read(cx, to),
            Stream::Tunnel(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Local(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tunnel(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Local(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Tunnel(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Local(_) => true,
            Stream::Tunnel(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Local(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tunnel(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Local(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tunnel(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_request_for_a_connection_that_just_closed_comes_back_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        // The end is there to be read, but hyper has not looked yet: the race between a look and a request.
        stream.readable().await.unwrap();
        let mut line = Line::open(Stream::Local(stream)).await.unwrap();
        let mut request = Request::new(UpBody::Whole(Bytes::from_static(b"hello")));
        *request.uri_mut() = "/once".parse().unwrap();
        let Err(Failed::Unsent(request)) = line.send(request).await else { panic!("it was not sent") };
        assert_eq!(request.uri(), "/once");
        assert!(matches!(request.body(), UpBody::Whole(body) if body == "hello"));
        assert!(!line.is_ready());
    }
}
