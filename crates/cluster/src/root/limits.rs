//! Numbers of the root group, with units and reasons.

use base::Span;

/// Voters wanted. Three survive the loss of one; each change costs two disks' time instead of three.
pub const VOTERS_WANTED: usize = 3;
/// A voter away for so long is replaced if a caught-up node is at hand: longer than a reboot of a process, shorter than
/// the wait for a second failure that would stop changes.
pub const VOTER_AWAY_MAX: Span = Span::secs(30);
/// Who has no vote and is away for so long gets nothing sent any more: it may have left for good. Should it come back, it is let in
/// anew. Longer than a machine takes to start.
pub const LEARNER_AWAY_MAX: Span = Span::secs(180);

/// The disk's log is rewritten as one snapshot after so many records (in tests soon, so that storms meet it often)...
pub const LOG_RECORDS_MAX: usize = if cfg!(test) { 60 } else { 1_000 };
/// ... or so many bytes, so that a cold start reads little.
pub const LOG_BYTES_MAX: usize = 8 << 20;
/// Entries kept in memory behind a snapshot, so that a member that is a little late needs no snapshot.
pub const ENTRIES_KEPT: u64 = if cfg!(test) { 8 } else { 64 };

/// Largest change, bytes of kinds, names and values: a declaration is text that people write.
pub const CHANGE_BYTES_MAX: usize = 1 << 20;
/// Largest sum of all that is declared. It must fit, as a snapshot, into one frame.
pub const DECLARED_BYTES_MAX: usize = 8 << 20;
/// Longest kind or name, bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Applied changes are remembered by id, so that a proposal that was sent twice happens once.
pub const REMEMBERED_MAX: usize = 1_024;
/// Proposals of one node that wait at once. More are refused: changes come from people and scripts.
pub const PENDING_MAX: usize = 256;
/// Proposed but not committed bytes at a leader; beyond it refuses.
pub const UNCOMMITTED_BYTES_MAX: u64 = 16 << 20;

/// A call to the leader is sent again after this; the leader knows its id, so a second one does no harm.
pub const CALL_RETRY: Span = Span::millis(400);
/// The leader said yes, our own copy does not show it yet: so long do we wait for it before we say yes too.
pub const SHOW_WAIT: Span = Span::millis(500);

const _: () = assert!((ENTRIES_KEPT as usize) < LOG_RECORDS_MAX, "what is kept must fit");
const _: () = assert!(VOTERS_WANTED % 2 == 1, "an even group survives no more than the odd one below it");
const _: () = assert!(CHANGE_BYTES_MAX * 2 <= DECLARED_BYTES_MAX, "one change must not be able to fill everything");
const _: () = assert!(DECLARED_BYTES_MAX * 2 <= base::limits::FRAME_BYTES_MAX, "a snapshot must fit into a frame");
const _: () = assert!(CHANGE_BYTES_MAX as u64 <= UNCOMMITTED_BYTES_MAX, "a change must be proposable");
