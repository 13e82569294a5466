//! Tunnels: an edge reaches a clone on another node through that node's peer port, encrypted and authenticated, because
//! clones listen on their own node's address only. After TLS the dialler names a target, hears one byte whether it could
//! be reached, and from then on the two connections are one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::NodeId;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::crowd::Place;
use crate::hello::Purpose;
use crate::limits::{CONNECT_WAIT, HELLO_WAIT, TARGET_BYTES_MAX, TARGET_CONNECT_WAIT, TUNNEL_BUFFER_BYTES};
use crate::net::connect;
use crate::tls::{Tls, explain};
use crate::{Error, Identity};

/// Which targets (clones, by name) this node can be asked for, and where they listen.
pub trait TunnelDesk: Send + Sync {
    fn target(&self, name: &str) -> Option<SocketAddr>;
}

/// A connection to a clone on another node.
pub type TunnelStream = tokio_rustls::client::TlsStream<BufReader<TcpStream>>;

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
        Ok(Dialer { tls: Tls::new(identity)?, from: Some(me.ip()).filter(IpAddr::is_loopback) })
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
            let tcp = BufReader::with_capacity(TUNNEL_BUFFER_BYTES, tcp);
            let connector = TlsConnector::from(self.tls.client.clone());
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
    desk: Arc<dyn TunnelDesk>,
    place: Place,
    tunnels: &Semaphore,
) {
    if let Err(e) = serve_one(tcp, tls, &*desk, place, tunnels).await {
        match explain(&e) {
            (true, line) => tracing::warn!("a tunnel is refused: {line}"),
            (false, line) => tracing::debug!("a tunnel ended: {line}"),
        }
    }
}

async fn serve_one(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    desk: &dyn TunnelDesk,
    place: Place,
    tunnels: &Semaphore,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let tcp = BufReader::with_capacity(TUNNEL_BUFFER_BYTES, TcpStream::from_std(tcp)?);
    let open = async {
        let mut stream = TlsAcceptor::from(tls).accept(tcp).await?;
        let mut name = [0; TARGET_BYTES_MAX];
        let len = usize::from(stream.read_u8().await?);
        stream.read_exact(&mut name[..len]).await?;
        let target = std::str::from_utf8(&name[..len]).ok().and_then(|name| desk.target(name));
        io::Result::Ok((stream, target))
    };
    let opened = place.within(timeout(HELLO_WAIT, open)).await;
    let (mut stream, target) = opened.ok_or(io::ErrorKind::ConnectionAborted)?.map_err(late)??;
    let Ok(_one) = tunnels.try_acquire() else { return Err(io::Error::other("there are too many tunnels")) };
    drop(place);
    let (answer, clone) = match target {
        None => (Answer::Unknown, None),
        Some(addr) => match timeout(TARGET_CONNECT_WAIT, TcpStream::connect(addr)).await {
            Ok(Ok(clone)) => (Answer::Open, Some(clone)),
            Ok(Err(_)) | Err(_) => (Answer::Refused, None),
        },
    };
    stream.write_u8(answer as u8).await?;
    stream.flush().await?;
    let Some(mut clone) = clone else { return stream.shutdown().await };
    clone.set_nodelay(true)?;
    copy_bidirectional_with_sizes(&mut stream, &mut clone, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES).await?;
    Ok(())
}
