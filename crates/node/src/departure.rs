//! How a node that leaves goes on: what it waits for, for how long, and whether it stays after all. It knows neither
//! the cluster nor the machines of its node: `leave.rs` says what ties the node, and does what comes of it.

use base::{Boot, NodeId, Span, Time};
use serde::{Deserialize, Serialize};

pub use class::Leaving;

use crate::limits::{LEAVE_CLONES_MAX, LEAVE_LEADS_MAX, LEAVE_RUNS_MAX, LEAVE_TIME_MAX, REMOVE_TIME_MAX, WISH_KEPT};

/// What an operator wants of one life of one node: the fact [`crate::facts::WISH`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    pub node: NodeId,
    pub boot: Boot,
    pub how: Leaving,
    pub force: bool,
}

impl Wish {
    /// Whether it need not be passed on any more. `lives`: the life that it is about goes on. `heard`: what that node
    /// says of its leaving, whether by force.
    pub fn is_over(&self, lives: bool, heard: Option<bool>, passed_for: Span) -> bool {
        !lives || heard.is_some_and(|force| force >= self.force) || passed_for > WISH_KEPT
    }
}

/// A node that leaves.
pub(crate) struct Departure {
    pub how: Leaving,
    pub force: bool,
    pub waits: Option<String>,
    since: Time,
    /// The doors may close.
    pub ready: bool,
}

/// What ties a node to its cluster at this moment, in words where a person may be told.
#[derive(Clone, Default)]
pub(crate) struct Ties {
    /// A brick of the map.
    pub in_map: bool,
    /// Why it cannot end as it is.
    pub needed: Option<String>,
    /// What others have yet to take over.
    pub counted_on: Option<String>,
    /// A group that would stop, or nearly, while it is away.
    pub not_whole: Option<String>,
    /// Nobody else is here.
    pub is_alone: bool,
    pub clones: bool,
    pub runs: bool,
    /// A leader of what others could lead.
    pub leads: bool,
}

/// What a departure comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Waits(String),
    /// The wish is given up: the node is still needed, for that.
    Stays(String),
    /// The doors close; and what the node is still needed for, if it is.
    Goes(Option<String>),
}

impl Departure {
    pub fn begun(how: Leaving, force: bool, since: Time) -> Self {
        Self { how, force, waits: None, since, ready: false }
    }

    pub fn ready(how: Leaving, since: Time) -> Self {
        Self { ready: true, ..Self::begun(how, true, since) }
    }

    /// Somebody wishes it again, perhaps by force. How it leaves stays as it began.
    pub fn wished_again(&mut self, how: Leaving, force: bool) {
        self.force |= force && self.how == how;
    }

    pub fn next(&self, now: Time, ties: Ties) -> Next {
        let waited = now.since(self.since);
        let bricks = match self.how {
            // Once it is out of the map nobody counts on it.
            Leaving::Remove => ties.in_map.then(|| "the brick map still counts on it".to_owned()),
            Leaving::Restart => ties.needed,
        };
        let groups = match self.how {
            // Also by force it waits: what it has is handed on if it can be.
            Leaving::Remove => ties.counted_on.filter(|_| !ties.is_alone),
            Leaving::Restart => ties.not_whole.filter(|_| !self.force),
        };
        let time_max = if self.how == Leaving::Remove { REMOVE_TIME_MAX } else { LEAVE_TIME_MAX };
        if let Some(why) = bricks.filter(|_| !self.force).or(groups) {
            return match waited > time_max {
                true if self.force => Next::Goes(Some(why)),
                true => Next::Stays(why),
                false => Next::Waits(why),
            };
        }
        let waits = |what: &str| Next::Waits(what.to_owned());
        if ties.clones && !ties.is_alone && waited <= LEAVE_CLONES_MAX {
            return waits("its clones still run");
        }
        if ties.runs && waited <= LEAVE_RUNS_MAX {
            return waits("what it runs once for a service goes on");
        }
        if ties.leads && waited <= LEAVE_LEADS_MAX {
            return waits("it still leads groups that others could lead");
        }
        Next::Goes(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Time = Time(1_000_000);

    /// What comes of a departure after so many seconds.
    fn next(how: Leaving, force: bool, seconds: u64, ties: &Ties) -> Next {
        Departure::begun(how, force, SINCE).next(SINCE + Span::secs(seconds), ties.clone())
    }

    fn why(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn waits(text: &str) -> Next {
        Next::Waits(text.to_owned())
    }

    #[test]
    fn who_is_tied_by_nothing_goes_at_once_however_it_leaves() {
        for how in [Leaving::Restart, Leaving::Remove] {
            for force in [false, true] {
                assert_eq!(next(how, force, 0, &Ties::default()), Next::Goes(None), "{how:?} {force}");
            }
        }
    }

    #[test]
    fn what_ties_it_holds_it_for_its_time_and_no_longer() {
        use Leaving::{Remove, Restart};
        let none = Ties::default;
        let clones = Ties { clones: true, ..none() };
        let runs = Ties { runs: true, ..none() };
        let leads = Ties { leads: true, ..none() };
        for (ties, seconds, what) in [
            (clones, 15, "its clones still run"),
            (runs, 30, "what it runs once for a service goes on"),
            (leads, 10, "it still leads groups that others could lead"),
        ] {
            for (how, force) in [(Restart, false), (Restart, true), (Remove, false), (Remove, true)] {
                assert_eq!(next(how, force, seconds, &ties), waits(what), "{how:?} {force}");
                assert_eq!(next(how, force, seconds + 1, &ties), Next::Goes(None), "{how:?} {force}: {what}");
            }
        }
    }

    #[test]
    fn clones_of_a_node_that_is_alone_end_with_it_but_what_runs_once_is_waited_for() {
        let clones = Ties { clones: true, is_alone: true, ..Ties::default() };
        assert_eq!(next(Leaving::Restart, false, 0, &clones), Next::Goes(None));
        let runs = Ties { runs: true, ..clones };
        assert_eq!(next(Leaving::Restart, false, 0, &runs), waits("what it runs once for a service goes on"));
    }

    #[test]
    fn it_waits_for_the_first_tie_alone_and_for_the_next_when_that_is_gone() {
        let mut ties = Ties {
            needed: why("a brick"),
            not_whole: why("a group"),
            clones: true,
            runs: true,
            leads: true,
            ..Ties::default()
        };
        let mut told = Vec::new();
        for untie in [
            |ties: &mut Ties| ties.needed = None,
            |ties: &mut Ties| ties.not_whole = None,
            |ties: &mut Ties| ties.clones = false,
            |ties: &mut Ties| ties.runs = false,
            |ties: &mut Ties| ties.leads = false,
        ] {
            match next(Leaving::Restart, false, 1, &ties) {
                Next::Waits(what) => told.push(what),
                other => panic!("{other:?}"),
            }
            untie(&mut ties);
        }
        assert_eq!(told[..2], ["a brick", "a group"]);
        assert!(told[2].contains("clones") && told[3].contains("runs once") && told[4].contains("leads"), "{told:?}");
        assert_eq!(next(Leaving::Restart, false, 1, &ties), Next::Goes(None));
    }

    #[test]
    fn a_restart_that_is_needed_stays_after_a_minute_and_by_force_goes_at_once() {
        for ties in [
            Ties { needed: why("the only copy"), ..Ties::default() },
            Ties { not_whole: why("the only copy"), ..Ties::default() },
        ] {
            assert_eq!(next(Leaving::Restart, false, 60, &ties), waits("the only copy"));
            assert_eq!(next(Leaving::Restart, false, 61, &ties), Next::Stays("the only copy".into()));
            assert_eq!(next(Leaving::Restart, true, 0, &ties), Next::Goes(None));
        }
        // What others have yet to take over is nothing to who comes back, and neither is the map.
        let comes_back = Ties { counted_on: why("2 shards"), in_map: true, ..Ties::default() };
        assert_eq!(next(Leaving::Restart, false, 0, &comes_back), Next::Goes(None));
    }

    #[test]
    fn who_leaves_for_good_waits_ten_minutes_for_others_to_take_over_also_by_force() {
        let taken = Ties { counted_on: why("others have yet to take over 1 shard"), ..Ties::default() };
        for force in [false, true] {
            assert_eq!(
                next(Leaving::Remove, force, 600, &taken),
                waits("others have yet to take over 1 shard"),
                "by force: {force}"
            );
        }
        assert_eq!(
            next(Leaving::Remove, false, 601, &taken),
            Next::Stays("others have yet to take over 1 shard".into())
        );
        // By force it goes, and says what is lost with it.
        assert_eq!(next(Leaving::Remove, true, 601, &taken), Next::Goes(taken.counted_on.clone()));
        // Nobody is there who could take over.
        assert_eq!(next(Leaving::Remove, false, 0, &Ties { is_alone: true, ..taken }), Next::Goes(None));
    }

    #[test]
    fn the_brick_map_holds_who_leaves_for_good_unless_by_force() {
        let brick = Ties { in_map: true, needed: why("not asked"), not_whole: why("not asked"), ..Ties::default() };
        assert_eq!(next(Leaving::Remove, false, 1, &brick), waits("the brick map still counts on it"));
        assert_eq!(next(Leaving::Remove, true, 1, &brick), Next::Goes(None));
        assert_eq!(next(Leaving::Remove, false, 1, &Ties { in_map: false, ..brick }), Next::Goes(None));
    }

    #[test]
    fn a_second_wish_adds_force_to_the_same_departure_and_changes_nothing_of_another() {
        for (how, force, is_forced) in [
            (Leaving::Restart, false, false),
            (Leaving::Restart, true, true),
            (Leaving::Remove, true, false),
            (Leaving::Remove, false, false),
        ] {
            let mut departure = Departure::begun(Leaving::Restart, false, SINCE);
            departure.wished_again(how, force);
            assert_eq!((departure.how, departure.force), (Leaving::Restart, is_forced), "{how:?} {force}");
        }
        let mut forced = Departure::begun(Leaving::Restart, true, SINCE);
        forced.wished_again(Leaving::Restart, false);
        assert!(forced.force, "force is not taken back");
    }

    #[test]
    fn a_wish_is_passed_on_until_it_is_heard_as_it_was_meant_or_is_old() {
        let wish = |force| Wish { node: NodeId(7), boot: Boot(2), how: Leaving::Restart, force };
        for (force, lives, heard, seconds, is_over) in [
            (false, true, None, 0, false),
            (false, true, None, 15, false),
            (false, true, None, 16, true),
            (false, false, None, 0, true),
            (false, true, Some(false), 0, true),
            (false, true, Some(true), 0, true),
            // It leaves, but has not heard yet that it is to leave by force.
            (true, true, Some(false), 0, false),
            (true, true, Some(true), 0, true),
        ] {
            let over = wish(force).is_over(lives, heard, Span::secs(seconds));
            assert_eq!(over, is_over, "{force} {lives} {heard:?} {seconds}");
        }
    }
}
