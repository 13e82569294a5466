//! Writers of new keys, each through one node as long as that lives, that remember what was acknowledged and how long it took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::resp::{Resp, Word};

/// Between two writes of one writer: two cores carry the cluster, too.
const PAUSE: Duration = Duration::from_millis(5);
/// A write that no node has answered by then is a failure.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

pub struct Writes {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Written>>,
}

#[derive(Default, Debug)]
pub struct Written {
    /// Keys that were acknowledged; the value of each is the key again.
    pub keys: Vec<String>,
    pub failures: Vec<String>,
    /// Connections that ended and were replaced.
    pub reconnects: u64,
    /// The longest wait for a write that was answered on the connection on which it was sent first.
    pub longest: Duration,
}

impl Writes {
    /// A writer for each of these nodes, which goes on with the next ones when its own ends.
    pub fn start(at: &[SocketAddr], namespace: &str, token: &str) -> Writes {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writer = |nth: usize| {
            let mut at = at.to_vec();
            at.rotate_left(nth);
            let (namespace, token) = (namespace.to_owned(), token.to_owned());
            let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
            std::thread::spawn(move || write(nth, at, &namespace, &token, &stop, &count))
        };
        let writers = (0..at.len()).map(writer).collect();
        let writes = Writes { stop, count, writers };
        writes.go_on(50);
        writes
    }

    /// Waits until so many more writes have been answered.
    #[track_caller]
    pub fn go_on(&self, writes: u64) {
        let until = self.count.load(Ordering::Relaxed) + writes;
        crate::soon("writes end", 40, || self.count.load(Ordering::Relaxed) >= until);
    }

    pub fn end(mut self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for writer in self.writers.drain(..) {
            let written = writer.join().expect("a writer counts failures and does not panic");
            all.keys.extend(written.keys);
            all.failures.extend(written.failures);
            all.reconnects += written.reconnects;
            all.longest = all.longest.max(written.longest);
        }
        all
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Written {
    #[track_caller]
    pub fn no_failures(&self, when: &str) {
        let shown = &self.failures[..self.failures.len().min(5)];
        let (failed, count) = (self.failures.len(), self.keys.len());
        assert!(failed == 0, "{failed} writes failed {when}, {count} did not; the first: {shown:#?}");
        let (longest, reconnects) = (self.longest, self.reconnects);
        crate::say(&format!("{when}: {count} writes, 0 failed, {reconnects} reconnects, the longest took {longest:?}"));
    }

    /// All that was acknowledged is there.
    #[track_caller]
    pub fn are_kept(&self, conn: &mut Resp) {
        for keys in self.keys.chunks(200) {
            let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
            let found = conn.ask(&words).expect("it answers");
            let right = Word::List(keys.iter().map(|key| Word::Bulk(key.clone())).collect());
            assert_eq!(found, right, "an acknowledged write is lost");
        }
    }
}

fn write(
    nth: usize,
    mut at: Vec<SocketAddr>,
    namespace: &str,
    token: &str,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> Written {
    let (mut told, mut conn, mut number) = (Written::default(), None, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let key = format!("key-{nth}-{number}");
        number += 1;
        let (begun, mut first) = (Instant::now(), true);
        let mut last = String::new();
        let answer = loop {
            if begun.elapsed() > ANSWERED_WITHIN {
                break Err(last);
            }
            let open = || Resp::open(at[0], namespace, token);
            match conn.take().map_or_else(open, Ok).and_then(|mut open| Ok((open.ask(&["SET", &key, &key])?, open))) {
                Ok((word, open)) => {
                    conn = Some(open);
                    break Ok(word);
                }
                Err(why) => {
                    last = why;
                    (first, told.reconnects) = (false, told.reconnects + 1);
                    at.rotate_left(1);
                    std::thread::sleep(PAUSE);
                }
            }
        };
        match answer {
            Ok(Word::Simple(_)) => told.keys.push(key),
            other => told.failures.push(format!("{key}: {other:?} after {:?}", begun.elapsed())),
        }
        if first {
            told.longest = told.longest.max(begun.elapsed());
        }
        count.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    told
}
