//! Sets. Members come in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::linear::value::ITEM_BYTES;

type Members = BTreeSet<Bytes>;

pub const ALL: &[Function] = &[
    read("set.length", "", |space, key, args| {
        none(args).and_then(|()| Ok(count(of(space, key)?.map_or(0, Members::len))))
    }),
    read("set.has", "member...", |space, key, args| {
        let set = of(space, key)?;
        Ok(Reply::List(args.iter().map(|member| flag(set.is_some_and(|set| set.contains(member)))).collect()))
    }),
    read("set.members", "", |space, key, args| {
        none(args)?;
        Ok(Reply::List(of(space, key)?.into_iter().flatten().cloned().map(Reply::Bytes).collect()))
    }),
    write("set.add", "member...", |space, key, args| {
        some(args)?;
        if of(space, key)?.is_some_and(|set| args.iter().all(|member| set.contains(member))) {
            return Ok(Reply::Int(0));
        }
        let more = args.iter().map(|member| member.len() + ITEM_BYTES).sum();
        change(space, key, more, |set, size| {
            let mut new = 0;
            for member in args {
                if set.insert(member.clone()) {
                    *size += member.len() + ITEM_BYTES;
                    new += 1;
                }
            }
            count(new)
        })
    }),
    write("set.remove", "member...", |space, key, args| {
        some(args)?;
        if of(space, key)?.is_none_or(|set| !args.iter().any(|member| set.contains(member))) {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |set, size| {
            let gone: Vec<_> = args.iter().filter(|member| set.remove(*member)).collect();
            *size -= gone.iter().map(|member| member.len() + ITEM_BYTES).sum::<usize>();
            count(gone.len())
        })
    }),
];

fn of<'a>(space: &'a Space, key: &[u8]) -> std::result::Result<Option<&'a Members>, Wrong> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Set(set)) => Ok(Some(set)),
        Some(_) => Err(Wrong::Type),
    }
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Members, &mut usize) -> Reply) -> Result {
    space.change(key, Value::Set(Arc::default()), more, |value, size| match value {
        Value::Set(set) => Ok(act(Arc::make_mut(set), size)),
        _ => Err(Wrong::Type),
    })
}
