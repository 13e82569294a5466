//! Commands on keys of any type.

use state::linear::moment;

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
                let known = ["none", "string", "hash", "list", "set", "zset", "stream", "ledger", "queue", "lease"];
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
    spec("EXPIRE", -3, Keys::One, Does::Write, "key seconds [NX | XX | GT | LT ...]", "when it ends", |call| {
        expire(call, Unit::Seconds)
    }),
    spec("PEXPIRE", -3, Keys::One, Does::Write, "key ms [NX | XX | GT | LT ...]", "when it ends", |call| {
        expire(call, Unit::Millis)
    }),
    spec("EXPIREAT", -3, Keys::One, Does::Write, "key unix-seconds [NX | XX | GT | LT ...]", "when it ends", |call| {
        expire(call, Unit::UnixSeconds)
    }),
    spec("PEXPIREAT", -3, Keys::One, Does::Write, "key unix-ms [NX | XX | GT | LT ...]", "when it ends", |call| {
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
        spec(
            "COPY",
            -3,
            Keys::Two,
            Does::Write,
            "key to [DB 0] [REPLACE]",
            "stores what a key holds under another",
            copy,
        ),
        "both keys must be in one shard",
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
        Got::Int(left) if left >= 0 => Reply::Int(rounded(crate::wall::wall_ms() as i64 + left, unit)),
        other => plain_one(other),
    }
}

/// To the nearest, as Redis does: a moment that is counted anew each time may come out a millisecond earlier.
fn rounded(ms: i64, unit: i64) -> i64 {
    (ms + unit / 2) / unit
}

fn expire(call: &mut Call<'_>, unit: Unit) -> Act {
    let command = call.command;
    let Some(number) = integer(command.arg(2)) else { return Act::Now(not_an_integer()) };
    let condition = match condition(command) {
        Ok(condition) => condition,
        Err(error) => return Act::Now(error),
    };
    // What is too far away to be counted is as far away as can be counted.
    let number = if unit == Unit::UnixMillis { number.clamp(0, MILLIS_MAX) } else { number };
    match unit.left_until(number) {
        None => Act::Now(Reply::Error(format!(
            "ERR invalid expire time in '{}' command",
            String::from_utf8_lossy(command.arg(0)).to_lowercase()
        ))),
        Some(left) => {
            // What is over by now is so by a moment that has passed.
            let end = match (unit.moment(number), left) {
                (Some(moment), _) => moment::at(moment),
                (None, Some(left)) => left.as_millis().to_string(),
                (None, None) => moment::at(0),
            };
            one_with(call, "expire", vec![word(end), word(condition)], plain)
        }
    }
}

/// About 290,000 years.
const MILLIS_MAX: i64 = i64::MAX / 1_000;

/// When an end is changed, as the function takes it.
fn condition(command: &Command) -> Result<&'static str, Reply> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for i in 3..command.len() {
        let flag = [("NX", &mut nx), ("XX", &mut xx), ("GT", &mut gt), ("LT", &mut lt)];
        match flag.into_iter().find(|(name, _)| is(command.arg(i), name)) {
            Some((_, flag)) => *flag = true,
            None => {
                let option = String::from_utf8_lossy(&command.arg(i)[..command.arg(i).len().min(64)]);
                return Err(Reply::Error(format!("ERR Unsupported option {option}")));
            }
        }
    }
    match (nx, xx, gt, lt) {
        (true, false, false, false) => Ok("nx"),
        (true, ..) => Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible")),
        (_, _, true, true) => Err(Reply::error("ERR GT and LT options at the same time are not compatible")),
        // No end is later than any: nothing comes after it.
        (_, _, true, _) => Ok("gt"),
        (_, true, _, true) => Ok("xxlt"),
        (_, _, _, true) => Ok("lt"),
        (_, true, ..) => Ok("xx"),
        _ => Ok("any"),
    }
}

const NOT_TO_OTHERS: &str =
    "ERR COPY stays in the database that is selected: DUMP, SELECT and RESTORE bring a value to another one";

fn copy(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (mut args, mut at) = (vec![command.key(2)], 3);
    while at < command.len() {
        if is(command.arg(at), "REPLACE") {
            args.truncate(1);
            args.push(word("replace"));
        } else if is(command.arg(at), "DB") && at + 1 < command.len() {
            at += 1;
            let selected = call.client.known.as_ref().map_or(0, |known| known.database);
            match integer(command.arg(at)) {
                Some(database) if database == i64::from(selected) => (),
                Some(_) => return Act::Now(Reply::error(NOT_TO_OTHERS)),
                None => return Act::Now(not_an_integer()),
            }
        } else {
            return syntax_error();
        }
        at += 1;
    }
    if command.key(1) == command.key(2) {
        return Act::Now(Reply::error("ERR source and destination objects are the same"));
    }
    one_with(call, "copy", args, plain)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn a_moment_in_seconds_is_the_nearest_one() {
        assert_eq!([999, 1_000, 1_001, 1_499].map(|ms| rounded(ms, 1_000)), [1; 4]);
        assert_eq!((rounded(1_500, 1_000), rounded(1_499, 1)), (2, 1_499));
    }
}
