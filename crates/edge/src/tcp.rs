//! The TCP door: for each service with a TCP port, a listener on this edge's address, and each connection spliced to a
//! clone. Listeners come and go with the routes; connections that are open stay open. A clone that cannot be reached is
//! passed over; once bytes flow, an end is an end, since only the two sides know what was done.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clones::spec::TcpRoute;
use node::View;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::accept;
use crate::http::limits::{CLONE_WAIT, TRY_AGAIN};
use crate::http::upgrade::copy_both;
use crate::meter::Meter;
use crate::pool::{Dial, Pool, Stream};
use crate::proxy_protocol;

/// A port that could not be had is tried again this often: its holder may leave.
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// A connection without a byte in either direction. Mail and database clients idle for long.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// Open connections over all TCP services. Each holds two sockets and 32 KiB of buffers.
const CONNECTIONS_MAX: u64 = 10_000;

struct Door {
    ip: IpAddr,
    pool: Arc<Pool>,
    meter: Arc<Meter>,
}

/// One port's listening task; dropping it closes the listener.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves the TCP services of the view on `ip`, until the view's owner is gone.
pub async fn serve(ip: IpAddr, mut view: watch::Receiver<Arc<View>>, dial: Arc<dyn Dial>, meter: Arc<Meter>) {
    let door = Arc::new(Door { ip, pool: Pool::start(view.clone(), dial), meter });
    let mut listening: BTreeMap<u16, Listening> = BTreeMap::new();
    loop {
        let routes = Arc::clone(&view.borrow_and_update().routes);
        let ports: Vec<u16> = routes.services.iter().flat_map(|service| service.tcp_ports()).collect();
        listening.retain(|port, _| ports.contains(port));
        for port in ports {
            listening.entry(port).or_insert_with(|| Listening(tokio::spawn(listen(Arc::clone(&door), port))));
        }
        if view.changed().await.is_err() {
            return;
        }
    }
}

async fn listen(door: Arc<Door>, port: u16) {
    let address = SocketAddr::new(door.ip, port);
    let mut complained = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::error!(%address, %error, "a TCP service's port cannot be had; trying on");
                }
                tokio::time::sleep(BIND_AGAIN).await;
            }
        }
    };
    tracing::info!(%address, "TCP service listens");
    loop {
        let (stream, peer) = accept(&listener).await;
        // Too many: closed at once, so that the client need not wait to find out.
        if door.meter.tcp.connections() < CONNECTIONS_MAX {
            tokio::spawn(carry(Arc::clone(&door), port, stream, peer));
        }
    }
}

async fn carry(door: Arc<Door>, port: u16, mut client: TcpStream, mut peer: SocketAddr) {
    let _open = door.meter.tcp.opened();
    let wish = door.pool.table().routes.tcp(port).cloned().unwrap_or_else(|| TcpRoute::on(port));
    if wish.accept_proxy {
        match proxy_protocol::receive(&mut client).await {
            Ok(from) => peer = from.unwrap_or(peer),
            Err(error) => {
                tracing::debug!(port, %error, %peer, "TCP connection not taken");
                return;
            }
        }
    }
    let began = Instant::now();
    let reached = reach(&door.pool, port, peer.ip()).await;
    // What is timed is our part: how long the client waited for a clone.
    door.meter.tcp.done(began.elapsed(), reached.is_err());
    let copied = async {
        let (mut clone, _in_flight) = reached?;
        client.set_nodelay(true)?;
        if let Some(version) = wish.send_proxy {
            clone.write_all(&proxy_protocol::header(version, peer, client.local_addr()?)).await?;
        }
        copy_both(client, clone, IDLE).await
    };
    if let Err(error) = copied.await {
        tracing::debug!(port, %error, "TCP connection ended");
    }
}

/// A stream to some clone of the port's service, waiting a little if there is none.
async fn reach(pool: &Pool, port: u16, client: IpAddr) -> io::Result<(Stream, crate::pool::InFlight)> {
    let give_up_at = Instant::now() + CLONE_WAIT;
    let mut tried = Vec::new();
    loop {
        let chosen = pool.table().tcp_target(port, client).and_then(|target| pool.choose(&target, &tried));
        if let Some(upstream) = chosen {
            let in_flight = upstream.begin();
            match pool.connect(&upstream).await {
                Ok(stream) => return Ok((stream, in_flight)),
                Err(error) => tracing::debug!(clone = %upstream.name, %error, "clone not reached"),
            }
            pool.failed(&upstream);
            tried.push(upstream);
            continue;
        }
        if Instant::now() >= give_up_at {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "no clone answers"));
        }
        pool.wait_for_change(TRY_AGAIN).await;
        tried.clear();
    }
}
