//! What a namespace may hold: refused at its bound by all replicas alike, and by a leader before it goes to any disk.

use base::{LEVEL, Outcome};
use class::{Bounds, CookieSecret, Declared, Quota, Space as Declaration, Used};

use super::level::Lone;
use super::*;
use crate::op::Op;
use crate::space::KEY_BYTES;
use crate::{Spec, functions};

fn keys(most: u64) -> Bounds {
    Bounds { keys: Some(most), bytes: None }
}

fn bytes(most: u64) -> Bounds {
    Bounds { bytes: Some(most), keys: None }
}

fn within(space: &mut Space, bounds: Bounds, seq: u64, steps: Vec<Step>) -> Vec<Reply> {
    let mut done = Vec::new();
    let batch = Batch { clock: 5, commands: vec![command(seq, steps)], bounds, ..Batch::default() };
    let applied = space.apply(1, wire::encode_batch(&batch).into(), &mut done);
    assert_eq!(applied, raft::Applied::Yes);
    match done.pop() {
        Some((_, Verdict::Ran(Ran::Done(replies)))) => replies,
        other => panic!("{other:?}"),
    }
}

fn is_refused(replies: &[Reply], wrong: Wrong) -> bool {
    replies.iter().all(|reply| *reply == Reply::Wrong(wrong))
}

#[test]
fn at_the_bound_of_keys_none_is_made_and_everything_else_is_done() {
    let mut space = Space::default();
    let made = ["text", "list", "set", "hash"].map(|key| match key {
        "list" => step(key, "list.push-right", &["a", "b"]),
        "set" => step(key, "set.add", &["a", "b"]),
        "hash" => step(key, "hash.set", &["f", "v"]),
        _ => step(key, "put", &["v", "always", "none"]),
    });
    let all = made.to_vec();
    assert!(is_refused(&within(&mut space, keys(3), 1, all.clone()), Wrong::KeysMax), "all or nothing");
    assert_eq!(space.used(), Used::default());
    assert!(!is_refused(&within(&mut space, keys(4), 2, all), Wrong::KeysMax));
    let refused = [
        step("new", "put", &["v", "always", "none"]),
        step("new", "number.add", &["1"]),
        step("text", "copy", &["new"]),
        step("list", "list.move", &["new", "left", "left"]),
        step("set", "set.move", &["new", "a"]),
        step("new", "set.store-union", &["set"]),
        step("new", "lease.claim", &["me", "1000"]),
        step("new", "text.set-bit", &["7", "1"]),
        step("new", "json.merge", &["{}"]),
    ];
    for (nth, step) in refused.into_iter().enumerate() {
        let name = step.function;
        let replies = within(&mut space, keys(4), 10 + nth as u64, vec![step]);
        assert!(is_refused(&replies, Wrong::KeysMax), "{name}: {replies:?}");
    }
    let done = [
        step("text", "put", &["longer than before", "always", "none"]),
        step("list", "list.push-right", &["c"]),
        step("new", "list.push-right-present", &["c"]),
        step("text", "copy", &["list", "replace"]),
        step("text", "rename", &["other"]),
        step("other", "expire", &["1000", "any"]),
        step("set", "set.store-union", &["set", "set"]),
        step("set", "remove", &[]),
        step("set", "put", &["v", "always", "none"]),
        step("set", "load", &["zset", "none", "0", "a", "1", "b", "2"]),
        step("", "versions.above", &["7"]),
        step("set", "sorted.store-range", &["set", "rank", "0", "1", "forward", "0", "-1"]),
        step("new", "sorted.remove", &["a"]),
        step("new", "sorted.remove-range", &["rank", "0", "1"]),
        step("new", "sorted.pop", &["min", "1"]),
        step("new", "sorted.pop-first", &["set", "min", "1"]),
        step("set", "put", &["v", "always", "none"]),
    ];
    let done = done.into_iter().chain([
        step("new", "ledger.add", &["00000000000000000000000000000001", "1", "1", "1", "0"]),
        step("new", "ledger.keywords", &["Work"]),
        step("new", "ledger.close", &["00000000000000000000000000000001"]),
    ]);
    for (nth, step) in done.enumerate() {
        let name = step.function;
        let replies = within(&mut space, keys(4), 30 + nth as u64, vec![step]);
        assert!(!replies.iter().any(|reply| matches!(reply, Reply::Wrong(_))), "{name}: {replies:?}");
    }
    assert_eq!(space.used().keys, 4);
    assert_eq!(
        within(&mut space, keys(1), 50, vec![step("", "clear", &[])]),
        [Reply::Int(4)],
        "more than may be there"
    );
}

#[test]
fn at_the_bound_of_bytes_nothing_grows_and_what_shrinks_is_done() {
    let mut space = Space::default();
    let of = |len: usize| "x".repeat(len);
    let most = (KEY_BYTES + 1 + 100) as u64;
    let put = |key: &str, len: usize| vec![step(key, "put", &[&of(len), "always", "none"])];
    assert!(is_refused(&within(&mut space, bytes(most), 1, put("k", 101)), Wrong::BytesMax));
    assert!(!is_refused(&within(&mut space, bytes(most), 2, put("k", 100)), Wrong::BytesMax), "just as much");
    assert_eq!(space.used(), Used { bytes: most, keys: 1 });
    for (seq, steps) in [
        (3, put("l", 0)),
        (4, put("k", 101)),
        (5, vec![step("k", "text.append", &["x"])]),
        (6, vec![step("k", "copy", &["l"])]),
    ] {
        let replies = within(&mut space, bytes(most), seq, steps);
        assert!(is_refused(&replies, Wrong::BytesMax), "{seq}: {replies:?}");
    }
    assert!(!is_refused(&within(&mut space, bytes(most), 7, put("k", 100)), Wrong::BytesMax), "as long as before");
    // Fewer are declared: what is there stays, and may become less.
    assert!(!is_refused(&within(&mut space, bytes(60), 8, put("k", 50)), Wrong::BytesMax));
    assert!(is_refused(&within(&mut space, bytes(60), 9, put("k", 51)), Wrong::BytesMax));
    assert_eq!(within(&mut space, bytes(60), 10, vec![step("k", "remove", &[])]), [Reply::Int(1)]);
    assert_eq!(space.used(), Used::default());
}

#[test]
fn arguments_that_hide_what_comes_of_them_end_soon_beyond_the_bound() {
    let mut space = Space::default();
    let far = (crate::limits::VALUE_BYTES_MAX * 8 - 1).to_string();
    let steps = (0..9).map(|n| step(&n.to_string(), "text.set-bit", &[&far, "1"])).collect();
    let replies = within(&mut space, bytes(1024), 1, steps);
    let done = replies.iter().filter(|reply| **reply == Reply::Int(0)).count();
    let refused = replies.iter().filter(|reply| **reply == Reply::Wrong(Wrong::BytesMax)).count();
    assert_eq!((done, refused), (2, 7), "one to come to the bound, one beyond: {replies:?}");
}

#[test]
fn what_was_refused_stays_so_however_often_it_comes_and_another_try_is_another_one() {
    let mut space = Space::default();
    let once = || Some(crate::once::Once { id: uuid::Uuid::from_u128(7 << 80), of: 1 });
    let put = |seq| Command { once: once(), ..command(seq, vec![step("k", "put", &["v", "always", "none"])]) };
    let mut apply = |bounds, commands| {
        let mut done = Vec::new();
        let data = wire::encode_batch(&Batch { clock: 5, commands, bounds, ..Batch::default() });
        space.apply(1, data.into(), &mut done);
        done.into_iter().map(|(_, verdict)| verdict).collect::<Vec<_>>()
    };
    let refused = Verdict::Ran(Ran::Done(vec![Reply::Wrong(Wrong::KeysMax)]));
    assert_eq!(apply(keys(0), vec![put(1)]), std::slice::from_ref(&refused));
    assert_eq!(apply(keys(1), vec![put(1)]), [refused], "the same command, when there is room");
    assert!(
        matches!(&apply(keys(1), vec![put(2)])[..], [Verdict::Ran(Ran::Done(done))] if matches!(done[0], Reply::List(_)))
    );
}

/// Whatever is done, what is counted is what a replica counts that was given a snapshot: they must refuse the same.
#[test]
fn who_was_given_a_snapshot_counts_as_who_saw_all_entries() {
    let mut rng = base::Rng::new(3);
    let (mut space, mut seq) = (Space::default(), 0);
    let all: Vec<_> = functions::ALL.iter().flat_map(|some| some.iter()).filter(|f| f.is_offered()).collect();
    let words = ["a", "b", "c", "1", "2", "7", "left", "right", "always", "none", "present", "{\"x\":1}", "0"];
    for _ in 0..20_000 {
        seq += 1;
        let function = all[rng.below(all.len() as u64) as usize];
        let args: Vec<&str> = (0..rng.below(5)).map(|_| words[rng.below(words.len() as u64) as usize]).collect();
        let key = ["a", "b", "c", "d", "e"][rng.below(5) as usize];
        within(&mut space, bytes(900), seq, vec![step(key, function.name, &args)]);
        if seq % 500 == 0 {
            let given = Space::from_parts(space.parts().0.collect()).unwrap();
            assert_eq!(given.used(), space.used(), "after {seq}");
        }
    }
    assert!(space.used().keys > 0);
}

/// The only member of the group of a namespace that was declared so, in a cluster that has agreed on this level.
fn declare(lone: &mut Lone, version: u64, level: u32, quota: Quota) {
    let spec = Spec { quota, ..Spec::default() };
    let spaces = [("bank".to_owned(), Declaration { id: 1, spec, secret: CookieSecret::new(1, [0; 32]) })].into();
    let one = vec![NodeId(1)];
    let placed = Placed { members: one.clone(), founders: one, ..placed() };
    let records = [("bank/0".to_owned(), placed)].into();
    lone.handle(Input::Declared(Declared {
        version,
        level,
        spaces,
        records,
        unread: 0,
        nodes: Default::default(),
        numbers: Default::default(),
    }));
}

fn put(lone: &mut Lone, key: &str, value: &str) -> Outcome<Ran> {
    lone.asks_for(Op::of("bank".into(), vec![step(key, "put", &[value, "always", "none"])]))
}

#[test]
fn a_leader_refuses_what_would_not_be_done_and_writes_nothing_and_so_after_a_restart() {
    let quota = || Quota { keys_max: Some(2), ..Quota::default() };
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    declare(&mut lone, 50, LEVEL, quota());
    let refused = Outcome::Done(Ran::Done(vec![Reply::Wrong(Wrong::KeysMax)]));
    assert_ne!(put(&mut lone, "a", "v"), refused);
    assert_ne!(put(&mut lone, "b", "v"), refused);
    let before = lone.disk.len();
    assert_eq!(put(&mut lone, "c", "v"), refused);
    assert_eq!(lone.disk.len(), before, "nothing was written");
    assert_ne!(put(&mut lone, "a", "w"), refused);
    let mut lone = Lone::start(LEVEL, LEVEL, lone.disk);
    declare(&mut lone, 51, LEVEL, quota());
    assert_eq!(put(&mut lone, "c", "v"), refused);
    let used: Vec<_> =
        lone.linear.used().into_iter().map(|(name, used, bounds)| (name.to_owned(), used.keys, bounds)).collect();
    assert_eq!(used, [("bank".to_owned(), 2, keys(2))]);
    assert_eq!(
        lone.asks_for(Op::of("bank".into(), vec![step("a", "remove", &[])])),
        Outcome::Done(Ran::Done(vec![Reply::Int(1)]))
    );
    assert_ne!(put(&mut lone, "c", "v"), refused);
    // Another declaration, another bound.
    assert_eq!(put(&mut lone, "d", "v"), refused);
    declare(&mut lone, 52, LEVEL, Quota { keys_max: Some(3), ..Quota::default() });
    assert_ne!(put(&mut lone, "d", "v"), refused);
}

#[test]
fn entries_have_no_bound_before_all_programs_know_of_it() {
    let quota = || Quota { keys_max: Some(1), ..Quota::default() };
    let mut lone = Lone::start(LEVEL, class::quota::LEVEL - 1, Vec::new());
    declare(&mut lone, 50, class::quota::LEVEL - 1, quota());
    let refused = Outcome::Done(Ran::Done(vec![Reply::Wrong(Wrong::KeysMax)]));
    for key in ["a", "b"] {
        assert_ne!(put(&mut lone, key, "v"), refused);
    }
    // An older program starts from the same disk.
    let older = Lone::start(class::quota::LEVEL - 1, class::quota::LEVEL - 1, lone.disk.clone());
    assert_eq!(older.linear.groups().count(), 1);
    declare(&mut lone, 51, class::quota::LEVEL, quota());
    assert_eq!(put(&mut lone, "c", "v"), refused);
    assert_ne!(put(&mut lone, "b", "w"), refused, "with the bound in its entry");
    let older = Lone::start(class::quota::LEVEL - 1, class::quota::LEVEL - 1, lone.disk);
    assert_eq!(older.linear.groups().count(), 0, "it takes no part");
}

#[test]
fn a_shard_has_its_part_of_what_is_declared() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    let spec = Spec { quota: Quota { keys_max: Some(10), ..Quota::default() }, ..Spec::default() };
    let spaces = [("bank".to_owned(), Declaration { id: 1, spec, secret: CookieSecret::new(1, [0; 32]) })].into();
    let (one, quarter) = (vec![NodeId(1)], 1 << 62);
    let shard = |n: u64, from, to| {
        let (id, members) = (GroupId(Lone::ID.0 + n), one.clone());
        (format!("bank/{n}"), Placed { id, from, to, founders: members.clone(), members, ..placed() })
    };
    let records = [shard(0, 0, quarter - 1), shard(1, quarter, u64::MAX)].into();
    lone.handle(Input::Declared(Declared {
        version: 50,
        level: LEVEL,
        spaces,
        records,
        unread: 0,
        nodes: Default::default(),
        numbers: Default::default(),
    }));
    lone.wait(Span::secs(10));
    assert_eq!(lone.linear.used().into_iter().map(|(_, _, bounds)| bounds).collect::<Vec<_>>(), [keys(3), keys(8)]);
}
