//! Walks by cursors that are numbers, as Redis's: through all keys, and through the items of one collection. A number
//! says how far somebody has come, to any replica and whenever: names are shown in the order of places that follow from
//! their bytes alone (`order.rs`). So what is there from the beginning to the end is shown at least once, whatever
//! comes and goes meanwhile.
//!
//! A page begins with the cursor of the next one, 0 if it is the last.

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, SCAN_KEYS_MAX, WALK_LOOKED_MAX, WALK_PAGES_MAX};
use crate::value::Entry;

/// The level from which there are such cursors (`base/src/level.rs`).
pub const LEVEL: u32 = 15;

pub const ALL: &[Function] = &[
    since(LEVEL, Function { whole: true, merge: Merge::Walk, ..inner(read("walk", "cursor count prefix", keys)) }),
    since(
        LEVEL,
        inner(read("hash.walk", "cursor count", |space, key, args| {
            let found = hash::of(space, key)?;
            let names = || found.into_iter().flat_map(|map| map.iter()).map(|(field, _)| field);
            items(space, key, args, names(), |field| {
                let value = found.and_then(|map| map.get(field))?;
                Some(vec![Reply::Bytes(field.clone()), Reply::Bytes(value.clone())])
            })
        })),
    ),
    since(
        LEVEL,
        inner(read("set.walk", "cursor count", |space, key, args| {
            let found = set::of(space, key)?;
            items(space, key, args, found.into_iter().flatten(), |member| {
                found.is_some_and(|set| set.contains(member)).then(|| vec![Reply::Bytes(member.clone())])
            })
        })),
    ),
    since(
        LEVEL,
        inner(read("sorted.walk", "cursor count", |space, key, args| {
            let found = sorted::of(space, key)?;
            let all = found.into_iter().flat_map(|sorted| sorted.items(0..sorted.len()));
            items(space, key, args, all.map(|item| &item.member), |member| {
                let score = found.and_then(|sorted| sorted.score(member))?;
                Some(vec![Reply::Bytes(member.clone()), sorted::shown(score)])
            })
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

/// A page of a collection with these names: what is shown of each of them, if it is there.
fn items<'a>(
    space: &'a Space,
    key: &Bytes,
    args: &[Bytes],
    names: impl Iterator<Item = &'a Bytes>,
    show: impl Fn(&Bytes) -> Option<Vec<Reply>>,
) -> Result {
    let [cursor, count] = args else { return Err(Wrong::Arguments) };
    let (from, count) = asked(cursor, count)?;
    let placed = space.placed(key, names);
    let most = count.max(placed.len().div_ceil(WALK_PAGES_MAX));
    let begin = placed.partition_point(|(place, _)| *place < from);
    let (mut end, mut next) = (placed.len(), 0);
    if end - begin > most {
        next = placed[begin + most].0;
        // Those of one place are shown together, if nothing else as one page.
        if placed[begin].0 == next {
            next += 1;
        }
        end = placed.partition_point(|(place, _)| *place < next);
    }
    let shown = placed[begin..end].iter().filter_map(|(_, name)| show(name)).flatten();
    Ok(Reply::List(std::iter::once(Reply::Int(next as i64)).chain(shown).collect()))
}
