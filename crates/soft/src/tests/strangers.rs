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
        let give = |world: &mut World, frame: Frame| {
            let mut out = Vec::new();
            world.nodes.get_mut(&1).unwrap().handle(world.now, Input::Frame { from: NodeId(2), frame }, &mut out);
        };
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
