//! The promises that are no class's, one checker a file; those of a class are in `plays`. A checker is told what happened and says
//! what was broken; it knows nothing of how nodes work. Each has a test in which it fails, and `planted.rs` has a broken node for
//! each, run whole.

pub mod answers;
pub mod clones;
pub mod declared;
pub mod membership;

use base::{Span, Time};

/// A promise that was not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// World time.
    pub at: Time,
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "broken at {:?}: {}\n  {}", self.at, self.promise, self.what)
    }
}

/// All live nodes see the same live nodes within this after faults have ended.
pub const MEMBERSHIP_WITHIN: Span = Span::secs(10);
/// Each clone runs exactly once within this after faults have ended.
pub const CLONES_WITHIN: Span = Span::secs(15);
/// ... and within this after a peer that lied has gone.
pub const CLONES_LIED_WITHIN: Span = Span::secs(10);
/// All nodes have the same of class `soft` within this after faults have ended.
pub const EQUAL_WITHIN: Span = Span::secs(10);
/// Operations succeed and every node has the whole declaration within this after faults have ended.
pub const SERVED_WITHIN: Span = Span::secs(14);
// A brick that restarted waits 10 s for a member that is not there before it counts as filled without it.
