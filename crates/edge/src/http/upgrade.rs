//! After 101 both sides speak something else (WebSocket, mostly): bytes are copied both ways until both have ended, or
//! neither has sent any for very long; or until the clone leaves and it is this connection's turn (`crate::pace`). Then
//! a WebSocket client gets a close frame between two others, "going away" (RFC 6455 7.4.1): it answers, its answer goes
//! on to the clone, and both end. Of other protocols nobody knows where a message ends, so the clone is shown the end
//! of its input (TCP's half close): it answers what it has, and ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use super::h2::Manners;
use super::limits::CONNECT_TIME;
use super::line::Line;
use super::websocket::Tunnel;
use crate::copy::copy_both;
use crate::frames::Frames;
use crate::meter::Opened;
use crate::pace::Stay;
use crate::pool::{Duplex, InFlight};

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
