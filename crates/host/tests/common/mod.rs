//! A toy machine for tests of the host: it does what it is asked to do, and shows every event it gets.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use base::{Boot, Effect, Event, Machine, NodeId, Now, Span, Time};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use host::{Authority, HostConfig, Identity, LocalPort, Running};

/// Long for a busy machine; nothing waits this long when all is well.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A budget that asks for the end of the turn.
pub const TURN: Span = Span(1);

pub type Act = Effect<u64, u64>;

pub struct Toy {
    seen: Sender<Event<Vec<Act>>>,
    wake: Option<Time>,
    asked: u64,
}

impl Machine for Toy {
    type Ask = Vec<Act>;
    type Answer = u64;
    type View = u64;

    fn handle(&mut self, now: Now, event: Event<Vec<Act>>, out: &mut Vec<Act>) {
        match event {
            Event::Ask { id, budget, ask } => {
                self.asked += 1;
                // A budget asks for a wake-up, one of a microsecond for the end of this turn.
                let after = if budget == TURN { Span::ZERO } else { budget };
                self.wake = (budget > Span::ZERO).then_some(now.mono + after);
                out.extend(ask);
                out.push(Effect::Publish(self.asked));
                out.push(Effect::Answer { id, answer: self.asked });
            }
            other => {
                if matches!(other, Event::Wake) {
                    assert!(self.wake.take().is_some_and(|at| at <= now.mono), "woken too early");
                }
                // The test may have ended.
                let _ = self.seen.send(other);
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake
    }
}

/// A running toy on a loopback address.
pub struct Node {
    pub id: NodeId,
    pub addr: SocketAddr,
    pub running: Running<Toy>,
    pub seen: Receiver<Event<Vec<Act>>>,
}

pub struct TempDir(pub PathBuf);

pub fn temp_dir(name: &str) -> TempDir {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("coppice-host-{name}-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    TempDir(path)
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Identities of one cluster, the lowest id first.
pub fn cluster(names: &[&str]) -> (Vec<Identity>, Authority) {
    let (first, authority) = host::identity::found("test", names[0]).unwrap();
    let mut all = vec![first];
    for name in &names[1..] {
        all.push(member(&all[0], &authority, name));
    }
    all.sort_by_key(|identity| identity.node);
    (all, authority)
}

pub fn member(of: &Identity, authority: &Authority, name: &str) -> Identity {
    let node = host::identity::random_node_id().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    let cert_pem = authority.sign(request.der(), node, of.cluster, name).unwrap();
    Identity { node, name: name.into(), cert_pem, key_pem: key.serialize_pem(), ..of.clone() }
}

pub fn config(identity: &Identity, dir: &TempDir, listener: TcpListener, io: &tokio::runtime::Handle) -> HostConfig {
    HostConfig {
        dir: dir.0.clone(),
        peer: listener,
        proc_host: "127.0.0.1".parse().unwrap(),
        identity: identity.clone(),
        tls: host::Tls::new(identity).unwrap(),
        boot: Boot(1),
        card: Bytes::from(format!("card of {}", identity.name)),
        services_dir: dir.0.clone(),
        code_dir: "code".into(),
        keeper: "/proc/self/exe".into(),
        work: None,
        join: None,
        tunnels: None,
        io: io.clone(),
    }
}

pub fn run(config: HostConfig) -> Node {
    run_with(config, |_port| Box::pin(async {}))
}

/// With this on the machine's thread.
pub fn run_with(
    config: HostConfig,
    front: impl FnOnce(LocalPort<Toy>) -> LocalBoxFuture<'static, ()> + Send + 'static,
) -> Node {
    let (tx, seen) = channel();
    let id = config.identity.node;
    let make = move || Toy { seen: tx, wake: None, asked: 0 };
    let gauges = || BTreeMap::from([("toy".to_string(), 7)]);
    let running = host::start(config, make, front, gauges).unwrap();
    Node { id, addr: running.peer_addr(), running, seen }
}

pub fn listener(ip: &str) -> TcpListener {
    host::ports::listen(format!("{ip}:0").parse().unwrap()).unwrap()
}

impl Node {
    /// Has the machine do these things; gives how often it was asked.
    pub fn act(&self, acts: Vec<Act>) -> u64 {
        let port = self.running.port();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(port.ask(acts, Span::ZERO)).unwrap()
    }

    /// The next event that `want` takes; others are passed over.
    pub fn wait<T>(&self, what: &str, mut want: impl FnMut(Event<Vec<Act>>) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut passed = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(event) = self.seen.recv_timeout(left) else {
                panic!("{}: no {what}; there were only {passed:#?}", self.id)
            };
            passed.push(format!("{event:?}"));
            if let Some(found) = want(event) {
                return found;
            }
        }
    }

    /// Events that are here now.
    pub fn events(&self) -> Vec<Event<Vec<Act>>> {
        self.seen.try_iter().filter(|event| !matches!(event, Event::Vitals { .. })).collect()
    }

    pub fn wait_linked(&self, to: NodeId) -> (Boot, Bytes) {
        self.wait("link", |event| match event {
            Event::Linked { peer, boot, card } if peer == to => Some((boot, card)),
            _ => None,
        })
    }

    pub fn wait_unlinked(&self) -> (Option<NodeId>, base::LinkEnd) {
        self.wait("end of a link", |event| match event {
            Event::Unlinked { peer, why, .. } => Some((peer, why)),
            _ => None,
        })
    }

    pub fn wait_frame(&self) -> (NodeId, base::Frame) {
        self.wait("frame", |event| match event {
            Event::Frame { from, frame } => Some((from, frame)),
            _ => None,
        })
    }
}
