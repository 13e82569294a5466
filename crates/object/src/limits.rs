//! Numbers of class `object`, with units and reasons.

use base::Span;
use base::limits::FRAME_BYTES_MAX;

/// Longest name of an owner, bytes.
pub const OWNER_BYTES_MAX: usize = 255;
/// Largest object, bytes. Larger ones are to go in pieces, which are not there yet.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Copies of an object, unless the declaration says otherwise.
pub const COPIES: u32 = 2;
/// Copies that may be declared: each costs a force on another disk.
pub const COPIES_MAX: u32 = 5;
/// Nodes over which the objects of one owner are to be spread, at most, while these have room (Porcupine 4.3).
pub const SPREAD: u32 = 2;
pub const SPREAD_MAX: u32 = 16;
/// Nodes that one object may be meant for: those that were asked for it and may have it.
pub const HOMES_MAX: usize = 64;

/// Memory that the objects of a node may take, bytes, unless the node is told otherwise. They are in memory and in the log: there is no
/// other store yet.
pub const BYTES_MAX: u64 = 512 << 20;
/// Objects and tombstones of a node: a checkpoint walks over all of them.
pub const ENTRIES_MAX: usize = 1 << 18;
/// What an entry costs beside owner and body, bytes: key, stamp, homes, its places in maps.
pub const ENTRY_BYTES: u64 = 256;
/// Writes that wait for the disk of a node. More is refused: a disk that is so far behind has had its share.
pub const UNFORCED_BYTES_MAX: u64 = 64 << 20;

/// Operations of this node's doors that are under way, and the bytes of their bodies.
pub const OPS_MAX: usize = 4096;
pub const OPS_BYTES_MAX: usize = 64 << 20;
/// Where an object may be is asked of all; a put goes on with what it has heard after this. A hint that is missing costs affinity alone.
pub const LOOK_FOR: Span = Span::millis(30);
/// A node that has not answered a question of a deletion or of a list in this time is passed over.
pub const LOOK_LONG: Span = Span::millis(250);
/// A candidate that is silent for so long is replaced by another one (Porcupine 4.2).
pub const SILENT_FOR: Span = Span::millis(250);
/// A holder that is asked for a body has so long before the next one is asked.
pub const READ_FOR: Span = Span::millis(150);
/// Objects in a page of a list.
pub const LIST_MAX: usize = 1000;

/// What a holder has not heard the end of in this time it sees to itself: whoever asked for it may be dead.
pub const PUSH_AFTER: Span = Span::secs(5);
/// Pushed in one go, four times a second: bytes and entries. About 10 % of a link of a gigabit.
pub const PUSH_BYTES: usize = 4 << 20;
pub const PUSH_ENTRIES: usize = 256;
/// Copies that are given up in one go, four times a second, and questions before that which are under way.
pub const GIVE_UP_ENTRIES: usize = 256;
/// Who does not say in this time whether it has what is to be dropped is asked again.
pub const GIVE_UP_FOR: Span = Span::secs(5);
/// Copies of a node that has been away for so long are made elsewhere. Longer than a reboot: it may be gigabytes.
pub const REPAIR_AFTER: Span = Span::secs(600);
/// A version that is further ahead of this node's clock is refused (`writes = "newest"` alone).
pub const AHEAD_MS_MAX: u64 = 1000;

/// A tombstone that all homes have is kept for so long, by the wall clock: a client that repeats its put late is told that it is deleted.
pub const TOMBSTONE_MS_ONCE: u64 = 8 * 86_400_000;
/// With `writes = "newest"`: longer than any frame is under way.
pub const TOMBSTONE_MS_NEWEST: u64 = 3_600_000;
/// A checkpoint replaces the log when so much was appended since the last one, and at least as much as what lives.
pub const SAVE_BYTES_MIN: u64 = 32 << 20;

const _: () = assert!(OBJECT_BYTES_MAX + (64 << 10) < FRAME_BYTES_MAX, "an object travels in one frame");
const _: () = assert!(SPREAD >= COPIES, "an owner's nodes have room for all copies");
const _: () = assert!(SILENT_FOR.as_micros() < PUSH_AFTER.as_micros(), "whoever asks is first to see to it");

/// Objects that are read at once while a namespace is dumped.
pub const DUMP_GETS: usize = 8;
