//! Channels: a message that is published at any node comes to all clients that listen, wherever they are connected, at most once. Nothing
//! is kept. Each node tells its peers what its clients listen to (its *interest*), and each sends a peer what that listens to.
//!
//! - `interest.rs`: what this node's clients want, as numbered changes, and what is known of a peer's.
//! - `machine.rs`: who is told what, when a subscription is known everywhere, where a message goes.
//! - `wire.rs`: the bytes. `limits.rs`: the bounds.
//!
//! Clients, their connections and what they have not read are the front door's. It delivers itself what is published at its own node.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod interest;
pub mod limits;
mod machine;
#[cfg(test)]
mod tests;
mod wire;

use base::{AskId, Boot, NodeId, Outcome};
use bytes::Bytes;

pub use machine::Channels;

/// The level from which channels cross nodes (`base/src/level.rs`).
pub const LEVEL: u32 = 3;

/// Channels with such names are the nodes' own: they tell what becomes of the clones of the service that is named behind it.
/// Clients listen to them and publish nothing there.
pub const MEMBERS: &str = "__members__:";

/// What a client listens to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Channel,
    /// Names of their own, as in Redis. All nodes have all of them.
    Shard,
    Pattern,
}

/// A question of the front door.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// One more client listens to each of these. Answered when live peers know it, or have had their time.
    Subscribe { namespace: String, kind: Kind, names: Vec<Bytes> },
    /// One client less does. Answered at once.
    Unsubscribe { namespace: String, kind: Kind, names: Vec<Bytes> },
    /// To all other nodes that want it. Answered at once, with how many clients there are known to get it.
    Publish(Message),
    /// Answered with messages of other nodes, as soon as there are any. The last one asked is answered.
    Listen,
    /// Names that somebody listens to, here or elsewhere; at most [`limits::NAMES_LISTED_MAX`].
    Names { namespace: String, kind: Kind },
    /// How many listen to each of these, here and elsewhere.
    Counts { namespace: String, kind: Kind, names: Vec<Bytes> },
}

/// One message, on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub namespace: String,
    pub shard: bool,
    pub channel: Bytes,
    pub payload: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Done,
    Published { receivers: u64 },
    Heard(Vec<Message>),
    Names(Vec<Bytes>),
    Counts(Vec<u64>),
}

#[derive(Clone, Debug)]
pub enum Input {
    Ask {
        id: AskId,
        op: Op,
    },
    /// A peer is alive. With another boot it is another life of it.
    Birth {
        peer: NodeId,
        boot: Boot,
    },
    Death {
        peer: NodeId,
    },
    /// The node's own word to its clients that listen to this channel, in whatever namespace. Each node says it to its own.
    News {
        channel: Bytes,
        payload: Bytes,
    },
    /// What all nodes have agreed on.
    Level(u32),
    /// Of kind `CHANNELS`: interest and acknowledgements.
    Told {
        from: NodeId,
        head: Bytes,
    },
    /// Of kind `MESSAGES`.
    Messages {
        from: NodeId,
        head: Bytes,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Interest and acknowledgements.
    Tell {
        to: NodeId,
        head: Bytes,
    },
    /// A batch of messages.
    Send {
        to: NodeId,
        head: Bytes,
    },
    Answer {
        id: AskId,
        outcome: Outcome<Reply>,
    },
    Bad {
        from: NodeId,
    },
}

/// Does a channel fit a pattern? One that takes too many steps does not, here as there.
pub fn fits(pattern: &[u8], channel: &[u8]) -> bool {
    base::glob::fits_within(pattern, channel, limits::PATTERN_STEPS_MAX)
}
