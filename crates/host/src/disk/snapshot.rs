//! Snapshots of groups: a file each, written by a thread of its own, under another name until it is whole and forced.
//!
//! ```text
//! file    "COPSNP1\n", records, end
//! record  u32 length, u32 CRC-32C, bytes
//! end     u32 of ones, u32 CRC-32C, u64 how many records there were                      (all big-endian)
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use base::checksum::Checksum;
use base::{GroupId, Parts, Ticket};
use bytes::{Buf, Bytes};

use super::{Job, Room, clean, give_up, is_full, spare};
use crate::limits::{FORCED_BYTES, REST_MAX};
use crate::{Error, private};

const MAGIC: &[u8; 8] = b"COPSNP1\n";
const END: u32 = u32::MAX;

/// Work for the snapshot thread.
pub enum Work {
    /// `ticket`: none if nobody waits for it.
    Save { group: GroupId, parts: Parts, upto: u64, ticket: Option<Ticket> },
    /// Have a spare segment ready.
    Spare,
    /// Take out of a segment what nobody needs: what is before these numbers.
    Clean { path: PathBuf, floors: BTreeMap<GroupId, u64> },
}

/// Starts the thread. It ends when the sender is dropped.
pub fn start(dir: PathBuf, done: Sender<Job>, room: Room) -> Result<(Sender<Work>, JoinHandle<()>), Error> {
    let (work, queue) = channel();
    let run = move || {
        for work in queue {
            let result = match work {
                Work::Save { group, parts, upto, ticket } => write(&dir, group, upto, parts, &room).map(|()| {
                    // The log's thread may have ended; what was written stays.
                    let _ = done.send(Job::Saved { group, upto, ticket });
                }),
                // Without one the log makes its next segment as it goes.
                Work::Spare => match spare::make(&dir, &room.ends) {
                    Err(e) if is_full(&e) => {
                        spare::give_back(&dir);
                        Ok(())
                    }
                    result => result,
                },
                Work::Clean { path, floors } => {
                    let size = match clean::clean(&dir, &path, &floors, &room.ends) {
                        Err(e) if is_full(&e) => {
                            let _ = fs::remove_file(path.with_extension("tmp"));
                            Ok(None)
                        }
                        result => result.map(Some),
                    };
                    size.map(|size| _ = done.send(Job::Cleaned { path, size }))
                }
            };
            if let Err(e) = result {
                give_up(&format!("{}: {e}", dir.display()));
            }
        }
    };
    let thread = std::thread::Builder::new().name("coppice-save".into()).spawn(run);
    Ok((work, thread.map_err(Error::io("snapshot thread"))?))
}

pub fn path(dir: &Path, group: GroupId, upto: u64) -> PathBuf {
    dir.join(format!("g{:016x}-{upto:016x}.snap", group.0))
}

/// The group and number that a file's name says.
pub fn named(name: &str) -> Option<(GroupId, u64)> {
    let (group, upto) = name.strip_prefix('g')?.strip_suffix(".snap")?.split_once('-')?;
    Some((GroupId(u64::from_str_radix(group, 16).ok()?), u64::from_str_radix(upto, 16).ok()?))
}

/// A file that waits for room on its disk, once what is kept in reserve is gone, and leaves the disk to the log half of the time, unless
/// it is in a hurry: forced all at once at its end, it would be before everything that the log has to force meanwhile.
pub struct Patient<'a> {
    dir: &'a Path,
    file: File,
    unforced: usize,
    what: String,
    hurry: bool,
    room: &'a Room,
}

impl<'a> Patient<'a> {
    pub fn new(dir: &'a Path, file: File, what: String, hurry: bool, room: &'a Room) -> Self {
        Self { dir, file, unforced: 0, what, hurry, room }
    }

    pub fn into_file(self) -> File {
        self.file
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A large part, too, is forced in pieces.
        let bytes = &bytes[..bytes.len().min(FORCED_BYTES)];
        let written = self.room.wait(&self.what, || {
            loop {
                match self.file.write(bytes) {
                    Err(e) if is_full(&e) && spare::give_back(self.dir) => (),
                    result => return result,
                }
            }
        })?;
        self.unforced += written;
        if self.unforced >= FORCED_BYTES {
            if self.hurry {
                self.file.sync_data()?;
            } else {
                pace(&self.file, &self.room.ends)?;
            }
            self.unforced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Forces what is written, then rests for as long as that took, unless the node ends.
pub fn pace(file: &File, ends: &AtomicBool) -> io::Result<()> {
    let begun = Instant::now();
    file.sync_data()?;
    if !ends.load(Ordering::Relaxed) {
        std::thread::sleep(begun.elapsed().min(REST_MAX));
    }
    Ok(())
}

fn write(dir: &Path, group: GroupId, upto: u64, parts: Parts, room: &Room) -> io::Result<()> {
    let path = path(dir, group, upto);
    let temp = path.with_extension("tmp");
    let what = path.display().to_string();
    let file = room.wait(&what, || private::create(&temp))?;
    let mut file = BufWriter::with_capacity(1 << 20, Patient::new(dir, file, what, false, room));
    file.write_all(MAGIC)?;
    let mut count = 0u64;
    for record in parts.0 {
        let len = u32::try_from(record.len()).expect("a part is far below 4 GiB");
        file.write_all(&len.to_be_bytes())?;
        file.write_all(&Checksum::of(&record).0.to_be_bytes())?;
        file.write_all(&record)?;
        count += 1;
    }
    file.write_all(&END.to_be_bytes())?;
    file.write_all(&Checksum::of(&count.to_be_bytes()).0.to_be_bytes())?;
    file.write_all(&count.to_be_bytes())?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?.into_file();
    // Not even for want of room is a force tried again: what it could not write would look written.
    file.sync_all()?;
    fs::rename(&temp, &path)?;
    File::open(dir)?.sync_all()
}

pub fn read(path: &Path) -> Result<Vec<Bytes>, Error> {
    let mut bytes = Bytes::from(fs::read(path).map_err(Error::io(path.display().to_string()))?);
    let whole = bytes.len();
    // It had its name only when it was whole and forced: whatever is wrong with it is damage.
    let damaged = |rest: &Bytes| Error::Damaged { file: path.into(), offset: (whole - rest.len()) as u64 };
    if bytes.len() < MAGIC.len() {
        return Err(damaged(&bytes));
    }
    let is_ours = bytes.starts_with(MAGIC);
    bytes.advance(MAGIC.len());
    if !is_ours {
        // If all that follows is as we write it, then a byte is wrong; else it is of somebody else.
        return Err(match records(bytes.clone()) {
            Ok(_) => Error::Damaged { file: path.into(), offset: 0 },
            Err(_) => {
                Error::NotOurs { file: path.into(), what: "this is no snapshot of this version of Coppice".into() }
            }
        });
    }
    records(bytes).map_err(|rest| damaged(&rest))
}

/// Err: what is left from where it is wrong.
fn records(mut bytes: Bytes) -> Result<Vec<Bytes>, Bytes> {
    let mut records = Vec::new();
    loop {
        if bytes.len() < 8 {
            return Err(bytes);
        }
        let at = bytes.clone();
        let (len, sum) = (bytes.get_u32(), Checksum(bytes.get_u32()));
        let size = if len == END { 8 } else { len as usize };
        if size > bytes.len() {
            return Err(at);
        }
        let body = bytes.split_to(size);
        if !sum.matches(&body) {
            return Err(at);
        }
        if len == END {
            let count = u64::from_be_bytes(body[..].try_into().expect("eight bytes"));
            return if count == records.len() as u64 && bytes.is_empty() { Ok(records) } else { Err(at) };
        }
        records.push(body);
    }
}
