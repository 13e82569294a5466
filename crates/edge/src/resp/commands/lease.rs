//! Commands about a value's lease, and those that read and change in one.

use base::Outcome;
use state::session::{Action, Lease, Reply as Found};

use super::write::{Ends, Options, Unit};
use super::*;

pub static GETEX: Spec = Spec {
    name: "GETEX",
    arity: -2,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms]",
    summary: "the value of a key, which also gets a new lease",
    note: "no PERSIST: each value has a lease",
    run: get_and_lease,
};

pub static GETDEL: Spec = Spec {
    name: "GETDEL",
    arity: 2,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key",
    summary: "the value of a key, which is removed",
    note: "",
    run: |call| Act::Op(call.space().op(call.command.key(1), Action::Take), read::value),
};

macro_rules! expire {
    ($name:ident, $unit:expr, $syntax:literal, $summary:literal) => {
        pub static $name: Spec = Spec {
            name: stringify!($name),
            arity: -3,
            keys: Keys::One,
            does: Does::Write,
            syntax: $syntax,
            summary: $summary,
            note: "XX is always true and NX never, as each value has a lease; GT and LT are not offered",
            run: |call| expire(call, $unit),
        };
    };
}

expire!(EXPIRE, Unit::Seconds, "key seconds [NX | XX]", "a new lease: 1 if there is a value, else 0");
expire!(PEXPIRE, Unit::Millis, "key ms [NX | XX]", "a new lease: 1 if there is a value, else 0");
expire!(
    EXPIREAT,
    Unit::UnixSeconds,
    "key unix-seconds [NX | XX]",
    "a new end of the lease: 1 if there is a value, else 0"
);
expire!(PEXPIREAT, Unit::UnixMillis, "key unix-ms [NX | XX]", "a new end of the lease: 1 if there is a value, else 0");

fn expire(call: &mut Call<'_>, unit: Unit) -> Act {
    let command = call.command;
    let Some(number) = integer(command.arg(2)) else { return Act::Now(not_an_integer()) };
    let mut never = false;
    for option in (3..command.len()).map(|i| command.arg(i)) {
        if is(option, "NX") {
            never = true;
        } else if is(option, "GT") || is(option, "LT") {
            return Act::Now(Reply::error(
                "ERR GT and LT are not offered by class session: look with PTTL, then EXPIRE",
            ));
        } else if !is(option, "XX") {
            return Act::Now(Reply::Error(format!("ERR Unsupported option {}", String::from_utf8_lossy(option))));
        }
    }
    if never {
        // "Only if it has no expiry": no value is like that, whether there is one or not.
        return Act::Now(Reply::Int(0));
    }
    let (space, key) = (call.space(), command.key(1));
    match unit.left_until(number) {
        None => Act::Now(Reply::Error(format!(
            "ERR invalid expire time in '{}' command",
            String::from_utf8_lossy(command.arg(0)).to_lowercase()
        ))),
        Some(Some(span)) => Act::Op(space.op(key, Action::Touch { lease: Lease::For(span) }), changed),
        // It ends now.
        Some(None) => Act::Op(space.op(key, Action::Remove), changed),
    }
}

fn changed(outcome: Outcome<Found>) -> Reply {
    match ops::done(outcome) {
        Ok(Found::Touched(there) | Found::Removed(there)) => Reply::Int(there.into()),
        Ok(other) => ops::odd(&other),
        Err(error) => error,
    }
}

fn get_and_lease(call: &mut Call<'_>) -> Act {
    let options = match Options::read(call.command, 2, "getex") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    match options {
        Options { get: false, when: None, compare: None, lease: None, moment: _, persist: true } => {
            let instead = refused::found(refused::INSTEAD, "PERSIST").unwrap_or_default();
            Act::Now(Reply::Error(format!("ERR 'PERSIST' is not offered by class session: {instead}")))
        }
        Options { get: false, when: None, compare: None, lease: None, moment: _, persist: false } => {
            (read::GET.run)(call)
        }
        Options {
            get: false,
            when: None,
            compare: None,
            lease: Some(Ends::By(lease @ Lease::For(_))),
            moment: _,
            persist: false,
        } => Act::Op(call.space().op(call.command.key(1), Action::GetTouch { lease }), read::value),
        // As GETDEL.
        Options { get: false, when: None, compare: None, lease: Some(Ends::Now), moment: _, persist: false } => {
            Act::Op(call.space().op(call.command.key(1), Action::Take), read::value)
        }
        Options { get: _, when: _, compare: _, lease: _, moment: _, persist: _ } => syntax_error(),
    }
}
