//! Numbers of this crate, with units and reasons.

use base::Span;

/// Clones of one service at most.
pub const CLONES_PER_SERVICE_MAX: u32 = 256;
/// Clones of all services at most: even if one node runs them all, what it says of them (about 40 bytes each) and the
/// assignments (about 4 bytes each) stay under the 64 KiB of a beacon.
pub const CLONES_MAX: u32 = 1024;
/// A service's name is part of a host label, of log lines and of environment variables.
pub const NAME_BYTES_MAX: usize = 63;
/// Services at most: their names travel in each beacon, so 256 x 64 bytes are a quarter of one.
pub const SERVICES_MAX: usize = 256;

/// Partitions of one service at most, and of all. Each is some 100 bytes of the declaration (1 MiB at most) and of the
/// route table; a test holds 10,000 to 2 microseconds a look-up.
pub const PARTITIONS_PER_SERVICE_MAX: usize = 10_000;
pub const PARTITIONS_MAX: usize = 16_384;
/// Hosts, paths, header names and values in a partition, bytes: longer ones match nothing that gets through the edge.
pub const MATCH_BYTES_MAX: usize = 1024;
/// Priorities are 0 to this.
pub const PRIORITY_MAX: u8 = 9;

/// Clones of a service that does not say how many: two, so that any one may die and the other serves.
pub const CLONES_DEFAULT: u32 = 2;
/// From the start of a process to its first healthy answer. An interpreter with a busy disk takes a few seconds.
pub const START_TIMEOUT_DEFAULT: Span = Span::secs(10);
/// From the stop signal to the kill. Most requests end sooner; longer ones belong in the declaration.
pub const DRAIN_DEFAULT: Span = Span::secs(5);
/// Longest drain or start time that makes sense to declare.
pub const PATIENCE_MAX: Span = Span::secs(3600);

/// Between "out of the routes" and the stop signal: the beacon reaches every edge within a round trip, and its once a
/// second repair exchange makes good what was lost.
pub const LEAVE_ROUTES: Span = Span::millis(1200);
/// While a clone starts, its health is asked this often: a user waits for it.
pub const PROBE_STARTING_EVERY: Span = Span::millis(100);
/// While it serves, this often. A death is noticed at once by its exit; probes find the hung.
pub const PROBE_SERVING_EVERY: Span = Span::secs(2);
/// A healthy clone on a saturated machine answers within this.
pub const PROBE_TIMEOUT: Span = Span::secs(2);
/// A probe without any answer by then was lost, and counts as failed.
pub const PROBE_LOST: Span = Span::secs(3);
/// Failed probes in a row that make a serving clone be restarted.
pub const PROBES_FAILED_MAX: u32 = 3;
/// A killed process that is still there is killed again this often.
pub const KILL_AGAIN: Span = Span::secs(1);

/// First and longest wait before a clone that died is started again.
pub const BACKOFF_FIRST: Span = Span::millis(100);
pub const BACKOFF_MAX: Span = Span::secs(10);
/// Having served so long, a clone has proved itself: its next death is a first one again.
pub const BACKOFF_FORGIVEN: Span = Span::secs(10);

/// Lines of output kept for each clone.
pub const OUTPUT_LINES: usize = 20;
/// Longest line kept, bytes. The whole line is in the log.
pub const OUTPUT_LINE_BYTES: usize = 256;
/// A beacon carries at most this much (its limit is 64 KiB): older output is left out first.
pub const BEACON_BYTES_MAX: usize = 56 << 10;

/// A new leader believes that a node is gone only after this: what it knows is soft and must be collected first.
pub const SETTLE: Span = Span::secs(2);
/// A clone moved for balance must serve at its new node by then, or the move is taken back.
pub const MOVE_TIME_MAX: Span = Span::secs(30);
/// Clones that leave draining nodes at once, over the whole cluster: each runs twice for a moment, and starting costs.
pub const MOVES_AT_ONCE: usize = 8;
/// After a move was taken back, nothing of that service is moved for balance for so long.
pub const MOVE_REST: Span = Span::secs(300);

const _: () = assert!(CLONES_PER_SERVICE_MAX <= CLONES_MAX, "one service cannot have more clones than all");
const _: () = assert!(PARTITIONS_PER_SERVICE_MAX <= PARTITIONS_MAX, "one service cannot have more than all");
const _: () = assert!(CLONES_DEFAULT <= CLONES_PER_SERVICE_MAX, "the default is allowed");
const _: () = assert!(PROBE_TIMEOUT.0 < PROBE_LOST.0, "a probe's own timeout ends it before it counts as lost");
const _: () = assert!(START_TIMEOUT_DEFAULT.0 < MOVE_TIME_MAX.0, "a moved clone has time to start twice");
const _: () = assert!(BACKOFF_FIRST.0 <= BACKOFF_MAX.0, "waits grow");
