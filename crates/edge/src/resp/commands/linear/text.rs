//! Texts and numbers.

use state::linear::limits::VALUE_BYTES_MAX;
use state::linear::{Condition, moment};
use state::session::{Lease, When};

use super::*;
use crate::resp::commands::compare::{Compare, digest};
use crate::resp::commands::write::{Ends, Options, Unit};

const VALUE_MAX: i64 = VALUE_BYTES_MAX as i64;

pub const ALL: &[Spec] = &[
    noted(
        spec("GET", 2, Keys::One, Does::Read, "key", "the value of a key, or nil", |call| one(call, "get", plain)),
        "linearizable: never older than any write that was acknowledged before",
    ),
    noted(
        spec(
            "SET",
            -3,
            Keys::One,
            Does::Write,
            "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]",
            "stores a value",
            set,
        ),
        "acknowledged when a majority has it on disk",
    ),
    spec("SETNX", 3, Keys::One, Does::Write, "key value", "SET with NX: 1 if it was stored, else 0", |call| {
        one_with(call, "put", put_args(call.command.value(2), "absent", "none", false), first)
    }),
    spec("SETEX", 4, Keys::One, Does::Write, "key seconds value", "SET with EX", |call| set_for(call, Unit::Seconds)),
    spec("PSETEX", 4, Keys::One, Does::Write, "key ms value", "SET with PX", |call| set_for(call, Unit::Millis)),
    spec("GETSET", 3, Keys::One, Does::Write, "key value", "SET with GET", |call| {
        one_with(call, "put", put_args(call.command.value(2), "always", "none", true), old)
    }),
    spec("GETDEL", 2, Keys::One, Does::Write, "key", "the value of a key, which is removed", |call| {
        one(call, "take", plain)
    }),
    spec(
        "GETEX",
        -2,
        Keys::One,
        Does::Write,
        "key [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | PERSIST]",
        "the value of a key, whose end is changed",
        get_ex,
    ),
    spec("DIGEST", 2, Keys::One, Does::Read, "key", "XXH3-64 of a text as 16 hexadecimal digits: for IFDEQ", |call| {
        one(call, "get", |got| match only(got) {
            Got::Bytes(text) => Reply::text(digest(&text)),
            other => plain_one(other),
        })
    }),
    spec(
        "DELEX",
        -2,
        Keys::One,
        Does::Write,
        "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
        "removes a key if the condition holds: 1 if it was removed, else 0",
        |call| match (call.command.len(), Compare::read(call.command, 2)) {
            (2, None) => one_with(call, "remove", Vec::new(), plain),
            (4, Some(Ok(compare))) => one_with(call, "remove", vec![compare.condition()], plain),
            (4, Some(Err(error))) => Act::Now(error),
            _ => syntax_error(),
        },
    ),
    spec("STRLEN", 2, Keys::One, Does::Read, "key", "length of a text, bytes", |call| one(call, "text.length", plain)),
    spec("APPEND", 3, Keys::One, Does::Write, "key value", "appends to a text; its length", |call| {
        one(call, "text.append", plain)
    }),
    spec("GETRANGE", 4, Keys::One, Does::Read, "key start end", "a part of a text", |call| {
        one(call, "text.range", plain)
    }),
    spec("SUBSTR", 4, Keys::One, Does::Read, "key start end", "the same as GETRANGE", |call| {
        one(call, "text.range", plain)
    }),
    spec("SETRANGE", 4, Keys::One, Does::Write, "key offset bytes", "writes into a text; its length", |call| {
        let command = call.command;
        match integer(command.arg(2)) {
            None => Act::Now(not_an_integer()),
            Some(..0) => Act::Now(Reply::error("ERR offset is out of range")),
            Some(at) if !command.arg(3).is_empty() && at.saturating_add(command.arg(3).len() as i64) > VALUE_MAX => {
                Act::Now(Reply::error("ERR string exceeds maximum allowed size (16 MiB)"))
            }
            Some(_) => one(call, "text.set-range", plain),
        }
    }),
    noted(
        spec(
            "MSETNX",
            -3,
            Keys::Pairs,
            Does::Write,
            "key value [key value ...]",
            "MSET, if there is none of the keys: 1, else 0",
            set_many_new,
        ),
        "all keys must be in one shard",
    ),
    noted(
        spec(
            "MSETEX",
            -4,
            Keys::CountedPairs(1),
            Does::Write,
            "numkeys key value [key value ...] [NX | XX] [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]",
            "stores several values with one end: 1, or 0 if there is one of the keys (NX), or not each of them (XX)",
            set_many_ex,
        ),
        "atomic; all keys must be in one shard; with NX and XX not inside MULTI",
    ),
    spec("INCR", 2, Keys::One, Does::Write, "key", "adds one", |call| add(call, Some(1))),
    spec("DECR", 2, Keys::One, Does::Write, "key", "subtracts one", |call| add(call, Some(-1))),
    spec("INCRBY", 3, Keys::One, Does::Write, "key delta", "adds a number", |call| {
        add(call, integer(call.command.arg(2)))
    }),
    spec("DECRBY", 3, Keys::One, Does::Write, "key delta", "subtracts a number", |call| {
        match integer(call.command.arg(2)) {
            Some(i64::MIN) => Act::Now(Reply::error("ERR decrement would overflow")),
            delta => add(call, delta.map(|delta| -delta)),
        }
    }),
    noted(
        spec("INCRBYFLOAT", 3, Keys::One, Does::Write, "key delta", "adds a number with a fraction", |call| {
            one(call, "number.add-float", |got| float_sum(only(got)))
        }),
        FLOATS,
    ),
    noted(
        spec("MGET", -2, Keys::All, Does::Read, "key [key ...]", "values of several keys", |call| {
            each(call, "get", all)
        }),
        "of one moment, if the namespace has one shard",
    ),
    noted(
        spec("MSET", -3, Keys::Pairs, Does::Write, "key value [key value ...]", "stores several values", |call| {
            let command = call.command;
            if command.len().is_multiple_of(2) {
                return Act::Now(wrong_arity("MSET"));
            }
            let step = |i| Step::new(command.key(i), "put", put_args(command.value(i + 1), "always", "none", false));
            steps(call, (1..command.len()).step_by(2).map(step).collect(), ok)
        }),
        "atomic; all keys must be in one shard",
    ),
    noted(
        spec(
            "LCS",
            -3,
            Keys::Two,
            Does::Read,
            "key key [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]",
            "the longest text that stands in both, though not in one piece",
            common,
        ),
        "both keys must be in one shard; the product of their lengths may be 16 million",
    ),
];

fn set_many_new(call: &mut Call<'_>) -> Act {
    let command = call.command;
    if command.len().is_multiple_of(2) {
        return Act::Now(wrong_arity("MSETNX"));
    }
    let keys = || (1..command.len()).step_by(2);
    let step = |i| Step::new(command.key(i), "put", put_args(command.value(i + 1), "always", "none", false));
    let conditions = keys().map(|i| Condition { key: command.key(i), version: 0 }).collect();
    let space = call.space();
    let op = Op { conditions, ..Op::of(space.name.clone(), keys().map(step).collect()) };
    Call::later(async move {
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(_)) => Reply::Int(1),
            Outcome::Done(Ran::Unmet) => Reply::Int(0),
            other => reply(other, plain),
        }
    })
}

/// How often it is looked anew whether all keys are there: others may write them between the look and the write.
const LOOKS_MAX: usize = 8;

fn set_many_ex(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let pairs = integer(command.arg(1)).and_then(|pairs| usize::try_from(pairs).ok()).filter(|pairs| *pairs > 0);
    let Some(pairs) = pairs else { return Act::Now(Reply::error("ERR invalid numkeys value")) };
    let Some(options) = pairs.checked_mul(2).map(|words| words + 2).filter(|at| *at <= command.len()) else {
        return Act::Now(wrong_arity("MSETEX"));
    };
    let Options { lease, moment, when, compare, get, persist } = match Options::read(command, options, "msetex") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    if compare.is_some() || get || persist {
        return syntax_error();
    }
    let end = end_of(moment, lease);
    let keys: Vec<Bytes> = (2..options).step_by(2).map(|at| command.key(at)).collect();
    let put = |(at, key): (usize, &Bytes)| {
        Step::new(key.clone(), "put", put_args(command.value(2 * at + 3), "always", end.clone(), false))
    };
    let puts: Vec<Step> = keys.iter().enumerate().map(put).collect();
    let Some(when) = when.filter(|when| *when != When::Always) else {
        return steps(call, puts, |got| match ok(got) {
            Reply::Simple(_) => Reply::Int(1),
            wrong => wrong,
        });
    };
    let space = call.space();
    let name = space.name.clone();
    Call::later(async move {
        for _ in 0..LOOKS_MAX {
            let versions = match when {
                When::Present => {
                    let looks = keys.iter().map(|key| Step::new(key.clone(), "look", Vec::new())).collect();
                    match space.ask_linear(Op::of(name.clone(), looks)).await {
                        Outcome::Done(Ran::Done(got)) => got.iter().map(version_of).collect(),
                        other => return reply(other, plain),
                    }
                }
                _ => Some(vec![0; keys.len()]),
            };
            let Some(versions) = versions else { return Reply::Int(0) };
            let conditions = keys.iter().zip(versions).map(|(key, version)| Condition { key: key.clone(), version });
            let op = Op { conditions: conditions.collect(), ..Op::of(name.clone(), puts.clone()) };
            match space.ask_linear(op).await {
                Outcome::Done(Ran::Done(got)) if matches!(ok(got.clone()), Reply::Simple(_)) => return Reply::Int(1),
                Outcome::Done(Ran::Done(got)) => return ok(got),
                Outcome::Done(Ran::Unmet) if when == When::Present => (),
                Outcome::Done(Ran::Unmet) => return Reply::Int(0),
                other => return reply(other, plain),
            }
        }
        Reply::error("BUSY others write these keys all the time, retry in 100 ms")
    })
}

/// The version of a key that was looked at, if it is there.
fn version_of(looked: &Got) -> Option<u64> {
    let Got::List(parts) = looked else { return None };
    parts.iter().find_map(|part| if let Got::Int(version) = part { Some(*version as u64) } else { None })
}

fn end_of(moment: Option<u64>, lease: Option<Ends>) -> String {
    match (moment, lease) {
        (Some(moment), _) => moment::at(moment),
        (None, None | Some(Ends::By(Lease::Default))) => "none".to_owned(),
        (None, Some(Ends::By(Lease::Keep))) => "keep".to_owned(),
        (None, Some(Ends::By(Lease::For(span)))) => span.as_millis().max(1).to_string(),
        // What has passed is a moment.
        (None, Some(Ends::Now)) => moment::at(0),
    }
}

fn put_args(value: Bytes, when: impl Into<Bytes>, end: impl Into<String>, wants_old: bool) -> Vec<Bytes> {
    let mut args = vec![value, when.into(), word(end)];
    if wants_old {
        args.push(Bytes::from_static(b"old"));
    }
    args
}

fn set(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let Options { lease, moment, when, compare, get, persist } = match Options::read(command, 3, "set") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    let when = match (when, compare) {
        _ if persist => return syntax_error(),
        (None, None) => "always".into(),
        (Some(When::Absent), None) => "absent".into(),
        (Some(When::Present), None) => "present".into(),
        (None, Some(compare)) => compare.condition(),
        (Some(_), _) => return syntax_error(),
    };
    let end = end_of(moment, lease);
    one_with(call, "put", put_args(command.value(2), when, end, get), if get { old } else { stored })
}

fn set_for(call: &mut Call<'_>, unit: Unit) -> Act {
    let name = if unit == Unit::Seconds { "setex" } else { "psetex" };
    match unit.span(call.command.arg(2), name) {
        Err(error) => Act::Now(error),
        Ok(left) => {
            let end = left.map_or_else(|| moment::at(0), |span| span.as_millis().max(1).to_string());
            one_with(call, "put", put_args(call.command.value(3), "always", end, false), stored)
        }
    }
}

fn get_ex(call: &mut Call<'_>) -> Act {
    let options = match Options::read(call.command, 2, "getex") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    match options {
        Options { get: false, when: None, compare: None, lease: None, moment: _, persist: false } => {
            one_with(call, "get", Vec::new(), plain)
        }
        Options { get: false, when: None, compare: None, lease: None, moment: _, persist: true } => {
            one_with(call, "get-expire", vec![word("none")], plain)
        }
        Options { get: false, when: None, compare: None, lease: Some(ends), moment, persist: false } => {
            let end = match (moment, ends) {
                (Some(moment), _) => moment::at(moment),
                (None, Ends::Now) => moment::at(0),
                (None, Ends::By(Lease::For(span))) => span.as_millis().max(1).to_string(),
                (None, Ends::By(Lease::Keep | Lease::Default)) => return syntax_error(),
            };
            one_with(call, "get-expire", vec![word(end)], plain)
        }
        Options { get: _, when: _, compare: _, lease: _, moment: _, persist: _ } => syntax_error(),
    }
}

pub const FLOATS: &str =
    "exact with 17 places behind the point below 10^21, beyond it a double; no hexadecimal numbers";

/// The sum of two numbers with fractions.
pub fn float_sum(got: Got) -> Reply {
    match got {
        Got::Wrong(Wrong::Overflow) => Reply::error("ERR increment would produce NaN or Infinity"),
        other => plain_one(other),
    }
}

fn add(call: &mut Call<'_>, delta: Option<i64>) -> Act {
    match delta {
        Some(delta) => one_with(call, "number.add", vec![word(delta.to_string())], plain),
        None => Act::Now(not_an_integer()),
    }
}

/// `OK`, or nil if the condition did not hold.
fn stored(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) if list.first() == Some(&Got::Int(1)) => Reply::OK,
        Got::List(_) => Reply::Nil,
        other => plain_one(other),
    }
}

/// The value that was there.
fn old(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => list.into_iter().nth(1).map_or(Reply::Nil, plain_one),
        other => plain_one(other),
    }
}

fn common(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (mut length, mut parts, mut with_lengths, mut least, mut at) = (false, false, false, 0, 3);
    while at < command.len() {
        match command.arg(at) {
            arg if is(arg, "IDX") => parts = true,
            arg if is(arg, "LEN") => length = true,
            arg if is(arg, "WITHMATCHLEN") => with_lengths = true,
            arg if is(arg, "MINMATCHLEN") && at + 1 < command.len() => {
                at += 1;
                match integer(command.arg(at)) {
                    Some(said) => least = said.max(0),
                    None => return Act::Now(not_an_integer()),
                }
            }
            _ => return syntax_error(),
        }
        at += 1;
    }
    if length && parts {
        let why = "ERR If you want both the length and indexes, please just use IDX.";
        return Act::Now(Reply::error(why));
    }
    let what = if parts { "parts" } else { ["text", "length"][usize::from(length)] };
    let then: Then = match (parts, with_lengths) {
        (false, _) => |got| in_common(only(got)),
        (true, false) => |got| parts_in_common(only(got), 4),
        (true, true) => |got| parts_in_common(only(got), 5),
    };
    one_with(call, "text.common", vec![command.key(2), word(what), word(least.to_string())], then)
}

fn in_common(got: Got) -> Reply {
    match got {
        Got::Wrong(Wrong::Type) => Reply::error("ERR The specified keys must contain string values"),
        Got::Wrong(Wrong::TooLarge) => {
            Reply::error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
        }
        other => plain_one(other),
    }
}

/// Each part with both of its stretches, and with its length if that makes five.
fn parts_in_common(got: Got, numbers: usize) -> Reply {
    let shown = |part: Got| match part {
        Got::List(said) => {
            let all: Vec<Reply> = said.into_iter().take(numbers).map(plain_one).collect();
            let mut stretches: Vec<Reply> = all.chunks(2).map(|two| Reply::List(two.to_vec())).collect();
            if numbers == 5 {
                stretches.pop();
                stretches.extend(all.last().cloned());
            }
            Reply::List(stretches)
        }
        other => plain_one(other),
    };
    match got {
        Got::List(said) => match <[Got; 2]>::try_from(said) {
            Ok([Got::List(parts), total]) => Reply::Map(vec![
                (Reply::word("matches"), Reply::List(parts.into_iter().map(shown).collect())),
                (Reply::word("len"), plain_one(total)),
            ]),
            _ => Reply::Nil,
        },
        other => in_common(other),
    }
}
