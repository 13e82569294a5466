//! The host's numbers, each with its reason.

use std::time::Duration;

use base::limits::FRAME_BYTES_MAX;

// --- certificates ---

/// A node's certificate. Who copied its key has it for so long at most; a node that is off for longer signs itself another one.
pub const CERTIFICATE_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// The authority's own. Who trusts an authority asks nothing of its end; a date is expected all the same.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 86_400);
/// A directory looks at it within minutes.
pub const PROOF_LIFE: Duration = Duration::from_secs(7 * 86_400);
/// Certificates begin so long before they are made, for clocks that are behind.
pub const CERTIFICATE_BACKDATED: Duration = Duration::from_secs(86_400);

// --- links ---

/// A peer's kernel answers a connection within a round trip; one that does not is no use to a cluster.
pub const CONNECT_WAIT: Duration = Duration::from_millis(300);
/// TLS and the hello: some milliseconds of computing on both sides, more when both cores are busy.
pub const HELLO_WAIT: Duration = Duration::from_secs(1);
/// Card and all of a hello. Cards are a few hundred bytes.
pub const HELLO_BYTES_MAX: usize = 64 << 10;
/// Read from a socket at once: 32 values of 8 KiB for one system call. One buffer for all links of a node.
pub const READ_BYTES: usize = 256 << 10;
/// Encrypted and written at once. More would make a control frame wait longer behind data; less costs system calls.
pub const WRITE_BYTES: usize = 256 << 10;
/// A larger frame goes in pieces, so that others go between them.
pub const LARGE_FRAME_BYTES: usize = 256 << 10;
/// Bytes of a piece; one goes with each write.
pub const PIECE_BYTES: usize = 128 << 10;
/// Bodies up to this size are copied next to their head: a copy is cheaper than another slice.
pub const COPY_BODY_BYTES: usize = 1024;
/// Data that waits for one peer. A peer that is this far behind is not served by more queue.
pub const DATA_QUEUE_BYTES_MAX: usize = 16 << 20;
/// Control frames that wait for one peer: data can never take this room.
pub const CONTROL_QUEUE_BYTES_MAX: usize = 16 << 20;
/// Two dials within this time crossed each other; a later one means that the other side has lost the older link.
pub const CROSSED_DIALS: Duration = Duration::from_secs(3);
/// How long the link that lost stays open, so that the other side has seen the winner before this one ends.
pub const LOSER_LINGERS: Duration = Duration::from_millis(500);
/// And how long its reader waits for the other side to close it.
pub const LOSER_READS: Duration = Duration::from_secs(10);
/// Unacknowledged bytes for this long end a link (TCP_USER_TIMEOUT). Membership is much faster; this frees the socket.
pub const USER_TIMEOUT_MS: u32 = 10_000;
/// Connections that have not said yet what they are for, of strangers and of members' addresses each. Each costs a socket. Ten
/// thousand a second of one address push out who is silent for 400 ms; who speaks at once takes a few.
pub const SILENT_MAX: usize = 4096;
/// Connections in their handshake at one time, of strangers and of members' addresses each. Each costs a socket and, once its first
/// words are there, a millisecond of computing: a second's worth of them.
pub const HANDSHAKES_MAX: usize = 1024;
/// Addresses of members that are known: more than a cluster has.
pub const MEMBERS_KNOWN_MAX: usize = 4096;
/// A crowd at a door has one in so many of the files that this process may have, so that it never takes those of others,
pub const CROWD_FILES_PART: usize = 8;
/// ... and so many in any case.
pub const CROWD_MIN: usize = 64;
/// Connections that the kernel keeps until they are accepted: a busy thread comes to them some tens of milliseconds later. (The
/// kernel takes less if `net.core.somaxconn` is less.)
pub const BACKLOG: i32 = 4096;
/// Newcomers that are answered at one time. Each costs a change of the root group.
pub const JOINS_MAX: usize = 64;
/// The five bytes that say what a connection is for come with the first packet.
pub const PREFACE_WAIT: Duration = Duration::from_secs(1);
/// At most one line about strangers in this time: whoever knocks does not fill the log.
pub const STRANGER_LINES: Duration = Duration::from_secs(1);

// --- front doors ---

/// Questions from other threads that wait for the core.
pub const ASKS_WAITING_MAX: usize = 1024;

// --- joining and tunnels ---

/// A whole join: connection, TLS, a change in the root group and its signature.
pub const JOIN_WAIT: Duration = Duration::from_secs(10);
/// A certificate request, or a grant: a few kilobytes of PEM.
pub const JOIN_BYTES_MAX: usize = 64 << 10;
/// Open tunnels into one node: as many connections as an edge is allowed to hold.
pub const TUNNELS_MAX: usize = 16_384;
/// Name of a tunnel's target.
pub const TARGET_BYTES_MAX: usize = 255;
/// A clone on this node's own address answers at once, or its queue is full.
pub const TARGET_CONNECT_WAIT: Duration = Duration::from_secs(1);
/// So much of what has come is passed on with one write, per tunnel and direction: four of TLS's largest records, as each
/// write is a call and wakes who reads. While nothing comes no room is held.
pub const TUNNEL_BUFFER_BYTES: usize = 64 << 10;
/// One read of sealed bytes at first, and while much comes.
pub const TUNNEL_READ_BYTES: usize = 16 << 10;
pub const TUNNEL_READ_BYTES_MAX: usize = 64 << 10;
/// Who has said less than this has said all, mostly: it is passed on before more is asked for.
pub const TUNNEL_MORE_BYTES: usize = 8 << 10;
/// After a clone's connection broke, what its edge still sends is read for so long, or the edge would lose what came before.
pub const TUNNEL_LINGERS: Duration = Duration::from_secs(1);

// --- disk ---

/// A full disk is tried again after this: somebody may have made room, or a snapshot has.
pub const FULL_DISK_AGAIN: Duration = Duration::from_millis(500);
/// Bytes that wait to be written. A disk this far behind is broken, and crash-only says what to do then.
pub const DISK_QUEUE_BYTES_MAX: usize = 256 << 20;
/// Largest batch in the log. A batch is what was waiting when the disk became free.
pub const BATCH_BYTES_MAX: usize = 64 << 20;
/// A segment of the log ends with the batch that passes this. Small enough to be given back soon, large enough that a new
/// one (some milliseconds) is rare.
pub const SEGMENT_BYTES: usize = 32 << 20;
/// An old segment of which no more than such a part is needed is written anew without the rest.
pub const CLEAN_PART: u64 = 8;
/// When nothing comes for so long that would say that the last batch was forced, the seal does. Until then damage of just that batch
/// passes for the end that a crash cut short; at once it would cost each batch a second write.
pub const SEAL_AFTER: Duration = Duration::from_millis(5);
/// So much of a snapshot is forced at once; what the log forces meanwhile waits for no more than that (some milliseconds).
pub const FORCED_BYTES: usize = 1 << 20;
/// It rests after that for as long as it took, but no longer than this: a slow disk is no reason not to end.
pub const REST_MAX: Duration = Duration::from_millis(50);

/// Threads that read packs: a slow read holds up one of them.
pub const PACK_READERS: usize = 2;

// --- deployed folders ---

/// A version's archive. It is in memory while it travels, and on every node's disk.
pub const CODE_BYTES_MAX: u64 = 256 << 20;
/// Parts of a path in a version. Each level of a deep path costs a look at all levels above it.
pub const CODE_DEPTH_MAX: usize = 64;
/// Links on the way to a file, as many as the kernel follows.
pub const LINKS_MAX: usize = 40;
/// Parts of that way, those of links too: no archive makes a node look for minutes.
pub const LINK_PARTS_MAX: usize = 512;
/// Files and folders of a version: a program with its packages has 5,000 to 50,000. Each takes some 20 microseconds to make.
/// Programs from before took 20,000.
pub const CODE_FILES_MAX: usize = 120_000;
/// Path of a file, relative to its folder.
pub const CODE_PATH_BYTES_MAX: usize = 1024;
/// An archive that nobody declares is kept for so long: its deploy may be under way.
pub const CODE_UNUSED_KEPT: Duration = Duration::from_secs(600);

// --- processes ---

/// A line of output; what is longer is cut.
pub const LINE_BYTES_MAX: usize = 4 << 10;
/// Lines a second that reach the machine, per child; all of them reach the log file.
pub const LINES_PER_SECOND_MAX: u32 = 100;
/// Log file of a child; when full it becomes `.1`, and the former `.1` goes.
pub const LOG_FILE_BYTES_MAX: u64 = 4 << 20;
/// First piece that is read of a log file, from its end; then four times as much, until it is enough.
pub const LOG_READ_BYTES: u64 = 64 << 10;
/// Lines in one answer about logs, with their text: what is more is asked for again.
pub const LOG_ANSWER_BYTES_MAX: usize = 4 << 20;
/// A line of an access log; its parts are cut at the edge so that it has room.
pub const ACCESS_LINE_BYTES_MAX: usize = 32 << 10;
const _: () = assert!((ACCESS_LINE_BYTES_MAX as u64) * 64 < LOG_FILE_BYTES_MAX, "a file has many lines");
/// Lines that wait for the log thread; more are dropped, and a line of the log says how many.
pub const LOG_LINES_WAITING_MAX: usize = 4096;
/// Output may be read for this long after a child has ended; whoever still holds its pipe is not the child.
pub const OUTPUT_LINGERS: Duration = Duration::from_millis(200);
/// Answer to a health probe: only its status line is read.
pub const PROBE_ANSWER_BYTES_MAX: usize = 256;
/// First port given to children; the last is below those the kernel gives to outgoing connections.
pub const CHILD_PORT_FIRST: u16 = 10_240;
/// Tries before any free port will do.
pub const CHILD_PORT_TRIES: u32 = 64;

const _: () = assert!(FRAME_BYTES_MAX < 2 * DATA_QUEUE_BYTES_MAX, "a frame must fit into an empty queue");
const _: () = assert!(HELLO_BYTES_MAX < FRAME_BYTES_MAX, "a hello is a frame");
/// Clones that have ended after which is cleared away in one go.
pub const LEFT_AT_ONCE: usize = 256;
