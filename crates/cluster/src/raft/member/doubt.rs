//! A member that has come back, and those that it asks: what each says, and what follows. Who has been asked enough is
//! decided in `raft/recall.rs`.

use std::collections::BTreeSet;

use base::NodeId;
use bytes::Bytes;
use raft::eraftpb as pb;

use super::Member;
use crate::raft::recall::Recalled;
use crate::raft::wire::{self, Said};
use crate::raft::{Output, State};

impl<S: State> Member<S> {
    pub(super) fn recall(&self, to: NodeId, out: &mut Vec<Output>) {
        let last = self.node.raft.raft_log.last_index();
        self.say(to, self.config.control, &Said::Recall { last, lost: self.rebooted }, Bytes::new(), out);
    }

    /// All others that may have a vote, as far as this member's log says: also those whom a change brings that it does not
    /// know to be committed.
    pub(super) fn others(&self) -> BTreeSet<NodeId> {
        let store = self.node.store();
        let mut others: BTreeSet<u64> = store.conf.voters.iter().chain(&store.conf.voters_outgoing).copied().collect();
        for entry in store.after(store.applied().0) {
            if entry.get_entry_type() != pb::EntryType::EntryNormal
                && let Some(change) = wire::decode_conf_change(entry.data.clone())
            {
                let comes = |step: &&pb::ConfChangeSingle| step.get_change_type() == pb::ConfChangeType::AddNode;
                others.extend(change.changes.iter().filter(comes).map(|step| step.node_id));
            }
        }
        others.into_iter().filter(|id| *id != self.me.0).map(NodeId).collect()
    }

    pub(super) fn recalled(&self, asker: NodeId) -> Recalled {
        Recalled {
            promised: self.promises.of(asker),
            last: self.last().max(self.floor),
            led: self.led,
            in_doubt: self.in_doubt,
        }
    }

    pub(super) fn hear_recalled(&mut self, from: NodeId, said: &Recalled, out: &mut Vec<Output>) {
        let (term, others) = (self.term(), self.others());
        if self.asking.is_some() {
            self.floor = self.floor.max(said.last);
        }
        if self.asking.as_mut().is_some_and(|asking| asking.answered(from, said, term, &others)) {
            self.asking = None;
        }
        let forgot = said.promised.term > term || (!self.rebooted && said.promised.entry > self.last());
        if forgot {
            let (promised, have) = (said.promised, (term, self.last()));
            out.push(self.distrust(&format!("{from} knows of {promised:?}, the disk has {have:?}")));
        }
    }

    /// A member may have lost entries that it acknowledged to us: what it said does not count any more.
    pub(super) fn take_back(&mut self, from: NodeId, last: u64) {
        self.promises.take_back(from);
        if !self.is_leader() {
            return;
        }
        let end = self.node.raft.raft_log.last_index();
        if let Some(progress) = self.node.raft.mut_prs().get_mut(from.0) {
            progress.become_probe();
            (progress.matched, progress.next_idx) = (0, last.min(end) + 1);
        }
    }

    /// Term and index of the last entry.
    pub(super) fn last(&self) -> (u64, u64) {
        let log = &self.node.raft.raft_log;
        (log.last_term(), log.last_index())
    }

    pub(super) fn is_below_floor(&self) -> bool {
        self.rebooted && self.last() < self.floor
    }

    /// Entries that it acknowledged may still be missing here.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt
    }
}
