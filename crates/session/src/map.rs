//! Which nodes are bricks, which of them hold a key, and how that changes: always through a transition in which the
//! old and the new placement both count, so that no acknowledged write is left behind.

use std::collections::BTreeMap;

use base::checksum::place_hash_pair;
use base::{NodeId, Span};
use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::limits::{BRICKS_ACKED, BRICKS_ASKED, DEAD_LEAVES_AFTER, MEMBERS_MIN};

/// The bricks of the cluster. Kept in the root group; changed by [`next_map`] only, one step at a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickMap {
    /// Counts up by one with each change; the first is 1.
    pub epoch: u64,
    /// In ascending order, without repeats, never empty.
    pub members: Vec<NodeId>,
    /// The members before, while the transition lasts.
    pub old: Option<Vec<NodeId>>,
}

#[derive(Clone, PartialEq, Message)]
struct MapMessage {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(fixed64, repeated, tag = "2")]
    members: Vec<u64>,
    #[prost(fixed64, repeated, tag = "3")]
    old: Vec<u64>,
}

impl BrickMap {
    pub fn encode(&self) -> Bytes {
        let ids = |nodes: &[NodeId]| nodes.iter().map(|n| n.0).collect();
        let old = self.old.as_deref().map(ids).unwrap_or_default();
        MapMessage { epoch: self.epoch, members: ids(&self.members), old }.encode_to_vec().into()
    }

    /// `None` if the bytes are no map.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let message = MapMessage::decode(bytes).ok()?;
        let ids = |ids: Vec<u64>| {
            let mut nodes: Vec<_> = ids.into_iter().map(NodeId).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        let (members, old) = (ids(message.members), ids(message.old));
        let old = if old.is_empty() { None } else { Some(old) };
        // There is a next one, too.
        let is_epoch = (1..u64::MAX).contains(&message.epoch);
        (is_epoch && !members.is_empty()).then_some(Self { epoch: message.epoch, members, old })
    }

    /// Members of the present and of the placement before, each once, ascending.
    pub fn everyone(&self) -> Vec<NodeId> {
        let mut all = self.members.clone();
        all.extend(self.old.iter().flatten());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The next map if a live member is to leave: first its values are copied (the transition), then it may end. `None`
    /// while that is not possible.
    pub fn without(&self, gone: NodeId, live: &[NodeId], seen: &BTreeMap<NodeId, u64>) -> Option<Self> {
        let known = live
            .iter()
            .all(|node| !self.members.contains(node) || seen.get(node).is_some_and(|&epoch| epoch >= self.epoch));
        let may = known && self.old.is_none() && self.members.contains(&gone) && self.can_drop();
        let members = self.members.iter().copied().filter(|node| *node != gone).collect();
        may.then(|| Self { epoch: self.epoch + 1, members, old: Some(self.members.clone()) })
    }

    /// Whether a member that is gone leaves it, once the transition is over if there is one.
    pub fn can_drop(&self) -> bool {
        self.members.len() > MEMBERS_MIN
    }

    pub fn is_brick(&self, node: NodeId) -> bool {
        self.members.contains(&node) || self.old.as_ref().is_some_and(|old| old.contains(&node))
    }
}

/// Up to three nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    nodes: [NodeId; BRICKS_ASKED],
    len: u8,
}

impl Placement {
    /// These nodes, the first three of them.
    pub fn of(nodes: &[NodeId]) -> Self {
        let len = nodes.len().min(BRICKS_ASKED);
        let mut placement = Self { nodes: Default::default(), len: len as u8 };
        placement.nodes[..len].copy_from_slice(&nodes[..len]);
        placement
    }

    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.len)]
    }

    /// None if it is empty.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self.len > 0).then(|| Box::new(self))
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes().contains(&node)
    }

    /// Acknowledgements that a write waits for (the paper's WQ).
    pub fn acks(&self) -> usize {
        self.nodes().len().min(BRICKS_ACKED)
    }

    /// Answers of settled bricks that surely include one that holds the last acknowledged write.
    pub fn answers(&self) -> usize {
        self.nodes().len() - self.nodes().len().min(BRICKS_ACKED) + 1
    }
}

/// Where a key's hash comes from: its bytes and its namespace's number.
pub fn key_hash(namespace: u32, key: &[u8]) -> u64 {
    place_hash_pair(key, u64::from(namespace))
}

/// The bricks of a key: the first by rendezvous hash. Never changes for given members: a golden test holds it.
pub fn place(members: &[NodeId], hash: u64) -> Placement {
    let mut top = [(0u64, NodeId(0)); BRICKS_ASKED];
    let mut len = 0;
    let bytes = hash.to_le_bytes();
    for &node in members {
        let score = (place_hash_pair(&bytes, node.0), node);
        let at = top[..len].iter().position(|have| score > *have).unwrap_or(len);
        if at < BRICKS_ASKED {
            len = (len + 1).min(BRICKS_ASKED);
            top[at..len].rotate_right(1);
            top[at] = score;
        }
    }
    Placement { nodes: top.map(|(_, node)| node), len: len as u8 }
}

/// The next map, if it should change. Run by the root group's leader, which stores the result there.
/// - `live`: who is live by its membership; `dead_for`: how long each node that is not live has been so;
/// - `seen`, `filled`: the epochs that each node's beacon says its session machine has seen, and is filled for.
pub fn next_map(
    current: Option<&BrickMap>,
    live: &[NodeId],
    dead_for: &BTreeMap<NodeId, Span>,
    seen: &BTreeMap<NodeId, u64>,
    filled: &BTreeMap<NodeId, u64>,
) -> Option<BrickMap> {
    let mut live = live.to_vec();
    live.sort_unstable();
    live.dedup();
    let Some(map) = current else {
        return (!live.is_empty()).then_some(BrickMap { epoch: 1, members: live, old: None });
    };
    let reached =
        |epochs: &BTreeMap<NodeId, u64>, node: &NodeId| epochs.get(node).is_some_and(|&epoch| epoch >= map.epoch);
    if map.old.is_some() {
        // Every stub must know of the transition before one may forget the old placement, bricks or not.
        let everyone = map.everyone();
        let ends = live.iter().all(|node| reached(seen, node) && (!everyone.contains(node) || reached(filled, node)));
        let some_member_live = map.members.iter().any(|node| live.contains(node));
        return (ends && some_member_live).then(|| BrickMap {
            epoch: map.epoch + 1,
            members: map.members.clone(),
            old: None,
        });
    }
    // The stable map, too, must have been seen by all before it changes again: bricks refuse what is two steps behind.
    if !live.iter().all(|node| reached(seen, node) || !map.members.contains(node)) {
        return None;
    }
    let mut members = map.members.clone();
    members.extend(live.iter().filter(|node| !map.members.contains(node)));
    members.sort_unstable();
    if members == map.members {
        // One at a time, the longest dead first: two at once could be two of one key's three.
        let gone = members
            .iter()
            .filter(|node| !live.contains(node))
            .filter_map(|node| dead_for.get(node).map(|span| (*span, *node)))
            .filter(|(span, _)| *span >= DEAD_LEAVES_AFTER)
            .max()?
            .1;
        if members.len() <= MEMBERS_MIN {
            return None;
        }
        members.retain(|node| *node != gone);
    }
    Some(BrickMap { epoch: map.epoch + 1, members, old: Some(map.members.clone()) })
}
