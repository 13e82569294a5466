//! Sets. Members come in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::limits::VALUE_BYTES_MAX;
use crate::value::ITEM_BYTES;

type Members = BTreeSet<Bytes>;

/// A function of the sets of several keys.
const fn of_all(function: Function) -> Function {
    Function { keys: usize::MAX, ..function }
}

fn listed(space: &Space, key: &Bytes, args: &[Bytes], act: fn(&[Option<&Members>]) -> Members) -> Result {
    let members = act(&several(space, std::iter::once(key).chain(args))?);
    Ok(Reply::List(members.into_iter().map(Reply::Bytes).collect()))
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
    args_since(
        2,
        |args| args.len() > 2,
        read("set.random", "NUMBER count [again]", |space, key, args| {
            let chosen = of(space, key)?.map_or(Ok(Vec::new()), |set| choose(set, args))?;
            Ok(Reply::List(chosen.into_iter().map(Reply::Bytes).collect()))
        }),
    ),
    of_all(read("set.union", "key...", |space, key, args| listed(space, key, args, union))),
    of_all(read("set.inter", "key...", |space, key, args| listed(space, key, args, inter))),
    of_all(read("set.diff", "key...", |space, key, args| listed(space, key, args, diff))),
    since(2, of_all(write("set.store-union", "key...", |space, key, args| store(space, key, args, union)))),
    since(2, of_all(write("set.store-inter", "key...", |space, key, args| store(space, key, args, inter)))),
    since(2, of_all(write("set.store-diff", "key...", |space, key, args| store(space, key, args, diff)))),
    // A limit of 0: all of them.
    since(
        2,
        Function {
            options: 1,
            ..of_all(read("set.count-inter", "key... limit", |space, key, args| {
                let (limit, keys) = args.split_last().ok_or(Wrong::Arguments)?;
                let sets = several(space, std::iter::once(key).chain(keys))?;
                let limit = match unsigned(limit)? {
                    0 => usize::MAX,
                    limit => limit as usize,
                };
                Ok(count(common(&sets).take(limit).count()))
            }))
        },
    ),
    write("set.pop", "NUMBER count", |space, key, args| {
        two(args)?;
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
            // As Redis: where nothing is taken from, nobody asks what the other one is.
            let Some(from) = of(space, key)? else { return Ok(Reply::Int(0)) };
            let is_there = of(space, to)?.is_some_and(|set| set.contains(member));
            if !from.contains(member) {
                return Ok(Reply::Int(0));
            }
            if key != to {
                // One that is there already changes nothing there.
                if !is_there {
                    space.does("set.add");
                    add(space, to, std::slice::from_ref(member))?;
                }
                space.does("set.remove");
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

fn choose(set: &Members, args: &[Bytes]) -> std::result::Result<Vec<Bytes>, Wrong> {
    Ok(at_places(set.iter(), &drawn(args, set.len())?).into_iter().cloned().collect())
}

fn union(sets: &[Option<&Members>]) -> Members {
    sets.iter().copied().flatten().flatten().cloned().collect()
}

fn inter(sets: &[Option<&Members>]) -> Members {
    common(sets).cloned().collect()
}

/// Members of all, in order. Each is looked for up to the first set that lacks it: so it takes about as many steps as all sets
/// have members.
fn common<'a>(sets: &'a [Option<&Members>]) -> impl Iterator<Item = &'a Bytes> {
    let first = sets.first().copied().flatten();
    let in_all = |member: &&Bytes| sets.iter().all(|set| set.is_some_and(|set| set.contains(*member)));
    first.into_iter().flatten().filter(in_all)
}

/// Likewise as many steps as members: what no other set has would be looked for in each of them.
fn diff(sets: &[Option<&Members>]) -> Members {
    let Some((Some(first), others)) = sets.split_first() else { return Members::new() };
    let others: BTreeSet<&Bytes> = others.iter().copied().flatten().flatten().collect();
    first.iter().filter(|member| !others.contains(member)).cloned().collect()
}

/// The sets of these keys; of those behind the first each once, as more would only be more work.
fn several<'a>(
    space: &'a Space,
    mut keys: impl Iterator<Item = &'a Bytes>,
) -> std::result::Result<Vec<Option<&'a Members>>, Wrong> {
    let mut seen = BTreeSet::new();
    let first = keys.next().map(|key| of(space, key));
    first.into_iter().chain(keys.filter(|key| seen.insert(*key)).map(|key| of(space, key))).collect()
}

/// What comes of some sets becomes the set of a key, whatever was there; how many members.
fn store(space: &mut Space, key: &Bytes, from: &[Bytes], act: fn(&[Option<&Members>]) -> Members) -> Result {
    some(from)?;
    let members = act(&several(space, from.iter())?);
    if members.is_empty() {
        space.remove(key);
        return Ok(Reply::Int(0));
    }
    let len = members.len();
    let value = Value::Set(Arc::new(members));
    if value.bytes() > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    space.set(key, value, 0);
    Ok(count(len))
}

pub(super) fn of<'a>(space: &'a Space, key: &[u8]) -> std::result::Result<Option<&'a Members>, Wrong> {
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
