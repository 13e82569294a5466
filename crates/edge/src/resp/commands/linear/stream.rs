//! Streams. What is wrong with an id or an option is said before the key is looked at, as in Redis. Times and new ids are of
//! this node's clock: they go with the step, so that replicas need none.

use std::time::{SystemTime, UNIX_EPOCH};

use state::linear::stream::Id;

use super::stream_wait::{self, Asks};
use super::*;

const CLOCK: &str = "times are those of the node that is asked";

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "XADD",
            -5,
            Keys::One,
            Does::Write,
            "key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] id field value [field value ...]",
            "adds an entry to a stream; its id, which is new for `*` and `ms-*`",
            add,
        ),
        "the time in a new id is that of the node that is asked, unless the last one is later",
    ),
    spec("XLEN", 2, Keys::One, Does::Read, "key", "how many entries", |call| one(call, "stream.length", plain)),
    spec(
        "XRANGE",
        -4,
        Keys::One,
        Does::Read,
        "key start end [COUNT count]",
        "entries with ids between these",
        |call| range(call, 2, 3, "forward"),
    ),
    spec("XREVRANGE", -4, Keys::One, Does::Read, "key end start [COUNT count]", "the same from the end", |call| {
        range(call, 3, 2, "reverse")
    }),
    spec("XDEL", -3, Keys::One, Does::Write, "key id [id ...]", "removes entries; how many there were", |call| {
        let ids = match ids(call.command, 2, call.command.len()) {
            Ok(ids) => ids,
            Err(error) => return Act::Now(error),
        };
        one_with(call, "stream.remove", ids, plain)
    }),
    spec(
        "XTRIM",
        -4,
        Keys::One,
        Does::Write,
        "key MAXLEN | MINID [= | ~] threshold [LIMIT count]",
        "removes the first entries; how many",
        |call| match Options::read(call.command, "XTRIM") {
            Ok(Options { trim: Some(trim), .. }) => one_with(call, "stream.trim", vec![trim], plain),
            Ok(_) => syntax_error(),
            Err(error) => Act::Now(error),
        },
    ),
    spec(
        "XSETID",
        -3,
        Keys::One,
        Does::Write,
        "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        "sets the last id of a stream",
        |call| set_id(call).unwrap_or_else(Act::Now),
    ),
    noted(
        spec(
            "XREAD",
            -4,
            Keys::Streams,
            Does::Read,
            "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            "entries with higher ids than this, than those of now (`$`) or the last one (`+`); waits for one",
            |call| match Asks::read(call.command, None) {
                Ok(asks) => stream_wait::read(call, asks),
                Err(error) => Act::Now(error),
            },
        ),
        "keys of several shards are not read at one moment",
    ),
    noted(
        spec(
            "XREADGROUP",
            -7,
            Keys::Streams,
            Does::Write,
            "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
            "entries that were delivered to nobody of the group (`>`), or to this consumer and not acknowledged",
            |call| match Asks::read(call.command, Some("XREADGROUP")) {
                Ok(asks) => stream_wait::read_group(call, asks),
                Err(error) => Act::Now(error),
            },
        ),
        "all keys must be in one shard; who waits as BLPOP, and what was delivered to a client that has gone is its consumer's",
    ),
    spec("XACK", -4, Keys::One, Does::Write, "key group id [id ...]", "entries need no more acknowledgement", |call| {
        let ids = match ids(call.command, 3, call.command.len()) {
            Ok(ids) => ids,
            Err(error) => return Act::Now(error),
        };
        one_with(call, "stream.ack", [vec![call.command.key(2)], ids].concat(), plain)
    }),
    noted(
        spec(
            "XPENDING",
            -3,
            Keys::One,
            Does::Read,
            "key group [[IDLE min-idle-time] start end count [consumer]]",
            "what was delivered and not acknowledged",
            |call| pending(call).unwrap_or_else(Act::Now),
        ),
        CLOCK,
    ),
    noted(
        spec(
            "XCLAIM",
            -6,
            Keys::One,
            Does::Write,
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-ms] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "entries that were delivered to others are this consumer's",
            |call| claim(call).unwrap_or_else(Act::Now),
        ),
        CLOCK,
    ),
    noted(
        spec(
            "XAUTOCLAIM",
            -6,
            Keys::One,
            Does::Write,
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "the same for those that wait for long enough, from this id on",
            |call| claim_auto(call).unwrap_or_else(Act::Now),
        ),
        CLOCK,
    ),
    noted(
        spec(
            "XGROUP",
            -2,
            Keys::Second,
            Does::Write,
            "CREATE | SETID | DESTROY | CREATECONSUMER | DELCONSUMER key group [id | $ | consumer] [MKSTREAM] [ENTRIESREAD n]",
            "makes, changes and removes groups of consumers",
            |call| group(call).unwrap_or_else(Act::Now),
        ),
        "",
    ),
    noted(
        spec(
            "XINFO",
            -2,
            Keys::Second,
            Does::Read,
            "STREAM | GROUPS | CONSUMERS key [FULL [COUNT count]] [group]",
            "what is known of a stream, its groups and their consumers",
            |call| stream_info::info(call).unwrap_or_else(Act::Now),
        ),
        "`radix-tree-keys` counts blocks of entries, and `radix-tree-nodes` one more",
    ),
];

/// Milliseconds since 1970.
pub fn now() -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    word(now.as_millis().to_string())
}

// Arguments.

const BAD_ID: &str = "ERR Invalid stream ID specified as stream command argument";
/// Longer is no id, as in Redis.
const ID_BYTES_MAX: usize = 127;

/// An id, or one without its second number.
pub fn id(text: &[u8], missing: u64) -> Result<Id, Reply> {
    let id = if text.len() > ID_BYTES_MAX { None } else { Id::parse(text, missing) };
    id.ok_or_else(|| Reply::error(BAD_ID))
}

fn id_word(id: Id) -> Bytes {
    word(id.to_string())
}

fn ids(command: &Command, from: usize, to: usize) -> Result<Vec<Bytes>, Reply> {
    (from..to).map(|i| id(command.arg(i), 0).map(id_word)).collect()
}

/// An edge of a range: `-`, `+`, an id, or `(` and an id that is not in it.
fn start(text: &[u8]) -> Result<Id, Reply> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        [b'(', rest @ ..] if !rest.is_empty() => {
            id(rest, 0)?.next().ok_or_else(|| Reply::error("ERR invalid start ID for the interval"))
        }
        _ => id(text, 0),
    }
}

fn end(text: &[u8]) -> Result<Id, Reply> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        [b'(', rest @ ..] if !rest.is_empty() => {
            id(rest, u64::MAX)?.before().ok_or_else(|| Reply::error("ERR invalid end ID for the interval"))
        }
        _ => id(text, u64::MAX),
    }
}

pub fn number(arg: &[u8]) -> Result<i64, Reply> {
    integer(arg).ok_or_else(not_an_integer)
}

/// What XADD and XTRIM share.
struct Options {
    /// As functions take it.
    trim: Option<Bytes>,
    no_make: bool,
    /// Which argument is the id.
    at: usize,
    id: Bytes,
}

/// Entries that `~` removes at once, unless it is said: 100 blocks, as in Redis.
const ABOUT_LIMIT: i64 = 10_000;

impl Options {
    fn read(command: &Command, name: &str) -> Result<Self, Reply> {
        let adds = name == "XADD";
        let (mut trim, mut about, mut limit, mut no_make) = (None, false, None, false);
        let (mut new, mut at) = (None, 2);
        while at < command.len() {
            let (arg, more) = (command.arg(at), command.len() - 1 - at);
            if adds && arg == b"*" {
                new = Some([&b"*"[..], &now()].concat());
                break;
            } else if (is(arg, "MAXLEN") || is(arg, "MINID")) && more > 0 {
                if trim.is_some() {
                    return Err(Reply::error(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let by_len = is(arg, "MAXLEN");
                about = false;
                if more >= 2 && [&b"~"[..], b"="].contains(&command.arg(at + 1)) {
                    about = command.arg(at + 1) == b"~";
                    at += 1;
                }
                let to = command.arg(at + 1);
                trim = Some(if by_len {
                    let most = number(to)?;
                    if most < 0 {
                        return Err(Reply::error("ERR The MAXLEN argument must be >= 0."));
                    }
                    ("len", most.to_string())
                } else {
                    ("id", id(to, 0)?.to_string())
                });
                at += 1;
            } else if is(arg, "LIMIT") && more > 0 {
                let most = number(command.arg(at + 1))?;
                if most < 0 {
                    return Err(Reply::error("ERR The LIMIT argument must be >= 0."));
                }
                limit = Some(most);
                at += 1;
            } else if adds && is(arg, "NOMKSTREAM") {
                no_make = true;
            } else if adds {
                new = Some(match arg.strip_suffix(b"-*") {
                    Some(ms) => format!("{}-*", id(ms, 0).map(|id| id.ms).map_err(|_| Reply::error(BAD_ID))?).into(),
                    None => id(arg, 0)?.to_string().into(),
                });
                break;
            } else {
                return Err(Reply::error("ERR syntax error"));
            }
            at += 1;
        }
        if limit.is_some_and(|limit| limit > 0) && trim.is_none() {
            return Err(Reply::error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if !adds && trim.is_none() {
            return Err(Reply::error("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if limit.is_some() && !about {
            return Err(Reply::error("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let limit = limit.unwrap_or(if about { ABOUT_LIMIT } else { 0 });
        let how = if about { "about" } else { "exact" };
        let trim = trim.map(|(by, to)| word(format!("{by} {how} {to} {limit}")));
        Ok(Self { trim, no_make, at, id: new.unwrap_or_default().into() })
    }
}

fn add(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let options = match Options::read(command, "XADD") {
        Ok(options) => options,
        Err(error) => return Act::Now(error),
    };
    let fields = options.at + 1;
    let count = command.len().saturating_sub(fields);
    if count < 2 || !count.is_multiple_of(2) {
        return Act::Now(wrong_arity("XADD"));
    }
    if &options.id[..] == b"0-0" {
        return Act::Now(Reply::error("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let when = word(if options.no_make { "present" } else { "any" });
    let mut args = vec![options.id, when, options.trim.unwrap_or(word("-"))];
    args.extend((fields..command.len()).map(|i| command.value(i)));
    one_with(call, "stream.add", args, plain)
}

fn range(call: &Call<'_>, from: usize, to: usize, order: &'static str) -> Act {
    let command = call.command;
    let read = || {
        let (from, to) = (start(command.arg(from))?, end(command.arg(to))?);
        let (mut count, mut at) = (-1, 4);
        while at < command.len() {
            if !is(command.arg(at), "COUNT") || at + 1 >= command.len() {
                return Err(Reply::error("ERR syntax error"));
            }
            count = number(command.arg(at + 1))?.max(0);
            at += 2;
        }
        Ok((from, to, count))
    };
    match read() {
        Ok((from, to, count)) => {
            if count == 0 {
                return one_with(call, "type", Vec::new(), none_asked);
            }
            let args = vec![id_word(from), id_word(to), word(order), word(count.to_string())];
            one_with(call, "stream.range", args, entries)
        }
        Err(error) => Act::Now(error),
    }
}

/// As Redis answers to `COUNT 0`, by the type of the key.
fn none_asked(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::Bytes(kind) if &kind[..] == b"stream" => Reply::NilList,
        Got::Bytes(kind) if &kind[..] == b"none" => Reply::List(Vec::new()),
        Got::Bytes(_) => wrong(Wrong::Type),
        other => plain_one(other),
    }
}

fn set_id(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let last = id(command.arg(2), 0)?;
    let (mut added, mut deleted, mut at) = (word("-"), word("-"), 3);
    while at < command.len() {
        let (arg, value) = (command.arg(at), command.arg(at + 1));
        if at + 1 >= command.len() {
            return Err(Reply::error("ERR syntax error"));
        } else if is(arg, "ENTRIESADDED") {
            let count = number(value)?;
            if count < 0 {
                return Err(Reply::error("ERR entries_added must be positive"));
            }
            added = word(count.to_string());
        } else if is(arg, "MAXDELETEDID") {
            let id = id(value, 0)?;
            if last < id {
                return Err(Reply::error(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            deleted = id_word(id);
        } else {
            return Err(Reply::error("ERR syntax error"));
        }
        at += 2;
    }
    Ok(one_with(call, "stream.set-id", vec![id_word(last), added, deleted], |got| match only(got) {
        Got::Int(_) => Reply::OK,
        Got::Wrong(Wrong::IdTooLow) => {
            Reply::error("ERR The ID specified in XSETID is smaller than the target stream top item")
        }
        other => plain_one(other),
    }))
}

fn pending(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let group = command.key(2);
    if command.len() == 3 {
        return Ok(one_with(call, "stream.pending", vec![group], |got| match only(got) {
            Got::List(list) if !is_fault(&list) => {
                let mut list = list;
                let consumers = list.pop().unwrap_or(Got::Nil);
                let is_none = matches!(list.first(), Some(Got::Int(0)));
                let mut told: Vec<Reply> = list.into_iter().map(plain_one).collect();
                told.push(match consumers {
                    Got::List(consumers) if !is_none => Reply::List(
                        rows(consumers, 2)
                            .map(|mut row| {
                                let count = row.pop().map_or(Reply::Nil, |count| match count {
                                    Got::Int(n) => Reply::text(n.to_string()),
                                    other => plain_one(other),
                                });
                                Reply::List(row.into_iter().map(plain_one).chain([count]).collect())
                            })
                            .collect(),
                    ),
                    _ => Reply::NilList,
                });
                Reply::List(told)
            }
            other => fault(other),
        }));
    }
    if !(6..=9).contains(&command.len()) {
        return Err(Reply::error("ERR syntax error"));
    }
    let (mut at, mut idle) = (3, 0);
    if is(command.arg(3), "IDLE") {
        idle = number(command.arg(4))?.max(0);
        if command.len() < 8 {
            return Err(Reply::error("ERR syntax error"));
        }
        at = 5;
    }
    let count = number(command.arg(at + 2))?.max(0);
    let (from, to) = (start(command.arg(at))?, end(command.arg(at + 1))?);
    if at + 4 < command.len() {
        return Err(Reply::error("ERR syntax error"));
    }
    let mut args = vec![group, now(), word(idle.to_string()), id_word(from), id_word(to), word(count.to_string())];
    args.extend((at + 3 < command.len()).then(|| command.key(at + 3)));
    Ok(one_with(call, "stream.pending-range", args, |got| match only(got) {
        Got::List(list) if !is_fault(&list) => Reply::List(rows(list, 4).map(plain_row).collect()),
        other => fault(other),
    }))
}

fn idle_of(arg: &[u8], name: &str) -> Result<Bytes, Reply> {
    let idle = integer(arg).ok_or_else(|| Reply::Error(format!("ERR Invalid min-idle-time argument for {name}")))?;
    Ok(word(idle.max(0).to_string()))
}

fn claim(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let idle = idle_of(command.arg(4), "XCLAIM")?;
    let mut at = 5;
    let mut ids = Vec::new();
    while at < command.len()
        && let Ok(id) = id(command.arg(at), 0)
    {
        ids.push(id_word(id));
        at += 1;
    }
    let (now, dash) = (now(), || word("-"));
    let (mut when, mut times, mut last, mut force, mut just) = (dash(), dash(), dash(), "plain", "full");
    while at < command.len() {
        let (arg, more) = (command.arg(at), command.len() - 1 - at > 0);
        at += 1;
        if is(arg, "FORCE") {
            force = "force";
        } else if is(arg, "JUSTID") {
            just = "just";
        } else if is(arg, "IDLE") && more {
            let ms = integer(&now).unwrap_or_default();
            when = at_time(ms.saturating_sub(value_of(command, at, "IDLE")?));
            at += 1;
        } else if is(arg, "TIME") && more {
            when = at_time(value_of(command, at, "TIME")?);
            at += 1;
        } else if is(arg, "RETRYCOUNT") && more {
            let count = value_of(command, at, "RETRYCOUNT")?;
            times = if count >= 0 { word(count.to_string()) } else { dash() };
            at += 1;
        } else if is(arg, "LASTID") && more {
            last = id_word(id(command.arg(at), 0)?);
            at += 1;
        } else {
            let said = String::from_utf8_lossy(&arg[..arg.len().min(64)]).into_owned();
            return Err(Reply::Error(format!("ERR Unrecognized XCLAIM option '{said}'")));
        }
    }
    let head = [command.key(2), command.key(3), now, idle, when, times, last, word(force), word(just)];
    let args = head.into_iter().chain(ids).collect();
    let then: Then = if just == "just" { ids_told } else { entries };
    Ok(one_with(call, "stream.claim", args, then))
}

fn value_of(command: &Command, at: usize, name: &str) -> Result<i64, Reply> {
    integer(command.arg(at)).ok_or_else(|| Reply::Error(format!("ERR Invalid {name} option argument for XCLAIM")))
}

/// When something was delivered; what makes no sense is now.
fn at_time(ms: i64) -> Bytes {
    u64::try_from(ms).map_or_else(|_| word("-"), |ms| word(ms.to_string()))
}

/// As many as Redis takes.
const CLAIM_MAX: i64 = i64::MAX / 16;

fn claim_auto(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let idle = idle_of(command.arg(4), "XAUTOCLAIM")?;
    let from = start(command.arg(5))?;
    let (mut count, mut just, mut at) = (100, "full", 6);
    while at < command.len() {
        let arg = command.arg(at);
        if is(arg, "COUNT") && at + 1 < command.len() {
            count = number(command.arg(at + 1))?;
            if !(1..=CLAIM_MAX).contains(&count) {
                return Err(Reply::error("ERR COUNT must be > 0"));
            }
            at += 1;
        } else if is(arg, "JUSTID") {
            just = "just";
        } else {
            return Err(Reply::error("ERR syntax error"));
        }
        at += 1;
    }
    let count = word(count.to_string());
    let args = vec![command.key(2), command.key(3), now(), idle, id_word(from), count, word(just)];
    fn told(got: Vec<Got>, shown: Then) -> Reply {
        match only(got) {
            Got::List(list) if !is_fault(&list) => match <[Got; 3]>::try_from(list) {
                Ok([next, claimed, gone]) => Reply::List(vec![plain_one(next), shown(vec![claimed]), plain_one(gone)]),
                Err(_) => Reply::NilList,
            },
            other => fault(other),
        }
    }
    let then: Then = if just == "just" { |got| told(got, ids_told) } else { |got| told(got, entries) };
    Ok(one_with(call, "stream.claim-auto", args, then))
}

const GROUP_OFFERED: &str = "CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n], SETID key group id|$ [ENTRIESREAD n], \
                             DESTROY key group, CREATECONSUMER key group consumer and DELCONSUMER key group consumer";

fn group(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let (sub, len) = (command.arg(1), command.len());
    let (creates, sets) = (is(sub, "CREATE"), is(sub, "SETID"));
    let consumer = is(sub, "CREATECONSUMER") || is(sub, "DELCONSUMER");
    let is_sound = match len {
        4 => is(sub, "DESTROY"),
        5 => creates || sets || consumer,
        6.. => creates || sets,
        _ => false,
    };
    if !is_sound {
        return Ok(unknown_subcommand(call, GROUP_OFFERED));
    }
    let (mut makes, mut read, mut at) = ("present", word("-"), 5);
    while at < len {
        if creates && is(command.arg(at), "MKSTREAM") {
            makes = "make";
        } else if is(command.arg(at), "ENTRIESREAD") && at + 1 < len {
            let count = number(command.arg(at + 1))?;
            if count < -1 {
                return Err(Reply::error("ERR value for ENTRIESREAD must be positive or -1"));
            }
            read = if count < 0 { word("-") } else { word(count.to_string()) };
            at += 1;
        } else {
            return Ok(unknown_subcommand(call, GROUP_OFFERED));
        }
        at += 1;
    }
    let last = || match command.arg(4) {
        b"$" => Ok(word("$")),
        b"-" if sets => Ok(id_word(Id::MIN)),
        b"+" if sets => Ok(id_word(Id::MAX)),
        text => id(text, 0).map(id_word),
    };
    let (function, args) = if creates {
        ("stream.group-make", vec![last()?, read, word(makes)])
    } else if sets {
        ("stream.group-set", vec![last()?, read])
    } else if is(sub, "DESTROY") {
        ("stream.group-remove", Vec::new())
    } else if is(sub, "CREATECONSUMER") {
        ("stream.consumer-make", vec![command.key(4), now()])
    } else {
        ("stream.consumer-remove", vec![command.key(4)])
    };
    let args = [vec![command.key(3)], args].concat();
    let then: Then = if creates || sets { |got| grouped(got, true) } else { |got| grouped(got, false) };
    Ok(steps(call, vec![Step::new(command.key(2), function, args)], then))
}

fn grouped(got: Vec<Got>, is_ok: bool) -> Reply {
    match only(got) {
        Got::Int(_) if is_ok => Reply::OK,
        Got::Wrong(Wrong::NoKey) => Reply::error(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
             create an empty stream automatically.",
        ),
        Got::List(list) => fault_of_group(list),
        other => plain_one(other),
    }
}

// How replies read.

pub fn is_fault(list: &[Got]) -> bool {
    matches!(list.first(), Some(Got::Wrong(_)))
}

fn names_of(list: Vec<Got>) -> (String, String) {
    let mut names = list.into_iter().skip(1).map(|name| match name {
        Got::Bytes(name) => String::from_utf8_lossy(&name).into_owned(),
        _ => String::new(),
    });
    (names.next().unwrap_or_default(), names.next().unwrap_or_default())
}

/// What went wrong, perhaps with names.
pub fn fault(got: Got) -> Reply {
    match got {
        Got::List(list) if is_fault(&list) => {
            let (key, group) = names_of(list);
            Reply::Error(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
        }
        other => plain_one(other),
    }
}

pub fn fault_of_group(list: Vec<Got>) -> Reply {
    let (key, group) = names_of(list);
    Reply::Error(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

pub fn rows(list: Vec<Got>, width: usize) -> impl Iterator<Item = Vec<Got>> {
    let mut list = list.into_iter();
    std::iter::from_fn(move || {
        let row: Vec<Got> = list.by_ref().take(width).collect();
        (row.len() == width).then_some(row)
    })
}

pub fn plain_row(row: Vec<Got>) -> Reply {
    Reply::List(row.into_iter().map(plain_one).collect())
}

pub fn entry(row: Vec<Got>) -> Reply {
    let shown = |got| if matches!(got, Got::Nil) { Reply::NilList } else { plain_one(got) };
    Reply::List(row.into_iter().map(shown).collect())
}

pub fn entries_of(list: Vec<Got>) -> Reply {
    Reply::List(rows(list, 2).map(entry).collect())
}

/// Each with its fields.
fn entries(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) if !is_fault(&list) => entries_of(list),
        other => fault(other),
    }
}

fn ids_told(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) if !is_fault(&list) => Reply::List(list.into_iter().map(plain_one).collect()),
        other => fault(other),
    }
}

/// By key, of one reply for each; or an error.
pub fn by_key(got: Vec<Got>) -> Reply {
    let mut told = Vec::new();
    for got in got {
        match got {
            Got::Nil => (),
            Got::List(list) if !is_fault(&list) => told.extend(rows(list, 2).map(named)),
            Got::List(list) => {
                let (key, group) = names_of(list);
                return Reply::Error(format!(
                    "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
                ));
            }
            other => return plain_one(other),
        }
    }
    if told.is_empty() { Reply::NilList } else { Reply::Named(told) }
}

fn named(row: Vec<Got>) -> (Reply, Reply) {
    let mut row = row.into_iter();
    let key = row.next().map_or(Reply::Nil, plain_one);
    match row.next() {
        Some(Got::List(list)) => (key, entries_of(list)),
        _ => (key, Reply::NilList),
    }
}
