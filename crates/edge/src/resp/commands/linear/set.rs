//! Sets.

use super::*;

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
];

fn members(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::Set(list.into_iter().map(plain_one).collect()),
        other => plain_one(other),
    }
}
