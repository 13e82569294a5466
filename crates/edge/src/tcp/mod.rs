//! The TCP door: for each service with a TCP port, a listener on this edge's address, and each connection spliced to a
//! clone. Listeners come and go with the routes; connections that are open stay open. A clone that cannot be reached is
//! passed over; once bytes flow, an end is an end, since only the two sides know what was done.

mod admit;
mod heard;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clones::spec::TcpRoute;
use node::View;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::admit::{Asking, First, admit};
use self::heard::Heard;
use crate::accept::{accept, is_here};
use crate::closing::closes;
use crate::copy::copy_both;
use crate::limits::{CLONE_WAIT, TRY_AGAIN};
use crate::meter::Meter;
use crate::pace::Manner;
use crate::pool::{Dial, InFlight, Pool, Stream, Upstream};
use crate::proxy_protocol;
use crate::turnstile::Full;

/// A port that could not be had is tried again this often: its holder may leave.
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// A connection without a byte in either direction, unless the service says `idle_timeout`. Mail and database clients idle for long.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// Open connections over all TCP services. Each holds two sockets and 32 KiB of buffers.
const CONNECTIONS_MAX: u64 = 10_000;

/// A TLS client's first words: one record (RFC 8446 5.1), and its head.
const HELLO_BYTES_MAX: usize = (16 << 10) + 5;
/// They come in one or two packets; more slowly is an attack.
const HELLO_TIME: Duration = Duration::from_secs(10);
const HELLO_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Sockets that the program before has handed over are closed after so long if no service has their port: its routes are
/// here by then.
const HANDED_KEPT: Duration = Duration::from_secs(10);

/// The listening sockets of TCP services, as they go from one program to the next on the same machine.
#[derive(Debug, Default)]
pub struct Ports {
    /// From the program before, and not taken up yet.
    handed: Mutex<BTreeMap<SocketAddr, std::net::TcpListener>>,
    /// Second handles of those that are open.
    open: Mutex<BTreeMap<SocketAddr, std::net::TcpListener>>,
    /// From now on they stay open when nobody listens any more.
    keeps: AtomicBool,
}

/// While it lives, the port is open.
struct Open {
    ports: Arc<Ports>,
    address: SocketAddr,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ports.keeps.load(SeqCst) {
            locked(&self.ports.open).remove(&self.address);
        }
    }
}

impl Ports {
    pub fn handed_over(all: impl IntoIterator<Item = (SocketAddr, std::net::TcpListener)>) -> Self {
        Self { handed: Mutex::new(all.into_iter().collect()), ..Self::default() }
    }

    /// The sockets of all that listens: they stay open when the door is closed.
    pub fn keep(&self) -> Vec<std::net::TcpListener> {
        std::mem::take(&mut *locked(&self.open)).into_values().collect()
    }

    async fn listen(self: &Arc<Self>, address: SocketAddr) -> io::Result<(TcpListener, Open)> {
        let handed = locked(&self.handed).remove(&address);
        let listener = match handed {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)?
            }
            None => TcpListener::from_std(host::ports::listen(address).map_err(io::Error::other)?)?,
        };
        locked(&self.open).insert(address, listener.as_fd().try_clone_to_owned()?.into());
        Ok((listener, Open { ports: Arc::clone(self), address }))
    }

    fn close_handed(&self) {
        for address in std::mem::take(&mut *locked(&self.handed)).into_keys() {
            tracing::warn!(%address, "a socket was handed over that is none of this node's doors; it is closed");
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Door {
    ip: IpAddr,
    pool: Arc<Pool>,
    meter: Arc<Meter>,
    ports: Arc<Ports>,
    connections_max: u64,
}

/// One port's listening task; dropping it closes the listener.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves the TCP services of the view on `ip`, until the view's owner is gone. When the view says that doors are to close, nobody
/// more is let in: who connects waits for the next program, which gets the sockets that `ports` keeps.
pub async fn serve(
    ip: IpAddr,
    view: watch::Receiver<Arc<View>>,
    dial: Arc<dyn Dial>,
    meter: Arc<Meter>,
    ports: Arc<Ports>,
) {
    serve_with(ip, view, dial, meter, ports, CONNECTIONS_MAX).await;
}

/// [`serve`] with another limit of open connections.
pub async fn serve_with(
    ip: IpAddr,
    mut view: watch::Receiver<Arc<View>>,
    dial: Arc<dyn Dial>,
    meter: Arc<Meter>,
    ports: Arc<Ports>,
    connections_max: u64,
) {
    let pool = Pool::start(view.clone(), dial, Arc::clone(&meter.turnstiles), Arc::clone(&meter.demands));
    let mut closes = pin!(closes(view.clone(), Arc::clone(&meter)));
    let door = Arc::new(Door { ip, pool, meter, ports, connections_max });
    let mut listening: BTreeMap<u16, Listening> = BTreeMap::new();
    let mut handed_end = pin!(tokio::time::sleep(HANDED_KEPT));
    let mut has_handed = true;
    loop {
        let routes = Arc::clone(&view.borrow_and_update().routes);
        let wanted: Vec<u16> = routes.services.iter().flat_map(|service| service.tcp_ports()).collect();
        listening.retain(|port, _| wanted.contains(port));
        for port in wanted {
            listening.entry(port).or_insert_with(|| Listening(tokio::spawn(listen(Arc::clone(&door), port))));
        }
        tokio::select! {
            changed = view.changed() => if changed.is_err() { return },
            () = closes.as_mut() => {
                door.ports.keeps.store(true, SeqCst);
                drop(listening);
                return std::future::pending().await;
            }
            () = handed_end.as_mut(), if has_handed => {
                has_handed = false;
                door.ports.close_handed();
            }
        }
    }
}

async fn listen(door: Arc<Door>, port: u16) {
    let address = SocketAddr::new(door.ip, port);
    let mut complained = false;
    let (listener, _open) = loop {
        match door.ports.listen(address).await {
            Ok(open) => break open,
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::error!(%address, %error, "a TCP service's port cannot be had; trying on");
                }
                tokio::time::sleep(BIND_AGAIN).await;
            }
        }
    };
    tracing::info!(%address, "TCP service listens");
    let first = Arc::default();
    loop {
        let (stream, peer) = accept(&listener).await;
        // Too many: closed at once, so that the client need not wait to find out.
        if door.meter.tcp.connections() < door.connections_max {
            tokio::spawn(carry(Arc::clone(&door), port, Arc::clone(&first), stream, peer));
        }
    }
}

async fn carry(door: Arc<Door>, port: u16, first: Arc<First>, mut client: TcpStream, mut peer: SocketAddr) {
    let mut open = door.meter.tcp.opened();
    let wish = door.pool.table().routes.tcp(port).cloned().unwrap_or_else(|| TcpRoute::on(port));
    let greeted = async {
        let mut known = (!is_here(&client, peer.ip())).then_some(peer);
        if wish.accept_proxy {
            known = proxy_protocol::receive(&mut client).await?;
            peer = known.unwrap_or(peer);
        }
        // Closed at once, as for too many.
        if known.is_some_and(|client| !open.is_of(client.ip(), door.connections_max, None)) {
            return Err(io::Error::other("its address has too many connections"));
        }
        if wish.sni.is_some() { server_name(&client).await } else { Ok(None) }
    };
    let sni = match greeted.await {
        Ok(sni) => sni,
        Err(error) => return tracing::debug!(port, %error, %peer, "TCP connection not taken"),
    };
    let sni = sni.as_deref();
    let began = Instant::now();
    let place = door.pool.table().tcp_place(port, peer.ip(), sni);
    let idle = place.as_ref().map_or(IDLE, |place| place.doorway.idle_time(IDLE));
    let reached = match admit(place, &first, &client, peer.ip()).await {
        Ok(mut asking) => {
            let reached = reach(&door.pool, port, peer.ip(), sni, asking.as_mut()).await;
            reached.map(|reached| (reached, asking))
        }
        // Closed at once, like those over the limit of connections.
        Err(Full) => Err(io::Error::other("there is no room for it")),
    };
    // What is timed is our part: how long the client waited for a clone.
    door.meter.tcp.done(began.elapsed(), reached.is_err());
    let copied = async {
        let ((mut clone, upstream, in_flight), asking) = reached?;
        let stay = in_flight.stay(&door.meter.stays, Manner::Quiet);
        client.set_nodelay(true)?;
        if let Some(header) = tells(&door.pool, port, sni, peer, client.local_addr()?) {
            clone.write_all(&header).await?;
        }
        let clone = Heard::new(clone, Arc::clone(&door.pool), upstream, first, asking);
        copy_both(client, clone, idle, &stay, None).await
    };
    if let Err(error) = copied.await {
        tracing::debug!(port, %error, "TCP connection ended");
    }
}

/// What the clones of a client's service are told of it, if they are: who it is, and at which door it came.
fn tells(pool: &Pool, port: u16, sni: Option<&str>, client: SocketAddr, here: SocketAddr) -> Option<Vec<u8>> {
    let table = pool.table();
    let found = table.routes.find_tcp(port, client.ip(), sni)?;
    let door = table.routes.tcp_door(port, found)?;
    Some(proxy_protocol::header(door.tells()?, client, here, door.name.as_deref()))
}

/// The host that a TLS client asks for. Its bytes are only looked at: the clone gets them all.
async fn server_name(client: &TcpStream) -> io::Result<Option<String>> {
    let looking = async {
        let (mut bytes, mut seen) = (vec![0; HELLO_BYTES_MAX], 0);
        loop {
            let count = client.peek(&mut bytes).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if count > seen {
                let (mut acceptor, mut hello) = (Acceptor::default(), &bytes[..count]);
                while !hello.is_empty() {
                    acceptor.read_tls(&mut hello)?;
                }
                match acceptor.accept() {
                    Ok(Some(accepted)) => return Ok(accepted.client_hello().server_name().map(str::to_owned)),
                    Ok(None) if count < HELLO_BYTES_MAX => seen = count,
                    Ok(None) => return Err(io::Error::new(io::ErrorKind::InvalidData, "its first words are too long")),
                    Err((error, _)) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
                }
            }
            // What was looked at stays readable, so nothing tells when more is there.
            tokio::time::sleep(HELLO_LOOK_EVERY).await;
        }
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no TLS began in time");
    tokio::time::timeout(HELLO_TIME, looking).await.map_err(late)?
}

/// A stream to some clone of the port's service, waiting a little if there is none: one of this node, unless too many wait for that.
async fn reach(
    pool: &Pool,
    port: u16,
    client: IpAddr,
    sni: Option<&str>,
    mut asking: Option<&mut Asking>,
) -> io::Result<(Stream, Arc<Upstream>, InFlight)> {
    let give_up_at = Instant::now() + CLONE_WAIT;
    let mut tried = Vec::new();
    loop {
        let table = pool.table();
        if table.routes.find_tcp(port, client, sni).is_some_and(|found| table.routes.is_off(found)) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "it is out of use for maintenance"));
        }
        let chosen = table.tcp_target(port, client, sni).and_then(|target| pool.choose(&target, &tried));
        drop(table);
        if let Some(upstream) = chosen {
            let in_flight = upstream.begin();
            if let Some(asking) = &mut asking {
                asking.waits_for(&upstream);
            }
            match pool.connect(&upstream).await {
                Ok(stream) => return Ok((stream, upstream, in_flight)),
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
