//! Numbers of the `soft` class, with units and reasons.

/// Highest number of an update of one life: a million a second for eight years. Bytes that claim more are refused, so that
/// no sum of two numbers overflows.
pub const SEQ_MAX: u64 = 1 << 48;
/// Ranges beyond the contiguous part that are remembered of one life. A push that would need more is dropped as if lost;
/// repair closes the gaps.
pub const RANGES_MAX: usize = 1_024;
