//! Hashes: a value that is a map of fields, changed field by field. A session namespace that merges fields can promise
//! what they need: each command reads, changes its fields and writes on the version it read, again if another writer
//! was faster, so that no change of another field is lost. In any other namespace a value is read and written whole.

use std::collections::HashSet;

use bytes::Bytes;
use state::session::doc::{Doc, Form};
use state::session::limits::FIELDS_MAX;
use state::session::{Action, Kind, Lease, Reply as Found, When};

use super::*;
use crate::resp::ops::{Seen, Space};

macro_rules! hash {
    ($name:ident, $arity:literal, $does:ident, $syntax:literal, $summary:literal, $note:literal, $run:expr) => {
        pub static $name: Spec = Spec {
            name: stringify!($name),
            arity: $arity,
            keys: Keys::One,
            does: Does::$does,
            syntax: $syntax,
            summary: $summary,
            note: $note,
            run: |call| in_merging(call, $run),
        };
    };
}

hash!(
    HSET,
    -4,
    Write,
    "key field value [field value ...]",
    "sets fields of a hash; how many are new",
    "only where merge = \"fields\"; a hash that is new has the namespace's default lease",
    |call| set(call, Reply::Int)
);
hash!(
    HMSET,
    -4,
    Write,
    "key field value [field value ...]",
    "HSET that answers OK",
    "only where merge = \"fields\"",
    |call| set(call, |_| Reply::OK)
);
hash!(
    HSETNX,
    4,
    Write,
    "key field value",
    "sets a field that is not there: 1 if it was set, else 0",
    "only where merge = \"fields\"",
    |call| {
        let (field, value) = (call.command.value(2), call.command.value(3));
        change(call, move |hash| match hash.get(&field) {
            Some(_) => Ok((false, Reply::Int(0))),
            None => Ok((hash.set(field.clone(), value.clone()), Reply::Int(1))),
        })
    }
);
hash!(
    HDEL,
    -3,
    Write,
    "key field [field ...]",
    "removes fields; how many there were",
    "only where merge = \"fields\"",
    |call| {
        let fields: Vec<Bytes> = (2..call.command.len()).map(|at| call.command.value(at)).collect();
        change(call, move |hash| {
            let removed = fields.iter().filter(|field| hash.remove(field).is_some()).count();
            Ok((removed > 0, Reply::Int(removed as i64)))
        })
    }
);
hash!(HGET, 3, Read, "key field", "the value of a field, or nil", "only where merge = \"fields\"", |call| {
    let field = call.command.value(2);
    look(call, move |hash| hash.get(&field).map_or(Reply::Nil, |value| Reply::Bulk(value.clone())))
});
hash!(
    HMGET,
    -3,
    Read,
    "key field [field ...]",
    "values of fields, nil where there is none",
    "only where merge = \"fields\"",
    |call| {
        let fields: Vec<Bytes> = (2..call.command.len()).map(|at| call.command.value(at)).collect();
        look(call, move |hash| {
            Reply::List(fields.iter().map(|f| hash.get(f).map_or(Reply::Nil, |v| Reply::Bulk(v.clone()))).collect())
        })
    }
);
hash!(HGETALL, 2, Read, "key", "all fields and their values", "only where merge = \"fields\"", |call| {
    look(call, |hash| {
        Reply::Map(hash.fields().iter().map(|(f, v)| (Reply::Bulk(f.clone()), Reply::Bulk(v.clone()))).collect())
    })
});
hash!(HKEYS, 2, Read, "key", "names of all fields", "only where merge = \"fields\"", |call| {
    look(call, |hash| Reply::List(hash.fields().iter().map(|(field, _)| Reply::Bulk(field.clone())).collect()))
});
hash!(HVALS, 2, Read, "key", "values of all fields", "only where merge = \"fields\"", |call| {
    look(call, |hash| Reply::List(hash.fields().iter().map(|(_, value)| Reply::Bulk(value.clone())).collect()))
});
hash!(HLEN, 2, Read, "key", "how many fields there are", "only where merge = \"fields\"", |call| {
    look(call, |hash| Reply::Int(hash.len() as i64))
});
hash!(HEXISTS, 3, Read, "key field", "1 if there is the field, else 0", "only where merge = \"fields\"", |call| {
    let field = call.command.value(2);
    look(call, move |hash| Reply::Int(hash.get(&field).is_some().into()))
});

fn in_merging(call: &mut Call<'_>, run: fn(&mut Call<'_>) -> Act) -> Act {
    if call.merges() {
        return run(call);
    }
    let name = String::from_utf8_lossy(call.command.arg(0)).to_uppercase();
    Act::Now(Reply::Error(format!(
        "ERR '{name}' is not offered by class session unless the namespace declares merge = \"fields\"; without it {}",
        refused::WHOLE
    )))
}

fn hash_of(seen: &Seen) -> Result<Doc, Reply> {
    let hash = if seen.kind == Kind::Hash { Doc::hash(&seen.value) } else { None };
    hash.ok_or_else(ops::wrong_type)
}

/// A hash that is not there has no fields.
fn look(call: &mut Call<'_>, reply: impl FnOnce(Doc) -> Reply + 'static) -> Act {
    let (space, key) = (call.space(), call.command.key(1));
    Call::later(async move {
        let hash = match space.see(key).await {
            Ok(Some(seen)) => hash_of(&seen),
            Ok(None) => Ok(Doc::new(Form::Hash)),
            Err(error) => Err(error),
        };
        hash.map_or_else(|error| error, reply)
    })
}

fn set(call: &mut Call<'_>, reply: fn(i64) -> Reply) -> Act {
    let command = call.command;
    if !command.len().is_multiple_of(2) {
        return Act::Now(wrong_arity(&String::from_utf8_lossy(command.arg(0)).to_uppercase()));
    }
    // The last value of a field that is given twice is the one that stays.
    let mut seen = HashSet::new();
    let mut pairs: Vec<usize> =
        (2..command.len()).step_by(2).rev().filter(|&at| seen.insert(command.arg(at))).collect();
    pairs.reverse();
    let pairs: Vec<_> = pairs.into_iter().map(|at| (command.value(at), command.value(at + 1))).collect();
    change(call, move |hash| {
        let new = pairs.iter().filter(|(field, value)| hash.set(field.clone(), value.clone())).count();
        if hash.len() > FIELDS_MAX {
            return Err(Reply::Error(format!(
                "ERR a hash may have {FIELDS_MAX} fields; this one would have {}",
                hash.len()
            )));
        }
        Ok((true, reply(new as i64)))
    })
}

/// Changes a hash and says what to answer, and whether there is anything to write.
type Change<'a> = &'a dyn Fn(&mut Doc) -> Result<(bool, Reply), Reply>;

fn change(call: &mut Call<'_>, how: impl Fn(&mut Doc) -> Result<(bool, Reply), Reply> + 'static) -> Act {
    let (space, key) = (call.space(), call.command.key(1));
    Call::later(async move { space.try_until(|| change_once(&space, &key, &how)).await })
}

async fn change_once(space: &Space, key: &Bytes, how: Change<'_>) -> Result<Option<Reply>, Reply> {
    let seen = space.see(key.clone()).await?;
    let mut hash = seen.as_ref().map_or_else(|| Ok(Doc::new(Form::Hash)), hash_of)?;
    let (changed, reply) = how(&mut hash)?;
    if !changed {
        return Ok(Some(reply));
    }
    let fields = (hash.write(), Kind::Hash);
    let op = match seen {
        // As in Redis: a hash without fields is not there.
        Some(seen) if hash.is_empty() => space.op(key.clone(), Action::RemoveIf { version: seen.version }),
        Some(seen) => space.put_kind(key.clone(), fields, Lease::Keep, When::Version(seen.version)),
        None => space.put_kind(key.clone(), fields, Lease::Default, When::Absent),
    };
    match ops::done(space.ask(op).await)? {
        Found::Stored { .. } | Found::Removed(true) => Ok(Some(reply)),
        Found::NotStored { .. } | Found::Removed(false) => Ok(None),
        other => ops::odd(&other),
    }
}
