//! Numbers of stubs, with units and reasons.

use std::time::Duration;

/// Content of a job: a page or a large photograph. It is held while the job waits and runs.
pub const CONTENT_BYTES_MAX: usize = 16 << 20;
/// What a worker makes of it: a picture may be unpacked.
pub const RESULT_BYTES_MAX: usize = 64 << 20;
/// Content of all jobs that wait and run in one stub.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Jobs that wait in one stub: at ten milliseconds each the last one waits for half a second. More are sent elsewhere.
pub const WAITING_MAX: usize = 48;
/// Nobody waits for longer: as no service may take longer for an answer.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// Parameters of a job, and bytes of the query that has them.
pub const PARAMS_MAX: usize = 32;
pub const QUERY_BYTES_MAX: usize = 8 << 10;
/// Of a parameter's name: it becomes the name of a variable.
pub const NAME_BYTES_MAX: usize = 32;
/// A line of a worker of form `stream`.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Crashes after which an input is withheld: the first may have been somebody else's doing.
pub const CRASHES_MAX: u8 = 2;
/// ... and for how long.
pub const WITHHELD_FOR: Duration = Duration::from_secs(3600);
/// Inputs that have crashed a worker, of which it is known; the oldest are forgotten.
pub const SUSPECTS_MAX: usize = 1024;
/// Crashes that wait to be told to the other clones; what is more they find out by themselves.
pub const TOLD_WAITING_MAX: usize = 64;

/// First and longest wait before a kept process is started anew that did no job.
pub const RESTART_FIRST: Duration = Duration::from_millis(100);
pub const RESTART_MAX: Duration = Duration::from_secs(2);
/// A kept process that has closed its output is about to end, or is of no use.
pub const END_TIME_MAX: Duration = Duration::from_millis(200);
/// After so many of those in a row the stub ends: its node knows how to go on with a clone that does not start.
pub const RESTARTS_MAX: u32 = 6;
/// Who is told that there is too much to do comes again after this, seconds.
pub const RETRY_AFTER_S: u64 = 1;

const _: () = assert!(CONTENT_BYTES_MAX <= HELD_BYTES_MAX, "one job has room");
const _: () = assert!(HELD_BYTES_MAX <= u32::MAX as usize, "they are counted as permits");
