//! Values whole, as Redis writes them: `DUMP` reads one, `RESTORE` makes one, also of what a Redis has dumped.

use state::linear::functions::FIELDS_END_LEVEL;
use state::linear::{Condition, moment, stream};

use super::*;
use crate::resp::rdb::{self, Bad, Value};
use crate::wall::wall_ms;

pub const ALL: &[Spec] = &[
    noted(
        spec("DUMP", 2, Keys::One, Does::Read, "key", "a value as bytes that RESTORE takes", |call| {
            match reads(call) {
                Ok(reads) => steps(call, reads, dumped),
                Err(error) => Act::Now(error),
            }
        }),
        "as Redis 5 and later read it, streams as 7.0 and a hash whose fields end as 7.4 and later",
    ),
    noted(
        spec(
            "RESTORE",
            -4,
            Keys::One,
            Does::Write,
            "key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "a value of what DUMP gave, here or at a Redis since 2.6",
            restore,
        ),
        "modules' values are not taken; inside MULTI with REPLACE alone; tells keyspace events of the commands \
         that would make the value",
    ),
];

/// Steps that read a value of each type that there always was.
const TYPES_READ: usize = 6;
/// Members and fields of one command that makes a part of a value.
const PART: usize = 1_000;

/// What another command would have done.
fn steps_of(call: &mut Call<'_>, words: &[Bytes]) -> Result<Vec<Step>, Reply> {
    let command = Command::of(words);
    let spec = find(command.arg(0)).expect("a command of this class");
    match (spec.run)(&mut Call { command: &command, client: call.client, node: call.node, once: None }) {
        Act::Linear(op, _) => Ok(op.steps),
        Act::Now(reply) => Err(reply),
        _ => Err(Reply::error("ERR this value cannot be made of commands")),
    }
}

fn words(name: &'static str, key: &Bytes, args: &[&'static str]) -> Vec<Bytes> {
    let args = args.iter().map(|arg| Bytes::from_static(arg.as_bytes()));
    [Bytes::from_static(name.as_bytes()), key.clone()].into_iter().chain(args).collect()
}

/// Reads of all types at one moment, in the order in which [`dumped`] takes them: those of other types read nothing.
fn reads(call: &mut Call<'_>) -> Result<Vec<Step>, Reply> {
    let key = call.command.key(1);
    let mut all = Vec::new();
    for (name, args) in [
        ("TYPE", &[][..]),
        ("GET", &[]),
        ("LRANGE", &["0", "-1"]),
        ("SMEMBERS", &[]),
        ("ZRANGE", &["0", "-1", "WITHSCORES"]),
        ("HGETALL", &[]),
    ] {
        all.extend(steps_of(call, &words(name, &key, args))?);
    }
    if call.node.gate.view().root.level >= FIELDS_END_LEVEL {
        // Last, as they are not always there.
        all.push(Step::new(key.clone(), "hash.all-ending", Vec::new()));
        all.push(Step::new(key, "stream.whole", Vec::new()));
    }
    Ok(all)
}

fn dumped(mut got: Vec<Got>) -> Reply {
    let (stream, ending) = if got.len() > TYPES_READ { (got.pop(), got.pop()) } else { (None, None) };
    let Ok([kind, text, list, set, sorted, hash]) = <[Got; TYPES_READ]>::try_from(got) else { return Reply::Nil };
    let Got::Bytes(kind) = kind else { return plain_one(kind) };
    let read = match &kind[..] {
        b"none" => return Reply::Nil,
        b"string" => text,
        b"list" => list,
        b"set" => set,
        b"zset" => sorted,
        b"stream" => match stream.and_then(of_stream) {
            Some(value) => return Reply::Bulk(rdb::dump(&value)),
            None => return not_dumped(&kind),
        },
        b"hash" => match ending.and_then(of_ending) {
            Some(value) => return Reply::Bulk(rdb::dump(&value)),
            None => hash,
        },
        other => return not_dumped(other),
    };
    let value = match read {
        // It ended between two steps of one moment: it does not.
        Got::Nil => return Reply::Nil,
        Got::Bytes(text) => Some(Value::Text(text)),
        Got::List(items) => of_items(&kind, items),
        Got::Int(number) => Some(Value::Text(word(number.to_string()))),
        Got::Wrong(why) => return wrong(why),
    };
    value.map_or_else(|| Reply::error("ERR the value is not as its type says"), |value| Reply::Bulk(rdb::dump(&value)))
}

fn not_dumped(kind: &[u8]) -> Reply {
    let kind = String::from_utf8_lossy(kind);
    Reply::Error(format!("ERR values of type {kind} are not dumped: `coppice ns dump` takes all types"))
}

/// Of its parts.
fn of_stream(got: Got) -> Option<Value> {
    let Got::List(parts) = got else { return None };
    let text = |part| if let Got::Bytes(bytes) = part { Some(bytes) } else { None };
    let parts = parts.into_iter().map(text).collect::<Option<Vec<_>>>()?;
    Some(Value::Stream(Box::new(stream::wire::decode(&parts)?)))
}

/// Of fields, values and what is left of each in turn; none if no field ends.
fn of_ending(got: Got) -> Option<Value> {
    let Got::List(all) = got else { return None };
    let (triples, now) = (all.as_chunks::<3>().0, wall_ms());
    let of = |triple: &[Got; 3]| match triple {
        [Got::Bytes(field), Got::Bytes(text), Got::Int(left)] => {
            let end = u64::try_from(*left).map_or(0, |left| now.saturating_add(left));
            Some((field.clone(), text.clone(), end))
        }
        _ => None,
    };
    let fields = triples.iter().map(of).collect::<Option<Vec<_>>>()?;
    fields.iter().any(|(_, _, end)| *end != 0).then_some(Value::HashEnding(fields))
}

fn of_items(kind: &[u8], items: Vec<Got>) -> Option<Value> {
    let text = |got: Got| if let Got::Bytes(bytes) = got { Some(bytes) } else { None };
    let items: Vec<Bytes> = items.into_iter().map(text).collect::<Option<_>>()?;
    let (pairs, rest) = items.as_chunks::<2>();
    let is_paired = rest.is_empty();
    match kind {
        b"list" => Some(Value::List(items)),
        b"set" => Some(Value::Set(items)),
        b"hash" if is_paired => {
            Some(Value::Hash(pairs.iter().map(|[field, text]| (field.clone(), text.clone())).collect()))
        }
        b"zset" if is_paired => {
            let score = |text: &Bytes| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
            let members = pairs.iter().map(|[member, text]| Some((member.clone(), score(text)?)));
            members.collect::<Option<_>>().map(Value::Sorted)
        }
        _ => None,
    }
}

/// What a client wants beside the value.
#[derive(Default)]
struct Options {
    replaces: bool,
    /// The time is a moment, Unix milliseconds.
    is_moment: bool,
}

fn options(command: &Command) -> Result<Options, Reply> {
    let mut options = Options::default();
    let mut at = 4;
    while at < command.len() {
        let (name, value) = (command.arg(at), (at + 1 < command.len()).then(|| command.arg(at + 1)));
        match value {
            _ if is(name, "REPLACE") => options.replaces = true,
            _ if is(name, "ABSTTL") => options.is_moment = true,
            // How a Redis would choose what it evicts: nothing is evicted here.
            Some(value) if is(name, "IDLETIME") || is(name, "FREQ") => {
                let most = if is(name, "FREQ") { 255 } else { i64::MAX };
                match integer(value) {
                    None => return Err(not_an_integer()),
                    Some(number) if !(0..=most).contains(&number) => {
                        let why = match most {
                            255 => "ERR Invalid FREQ value, must be >= 0 and <= 255",
                            _ => "ERR Invalid IDLETIME value, must be >= 0",
                        };
                        return Err(Reply::error(why));
                    }
                    Some(_) => at += 1,
                }
            }
            _ => return Err(Reply::error("ERR syntax error")),
        }
        at += 1;
    }
    Ok(options)
}

fn restore(call: &mut Call<'_>) -> Act {
    match makes(call) {
        Err(error) => Act::Now(error),
        Ok((makes, true)) => steps(call, makes, ok),
        Ok(_) if call.client.multi.is_some() => Act::Now(Reply::error(
            "ERR inside MULTI RESTORE needs REPLACE: WATCH the key, and EXISTS tells whether it is free",
        )),
        Ok((makes, false)) => {
            let conditions = vec![Condition { key: call.command.key(1), version: 0 }];
            let op = Op { conditions, ..Op::of(call.space().name, makes) };
            let space = call.space();
            Call::later(async move {
                match space.ask_linear(op).await {
                    Outcome::Done(Ran::Unmet) => Reply::error("BUSYKEY Target key name already exists."),
                    other => reply(other, ok),
                }
            })
        }
    }
}

/// The steps that make the value, and whether they may replace another.
fn makes(call: &mut Call<'_>) -> Result<(Vec<Step>, bool), Reply> {
    let command = call.command;
    let options = options(command)?;
    let ends = integer(command.arg(2)).ok_or_else(not_an_integer)?;
    if ends < 0 {
        return Err(Reply::error("ERR Invalid TTL value, must be >= 0"));
    }
    let value = rdb::restore(&command.value(3)).map_err(|bad| match bad {
        Bad::Footer => Reply::error("ERR DUMP payload version or checksum are wrong"),
        Bad::Format => Reply::error("ERR Bad data format"),
        Bad::Type(kind) => {
            Reply::Error(format!("ERR Bad data format: values of Redis' type {kind} (modules') are not taken"))
        }
    })?;
    let key = command.key(1);
    let mut all = if options.replaces { steps_of(call, &words("DEL", &key, &[]))? } else { Vec::new() };
    let flat: fn(Vec<(Bytes, Bytes)>) -> Vec<Bytes> = |pairs| pairs.into_iter().flat_map(|(a, b)| [a, b]).collect();
    let (name, each, items) = match value {
        Value::Text(text) => ("SET", 1, vec![text]),
        Value::List(items) => ("RPUSH", 1, items),
        Value::Set(members) => ("SADD", 1, members),
        Value::Sorted(members) => {
            ("ZADD", 2, flat(members.into_iter().map(|(member, score)| (word(score.to_string()), member)).collect()))
        }
        Value::Hash(fields) => ("HSET", 2, flat(fields)),
        Value::Stream(stream) => {
            let head = ["stream", "none", "0"].map(word);
            let parts = stream::wire::encode(&stream);
            all.push(Step::new(key.clone(), "load", head.into_iter().chain(parts).collect()));
            ("HSET", 2, Vec::new())
        }
        Value::HashEnding(fields) => {
            let end = |end| word(if end == 0 { "none".to_owned() } else { moment::at(end) });
            let fields = fields.into_iter().flat_map(|(field, text, at)| [field, text, end(at)]);
            all.push(Step::new(key.clone(), "hash.load", [word("none")].into_iter().chain(fields).collect()));
            ("HSET", 2, Vec::new())
        }
    };
    for part in items.chunks(PART * each) {
        all.extend(steps_of(call, &[&words(name, &key, &[])[..], part].concat())?);
    }
    if ends > 0 {
        let name = if options.is_moment { "PEXPIREAT" } else { "PEXPIRE" };
        all.extend(steps_of(call, &[&words(name, &key, &[])[..], &[word(ends.to_string())]].concat())?);
    }
    Ok((all, options.replaces))
}
