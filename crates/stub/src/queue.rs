//! Jobs that wait for a worker: those that matter more first, of one priority in the order in which they came. Bounded:
//! when it is full, one that matters less makes room, or the newcomer is refused. Whose time is over is not begun.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tokio::time::Instant;

/// Invariant: no more than `most`.
pub struct Queue<T> {
    /// By priority, highest first, and number.
    waiting: BTreeMap<(Reverse<u8>, u64), (Instant, T)>,
    most: usize,
    next: u64,
}

/// What becomes of others when one comes, or is looked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> Queue<T> {
    pub fn new(most: usize) -> Self {
        Self { waiting: BTreeMap::new(), most, next: 0 }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The one that finds no room, if there is such: this one, or the last of those that matter less.
    pub fn push(&mut self, priority: u8, until: Instant, job: T) -> Option<Full<T>> {
        self.next += 1;
        self.waiting.insert((Reverse(priority), self.next), (until, job));
        let last = (self.waiting.len() > self.most).then(|| self.waiting.pop_last());
        last.flatten().map(|(_, (_, job))| Full(job))
    }

    /// The next one to be done, and before that, in `late`, those whose time is over.
    pub fn pop(&mut self, now: Instant, late: &mut Vec<T>) -> Option<T> {
        while let Some((_, (until, job))) = self.waiting.pop_first() {
            if until > now {
                return Some(job);
            }
            late.push(job);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_matters_more_is_done_first_and_equals_in_their_order() {
        let (now, mut queue) = (Instant::now(), Queue::new(8));
        let until = now + Duration::from_secs(1);
        for (priority, job) in [(5, "a"), (9, "b"), (5, "c"), (0, "d"), (9, "e")] {
            assert_eq!(queue.push(priority, until, job), None);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(now, &mut Vec::new())).collect();
        assert_eq!(order, ["b", "e", "a", "c", "d"]);
    }

    #[test]
    fn a_full_queue_refuses_what_matters_least() {
        let (now, mut queue) = (Instant::now(), Queue::new(2));
        let until = now + Duration::from_secs(1);
        assert_eq!((queue.push(5, until, "a"), queue.push(5, until, "b")), (None, None));
        assert_eq!(queue.push(5, until, "c"), Some(Full("c")), "of equals the one that came last");
        assert_eq!(queue.push(4, until, "d"), Some(Full("d")));
        assert_eq!(queue.push(9, until, "e"), Some(Full("b")));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn what_is_late_is_not_begun() {
        let (now, mut queue) = (Instant::now(), Queue::new(8));
        let soon = now + Duration::from_millis(10);
        queue.push(9, soon, "late");
        queue.push(5, now + Duration::from_secs(1), "good");
        let mut late = Vec::new();
        assert_eq!((queue.pop(soon, &mut late), &late[..]), (Some("good"), &["late"][..]));
        assert_eq!(queue.pop(soon, &mut late), None);
    }
}
