//! Lists.

use super::*;

pub const ALL: &[Spec] = &[
    spec("LPUSH", -3, Keys::One, Does::Write, "key item [item ...]", "puts items at the head; the length", |call| {
        one(call, "list.push-left", plain)
    }),
    spec("RPUSH", -3, Keys::One, Does::Write, "key item [item ...]", "puts items at the end; the length", |call| {
        one(call, "list.push-right", plain)
    }),
    spec("LPOP", -2, Keys::One, Does::Write, "key [count]", "takes items from the head", |call| {
        if call.command.len() > 3 { syntax_error() } else { one(call, "list.pop-left", plain) }
    }),
    spec("RPOP", -2, Keys::One, Does::Write, "key [count]", "takes items from the end", |call| {
        if call.command.len() > 3 { syntax_error() } else { one(call, "list.pop-right", plain) }
    }),
    spec("LLEN", 2, Keys::One, Does::Read, "key", "how many items", |call| one(call, "list.length", plain)),
    spec("LRANGE", 4, Keys::One, Does::Read, "key start stop", "items of a range", |call| {
        one(call, "list.range", plain)
    }),
    spec("LINDEX", 3, Keys::One, Does::Read, "key index", "one item", |call| one(call, "list.at", plain)),
    spec("LREM", 4, Keys::One, Does::Write, "key count item", "removes items that are equal", |call| {
        one(call, "list.remove", plain)
    }),
    spec("LTRIM", 4, Keys::One, Does::Write, "key start stop", "keeps a range", |call| one(call, "list.trim", ok)),
    spec("LPUSHX", -3, Keys::One, Does::Write, "key item [item ...]", "LPUSH, if there is such a list", |call| {
        one(call, "list.push-left-present", plain)
    }),
    spec("RPUSHX", -3, Keys::One, Does::Write, "key item [item ...]", "RPUSH, if there is such a list", |call| {
        one(call, "list.push-right-present", plain)
    }),
    spec("LSET", 4, Keys::One, Does::Write, "key index item", "replaces one item", |call| {
        one(call, "list.set", |got| match only(got) {
            Got::Nil => Reply::error("ERR no such key"),
            Got::Int(0) => Reply::error("ERR index out of range"),
            got => ok(vec![got]),
        })
    }),
    spec(
        "LINSERT",
        5,
        Keys::One,
        Does::Write,
        "key BEFORE | AFTER pivot item",
        "puts an item beside another; the length, -1 if there is no such other",
        |call| {
            let command = call.command;
            let side = match &command.arg(2).to_ascii_lowercase()[..] {
                b"before" => "before",
                b"after" => "after",
                _ => return syntax_error(),
            };
            one_with(call, "list.insert", vec![word(side), command.value(3), command.value(4)], plain)
        },
    ),
    spec("LPOS", 3, Keys::One, Does::Read, "key item", "position of the first item that is equal", |call| {
        one(call, "list.find", plain)
    }),
    noted(
        spec(
            "LMOVE",
            5,
            Keys::Two,
            Does::Write,
            "key to LEFT | RIGHT LEFT | RIGHT",
            "takes an item from one end of a list to one end of another",
            |call| match (end(call.command.arg(3)), end(call.command.arg(4))) {
                (Some(from), Some(to)) => move_item(call, from, to),
                _ => syntax_error(),
            },
        ),
        "both keys must be in one shard",
    ),
    noted(
        spec("RPOPLPUSH", 3, Keys::Two, Does::Write, "key to", "LMOVE key to RIGHT LEFT", |call| {
            move_item(call, "right", "left")
        }),
        "both keys must be in one shard",
    ),
];

pub fn end(arg: &[u8]) -> Option<&'static str> {
    ["left", "right"].into_iter().find(|end| is(arg, end))
}

fn move_item(call: &Call<'_>, from: &'static str, to: &'static str) -> Act {
    one_with(call, "list.move", vec![call.command.key(2), word(from), word(to)], plain)
}
