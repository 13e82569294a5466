//! Identities. Each is a type of its own, so that they cannot be swapped.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $shown, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A node, for as long as its disk lives: a node that comes back with an emptied disk is a new one (state.md, rule 8).
    NodeId, "node-{:012x}"
);
id!(
    /// One life of a node: counts up at each start and is kept on its disk.
    Boot, "boot-{}"
);
id!(
    /// A cluster. Nodes of different clusters refuse each other.
    ClusterId, "cluster-{:016x}"
);
id!(
    /// A question from a front door to its node; the answer carries it back.
    AskId, "ask-{}"
);
id!(
    /// A consensus group, and its share of the node's one log. Never given twice; 0 is the root group.
    GroupId, "group-{}"
);
id!(
    /// A write to the node's own disk; the event that says it is safe carries it back.
    Ticket, "ticket-{}"
);
id!(
    /// A child process, as its node numbers it. Never used twice in one boot.
    ProcId, "proc-{}"
);

impl GroupId {
    pub const ROOT: GroupId = GroupId(0);
}
