//! The links of a node: dialling, answering, and which of two links to one peer stays. It decides nothing about the
//! cluster; it reports what came up and what went, and the machine below draws the conclusions.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::limits::FRAME_BYTES_MAX;
use base::{ClusterId, Event, Frame, LinkEnd, NodeId};
use bytes::{Bytes, BytesMut};
use rustls::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::crowd::{Crowd, network};
use crate::driver::{HostConfig, Sink, spawn};
use crate::hello::{Hello, PIECES_MINOR, PREFACE_BYTES, Purpose, WIRE_MAJOR, WIRE_MINOR};
use crate::limits::{
    CONNECT_WAIT, CROSSED_DIALS, HANDSHAKES_MAX, HELLO_BYTES_MAX, HELLO_WAIT, JOINS_MAX, LOSER_READS,
    MEMBERS_KNOWN_MAX, PREFACE_WAIT, READ_BYTES, SILENT_MAX, STRANGER_LINES, TUNNELS_MAX, USER_TIMEOUT_MS,
};
use crate::link::{Figures, Link, Peer, count};
use crate::tls::{Tls, explain, peer_of};
use crate::{JoinDesk, TunnelDesk, join, renew, tunnel};

pub(crate) struct Net {
    me: NodeId,
    cluster: ClusterId,
    tls: Tls,
    hello: Bytes,
    /// Loopback only: dial from our own address, so that a test that cuts addresses off cuts both directions.
    from: Option<IpAddr>,
    sink: Weak<dyn Sink>,
    links: RefCell<BTreeMap<NodeId, Rc<Link>>>,
    dialling: RefCell<BTreeSet<SocketAddr>>,
    /// Shared by all readers; borrowed only while one decrypts.
    buffer: RefCell<Vec<u8>>,
    figures: Rc<Figures>,
    /// The figures at the last look.
    seen: Cell<(u64, u64, u64)>,
    /// Addresses of members: where this node was told to look for them, and from where those came who proved to be some.
    members: RefCell<BTreeSet<IpAddr>>,
    strangers: Cell<(Option<Instant>, u32)>,
}

/// Who answers what is not a link.
pub(crate) struct Desks {
    pub join: Option<Arc<dyn JoinDesk>>,
    pub tunnels: Option<Arc<dyn TunnelDesk>>,
    pub io: tokio::runtime::Handle,
}

/// Who has connected and has not proved yet who it is; apart, who comes from a member's address, whose places strangers cannot take.
struct Unproved {
    silent: [Arc<Crowd>; 2],
    greeting: [Arc<Crowd>; 2],
    joins: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
}

impl Unproved {
    fn new() -> Self {
        Self {
            silent: std::array::from_fn(|_| Crowd::of_strangers(SILENT_MAX)),
            greeting: std::array::from_fn(|_| Crowd::of_strangers(HANDSHAKES_MAX)),
            joins: Arc::new(Semaphore::new(JOINS_MAX)),
            tunnels: Arc::new(Semaphore::new(TUNNELS_MAX)),
        }
    }
}

/// Why a handshake came to nothing. `line` goes to the log.
struct Failed {
    why: LinkEnd,
    line: Option<String>,
}

impl Net {
    pub fn new(config: &HostConfig, peer_addr: SocketAddr, sink: Weak<dyn Sink>) -> Rc<Net> {
        let hello = Hello {
            major: WIRE_MAJOR,
            minor: WIRE_MINOR,
            cluster: config.identity.cluster,
            boot: config.boot,
            card: config.card.clone(),
        };
        Rc::new(Net {
            me: config.identity.node,
            cluster: config.identity.cluster,
            tls: config.tls.clone(),
            hello: hello.encode(),
            from: Some(peer_addr.ip()).filter(IpAddr::is_loopback),
            sink,
            links: RefCell::default(),
            dialling: RefCell::default(),
            buffer: RefCell::new(vec![0; READ_BYTES]),
            figures: Rc::default(),
            seen: Cell::default(),
            members: RefCell::default(),
            strangers: Cell::default(),
        })
    }

    /// Queues a frame; without a link, or room, it is dropped.
    pub fn send(&self, to: NodeId, mut frame: Frame) {
        let fits = frame.wire_len() <= 4 + FRAME_BYTES_MAX;
        if !fits {
            tracing::error!(%to, kind = frame.kind, bytes = frame.wire_len(), "a frame is too long to be sent");
        }
        frame.load = frame.load.min(1000);
        let sent = fits && self.links.borrow().get(&to).is_some_and(|link| link.outbox.push(frame));
        if !sent {
            count(&self.figures.dropped, 1);
        }
    }

    /// Closes the link, if there is one; `Unlinked` with `Ours` follows.
    pub fn hangup(&self, peer: NodeId) {
        if let Some(link) = self.links.borrow_mut().remove(&peer) {
            link.hung_up.set(true);
            link.cut();
        }
    }

    /// Connects; an address that is being dialled already is not dialled twice.
    pub fn dial(self: &Rc<Self>, addr: SocketAddr, peer: Option<NodeId>) {
        if !self.dialling.borrow_mut().insert(addr) {
            return;
        }
        self.is_member(addr.ip());
        let net = self.clone();
        spawn(async move {
            // Also if there is a link: the machine dials a silent peer to learn whether it lives, and a link that is
            // merely not closed is no answer to that.
            let result = net.reach(addr, peer).await;
            net.dialling.borrow_mut().remove(&addr);
            match result {
                Ok((peer, stream)) => net.adopt(peer, stream, Some(addr)),
                Err(Failed { why, line }) => {
                    if let Some(line) = line {
                        net.stranger(&format!("dialled {addr}: {line}"));
                    }
                    net.tell(Event::Unlinked { peer, addr: Some(addr), why });
                }
            }
        });
    }

    async fn reach(&self, addr: SocketAddr, peer: Option<NodeId>) -> Result<(Peer, (TcpStream, Connection)), Failed> {
        let mut tcp = match timeout(CONNECT_WAIT, connect(addr, self.from)).await {
            Ok(Ok(tcp)) => tcp,
            Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(LinkEnd::Refused.into()),
            Ok(Err(_)) | Err(_) => return Err(LinkEnd::TimedOut.into()),
        };
        let greet = async {
            tcp.write_all(Purpose::Link.preface()).await?;
            let connector = TlsConnector::from(self.tls.client());
            let stream = connector.connect(self.tls.name_of(peer), tcp).await?;
            self.greet(stream.into()).await
        };
        let (peer_found, stream) = timeout(HELLO_WAIT, greet).await.map_err(|_| Failed::from(LinkEnd::TimedOut))??;
        if peer.is_some_and(|peer| peer != peer_found.node) {
            return Err(Failed::rejected("it is another node than the one expected there"));
        }
        Ok((peer_found, stream))
    }

    /// Says hello, hears one, and checks that we understand each other.
    async fn greet(&self, mut stream: TlsStream<TcpStream>) -> Result<(Peer, (TcpStream, Connection)), Failed> {
        let cert = stream.get_ref().1.peer_certificates().and_then(|certs| certs.first()).and_then(peer_of);
        let Some((node, cluster)) = cert else { return Err(Failed::rejected("its certificate names no node")) };
        stream.write_all(&self.hello).await?;
        stream.flush().await?;
        let mut bytes = BytesMut::zeroed(4);
        stream.read_exact(&mut bytes).await?;
        let len = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
        if len > HELLO_BYTES_MAX {
            return Err(Failed::rejected(format!("its hello has {len} bytes")));
        }
        bytes.resize(4 + len, 0);
        stream.read_exact(&mut bytes[4..]).await?;
        let Some(hello) = Hello::decode(&mut bytes) else { return Err(Failed::rejected("its hello is none")) };
        if hello.major != WIRE_MAJOR {
            let line = format!(
                "{node} speaks wire version {}.{}, this node {WIRE_MAJOR}.{WIRE_MINOR}; update the older one",
                hello.major, hello.minor
            );
            return Err(Failed::rejected(line));
        }
        if cluster != self.cluster || hello.cluster != self.cluster {
            return Err(Failed::rejected(format!(
                "{node} belongs to {}, this node to {}",
                hello.cluster, self.cluster
            )));
        }
        if node == self.me {
            return Err(LinkEnd::Rejected.into());
        }
        let (tcp, tls) = match stream {
            TlsStream::Client(stream) => {
                let (tcp, tls) = stream.into_inner();
                (tcp, Connection::Client(tls))
            }
            TlsStream::Server(stream) => {
                let (tcp, tls) = stream.into_inner();
                (tcp, Connection::Server(tls))
            }
        };
        let takes_pieces = hello.minor >= PIECES_MINOR;
        Ok((Peer { node, boot: hello.boot, card: hello.card, takes_pieces }, (tcp, tls)))
    }

    /// Takes over an authenticated connection. `dialled` is where, if we dialled it.
    fn adopt(self: &Rc<Self>, peer: Peer, stream: (TcpStream, Connection), dialled: Option<SocketAddr>) {
        if let Ok(from) = stream.0.peer_addr() {
            self.is_member(from.ip());
        }
        let linked = Event::Linked { peer: peer.node, boot: peer.boot, card: peer.card.clone() };
        let (link, reader) = Link::new(peer, dialled.is_some(), stream, self.figures.clone());
        let old = self.links.borrow().get(&link.peer).cloned();
        let verdict = old.as_ref().map_or(Verdict::First, |old| self.compare(old, &link));
        match verdict {
            Verdict::First | Verdict::NewLife | Verdict::New => {
                self.links.borrow_mut().insert(link.peer, link.clone());
                match old {
                    // Nobody lives at its other end any more.
                    Some(old) if verdict == Verdict::NewLife => old.cut(),
                    Some(old) => retire(old),
                    None => (),
                }
            }
            Verdict::Old => retire(link.clone()),
            Verdict::FormerLife => {
                link.cut();
                if let Some(addr) = dialled {
                    self.tell(Event::Unlinked { peer: Some(link.peer), addr: Some(addr), why: LinkEnd::Rejected });
                }
                return;
            }
        }
        spawn(self.clone().run(link, reader, dialled));
        // A dial is answered in any case; a crossed or renewed link that the peer dialled is no news.
        if dialled.is_some() || matches!(verdict, Verdict::First | Verdict::NewLife) {
            self.tell(linked);
        }
    }

    /// Both sides come to the same answer, each by itself.
    fn compare(&self, old: &Link, new: &Link) -> Verdict {
        let by_lower = |link: &Link| link.dialled == (self.me < link.peer);
        if new.boot != old.boot {
            return if new.boot > old.boot { Verdict::NewLife } else { Verdict::FormerLife };
        }
        // Long after the first, nobody dials who still has it; and of two by one side the later counts.
        if old.since.elapsed() > CROSSED_DIALS || by_lower(new) || !by_lower(old) { Verdict::New } else { Verdict::Old }
    }

    async fn run(self: Rc<Self>, link: Rc<Link>, reader: OwnedReadHalf, addr: Option<SocketAddr>) {
        let writer = link.clone();
        spawn(async move { writer.write().await });
        let deliver = |frames: &mut Vec<Frame>| {
            // A link that lost still brings what was sent on it; one of a former life does not.
            let current = self.links.borrow().get(&link.peer).is_some_and(|now| now.boot == link.boot);
            match self.sink.upgrade() {
                Some(sink) if current && !frames.is_empty() => sink.frames(link.peer, frames),
                _ => frames.clear(),
            }
        };
        let why = link.read(reader, &self.buffer, deliver).await;
        link.cut();
        let active = self.links.borrow().get(&link.peer).is_some_and(|now| Rc::ptr_eq(now, &link));
        if active {
            self.links.borrow_mut().remove(&link.peer);
        }
        let why = if link.hung_up.get() { LinkEnd::Ours } else { why };
        if active || link.hung_up.get() {
            self.tell(Event::Unlinked { peer: Some(link.peer), addr, why });
        }
    }

    fn tell(&self, event: Event<std::convert::Infallible>) {
        if let Some(sink) = self.sink.upgrade() {
            sink.happened(event);
        }
    }

    /// Answers whoever connects, for as long as the node lives.
    pub async fn listen(self: Rc<Self>, listener: TcpListener, desks: Desks) {
        let desks = Rc::new(desks);
        let unproved = Rc::new(Unproved::new());
        loop {
            let (tcp, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Out of files, most likely: links that end give some back.
                    self.stranger(&format!("cannot accept connections: {e}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (net, desks, unproved) = (self.clone(), desks.clone(), unproved.clone());
            spawn(async move {
                match net.welcome(tcp, from.ip(), &desks, &unproved).await {
                    Ok(Some((peer, stream))) => net.adopt(peer, stream, None),
                    Ok(None) => (),
                    Err(Failed { line: Some(line), .. }) => net.stranger(&format!("{from} is refused: {line}")),
                    Err(_) => (),
                }
            });
        }
    }

    async fn welcome(
        &self,
        mut tcp: TcpStream,
        from: IpAddr,
        desks: &Desks,
        unproved: &Unproved,
    ) -> Result<Option<(Peer, (TcpStream, Connection))>, Failed> {
        let whose = usize::from(self.members.borrow().contains(&network(from)));
        let made_room = |what| Failed::rejected(format!("it {what} while too many others came"));
        let mut preface = [0; PREFACE_BYTES];
        let silent = unproved.silent[whose].come(from);
        match silent.within(timeout(PREFACE_WAIT, tcp.read_exact(&mut preface))).await {
            Some(Ok(Ok(_))) => (),
            // A look at the port, nothing more.
            Some(Ok(Err(_))) => return Err(LinkEnd::Closed.into()),
            Some(Err(_)) => return Err(Failed::rejected("it said nothing")),
            None => return Err(made_room("said nothing")),
        }
        drop(silent);
        let place = unproved.greeting[whose].come(from);
        prepare(&tcp)?;
        match Purpose::of(&preface) {
            Some(Purpose::Link) => {
                let greet = async {
                    let stream = TlsAcceptor::from(self.tls.server()).accept(tcp).await?;
                    self.greet(stream.into()).await
                };
                let greeted = place.within(timeout(HELLO_WAIT, greet)).await;
                let greeted = greeted.ok_or_else(|| made_room("was in its handshake"))?;
                greeted.map_err(|_| Failed::rejected("its handshake took too long"))?.map(Some)
            }
            Some(Purpose::Join) => {
                let Some(desk) = desks.join.clone() else { return Err(Failed::rejected("no joining here")) };
                let tls = self.tls.join_server.clone();
                let (tcp, joins) = (tcp.into_std()?, unproved.joins.clone());
                desks.io.spawn(async move { join::serve(tcp, tls, desk, place, &joins).await });
                Ok(None)
            }
            Some(Purpose::Renew) => {
                let Some(desk) = desks.join.clone() else { return Err(Failed::rejected("nobody enters anew here")) };
                let (tls, cluster) = (self.tls.server(), self.cluster);
                let (tcp, joins) = (tcp.into_std()?, unproved.joins.clone());
                desks.io.spawn(async move { renew::serve(tcp, tls, cluster, desk, place, &joins).await });
                Ok(None)
            }
            Some(Purpose::Tunnel) => {
                let Some(desk) = desks.tunnels.clone() else { return Err(Failed::rejected("no tunnels here")) };
                let (tls, cluster) = (self.tls.server(), self.cluster);
                let (tcp, tunnels) = (tcp.into_std()?, unproved.tunnels.clone());
                desks.io.spawn(async move { tunnel::serve(tcp, tls, cluster, desk, place, &tunnels).await });
                Ok(None)
            }
            None => Err(Failed::rejected("it is a stranger: these are not the first bytes of a peer")),
        }
    }

    /// From now on there are places for whoever comes from here that strangers from elsewhere cannot take.
    fn is_member(&self, address: IpAddr) {
        let mut members = self.members.borrow_mut();
        if members.len() < MEMBERS_KNOWN_MAX {
            members.insert(network(address));
        }
    }

    /// A line about somebody who does not belong here, but not one for each of many.
    fn stranger(&self, line: &str) {
        let (last, untold) = self.strangers.get();
        if last.is_some_and(|last| last.elapsed() < STRANGER_LINES) {
            self.strangers.set((last, untold + 1));
            return;
        }
        match untold {
            0 => tracing::warn!("{line}"),
            n => tracing::warn!("{line} (and {n} more like this)"),
        }
        self.strangers.set((Some(Instant::now()), 0));
    }

    /// What happened since the last look.
    pub fn gauges(&self, to: &mut BTreeMap<String, u64>) {
        let now = (self.figures.received.get(), self.figures.sent.get(), self.figures.dropped.get());
        let then = self.seen.replace(now);
        to.insert("net.frames_in".into(), now.0 - then.0);
        to.insert("net.frames_out".into(), now.1 - then.1);
        to.insert("net.frames_dropped".into(), now.2 - then.2);
        to.insert("net.links".into(), self.links.borrow().len() as u64);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// There was none.
    First,
    /// The peer has restarted.
    NewLife,
    /// The new one stays, seen from here and from there.
    New,
    Old,
    /// The connection is from before the peer's restart.
    FormerLife,
}

impl From<LinkEnd> for Failed {
    fn from(why: LinkEnd) -> Self {
        Self { why, line: None }
    }
}

impl Failed {
    fn rejected(line: impl Into<String>) -> Self {
        Self { why: LinkEnd::Rejected, line: Some(line.into()) }
    }
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Self {
        match explain(&e) {
            (true, line) => Self::rejected(line),
            (false, _) if e.kind() == io::ErrorKind::TimedOut => LinkEnd::TimedOut.into(),
            (false, _) => LinkEnd::Closed.into(),
        }
    }
}

/// The link has lost: it sends what it has, and is read until the other side, which knows this too, closes it.
fn retire(link: Rc<Link>) {
    link.outbox.finish();
    spawn(async move {
        tokio::time::sleep(LOSER_READS).await;
        link.cut();
    });
}

pub(crate) async fn connect(addr: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(from) = from.filter(|from| addr.ip().is_loopback() && from.is_ipv4() == addr.is_ipv4()) {
        socket.bind((from, 0).into())?;
    }
    let tcp = socket.connect(addr).await?;
    prepare(&tcp)?;
    Ok(tcp)
}

fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(tcp, USER_TIMEOUT_MS)?;
    // Where little is under way, a packet that is lost again is not waited for twice as long each time: nobody is spared
    // by that.
    rustix::net::sockopt::set_tcp_thin_linear_timeouts(tcp, true)?;
    Ok(())
}
