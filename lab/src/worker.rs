//! A service whose capacity is known: so many requests at once, each takes so long, more wait in it in their order. It
//! costs nearly no processor time, so what an experiment sees is the edge and not the program. An answer repeats the path
//! and says which clone gave it, which life of it, which version, and how many requests were in it before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What `/long` takes, beside all others: a request that outlives a change of versions.
pub const LONG: Duration = Duration::from_secs(1);

struct Worker {
    /// Clone, life and version, as the node told it.
    me: String,
    places: Semaphore,
    takes: Duration,
    /// Every fourth request, by chance, takes up to so much longer.
    varies: Duration,
    chance: Mutex<base::Rng>,
    inside: AtomicUsize,
}

/// The line of a declaration with which this program runs as a clone.
pub fn run_line(at_once: usize, takes: Duration) -> Result<String, String> {
    run_line_of(at_once, takes, Duration::ZERO)
}

/// ... as a clone whose times vary.
pub fn run_line_of(at_once: usize, takes: Duration, varies: Duration) -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?.display().to_string();
    let numbers = [at_once as u128, takes.as_millis(), varies.as_millis()];
    let words = ["--at-once", "--takes-ms", "--varies-ms"].into_iter().zip(numbers);
    let words: String = words.map(|(word, number)| format!(", {word:?}, \"{number}\"")).collect();
    Ok(format!("run = [{me:?}, \"worker\"{words}]\n"))
}

/// Serves HTTP on `HOST` and `PORT` of the environment, as a clone does. Ends with the process.
pub fn run(at_once: usize, takes: Duration, varies: Duration) -> Result<(), String> {
    let of = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set; this runs as a clone"));
    let addr = format!("{}:{}", of("HOST")?, of("PORT")?);
    // A service that was not deployed has no version.
    let version = of("COPPICE_VERSION").unwrap_or_else(|_| "0".into());
    let me = format!("{} {} {version}", of("COPPICE_CLONE")?, of("COPPICE_MEMBER")?);
    let chance = Mutex::new(base::Rng::new(std::process::id().into()));
    let (places, inside) = (Semaphore::new(at_once), AtomicUsize::new(0));
    let worker = Arc::new(Worker { me, places, takes, varies, chance, inside });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|e| format!("cannot listen for SIGTERM: {e}"))?;
        let listener = TcpListener::bind(&addr).await.map_err(|e| format!("cannot listen on {addr}: {e}"))?;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, _) = accepted.map_err(|e| e.to_string())?;
                    tokio::spawn(serve(stream, Arc::clone(&worker)));
                }
                _ = ended.recv() => break,
            }
        }
        drop(listener);
        // What was begun is answered, as a good service does. Its node kills it if that takes too long.
        while worker.inside.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

async fn serve(mut stream: TcpStream, worker: Arc<Worker>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head: Vec<u8> = buffer.drain(..end + 4).collect();
        if head.windows(UPGRADE.len()).any(|part| part.eq_ignore_ascii_case(UPGRADE)) {
            worker.inside.fetch_add(1, Ordering::SeqCst);
            echo(stream).await;
            worker.inside.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let path = head.split(|byte| *byte == b' ').nth(1).map(String::from_utf8_lossy).unwrap_or_default();
        let body = match path.as_ref() {
            "/health" => "ok\n".to_owned(),
            path => worker.work(path).await,
        };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let written = stream.write_all(answer.as_bytes()).await;
        if path != "/health" {
            worker.inside.fetch_sub(1, Ordering::SeqCst);
        }
        if written.is_err() {
            return;
        }
    }
}

/// What a WebSocket client of these experiments asks, and what it is told: key and answer are those of RFC 6455 1.3.
pub const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const UPGRADE: &[u8] = b"\r\nupgrade: websocket\r\n";
const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A WebSocket: sends back what comes, to its end.
async fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 64];
    let mut out = SWITCHES.as_bytes();
    while stream.write_all(out).await.is_ok() {
        let Ok(count @ 1..) = stream.read(&mut bytes).await else { return };
        out = &bytes[..count];
    }
}

impl Worker {
    fn more(&self) -> Duration {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        match chance.below(4) {
            0 => Duration::from_micros(chance.below(self.varies.as_micros() as u64 + 1)),
            _ => Duration::ZERO,
        }
    }

    /// The caller counts it out of `inside` when the answer is written.
    async fn work(&self, path: &str) -> String {
        let ahead = self.inside.fetch_add(1, Ordering::SeqCst);
        if path.starts_with("/long") {
            tokio::time::sleep(LONG).await;
        } else {
            let _place = self.places.acquire().await;
            tokio::time::sleep(self.takes + self.more()).await;
        }
        format!("{path} {} {ahead}\n", self.me)
    }
}
