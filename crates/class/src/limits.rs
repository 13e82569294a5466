//! Numbers that all classes share, with units and reasons.

use base::Span;

/// Keys of cookies a namespace keeps: one that seals and two before it, so that one may rotate twice within a lease.
pub const COOKIE_KEYS_MAX: usize = 3;
/// Redis clients that a namespace can be given on a node: so many the door has for all of them.
pub const CONNECTIONS_MAX_MAX: u32 = 16_384;
/// The last database that a namespace may have: Redis has 16 unless told otherwise, and `INFO` counts the keys of each.
pub const DATABASE_MAX: u32 = 63;
/// Memory of a key beside its own bytes and those of its value, about: what each key counts for `bytes_max`.
pub const KEY_BYTES: u64 = 48;
/// More a node does not do, and what is told apart is no less than a microsecond: `rate_max`.
pub const RATE_MAX_MAX: u32 = 1_000_000;
/// Less than this is no room for work: `bytes_max`.
pub const BYTES_MAX_MIN: u64 = 1 << 10;
/// More than any machine has; room to reckon with: `bytes_max`.
pub const BYTES_MAX_MAX: u64 = 1 << 50;
/// From a rotation until the new key seals: every node that is in touch with the root group has heard of it long before.
pub const ROTATE_LEAD: Span = Span::secs(5);

/// One key in a dump, bytes: the largest value of any class (an object of 64 MiB), with its key.
pub const DUMP_RECORD_BYTES_MAX: usize = (64 << 20) + (64 << 10);
/// Any other record of a dump.
pub const DUMP_HEAD_BYTES_MAX: usize = 16 << 10;
