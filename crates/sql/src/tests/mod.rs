//! One database, two that do the same, and what none may do.

mod heavy;
mod kept;
mod outside;
mod places;
mod same;
mod table;

use serde_json::{Value, json};

use super::limits::SIZE_MAX;
use super::*;

/// The first moment of 2026, and a number for chance.
const GIVEN: Given = Given { wall_ms: 1_767_225_600_123, seed: 7 };

fn apply(database: &Database, batch: Value) -> Answer {
    database.apply(GIVEN, SIZE_MAX, Memory::Bounded, batch.to_string().as_bytes()).unwrap()
}

fn done(database: &Database, batch: Value) -> Value {
    let answer = apply(database, batch).unwrap();
    let mut answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["results"].take()
}

fn fails(database: &Database, batch: Value) -> (Kind, String) {
    let failure = apply(database, batch.clone()).expect_err(&batch.to_string());
    (failure.kind, failure.why)
}

fn rows(database: &Database, query: Value) -> Value {
    let answer = database.query(GIVEN, query.to_string().as_bytes()).unwrap().unwrap();
    let mut answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["rows"].take()
}

fn with_table() -> Database {
    let database = Database::new().unwrap();
    done(&database, json!(["create table t (id integer primary key, a text unique, n integer not null default 0)"]));
    database
}

/// All pages, without how often the file was changed since it was opened: nothing is decided by that.
fn image(database: &Database) -> Vec<u8> {
    let mut image = database.image().unwrap().to_vec();
    for counter in [24..28, 92..96] {
        image.get_mut(counter).into_iter().for_each(|bytes| bytes.fill(0));
    }
    image
}

#[test]
fn a_batch_says_what_each_statement_changed_and_gave() {
    let database = with_table();
    let results = done(
        &database,
        json!([
            ["insert into t (a, n) values (?1, ?2), ('y', 2.5)", ["x", true]],
            ["update t set n = n + 1 where a = ?1 returning id, a, n, x'00ff', null", ["x"]],
            "select count(*) as many from t",
            ["insert into t (a, n) values ('z', last_insert_rowid() * 10 + changes())"],
            "select n from t where a = 'z'",
        ]),
    );
    assert_eq!(
        results,
        json!([
            {"changed": 2, "last_id": 2},
            {"changed": 1, "columns": ["id", "a", "n", "x'00ff'", "null"], "rows": [[1, "x", 2, {"base64": "AP8="}, null]]},
            {"changed": 0, "columns": ["many"], "rows": [[2]]},
            {"changed": 1, "last_id": 3},
            {"changed": 0, "columns": ["n"], "rows": [[20]]},
        ])
    );
    assert_eq!(rows(&database, json!(["select n from t where a = ?1", ["y"]])), json!([[2.5]]));
}

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    let database = with_table();
    done(&database, json!(["insert into t (a) values ('x')"]));
    let before = image(&database);
    for (batch, kind, says) in [
        (json!(["insert into t (a) values ('y')", "insert into t (a) values ('x')"]), Kind::Constraint, "UNIQUE"),
        (
            json!(["insert into t (a) values ('y')", "insert or rollback into t (a) values ('x')"]),
            Kind::Constraint,
            "UNIQUE",
        ),
        (json!(["delete from t", {"sql": "update t set n = 1 where a = 'none'", "must": 1}]), Kind::Unmet, "with 0"),
        (json!(["delete from t", {"sql": "select 1 from t", "must": 1}]), Kind::Unmet, "with 0"),
        (json!(["delete from t", "insert into nowhere values (1)"]), Kind::Sql, "no such table"),
        (json!(["create table u (x)", "selec 1"]), Kind::Sql, "syntax error"),
    ] {
        let (is, why) = fails(&database, batch.clone());
        assert!(is == kind && why.contains(says), "{batch}: {is:?} {why}");
        assert_eq!(image(&database), before, "{batch}");
    }
    let met = json!([{"sql": "update t set n = 1 where a = ?1 and n = 0", "args": ["x"], "must": 1}]);
    done(&database, met.clone());
    assert_eq!(fails(&database, met).0, Kind::Unmet, "it was compared, and is set");
}

#[test]
fn deferred_references_are_looked_at_in_the_end() {
    let database = Database::new().unwrap();
    done(
        &database,
        json!([
            "create table p (id integer primary key)",
            "create table c (p integer references p(id) deferrable initially deferred)"
        ]),
    );
    done(&database, json!(["insert into c values (1)", "insert into p values (1)"]));
    assert_eq!(fails(&database, json!(["insert into c values (2)"])).0, Kind::Constraint);
    assert_eq!(rows(&database, json!("select * from c")), json!([[1]]));
    done(&database, json!(["insert into p values (2)"]));
}

#[test]
fn what_has_no_form_is_said() {
    let database = with_table();
    let long = "x".repeat(limits::VALUE_BYTES_MAX + 1);
    for (batch, says) in [
        (json!({}), "list of statements"),
        (json!([]), "0 statements"),
        (json!(vec!["select 1"; limits::STATEMENTS_MAX + 1]), "257 statements"),
        (json!([1]), "write a statement as"),
        (json!([["select ?1", 1]]), "write a statement as"),
        (json!([{"sql": "select 1", "mustnt": 1}]), "\"mustnt\" is not known"),
        (json!([{"sql": "select 1", "must": -1}]), "at least"),
        (json!([["select ?1", [[1]]]]), "argument 1: a list"),
        (json!([["select ?1", [{"a": 1}]]]), "argument 1: an object"),
        (json!([["select ?1", [{"base64": "?"}]]]), "not base64"),
        (json!([["select ?1", [u64::MAX]]]), "send it as text"),
        (json!([["select ?1", [long]]]), "bytes"),
        (json!([["select ?1", []]]), "takes 1 arguments"),
        (json!([" -- nothing"]), "no statement"),
        (json!(["select 1; select 2"]), "several statements"),
        (json!(["select 1;".repeat(1_000)]), "semicolons"),
        (json!(["select 1\0"]), "zero byte"),
    ] {
        let (kind, why) = fails(&database, batch);
        assert!(matches!(kind, Kind::Bad) && why.contains(says), "{says}: {kind:?} {why}");
    }
    assert_eq!(parse(&vec![b' '; limits::BATCH_BYTES_MAX + 1]).unwrap_err().kind, Kind::Large);
    let changes = database.query(GIVEN, br#""delete from t""#).unwrap().unwrap_err();
    assert!(changes.kind == Kind::Refused && changes.why.contains("only reads"), "{changes:?}");
}

#[test]
fn bounds_end_a_batch_and_undo_it() {
    let database = with_table();
    let endless = "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c";
    let before = image(&database);
    let (kind, why) = fails(&database, json!(["insert into t (a) values ('x')", endless]));
    assert!(kind == Kind::Budget && why.contains("steps"), "{why}");
    let many = "with recursive c(n) as (select 1 union all select n + 1 from c limit 20000) select n from c";
    assert_eq!(fails(&database, json!([many])).0, Kind::Large);
    let wide =
        "with recursive c(n) as (select 'x' union all select n || n from c limit 30) insert into t (a) select n from c";
    assert_eq!(fails(&database, json!([wide])).0, Kind::Large);
    let fill = "with recursive c(n) as (select 1 union all select n + 1 from c limit 50) insert into t (a) select hex(randomblob(100000)) || n from c";
    let full = database
        .apply(GIVEN, limits::SIZE_MIN, Memory::Bounded, json!([fill]).to_string().as_bytes())
        .unwrap()
        .unwrap_err();
    assert!(full.kind == Kind::Full && full.why.contains("size_max"), "{full:?}");
    assert_eq!(image(&database), before);
    done(&database, json!([fill]));
    assert!(database.bytes() > 50 * 200_000, "{}", database.bytes());
    assert_eq!(database.query(GIVEN, json!(endless).to_string().as_bytes()).unwrap().unwrap_err().kind, Kind::Budget);
}

#[test]
fn a_damaged_image_is_not_believed() {
    let database = with_table();
    let mut image = database.image().unwrap().to_vec();
    assert!(Database::open(&image, 0).is_ok());
    image[..64].fill(7);
    assert!(Database::open(&image, 0).is_err());
}

#[test]
fn an_image_from_outside_is_taken_only_if_batches_could_have_made_it() {
    let database = with_table();
    done(
        &database,
        json!(["insert into t (a) values ('x')", "create view v as select a from t", "create index i on t (n)"]),
    );
    let image = database.image().unwrap();
    let load = |image: &[u8], most| {
        Database::load(image, most, Outside::Weighed).unwrap().map_err(|failure| (failure.kind, failure.why))
    };
    let loaded = load(&image, SIZE_MAX).unwrap();
    assert_eq!(rows(&loaded, json!("select a from v")), json!([["x"]]));
    // It goes on as any other does, and as another that was loaded.
    let other = load(&image, SIZE_MAX).unwrap();
    for database in [&loaded, &other] {
        done(database, json!(["insert into t (a) values (random())"]));
    }
    assert_eq!((loaded.digest(), super::tests::image(&loaded)), (other.digest(), super::tests::image(&other)));
    assert_eq!(rows(&load(&[], SIZE_MAX).unwrap(), json!("select count(*) from sqlite_schema")), json!([[0]]));
    // And nothing else is.
    assert_eq!(load(&image, 4_096).unwrap_err().0, Kind::Full);
    assert_eq!(load(b"no database", SIZE_MAX).unwrap_err().0, Kind::Bad);
    let made = |sql: &str| {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(sql).unwrap();
        connection.serialize("main").unwrap().to_vec()
    };
    for (sql, says) in [
        ("pragma page_size = 8192; vacuum; create table t (a)", "8192"),
        ("pragma encoding = 'UTF-16le'; create table t (a)", "UTF-16le"),
        ("create virtual table t using fts5(a)", "virtual"),
    ] {
        let (kind, why) = load(&made(sql), SIZE_MAX).unwrap_err();
        assert!(kind == Kind::Refused && why.contains(says), "{sql}: {kind:?} {why}");
    }
    // Wherever it is damaged: it is refused, or the same rows are read.
    let mut refused = 0;
    for at in (0..image.len()).step_by(61) {
        let mut damaged = image.to_vec();
        damaged[at] ^= 0xff;
        refused += usize::from(Database::load(&damaged, SIZE_MAX, Outside::Weighed).unwrap().is_err());
    }
    assert!(refused > 2, "{refused}");
}
