//! What nodes say of themselves by beacon, read once, when it comes: views, the manager and whoever places groups look
//! at it many times a second.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use clones::NodeClones;
use clones::members::Said;
use cluster::Beacons;

use crate::asked::UsesTold;
use crate::facts::{self, NodeReport};

#[derive(Default)]
pub struct Told {
    reports: BTreeMap<NodeId, NodeReport>,
    clones: BTreeMap<NodeId, NodeClones>,
    uses: BTreeMap<NodeId, UsesTold>,
    /// Members of services by node, and by the key of each part in which they are told.
    members: BTreeMap<NodeId, BTreeMap<String, Said>>,
    /// Whose clones, or parts of that, are to be read anew.
    unread: BTreeSet<NodeId>,
    /// What is others by now, and nobody has asked for since.
    fresh: Fresh,
    /// The report of a node that has said nothing, or what this version cannot read.
    nothing: NodeReport,
}

#[derive(Default)]
struct Fresh {
    clones: bool,
    members: bool,
    assignments: BTreeSet<NodeId>,
}

impl Told {
    /// What a node says under this key is another thing by now, or nothing.
    pub fn changed(&mut self, beacons: &Beacons, origin: NodeId, key: &str) {
        match facts::whole(key) {
            facts::REPORT => {
                keep(&mut self.reports, origin, beacons.get(origin, key).and_then(|b| NodeReport::read(b)))
            }
            facts::USES => keep(&mut self.uses, origin, beacons.get(origin, key).and_then(|b| facts::decode(b))),
            facts::CLONES => _ = self.unread.insert(origin),
            facts::ASSIGNMENTS => _ = self.fresh.assignments.insert(origin),
            facts::MEMBERS => {
                let of_it = self.members.entry(origin).or_default();
                match beacons.get(origin, key).and_then(|bytes| Said::decode(bytes)) {
                    Some(said) => _ = of_it.insert(key.to_owned(), said),
                    None => _ = of_it.remove(key),
                }
                if of_it.is_empty() {
                    self.members.remove(&origin);
                }
                self.fresh.members = true;
            }
            _ => (),
        }
    }

    /// All that came together has changed: reads what is in parts. Where one is missing, what was said before it holds.
    pub fn read(&mut self, beacons: &Beacons) {
        for origin in std::mem::take(&mut self.unread) {
            let part = |number| beacons.get(origin, &facts::part(facts::CLONES, number));
            let head = beacons.get(origin, facts::CLONES);
            let said = head.and_then(|head| NodeClones::read(head, part));
            if said.is_none() && head.is_some_and(|head| clones::wire::is_in_parts(head)) {
                continue;
            }
            keep(&mut self.clones, origin, said);
            self.fresh.clones = true;
        }
    }

    /// Whether clones of some node are others than when this was asked last.
    pub fn has_fresh_clones(&mut self) -> bool {
        std::mem::take(&mut self.fresh.clones)
    }

    /// ... what some node says of members.
    pub fn has_fresh_members(&mut self) -> bool {
        std::mem::take(&mut self.fresh.members)
    }

    /// ... what this node says of where clones run, or a part of that.
    pub fn has_fresh_assignments(&mut self, origin: NodeId) -> bool {
        self.fresh.assignments.remove(&origin)
    }

    /// All that a node says of members.
    pub fn members(&self, of: NodeId) -> Option<Said> {
        let mut all = Said::default();
        self.members.get(&of)?.values().for_each(|said| all.take_over(said.clone()));
        Some(all)
    }

    pub fn report(&self, of: NodeId) -> &NodeReport {
        self.reports.get(&of).unwrap_or(&self.nothing)
    }

    /// What one of a node's clones uses: thousandths of a core, MiB.
    pub fn use_of(&self, of: NodeId, clone: &str) -> Option<(u32, u32)> {
        self.uses.get(&of)?.get(clone).copied()
    }

    pub fn clones(&self, of: NodeId) -> Option<&NodeClones> {
        self.clones.get(&of)
    }
}

fn keep<T>(all: &mut BTreeMap<NodeId, T>, origin: NodeId, said: Option<T>) {
    match said {
        Some(said) => _ = all.insert(origin, said),
        None => _ = all.remove(&origin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Boot, Now, Rng, Span, Time};
    use cluster::beacon::{Input, Output};

    #[test]
    fn what_is_kept_is_what_was_said_last() {
        let (me, mut told) = (NodeId(1), Told::default());
        let mut beacons = Beacons::new(me, Boot(1), Rng::new(1));
        let mut say = |told: &mut Told, input| {
            let mut out = Vec::new();
            beacons.handle(Now { mono: Time(1), wall_ms: 1 }, input, &mut out);
            for want in out {
                if let Output::Changed { origin, key } = want {
                    told.changed(&beacons, origin, &key);
                }
            }
            told.read(&beacons);
        };
        let put = |value| Input::Put { key: facts::REPORT.into(), value, ttl: Span::secs(10) };
        say(&mut told, put(facts::encode(&NodeReport { load: 7, ..NodeReport::default() })));
        assert_eq!((told.report(me).load, told.report(NodeId(2)).load), (7, 0));
        say(&mut told, put("no report".into()));
        assert_eq!(told.report(me), &NodeReport::default());
        say(&mut told, put(facts::encode(&NodeReport { load: 8, ..NodeReport::default() })));
        assert_eq!(told.report(me).load, 8);
        say(&mut told, Input::Remove { key: facts::REPORT.into() });
        assert_eq!(told.report(me), &NodeReport::default());
    }

    #[test]
    fn clones_in_parts_are_those_of_one_moment_and_hold_until_all_parts_of_the_next_are_here() {
        use clones::{CloneId, CloneState, CloneStatus};
        let (me, mut told) = (NodeId(1), Told::default());
        let mut beacons = Beacons::new(me, Boot(1), Rng::new(1));
        let mut say = |told: &mut Told, puts: Vec<(String, bytes::Bytes)>, removes: Vec<String>| {
            let mut out = Vec::new();
            let input = Input::PutAll { puts, removes, ttl: Span::secs(10) };
            beacons.handle(Now { mono: Time(1), wall_ms: 1 }, input, &mut out);
            for want in out {
                if let Output::Changed { origin, key } = want {
                    told.changed(&beacons, origin, &key);
                }
            }
            told.read(&beacons);
            told.has_fresh_clones()
        };
        let many = |port: u16| {
            let status = |n| CloneStatus {
                id: CloneId::new(format!("s{n}"), 0),
                state: CloneState::Serving,
                pid: 1,
                port,
                restarts: 0,
                since_ms: 0,
                last_exit: None,
                last_output: Vec::new(),
                life: 1,
                spec_hash: 0,
                version: 0,
                deaths: None,
                sick: false,
            };
            let mut clones: Vec<CloneStatus> = (0..500).map(status).collect();
            clones.sort_by(|a, b| a.id.cmp(&b.id));
            NodeClones { clones, ..NodeClones::default() }
        };
        let facts_of = |clones: &NodeClones| {
            let told = clones.told(true);
            let parts: Vec<_> = told.parts.into_iter().map(|(n, b)| (facts::part(facts::CLONES, n), b)).collect();
            assert!(parts.len() > 1);
            (parts, vec![(facts::CLONES.to_owned(), told.head)])
        };
        let (first, second) = (many(1), many(2));
        let (parts, head) = facts_of(&first);
        assert!(!say(&mut told, parts.clone(), Vec::new()) || told.clones(me).is_none());
        assert!(say(&mut told, head, Vec::new()));
        assert_eq!(told.clones(me), Some(&first));
        let (newer, head) = facts_of(&second);
        assert!(!say(&mut told, [newer[1..].to_vec(), head].concat(), Vec::new()), "one part is of before");
        assert_eq!(told.clones(me), Some(&first));
        assert!(say(&mut told, newer[..1].to_vec(), Vec::new()));
        assert_eq!(told.clones(me), Some(&second));
        assert!(say(&mut told, Vec::new(), vec![facts::CLONES.to_owned()]));
        assert_eq!(told.clones(me), None);
    }
}
