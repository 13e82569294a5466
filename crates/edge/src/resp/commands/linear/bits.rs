//! Bits of texts, and numbers of several.

use state::linear::functions::fields::kind;
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
    spec("GETBIT", 3, Keys::One, Does::Read, "key offset", "a bit", |call| {
        match (offset(call.command.arg(2)), field_offset(call.command.arg(2), 0, false)) {
            (Ok(()), _) => one(call, "text.bit", plain),
            // Behind the end of any text.
            (Err(_), Ok(_)) if !call.command.arg(2).starts_with(b"#") => {
                one_with(call, "text.length", Vec::new(), |got| match only(got) {
                    Got::Int(_) => Reply::Int(0),
                    other => plain_one(other),
                })
            }
            (Err(error), _) => Act::Now(error),
        }
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
    spec(
        "BITFIELD",
        -2,
        Keys::One,
        Does::Write,
        "key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type offset increment ...]",
        "reads and changes numbers of so many bits",
        |call| fields(call, false),
    ),
    spec(
        "BITFIELD_RO",
        -2,
        Keys::One,
        Does::Read,
        "key [GET type offset [GET type offset ...]]",
        "reads numbers of so many bits",
        |call| fields(call, true),
    ),
];

fn fields(call: &Call<'_>, reads_only: bool) -> Act {
    match fields_of(call.command) {
        Ok((args, false)) => one_with(call, "text.fields", args, plain),
        Ok((_, true)) if reads_only => Act::Now(Reply::error("ERR BITFIELD_RO only supports the GET subcommand")),
        Ok((args, true)) => one_with(call, "text.change-fields", args, plain),
        Err(error) => Act::Now(error),
    }
}

/// As the functions take them, and whether any writes.
fn fields_of(command: &Command) -> Result<(Vec<Bytes>, bool), Reply> {
    let (mut args, mut writes, mut over, mut at) = (Vec::new(), false, "wrap", 2);
    while at < command.len() {
        let behind = command.len() - at - 1;
        let takes = |name: &str, args: usize| is(command.arg(at), name) && behind >= args;
        let act = match () {
            () if takes("GET", 2) => "get",
            () if takes("SET", 3) => "set",
            () if takes("INCRBY", 3) => "add",
            () if takes("OVERFLOW", 1) => {
                let said = ["wrap", "sat", "fail"].into_iter().find(|name| is(command.arg(at + 1), name));
                over = said.ok_or_else(|| Reply::error("ERR Invalid OVERFLOW type specified"))?;
                at += 2;
                continue;
            }
            () => return Err(Reply::error("ERR syntax error")),
        };
        let Some((_, bits)) = kind(command.arg(at + 1)) else {
            return Err(Reply::error(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            ));
        };
        let offset = field_offset(command.arg(at + 2), bits, act != "get")?;
        let number = if act == "get" { Some(0) } else { integer(command.arg(at + 3)) };
        let number = number.ok_or_else(not_an_integer)?;
        writes |= act != "get";
        let offset = word(offset.to_string());
        args.extend([word(act), word(over), command.value(at + 1), offset, word(number.to_string())]);
        at += if act == "get" { 3 } else { 4 };
    }
    Ok((args, writes))
}

/// Of the first bit of a number: `#2` is behind two others of as many bits.
fn field_offset(arg: &[u8], bits: u32, writes: bool) -> Result<u64, Reply> {
    let at = match arg.strip_prefix(b"#") {
        Some(times) => integer(times).and_then(|times| times.checked_mul(i64::from(bits))),
        None => integer(arg),
    };
    // What is written must have room; what lies behind a text is read as zeros.
    let bytes = if writes { VALUE_BYTES_MAX as u64 } else { TEXT_BYTES_OF_REDIS };
    let fits = at.and_then(|at| u64::try_from(at).ok()).filter(|at| at / 8 < bytes);
    fits.ok_or_else(|| Reply::error("ERR bit offset is not an integer or out of range"))
}

/// Bits of longer texts cannot be asked for there.
const TEXT_BYTES_OF_REDIS: u64 = 512 << 20;

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
