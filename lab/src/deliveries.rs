//! Messages to subscribers: each publisher sends the next one while the last few are on their way, and each subscriber
//! looks that every message comes, once and in order. One delivery is one operation, from its publisher's write to its
//! subscriber's read. In the protocols of Redis and NATS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::client::{Conn, command};
use crate::closed::{Ran, runtime};
use crate::load::{Outcome, histogram};
use crate::procs::used_us;

/// Each message: its number, when it was sent, padding.
const MESSAGE_BYTES: usize = 100;
const NUMBER_BYTES: usize = 20;
/// So many messages of a channel are on their way at once.
const WINDOW: u64 = 4;
const WARM: Duration = Duration::from_millis(500);
/// When nothing comes for so long, something was lost.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Crowd {
    /// Subscribers are spread over these.
    pub addrs: Vec<SocketAddr>,
    /// Where publishers connect: with Redis the primary alone, as what is published at a replica stays there.
    pub publish_at: Vec<SocketAddr>,
    pub auth: Option<(String, String)>,
    pub is_nats: bool,
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub channels: usize,
    /// Of each channel.
    pub subscribers: usize,
    pub length: Duration,
}

struct Channel {
    name: String,
    subscribers: u64,
    delivered: AtomicU64,
    more: Notify,
}

/// What all share.
struct Scene {
    crowd: Crowd,
    begun: Instant,
    is_counted: AtomicBool,
    stop: AtomicBool,
    took: Mutex<Histogram<u64>>,
    wrong: AtomicU64,
}

pub fn run(crowd: &Crowd, shape: Shape, pids: &[i32]) -> Result<Ran, String> {
    runtime()?.block_on(async {
        let scene = Arc::new(Scene {
            crowd: crowd.clone(),
            begun: Instant::now(),
            is_counted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            took: Mutex::new(histogram()),
            wrong: AtomicU64::new(0),
        });
        let (mut listeners, mut publishers) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
        let mut channels = Vec::new();
        for n in 0..shape.channels {
            let (subscribers, delivered) = (shape.subscribers as u64, AtomicU64::new(0));
            let channel = Arc::new(Channel { name: format!("room:{n}"), subscribers, delivered, more: Notify::new() });
            for index in 0..shape.subscribers {
                let listener = tokio::time::timeout(PATIENCE, Listener::open(&scene, &channel, n + index)).await;
                listeners.spawn(listener.map_err(|_| "no answer to SUBSCRIBE")??.listen());
            }
            channels.push(channel);
        }
        if crowd.is_nats {
            // Interest goes from server to server, and nobody says when it has arrived.
            tokio::time::sleep(WARM).await;
        }
        for (n, channel) in channels.iter().enumerate() {
            publishers.spawn(publish(Arc::clone(&scene), Arc::clone(channel), n));
        }
        tokio::time::sleep(WARM).await;
        scene.is_counted.store(true, Ordering::Relaxed);
        let count = || channels.iter().map(|channel| channel.delivered.load(Ordering::Relaxed)).sum::<u64>();
        let (before, had, begun) = (used_us(pids), count(), Instant::now());
        tokio::time::sleep(shape.length).await;
        let (done, took) = (count() - had, begun.elapsed().as_secs_f64());
        let cpu_us = (used_us(pids) - before) / done.max(1) as f64;
        scene.is_counted.store(false, Ordering::Relaxed);
        scene.stop.store(true, Ordering::Relaxed);
        let mut out = Outcome { done, per_second: done as f64 / took, ..Outcome::default() };
        let mut sent = 0;
        while let Some(ended) = publishers.join_next().await {
            let (count, why) = ended.map_err(|e| e.to_string())?;
            sent += count;
            out.failed += u64::from(why.is_some());
            out.first_failure = out.first_failure.or(why);
        }
        let expected = sent * shape.subscribers as u64;
        let waited = Instant::now();
        while count() < expected && waited.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // All links were whole, so what did not come is wrong.
        out.wrong = scene.wrong.load(Ordering::Relaxed) + expected.abs_diff(count());
        let took = scene.took.lock().unwrap_or_else(PoisonError::into_inner);
        out.p50_us = took.value_at_quantile(0.5) as f64;
        out.p99_us = took.value_at_quantile(0.99) as f64;
        out.p999_us = took.value_at_quantile(0.999) as f64;
        Ok(Ran { out, cpu_us })
    })
}

/// Sends until it is to stop; how much, and what failed.
async fn publish(scene: Arc<Scene>, channel: Arc<Channel>, index: usize) -> (u64, Option<String>) {
    let mut sent = 0;
    let ended = tell(&scene, &channel, index, &mut sent).await;
    (sent, ended.err())
}

async fn tell(scene: &Scene, channel: &Channel, index: usize, sent: &mut u64) -> Result<(), String> {
    let crowd = &scene.crowd;
    let addr = crowd.publish_at[index % crowd.publish_at.len()];
    let (mut nats, mut redis) = match crowd.is_nats {
        true => (Some(hello(addr).await?), None),
        false => (None, Some(Conn::open(addr, crowd.auth.as_ref()).await?)),
    };
    let mut value = Vec::with_capacity(MESSAGE_BYTES);
    while !scene.stop.load(Ordering::Relaxed) {
        // What is delivered of all that was sent, in whole messages.
        while (*sent - channel.delivered.load(Ordering::Relaxed) / channel.subscribers) >= WINDOW {
            let more = tokio::time::timeout(PATIENCE, channel.more.notified()).await;
            more.map_err(|_| format!("{}: message {sent} was not delivered within {PATIENCE:?}", channel.name))?;
        }
        value.clear();
        value.extend_from_slice(format!("{:020}{:020}", *sent + 1, scene.begun.elapsed().as_micros()).as_bytes());
        value.resize(MESSAGE_BYTES, b'x');
        if let Some(stream) = &mut nats {
            let words = [format!("PUB {} {MESSAGE_BYTES}\r\n", channel.name).as_bytes(), &value, b"\r\n"].concat();
            stream.write_all(&words).await.map_err(|e| e.to_string())?;
        }
        // It may have gone to some, whatever comes back.
        *sent += 1;
        if let Some(conn) = &mut redis {
            command(&mut conn.out, &[b"PUBLISH", channel.name.as_bytes(), &value]);
            conn.send().await?;
            conn.status().await?;
        }
    }
    Ok(())
}

async fn hello(addr: SocketAddr) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    stream.write_all(b"CONNECT {\"verbose\":false}\r\n").await.map_err(|e| e.to_string())?;
    Ok(stream)
}

struct Listener {
    stream: TcpStream,
    scene: Arc<Scene>,
    channel: Arc<Channel>,
    /// What stands before each message; behind it comes a line's end.
    head: Vec<u8>,
    buffer: Vec<u8>,
}

impl Listener {
    async fn open(scene: &Arc<Scene>, channel: &Arc<Channel>, index: usize) -> Result<Listener, String> {
        let addr = scene.crowd.addrs[index % scene.crowd.addrs.len()];
        let name = &channel.name;
        let (stream, head) = if scene.crowd.is_nats {
            let mut stream = hello(addr).await?;
            stream.write_all(format!("SUB {name} 1\r\nPING\r\n").as_bytes()).await.map_err(|e| e.to_string())?;
            until(&mut stream, b"PONG\r\n").await?;
            (stream, format!("MSG {name} 1 {MESSAGE_BYTES}\r\n"))
        } else {
            let mut stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
            let mut out = Vec::new();
            if let Some((user, password)) = &scene.crowd.auth {
                command(&mut out, &[b"AUTH", user.as_bytes(), password.as_bytes()]);
            }
            command(&mut out, &[b"SUBSCRIBE", name.as_bytes()]);
            stream.write_all(&out).await.map_err(|e| e.to_string())?;
            let named = format!("${}\r\n{name}\r\n", name.len());
            until(&mut stream, format!("{named}:1\r\n").as_bytes()).await?;
            (stream, format!("*3\r\n$7\r\nmessage\r\n{named}${MESSAGE_BYTES}\r\n"))
        };
        let (scene, channel) = (Arc::clone(scene), Arc::clone(channel));
        Ok(Listener { stream, scene, channel, head: head.into_bytes(), buffer: Vec::with_capacity(1 << 14) })
    }

    /// Ends with its connection. What it does not get, the others count as missing.
    async fn listen(mut self) {
        let (length, mut last) = (self.head.len() + MESSAGE_BYTES + 2, 0);
        while self.stream.read_buf(&mut self.buffer).await.is_ok_and(|n| n > 0) {
            let now = self.scene.begun.elapsed().as_micros() as u64;
            let (mut at, mut count, mut is_asked) = (0, 0, false);
            loop {
                let rest = &self.buffer[at..];
                if self.scene.crowd.is_nats && rest.starts_with(PING) {
                    (at, is_asked) = (at + PING.len(), true);
                    continue;
                }
                if rest.len() < length {
                    break;
                }
                let message = rest.strip_prefix(self.head.as_slice()).and_then(numbers);
                let Some((number, sent)) = message.filter(|(number, _)| *number == last + 1) else {
                    // Something else, or out of turn: nothing after it can be trusted.
                    self.scene.wrong.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                (at, count, last) = (at + length, count + 1, number);
                if self.scene.is_counted.load(Ordering::Relaxed) {
                    let mut took = self.scene.took.lock().unwrap_or_else(PoisonError::into_inner);
                    took.saturating_record(now.saturating_sub(sent).max(1));
                }
            }
            self.buffer.drain(..at);
            if count > 0 {
                self.channel.delivered.fetch_add(count, Ordering::Relaxed);
                self.channel.more.notify_one();
            }
            if is_asked && self.stream.write_all(b"PONG\r\n").await.is_err() {
                return;
            }
        }
    }
}

/// By which a server of NATS asks whether somebody is there.
const PING: &[u8] = b"PING\r\n";

/// A message's number, and when it was sent.
fn numbers(message: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(message.get(..2 * NUMBER_BYTES)?).ok()?;
    Some((text[..NUMBER_BYTES].parse().ok()?, text[NUMBER_BYTES..].parse().ok()?))
}

async fn until(stream: &mut TcpStream, end: &[u8]) -> Result<(), String> {
    let mut said = Vec::new();
    while !said.ends_with(end) {
        if stream.read_buf(&mut said).await.map_err(|e| e.to_string())? == 0 || said.starts_with(b"-") {
            return Err(format!("subscribing: {}", String::from_utf8_lossy(&said)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_has_its_number_and_its_time() {
        let message = format!("{:020}{:020}xx\r\n", 7, 99);
        assert_eq!(super::numbers(message.as_bytes()), Some((7, 99)));
        assert_eq!(super::numbers(b"short"), None);
    }
}
