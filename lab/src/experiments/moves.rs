//! What writers of class `linear` notice of the work beneath: a log that is made short while it is written as fast as it goes, and
//! shards that move because nodes leave. Writes leave by the clock, so one that waits counts from when it was due.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::linear::{VALUE_BYTES, bank_of};
use crate::Plan;
use crate::cluster::Cluster;
use crate::load::Target;
use crate::peers::wait_until;
use crate::puts::Side;
use crate::report::{Figure, Report};

const NODES: u8 = 5;
/// Those that stay: writers are with them.
const STAY: usize = 3;
const SHARDS: usize = 2;
const WRITERS: usize = 16;
/// Of each writer. 250 writes a second together: far below what the cluster can, so that none waits for the one before it.
const EVERY: Duration = Duration::from_millis(64);
/// Clients that write as fast as it goes, keys of their own: first so few that processors are left, so that what writers notice is the
/// work on logs and snapshots; then more than there is room for.
const FILLERS: [usize; 2] = [2, 32];
/// Keys of all of them together: 128 MiB, so that snapshots are large.
const FILLED_KEYS: u64 = 131_072;

/// Times of writes that were answered: when they were due, and how long that took, milliseconds.
#[derive(Default)]
struct Seen {
    writes: Mutex<Vec<(Instant, f64)>>,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("moves");
    let (cluster, mut target) = bank_of(NODES, &format!("shards = {SHARDS}"))?;
    target.addrs.truncate(STAY);
    wait_until("all shards are whole", || is_whole(&cluster))?;
    let seen = Arc::new(Seen::default());
    let writers = start(&target, &seen);
    let length = Duration::from_secs(plan.seconds.max(2));
    let mut phases: Vec<(String, Instant, Instant)> = Vec::new();
    let mut phase = |name: &str, from: Instant| phases.push((name.to_owned(), from, Instant::now()));

    let begun = Instant::now();
    std::thread::sleep(length);
    phase("nothing else", begun);

    for clients in FILLERS {
        let (before, begun) = (snapshots(&cluster)?, Instant::now());
        let filled = fill(&target, clients, length * 4)?;
        phase(&format!("{clients} clients write as fast as it goes"), begun);
        let made = snapshots(&cluster)?.difference(&before).count();
        report.notes.push(format!(
            "{clients} clients wrote {filled} values of 1 KiB, {:.0}/s; the nodes made snapshots meanwhile: {made} new ones were there at the end",
            filled as f64 / begun.elapsed().as_secs_f64()
        ));
        std::thread::sleep(Duration::from_secs(2));
    }

    for name in ["n5", "n4"] {
        let begun = Instant::now();
        cluster.remove(name)?;
        wait_until("all shards are whole again", || is_whole(&cluster))?;
        report
            .notes
            .push(format!("{name} had left, and all shards were whole, after {:.1} s", begun.elapsed().as_secs_f64()));
        phase(&format!("{name} leaves"), begun);
    }
    let begun = Instant::now();
    std::thread::sleep(length);
    phase("nothing else again", begun);
    seen.stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.join().map_err(|_| "a writer panicked")?;
    }
    tell(plan, &seen, &phases, &mut report)?;
    Ok(report)
}

fn is_whole(cluster: &Cluster) -> bool {
    let Some(Ok(view)) = cluster.doors("api").first().map(|api| Cluster::look(*api)) else { return false };
    view["groups"]["all"].as_u64() > Some(0) && view["groups"]["all"] == view["groups"]["whole"]
}

/// Names of all that nodes have of their groups' logs made short.
fn snapshots(cluster: &Cluster) -> Result<BTreeSet<String>, String> {
    let mut all = BTreeSet::new();
    for node in 1..=NODES {
        let folder = cluster.folder(&format!("n{node}"))?.join("log");
        for file in std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".snap") {
                all.insert(format!("n{node}/{name}"));
            }
        }
    }
    Ok(all)
}

/// A thread for each writer: one that waits for its answer does not hold up others.
fn start(target: &Target, seen: &Arc<Seen>) -> Vec<std::thread::JoinHandle<()>> {
    let write = |index: usize| {
        let (side, seen) = (Side::Coppice(target.clone()), Arc::clone(seen));
        move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(write(&side, index, &seen));
        }
    };
    (0..WRITERS).map(|index| std::thread::spawn(write(index))).collect()
}

async fn write(side: &Side, index: usize, seen: &Seen) {
    let value = [b'x'; VALUE_BYTES];
    let (mut conn, mut due) = (None, Instant::now() + EVERY * index as u32 / WRITERS as u32);
    for n in 0u64.. {
        if seen.stop.load(Ordering::SeqCst) {
            return;
        }
        tokio::time::sleep_until(due.into()).await;
        if conn.is_none() {
            conn = side.open(index).await.ok();
        }
        let Some(open) = &mut conn else { continue };
        match open.put(&format!("paced:{index}:{}", n % 64), &value).await {
            Ok(()) => seen.writes.lock().expect("nobody panics").push((due, due.elapsed().as_secs_f64() * 1e3)),
            Err(why) => {
                seen.failed.lock().expect("nobody panics").push(why);
                conn = None;
            }
        }
        due += EVERY;
    }
}

/// How many values were written.
fn fill(target: &Target, clients: usize, length: Duration) -> Result<u64, String> {
    let keys = FILLED_KEYS / clients as u64;
    let fill = |index: usize| {
        let side = Side::Coppice(target.clone());
        move || -> Result<u64, String> {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(async {
                let (value, end, mut done) = ([b'f'; VALUE_BYTES], Instant::now() + length, 0u64);
                let mut conn = side.open(index).await?;
                while Instant::now() < end {
                    conn.put(&format!("filled:{index}:{}", done % keys), &value).await?;
                    done += 1;
                }
                Ok(done)
            })
        }
    };
    let all: Vec<_> = (0..clients).map(|index| std::thread::spawn(fill(index))).collect();
    all.into_iter().try_fold(0, |sum, one| Ok(sum + one.join().map_err(|_| "a writer panicked".to_owned())??))
}

fn tell(plan: &Plan, seen: &Seen, phases: &[(String, Instant, Instant)], report: &mut Report) -> Result<(), String> {
    let writes = seen.writes.lock().expect("nobody panics");
    let failed = seen.failed.lock().expect("nobody panics");
    let mut csv = "phase,writes,p50_ms,p99_ms,slowest_ms\n".to_owned();
    let mut quiet = None;
    for (name, from, to) in phases {
        let mut took: Vec<f64> =
            writes.iter().filter(|(due, _)| from <= due && due <= to).map(|(_, took)| *took).collect();
        took.sort_by(f64::total_cmp);
        let at = |part: f64| took.get(((took.len() as f64 * part) as usize).min(took.len().saturating_sub(1)));
        let [p50, p99, slowest] = [0.5, 0.99, 1.0].map(|part| at(part).copied().unwrap_or(f64::INFINITY));
        csv += &format!("{name},{},{p50:.2},{p99:.2},{slowest:.2}\n", took.len());
        let figure =
            |what: &str, value, peer| Figure::new(format!("{name}: {what}"), "ms", value, "nothing else", peer);
        report.figures.push(figure("p99", p99, quiet.map(|(p99, _)| p99)));
        report.figures.push(figure("slowest", slowest, quiet.map(|(_, slowest)| slowest)));
        quiet = quiet.or(Some((p99, slowest)));
    }
    report.figures.push(Figure::new("failed writes", "writes", failed.len() as f64, "none", None));
    report.notes.extend(failed.first().map(|why| format!("first failure: {why}")));
    report.notes.push(format!(
        "{} writes of 1 KiB by the clock, {:.0}/s",
        writes.len(),
        WRITERS as f64 / EVERY.as_secs_f64()
    ));
    report.write(&plan.out, "moves.csv", &csv)
}
