//! Functions about all keys.

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, SCAN_KEYS_MAX};
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

/// The least key above all that have this prefix; none if there is no such key.
fn past(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut past = prefix[..=last].to_vec();
    past[last] += 1;
    Some(past)
}
