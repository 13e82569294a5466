//! Names of updates: who made them and the how manieth it was; and the stamp by which a reader chooses among siblings.

use base::{Boot, NodeId};

use crate::limits::SEQ_MAX;

/// One life of a node: the origin of updates. A node that comes back with an older checkpoint is another life, so no number
/// is ever given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Life {
    pub node: NodeId,
    pub boot: Boot,
}

/// One update. It touches exactly one cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dot {
    pub life: Life,
    /// From 1, in each namespace of its own.
    pub seq: u64,
}

impl Dot {
    /// A dot as outside bytes tell it; none if no life could have given that number.
    pub fn told(life: Life, seq: u64) -> Option<Self> {
        (1..=SEQ_MAX).contains(&seq).then_some(Self { life, seq })
    }
}

/// Time of a write by its origin's hybrid clock. Chooses what is read among siblings, and decides nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Orders stamps of one millisecond.
    pub counter: u32,
}
