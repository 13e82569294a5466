//! Who should be in the group, and who of them should vote. A pure function of what the leader sees; it names one step at
//! a time, and the next is asked for when that one is applied.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Span};

use super::limits::{VOTER_AWAY_MAX, VOTERS_WANTED};
use crate::raft::Step;

/// What the leader sees.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub me: NodeId,
    pub voters: BTreeSet<NodeId>,
    pub learners: BTreeSet<NodeId>,
    /// Between two groups: both must agree to everything, and it must be left before the next step.
    pub joint: bool,
    pub live: BTreeSet<NodeId>,
    /// How long a node that is not live has been away.
    pub away: BTreeMap<NodeId, Span>,
    /// Learners with (nearly) the whole log.
    pub caught_up: BTreeSet<NodeId>,
}

pub(super) fn next(scene: &Scene) -> Option<Step> {
    if scene.joint {
        return Some(Step::Leave);
    }
    let stranger = |id: &&NodeId| !scene.voters.contains(id) && !scene.learners.contains(id);
    if let Some(id) = scene.live.iter().find(stranger) {
        return Some(Step::Learn(*id));
    }
    let mut ready = scene.learners.iter().copied().filter(|id| scene.live.contains(id) && scene.caught_up.contains(id));
    if scene.voters.len() < VOTERS_WANTED {
        // All that are missing or none: a group of two would stop at the loss of either.
        let missing = VOTERS_WANTED - scene.voters.len();
        let come: Vec<_> = ready.take(missing).collect();
        return (come.len() == missing).then_some(Step::Vote { come, go: Vec::new() });
    }
    let is_gone = |id: &&NodeId| **id != scene.me && scene.away.get(id).is_some_and(|away| *away >= VOTER_AWAY_MAX);
    let gone = scene.voters.iter().find(is_gone)?;
    Some(Step::Vote { come: vec![ready.next()?], go: vec![*gone] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn scene(voters: &[u64], learners: &[u64], live: &[u64], caught_up: &[u64]) -> Scene {
        Scene {
            me: NodeId(1),
            voters: ids(voters),
            learners: ids(learners),
            live: ids(live),
            caught_up: ids(caught_up),
            ..Scene::default()
        }
    }

    fn vote(come: &[u64], go: &[u64]) -> Option<Step> {
        Some(Step::Vote { come: ids(come).into_iter().collect(), go: ids(go).into_iter().collect() })
    }

    #[test]
    fn the_group_grows_by_two_and_only_with_those_that_have_the_log() {
        assert_eq!(next(&scene(&[1], &[], &[1], &[])), None);
        assert_eq!(next(&scene(&[1], &[], &[1, 2, 3], &[])), Some(Step::Learn(NodeId(2))));
        assert_eq!(next(&scene(&[1], &[2], &[1, 2], &[2])), None, "two voters are worse than one");
        assert_eq!(next(&scene(&[1], &[2, 3], &[1, 2, 3], &[2])), None, "3 is not caught up");
        assert_eq!(next(&scene(&[1], &[2, 3], &[1, 2], &[2, 3])), None, "3 is not live");
        assert_eq!(next(&scene(&[1], &[2, 3, 4], &[1, 2, 3, 4], &[2, 3, 4])), vote(&[2, 3], &[]));
        assert_eq!(next(&scene(&[1, 2, 3], &[4], &[1, 2, 3, 4], &[4])), None, "three are enough");
    }

    #[test]
    fn a_voter_is_replaced_when_it_was_away_long_and_another_is_ready() {
        let mut it = scene(&[1, 2, 3], &[4, 5], &[1, 2, 5], &[4, 5]);
        assert_eq!(next(&it), None);
        it.away.insert(NodeId(3), Span(VOTER_AWAY_MAX.0 - 1));
        assert_eq!(next(&it), None, "it may still come back");
        it.away.insert(NodeId(3), VOTER_AWAY_MAX);
        assert_eq!(next(&it), vote(&[5], &[3]), "4 is away itself");
        it.live.remove(&NodeId(5));
        assert_eq!(next(&it), None, "nobody is there to take its place");
    }

    #[test]
    fn a_joint_group_is_left_first() {
        assert_eq!(next(&Scene { joint: true, ..scene(&[1], &[], &[1, 2], &[]) }), Some(Step::Leave));
    }
}
