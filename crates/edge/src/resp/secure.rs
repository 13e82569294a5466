//! The Redis door with TLS (`rediss://`). A handshake costs what a thousand commands cost, so it is done on the edge's threads; who has
//! agreed on TLS goes to the node's own thread, and is a client there like all others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use host::Crowd;
use host::crowd::Place;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::limits::{ARRIVALS_MAX, HANDSHAKE_TIME_MAX, KEEPALIVE_IDLE, STRANGERS_MAX};
use crate::Meter;
use crate::meter::Opened;

/// A client with whom TLS is agreed on.
pub struct Arrived {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) from: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) open: Opened,
}

/// From the edge's threads to the node's own.
pub fn arrivals() -> (mpsc::Sender<Arrived>, mpsc::Receiver<Arrived>) {
    mpsc::channel(ARRIVALS_MAX)
}

/// Lets clients in until `stop`, and never ends. An error: the listener could not be used at all.
///
/// # Errors
/// As said.
pub async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    meter: Arc<Meter>,
    arrivals: mpsc::Sender<Arrived>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let strangers = Crowd::of_strangers(STRANGERS_MAX);
    let listens = meter.resp.listens();
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, from) = tokio::select! {
            accepted = crate::accept::accept(&listener) => accepted,
            () = &mut stop => {
                drop(listens);
                return std::future::pending().await;
            }
        };
        let (place, open) = (strangers.come(from.ip()), meter.resp.opened());
        let (acceptor, arrivals) = (acceptor.clone(), arrivals.clone());
        tokio::spawn(async move {
            let Some(arrived) = greet(stream, from, &acceptor, place, open).await else { return };
            // The door may have closed meanwhile.
            let _ = arrivals.send(arrived).await;
        });
    }
}

async fn greet(
    stream: TcpStream,
    from: SocketAddr,
    acceptor: &TlsAcceptor,
    place: Place,
    open: Opened,
) -> Option<Arrived> {
    // Not being able to set these costs speed and notices of dead clients, nothing else.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE);
    let local = stream.local_addr().ok()?;
    match place.within(timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream))).await {
        Some(Ok(Ok(stream))) => return Some(Arrived { stream, from, local, open }),
        Some(Ok(Err(error))) => tracing::debug!(%error, peer = %from.ip(), "resp: TLS was not agreed on"),
        Some(Err(_)) => tracing::debug!(peer = %from.ip(), "resp: TLS was not agreed on in time"),
        // Somebody else has its place.
        None => (),
    }
    None
}
