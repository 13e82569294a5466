//! Tunnels: an edge reaches a clone on another node through that node's peer port, encrypted and authenticated, because
//! clones listen on their own node's address only. After TLS the dialler names a target, hears one byte whether it could
//! be reached, and from then on the two connections are one.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::{ClusterId, NodeId};
use futures_util::future::BoxFuture;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::ahead::Ahead;
use crate::crowd::Place;
use crate::hello::Purpose;
use crate::limits::{CONNECT_WAIT, HELLO_WAIT, TARGET_BYTES_MAX, TARGET_CONNECT_WAIT};
use crate::net::connect;
use crate::relay::relay;
use crate::tls::{Tls, explain, node_of};
use crate::{Error, Identity};

/// Who may open tunnels, for how long, and which targets (clones, by name) this node can be asked for.
pub trait TunnelDesk: Send + Sync {
    /// Is it one of the cluster's nodes now? Waits a moment for one that was not heard of yet.
    fn lets_in(&self, node: NodeId) -> BoxFuture<'static, bool>;
    /// Ends when it is not any more: its tunnels end with that.
    fn until_out(&self, node: NodeId) -> BoxFuture<'static, ()>;
    fn target(&self, name: &str) -> Option<Target>;
}

/// Where a tunnel leads to.
pub enum Target {
    /// A clone listens there.
    At(SocketAddr),
    /// The node itself serves it: whoever asks is a node of the cluster, and no token says more than that.
    Own(Box<dyn FnOnce(OwnStream) -> BoxFuture<'static, ()> + Send>),
}

/// A tunnel that this node serves itself.
pub type OwnStream = tokio_rustls::server::TlsStream<Ahead<TcpStream>>;

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(addr) => write!(f, "At({addr})"),
            Self::Own(_) => f.write_str("Own"),
        }
    }
}

/// A connection to a clone on another node.
pub type TunnelStream = tokio_rustls::client::TlsStream<Ahead<TcpStream>>;

/// Opens tunnels in the name of this node. Cheap to clone.
#[derive(Clone)]
pub struct Dialer {
    tls: Tls,
    /// Loopback only, as for links.
    from: Option<IpAddr>,
}

/// The byte that answers a target's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Open = 0,
    /// No such clone here (any more).
    Unknown = 1,
    /// The clone does not take connections.
    Refused = 2,
}

impl Dialer {
    /// Of the node whose peer address is `me`.
    pub fn new(identity: &Identity, me: SocketAddr) -> Result<Dialer, Error> {
        Ok(Self::showing(Tls::new(identity)?, me))
    }

    /// The same, with whatever certificate this shows.
    pub fn showing(tls: Tls, me: SocketAddr) -> Dialer {
        Dialer { tls, from: Some(me.ip()).filter(IpAddr::is_loopback) }
    }

    /// Connects to `target` on `node`, whose peer address is `peer`; verifies that it is this node.
    ///
    /// Every error means that not a byte reached the clone. `NotFound`: the node does not have this clone.
    /// `ConnectionRefused`: nobody listens, at the node or the clone. `TimedOut`: no answer. `PermissionDenied`: it is
    /// not that node, or it does not want us.
    pub async fn dial(&self, peer: SocketAddr, node: NodeId, target: &str) -> io::Result<TunnelStream> {
        match self.dial_once(peer, node, target).await {
            // Its place was given away before it could show who it is: strangers push there.
            Err(e) if is_end(e.kind()) => self.dial_once(peer, node, target).await,
            dialled => dialled,
        }
    }

    async fn dial_once(&self, peer: SocketAddr, node: NodeId, target: &str) -> io::Result<TunnelStream> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{peer} does not answer"));
        let mut tcp = timeout(CONNECT_WAIT, connect(peer, self.from)).await.map_err(late)??;
        let open = async {
            tcp.write_all(Purpose::Tunnel.preface()).await?;
            let tcp = Ahead::of(tcp);
            let connector = TlsConnector::from(self.tls.client());
            let mut stream = connector.connect(self.tls.name_of(Some(node)), tcp).await.map_err(denied)?;
            let len = u8::try_from(target.len())
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the target's name is too long"))?;
            stream.write_all(&[&[len], target.as_bytes()].concat()).await?;
            stream.flush().await?;
            match stream.read_u8().await.map_err(denied)? {
                0 => Ok(stream),
                1 => Err(io::Error::new(io::ErrorKind::NotFound, format!("{node} has no clone {target}"))),
                _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("{target} takes no connections"))),
            }
        };
        timeout(HELLO_WAIT + TARGET_CONNECT_WAIT, open).await.map_err(late)?
    }
}

fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn denied(e: io::Error) -> io::Error {
    match explain(&e) {
        (true, line) => io::Error::new(io::ErrorKind::PermissionDenied, line),
        (false, _) => e,
    }
}

/// One tunnel, from its preface (read already) to its end. It has this place until it has shown who it is.
pub(crate) async fn serve(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    cluster: ClusterId,
    desk: Arc<dyn TunnelDesk>,
    place: Place,
    tunnels: &Semaphore,
) {
    if let Err(e) = serve_one(tcp, tls, cluster, &*desk, place, tunnels).await {
        match explain(&e) {
            (true, line) => tracing::warn!("a tunnel is refused: {line}"),
            (false, line) => tracing::debug!("a tunnel ended: {line}"),
        }
    }
}

async fn serve_one(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    cluster: ClusterId,
    desk: &dyn TunnelDesk,
    place: Place,
    tunnels: &Semaphore,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let tcp = Ahead::of(TcpStream::from_std(tcp)?);
    let open = async {
        let mut stream = TlsAcceptor::from(tls).accept(tcp).await?;
        let node = node_of(stream.get_ref().1, cluster)?;
        if !desk.lets_in(node).await {
            tracing::warn!(%node, "a tunnel is refused: this is not one of the cluster's nodes");
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut name = [0; TARGET_BYTES_MAX];
        let len = usize::from(stream.read_u8().await?);
        stream.read_exact(&mut name[..len]).await?;
        let target = std::str::from_utf8(&name[..len]).ok().and_then(|name| desk.target(name));
        io::Result::Ok((stream, node, target))
    };
    let opened = place.within(timeout(HELLO_WAIT, open)).await;
    let (mut stream, node, target) = opened.ok_or(io::ErrorKind::ConnectionAborted)?.map_err(late)??;
    let Ok(_one) = tunnels.try_acquire() else { return Err(io::Error::other("there are too many tunnels")) };
    drop(place);
    let mut own = None;
    let (answer, clone) = match target {
        None => (Answer::Unknown, None),
        Some(Target::Own(serve)) => {
            own = Some(serve);
            (Answer::Open, None)
        }
        Some(Target::At(addr)) => match timeout(TARGET_CONNECT_WAIT, TcpStream::connect(addr)).await {
            Ok(Ok(clone)) => (Answer::Open, Some(clone)),
            Ok(Err(_)) | Err(_) => (Answer::Refused, None),
        },
    };
    stream.write_u8(answer as u8).await?;
    stream.flush().await?;
    let carried = async {
        if let Some(serve) = own {
            serve(stream).await;
            return Ok(());
        }
        let Some(clone) = clone else { return stream.shutdown().await };
        clone.set_nodelay(true)?;
        relay(stream, clone).await
    };
    tokio::select! {
        done = carried => done,
        () = desk.until_out(node) => {
            tracing::warn!(%node, "a tunnel is cut: this is not one of the cluster's nodes any more");
            Ok(())
        }
    }
}
