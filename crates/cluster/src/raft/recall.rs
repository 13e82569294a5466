//! A member that comes back asks the others what it has promised them. A disk that was put back to an older state, or
//! that never wrote what it said it had, does not know it has forgotten; those to whom it promised do. Until they have
//! answered, or had time to, the member gives no vote and stands for nothing.
//!
//! What nobody that lives remembers cannot be found out: the promises are kept in memory, and those to a leader that has
//! died since went with it.
//!
//! **Of a memory group** a member whose machine was rebooted knows that entries may be missing at its end. An entry that it
//! acknowledged and that was committed is also in the log of another voter, unless that one was rebooted as well. So
//! it asks all where their logs end. The furthest end is its *floor*: it votes as if its own log ended there, and stands
//! for nothing until it does. It has asked enough when one has answered that leads or led in its term or a later one (which holds
//! all that was committed before, and what was acknowledged to it by the asker and then committed), or when all have. If so many were rebooted (or given up by the cluster) that the others are no majority, those that are there go on
//! after a while with the furthest end they know: then what was committed shortly before the power failed may be lost.
//!
//! **The floor is lowered** when the cluster gives up who told it, or that one was killed and comes back with less (it had not
//! yet written all that it told of): else a group would wait for ever for a log that is gone.
//! Its end is not just dropped, as it may have led, so that nobody else was asked, or have committed more after the others
//! had answered. The member asks anew, and only what it hears then, or has heard of those not given up, takes the place of
//! the old floor. Each tells where its own log ends, never its floor: that would bring the lost end back by way of another.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use raft::eraftpb as pb;

use super::limits::{REBOOTED_TICKS, RECALL_TICKS};

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

    /// It does not hold those entries any more, and has said so.
    pub fn take_back(&mut self, id: NodeId) {
        self.of.entry(id).or_default().entry = (0, 0);
    }

    pub fn of(&self, id: NodeId) -> Promised {
        self.of.get(&id).copied().unwrap_or_default()
    }
}

/// What a member answers to one that has come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recalled {
    pub promised: Promised,
    /// The last entry (its term, then its index) of the answering member, be it on the disk or not yet: who led may have
    /// committed by others' disks what its own does not have.
    pub last: (u64, u64),
    /// The last term that it has led in, in this life of its process; 0: none.
    pub led: u64,
    /// It was rebooted itself, and has not made up for it yet.
    pub in_doubt: bool,
}

/// Who has answered. Who is to be asked may change meanwhile: a member learns of changes of its group from the leader.
pub(super) struct Asking {
    /// Where their logs end at least (term, then index).
    answered: BTreeMap<NodeId, (u64, u64)>,
    ticks: u32,
    /// The machine was rebooted: time alone is no answer.
    rebooted: bool,
    /// It has a floor, but who told it is given up since, or has less.
    again: bool,
    /// Others that were rebooted too.
    doubters: BTreeSet<NodeId>,
}

impl Asking {
    pub fn new(rebooted: bool) -> Self {
        Self { answered: BTreeMap::new(), ticks: 0, rebooted, again: false, doubters: BTreeSet::new() }
    }

    pub fn again() -> Self {
        Self { again: true, ..Self::new(true) }
    }

    pub fn is_first(&self) -> bool {
        !self.again
    }

    /// True: nothing more needs to be asked of these others. `term`: of the member that asks.
    pub fn answered(&mut self, from: NodeId, said: &Recalled, term: u64, others: &BTreeSet<NodeId>) -> bool {
        let end = self.answered.entry(from).or_default();
        *end = said.last.max(*end);
        if said.in_doubt {
            self.doubters.insert(from);
        }
        self.silent(others).is_empty() || (self.rebooted && said.led >= term.max(1))
    }

    /// Whom to ask now; nobody if it is over. Who is `given_up` may never answer; all others that are sound must.
    pub fn tick(&mut self, others: &BTreeSet<NodeId>, given_up: impl Fn(&NodeId) -> bool) -> Vec<NodeId> {
        self.ticks += 1;
        let sound = others.difference(&self.doubters).count();
        let silent = self.silent(others);
        let waits = silent.iter().any(|id| !given_up(id));
        let ticks_max = match self.rebooted {
            true if waits && sound > others.len().div_ceil(2) => u32::MAX,
            true => REBOOTED_TICKS,
            false => RECALL_TICKS,
        };
        // One that did not lead may lead now.
        let left = if self.rebooted && !silent.is_empty() { others.iter().copied().collect() } else { silent };
        if self.ticks <= ticks_max { left } else { Vec::new() }
    }

    pub fn into_ends(self) -> BTreeMap<NodeId, (u64, u64)> {
        self.answered
    }

    fn silent(&self, others: &BTreeSet<NodeId>) -> Vec<NodeId> {
        others.iter().filter(|id| !self.answered.contains_key(id)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_know_more_is_waited_for_until_the_cluster_gives_it_up() {
        let others = BTreeSet::from([NodeId(1), NodeId(2)]);
        let mut asking = Asking::new(true);
        assert!(!asking.answered(NodeId(2), &Recalled::default(), 1, &others));
        for _ in 0..3 * REBOOTED_TICKS {
            assert!(!asking.tick(&others, |_| false).is_empty());
        }
        assert!(!asking.tick(&others, |id| *id == NodeId(2)).is_empty(), "the other may know more");
        assert!(asking.tick(&others, |id| *id == NodeId(1)).is_empty());
    }

    #[test]
    fn who_has_led_since_knows_all_that_counts() {
        let others = BTreeSet::from([NodeId(1), NodeId(2)]);
        let said = |led| Recalled { led, ..Recalled::default() };
        assert!(!Asking::new(true).answered(NodeId(2), &said(4), 5, &others), "an older term");
        assert!(Asking::new(true).answered(NodeId(2), &said(5), 5, &others));
        assert!(
            !Asking::new(false).answered(NodeId(2), &said(5), 5, &others),
            "what is asked is what was promised to it"
        );
    }
}
