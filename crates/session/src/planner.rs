//! What class `session` plans at the root group's leader: the next brick map, when the one that stands should change.

use std::collections::BTreeMap;

use base::NodeId;
use class::{Outlook, Plan};

use super::map::{BrickMap, next_map};
use super::{BRICK, BrickReport, MAP_RECORD, Session};

pub(super) fn plan(outlook: &Outlook<'_, Session>) -> Plan<BrickMap> {
    let current: Option<BrickMap> = (outlook.record)(MAP_RECORD).and_then(|bytes| serde_json::from_slice(bytes).ok());
    let leaves = |id: &NodeId| outlook.leaving.contains_key(id);
    // Who leaves for good counts until it is out of the map, and does not come back in.
    let counts = |id: &NodeId| !leaves(id) || current.as_ref().is_some_and(|map| map.is_brick(*id));
    let live: Vec<NodeId> = outlook.live.iter().copied().filter(counts).collect();
    let away = outlook.away(current.iter().flat_map(|map| map.everyone()));
    let report = |id: NodeId| serde_json::from_slice::<BrickReport>((outlook.facts)(id, BRICK)?).ok();
    let reports: Vec<(NodeId, BrickReport)> = live.iter().filter_map(|id| Some((*id, report(*id)?))).collect();
    let seen: BTreeMap<NodeId, u64> = reports.iter().map(|(id, report)| (*id, report.seen)).collect();
    let filled = reports.iter().map(|(id, report)| (*id, report.filled)).collect();
    let next = next_map(current.as_ref(), &live, &away, &seen, &filled).or_else(|| {
        let gone = *live.iter().find(|id| leaves(id))?;
        current.as_ref()?.without(gone, &live, &seen)
    });
    Plan { puts: next.map(|map| (MAP_RECORD.to_owned(), map)).into_iter().collect(), ..Plan::default() }
}

#[cfg(test)]
mod tests {
    use base::Span;
    use bytes::Bytes;

    use super::*;
    use crate::Report;

    /// Members of the next map of nodes 1 to 4, of which `leaving` leave and all have followed the map.
    fn next(map: &BrickMap, leaving: &[u64]) -> Option<Vec<u64>> {
        let live: Vec<NodeId> = (1..=4).map(NodeId).collect();
        let record = Bytes::from(serde_json::to_vec(map).unwrap());
        let told = Bytes::from(serde_json::to_vec(&BrickReport { seen: map.epoch, filled: map.epoch }).unwrap());
        let report = Report::default();
        let outlook = Outlook {
            version: 1,
            live: &live,
            away: &BTreeMap::new(),
            seen: &live.iter().copied().collect(),
            watched: Span::secs(60),
            leaving: &leaving.iter().map(|id| (NodeId(*id), false)).collect(),
            troubled: &BTreeMap::new(),
            groups: &BTreeMap::new(),
            record: Box::new(|name| (name == MAP_RECORD).then_some(&record)),
            report: Box::new(|_| &report),
            facts: &|_, key| (key == BRICK).then_some(&told),
        };
        let plan = plan(&outlook);
        assert!(plan.removes.is_empty());
        plan.puts.get(MAP_RECORD).map(|map| map.members.iter().map(|id| id.0).collect())
    }

    #[test]
    fn who_leaves_for_good_is_taken_out_and_does_not_come_back() {
        let map = |members: &[u64]| {
            let members = members.iter().copied().map(NodeId).collect();
            BrickMap { epoch: 7, members, old: None }
        };
        assert_eq!(next(&map(&[1, 2, 3, 4]), &[]), None, "all is as it should be");
        assert_eq!(next(&map(&[1, 2, 3, 4]), &[2]), Some(vec![1, 3, 4]));
        assert_eq!(next(&map(&[1, 3, 4]), &[2]), None, "it is live, and on its way out");
        assert_eq!(next(&map(&[1, 3, 4]), &[]), Some(vec![1, 2, 3, 4]));
    }
}
