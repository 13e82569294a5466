//! Numbers that all classes share, with units and reasons.

use base::Span;

/// Keys of cookies a namespace keeps: one that seals and two before it, so that one may rotate twice within a lease.
pub const COOKIE_KEYS_MAX: usize = 3;
/// Redis clients that a namespace can be given on a node: so many the door has for all of them.
pub const CONNECTIONS_MAX_MAX: u32 = 16_384;
/// From a rotation until the new key seals: every node that is in touch with the root group has heard of it long before.
pub const ROTATE_LEAD: Span = Span::secs(5);
