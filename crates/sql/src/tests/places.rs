//! Functions that could differ from replica to replica, at each place where a statement or a schema may have one: each has to be refused,
//! when it is made or when it is used. Behind `default` it is SQLite 3.54 that asks whether a function may be used; older ones asked nobody
//! there, and a column got what each node said.

use super::*;

const DIFFER: &[&str] = &["total_changes()", "sqlite_version()", "sqlite_source_id()", "sqlite_compileoption_get(0)"];

#[test]
fn no_place_has_a_function_that_could_differ() {
    for function in DIFFER {
        let name = function.split('(').next().unwrap();
        for batch in [
            json!([format!("create table d (a, b default ({function}))")]),
            json!([format!("create table d (a, b default (/* 1 */ 1 + abs({function}) -- 2\n))")]),
            json!([format!("create table if not exists d (a, b default (cast({function} as text)) not null)")]),
            json!([format!("create table d (a, \"b; c\" default (iif(1, {function}, 2)))")]),
            json!([format!("create table d (a, b default (case when 1 then {function} end))")]),
            json!([format!("create table d (a, b default ((select {function})))")]),
            json!([format!("alter table t add column b default ({function})")]),
            json!(["create table d (a)", format!("alter table d add column b default ({function})")]),
            json!([format!("create table d (a primary key, b default ({function})) without rowid")]),
            json!([format!("create table d (a not null on conflict replace default ({function}))")]),
            json!([format!("create table d (a, b default (hex({function})) references t (a) on delete set default)")]),
            json!([format!("create table d (a, check (a <> {function}))")]),
            json!([format!("create table d (a, b as ({function}))")]),
            json!([format!("create table d (a, b as ({function}) stored)")]),
            json!([format!("create table d as select {function}")]),
            json!([format!("create index i on t (a, {function})")]),
            json!([format!("create index i on t (a) where n > {function}")]),
            json!([format!("create view v as select {function}"), "select * from v"]),
            json!([format!("create view v (a) as select n from t where n = {function}"), "select * from v"]),
            json!([
                format!("create trigger w after insert on t begin update t set n = {function}; end"),
                "insert into t (a) values ('x')"
            ]),
            json!([
                format!("create trigger w before insert on t when {function} begin select 1; end"),
                "insert into t (a) values ('x')"
            ]),
            json!([format!("insert into t (a) values ('x') on conflict (a) do update set n = {function}")]),
            json!([format!("insert into t (a) values ('x') returning {function}")]),
            json!([format!("select * from t order by {function} limit {function}")]),
            json!([format!("select sum(n) filter (where {function}) over (partition by {function}) from t")]),
            json!([format!("with c as materialized (select {function}) select * from c")]),
        ] {
            let database = with_table();
            let before = image(&database);
            let answer = database.apply(GIVEN, SIZE_MAX, Memory::Weighed, batch.to_string().as_bytes()).unwrap();
            let failure = answer.expect_err(&batch.to_string());
            let says =
                [format!("function {name} is refused"), format!("unsafe use of {name}()"), "not constant".into()];
            let is_said = says.iter().any(|says| failure.why.contains(&**says));
            assert!(is_said && matches!(failure.kind, Kind::Refused | Kind::Sql), "{batch}: {failure:?}");
            assert_eq!(image(&database), before, "{batch}");
        }
    }
}

#[test]
fn what_comes_with_a_batch_may_be_what_a_column_gets() {
    let database = with_table();
    let schema = json!([
        "create table d (a integer primary key, b default (random()), c default current_timestamp, d default 'total_changes()', \
         e default (-1), f default true, h default (hex(randomblob(4)) -- x\n), i default (datetime('now', '+1 day')))",
        "alter table d add column j default (abs(2))"
    ]);
    done(&database, schema);
    done(&database, json!(["insert into d (a) values (1), (2)"]));
    let given = rows(&database, json!("select c, d, e, f, i, j from d where a = 1"));
    assert_eq!(given, json!([["2026-01-01 00:00:00", "total_changes()", -1, 1, "2026-01-02 00:00:00", 2]]));
    assert_eq!(rows(&database, json!("select count(distinct b), count(distinct h) from d")), json!([[2, 2]]));
}
