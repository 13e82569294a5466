//! Queues of jobs. What is absent is said to be empty: a queue is made by the first job that is put, or the first repeat. What would
//! change nothing is no change, so a worker that finds nothing wakes nobody.

use std::sync::Arc;

use super::*;
use crate::limits::*;
use crate::queue::{self, Job, Kind, LEVEL, New, PRIORITY, PRIORITY_MAX, Queue, Repeat, State, Ticket, schedule_of};
use crate::stream::Id;

use super::key::End;

type Found<T> = std::result::Result<T, Wrong>;

/// What moved on jobs that were due, for the history.
pub const DUE: &str = "queue.due";

/// Before what the wall clock shows, milliseconds since 1970 (`moment.rs`).
pub const NOW: &[u8] = b"now";

const fn reads(name: &'static str, args: &'static str, run: fn(&Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, read(name, args, run))
}

const fn writes(name: &'static str, args: &'static str, run: fn(&mut Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, write(name, args, run))
}

pub const ALL: &[Function] = &[
    // Its id, and whether it is new: with a key that is remembered it is the job that the key was said for.
    writes("queue.put", "payload [delay MS|at:UNIX-MS] [priority 0-9] [tries N] [key KEY [keep MS]]", put),
    // For each: ticket, payload, which try it is, for how long it was in the queue (ms). Nothing (nil), if none waits.
    writes("queue.take", "count HOLD-MS", take),
    // Whether it was held.
    writes("queue.renew", "ticket HOLD-MS", |space, key, args| {
        let (ticket, ms) = two(args)?;
        let (ticket, until) = (ticket_of(ticket)?, space.clock().saturating_add(hold_of(ms)?));
        if !of(space, key)?.is_some_and(|queue| queue.holds(ticket)) {
            return Ok(flag(false));
        }
        change(space, key, 0, |queue| {
            queue.renew(ticket, until);
            flag(true)
        })
    }),
    // How many were there to be done: another one has those of which the time was over, or will have.
    writes("queue.done", "ticket...", |space, key, args| {
        some(args)?;
        let mut tickets = tickets_of(args)?;
        let Some(queue) = of(space, key)? else { return Ok(count(0)) };
        tickets.retain(|ticket| queue.can_end(*ticket));
        if tickets.is_empty() {
            return Ok(count(0));
        }
        change(space, key, 0, |queue| {
            tickets.iter().for_each(|ticket| queue.done(*ticket));
            count(tickets.len())
        })
    }),
    // `again`, or `dead`; nothing, if it was not held. Without `delay` it rests for a second, two, four ...
    writes("queue.fail", "ticket [delay MS] [why TEXT] [dead yes]", fail),
    // They were not begun with: how many were held.
    writes("queue.back", "ticket...", |space, key, args| {
        some(args)?;
        let mut tickets = tickets_of(args)?;
        let Some(queue) = of(space, key)? else { return Ok(count(0)) };
        tickets.retain(|ticket| queue.holds(*ticket));
        let clock = space.clock();
        if tickets.is_empty() {
            return Ok(count(0));
        }
        change(space, key, 0, |queue| {
            tickets.iter().for_each(|ticket| queue.back(*ticket, clock));
            count(tickets.len())
        })
    }),
    // How many dead jobs wait again now, and how many are dead.
    writes("queue.retry", "all | ID...", |space, key, args| {
        some(args)?;
        let Some(queue) = of(space, key)? else { return Ok(Reply::List(vec![count(0), count(0)])) };
        let (ids, clock) = (dead_of(queue, args)?, space.clock());
        if ids.is_empty() {
            return Ok(Reply::List(vec![count(0), count(queue.len_of(Kind::Dead))]));
        }
        change(space, key, 0, |queue| {
            let retried = ids.iter().filter(|id| queue.retry(**id, clock)).count();
            Reply::List(vec![count(retried), count(queue.len_of(Kind::Dead))])
        })
    }),
    // How many of these jobs there were.
    writes("queue.drop", "ID...", |space, key, args| {
        some(args)?;
        let Some(queue) = of(space, key)? else { return Ok(count(0)) };
        let mut ids = args.iter().map(|id| unsigned(id)).collect::<Found<BTreeSet<u64>>>()?;
        ids.retain(|id| queue.job(*id).is_some());
        dropped(space, key, ids.into_iter().collect())
    }),
    // How many dead ones there were, a thousand at most.
    writes("queue.drop-dead", "", |space, key, args| {
        none(args)?;
        let Some(queue) = of(space, key)? else { return Ok(count(0)) };
        let ids = queue.list(Kind::Dead, Id::MIN).take(QUEUE_RETRIED_MAX).map(|(_, id, _)| id).collect();
        dropped(space, key, ids)
    }),
    // Milliseconds since 1970 of the next time. One of this name is replaced.
    writes("queue.repeat", "name CRON|\"every MS\" payload [priority 0-9] [tries N]", repeat),
    writes("queue.unrepeat", "name", |space, key, args| {
        let name = one(args)?;
        if !of(space, key)?.is_some_and(|queue| queue.has_repeat(name)) {
            return Ok(flag(false));
        }
        change(space, key, 0, |queue| flag(queue.unrepeat(name)))
    }),
    // Of each: name, times, next time (milliseconds since 1970), the job that it put last (0: none), payload.
    reads("queue.repeats", "", |space, key, args| {
        none(args)?;
        let all = of(space, key)?.into_iter().flat_map(|queue| queue.repeats());
        let shown = all.map(|(name, repeat)| {
            let numbers = [Reply::Int(repeat.next as i64), Reply::Int(repeat.last as i64)];
            let texts = [name, &repeat.text].map(|text| Reply::Bytes(text.clone()));
            let payload = Reply::Bytes(repeat.job.payload.clone());
            Reply::List(texts.into_iter().chain(numbers).chain([payload]).collect())
        });
        Ok(Reply::List(shown.collect()))
    }),
    // Words and numbers in turn; nothing, if there is no such queue.
    reads("queue.info", "", |space, key, args| {
        none(args)?;
        Ok(of(space, key)?.map_or(Reply::Nil, |queue| info(queue, space.shown_clock())))
    }),
    // Jobs, and where to go on (nil: there are no more). A job: id, state, priority, tries, most tries, for how long it is in the queue (ms),
    // for how long in this state or until it ends (ms), what its last worker said, payload.
    reads("queue.list", "waiting|later|held|dead FROM|- count", |space, key, args| {
        let [kind, from, limit] = args else { return Err(Wrong::Arguments) };
        let (kind, limit) = (Kind::parse(kind).ok_or(Wrong::Arguments)?, unsigned(limit)?.clamp(1, SCAN_KEYS_MAX));
        let from = if &from[..] == b"-" { Id::MIN } else { Id::parse(from, 0).ok_or(Wrong::Arguments)? };
        let (mut page, mut bytes, clock) = (Vec::new(), 0, space.shown_clock());
        for (place, id, job) in of(space, key)?.into_iter().flat_map(|queue| queue.list(kind, from)) {
            bytes += job.payload.len() + job.why.len() + QUEUE_JOB_BYTES;
            if page.len() as u64 == limit || bytes > PAGE_BYTES_MAX && !page.is_empty() {
                return Ok(Reply::List(vec![Reply::List(page), Reply::Bytes(place.to_string().into())]));
            }
            page.push(shown(id, job, clock));
        }
        Ok(Reply::List(vec![Reply::List(page), Reply::Nil]))
    }),
    // As in `queue.list`; nothing, if there is none.
    reads("queue.job", "ID", |space, key, args| {
        let id = unsigned(one(args)?)?;
        let job = of(space, key)?.and_then(|queue| queue.job(id));
        Ok(job.map_or(Reply::Nil, |job| shown(id, job, space.shown_clock())))
    }),
    // All queues of the shard: name and what `queue.info` says.
    Function {
        whole: true,
        ..inner(reads("queues", "", |space, _, args| {
            none(args)?;
            let named = |key: &Bytes| {
                let queue = of(space, key).ok().flatten()?;
                Some(Reply::List(vec![Reply::Bytes(key.clone()), info(queue, space.shown_clock())]))
            };
            Ok(Reply::List(space.queues().filter_map(named).collect()))
        }))
    },
    // From a dump.
    inner(writes("queue.load", "none|MS|passed texts...", |space, key, args| {
        let (end, texts) = args.split_first().ok_or(Wrong::Arguments)?;
        let end = End::read(space, end, || End::Never)?;
        has_room(space, key)?;
        let queue = queue::wire::decode(texts, Some(space.clock())).ok_or(Wrong::Arguments)?;
        if queue.bytes() > VALUE_BYTES_MAX {
            return Err(Wrong::TooLarge);
        }
        Ok(Reply::Int(end.put(space, key, Value::Queue(Arc::new(queue))) as i64))
    })),
];

fn of<'a>(space: &'a Space, key: &[u8]) -> Found<Option<&'a Queue>> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Queue(queue)) => Ok(Some(queue)),
        Some(_) => Err(Wrong::Type),
    }
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Queue) -> Reply) -> Result {
    let changed = space.change(key, Value::Queue(Arc::default()), more, |value, size| match value {
        Value::Queue(queue) => {
            let queue = Arc::make_mut(queue);
            let reply = act(queue);
            *size = queue.bytes();
            Ok(reply)
        }
        _ => Err(Wrong::Type),
    });
    changed.map_err(|wrong| if wrong == Wrong::TooLarge { Wrong::QueueFull } else { wrong })
}

/// There may be one queue more, if there is none here.
fn has_room(space: &Space, key: &Bytes) -> Found<()> {
    match of(space, key)? {
        None if space.queues().len() >= QUEUES_MAX => Err(Wrong::QueuesMax),
        _ => Ok(()),
    }
}

fn put(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (payload, options) = args.split_first().ok_or(Wrong::Arguments)?;
    let (mut said, mut keep, mut delay) = (None, None, 0);
    let (priority, tries_max) = options_of(options, |name, value| {
        match name {
            b"delay" if value == PASSED => delay = 0,
            b"delay" => delay = unsigned(value)?,
            b"key" => said = Some(value.clone()),
            b"keep" => keep = Some(unsigned(value)?),
            _ => return Err(Wrong::Arguments),
        }
        Ok(())
    })?;
    let fits = |key: &Bytes| (1..=QUEUE_KEY_BYTES_MAX).contains(&key.len());
    let is_right = said.as_ref().is_none_or(fits) && (said.is_some() || keep.is_none());
    if !is_right || delay > QUEUE_DELAY_MAX_MS || keep.is_some_and(|ms| ms == 0 || ms > QUEUE_KEPT_MAX_MS) {
        return Err(Wrong::Arguments);
    }
    if payload.len() > QUEUE_PAYLOAD_BYTES_MAX {
        return Err(Wrong::PayloadTooLarge);
    }
    let clock = space.clock();
    let answer = |id: u64, is_new: bool| Reply::List(vec![Reply::Int(id as i64), flag(is_new)]);
    if let (Some(queue), Some(said)) = (of(space, key)?, &said) {
        if let Some(id) = queue.known(said, clock) {
            return Ok(answer(id, false));
        }
        if queue.is_full_of_keys(clock) {
            return Err(Wrong::KeysRemembered);
        }
    }
    has_room(space, key)?;
    let new = New { payload: own(payload), priority, tries_max, delay };
    let more = payload.len() + QUEUE_JOB_BYTES + said.as_ref().map_or(0, |said| said.len() + QUEUE_KNOWN_BYTES);
    change(space, key, more, |queue| {
        let id = queue.put(new, clock);
        if let Some(said) = said {
            let end = clock.saturating_add(keep.unwrap_or(QUEUE_KEPT_MS));
            queue.remember(own(&said), id, end, clock);
        }
        answer(id, true)
    })
}

fn take(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (many, ms, wall) = match args {
        [many, ms] => (many, ms, None),
        [many, ms, now, wall] if &now[..] == NOW => (many, ms, Some(unsigned(wall)?)),
        _ => return Err(Wrong::Arguments),
    };
    let (many, clock) = (unsigned(many)?, space.clock());
    let until = clock.saturating_add(hold_of(ms)?);
    if !(1..=QUEUE_TAKEN_MAX).contains(&many) {
        return Err(Wrong::Arguments);
    }
    let Some(queue) = of(space, key)? else { return Ok(Reply::Nil) };
    let wall = wall.filter(|wall| queue.is_news(*wall, clock));
    if wall.is_none() && queue.len_of(Kind::Waiting) == 0 {
        return Ok(Reply::Nil);
    }
    change(space, key, 0, |queue| {
        if let Some(wall) = wall {
            queue.hear(wall, clock);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while (taken.len() as u64) < many
            && let Some(next) = queue.next()
        {
            bytes += next.payload.len() + QUEUE_JOB_BYTES;
            if bytes > QUEUE_TAKEN_BYTES_MAX && !taken.is_empty() {
                break;
            }
            let Some((ticket, job)) = queue.take(until) else { break };
            let ticket = format!("{}.{}", ticket.job, ticket.turn).into();
            let numbers = [Reply::Int(job.tries.into()), Reply::Int(clock.saturating_sub(job.put_at) as i64)];
            let texts = [Reply::Bytes(ticket), Reply::Bytes(job.payload.clone())];
            taken.push(Reply::List(texts.into_iter().chain(numbers).collect()));
        }
        if taken.is_empty() { Reply::Nil } else { Reply::List(taken) }
    })
}

fn fail(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (ticket, options) = args.split_first().ok_or(Wrong::Arguments)?;
    let (ticket, clock) = (ticket_of(ticket)?, space.clock());
    let (mut delay, mut why, mut for_good) = (None, Bytes::new(), false);
    for option in options.chunks(2) {
        match option {
            [name, value] => match &name[..] {
                b"delay" => delay = Some(unsigned(value)?),
                b"why" => why = own(&value[..value.len().min(QUEUE_WHY_BYTES_MAX)]),
                b"dead" if matches!(&value[..], b"yes" | b"no") => for_good = &value[..] == b"yes",
                _ => return Err(Wrong::Arguments),
            },
            _ => return Err(Wrong::Arguments),
        }
    }
    if delay.is_some_and(|ms| ms > QUEUE_DELAY_MAX_MS) {
        return Err(Wrong::Arguments);
    }
    if !of(space, key)?.is_some_and(|queue| queue.holds(ticket)) {
        return Ok(Reply::Nil);
    }
    change(space, key, 0, |queue| {
        let is_dead = queue.fail(ticket, delay, why, for_good, clock);
        Reply::Bytes(Bytes::from_static(if is_dead { b"dead" } else { b"again" }))
    })
}

fn repeat(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [name, text, payload, options @ ..] = args else { return Err(Wrong::Arguments) };
    let mut wall = None;
    let (priority, tries_max) = options_of(options, |name, value| {
        if name != NOW {
            return Err(Wrong::Arguments);
        }
        wall = Some(unsigned(value)?);
        Ok(())
    })?;
    let (wall, clock) = (wall.ok_or(Wrong::Arguments)?, space.clock());
    if !(1..=QUEUE_NAME_BYTES_MAX).contains(&name.len()) || text.len() > QUEUE_NAME_BYTES_MAX {
        return Err(Wrong::Arguments);
    }
    if payload.len() > QUEUE_PAYLOAD_BYTES_MAX {
        return Err(Wrong::PayloadTooLarge);
    }
    let schedule = schedule_of(text).map_err(|_| Wrong::NoTimes)?;
    let next = schedule.next_after(wall).ok_or(Wrong::NoTimes)?;
    has_room(space, key)?;
    let is_full = |queue: &Queue| queue.repeats().len() >= QUEUE_REPEATS_MAX && !queue.has_repeat(name);
    if of(space, key)?.is_some_and(is_full) {
        return Err(Wrong::RepeatsMax);
    }
    let more = name.len() + text.len() + payload.len() + QUEUE_JOB_BYTES;
    let job = New { payload: own(payload), priority, tries_max, delay: 0 };
    let repeat = Repeat { text: own(text), job, next, last: 0 };
    change(space, key, more, |queue| {
        queue.hear(wall, clock);
        queue.repeat(own(name), repeat);
        Reply::Int(next as i64)
    })
}

/// Priority and most tries of a job; what else is said goes to `other`.
fn options_of(options: &[Bytes], mut other: impl FnMut(&[u8], &Bytes) -> Found<()>) -> Found<(u8, u32)> {
    let (mut priority, mut tries_max) = (PRIORITY, QUEUE_TRIES);
    for option in options.chunks(2) {
        let [name, value] = option else { return Err(Wrong::Arguments) };
        match &name[..] {
            b"priority" => {
                let number = unsigned(value)?;
                priority = u8::try_from(number).ok().filter(|n| *n <= PRIORITY_MAX).ok_or(Wrong::Arguments)?;
            }
            b"tries" => {
                let number = unsigned(value)?;
                let fits = |n: &u32| (1..=QUEUE_TRIES_MAX).contains(n);
                tries_max = u32::try_from(number).ok().filter(fits).ok_or(Wrong::Arguments)?;
            }
            name => other(name, value)?,
        }
    }
    Ok((priority, tries_max))
}

fn dead_of(queue: &Queue, args: &[Bytes]) -> Found<Vec<u64>> {
    if let [all] = args
        && &all[..] == b"all"
    {
        return Ok(queue.list(Kind::Dead, Id::MIN).take(QUEUE_RETRIED_MAX).map(|(_, id, _)| id).collect());
    }
    if args.len() > QUEUE_RETRIED_MAX {
        return Err(Wrong::Arguments);
    }
    let mut ids = args.iter().map(|id| unsigned(id)).collect::<Found<Vec<u64>>>()?;
    ids.retain(|id| queue.job(*id).is_some_and(|job| matches!(job.state, State::Dead(_))));
    Ok(ids)
}

fn dropped(space: &mut Space, key: &Bytes, ids: Vec<u64>) -> Result {
    if ids.is_empty() {
        return Ok(count(0));
    }
    change(space, key, 0, |queue| count(ids.iter().filter(|id| queue.remove(**id)).count()))
}

fn ticket_of(arg: &[u8]) -> Found<Ticket> {
    Ticket::parse(arg).ok_or(Wrong::Arguments)
}

/// Each once.
fn tickets_of(args: &[Bytes]) -> Found<Vec<Ticket>> {
    if args.len() > QUEUE_TAKEN_MAX as usize {
        return Err(Wrong::Arguments);
    }
    let mut tickets: Vec<Ticket> = args.iter().map(|arg| ticket_of(arg)).collect::<Found<_>>()?;
    let mut seen = BTreeSet::new();
    tickets.retain(|ticket| seen.insert(ticket.job));
    Ok(tickets)
}

fn hold_of(arg: &[u8]) -> Found<u64> {
    Some(unsigned(arg)?).filter(|ms| (1..=QUEUE_HOLD_MAX_MS).contains(ms)).ok_or(Wrong::Arguments)
}

/// A copy: what is kept is not what an entry of many commands holds.
fn own(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn word(word: &'static str) -> Reply {
    Reply::Bytes(Bytes::from_static(word.as_bytes()))
}

fn shown(id: u64, job: &Job, clock: u64) -> Reply {
    let (state, moment) = match job.state {
        State::Waiting(since) => ("waiting", clock.saturating_sub(since)),
        State::Later(until) => ("later", until.saturating_sub(clock)),
        State::Held(until) => ("held", until.saturating_sub(clock)),
        State::Dead(since) => ("dead", clock.saturating_sub(since)),
    };
    let numbers = [job.priority.into(), job.tries.into(), job.tries_max.into()].map(Reply::Int);
    let times = [clock.saturating_sub(job.put_at), moment].map(|ms| Reply::Int(ms as i64));
    let texts = [&job.why, &job.payload].map(|text| Reply::Bytes(text.clone()));
    let head = [Reply::Int(id as i64), word(state)];
    Reply::List(head.into_iter().chain(numbers).chain(times).chain(texts).collect())
}

fn info(queue: &Queue, clock: u64) -> Reply {
    let counts = queue.counts();
    let len = |kind| queue.len_of(kind) as u64;
    let numbers = [
        ("waiting", len(Kind::Waiting)),
        ("later", len(Kind::Later)),
        ("held", len(Kind::Held)),
        ("dead", len(Kind::Dead)),
        ("oldest_ms", queue.oldest().map_or(0, |since| clock.saturating_sub(since))),
        ("bytes", queue.bytes() as u64),
        ("repeats", queue.repeats().len() as u64),
        ("put", counts.put),
        ("done", counts.done),
        ("failed", counts.failed),
        ("lapsed", counts.lapsed),
        ("died", counts.died),
        ("skipped", counts.skipped),
    ];
    Reply::List(numbers.into_iter().flat_map(|(name, n)| [word(name), Reply::Int(n as i64)]).collect())
}
