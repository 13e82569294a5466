//! How old a member's state is at most, by this node's own clock alone. A call of this node that began at some moment and was
//! answered by the leader knows of everything that was acknowledged before it began; once this member has applied as
//! much as the answer knew of, so does its state. Calls that come anyway are enough: nothing is asked for it. When the clock may
//! have stood still, as that of a machine does which is suspended, what began before counts for nothing: it is older than it seems.

use base::Time;

#[derive(Default)]
pub struct Freshness {
    /// Everything that was acknowledged before this moment is in the state.
    since: Option<Time>,
    /// Will be so from this moment, once this index is applied. A later one waits its turn: it might always be too new.
    next: Option<(Time, u64)>,
    /// Until then the clock may have stood still.
    stood: Time,
}

impl Freshness {
    pub fn learn(&mut self, begun: Time, index: u64, applied: u64) {
        if index == 0 || begun <= self.stood {
            return;
        }
        if index <= applied {
            self.since = self.since.max(Some(begun));
        } else {
            self.of(applied);
            self.next.get_or_insert((begun, index));
        }
    }

    /// The clock may have stood still up to now.
    pub fn stood(&mut self, now: Time) {
        *self = Self { stood: now, ..Self::default() };
    }

    /// The moment from which on something may be missing in a state of this index.
    pub fn of(&mut self, applied: u64) -> Option<Time> {
        if let Some((begun, _)) = self.next.take_if(|(_, index)| *index <= applied) {
            self.since = self.since.max(Some(begun));
        }
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_as_fresh_as_the_last_answer_that_it_has_caught_up_with() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.of(100), None, "nobody has said anything");
        freshness.learn(Time(10), 5, 4);
        assert_eq!(freshness.of(4), None, "entry 5 is missing");
        // Later answers wait: the first is reached sooner.
        freshness.learn(Time(20), 9, 4);
        assert_eq!(freshness.of(5), Some(Time(10)));
        freshness.learn(Time(30), 6, 6);
        assert_eq!(freshness.of(6), Some(Time(30)));
        // An answer that took long says less than one that was asked for later.
        freshness.learn(Time(25), 6, 6);
        freshness.learn(Time(40), 0, 6);
        assert_eq!(freshness.of(6), Some(Time(30)));
        freshness.stood(Time(50));
        freshness.learn(Time(50), 7, 9);
        assert_eq!(freshness.of(9), None, "nobody knows how long ago that began");
        freshness.learn(Time(51), 8, 9);
        assert_eq!(freshness.of(9), Some(Time(51)));
    }
}
