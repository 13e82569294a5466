//! What SQLite makes of a statement before it runs: what doubles at each level is refused, at the level where it is too much, and in no
//! time. Without the bound each of these takes gigabytes or minutes.

use super::*;
use crate::limits::WEIGHT_MAX;
use crate::weight::{Catalogue, Row, has_drawn};

fn weighed(database: &Database, batch: Value) -> Answer {
    let text = batch.to_string();
    let said = database.apply(GIVEN, SIZE_MAX, Memory::Weighed, text.as_bytes());
    said.unwrap_or_else(|broken| panic!("{broken:?}: {:.300}", text))
}

/// So many views, each made of the one before.
fn chain(levels: usize, make: impl Fn(&str) -> String) -> Vec<String> {
    (0..levels)
        .map(|level| {
            let before = if level == 0 { "t".to_owned() } else { format!("v{}", level - 1) };
            format!("create view v{level} as {}", make(&before))
        })
        .collect()
}

/// The same as clauses of one statement.
fn clauses(levels: usize, make: impl Fn(&str) -> String) -> String {
    let all: Vec<String> = chain(levels, make)
        .iter()
        .filter_map(|view| {
            view.strip_prefix("create view ")?.split_once(" as ").map(|(name, sql)| format!("{name} as ({sql})"))
        })
        .collect();
    format!("with {} select a from v{}", all.join(", "), levels - 1)
}

#[test]
fn what_doubles_at_each_level_is_refused() {
    let column = |before: &str| format!("select a + a as a from {before}");
    type Shape<'s> = (&'s str, &'s dyn Fn(&str) -> String);
    let shapes: [Shape<'_>; 8] = [
        ("joins", &|before| format!("select x.a from {before} x, {before} y")),
        ("columns", &column),
        ("unions", &|before| format!("select a from {before} union all select a from {before}")),
        ("in columns", &|before| format!("select (select max(a) from {before}) + (select min(a) from {before}) as a")),
        ("in conditions", &|before| {
            format!("select 1 as a where exists (select 1 from {before}) or 1 in (select a from \"{before}\")")
        }),
        ("aliases", &|before| {
            format!("select a as b, 1 as a from main.{before} where (b + b) > 1 and b in (select a from '{before}')")
        }),
        ("brackets", &|before| format!("select a from (({before}) join (select max(a) as c from [{before}]))")),
        ("groups", &|before| format!("select max(a, a) as a from {before} group by 1 having max(a, a) > 1")),
    ];
    for (name, make) in shapes {
        let database = with_table();
        let views = chain(60, make);
        let failure = weighed(&database, json!(views)).expect_err(name);
        let at = failure.statement.unwrap();
        assert!(failure.kind == Kind::Budget && failure.why.contains("over 250000 parts"), "{name}: {failure:?}");
        assert!((3..40).contains(&at), "{name}: refused at level {at}");
        // What is below that is done, and reads.
        let mut some = json!(views[..at / 2]);
        some.as_array_mut().unwrap().push(json!(format!("select * from v{}", at / 2 - 1)));
        weighed(&database, some).unwrap();
        // From the top: then it is the last that makes all of them heavy.
        let upside_down: Vec<&String> = views.iter().rev().collect();
        let failure = weighed(&with_table(), json!(upside_down)).expect_err(name);
        assert!(failure.kind == Kind::Budget && failure.statement > Some(2), "{name}: {failure:?}");
    }
    // The same in one statement: as clauses, and as what stands in brackets.
    let deep = (0..30).fold("t".to_owned(), |inner, _| format!("(select a + a as a from {inner})"));
    let within = (0..60).fold("select 1".to_owned(), |inner, _| {
        format!("with a as ({inner}), b as (select * from a, a) select * from b, b")
    });
    for sql in [
        within,
        clauses(30, |before| format!("select x.a from {before} x, {before} y")),
        clauses(30, column),
        format!("select a from {deep}"),
        format!("update t set n = b.a from {deep} as b"),
        format!("insert into t (n) select a from {deep}"),
    ] {
        let failure = weighed(&with_table(), json!([sql])).expect_err(&sql);
        assert_eq!(failure.kind, Kind::Budget, "{sql}: {failure:?}");
        let failure = with_table().query(GIVEN, json!(sql).to_string().as_bytes()).unwrap().expect_err(&sql);
        assert!([Kind::Budget, Kind::Refused].contains(&failure.kind), "{sql}: {failure:?}");
    }
}

#[test]
fn what_is_large_without_levels_is_refused() {
    let names = |many: usize| vec!["b"; many].join(", ");
    let stars = vec!["*"; 2_000].join(", ");
    let wide = format!("create table w ({})", (0..499).map(|nth| format!("c{nth}")).collect::<Vec<_>>().join(", "));
    let generated: Vec<String> = (1..40).map(|nth| format!("g{nth} as (g{0} + g{0})", nth - 1)).collect();
    let added: Vec<String> = generated.iter().map(|column| format!("alter table g add column {column}")).collect();
    let steps = "insert into t (a) values ('x');".repeat(100);
    let triggers: Vec<String> =
        (0..90).map(|nth| format!("create trigger g{nth} after insert on t when 0 begin {steps} end")).collect();
    for batch in [
        json!([format!("select a in ({}) as b from t where 1 in ({})", names(4_000).replace('b', "a"), names(4_000))]),
        json!([wide, format!("select {stars} from w")]),
        json!([wide, format!("insert into t (a) values ('x') returning {stars}")]),
        json!([format!("create table g (g0, {})", generated.join(", "))]),
        json!([vec!["create table g (g0)".to_owned()], added].concat()),
        json!([triggers, vec!["insert into t (a) values ('x')".to_owned()]].concat()),
        json!([format!("select {}1{}", "(".repeat(2_000), ")".repeat(2_000))]),
    ] {
        let failure = weighed(&with_table(), batch.clone()).expect_err(&batch.to_string()[..60]);
        assert_eq!(failure.kind, Kind::Budget, "{failure:?}");
    }
    // Many that are each light enough are too many steps.
    let database = with_table();
    let some = names(300);
    let sql = format!("select a in ({}) as b from t where 1 in ({some})", some.replace('b', "a"));
    weighed(&database, json!([sql])).unwrap();
    assert_eq!(weighed(&database, json!(vec![sql; 100])).unwrap_err().kind, Kind::Budget);
}

#[test]
fn what_was_there_before_the_bound_can_be_taken_away() {
    let database = with_table();
    let views = chain(12, |before| format!("select x.a from {before} x, {before} y"));
    for view in &views {
        database.apply(GIVEN, SIZE_MAX, Memory::Bounded, json!([view]).to_string().as_bytes()).unwrap().unwrap();
    }
    assert_eq!(weighed(&database, json!(["select * from v11"])).unwrap_err().kind, Kind::Budget);
    weighed(&database, json!(["drop view v11", "create view v11 as select a from v2", "select * from v11"])).unwrap();
}

/// What programs do: many tables with triggers and references, views of views, a report over them.
#[test]
fn what_people_write_is_light() {
    let database = Database::new().unwrap();
    let mut schema = vec![
        "create table customer (id integer primary key, name text not null, mail text unique, area text, made text default current_timestamp)".to_owned(),
        "create table goods (id integer primary key, name text, price integer check (price > 0), tax as (price * 19 / 100), total as (price + tax))".to_owned(),
        "create table bill (id integer primary key, customer integer references customer(id) on delete cascade, day text, state text)".to_owned(),
        "create table line (bill integer references bill(id) on delete cascade, goods integer references goods(id), many integer, primary key (bill, goods)) without rowid".to_owned(),
        "create table log (at text, what text)".to_owned(),
        "create index by_day on bill (day, state) where state <> 'old'".to_owned(),
        "create trigger billed after insert on bill begin insert into log values (current_timestamp, 'bill ' || new.id); end".to_owned(),
        "create trigger unbilled after delete on bill begin insert into log values (current_timestamp, 'no bill ' || old.id); end".to_owned(),
        "create view sums as select b.id, b.day, c.name, c.area, sum(l.many * g.total) as total, count(*) as lines from bill b join customer c on c.id = b.customer join line l on l.bill = b.id join goods g on g.id = l.goods group by b.id".to_owned(),
        "create view days as select day, area, sum(total) as total, sum(lines) as lines, count(*) as bills from sums group by day, area".to_owned(),
        "create view weeks as select strftime('%W', day) as week, area, sum(total) as total, sum(bills) as bills from days group by 1, 2".to_owned(),
    ];
    schema.extend((0..40).map(|nth| {
        format!("create table other{nth} (id integer primary key, a text, b text, c integer references customer(id))")
    }));
    weighed(&database, json!(schema)).unwrap();
    let report = "with recent as (select * from days where day > date('now', '-30 days')), best as (select area, max(total) as total from recent group by area), \
                  prior as (select area, total, lag(total) over (partition by area order by day) as before from recent) \
                  select w.week, w.area, w.total, b.total, (select avg(total) from recent r where r.area = w.area) as mean, \
                  case when w.total > b.total then 'up' when w.total < b.total then 'down' else 'same' end as way \
                  from weeks w left join best b using (area) left join prior p on p.area = w.area and p.before > 0 \
                  where w.week in (select week from weeks where total > 0 union all select '01') order by w.week, w.area limit 100";
    let all: Vec<Row> = schema.iter().map(|sql| row(sql)).collect();
    let catalogue = Catalogue::new(&all);
    assert!(catalogue.weigh(report) < WEIGHT_MAX / 4, "{} {catalogue:?}", catalogue.weigh(report));
    weighed(&database, json!([report, "delete from customer where id = 7"])).unwrap();
    let rows: Vec<Value> = (0..250)
        .map(|nth| {
            json!([
                "insert into bill (customer, day, state) select id, ?1, 'new' from customer where id = ?2",
                ["2026-01-01", nth]
            ])
        })
        .collect();
    weighed(&database, json!(rows)).unwrap();
    assert!(catalogue.weigh("insert into bill (customer) values (1)") < 4_096);
}

fn row(sql: &str) -> Row {
    let words: Vec<&str> = sql.split([' ', '(']).collect();
    let table = sql.split(" on ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or(words[2]);
    Row { kind: words[1].into(), name: words[2].into(), table: table.into(), sql: sql.into() }
}

/// SQLite draws the names of columns of which there are more than five alike: at each replica others.
#[test]
fn names_that_would_be_drawn_are_refused() {
    let database = with_table();
    let many = |count: usize| vec!["1 as a"; count].join(", ");
    for batch in [
        json!([format!("create table d as select {}", many(7))]),
        json!([format!("create view d as select {}", many(7)), "select * from d"]),
        json!([
            format!("insert into t (a) select \"a:1\" from (select {}) returning *", many(7)),
            format!("select * from (select {})", many(7))
        ]),
    ] {
        let failure = weighed(&database, batch).unwrap_err();
        assert!(failure.kind == Kind::Refused && failure.why.contains("name each with AS"), "{failure:?}");
    }
    weighed(&database, json!([format!("create table d as select {}", many(5)), "select * from d"])).unwrap();
    assert!(has_drawn(["a", "a:4", "a:77"].into_iter()) && !has_drawn(["a:4", "b:77", "a:3", "a:"].into_iter()));
}

proptest::proptest! {
    /// Whatever is sent, it ends.
    #[test]
    fn anything_has_a_weight(text in "(select|with|as|from|union|values|[a-c]|[(),;*.'\"\\[/-]| ){0,80}") {
        let all = [row("create table a (b, c as (b))"), row("create view b as select a from a"), row("create view c as select * from c, b")];
        let _ = Catalogue::new(&all).weigh(&text);
        let made = Row { kind: "view".into(), name: "b".into(), table: "b".into(), sql: text };
        let _ = Catalogue::new(&[made]).weigh("select * from b");
    }
}
