//! Functions about all keys.

use super::*;
use crate::dump;
use crate::limits::{ANSWER_BYTES_MAX, SCAN_KEYS_MAX, VERSION_LOADED_MAX};
use crate::queue;
use crate::score;
use crate::stream;
use crate::value::Entry;

const fn whole(merge: Merge, function: Function) -> Function {
    Function { whole: true, merge, ..function }
}

pub const ALL: &[Function] = &[
    whole(Merge::Sum, read("count", "", |space, _, args| none(args).map(|()| count(space.len())))),
    since(2, whole(Merge::Sum, read("count.ending", "", |space, _, args| none(args).map(|()| count(space.ending()))))),
    whole(
        Merge::Chance,
        read("random", "NUMBER", |space, _, args| {
            let at = unsigned(one(args)?)?.checked_rem(space.len() as u64);
            // One whose time has come is passed over.
            let from = at.and_then(|at| space.map().nth(at as usize));
            let found = from.and_then(|from| {
                let is_there = |(_, entry): &&(Bytes, Entry)| !space.is_over(entry);
                space.map().from(from).find(is_there).or_else(|| space.map().from(b"").find(is_there))
            });
            Ok(found.map_or(Reply::Nil, |(key, _)| Reply::Bytes(key.clone())))
        }),
    ),
    whole(Merge::List, read("revision", "", |space, _, args| none(args).map(|()| Reply::Int(space.revision() as i64)))),
    whole(
        Merge::Sum,
        write("clear", "", |space, _, args| {
            none(args)?;
            Ok(count(space.clear()))
        }),
    ),
    // All of a shard, page by page, each of the same moment (`group/dumps.rs`).
    since(4, inner(whole(Merge::List, read("dump", "id first|after key bytes", dump)))),
    // Versions go on above this one, as those of what is loaded did.
    since(
        4,
        inner(whole(
            Merge::Most,
            write("versions.above", "version", |space, _, args| {
                let version = unsigned(one(args)?)?;
                if version > VERSION_LOADED_MAX {
                    return Err(Wrong::Arguments);
                }
                space.rise(version);
                Ok(Reply::Int(space.revision() as i64))
            }),
        )),
    ),
    whole(Merge::Pages, read("scan", "prefix after|- limit forward|reverse [values|types]", scan)),
];

/// What a scan says of each key.
enum With {
    Nothing,
    Values,
    Types,
}

/// Keys with the prefix, in order, from the one behind `after` on; with `values`, each followed by its text (or nil) and
/// version, with `types` by its type. An answer with fewer than the limit, unless it is full, is the last page.
fn scan(space: &Space, _: &Bytes, args: &[Bytes]) -> Result {
    let (prefix, after, limit, order, with) = match args {
        [prefix, after, limit, order] => (prefix, after, limit, order, With::Nothing),
        [prefix, after, limit, order, with] => {
            let with = match &with[..] {
                b"values" => With::Values,
                b"types" => With::Types,
                _ => return Err(Wrong::Arguments),
            };
            (prefix, after, limit, order, with)
        }
        _ => return Err(Wrong::Arguments),
    };
    let limit = unsigned(limit)?.min(SCAN_KEYS_MAX) as usize;
    let (mut out, mut keys, mut bytes) = (Vec::new(), 0, 0);
    let mut take = |(key, entry): &(Bytes, Entry)| {
        if !key.starts_with(prefix) || keys >= limit || bytes > ANSWER_BYTES_MAX / 2 {
            return false;
        }
        if space.is_over(entry) || key == after {
            return true;
        }
        keys += 1;
        bytes += key.len();
        out.push(Reply::Bytes(key.clone()));
        match with {
            With::Nothing => (),
            With::Types => out.push(Reply::Bytes(Bytes::from_static(entry.value.type_name().as_bytes()))),
            With::Values => {
                out.push(match &entry.value {
                    Value::Text(text) => {
                        bytes += text.len();
                        Reply::Bytes(text.clone())
                    }
                    _ => Reply::Nil,
                });
                out.push(Reply::Int(entry.version as i64));
            }
        }
        true
    };
    match &order[..] {
        b"forward" => {
            let from = after.max(prefix);
            space.map().from(from).all(&mut take);
        }
        b"reverse" => {
            let end = if after.is_empty() { past(prefix) } else { Some(after.to_vec()) };
            space.map().back_from(end.as_deref()).all(&mut take);
        }
        _ => return Err(Wrong::Arguments),
    }
    Ok(Reply::List(out))
}

/// Version and clock of the shard, the last key of the page (nil: there are no more), and of each key: itself, its type,
/// what is left until it ends (-1: it does not), its token, and all that it holds.
fn dump(space: &Space, _: &Bytes, args: &[Bytes]) -> Result {
    let [_, how, after, bytes_max] = args else { return Err(Wrong::Arguments) };
    let (is_first, bytes_max) = (&how[..] == b"first", unsigned(bytes_max)? as usize);
    let (mut page, mut bytes, mut last) = (Vec::new(), 0, Reply::Nil);
    let is_next = |(key, entry): &&(Bytes, Entry)| (is_first || key != after) && !space.is_over(entry);
    let mut all = space.map().from(if is_first { b"" } else { after }).filter(is_next).peekable();
    while let Some((key, entry)) = all.next() {
        bytes += key.len() + entry.size;
        page.push(dumped(space, key, entry));
        if all.peek().is_some_and(|(key, entry)| bytes + key.len() + entry.size > bytes_max) {
            last = Reply::Bytes(key.clone());
            break;
        }
    }
    let (version, clock) = (space.revision() as i64, space.shown_clock() as i64);
    Ok(Reply::List(vec![Reply::Int(version), Reply::Int(clock), last, Reply::List(page)]))
}

fn dumped(space: &Space, key: &Bytes, entry: &Entry) -> Reply {
    let left = if entry.end == 0 { -1 } else { entry.end.saturating_sub(space.shown_clock()).max(1) as i64 };
    let token = if let Value::Lease { token, .. } = &entry.value { *token as i64 } else { 0 };
    let kind = match &entry.value {
        Value::Hash(hash) if hash.has_ends() => dump::HASH_ENDING,
        other => other.type_name(),
    };
    let kind = Bytes::from_static(kind.as_bytes());
    let mut all = vec![Reply::Bytes(key.clone()), Reply::Bytes(kind), Reply::Int(left), Reply::Int(token)];
    let bytes = |bytes: &Bytes| Reply::Bytes(bytes.clone());
    match &entry.value {
        Value::Text(text) => all.push(bytes(text)),
        // Of each field what is left until it ends, and nothing if it does not.
        Value::Hash(hash) if hash.has_ends() => {
            let left = |end: u64| match end {
                0 => Reply::Bytes(Bytes::new()),
                end => Reply::Bytes(end.saturating_sub(space.shown_clock()).max(1).to_string().into()),
            };
            let fields = hash.at(space.clock()).with_ends();
            all.extend(fields.flat_map(|(field, value, end)| [bytes(field), bytes(value), left(end)]));
        }
        Value::Hash(hash) => {
            all.extend(hash.at(space.clock()).iter().flat_map(|(field, value)| [bytes(field), bytes(value)]));
        }
        Value::List(items) => all.extend(items.iter().map(bytes)),
        Value::Set(members) => all.extend(members.iter().map(bytes)),
        Value::Sorted(sorted) => all.extend(
            sorted
                .items(0..sorted.len())
                .flat_map(|item| [bytes(&item.member), Reply::Bytes(score::shown(item.score).into())]),
        ),
        Value::Ledger(ledger) => all.push(Reply::Bytes(ledger.encode())),
        Value::Stream(stream) => all.extend(stream::wire::encode(stream).into_iter().map(Reply::Bytes)),
        Value::Queue(queue) => {
            let texts = queue::wire::encode(queue, space.shown_clock());
            all.extend(texts.into_iter().map(Reply::Bytes));
        }
        Value::Lease { holder, .. } => all.push(bytes(holder)),
    }
    Reply::List(all)
}

/// The least key above all that have this prefix; none if there is no such key.
fn past(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut past = prefix[..=last].to_vec();
    past[last] += 1;
    Some(past)
}
