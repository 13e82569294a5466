//! Items of a list, a set or a sorted set in another order: by themselves, or by what other keys say of them. A pattern names a key for
//! an item, which stands for its first `*`, and behind `->` a field. It sees the keys of its shard alone: who asks sees to that.

use std::sync::Arc;

use super::*;
use crate::limits::{COMBINED_MAX, VALUE_BYTES_MAX};
use crate::partly;
use crate::value::ITEM_BYTES;

type Found<T> = std::result::Result<T, Wrong>;

const HOW: &str = "asc|desc number|alpha OFFSET COUNT own|none|by PATTERN get...";

pub const ALL: &[Function] = &[
    since(
        7,
        inner(read("sort", HOW, |space, key, args| {
            let found = Sort::read(args)?.run(space, key)?;
            Ok(Reply::List(found.into_iter().map(|value| value.map_or(Reply::Nil, Reply::Bytes)).collect()))
        })),
    ),
    // Becomes the list of another key, in which what is not there is an empty text; how many.
    since(
        7,
        Function {
            keys: 1,
            inner: true,
            ..write(
                "sort.store",
                "to asc|desc number|alpha OFFSET COUNT own|none|by PATTERN get...",
                |space, key, args| {
                    let (to, args) = args.split_first().ok_or(Wrong::Arguments)?;
                    let sort = Sort { stores: true, ..Sort::read(args)? };
                    let list: std::collections::VecDeque<Bytes> =
                        sort.run(space, key)?.into_iter().map(Option::unwrap_or_default).collect();
                    let len = list.len();
                    if list.iter().map(|item| item.len() + ITEM_BYTES).sum::<usize>() > VALUE_BYTES_MAX {
                        return Err(Wrong::TooLarge);
                    }
                    if list.is_empty() {
                        space.remove(to);
                    } else {
                        space.set(to, Value::List(Arc::new(list)), 0);
                    }
                    Ok(count(len))
                },
            )
        },
    ),
];

/// What items are sorted by.
enum By<'a> {
    Own,
    Nothing,
    Pattern(&'a [u8]),
}

struct Sort<'a> {
    descends: bool,
    alpha: bool,
    offset: i64,
    count: i64,
    by: By<'a>,
    gets: &'a [Bytes],
    stores: bool,
}

impl<'a> Sort<'a> {
    fn read(args: &'a [Bytes]) -> Found<Self> {
        let [order, kind, offset, count, by, pattern, gets @ ..] = args else { return Err(Wrong::Arguments) };
        Ok(Self {
            descends: match &order[..] {
                b"asc" => false,
                b"desc" => true,
                _ => return Err(Wrong::Arguments),
            },
            alpha: match &kind[..] {
                b"number" => false,
                b"alpha" => true,
                _ => return Err(Wrong::Arguments),
            },
            offset: integer(offset)?,
            count: integer(count)?,
            by: match &by[..] {
                b"own" => By::Own,
                b"none" => By::Nothing,
                b"by" => By::Pattern(pattern),
                _ => return Err(Wrong::Arguments),
            },
            gets,
            stores: false,
        })
    }

    fn run(mut self, space: &Space, key: &Bytes) -> Found<Vec<Option<Bytes>>> {
        let mut items: Vec<Bytes> = match space.get(key).map(|entry| &entry.value) {
            None => Vec::new(),
            Some(Value::List(list)) => list.iter().cloned().collect(),
            Some(Value::Set(set)) => {
                // They have an order of their own here, and in Redis none.
                if self.stores && matches!(self.by, By::Nothing) {
                    (self.by, self.alpha) = (By::Own, true);
                }
                set.iter().cloned().collect()
            }
            Some(Value::Sorted(sorted)) => sorted.items(0..sorted.len()).map(|item| item.member.clone()).collect(),
            Some(_) => return Err(Wrong::Type),
        };
        let len = items.len() as i64;
        let start = self.offset.clamp(0, len);
        let end = if self.count < 0 { len } else { start + self.count.min(len - start) };
        let wanted = start as usize..end.max(start) as usize;
        if wanted.len().saturating_mul(self.gets.len().max(1)) > COMBINED_MAX {
            return Err(Wrong::TooLarge);
        }
        match self.by {
            By::Nothing
                if self.descends && !matches!(space.get(key).map(|entry| &entry.value), Some(Value::Set(_))) =>
            {
                items.reverse();
            }
            By::Nothing => (),
            _ => items = self.sorted(space, items, &wanted)?,
        }
        let items = &items[wanted];
        let mut found: Vec<Option<Bytes>> = Vec::with_capacity(items.len() * self.gets.len().max(1));
        for item in items {
            if self.gets.is_empty() {
                found.push(Some(item.clone()));
            }
            found.extend(self.gets.iter().map(|pattern| said_of(space, pattern, item)));
        }
        Ok(found)
    }

    fn sorted(&self, space: &Space, items: Vec<Bytes>, wanted: &std::ops::Range<usize>) -> Found<Vec<Bytes>> {
        let by = |item: &Bytes| match self.by {
            By::Pattern(pattern) => said_of(space, pattern, item),
            By::Own | By::Nothing => Some(item.clone()),
        };
        let turned = |order: std::cmp::Ordering| if self.descends { order.reverse() } else { order };
        // Only what is sorted by others is sorted in part, as in Redis.
        let wanted = if matches!(self.by, By::Pattern(_)) { wanted.clone() } else { 0..items.len() };
        if self.alpha {
            let mut pairs: Vec<_> = items.into_iter().map(|item| (by(&item), item)).collect();
            partly::sort(&mut pairs, wanted, |(a, _), (b, _)| turned(a.cmp(b)));
            return Ok(pairs.into_iter().map(|(_, item)| item).collect());
        }
        let number = |item: Bytes| {
            let number = by(&item).map_or(Some(0.0), |text| number(&text)).ok_or(Wrong::NotAFloat)?;
            Ok((number, item))
        };
        let mut pairs = items.into_iter().map(number).collect::<Found<Vec<_>>>()?;
        let order = |(a, item): &(f64, Bytes), (b, other): &(f64, Bytes)| {
            let order = a.partial_cmp(b).expect("these are numbers");
            turned(order.then_with(|| item.cmp(other)))
        };
        partly::sort(&mut pairs, wanted, order);
        Ok(pairs.into_iter().map(|(_, item)| item).collect())
    }
}

/// As C reads it, but no hexadecimal ones: up to the first zero byte, spaces before it, nothing behind it; of nothing at all it is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let spaces = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0B).count();
    crate::score::parse(&text[spaces..])
}

/// What a key says of an item.
fn said_of(space: &Space, pattern: &[u8], item: &Bytes) -> Option<Bytes> {
    if pattern == b"#" {
        return Some(item.clone());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|two| two == b"->").filter(|at| at + 2 < behind.len());
    let (rest, field) = match arrow {
        Some(at) => (&behind[..at], Some(&behind[at + 2..])),
        None => (behind, None),
    };
    let key = [&pattern[..star], item, rest].concat();
    match (space.get(&key).map(|entry| &entry.value)?, field) {
        (Value::Text(text), None) => Some(text.clone()),
        (Value::Hash(hash), Some(field)) => hash.at(space.clock()).get(field).cloned(),
        _ => None,
    }
}

/// Does a pattern name other keys?
pub fn names_keys(pattern: &[u8]) -> bool {
    pattern.contains(&b'*')
}
