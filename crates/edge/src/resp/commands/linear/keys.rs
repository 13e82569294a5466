//! Commands on keys of any type.

use super::*;
use crate::resp::commands::write::Unit;

pub const ALL: &[Spec] = &[
    noted(
        spec("DEL", -2, Keys::All, Does::Write, "key [key ...]", "removes keys; how many there were", |call| {
            each(call, "remove", sum)
        }),
        "atomic, if the namespace has one shard",
    ),
    spec("UNLINK", -2, Keys::All, Does::Write, "key [key ...]", "the same as DEL", |call| each(call, "remove", sum)),
    spec("EXISTS", -2, Keys::All, Does::Read, "key [key ...]", "how many of the keys there are", |call| {
        each(call, "exists", sum)
    }),
    spec("TOUCH", -2, Keys::All, Does::Read, "key [key ...]", "how many of the keys there are", |call| {
        each(call, "exists", sum)
    }),
    spec("TYPE", 2, Keys::One, Does::Read, "key", "what a key holds", |call| {
        one(call, "type", |got| match only(got) {
            Got::Bytes(name) => {
                let known = ["none", "string", "hash", "list", "set", "lease"];
                let name = known.into_iter().find(|known| known.as_bytes() == name);
                Reply::Simple(name.unwrap_or("string"))
            }
            other => plain_one(other),
        })
    }),
    spec("TTL", 2, Keys::One, Does::Read, "key", "seconds until it ends; -1: it does not; -2: there is none", |call| {
        one(call, "ttl", |got| match only(got) {
            Got::Int(ms) if ms >= 0 => Reply::Int((ms + 500) / 1000),
            other => plain_one(other),
        })
    }),
    spec("PTTL", 2, Keys::One, Does::Read, "key", "as TTL, in milliseconds", |call| one(call, "ttl", plain)),
    spec("EXPIRE", -3, Keys::One, Does::Write, "key seconds [NX | XX | GT | LT]", "when it ends", |call| {
        expire(call, Unit::Seconds)
    }),
    spec("PEXPIRE", -3, Keys::One, Does::Write, "key ms [NX | XX | GT | LT]", "when it ends", |call| {
        expire(call, Unit::Millis)
    }),
    spec("EXPIREAT", -3, Keys::One, Does::Write, "key unix-seconds [NX | XX | GT | LT]", "when it ends", |call| {
        expire(call, Unit::UnixSeconds)
    }),
    spec("PEXPIREAT", -3, Keys::One, Does::Write, "key unix-ms [NX | XX | GT | LT]", "when it ends", |call| {
        expire(call, Unit::UnixMillis)
    }),
    spec("PERSIST", 2, Keys::One, Does::Write, "key", "it does not end: 1, or 0 if it did not anyway", |call| {
        one_with(call, "expire", vec![word("none"), word("any")], plain)
    }),
    spec("RENAME", 3, Keys::All, Does::Write, "key newkey", "gives a key another name", |call| {
        one(call, "rename", |got| match only(got) {
            Got::Nil => Reply::error("ERR no such key"),
            got => ok(vec![got]),
        })
    }),
    spec("RENAMENX", 3, Keys::All, Does::Write, "key newkey", "RENAME, if the new name is free", |call| {
        let args = vec![call.command.key(2), word("nx")];
        one_with(call, "rename", args, |got| match only(got) {
            Got::Nil => Reply::error("ERR no such key"),
            got => plain_one(got),
        })
    }),
    noted(
        spec("COPY", -3, Keys::Two, Does::Write, "key to [REPLACE]", "stores what a key holds under another", |call| {
            let command = call.command;
            let args = match command.len() {
                3 => vec![command.key(2)],
                4 if is(command.arg(3), "REPLACE") => vec![command.key(2), word("replace")],
                _ => return syntax_error(),
            };
            one_with(call, "copy", args, plain)
        }),
        "both keys must be in one shard; DB is not offered",
    ),
    spec("EXPIRETIME", 2, Keys::One, Does::Read, "key", "when it ends, Unix seconds, by this node's clock", |call| {
        one(call, "ttl", |got| ends_at(got, 1_000))
    }),
    spec("PEXPIRETIME", 2, Keys::One, Does::Read, "key", "as EXPIRETIME, in milliseconds", |call| {
        one(call, "ttl", |got| ends_at(got, 1))
    }),
];

fn ends_at(got: Vec<Got>, unit: i64) -> Reply {
    match only(got) {
        Got::Int(left) if left >= 0 => Reply::Int((crate::http::session::wall_ms() as i64 + left) / unit),
        other => plain_one(other),
    }
}

fn expire(call: &mut Call<'_>, unit: Unit) -> Act {
    let command = call.command;
    let Some(number) = integer(command.arg(2)) else { return Act::Now(not_an_integer()) };
    let condition = match command.len() {
        3 => "any".to_owned(),
        4 => String::from_utf8_lossy(command.arg(3)).to_lowercase(),
        _ => return syntax_error(),
    };
    if !["any", "nx", "xx", "gt", "lt"].contains(&condition.as_str()) || (command.len() == 4 && condition == "any") {
        return Act::Now(Reply::Error(format!("ERR Unsupported option {}", String::from_utf8_lossy(command.arg(3)))));
    }
    match unit.left_until(number) {
        None => Act::Now(Reply::Error(format!(
            "ERR invalid expire time in '{}' command",
            String::from_utf8_lossy(command.arg(0)).to_lowercase()
        ))),
        // It ends now.
        Some(None) if condition == "any" || condition == "lt" => each_first(call, "remove"),
        Some(left) => {
            let ms = left.map_or(1, |left| left.as_millis().max(1));
            one_with(call, "expire", vec![word(ms.to_string()), word(condition)], plain)
        }
    }
}

fn each_first(call: &Call<'_>, function: &'static str) -> Act {
    one_with(call, function, Vec::new(), plain)
}
