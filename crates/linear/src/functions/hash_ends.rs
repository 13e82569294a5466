//! Hashes whose fields end by themselves (`hash.rs`): when they do, as Redis has it since 7.4.

use std::sync::Arc;

use super::hash::{change, of, remove};
use super::key::End;
use super::*;
use crate::hash::Hash;
use crate::limits::VALUE_BYTES_MAX;
use crate::value::ITEM_BYTES;

/// With which level of programs such hashes came.
pub const LEVEL: u32 = 12;

/// What the history calls it when fields have ended: no function.
pub const ENDED: &str = "hash.ended";

/// In place of a field that is not there, and of the end of one that does not end.
const NO_FIELD: Reply = Reply::Int(-2);
const NO_END: Reply = Reply::Int(-1);

pub const ALL: &[Function] = &[
    // Of each field: -2, there is none; 0, the condition does not hold; 1; 2, it ended at once.
    since(LEVEL, write("hash.expire", "MS|at:UNIX-MS any|nx|xx|gt|lt field...", expire)),
    // Of each field: -2, there is none; -1, it does not end; 1.
    since(
        LEVEL,
        write("hash.persist", "field...", |space, key, args| {
            some(args)?;
            let Some(now) = of(space, key)? else { return Ok(each_absent(args)) };
            let persist = |hash: &mut Hash, clock| {
                let persisted = |field: &Bytes| match hash.at(clock).end(field) {
                    None => NO_FIELD,
                    Some(0) => NO_END,
                    Some(_) => {
                        hash.set_end(field, 0);
                        Reply::Int(1)
                    }
                };
                Reply::List(args.iter().map(persisted).collect())
            };
            if args.iter().any(|field| now.end(field).is_some_and(|end| end != 0)) {
                return change(space, key, 0, persist);
            }
            Ok(Reply::List(args.iter().map(|field| now.end(field).map_or(NO_FIELD, |_| NO_END)).collect()))
        }),
    ),
    // Of each field what is left, milliseconds: -2, there is none; -1, it does not end.
    since(
        LEVEL,
        read("hash.ttl", "field...", |space, key, args| {
            some(args)?;
            let Some(now) = of(space, key)? else { return Ok(each_absent(args)) };
            let left = |field: &Bytes| now.end(field).map_or(NO_FIELD, |end| left(space, end));
            Ok(Reply::List(args.iter().map(left).collect()))
        }),
    ),
    // Fields, values and what is left of each, milliseconds, in turn.
    since(
        LEVEL,
        read("hash.all-ending", "", |space, key, args| {
            none(args)?;
            let item = |(field, value, end): (&Bytes, &Bytes, u64)| {
                [Reply::Bytes(field.clone()), Reply::Bytes(value.clone()), left(space, end)]
            };
            let Some(now) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
            Ok(Reply::List(now.with_ends().flat_map(item).collect()))
        }),
    ),
    since(LEVEL, write("hash.get-expire", "none|MS|at:UNIX-MS field...", get_expire)),
    // 1 if they were set: all, or none of them.
    since(LEVEL, write("hash.set-expire", "always|absent|present none|keep|MS|at:UNIX-MS field value ...", set_expire)),
    // A whole hash, whatever was there before.
    since(LEVEL, inner(write("hash.load", "none|MS|at:UNIX-MS field value none|MS|at:UNIX-MS ...", load))),
];

fn each_absent(fields: &[Bytes]) -> Reply {
    Reply::List(vec![NO_FIELD; fields.len()])
}

fn left(space: &Space, end: u64) -> Reply {
    if end == 0 { NO_END } else { Reply::Int(end.saturating_sub(space.shown_clock()).max(1) as i64) }
}

/// A moment that may have passed (0), which is not never.
fn moment(space: &Space, arg: &[u8]) -> std::result::Result<u64, Wrong> {
    match End::read(space, arg, || End::Never)? {
        End::Never => Err(Wrong::Arguments),
        End::At(end) => Ok(end),
        End::Passed => Ok(0),
    }
}

fn expire(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [end, when, fields @ ..] = args else { return Err(Wrong::Arguments) };
    some(fields)?;
    let end = moment(space, end)?;
    // As Redis: what does not end is later than any, but only to be earlier.
    let may: fn(u64, u64) -> bool = match &when[..] {
        b"any" => |_, _| true,
        b"nx" => |old, _| old == 0,
        b"xx" => |old, _| old != 0,
        b"gt" => |old, new| old != 0 && new > old,
        b"lt" => |old, new| old == 0 || new < old,
        _ => return Err(Wrong::Arguments),
    };
    let Some(now) = of(space, key)? else { return Ok(each_absent(fields)) };
    if !fields.iter().any(|field| now.end(field).is_some_and(|old| may(old, end))) {
        return Ok(Reply::List(
            fields.iter().map(|field| now.end(field).map_or(NO_FIELD, |_| Reply::Int(0))).collect(),
        ));
    }
    let more = if end == 0 { 0 } else { fields.len() * ITEM_BYTES };
    if end == 0 {
        space.does("hash.remove");
    }
    change(space, key, more, |hash, clock| {
        let one = |field: &Bytes| match hash.at(clock).end(field) {
            None => NO_FIELD,
            Some(old) if !may(old, end) => Reply::Int(0),
            Some(_) if end == 0 => {
                hash.remove(field, clock);
                Reply::Int(2)
            }
            Some(_) => {
                hash.set_end(field, end);
                Reply::Int(1)
            }
        };
        Reply::List(fields.iter().map(one).collect())
    })
}

/// Values of fields, which then end so.
fn get_expire(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [end, fields @ ..] = args else { return Err(Wrong::Arguments) };
    some(fields)?;
    let end = End::read(space, end, || End::Never)?;
    let Some(now) = of(space, key)? else { return Ok(Reply::List(vec![Reply::Nil; fields.len()])) };
    let (mut seen, mut values) = (BTreeSet::new(), Vec::with_capacity(fields.len()));
    for field in fields {
        // One that stands twice and has ended at once is gone the second time.
        let is_gone = matches!(end, End::Passed) && !seen.insert(field);
        let value = now.get(field).filter(|_| !is_gone);
        values.push(value.map_or(Reply::Nil, |value| Reply::Bytes(value.clone())));
    }
    let values = Reply::List(values);
    let changes = |field: &Bytes| now.end(field).is_some_and(|old| old != 0 || !matches!(end, End::Never));
    if !fields.iter().any(changes) {
        return Ok(values);
    }
    match end {
        End::Never => {
            space.does("hash.persist");
            change(space, key, 0, |hash, clock| ends_so(hash, clock, fields, 0))?;
        }
        End::At(end) => {
            space.does("hash.expire");
            change(space, key, fields.len() * ITEM_BYTES, |hash, clock| ends_so(hash, clock, fields, end))?;
        }
        End::Passed => {
            space.does("hash.remove");
            remove(space, key, fields)?;
        }
    }
    Ok(values)
}

fn ends_so(hash: &mut Hash, clock: u64, fields: &[Bytes], end: u64) -> Reply {
    for field in fields {
        if hash.at(clock).has(field) {
            hash.set_end(field, end);
        }
    }
    Reply::Nil
}

fn set_expire(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [when, end, pairs @ ..] = args else { return Err(Wrong::Arguments) };
    let (pairs, rest) = pairs.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(Wrong::Arguments);
    }
    let (keeps, end) = (&end[..] == b"keep", End::read(space, end, || End::Never)?);
    let now = of(space, key)?;
    let has = |[field, _]: &[Bytes; 2]| now.is_some_and(|now| now.has(field));
    let may = match &when[..] {
        b"always" => true,
        b"absent" => !pairs.iter().any(has),
        b"present" => pairs.iter().all(has),
        _ => return Err(Wrong::Arguments),
    };
    if !may {
        return Ok(Reply::Int(0));
    }
    if matches!(end, End::Passed) {
        if pairs.iter().any(has) {
            let fields: Vec<Bytes> = pairs.iter().map(|[field, _]| field.clone()).collect();
            space.does("hash.remove");
            remove(space, key, &fields)?;
        }
        return Ok(Reply::Int(1));
    }
    if matches!(end, End::Never) {
        space.does("hash.set");
    }
    let more = pairs.iter().map(|[field, value]| field.len() + value.len() + 2 * ITEM_BYTES).sum();
    change(space, key, more, |hash, clock| {
        for [field, value] in pairs {
            if keeps {
                hash.set_keeping_end(field, value.clone(), clock);
            } else {
                hash.set(field, value.clone(), clock);
            }
            if let End::At(end) = end {
                hash.set_end(field, end);
            }
        }
        Reply::Int(1)
    })
}

fn load(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [end, fields @ ..] = args else { return Err(Wrong::Arguments) };
    let (fields, rest) = fields.as_chunks::<3>();
    if fields.is_empty() || !rest.is_empty() {
        return Err(Wrong::Arguments);
    }
    let (end, clock) = (End::read(space, end, || End::Never)?, space.clock());
    let mut hash = Hash::default();
    for [field, value, end] in fields {
        match End::read(space, end, || End::Never)? {
            End::Never => drop(hash.set(field, value.clone(), clock)),
            End::At(end) => {
                hash.set(field, value.clone(), clock);
                hash.set_end(field, end);
            }
            End::Passed => drop(hash.remove(field, clock)),
        }
    }
    if hash.bytes() > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    if hash.is_empty() {
        space.remove(key);
        return Ok(Reply::Int(0));
    }
    Ok(Reply::Int(end.put(space, key, Value::Hash(Arc::new(hash))) as i64))
}
