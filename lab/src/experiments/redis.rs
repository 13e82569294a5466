//! What programs written for Redis do with class `linear`, three nodes, each write forced to a majority's disks, beside
//! one Redis that forces each write to its own: sorted sets, streams, scripts, pipelines, and what a large sorted set
//! takes in memory.

use std::time::Duration;

use super::memory::resident;
use crate::Plan;
use crate::client::{Conn, command};
use crate::closed::{Shape, runtime};
use crate::load::Target;
use crate::peers::Redis;
use crate::report::{Figure, Report, median};
use crate::sides::{OURS, Sides};
use crate::space::Space;
use crate::words::{Does, load};

/// In this order.
pub const PARTS: [&str; 3] = ["commands", "pipelines", "memory"];
const CLIENTS: usize = 64;
const PIPELINES: usize = 16;
const COMMANDS: [(Does, &str); 5] = [
    (Does::Zadd, "ZADD"),
    (Does::Xadd, "XADD of 100 B"),
    (Does::Zrange, "ZRANGE of 10"),
    (Does::Set, "SET of 100 B"),
    (Does::Script, "EVALSHA that sets 100 B"),
];
const MANY: [(Does, &str); 3] =
    [(Does::Sets, "SET of 100 B"), (Does::Gets, "GET of 100 B"), (Does::SetsOfOne, "SET of 100 B of one key")];
const PEER: &str = "redis, appendfsync always";
const LINES: &str = "class = \"linear\"";
/// One value holds 16 MiB, so they are spread over some keys; at both sides.
const KEYS: usize = 4;
const MEMBERS_OF_KEY: usize = 250_000;
const BATCH: usize = 500;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("redis");
    report.notes.push(
        "Coppice: three nodes, a majority's disks, TLS between them; Redis: one copy, one disk, in the clear".into(),
    );
    let mut sides = Sides::default();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        if plan.has("commands") || plan.has("pipelines") {
            loads(plan, round, &mut sides)?;
        }
        if plan.has("memory") {
            let space = Space::start(1, LINES)?;
            ours.push(grown(&space.target, space.cluster.pid(0).ok_or("no pid")?)?);
            drop(space);
            let redis = Redis::start(0)?;
            theirs.push(grown(&redis.target, redis.pid())?);
        }
    }
    sides.tell(&mut report, &plan.out)?;
    let rate = |what| sides.median(what, OURS, |ran| ran.out.per_second);
    if let (Some(script), Some(set)) = (rate(&named(COMMANDS[4].1)), rate(&named(COMMANDS[3].1))) {
        let what = "EVALSHA beside own SET";
        report.figures.push(Figure::new(what, "a second", script, "own SET", Some(set)));
    }
    if !ours.is_empty() {
        let what = format!("memory of {KEYS} sorted sets of {MEMBERS_OF_KEY} members");
        report.figures.push(Figure::new(what, "MiB", median(ours), "redis", Some(median(theirs))));
    }
    Ok(report)
}

fn named(what: &str) -> String {
    format!("{what}, {CLIENTS} clients")
}

fn loads(plan: &Plan, round: usize, sides: &mut Sides) -> Result<(), String> {
    let mut all = Vec::new();
    if plan.has("commands") {
        all.extend(COMMANDS.iter().map(|(does, what)| (*does, named(what), CLIENTS)));
    }
    if plan.has("pipelines") {
        let name = |what: &str| format!("{what} in pipelines of 100, {PIPELINES} clients");
        all.extend(MANY.iter().map(|(does, what)| (*does, name(what), PIPELINES)));
    }
    let measure = |target: &Target, pids: &[i32], side: &str, sides: &mut Sides| {
        for (does, what, clients) in &all {
            let shape = Shape { clients: *clients, length: Duration::from_secs(plan.seconds), each: does.each() };
            sides.add(what, side, round, load(target, pids, *does, &shape)?);
        }
        Ok::<_, String>(())
    };
    let space = Space::start(3, LINES)?;
    measure(&space.target, &space.cluster.pids(), OURS, sides)?;
    drop(space);
    let redis = Redis::forced()?;
    measure(&redis.target, &redis.pids(), PEER, sides)
}

/// MiB that a process grows by when it stores them.
fn grown(target: &Target, pid: i32) -> Result<f64, String> {
    runtime()?.block_on(async {
        let mut conn = Conn::open(target.addrs[0], target.auth.as_ref()).await?;
        // What the first requests cost is no member's.
        add(&mut conn, "warm", 0).await?;
        let before = resident(pid)?;
        for key in 0..KEYS {
            for from in (0..MEMBERS_OF_KEY).step_by(BATCH) {
                add(&mut conn, &format!("board:{key}"), from).await?;
            }
        }
        // Buffers of the load are given back.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = resident(pid)?;
        for key in 0..KEYS {
            command(&mut conn.out, &[b"ZCARD", format!("board:{key}").as_bytes()]);
            conn.send().await?;
            let said = conn.status().await?;
            if said != format!(":{MEMBERS_OF_KEY}") {
                return Err(format!("ZCARD of {MEMBERS_OF_KEY} members says {said}"));
            }
        }
        Ok((after - before) / f64::from(1 << 20))
    })
}

async fn add(conn: &mut Conn, key: &str, from: usize) -> Result<(), String> {
    let all: Vec<(String, String)> = (from..from + BATCH).map(|n| (n.to_string(), format!("member:{n:08}"))).collect();
    let mut words: Vec<&[u8]> = vec![b"ZADD", key.as_bytes()];
    all.iter().for_each(|(score, member)| words.extend([score.as_bytes(), member.as_bytes()]));
    command(&mut conn.out, &words);
    conn.send().await?;
    conn.status().await.map(drop)
}
