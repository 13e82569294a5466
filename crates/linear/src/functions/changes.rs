//! What has changed since a version, for those who watch. With `wait` the leader answers when there is something, or
//! after a while (`watchers.rs`). `now+by` and `wait+by` ask for the function behind each change, too.

use super::*;
use crate::history::{Change, What};
use crate::limits::{KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_CHANGES_MAX};

/// The level from which a change says which function made it (`base/src/level.rs`).
const BY_LEVEL: u32 = 8;

const fn waits(function: Function) -> Function {
    args_since(BY_LEVEL, |args| args.get(1).is_some_and(|how| how.ends_with(BY)), Function { waits: true, ..function })
}

/// Behind `now` or `wait`.
const BY: &[u8] = b"+by";

pub const ALL: &[Function] = &[
    waits(read("changes", "VERSION|- now|wait|now+by|wait+by", |space, key, args| changes(space, key, true, args))),
    waits(Function {
        whole: true,
        ..read("changes.prefix", "VERSION|- now|wait|now+by|wait+by prefix", |space, _, args| match args {
            [rest @ .., prefix] => changes(space, prefix, false, rest),
            [] => Err(Wrong::Arguments),
        })
    }),
];

/// `[version, [[version, key, type | removed | ended | cleared, text or nil] ...]]`, with `+by` the function behind each
/// text (empty: its time had come): ask again after that version. If some changes since are gone, or the version has never
/// been: `[version of now, nil, oldest version to ask after]`.
fn changes(space: &Space, prefix: &Bytes, only: bool, args: &[Bytes]) -> Result {
    let (after, how) = two(args)?;
    let (how, by) = how.strip_suffix(BY).map_or((&how[..], false), |how| (how, true));
    if prefix.len() > KEY_BYTES_MAX || ![&b"now"[..], b"wait"].contains(&how) {
        return Err(Wrong::Arguments);
    }
    let now = space.revision();
    let after = if &after[..] == b"-" { now } else { unsigned(after)? };
    let found = space.history().after(after).filter(|_| after <= now);
    let Some(found) = found else {
        return Ok(Reply::List(vec![Reply::Int(now as i64), Reply::Nil, Reply::Int(space.history().since() as i64)]));
    };
    let is_wanted = |change: &&Change| change.is_of(prefix) && (!only || change.key == *prefix || change.is_of_all());
    let (mut page, mut bytes, mut upto) = (Vec::new(), 0, now);
    for change in found.filter(is_wanted) {
        let shown = shown(change, by);
        if page.len() >= PAGE_CHANGES_MAX || (bytes > 0 && bytes + shown.bytes() > PAGE_BYTES_MAX) {
            // The next page begins behind the last change of this one.
            return Ok(Reply::List(vec![Reply::Int(upto as i64), Reply::List(page)]));
        }
        bytes += shown.bytes();
        upto = change.version;
        page.push(shown);
    }
    Ok(Reply::List(vec![Reply::Int(now as i64), Reply::List(page)]))
}

fn shown(change: &Change, by: bool) -> Reply {
    let text = match &change.what {
        What::Put { text: Some(text), .. } => Reply::Bytes(text.clone()),
        What::Put { .. } | What::Removed | What::Ended | What::Cleared => Reply::Nil,
    };
    let name = Bytes::from_static(change.what.name().as_bytes());
    let mut parts = vec![Reply::Int(change.version as i64), Reply::Bytes(change.key.clone()), Reply::Bytes(name), text];
    if by {
        parts.push(Reply::Bytes(Bytes::from_static(change.by.as_bytes())));
    }
    Reply::List(parts)
}

/// May the leader wait before it answers this?
pub fn may_wait(steps: &[Step]) -> bool {
    match steps {
        [Step { function, args, .. }] => {
            find(function).is_some_and(|function| function.waits)
                && args.get(1).is_some_and(|how| how.starts_with(b"wait"))
        }
        _ => false,
    }
}

/// In an answer to `changes`: is there nothing that is worth an answer?
pub fn is_quiet(reply: &Reply) -> bool {
    matches!(reply, Reply::List(parts) if matches!(&parts[..], [Reply::Int(_), Reply::List(page)] if page.is_empty()))
}
