//! What nodes say of themselves by beacon, read once, when it comes: views, the manager and whoever places groups look at it many
//! times a second.

use std::collections::BTreeMap;

use base::NodeId;
use clones::NodeClones;
use cluster::Beacons;

use crate::facts::{self, NodeReport};

#[derive(Default)]
pub struct Told {
    reports: BTreeMap<NodeId, NodeReport>,
    clones: BTreeMap<NodeId, NodeClones>,
    /// Of who has said nothing, or what this version cannot read.
    nothing: NodeReport,
}

impl Told {
    /// What a node says under this key is another thing by now, or nothing.
    pub fn changed(&mut self, beacons: &Beacons, origin: NodeId, key: &str) {
        match key {
            facts::REPORT => keep(&mut self.reports, origin, beacons.get(origin, key).and_then(|b| facts::decode(b))),
            facts::CLONES => {
                keep(&mut self.clones, origin, beacons.get(origin, key).and_then(|b| NodeClones::decode(b)));
            }
            _ => (),
        }
    }

    pub fn report(&self, of: NodeId) -> &NodeReport {
        self.reports.get(&of).unwrap_or(&self.nothing)
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
}
