//! Images from outside whose schema no batch could have made, and those that all kinds of batches make.

use super::*;

fn load(image: &[u8]) -> Result<Database, (Kind, String)> {
    Database::load(image, SIZE_MAX, Outside::Weighed).unwrap().map_err(|failure| (failure.kind, failure.why))
}

/// What somebody makes beside us.
fn made(sql: &str) -> Vec<u8> {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch(sql).unwrap();
    connection.serialize("main").unwrap().to_vec()
}

#[test]
fn what_a_schema_comes_to_is_weighed_and_its_statements_are_judged_before_anything_looks_at_rows() {
    let doubled = |n: u32| format!("create view v{n} as select a from v{} union all select a from v{}", n - 1, n - 1);
    let views: Vec<String> = (1..30).map(doubled).collect();
    let views = format!("create table v0 (a); {}", views.join("; "));
    let columns: Vec<String> = (1..40).map(|n| format!("c{n} as (c{} + c{})", n - 1, n - 1)).collect();
    // SQLite itself would read a row of it as soon as it is made.
    let columns = format!(
        "create table g (c0); pragma writable_schema = on; update sqlite_schema set sql = 'CREATE TABLE g (c0, {})'",
        columns.join(", ")
    );
    let checks = format!(", check (a{} > 0)", " + 1".repeat(150)).repeat(6);
    let sums = format!(
        "create table s (a{checks}); with recursive c (n) as (select 1 union all select n + 1 from c limit 20000) \
         insert into s select n from c"
    );
    for (sql, kind, says) in [
        (&*views, Kind::Budget, "v"),
        (&columns, Kind::Budget, "g"),
        (&sums, Kind::Budget, "steps"),
        ("create table t (a check (total_changes() >= 0))", Kind::Refused, "table t: function total_changes"),
        ("create table t (a, b default (total_changes()))", Kind::Refused, "table t: function total_changes"),
        ("create table t (a, b check (sqlite_version() > b))", Kind::Refused, "table t: function sqlite_version"),
        (
            "create table t (a); create index i on t (a); insert into t values (1); analyze",
            Kind::Refused,
            "sqlite_stat1",
        ),
        (
            "create table t (a); create table u (a); create trigger g after insert on t begin select 1; end; \
             pragma writable_schema = on; update sqlite_schema set tbl_name = 'u' where name = 'g'",
            Kind::Bad,
            "malformed",
        ),
    ] {
        let image = made(sql);
        let (was, why) = load(&image).expect_err(sql);
        assert!(was == kind && why.contains(says), "{sql:.60}: {was:?} {why}");
    }
    // As it was before level 13.
    assert!(Database::load(&made(&views), SIZE_MAX, Outside::Whole).unwrap().is_ok());
}

#[test]
fn whatever_batches_make_is_taken_back() {
    let database = Database::new().unwrap();
    for batch in [
        json!(["create table if not exists a (id integer primary key autoincrement, n not null default 0, unique (n, id))"]),
        json!(["create table main.b (a references a (id) deferrable initially deferred, x text collate nocase check (length(x) < 9), y as (x || '!') stored) strict"
            .replace("a references", "a integer references").replace("y as", "y text as")]),
        json!(["create table \"c d\" (k primary key, v, w) without rowid", "create unique index if not exists \"i d\" on \"c d\" (v desc, lower(w)) where v > 1"]),
        json!(["create view if not exists v (one, two) as with x as (select 1) select a.id, b.x from a, b where exists (select * from x)"]),
        json!(["create trigger if not exists t after insert on a begin update b set x = 'new'; delete from \"c d\"; end",
               "create trigger of_view instead of delete on v begin delete from a where id = old.one; end"]),
        json!(["create table made as select 1 as one, 'x' as two", "alter table made rename to \"made; again\"",
               "alter table \"made; again\" add column three integer not null default 3", "alter table \"made; again\" drop column two",
               "alter table b rename column x to z", "alter table a rename to first"]),
        json!(["create table gone (id integer primary key autoincrement)", "insert into gone values (5)", "drop table gone"]),
        json!(["insert into first (n) values (1), (2)", "insert into b (z) values ('a')", "insert into \"c d\" values (1, 2, 'X')"]),
    ] {
        done(&database, batch);
    }
    let loaded = load(&database.image().unwrap()).unwrap();
    assert_eq!(super::image(&loaded), super::image(&database));
    let (before, after) = (rows(&database, json!("select * from v")), rows(&loaded, json!("select * from v")));
    assert_eq!(before, after);
    done(&loaded, json!(["delete from v where one = 1", "create table more (a)"]));
    load(&loaded.image().unwrap()).expect("again");
}

/// Few columns and many: what is looked at of an honest database takes fewer steps than it may.
#[test]
fn large_databases_of_all_shapes_are_taken() {
    for (shape, columns, fill) in [("narrow", 1, "n"), ("nulls", 60, "null"), ("texts", 12, "'some text of ' || n")] {
        let names: Vec<String> =
            (0..columns).map(|n| format!("c{n} integer check (c{n} is null or c{n} <> 0)")).collect();
        let values = vec![fill; columns].join(", ");
        let database = Database::new().unwrap();
        done(&database, json!([format!("create table t ({})", names.join(", ")), "create index i on t (c0)"]));
        for _ in 0..3 {
            done(
                &database,
                json!([format!(
                    "with recursive c (n) as (select 1 union all select n + 1 from c limit 8000) insert into t select {values} from c"
                )]),
            );
        }
        let image = database.image().unwrap();
        assert!(load(&image).is_ok(), "{shape}: {} bytes", image.len());
    }
}
