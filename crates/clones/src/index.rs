//! The entries of a route table that have the same host and prefix, found by what a request is instead of one by one: by the
//! value of a header, the end of the path, a part of it, the hash, the port. An entry stands under one of its conditions and is then
//! looked at whole, so which one it is makes no difference to what is found; those without such a condition are walked.

use aho_corasick::{AhoCorasick, MatchKind};
use base::hash::FixedMap;

use crate::Partition;
use crate::partition::{Asked, Fraction, HashOn};

/// Header names that are looked up, and kinds of hash. Each costs every request a search in its header; entries with
/// further ones are walked.
const KINDS_MAX: usize = 16;
/// Fewer parts of paths than this are looked for one by one: an automaton is no faster, and takes room for each prefix.
const PARTS_MIN: usize = 8;
/// Ranges of hashes may overlap: all lists together have at most so many times as many places as there are entries.
const OVERLAP_MAX: usize = 4;

/// Entries by the very bytes that they demand.
type Exact = FixedMap<Box<[u8]>, Vec<u32>>;
/// An entry, and where the range of hashes begins and ends that it takes.
type Range = (u32, Fraction, Fraction);

/// All lists are ascending.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Index {
    walked: Vec<u32>,
    /// Conditions on header fields: by the field's name, then by its value.
    headers: Vec<(Box<str>, Exact)>,
    /// Conditions on the end of the path: by its length, then by the end itself.
    suffixes: Vec<(usize, Exact)>,
    parts: Option<Parts>,
    hashes: Vec<Slices>,
    ports: FixedMap<u16, Vec<u32>>,
}

/// What is hashed, and where each slice of the hashes begins, with the entries that take it.
#[derive(PartialEq, Eq, Debug)]
struct Slices {
    on: HashOn,
    slices: Vec<(Fraction, Vec<u32>)>,
}

/// Parts of paths, all looked for at once.
#[derive(Debug)]
struct Parts {
    search: AhoCorasick,
    /// In the order in which `search` numbers them, with the entries that ask for each.
    all: Vec<(Box<str>, Vec<u32>)>,
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for Parts {}

impl Parts {
    /// None if they are too few, or too many for an automaton: then their entries are to be walked.
    fn new(mut entries: FixedMap<Box<str>, Vec<u32>>, walked: &mut Vec<u32>) -> Option<Self> {
        let mut all: Vec<_> = entries.drain().collect();
        all.sort_unstable();
        let search = AhoCorasick::builder().match_kind(MatchKind::Standard).build(all.iter().map(|(part, _)| &**part));
        match search {
            Ok(search) if all.len() >= PARTS_MIN => Some(Self { search, all }),
            _ => {
                walked.extend(all.into_iter().flat_map(|(_, entries)| entries));
                None
            }
        }
    }
}

impl Index {
    /// Makes the index of entries, which come in ascending order as number and conditions.
    pub fn new<'a>(entries: impl Iterator<Item = (u32, Option<&'a Partition>)>) -> Self {
        let mut index = Self::default();
        let mut parts: FixedMap<Box<str>, Vec<u32>> = FixedMap::default();
        let mut hashed: Vec<(&HashOn, Vec<Range>)> = Vec::new();
        for (entry, of) in entries {
            let Some(of) = of else {
                index.walked.push(entry);
                continue;
            };
            let exact = of.header.iter().find_map(|header| Some((&header.name, header.is.as_ref()?)));
            if let Some((name, value)) = exact
                && let Some(values) = kind(&mut index.headers, |had| had.eq_ignore_ascii_case(name), || (**name).into())
            {
                values.entry(value.as_bytes().into()).or_default().push(entry);
            } else if let Some(suffix) = &of.path_suffix {
                let of_length = match index.suffixes.iter().position(|(length, _)| *length == suffix.len()) {
                    Some(at) => at,
                    None => {
                        index.suffixes.push((suffix.len(), FixedMap::default()));
                        index.suffixes.len() - 1
                    }
                };
                index.suffixes[of_length].1.entry(suffix.as_bytes().into()).or_default().push(entry);
            } else if let Some(part) = &of.path_contains {
                parts.entry(part.as_str().into()).or_default().push(entry);
            } else if let Some(range) = &of.hash_range
                && let Some(ranges) = kind(&mut hashed, |had| **had == range.on, || &range.on)
            {
                ranges.push((entry, range.from, range.to));
            } else if let Some(port) = of.port {
                index.ports.entry(port).or_default().push(entry);
            } else {
                index.walked.push(entry);
            }
        }
        index.parts = Parts::new(parts, &mut index.walked);
        for (on, ranges) in hashed {
            match slices(&ranges) {
                Some(slices) => index.hashes.push(Slices { on: on.clone(), slices }),
                None => index.walked.extend(ranges.iter().map(|range| range.0)),
            }
        }
        index.walked.sort_unstable();
        index
    }

    /// The first entry that takes it and stands before `best`; else `best`. `takes` looks at all conditions of one.
    pub fn first(&self, asked: &Asked<'_>, best: u32, takes: impl Fn(u32) -> bool) -> u32 {
        let among = |list: &[u32], best: u32| {
            list.iter().copied().take_while(|entry| *entry < best).find(|entry| takes(*entry)).unwrap_or(best)
        };
        let mut best = among(&self.walked, best);
        for (name, values) in &self.headers {
            asked.headers.any(name, &mut |value| {
                best = values.get(value).map_or(best, |list| among(list, best));
                false
            });
        }
        let path = asked.path.as_bytes();
        for (length, ends) in &self.suffixes {
            let end = path.len().checked_sub(*length).map(|at| &path[at..]);
            best = end.and_then(|end| ends.get(end)).map_or(best, |list| among(list, best));
        }
        if let Some(parts) = &self.parts {
            for found in parts.search.find_overlapping_iter(asked.path) {
                best = among(&parts.all[found.pattern().as_usize()].1, best);
            }
        }
        for Slices { on, slices } in &self.hashes {
            let Some(at) = on.key(asked).map(Fraction::of_hash) else { continue };
            let slice = slices.partition_point(|(from, _)| *from <= at).checked_sub(1);
            best = slice.map_or(best, |slice| among(&slices[slice].1, best));
        }
        self.ports.get(&asked.port).map_or(best, |list| among(list, best))
    }
}

/// The place of a kind among those that there are, or a new one; none if there are too many.
fn kind<K, V: Default>(all: &mut Vec<(K, V)>, is: impl Fn(&K) -> bool, new: impl Fn() -> K) -> Option<&mut V> {
    let at = match all.iter().position(|(had, _)| is(had)) {
        Some(at) => at,
        None if all.len() == KINDS_MAX => return None,
        None => {
            all.push((new(), V::default()));
            all.len() - 1
        }
    };
    Some(&mut all[at].1)
}

/// The ranges as slices that do not overlap; none if that would take too much room.
fn slices(ranges: &[Range]) -> Option<Vec<(Fraction, Vec<u32>)>> {
    let mut borders: Vec<Fraction> = ranges.iter().flat_map(|(_, from, to)| [*from, *to]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut slices: Vec<(Fraction, Vec<u32>)> = borders.into_iter().map(|border| (border, Vec::new())).collect();
    let mut room = ranges.len() * OVERLAP_MAX;
    for (entry, from, to) in ranges {
        let first = slices.partition_point(|(border, _)| border < from);
        for (_, list) in slices[first..].iter_mut().take_while(|(border, _)| border < to) {
            room = room.checked_sub(1)?;
            list.push(*entry);
        }
    }
    Some(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_say_which_ranges_have_each_hash() {
        let range = |entry, from, to| (entry, Fraction(from), Fraction(to));
        let found = slices(&[range(1, 0, 50), range(2, 20, 70), range(3, 50, 60)]).unwrap();
        let expect = [(0, vec![1]), (20, vec![1, 2]), (50, vec![2, 3]), (60, vec![2]), (70, vec![])];
        assert_eq!(found, expect.map(|(from, list)| (Fraction(from), list)));
    }

    #[test]
    fn ranges_that_all_overlap_take_no_room() {
        let all: Vec<_> = (0..1_000).map(|n| (n, Fraction(n as u16), Fraction(10_000))).collect();
        assert_eq!(slices(&all), None);
    }
}
