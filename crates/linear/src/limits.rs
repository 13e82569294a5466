//! Numbers of the `linear` class, with units and reasons.

use base::Span;
use cluster::raft::LogBounds;

/// Largest value, bytes: of a text, or of all that a hash, list or set holds (state.md, rule 4; room for a frame's head).
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Largest command, bytes: it must fit into one frame, as a call and as an entry.
pub const COMMAND_BYTES_MAX: usize = VALUE_BYTES_MAX + (16 << 10);
/// Longest key, bytes. Each stands in every change that is told and in orders of keys, so it is far from what a value may have.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// From this level on; before as many as in any class.
pub const LONG_KEYS_LEVEL: u32 = 15;
/// Shards of one namespace: each costs a log entry and some memory on its nodes.
pub const SHARDS_MAX: u32 = 256;
/// Steps of one transaction: they are done in one turn, so while small ones take their tens of milliseconds nothing else is done.
pub const STEPS_MAX: usize = 16_384;
/// Keys in one answer of a scan.
pub const SCAN_KEYS_MAX: u64 = 1_000;
/// Cursors of walks are up to this: some clients take a cursor for what JavaScript has for numbers, which is true up to 2^53.
pub const WALK_CURSORS_MAX: u64 = (1 << 52) + 1;
/// Keys that one page of a walk looks at, whatever fits: a millisecond.
pub const WALK_LOOKED_MAX: usize = 4_096;
/// Keys that come into their order with each page that is asked for while it is made: some milliseconds.
pub const WALK_GROWS: usize = 4_096;
/// The order of keys is forgotten when nobody has walked through them for so long, milliseconds by the group's clock: it takes 60 bytes a key.
pub const WALK_KEPT_MS: u64 = 600_000;
/// Names of a collection in their order are kept for the next page from so many on; fewer are sorted as quickly.
pub const WALK_PLACED_MIN: usize = 256;
/// Pages of a walk through one collection, but for small ones: where others change it meanwhile, each page looks at all of it.
pub const WALK_PAGES_MAX: usize = 64;
/// Items of one answer that are drawn each anew: there may be more of them than there are items.
pub const DRAWN_AGAIN_MAX: usize = 16_384;
/// Items of all sorted sets that one function combines, those counted again that are named again: it takes a second or two at most, and
/// no result would be larger.
pub const COMBINED_MAX: usize = 1 << 21;
/// Pairs of bytes of two texts that are compared for what they have in common: 64 MiB of memory, and a tenth of a second.
pub const COMMON_CELLS_MAX: usize = 1 << 24;
/// Folders of a ledger ...
pub const LEDGER_FOLDERS_MAX: usize = 1_000;
/// ... bytes of the name of one, or of a keyword: IMAP's clients make no longer ones ...
pub const LEDGER_NAME_BYTES_MAX: usize = 512;
/// ... keywords: one for each mark that has a name ...
pub const LEDGER_KEYWORDS_MAX: usize = 55;
/// ... and removals of a folder that it can still tell: who asks for older changes reads the list.
pub const LEDGER_REMOVED_KEPT: usize = 4_096;
/// Items that are added in one call: an entry stays under 64 KiB.
pub const LEDGER_ADDS_MAX: usize = 512;
/// Items that one call marks, copies, moves or removes. Its answer says where to go on, and is kept for who asks again.
pub const LEDGER_STEP_MAX: usize = 1_024;
/// ... that the deletion of a folder removes in one call: 10 ms.
pub const LEDGER_DELETED_AT_ONCE: usize = 4_096;
/// Ranges of numbers that a call may name.
pub const LEDGER_RANGES_MAX: usize = 65_536;
/// An object that is gone and closed is forgotten after 8 days, as its tombstone is (class `object`) ...
pub const LEDGER_GONE_MS: u64 = 8 * 86_400_000;
/// ... or when there are more than so many ...
pub const LEDGER_GONE_KEPT: usize = 4_096;
/// ... not before this, milliseconds: longer than a call that adds it may be on its way.
pub const LEDGER_FORGET_MS: u64 = 600_000;
/// Numbers and changes that are left out after an older state was loaded: more than were given since.
pub const LEDGER_SKIP: u64 = 1_000_000;
/// Payload of a job, bytes: larger things are objects, and a job has their id. An answer with one is kept for who asks again.
pub const QUEUE_PAYLOAD_BYTES_MAX: usize = 60 << 10;
/// What a job counts beside its payload, and what its worker said of it: it stands in three or four orders ...
pub const QUEUE_JOB_BYTES: usize = 128;
/// ... and a key that is remembered.
pub const QUEUE_KNOWN_BYTES: usize = 96;
/// Keys that a queue remembers: they are 10 MiB of its 16 at most, if they are short.
pub const QUEUE_KEYS_MAX: usize = 65_536;
/// Bytes of one.
pub const QUEUE_KEY_BYTES_MAX: usize = 256;
/// Time that a key of a put is remembered, an hour, unless who puts says otherwise ...
pub const QUEUE_KEPT_MS: u64 = 3_600_000;
/// ... and for a week at most: whoever asks again does so by then.
pub const QUEUE_KEPT_MAX_MS: u64 = 7 * 86_400_000;
/// Keys whose time is over that are forgotten with each new one: more go than come.
pub const QUEUE_KEYS_FORGOTTEN: usize = 4;
/// A job may come so much later: a year.
pub const QUEUE_DELAY_MAX_MS: u64 = 366 * 86_400_000;
/// How often a job is given, unless who puts it says otherwise: with the rests between, half a minute of failures and more ...
pub const QUEUE_TRIES: u32 = 5;
/// ... and at most.
pub const QUEUE_TRIES_MAX: u32 = 1_000;
/// After its first failure a job rests for so long, and for twice as long after each other one ...
pub const QUEUE_BACKOFF_MS: u64 = 1_000;
/// ... up to this.
pub const QUEUE_BACKOFF_MAX_MS: u64 = 3_600_000;
/// A worker has a job for a day at most before it renews: of one that died nothing is known until then.
pub const QUEUE_HOLD_MAX_MS: u64 = 86_400_000;
/// Jobs that one call takes, ...
pub const QUEUE_TAKEN_MAX: u64 = 100;
/// ... with so many bytes of payloads, but for one that is larger alone.
pub const QUEUE_TAKEN_BYTES_MAX: usize = 48 << 10;
/// What a worker says of a failure, bytes; the rest is cut off.
pub const QUEUE_WHY_BYTES_MAX: usize = 1_024;
/// Dead jobs that one call puts back: some milliseconds. It says how many are left.
pub const QUEUE_RETRIED_MAX: usize = 1_000;
/// Repeats of a queue: each is looked at when something is due.
pub const QUEUE_REPEATS_MAX: usize = 100;
/// Bytes of the name of one.
pub const QUEUE_NAME_BYTES_MAX: usize = 256;
/// A repeat comes every second at most.
pub const QUEUE_EVERY_MIN_MS: u64 = 1_000;
/// The wall clock is heard anew if it differs by so much, milliseconds ...
pub const QUEUE_WALL_MS: u64 = 1_000;
/// ... and was not heard for so long: doors whose clocks differ would else write for ever.
pub const QUEUE_WALL_HEARD_MS: u64 = 60_000;
/// Queues of a shard: all are shown at once, and each is looked at for metrics.
pub const QUEUES_MAX: usize = 1_000;
/// Queues that a node tells the others of each second, of all groups that it leads: 6 KiB.
pub const QUEUES_TOLD_MAX: usize = 64;
/// Bytes of replies in one answer: the largest value, and what is told beside it.
pub const ANSWER_BYTES_MAX: usize = VALUE_BYTES_MAX + (32 << 10);

/// Commands of one node that wait for answers. More are refused: no client needs more.
pub const CALLS_MAX: usize = 16_384;
/// ... and bytes of them: 16 of the largest.
pub const CALLS_BYTES_MAX: usize = 16 * COMMAND_BYTES_MAX;
/// Commands that a leader remembers to have turned away, of all nodes.
pub const TURNED_MAX: usize = 4 * CALLS_MAX;
/// Commands of weak operations on one key that one node has under way before it gathers more: as a leader's entries.
pub const TOGETHER_FLYING_MAX: usize = BATCHES_FLYING_MAX;
/// Weak operations on one key that are one command: more go beside it.
pub const TOGETHER_MAX: usize = 4_096;
/// ... and bytes of their arguments: one such command must not hold up others.
pub const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// Commands that wait at one group's leader to be put into its log.
pub const QUEUE_MAX: usize = 16_384;
/// ... and bytes of them, with which there is no room for one more: what a slow disk takes in a second.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// While the oldest of them has waited for longer than this, those that matter least are turned away: several fsyncs of a slow disk.
pub const QUEUE_WAIT: Span = Span::millis(100);
/// Retry hint of what is refused for lack of room or of a leader.
pub const RETRY_AFTER: Span = Span::millis(200);
/// Bytes of commands in one entry, but for one that is larger alone.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// A command of more bytes goes into the log in pieces: what is behind it waits for 20 ms already ...
pub const WHOLE_BYTES_MAX: usize = 512 << 10;
/// ... of so many bytes: as much as one message of a group takes at once ...
pub const PIECE_BYTES: usize = 256 << 10;
/// ... of which so many are not applied yet: as much as one entry has else. With less the largest command would take a slow disk seconds.
pub const PIECES_FLYING_MAX: usize = 4;
/// Entries of a leader that are not applied yet. With one the disk would rest while the others are asked; with many, each
/// would be small and cost as much as a large one.
pub const BATCHES_FLYING_MAX: usize = 2;
/// Who has read a key with `hold` keeps other writers of it waiting for at most so long: a little more than the program of a
/// service may take to compute.
pub const HOLD_MAX: Span = Span::millis(1_100);
/// Answers kept of one node's commands, so that a retry finds them. As many as it may have under way.
pub const ANSWERS_KEPT_MAX: usize = CALLS_MAX;

/// What a leader has lent to have scripts run is forgotten after so long: longer than one script may take, shorter than its caller waits.
pub const LENT_MAX: Span = Span::millis(3_500);
/// Transactions with scripts that one loan takes along.
pub const SCRIPTS_AT_ONCE: usize = 256;
/// Changes of one script, or of all in a transaction: what a group applies in well under a second ...
pub const SCRIPT_STEPS_MAX: usize = 65_536;
/// ... and bytes of them, ...
pub const SCRIPT_BYTES_MAX: usize = 8 << 20;
/// ... and of what it answers: together they fit into one command.
pub const SCRIPT_ANSWER_BYTES_MAX: usize = 7 << 20;

/// What came of a write with a caller's id is kept for so long: longer than anybody waits before asking again.
pub const ONCE_KEPT: Span = Span::secs(300);
/// So many are kept in one group: 870 a second for all the time; of more, those before are forgotten sooner.
pub const ONCES_MAX: usize = 262_144;
/// ... and bytes of them.
pub const ONCES_BYTES_MAX: usize = 64 << 20;
/// Stretches of time of which it is known that something was forgotten.
pub const ONCES_CLOSED_MAX: usize = 256;
/// A larger answer is not kept: a retry is told that it was done.
pub const ONCE_ANSWER_BYTES_MAX: usize = 64 << 10;

/// Without an answer for so long a call is sent again: a leader answers within a fsync or two.
pub const CALL_AGAIN: Span = Span::millis(300);
/// ... and so much for each MiB of it: a slow disk takes 10 MiB a second.
pub const CALL_AGAIN_MIB: Span = Span::millis(100);
/// Likewise one of more bytes, when its leader has no room for it.
pub const LARGE_CALL_BYTES: usize = 256 << 10;
/// Nobody is known to lead, or who was asked does not: look again after this.
pub const CALL_SOON: Span = Span::millis(20);
/// After the leader's death each member stands for election after a random part of this, so that mostly one does.
pub const CAMPAIGN_WITHIN: Span = Span::millis(120);
/// Who led before a split stands for election in the new group so often, each time after the above: the others have yet to
/// write down what it begins with.
pub const STANDS_MAX: u32 = 40;
/// A group is not woken again sooner than this: what cannot be done now is not done by asking all the time.
pub const WAKE_AGAIN_MIN: Span = Span::millis(2);
/// A leader with nothing to do lets its group sleep after so many ticks.
pub const AWAKE_TICKS: u32 = 10;
/// A leader that another member should lead instead of waits so long before it hands over, and after each try twice as long: the
/// other one may just have come back, and writes wait while the lead goes over.
pub const HAND_OVER_AFTER: Span = Span::secs(5);
/// Tries, until something changes.
pub const HAND_OVER_TRIES: u32 = 3;
/// A member away for so long is replaced if another node is at hand: longer than a reboot of a process, shorter than the
/// wait for a second failure.
pub const MEMBER_AWAY_MAX: Span = Span::secs(30);
/// A node that is not wanted in a group any more keeps its copy until the group's leader says that the group is without it, and
/// asks for that so often.
pub const LEAVES_AGAIN: Span = Span::millis(500);
/// While keys are to end the leader writes its clock at least so often: if all members are restarted, they last so much longer at most.
pub const CLOCK_WRITTEN: Span = Span::secs(60);
/// Keys whose time has come that one entry removes; the others look absent already.
pub const EXPIRED_AT_ONCE: usize = 1_000;

/// A group with more keys than this is split, if its namespace says `shards = "auto"`: members take their
/// halves out between two entries, which takes about 0.1 s for so many.
pub const SPLIT_KEYS: usize = 1_000_000;
/// ... or with more bytes: the new group begins when a majority has its half on disk, and some of that is written in well
/// under a second.
pub const SPLIT_BYTES: usize = 256 << 20;

/// Keys that are looked at to see if a split would divide them; at least these, if there are so many.
pub const SPLIT_SAMPLE: usize = 64;

/// A copy of a shard that is being dumped is kept at its leader for so long after each page: whoever reads it writes a
/// page to a disk meanwhile, at a pace.
pub const DUMP_KEPT: Span = Span::secs(30);
/// ... and for so long after the last page, which may have to be sent again.
pub const DUMP_ENDS: Span = Span::secs(2);
/// Such copies of one group: each keeps alive what was changed since.
pub const DUMPS_MAX: usize = 4;
/// Scripts that a shard keeps by their digests; the one that came first goes for a new one ...
pub const SCRIPTS_KEPT_MAX: usize = 10_000;
/// ... and bytes of them.
pub const SCRIPTS_KEPT_BYTES_MAX: usize = 16 << 20;
/// A longer script is not kept: whoever asks for it by its digest may have to send it again. It goes into the log with what a script
/// changes.
pub const SCRIPT_KEPT_MAX: usize = 1 << 20;
/// Libraries of functions that a namespace has at most ...
pub const LIBRARIES_MAX: usize = 1_000;
/// ... and bytes of them: all are one answer.
pub const LIBRARIES_BYTES_MAX: usize = 4 << 20;
/// Bytes of a page of a dump, but for a key that is larger alone: a leader reads it out in one step, and who came meanwhile waits.
pub const DUMP_PAGE_BYTES: usize = 64 << 10;
/// Versions that are loaded are no higher: there is room for as many above.
pub const VERSION_LOADED_MAX: u64 = 1 << 60;

/// Changes that a group's members keep for those who watch: about 6 s of a busy group, a day of a quiet one.
pub const HISTORY_CHANGES_MAX: usize = 65_536;
/// Bytes of them. Values that are still there are shared with it.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// A text that is longer is not kept with its change: whoever watches reads it.
pub const HISTORY_VALUE_BYTES_MAX: usize = 64 << 10;
/// Changes in one answer to who watches ...
pub const PAGE_CHANGES_MAX: usize = 1_000;
/// ... and bytes of them.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Operations that wait at one group's leader, and of one node: more are refused.
pub const WAITS_MAX: usize = 4_096;
/// A leader answers who waits for changes after so long, even if there are none: so both know that the other is there.
pub const WATCH_HOLD: Span = Span::secs(10);

/// So many records that a start reads few.
pub const LOG: LogBounds = LogBounds { records_max: 1_000_000, bytes_max: 64 << 20, entries_kept: 1_024 };
/// Proposed but not committed bytes at a leader.
pub const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// About so many bytes of a snapshot in one part.
pub const PART_BYTES: usize = 256 << 10;

const _: () =
    assert!(COMMAND_BYTES_MAX + (16 << 10) <= base::limits::FRAME_BYTES_MAX, "a command must fit into a frame");
const _: () =
    assert!(ANSWER_BYTES_MAX + (16 << 10) <= base::limits::FRAME_BYTES_MAX, "an answer must fit into a frame");
const _: () =
    assert!(LEDGER_STEP_MAX * (11 + 44) + 1_024 <= ONCE_ANSWER_BYTES_MAX, "numbers and objects of a step are kept");
const _: () = assert!(LEDGER_FORGET_MS < LEDGER_GONE_MS, "too many are forgotten sooner");
const _: () =
    assert!(SCRIPT_BYTES_MAX + SCRIPT_ANSWER_BYTES_MAX < COMMAND_BYTES_MAX, "what a script did is one command");
const _: () = assert!(BATCH_BYTES_MAX as u64 <= UNCOMMITTED_BYTES_MAX, "a batch must be proposable");
const _: () = assert!(HISTORY_VALUE_BYTES_MAX < PAGE_BYTES_MAX, "a change fits into a page");
const _: () = assert!(WAITS_MAX < CALLS_MAX, "those that wait leave room for those that do not");

/// Hot keys are counted anew after so long: what is shown is what was hot in the last two of these.
pub const HEAT_SPAN: Span = Span::secs(2);
/// Commands a second from which on a key is called hot: one that is written so often is worth a look.
pub const HOT_MIN: u64 = 100;
/// Groups in one report that are not as they should be: a few are enough to know that one has to wait.
pub const UNWHOLE_TOLD_MAX: usize = 256;
/// Hot keys that are shown of a member of a group.
pub const HOT_SHOWN: usize = 8;
/// From one event to the next two clocks part by no more than this, by rounding, unless one was set or stood still.
pub const CLOCKS_PART_MS: u64 = 2;
