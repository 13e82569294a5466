//! A queue of jobs: each is given to one worker at a time, until that one says that it is done.
//!
//! - A **job** waits, is to come later, is held by a worker, or is dead. When what it is waiting for has come, by the group's clock,
//!   the entry that shows it moves the job on (`space.rs`): replicas see no clock of their own, and whoever watches the key is woken.
//! - A **ticket** (`7.2`: the job 7, given for the second time) is what a worker has of it. One of which the time is over is refused as
//!   soon as somebody else has a newer one.
//! - A **repeat** puts a job at times as cron has them. Those are times of the wall clock: the doors say what it shows, and the queue
//!   keeps how far the group's clock is from it.
//!
//! Everything lies in pages: a copy has a pointer for each, and a change under a copy copies the pages that it touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::checksum::place_hash;
use base::schedule::Schedule;
use bytes::Bytes;

use super::limits::*;
use super::stream::Id;
use super::stream::paged::Paged;

pub mod wire;

/// The level from which there are queues (`base/src/level.rs`): no function of an older level makes one.
pub const LEVEL: u32 = 13;

/// What matters most comes first: 0 to 9, as at the edge.
pub const PRIORITY_MAX: u8 = 9;
pub const PRIORITY: u8 = 5;

#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub payload: Bytes,
    pub priority: u8,
    /// How often it may be given before it is dead, and how often it was since it was put or retried.
    pub tries_max: u32,
    pub tries: u32,
    /// How often it was given at all: so no ticket is given twice.
    pub turns: u32,
    /// When it was put, by the group's clock.
    pub put_at: u64,
    pub state: State,
    /// What its last worker said.
    pub why: Bytes,
}

/// Moments are of the group's clock, milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Since then.
    Waiting(u64),
    /// Until then.
    Later(u64),
    /// With a worker, until then.
    Held(u64),
    /// Since then: nobody gets it.
    Dead(u64),
}

/// Which jobs are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Waiting,
    Later,
    Held,
    Dead,
}

/// What a worker has of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    pub job: u64,
    pub turn: u32,
}

/// What is put.
#[derive(Clone, PartialEq, Debug)]
pub struct New {
    pub payload: Bytes,
    pub priority: u8,
    pub tries_max: u32,
    /// Milliseconds.
    pub delay: u64,
}

/// Puts a job again and again.
#[derive(Clone, PartialEq, Debug)]
pub struct Repeat {
    /// As it was said: of cron, or `every MS`.
    pub text: Bytes,
    pub job: New,
    /// The next time, milliseconds since 1970: it only rises.
    pub next: u64,
    /// The job that it put last.
    pub last: u64,
}

/// How the wall clock stands to the group's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wall {
    /// Milliseconds since 1970 when the group's clock shows 0.
    pub ahead: u64,
    /// When this was heard, by the group's clock.
    pub heard: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub put: u64,
    pub done: u64,
    /// Tries that their workers called failed, ...
    pub failed: u64,
    /// ... and those that were over before their workers said anything.
    pub lapsed: u64,
    pub died: u64,
    /// Times of repeats at which the last job was still waiting, or the queue full.
    pub skipped: u64,
}

/// What a key was said for.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    key: Bytes,
    job: u64,
    end: u64,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Queue {
    /// The last id that was given.
    last: u64,
    /// All jobs, by id.
    jobs: Paged<Job>,
    /// Jobs that wait, in the order in which they are given: by priority, then by id ...
    waiting: Paged<()>,
    /// ... and by since when they wait. These and the next ones: by moment, then by id.
    since: Paged<()>,
    later: Paged<()>,
    held: Paged<()>,
    dead: Paged<()>,
    /// Keys of puts, by their hash; and when each may be forgotten, by moment and job.
    known: Paged<Arc<Vec<Known>>>,
    known_ends: Paged<Bytes>,
    repeats: BTreeMap<Bytes, Arc<Repeat>>,
    wall: Wall,
    counts: Counts,
    bytes: usize,
}

impl Ticket {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (job, turn) = std::str::from_utf8(text).ok()?.split_once('.')?;
        Some(Self { job: job.parse().ok()?, turn: turn.parse().ok()? })
    }
}

impl Kind {
    pub fn parse(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"waiting" => Self::Waiting,
            b"later" => Self::Later,
            b"held" => Self::Held,
            b"dead" => Self::Dead,
            _ => return None,
        })
    }
}

impl Job {
    fn bytes(&self) -> usize {
        self.payload.len() + self.why.len() + QUEUE_JOB_BYTES
    }
}

impl Known {
    fn bytes(&self) -> usize {
        self.key.len() + QUEUE_KNOWN_BYTES
    }
}

impl Repeat {
    fn bytes(&self) -> usize {
        self.text.len() + self.job.payload.len() + QUEUE_JOB_BYTES
    }
}

/// Times of cron, or `every MS`; none if it is neither, with why.
pub fn schedule_of(text: &[u8]) -> Result<Schedule, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text".to_owned())?;
    match text.strip_prefix("every ") {
        Some(ms) => match ms.parse() {
            Ok(ms) if ms >= QUEUE_EVERY_MIN_MS => Ok(Schedule::Every(ms)),
            _ => Err(format!("{text:?}: `every` takes milliseconds, {QUEUE_EVERY_MIN_MS} at least")),
        },
        None => Schedule::parse(text),
    }
}

/// Where a job stands among those that are due at some moments.
const fn at(moment: u64, id: u64) -> Id {
    Id { ms: moment, seq: id }
}

const fn by_id(id: u64) -> Id {
    at(0, id)
}

fn rank(priority: u8, id: u64) -> Id {
    at(u64::from(PRIORITY_MAX - priority.min(PRIORITY_MAX)), id)
}

impl Queue {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn len_of(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    fn of(&self, kind: Kind) -> &Paged<()> {
        match kind {
            Kind::Waiting => &self.waiting,
            Kind::Later => &self.later,
            Kind::Held => &self.held,
            Kind::Dead => &self.dead,
        }
    }

    /// Jobs of a kind in their order, from a place on; each with its place and id.
    pub fn list(&self, kind: Kind, from: Id) -> impl Iterator<Item = (Id, u64, &Job)> {
        self.of(kind).from(from).filter_map(|(place, ())| Some((*place, place.seq, self.job(place.seq)?)))
    }

    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.get(by_id(id))
    }

    pub fn repeats(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Repeat)> {
        self.repeats.iter().map(|(name, repeat)| (name, &**repeat))
    }

    pub fn has_repeat(&self, name: &[u8]) -> bool {
        self.repeats.contains_key(name)
    }

    pub fn wall(&self) -> Wall {
        self.wall
    }

    /// Since when the one waits that has waited longest.
    pub fn oldest(&self) -> Option<u64> {
        self.since.first().map(|id| id.ms)
    }

    /// When the next job is due that is to come later, or is held by a worker, or is put by a repeat; 0: none is.
    pub fn next_end(&self) -> u64 {
        let jobs = [&self.later, &self.held].into_iter().filter_map(|all| all.first()).map(|id| id.ms);
        let repeats = self.repeats.values().map(|repeat| self.clock_of(repeat.next));
        jobs.chain(repeats).min().unwrap_or(0)
    }

    /// What the group's clock shows at a moment of the wall clock. It is never 0, which would be "never".
    fn clock_of(&self, wall_ms: u64) -> u64 {
        wall_ms.saturating_sub(self.wall.ahead).max(1)
    }

    /// Is this reading of the wall clock worth to be kept? Doors whose clocks differ do not take turns at it.
    pub fn is_news(&self, wall_ms: u64, clock: u64) -> bool {
        let ahead = wall_ms.saturating_sub(clock);
        let differs = ahead.abs_diff(self.wall.ahead) > QUEUE_WALL_MS;
        !self.repeats.is_empty() && differs && clock.saturating_sub(self.wall.heard) >= QUEUE_WALL_HEARD_MS
    }

    /// The wall clock shows this.
    pub fn hear(&mut self, wall_ms: u64, clock: u64) {
        self.wall = Wall { ahead: wall_ms.saturating_sub(clock), heard: clock };
    }

    /// The job that this key was said for, if that is remembered.
    pub fn known(&self, key: &[u8], clock: u64) -> Option<u64> {
        let all = self.known.get(by_id(place_hash(key)))?;
        all.iter().find(|known| known.key == key && known.end > clock).map(|known| known.job)
    }

    /// No more keys can be remembered.
    pub fn is_full_of_keys(&self, clock: u64) -> bool {
        self.known_ends.len() >= QUEUE_KEYS_MAX && self.known_ends.first().is_some_and(|end| end.ms > clock)
    }

    /// Puts a job; its id.
    pub fn put(&mut self, new: New, clock: u64) -> u64 {
        let New { payload, priority, tries_max, delay } = new;
        self.last += 1;
        self.counts.put += 1;
        let state = if delay == 0 { State::Waiting(clock) } else { State::Later(clock.saturating_add(delay)) };
        let job = Job { payload, priority, tries_max, tries: 0, turns: 0, put_at: clock, state, why: Bytes::new() };
        self.restore(self.last, job);
        self.last
    }

    /// From a snapshot: a job with its id.
    fn restore(&mut self, id: u64, job: Job) {
        self.bytes += job.bytes();
        self.link(id, job.priority, job.state);
        self.jobs.insert(by_id(id), job);
    }

    /// Remembers what a key was said for, and forgets some of those whose time is over.
    pub fn remember(&mut self, key: Bytes, job: u64, end: u64, clock: u64) {
        for _ in 0..QUEUE_KEYS_FORGOTTEN {
            match self.known_ends.first() {
                Some(at) if at.ms <= clock => self.forget(at),
                _ => break,
            }
        }
        // It may have been said before, for a job whose time is over.
        let old = self.known.get(by_id(place_hash(&key))).and_then(|all| all.iter().find(|known| known.key == key));
        if let Some(known) = old {
            self.forget(at(known.end, known.job));
        }
        self.know(Known { key, job, end });
    }

    fn know(&mut self, known: Known) {
        let hash = by_id(place_hash(&known.key));
        self.bytes += known.bytes();
        self.known_ends.insert(at(known.end, known.job), known.key.clone());
        match self.known.get_mut(hash) {
            Some(all) => Arc::make_mut(all).push(known),
            None => drop(self.known.insert(hash, Arc::new(vec![known]))),
        }
    }

    fn forget(&mut self, end: Id) {
        let Some(key) = self.known_ends.remove(end) else { return };
        let hash = by_id(place_hash(&key));
        let Some(all) = self.known.get_mut(hash) else { return };
        let all = Arc::make_mut(all);
        if let Some(nth) = all.iter().position(|known| known.key == key) {
            self.bytes -= all.swap_remove(nth).bytes();
        }
        if all.is_empty() {
            self.known.remove(hash);
        }
    }

    /// Gives the next job to a worker, until then.
    pub fn take(&mut self, until: u64) -> Option<(Ticket, &Job)> {
        let id = self.waiting.first()?.seq;
        self.set_state(id, State::Held(until));
        let job = self.jobs.get_mut(by_id(id)).expect("what waits is a job");
        (job.tries, job.turns) = (job.tries + 1, job.turns + 1);
        Some((Ticket { job: id, turn: job.turns }, job))
    }

    /// The payload of the next one.
    pub fn next(&self) -> Option<&Job> {
        self.job(self.waiting.first()?.seq)
    }

    /// The job of a ticket, if nobody has a newer one.
    fn of_ticket(&self, ticket: Ticket) -> Option<&Job> {
        self.job(ticket.job).filter(|job| job.turns == ticket.turn)
    }

    /// Is it held with this ticket?
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.of_ticket(ticket).is_some_and(|job| matches!(job.state, State::Held(_)))
    }

    /// May it be said to be done with this ticket? Its time may be over, if only nobody else has got it since.
    pub fn can_end(&self, ticket: Ticket) -> bool {
        self.of_ticket(ticket).is_some_and(|job| !matches!(job.state, State::Later(_)))
    }

    pub fn renew(&mut self, ticket: Ticket, until: u64) {
        self.set_state(ticket.job, State::Held(until));
    }

    pub fn done(&mut self, ticket: Ticket) {
        self.counts.done += 1;
        self.remove(ticket.job);
    }

    /// Its worker did not do it. It comes again after `delay`, or is dead.
    pub fn fail(&mut self, ticket: Ticket, delay: Option<u64>, why: Bytes, for_good: bool, clock: u64) -> bool {
        self.counts.failed += 1;
        let job = self.job(ticket.job).expect("its ticket holds it");
        let is_dead = for_good || job.tries >= job.tries_max;
        let delay = delay.unwrap_or_else(|| backoff(job.tries));
        let state = match delay {
            _ if is_dead => State::Dead(clock),
            0 => State::Waiting(clock),
            delay => State::Later(clock.saturating_add(delay)),
        };
        self.counts.died += u64::from(is_dead);
        self.say(ticket.job, why);
        self.set_state(ticket.job, state);
        is_dead
    }

    /// Its worker never began with it: as if it had not been given.
    pub fn back(&mut self, ticket: Ticket, clock: u64) {
        self.set_state(ticket.job, State::Waiting(clock));
        let job = self.jobs.get_mut(by_id(ticket.job)).expect("its ticket holds it");
        job.tries = job.tries.saturating_sub(1);
    }

    /// A job that is dead waits again, as if it had been put now. False: it is not dead.
    pub fn retry(&mut self, id: u64, clock: u64) -> bool {
        if !self.job(id).is_some_and(|job| matches!(job.state, State::Dead(_))) {
            return false;
        }
        self.set_state(id, State::Waiting(clock));
        self.jobs.get_mut(by_id(id)).expect("it was just seen").tries = 0;
        true
    }

    /// Takes a job out, whatever it is doing. False: there is none.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(job) = self.jobs.remove(by_id(id)) else { return false };
        self.unlink(id, job.priority, job.state);
        self.bytes -= job.bytes();
        true
    }

    /// Puts a job at these times, instead of what has the name.
    pub fn repeat(&mut self, name: Bytes, repeat: Repeat) {
        self.unrepeat(&name);
        self.bytes += name.len() + repeat.bytes();
        self.repeats.insert(name, Arc::new(repeat));
    }

    pub fn unrepeat(&mut self, name: &[u8]) -> bool {
        let Some(repeat) = self.repeats.remove(name) else { return false };
        self.bytes -= name.len() + repeat.bytes();
        true
    }

    /// Moves on what is due, so many jobs at most, the earliest first; how many.
    pub fn settle(&mut self, clock: u64, most: usize) -> usize {
        let mut moved = 0;
        while moved < most {
            let first = |all: &Paged<()>| all.first().filter(|id| id.ms <= clock);
            if let Some(due) = first(&self.later) {
                self.set_state(due.seq, State::Waiting(due.ms));
            } else if let Some(due) = first(&self.held) {
                self.lapse(due.seq, due.ms);
            } else if let Some(name) = self.next_repeat(clock) {
                self.put_again(&name, clock);
            } else {
                break;
            }
            moved += 1;
        }
        moved
    }

    /// The time of its worker is over.
    fn lapse(&mut self, id: u64, then: u64) {
        let job = self.job(id).expect("what is held is a job");
        let is_dead = job.tries >= job.tries_max;
        self.counts.lapsed += 1;
        self.counts.died += u64::from(is_dead);
        self.say(id, Bytes::from_static(b"its worker said nothing in time"));
        self.set_state(id, if is_dead { State::Dead(then) } else { State::Waiting(then) });
    }

    fn next_repeat(&self, clock: u64) -> Option<Bytes> {
        let due = |repeat: &Repeat| self.clock_of(repeat.next) <= clock;
        self.repeats.iter().find(|(_, repeat)| due(repeat)).map(|(name, _)| name.clone())
    }

    /// The time of a repeat has come. Of those that have passed unseen the last one counts; while the job before it waits there is none
    /// beside it.
    fn put_again(&mut self, name: &Bytes, clock: u64) {
        let Some(repeat) = self.repeats.get(name).map(Arc::clone) else { return };
        let wall_ms = self.wall.ahead.saturating_add(clock).max(repeat.next);
        let next = schedule_of(&repeat.text).ok().and_then(|schedule| schedule.next_after(wall_ms));
        let Some(next) = next else {
            self.unrepeat(name);
            return;
        };
        let waits = |job: &Job| matches!(job.state, State::Waiting(_) | State::Later(_));
        let is_full = self.bytes + repeat.bytes() > VALUE_BYTES_MAX;
        let mut last = repeat.last;
        if is_full || self.job(last).is_some_and(waits) {
            self.counts.skipped += 1;
        } else {
            last = self.put(repeat.job.clone(), clock);
        }
        if let Some(repeat) = self.repeats.get_mut(name) {
            let repeat = Arc::make_mut(repeat);
            (repeat.next, repeat.last) = (next, last);
        }
    }

    /// What is said of a job by its last worker.
    fn say(&mut self, id: u64, why: Bytes) {
        let job = self.jobs.get_mut(by_id(id)).expect("whoever says something of a job has seen it");
        self.bytes = self.bytes + why.len() - job.why.len();
        job.why = why;
    }

    fn set_state(&mut self, id: u64, state: State) {
        let job = self.jobs.get_mut(by_id(id)).expect("whoever changes a job has seen it");
        let (priority, old) = (job.priority, std::mem::replace(&mut job.state, state));
        self.unlink(id, priority, old);
        self.link(id, priority, state);
    }

    fn link(&mut self, id: u64, priority: u8, state: State) {
        match state {
            State::Waiting(since) => {
                self.waiting.insert(rank(priority, id), ());
                self.since.insert(at(since, id), ());
            }
            State::Later(until) => drop(self.later.insert(at(until, id), ())),
            State::Held(until) => drop(self.held.insert(at(until, id), ())),
            State::Dead(since) => drop(self.dead.insert(at(since, id), ())),
        }
    }

    fn unlink(&mut self, id: u64, priority: u8, state: State) {
        match state {
            State::Waiting(since) => {
                self.waiting.remove(rank(priority, id));
                self.since.remove(at(since, id));
            }
            State::Later(until) => drop(self.later.remove(at(until, id))),
            State::Held(until) => drop(self.held.remove(at(until, id))),
            State::Dead(since) => drop(self.dead.remove(at(since, id))),
        }
    }
}

/// How long a job rests that was tried so often, if its worker does not say.
fn backoff(tries: u32) -> u64 {
    (QUEUE_BACKOFF_MS << tries.saturating_sub(1).min(20)).min(QUEUE_BACKOFF_MAX_MS)
}
