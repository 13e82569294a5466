//! Numbers of the `soft` class, with units and reasons.

use base::Span;

/// Highest number of an update of one life: a million a second for eight years. Bytes that claim more are refused, so that
/// no sum of two numbers overflows.
pub const SEQ_MAX: u64 = 1 << 48;
/// Ranges beyond the contiguous part that are remembered of one life. A push that would need more is dropped as if lost;
/// repair closes the gaps.
pub const RANGES_MAX: usize = 1_024;
/// Longest key, field, or member, bytes (state.md, rule 4).
pub const NAME_BYTES_MAX: usize = base::limits::KEY_BYTES_MAX;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = base::limits::SESSION_VALUE_BYTES_MAX;
/// What a cell costs beside its key, element and values, bytes.
pub const CELL_BYTES: u64 = 128;
/// A frame of updates is closed when it has so many bytes.
pub const FRAME_BYTES: usize = 256 << 10;
/// Sent to a peer and not acknowledged, bytes. Beyond it nothing is pushed to it until it acknowledges; repair serves it.
pub const WINDOW_BYTES: usize = 4 << 20;
/// Pushes whose acknowledgement is late are sent once more, if no more than this waits for one; so many of the oldest, each so often, and
/// no sooner or later than this: then twice as late.
pub const RESEND_BYTES: usize = 64 << 10;
pub const RESEND_FRAMES: usize = 64;
pub const RESEND_TRIES: u32 = 4;
pub const RESEND_MIN: Span = Span::millis(30);
pub const RESEND_MAX: Span = Span::secs(1);
/// What is late at a peer goes by way of another node: when an acknowledgement takes so many times what the fastest of the last ones took, no
/// sooner than this; so often, each time twice as late. (Level 14 of all nodes.)
pub const RELAY_TIMES: u64 = 4;
pub const RELAY_LOOKS: usize = 16;
pub const RELAY_MIN: Span = Span::millis(30);
pub const RELAY_TRIES: u32 = 3;
pub const RELAY_LEVEL: u32 = 14;
/// Cells that were sent to a peer are not sent to it again so soon, nor is one asked for what another was just asked for.
pub const REPAIR_AGAIN: Span = Span::millis(100);
/// Ranges beyond the contiguous part in an acknowledgement, so that one lost frame does not hold up later replies.
pub const ACK_RANGES_MAX: usize = 4;
/// Writes that wait for another node, at most.
pub const WAITS_MAX: usize = 64 << 10;
/// Frames of repair that answer one question. What is more goes with the next round.
pub const REPAIR_FRAMES: usize = 8;
/// Updates beyond what an answer has room for that are looked through: those that touched what is sent are told with it.
pub const BEYOND_MAX: usize = 64 << 10;
/// A page of a transfer that does not come is asked for again after so long.
pub const PAGE_AGAIN: Span = Span::millis(250);
/// A page of a transfer is closed when it has so many bytes: half a millisecond of work at either side, as others wait meanwhile.
pub const PAGE_BYTES: usize = 64 << 10;
/// ... of so many while clients of the node that gives it ask: each of them waits for what is left of a page. It was asked not longer ago
/// than this.
pub const PAGE_BYTES_ASKED: usize = 16 << 10;
pub const ASKED_LATELY: Span = Span::millis(50);
/// Questions for pages under way to one source of a transfer, at most.
pub const FILL_WINDOW: usize = 4;
/// A source that answers so soon is asked for more at once; one that takes longer than the other, for less.
pub const FILL_FAST: Span = Span::millis(8);
pub const FILL_SLOW: Span = Span::millis(24);
/// Pages of one stretch, about, and stretches at most: each is asked of one source at a time.
pub const FILL_PAGES: u64 = 4;
pub const FILL_STRETCHES: u64 = 64;
/// One that lacks so many updates, and has next to nothing, is filled page by page: repair would look through them again and again.
pub const FILL_UPDATES: u64 = 16 << 10;
/// What a peer that gets all was told of is remembered so long after its last question.
pub const SERVED_KEPT: Span = Span::secs(10);
/// Cells of a stretch of addresses that is compared at once: a millisecond of work at each side.
pub const STRETCH_CELLS: usize = 4 << 10;
/// Symbols that are asked for first, and of one stretch at all.
pub const SKETCH_FIRST: usize = 32;
pub const SKETCH_MAX: usize = 4 << 10;
/// A stretch that is written to all the while is sent whole.
pub const STRETCH_BEGUN_MAX: u32 = 3;
/// Namespaces that a digest tells of though nothing has changed there: some 700 bytes, ten times a second. Where there are more each has
/// its turn.
pub const DIGEST_IDLE: usize = 20;
/// A node that starts waits so long for others to appear before it believes that it is alone.
pub const ALONE_AFTER: Span = Span::secs(2);
/// A node that starts waits so long for others to tell what they have. One that does not answer is not waited for.
pub const SETTLE_WITHIN: Span = Span::secs(10);
/// Operations on one namespace that wait for that, at most.
pub const HELD_MAX: usize = 4 << 10;
/// Spaces that are declared so long after the start are new: there is nothing to catch up with.
pub const FRESH_AFTER: Span = Span::secs(10);
/// Entries that are held at one node: as many as it has connections, and ten of each.
pub const HOLDS_MAX: usize = 100_000;
/// Operations that are passed to other nodes, and that are done for others, at most.
pub const PASSES_MAX: usize = 4 << 10;
/// So many nodes are asked for one, one after the other.
pub const PASS_TRIES: usize = 3;
/// Another node's operation is over then, whatever it says.
pub const PASS_WITHIN: Span = Span::secs(60);
/// While it catches up a node asks all others this often.
pub const SETTLE_EVERY: Span = Span::millis(50);
/// How often it is looked what all members have, so that the index forgets it.
pub const COLLECT_EVERY: Span = Span::secs(1);
/// Cells, and their bytes, that a checkpoint appends in one turn: a millisecond of work. The next ones have their turn after so long.
pub const KEEP_CELLS: usize = 256;
pub const KEEP_BYTES: usize = 1 << 20;
pub const KEEP_AGAIN: Span = Span::millis(3);
/// Turns that writing everything anew may take before each takes twice as much: then more changes meanwhile than is written.
pub const KEEP_TURNS: u32 = 1_000;
/// So much is appended at least before everything is written anew, bytes.
pub const SAVE_BYTES_MIN: u64 = 1 << 20;
/// Updates that the index is rid of in one turn: a millisecond of work. What is left has its turn after so long.
pub const PRUNE_MAX: usize = 1 << 10;
pub const PRUNE_AGAIN: Span = Span::millis(2);
/// A dead member counts for collection so long. One that comes back later compares whole states.
pub const DEAD_COUNTS: Span = Span::secs(600);
/// Lives of a node are folded when its present one has been known for so long, and others have told since what they have.
pub const FOLD_AFTER: Span = Span::secs(10);
/// While slots are added up at one node after the other their cells are not compared, but for so long at most.
pub const TALLY_LOOKS_ODD: Span = Span::secs(60);
/// Entries of the index, above which members that are dead are waited for no longer.
pub const INDEX_MAX: usize = 1 << 20;
/// Entries of the index that a checkpoint may have.
pub const INDEX_KEPT_MAX: u64 = 64 << 20;
/// A key whose end has come is looked at again after so long, if another node is to remove it.
pub const END_AGAIN: Span = Span::secs(1);
/// Elements that a large removal takes away in one turn: a millisecond of work. The next ones have their turn after so long.
pub const SWEEP_CELLS: usize = 256;
pub const SWEEP_AGAIN: Span = Span::millis(2);
/// While much is under way to peers it waits for them, so long at most.
pub const SWEEP_WAITS: Span = Span::millis(200);
/// Large removals at once.
pub const SWEEPS_MAX: usize = 64;
/// A stamp further ahead of this node's wall clock does not move its own clock, milliseconds; and a clock that is so far off the
/// middle one of all is corrected.
pub const AHEAD_MS_MAX: u64 = 1_000;
/// Longest time to a key's end: a hundred years.
pub const END_MAX: Span = Span::secs(100 * 365 * 86_400);
/// Parts of a namespace whose hashes are compared: by the first byte of a key's hash.
pub const PARTS: usize = 256;
/// A value that is damaged is asked of another node again after so long; so many at once.
pub const HEAL_AGAIN: Span = Span::millis(100);
pub const DAMAGED_MAX: usize = 64;
/// Elements that were mended, of which readers of changes are told. Who has missed more is told everything.
pub const MENDED_KEPT: usize = 1_024;
/// Questions for changes that wait at a node, at most.
pub const WATCHERS_MAX: usize = 4 << 10;
/// What a peer has said of one namespace and is not here yet: so often it may say more before that counts.
pub const CLAIMS_MAX: usize = 64;
/// How long one waits for a change.
pub const WATCH_HOLD: Span = Span::secs(10);
/// An answer of changes is closed when it has so many bytes, or has looked at so many cells.
pub const WATCH_BYTES: usize = 256 << 10;
pub const WATCH_CELLS: usize = 1_000;
/// Values that lost against the one that is told: so many are told with it, each if it is no longer than this.
pub const LOST_MAX: usize = 8;
pub const LOST_BYTES_MAX: usize = 16 << 10;
/// While somebody watches, the index keeps what it might forget for so long at least.
pub const WATCH_KEPT: Span = Span::secs(30);
/// Keys of one page of a scan.
pub const SCAN_COUNT_MAX: u32 = 10_000;
/// Memory that a frame may claim by the lists in it: so many bytes for each of its own, and as many for nothing. What nodes make claims less;
/// in a list of operations that are passed on each short word is a part.
pub const CLAIM_TIMES: usize = 4;
pub const CALL_TIMES: usize = 16;
pub const CLAIM_FREE: usize = 8 << 20;
/// Siblings, slots, or names of gone dots of one cell that a peer may send.
pub const PARTS_MAX: usize = 65_536;

/// Bounds of `gossip`, milliseconds.
pub const GOSSIP_MS_MIN: u64 = 20;
pub const GOSSIP_MS_DEFAULT: u64 = 100;
pub const GOSSIP_MS_MAX: u64 = 10_000;
/// Bounds of `checkpoint`, milliseconds.
pub const CHECKPOINT_MS_MIN: u64 = 1_000;
pub const CHECKPOINT_MS_DEFAULT: u64 = 10_000;
pub const CHECKPOINT_MS_MAX: u64 = 600_000;
/// Bounds of `size_max`, bytes.
pub const SIZE_MIN: u64 = 1 << 20;
pub const SIZE_DEFAULT: u64 = 256 << 20;
pub const SIZE_MAX: u64 = 1 << 40;

const _: () = assert!(
    FRAME_BYTES + VALUE_BYTES_MAX + (64 << 10) < base::limits::FRAME_BYTES_MAX,
    "a frame with one more value is a frame"
);
const _: () = assert!(SETTLE_WITHIN.0 > ALONE_AFTER.0, "who appears late is still waited for");

/// Keys of a page, while a namespace is dumped.
pub const DUMP_KEYS: u32 = 256;
/// Keys that are read at once then.
pub const DUMP_GETS: usize = 16;
