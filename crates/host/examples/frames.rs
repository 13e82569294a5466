//! How many frames of 8 KiB a link carries: two hosts in this process, one keeps so many under way, the other answers
//! each with a small one. Prints frames and processor time per frame, both ends together.
//! `cargo run --release -p host --example frames -- [under way] [body bytes] [seconds]`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::{Boot, Effect, Event, Frame, Machine, NodeId, Now, Span, Time, kind};
use bytes::Bytes;
use host::{HostConfig, Identity, Running};

struct Peer {
    to: Option<NodeId>,
    sends: bool,
    under_way: u64,
    body: Bytes,
    received: u64,
}

type Out = Vec<Effect<u64, u64>>;

impl Machine for Peer {
    /// None: how many came? An address: dial, and send if it is yours to send.
    type Ask = Option<std::net::SocketAddr>;
    type Answer = u64;
    type View = u64;

    fn handle(&mut self, _now: Now, event: Event<Self::Ask>, out: &mut Out) {
        match event {
            Event::Ask { id, ask, .. } => {
                out.extend(ask.map(|addr| Effect::Dial { addr, peer: None }));
                out.push(Effect::Answer { id, answer: self.received });
            }
            Event::Linked { peer, .. } => {
                self.to = Some(peer);
                if self.sends {
                    (0..self.under_way).for_each(|_| self.send(out));
                }
            }
            Event::Frame { .. } => {
                self.received += 1;
                self.send(out);
            }
            _ => (),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

impl Peer {
    fn send(&self, out: &mut Out) {
        let Some(to) = self.to else { return };
        let body = if self.sends { self.body.clone() } else { Bytes::new() };
        let frame = Frame { body, ..Frame::new(kind::SESSION, &b"some forty bytes of a protocol's own head"[..]) };
        out.push(Effect::Send { to, frame });
    }
}

fn start(identity: &Identity, sends: bool, args: [u64; 2], io: &tokio::runtime::Runtime) -> Running<Peer> {
    let dir = std::env::temp_dir().join(format!("coppice-frames-{}-{sends}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let config = HostConfig {
        dir,
        peer: host::ports::listen("127.0.0.1:0".parse().expect("an address")).expect("a port"),
        proc_host: "127.0.0.1".parse().expect("an address"),
        identity: identity.clone(),
        tls: host::Tls::new(identity).expect("an identity"),
        boot: Boot(1),
        card: Bytes::new(),
        services_dir: ".".into(),
        code_dir: "code".into(),
        // No children here, so nobody to keep.
        keeper: "/bin/true".into(),
        work: None,
        join: None,
        tunnels: None,
        io: io.handle().clone(),
    };
    let [under_way, body] = args;
    let make = move || Peer { to: None, sends, under_way, body: vec![7; body as usize].into(), received: 0 };
    host::start(config, make, |_| Box::pin(async {}), BTreeMap::new).expect("a host")
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let ticks = |i: usize| fields[i].parse::<u64>().expect("a number");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn main() {
    let arg = |n: usize, or: u64| std::env::args().nth(n).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let (under_way, body, seconds) = (arg(1, 64), arg(2, 8192), arg(3, 3));
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (first, authority) = host::identity::found("frames", "a").expect("a cluster");
    let second = second(&first, &authority);
    let a = start(&first, true, [under_way, body], &io);
    let b = start(&second, false, [under_way, body], &io);
    let ask = |node: &Running<Peer>, what| io.block_on(node.port().ask(what, Span::secs(1))).expect("a live node");
    ask(&a, Some(b.peer_addr()));
    while ask(&b, None) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (from, cpu_from, start) = (ask(&b, None), cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (frames, cpu, elapsed) = (ask(&b, None) - from, cpu() - cpu_from, start.elapsed());
    println!(
        "{under_way} under way, {body} bytes: {:.0} frames/s with answers, {:.2} us of CPU each (both ends), {:.2} cores",
        frames as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / frames as f64,
        cpu.as_secs_f64() / elapsed.as_secs_f64(),
    );
}

fn second(of: &Identity, authority: &host::Authority) -> Identity {
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
    let node = host::identity::random_node_id().expect("an id");
    let cert_pem = authority.sign(request.der(), node, of.cluster, "b").expect("a certificate");
    Identity { node, name: "b".into(), cert_pem, key_pem: key.serialize_pem(), ..of.clone() }
}
