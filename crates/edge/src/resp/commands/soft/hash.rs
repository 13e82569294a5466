//! Hashes.

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
        |call| set(call, "HSET", int),
    ),
    spec("HMSET", -4, Keys::One, Does::Write, "key field value [field value ...]", "sets fields", |call| {
        set(call, "HMSET", ok)
    }),
    spec("HGET", 3, Keys::One, Does::Read, "key field", "the value of a field", |call| {
        act(call, elements(call, Kind::Field, 2), one_value)
    }),
    spec("HMGET", -3, Keys::One, Does::Read, "key field [field ...]", "values of fields", |call| {
        act(call, elements(call, Kind::Field, 2), value_list)
    }),
    spec("HGETALL", 2, Keys::One, Does::Read, "key", "all fields and values", |call| {
        act(call, all(call, Kind::Field), |got| {
            let pair =
                |(field, value): (Bytes, Option<Bytes>)| (Reply::Bulk(field), Reply::Bulk(value.unwrap_or_default()));
            Reply::Map(all_pairs(got).into_iter().map(pair).collect())
        })
    }),
    spec("HKEYS", 2, Keys::One, Does::Read, "key", "all fields", |call| {
        act(call, all(call, Kind::Field), |got| {
            Reply::List(all_pairs(got).into_iter().map(|(field, _)| Reply::Bulk(field)).collect())
        })
    }),
    spec("HVALS", 2, Keys::One, Does::Read, "key", "all values", |call| {
        act(call, all(call, Kind::Field), |got| {
            let value = |(_, value): (Bytes, Option<Bytes>)| Reply::Bulk(value.unwrap_or_default());
            Reply::List(all_pairs(got).into_iter().map(value).collect())
        })
    }),
    spec("HLEN", 2, Keys::One, Does::Read, "key", "how many fields", |call| {
        act(call, all(call, Kind::Field), how_many)
    }),
    spec("HEXISTS", 3, Keys::One, Does::Read, "key field", "whether there is such a field", |call| {
        act(call, elements(call, Kind::Field, 2), is_there)
    }),
    spec("HSTRLEN", 3, Keys::One, Does::Read, "key field", "how long the value of a field is", |call| {
        act(call, elements(call, Kind::Field, 2), length)
    }),
    spec("HDEL", -3, Keys::One, Does::Write, "key field [field ...]", "removes fields; how many there were", |call| {
        take(call, Kind::Field)
    }),
    noted(
        spec(
            "HSCAN",
            -3,
            Keys::One,
            Does::Read,
            "key cursor [MATCH pattern] [COUNT n] [NOVALUES]",
            "fields and values in pages",
            |call| pages::pages(call, Kind::Field, Also::NoValues, Some(Reply::Bulk)),
        ),
        IN_PAGES,
    ),
    spec(
        "HRANDFIELD",
        -2,
        Keys::One,
        Does::Read,
        "key [count [WITHVALUES]]",
        "some fields, each as likely; with a negative count each is drawn anew",
        |call| pages::drawn(call, Kind::Field, "WITHVALUES", Reply::Bulk),
    ),
    noted(
        spec("HINCRBY", 4, Keys::One, Does::Write, "key field delta", "adds to a field", |call| {
            let Some(by) = integer(call.command.arg(3)) else { return Act::Now(not_an_integer()) };
            let (key, element) = (call.command.key(1), call.command.key(2));
            act(call, Action::Add { kind: Kind::Field, key, element, by }, int)
        }),
        "the reply is what this node knows",
    ),
];

fn set(call: &Call<'_>, name: &str, then: Then) -> Act {
    if !call.command.len().is_multiple_of(2) {
        return Act::Now(arity_error(find(name.as_bytes()).expect("it is in the list")));
    }
    let pairs = pairs(call, 2).into_iter().map(|(field, value)| (field, Some(value))).collect();
    act(call, Action::Put { kind: Kind::Field, key: call.command.key(1), pairs }, then)
}
