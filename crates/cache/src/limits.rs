//! Numbers of the `cache` class, with units and reasons.

use base::Span;

/// Longest value, bytes: it goes in one frame, and stands before others on a link. Larger ones come in parts, later.
pub const VALUE_BYTES_MAX: usize = 4 << 20;
/// Longest tag, and longest name of a kind, bytes.
pub const TAG_BYTES_MAX: usize = 128;
/// Tags of one entry.
pub const TAGS_MAX: usize = 16;
/// What an entry takes beside its key, value and tags, bytes: its place in the table, in the index of ends and in the lists.
pub const ENTRY_BYTES: u64 = 256;
/// ... and each of its tags.
pub const TAG_BYTES: u64 = 96;
/// What a namespace may take at each node if nothing is declared.
pub const SIZE_DEFAULT: u64 = 64 << 20;
/// Less holds hardly a value of the largest size.
pub const SIZE_MIN: u64 = 8 << 20;
/// More than machines have.
pub const SIZE_MAX: u64 = 1 << 40;
/// What a namespace may have on the disk of each node: less is hardly more than what is being written.
pub const DISK_MIN: u64 = 64 << 20;
/// Its segments have a part of that each, and at most so many bytes, and one value more.
pub const SEGMENTS: u64 = 16;
pub const SEGMENT_MAX: u64 = 4 << 20;
/// Segments on their way to the disk: what comes meanwhile is not kept.
pub const SEGMENTS_UNWRITTEN_MAX: usize = 2;
/// Knowing what lies where takes at most this part of `size_max`, beside it: enough for entries of 16 KiB on a disk of 16 times the memory.
pub const INDEX_PART: u64 = 4;
/// Below so many free bytes, or this part of the disk, it is others' who must keep what they have.
pub const FREE_BYTES_MIN: u64 = 2 << 30;
pub const FREE_PART_MIN: u64 = 10;
/// How long a disk is waited for: its entry is a miss then. Less than a new owner waits for the former one.
pub const LOAD_WAIT: Span = Span::millis(40);
/// Reads of the disk under way, and their bytes: what is asked for beyond is a miss.
pub const LOADS_MAX: usize = 1024;
pub const LOAD_BYTES_MAX: u64 = 64 << 20;
pub const LOAD_WAITERS_MAX: usize = 1024;
/// Shorter ends before it is asked for.
pub const TTL_MS_MIN: u64 = 1;
/// 400 days, as of sessions.
pub const TTL_MS_MAX: u64 = 400 * 24 * 3600 * 1000;

/// Percent of the bytes for what is new, whatever its frequency: enough for a burst to be read again.
pub const WINDOW_PERCENT: u64 = 1;
/// Percent of the rest for what was read again since it came.
pub const PROTECTED_PERCENT: u64 = 80;
/// Counters of a row of the sketch: one for each so many bytes that the namespace may take, within bounds.
pub const SKETCH_BYTES_EACH: u64 = 1024;
pub const SKETCH_MIN: u64 = 1 << 10;
pub const SKETCH_MAX: u64 = 1 << 18;
/// So many accesses for each counter of a row, and all are halved: what was popular long ago is forgotten.
pub const SKETCH_AGES_AFTER: u64 = 10;
/// Ended entries are looked for so often: their memory is not needed sooner.
pub const SWEEP_EVERY: Span = Span::millis(100);
/// Ended entries that one turn removes: the others wait for the next.
pub const ENDED_EACH_TURN: usize = 256;

/// How long a node that holds a key is waited for, before a read is a miss: a round trip of a busy network many times over.
pub const OWNER_WAIT: Span = Span::millis(100);
/// ... by who would fetch what is missing, which costs more than to wait.
pub const FETCH_OWNER_WAIT: Span = Span::secs(1);
/// How long the former owner of a key is waited for. One that does not answer is not asked again.
pub const TAKE_WAIT: Span = Span::millis(60);
/// For so long after a change of who is live a miss asks the former owner: a full turnover of what is asked for, about.
pub const FORMER_FOR: Span = Span::secs(600);
/// An operation rests so long when two nodes do not agree yet on who is live.
pub const MOVED_RESTS: Span = Span::millis(20);
/// Who waits for what somebody else fetches asks again so often.
pub const FETCH_RESTS: Span = Span::millis(25);
/// Longest time for which it is left to one to fetch what is missing.
pub const FETCH_MAX: Span = Span::secs(60);
/// Keys that are fetched by somebody, at the node that has them; with more, everybody fetches.
pub const CLAIMS_MAX: usize = 16_384;
/// Views of who is live that a node remembers, to know whether it has owned a key ever since. Entries that are older are dropped.
pub const VIEWS_KEPT: usize = 128;
/// Operations of this node's doors under way.
pub const OPS_MAX: usize = 1 << 16;
/// Keys that are being taken over, and what waits for one of them.
pub const TAKES_MAX: usize = 4096;
pub const TAKE_WAITERS_MAX: usize = 1024;
pub const RETRY_AFTER: Span = Span::millis(100);

/// A node serves so long after it asked for a lease, at most.
pub const LEASE: Span = Span::secs(1);
/// Who gave it waits so much longer: clocks do not run alike.
pub const LEASE_MARGIN: Span = Span::millis(50);
/// Leases are asked for so often: three times before one ends.
pub const LEASE_EVERY: Span = Span::millis(300);
/// A purge is given up after so long: within it all leases of a hung node end.
pub const PURGE_WAIT: Span = Span::secs(2);
/// A node that has just started gives no leases for so long: a purge that its former life has confirmed has ended by then.
pub const GRANT_AFTER: Span = Span::millis(2500);
/// What was not confirmed is sent again.
pub const PURGE_AGAIN: Span = Span::millis(100);
/// Purges that who gives leases remembers, for those whose leases had ended meanwhile. Who lacks more forgets all.
pub const PURGES_KEPT: usize = 1024;
/// ... of which one frame's turn sends at most so many.
pub const PURGES_SENT: usize = 64;
/// Purges, and removals of keys here, that a node remembers for who fetches what is missing. What took longer than so many is not stored.
pub const MARKED_PURGES_MAX: usize = 4096;
/// Purges under way at one node.
pub const PURGES_MAX: usize = 256;
/// An entry that comes from its former owner is compared with all purges of so long: that node may not have known them.
pub const PURGES_COMPARED: Span = Span::secs(3);
/// ... and there are not more than so many, else it is dropped.
pub const PURGES_COMPARED_MAX: usize = 4096;

const _: () = assert!(PURGE_WAIT.as_micros() < GRANT_AFTER.as_micros(), "a confirmation must not outlive its purge");
const _: () = assert!(LEASE.as_micros() + LEASE_MARGIN.as_micros() < PURGE_WAIT.as_micros(), "leases end within it");
const _: () = assert!(PURGE_WAIT.as_micros() + TAKE_WAIT.as_micros() < PURGES_COMPARED.as_micros(), "see machine.rs");
const _: () = assert!(LOAD_WAIT.as_micros() < TAKE_WAIT.as_micros(), "a slow disk is no dead node");
const _: () = assert!(VALUE_BYTES_MAX < base::limits::FRAME_BYTES_MAX, "a value must fit into a frame");
const _: () = assert!((VALUE_BYTES_MAX as u64) < SIZE_MIN, "the largest value must fit");
