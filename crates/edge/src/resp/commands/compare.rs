//! Writes that happen only while a value is what the client believes it to be, as Redis 8.4 has them: IFEQ, IFNE and,
//! by a digest in place of the value, IFDEQ and IFDNE.

use base::checksum::place_hash;
use bytes::Bytes;
use state::session::doc::Doc;
use state::session::merge::take_mark;
use state::session::{Action, Reply as Found, When};

use super::write::Ends;
use super::*;
use crate::resp::ops::{Seen, Space};

pub static DIGEST: Spec = Spec {
    name: "DIGEST",
    arity: 2,
    keys: Keys::One,
    does: Does::Read,
    syntax: "key",
    summary: "XXH3-64 of a value as 16 hexadecimal digits, or nil: for IFDEQ and IFDNE",
    note: "with merge = \"fields\" it is of the document without its mark: ask for it, do not compute it",
    run: |call| {
        let (space, key, merges) = (call.space(), call.command.key(1), call.merges());
        Call::later(async move {
            match space.see_text(key).await {
                Ok(Some(seen)) => Reply::text(digest(&without_mark(seen.value, merges))),
                Ok(None) => Reply::Nil,
                Err(error) => error,
            }
        })
    },
};

pub static DELEX: Spec = Spec {
    name: "DELEX",
    arity: -2,
    keys: Keys::One,
    does: Does::Write,
    syntax: "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
    summary: "removes a value if the condition holds: 1 if it was removed, else 0",
    note: "",
    run: |call| {
        let (space, key, merges) = (call.space(), call.command.key(1), call.merges());
        let compare = match call.command.len() {
            2 => return (many::DEL.run)(call),
            4 => match Compare::read(call.command, 2) {
                Some(Ok(compare)) => compare,
                Some(Err(error)) => return Act::Now(error),
                None => return syntax_error(),
            },
            _ => return syntax_error(),
        };
        Call::later(async move {
            let end = space.try_until(|| async {
                let Some(seen) = space.see_text(key.clone()).await? else { return Ok(Some(Reply::Int(0))) };
                if !compare.holds(Some(&seen), merges) {
                    return Ok(Some(Reply::Int(0)));
                }
                let remove = space.op(key.clone(), Action::RemoveIf { version: seen.version });
                match ops::done(space.ask(remove).await)? {
                    Found::Removed(there) => Ok(Some(Reply::Int(there.into()))),
                    Found::NotStored { .. } => Ok(None),
                    other => ops::odd(&other),
                }
            });
            end.await
        })
    },
};

/// What a value is compared with.
#[derive(Clone, Debug)]
pub struct Compare {
    with: With,
    /// It must differ.
    not: bool,
}

#[derive(Clone, Debug)]
enum With {
    Value(Bytes),
    Digest(String),
}

impl Compare {
    /// The condition that begins at argument `at`, if there is one; it has two arguments.
    pub fn read(command: &Command, at: usize) -> Option<Result<Self, Reply>> {
        let words = [("IFEQ", false, false), ("IFNE", true, false), ("IFDEQ", false, true), ("IFDNE", true, true)];
        let (_, not, digest) = words.into_iter().find(|(word, ..)| is(command.arg(at), word))?;
        if at + 1 >= command.len() {
            return Some(Err(Reply::error("ERR syntax error")));
        }
        if !digest {
            return Some(Ok(Self { with: With::Value(command.value(at + 1)), not }));
        }
        let text = String::from_utf8_lossy(command.arg(at + 1)).to_lowercase();
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(Err(Reply::error("ERR a digest is 16 hexadecimal digits, as DIGEST gives them")));
        }
        Some(Ok(Self { with: With::Digest(text), not }))
    }

    /// As functions of class `linear` take it.
    pub fn condition(&self) -> Bytes {
        let (word, with) = match &self.with {
            With::Value(value) => (if self.not { "differs:" } else { "equal:" }, &value[..]),
            With::Digest(digest) => (if self.not { "digest-differs:" } else { "digest:" }, digest.as_bytes()),
        };
        [word.as_bytes(), with].concat().into()
    }

    /// No value equals nothing, and differs from everything.
    fn holds(&self, seen: Option<&Seen>, merges: bool) -> bool {
        let Some(seen) = seen else { return self.not };
        let value = without_mark(seen.value.clone(), merges);
        let same = match &self.with {
            With::Value(wanted) => without_mark(wanted.clone(), merges) == value,
            With::Digest(wanted) => *wanted == digest(&value),
        };
        same != self.not
    }
}

/// SET with such a condition: OK or nil, or with GET the value that was there.
pub async fn set(
    space: Space,
    key: Bytes,
    value: Bytes,
    ends: Ends,
    compare: Compare,
    get: bool,
    merges: bool,
) -> Reply {
    let end = space.try_until(|| async {
        let seen = space.see_text(key.clone()).await?;
        let old = |seen: Option<Seen>| seen.map_or(Reply::Nil, |seen| Reply::Bulk(seen.value));
        if !compare.holds(seen.as_ref(), merges) {
            return Ok(Some(if get { old(seen) } else { Reply::Nil }));
        }
        let op = match (ends, &seen) {
            (Ends::By(lease), seen) => {
                let when = seen.as_ref().map_or(When::Absent, |seen| When::Version(seen.version));
                space.put(key.clone(), value.clone(), lease, when, false)
            }
            (Ends::Now, Some(seen)) => space.op(key.clone(), Action::RemoveIf { version: seen.version }),
            // It would be over before anybody could see it.
            (Ends::Now, None) => return Ok(Some(if get { Reply::Nil } else { Reply::OK })),
        };
        match ops::done(space.ask(op).await)? {
            // What another one has removed meanwhile is not there either.
            Found::Stored { .. } | Found::Removed(_) => Ok(Some(if get { old(seen) } else { Reply::OK })),
            Found::NotStored { .. } => Ok(None),
            other => ops::odd(&other),
        }
    });
    end.await
}

/// A document as it is stored: what a client has read carries a mark, of which no two are alike.
fn without_mark(value: Bytes, merges: bool) -> Bytes {
    match Doc::parse(&value).filter(|_| merges) {
        Some(mut doc) => {
            // Whether it had one, or a wrong one, makes no difference to what is compared.
            let _ = take_mark(&mut doc);
            doc.write()
        }
        None => value,
    }
}

pub fn digest(value: &[u8]) -> String {
    format!("{:016x}", place_hash(value))
}
