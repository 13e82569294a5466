//! What may be and what may not, as a table.

use super::*;

#[test]
fn what_could_differ_is_refused_with_the_alternative() {
    let database = with_table();
    let before = image(&database);
    for (sql, says) in [
        ("begin", "a batch is one transaction"),
        ("begin immediate", "a batch is one transaction"),
        ("commit", "COMMIT is refused"),
        ("end", "COMMIT is refused"),
        ("rollback", "ROLLBACK is refused"),
        ("savepoint a", "batch of its own"),
        ("release a", "SAVEPOINT is refused"),
        ("attach 'file.db' as other", "one database"),
        ("attach ':memory:' as other", "one database"),
        ("detach main", "one database"),
        ("vacuum", "VACUUM is refused"),
        ("vacuum into 'file.db'", "VACUUM is refused"),
        ("pragma writable_schema = on", "PRAGMA writable_schema"),
        ("pragma journal_mode", "PRAGMA journal_mode"),
        ("pragma foreign_keys = off", "foreign keys are on"),
        ("pragma user_version", "PRAGMA user_version"),
        ("select * from pragma_table_info('t')", "refused"),
        ("analyze", "ANALYZE"),
        ("create virtual table v using fts5(a)", "virtual tables"),
        ("create virtual table v using rtree(a, b, c)", "virtual tables"),
        ("create temp table v (a)", "use WITH"),
        ("create temp view v as select 1", "use WITH"),
        ("create temp trigger v after insert on t begin select 1; end", "use WITH"),
        ("create table temp.v (a)", "use WITH"),
        ("select * from dbstat", "differs from replica"),
        ("select * from sqlite_stmt", "no such table"),
        ("select * from sqlite_dbpage", "no such table"),
        ("select load_extension('x.so')", "load_extension is refused"),
        ("select sqlite_version()", "sqlite_version is refused"),
        ("select sqlite_source_id()", "is refused"),
        ("select sqlite_compileoption_get(0)", "is refused"),
        ("select total_changes()", "total_changes is refused"),
        ("select fts3_tokenizer('simple')", "is refused"),
        ("select sqlite_rename_table(1, 2, 3, 4, 5, 6, 7)", ""),
        ("insert into sqlite_schema values (1, 2, 3, 4, 5)", "may not be modified"),
        ("update sqlite_schema set sql = ''", "may not be modified"),
        ("delete from sqlite_master", "may not be modified"),
        ("insert into t (id, a) values (9223372036854775807, 'x')", "highest number"),
        ("select datetime('now', 'localtime')", "all is UTC"),
        ("select strftime('%H', 0, 'UTC')", "all is UTC"),
        ("create index i on t (datetime(n))", "non-deterministic"),
        ("insert into t (a) values (\"x\")", "no such column"),
    ] {
        let (kind, why) = fails(&database, json!([sql]));
        assert!(matches!(kind, Kind::Refused | Kind::Sql) && why.contains(says), "{sql}: {kind:?} {why}");
        assert_eq!(image(&database), before, "{sql}");
        let as_query = database.query(GIVEN, json!(sql).to_string().as_bytes()).unwrap().unwrap_err();
        assert!(matches!(as_query.kind, Kind::Refused | Kind::Sql), "{sql}: {as_query:?}");
    }
    assert!(!std::path::Path::new("file.db").exists());
}

#[test]
fn what_is_the_same_everywhere_is_done() {
    let database = with_table();
    for sql in [
        "create table u (k text primary key, at text default current_timestamp, check (length(k) < 100)) without rowid, strict",
        "create index i on t (lower(a), n) where n > 0",
        "create unique index j on t (n, a)",
        "create view v as select a, row_number() over (order by n desc) as place, sum(n) over () as all_n from t",
        "create trigger w after insert on t when new.n > 5 begin insert into u (k) values (new.a); update t set n = 1 where id = new.id; end",
        "insert into t (a, n) values ('x', 6), ('y', 1) on conflict (a) do update set n = excluded.n",
        "select * from v, u",
        "select value from json_each('[1, 2]')",
        "select json_object('a', 1) ->> 'a', group_concat(a, ','), max(n), printf('%d', 3) from t",
        "alter table t add column more real default 1.5",
        "alter table t rename column n to m",
        "alter table t rename to tt",
        "alter table tt drop column more",
        "select * from sqlite_schema",
        "reindex",
        "explain query plan select * from tt",
        "delete from tt where a in (select k from u)",
        "drop trigger w",
        "drop view v",
        "drop index i",
        "drop table u",
    ] {
        if let Err(failure) = apply(&database, json!([sql])) {
            panic!("{sql}: {failure:?}");
        }
    }
    assert_eq!(rows(&database, json!("select a, m from tt")), json!([["y", 1]]));
}

#[test]
fn time_and_chance_are_those_of_the_batch() {
    let database = with_table();
    let one = |sql: &str| rows(&database, json!(format!("select {sql}")))[0][0].clone();
    for (sql, is) in [
        ("datetime('now')", json!("2026-01-01 00:00:00")),
        ("datetime()", json!("2026-01-01 00:00:00")),
        ("datetime('NOW', '+1 day')", json!("2026-01-02 00:00:00")),
        ("datetime('subsec')", json!("2026-01-01 00:00:00.123")),
        ("current_timestamp", json!("2026-01-01 00:00:00")),
        ("current_date", json!("2026-01-01")),
        ("current_time", json!("00:00:00")),
        ("date('now', 'start of year', '-1 day')", json!("2025-12-31")),
        ("time('now')", json!("00:00:00")),
        ("unixepoch()", json!(1_767_225_600)),
        ("unixepoch('now', 'subsec')", json!(1_767_225_600.123)),
        ("strftime('%Y %f')", json!("2026 00.123")),
        ("strftime('%Y', 'now')", json!("2026")),
        ("julianday('now') > 2461041.5", json!(1)),
        ("timediff('now', '2025-12-31')", json!("+0000-00-01 00:00:00.123")),
        ("datetime(0, 'unixepoch')", json!("1970-01-01 00:00:00")),
        ("datetime('no date')", json!(null)),
    ] {
        assert_eq!(one(sql), is, "{sql}");
    }
    let chance = "random() || hex(randomblob(9)) || random()";
    assert_eq!(one(chance), one(chance), "the same number gives the same");
    let other = database.query(Given { seed: 8, ..GIVEN }, json!(format!("select {chance}")).to_string().as_bytes());
    assert_ne!(serde_json::from_slice::<Value>(&other.unwrap().unwrap()).unwrap()["rows"][0][0], one(chance));
    done(
        &database,
        json!([
            "create table d (id integer primary key, at text default current_timestamp, b default (hex(randomblob(4))))"
        ]),
    );
    done(&database, json!(["insert into d (id) values (1), (2)"]));
    let d = rows(&database, json!("select at, b from d"));
    assert_eq!(d[0][0], "2026-01-01 00:00:00");
    assert_ne!(d[0][1], d[1][1], "each row draws anew");
}
