//! Packs (`base::pack`), in `packs/` beside the segments: a file each, written by a thread of its own, under another name until it is whole
//! and forced. So what the log says to be in a pack is there after any crash, and a file that is there in part has no name that counts.
//!
//! ```text
//! g<group>-<number>.pack   "COPPAK1\n", bytes
//! ```
//! Reads have threads of their own: one waits neither for what is being written nor for room on a full disk. What is asked of one pack is
//! done in order, so a pack that is dropped was read before.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use base::{GroupId, PackSaid, PackWant};
use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

use super::{Room, Safe, give_up, snapshot};
use crate::limits::PACK_READERS;
use crate::{Error, private};

const MAGIC: &[u8; 8] = b"COPPAK1\n";
const DIR: &str = "packs";

/// By group and number, the bytes in each.
pub type There = BTreeMap<GroupId, BTreeMap<u64, u64>>;

/// Hands what is wanted to the threads.
pub struct Packs {
    writer: Sender<Job>,
    readers: Vec<Sender<Job>>,
}

type Job = (GroupId, PackWant);

impl Packs {
    /// Makes the folder if there is none, and says what lies in it. What a crash has left in part goes.
    pub fn open(
        log: &Path,
        done: &UnboundedSender<Safe>,
        room: &Room,
    ) -> Result<(Self, Vec<JoinHandle<()>>, There), Error> {
        let dir = log.join(DIR);
        let failed = || Error::io(dir.display().to_string());
        if !dir.exists() {
            private::make_dir(&dir).and_then(|()| File::open(log)?.sync_all()).map_err(failed())?;
        }
        let mut there = There::new();
        for entry in fs::read_dir(&dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".tmp") {
                fs::remove_file(entry.path()).map_err(failed())?;
            } else if let Some((group, pack)) = named(&name) {
                let len = entry.metadata().map_err(failed())?.len().saturating_sub(MAGIC.len() as u64);
                there.entry(group).or_default().insert(pack, len);
            }
        }
        let mut threads = Vec::new();
        let (writer, queue) = channel::<Job>();
        let (log, at, told, room) = (log.to_owned(), dir.clone(), done.clone(), room.clone());
        let run = move || {
            for (group, want) in queue {
                let PackWant::Write { pack, parts, hurry } = want else { continue };
                match write(&log, &path(&at, group, pack), &parts, hurry, &room) {
                    // The machine may be gone; what was written stays.
                    Ok(()) => drop(told.send(Safe::Pack(group, PackSaid::Written { pack }))),
                    Err(e) => give_up(&format!("{}: {e}", path(&at, group, pack).display())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("coppice-pack".into()).spawn(run);
        threads.push(thread.map_err(Error::io("thread of packs"))?);
        let mut readers = Vec::new();
        for n in 0..PACK_READERS {
            let (reader, queue) = channel::<Job>();
            let (dir, told) = (dir.clone(), done.clone());
            let run = move || queue.into_iter().for_each(|(group, want)| look(&dir, group, want, &told));
            let thread = std::thread::Builder::new().name(format!("coppice-read-{n}")).spawn(run);
            threads.push(thread.map_err(Error::io("thread of packs"))?);
            readers.push(reader);
        }
        Ok((Self { writer, readers }, threads, there))
    }

    pub fn push(&self, group: GroupId, want: PackWant) {
        let to = match &want {
            PackWant::Write { .. } => &self.writer,
            PackWant::Read { pack, .. } | PackWant::Drop { pack } => &self.readers[*pack as usize % PACK_READERS],
        };
        if to.send((group, want)).is_err() {
            give_up("a thread of packs has ended");
        }
    }
}

fn path(dir: &Path, group: GroupId, pack: u64) -> PathBuf {
    dir.join(format!("g{:016x}-{pack:016x}.pack", group.0))
}

fn named(name: &str) -> Option<(GroupId, u64)> {
    let (group, pack) = name.strip_prefix('g')?.strip_suffix(".pack")?.split_once('-')?;
    Some((GroupId(u64::from_str_radix(group, 16).ok()?), u64::from_str_radix(pack, 16).ok()?))
}

fn write(log: &Path, path: &Path, parts: &[Bytes], hurry: bool, room: &Room) -> io::Result<()> {
    let temp = path.with_extension("tmp");
    let what = path.display().to_string();
    let file = room.wait(&what, || private::create(&temp))?;
    let mut file = BufWriter::with_capacity(1 << 20, snapshot::Patient::new(log, file, what, hurry, room));
    file.write_all(MAGIC)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    // Not even for want of room is a force tried again: what it could not write would look written.
    file.into_inner().map_err(io::IntoInnerError::into_error)?.into_file().sync_all()?;
    fs::rename(&temp, path)?;
    File::open(path.parent().expect("it lies in a folder"))?.sync_all()
}

fn look(dir: &Path, group: GroupId, want: PackWant, told: &UnboundedSender<Safe>) {
    match want {
        PackWant::Read { number, pack, from, len } => {
            let path = path(dir, group, pack);
            let bytes = read(&path, from, len as usize);
            if let Err(error) = &bytes {
                tracing::warn!(file = %path.display(), from, len, %error, "cannot be read");
            }
            // The machine may be gone.
            let _ = told.send(Safe::Pack(group, PackSaid::Read { number, bytes: bytes.ok() }));
        }
        PackWant::Drop { pack } => match fs::remove_file(path(dir, group, pack)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(pack, %error, "a pack that is needed no more cannot be removed");
            }
            _ => (),
        },
        PackWant::Write { .. } => (),
    }
}

/// Has a pack of another log be one of this log, too. It is there already after a crash.
pub fn share(from: &Path, to: &Path, group: GroupId, pack: u64) -> io::Result<()> {
    let (from, to) = (path(&from.join(DIR), group, pack), path(&to.join(DIR), group, pack));
    match fs::hard_link(&from, &to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(to.parent().expect("it lies in a folder"))?.sync_all(),
    }
}

fn read(path: &Path, from: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    File::open(path)?.read_exact_at(&mut bytes, from + MAGIC.len() as u64)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::tls::temp_dir;

    const GROUP: GroupId = GroupId(7);

    struct Bench {
        packs: Option<Packs>,
        threads: Vec<JoinHandle<()>>,
        said: tokio::sync::mpsc::UnboundedReceiver<Safe>,
    }

    fn open(dir: &Path) -> (Bench, There) {
        let (done, said) = unbounded_channel();
        let room = Room { told: done.clone(), ends: Default::default(), waiting: Default::default() };
        let (packs, threads, there) = Packs::open(dir, &done, &room).unwrap();
        (Bench { packs: Some(packs), threads, said }, there)
    }

    impl Bench {
        fn want(&mut self, want: PackWant) -> PackSaid {
            self.packs.as_ref().unwrap().push(GROUP, want);
            match self.said.blocking_recv() {
                Some(Safe::Pack(GROUP, said)) => said,
                other => panic!("{other:?}"),
            }
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.packs = None;
            self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn a_pack_is_there_whole_with_its_name_until_it_is_dropped() {
        let dir = temp_dir("packs");
        let (mut bench, there) = open(&dir.0);
        assert!(there.is_empty());
        let parts = vec![Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
        assert_eq!(bench.want(PackWant::Write { pack: 3, parts, hurry: true }), PackSaid::Written { pack: 3 });
        let read = |pack, from, len| PackWant::Read { number: 9, pack, from, len };
        let some = PackSaid::Read { number: 9, bytes: Some(Bytes::from_static(b"world")) };
        assert_eq!(bench.want(read(3, 6, 5)), some);
        // Behind its end, and of one that never was.
        for (pack, from) in [(3, 7), (4, 0)] {
            assert_eq!(bench.want(read(pack, from, 5)), PackSaid::Read { number: 9, bytes: None });
        }
        drop(bench);
        let packs = dir.0.join(DIR);
        assert_eq!(fs::read(path(&packs, GROUP, 3)).unwrap(), b"COPPAK1\nhello world");
        assert_eq!(crate::private::open_to_others(&packs), Vec::<String>::new());
        // What a crash cut short has another name.
        fs::write(packs.join("g0000000000000007-0000000000000004.tmp"), b"COPPAK1\nhel").unwrap();
        let (mut bench, there) = open(&dir.0);
        assert_eq!(there, [(GROUP, [(3, 11)].into())].into());
        bench.packs.as_ref().unwrap().push(GROUP, PackWant::Drop { pack: 3 });
        assert_eq!(bench.want(read(3, 0, 1)), PackSaid::Read { number: 9, bytes: None });
        drop(bench);
        assert_eq!(fs::read_dir(&packs).unwrap().count(), 0);
    }
}
