//! The database of a group: batches as entries, once each, and the image in snapshots.

use super::*;
use crate::functions::sql::{BATCH, QUERY, WEIGHED, answer};

fn batch(seq: u64, seed: u64, statements: &str) -> Command {
    command(seq, vec![step("database", BATCH, &["1767225600000", &seed.to_string(), "16777216", statements, WEIGHED])])
}

fn rows(space: &Space, sql: &str) -> String {
    let query = step("database", QUERY, &["1767225600000", "1", &format!("{sql:?}")]);
    let Ran::Done(mut replies) = space.read(&[], &[query]) else { panic!("{sql}") };
    let json = answer(replies.remove(0)).unwrap().unwrap();
    String::from_utf8(json.to_vec()).unwrap()
}

#[test]
fn a_batch_that_comes_twice_happens_once_and_one_that_fails_changes_nothing() {
    let mut space = Space::default();
    assert!(rows(&space, "select 1 as one").contains("[[1]]"), "there is one before the first batch");
    apply(&mut space, 1, vec![batch(1, 1, r#"["create table t (n, r default (random()))"]"#)]);
    let add = batch(2, 9, r#"[["insert into t (n) values (?1)", [5]]]"#);
    let first = apply(&mut space, 2, vec![add.clone()]);
    let digest = space.beside.digest();
    assert_eq!(apply(&mut space, 3, vec![add]), first);
    let unmet = batch(3, 3, r#"["delete from t", {"sql": "select 1 where 0", "must": 1}]"#);
    let Verdict::Ran(Ran::Done(mut replies)) = apply(&mut space, 4, vec![unmet]).remove(0) else { panic!() };
    assert_eq!(answer(replies.remove(0)).unwrap().unwrap_err().statement, Some(1));
    assert_eq!(space.beside.digest(), digest);
    assert!(rows(&space, "select n from t").ends_with("[[5]]}"));
}

#[test]
fn a_snapshot_has_the_database_and_goes_on_as_the_first() {
    let mut space = Space::default();
    apply(&mut space, 1, vec![batch(1, 1, r#"["create table t (id integer primary key, r text)"]"#)]);
    let fill = "with recursive c(n) as (select 1 union all select n + 1 from c limit 60) insert into t (r) select hex(randomblob(9000)) from c";
    apply(&mut space, 2, vec![batch(2, 2, &format!("[{fill:?}]"))]);
    assert!(raft::State::bytes(&space) > 60 * 18_000);
    let parts: Vec<Bytes> = space.parts().0.collect();
    assert!(parts.len() > 3, "{} parts", parts.len());
    let mut copy = Space::from_parts(parts.clone()).unwrap();
    for (seq, seed) in [(3, 30), (4, 40)] {
        let next = batch(
            seq,
            seed,
            r#"["update t set r = r || random() where id % 7 = 1 returning id", "insert into t (r) select r from t limit 9"]"#,
        );
        assert_eq!(apply(&mut space, 3, vec![next.clone()]), apply(&mut copy, 3, vec![next]));
    }
    let all = "select count(*), sum(length(r)), max(r) from t";
    assert_eq!(rows(&space, all), rows(&copy, all));
    assert_eq!(space.beside.digest(), copy.beside.digest());
    assert!(Space::from_parts(parts[..parts.len() - 1].to_vec()).is_none(), "the end of the image is missing");
}

#[test]
fn a_database_that_was_read_out_takes_the_place_of_another_one_once_it_is_whole() {
    use crate::dump::{Dump, LoadDatabase, loaded};
    use crate::moment;
    use class::dump::{Counts, Dump as _, Item, Record};

    let mut from = Space::default();
    apply(&mut from, 1, vec![batch(1, 1, r#"["create table t (id integer primary key, r text)"]"#)]);
    let fill = "with recursive c(n) as (select 1 union all select n + 1 from c limit 60) insert into t (r) select hex(randomblob(9000)) from c";
    apply(&mut from, 2, vec![batch(2, 2, &format!("[{fill:?}]"))]);
    let all = "select count(*), sum(length(r)), max(r) from t";
    let wanted = rows(&from, all);
    // Pages are of the moment of the first one.
    let frozen = from.frozen_database();
    apply(&mut from, 3, vec![batch(3, 3, r#"["delete from t"]"#)]);
    let (mut dump, mut records) = (Dump::of_database("books".into(), 7), Vec::new());
    while let Some(op) = dump.asks().pop() {
        records.extend(dump.take(vec![frozen.read(&[], &op.steps)], 1_000).unwrap());
    }
    let items = records.iter().filter(|record| matches!(record, Record::Item(_))).count();
    assert!(items > 30 && matches!(records[0], Record::Part(_)), "{items} pieces");
    records.push(Record::End(Counts { parts: 1, items: items as u64, bytes: 0 }));

    let mut seq = 10;
    let mut run = |space: &mut Space, op: &crate::Op| {
        let mut steps = op.steps.clone();
        moment::resolve(&mut steps, 1_000, base::LEVEL);
        seq += 1;
        let Verdict::Ran(ran) = apply(space, seq, vec![command(seq, steps)]).remove(0) else { panic!("{op:?}") };
        loaded(&ran)
    };
    let mut into = Space::default();
    apply(&mut into, 1, vec![batch(1, 1, r#"["create table other (n)", "insert into other values (1)"]"#)]);
    let mut load = LoadDatabase::new("books".into(), 9, 16 << 20, base::level::LEVEL);
    let mut ops = Vec::new();
    for record in &records {
        ops.extend(load.load(record, 1_000).unwrap());
        // What the others have of it, so far, goes into snapshots.
        if ops.len() == 2 {
            ops.iter().for_each(|op| run(&mut into, op).unwrap());
            into = Space::from_parts(into.parts().0.collect()).unwrap();
        }
    }
    let last = ops.pop().unwrap();
    let missing = ops.pop().unwrap();
    ops.iter().for_each(|op| run(&mut into, op).unwrap());
    run(&mut into, &last).expect_err("a piece is missing");
    assert!(rows(&into, "select n from other").ends_with("[[1]]}"), "nothing happened");
    run(&mut into, &missing).unwrap();
    run(&mut into, &last).unwrap();
    assert_eq!(rows(&into, all), wanted);
    run(&mut into, &last).expect("who asks again is told the same");
    apply(&mut into, 50, vec![batch(2, 1, r#"["delete from t"]"#)]);
    run(&mut into, &last).unwrap();
    assert!(rows(&into, all).contains("[[0,"), "and it is not loaded twice");
    assert_eq!(into.len(), 1, "no piece is left");
    // One that may not be so large, and what is no database.
    let mut load = LoadDatabase::new("books".into(), 10, 8_192, base::level::LEVEL);
    let ops: Vec<_> = records.iter().flat_map(|record| load.load(record, 1_000).unwrap()).collect();
    let ends: Vec<_> = ops.iter().map(|op| run(&mut into, op)).collect();
    assert!(ends.last().unwrap().as_ref().unwrap_err().contains("size_max"), "{ends:?}");
    let record = records.iter().find_map(|record| if let Record::Item(item) = record { Some(item) } else { None });
    let item = |key: &'static str, value: &'static str| {
        Record::Item(Item { key: key.into(), values: vec![value.into()], ..record.unwrap().clone() })
    };
    let mut load = LoadDatabase::new("books".into(), 11, 16 << 20, base::level::LEVEL);
    let ops = [item("00000000", "no database"), records.last().unwrap().clone()]
        .map(|record| load.load(&record, 1_000).unwrap().unwrap());
    run(&mut into, &ops[0]).unwrap();
    assert!(run(&mut into, &ops[1]).unwrap_err().contains("no database"));
    let mut load = |key, value| load.load(&item(key, value), 1_000).map(drop).unwrap_err();
    assert!(load("00000000", "again").contains("twice"));
    for key in ["4096", "5", "00004096", "-0000001", "key"] {
        assert!(load(key, "x").contains("no piece"), "{key}");
    }
    let mut load = LoadDatabase::new("books".into(), 12, 16 << 20, base::level::LEVEL);
    let ops: Vec<_> = records.iter().rev().filter(|record| matches!(record, Record::Item(_))).collect();
    ops.iter().for_each(|record| run(&mut into, &load.load(record, 1_000).unwrap().unwrap()).unwrap());
    let end = load.load(records.last().unwrap(), 1_000).unwrap().unwrap();
    run(&mut into, &end).expect("in whatever order they come");
    assert_eq!(rows(&into, all), wanted);
    let mut load = LoadDatabase::new("books".into(), 13, 16 << 20, base::level::LEVEL);
    load.load(ops[0], 1_000).unwrap().unwrap();
    assert!(load.load(records.last().unwrap(), 1_000).unwrap_err().contains("piece 0"));
}
