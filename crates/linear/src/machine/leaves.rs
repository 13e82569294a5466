//! How this node's members leave groups, and how nodes that are about to end stop leading.
//!
//! A member that its group's record has no more may still be needed: for its vote, or because nobody else has all yet.
//! It cannot tell by itself, as who is taken out of a group does not hear of it for sure. So it asks, until the leader
//! says that the group is without it; only then its copy goes. What a late answer says does not hold if the member has
//! been given anything since: it may have come back in.

use std::collections::BTreeSet;

use base::{Frame, GroupId, NodeId, Now, Priority, kind};

use super::{Linear, Output};
use crate::limits::LEAVES_AGAIN;
use crate::wire::{self, Call};

impl Linear {
    /// Asks the leaders of groups that do not want this node whether they still have it.
    pub(super) fn ask_to_leave(&mut self, now: Now, out: &mut Vec<Output>) {
        let me = self.me;
        for group in self.groups.values_mut() {
            if group.leaves_at.take_if(|at| *at <= now.mono).is_none() {
                continue;
            }
            group.leaves_at = Some(now.mono + LEAVES_AGAIN);
            let frame = own(&Call::Leaves { group: group.id, epoch: group.placed.epoch });
            let others = group.placed.members.iter().filter(|id| **id != me && self.nodes.live.contains(id));
            let ask = |to: &NodeId| Output::Send { to: *to, frame: frame.clone() };
            out.extend(others.map(ask));
        }
    }

    /// Somebody asks whether a group still has it. Only who leads the group knows.
    pub(super) fn asked_to_leave(&mut self, from: NodeId, group: GroupId, epoch: u64, out: &mut Vec<Output>) {
        let Some(it) = self.groups.get(&group).filter(|it| !self.mute && it.leads()) else { return };
        if it.placed.epoch >= epoch && !it.placed.members.contains(&from) && !it.member.has(from) {
            let left = Call::Left { group, epoch, end: it.member.end() };
            out.push(Output::Send { to: from, frame: own(&left) });
        }
    }

    /// A leader says that the group was without this node when the leader's log ended there. Only those are asked that
    /// should be its members.
    pub(super) fn left(&mut self, from: NodeId, group: GroupId, epoch: u64, end: (u64, u64), out: &mut Vec<Output>) {
        let is_so = self.groups.get(&group).is_some_and(|it| {
            it.placed.members.contains(&from)
                && it.leaves_at.is_some()
                && it.placed.epoch == epoch
                && !it.leads()
                && it.member.end() <= end
        });
        if is_so {
            self.forget(group, out);
        }
    }

    pub(super) fn forget(&mut self, group: GroupId, out: &mut Vec<Output>) {
        self.groups.remove(&group);
        self.alarm_of.remove(&group).map(|at| self.alarms.remove(&(at, group)));
        out.push(Output::Forget { group });
    }

    /// Other nodes than before stand aside.
    pub(super) fn aside(&mut self, now: Now, aside: BTreeSet<NodeId>, out: &mut Vec<Output>) {
        let changed: Vec<NodeId> = self.nodes.aside.symmetric_difference(&aside).copied().collect();
        self.nodes.aside = aside;
        for id in changed {
            self.each_with(now, id, out, |group, now| group.birth(now));
        }
    }

    /// Groups of which this node has a member, wanted or not.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.keys().copied()
    }

    /// How many groups this node leads that another one could lead.
    pub fn leads_for_others(&self) -> usize {
        self.groups.values().filter(|group| group.may_hand_over(&self.nodes)).count()
    }
}

/// What nodes do by themselves.
fn own(call: &Call) -> Frame {
    Frame { priority: Priority::HIGHEST, ..Frame::new(kind::LINEAR_CALL, wire::encode_call(call)) }
}
