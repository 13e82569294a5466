//! Clients of mail: sessions of SMTP that hand in one letter each, and sessions of POP3 that read and delete all of a
//! mailbox, one after the other on connections of their own. Every letter has a number, so that at the end it is known
//! which of those that were acknowledged are there.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::closed::runtime;

pub const DOMAIN: &str = "lab.test";
pub const PASSWORD: &str = "secret";
/// That of Porcupine's measurement.
pub const LETTER_BYTES: usize = 4700;
const ZIPF: f64 = 1.3;
/// One session of so many is one of POP3.
const POP_OF: u64 = 10;
/// A session that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
const READERS: usize = 8;

/// Where one node or peer listens.
#[derive(Clone, Copy)]
pub struct Door {
    pub smtp: SocketAddr,
    pub pop: SocketAddr,
}

#[derive(Clone)]
pub struct Post {
    pub doors: Vec<Door>,
    pub users: usize,
    pub sessions: usize,
}

/// One session, with its time since the beginning in seconds.
pub struct Session {
    pub at: f64,
    pub ms: f64,
    pub is_pop: bool,
    pub door: usize,
    /// Handed in or read.
    pub letters: u64,
    pub why: Option<String>,
}

#[derive(Default)]
pub struct Seen {
    pub sessions: Vec<Session>,
    /// Whose each acknowledged letter is.
    pub acked: HashMap<u64, usize>,
    /// Letters that somebody has read, and perhaps deleted.
    pub read: HashSet<u64>,
}

pub struct Running {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Seen, String>>,
    begun: Instant,
}

struct Shared {
    post: Post,
    /// Of each user, the chance of him and all before him.
    chances: Vec<f64>,
    begun: Instant,
    stop: Arc<AtomicBool>,
    seen: Mutex<Seen>,
}

impl Post {
    pub fn start(&self) -> Running {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let chances = zipf(self.users);
        let shared =
            Shared { post: self.clone(), chances, begun, stop: Arc::clone(&stop), seen: Mutex::new(Seen::default()) };
        let thread = std::thread::spawn(move || {
            let shared = Arc::new(shared);
            runtime()?.block_on(async {
                let mut all = tokio::task::JoinSet::new();
                for index in 0..shared.post.sessions {
                    all.spawn(one(Arc::clone(&shared), index));
                }
                while let Some(done) = all.join_next().await {
                    done.map_err(|e| e.to_string())?;
                }
                Ok::<_, String>(())
            })?;
            let shared = Arc::into_inner(shared).ok_or("a client is still there")?;
            Ok(shared.seen.into_inner().unwrap_or_else(PoisonError::into_inner))
        });
        Running { stop, thread, begun }
    }

    /// Reads mailboxes until each acknowledged letter was seen, or none came for so long: how many are missing, and how
    /// many were in a mailbox twice.
    pub fn missing(&self, seen: &mut Seen, patience: Duration) -> Result<(u64, u64), String> {
        runtime()?.block_on(async {
            let (mut doubled, mut progress, mut why) = (0, Instant::now(), None);
            loop {
                let unread = seen.acked.iter().filter(|(id, _)| !seen.read.contains(id));
                let whose: HashSet<usize> = unread.map(|(_, user)| *user).collect();
                if whose.is_empty() {
                    return Ok((0, doubled));
                }
                let whose: Vec<usize> = whose.into_iter().collect();
                let mut all = tokio::task::JoinSet::new();
                for (index, users) in whose.chunks(whose.len().div_ceil(READERS)).enumerate() {
                    let (post, users) = (self.clone(), users.to_vec());
                    all.spawn(async move {
                        let (mut letters, mut why) = (Vec::new(), None);
                        for user in users {
                            let pop = post.doors[index % post.doors.len()].pop;
                            match within(pop_session(pop, user, &mut Vec::new())).await {
                                Ok(more) => letters.push(more),
                                Err(e) => why = Some(e),
                            }
                        }
                        (letters, why)
                    });
                }
                let before = seen.read.len();
                while let Some(done) = all.join_next().await {
                    let (mailboxes, failed) = done.map_err(|e| e.to_string())?;
                    why = failed.or(why);
                    for mailbox in mailboxes {
                        let different: HashSet<u64> = mailbox.iter().copied().collect();
                        doubled += (mailbox.len() - different.len()) as u64;
                        seen.read.extend(different);
                    }
                }
                if seen.read.len() > before {
                    progress = Instant::now();
                } else if progress.elapsed() > patience {
                    let missing = seen.acked.keys().filter(|id| !seen.read.contains(id)).count();
                    eprintln!("{missing} letters are missing; last failure: {why:?}");
                    return Ok((missing as u64, doubled));
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    /// Hands in letters until one is acknowledged.
    pub fn first_accepted(&self, within_time: Duration) -> Result<(), String> {
        runtime()?.block_on(async {
            let begun = Instant::now();
            let mut last = String::new();
            for n in 0.. {
                if begun.elapsed() > within_time {
                    break;
                }
                let door = self.doors[n % self.doors.len()];
                // A door that is not there says so at once.
                match tokio::time::timeout(Duration::from_secs(2), smtp_session(door.smtp, 0, u64::MAX)).await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(why)) => last = why,
                    Err(_) => last = "no answer within 2 s".into(),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(format!("no letter was accepted within {within_time:?}: {last}"))
        })
    }
}

impl Running {
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub fn end(self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "a client panicked")?
    }
}

fn zipf(users: usize) -> Vec<f64> {
    let weights: Vec<f64> = (1..=users).map(|n| (n as f64).powf(-ZIPF)).collect();
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    weights
        .into_iter()
        .map(|weight| {
            sum += weight / all;
            sum
        })
        .collect()
}

async fn one(shared: Arc<Shared>, index: usize) {
    // The same draws in each run.
    let mut dice = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut roll = || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice >> 11
    };
    let door = index % shared.post.doors.len();
    let addrs = shared.post.doors[door];
    for n in 0.. {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let chance = roll() as f64 / (1u64 << 53) as f64;
        let user = shared.chances.partition_point(|to| *to < chance).min(shared.chances.len() - 1);
        let (is_pop, id) = (roll() % POP_OF == 0, (index as u64) << 32 | n);
        let (begun, at) = (Instant::now(), shared.begun.elapsed().as_secs_f64());
        let mut read = Vec::new();
        let done = match is_pop {
            true => within(pop_session(addrs.pop, user, &mut read)).await.map(|all| all.len() as u64),
            false => within(smtp_session(addrs.smtp, user, id)).await.map(|()| 1),
        };
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let (letters, why) = match done {
            Ok(letters) => (letters, None),
            Err(why) => (0, Some(why)),
        };
        let failed = why.is_some();
        {
            let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_pop && !failed {
                seen.acked.insert(id, user);
            }
            // Also of a session that broke off: perhaps they were deleted.
            seen.read.extend(read);
            seen.sessions.push(Session { at, ms, is_pop, door, letters, why });
        }
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn within<T>(session: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, session).await.unwrap_or_else(|_| Err(format!("not done within {PATIENCE:?}")))
}

struct Talk {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Talk {
    async fn open(addr: SocketAddr) -> Result<Talk, String> {
        let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Talk { stream, buffer: Vec::new() })
    }

    async fn say(&mut self, text: &str) -> Result<(), String> {
        self.stream.write_all(text.as_bytes()).await.map_err(|e| e.to_string())
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                let line = String::from_utf8_lossy(&self.buffer[..end]).trim_end().to_owned();
                self.buffer.drain(..=end);
                return Ok(line);
            }
            if self.stream.read_buf(&mut self.buffer).await.map_err(|e| e.to_string())? == 0 {
                return Err("the connection was closed".into());
            }
        }
    }

    /// An answer of SMTP with this code.
    async fn code(&mut self, code: &str) -> Result<(), String> {
        loop {
            let line = self.line().await?;
            if !line.starts_with(code) {
                return Err(line);
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
    }

    async fn ok(&mut self) -> Result<String, String> {
        let line = self.line().await?;
        if line.starts_with("+OK") { Ok(line) } else { Err(line) }
    }

    /// An answer of POP3 of many lines, as it is, to its end.
    async fn text(&mut self) -> Result<Vec<u8>, String> {
        const END: &[u8] = b"\r\n.\r\n";
        self.ok().await?;
        let mut from = 0;
        loop {
            if self.buffer.starts_with(b".\r\n") {
                self.buffer.drain(..3);
                return Ok(Vec::new());
            }
            if let Some(at) = memchr::memmem::find(&self.buffer[from..], END) {
                let text = self.buffer[..from + at].to_vec();
                self.buffer.drain(..from + at + END.len());
                return Ok(text);
            }
            from = self.buffer.len().saturating_sub(END.len());
            if self.stream.read_buf(&mut self.buffer).await.map_err(|e| e.to_string())? == 0 {
                return Err("the connection was closed".into());
            }
        }
    }
}

async fn smtp_session(addr: SocketAddr, user: usize, id: u64) -> Result<(), String> {
    let mut talk = Talk::open(addr).await?;
    talk.code("220").await?;
    let steps = [
        ("EHLO lab\r\n".to_owned(), "250"),
        (format!("MAIL FROM:<sender@{DOMAIN}>\r\n"), "250"),
        (format!("RCPT TO:<u{user}@{DOMAIN}>\r\n"), "250"),
        ("DATA\r\n".to_owned(), "354"),
        (letter(user, id), "250"),
    ];
    for (said, code) in steps {
        talk.say(&said).await?;
        talk.code(code).await?;
    }
    // It was acknowledged, however the rest ends.
    let _ = talk.say("QUIT\r\n").await;
    let _ = talk.code("221").await;
    Ok(())
}

const GONE: [&str; 2] = ["deleted by another session", "expunged"];
const MARK: &str = "Message-ID: <lab.";

fn letter(user: usize, id: u64) -> String {
    let mut text = format!(
        "From: sender@{DOMAIN}\r\nTo: u{user}@{DOMAIN}\r\nSubject: a letter\r\nDate: Mon, 01 Jan 2024 00:00:00 +0000\r\n\
         {MARK}{id}@{DOMAIN}>\r\n\r\n"
    );
    while text.len() < LETTER_BYTES {
        let width = (LETTER_BYTES - text.len()).saturating_sub(2).min(76);
        text.push_str(&"x".repeat(width));
        text.push_str("\r\n");
    }
    text.push_str(".\r\n");
    text
}

/// Which letter this is, if it is a whole one of ours.
fn number(text: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(text, MARK.as_bytes())? + MARK.len();
    let rest = std::str::from_utf8(text.get(at..at + 24)?).ok()?;
    // What servers put before it comes on top.
    let body = memchr::memmem::find(text, b"\r\n\r\n")? + 4;
    let is_whole = text[body..].iter().filter(|byte| **byte == b'x').count() + 600 > LETTER_BYTES;
    rest.split_once('@')?.0.parse().ok().filter(|_| is_whole)
}

/// Reads and deletes all: the numbers, which are also told in `read` as they come.
async fn pop_session(addr: SocketAddr, user: usize, read: &mut Vec<u64>) -> Result<Vec<u64>, String> {
    let mut talk = Talk::open(addr).await?;
    talk.ok().await?;
    for said in [format!("USER u{user}@{DOMAIN}\r\n"), format!("PASS {PASSWORD}\r\n")] {
        talk.say(&said).await?;
        talk.ok().await?;
    }
    talk.say("STAT\r\n").await?;
    let said = talk.ok().await?;
    let count: u64 = said.split(' ').nth(1).and_then(|n| n.parse().ok()).ok_or_else(|| format!("STAT: {said}"))?;
    for n in 1..=count {
        talk.say(&format!("RETR {n}\r\n")).await?;
        let text = match talk.text().await {
            Ok(text) => text,
            // Two sessions of one mailbox, and the other one was faster: Coppice's words, Dovecot's words.
            Err(why) if GONE.iter().any(|gone| why.contains(gone)) => continue,
            Err(why) => return Err(why),
        };
        let id = number(&text).ok_or_else(|| format!("letter {n} of u{user} is none of ours, or not whole"))?;
        talk.say(&format!("DELE {n}\r\n")).await?;
        talk.ok().await?;
        read.push(id);
    }
    talk.say("QUIT\r\n").await?;
    talk.ok().await?;
    Ok(read.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_has_its_size_and_is_known_again() {
        let text = letter(7, 3 << 32 | 9);
        assert_eq!((text.len(), text.ends_with("x\r\n.\r\n")), (LETTER_BYTES + 3, true));
        assert_eq!(number(text.as_bytes()), Some(3 << 32 | 9));
        assert_eq!(number(&text.as_bytes()[..2000]), None, "not whole");
    }

    #[test]
    fn the_first_users_get_most() {
        let chances = zipf(10_000);
        assert!(chances[0] > 0.2 && chances[0] < 0.3 && (chances[9_999] - 1.0).abs() < 1e-9, "{}", chances[0]);
    }
}
