//! Placement never changes for given members, moves little when they change, and the map changes only in steps that
//! keep every acknowledged write within reach.

use std::collections::BTreeMap;

use base::{NodeId, Span};
use proptest::prelude::*;

use super::map::{BrickMap, key_hash, next_map, place};

fn nodes(ids: &[u64]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn epochs(ids: &[u64], epoch: u64) -> BTreeMap<NodeId, u64> {
    ids.iter().map(|id| (NodeId(*id), epoch)).collect()
}

fn dead(ids: &[u64], secs: u64) -> BTreeMap<NodeId, Span> {
    ids.iter().map(|id| (NodeId(*id), Span::secs(secs))).collect()
}

fn map(epoch: u64, members: &[u64], old: Option<&[u64]>) -> BrickMap {
    BrickMap { epoch, members: nodes(members), old: old.map(nodes) }
}

#[test]
fn placement_never_changes() {
    let members = nodes(&[1, 2, 3, 4, 5, 6, 7]);
    let placed = ["", "a", "cart-1", "cart-2"].map(|key| {
        let placement = place(&members, key_hash(9, key.as_bytes()));
        placement.nodes().iter().map(|node| node.0).collect::<Vec<_>>()
    });
    assert_eq!(placed, GOLDEN);
}
const GOLDEN: [[u64; 3]; 4] = [[7, 5, 6], [5, 1, 4], [1, 3, 6], [2, 4, 1]];

proptest! {
    #[test]
    fn a_member_more_takes_its_share_and_moves_nothing_else(keys in proptest::collection::vec(any::<u64>(), 300)) {
        let (before, after) = (nodes(&[1, 2, 3, 4, 5]), nodes(&[1, 2, 3, 4, 5, 6]));
        let mut moved = 0;
        for hash in &keys {
            let (old, new) = (place(&before, *hash), place(&after, *hash));
            prop_assert_eq!(new.nodes().len(), 3);
            let came: Vec<_> = new.nodes().iter().filter(|node| !old.contains(**node)).collect();
            prop_assert!(came.is_empty() || came == [&NodeId(6)]);
            moved += came.len();
        }
        prop_assert!((90..210).contains(&moved), "half of the keys gain it as one of three: {}", moved);
    }

    #[test]
    fn no_bytes_make_a_map_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Some(map) = BrickMap::decode(&bytes) {
            prop_assert_eq!(BrickMap::decode(&map.encode()), Some(map));
        }
    }
}

#[test]
fn fewer_than_three_members_take_all_keys() {
    for count in 1..=3u64 {
        let members: Vec<_> = (1..=count).map(NodeId).collect();
        let placement = place(&members, 77);
        assert_eq!(placement.nodes().len(), count as usize);
        assert_eq!((placement.acks(), placement.answers()), [(1, 1), (2, 1), (2, 2)][count as usize - 1]);
    }
    assert!(place(&[], 1).nodes().is_empty());
}

/// A line: present map, live, dead for so many seconds, who has seen it, who is filled for it, and the next map.
#[test]
fn the_map_changes_like_this() {
    type Line =
        (Option<BrickMap>, &'static [u64], (&'static [u64], u64), &'static [u64], &'static [u64], Option<BrickMap>);
    let table: [Line; 13] = [
        (None, &[], (&[], 0), &[], &[], None),
        (None, &[2, 1], (&[], 0), &[], &[], Some(map(1, &[1, 2], None))),
        (Some(map(1, &[1], None)), &[1], (&[], 0), &[1], &[1], None),
        // Newcomers come through a transition, all at once.
        (Some(map(1, &[1], None)), &[1, 2, 3], (&[], 0), &[1], &[1], Some(map(2, &[1, 2, 3], Some(&[1])))),
        // It lasts until all have seen it and all bricks are filled.
        (Some(map(2, &[1, 2, 3], Some(&[1]))), &[1, 2, 3], (&[], 0), &[1, 2], &[1, 2, 3], None),
        (Some(map(2, &[1, 2, 3], Some(&[1]))), &[1, 2, 3], (&[], 0), &[1, 2, 3], &[1, 3], None),
        (
            Some(map(2, &[1, 2, 3], Some(&[1]))),
            &[1, 2, 3],
            (&[], 0),
            &[1, 2, 3],
            &[1, 2, 3],
            Some(map(3, &[1, 2, 3], None)),
        ),
        // Who died meanwhile is not waited for.
        (Some(map(2, &[1, 2, 3], Some(&[1]))), &[1, 2], (&[3], 1), &[1, 2], &[1, 2], Some(map(3, &[1, 2, 3], None))),
        // A live node that is no brick still has to see it: its stub writes, too.
        (Some(map(2, &[1, 2], Some(&[1]))), &[1, 2, 9], (&[], 0), &[1, 2], &[1, 2], None),
        // The dead leave late, one at a time, and not below three.
        (Some(map(3, &[1, 2, 3], None)), &[1, 2], (&[3], 600), &[1, 2], &[1, 2], None),
        (Some(map(3, &[1, 2, 3, 4, 5], None)), &[1, 2, 3], (&[4, 5], 59), &[1, 2, 3], &[1, 2, 3], None),
        (
            Some(map(3, &[1, 2, 3, 4, 5], None)),
            &[1, 2, 3],
            (&[4, 5], 60),
            &[1, 2, 3],
            &[1, 2, 3],
            Some(map(4, &[1, 2, 3, 4], Some(&[1, 2, 3, 4, 5]))),
        ),
        // A stable map, too, must have been seen by its live members before the next change.
        (Some(map(3, &[1, 2, 3], None)), &[1, 2, 3, 4], (&[], 0), &[1, 2], &[1, 2, 3], None),
    ];
    for (at, (current, live, (gone, secs), seen, filled, expect)) in table.into_iter().enumerate() {
        let epoch = current.as_ref().map_or(0, |map| map.epoch);
        let next =
            next_map(current.as_ref(), &nodes(live), &dead(gone, secs), &epochs(seen, epoch), &epochs(filled, epoch));
        assert_eq!(next, expect, "line {at}");
    }
}

#[test]
fn a_live_member_leaves_by_a_transition_and_never_below_three() {
    let four = map(5, &[1, 2, 3, 4], None);
    let live = nodes(&[1, 2, 3, 4]);
    let leaves = |map: &BrickMap, gone: u64, seen: u64| map.without(NodeId(gone), &live, &epochs(&[1, 2, 3, 4], seen));
    assert_eq!(leaves(&four, 4, 5), Some(map(6, &[1, 2, 3], Some(&[1, 2, 3, 4]))));
    assert_eq!(leaves(&four, 4, 4), None, "not all know the map that stands");
    assert_eq!(leaves(&four, 7, 5), None, "it is no member");
    assert_eq!(leaves(&map(5, &[1, 2, 3, 4], Some(&[1, 2, 3])), 4, 5), None, "one change at a time");
    assert_eq!(leaves(&map(5, &[1, 2, 3], None), 3, 5), None, "three are the fewest");
}

#[test]
fn a_map_has_these_bytes() {
    let map = map(300, &[1, 2], Some(&[1]));
    let bytes = map.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "08ac0212100100000000000000020000000000000 01a080100000000000000".replace(' ', ""));
    assert_eq!(BrickMap::decode(&bytes), Some(map));
}
