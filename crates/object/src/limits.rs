//! Numbers of class `object`, with units and reasons.

use base::Span;
use base::limits::FRAME_BYTES_MAX;

/// Longest name of an owner, bytes.
pub const OWNER_BYTES_MAX: usize = 255;
/// What travels in one frame and lies in one record of the log. A larger object goes in such pieces.
pub const PIECE_BYTES: usize = 1 << 20;
/// Pieces of one object.
pub const PIECES_MAX: usize = 64;
/// Largest object, bytes: a message with what people attach to it, twice over.
pub const OBJECT_BYTES_MAX: usize = PIECES_MAX * PIECE_BYTES;
/// Pieces that are sent to a node before its disk has the first of them: a round trip and a force, and a quarter of what may wait for a
/// peer (`host/src/limits.rs`), so that what else goes there has room.
pub const PIECES_AHEAD: usize = 4;
/// Pieces that nothing is heard of in this time are sent again.
pub const SHIP_AGAIN: Span = Span::millis(500);
/// A node whose disk takes no piece in this time is replaced: longer than a small object has, as a piece waits behind others of its kind.
pub const SHIP_SILENT: Span = Span::millis(3000);
/// Objects in pieces that wait to be pushed to one node.
pub const PUSHES_WAITING_MAX: usize = 4;
/// Pieces that no put has named yet: memory of a node that they may take, bytes, and how many objects of one sender there may be.
pub const STAGED_BYTES_MAX: u64 = 256 << 20;
pub const STAGES_MAX: usize = 4;
/// Pieces that nothing follows upon for so long are dropped: whoever sent them has given up.
pub const STAGED_FOR: Span = Span::secs(30);
/// Copies of an object, unless the declaration says otherwise.
pub const COPIES: u32 = 2;
/// Copies that may be declared: each costs a force on another disk.
pub const COPIES_MAX: u32 = 5;
/// Nodes over which the objects of one owner are to be spread, at most, while these have room (Porcupine 4.3).
pub const SPREAD: u32 = 2;
pub const SPREAD_MAX: u32 = 16;
/// Nodes that one object may be meant for: those that were asked for it and may have it.
pub const HOMES_MAX: usize = 64;

/// What the objects of a node may have, bytes, unless the node is told otherwise. Most disks are full before: a full one takes no more,
/// and the next node does.
pub const BYTES_MAX: u64 = 1 << 40;
/// Bytes of objects that a node has in memory at most: what lies in no pack yet. A node whose cluster knows of no packs has all there.
pub const HERE_BYTES_MAX: u64 = 512 << 20;
/// A pack has so many bytes, unless it is of one object that has more: few files, and soon read where most of it is needed no more. So
/// much lies in memory before there is one.
pub const PACK_BYTES: u64 = 16 << 20;
/// And so many objects at most: what comes of it is done in one turn.
pub const PACK_ENTRIES: usize = 4096;
/// What is left of packs is written anew when they have so many bytes that nothing needs, and half as many as are needed beside.
pub const WASTE_BYTES: u64 = 64 << 20;
/// A node whose disk has less room than this, or than such a part of it, takes no more objects: deletions have to be written, too, and
/// so has what is left of packs before these can go.
pub const FREE_BYTES_MIN: u64 = 1 << 30;
pub const FREE_PART_MIN: u64 = 16;
/// While so many packs' worth is in memory, and one is being written, senders of pieces are not told that these are safe: they wait. From
/// half of it on packs are written without a rest.
pub const BEHIND_PACKS: u64 = 6;
/// Bytes of packs that the disk is asked for at a time; what is more waits in a queue, and so do so many questions for them.
pub const FETCH_BYTES_MAX: u64 = 32 << 20;
pub const FETCHES_WAITING_MAX: usize = 8192;
/// Objects of a node: each takes about [`ENTRY_BYTES`] of memory, so all of them a gigabyte.
pub const ENTRIES_MAX: usize = 1 << 22;
/// Deletions of a node that not all have which should have them: as large as objects. Some weeks of a house's mail, with a node away.
pub const UNSETTLED_MAX: usize = 1 << 20;
/// Deletions of a node that all have, and which it remembers: each takes about [`GRAVE_BYTES`] of memory. With more of them the oldest are
/// forgotten; a put that is repeated as late as that is taken for a new one.
pub const GRAVES_MAX: usize = 1 << 22;
/// None that is younger is forgotten, seconds: a frame that was under way when it was deleted is not any more.
pub const GRAVE_S_LEAST: u32 = 120;
/// What an entry costs beside owner and body, bytes: its slot, stamp, where it is, its places in trees. A test measures it.
pub const ENTRY_BYTES: u64 = 256;
/// What a deletion that is over costs.
pub const GRAVE_BYTES: u64 = 96;
/// Entries that are looked at in one turn when nodes came or went, and how far such turns are apart: some milliseconds each.
pub const WALK_ENTRIES: usize = 2048;
pub const WALK_EVERY: Span = Span::millis(20);
/// Entries of the order for whoever watches that are made in one turn.
pub const ORDER_ENTRIES: usize = 8192;
/// Deletions that are put with those that are over, in each turn and four times a second.
pub const BURY_AT_ONCE: usize = 16;
pub const BURY_ENTRIES: usize = 2048;
/// Deletions that were over, and about which there is something to do again as a node came: so many at a time.
pub const EXHUMED_MAX: usize = 4096;
/// Deletions that are over, and are looked at in one turn, four times a second: about a millisecond.
pub const GRAVE_LOOKS: usize = 1 << 15;
/// Writes that wait for the disk of a node. More is refused: a disk that is so far behind has had its share.
pub const UNFORCED_BYTES_MAX: u64 = 64 << 20;

/// Operations of this node's doors that are under way, and the bytes of their bodies: ten large messages.
pub const OPS_MAX: usize = 4096;
pub const OPS_BYTES_MAX: usize = 256 << 20;
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
/// Bad copies whose homes are told in one go, four times a second: each has them push an object.
pub const MEND_ENTRIES: usize = 64;
/// Bad copies that are looked at for that.
pub const MEND_LOOKS: usize = 4096;
/// Who does not say in this time whether it has what is to be dropped is asked again.
pub const GIVE_UP_FOR: Span = Span::secs(5);
/// Copies of a node that has been away for so long are made elsewhere. Longer than a reboot: it may be gigabytes.
pub const REPAIR_AFTER: Span = Span::secs(600);
/// Where a node is told to wait for others less long than a week, that much of it at most: they are elsewhere before it is gone.
pub const REPAIR_PART: u64 = 50;
/// What a node misses while it is away (deletions above all) is kept for so long. Shorter than tombstones are: whoever is back before it
/// is over hears of each deletion.
pub const AWAY_FOR: Span = Span::secs(7 * 86_400);
/// A node that has heard nobody in this life does not answer for what it alone has before this is over: others that are there have told it by
/// then if it is none of the cluster's any more.
pub const ALONE_AFTER: Span = Span::secs(5);
/// Whoever waits for that looks again so often.
pub const ALONE_AGAIN: Span = Span::millis(100);
/// A version that is further ahead of this node's clock is refused (`writes = "newest"` alone).
pub const AHEAD_MS_MAX: u64 = 1000;

/// A tombstone that all homes have is kept for so long, by the wall clock: a client that repeats its put late is told that it is deleted.
pub const TOMBSTONE_MS_ONCE: u64 = 8 * 86_400_000;
/// With `writes = "newest"`: longer than any frame is under way.
pub const TOMBSTONE_MS_NEWEST: u64 = 3_600_000;
/// A checkpoint replaces the log when this has twice what the checkpoint would have, and so many packs' worth beside.
pub const SAVE_PACKS: u64 = 2;
/// About what a checkpoint has of an entry whose bytes lie in a pack.
pub const RECORD_BYTES: u64 = 128;
/// About what a checkpoint has of a deletion that is over.
pub const GRAVE_RECORD_BYTES: u64 = 40;
/// Entries in one record of a checkpoint.
pub const BATCH_ROWS: usize = 512;
/// Entries of which a checkpoint has records made in one turn, four times a second: some ten milliseconds.
pub const SAVE_ENTRIES: usize = 1 << 14;

/// In a cluster of fewer nodes all are asked who has an object: that is a round trip less, and no more frames than by way of a directory.
pub const DIRECTORIES_FROM: usize = 8;
/// A manager has so long to say, for a list, who has objects of an owner: it asks all nodes whether that is all, and then it is late to ask
/// them anyway. Of one object it has [`LOOK_FOR`].
pub const LIST_WHERE_FOR: Span = Span::millis(100);
/// Owners in the directories of a node, 200 bytes each or so. What has no room makes its bucket partial: all nodes are asked there.
pub const DIRECTORY_OWNERS_MAX: usize = 1 << 18;
/// Owners that are looked at in one turn, four times a second, when a node went that had told of some: some milliseconds.
pub const DIRECTORY_LOOKS: usize = 1 << 14;
/// Owners in one frame of what a node tells a manager: 64 KiB at most.
pub const FEED_ITEMS: usize = 256;
/// Changes that a manager has not heard of. With more of them it is told everything anew.
pub const FEED_CHANGES_MAX: usize = 1 << 16;
/// Rounds of a manager begin so far apart: lists that are asked for meanwhile share the next one. Less than anybody sees.
pub const ROUND_EVERY: Span = Span::millis(4);
/// Questions at a manager that wait for a round.
pub const ASKED_MAX: usize = 8192;

const _: () = assert!(PIECE_BYTES + (64 << 10) < FRAME_BYTES_MAX, "a piece travels in one frame");
const _: () = assert!(SHIP_AGAIN.as_micros() * 4 < SHIP_SILENT.as_micros(), "it is sent again before it is given up");
const _: () = assert!(OBJECT_BYTES_MAX as u64 * 2 < STAGED_BYTES_MAX, "several objects may be on their way");
const _: () = assert!(SPREAD >= COPIES, "an owner's nodes have room for all copies");
const _: () =
    assert!(REPAIR_AFTER.as_micros() * 100 < AWAY_FOR.as_micros(), "its copies are elsewhere before it is gone");
const _: () = assert!(SILENT_FOR.as_micros() < PUSH_AFTER.as_micros(), "whoever asks is first to see to it");

/// A question about changes waits for some so long.
pub const WATCH_HOLD: Span = Span::secs(10);
/// When one node has told some, others have so long to tell theirs in the same answer.
pub const WATCH_GATHER: Span = Span::millis(20);
/// Nodes look so often whether there is something to tell: what changed meanwhile is told together. Less than anybody sees.
pub const WATCH_EVERY: Span = Span::millis(5);
/// Changes in one answer of a node, and entries that it looks at for them: a turn of some milliseconds.
pub const WATCH_ITEMS: usize = 256;
pub const WATCH_SCAN: usize = 1 << 14;
/// Watchers that wait at a node. More are not heard: they ask again.
pub const WATCHERS_MAX: usize = 4096;
/// A node keeps the order in which it took things for so long after somebody watched; to have it again is a walk over all.
pub const WATCH_ORDER_KEPT: Span = Span::secs(60);
/// Nodes in a cursor.
pub const CURSOR_NODES_MAX: usize = 1024;
/// Whoever watched a node's former life so long ago may have missed deletions that are forgotten since (`once`, `newest`).
pub const WATCH_AWAY_MS_ONCE: u64 = TOMBSTONE_MS_ONCE - 86_400_000;
pub const WATCH_AWAY_MS_NEWEST: u64 = TOMBSTONE_MS_NEWEST / 2;

/// Objects that are read at once while a namespace is dumped.
pub const DUMP_GETS: usize = 8;
