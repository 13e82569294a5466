//! Memory of one stored session of 1 KiB: resident bytes of one brick, before and after many are stored, against Redis
//! for the same. One node, so one copy; both have the same keys, values and time to live.

use std::time::Duration;

use crate::Plan;
use crate::client::{Conn, command};
use crate::cluster::Cluster;
use crate::load::Target;
use crate::peers::Redis;
use crate::report::{Figure, Report, median};

const SESSIONS: usize = 200_000;
const VALUE_BYTES: usize = 1024;
/// Writes sent at once.
const BATCH: usize = 200;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("memory");
    let mut csv = "side,round,sessions,bytes_a_session\n".to_owned();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let (cluster, target) = Cluster::with_sessions(1, &[])?;
        ours.push(fill(&target, cluster.pid(0).ok_or("no pid")?)?);
        drop(cluster);
        let redis = Redis::start(0)?;
        theirs.push(fill(&redis.target, redis.pid())?);
        for (side, all) in [("coppice", &ours), ("redis", &theirs)] {
            csv += &format!("{side},{round},{SESSIONS},{:.0}\n", all[round]);
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    report.figures.push(Figure::new("resident memory of a session of 1 KiB", "bytes", ours, "redis", Some(theirs)));
    report.notes.push(format!("{SESSIONS} sessions, keys of 32 hexadecimal digits as session ids have them, EX 3600; growth of the resident set over their number"));
    report.write(&plan.out, "memory.csv", &csv)?;
    Ok(report)
}

/// Bytes that the process grows by for each session.
fn fill(target: &Target, pid: i32) -> Result<f64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let mut conn = Conn::open(target.addrs[0], target.auth.as_ref()).await?;
        // What the first requests cost is no session's.
        store(&mut conn, SESSIONS..SESSIONS + BATCH).await?;
        let before = resident(pid)?;
        for from in (0..SESSIONS).step_by(BATCH) {
            store(&mut conn, from..from + BATCH).await?;
        }
        // Buffers of the load are given back.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = resident(pid)?;
        for i in (0..SESSIONS).step_by(997) {
            command(&mut conn.out, &[b"GET", key(i).as_bytes()]);
            conn.send().await?;
            if !conn.bulk_equals(&value(i)).await? {
                return Err(format!("session {i} is not what was stored"));
            }
        }
        Ok((after - before) / SESSIONS as f64)
    })
}

async fn store(conn: &mut Conn, sessions: std::ops::Range<usize>) -> Result<(), String> {
    let count = sessions.len();
    for i in sessions {
        command(&mut conn.out, &[b"SET", key(i).as_bytes(), &value(i), b"EX", b"3600"]);
    }
    conn.send().await?;
    for _ in 0..count {
        conn.status().await?;
    }
    Ok(())
}

/// As random as a session id, the same in each run.
fn key(i: usize) -> String {
    let mixed = (i as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{mixed:032x}")
}

fn value(i: usize) -> Vec<u8> {
    let mut value = key(i).into_bytes();
    value.resize(VALUE_BYTES, b'v');
    value
}

pub fn resident(pid: i32) -> Result<f64, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(|e| format!("{line}: {e}"))?;
    Ok(kib * 1024.0)
}
