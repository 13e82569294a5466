//! Load: closed-loop clients of the Redis protocol, each on a connection of its own, that check what they get. One
//! load generator for all sides, so that its cost is the same for each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Conn, command};

/// What a side is asked with.
#[derive(Clone, Debug)]
pub struct Target {
    /// Connections are spread over these.
    pub addrs: Vec<SocketAddr>,
    /// `AUTH` words, if any.
    pub auth: Option<(String, String)>,
    /// `WAIT n ms` sent with each write, so that it is answered when so many replicas have it.
    pub wait: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
pub struct Shape {
    pub connections: usize,
    pub value_bytes: usize,
    pub length: Duration,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub per_second: f64,
    /// How many were done; only of [`crate::puts::load`].
    pub done: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub failed: u64,
    pub wrong: u64,
    pub first_failure: Option<String>,
}

/// Alternates a write and a read of the same key on each connection; what is read must be what was written.
pub fn write_read(target: &Target, shape: &Shape) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let begun = Instant::now();
        let end = begun + shape.length;
        let mut clients = tokio::task::JoinSet::new();
        for i in 0..shape.connections {
            clients.spawn(client(target.clone(), shape.clone(), i, end));
        }
        let (mut times, mut out) = (histogram(), Outcome::default());
        while let Some(done) = clients.join_next().await {
            let (one, failed, wrong, why) = done.map_err(|e| e.to_string())?;
            times.add(&one).map_err(|e| e.to_string())?;
            out.failed += failed;
            out.wrong += wrong;
            out.first_failure = out.first_failure.or(why);
        }
        out.per_second = times.len() as f64 / begun.elapsed().as_secs_f64();
        out.p50_us = times.value_at_quantile(0.5) as f64;
        out.p99_us = times.value_at_quantile(0.99) as f64;
        out.p999_us = times.value_at_quantile(0.999) as f64;
        Ok(out)
    })
}

async fn client(
    target: Target,
    shape: Shape,
    index: usize,
    end: Instant,
) -> (Histogram<u64>, u64, u64, Option<String>) {
    let (mut times, mut failed, mut wrong, mut why) = (histogram(), 0, 0, None);
    let mut connection = None;
    let mut turn = 0u64;
    while Instant::now() < end {
        let conn = match &mut connection {
            Some(conn) => conn,
            None => match Conn::open(target.addrs[index % target.addrs.len()], target.auth.as_ref()).await {
                Ok(conn) => connection.insert(conn),
                Err(e) => {
                    failed += 1;
                    why.get_or_insert(e);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        turn += 1;
        let result = conn.pair(&target, &shape, index, turn, &mut times).await;
        match result {
            Ok(true) => (),
            Ok(false) => wrong += 1,
            Err(e) => {
                failed += 1;
                why.get_or_insert(e);
                connection = None;
            }
        }
    }
    (times, failed, wrong, why)
}

impl Conn {
    /// A write and a read; false if what was read is not what was written.
    async fn pair(
        &mut self,
        target: &Target,
        shape: &Shape,
        index: usize,
        turn: u64,
        times: &mut Histogram<u64>,
    ) -> Result<bool, String> {
        let key = format!("session:{index}");
        let mark = format!("{index}:{turn}:");
        let mut value = vec![b'x'; shape.value_bytes];
        value[..mark.len()].copy_from_slice(mark.as_bytes());
        let begun = Instant::now();
        command(&mut self.out, &[b"SET", key.as_bytes(), &value, b"EX", b"600"]);
        if let Some((replicas, ms)) = target.wait {
            command(&mut self.out, &[b"WAIT", replicas.to_string().as_bytes(), ms.to_string().as_bytes()]);
        }
        self.send().await?;
        self.status().await?;
        if let Some((replicas, _)) = target.wait {
            let acked = self.status().await?;
            if acked.trim_start_matches(':').parse::<u32>().unwrap_or(0) < replicas {
                return Err(format!("only {acked} replicas had it in time"));
            }
        }
        note(times, begun);
        let begun = Instant::now();
        command(&mut self.out, &[b"GET", key.as_bytes()]);
        self.send().await?;
        let good = self.bulk_equals(&value).await?;
        note(times, begun);
        Ok(good)
    }
}

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds")
}

fn note(times: &mut Histogram<u64>, begun: Instant) {
    times.saturating_record(begun.elapsed().as_micros().max(1) as u64);
}

/// One GET, the body as text. For what is asked once.
pub fn http_get(addr: SocketAddr, path: &str, bearer: Option<&str>) -> Result<String, String> {
    let token = bearer.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let (status, _, body) = http(
        addr,
        &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{token}Connection: close\r\n\r\n"),
        Duration::from_secs(10),
    )?;
    if status == 200 { Ok(body) } else { Err(format!("HTTP {status}: {body}")) }
}

/// One request on a connection of its own: status, head, body.
pub fn http(addr: SocketAddr, request: &str, within: Duration) -> Result<(u16, String, String), String> {
    let mut stream = TcpStream::connect_timeout(&addr, within).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(within)).map_err(|e| e.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer, but {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| format!("no status in {head:?}"))?;
    Ok((status, head.to_owned(), body.to_owned()))
}
