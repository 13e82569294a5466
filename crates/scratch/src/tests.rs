//! The class, asked as a node asks it.

use base::{AskId, NodeId, Span};
use class::{CookieSecret, Numbers};

use super::*;

fn node(is_allowed: bool, spaces: &[(&str, u32)]) -> Scratch {
    let mut node = Scratch { is_allowed, spaces: BTreeMap::new() };
    declare(&mut node, spaces);
    node
}

fn declare(node: &mut Scratch, spaces: &[(&str, u32)]) {
    let space = |id| class::Space { id, spec: Spec::default(), secret: CookieSecret::new(1, [0; 32]) };
    let spaces = spaces.iter().map(|(name, id)| ((*name).to_owned(), space(*id))).collect();
    let declared = Declared {
        version: 1,
        level: base::LEVEL,
        spaces,
        records: BTreeMap::new(),
        unread: 0,
        nodes: [NodeId(1)].into(),
        numbers: Numbers::default(),
    };
    node.handle(Now::default(), Input::Declared(declared), &mut Vec::new());
}

fn ask(node: &mut Scratch, key: &[u8], act: Act) -> Outcome<Reply> {
    let mut out = Vec::new();
    let op = Op { namespace: "notes".into(), key: Bytes::copy_from_slice(key), act };
    node.handle(Now::default(), Input::Ask { id: AskId(7), budget: Span::secs(1), op }, &mut out);
    match out.pop() {
        Some(Output::Answer { id: AskId(7), answer }) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_put_is_there_until_it_is_removed_or_its_namespace_is_another_one() {
    let mut node = node(true, &[("notes", 3)]);
    let put = |text: &'static str| Act::Put(text.into());
    assert_eq!(ask(&mut node, b"a", Act::Get), Outcome::Done(Reply::Absent));
    for (key, act, reply) in [
        (&b"a"[..], put("one"), Reply::Stored),
        (b"a", put("longer"), Reply::Stored),
        (b"b", put(""), Reply::Stored),
        (b"a", Act::Get, Reply::Value("longer".into())),
        (b"", Act::Count, Reply::Count(2)),
        (b"b", Act::Remove, Reply::Removed),
        (b"b", Act::Remove, Reply::Absent),
    ] {
        assert_eq!(ask(&mut node, key, act), Outcome::Done(reply));
    }
    assert_eq!(node.figures(), [48 + 1 + 6, 1]);
    declare(&mut node, &[("notes", 3), ("other", 4)]);
    assert_eq!(ask(&mut node, b"", Act::Count), Outcome::Done(Reply::Count(1)), "it stays while others come");
    declare(&mut node, &[("notes", 5)]);
    assert_eq!(ask(&mut node, b"", Act::Count), Outcome::Done(Reply::Count(0)), "it was removed, and declared anew");
}

#[test]
fn more_than_its_bounds_is_refused_and_changes_nothing() {
    let mut node = node(true, &[("notes", 1)]);
    let is_refused = |outcome| matches!(outcome, Outcome::Refused(_));
    for (key, act) in [
        (&b""[..], Act::Get),
        (&[b'k'; KEY_BYTES_MAX + 1], Act::Put(Bytes::new())),
        (b"k", Act::Put(vec![0; VALUE_BYTES_MAX + 1].into())),
    ] {
        assert!(is_refused(ask(&mut node, key, act)));
    }
    let large = || Act::Put(vec![0; VALUE_BYTES_MAX].into());
    let fits = (0..100u8).take_while(|n| !is_refused(ask(&mut node, &[*n], large()))).count();
    assert_eq!(fits as u64, BYTES_MAX / (VALUE_BYTES_MAX as u64 + 49));
    assert_eq!(ask(&mut node, &[0], large()), Outcome::Done(Reply::Stored), "what takes the place of as much has room");
    assert_eq!(ask(&mut node, b"", Act::Count), Outcome::Done(Reply::Count(fits as u64)));
}

#[test]
fn a_node_that_was_not_started_for_it_refuses_it() {
    let mut node = node(false, &[("notes", 1)]);
    assert_eq!(node.lacks(), Some(NOT_ALLOWED));
    let Outcome::Refused(refused) = ask(&mut node, b"a", Act::Get) else { panic!("it was done") };
    assert!(refused.why.contains("--scratch"), "{}", refused.why);
}
