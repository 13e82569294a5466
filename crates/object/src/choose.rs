//! Which nodes get a new object (Porcupine 4.3): the nodes that have objects of its owner, up to the spread, random ones added, and of
//! these the ones with the fewest writes waiting for their disks.

use base::{NodeId, Rng};

/// A node that could take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub node: NodeId,
    /// Writes that wait for its disk.
    pub pending: u64,
    /// The node has objects of this owner.
    pub has_owner: bool,
    /// The node is the one that was asked: that saves a hop.
    pub is_here: bool,
    /// About to end, or slow: only if there is no other.
    pub is_aside: bool,
}

/// Chooses so many, the best first. Fewer only if there are fewer.
pub(crate) fn choose(rng: &mut Rng, mut all: Vec<Candidate>, count: usize, spread: usize) -> Vec<NodeId> {
    rng.shuffle(&mut all);
    let typical = median(&all);
    all.sort_by_key(|one| (one.is_aside, !one.has_owner));
    let known = all.iter().filter(|one| one.has_owner && !one.is_aside).count();
    let pool = known.max(spread).max(count).min(all.len());
    // Where all that would do are far behind, affinity is worth less than a disk that keeps up.
    let is_poor = |one: &Candidate| one.is_aside || one.pending > 2 * typical + POOR_MARGIN;
    let pool = if all[..pool].iter().all(is_poor) { all.len() } else { pool };
    // Half a write less for the node itself. The sort is stable: ties stay as chance has put them.
    all[..pool].sort_by_key(|one| (one.is_aside, (2 * one.pending).saturating_sub(u64::from(one.is_here))));
    all.into_iter().take(count).map(|one| one.node).collect()
}

/// A disk with so few writes waiting is never poor.
const POOR_MARGIN: u64 = 4;

fn median(all: &[Candidate]) -> u64 {
    let mut pending: Vec<u64> = all.iter().map(|one| one.pending).collect();
    pending.sort_unstable();
    pending.get(pending.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn candidate(node: u64, pending: u64, has_owner: bool) -> Candidate {
        Candidate { node: NodeId(node), pending, has_owner, is_here: false, is_aside: false }
    }

    /// Who is chosen over many draws.
    fn drawn(all: &[Candidate], count: usize, spread: usize) -> BTreeSet<Vec<u64>> {
        let mut rng = Rng::new(1);
        let mut sorted = |_| {
            let mut nodes: Vec<u64> = choose(&mut rng, all.to_vec(), count, spread).iter().map(|n| n.0).collect();
            nodes.sort_unstable();
            nodes
        };
        (0..200).map(&mut sorted).collect()
    }

    #[test]
    fn an_owner_stays_where_it_is_and_new_ones_go_anywhere() {
        let at_two = [candidate(1, 9, true), candidate(2, 9, true), candidate(3, 8, false), candidate(4, 8, false)];
        assert_eq!(drawn(&at_two, 2, 2), [vec![1, 2]].into());
        let new = [candidate(1, 0, false), candidate(2, 0, false), candidate(3, 0, false)];
        assert_eq!(drawn(&new, 2, 2).len(), 3, "each pair");
        let at_one = [candidate(1, 0, true), candidate(2, 0, false), candidate(3, 0, false)];
        assert_eq!(drawn(&at_one, 2, 2), [vec![1, 2], vec![1, 3]].into());
    }

    #[test]
    fn of_the_spread_the_least_loaded_are_taken_and_none_of_all_that_are_far_behind() {
        let wide = [candidate(1, 5, true), candidate(2, 1, true), candidate(3, 2, true)];
        assert_eq!(drawn(&wide, 2, 3), [vec![2, 3]].into());
        let behind = [
            candidate(1, 90, true),
            candidate(2, 90, true),
            candidate(3, 1, false),
            candidate(4, 1, false),
            candidate(5, 1, false),
        ];
        assert!(drawn(&behind, 2, 2).iter().all(|pair| pair[0] >= 3));
        let here = Candidate { is_here: true, ..candidate(3, 1, true) };
        assert_eq!(drawn(&[candidate(1, 1, true), candidate(2, 1, true), here], 1, 3), [vec![3]].into());
    }

    #[test]
    fn who_is_about_to_end_is_taken_only_if_nobody_else_is_there() {
        let aside = Candidate { is_aside: true, ..candidate(1, 0, true) };
        assert_eq!(drawn(&[aside, candidate(2, 7, false), candidate(3, 7, false)], 2, 2), [vec![2, 3]].into());
        assert_eq!(drawn(&[aside, candidate(2, 7, false)], 2, 2), [vec![1, 2]].into());
        assert_eq!(drawn(&[], 2, 2), [vec![]].into());
    }
}
