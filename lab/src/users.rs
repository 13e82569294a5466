//! Users as in SSM's section 5: each writes and reads in turn, the next request as soon as the last one is answered. A
//! user whose request fails finds another door and tries again until it is done; every try and every operation is noted
//! with its time, so that an experiment can look at any second of the run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Conn, command};

/// How a user finds a door that serves.
#[derive(Clone)]
pub enum Doors {
    /// Any of these; after a failure the next.
    Any { addrs: Vec<SocketAddr>, auth: Option<(String, String)> },
    /// These are asked who is the master, as redis-py's Sentinel does it.
    Sentinels(Vec<SocketAddr>),
}

#[derive(Clone)]
pub struct Crowd {
    pub doors: Doors,
    pub users: usize,
    pub value_bytes: usize,
    /// Between a read and the next write.
    pub pause: Duration,
    /// Each write has a key of its own, and all are read back at the end.
    pub unique: bool,
}

/// A try that takes longer than this has failed: a usual socket timeout.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(20);
/// An operation without success for so long is given up.
const GIVE_UP: Duration = Duration::from_secs(30);

/// One operation, tries and all; times are seconds since the run began.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub at: f64,
    pub ms: f64,
}

/// What the users saw.
#[derive(Default)]
pub struct Seen {
    pub ops: Vec<Op>,
    /// When a try failed.
    pub failed: Vec<f64>,
    pub first_failure: Option<String>,
    /// Values read that are not what was written, right after the write.
    pub wrong: u64,
    pub acked: u64,
    /// Acknowledged writes that were not there at the end (of unique ones), or never got through.
    pub lost: u64,
}

/// A running crowd.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Seen, String>>,
    pub begun: Instant,
}

impl Crowd {
    pub fn start(self) -> Running {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(self.run(begun, until))
        });
        Running { stop, thread, begun }
    }

    async fn run(self, begun: Instant, stop: Arc<AtomicBool>) -> Result<Seen, String> {
        let mut users = tokio::task::JoinSet::new();
        for index in 0..self.users {
            let user = User {
                crowd: self.clone(),
                index,
                begun,
                stop: Arc::clone(&stop),
                conn: None,
                next_door: index,
                seen: Seen::default(),
            };
            users.spawn(user.live());
        }
        let mut all = Seen::default();
        while let Some(one) = users.join_next().await {
            let one = one.map_err(|e| e.to_string())?;
            all.ops.extend(one.ops);
            all.failed.extend(one.failed);
            all.first_failure = all.first_failure.or(one.first_failure);
            all.wrong += one.wrong;
            all.acked += one.acked;
            all.lost += one.lost;
        }
        all.ops.sort_by(|a, b| a.at.total_cmp(&b.at));
        all.failed.sort_by(f64::total_cmp);
        Ok(all)
    }
}

impl Running {
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Sleeps until so many seconds after the beginning.
    pub fn wait_until(&self, seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64((seconds - self.seconds()).max(0.0)));
    }

    pub fn end(self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "a user panicked")?
    }
}

struct User {
    crowd: Crowd,
    index: usize,
    begun: Instant,
    stop: Arc<AtomicBool>,
    conn: Option<Conn>,
    next_door: usize,
    seen: Seen,
}

impl User {
    async fn live(mut self) -> Seen {
        let mut acked = Vec::new();
        let mut turn = 0u64;
        while !self.stop.load(Ordering::SeqCst) {
            turn += 1;
            let (key, value) = (self.key(turn), self.value(turn));
            if self.until_done(&[b"SET", &key, &value, b"EX", b"600"], None).await {
                self.seen.acked += 1;
                acked.push(turn);
                if !self.until_done(&[b"GET", &key], Some(&value)).await {
                    self.seen.lost += 1;
                }
            }
            if !self.crowd.pause.is_zero() {
                tokio::time::sleep(self.crowd.pause).await;
            }
        }
        if self.crowd.unique {
            let noted = self.seen.ops.len();
            for turn in acked {
                let (key, value) = (self.key(turn), self.value(turn));
                let wrong = self.seen.wrong;
                if !self.until_done(&[b"GET", &key], Some(&value)).await || self.seen.wrong > wrong {
                    self.seen.wrong = wrong;
                    self.seen.lost += 1;
                }
            }
            // Reading back is no part of the load.
            self.seen.ops.truncate(noted);
        }
        self.seen
    }

    fn key(&self, turn: u64) -> Vec<u8> {
        let turn = if self.crowd.unique { turn } else { 0 };
        format!("user:{}:{turn}", self.index).into_bytes()
    }

    fn value(&self, turn: u64) -> Vec<u8> {
        let mut value = format!("{}:{turn}:", self.index).into_bytes();
        value.resize(self.crowd.value_bytes, b'x');
        value
    }

    /// Tries until the answer is there. False if it never came.
    async fn until_done(&mut self, words: &[&[u8]], expect: Option<&[u8]>) -> bool {
        let began = Instant::now();
        loop {
            let tried = tokio::time::timeout(PATIENCE, self.once(words, expect)).await;
            let why = match tried {
                Ok(Ok(right)) => {
                    self.seen.wrong += u64::from(!right);
                    let at = began.duration_since(self.begun).as_secs_f64();
                    self.seen.ops.push(Op { at, ms: began.elapsed().as_secs_f64() * 1e3 });
                    return true;
                }
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {PATIENCE:?}"),
            };
            self.conn = None;
            self.next_door += 1;
            self.seen.failed.push(self.begun.elapsed().as_secs_f64());
            self.seen.first_failure.get_or_insert(why);
            if began.elapsed() > GIVE_UP {
                return false;
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
    }

    async fn once(&mut self, words: &[&[u8]], expect: Option<&[u8]>) -> Result<bool, String> {
        if self.conn.is_none() {
            self.conn = Some(self.connect().await?);
        }
        let conn = self.conn.as_mut().expect("just connected");
        command(&mut conn.out, words);
        conn.send().await?;
        match expect {
            None => conn.status().await.map(|_| true),
            Some(value) => conn.bulk_equals(value).await,
        }
    }

    async fn connect(&self) -> Result<Conn, String> {
        match &self.crowd.doors {
            Doors::Any { addrs, auth } => Conn::open(addrs[self.next_door % addrs.len()], auth.as_ref()).await,
            Doors::Sentinels(sentinels) => {
                let mut sentinel = Conn::open(sentinels[self.next_door % sentinels.len()], None).await?;
                let master = master_of(&mut sentinel).await?;
                Conn::open(master, None).await
            }
        }
    }
}

/// The name of the one master that the sentinels of an experiment watch.
pub const MASTER: &str = "lab";

/// Asks a sentinel who the master is.
pub async fn master_of(sentinel: &mut Conn) -> Result<SocketAddr, String> {
    command(&mut sentinel.out, &[b"SENTINEL", b"get-master-addr-by-name", MASTER.as_bytes()]);
    sentinel.send().await?;
    let line = sentinel.status().await?;
    if line != "*2" {
        return Err(format!("the sentinel knows no master: {line}"));
    }
    let mut word = async || sentinel.bulk().await.map(|w| String::from_utf8_lossy(&w.unwrap_or_default()).into_owned());
    let (host, port) = (word().await?, word().await?);
    format!("{host}:{port}").parse().map_err(|e| format!("{host}:{port}: {e}"))
}

impl Seen {
    /// Operations begun in each whole second.
    pub fn per_second(&self, until: f64) -> Vec<(f64, f64)> {
        let mut seconds = vec![0.0; until.max(1.0) as usize];
        for op in &self.ops {
            if let Some(n) = seconds.get_mut(op.at as usize) {
                *n += 1.0;
            }
        }
        seconds.into_iter().enumerate().map(|(i, n)| (i as f64, n)).collect()
    }

    /// Latency in milliseconds at this quantile of operations begun from `from` to `to`.
    pub fn quantile(&self, quantile: f64, from: f64, to: f64) -> f64 {
        let mut ms: Vec<f64> = self.ops.iter().filter(|op| op.at >= from && op.at < to).map(|op| op.ms).collect();
        ms.sort_by(f64::total_cmp);
        let at = (ms.len() as f64 * quantile) as usize;
        ms.get(at.min(ms.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// The same of operations that were under way at any moment from `from` to `to`: in an outage few begin.
    pub fn quantile_meanwhile(&self, quantile: f64, from: f64, to: f64) -> f64 {
        let ops = self.ops.iter().filter(|op| op.at < to && op.at + op.ms / 1e3 >= from).copied().collect();
        Seen { ops, ..Seen::default() }.quantile(quantile, 0.0, f64::INFINITY)
    }

    /// Operations a second, begun from `from` to `to`.
    pub fn rate(&self, from: f64, to: f64) -> f64 {
        self.ops.iter().filter(|op| op.at >= from && op.at < to).count() as f64 / (to - from).max(1e-9)
    }

    /// From the first failed try to the last, in seconds.
    pub fn failing_for(&self) -> f64 {
        self.failed.last().zip(self.failed.first()).map_or(0.0, |(last, first)| last - first)
    }

    pub fn slowest(&self) -> f64 {
        self.ops.iter().map(|op| op.ms).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_quantiles_are_of_what_began_there() {
        let op = |at: f64, ms: f64| Op { at, ms };
        let seen = Seen {
            ops: vec![op(0.1, 1.0), op(0.9, 3.0), op(1.5, 700.0), op(2.5, 2.0)],
            failed: vec![1.5, 1.75, 2.0],
            ..Seen::default()
        };
        assert_eq!(seen.per_second(3.0), vec![(0.0, 2.0), (1.0, 1.0), (2.0, 1.0)]);
        assert_eq!((seen.quantile(0.999, 1.0, 2.0), seen.quantile(0.0, 0.0, 1.0)), (700.0, 1.0));
        assert_eq!((seen.rate(0.0, 2.0), seen.failing_for(), seen.slowest()), (1.5, 0.5, 700.0));
        assert_eq!(seen.quantile(0.5, 5.0, 6.0), 0.0);
        assert_eq!((seen.quantile_meanwhile(0.9, 2.1, 2.2), seen.quantile_meanwhile(0.9, 2.3, 2.4)), (700.0, 0.0));
    }
}
