//! How fast clients' lines are. A service that is declared so (`downlink = true`) is told it with each request whose client
//! does not say it itself, in the header `Downlink` (Mbit/s, as browsers say it: Network Information API), so that it can
//! send less over a slow line (Fox et al., "Cluster-Based Scalable Network Services", 3.2).
//!
//! What is known is what the kernel has seen of the connection's own bytes: the rate at which they were acknowledged
//! (`tcp_info`, asked by `sock_diag`, which takes no more than the two addresses). It is smoothed over the clients of a
//! network, so that the first request of a connection has it, too.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::header::{HeaderName, HeaderValue};
use rustix::fd::OwnedFd;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::fields::{AnyFields, Fields};

/// Header of a request, Mbit/s.
const DOWNLINK: HeaderName = HeaderName::from_static("downlink");
/// With this header, too, a client says how fast its line is.
const ECT: HeaderName = HeaderName::from_static("ect");
/// Bytes that a client has taken since the last look, before another look is worth it: fewer fit into one flight.
const LEAST_BYTES: u64 = 8 << 10;
/// What was measured so long ago is of no use.
const KEPT: Duration = Duration::from_secs(600);
/// Networks in one generation; there are two.
const NETWORKS: usize = 2048;
/// Weight of what was measured last.
const NEWEST: f64 = 0.5;
/// What services are told is one of these: `LEAST_MBIT` times a power of two. So few variants are made of an answer.
const LEAST_MBIT: f64 = 0.025;
const MOST_MBIT: f64 = 10.0;

/// A client's socket, by which the kernel finds what it knows of it.
#[derive(Debug)]
pub struct Socket {
    own: SocketAddr,
    from: SocketAddr,
    /// Bytes that the client had taken at the last look.
    taken: AtomicU64,
}

impl Socket {
    /// `own` is our address, `from` the client's.
    pub fn new(own: SocketAddr, from: SocketAddr) -> Self {
        Self { own, from, taken: AtomicU64::new(0) }
    }
}

/// What the kernel says of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    /// Bytes that the other side has acknowledged, and as they were last: how many a second.
    taken: u64,
    rate: u64,
    /// We had nothing more to send, so the line may carry more.
    is_least: bool,
}

/// What was measured of networks last.
#[derive(Default)]
pub struct Downlinks {
    known: Mutex<Known>,
}

/// Two generations: with the younger one full, the older one is forgotten.
#[derive(Default)]
struct Known {
    young: HashMap<IpAddr, Rate>,
    old: HashMap<IpAddr, Rate>,
}

#[derive(Clone, Copy)]
struct Rate {
    bytes_a_second: f64,
    at: Instant,
}

impl Downlinks {
    /// Measures the line of a client, and says in its request what is known of it. What the client says goes before.
    pub fn tell(&self, client: IpAddr, line: Option<&Socket>, fields: &mut Fields) {
        if fields.has(&DOWNLINK) || fields.has(&ECT) {
            return;
        }
        let (network, now) = (network(client), Instant::now());
        let seen = line.and_then(|socket| Some((socket, ask(socket)?)));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((socket, seen)) = seen
            && seen.taken.saturating_sub(socket.taken.load(Relaxed)) >= LEAST_BYTES
        {
            socket.taken.store(seen.taken, Relaxed);
            known.note(network, seen, now);
        }
        if let Some(rate) = known.get(network, now) {
            fields.set(DOWNLINK, said(rate));
        }
    }
}

impl Known {
    fn get(&self, network: IpAddr, now: Instant) -> Option<f64> {
        let rate = self.young.get(&network).or_else(|| self.old.get(&network))?;
        (now.saturating_duration_since(rate.at) < KEPT).then_some(rate.bytes_a_second)
    }

    fn note(&mut self, network: IpAddr, seen: Seen, now: Instant) {
        let (rate, before) = (seen.rate as f64, self.get(network, now));
        let bytes_a_second = match before {
            _ if rate <= 0.0 => return,
            Some(before) if seen.is_least && rate < before => return,
            Some(before) => rate * NEWEST + before * (1.0 - NEWEST),
            None => rate,
        };
        if self.young.len() >= NETWORKS && !self.young.contains_key(&network) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(network, Rate { bytes_a_second, at: now });
    }
}

/// Clients that mostly share a line: the first 24 bits of IPv4, 48 of IPv6.
fn network(of: IpAddr) -> IpAddr {
    match of.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << 8))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 80))),
    }
}

fn said(bytes_a_second: f64) -> HeaderValue {
    let mbit = bytes_a_second * 8.0 / 1e6;
    let steps = (mbit / LEAST_MBIT).max(1.0).log2().round();
    let text = (LEAST_MBIT * steps.exp2()).min(MOST_MBIT).to_string();
    HeaderValue::try_from(text).expect("digits are allowed in a header")
}

/// Asks the kernel about a connection of ours. None: it does not know it, or tells nobody.
fn ask(of: &Socket) -> Option<Seen> {
    static KERNEL: OnceLock<Option<Mutex<OwnedFd>>> = OnceLock::new();
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG)).ok().map(Mutex::new)
    };
    let kernel = KERNEL.get_or_init(open).as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    let to = SocketAddrNetlink::new(0, 0);
    sendto(&*kernel, &question(of), SendFlags::empty(), &to).ok()?;
    // It is answered before the question's call returns.
    let mut answer = [0; 1024];
    let (length, _) = recv(&*kernel, &mut answer, RecvFlags::TRUNC).ok()?;
    read(answer.get(..length)?)
}

/// `nlmsghdr` and `inet_diag_req_v2` of linux/inet_diag.h.
fn question(of: &Socket) -> [u8; 72] {
    const TCP: u8 = 6;
    const INET: u8 = 2;
    const INET6: u8 = 10;
    let mut bytes = [0; 72];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &72_u32.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    // NLM_F_REQUEST.
    put(6, &1_u16.to_ne_bytes());
    put(16, &[if of.own.is_ipv4() { INET } else { INET6 }, TCP, 1 << (INFO - 1)]);
    // In whatever state it is.
    put(20, &u32::MAX.to_ne_bytes());
    put(24, &of.own.port().to_be_bytes());
    put(26, &of.from.port().to_be_bytes());
    for (at, ip) in [(28, of.own.ip()), (44, of.from.ip())] {
        match ip {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    // INET_DIAG_NOCOOKIE.
    put(64, &[u8::MAX; 8]);
    bytes
}

/// SOCK_DIAG_BY_FAMILY.
const BY_FAMILY: u16 = 20;
/// INET_DIAG_INFO.
const INFO: u16 = 2;

/// The answer: `nlmsghdr`, `inet_diag_msg`, attributes; one of them is `tcp_info` (linux/tcp.h).
fn read(answer: &[u8]) -> Option<Seen> {
    const ATTRIBUTES: usize = 16 + 72;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let mut rest = answer.get(ATTRIBUTES..).filter(|_| kind == BY_FAMILY)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        if kind == INFO {
            let number = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
            return Some(Seen { is_least: value[7] & 1 == 1, taken: number(120)?, rate: number(160)? });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn seen(rate: u64, is_least: bool) -> Seen {
        Seen { taken: 100_000, rate, is_least }
    }

    #[test]
    fn what_is_told_is_one_of_a_few_rates() {
        for (bytes, text) in [
            (0.0, "0.025"),
            (28_800.0 / 8.0, "0.025"),
            (56_000.0 / 8.0, "0.05"),
            (90_000.0, "0.8"),
            (1e6, "6.4"),
            (1e9, "10"),
        ] {
            assert_eq!(said(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn clients_of_a_network_share_what_was_measured_and_it_grows_old() {
        let (mut known, now) = (Known::default(), Instant::now());
        let [one, near, far] = ["192.0.2.1", "192.0.2.77", "192.0.3.1"].map(|ip| network(ip.parse().unwrap()));
        assert_eq!(network("2001:db8:1:2::3".parse().unwrap()), network("2001:db8:1:9::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.9".parse().unwrap()), one);
        known.note(one, seen(1000, true), now);
        assert_eq!((known.get(near, now), known.get(far, now)), (Some(1000.0), None));
        // It had no more to send: that says nothing against what was measured.
        known.note(near, seen(10, true), now);
        assert_eq!(known.get(one, now), Some(1000.0));
        known.note(near, seen(500, false), now);
        assert_eq!(known.get(one, now), Some(750.0));
        known.note(near, seen(0, false), now);
        assert_eq!(known.get(one, now), Some(750.0));
        assert_eq!(known.get(one, now + KEPT), None);
    }

    #[test]
    fn however_many_networks_come_only_some_are_kept() {
        let (mut known, now) = (Known::default(), Instant::now());
        for n in 0..20_000 {
            known.note(IpAddr::V4(Ipv4Addr::from_bits(n << 8)), seen(1000, false), now);
        }
        assert!(known.young.len() + known.old.len() <= 2 * NETWORKS);
        assert_eq!(known.get(IpAddr::V4(Ipv4Addr::from_bits(19_999 << 8)), now), Some(1000.0));
    }

    #[test]
    fn answers_that_are_cut_or_of_something_else_say_nothing() {
        let mut answer = vec![0; 16 + 72];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        // Another attribute before it, whose length is no multiple of four.
        answer.extend([5_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat());
        answer.extend([1, 0, 0, 0]);
        answer.extend([172_u16.to_ne_bytes(), INFO.to_ne_bytes()].concat());
        let mut info = [0; 168];
        info[7] = 1;
        info[120..128].copy_from_slice(&7_u64.to_ne_bytes());
        info[160..168].copy_from_slice(&9_u64.to_ne_bytes());
        answer.extend(info);
        assert_eq!(read(&answer), Some(Seen { taken: 7, rate: 9, is_least: true }));
        for length in 0..answer.len() {
            assert_eq!(read(&answer[..length]), None, "{length}");
        }
        // NLMSG_ERROR.
        answer[4] = 2;
        assert_eq!(read(&answer), None);
    }

    #[test]
    fn the_kernel_tells_what_a_client_has_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, from) = listener.accept().unwrap();
        let socket = Socket::new(stream.local_addr().unwrap(), from);
        let Some(before) = ask(&socket) else { return eprintln!("this kernel tells nobody of its sockets") };
        assert_eq!(before.taken, 0);
        stream.write_all(&[7; 50_000]).unwrap();
        client.read_exact(&mut [0; 50_000]).unwrap();
        let after = std::iter::repeat_with(|| ask(&socket).unwrap()).find(|seen| seen.taken >= 50_000).unwrap();
        assert!(after.rate > 100_000, "{after:?}");
        // Where there is no such connection it may tell of the socket that listens.
        let other = Socket::new(socket.own, SocketAddr::new(from.ip(), 1));
        assert!(ask(&other).is_none_or(|seen| seen.taken == 0));
        // What a client says goes before; who says nothing is told of.
        let (downlinks, mut fields) = (Downlinks::default(), Fields::List(Vec::new()));
        fields.set(ECT, HeaderValue::from_static("3g"));
        downlinks.tell(from.ip(), Some(&socket), &mut fields);
        assert!(!fields.has(&DOWNLINK));
        fields.take(&ECT);
        downlinks.tell(from.ip(), Some(&socket), &mut fields);
        assert!(fields.has(&DOWNLINK));
    }
}
