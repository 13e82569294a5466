//! Numbers of scripts, with units and reasons.

use std::time::Duration;

/// A script may run for so long; then it is ended, and nothing of it has happened. Others of its shard wait meanwhile, and their
/// callers wait for 4 s.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// A batch of scripts that has taken so long begins no more of them: plain writes of the shard wait for it.
pub const BATCH_TIME_MAX: Duration = Duration::from_millis(20);
/// So many instructions of Lua are run between two looks at the clock.
pub const LOOK_AFTER: u32 = 2_000;
/// Steps of a pattern's matching between two looks at the clock.
pub const LOOK_AFTER_STEPS: u32 = 20_000;
/// Memory of one namespace's Lua state: Redis has no bound; a script that holds more than this is wrong here.
pub const MEMORY_MAX: usize = 64 << 20;
/// A state that has grown so large is emptied when its script ends.
pub const MEMORY_KEPT: usize = 8 << 20;
/// Lua states that one thread keeps; that of another namespace goes for a new one.
pub const STATES_MAX: usize = 8;
/// Threads that run scripts; those of one namespace run on one.
pub const THREADS: usize = 4;
/// Loans that wait for one thread: a shard has one at a time.
pub const LOANS_MAX: usize = 1_024;
/// Stack of such a thread: nested tables are read and written by recursion.
pub const STACK_BYTES: usize = 8 << 20;
/// A script that has come to its end so often in this life of a node is not written down any more before it runs ...
pub const HARMLESS_AFTER: u32 = 16;
/// ... unless it is at work for so long.
pub const LONG: Duration = Duration::from_millis(50);
/// Scripts of which a thread knows how often they did; then it begins anew.
pub const HARMLESS_MAX: usize = 4_096;
/// Deaths of a node with the same script at work, after which that one is withheld ...
pub const DEATHS_MAX: u32 = 2;
/// ... if there is no longer between two of them, milliseconds: nodes end for other reasons, too.
pub const DEATHS_KEPT_MS: u64 = 24 * 3_600_000;
/// Scripts of which deaths are known; the oldest goes.
pub const DEATHS_KEPT_MAX: usize = 256;
/// Letters of the name of a library or a function.
pub const LIBRARY_NAMES_MAX: usize = 256;
/// Scripts that are known by their digests, of one namespace, where it was only said (`EVAL`) and is not kept; the oldest goes.
pub const TEXTS_MAX: usize = 512;
/// ... and bytes of them.
pub const TEXTS_BYTES_MAX: usize = 8 << 20;
/// Namespaces of which any are known.
pub const TEXTS_SPACES_MAX: usize = 64;
/// Compiled scripts of one state.
pub const COMPILED_MAX: usize = 512;
/// Tables in tables, of JSON and of what a script returns.
pub const DEPTH_MAX: usize = 1_000;
/// Bytes of what one script returns.
pub const ANSWER_BYTES_MAX: usize = state::linear::limits::SCRIPT_ANSWER_BYTES_MAX - (64 << 10);
/// Captures of a pattern.
pub const CAPTURES_MAX: usize = 32;
/// Depth of a pattern's matching: as Lua's own stack would allow.
pub const MATCH_DEPTH_MAX: usize = 200;
