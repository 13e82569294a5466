//! Walks by cursors that are numbers, as Redis's: through all keys, and through the items of one collection. A number
//! says how far somebody has come, to any replica and whenever: names are shown in the order of places that follow from
//! their bytes alone (`order.rs`). So what is there from the beginning to the end is shown at least once, whatever
//! comes and goes meanwhile.
//!
//! A page begins with the cursor of the next one, 0 if it is the last.

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, SCAN_KEYS_MAX, WALK_LOOKED_MAX, WALK_PAGES_MAX};
use crate::order::place_of;
use crate::sorted::Scored;
use crate::value::Entry;

/// The level from which there are such cursors (`base/src/level.rs`).
pub const LEVEL: u32 = 15;

pub const ALL: &[Function] = &[
    since(LEVEL, Function { whole: true, merge: Merge::Walk, ..inner(read("walk", "cursor count prefix", keys)) }),
    since(
        LEVEL,
        inner(read("hash.walk", "cursor count", |space, key, args| {
            let pair =
                |(field, value): (&Bytes, &Bytes)| vec![Reply::Bytes(field.clone()), Reply::Bytes(value.clone())];
            let Some(map) = hash::of(space, key)? else {
                return items(args, 0, std::iter::empty(), |(field, _)| field, pair);
            };
            items(args, map.len(), map.iter(), |(field, _)| field, pair)
        })),
    ),
    since(
        LEVEL,
        inner(read("set.walk", "cursor count", |space, key, args| {
            let found = set::of(space, key)?;
            let one = |member: &Bytes| vec![Reply::Bytes(member.clone())];
            items(args, found.map_or(0, |set| set.len()), found.into_iter().flatten(), |member| *member, one)
        })),
    ),
    since(
        LEVEL,
        inner(read("sorted.walk", "cursor count", |space, key, args| {
            let found = sorted::of(space, key)?;
            let len = found.map_or(0, |sorted| sorted.len());
            let all = found.into_iter().flat_map(|sorted| sorted.items(0..len));
            let pair = |item: &Scored| vec![Reply::Bytes(item.member.clone()), sorted::shown(item.score)];
            items(args, len, all, |item| &item.member, pair)
        })),
    ),
];

fn asked(cursor: &Bytes, count: &Bytes) -> std::result::Result<(u64, usize), Wrong> {
    Ok((unsigned(cursor)?, unsigned(count)?.clamp(1, SCAN_KEYS_MAX) as usize))
}

/// A page of the keys that begin with this, each with its type. So many are looked at, at most.
fn keys(space: &Space, _: &Bytes, args: &[Bytes]) -> Result {
    let [cursor, count, prefix] = args else { return Err(Wrong::Arguments) };
    let (from, count) = asked(cursor, count)?;
    let (mut looked, mut shown, mut bytes, mut last, mut next) = (0, 0, 0, 0, 0);
    let mut page = vec![Reply::Int(0)];
    let is_made = space.map().walk(from, space.walk_grows(), |place, key, entry: &Entry| {
        let is_enough = shown >= count || looked >= WALK_LOOKED_MAX || bytes > ANSWER_BYTES_MAX / 2;
        if is_enough && place != last {
            next = place;
            return false;
        }
        (looked, last) = (looked + 1, place);
        if key.starts_with(prefix) && !space.is_over(entry) {
            (shown, bytes) = (shown + 1, bytes + key.len());
            page.push(Reply::Bytes(key.clone()));
            page.push(Reply::Bytes(Bytes::from_static(entry.value.type_name().as_bytes())));
        }
        true
    });
    // Whoever asks again comes further with it.
    page[0] = Reply::Int(if is_made { next } else { from.max(1) } as i64);
    space.walk_now();
    Ok(Reply::List(page))
}

/// A page of a collection. All of it is looked at each time, which is a value's bytes at most; so it is not asked for
/// more than so many pages.
fn items<T: Copy>(
    args: &[Bytes],
    len: usize,
    all: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &Bytes,
    show: impl Fn(T) -> Vec<Reply>,
) -> Result {
    let [cursor, count] = args else { return Err(Wrong::Arguments) };
    let (from, count) = asked(cursor, count)?;
    let most = count.max(len.div_ceil(WALK_PAGES_MAX));
    let placed = all.map(|item| (place_of(name(&item)), item));
    let mut left: Vec<(u64, T)> = placed.filter(|(place, _)| *place >= from).collect();
    let mut next = 0;
    if left.len() > most {
        left.select_nth_unstable_by_key(most, |(place, _)| *place);
        let end = left[most].0;
        // Those of one place are shown together, if nothing else as one page.
        let is_one = left.iter().all(|(place, _)| *place >= end);
        next = if is_one { end + 1 } else { end };
        left.retain(|(place, _)| *place < next);
    }
    left.sort_unstable_by_key(|(place, _)| *place);
    let shown = left.into_iter().flat_map(|(_, item)| show(item));
    Ok(Reply::List(std::iter::once(Reply::Int(next as i64)).chain(shown).collect()))
}
