//! Redis clients that write and read sessions while something happens to nodes. Each has several nodes to talk to: when its
//! connection is closed it goes on with the next one and asks again, as clients with several addresses do. Every answer
//! must be right: an error, or a value that is older than the last acknowledged one, is a failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::resp::{Resp, Word};

/// Between two commands of one client: two cores carry the cluster, too.
const PAUSE: Duration = Duration::from_millis(4);
/// So many connections in a row that come to nothing are a failure.
const RECONNECTS_MAX: usize = 200;

pub struct Sessions {
    stop: Arc<AtomicBool>,
    commands: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Told>>,
}

#[derive(Default, Debug)]
pub struct Told {
    pub commands: u64,
    pub failures: Vec<String>,
    /// Connections that ended and were replaced.
    pub reconnects: u64,
    pub slowest: Duration,
}

impl Sessions {
    /// `clients` clients for each address, which is the first that they talk to.
    pub fn start(at: &[SocketAddr], clients: usize, namespace: &str, token: &str) -> Sessions {
        let (stop, commands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        static LOADS: AtomicU64 = AtomicU64::new(0);
        let load = LOADS.fetch_add(1, Ordering::Relaxed);
        let client = |number: usize| {
            let mut at = at.to_vec();
            let turn = number % at.len();
            at.rotate_left(turn);
            let client = Client { at, load, namespace: namespace.to_owned(), token: token.to_owned(), conn: None };
            let (stop, commands) = (Arc::clone(&stop), Arc::clone(&commands));
            std::thread::spawn(move || client.work(number, &stop, &commands))
        };
        let clients = (0..clients * at.len()).map(client).collect();
        let load = Sessions { stop, commands, clients };
        load.go_on(100);
        load
    }

    /// Waits until so many more commands have been answered.
    #[track_caller]
    pub fn go_on(&self, commands: u64) {
        let until = self.commands.load(Ordering::Relaxed) + commands;
        crate::soon("commands end", 20, || self.commands.load(Ordering::Relaxed) >= until);
    }

    pub fn end(mut self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Told::default();
        for client in self.clients.drain(..) {
            let told = client.join().expect("a client counts failures and does not panic");
            all.commands += told.commands;
            all.failures.extend(told.failures);
            all.reconnects += told.reconnects;
            all.slowest = all.slowest.max(told.slowest);
        }
        all
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Told {
    #[track_caller]
    pub fn no_failures(&self, when: &str) {
        let shown = &self.failures[..self.failures.len().min(5)];
        let (failed, commands) = (self.failures.len(), self.commands);
        assert!(failed == 0, "{failed} of {commands} commands failed {when}, the first: {shown:#?}");
        let slowest = self.slowest.as_millis();
        crate::say(&format!(
            "{when}: {commands} commands, 0 failed, {} reconnects, the slowest took {slowest} ms",
            self.reconnects
        ));
    }
}

struct Client {
    at: Vec<SocketAddr>,
    /// Several loads at once do not share keys.
    load: u64,
    namespace: String,
    token: String,
    conn: Option<Resp>,
}

impl Client {
    fn work(mut self, number: usize, stop: &AtomicBool, commands: &AtomicU64) -> Told {
        let mut told = Told::default();
        let mut turn = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let (key, value) = (format!("session-{}-{number}-{}", self.load, turn % 7), turn.to_string());
            let begun = Instant::now();
            for (words, right) in [
                (vec!["SET", &key, &value, "EX", "600"], Word::Simple("OK".into())),
                (vec!["GET", &key], Word::Bulk(value.clone())),
            ] {
                match self.ask(&words, &mut told) {
                    Ok(word) if word == right => (),
                    other => told.failures.push(format!("{words:?}: {other:?} (after {:?})", begun.elapsed())),
                }
                told.commands += 1;
                commands.fetch_add(1, Ordering::Relaxed);
            }
            told.slowest = told.slowest.max(begun.elapsed());
            turn += 1;
            std::thread::sleep(PAUSE);
        }
        told
    }

    /// Asks until there is an answer. What it asks does the same when it is done twice.
    fn ask(&mut self, words: &[&str], told: &mut Told) -> Result<Word, String> {
        let mut last = String::new();
        for _ in 0..RECONNECTS_MAX {
            let mut conn = match self.conn.take() {
                Some(conn) => conn,
                None => match Resp::open(self.at[0], &self.namespace, &self.token) {
                    Ok(conn) => conn,
                    Err(why) => {
                        last = why;
                        self.at.rotate_left(1);
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                },
            };
            match conn.ask(words) {
                Ok(word) => {
                    self.conn = Some(conn);
                    return Ok(word);
                }
                Err(why) => {
                    last = why;
                    told.reconnects += 1;
                    self.at.rotate_left(1);
                }
            }
        }
        Err(last)
    }
}
