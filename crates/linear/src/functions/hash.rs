//! Hashes: fields and their values.

use std::sync::Arc;

use super::number::sum;
use super::*;
use crate::hash::{Fields, Hash};
use crate::value::ITEM_BYTES;

pub const ALL: &[Function] = &[
    read("hash.get", "field", |space, key, args| {
        let field = one(args)?;
        Ok(of(space, key)?.and_then(|map| map.get(field)).map_or(Reply::Nil, |value| Reply::Bytes(value.clone())))
    }),
    read("hash.get-many", "field...", |space, key, args| {
        let map = of(space, key)?;
        let value =
            |field: &Bytes| map.and_then(|map| map.get(field)).map_or(Reply::Nil, |value| Reply::Bytes(value.clone()));
        Ok(Reply::List(args.iter().map(value).collect()))
    }),
    read("hash.all", "", |space, key, args| {
        list(space, key, args, |field, value| vec![Reply::Bytes(field.clone()), Reply::Bytes(value.clone())])
    }),
    read("hash.fields", "", |space, key, args| list(space, key, args, |field, _| vec![Reply::Bytes(field.clone())])),
    read("hash.values", "", |space, key, args| list(space, key, args, |_, value| vec![Reply::Bytes(value.clone())])),
    read("hash.length", "", |space, key, args| {
        none(args).and_then(|()| Ok(count(of(space, key)?.map_or(0, Fields::len))))
    }),
    read("hash.has", "field", |space, key, args| {
        let field = one(args)?;
        Ok(flag(of(space, key)?.is_some_and(|map| map.has(field))))
    }),
    read("hash.scan", "first|after field count", |space, key, args| {
        let (from, count) = page(args)?;
        let found = of(space, key)?.into_iter().flat_map(|map| map.from(from));
        let pair = |(field, value): (&Bytes, &Bytes)| [Reply::Bytes(field.clone()), Reply::Bytes(value.clone())];
        Ok(Reply::List(found.take(count).flat_map(pair).collect()))
    }),
    since(
        2,
        read("hash.random", "NUMBER count [again]", |space, key, args| {
            let Some(map) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
            let pair = |(field, value): (&Bytes, &Bytes)| [Reply::Bytes(field.clone()), Reply::Bytes(value.clone())];
            Ok(Reply::List(at_places(map.iter(), &drawn(args, map.len())?).into_iter().flat_map(pair).collect()))
        }),
    ),
    since(
        2,
        write("hash.take", "field...", |space, key, args| {
            some(args)?;
            let map = of(space, key)?;
            let (mut seen, mut taken) = (BTreeSet::new(), Vec::with_capacity(args.len()));
            for field in args {
                // One that stands twice is gone the second time.
                let value = map.and_then(|map| map.get(field)).filter(|_| seen.insert(field));
                taken.push(value.map_or(Reply::Nil, |value| Reply::Bytes(value.clone())));
            }
            if taken.iter().any(|value| *value != Reply::Nil) {
                remove(space, key, args)?;
            }
            Ok(Reply::List(taken))
        }),
    ),
    write("hash.set", "field value ...", |space, key, args| {
        if args.is_empty() || !args.len().is_multiple_of(2) {
            return Err(Wrong::Arguments);
        }
        of(space, key)?;
        let more = args.iter().map(|arg| arg.len() + ITEM_BYTES).sum();
        change(space, key, more, |hash, clock| {
            let new = args.chunks_exact(2).filter(|pair| hash.set(&pair[0], pair[1].clone(), clock));
            count(new.count())
        })
    }),
    write("hash.set-new", "field value", |space, key, args| {
        let (field, value) = two(args)?;
        if of(space, key)?.is_some_and(|map| map.has(field)) {
            return Ok(Reply::Int(0));
        }
        change(space, key, field.len() + value.len() + ITEM_BYTES, |hash, clock| {
            hash.set(field, value.clone(), clock);
            Reply::Int(1)
        })
    }),
    write("hash.remove", "field...", |space, key, args| {
        some(args)?;
        if of(space, key)?.is_none_or(|map| !args.iter().any(|field| map.has(field))) {
            return Ok(Reply::Int(0));
        }
        remove(space, key, args)
    }),
    weak(
        sum_of_both,
        write("hash.add", "field delta", |space, key, args| {
            let (field, delta) = two(args)?;
            let delta = integer(delta)?;
            let now = of(space, key)?.and_then(|map| map.get(field)).map_or(Ok(0), |text| integer(text))?;
            let sum = now.checked_add(delta).ok_or(Wrong::Overflow)?;
            change(space, key, field.len() + 32 + ITEM_BYTES, |hash, clock| {
                hash.set_keeping_end(field, sum.to_string().into(), clock);
                Reply::Int(sum)
            })
        }),
    ),
    write("hash.add-float", "field delta", |space, key, args| {
        let (field, delta) = two(args)?;
        let now = of(space, key)?.and_then(|map| map.get(field)).map_or(&b"0"[..], |text| text);
        let sum = sum(now, delta)?;
        change(space, key, field.len() + sum.len() + ITEM_BYTES, |hash, clock| {
            hash.set_keeping_end(field, sum.clone(), clock);
            Reply::Bytes(sum)
        })
    }),
];

/// Those that have not ended.
pub(super) fn of<'a>(space: &'a Space, key: &[u8]) -> std::result::Result<Option<Fields<'a>>, Wrong> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Hash(hash)) => Ok(Some(hash.at(space.clock()))),
        Some(_) => Err(Wrong::Type),
    }
}

pub(super) fn remove(space: &mut Space, key: &Bytes, fields: &[Bytes]) -> Result {
    change(space, key, 0, |hash, clock| {
        count(fields.iter().filter(|field| hash.remove(field, clock).is_some()).count())
    })
}

fn list(space: &Space, key: &[u8], args: &[Bytes], each: fn(&Bytes, &Bytes) -> Vec<Reply>) -> Result {
    none(args)?;
    Ok(Reply::List(
        of(space, key)?.into_iter().flat_map(Fields::iter).flat_map(|(field, value)| each(field, value)).collect(),
    ))
}

/// Changes a hash at this moment of the group's clock.
pub(super) fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Hash, u64) -> Reply) -> Result {
    let clock = space.clock();
    space.change(key, Value::Hash(Arc::default()), more, |value, size| match value {
        Value::Hash(hash) => {
            let hash = Arc::make_mut(hash);
            let reply = act(hash, clock);
            *size = hash.bytes();
            Ok(reply)
        }
        _ => Err(Wrong::Type),
    })
}
