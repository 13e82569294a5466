//! Numbers of the RESP front door, with units and reasons.

use std::time::Duration;

use base::Span;
use base::limits::SESSION_VALUE_BYTES_MAX;
use flow::limit::Bounds;
use flow::stage::Shape;

/// Arguments of one command, as many as Redis takes. A count is believed only up to here, before anything is reserved; where each
/// argument lies takes 8 bytes, and the argument 6 at least.
pub const ARGS_MAX: usize = 1 << 20;
/// Arguments that are one operation, an MSET of 8191 pairs, say: of more, a command is worked off in slices (`slices.rs`) ...
pub const ARGS_WHOLE_MAX: usize = 16 << 10;
/// ... of so many arguments: what a turn has done in a few milliseconds ...
pub const SLICE_ARGS: usize = 8 << 10;
/// ... and of so many bytes, unless one alone has more. A command of more than [`WHOLE_BYTES_MAX`] is cut, too, if it can be.
pub const SLICE_BYTES: usize = 4 << 20;
pub const WHOLE_BYTES_MAX: usize = 16 << 20;
const _: () = assert!(SLICE_ARGS <= state::linear::limits::STEPS_MAX, "a slice is one operation");
/// Longest argument after AUTH: the largest value of any class. What the namespace's class refuses, it refuses itself.
pub const ARG_BYTES_MAX: usize = 16 << 20;
/// One whole command after AUTH. It must be in memory at once; one of more than [`WHOLE_BYTES_MAX`] is done only if it can be cut.
pub const COMMAND_BYTES_MAX: usize = 128 << 20;
/// Bytes of commands that are being worked off in slices, of all connections of a node. Past it one is refused, and nothing of it is done.
pub const WIDE_BYTES_ALL_MAX: usize = 256 << 20;
/// Longest argument, and longest command, of someone who has not said who they are.
pub const STRANGER_BYTES_MAX: usize = 64 << 10;
/// Arguments of a stranger's command: HELLO with AUTH and SETNAME has 7.
pub const STRANGER_ARGS_MAX: usize = 16;
/// Longest inline command (typed by hand into telnet). Browsers send longer lines, and get no further than this.
pub const INLINE_BYTES_MAX: usize = 256;
/// Longest `*N` or `$N` line: 20 digits, sign, type and line end.
pub const COUNT_LINE_BYTES_MAX: usize = 32;

/// First read of a connection, bytes. Most commands are small.
pub const READ_BYTES_MIN: usize = 1 << 10;
/// Largest buffer for pipelined reads. A value shares it if it is at least a [`PIN_SHARE`]th of it, so this also bounds
/// what a kept value may hold on to: 8 KiB values are not copied, and hold at most 32 KiB.
pub const READ_BYTES_MAX: usize = 32 << 10;
/// A value smaller than this share of its read buffer is copied out, so that it does not keep the whole buffer alive.
pub const PIN_SHARE: usize = 4;
/// A big argument's room is reserved in steps of at most this, as its bytes come: an announced length costs nothing.
pub const READ_STEP_BYTES_MAX: usize = 1 << 20;
/// Bytes of unfinished commands of all connections of a node. Past it, a connection whose command needs more than
/// [`READ_BYTES_MAX`] is refused and closed.
pub const READ_BYTES_ALL_MAX: usize = 256 << 20;
/// The buffer of a large command that is not whole yet grows by so much at most.
pub const READ_GROWS_MAX: usize = 32 << 20;
const _: () = assert!(COMMAND_BYTES_MAX + 2 * READ_GROWS_MAX < READ_BYTES_ALL_MAX, "the largest has room, alone");
const _: () = assert!(COMMAND_BYTES_MAX < WIDE_BYTES_ALL_MAX, "there, too");

/// Commands of one connection that may be under way. Keeps two cores busy from one connection, and bounds what one client
/// may hold. Clients that pipeline more just wait.
pub const IN_FLIGHT_MAX: usize = 256;
/// ... and bytes of them, and of their answers, with which one more may still begin: of many small ones nobody notices, and a few of the largest
/// keep a connection as busy as many do.
pub const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;
/// Commands of a connection that are asked as one operation of class `linear`: a leader does them in a tenth of a
/// millisecond, and twice as many may be under way ...
pub const BATCH_COMMANDS_MAX: usize = 128;
/// ... and bytes with which one more may still join: an entry of the log is hardly cheaper for being larger ...
pub const BATCH_BYTES_MAX: usize = 64 << 10;
/// ... and steps.
pub const BATCH_STEPS_MAX: usize = 512;
/// So large the first answers of a connection are taken to be, and each small one halves that: a client that reads large values
/// has few under way from then on, and behind a slow one not all of 256 of them come into memory.
pub const ANSWER_BYTES_FIRST: usize = 1 << 20;
/// Operations of class `session`. 128 started in a turn take two milliseconds: no connection, link or timer waits longer
/// for its turn. With 32, fifty busy connections waited for each other: a fifth less throughput, and twice the p99.
/// Waiting for 10 ms is overload: a brick then has its 60 ms, and both together are over before a person notices. Answers
/// within 10 ms are nobody's pain, though the quickest take a tenth of a millisecond. At the start as many as a brick's
/// window has.
pub const SESSION_STAGE: Shape = Shape {
    batch: 128,
    wait_target: Span::millis(10),
    queue_max: HELD_MAX,
    limit: Bounds { first: 512, min: 64, max: 16 << 10, tolerance_percent: 200, slack: Span::millis(10) },
};
/// Operations of class `linear`: each waits for disks, many at once share one write, and an election takes seconds.
pub const LINEAR_STAGE: Shape = Shape {
    batch: 32,
    wait_target: Span::millis(100),
    queue_max: HELD_MAX,
    limit: Bounds { first: 1024, min: 64, max: 16 << 10, tolerance_percent: 300, slack: Span::millis(100) },
};
/// Operations of class `cache`: a hash and perhaps a round trip, as those of class `session`.
pub const CACHE_STAGE: Shape = SESSION_STAGE;
/// How long one may take: a purge waits for the leases of a hung node, and for a majority of voters at most so long and a little.
pub const CACHE_BUDGET: Span = Span::millis(2500);
/// Operations of class `soft`: this node answers, and waits at most for one other to have what is written.
pub const SOFT_STAGE: Shape = Shape {
    batch: 128,
    wait_target: Span::millis(10),
    queue_max: HELD_MAX,
    limit: Bounds { first: 512, min: 64, max: 16 << 10, tolerance_percent: 200, slack: Span::millis(10) },
};
/// Places are kept free for a priority of which something came so lately.
pub const CAME_WITHIN: Span = Span::secs(1);
/// A connection with one in so many of the held operations makes the others wait, and waits itself instead of being
/// refused. Four connections with full pipelines ([`IN_FLIGHT_MAX`]) are about what 20 ms can do.
pub const MOSTLY: usize = 4;
/// With so many held for each connection that has any, it is long pipelines that others wait for: one more operation of
/// somebody with none is no burden beside them.
pub const CROWD: usize = 8;
/// Operations held at most. As long as time alone decides this is not reached: 16 Ki operations in 10 ms would be 1.6
/// million a second.
pub const HELD_MAX: usize = 16 << 10;
/// Keys of one command that are tracked one by one; a command with more runs alone.
pub const KEYS_TRACKED_MAX: usize = 32;
/// Operations that one command (MGET, DEL) runs at once.
pub const FAN_OUT_MAX: usize = 64;
/// Answer of one command. An MGET past it is an error that says to ask for fewer keys.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Answers of a connection that its client has not read: so much each connection may have whatever the others have. A client that
/// reads while it writes has less, however fast it is.
pub const UNREAD_BYTES_FREE: usize = 1 << 20;
/// ... and so much more, for clients that write a whole pipeline before they read: 60,000 values of 1,000 bytes. With that
/// unread nothing more is read from the client ...
pub const UNREAD_BYTES_SHARE: usize = 64 << 20;
/// ... nor with so much unread by all such clients of a node, of which a namespace may have as much as it leaves to others: as
/// much as their unfinished commands may have.
pub const UNREAD_BYTES_ALL_MAX: usize = READ_BYTES_ALL_MAX;
/// Who takes nothing for so long after that waits to be read from, and will not read before: it gets what is there, the
/// reason, and the end. A slow network takes something within this time, a person has not gone away yet.
pub const UNREAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Values from this size on are written from where they lie; smaller ones are copied, which costs less than a segment.
pub const OUT_SHARED_BYTES_MIN: usize = 2 << 10;
/// Small answers are gathered in chunks of this: one is given back as soon as it is written, and none is moved to grow.
pub const OUT_CHUNK_BYTES: usize = 64 << 10;
/// Segments of one `writev`.
pub const OUT_SEGMENTS_MAX: usize = 64;

/// Connections of one node that have said who they are. Each idle one costs a few hundred bytes and a file descriptor. When there
/// is no room, a namespace that has fewer than another one takes the oldest of that one's.
pub const CONNECTIONS_MAX: usize = 16 << 10;
const _: () = assert!(
    CONNECTIONS_MAX == state::class::limits::CONNECTIONS_MAX_MAX as usize,
    "what a namespace can be given is what there is"
);
/// ... and that have not: ten thousand a second push out who says nothing for most of a second, and who says at once who it is
/// takes some milliseconds.
pub const STRANGERS_MAX: usize = CONNECTIONS_MAX / 2;
/// A connection that has not authenticated by then is closed: pools connect early, but they say who they are.
pub const STRANGER_TIME_MAX: Duration = Duration::from_secs(30);
pub use crate::limits::HEAR_OUT;
/// Wrong passwords on one connection, then it is closed.
pub const WRONG_PASSWORDS_MAX: u32 = 8;
/// A client that takes too little of its answers in so long is gone: it has to take them all, or so many bytes (240 a second, as
/// at the HTTP edge), or this part of what is kept for it beyond what each may have: of 64 MiB it takes 70 kB a second. A
/// byte now and then would keep all of it for ever.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(60);
pub const STALL_BYTES_MIN: usize = 240 * STALL_TIME_MAX.as_secs() as usize;
pub const STALL_PART: usize = 16;
/// The kernel asks an idle client whether it is there, after so long.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);
/// TLS must be agreed on by then, as at the HTTP edge.
pub const HANDSHAKE_TIME_MAX: Duration = crate::limits::HANDSHAKE_TIME;
/// Clients on their way to the node's own thread, which takes them in a turn or two; others wait in their tasks.
pub const ARRIVALS_MAX: usize = 64;
/// Pause after `accept` failed (no descriptors left): the next attempt would fail the same way.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for one operation on a namespace. A brick is given 60 ms, so this allows for several attempts; clients wait longer.
pub const OP_BUDGET: Span = Span::millis(1000);
/// The same of class `soft`: longer than it takes to see that the only other node is dead, which is then waited for no more.
pub const SOFT_BUDGET: Span = Span::millis(3000);
/// A command that reads, changes and writes a value does so at most so often, and begins no other try after so long: with
/// a hundred writers of one key each is the fastest once.
pub const CHANGE_TRIES_MAX: usize = 200;
pub const CHANGE_TIME_MAX: Duration = Duration::from_millis(1500);
/// What INFO says of keys may be so old, as counting them may mean to walk them: exporters ask some times a minute.
pub const KEYSPACE_AGE_MAX: Duration = Duration::from_secs(10);
/// So long INFO waits for that at most, else it says what it knows: a node in trouble must be able to tell about itself.
pub const KEYSPACE_TIME_MAX: Duration = Duration::from_millis(500);
/// Where it could not be counted INFO asks again after so long, however many ask for it.
pub const KEYSPACE_TRIED_EVERY: Duration = Duration::from_secs(1);
/// COUNT of SCAN: at least, at most.
pub const SCAN_COUNT_MAX: u32 = 1000;
/// Longest name a client may give itself: queues put their own names into those of their workers' connections.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;
/// CLIENT PAUSE at most.
pub const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Doors of other nodes have so long to say what is asked of all: one that hangs does not hold up the others' answer for longer.
pub const DOORS_ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// While not all nodes know channels a door tries so often to hear others.
pub const DOORS_AGAIN: Duration = Duration::from_millis(200);
/// Questions to all doors that are open at once.
pub const DOORS_ASKED_MAX: usize = 64;
/// An answer of a door goes in parts of so many bytes ...
pub const DOORS_PART_BYTES: usize = 256 << 10;
/// ... and of all doors so much is kept: a line for each of 100,000 connections.
pub const DOORS_SAID_BYTES_MAX: usize = 64 << 20;
/// Longest pattern of keys and channels.
pub const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Steps of one comparison of a pattern with a key, beside two for each byte of that: what takes more does not fit. A page of a
/// scan takes some tens of milliseconds then, whatever the pattern.
pub const PATTERN_STEPS_MAX: usize = 16 << 10;

const _: () = assert!(SESSION_VALUE_BYTES_MAX <= ARG_BYTES_MAX, "a value that may be stored must be able to come in");
const _: () = assert!(ARG_BYTES_MAX < COMMAND_BYTES_MAX, "the largest argument must fit into a command");
const _: () = assert!(UNREAD_BYTES_SHARE * 4 <= UNREAD_BYTES_ALL_MAX, "no few clients take what others need");
const _: () =
    assert!(UNREAD_TIME_MAX.as_secs() < STALL_TIME_MAX.as_secs(), "the reason comes before the end without one");
const _: () = assert!(READ_BYTES_MIN < READ_BYTES_MAX, "buffers grow");
const _: () = assert!(SESSION_STAGE.wait_target.0 < OP_BUDGET.0, "what is held must have time left");
const _: () = assert!(CACHE_STAGE.wait_target.0 < CACHE_BUDGET.0, "what is held must have time left");
const _: () = assert!(SOFT_STAGE.wait_target.0 < SOFT_BUDGET.0, "what is held must have time left");
const _: () = assert!(LINEAR_STAGE.wait_target.0 < LINEAR_BUDGET.0, "what is held must have time left");
const _: () = assert!(KEYS_TRACKED_MAX <= FAN_OUT_MAX, "a tracked command's operations all start at once");

/// Clients of a node that wait for an item of a list. Each costs a question to the list's leader.
pub const BLOCKED_MAX: usize = 1024;
/// Keys that one of them waits for.
pub const BLOCKED_KEYS_MAX: usize = 256;
/// ... and bytes of them, but for one alone: a node may have [`BLOCKED_MAX`] times as much for it.
pub const BLOCKED_KEYS_BYTES_MAX: usize = 128 << 10;
/// Keys that all of them wait for, or did lately, of which a leader tells when they change.
pub const QUESTIONS_MAX: usize = 2048;
/// Who waits for more looks at them, so often.
pub const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// So long a leader may have a question that nobody here waits for any more: until it is answered without a change, and a little.
pub const QUESTION_KEPT: Duration = Duration::from_secs(12);
/// An item that was taken for a client that had gone is tried to be put back so often, 200 ms apart.
pub const PUT_BACK_TRIES_MAX: usize = 25;
/// Keys in one answer to KEYS, which is made whole in memory.
pub const KEYS_LISTED_MAX: usize = 65_536;
/// Commands between MULTI and EXEC hold so many bytes at most. What the class takes is less.
pub const MULTI_BYTES_MAX: usize = 32 << 20;
/// Keys that one client watches.
pub const WATCHED_MAX: usize = 1024;
/// ... and bytes of them.
pub const WATCHED_BYTES_MAX: usize = 512 << 10;
/// Cursors of SCAN in class `linear` that a node remembers, while not all have the level of those that need no memory: each is a key. The
/// oldest is forgotten first.
pub const CURSORS_MAX: usize = 4096;
/// How old what is read may be after READONLY, unless the client says.
pub const STALE_DEFAULT: Span = Span::millis(1000);
/// Time for an operation of class `linear`: a leader that hangs is known after under 3 s, and another one elected.
pub const LINEAR_BUDGET: Span = Span::secs(4);

const _: () = assert!(
    QUESTION_KEPT.as_millis() as u64 > state::linear::limits::WATCH_HOLD.as_millis(),
    "a question that is forgotten is over"
);

/// Channels that one client listens to, and as many shard channels. What a node tells others of them is bounded, too (`channels`).
pub const CHANNELS_MAX: usize = 100_000;
/// Patterns of one client: each is compared with each message of its namespace.
pub const PATTERNS_MAX: usize = 1024;
/// Different patterns of one namespace at a node: each message of the namespace is compared with all, on the thread of the node.
pub const PATTERNS_OF_SPACE_MAX: usize = 8192;
/// Names that clients of a node listen to, with 64 bytes for each.
pub const NAMES_BYTES_ALL_MAX: usize = 256 << 20;
/// Messages that wait for a client that does not read: beyond it is closed ...
pub const HEARD_BYTES_MAX: usize = 8 << 20;
/// ... as is, with so much waiting for all, the one with most.
pub const HEARD_BYTES_ALL_MAX: usize = 256 << 20;
/// So much is under way to a client, in front of which later replies stand.
pub const PUSHED_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(PUSHED_BYTES_MAX < UNREAD_BYTES_FREE, "messages alone stop nothing from being read");
const _: () = assert!(channels::limits::MESSAGE_BYTES_MAX * 2 < HEARD_BYTES_MAX, "no single message closes a client");

/// Bytes of one line of MONITOR, about; of what is longer it says how much is left out.
pub const MONITOR_LINE_BYTES_MAX: usize = 64 << 10;

/// A command that takes so long is noted.
pub const SLOW_AFTER: Duration = Duration::from_millis(10);
/// Commands that took long are remembered, all namespaces of a node together.
pub const SLOW_MAX: usize = 1_024;
/// Bytes of what `RESTORE` and `FUNCTION RESTORE` take, when it is unpacked.
pub const DUMP_BYTES_MAX: usize = 16 << 20;
/// Items of one value that `RESTORE` takes (members, or fields and their texts): each takes 32 bytes beside its own while it is read.
pub const RESTORED_ITEMS_MAX: usize = 1_000_000;

const _: () = assert!(BATCH_STEPS_MAX <= state::linear::limits::STEPS_MAX, "a batch is one operation");
const _: () = assert!(BATCH_COMMANDS_MAX <= IN_FLIGHT_MAX, "a connection may have it under way");
