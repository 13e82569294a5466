//! Numbers of functions of services, with units and reasons.

use std::time::Duration;

use base::Span;
use state::linear::limits::HOLD_MAX;

/// A value that they are applied to: it goes to a clone and back each time.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// What an argument costs besides its bytes, about.
pub const ARG_BYTES: usize = 32;
/// One call: its key, its function's name and its arguments.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// A function's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Calls that go to a clone together: so that one question takes a clone no more than a moment.
pub const BATCH_CALLS_MAX: usize = 256;
/// And their bytes, if there is more than one.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// And so many bytes of values, as each call reads and writes the whole one: what a program does in a fraction of [`PATIENCE`].
pub const BATCH_WORK_MAX: usize = 8 << 20;
/// Calls that wait for one key: a few batches. Who comes then is served sooner by another try.
pub const WAITING_MAX: usize = 4 * BATCH_CALLS_MAX;
/// Bytes of all calls that a node has, of all keys; each counts as so many at least.
pub const CALLS_BYTES_ALL_MAX: usize = 32 << 20;
pub const CALL_BYTES_COUNTED_MIN: usize = 1 << 10;
/// Keys of one service that a node works on at once. Each takes a few MiB at worst, and a place at a clone.
pub const ROUNDS_MAX: usize = 32;
/// What a clone answers: a value, and a reply for each call, as JSON.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Of what a clone says went wrong, so much is passed on.
pub const WHY_BYTES_MAX: usize = 1 << 10;

/// Time for a call, unless it has less: as for the functions that are built in.
pub const BUDGET: Span = Span::secs(4);
/// A clone that has said nothing for so long is passed over for another one. Functions compute, they do not wait.
pub const PATIENCE: Duration = Duration::from_millis(1000);
/// With less than this left nothing is written: its end would not be known in time.
pub const WRITE_TIME_MIN: Duration = Duration::from_millis(5);
/// Who is being written at its deadline waits so much longer for the end: it mostly comes at once.
pub const WRITE_GRACE: Duration = Duration::from_millis(50);
/// First and longest pause after somebody else has written the value: about what a write takes, and what a slow one does.
pub const PAUSE_FIRST: Span = Span::millis(2);
pub const PAUSE_MAX: Span = Span::millis(50);
/// So often in a row others may write the value first; then they are asked to wait until the next try is done.
pub const BEATEN_MAX: u32 = 2;
/// For telling them that they need not wait any longer.
pub const RELEASE_TIME: Span = Span::millis(500);
/// When a call that was refused is worth another try.
pub const RETRY_AFTER: Span = Span::millis(200);

const _: () = assert!(BATCH_BYTES_MAX >= CALL_BYTES_MAX, "any call fits into a batch");
const _: () = assert!(ANSWER_BYTES_MAX > 6 * VALUE_BYTES_MAX, "also a value of which JSON escapes each byte");
const _: () = assert!(PATIENCE.as_micros() < HOLD_MAX.0 as u128, "others wait for as long as a clone may take");
const _: () = assert!(PATIENCE.as_micros() * 3 < BUDGET.as_micros() as u128, "other clones can be tried");
