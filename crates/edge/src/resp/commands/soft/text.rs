//! Texts and numbers.

use base::Span;
use state::session::Lease;
use state::soft::End;

use super::*;
use crate::resp::commands::write::{Ends, Options, Unit};

const KNOWS: &str = "the reply is what this node knows: two nodes may give one number, so it makes no ids";

pub const ALL: &[Spec] = &[
    spec("GET", 2, Keys::One, Does::Read, "key", "the value of a key", |call| act(call, read(call), one_value)),
    spec("STRLEN", 2, Keys::One, Does::Read, "key", "how long the value is", |call| act(call, read(call), length)),
    spec("MGET", -2, Keys::All, Does::Read, "key [key ...]", "values of keys", |call| {
        act(call, Action::Peek { at: names(call, 1) }, value_list)
    }),
    noted(
        spec(
            "SET",
            -3,
            Keys::One,
            Does::Write,
            "key value [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]",
            "stores a value",
            set,
        ),
        "of two that two nodes store at one moment the newer by their clocks is read everywhere",
    ),
    spec("SETEX", 4, Keys::One, Does::Write, "key seconds value", "SET with EX", |call| set_for(call, Unit::Seconds)),
    spec("PSETEX", 4, Keys::One, Does::Write, "key ms value", "SET with PX", |call| set_for(call, Unit::Millis)),
    spec("MSET", -3, Keys::Pairs, Does::Write, "key value [key value ...]", "stores values", |call| {
        if call.command.len().is_multiple_of(2) {
            return Act::Now(arity_error(find(b"MSET").expect("it is in the list")));
        }
        act(call, Action::Set { pairs: pairs(call, 1), end: End::Never }, ok)
    }),
    noted(spec("INCR", 2, Keys::One, Does::Write, "key", "adds 1", |call| add(call, 1)), KNOWS),
    noted(spec("DECR", 2, Keys::One, Does::Write, "key", "takes 1 away", |call| add(call, -1)), KNOWS),
    noted(
        spec("INCRBY", 3, Keys::One, Does::Write, "key delta", "adds to a number", |call| {
            integer(call.command.arg(2)).map_or_else(|| Act::Now(not_an_integer()), |by| add(call, by))
        }),
        KNOWS,
    ),
    noted(
        spec("DECRBY", 3, Keys::One, Does::Write, "key delta", "takes from a number", |call| {
            let by = integer(call.command.arg(2)).and_then(i64::checked_neg);
            by.map_or_else(|| Act::Now(not_an_integer()), |by| add(call, by))
        }),
        KNOWS,
    ),
];

fn read(call: &Call<'_>) -> Action {
    Action::Read { kind: Kind::Register, at: vec![(call.command.key(1), Bytes::new())] }
}

fn add(call: &Call<'_>, by: i64) -> Act {
    let (key, element) = (call.command.key(1), Bytes::new());
    act(call, Action::Add { kind: Kind::Register, key, element, by }, int)
}

fn set(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let Options { lease, moment: _, when, compare, get, persist } = match Options::read(command, 3, "set") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    if when.is_some() || compare.is_some() {
        return Act::Now(Reply::Error(format!("ERR SET with a condition is not offered by class soft: {ONE_GETS_IT}")));
    }
    if get {
        return Act::Now(Reply::error("ERR SET with GET is not offered by class soft: GET, then SET"));
    }
    if persist {
        return syntax_error();
    }
    let end = match lease {
        None | Some(Ends::By(Lease::Default)) => End::Never,
        Some(Ends::By(Lease::For(span))) => End::After(span),
        Some(Ends::By(Lease::Keep)) => End::Kept,
        // At a moment that has passed.
        Some(Ends::Now) => return act(call, Action::Remove { keys: vec![command.key(1)] }, ok),
    };
    store(call, 2, end)
}

fn set_for(call: &Call<'_>, unit: Unit) -> Act {
    let name = String::from_utf8_lossy(call.command.arg(0)).to_lowercase();
    match unit.span(call.command.arg(2), &name) {
        Ok(span) => store(call, 3, End::After(span.unwrap_or(Span::millis(1)))),
        Err(error) => Act::Now(error),
    }
}

fn store(call: &Call<'_>, value: usize, end: End) -> Act {
    act(call, Action::Set { pairs: vec![(call.command.key(1), call.command.value(value))], end }, ok)
}
