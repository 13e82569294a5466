//! Sets. Members come in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::linear::value::ITEM_BYTES;

type Members = BTreeSet<Bytes>;

/// A function of the sets of several keys.
macro_rules! several {
    ($act:expr) => {
        |space, key, args| {
            let act: fn(Vec<Option<&Members>>) -> Members = $act;
            let sets = std::iter::once(key).chain(args).map(|key| of(space, key));
            let members = act(sets.collect::<std::result::Result<_, _>>()?);
            Ok(Reply::List(members.into_iter().map(Reply::Bytes).collect()))
        }
    };
}

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
    read("set.scan", "first|after member count", |space, key, args| {
        let (from, count) = page(args)?;
        let found = of(space, key)?.into_iter().flat_map(|set| set.range::<[u8], _>((from, Bound::Unbounded)));
        Ok(Reply::List(found.take(count).cloned().map(Reply::Bytes).collect()))
    }),
    read("set.random", "NUMBER count", |space, key, args| {
        let chosen = of(space, key)?.map_or(Ok(Vec::new()), |set| choose(set, args))?;
        Ok(Reply::List(chosen.into_iter().map(Reply::Bytes).collect()))
    }),
    Function {
        keys: usize::MAX,
        ..read("set.union", "key...", several!(|sets| sets.into_iter().flatten().flatten().cloned().collect()))
    },
    Function {
        keys: usize::MAX,
        ..read(
            "set.inter",
            "key...",
            several!(|sets| {
                let Some(Some(first)) = sets.first() else { return Members::new() };
                let in_all = |member: &&Bytes| sets.iter().all(|set| set.is_some_and(|set| set.contains(*member)));
                first.iter().filter(in_all).cloned().collect()
            }),
        )
    },
    Function {
        keys: usize::MAX,
        ..read(
            "set.diff",
            "key...",
            several!(|sets| {
                let Some(Some(first)) = sets.first() else { return Members::new() };
                let in_others = |member: &&Bytes| sets[1..].iter().flatten().any(|set| set.contains(*member));
                first.iter().filter(|member| !in_others(member)).cloned().collect()
            }),
        )
    },
    write("set.pop", "NUMBER count", |space, key, args| {
        let chosen = of(space, key)?.map_or(Ok(Vec::new()), |set| choose(set, args))?;
        if !chosen.is_empty() {
            remove(space, key, &chosen)?;
        }
        Ok(Reply::List(chosen.into_iter().map(Reply::Bytes).collect()))
    }),
    Function {
        keys: 1,
        ..write("set.move", "to member", |space, key, args| {
            let (to, member) = two(args)?;
            of(space, to)?;
            if of(space, key)?.is_none_or(|set| !set.contains(member)) {
                return Ok(Reply::Int(0));
            }
            if key != to {
                add(space, to, std::slice::from_ref(member))?;
                remove(space, key, std::slice::from_ref(member))?;
            }
            Ok(Reply::Int(1))
        })
    },
    weak(
        items_of_both,
        write("set.add", "member...", |space, key, args| {
            some(args)?;
            if of(space, key)?.is_some_and(|set| args.iter().all(|member| set.contains(member))) {
                return Ok(Reply::Int(0));
            }
            add(space, key, args)
        }),
    ),
    weak(
        items_of_both,
        write("set.remove", "member...", |space, key, args| {
            some(args)?;
            if of(space, key)?.is_none_or(|set| !args.iter().any(|member| set.contains(member))) {
                return Ok(Reply::Int(0));
            }
            remove(space, key, args)
        }),
    ),
];

fn add(space: &mut Space, key: &Bytes, members: &[Bytes]) -> Result {
    let more = members.iter().map(|member| member.len() + ITEM_BYTES).sum();
    change(space, key, more, |set, size| {
        let mut new = 0;
        for member in members {
            if set.insert(member.clone()) {
                *size += member.len() + ITEM_BYTES;
                new += 1;
            }
        }
        count(new)
    })
}

fn remove(space: &mut Space, key: &Bytes, members: &[Bytes]) -> Result {
    change(space, key, 0, |set, size| {
        let gone: Vec<_> = members.iter().filter(|member| set.remove(*member)).collect();
        *size -= gone.iter().map(|member| member.len() + ITEM_BYTES).sum::<usize>();
        count(gone.len())
    })
}

/// So many different members, by a number that whoever asks has drawn: the same everywhere.
fn choose(set: &Members, args: &[Bytes]) -> std::result::Result<Vec<Bytes>, Wrong> {
    let (number, count) = two(args)?;
    let (number, count) = (unsigned(number)?, unsigned(count)? as usize);
    if count >= set.len() {
        return Ok(set.iter().cloned().collect());
    }
    let mut rng = base::Rng::new(number);
    let mut places = BTreeSet::new();
    // Floyd: each choice of so many is as likely.
    for last in set.len() - count..set.len() {
        let place = rng.below(last as u64 + 1) as usize;
        let place = if places.contains(&place) { last } else { place };
        places.insert(place);
    }
    Ok(set.iter().enumerate().filter(|(place, _)| places.contains(place)).map(|(_, member)| member.clone()).collect())
}

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
