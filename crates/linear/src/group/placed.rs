//! The group follows its record: its members, who leads it, and whether it is split.

use std::collections::BTreeSet;

use base::{GroupId, NodeId, Span, Time};
use cluster::raft::Step;

use super::{Group, Nodes};
use crate::limits::{HAND_OVER_AFTER, HAND_OVER_TRIES, STANDS_MAX};
use crate::place::Placed;
use crate::space::Space;
use crate::split::Split;

impl Group {
    /// Who should lead in our place.
    pub(super) fn heir(&self, nodes: &Nodes) -> Option<NodeId> {
        self.leads?;
        let (me, wanted) = (self.me(), &self.placed.members);
        let may = |id: &NodeId| *id != me && nodes.may_lead(*id);
        if !nodes.aside.contains(&me) {
            return wanted.first().copied().filter(may);
        }
        let others = self.member.voters();
        wanted.iter().chain(&others).copied().find(|id| may(id) && self.member.has_all(*id))
    }

    /// It leads, and could let another one lead.
    pub fn may_hand_over(&self, nodes: &Nodes) -> bool {
        let me = self.me();
        self.leads() && self.member.voters().into_iter().any(|id| id != me && nodes.may_lead(id))
    }

    /// Leads are spread over the nodes as the records say; who leads since another one died gives the lead back.
    /// Who stands aside does so at once, and tries until it has.
    pub(super) fn hand_over(&mut self, now: Time, nodes: &Nodes) {
        let (at, tries) = self.hand_over;
        let Some(heir) = self.heir(nodes) else { return };
        if nodes.aside.contains(&self.me()) {
            return self.member.hand_over(heir);
        }
        let heir = Some(heir).filter(|_| now >= at && tries < HAND_OVER_TRIES && self.is_as_wanted());
        if let Some(heir) = heir.filter(|heir| self.member.has_all(*heir)) {
            self.hand_over = (now + Span(HAND_OVER_AFTER.0 << tries), tries + 1);
            self.member.hand_over(heir);
        }
    }

    /// Others are there than before, or should be: a lead that could not be handed over may be.
    pub fn try_hand_over_again(&mut self, now: Time) {
        self.hand_over = (now + HAND_OVER_AFTER, 0);
    }

    /// Has the group the members that it should have?
    pub fn is_as_wanted(&self) -> bool {
        let mut wanted = self.placed.members.clone();
        wanted.sort_unstable();
        self.member.voters() == wanted && !self.member.is_joint() && self.member.learners().is_empty()
    }

    /// What the group's record wants, and has not happened. Members may not change meanwhile: those that there are found the
    /// new group.
    pub(super) fn split(&self, live: &BTreeSet<NodeId>) -> Option<Split> {
        let after = self.member.state().splits();
        let wanted = match self.placed.split {
            Some(split) if after == self.placed.splits => Some((split.at, split.child)),
            // The power of all has failed, and this was not on a disk: the new group has its half.
            None if after < self.placed.splits => Some((self.placed.to + 1, GroupId(0))),
            Some(_) | None => None,
        };
        // From then on nobody is sent what was before: all have it already.
        let others = || self.placed.members.iter().filter(|id| **id != self.me() && live.contains(id));
        let have_all = || others().all(|id| self.member.has_all(*id));
        let may = self.splitting != Some(after) && self.is_as_wanted() && self.member.may_regroup() && have_all();
        wanted.filter(|_| may).map(|(at, child)| Split { at, child, after })
    }

    /// Has it been split, and the cluster does not know yet that the new group is there?
    pub(super) fn is_splitting(&self) -> bool {
        self.member.state().splits() > self.placed.splits
    }

    /// The new group of a split, if it is under way: its record, and what it begins with, if this member took it out itself.
    pub fn born(&mut self) -> Option<(Placed, Option<Space>)> {
        let child = self.placed.child().filter(|_| self.is_splitting())?;
        let space = self.born.take_if(|(id, _)| *id == child.id).map(|(_, space)| space);
        Some((child, space))
    }

    /// Stands for election as soon as it can.
    pub fn stand(&mut self, now: Time) {
        (self.campaign_at, self.eager) = (Some(now), STANDS_MAX);
    }

    /// The disk has the log from before a split, which nobody needs any more.
    pub fn may_save(&self) -> bool {
        self.to_save && !self.is_splitting()
    }

    /// The record of the group has changed.
    pub fn follow(&mut self, now: Time, placed: Placed) {
        self.placed = placed;
        self.try_hand_over_again(now);
        self.rouse(now);
    }

    /// As leader: brings the group one step towards the members that it should have.
    pub(super) fn regroup(&mut self, nodes: &Nodes) -> bool {
        if self.is_as_wanted() || !self.member.may_regroup() {
            return false;
        }
        let wanted: BTreeSet<NodeId> = self.placed.members.iter().copied().collect();
        let voters: BTreeSet<NodeId> = self.member.voters().into_iter().collect();
        let learners: BTreeSet<NodeId> = self.member.learners().into_iter().collect();
        if self.member.is_joint() {
            return self.member.regroup(&Step::Leave);
        }
        let step = if let Some(new) = wanted.iter().find(|id| !voters.contains(id) && !learners.contains(id)) {
            Step::Learn(*new)
        } else if voters != wanted {
            let caught_up: BTreeSet<NodeId> = self.member.caught_up().into_iter().collect();
            let come: Vec<NodeId> = wanted.difference(&voters).copied().collect();
            if come.iter().any(|id| !caught_up.contains(id) || !nodes.live.contains(id)) {
                return false;
            }
            let me = self.me();
            let mut go: Vec<NodeId> = voters.difference(&wanted).copied().collect();
            if !wanted.contains(&me) {
                // Another one leads it out of our hands. If none is left of those that there were, they come first.
                let heirs = || self.placed.members.iter().copied().filter(|id| voters.contains(id));
                let fit = |id: &NodeId| nodes.may_lead(*id) && self.member.has_all(*id);
                if let Some(heir) = heirs().find(fit).or_else(|| heirs().find(|id| nodes.live.contains(id))) {
                    self.member.hand_over(heir);
                }
                if heirs().next().is_some() {
                    return false;
                }
                go.retain(|id| *id != me);
            }
            Step::Vote { come, go }
        } else {
            match learners.difference(&wanted).next() {
                Some(gone) => Step::Drop(*gone),
                None => return false,
            }
        };
        self.member.regroup(&step)
    }
}
