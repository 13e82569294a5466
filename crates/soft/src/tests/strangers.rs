//! Bytes of a peer, or of a disk, that nobody of this program can have made.

use super::*;

proptest! {
    #[test]
    fn no_bytes_of_a_peer_are_believed_that_cannot_be(
        kind in 0..14usize,
        head in prop::collection::vec(any::<u8>(), 0..60),
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let kinds = [
            machine::kind::DIGEST, machine::kind::HAVE, machine::kind::ACK, machine::kind::PAGE_ASK,
            machine::kind::PUSH, machine::kind::CELLS, machine::kind::PAGE, machine::kind::PARTS, machine::kind::MEND,
            machine::kind::SKETCH_ASK, machine::kind::SKETCH,
            machine::kind::CALL, machine::kind::CALLED, machine::kind::RELAY,
        ];
        let mut world = World::of(2, Spec { copies: 1, ..Spec::default() });
        let give = |world: &mut World, frame| world.give_unheard(1, Input::Frame { from: NodeId(2), frame });
        give(&mut world, Frame::new(kinds[kind], head));
        // Real frames, damaged.
        world.ask(2, Action::Set { pairs: vec![(bytes("k"), bytes("v"))], end: End::After(Span::secs(5)) });
        world.ask(2, Action::Add { kind: Kind::Field, key: bytes("h"), element: bytes("f"), by: 3 });
        world.wake();
        world.dies(2);
        world.air.retain(|(_, to, _)| *to == 1);
        for (_, _, frame) in std::mem::take(&mut world.air) {
            let mut head = frame.head.to_vec();
            changed.iter().for_each(|(at, byte)| if !head.is_empty() { *at.get_mut(&mut head) = *byte });
            give(&mut world, Frame::new(frame.kind, head));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_disk_make_it_panic(
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
        more in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..3),
    ) {
        let mut world = World::of(1, Spec { checkpoint_ms: 1_000, ..Spec::default() });
        for round in 0..3 {
            world.set(1, "k", &round.to_string(), End::After(Span::secs(50)));
            world.add(1, "n", 1);
            world.pass(1_500);
        }
        let mut log = world.disks[&1].values().next().unwrap().clone();
        for (at, within, byte) in changed {
            let record = at.get_mut(&mut log);
            let mut bytes = record.to_vec();
            *within.get_mut(&mut bytes) = byte;
            *record = bytes.into();
        }
        log.extend(more.into_iter().map(Bytes::from));
        let life = Life { node: NodeId(9), boot: Boot(1) };
        let _ = checkpoint::restore(world.now, &mut Space::new(life), log);
    }
}

/// A frame whose claims are a thousand times its bytes, and one of a few bytes that would fill the index: neither is
/// believed, and this node goes on.
#[test]
fn a_frame_that_claims_more_than_it_has_is_refused_as_a_whole() {
    use crate::wire::{At, Cells, Ranges, Whole};
    use prost::Message as _;

    let mut world = World::of(2, Spec { copies: 1, ..Spec::default() });
    let empty = [&[0x08, 7, 0x10, 1][..], &[0x1a, 0].repeat(base::limits::FRAME_BYTES_MAX / 2 - 64)].concat();
    let mut give = |kind, head: Vec<u8>| {
        let before = world.figure(1, "soft.odd");
        let frame = Frame::new(kind, head);
        world.give_unheard(1, Input::Frame { from: NodeId(2), frame });
        world.figure(1, "soft.odd") - before
    };
    assert_eq!(give(machine::kind::PUSH, empty), 1, "eight million empty updates");
    let at = |nth: u64| At { key: bytes(&nth.to_string()), kind: 3, element: Bytes::new() };
    let covers = |last| vec![Ranges { node: 9, boot: 1, bounds: vec![1, last], sum: 0 }];
    let whole = |nth| Whole { at: at(nth), cell: wire::ACell::default(), covers: covers(INDEX_MAX as u64 / 4) };
    let cells = |count| Cells { space: 7, context: covers(1 << 40), cells: (0..count).map(whole).collect() };
    assert_eq!(give(machine::kind::CELLS, cells(5).encode_to_vec()), 1, "a hundred bytes that fill the index");
    assert_eq!(give(machine::kind::CELLS, cells(4).encode_to_vec()), 0);
    // Sums of what is claimed do not overflow either.
    let endless =
        |nth| Whole { covers: vec![Ranges { bounds: vec![1, u64::MAX], ..covers(1)[0].clone() }; 9], ..whole(nth) };
    let cells = Cells { cells: (0..9).map(endless).collect(), ..cells(0) };
    assert_eq!(give(machine::kind::CELLS, cells.encode_to_vec()), 1);
    world.set(1, "k", "v", End::Never);
    assert_eq!(world.get(1, "k").as_deref(), Some("v"));
}

/// A peer that lies in one frame after the other, and tells nobody that it has any of it, so that nothing is forgotten.
#[test]
fn frames_that_claim_much_one_after_the_other_do_not_grow_the_index_without_end() {
    use crate::wire::{At, Cells, Ranges, Whole};
    use prost::Message as _;

    let mut world = World::of(2, Spec { copies: 1, ..Spec::default() });
    world.cut_off(2, false);
    let each = INDEX_MAX as u64 / 4;
    let frame = |nth: u64| {
        let covers = vec![Ranges { node: 9, boot: nth + 1, bounds: vec![1, each], sum: 0 }];
        let at = At { key: bytes(&nth.to_string()), kind: 3, element: Bytes::new() };
        let cells = vec![Whole { at, cell: wire::ACell::default(), covers: covers.clone() }];
        Frame::new(machine::kind::CELLS, Cells { space: 7, context: covers, cells }.encode_to_vec())
    };
    let mut most = Vec::new();
    for round in 0..4 {
        for nth in 0..8 {
            let frame = frame(round * 8 + nth);
            world.give_unheard(1, Input::Frame { from: NodeId(2), frame });
        }
        most.push(world.space(1).index.len());
        world.advance(1_200);
        world.give_unheard(1, Input::Wake);
    }
    assert!(most.iter().all(|len| *len <= 2 * INDEX_MAX + 1_000), "{most:?}");
    assert!(most[0] >= INDEX_MAX / 2, "what one frame may have is taken: {most:?}");
    world.set(1, "k", "v", End::Never);
    assert_eq!(world.get(1, "k").as_deref(), Some("v"));
}

/// Cells of as many parts as a peer may send. A join costs what both have; where it costs their product this test takes far longer than
/// the others do.
#[test]
fn cells_of_as_many_parts_as_there_may_be_are_joined() {
    use crate::cell::{Cell, Known, Sibling, Slot};
    use crate::dot::Stamp;

    let dot = |node: u64| Dot { life: Life { node: NodeId(node), boot: Boot(1) }, seq: 1 };
    let cell = |odd: u64| {
        let dots = || (0..PARTS_MAX as u64).map(|nth| dot(2 * nth + odd));
        let fresh = |dot| Sibling { dot, stamp: Stamp::default(), value: None, sum: 0, ends: None, held: false };
        let slot = |dot| Slot { birth: dot, last: dot, inc: 1, dec: 0, cut_inc: 0, cut_dec: 0 };
        Cell { siblings: dots().map(fresh).collect(), slots: dots().map(slot).collect(), gone: Vec::new() }
    };
    let (mut mine, theirs) = (cell(0), cell(1));
    mine.join(&theirs, &Context::default(), Known::Whole(&Context::default()));
    assert_eq!((mine.siblings.len(), mine.counted()), (2 * PARTS_MAX, 2 * PARTS_MAX as i128));
    let supersedes: Vec<Dot> = (0..2 * PARTS_MAX as u64).map(dot).collect();
    mine.join(&Cell::default(), &Context::default(), Known::Push { dot: dot(u64::MAX), supersedes: &supersedes });
    assert!(mine.siblings.is_empty());
    assert!(!mine.has_room_for(&theirs, &supersedes), "no more than twice as many");
}
