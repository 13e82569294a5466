//! Writing one key.

use base::{Outcome, Span};
use state::session::{Action, Lease, Reply as Found, When};

use super::compare::Compare;
use super::*;

pub static SET: Spec = Spec {
    name: "SET",
    arity: -3,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]",
    summary: "stores a value, with the namespace's default lease or the one that is given",
    note: "without EX and the like the lease is the namespace's default; a moment in the past ends the value at once",
    run: set,
};

pub static SETEX: Spec = Spec {
    name: "SETEX",
    arity: 4,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key seconds value",
    summary: "SET with EX",
    note: "",
    run: |call| set_for(call, Unit::Seconds),
};

pub static PSETEX: Spec = Spec {
    name: "PSETEX",
    arity: 4,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key ms value",
    summary: "SET with PX",
    note: "",
    run: |call| set_for(call, Unit::Millis),
};

pub static SETNX: Spec = Spec {
    name: "SETNX",
    arity: 3,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key value",
    summary: "SET with NX: 1 if the value was stored, 0 if there was one",
    note: "",
    run: |call| {
        let value = call.command.value(2);
        let op = call.space().put(call.command.key(1), value, Lease::Default, When::Absent, false);
        Act::Op(op, |outcome| match ops::done(outcome) {
            Ok(Found::Stored { .. }) => Reply::Int(1),
            Ok(Found::NotStored { .. }) => Reply::Int(0),
            Ok(other) => ops::odd(&other),
            Err(error) => error,
        })
    },
};

/// What a number of a lease counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Millis,
    UnixSeconds,
    UnixMillis,
}

impl Unit {
    pub fn of(option: &[u8]) -> Option<Unit> {
        let options =
            [("EX", Unit::Seconds), ("PX", Unit::Millis), ("EXAT", Unit::UnixSeconds), ("PXAT", Unit::UnixMillis)];
        options.into_iter().find(|(word, _)| is(option, word)).map(|(_, unit)| unit)
    }

    /// How long from now, for a number that must be positive; `None` is a moment that has passed.
    pub fn span(self, number: &[u8], name: &str) -> Result<Option<Span>, Reply> {
        let number = integer(number).ok_or_else(not_an_integer)?;
        let wrong = || Reply::Error(format!("ERR invalid expire time in '{name}' command"));
        if number <= 0 {
            return Err(wrong());
        }
        self.left_until(number).ok_or_else(wrong)
    }

    /// The moment that a number names, Unix milliseconds, if it names one.
    pub fn moment(self, number: i64) -> Option<u64> {
        match self {
            Unit::Seconds | Unit::Millis => None,
            Unit::UnixSeconds => Some(number.saturating_mul(1000).max(0).cast_unsigned()),
            Unit::UnixMillis => Some(number.max(0).cast_unsigned()),
        }
    }

    /// How long from now, of any number: `None` if it is too large for a time, `Some(None)` if it has passed.
    pub fn left_until(self, number: i64) -> Option<Option<Span>> {
        let millis = match self {
            Unit::Seconds | Unit::UnixSeconds => number.checked_mul(1000)?,
            Unit::Millis | Unit::UnixMillis => number,
        };
        let millis = match self {
            Unit::Seconds | Unit::Millis => millis,
            Unit::UnixSeconds | Unit::UnixMillis => millis.saturating_sub(unix_millis()),
        };
        // Micros must fit as well.
        millis.checked_mul(1000)?;
        Some(u64::try_from(millis).ok().filter(|&ms| ms > 0).map(Span::millis))
    }
}

/// The time of day of this machine.
pub fn unix_millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as i64)
}

/// When what is written ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    By(Lease),
    /// At a moment that has passed: it is removed, and nothing is written.
    Now,
}

/// Options after the key (and value) of SET and GETEX. Whoever reads them takes them apart without `..`, so that none is
/// dropped: an option that a command does not have is a syntax error of it.
#[derive(Default)]
pub struct Options {
    pub lease: Option<Ends>,
    /// If its end was given as a moment: that.
    pub moment: Option<u64>,
    pub when: Option<When>,
    pub compare: Option<Compare>,
    pub get: bool,
    pub persist: bool,
}

impl Options {
    /// Reads options from argument `at` on. `name` is for errors, in small letters.
    pub fn read(command: &Command, mut at: usize, name: &str) -> Result<Self, Reply> {
        let mut options = Options::default();
        let syntax = || Reply::error("ERR syntax error");
        while at < command.len() {
            let option = command.arg(at);
            if let Some(unit) = Unit::of(option) {
                if at + 1 >= command.len() || options.lease.is_some() || options.persist {
                    return Err(syntax());
                }
                let left = unit.span(command.arg(at + 1), name)?;
                options.lease = Some(left.map_or(Ends::Now, |span| Ends::By(Lease::For(span))));
                options.moment = integer(command.arg(at + 1)).and_then(|number| unit.moment(number));
                at += 1;
            } else if is(option, "KEEPTTL") && options.lease.is_none() && !options.persist {
                options.lease = Some(Ends::By(Lease::Keep));
            } else if options.when.is_none()
                && options.compare.is_none()
                && let Some(compare) = Compare::read(command, at)
            {
                options.compare = Some(compare?);
                at += 1;
            } else if is(option, "NX") && options.when.is_none() && options.compare.is_none() {
                options.when = Some(When::Absent);
            } else if is(option, "XX") && options.when.is_none() && options.compare.is_none() {
                options.when = Some(When::Present);
            } else if is(option, "GET") {
                options.get = true;
            } else if is(option, "PERSIST") && options.lease.is_none() {
                options.persist = true;
            } else {
                return Err(syntax());
            }
            at += 1;
        }
        Ok(options)
    }
}

fn set(call: &mut Call<'_>) -> Act {
    let command = call.command;
    // A moment is a lease by then.
    let Options { lease, moment: _, when, compare, get, persist } = match Options::read(command, 3, "set") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    if persist {
        return syntax_error();
    }
    let ends = lease.unwrap_or(Ends::By(Lease::Default));
    if let Some(compare) = compare {
        let (space, merges) = (call.space(), call.merges());
        let (key, value) = (command.key(1), command.value(2));
        return Call::later(compare::set(space, key, value, ends, compare, get, merges));
    }
    let lease = match ends {
        Ends::By(lease) => lease,
        Ends::Now => return set_ended(call, when.unwrap_or(When::Always), get),
    };
    let then = if get { stored_old } else { stored };
    Act::Op(call.space().put(command.key(1), command.value(2), lease, when.unwrap_or(When::Always), get), then)
}

/// SET of what has ended already: it is a removal under the same condition, and answered as SET is.
fn set_ended(call: &mut Call<'_>, when: When, get: bool) -> Act {
    let (space, key) = (call.space(), call.command.key(1));
    match (when, get) {
        // Nothing is there that could be removed, or the condition does not hold.
        (When::Absent, true) => Act::Op(space.get(key), read::value),
        (When::Absent, false) => Act::Op(space.get(key), |outcome| match ops::done(outcome) {
            Ok(found) => ops::value_of(found).map_or(Reply::OK, |_| Reply::Nil),
            Err(error) => error,
        }),
        (_, true) => Act::Op(space.op(key, Action::Take), read::value),
        (When::Present, false) => Act::Op(space.op(key, Action::Remove), |outcome| removed(outcome, Reply::Nil)),
        (_, false) => Act::Op(space.op(key, Action::Remove), |outcome| removed(outcome, Reply::OK)),
    }
}

/// `OK`, or this if there was nothing.
fn removed(outcome: Outcome<Found>, absent: Reply) -> Reply {
    match ops::done(outcome) {
        Ok(Found::Removed(there)) => {
            if there {
                Reply::OK
            } else {
                absent
            }
        }
        Ok(other) => ops::odd(&other),
        Err(error) => error,
    }
}

fn set_for(call: &mut Call<'_>, unit: Unit) -> Act {
    let name = if unit == Unit::Seconds { "setex" } else { "psetex" };
    match unit.span(call.command.arg(2), name) {
        Err(error) => Act::Now(error),
        // Lengths have never passed.
        Ok(None) => set_ended(call, When::Always, false),
        Ok(Some(span)) => {
            let (key, value) = (call.command.key(1), call.command.value(3));
            Act::Op(call.space().put(key, value, Lease::For(span), When::Always, false), stored)
        }
    }
}

/// `OK`, or nil if the condition did not hold.
fn stored(outcome: Outcome<Found>) -> Reply {
    match ops::done(outcome) {
        Ok(Found::Stored { .. }) => Reply::OK,
        Ok(Found::NotStored { .. }) => Reply::Nil,
        Ok(other) => ops::odd(&other),
        Err(error) => error,
    }
}

/// The value that was there, or nil, whether another was stored or not.
fn stored_old(outcome: Outcome<Found>) -> Reply {
    match ops::done(outcome) {
        Ok(Found::Stored { old, .. } | Found::NotStored { old, .. }) => old.map_or(Reply::Nil, Reply::Bulk),
        Ok(other) => ops::odd(&other),
        Err(error) => error,
    }
}
