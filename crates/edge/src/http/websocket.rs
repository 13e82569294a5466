//! WebSocket over HTTP/2 (RFC 8441): a client opens a stream by CONNECT with `:protocol` and speaks WebSocket on it. A
//! clone is asked as in HTTP/1.1, for what the client cannot see any more the edge has to stand: that the clone speaks
//! WebSocket (RFC 6455 4.1). Frames are the same.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use http::header::{self, HeaderMap, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::h2::Manners;
use super::limits::WRITE_IDLE;
use super::upgrade::Handed;
use crate::pool::Duplex;
use crate::wait::{Rate, Wait};

/// RFC 6455 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What a clone must say to show that it understood.
#[derive(Debug)]
pub struct Accept(String);

/// Puts in what HTTP/1.1 has and HTTP/2 has not.
pub fn ask(headers: &mut HeaderMap) -> Accept {
    let mut nonce = [0; 16];
    // It guards against caches that answer, not against people: without chance it is zero.
    let _ = SystemRandom::new().fill(&mut nonce);
    let key = STANDARD.encode(nonce);
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::try_from(key).expect("base64 is plain ASCII"));
    Accept(STANDARD.encode(accept))
}

impl Accept {
    /// Takes the clone's word out of its answer; whether it is the right one.
    pub fn take(&self, headers: &mut HeaderMap) -> bool {
        headers.remove(header::SEC_WEBSOCKET_ACCEPT).is_some_and(|said| said.as_bytes() == self.0.as_bytes())
    }
}

/// The client's side of an upgraded connection, of whichever HTTP. It ends if the client takes nothing; on HTTP/2 its
/// bytes are no flood, and it counts as a request under way.
pub enum Tunnel {
    Http1 {
        stream: Box<dyn Duplex>,
        /// What came of it before.
        early: Bytes,
        write_wait: Rate,
    },
    Http2 {
        io: TokioIo<Upgraded>,
        stream: Option<Box<OfStream>>,
    },
}

/// What a WebSocket over HTTP/2 needs of its connection.
pub struct OfStream {
    manners: Arc<Manners>,
    write_wait: Wait,
}

impl Tunnel {
    pub fn of_http1(Handed { stream, early }: Handed) -> Self {
        Self::Http1 { stream, early, write_wait: Rate::default() }
    }

    pub fn of_http2(upgraded: Upgraded, manners: Option<Arc<Manners>>) -> Self {
        let of = |manners: Arc<Manners>| {
            manners.begin();
            Box::new(OfStream { manners, write_wait: Wait::default() })
        };
        Self::Http2 { io: TokioIo::new(upgraded), stream: manners.map(of) }
    }
}

impl OfStream {
    /// What became of a write. True: the client takes nothing.
    fn wrote(&mut self, cx: &mut Context<'_>, polled: &Poll<io::Result<usize>>) -> bool {
        match polled {
            Poll::Ready(Ok(count)) => {
                self.write_wait.over();
                self.manners.went(*count as u64);
                false
            }
            Poll::Ready(Err(_)) => false,
            Poll::Pending => self.write_wait.is_overdue(cx, WRITE_IDLE),
        }
    }
}

impl Drop for OfStream {
    fn drop(&mut self) {
        self.manners.ended(true);
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { early, .. } if !early.is_empty() => {
                let count = early.len().min(to.remaining());
                to.put_slice(&early.split_to(count));
                // What it is a part of goes with its last byte.
                if !early.has_remaining() {
                    *early = Bytes::new();
                }
                Poll::Ready(Ok(()))
            }
            Self::Http1 { stream, .. } => Pin::new(stream).poll_read(cx, to),
            Self::Http2 { io, stream } => {
                let before = to.filled().len();
                let polled = Pin::new(io).poll_read(cx, to);
                let count = (to.filled().len() - before) as u64;
                if count > 0
                    && let Some(stream) = stream
                {
                    stream.manners.came(count);
                }
                polled
            }
        }
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (polled, is_late) = match &mut *self {
            Self::Http1 { stream, write_wait, .. } => {
                let polled = Pin::new(stream).poll_write(cx, bytes);
                if let Poll::Ready(Ok(count)) = polled {
                    write_wait.moved(count);
                }
                let is_late = polled.is_pending() && write_wait.is_slow(cx, WRITE_IDLE);
                (polled, is_late)
            }
            Self::Http2 { io, stream } => {
                let polled = Pin::new(io).poll_write(cx, bytes);
                let is_late = stream.as_mut().is_some_and(|stream| stream.wrote(cx, &polled));
                (polled, is_late)
            }
        };
        if is_late {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(stream).poll_flush(cx),
            Self::Http2 { io, .. } => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1 { stream, .. } => Pin::new(stream).poll_shutdown(cx),
            Self::Http2 { io, .. } => Pin::new(io).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_that_does_not_know_the_key_does_not_speak_web_socket() {
        let mut headers = HeaderMap::new();
        let accept = ask(&mut headers);
        assert_eq!(headers[header::SEC_WEBSOCKET_KEY].len(), 24);
        assert!(!accept.take(&mut headers));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!accept.take(&mut headers) && headers.get(header::SEC_WEBSOCKET_ACCEPT).is_none());
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(accept.0.as_str()).unwrap());
        assert!(accept.take(&mut headers));
        let other = ask(&mut HeaderMap::new());
        assert_ne!(other.0, accept.0);
    }
}
