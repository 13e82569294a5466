//! Packs: files of bytes that a class keeps on its node's disk, beside the log, each written once, whole, and never changed. What lies in
//! one, and where, its class knows and keeps in the log; so a pack that the log does not name is nothing, and a crash leaves none that is
//! there in part.

use bytes::Bytes;

/// What is wanted of the packs of a group.
#[derive(Debug)]
pub enum PackWant {
    /// Have a pack of these bytes, one behind the other; [`PackSaid::Written`] follows when it is forced, with its name. A number that is
    /// in use is not written again. `hurry`: else it leaves the disk to the log half of the time.
    Write { pack: u64, parts: Vec<Bytes>, hurry: bool },
    /// Some of its bytes; [`PackSaid::Read`] follows. What is asked of one pack is answered in that order.
    Read { number: u64, pack: u64, from: u64, len: u32 },
    /// It is needed no more: not even by what the log would show after a power cut.
    Drop { pack: u64 },
}

/// What came of that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PackSaid {
    /// After a crash it is there with all its bytes.
    Written { pack: u64 },
    /// None: the disk does not give them. They are as they were read: who wants them compares their checksum.
    Read { number: u64, bytes: Option<Bytes> },
}
