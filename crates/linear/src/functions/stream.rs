//! Streams. Front doors call these: ids come as `MS-SEQ`, times as milliseconds since 1970, as the one who asks has them.
//! Entries are told as ids and lists of names and values in turn, nil for one that has gone.

use std::sync::Arc;

use super::*;
use crate::limits::VALUE_BYTES_MAX;
use crate::stream::{Consumer, Entry, Group, Id, LEVEL, Log, Stream, Trim, TrimTo, wire};

type Found<T> = std::result::Result<T, Wrong>;

const fn reads(name: &'static str, args: &'static str, run: fn(&Space, &Bytes, &[Bytes]) -> Result) -> Function {
    inner(since(LEVEL, read(name, args, run)))
}

const fn writes(name: &'static str, args: &'static str, run: fn(&mut Space, &Bytes, &[Bytes]) -> Result) -> Function {
    inner(since(LEVEL, write(name, args, run)))
}

/// A function of the streams of several keys, with so many arguments behind them.
const fn of_all(options: usize, function: Function) -> Function {
    Function { keys: usize::MAX, options, ..function }
}

pub const ALL: &[Function] = &[
    // All of it, in parts (`stream/wire.rs`).
    since(
        12,
        inner(read("stream.whole", "", |space, key, args| {
            none(args)?;
            let Some(stream) = of(space, key)? else { return Ok(Reply::Nil) };
            Ok(Reply::List(wire::encode(stream).into_iter().map(Reply::Bytes).collect()))
        })),
    ),
    reads("stream.length", "", |space, key, args| {
        none(args)?;
        Ok(Reply::Int(of(space, key)?.map_or(0, |stream| stream.log.len() as i64)))
    }),
    // The highest id that was ever given.
    reads("stream.last", "", |space, key, args| {
        none(args)?;
        Ok(shown(of(space, key)?.map_or(Id::MIN, |stream| stream.log.last())))
    }),
    reads("stream.range", "from to forward|reverse count|-1", |space, key, args| {
        let [from, to, order, count] = args else { return Err(Wrong::Arguments) };
        let (from, to, count) = (id(from)?, id(to)?, most(count)?);
        let Some(stream) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
        match &order[..] {
            b"forward" => Ok(listed(stream.log.range(from, to).take(count))),
            b"reverse" => Ok(listed(stream.log.range_back(from, to).take(count))),
            _ => Err(Wrong::Arguments),
        }
    }),
    // The key, and entries with higher ids; nothing, if there are none. `$`: higher than those that there are; `+`: the last one.
    reads("stream.read", "id|$|+ count|-1", |space, key, args| {
        let (after, count) = two(args)?;
        let count = most(count)?;
        let Some(stream) = of(space, key)? else { return Ok(Reply::Nil) };
        if &after[..] == b"$" {
            return Ok(Reply::Nil);
        }
        let after = match &after[..] {
            b"+" => stream.log.last().before().unwrap_or_default(),
            after => id(after)?,
        };
        if !stream.log.has_after(after) {
            return Ok(Reply::Nil);
        }
        Ok(Reply::List(vec![Reply::Bytes(key.clone()), listed(stream.log.after(after).take(count))]))
    }),
    // Has one of them an entry that was not delivered to its group?
    of_all(
        1,
        reads("stream.has-news", "key... group", |space, key, args| {
            let (name, others) = args.split_last().ok_or(Wrong::Arguments)?;
            let mut has_news = false;
            for key in std::iter::once(key).chain(others) {
                let Some((stream, group)) = group_of(space, key, name)? else { return Ok(no_group(key, name)) };
                has_news |= stream.log.has_after(group.last);
            }
            Ok(flag(has_news))
        }),
    ),
    // How many, the first and the last of them, and how many each consumer has.
    reads("stream.pending", "group", |space, key, args| {
        let name = one(args)?;
        let Some((_, group)) = group_of(space, key, name)? else { return Ok(no_group(key, name)) };
        let edge = |id: Option<Id>| id.map_or(Reply::Nil, shown);
        let pending = group.pending();
        let consumers = group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
        let consumers = consumers.flat_map(|(name, has)| [Reply::Bytes(name.clone()), count(has.pending().len())]);
        let list = Reply::List(consumers.collect());
        Ok(Reply::List(vec![count(pending.len()), edge(pending.first()), edge(pending.last()), list]))
    }),
    // Id, consumer, how long ago it was delivered, how often.
    reads("stream.pending-range", "group now idle from to count [consumer]", |space, key, args| {
        let ([name, now, idle, from, to, most], consumer) = (match args {
            [rest @ .., consumer] if rest.len() == 6 => (rest, Some(consumer)),
            rest => (rest, None),
        }) else {
            return Err(Wrong::Arguments);
        };
        let (now, idle, from, to, most) = (unsigned(now)?, unsigned(idle)?, id(from)?, id(to)?, unsigned(most)?);
        let Some((_, group)) = group_of(space, key, name)? else { return Ok(no_group(key, name)) };
        let is_between = |id: &Id| *id <= to;
        let ids: Box<dyn Iterator<Item = Id>> = match consumer {
            None => Box::new(group.pending().from(from).map(|(id, _)| *id).take_while(is_between)),
            Some(name) => match group.consumer(name) {
                None => return Ok(Reply::List(Vec::new())),
                Some(consumer) => Box::new(consumer.pending().from(from).map(|(id, ())| *id).take_while(is_between)),
            },
        };
        let pending = ids.filter_map(|id| Some((id, group.pending().get(id)?)));
        let found = pending.filter(|(_, pending)| now.saturating_sub(pending.at) >= idle).take(most as usize);
        let row = |(id, pending): (Id, &crate::stream::Pending)| {
            let ago = Reply::Int(now.saturating_sub(pending.at) as i64);
            [shown(id), Reply::Bytes(pending.consumer.clone()), ago, Reply::Int(pending.times as i64)]
        };
        Ok(Reply::List(found.flat_map(row).collect()))
    }),
    // Length, blocks, last id, highest that was removed, entries ever added, first id, groups, first and last entry.
    reads("stream.info", "", |space, key, args| {
        none(args)?;
        let stream = of(space, key)?.ok_or(Wrong::NoKey)?;
        let mut all = counters(stream);
        all.push(count(stream.groups().len()));
        all.push(listed(stream.log.first_entry().into_iter()));
        all.push(listed(stream.log.last_entry().into_iter()));
        Ok(Reply::List(all))
    }),
    // The same up to the first id, entries, and of each group: name, last id, how many it read, how many it lacks, how many are
    // pending, these (id, consumer, when, how often), and of each consumer: name, seen, active, how many are pending, these.
    reads("stream.info-full", "count|-1", |space, key, args| {
        let most = most(one(args)?)?;
        let stream = of(space, key)?.ok_or(Wrong::NoKey)?;
        let mut all = counters(stream);
        all.push(listed(stream.log.range(Id::MIN, Id::MAX).take(most)));
        let group = |(name, group): (&Bytes, &Group)| {
            let pending = group.pending().from(Id::MIN).take(most).flat_map(|(id, has)| {
                [shown(*id), Reply::Bytes(has.consumer.clone()), time(has.at), Reply::Int(has.times as i64)]
            });
            let consumer = |(name, has): (&Bytes, &Consumer)| {
                let theirs = has.pending().from(Id::MIN).take(most);
                let theirs = theirs.filter_map(|(id, ())| Some((*id, group.pending().get(*id)?)));
                let theirs = theirs.flat_map(|(id, has)| [shown(id), time(has.at), Reply::Int(has.times as i64)]);
                let theirs = Reply::List(theirs.collect());
                let active = has.active.map_or(Reply::Int(-1), time);
                [Reply::Bytes(name.clone()), time(has.seen), active, count(has.pending().len()), theirs]
            };
            [
                Reply::Bytes(name.clone()),
                shown(group.last),
                maybe(group.read),
                group.lag(&stream.log).map_or(Reply::Nil, Reply::Int),
                count(group.pending().len()),
                Reply::List(pending.collect()),
                Reply::List(group.consumers().flat_map(consumer).collect()),
            ]
        };
        all.push(Reply::List(stream.groups().flat_map(group).collect()));
        Ok(Reply::List(all))
    }),
    // Of each: name, how many consumers and pending entries, last id, how many it read and lacks.
    reads("stream.groups", "", |space, key, args| {
        none(args)?;
        let stream = of(space, key)?.ok_or(Wrong::NoKey)?;
        let one = |(name, group): (&Bytes, &Group)| {
            [
                Reply::Bytes(name.clone()),
                count(group.consumers().len()),
                count(group.pending().len()),
                shown(group.last),
                maybe(group.read),
                group.lag(&stream.log).map_or(Reply::Nil, Reply::Int),
            ]
        };
        Ok(Reply::List(stream.groups().flat_map(one).collect()))
    }),
    // Of each: name, pending entries, milliseconds since it asked and since it got something (-1: it never did).
    reads("stream.consumers", "group now", |space, key, args| {
        let (name, now) = two(args)?;
        let now = unsigned(now)?;
        let stream = of(space, key)?.ok_or(Wrong::NoKey)?;
        let Some(group) = stream.group(name) else { return Ok(no_group(key, name)) };
        let ago = |at: u64| time(now.saturating_sub(at));
        let one = |(name, has): (&Bytes, &Consumer)| {
            let active = has.active.map_or(Reply::Int(-1), ago);
            [Reply::Bytes(name.clone()), count(has.pending().len()), ago(has.seen), active]
        };
        Ok(Reply::List(group.consumers().flat_map(one).collect()))
    }),
    // The id: the one that is said, `MS-*` the next of that millisecond, `*MS` the next one at that time. Nothing, if a stream must be
    // there and is not. TRIM: `-`, or `len|id exact|about N LIMIT`.
    writes("stream.add", "id any|present TRIM name value ...", |space, key, args| {
        let [new, when, trim, fields @ ..] = args else { return Err(Wrong::Arguments) };
        let trim = read_trim(trim)?;
        if fields.is_empty() || !fields.len().is_multiple_of(2) {
            return Err(Wrong::Arguments);
        }
        let now = of(space, key)?;
        match (&when[..], now) {
            (b"present", None) => return Ok(Reply::Nil),
            (b"any" | b"present", _) => (),
            _ => return Err(Wrong::Arguments),
        }
        let new = next_id(new, now.map_or(Id::MIN, |stream| stream.log.last()))?;
        let more = fields.iter().map(|text| text.len() + FIELD_BYTES).sum::<usize>() + ENTRY_BYTES;
        change(space, key, more, |stream| {
            stream.log.add(new, fields);
            trim.map(|trim| stream.log.trim(trim));
            Ok(shown(new))
        })
    }),
    // How many there were.
    writes("stream.remove", "id...", |space, key, args| {
        some(args)?;
        let ids = args.iter().map(|arg| id(arg)).collect::<Found<Vec<_>>>()?;
        if of(space, key)?.is_none_or(|stream| ids.iter().all(|id| stream.log.get(*id).is_none())) {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |stream| Ok(count(ids.iter().filter(|id| stream.log.remove(**id)).count())))
    }),
    // How many have gone.
    writes("stream.trim", "TRIM", |space, key, args| {
        let trim = read_trim(one(args)?)?.ok_or(Wrong::Arguments)?;
        let may_change = |stream: &Stream| match trim.to {
            TrimTo::Len(most) => stream.log.len() > most,
            TrimTo::Id(first) => !stream.log.is_empty() && stream.log.first() < first,
        };
        if !of(space, key)?.is_some_and(may_change) {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |stream| Ok(Reply::Int(stream.log.trim(trim) as i64)))
    }),
    writes("stream.set-id", "last added|- deleted|-", |space, key, args| {
        let [last, added, deleted] = args else { return Err(Wrong::Arguments) };
        let (last, added, deleted) = (id(last)?, or_dash(added, unsigned)?, or_dash(deleted, id)?);
        let log = &of(space, key)?.ok_or(Wrong::NoKey)?.log;
        let top = log.last_entry().map(|entry| entry.id());
        if last < log.deleted() {
            return Err(Wrong::IdBelowDeleted);
        }
        if top.is_some_and(|top| last < top) {
            return Err(Wrong::IdTooLow);
        }
        if !log.is_empty() && added.is_some_and(|added| added < log.len()) {
            return Err(Wrong::TooFew);
        }
        let deleted = deleted.filter(|id| *id != Id::MIN).unwrap_or(log.deleted());
        let added = added.unwrap_or(log.added());
        change(space, key, 0, |stream| {
            stream.log.set(last, deleted, added);
            Ok(Reply::Int(1))
        })
    }),
    // `make`: the stream, too.
    writes("stream.group-make", "group id|$ read|- make|present", |space, key, args| {
        let [name, last, read, when] = args else { return Err(Wrong::Arguments) };
        let (last, read) = (or_last(last)?, or_dash(read, unsigned)?);
        match (&when[..], of(space, key)?) {
            (b"present", None) => return Err(Wrong::NoKey),
            (b"present" | b"make", stream) if stream.is_none_or(|stream| stream.group(name).is_none()) => (),
            (b"present" | b"make", _) => return Err(Wrong::GroupExists),
            _ => return Err(Wrong::Arguments),
        }
        change(space, key, name.len() + GROUP_BYTES, |stream| {
            let last = last.unwrap_or(stream.log.last());
            stream.set_group(name.clone(), Group::new(last, read));
            Ok(Reply::Int(1))
        })
    }),
    writes("stream.group-set", "group id|$ read|-", |space, key, args| {
        let [name, last, read] = args else { return Err(Wrong::Arguments) };
        let (last, read) = (or_last(last)?, or_dash(read, unsigned)?);
        change_group(space, key, name, 0, |log, group| {
            (group.last, group.read) = (last.unwrap_or(log.last()), read);
            Reply::Int(1)
        })
    }),
    writes("stream.group-remove", "group", |space, key, args| {
        let name = one(args)?;
        if of(space, key)?.ok_or(Wrong::NoKey)?.group(name).is_none() {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |stream| Ok(flag(stream.remove_group(name))))
    }),
    // Whether it is new.
    writes("stream.consumer-make", "group consumer now", |space, key, args| {
        let [name, consumer, now] = args else { return Err(Wrong::Arguments) };
        let now = unsigned(now)?;
        if group_of(space, key, name)?.is_some_and(|(_, group)| group.consumer(consumer).is_some()) {
            return Ok(Reply::Int(0));
        }
        change_group(space, key, name, consumer.len() + GROUP_BYTES, |_, group| flag(group.see(consumer, now)))
    }),
    // How many it had that were not acknowledged.
    writes("stream.consumer-remove", "group consumer", |space, key, args| {
        let (name, consumer) = two(args)?;
        if group_of(space, key, name)?.is_some_and(|(_, group)| group.consumer(consumer).is_none()) {
            return Ok(Reply::Int(0));
        }
        change_group(space, key, name, 0, |_, group| count(group.remove_consumer(consumer)))
    }),
    // Of each key, an id for each between spaces: of `>` what was delivered to nobody, which is the consumer's then; of others what
    // is the consumer's with higher ids. Keys and entries; nothing, if nothing is new.
    of_all(
        6,
        writes("stream.read-group", "key... group consumer IDS now count|-1 ack|noack", |space, key, args| {
            let [others @ .., name, consumer, ids, now, count, how] = args else { return Err(Wrong::Arguments) };
            let keys: Vec<&Bytes> = std::iter::once(key).chain(others).collect();
            let ids = std::str::from_utf8(ids).map_err(|_| Wrong::Arguments)?;
            let after = |text: &str| if text == ">" { Ok(None) } else { id(text.as_bytes()).map(Some) };
            let ids = ids.split(' ').map(after).collect::<Found<Vec<_>>>()?;
            let how = Delivers { now: unsigned(now)?, most: most(count)?, acks: acks(how)? };
            if ids.len() != keys.len() {
                return Err(Wrong::Arguments);
            }
            for key in &keys {
                if group_of(space, key, name)?.is_none() {
                    return Ok(no_group(key, name));
                }
            }
            let mut told = Vec::new();
            for (key, after) in keys.into_iter().zip(ids) {
                let found = deliver(space, key, name, consumer, after, how)?;
                if !matches!(found, Reply::Nil) {
                    told.extend([Reply::Bytes(key.clone()), found]);
                }
            }
            Ok(if told.is_empty() { Reply::Nil } else { Reply::List(told) })
        }),
    ),
    // How many were to be acknowledged.
    writes("stream.ack", "group id...", |space, key, args| {
        let (name, ids) = args.split_first().ok_or(Wrong::Arguments)?;
        some(ids)?;
        let ids = ids.iter().map(|arg| id(arg)).collect::<Found<Vec<_>>>()?;
        let is_pending = |group: &Group| ids.iter().any(|id| group.pending().get(*id).is_some());
        if !group_of(space, key, name)?.is_some_and(|(_, group)| is_pending(group)) {
            return Ok(Reply::Int(0));
        }
        change_group(space, key, name, 0, |_, group| count(ids.iter().filter(|id| group.take(**id)).count()))
    }),
    writes(
        "stream.claim",
        "group consumer now idle at|- times|- last|- force|plain just|full id...",
        |space, key, args| {
            let [name, consumer, now, idle, at, times, last, force, just, ids @ ..] = args else {
                return Err(Wrong::Arguments);
            };
            let (now, idle, at) = (unsigned(now)?, unsigned(idle)?, or_dash(at, unsigned)?);
            let (times, last) = (or_dash(times, unsigned)?, or_dash(last, id)?);
            let (force, just) = (is_either(force, b"force", b"plain")?, is_either(just, b"just", b"full")?);
            let ids = ids.iter().map(|arg| id(arg)).collect::<Found<Vec<_>>>()?;
            let more = consumer.len() + GROUP_BYTES + if force { ids.len() * GROUP_BYTES } else { 0 };
            change_group(space, key, name, more, |log, group| {
                group.last = group.last.max(last.unwrap_or_default());
                group.see(consumer, now);
                let mut told = Vec::new();
                for id in ids {
                    let Some(entry) = log.get(id) else {
                        group.take(id);
                        continue;
                    };
                    let had = match group.pending().get(id) {
                        Some(had) if now.saturating_sub(had.at) < idle => continue,
                        Some(had) => had.times,
                        None if force => 1,
                        None => continue,
                    };
                    // One that is made so has been delivered once, before this.
                    let had = times.unwrap_or(if just { had } else { had.saturating_add(1) });
                    group.give(id, consumer, at.filter(|at| *at <= now).unwrap_or(now), had);
                    group.acts(consumer, now);
                    tell(&mut told, &entry, just);
                }
                Reply::List(told)
            })
        },
    ),
    // From where it goes on, what was claimed, and ids that have gone.
    writes("stream.claim-auto", "group consumer now idle from count just|full", |space, key, args| {
        let [name, consumer, now, idle, from, most, just] = args else { return Err(Wrong::Arguments) };
        let (now, idle, from, most) = (unsigned(now)?, unsigned(idle)?, id(from)?, unsigned(most)?);
        let just = is_either(just, b"just", b"full")?;
        change_group(space, key, name, consumer.len() + GROUP_BYTES, |log, group| {
            group.see(consumer, now);
            let (mut told, mut gone, mut left) = (Vec::new(), Vec::new(), most);
            let looks = most.saturating_mul(CLAIM_LOOKS);
            let (mut next, mut ids) = (Some(from), Vec::new());
            let mut looked = 0;
            while left > 0 && looked < looks {
                // A page at a time, as those are changed that are gone through.
                if ids.is_empty() {
                    let Some(from) = next else { break };
                    ids = group.pending().from(from).take(CLAIM_PAGE).map(|(id, _)| *id).collect();
                    ids.reverse();
                    if ids.is_empty() {
                        next = None;
                        break;
                    }
                }
                let Some(id) = ids.pop() else { break };
                (next, looked) = (id.next(), looked + 1);
                let Some(had) = group.pending().get(id) else { continue };
                let (at, times) = (had.at, had.times);
                let Some(entry) = log.get(id) else {
                    group.take(id);
                    gone.push(shown(id));
                    left -= 1;
                    continue;
                };
                if now.saturating_sub(at) < idle {
                    continue;
                }
                group.give(id, consumer, now, if just { times } else { times.saturating_add(1) });
                group.acts(consumer, now);
                tell(&mut told, &entry, just);
                left -= 1;
            }
            let next = next.and_then(|from| group.pending().from(from).next().map(|(id, _)| *id));
            Reply::List(vec![shown(next.unwrap_or(Id::MIN)), Reply::List(told), Reply::List(gone)])
        })
    }),
];

/// What a field's texts and an entry cost beside their bytes, at most.
const FIELD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 160;
/// More than a group, a consumer or what is pending counts beside names.
const GROUP_BYTES: usize = 160;
/// So many are looked at for each that may be claimed, as in Redis.
const CLAIM_LOOKS: u64 = 10;
const CLAIM_PAGE: usize = 128;

fn of<'a>(space: &'a Space, key: &[u8]) -> Found<Option<&'a Stream>> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Stream(stream)) => Ok(Some(stream)),
        Some(_) => Err(Wrong::Type),
    }
}

fn group_of<'a>(space: &'a Space, key: &[u8], name: &[u8]) -> Found<Option<(&'a Stream, &'a Group)>> {
    Ok(of(space, key)?.and_then(|stream| Some((stream, stream.group(name)?))))
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Stream) -> Result) -> Result {
    space.change(key, Value::Stream(Arc::default()), more, |value, size| match value {
        Value::Stream(stream) => {
            let stream = Arc::make_mut(stream);
            let reply = act(stream);
            *size = stream.bytes();
            reply
        }
        _ => Err(Wrong::Type),
    })
}

/// Changes a group, if there is one.
fn change_group(
    space: &mut Space,
    key: &Bytes,
    name: &Bytes,
    more: usize,
    act: impl FnOnce(&Log, &mut Group) -> Reply,
) -> Result {
    if group_of(space, key, name)?.is_none() {
        return Ok(no_group(key, name));
    }
    change(space, key, more, |stream| Ok(stream.change_group(name, act).expect("it was just seen")))
}

fn no_group(key: &Bytes, name: &Bytes) -> Reply {
    Reply::List(vec![Reply::Wrong(Wrong::NoGroup), Reply::Bytes(key.clone()), Reply::Bytes(name.clone())])
}

// Arguments.

fn id(text: &[u8]) -> Found<Id> {
    Id::parse(text, 0).ok_or(Wrong::Arguments)
}

fn or_dash<T>(text: &[u8], read: impl Fn(&[u8]) -> Found<T>) -> Found<Option<T>> {
    if text == b"-" { Ok(None) } else { read(text).map(Some) }
}

/// None: the last one of the stream.
fn or_last(text: &[u8]) -> Found<Option<Id>> {
    if text == b"$" { Ok(None) } else { id(text).map(Some) }
}

/// Of a negative count all.
fn most(text: &[u8]) -> Found<usize> {
    Ok(usize::try_from(integer(text)?).unwrap_or(usize::MAX))
}

fn is_either(text: &[u8], yes: &[u8], no: &[u8]) -> Found<bool> {
    if text == yes {
        Ok(true)
    } else if text == no {
        Ok(false)
    } else {
        Err(Wrong::Arguments)
    }
}

/// Has the consumer to acknowledge what it gets?
fn acks(how: &[u8]) -> Found<bool> {
    is_either(how, b"ack", b"noack")
}

fn next_id(text: &[u8], last: Id) -> Found<Id> {
    if last == Id::MAX {
        return Err(Wrong::IdsEnd);
    }
    let new = if let Some(now) = text.strip_prefix(b"*") {
        let now = Id { ms: unsigned(now)?, seq: 0 };
        if now > last { Some(now) } else { last.next() }
    } else if let Some(ms) = text.strip_suffix(b"-*") {
        let first = Id { ms: unsigned_id(ms)?, seq: 0 };
        if first.ms == last.ms { last.seq.checked_add(1).map(|seq| Id { seq, ..first }) } else { Some(first) }
    } else {
        Some(id(text)?)
    };
    new.filter(|new| *new > last).ok_or(Wrong::IdTooLow)
}

fn unsigned_id(text: &[u8]) -> Found<u64> {
    id(text).map(|id| id.ms)
}

fn read_trim(text: &[u8]) -> Found<Option<Trim>> {
    if text == b"-" {
        return Ok(None);
    }
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let [by, how, to, limit] = parts[..] else { return Err(Wrong::Arguments) };
    let to = match by {
        b"len" => TrimTo::Len(unsigned(to)?),
        b"id" => TrimTo::Id(id(to)?),
        _ => return Err(Wrong::Arguments),
    };
    Ok(Some(Trim { to, about: is_either(how, b"about", b"exact")?, limit: unsigned(limit)? }))
}

// Replies.

fn shown(id: Id) -> Reply {
    Reply::Bytes(id.to_string().into())
}

fn time(ms: u64) -> Reply {
    Reply::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn maybe(number: Option<u64>) -> Reply {
    number.map_or(Reply::Nil, |number| Reply::Int(number as i64))
}

fn fields_of(entry: &Entry<'_>) -> Reply {
    Reply::List(entry.fields().into_iter().map(Reply::Bytes).collect())
}

fn listed<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Reply {
    Reply::List(entries.flat_map(|entry| [shown(entry.id()), fields_of(&entry)]).collect())
}

fn tell(told: &mut Vec<Reply>, entry: &Entry<'_>, just: bool) {
    told.push(shown(entry.id()));
    if !just {
        told.push(fields_of(entry));
    }
}

fn counters(stream: &Stream) -> Vec<Reply> {
    let log = &stream.log;
    vec![
        Reply::Int(log.len() as i64),
        count(log.blocks().len()),
        shown(log.last()),
        shown(log.deleted()),
        Reply::Int(log.added() as i64),
        shown(log.first()),
    ]
}

// What a consumer gets.

#[derive(Clone, Copy)]
struct Delivers {
    now: u64,
    most: usize,
    /// It is to be acknowledged.
    acks: bool,
}

/// Entries for a consumer of a group that there is; nothing, if it wants new ones and there are none.
fn deliver(space: &mut Space, key: &Bytes, name: &Bytes, to: &Bytes, after: Option<Id>, how: Delivers) -> Result {
    let Delivers { now, most, acks } = how;
    let Some((stream, group)) = group_of(space, key, name)? else { return Ok(no_group(key, name)) };
    let fresh = match after {
        None if acks => stream.log.after(group.last).take(most).count(),
        _ => 0,
    };
    let has_room = |more: usize| space.get(key).is_none_or(|entry| entry.size + more <= VALUE_BYTES_MAX);
    let more = to.len() + GROUP_BYTES * (fresh + 1);
    if !has_room(more) {
        return Err(Wrong::TooLarge);
    }
    change(space, key, more, |stream| {
        let told = stream.change_group(name, |log, group| {
            group.see(to, now);
            match after {
                Some(after) => again(log, group, to, after, how),
                None => {
                    let last = group.last;
                    let mut told = Vec::new();
                    for entry in log.after(last).take(most) {
                        group.deliver(log, entry.id());
                        if acks {
                            group.give(entry.id(), to, now, 1);
                            group.acts(to, now);
                        }
                        tell(&mut told, &entry, false);
                    }
                    if told.is_empty() { Reply::Nil } else { Reply::List(told) }
                }
            }
        });
        Ok(told.expect("the group was just seen"))
    })
}

/// What was delivered to it before, and not acknowledged.
fn again(log: &Log, group: &mut Group, to: &Bytes, after: Id, how: Delivers) -> Reply {
    let from = after.next().and_then(|from| Some((from, group.consumer(to)?)));
    let ids = from.map_or(Vec::new(), |(from, consumer)| {
        consumer.pending().from(from).take(how.most).map(|(id, ())| *id).collect::<Vec<_>>()
    });
    let mut told = Vec::new();
    for id in ids {
        told.push(shown(id));
        told.push(match log.get(id) {
            Some(entry) => {
                group.give_again(id, how.now);
                fields_of(&entry)
            }
            None => Reply::Nil,
        });
    }
    Reply::List(told)
}
