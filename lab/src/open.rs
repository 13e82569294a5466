//! Open-loop load: requests leave by the clock, whatever became of those before, and latency counts from the moment a
//! request was due (so a stalled server is not spared the requests of its stall). One thread sweeps all connections with
//! non-blocking calls: the generator shares the machine with what it measures and must cost little per request.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::command;
use crate::load::Target;

#[derive(Clone, Debug)]
pub struct Shape {
    pub connections: usize,
    pub value_bytes: usize,
    /// An answer counts as good until then.
    pub deadline: Duration,
    /// How long each rate lasts.
    pub bin: Duration,
}

/// What became of the requests that were due in one bin.
#[derive(Clone, Debug)]
pub struct Bin {
    pub offered: u64,
    /// Done within the deadline.
    pub good: u64,
    /// Done, but too late.
    pub late: u64,
    /// Surely not done, and said so.
    pub refused: u64,
    /// "Unknown" and other errors.
    pub failed: u64,
    /// Never answered, or never sent because the connection was full.
    pub unanswered: u64,
    /// A value that cannot be right.
    pub wrong: u64,
    /// Microseconds of what was done.
    pub done_us: Histogram<u64>,
    pub refused_us: Histogram<u64>,
    /// Of those refusals that waited for no earlier answer on their connection (answers come in order).
    pub refused_alone_us: Histogram<u64>,
    pub first_failure: Option<String>,
}

impl Default for Bin {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000, 2).expect("sound bounds");
        Self {
            offered: 0,
            good: 0,
            late: 0,
            refused: 0,
            failed: 0,
            unanswered: 0,
            wrong: 0,
            done_us: histogram(),
            refused_us: histogram(),
            refused_alone_us: histogram(),
            first_failure: None,
        }
    }
}

impl Bin {
    pub fn add(&mut self, other: &Bin) {
        self.offered += other.offered;
        self.good += other.good;
        self.late += other.late;
        self.refused += other.refused;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.wrong += other.wrong;
        self.done_us.add(&other.done_us).expect("the same bounds");
        self.refused_us.add(&other.refused_us).expect("the same bounds");
        self.refused_alone_us.add(&other.refused_alone_us).expect("the same bounds");
        self.first_failure = self.first_failure.take().or_else(|| other.first_failure.clone());
    }
}

/// Loads with one rate (requests a second) per bin, writes and reads in turn.
pub fn load(target: &Target, shape: &Shape, rates: &[f64]) -> Result<Vec<Bin>, String> {
    let mut links = (0..shape.connections).map(|i| Link::open(target, shape, i)).collect::<Result<Vec<_>, _>>()?;
    let mut bins = vec![Bin::default(); rates.len()];
    let begun = Instant::now();
    let mut next = 0usize;
    for (at, rate) in rates.iter().enumerate() {
        let start = begun + shape.bin * u32::try_from(at).unwrap_or(u32::MAX);
        let count = (rate * shape.bin.as_secs_f64()) as u64;
        let mut sent = 0u64;
        while sent < count {
            let now = Instant::now();
            let due = (now.saturating_duration_since(start).as_secs_f64() * rate) as u64 + 1;
            while sent < due.min(count) {
                let link = &mut links[next % shape.connections];
                let moment = start + Duration::from_secs_f64(sent as f64 / rate);
                link.push(moment, at, &mut bins[at]);
                next += 1;
                sent += 1;
            }
            sweep(&mut links, target, shape, &mut bins);
        }
        while Instant::now() < start + shape.bin {
            sweep(&mut links, target, shape, &mut bins);
        }
    }
    let patience = Instant::now() + DRAIN;
    while links.iter().any(|link| !link.pending.is_empty()) && Instant::now() < patience {
        sweep(&mut links, target, shape, &mut bins);
    }
    for link in &mut links {
        link.give_up(&mut bins);
    }
    Ok(bins)
}

/// After the last request, answers are waited for so long: past every deadline of the servers.
const DRAIN: Duration = Duration::from_millis(1500);
/// Between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_micros(50);
/// With so much unsent, a connection takes no more: it would just be this program's memory that grows.
const UNSENT_MAX: usize = 4 << 20;
/// Keys of a connection. Far more than it has under way, so that pipelined requests do not wait for each other.
const SLOTS: usize = 128;

fn sweep(links: &mut [Link], target: &Target, shape: &Shape, bins: &mut [Bin]) {
    let mut any = false;
    for link in links.iter_mut() {
        match link.exchange(shape, bins) {
            Ok(moved) => any |= moved,
            Err(why) => {
                link.give_up(bins);
                if let Some(bin) = bins.iter_mut().rev().find(|bin| bin.offered > 0) {
                    bin.first_failure.get_or_insert(why);
                }
                if let Ok(anew) = Link::open(target, shape, link.index) {
                    *link = anew;
                }
            }
        }
    }
    if !any {
        std::thread::sleep(SWEEP_PAUSE);
    }
}

/// Values of an earlier run may still be there: each connection's turns begin above those of all before it.
static RUNS: AtomicU64 = AtomicU64::new(1);
const RUN_SHIFT: u32 = 28;

struct Link {
    index: usize,
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    buffer: Vec<u8>,
    pending: VecDeque<Pending>,
    turn: u64,
    slots: Vec<Slot>,
    /// A whole write command, and where key and mark lie in it.
    template: Vec<u8>,
    key_at: usize,
    mark_at: usize,
}

struct Pending {
    due: Instant,
    bin: usize,
    slot: usize,
    /// Of a write its turn; of a read, 0.
    turn: u64,
    /// Of a read: nothing older was acknowledged when it left.
    floor: u64,
    /// Nothing was under way on its connection when it left.
    alone: bool,
}

/// What is known of a key.
#[derive(Clone, Default)]
struct Slot {
    acked: u64,
    /// At first one that was never issued, but is of this run.
    issued: u64,
    /// The latest turns that were refused: they must not be read.
    refused: VecDeque<u64>,
}

/// `connection:slot:turn:` in hexadecimal, at the beginning of each value.
const MARK_BYTES: usize = 8 + 1 + 4 + 1 + 12 + 1;
const KEY_BYTES: usize = 8 + 1 + 4;

fn key(index: usize, slot: usize) -> String {
    format!("{index:08x}:{slot:04x}")
}

impl Link {
    fn open(target: &Target, shape: &Shape, index: usize) -> Result<Link, String> {
        let addr: SocketAddr = target.addrs[index % target.addrs.len()];
        let mut stream = TcpStream::connect(addr).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        if let Some((user, password)) = &target.auth {
            let (mut words, mut answer) = (Vec::new(), [0u8; 64]);
            command(&mut words, &[b"AUTH", user.as_bytes(), password.as_bytes()]);
            stream.write_all(&words).map_err(|e| e.to_string())?;
            let n = stream.read(&mut answer).map_err(|e| e.to_string())?;
            if !answer[..n].starts_with(b"+OK") {
                return Err(format!("AUTH: {}", String::from_utf8_lossy(&answer[..n])));
            }
        }
        stream.set_nonblocking(true).map_err(|e| e.to_string())?;
        let turn = RUNS.fetch_add(1, Ordering::Relaxed) << RUN_SHIFT;
        let value = vec![b'x'; shape.value_bytes.max(MARK_BYTES)];
        let mut template = Vec::new();
        command(&mut template, &[b"SET", key(index, 0).as_bytes(), &value, b"EX", b"600"]);
        let find = |what: &[u8]| template.windows(what.len()).position(|w| w == what).expect("it was just put there");
        let (key_at, mark_at) = (find(key(index, 0).as_bytes()), find(&value));
        Ok(Link {
            index,
            stream,
            out: Vec::new(),
            sent: 0,
            buffer: Vec::new(),
            pending: VecDeque::new(),
            turn,
            slots: vec![Slot { issued: turn, ..Slot::default() }; SLOTS],
            template,
            key_at,
            mark_at,
        })
    }

    /// The next request, due at this moment.
    fn push(&mut self, due: Instant, bin: usize, counts: &mut Bin) {
        counts.offered += 1;
        if self.out.len() - self.sent > UNSENT_MAX {
            counts.unanswered += 1;
            return;
        }
        self.turn += 1;
        let alone = self.pending.is_empty();
        let at = (self.turn / 2) as usize;
        if self.turn % 2 == 1 {
            let (slot, turn) = (at % SLOTS, self.turn);
            let name = key(self.index, slot);
            self.template[self.key_at..self.key_at + KEY_BYTES].copy_from_slice(name.as_bytes());
            let mark = format!("{name}:{turn:012x}:");
            self.template[self.mark_at..self.mark_at + MARK_BYTES].copy_from_slice(mark.as_bytes());
            self.out.extend_from_slice(&self.template);
            self.slots[slot].issued = turn;
            self.pending.push_back(Pending { due, bin, slot, turn, floor: 0, alone });
        } else {
            let slot = (at + SLOTS / 2) % SLOTS;
            command(&mut self.out, &[b"GET", key(self.index, slot).as_bytes()]);
            let floor = self.slots[slot].acked;
            self.pending.push_back(Pending { due, bin, slot, turn: 0, floor, alone });
        }
    }

    /// Sends what goes, takes what came. True if anything moved.
    fn exchange(&mut self, shape: &Shape, bins: &mut [Bin]) -> Result<bool, String> {
        let mut moved = false;
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.to_string()),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > UNSENT_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        if self.pending.is_empty() {
            return Ok(moved);
        }
        let have = self.buffer.len();
        self.buffer.resize(have + (64 << 10), 0);
        let read = self.stream.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(_) => moved = true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(moved),
            Err(e) => return Err(e.to_string()),
        }
        let now = Instant::now();
        let mut at = 0;
        while let Some((answer, len)) = parse(&self.buffer[at..])? {
            let pending = self.pending.pop_front().ok_or("an answer that nobody asked for")?;
            let slot = &mut self.slots[pending.slot];
            slot.answered(self.index, &pending, &answer, now, shape, &mut bins[pending.bin]);
            at += len;
        }
        self.buffer.drain(..at);
        Ok(moved)
    }

    fn give_up(&mut self, bins: &mut [Bin]) {
        for pending in self.pending.drain(..) {
            bins[pending.bin].unanswered += 1;
        }
        self.out.clear();
        self.buffer.clear();
        self.sent = 0;
    }
}

impl Slot {
    fn answered(&mut self, index: usize, asked: &Pending, answer: &Answer, now: Instant, shape: &Shape, bin: &mut Bin) {
        let took = now.saturating_duration_since(asked.due);
        let us = (took.as_micros() as u64).max(1);
        match answer {
            Answer::Error(text) if text.starts_with("-BUSY") => {
                bin.refused += 1;
                bin.refused_us.saturating_record(us);
                if asked.alone {
                    bin.refused_alone_us.saturating_record(us);
                }
                if asked.turn > 0 {
                    self.refused.push_back(asked.turn);
                    if self.refused.len() > REFUSED_KEPT {
                        self.refused.pop_front();
                    }
                }
                return;
            }
            Answer::Error(text) => {
                bin.failed += 1;
                bin.first_failure.get_or_insert_with(|| (*text).to_owned());
                return;
            }
            Answer::Ok => self.acked = self.acked.max(asked.turn),
            Answer::Nothing => bin.wrong += u64::from(asked.floor > 0),
            Answer::Value(value) => bin.wrong += u64::from(!self.is_right(index, asked, value, shape)),
        }
        bin.done_us.saturating_record(us);
        if took <= shape.deadline { bin.good += 1 } else { bin.late += 1 }
    }

    /// Whole, of this key, no older than what was acknowledged before, and not refused.
    fn is_right(&self, index: usize, asked: &Pending, value: &[u8], shape: &Shape) -> bool {
        let name = key(index, asked.slot);
        let turn = value.get(KEY_BYTES + 1..MARK_BYTES - 1).and_then(|hex| std::str::from_utf8(hex).ok());
        let Some(turn) = turn.and_then(|hex| u64::from_str_radix(hex, 16).ok()) else { return false };
        if asked.floor == 0 && turn >> RUN_SHIFT < self.issued >> RUN_SHIFT {
            // Of an earlier run.
            return true;
        }
        value.len() == shape.value_bytes.max(MARK_BYTES)
            && value.starts_with(name.as_bytes())
            && value[MARK_BYTES..].iter().all(|byte| *byte == b'x')
            && (asked.floor..=self.issued).contains(&turn)
            && !self.refused.contains(&turn)
    }
}

/// Of each key.
const REFUSED_KEPT: usize = 8;

enum Answer<'a> {
    Ok,
    Error(&'a str),
    Nothing,
    Value(&'a [u8]),
}

/// The answer at the front and its length; none if it is not all there.
fn parse(bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, String> {
    // Lines of answers are short.
    let Some(end) = bytes.iter().take(1024).position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[..end.saturating_sub(1)]).map_err(|e| e.to_string())?;
    match bytes[0] {
        b'+' => Ok(Some((Answer::Ok, end + 1))),
        b'-' => Ok(Some((Answer::Error(line), end + 1))),
        b'$' if line == "$-1" => Ok(Some((Answer::Nothing, end + 1))),
        b'$' => {
            let len: usize = line[1..].parse().map_err(|_| format!("not a length: {line}"))?;
            let whole = end + 1 + len + 2;
            Ok(bytes.get(end + 1..whole).map(|value| (Answer::Value(&value[..len]), whole)))
        }
        _ => Err(format!("not an answer: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_and_wait_until_they_are_whole() {
        assert!(matches!(parse(b"+OK\r\n-B"), Ok(Some((Answer::Ok, 5)))));
        assert!(matches!(parse(b"-BUSY no\r\n"), Ok(Some((Answer::Error("-BUSY no"), 10)))));
        assert!(matches!(parse(b"$-1\r\n"), Ok(Some((Answer::Nothing, 5)))));
        assert!(matches!(parse(b"$3\r\nabc\r"), Ok(None)));
        assert!(matches!(parse(b"$3\r\nabc\r\n"), Ok(Some((Answer::Value(b"abc"), 9)))));
        assert!(parse(b"?\r\n").is_err());
    }

    #[test]
    fn what_cannot_be_right_is_seen() {
        let shape = Shape { connections: 1, value_bytes: 64, deadline: Duration::from_millis(100), bin: DRAIN };
        let slot = Slot { acked: 7, issued: 9, refused: [8].into() };
        let asked = Pending { due: Instant::now(), bin: 0, slot: 3, turn: 0, floor: 7, alone: true };
        let value = |slot: usize, turn: u64| {
            let mut value = format!("{}:{turn:012x}:", key(1, slot)).into_bytes();
            value.resize(64, b'x');
            value
        };
        assert!(slot.is_right(1, &asked, &value(3, 7), &shape));
        assert!(slot.is_right(1, &asked, &value(3, 9), &shape));
        for (wrong, why) in [
            (value(3, 5), "older than what was acknowledged"),
            (value(3, 8), "refused"),
            (value(3, 10), "never written"),
            (value(4, 7), "of another key"),
            (value(3, 7 << RUN_SHIFT), "of a run to come"),
            (value(3, 7)[..63].to_vec(), "cut"),
        ] {
            assert!(!slot.is_right(1, &asked, &wrong, &shape), "{why}");
        }
    }
}
