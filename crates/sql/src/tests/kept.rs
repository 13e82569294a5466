//! What a statement has in memory of its own: the worst that can be thought of ends as refused, and takes a bounded part of a node's.

use super::*;

const MANY: &str = "with recursive n(i) as (select 1 union all select i + 1 from n limit 200000)";

fn ask(database: &Database, sql: &str) -> Answer {
    database.query(Given { wall_ms: 0, seed: 1 }, json!(sql).to_string().as_bytes()).unwrap()
}

#[test]
fn rows_that_a_query_keeps_are_few_or_small() {
    let database = Database::new().unwrap();
    for what in [
        "select 1 from n order by zeroblob(262000) || i",
        "select 1 from n order by randomblob(16000)",
        "select count(*) from (select distinct zeroblob(250000) || i from n)",
        "select count(*) from (select i from n group by printf('%.*c', 200000, 'x') || i)",
        "select 1 from n order by replace(replace(hex(zeroblob(2000)), '0', '0123456789'), '1', 'xx') || i",
        "select 1 from n order by json_array(hex(zeroblob(100000)), i)",
        "select max(length(g)) from (select group_concat(hex(zeroblob(1000))) over (order by i) g from n)",
    ] {
        let failure = ask(&database, &format!("{MANY} {what}")).expect_err(what);
        assert!([Kind::Budget, Kind::Large].contains(&failure.kind), "{what}: {failure:?}");
    }
    // It grows as it is visited.
    let growing = "with recursive n(t) as (select 'x' union all select t || t || hex(zeroblob(10000)) from n) select count(*) from n";
    ask(&database, growing).expect_err(growing);
    // Steps alone would let this one through, with 150 MB.
    let large = "with recursive n(i) as (select 1 union all select i + 1 from n limit 5000) select i from n order by zeroblob(30000) || i";
    let failure = ask(&database, large).expect_err(large);
    assert!(failure.kind == Kind::Budget && failure.why.contains("large rows in memory"), "{failure:?}");
    // Few large ones and many small ones are sorted as ever.
    let few = "with recursive n(i) as (select 1 union all select i + 1 from n limit 50)";
    ask(&database, &format!("{few} select i from n order by zeroblob(200000) || i")).unwrap();
    let some = "with recursive n(i) as (select 1 union all select i + 1 from n limit 50000)";
    ask(&database, &format!("{some} select i from n order by i desc limit 3")).unwrap();
    // The bound of one query is not that of the next.
    ask(&database, "select length(zeroblob(200000))").unwrap();
}

#[test]
fn rows_that_a_batch_keeps_are_few_or_small_and_nothing_of_a_refused_one_stays() {
    let database = with_table();
    done(&database, json!(["insert into t (a) values ('before')"]));
    let kept = "with recursive n(i) as (select 1 union all select i + 1 from n limit 200000)";
    for what in [
        format!("insert into t (a) {kept} select randomblob(16000) from n order by zeroblob(262000) || i"),
        format!("insert into t (a) {kept} select distinct zeroblob(250000) || i from n"),
        format!("; insert into t (a) {kept} select i from n order by randomblob(100000)"),
        format!("update t set a = (select max(g) from ({kept} select hex(zeroblob(100000)) || i g from n group by 1))"),
        format!("insert into t (a) {kept} select group_concat(hex(zeroblob(1000))) over (order by i) from n"),
    ] {
        let (digest, bytes) = (database.digest(), database.bytes());
        // What is done before it is undone with it, and what begins anew draws the same.
        let (kind, why) = fails(&database, json!(["insert into t (a) values (random())", what, "select 1"]));
        assert!([Kind::Budget, Kind::Large, Kind::Sql, Kind::Bad].contains(&kind), "{what}: {kind:?} {why}");
        assert_eq!((database.digest(), database.bytes()), (digest, bytes), "{what}");
        assert_eq!(rows(&database, json!("select a from t")), json!([["before"]]));
    }
    // Few large ones, and many small ones, behind others that are done again with each try: as if there had been one.
    let few = "with recursive n(i) as (select 1 union all select i + 1 from n limit 20)";
    let many = "with recursive n(i) as (select 1 union all select i + 1 from n limit 3000)";
    let large =
        format!("insert into t (a) {few} select hex(zeroblob(50000)) || i from n order by hex(zeroblob(50000)) || i");
    done(&database, json!(["insert into t (a) values ('one')", large]));
    let before = rows(&database, json!("select count(*), max(id) from t"));
    done(
        &database,
        json!([
            ["insert into t (a) values (random())"],
            format!("insert into t (a) {many} select 'x' || i from n order by i desc")
        ]),
    );
    assert_eq!(before, json!([[22, 22]]));
    assert_eq!(rows(&database, json!("select count(*), max(id) from t")), json!([[3023, 3023]]));
}

/// What stands in the logs of older programs ends as it did.
#[test]
fn a_batch_of_before_has_the_bounds_of_before() {
    let database = with_table();
    let large = "insert into t (a) with recursive n(i) as (select 1 union all select i + 1 from n limit 500) \
                 select zeroblob(30000) || i from n order by zeroblob(30000) || i";
    assert_eq!(fails(&database, json!([large])).0, Kind::Budget);
    database.apply(GIVEN, SIZE_MAX, Memory::Free, json!([large]).to_string().as_bytes()).unwrap().unwrap();
}
