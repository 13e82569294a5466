//! Who should be in the group, and who of them should vote. A pure function of what the leader sees; it names one step at
//! a time, and the next is asked for when that one is applied.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Span};

use super::limits::{LEARNER_AWAY_MAX, VOTER_AWAY_MAX, VOTERS_WANTED};
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
    /// Who is about to leave for good, and whether it does so even if fewer vote then.
    pub leaving: BTreeMap<NodeId, bool>,
}

pub(super) fn next(scene: &Scene) -> Option<Step> {
    if scene.joint {
        return Some(Step::Leave);
    }
    let stranger = |id: &&NodeId| !scene.voters.contains(id) && !scene.learners.contains(id);
    if let Some(id) = scene.live.iter().find(stranger) {
        return Some(Step::Learn(*id));
    }
    let fit = |id: &NodeId| scene.live.contains(id) && scene.caught_up.contains(id) && !scene.leaving.contains_key(id);
    let mut ready = scene.learners.iter().copied().filter(fit);
    if let Some(step) = leave(scene, ready.clone().next()) {
        return Some(step);
    }
    if scene.voters.len() < VOTERS_WANTED {
        // All that are missing or none: a group of two would stop at the loss of either.
        let missing = VOTERS_WANTED - scene.voters.len();
        let come: Vec<_> = ready.take(missing).collect();
        return (come.len() == missing).then_some(Step::Vote { come, go: Vec::new() });
    }
    let is_away = |id: &NodeId, max| *id != scene.me && scene.away.get(id).is_some_and(|away| *away >= max);
    if let Some(gone) = scene.learners.iter().find(|id| is_away(id, LEARNER_AWAY_MAX)) {
        return Some(Step::Drop(*gone));
    }
    let gone = scene.voters.iter().find(|id| is_away(id, VOTER_AWAY_MAX))?;
    Some(Step::Vote { come: vec![ready.next()?], go: vec![*gone] })
}

/// Lets a voter go that leaves for good: `heir` takes its place. While the leader is one that leaves, nobody goes: it hands the lead
/// over first, for which there must be another one.
fn leave(scene: &Scene, heir: Option<NodeId>) -> Option<Step> {
    let leaves = |id: &&NodeId| scene.leaving.contains_key(id);
    let gone = *scene.voters.iter().find(leaves)?;
    if scene.leaving.contains_key(&scene.me) {
        return match heir {
            Some(heir) if scene.voters.iter().all(|id| leaves(&id)) => {
                Some(Step::Vote { come: vec![heir], go: vec![] })
            }
            _ => None,
        };
    }
    match heir {
        Some(heir) if scene.voters.len() >= VOTERS_WANTED => Some(Step::Vote { come: vec![heir], go: vec![gone] }),
        // One alone is better than two, of which both would be needed.
        _ if scene.voters.len() < VOTERS_WANTED || scene.leaving[&gone] => {
            let go = scene.voters.iter().copied().filter(|id| *id != scene.me).collect();
            Some(Step::Vote { come: Vec::new(), go })
        }
        _ => None,
    }
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
    fn who_has_no_vote_and_is_away_for_long_is_dropped_and_let_in_anew_when_it_is_back() {
        let mut it = scene(&[1, 2, 3], &[4, 5], &[1, 2, 3, 5], &[5]);
        it.away.insert(NodeId(4), Span(LEARNER_AWAY_MAX.0 - 1));
        assert_eq!(next(&it), None);
        it.away.insert(NodeId(4), LEARNER_AWAY_MAX);
        assert_eq!(next(&it), Some(Step::Drop(NodeId(4))));
        assert_eq!(next(&Scene { learners: ids(&[5]), ..it }), None);
        assert_eq!(next(&scene(&[1, 2, 3], &[5], &[1, 2, 3, 4, 5], &[5])), Some(Step::Learn(NodeId(4))));
    }

    #[test]
    fn who_leaves_is_replaced_at_once_or_stays_unless_it_is_forced() {
        let mut it = scene(&[1, 2, 3], &[4, 5], &[1, 2, 3, 4, 5], &[4, 5]);
        it.leaving = BTreeMap::from([(NodeId(3), false), (NodeId(4), false)]);
        assert_eq!(next(&it), vote(&[5], &[3]), "4 leaves itself");
        it.caught_up.remove(&NodeId(5));
        assert_eq!(next(&it), None);
        it.leaving.insert(NodeId(3), true);
        assert_eq!(next(&it), vote(&[], &[2, 3]), "two voters would be worse than one");
        let alone = Scene { voters: ids(&[1]), learners: ids(&[2, 3]), live: ids(&[1, 2, 3]), ..it };
        assert_eq!(next(&alone), None, "it does not vote any more");
    }

    #[test]
    fn a_leader_that_leaves_lets_another_one_lead_first() {
        let mut it = scene(&[1, 2, 3], &[4], &[1, 2, 3, 4], &[4]);
        it.leaving.insert(NodeId(1), false);
        assert_eq!(next(&it), None, "2 or 3 leads, and lets it go");
        let mut sole = scene(&[1], &[2], &[1, 2], &[2]);
        sole.leaving.insert(NodeId(1), false);
        assert_eq!(next(&sole), vote(&[2], &[]));
        let heir = Scene { me: NodeId(2), voters: ids(&[1, 2]), learners: ids(&[]), caught_up: ids(&[]), ..sole };
        assert_eq!(next(&heir), vote(&[], &[1]));
    }

    #[test]
    fn a_joint_group_is_left_first() {
        assert_eq!(next(&Scene { joint: true, ..scene(&[1], &[], &[1, 2], &[]) }), Some(Step::Leave));
    }
}
