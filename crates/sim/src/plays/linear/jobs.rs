//! Queues of jobs: each job that was put is given to one worker at a time until one says that it is done, and never again after that.
//!
//! A job that is held for longer than any run lasts is nobody else's until its worker lets it go, whatever clocks do; others come
//! again when their time is over by the leader's clock, and while all is calm a moment after that at the latest. What a queue says
//! of itself is the sum of what was put and done.

use std::collections::{BTreeMap, BTreeSet};

use base::{Span, Time};
use state::linear::Reply;

use super::ends::GONE_WITHIN;
use super::load::{Act, JobTicket, LONG, TAKEN_AT_ONCE, WriteId};
use super::promise::{Write, newest_by, note, number};
use crate::promises::Broken;

pub const KEPT: &str =
    "a job that was put is given or there until somebody has said that it is done, and never again after that";
pub const HELD: &str = "a job is one worker's at a time, and its tickets are given once and grow";
pub const LAPSES: &str = "a job whose worker says nothing comes again a moment after its time is over";

#[derive(Default)]
pub struct Jobs {
    queues: BTreeMap<String, Queue>,
    calm_since: Option<Time>,
}

#[derive(Default)]
struct Queue {
    /// Jobs that somebody has begun to put, and that are known to have been put.
    begun: BTreeSet<WriteId>,
    put: BTreeMap<WriteId, Time>,
    /// Jobs by the queue's own numbers.
    jobs: BTreeMap<u64, Job>,
    /// Takings of which nobody knows yet what they took.
    open: BTreeSet<WriteId>,
    /// Acts that said of a job that it is done: how many have begun, and when each was known.
    ends: u64,
    done: Vec<(Time, u64)>,
}

#[derive(Default)]
struct Job {
    payload: WriteId,
    /// Takers by turn: who has taken it, for how long, and when that was known.
    given: BTreeMap<u64, (WriteId, Span, Time)>,
    /// The highest turn by a moment.
    newest: Vec<(Time, u64)>,
    /// How often somebody has said that it is done, and when it was known to be so.
    ends: u64,
    done: Option<Time>,
}

type Writes = BTreeMap<WriteId, Write>;

impl Jobs {
    pub fn calm_since(&mut self, since: Option<Time>) {
        self.calm_since = since;
    }

    pub fn begin(&mut self, act: &Act) {
        match act {
            Act::PutJob { queue, id } => _ = self.of(queue).begun.insert(*id),
            Act::TakeJobs { queue, id, .. } => _ = self.of(queue).open.insert(*id),
            Act::EndJob { queue, ticket, .. } => {
                let of = self.of(queue);
                of.ends += 1;
                of.jobs.entry(ticket.job).or_default().ends += 1;
            }
            _ => (),
        }
    }

    /// An act that did not happen.
    pub fn refused(&mut self, act: &Act) {
        match act {
            Act::PutJob { queue, id } => _ = self.of(queue).begun.remove(id),
            Act::TakeJobs { queue, id, .. } => _ = self.of(queue).open.remove(id),
            Act::EndJob { queue, ticket, .. } => {
                let of = self.of(queue);
                of.ends -= 1;
                of.jobs.entry(ticket.job).or_default().ends -= 1;
            }
            _ => (),
        }
    }

    fn of(&mut self, queue: &str) -> &mut Queue {
        self.queues.entry(queue.to_owned()).or_default()
    }

    /// What an act that was done has changed.
    pub fn end(&mut self, act: &Act, reply: &Reply, writes: &Writes, (start, now): (Time, Time)) -> Result<(), Broken> {
        let wrong =
            |promise, why: &str| Err(Broken { promise, at: now, what: format!("{act:?} gave {reply:?}: {why}") });
        let calm_since = self.calm_since;
        match (act, reply) {
            (Act::PutJob { queue, id }, Reply::List(parts)) => match parts[..] {
                [Reply::Int(job), Reply::Int(1)] => {
                    let of = self.of(queue);
                    let twice = of.jobs.iter().find(|(number, other)| **number != job as u64 && other.payload == *id);
                    if twice.is_some() {
                        return wrong(KEPT, "it is there twice");
                    }
                    let kept = of.jobs.entry(job as u64).or_default();
                    if kept.payload != 0 && kept.payload != *id {
                        return wrong(KEPT, "another job has this number");
                    }
                    kept.payload = *id;
                    of.put.entry(*id).or_insert(now);
                    Ok(())
                }
                _ => wrong(KEPT, "no key was said for it"),
            },
            (Act::TakeJobs { queue, id, lives }, Reply::Nil | Reply::List(_)) => {
                let of = self.of(queue);
                of.open.remove(id);
                let list = if let Reply::List(list) = reply { &list[..] } else { &[] };
                for given in list {
                    let Some((ticket, payload)) = ticket_of(given) else { return wrong(HELD, "that is no job") };
                    if let Err((promise, why)) = of.given((*id, *lives), ticket, payload, writes, (start, now)) {
                        return wrong(promise, why);
                    }
                }
                match of.left_out(list.len(), calm_since, start) {
                    Some((promise, why)) => wrong(promise, why),
                    None => Ok(()),
                }
            }
            (Act::EndJob { queue, ticket, .. }, Reply::Int(1)) => {
                let of = self.of(queue);
                let job = of.jobs.entry(ticket.job).or_default();
                if job.done.is_some() {
                    return wrong(KEPT, "it was done before");
                }
                if newest_by(&job.newest, start) > ticket.turn {
                    return wrong(HELD, "somebody else had it by then");
                }
                job.done = Some(now);
                let count = of.done.last().map_or(0, |(_, count)| *count);
                note(&mut of.done, now, count + 1);
                Ok(())
            }
            (Act::EndJob { queue, ticket, .. }, Reply::Int(0)) => {
                let of = self.of(queue);
                let job = of.jobs.entry(ticket.job).or_default();
                let has_newer = job.given.range(ticket.turn + 1..).next().is_some();
                if has_newer || job.ends > 1 || !of.open.is_empty() {
                    Ok(())
                } else {
                    wrong(KEPT, "nobody else had it")
                }
            }
            (Act::Queue { queue }, Reply::Nil | Reply::List(_)) => match self.of(queue).is_told(reply, start) {
                Ok(()) => Ok(()),
                Err(why) => wrong(KEPT, why),
            },
            _ => wrong(KEPT, "that is no answer"),
        }
    }
}

impl Queue {
    fn given(
        &mut self,
        (by, lives): (WriteId, Span),
        ticket: JobTicket,
        payload: WriteId,
        writes: &Writes,
        (start, now): (Time, Time),
    ) -> Result<(), (&'static str, &'static str)> {
        if writes.get(&payload).is_none_or(|write| write.refused) || !self.begun.contains(&payload) {
            return Err((KEPT, "it was refused, or nobody put it"));
        }
        let job = self.jobs.entry(ticket.job).or_default();
        if job.payload != 0 && job.payload != payload {
            return Err((KEPT, "another job has this number"));
        }
        job.payload = payload;
        if job.done.is_some_and(|done| done < start) {
            return Err((KEPT, "it was done before"));
        }
        if job.given.get(&ticket.turn).is_some_and(|(other, ..)| *other != by) {
            return Err((HELD, "this ticket was given before"));
        }
        if newest_by(&job.newest, start) >= ticket.turn && !job.given.contains_key(&ticket.turn) {
            return Err((HELD, "a later ticket was given before"));
        }
        let before = job.given.range(..ticket.turn).next_back();
        if before.is_some_and(|(_, (_, lives, known))| *lives == LONG && *known < start) {
            return Err((HELD, "its worker has it for long"));
        }
        job.given.entry(ticket.turn).or_insert((by, lives, now));
        note(&mut job.newest, now, ticket.turn);
        Ok(())
    }

    /// What somebody who began to take at `start`, and took fewer jobs than there was room for, should have been given, too.
    fn left_out(&self, taken: usize, calm_since: Option<Time>, start: Time) -> Option<(&'static str, &'static str)> {
        if taken >= TAKEN_AT_ONCE {
            return None;
        }
        let given: BTreeSet<WriteId> =
            self.jobs.values().filter(|job| !job.given.is_empty() || job.ends > 0).map(|job| job.payload).collect();
        let missing = self.put.iter().filter(|(id, known)| **known < start && !given.contains(id)).count();
        if missing > self.open.len() * TAKEN_AT_ONCE {
            return Some((KEPT, "there are jobs that nobody has taken"));
        }
        // Others may have it of whom nobody knows.
        let calm = calm_since.filter(|_| self.open.is_empty())?;
        let lapsed = |job: &&Job| {
            let Some((_, (_, lives, known))) = job.given.last_key_value() else { return false };
            job.ends == 0 && *known < start && start.since((*known).max(calm)) > *lives + GONE_WITHIN
        };
        self.jobs.values().find(lapsed).map(|_| (LAPSES, "the time of a job is over"))
    }

    fn is_told(&self, reply: &Reply, start: Time) -> Result<(), &'static str> {
        let Reply::List(flat) = reply else {
            return if self.put.values().any(|known| *known < start) { Err("it has jobs") } else { Ok(()) };
        };
        let number = |name: &str| {
            flat.chunks(2).find_map(|pair| match pair {
                [Reply::Bytes(of), Reply::Int(number)] if &of[..] == name.as_bytes() => Some(*number as u64),
                _ => None,
            })
        };
        let all: Option<Vec<u64>> =
            ["waiting", "later", "held", "dead", "done", "put"].into_iter().map(number).collect();
        let Some([waiting, later, held, dead, done, put]) =
            all.as_deref().and_then(|all| <[u64; 6]>::try_from(all).ok())
        else {
            return Err("these are no numbers of a queue");
        };
        let known = self.put.values().filter(|known| **known < start).count() as u64;
        if put < known || put > self.begun.len() as u64 {
            return Err("others were put");
        }
        if done < newest_by(&self.done, start) || done > self.ends {
            return Err("others were done");
        }
        if waiting + later + held + dead + done != put || dead > 0 {
            return Err("jobs are missing, or too many");
        }
        Ok(())
    }
}

/// JobTicket and payload of a job that is given.
pub fn ticket_of(given: &Reply) -> Option<(JobTicket, WriteId)> {
    let Reply::List(parts) = given else { return None };
    let [Reply::Bytes(ticket), Reply::Bytes(payload), Reply::Int(_), Reply::Int(_)] = &parts[..] else { return None };
    let (job, turn) = std::str::from_utf8(ticket).ok()?.split_once('.')?;
    Some((JobTicket { job: job.parse().ok()?, turn: turn.parse().ok()? }, number(payload)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const SHORT: Span = Span::secs(1);

    fn put(id: WriteId, job: i64) -> (Act, Reply) {
        (Act::PutJob { queue: "q".into(), id }, Reply::List(vec![Reply::Int(job), Reply::Int(1)]))
    }

    fn take(id: WriteId, lives: Span, jobs: &[(u64, u64, WriteId)]) -> (Act, Reply) {
        let job = |(job, turn, payload): &(u64, u64, WriteId)| {
            let texts = [format!("{job}.{turn}"), payload.to_string()].map(|text| Reply::Bytes(Bytes::from(text)));
            Reply::List(texts.into_iter().chain([Reply::Int(1), Reply::Int(0)]).collect())
        };
        let reply = if jobs.is_empty() { Reply::Nil } else { Reply::List(jobs.iter().map(job).collect()) };
        (Act::TakeJobs { queue: "q".into(), id, lives }, reply)
    }

    fn end(job: u64, turn: u64, were: i64) -> (Act, Reply) {
        (Act::EndJob { queue: "q".into(), ticket: JobTicket { job, turn }, id: 0 }, Reply::Int(were))
    }

    fn told(numbers: [i64; 6]) -> (Act, Reply) {
        let names = ["waiting", "later", "held", "dead", "done", "put"];
        let pair = |(name, number): (&str, i64)| [Reply::Bytes(Bytes::from(name.to_owned())), Reply::Int(number)];
        let flat = names.into_iter().zip(numbers).flat_map(pair).collect();
        (Act::Queue { queue: "q".into() }, Reply::List(flat))
    }

    /// Acts two seconds after each other, in a calm cluster; the promise that breaks.
    fn check(script: &[(Act, Reply)]) -> Option<&'static str> {
        let mut jobs = Jobs::default();
        jobs.calm_since(Some(Time::ZERO));
        let writes = (1..=9).map(|id| (id, Write { start: Time(1), refused: id == 9 })).collect();
        script.iter().enumerate().find_map(|(n, (act, reply))| {
            let start = Time(4_000_000 * (n as u64 + 1));
            jobs.begin(act);
            jobs.end(act, reply, &writes, (start, start + Span::millis(1))).err().map(|broken| broken.promise)
        })
    }

    #[test]
    fn jobs_that_are_lost_come_back_or_are_two_workers_are_seen() {
        let (one, two) = (put(1, 1), put(2, 2));
        let long = take(3, LONG, &[(1, 1, 1), (2, 1, 2)]);
        for (rest, expect) in [
            (vec![long.clone(), end(1, 1, 1), end(2, 1, 1), take(4, LONG, &[])], None),
            (vec![take(3, LONG, &[(1, 1, 1)])], Some(KEPT)),
            (vec![take(3, LONG, &[])], Some(KEPT)),
            (vec![long.clone(), take(4, LONG, &[(1, 2, 1)])], Some(HELD)),
            (vec![long.clone(), take(4, LONG, &[(1, 1, 1)])], Some(HELD)),
            (vec![long.clone(), end(1, 1, 1), take(4, LONG, &[(1, 2, 1)])], Some(KEPT)),
            (vec![long.clone(), end(1, 1, 0)], Some(KEPT)),
            (vec![long.clone(), end(1, 1, 1), end(1, 1, 1)], Some(KEPT)),
            (vec![long.clone(), end(1, 1, 1), end(1, 1, 0)], None),
            (vec![take(3, LONG, &[(1, 1, 2), (2, 1, 2)])], Some(KEPT)),
            (vec![take(3, LONG, &[(1, 1, 9)])], Some(KEPT)),
            // Their time is over: they come again, by other tickets, and the first worker is too late.
            (vec![take(3, SHORT, &[(1, 1, 1), (2, 1, 2)]), take(4, LONG, &[(1, 2, 1), (2, 2, 2)])], None),
            (vec![take(3, SHORT, &[(1, 1, 1), (2, 1, 2)]), take(4, LONG, &[])], Some(LAPSES)),
            (vec![take(3, SHORT, &[(1, 3, 1), (2, 1, 2)]), take(4, LONG, &[(1, 2, 1), (2, 2, 2)])], Some(HELD)),
            (
                vec![take(3, SHORT, &[(1, 1, 1), (2, 1, 2)]), take(4, LONG, &[(1, 2, 1), (2, 2, 2)]), end(1, 1, 1)],
                Some(HELD),
            ),
            // What it says of itself.
            (vec![told([2, 0, 0, 0, 0, 2])], None),
            (vec![told([1, 0, 0, 0, 0, 2])], Some(KEPT)),
            (vec![told([1, 0, 0, 0, 0, 1])], Some(KEPT)),
            (vec![long.clone(), end(1, 1, 1), told([0, 0, 1, 0, 1, 2])], None),
            (vec![long.clone(), end(1, 1, 1), told([0, 0, 2, 0, 0, 2])], Some(KEPT)),
            (vec![put(3, 2)], Some(KEPT)),
            (vec![put(1, 3)], Some(KEPT)),
        ] {
            let script: Vec<_> = [one.clone(), two.clone()].into_iter().chain(rest).collect();
            assert_eq!(check(&script), expect, "{script:?}");
        }
    }
}
