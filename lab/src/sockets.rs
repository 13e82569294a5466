//! WebSockets that stay open and are used now and then, as those of a chat: what becomes of them while what is behind them
//! is replaced. One that is told to go (a close frame) connects anew, as browsers do; one that just ends was reset.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::worker::WEBSOCKET;

/// A text frame of a client, masked with zeros: "hi". The clone sends back what it gets.
const FRAME: [u8; 8] = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
const CLOSE: u8 = 0x88;
const EVERY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub struct Fates {
    pub opened: u64,
    pub frames: u64,
    /// A close frame came.
    pub told_to_go: u64,
    /// Ended without one.
    pub reset: u64,
    /// Not opened at the first try.
    pub not_opened: u64,
    pub first_failure: Option<String>,
}

pub struct Sockets {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Fates, String>>,
}

impl Sockets {
    /// So many, through all doors in turn.
    pub fn start(doors: Vec<SocketAddr>, count: usize) -> Sockets {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for nth in 0..count {
                    all.spawn(one(doors[nth % doors.len()], Arc::clone(&until)));
                }
                let mut fates = Fates::default();
                while let Some(one) = all.join_next().await {
                    fates.add(one.map_err(|e| e.to_string())?);
                }
                Ok(fates)
            })
        });
        Sockets { stop, thread }
    }

    pub fn end(self) -> Result<Fates, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "the sockets panicked")?
    }
}

impl Fates {
    fn add(&mut self, other: Fates) {
        self.opened += other.opened;
        self.frames += other.frames;
        self.told_to_go += other.told_to_go;
        self.reset += other.reset;
        self.not_opened += other.not_opened;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

async fn one(door: SocketAddr, stop: Arc<AtomicBool>) -> Fates {
    let mut fates = Fates::default();
    while !stop.load(Ordering::SeqCst) {
        let mut stream = match open(door).await {
            Ok(stream) => stream,
            Err(why) => {
                fates.not_opened += 1;
                fates.first_failure.get_or_insert(format!("not opened: {why}"));
                tokio::time::sleep(EVERY).await;
                continue;
            }
        };
        fates.opened += 1;
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(EVERY).await;
            match tokio::time::timeout(PATIENCE, exchange(&mut stream)).await {
                Ok(Ok(true)) => fates.frames += 1,
                Ok(Ok(false)) => {
                    fates.told_to_go += 1;
                    break;
                }
                Ok(Err(why)) => {
                    fates.reset += 1;
                    fates.first_failure.get_or_insert(format!("reset: {why}"));
                    break;
                }
                Err(_) => {
                    fates.reset += 1;
                    fates.first_failure.get_or_insert(format!("no frame within {PATIENCE:?}"));
                    break;
                }
            }
        }
    }
    fates
}

async fn open(door: SocketAddr) -> Result<TcpStream, String> {
    let open = async {
        let mut stream = TcpStream::connect(door).await.map_err(|e| e.to_string())?;
        let request = format!("GET /ws HTTP/1.1\r\nHost: lab\r\n{WEBSOCKET}\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(error) => return Err(error.to_string()),
            }
        }
        let line = String::from_utf8_lossy(&head);
        if line.starts_with("HTTP/1.1 101") { Ok(stream) } else { Err(line.lines().next().unwrap_or("").to_owned()) }
    };
    tokio::time::timeout(PATIENCE, open).await.map_err(|_| format!("not within {PATIENCE:?}"))?
}

/// A frame there and back; false if a close frame came instead.
async fn exchange(stream: &mut TcpStream) -> std::io::Result<bool> {
    // Who was told to go while nobody looked finds out by reading, also if writing fails by then.
    let written = stream.write_all(&FRAME).await;
    let first = stream.read_u8().await?;
    if first == CLOSE {
        return Ok(false);
    }
    written?;
    let mut rest = [0; FRAME.len() - 1];
    stream.read_exact(&mut rest).await?;
    Ok(true)
}
