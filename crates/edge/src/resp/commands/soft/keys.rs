//! Keys, whatever they have.

use base::Span;

use super::*;
use crate::resp::commands::write::Unit;
use crate::resp::limits::{PATTERN_BYTES_MAX, SCAN_COUNT_MAX};

const NO_OPTIONS: &str = "without NX, XX, GT and LT; until a node has removed what ended it shows it no more";

pub const ALL: &[Spec] = &[
    spec("DEL", -2, Keys::All, Does::Write, "key [key ...]", "removes keys; how many there were", |call| {
        act(call, Action::Remove { keys: names(call, 1) }, int)
    }),
    spec("UNLINK", -2, Keys::All, Does::Write, "key [key ...]", "as DEL", |call| {
        act(call, Action::Remove { keys: names(call, 1) }, int)
    }),
    spec("EXISTS", -2, Keys::All, Does::Read, "key [key ...]", "how many of these keys there are", |call| {
        act(call, Action::Exists { keys: names(call, 1) }, int)
    }),
    spec("TYPE", 2, Keys::One, Does::Read, "key", "`string`, `hash`, `set`, `list`, `zset` or `none`", |call| {
        act(call, Action::Kind { key: call.command.key(1) }, |got| match got {
            Got::Kind(kind) => Reply::Simple(kind.map_or("none", Kind::name)),
            other => odd(&other),
        })
    }),
    spec(
        "TTL",
        2,
        Keys::One,
        Does::Read,
        "key",
        "seconds to the end of a key; -1: it has none, -2: there is no key",
        |call| {
            // Rounded, as in Redis.
            left(call, |left| (left.as_millis() + 500) / 1000)
        },
    ),
    spec("PTTL", 2, Keys::One, Does::Read, "key", "milliseconds to the end of a key; -1 and -2 as TTL", |call| {
        left(call, Span::as_millis)
    }),
    noted(
        spec("EXPIRE", 3, Keys::One, Does::Write, "key seconds", "a key ends then: 1 if there is one", |call| {
            ends(call, Unit::Seconds)
        }),
        NO_OPTIONS,
    ),
    noted(
        spec("PEXPIRE", 3, Keys::One, Does::Write, "key ms", "a key ends then: 1 if there is one", |call| {
            ends(call, Unit::Millis)
        }),
        NO_OPTIONS,
    ),
    noted(
        spec("EXPIREAT", 3, Keys::One, Does::Write, "key unix-seconds", "a key ends then: 1 if there is one", |call| {
            ends(call, Unit::UnixSeconds)
        }),
        NO_OPTIONS,
    ),
    noted(
        spec("PEXPIREAT", 3, Keys::One, Does::Write, "key unix-ms", "a key ends then: 1 if there is one", |call| {
            ends(call, Unit::UnixMillis)
        }),
        NO_OPTIONS,
    ),
    spec("PERSIST", 2, Keys::One, Does::Write, "key", "a key ends no more: 1 if it would have", |call| {
        act(call, Action::End { key: call.command.key(1), end: None }, int)
    }),
    noted(
        spec("DBSIZE", 1, Keys::None, Does::ReadAll, "", "how many keys there are", |call| {
            act(call, Action::Count, int)
        }),
        "keys that have just ended count until they are removed",
    ),
    noted(
        spec(
            "SCAN",
            -2,
            Keys::None,
            Does::ReadAll,
            "cursor [MATCH pattern] [COUNT n] [TYPE type]",
            "a page of the keys, and the cursor of the next",
            scan,
        ),
        "what is there throughout the walk is listed once; a cursor is good at every node",
    ),
    noted(
        spec("FLUSHDB", -1, Keys::None, Does::WriteAll, "[ASYNC | SYNC]", "removes all keys of this namespace", flush),
        "what its node has seen when it begins, in parts: what is written meanwhile stays",
    ),
    noted(
        spec("FLUSHALL", -1, Keys::None, Does::WriteAll, "[ASYNC | SYNC]", "the same as FLUSHDB", flush),
        "of this namespace alone",
    ),
];

fn flush(call: &mut Call<'_>) -> Act {
    let command = call.command;
    match command.len() {
        1 => act(call, Action::Clear, ok),
        2 if is(command.arg(1), "SYNC") || is(command.arg(1), "ASYNC") => act(call, Action::Clear, ok),
        _ => syntax_error(),
    }
}

fn left(call: &Call<'_>, in_unit: fn(Span) -> u64) -> Act {
    later(call, Action::Left { key: call.command.key(1) }, move |got| match got {
        Got::Left(None) => Reply::Int(-2),
        Got::Left(Some(None)) => Reply::Int(-1),
        Got::Left(Some(Some(left))) => Reply::Int(in_unit(left) as i64),
        other => odd(&other),
    })
}

fn ends(call: &Call<'_>, unit: Unit) -> Act {
    let command = call.command;
    let Some(number) = integer(command.arg(2)) else { return Act::Now(not_an_integer()) };
    let Some(left) = unit.left_until(number) else {
        let name = String::from_utf8_lossy(command.arg(0)).to_lowercase();
        return Act::Now(Reply::Error(format!("ERR invalid expire time in '{name}' command")));
    };
    act(call, Action::End { key: command.key(1), end: Some(left.unwrap_or(Span::ZERO)) }, int)
}

fn scan(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let cursor = std::str::from_utf8(command.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else { return Act::Now(Reply::error("ERR invalid cursor")) };
    let (mut pattern, mut count, mut kind) = (None, 10, None);
    if !command.len().is_multiple_of(2) {
        return syntax_error();
    }
    for at in (2..command.len()).step_by(2) {
        let (option, value) = (command.arg(at), command.arg(at + 1));
        if is(option, "MATCH") {
            if value.len() > PATTERN_BYTES_MAX {
                return Act::Now(Reply::Error(format!("ERR a pattern may have {PATTERN_BYTES_MAX} bytes")));
            }
            pattern = Some(command.key(at + 1));
        } else if is(option, "COUNT") {
            match integer(value) {
                Some(n @ 1..) => count = u32::try_from(n).unwrap_or(u32::MAX).min(SCAN_COUNT_MAX),
                Some(_) => return syntax_error(),
                None => return Act::Now(not_an_integer()),
            }
        } else if is(option, "TYPE") {
            kind = Some(value.to_ascii_lowercase());
        } else {
            return syntax_error();
        }
    }
    later(call, Action::Scan { cursor, count }, move |got| {
        let Got::Page { cursor, keys } = got else { odd(&got) };
        let fits = |(key, of): &(Bytes, Kind)| {
            pattern.as_ref().is_none_or(|pattern| fits(pattern, key))
                && kind.as_ref().is_none_or(|kind| kind == of.name().as_bytes())
        };
        let keys = keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
        Reply::List(vec![Reply::text(cursor.to_string()), Reply::List(keys)])
    })
}
