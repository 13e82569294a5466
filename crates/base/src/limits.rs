//! Numbers that hold everywhere, with units.

use crate::Span;

/// Longest key, bytes (state.md, rule 4). Those of class `linear` may be longer (`linear/src/limits.rs`).
pub const KEY_BYTES_MAX: usize = 512;
/// Longest value of the `session` class, bytes (state.md, rule 4).
pub const SESSION_VALUE_BYTES_MAX: usize = 1 << 20;
/// Largest frame between nodes: the largest value of any class (16 MiB) and room for its head.
pub const FRAME_BYTES_MAX: usize = (16 << 20) + (64 << 10);

/// What may be acknowledged before it is forced to disk is forced after so long: what a machine without power forgets of
/// `durability = "memory"`. Long enough that a force serves many writes, shorter than a person can tell.
pub const UNFORCED_MAX: Span = Span::millis(50);

const _: () = assert!(SESSION_VALUE_BYTES_MAX < FRAME_BYTES_MAX, "a value must fit into a frame");
