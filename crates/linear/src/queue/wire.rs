//! A queue as texts, for a snapshot or a dump: its numbers, its repeats and keys, and then its jobs, some in each text.

use bytes::Bytes;
use prost::Message as _;

use super::{Counts, Job, Known, New, Queue, Repeat, State, Wall, by_id, schedule_of};
use crate::limits::QUEUE_TRIES_MAX;

#[derive(Clone, PartialEq, prost::Message)]
struct WireHead {
    #[prost(uint64, tag = "1")]
    last: u64,
    /// What the group's clock shows, for who loads it where it shows something else.
    #[prost(uint64, tag = "2")]
    clock: u64,
    #[prost(uint64, tag = "3")]
    wall_ahead: u64,
    #[prost(uint64, tag = "4")]
    wall_heard: u64,
    /// Put, done, failed, lapsed, died, skipped.
    #[prost(uint64, repeated, tag = "5")]
    counts: Vec<u64>,
    #[prost(message, repeated, tag = "6")]
    repeats: Vec<WireRepeat>,
    #[prost(message, repeated, tag = "7")]
    known: Vec<WireKnown>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireRepeat {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    text: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    payload: Bytes,
    #[prost(uint32, tag = "4")]
    priority: u32,
    #[prost(uint32, tag = "5")]
    tries_max: u32,
    #[prost(uint64, tag = "6")]
    next: u64,
    #[prost(uint64, tag = "7")]
    last: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireKnown {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(uint64, tag = "2")]
    job: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireJob {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    payload: Bytes,
    #[prost(uint32, tag = "3")]
    priority: u32,
    #[prost(uint32, tag = "4")]
    tries_max: u32,
    #[prost(uint32, tag = "5")]
    tries: u32,
    #[prost(uint32, tag = "6")]
    turns: u32,
    #[prost(uint64, tag = "7")]
    put_at: u64,
    /// 1: waits, 2: later, 3: held, 4: dead.
    #[prost(uint32, tag = "8")]
    state: u32,
    #[prost(uint64, tag = "9")]
    moment: u64,
    #[prost(bytes = "bytes", tag = "10")]
    why: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireJobs {
    #[prost(message, repeated, tag = "1")]
    jobs: Vec<WireJob>,
}

/// Jobs of one text.
const JOBS: usize = 64;

pub fn encode(queue: &Queue, clock: u64) -> Vec<Bytes> {
    let Counts { put, done, failed, lapsed, died, skipped } = queue.counts;
    let repeat = |(name, repeat): (&Bytes, &Repeat)| WireRepeat {
        name: name.clone(),
        text: repeat.text.clone(),
        payload: repeat.job.payload.clone(),
        priority: repeat.job.priority.into(),
        tries_max: repeat.job.tries_max,
        next: repeat.next,
        last: repeat.last,
    };
    let known = |(end, key): &(super::Id, Bytes)| WireKnown { key: key.clone(), job: end.seq, end: end.ms };
    let head = WireHead {
        last: queue.last,
        clock,
        wall_ahead: queue.wall.ahead,
        wall_heard: queue.wall.heard,
        counts: vec![put, done, failed, lapsed, died, skipped],
        repeats: queue.repeats().map(repeat).collect(),
        known: queue.known_ends.from(by_id(0)).map(known).collect(),
    };
    let mut texts = vec![head.encode_to_vec().into()];
    let mut jobs = queue.jobs.from(by_id(0)).peekable();
    while jobs.peek().is_some() {
        let some = jobs.by_ref().take(JOBS).map(|(id, job)| job_of(id.seq, job)).collect();
        texts.push(WireJobs { jobs: some }.encode_to_vec().into());
    }
    texts
}

fn job_of(id: u64, job: &Job) -> WireJob {
    let (state, moment) = match job.state {
        State::Waiting(since) => (1, since),
        State::Later(until) => (2, until),
        State::Held(until) => (3, until),
        State::Dead(since) => (4, since),
    };
    WireJob {
        id,
        payload: job.payload.clone(),
        priority: job.priority.into(),
        tries_max: job.tries_max,
        tries: job.tries,
        turns: job.turns,
        put_at: job.put_at,
        state,
        moment,
        why: job.why.clone(),
    }
}

/// Where the group's clock shows this; none: it is the same group's. None, if these make no sense.
pub fn decode(texts: &[Bytes], clock: Option<u64>) -> Option<Queue> {
    let (head, jobs) = texts.split_first()?;
    let head = WireHead::decode(head.clone()).ok()?;
    // What was so long ago, or is so far, is so here.
    let here = clock.unwrap_or(head.clock);
    let moved = |moment: u64| here.saturating_add(moment).saturating_sub(head.clock);
    let [put, done, failed, lapsed, died, skipped] = head.counts[..] else { return None };
    let mut queue = Queue {
        last: head.last,
        wall: Wall {
            ahead: head.wall_ahead.saturating_add(head.clock).saturating_sub(here),
            heard: moved(head.wall_heard),
        },
        counts: Counts { put, done, failed, lapsed, died, skipped },
        ..Queue::default()
    };
    for repeat in &head.repeats {
        schedule_of(&repeat.text).ok()?;
        let job = New {
            payload: own(&repeat.payload),
            priority: priority(repeat.priority)?,
            tries_max: tries(repeat.tries_max)?,
            delay: 0,
        };
        let repeat_of = Repeat { text: own(&repeat.text), job, next: repeat.next, last: repeat.last };
        queue.repeat(own(&repeat.name), repeat_of);
    }
    for WireKnown { key, job, end } in &head.known {
        queue.know(Known { key: own(key), job: *job, end: moved(*end) });
    }
    for text in jobs {
        for job in WireJobs::decode(text.clone()).ok()?.jobs {
            let moment = moved(job.moment);
            let state = match job.state {
                1 => State::Waiting(moment),
                2 => State::Later(moment),
                3 => State::Held(moment),
                4 => State::Dead(moment),
                _ => return None,
            };
            if job.id == 0 || job.id > head.last || queue.job(job.id).is_some() {
                return None;
            }
            let read = Job {
                payload: own(&job.payload),
                priority: priority(job.priority)?,
                tries_max: tries(job.tries_max)?,
                tries: job.tries,
                turns: job.turns,
                put_at: moved(job.put_at),
                state,
                why: own(&job.why),
            };
            queue.restore(job.id, read);
        }
    }
    Some(queue)
}

fn priority(priority: u32) -> Option<u8> {
    u8::try_from(priority).ok().filter(|priority| *priority <= super::PRIORITY_MAX)
}

fn tries(tries: u32) -> Option<u32> {
    Some(tries).filter(|tries| (1..=QUEUE_TRIES_MAX).contains(tries))
}

/// A copy: what is kept would else hold the whole part.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
