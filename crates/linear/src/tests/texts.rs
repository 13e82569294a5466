//! Texts that a shard keeps for scripts go where its keys go, and are not removed with them.

use super::*;
use crate::functions::texts::{EXISTS, KEEP, KEPT};
use crate::script::Draft;
use crate::split::Split;
use class::Bounds;

fn put_some(space: &mut Space) {
    for (seq, step) in [
        step("", KEEP, &["b", "return 2"]),
        step("", KEEP, &["a", "return 1"]),
        step("", KEEP, &["b", "return 2"]),
        step("k", "put", &["v", "always", "none"]),
        step("", "library.put", &["lib", "new", "code", "f", "g"]),
    ]
    .into_iter()
    .enumerate()
    {
        run(space, 1, seq as u64 + 1, step);
    }
}

#[test]
fn texts_are_in_snapshots_in_both_halves_of_a_split_and_stay_when_all_keys_go() {
    let mut space = Space::default();
    put_some(&mut space);
    assert_eq!(run(&mut space, 2, 20, step("", "clear", &[])), Reply::Int(1));
    let split = Some(Split { at: 1 << 63, child: GroupId(9), after: 0 });
    let data = wire::encode_batch(&Batch { split, ..Batch::default() });
    assert_eq!(space.apply(1, data.into(), &mut Vec::new()), raft::Applied::Yes);
    let (_, born) = space.take_born().unwrap();
    let copy = Space::from_parts(space.parts().0.collect()).unwrap();
    for space in [&space, &born, &copy] {
        let texts = space.texts();
        let scripts: Vec<_> = texts.scripts().map(|(sha, text)| (sha.clone(), text.clone())).collect();
        assert_eq!(scripts, [("b".into(), "return 2".into()), ("a".into(), "return 1".into())]);
        assert_eq!(texts.libraries()[&b"lib"[..]].functions, ["f", "g"]);
        assert_eq!(texts, copy.texts());
    }
    assert_eq!(raft::State::bytes(&copy), raft::State::bytes(&space));
}

#[test]
fn what_was_forgotten_stays_so_and_snapshots_know_how_often() {
    let mut space = Space::default();
    put_some(&mut space);
    assert_eq!(run(&mut space, 2, 20, step("", "scripts.flush", &[])), Reply::Int(2));
    assert_eq!(run(&mut space, 2, 21, step("", "scripts.known", &["a"])), Reply::List(vec![Reply::Int(0)]));
    let again = step("", "library.put", &["lib", "new", "other", "f"]);
    assert_eq!(run(&mut space, 2, 22, again), Reply::Int(EXISTS));
    let other = step("", "library.put", &["two", "new", "other", "g"]);
    assert_eq!(run(&mut space, 2, 23, other), Reply::Bytes("g".into()));
    let replaced = step("", "library.put", &["lib", "replace", "other", "f"]);
    assert_eq!(run(&mut space, 2, 24, replaced), Reply::Int(KEPT));
    let copy = Space::from_parts(space.parts().0.collect()).unwrap();
    assert_eq!((copy.texts().flushes(), copy.texts()), (1, space.texts()));
    let all = step("", "library.list", &[]);
    assert_eq!(run(&mut space, 2, 25, all), Reply::List(["lib", "other"].map(|b| Reply::Bytes(b.into())).into()));
}

#[test]
fn a_script_that_is_asked_for_by_its_digest_is_kept_with_what_it_changes() {
    let space = Space::default();
    for (agreed, kept) in [(6, 1), (5, 0)] {
        let mut draft = Draft::new(space.draft(0), Bounds::default(), (0, u64::MAX), agreed);
        draft.keep_script(&"sha".into(), &"return 1".into());
        draft.keep_script(&"sha".into(), &"return 1".into());
        assert_eq!(draft.changes().len(), kept, "older programs know nothing of it");
        assert_eq!(draft.texts().script(b"sha").is_some(), kept == 1);
    }
    assert!(space.texts().is_empty(), "a draft is not the space");
}
