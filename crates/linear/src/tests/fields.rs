//! Fields of hashes that end by themselves: by the clock of entries, at every replica at the same one.

use super::*;
use crate::limits::EXPIRED_AT_ONCE;
use crate::value::{Entry, Value};

fn applied(space: &mut Space, clock: u64, seq: u64, function: &'static str, args: &[&str]) -> Reply {
    run(space, clock, seq, step("h", function, args))
}

fn parts(space: &Space) -> Vec<Bytes> {
    space.parts().0.collect()
}

#[test]
fn a_field_ends_by_the_clock_of_entries_and_nobody_sees_it_after() {
    let mut space = Space::default();
    applied(&mut space, 1_000, 1, "hash.set", &["a", "1", "b", "2", "c", "3"]);
    applied(&mut space, 1_000, 2, "hash.expire", &["50", "any", "a"]);
    applied(&mut space, 1_000, 3, "hash.expire", &["90", "any", "b"]);
    assert_eq!(space.next_end(), Some(1_050));
    assert_eq!(applied(&mut space, 1_049, 4, "hash.length", &[]), Reply::Int(3));
    let before = space.get(b"h").unwrap().version;
    assert_eq!(applied(&mut space, 1_050, 5, "hash.length", &[]), Reply::Int(2));
    assert!(space.get(b"h").unwrap().version > before, "that is a change of the key");
    assert_eq!(space.next_end(), Some(1_090));
    applied(&mut space, 1_050, 6, "hash.persist", &["b"]);
    applied(&mut space, 1_050, 7, "hash.expire", &["10", "any", "c"]);
    assert_eq!(space.next_end(), Some(1_060));
    applied(&mut space, 1_055, 8, "hash.set", &["c", "9"]);
    assert_eq!(space.next_end(), None, "it was set anew");
    applied(&mut space, 1_055, 9, "hash.expire", &["10", "any", "b", "c"]);
    applied(&mut space, 1_070, 10, "versions.above", &["0"]);
    assert_eq!((space.len(), space.next_end(), space.bytes()), (0, None, Space::default().bytes()), "none is left");
}

/// More than one entry takes out: what is left in it has ended for readers, too.
#[test]
fn what_has_ended_and_is_still_there_is_not_seen() {
    let (many, some) = (2 * EXPIRED_AT_ONCE + 500, 300);
    let fields: Vec<String> = (0..many).map(|n| format!("f{n:05}")).collect();
    let pairs: Vec<&str> = fields.iter().flat_map(|field| [field.as_str(), "v"]).collect();
    let mut space = Space::default();
    applied(&mut space, 5, 1, "hash.set", &pairs);
    applied(&mut space, 5, 2, "hash.set", &["f00000", "7", "keeps", "v"]);
    let ending: Vec<&str> = ["50", "any"].into_iter().chain(fields.iter().map(String::as_str)).collect();
    applied(&mut space, 5, 3, "hash.expire", &ending);
    let twin = Space::from_parts(parts(&space)).unwrap();
    let mut draft = space.draft(60);
    // What an entry finds, with most of them still in it.
    let seen = |space: &mut Space, seq: u64| {
        let after = ["after", "f00000", "9000"];
        let functions: [(&'static str, &[&str]); 9] = [
            ("hash.all", &[]),
            ("hash.length", &[]),
            ("hash.has", &["f02400"]),
            ("hash.get", &["f02400"]),
            ("hash.scan", &after),
            ("hash.random", &["5", "9"]),
            ("hash.remove", &["f02400"]),
            ("hash.expire", &["9", "any", "f02400"]),
            ("hash.set-new", &["f02400", "new"]),
        ];
        functions
            .into_iter()
            .zip(seq..)
            .map(|((name, args), seq)| applied(space, 60, seq, name, args))
            .collect::<Vec<_>>()
    };
    let seen_here = seen(&mut space, 10);
    let keeps = || vec![Reply::Bytes("keeps".into()), Reply::Bytes("v".into())];
    let expected = vec![
        Reply::List(keeps()),
        Reply::Int(1),
        Reply::Int(0),
        Reply::Nil,
        Reply::List(keeps()),
        Reply::List(keeps()),
        Reply::Int(0),
        Reply::List(vec![Reply::Int(-2)]),
        Reply::Int(1),
    ];
    assert_eq!(seen_here, expected);
    assert!(many > some && space.get(b"h").is_some());
    // A copy that came by a snapshot, one whose reader's clock was shown, and a draft for scripts do the same.
    let mut other = twin;
    other.show(1_000_000, 0);
    assert_eq!(seen(&mut other, 10), expected);
    assert_eq!(parts(&other), parts(&space));
    let set = step("h", "hash.set", &["f02400", "new"]);
    assert_eq!(draft.step(&set, class::Bounds::default()), Ok(Reply::Int(1)));
    // Whoever leads writes on until none is left that has ended.
    for seq in 30.. {
        let Some(next) = space.next_end().filter(|end| *end <= 60) else { break };
        assert!(next == 55 && seq < 40);
        applied(&mut space, 60, seq, "hash.length", &[]);
    }
    let Value::Hash(hash) = &space.get(b"h").unwrap().value else { panic!("it is a hash") };
    assert_eq!(hash.all().count(), 2);
}

#[test]
fn a_hash_of_which_all_has_ended_is_not_there() {
    let fields: Vec<String> = (0..2 * EXPIRED_AT_ONCE).map(|n| format!("f{n}")).collect();
    let pairs: Vec<&str> = ["always", "50"].into_iter().chain(fields.iter().flat_map(|f| [f.as_str(), "v"])).collect();
    let mut space = Space::default();
    applied(&mut space, 5, 1, "hash.set-expire", &pairs);
    assert_eq!(applied(&mut space, 60, 2, "exists", &[]), Reply::Int(0));
    assert_eq!(space.len(), 1, "half of its fields are still to be taken out");
    assert_eq!(
        applied(&mut space, 60, 3, "put", &["text", "absent", "none"]),
        Reply::List(vec![Reply::Int(1), Reply::Nil, Reply::Int(6)])
    );
    assert_eq!((space.len(), space.next_end()), (1, None));
}

#[test]
fn ends_of_fields_go_with_a_split_and_with_snapshots() {
    let mut space = Space::default();
    for n in 0..40u64 {
        let key = format!("k{n}");
        let end = (1_000 + n).to_string();
        run(&mut space, 5, n + 1, step(&key, "hash.set-expire", &["always", &end, "f", "v", "g", "w"]));
        run(&mut space, 5, n + 100, step(&key, "hash.persist", &["g"]));
    }
    let copy = Space::from_parts(parts(&space)).unwrap();
    assert_eq!((parts(&copy), copy.bytes(), copy.next_end()), (parts(&space), space.bytes(), Some(1_005)));
    let split = crate::split::Split { at: 1 << 63, child: GroupId(9), after: 0 };
    let batch = Batch { clock: 6, split: Some(split), ..Batch::default() };
    assert_eq!(space.apply(1, wire::encode_batch(&batch).into(), &mut Vec::new()), raft::Applied::Yes);
    let (_, mut born) = space.take_born().unwrap();
    assert!(!space.is_empty() && !born.is_empty());
    for space in [&mut space, &mut born] {
        let all = space.len();
        run(space, 2_000, 999, step("other", "exists", &[]));
        assert_eq!((space.len(), space.next_end()), (all, None));
        let fields = |entry: &Entry| if let Value::Hash(hash) = &entry.value { hash.all().count() } else { 0 };
        assert!(space.map().from(b"").all(|(_, entry)| fields(entry) == 1 && entry.size == entry.value.bytes()));
    }
}

#[test]
fn the_first_field_that_ends_waits_until_all_nodes_can_read_it() {
    use super::level::Lone;
    let before = 11;
    let mut lone = Lone::start(base::LEVEL, before, Vec::new());
    assert!(matches!(lone.ask("hash.set", &["f", "v"]), base::Outcome::Done(_)));
    let makers: [(&'static str, &[&str]); 4] = [
        ("hash.expire", &["9000", "any", "f"]),
        ("hash.get-expire", &["9000", "f"]),
        ("hash.set-expire", &["always", "9000", "f", "v"]),
        ("hash.load", &["none", "f", "v", "9000"]),
    ];
    let written = lone.disk.len();
    for (function, args) in makers {
        let base::Outcome::Refused(refused) = lone.ask(function, args) else { panic!("{function}") };
        assert!(refused.why.contains("it needs level 12, the cluster has agreed on 11"), "{}", refused.why);
    }
    assert_eq!(lone.disk.len(), written, "nothing was written");
}
