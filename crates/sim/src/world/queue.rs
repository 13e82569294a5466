//! What is due, in order of time and then of arrival, so that one seed gives one order. Payloads stay in slots while
//! the heap moves small entries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Time;

pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    pushed: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), pushed: 0 }
    }

    pub fn push(&mut self, at: Time, due: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(due);
                slot
            }
            None => {
                self.slots.push(Some(due));
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 things are due at once")
            }
        };
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, slot)));
    }

    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at, self.slots[slot as usize].take().expect("an entry of the heap owns its slot")))
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_comes_first_and_equals_keep_their_order() {
        let mut queue = Queue::new();
        for (at, name) in [(5, "e"), (1, "a"), (3, "b"), (3, "c"), (3, "d")] {
            queue.push(Time(at), name);
        }
        assert_eq!(queue.next_at(), Some(Time(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, "abcde");
        assert_eq!(queue.len(), 0);
    }
}
