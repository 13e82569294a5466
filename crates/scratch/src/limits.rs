//! Numbers of the `scratch` class, with units and reasons.

/// Longest value, bytes: enough for a test.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// What a namespace may hold at each node, bytes of keys and values: a cluster for tests stays small.
pub const BYTES_MAX: u64 = 1 << 20;
/// Keys of a namespace at each node, for the same reason.
pub const KEYS_MAX: u64 = 4_096;
