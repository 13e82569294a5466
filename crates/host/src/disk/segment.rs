//! One segment of the log, as bytes.
//!
//! ```text
//! file    "COPSEG1\n", u64 number of its first record, u64 salt, u32 CRC-32C of both; batches
//! batch   u32 mark, u32 length of what follows the checksum, u32 CRC-32C of salt and what follows; u64 number of its
//!         first record, for the loose mark u64 number of the first record that was not forced, records
//! record  u64 group, u32 length, bytes                                                     (all big-endian)
//! ```
//! A batch says that what stands before it was forced, or, under the loose mark, up to where. So a bad batch that no later
//! one says to be forced is what a crash cut short, and nobody was told it was on the disk; else it is damage. For the last
//! batch an empty one says that: the seal, written without force when nothing more comes, over which the next batch is
//! written. The salt is drawn when a segment is begun: what an older use of the file left behind is not valid, nor is what
//! a client may have put into a value.

use std::ops::Range;

use base::checksum::Checksum;
use base::{GroupId, Record};
use bytes::{Buf, BufMut, Bytes};

use super::sums::Sums;

pub const MAGIC: &[u8; 8] = b"COPSEG1\n";
pub const HEAD: usize = 28;
/// Of a batch behind which all is forced.
const MARK: u32 = 0x434F_5042;
/// Of a batch that was written when one before it was not forced yet.
const LOOSE: u32 = 0x434F_504C;
pub const BATCH_HEAD: usize = 20;
pub const RECORD_HEAD: usize = 12;

/// How a segment begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub first: u64,
    pub salt: u64,
}

impl Head {
    pub fn encode(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u64(self.first);
        out.put_u64(self.salt);
        let sum = Checksum::of(&out[8..]);
        out.put_u32(sum.0);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let mut head = bytes.get(..HEAD)?.strip_prefix(MAGIC)?;
        let sum = Checksum::of(&head[..16]);
        let (first, salt) = (head.get_u64(), head.get_u64());
        (Checksum(head.get_u32()) == sum).then_some(Head { first, salt })
    }

    /// For bytes that are no head: not by a wrong byte, but because somebody else wrote them?
    pub fn is_of_another_version(bytes: &[u8]) -> bool {
        let salt = bytes.get(16..24).map_or(0, |salt| u64::from_be_bytes(eight(salt)));
        bytes.starts_with(&MAGIC[..6]) && !bytes.starts_with(MAGIC) && !has_batch(bytes, salt)
    }
}

/// Appends a batch to `out`. `forced`: all records before this number are forced.
pub fn batch(salt: u64, first: u64, forced: u64, records: &[(GroupId, Record)], out: &mut Vec<u8>) {
    assert!(forced <= first, "record {forced} cannot be forced before it is written");
    let at = out.len();
    out.extend([0; BATCH_HEAD]);
    let mark = if forced == first { MARK } else { LOOSE };
    if mark == LOOSE {
        out.put_u64(forced);
    }
    for (group, record) in records {
        out.put_u64(group.0);
        out.put_u32(u32::try_from(record.len()).expect("a record is far below 4 GiB"));
        record.pieces().iter().for_each(|piece| out.extend_from_slice(piece));
    }
    let len = u32::try_from(out.len() - at - 12).expect("a batch is far below 4 GiB");
    let batch = &mut out[at..];
    batch[..4].copy_from_slice(&mark.to_be_bytes());
    batch[4..8].copy_from_slice(&len.to_be_bytes());
    batch[12..20].copy_from_slice(&first.to_be_bytes());
    let sum = Checksum::of_parts(&[&salt.to_be_bytes(), &batch[12..]]);
    batch[8..12].copy_from_slice(&sum.0.to_be_bytes());
}

/// A batch without records: what stands before it is on the disk.
pub fn seal(salt: u64, next: u64, out: &mut Vec<u8>) {
    batch(salt, next, next, &[], out);
}

/// Why a segment cannot be read.
#[derive(PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// Valid batches lie behind.
    Damaged { at: usize },
    /// Its checksum is right, so somebody else wrote this.
    Unknown { at: usize },
}

/// Where the valid part of a segment ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub at: usize,
    /// The number that comes next there.
    pub next: u64,
    /// Batches behind it outlived a power cut that took one before them.
    pub orphans: bool,
}

/// Hands each record with its number to `each`.
pub fn read(bytes: &Bytes, head: Head, mut each: impl FnMut(u64, GroupId, Bytes)) -> Result<End, Unreadable> {
    let (mut at, mut next, mut orphans) = (HEAD, head.first, false);
    while at < bytes.len() {
        let Some(found) = claimed(bytes, at).filter(|found| found.first == next && found.is_valid(bytes, head.salt))
        else {
            for later in valid_from(bytes, at + 1, head.salt, |first| first >= next) {
                if !later.is_loose || later.forced > next {
                    return Err(Unreadable::Damaged { at });
                }
                orphans = true;
            }
            break;
        };
        let mut batch = bytes.slice(found.records..found.body.end);
        while batch.has_remaining() {
            let whole = batch.len() >= RECORD_HEAD && batch.len() - RECORD_HEAD >= u32_at(&batch, 8) as usize;
            if !whole {
                return Err(Unreadable::Unknown { at });
            }
            let group = GroupId(batch.get_u64());
            let len = batch.get_u32() as usize;
            each(next, group, batch.split_to(len));
            next += 1;
        }
        at = found.body.end;
    }
    Ok(End { at, next, orphans })
}

/// Whatever the head says: is there a batch that this version wrote under this salt?
pub fn has_batch(bytes: &[u8], salt: u64) -> bool {
    valid_from(bytes, HEAD, salt, |_| true).next().is_some()
}

/// Without knowing the salt: is there a batch of this number or a later one?
pub fn looks_written(bytes: &[u8], first: u64) -> bool {
    let is_ours =
        |batch: &[u8]| has_mark(batch) && (first..first + (1 << 40)).contains(&u64::from_be_bytes(eight(&batch[12..])));
    bytes.windows(BATCH_HEAD).any(is_ours)
}

/// Is there the beginning of a batch that would come next?
pub fn is_torn(rest: &[u8], next: u64) -> bool {
    match rest.len() {
        0 => false,
        1..BATCH_HEAD => rest.iter().any(|byte| *byte != 0),
        _ => has_mark(rest) && u64::from_be_bytes(eight(&rest[12..])) == next,
    }
}

fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes[..8].try_into().expect("eight bytes")
}

/// A batch, by where its parts are in its segment.
struct Found {
    /// What it has the checksum of, beside the salt.
    body: Range<usize>,
    records: usize,
    first: u64,
    forced: u64,
    is_loose: bool,
    sum: Checksum,
}

impl Found {
    fn is_valid(&self, bytes: &[u8], salt: u64) -> bool {
        Checksum::of_parts(&[&salt.to_be_bytes(), &bytes[self.body.clone()]]) == self.sum
    }
}

fn has_mark(bytes: &[u8]) -> bool {
    [MARK, LOOSE].contains(&u32_at(bytes, 0))
}

/// What stands here as a batch would, whether it is one or not.
fn claimed(bytes: &[u8], at: usize) -> Option<Found> {
    let bytes = &bytes[at..];
    if bytes.len() < BATCH_HEAD || !has_mark(bytes) {
        return None;
    }
    let is_loose = u32_at(bytes, 0) == LOOSE;
    let head = if is_loose { BATCH_HEAD + 8 } else { BATCH_HEAD };
    let (len, sum) = (u32_at(bytes, 4) as usize, Checksum(u32_at(bytes, 8)));
    let body = bytes[12..].get(..len).filter(|body| body.len() >= head - 12)?;
    let first = u64::from_be_bytes(eight(body));
    let forced = if is_loose { u64::from_be_bytes(eight(&body[8..])) } else { first };
    Some(Found { body: at + 12..at + 12 + len, records: at + head, first, forced, is_loose, sum })
}

/// The batches that begin here or later and whose first records have numbers that are right. What is searched may be bytes of
/// clients, in which anything may claim to be a batch.
fn valid_from(bytes: &[u8], from: usize, salt: u64, right: impl Fn(u64) -> bool) -> impl Iterator<Item = Found> {
    let salt = Checksum::of(&salt.to_be_bytes());
    let mut sums = None;
    (from..bytes.len()).filter_map(move |at| {
        let found = claimed(bytes, at).filter(|found| right(found.first))?;
        // Most ends have nothing behind them that needs these.
        let sums = sums.get_or_insert_with(|| Sums::of(bytes));
        (sums.behind(salt, found.body.clone()) == found.sum).then_some(found)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
