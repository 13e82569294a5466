//! The log and its snapshots on a real file system: what is kept, what a crash may cut, what damage is never taken for.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::segment::{BATCH_HEAD, HEAD, Head, RECORD_HEAD};
use super::*;
use crate::limits::SEGMENT_BYTES;
use crate::tls::{TempDir, temp_dir};

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

fn records(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

/// A log with one batch per text, of group A; gives the folder and where each batch begins.
fn log_of(texts: &[&str]) -> (TempDir, Vec<usize>) {
    let dir = temp_dir("disk");
    let (disk, kept, mut safe) = Disk::open(&dir.0).unwrap();
    assert!(kept.is_empty());
    let (mut starts, mut at) = (Vec::new(), HEAD);
    for (i, text) in texts.iter().enumerate() {
        disk.append(A, records(&[text]), Ticket(i as u64));
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
    log::open(&dir.0.join("log")).map(|(_, kept)| kept)
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
    segment::batch(7, 5, &[(A, Bytes::from_static(b"123456789"))], &mut out);
    let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x09123456789";
    let sum = base::checksum::Checksum::of_parts(&[&7u64.to_be_bytes(), body]).0.to_be_bytes();
    assert_eq!(out, [&b"COPB\0\0\0\x1d"[..], &sum, body].concat());
}

#[test]
fn what_was_appended_is_there_by_group_and_more_can_follow() {
    let (dir, _) = log_of(&["one", "", "three"]);
    assert_eq!(of_a(&dir), records(&["one", "", "three"]));
    let (disk, _, mut safe) = Disk::open(&dir.0).unwrap();
    disk.append(B, records(&["four", "five"]), Ticket(9));
    assert_eq!(safe.blocking_recv(), Some(Safe::Appended(B, Ticket(9))));
    drop(disk);
    let kept = read(&dir).unwrap();
    assert_eq!(kept[&A], records(&["one", "", "three"]));
    assert_eq!(kept[&B], records(&["four", "five"]));
}

#[test]
fn a_save_replaces_what_came_before_it_of_its_group_alone() {
    let (dir, _) = log_of(&["one", "two"]);
    let (disk, _, mut safe) = Disk::open(&dir.0).unwrap();
    disk.append(B, records(&["b"]), Ticket(1));
    disk.save(A, Parts::of(records(&["all", "of it"])), Ticket(2));
    disk.append(A, records(&["more"]), Ticket(3));
    let mut came: Vec<_> = (0..3).map(|_| safe.blocking_recv().unwrap()).collect();
    came.sort_by_key(|safe| format!("{safe:?}"));
    assert_eq!(came, [Safe::Appended(A, Ticket(3)), Safe::Appended(B, Ticket(1)), Safe::Saved(A, Ticket(2))]);
    drop(disk);
    let kept = read(&dir).unwrap();
    assert_eq!((&kept[&A], &kept[&B]), (&records(&["all", "of it", "more"]), &records(&["b"])));
    assert!(has_snapshot(&dir.0, A) && !has_snapshot(&dir.0, B));
    let (disk, ..) = Disk::open(&dir.0).unwrap();
    disk.forget(A);
    drop(disk);
    wait_until(|| read(&dir).unwrap() == Kept::from([(B, records(&["b"]))]));
}

#[test]
fn segments_that_nobody_needs_are_used_again() {
    let dir = temp_dir("disk");
    let (disk, _, mut safe) = Disk::open(&dir.0).unwrap();
    let large = Bytes::from(vec![7; SEGMENT_BYTES / 2]);
    for n in 0..7 {
        disk.append(A, vec![large.clone()], Ticket(n));
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
    assert!(dir.0.join("log/spare").exists());
    // What stands in a segment from an earlier use is not read as a part of this one.
    for n in 0..3 {
        disk.append(A, vec![large.clone()], Ticket(20 + n));
        safe.blocking_recv().unwrap();
    }
    drop(disk);
    let kept = of_a(&dir);
    assert_eq!((kept.len(), &kept[0]), (4, &Bytes::from_static(b"all")));
}

#[test]
fn a_write_that_a_crash_cut_short_is_removed_wherever_it_was_cut() {
    let (dir, starts) = log_of(&["one", "two"]);
    let whole = fs::read(first_segment(&dir)).unwrap();
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
fn a_damaged_snapshot_is_never_an_empty_one() {
    let (dir, _) = log_of(&["one"]);
    let (disk, _, mut safe) = Disk::open(&dir.0).unwrap();
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
