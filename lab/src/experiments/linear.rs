//! Class `linear` against etcd, which also forces each write to a majority's disks before it answers: puts and gets,
//! the death of the leader. And by itself: one hot key, a start with a million keys, a thousand groups that do nothing.

use std::time::{Duration, Instant};

use crate::Plan;
use crate::cluster::Cluster;
use crate::etcd::Etcd;
use crate::load::{Outcome, Target};
use crate::peers::wait_until;
use crate::puts::{Conn, Does, Side, fill, killed, load};
use crate::report::{Figure, Report, median};

pub const VALUE_BYTES: usize = 1024;
pub const CONNECTIONS: [usize; 2] = [64, 256];
const HOT: [usize; 4] = [1, 4, 16, 64];
const KEYS: usize = 1_000_000;
/// Ten namespaces of this many groups.
const SHARDS: usize = 100;
const WRITERS: usize = 16;

/// In this order.
pub const PARTS: [&str; 6] = ["three", "one", "leader", "hot", "start", "idle"];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("linear");
    report.notes.push(
        "both force a write to a majority's disks before they answer; TLS between Coppice's nodes, none between etcd's"
            .into(),
    );
    let has_etcd = match Etcd::start(1) {
        Ok(_) => true,
        Err(why) => {
            report.notes.push(why);
            false
        }
    };
    let mut csv = "side,nodes,does,clients,round,per_second,p50_us,p99_us,failed,wrong\n".to_owned();
    for (nodes, part) in [(3, "three"), (1, "one")] {
        if plan.has(part) {
            throughput(plan, nodes, has_etcd, &mut report, &mut csv)?;
            // It goes on for long: what is known is told.
            report.write(&plan.out, "linear.csv", &csv)?;
        }
    }
    if plan.has("leader") {
        leader(plan, has_etcd, &mut report)?;
    }
    if plan.has("hot") {
        hot(plan, &mut report, &mut csv)?;
    }
    if plan.has("start") {
        start(&mut report)?;
    }
    if plan.has("idle") {
        idle(plan, &mut report)?;
    }
    report.write(&plan.out, "linear.csv", &csv)?;
    Ok(report)
}

/// A cluster with a `linear` namespace that has a leader, and how clients reach it.
fn bank(nodes: u8) -> Result<(Cluster, Target), String> {
    bank_of(nodes, "durability = \"disk\"")
}

/// Likewise, declared with these lines.
pub fn bank_of(nodes: u8, lines: &str) -> Result<(Cluster, Target), String> {
    let cluster = Cluster::start(nodes, false)?;
    cluster.apply(&format!("[namespace.lab]\nclass = \"linear\"\n{lines}\n"))?;
    let auth = Some(("lab".to_owned(), cluster.namespace_token("lab")?));
    let target = Target { addrs: cluster.doors("resp"), auth, wait: None };
    let side = Side::Coppice(target.clone());
    wait_until("the namespace serves at every node", || (0..usize::from(nodes)).all(|n| serves(&side, n)))?;
    Ok((cluster, target))
}

fn serves(side: &Side, node: usize) -> bool {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return false };
    runtime.block_on(async {
        let Ok(mut conn) = side.open(node).await else { return false };
        conn.is("nothing", b"").await.is_ok()
    })
}

fn throughput(plan: &Plan, nodes: u8, has_etcd: bool, report: &mut Report, csv: &mut String) -> Result<(), String> {
    let connections = if plan.connections.is_empty() { CONNECTIONS.to_vec() } else { plan.connections.clone() };
    let length = Duration::from_secs(plan.seconds);
    let kinds: Vec<(Does, &str, usize)> =
        connections.iter().flat_map(|&n| [(Does::Put, "puts", n), (Does::Get, "gets", n)]).collect();
    let mut found: Vec<[Vec<Outcome>; 2]> = kinds.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..plan.rounds {
        for (side, name) in [(0, "coppice"), (1, "etcd")] {
            if side == 1 && !has_etcd {
                continue;
            }
            let (mut ours, mut theirs) = (None, None);
            let at = if side == 0 {
                let (cluster, target) = bank(nodes)?;
                ours = Some(cluster);
                Side::Coppice(target)
            } else {
                Side::Etcd(theirs.insert(Etcd::start(usize::from(nodes))?).addrs.clone())
            };
            for ((does, kind, clients), found) in kinds.iter().zip(&mut found) {
                let out = load(&at, *does, *clients, VALUE_BYTES, length)?;
                *csv += &format!(
                    "{name},{nodes},{kind},{clients},{round},{:.0},{:.0},{:.0},{},{}\n",
                    out.per_second, out.p50_us, out.p99_us, out.failed, out.wrong
                );
                if let Some(why) = out.first_failure.as_ref() {
                    report.notes.push(format!("{name}, {clients} clients: {} failed, first: {why}", out.failed));
                }
                found[side].push(out);
            }
            drop((ours, theirs));
        }
    }
    for ((_, kind, clients), [ours, theirs]) in kinds.iter().zip(&found) {
        let of = |outs: &[Outcome], pick: fn(&Outcome) -> f64| median(outs.iter().map(pick).collect());
        let peer = |pick| (!theirs.is_empty()).then(|| of(theirs, pick));
        let what = format!("{kind} of 1 KiB, {nodes} nodes, {clients} clients");
        report.figures.push(Figure::new(&what, "a second", of(ours, |o| o.per_second), "etcd", peer(|o| o.per_second)));
        let (p99, theirs) = (of(ours, |o| o.p99_us / 1e3), peer(|o| o.p99_us / 1e3));
        report.figures.push(Figure::new(format!("{what}, p99"), "ms", p99, "etcd", theirs));
        let wrong: u64 = ours.iter().map(|o| o.wrong).sum();
        if wrong > 0 {
            return Err(format!("{wrong} reads were not what was written"));
        }
    }
    Ok(())
}

/// SIGKILL of the leader under load.
fn leader(plan: &Plan, has_etcd: bool, report: &mut Report) -> Result<(), String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let (cluster, mut target) = bank(3)?;
        let leader = || {
            let status = cluster.status().ok()?;
            let name = status["namespaces"][0]["shards"][0]["leader"].as_str()?.to_owned();
            name.strip_prefix('n')?.parse::<usize>().ok()
        };
        wait_until("the namespace shows its leader", || leader().is_some())?;
        let victim = leader().ok_or("it has no leader")? - 1;
        target.addrs.remove(victim);
        ours.push(killed(&Side::Coppice(target), WRITERS, plan.seconds.min(3), || cluster.kill(victim))?);
        if has_etcd {
            let etcd = Etcd::start(3)?;
            let victim = etcd.leader().ok_or("etcd has no leader")?;
            let mut addrs = etcd.addrs.clone();
            addrs.remove(victim);
            theirs.push(killed(&Side::Etcd(addrs), WRITERS, plan.seconds.min(3), || etcd.kill(victim))?);
        }
    }
    let worst = |gaps: &[crate::puts::Gap]| gaps.iter().map(|gap| gap.longest_ms).fold(0.0, f64::max);
    let lost = |gaps: &[crate::puts::Gap]| gaps.iter().map(|gap| gap.lost).sum::<u64>() as f64;
    let peer = |of: &dyn Fn(&[crate::puts::Gap]) -> f64| (!theirs.is_empty()).then(|| of(&theirs));
    let what = "longest time without a write, leader killed";
    report.figures.push(Figure::new(what, "ms, worst round", worst(&ours), "etcd", peer(&worst)));
    let acked: u64 = ours.iter().map(|gap| gap.acked).sum();
    report.figures.push(Figure::new("acknowledged writes lost", "writes", lost(&ours), "etcd", peer(&lost)));
    report.notes.push(format!("{acked} acknowledged writes of Coppice were read back after the kills"));
    Ok(())
}

/// One number that more and more clients add to.
fn hot(plan: &Plan, report: &mut Report, csv: &mut String) -> Result<(), String> {
    let (cluster, target) = bank(3)?;
    let side = Side::Coppice(target);
    let mut rates = Vec::new();
    for writers in HOT {
        let outs: Vec<Outcome> = (0..plan.rounds)
            .map(|_| load(&side, Does::Add, writers, 0, Duration::from_secs(plan.seconds)))
            .collect::<Result<_, _>>()?;
        let rate = median(outs.iter().map(|out| out.per_second).collect());
        *csv += &format!("coppice,3,adds,{writers},,{rate:.0},,,{},\n", outs.iter().map(|out| out.failed).sum::<u64>());
        let what = format!("adds to one number, {writers} writers");
        report.figures.push(Figure::new(what, "a second", rate, "itself with 1 writer", rates.first().copied()));
        rates.push(rate);
    }
    drop(cluster);
    Ok(())
}

/// One node with a million keys, killed: how long until it serves again.
fn start(report: &mut Report) -> Result<(), String> {
    let (mut cluster, target) = bank(1)?;
    fill(&target, KEYS)?;
    let side = Side::Coppice(target.clone());
    cluster.kill(0)?;
    let event = cluster.event("restarted", Duration::from_secs(20))?;
    let begun = Instant::now();
    let last = format!("key:{}", KEYS - 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        while begun.elapsed() < Duration::from_secs(60) {
            let mut conn: Conn = match side.open(0).await {
                Ok(conn) => conn,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            };
            match conn.is(&last, &[b'v'; 100]).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err("the last key is not there after the restart".to_owned()),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        Err(format!("no answer within 60 s of {event}"))
    })?;
    let took = begun.elapsed().as_secs_f64();
    report.figures.push(Figure::new("from the start of the process to a get, 1,000,000 keys", "s", took, "none", None));
    Ok(())
}

/// A thousand groups without work.
fn idle(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let cluster = Cluster::start(3, false)?;
    let empty = cpu_of(&cluster, plan.seconds)?;
    let text: String =
        (0..10).map(|n| format!("[namespace.idle{n}]\nclass = \"linear\"\nshards = {SHARDS}\n")).collect();
    cluster.apply(&text)?;
    let asleep = |door| {
        let status = crate::load::http_get(door, "/v1/status", None).ok()?;
        serde_json::from_str::<serde_json::Value>(&status).ok()?["figures"]["linear.groups_asleep"].as_u64()
    };
    let begun = Instant::now();
    let doors = cluster.doors("api");
    while doors.iter().any(|door| asleep(*door) != Some(10 * SHARDS as u64)) {
        if begun.elapsed() > Duration::from_secs(120) {
            let now: Vec<_> = doors.iter().map(|door| asleep(*door)).collect();
            return Err(format!("the groups do not sleep: {now:?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    report.notes.push(format!(
        "1,000 groups were founded, formed and asleep {:.1} s after their declaration",
        begun.elapsed().as_secs_f64()
    ));
    let full = cpu_of(&cluster, plan.seconds)?;
    let name = "three nodes with 1,000 idle groups, together";
    report.figures.push(Figure::new(name, "% of a core", full, "the same without groups", Some(empty)));
    Ok(())
}

/// Processor time of all nodes over a while, in hundredths of one core.
fn cpu_of(cluster: &Cluster, seconds: u64) -> Result<f64, String> {
    let ticks = || -> Result<f64, String> {
        let mut sum = 0.0;
        for node in 0..3 {
            let pid = cluster.pid(node).ok_or("no pid")?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
            let after = stat.rsplit_once(')').ok_or("no stat")?.1;
            // utime and stime, in hundredths of a second.
            sum += after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(sum)
    };
    std::thread::sleep(Duration::from_secs(2));
    let (before, begun) = (ticks()?, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds.max(5)));
    Ok((ticks()? - before) / begun.elapsed().as_secs_f64())
}
