//! Collections in pages, some of one by chance, and several sets together. The node that is asked looks at all of a collection each
//! time: it has it, and no order of it is kept.

use std::collections::BTreeSet;

use base::checksum::place_hash;

use super::*;
use crate::resp::commands::page::{Also, Page};
use crate::resp::limits::SCAN_COUNT_MAX;

/// Elements that are drawn with a negative count, each anew.
const DRAWN_AGAIN_MAX: i64 = 16_384;
/// Places are 1 to this, as many numbers as all clients can hold.
const PLACES: u64 = (1 << 53) - 1;

/// An element of a collection, with its value.
type Pair = (Bytes, Option<Bytes>);

/// Where an element is in a walk, at every node. Several may have one place: they come together.
fn place(element: &[u8]) -> u64 {
    place_hash(element) % PLACES + 1
}

/// A page of these, and where the next one begins; 0: it is the last.
fn page_of(mut pairs: Vec<Pair>, page: &Page) -> (u64, Vec<Pair>) {
    pairs.retain(|(element, _)| place(element) >= page.cursor);
    pairs.sort_by_cached_key(|(element, _)| place(element));
    let mut end = pairs.len().min(page.count as usize);
    while end > 0 && end < pairs.len() && place(&pairs[end].0) == place(&pairs[end - 1].0) {
        end += 1;
    }
    let next = pairs.get(end).map_or(0, |(element, _)| place(element));
    pairs.truncate(end);
    pairs.retain(|(element, _)| page.fits(element));
    (next, pairs)
}

/// A page of the first key's collection. `shown` says how the value of an element reads; without one it has none.
pub fn pages(call: &Call<'_>, kind: Kind, also: Also, shown: Option<fn(Bytes) -> Reply>) -> Act {
    let page = match Page::read(call.command, 2, also, SCAN_COUNT_MAX) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    later(call, all(call, kind), move |got| {
        let (next, pairs) = page_of(all_pairs(got), &page);
        let shown = shown.filter(|_| !page.names_only);
        let item = |(element, value): Pair| {
            let value = shown.map(|shown| shown(value.unwrap_or_default()));
            [Some(Reply::Bulk(element)), value].into_iter().flatten()
        };
        Reply::List(vec![Reply::text(next.to_string()), Reply::List(pairs.into_iter().flat_map(item).collect())])
    })
}

/// Some elements of the first key, by chance: one, or up to so many, or so many of which each is drawn anew. `flag` has values
/// with them.
pub fn drawn(call: &Call<'_>, kind: Kind, flag: &str, shown: fn(Bytes) -> Reply) -> Act {
    let command = call.command;
    let with_values = match command.len() {
        2 | 3 => false,
        4 if !flag.is_empty() && is(command.arg(3), flag) => true,
        _ => return syntax_error(),
    };
    if command.len() == 2 {
        return later(call, all(call, kind), |got| {
            let pairs = all_pairs(got);
            let at = base::Rng::new(chance()).below(pairs.len().max(1) as u64);
            pairs.into_iter().nth(at as usize).map_or(Reply::Nil, |(element, _)| Reply::Bulk(element))
        });
    }
    let Some(count) = integer(command.arg(2)) else { return Act::Now(not_an_integer()) };
    if count < -DRAWN_AGAIN_MAX {
        return Act::Now(Reply::error("ERR value is out of range"));
    }
    later(call, all(call, kind), move |got| {
        let drawn = some(all_pairs(got), count, &mut base::Rng::new(chance()));
        if with_values {
            let pair = |(element, value): Pair| (Reply::Bulk(element), shown(value.unwrap_or_default()));
            return Reply::Pairs(drawn.into_iter().map(pair).collect());
        }
        Reply::List(drawn.into_iter().map(|(element, _)| Reply::Bulk(element)).collect())
    })
}

fn some(mut pairs: Vec<Pair>, count: i64, rng: &mut base::Rng) -> Vec<Pair> {
    let all = pairs.len() as u64;
    if count < 0 {
        let times = if all == 0 { 0 } else { count.unsigned_abs() };
        return (0..times).map(|_| pairs[rng.below(all) as usize].clone()).collect();
    }
    let count = pairs.len().min(usize::try_from(count).unwrap_or(usize::MAX));
    for at in 0..count {
        let other = at as u64 + rng.below(all - at as u64);
        pairs.swap(at, other as usize);
    }
    pairs.truncate(count);
    pairs
}

/// What becomes of the members of several sets.
#[derive(Clone, Copy)]
pub enum Algebra {
    Union,
    Inter,
    Diff,
}

async fn joined(space: &Space, keys: Vec<Bytes>, how: Algebra) -> Result<BTreeSet<Bytes>, Reply> {
    let mut found: Option<BTreeSet<Bytes>> = None;
    for key in keys {
        let pairs = match space.ask_soft(Action::All { kind: Kind::Member, key }).await {
            Outcome::Done(Got::Pairs(pairs)) => pairs,
            other => return Err(reply(other, |got| odd(&got))),
        };
        let members: BTreeSet<Bytes> = pairs.into_iter().map(|(member, _)| member).collect();
        found = Some(match (found, how) {
            (None, _) => members,
            (Some(mut all), Algebra::Union) => {
                all.extend(members);
                all
            }
            (Some(mut all), Algebra::Inter) => {
                all.retain(|member| members.contains(member));
                all
            }
            (Some(mut all), Algebra::Diff) => {
                all.retain(|member| !members.contains(member));
                all
            }
        });
    }
    Ok(found.unwrap_or_default())
}

/// Members of several sets, joined.
pub fn join(call: &Call<'_>, how: Algebra) -> Act {
    let (space, keys) = (call.space(), names(call, 1));
    Call::later(async move {
        match joined(&space, keys, how).await {
            Ok(members) => Reply::Set(members.into_iter().map(Reply::Bulk).collect()),
            Err(error) => error,
        }
    })
}

/// How many members are in all of several sets.
pub fn count_common(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (keys, at) = match counted(command, 1) {
        Ok(counted) => counted,
        Err(error) => return Act::Now(error),
    };
    let limit = match command.len() - at {
        0 => 0,
        2 if is(command.arg(at), "LIMIT") => match integer(command.arg(at + 1)) {
            Some(limit @ 0..) => limit,
            Some(_) => return Act::Now(Reply::error("ERR LIMIT can't be negative")),
            None => return Act::Now(not_an_integer()),
        },
        _ => return syntax_error(),
    };
    let space = call.space();
    Call::later(async move {
        match joined(&space, keys, Algebra::Inter).await {
            Ok(members) if limit == 0 => Reply::Int(members.len() as i64),
            Ok(members) => Reply::Int((members.len() as i64).min(limit)),
            Err(error) => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: usize) -> Vec<Pair> {
        (0..count).map(|n| (Bytes::from(format!("m{n}")), None)).collect()
    }

    #[test]
    fn a_walk_shows_each_element_once_whatever_order_a_node_has() {
        let (mut seen, mut cursor, mut all) = (Vec::new(), 0, pairs(100));
        loop {
            all.rotate_left(7);
            let page = Page::at(cursor, 9);
            let (next, some) = page_of(all.clone(), &page);
            assert!(some.len() >= 9 || next == 0);
            seen.extend(some);
            if next == 0 {
                break;
            }
            assert!(next > cursor, "it goes on");
            cursor = next;
        }
        seen.sort();
        let mut all = pairs(100);
        all.sort();
        assert_eq!(seen, all);
    }

    #[test]
    fn some_are_drawn_each_once_or_each_anew() {
        let mut rng = base::Rng::new(1);
        let mut drawn = |of, count| some(pairs(of), count, &mut rng);
        assert_eq!((drawn(0, 3).len(), drawn(0, -3).len(), drawn(5, 0).len()), (0, 0, 0));
        let ten: BTreeSet<Pair> = drawn(30, 10).into_iter().collect();
        assert_eq!(ten.len(), 10, "no one twice");
        assert_eq!(drawn(3, 10).len(), 3);
        assert_eq!(drawn(3, -10).len(), 10);
    }
}
