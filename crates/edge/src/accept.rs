//! Connections as they come in, of every door.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// The next connection. A failure to accept (too many open files, mostly) passes; until then the others go on.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    /// Long enough not to burn a core, short enough not to be felt.
    const REST: Duration = Duration::from_millis(50);
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client was gone before we took it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => (),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Whether a connection comes from the same machine.
pub fn is_here(stream: &TcpStream, from: IpAddr) -> bool {
    from.to_canonical().is_loopback() || stream.local_addr().is_ok_and(|local| local.ip() == from)
}
