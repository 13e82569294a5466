//! The owner map: which node knows where the objects of an owner are. Owners fall into buckets by hash, and each bucket is managed by the
//! node with the highest weight for it among those that live (rendezvous: when a node comes or goes, its own share moves and no more).
//! Each node works it out for itself. Where two differ for a moment, two manage a bucket, and what each says is right.

use std::collections::BTreeSet;

use base::NodeId;
use base::checksum::place_hash_pair;

/// Enough that the shares of a hundred nodes are about alike.
pub(crate) const BUCKETS: u16 = 1024;

/// Who manages what, among some nodes.
#[derive(Default)]
pub(crate) struct Map {
    nodes: BTreeSet<NodeId>,
    /// Manager of each bucket; empty while there are no nodes.
    managers: Vec<NodeId>,
}

/// The bucket of an owner: all of one bucket have one manager.
pub fn bucket_of(ns: u32, owner: &[u8]) -> u16 {
    (place_hash_pair(owner, u64::from(ns)) % u64::from(BUCKETS)) as u16
}

impl Map {
    pub fn of(nodes: BTreeSet<NodeId>) -> Self {
        let weight = |bucket: u16, node: &NodeId| (place_hash_pair(&bucket.to_be_bytes(), node.0), *node);
        let manager = |bucket| nodes.iter().copied().max_by_key(|node| weight(bucket, node));
        let managers = (0..BUCKETS).filter_map(manager).collect();
        Self { managers, nodes }
    }

    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    pub fn manager(&self, bucket: u16) -> Option<NodeId> {
        self.managers.get(usize::from(bucket)).copied()
    }

    pub fn buckets_of(&self, node: NodeId) -> BTreeSet<u16> {
        (0..BUCKETS).filter(|bucket| self.manager(*bucket) == Some(node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: impl IntoIterator<Item = u64>) -> Map {
        Map::of(nodes.into_iter().map(NodeId).collect())
    }

    #[test]
    fn shares_are_about_alike_and_only_the_share_of_who_goes_moves() {
        let (all, fewer) = (map(1..=10), map((1..=10).filter(|n| *n != 4)));
        for n in 1..=10 {
            assert!((60..160).contains(&all.buckets_of(NodeId(n)).len()), "{n}");
        }
        for bucket in 0..BUCKETS {
            let (before, after) = (all.manager(bucket).unwrap(), fewer.manager(bucket).unwrap());
            assert!(before == after || before == NodeId(4), "{bucket} moved from {before} to {after}");
        }
        assert_eq!(map([]).manager(7), None);
    }
}
