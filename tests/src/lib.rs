//! Fault drivers and helpers of the end-to-end tests: the real program, several nodes on 127.0.0.1, .2, .3 with the same
//! ports, real clients, real signals. Nothing of ours is linked in: what is tested is what a user has.
//!
//! - `program.rs`: the binary under test. `up.rs`: a cluster by `coppice up`. `yard.rs`: nodes started one by one.
//! - `procs.rs`: signals, and who is alive, from /proc. `load.rs`: shoppers that go on while something is killed.
//! - `sessions.rs`: Redis clients that go on likewise; `writes.rs`: those that remember all that was acknowledged; `history.rs`: those whose story is judged by
//!   porcupine. `http.rs`, `resp.rs`, `sse.rs`, `tools.rs`: clients. `probe.rs`: a client who
//!   watches his own latency. `apart.rs`: a test in a namespace of its own; `net.rs`: nodes with a network between them. `wait.rs`: a condition with a deadline, in place of every sleep.
//!
//! A test that judges times or load runs [`alone`]; others run [`beside`] each other, as many as the test harness has threads. A
//! test that cannot run here says so with [`skip`], which prints the reason and the count whether or not output is captured.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

pub mod apart;
pub mod at;
#[cfg(test)]
mod counted;
pub mod history;
pub mod http;
pub mod load;
mod minder;
pub mod net;
pub mod probe;
pub mod procs;
pub mod program;
pub mod resp;
pub mod sessions;
pub mod shared;
pub mod sse;
pub mod tcp;
pub mod tools;
mod turn;
pub mod up;
pub mod wait;
pub mod writes;
pub mod yard;

pub use at::{At, Ports};
pub use shared::Shared;
pub use turn::Turn;
pub use up::Up;
pub use wait::{soon, wait_for};
pub use yard::Yard;

static SKIPS: AtomicU32 = AtomicU32::new(0);

/// No other test runs while this lives, and no cluster that tests share: for tests that judge times or load both cores.
pub fn alone() -> Turn {
    let turn = turn::alone();
    shared::end_idle();
    turn
}

/// Only others of this kind run while this lives. Each test takes this or [`alone`] first, or [`Shared::take`].
pub fn beside() -> Turn {
    turn::beside()
}

/// Says that a test, or a part of one, cannot run here. Return after it.
pub fn skip(why: &str) {
    let count = SKIPS.fetch_add(1, Ordering::Relaxed) + 1;
    say(&format!("SKIPPED ({count} so far): {why}"));
}

/// Prints a figure or a remark past the capture of passing tests.
pub fn say(text: &str) {
    // Not eprintln!, which the test harness keeps to itself while a test passes.
    let _ = writeln!(std::io::stderr(), "    {text}");
}

/// Whether the program under test is optimised: then its promised figures are held against it.
pub fn is_release() -> bool {
    program::profile() == "release"
}
