//! Commands on several keys. Each key is its own operation, several run at once; the whole is not atomic.

use std::collections::HashSet;

use bytes::Bytes;
use state::session::{Action, Kind, Lease, Reply as Found, When};

use super::*;
use crate::resp::limits::*;

pub static MGET: Spec = Spec {
    name: "MGET",
    arity: -2,
    keys: Keys::All,
    does: Does::Read,
    syntax: "key [key ...]",
    summary: "values of several keys, nil where there is none",
    note: "not one moment for all keys; an answer over 16 MiB is an error",
    run: |call| {
        let (space, keys) = (call.space(), keys(call));
        Call::later(async move {
            let (mut values, mut bytes) = (Vec::with_capacity(keys.len()), 0);
            for some in keys.chunks(FAN_OUT_MAX) {
                for outcome in space.ask_each(some.iter().map(|key| space.get(key.clone())).collect()).await {
                    let value = match ops::done(outcome) {
                        Ok(found) => ops::value_of(found).filter(|seen| seen.kind == Kind::Text).map(|seen| seen.value),
                        Err(error) => return error,
                    };
                    bytes += value.as_ref().map_or(0, Bytes::len);
                    values.push(value.map_or(Reply::Nil, Reply::Bulk));
                }
                if bytes > ANSWER_BYTES_MAX {
                    return Reply::Error(format!(
                        "ERR the answer is over {ANSWER_BYTES_MAX} bytes: ask for fewer keys at once"
                    ));
                }
            }
            Reply::List(values)
        })
    },
};

pub static EXISTS: Spec = Spec {
    name: "EXISTS",
    arity: -2,
    keys: Keys::All,
    does: Does::Read,
    syntax: "key [key ...]",
    summary: "how many of the keys have a value",
    note: "",
    run: |call| {
        let (space, keys) = (call.space(), keys(call));
        Call::later(async move {
            let mut there = 0;
            for some in keys.chunks(FAN_OUT_MAX) {
                for outcome in space.ask_each(some.iter().map(|key| space.get(key.clone())).collect()).await {
                    match ops::done(outcome) {
                        Ok(found) => there += i64::from(ops::value_of(found).is_some()),
                        Err(error) => return error,
                    }
                }
            }
            Reply::Int(there)
        })
    },
};

pub static MSET: Spec = Spec {
    name: "MSET",
    arity: -3,
    keys: Keys::Pairs,
    does: Does::Write,
    syntax: "key value [key value ...]",
    summary: "stores several values, with the namespace's default lease",
    note: "not atomic: after an error some keys may be written",
    run: |call| {
        let command = call.command;
        if command.len().is_multiple_of(2) {
            return Act::Now(wrong_arity("MSET"));
        }
        let space = call.space();
        // The last value of a key that is given twice is the one that stays.
        let mut seen = HashSet::new();
        let mut puts = vec![];
        for at in (1..command.len()).step_by(2).rev().filter(|&at| seen.insert(command.arg(at))) {
            puts.push(space.put(command.key(at), command.value(at + 1), Lease::Default, When::Always, false));
        }
        Call::later(async move {
            match all(&space, puts, |found| matches!(found, Found::Stored { .. })).await {
                Ok(_) => Reply::OK,
                Err(error) => error,
            }
        })
    },
};

pub static DEL: Spec = Spec {
    name: "DEL",
    arity: -2,
    keys: Keys::All,
    does: Does::Write,
    syntax: "key [key ...]",
    summary: "removes values; how many there were",
    note: "not atomic: after an error some keys may be removed",
    run: remove,
};

pub static UNLINK: Spec = Spec {
    name: "UNLINK",
    arity: -2,
    keys: Keys::All,
    does: Does::Write,
    syntax: "key [key ...]",
    summary: "the same as DEL",
    note: "not atomic: after an error some keys may be removed",
    run: remove,
};

fn remove(call: &mut Call<'_>) -> Act {
    let space = call.space();
    let mut seen = HashSet::new();
    let command = call.command;
    let keys = (1..command.len()).filter(|&at| seen.insert(command.arg(at)));
    let removals = keys.map(|at| space.op(command.key(at), Action::Remove)).collect();
    Call::later(async move {
        match all(&space, removals, |found| matches!(found, Found::Removed(true))).await {
            Ok(removed) => Reply::Int(removed),
            Err(error) => error,
        }
    })
}

fn keys(call: &Call<'_>) -> Vec<Bytes> {
    (1..call.command.len()).map(|at| call.command.key(at)).collect()
}

/// Runs all writes; how many of them `count`. If some failed, the error of one, which says how many did not: if some
/// did happen or may have, the whole is unknown, whatever that one says.
async fn all(space: &ops::Space, writes: Vec<Op>, count: fn(&Found) -> bool) -> Result<i64, Reply> {
    let wanted = writes.len();
    let (mut counted, mut failed, mut first) = (0, 0, None);
    for outcome in space.ask_each(writes).await {
        match ops::done(outcome) {
            Ok(found) => counted += i64::from(count(&found)),
            Err(error) => {
                failed += 1;
                first.get_or_insert(error);
            }
        }
    }
    match first {
        None => Ok(counted),
        Some(Reply::Error(why)) if failed < wanted => {
            let why = why.strip_prefix("UNKNOWN ").unwrap_or(&why);
            Err(Reply::Error(format!("UNKNOWN {failed} of {wanted} keys failed, the others are done: {why}")))
        }
        Some(error) => Err(error),
    }
}
