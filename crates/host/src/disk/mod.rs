//! The node's one log, which all consensus groups of the node share, and their snapshots beside it, in `log/`.
//!
//! ```text
//! <lsn>.seg             a segment: records from that number on, in batches          (segment.rs)
//! g<group>-<lsn>.snap   a group's snapshot: replaces its records before that number  (snapshot.rs)
//! spare, spare-1, ...   segments whose records are no longer needed, to be written anew      (spare.rs)
//! packs/                bytes that a class keeps beside the log                              (packs.rs)
//! ```
//! - A thread of its own appends: everything that waits becomes one batch, and one fsync serves all groups. A batch of
//!   records that need no force is only written, and forced soon after (`UNFORCED_MAX`).
//! - Whether the machine was rebooted since all was well is known by its boot's id (`boot.rs`): then the end may be missing.
//! - Another thread writes snapshots, whose bytes it makes itself, so that appends never wait for one.
//! - Segments go when snapshots have replaced all that is in them. The next segment is written over an old one: a file
//!   that keeps its size and place is forced faster than one that grows.
//! - One of which a group that seldom writes needs a little is written anew without the rest, under its name and with its numbers,
//!   by the thread that writes snapshots (clean.rs).
//! - A disk that fails to force ends the process: what it kept is unknown then. Pages that a failed force left behind look
//!   kept and are not, so the next start writes the last segment anew.
//! - A full disk holds up what is to be written and nothing else: the machine is told, and again when there is room.
//! - A damaged log is not opened: the node enters the cluster anew (`renew.rs`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use base::{GroupId, PackSaid, PackWant, Parts, Record, Ticket};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::limits::{DISK_QUEUE_BYTES_MAX, FULL_DISK_AGAIN};

mod boot;
mod clean;
#[cfg(test)]
mod fixtures;
mod left;
mod log;
mod packs;
mod segment;
mod snapshot;
mod spare;
mod sums;
#[cfg(test)]
mod tests;

/// Hands records to the disk threads. Dropping it waits until they have written what waits.
pub struct Disk {
    /// Gone only while it is dropped.
    jobs: Option<Sender<Job>>,
    packs: Option<packs::Packs>,
    /// The log's, then that of snapshots, then those of packs.
    threads: Vec<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
    /// What waits for room need not wait any longer.
    ends: Arc<AtomicBool>,
    unforced_ms_max: Arc<AtomicU64>,
    dir: PathBuf,
}

/// What is on the disk now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Safe {
    Appended(GroupId, Ticket),
    Saved(GroupId, Ticket),
    /// What came of something that was wanted of packs.
    Pack(GroupId, PackSaid),
    /// It takes nothing for now, and why; none: it takes all again.
    Trouble(Option<String>),
}

enum Job {
    Append {
        group: GroupId,
        records: Vec<Record>,
        ticket: Ticket,
        force: bool,
    },
    Save(GroupId, Parts, Ticket),
    Forget(GroupId),
    /// Of the snapshot thread: the snapshot that replaces the group's records before this number is on the disk.
    Saved {
        group: GroupId,
        upto: u64,
        ticket: Option<Ticket>,
    },
    /// Of the snapshot thread: the segment has this size now, or there was no room.
    Cleaned {
        path: PathBuf,
        size: Option<u64>,
    },
    Recovered,
    End,
}

/// What the disk has kept: per group, its snapshot's records and those appended since.
pub type Kept = BTreeMap<GroupId, Vec<Bytes>>;

/// An open log.
pub struct Opened {
    pub disk: Disk,
    pub kept: Kept,
    pub packs: packs::There,
    /// On it comes what is safe.
    pub safe: UnboundedReceiver<Safe>,
    /// What was found out of order and put right.
    pub remarks: Vec<String>,
    /// What was written without force may be missing at the end.
    pub rebooted: bool,
}

impl Disk {
    /// Opens or makes the log.
    pub fn open(dir: &Path) -> Result<Opened, Error> {
        if let Ok(why) = std::fs::read_to_string(dir.join(DISTRUSTED)) {
            return Err(Error::Distrusted(why.trim().to_owned()));
        }
        let old = dir.join("root.log");
        if old.exists() {
            let what = "this folder is of a version before the first release; empty it and found or join anew".into();
            return Err(Error::NotOurs { file: old, what });
        }
        let (log, kept, remarks) = log::open(&dir.join(LOG_DIR))?;
        let rebooted = boot::is_another(log.dir());
        let (jobs, queue) = channel();
        let (done, safe) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let room = Room { told: done.clone(), ends: Arc::default(), waiting: Arc::default() };
        let ends = Arc::clone(&room.ends);
        let (snapshots, saver) = snapshot::start(log.dir().into(), jobs.clone(), room.clone())?;
        let counter = waiting.clone();
        let unforced_ms_max = Arc::<AtomicU64>::default();
        let longest = unforced_ms_max.clone();
        let (packs, mut readers, there) = packs::Packs::open(log.dir(), &done, &room)?;
        let at = log.dir().to_owned();
        let thread = std::thread::Builder::new()
            .name("coppice-disk".into())
            .spawn(move || log.run(&queue, snapshots, &counter, &done, &room, &longest))
            .map_err(Error::io("disk thread"))?;
        let mut threads = vec![thread, saver];
        threads.append(&mut readers);
        let disk = Disk { jobs: Some(jobs), packs: Some(packs), threads, waiting, ends, unforced_ms_max, dir: at };
        Ok(Opened { disk, kept, packs: there, safe, remarks, rebooted })
    }

    /// Appends; `Appended` comes back when the records are on disk, or without `force` when they are written, which
    /// outlives this process, but not the machine's power.
    pub fn append(&self, group: GroupId, records: Vec<Record>, ticket: Ticket, force: bool) {
        self.push(Job::Append { group, records, ticket, force });
    }

    /// Nothing that may be missing at the log's end is needed any more: see [`Opened::rebooted`].
    pub fn recovered(&self) {
        self.push(Job::Recovered);
    }

    /// How long something has waited for its force at most since the start, milliseconds, the force included.
    pub fn unforced_ms_max(&self) -> u64 {
        self.unforced_ms_max.load(Ordering::Relaxed)
    }

    /// Bytes that are free on this disk, and how many it has; none if the system does not say.
    pub fn room(&self) -> Option<(u64, u64)> {
        let said = rustix::fs::statvfs(&self.dir).ok()?;
        Some((said.f_bavail.saturating_mul(said.f_frsize), said.f_blocks.saturating_mul(said.f_frsize)))
    }

    /// Replaces all that was appended for the group before; after a crash there is the old or the new.
    pub fn save(&self, group: GroupId, parts: Parts, ticket: Ticket) {
        self.push(Job::Save(group, parts, ticket));
    }

    /// The group's records may go.
    pub fn forget(&self, group: GroupId) {
        self.push(Job::Forget(group));
    }

    /// Something of a group's packs; what it came to follows as [`Safe::Pack`].
    pub fn pack(&self, group: GroupId, want: PackWant) {
        if let Some(packs) = &self.packs {
            packs.push(group, want);
        }
    }

    fn push(&self, job: Job) {
        let bytes = job.bytes();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > DISK_QUEUE_BYTES_MAX {
            give_up(&format!("the disk is more than {DISK_QUEUE_BYTES_MAX} bytes behind"));
        }
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            give_up("the disk thread has ended");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The snapshot thread has a sender as well: a word says that no more comes.
        if let Some(jobs) = self.jobs.take() {
            let _ = jobs.send(Job::End);
        }
        self.packs = None;
        for thread in self.threads.drain(..) {
            // If it panicked, the log is as a crash leaves it, and the next start deals with that.
            let _ = thread.join();
        }
    }
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Job::Append { records, .. } => records.iter().map(|record| record.len() + segment::RECORD_HEAD).sum(),
            Job::Save(..) | Job::Forget(_) | Job::Saved { .. } | Job::Cleaned { .. } | Job::Recovered | Job::End => 0,
        }
    }
}

/// Has a node with this folder ever saved a snapshot of this group?
pub fn has_snapshot(dir: &Path, group: GroupId) -> bool {
    let files = std::fs::read_dir(dir.join(LOG_DIR)).into_iter().flatten().flatten();
    files.filter_map(|file| snapshot::named(&file.file_name().to_string_lossy())).any(|(of, _)| of == group)
}

/// Has a log ever been begun in this folder?
pub fn has_log(dir: &Path) -> bool {
    let files = std::fs::read_dir(dir.join(LOG_DIR)).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(".seg"))
}

/// Leaves word that what this disk has kept is not to be believed, and ends the process: the next start enters anew.
pub fn distrust(dir: &Path, why: &str) -> ! {
    if let Err(error) = crate::identity::write_safely(dir, DISTRUSTED, why.as_bytes()) {
        tracing::error!(%error, "no word could be left for the next start");
    }
    tracing::error!("the node stops and comes back as a new member: {why}");
    eprintln!("coppice: the node stops and comes back as a new member: {why}");
    std::process::exit(EXIT_AGAIN)
}

/// The log's folder, in a node's.
pub(crate) const LOG_DIR: &str = "log";
/// Word of an earlier life that the log is not to be believed.
pub(crate) const DISTRUSTED: &str = "distrusted";
/// To be started again at once (EX_TEMPFAIL of sysexits).
pub const EXIT_AGAIN: i32 = 75;

/// Waits for a disk that is full.
#[derive(Clone)]
struct Room {
    told: UnboundedSender<Safe>,
    ends: Arc<AtomicBool>,
    /// How many threads wait.
    waiting: Arc<AtomicUsize>,
}

impl Room {
    /// Tries until it does not fail for want of room.
    fn wait<T>(&self, what: &str, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut told = false;
        loop {
            match act() {
                Err(e) if is_full(&e) && !self.ends.load(Ordering::Relaxed) => {
                    if !std::mem::replace(&mut told, true) && self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
                        // The machine may be gone.
                        let _ = self.told.send(Safe::Trouble(Some(format!("{what}: {e}"))));
                    }
                    std::thread::sleep(FULL_DISK_AGAIN);
                }
                result => {
                    if told && self.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
                        let _ = self.told.send(Safe::Trouble(None));
                    }
                    return result;
                }
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Crash-only: the one way to stop.
fn give_up(why: &str) -> ! {
    tracing::error!("the node stops: {why}");
    eprintln!("coppice: the node stops: {why}");
    std::process::exit(74)
}
