//! The commands of class `linear`: one list. A command becomes steps, functions by name that the group runs (`state`), and
//! says how their replies read in the Redis protocol. Inside MULTI the steps are kept, and EXEC sends them as one.

use std::collections::HashMap;
use std::sync::LazyLock;

use base::Outcome;
use bytes::Bytes;
use state::linear::limits::DRAWN_AGAIN_MAX;
use state::linear::{Op, Over, Ran, Reply as Got, Step, Wrong};

use super::*;
use crate::resp::client::Queued;

mod bits;
pub mod block;
mod dump;
mod fcall;
mod geo;
mod hash;
mod hash_ends;
mod keys;
mod library;
pub(super) mod list;
mod once;
mod pages;
mod probe;
mod questions;
mod script;
mod set;
mod sketch;
mod sort;
mod sorted;
mod stream;
mod stream_info;
mod stream_wait;
mod text;
mod whole;

/// Everything that is offered beside what each class offers.
pub static ALL: &[&[Spec]] = &[
    keys::ALL,
    dump::ALL,
    text::ALL,
    bits::ALL,
    hash::ALL,
    hash_ends::ALL,
    list::ALL,
    set::ALL,
    sorted::ALL,
    geo::ALL,
    sketch::ALL,
    sort::ALL,
    stream::ALL,
    whole::ALL,
    block::ALL,
    probe::ALL,
    config::ALL,
    once::ALL,
    script::ALL,
    library::ALL,
];

/// Makes the reply of a command from those of its steps.
pub type Then = fn(Vec<Got>) -> Reply;

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

/// What is left out, and what works instead.
pub static INSTEAD: refused::Table = &[
    (
        &["XACKDEL", "XDELEX", "XNACK", "XCFGSET"],
        "streams have the commands of Redis 7.2: XACK and XDEL in MULTI, XCLAIM, ids of one's own",
    ),
    (&["PFDEBUG", "PFSELFTEST"], "GET gives the bytes of a HyperLogLog, as Redis has them"),
    (&["INCREX"], "MULTI, INCRBY, EXPIRE, EXEC"),
    (&["JSON.*"], "GET and SET a JSON text; FCALL json.merge 1 key patch changes it"),
    (
        &["FT.*", "TS.*", "BF.*", "CF.*", "CMS.*", "TOPK.*", "TDIGEST.*", "V*", "AR*"],
        "values are texts, hashes, lists, sets, sorted sets and streams; FCALL applies functions of a service to them",
    ),
    (
        &["RESTORE-ASKING", "MIGRATE", "MOVE", "SWAPDB"],
        "keys stay in their database; DUMP, SELECT and RESTORE bring a value to another one",
    ),
    (
        &["SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "SHUTDOWN", "FAILOVER", "DEBUG"],
        "the cluster looks after itself; `coppice status` and the monitor show it",
    ),
    (&["HOTKEYS", "LOLWUT"], "INFO and the monitor tell how the node is; the monitor shows hot keys"),
    (
        &["ASKING", "REPLICAOF", "SLAVEOF", "SYNC", "PSYNC", "REPLCONF", "SENTINEL", "SFLUSH"],
        "every node serves every key: connect to any of them as to a single Redis",
    ),
];

/// Commands that are not queued between MULTI and EXEC.
pub static ENDS_MULTI: &[&str] = &["MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "AUTH", "HELLO", "ONCE", "RESET"];

/// Commands that say where a transaction begins and ends. They ask nothing of the node by themselves, and are not refused.
pub static FRAMES_MULTI: &[&str] = &["MULTI", "EXEC", "DISCARD", "UNWATCH"];

/// A command was refused before it was run: a transaction behind WATCH must not run without it.
pub fn refused(client: &mut Client, command: &Command, spec: &Spec) {
    if spec.name == "WATCH" {
        whole::watch_in_vain(&mut client.watched.borrow_mut(), command.arg(1));
    }
}

/// Between MULTI and EXEC: keeps what a command would have done.
pub fn queue(client: &mut Client, command: &Command, spec: &Spec, act: Act) -> Act {
    let Some(multi) = &mut client.multi else { return act };
    multi.hear(command);
    if matches!(&act, Act::Now(kept) if *kept == QUEUED) {
        // It has kept itself.
        return act;
    }
    let kept = match act {
        Act::Linear(op, then) => multi.keep(Queued::Steps(op.steps, then)),
        Act::Now(error) if error.is_error() => Err(error),
        Act::Now(reply) => multi.keep(Queued::Said(reply)),
        Act::Op(..) | Act::Cache(..) | Act::Soft(..) | Act::Later(_) | Act::Block(_) | Act::Close(_) => {
            Err(Reply::Error(format!("ERR '{}' cannot stand inside MULTI", spec.name)))
        }
    };
    Act::Now(kept.map_or_else(
        |error| {
            multi.spoil();
            error
        },
        |()| QUEUED,
    ))
}

/// What a node's answer is in this protocol.
pub fn reply(outcome: Outcome<Ran>, then: Then) -> Reply {
    match outcome {
        Outcome::Done(Ran::Done(got)) => then(got),
        // Only EXEC has conditions; Redis says nil when one did not hold.
        Outcome::Done(Ran::Unmet) => Reply::NilList,
        Outcome::Refused(refused) => ops::refused(&refused),
        Outcome::Unknown(unknown) => ops::unknown(&unknown),
    }
}

// How commands are made.

/// One step on the first key, with the arguments behind it.
fn one(call: &Call<'_>, function: &'static str, then: Then) -> Act {
    let args = (2..call.command.len()).map(|i| call.command.value(i)).collect();
    one_with(call, function, args, then)
}

fn one_with(call: &Call<'_>, function: &'static str, args: Vec<Bytes>, then: Then) -> Act {
    steps(call, vec![Step::new(call.command.key(1), function, args)], then)
}

/// The same step on each key from `at` on.
fn each(call: &Call<'_>, function: &'static str, then: Then) -> Act {
    let step = |i| Step::new(call.command.key(i), function, Vec::new());
    over_each(call, (1..call.command.len()).map(step).collect(), then)
}

/// About all keys, at every shard.
fn everywhere(call: &Call<'_>, function: &'static str, args: Vec<Bytes>, then: Then) -> Act {
    over_each(call, vec![Step::new(Bytes::new(), function, args)], then)
}

fn over_each(call: &Call<'_>, steps: Vec<Step>, then: Then) -> Act {
    Act::Linear(Op { stale: call.client.stale, over: Over::Each, ..Op::of(call.space().name, steps) }, then)
}

fn steps(call: &Call<'_>, steps: Vec<Step>, then: Then) -> Act {
    Act::Linear(Op { stale: call.client.stale, ..Op::of(call.space().name, steps) }, then)
}

fn wrong_arity(name: &str) -> Reply {
    find(name.as_bytes()).map_or_else(|| Reply::error("ERR wrong number of arguments"), arity_error)
}

fn word(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

// How replies read.

fn wrong(wrong: Wrong) -> Reply {
    Reply::Error(crate::said::said(wrong))
}

fn plain_one(got: Got) -> Reply {
    match got {
        Got::Nil => Reply::Nil,
        Got::Int(n) => Reply::Int(n),
        Got::Bytes(bytes) => Reply::Bulk(bytes),
        Got::List(list) => Reply::List(list.into_iter().map(plain_one).collect()),
        Got::Wrong(why) => wrong(why),
    }
}

fn only(got: Vec<Got>) -> Got {
    got.into_iter().next().unwrap_or(Got::Nil)
}

/// How many items are asked for.
fn how_many(arg: &[u8]) -> Result<u64, Reply> {
    let count = integer(arg).and_then(|n| u64::try_from(n).ok());
    count.ok_or_else(|| Reply::error("ERR value is out of range, must be positive"))
}

/// One step on several keys: it is about the first, the others are its arguments.
fn on_keys(call: &Call<'_>, function: &'static str, keys: Vec<Bytes>, options: Vec<Bytes>, then: Then) -> Act {
    let mut args = keys;
    let key = args.remove(0);
    args.extend(options);
    steps(call, vec![Step::new(key, function, args)], then)
}

/// Some of a collection, by chance: a negative count draws each anew.
fn drawn(call: &Call<'_>, function: &'static str, then: Then) -> Act {
    match integer(call.command.arg(2)) {
        Some(n @ 0..) => one_with(call, function, vec![chance(), word(n.to_string())], then),
        Some(n) if n.unsigned_abs() <= DRAWN_AGAIN_MAX as u64 => {
            one_with(call, function, vec![chance(), word(n.unsigned_abs().to_string()), word("again")], then)
        }
        Some(_) => Act::Now(Reply::error("ERR value is out of range")),
        None => Act::Now(not_an_integer()),
    }
}

/// As it is.
fn plain(got: Vec<Got>) -> Reply {
    plain_one(only(got))
}

/// A list of all steps' replies; of another type is nil, as Redis has it.
fn all(got: Vec<Got>) -> Reply {
    let one = |got| match got {
        Got::Wrong(Wrong::Type) => Reply::Nil,
        other => plain_one(other),
    };
    Reply::List(got.into_iter().map(one).collect())
}

fn ok(got: Vec<Got>) -> Reply {
    match got.into_iter().find_map(|got| if let Got::Wrong(why) = got { Some(why) } else { None }) {
        Some(why) => wrong(why),
        None => Reply::OK,
    }
}

/// The sum of all steps' numbers.
fn sum(got: Vec<Got>) -> Reply {
    let mut sum = 0;
    for one in got {
        match one {
            Got::Int(n) => sum += n,
            Got::Wrong(why) => return wrong(why),
            Got::Nil | Got::Bytes(_) | Got::List(_) => (),
        }
    }
    Reply::Int(sum)
}

/// Chance, for what has to choose: replicas must agree, so it is drawn here and goes with the step.
fn chance() -> Bytes {
    word(super::chance().to_string())
}

/// The first of a list.
fn first(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => plain(list),
        other => plain_one(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::linear::functions;

    #[test]
    fn names_stand_once() {
        let mut names: Vec<_> = ALL.iter().flat_map(|some| some.iter()).map(|spec| spec.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let longest =
            ALL.iter().flat_map(|some| some.iter()).map(|spec| spec.name).all(|name| find(name.as_bytes()).is_some());
        assert!(longest, "no name is too long to be found");
        assert!(find(b"ping").is_some() && find(b"hset").is_some() && find(b"nosuch").is_none());
        assert!(functions::find("hash.set").is_some());
    }
}
