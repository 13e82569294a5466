//! The commands of class `soft`: one list. Each is one operation, decided by what this node knows. What promises that only one
//! gets something is not offered: two nodes could both succeed.

use std::collections::HashMap;
use std::sync::LazyLock;

use base::Outcome;
use bytes::Bytes;
use state::soft::{Action, Kind, Op, Reply as Got};

use super::*;

mod hash;
mod keys;
mod list;
mod pages;
mod ranking;
mod set;
mod text;

/// Everything that is offered beside what each class offers.
pub static ALL: &[&[Spec]] = &[keys::ALL, text::ALL, hash::ALL, set::ALL, list::ALL, ranking::ALL, config::ALL];

/// Makes the reply of a command.
pub type Then = fn(Got) -> Reply;

/// The command of this name in this class: its own, or one that belongs to the connection.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Spec>> =
        LazyLock::new(|| ALL.iter().flat_map(|some| some.iter()).map(|spec| (spec.name.as_bytes(), spec)).collect());
    let mut upper = [0u8; NAME_BYTES_MAX];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    BY_NAME.get(&*upper).copied().or_else(|| super::find(upper).filter(|spec| spec.does.is_of_connection()))
}

const ONE_GETS_IT: &str = "two nodes could both succeed: what only one may get belongs in a namespace of class linear";
const IN_PAGES: &str = "what is there throughout the walk is listed once; a cursor is good at every node";
const WHOLE: &str = "a value is read and written whole: GET it, change it, SET it; INCRBY counts";

/// What is left out, and what works instead.
pub static INSTEAD: refused::Table = &[
    (&["SETNX", "MSETNX", "HSETNX", "GETDEL", "HGETDEL", "SPOP", "SMOVE"], ONE_GETS_IT),
    (&["LPOP", "RPOP", "LMOVE", "LMPOP", "RPOPLPUSH", "BL*", "BR*"], ONE_GETS_IT),
    (&["ZPOP*", "ZMPOP", "BZ*"], ONE_GETS_IT),
    (
        &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"],
        "nodes do not wait for each other here: send a pipeline without MULTI, or use a namespace of class linear",
    ),
    (&["RENAME", "RENAMENX", "COPY", "MOVE"], "read it, and write it under the new key"),
    (&["*STORE"], "read the members, and write what comes of them: SADD, ZADD"),
    (&["APPEND", "SETRANGE", "GETRANGE", "SUBSTR", "INCRBYFLOAT", "INCREX", "SETBIT", "GETBIT", "BIT*", "LCS"], WHOLE),
    (&["GETSET", "GETEX", "MSETEX", "DIGEST", "DELEX"], "GET, SET with EX, and EXPIRE do it in two steps"),
    (&["SFLUSH", "SWAPDB"], "FLUSHDB removes all keys; a namespace is one database"),
    (&["HINCRBYFLOAT"], "HINCRBY counts"),
    (
        &["H*EXPIRE*", "HTTL", "HPTTL", "HPERSIST", "HSETEX", "HGETEX"],
        "a key ends as a whole: EXPIRE; keep what ends by itself under a key of its own",
    ),
    (&["ZINCRBY", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"], "ZRANGE and ZSCORE read, ZADD writes"),
    (
        &["ZRANGEBYLEX", "ZREVRANGEBYLEX", "ZLEXCOUNT", "ZREMRANGEBY*"],
        "ZRANGE with REV, BYSCORE and LIMIT reads, ZREM takes members away",
    ),
    (&["X*", "PF*", "GEO*"], "texts, hashes, sets, lists and sorted sets are what there is"),
    (&["SORT", "SORT_RO"], "SMEMBERS reads, and the program sorts"),
    (&["JSON.*"], "GET and SET a JSON text; HSET fields that are changed one by one"),
    (
        &["FT.*", "TS.*", "BF.*", "CF.*", "CMS.*", "TOPK.*", "TDIGEST.*", "V*", "AR*"],
        "texts, hashes, sets, lists and sorted sets are what there is",
    ),
    (
        &["DUMP", "RESTORE*", "MIGRATE", "OBJECT", "DEBUG", "MEMORY"],
        "GET, HGETALL and SMEMBERS read, TYPE tells the kind",
    ),
    (&["EVAL*", "SCRIPT", "FUNCTION", "FCALL*"], "no code runs beside these values: class linear applies functions"),
    (
        &["SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "SHUTDOWN", "FAILOVER"],
        "the cluster is configured by `coppice apply`, and looks after itself",
    ),
    refused::OF_NODES,
    (&["TIME", "HOTKEYS", "LOLWUT"], "INFO and the monitor tell how the node is"),
];

/// What a node's answer is in this protocol.
pub fn reply(outcome: Outcome<Got>, then: impl FnOnce(Got) -> Reply) -> Reply {
    match outcome {
        Outcome::Done(Got::WrongKind) => {
            Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
        }
        Outcome::Done(Got::NoNumber) => not_an_integer(),
        Outcome::Done(Got::Overflow) => Reply::error("ERR increment or decrement would overflow"),
        Outcome::Done(got) => then(got),
        Outcome::Refused(refused) => ops::refused(&refused),
        Outcome::Unknown(unknown) => ops::unknown(&unknown),
    }
}

// How commands are made.

fn act(call: &Call<'_>, action: Action, then: Then) -> Act {
    Act::Soft(Op::of(call.space().name, action), then)
}

/// Where the reply needs what the command said.
fn later(call: &Call<'_>, action: Action, then: impl FnOnce(Got) -> Reply + 'static) -> Act {
    let space = call.space();
    Call::later(async move { reply(space.ask_soft(action).await, then) })
}

/// Arguments from one on, as names.
fn names(call: &Call<'_>, from: usize) -> Vec<Bytes> {
    (from..call.command.len()).map(|i| call.command.key(i)).collect()
}

/// Arguments from one on, as names with their values.
fn pairs(call: &Call<'_>, from: usize) -> Vec<(Bytes, Bytes)> {
    (from..call.command.len()).step_by(2).map(|i| (call.command.key(i), call.command.value(i + 1))).collect()
}

/// Elements of the first key.
fn elements(call: &Call<'_>, kind: Kind, from: usize) -> Action {
    let at = names(call, from).into_iter().map(|element| (call.command.key(1), element)).collect();
    Action::Read { kind, at }
}

fn all(call: &Call<'_>, kind: Kind) -> Action {
    Action::All { kind, key: call.command.key(1) }
}

fn take(call: &Call<'_>, kind: Kind) -> Act {
    act(call, Action::Take { kind, key: call.command.key(1), elements: names(call, 2) }, int)
}

// How replies read.

fn int(got: Got) -> Reply {
    match got {
        Got::Int(n) => Reply::Int(n),
        other => odd(&other),
    }
}

fn ok(got: Got) -> Reply {
    match got {
        Got::Done | Got::Int(_) => Reply::OK,
        other => odd(&other),
    }
}

fn values(got: Got) -> Vec<Option<Bytes>> {
    match got {
        Got::Values(values) => values,
        other => odd(&other),
    }
}

fn all_pairs(got: Got) -> Vec<(Bytes, Option<Bytes>)> {
    match got {
        Got::Pairs(pairs) => pairs,
        other => odd(&other),
    }
}

fn one_value(got: Got) -> Reply {
    values(got).into_iter().next().flatten().map_or(Reply::Nil, Reply::Bulk)
}

fn value_list(got: Got) -> Reply {
    Reply::List(values(got).into_iter().map(|value| value.map_or(Reply::Nil, Reply::Bulk)).collect())
}

/// How long a value is; of none 0.
fn length(got: Got) -> Reply {
    Reply::Int(values(got).into_iter().flatten().map(|value| value.len() as i64).sum())
}

/// Whether the one element is there.
fn is_there(got: Got) -> Reply {
    Reply::Int(values(got).iter().flatten().count() as i64)
}

fn how_many(got: Got) -> Reply {
    Reply::Int(all_pairs(got).len() as i64)
}

/// This node answers itself, with what fits.
fn odd(got: &Got) -> ! {
    unreachable!("the node answered an operation with {got:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_once() {
        let mut names: Vec<_> = ALL.iter().flat_map(|some| some.iter()).map(|spec| spec.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(find(b"ping").is_some() && find(b"sadd").is_some() && find(b"nosuch").is_none());
    }
}
