//! Open-loop HTTP load on clones of `lab worker`: requests leave by the clock, each kind through all doors in turn, and latency counts
//! from the moment a request was due. Each answer must repeat what was asked, and says which clone, which life of it and
//! which version gave it, so that an experiment sees who did the work at any moment.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::plot::Line;

#[derive(Clone)]
pub struct Load {
    pub doors: Vec<SocketAddr>,
    /// Paths: one for each kind of request.
    pub kinds: Vec<&'static str>,
    /// For each step the requests a second of each kind.
    pub rates: Vec<Vec<f64>>,
    /// Each kind comes through a door of its own instead.
    pub apart: bool,
}

/// How long each rate lasts.
pub const STEP: Duration = Duration::from_millis(250);
/// Requests of this kind have a connection each.
pub const ONCE: &str = "/once";
/// Who waits longer for an answer gives up: that is a failure.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of one request.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// When it was due, seconds since the load began.
    pub at: f64,
    pub ms: f64,
    pub kind: usize,
    pub end: End,
}

#[derive(Clone, PartialEq, Debug)]
pub enum End {
    Done(By),
    /// 503 or 429: it was not carried out.
    Refused(String),
    /// Anything else, a wrong answer too, and why.
    Failed(String),
}

/// Who answered.
#[derive(Clone, PartialEq, Debug)]
pub struct By {
    pub clone: String,
    /// Which life of the clone: `n1.4.1`, so its node as well.
    pub life: String,
    pub version: u32,
    /// Requests that were in the clone when this one came.
    pub ahead: u32,
}

pub struct Running {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Seen, String>>,
    pub begun: Instant,
}

impl Load {
    pub fn seconds(&self) -> f64 {
        self.rates.len() as f64 * STEP.as_secs_f64()
    }

    pub fn start(self) -> Running {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(self.run(begun, &until))
        });
        Running { stop, thread, begun }
    }

    async fn run(self, begun: Instant, stop: &AtomicBool) -> Result<Seen, String> {
        let doors: Vec<Door> = self.doors.iter().map(|addr| Door::of(*addr)).collect();
        let (mut tasks, mut answers) = (JoinSet::new(), Vec::new());
        let mut turns = vec![0usize; self.kinds.len()];
        for (at, rates) in self.rates.iter().enumerate() {
            let start = begun + STEP * u32::try_from(at).unwrap_or(u32::MAX);
            let mut sent = vec![0u64; rates.len()];
            loop {
                let now = Instant::now();
                let passed = now.saturating_duration_since(start).min(STEP).as_secs_f64();
                for (kind, rate) in rates.iter().enumerate() {
                    while (sent[kind] as f64) < passed * rate {
                        let due = start + Duration::from_secs_f64(sent[kind] as f64 / rate);
                        // Turns of each kind: with one count for all, a kind might meet the same door each time.
                        let turn = turns[kind];
                        let door = doors[if self.apart { kind } else { turn } % doors.len()].clone();
                        let path = format!("{}?n={turn}", self.kinds[kind]);
                        tasks.spawn(one(door, path, kind, due, begun));
                        (sent[kind], turns[kind]) = (sent[kind] + 1, turn + 1);
                    }
                }
                while let Some(done) = tasks.try_join_next() {
                    answers.push(done.map_err(|e| e.to_string())?);
                }
                if now >= start + STEP {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if stop.load(Ordering::SeqCst) {
                break;
            }
        }
        // Each ends by itself within its patience.
        while let Some(done) = tasks.join_next().await {
            answers.push(done.map_err(|e| e.to_string())?);
        }
        answers.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(Seen { answers })
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

    /// Lets the load run to its end.
    pub fn wait(self) -> Result<Seen, String> {
        self.thread.join().map_err(|_| "the load panicked")?
    }

    /// Sends nothing more.
    pub fn end(self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.wait()
    }
}

type Idle = Arc<Mutex<VecDeque<TcpStream>>>;

#[derive(Clone)]
pub struct Door {
    addr: SocketAddr,
    idle: Idle,
}

impl Door {
    pub fn of(addr: SocketAddr) -> Self {
        Self { addr, idle: Idle::default() }
    }
}

async fn one(door: Door, path: String, kind: usize, due: Instant, begun: Instant) -> Answer {
    let end = match tokio::time::timeout(PATIENCE, ask(&door, "GET", &path)).await {
        Ok(Ok(Reply { status: 200, body })) => match by(&path, &body) {
            Some(by) => End::Done(by),
            None => End::Failed(format!("asked {path}, got {body:?}")),
        },
        Ok(Ok(Reply { status: 503 | 429, body })) => End::Refused(body),
        Ok(Ok(Reply { status, body })) => End::Failed(format!("HTTP {status}: {body}")),
        Ok(Err(error)) => End::Failed(error.to_string()),
        Err(_) => End::Failed(format!("no answer within {PATIENCE:?}")),
    };
    let ms = due.elapsed().as_secs_f64() * 1e3;
    Answer { at: due.saturating_duration_since(begun).as_secs_f64(), ms, kind, end }
}

pub struct Reply {
    pub status: u16,
    pub body: String,
}

/// One request without a body.
pub async fn ask(door: &Door, method: &str, path: &str) -> std::io::Result<Reply> {
    let once = path.starts_with(ONCE);
    let mut stream = match if once { None } else { kept(&door.idle) } {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(door.addr).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    let close = if once { "Connection: close\r\n" } else { "" };
    let body = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: lab\r\n{close}{body}\r\n").as_bytes()).await?;
    let mut buffer = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let Some((status, head, length)) = whole(&buffer) else { continue };
        if length == buffer.len() && !is_last(&buffer[..head]) {
            door.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(stream);
        }
        return Ok(Reply { status, body: String::from_utf8_lossy(&buffer[head..length]).trim().to_owned() });
    }
}

/// A connection from before that the server has not closed meanwhile, as any client looks for one.
fn kept(idle: &Idle) -> Option<TcpStream> {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(stream) = idle.pop_back() {
        if stream.try_read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
            return Some(stream);
        }
    }
    None
}

/// Whether an answer's head says that no other follows on its connection.
pub fn is_last(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).to_ascii_lowercase().lines().any(|line| line == "connection: close")
}

/// Status, length of the head, and length of an answer that is all there.
pub fn whole(bytes: &[u8]) -> Option<(u16, usize, usize)> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?.to_ascii_lowercase();
    let body: usize = text.split("content-length:").nth(1)?.lines().next()?.trim().parse().ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    (bytes.len() >= head + body).then_some((status, head, head + body))
}

/// Who gave this answer, if it is one to this path.
fn by(path: &str, body: &str) -> Option<By> {
    let mut words = body.split(' ');
    let (asked, clone, life) = (words.next()?, words.next()?, words.next()?);
    let (version, ahead) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (asked == path).then(|| By { clone: clone.into(), life: life.into(), version, ahead })
}

/// All answers, in the order in which their requests were due.
#[derive(Default)]
pub struct Seen {
    pub answers: Vec<Answer>,
}

/// What became of some requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub offered: u64,
    pub done: u64,
    pub refused: u64,
    pub failed: u64,
    /// Sorted, of those done.
    ms: Vec<f64>,
    pub first_failure: Option<String>,
}

impl Tally {
    /// Milliseconds of what was done.
    pub fn ms(&self, quantile: f64) -> f64 {
        let at = (self.ms.len() as f64 * quantile) as usize;
        self.ms.get(at.min(self.ms.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// Part of what was offered.
    pub fn done_share(&self) -> f64 {
        self.done as f64 / self.offered.max(1) as f64
    }
}

impl Answer {
    pub fn by(&self) -> Option<&By> {
        if let End::Done(by) = &self.end { Some(by) } else { None }
    }
}

impl Seen {
    /// Requests that were due from `from` to `to` and are so.
    pub fn tally(&self, from: f64, to: f64, so: impl Fn(&Answer) -> bool) -> Tally {
        let mut tally = Tally::default();
        for answer in self.answers.iter().filter(|a| a.at >= from && a.at < to && so(a)) {
            tally.offered += 1;
            match &answer.end {
                End::Done(_) => {
                    tally.done += 1;
                    tally.ms.push(answer.ms);
                }
                End::Refused(_) => tally.refused += 1,
                End::Failed(why) => {
                    tally.failed += 1;
                    tally.first_failure.get_or_insert_with(|| format!("at {:.2} s: {why}", answer.at));
                }
            }
        }
        tally.ms.sort_by(f64::total_cmp);
        tally
    }

    pub fn of_kind(&self, kind: usize, from: f64, to: f64) -> Tally {
        self.tally(from, to, |a| a.kind == kind)
    }

    /// Answers a second of a kind that came from `from` to `to`, whenever their requests were due.
    pub fn rate(&self, kind: usize, from: f64, to: f64) -> f64 {
        let came = |a: &&Answer| (from..to).contains(&(a.at + a.ms / 1e3));
        let done = self.answers.iter().filter(|a| a.kind == kind && a.by().is_some()).filter(came).count();
        done as f64 / (to - from)
    }

    /// The same of each slot, as a line.
    pub fn rates(&self, name: &str, kind: usize, width: f64, until: f64) -> Line {
        let starts = (0..(until / width) as usize).map(|i| i as f64 * width);
        Line { name: name.into(), points: starts.map(|at| (at, self.rate(kind, at, at + width))).collect() }
    }

    pub fn all(&self) -> Tally {
        self.tally(0.0, f64::INFINITY, |_| true)
    }

    /// Time slots of this width until `until`, each by its beginning, with what became of requests of a kind.
    pub fn slots(&self, width: f64, until: f64, kind: usize) -> Vec<(f64, Tally)> {
        let starts = (0..(until / width) as usize).map(|i| i as f64 * width);
        starts.map(|from| (from, self.of_kind(kind, from, from + width))).collect()
    }
}

/// A row for each slot and kind, after this header.
pub const CSV: &str = "second,kind,offered,done,refused,failed,p50_ms,p99_ms,slowest_ms\n";

pub fn rows(seen: &Seen, kinds: &[&str], width: f64, until: f64) -> String {
    let mut csv = String::new();
    for (kind, name) in kinds.iter().enumerate() {
        for (at, t) in seen.slots(width, until, kind) {
            csv += &format!(
                "{at},{name},{},{},{},{},{:.1},{:.1},{:.1}\n",
                t.offered,
                t.done,
                t.refused,
                t.failed,
                t.ms(0.5),
                t.ms(0.99),
                t.ms(1.0)
            );
        }
    }
    csv
}

/// A line over time slots.
pub fn line(name: &str, slots: &[(f64, Tally)], pick: impl Fn(&Tally) -> f64) -> Line {
    Line { name: name.into(), points: slots.iter().map(|(at, tally)| (*at, pick(tally))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_when_it_is_whole_and_to_what_was_asked() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nno\n";
        assert_eq!(whole(answer), Some((503, answer.len() - 3, answer.len())));
        assert_eq!(whole(&answer[..answer.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\n"), None);
        assert!(is_last(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n") && !is_last(answer));
        let said = By { clone: "work/1".into(), life: "n2.1.3".into(), version: 2, ahead: 4 };
        assert_eq!(by("/a?n=1", "/a?n=1 work/1 n2.1.3 2 4"), Some(said));
        assert_eq!(by("/a?n=2", "/a?n=1 work/1 n2.1.3 2 4"), None);
    }

    #[test]
    fn a_tally_is_of_what_was_due_then() {
        let by = By { clone: "work/0".into(), life: "n1.1.1".into(), version: 0, ahead: 0 };
        let answer = |at, kind, end| Answer { at, ms: 10.0 * at, kind, end };
        let seen = Seen {
            answers: vec![
                answer(0.1, 0, End::Done(by.clone())),
                answer(0.2, 1, End::Refused(String::new())),
                answer(0.9, 0, End::Failed("why".into())),
                answer(1.5, 0, End::Done(by)),
            ],
        };
        let first = seen.of_kind(0, 0.0, 1.0);
        assert_eq!((first.offered, first.done, first.refused, first.failed, first.ms(0.99)), (2, 1, 0, 1, 1.0));
        let all = seen.all();
        assert_eq!((all.offered, all.done, all.refused, all.ms(0.99), all.done_share()), (4, 2, 1, 15.0, 0.5));
        assert_eq!(seen.slots(1.0, 2.0, 0).len(), 2);
        assert_eq!((seen.rate(0, 0.0, 1.0), seen.rate(0, 1.0, 1.5), seen.rate(0, 1.5, 2.0)), (1.0, 0.0, 2.0));
    }
}
