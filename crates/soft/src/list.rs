//! Lists. An item lies at a *place*: bytes that are dense, so that there is room between any two for another one, and end with the
//! first update of the push that made it and a number within that push. So no two nodes make the same place, and what one push
//! brings lies together: another one's items, made without having seen it, come all before or all behind.
//!
//! ```text
//! place = base  push (node, boot, seq)  number          base = 8 bytes where it was pushed at an end; between two items: dense bytes
//! ```
//!
//! A removal is that of the item's cell, an `LSET` a write to it: no place is kept for what is gone.

use base::Now;
use bytes::Bytes;

use crate::cell::Cell;
use crate::dot::Dot;
use crate::limits::*;
use crate::op::{Did, Kind, List, Reply, Side};
use crate::space::{Address, Space};

/// Of the first item of a list. Each push at an end is one further.
const MIDDLE: u64 = 1 << 63;

/// One item that is there.
pub(crate) struct Item {
    at: Address,
    pub(crate) value: Bytes,
}

impl Space {
    pub(crate) fn list(&mut self, now: Now, key: Bytes, what: List) -> Reply {
        match what {
            List::Push { side, values, only_there } => {
                self.begin(now, &key);
                let there = self.items(&key).count();
                if only_there && there == 0 {
                    return Reply::Int(0);
                }
                match self.push(now, &key, side, values) {
                    Some(pushed) => Reply::Int((there + pushed) as i64),
                    None => Reply::NoRoom,
                }
            }
            List::Range { first, last } => {
                if self.has_ended(&key, now.mono) {
                    return Reply::Values(Vec::new());
                }
                let there = self.items(&key).count();
                let (from, to) = within(first, last, there);
                let items = self.items(&key).skip(from).take(to.saturating_sub(from));
                Reply::Values(items.map(|item| Some(item.value)).collect())
            }
            List::Length => {
                Reply::Int(if self.has_ended(&key, now.mono) { 0 } else { self.items(&key).count() as i64 })
            }
            List::Set { index, value } => {
                self.begin(now, &key);
                let there = self.items(&key).count();
                let (from, to) = within(index, index, there);
                let item = self.items(&key).nth(from).filter(|_| from < to);
                match item {
                    Some(item) => {
                        self.put(now, &item.at, Some((Some(value), None)));
                        Reply::Done
                    }
                    None if there == 0 => Reply::NoKey,
                    None => Reply::NoIndex,
                }
            }
            List::Remove { count, value } => {
                self.begin(now, &key);
                let most =
                    if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
                let mut found: Vec<Address> =
                    self.items(&key).filter(|item| item.value == value).map(|item| item.at).collect();
                if count < 0 {
                    found.reverse();
                }
                found.truncate(most);
                found.iter().for_each(|at| self.put(now, at, None));
                Reply::Int(found.len() as i64)
            }
            List::Trim { first, last } => {
                self.begin(now, &key);
                let there = self.items(&key).count();
                let (from, to) = within(first, last, there);
                let outside = |(nth, item): (usize, Item)| (nth < from || nth >= to).then_some(item.at);
                let gone: Vec<Address> = self.items(&key).enumerate().filter_map(outside).collect();
                self.remove_cells(now, &gone, Did::Trimmed);
                Reply::Done
            }
            List::Insert { side, pivot, value } => {
                self.begin(now, &key);
                self.insert(now, &key, side, &pivot, value)
            }
        }
    }

    /// Cells of a list, in order.
    fn places<'a>(&'a self, key: &'a Bytes) -> impl DoubleEndedIterator<Item = (&'a Address, &'a Cell)> + use<'a> {
        let first = Address::new(key.clone(), Kind::Item, Bytes::new());
        self.cells.range(first..Address::behind(key))
    }

    pub(crate) fn items<'a>(&'a self, key: &'a Bytes) -> impl DoubleEndedIterator<Item = Item> + use<'a> {
        let there = self.places(key).filter(|(at, cell)| at.key == *key && cell.is_there());
        there.map(|(at, cell)| Item { at: at.clone(), value: self.value_of(at, cell).unwrap_or_default() })
    }

    /// Puts these at an end, the last of them outermost. None: there is no room beyond.
    pub(crate) fn push(&mut self, now: Now, key: &Bytes, side: Side, values: Vec<Bytes>) -> Option<usize> {
        let end = |(at, _): (&Address, &Cell)| base_of(&at.element);
        let base = match side {
            // What is below the middle was put at the left end, whatever was there before.
            Side::Left => self.places(key).next().map_or(MIDDLE, end).min(MIDDLE).checked_sub(1),
            Side::Right => {
                self.places(key).next_back().map(end).map_or(Some(MIDDLE), |last| last.max(MIDDLE - 1).checked_add(1))
            }
        };
        let (base, count) = (base?.to_be_bytes(), values.len());
        let push = self.next_tag();
        for (nth, value) in values.into_iter().enumerate() {
            let number = if side == Side::Left { count - 1 - nth } else { nth };
            let at = Address::new(key.clone(), Kind::Item, place(&base, push, number));
            self.put(now, &at, Some((Some(value), None)));
        }
        Some(count)
    }

    fn insert(&mut self, now: Now, key: &Bytes, side: Side, pivot: &Bytes, value: Bytes) -> Reply {
        let items: Vec<Item> = self.items(key).collect();
        let there = items.len() as i64;
        if items.is_empty() {
            return Reply::Int(0);
        }
        let Some(nth) = items.iter().position(|item| item.value == *pivot) else { return Reply::Int(-1) };
        let nth = if side == Side::Left { nth } else { nth + 1 };
        // Behind all or before all it is a push.
        let (Some(before), Some(behind)) = (nth.checked_sub(1).map(|nth| &items[nth]), items.get(nth)) else {
            let pushed = self.push(now, key, side, vec![value]);
            return pushed.map_or(Reply::NoRoom, |_| Reply::Int(there + 1));
        };
        let place = between(&before.at.element, &behind.at.element)
            .map(|base| place(&base, self.next_tag(), 0))
            .filter(|place| place.len() <= NAME_BYTES_MAX);
        match place {
            Some(place) => {
                self.put(now, &Address::new(key.clone(), Kind::Item, place), Some((Some(value), None)));
                Reply::Int(there + 1)
            }
            None => Reply::NoRoom,
        }
    }
}

/// How the item that this update has put came to its place. Of a push to the left of several it cannot be told whether one of them
/// was replaced by the node that pushed it.
pub(crate) fn did(place: &[u8], by: Dot) -> Did {
    let Some((head, number)) = place.split_last_chunk::<4>() else { return Did::Inserted };
    let Some((base, tag)) = head.split_last_chunk::<24>() else { return Did::Inserted };
    let [node, boot, seq] = [0, 8, 16].map(|at| tag[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
    let is_own = (by.life.node.0, by.life.boot.0) == (node, boot);
    let nth = by.seq.saturating_sub(seq);
    let side = if base_of(base) < MIDDLE { Side::Left } else { Side::Right };
    match base.len() {
        _ if !is_own || side == Side::Right && nth != u64::from(u32::from_be_bytes(*number)) => Did::Replaced,
        8 => Did::Pushed(side),
        _ => Did::Inserted,
    }
}

/// From here up to there, as Redis counts: negative ones from the end.
fn within(first: i64, last: i64, there: usize) -> (usize, usize) {
    let there = there as i64;
    let place = |n: i64| if n < 0 { there.saturating_add(n) } else { n };
    let (from, to) = (place(first).max(0), place(last).min(there - 1));
    if from > to { (0, 0) } else { (from as usize, to as usize + 1) }
}

/// The first eight bytes; what a peer has made shorter ends with zeros.
fn base_of(place: &[u8]) -> u64 {
    let mut base = [0; 8];
    let known = place.len().min(8);
    base[..known].copy_from_slice(&place[..known]);
    u64::from_be_bytes(base)
}

fn place(base: &[u8], push: [u8; 24], number: usize) -> Bytes {
    [base, &push[..], &(number as u32).to_be_bytes()[..]].concat().into()
}

/// Bytes behind `low` and before `high`, which no more bytes at their end bring behind `high`. None: there is no room.
fn between(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let mut base = Vec::new();
    // All bytes so far are those of `high`.
    let mut is_bounded = true;
    loop {
        let at = base.len();
        let floor = u16::from(low.get(at).copied().unwrap_or(0));
        let ceiling = match (is_bounded, high.get(at)) {
            (true, Some(byte)) => u16::from(*byte),
            (true, None) => return None,
            (false, _) => 256,
        };
        if ceiling >= floor + 2 {
            base.push(u16::midpoint(floor, ceiling) as u8);
            return Some(base);
        }
        if ceiling < floor || at > 2 * NAME_BYTES_MAX {
            return None;
        }
        is_bounded = is_bounded && ceiling == floor;
        base.push(floor as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn between_two_there_is_room_for_bytes_that_stay_there() {
        for (low, high, is) in [
            (&[1u8, 2][..], &[1u8, 9][..], Some(&[1u8, 5][..])),
            (&[1], &[1, 0, 9], Some(&[1, 0, 4])),
            (&[1], &[1, 1, 5], Some(&[1, 0, 128])),
            (&[1, 255], &[2], Some(&[1, 255, 128])),
            (&[1, 7], &[2], Some(&[1, 131])),
            (&[255, 255], &[255, 255, 255], Some(&[255, 255, 127])),
            (&[1], &[1, 0], None),
            (&[1], &[1, 0, 0, 0], None),
            (&[1], &[1], None),
            (&[2], &[1], None),
            (&[], &[], None),
        ] {
            assert_eq!(between(low, high).as_deref(), is, "{low:?} {high:?}");
        }
        assert_eq!(
            (within(0, -1, 3), within(-2, 5, 3), within(2, 1, 3), within(5, 9, 3)),
            ((0, 3), (1, 3), (0, 0), (0, 0))
        );
        assert_eq!((within(i64::MIN, i64::MAX, 3), within(0, -1, 0)), ((0, 3), (0, 0)));
        assert_eq!((base_of(&[1]), base_of(&[0, 0, 0, 0, 0, 0, 0, 2, 9])), (1 << 56, 2));
    }

    #[test]
    fn some_thousand_fit_at_one_point() {
        let (first, last) = (place(&MIDDLE.to_be_bytes(), [1; 24], 0), place(&(MIDDLE + 1).to_be_bytes(), [1; 24], 0));
        for nearer in [false, true] {
            let (mut low, mut high, mut count) = (first.clone(), last.clone(), 0);
            while let Some(new) = between(&low, &high).map(|base| place(&base, [1; 24], 0))
                && new.len() <= NAME_BYTES_MAX
            {
                assert!(low < new && new < high);
                *(if nearer { &mut low } else { &mut high }) = new;
                count += 1;
            }
            assert!(count > 3_000, "{count}");
        }
    }

    proptest! {
        #[test]
        fn what_is_put_between_two_lies_between_them(
            a in prop::collection::vec(0..4u8, 0..6),
            b in prop::collection::vec(0..4u8, 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            match between(&low, &high) {
                Some(base) => {
                    let place = [&base[..], &tail].concat();
                    prop_assert!(low < place && place < high, "{:?} {:?} {:?}", low, place, high);
                    prop_assert_ne!(base.last(), Some(&0));
                }
                // Then the upper one is the lower one with nothing but zeros behind it.
                None => prop_assert!(high.starts_with(&low) && high[low.len()..].iter().all(|byte| *byte == 0)),
            }
        }
    }
}
