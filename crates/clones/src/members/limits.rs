//! Numbers of clone groups, with units and reasons.

use base::Span;

use crate::limits::SERVICES_MAX;

/// A message is a word to all ("read the configuration anew"); what is larger belongs into a namespace.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Messages that a node keeps of each service, so that a reader may be away for a moment.
pub const KEPT_MAX: usize = 256;
/// The same in bytes...
pub const KEPT_BYTES_MAX: usize = 256 << 10;
/// ... and of all services of a node: with more than 256 each has less.
pub const KEPT_BYTES_OF_ALL: usize = 64 << 20;
/// Messages in one answer to a reader.
pub const NEWS_MAX: usize = 64;
/// Readers that wait for messages, and members that wait at barriers, on one node: all clones that one may run.
pub const WAITS_MAX: usize = 1024;
/// Broadcasts of one node that are not confirmed yet.
pub const TELLS_MAX: usize = 256;
/// A broadcast is sent again to who has not confirmed it.
pub const TELL_AGAIN: Span = Span::millis(200);
/// Numbers of broadcasts that a node remembers of each other node, to deliver none twice. What is sent again is among them.
pub const HEARD_MAX: u64 = 4 * TELLS_MAX as u64;
/// A barrier's name.
pub const BARRIER_BYTES_MAX: usize = 64;
/// Name of who sends a message.
pub const FROM_BYTES_MAX: usize = 128;
/// What one node says of the members of one service, and of all that fit into one fact: less than its 64 KiB.
pub const SAID_BYTES_MAX: usize = 56 << 10;
/// ... of all, where there are so many services that all nodes say it in parts.
pub const SAID_BYTES_IN_PARTS: usize = 1 << 20;
/// When it is worth asking again, if a member is not known here yet: beacons come within that.
pub const NOT_KNOWN_YET: Span = Span::millis(200);

const _: () = assert!(MESSAGE_BYTES_MAX <= KEPT_BYTES_MAX, "at least one message is kept");
const _: () = assert!(NEWS_MAX <= KEPT_MAX);
const _: () = assert!(KEPT_BYTES_OF_ALL / SERVICES_MAX >= MESSAGE_BYTES_MAX, "each service keeps at least one message");
