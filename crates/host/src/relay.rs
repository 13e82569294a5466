//! The bytes of a tunnel at the clone's node: sealed on the edge's side, plain on the clone's, until both have ended.
//!
//! What one side said is handed over before its end is told, and its end is told as what it was. A clone that closes is a
//! clean end (TLS says so); one whose connection breaks is an end without TLS's word, which the edge takes for the error that
//! it is. A clone that takes no more of a request may still answer it, so that alone ends nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::poll_fn;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::limits::{TUNNEL_BUFFER_BYTES, TUNNEL_LINGERS};

type Sealed = TlsStream<BufReader<TcpStream>>;

/// How the side that sent has ended.
#[derive(Debug)]
enum Heard {
    Closed,
    Broke(io::Error),
}

/// How both have.
enum Ended {
    Whole,
    /// All that the clone said is with the edge, which may still be sending.
    Early,
}

/// Runs a tunnel to its end.
///
/// # Errors
/// The edge went away.
pub(crate) async fn relay(mut sealed: Sealed, mut clone: TcpStream) -> io::Result<()> {
    let (mut forth, mut back) = (Way::new(), Way::new());
    let mut turn = Turn::default();
    // The clone has no more to say; that the edge knows; the clone was told all; it takes no more.
    let (mut has_said, mut is_shut, mut is_told, mut is_deaf) = (false, false, false, false);
    let ended = poll_fn(|cx| {
        if !is_told {
            match forth.poll(cx, &mut sealed, &mut clone) {
                Poll::Ready(Ok(Heard::Closed)) => {
                    is_told = true;
                    // It may be gone already, which is an end as well.
                    let _ = ready!(Pin::new(&mut clone).poll_shutdown(cx));
                }
                Poll::Ready(Ok(Heard::Broke(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(Err(_)) => (is_told, is_deaf) = (true, true),
                Poll::Pending => (),
            }
            if forth.take_moved() {
                turn = Turn { comes_in_parts: turn.comes_in_parts, ..Turn::default() };
            }
        }
        while !has_said {
            match back.poll(cx, &mut clone, &mut sealed) {
                Poll::Ready(Ok(Heard::Closed)) => has_said = true,
                Poll::Ready(Ok(Heard::Broke(_))) => return Poll::Ready(Ok(Ended::Early)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    turn.waits(back.take_moved(), &clone);
                    break;
                }
            }
        }
        if has_said && !is_shut {
            ready!(Pin::new(&mut sealed).poll_shutdown(cx))?;
            is_shut = true;
        }
        match (has_said && is_told, is_deaf) {
            (true, false) => Poll::Ready(Ok(Ended::Whole)),
            (true, true) => Poll::Ready(Ok(Ended::Early)),
            (false, _) => Poll::Pending,
        }
    });
    match ended.await? {
        Ended::Whole => Ok(()),
        Ended::Early => part(sealed.get_mut().0.get_mut()).await,
    }
}

/// Ends our side of a connection so that the other keeps what it was sent: to close a socket with bytes that nobody has read
/// resets it, and what is under way is lost.
async fn part(tcp: &mut TcpStream) -> io::Result<()> {
    // Of one that was shut already it is an error, and no matter.
    let _ = shutdown(&*tcp, Shutdown::Write);
    let mut waste = [0; 4096];
    let drained = async { while matches!(tcp.read(&mut waste).await, Ok(count) if count > 0) {} };
    // Whoever still sends then has had its time.
    let _ = timeout(TUNNEL_LINGERS, drained).await;
    Ok(())
}

/// One direction.
struct Way {
    room: Box<[u8]>,
    /// What of it is to be written.
    from: usize,
    to: usize,
    unflushed: bool,
    /// The side that sends has ended.
    heard: Option<Heard>,
    /// Some came since somebody looked.
    moved: bool,
}

impl Way {
    fn new() -> Way {
        let room = vec![0; TUNNEL_BUFFER_BYTES].into();
        Way { room, from: 0, to: 0, unflushed: false, heard: None, moved: false }
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Ready when one side has ended and the other has all that it said.
    ///
    /// # Errors
    /// The side that is written to takes no more.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sends: &mut (impl AsyncRead + Unpin),
        takes: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<Heard>> {
        loop {
            while self.from < self.to {
                match ready!(Pin::new(&mut *takes).poll_write(cx, &self.room[self.from..self.to]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.from += count,
                }
                self.unflushed = true;
            }
            if self.heard.is_none() {
                let mut read = ReadBuf::new(&mut self.room);
                match Pin::new(&mut *sends).poll_read(cx, &mut read) {
                    Poll::Ready(Ok(())) if read.filled().is_empty() => self.heard = Some(Heard::Closed),
                    Poll::Ready(Ok(())) => {
                        (self.from, self.to, self.moved) = (0, read.filled().len(), true);
                        continue;
                    }
                    Poll::Ready(Err(error)) => self.heard = Some(Heard::Broke(error)),
                    Poll::Pending => (),
                }
            }
            if self.unflushed {
                ready!(Pin::new(&mut *takes).poll_flush(cx))?;
                self.unflushed = false;
            }
            return self.heard.take().map_or(Poll::Pending, |heard| Poll::Ready(Ok(heard)));
        }
    }
}

/// A clone's answer to what it was sent last. Many programs write an answer in two parts, and their system holds the second
/// back until the first is acknowledged; ours would put that off for 40 ms. At first the kernel acknowledges at once by itself; a clone that
/// was seen to speak in parts is then helped with one call an answer, and others cost nothing.
#[derive(Debug, Default)]
struct Turn {
    has_begun: bool,
    is_acknowledged: bool,
    comes_in_parts: bool,
}

impl Turn {
    /// There is no more of it now; whether some `came` before.
    fn waits(&mut self, came: bool, clone: &TcpStream) {
        if !came {
            return;
        }
        self.comes_in_parts |= std::mem::replace(&mut self.has_begun, true);
        if self.comes_in_parts && !std::mem::replace(&mut self.is_acknowledged, true) {
            // It is a wish; without it all is right, only later.
            let _ = set_tcp_quickack(clone, true);
        }
    }
}
