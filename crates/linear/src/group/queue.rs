//! What waits at a leader: what matters most goes first, in order inside of one priority. While the oldest waits for too long,
//! or there is no room, what matters least is not let in, or goes again ([`flow::floor`]); who is the only one that comes is
//! never turned away for that.

use std::collections::VecDeque;

use base::{Priority, Span, Time};
use flow::floor::Floor;

use crate::limits::QUEUE_WAIT;

/// What is known of something that waits, besides what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub priority: Priority,
    /// Since when it waits here.
    pub since: Time,
    /// Later its node would not hear in time that it was not done.
    pub until: Time,
    /// No other node was asked to do it: if it is turned away here, it does not happen.
    pub sole: bool,
    /// Of its arguments.
    pub bytes: usize,
}

pub struct Queue<T> {
    by: [VecDeque<(Mark, T)>; PRIORITIES],
    /// Of each of them.
    bytes: [usize; PRIORITIES],
    floor: Floor,
}

const PRIORITIES: usize = Priority::HIGHEST.0 as usize + 1;

/// May one come in?
pub enum Entry<T> {
    Comes,
    /// And this goes for it, which matters least and has waited least.
    Instead(Mark, T),
    /// No: only what matters so much.
    Below(u8),
    /// No: there is no room, and nothing there matters less.
    Full,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { by: Default::default(), bytes: Default::default(), floor: Floor::new(QUEUE_WAIT) }
    }
}

impl<T> Queue<T> {
    pub fn len(&self) -> usize {
        self.by.iter().map(VecDeque::len).sum()
    }

    /// Of all that waits and matters so much.
    pub fn bytes_from(&self, priority: Priority) -> usize {
        self.bytes[usize::from(priority.0)..].iter().sum()
    }

    fn taken(&mut self, mark: &Mark) {
        self.bytes[usize::from(mark.priority.0)] -= mark.bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.by.iter().all(VecDeque::is_empty)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.by.iter().rev().flatten().map(|(_, it)| it)
    }

    /// How long the oldest has waited.
    fn waited(&self, now: Time) -> Span {
        let oldest = self.by.iter().filter_map(|of| of.front()).map(|(mark, _)| mark.since).min();
        oldest.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What matters less is turned away now; 0: nothing is. As soon as the queue is short there is room for all.
    pub fn floor(&self, now: Time) -> u8 {
        if self.waited(now).times(2) < QUEUE_WAIT { 0 } else { self.floor.at(now) }
    }

    /// Whether one that comes now is let in.
    pub fn entry(&mut self, now: Time, priority: Priority, is_full: bool) -> Entry<T> {
        let lowest = self.by.iter().position(|of| !of.is_empty()).filter(|_| is_full);
        let floor = self.floor(now).max(lowest.unwrap_or(0) as u8);
        if priority.0 < floor {
            return Entry::Below(floor);
        }
        // What nodes do by themselves says nothing of those who ask.
        if priority < Priority::HIGHEST {
            self.floor.note(now, self.waited(now), priority);
        }
        if !is_full {
            return Entry::Comes;
        }
        let lowest = lowest.filter(|lowest| *lowest < usize::from(priority.0));
        match lowest.and_then(|lowest| self.by[lowest].pop_back()) {
            Some((mark, it)) => {
                self.taken(&mark);
                Entry::Instead(mark, it)
            }
            None => Entry::Full,
        }
    }

    pub fn push(&mut self, mark: Mark, it: T) {
        let at = usize::from(mark.priority.0);
        self.bytes[at] += mark.bytes;
        self.by[at].push_back((mark, it));
    }

    /// The next ones, up to the first that is not wanted.
    pub fn take(&mut self, mut wants: impl FnMut(&T) -> bool) -> (Vec<Mark>, Vec<T>) {
        let mut taken = (Vec::new(), Vec::new());
        for (of, bytes) in self.by.iter_mut().zip(&mut self.bytes).rev() {
            while let Some((mark, it)) = of.pop_front_if(|(_, it)| wants(it)) {
                *bytes -= mark.bytes;
                taken.0.push(mark);
                taken.1.push(it);
            }
            if !of.is_empty() {
                break;
            }
        }
        taken
    }

    /// Those that are wanted, wherever they stand, in the order in which they would go.
    pub fn part(&mut self, mut wants: impl FnMut(&T) -> bool) -> (Vec<Mark>, Vec<T>) {
        let mut taken = (Vec::new(), Vec::new());
        for (of, bytes) in self.by.iter_mut().zip(&mut self.bytes).rev() {
            for (mark, it) in std::mem::take(of) {
                if wants(&it) {
                    *bytes -= mark.bytes;
                    taken.0.push(mark);
                    taken.1.push(it);
                } else {
                    of.push_back((mark, it));
                }
            }
        }
        taken
    }

    /// They are not taken after all.
    pub fn give_back(&mut self, marks: Vec<Mark>, taken: Vec<T>) {
        for (mark, it) in marks.into_iter().zip(taken).rev() {
            let at = usize::from(mark.priority.0);
            self.bytes[at] += mark.bytes;
            self.by[at].push_front((mark, it));
        }
    }

    /// Those whose time is over, as far as no other one is before them.
    pub fn late(&mut self, now: Time) -> Vec<(Mark, T)> {
        let mut late = Vec::new();
        for (of, bytes) in self.by.iter_mut().zip(&mut self.bytes) {
            while let Some(one) = of.pop_front_if(|(mark, _)| mark.until < now) {
                *bytes -= one.0.bytes;
                late.push(one);
            }
        }
        late
    }

    /// Some of those that matter less are to matter so much.
    pub fn raise(&mut self, to: Priority, which: impl Fn(&T) -> bool) {
        for at in (0..usize::from(to.0)).rev() {
            let all = std::mem::take(&mut self.by[at]).into_iter();
            let (raised, stay): (VecDeque<(Mark, T)>, _) = all.partition(|(_, it)| which(it));
            self.by[at] = stay;
            for (mark, it) in raised {
                self.taken(&mark);
                self.push(Mark { priority: to, ..mark }, it);
            }
        }
    }

    /// All, in the order in which they would have gone.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.bytes = Default::default();
        let by = std::mem::take(&mut self.by);
        by.into_iter().rev().flatten().map(|(_, it)| it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(1_000_000);

    fn mark(ms: u64, priority: u8) -> Mark {
        Mark {
            priority: Priority(priority),
            since: START + Span::millis(ms),
            until: Time::NEVER,
            sole: true,
            bytes: 10,
        }
    }

    fn queue(of: &[(u8, u32)]) -> Queue<u32> {
        let mut queue = Queue::default();
        of.iter().for_each(|(priority, name)| queue.push(mark(0, *priority), *name));
        queue
    }

    #[test]
    fn what_matters_most_goes_first_and_what_matters_the_same_in_order() {
        let mut queue = queue(&[(4, 1), (1, 2), (6, 3), (4, 4), (1, 5)]);
        let mut room = 0..3;
        let (marks, taken) = queue.take(|_| room.next().is_some());
        assert_eq!((&taken[..], queue.len(), queue.bytes_from(Priority(0))), (&[3, 1, 4][..], 2, 20));
        queue.give_back(marks, taken);
        assert_eq!([0, 1, 2, 4, 5, 6, 7].map(|p| queue.bytes_from(Priority(p))), [50, 50, 30, 30, 10, 10, 0]);
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [3, 1, 4, 2, 5]);
        // One that is too large for now holds up those behind it: they must not have its room for ever.
        assert_eq!(queue.take(|it| *it != 1).1, [3]);
        queue.raise(Priority(4), |it| *it == 5);
        assert_eq!([0, 2, 5].map(|p| queue.bytes_from(Priority(p))), [40, 30, 0]);
        assert_eq!(queue.drain().collect::<Vec<_>>(), [1, 4, 5, 2]);
        assert!(queue.is_empty() && queue.bytes_from(Priority(0)) == 0);
    }

    #[test]
    fn in_a_full_queue_the_lowest_and_newest_gives_way_to_what_matters_more() {
        let mut queue = queue(&[(1, 1), (1, 2), (4, 3)]);
        assert!(matches!(queue.entry(START, Priority(0), true), Entry::Below(1)));
        assert!(matches!(queue.entry(START, Priority(1), true), Entry::Full), "what matters the same waits its turn");
        assert!(matches!(queue.entry(START, Priority(4), true), Entry::Instead(_, 2)));
        assert_eq!(queue.bytes_from(Priority(0)), 20);
        assert!(matches!(queue.entry(START, Priority(0), false), Entry::Comes));
        let mut empty = Queue::<u32>::default();
        assert!(matches!(empty.entry(START, Priority(6), true), Entry::Full));
    }

    /// For a second one of each priority comes each millisecond, and one of them goes; the highest share of refusals last.
    fn turned_away(priorities: &[u8]) -> Vec<u8> {
        let (mut queue, mut turned) = (Queue::default(), Vec::new());
        for ms in 0..1_000 {
            let now = START + Span::millis(ms);
            for priority in priorities {
                match queue.entry(now, Priority(*priority), false) {
                    Entry::Below(_) if !turned.contains(priority) => turned.push(*priority),
                    Entry::Below(_) => (),
                    _ => queue.push(mark(ms, *priority), 0),
                }
            }
            let mut first = true;
            queue.take(|_| std::mem::take(&mut first));
        }
        turned.sort_unstable();
        turned
    }

    #[test]
    fn while_a_queue_stands_the_lowest_are_turned_away_and_never_all() {
        assert_eq!(turned_away(&[4]), [0; 0], "all are done");
        assert_eq!(turned_away(&[1, 4]), [1]);
        assert_eq!(turned_away(&[4, 4, 4]), [0; 0], "nobody else is there to make room for");
        assert_eq!(turned_away(&[0, 2, 4, 6, 7]), [0, 2, 4]);
    }

    #[test]
    fn those_whose_time_is_over_go_also_behind_others() {
        let mut queue = queue(&[(6, 1)]);
        let until = START + Span::millis(10);
        [(1, 2), (1, 3)].iter().for_each(|(p, name)| queue.push(Mark { until, ..mark(0, *p) }, *name));
        assert!(queue.late(until).is_empty());
        let late: Vec<u32> = queue.late(until + Span::micros(1)).into_iter().map(|(_, it)| it).collect();
        assert_eq!((late, queue.len(), queue.bytes_from(Priority(0))), (vec![2, 3], 1, 10));
    }
}
