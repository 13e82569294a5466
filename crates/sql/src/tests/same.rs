//! Replicas: what has done the same is the same, also if it began with another one's image in the middle.

use base::Rng;
use proptest::prelude::*;

use super::*;

fn statement(rng: &mut Rng) -> Value {
    let n = rng.below(30);
    match rng.below(14) {
        0 => json!([format!("create table if not exists x{} (a, b default (random()))", n % 3)]),
        1 => json!([format!("drop table if exists x{}", n % 3)]),
        2 => json!([format!("create index if not exists i{} on t (n, a)", n % 4)]),
        3 => json!([format!("drop index if exists i{}", n % 4)]),
        4 => json!(["insert into t (a, n) values (?1, random() % 50)", [format!("k{n}")]]),
        5 => json!(["insert or replace into t (a, n) values (hex(randomblob(2)), ?1)", [n]]),
        6 => json!([
            "update t set n = n + 1, a = a || unixepoch('now', 'subsec') where n % 7 = ?1 returning id",
            [n % 7]
        ]),
        // Which rows go, and which are named first, is the plan's choice.
        7 => json!(["delete from t where id in (select id from t where n > ?1 limit 3)", [n]]),
        8 => json!(["insert into t (a, n) select a || '-' || random(), n from t where n < ?1 limit 5", [n]]),
        9 => json!([format!("insert into x{} (a) values (current_timestamp)", n % 3)]),
        10 => json!(["select a, n from t where n > ?1 limit 4", [n]]),
        11 => json!(["insert into t (n) values (last_insert_rowid() + changes())"]),
        12 => json!(["alter table t add column c", []]),
        _ => json!([
            "with recursive c(n) as (select 1 union all select n + 1 from c limit ?1) select sum(n) from c",
            [n * 200]
        ]),
    }
}

/// A replica that knows a statement counts its steps as one that has begun with an image does.
#[test]
fn what_is_remembered_of_a_statement_changes_nothing() {
    let warm = with_table();
    let all = [
        "with recursive c(n) as (select 1 union all select n + 1 from c limit ?1) select count(*) from c",
        "insert into t (n) values (?1)",
        "select count(*) from t x, t y where x.n > y.n + ?1",
        "update t set n = n + 1 where n < ?1",
    ];
    for n in 0..60 {
        let fresh = Database::open(&warm.image().unwrap(), warm.digest()).unwrap();
        let batch = json!(all.map(|sql| json!([sql, [n * 37]]))).to_string();
        let answers =
            [&warm, &fresh].map(|one| one.apply(GIVEN, limits::SIZE_MAX, Memory::Weighed, batch.as_bytes()).unwrap());
        assert_eq!((&answers[0], warm.digest()), (&answers[1], fresh.digest()), "{n}");
        assert_eq!(warm.counts_left(), fresh.counts_left(), "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn replicas_are_the_same(seed: u64) {
        let mut rng = Rng::new(seed);
        let (first, mut second) = (with_table(), with_table());
        for round in 0..40 {
            let many = 1 + rng.below(4);
            let batch = json!((0..many).map(|_| statement(&mut rng)).collect::<Vec<_>>()).to_string();
            let given = Given { wall_ms: GIVEN.wall_ms + round, seed: rng.u64() };
            let memory = if rng.chance(0.8) { Memory::Weighed } else { Memory::Bounded };
            if rng.chance(0.2) {
                second = Database::open(&first.image().unwrap(), first.digest()).unwrap();
            }
            let answers = [&first, &second].map(|one| one.apply(given, limits::SIZE_MAX, memory, batch.as_bytes()).unwrap());
            prop_assert_eq!(&answers[0], &answers[1], "{}", batch);
            prop_assert_eq!(first.digest(), second.digest());
            prop_assert_eq!(first.bytes(), second.bytes());
        }
        prop_assert!(image(&first) == image(&second));
    }

    #[test]
    fn nothing_that_is_sent_ends_the_program(text in "\\PC{0,60}", json in "[\\[\\]\"{}a-z0-9:, ]{0,40}") {
        let database = with_table();
        let _ = database.apply(GIVEN, limits::SIZE_MAX, Memory::Bounded, json.as_bytes()).unwrap();
        let _ = database.apply(GIVEN, limits::SIZE_MAX, Memory::Bounded, json!([text]).to_string().as_bytes()).unwrap();
        let _ = database.query(GIVEN, json!([text, [1]]).to_string().as_bytes()).unwrap();
        prop_assert_eq!(rows(&database, json!("select count(*) from t")), json!([[0]]));
    }
}
