//! Toy clones and a raw client for tests of the doors: real sockets on loopback, every byte written out by the test, so
//! that nothing between test and door is lenient.
#![allow(dead_code, clippy::unwrap_used)]

pub mod secure;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Boot, NodeId, Span};
use clones::Partition;
use clones::route::{RouteClone, RouteService, Routes};
use clones::spec::{HttpRoute, ServiceSpec, TcpRoute};
use edge::api::{Backend, Gone, Minted};
use edge::http::{Config, serve_with};
use edge::pool::{Dial, Duplex};
use edge::{Meter, tcp};
use futures_util::future::BoxFuture;
use node::view::{NodeState, NodeView};
use node::{Ask, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// No wait in a test is longer; a test that needs it all has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this should not take 10 s")
}

/// A clone that does to each connection what the test says. Counts connections, keeps what it was sent.
#[derive(Clone)]
pub struct Toy {
    pub addr: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Toy {
    /// `act` gets each connection and its number, from 0.
    pub async fn start<F, R>(act: F) -> Self
    where
        F: Fn(Toy, TcpStream, usize) -> R + Send + 'static,
        R: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let toy = Toy { addr, connections: Arc::default(), seen: Arc::default() };
        let me = toy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = me.connections.fetch_add(1, SeqCst);
                tokio::spawn(act(me.clone(), stream, number));
            }
        });
        toy
    }

    /// Answers every request with 200 and this body, keeping connections alive.
    pub async fn steady(body: &'static str) -> Self {
        Self::start(move |toy, mut stream, _| async move {
            while toy.read_request(&mut stream).await.is_ok() {
                stream.write_all(ok(body).as_bytes()).await?;
            }
            Ok(())
        })
        .await
    }

    /// Takes a request and dies without a word.
    pub async fn deadly() -> Self {
        Self::start(|toy, mut stream, _| async move { toy.read_request(&mut stream).await.map(drop) }).await
    }

    /// An address where nobody listens.
    pub async fn absent() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    /// Reads one request and keeps it: head, and the body's bytes as they came.
    pub async fn read_request(&self, stream: &mut TcpStream) -> io::Result<String> {
        let head = read_head(stream).await?;
        self.seen.lock().unwrap().push(head.clone());
        let mut body = vec![0; field(&head, "content-length").map_or(0, |n| n.parse().unwrap())];
        stream.read_exact(&mut body).await?;
        let mut body = String::from_utf8(body).unwrap();
        if field(&head, "transfer-encoding").is_some() {
            while !body.ends_with("0\r\n\r\n") {
                body.push(stream.read_u8().await? as char);
            }
        }
        let whole = head + &body;
        *self.seen.lock().unwrap().last_mut().unwrap() = whole.clone();
        Ok(whole)
    }

    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// The value of a field, by its name in lower case.
pub fn field(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim().to_string())
    })
}

/// Reaches "clones on other nodes" by a plain socket to the peer address.
pub struct Plain;
impl Dial for Plain {
    fn dial(&self, _: NodeId, peer: SocketAddr, _: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move { Ok(Box::new(TcpStream::connect(peer).await?) as Box<dyn Duplex>) })
    }
}

/// A node that nobody asks.
pub struct NoNode;
impl Backend for NoNode {
    fn ask(&self, _: Ask, _: Span) -> BoxFuture<'static, Result<node::Answer, Gone>> {
        Box::pin(async { Err(Gone) })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        watch::channel(Arc::default()).1
    }

    fn mint(&self) -> Result<Minted, String> {
        Err("there is no node".into())
    }

    fn keep_code(&self, _: String, _: bytes::Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        Box::pin(async { Err("nothing is kept here".into()) })
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<bytes::Bytes>> {
        Box::pin(async { None })
    }

    fn logs(&self, _: edge::api::logs::Wanted) -> BoxFuture<'static, Result<edge::api::logs::Gathered, String>> {
        unreachable!()
    }
}

pub fn clone(number: usize, addr: SocketAddr, local: bool) -> RouteClone {
    RouteClone { name: format!("shop/{number}"), node: NodeId(1), local, addr, peer: addr, node_load: 0, version: 0 }
}

pub fn routes(clones: Vec<RouteClone>, tcp: Option<u16>) -> Arc<Routes> {
    parted(clones, tcp, Vec::new())
}

pub fn parted(clones: Vec<RouteClone>, tcp: Option<u16>, partitions: Vec<Partition>) -> Arc<Routes> {
    let mut spec = ServiceSpec::new(["shop"]);
    spec.http = Some(HttpRoute::default());
    spec.tcp = tcp.map(TcpRoute::on).into_iter().collect();
    (spec.partitions, spec.clones) = (partitions, (clones.len() as u32).into());
    Arc::new(Routes::new(vec![RouteService { clones, ..RouteService::new("shop", &spec) }]))
}

pub fn view(routes: Arc<Routes>) -> Arc<View> {
    Arc::new(View { routes, admin_token: "secret".into(), ..View::default() })
}

/// The same, and this node is dead.
pub fn dead(id: NodeId, routes: Arc<Routes>) -> Arc<View> {
    let addr = SocketAddr::from(([127, 0, 0, 1], 1));
    let node = NodeView {
        id,
        name: "n2".into(),
        state: NodeState::Dead,
        boot: Boot(1),
        pid: 1,
        version: "0.1.0".into(),
        level: base::LEVEL,
        doors: node::DoorAddrs::of(|_| Some(addr)).unwrap(),
        load: 0,
        cpu_millis: 0,
        resident_bytes: 0,
        since_ms: 0,
        gauges: Arc::default(),
        brick: Default::default(),
        disk: None,
        slow_force_ms: None,
        certificate_ends_at_ms: None,
        certificate_fails: false,
        sandbox_lacks: Vec::new(),
        overflow: false,
        drained: false,
        leaving: None,
        waits: None,
    };
    Arc::new(View { nodes: vec![node], ..View::clone(&view(routes)) })
}

/// A running HTTP door.
pub struct Door {
    pub addr: SocketAddr,
    pub view: watch::Sender<Arc<View>>,
    pub meter: Arc<Meter>,
}

impl Door {
    /// In front of these clones, the first at number 1. All are local.
    pub async fn to(clones: &[SocketAddr]) -> Self {
        Self::with(clones.iter().enumerate().map(|(i, addr)| clone(i + 1, *addr, true)).collect(), Config::default())
            .await
    }

    pub async fn with(clones: Vec<RouteClone>, config: Config) -> Self {
        Self::at(routes(clones, None), config).await
    }

    pub async fn at(routes: Arc<Routes>, config: Config) -> Self {
        Self::before(routes, config, Arc::new(NoNode)).await
    }

    /// With a node that is asked for sessions.
    pub async fn before(routes: Arc<Routes>, config: Config, backend: Arc<dyn Backend>) -> Self {
        Self::over(routes, config, backend, Arc::new(Plain)).await
    }

    /// With a way of its own to clones on other nodes.
    pub async fn over(routes: Arc<Routes>, config: Config, backend: Arc<dyn Backend>, dial: Arc<dyn Dial>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (view, receiver) = watch::channel(view(routes));
        let meter = Arc::new(Meter::new());
        tokio::spawn(serve_with(listener, receiver, dial, Arc::clone(&meter), backend, config));
        Self { addr, view, meter }
    }

    pub async fn client(&self) -> Client {
        Client(soon(TcpStream::connect(self.addr)).await.unwrap())
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, request: &str) -> Answer {
        let mut client = self.client().await;
        client.send(request).await;
        client.answer().await
    }
}

/// A TCP door on 127.0.0.1 for one service; the port is free when it begins.
pub async fn tcp_door(clones: Vec<RouteClone>) -> (SocketAddr, watch::Sender<Arc<View>>, Arc<Meter>) {
    let addr = Toy::absent().await;
    let (sender, receiver) = watch::channel(view(routes(clones, Some(addr.port()))));
    let meter = Arc::new(Meter::new());
    tokio::spawn(tcp::serve(addr.ip(), receiver, Arc::new(Plain), Arc::clone(&meter), Arc::default()));
    (addr, sender, meter)
}

/// Connects as soon as somebody listens.
pub async fn connect(addr: SocketAddr) -> TcpStream {
    soon(async {
        loop {
            match TcpStream::connect(addr).await {
                Ok(stream) => return stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }
}

/// A client that sends exactly what it is told.
pub struct Client(pub TcpStream);

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The door may have answered and closed before all is sent; the answer tells.
        let _ = soon(self.0.write_all(bytes.as_ref())).await;
    }

    pub async fn head(&mut self) -> String {
        soon(read_head(&mut self.0)).await.expect("the connection ended before an answer's head")
    }

    /// An answer with its body, by length or chunked.
    pub async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        self.rest(head).await
    }

    /// The body that belongs to a head.
    pub async fn rest(&mut self, head: String) -> Answer {
        let status = head[9..12].parse().unwrap();
        let mut body = Vec::new();
        if field(&head, "transfer-encoding").is_some() {
            while let chunk = self.chunk().await
                && !chunk.is_empty()
            {
                body.extend_from_slice(chunk.as_bytes());
            }
        } else if let Some(length) = field(&head, "content-length") {
            body = vec![0; length.parse().unwrap()];
            soon(self.0.read_exact(&mut body)).await.unwrap();
        }
        Answer { status, head, body: String::from_utf8(body).unwrap() }
    }

    pub async fn chunk(&mut self) -> String {
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(soon(self.0.read_u8()).await.unwrap() as char);
        }
        let mut data = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        soon(self.0.read_exact(&mut data)).await.unwrap();
        data.truncate(data.len() - 2);
        String::from_utf8(data).unwrap()
    }

    pub async fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// What comes until the door closes.
    pub async fn until_end(&mut self) -> io::Result<String> {
        let mut rest = Vec::new();
        soon(self.0.read_to_end(&mut rest)).await?;
        Ok(String::from_utf8(rest).unwrap())
    }
}
