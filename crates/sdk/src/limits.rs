//! Numbers of the SDK, with units and reasons.

use std::time::Duration;

/// A node on the same machine accepts at once; one on another machine of the cluster within this, or is passed over.
pub const CONNECT_TIME_MAX: Duration = Duration::from_millis(500);
/// A whole operation, tries on other nodes included: more than a node itself takes for the slowest (`linear`, 4 s).
pub const OPERATION_TIME_MAX: Duration = Duration::from_secs(6);
/// ... and so much more for each MiB of an object that is put: what a node has for it, and its way to the node.
pub const OBJECT_TIME_PER_MIB: Duration = Duration::from_secs(1);
/// A read of class `cache` waits no longer for what another clone fetches: what a node has for it.
pub const CACHE_WAIT_MAX: Duration = Duration::from_secs(10);
/// ... and so long for the node's word that nobody stored it.
pub const CACHE_ANSWER_WAIT: Duration = Duration::from_secs(1);
/// An object is read so much at a time, bytes: as much as a node gives with one look at who has it.
pub const OBJECT_PIECE_BYTES: u64 = 1 << 20;
/// Largest object that is read whole, bytes: as large as there are any.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// Operations under way at a time; more are refused at once. A clone that has so many waits for its own cluster.
pub const UNDER_WAY_MAX: usize = 1024;
/// Connections that are kept open without work, to each node.
pub const IDLE_MAX: usize = 64;
/// A connection without work is given up after so long: the node closes it after 10 s.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(8);
/// A node that could not be reached is not tried first again before this.
pub const AWAY: Duration = Duration::from_secs(2);
/// An answer of a node: the largest value (16 MiB, class `linear`), and a little.
pub const ANSWER_BYTES_MAX: usize = (16 << 20) + (64 << 10);
/// Retry hint where a node gave none, or could not be reached.
pub const RETRY_AFTER: base::Span = base::Span::millis(500);

/// What is in doubt with every node is asked again after this: a node that restarts is back within a second or two.
pub const ASK_AGAIN: Duration = Duration::from_millis(100);

/// `update` reads and writes anew so often when others write the same value at the same time.
pub const UPDATE_TRIES_MAX: u32 = 16;
/// First and longest wait between those.
pub const UPDATE_WAIT_FIRST: base::Span = base::Span::millis(2);
pub const UPDATE_WAIT_MAX: base::Span = base::Span::millis(200);

/// One question at a barrier; then it is asked anew. Less than half of an operation's time, so that another node is asked too.
pub const BARRIER_ASK: Duration = Duration::from_secs(2);
/// First and longest wait before a stream that was cut is opened anew.
pub const STREAM_WAIT_FIRST: base::Span = base::Span::millis(50);
pub const STREAM_WAIT_MAX: base::Span = base::Span::secs(2);
/// Nodes send a comment each 15 s; a stream that is silent for so long is cut.
pub const STREAM_SILENCE_MAX: Duration = Duration::from_secs(40);
/// One event: a text of 1 MiB of which each byte is escaped.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

/// A service is told that it is hard pressed from here on, and that it is not from there down: far enough apart not to flap.
pub const PRESSURE_HIGH: f32 = 0.9;
pub const PRESSURE_LOW: f32 = 0.5;

/// A service's stage, unless it says otherwise. What waits for longer than the target is a queue that stands, not a burst. The limit
/// begins as the edge's, and an answer may take a quarter more than without a queue, and 4 ms, which nobody feels.
pub const STAGE: flow::stage::Shape = flow::stage::Shape {
    batch: u32::MAX,
    wait_target: base::Span::millis(100),
    queue_max: 1024,
    limit: flow::limit::Bounds { first: 64, min: 1, max: 1024, tolerance_percent: 125, slack: base::Span::millis(4) },
};
/// Nobody waits in a stage for longer: the edge would not either.
pub const STAGE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Content of a job for a worker, of all that wait and run in a program, and its parameters: as the stub has them.
pub const JOB_BYTES_MAX: usize = 16 << 20;
pub const JOBS_BYTES_MAX: usize = 64 << 20;
pub const JOB_PARAMS_MAX: usize = 32;
/// Jobs that wait for a worker; more are busy.
pub const JOBS_WAITING_MAX: usize = 48;
/// Nobody waits longer for a job.
pub const JOB_TIME_MAX: Duration = Duration::from_secs(600);

/// A service's stages are told to its node so often: their times are of one second, as those of the node's own.
pub const SHOW_EVERY: Duration = Duration::from_secs(1);

/// What the catalogue said is used for so long before it is looked at anew; while it is, what it said is still used.
pub const CATALOG_KEPT: Duration = Duration::from_secs(1);
/// A look at it takes a node no time; one that takes longer has other sorrows.
pub const CATALOG_WITHIN: Duration = Duration::from_secs(2);

/// A node is asked so often whether its certificates have changed: a renewed one has weeks, and nothing new is a few bytes.
pub const CERTIFICATES_EVERY: Duration = Duration::from_secs(5);

/// What a node asks for functions at a time: a value and arguments, 1 MiB each, of which JSON escapes each byte.
pub const QUESTION_BYTES_MAX: usize = 16 << 20;

/// Items that a ledger is given in one call: as many as it takes (docs/guide/ledger.md).
pub const LEDGER_ADDS_MAX: usize = 512;
/// Items of a page of a ledger, objects of a page: as many as there may be.
pub const LEDGER_PAGE_MAX: usize = 1_000;
/// Removals that one look for numbers ends: each takes a deletion of an object.
pub const LEDGER_CLOSED_AT_ONCE: usize = 256;

/// Connections to a service at a time; more are closed at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections that the kernel keeps until they are accepted. (It keeps fewer if `net.core.somaxconn` is less.)
pub const BACKLOG: u32 = 4096;
/// The head of a request must have come by then. The edge sends it whole; a person with `curl` is not slower.
pub const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// After the stop signal, requests have this long where nobody kills the program sooner. A node kills it when the service's
/// `stop.drain` is over.
pub const DRAIN_MAX: Duration = Duration::from_secs(30);
/// After the stop signal, connections of TCP doors are told to say goodbye within this part of the time that they have: the rest is
/// for the last one's way.
pub const GOODBYES_PART: (u32, u32) = (1, 2);
/// A connection's first byte: the edge sends it at once. A longer silence is of somebody who looks whether the port is open.
pub const FIRST_BYTE_TIME_MAX: Duration = Duration::from_secs(10);
/// The node's word of a connection comes whole.
pub const PROXY_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest addresses and extensions of it: what the edge writes has a hundred bytes.
pub const PROXY_BYTES_MAX: usize = 4 << 10;
/// Longest name of a door, as `clones/src/limits.rs` has it.
pub const DOOR_BYTES_MAX: usize = 63;
/// Pause after `accept` failed (no descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A worker waits for a job for so long before it asks again: less than a node lets it wait.
pub const JOB_WAIT: Duration = Duration::from_secs(20);
/// ... and after an error for so long.
pub const WORK_AGAIN: Duration = Duration::from_millis(500);

const _: () = assert!(BARRIER_ASK.as_millis() * 2 < OPERATION_TIME_MAX.as_millis(), "a barrier's answer comes in time");
const _: () = assert!(CONNECT_TIME_MAX.as_millis() * 4 < OPERATION_TIME_MAX.as_millis(), "other nodes can be tried");
