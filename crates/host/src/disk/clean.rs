//! Old segments, written anew without what nobody needs; what is taken out leaves a record of no bytes, so that all numbers stay.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use base::{GroupId, Record};
use bytes::Bytes;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::segment::{self, Head};
use super::{log, snapshot, spare};
use crate::limits::{FORCED_BYTES, SEGMENT_BYTES};
use crate::private;

/// Does it to one, whose groups need nothing before these numbers. After a crash there is the old or the new. Gives its size.
pub fn clean(dir: &Path, path: &Path, floors: &BTreeMap<GroupId, u64>, ends: &AtomicBool) -> io::Result<u64> {
    let out = without(path, floors)?;
    let temp = path.with_extension("tmp");
    let mut file = private::create(&temp)?;
    for piece in out.chunks(FORCED_BYTES) {
        file.write_all(piece)?;
        snapshot::pace(&file, ends)?;
    }
    let old_is_at = replace(dir, &temp, path, &file, File::sync_all)?;
    if let Some(old) = old_is_at {
        let is_worth_it = fs::metadata(old)?.len() >= SEGMENT_BYTES as u64 / 2;
        if is_worth_it { spare::keep(dir, old) } else { fs::remove_file(old) }?;
    }
    Ok(out.len() as u64)
}

/// Its bytes without the rest.
fn without(path: &Path, floors: &BTreeMap<GroupId, u64>) -> io::Result<Vec<u8>> {
    let other = |what| io::Error::other(format!("{}: {what}", path.display()));
    let bytes = Bytes::from(fs::read(path)?);
    let head = Head::decode(&bytes).ok_or_else(|| other("its head has changed"))?;
    let mut records = Vec::new();
    let read = segment::read(&bytes, head, |number, group, record| {
        let is_needed = floors.get(&group).is_none_or(|floor| number >= *floor);
        records.push((group, if is_needed { Record::from(record) } else { Record::default() }));
    });
    read.map_err(|_| other("it has changed"))?;
    let head = Head { first: head.first, salt: log::fresh_salt()? };
    let mut out = head.encode();
    segment::batch(head.salt, head.first, head.first, &records, &mut out);
    Ok(out)
}

/// Puts the new one in the place of the old one, which has the name of the new one then, if it is still there; in steps that leave a log
/// that can be read wherever the power fails.
pub fn replace<'a>(
    dir: &Path,
    new: &'a Path,
    old: &Path,
    file: &File,
    mut sync: impl FnMut(&File) -> io::Result<()>,
) -> io::Result<Option<&'a Path>> {
    sync(file)?;
    let names = File::open(dir)?;
    // Not every file system can exchange two names.
    let is_there = renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE).is_ok();
    if !is_there {
        fs::rename(new, old)?;
    }
    // Until then the old one may have its name on the disk, and must not be written over.
    sync(&names)?;
    Ok(is_there.then_some(new))
}
