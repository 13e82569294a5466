//! What the root group's leader has planned by the state classes: when each of them looks, and what all are shown.
//! Which records there should be is the class's own ([`class::Class::plan`]); a plan becomes a proposal like any change
//! (`asks.rs`).

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Now, Span, Time};
use class::Number;
use state::{Ahead, Class, NamespaceSpec};

use crate::facts;
use crate::node::{Node, Out};
use crate::view::NodeState;

/// The planner's memory: when classes looked, and since when nodes have been in trouble.
#[derive(Default)]
pub(crate) struct Plans {
    looks: BTreeMap<Number, Look>,
    /// Live nodes whose disks take nothing or are slow, and since when.
    troubled: BTreeMap<NodeId, Time>,
}

/// The last look of a class.
#[derive(Clone, Copy)]
struct Look {
    /// At which version of the declaration.
    version: u64,
    /// When the next one is, if the declaration stays.
    next_at: Time,
}

impl Plans {
    /// Whether a class is to look now: the declaration is another one, or `every` has passed. It counts as having
    /// looked then.
    fn is_due(&mut self, class: Number, every: Span, version: u64, now: Time) -> bool {
        if self.looks.get(&class).is_some_and(|last| last.version == version && now < last.next_at) {
            return false;
        }
        self.looks.insert(class, Look { version, next_at: now + every });
        true
    }

    /// There was something to do: the class looks again at once.
    fn found(&mut self, class: Number) {
        self.looks.remove(&class);
    }

    /// Something that all planners care for is another one: all look again at once.
    pub(crate) fn look_again(&mut self) {
        self.looks.clear();
    }

    /// These live nodes are in trouble now.
    fn trouble(&mut self, now: Time, nodes: &BTreeSet<NodeId>) {
        self.troubled.retain(|id, _| nodes.contains(id));
        for id in nodes {
            self.troubled.entry(*id).or_insert(now);
        }
    }
}

/// Nodes whose disks are slow, if they are the fewer ones of so many that live. Where most are slow nobody has it
/// better.
fn slower_than_most(slow: BTreeSet<NodeId>, live: usize) -> BTreeSet<NodeId> {
    if 2 * slow.len() < live { slow } else { BTreeSet::new() }
}

impl Node {
    /// At the leader: lets the records of all classes follow what is declared and who is here.
    pub(crate) fn keep_plans(&mut self, now: Now, out: &mut Out) {
        let slow = self.slow_disks();
        let live: Vec<NodeId> = self.live_cards().map(|card| card.id).collect();
        let in_trouble = |id: &NodeId| self.report_of(*id).disk.is_some() || slow.contains(id);
        let in_trouble = live.iter().copied().filter(in_trouble).collect();
        self.plans.trouble(now.mono, &in_trouble);
        for class in Class::ALL {
            let Some(every) = class.plans_every() else { continue };
            let version = self.root.declared().version;
            // One step after the other: what it would plan now has been proposed.
            if self.is_planned(*class) || !self.plans.is_due(class.number(), every, version, now.mono) {
                continue;
            }
            let plan = self.plan(now.mono, *class, &live);
            if !plan.is_empty() {
                self.plans.found(class.number());
                self.propose_plan(now, *class, plan, out);
            }
        }
    }

    fn plan<'a>(&'a self, now: Time, class: Class, live: &'a [NodeId]) -> class::Plan<bytes::Bytes> {
        let dead = self.seen.iter().filter(|(_, seen)| seen.state == NodeState::Dead);
        let mut away: BTreeMap<NodeId, Span> = dead.map(|(id, seen)| (*id, now.since(seen.since))).collect();
        // Who entered anew does not come back as who it was.
        away.extend(self.admission.gone.keys().map(|id| (*id, Span(u64::MAX))));
        let groups = |(name, spec): (&'a String, &'a NamespaceSpec)| Some((name.as_str(), spec.groups()?));
        let declared = self.root.declared();
        let ahead = Ahead {
            version: declared.version,
            live,
            away: &away,
            seen: &self.seen.keys().copied().collect(),
            watched: now.since(self.started),
            leaving: &self.parting.leaving,
            troubled: &self.plans.troubled.iter().map(|(id, since)| (*id, now.since(*since))).collect(),
            groups: &self.namespaces.iter().filter_map(groups).collect(),
            records: &|kind, name| declared.get(kind, name),
            reports: &|id| &self.report_of(id).classes,
            facts: &|id, key| self.beacons.get(id, key),
        };
        self.classes.plan(class, &ahead)
    }

    /// Live nodes whose disks are slower than those of most.
    pub(crate) fn slow_disks(&self) -> BTreeSet<NodeId> {
        let is_slow = |id: &NodeId| self.slow_force(*id).is_some();
        let slow = self.live_cards().map(|card| card.id).filter(is_slow).collect();
        slower_than_most(slow, self.live_cards().count())
    }

    /// How long a force of a node takes at least, if its disk is slow.
    pub(crate) fn slow_force(&self, id: NodeId) -> Option<Span> {
        let ms: u64 = self.beacons.get(id, facts::SLOW_DISK).and_then(|bytes| facts::decode(bytes))?;
        (ms > 0).then(|| Span::millis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_looks_at_each_declaration_again_at_once_when_there_was_something_to_do_and_else_now_and_then() {
        const EVERY: Span = Span::secs(1);
        let (mut plans, class, other) = (Plans::default(), Number(1), Number(2));
        let at = |ms: u64| Time::ZERO + Span::millis(ms);
        let looks = |plans: &mut Plans, version, ms| plans.is_due(class, EVERY, version, at(ms));
        assert!(looks(&mut plans, 1, 0), "the first time");
        assert!(!looks(&mut plans, 1, 999) && looks(&mut plans, 1, 1_000), "after a second");
        assert!(looks(&mut plans, 2, 1_001) && !looks(&mut plans, 2, 1_250), "at another declaration");
        plans.found(class);
        assert!(looks(&mut plans, 2, 1_500) && !looks(&mut plans, 2, 1_750), "when it found something");
        plans.look_again();
        assert!(looks(&mut plans, 2, 1_800), "when who leaves is another one");
        assert!(plans.is_due(other, Span::ZERO, 2, at(1_800)), "each class for itself");
        assert!(plans.is_due(other, Span::ZERO, 2, at(1_800)), "one that always looks");
    }

    #[test]
    fn a_slow_disk_counts_while_most_are_quick() {
        let nodes = |ids: &[u64]| -> BTreeSet<NodeId> { ids.iter().copied().map(NodeId).collect() };
        for (slow, live, counts) in [(&[][..], 3, true), (&[3], 3, true), (&[1, 2], 3, false), (&[1, 2], 4, false)] {
            let expected = if counts { nodes(slow) } else { nodes(&[]) };
            assert_eq!(slower_than_most(nodes(slow), live), expected, "{slow:?} of {live}");
        }
    }

    #[test]
    fn trouble_counts_from_when_it_began() {
        let (mut plans, at) = (Plans::default(), |ms: u64| Time::ZERO + Span::millis(ms));
        let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
        plans.trouble(at(5), &nodes(&[1, 2]));
        plans.trouble(at(9), &nodes(&[2, 3]));
        assert_eq!(plans.troubled, [(NodeId(2), at(5)), (NodeId(3), at(9))].into());
        plans.trouble(at(10), &nodes(&[]));
        plans.trouble(at(11), &nodes(&[2]));
        assert_eq!(plans.troubled, [(NodeId(2), at(11))].into(), "it was over");
    }
}
