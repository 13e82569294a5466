//! Numbers of channels, with units and reasons.

use base::Span;

/// Longest name of a channel, and longest pattern, bytes: as long as a key may be.
pub const NAME_BYTES_MAX: usize = 512;
/// Steps of one comparison of a pattern with a channel. Usual patterns take a step a byte; one that takes more does not fit.
pub const PATTERN_STEPS_MAX: usize = 16 << 10;
/// Channels of one namespace that a node tells others one by one. For those beyond it says once that it wants all.
pub const CHANNELS_TOLD_MAX: usize = 100_000;
/// The same of patterns. Each costs every publisher a comparison for each message.
pub const PATTERNS_TOLD_MAX: usize = 4096;
/// What is kept of one peer's interest, entries. Of a peer with more nothing is known: it gets all.
pub const ENTRIES_MAX: usize = 2_000_000;
/// Who subscribes waits so long for live nodes to know it, at most: as long as a brick has for its answer.
pub const KNOWN_WITHIN: Span = Span::millis(60);
/// What a peer has not acknowledged is sent again after so long: twice within the wait.
pub const AGAIN: Span = Span::millis(20);
/// A peer that has not told its interest is asked for it so often.
pub const ASK_AGAIN: Span = Span::millis(50);
/// Subscriptions that wait to be known, at most.
pub const WAITS_MAX: usize = 16 << 10;
/// A page of interest, bytes of its names: small, as it goes in the lane of control.
pub const PAGE_BYTES: usize = 32 << 10;
/// Numbers of changes under way to a peer, with which one more page may go.
pub const UNDER_WAY_MAX: u64 = 4096;
/// A batch of messages is closed when it has so much; a turn mostly has less.
pub const BATCH_BYTES: usize = 256 << 10;
/// Longest message, bytes: the longest value of class `session`.
pub const MESSAGE_BYTES_MAX: usize = base::limits::SESSION_VALUE_BYTES_MAX;
/// Messages of others that the front door has not taken yet, bytes. What comes beyond is lost, and counted.
pub const INBOX_BYTES_MAX: usize = 64 << 20;
/// Names in one answer.
pub const NAMES_LISTED_MAX: usize = 65_536;

const _: () = assert!(AGAIN.0 * 2 < KNOWN_WITHIN.0, "what is lost once is told within the wait");
const _: () = assert!(
    BATCH_BYTES + MESSAGE_BYTES_MAX + 4096 < base::limits::FRAME_BYTES_MAX,
    "a batch with one more message is a frame"
);
