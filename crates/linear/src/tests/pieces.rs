//! Large commands go into the log in pieces, with what is smaller between them.

use base::{LEVEL, Outcome};
use class::Class;

use super::level::Lone;
use super::*;
use crate::op::Op;
use crate::piece;

const LARGE: usize = 6 << 20;

fn put(key: &str, value: Bytes) -> Op {
    let args = vec![value, Bytes::from_static(b"always"), Bytes::from_static(b"none")];
    Op::of("bank".into(), vec![Step::new(Bytes::copy_from_slice(key.as_bytes()), "put", args)])
}

fn large() -> Bytes {
    (0..LARGE).map(|n| (n / 1_000) as u8).collect::<Vec<_>>().into()
}

fn read(lone: &mut Lone, key: &str) -> Reply {
    match lone.asks_for(Op::one("bank".into(), Bytes::copy_from_slice(key.as_bytes()), "get", vec![])) {
        Outcome::Done(Ran::Done(mut replies)) => replies.remove(0),
        other => panic!("{other:?}"),
    }
}

/// The disk takes what it was given so far; true if there was something.
fn disk_moves(lone: &mut Lone) -> bool {
    let tickets = lone.stalled.replace(Vec::new()).unwrap_or_default();
    let any = !tickets.is_empty();
    tickets.into_iter().for_each(|ticket| lone.handle(Input::Appended { group: Lone::ID, ticket }));
    any
}

/// With a large value that is being written on a slow disk, and a small one that comes a moment later; how often the disk was done
/// until each was answered, and how large the largest record was.
fn beside(agreed: u32) -> (Lone, [usize; 2], usize) {
    let mut lone = Lone::start(LEVEL, agreed, Vec::new());
    lone.stalled = Some(Vec::new());
    let from = lone.disk.len();
    lone.begins(put("large", large()));
    disk_moves(&mut lone);
    lone.begins(put("small", "v".into()));
    let (mut turns, mut ends) = (0, Vec::new());
    while disk_moves(&mut lone) {
        turns += 1;
        lone.ended.drain(..).for_each(|end| {
            assert!(matches!(end, Outcome::Done(_)), "{end:?}");
            ends.push(turns);
        });
    }
    let largest = lone.disk[from..].iter().map(Bytes::len).max().unwrap();
    lone.stalled = None;
    (lone, [ends[0], ends[1]], largest)
}

#[test]
fn what_is_small_does_not_wait_for_what_is_large() {
    let (mut lone, [small, whole], largest) = beside(LEVEL);
    assert!(small <= 2 && whole > 4, "{small}, {whole}");
    assert!(largest < 2 << 20, "{largest}");
    assert_eq!((read(&mut lone, "large"), read(&mut lone, "small")), (Reply::Bytes(large()), Reply::Bytes("v".into())));

    // Whatever has come to the disk when the power fails, it is there whole or not at all, and what comes next finds its way.
    let disk = lone.disk.clone();
    let seen = (1..=disk.len()).map(|upto| {
        let mut again = Lone::start(LEVEL, LEVEL, disk[..upto].to_vec());
        let found = read(&mut again, "large");
        assert!(found == Reply::Nil || found == Reply::Bytes(large()), "of {upto} records");
        again.asks_for(put("large", "other".into()));
        assert_eq!(read(&mut again, "large"), Reply::Bytes("other".into()));
        assert!(!again.disk.is_empty());
        found != Reply::Nil
    });
    let seen: Vec<bool> = seen.collect();
    assert!(!seen[seen.len() - 2] || seen[seen.len() - 1], "the last record has it");
    assert!(seen.iter().filter(|whole| !**whole).count() > 4 && *seen.last().unwrap());
}

#[test]
fn below_the_level_of_pieces_it_is_one_entry() {
    let (mut lone, _, largest) = beside(piece::LEVEL - 1);
    assert!(largest > LARGE);
    assert_eq!(read(&mut lone, "large"), Reply::Bytes(large()));
}

#[test]
fn a_snapshot_has_the_pieces_that_have_come_and_a_later_leader_lets_them_go() {
    let bytes: Bytes = {
        let batch = Batch {
            clock: 5,
            commands: vec![command(1, vec![step("k", "put", &["v", "always", "none"])])],
            ..Batch::default()
        };
        wire::encode_batch(&batch).into()
    };
    let entry = |at| {
        let piece = Some(piece::cut(&bytes, (3, 1), at, 20));
        Bytes::from(wire::encode_batch(&Batch { clock: 7, piece, ..Batch::default() }))
    };
    let apply = |space: &mut Space, entry: Bytes| {
        let mut done = Vec::new();
        assert_eq!(space.apply(1, entry, &mut done), raft::Applied::Yes);
        done.len()
    };
    let mut space = Space::default();
    let cuts: Vec<usize> = (0..bytes.len()).step_by(20).collect();
    let (last, first) = cuts.split_last().unwrap();
    assert!(first.iter().all(|at| apply(&mut space, entry(*at)) == 0));
    let copy = || crate::snapshot::read(crate::snapshot::parts(&space).0.collect()).unwrap();
    let (mut whole, mut gone) = (copy(), copy());
    assert_eq!((apply(&mut whole, entry(*last)), whole.clock(), whole.len()), (1, 7, 1));
    let drops = Batch { drops_pieces: true, ..Batch::default() };
    apply(&mut gone, wire::encode_batch(&drops).into());
    assert_eq!((apply(&mut gone, entry(*last)), gone.len()), (0, 0));

    // A program that does not know them takes no part.
    let mut older = Space::default();
    older.held_by(piece::LEVEL - 1);
    assert_eq!(older.apply(1, entry(0), &mut Vec::new()), raft::Applied::Beyond);
}

#[test]
fn large_ones_go_one_after_the_other() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.stalled = Some(Vec::new());
    ["a", "b", "c"].iter().for_each(|key| lone.begins(put(key, large())));
    while disk_moves(&mut lone) {}
    assert_eq!(lone.ended.drain(..).filter(|end| matches!(end, Outcome::Done(_))).count(), 3);
    lone.stalled = None;
    assert!(["a", "b", "c"].iter().all(|key| read(&mut lone, key) == Reply::Bytes(large())));
    assert!(lone.linear.wake_at().is_none_or(|at| at > lone.now.mono), "nothing is left to do");
}
