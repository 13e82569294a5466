//! Beacons' numbers, and why they are these.

use base::Span;

/// A key is a name with a few parts (`clones`, `load`, `ns/carts/filled`).
pub const KEY_BYTES_MAX: usize = 128;
/// A value is a digest of a node's state, never data: 64 KiB lists some hundreds of clones.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Standing facts of one origin, and as many removed ones. What is over is not kept.
pub const FACTS_PER_ORIGIN_MAX: usize = 1024;
/// Also how long a removal is remembered: longer than any copy of what it removed can live.
pub const TTL_MAX: Span = Span::secs(60);

/// Shorter, and repeating would cost more than the fact is worth.
pub(super) const TTL_MIN: Span = Span::secs(1);
/// Own facts are said again this many times within their time to live: two may be lost.
pub(super) const REPEATS: u64 = 3;
/// A digest goes to one peer this often.
pub(super) const DIGEST_PERIOD: Span = Span::secs(1);
/// A figure goes to so many peers each time that it is put, to all of them in turn; in smaller clusters to all at once. With it what a
/// node sends of its figures does not grow with the cluster, and a node of 50 hears those of each other one every 7 seconds.
pub(super) const FIGURES_TO: usize = 8;
/// What is about to expire is not worth sending on.
pub(super) const TTL_WORTH_SENDING: Span = Span::millis(50);
/// Facts in one frame, bytes of keys and values: a small share of the control lane.
pub(super) const FACTS_BYTES_MAX: usize = 256 << 10;
/// Origins that are remembered; membership holds no more nodes either.
pub(super) const ORIGINS_MAX: usize = 1024;

/// A node says its facts above what others have of it, up to this sequence number: beyond it no true one comes in a thousand years.
/// As numbers end at four times as much, it never runs out of them over a lie.
pub(super) const SEQ_OUTBID_MAX: u64 = 1 << 62;

const _: () = assert!(TTL_MIN.as_micros() <= TTL_MAX.as_micros());
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX < FACTS_BYTES_MAX, "every fact fits into a frame");
const _: () = assert!(FACTS_BYTES_MAX + VALUE_BYTES_MAX + (64 << 10) < base::limits::FRAME_BYTES_MAX);
