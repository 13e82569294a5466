//! What is told of a message from its head, without a member that takes it.

use bytes::Bytes;
use raft::eraftpb as pb;

use super::Member;
use crate::raft::State;
use crate::raft::wire::{self, Said};

impl<S: State> Member<S> {
    /// What a frame says about sleep: the term and commit index of the leader that says so.
    pub fn sleep_word(head: &Bytes) -> Option<(u64, u64)> {
        match wire::decode(head.clone())?.2 {
            Said::Sleep { term, commit } => Some((term, commit)),
            Said::Raft(_) | Said::Part { .. } | Said::Want { .. } | Said::Recall { .. } | Said::Recalled(_) => None,
        }
    }

    /// Whether only a leader says this.
    pub fn is_leaders_word(head: &Bytes) -> bool {
        let Some((_, _, Said::Raft(message))) = wire::decode(head.clone()) else { return false };
        matches!(message.get_msg_type(), pb::MessageType::MsgHeartbeat | pb::MessageType::MsgAppend)
    }

    /// Whether somebody who has come back asks what it has promised. Also who cannot write may answer that: it is told from
    /// memory, and is no promise.
    pub fn is_recall(head: &Bytes) -> bool {
        matches!(wire::decode(head.clone()), Some((_, _, Said::Recall { .. })))
    }
}
