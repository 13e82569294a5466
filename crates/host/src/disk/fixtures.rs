//! Logs that released versions have written are opened as they were left.

use std::fs;
use std::path::Path;

use super::*;
use crate::kept::{may_write, present, versions};
use crate::tls::temp_dir;

const GROUPS: [GroupId; 3] = [GroupId::ROOT, GroupId(0x1_0000_0001), GroupId(7)];

fn written(texts: &[&str]) -> Vec<Record> {
    records(texts).into_iter().map(Record::from).collect()
}

fn records(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

/// What is in the log that each version keeps: snapshots, batches that were forced and such that were not, a forgotten group.
fn write(dir: &Path) {
    let Opened { disk, mut safe, .. } = Disk::open(dir).unwrap();
    let [a, b, gone] = GROUPS;
    let mut wait = |wanted| while safe.blocking_recv().unwrap() != wanted {};
    disk.append(a, written(&["replaced", ""]), Ticket(1), true);
    disk.append(gone, written(&["forgotten"]), Ticket(2), true);
    wait(Safe::Appended(gone, Ticket(2)));
    disk.save(a, Parts::of(records(&["snapshot", "of two parts"])), Ticket(3));
    wait(Safe::Saved(a, Ticket(3)));
    disk.append(b, written(&["forced", "together"]), Ticket(4), true);
    wait(Safe::Appended(b, Ticket(4)));
    disk.append(a, written(&["loose"]), Ticket(5), false);
    wait(Safe::Appended(a, Ticket(5)));
    disk.append(b, written(&["behind what is loose"]), Ticket(6), true);
    wait(Safe::Appended(b, Ticket(6)));
    disk.forget(gone);
}

#[test]
fn fixtures_of_logs_are_opened() {
    if may_write() && !present().join("log").exists() {
        let temp = temp_dir("fixture");
        write(&temp.0);
        copy(&temp.0, &present());
    }
    assert!(present().join("log").exists(), "UPDATE_FIXTURES=1 cargo test -p host fixtures writes it");
    for folder in versions().iter().filter(|folder| folder.join("log").exists()) {
        let temp = temp_dir("fixture");
        copy(folder, &temp.0);
        let Opened { kept, remarks, .. } = Disk::open(&temp.0).unwrap();
        let [a, b, _] = GROUPS;
        let expected = [
            (a, records(&["snapshot", "of two parts", "loose"])),
            (b, records(&["forced", "together", "behind what is loose"])),
        ];
        assert_eq!(kept, expected.into(), "{}", folder.display());
        assert!(remarks.is_empty(), "{remarks:?}");
    }
}

/// The files that say what is kept; not that of the machine's boot, nor room for what comes.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("log")).unwrap();
    for file in fs::read_dir(from.join("log")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "seg" || end == "snap") {
            fs::copy(&file, to.join("log").join(file.file_name().unwrap())).unwrap();
        }
    }
}
