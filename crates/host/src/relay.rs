//! The bytes of a tunnel at the clone's node: sealed on the edge's side, plain on the clone's, until both have ended.
//!
//! What one side said is handed over before its end is told, and its end is told as what it was. A clone that closes is a
//! clean end (TLS says so); one whose connection breaks is an end without TLS's word, which the edge takes for the error that
//! it is. A clone that takes no more of a request may still answer it, so that alone ends nothing.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use futures_util::future::poll_fn;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::ahead::Ahead;
use crate::limits::{TUNNEL_BUFFER_BYTES, TUNNEL_LINGERS, TUNNEL_MORE_BYTES};

type Sealed = TlsStream<Ahead<TcpStream>>;

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
    let (mut forth, mut back) = (Way::default(), Way::default());
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
        Ended::Early => part(&mut sealed.get_mut().0.inner).await,
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
#[derive(Default)]
struct Way {
    /// What is to be written. While there is nothing no room is held.
    room: BytesMut,
    unflushed: bool,
    /// The side that sends has ended.
    heard: Option<Heard>,
    /// Some came since somebody looked.
    moved: bool,
}

impl Way {
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
            while !self.room.is_empty() {
                match ready!(Pin::new(&mut *takes).poll_write(cx, &self.room))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.room.advance(count),
                }
                self.unflushed = true;
            }
            if self.heard.is_none() {
                self.gather(cx, sends);
                if !self.room.is_empty() {
                    continue;
                }
            }
            if self.unflushed {
                ready!(Pin::new(&mut *takes).poll_flush(cx))?;
                self.unflushed = false;
            }
            return self.heard.take().map_or(Poll::Pending, |heard| Poll::Ready(Ok(heard)));
        }
    }

    /// Takes what has come, as far as there is room: TLS gives a record at a time.
    fn gather(&mut self, cx: &mut Context<'_>, sends: &mut (impl AsyncRead + Unpin)) {
        self.room.reserve(TUNNEL_BUFFER_BYTES);
        while self.room.len() < self.room.capacity() {
            match pin!(sends.read_buf(&mut self.room)).poll(cx) {
                Poll::Ready(Ok(0)) => self.heard = Some(Heard::Closed),
                Poll::Ready(Err(error)) => self.heard = Some(Heard::Broke(error)),
                Poll::Ready(Ok(count)) => {
                    self.moved = true;
                    if count >= TUNNEL_MORE_BYTES {
                        continue;
                    }
                }
                Poll::Pending => (),
            }
            break;
        }
        if self.room.is_empty() {
            self.room = BytesMut::new();
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use tokio::io::ReadBuf;

    use super::*;

    /// Gives these pieces one after the other, each whole; then nothing for now, or its end.
    struct Says(VecDeque<usize>, Option<io::ErrorKind>);

    impl AsyncRead for Says {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let Some(piece) = self.0.front_mut() else {
                return self.1.map_or(Poll::Pending, |kind| Poll::Ready(Err(kind.into())));
            };
            let count = to.remaining().min(*piece);
            to.put_slice(&vec![b'x'; count]);
            *piece -= count;
            if *piece == 0 {
                self.0.pop_front();
            }
            Poll::Ready(Ok(()))
        }
    }

    /// What came with each write.
    #[derive(Default)]
    struct Takes(Vec<usize>);

    impl AsyncWrite for Takes {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_has_come_in_records_is_passed_on_with_one_write_and_nothing_is_held_then() {
        const RECORD: usize = 16 << 10;
        for (records, last, writes) in [
            (vec![RECORD; 8], None, vec![4 * RECORD; 2]),
            (vec![RECORD, RECORD, 100], None, vec![2 * RECORD + 100]),
            (vec![RECORD, 100, 100], Some(io::ErrorKind::ConnectionReset), vec![RECORD + 100, 100]),
            (vec![], None, vec![]),
        ] {
            let (mut way, mut says, mut takes) = (Way::default(), Says(records.into(), last), Takes::default());
            let ended = way.poll(&mut Context::from_waker(Waker::noop()), &mut says, &mut takes);
            assert_eq!(takes.0, writes, "all that was said before it ended, if it did: {last:?}");
            assert_eq!(matches!(ended, Poll::Ready(Ok(Heard::Broke(_)))), last.is_some());
            assert_eq!(way.room.capacity(), 0);
        }
    }
}
