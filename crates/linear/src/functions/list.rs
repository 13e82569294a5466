//! Lists.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, VALUE_BYTES_MAX};
use crate::value::ITEM_BYTES;

type Items = VecDeque<Bytes>;

pub const ALL: &[Function] = &[
    read("list.length", "", |space, key, args| {
        none(args).and_then(|()| Ok(count(of(space, key)?.map_or(0, Items::len))))
    }),
    read("list.range", "start stop", |space, key, args| {
        let (start, stop) = two(args)?;
        let (start, stop) = (integer(start)?, integer(stop)?);
        let Some(items) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
        Ok(Reply::List(items.range(slice(start, stop, items.len())).cloned().map(Reply::Bytes).collect()))
    }),
    read("list.at", "index", |space, key, args| {
        let at = integer(one(args)?)?;
        let Some(items) = of(space, key)? else { return Ok(Reply::Nil) };
        let at = if at < 0 { at + items.len() as i64 } else { at };
        let item = usize::try_from(at).ok().and_then(|at| items.get(at));
        Ok(item.map_or(Reply::Nil, |item| Reply::Bytes(item.clone())))
    }),
    read("list.find", "item", |space, key, args| {
        let item = one(args)?;
        let at = of(space, key)?.and_then(|items| items.iter().position(|it| it == item));
        Ok(at.map_or(Reply::Nil, count))
    }),
    // The first item is at rank 1, the last one at -1; a count or length of 0: all.
    since(
        2,
        read("list.positions", "item rank count length", |space, key, args| {
            let [item, rank, wanted, length] = args else { return Err(Wrong::Arguments) };
            let all = |n: u64| if n == 0 { usize::MAX } else { n as usize };
            let (rank, wanted, length) = (integer(rank)?, all(unsigned(wanted)?), all(unsigned(length)?));
            if rank == 0 {
                return Err(Wrong::Arguments);
            }
            let Some(items) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
            let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
            let is_it = |(at, it): (usize, &Bytes)| (it == item).then(|| count(at));
            let (items, room) = (items.iter().enumerate(), ANSWER_BYTES_MAX / Reply::Nil.bytes());
            let wanted = wanted.min(room);
            let found: Vec<Reply> = match rank > 0 {
                true => items.take(length).filter_map(is_it).skip(skipped).take(wanted).collect(),
                false => items.rev().take(length).filter_map(is_it).skip(skipped).take(wanted).collect(),
            };
            Ok(Reply::List(found))
        }),
    ),
    since(
        2,
        Function {
            keys: usize::MAX,
            options: 2,
            // Of the first key that has a list: that key, and the items.
            ..write("list.pop-first", "key... left|right count", |space, key, args| {
                let [keys @ .., end, n] = args else { return Err(Wrong::Arguments) };
                let take: fn(&mut Items) -> Option<Bytes> = match &end[..] {
                    b"left" => Items::pop_front,
                    b"right" => Items::pop_back,
                    _ => return Err(Wrong::Arguments),
                };
                if unsigned(n)? == 0 {
                    return Err(Wrong::Arguments);
                }
                for key in std::iter::once(key).chain(keys) {
                    if of(space, key)?.is_some() {
                        let items = pop(space, key, std::slice::from_ref(n), take)?;
                        return Ok(Reply::List(vec![Reply::Bytes(key.clone()), items]));
                    }
                }
                Ok(Reply::Nil)
            })
        },
    ),
    write("list.push-left-present", "item...", |space, key, args| push_if(space, key, args, Items::push_front)),
    write("list.push-right-present", "item...", |space, key, args| push_if(space, key, args, Items::push_back)),
    write("list.set", "index item", |space, key, args| {
        let (at, item) = two(args)?;
        let at = integer(at)?;
        let Some(items) = of(space, key)? else { return Ok(Reply::Nil) };
        let at = if at < 0 { at + items.len() as i64 } else { at };
        let Some(at) = usize::try_from(at).ok().filter(|at| *at < items.len()) else { return Ok(Reply::Int(0)) };
        change(space, key, item.len(), |items, size| {
            let old = std::mem::replace(&mut items[at], item.clone());
            *size = *size + item.len() - old.len();
            Reply::Int(1)
        })
    }),
    write("list.insert", "before|after pivot item", |space, key, args| {
        let [side, pivot, item] = args else { return Err(Wrong::Arguments) };
        let behind = match &side[..] {
            b"before" => 0,
            b"after" => 1,
            _ => return Err(Wrong::Arguments),
        };
        let Some(items) = of(space, key)? else { return Ok(Reply::Int(0)) };
        let Some(at) = items.iter().position(|it| it == pivot) else { return Ok(Reply::Int(-1)) };
        change(space, key, item.len() + ITEM_BYTES, |items, size| {
            items.insert(at + behind, item.clone());
            *size += item.len() + ITEM_BYTES;
            count(items.len())
        })
    }),
    Function { keys: 1, ..write("list.move", "to left|right left|right", move_item) },
    weak(
        items_of_both,
        write("list.push-left", "item...", |space, key, args| push(space, key, args, Items::push_front)),
    ),
    weak(
        items_of_both,
        write("list.push-right", "item...", |space, key, args| push(space, key, args, Items::push_back)),
    ),
    write("list.pop-left", "[count]", |space, key, args| pop(space, key, args, Items::pop_front)),
    write("list.pop-right", "[count]", |space, key, args| pop(space, key, args, Items::pop_back)),
    write("list.trim", "start stop", |space, key, args| {
        let (start, stop) = two(args)?;
        let (start, stop) = (integer(start)?, integer(stop)?);
        if of(space, key)?.is_some() {
            change(space, key, 0, |items, size| {
                let range = slice(start, stop, items.len());
                let gone = items.drain(range.end..).map(|item| item.len() + ITEM_BYTES).sum::<usize>();
                let before = items.drain(..range.start).map(|item| item.len() + ITEM_BYTES).sum::<usize>();
                *size -= gone + before;
                Reply::Nil
            })?;
        }
        Ok(Reply::Nil)
    }),
    write("list.remove", "count item", |space, key, args| {
        let (n, item) = two(args)?;
        let n = integer(n)?;
        if of(space, key)?.is_none_or(|items| !items.contains(item)) {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |items, size| {
            let (mut left, before) = (if n == 0 { u64::MAX } else { n.unsigned_abs() }, items.len());
            let mut keep = |it: &Bytes| {
                let goes = left > 0 && it == item;
                left -= u64::from(goes);
                !goes
            };
            if n < 0 {
                let kept: Vec<Bytes> = items.drain(..).rev().filter(|it| keep(it)).collect();
                items.extend(kept.into_iter().rev());
            } else {
                items.retain(|it| keep(it));
            }
            let gone = before - items.len();
            *size -= gone * (item.len() + ITEM_BYTES);
            count(gone)
        })
    }),
];

fn of<'a>(space: &'a Space, key: &[u8]) -> std::result::Result<Option<&'a Items>, Wrong> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::List(items)) => Ok(Some(items)),
        Some(_) => Err(Wrong::Type),
    }
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Items, &mut usize) -> Reply) -> Result {
    space.change(key, Value::List(Arc::default()), more, |value, size| match value {
        Value::List(items) => Ok(act(Arc::make_mut(items), size)),
        _ => Err(Wrong::Type),
    })
}

fn push(space: &mut Space, key: &Bytes, args: &[Bytes], put: fn(&mut Items, Bytes)) -> Result {
    some(args)?;
    of(space, key)?;
    let more = args.iter().map(|item| item.len() + ITEM_BYTES).sum();
    change(space, key, more, |items, size| {
        args.iter().for_each(|item| put(items, item.clone()));
        *size += more;
        count(items.len())
    })
}

fn push_if(space: &mut Space, key: &Bytes, args: &[Bytes], put: fn(&mut Items, Bytes)) -> Result {
    if of(space, key)?.is_none() { Ok(Reply::Int(0)) } else { push(space, key, args, put) }
}

/// From one end of a list to one end of another, or of the same.
fn move_item(space: &mut Space, key: &Bytes, args: &[Bytes]) -> Result {
    let [to, from_end, to_end] = args else { return Err(Wrong::Arguments) };
    let take: fn(&mut Items) -> Option<Bytes> = match &from_end[..] {
        b"left" => Items::pop_front,
        b"right" => Items::pop_back,
        _ => return Err(Wrong::Arguments),
    };
    let put: fn(&mut Items, Bytes) = match &to_end[..] {
        b"left" => Items::push_front,
        b"right" => Items::push_back,
        _ => return Err(Wrong::Arguments),
    };
    let Some(items) = of(space, key)? else { return Ok(Reply::Nil) };
    of(space, to)?;
    let item = if &from_end[..] == b"left" { items.front() } else { items.back() };
    let item = item.cloned().expect("a list that is there has an item");
    if key != to && space.get(to).map_or(0, |entry| entry.size) + item.len() + ITEM_BYTES > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    space.does(if &from_end[..] == b"left" { "list.pop-left" } else { "list.pop-right" });
    pop(space, key, &[], take)?;
    space.does(if &to_end[..] == b"left" { "list.push-left" } else { "list.push-right" });
    push(space, to, std::slice::from_ref(&item), put)?;
    Ok(Reply::Bytes(item))
}

/// One item, or nothing; with a count a list of them, or nothing.
fn pop(space: &mut Space, key: &Bytes, args: &[Bytes], take: fn(&mut Items) -> Option<Bytes>) -> Result {
    let wanted = match args {
        [] => None,
        [n] => Some(unsigned(n)?),
        _ => return Err(Wrong::Arguments),
    };
    if of(space, key)?.is_none() {
        return Ok(Reply::Nil);
    }
    if wanted == Some(0) {
        return Ok(Reply::List(Vec::new()));
    }
    change(space, key, 0, |items, size| {
        let mut one = || take(items).inspect(|item| *size -= item.len() + ITEM_BYTES);
        match wanted {
            None => one().map_or(Reply::Nil, Reply::Bytes),
            Some(n) => Reply::List(std::iter::from_fn(one).take(n as usize).map(Reply::Bytes).collect()),
        }
    })
}
