//! What this node does about groups that are being split (`split.rs`): founds the new ones, and knows whom to ask.

use std::collections::BTreeMap;

use base::{GroupId, Now};

use super::{Linear, Output};
use crate::group::Turn;
use crate::place::Placed;

/// The records, with those that groups which are being split will have; and which group comes from which.
pub(super) fn with_born(
    mut placed: BTreeMap<GroupId, Placed>,
) -> (BTreeMap<GroupId, Placed>, BTreeMap<GroupId, GroupId>) {
    let children: Vec<(GroupId, Placed)> = placed.values().filter_map(|p| Some((p.id, p.child()?))).collect();
    let born = children.iter().map(|(parent, child)| (*parent, child.id)).collect();
    placed.extend(children.into_iter().map(|(_, child)| (child.id, child)));
    (placed, born)
}

impl Linear {
    /// Which hashes go to which group.
    pub(super) fn route(&mut self) {
        self.spaces.clear();
        let waits = |id: &GroupId| self.born.iter().any(|(parent, child)| child == id && !self.parted.contains(parent));
        for (id, placed) in self.placed.iter().filter(|(id, _)| !waits(id)) {
            self.spaces.entry(placed.namespace.as_str().into()).or_default().insert(placed.from, *id);
        }
    }

    /// How often a group has been split, as far as this node knows.
    pub(super) fn splits_of(&self, group: GroupId) -> u32 {
        self.placed.get(&group).map_or(0, |placed| placed.splits) + u32::from(self.parted.contains(&group))
    }

    /// A group has said that it has been split since it was split so often.
    pub(super) fn learn_split(&mut self, group: GroupId, after: u32) {
        let is_it = self.placed.get(&group).is_some_and(|placed| placed.splits == after);
        if is_it && self.born.contains_key(&group) && self.parted.insert(group) {
            self.route();
        }
    }

    /// If this node's member of a group has just been split, the new group begins here: with what the member took out
    /// of its space, or waiting for those who have.
    pub(super) fn bear(&mut self, now: Now, parent: GroupId, out: &mut Vec<Output>) {
        let Some(child) = self.born.get(&parent).copied() else { return };
        let Some(group) = self.groups.get_mut(&parent) else { return };
        let (leads, after, clock) = (group.leads(), group.placed.splits, group.clock);
        let Some((placed, first)) = group.born() else { return };
        self.learn_split(parent, after);
        if self.groups.contains_key(&child) || self.kept.contains_key(&child) {
            return;
        }
        self.begin(now, placed, first, Vec::new(), out);
        let Some(group) = self.groups.get_mut(&child) else { return };
        // What passes until it begins here is not lost.
        group.clock = clock;
        if leads {
            group.stand(now.mono);
            self.settle(now, Turn::Goes, child, out);
        }
    }
}
