//! Reading one key.

use base::Outcome;
use bytes::Bytes;
use state::session::{Kind, Reply as Found};

use super::*;
use crate::resp::ops::Seen;

pub static GET: Spec = Spec {
    name: "GET",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "the value of a key, or nil",
    note: "never older than the last acknowledged write",
    run: |call| read(call, value),
};

pub static STRLEN: Spec = Spec {
    name: "STRLEN",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "length of a value, bytes; 0 if there is none",
    note: "",
    run: |call| read(call, |outcome| text(outcome, |value| Reply::Int(value.len() as i64), Reply::Int(0))),
};

pub static TYPE: Spec = Spec {
    name: "TYPE",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "`string`, `hash` or `none`",
    note: "",
    run: |call| {
        read(call, |outcome| {
            reply(
                outcome,
                |seen| Reply::Simple(if seen.kind == Kind::Hash { "hash" } else { "string" }),
                Reply::Simple("none"),
            )
        })
    },
};

pub static TTL: Spec = Spec {
    name: "TTL",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "what is left of a value's lease, seconds; -2 if there is no value",
    note: "never -1: each value has a lease",
    run: |call| {
        // Rounded as Redis does it.
        read(call, |outcome| {
            reply(outcome, |seen| Reply::Int((seen.lease_left.as_millis() as i64 + 500) / 1000), Reply::Int(-2))
        })
    },
};

pub static PTTL: Spec = Spec {
    name: "PTTL",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "what is left of a value's lease, milliseconds; -2 if there is no value",
    note: "never -1: each value has a lease",
    run: |call| {
        read(call, |outcome| reply(outcome, |seen| Reply::Int(seen.lease_left.as_millis() as i64), Reply::Int(-2)))
    },
};

/// The value, or nil.
pub fn value(outcome: Outcome<Found>) -> Reply {
    text(outcome, Reply::Bulk, Reply::Nil)
}

fn read(call: &mut Call<'_>, reply: fn(Outcome<Found>) -> Reply) -> Act {
    Act::Op(call.space().get(call.command.key(1)), reply)
}

/// What only a text has.
fn text(outcome: Outcome<Found>, there: impl FnOnce(Bytes) -> Reply, absent: Reply) -> Reply {
    reply(outcome, |seen| if seen.kind == Kind::Text { there(seen.value) } else { ops::wrong_type() }, absent)
}

fn reply(outcome: Outcome<Found>, there: impl FnOnce(Seen) -> Reply, absent: Reply) -> Reply {
    match ops::done(outcome) {
        Ok(found) => ops::value_of(found).map_or(absent, there),
        Err(error) => error,
    }
}
