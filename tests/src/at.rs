//! Where nodes are: ports and folders come from the test, never fixed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

/// The four ports of a node, the same on each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    pub http: u16,
    pub resp: u16,
    pub api: u16,
    pub peer: u16,
    /// Nodes are in namespaces of their own (`net.rs`).
    pub apart: bool,
}

/// Where one node is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    pub name: String,
    pub http: SocketAddr,
    pub resp: SocketAddr,
    pub api: SocketAddr,
    pub peer: SocketAddr,
}

/// Below the ports that the kernel and nodes give to others, so that a node finds its ports free when it comes back.
const FIRST: u16 = 3_000;
const COUNT: u16 = 7_000;

impl Ports {
    /// Ports that are free now on the addresses of so many nodes.
    pub fn free(nodes: u8) -> Ports {
        let next = || free_port(nodes);
        Ports { http: next(), resp: next(), api: next(), peer: next(), apart: false }
    }

    pub fn on(self, node: u8) -> At {
        let at = |port| SocketAddr::new(self.host(node), port);
        At {
            name: format!("n{node}"),
            http: at(self.http),
            resp: at(self.resp),
            api: at(self.api),
            peer: at(self.peer),
        }
    }

    pub fn host(self, node: u8) -> IpAddr {
        if self.apart { crate::net::host(node) } else { host(node) }
    }

    /// As options of the command line.
    pub fn options(self) -> Vec<String> {
        let each = [("http", self.http), ("resp", self.resp), ("api", self.api), ("peer", self.peer)];
        each.iter().flat_map(|(name, port)| [format!("--{name}-port"), port.to_string()]).collect()
    }
}

/// 127.0.0.i
pub fn host(node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, node))
}

/// A port that is free now on the addresses of so many nodes, and that no other call in this process got.
pub fn free_port(nodes: u8) -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    for _ in 0..COUNT {
        let start = std::process::id() as u16 % COUNT;
        let nth = TRIED.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + ((u32::from(start) + u32::from(nth)) % u32::from(COUNT)) as u16;
        if (1..=nodes).all(|node| TcpListener::bind((host(node), port)).is_ok()) {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT)
}

/// A new folder with a name that nothing else has, so that it marks all that is started with it.
pub fn new_folder() -> PathBuf {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("coppice-e2e-{}-{nth}.d", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder.canonicalize().expect("it was just made")
}
