//! Load on what keeps its writes: closed-loop clients that only put, or only get, or add to one number, each on a
//! connection of its own. What is read must be what was written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{self, command};
use crate::load::{Outcome, Target, histogram};
use crate::{etcd, nats};

#[derive(Clone)]
pub enum Side {
    Coppice(Target),
    Etcd(Vec<SocketAddr>),
    Nats(Vec<SocketAddr>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Put,
    Get,
    /// All to one number.
    Add,
    /// Likewise, by a function that is declared weak.
    WeakAdd,
    /// Likewise, by swapping a lock into its place, and the sum when the number came out.
    Swap,
}

impl Does {
    /// Of those that all work on one number: its key.
    pub fn key(self) -> &'static str {
        match self {
            Does::Swap => "swapped",
            Does::WeakAdd => "weak",
            Does::Add | Does::Put | Does::Get => "hot",
        }
    }
}

pub enum Conn {
    Redis(client::Conn),
    Etcd(etcd::Conn),
    Nats(nats::Conn),
}

impl Side {
    pub async fn open(&self, index: usize) -> Result<Conn, String> {
        match self {
            Side::Coppice(target) => {
                let addr = target.addrs[index % target.addrs.len()];
                client::Conn::open(addr, target.auth.as_ref()).await.map(Conn::Redis)
            }
            Side::Etcd(addrs) => etcd::Conn::open(addrs[index % addrs.len()]).await.map(Conn::Etcd),
            Side::Nats(addrs) => nats::Conn::open(addrs[index % addrs.len()]).await.map(Conn::Nats),
        }
    }
}

impl Conn {
    pub async fn put(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        match self {
            Conn::Redis(conn) => {
                command(&mut conn.out, &[b"SET", key.as_bytes(), value]);
                conn.send().await?;
                conn.status().await.map(drop)
            }
            Conn::Etcd(conn) => conn.put(key.as_bytes(), value).await,
            Conn::Nats(conn) => conn.put(key, value).await,
        }
    }

    pub async fn is(&mut self, key: &str, value: &[u8]) -> Result<bool, String> {
        match self {
            Conn::Redis(conn) => {
                command(&mut conn.out, &[b"GET", key.as_bytes()]);
                conn.send().await?;
                conn.bulk_equals(value).await
            }
            Conn::Etcd(conn) => Ok(conn.get(key.as_bytes()).await?.is_some_and(|got| got == value)),
            Conn::Nats(conn) => Ok(conn.get(key).await?.is_some_and(|got| got == value)),
        }
    }

    fn redis(&mut self) -> Result<&mut client::Conn, String> {
        if let Conn::Redis(conn) = self { Ok(conn) } else { Err("this peer has no such operation".into()) }
    }

    async fn add(&mut self, key: &str) -> Result<(), String> {
        let conn = self.redis()?;
        command(&mut conn.out, &[b"INCR", key.as_bytes()]);
        conn.send().await?;
        conn.status().await.map(drop)
    }

    async fn weak_add(&mut self, key: &str) -> Result<(), String> {
        let conn = self.redis()?;
        command(&mut conn.out, &[b"FCALL", b"number.add", b"1", key.as_bytes(), b"1"]);
        conn.send().await?;
        conn.status().await.map(drop)
    }

    async fn swap(&mut self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let conn = self.redis()?;
        command(&mut conn.out, &[b"SET", key.as_bytes(), value, b"GET"]);
        conn.send().await?;
        conn.bulk().await
    }

    /// Who gets the number out, and not the lock, puts its sum in.
    async fn swap_add(&mut self, key: &str) -> Result<(), String> {
        let begun = Instant::now();
        // One that ends with the lock in its hands leaves it to nobody.
        while begun.elapsed() < Duration::from_secs(10) {
            let number = match self.swap(key, LOCKED).await? {
                Some(locked) if locked == LOCKED => continue,
                Some(number) => String::from_utf8_lossy(&number).parse().map_err(|e| format!("no number: {e}"))?,
                None => 0_u64,
            };
            return self.swap(key, (number + 1).to_string().as_bytes()).await.map(drop);
        }
        Err("the lock was not free for 10 s".into())
    }
}

const LOCKED: &[u8] = b"locked";

/// What is in a key; 0 if there is none.
pub fn number_of(side: &Side, key: &str) -> Result<u64, String> {
    runtime()?.block_on(async {
        let mut conn = side.open(0).await?;
        let conn = conn.redis()?;
        command(&mut conn.out, &[b"GET", key.as_bytes()]);
        conn.send().await?;
        let Some(number) = conn.bulk().await? else { return Ok(0) };
        String::from_utf8_lossy(&number).parse().map_err(|e| format!("{key} holds no number: {e}"))
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())
}

/// So many clients, each with keys of its own (unless it adds).
pub fn load(side: &Side, does: Does, clients: usize, value_bytes: usize, length: Duration) -> Result<Outcome, String> {
    runtime()?.block_on(async {
        let ready = Arc::new(tokio::sync::Barrier::new(clients + 1));
        let mut all = tokio::task::JoinSet::new();
        for index in 0..clients {
            all.spawn(one(side.clone(), does, index, value_bytes, length, Arc::clone(&ready)));
        }
        ready.wait().await;
        let begun = Instant::now();
        let (mut times, mut out) = (histogram(), Outcome::default());
        while let Some(done) = all.join_next().await {
            let (one, failed, wrong, why) = done.map_err(|e| e.to_string())?;
            times.add(&one).map_err(|e| e.to_string())?;
            out.failed += failed;
            out.wrong += wrong;
            out.first_failure = out.first_failure.or(why);
        }
        out.done = times.len();
        out.per_second = times.len() as f64 / begun.elapsed().as_secs_f64();
        out.p50_us = times.value_at_quantile(0.5) as f64;
        out.p99_us = times.value_at_quantile(0.99) as f64;
        out.p999_us = times.value_at_quantile(0.999) as f64;
        Ok(out)
    })
}

async fn one(
    side: Side,
    does: Does,
    index: usize,
    value_bytes: usize,
    length: Duration,
    ready: Arc<tokio::sync::Barrier>,
) -> (Histogram<u64>, u64, u64, Option<String>) {
    let (mut times, mut failed, mut wrong, mut why) = (histogram(), 0, 0, None);
    let keys: Vec<String> = (0..16).map(|n| format!("{index}:{n}")).collect();
    let value = vec![b'x'; value_bytes];
    let mut conn = side.open(index).await.ok();
    if does == Does::Get
        && let Some(conn) = &mut conn
    {
        for key in &keys {
            failed += u64::from(conn.put(key, &value).await.is_err());
        }
    }
    ready.wait().await;
    let end = Instant::now() + length;
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let key = &keys[turn % keys.len()];
        let begun = Instant::now();
        let result = match &mut conn {
            None => side.open(index).await.map(|new| {
                conn = Some(new);
                None
            }),
            Some(conn) => match does {
                Does::Put => conn.put(key, &value).await.map(|()| Some(true)),
                Does::Get => conn.is(key, &value).await.map(Some),
                Does::Add => conn.add(does.key()).await.map(|()| Some(true)),
                Does::WeakAdd => conn.weak_add(does.key()).await.map(|()| Some(true)),
                Does::Swap => conn.swap_add(does.key()).await.map(|()| Some(true)),
            },
        };
        match result {
            Ok(None) => (),
            Ok(Some(good)) => {
                times.saturating_record(begun.elapsed().as_micros().max(1) as u64);
                wrong += u64::from(!good);
            }
            Err(e) => {
                failed += 1;
                why.get_or_insert(e);
                conn = None;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    (times, failed, wrong, why)
}

/// What a kill under load did.
pub struct Gap {
    /// Longest time in which nobody's write was acknowledged, around the kill, milliseconds.
    pub longest_ms: f64,
    pub acked: u64,
    pub lost: u64,
}

/// Writers of keys of their own, through all nodes but one, which is killed after a while; then every acknowledged write
/// is read back.
pub fn killed(
    side: &Side,
    writers: usize,
    seconds: u64,
    kill: impl FnOnce() -> Result<(), String>,
) -> Result<Gap, String> {
    runtime()?.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let mut all = tokio::task::JoinSet::new();
        for index in 0..writers {
            let (side, stop) = (side.clone(), Arc::clone(&stop));
            all.spawn(async move {
                let (mut acked, mut conn, mut n) = (Vec::new(), None, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    if conn.is_none() {
                        conn = side.open(index).await.ok();
                    }
                    let Some(open) = &mut conn else {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        continue;
                    };
                    n += 1;
                    let key = format!("{index}:{n}");
                    match tokio::time::timeout(Duration::from_secs(5), open.put(&key, key.as_bytes())).await {
                        Ok(Ok(())) => acked.push((key, Instant::now())),
                        Ok(Err(_)) | Err(_) => conn = None,
                    }
                }
                acked
            });
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        kill()?;
        tokio::time::sleep(Duration::from_secs(seconds + 3)).await;
        stop.store(true, Ordering::Relaxed);
        let mut acked = Vec::new();
        while let Some(done) = all.join_next().await {
            acked.extend(done.map_err(|e| e.to_string())?);
        }
        let mut moments: Vec<Instant> = acked.iter().map(|(_, at)| *at).collect();
        moments.sort_unstable();
        let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        let longest_ms = gaps.max().map_or(f64::INFINITY, |gap| gap.as_secs_f64() * 1e3);
        let (mut conn, mut lost) = (side.open(0).await?, 0);
        for (key, _) in &acked {
            lost += u64::from(!conn.is(key, key.as_bytes()).await?);
        }
        Ok(Gap { longest_ms, acked: acked.len() as u64, lost })
    })
}

/// Writes so many keys, many at a time.
pub fn fill(target: &Target, keys: usize) -> Result<(), String> {
    runtime()?.block_on(async {
        let mut conn = client::Conn::open(target.addrs[0], target.auth.as_ref()).await?;
        let value = [b'v'; 100];
        for from in (0..keys).step_by(500) {
            let names: Vec<String> = (from..(from + 500).min(keys)).map(|n| format!("key:{n}")).collect();
            let mut words: Vec<&[u8]> = vec![b"MSET"];
            names.iter().for_each(|name| words.extend([name.as_bytes(), &value[..]]));
            command(&mut conn.out, &words);
            conn.send().await?;
            conn.status().await?;
        }
        Ok(())
    })
}
