//! Mail while one node after the other is killed with SIGKILL, five seconds apart: senders go through all nodes and send what was not
//! answered again, as it was; readers take and delete it through all nodes. What was answered 250 must have been seen, or be there, when
//! it is over; nothing twice in one mailbox, and nothing again of which the deletion was acknowledged. Every letter has an id.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::letters::{DOMAIN, Door, PASSWORD};
use crate::peers::wait_until;
use crate::report::{Figure, Report};

use super::mail::Office;

/// Each has a mailbox.
const SENDERS: usize = 6;
const READERS: usize = 2;
const KILL_EVERY: Duration = Duration::from_secs(5);
/// Longer than any answer should take.
const WITHIN: Duration = Duration::from_secs(30);
/// Between two letters of a sender, and two mailboxes of a reader: nodes and clients share one machine.
const REST: Duration = Duration::from_millis(60);

#[derive(Default)]
struct Shared {
    doors: Vec<Door>,
    stop: AtomicBool,
    /// Of each node: how often it was killed, and one more while it is away, so that it is odd then.
    lives: Vec<AtomicU64>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Answered 250.
    taken: BTreeSet<String>,
    /// Read by somebody.
    read: BTreeSet<String>,
    /// The deletion was acknowledged.
    deleted: BTreeSet<String>,
    doubled: BTreeSet<String>,
    /// Read after their deletion was acknowledged.
    back: BTreeSet<String>,
    /// Tries that were not answered as they should be, and those of them through nodes that lived throughout.
    failed: u64,
    failed_alive: u64,
    why: Option<String>,
    slowest: Duration,
}

/// One session of SMTP or POP3.
struct Session {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Session {
    fn open(door: SocketAddr) -> Result<Self, String> {
        let to = TcpStream::connect_timeout(&door, Duration::from_secs(2)).map_err(|e| e.to_string())?;
        to.set_read_timeout(Some(WITHIN)).map_err(|e| e.to_string())?;
        to.set_nodelay(true).map_err(|e| e.to_string())?;
        let from = BufReader::new(to.try_clone().map_err(|e| e.to_string())?);
        let mut session = Self { from, to };
        session.line()?;
        Ok(session)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("the connection ended".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The last line of the answer, which must begin so.
    fn say(&mut self, line: &str, expect: &str) -> Result<String, String> {
        self.to.write_all(format!("{line}\r\n").as_bytes()).map_err(|e| e.to_string())?;
        loop {
            let answer = self.line()?;
            // `250-SIZE` goes on, `250 SIZE` does not.
            if answer.as_bytes().get(3) == Some(&b'-') && answer.as_bytes()[0].is_ascii_digit() {
                continue;
            }
            return if answer.starts_with(expect) { Ok(answer) } else { Err(format!("{line}: {answer}")) };
        }
    }

    fn lines(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        loop {
            match self.line()? {
                end if end == "." => return Ok(lines),
                line => lines.push(line),
            }
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// One session through a node; a failure is counted.
    fn through<T>(&self, turn: usize, session: impl FnOnce(Door) -> Result<T, String>) -> Option<T> {
        let node = turn % self.doors.len();
        let life = || self.lives[node].load(Ordering::SeqCst);
        let before = life();
        let why = match session(self.doors[node]) {
            Ok(done) => return Some(done),
            Err(why) => why,
        };
        let mut seen = self.seen();
        seen.failed += 1;
        if before % 2 == 0 && life() == before {
            seen.failed_alive += 1;
            seen.why.get_or_insert(why);
        }
        None
    }
}

fn send(door: Door, user: usize, id: &str) -> Result<(), String> {
    let mut session = Session::open(door.smtp)?;
    session.say("EHLO lab.test", "250")?;
    session.say("MAIL FROM:<lab@elsewhere.test>", "250")?;
    session.say(&format!("RCPT TO:<u{user}@{DOMAIN}>"), "250")?;
    session.say("DATA", "354")?;
    let text = format!("Message-ID: <{id}@lab.test>\r\nSubject: {id}\r\n\r\nid={id}\r\n.");
    session.say(&text, "250")?;
    // It is taken, whatever comes of the goodbye.
    _ = session.say("QUIT", "221");
    Ok(())
}

/// Reads a mailbox and deletes what it has read: ids with how often each is there, and whether all of them are deleted.
fn read(door: Door, user: usize, deletes: bool) -> Result<(BTreeMap<String, usize>, bool), String> {
    let mut session = Session::open(door.pop)?;
    session.say(&format!("USER u{user}@{DOMAIN}"), "+OK")?;
    session.say(&format!("PASS {PASSWORD}"), "+OK")?;
    session.say("UIDL", "+OK")?;
    let numbers: Vec<String> =
        session.lines()?.iter().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    let mut ids = BTreeMap::new();
    for number in numbers {
        // Another session may have deleted it, or both nodes that have it are away.
        match session.say(&format!("RETR {number}"), "+OK") {
            Ok(_) => (),
            Err(why) if why.contains(": -ERR") => continue,
            Err(why) => return Err(why),
        }
        let text = session.lines()?;
        // The first letter of all, which showed that mail is taken, has none.
        let Some(id) = text.iter().find_map(|line| line.strip_prefix("id=")) else { continue };
        *ids.entry(id.to_owned()).or_default() += 1;
        if deletes {
            session.say(&format!("DELE {number}"), "+OK")?;
        }
    }
    let is_deleted = session.say("QUIT", "+OK").is_ok() && deletes;
    Ok((ids, is_deleted))
}

/// Sends one letter after the other through one node after the other. One that was not answered is sent again, as it was, through the
/// next: so it is taken once, whoever heard of it.
fn sender(index: usize, shared: &Shared) {
    let (mut turn, mut count) = (index, 0);
    while !shared.stops() {
        count += 1;
        let (id, begun) = (format!("{index}-{count}"), Instant::now());
        loop {
            turn += 1;
            if shared.through(turn, |door| send(door, index, &id)).is_some() {
                break;
            }
            if shared.stops() {
                return;
            }
            std::thread::sleep(REST);
        }
        let mut seen = shared.seen();
        seen.slowest = seen.slowest.max(begun.elapsed());
        seen.taken.insert(id);
        drop(seen);
        std::thread::sleep(REST);
    }
}

fn reader(index: usize, shared: &Shared) {
    let mut turn = index;
    while !shared.stops() {
        turn += 1;
        // Each reader has mailboxes of its own.
        let user = (turn * READERS + index) % SENDERS;
        // What was deleted before this one looks must not be there.
        let deleted = shared.seen().deleted.clone();
        if let Some((ids, is_deleted)) = shared.through(turn, |door| read(door, user, true)) {
            shared.seen().hear(&ids, &deleted, is_deleted);
        }
        std::thread::sleep(REST);
    }
}

impl Seen {
    fn hear(&mut self, ids: &BTreeMap<String, usize>, deleted: &BTreeSet<String>, is_deleted: bool) {
        for (id, count) in ids {
            if *count > 1 {
                self.doubled.insert(id.clone());
            }
            if deleted.contains(id) {
                self.back.insert(id.clone());
            }
            if is_deleted {
                self.deleted.insert(id.clone());
            }
            self.read.insert(id.clone());
        }
    }

    fn report(&self, kills: u64, places: usize) -> Report {
        let mut report = Report::new("mailkills");
        let missing = self.taken.difference(&self.read).count();
        let mut tell = |measure: &str, unit: &str, value: f64| {
            report.figures.push(Figure::new(measure, unit, value, "none", None));
        };
        tell("nodes killed", "kills", kills as f64);
        tell("answered 250", "letters", self.taken.len() as f64);
        tell("deleted, acknowledged", "letters", self.deleted.len() as f64);
        tell("answered 250 and missing", "letters", missing as f64);
        tell("in a mailbox twice", "letters", self.doubled.len() as f64);
        tell("back after their deletion", "letters", self.back.len() as f64);
        tell("tries that failed", "sessions", self.failed as f64);
        tell("of these through nodes that lived throughout", "sessions", self.failed_alive as f64);
        tell("slowest letter, with all its tries", "ms", self.slowest.as_secs_f64() * 1e3);
        report.notes.extend(self.why.iter().map(|why| format!("first that failed through a live node: {why}")));
        report.notes.push(format!("at the end all mailboxes were read through each of {places} nodes"));
        report
    }
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let Office { mut cluster, post } = Office::start_with(SENDERS)?;
    let lives = post.doors.iter().map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared { doors: post.doors.clone(), lives, ..Shared::default() });
    let spawn = |at: fn(usize, &Shared), index: usize| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || at(index, &shared))
    };
    let clients: Vec<_> =
        (0..SENDERS).map(|i| spawn(sender, i)).chain((0..READERS).map(|i| spawn(reader, i))).collect();
    let (begun, mut kills) = (Instant::now(), 0u64);
    // As chance would have it, and the same in each run.
    let mut draw = base::Rng::new(1);
    let mut all_killed = Ok(());
    while all_killed.is_ok() && begun.elapsed().as_secs() < plan.seconds * plan.rounds as u64 {
        let killed = Instant::now();
        let victim = usize::try_from(draw.below(shared.doors.len() as u64)).unwrap_or(0);
        shared.lives[victim].fetch_add(1, Ordering::SeqCst);
        all_killed = cluster.kill(victim).and_then(|()| {
            kills += 1;
            cluster.wait_restarted(victim)?;
            wait_until("mail is served there again", || crate::postfix::greets(shared.doors[victim]))
        });
        shared.lives[victim].fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(KILL_EVERY.saturating_sub(killed.elapsed()));
    }
    shared.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().map_err(|_| "a client panicked")?;
    }
    all_killed?;
    let deleted = shared.seen().deleted.clone();
    for door in &shared.doors {
        for user in 0..SENDERS {
            wait_until("the mailboxes can be read", || match read(*door, user, false) {
                Ok((ids, _)) => {
                    shared.seen().hear(&ids, &deleted, false);
                    true
                }
                Err(_) => false,
            })?;
        }
    }
    let report = shared.seen().report(kills, shared.doors.len());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_doubled_or_back_is_counted() {
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let mut seen = Seen { taken: set(&["a", "b", "c", "d"]), ..Seen::default() };
        let listed = |ids: &[(&str, usize)]| ids.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect();
        seen.hear(&listed(&[("a", 1), ("b", 2)]), &set(&[]), true);
        let deleted = seen.deleted.clone();
        seen.hear(&listed(&[("a", 1), ("c", 1)]), &deleted, false);
        assert_eq!((seen.doubled.clone(), seen.back.clone(), seen.deleted.len()), (set(&["b"]), set(&["a"]), 2));
        let figures = seen.report(1, 3).figures;
        let of = |name: &str| figures.iter().find(|figure| figure.measure == name).map(|figure| figure.coppice);
        assert_eq!(of("answered 250 and missing"), Some(1.0), "d");
    }
}
