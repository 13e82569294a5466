//! A write that a node knows of, and where it is. Most entries of a node are at the same few nodes: they share what says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::NodeId;

use crate::Stamp;
use crate::limits::HOMES_MAX;

/// A write, and where it is. Cheap to clone: where it is is shared, and copied when it is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub stamp: Stamp,
    at: Arc<At>,
}

/// Where a write is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct At {
    /// All nodes that may have the object: they are told of this write until they have it.
    pub homes: BTreeSet<NodeId>,
    /// Homes whose disks have this write together with at least these homes.
    pub has: BTreeSet<NodeId>,
    /// Homes whose copies were given up (odd), or wanted again (even): each turn is one more, and the highest counts. Others have none.
    pub turns: BTreeMap<NodeId, u32>,
}

impl Deref for Held {
    type Target = At;

    fn deref(&self) -> &At {
        &self.at
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut At {
        Arc::make_mut(&mut self.at)
    }
}

/// What entries share of where they are: each once.
#[derive(Default)]
pub(crate) struct Places {
    of: BTreeSet<Arc<At>>,
    /// With so many, those that no entry needs any more are let go.
    most: usize,
}

impl Places {
    /// Has an entry share with others.
    pub fn share(&mut self, held: &mut Held) {
        if let Some(at) = self.of.get(&held.at) {
            held.at = at.clone();
            return;
        }
        if self.of.len() >= self.most {
            self.of.retain(|at| Arc::strong_count(at) > 1);
            self.most = 64 + 2 * self.of.len();
        }
        self.of.insert(held.at.clone());
    }
}

/// What a merge has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merged {
    Nothing,
    /// More of the homes have it.
    Has,
    /// There are more homes: this node has to keep that before it says that it has the write.
    Homes,
}

impl Held {
    pub fn new(stamp: Stamp, at: At) -> Self {
        Self { stamp, at: Arc::new(at) }
    }

    /// At the same nodes as others.
    pub fn shared(stamp: Stamp, at: Arc<At>) -> Self {
        Self { stamp, at }
    }

    /// The write alone.
    pub fn bare(stamp: Stamp) -> Self {
        Self::new(stamp, At::default())
    }

    pub fn at(&self) -> &Arc<At> {
        &self.at
    }

    /// What somebody else says of the same write. `me` has all that is merged, as soon as its disk has.
    pub fn merge(&mut self, me: NodeId, other: &Held) -> Merged {
        // A peer may say that one of them is of a namespace with other rules: then they are the same by its word alone.
        if !(self.stamp.is_same(&other.stamp) && other.stamp.is_same(&self.stamp)) {
            return Merged::Nothing;
        }
        let before = (self.stamp, self.has.len());
        let turned = self.turn_with(me, other);
        // What somebody had at an earlier turn it may have given up since.
        let has: BTreeSet<NodeId> =
            other.has.iter().copied().filter(|node| other.turn(*node) == self.turn(*node)).collect();
        // The same write came through several nodes; all keep the first version.
        self.stamp.version = self.stamp.version.min(other.stamp.version);
        if other.homes == self.homes {
            // What does not change is not copied: it is shared with others.
            if !has.is_subset(&self.has) {
                self.has.extend(&has);
            }
        } else if !other.homes.is_subset(&self.homes) {
            let knows_all = other.homes.is_superset(&self.homes);
            self.homes.extend(&other.homes);
            self.has = if knows_all { has } else { BTreeSet::new() };
            self.has.insert(me);
            return Merged::Homes;
        }
        if !turned && before == (self.stamp, self.has.len()) { Merged::Nothing } else { Merged::Has }
    }

    pub fn turn(&self, node: NodeId) -> u32 {
        self.turns.get(&node).copied().unwrap_or(0)
    }

    /// Its copy of the object is given up: it is told of deletions, and counts for nothing else.
    pub fn is_spare(&self, node: NodeId) -> bool {
        !self.stamp.gone && self.turn(node) % 2 == 1
    }

    /// Takes a home's copy back into what counts, or gives it up. What is known of that node is of before. False: there is no room.
    pub fn turn_over(&mut self, me: NodeId, node: NodeId) -> bool {
        let may = self.turns.len() < HOMES_MAX || self.turns.contains_key(&node);
        if may {
            let turn = self.turns.entry(node).or_default();
            *turn = turn.saturating_add(1);
            if node != me {
                self.has.remove(&node);
            }
        }
        may
    }

    /// True if somebody knows of later turns.
    fn turn_with(&mut self, me: NodeId, other: &Held) -> bool {
        let mut turned = false;
        for (node, turn) in &other.turns {
            let may = self.turns.len() < HOMES_MAX || self.turns.contains_key(node);
            if may && *turn > self.turn(*node) {
                self.turns.insert(*node, *turn);
                if *node != me {
                    self.has.remove(node);
                }
                turned = true;
            }
        }
        turned
    }

    /// More homes. True if there are any new ones; then nobody else is known to know of them.
    pub fn add_homes(&mut self, me: NodeId, homes: impl IntoIterator<Item = NodeId>) -> bool {
        let room = HOMES_MAX.saturating_sub(self.homes.len());
        let new: BTreeSet<NodeId> = homes.into_iter().filter(|home| !self.homes.contains(home)).take(room).collect();
        let grew = !new.is_empty();
        if grew {
            self.homes.extend(new);
            self.has = [me].into();
        }
        grew
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use class::Version;

    use super::*;

    pub(crate) fn held(homes: &[u64], has: &[u64]) -> Held {
        let of = |nodes: &[u64]| nodes.iter().map(|n| NodeId(*n)).collect();
        let stamp = Stamp { version: Version::default(), once: true, gone: false, sum: 1, size: 1 };
        Held::new(stamp, At { homes: of(homes), has: of(has), turns: BTreeMap::new() })
    }

    #[test]
    fn two_writes_that_a_peer_calls_one_stay_two() {
        let me = NodeId(1);
        let mut mine = held(&[1, 2], &[1]);
        let mut lie = held(&[1, 2, 3], &[3]);
        (lie.stamp.once, lie.stamp.sum) = (false, 7);
        assert!(lie.stamp.is_same(&mine.stamp) && !mine.stamp.is_same(&lie.stamp));
        assert_eq!((mine.merge(me, &lie), mine.homes.len()), (Merged::Nothing, 2));
    }

    #[test]
    fn a_copy_that_was_given_up_counts_only_when_it_is_there_again() {
        let (me, other) = (NodeId(1), NodeId(2));
        let before = held(&[1, 2, 3], &[1, 2, 3]);
        let mut mine = before.clone();
        assert!(mine.turn_over(me, other) && mine.is_spare(other));
        assert_eq!(mine.merge(me, &before), Merged::Nothing, "it had it, a turn ago");
        assert_eq!(mine.has, [1, 3].map(NodeId).into());
        let mut third = before.clone();
        assert_eq!(third.merge(NodeId(3), &mine), Merged::Has);
        assert_eq!((third.is_spare(other), third.has.contains(&other)), (true, false));
        // It is wanted again, and has it again.
        assert!(mine.turn_over(me, other) && !mine.is_spare(other) && !mine.has.contains(&other));
        assert_eq!(mine.merge(me, &third), Merged::Nothing);
        let mut again = mine.clone();
        again.has.insert(other);
        assert_eq!(mine.merge(me, &again), Merged::Has);
        assert!(mine.has.contains(&other));
    }

    #[test]
    fn who_has_a_write_counts_only_with_all_its_homes() {
        for (mine, other, becomes, changed) in [
            ((&[1, 2][..], &[1][..]), (&[1, 2][..], &[2][..]), (&[1, 2][..], &[1, 2][..]), Merged::Has),
            ((&[1, 2], &[1, 2]), (&[1, 2], &[2]), (&[1, 2], &[1, 2]), Merged::Nothing),
            // 2 said that it has it when it knew of fewer homes: that does not count any more.
            ((&[1, 2], &[1, 2]), (&[1, 2, 3], &[3]), (&[1, 2, 3], &[1, 3]), Merged::Homes),
            ((&[1, 2, 3], &[1]), (&[1, 2], &[1, 2]), (&[1, 2, 3], &[1]), Merged::Nothing),
            ((&[1, 2], &[1, 2]), (&[1, 3], &[1, 3]), (&[1, 2, 3], &[1]), Merged::Homes),
        ] {
            let mut merged = held(mine.0, mine.1);
            assert_eq!(merged.merge(NodeId(1), &held(other.0, other.1)), changed, "{mine:?} {other:?}");
            assert_eq!(merged, held(becomes.0, becomes.1), "{mine:?} {other:?}");
        }
    }
}
