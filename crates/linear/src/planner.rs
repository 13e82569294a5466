//! What class `linear` plans at the root group's leader: it shows `place.rs` the cluster as its groups have it.

use std::collections::{BTreeMap, BTreeSet};

use base::{GroupId, NodeId, Span};
use class::Outlook;

use super::machine::Linear;
use super::place::{self, Placed, Plan, Scene};

/// Key of the groups that a node leads and that have just formed, among what it tells all others.
pub const FORMED: &str = "formed";

/// The records that should be there, when those are `now`.
pub(super) fn plan(outlook: &Outlook<'_, Linear>, now: &BTreeMap<String, Placed>) -> Plan {
    let placed = Records(now);
    let formed = |id: &NodeId| -> BTreeSet<GroupId> {
        let said = (outlook.facts)(*id, FORMED).and_then(|bytes| serde_json::from_slice(bytes).ok());
        said.unwrap_or_default()
    };
    // A node speaks for groups of which it is a member.
    let of_its_own = |id: NodeId, groups: BTreeSet<GroupId>| groups.into_iter().filter(move |of| placed.has(*of, id));
    let large = |id: &NodeId| (outlook.report)(*id).large.clone();
    let mut scene = Scene {
        wanted: outlook.groups.clone(),
        now: now.iter().map(|(name, placed)| (name.as_str(), placed)).collect(),
        formed: outlook.live.iter().flat_map(|id| of_its_own(*id, formed(id))).collect(),
        large: outlook.live.iter().flat_map(|id| of_its_own(*id, large(id))).collect(),
        away: outlook.away(now.values().flat_map(|placed| placed.members.iter().copied())),
        given_up: outlook.leaving.iter().filter(|(_, force)| **force).map(|(id, _)| *id).collect(),
        settled: outlook.leaving.is_empty() && placed.are_whole(outlook),
        fresh: outlook.version + 1,
        live: outlook.live.to_vec(),
    };
    // A disk that takes nothing is as good as away, and gets nothing new.
    scene.live.retain(|id| !outlook.troubled.contains_key(id) && !outlook.leaving.contains_key(id));
    scene.away.extend(outlook.troubled);
    // Who leaves for good is away from now on, and goes when others have all that it has.
    scene.away.extend(outlook.leaving.keys().map(|id| (*id, Span(u64::MAX))));
    place::plan(&scene)
}

/// Records of all groups, by name.
#[derive(Clone, Copy)]
struct Records<'a>(&'a BTreeMap<String, Placed>);

impl Records<'_> {
    /// Whether a node is a member of a group. One that a split makes has no record yet: its members are those of the one that is split.
    fn has(&self, group: GroupId, node: NodeId) -> bool {
        let is_it = |placed: &Placed| placed.id == group || placed.split.is_some_and(|split| split.child == group);
        self.0.values().any(|placed| is_it(placed) && placed.members.contains(&node))
    }

    /// Do all groups' leaders say that all is as placed? What they say is up to a second old: a step more or less that is made at
    /// once does not matter.
    fn are_whole(&self, outlook: &Outlook<'_, Linear>) -> bool {
        let is_member = |id: &&NodeId| self.0.values().any(|placed| placed.members.contains(id));
        let told = outlook.live.iter().filter(is_member).map(|id| (outlook.report)(*id).whole);
        let whole = told.clone().map(|(_, count)| count).sum::<u64>();
        told.clone().all(|(of, _)| of >= outlook.version) && whole >= self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use class::Groups;

    use super::*;
    use crate::Report;

    const WANTED: Groups = Groups { shards: None, grows: false, replicas: 3, memory: false };

    /// What is planned for one namespace of nodes 1 to 4 while `formed` says that a group has formed.
    fn planned(now: &BTreeMap<String, Placed>, formed: Option<(NodeId, GroupId)>, leaving: &[u64]) -> Plan {
        let live: Vec<NodeId> = (1..=4).map(NodeId).collect();
        let report = Report { whole: (9, now.len() as u64), ..Report::default() };
        let nothing = Report { whole: (9, 0), ..Report::default() };
        let said = formed.map(|(by, group)| (by, Bytes::from(serde_json::to_vec(&[group]).unwrap())));
        plan(
            &Outlook {
                version: 9,
                live: &live,
                away: &BTreeMap::new(),
                seen: &live.iter().copied().collect(),
                watched: Span::secs(60),
                leaving: &leaving.iter().map(|id| (NodeId(*id), false)).collect(),
                troubled: &BTreeMap::new(),
                groups: &[("carts", WANTED)].into(),
                record: Box::new(|_| None),
                report: Box::new(|id| if id == NodeId(1) { &report } else { &nothing }),
                facts: &|id, key| said.as_ref().filter(|(by, _)| key == FORMED && *by == id).map(|(_, bytes)| bytes),
            },
            now,
        )
    }

    #[test]
    fn a_group_is_founded_has_formed_when_a_member_says_so_and_gives_up_who_leaves() {
        let founded = planned(&BTreeMap::new(), None, &[]).puts;
        let [(name, placed)] = &founded.iter().collect::<Vec<_>>()[..] else { panic!("{founded:?}") };
        assert_eq!((name.as_str(), place::created_at(placed.id)), ("carts/0", 10), "in the version that it makes");
        let stranger = (1..=4).map(NodeId).find(|id| !placed.members.contains(id)).unwrap();
        let says = |by: NodeId| planned(&founded, Some((by, placed.id)), &[]).puts;
        assert_eq!(says(stranger), BTreeMap::new(), "it does not speak for a group that it is no member of");
        let formed = says(placed.members[0]);
        assert!(formed["carts/0"].founders.is_empty() && formed["carts/0"].members == placed.members);
        assert!(planned(&formed, None, &[]).is_empty(), "all is as it should be");
        let left = planned(&formed, None, &[placed.members[2].0]).puts;
        assert!(left["carts/0"].members.contains(&stranger), "another one takes the place of who leaves: {left:?}");
    }
}
