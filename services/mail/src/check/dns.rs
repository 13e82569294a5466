//! Questions to a DNS server: what the checks of a message need, over UDP, and over TCP where an answer is too long.
//! The server is asked to find things out for us (a stub, RFC 1034 5.3.1); its answers are outside bytes, and bounded.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::limits::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    A,
    Aaaa,
    Mx,
    Ptr,
    Txt,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Address(IpAddr),
    /// In lower case, without the last dot.
    Name(String),
    /// All strings of one record, one behind the other.
    Text(Vec<u8>),
}

/// Nobody could say, now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Later;

/// Who can be asked about names.
pub trait Lookup: Sync {
    /// Records of this kind; none if there is no such name, or no such record.
    fn look(&self, name: &str, kind: Kind) -> impl Future<Output = Result<Vec<Record>, Later>> + Send;
}

/// What was answered before, with its end.
type Known = HashMap<(String, Kind), (Instant, Vec<Record>)>;

/// Asks servers in turn, and remembers what they say.
#[derive(Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    known: Mutex<Known>,
}

impl Resolver {
    /// `system`: the servers of /etc/resolv.conf; else the address of one.
    pub fn named(text: &str) -> Result<Self, String> {
        if text != "system" {
            let server = text.parse().map_err(|_| format!("{text:?} is no ADDRESS:PORT, and not system"))?;
            return Ok(Self::at(vec![server]));
        }
        let text = std::fs::read_to_string("/etc/resolv.conf").map_err(|e| format!("/etc/resolv.conf: {e}"))?;
        let servers = servers_of(&text);
        if servers.is_empty() { Err("/etc/resolv.conf names no server".to_owned()) } else { Ok(Self::at(servers)) }
    }

    pub fn at(servers: Vec<SocketAddr>) -> Self {
        Self { servers, known: Mutex::default() }
    }

    async fn ask(&self, name: &str, kind: Kind) -> Result<Answer, Later> {
        for _ in 0..DNS_TRIES {
            for server in &self.servers {
                match timeout(DNS_ANSWER_TIME, exchange(*server, name, kind)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => tracing::debug!(%error, %server, name, "a DNS server does not answer"),
                    Err(_) => tracing::debug!(%server, name, "a DNS server is silent"),
                }
            }
        }
        Err(Later)
    }
}

impl Lookup for Resolver {
    async fn look(&self, name: &str, kind: Kind) -> Result<Vec<Record>, Later> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if encoded(&name).is_none() {
            // No server can know a name that cannot be asked for.
            return Ok(Vec::new());
        }
        let key = (name, kind);
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, records)) = known.get(&key).filter(|(ends, _)| *ends > Instant::now()) {
                return Ok(records.clone());
            }
        }
        let Answer { records, ttl } = self.ask(&key.0, kind).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DNS_KNOWN_MAX {
            known.clear();
        }
        known.insert(key, (Instant::now() + ttl, records.clone()));
        Ok(records)
    }
}

fn servers_of(resolv_conf: &str) -> Vec<SocketAddr> {
    let addresses = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok());
    addresses.take(DNS_SERVERS_MAX).map(|address: IpAddr| SocketAddr::new(address, 53)).collect()
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Answer {
    records: Vec<Record>,
    ttl: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Answer(Answer),
    /// It did not fit: to be asked by TCP.
    Cut,
    /// It is the answer to another question, or none at all.
    Other,
    /// The server does not know now.
    Failed,
}

async fn exchange(server: SocketAddr, name: &str, kind: Kind) -> io::Result<Answer> {
    let mut id = [0; 2];
    SystemRandom::new().fill(&mut id).map_err(|_| io::Error::other("there are no random bytes"))?;
    let question = question(u16::from_be_bytes(id), name, kind).ok_or(io::ErrorKind::InvalidInput)?;
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // The kernel chooses another port each time, and drops what others than the server send.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; DNS_DATAGRAM_BYTES];
    loop {
        let read = socket.recv(&mut buffer).await?;
        match heard(&buffer[..read], &question, kind) {
            Heard::Answer(answer) => return Ok(answer),
            Heard::Cut => break,
            Heard::Failed => return Err(io::Error::other("the server could not find out")),
            // Somebody guesses: the right one may come yet.
            Heard::Other => (),
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], &question].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    match heard(&answer, &question, kind) {
        Heard::Answer(answer) => Ok(answer),
        Heard::Cut | Heard::Other | Heard::Failed => Err(io::Error::other("the server gave no whole answer")),
    }
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ptr => 12,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Aaaa => 28,
        }
    }
}

/// A name as questions have it. None: it is no name.
fn encoded(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        let is_fit = label.is_ascii() && (1..=63).contains(&label.len());
        if !is_fit || bytes.len() + label.len() > 253 {
            return None;
        }
        bytes.push(u8::try_from(label.len()).ok()?);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    Some(bytes)
}

fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut bytes = id.to_be_bytes().to_vec();
    // Recursion desired; one question, and one additional record that says how long an answer may be.
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    bytes.extend(encoded(name)?);
    bytes.extend(kind.code().to_be_bytes());
    bytes.extend([0, 1]);
    let room = u16::try_from(DNS_DATAGRAM_BYTES).expect("a datagram is shorter");
    bytes.extend([0, 0, 41]);
    bytes.extend(room.to_be_bytes());
    bytes.extend([0; 6]);
    Some(bytes)
}

fn heard(bytes: &[u8], question: &[u8], kind: Kind) -> Heard {
    let asked = &question[12..question.len() - 11];
    let is_ours = bytes.len() >= 12 + asked.len()
        && bytes[..2] == question[..2]
        && bytes[2] & 0x80 != 0
        && bytes[4..6] == [0, 1]
        && bytes[12..12 + asked.len()].eq_ignore_ascii_case(asked);
    if !is_ours {
        return Heard::Other;
    }
    if bytes[2] & 2 != 0 {
        return Heard::Cut;
    }
    match bytes[3] & 15 {
        0 => records(bytes, 12 + asked.len(), kind).map_or(Heard::Failed, Heard::Answer),
        // There is no such name.
        3 => Heard::Answer(Answer { records: Vec::new(), ttl: DNS_NOTHING_TIME }),
        _ => Heard::Failed,
    }
}

fn records(bytes: &[u8], mut at: usize, kind: Kind) -> Option<Answer> {
    let count = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]);
    let (mut found, mut ttl) = (Vec::new(), DNS_TTL_MAX);
    for _ in 0..count {
        let (_, after) = name_at(bytes, at)?;
        let head = bytes.get(after..after + 10)?;
        let code = u16::from_be_bytes([head[0], head[1]]);
        let secs = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let from = after + 10;
        at = from + usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = bytes.get(from..at)?;
        // Other kinds are the names that lead there.
        ttl = ttl.min(Duration::from_secs(u64::from(secs)));
        if code != kind.code() || found.len() >= DNS_RECORDS_MAX {
            continue;
        }
        found.push(match kind {
            Kind::A => Record::Address(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            Kind::Aaaa => Record::Address(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            Kind::Mx => Record::Name(name_at(bytes, from + 2)?.0),
            Kind::Ptr => Record::Name(name_at(bytes, from)?.0),
            Kind::Txt => Record::Text(text(data)?),
        });
    }
    let ttl = if found.is_empty() { DNS_NOTHING_TIME } else { ttl };
    Some(Answer { records: found, ttl })
}

fn text(mut data: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some((len, rest)) = data.split_first() {
        whole.extend_from_slice(rest.get(..usize::from(*len))?);
        data = &rest[usize::from(*len)..];
    }
    Some(whole)
}

/// A name, and where it ends.
fn name_at(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let (mut name, mut end, mut jumps) = (String::new(), None, 0);
    loop {
        let len = usize::from(*bytes.get(at)?);
        match len {
            0 => return Some((name.to_ascii_lowercase(), end.unwrap_or(at + 1))),
            1..=63 => {
                let label = bytes.get(at + 1..at + 1 + len)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(&String::from_utf8_lossy(label));
                if name.len() > 1024 {
                    return None;
                }
                at += 1 + len;
            }
            // The rest stands elsewhere; a few times, as else it could go round.
            0xc0.. if jumps < 16 => {
                end = end.or(Some(at + 2));
                at = (len & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                jumps += 1;
            }
            _ => return None,
        }
    }
}

/// A server of the test's own, and names that are kept in memory.
#[cfg(test)]
pub mod zone {
    use super::*;

    /// Records by name and kind. A name that is `!` is not answered.
    #[derive(Default)]
    pub struct Zone(pub HashMap<(String, Kind), Vec<Record>>);

    impl Zone {
        pub fn txt(mut self, name: &str, text: &str) -> Self {
            self.push(name, Kind::Txt, Record::Text(text.into()));
            self
        }

        pub fn address(mut self, name: &str, address: &str) -> Self {
            let address: IpAddr = address.parse().unwrap();
            let kind = if address.is_ipv4() { Kind::A } else { Kind::Aaaa };
            self.push(name, kind, Record::Address(address));
            self
        }

        pub fn name(mut self, name: &str, kind: Kind, to: &str) -> Self {
            self.push(name, kind, Record::Name(to.to_owned()));
            self
        }

        fn push(&mut self, name: &str, kind: Kind, record: Record) {
            self.0.entry((name.to_owned(), kind)).or_default().push(record);
        }
    }

    impl Lookup for Zone {
        async fn look(&self, name: &str, kind: Kind) -> Result<Vec<Record>, Later> {
            if name.ends_with("silent.test") {
                return Err(Later);
            }
            Ok(self.0.get(&(name.to_ascii_lowercase(), kind)).cloned().unwrap_or_default())
        }
    }

    /// An answer to a question, with a name that points back to it.
    pub fn answer(question: &[u8], flags: [u8; 2], records: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = question[..2].to_vec();
        bytes.extend([0x81 | flags[0], 0x80 | flags[1], 0, 1, 0, u8::try_from(records.len()).unwrap(), 0, 0, 0, 0]);
        bytes.extend(&question[12..question.len() - 11]);
        for (code, data) in records {
            bytes.extend([0xc0, 12]);
            bytes.extend(code.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    pub fn txt_data(text: &str) -> (u16, Vec<u8>) {
        let strings = text.as_bytes().chunks(255);
        (16, strings.flat_map(|s| [&[u8::try_from(s.len()).unwrap()][..], s].concat()).collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn answers_are_read_by_datagram_and_by_stream_and_known_again() {
        // A port that is free for datagrams may be taken for streams.
        let mut both = None;
        for _ in 0..100 {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                both = Some((udp, tcp));
                break;
            }
        }
        let (udp, tcp) = both.expect("a port that is free for both");
        let resolver = Resolver::at(vec![udp.local_addr().unwrap()]);
        let long = "x".repeat(600);
        let server = async {
            let mut buffer = [0; 512];
            let (read, from) = udp.recv_from(&mut buffer).await.unwrap();
            let mut other = zone::answer(&buffer[..read], [0, 0], &[zone::txt_data("another")]);
            other[0] ^= 1;
            // One that does not know our question is not believed.
            udp.send_to(&other, from).await.unwrap();
            udp.send_to(&zone::answer(&buffer[..read], [2, 0], &[]), from).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let len = usize::from(stream.read_u16().await.unwrap());
            let mut question = vec![0; len];
            stream.read_exact(&mut question).await.unwrap();
            let answer = zone::answer(&question, [0, 0], &[(5, vec![0]), zone::txt_data(&long)]);
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
            let (read, from) = udp.recv_from(&mut buffer).await.unwrap();
            udp.send_to(&zone::answer(&buffer[..read], [0, 3], &[]), from).await.unwrap();
            let (read, from) = udp.recv_from(&mut buffer).await.unwrap();
            let mx = [&[0, 10, 2][..], b"mx", &[0xc0, 12]].concat();
            udp.send_to(&zone::answer(&buffer[..read], [0, 0], &[(15, mx)]), from).await.unwrap();
        };
        let client = async {
            let text = vec![Record::Text(long.clone().into_bytes())];
            assert_eq!(resolver.look("A.example.", Kind::Txt).await, Ok(text.clone()));
            assert_eq!(resolver.look("a.EXAMPLE", Kind::Txt).await, Ok(text), "nobody is asked again");
            assert_eq!(resolver.look("no.example", Kind::A).await, Ok(vec![]));
            assert_eq!(resolver.look("b.example", Kind::Mx).await, Ok(vec![Record::Name("mx.b.example".into())]));
            assert_eq!(resolver.look("bücher.example", Kind::A).await, Ok(vec![]));
            assert_eq!(resolver.look("a..b", Kind::A).await, Ok(vec![]));
        };
        tokio::join!(server, client);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_no_answer() {
        let resolver = Resolver::at(vec!["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(resolver.look("a.example", Kind::Txt).await, Err(Later));
    }

    #[test]
    fn servers_are_named_by_the_system_or_by_hand() {
        assert_eq!(
            servers_of("# x\nnameserver 192.0.2.1\nsearch a\nnameserver ::1\n"),
            ["192.0.2.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]
        );
        assert!(Resolver::named("127.0.0.1:53").is_ok() && Resolver::named("somewhere").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), kind in proptest::sample::select(vec![Kind::A, Kind::Mx, Kind::Ptr, Kind::Txt, Kind::Aaaa])) {
            let question = question(7, "a.b", kind).unwrap();
            let mut bytes = zone::answer(&question, [0, 0], &[]);
            bytes[7] = 3;
            bytes.extend(tail);
            heard(&bytes, &question, kind);
            name_at(&bytes, 12);
        }
    }
}
