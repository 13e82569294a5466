//! Sorts so much of a list as is asked for, in the way of Redis' (`pqsort.c`, after Bentley and McIlroy's "Engineering a Sort
//! Function"): where items are alike, which of them come first is the same as there.

use std::cmp::Ordering;
use std::ops::Range;

/// More items are sorted in whole, those that are alike in the order in which they stand: what makes this way slow, which somebody could
/// want to, is then slow for well under a second.
const ITEMS_MAX: usize = 5_000;

/// Puts those items into their places that belong into these.
pub fn sort<T>(items: &mut [T], wanted: Range<usize>, order: impl Fn(&T, &T) -> Ordering) {
    if wanted.len() >= items.len() || items.len() > ITEMS_MAX {
        items.sort_by(order);
    } else if !wanted.is_empty() {
        Partly { items, wanted, order }.sort(0, usize::MAX);
    }
}

struct Partly<'a, T, F> {
    items: &'a mut [T],
    wanted: Range<usize>,
    order: F,
}

impl<T, F: Fn(&T, &T) -> Ordering> Partly<'_, T, F> {
    fn order(&self, a: usize, b: usize) -> Ordering {
        (self.order)(&self.items[a], &self.items[b])
    }

    fn median(&self, a: usize, b: usize, c: usize) -> usize {
        let is = |x, y, order: Ordering| self.order(x, y) == order;
        if is(a, b, Ordering::Less) {
            if is(b, c, Ordering::Less) {
                b
            } else if is(a, c, Ordering::Less) {
                c
            } else {
                a
            }
        } else if is(b, c, Ordering::Greater) {
            b
        } else if is(a, c, Ordering::Less) {
            a
        } else {
            c
        }
    }

    fn swap_many(&mut self, a: usize, b: usize, count: usize) {
        (0..count).for_each(|n| self.items.swap(a + n, b + n));
    }

    fn is_wanted(&self, from: usize, len: usize) -> bool {
        len > 1 && from < self.wanted.end && from + len > self.wanted.start
    }

    fn sort(&mut self, mut from: usize, len: usize) {
        let mut len = len.min(self.items.len() - from);
        loop {
            if len < 7 {
                for upper in from + 1..from + len {
                    let mut at = upper;
                    while at > from && self.order(at - 1, at).is_gt() {
                        self.items.swap(at, at - 1);
                        at -= 1;
                    }
                }
                return;
            }
            self.items.swap(from, self.pivot(from, len));
            // Those like the first one come to both ends, and from there between the lower and the upper ones.
            let (mut same_low, mut low) = (from + 1, from + 1);
            let (mut high, mut same_high) = (from + len - 1, from + len - 1);
            loop {
                while low <= high && self.order(low, from).is_le() {
                    if self.order(low, from).is_eq() {
                        self.items.swap(same_low, low);
                        same_low += 1;
                    }
                    low += 1;
                }
                while low <= high && self.order(high, from).is_ge() {
                    if self.order(high, from).is_eq() {
                        self.items.swap(high, same_high);
                        same_high -= 1;
                    }
                    high -= 1;
                }
                if low > high {
                    break;
                }
                self.items.swap(low, high);
                low += 1;
                high -= 1;
            }
            let end = from + len;
            let moved = (same_low - from).min(low - same_low);
            self.swap_many(from, low - moved, moved);
            let moved = (same_high - high).min(end - same_high - 1);
            self.swap_many(low, end - moved, moved);
            let (lower, upper) = (low - same_low, same_high - high);
            if self.is_wanted(from, lower) {
                self.sort(from, lower);
            }
            if !self.is_wanted(end - upper, upper) {
                return;
            }
            (from, len) = (end - upper, upper);
        }
    }

    fn pivot(&self, from: usize, len: usize) -> usize {
        let (mut first, mut middle, mut last) = (from, from + len / 2, from + len - 1);
        if len > 40 {
            let part = len / 8;
            first = self.median(first, first + part, first + 2 * part);
            middle = self.median(middle - part, middle, middle + part);
            last = self.median(last - 2 * part, last - part, last);
        }
        if len > 7 { self.median(first, middle, last) } else { middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_in_its_place() {
        let mut rng = base::Rng::new(3);
        for _ in 0..500 {
            let len = rng.below(200) as usize;
            let items: Vec<u64> = (0..len).map(|_| rng.below(50)).collect();
            let from = rng.below(len as u64 + 1) as usize;
            let wanted = from..from + rng.below((len - from) as u64 + 1) as usize;
            let (mut partly, mut sorted) = (items.clone(), items);
            sort(&mut partly, wanted.clone(), u64::cmp);
            sorted.sort_unstable();
            assert_eq!(partly[wanted.clone()], sorted[wanted]);
            partly.sort_unstable();
            assert_eq!(partly, sorted, "none is lost");
        }
    }
}
