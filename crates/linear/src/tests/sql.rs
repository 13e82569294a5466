//! The database of a group: batches as entries, once each, and the image in snapshots.

use super::*;
use crate::functions::sql::{BATCH, BOUNDED, QUERY, answer};

fn batch(seq: u64, seed: u64, statements: &str) -> Command {
    command(seq, vec![step("database", BATCH, &["1767225600000", &seed.to_string(), "16777216", statements, BOUNDED])])
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
