//! One group becomes two: what each has then, and what becomes of those who ask the wrong one.

use base::Rng;

use super::*;
use crate::split::{Split, hash_of};

const AT: u64 = 1 << 63;

fn split(space: &mut Space, after: u32) -> Option<(GroupId, Space)> {
    let split = Some(Split { at: AT, child: GroupId(9), after });
    let data = wire::encode_batch(&Batch { split, ..Batch::default() });
    assert_eq!(space.apply(1, data.into(), &mut Vec::new()), raft::Applied::Yes);
    space.take_born()
}

/// A key that goes (true) or stays.
fn key(goes: bool, nth: usize) -> String {
    (0..).map(|n| format!("key{n}")).filter(|key| (hash_of(key.as_bytes()) >= AT) == goes).nth(nth).expect("endless")
}

fn read(space: &Space, step: Step) -> Reply {
    match space.read(&[], &[step]) {
        Ran::Done(mut replies) => replies.remove(0),
        Ran::Unmet => panic!("there was no condition"),
    }
}

#[test]
fn each_key_is_in_one_half_with_its_version_and_end() {
    let mut rng = Rng::new(3);
    let mut space = Space::default();
    for seq in 1..3_000 {
        let name = format!("k{}", rng.below(900));
        let step = match rng.below(5) {
            0 => step(&name, "remove", &[]),
            1 => step(&name, "put", &["v", "always", "100000"]),
            2 => step(&name, "put", &["short", "always", "5"]),
            _ => step(&name, "put", &[&format!("{seq}"), "always", "none"]),
        };
        run(&mut space, seq, seq, step);
    }
    let whole = Space::from_parts(space.parts().0.collect()).unwrap();
    let (child, born) = split(&mut space, 0).unwrap();
    assert_eq!((child, born.revision(), born.clock()), (GroupId(9), whole.revision(), whole.clock()));
    assert!(space.len() > 100 && born.len() > 100 && space.len() + born.len() == whole.len());
    assert_eq!(raft::State::bytes(&space) + raft::State::bytes(&born), raft::State::bytes(&whole));
    let first_end = [space.next_end(), born.next_end()].into_iter().flatten().min();
    assert_eq!(first_end, whole.next_end());
    for (key, entry) in whole.map().from(b"") {
        let (has, other) = if hash_of(key) >= AT { (&born, &space) } else { (&space, &born) };
        assert_eq!((has.map().get(key), other.map().get(key)), (Some(entry), None));
    }
    // Snapshots of both know it.
    for half in [&space, &born] {
        let copy = Space::from_parts(half.parts().0.collect()).unwrap();
        assert_eq!((copy.splits(), copy.above(), copy.len()), (half.splits(), half.above(), half.len()));
    }
    assert_eq!((space.splits(), space.above()), (1, Some(AT)));
    assert_eq!((born.splits(), born.above()), (0, None));
}

#[test]
fn it_happens_once_however_often_the_log_says_so() {
    let mut space = Space::default();
    run(&mut space, 1, 1, step(&key(true, 0), "put", &["v", "always", "none"]));
    let (_, born) = split(&mut space, 0).unwrap();
    assert_eq!((born.len(), space.len()), (1, 0));
    assert!(split(&mut space, 0).is_none(), "another leader had ordered it too");
    assert!(split(&mut space, 1).is_none(), "nothing is above that any more");
}

#[test]
fn what_was_done_before_is_known_in_both_halves_and_what_was_not_is_not_done_in_the_old_one() {
    let mut space = Space::default();
    let push = |seq, goes| command(seq, vec![step(&key(goes, 0), "list.push-right", &["a"])]);
    let first = apply(&mut space, 1, vec![push(1, true), push(2, false)]);
    let (_, mut born) = split(&mut space, 0).unwrap();
    for half in [&mut space, &mut born] {
        assert_eq!(apply(half, 2, vec![push(1, true), push(2, false)]), first, "the first answers");
    }
    assert_eq!(apply(&mut space, 3, vec![push(3, true)]), [Verdict::Moved]);
    assert_eq!(space.verdict(&push(3, true)), None);
    assert!(matches!(apply(&mut born, 3, vec![push(3, true)])[..], [Verdict::Ran(_)]));
    assert_eq!(read(&born, step(&key(true, 0), "list.length", &[])), Reply::Int(2), "once each");
    assert!(matches!(apply(&mut space, 4, vec![push(4, false)])[..], [Verdict::Ran(_)]), "that is still here");
}

#[test]
fn who_thinks_that_a_half_is_all_is_told() {
    let mut space = Space::default();
    split(&mut space, 0);
    let count = |splits| Command { splits, ..command(7, vec![step("", "count", &[])]) };
    assert!(!space.has(&count(0)) && space.has(&count(1)));
    let both = command(8, vec![step(&key(false, 0), "get", &[]), step(&key(true, 0), "get", &[])]);
    assert!(!space.has(&both));
    let condition = Condition { key: key(true, 1).into(), version: 0 };
    let conditional = Command { conditions: vec![condition], ..command(9, vec![step(&key(false, 0), "get", &[])]) };
    assert!(!space.has(&conditional));
    assert_eq!(apply(&mut space, 1, vec![count(0)]), [Verdict::Moved]);
}

#[test]
fn who_watches_misses_nothing_in_either_half() {
    let mut space = Space::default();
    for n in 0..20u64 {
        run(&mut space, n, n + 1, step(&key(n % 3 == 0, n as usize), "put", &["v", "always", "none"]));
    }
    let (_, born) = split(&mut space, 0).unwrap();
    let changes = |space: &Space, after: &str| match read(space, step("", "changes.prefix", &[after, "now", ""])) {
        Reply::List(parts) => match <[Reply; 2]>::try_from(parts).unwrap() {
            [Reply::Int(20), Reply::List(changes)] => changes.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!((changes(&space, "0"), changes(&born, "0")), (13, 7));
    assert_eq!((changes(&space, "10"), changes(&born, "10")), (7, 3));
}
