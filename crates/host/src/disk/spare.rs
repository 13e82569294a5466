//! Segments whose records are no longer needed, kept to be written anew: a file that keeps its size and place is forced faster than one
//! that grows, and to make one takes the disk as much as a segment full of records.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::snapshot;
use crate::limits::{FORCED_BYTES, SEGMENT_BYTES};
use crate::private;

/// A snapshot of a group that writes much gives two back at once; the third is for other groups' records between them.
const NAMES: [&str; 3] = ["spare", "spare-1", "spare-2"];
const TEMP: &str = "spare.tmp";

/// Keeps an old segment, or removes it if there are enough. On the disk it has its old name until somebody forces the folder.
pub fn keep(dir: &Path, old: &Path) -> io::Result<()> {
    match NAMES.iter().map(|name| dir.join(name)).find(|spare| !spare.exists()) {
        Some(spare) => fs::rename(old, spare),
        None => fs::remove_file(old),
    }
}

/// One of them becomes this file, if there is one.
pub fn take(dir: &Path, path: &Path) {
    let _ = NAMES.iter().find(|name| fs::rename(dir.join(name), path).is_ok());
}

/// Makes one if there is none.
pub fn make(dir: &Path, ends: &AtomicBool) -> io::Result<()> {
    if NAMES.iter().any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let temp = dir.join(TEMP);
    let mut file = private::create(&temp)?;
    let zeros = vec![0; FORCED_BYTES];
    for _ in 0..SEGMENT_BYTES / FORCED_BYTES {
        file.write_all(&zeros)?;
        snapshot::pace(&file, ends)?;
    }
    file.sync_all()?;
    // If the log has made one of an old segment meanwhile, this one replaces it.
    fs::rename(&temp, dir.join(NAMES[0]))
}

/// The disk is full: makes room by removing one, also one that is being made. False: there is none.
pub fn give_back(dir: &Path) -> bool {
    [TEMP].iter().chain(&NAMES).any(|name| fs::remove_file(dir.join(name)).is_ok())
}
