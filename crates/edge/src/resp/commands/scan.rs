//! Commands about all keys of the namespace.

use base::Outcome;
use bytes::Bytes;
use state::session::{Action, Kind, Reply as Found};

use super::page::{Also, Page};
use super::*;
use crate::resp::limits::*;

pub static DBSIZE: Spec = Spec {
    name: "DBSIZE",
    arity: 1,
    keys: Keys::None,
    does: Does::ReadAll,
    syntax: "",
    summary: "how many values the namespace has",
    note: "exact up to a thousand; more are counted by the bricks: what ended within ten seconds may count still, and while nodes come or go a quarter may be amiss for a moment",
    run: |call| {
        Act::Op(call.space().op(Bytes::new(), Action::Count), |outcome: Outcome<Found>| match ops::done(outcome) {
            Ok(Found::Count(n)) => Reply::Int(i64::try_from(n).unwrap_or(i64::MAX)),
            Ok(other) => ops::odd(&other),
            Err(error) => error,
        })
    },
};

pub static SCAN: Spec = Spec {
    name: "SCAN",
    arity: -2,
    keys: Keys::None,
    does: Does::ReadAll,
    syntax: "cursor [MATCH pattern] [COUNT n] [TYPE type]",
    summary: "a page of the keys, and the cursor of the next",
    note: "what is there throughout the walk is listed at least once, as in Redis",
    run: scan,
};

fn scan(call: &mut Call<'_>) -> Act {
    let page = match Page::read(call.command, 1, Also::Type, SCAN_COUNT_MAX) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    let (cursor, count) = (page.cursor, page.count);
    let space = call.space();
    Call::later(async move {
        match ops::done(space.ask(space.op(Bytes::new(), Action::Scan { cursor, count })).await) {
            Ok(Found::Page { cursor, keys }) => {
                let name = |kind| if kind == Kind::Hash { "hash" } else { "string" };
                let fits = |(key, kind): &(Bytes, Kind)| page.is_of(name(*kind).as_bytes()) && page.fits(key);
                let keys = keys.into_iter().filter(fits).map(|(key, _)| Reply::Bulk(key)).collect();
                Reply::List(vec![Reply::text(cursor.to_string()), Reply::List(keys)])
            }
            Ok(other) => ops::odd(&other),
            Err(error) => error,
        }
    })
}
