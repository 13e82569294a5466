//! Commands about all keys, and transactions.

use std::rc::Rc;

use state::linear::Condition;

use state::linear::limits::SCAN_KEYS_MAX;

use super::pages::{Way, is_last};
use super::*;
use crate::resp::client::{Multi, Queued};
use crate::resp::commands::channels::send;
use crate::resp::commands::page::{Also, Page, prefix_of};
use crate::resp::cursors::At;
use crate::resp::limits::*;

pub const ALL: &[Spec] = &[
    noted(
        spec("DBSIZE", 1, Keys::None, Does::ReadAll, "", "how many keys the namespace has", |call| {
            everywhere(call, "count", Vec::new(), plain)
        }),
        "of one moment, if the namespace has one shard",
    ),
    spec("RANDOMKEY", 1, Keys::None, Does::ReadAll, "", "some key, each as likely", |call| {
        everywhere(call, "random", vec![chance()], plain)
    }),
    noted(
        spec("FLUSHDB", -1, Keys::None, Does::WriteAll, "[ASYNC | SYNC]", "removes all keys of this namespace", flush),
        "of this namespace alone; atomic, if it has one shard",
    ),
    noted(
        spec("FLUSHALL", -1, Keys::None, Does::WriteAll, "[ASYNC | SYNC]", "the same as FLUSHDB", flush),
        "refused where the namespace has databases",
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
        "what is there throughout the walk is listed at least once; a cursor is good at every node, and after restarts (from level 15 on); where there are more than 4,096 keys the first pages may be empty",
    ),
    noted(
        spec("KEYS", 2, Keys::None, Does::ReadAll, "pattern", "all keys that fit a pattern, in order", keys),
        "at most 65,536: beyond it is an error, and SCAN lists them in pages; not of one moment",
    ),
    spec("MULTI", 1, Keys::None, Does::ReadAll, "", "begins a transaction", |call| {
        if call.client.multi.is_some() {
            return Act::Now(Reply::error("ERR MULTI calls can not be nested"));
        }
        call.client.multi = Some(Multi::default());
        Act::Now(Reply::OK)
    }),
    noted(
        spec("EXEC", 1, Keys::None, Does::WriteAll, "", "runs the transaction; nil if a watched key has changed", exec),
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
    if let Some(error) = connection::flushes_others(call) {
        return error;
    }
    if sound { everywhere(call, "clear", Vec::new(), ok) } else { syntax_error() }
}

fn watch(call: &mut Call<'_>) -> Act {
    if call.client.multi.is_some() {
        return Act::Now(Reply::error("ERR WATCH inside MULTI is not allowed"));
    }
    let keys: Vec<Bytes> = (1..call.command.len()).map(|i| call.command.key(i)).collect();
    if call.client.watched.borrow().len() + keys.len() > WATCHED_MAX {
        return Act::Now(Reply::Error(format!("ERR more than {WATCHED_MAX} keys are watched")));
    }
    let had: usize = call.client.watched.borrow().iter().map(|condition| condition.key.len()).sum();
    if had + keys.iter().map(Bytes::len).sum::<usize>() > WATCHED_BYTES_MAX {
        return Act::Now(Reply::Error(format!(
            "ERR keys that are watched have {WATCHED_BYTES_MAX} bytes at most together"
        )));
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
            other => {
                watch_in_vain(&mut watched.borrow_mut(), &keys[0]);
                reply(other, plain)
            }
        }
    })
}

/// Keeps EXEC from running: its client may have sent it without waiting for what becomes of WATCH.
pub fn watch_in_vain(watched: &mut Vec<Condition>, key: &[u8]) {
    const NEVER: u64 = u64::MAX;
    // Once is enough, however often it is tried.
    if watched.iter().all(|condition| condition.version != NEVER) {
        watched.push(Condition { key: Bytes::copy_from_slice(key), version: NEVER });
    }
}

fn exec(call: &mut Call<'_>) -> Act {
    let conditions = std::mem::take(&mut *call.client.watched.borrow_mut());
    let Some(multi) = call.client.multi.take() else { return Act::Now(Reply::error("ERR EXEC without MULTI")) };
    let Some((queued, said)) = multi.queued() else {
        return Act::Now(Reply::error("EXECABORT Transaction discarded because of previous errors."));
    };
    let steps_of = |queued: &Queued| if let Queued::Steps(steps, _) = queued { steps.clone() } else { Vec::new() };
    let mut op_steps: Vec<Step> = queued.iter().flat_map(steps_of).collect();
    if let Some(watched) = conditions.first().filter(|_| op_steps.is_empty()) {
        // Only to see whether what is watched has changed.
        op_steps.push(Step::new(watched.key.clone(), "exists", Vec::new()));
    }
    // What was watched has other versions by the time that it is asked again.
    let said = call.once.map(|_| said);
    let mut op = Op { conditions, once: call.once, said, ..Op::of(call.space().name, op_steps) };
    if op.steps.is_empty() && queued.iter().all(|one| matches!(one, Queued::Said(_))) {
        let said = |queued| if let Queued::Said(reply) = queued { Some(reply) } else { None };
        return Act::Now(Reply::List(queued.into_iter().filter_map(said).collect()));
    }
    let changes = queued.iter().any(|one| matches!(one, Queued::Change(_)));
    let due = changes.then(|| Rc::clone(call.client.due.get_or_insert_default()));
    let writing = call.client.tracks.as_ref().and_then(|tracks| tracks.writes(&mut op));
    let (space, subscribers) = (call.space(), Rc::clone(&call.node.subscribers));
    Call::later(async move {
        let mut got = match op.steps.len() {
            0 => Vec::new(),
            _ => match space.ask_linear(op).await {
                Outcome::Done(Ran::Done(mut got)) => {
                    if let Some(writing) = writing {
                        writing.done(&mut got);
                    }
                    got
                }
                other => return reply(other, plain),
            },
        }
        .into_iter();
        let mut all = Vec::with_capacity(queued.len());
        for one in queued {
            all.push(match one {
                Queued::Steps(steps, then) => then(got.by_ref().take(steps.len()).collect()),
                Queued::Said(reply) => reply,
                Queued::Message(message) => send(Rc::clone(&subscribers), message).await,
                Queued::Change(change) => {
                    if let Some(due) = &due {
                        due.borrow_mut().push(change);
                    }
                    Reply::OK
                }
            });
        }
        Reply::List(all)
    })
}

fn keys(call: &mut Call<'_>) -> Act {
    let pattern = call.command.key(1);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Act::Now(Reply::Error(format!("ERR a pattern may have {PATTERN_BYTES_MAX} bytes")));
    }
    let (space, stale, prefix) = (call.space(), call.client.stale, prefix_of(&pattern));
    Call::later(async move {
        let (mut found, mut after) = (Vec::new(), Bytes::new());
        loop {
            let args = vec![prefix.clone(), after, word(SCAN_KEYS_MAX.to_string()), word("forward")];
            let page = vec![Step::new(Bytes::new(), "scan", args)];
            let op = Op { stale, over: Over::Each, ..Op::of(space.name.clone(), page) };
            let page = match space.ask_linear(op).await {
                Outcome::Done(Ran::Done(got)) => match only(got) {
                    Got::List(page) => page,
                    other => return plain_one(other),
                },
                other => return reply(other, plain),
            };
            let last = page.last().filter(|_| !is_last(&page, SCAN_KEYS_MAX as usize)).cloned();
            let fits = |got| if let Got::Bytes(key) = got { Some(key).filter(|key| fits(&pattern, key)) } else { None };
            found.extend(page.into_iter().filter_map(fits).map(Reply::Bulk));
            if found.len() > KEYS_LISTED_MAX {
                return Reply::Error(format!(
                    "ERR more than {KEYS_LISTED_MAX} keys fit this pattern: SCAN with MATCH lists them in pages"
                ));
            }
            match last {
                Some(Got::Bytes(last)) => after = last,
                _ => return Reply::List(found),
            }
        }
    })
}

fn scan(call: &mut Call<'_>) -> Act {
    let page = match Page::read(call.command, 1, Also::Type, SCAN_KEYS_MAX as u32) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    let way = Way::of(call, &page);
    let (prefix, count) = (page.prefix(), word(page.count.to_string()));
    let (function, args) = match &way.at {
        At::Place(place) => ("walk", vec![word(place.to_string()), count, prefix]),
        At::Behind(after) => {
            ("scan", vec![prefix, after.clone().unwrap_or_default(), count, word("forward"), word("types")])
        }
    };
    let walk = vec![Step::new(Bytes::new(), function, args)];
    let op = Op { stale: call.client.stale, over: Over::Each, ..Op::of(call.space().name, walk) };
    let space = call.space();
    Call::later(async move {
        let (next, got) = match way.went(space.ask_linear(op).await, page.count, 2) {
            Ok(went) => went,
            Err(error) => return error,
        };
        let pair = |pair: &[Got]| match pair {
            [Got::Bytes(key), Got::Bytes(kind)] => Some((key.clone(), kind.clone())),
            _ => None,
        };
        let fits = |(key, kind): &(Bytes, Bytes)| page.fits(key) && page.is_of(kind);
        let keys = got.chunks_exact(2).filter_map(pair).filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
        Reply::List(vec![Reply::text(next.to_string()), Reply::List(keys)])
    })
}
