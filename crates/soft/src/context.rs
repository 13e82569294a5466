//! A set of dots: of each life the contiguous part and ranges beyond it. It says what is accounted for, so what is missing
//! between two members is the exact difference of two contexts.

use std::collections::BTreeMap;

use crate::dot::{Dot, Life};
use crate::limits::{RANGES_MAX, SEQ_MAX};

/// Numbers `first..=last` of one life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Range {
    pub life: Life,
    pub first: u64,
    pub last: u64,
}

impl Range {
    /// A range as outside bytes tell it; none if it is empty or beyond what a life can give.
    pub fn told(life: Life, first: u64, last: u64) -> Option<Self> {
        (1 <= first && first <= last && last <= SEQ_MAX).then_some(Self { life, first, last })
    }
}

impl From<Dot> for Range {
    fn from(dot: Dot) -> Self {
        Self { life: dot.life, first: dot.seq, last: dot.seq }
    }
}

/// Invariant: no life without ranges; ranges of a life are `first → last`, in order, with a gap before each.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Context {
    lives: BTreeMap<Life, BTreeMap<u64, u64>>,
}

impl Context {
    pub fn contains(&self, dot: Dot) -> bool {
        self.around(dot.life, dot.seq).is_some_and(|(_, last)| dot.seq <= last)
    }

    /// The last range that begins at `seq` or before.
    fn around(&self, life: Life, seq: u64) -> Option<(u64, u64)> {
        self.lives.get(&life)?.range(..=seq).next_back().map(|(&first, &last)| (first, last))
    }

    /// All of its life up to this one is here.
    pub fn has_all_to(&self, dot: Dot) -> bool {
        self.around(dot.life, 1).is_some_and(|(_, last)| dot.seq <= last)
    }

    /// All of `1..=n` is here, and not `n + 1`.
    #[cfg(test)]
    pub fn contiguous(&self, life: Life) -> u64 {
        self.around(life, 1).map_or(0, |(_, last)| last)
    }

    /// Whether adding the dot keeps the ranges of its life within their bound.
    pub fn has_room(&self, dot: Dot) -> bool {
        let Some(ranges) = self.lives.get(&dot.life) else { return true };
        ranges.len() < RANGES_MAX
            || self.contains(dot)
            || self.around(dot.life, dot.seq).is_some_and(|(_, last)| last + 1 == dot.seq)
            || ranges.contains_key(&(dot.seq + 1))
    }

    pub fn insert(&mut self, dot: Dot) {
        self.insert_range(dot.into());
    }

    /// Adds a range and melts it with those that it meets.
    pub fn insert_range(&mut self, range: Range) {
        assert!(1 <= range.first && range.first <= range.last && range.last <= SEQ_MAX, "no range: {range:?}");
        let ranges = self.lives.entry(range.life).or_default();
        let (mut first, mut last) = (range.first, range.last);
        // From the right: those that begin within, or right behind, what has been melted so far.
        while let Some((&at, &end)) = ranges.range(..=last + 1).next_back() {
            if end + 1 < first {
                break;
            }
            ranges.remove(&at);
            (first, last) = (first.min(at), last.max(end));
        }
        ranges.insert(first, last);
    }

    /// Takes a range away.
    pub fn remove_range(&mut self, Range { life, first, last }: Range) {
        let Some(ranges) = self.lives.get_mut(&life) else { return };
        let from = ranges.range(..=first).next_back().map_or(first, |(at, _)| *at);
        let met: Vec<(u64, u64)> = ranges.range(from..=last).map(|(at, end)| (*at, *end)).collect();
        for (at, end) in met.into_iter().filter(|(_, end)| *end >= first) {
            ranges.remove(&at);
            if at < first {
                ranges.insert(at, first - 1);
            }
            if end > last {
                ranges.insert(last + 1, end);
            }
        }
        if ranges.is_empty() {
            self.lives.remove(&life);
        }
    }

    pub fn join(&mut self, other: &Self) {
        other.ranges().for_each(|range| self.insert_range(range));
    }

    pub fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        self.lives
            .iter()
            .flat_map(|(&life, ranges)| ranges.iter().map(move |(&first, &last)| Range { life, first, last }))
    }

    pub fn ranges_of(&self, life: Life) -> impl Iterator<Item = Range> + '_ {
        let of = self.lives.get(&life).into_iter().flatten();
        of.map(move |(&first, &last)| Range { life, first, last })
    }

    /// What is here and not there, in order.
    pub fn minus(&self, other: &Self) -> Vec<Range> {
        let mut left = Vec::new();
        for Range { life, mut first, last } in self.ranges() {
            let from = other.around(life, first).map_or(first, |(at, _)| at);
            for (&at, &end) in other.lives.get(&life).into_iter().flat_map(|there| there.range(from..=last)) {
                if first < at {
                    left.push(Range { life, first, last: at - 1 });
                }
                first = first.max(end + 1);
            }
            if first <= last {
                left.push(Range { life, first, last });
            }
        }
        left
    }

    /// What is in both.
    pub fn meet(&self, other: &Self) -> Self {
        let alone: Self = self.minus(other).into_iter().collect();
        self.minus(&alone).into_iter().collect()
    }

    pub fn is_within(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }
}

impl FromIterator<Range> for Context {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut context = Self::default();
        ranges.into_iter().for_each(|range| context.insert_range(range));
        context
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::{Boot, NodeId};
    use proptest::prelude::*;

    use super::*;

    fn dot(node: u64, seq: u64) -> Dot {
        Dot { life: Life { node: NodeId(node), boot: Boot(1) }, seq }
    }

    /// A context, and the same as a plain set.
    fn sets() -> impl Strategy<Value = (Context, BTreeSet<Dot>)> {
        prop::collection::vec((0..2u64, 1..20u64, 0..4u64), 0..12).prop_map(|told| {
            let mut both = (Context::default(), BTreeSet::new());
            for (node, first, more) in told {
                both.0.insert_range(Range { life: dot(node, 1).life, first, last: first + more });
                both.1.extend((first..=first + more).map(|seq| dot(node, seq)));
            }
            both
        })
    }

    fn plain(context: &Context) -> BTreeSet<Dot> {
        context.ranges().flat_map(|r| (r.first..=r.last).map(move |seq| Dot { life: r.life, seq })).collect()
    }

    proptest! {
        #[test]
        fn a_context_is_a_set((a, plain_a) in sets(), (b, plain_b) in sets()) {
            prop_assert_eq!(plain(&a), plain_a.clone());
            for node in 0..2 {
                for seq in 1..26 {
                    prop_assert_eq!(a.contains(dot(node, seq)), plain_a.contains(&dot(node, seq)));
                }
            }
            let minus: Context = a.minus(&b).into_iter().collect();
            prop_assert_eq!(plain(&minus), &plain_a - &plain_b);
            prop_assert_eq!(plain(&a.meet(&b)), &plain_a & &plain_b);
            prop_assert_eq!(a.is_within(&b), plain_a.is_subset(&plain_b));
            let mut without = a.clone();
            b.ranges().for_each(|range| without.remove_range(range));
            prop_assert_eq!(&without, &minus);
            let mut joined = a.clone();
            joined.join(&b);
            prop_assert_eq!(plain(&joined), &plain_a | &plain_b);
            // One set, one form: contexts are compared by what stands in them.
            prop_assert_eq!(joined, (&plain_a | &plain_b).into_iter().rev().map(Range::from).collect::<Context>());
        }
    }

    #[test]
    fn endless_gaps_have_no_room() {
        let mut context = Context::default();
        for seq in (1..).step_by(2).take(RANGES_MAX) {
            assert!(context.has_room(dot(0, seq)));
            context.insert(dot(0, seq));
        }
        let beyond = 2 * RANGES_MAX as u64 + 7;
        assert!(!context.has_room(dot(0, beyond)), "a range more");
        assert!(context.has_room(dot(0, 2)), "what closes a gap has room");
        assert!(context.has_room(dot(0, 2 * RANGES_MAX as u64)), "what makes a range longer has room");
        assert!(context.has_room(dot(1, beyond)), "another life has ranges of its own");
        assert_eq!(context.contiguous(dot(0, 1).life), 1);
        context.insert(dot(0, 2));
        assert_eq!(context.contiguous(dot(0, 1).life), 3);
    }

    #[test]
    fn ranges_that_nobody_can_have_given_are_refused() {
        let life = dot(0, 1).life;
        for (first, last) in [(0, 3), (3, 2), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(Range::told(life, first, last), None, "{first}..={last}");
        }
        assert!(Range::told(life, 1, SEQ_MAX).is_some());
        assert_eq!(Dot::told(life, 0), None);
    }
}
