//! What a class may look at beside what it hears, when it is asked whether a node is still needed.

use std::collections::BTreeMap;

use base::NodeId;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Class;

/// How a node leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// It comes back at once: whoever watches over the process starts it again.
    Restart,
    /// It does not come back.
    Remove,
}

/// When a class is asked whether a node is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Somebody wishes that it leaves. Before it ends, others can still get what they are to have.
    Wished,
    /// It ends now.
    Ends,
}

/// A node as this one sees it.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub name: String,
    /// It answers.
    pub is_live: bool,
    /// It is about to leave.
    pub leaves: Option<Leaving>,
    /// It is not dead, stays, and its disk takes what it is given: it can have more.
    pub is_usable: bool,
}

/// The cluster as this node sees it, for one class.
pub struct Scene<'a, C: Class> {
    pub me: NodeId,
    pub peers: &'a BTreeMap<NodeId, Peer>,
    /// Namespaces of the class.
    pub spaces: BTreeMap<&'a str, &'a C::Spec>,
    /// What a node tells all others under a key.
    pub facts: &'a dyn Fn(NodeId, &str) -> Option<&'a Bytes>,
}

/// A node that leaves, or wants to.
#[derive(Clone, Copy, Debug)]
pub struct Leaver {
    pub who: NodeId,
    pub how: Leaving,
    pub when: Moment,
}
