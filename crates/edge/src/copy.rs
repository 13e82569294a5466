//! Bytes both ways between a client and a clone, for connections of which the door understands nothing: TCP services, and what HTTP
//! has become after 101.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use crate::frames::{Frames, GOING_AWAY};
use crate::limits::GOODBYE_TIME;
use crate::pace::Stay;

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
