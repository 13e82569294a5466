//! Functions on any key: read, write, remove, when it ends.

use std::sync::Arc;

use super::*;
use crate::ledger::{self, Ledger};
use crate::limits::VALUE_BYTES_MAX;
use crate::score;
use crate::sorted::{Scored, Sorted};
use crate::space::KEY_BYTES;
use crate::stream;
use crate::value::Entry;

pub const ALL: &[Function] = &[
    read("get", "", |space, key, args| {
        none(args)?;
        Ok(text_of(space, key)?.map_or(Reply::Nil, |text| Reply::Bytes(text.clone())))
    }),
    read("look", "", |space, key, args| {
        none(args)?;
        let Some(entry) = space.get(key) else { return Ok(Reply::Nil) };
        Ok(Reply::List(vec![text_or_type(entry), Reply::Int(entry.version as i64), Reply::Int(left(space, entry))]))
    }),
    // Value and version; other writes of the key wait at the leader until the holder's (`group/holds.rs`). It goes through the log,
    // so that it sees all that came before it.
    since(
        2,
        inner(write("hold", "token", |space, key, args| {
            one(args)?;
            let Some(entry) = space.get(key) else { return Ok(Reply::Nil) };
            Ok(Reply::List(vec![text_or_type(entry), Reply::Int(entry.version as i64)]))
        })),
    ),
    since(2, inner(write("release", "token", |_, _, args| one(args).map(|_| Reply::Nil)))),
    read("exists", "", |space, key, args| none(args).map(|()| flag(space.get(key).is_some()))),
    read("version", "", |space, key, args| {
        none(args).map(|()| Reply::Int(space.get(key).map_or(0, |entry| entry.version as i64)))
    }),
    read("type", "", |space, key, args| {
        none(args)?;
        let name = space.get(key).map_or("none", |entry| entry.value.type_name());
        Ok(Reply::Bytes(Bytes::from_static(name.as_bytes())))
    }),
    // Bytes that it holds in memory, about.
    since(
        2,
        read("size", "", |space, key, args| {
            none(args).map(|()| space.get(key).map_or(Reply::Nil, |entry| count(key.len() + entry.size + KEY_BYTES)))
        }),
    ),
    read("ttl", "", |space, key, args| {
        none(args).map(|()| Reply::Int(space.get(key).map_or(-2, |entry| left(space, entry))))
    }),
    Function {
        keyless: true,
        merge: Merge::Most,
        ..read("age", "", |space, _, args| none(args).map(|()| Reply::Int(space.shown_age() as i64)))
    },
    args_since(
        2,
        |args| {
            args.get(1).is_some_and(|when| compared(when).is_some())
                || args.get(2).is_some_and(|end| &end[..] == PASSED)
        },
        write(
            "put",
            "value always|absent|present|version:N|equal:VALUE|differs:VALUE|digest:D|digest-differs:D \
             none|keep|MS|at:UNIX-MS [old]",
            put,
        ),
    ),
    args_since(
        2,
        |args| args.first().is_some_and(|when| compared(when).is_some()),
        write("remove", "[version:N|equal:VALUE|differs:VALUE|digest:D|digest-differs:D]", |space, key, args| {
            let may = match args {
                [] => true,
                [when] => is_met(space, key, when)?,
                _ => return Err(Wrong::Arguments),
            };
            Ok(flag(may && space.remove(key).is_some()))
        }),
    ),
    write("take", "", |space, key, args| {
        none(args)?;
        let old = text_of(space, key)?.cloned();
        space.remove(key);
        Ok(old.map_or(Reply::Nil, Reply::Bytes))
    }),
    args_since(
        2,
        |args| matches!(args, [end, when] if &end[..] == PASSED || &when[..] == b"xxlt"),
        write("expire", "none|MS|at:UNIX-MS any|nx|xx|gt|lt|xxlt", expire),
    ),
    args_since(
        2,
        |args| args.first().is_some_and(|end| &end[..] == PASSED),
        write("get-expire", "none|MS|at:UNIX-MS", |space, key, args| {
            let old = text_of(space, key)?.cloned();
            let end = End::read(space, one(args)?, || End::Never)?;
            end.set(space, key);
            Ok(old.map_or(Reply::Nil, Reply::Bytes))
        }),
    ),
    Function {
        keys: 1,
        ..write("copy", "to [replace]", |space, key, args| {
            let (to, replaces) = match args {
                [to] => (to, false),
                [to, replace] if &replace[..] == b"replace" => (to, true),
                _ => return Err(Wrong::Arguments),
            };
            let Some(Entry { value, end, .. }) = space.get(key).cloned() else { return Ok(Reply::Int(0)) };
            if key == to || !replaces && space.get(to).is_some() {
                return Ok(Reply::Int(0));
            }
            space.set(to, value, end);
            Ok(Reply::Int(1))
        })
    },
    Function { keys: 1, ..write("rename", "to [nx]", rename) },
    args_since(
        ledger::LEVEL,
        |args| args.first().is_some_and(|kind| matches!(&kind[..], b"ledger" | b"stream")),
        since(4, inner(write("load", "type none|MS|passed token value...", load))),
    ),
];

/// Stores a whole value of any type, whatever was there before.
fn load(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [kind, end, token, values @ ..] = args else { return Err(Wrong::Arguments) };
    let end = End::read(space, end, || End::Never)?;
    let all = || values.iter().cloned();
    let value = match (&kind[..], values) {
        (b"string", [text]) => Value::Text(text.clone()),
        (b"lease", [holder]) => Value::Lease { holder: holder.clone(), token: unsigned(token)? },
        (b"hash", [_, ..]) if values.len().is_multiple_of(2) => {
            let pairs = values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            Value::Hash(Arc::new(pairs.collect()))
        }
        (b"list", [_, ..]) => Value::List(Arc::new(all().collect())),
        (b"set", [_, ..]) => Value::Set(Arc::new(all().collect())),
        (b"zset", [_, ..]) if values.len().is_multiple_of(2) => {
            let scored = |pair: &[Bytes]| Some(Scored { member: pair[0].clone(), score: score::parse(&pair[1])? });
            let items: Option<Vec<_>> = values.chunks_exact(2).map(scored).collect();
            Value::Sorted(Arc::new(items.and_then(Sorted::of).ok_or(Wrong::Arguments)?))
        }
        (b"ledger", [bytes]) => {
            let ledger = Ledger::decode(bytes).ok_or(Wrong::Arguments)?;
            Value::Ledger(Arc::new(ledger.loaded(space.clock())))
        }
        (b"stream", [_, ..]) => Value::Stream(Arc::new(stream::wire::decode(values).ok_or(Wrong::Arguments)?)),
        _ => return Err(Wrong::Arguments),
    };
    if value.bytes() > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    Ok(Reply::Int(end.put(space, key, value) as i64))
}

fn rename(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (to, only_new) = match args {
        [to] => (to, false),
        [to, nx] if &nx[..] == b"nx" => (to, true),
        _ => return Err(Wrong::Arguments),
    };
    if space.get(key).is_none() {
        return Ok(Reply::Nil);
    }
    if only_new && space.get(to).is_some() {
        return Ok(Reply::Int(0));
    }
    let entry = space.remove(key).expect("it was just there");
    space.set(to, entry.value, entry.end);
    Ok(Reply::Int(1))
}

fn text_or_type(entry: &Entry) -> Reply {
    match &entry.value {
        Value::Text(text) => Reply::Bytes(text.clone()),
        _ => Reply::Wrong(Wrong::Type),
    }
}

/// What is left until it ends, milliseconds; -1 if it does not end.
fn left(space: &Space, entry: &Entry) -> i64 {
    if entry.end == 0 { -1 } else { entry.end.saturating_sub(space.shown_clock()).max(1) as i64 }
}

/// What ends so ends by a moment that has passed (`moment.rs`).
pub const PASSED: &[u8] = b"passed";

/// When something ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    Never,
    /// By the group's clock, which is not there yet.
    At(u64),
    /// It has ended: nothing that comes after this finds it, in the same entry or later.
    Passed,
}

impl End {
    /// `none`, where it ends now (`keep`), in so many milliseconds, or `passed`.
    pub(super) fn read(space: &Space, arg: &[u8], now: impl FnOnce() -> Self) -> std::result::Result<Self, Wrong> {
        match arg {
            b"none" => Ok(Self::Never),
            b"keep" => Ok(now()),
            PASSED => Ok(Self::Passed),
            ms => Ok(Self::At(space.clock().saturating_add(unsigned(ms)?.max(1)))),
        }
    }

    fn of(entry: &Entry) -> Self {
        if entry.end == 0 { Self::Never } else { Self::At(entry.end) }
    }

    /// To compare with others. As Redis: no end is later than any.
    fn order(self) -> u64 {
        match self {
            Self::Never => u64::MAX,
            Self::At(end) => end,
            Self::Passed => 0,
        }
    }

    /// What the key holds ends so, if it holds anything.
    fn set(self, space: &mut Space, key: &Bytes) {
        match self {
            Self::Never => {
                space.does("persist");
                space.set_end(key, 0);
            }
            Self::At(end) => space.set_end(key, end),
            Self::Passed => drop(space.remove(key)),
        }
    }

    /// Stores what ends so; the version that the key has then.
    pub(super) fn put(self, space: &mut Space, key: &Bytes, value: Value) -> u64 {
        match self {
            Self::Never => space.set(key, value, 0),
            Self::At(end) => space.set(key, value, end),
            Self::Passed => {
                space.remove(key);
                0
            }
        }
    }
}

/// A condition on the text of a key.
struct Compared<'a> {
    with: &'a [u8],
    /// That is a digest of the text.
    digest: bool,
    differs: bool,
}

fn compared(when: &[u8]) -> Option<Compared<'_>> {
    let words: [(&[u8], bool, bool); 4] = [
        (b"equal:", false, false),
        (b"differs:", false, true),
        (b"digest:", true, false),
        (b"digest-differs:", true, true),
    ];
    let of = |(word, digest, differs)| when.strip_prefix(word).map(|with| Compared { with, digest, differs });
    words.into_iter().find_map(of)
}

/// As the Redis door's DIGEST gives it: XXH3-64, 16 hexadecimal digits.
fn digest_of(text: &[u8]) -> String {
    format!("{:016x}", base::checksum::place_hash(text))
}

fn is_met(space: &Space, key: &[u8], when: &[u8]) -> std::result::Result<bool, Wrong> {
    let entry = || space.get(key);
    match when {
        b"always" => Ok(true),
        b"absent" => Ok(entry().is_none()),
        b"present" => Ok(entry().is_some()),
        _ => {
            if let Some(Compared { with, digest, differs }) = compared(when) {
                let is = |text: &Bytes| if digest { digest_of(text).as_bytes() == with } else { text == with };
                // No text equals nothing, and differs from everything.
                return Ok(text_of(space, key)?.is_some_and(is) != differs);
            }
            let version = when.strip_prefix(b"version:").ok_or(Wrong::Arguments)?;
            Ok(unsigned(version)? == entry().map_or(0, |entry| entry.version))
        }
    }
}

/// Whether it was stored, the old value if `old` is asked for, and the version that the key has now.
fn put(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (value, when, end, wants_old) = match args {
        [value, when, end] => (value, when, end, false),
        [value, when, end, old] if &old[..] == b"old" => (value, when, end, true),
        _ => return Err(Wrong::Arguments),
    };
    let is_kept = &end[..] == b"keep";
    let end = End::read(space, end, || space.get(key).map_or(End::Never, End::of))?;
    if matches!(end, End::At(_)) && !is_kept {
        space.does("put-ending");
    }
    let old = if wants_old { text_of(space, key)?.cloned() } else { None };
    let stored = is_met(space, key, when)?;
    let version = if stored {
        end.put(space, key, Value::Text(value.clone()))
    } else {
        space.get(key).map_or(0, |entry| entry.version)
    };
    Ok(Reply::List(vec![flag(stored), old.map_or(Reply::Nil, Reply::Bytes), Reply::Int(version as i64)]))
}

fn expire(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let (end, when) = two(args)?;
    let end = End::read(space, end, || End::Never)?;
    let Some(old) = space.get(key).map(End::of) else { return Ok(Reply::Int(0)) };
    let ends = matches!(old, End::At(_));
    let may = match &when[..] {
        b"any" => true,
        b"nx" => !ends,
        b"xx" => ends,
        b"gt" => end.order() > old.order(),
        b"lt" => end.order() < old.order(),
        b"xxlt" => ends && end.order() < old.order(),
        _ => return Err(Wrong::Arguments),
    };
    // Taking away an end that is not there changes nothing, and says so.
    let changes = may && (ends || !matches!(end, End::Never));
    if changes {
        end.set(space, key);
    }
    Ok(flag(changes))
}
