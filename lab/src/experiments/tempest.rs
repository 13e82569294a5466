//! Tempest's figures on class `soft`. 4: how long a request of a cart takes, by number of clients, beside Redis, Redis that
//! waits for a replica, and PostgreSQL with a standby. 5: rogue clients overload one node of three while another one is
//! written to: answers of the overloaded one that are older than what was acknowledged before they were asked for. 6 to 8: pages of several
//! services (`petstore.rs`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::client::{Conn, command};
use crate::closed::{Caller, Shape, run as run_closed, runtime};
use crate::experiments::petstore;
use crate::load::Target;
use crate::peers::Redis;
use crate::postgres::{self, Postgres};
use crate::report::{Figure, Report};
use crate::sides::{OURS, Sides};
use crate::space::Space;
use crate::words::{Does, load};

/// In this order.
pub const PARTS: [&str; 5] = ["latency", "rogues", "services", "histogram", "redundant"];
const CLIENTS: [usize; 4] = [1, 8, 32, 128];
/// A run of one side with so many clients takes no longer, seconds, and there are no more rounds: each part ends within a
/// minute and a half.
const LENGTH_MAX: u64 = 3;
const ROUNDS_MAX: usize = 1;
const VALUE_BYTES: usize = 100;

const ROGUES: usize = 128;
/// Questions that a rogue sends at once.
const STORM: usize = 100;
const CALM: Duration = Duration::from_secs(5);
const STORMY: Duration = Duration::from_secs(20);
const AFTER: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_millis(10);
/// No stale answer so long after the rogues have ended, seconds.
const GOAL: f64 = 5.0;
/// Seconds of one bar.
const BAR: usize = 2;
const KEY: &[u8] = b"tempest";

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("tempest");
    let mut sides = Sides::default();
    for round in 0..plan.rounds.min(ROUNDS_MAX) {
        if plan.has("latency") {
            latency(plan, round, &mut sides, &mut report)?;
        }
    }
    sides.tell(&mut report, &plan.out)?;
    if plan.has("rogues") {
        rogues(plan, &mut report)?;
    }
    if plan.has("services") {
        petstore::services(plan, &mut report)?;
    }
    if plan.has("histogram") {
        petstore::histogram(plan, &mut report)?;
    }
    if plan.has("redundant") {
        petstore::redundant(plan, &mut report)?;
    }
    Ok(report)
}

fn latency(plan: &Plan, round: usize, sides: &mut Sides, report: &mut Report) -> Result<(), String> {
    let all = if plan.connections.is_empty() { CLIENTS.to_vec() } else { plan.connections.clone() };
    let shape = |clients| Shape { clients, length: Duration::from_secs(plan.seconds.min(LENGTH_MAX)), each: 1 };
    let what = |clients| format!("updates and reads of {VALUE_BYTES} B, {clients} clients");
    let of = |target: &Target, pids: &[i32], name: &str, sides: &mut Sides| {
        for &clients in &all {
            eprintln!("tempest: {name}, {clients} clients");
            sides.add(&what(clients), name, round, load(target, pids, Does::Half, &shape(clients))?);
        }
        Ok::<(), String>(())
    };
    let space = Space::start(3, "class = \"soft\"\ncopies = 1")?;
    of(&space.target, &space.cluster.pids(), OURS, sides)?;
    drop(space);
    let redis = Redis::start(2)?;
    of(&Target { wait: None, ..redis.target.clone() }, &redis.pids(), "redis, 2 replicas", sides)?;
    of(&redis.target, &redis.pids(), "redis, WAIT 1", sides)?;
    drop(redis);
    match Postgres::start(true) {
        Ok(postgres) => {
            for &clients in &all {
                eprintln!("tempest: postgresql, {clients} clients");
                let addr = postgres.addr;
                let open = move |index| Row::open(addr, index);
                sides.add(
                    &what(clients),
                    "postgresql, standby",
                    round,
                    run_closed(&shape(clients), &postgres.pids(), open)?,
                );
            }
        }
        Err(why) if round == 0 => report.notes.push(why),
        Err(_) => (),
    }
    Ok(())
}

/// A row of a client's own, written and read in turn.
struct Row {
    conn: postgres::Conn,
    id: String,
    value: String,
}

impl Row {
    async fn open(addr: SocketAddr, index: usize) -> Result<Row, String> {
        Ok(Row { conn: postgres::Conn::of_profiles(addr).await?, id: format!("cart:{index}"), value: String::new() })
    }
}

impl Caller for Row {
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        if turn % 2 == 1 {
            self.value = format!("{:x<VALUE_BYTES$}", format!("{turn}:"));
            return self.conn.update(&self.id, &self.value).await.map(|_| true);
        }
        Ok(self.conn.read(&self.id).await?.as_deref() == Some(&self.value))
    }
}

/// What was acknowledged, and who is to go on.
#[derive(Default)]
struct Scene {
    acknowledged: AtomicU64,
    writes: AtomicBool,
    storms: AtomicBool,
    reads: AtomicBool,
}

fn rogues(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let space = Space::start(3, "class = \"soft\"")?;
    let (target, scene) = (space.target.clone(), Arc::new(Scene::default()));
    [&scene.writes, &scene.reads].into_iter().for_each(|goes_on| goes_on.store(true, Ordering::SeqCst));
    let begun = Instant::now();
    let of = |scene: &Arc<Scene>| (target.clone(), Arc::clone(scene));
    let writer = std::thread::spawn({
        let (target, scene) = of(&scene);
        move || runtime()?.block_on(writes(&target, &scene))
    });
    let reader = std::thread::spawn({
        let (target, scene) = of(&scene);
        move || runtime()?.block_on(reads(&target, &scene, begun))
    });
    eprintln!("tempest: calm for {} s", CALM.as_secs());
    std::thread::sleep(CALM);
    eprintln!("tempest: rogues for {} s, then {} s without", STORMY.as_secs(), AFTER.as_secs());
    scene.storms.store(true, Ordering::SeqCst);
    let rogues = std::thread::spawn({
        let (target, scene) = of(&scene);
        move || runtime()?.block_on(storms(&target, &scene))
    });
    std::thread::sleep(STORMY);
    let ended = begun.elapsed().as_secs_f64();
    [&scene.storms, &scene.writes].into_iter().for_each(|goes_on| goes_on.store(false, Ordering::SeqCst));
    std::thread::sleep(AFTER);
    scene.reads.store(false, Ordering::SeqCst);
    let asked = rogues.join().map_err(|_| "the rogues ended badly")??;
    let updates = writer.join().map_err(|_| "the writer ended badly")??;
    let (answers, stale) = reader.join().map_err(|_| "the reader ended badly")??;
    let last = stale.last().map_or(0.0, |at| (at - ended).max(0.0));
    report.notes.push(format!(
        "rogues: {ROGUES} clients asked {asked} times in {} s; {updates} updates at another node, {answers} answers, {} stale",
        STORMY.as_secs(),
        stale.len()
    ));
    let late = stale.iter().filter(|at| **at > ended + GOAL).count();
    report.figures.push(Figure::new("last stale answer after the rogues have ended", "s", last, "goal", Some(GOAL)));
    report.figures.push(Figure::new("stale answers later than 5 s after", "", late as f64, "goal", Some(0.0)));
    let bars = (CALM + STORMY + AFTER).as_secs() as usize / BAR;
    let rows = (0..bars).map(|bar| {
        let within = |at: &&f64| **at as usize / BAR == bar;
        format!("{},{}\n", bar * BAR, stale.iter().filter(within).count())
    });
    report.write(&plan.out, "tempest5.csv", &format!("seconds,stale\n{}", rows.collect::<String>()))
}

/// Counts up at the first node. How many were acknowledged.
async fn writes(target: &Target, scene: &Scene) -> Result<u64, String> {
    let mut conn = Conn::open(target.addrs[0], target.auth.as_ref()).await?;
    let mut turn = 0u64;
    while scene.writes.load(Ordering::SeqCst) {
        command(&mut conn.out, &[b"SET", KEY, (turn + 1).to_string().as_bytes()]);
        conn.send().await?;
        // Who is refused asks again.
        if conn.status().await.is_ok() {
            turn += 1;
            scene.acknowledged.store(turn, Ordering::SeqCst);
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(turn)
}

/// Asks the victim. How many answers there were, and when stale ones came, seconds since the beginning.
async fn reads(target: &Target, scene: &Scene, begun: Instant) -> Result<(u64, Vec<f64>), String> {
    let mut conn = Conn::open(target.addrs[2], target.auth.as_ref()).await?;
    let (mut answers, mut stale) = (0, Vec::new());
    while scene.reads.load(Ordering::SeqCst) {
        let known = scene.acknowledged.load(Ordering::SeqCst);
        command(&mut conn.out, &[b"GET", KEY]);
        conn.send().await?;
        if let Ok(value) = conn.bulk().await {
            let value = value.and_then(|value| String::from_utf8_lossy(&value).parse().ok()).unwrap_or(0u64);
            answers += 1;
            if value < known {
                stale.push(begun.elapsed().as_secs_f64());
            }
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok((answers, stale))
}

/// All that so many clients can ask of the victim. How many answers they got.
async fn storms(target: &Target, scene: &Arc<Scene>) -> Result<u64, String> {
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..ROGUES {
        let (target, scene) = (target.clone(), Arc::clone(scene));
        all.spawn(async move {
            let mut answers = 0;
            while scene.storms.load(Ordering::SeqCst) {
                let Ok(mut conn) = Conn::open(target.addrs[2], target.auth.as_ref()).await else { continue };
                'open: while scene.storms.load(Ordering::SeqCst) {
                    (0..STORM).for_each(|_| command(&mut conn.out, &[b"EXISTS", KEY]));
                    if conn.send().await.is_err() {
                        break;
                    }
                    for _ in 0..STORM {
                        match conn.status().await {
                            Ok(_) => answers += 1,
                            // Refused.
                            Err(why) if why.starts_with('-') => (),
                            Err(_) => break 'open,
                        }
                    }
                }
            }
            answers
        });
    }
    let mut sum = 0;
    while let Some(one) = all.join_next().await {
        sum += one.map_err(|e| e.to_string())?;
    }
    Ok(sum)
}
