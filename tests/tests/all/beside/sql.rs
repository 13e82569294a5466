//! A database of class `sql` over three nodes: each batch happens once, whichever node is asked and whoever dies.

use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::{Up, http, wait_for};
use serde_json::{Value, json};
use uuid::Uuid;

const INCREMENTS: u64 = 200;

fn ask(up: &Up, n: u8, token: &str, id: Option<&str>, body: &Value) -> Result<(u16, Value), String> {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend(id.map(|id| ("Idempotency-Key", id)));
    let path = "/v1/ns/profiles/sql";
    let reply = http::request(up.at(n).api, "POST", path, &headers, body.to_string().as_bytes());
    let reply = reply.map_err(|error| error.to_string())?;
    let answer = serde_json::from_str(&reply.text()).map_err(|error| format!("{}: {error}", reply.status))?;
    Ok((reply.status, answer))
}

/// The rows of a query, at any node that answers.
fn rows(up: &Up, token: &str, sql: &str) -> Value {
    let mut n = 0;
    let look = || {
        n = n % 3 + 1;
        match ask(up, n, token, None, &json!({"query": sql}))? {
            (200, mut answer) => Ok(answer["rows"].take()),
            other => Err(format!("{other:?}")),
        }
    };
    wait_for(sql, Duration::from_secs(60), look).0
}

#[test]
fn each_batch_happens_once_although_the_leader_is_killed_and_is_there_after_all_were() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    up.apply("profiles.toml", "[namespace.profiles]\nclass = \"sql\"\nsize_max = \"16MiB\"\n").good();
    let token = up.token("profiles");
    let tables = json!({"batch": [
        "create table if not exists count (id integer primary key, n integer not null)",
        "create table if not exists seen (i integer primary key, at text not null default current_timestamp, chance default (random()))",
        "insert or ignore into count values (1, 0)",
    ]});
    wait_for("there are tables", Duration::from_secs(30), || match ask(&up, 1, &token, None, &tables)? {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (shown, _) = wait_for("it is told how large it is", Duration::from_secs(30), || {
        let shown = up.coppice(&["ns", "show", "profiles"]).good();
        if shown.contains(" 0 bytes of") { Err(shown) } else { Ok(shown) }
    });
    assert!(shown.contains("sql") && shown.contains("led by") && shown.contains("16MiB"), "{shown}");
    // Sorted in memory this would take gigabytes, at each node and at each start.
    let large = "insert into seen (i) with recursive n(i) as (select 1 union all select i + 1 from n limit 100000) \
                 select i from n order by zeroblob(262000) || i";
    wait_for("what keeps too much is refused", Duration::from_secs(30), || {
        match ask(&up, 2, &token, None, &json!({"batch": [large]}))? {
            (422, why) if why["type"] == "budget" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    for i in 1..=INCREMENTS {
        if i == INCREMENTS / 3 {
            let view = up.status(1).unwrap();
            let leader = view["namespaces"][0]["shards"][0]["leader"].as_str().expect("it is led").to_owned();
            let n = (1..=3).find(|n| leader.ends_with(&n.to_string())).unwrap_or_else(|| panic!("{leader}"));
            Proc::of(up.node_pid(n)).unwrap().signal(Signal::KILL);
        }
        let id = Uuid::now_v7().to_string();
        let batch = json!({"batch": [
            {"sql": "update count set n = n + 1 where id = 1 and n = ?1", "args": [i - 1], "must": 1},
            ["insert into seen (i) values (?1)", [i]],
        ]});
        let mut n = i as u8 % 3;
        wait_for("it is added", Duration::from_secs(60), || {
            n = n % 3 + 1;
            match ask(&up, n, &token, Some(&id), &batch)? {
                (200, _) => Ok(()),
                // A second time it would not be met.
                (409, answer) => panic!("{i}: {answer}"),
                other => Err(format!("{other:?}")),
            }
        });
    }
    let whole = "select n, (select count(*) from seen), (select count(distinct chance) from seen) from count";
    let all = json!([[INCREMENTS, INCREMENTS, INCREMENTS]]);
    assert_eq!(rows(&up, &token, whole), all);
    let drawn = rows(&up, &token, "select chance, at from seen order by i");

    let up = up.kill_all_and_start();
    assert_eq!(rows(&up, &token, whole), all);
    assert_eq!(rows(&up, &token, "select chance, at from seen order by i"), drawn, "whoever leads now");
    let refused = wait_for("it is led", Duration::from_secs(60), || {
        match ask(&up, 2, &token, None, &json!({"batch": ["delete from seen", "begin"]}))? {
            (422, answer) => Ok(answer),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!((refused.0["type"].as_str(), refused.0["statement"].as_u64()), (Some("refused"), Some(1)));
    assert_eq!(rows(&up, &token, whole), all);

    // It is dumped at one moment, and loaded into another namespace, where it takes the place of what is there.
    let dump = "profiles.dump";
    up.coppice(&["ns", "dump", "profiles", dump]).good();
    up.apply("other.toml", "[namespace.other]\nclass = \"sql\"\nsize_max = \"16MiB\"\n").good();
    wait_for("it is loaded", Duration::from_secs(60), || {
        let said = up.coppice(&["ns", "load", "profiles", dump, "--as", "other"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    let other = up.token("other");
    let query = json!({"query": whole}).to_string();
    let bearer = format!("Bearer {other}");
    let headers = [("Authorization", bearer.as_str())];
    wait_for("any node gives it", Duration::from_secs(60), || {
        let reply = http::request(up.at(3).api, "POST", "/v1/ns/other/sql", &headers, query.as_bytes());
        let reply = reply.map_err(|error| error.to_string())?;
        let is_all = reply.text().contains(&all.to_string());
        if is_all { Ok(()) } else { Err(format!("{}: {}", reply.status, reply.text())) }
    });
}
