//! Who is here. Every node holds a link to every live node and a list of all it knows of; SWIM (Das et al., DSN 2002,
//! by the library `foca`) spreads the list and settles disputes.
//!
//! What this adds to SWIM, as links are TCP and not UDP:
//! - A link that comes up is a birth. A link that is closed is redialled at once; if the machine says that nobody
//!   listens there, the process is gone: it is declared dead and the news is spread. So a killed node is known dead after
//!   one round trip. Everything else (silence, a timeout, a failed call) is only a reason to ask, then to suspect.
//! - Anything heard from a node counts as life. A suspect is told so on its own link until it refutes.
//! - Time through which this node did not run is no evidence against others: all timers stand still meanwhile.
//! - What others say of third parties is judged first (`judge.rs`): it cannot make a node unheard that speaks for itself.
//! - A node that hears that it was declared dead comes back under the next *epoch* of the same boot.
//! - Dead nodes are dialled now and then for an hour, seeds for ever, so a partition heals from both sides.
//!
//! ```text
//!   Birth -> live <-> suspect -> Death          live -> Death: refused after it closed its link, or others said so
//!              ^________________/               back:  Birth with a higher boot (restarted, memory empty)
//!                                                      or with the same boot (was only cut off, memory intact)
//! ```
//! The owner of this machine calls [`Membership::heard`] for every frame of any protocol, and passes frames of
//! `kind::MEMBERSHIP` in. What is left to others: links (host), and who a peer is (its certificate).

mod judge;
mod limits;
mod links;
mod machine;
mod peer;
mod who;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use base::{Boot, LinkEnd, NodeId};
use bytes::Bytes;

pub use machine::Membership;
#[doc(hidden)]
pub use wire::holds as wire_holds;

use crate::{Admission, Card};
use peer::Peer;

#[derive(Clone, Debug)]
pub enum Input {
    /// A link is up; the card came in its hello.
    Linked {
        card: Box<Card>,
    },
    /// A link ended or a dial came to nothing, as in [`base::Event::Unlinked`].
    Unlinked {
        peer: Option<NodeId>,
        addr: Option<SocketAddr>,
        why: LinkEnd,
    },
    /// A frame of `kind::MEMBERSHIP`.
    Frame {
        from: NodeId,
        head: Bytes,
    },
    /// Who is let in, from now on: whoever is not is dead here, whatever others say.
    Admission {
        now: Arc<Admission>,
    },
    /// A call to this peer failed or timed out: ask it whether it lives.
    Doubt {
        peer: NodeId,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A frame of `kind::MEMBERSHIP`.
    Send { to: NodeId, head: Bytes },
    /// Ends in `Linked` or `Unlinked`. `peer` is none for a seed.
    Dial { addr: SocketAddr, peer: Option<NodeId> },
    /// A node is live. A higher boot than before: it restarted and its memory is empty. The same boot as before: it was
    /// only cut off. Never for this node itself.
    Birth { card: Box<Card> },
    /// Somebody cannot reach it; it is live until a `Death` says otherwise.
    Suspect { id: NodeId },
    /// No longer suspected.
    Trust { id: NodeId },
    /// Comes after a `Birth` of this boot. A restart gives the death of the old boot before the birth of the new one.
    Death { id: NodeId, boot: Boot },
    /// Another one says that it knows of a life of this node that its disk does not know of: then the disk is older than the node.
    Older { by: NodeId, why: String },
    /// Somebody said of a node what that node itself denies. It had no effect, or has none any more.
    Refuted { what: String },
    /// A frame of this peer is none of this protocol.
    Bad { from: NodeId, why: &'static str },
}

/// How a known node stands, as far as this node knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    Live,
    Suspect,
    Dead,
}
