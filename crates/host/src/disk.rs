//! The node's one log, `root.log`: batches of records, appended and forced to disk by a thread of its own, which takes
//! everything that waits into one batch. A disk that fails to force ends the process: what it kept is unknown then, and
//! a fresh start reads what is really there.
//!
//! ```text
//! file    "COPLOG1\n", then batches
//! batch   u32 length of what follows the checksum, u32 CRC-32C of it, records
//! record  u32 length, bytes                                            (all big-endian)
//! ```
//! A batch is forced before the next is written. So a bad batch with nothing valid behind it is a write that a crash cut
//! short, and nobody was told it was safe; with a valid batch behind it, it is damage.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::Ticket;
use base::checksum::Checksum;
use bytes::{Buf, BufMut, Bytes};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::limits::{BATCH_BYTES_MAX, DISK_QUEUE_BYTES_MAX};

/// Hands records to the disk thread. Dropping it waits until the thread has written what waits.
pub struct Disk {
    /// Gone only while it is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
}

enum Job {
    Append(Vec<Bytes>, Ticket),
    Rewrite(Vec<Bytes>, Ticket),
}

const MAGIC: &[u8; 8] = b"COPLOG1\n";
const BATCH_HEAD: usize = 8;

impl Disk {
    /// Opens or makes the log; gives its records, and the channel on which tickets come back in order once they are safe.
    pub fn open(dir: &Path) -> Result<(Disk, Vec<Bytes>, UnboundedReceiver<Ticket>), Error> {
        let path = dir.join("root.log");
        let (file, records) = open_log(&path)?;
        let (jobs, queue) = channel();
        let (done, appended) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let log = Log { dir: dir.into(), path, file };
        let counter = waiting.clone();
        let thread = std::thread::Builder::new()
            .name("coppice-disk".into())
            .spawn(move || run(log, &queue, &counter, &done))
            .map_err(Error::io("disk thread"))?;
        Ok((Disk { jobs: Some(jobs), thread: Some(thread), waiting }, records, appended))
    }

    /// Appends; the ticket comes back when the records are on disk.
    pub fn append(&self, records: Vec<Bytes>, ticket: Ticket) {
        self.push(Job::Append(records, ticket));
    }

    /// Replaces the whole log; after a crash there is the old one or the new one.
    pub fn rewrite(&self, records: Vec<Bytes>, ticket: Ticket) {
        self.push(Job::Rewrite(records, ticket));
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
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, the log is as a crash leaves it, and the next start deals with that.
            let _ = thread.join();
        }
    }
}

impl Job {
    fn bytes(&self) -> usize {
        let (Job::Append(records, _) | Job::Rewrite(records, _)) = self;
        records.iter().map(|record| record.len() + 4).sum()
    }
}

/// Crash-only: the one way to stop.
fn give_up(why: &str) -> ! {
    tracing::error!("the node stops: {why}");
    eprintln!("coppice: the node stops: {why}");
    std::process::exit(74)
}

struct Log {
    dir: PathBuf,
    path: PathBuf,
    file: File,
}

fn run(mut log: Log, queue: &Receiver<Job>, waiting: &AtomicUsize, done: &UnboundedSender<Ticket>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| queue.recv().ok()) {
        let mut bytes = job.bytes();
        let mut tickets = Vec::new();
        let wrote = match job {
            Job::Rewrite(records, ticket) => {
                tickets.push(ticket);
                log.rewrite(&records)
            }
            Job::Append(mut records, ticket) => {
                tickets.push(ticket);
                // Everything that waits goes with it, up to the next rewrite.
                while next.is_none() && bytes < BATCH_BYTES_MAX {
                    match queue.try_recv() {
                        Ok(Job::Append(more, ticket)) => {
                            bytes += more.iter().map(|record| record.len() + 4).sum::<usize>();
                            records.extend(more);
                            tickets.push(ticket);
                        }
                        Ok(rewrite) => next = Some(rewrite),
                        Err(_) => break,
                    }
                }
                log.append(&records)
            }
        };
        if let Err(e) = wrote {
            give_up(&format!("{}: {e}", log.path.display()));
        }
        waiting.fetch_sub(bytes, Ordering::Relaxed);
        for ticket in tickets {
            // The machine may be gone; what was written stays.
            let _ = done.send(ticket);
        }
    }
}

impl Log {
    fn append(&mut self, records: &[Bytes]) -> io::Result<()> {
        if !records.is_empty() {
            self.file.write_all(&batch(records))?;
        }
        self.file.sync_data()
    }

    fn rewrite(&mut self, records: &[Bytes]) -> io::Result<()> {
        let temp = self.path.with_extension("log.new");
        let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&temp)?;
        let mut bytes = MAGIC.to_vec();
        if !records.is_empty() {
            bytes.extend(batch(records));
        }
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temp, &self.path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = file;
        Ok(())
    }
}

fn batch(records: &[Bytes]) -> Vec<u8> {
    let mut out = vec![0; BATCH_HEAD];
    for record in records {
        out.put_u32(u32::try_from(record.len()).expect("a record is far below 4 GiB"));
        out.extend_from_slice(record);
    }
    let len = u32::try_from(out.len() - BATCH_HEAD).expect("a batch is far below 4 GiB");
    let sum = Checksum::of(&out[BATCH_HEAD..]);
    out[..4].copy_from_slice(&len.to_be_bytes());
    out[4..BATCH_HEAD].copy_from_slice(&sum.0.to_be_bytes());
    out
}

fn open_log(path: &Path) -> Result<(File, Vec<Bytes>), Error> {
    let failed = || Error::io(path.display().to_string());
    let made = !path.exists();
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(failed())?;
    let bytes = Bytes::from(fs::read(path).map_err(failed())?);
    let mut records = Vec::new();
    let end = if bytes.len() < MAGIC.len() && MAGIC.starts_with(&bytes) {
        file.set_len(0).and_then(|()| file.write_all(MAGIC)).map_err(failed())?;
        MAGIC.len()
    } else if bytes.starts_with(MAGIC) {
        read_batches(path, &bytes, &mut records)?
    } else {
        return Err(Error::NotOurs { file: path.into(), what: "this is no log of Coppice".into() });
    };
    if end < bytes.len() {
        tracing::warn!(
            file = %path.display(), offset = end, bytes = bytes.len() - end,
            "the last write was cut short by a crash; what it left is removed"
        );
        file.set_len(end as u64).map_err(failed())?;
    }
    file.seek(SeekFrom::Start(end as u64)).and_then(|_| file.sync_all()).map_err(failed())?;
    if made {
        let dir = path.parent().expect("the log lies in a folder");
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed())?;
    }
    Ok((file, records))
}

/// Appends all records to `records`, gives where the valid part ends.
fn read_batches(path: &Path, bytes: &Bytes, records: &mut Vec<Bytes>) -> Result<usize, Error> {
    let mut at = MAGIC.len();
    while at < bytes.len() {
        let Some(len) = valid_batch(&bytes[at..]) else {
            if (at + 1..bytes.len()).any(|later| valid_batch(&bytes[later..]).is_some()) {
                return Err(Error::Damaged { file: path.into(), offset: at as u64 });
            }
            break;
        };
        let mut batch = bytes.slice(at + BATCH_HEAD..at + BATCH_HEAD + len);
        while batch.has_remaining() {
            let whole = batch.len() >= 4 && batch.len() - 4 >= u32_at(&batch, 0) as usize;
            if !whole {
                // Its checksum is right, so somebody else wrote this.
                let what = format!("batch at byte {at} is written in a way this version does not know");
                return Err(Error::NotOurs { file: path.into(), what });
            }
            let len = batch.get_u32() as usize;
            records.push(batch.split_to(len));
        }
        at += BATCH_HEAD + len;
    }
    Ok(at)
}

/// Length of the batch that begins here. Zeros, which a crash may leave, are none.
fn valid_batch(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < BATCH_HEAD {
        return None;
    }
    let (len, sum) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4));
    let body = bytes[BATCH_HEAD..].get(..len).filter(|body| !body.is_empty())?;
    (Checksum::of(body) == Checksum(sum)).then_some(len)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{TempDir, temp_dir};
    use proptest::prelude::*;

    fn records(texts: &[&str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
    }

    /// A log with one batch per text; gives the folder and where each batch begins.
    fn log_of(texts: &[&str]) -> (TempDir, Vec<usize>) {
        let dir = temp_dir("disk");
        let (disk, found, mut appended) = Disk::open(&dir.0).unwrap();
        assert!(found.is_empty());
        let (mut starts, mut at) = (Vec::new(), MAGIC.len());
        for (i, text) in texts.iter().enumerate() {
            disk.append(records(&[text]), Ticket(i as u64));
            // One at a time, so that each is a batch of its own.
            assert_eq!(appended.blocking_recv(), Some(Ticket(i as u64)));
            starts.push(at);
            at += BATCH_HEAD + 4 + text.len();
        }
        (dir, starts)
    }

    fn change(dir: &TempDir, change: impl FnOnce(&mut Vec<u8>)) {
        let path = dir.0.join("root.log");
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
    }

    fn read(dir: &TempDir) -> Result<Vec<Bytes>, Error> {
        open_log(&dir.0.join("root.log")).map(|(_, records)| records)
    }

    #[test]
    fn the_file_has_these_bytes() {
        let (dir, _) = log_of(&["123456789"]);
        let bytes = fs::read(dir.0.join("root.log")).unwrap();
        let sum = Checksum::of(b"\0\0\0\x09123456789").0.to_be_bytes();
        assert_eq!(bytes, [&b"COPLOG1\n\0\0\0\x0d"[..], &sum, b"\0\0\0\x09123456789"].concat());
    }

    #[test]
    fn what_was_appended_is_there_and_more_can_follow() {
        let (dir, _) = log_of(&["one", "", "three"]);
        assert_eq!(read(&dir).unwrap(), records(&["one", "", "three"]));
        let (disk, _, mut appended) = Disk::open(&dir.0).unwrap();
        disk.append(records(&["four", "five"]), Ticket(9));
        assert_eq!(appended.blocking_recv(), Some(Ticket(9)));
        assert_eq!(read(&dir).unwrap(), records(&["one", "", "three", "four", "five"]));
    }

    #[test]
    fn a_rewrite_replaces_all_and_appends_go_on_behind_it() {
        let (dir, _) = log_of(&["one", "two"]);
        let (disk, _, mut appended) = Disk::open(&dir.0).unwrap();
        disk.append(records(&["three"]), Ticket(1));
        disk.rewrite(records(&["all"]), Ticket(2));
        disk.append(records(&["more"]), Ticket(3));
        for ticket in 1..=3 {
            assert_eq!(appended.blocking_recv(), Some(Ticket(ticket)), "tickets come in order");
        }
        assert_eq!(read(&dir).unwrap(), records(&["all", "more"]));
    }

    #[test]
    fn a_write_that_a_crash_cut_short_is_removed_wherever_it_was_cut() {
        let (dir, starts) = log_of(&["one", "two"]);
        let whole = fs::read(dir.0.join("root.log")).unwrap();
        for cut in starts[1]..whole.len() {
            change(&dir, |bytes| *bytes = whole[..cut].to_vec());
            assert_eq!(read(&dir).unwrap(), records(&["one"]), "cut at {cut}");
            assert_eq!(fs::metadata(dir.0.join("root.log")).unwrap().len(), starts[1] as u64);
        }
        change(&dir, |bytes| bytes.extend([0; 4096]));
        assert_eq!(read(&dir).unwrap(), records(&["one"]), "zeros are no records");
        change(&dir, |bytes| bytes.truncate(3));
        assert!(read(&dir).unwrap().is_empty(), "even the file's first bytes may be cut");
    }

    #[test]
    fn damage_before_valid_records_keeps_the_node_from_starting_and_names_the_place() {
        let (dir, starts) = log_of(&["one", "two", "three"]);
        change(&dir, |bytes| bytes[starts[1] + BATCH_HEAD + 5] ^= 0x10);
        let error = Disk::open(&dir.0).err().expect("damage was read as a log");
        assert!(matches!(error, Error::Damaged { offset, .. } if offset == starts[1] as u64), "{error}");
        assert!(error.to_string().contains("root.log"), "{error}");
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let dir = temp_dir("disk");
        fs::write(dir.0.join("root.log"), b"my diary\nand more").unwrap();
        assert!(matches!(read(&dir), Err(Error::NotOurs { .. })));
        assert_eq!(fs::read(dir.0.join("root.log")).unwrap(), b"my diary\nand more");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let whole = Bytes::from([MAGIC.as_slice(), &bytes].concat());
            let _ = read_batches(Path::new("x"), &whole, &mut Vec::new());
        }
    }
}
