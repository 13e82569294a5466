//! Changes of the group's members, and of who leads it.

use base::NodeId;
use raft::eraftpb as pb;

use super::{Member, sorted};
use crate::raft::State;
use crate::raft::limits::*;
use crate::raft::wire;

/// A change of the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Give this node a copy of everything.
    Learn(NodeId),
    /// Change the voters, at once: these come, those go on as learners.
    Vote { come: Vec<NodeId>, go: Vec<NodeId> },
    /// This learner has nothing to do with it any more.
    Drop(NodeId),
    /// Leave the joint group.
    Leave,
}

impl<S: State> Member<S> {
    /// May the group be changed now?
    pub fn may_regroup(&self) -> bool {
        // In a leader's first moments raft-rs would take the change and put an empty entry in its place; while it hands the lead
        // over it takes none.
        let raft = &self.node.raft;
        let hands_over = raft.lead_transferee.is_some();
        self.is_leader() && !raft.has_pending_conf() && raft.apply_to_current_term() && !hands_over
    }

    /// Of the learners, those with (nearly) the whole log.
    pub fn caught_up(&self) -> Vec<NodeId> {
        let last = self.node.raft.raft_log.last_index();
        let is_near = |id: &NodeId| {
            let progress = self.node.raft.prs().get(id.0);
            // What it has on disk counts, not raft's mode of sending: in a quiet group a new one stays on probation.
            progress.is_some_and(|p| p.matched > 0 && p.matched + CAUGHT_UP_ENTRIES >= last)
        };
        sorted(&self.node.store().conf.learners).into_iter().filter(is_near).collect()
    }

    /// As leader: has this voter all that we have, as it said a moment ago?
    pub fn has_all(&self, id: NodeId) -> bool {
        let last = self.node.raft.raft_log.last_index();
        let progress = self.node.raft.prs().get(id.0);
        progress.is_some_and(|p| p.recent_active && p.matched + CAUGHT_UP_ENTRIES >= last)
            && self.voters().contains(&id)
    }

    /// As leader: have all voters (nearly) all that we have?
    pub fn is_level(&self) -> bool {
        let last = self.node.raft.raft_log.last_index();
        let is_near = |id: &NodeId| {
            self.node.raft.prs().get(id.0).is_some_and(|progress| progress.matched + CAUGHT_UP_ENTRIES >= last)
        };
        self.voters().iter().all(is_near)
    }

    /// Is this node's vote needed, or may it be, as far as this member knows?
    pub fn counts_on(&self, id: NodeId) -> bool {
        let conf = &self.node.store().conf;
        conf.voters.contains(&id.0) || conf.voters_outgoing.contains(&id.0)
    }

    /// Is it a member of any kind, as far as this member knows?
    pub fn has(&self, id: NodeId) -> bool {
        self.counts_on(id) || self.learners().contains(&id)
    }

    /// Where our log ends: the last entry's term, and its index.
    pub fn end(&self) -> (u64, u64) {
        self.last()
    }

    /// False: not taken, there is no room. To be planned again later, not at once.
    #[must_use]
    pub fn regroup(&mut self, step: &Step) -> bool {
        let mut change = pb::ConfChangeV2::default();
        match step {
            Step::Learn(id) => change.changes.push(wire::conf_step(pb::ConfChangeType::AddLearnerNode, id.0)),
            Step::Vote { come, go } => {
                for id in come {
                    change.changes.push(wire::conf_step(pb::ConfChangeType::AddNode, id.0));
                }
                for id in go {
                    change.changes.push(wire::conf_step(pb::ConfChangeType::AddLearnerNode, id.0));
                }
            }
            Step::Drop(id) => change.changes.push(wire::conf_step(pb::ConfChangeType::RemoveNode, id.0)),
            Step::Leave => (),
        }
        self.node.propose_conf_change(Vec::new(), change).is_ok()
    }

    /// The lead may have come to a member just before it was voted out. As it votes no more it can put nothing into the log, not even
    /// a change of the group, and all others would follow it for ever: it hands the lead to who has most.
    pub(super) fn leave_lead(&mut self) {
        let voters = &self.node.store().conf.voters;
        let raft = &self.node.raft;
        if !self.is_leader() || voters.contains(&self.me.0) || raft.lead_transferee.is_some() {
            return;
        }
        let has = |id: &u64| raft.prs().get(*id).map(|progress| (progress.recent_active, progress.matched));
        if let Some(heir) = voters.iter().copied().max_by_key(has) {
            self.node.transfer_leader(heir);
        }
    }

    /// As leader: hands the lead to another voter that has all of the log.
    pub fn hand_over(&mut self, to: NodeId) {
        self.node.transfer_leader(to.0);
    }
}
