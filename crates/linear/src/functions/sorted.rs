//! Sorted sets. Items come in the order of their scores, those with the same one in that of their bytes. Where several are
//! combined, sets are taken for sorted sets in which each member has the score 1.

use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::limits::{COMBINED_MAX, VALUE_BYTES_MAX};
use crate::score;
use crate::sorted::{LEVEL, SCORED_BYTES, Scored, Sorted};

type Found<T> = std::result::Result<T, Wrong>;

const fn reads(name: &'static str, args: &'static str, run: fn(&Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, read(name, args, run))
}

const fn writes(name: &'static str, args: &'static str, run: fn(&mut Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, write(name, args, run))
}

/// A function of the sorted sets of several keys, with so many arguments behind them.
const fn of_all(options: usize, function: Function) -> Function {
    Function { keys: usize::MAX, options, ..function }
}

pub const ALL: &[Function] = &[
    reads("sorted.length", "", |space, key, args| {
        none(args).and_then(|()| Ok(count(of(space, key)?.map_or(0, Sorted::len))))
    }),
    reads("sorted.scores", "member...", |space, key, args| {
        let sorted = of(space, key)?;
        let score = |member: &Bytes| sorted.and_then(|sorted| sorted.score(member)).map_or(Reply::Nil, shown);
        Ok(Reply::List(args.iter().map(score).collect()))
    }),
    // With the score, or nothing.
    reads("sorted.rank", "member forward|reverse", |space, key, args| {
        let (member, order) = two(args)?;
        let reverse = is_reverse(order)?;
        let Some(sorted) = of(space, key)? else { return Ok(Reply::Nil) };
        let Some((rank, score)) = sorted.rank(member).zip(sorted.score(member)) else { return Ok(Reply::Nil) };
        let rank = if reverse { sorted.len() - 1 - rank } else { rank };
        Ok(Reply::List(vec![count(rank), shown(score)]))
    }),
    reads("sorted.count", "rank|score|member from to", |space, key, args| match args {
        [by, from, to] => {
            let by = By::read(by, from, to)?;
            Ok(count(of(space, key)?.map_or(0, |sorted| by.ranks(sorted).len())))
        }
        _ => Err(Wrong::Arguments),
    }),
    // Of a negative count all.
    reads("sorted.range", "rank|score|member from to forward|reverse offset count [scores]", |space, key, args| {
        let (slice, with_scores) = match args {
            [slice @ .., scores] if slice.len() == SLICE_ARGS && &scores[..] == b"scores" => (slice, true),
            slice => (slice, false),
        };
        let slice = Slice::read(slice)?;
        let Some(sorted) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
        let ranks = slice.ranks(sorted);
        let mut found = Vec::with_capacity(ranks.len() * if with_scores { 2 } else { 1 });
        let give = |item: &Scored| {
            found.push(Reply::Bytes(item.member.clone()));
            found.extend(with_scores.then(|| shown(item.score)));
        };
        if slice.reverse {
            sorted.items(ranks).rev().for_each(give)
        } else {
            sorted.items(ranks).for_each(give)
        }
        Ok(Reply::List(found))
    }),
    reads("sorted.scan", "first|after member count", |space, key, args| {
        let (from, count) = page(args)?;
        let found = of(space, key)?.into_iter().flat_map(|sorted| sorted.from_member(from));
        Ok(listed(found.take(count)))
    }),
    reads("sorted.random", "NUMBER count [again]", |space, key, args| {
        let Some(sorted) = of(space, key)? else { return Ok(Reply::List(Vec::new())) };
        let places = drawn(args, sorted.len())?;
        Ok(listed(places.into_iter().filter_map(|rank| sorted.items(rank..rank + 1).next())))
    }),
    // How many are new, and of how many others the score has changed.
    writes("sorted.add", "any|absent|present any|greater|less score member ...", |space, key, args| {
        let [when, only, pairs @ ..] = args else { return Err(Wrong::Arguments) };
        let may = May::read(when, only)?;
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(Wrong::Arguments);
        }
        let scored = |pair: &[Bytes]| Ok(Scored { member: pair[1].clone(), score: number(&pair[0])? });
        let items = pairs.chunks_exact(2).map(scored).collect::<Found<Vec<_>>>()?;
        add(space, key, may, items)
    }),
    // The score that the member has then; nothing, if it may not.
    writes("sorted.increase", "any|absent|present any|greater|less delta member", |space, key, args| {
        let [when, only, delta, member] = args else { return Err(Wrong::Arguments) };
        let (may, delta) = (May::read(when, only)?, number(delta)?);
        let now = of(space, key)?.and_then(|sorted| sorted.score(member));
        let score = now.map_or(delta, |now| now + delta);
        if (now.is_some() && may.when == When::Absent) || (now.is_none() && may.when == When::Present) {
            return Ok(Reply::Nil);
        }
        // Infinite ones of different signs.
        if score.is_nan() {
            return Err(Wrong::Overflow);
        }
        if !may.score(now, score) {
            return Ok(Reply::Nil);
        }
        add(space, key, may, vec![Scored { member: member.clone(), score }])?;
        Ok(shown(score))
    }),
    writes("sorted.remove", "member...", |space, key, args| {
        some(args)?;
        if of(space, key)?.is_none_or(|sorted| !args.iter().any(|member| sorted.score(member).is_some())) {
            return Ok(Reply::Int(0));
        }
        change(space, key, 0, |sorted| count(args.iter().filter(|member| sorted.remove(member).is_some()).count()))
    }),
    writes("sorted.remove-range", "rank|score|member from to", |space, key, args| match args {
        [by, from, to] => {
            let by = By::read(by, from, to)?;
            space.does(match &by {
                By::Rank(..) => "sorted.remove-by-rank",
                By::Score(..) => "sorted.remove-by-score",
                By::Member(..) | By::Nothing => "sorted.remove-by-member",
            });
            let ranks = of(space, key)?.map_or(0..0, |sorted| by.ranks(sorted));
            Ok(count(take(space, key, ranks)?.len()))
        }
        _ => Err(Wrong::Arguments),
    }),
    // Nothing, if there is none.
    writes("sorted.pop", "min|max count", |space, key, args| {
        let (end, count) = two(args)?;
        pop(space, key, end, count)
    }),
    // Of the first key that has any: the key and the items.
    of_all(
        2,
        writes("sorted.pop-first", "key... min|max count", |space, key, args| {
            let [others @ .., end, count] = args else { return Err(Wrong::Arguments) };
            if unsigned(count)? == 0 {
                return Err(Wrong::Arguments);
            }
            for key in std::iter::once(key).chain(others) {
                if of(space, key)?.is_some() {
                    let items = pop(space, key, end, count)?;
                    return Ok(Reply::List(vec![Reply::Bytes(key.clone()), items]));
                }
            }
            end_of(end).map(|_| Reply::Nil)
        }),
    ),
    Function {
        keys: 1,
        ..writes(
            "sorted.store-range",
            "from rank|score|member from to forward|reverse offset count",
            |space, key, args| {
                let (from, slice) = args.split_first().ok_or(Wrong::Arguments)?;
                let slice = Slice::read(slice)?;
                let items = |sorted: &Sorted| sorted.items(slice.ranks(sorted)).cloned().collect();
                let items = of(space, from)?.map_or(Vec::new(), items);
                store(space, key, items)
            },
        )
    },
    // Weights: one for each key, between spaces, or `-`.
    of_all(
        2,
        reads("sorted.union", "key... WEIGHTS sum|min|max", |space, key, args| {
            Ok(listed(combined(space, Some(key), args, union)?.iter()))
        }),
    ),
    of_all(
        2,
        reads("sorted.inter", "key... WEIGHTS sum|min|max", |space, key, args| {
            Ok(listed(combined(space, Some(key), args, inter)?.iter()))
        }),
    ),
    of_all(
        0,
        reads("sorted.diff", "key...", |space, key, args| {
            Ok(listed(diff(space, std::iter::once(key).chain(args))?.iter()))
        }),
    ),
    // A limit of 0: all of them.
    of_all(
        1,
        reads("sorted.count-inter", "key... limit", |space, key, args| {
            let (limit, keys) = args.split_last().ok_or(Wrong::Arguments)?;
            let limit = match unsigned(limit)? {
                0 => usize::MAX,
                limit => limit as usize,
            };
            let sources = keys_of(Some(key), keys).map(|key| Source::of(space, key)).collect::<Found<Vec<_>>>()?;
            let sources = weighted(sources, vec![1.0; keys.len() + 1]);
            Ok(count(common(&sources)?.take(limit).count()))
        }),
    ),
    of_all(
        2,
        writes("sorted.store-union", "key... WEIGHTS sum|min|max", |space, key, args| {
            let items = combined(space, None, args, union)?;
            store(space, key, items)
        }),
    ),
    of_all(
        2,
        writes("sorted.store-inter", "key... WEIGHTS sum|min|max", |space, key, args| {
            let items = combined(space, None, args, inter)?;
            store(space, key, items)
        }),
    ),
    of_all(
        0,
        writes("sorted.store-diff", "key...", |space, key, args| {
            some(args)?;
            let items = diff(space, args.iter())?;
            store(space, key, items)
        }),
    ),
];

pub fn number(text: &[u8]) -> Found<f64> {
    score::parse(text).ok_or(Wrong::NotAFloat)
}

pub(super) fn shown(score: f64) -> Reply {
    Reply::Bytes(score::shown(score).into())
}

/// Members, each with its score behind it.
fn listed<'a>(items: impl Iterator<Item = &'a Scored>) -> Reply {
    Reply::List(items.flat_map(|item| [Reply::Bytes(item.member.clone()), shown(item.score)]).collect())
}

fn is_reverse(order: &[u8]) -> Found<bool> {
    match order {
        b"forward" => Ok(false),
        b"reverse" => Ok(true),
        _ => Err(Wrong::Arguments),
    }
}

pub fn of<'a>(space: &'a Space, key: &[u8]) -> Found<Option<&'a Sorted>> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Sorted(sorted)) => Ok(Some(sorted)),
        Some(_) => Err(Wrong::Type),
    }
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Sorted) -> Reply) -> Result {
    space.change(key, Value::Sorted(Arc::default()), more, |value, size| match value {
        Value::Sorted(sorted) => {
            let reply = act(Arc::make_mut(sorted));
            *size = sorted.bytes();
            Ok(reply)
        }
        _ => Err(Wrong::Type),
    })
}

// Scores that change.

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Any,
    Absent,
    Present,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Any,
    Greater,
    Less,
}

/// Which scores may be set.
#[derive(Clone, Copy)]
struct May {
    when: When,
    /// Than the one that a member has. One without may get any.
    only: Only,
}

impl May {
    fn read(when: &[u8], only: &[u8]) -> Found<Self> {
        let when = match when {
            b"any" => When::Any,
            b"absent" => When::Absent,
            b"present" => When::Present,
            _ => return Err(Wrong::Arguments),
        };
        let only = match only {
            b"any" => Only::Any,
            b"greater" => Only::Greater,
            b"less" => Only::Less,
            _ => return Err(Wrong::Arguments),
        };
        Ok(Self { when, only })
    }

    fn score(self, now: Option<f64>, score: f64) -> bool {
        let Some(now) = now else { return self.when != When::Present };
        let fits = match self.only {
            Only::Any => true,
            Only::Greater => score > now,
            Only::Less => score < now,
        };
        fits && self.when != When::Absent
    }

    /// Would it change a sorted set?
    fn changes(self, sorted: Option<&Sorted>, item: &Scored) -> bool {
        let now = sorted.and_then(|sorted| sorted.score(&item.member));
        self.score(now, item.score) && now != Some(item.score)
    }
}

fn add(space: &mut Space, key: &Bytes, may: May, items: Vec<Scored>) -> Result {
    let now = of(space, key)?;
    // If none changes what is there now, none changes what is there after those before it.
    if !items.iter().any(|item| may.changes(now, item)) {
        return Ok(Reply::List(vec![Reply::Int(0), Reply::Int(0)]));
    }
    let new = items.iter().filter(|item| now.is_none_or(|sorted| sorted.score(&item.member).is_none()));
    let more = new.map(|item| item.member.len() + SCORED_BYTES).sum();
    change(space, key, more, |sorted| {
        let (mut added, mut changed) = (0, 0);
        for item in items {
            if may.changes(Some(sorted), &item) {
                match sorted.insert(item.member, item.score) {
                    None => added += 1,
                    Some(_) => changed += 1,
                }
            }
        }
        Reply::List(vec![count(added), count(changed)])
    })
}

// What is asked for by rank, score or member.

/// A range.
enum By<'a> {
    Rank(i64, i64),
    Score(Bound<f64>, Bound<f64>),
    Member(Bound<&'a [u8]>, Bound<&'a [u8]>),
    /// It begins behind all members, or ends before them.
    Nothing,
}

impl<'a> By<'a> {
    fn read(by: &[u8], from: &'a Bytes, to: &'a Bytes) -> Found<Self> {
        match by {
            b"rank" => Ok(Self::Rank(integer(from)?, integer(to)?)),
            b"score" => Ok(Self::Score(of_scores(from)?, of_scores(to)?)),
            b"member" => {
                let (start, end) = (of_members(from)?, of_members(to)?);
                let is_empty = &from[..] == b"+" || &to[..] == b"-";
                Ok(if is_empty { Self::Nothing } else { Self::Member(start, end) })
            }
            _ => Err(Wrong::Arguments),
        }
    }

    /// From the lowest score on.
    fn ranks(&self, sorted: &Sorted) -> Range<usize> {
        match self {
            Self::Rank(start, stop) => slice(*start, *stop, sorted.len()),
            Self::Score(min, max) => sorted.between_scores(*min, *max),
            Self::Member(min, max) => sorted.between_members(*min, *max),
            Self::Nothing => 0..0,
        }
    }
}

/// As Redis writes it: `1.5`, or `(1.5` without it.
fn of_scores(text: &[u8]) -> Found<Bound<f64>> {
    let (text, bound): (_, fn(f64) -> Bound<f64>) = match text.strip_prefix(b"(") {
        Some(text) => (text, Bound::Excluded),
        None => (text, Bound::Included),
    };
    score::edge(text).map(bound).ok_or(Wrong::NotAFloat)
}

/// As Redis writes it: `-` before all, `+` behind all, `[member`, or `(member` without it.
fn of_members(text: &[u8]) -> Found<Bound<&[u8]>> {
    match text {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', member @ ..] => Ok(Bound::Included(member)),
        [b'(', member @ ..] => Ok(Bound::Excluded(member)),
        _ => Err(Wrong::Arguments),
    }
}

/// Some of a range, from one of its ends on.
struct Slice<'a> {
    by: By<'a>,
    reverse: bool,
    offset: i64,
    count: i64,
}

const SLICE_ARGS: usize = 6;

impl<'a> Slice<'a> {
    fn read(args: &'a [Bytes]) -> Found<Self> {
        let [by, from, to, order, offset, count] = args else { return Err(Wrong::Arguments) };
        let by = By::read(by, from, to)?;
        Ok(Self { by, reverse: is_reverse(order)?, offset: integer(offset)?, count: integer(count)? })
    }

    /// From the lowest score on, whichever end they are counted from.
    fn ranks(&self, sorted: &Sorted) -> Range<usize> {
        let Range { start, end } = match self.by {
            // These count from the end.
            By::Rank(start, stop) if self.reverse => {
                let Range { start, end } = slice(start, stop, sorted.len());
                if start < end { sorted.len() - end..sorted.len() - start } else { 0..0 }
            }
            _ => self.by.ranks(sorted),
        };
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let offset = offset.min(end - start);
        let len = usize::try_from(self.count).unwrap_or(usize::MAX).min(end - start - offset);
        if self.reverse { end - offset - len..end - offset } else { start + offset..start + offset + len }
    }
}

/// Takes those with these ranks out.
fn take(space: &mut Space, key: &Bytes, ranks: Range<usize>) -> Found<Vec<Scored>> {
    if ranks.is_empty() {
        return Ok(Vec::new());
    }
    let items: Vec<Scored> = of(space, key)?.map_or(Vec::new(), |sorted| sorted.items(ranks).cloned().collect());
    change(space, key, 0, |sorted| {
        let gone = items.iter().filter(|item| sorted.remove(&item.member).is_some()).count();
        assert_eq!(gone, items.len(), "they were just seen");
        Reply::Nil
    })?;
    Ok(items)
}

/// Is it the end with the highest score?
fn end_of(end: &[u8]) -> Found<bool> {
    match end {
        b"min" => Ok(false),
        b"max" => Ok(true),
        _ => Err(Wrong::Arguments),
    }
}

fn pop(space: &mut Space, key: &Bytes, end: &[u8], count: &[u8]) -> Result {
    let (is_max, count) = (end_of(end)?, unsigned(count)?);
    space.does(if is_max { "sorted.pop-max" } else { "sorted.pop-min" });
    let Some(len) = of(space, key)?.map(Sorted::len) else { return Ok(Reply::Nil) };
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(len);
    let mut items = take(space, key, if is_max { len - count..len } else { 0..count })?;
    if is_max {
        items.reverse();
    }
    Ok(listed(items.iter()))
}

// Several sorted sets.

/// What becomes the sorted set of a key, whatever was there; how many items.
pub fn store(space: &mut Space, key: &Bytes, items: Vec<Scored>) -> Result {
    if items.is_empty() {
        space.remove(key);
        return Ok(Reply::Int(0));
    }
    let len = items.len();
    let value = Value::Sorted(Arc::new(Sorted::of(items).expect("members that come of a set are different")));
    if value.bytes() > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    space.set(key, value, 0);
    Ok(count(len))
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Nothing,
    Set(&'a BTreeSet<Bytes>),
    Sorted(&'a Sorted),
}

impl<'a> Source<'a> {
    fn of(space: &'a Space, key: &[u8]) -> Found<Self> {
        match space.get(key).map(|entry| &entry.value) {
            None => Ok(Self::Nothing),
            Some(Value::Set(set)) => Ok(Self::Set(set)),
            Some(Value::Sorted(sorted)) => Ok(Self::Sorted(sorted)),
            Some(_) => Err(Wrong::Type),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Set(set) => set.len(),
            Self::Sorted(sorted) => sorted.len(),
        }
    }

    fn score(self, member: &Bytes) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Set(set) => set.contains(member).then_some(1.0),
            Self::Sorted(sorted) => sorted.score(member),
        }
    }

    fn items(self) -> Box<dyn Iterator<Item = (&'a Bytes, f64)> + 'a> {
        match self {
            Self::Nothing => Box::new(std::iter::empty()),
            Self::Set(set) => Box::new(set.iter().map(|member| (member, 1.0))),
            Self::Sorted(sorted) => Box::new(sorted.items(0..sorted.len()).map(|item| (&item.member, item.score))),
        }
    }
}

type Weighted<'a> = (Source<'a>, f64);

/// How the scores of a member become one.
type Aggregate = fn(f64, f64) -> f64;

type Combine = fn(&[Weighted<'_>], Aggregate) -> Found<Vec<Scored>>;

fn keys_of<'a>(first: Option<&'a Bytes>, others: &'a [Bytes]) -> impl Iterator<Item = &'a Bytes> {
    first.into_iter().chain(others)
}

/// `key... WEIGHTS sum|min|max`, behind a first key if there is one: what comes of them, in order.
fn combined(space: &Space, first: Option<&Bytes>, args: &[Bytes], combine: Combine) -> Found<Vec<Scored>> {
    let [others @ .., weights, aggregate] = args else { return Err(Wrong::Arguments) };
    let sources = keys_of(first, others).map(|key| Source::of(space, key)).collect::<Found<Vec<_>>>()?;
    let weights = match &weights[..] {
        b"-" => vec![1.0; sources.len()],
        weights => weights.split(|byte| *byte == b' ').map(number).collect::<Found<Vec<_>>>()?,
    };
    if sources.is_empty() || weights.len() != sources.len() {
        return Err(Wrong::Arguments);
    }
    // As Redis: what is no number counts as 0, and never replaces a number.
    let aggregate: Aggregate = match &aggregate[..] {
        b"sum" => |a, b| or_zero(a + b),
        b"min" => |a, b| if b < a { b } else { a },
        b"max" => |a, b| if b > a { b } else { a },
        _ => return Err(Wrong::Arguments),
    };
    let mut items = combine(&weighted(sources, weights), aggregate)?;
    items.sort_unstable_by(Scored::order);
    Ok(items)
}

fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Those with few items first, as Redis: what a sum with fractions comes to depends on it.
fn weighted(sources: Vec<Source<'_>>, weights: Vec<f64>) -> Vec<Weighted<'_>> {
    let mut all: Vec<_> = sources.into_iter().zip(weights).collect();
    all.sort_by_key(|(source, _)| source.len());
    all
}

fn fits(work: usize) -> Found<()> {
    if work > COMBINED_MAX { Err(Wrong::TooLarge) } else { Ok(()) }
}

fn union(sources: &[Weighted<'_>], aggregate: Aggregate) -> Found<Vec<Scored>> {
    fits(sources.iter().map(|(source, _)| source.len()).sum())?;
    let mut all: BTreeMap<&Bytes, f64> = BTreeMap::new();
    for (source, weight) in sources {
        for (member, score) in source.items() {
            let score = or_zero(score * weight);
            all.entry(member).and_modify(|all| *all = aggregate(*all, score)).or_insert(score);
        }
    }
    Ok(all.into_iter().map(|(member, score)| Scored { member: member.clone(), score }).collect())
}

fn inter(sources: &[Weighted<'_>], aggregate: Aggregate) -> Found<Vec<Scored>> {
    let score = |member: &Bytes, score| {
        let (_, weight) = sources[0];
        let others = sources[1..].iter().map(|(source, weight)| source.score(member).unwrap_or_default() * weight);
        others.fold(or_zero(score * weight), aggregate)
    };
    let found = common(sources)?.map(|(member, first)| Scored { member: member.clone(), score: score(member, first) });
    Ok(found.collect())
}

/// Members of all, with the score that the first source has for each.
fn common<'a>(sources: &'a [Weighted<'a>]) -> Found<impl Iterator<Item = (&'a Bytes, f64)> + 'a> {
    let ((first, _), others) = sources.split_first().ok_or(Wrong::Arguments)?;
    fits(first.len().saturating_mul(sources.len()))?;
    Ok(first.items().filter(|(member, _)| others.iter().all(|(source, _)| source.score(member).is_some())))
}

/// What the first has and no other, in order. The others each once: more would only be more work.
fn diff<'a>(space: &Space, mut keys: impl Iterator<Item = &'a Bytes>) -> Found<Vec<Scored>> {
    let first = Source::of(space, keys.next().ok_or(Wrong::Arguments)?)?;
    let mut seen = BTreeSet::new();
    let others = keys.filter(|key| seen.insert(*key)).map(|key| Source::of(space, key)).collect::<Found<Vec<_>>>()?;
    fits(first.len().saturating_mul(others.len() + 1))?;
    let is_alone = |(member, _): &(&Bytes, f64)| others.iter().all(|source| source.score(member).is_none());
    let left = first.items().filter(is_alone).map(|(member, score)| Scored { member: member.clone(), score });
    let mut items: Vec<_> = left.collect();
    items.sort_unstable_by(Scored::order);
    Ok(items)
}
