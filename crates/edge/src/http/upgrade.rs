//! After 101 both sides speak something else (WebSocket, mostly): bytes are copied both ways until both have ended, or
//! neither has sent any for very long.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::limits::{CONNECT_TIME, UPGRADED_IDLE};
use super::line::Line;
use crate::pool::InFlight;

/// What one direction of a splice holds at most, bytes.
const COPY_BYTES: usize = 16 << 10;

/// Runs an upgraded connection to its end. It counts as in flight at its clone all the time.
pub async fn splice(line: Line, of_client: OnUpgrade, _in_flight: InFlight) {
    // Both ends have said that they change; what is left is to hand over the sockets.
    let both = async {
        let (clone, early) = line.into_upgraded();
        let mut client = TokioIo::new(of_client.await.map_err(io::Error::other)?);
        client.write_all(&early).await?;
        io::Result::Ok((client, clone))
    };
    let spliced = match tokio::time::timeout(CONNECT_TIME, both).await {
        Ok(Ok((client, clone))) => copy_both(client, clone, UPGRADED_IDLE).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take the 101")),
    };
    if let Err(error) = spliced {
        tracing::debug!(%error, "upgraded connection ended");
    }
}

/// Copies both ways until both have ended; the end of one direction is passed on while the other goes on.
///
/// # Errors
/// A side failed, or no byte came from either for `idle`.
pub async fn copy_both<A, B>(a: A, b: B, idle: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut from_a, mut to_a) = tokio::io::split(a);
    let (mut from_b, mut to_b) = tokio::io::split(b);
    let alive = tokio::sync::Notify::new();
    let mut forth = pin!(copy(&mut from_a, &mut to_b, &alive));
    let mut back = pin!(copy(&mut from_b, &mut to_a, &alive));
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
    let silent = async { while tokio::time::timeout(idle, alive.notified()).await.is_ok() {} };
    tokio::select! {
        result = copied => result,
        () = silent => Err(io::Error::new(io::ErrorKind::TimedOut, "no byte in either direction for too long")),
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    alive: &tokio::sync::Notify,
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        alive.notify_one();
        if count == 0 {
            // The other side may be gone already, which is an end as well.
            let _ = to.shutdown().await;
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
    }
}
