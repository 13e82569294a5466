//! A member that has come back, and those that it asks: what each says, and what follows. Who has been asked enough is
//! decided in `raft/recall.rs`.

use std::collections::BTreeSet;

use base::NodeId;
use bytes::Bytes;
use raft::eraftpb as pb;

use super::Member;
use crate::raft::recall::{Asking, Recalled};
use crate::raft::wire::{self, Said};
use crate::raft::{Output, State};

impl<S: State> Member<S> {
    /// One tick of doubt. True: that was all, raft does not tick.
    pub(super) fn tick_doubt(&mut self, given_up: impl Fn(&NodeId) -> bool, out: &mut Vec<Output>) -> bool {
        let last = self.last();
        let is_below = self.is_below_floor();
        if is_below && self.asking.is_none() && self.ends.iter().any(|(id, end)| *end > last && given_up(id)) {
            self.asking = Some(Asking::again());
        }
        // Meanwhile a leader may have brought all that it was to ask for.
        self.asking.take_if(|asking| !asking.is_first() && !is_below);
        let others = if self.asking.is_some() { self.others() } else { BTreeSet::new() };
        let left = self.asking.as_mut().map_or_else(Vec::new, |asking| asking.tick(&others, &given_up));
        let doubts = is_below || self.asking.is_some();
        if left.is_empty()
            && let Some(asking) = self.asking.take()
        {
            self.ends.retain(|id, _| !given_up(id));
            self.ends.extend(asking.into_ends());
        }
        left.into_iter().for_each(|to| self.recall(to, out));
        if is_below {
            self.let_time_pass();
        }
        doubts
    }

    /// What a follower's tick does, but to stand for election: whoever does not hear its leader any more listens to others.
    fn let_time_pass(&mut self) {
        let raft = &mut self.node.raft;
        raft.election_elapsed += 1;
        if raft.leader_id != raft::INVALID_ID && raft.pass_election_timeout() {
            raft.become_follower(raft.term, raft::INVALID_ID);
            self.draw_jitter(true);
        }
    }

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
        Recalled { promised: self.promises.of(asker), last: self.last(), led: self.led, in_doubt: self.in_doubt }
    }

    pub(super) fn hear_recalled(&mut self, from: NodeId, said: &Recalled, out: &mut Vec<Output>) {
        let (term, others) = (self.term(), self.others());
        if let Some(asking) = self.asking.take_if(|asking| asking.answered(from, said, term, &others)) {
            self.ends = asking.into_ends();
        }
        let forgot = said.promised.term > term || (!self.rebooted && said.promised.entry > self.last());
        if forgot {
            let (promised, have) = (said.promised, (term, self.last()));
            out.push(self.distrust(&format!("{from} knows of {promised:?}, the disk has {have:?}")));
        }
    }

    /// Somebody comes back, with a log that ends at this index.
    pub(super) fn hear_recall(&mut self, from: NodeId, last: u64, lost: bool) {
        if lost && self.config.memory {
            self.take_back(from, last);
        }
        // Killed with the end of its log still in memory only (its disk was full, say): maybe nobody has what it told of.
        let is_shorter = !lost && self.ends.get(&from).is_some_and(|end| last < end.1);
        if is_shorter && self.asking.is_none() && self.is_below_floor() {
            self.asking = Some(Asking::again());
        }
    }

    /// A member may have lost entries that it acknowledged to us: what it said does not count any more.
    fn take_back(&mut self, from: NodeId, last: u64) {
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

    /// It votes as if its log ended here at least (term, index).
    pub(super) fn floor(&self) -> (u64, u64) {
        self.ends.values().max().copied().unwrap_or_default()
    }

    pub(super) fn is_below_floor(&self) -> bool {
        self.rebooted && self.last() < self.floor()
    }

    /// It has not been told yet what it may have lost, and has not even a floor.
    pub(super) fn has_no_floor(&self) -> bool {
        self.asking.as_ref().is_some_and(Asking::is_first)
    }

    /// Entries that it acknowledged may still be missing here.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt
    }
}
