//! After 101 both sides speak something else (WebSocket, mostly): bytes are copied both ways until both have ended, or
//! neither has sent any for very long; or until the clone leaves and it is this connection's turn (`crate::pace`). Then a
//! WebSocket client gets a close frame between two others, "going away" (RFC 6455 7.4.1): it answers, its answer goes on to
//! the clone, and both end. Of other protocols nobody knows where a message ends, so the clone is shown the end of its input
//! (TCP's half close): it answers what it has, and ends.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_fn;
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Notify, oneshot};

use super::h2::Manners;
use super::limits::{CONNECT_TIME, GOODBYE_TIME};
use super::line::Line;
use super::websocket::Tunnel;
use crate::frames::{Frames, GOING_AWAY};
use crate::meter::Opened;
use crate::pace::Stay;
use crate::pool::{Duplex, InFlight};

/// What one read brings at most, bytes: as much one direction of a splice holds.
pub const ROOM_BYTES: usize = 16 << 10;

thread_local! {
    /// Where what comes is read into.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; ROOM_BYTES]);
}

/// Gives what comes next to `take`; nothing at the end. While nothing comes nothing is held for it, as most connections are idle.
pub fn poll_part<T>(
    from: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    ROOM.with_borrow_mut(|room| {
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(from).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(take(read.filled())))
    })
}

async fn part(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    poll_fn(|cx| poll_part(from, cx, <[u8]>::to_vec)).await
}

/// A connection of HTTP/1 on which something else is spoken from now on, and what has come of that.
pub struct Handed {
    pub stream: Box<dyn Duplex>,
    pub early: Bytes,
}

/// The client's side, once it has heard that both change.
pub enum OfClient {
    Http1(oneshot::Receiver<Handed>),
    Http2(OnUpgrade),
}

/// What counts an upgraded connection as long as it is open: at its clone, and at the door.
pub struct Counted {
    pub stay: Stay,
    pub _in_flight: InFlight,
    pub _open: Arc<Opened>,
}

/// Runs an upgraded connection to its end, which comes when there was no byte for `idle`, too.
pub async fn splice(
    line: Line,
    of_client: OfClient,
    counted: Counted,
    manners: Option<Arc<Manners>>,
    is_websocket: bool,
    idle: Duration,
) {
    let mut frames = is_websocket.then(Frames::default);
    // Both ends have said that they change; what is left is to hand over the sockets.
    let both = async {
        let (clone, early) = line.into_upgraded();
        let mut client = match of_client {
            OfClient::Http1(handed) => Tunnel::of_http1(handed.await.map_err(io::Error::other)?),
            OfClient::Http2(upgraded) => Tunnel::of_http2(upgraded.await.map_err(io::Error::other)?, manners),
        };
        client.write_all(&early).await?;
        if let Some(frames) = &mut frames {
            frames.skip(&early);
        }
        io::Result::Ok((client, clone))
    };
    let spliced = match tokio::time::timeout(CONNECT_TIME, both).await {
        Ok(Ok((client, clone))) => copy_both(client, clone, idle, &counted.stay, frames).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take the 101")),
    };
    if let Err(error) = spliced {
        tracing::debug!(%error, "upgraded connection ended");
    }
}

/// Copies both ways until both have ended; the end of one direction is passed on while the other goes on. `frames` are
/// those that the clone sends, if it is known to send such.
///
/// # Errors
/// A side failed, or no byte came from either for `idle`.
pub async fn copy_both<A, B>(client: A, clone: B, idle: Duration, stay: &Stay, frames: Option<Frames>) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_clone, mut to_clone) = tokio::io::split(clone);
    let alive = Alive { heard: Notify::new(), stay };
    let mut forth = pin!(forth(&mut from_client, &mut to_clone, &alive, frames.is_none()));
    let mut back = pin!(back(&mut from_clone, &mut to_client, &alive, frames));
    let (mut forth_done, mut back_done) = (false, false);
    let copied = poll_fn(|cx| {
        // An error of one direction ends both: half a protocol is of no use.
        if !forth_done && let Poll::Ready(result) = forth.as_mut().poll(cx) {
            result?;
            forth_done = true;
        }
        if !back_done && let Poll::Ready(result) = back.as_mut().poll(cx) {
            result?;
            back_done = true;
        }
        if forth_done && back_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    let silent = async { while tokio::time::timeout(idle, alive.heard.notified()).await.is_ok() {} };
    let sent_away = async {
        stay.goodbye().await;
        tokio::time::sleep(GOODBYE_TIME).await;
    };
    tokio::select! {
        result = copied => result,
        () = silent => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no byte in either direction for {idle:?} (idle_timeout)"))),
        () = sent_away => Ok(()),
    }
}

/// Who hears of each byte.
struct Alive<'a> {
    heard: Notify,
    stay: &'a Stay,
}

impl Alive<'_> {
    fn hears(&self) {
        self.heard.notify_one();
        self.stay.is_active();
    }
}

/// From the client to the clone. `ends`: a goodbye ends it.
async fn forth(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    alive: &Alive<'_>,
    ends: bool,
) -> io::Result<()> {
    loop {
        let bytes = tokio::select! {
            read = part(from) => read?,
            () = alive.stay.goodbye(), if ends => Vec::new(),
        };
        alive.hears();
        if bytes.is_empty() {
            // The other side may be gone already, which is an end as well.
            let _ = to.shutdown().await;
            return Ok(());
        }
        to.write_all(&bytes).await?;
        to.flush().await?;
    }
}

/// From the clone to the client.
async fn back(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    alive: &Alive<'_>,
    mut frames: Option<Frames>,
) -> io::Result<()> {
    let mut goes = false;
    loop {
        let read = tokio::select! {
            read = part(from) => Some(read?),
            () = alive.stay.goodbye(), if frames.is_some() && !goes => None,
        };
        goes |= read.is_none();
        if read.as_ref().is_some_and(Vec::is_empty) {
            let _ = to.shutdown().await;
            return Ok(());
        }
        let mut bytes = read.as_deref().unwrap_or_default();
        if !bytes.is_empty() {
            alive.hears();
            match &mut frames {
                Some(frames) if goes => bytes = &bytes[..frames.take(bytes)],
                Some(frames) => frames.skip(bytes),
                None => (),
            }
            to.write_all(bytes).await?;
            to.flush().await?;
        }
        if let Some(frames) = frames.as_ref().filter(|frames| goes && frames.is_between()) {
            if !frames.has_closed() {
                to.write_all(GOING_AWAY).await?;
                to.flush().await?;
            }
            // Nothing may follow, whatever the clone still says before it takes up the client's answer.
            while !part(from).await?.is_empty() {}
            let _ = to.shutdown().await;
            return Ok(());
        }
    }
}
