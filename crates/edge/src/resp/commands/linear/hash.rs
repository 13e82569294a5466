//! Hashes.

use super::hash_ends::{NOT_POSITIVE, fields};
use super::pages::pages;
use super::text::{FLOATS, float_sum};
use super::*;
use crate::resp::commands::page::Also;

pub const ALL: &[Spec] = &[
    spec(
        "HSET",
        -4,
        Keys::One,
        Does::Write,
        "key field value [field value ...]",
        "sets fields; how many are new",
        |call| {
            if call.command.len().is_multiple_of(2) {
                one(call, "hash.set", plain)
            } else {
                Act::Now(wrong_arity("HSET"))
            }
        },
    ),
    spec("HMSET", -4, Keys::One, Does::Write, "key field value [field value ...]", "sets fields", |call| {
        if call.command.len().is_multiple_of(2) { one(call, "hash.set", ok) } else { Act::Now(wrong_arity("HMSET")) }
    }),
    spec("HSETNX", 4, Keys::One, Does::Write, "key field value", "sets a field that is not there", |call| {
        one(call, "hash.set-new", plain)
    }),
    spec("HGET", 3, Keys::One, Does::Read, "key field", "the value of a field", |call| one(call, "hash.get", plain)),
    spec("HMGET", -3, Keys::One, Does::Read, "key field [field ...]", "values of fields", |call| {
        one(call, "hash.get-many", plain)
    }),
    spec("HGETALL", 2, Keys::One, Does::Read, "key", "all fields and values", |call| one(call, "hash.all", map)),
    spec("HKEYS", 2, Keys::One, Does::Read, "key", "all fields", |call| one(call, "hash.fields", plain)),
    spec("HVALS", 2, Keys::One, Does::Read, "key", "all values", |call| one(call, "hash.values", plain)),
    spec("HLEN", 2, Keys::One, Does::Read, "key", "how many fields", |call| one(call, "hash.length", plain)),
    spec("HEXISTS", 3, Keys::One, Does::Read, "key field", "whether there is such a field", |call| {
        one(call, "hash.has", plain)
    }),
    spec("HDEL", -3, Keys::One, Does::Write, "key field [field ...]", "removes fields; how many there were", |call| {
        one(call, "hash.remove", plain)
    }),
    spec("HINCRBY", 4, Keys::One, Does::Write, "key field delta", "adds to a field", |call| {
        if integer(call.command.arg(3)).is_none() {
            return Act::Now(not_an_integer());
        }
        one(call, "hash.add", |got| match only(got) {
            Got::Wrong(Wrong::NotANumber) => Reply::error("ERR hash value is not an integer"),
            other => plain_one(other),
        })
    }),
    noted(
        spec("HINCRBYFLOAT", 4, Keys::One, Does::Write, "key field delta", "adds a number with a fraction", |call| {
            let delta = std::str::from_utf8(call.command.arg(3)).ok().and_then(|text| text.parse::<f64>().ok());
            match delta {
                Some(delta) if delta.is_infinite() => Act::Now(Reply::error("ERR value is NaN or Infinity")),
                Some(delta) if !delta.is_nan() => one(call, "hash.add-float", |got| match only(got) {
                    Got::Wrong(Wrong::NotAFloat) => Reply::error("ERR hash value is not a float"),
                    other => float_sum(other),
                }),
                _ => Act::Now(wrong(Wrong::NotAFloat)),
            }
        }),
        FLOATS,
    ),
    noted(
        spec(
            "HSCAN",
            -3,
            Keys::One,
            Does::Read,
            "key cursor [MATCH pattern] [COUNT n] [NOVALUES]",
            "fields and values in pages",
            |call| pages(call, ["hash.walk", "hash.scan"], 2, Also::NoValues),
        ),
        "what is there throughout the walk is listed at least once; a cursor is good at every node, and after restarts (from level 15 on)",
    ),
    noted(
        spec(
            "HRANDFIELD",
            -2,
            Keys::One,
            Does::Read,
            "key [count [WITHVALUES]]",
            "some fields, each as likely",
            |call| match call.command.len() {
                2 => one_with(call, "hash.random", vec![chance(), word("1")], |got| match only(got) {
                    Got::List(list) => list.into_iter().next().map_or(Reply::Nil, plain_one),
                    other => plain_one(other),
                }),
                3 => drawn(call, "hash.random", |got| match only(got) {
                    Got::List(list) => Reply::List(list.into_iter().step_by(2).map(plain_one).collect()),
                    other => plain_one(other),
                }),
                4 if is(call.command.arg(3), "WITHVALUES") => drawn(call, "hash.random", |got| match only(got) {
                    Got::List(list) => Reply::Pairs(pairs(list)),
                    other => plain_one(other),
                }),
                _ => syntax_error(),
            },
        ),
        "a negative count (each drawn anew) may be down to -16384",
    ),
    spec(
        "HGETDEL",
        -5,
        Keys::One,
        Does::Write,
        "key FIELDS numfields field [field ...]",
        "values of fields, which are removed",
        |call| match fields(call.command, 2, NOT_POSITIVE) {
            Ok(fields) => one_with(call, "hash.take", fields, plain),
            Err(error) => Act::Now(error),
        },
    ),
    spec("HSTRLEN", 3, Keys::One, Does::Read, "key field", "length of a field's value, bytes", |call| {
        one(call, "hash.get", |got| match only(got) {
            Got::Nil => Reply::Int(0),
            Got::Bytes(value) => Reply::Int(value.len() as i64),
            other => plain_one(other),
        })
    }),
];

fn map(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::Map(pairs(list)),
        other => plain_one(other),
    }
}

fn pairs(flat: Vec<Got>) -> Vec<(Reply, Reply)> {
    let mut flat = flat.into_iter().map(plain_one);
    std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
}
