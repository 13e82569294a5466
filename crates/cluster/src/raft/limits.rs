//! Numbers of every consensus group, with units and reasons.

use base::Span;

/// Raft counts time in ticks. Heartbeats and elections are multiples of it; finer would only cost wake-ups.
pub const TICK: Span = Span::millis(50);
/// A leader is heard from every 100 ms: five beats may be lost before anybody doubts it.
pub const HEARTBEAT_TICKS: usize = 2;
/// 500 ms to 1000 ms without a beat start an election, so a leader that vanished is replaced in about 1.5 s at worst.
pub const ELECTION_TICKS_MIN: usize = 10;
pub const ELECTION_TICKS_MAX: usize = 20;
/// Bytes in one append message; one entry always goes, however large.
pub const APPEND_BYTES_MAX: u64 = 256 << 10;
/// A learner at most so many entries behind may become a voter: it is then a moment, not a transfer, from the end.
pub const CAUGHT_UP_ENTRIES: u64 = 16;
/// A snapshot under way to a member without an answer for so long is taken for lost.
pub const SNAPSHOT_WAIT: Span = Span::secs(2);
/// Parts of a snapshot under way to one member at once: enough to fill a link, little enough to leave room on it.
pub const PARTS_UNDER_WAY_MAX: usize = 4;
/// Parts that nobody acknowledged for so long are sent again.
pub const PARTS_AGAIN: Span = Span::millis(300);

/// All groups of a node share one log. When it has grown by so much since a group's last snapshot, the group makes one,
/// however little it wrote: else one quiet group would keep all of the log from being given back, and what is given back late
/// cannot be written over. A large group makes one less often: after as many bytes as its snapshot has, up to the second figure.
pub const LOG_HELD_BYTES: (u64, u64) = (64 << 20, 256 << 20);

/// No group comes to such a term. From a higher one on the next election would have none, and would end the process.
pub const TERM_MAX: u64 = 1 << 62;

/// A group's entries are kept in memory for members that are behind, as long as they are fewer bytes than about twice its snapshot would
/// have, which they would get instead; within these bounds. The disk keeps its log for longer (`LogBounds`): in memory an entry takes
/// several times its bytes.
pub const MEMORY_LOG_BYTES: (usize, usize) = (4 << 20, 64 << 20);
/// What an entry takes in memory besides its data: itself, its allocation, and its share of the frame that it came in.
pub const ENTRY_BYTES: usize = 512;

/// A member that comes back waits so many ticks (500 ms) for the others to say what it has promised: links to those that
/// live are up by then. The group of a dead leader is held up by it only if this member's vote is the one that it needs.
pub const RECALL_TICKS: u32 = 10;
/// A member of a memory group whose machine was rebooted waits for the others until all have answered or one leads. Only
/// when those known to have been rebooted too, and those that the cluster has given up, leave no majority of others does it
/// go on without the rest, after so many ticks (10 s): machines that lost their power together are back together, give or take that.
pub const REBOOTED_TICKS: u32 = 200;

/// A member whose disk has nothing of the group does not trust that disk once so many beats (1 s) said that it holds entries.
pub const CLAIMS_MAX: u32 = 10;

const _: () = assert!(RECALL_TICKS < REBOOTED_TICKS, "doubt about a disk is worth more patience than a formality");
const _: () = assert!(HEARTBEAT_TICKS * 3 <= ELECTION_TICKS_MIN, "a lost heartbeat or two must not start an election");
const _: () = assert!(ELECTION_TICKS_MIN < ELECTION_TICKS_MAX, "elections need jitter");
const _: () = assert!(PARTS_AGAIN.as_micros() * 3 < SNAPSHOT_WAIT.as_micros(), "a lost part must not end a transfer");
