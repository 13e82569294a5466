//! Bits of texts.

use state::linear::limits::VALUE_BYTES_MAX;

use super::*;

pub const ALL: &[Spec] = &[
    spec("SETBIT", 4, Keys::One, Does::Write, "key offset 0 | 1", "sets a bit; what it was", |call| {
        if let Err(error) = offset(call.command.arg(2)) {
            return Act::Now(error);
        }
        match call.command.arg(3) {
            b"0" | b"1" => one(call, "text.set-bit", plain),
            _ => Act::Now(Reply::error("ERR bit is not an integer or out of range")),
        }
    }),
    spec("GETBIT", 3, Keys::One, Does::Read, "key offset", "a bit", |call| match offset(call.command.arg(2)) {
        Ok(()) => one(call, "text.bit", plain),
        Err(error) => Act::Now(error),
    }),
    spec("BITCOUNT", -2, Keys::One, Does::Read, "key [start end [BYTE | BIT]]", "how many bits are 1", |call| {
        match (call.command.len(), range(call, 2)) {
            (3, _) => syntax_error(),
            (_, Ok(args)) => one_with(call, "text.bits", args, plain),
            (_, Err(error)) => Act::Now(error),
        }
    }),
    spec(
        "BITPOS",
        -3,
        Keys::One,
        Does::Read,
        "key 0 | 1 [start [end [BYTE | BIT]]]",
        "position of the first such bit, -1 if there is none",
        |call| {
            if integer(call.command.arg(2)).is_none() {
                return Act::Now(not_an_integer());
            }
            if !matches!(call.command.arg(2), b"0" | b"1") {
                return Act::Now(Reply::error("ERR The bit argument must be 1 or 0."));
            }
            match range(call, 3) {
                Ok(args) => one_with(call, "text.find-bit", [vec![call.command.value(2)], args].concat(), plain),
                Err(error) => Act::Now(error),
            }
        },
    ),
    noted(
        spec(
            "BITOP",
            -4,
            Keys::AllButFirst,
            Does::Write,
            "AND | OR | XOR | NOT to key [key ...]",
            "combines texts bit by bit into another key; its length",
            |call| {
                let command = call.command;
                let op = command.arg(1).to_ascii_lowercase();
                let op = match &op[..] {
                    b"not" if command.len() != 4 => {
                        return Act::Now(Reply::error("ERR BITOP NOT must be called with a single source key."));
                    }
                    b"and" | b"or" | b"xor" | b"not" => Bytes::from(op),
                    _ => return syntax_error(),
                };
                let keys = (2..command.len()).map(|i| command.key(i)).collect();
                on_keys(call, "text.bit-op", keys, vec![op], plain)
            },
        ),
        "all keys must be in one shard",
    ),
];

fn offset(arg: &[u8]) -> Result<(), Reply> {
    let fits = integer(arg).and_then(|at| usize::try_from(at).ok()).is_some_and(|at| at / 8 < VALUE_BYTES_MAX);
    if fits { Ok(()) } else { Err(Reply::error("ERR bit offset is not an integer or out of range")) }
}

/// Start, end and unit, from this argument on.
fn range(call: &Call<'_>, at: usize) -> Result<Vec<Bytes>, Reply> {
    let command = call.command;
    let numbers = at..command.len().min(at + 2);
    if numbers.clone().any(|i| integer(command.arg(i)).is_none()) {
        return Err(not_an_integer());
    }
    let unit = match command.len().saturating_sub(at + 2) {
        0 => None,
        1 if is(command.arg(at + 2), "BYTE") || is(command.arg(at + 2), "BIT") => {
            Some(Bytes::from(command.arg(at + 2).to_ascii_lowercase()))
        }
        _ => return Err(Reply::error("ERR syntax error")),
    };
    Ok(numbers.map(|i| command.value(i)).chain(unit).collect())
}
