//! Ids of callers: what is asked again, at another node, after a snapshot, in another group.

use cluster::raft::State as _;
use uuid::Uuid;

use super::super::limits::{ONCE_ANSWER_BYTES_MAX, ONCE_KEPT};
use super::super::once::Once;
use super::super::split::{Split, hash_of};
use super::*;

/// A time, milliseconds; the group's clock shows the same in these tests.
const NOW: u64 = 1_700_000_000_000;

fn made(at: u64, n: u64) -> Uuid {
    Uuid::from_u128(u128::from(at) << 80 | 7 << 76 | 2 << 62 | u128::from(n))
}

/// A write of this node with a caller's id.
fn asked(node: u64, id: Uuid, steps: Vec<Step>) -> Command {
    let once = Some(Once::new(id, &[], &steps));
    Command { id: CommandId { node: NodeId(node), boot: Boot(1), seq: 1 }, once, ..command(1, steps) }
}

fn push(node: u64, id: Uuid) -> Command {
    asked(node, id, vec![step("l", "list.push-right", &["a"])])
}

fn length(space: &Space) -> Ran {
    space.read(&[], &[step("l", "list.length", &[])])
}

fn one(n: i64) -> Verdict {
    Verdict::Ran(Ran::Done(vec![Reply::Int(n)]))
}

#[test]
fn it_happens_once_at_whatever_node_it_is_asked_again() {
    let mut space = Space::default();
    let id = made(NOW, 1);
    assert_eq!(apply(&mut space, NOW, vec![push(1, id), push(2, id)]), [one(1), one(1)], "also in the same entry");
    assert_eq!(apply(&mut space, NOW + 9, vec![push(3, id)]), [one(1)]);
    assert_eq!(length(&space), Ran::Done(vec![Reply::Int(1)]));
    assert_eq!(apply(&mut space, NOW + 9, vec![push(4, made(NOW, 2))]), [one(2)], "another one is another one");
    let other = asked(5, id, vec![step("l", "list.push-right", &["b"])]);
    assert_eq!(apply(&mut space, NOW + 9, vec![other]), [Verdict::Refused(Wrong::OnceReused)]);
    let unmet = |node| {
        let conditions = vec![Condition { key: "l".into(), version: 1 }];
        let steps = vec![step("l", "list.push-right", &["c"])];
        let once = Some(Once::new(made(NOW, 3), &conditions, &steps));
        Command { conditions, once, ..asked(node, id, steps) }
    };
    assert_eq!(
        apply(&mut space, NOW + 9, vec![unmet(6), unmet(7)]),
        [Verdict::Ran(Ran::Unmet), Verdict::Ran(Ran::Unmet)]
    );
}

#[test]
fn what_is_too_old_is_not_done() {
    let mut space = Space::default();
    let id = made(NOW, 1);
    assert_eq!(apply(&mut space, NOW, vec![push(1, id)]), [one(1)]);
    let later = NOW + ONCE_KEPT.as_millis() + 1_000;
    assert_eq!(apply(&mut space, later, vec![push(2, id)]), [Verdict::Forgotten]);
    assert_eq!(space.verdict(&push(2, id)), Some(Verdict::Forgotten), "the leader need not ask the log");
    assert_eq!(
        apply(&mut space, later, vec![push(3, made(NOW + 5_000, 1))]),
        [one(2)],
        "nothing of that time was forgotten"
    );
}

#[test]
fn a_large_answer_is_not_kept_and_the_retry_says_that_it_was_done() {
    let mut space = Space::default();
    let large = "x".repeat(ONCE_ANSWER_BYTES_MAX);
    run(&mut space, NOW, 9, step("k", "put", &[&large, "always", "none"]));
    let swap = |node| asked(node, made(NOW, 1), vec![step("k", "text.append", &["y"]), step("k", "get", &[])]);
    let first = apply(&mut space, NOW, vec![swap(2)]);
    assert!(matches!(&first[..], [Verdict::Ran(Ran::Done(replies))] if replies.len() == 2), "{first:?}");
    let again = Verdict::Ran(Ran::Done(vec![Reply::Wrong(Wrong::NotKept); 2]));
    assert_eq!(apply(&mut space, NOW, vec![swap(3)]), [again]);
    assert_eq!(space.get(b"k").unwrap().size, large.len() + 1);
}

#[test]
fn it_is_known_after_a_snapshot_and_in_both_halves_of_a_split() {
    let mut space = Space::default();
    let ids: Vec<Uuid> = (0..5_000).map(|n| made(NOW + n * 7, n)).collect();
    let verdicts: Vec<_> = ids.iter().map(|id| apply(&mut space, NOW, vec![push(1, *id)]).remove(0)).collect();
    // All of one node and one number: only the first has an answer by those.
    assert_eq!(verdicts[0], one(1));
    let mut space = Space::default();
    let push = |id: &Uuid| Command { id: self::id(id.as_u128() as u64 & 0xFFFF), ..push(1, *id) };
    let first: Vec<_> = ids.iter().map(|id| apply(&mut space, NOW, vec![push(id)]).remove(0)).collect();
    let mut copy = Space::from_parts(space.parts().0.collect()).unwrap();
    let again = |id: &Uuid| Command { id: CommandId { node: NodeId(2), boot: Boot(1), seq: 1 }, ..push(id) };
    assert_eq!(ids.iter().map(|id| copy.verdict(&again(id)).unwrap()).collect::<Vec<_>>(), first);
    assert_eq!(
        Space::from_parts(copy.parts().0.collect()).unwrap().verdict(&again(&ids[4_999])).as_ref(),
        first.last()
    );
    let split = Some(Split { at: hash_of(b"l"), child: GroupId(9), after: 0 });
    let data = wire::encode_batch(&Batch { clock: NOW, split, ..Batch::default() });
    assert_eq!(copy.apply(1, data.into(), &mut Vec::new()), raft::Applied::Yes);
    let (_, born) = copy.take_born().unwrap();
    assert_eq!(born.verdict(&again(&ids[7])).as_ref(), first.get(7));
    assert_eq!(length(&born), Ran::Done(vec![Reply::Int(5_000)]));
}

#[test]
fn what_a_front_door_computed_is_found_by_another_one() {
    let mut space = Space::default();
    let once = Once { id: made(NOW, 1), of: 7 };
    let args = |more: &[Bytes]| [&once.args()[..], more].concat();
    let look = Step::new("k".into(), "once.look", args(&[]));
    assert_eq!(run(&mut space, NOW, 1, look.clone()), Reply::Nil);
    let keep = Step::new("k".into(), "once.keep", args(&["{}".into()]));
    assert_eq!(run(&mut space, NOW, 2, keep), Reply::Nil);
    assert_eq!(run(&mut space, NOW, 3, look.clone()), Reply::Bytes("{}".into()));
    let other = Step::new("k".into(), "once.look", Once { of: 8, ..once }.args().into());
    assert_eq!(run(&mut space, NOW, 4, other), Reply::Wrong(Wrong::OnceReused));
    assert_eq!(run(&mut space, NOW + ONCE_KEPT.as_millis() + 1_000, 5, look), Reply::Int(0));
}

#[test]
fn what_was_forgotten_stays_so_after_a_snapshot() {
    let mut space = Space::default();
    apply(&mut space, NOW, vec![push(1, made(NOW, 1))]);
    apply(&mut space, NOW + ONCE_KEPT.as_millis() + 1_000, Vec::new());
    let copy = Space::from_parts(space.parts().0.collect()).unwrap();
    assert_eq!(copy.verdict(&push(2, made(NOW, 1))), Some(Verdict::Forgotten));
}

#[test]
fn what_was_computed_for_an_id_is_not_written_twice_though_its_key_is_as_it_was() {
    let mut space = Space::default();
    let once = Once { id: made(NOW, 1), of: 7 };
    let keep = || Step::new("k".into(), "once.keep", [&once.args()[..], &["{}".into()]].concat());
    let write = |seq| Command {
        conditions: vec![Condition { key: "k".into(), version: 0 }],
        ..command(seq, vec![step("k", "put", &["v", "always", "none"]), keep()])
    };
    assert!(matches!(apply(&mut space, NOW, vec![write(1)])[..], [Verdict::Ran(Ran::Done(_))]));
    run(&mut space, NOW, 2, step("k", "remove", &[]));
    // Another door read that the key is absent and the id unknown before the first wrote.
    assert_eq!(apply(&mut space, NOW, vec![write(3)]), [Verdict::Ran(Ran::Unmet)]);
    assert_eq!(run(&mut space, NOW, 4, step("k", "exists", &[])), Reply::Int(0));
}

#[test]
fn what_else_its_caller_said_does_not_make_it_another_one() {
    let mut door = super::together::Door::new();
    let id = made(NOW, 1);
    let pop = |number: &str| crate::Op {
        once: Some(id),
        said: Some(77),
        ..crate::Op::of("bank".into(), vec![step("s", "set.pop", &[number, "1"])])
    };
    door.ask_op(1_000, pop("123"));
    door.ask_op(1_000, pop("456"));
    let [first, again] = &door.sent[..] else { panic!("both go") };
    assert_eq!((first.once, again.once), (Some(Once { id, of: 77 }), Some(Once { id, of: 77 })));
    let mut space = Space::default();
    run(&mut space, NOW, 1, step("s", "set.add", &["a", "b", "c", "d", "e", "f"]));
    let got = apply(&mut space, NOW, vec![first.clone()]);
    assert_eq!(apply(&mut space, NOW, vec![again.clone()]), got);
    let length = space.read(&[], &[step("s", "set.length", &[])]);
    assert_eq!(length, Ran::Done(vec![Reply::Int(5)]));
}
