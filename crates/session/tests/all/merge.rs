//! `merge = "fields"`: of documents that are read, changed and written back whole by many at once, no field is lost. The
//! clients here are as frameworks are: they know nothing of marks, and write back all that they read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::world::World;
use base::{NodeId, Outcome, Span};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use session::doc::{Doc, Form};
use session::merge::{Base, MARK, marked, merge, take_mark};
use session::{Action, Kind, Lease, Op, Reply, When};

fn op(action: Action) -> Op {
    Op::keyed(Arc::from("maps"), Bytes::from_static(b"sess:1"), action)
}

fn put(value: impl Into<Bytes>) -> Op {
    op(Action::Put {
        kind: Kind::Text,
        value: value.into(),
        lease: Lease::Default,
        when: When::Always,
        want_old: false,
    })
}

fn bytes_at(world: &mut World, node: u64) -> Option<Bytes> {
    match world.done(node, op(Action::Get)) {
        Reply::Value { value, .. } => Some(value),
        Reply::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// The document as a program has it in its hands, mark and all.
fn read(world: &mut World, node: u64) -> Option<Map<String, Value>> {
    bytes_at(world, node).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

/// The document without its mark.
fn fields(world: &mut World, node: u64) -> Option<BTreeMap<String, Value>> {
    let mut doc = read(world, node)?;
    assert!(doc.remove(MARK).is_some(), "what is handed out is marked");
    Some(doc.into_iter().collect())
}

fn save(world: &mut World, node: u64, doc: &Map<String, Value>) -> Reply {
    world.done(node, put(serde_json::to_vec(doc).unwrap()))
}

#[test]
fn two_tabs_that_read_the_same_and_write_different_fields_both_count() {
    let mut world = World::settled(1, 3);
    world.done(1, put(r#"{"user": "ann", "cart": ["honey", "wax \" {"], "seen": 1.0}"#));
    let (mut left, mut right) = (read(&mut world, 1).unwrap(), read(&mut world, 2).unwrap());
    left.insert("theme".into(), json!("dark"));
    left.remove("seen");
    right.insert("cart".into(), json!(["honey", "bread"]));
    assert!(matches!(save(&mut world, 3, &left), Reply::Stored { .. }));
    assert!(matches!(save(&mut world, 1, &right), Reply::Stored { .. }));
    let expect = json!({"user": "ann", "cart": ["honey", "bread"], "theme": "dark"});
    assert_eq!(json!(fields(&mut world, 2)), expect);
    assert_eq!(world.figure(1, "session.merged"), 1);
    assert_eq!(world.figure(3, "session.merged"), 0, "nobody was in between");
}

#[test]
fn the_same_value_with_other_spaces_is_no_change() {
    let mut world = World::settled(8, 3);
    world.done(1, put(r#"{"cart":["honey","a b"]}"#));
    let (mut slow, mut quick) = (read(&mut world, 1).unwrap(), read(&mut world, 2).unwrap());
    quick.insert("cart".into(), json!([]));
    save(&mut world, 2, &quick);
    slow.insert("views".into(), json!(1));
    world.done(1, put(serde_json::to_vec_pretty(&slow).unwrap()));
    assert_eq!(json!(fields(&mut world, 3)), json!({"cart": [], "views": 1}));
}

fn hash(fields: &[(&'static str, &'static str)]) -> Bytes {
    let mut doc = Doc::new(Form::Hash);
    for (name, value) in fields {
        doc.set((*name).into(), (*value).into());
    }
    doc.write()
}

fn put_kind(value: &Bytes, kind: Kind, when: When, want_old: bool) -> Op {
    op(Action::Put { value: value.clone(), kind, lease: Lease::For(Span::secs(90)), when, want_old })
}

#[test]
fn what_hands_out_and_changes_a_text_leaves_a_hash_as_it_is() {
    let mut world = World::settled(21, 3);
    let fields = hash(&[("f", "1")]);
    assert!(matches!(world.done(1, put_kind(&fields, Kind::Hash, When::Absent, false)), Reply::Stored { .. }));
    let text = Bytes::from_static(b"x");
    for asked in [
        op(Action::Take),
        op(Action::GetTouch { lease: Lease::For(Span::secs(5)) }),
        put_kind(&text, Kind::Text, When::Always, true),
        put_kind(&text, Kind::Text, When::Present, true),
        put_kind(&text, Kind::Text, When::Absent, true),
    ] {
        assert_eq!(world.done(2, asked.clone()), Reply::OtherKind(Kind::Hash), "{asked:?}");
        let there = world.done(3, op(Action::Get));
        let Reply::Value { value, kind: Kind::Hash, lease_left, .. } = there else { panic!("{there:?}") };
        assert!(value == fields && lease_left > Span::secs(80), "{asked:?} {value:?} {lease_left:?}");
    }
    // What is put over it without a look at it replaces it, as ever.
    assert!(matches!(world.done(1, put("{}")), Reply::Stored { .. }));
    assert!(matches!(world.done(2, op(Action::Take)), Reply::Value { kind: Kind::Text, .. }));
}

#[test]
fn a_text_that_begins_as_a_hash_stays_a_text_also_where_it_is_filled_and_walked() {
    let mut world = World::settled(22, 3);
    let text = hash(&[("f", "1")]);
    world.done(1, put_kind(&text, Kind::Text, When::Always, false));
    for node in 1..=3 {
        world.kill(NodeId(node));
        world.run(Span::secs(1));
        world.start(NodeId(node));
        world.settle();
    }
    for node in 1..=3 {
        let there = world.done(node, op(Action::Get));
        assert!(matches!(&there, Reply::Value { value, kind: Kind::Text, .. } if *value == text), "{there:?}");
    }
    let walk = |world: &mut World| world.done(1, Op { key: Bytes::new(), ..op(Action::Scan { cursor: 0, count: 9 }) });
    let page = |kind| Reply::Page { cursor: 0, keys: vec![("sess:1".into(), kind)] };
    assert_eq!(walk(&mut world), page(Kind::Text));
    world.done(1, put_kind(&text, Kind::Hash, When::Always, false));
    assert_eq!(walk(&mut world), page(Kind::Hash));
    let there = world.done(2, put_kind(&text, Kind::Text, When::Always, true));
    assert_eq!(there, Reply::OtherKind(Kind::Hash));
}

#[test]
fn a_session_that_was_ended_does_not_come_back_with_a_slow_request() {
    let mut world = World::settled(2, 3);
    world.done(1, put(r#"{"user":"ann"}"#));
    let mut slow = read(&mut world, 1).unwrap();
    world.done(2, op(Action::Remove));
    slow.insert("views".into(), json!(1));
    assert_eq!(save(&mut world, 3, &slow), Reply::NotStored { version: None, old: None });
    assert_eq!(fields(&mut world, 1), None);
    assert_eq!(world.figure(3, "session.merge_ended"), 1);
    // With another id it is a copy: a login gives the session a new one.
    let other = Op::keyed(
        Arc::from("maps"),
        Bytes::from_static(b"sess:2"),
        Action::Put {
            kind: Kind::Text,
            value: serde_json::to_vec(&slow).unwrap().into(),
            lease: Lease::Default,
            when: When::Absent,
            want_old: false,
        },
    );
    assert!(matches!(world.done(1, other), Reply::Stored { .. }));
}

#[test]
fn a_document_made_anew_replaces_all() {
    let mut world = World::settled(3, 3);
    world.done(1, put(r#"{"user":"ann","role":"admin"}"#));
    assert!(read(&mut world, 1).is_some());
    world.done(2, put(r#"{"user":"nobody"}"#));
    assert_eq!(json!(fields(&mut world, 3)), json!({"user": "nobody"}));
}

#[test]
fn one_who_saves_twice_goes_on_from_what_it_wrote() {
    let mut world = World::settled(4, 3);
    world.done(1, put(r#"{"flag":false}"#));
    let mut socket = read(&mut world, 1).unwrap();
    socket.insert("flag".into(), json!(true));
    save(&mut world, 1, &socket);
    socket.insert("flag".into(), json!(false));
    save(&mut world, 1, &socket);
    assert_eq!(json!(fields(&mut world, 1)), json!({"flag": false}), "back to what it was when it was read");
    // And leaves alone what it set before and another has set since.
    let mut other = read(&mut world, 2).unwrap();
    other.insert("flag".into(), json!("other"));
    save(&mut world, 2, &other);
    socket.insert("more".into(), json!(1));
    save(&mut world, 1, &socket);
    assert_eq!(json!(fields(&mut world, 1)), json!({"flag": "other", "more": 1}));
}

#[test]
fn what_is_no_map_is_kept_as_it_is_and_noted_once() {
    let mut world = World::settled(5, 3);
    let pickle = Bytes::from_static(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.");
    for value in [pickle, Bytes::from_static(b"17"), Bytes::from_static(b"{\"a\":1} "), Bytes::from_static(b"{\"a\":}")]
    {
        world.done(1, put(value.clone()));
        let back = bytes_at(&mut world, 2).unwrap();
        assert!(back == value || value.starts_with(b"{\"a\":1}"), "{back:?}");
    }
    assert_eq!(world.figure(1, "session.merge_plain"), 3);
    let notes = world.notes.iter().filter(|note| note.contains("maps merges fields")).count();
    assert_eq!(notes, 1, "{:?}", world.notes);
}

#[test]
fn a_mark_that_is_not_ours_is_refused_with_what_to_do() {
    let mut world = World::settled(6, 3);
    for doc in [r#"{"_coppice":1}"#, r#"{"_coppice":"AAAA"}"#, r#"{"_coppice":"!"}"#, r#"{"_coppice":null}"#] {
        match world.call(1, put(doc)) {
            Outcome::Refused(refused) => assert!(refused.why.contains("leave it out"), "{}", refused.why),
            other => panic!("{doc}: {other:?}"),
        }
    }
}

#[test]
fn message_pack_maps_are_merged_as_well() {
    let mut world = World::settled(7, 3);
    // {"user": "ann", "n": 300}
    let doc = b"\x82\xa4user\xa3ann\xa1n\xcd\x01\x2c";
    world.done(1, put(Bytes::from_static(doc)));
    let held = bytes_at(&mut world, 2).unwrap();
    assert_eq!(&held[..1 + 9 + 5], b"\x83\xa4user\xa3ann\xa1n\xcd\x01\x2c", "one field more");
    // Another adds a field; this one, with what it had read, changes n: 300 to nil.
    let mut other = Doc::parse(&held).unwrap();
    assert!(other.set(Bytes::from_static(b"\xa1x"), Bytes::from_static(b"\xc3")));
    world.done(3, put(other.write()));
    let mut mine = Doc::parse(&held).unwrap();
    mine.set(Bytes::from_static(b"\xa1n"), Bytes::from_static(b"\xc0"));
    world.done(1, put(mine.write()));
    let mut doc = Doc::parse(&bytes_at(&mut world, 2).unwrap()).unwrap();
    take_mark(&mut doc).unwrap().unwrap();
    assert_eq!(&doc.write()[..], b"\x83\xa4user\xa3ann\xa1n\xc0\xa1x\xc3");
}

#[test]
fn many_requests_of_one_session_at_once_on_all_nodes_lose_no_field_also_when_a_node_dies() {
    for seed in 0..12 {
        let mut world = World::settled(seed, 3);
        world.net.loss = [0.0, 0.02, 0.05][seed as usize % 3];
        world.done(1, put(r#"{"user":"ann","gone":1}"#));
        let count = 24;
        let node = |nth: u64, world: &World| {
            let live = world.live();
            live[(nth % live.len() as u64) as usize].0
        };
        let mut held: Vec<_> = (0..count).map(|nth| read(&mut world, nth % 3 + 1).unwrap()).collect();
        if seed % 2 == 1 {
            world.kill(NodeId(3));
            world.run(Span::millis(400));
        }
        let asked: Vec<_> = held
            .iter_mut()
            .enumerate()
            .map(|(nth, doc)| {
                doc.insert(format!("f{nth}"), json!(nth));
                if nth == 7 {
                    doc.remove("gone");
                }
                let at = node(nth as u64, &world);
                let id = world.ask(at, put(serde_json::to_vec(doc).unwrap()));
                let pause = Span::micros(world.rng.between(0, 2000));
                world.run(pause);
                id
            })
            .collect();
        world.run(Span::secs(3));
        let there = fields(&mut world, 1).unwrap();
        let mut done = 0;
        for (nth, id) in asked.iter().enumerate() {
            if matches!(&world.answers[id].1, Outcome::Done(Reply::Stored { .. })) {
                done += 1;
                assert_eq!(there.get(&format!("f{nth}")), Some(&json!(nth)), "seed {seed}: acknowledged and lost");
                assert!(nth != 7 || !there.contains_key("gone"), "what was removed stays removed");
            }
        }
        assert_eq!(done, count, "seed {seed}: nobody was sent away");
        assert_eq!(there["user"], "ann");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Set(usize, u8, u8),
    Unset(usize, u8),
    Save(usize),
    End,
    Anew(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let reader = 0..4usize;
    prop_oneof![
        4 => reader.clone().prop_map(Step::Read),
        6 => (reader.clone(), 0..5u8, 0..3u8).prop_map(|(r, f, v)| Step::Set(r, f, v)),
        3 => (reader.clone(), 0..5u8).prop_map(|(r, f)| Step::Unset(r, f)),
        6 => reader.prop_map(Step::Save),
        1 => Just(Step::End),
        1 => (0..5u8).prop_map(Step::Anew),
    ]
}

fn name(field: u8) -> String {
    format!("f{field}")
}

type Fields = BTreeMap<String, Value>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the order of reads and writes: a field is what the last writer made it who changed it, and a writer
    /// changes just what differs from what it had in its hands.
    #[test]
    fn every_field_is_what_its_last_changer_made_it(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::settled(9, 1);
        let mut stored: Option<Fields> = None;
        // What each reader has in its hands, and what it had read or written last.
        let mut held: Vec<Option<(Map<String, Value>, Fields)>> = vec![None; 4];
        for step in steps {
            match step {
                Step::Read(r) => {
                    held[r] = read(&mut world, 1).map(|doc| {
                        let mut known: Fields = doc.clone().into_iter().collect();
                        known.remove(MARK);
                        (doc, known)
                    });
                }
                Step::Set(r, f, v) => {
                    if let Some((doc, _)) = &mut held[r] {
                        doc.insert(name(f), json!({"v": [v, " "]}));
                    }
                }
                Step::Unset(r, f) => {
                    if let Some((doc, _)) = &mut held[r] {
                        doc.remove(&name(f));
                    }
                }
                Step::Save(r) => {
                    let Some((doc, known)) = &mut held[r] else { continue };
                    // Serialisers differ in their spaces.
                    let text = if r == 0 { serde_json::to_vec_pretty(doc).unwrap() } else { serde_json::to_vec(doc).unwrap() };
                    let reply = world.done(1, put(text));
                    let Some(there) = &mut stored else {
                        prop_assert_eq!(reply, Reply::NotStored { version: None, old: None });
                        continue;
                    };
                    let mut new: Fields = doc.clone().into_iter().collect();
                    new.remove(MARK);
                    for field in (0..5).map(name) {
                        if new.get(&field) != known.get(&field) {
                            match new.get(&field) {
                                Some(value) => there.insert(field, value.clone()),
                                None => there.remove(&field),
                            };
                        }
                    }
                    *known = new;
                }
                Step::End => {
                    world.done(1, op(Action::Remove));
                    stored = None;
                }
                Step::Anew(f) => {
                    world.done(1, put(serde_json::to_vec(&json!({name(f): 9})).unwrap()));
                    stored = Some([(name(f), json!(9))].into());
                }
            }
            prop_assert_eq!(fields(&mut world, 1), stored.clone());
        }
    }

    /// The function alone: writers that change different fields all count, in whatever order they come.
    #[test]
    fn changes_of_different_fields_commute(
        base in prop::collection::btree_map("[a-h]", "[0-9]{1,3}", 0..8),
        changes in prop::collection::vec(("[a-h]", prop::option::of("[0-9]{1,3}")), 0..8),
        turn in 0..8usize,
    ) {
        let doc = |fields: &BTreeMap<String, String>| {
            let text = serde_json::to_string(&fields.iter().map(|(k, v)| (k.clone(), json!(v))).collect::<Map<_, _>>());
            Doc::parse(&text.unwrap().into()).unwrap()
        };
        let changes: BTreeMap<String, Option<String>> = changes.into_iter().collect();
        let (mut writers, mut all) = (Vec::new(), base.clone());
        for (field, value) in &changes {
            let mut one = base.clone();
            for map in [&mut one, &mut all] {
                match value {
                    Some(value) => map.insert(field.clone(), value.clone()),
                    None => map.remove(field),
                };
            }
            writers.push(doc(&one));
        }
        if !writers.is_empty() {
            let len = writers.len();
            writers.rotate_left(turn % len);
        }
        let read = Base::of(&doc(&base));
        let end = writers.iter().fold(doc(&base), |current, new| merge(&read, new, &current));
        let sorted = |doc: &Doc| { let mut fields = doc.fields().to_vec(); fields.sort(); fields };
        prop_assert_eq!(sorted(&end), sorted(&doc(&all)));
    }

    /// What serde_json takes for an object is taken for the same object here, and comes out as it went in.
    #[test]
    fn objects_are_read_as_others_read_them(
        fields in prop::collection::btree_map(any::<String>(), value(), 0..6),
        pretty: bool,
    ) {
        let object = Value::Object(fields.into_iter().collect());
        let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
        let doc = Doc::parse(&Bytes::from(text)).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(&doc.write()).unwrap(), object.clone());
        let marked = marked(&doc, b"key", 7);
        let mut back = Doc::parse(&marked).unwrap();
        prop_assert_eq!(back.len(), doc.len() + 1);
        let mark = take_mark(&mut back).unwrap().unwrap();
        prop_assert!(mark.is_of(b"key") && !mark.is_of(b"other") && mark.reader == 7);
        prop_assert_eq!(mark.base, Base::of(&doc));
        prop_assert_eq!(back, doc);
    }

    /// Outside bytes: nothing panics, and what is taken for a map is written as a map with the same fields.
    #[test]
    fn any_bytes_are_a_map_or_not(mut bytes in prop::collection::vec(any::<u8>(), 0..40), head in prop::option::of(0..6usize)) {
        let heads: [&[u8]; 6] = [b"{\"a\":", b"\x81\xa1a", b"\xde\x00\x02", b"\xdf\x00\x00\x00\x01", b"\xC1hash\x01", b"\xdf\xff\xff\xff\xff"];
        if let Some(head) = head {
            bytes.splice(0..0, heads[head].iter().copied());
        }
        let bytes = bytes.into();
        for read in [Doc::parse, Doc::hash] {
            if let Some(doc) = read(&bytes) {
                prop_assert_eq!(read(&doc.write()).unwrap(), doc);
            }
        }
    }

    #[test]
    fn hashes_hold_any_bytes(fields in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..9), 0..6)) {
        let mut doc = Doc::new(Form::Hash);
        for (name, value) in &fields {
            prop_assert!(doc.set(name.clone().into(), value.clone().into()));
        }
        let back = Doc::hash(&doc.write()).unwrap();
        prop_assert_eq!(Doc::parse(&doc.write()), None);
        prop_assert_eq!(&back, &doc);
        for (name, value) in &fields {
            prop_assert_eq!(back.get(name).unwrap(), value);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}
