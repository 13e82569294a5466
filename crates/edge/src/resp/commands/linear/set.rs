//! Sets.

use super::pages::pages;
use super::*;
use crate::resp::commands::page::Also;

pub const ALL: &[Spec] = &[
    spec("SADD", -3, Keys::One, Does::Write, "key member [member ...]", "adds members; how many are new", |call| {
        one(call, "set.add", plain)
    }),
    spec(
        "SREM",
        -3,
        Keys::One,
        Does::Write,
        "key member [member ...]",
        "removes members; how many there were",
        |call| one(call, "set.remove", plain),
    ),
    spec("SMEMBERS", 2, Keys::One, Does::Read, "key", "all members, in order", |call| {
        one(call, "set.members", members)
    }),
    spec("SISMEMBER", 3, Keys::One, Does::Read, "key member", "whether it is a member", |call| {
        one(call, "set.has", first)
    }),
    spec("SMISMEMBER", -3, Keys::One, Does::Read, "key member [member ...]", "whether they are members", |call| {
        one(call, "set.has", plain)
    }),
    spec("SCARD", 2, Keys::One, Does::Read, "key", "how many members", |call| one(call, "set.length", plain)),
    noted(
        spec("SSCAN", -3, Keys::One, Does::Read, "key cursor [MATCH pattern] [COUNT n]", "members in pages", |call| {
            pages(call, ["set.walk", "set.scan"], 1, Also::Nothing)
        }),
        "what is there throughout the walk is listed at least once; a cursor is good at every node, and after restarts (from level 15 on)",
    ),
    spec("SPOP", -2, Keys::One, Does::Write, "key [count]", "takes some members out, each as likely", |call| {
        some(call, "set.pop", members)
    }),
    noted(
        spec(
            "SRANDMEMBER",
            -2,
            Keys::One,
            Does::Read,
            "key [count]",
            "some members, each as likely",
            |call| match call.command.len() {
                3 => drawn(call, "set.random", plain),
                _ => some(call, "set.random", plain),
            },
        ),
        "a negative count (each drawn anew) may be down to -16384",
    ),
    noted(
        spec("SMOVE", 4, Keys::Two, Does::Write, "key to member", "moves a member to another set", |call| {
            one(call, "set.move", plain)
        }),
        "both keys must be in one shard",
    ),
    noted(
        spec("SUNION", -2, Keys::All, Does::Read, "key [key ...]", "members of any", |call| {
            one(call, "set.union", members)
        }),
        "all keys must be in one shard",
    ),
    noted(
        spec("SINTER", -2, Keys::All, Does::Read, "key [key ...]", "members of all", |call| {
            one(call, "set.inter", members)
        }),
        "all keys must be in one shard",
    ),
    noted(
        spec("SDIFF", -2, Keys::All, Does::Read, "key [key ...]", "members of the first and no other", |call| {
            one(call, "set.diff", members)
        }),
        "all keys must be in one shard",
    ),
    noted(
        spec(
            "SUNIONSTORE",
            -3,
            Keys::All,
            Does::Write,
            "to key [key ...]",
            "stores members of any; how many",
            |call| one(call, "set.store-union", plain),
        ),
        "all keys must be in one shard",
    ),
    noted(
        spec(
            "SINTERSTORE",
            -3,
            Keys::All,
            Does::Write,
            "to key [key ...]",
            "stores members of all; how many",
            |call| one(call, "set.store-inter", plain),
        ),
        "all keys must be in one shard",
    ),
    noted(
        spec(
            "SDIFFSTORE",
            -3,
            Keys::All,
            Does::Write,
            "to key [key ...]",
            "stores members of the first and no other; how many",
            |call| one(call, "set.store-diff", plain),
        ),
        "all keys must be in one shard",
    ),
    noted(
        spec(
            "SINTERCARD",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [LIMIT limit]",
            "how many members of all there are",
            count_common,
        ),
        "all keys must be in one shard",
    ),
];

fn count_common(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (keys, at) = match counted(command, 1) {
        Ok(counted) => counted,
        Err(error) => return Act::Now(error),
    };
    let limit = match command.len() - at {
        0 => 0,
        2 if is(command.arg(at), "LIMIT") => match integer(command.arg(at + 1)) {
            Some(limit @ 0..) => limit,
            _ => return Act::Now(Reply::error("ERR LIMIT can't be negative")),
        },
        _ => return syntax_error(),
    };
    on_keys(call, "set.count-inter", keys, vec![word(limit.to_string())], plain)
}

fn some(call: &Call<'_>, function: &'static str, then: Then) -> Act {
    match call.command.len() {
        2 => one_with(call, function, vec![chance(), word("1")], |got| match only(got) {
            Got::List(list) => list.into_iter().next().map_or(Reply::Nil, plain_one),
            other => plain_one(other),
        }),
        3 => match how_many(call.command.arg(2)) {
            Ok(count) => one_with(call, function, vec![chance(), word(count.to_string())], then),
            Err(error) => Act::Now(error),
        },
        _ => syntax_error(),
    }
}

fn members(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::Set(list.into_iter().map(plain_one).collect()),
        other => plain_one(other),
    }
}
