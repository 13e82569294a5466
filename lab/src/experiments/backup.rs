//! What a backup costs: how long it takes and how large it is, whole and of what changed, how long a restore takes, and
//! what paced clients notice beside it. Operations leave by the clock, so one that waits counts from when it was due.
//! It has no peer: a phase with a backup is compared with the quiet one before it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::linear::bank_of;
use crate::Plan;
use crate::cluster::Cluster;
use crate::load::Target;
use crate::puts::Side;
use crate::report::{Figure, Report};

/// Parts: how much there is, in MiB. Without one: [`USUAL_MIB`].
pub const PARTS: [&str; 5] = ["16", "64", "256", "1024", "2048"];
const USUAL_MIB: &str = "1024";
const NODES: u8 = 3;
const VALUE_BYTES: usize = 4096;
/// Of each filler, that many values are changed between two backups: one in so many.
const CHANGED_OF: usize = 100;
const FILLERS: usize = 8;
/// Clients that are watched. 400 operations a second together, puts and gets in turn: far below what the cluster can.
const CLIENTS: usize = 16;
const EVERY: Duration = Duration::from_millis(40);

/// When operations were due, and how long they took, milliseconds.
#[derive(Default)]
struct Seen {
    done: Mutex<Vec<(Instant, f64)>>,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mib = plan.parts.first().map_or(USUAL_MIB, String::as_str);
    let mib: usize = mib.parse().map_err(|_| format!("{mib:?} is no number of MiB"))?;
    let keys = (mib << 20) / VALUE_BYTES;
    let (cluster, target) = bank_of(NODES, "")?;
    let filled = Instant::now();
    write_all(&target, keys, 1, b'a')?;
    let mut report = Report::new("backup");
    report.notes.push(format!(
        "{mib} MiB as {keys} values of {VALUE_BYTES} bytes in one shard, written in {:.0} s; {:.0} operations a second are watched",
        filled.elapsed().as_secs_f64(),
        CLIENTS as f64 / EVERY.as_secs_f64()
    ));
    let seen = Arc::new(Seen::default());
    let clients = start(&target, &seen);
    let measured = rounds(plan, &cluster, &target, keys, &seen);
    seen.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().map_err(|_| "a client panicked")?;
    }
    let rounds = measured?;
    tell(plan, &rounds, &seen, &mut report)?;
    Ok(report)
}

/// One whole backup, one of what changed, one restore of it under another name.
struct Round {
    quiet: Phase,
    whole: Phase,
    changed: Phase,
    whole_bytes: u64,
    changed_bytes: u64,
    verify: Duration,
    restore: Phase,
}

#[derive(Clone, Copy)]
struct Phase {
    from: Instant,
    to: Instant,
}

impl Phase {
    fn of<T>(work: impl FnOnce() -> Result<T, String>) -> Result<(Self, T), String> {
        let from = Instant::now();
        let done = work()?;
        Ok((Self { from, to: Instant::now() }, done))
    }

    fn secs(self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }
}

fn rounds(plan: &Plan, cluster: &Cluster, target: &Target, keys: usize, seen: &Seen) -> Result<Vec<Round>, String> {
    let mut all = Vec::new();
    for n in 0..plan.rounds {
        let folder = cluster.folder(&format!("backups-{n}"))?;
        let path = folder.display().to_string();
        let quiet = Phase::of(|| {
            std::thread::sleep(Duration::from_secs(plan.seconds));
            Ok(())
        })?
        .0;
        let (whole, whole_bytes) = Phase::of(|| backup(cluster, &path))?;
        write_all(target, keys, CHANGED_OF, b'b' + n as u8)?;
        // Backups are named by their second.
        std::thread::sleep(Duration::from_secs(2));
        let (changed, changed_bytes) = Phase::of(|| backup(cluster, &path))?;
        let begun = Instant::now();
        cluster.coppice_alone(&["backup", "verify", &path])?;
        let verify = begun.elapsed();
        let restored = ["restore", &path, "--namespace", "lab", "--as", "again"];
        let (restore, _) = Phase::of(|| cluster.coppice(&restored))?;
        all.push(Round { quiet, whole, changed, whole_bytes, changed_bytes, verify, restore });
        std::fs::remove_dir_all(Path::new(&path)).map_err(|e| format!("cannot remove {path}: {e}"))?;
        if let Some(why) = seen.failed.lock().expect("nobody panics").first() {
            return Err(format!("an operation failed: {why}"));
        }
    }
    let again = Target { auth: Some(("again".into(), cluster.namespace_token("again")?)), ..target.clone() };
    check(&again, keys, plan.rounds)?;
    Ok(all)
}

/// Bytes that were written of the namespace.
fn backup(cluster: &Cluster, folder: &str) -> Result<u64, String> {
    let said: serde_json::Value =
        serde_json::from_str(&cluster.coppice(&["backup", folder, "--json"])?).map_err(|e| e.to_string())?;
    said["manifest"]["namespaces"]["lab"]["bytes"].as_u64().ok_or_else(|| format!("no bytes in {said}"))
}

fn value(mark: u8) -> Vec<u8> {
    vec![mark; VALUE_BYTES]
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())
}

/// Writes each key, or one of so many.
fn write_all(target: &Target, keys: usize, of: usize, mark: u8) -> Result<(), String> {
    let write = |index: usize| {
        let side = Side::Coppice(target.clone());
        move || {
            runtime()?.block_on(async {
                let mut conn = side.open(index).await?;
                for n in (0..keys).step_by(of).skip(index).step_by(FILLERS) {
                    conn.put(&format!("key:{n}"), &value(mark)).await?;
                }
                Ok::<_, String>(())
            })
        }
    };
    let all: Vec<_> = (0..FILLERS).map(|index| std::thread::spawn(write(index))).collect();
    all.into_iter().try_for_each(|one| one.join().map_err(|_| "a filler panicked".to_owned())?)
}

/// What was restored is what was written.
fn check(again: &Target, keys: usize, rounds: usize) -> Result<(), String> {
    let side = Side::Coppice(again.clone());
    runtime()?.block_on(async {
        let mut conn = side.open(0).await?;
        for n in (0..keys).step_by(CHANGED_OF / 4) {
            let mark = if n % CHANGED_OF == 0 { b'a' + rounds as u8 } else { b'a' };
            if !conn.is(&format!("key:{n}"), &value(mark)).await? {
                return Err(format!("key:{n} was not restored"));
            }
        }
        Ok(())
    })
}

fn start(target: &Target, seen: &Arc<Seen>) -> Vec<std::thread::JoinHandle<()>> {
    let client = |index: usize| {
        let (side, seen) = (Side::Coppice(target.clone()), Arc::clone(seen));
        move || {
            if let Ok(runtime) = runtime() {
                runtime.block_on(ask(&side, index, &seen));
            }
        }
    };
    (0..CLIENTS).map(|index| std::thread::spawn(client(index))).collect()
}

async fn ask(side: &Side, index: usize, seen: &Seen) {
    let (value, key) = (value(b'p'), format!("paced:{index}"));
    let (mut conn, mut due) = (None, Instant::now() + EVERY * index as u32 / CLIENTS as u32);
    let mut is_put = true;
    while !seen.stop.load(Ordering::SeqCst) {
        tokio::time::sleep_until(due.into()).await;
        if conn.is_none() {
            conn = side.open(index).await.ok();
        }
        let Some(open) = &mut conn else { continue };
        let done = match is_put {
            true => open.put(&key, &value).await,
            false => match open.is(&key, &value).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("{key} is not what was written")),
                Err(why) => Err(why),
            },
        };
        match done {
            Ok(()) => seen.done.lock().expect("nobody panics").push((due, due.elapsed().as_secs_f64() * 1e3)),
            Err(why) => {
                seen.failed.lock().expect("nobody panics").push(why);
                conn = None;
            }
        }
        is_put = !is_put;
        due += EVERY;
    }
}

fn tell(plan: &Plan, rounds: &[Round], seen: &Seen, report: &mut Report) -> Result<(), String> {
    let done = seen.done.lock().expect("nobody panics");
    let p99 = |phase: Phase| {
        let within = |at: &Instant| phase.from <= *at && *at <= phase.to;
        let mut took: Vec<f64> = done.iter().filter(|(due, _)| within(due)).map(|(_, took)| *took).collect();
        took.sort_by(f64::total_cmp);
        took.get((took.len() as f64 * 0.99) as usize).copied().unwrap_or(f64::INFINITY)
    };
    let median = |of: &dyn Fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let mut csv = "round,phase,seconds,p99_ms,bytes\n".to_owned();
    for (n, round) in rounds.iter().enumerate() {
        for (name, phase, bytes) in [
            ("quiet", round.quiet, 0),
            ("whole", round.whole, round.whole_bytes),
            ("changed", round.changed, round.changed_bytes),
            ("restore", round.restore, 0),
        ] {
            csv += &format!("{n},{name},{:.2},{:.2},{bytes}\n", phase.secs(), p99(phase));
        }
    }
    let alone = |what: &str, unit: &str, value| Figure::new(what, unit, value, "none", None);
    let quiet = median(&|round| p99(round.quiet));
    let beside = |what: &str, value| Figure::new(format!("p99 beside {what}"), "ms", value, "quiet", Some(quiet));
    report.figures.extend([
        alone("a whole backup", "s", median(&|round| round.whole.secs())),
        alone("its dump", "MiB", median(&|round| round.whole_bytes as f64 / (1 << 20) as f64)),
        alone("a backup of one value in a hundred", "s", median(&|round| round.changed.secs())),
        alone("its dump", "MiB", median(&|round| round.changed_bytes as f64 / (1 << 20) as f64)),
        alone("both verified", "s", median(&|round| round.verify.as_secs_f64())),
        alone("the second one restored", "s", median(&|round| round.restore.secs())),
        beside("a whole backup", median(&|round| p99(round.whole))),
        beside("a backup of what changed", median(&|round| p99(round.changed))),
        beside("a restore", median(&|round| p99(round.restore))),
        alone("failed operations", "operations", seen.failed.lock().expect("nobody panics").len() as f64),
    ]);
    report.write(&plan.out, "backup.csv", &csv)
}
