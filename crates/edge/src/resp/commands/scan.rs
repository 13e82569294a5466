//! Commands about all keys of the namespace.

use base::Outcome;
use bytes::Bytes;
use state::session::{Action, Kind, Reply as Found};

use super::*;
use crate::resp::limits::*;

pub static DBSIZE: Spec = Spec {
    name: "DBSIZE",
    arity: 1,
    keys: Keys::None,
    does: Does::ReadAll,
    syntax: "",
    summary: "how many values the namespace has",
    note: "exact up to a thousand; more are counted by the bricks: what ended within ten seconds may count still, and while nodes come or go a quarter may be amiss for a moment",
    run: |call| {
        Act::Op(call.space().op(Bytes::new(), Action::Count), |outcome: Outcome<Found>| match ops::done(outcome) {
            Ok(Found::Count(n)) => Reply::Int(i64::try_from(n).unwrap_or(i64::MAX)),
            Ok(other) => ops::odd(&other),
            Err(error) => error,
        })
    },
};

pub static SCAN: Spec = Spec {
    name: "SCAN",
    arity: -2,
    keys: Keys::None,
    does: Does::ReadAll,
    syntax: "cursor [MATCH pattern] [COUNT n] [TYPE type]",
    summary: "a page of the keys, and the cursor of the next",
    note: "what is there throughout the walk is listed at least once, as in Redis",
    run: scan,
};

fn scan(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let cursor = std::str::from_utf8(command.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else { return Act::Now(Reply::error("ERR invalid cursor")) };
    let (mut pattern, mut count, mut kinds) = (None, 10, &[Kind::Text, Kind::Hash][..]);
    if command.len().is_multiple_of(2) {
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
                kinds = match value {
                    _ if is(value, "string") => &[Kind::Text],
                    _ if is(value, "hash") => &[Kind::Hash],
                    _ => &[],
                };
            } else {
                return syntax_error();
            }
        }
    } else {
        return syntax_error();
    }
    let space = call.space();
    Call::later(async move {
        match ops::done(space.ask(space.op(Bytes::new(), Action::Scan { cursor, count })).await) {
            Ok(Found::Page { cursor, keys }) => {
                let fits = |(key, kind): &(Bytes, Kind)| {
                    kinds.contains(kind) && pattern.as_ref().is_none_or(|pattern| fits(pattern, key))
                };
                let keys = keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
                Reply::List(vec![Reply::text(cursor.to_string()), Reply::List(keys)])
            }
            Ok(other) => ops::odd(&other),
            Err(error) => error,
        }
    })
}
