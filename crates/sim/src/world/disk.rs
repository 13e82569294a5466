//! One node's disk: a log of records and what is on its way to it. A write is safe when it completes; a crash keeps a
//! prefix of what was under way, as a real file system may, and a rewrite happens whole or not at all.

use std::collections::VecDeque;

use base::{Rng, Span, Ticket, Time};
use bytes::Bytes;

/// An SSD's flush, microseconds.
pub const FLUSH_MICROS: (u64, u64) = (100, 4_000);

#[derive(Default)]
pub struct Disk {
    safe: Vec<Bytes>,
    under_way: VecDeque<(Ticket, Write)>,
    busy_until: Time,
    /// Each write takes so much longer, at most; zero for a healthy disk.
    pub slow: Span,
}

pub enum Write {
    Append(Vec<Bytes>),
    Rewrite(Vec<Bytes>),
}

impl Write {
    fn records(&self) -> usize {
        match self {
            Write::Append(records) | Write::Rewrite(records) => records.len(),
        }
    }
}

impl Disk {
    /// Takes a write; it completes at the returned moment, in order.
    pub fn submit(&mut self, at: Time, ticket: Ticket, write: Write, rng: &mut Rng) -> Time {
        let slow = if self.slow == Span::ZERO { 0 } else { rng.below(self.slow.0) };
        let took = Span(rng.between(FLUSH_MICROS.0, FLUSH_MICROS.1) + slow);
        self.under_way.push_back((ticket, write));
        self.busy_until = self.busy_until.max(at) + took;
        self.busy_until
    }

    /// The oldest write under way is safe now. `None` if a crash took it.
    pub fn complete(&mut self) -> Option<Ticket> {
        let (ticket, write) = self.under_way.pop_front()?;
        self.apply(write);
        Some(ticket)
    }

    /// The process dies: of what was under way a random prefix reached the disk, record by record.
    /// Returns how many records were lost.
    pub fn crash(&mut self, rng: &mut Rng) -> usize {
        self.busy_until = Time::ZERO;
        let mut writes = std::mem::take(&mut self.under_way).into_iter();
        for (_, write) in writes.by_ref() {
            if rng.chance(0.5) {
                self.apply(write);
                continue;
            }
            let records = write.records();
            let kept = match &write {
                Write::Append(_) => rng.below(records as u64 + 1) as usize,
                Write::Rewrite(_) => 0,
            };
            if let Write::Append(records) = write {
                self.safe.extend(records.into_iter().take(kept));
            }
            return records - kept + writes.map(|(_, write)| write.records()).sum::<usize>();
        }
        0
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Append(records) => self.safe.extend(records),
            Write::Rewrite(records) => self.safe = records,
        }
    }

    pub fn log(&self) -> &[Bytes] {
        &self.safe
    }

    /// The disk is swapped for an empty one.
    pub fn empty(&mut self) {
        *self = Self { slow: self.slow, ..Self::default() };
    }

    /// The disk is an older copy of itself: the last `records` are not there.
    pub fn older(&mut self, records: usize) {
        let kept = self.safe.len().saturating_sub(records);
        self.safe.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[n])
    }

    #[test]
    fn a_crash_keeps_all_that_was_safe_and_a_prefix_of_the_rest() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let mut disk = Disk::default();
            disk.submit(Time(0), Ticket(1), Write::Append(vec![record(1), record(2)]), &mut rng);
            assert_eq!(disk.complete(), Some(Ticket(1)));
            disk.submit(Time(0), Ticket(2), Write::Append(vec![record(3), record(4)]), &mut rng);
            disk.submit(Time(0), Ticket(3), Write::Append(vec![record(5)]), &mut rng);
            disk.crash(&mut rng);
            let log: Vec<u8> = disk.log().iter().map(|r| r[0]).collect();
            assert!([1, 2, 3, 4, 5].starts_with(&log) && log.len() >= 2, "{log:?}");
            assert_eq!(disk.complete(), None);
            seen.insert(log.len());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5], "every prefix occurs");
    }

    #[test]
    fn a_rewrite_happens_whole_or_not_at_all() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut disk = Disk::default();
            disk.submit(Time(0), Ticket(1), Write::Append(vec![record(1), record(2)]), &mut rng);
            disk.complete();
            disk.submit(Time(0), Ticket(2), Write::Rewrite(vec![record(9)]), &mut rng);
            disk.crash(&mut rng);
            seen.insert(disk.log().iter().map(|r| r[0]).collect::<Vec<_>>());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [vec![1, 2], vec![9]]);
    }

    #[test]
    fn writes_complete_in_order() {
        let mut rng = Rng::new(4);
        let mut disk = Disk { slow: Span::millis(50), ..Disk::default() };
        let mut last = Time::ZERO;
        for n in 0..100 {
            let done = disk.submit(Time(n * 10), Ticket(n), Write::Append(vec![]), &mut rng);
            assert!(done > last);
            last = done;
        }
    }
}
