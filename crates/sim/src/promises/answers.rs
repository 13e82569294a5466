//! No operation without an answer past its budget: every question to a live node is answered once, in time.

use std::collections::BTreeMap;

use base::{AskId, Span, Time};

use super::Broken;

const PROMISE: &str = "no operation without an answer past its budget";
/// What a node may be late: its own chores come every 200 ms, and clocks differ.
pub const LATE_MAX: Span = Span::millis(500);

#[derive(Default)]
pub struct Answers {
    open: BTreeMap<AskId, Open>,
    /// When a node last went on after a stop: what came due meanwhile is late without fault of its own.
    resumed: BTreeMap<usize, Time>,
}

struct Open {
    node: usize,
    budget: Span,
    deadline: Time,
    /// Asked while its node was stopped: its time begins when the node goes on and hears of it.
    unheard: bool,
}

impl Answers {
    pub fn asked(&mut self, id: AskId, node: usize, at: Time, budget: Span, stopped: bool) {
        self.open.insert(id, Open { node, budget, deadline: at + budget, unheard: stopped });
    }

    pub fn answered(&mut self, id: AskId, at: Time) -> Result<(), Broken> {
        match self.open.remove(&id) {
            Some(_) => Ok(()),
            None => Err(Broken { promise: PROMISE, at, what: format!("{id} was answered again, or never asked") }),
        }
    }

    /// Nobody answers for a dead node. Returns the questions that ended so.
    pub fn died(&mut self, node: usize) -> Vec<AskId> {
        self.resumed.remove(&node);
        let ids: Vec<_> = self.open.iter().filter(|(_, open)| open.node == node).map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| _ = self.open.remove(id));
        ids
    }

    /// Looks for late ones. `stopped` says whether a node is stopped now.
    pub fn check(&self, at: Time, stopped: impl Fn(usize) -> bool) -> Result<(), Broken> {
        for (id, open) in self.open.iter().filter(|(_, open)| !stopped(open.node)) {
            let from = self.resumed.get(&open.node).map_or(open.deadline, |resumed| open.deadline.max(*resumed));
            if at.since(from) > LATE_MAX {
                let what = format!("{id} to node {} was due at {:?}", open.node, open.deadline);
                return Err(Broken { promise: PROMISE, at, what });
            }
        }
        Ok(())
    }

    /// A stopped node goes on at this moment; its clock stood still for so long.
    pub fn resumed(&mut self, node: usize, at: Time, stood: Span) {
        self.resumed.insert(node, at);
        for open in self.open.values_mut().filter(|open| open.node == node) {
            open.deadline = open.deadline + stood;
        }
        for open in self.open.values_mut().filter(|open| open.node == node && open.unheard) {
            (open.deadline, open.unheard) = (at + open.budget, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span::secs(1);

    #[test]
    fn a_missing_and_a_second_answer_are_seen() {
        let mut answers = Answers::default();
        answers.asked(AskId(1), 0, Time::ZERO, SECOND, false);
        assert_eq!(answers.check(Time(1_400_000), |_| false), Ok(()));
        assert!(answers.check(Time(1_600_000), |_| false).is_err());
        assert_eq!(answers.answered(AskId(1), Time(1_600_000)), Ok(()));
        assert!(answers.answered(AskId(1), Time(1_600_000)).is_err());
    }

    #[test]
    fn a_stopped_or_dead_node_is_not_blamed() {
        let mut answers = Answers::default();
        answers.asked(AskId(1), 0, Time::ZERO, SECOND, false);
        answers.asked(AskId(2), 1, Time::ZERO, SECOND, false);
        answers.asked(AskId(3), 0, Time::ZERO, SECOND, true);
        assert_eq!(answers.died(1), [AskId(2)]);
        assert_eq!(answers.check(Time(5_000_000), |node| node == 0), Ok(()));
        answers.resumed(0, Time(5_000_000), Span::ZERO);
        assert_eq!(answers.check(Time(5_300_000), |_| false), Ok(()), "it has just gone on");
        assert!(answers.check(Time(5_600_000), |_| false).is_err());
        assert_eq!(answers.answered(AskId(1), Time(5_600_000)), Ok(()));
        assert_eq!(answers.check(Time(6_400_000), |_| false), Ok(()), "it heard the third at 5 s");
        assert!(answers.check(Time(6_600_000), |_| false).is_err());
    }
}
