//! Commands about all keys, and transactions.

use state::linear::Condition;
use state::linear::limits::SCAN_KEYS_MAX;

use super::*;
use crate::resp::client::Multi;
use crate::resp::glob;
use crate::resp::limits::*;

pub const ALL: &[Spec] = &[
    spec("DBSIZE", 1, Keys::None, Does::ReadAll, "", "how many keys the namespace has", |call| {
        steps(call, vec![Step::new(Bytes::new(), "count", Vec::new())], plain)
    }),
    noted(
        spec("FLUSHDB", -1, Keys::None, Does::ReadAll, "[ASYNC | SYNC]", "removes all keys of this namespace", flush),
        "of this namespace alone",
    ),
    noted(
        spec("FLUSHALL", -1, Keys::None, Does::ReadAll, "[ASYNC | SYNC]", "the same as FLUSHDB", flush),
        "of this namespace alone",
    ),
    noted(
        spec(
            "SCAN",
            -2,
            Keys::None,
            Does::ReadAll,
            "cursor [MATCH pattern] [COUNT n]",
            "keys in pages, in order; cursor 0 begins and ends",
            scan,
        ),
        "a cursor is known to the node that gave it, for a while; TYPE is not offered",
    ),
    spec("MULTI", 1, Keys::None, Does::ReadAll, "", "begins a transaction", |call| {
        if call.client.multi.is_some() {
            return Act::Now(Reply::error("ERR MULTI calls can not be nested"));
        }
        call.client.multi = Some(Multi::default());
        Act::Now(Reply::OK)
    }),
    noted(
        spec("EXEC", 1, Keys::None, Does::ReadAll, "", "runs the transaction; nil if a watched key has changed", exec),
        "at one moment; all its keys must be in one shard",
    ),
    spec("DISCARD", 1, Keys::None, Does::ReadAll, "", "gives the transaction up", |call| {
        call.client.watched.borrow_mut().clear();
        match call.client.multi.take() {
            Some(_) => Act::Now(Reply::OK),
            None => Act::Now(Reply::error("ERR DISCARD without MULTI")),
        }
    }),
    spec(
        "WATCH",
        -2,
        Keys::All,
        Does::ReadAll,
        "key [key ...]",
        "EXEC runs only if these keys have not changed",
        watch,
    ),
    spec("UNWATCH", 1, Keys::None, Does::ReadAll, "", "forgets watched keys", |call| {
        call.client.watched.borrow_mut().clear();
        Act::Now(Reply::OK)
    }),
];

fn flush(call: &mut Call<'_>) -> Act {
    let sound = call.command.len() == 1
        || (call.command.len() == 2 && (is(call.command.arg(1), "ASYNC") || is(call.command.arg(1), "SYNC")));
    if sound { steps(call, vec![Step::new(Bytes::new(), "clear", Vec::new())], ok) } else { syntax_error() }
}

fn watch(call: &mut Call<'_>) -> Act {
    if call.client.multi.is_some() {
        return Act::Now(Reply::error("ERR WATCH inside MULTI is not allowed"));
    }
    let keys: Vec<Bytes> = (1..call.command.len()).map(|i| call.command.key(i)).collect();
    if call.client.watched.borrow().len() + keys.len() > WATCHED_MAX {
        return Act::Now(Reply::Error(format!("ERR more than {WATCHED_MAX} keys are watched")));
    }
    let op = Op::of(call.space().name, keys.iter().map(|key| Step::new(key.clone(), "version", Vec::new())).collect());
    let (space, watched) = (call.space(), call.client.watched.clone());
    Call::later(async move {
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => {
                let version = |got: &Got| if let Got::Int(n) = got { *n as u64 } else { 0 };
                let seen = keys.into_iter().zip(&got).map(|(key, got)| Condition { key, version: version(got) });
                let mut watched = watched.borrow_mut();
                for condition in seen {
                    // The first sight of a key counts.
                    if !watched.iter().any(|known| known.key == condition.key) {
                        watched.push(condition);
                    }
                }
                Reply::OK
            }
            other => reply(other, plain),
        }
    })
}

fn exec(call: &mut Call<'_>) -> Act {
    let conditions = std::mem::take(&mut *call.client.watched.borrow_mut());
    let Some(multi) = call.client.multi.take() else { return Act::Now(Reply::error("ERR EXEC without MULTI")) };
    if multi.is_bad {
        return Act::Now(Reply::error("EXECABORT Transaction discarded because of previous errors."));
    }
    let Multi { queued, .. } = multi;
    let op_steps: Vec<Step> = queued.iter().flat_map(|(steps, _)| steps.iter().cloned()).collect();
    if op_steps.is_empty() {
        return Act::Now(Reply::List(Vec::new()));
    }
    let op = Op { conditions, ..Op::of(call.space().name, op_steps) };
    let space = call.space();
    Call::later(async move {
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => {
                let mut got = got.into_iter();
                let each = queued.into_iter().map(|(steps, then)| then(got.by_ref().take(steps.len()).collect()));
                Reply::List(each.collect())
            }
            other => reply(other, plain),
        }
    })
}

fn scan(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let cursor = std::str::from_utf8(command.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else { return Act::Now(Reply::error("ERR invalid cursor")) };
    let after = if cursor == 0 { Some(Bytes::new()) } else { call.node.cursors.borrow().get(cursor) };
    let Some(after) = after else {
        return Act::Now(Reply::error("ERR this node does not know the cursor: begin again with 0"));
    };
    if !command.len().is_multiple_of(2) {
        return syntax_error();
    }
    let (mut pattern, mut count) = (None, 10);
    for at in (2..command.len()).step_by(2) {
        let (option, value) = (command.arg(at), command.arg(at + 1));
        if is(option, "MATCH") {
            if value.len() > PATTERN_BYTES_MAX {
                return Act::Now(Reply::Error(format!("ERR a pattern may have {PATTERN_BYTES_MAX} bytes")));
            }
            pattern = Some(command.key(at + 1));
        } else if is(option, "COUNT") {
            match integer(value) {
                Some(n @ 1..) => count = u32::try_from(n).unwrap_or(u32::MAX).min(SCAN_KEYS_MAX as u32),
                Some(_) => return syntax_error(),
                None => return Act::Now(not_an_integer()),
            }
        } else {
            return syntax_error();
        }
    }
    // What a pattern begins with, up to its first sign, all matches begin with.
    let plain_until = pattern.as_ref().and_then(|p| p.iter().position(|byte| b"*?[\\".contains(byte)));
    let prefix = pattern.as_ref().map_or(Bytes::new(), |p| p.slice(..plain_until.unwrap_or(p.len())));
    let args = vec![prefix, after, word(count.to_string()), word("forward")];
    let op = Op::of(call.space().name, vec![Step::new(Bytes::new(), "scan", args)]);
    let (space, cursors) = (call.space(), call.node.cursors.clone());
    Call::later(async move {
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => match only(got) {
                Got::List(keys) => {
                    let key = |got: Got| if let Got::Bytes(key) = got { Some(key) } else { None };
                    let keys: Vec<Bytes> = keys.into_iter().filter_map(key).collect();
                    // A short page is the last one.
                    let last = keys.last().filter(|_| keys.len() >= count as usize);
                    let next = last.map_or(0, |last| cursors.borrow_mut().keep(last.clone()));
                    let fits = |key: &Bytes| pattern.as_ref().is_none_or(|pattern| glob::fits(pattern, key));
                    let keys = keys.into_iter().filter(fits).map(Reply::Bulk).collect();
                    Reply::List(vec![Reply::text(next.to_string()), Reply::List(keys)])
                }
                other => plain_one(other),
            },
            other => reply(other, plain),
        }
    })
}
