//! The log and its snapshots on a real file system: what is kept, what a crash may cut, what damage is never taken for.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use proptest::prelude::*;

use super::segment::{BATCH_HEAD, HEAD, Head, RECORD_HEAD};
use super::*;
use crate::limits::SEGMENT_BYTES;
use crate::tls::{TempDir, temp_dir};

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

fn written(texts: &[&str]) -> Vec<Record> {
    records(texts).into_iter().map(Record::from).collect()
}

fn records(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

/// A log with one batch per text, of group A; gives the folder and where each batch begins.
fn log_of(texts: &[&str]) -> (TempDir, Vec<usize>) {
    let dir = temp_dir("disk");
    let Opened { disk, kept, mut safe, .. } = Disk::open(&dir.0).unwrap();
    assert!(kept.is_empty());
    let (mut starts, mut at) = (Vec::new(), HEAD);
    for (i, text) in texts.iter().enumerate() {
        disk.append(A, written(&[text]), Ticket(i as u64), true);
        // One at a time, so that each is a batch of its own.
        assert_eq!(safe.blocking_recv(), Some(Safe::Appended(A, Ticket(i as u64))));
        starts.push(at);
        at += BATCH_HEAD + RECORD_HEAD + text.len();
    }
    (dir, starts)
}

fn first_segment(dir: &TempDir) -> PathBuf {
    dir.0.join("log/0000000000000000.seg")
}

fn change(path: PathBuf, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn read(dir: &TempDir) -> Result<Kept, Error> {
    log::open(&dir.0.join("log")).map(|(_, kept, _)| kept)
}

fn of_a(dir: &TempDir) -> Vec<Bytes> {
    read(dir).unwrap().remove(&A).unwrap_or_default()
}

#[test]
fn a_segment_has_these_bytes() {
    let head = Head { first: 5, salt: 7 };
    let bytes = head.encode();
    let sum = base::checksum::Checksum::of(b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07").0.to_be_bytes();
    assert_eq!(bytes, [&b"COPSEG1\n\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07"[..], &sum].concat());
    assert_eq!(Head::decode(&bytes), Some(head));
    let mut out = Vec::new();
    segment::batch(7, 5, 5, &[(A, Bytes::from_static(b"123456789").into())], &mut out);
    let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x09123456789";
    let sum = base::checksum::Checksum::of_parts(&[&7u64.to_be_bytes(), body]).0.to_be_bytes();
    assert_eq!(out, [&b"COPB\0\0\0\x1d"[..], &sum, body].concat());
    // Behind one that is not forced.
    let mut out = Vec::new();
    segment::batch(7, 5, 3, &[(A, Bytes::from_static(b"1").into())], &mut out);
    let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\x011";
    let sum = base::checksum::Checksum::of_parts(&[&7u64.to_be_bytes(), body]).0.to_be_bytes();
    assert_eq!(out, [&b"COPL\0\0\0\x1d"[..], &sum, body].concat());
}

#[test]
fn what_was_appended_is_there_by_group_and_more_can_follow() {
    let (dir, _) = log_of(&["one", "", "three"]);
    assert_eq!(of_a(&dir), records(&["one", "", "three"]));
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    disk.append(B, written(&["four", "five"]), Ticket(9), true);
    assert_eq!(safe.blocking_recv(), Some(Safe::Appended(B, Ticket(9))));
    drop(disk);
    let kept = read(&dir).unwrap();
    assert_eq!(kept[&A], records(&["one", "", "three"]));
    assert_eq!(kept[&B], records(&["four", "five"]));
}

/// A batch is written and forced once: 100 groups that write at the same time do not wait for 100 forces.
#[test]
fn what_waits_becomes_one_batch_whatever_its_groups() {
    let dir = temp_dir("disk");
    let (log, ..) = log::open(&dir.0.join("log")).unwrap();
    let (jobs, queue) = channel();
    for n in 0..1_000 {
        let group = GroupId(n % 100);
        jobs.send(Job::Append { group, records: written(&["x"]), ticket: Ticket(n), force: true }).unwrap();
    }
    jobs.send(Job::End).unwrap();
    let (done, mut safe) = unbounded_channel();
    let room = Room { told: done.clone(), ends: Arc::default(), waiting: Arc::default() };
    let waiting = AtomicUsize::new(usize::MAX);
    log.run(&queue, channel().0, &waiting, &done, &room, &AtomicU64::default());
    assert_eq!(std::iter::from_fn(|| safe.try_recv().ok()).count(), 1_000, "each is told");
    let bytes = fs::read(first_segment(&dir)).unwrap();
    let is_batch = |word: &&[u8]| [&b"COPB"[..], b"COPL"].contains(word);
    assert_eq!(bytes.windows(4).filter(is_batch).count(), 2, "one batch, and the seal at its end");
    let kept = read(&dir).unwrap();
    assert_eq!((kept.len(), kept.values().map(Vec::len).sum::<usize>()), (100, 1_000));
}

#[test]
fn a_save_replaces_what_came_before_it_of_its_group_alone() {
    let (dir, _) = log_of(&["one", "two"]);
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    disk.append(B, written(&["b"]), Ticket(1), true);
    disk.save(A, Parts::of(records(&["all", "of it"])), Ticket(2));
    disk.append(A, written(&["more"]), Ticket(3), true);
    let mut came: Vec<_> = (0..3).map(|_| safe.blocking_recv().unwrap()).collect();
    came.sort_by_key(|safe| format!("{safe:?}"));
    assert_eq!(came, [Safe::Appended(A, Ticket(3)), Safe::Appended(B, Ticket(1)), Safe::Saved(A, Ticket(2))]);
    drop(disk);
    let kept = read(&dir).unwrap();
    assert_eq!((&kept[&A], &kept[&B]), (&records(&["all", "of it", "more"]), &records(&["b"])));
    assert!(has_snapshot(&dir.0, A) && !has_snapshot(&dir.0, B));
    let disk = Disk::open(&dir.0).unwrap().disk;
    disk.forget(A);
    drop(disk);
    wait_until(|| read(&dir).unwrap() == Kept::from([(B, records(&["b"]))]));
}

#[test]
fn segments_that_nobody_needs_are_used_again() {
    let dir = temp_dir("disk");
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    let large = Bytes::from(vec![7; SEGMENT_BYTES / 2]);
    for n in 0..7 {
        disk.append(A, vec![large.clone().into()], Ticket(n), true);
        safe.blocking_recv().unwrap();
    }
    let segments = || {
        let names = fs::read_dir(dir.0.join("log")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".seg")).count()
    };
    assert!(segments() >= 3);
    disk.save(A, Parts::of(records(&["all"])), Ticket(10));
    assert_eq!(safe.blocking_recv(), Some(Safe::Saved(A, Ticket(10))));
    wait_until(|| segments() == 1);
    // Seven halves: three segments are no longer needed, beside the one that was made before the first was.
    assert!(["spare", "spare-1", "spare-2"].iter().all(|name| dir.0.join("log").join(name).exists()));
    // What stands in a segment from an earlier use is not read as a part of this one.
    for n in 0..3 {
        disk.append(A, vec![large.clone().into()], Ticket(20 + n), true);
        safe.blocking_recv().unwrap();
    }
    drop(disk);
    let kept = of_a(&dir);
    assert_eq!((kept.len(), &kept[0]), (4, &Bytes::from_static(b"all")));
}

#[test]
fn a_group_that_seldom_writes_does_not_keep_what_others_wrote() {
    let dir = temp_dir("disk");
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    let mut append = |group, record: Bytes, n| {
        disk.append(group, vec![record.into()], Ticket(n), true);
        safe.blocking_recv().unwrap()
    };
    append(B, Bytes::from_static(b"early"), 1);
    let large = Bytes::from(vec![7; SEGMENT_BYTES / 2]);
    (2..9).for_each(|n| _ = append(A, large.clone(), n));
    append(B, Bytes::from_static(b"late"), 9);
    for n in 10..14 {
        disk.save(A, Parts::of(records(&["all"])), Ticket(n));
    }
    let size = || {
        let files = fs::read_dir(dir.0.join("log")).unwrap().map(|e| e.unwrap());
        let segments = files.filter(|e| e.file_name().to_string_lossy().ends_with(".seg"));
        segments.map(|e| e.metadata().map_or(0, |meta| meta.len())).sum::<u64>()
    };
    // The last one is as it is.
    wait_until(|| size() <= SEGMENT_BYTES as u64 * 3 / 2);
    drop(disk);
    let kept = read(&dir).unwrap();
    assert_eq!((&kept[&A], &kept[&B]), (&records(&["all"]), &records(&["early", "late"])));
    // And it goes on from there.
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    disk.append(B, written(&["later"]), Ticket(1), true);
    safe.blocking_recv().unwrap();
    drop(disk);
    assert_eq!(read(&dir).unwrap()[&B], records(&["early", "late", "later"]));
}

/// What a disk is sure to have of a folder: the names that it had when it was last forced, and of each file, by its inode,
/// the bytes that it had then.
struct Forced {
    dir: PathBuf,
    names: BTreeMap<String, fs::File>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

impl Forced {
    fn all_of(dir: PathBuf) -> Forced {
        let names = files(&dir);
        let bytes = names.values().map(|file| (inode(file), whole(file))).collect();
        Forced { dir, names, bytes }
    }

    fn force(&mut self, file: &fs::File) {
        if file.metadata().unwrap().is_dir() {
            self.names = files(&self.dir);
        } else {
            self.bytes.insert(inode(file), whole(file));
        }
    }

    /// The logs that a cut of the power may leave: what was not forced is there or is not, names and bytes each for themselves.
    /// The first has only what was forced.
    fn cuts(&self) -> Vec<TempDir> {
        let now = files(&self.dir);
        let cut = |names: &BTreeMap<String, fs::File>, only_forced| {
            let dir = temp_dir("cut");
            fs::create_dir(dir.0.join("log")).unwrap();
            for (name, file) in names {
                let forced = || self.bytes.get(&inode(file)).cloned().unwrap_or_default();
                let bytes = if only_forced { forced() } else { whole(file) };
                fs::write(dir.0.join("log").join(name), bytes).unwrap();
            }
            dir
        };
        vec![cut(&self.names, true), cut(&self.names, false), cut(&now, true), cut(&now, false)]
    }
}

fn files(dir: &Path) -> BTreeMap<String, fs::File> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::File::open(e.path()).unwrap())).collect()
}

fn inode(file: &fs::File) -> u64 {
    file.metadata().unwrap().ino()
}

fn whole(file: &fs::File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// The segment that was given back still has its name on the disk, and a client's bytes in it look like a batch to come.
#[test]
fn a_segment_is_made_of_an_old_one_with_nothing_damaged_or_lost_wherever_the_power_fails() {
    let dir = temp_dir("disk");
    let log = dir.0.join("log");
    fs::create_dir(&log).unwrap();
    let segment = |first: u64, group, record: Bytes| {
        let mut bytes = Head { first, salt: first + 7 }.encode();
        segment::batch(first + 7, first, first, &[(group, record.into())], &mut bytes);
        fs::write(log.join(format!("{first:016x}.seg")), bytes).unwrap();
    };
    segment(0, A, Bytes::from_static(b"COPB\0\0\0\x08sum.\0\0\0\0\0\0\0\x02"));
    segment(1, B, Bytes::from_static(b"kept"));
    let mut forced = Forced::all_of(log.clone());
    spare::keep(&log, &first_segment(&dir)).unwrap();
    let check = |forced: &Forced| {
        for cut in forced.cuts() {
            let names: Vec<_> = files(&cut.0.join("log")).into_keys().collect();
            let kept = read(&cut).unwrap_or_else(|error| panic!("{names:?}: {error}"));
            assert_eq!(kept[&B], records(&["kept"]), "{names:?}");
        }
    };
    let head = Head { first: 2, salt: 9 };
    let sync = |file: &fs::File| {
        check(&forced);
        forced.force(file);
        Ok(())
    };
    let (_, path) = log::make_segment(&log, head, sync).unwrap();
    check(&forced);
    // Whatever is forced in it from now on is there after a cut.
    let cut = &forced.cuts()[0];
    let bytes = fs::read(cut.0.join("log").join(path.file_name().unwrap())).unwrap();
    assert_eq!(Head::decode(&bytes), Some(head));
}

/// The old one still has its name on the disk until the folder is forced.
#[test]
fn a_segment_is_written_anew_with_nothing_lost_wherever_the_power_fails() {
    let dir = temp_dir("disk");
    let log = dir.0.join("log");
    fs::create_dir(&log).unwrap();
    let bytes = |salt, records: &[(GroupId, Record)]| {
        let mut bytes = Head { first: 0, salt }.encode();
        segment::batch(salt, 0, 0, records, &mut bytes);
        bytes
    };
    let kept = || (A, Bytes::from_static(b"kept").into());
    let (path, temp) = (first_segment(&dir), log.join("0000000000000000.tmp"));
    fs::write(&path, bytes(5, &[(A, Bytes::from_static(b"old").into()), kept()])).unwrap();
    let mut forced = Forced::all_of(log.clone());
    fs::write(&temp, bytes(6, &[(A, Record::default()), kept()])).unwrap();
    let check = |forced: &Forced| {
        for cut in forced.cuts() {
            let kept = of_a(&cut);
            assert!(kept == records(&["old", "kept"]) || kept == records(&["", "kept"]), "{kept:?}");
        }
    };
    let sync = |file: &fs::File| {
        check(&forced);
        forced.force(file);
        Ok(())
    };
    let old = clean::replace(&log, &temp, &path, &fs::File::open(&temp).unwrap(), sync).unwrap();
    check(&forced);
    assert_eq!(of_a(&forced.cuts()[0]), records(&["", "kept"]), "it is there after a cut");
    if let Some(old) = old {
        // What it becomes is written over.
        fs::write(old, "new").unwrap();
        check(&forced);
    }
}

/// To read and write 32 MiB takes a slow disk a quarter of a second.
#[test]
fn what_is_to_be_forced_does_not_wait_for_a_segment_that_is_written_anew() {
    let dir = temp_dir("disk");
    let folder = dir.0.join("log");
    let (log, ..) = log::open(&folder).unwrap();
    let ((jobs, queue), (works, work)) = (channel(), channel());
    let (done, mut safe) = unbounded_channel();
    let room = Room { told: done.clone(), ends: Arc::default(), waiting: Arc::default() };
    let waiting = AtomicUsize::new(usize::MAX);
    let thread = std::thread::spawn(move || log.run(&queue, works, &waiting, &done, &room, &AtomicU64::default()));
    let mut append = |group, bytes: usize| {
        let records = vec![Bytes::from(vec![7; bytes]).into()];
        jobs.send(Job::Append { group, records, ticket: Ticket(1), force: true }).unwrap();
        assert!(safe.blocking_recv().is_some());
    };
    append(B, 5);
    (0..3).for_each(|_| append(A, SEGMENT_BYTES / 2));
    let saved = |group, upto| jobs.send(Job::Saved { group, upto, ticket: None }).unwrap();
    // The first segment has the first record of B and two that A does not need.
    fs::write(snapshot::path(&folder, A, 4), "").unwrap();
    saved(A, 4);
    let first = first_segment(&dir);
    assert!(work.iter().any(|work| matches!(work, snapshot::Work::Clean { path, .. } if path == first)));
    append(A, 5);
    // Now nobody needs it; but whoever writes it anew would bring it back.
    saved(B, 2);
    append(A, 5);
    assert!(first.exists());
    jobs.send(Job::Cleaned { path: first.clone(), size: Some(99) }).unwrap();
    append(A, 5);
    assert!(!first.exists());
    jobs.send(Job::End).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_large_part_of_a_snapshot_is_forced_in_pieces() {
    let dir = temp_dir("disk");
    let room = Room { told: unbounded_channel().0, ends: Arc::default(), waiting: Arc::default() };
    let file = fs::File::create(dir.0.join("part")).unwrap();
    let mut file = snapshot::Patient::new(&dir.0, file, "part".into(), false, &room);
    let part = vec![7; 8 << 20];
    assert_eq!(io::Write::write(&mut file, &part).unwrap(), crate::limits::FORCED_BYTES);
}

#[test]
fn a_full_disk_gets_back_what_was_kept_in_reserve_one_by_one() {
    let dir = temp_dir("spare");
    for n in 0..4 {
        let old = dir.0.join(format!("{n}.seg"));
        fs::write(&old, "old").unwrap();
        spare::keep(&dir.0, &old).unwrap();
    }
    let left = || fs::read_dir(&dir.0).unwrap().count();
    assert_eq!(left(), 3, "the fourth is one too many");
    for n in (0..3).rev() {
        assert!(spare::give_back(&dir.0));
        assert_eq!(left(), n);
    }
    assert!(!spare::give_back(&dir.0), "there is nothing left, and the writer waits");
}

#[test]
fn a_write_that_a_crash_cut_short_is_removed_wherever_it_was_cut() {
    let (dir, starts) = log_of(&["one", "two"]);
    let end = starts[1] + BATCH_HEAD + RECORD_HEAD + "two".len();
    let mut whole = fs::read(first_segment(&dir)).unwrap();
    assert_eq!(whole.len(), end + BATCH_HEAD, "a seal stands at the end");
    // A power cut may take the seal, which was not forced.
    whole.truncate(end);
    for cut in starts[1]..whole.len() {
        change(first_segment(&dir), |bytes| *bytes = whole[..cut].to_vec());
        assert_eq!(of_a(&dir), records(&["one"]), "cut at {cut}");
    }
    change(first_segment(&dir), |bytes| bytes.extend([0; 4096]));
    assert_eq!(of_a(&dir), records(&["one"]), "zeros are no records");
    change(first_segment(&dir), |bytes| bytes.truncate(3));
    assert!(read(&dir).unwrap().is_empty(), "even the file's first bytes may be cut");
}

#[test]
fn damage_before_valid_records_keeps_the_node_from_starting_and_names_the_place() {
    let (dir, starts) = log_of(&["one", "two", "three"]);
    change(first_segment(&dir), |bytes| bytes[starts[1] + BATCH_HEAD + 13] ^= 0x10);
    let error = Disk::open(&dir.0).err().expect("damage was read as a log");
    assert!(matches!(error, Error::Damaged { offset, .. } if offset == starts[1] as u64), "{error}");
    let (dir, _) = log_of(&["one"]);
    change(first_segment(&dir), |bytes| bytes[10] ^= 1);
    assert!(matches!(read(&dir), Err(Error::Damaged { offset: 0, .. })), "a damaged head is not an empty segment");
}

#[test]
fn one_wrong_bit_anywhere_is_damage_or_harmless_and_never_a_shorter_log() {
    let (dir, starts) = log_of(&["one", "", "three"]);
    let whole = fs::read(first_segment(&dir)).unwrap();
    let seal = starts[2] + BATCH_HEAD + RECORD_HEAD + "three".len();
    for at in 0..whole.len() {
        for bit in 0..8 {
            change(first_segment(&dir), |bytes| bytes[at] ^= 1 << bit);
            match read(&dir) {
                Ok(kept) => assert!(at >= seal && kept[&A] == records(&["one", "", "three"]), "byte {at}: {kept:?}"),
                Err(error) => assert!(error.is_damage() && at < seal, "byte {at} bit {bit}: {error}"),
            }
            fs::write(first_segment(&dir), &whole).unwrap();
        }
    }
}

#[test]
fn the_end_of_a_log_whose_disk_failed_is_written_anew_and_that_is_said() {
    let (dir, _) = log_of(&["one", "two"]);
    fs::write(dir.0.join("log/failed"), "input/output error").unwrap();
    let inode = || fs::metadata(first_segment(&dir)).unwrap().ino();
    let before = inode();
    let opened = Disk::open(&dir.0).unwrap();
    assert_eq!(opened.kept[&A], records(&["one", "two"]));
    assert!(opened.remarks.iter().any(|text| text.contains("input/output error")), "{:?}", opened.remarks);
    assert_ne!(before, inode(), "the pages are others now");
    drop(opened);
    assert_eq!(Disk::open(&dir.0).unwrap().remarks, [] as [&str; 0], "once is enough");
}

#[test]
fn a_log_that_is_distrusted_is_not_opened() {
    let (dir, _) = log_of(&["one"]);
    fs::write(dir.0.join(DISTRUSTED), "it is older\n").unwrap();
    let error = Disk::open(&dir.0).err().unwrap();
    assert!(error.is_damage() && error.to_string().contains("it is older"), "{error}");
}

#[test]
fn what_waits_for_room_is_told_once_and_told_when_there_is() {
    let (told, mut safe) = unbounded_channel();
    let room = Room { told, ends: Arc::default(), waiting: Arc::default() };
    let mut full = 2;
    let act = || match full {
        0 => Ok(7),
        _ => {
            full -= 1;
            Err(io::ErrorKind::StorageFull.into())
        }
    };
    assert_eq!(room.wait("log", act).unwrap(), 7);
    assert!(matches!(safe.try_recv(), Ok(Safe::Trouble(Some(text))) if text.starts_with("log: ")));
    assert_eq!(safe.try_recv(), Ok(Safe::Trouble(None)));
    assert!(safe.try_recv().is_err());
    assert!(
        room.wait("log", || io::Result::<()>::Err(io::ErrorKind::Other.into())).is_err(),
        "only room is waited for"
    );
    room.ends.store(true, Ordering::Relaxed);
    assert!(room.wait("log", || io::Result::<()>::Err(io::ErrorKind::StorageFull.into())).is_err());
}

#[test]
fn a_snapshot_has_these_bytes() {
    let (dir, _) = log_of(&["one"]);
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    disk.save(A, Parts::of(records(&["123456789"])), Ticket(2));
    safe.blocking_recv().unwrap();
    let bytes = fs::read(dir.0.join("log/g0000000000000001-0000000000000001.snap")).unwrap();
    let count = base::checksum::Checksum::of(b"\0\0\0\0\0\0\0\x01").0.to_be_bytes();
    let golden: [&[u8]; 7] = [
        b"COPSNP1\n\0\0\0\x09",
        // The check value of CRC-32C.
        b"\xe3\x06\x92\x83",
        b"123456789",
        b"\xff\xff\xff\xff",
        &count,
        b"\0\0\0\0\0\0\0\x01",
        b"",
    ];
    assert_eq!(bytes, golden.concat());
}

#[test]
fn a_damaged_snapshot_is_never_an_empty_one() {
    let (dir, _) = log_of(&["one"]);
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    disk.save(A, Parts::of(records(&["all", "more"])), Ticket(2));
    safe.blocking_recv().unwrap();
    drop(disk);
    let path = snapshot::path(&dir.0.join("log"), A, 1);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        change(path.clone(), |bytes| bytes[at] ^= 4);
        assert!(read(&dir).is_err(), "byte {at} is wrong");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(read(&dir).is_err(), "cut at {at}");
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(of_a(&dir), records(&["all", "more"]));
    fs::remove_file(first_segment(&dir)).unwrap();
    assert!(read(&dir).is_err(), "a missing segment is not an empty log");
}

/// Appends without force, each when the one before it is written.
fn unforced(texts: &[&str], disk: &Disk, safe: &mut UnboundedReceiver<Safe>) {
    for (i, text) in texts.iter().enumerate() {
        disk.append(A, written(&[text]), Ticket(i as u64 + 1), false);
        assert_eq!(safe.blocking_recv(), Some(Safe::Appended(A, Ticket(i as u64 + 1))));
    }
}

/// The end of what is written in the segment, and whether that is a seal: all before it is forced.
fn end_of(dir: &TempDir) -> (usize, bool) {
    let bytes = Bytes::from(fs::read(first_segment(dir)).unwrap());
    let head = Head::decode(&bytes).unwrap();
    let end = segment::read(&bytes, head, |_, _, _| ()).unwrap();
    let mut seal = Vec::new();
    segment::seal(head.salt, end.next, &mut seal);
    (end.at, bytes[..end.at].ends_with(&seal))
}

#[test]
fn a_record_without_force_is_told_when_it_is_written_and_forced_soon_and_one_with_force_waits() {
    let dir = temp_dir("disk");
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    let begun = std::time::Instant::now();
    unforced(&["one", "two", "three"], &disk, &mut safe);
    let is_forced = end_of(&dir).1;
    let window = std::time::Duration::from_micros(base::limits::UNFORCED_MAX.as_micros());
    // On a machine that did nothing for so long the force may have come first.
    assert!(!is_forced || begun.elapsed() >= window, "it was told without a force");
    wait_until(|| end_of(&dir).1);
    assert!(begun.elapsed() >= window);
    wait_until(|| disk.unforced_ms_max() >= base::limits::UNFORCED_MAX.as_millis());
    drop(disk);
    // One that must be forced takes the others along, without the force that comes when it is time.
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    let begun = std::time::Instant::now();
    unforced(&["four"], &disk, &mut safe);
    disk.append(B, written(&["five"]), Ticket(5), true);
    assert_eq!(safe.blocking_recv(), Some(Safe::Appended(B, Ticket(5))));
    wait_until(|| end_of(&dir).1);
    assert!(disk.unforced_ms_max() == 0 || begun.elapsed() >= window, "it was forced only when it was time");
    // A snapshot stands behind what is forced only.
    unforced(&["six"], &disk, &mut safe);
    disk.save(B, Parts::of(records(&["all"])), Ticket(7));
    assert_eq!(safe.blocking_recv(), Some(Safe::Saved(B, Ticket(7))));
    drop(disk);
    assert_eq!(of_a(&dir), records(&["one", "two", "three", "four", "six"]));
}

#[test]
fn a_stream_of_records_without_force_is_forced_in_time_too() {
    let dir = temp_dir("disk");
    let Opened { disk, mut safe, .. } = Disk::open(&dir.0).unwrap();
    let begun = std::time::Instant::now();
    while disk.unforced_ms_max() == 0 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "it is never forced");
        unforced(&["x"], &disk, &mut safe);
    }
}

#[test]
fn a_power_cut_takes_unforced_batches_in_any_order_and_what_stands_behind_a_lost_one_never_comes_back() {
    let (dir, _) = log_of(&["forced"]);
    let mut whole = fs::read(first_segment(&dir)).unwrap();
    whole.truncate(whole.len() - BATCH_HEAD);
    let salt = Head::decode(&whole).unwrap().salt;
    // One window: all that was known to be forced at each is the record before them.
    let mut starts = Vec::new();
    for (first, text) in (1..).zip(["one", "two", "three"]) {
        starts.push(whole.len());
        segment::batch(salt, first, 1, &[(A, Bytes::from(text).into())], &mut whole);
    }
    let at = whole.len();
    for (lost, left) in [(0, &["forced"][..]), (1, &["forced", "one"]), (2, &["forced", "one", "two"])] {
        let end = starts.get(lost + 1).copied().unwrap_or(at);
        change(first_segment(&dir), |bytes| {
            *bytes = whole.clone();
            bytes[starts[lost]..end].fill(0);
        });
        let Opened { disk, kept, mut safe, .. } = Disk::open(&dir.0).unwrap();
        assert_eq!(kept[&A], records(left));
        // As long as the one that was lost: what stood behind it would follow.
        unforced(&[["one", "two", "three"][lost]], &disk, &mut safe);
        drop(disk);
        assert_eq!(of_a(&dir), records(&[left, &[["one", "two", "three"][lost]]].concat()));
    }
    // What is known to have been forced is not missing: a byte of it is wrong.
    change(first_segment(&dir), |bytes| {
        *bytes = whole.clone();
        bytes[starts[0] - 1] ^= 1;
    });
    assert!(read(&dir).unwrap_err().is_damage());
}

/// What stands behind the end in a segment that was used before is what clients wrote: here each eight bytes look like a
/// batch of half of it all. To read each of these would be to read two terabytes.
#[test]
fn bytes_of_clients_that_look_like_large_batches_do_not_hold_up_a_start_nor_hide_what_was_written() {
    let head = Head { first: 0, salt: 7 };
    let batch = |first, forced, out: &mut Vec<u8>| {
        segment::batch(head.salt, first, forced, &[(A, Bytes::from_static(b"x").into())], out);
    };
    let look_alikes = |len: u32| [&b"COPB"[..], &(len / 2).to_be_bytes()].concat().repeat(len as usize / 8);
    let mut written = head.encode();
    batch(0, 0, &mut written);
    let at = written.len();
    let read = |bytes| segment::read(&Bytes::from(bytes), head, |_, _, _| ());
    let begun = std::time::Instant::now();
    let end = segment::End { at, next: 1, orphans: false };
    assert_eq!(read([written.clone(), look_alikes(8 << 20)].concat()), Ok(end));
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "it took {took:?}");

    written.extend(look_alikes(64 << 10));
    let with = |first, forced| {
        let mut bytes = written.clone();
        batch(first, forced, &mut bytes);
        [bytes, look_alikes(64 << 10)].concat()
    };
    assert_eq!(read(with(3, 1)), Ok(segment::End { orphans: true, ..end }), "what stood before it was not forced");
    assert_eq!(read(with(3, 3)), Err(segment::Unreadable::Damaged { at }));
    // A head that is another version's, or that has a wrong byte?
    let other = |mut bytes: Vec<u8>| {
        bytes[6] = b'2';
        bytes[at - 1] ^= 1;
        Head::is_of_another_version(&bytes)
    };
    assert!(other(written.clone()) && !other(with(3, 3)));
}

#[test]
fn a_log_is_of_another_boot_until_it_is_said_to_be_whole() {
    let dir = temp_dir("disk");
    let opened = Disk::open(&dir.0).unwrap();
    assert!(opened.rebooted, "nobody has said so yet");
    drop(opened);
    let opened = Disk::open(&dir.0).unwrap();
    assert!(opened.rebooted);
    opened.disk.recovered();
    drop(opened);
    assert!(!Disk::open(&dir.0).unwrap().rebooted);
    fs::write(dir.0.join("log/boot"), "before the power failed").unwrap();
    assert!(Disk::open(&dir.0).unwrap().rebooted);
}

#[test]
fn a_folder_of_an_older_format_is_not_overwritten() {
    let dir = temp_dir("disk");
    fs::write(dir.0.join("root.log"), b"COPLOG1\nand more").unwrap();
    assert!(matches!(Disk::open(&dir.0), Err(Error::NotOurs { .. })));
}

fn wait_until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "not so in time");
        std::thread::yield_now();
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let head = Head { first: 0, salt: 0 };
        let whole = Bytes::from([head.encode(), bytes].concat());
        let _ = segment::read(&whole, head, |_, _, _| ());
        let _ = segment::looks_written(&whole, 0);
        let _ = segment::is_torn(&whole[HEAD..], 0);
    }
}
