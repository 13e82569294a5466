//! The commands of class `cache`: what a cache can keep. What decides who is first, or must not be lost, is refused, and the error
//! says which class does it. `PURGE`, and `TAG` of `SET`, are our own.

use std::collections::HashSet;

use base::{Outcome, Span, Unknown};
use bytes::Bytes;
use futures_util::StreamExt;
use node::{Answer, Ask};
use state::cache::{Act as Want, Op, Reply as Got, What};
use tokio::sync::oneshot::error::RecvError;

use super::write::Unit;
use super::*;
use crate::resp::limits::*;

/// Makes the reply of a command from its operation's outcome.
pub type Then = fn(Outcome<Got>) -> Reply;

/// Everything that is offered beside what each class offers.
pub static ALL: &[Spec] = &[
    read("GET", "the value of a key, or nil", "nil at any time: an entry may be gone", |call| {
        act(call, Want::Get, value)
    }),
    read("STRLEN", "length of a value, bytes; 0 if there is none", "", |call| act(call, Want::Get, length)),
    read("TYPE", "`string` or `none`", "", |call| act(call, Want::Look, kind)),
    read("TTL", "seconds until an entry ends; -1: as long as there is room; -2: there is none", "", |call| {
        act(call, Want::Look, |outcome| left(outcome, |left| (left.as_millis() as i64 + 500) / 1000))
    }),
    read("PTTL", "the same in milliseconds", "", |call| {
        act(call, Want::Look, |outcome| left(outcome, |left| left.as_millis() as i64))
    }),
    Spec {
        keys: Keys::All,
        ..spec("MGET", -2, Does::Read, "key [key ...]", "values of several keys, nil where there is none", mget)
    },
    Spec {
        keys: Keys::All,
        ..spec("EXISTS", -2, Does::Read, "key [key ...]", "how many of the keys have a value now", exists)
    },
    Spec {
        note: "`TAG` is ours: PURGE TAG removes all with that tag, an entry has 16 at most. NX and GET are not offered: a cache may forget who was first",
        ..spec(
            "SET",
            -3,
            Does::Write,
            "key value [XX] [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms] [TAG tag [TAG tag ...]]",
            "stores a value, for the namespace's ttl or the one that is given",
            set,
        )
    },
    spec("SETEX", 4, Does::Write, "key seconds value", "SET with EX", |call| set_for(call, Unit::Seconds)),
    spec("PSETEX", 4, Does::Write, "key ms value", "SET with PX", |call| set_for(call, Unit::Millis)),
    Spec {
        keys: Keys::Pairs,
        note: "not atomic: after an error some keys may be written",
        ..spec("MSET", -3, Does::Write, "key value [key value ...]", "stores several values", mset)
    },
    Spec {
        keys: Keys::All,
        note: "PURGE KEY also holds while nodes hang or disagree on who is live",
        ..spec("DEL", -2, Does::Write, "key [key ...]", "removes entries; how many there were", del)
    },
    Spec { keys: Keys::All, ..spec("UNLINK", -2, Does::Write, "key [key ...]", "the same", del) },
    Spec {
        note: UNLESS,
        ..spec("EXPIRE", 3, Does::Write, "key seconds", "another end: 1 if there is an entry", |call| {
            end_for(call, Unit::Seconds)
        })
    },
    Spec {
        note: UNLESS,
        ..spec("PEXPIRE", 3, Does::Write, "key ms", "another end: 1 if there is an entry", |call| {
            end_for(call, Unit::Millis)
        })
    },
    Spec {
        note: UNLESS,
        ..spec("EXPIREAT", 3, Does::Write, "key unix-seconds", "another end: 1 if there is an entry", |call| {
            end_for(call, Unit::UnixSeconds)
        })
    },
    Spec {
        note: UNLESS,
        ..spec("PEXPIREAT", 3, Does::Write, "key unix-ms", "another end: 1 if there is an entry", |call| {
            end_for(call, Unit::UnixMillis)
        })
    },
    Spec {
        note: "1 if there is an entry, whether it had an end or not",
        ..spec("PERSIST", 2, Does::Write, "key", "no end: kept as long as there is room", |call| {
            act(call, Want::End(None), changed)
        })
    },
    Spec {
        keys: Keys::None,
        note: "about: what nodes hold, also what has just ended",
        ..spec("DBSIZE", 1, Does::ReadAll, "", "how many entries there are", |call| {
            Act::Cache(Op::new(call.space().name, Bytes::new(), Want::Count), |outcome| {
                reply(outcome, |got| match got {
                    Got::Count(count) => Reply::Int(i64::try_from(count).unwrap_or(i64::MAX)),
                    other => odd(&other),
                })
            })
        })
    },
    Spec {
        keys: Keys::None,
        note: "as PURGE ALL",
        ..spec("FLUSHDB", -1, Does::WriteAll, "[ASYNC | SYNC]", "removes all entries", flush)
    },
    Spec {
        keys: Keys::None,
        note: "of the namespace, as PURGE ALL; refused where it has databases",
        ..spec("FLUSHALL", -1, Does::WriteAll, "[ASYNC | SYNC]", "the same", flush)
    },
    Spec {
        keys: Keys::None,
        note: "ours: no request at any node that begins after OK gets what was stored before; a hung node delays it by a second at most",
        ..spec(
            "PURGE",
            -2,
            Does::WriteAll,
            "KEY name | PREFIX prefix | TAG tag | ALL",
            "removes what was stored under a key, under all keys that begin so, with a tag, or all",
            purge,
        )
    },
];

const UNLESS: &str = "NX, XX, GT and LT are not offered";

const FIRST: &str = "a cache may forget who was first: a namespace of class linear decides it";
const QUEUES: &str = "a cache may forget an item that nobody has taken: lists are of class linear";
const WHOLE: &str = "a cache keeps values whole: SET them whole, or use class linear, which has them";
const TOGETHER: &str = "entries are at several nodes, and each may be gone: class linear does several things as one";
const OPERATOR: &str = "the cluster is configured by `coppice apply`, and looks after itself";

/// What is left out, and what works instead.
pub static INSTEAD: refused::Table = &[
    (&["SETNX", "MSETNX", "RENAMENX"], FIRST),
    (
        &["GETSET", "GETDEL", "GETEX", "DELEX", "DIGEST", "TOUCH", "COPY", "RENAME", "MOVE", "MSETEX"],
        "GET, SET, EXPIRE and DEL do it one by one; class linear does it as one",
    ),
    (&["INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "INCREX"], "a cache may forget the sum: class linear counts"),
    (&["APPEND", "SETRANGE", "GETRANGE", "SUBSTR", "LCS", "SETBIT", "GETBIT", "BITCOUNT", "BITOP", "BITPOS"], WHOLE),
    (&["BITFIELD", "BITFIELD_RO"], WHOLE),
    (&["HSET", "HMSET", "HSETNX", "HGET", "HMGET", "HGETALL", "HKEYS", "HVALS", "HLEN", "HEXISTS", "HDEL"], WHOLE),
    (&["HINCRBY", "HINCRBYFLOAT", "HSCAN", "HSTRLEN", "HRANDFIELD", "HGETDEL"], WHOLE),
    (&["H*EXPIRE*", "HTTL", "HPTTL", "HPERSIST", "HSETEX", "HGETEX"], WHOLE),
    (
        &["LPUSH*", "RPUSH*", "LPOP", "RPOP", "LRANGE", "LLEN", "LREM", "LTRIM", "LINDEX", "LSET", "LINSERT", "LPOS"],
        QUEUES,
    ),
    (&["LMOVE", "LMPOP", "RPOPLPUSH", "BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH"], QUEUES),
    (&["SADD", "SREM", "SMEMBERS", "SISMEMBER", "SMISMEMBER", "SCARD", "SPOP", "SRANDMEMBER", "SMOVE", "SSCAN"], WHOLE),
    (&["SUNION*", "SINTER*", "SDIFF*"], WHOLE),
    (&["Z*", "BZ*", "X*", "PF*", "GEO*", "SORT", "SORT_RO"], WHOLE),
    (&["JSON.*"], "GET and SET a JSON text"),
    (
        &["FT.*", "TS.*", "BF.*", "CF.*", "CMS.*", "TOPK.*", "TDIGEST.*", "V*", "AR*"],
        "values are bytes, as they were stored",
    ),
    (&["EXPIRETIME", "PEXPIRETIME"], "TTL and PTTL tell when an entry ends"),
    (
        &["KEYS", "RANDOMKEY", "SCAN"],
        "a cache does not list its keys: what is to be found again belongs elsewhere; PURGE PREFIX and PURGE TAG remove many at once",
    ),
    (&["SFLUSH", "SWAPDB"], "FLUSHDB removes all entries of the database that is selected"),
    (&["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"], TOGETHER),
    (&["DUMP", "RESTORE*", "MIGRATE", "OBJECT", "DEBUG", "MEMORY"], "GET and SET move values; TTL tells when they end"),
    (
        &["EVAL*", "SCRIPT", "FUNCTION", "FCALL*"],
        "no code runs beside an entry: class linear has FCALL, and functions of services",
    ),
    (&["CONFIG", "SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "SHUTDOWN", "FAILOVER"], OPERATOR),
    refused::OF_NODES,
    (&["TIME", "HOTKEYS", "LOLWUT"], "INFO and the monitor tell how the node is"),
];

/// The command of this name in this class: its own, or one that belongs to the connection.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    let own = ALL.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name));
    own.or_else(|| super::find(name).filter(|spec| spec.does.is_of_connection()))
}

const fn spec(
    name: &'static str,
    arity: i32,
    does: Does,
    syntax: &'static str,
    summary: &'static str,
    run: fn(&mut Call<'_>) -> Act,
) -> Spec {
    Spec { name, arity, keys: Keys::One, does, syntax, summary, note: "", run }
}

const fn read(name: &'static str, summary: &'static str, note: &'static str, run: fn(&mut Call<'_>) -> Act) -> Spec {
    Spec { note, ..spec(name, 2, Does::Read, "key", summary, run) }
}

/// One operation on the first key.
fn act(call: &Call<'_>, want: Want, then: Then) -> Act {
    Act::Cache(Op::new(call.space().name, call.command.key(1), want), then)
}

/// What a node's answer says.
pub fn outcome(answer: Result<Answer, RecvError>) -> Outcome<Got> {
    match answer {
        Ok(Answer::Cache(outcome)) => outcome,
        Ok(other) => unreachable!("a cache operation was answered by {other:?}"),
        Err(_) => Outcome::Unknown(Unknown { why: "the node stopped before it answered".into() }),
    }
}

pub async fn ask(space: &Space, key: Bytes, want: Want) -> Outcome<Got> {
    let op = Op { priority: space.priority, ..Op::new(space.name.clone(), key, want) };
    outcome(space.gate.ask(Ask::Cache(op)).await)
}

/// The reply that is made of what was done, or the error.
fn reply(outcome: Outcome<Got>, then: impl FnOnce(Got) -> Reply) -> Reply {
    match outcome {
        Outcome::Done(got) => then(got),
        Outcome::Refused(refused) => ops::refused(&refused),
        Outcome::Unknown(unknown) => ops::unknown(&unknown),
    }
}

/// A reply of a kind that its operation cannot have.
fn odd(got: &Got) -> ! {
    unreachable!("the node answered an operation of a cache with {got:?}")
}

fn value(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Value { value, .. } => Reply::Bulk(value),
        Got::Absent => Reply::Nil,
        other => odd(&other),
    })
}

fn length(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Value { value, .. } => Reply::Int(value.len() as i64),
        Got::Absent => Reply::Int(0),
        other => odd(&other),
    })
}

fn kind(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Value { .. } => Reply::Simple("string"),
        Got::Absent => Reply::Simple("none"),
        other => odd(&other),
    })
}

fn left(outcome: Outcome<Got>, number: fn(Span) -> i64) -> Reply {
    reply(outcome, |got| match got {
        Got::Value { ttl_left, .. } => Reply::Int(ttl_left.map_or(-1, number)),
        Got::Absent => Reply::Int(-2),
        other => odd(&other),
    })
}

fn changed(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Changed(there) => Reply::Int(there.into()),
        other => odd(&other),
    })
}

/// `OK`, or nil if the condition did not hold.
fn stored(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Stored => Reply::OK,
        Got::NotStored => Reply::Nil,
        other => odd(&other),
    })
}

fn purged(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Purged => Reply::OK,
        other => odd(&other),
    })
}

/// It has ended already, so it is removed.
fn ended(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Changed(_) => Reply::OK,
        other => odd(&other),
    })
}

/// It has ended already, and is to be stored only where there is one.
fn ended_present(outcome: Outcome<Got>) -> Reply {
    reply(outcome, |got| match got {
        Got::Changed(true) => Reply::OK,
        Got::Changed(false) => Reply::Nil,
        other => odd(&other),
    })
}

fn put(value: Bytes, ttl: Option<Span>) -> Want {
    Want::Set { value, kind: Bytes::new(), tags: Vec::new(), ttl, only_present: false, mark: None }
}

fn set(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let not_offered = |option: &str, instead: &str| {
        Act::Now(Reply::Error(format!("ERR {option} of SET is not offered by class cache: {instead}")))
    };
    // None: it ends now.
    let (mut ttl, mut has_ttl, mut is_over) = (None, false, false);
    let (mut tags, mut only_present, mut at) = (Vec::new(), false, 3);
    while at < command.len() {
        let (option, has_word) = (command.arg(at), at + 1 < command.len());
        if let Some(unit) = Unit::of(option).filter(|_| has_word && !has_ttl) {
            match unit.span(command.arg(at + 1), "set") {
                Ok(span) => (ttl, has_ttl, is_over) = (span, true, span.is_none()),
                Err(error) => return Act::Now(error),
            }
            at += 1;
        } else if is(option, "TAG") && has_word {
            tags.push(command.key(at + 1));
            at += 1;
        } else if is(option, "XX") {
            only_present = true;
        } else if is(option, "NX") {
            return not_offered("NX", FIRST);
        } else if is(option, "GET") {
            return not_offered("GET", "GET and SET, one after the other");
        } else if is(option, "KEEPTTL") {
            return not_offered("KEEPTTL", "say with EX how long it is kept");
        } else {
            return syntax_error();
        }
        at += 1;
    }
    match (is_over, only_present) {
        (true, true) => act(call, Want::Remove, ended_present),
        (true, false) => act(call, Want::Remove, ended),
        _ => {
            let value = command.value(2);
            act(call, Want::Set { value, kind: Bytes::new(), tags, ttl, only_present, mark: None }, stored)
        }
    }
}

fn set_for(call: &mut Call<'_>, unit: Unit) -> Act {
    let name = if unit == Unit::Seconds { "setex" } else { "psetex" };
    match unit.span(call.command.arg(2), name) {
        Ok(ttl) => act(call, put(call.command.value(3), ttl), stored),
        Err(error) => Act::Now(error),
    }
}

fn end_for(call: &mut Call<'_>, unit: Unit) -> Act {
    let Some(number) = integer(call.command.arg(2)) else { return Act::Now(not_an_integer()) };
    match unit.left_until(number) {
        None => {
            let name = String::from_utf8_lossy(call.command.arg(0)).to_lowercase();
            Act::Now(Reply::Error(format!("ERR invalid expire time in '{name}' command")))
        }
        Some(Some(span)) => act(call, Want::End(Some(span)), changed),
        // It ends now.
        Some(None) => act(call, Want::Remove, changed),
    }
}

fn keys(call: &Call<'_>) -> Vec<Bytes> {
    (1..call.command.len()).map(|at| call.command.key(at)).collect()
}

/// Outcomes of one operation on each key, in their order; a few run at once.
async fn ask_each(space: &Space, wants: Vec<(Bytes, Want)>) -> Vec<Outcome<Got>> {
    let asked = futures_util::stream::iter(wants).map(|(key, want)| ask(space, key, want));
    asked.buffered(FAN_OUT_MAX).collect().await
}

fn mget(call: &mut Call<'_>) -> Act {
    let (space, keys) = (call.space(), keys(call));
    Call::later(async move {
        let (mut values, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        for some in keys.chunks(FAN_OUT_MAX) {
            for outcome in ask_each(&space, some.iter().map(|key| (key.clone(), Want::Get)).collect()).await {
                let one = value(outcome);
                if one.is_error() {
                    return one;
                }
                bytes += one.bytes();
                values.push(one);
            }
            if bytes > ANSWER_BYTES_MAX {
                let why = format!("ERR the answer is over {ANSWER_BYTES_MAX} bytes: ask for fewer keys at once");
                return Reply::Error(why);
            }
        }
        Reply::List(values)
    })
}

/// How many of the outcomes are such, or the first error.
async fn how_many(space: Space, wants: Vec<(Bytes, Want)>, is_one: fn(Got) -> bool) -> Result<i64, Reply> {
    let mut count = 0;
    for some in wants.chunks(FAN_OUT_MAX) {
        for outcome in ask_each(&space, some.to_vec()).await {
            match outcome {
                Outcome::Done(got) => count += i64::from(is_one(got)),
                Outcome::Refused(refused) => return Err(ops::refused(&refused)),
                Outcome::Unknown(unknown) => return Err(ops::unknown(&unknown)),
            }
        }
    }
    Ok(count)
}

fn exists(call: &mut Call<'_>) -> Act {
    let wants = keys(call).into_iter().map(|key| (key, Want::Look)).collect();
    let counted = how_many(call.space(), wants, |got| matches!(got, Got::Value { .. }));
    Call::later(async { counted.await.map_or_else(|error| error, Reply::Int) })
}

fn del(call: &mut Call<'_>) -> Act {
    let wants = keys(call).into_iter().map(|key| (key, Want::Remove)).collect();
    let counted = how_many(call.space(), wants, |got| got == Got::Changed(true));
    Call::later(async { counted.await.map_or_else(|error| error, Reply::Int) })
}

fn mset(call: &mut Call<'_>) -> Act {
    let command = call.command;
    if command.len().is_multiple_of(2) {
        return Act::Now(Reply::error(
            "ERR wrong number of arguments for 'mset' command: it is MSET key value [key value ...]",
        ));
    }
    // The last value of a key that is given twice is the one that stays.
    let mut seen = HashSet::new();
    let last = (1..command.len()).step_by(2).rev().filter(|at| seen.insert(command.arg(*at)));
    let wants = last.map(|at| (command.key(at), put(command.value(at + 1), None))).collect();
    let stored = how_many(call.space(), wants, |got| got == Got::Stored);
    Call::later(async { stored.await.map_or_else(|error| error, |_| Reply::OK) })
}

fn flush(call: &mut Call<'_>) -> Act {
    if let Some(error) = connection::flushes_others(call) {
        return error;
    }
    match call.command.len() {
        1 => purge_of(call, What::All),
        2 if is(call.command.arg(1), "SYNC") || is(call.command.arg(1), "ASYNC") => purge_of(call, What::All),
        _ => syntax_error(),
    }
}

fn purge_of(call: &Call<'_>, what: What) -> Act {
    Act::Cache(Op::new(call.space().name, Bytes::new(), Want::Purge(what)), purged)
}

fn purge(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let what = match (command.arg(1), command.len()) {
        (word, 3) if is(word, "KEY") => What::Key(command.key(2)),
        (word, 3) if is(word, "PREFIX") => What::Prefix(command.key(2)),
        (word, 3) if is(word, "TAG") => What::Tag(command.key(2)),
        (word, 2) if is(word, "ALL") => What::All,
        _ => return Act::Now(Reply::error("ERR syntax error: PURGE takes KEY name, PREFIX prefix, TAG tag, or ALL")),
    };
    purge_of(call, what)
}
