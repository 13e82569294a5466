//! A set of dots: of each life the contiguous part and ranges beyond it. It says what is accounted for, so what is missing
//! between two members is the exact difference of two contexts.
//!
//! Lives that are over are folded, or it would grow with each start of a node: "of this node all below that boot", and a sum over what
//! their lines were. Who has the lines finds by the sum that they are the same, and folds them, too.

use std::collections::BTreeMap;

use base::checksum::place_hash;
use base::{Boot, NodeId};

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

/// Lives of one node of which everything is accounted for, also what they never gave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Folded {
    /// All lives below this one.
    pub below: Boot,
    /// Of the ranges that their lines had.
    pub sum: u64,
}

/// Invariant: no life without ranges; ranges of a life are `first → last`, in order, with a gap before each; none of a life that is folded.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Context {
    lives: BTreeMap<Life, BTreeMap<u64, u64>>,
    folded: BTreeMap<NodeId, Folded>,
}

impl Context {
    pub fn contains(&self, dot: Dot) -> bool {
        self.around(dot.life, dot.seq).is_some_and(|(_, last)| dot.seq <= last) || self.is_over(dot.life)
    }

    /// Everything of this life is accounted for.
    pub fn is_over(&self, life: Life) -> bool {
        life.boot < self.folded_of(life.node).below
    }

    pub fn folded_of(&self, node: NodeId) -> Folded {
        self.folded.get(&node).copied().unwrap_or_default()
    }

    pub fn folded(&self) -> impl Iterator<Item = (NodeId, Folded)> + '_ {
        self.folded.iter().map(|(node, folded)| (*node, *folded))
    }

    /// The last range that begins at `seq` or before.
    fn around(&self, life: Life, seq: u64) -> Option<(u64, u64)> {
        self.lives.get(&life)?.range(..=seq).next_back().map(|(&first, &last)| (first, last))
    }

    /// All of its life up to this one is here.
    pub fn has_all_to(&self, dot: Dot) -> bool {
        self.around(dot.life, 1).is_some_and(|(_, last)| dot.seq <= last) || self.is_over(dot.life)
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
        if self.is_over(range.life) {
            return;
        }
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
        self.join_folded(other);
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

    /// Adds those lives that are folded there.
    pub fn join_folded(&mut self, other: &Self) {
        other.folded().for_each(|(node, folded)| self.is_told_over(node, folded));
    }

    /// Another one has told it.
    pub fn is_told_over(&mut self, node: NodeId, folded: Folded) {
        self.set_folded(node, folded.max(self.folded_of(node)));
    }

    fn set_folded(&mut self, node: NodeId, folded: Folded) {
        let over = self.lives.range(Life { node, boot: Boot(0) }..Life { node, boot: folded.below });
        let over: Vec<Life> = over.map(|(life, _)| *life).collect();
        over.iter().for_each(|life| drop(self.lives.remove(life)));
        self.folded.insert(node, folded);
    }

    /// What it would have folded with all lives of the node below this one.
    fn would_fold(&self, node: NodeId, below: Boot) -> Folded {
        let before = self.folded_of(node);
        let lines = self.lives.range(Life { node, boot: before.below }..Life { node, boot: below });
        let sum = lines.fold(before.sum, |sum, (life, ranges)| {
            let numbers = ranges.iter().flat_map(|(first, last)| [*first, *last]);
            let bytes: Vec<u8> =
                [life.node.0, life.boot.0].into_iter().chain(numbers).flat_map(u64::to_be_bytes).collect();
            sum.wrapping_add(place_hash(&bytes))
        });
        Folded { below, sum }
    }

    /// Folds lives of a node that are over, and of which nobody has anything that is not here.
    pub fn fold(&mut self, node: NodeId, below: Boot) {
        // No life is below the first.
        if below > self.folded_of(node).below.max(Boot(1)) {
            self.set_folded(node, self.would_fold(node, below));
        }
    }

    /// Folds what is folded there, if that is what is here. True if something was.
    pub fn adopts(&mut self, other: &Self) -> bool {
        let mut has_adopted = false;
        for (node, theirs) in other.folded() {
            let mine = self.folded_of(node);
            let is_same = theirs.below > mine.below && self.would_fold(node, theirs.below) == theirs;
            // One book with two sums is told by nobody honest; all settle on one.
            if is_same || theirs.below == mine.below && theirs.sum > mine.sum {
                self.set_folded(node, theirs);
                has_adopted = true;
            }
        }
        has_adopted
    }

    /// Up to where lives of this node below `boot` have the same lines here and in all of these.
    pub fn agreed(&self, node: NodeId, boot: Boot, others: &[&Self]) -> Boot {
        let mut below = self.folded_of(node).below;
        let within = Life { node, boot: below }..Life { node, boot: below.max(boot) };
        let all = others.iter().copied().chain([self]).flat_map(|of| of.lives.range(within.clone()));
        let all: std::collections::BTreeSet<Life> = all.map(|(life, _)| *life).collect();
        for life in all {
            // Who has folded it has other lines: else they would be folded here, too.
            let is_same = |other: &&Self| !other.is_over(life) && other.lives.get(&life) == self.lives.get(&life);
            if !others.iter().all(is_same) {
                break;
            }
            below = Boot(life.boot.0 + 1);
        }
        below
    }

    /// How many lines it has.
    #[cfg(test)]
    pub fn lines(&self) -> usize {
        self.lives.len() + self.folded.len()
    }

    /// What is here and not there, in order. Lives that are folded here and not there are not told by it: nobody knows their lines.
    pub fn minus(&self, other: &Self) -> Vec<Range> {
        let mut left = Vec::new();
        for Range { life, mut first, last } in self.ranges().filter(|range| !other.is_over(range.life)) {
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
        let mut both: Self = self.minus(&alone).into_iter().collect();
        other.ranges().filter(|range| self.is_over(range.life)).for_each(|range| both.insert_range(range));
        let folded = self.folded().map(|(node, mine)| (node, mine.min(other.folded_of(node))));
        folded.filter(|(_, folded)| folded.below > Boot(0)).for_each(|(node, folded)| both.set_folded(node, folded));
        both
    }

    /// False also where only lines are there of what is folded here: see [`Context::adopts`].
    pub fn is_within(&self, other: &Self) -> bool {
        self.folded().all(|(node, mine)| mine.below <= other.folded_of(node).below) && self.minus(other).is_empty()
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

    const NODE: NodeId = NodeId(1);

    /// A context of three lives of one node, some of which are over, and the same as a plain set of what they can give.
    fn with_folded() -> impl Strategy<Value = (Context, BTreeSet<Dot>)> {
        (prop::collection::vec((1..4u64, 1..6u64, 0..3u64), 0..8), 0..4u64).prop_map(|(told, below)| {
            let mut context = Context::default();
            for (boot, first, more) in told {
                context.insert_range(Range { life: Life { node: NODE, boot: Boot(boot) }, first, last: first + more });
            }
            context.fold(NODE, Boot(below));
            let set = all().filter(|dot| context.contains(*dot)).collect();
            (context, set)
        })
    }

    fn all() -> impl Iterator<Item = Dot> {
        (1..4).flat_map(|boot| (1..9).map(move |seq| Dot { life: Life { node: NODE, boot: Boot(boot) }, seq }))
    }

    proptest! {
        #[test]
        fn what_is_folded_is_all_of_it((a, plain_a) in with_folded(), (b, plain_b) in with_folded()) {
            let set = |of: &Context| all().filter(|dot| of.contains(*dot)).collect::<BTreeSet<Dot>>();
            let mut joined = a.clone();
            joined.join(&b);
            let mut again = b.clone();
            again.join(&a);
            prop_assert_eq!(&joined, &again);
            prop_assert_eq!(set(&joined), &plain_a | &plain_b);
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            prop_assert_eq!(set(&a.meet(&b)), &plain_a & &plain_b);
            let minus: Context = a.minus(&b).into_iter().collect();
            prop_assert!(set(&minus).is_subset(&(&plain_a - &plain_b)));
            prop_assert!(!a.is_within(&b) || plain_a.is_subset(&plain_b));
            prop_assert!(a.is_within(&joined) && a.meet(&b).is_within(&a));
            // Who has the same lines, and nobody else, takes over what is folded elsewhere.
            let told = crate::wire::tell(&a);
            prop_assert_eq!(crate::wire::context(&told), Some(a.clone()));
            let mut adopts = b.clone();
            let has = adopts.adopts(&a);
            prop_assert_eq!(has, adopts != b);
            let lines = |of: &Context| of.ranges().filter(|range| a.is_over(range.life)).collect::<Vec<_>>();
            prop_assert!(!has || lines(&b).is_empty() || a.folded_of(NODE).sum != 0);
        }

        #[test]
        fn folded_alone_what_was_the_same(told in prop::collection::vec((1..4u64, 1..6u64), 1..8), below in 1..5u64, more in 1..4u64) {
            let life = |boot| Life { node: NODE, boot: Boot(boot) };
            let mut a = Context::default();
            told.iter().for_each(|(boot, seq)| a.insert(Dot { life: life(*boot), seq: *seq }));
            let mut b = a.clone();
            let mut c = a.clone();
            // One that has more than was folded is another set.
            c.insert(Dot { life: life(more), seq: 8 });
            a.fold(NODE, Boot(below));
            b.adopts(&a);
            prop_assert_eq!(&a, &b);
            // No life is below the first.
            prop_assert_eq!(c.adopts(&a), below > 1 && more >= below);
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
