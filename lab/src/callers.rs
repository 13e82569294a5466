//! Callers of the application in `phone.rs`: each listens to a message, asks for the next one, and knows which it should be.
//! Who hears an earlier one again has lost the session. Closed loop, as people are: nobody asks before the answer is there.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::web::whole;

/// What became of one request; `at` in seconds since the calls began.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub at: f64,
    pub ms: f64,
    pub end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Next,
    /// An answer, as if the call had just begun or gone back.
    Lost,
    Failed,
}

pub struct Callers {
    pub begun: Instant,
    stop: Arc<AtomicBool>,
    heard: Arc<Mutex<Vec<Heard>>>,
    first_failure: Arc<Mutex<Option<String>>>,
    /// Bit i: the door is of a node that is down, and callers go elsewhere.
    pub down: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

/// Longer waits nobody for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);

impl Callers {
    /// So many, who listen so long to each message.
    pub fn start(count: usize, listen: Duration, doors: Vec<SocketAddr>) -> Callers {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let (stop, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (first_failure, down) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let base = CALLS.fetch_add(count as u64, Ordering::Relaxed);
        let caller = |index: u64| Caller {
            call: format!("c{}-{}", std::process::id(), base + index),
            index,
            listen,
            doors: doors.clone(),
            begun,
            stop: Arc::clone(&stop),
            heard: Arc::clone(&heard),
            first_failure: Arc::clone(&first_failure),
            down: Arc::clone(&down),
            stream: None,
        };
        let callers: Vec<Caller> = (0..count as u64).map(caller).collect();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                callers.into_iter().for_each(|caller| drop(tasks.spawn(caller.live())));
                while tasks.join_next().await.is_some() {}
            });
        });
        Callers { begun, stop, heard, first_failure, down, thread }
    }

    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub fn wait_until(&self, seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64((seconds - self.seconds()).max(0.0)));
    }

    /// All that was heard, in order, and why the first of those that failed did.
    pub fn end(self) -> Result<(Vec<Heard>, Option<String>), String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "a caller panicked")?;
        let mut heard = std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
        heard.sort_by(|a, b| a.at.total_cmp(&b.at));
        let why = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((heard, why))
    }
}

struct Caller {
    call: String,
    index: u64,
    listen: Duration,
    doors: Vec<SocketAddr>,
    begun: Instant,
    stop: Arc<AtomicBool>,
    heard: Arc<Mutex<Vec<Heard>>>,
    first_failure: Arc<Mutex<Option<String>>>,
    down: Arc<AtomicU64>,
    stream: Option<(usize, TcpStream)>,
}

impl Caller {
    async fn live(mut self) {
        let (mut last, mut turn) = (0, self.index as usize);
        // Not all at the same moment.
        tokio::time::sleep(self.listen.mul_f64((self.index % 17) as f64 / 17.0)).await;
        while !self.stop.load(Ordering::SeqCst) {
            let down = self.down.load(Ordering::SeqCst);
            let door = (0..self.doors.len()).map(|n| (turn + n) % self.doors.len()).find(|n| down & (1 << n) == 0);
            let Some(door) = door else { break };
            let began = Instant::now();
            let asked = tokio::time::timeout(PATIENCE, self.ask(door)).await;
            let asked = asked.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
            // What failed may have been heard by the application: then it is further than its caller.
            let end = match &asked {
                Ok(message) if *message > last => End::Next,
                Ok(_) => End::Lost,
                Err(why) => {
                    let mut first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert_with(|| why.clone());
                    End::Failed
                }
            };
            let at = began.duration_since(self.begun).as_secs_f64();
            let heard = Heard { at, ms: began.elapsed().as_secs_f64() * 1e3, end };
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
            if let Ok(message) = asked {
                last = message;
                tokio::time::sleep(self.listen).await;
            } else {
                self.stream = None;
                turn += 1;
                tokio::time::sleep(TRY_PAUSE).await;
            }
        }
    }

    async fn ask(&mut self, door: usize) -> Result<u64, String> {
        if self.stream.as_ref().is_none_or(|(at, _)| *at != door) {
            let stream = TcpStream::connect(self.doors[door]).await.map_err(|e| e.to_string())?;
            stream.set_nodelay(true).map_err(|e| e.to_string())?;
            self.stream = Some((door, stream));
        }
        let (_, stream) = self.stream.as_mut().ok_or("just connected")?;
        // No GET, which an edge may ask twice: each request goes on by one message.
        let cookie = format!("Cookie: call={}\r\n", self.call);
        let request = format!("POST /next HTTP/1.1\r\nHost: phone\r\n{cookie}Content-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
        let mut buffer = Vec::new();
        let (status, head, length) = loop {
            if stream.read_buf(&mut buffer).await.map_err(|e| e.to_string())? == 0 {
                return Err("the node closed the connection".into());
            }
            if let Some(whole) = whole(&buffer) {
                break whole;
            }
        };
        let body = String::from_utf8_lossy(&buffer[head..length]).trim().to_owned();
        if crate::web::is_last(&buffer[..head]) {
            self.stream = None;
        }
        if status != 200 {
            return Err(format!("HTTP {status}: {body}"));
        }
        body.parse().map_err(|_| format!("no number: {body:?}"))
    }
}

/// Of those asked from `from` to `to`.
pub fn count(heard: &[Heard], from: f64, to: f64, end: End) -> f64 {
    heard.iter().filter(|one| one.at >= from && one.at < to && one.end == end).count() as f64
}

/// Mean milliseconds of those that were answered.
pub fn mean_ms(heard: &[Heard], from: f64, to: f64) -> f64 {
    let answered = heard.iter().filter(|one| one.at >= from && one.at < to && one.end != End::Failed);
    let (count, sum) = answered.fold((0u32, 0.0), |(count, sum), one| (count + 1, sum + one.ms));
    sum / f64::from(count.max(1))
}

/// The longest time in which no request was answered that had been asked or was under way, seconds.
pub fn longest_silence(heard: &[Heard], from: f64, to: f64) -> f64 {
    let answered = heard.iter().filter(|one| one.end != End::Failed).map(|one| one.at + one.ms / 1e3);
    let mut moments: Vec<f64> = answered.filter(|at| *at >= from && *at < to).collect();
    moments.extend([from, to]);
    moments.sort_by(f64::total_cmp);
    moments.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_counts_and_silence_are_of_what_was_answered() {
        let one = |at, ms, end| Heard { at, ms, end };
        let heard = [one(0.0, 100.0, End::Next), one(1.0, 300.0, End::Lost), one(1.5, 9000.0, End::Failed)];
        assert_eq!((mean_ms(&heard, 0.0, 2.0), count(&heard, 0.0, 2.0, End::Lost)), (200.0, 1.0));
        assert!((longest_silence(&heard, 0.0, 4.0) - 2.7).abs() < 1e-9);
    }
}
