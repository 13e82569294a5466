//! The two small programs that see to it that children never outlive their node, however it ends. Both are the node's
//! own binary under another first argument, so nothing has to be installed.
//!
//! `keep` runs between node and child: it asks the kernel to kill it when the node's thread ends, makes itself a session
//! (so that the child and its children are one group), and becomes the child. `reap` runs beside the node for what a
//! child left behind: when its standard input ends, the node is gone, and it kills every process of the groups it was
//! told of, and every process that carries this life's mark in its environment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal, setsid};

use crate::skin::Skin;

/// By these a program hears of sockets that were handed over to it (sd_listen_fds(3)). Children are not to take the node's
/// for theirs.
pub const SOCKET_VARIABLES: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];
/// Children carry it in their environment; its value is different in each life of each node.
pub(crate) const LIFE_MARK: &str = "COPPICE_LIFE";
/// ... and this one, with another value in each life of each clone.
pub(crate) const MEMBER_MARK: &str = "COPPICE_MEMBER";
/// A line that begins so, on standard error, says why the child could not be started.
pub(crate) const NOT_STARTED: &str = "\u{1}coppice keep: ";

const USAGE: &str = "usage: keep PARENT [SKIN] -- PROGRAM ARGUMENT...";

/// Becomes the program that `args` name: the node's process id, for a clone what it keeps of the node ([`Skin`]; a node of `up` has
/// all), `--`, program, arguments. The caller's `main` calls this when its first argument is `keep`.
pub fn keep_main(args: impl Iterator<Item = OsString>) -> ! {
    let args: Vec<OsString> = args.collect();
    let (skin, parent, words) = match &args[..] {
        [parent, dashes, words @ ..] if dashes == "--" => (None, parent, words),
        [parent, skin, dashes, words @ ..] if dashes == "--" => {
            let Ok(skin) = serde_json::from_str::<Skin>(&skin.to_string_lossy()) else { fail(USAGE) };
            (Some(skin), parent, words)
        }
        _ => fail(USAGE),
    };
    let [program, rest @ ..] = words else { fail(USAGE) };
    let parent = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    if parent.is_none() {
        fail(USAGE);
    }
    bind(parent);
    if let Err(e) = setsid() {
        fail(&format!("cannot make a session: {e}"));
    }
    crate::private::as_usual();
    let who = match skin.map_or_else(|| Ok(Vec::new()), |skin| skin.put_on(words)) {
        Ok(who) => who,
        Err(why) => fail(&why),
    };
    // Whoever becomes another user is unbound by the kernel.
    bind(parent);
    let mut command = Command::new(program);
    command.envs(who.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
    SOCKET_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    let error = command.args(rest).exec();
    fail(&format!("cannot run {}: {error}", program.display()))
}

/// This process ends with the node.
fn bind(node: Option<Pid>) {
    if let Err(e) = set_parent_process_death_signal(Some(Signal::KILL)) {
        fail(&format!("cannot bind the child's life to the node's: {e}"));
    }
    // The node may have died before the line above; then nobody will tell us.
    if getppid() != node {
        exit(0);
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{NOT_STARTED}{why}");
    exit(127)
}

/// Waits for the node's end and kills what it left. `args` is the mark of the node's life; standard input brings
/// `+group` and `-group` lines. The caller's `main` calls this when its first argument is `reap`.
pub fn reap_main(mut args: impl Iterator<Item = OsString>) -> ! {
    let Some(life) = args.next().and_then(|life| life.into_string().ok()).filter(|life| !life.is_empty()) else {
        fail("usage: reap MARK")
    };
    // Signals from the terminal are for the node; this one still has work to do after them.
    let _ = setsid();
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines() {
        // An error is an end, too: the node cannot reach us any more.
        let Ok(line) = line else { break };
        match line.split_at_checked(1).map(|(sign, group)| (sign, group.parse::<i32>())) {
            Some(("+", Ok(group))) => drop(groups.insert(group)),
            Some(("-", Ok(group))) => drop(groups.remove(&group)),
            _ => (),
        }
    }
    kill_left(&groups, &life, None);
    exit(0)
}

/// Kills what lives of these sessions, and what was started by this life of a node, or by these clones of it alone.
pub(crate) fn kill_left(groups: &BTreeSet<i32>, life: &str, members: Option<&BTreeSet<String>>) {
    // Whoever forks while we look is found the next time; three quiet looks are the end.
    let mut quiet = 0;
    loop {
        let left = left_behind(groups, life, members);
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == 3 {
            return;
        }
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // A node that restarts waits for this, and whoever connects to it meanwhile.
        std::thread::sleep(Duration::from_millis(if left.is_empty() { 2 } else { 20 }));
    }
}

/// Living processes of these sessions, or with these marks. A session's number is not given again while one of its
/// processes lives, so none of these is a stranger.
fn left_behind(groups: &BTreeSet<i32>, life: &str, members: Option<&BTreeSet<String>>) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let me = std::process::id();
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|&pid| pid != me && session(pid).is_some_and(|s| groups.contains(&s) || is_marked(pid, life, members)))
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        .collect()
}

/// The session of a process that is not a zombie.
fn session(pid: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let session = fields.nth(2)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(session)
}

fn is_marked(pid: u32, life: &str, members: Option<&BTreeSet<String>>) -> bool {
    let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    let value = |name: &str| {
        let mut entries =
            environ.split(|&b| b == 0).filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='));
        entries.find(|(of, _)| *of == name).map(|(_, value)| value)
    };
    value(LIFE_MARK) == Some(life)
        && members.is_none_or(|members| value(MEMBER_MARK).is_some_and(|member| members.contains(member)))
}
