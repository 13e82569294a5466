//! What each child uses, from `/proc`: its process and those that it started and that still belong to it, as programs of several
//! processes (a shell, workers before a socket) are one clone. Read beside the machine's thread: with many it takes milliseconds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base::{ProcId, ProcUse};

use crate::driver::spawn;
use crate::process::Procs;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// Processes of one child that are looked at, and threads of a process whose children are: more are no ordinary service.
const PROCESSES_MAX: usize = 256;
const THREADS_MAX: usize = 256;
/// Linux shows processor time in hundredths of a second to every program (USER_HZ).
const MICROS_PER_TICK: u64 = 10_000;

/// What was seen last.
pub(crate) struct Uses(Rc<RefCell<BTreeMap<ProcId, ProcUse>>>);

impl Uses {
    /// Looks again and again, as long as the machine's thread lives.
    pub fn start(procs: Rc<Procs>) -> Self {
        let latest: Rc<RefCell<BTreeMap<ProcId, ProcUse>>> = Rc::default();
        let seen = latest.clone();
        spawn(async move {
            let mut before = BTreeMap::new();
            loop {
                let pids = procs.pids();
                let looked = tokio::task::spawn_blocking(move || {
                    pids.into_iter().filter_map(|(proc, pid)| Some((proc, (Instant::now(), use_of(pid)?)))).collect()
                });
                // It is cancelled only with the program.
                if let Ok(all) = looked.await {
                    *seen.borrow_mut() = with_rates(&before, &all);
                    before = all;
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        Self(latest)
    }

    pub fn latest(&self) -> BTreeMap<ProcId, ProcUse> {
        self.0.borrow().clone()
    }
}

type Looks = BTreeMap<ProcId, (Instant, ProcUse)>;

/// What was seen now, and how fast each has used processor time since it was looked at before.
fn with_rates(before: &Looks, now: &Looks) -> BTreeMap<ProcId, ProcUse> {
    let rate = |proc: &ProcId, at: Instant, cpu_us: u64| {
        let (began, was) = before.get(proc)?;
        let span_us = at.saturating_duration_since(*began).as_micros().max(1);
        u32::try_from(u128::from(cpu_us.saturating_sub(was.cpu_us)) * 1000 / span_us).ok()
    };
    let each = |(proc, (at, of)): (&ProcId, &(Instant, ProcUse))| {
        (*proc, ProcUse { cpu_millis: rate(proc, *at, of.cpu_us).unwrap_or(0), ..*of })
    };
    now.iter().map(each).collect()
}

/// None: it has ended, or belongs to another user and is hidden.
fn use_of(pid: u32) -> Option<ProcUse> {
    let mut all = stat(pid)?;
    let (mut known, mut waiting) = (BTreeSet::from([pid]), vec![pid]);
    while let Some(parent) = waiting.pop() {
        for child in children(parent) {
            if known.len() == PROCESSES_MAX || !known.insert(child) {
                continue;
            }
            if let Some(of) = stat(child) {
                all.cpu_us = all.cpu_us.saturating_add(of.cpu_us);
                all.resident_bytes = all.resident_bytes.saturating_add(of.resident_bytes);
                waiting.push(child);
            }
        }
    }
    Some(all)
}

/// Of one process, and the time of those that it started and has waited for.
fn stat(pid: u32) -> Option<ProcUse> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last `)` begins with field 3.
    let end = stat.iter().rposition(|b| *b == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = (14..=17).filter_map(field).fold(0, u64::saturating_add);
    Some(ProcUse {
        cpu_us: ticks.saturating_mul(MICROS_PER_TICK),
        cpu_millis: 0,
        resident_bytes: resident_bytes(pid).unwrap_or(0),
    })
}

/// None of one that has ended and is not waited for yet.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"VmRSS:"))?;
    let kib: u64 = std::str::from_utf8(line).ok()?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The processes that its threads have started, as far as the kernel says so.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = Path::new("/proc").join(pid.to_string()).join("task").read_dir() else { return Vec::new() };
    let lists = threads.take(THREADS_MAX).filter_map(|thread| {
        let list = std::fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        Some(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
    });
    lists.flatten().take(PROCESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn how_fast_is_since_the_last_look() {
        let now = Instant::now();
        let look = |ms: u64, all: &[(u64, u64)]| -> Looks {
            let of = |&(proc, cpu_us): &(u64, u64)| {
                (ProcId(proc), (now + Duration::from_millis(ms), ProcUse { cpu_us, ..ProcUse::default() }))
            };
            all.iter().map(of).collect()
        };
        let rates =
            with_rates(&look(0, &[(1, 7_000_000), (2, 5)]), &look(2000, &[(1, 8_000_000), (2, 5), (3, 9_000_000)]));
        assert_eq!(rates.values().map(|of| of.cpu_millis).collect::<Vec<_>>(), [500, 0, 0]);
    }

    #[test]
    fn what_a_child_started_counts_as_its_own() {
        // A shell whose child works until it has taken a while, says so and waits.
        let script = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; exec sleep 600) & wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 4];
        shell.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let (all, alone) = (use_of(shell.id()).unwrap(), stat(shell.id()).unwrap());
        let own = children(shell.id());
        for pid in &own {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
        shell.wait().unwrap();
        assert_eq!(own.len(), 1);
        assert!(all.cpu_us >= alone.cpu_us + 20_000, "{all:?}, the shell alone {alone:?}");
        assert!(all.resident_bytes > alone.resident_bytes && alone.resident_bytes > 100_000, "{all:?} {alone:?}");
        assert_eq!(use_of(shell.id()), None, "it has ended");
    }
}
