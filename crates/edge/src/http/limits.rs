//! Numbers of the HTTP door, with units and reasons.

use std::time::Duration;

use base::Span;
use clones::limits::{ANSWER_TIMEOUT_MAX, BODY_MAX_MAX};
use state::cache::limits::VALUE_BYTES_MAX;

pub use crate::limits::*;

/// Longest request line. 8 KiB is what nginx and Apache take, so nothing longer can rely on being carried.
pub const TARGET_BYTES_MAX: usize = 8 << 10;
/// Longest request head: room for the cookies and tokens of today, small enough that 1000 half-sent heads cost 64 MiB.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// What the library of HTTP/2 reads of a head: what is above the bound by no more is refused by us, with words. It
/// resets the stream, which clients take for a reason to try again.
pub const H2_HEAD_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
/// Fields in a head: what most servers and libraries take. Browsers send 20.
pub const FIELDS_MAX: usize = 100;
/// Trailer fields of a chunked request, bytes. They are checked and then dropped (RFC 9110 6.5.1 allows that).
pub const TRAILER_BYTES_MAX: usize = 8 << 10;
/// Size line of one chunk with its extensions, bytes. Nobody uses extensions but attackers.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Largest request body, unless the service says `body_max`: what a form upload may have, not what fills a disk by
/// accident.
pub const BODY_BYTES_MAX: u64 = 1 << 30;
/// A body up to here is kept, so that a request that may be repeated can be.
pub const REPLAY_BYTES_MAX: u64 = 64 << 10;

/// Bytes of an unread body that are still taken behind its answer so that the connection stays; with more the answer
/// says that it closes. A connection costs a client some round trips, in which about so much would have come.
pub const REST_BYTES_MAX: u64 = 64 << 10;
/// Interim answers (103) that wait for a client to take them, bytes. More are left out.
pub const INTERIM_BYTES_MAX: usize = 16 << 10;
/// A program that was told of a body may say so long that it wants none (RFC 9110 10.1.1); then the body is sent. curl
/// gives it as much.
pub const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// One read of a request's body, while a long one comes.
pub const BODY_READ_BYTES_MAX: usize = 64 << 10;
/// Heads and small parts that are gathered before they are written to a client. A part is small that is cheaper to copy
/// than to write beside others; so most answers leave in one write.
pub const OUT_BYTES_MAX: usize = 16 << 10;
pub const SMALL_PART_BYTES: usize = 4 << 10;
/// Longest head of a clone's answer: twice what a client may send, as programs are trusted more.
pub const ANSWER_HEAD_BYTES_MAX: usize = 128 << 10;
/// Room for heads and fields that waits for the next ones, and so much at most of a single one.
pub const HEAD_ROOM_BYTES: usize = 4 << 10;
/// One read from a clone: most answers fit in. While a long body fills it, twice as much each time, up to the second.
pub const CLONE_READ_BYTES: usize = 8 << 10;
pub const CLONE_READ_BYTES_MAX: usize = 64 << 10;

/// Open client connections. Beyond it newcomers are told to come again: memory is bounded, the others go on.
pub const CONNECTIONS_MAX: u64 = 20_000;

/// From a head's first byte to its last. A person on a bad line needs 2 s; slower is an attack.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// A kept-alive connection without a request. Browsers give up sooner.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// A request's body without a byte.
pub const BODY_IDLE: Duration = Duration::from_secs(30);
/// A client that takes nothing of its answer.
pub const WRITE_IDLE: Duration = Duration::from_secs(30);
/// After our last word we read what the client still sends, or it would lose the answer to a reset (RFC 9112 9.6).
pub const LINGER: Duration = Duration::from_secs(1);

/// Requests that one HTTP/2 connection may have open: what nginx allows, and more than browsers use.
pub const STREAMS_MAX: u32 = 128;
/// Bytes that a client may send of one body before the clone takes them, and of all bodies of a connection.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of an answer that wait for one stream's client.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Requests that a client may take back before their answer, when these are most of all that it sent: each costs a
/// clone a connection (rapid reset, CVE-2023-44487). Browsers take back single ones.
pub const TAKEN_BACK_MAX: u64 = 100;
/// Bytes of frames that move nothing (settings, pings, empty data): so many at once, and so many a second. An idle
/// client that pings each second needs 17.
pub const CONTROL_BYTES_MAX: u64 = 256 << 10;
pub const CONTROL_BYTES_PER_SECOND: u64 = 4 << 10;
/// What a request, or a part of a body or an answer, may bring along of such frames (window updates, mostly).
pub const CONTROL_BYTES_EACH: u64 = 128;
/// An HTTP/2 connection that is silent is asked whether it lives, and given up if it does not say so.
pub const PING_EVERY: Duration = Duration::from_secs(30);
pub const PING_TIME: Duration = Duration::from_secs(20);

/// An answer's body without a byte, unless the service says `idle_timeout`. Event streams send a comment now and then.
pub const ANSWER_IDLE: Duration = Duration::from_secs(300);
/// An upgraded connection (WebSocket) without a byte in either direction, with the same exception.
pub const UPGRADED_IDLE: Duration = Duration::from_secs(3600);
/// A stream of events is one after so long: by then an ordinary answer has come.
pub const EVENTS_LAST: Duration = Duration::from_secs(1);
/// Any other answer without a length is taken for one that will not end by itself soon: as long as one may take to
/// begin.
pub const ANSWER_LASTS: Duration = ANSWER_TIME;
/// How often one request is given to a clone that then fails it. More would turn one poisonous request into many
/// deaths.
pub const SENDS_MAX: u32 = 3;

/// Idle connections kept to one clone.
pub const IDLE_MAX: usize = 256;
/// An idle connection to a clone is closed after this: less than the 5 s after which common servers (Node) close
/// theirs.
pub const IDLE_TIME: Duration = Duration::from_secs(4);

/// An answer that can be validated is kept so much longer than it may be given: most pages are asked for again within
/// an hour.
pub const CACHED_UNASKED: Duration = Duration::from_secs(3600);
/// Longest body that is kept: with its head it is one value of class `cache`.
pub const CACHED_BODY_BYTES_MAX: usize = VALUE_BYTES_MAX - CACHED_HEAD_BYTES_MAX - 4096;
/// Longest head of an answer that is kept, and most fields of one: as of requests.
pub const CACHED_HEAD_BYTES_MAX: usize = 64 << 10;
pub const CACHED_FIELDS_MAX: usize = 256;
/// Names in `Vary` of an answer that is kept.
pub const CACHED_VARY_MAX: usize = 16;
/// Variants of an address that are kept beside the first: more are in each other's way.
pub const CACHED_VARIANTS: u16 = 64;
/// Bytes of bodies that are being read into caches at this node. More are passed on and not kept.
pub const CACHED_FILLING_BYTES_MAX: usize = 256 << 20;
/// Fetches that others wait for. More fetch without waiting.
pub const CACHED_FLIGHTS_MAX: usize = 4096;
/// Addresses known not to be kept, and for how long nobody waits for one of them.
pub const CACHED_PASSES_MAX: usize = 4096;
pub const CACHED_PASS_TIME: Duration = Duration::from_secs(30);
/// Clones that could not answer are not asked for so long for what may be given stale.
pub const CACHED_FAILING_TIME: Duration = Duration::from_secs(1);
/// How long somebody waits for another one's fetch: a slow page; then he fetches, too.
pub const CACHED_WAIT: Duration = Duration::from_secs(5);
/// Answers that are asked for anew while stale ones are given, at this node.
pub const CACHED_REFRESHES_MAX: usize = 256;
/// Time for a read of a cache: what it does not have by then is a miss.
pub const CACHED_READ_BUDGET: Span = Span::millis(150);
/// ... and for a write.
pub const CACHED_WRITE_BUDGET: Span = Span::millis(1000);

/// Largest file of a drop handler, how many are kept, and how long one is kept until it is read anew.
pub const DROP_FILE_BYTES_MAX: u64 = 256 << 10;
pub const DROP_FILES_MAX: usize = 64;
pub const DROP_FILE_KEPT: Duration = Duration::from_secs(5);
/// Who was refused in overload shall come back after so many seconds, each after another time.
pub const RETRY_AFTER_SECONDS: (u64, u64) = (1, 8);

/// A session's value that travels in a header. In base64 it stays below the 8 KiB that common servers take for all.
pub const SESSION_HEADER_BYTES_MAX: usize = 4096;
/// Cookies of one name that are tried: a browser sends several if another path or domain set one.
pub const COOKIES_TRIED_MAX: usize = 4;
/// A ticket is good for so long: longer than the request that it came with may take, with clocks that differ a little.
/// Those that programs get are made anew so often.
pub const TICKET_LIFE: Duration = Duration::from_secs(300);
pub const TICKET_ANEW: Duration = Duration::from_secs(60);
/// Life of a ticket for programs whose service may take longer to answer than others: as long as any may.
pub const TICKET_LIFE_LONG: Duration =
    Duration::from_secs(TICKET_LIFE.as_secs() + ANSWER_TIMEOUT_MAX.as_millis() / 1000);
/// A program may use a request's handle for so long: longer than it may take to answer. Where a service says that it
/// may take longer than others, by so much longer.
pub const HANDLE_LIFE: Duration = Duration::from_secs(600);
/// A request does not wait longer for the profile of who asks; then what was seen last goes with it.
pub const PROFILE_BUDGET: Span = Span::millis(500);
/// Time for one operation on a session, as for Redis clients.
pub const SESSION_OP_BUDGET: Span = Span::millis(1000);
/// A session that is only read is prolonged when so much of its lease is over: few writes, and it lives three quarters
/// of its lease at least after its last request.
pub const TOUCH_AFTER_PERCENT: u64 = 25;

/// What a worker makes of one.
pub const PIPED_ANSWER_BYTES_MAX: usize = 16 << 20;
/// All parts that a step gathers; each has its share. They are short beside pages, and the next worker gets all of them.
pub const PIPED_PARTS_BYTES_MAX: usize = 4 << 20;
/// When an answer is made good after another went out in its place, and how often it is tried.
pub const PIPED_REPAIR_AFTER: Duration = Duration::from_millis(500);
pub const PIPED_REPAIR_TRIES: u32 = 5;
/// What was made last for a URL stands in for what cannot be made for so long.
pub const PIPED_NEAR_KEPT: Span = Span::secs(24 * 3600);
/// In less time no worker is asked.
pub const PIPED_WAIT_MIN: Duration = Duration::from_millis(2);

const _: () = assert!(TICKET_LIFE.as_secs() > TICKET_ANEW.as_secs() + ANSWER_TIME.as_secs(), "as for a handle");
const _: () = assert!(TICKET_LIFE_LONG.as_secs() > TICKET_ANEW.as_secs() + ANSWER_TIMEOUT_MAX.as_millis() / 1000);
const _: () = assert!(BODY_BYTES_MAX <= BODY_MAX_MAX, "no head is refused before it is known whom it is for");
const _: () = assert!(HANDLE_LIFE.as_secs() > ANSWER_TIME.as_secs(), "a handle outlives its request");
const _: () = assert!(RATE_GRACE.as_secs() >= BODY_IDLE.as_secs() && RATE_GRACE.as_secs() >= WRITE_IDLE.as_secs());
const _: () = assert!(SMALL_PART_BYTES < OUT_BYTES_MAX, "what is gathered is small");
const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX, "a long target is told from a long head");
const _: () =
    assert!(CONNECT_TIME.as_millis() <= CLONE_WAIT.as_millis(), "one lost connect may use up the wait, not more");

/// Ids of requests that are passed on: UUIDs have 36 bytes, and some systems put several into one.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// What an access log has of a path and its query, bytes: longer ones are cut.
pub const ACCESS_TARGET_BYTES_MAX: usize = 4 << 10;
/// ... and of each of the other texts.
pub const ACCESS_FIELD_BYTES_MAX: usize = 1 << 10;
// Escapes make a path four times as long at most, and a field twice.
const _: () = assert!(ACCESS_TARGET_BYTES_MAX * 4 + ACCESS_FIELD_BYTES_MAX * 12 < host::limits::ACCESS_LINE_BYTES_MAX);
