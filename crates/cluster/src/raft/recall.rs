//! A member that comes back asks the others what it has promised them. A disk that was put back to an older state, or
//! that never wrote what it said it had, does not know it has forgotten; those to whom it promised do. Until they have
//! answered, or had time to, the member gives no vote and stands for nothing.
//!
//! What nobody that lives remembers cannot be found out: the promises are kept in memory, and those to a leader that has
//! died since went with it.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use raft::eraftpb as pb;

use super::limits::RECALL_TICKS;

/// What a member is known to have promised: the highest term that it spoke in, and the furthest entry (its term, then
/// its index) that it said it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Promised {
    pub term: u64,
    pub entry: (u64, u64),
}

/// What the others have promised us.
#[derive(Default)]
pub(super) struct Promises {
    of: BTreeMap<NodeId, Promised>,
}

impl Promises {
    /// It said this. `entry_term`: of an entry of our log.
    pub fn heard(&mut self, from: NodeId, message: &pb::Message, entry_term: impl Fn(u64) -> Option<u64>) {
        let kind = message.get_msg_type();
        if matches!(kind, pb::MessageType::MsgRequestPreVote | pb::MessageType::MsgRequestPreVoteResponse) {
            // About a term that may never come.
            return;
        }
        let promised = self.of.entry(from).or_default();
        promised.term = promised.term.max(message.term);
        if kind == pb::MessageType::MsgAppendResponse
            && !message.reject
            && let Some(term) = entry_term(message.index)
        {
            promised.entry = promised.entry.max((term, message.index));
        }
    }

    pub fn of(&self, id: NodeId) -> Promised {
        self.of.get(&id).copied().unwrap_or_default()
    }
}

/// Who has not answered yet.
pub(super) struct Asking {
    left: BTreeSet<NodeId>,
    ticks: u32,
}

impl Asking {
    pub fn new(others: impl Iterator<Item = NodeId>) -> Option<Self> {
        let left: BTreeSet<NodeId> = others.collect();
        (!left.is_empty()).then_some(Self { left, ticks: 0 })
    }

    pub fn answered(&mut self, from: NodeId) {
        self.left.remove(&from);
    }

    /// Whom to ask now; none if it is over.
    pub fn tick(&mut self) -> Option<&BTreeSet<NodeId>> {
        self.ticks += 1;
        (!self.left.is_empty() && self.ticks <= RECALL_TICKS).then_some(&self.left)
    }
}
