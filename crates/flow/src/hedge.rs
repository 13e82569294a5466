//! When a second one is asked for what the first has not answered (Tempest 3.1, with a budget): it is late when it takes longer than 95
//! of 100 of the last answers did, and few enough were asked more than once. Who is asked, and whose answer is taken, is the
//! owner's matter; so is that nobody is asked twice in overload.

use base::Span;

use crate::histogram::{BUCKETS, bucket_of, percentile};

/// Of so many answers the time is known before anything is late.
const KNOWN_MIN: u32 = 20;
/// Answers of so many requests, and of as many before them, say what is late: some seconds where it matters.
const WINDOW: u32 = 512;
/// Late is found anew after so many answers, as it takes a look at all buckets.
const LOOK_EVERY: u32 = 32;
/// Nothing is late sooner: clocks of waits are that coarse.
const LATE_MIN: Span = Span::millis(1);
const LATE_PERCENT: u64 = 95;
/// Of a thousand requests so many may be asked once more, and so many that were not may be made up for later.
const EXTRA_PER_MILLE: u32 = 50;
const SAVED_MAX: u32 = 10 * 1000;

/// Of one sort of requests.
#[derive(Debug, Default)]
pub struct Hedge {
    /// How long answers took: of this window, and of the one before. Empty until the first one.
    now: Box<[u64]>,
    before: Box<[u64]>,
    in_window: u32,
    until_look: u32,
    late: Option<Span>,
    /// What may be asked once more, in thousandths of a request.
    saved: u32,
}

impl Hedge {
    /// A request is here. When it will be late, if that is known.
    pub fn came(&mut self) -> Option<Span> {
        self.saved = (self.saved + EXTRA_PER_MILLE).min(SAVED_MAX);
        self.late
    }

    /// It is late: whether one more may be asked.
    pub fn spend(&mut self) -> bool {
        let left = self.saved.checked_sub(1000);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }

    /// The first that was asked answered after so long, or was outrun then.
    pub fn took(&mut self, span: Span) {
        if self.now.is_empty() {
            (self.now, self.before) = (vec![0; BUCKETS].into(), vec![0; BUCKETS].into());
        }
        self.now[bucket_of(span.0)] += 1;
        self.in_window += 1;
        self.until_look = self.until_look.saturating_sub(1);
        if self.until_look == 0 {
            self.look();
        }
        if self.in_window >= WINDOW {
            self.in_window = 0;
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.fill(0);
        }
    }

    fn look(&mut self) {
        let all: Vec<u64> = self.now.iter().zip(&*self.before).map(|(now, before)| now + before).collect();
        if all.iter().sum::<u64>() < u64::from(KNOWN_MIN) {
            self.until_look = KNOWN_MIN - self.in_window;
            return;
        }
        self.until_look = LOOK_EVERY;
        self.late = Some(Span(percentile(&all, LATE_PERCENT)).max(LATE_MIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_what_95_of_100_are_not_and_follows_them() {
        let mut hedge = Hedge::default();
        for _ in 0..KNOWN_MIN - 1 {
            hedge.took(Span::millis(10));
            assert_eq!(hedge.came(), None);
        }
        hedge.took(Span::millis(10));
        let late = hedge.came().unwrap();
        assert!((Span::millis(10)..Span::millis(11)).contains(&late), "{late:?}");
        // One in ten takes long: then that is what is usual.
        (0..2 * WINDOW).for_each(|n| hedge.took(Span::millis(if n % 10 == 0 { 300 } else { 10 })));
        assert!(hedge.came().unwrap() >= Span::millis(300));
        // One in fifty does: they are late long before they end. What was is forgotten.
        (0..2 * WINDOW + LOOK_EVERY).for_each(|n| hedge.took(Span::millis(if n % 50 == 0 { 300 } else { 10 })));
        assert!(hedge.came().unwrap() < Span::millis(20));
        (0..2 * WINDOW + LOOK_EVERY).for_each(|_| hedge.took(Span(7)));
        assert_eq!(hedge.came(), Some(LATE_MIN));
    }

    #[test]
    fn one_in_twenty_is_asked_once_more_and_no_quiet_time_makes_it_many() {
        let mut hedge = Hedge::default();
        assert!(!hedge.spend(), "none came");
        let asked = (0..10_000).filter(|_| {
            hedge.came();
            hedge.spend()
        });
        assert_eq!(asked.count(), 500);
        for _ in 0..10_000 {
            hedge.came();
        }
        assert_eq!((0..10_000).filter(|_| hedge.spend()).count(), 10);
    }
}
