//! Hashes whose fields end by themselves, as in Redis since 7.4; HGETEX and HSETEX as in 8.

use state::linear::moment;

use super::*;
use crate::resp::commands::write::Unit;
use crate::wall::wall_ms;

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "HEXPIRE",
            -6,
            Keys::One,
            Does::Write,
            "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            "when fields end; of each 1, 2: at once, 0: the condition does not hold, -2: there is none",
            |call| expire(call, Unit::Seconds),
        ),
        "a field that has ended is taken out soon after; until then it is not told, nor counted by HLEN",
    ),
    spec(
        "HPEXPIRE",
        -6,
        Keys::One,
        Does::Write,
        "key ms [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "as HEXPIRE, in milliseconds",
        |call| expire(call, Unit::Millis),
    ),
    spec(
        "HEXPIREAT",
        -6,
        Keys::One,
        Does::Write,
        "key unix-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "as HEXPIRE, at a moment",
        |call| expire(call, Unit::UnixSeconds),
    ),
    spec(
        "HPEXPIREAT",
        -6,
        Keys::One,
        Does::Write,
        "key unix-ms [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "as HEXPIREAT, in milliseconds",
        |call| expire(call, Unit::UnixMillis),
    ),
    spec(
        "HPERSIST",
        -5,
        Keys::One,
        Does::Write,
        "key FIELDS numfields field [field ...]",
        "fields do not end: of each 1, -1: it did not anyway, -2: there is none",
        |call| on_fields(call, "hash.persist", plain),
    ),
    spec(
        "HTTL",
        -5,
        Keys::One,
        Does::Read,
        "key FIELDS numfields field [field ...]",
        "seconds until fields end; -1: it does not; -2: there is none",
        |call| on_fields(call, "hash.ttl", |got| each_left(got, |left| (left + 999) / 1_000)),
    ),
    spec(
        "HPTTL",
        -5,
        Keys::One,
        Does::Read,
        "key FIELDS numfields field [field ...]",
        "as HTTL, in milliseconds",
        |call| on_fields(call, "hash.ttl", plain),
    ),
    spec(
        "HEXPIRETIME",
        -5,
        Keys::One,
        Does::Read,
        "key FIELDS numfields field [field ...]",
        "when fields end, Unix seconds, by this node's clock",
        |call| on_fields(call, "hash.ttl", |got| each_left(got, |left| (wall_ms() as i64 + left + 500) / 1_000)),
    ),
    spec(
        "HPEXPIRETIME",
        -5,
        Keys::One,
        Does::Read,
        "key FIELDS numfields field [field ...]",
        "as HEXPIRETIME, in milliseconds",
        |call| on_fields(call, "hash.ttl", |got| each_left(got, |left| wall_ms() as i64 + left)),
    ),
    spec(
        "HGETEX",
        -5,
        Keys::One,
        Does::Write,
        "key [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | PERSIST] FIELDS numfields field [field ...]",
        "values of fields, which then end so",
        get_expire,
    ),
    spec(
        "HSETEX",
        -6,
        Keys::One,
        Does::Write,
        "key [FNX | FXX] [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL] FIELDS numfields field value [field value ...]",
        "sets fields and when they end: 1, or 0 if the condition does not hold for all of them",
        set_expire,
    ),
];

/// As Redis: the latest moment that a field may end at, Unix milliseconds.
const MOMENT_MAX: i64 = (1 << 46) - 1;

/// When something ends, as functions take it.
fn end(command: &Command, at: usize, unit: Unit) -> Result<Bytes, Reply> {
    let number = integer(command.arg(at)).ok_or_else(not_an_integer)?;
    if number < 0 {
        return Err(Reply::error("ERR invalid expire time, must be >= 0"));
    }
    let is_moment = matches!(unit, Unit::UnixSeconds | Unit::UnixMillis);
    let ms = match unit {
        Unit::Seconds | Unit::UnixSeconds => number.checked_mul(1_000),
        Unit::Millis | Unit::UnixMillis => Some(number),
    };
    let now = if is_moment { 0 } else { wall_ms() as i64 };
    let ms = ms.filter(|ms| *ms <= MOMENT_MAX - now).ok_or_else(|| {
        let name = String::from_utf8_lossy(command.arg(0)).to_lowercase();
        Reply::Error(format!("ERR invalid expire time in '{name}' command"))
    })?;
    // What is over by now is so by a moment that has passed.
    Ok(word(match ms {
        ms if is_moment => moment::at(ms.cast_unsigned()),
        0 => moment::at(0),
        ms => ms.to_string(),
    }))
}

/// `FIELDS numfields field ...`, which is all that comes from here on.
pub fn fields(command: &Command, at: usize, none: &'static str) -> Result<Vec<Bytes>, Reply> {
    if !is(command.arg(at), "FIELDS") {
        return Err(Reply::error("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = (at + 1 < command.len()).then(|| integer(command.arg(at + 1))).flatten();
    match count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0) {
        Some(count) if count == command.len() - at - 2 => {
            Ok((at + 2..command.len()).map(|i| command.value(i)).collect())
        }
        Some(_) => Err(Reply::error("ERR The `numfields` parameter must match the number of arguments")),
        None => Err(Reply::error(none)),
    }
}

/// What is said of a number of fields that is none.
pub const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

fn on_fields(call: &Call<'_>, function: &'static str, then: Then) -> Act {
    match fields(call.command, 2, NOT_POSITIVE) {
        Ok(fields) => one_with(call, function, fields, then),
        Err(error) => Act::Now(error),
    }
}

/// What is left of each field, otherwise said.
fn each_left(got: Vec<Got>, shown: fn(i64) -> i64) -> Reply {
    match only(got) {
        Got::List(all) => {
            let one = |left| match left {
                Got::Int(left) if left >= 0 => Reply::Int(shown(left)),
                other => plain_one(other),
            };
            Reply::List(all.into_iter().map(one).collect())
        }
        other => plain_one(other),
    }
}

fn expire(call: &mut Call<'_>, unit: Unit) -> Act {
    let made = || {
        let command = call.command;
        let end = end(command, 2, unit)?;
        let conditions = [("NX", "nx"), ("XX", "xx"), ("GT", "gt"), ("LT", "lt")];
        let when = conditions.into_iter().find(|(name, _)| is(command.arg(3), name)).map(|(_, when)| when);
        let none = "ERR Parameter `numFields` should be greater than 0";
        let fields = fields(command, if when.is_some() { 4 } else { 3 }, none)?;
        Ok([end, word(when.unwrap_or("any"))].into_iter().chain(fields).collect())
    };
    match made() {
        Ok(args) => one_with(call, "hash.expire", args, plain),
        Err(error) => Act::Now(error),
    }
}

fn get_expire(call: &mut Call<'_>) -> Act {
    let made = || {
        let command = call.command;
        let (end, at) = match Unit::of(command.arg(2)) {
            Some(unit) => (Some(end(command, 3, unit)?), 4),
            None if is(command.arg(2), "PERSIST") => (Some(word("none")), 3),
            None => (None, 2),
        };
        Ok((end, fields(command, at, NOT_POSITIVE)?))
    };
    match made() {
        Ok((Some(end), fields)) => {
            let args = [end].into_iter().chain(fields).collect();
            one_with(call, "hash.get-expire", args, plain)
        }
        Ok((None, fields)) => one_with(call, "hash.get-many", fields, plain),
        Err(error) => Act::Now(error),
    }
}

/// Options and `FIELDS numfields field value ...` in any order.
fn set_expire(call: &mut Call<'_>) -> Act {
    let made = || {
        let command = call.command;
        let (mut when, mut ends, mut pairs) = (None, None, None);
        let mut at = 2;
        while at < command.len() {
            let option = command.arg(at);
            if is(option, "FIELDS") && pairs.is_none() {
                let count = (at + 1 < command.len()).then(|| integer(command.arg(at + 1))).flatten();
                let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
                let count = count.ok_or_else(|| Reply::error("ERR invalid number of fields"))?;
                let behind = count.checked_mul(2).and_then(|count| count.checked_add(at + 2));
                let behind = behind.filter(|behind| *behind <= command.len()).ok_or_else(|| wrong_arity("HSETEX"))?;
                pairs = Some((at + 2..behind).map(|i| command.value(i)).collect::<Vec<_>>());
                at = behind;
                continue;
            }
            let unit = Unit::of(option);
            if unit.is_some() || is(option, "KEEPTTL") {
                if ends.is_some() {
                    return Err(Reply::error(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                ends = Some(match unit {
                    Some(_) if at + 1 == command.len() => return Err(Reply::error("ERR missing expire time")),
                    Some(unit) => end(command, at + 1, unit)?,
                    None => word("keep"),
                });
                at += usize::from(unit.is_some());
            } else if is(option, "FNX") || is(option, "FXX") {
                if when.is_some() {
                    return Err(Reply::error("ERR Only one of FXX or FNX arguments can be specified"));
                }
                when = Some(if is(option, "FNX") { "absent" } else { "present" });
            } else {
                let option = String::from_utf8_lossy(&option[..option.len().min(64)]);
                return Err(Reply::Error(format!("ERR unknown argument: {option}")));
            }
            at += 1;
        }
        let pairs = pairs.ok_or_else(|| wrong_arity("HSETEX"))?;
        let head = [word(when.unwrap_or("always")), ends.unwrap_or_else(|| word("none"))];
        Ok(head.into_iter().chain(pairs).collect())
    };
    match made() {
        Ok(args) => one_with(call, "hash.set-expire", args, plain),
        Err(error) => Act::Now(error),
    }
}
