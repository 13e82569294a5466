//! Beacons: small facts that a node says of itself (its load, its clones), spread to all and gone when nobody repeats them.
//!
//! A fact is a value under (origin, key), with a version (boot, sequence) and a time to live; the newest version wins and
//! a higher boot of its origin replaces all that was said before. A change goes to all live peers at once. Once a second
//! each node shows one random peer what it holds (a digest); each sends the other what it lacks. So a lost frame, or a
//! pair of nodes that cannot reach each other, costs about a second.
//!
//! Where all nodes have [`LEVEL_LASTING`], what a node costs when nothing happens does not grow with the cluster:
//! - A fact of an origin that lives and is linked here stands until it says otherwise, and is not said again. From others it stands as
//!   long as somebody is found to have the same.
//! - What is shown once a second is one sum over all that stands; only where that differs, a digest follows.
//! - *Figures* (load, memory) change all the time. Each goes to a few peers in turn, and to who decides by it (`Near`). They are not
//!   compared: the next one comes anyway.
//!
//! What is said of others is judged (a peer may be ill, or an enemy):
//! - The life of an origin is what membership says; what names another is dropped.
//! - Of an origin that is linked here only its own word counts. Hearsay of it is a reason to ask it.
//! - Hearsay of others is kept until they speak for themselves, whatever its sequence number.
//! - Who hears of itself what it has not said, or has said since, says its fact anew.
//!
//! Otherwise own facts are said again before they expire; a fact that is not said again expires everywhere. Time to live is a span
//! that shrinks on the way (clocks differ): passing a fact on never prolongs it. Removal is a fact without a value.
//! A death erases nothing at once: the reader knows who is live and filters. What a fact means is its owner's business.

mod limits;
mod machine;
mod wire;

#[cfg(test)]
mod tests;

use base::{Boot, NodeId, Span};
use bytes::Bytes;

pub use limits::{FACTS_PER_ORIGIN_MAX, KEY_BYTES_MAX, TTL_MAX, VALUE_BYTES_MAX};
pub use machine::Beacons;
#[doc(hidden)]
pub use wire::holds as wire_holds;

/// The level from which facts last as long as their origin speaks for itself.
pub const LEVEL_LASTING: u32 = 9;

#[derive(Clone, Debug)]
pub enum Input {
    /// Say this of this node, and repeat it, until it is removed. A fact over the limits (see [`FACTS_PER_ORIGIN_MAX`],
    /// [`KEY_BYTES_MAX`], [`VALUE_BYTES_MAX`]) is our own mistake and asserted against; `ttl` is cut to
    /// one second at least and [`TTL_MAX`] at most. Putting the value that stands changes nothing.
    Put {
        key: String,
        value: Bytes,
        ttl: Span,
    },
    /// Say these figures of this node, which are others soon; put again after a moment in any case. To all at once if `all` should know
    /// what is in them.
    PutFigures {
        figures: Vec<(String, Bytes)>,
        ttl: Span,
        all: bool,
    },
    /// What all nodes understand alike ([`base::level`]).
    Level(u32),
    /// Who hears each figure.
    Near(Option<NodeId>),
    /// Say and no longer say all of this at once: it is sent together.
    PutAll {
        puts: Vec<(String, Bytes)>,
        removes: Vec<String>,
        ttl: Span,
    },
    /// No longer say it.
    Remove {
        key: String,
    },
    /// A node is live, in this life of it.
    Birth {
        peer: NodeId,
        boot: Boot,
    },
    Death {
        peer: NodeId,
    },
    /// A link to it is up, or is gone.
    Linked {
        peer: NodeId,
        up: bool,
    },
    /// A frame of `kind::BEACON`.
    Frame {
        from: NodeId,
        head: Bytes,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A frame of `kind::BEACON`.
    Send { to: NodeId, head: Bytes },
    /// What this origin says under this key is new, or gone. Own facts included.
    Changed { origin: NodeId, key: String },
    /// Somebody has of this node what it did not say: it said it anew.
    Refuted { what: String },
    /// A frame of this peer is none of this protocol.
    Bad { from: NodeId },
}
