//! Whether an entry was purged since a moment. Who fetches what is missing took its time: what it brings was made before a purge that
//! came meanwhile, and may not be stored. So a read gives a mark, and a write that shows it is done only if no purge since then
//! is about it. A mark is the key's node's own: it does all purges before it may serve, so it knows of each that was acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Purge;
use super::limits::MARKED_PURGES_MAX;

#[derive(Default)]
pub struct Marks {
    /// Of the last purge.
    number: u64,
    /// The purges before that one, and itself, the oldest first.
    recent: VecDeque<Purge>,
}

impl Marks {
    /// What is purged from now on comes after this.
    pub fn now(&self) -> u64 {
        self.number
    }

    pub fn push(&mut self, purge: Purge) {
        self.number += 1;
        if self.recent.len() >= MARKED_PURGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(purge);
    }

    /// Nobody knows what was purged: no mark from before counts.
    pub fn forget(&mut self) {
        self.number += 1;
        self.recent.clear();
    }

    /// Surely no purge after this mark is about such an entry.
    pub fn is_clear_since(&self, mark: u64, namespace: u32, key: &[u8], tags: &[Bytes]) -> bool {
        let Some(since) = self.number.checked_sub(mark).and_then(|since| usize::try_from(since).ok()) else {
            return false;
        };
        since <= self.recent.len()
            && !self.recent.iter().rev().take(since).any(|purge| purge.covers(namespace, key, tags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::What;

    fn tag(name: &'static str) -> Purge {
        Purge { namespace: 1, what: What::Tag(name.into()) }
    }

    #[test]
    fn only_a_purge_since_the_mark_that_is_about_the_entry_counts() {
        let mut marks = Marks::default();
        marks.push(tag("news"));
        let mark = marks.now();
        let news = [Bytes::from("news")];
        assert!(marks.is_clear_since(mark, 1, b"k", &news), "it was before");
        marks.push(tag("other"));
        assert!(marks.is_clear_since(mark, 1, b"k", &news), "it is about another");
        marks.push(tag("news"));
        assert!(!marks.is_clear_since(mark, 1, b"k", &news));
        assert!(marks.is_clear_since(mark, 2, b"k", &news), "it is of another namespace");
        assert!(marks.is_clear_since(marks.now(), 1, b"k", &news));
    }

    #[test]
    fn a_mark_that_nobody_can_judge_does_not_count() {
        let mut marks = Marks::default();
        assert!(!marks.is_clear_since(1, 1, b"k", &[]), "it is from nowhere");
        let mark = marks.now();
        (0..MARKED_PURGES_MAX).for_each(|_| marks.push(tag("other")));
        assert!(marks.is_clear_since(mark, 1, b"k", &[]));
        marks.push(tag("other"));
        assert!(!marks.is_clear_since(mark, 1, b"k", &[]), "there were too many since");
        let mark = marks.now();
        marks.forget();
        assert!(!marks.is_clear_since(mark, 1, b"k", &[]));
        assert!(marks.is_clear_since(marks.now(), 1, b"k", &[]));
    }
}
