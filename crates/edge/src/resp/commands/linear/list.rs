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
        pop(call, "LPOP", "list.pop-left")
    }),
    spec("RPOP", -2, Keys::One, Does::Write, "key [count]", "takes items from the end", |call| {
        pop(call, "RPOP", "list.pop-right")
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
    spec(
        "LPOS",
        -3,
        Keys::One,
        Does::Read,
        "key item [RANK rank] [COUNT count] [MAXLEN length]",
        "positions of items that are equal: the first one, or a list of count",
        positions,
    ),
    noted(
        spec(
            "LMPOP",
            -4,
            Keys::Counted(1),
            Does::Write,
            "numkeys key [key ...] LEFT | RIGHT [COUNT count]",
            "takes items from the first list that has any",
            |call| match Many::read(call.command, 1) {
                Ok(Many { keys, end, count }) => {
                    on_keys(call, "list.pop-first", keys, vec![word(end), word(count.to_string())], or_no_list)
                }
                Err(error) => Act::Now(error),
            },
        ),
        "all keys must be in one shard",
    ),
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

fn pop(call: &Call<'_>, name: &str, function: &'static str) -> Act {
    match call.command.len() {
        2 => one(call, function, plain),
        3 => match how_many(call.command.arg(2)) {
            Ok(_) => one(call, function, or_no_list),
            Err(error) => Act::Now(error),
        },
        _ => Act::Now(wrong_arity(name)),
    }
}

pub fn or_no_list(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::Nil => Reply::NilList,
        other => plain_one(other),
    }
}

/// `numkeys key [key ...] LEFT | RIGHT [COUNT count]`.
pub struct Many {
    pub keys: Vec<Bytes>,
    pub end: &'static str,
    pub count: u64,
}

impl Many {
    pub fn read(command: &Command, at: usize) -> Result<Self, Reply> {
        let (keys, at) = counted(command, at)?;
        let syntax = || Reply::error("ERR syntax error");
        let end = end(command.arg(at)).filter(|_| at < command.len()).ok_or_else(syntax)?;
        let count = match command.len() - at {
            1 => 1,
            3 if is(command.arg(at + 1), "COUNT") => match integer(command.arg(at + 2)) {
                Some(count @ 1..) => count as u64,
                _ => return Err(Reply::error("ERR count should be greater than 0")),
            },
            _ => return Err(syntax()),
        };
        Ok(Self { keys, end, count })
    }
}

/// `key item [RANK rank] [COUNT count] [MAXLEN length]`.
pub struct Positions {
    /// Which of those that are equal is the first one; negative ones count from the end.
    pub rank: i64,
    /// None: one is wanted, not a list. 0: all.
    pub count: Option<i64>,
    /// So many are looked at; 0: all.
    pub length: i64,
}

impl Positions {
    pub fn read(command: &Command) -> Result<Self, Reply> {
        let (mut rank, mut count, mut length) = (1, None, 0);
        let syntax = || Reply::error("ERR syntax error");
        if command.len().is_multiple_of(2) {
            return Err(syntax());
        }
        for at in (3..command.len()).step_by(2) {
            let number = integer(command.arg(at + 1)).ok_or_else(not_an_integer)?;
            if is(command.arg(at), "RANK") {
                if number == i64::MIN {
                    return Err(Reply::error("ERR value is out of range"));
                }
                if number == 0 {
                    return Err(Reply::error(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list",
                    ));
                }
                rank = number;
            } else if is(command.arg(at), "COUNT") {
                if number < 0 {
                    return Err(Reply::error("ERR COUNT can't be negative"));
                }
                count = Some(number);
            } else if is(command.arg(at), "MAXLEN") {
                if number < 0 {
                    return Err(Reply::error("ERR MAXLEN can't be negative"));
                }
                length = number;
            } else {
                return Err(syntax());
            }
        }
        Ok(Self { rank, count, length })
    }
}

fn positions(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let Positions { rank, count, length } = match Positions::read(command) {
        Ok(positions) => positions,
        Err(error) => return Act::Now(error),
    };
    let numbers = [rank, count.unwrap_or(1), length].map(|n| word(n.to_string()));
    let args = [&[command.value(2)], &numbers[..]].concat();
    one_with(call, "list.positions", args, if count.is_some() { plain } else { first_of })
}

/// The first of a list, or nil.
fn first_of(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => list.into_iter().next().map_or(Reply::Nil, plain_one),
        other => plain_one(other),
    }
}
