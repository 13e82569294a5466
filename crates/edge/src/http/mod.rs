//! The HTTP door: a reverse proxy in front of the clones of all services, on any node. In the clear it speaks HTTP/1.1;
//! with certificates (`crate::tls`) HTTP/2 as well, as the client chooses (`h2`).
//!
//! A connection of HTTP/1 has one task (`server`). It reads a head once, by `check`, which refuses what two readers
//! could understand differently; what takes too long it ends. The request goes its road (`passage`), whose `errand`
//! picks a clone from the pool and sends it down a `line`, an idle or new connection on which we are the client. Bodies
//! stream both ways. The line is driven by the same task, so a request crosses no thread. A connection that waits for
//! its next request holds nothing for one. HTTP/2 is hyper's; its requests take the same road.
//!
//! For services that say so, `access` writes a line for each request, `cached` keeps answers and gives them without a
//! clone; `session` opens the client's cookie before and stores the session after (`crate::cookie`).
//!
//! Who is chosen is the business of `crate::pool`, which services exist that of the node's view.

pub(crate) mod access;
mod body;
mod cached;
// Public for the fuzz crate alone.
#[doc(hidden)]
pub mod check;
mod claim;
mod drop_files;
pub(crate) mod errand;
mod flags;
mod h2;
#[doc(hidden)]
pub mod headers;
mod lasting;
pub mod limits;
pub(crate) mod line;
mod linger;
mod passage;
pub(crate) mod passed;
mod piped;
mod profile;
pub(crate) mod refusal;
mod reserved;
pub(crate) mod rooms;
pub mod secure;
mod server;
pub(crate) mod session;
pub(crate) mod upgrade;
mod websocket;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use host::access::AccessLogs;
use http::HeaderName;
use node::View;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::accept::{accept, is_here};
use crate::ask::Backend;
use crate::closing::closes;
use crate::downlink::Socket;
use crate::meter::{Meter, Opened};
use crate::pool::{Dial, Duplex};
use crate::proxy_protocol;
use crate::tls::{self, Certs};
use passage::Edge;

/// What an operator may set about this door.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest request body, bytes, of services that say nothing of it; more gets 413.
    pub body_bytes_max: u64,
    /// Whether what clients say in X-Forwarded-* and Forwarded is kept: only behind a proxy that sets them.
    pub trust_forwarded: bool,
    /// Fields among [`headers::BELIEVED`] that are kept in any case: what the network before this door sets itself.
    pub trusted_headers: Vec<HeaderName>,
    /// Open client connections; more get 503.
    pub connections_max: u64,
    /// Open connections of one client address; more are turned away. None: an eighth of those that are still free.
    pub address_connections_max: Option<u64>,
    /// Clients come through a balancer that says by the PROXY protocol who they are. It must.
    pub accept_proxy: bool,
    /// With certificates, TLS is spoken and nothing else.
    pub tls: Option<Arc<Certs>>,
    /// The HTTPS door beside this one, if it has no TLS itself.
    pub secure: Option<secure::Secure>,
    /// Where files of drop handlers are, unless their path is absolute.
    pub files_dir: PathBuf,
    /// Where access logs go of services that have one; none: nowhere.
    pub access: Option<AccessLogs>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            trust_forwarded: false,
            trusted_headers: Vec::new(),
            connections_max: limits::CONNECTIONS_MAX,
            address_connections_max: None,
            accept_proxy: false,
            tls: None,
            secure: None,
            files_dir: PathBuf::new(),
            access: None,
        }
    }
}

/// Serves HTTP on a listener until the view says that doors are to close; then open connections are told to. `backend`
/// is asked for sessions. Runs on a multi-thread runtime; drop the future to stop accepting.
///
/// # Errors
/// The listener could not be used at all. What goes wrong with one client ends that client's connection alone.
pub async fn serve(
    listener: std::net::TcpListener,
    view: watch::Receiver<Arc<View>>,
    dial: Arc<dyn Dial>,
    meter: Arc<Meter>,
    backend: Arc<dyn Backend>,
) -> io::Result<()> {
    serve_with(listener, view, dial, meter, backend, Config::default()).await
}

/// [`serve`] with other than default limits.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    listener: std::net::TcpListener,
    view: watch::Receiver<Arc<View>>,
    dial: Arc<dyn Dial>,
    meter: Arc<Meter>,
    backend: Arc<dyn Backend>,
    config: Config,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let port = listener.local_addr()?.port();
    let acceptor = config.tls.as_ref().map(Certs::acceptor).transpose().map_err(io::Error::other)?;
    // Told to all connections by a channel of its own: the view changes ten times a second.
    let (close, closing) = watch::channel(false);
    let mut stop = std::pin::pin!(closes(view.clone(), Arc::clone(&meter)));
    let edge = Edge::of(view, dial, &meter, backend, config);
    let listens = edge.door.listens();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut stop => {
                drop(listens);
                close.send_replace(true);
                // Connections end by themselves; whoever runs this door says how long that may take.
                return std::future::pending().await;
            }
        };
        if edge.door.connections() >= edge.config.connections_max {
            if acceptor.is_none() {
                tokio::spawn(turn_away(stream, "too many connections here; try again\n"));
            }
            continue;
        }
        let at = SocketAddr::new(peer.ip(), port);
        let mut open = edge.door.opened();
        if let Some(client) = edge.config.client_of(&stream, peer.ip())
            && !open.is_of(client, edge.config.connections_max, edge.config.address_connections_max)
        {
            if acceptor.is_none() {
                tokio::spawn(turn_away(stream, TOO_MANY_OF_ONE));
            }
            continue;
        }
        tokio::spawn(greet(Arc::clone(&edge), open, stream, (peer, at), acceptor.clone(), closing.clone()));
    }
}

const TOO_MANY_OF_ONE: &str = "your address has too many connections open here, as others need some, too\n";

async fn turn_away(mut stream: TcpStream, why: &'static str) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: {}\r\n\
        Content-Type: text/plain\r\n\r\n{why}",
        why.len()
    );
    // A small answer fits into the socket's buffer; a client that does not take it has only itself to blame.
    let _ = tokio::time::timeout(limits::LINGER, stream.write_all(answer.as_bytes())).await;
}

impl Config {
    /// Who has a new connection open, if that is known by its address: not of one that comes through a proxy, and who
    /// is on the same machine could do worse.
    fn client_of(&self, stream: &TcpStream, from: IpAddr) -> Option<IpAddr> {
        let is_hidden = self.accept_proxy || self.trust_forwarded;
        (!is_hidden && !is_here(stream, from)).then_some(from)
    }
}

/// A client that was heard, and the stream on which it speaks.
struct Heard {
    stream: Box<dyn Duplex>,
    is_http2: bool,
}

/// Finds out who the client is and what it speaks, and speaks it. `from` is where its socket is, `at` its address and
/// our port.
async fn greet(
    edge: Arc<Edge>,
    mut open: Opened,
    stream: TcpStream,
    (from, mut at): (SocketAddr, SocketAddr),
    acceptor: Option<TlsAcceptor>,
    closing: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, peer = %at.ip(), "client was gone at once");
        return;
    }
    let is_https = acceptor.is_some();
    let is_proxied = edge.config.accept_proxy || edge.config.trust_forwarded;
    let line = stream.local_addr().ok().filter(|_| !is_proxied).map(|own| Socket::new(own, from));
    let heard = if is_https || edge.config.accept_proxy {
        // In a box: it takes a moment, and its room much more than a connection that waits.
        Box::pin(hear(&edge.config, &mut open, stream, &mut at, acceptor)).await
    } else {
        Some(Heard { stream: Box::new(stream), is_http2: false })
    };
    let Some(Heard { stream, is_http2 }) = heard else { return };
    let mut peer = headers::Peer::new(at.ip(), at.port(), is_https);
    peer.line = line;
    let peer = Arc::new(peer);
    if is_http2 {
        Box::pin(h2::talk(edge, stream, peer, closing)).await;
    } else {
        server::talk(edge, open, stream, peer, closing).await;
    }
}

/// What a client, or a balancer for it, says before it speaks HTTP. None: it was let go.
async fn hear(
    config: &Config,
    open: &mut Opened,
    mut stream: TcpStream,
    at: &mut SocketAddr,
    acceptor: Option<TlsAcceptor>,
) -> Option<Heard> {
    if config.accept_proxy {
        match proxy_protocol::receive(&mut stream).await {
            Ok(Some(from)) => {
                at.set_ip(from.ip());
                if !open.is_of(from.ip(), config.connections_max, config.address_connections_max) {
                    if acceptor.is_none() {
                        turn_away(stream, TOO_MANY_OF_ONE).await;
                    }
                    return None;
                }
            }
            // The balancer itself looks whether we are there.
            Ok(None) => (),
            Err(error) => {
                tracing::debug!(%error, peer = %at.ip(), "connection not taken");
                return None;
            }
        }
    }
    let Some(acceptor) = acceptor else { return Some(Heard { stream: Box::new(stream), is_http2: false }) };
    let agreed = async {
        if secure::is_plain(&stream).await? {
            secure::tell_plain(stream).await;
            return Ok(None);
        }
        tokio::time::timeout(limits::HANDSHAKE_TIME, acceptor.accept(stream)).await?.map(Some)
    };
    match agreed.await {
        // It has seen what it came for.
        Ok(Some(mut stream)) if stream.get_ref().1.alpn_protocol() == Some(tls::CHALLENGE) => {
            let _ = tokio::time::timeout(limits::LINGER, stream.shutdown()).await;
            None
        }
        Ok(Some(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(tls::H2);
            Some(Heard { stream: Box::new(stream), is_http2 })
        }
        Ok(None) => None,
        Err(error) => {
            tracing::debug!(%error, peer = %at.ip(), "TLS was not agreed on");
            None
        }
    }
}
