//! A namespace that is written to a file, and put back into another one.

use class::dump::{Dump as _, ItemKind, Record};

use super::*;
use crate::dump;

impl World {
    fn put(&mut self, kind: Kind, key: &str, pairs: &[(&str, Option<&str>)]) {
        let pairs = pairs.iter().map(|(element, value)| (bytes(element), value.map(bytes))).collect();
        self.done(1, Action::Put { kind, key: bytes(key), pairs });
    }

    fn dumped(&mut self, n: u64) -> Vec<Record> {
        let (mut dump, mut all) = (dump::dump(FLOOR.into()), Vec::new());
        loop {
            let asks = dump.asks();
            if asks.is_empty() {
                return all;
            }
            let replies = asks.into_iter().map(|op| self.done(n, op.action)).collect();
            all.extend(dump.take(replies, self.now.wall_ms).unwrap());
        }
    }

    fn load(&mut self, n: u64, records: &[Record]) {
        for record in records {
            let Some(op) = dump::load(&FLOOR.into(), record, self.now.wall_ms).unwrap() else { continue };
            dump::loaded(&self.done(n, op.action)).unwrap();
        }
    }
}

fn items(records: &[Record]) -> BTreeMap<String, (ItemKind, Option<u64>, Vec<String>)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let item = |record: &Record| match record {
        Record::Item(item) => Some((text(&item.key), (item.kind, item.end_ms, item.values.iter().map(text).collect()))),
        _ => None,
    };
    records.iter().filter_map(item).collect()
}

#[test]
fn what_is_loaded_is_what_was_dumped_and_takes_the_place_of_what_was_there() {
    let mut world = World::new(2);
    world.set(1, "text", "v", End::Never);
    world.set(1, "ends", "v", End::After(Span::secs(60)));
    world.add(1, "number", 3);
    world.add(2, "number", 4);
    world.put(Kind::Field, "map", &[("a", Some("1")), ("b", Some(""))]);
    world.put_members(1, "set", &["ann", "bob"]);
    let score = Some(Bytes::copy_from_slice(&1.5f64.to_be_bytes()));
    world.done(1, Action::Put { kind: Kind::Score, key: bytes("ranking"), pairs: vec![(bytes("ann"), score.clone())] });
    let push = |values: &[&str]| List::Push {
        side: Side::Right,
        values: values.iter().map(|value| bytes(value)).collect(),
        only_there: false,
    };
    world.done(1, Action::List { key: bytes("list"), what: push(&["x", "y", "x"]) });
    // Several pages of keys, and several reads.
    (0..DUMP_KEYS + 30).for_each(|n| world.set(1, &format!("k{n}"), "v", End::Never));
    world.pass(500);

    let records = world.dumped(2);
    let all = items(&records);
    assert_eq!(all.len(), 7 + DUMP_KEYS as usize + 30);
    let of = |key: &str| (all[key].0, all[key].2.join(" "));
    assert_eq!(of("text"), (ItemKind::Text, "v".into()));
    assert_eq!(of("number"), (ItemKind::Text, "7".into()), "what all have counted");
    assert_eq!(of("map"), (ItemKind::Hash, "a 1 b ".into()));
    assert_eq!(of("set"), (ItemKind::Set, "ann bob".into()));
    assert_eq!(of("ranking"), (ItemKind::Sorted, "ann 1.5".into()));
    assert_eq!(of("list"), (ItemKind::List, "x y x".into()));
    let end = all["ends"].1.unwrap();
    assert!((50_000..=60_000).contains(&(end - world.now.wall_ms)), "{end}");

    let mut other = World::new(2);
    other.now = world.now;
    other.put(Kind::Field, "map", &[("before", Some("1"))]);
    other.put_members(2, "text", &["of another kind"]);
    for _ in 0..2 {
        // Once more changes nothing.
        other.load(1, &records);
        other.pass(500);
        let again = items(&other.dumped(2));
        assert_eq!(again.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
        for (key, (kind, end, values)) in &again {
            assert_eq!((kind, values, end.is_some()), (&all[key].0, &all[key].2, all[key].1.is_some()), "{key}");
        }
    }
    let ranking = other.done(2, Action::All { kind: Kind::Score, key: bytes("ranking") });
    assert_eq!(ranking, Reply::Pairs(vec![(bytes("ann"), score)]), "a number, as programs put it");
    other.add(2, "number", 1);
    assert_eq!(other.get(2, "number").as_deref(), Some("8"), "it is a number still");
}

#[test]
fn what_a_dump_cannot_have_is_refused() {
    let item = |kind, values: &[&str]| {
        let values = values.iter().map(|value| bytes(value)).collect();
        let item = class::dump::Item { key: bytes("k"), kind, end_ms: None, token: 0, values };
        dump::load(&FLOOR.into(), &Record::Item(item), 1_000)
    };
    assert!(item(ItemKind::Stream, &[]).unwrap_err().contains("stream"));
    assert!(item(ItemKind::Hash, &["a"]).unwrap_err().contains("half a value"));
    assert!(item(ItemKind::Text, &[]).unwrap_err().contains("half a value"));
    assert!(item(ItemKind::Sorted, &["a", "many"]).unwrap_err().contains("no score"));
    assert!(item(ItemKind::Set, &["a"]).unwrap().is_some());
}
