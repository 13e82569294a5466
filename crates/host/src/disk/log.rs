//! The log: its segments, which of them are still needed, and the thread that writes.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use base::limits::UNFORCED_MAX;
use base::{GroupId, Parts, Record};
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc::UnboundedSender;

use super::segment::{self, Head, Unreadable};
use super::snapshot::{self, Work};
use super::{Job, Kept, Room, Safe, give_up, spare};
use crate::limits::{BATCH_BYTES_MAX, CLEAN_PART, SEAL_AFTER, SEGMENT_BYTES};
use crate::{Error, private};

pub struct Log {
    dir: PathBuf,
    file: File,
    salt: u64,
    /// Where the next batch goes.
    at: usize,
    /// Number of the next record.
    next: u64,
    /// Records before this number are forced.
    forced: u64,
    /// Since when something is written and not forced.
    unforced: Option<Instant>,
    /// Nothing says yet that the last batch was forced.
    unsealed: bool,
    /// Oldest first; the last is being written.
    segments: VecDeque<Segment>,
    /// Records of a group before this number are not needed.
    floors: BTreeMap<GroupId, u64>,
    /// A spare segment was asked for since the last one was begun.
    asked_spare: bool,
    /// The snapshot thread writes this one anew without what nobody needs: it stays until that is done.
    cleaning: Option<PathBuf>,
    buffer: Vec<u8>,
}

struct Segment {
    path: PathBuf,
    /// Of each group that has records here, the number of the last, and the bytes of all.
    of: BTreeMap<GroupId, (u64, u64)>,
    /// Of the file.
    size: u64,
}

impl Segment {
    fn add(&mut self, group: GroupId, number: u64, len: usize) {
        let of = self.of.entry(group).or_default();
        *of = (number, of.1 + (len + segment::RECORD_HEAD) as u64);
    }

    /// Bytes of groups that need something of it.
    fn needed(&self, floors: &BTreeMap<GroupId, u64>) -> u64 {
        let is_needed = |group: &GroupId, last: u64| floors.get(group).is_none_or(|floor| last >= *floor);
        self.of.iter().filter(|(group, (last, _))| is_needed(group, *last)).map(|(_, (_, bytes))| bytes).sum()
    }
}

/// Left by a life that ended because this disk failed it, with the reason.
const FAILED: &str = "failed";

/// Reads what is there, and makes ready to append. Also says what it put right.
pub fn open(dir: &Path) -> Result<(Log, Kept, Vec<String>), Error> {
    let failed = || Error::io(dir.display().to_string());
    private::make_dir(dir).map_err(failed())?;
    let mut remarks = Vec::new();
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        names.push(entry.map_err(failed())?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    for name in names.iter().filter(|name| name.ends_with(".tmp")) {
        fs::remove_file(dir.join(name)).map_err(failed())?;
    }
    if let Ok(why) = fs::read_to_string(dir.join(FAILED)) {
        if let Some(last) = names.iter().rfind(|name| name.ends_with(".seg")) {
            write_anew(dir, last).map_err(failed())?;
        }
        // What was not forced may not be what the kernel shows.
        super::boot::forget(dir).map_err(failed())?;
        fs::remove_file(dir.join(FAILED)).map_err(failed())?;
        remarks
            .push(format!("the disk failed this node in its last life ({why}); the end of its log was written anew"));
    }
    let (mut kept, mut floors) = (Kept::new(), BTreeMap::new());
    let mut newest: BTreeMap<GroupId, u64> = BTreeMap::new();
    for (group, upto) in names.iter().filter_map(|name| snapshot::named(name)) {
        // Sorted by group, then number: the last one counts, the others were left by a crash.
        if let Some(old) = newest.insert(group, upto) {
            fs::remove_file(snapshot::path(dir, group, old)).map_err(failed())?;
        }
    }
    for (group, upto) in newest {
        floors.insert(group, upto);
        kept.insert(group, snapshot::read(&snapshot::path(dir, group, upto))?);
    }
    let mut log = Reading {
        dir,
        floors,
        kept,
        segments: VecDeque::new(),
        next: None,
        end: (0, Head { first: 0, salt: 0 }),
        torn: false,
        remarks,
    };
    let paths: Vec<PathBuf> = names.iter().filter(|name| name.ends_with(".seg")).map(|name| dir.join(name)).collect();
    for (n, path) in paths.iter().enumerate() {
        log.segment(path, n + 1 == paths.len())?;
    }
    log.finish()
}

struct Reading<'a> {
    dir: &'a Path,
    floors: BTreeMap<GroupId, u64>,
    kept: Kept,
    segments: VecDeque<Segment>,
    /// The number that the next segment begins with.
    next: Option<u64>,
    end: (usize, Head),
    /// Something that is no batch stands at the end.
    torn: bool,
    remarks: Vec<String>,
}

/// After a failed force the kernel shows what it could not write as if it were written. Once it is written again, a force
/// tells the truth.
fn write_anew(dir: &Path, name: &str) -> io::Result<()> {
    let temp = dir.join("anew.tmp");
    fs::copy(dir.join(name), &temp)?;
    File::open(&temp)?.sync_all()?;
    fs::rename(&temp, dir.join(name))?;
    File::open(dir)?.sync_all()
}

impl Reading<'_> {
    fn segment(&mut self, path: &Path, is_last: bool) -> Result<(), Error> {
        let bytes = Bytes::from(fs::read(path).map_err(Error::io(path.display().to_string()))?);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let Ok(first) = u64::from_str_radix(&name, 16) else {
            return Err(Error::NotOurs { file: path.into(), what: "its name is not the number of a record".into() });
        };
        let head = match Head::decode(&bytes) {
            Some(head) if head.first == first => head,
            // Earlier versions gave it its name before its first bytes: what it was before, or nothing, stands there yet.
            _ if is_last && !segment::looks_written(&bytes, first) => {
                tracing::warn!(file = %path.display(), "a crash cut the making of this segment short; it is removed");
                return fs::remove_file(path).map_err(Error::io(path.display().to_string()));
            }
            _ if Head::is_of_another_version(&bytes) => {
                return Err(Error::NotOurs { file: path.into(), what: "it is of another version of Coppice".into() });
            }
            _ => return Err(Error::Damaged { file: path.into(), offset: 0 }),
        };
        if let Some(next) = self.next.filter(|next| *next != first) {
            let what = format!("it begins with record {first}, the one before it ends at {next}");
            return Err(Error::Lost { file: path.into(), what });
        }
        let mut segment = Segment { path: path.into(), of: BTreeMap::new(), size: bytes.len() as u64 };
        let read = segment::read(&bytes, head, |number, group, record| {
            segment.add(group, number, record.len());
            if self.floors.get(&group).is_none_or(|floor| number >= *floor) {
                self.kept.entry(group).or_default().push(record);
            }
        });
        let end = read.map_err(|why| match why {
            Unreadable::Damaged { at } => Error::Damaged { file: path.into(), offset: at as u64 },
            Unreadable::Unknown { at } => {
                let what = format!("batch at byte {at} is written in a way this version does not know");
                Error::NotOurs { file: path.into(), what }
            }
        })?;
        self.segments.push_back(segment);
        // A file of zeros, or of what an older use left, is as it was made.
        self.torn = end.orphans || segment::is_torn(&bytes[end.at..], end.next);
        (self.next, self.end) = (Some(end.next), (end.at, head));
        Ok(())
    }

    fn finish(mut self) -> Result<(Log, Kept, Vec<String>), Error> {
        let failed = || Error::io(self.dir.display().to_string());
        let floor = self.floors.values().copied().max().unwrap_or(0);
        let next = self.next.unwrap_or(0);
        if floor > next {
            // A snapshot is begun only when all before it is forced.
            let what = format!("a snapshot stands at record {floor}, the log ends at {next}");
            return Err(Error::Lost { file: self.dir.into(), what });
        }
        let mut log = Log {
            dir: self.dir.into(),
            // Replaced at once if there is no segment.
            file: File::open(self.dir).map_err(failed())?,
            salt: self.end.1.salt,
            at: self.end.0,
            next,
            forced: next,
            unforced: None,
            unsealed: false,
            segments: self.segments,
            floors: self.floors,
            asked_spare: false,
            cleaning: None,
            buffer: Vec::new(),
        };
        match log.segments.back() {
            Some(segment) => {
                log.file = OpenOptions::new().read(true).write(true).open(&segment.path).map_err(failed())?;
                let left = log.file.metadata().map_err(failed())?.len() - log.at as u64;
                if self.torn {
                    let file = segment.path.display();
                    self.remarks.push(format!(
                        "{file}: the last write was cut short by a crash; {left} bytes at {} are removed",
                        log.at
                    ));
                    log.file.set_len(log.at as u64).map_err(failed())?;
                }
                // A process that was killed may have written what was never forced; it is believed from now on.
                log.file.sync_all().map_err(failed())?;
            }
            None => log.begin_segment().map_err(failed())?,
        }
        log.retire().map_err(failed())?;
        let kept = self.kept.into_iter().filter(|(_, records)| !records.is_empty()).collect();
        Ok((log, kept, self.remarks))
    }
}

impl Log {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn run(
        mut self,
        queue: &Receiver<Job>,
        snapshots: Sender<Work>,
        waiting: &AtomicUsize,
        done: &UnboundedSender<Safe>,
        room: &Room,
        unforced_ms_max: &AtomicU64,
    ) {
        let mut held = None;
        while let Some(job) = held.take().or_else(|| self.wait(queue, unforced_ms_max)) {
            match job {
                Job::End => break,
                Job::Append { .. } => {
                    let (mut bytes, mut force) = (0, false);
                    let (mut batch, mut safe) = (Vec::new(), Vec::new());
                    let mut next = Some(job);
                    // Everything that waits goes with it, up to the next job of another kind.
                    while let Some(Job::Append { group, records, ticket, force: forces }) = next.take_if(is_append) {
                        force |= forces;
                        bytes += records.iter().map(|record| record.len() + segment::RECORD_HEAD).sum::<usize>();
                        batch.extend(records.into_iter().map(|record| (group, record)));
                        safe.push(Safe::Appended(group, ticket));
                        next = if bytes < BATCH_BYTES_MAX { queue.try_recv().ok() } else { None };
                    }
                    held = next;
                    let dir = self.dir.display().to_string();
                    room.wait(&dir, || self.append(&batch, force)).unwrap_or_else(|e| self.fail(&e));
                    waiting.fetch_sub(bytes, Ordering::Relaxed);
                    self.unsealed = self.unforced.is_none();
                    // The machine may be gone; what was written stays.
                    safe.into_iter().for_each(|safe| _ = done.send(safe));
                    if self.at > SEGMENT_BYTES / 4 && !self.asked_spare {
                        self.asked_spare = true;
                        // One that is cleaned becomes a spare.
                        self.clean_one(&snapshots);
                        let _ = snapshots.send(Work::Spare);
                    }
                }
                Job::Save(group, parts, ticket) => {
                    self.force_now();
                    let work = Work::Save { group, parts, upto: self.next, ticket: Some(ticket) };
                    let _ = snapshots.send(work);
                }
                Job::Forget(group) => {
                    self.force_now();
                    let nothing = Parts::of(Vec::new());
                    let _ = snapshots.send(Work::Save { group, parts: nothing, upto: self.next, ticket: None });
                }
                Job::Saved { group, upto, ticket } => {
                    self.saved(group, upto).unwrap_or_else(|e| self.fail(&e));
                    self.clean_one(&snapshots);
                    if let Some(ticket) = ticket {
                        let _ = done.send(Safe::Saved(group, ticket));
                    }
                }
                Job::Cleaned { path, size } => {
                    self.cleaned(&path, size).unwrap_or_else(|e| self.fail(&e));
                    if size.is_some_and(|size| size < CLEANED_FROM) {
                        self.clean_one(&snapshots);
                    }
                }
                Job::Recovered => super::boot::remember(&self.dir),
            }
        }
        if self.unforced.is_some() || self.unsealed {
            self.force_now();
            self.seal();
        }
    }

    /// The next job. Meanwhile what is written is forced when it is time, also if there is always a next job, and sealed when nothing
    /// comes that would stand behind it.
    fn wait(&mut self, queue: &Receiver<Job>, unforced_ms_max: &AtomicU64) -> Option<Job> {
        loop {
            let left = match self.unforced {
                Some(since) => Duration::from_micros(UNFORCED_MAX.as_micros()).checked_sub(since.elapsed()),
                None if self.unsealed => Some(SEAL_AFTER),
                None => return queue.recv().ok(),
            };
            match left.map_or(Err(RecvTimeoutError::Timeout), |left| queue.recv_timeout(left)) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(since) = self.unforced {
                        self.force_now();
                        let took = since.elapsed().as_millis() as u64;
                        unforced_ms_max.fetch_max(took, Ordering::Relaxed);
                    }
                    self.seal();
                }
            }
        }
    }

    fn force_now(&mut self) {
        self.force().unwrap_or_else(|e| self.fail(&e));
    }

    fn fail(&self, error: &io::Error) -> ! {
        // If not even that can be written, the next start fails as this life did.
        let _ = private::create(&self.dir.join(FAILED)).and_then(|mut f| f.write_all(error.to_string().as_bytes()));
        give_up(&format!("{}: {error}", self.dir.display()))
    }

    /// Writes a batch. If it fails, nothing has been appended, and it may be tried again.
    fn append(&mut self, records: &[(GroupId, Record)], force: bool) -> io::Result<()> {
        if records.is_empty() {
            return if force { self.sync().map(|()| self.is_forced()) } else { Ok(()) };
        }
        if self.at >= SEGMENT_BYTES {
            self.force()?;
            self.begin_segment()?;
        }
        self.buffer.clear();
        segment::batch(self.salt, self.next, self.forced, records, &mut self.buffer);
        if let Err(error) = self.file.write_all_at(&self.buffer, self.at as u64) {
            // Room may be long in coming.
            self.force()?;
            return Err(error);
        }
        if force {
            self.sync()?;
        }
        self.at += self.buffer.len();
        // One burst should not keep its memory.
        if self.buffer.capacity() > 4 << 20 {
            self.buffer = Vec::new();
        }
        let segment = self.segments.back_mut().expect("one is always being written");
        for (group, record) in records {
            segment.add(*group, self.next, record.len());
            self.next += 1;
        }
        segment.size = self.at as u64;
        if force {
            self.is_forced();
        } else {
            self.unforced.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Forces what is written, if something is not.
    fn force(&mut self) -> io::Result<()> {
        if self.unforced.is_some() {
            self.sync()?;
            self.is_forced();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // What an earlier batch of these lost would look written when only the last one is written again: whatever was
        // wrong, it is not a want of room that can be waited for.
        let final_if_earlier = |e| if self.unforced.is_some() { io::Error::other(e) } else { e };
        self.file.sync_data().map_err(final_if_earlier)
    }

    fn is_forced(&mut self) {
        (self.forced, self.unforced) = (self.next, None);
    }

    /// Says behind the last batch that it was forced. Without force: the next force takes it along.
    fn seal(&mut self) {
        self.unsealed = false;
        self.buffer.clear();
        segment::seal(self.salt, self.next, &mut self.buffer);
        // Nothing rests on it; a disk that cannot write tells so at the next batch.
        let _ = self.file.write_all_at(&self.buffer, self.at as u64);
    }

    /// The last segment was forced with its last batch.
    fn begin_segment(&mut self) -> io::Result<()> {
        let head = Head { first: self.next, salt: fresh_salt()? };
        let (file, path) = make_segment(&self.dir, head, File::sync_all)?;
        (self.file, self.salt) = (file, head.salt);
        self.asked_spare = false;
        self.at = segment::HEAD;
        self.segments.push_back(Segment { path, of: BTreeMap::new(), size: 0 });
        Ok(())
    }

    fn saved(&mut self, group: GroupId, upto: u64) -> io::Result<()> {
        if let Some(old) = self.floors.insert(group, upto).filter(|old| *old != upto) {
            fs::remove_file(snapshot::path(&self.dir, group, old))?;
        }
        self.retire()
    }

    /// Lets go of segments that hold nothing needed.
    fn retire(&mut self) -> io::Result<()> {
        while self.segments.len() > 1 {
            let oldest = self.segments.front().expect("there are two");
            if oldest.needed(&self.floors) > 0 || self.cleaning.as_ref() == Some(&oldest.path) {
                break;
            }
            let oldest = self.segments.pop_front().expect("there are two");
            if oldest.size < SEGMENT_BYTES as u64 / 2 {
                // Nothing is gained by writing over so little.
                fs::remove_file(&oldest.path)?;
                continue;
            }
            spare::keep(&self.dir, &oldest.path)?;
        }
        Ok(())
    }

    /// Has the snapshot thread take out of an old segment what nobody needs, if that is nearly all: a group that seldom writes has no
    /// snapshot for long, and would keep all segments behind its last record. Here everything that is to be forced would wait for it.
    fn clean_one(&mut self, snapshots: &Sender<Work>) {
        let old = self.segments.len().saturating_sub(1);
        let floors = &self.floors;
        let is_worth_it =
            |segment: &&Segment| segment.size >= CLEANED_FROM && segment.needed(floors) <= segment.size / CLEAN_PART;
        if self.cleaning.is_none()
            && let Some(segment) = self.segments.iter().take(old).find(is_worth_it)
        {
            self.cleaning = Some(segment.path.clone());
            let _ = snapshots.send(Work::Clean { path: segment.path.clone(), floors: floors.clone() });
        }
    }

    /// It has this size now; none: there was no room to write it anew, it is tried again another time.
    fn cleaned(&mut self, path: &Path, size: Option<u64>) -> io::Result<()> {
        self.cleaning = None;
        if let (Some(segment), Some(size)) = (self.segments.iter_mut().find(|segment| segment.path == path), size) {
            segment.size = size;
        }
        self.retire()
    }
}

/// A smaller segment is not worth it.
const CLEANED_FROM: u64 = SEGMENT_BYTES as u64 / 4;

pub fn fresh_salt() -> io::Result<u64> {
    let mut salt = [0; 8];
    SystemRandom::new().fill(&mut salt).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(u64::from_be_bytes(salt))
}

/// Makes the file of the next segment, in steps that leave a log that can be read wherever the power fails.
pub fn make_segment(
    dir: &Path,
    head: Head,
    mut sync: impl FnMut(&File) -> io::Result<()>,
) -> io::Result<(File, PathBuf)> {
    let path = dir.join(format!("{:016x}.seg", head.first));
    let temp = path.with_extension("tmp");
    spare::take(dir, &temp);
    let file = private::options().create(true).truncate(false).read(true).write(true).open(&temp)?;
    let names = File::open(dir)?;
    // Until then a spare may have the name on the disk that it had as a segment, and would be one with a wrong head.
    sync(&names)?;
    file.write_all_at(&head.encode(), 0)?;
    // Only with its head does it get its name: what an older use left, a client's bytes too, is not asked what it is.
    sync(&file)?;
    fs::rename(&temp, &path)?;
    sync(&names)?;
    Ok((file, path))
}

fn is_append(job: &mut Job) -> bool {
    matches!(job, Job::Append { .. })
}
