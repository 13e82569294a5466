//! etcd as a peer of class `linear`: three nodes (or one) of a program found in `COPPICE_LAB_ETCD` or on the path, and the
//! little of gRPC that puts, gets and tells the leader (three messages of three fields need no code generator).

use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::{BufMut, Bytes};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::cluster::free_port;
use crate::peers::{Program, scratch, wait_until};

const MISSING: &str = "etcd, with its path in COPPICE_LAB_ETCD unless it is on the PATH";

pub struct Etcd {
    programs: Vec<Program>,
    pub addrs: Vec<SocketAddr>,
}

impl Etcd {
    /// As it comes, but for where it listens and keeps its files: it forces each write to disk.
    pub fn start(nodes: usize) -> Result<Etcd, String> {
        let program = std::env::var("COPPICE_LAB_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        let ports: Vec<(u16, u16)> =
            (0..nodes).map(|_| Ok((free_port(1)?, free_port(1)?))).collect::<Result<_, String>>()?;
        let all: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("e{n}=http://127.0.0.1:{peer}")).collect();
        let (all, mut programs, mut addrs) = (all.join(","), Vec::new(), Vec::new());
        for (n, (client, peer)) in ports.into_iter().enumerate() {
            let dir: PathBuf = scratch(&format!("etcd-{client}"));
            let (name, at, peers) =
                (format!("e{n}"), format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let args = [
                "--name",
                &name,
                "--data-dir",
                "data",
                "--listen-client-urls",
                &at,
                "--advertise-client-urls",
                &at,
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
                "--initial-cluster",
                &all,
                "--log-level",
                "error",
            ];
            programs.push(Program::start(MISSING, &program, dir, &args)?);
            addrs.push(SocketAddr::from(([127, 0, 0, 1], client)));
        }
        let etcd = Etcd { programs, addrs };
        wait_until("etcd has a leader", || etcd.leader().is_some())?;
        Ok(etcd)
    }

    /// Index of the node that leads.
    pub fn leader(&self) -> Option<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        self.addrs.iter().position(|addr| {
            let status = runtime.block_on(async {
                let mut conn = Conn::open(*addr).await?;
                conn.call("/etcdserverpb.Maintenance/Status", Vec::new()).await
            });
            // Of the answer: who says so (in its header), and who leads.
            status.is_ok_and(|status| {
                let me = field(&status, 1).and_then(|header| number(header, 2));
                me.is_some() && number(&status, 4) == me
            })
        })
    }

    pub fn kill(&self, node: usize) -> Result<(), String> {
        crate::cluster::send(self.programs[node].pid(), rustix::process::Signal::KILL)
    }
}

/// One connection.
pub struct Conn {
    addr: SocketAddr,
    send: SendRequest<Full<Bytes>>,
}

impl Conn {
    pub async fn open(addr: SocketAddr) -> Result<Conn, String> {
        let stream = tokio::net::TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (send, conn) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        // Its end shows at the next request.
        tokio::spawn(async move { drop(conn.await) });
        Ok(Conn { addr, send })
    }

    pub async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut request = Vec::with_capacity(key.len() + value.len() + 12);
        put_field(&mut request, 1, key);
        put_field(&mut request, 2, value);
        self.call("/etcdserverpb.KV/Put", request).await.map(drop)
    }

    /// A linearizable get, which is what etcd gives unless asked otherwise.
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, String> {
        let mut request = Vec::new();
        put_field(&mut request, 1, key);
        let answer = self.call("/etcdserverpb.KV/Range", request).await?;
        Ok(field(&answer, 2).and_then(|kv| field(kv, 5)).map(|value| answer.slice_ref(value)))
    }

    async fn call(&mut self, path: &str, message: Vec<u8>) -> Result<Bytes, String> {
        let mut body = Vec::with_capacity(message.len() + 5);
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).map_err(|e| e.to_string())?);
        body.extend(message);
        let request = http::Request::post(format!("http://{}{path}", self.addr))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| e.to_string())?;
        let answer = self.send.send_request(request).await.map_err(|e| e.to_string())?;
        let early = answer.headers().get("grpc-status").cloned();
        let body = answer.into_body().collect().await.map_err(|e| e.to_string())?;
        let status = body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()).or(early);
        match status {
            Some(status) if status == "0" => Ok(body.to_bytes().slice(5..)),
            status => Err(format!("etcd answers with status {status:?}")),
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_field(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    put_varint(out, tag << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The first field of this number: its bytes, or its number.
fn find(mut bytes: &[u8], tag: u64) -> Option<(&[u8], u64)> {
    while !bytes.is_empty() {
        let head = varint(&mut bytes)?;
        let (value, n): (&[u8], u64) = match head & 7 {
            0 => (&[], varint(&mut bytes)?),
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let value = bytes.get(..len)?;
                bytes = &bytes[len..];
                (value, 0)
            }
            _ => return None,
        };
        if head >> 3 == tag {
            return Some((value, n));
        }
    }
    None
}

fn field(bytes: &[u8], tag: u64) -> Option<&[u8]> {
    find(bytes, tag).map(|(value, _)| value)
}

fn number(bytes: &[u8], tag: u64) -> Option<u64> {
    find(bytes, tag).map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_cut_bytes_are_not() {
        let mut bytes = vec![0x08, 0xac, 0x02];
        put_field(&mut bytes, 5, &[7; 300]);
        assert_eq!(number(&bytes, 1), Some(300));
        assert_eq!(field(&bytes, 5), Some(&[7; 300][..]));
        assert_eq!(field(&bytes, 2), None);
        assert_eq!(field(&bytes[..20], 5), None);
    }
}
