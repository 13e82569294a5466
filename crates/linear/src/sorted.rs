//! A sorted set: members with scores, in the order of scores and then of members' bytes. A copy is one pointer, and a change
//! under a copy copies one path of a tree: a step costs by the logarithm of the members, and by what it gives back.
//!
//! Two trees hold it: one by member, one by score. Both count what lies below each branch, so a rank is found as fast as a
//! member. How a tree has grown shows in nothing that it gives: replicas have it from entries or from a snapshot.

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;

/// Items of a leaf, branches of a branch. A change under a copy copies so many for each of few storeys.
const NODE_MAX: usize = 32;
/// One with fewer is put together with a neighbour, if both have room in one node ...
const NODE_FEW: usize = NODE_MAX / 4;
/// ... that is not full then, so that the next one does not split it again.
const NODE_JOINED: usize = NODE_MAX * 3 / 4;

const _: () = assert!(NODE_FEW < NODE_JOINED && NODE_JOINED < NODE_MAX, "who is joined is not split at once");

/// The level from which there are sorted sets (`base/src/level.rs`): no function of an older level makes one.
pub const LEVEL: u32 = 4;

/// Of one that is built at once: there is room for what comes between.
const NODE_FILLED: usize = NODE_JOINED;

/// What an item counts beside its member's bytes: 16 for the member as in a set, and its score.
pub const SCORED_BYTES: usize = crate::value::ITEM_BYTES + size_of::<f64>();

#[derive(Clone, PartialEq, Debug)]
pub struct Scored {
    pub member: Bytes,
    /// Invariant: in a sorted set a number, maybe an infinite one, and no zero below zero: they could not be told apart by their order.
    pub score: f64,
}

#[derive(Clone, Default, Debug)]
pub struct Sorted {
    by_member: Tree,
    by_score: Tree,
    /// Of all members.
    bytes: usize,
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.items(0..self.len()).eq(other.items(0..other.len()))
    }
}

impl Sorted {
    /// Of items in any order. None, if a member stands twice or a score is no number.
    pub fn of(mut items: Vec<Scored>) -> Option<Self> {
        if items.iter().any(|item| item.score.is_nan()) {
            return None;
        }
        items.iter_mut().for_each(|item| item.score = without_sign(item.score));
        let bytes = items.iter().map(|item| item.member.len()).sum();
        items.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        if items.windows(2).any(|pair| pair[0].member == pair[1].member) {
            return None;
        }
        let by_member = Tree::of(items.clone());
        items.sort_unstable_by(Scored::order);
        Some(Self { by_member, by_score: Tree::of(items), bytes })
    }

    pub fn len(&self) -> usize {
        self.by_member.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it counts.
    pub fn bytes(&self) -> usize {
        self.bytes + self.len() * SCORED_BYTES
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let at = self.by_member.place(|item| item.member[..] < *member);
        self.by_member.get(at).filter(|item| item.member[..] == *member).map(|item| item.score)
    }

    /// Gives a member a score; which one it had.
    pub fn insert(&mut self, member: Bytes, score: f64) -> Option<f64> {
        assert!(!score.is_nan(), "what is no number has no place in an order");
        let old = self.remove(&member);
        self.bytes += member.len();
        let item = Scored { member, score: without_sign(score) };
        self.by_member.insert(item.clone(), |other| other.member < item.member);
        self.by_score.insert(item.clone(), |other| order(other, item.score, &item.member).is_lt());
        old
    }

    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.score(member)?;
        self.by_member.remove(self.by_member.place(|item| item.member[..] < *member));
        self.by_score.remove(self.by_score.place(|item| order(item, score, member).is_lt()));
        self.bytes -= member.len();
        Some(score)
    }

    /// How many have a place below the member's.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.by_score.place(|item| order(item, score, member).is_lt()))
    }

    /// Ranks of those whose scores lie between these; an empty range, if there are none.
    pub fn between_scores(&self, min: Bound<f64>, max: Bound<f64>) -> Range<usize> {
        let start = match min {
            Bound::Unbounded => 0,
            Bound::Included(min) => self.by_score.place(|item| item.score < min),
            Bound::Excluded(min) => self.by_score.place(|item| item.score <= min),
        };
        let end = match max {
            Bound::Unbounded => self.len(),
            Bound::Included(max) => self.by_score.place(|item| item.score <= max),
            Bound::Excluded(max) => self.by_score.place(|item| item.score < max),
        };
        start..end.max(start)
    }

    /// Ranks of those whose members lie between these, where all scores are the same. Where they are not it means nothing, but
    /// is the same for the same items: it is looked for by places, not along branches.
    pub fn between_members(&self, min: Bound<&[u8]>, max: Bound<&[u8]>) -> Range<usize> {
        let start = match min {
            Bound::Unbounded => 0,
            Bound::Included(min) => self.first_rank(|member| *member >= *min),
            Bound::Excluded(min) => self.first_rank(|member| *member > *min),
        };
        let end = match max {
            Bound::Unbounded => self.len(),
            Bound::Included(max) => self.first_rank(|member| *member > *max),
            Bound::Excluded(max) => self.first_rank(|member| *member >= *max),
        };
        start..end.max(start)
    }

    /// The rank of the first member that is past something.
    fn first_rank(&self, is_past: impl Fn(&[u8]) -> bool) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from + (to - from) / 2;
            let item = self.by_score.get(middle).expect("it is below their number");
            if is_past(&item.member) { to = middle } else { from = middle + 1 }
        }
        from
    }

    /// Those behind a place in the order of members, in that order.
    pub fn from_member(&self, from: Bound<&[u8]>) -> impl Iterator<Item = &Scored> {
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(from) => self.by_member.place(|item| item.member[..] < *from),
            Bound::Excluded(from) => self.by_member.place(|item| item.member[..] <= *from),
        };
        Items { tree: &self.by_member, start, end: self.len(), front: &[], back: &[] }
    }

    /// Those with these ranks, from either end.
    pub fn items(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = &Scored> {
        let Range { start, end } = ranks;
        Items { tree: &self.by_score, start, end: end.min(self.len()), front: &[], back: &[] }
    }
}

impl Scored {
    /// Redis' order of items.
    pub fn order(&self, other: &Self) -> Ordering {
        order(self, other.score, &other.member)
    }
}

/// Zero has none, as in Redis' sorted sets of few members.
fn without_sign(score: f64) -> f64 {
    if score == 0.0 { 0.0 } else { score }
}

/// Redis' order. Zeros are equal, whatever their signs.
fn order(item: &Scored, score: f64, member: &[u8]) -> Ordering {
    let scores = item.score.partial_cmp(&score).expect("scores are numbers");
    scores.then_with(|| item.member[..].cmp(member))
}

#[derive(Clone, Default, Debug)]
struct Tree {
    root: Arc<Node>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Scored>),
    /// Invariant: each has something in it, all are of one height, `from` is not below what lies in those before it.
    Branch(Vec<Branch>),
}

#[derive(Clone, Debug)]
struct Branch {
    /// Not above what lies in it. Nobody asks the first one of a node for it.
    from: Scored,
    len: usize,
    node: Arc<Node>,
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl Tree {
    /// Of items that are in order.
    fn of(items: Vec<Scored>) -> Self {
        let leaf =
            |items: Vec<Scored>| Branch { from: items[0].clone(), len: items.len(), node: Arc::new(Node::Leaf(items)) };
        let branch = |below: Vec<Branch>| Branch {
            from: below[0].from.clone(),
            len: below.iter().map(|branch| branch.len).sum(),
            node: Arc::new(Node::Branch(below)),
        };
        let len = items.len();
        let mut nodes: Vec<Branch> = filled(items).map(leaf).collect();
        while nodes.len() > 1 {
            nodes = filled(nodes).map(branch).collect();
        }
        Self { root: nodes.pop().map(|branch| branch.node).unwrap_or_default(), len }
    }

    /// How many are before a place in the order: all that come first and are so.
    fn place(&self, is_before: impl Fn(&Scored) -> bool) -> usize {
        let (mut node, mut before) = (&*self.root, 0);
        loop {
            match node {
                Node::Leaf(items) => return before + items.partition_point(&is_before),
                Node::Branch(branches) => {
                    let at = branches[1..].partition_point(|branch| is_before(&branch.from));
                    before += branches[..at].iter().map(|branch| branch.len).sum::<usize>();
                    node = &branches[at].node;
                }
            }
        }
    }

    fn get(&self, at: usize) -> Option<&Scored> {
        let (leaf, at) = self.leaf(at)?;
        Some(&leaf[at])
    }

    /// The leaf that has the item at this place, and where in it.
    fn leaf(&self, mut at: usize) -> Option<(&[Scored], usize)> {
        if at >= self.len {
            return None;
        }
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return Some((items, at)),
                Node::Branch(branches) => node = &branches[branch_of(branches, &mut at)].node,
            }
        }
    }

    fn insert(&mut self, item: Scored, is_before: impl Fn(&Scored) -> bool) {
        self.len += 1;
        let Some(upper) = Arc::make_mut(&mut self.root).insert(item, &is_before) else { return };
        let lower = std::mem::take(&mut self.root);
        let lower = Branch { from: upper.from.clone(), len: self.len - upper.len, node: lower };
        self.root = Arc::new(Node::Branch(vec![lower, upper]));
    }

    fn remove(&mut self, at: usize) {
        assert!(at < self.len, "it was just found");
        self.len -= 1;
        Arc::make_mut(&mut self.root).remove(at);
        // A root with one branch is a storey for nothing.
        while let Node::Branch(branches) = &*self.root {
            let [only] = &branches[..] else { break };
            self.root = only.node.clone();
        }
    }
}

/// What goes into one node each.
fn filled<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || Some(all.by_ref().take(NODE_FILLED).collect()).filter(|some: &Vec<T>| !some.is_empty()))
}

/// The upper half of what a node has, if that is too much.
fn halved<T>(all: &mut Vec<T>) -> Option<Vec<T>> {
    let upper = (all.len() > NODE_MAX).then(|| all.split_off(NODE_MAX / 2))?;
    // It has grown to twice the room of a full one. What comes in order never comes back to the lower half.
    all.shrink_to_fit();
    Some(upper)
}

impl Node {
    /// Its upper half, if it had too many.
    fn insert(&mut self, item: Scored, is_before: &impl Fn(&Scored) -> bool) -> Option<Branch> {
        match self {
            Node::Leaf(items) => {
                items.insert(items.partition_point(is_before), item);
                let upper = halved(items)?;
                Some(Branch { from: upper[0].clone(), len: upper.len(), node: Arc::new(Node::Leaf(upper)) })
            }
            Node::Branch(branches) => {
                let at = branches[1..].partition_point(|branch| is_before(&branch.from));
                branches[at].len += 1;
                let upper = Arc::make_mut(&mut branches[at].node).insert(item, is_before)?;
                branches[at].len -= upper.len;
                branches.insert(at + 1, upper);
                let upper = halved(branches)?;
                let len = upper.iter().map(|branch| branch.len).sum();
                Some(Branch { from: upper[0].from.clone(), len, node: Arc::new(Node::Branch(upper)) })
            }
        }
    }

    fn remove(&mut self, mut at: usize) {
        match self {
            Node::Leaf(items) => drop(items.remove(at)),
            Node::Branch(branches) => {
                let of = branch_of(branches, &mut at);
                branches[of].len -= 1;
                Arc::make_mut(&mut branches[of].node).remove(at);
                if branches[of].node.width() < NODE_FEW {
                    join(branches, of);
                }
            }
        }
    }

    fn width(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Branch(branches) => branches.len(),
        }
    }
}

/// Which branch has what lies at this place, which becomes a place in it.
fn branch_of(branches: &[Branch], at: &mut usize) -> usize {
    let mut of = 0;
    while *at >= branches[of].len {
        *at -= branches[of].len;
        of += 1;
    }
    of
}

/// Puts a branch with little in it together with a neighbour, if one has room. An empty one always finds it.
fn join(branches: &mut Vec<Branch>, of: usize) {
    if branches[of].len == 0 {
        branches.remove(of);
        return;
    }
    for lower in [of.checked_sub(1), Some(of)].into_iter().flatten() {
        let Some([first, second]) = branches.get_mut(lower..lower + 2) else { continue };
        if first.node.width() + second.node.width() > NODE_JOINED {
            continue;
        }
        match (Arc::make_mut(&mut first.node), &*second.node) {
            (Node::Leaf(items), Node::Leaf(more)) => items.extend_from_slice(more),
            (Node::Branch(below), Node::Branch(more)) => {
                let at = below.len();
                below.extend_from_slice(more);
                // It was the first one of its node: its own `from` may be above what came into it since.
                below[at].from = second.from.clone();
            }
            _ => unreachable!("neighbours are of one height"),
        }
        first.len += second.len;
        branches.remove(lower + 1);
        return;
    }
}

/// A leaf at a time from each end.
struct Items<'a> {
    tree: &'a Tree,
    /// Places of those that are in neither leaf yet.
    start: usize,
    end: usize,
    front: &'a [Scored],
    back: &'a [Scored],
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a Scored;

    fn next(&mut self) -> Option<&'a Scored> {
        if self.front.is_empty() && self.start < self.end {
            let (leaf, at) = self.tree.leaf(self.start)?;
            let count = (leaf.len() - at).min(self.end - self.start);
            self.front = &leaf[at..at + count];
            self.start += count;
        }
        let from = if self.front.is_empty() { &mut self.back } else { &mut self.front };
        let (first, rest) = from.split_first()?;
        *from = rest;
        Some(first)
    }
}

impl DoubleEndedIterator for Items<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_empty() && self.start < self.end {
            let (leaf, at) = self.tree.leaf(self.end - 1)?;
            let count = (at + 1).min(self.end - self.start);
            self.back = &leaf[at + 1 - count..=at];
            self.end -= count;
        }
        let from = if self.back.is_empty() { &mut self.front } else { &mut self.back };
        let (last, rest) = from.split_last()?;
        *from = rest;
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use std::collections::BTreeMap;

    type Twin = BTreeMap<Bytes, f64>;

    fn listed(twin: &Twin) -> Vec<Scored> {
        let mut all: Vec<_> =
            twin.iter().map(|(member, score)| Scored { member: member.clone(), score: *score }).collect();
        all.sort_by(|a, b| order(a, b.score, &b.member));
        all
    }

    fn check(sorted: &Sorted, twin: &Twin) {
        let all = listed(twin);
        assert_eq!(sorted.len(), all.len());
        assert_eq!(sorted.bytes(), all.iter().map(|item| item.member.len() + SCORED_BYTES).sum::<usize>());
        assert!(sorted.items(0..all.len()).eq(&all));
        assert!(sorted.items(0..usize::MAX).rev().eq(all.iter().rev()));
        for (rank, item) in all.iter().enumerate() {
            assert_eq!(sorted.rank(&item.member), Some(rank));
            assert_eq!(sorted.score(&item.member), Some(item.score));
        }
        let bounds = [f64::NEG_INFINITY, -3.0, 0.0, -0.0, 7.5, f64::INFINITY];
        for (min, max) in bounds.into_iter().flat_map(|min| bounds.map(|max| (min, max))) {
            let between = sorted.between_scores(Bound::Included(min), Bound::Excluded(max));
            let theirs = all.iter().filter(|item| item.score >= min && item.score < max);
            assert!(sorted.items(between).eq(theirs), "{min} {max}");
            let between = sorted.between_scores(Bound::Excluded(min), Bound::Included(max));
            let theirs: Vec<_> = all.iter().filter(|item| item.score > min && item.score <= max).collect();
            assert!(sorted.items(between).rev().eq(theirs.into_iter().rev()), "{min} {max}");
        }
    }

    /// Room for items in all leaves.
    fn room(node: &Node) -> usize {
        match node {
            Node::Leaf(items) => items.capacity(),
            Node::Branch(branches) => branches.iter().map(|branch| room(&branch.node)).sum(),
        }
    }

    #[test]
    fn what_comes_in_order_leaves_no_empty_room_behind() {
        let mut sorted = Sorted::default();
        for n in 0..10_000 {
            sorted.insert(Bytes::from(format!("member:{n:06}")), f64::from(n));
        }
        for tree in [&sorted.by_member, &sorted.by_score] {
            let room = room(&tree.root);
            assert!(room < 2 * sorted.len(), "room for {room} of {}", sorted.len());
        }
    }

    /// One that is built at once is the one that grew, and goes on as it does.
    #[test]
    fn one_that_is_built_at_once_is_as_one_that_grew() {
        for len in [0, 1, NODE_FILLED, NODE_FILLED + 1, 3_000] {
            let mut rng = Rng::new(len as u64);
            let mut twin: Twin =
                (0..len).map(|n| (Bytes::from(format!("m{n}")), rng.below(900) as f64 - 450.0)).collect();
            let mut built = Sorted::of(listed(&twin)).unwrap();
            check(&built, &twin);
            for n in 0..len {
                let (member, score) = (Bytes::from(format!("m{}", n * 2)), n as f64 / 3.0);
                if n % 3 == 0 {
                    assert_eq!(built.insert(member.clone(), score), twin.insert(member, score));
                } else {
                    assert_eq!(built.remove(&member), twin.remove(&member));
                }
            }
            check(&built, &twin);
            let members: Vec<_> = built.from_member(Bound::Excluded(b"m2")).map(|item| item.member.clone()).collect();
            let theirs = twin.range::<[u8], _>((Bound::Excluded(&b"m2"[..]), Bound::Unbounded));
            assert_eq!(members, theirs.map(|(member, _)| member.clone()).collect::<Vec<_>>());
        }
        let item = |member: &'static str, score| Scored { member: member.into(), score };
        assert_eq!(Sorted::of(vec![item("a", 1.0), item("b", 1.0), item("a", 2.0)]), None);
        assert_eq!(Sorted::of(vec![item("a", f64::NAN)]), None);
    }

    /// Where it means nothing it is still the same at all replicas, however they came by their trees.
    #[test]
    fn ranges_of_members_with_different_scores_do_not_tell_how_a_tree_grew() {
        let mut rng = Rng::new(7);
        let mut grown = Sorted::default();
        for n in 0..2_000u64 {
            grown.insert(Bytes::from(rng.below(3_000).to_string()), rng.below(50) as f64);
            if n % 3 == 0 {
                grown.remove(rng.below(3_000).to_string().as_bytes());
            }
        }
        let built = Sorted::of(grown.items(0..grown.len()).cloned().collect()).unwrap();
        for _ in 0..500 {
            let (min, max) = (rng.below(3_000).to_string(), rng.below(3_000).to_string());
            let between = |sorted: &Sorted| {
                sorted.between_members(Bound::Included(min.as_bytes()), Bound::Excluded(max.as_bytes()))
            };
            assert_eq!(between(&grown), between(&built), "{min} {max}");
        }
    }

    /// Nodes from the root to a leaf.
    fn height(tree: &Tree) -> usize {
        let (mut node, mut height) = (&tree.root, 1);
        while let Node::Branch(branches) = &**node {
            (node, height) = (&branches[0].node, height + 1);
        }
        height
    }

    /// The dumb twin is a map that is sorted for each question.
    #[test]
    fn it_does_what_a_sorted_list_does_and_copies_stay_as_they_were() {
        for seed in 0..10 {
            let mut rng = Rng::new(seed);
            let (mut sorted, mut twin) = (Sorted::default(), Twin::new());
            let mut kept = Vec::new();
            for n in 0..6_000 {
                let member = Bytes::from(rng.below(2_000).to_string());
                // It grows, and shrinks to next to nothing.
                if rng.chance(if n < 3_000 { 0.8 } else { 0.1 }) {
                    let score = match rng.below(20) {
                        0 => f64::INFINITY,
                        1 => f64::NEG_INFINITY,
                        2 => -0.0,
                        n => n as f64 / 2.0 - 5.0,
                    };
                    assert_eq!(sorted.insert(member.clone(), score), twin.insert(member, score));
                } else {
                    assert_eq!(sorted.remove(&member), twin.remove(&member));
                }
                if n % 1_000 == 0 {
                    kept.push((sorted.clone(), twin.clone()));
                }
            }
            kept.push((sorted.clone(), twin.clone()));
            kept.iter().for_each(|(sorted, twin)| check(sorted, twin));
            for member in twin.into_keys() {
                sorted.remove(&member);
            }
            assert_eq!((sorted.bytes(), height(&sorted.by_member), height(&sorted.by_score)), (0, 1, 1));
        }
    }

    /// Runs empty whole leaves beside full ones.
    #[test]
    fn runs_that_go_and_come_leave_everything_where_it_is_found() {
        for seed in 0..2 {
            let mut rng = Rng::new(seed);
            let (mut sorted, mut twin) = (Sorted::default(), Twin::new());
            for n in 0..600 {
                let (start, width) = (rng.below(6_000), 1 + rng.below(150));
                let is_in = rng.chance(if n % 200 < 120 { 0.8 } else { 0.2 });
                for at in start..start + width {
                    let member = Bytes::from(format!("{at:04}"));
                    if is_in {
                        assert_eq!(sorted.insert(member.clone(), at as f64), twin.insert(member, at as f64));
                    } else {
                        assert_eq!(sorted.remove(&member), twin.remove(&member));
                    }
                }
                if n % 100 == 99 {
                    check(&sorted, &twin);
                }
            }
        }
    }

    #[test]
    fn members_of_one_score_have_the_order_of_their_bytes() {
        let mut sorted = Sorted::default();
        for member in ["b", "a", "", "ab", "c"] {
            sorted.insert(member.into(), 1.0);
        }
        let names = |ranks| sorted.items(ranks).map(|item| item.member.to_vec()).collect::<Vec<_>>().join(&b' ');
        assert_eq!(names(0..5), b" a ab b c");
        assert_eq!(names(sorted.between_members(Bound::Excluded(b"a"), Bound::Included(b"b"))), b"ab b");
        assert_eq!(sorted.between_members(Bound::Included(b"c"), Bound::Excluded(b"a")).len(), 0);
    }

    #[test]
    fn a_change_under_a_copy_copies_one_path() {
        let mut sorted = Sorted::default();
        for n in 0..50_000 {
            sorted.insert(format!("{n:05}").into(), f64::from(n));
        }
        let copy = sorted.clone();
        sorted.insert("25000.5".into(), 25_000.5);
        let (Node::Branch(ours), Node::Branch(theirs)) = (&*sorted.by_score.root, &*copy.by_score.root) else {
            panic!("so many do not fit into a leaf")
        };
        let changed = ours.iter().zip(theirs).filter(|(a, b)| !Arc::ptr_eq(&a.node, &b.node)).count();
        assert_eq!((changed, copy.len(), sorted.len()), (1, 50_000, 50_001));
        assert_eq!((copy.score(b"25000.5"), sorted.rank(b"25000.5")), (None, Some(25_001)));
        assert!(height(&sorted.by_score) <= 5);
    }
}
