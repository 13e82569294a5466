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
];
