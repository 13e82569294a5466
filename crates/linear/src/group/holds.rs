//! Holds: keys that somebody has read and is about to write. Functions of services compute outside the group; where others write
//! the key without a pause they would find it changed each time. So who was beaten reads with `hold`, and writes of that key wait
//! in their order until he writes with `release`, for at most [`HOLD_MAX`]. Then those who waited have their turn. Nobody
//! beats him by a higher priority either: he lends his own to those before him, and borrows that of those who wait for him.
//!
//! Only the leader knows of it: a new one begins without, and then the condition on the version alone decides, as always.

use std::collections::{BTreeMap, VecDeque};

use base::Time;
use bytes::Bytes;

use super::{Group, Mark, keys};
use crate::limits::HOLD_MAX;
use crate::wire::Command;

#[derive(Default)]
pub struct Holds {
    held: BTreeMap<Bytes, Hold>,
    /// Commands that wait, oldest first.
    parked: VecDeque<(Mark, Command)>,
    /// Of them.
    pub(super) bytes: usize,
    /// Their keys, and in how many of them: who comes later for one of these does not overtake.
    wanted: BTreeMap<Bytes, usize>,
}

struct Hold {
    /// What its owner calls it.
    token: Bytes,
    until: Time,
}

impl Holds {
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    pub fn parked(&self) -> impl Iterator<Item = &Command> {
        self.parked.iter().map(|(_, command)| command)
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.held.values().map(|hold| hold.until).min()
    }

    fn is_over(&self, now: Time) -> bool {
        self.held.values().any(|hold| hold.until <= now)
    }

    /// All that wait, and nothing is held any more.
    fn drain(&mut self) -> VecDeque<(Mark, Command)> {
        std::mem::take(self).parked
    }

    fn must_wait(&self, command: &Command) -> bool {
        let owns = |function| self.owned(command, function).is_some();
        !owns("release")
            && !owns("hold")
            && keys(command).any(|key| self.held.contains_key(key) || self.wanted.contains_key(key))
    }

    /// The key, if this is of who holds it.
    fn owned<'a>(&self, command: &'a Command, function: &str) -> Option<&'a Bytes> {
        let (key, token) = named(command, function)?;
        self.held.get(key).filter(|hold| hold.token == token).map(|_| key)
    }

    fn park(&mut self, mark: Mark, command: Command) {
        for key in keys(&command) {
            *self.wanted.entry(key.clone()).or_default() += 1;
        }
        self.bytes += mark.bytes;
        self.parked.push_back((mark, command));
    }
}

/// Key and token of a step of this name.
fn named<'a>(command: &'a Command, function: &str) -> Option<(&'a Bytes, &'a Bytes)> {
    let step = command.steps.iter().find(|step| step.function == function)?;
    Some((&step.key, step.args.first()?))
}

impl Group {
    /// Into the queue, or behind those that wait for a hold to end.
    pub(super) fn enqueue(&mut self, now: Time, mut mark: Mark, command: Command) {
        if self.holds.must_wait(&command) {
            return self.holds.park(mark, command);
        }
        let ends = self.holds.owned(&command, "release").cloned();
        if let Some((key, token)) = named(&command, "hold") {
            // Who looks once more has no more time for it.
            let hold = || Hold { token: token.clone(), until: now + HOLD_MAX };
            self.holds.held.entry(key.clone()).or_insert_with(hold);
            // He would be beaten by those that came before him, if he went first.
            self.queue.raise(mark.priority, |other| keys(other).any(|of| of == key));
        }
        if ends.is_some() {
            // And by those who wait for him, if they did.
            let highest = self.holds.parked.iter().map(|(mark, _)| mark.priority).max();
            mark.priority = mark.priority.max(highest.unwrap_or(mark.priority));
        }
        mark.since = now;
        self.queue.push(mark, command);
        if let Some(key) = ends {
            self.holds.held.remove(&key);
            self.unpark(now);
        }
    }

    /// Ends holds whose owners have taken too long.
    pub(super) fn end_holds(&mut self, now: Time) {
        if self.holds.is_over(now) {
            self.holds.held.retain(|_, hold| hold.until > now);
            self.unpark(now);
        }
    }

    fn unpark(&mut self, now: Time) {
        self.holds.wanted.clear();
        self.holds.bytes = 0;
        for (mark, command) in std::mem::take(&mut self.holds.parked) {
            self.enqueue(now, mark, command);
        }
    }

    /// Nothing is held any more, who waited is in the queue.
    pub(super) fn drop_holds(&mut self) {
        self.holds.drain().into_iter().for_each(|(mark, command)| self.queue.push(mark, command));
    }
}

#[cfg(test)]
mod tests {
    use base::{Boot, GroupId, LEVEL, NodeId, Priority, Rng, Span};
    use cluster::raft::LogBounds;

    use super::*;
    use crate::Placed;
    use crate::op::Step;
    use crate::space::CommandId;

    const NOW: Time = Time::ZERO;

    fn group() -> Group {
        let (id, me) = (GroupId(7 << 16), NodeId(1));
        let placed = Placed {
            id,
            namespace: "bank".into(),
            from: 0,
            to: u64::MAX,
            members: vec![me],
            founders: vec![me],
            epoch: 1,
            memory: true,
            splits: 0,
            split: None,
        };
        let bounds = LogBounds { records_max: 500, bytes_max: 64 << 10, entries_kept: 16 };
        Group::start(id, placed, (me, LEVEL), None, (Vec::new(), bounds), false, NOW, Rng::new(1), &mut Vec::new())
            .unwrap()
    }

    fn command(seq: u64, steps: &[(&'static str, &'static str, &'static str)]) -> Command {
        let steps = steps.iter().map(|(key, function, arg)| Step::new((*key).into(), function, vec![(*arg).into()]));
        let id = CommandId { node: NodeId(1), boot: Boot(1), seq };
        Command { id, floor: 0, conditions: Vec::new(), steps: steps.collect(), splits: 0, once: None }
    }

    fn enqueue(group: &mut Group, now: Time, command: Command) {
        group.enqueue(now, mark(Priority::NORMAL), command);
    }

    fn mark(priority: Priority) -> Mark {
        Mark { priority, since: NOW, until: Time::NEVER, sole: true, bytes: 0 }
    }

    fn queued(group: &Group) -> Vec<u64> {
        group.queue.iter().map(|command| command.id.seq).collect()
    }

    #[test]
    fn writes_of_a_held_key_wait_for_its_holder_and_then_come_in_their_order() {
        let mut group = group();
        enqueue(&mut group, NOW, command(1, &[("k", "text.append", "a")]));
        enqueue(&mut group, NOW, command(2, &[("k", "hold", "mine")]));
        enqueue(&mut group, NOW, command(3, &[("k", "text.append", "b")]));
        enqueue(&mut group, NOW, command(4, &[("other", "text.append", "c")]));
        enqueue(&mut group, NOW, command(5, &[("k", "text.append", "e"), ("third", "text.append", "e")]));
        enqueue(&mut group, NOW, command(6, &[("third", "text.append", "f")]));
        enqueue(&mut group, NOW, command(7, &[("k", "release", "not mine")]));
        assert_eq!((queued(&group), group.holds.len()), (vec![1, 2, 4], 4), "only what has nothing to do with it");
        enqueue(&mut group, NOW, command(8, &[("k", "text.append", "d"), ("k", "release", "mine")]));
        assert_eq!((queued(&group), group.holds.len()), (vec![1, 2, 4, 8, 3, 5, 6, 7], 0));
        enqueue(&mut group, NOW, command(9, &[("k", "text.append", "g")]));
        assert_eq!(group.holds.len(), 0, "it is over");
    }

    #[test]
    fn a_holder_that_looks_once_more_does_not_wait_for_itself_and_has_no_more_time() {
        let mut group = group();
        enqueue(&mut group, NOW, command(1, &[("k", "hold", "a")]));
        enqueue(&mut group, NOW + Span::millis(1), command(2, &[("k", "hold", "a")]));
        assert_eq!((queued(&group), group.holds.wake_at()), (vec![1, 2], Some(NOW + HOLD_MAX)));
    }

    #[test]
    fn who_holds_next_waits_too_and_then_holds() {
        let mut group = group();
        enqueue(&mut group, NOW, command(1, &[("k", "hold", "a")]));
        enqueue(&mut group, NOW, command(2, &[("k", "text.append", "x")]));
        enqueue(&mut group, NOW, command(3, &[("k", "hold", "b")]));
        enqueue(&mut group, NOW, command(4, &[("k", "text.append", "y")]));
        enqueue(&mut group, NOW, command(5, &[("k", "release", "a")]));
        assert_eq!(queued(&group), [1, 5, 2, 3], "who waited before has had his turn");
        enqueue(&mut group, NOW, command(6, &[("k", "release", "b")]));
        assert_eq!(queued(&group), [1, 5, 2, 3, 6, 4]);
    }

    #[test]
    fn a_holder_that_is_gone_holds_up_nobody_for_long() {
        let mut group = group();
        enqueue(&mut group, NOW, command(1, &[("k", "hold", "a")]));
        enqueue(&mut group, NOW, command(2, &[("k", "text.append", "x")]));
        let over = NOW + HOLD_MAX;
        assert!(group.holds.wake_at() == Some(over));
        group.end_holds(over - Span::micros(1));
        assert_eq!(queued(&group), [1]);
        group.end_holds(over);
        assert_eq!((queued(&group), group.holds.wake_at()), (vec![1, 2], None));
        // Nor does one that held at a leader which is none any more.
        enqueue(&mut group, over, command(3, &[("k", "hold", "a")]));
        enqueue(&mut group, over, command(4, &[("k", "text.append", "x")]));
        group.drop_holds();
        assert_eq!((queued(&group), group.holds.wake_at()), (vec![1, 2, 3, 4], None));
    }

    #[test]
    fn who_holds_is_beaten_by_nobody_that_matters_more_or_less() {
        let mut group = group();
        let put = |group: &mut Group, priority, command| group.enqueue(NOW, mark(Priority(priority)), command);
        put(&mut group, 1, command(1, &[("k", "text.append", "a")]));
        put(&mut group, 1, command(2, &[("other", "text.append", "b")]));
        put(&mut group, 4, command(3, &[("k", "hold", "mine")]));
        assert_eq!(queued(&group), [1, 3, 2], "what he has to see comes before him");
        put(&mut group, 6, command(4, &[("k", "text.append", "c")]));
        put(&mut group, 2, command(5, &[("k", "text.append", "d"), ("k", "release", "mine")]));
        assert_eq!(queued(&group), [5, 4, 1, 3, 2], "those who wait for him come after him");
    }
}
