//! Processes: signals to them, and who is alive, as /proc tells.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

/// One life of a process: its number alone may come to mean another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Proc {
    pub pid: u32,
    started: u64,
    /// For messages.
    pub command: String,
}

impl Proc {
    /// None if there is no such process, or only its remains.
    pub fn of(pid: u32) -> Option<Proc> {
        let (state, _, started) = stat(pid)?;
        (state != 'Z' && state != 'X').then(|| Proc { pid, started, command: command(pid) })
    }

    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, _, started)| started == self.started && state != 'Z' && state != 'X')
    }

    pub fn signal(&self, signal: Signal) {
        assert!(self.is_alive(), "{self:?} should be alive to get a signal");
        kill(self.pid, signal);
    }
}

/// Sends a signal; nobody there is no error, as it may just have ended.
pub fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process number");
    let _ = kill_process(pid, signal);
}

/// The process and all below it.
pub fn family(pid: u32) -> Vec<Proc> {
    let all: Vec<(u32, u32)> = everyone().filter_map(|p| Some((p, stat(p)?.1))).collect();
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(all.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    family.into_iter().filter_map(Proc::of).collect()
}

/// All processes that have this text in their command line, environment or working folder: with a text of its own (its
/// folder) in all three, everything that a cluster started, whoever its parent is by now.
pub fn marked(mark: &str) -> Vec<Proc> {
    let me = std::process::id();
    let has = |pid: &u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).map(|p| p.display().to_string()).unwrap_or_default();
        let text = [read("cmdline"), read("environ"), folder.into_bytes()].concat();
        String::from_utf8_lossy(&text).contains(mark)
    };
    everyone().filter(|pid| *pid != me).filter(has).filter_map(Proc::of).collect()
}

/// Those still alive, for messages.
pub fn alive(procs: &[Proc]) -> Vec<&Proc> {
    procs.iter().filter(|p| p.is_alive()).collect()
}

/// Resident memory, bytes.
pub fn resident(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it is alive");
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("statm has numbers");
    pages * rustix::param::page_size() as u64
}

/// How long it has lived. The kernel keeps its start in hundredths of a second.
pub fn age(pid: u32) -> Duration {
    let ticks = stat(pid).expect("it is alive").2;
    let uptime = fs::read_to_string("/proc/uptime").expect("Linux");
    let now: f64 = uptime.split(' ').next().and_then(|n| n.parse().ok()).expect("uptime is a number");
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Duration::from_secs_f64((now - ticks as f64 / per_second).max(0.0))
}

/// Processes that do nothing but take a core each, until this is dropped.
pub struct Busy(Vec<Child>);

impl Busy {
    pub fn start(count: usize) -> Busy {
        let spin = || {
            // They end by themselves if this test is killed.
            let mut command = Command::new("timeout");
            command.args(["60", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            command.spawn().expect("coreutils has timeout")
        };
        Busy((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `timeout` passes SIGTERM on to its child.
            kill(child.id(), Signal::TERM);
            let _ = child.wait();
        }
    }
}

fn everyone() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("Linux").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

/// State, parent, start time.
fn stat(pid: u32) -> Option<(char, u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, blanks and brackets too.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields.first()?.chars().next()?, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}
