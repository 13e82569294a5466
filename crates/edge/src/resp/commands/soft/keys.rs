//! Keys, whatever they have.

use base::Span;

use super::*;
use crate::resp::commands::page::{Also, Page};
use crate::resp::commands::write::{Unit, unix_millis};
use crate::resp::limits::{KEYS_LISTED_MAX, PATTERN_BYTES_MAX, SCAN_COUNT_MAX};

const NO_OPTIONS: &str = "without NX, XX, GT and LT; until a node has removed what ended it shows it no more";

const BY_CLOCK: &str = "by the clock of the node that is asked, so nodes may say it somewhat differently";

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
    spec("TOUCH", -2, Keys::All, Does::Read, "key [key ...]", "as EXISTS", |call| {
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
        spec(
            "EXPIRETIME",
            2,
            Keys::One,
            Does::Read,
            "key",
            "when a key ends, Unix seconds; -1 and -2 as TTL",
            |call| end_of(call, |ms| (ms + 500) / 1000),
        ),
        BY_CLOCK,
    ),
    noted(
        spec(
            "PEXPIRETIME",
            2,
            Keys::One,
            Does::Read,
            "key",
            "when a key ends, Unix milliseconds; -1 and -2 as TTL",
            |call| end_of(call, |ms| ms),
        ),
        BY_CLOCK,
    ),
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
        spec("KEYS", 2, Keys::None, Does::ReadAll, "pattern", "all keys that fit a pattern", keys),
        "read in pages: what is written meanwhile may be among them or not; 65,536 at most",
    ),
    noted(
        spec("RANDOMKEY", 1, Keys::None, Does::ReadAll, "", "some key", random_key),
        "keys whose hash is far behind another's come more often",
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
    let page = match Page::read(call.command, 1, Also::Type, SCAN_COUNT_MAX) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    later(call, Action::Scan { cursor: page.cursor, count: page.count }, move |got| {
        let Got::Page { cursor, keys } = got else { odd(&got) };
        let fits = |(key, of): &(Bytes, Kind)| page.fits(key) && page.is_of(of.name().as_bytes());
        let keys = keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
        Reply::List(vec![Reply::text(cursor.to_string()), Reply::List(keys)])
    })
}

/// A page of the keys from this place on, and that of the next; 0: there is none.
async fn keys_from(space: &Space, cursor: u64, count: u32) -> Result<(u64, Vec<Bytes>), Reply> {
    match space.ask_soft(Action::Scan { cursor, count }).await {
        Outcome::Done(Got::Page { cursor, keys }) => Ok((cursor, keys.into_iter().map(|(key, _)| key).collect())),
        other => Err(reply(other, |got| odd(&got))),
    }
}

fn keys(call: &mut Call<'_>) -> Act {
    let pattern = call.command.key(1);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Act::Now(Reply::Error(format!("ERR a pattern may have {PATTERN_BYTES_MAX} bytes")));
    }
    let space = call.space();
    Call::later(async move {
        let (mut found, mut cursor) = (Vec::new(), 0);
        loop {
            let (next, keys) = match keys_from(&space, cursor, SCAN_COUNT_MAX).await {
                Ok(page) => page,
                Err(error) => return error,
            };
            found.extend(keys.into_iter().filter(|key| fits(&pattern, key)).map(Reply::Bulk));
            if found.len() > KEYS_LISTED_MAX {
                return Reply::Error(format!(
                    "ERR more than {KEYS_LISTED_MAX} keys fit this pattern: SCAN with MATCH lists them in pages"
                ));
            }
            if next == 0 {
                return Reply::List(found);
            }
            cursor = next;
        }
    })
}

fn random_key(call: &mut Call<'_>) -> Act {
    let space = call.space();
    Call::later(async move {
        // From some place on; what is before it comes last.
        let mut cursor = chance();
        let mut is_again = false;
        loop {
            match keys_from(&space, cursor, 1).await {
                Ok((_, keys)) if !keys.is_empty() => {
                    return keys.into_iter().next().map_or(Reply::Nil, Reply::Bulk);
                }
                Ok((0, _)) if is_again => return Reply::Nil,
                Ok((next, _)) => (cursor, is_again) = (next, is_again || next == 0),
                Err(error) => return error,
            }
        }
    })
}

/// When a key ends, by the clock of this machine.
fn end_of(call: &Call<'_>, in_unit: fn(u64) -> u64) -> Act {
    later(call, Action::Left { key: call.command.key(1) }, move |got| match got {
        Got::Left(None) => Reply::Int(-2),
        Got::Left(Some(None)) => Reply::Int(-1),
        Got::Left(Some(Some(left))) => Reply::Int(in_unit(unix_millis().unsigned_abs() + left.as_millis()) as i64),
        other => odd(&other),
    })
}
