//! HyperLogLogs: about how many different elements there are.

use std::sync::Arc;

use super::*;

const ONE_SHARD: &str = "all keys must be in one shard";

pub const ALL: &[Spec] = &[
    spec(
        "PFADD",
        -2,
        Keys::One,
        Does::Write,
        "key [element ...]",
        "counts elements, about; 1 if that has changed something",
        |call| one(call, "sketch.add", plain_sketch),
    ),
    noted(
        spec(
            "PFCOUNT",
            -2,
            Keys::All,
            Does::Read,
            "key [key ...]",
            "about how many different elements there are",
            count,
        ),
        "all keys must be in one shard; within a script, or where reads may be old, the count is not kept in the value",
    ),
    noted(
        spec("PFMERGE", -2, Keys::All, Does::Write, "to [key ...]", "counts there what is counted in any", |call| {
            let keys = (1..call.command.len()).map(|at| call.command.key(at)).collect();
            on_keys(call, "sketch.merge", keys, Vec::new(), |got| match plain_sketch(got) {
                Reply::Int(_) => Reply::OK,
                other => other,
            })
        }),
        ONE_SHARD,
    ),
];

fn plain_sketch(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::Nil => Reply::error("WRONGTYPE Key is not a valid HyperLogLog string value."),
        Got::Bytes(_) => Reply::error("INVALIDOBJ Corrupted HLL object detected"),
        other => plain_one(other),
    }
}

/// The count, of those and whether it was kept.
fn counted(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => plain(list),
        other => plain_sketch(vec![other]),
    }
}

/// Redis keeps the count of one key in its value. That is a write: it is only done where there is a new one.
fn count(call: &mut Call<'_>) -> Act {
    let keys: Vec<Bytes> = (1..call.command.len()).map(|at| call.command.key(at)).collect();
    let is_plain = keys.len() == 1 && call.client.stale.is_none() && !call.node.gate.is_at_once();
    if !is_plain {
        return on_keys(call, "sketch.count", keys, Vec::new(), counted);
    }
    if call.client.multi.is_some() {
        return one(call, "sketch.keep-count", counted);
    }
    let (space, key) = (call.space(), keys[0].clone());
    let ask = move |function| Op::one(Arc::clone(&space.name), key.clone(), function, Vec::new());
    let space = call.space();
    Call::later(async move {
        let read = space.ask_linear(ask("sketch.count")).await;
        let is_kept = match &read {
            Outcome::Done(Ran::Done(got)) => match got.first() {
                Some(Got::List(list)) => list.get(1) != Some(&Got::Int(0)),
                _ => true,
            },
            _ => true,
        };
        match reply(read, counted) {
            // If it cannot be kept now, it will be another time.
            count if !is_kept => match reply(space.ask_linear(ask("sketch.keep-count")).await, counted) {
                kept @ Reply::Int(_) => kept,
                _ => count,
            },
            said => said,
        }
    })
}
