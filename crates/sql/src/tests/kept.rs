//! What a query has in memory of its own: the worst that can be thought of ends as refused, and takes a bounded part of a node's.

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
