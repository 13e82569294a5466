//! For tests of the promises: bugs to plant, and what a node knows that no door shows.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use bytes::Bytes;

use crate::Object;

/// A bug to plant, named by the promise that it breaks (docs/design/object.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// O1: a node says that it has a write before its disk has it.
    Unforced,
    /// O1: a node that has heard nobody answers for what it alone has, though it may be gone.
    Presumes,
    /// O2: who does not say what it has is taken for one that has nothing.
    Hasty,
    /// O4: a deletion is forgotten as soon as all have it.
    Forgets,
    /// O5: what became of a push is not heard.
    Deaf,
    /// O6: who tells a manager that does not know it, or has forgotten, is not asked to begin anew.
    Tenured,
    /// O7: who tells a manager looks through all its buckets when some have moved.
    Rescans,
    /// O8: nobody makes the copies that are missing.
    Idle,
    /// O8: a copy is dropped on the word of one node.
    Rash,
}

/// Owners with the number of their namespace.
pub type Fragments = BTreeSet<(u32, Bytes)>;

impl Object {
    #[doc(hidden)]
    pub fn plant(&mut self, bug: Bug) {
        self.bug = Some(bug);
    }

    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Owners of which this node has objects.
    #[doc(hidden)]
    pub fn fragments(&self) -> Fragments {
        self.table.owned().cloned().collect()
    }

    /// What its directories say: whose objects each node has. None: one of them is not whole.
    #[doc(hidden)]
    pub fn directory(&self) -> Option<BTreeMap<NodeId, Fragments>> {
        self.directory.all()
    }

    /// Owners that it has named to managers since it started.
    #[doc(hidden)]
    pub fn named(&self) -> u64 {
        self.figures.named
    }
}
